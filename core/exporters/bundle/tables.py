"""The tables of a bundle, looked at before anything is made of them: the store's columns, keys that are keys, and no
more than there is in the file. Parquet lets a small file stand for billions of rows, or of letters.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from core.exporters.bundle import layout
from core.exporters.bundle.layout import BundleError, size_in_words
from core.store import schema
from core.store.files import PACKED
from core.store.open import Lab
from core.store.sources import TYPES, Source, identifier

ROWS_A_BYTE = 4
"""Rows of a table for each byte of its file, at most; the lab's own have one in ten bytes or so."""
FREE_ROWS = 100_000
LONGEST_TEXT = 16 * layout.MB
"""Bytes of one text."""
MOST_TEXT = 16 * layout.GB
"""Bytes of all texts of a table."""
MOST_PARTS = 1000
"""Entries of a mapping or a list."""
KEYS = {
    "metrics": ("step",), "evals": ("step",), "groups": schema.KEYS[:3], "rollouts": schema.KEYS[:4],
    "tokens": schema.KEYS, "summary": ("step", "split", "polarity", "bin", "field"),
    "positions": ("step", "split", "polarity", "bin"), "strings": ("step", "split", "polarity", "token_id", "token"),
}  # fmt: skip
MOST = {("rollouts", "length"): 2**24, ("evals", "rollouts"): 100_000, ("evals", "k"): 100_000}
"""Of counts that pages make room for."""
WRONG_COUNTS = """
SELECT count(*) FROM groups LEFT JOIN
(SELECT step, split, "group", count(*) AS there FROM rollouts GROUP BY ALL) USING (step, split, "group")
WHERE n IS DISTINCT FROM coalesce(there, 0)
"""
_UNNAMED = {"strings": ("token_id",)}
"""Keys that may be null."""


def check_tables(lab: Lab, folder: Path) -> None:
    """Look at every table of the one, packed run of the lab. Raises BundleError, StoreError, duckdb.Error."""
    (run,) = lab.runs
    source = lab.source(run)
    packed = source.packed
    if packed is None or not packed.steps:
        raise BundleError(f"{layout.TABLE_LIST}: names no steps")
    for table in schema.TABLES:
        file = folder / PACKED / f"{table}.parquet"
        if table in packed.files:
            _check_table(lab, source, table, file, sorted(packed.steps))
        elif file.exists():
            raise BundleError(f"{PACKED}/{file.name}: {layout.TABLE_LIST} says that it has no rows")
    _check_belonging(lab, packed.files, packed.steps)
    if bad := _one(lab, WRONG_COUNTS):
        raise BundleError(f"{PACKED}/groups.parquet: {bad:,} of its groups have other rollouts than they say")


def _check_belonging(lab: Lab, tables: Collection[str], steps: Collection[int]) -> None:
    """Every step that is listed has rows, every rollout its group, and every token its rollout."""
    every = " UNION ".join(f"SELECT step FROM {table}" for table in schema.TABLES if table in tables)
    there = _one(lab, f"SELECT count(*) FROM ({every})") if every else 0
    if there != len(steps):
        raise BundleError(f"{layout.TABLE_LIST}: names {len(steps):,} steps, and the tables have rows of {there:,}")
    for table, owner in (("tokens", "rollouts"), ("rollouts", "groups")):
        if table in tables:
            own = ", ".join(map(identifier, KEYS[owner]))
            lost = f"SELECT DISTINCT {own} FROM {table} EXCEPT SELECT {own} FROM {owner}"
            if bad := _one(lab, f"SELECT count(*) FROM ({lost})"):
                raise BundleError(f"{PACKED}/{table}.parquet: holds {table} of {bad:,} {owner} that the run lacks")


def _check_table(lab: Lab, source: Source, table: str, file: Path, steps: list[int]) -> None:
    name, there = f"{PACKED}/{file.name}", source.sealed_columns[table]
    keys = KEYS[table]
    if missing := [key for key in keys if key not in there]:
        raise BundleError(f"{name}: has no column {missing[0]}")
    rows = _one(lab, f"SELECT count(*) FROM {table}")
    if rows > ROWS_A_BYTE * file.stat().st_size + FREE_ROWS:
        raise BundleError(
            f"{name}: says that it has {rows:,} rows, which do not fit into its {file.stat().st_size:,} B"
        )
    _check_sizes(lab, table, there, name)
    named = [identifier(key) for key in keys if key not in _UNNAMED.get(table, ())]
    wrong = ["step NOT IN (SELECT unnest(?))", *(f"{key} IS NULL" for key in named)]
    if "split" in keys:
        wrong.append(f"split NOT IN ({', '.join(repr(split) for split in schema.SPLITS)})")
    if "polarity" in keys:
        wrong.append("polarity NOT IN (-1, 1)")
    wrong += [f"{identifier(key)} < 0" for key in keys if key in ("group", "rollout", "position", "bin")]
    if bad := _one(lab, f"SELECT count(*) FROM {table} WHERE {' OR '.join(wrong)}", [steps]):
        raise BundleError(f"{name}: {bad:,} of its rows are of no step, split or place that a run has")
    for column in (column for known, column in MOST if known == table and column in there):
        most = MOST[table, column]
        if _one(lab, f"SELECT count(*) FROM {table} WHERE {column} NOT BETWEEN 0 AND {most}"):
            raise BundleError(f"{name}: {column} is not between 0 and {most:,} everywhere")
    listed = ", ".join(map(identifier, keys))
    if _one(lab, f"SELECT count(*) FROM (SELECT 1 FROM {table} GROUP BY {listed} HAVING count(*) > 1)"):
        raise BundleError(f"{name}: holds rows twice")


def _check_sizes(lab: Lab, table: str, there: frozenset[str], name: str) -> None:
    """Texts, mappings and lists are of a size that a page can hold."""
    asked = []
    for column, kind in TYPES[table].items():
        quoted = identifier(column)
        if column not in there:
            continue
        if kind == "VARCHAR":
            asked += [(column, f"max(strlen({quoted}))", LONGEST_TEXT), (column, f"sum(strlen({quoted}))", MOST_TEXT)]
        elif kind.startswith("MAP"):
            asked.append((column, f"max(cardinality({quoted}))", MOST_PARTS))
            names = f"max(strlen(array_to_string(map_keys({quoted}), '')))"
            asked.append((column, names, LONGEST_TEXT))
        elif kind.endswith("[]"):
            asked.append((column, f"max(len({quoted}))", MOST_PARTS))
    if not asked:
        return
    found = lab.rows(f"SELECT {', '.join(f'{sql} AS c{i}' for i, (_, sql, _) in enumerate(asked))} FROM {table}")[0]
    for (column, sql, most), value in zip(asked, found.values(), strict=True):
        if value is not None and value > most:
            words = f"{most} entries" if most == MOST_PARTS else size_in_words(most)
            what = "one value" if sql.startswith("max") else "all values"
            raise BundleError(f"{name}: {what} of {column} would be larger than {words}")


def _one(lab: Lab, sql: str, params: list[Any] | None = None) -> int:
    return int(next(iter(lab.rows(sql, params)[0].values())) or 0)
