"""A scratch file of everything that a reader gives, so that rows may come in any order and never fill the memory.

Rows are numbered as they come (`seq`) and lie in one Arrow file, table after table. Of each, its keys stay in memory,
some hundred bytes: what grouping, fitting and counting look at (`core.importers.keys`).
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.importers.base import ROLLOUT, SCHEMA, Report
from core.store.sources import identifier, literal

LISTS = tuple(column.name for column in ROLLOUT if pa.types.is_list(column.type))
NO_TOKENS = "the response has no tokens, where it has a list of them"
UNEVEN = "its lists of tokens are of different lengths"
RIGHT = 0.5
"""The least verdict of a right answer; configs have the same (`correct_threshold`)."""
JUDGE = re.compile(r"accuracy|(?<!in)correct|(?:^|_)acc(?:_|$)", re.IGNORECASE)
"""Names of reward parts that say whether an answer is right."""
BAD_STEP = "the step is not between 0 and 999,999,999,999"
_HASHED = tuple(c.name for c in ROLLOUT if c.name not in ("file", "step", "split", "group", "sample"))
_SETTINGS: dict[str, str | bool | int] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "threads": 2,
}
_KEYS = """
    SELECT coalesce(step, -1) AS step, coalesce(split = 'eval', false) AS evaluated, hash(file) AS file,
    hash("group") AS group_hash, "group" IS NOT NULL AS grouped, hash(sample) AS sample_hash,
    sample IS NOT NULL AS sampled, hash(prompt) AS prompt_hash, prompt IS NOT NULL AS prompted,
    coalesce(nullif(reward, 'nan'::DOUBLE), list_sum(list_filter(map_values(parts), lambda x: isfinite(x))),
        'nan'::DOUBLE) AS reward, coalesce(correct::INT::DOUBLE, {judge}, reward, 'nan'::DOUBLE) AS verdict,
    CASE WHEN isfinite(advantage) THEN advantage ELSE 'nan'::DOUBLE END AS advantage,
    coalesce({size}, length, -1) AS length, {size} IS NOT NULL AS tokened,
    coalesce(strlen(prompt), 0) + coalesce(strlen(answer), 0) + coalesce(strlen(text), 0) AS letters, {row} AS row_hash
    FROM incoming
