"""RLLoggingBoard: any number of `*.jsonl` in a folder, one a rank, each with all steps.

No column is sure. `response_tokens` may be longer than `logprobs`: what is longer is padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, split_of
from core.importers.formats._messages import as_text
from core.importers.formats._rows import Doubts, Rollout, read_lines, same_length
from core.importers.formats._values import Refused, digest, floats, number, numbers, strings, text, whole

SERIES = {"logprobs": "sampler_logprob", "ref_logprobs": "ref_logprob"}
SIGNS = {"prompt", "reward", "logprobs", "ref_logprobs", "token_rewards", "values"}
KNOWN = {"prompt", "response", "response_tokens", "step", "reward", "ground_truth"}


def _fits(row: dict[str, Any]) -> bool:
    response = isinstance(row.get("response"), str) or (row.get("response_tokens") and strings(row["response_tokens"]))
    return bool(response) and bool(SIGNS & set(row)) and "prompt_idx" not in row


def take(doubts: Doubts, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    tokens = strings(row.get("response_tokens"))
    series = {key: floats(row.get(key)) for key in (*SERIES, "values", "token_rewards")}
    for key in ("response_tokens", *series):
        if row.get(key) is not None and (tokens if key == "response_tokens" else series[key]) is None:
            doubts.add(f"`{key}` has other values in it than it should and was left empty", line.where)
    response = as_text(row.get("response"))
    if response is None and tokens is None:
        raise Refused("`response` and `response_tokens` are missing")
    length = None if tokens is None else len(tokens)
    if series["logprobs"] is not None and length is not None:
        length = min(length, len(series["logprobs"]))
    prompt, reward = as_text(row.get("prompt")), number(row, "reward")
    if reward is None and (parts := series["token_rewards"]) is not None and not np.isnan(parts[:length]).all():
        reward = float(np.nansum(parts[:length]))
    traits = numbers({key: value for key, value in row.items() if key not in KNOWN})
    if (values := series["values"]) is not None and not np.isnan(values[:length]).all():
        traits["mean_value"] = float(np.nanmean(values[:length]))
    rollout = {
        "step": whole(row, "step"),
        "split": split_of(line.file),
        "group": None if prompt is None else digest(prompt),
        "sample": line.where,
        "prompt": prompt,
        "answer": text(row.get("ground_truth")),
        "text": "".join((tokens or [])[:length]) if response is None else response,
        "reward": reward,
        "traits": traits,
        "length": length,
    }
    if length is not None:
        rollout["tokens"] = tokens[:length]
        rollout |= {name: series[key][:length] for key, name in SERIES.items() if series[key] is not None}
        same_length(rollout, length, doubts, line.where)
    yield rollout


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the files' rollouts, the ranks side by side: each has all steps."""
    doubts = Doubts()
    return read_lines(found, report, done, partial(take, doubts), doubts, side_by_side=True)


FORMAT = Format(
    "rllb",
    "RLLoggingBoard",
    "*.jsonl with `response` or `response_tokens`, and `reward` or `logprobs`",
    partial(recognise, "rllb", fits=rows_fit(_fits)),
    read,
)
