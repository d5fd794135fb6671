"""What the lab's own exports add to another trainer's rows: columns by the names that rollouts have here.

`core.exporters` writes trainers whose dumps hold each token's advantage, `token_advantage`, beside what the trainer
itself writes. Rows without it are taken as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from core.importers.base import SCHEMA
from core.importers.formats._values import Refused, flag, floats, ids, mask, strings, whole

MARK = "token_advantage"
LISTS = {
    "token_ids": ids,
    "tokens": strings,
    "kept": mask,
    **dict.fromkeys(("sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", MARK), floats),
}
SINGLE = ("length", "truncated", "correct", "group")
COLUMNS = frozenset({*LISTS, *SINGLE, "acc"})


def of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row of JSON; none without a token's advantage. Raises Refused where their lengths differ."""
    if row.get(MARK) is None:
        return {}
    found = {name: read(row.get(name)) for name, read in LISTS.items()}
    if len({len(values) for values in found.values() if values is not None}) > 1:
        raise Refused("its lists of tokens have different lengths")
    found |= {"length": whole(row, "length"), "truncated": flag(row.get("truncated"))}
    return {name: values for name, values in found.items() if values is not None}


def in_schema(schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a Parquet file that are the lab's own; none without a token's advantage."""
    if MARK not in schema.names or not _fits(schema.field(MARK).type, SCHEMA.field(MARK).type):
        return ()
    names = (*LISTS, *SINGLE)
    return tuple(
        name for name in names if name in schema.names and _fits(schema.field(name).type, SCHEMA.field(name).type)
    )


def _fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(wanted):
        return (pa.types.is_list(there) or pa.types.is_large_list(there)) and _fits(there.value_type, wanted.value_type)
    for test in (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating):
        if test(wanted):
            return test(there)
    return pa.types.is_string(there) or pa.types.is_large_string(there)


def whole_rows(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns, all lists of a row null where their lengths differ."""
    lists = {name: values for name, values in columns.items() if name in LISTS}
    lengths = [pc.list_value_length(values) for values in lists.values()]
    same = [pc.fill_null(pc.equal(lengths[0], other), True) for other in lengths[1:]]
    kept: Any = None
    for each in same:
        kept = each if kept is None else pc.and_(kept, each)
    if kept is not None:
        columns = {
            name: pc.if_else(kept, values, pa.scalar(None, values.type)) if name in LISTS else values
            for name, values in columns.items()
        }
    return dict(columns)
