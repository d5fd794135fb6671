"""NeMo-RL: `train_data_step{N}.jsonl`, where every value is a list of one.

`token_ids`, masks, advantages and log-probs cover prompt, response and padding; the response is what the mask lets in.
`content` is a list of messages, or prompt and response in one string: then the groups are read off the prompts' ids, or
where the ids do not tell, off the place where the texts part, and `text` has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._joined import Joined, group_by_ids, group_by_text
from core.importers.formats._lines import Line, lines, name_of
from core.importers.formats._look import recognise, rows_fit, split_of, step_of
from core.importers.formats._messages import as_text
from core.importers.formats._rows import Doubts, Rollout, read_lines, same_length
from core.importers.formats._tokens import response_part
from core.importers.formats._values import Refused, floats, ids, mask, number, whole

SERIES = {
    "generation_logprobs": "sampler_logprob",
    "prev_logprobs": "trainer_logprob",
    "reference_policy_logprobs": "ref_logprob",
    "advantages": "token_advantage",
}
JOINED = (
    "Prompt and response are one string in these files: `text` has both, and the groups were read off "
    "what neighbouring rows have in common."
)


def _fits(row: dict[str, Any]) -> bool:
    wrapped = any(
        isinstance(row.get(key), list) and len(row[key]) == 1 for key in ("rewards", "input_lengths", "content")
    )
    return wrapped and "rewards" in row and bool({"content", "token_ids", "generation_logprobs"} & set(row))


def _one(value: Any) -> Any:
    """What a list of one holds; other values as they are."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class Taker:
    """The rollouts of rows. Looks over a file once for its groups where prompt and response are one string."""

    def __init__(self, found: Found, report: Report, doubts: Doubts) -> None:
        self._found, self._report, self._doubts = found, report, doubts
        self._paths = {name_of(found, path): path for path in found.files}
        self._file, self._joined = "", Joined({})

    def __call__(self, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
        row = {key: _one(value) for key, value in row.items()}
        content = row.get("content")
        if content is None and row.get("token_ids") is None:
            raise Refused("`content` and `token_ids` are missing")
        rollout: Rollout = {
            "step": step_of(line.file), "split": split_of(line.file), "reward": number(row, "rewards"),
        }  # fmt: skip
        if isinstance(content, list) and len(content) > 1:
            rollout |= {"prompt": as_text(content[0]), "text": as_text(content[1:])}
        else:
            self._look_over(line.file)
            group, prompt = self._joined.of(line.number)
            rollout |= {"group": group, "prompt": prompt, "text": as_text(_one(content))}
        yield rollout | self._tokens(row, line)

    def _tokens(self, row: dict[str, Any], line: Line) -> Rollout:
        tokens, kept = ids(row.get("token_ids")), mask(row.get("token_loss_mask"))
        if tokens is None or kept is None or len(kept) != len(tokens):
            return {}
        length = whole(row, "input_lengths")
        kept[len(tokens) if length is None else length :] = False
        part = response_part(kept)
        if part is None:
            self._doubts.add("No token is in the loss, so all tokens were left out", line.where)
            return {}
        lists = {name: floats(row.get(key)) for key, name in SERIES.items()}
        lists = same_length(lists | {"token_ids": tokens, "kept": kept}, len(tokens), self._doubts, line.where)
        found = {name: values[part] for name, values in lists.items() if values is not None}
        if number(row, "sample_loss_mask") == 0:
            found["kept"] = np.zeros(len(found["kept"]), bool)
        return found | {"length": part.stop - part.start}

    def _look_over(self, file: str) -> None:
        """The groups of the whole file, by line."""
        if file == self._file:
            return
        self._file = file
        self._report.note(JOINED)
        numbers, texts, prompts, sequences = [], [], [], []
        for line in lines(self._found, self._paths[file], Report(), {}):
            if line.row is None:
                continue
            row = {key: _one(value) for key, value in line.row.items()}
            tokens, kept = ids(row.get("token_ids")), mask(row.get("token_loss_mask"))
            part = response_part(kept) if tokens is not None and kept is not None and len(kept) == len(tokens) else None
            numbers.append(line.number)
            texts.append(as_text(_one(row.get("content"))) or "")
            prompts.append(None if part is None else tokens[: part.start].tobytes())
            sequences.append(None if part is None else tokens[: part.stop].tobytes())
        if (groups := group_by_ids(texts, prompts, sequences)) is None:
            groups = group_by_text(texts)
        self._joined = Joined.of_groups(numbers, texts, groups)


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the steps' rollouts."""
    doubts = Doubts()
    return read_lines(found, report, done, Taker(found, report, doubts), doubts)


FORMAT = Format(
    "nemo-rl",
    "NeMo-RL",
    "train_data_step{N}.jsonl with lists of one in `content`, `rewards` and `input_lengths`",
    partial(recognise, "nemo-rl", fits=rows_fit(_fits)),
    read,
)
