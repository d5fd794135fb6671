"""Messages of a chat as one text.

One message is its content. Several stand one after another, each behind its role. Parts that are no text are named.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

BETWEEN = "\n\n"


def as_text(value: Any) -> str | None:
    """The text of a string, a message or a list of messages; None for null and for an empty list."""
    if value is None or isinstance(value, str):
        return value
    messages = [value] if isinstance(value, dict) else value
    if not isinstance(messages, list):
        return json.dumps(value, ensure_ascii=False, default=str)
    if not messages:
        return None
    if len(messages) == 1:
        return _content(messages[0])
    return BETWEEN.join(_role(message) + _content(message) for message in messages)


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return f"{role}: " if isinstance(role, str) else ""


def _content(message: Any) -> str:
    """What a message says: thoughts, text and calls of tools, in that order."""
    if not isinstance(message, dict):
        return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False, default=str)
    said = []
    if isinstance(thought := message.get("reasoning_content"), str) and thought:
        said.append(f"<think>{thought}</think>")
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, dict):
            said.append(part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type') or 'part'}]")
    if message.get("tool_calls"):
        said.append(json.dumps(message["tool_calls"], ensure_ascii=False, default=str))
    return "\n".join(said)


def column_as_text(column: pa.Array) -> pa.Array:
    """`as_text` of each value of a column. Texts and plain messages take no loop over rows."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return column.cast(pa.string())
    if _plain(kind):
        return _plain_messages(column)
    return pa.array([as_text(value) for value in column.to_pylist()], pa.string())


def _plain(kind: pa.DataType) -> bool:
    """Lists of messages that have nothing but a role and a text."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return set(fields) == {"role", "content"} and all(
        pa.types.is_string(field) or pa.types.is_large_string(field) for field in fields.values()
    )


def _plain_messages(column: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(column).fill_null(0)
    messages = pc.list_flatten(column)
    content = pc.struct_field(messages, "content").cast(pa.string()).fill_null("")
    role = pc.struct_field(messages, "role").cast(pa.string())
    several = pc.take(pc.greater(lengths, 1), pc.list_parent_indices(column))
    heading = pc.if_else(several, pc.binary_join_element_wise(role, ": ", "").fill_null(""), "")
    said = pc.binary_join_element_wise(heading, content, "")
    offsets = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), offsets])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, said), BETWEEN)
    return pc.if_else(pc.greater(lengths, 0), joined, pa.scalar(None, pa.string()))
