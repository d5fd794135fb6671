"""open-instruct: `{run}_rollouts_{shard}.jsonl`, written with `--save_traces`.

`prompt_idx` is the group, and begins anew each step. There are ids and log-probs but no text, so ids are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, split_of
from core.importers.formats._rows import Doubts, Rollout, read_lines, same_length
from core.importers.formats._values import Refused, floats, ids, label, number, shown_ids, text, whole


def _fits(row: dict[str, Any]) -> bool:
    return "prompt_idx" in row and "response_tokens" in row


def take(doubts: Doubts, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    tokens = ids(row.get("response_tokens"))
    if tokens is None:
        raise Refused("`response_tokens` is no list of token ids")
    group = label(row.get("prompt_idx"))
    if group is None:
        raise Refused("`prompt_idx` is missing")
    prompt, answer = ids(row.get("prompt_tokens")), row.get("ground_truth")
    finish = row.get("finish_reason")
    rollout = {
        "step": whole(row, "step"),
        "split": split_of(line.file),
        "group": group,
        "sample": label(row.get("sample_idx")),
        "prompt": None if prompt is None else shown_ids(prompt),
        "answer": text(answer[0] if isinstance(answer, list) and len(answer) == 1 else answer),
        "reward": number(row, "reward"),
        "advantage": number(row, "advantage"),
        "length": len(tokens),
        "truncated": finish != "stop" if isinstance(finish, str) else None,
        "token_ids": tokens,
        "sampler_logprob": floats(row.get("logprobs")),
    }
    yield same_length(rollout, len(tokens), doubts, line.where)


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the shards' rollouts."""
    doubts = Doubts()
    return read_lines(found, report, done, partial(take, doubts), doubts)


FORMAT = Format(
    "open-instruct",
    "open-instruct",
    "*_rollouts_{shard}.jsonl with `prompt_idx` and `response_tokens`",
    partial(recognise, "open-instruct", fits=rows_fit(_fits)),
    read,
)
