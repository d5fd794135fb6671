"""TRL's GRPOTrainer, and Unsloth's, which is the same: `completions/completions_{step}.parquet`.

Columns: step, prompt, completion, one a reward function, then what reward functions logged besides, advantage. The
weights of the reward functions are not written. Files repeat rows: the trainer logs the last batch it generated, and
trains on a batch for several steps. A row is taken from the first file that has it. Where it logs less often than it
generates, rollouts are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.importers.base import LETTERS, ROWS, Format, Found, Place, Places, Report
from core.importers.formats._columns import NO_TEXT, Plan, convert
from core.importers.formats._lines import UNREADABLE, UNREADABLE_PARQUET, name_of
from core.importers.formats._look import Glance, recognise
from core.importers.formats._repeats import Repeats

READ_AT_ONCE = 2 * ROWS
LONGEST_STEP = 64 * ROWS
"""Rows of one step that are held together at most, to be compared with the step before."""
REPEATED = "the row stands in an earlier file or step too"
DAMAGED = "the Parquet file is damaged"


def _fits(seen: Glance) -> bool:
    names = set(seen.columns)
    return seen.kind == "parquet" and "completion" in names and bool({"prompt", "step", "advantage"} & names)


def read(found: Found, report: Report, done: Places) -> Iterator[pa.Table]:
    """Tables of the files' rollouts."""
    repeats, plans, waiting, steps = Repeats(), [], [], set()
    before: Path | None = None
    for path in found.files:
        file = name_of(found, path)
        try:
            stat = path.stat()
        except OSError:
            report.note(UNREADABLE.format(file))
            continue
        if file in done and done[file].modified_ns == stat.st_mtime_ns:
            before = path
            continue
        if before is not None:
            _remember(before, repeats)
            before = None
        rows = 0
        for table in _whole_steps(_tables(path, file, report, plans)):
            waiting += _new(table, f"{file}, row {rows + 1}", repeats, report)
            rows += len(table)
            steps.update(table["step"].drop_null().unique().to_pylist())
            if sum(map(len, waiting)) >= ROWS or sum(part.nbytes for part in waiting) >= LETTERS:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting = []
        done[file] = Place(stat.st_size, rows, stat.st_mtime_ns)
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
    _tell(plans, report)
    if len(steps) > 1 and (apart := min(np.diff(sorted(steps)))) > 1:
        report.note(f"The trainer logged every {apart} steps or less often: the files lack the rollouts between.")


def _tables(path: Path, file: str, report: Report, plans: list[Plan]) -> Iterator[pa.Table]:
    """The file's rows as tables of rollouts. A file that cannot be read is refused, as far as it was not read."""
    try:
        with pq.ParquetFile(path) as handle:
            plan, rows, seen = Plan.of(handle.schema_arrow), handle.metadata.num_rows, 0
            if "completion" not in plan.columns:
                report.refuse(NO_TEXT, f"{file}, row 1", rows)
                return
            plans.append(plan)
            if not rows:
                report.note(f"{file} has no rows.")
            try:
                for batch in handle.iter_batches(_at_once(handle), columns=plan.columns, use_threads=False):
                    yield convert(batch, plan, file, seen, report)
                    seen += len(batch)
            except UNREADABLE_PARQUET:
                report.refuse(DAMAGED, f"{file}, row {seen + 1}", rows - seen)
    except UNREADABLE_PARQUET:
        report.note(f"{file} is no Parquet file that can be read: it was left out.")


def _at_once(handle: pq.ParquetFile) -> int:
    """Rows that are read together: fewer of long ones, as the file says of its fullest part."""
    groups = [handle.metadata.row_group(i) for i in range(handle.metadata.num_row_groups)]
    longest = max([1, *(group.total_byte_size // max(1, group.num_rows) for group in groups)])
    return max(1, min(READ_AT_ONCE, LETTERS // longest))


def _starts(table: pa.Table) -> list[int]:
    """Where runs of one step begin."""
    steps = table["step"]
    steps = (steps.fill_null(-1) if steps.null_count else steps).to_numpy()
    return [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist()]


def _whole_steps(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows again, cut between steps."""
    held: pa.Table | None = None
    for table in tables:
        table = table if held is None else pa.concat_tables([held, table])
        cut = _starts(table)[-1]
        if not cut and len(table) > LONGEST_STEP:
            cut = len(table)
        if cut:
            yield table.slice(0, cut)
        held = table.slice(cut)
    if held is not None and len(held):
        yield held


def _new(table: pa.Table, where: str, repeats: Repeats, report: Report) -> list[pa.Table]:
    """The parts of the table that were not there before."""
    kept = []
    for start, end in pairwise([*_starts(table), len(table)]):
        block = table.slice(start, end - start)
        if old := repeats.at_the_beginning(block):
            report.refuse(REPEATED, where, old)
        kept.append(block.slice(old))
    return [table] if sum(map(len, kept)) == len(table) else [part for part in kept if len(part)]


def _remember(path: Path, repeats: Repeats) -> None:
    """What the file that was read last time ends with."""
    for table in _whole_steps(_tables(path, path.name, Report(), [])):
        _new(table, path.name, repeats, Report())


def _tell(plans: list[Plan], report: Report) -> None:
    """Sentences about the reward columns of all files."""
    sets = {plan.parts for plan in plans}
    every = sorted({name for parts in sets for name in parts})
    if len(sets) > 1:
        common = set.intersection(*map(set, sets))
        some = ", ".join(f"`{name}`" for name in every if name not in common)
        report.note(f"Reward columns differ between files: only some of them have {some}.")
    if any(len(plan.parts) > 1 and not plan.reward for plan in plans):
        names = ", ".join(f"`{name}`" for name in every)
        report.note(
            f"The files do not say how the reward functions ({names}) were weighted: the reward is their plain sum."
        )


FORMAT = Format(
    "trl",
    "TRL and Unsloth",
    "completions/completions_{step}.parquet with `prompt` and `completion`",
    partial(recognise, "trl", fits=_fits),
    read,
)
