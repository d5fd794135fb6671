"""UNIPO: the canonical JSON `{header, blueprint?, entries}`, its JSONL (a header line, then a step a line), and the
`step-{N}.json` files that its site serves.

An entry without prompts has those of the blueprint, if there is one. `old_log_probs` are those of the policy that
sampled, `log_probs` the trainer's; where only the latter are there, they are the sampler's. `answer`, `correct` and
`truncated` are the lab's own additions (`core.exporters.unipo`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from core.importers.base import Format, Found, Place, Places, Report
from core.importers.formats._lines import UNREADABLE, Line, lines, name_of, opened
from core.importers.formats._look import Glance, recognise, step_of
from core.importers.formats._messages import as_text
from core.importers.formats._rows import TOO_DEEP, Batch, Doubts, Rollout, same_length
from core.importers.formats._stream import AFTER, fields
from core.importers.formats._values import Refused, flag, floats, ids, label, number, strings, text, whole

SERIES = {"ref_log_probs": "ref_logprob", "advantages": "token_advantage", "entropy": "entropy"}
NO_PROMPTS = "Entries without prompts have metrics alone and gave no rollouts"


def _fits(seen: Glance) -> bool:
    """The whole run, a step of it, or lines of which the first is a header."""
    if seen.kind != "json":
        return False
    first = seen.rows[0]
    header = first.get("header")
    run = isinstance(header, dict) and "algorithm" in header and "entries" in first
    return run or _is_header(first) or any(_is_step(row) for row in seen.rows)


def _is_header(row: dict[str, Any]) -> bool:
    return row.get("type") == "header" and "algorithm" in row


def _is_step(row: dict[str, Any]) -> bool:
    prompts = row.get("prompts")
    return (
        "step" in row and isinstance(prompts, list) and any(isinstance(p, dict) and "responses" in p for p in prompts)
    )


def rollouts(entry: Any, blueprint: Any, where: str, file: str, report: Report, doubts: Doubts) -> Iterator[Rollout]:
    """The rollouts of an entry. Responses that cannot be taken are refused in the report."""
    if not isinstance(entry, dict):
        report.refuse("the entry is no JSON object", where)
        return
    prompts = entry.get("prompts")
    prompts = blueprint if prompts is None else prompts
    if not isinstance(prompts, list):
        doubts.add(NO_PROMPTS, where)
        return
    try:
        step = whole(entry, "step")
    except Refused as reason:
        report.refuse(str(reason), where, sum(len(_responses(prompt)) for prompt in prompts))
        return
    step = step_of(file) if step is None else step
    for group, prompt in enumerate(prompts):
        for at, response in enumerate(_responses(prompt)):
            place = f"{where}, prompt {group}, response {at}"
            try:
                asked = {"prompt": as_text(prompt.get("prompt")), "answer": text(prompt.get("answer"))}
                found = asked | _rollout(response, doubts, place)
            except Refused as reason:
                report.refuse(str(reason), place)
            except RecursionError:
                report.refuse(TOO_DEEP, place)
            else:
                yield {"file": file, "step": step, "split": "train", "group": str(group)} | found


def _responses(prompt: Any) -> list[Any]:
    given = prompt.get("responses") if isinstance(prompt, dict) else None
    return given if isinstance(given, list) else []


def _rollout(response: Any, doubts: Doubts, where: str) -> Rollout:
    if not isinstance(response, dict):
        raise Refused("the response is no JSON object")
    series = response.get("tokens")
    series = series if isinstance(series, dict) else {}
    tokens, strung = ids(series.get("ids")), strings(series.get("strings"))
    length = whole(response, "response_length")
    found: Rollout = {
        "sample": label(response.get("id")),
        "text": as_text(response.get("response_text")),
        "reward": number(response, "reward"),
        "advantage": number(response, "advantage"),
        "correct": flag(response.get("correct")),
        "truncated": flag(response.get("truncated")),
        "length": length if length is not None and length < 2**31 else None,
    }
    if tokens is None and strung is None:
        return found
    old, new = floats(series.get("old_log_probs")), floats(series.get("log_probs"))
    if new is None and (chances := floats(series.get("prob"))) is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.log(chances)
        new[~np.isfinite(new)] = np.nan
    found |= {"token_ids": tokens, "tokens": strung} | {name: floats(series.get(key)) for key, name in SERIES.items()}
    found |= {"sampler_logprob": new if old is None else old, "trainer_logprob": None if old is None else new}
    found["length"] = len(tokens if tokens is not None else strung)
    return same_length(found, found["length"], doubts, where)


@dataclass(frozen=True)
class _Entry:
    value: Any
    """None for a header and for the end of a file."""
    blueprint: Any
    where: str
    place: Place


class _Lines(Exception):
    """The file is no single object."""


def _entries(found: Found, path: Path, report: Report, done: Places) -> Iterator[_Entry]:
    """The entries of a file, of an object from its beginning, of lines from their place on."""
    try:
        yield from _of_object(path, name_of(found, path), report)
        return
    except _Lines:
        pass
    line: Line
    for line in lines(found, path, report, done):
        value = None if line.row is None or _is_header(line.row) else line.row
        yield _Entry(value, None, line.where, replace(line.place, rows=line.before))


def _of_object(path: Path, file: str, report: Report) -> Iterator[_Entry]:
    stat = path.stat()
    place, blueprint, seen, single = Place(stat.st_size, 0, stat.st_mtime_ns), None, 0, {}
    with opened(path) as handle:
        try:
            for name, value in fields(handle, "entries"):
                if name == "entries":
                    seen += 1
                    yield _Entry(value, blueprint, f"{file}, entry {seen}", place)
                elif name == "blueprint" and isinstance(value, dict):
                    blueprint = value.get("prompts")
                else:
                    single[name] = value
            if not seen and "header" not in single:
                if single.pop(AFTER, True) or not _is_step(single):
                    raise _Lines
                yield _Entry(single, None, file, place)
        except (Refused, EOFError, OSError, zlib.error) as error:
            if not seen:
                raise _Lines from error
            report.note(f"{file} ends in the middle of entry {seen + 1}: the entries before it were read.")


def read(found: Found, report: Report, done: Places) -> Iterator[pa.Table]:
    """Tables of the runs' rollouts, an entry after another."""
    doubts, batch = Doubts(), Batch()
    for path in found.files:
        file, given = name_of(found, path), 0
        known = done.get(file)
        try:
            if known and known.modified_ns == path.stat().st_mtime_ns:
                continue
            path.open("rb").close()
        except OSError:
            report.note(UNREADABLE.format(file))
            continue
        for entry in _entries(found, path, report, done):
            if entry.value is not None:
                for rollout in rollouts(entry.value, entry.blueprint, entry.where, file, report, doubts):
                    given += 1
                    batch.add(rollout)
            done[file] = replace(entry.place, rows=entry.place.rows + given)
            if batch.full:
                yield batch.table()
    if batch.rows:
        yield batch.table()
    doubts.tell(report)


FORMAT = Format(
    "unipo",
    "UNIPO",
    "one JSON object with `header` and `entries`, or lines with `step` and `prompts`",
    partial(recognise, "unipo", fits=_fits),
    read,
)
