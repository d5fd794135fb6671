"""Packing: a run that has ended becomes a small folder that can be shared, copied and kept in a repository.

    tables/TABLE.parquet   one file a table, all steps, sorted, a row group for every few steps
    config.yaml, schema.json, status.json, log.txt   cleared of what they say of the machine
    import.json            of an imported run, without the folder that it came from

Every table stays whole but for `tokens`, by far the largest: those of some steps are kept, at which a reader can look
inside and recompute. The sums of `summary`, `positions` and `strings` are rounded to single precision (6e-8 of each).
Checkpoints and the adapter are left out, so a pack is read, never resumed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.config import dump, parse_run, read_run
from core.importers.manifest import read_manifest as read_origin
from core.importers.manifest import write_manifest as write_origin
from core.store import schema
from core.store.errors import StoreError
from core.store.factors import SCHEMA
from core.store.files import PACKED
from core.store.open import Lab
from core.store.packed import write_manifest
from core.store.queries.landmarks import strongest_push
from core.store.queries.tokens import steps_with_tokens
from core.store.sources import identifier

TOKEN_STEPS = 15
"""Steps whose tokens are kept."""
ENDED = ("finished", "stopped")
EARLY = (0, 1, 2, 5)
"""Steps that are kept as they are, since most changes there."""
ROUNDED = ("summary", "positions", "strings")
_TOGETHER = 16  # steps a row group, where a table has few rows a step
STATUS = (
    "state", "step", "total", "created", "started", "finished", "step_s", "metrics", "label", "experiment_name",
    "look_for",
)  # fmt: skip
"""What a packed run's status keeps: nothing of its host or process."""
_LOGGED = re.compile(r"\d\d:\d\d:\d\d  [^/\\]*")
"""Lines of a log that are kept: the lab's own, if they name no folder."""


