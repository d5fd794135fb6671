"""prime-rl traces: `rollouts/step_{n}/{train,eval}/{all,effective}/traces.jsonl`, an episode a line.

An episode has traces, one an agent; a trace of a trained agent is a rollout. Its nodes are messages that form a tree.
`logprobs` and `advantages` of a node cover only the tokens that its mask lets in; null advantages are none, not zeros.
The reward is the sum of score x weight. What lies in `all` and not in `effective` was sampled but not trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line, lines, name_of
from core.importers.formats._look import recognise, rows_fit, step_of
from core.importers.formats._messages import as_text
from core.importers.formats._nodes import longest_path, response_tokens, sampled
from core.importers.formats._rows import Doubts, Rollout, read_lines
from core.importers.formats._values import Refused, flag, label, number, numbers, text, whole

IN_BOTH = "the trace stands in `effective` too"


def _fits(row: dict[str, Any]) -> bool:
    traces = row.get("traces")
    return isinstance(traces, list) and ("run" in row or any(isinstance(t, dict) and "nodes" in t for t in traces))


def rewards(trace: dict[str, Any]) -> dict[str, float]:
    """Score x weight of each reward that has a score; a plain number is a score with weight 1."""
    given = trace.get("rewards")
    found = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        entry = value if isinstance(value, dict) else {"score": value}
        score, weight = number(entry, "score"), number(entry, "weight")
        if score is not None:
            found[name] = score * (1.0 if weight is None else weight)
    return found


class Taker:
    """The rollouts of episodes. Knows which traces of `all` lie in the `effective` beside it."""

    def __init__(self, found: Found, report: Report, doubts: Doubts) -> None:
        self._found, self._report, self._doubts = found, report, doubts
        self._paths = {name_of(found, path): path for path in found.files}
        self._all = set(found.files)
        self._file, self._trained = "", None

    def __call__(self, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
        if line.file != self._file:
            self._file, self._trained = line.file, self._effective(self._paths[line.file])
        given = row.get("traces")
        traces = [trace for trace in given if isinstance(trace, dict)] if isinstance(given, list) else []
        trained = [trace for trace in traces if _at(trace, "agent", "trainable") is not False]
        if not trained:
            raise Refused("no trace of a trained agent")
        for trace in trained:
            identity = label(trace.get("id"))
            if self._trained is not None and identity in self._trained:
                self._report.refuse(IN_BOTH, line.where)
                continue
            try:
                yield self._rollout(row, trace, line, several=len(trained) > 1)
            except Refused as reason:
                self._report.refuse(str(reason), line.where)

    def _effective(self, path: Path) -> set[str] | None:
        """The traces in the `effective` folder beside the `all` that the file is in; None where there is none."""
        beside = path.parent.parent / "effective" / path.name
        if path.parent.name != "all" or not beside.is_file():
            return None
        found: set[str] = set()
        for line in lines(self._found, beside, Report(), {}) if beside in self._all else ():
            traces = (line.row or {}).get("traces")
            for trace in traces if isinstance(traces, list) else ():
                if isinstance(trace, dict) and (identity := label(trace.get("id"))) is not None:
                    found.add(identity)
        return found

    def _rollout(self, row: dict[str, Any], trace: dict[str, Any], line: Line, several: bool) -> Rollout:
        nodes, branches = longest_path(trace.get("nodes"))
        if branches > 1:
            self._doubts.add("Of a trace with several branches only the longest was taken", line.where)
        first = next((at for at, node in enumerate(nodes) if sampled(node)), None)
        if first is None:
            raise Refused("no node of the trace was sampled")
        work = _at(row, "run", "work")
        group, step = label(_at(row, "group", "id")), whole(work, "step") if isinstance(work, dict) else None
        parts = rewards(trace)
        kind = _at(work, "type") or _at(row, "run", "type")
        rollout: Rollout = {
            "step": step_of(line.file) if step is None else step,
            "split": "eval" if kind == "eval" or "/eval/" in f"/{line.file}" else "train",
            "group": f"{group}/{label(_at(trace, 'agent', 'name'))}" if several and group is not None else group,
            "sample": label(trace.get("id")),
            "prompt": as_text([node.get("message") for node in nodes[:first]]),
            "answer": text(_at(row, "task", "data", "answer")),
            "text": as_text([node.get("message") for node in nodes[first:]]),
            "reward": None if parts else number(trace, "reward"),
            "parts": parts,
            "traits": numbers(trace.get("metrics")),
            "truncated": flag(trace.get("is_truncated")),
        }
        tokens = response_tokens(nodes[first:], self._doubts, line.where)
        if tokens and self._trained is not None:
            tokens["kept"] = np.zeros(len(tokens["kept"]), bool)
        return rollout | tokens


def _at(value: Any, *keys: str) -> Any:
    """What lies in nested objects under the keys, None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the steps' rollouts."""
    doubts = Doubts()
    return read_lines(found, report, done, Taker(found, report, doubts), doubts)


FORMAT = Format(
    "prime-rl",
    "prime-rl traces",
    "rollouts/step_{n}/…/traces.jsonl with `traces` that have `nodes`",
    partial(recognise, "prime-rl", fits=rows_fit(_fits)),
    read,
)