"""


class Stage:
    """The rows that were read, on disk. `folder` is a scratch folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect(config=_SETTINGS)
        self._connection.execute("SET enable_progress_bar = false")
        self._file = folder / "rows.arrow"
        self._writer = pa.ipc.new_file(self._file, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._reader: pa.RecordBatchFileReader | None = None
        self._ends: list[int] = []
        self._parts: list[dict[str, np.ndarray]] = []
        self._read: dict[int, pa.RecordBatch] = {}
        self.rows = 0
        self.have: dict[str, int] = dict.fromkeys(SCHEMA.names, 0)
        """Rows that have a value, by column."""

    def add(self, table: pa.Table, report: Report) -> None:
        """Take a reader's table; rows that contradict themselves are refused."""
        table = _sound(conform(table), report)
        for batch in table.combine_chunks().to_batches():
            if batch.num_rows:
                self._writer.write_batch(batch)
                self._parts.append(self._keys(batch, report))
                self.rows += batch.num_rows
                self._ends.append(self.rows)
                for name, column in zip(SCHEMA.names, batch.columns, strict=True):
                    self.have[name] += batch.num_rows - column.null_count

    def _judge(self, batch: pa.RecordBatch, report: Report) -> str:
        """The reward part that says whether an answer is right, where the rows do not say it themselves; or ""."""
        if batch["correct"].null_count == 0 or batch["parts"].null_count == batch.num_rows:
            return ""
        names = pc.unique(batch["parts"].keys).to_pylist()
        judges = sorted(name for name in names if JUDGE.search(name)) if len(names) > 1 else []
        if judges:
            report.note(f"Which answers are right was read off the reward part `{judges[0]}`, {RIGHT} or more.")
        return judges[0] if judges else ""

    def _keys(self, batch: pa.RecordBatch, report: Report) -> dict[str, np.ndarray]:
        there = [name for name in SCHEMA.names if batch[name].null_count < batch.num_rows]
        sizes = [f"len({identifier(name)})" for name in LISTS if name in there]
        hashes = [
            f"CASE WHEN {identifier(name)} IS NULL THEN 0 ELSE hash({literal(name)}, {identifier(name)}) END"
            for name in _HASHED
            if name in there
        ]
        row = "0::UBIGINT"
        for one in hashes:
            row = f"xor({row}, ({one})::UBIGINT)"
        judge = self._judge(batch, report)
        query = _KEYS.format(
            size=f"coalesce({', '.join(sizes)})" if sizes else "NULL::INTEGER",
            judge=f"parts[{literal(judge)}]" if judge else "NULL",
            row=row,
        )
        self._connection.register("incoming", pa.Table.from_batches([batch]))
        try:
            found = self._connection.execute(query).fetchnumpy()
        finally:
            self._connection.unregister("incoming")
        keys = {name: np.ma.getdata(values) for name, values in found.items()}
        keys["verdict"] = np.where(np.isnan(keys["verdict"]), keys["reward"], keys["verdict"])
        if "token_advantage" in there:
            own = _one_value(batch["token_advantage"])
            keys["advantage"] = np.where(np.isnan(keys["advantage"]), own, keys["advantage"])
        return keys

    def keys(self) -> dict[str, np.ndarray]:
        """(rows,) arrays in the order of `seq`; `step` is -1 where no file says it. No row can be added any more."""
        if self._reader is None:
            self._writer.close()
            self._reader = pa.ipc.open_file(pa.OSFile(str(self._file)))
            self._joined = {
                name: np.concatenate([part[name] for part in self._parts]) for name in (self._parts or [{}])[0]
            }
            self._joined["seq"] = np.arange(self.rows)
            self._parts = []
        return self._joined

    def file_of(self, seq: int) -> str:
        """The file of a row."""
        return self.fetch(np.array([seq]))["file"][0].as_py() or ""

    def where(self, seq: int) -> str:
        """The file and step of a row."""
        row = self.fetch(np.array([seq]))
        return f"{row['file'][0].as_py() or 'the files'}, step {row['step'][0].as_py()}"

    def fetch(self, seq: np.ndarray) -> pa.Table:
        """Rows by their numbers, in that order. Neighbours are quick; the last few tables are kept."""
        self.keys()
        assert self._reader is not None
        batch_of = np.searchsorted(self._ends, seq, side="right")
        used, place = np.unique(batch_of, return_inverse=True)
        starts = np.append(0, self._ends)
        batches = {int(i): self._read.get(int(i)) or self._reader.get_batch(int(i)) for i in used}
        inside = [seq[batch_of == i] - starts[i] for i in used]
        table = pa.Table.from_batches(
            [batches[int(i)].take(pa.array(rows)) for i, rows in zip(used, inside, strict=True)]
        )
        self._read = dict(list(batches.items())[-4:])
        if len(used) == 1:
            return table
        return table.take(pa.array(np.argsort(np.argsort(place, kind="stable"), kind="stable")))

    def close(self) -> None:
        self._connection.close()
        self._read, self._reader = {}, None


def conform(table: pa.Table) -> pa.Table:
    """A table with exactly the columns of SCHEMA; those that it lacks are null."""
    if table.schema.equals(SCHEMA):
        return table
    count, names = table.num_rows, set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in names else pa.nulls(count, field.type) for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _sound(table: pa.Table, report: Report) -> pa.Table:
    """The rows that can be stored: a step in range, lists of one length."""
    good = np.ones(table.num_rows, bool)

    def refuse(reason: str, bad: np.ndarray) -> None:
        bad = bad & good
        if bad.any():
            first = int(np.argmax(bad))
            where = f"{table['file'][first].as_py() or 'the files'}, step {table['step'][first].as_py()}"
            report.refuse(reason, where, int(bad.sum()))
            good[bad] = False

    step = table["step"].fill_null(0).to_numpy()
    refuse(BAD_STEP, (step < 0) | (step >= 10**12))
    given = [name for name in LISTS if table[name].null_count < table.num_rows]
    if given:
        sizes = {name: pc.list_value_length(table[name]).fill_null(-1).to_numpy() for name in given}
        longest = np.max(list(sizes.values()), axis=0)
        refuse(NO_TOKENS, longest == 0)
        for size in sizes.values():
            refuse(UNEVEN, (size >= 0) & (size != longest))
    return table if good.all() else table.filter(pa.array(good))


def _one_value(lists: pa.ListArray) -> np.ndarray:
    """(rows,) the one finite value that all entries of a row have, NaN where there is none or there are several."""
    size = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    values = lists.flatten().cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    out = np.full(len(lists), np.nan)
    some = size > 0
    if not some.any():
        return out
    starts = np.append(0, np.cumsum(size[some])[:-1])
    there = np.isfinite(values)
    low = np.minimum.reduceat(np.where(there, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(there, values, -np.inf), starts)
    with np.errstate(invalid="ignore"):
        out[some] = np.where(high - low <= 1e-6, low, np.nan)
    return out