def pack(run_dir: str | Path, out: str | Path, token_steps: int = TOKEN_STEPS, experiment: str | None = None) -> Path:
    """Pack a run that has ended into the new folder `out`, with the tokens of `token_steps` steps; returns the folder.

    `experiment` is another id for the experiment it belongs to. Raises StoreError for a run that has not ended, has no
    steps or cannot be read, or where `out` is there already.
    """
    run_dir, out = Path(run_dir), Path(out)
    status = _status(run_dir)
    if status.get("state") not in ENDED:
        raise StoreError(
            f"{run_dir.name}: only runs that finished or were stopped are packed, "
            f"this one is {status.get('state', 'unknown')}"
        )
    if out.exists():
        raise StoreError(f"{out}: already there; name a new folder, or remove it first")
    beside = out.with_name(f".packing-{out.name}-{os.getpid()}")
    try:
        (beside / PACKED).mkdir(parents=True)
        with Lab([run_dir]) as lab:
            write_tables(lab, beside / PACKED, token_steps)
        _write_config(run_dir, beside, experiment)
        if (run_dir / SCHEMA).is_file():
            shutil.copyfile(run_dir / SCHEMA, beside / SCHEMA)
        if (origin := read_origin(run_dir)) is not None:
            write_origin(beside, origin.shareable())
        kept = {name: status[name] for name in STATUS if name in status}
        (beside / "status.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (beside / "log.txt").write_text(own_lines(run_dir / "log.txt"), encoding="utf-8")
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out


def choose_steps(there: Iterable[int], probed: Iterable[int], must: Iterable[int], count: int) -> list[int]:
    """The steps whose tokens are kept, ascending, of those `there`.

    `must` (the strongest push, say) and the first few come first, then steps with probes, evenly spread, so that one
    prompt can be followed through training; last whichever fill the widest gaps.
    """
    there, probed = sorted(set(there)), sorted(set(probed) & set(there))
    if len(there) <= count:
        return there
    early = EARLY[: (count + 1) // 4]
    chosen = set([step for step in dict.fromkeys((*must, *early)) if step in there][:count])
    free = [step for step in probed if step not in chosen]
    places = np.linspace(0, len(free) - 1, max(0, min(len(free), count - len(chosen)))).round().astype(int)
    chosen |= {free[place] for place in places}
    while len(chosen) < count:
        chosen.add(max(there, key=lambda step: (min((abs(step - own) for own in chosen), default=0), -step)))
    return sorted(chosen)


def write_tables(lab: Lab, folder: Path, count: int | None, level: int = 19) -> None:
    """Write every table of the lab's one run that has rows, and the list of them.

    Tokens are those of `count` steps; None keeps all, and every sum in double precision. `level` is zstd's. Raises
    StoreError for a run without steps, or one that cannot be read.
    """
    (run,) = lab.runs
    steps = lab.steps(run)
    if not steps:
        raise StoreError(f"{run}: no steps to pack")
    kept = sorted(steps_with_tokens(lab, run)) if count is None else _token_steps(lab, run, count)
    several = [steps[i : i + _TOGETHER] for i in range(0, len(steps), _TOGETHER)]
    groups = {"tokens": [[step] for step in kept], "metrics": [steps], "evals": [steps]}
    rows = {}
    try:
        for table in schema.TABLES:
            columns, file = _columns(lab, table, () if count is None else ROUNDED), folder / f"{table}.parquet"
            rows[table] = _write_table(lab, table, columns, groups.get(table, several), file, level)
    except (duckdb.Error, pa.ArrowException) as error:
        raise StoreError(f"{run}: cannot be packed: {str(error).partition(chr(10))[0]}") from error
    write_manifest(folder, steps, kept, rows)


def _token_steps(lab: Lab, run: str, count: int) -> list[int]:
    strongest = strongest_push(lab, run)
    probed = (row["step"] for row in lab.rows("SELECT DISTINCT step FROM groups WHERE split = 'probe'"))
    return choose_steps(steps_with_tokens(lab, run), probed, [strongest.step] if strongest else [], count)


def _columns(lab: Lab, table: str, rounded: Sequence[str]) -> pa.Schema:
    """A table's columns, those of the `rounded` tables in single precision."""
    factors = tuple(name.removeprefix(schema.FACTOR_PREFIX) for name in lab.factors(table))
    wanted = schema.arrow(table, factors, factors)
    return pa.schema([(field.name, _rounded(field.type)) for field in wanted]) if table in rounded else wanted


def _write_table(
    lab: Lab, table: str, wanted: pa.Schema, groups: Sequence[Sequence[int]], file: Path, level: int
) -> int:
    """Write a table, a row group for each group of consecutive steps; returns the rows. No rows, no file."""
    names = ", ".join(map(identifier, wanted.names))
    keys = (*schema.KEYS, "polarity", "bin", "field", "token_id")
    order = ", ".join(identifier(key) for key in keys if key in wanted.names)
    query = f"SELECT {names} FROM {table} WHERE step BETWEEN ? AND ? ORDER BY {order}"
    cursor, rows = lab.cursor((table,)), 0
    try:
        with pq.ParquetWriter(file, wanted, **_compression(wanted, level)) as writer:
            for steps in groups:
                part = cursor.sql(query, params=[steps[0], steps[-1]]).to_arrow_table().cast(wanted)
                if part.num_rows:
                    writer.write_table(part, row_group_size=part.num_rows)
                rows += part.num_rows
    finally:
        cursor.close()
    if not rows:
        file.unlink()
    return rows


def _rounded(kind: pa.DataType) -> pa.DataType:
    return pa.float32() if pa.types.is_float64(kind) else kind


def _compression(columns: pa.Schema, level: int) -> dict[str, Any]:
    """How the columns lie in the file: texts by dictionary, fractions split by byte, whole numbers by difference."""
    encoding, texts = {}, []
    for field in columns:
        if pa.types.is_floating(field.type):
            encoding[field.name] = "BYTE_STREAM_SPLIT"
        elif pa.types.is_integer(field.type) and field.type.bit_width >= 32:
            encoding[field.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_string(field.type):
            texts.append(field.name)
    return {
        "compression": "zstd", "compression_level": level, "use_dictionary": texts, "column_encoding": encoding,
        "write_statistics": [name for name in ("step", "group") if name in columns.names], "store_schema": False,
    }  # fmt: skip


def _write_config(run_dir: Path, out: Path, experiment: str | None) -> None:
    """The run's config, folders and files of this machine cut to their last name."""
    run = read_run(run_dir / "config.yaml")
    if experiment is not None:
        run = run.model_copy(update={"experiment": experiment})
    (out / "config.yaml").write_text(dump(parse_run(_without_folders(run.model_dump()))), encoding="utf-8")


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, str) and os.path.isabs(os.path.expanduser(value)):
        return PurePath(value).name
    return value


def own_lines(log: Path) -> str:
    """The lines of a log that the lab itself wrote and that name no folder."""
    try:
        written = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(f"{line}\n" for line in written.splitlines() if _LOGGED.fullmatch(line))


def _status(run_dir: Path) -> dict[str, Any]:
    try:
        data = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{run_dir / 'status.json'}: missing, or cannot be read") from error
    return data if isinstance(data, dict) else {}
