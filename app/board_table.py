"""The blackboard's table: rollouts as somebody types them, read into a batch, and as short text for an address.

A row is a rollout. Token probabilities are numbers in one cell (`0.9 0.5 0.1`), one number for all tokens, or nothing:
then they are made up. A length that was typed goes before the cells of the tokens, so that it can be changed alone:
they are cut, or start again from the first. `Typed.notes` says both. Pure functions, no widgets; a mistake is a
BoardError, one sentence that names the row and the column.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from core.advantage import Batch
from core.advantage.files import LARGEST, MOST
from core.advantage.words import listed, num

MOST_ROWS, MOST_TOKENS = 200, 500
"""Rollouts of a table, and tokens of a rollout. More belongs into a file."""
MOST_BYTES = 8_000_000
LEAST = 1e-300
"""The smallest probability that the table writes: an unlikely token is not an impossible one."""
MOST_FILED, LONGEST_FILED = 100_000, 8_192
"""Of a batch file on the blackboard: rollouts x the longest of them, and that one, in tokens."""
"""Of a batch file."""
MOST_UNPACKED = 2_000_000
"""Bytes that a short address may unpack to; a file's text may grow by the usual factors."""
EVENLY = (0.9, 0.1)
"""The first and the last token's probability where a row has none."""
FIRST_PROMPT = "prompt"


class BoardError(ValueError):
    """What is wrong with what was typed: one sentence that names the row and the column, or the address."""


@dataclass(frozen=True)
class Row:
    """One rollout as typed. An empty `prompt` is that of the row above; lists of numbers and words are plain text."""

    prompt: str = ""
    reward: float | None = None
    length: int | None = None  # tokens; None: as many as there are probabilities or words, which then agree
    truncated: bool = False
    probabilities: str = ""
    entropies: str = ""  # nats
    words: str = ""

    @property
    def blank(self) -> bool:
        """Nothing was typed yet but perhaps the prompt: the row is left out."""
        return replace(self, prompt="") == Row()


COLUMNS = {
    "prompt": "prompt", "reward": "reward", "length": "length", "truncated": "truncated",
    "probabilities": "token probabilities", "entropies": "token entropies", "words": "words",
}  # fmt: skip
"""What the columns are called, in the table and in sentences."""


@dataclass(frozen=True)
class Table:
    """All rows, and what holds for all of them: a length limit (None: the longest), a step, a threshold."""

    rows: tuple[Row, ...]
    max_length: int | None = None
    step: int = 0
    total_steps: int | None = None
    correct_from: float = 0.5


@dataclass(frozen=True)
class Filed:
    """A batch from a file, kept as it is: too large for a table, or more exact than one."""

    name: str
    data: dict[str, Any]
    correct_from: float = 0.5


@dataclass(frozen=True)
class Typed:
    """A table that was read: the batch as JSON data, what its prompts and tokens are called, what was filled in."""

    data: dict[str, Any]
    prompts: list[str]  # by group
    tokens: list[list[str]]  # by rollout
    notes: list[str]
    lone: str = ""  # "“b” has row 3 alone": the first prompt with a single rollout, if there is one


def read(table: Table) -> Typed:
    """The batch that a table describes; all of it or a BoardError."""
    rows = [(number, row) for number, row in enumerate(table.rows, 1) if not row.blank]
    if not rows:
        raise BoardError("The table is empty: give each rollout a row with its reward and its length.")
    if len(rows) > MOST_ROWS:
        raise BoardError(f"The table has {len(rows)} rows, but holds {MOST_ROWS} at most: open a batch file instead.")
    words = {number: row.words.split() for number, row in rows}
    given = {number: _numbers(row.probabilities, number, "probabilities", _probability) for number, row in rows}
    entropy = {number: _numbers(row.entropies, number, "entropies", _entropy) for number, row in rows}
    length = {
        number: _length(row, number, table.max_length, given[number], entropy[number], words[number])
        for number, row in rows
    }
    max_length = table.max_length or max(length.values())
    for number, row in rows:
        if row.truncated and length[number] < max_length:
            raise BoardError(
                f"{_place(number, 'truncated')}: it has {length[number]} tokens, but a response that was cut off "
                f"has as many as the length limit, {max_length}."
            )
    reward = [_reward(row.reward, number) for number, row in rows]
    prompts = _prompts([row for _, row in rows])
    names = list(dict.fromkeys(prompts))
    data = {
        "group": [names.index(prompt) for prompt in prompts],
        "reward": reward,
        "length": list(length.values()),
        "truncated": [row.truncated for _, row in rows],
        "max_length": max_length,
        "step": table.step,
        **({} if table.total_steps is None else {"total_steps": table.total_steps}),
        "old_logprob": [
            np.log(_fitted(given[number], length[number]) or _evenly(length[number])).tolist() for number, _ in rows
        ],
    }
    if any(entropy.values()):
        missing = [number for number in entropy if not entropy[number]]
        if missing:
            raise BoardError(
                f"{_place(missing[0], 'entropies')}: missing, but other rows have them; give them to each row or none."
            )
        data["entropy"] = [_fitted(entropy[number], length[number]) for number, _ in rows]
    tokens = [_named(words[number], length[number]) for number, _ in rows]
    numbers = [number for number, _ in rows]
    counted = Counter(prompts)
    alone = [(prompt, number) for prompt, number in zip(prompts, numbers, strict=True) if counted[prompt] == 1]
    lone = f"“{alone[0][0][:40]}” has row {alone[0][1]} alone" if alone else ""
    cells = {"probabilities": given, "entropies": entropy, "words": words}
    return Typed(data, names, tokens, _notes(cells, length), lone)


def drawable(batch: Batch) -> Batch:
    """The same batch. Raises BoardError where it is more than a page can draw."""
    n, longest = len(batch.group), int(batch.length.max())
    if longest > LONGEST_FILED or n * longest > MOST_FILED:
        raise BoardError(
            f"{n} rollouts of up to {longest} tokens are too many to draw: at most {LONGEST_FILED} tokens a rollout "
            f"and {MOST_FILED} in all; the command line takes any number"
        )
    return batch


def of_batch(data: Mapping[str, Any], prompts: Sequence[str] = ()) -> Table:
    """A table from a batch's JSON data (as `batch_from_json` accepts it), numbers to 4 digits. `prompts` names the
    groups in ascending order."""
    names = dict(zip(sorted(set(data["group"])), prompts, strict=False))
    rows = tuple(
        Row(
            prompt=names.get(group, f"group {group}"),
            reward=float(data["reward"][i]),
            length=int(data["length"][i]),
            truncated=bool(data["truncated"][i]),
            probabilities=" ".join(
                f"{max(math.exp(value), LEAST):.4g}" for value in data.get("old_logprob", {i: ()})[i]
            ),
            entropies=" ".join(f"{value:.4g}" for value in data.get("entropy", {i: ()})[i]),
        )
        for i, group in enumerate(data["group"])
    )
    total = data.get("total_steps")
    return Table(rows, int(data["max_length"]), int(data.get("step", 0)), None if total is None else int(total))


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows as the editor takes them."""
    kinds = {"reward": "Float64", "length": "Int64", "truncated": "boolean"}
    made = pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))
    return made.astype({name: kinds.get(name, "string") for name in COLUMNS})


def of_frame(edited: pd.DataFrame) -> tuple[Row, ...]:
    """The rows of an edited frame; empty cells are None or ""."""

    def text(value: Any) -> str:
        return "" if pd.isna(value) else _clean(str(value))

    return tuple(
        Row(
            prompt=text(row["prompt"]),
            reward=None if pd.isna(row["reward"]) else float(row["reward"]),
            length=None if pd.isna(row["length"]) else int(row["length"]),
            truncated=not pd.isna(row["truncated"]) and bool(row["truncated"]),
            probabilities=text(row["probabilities"]),
            entropies=text(row["entropies"]),
            words=text(row["words"]),
        )
        for row in edited.to_dict("records")
    )


def encode(board: Table | Filed) -> str:
    """The board for an address: packed, letters, digits, `-` and `_` only. Raises BoardError for too large a table."""
    if isinstance(board, Filed):
        content: Any = {"file": board.data, "name": board.name, "correct_from": board.correct_from}
    else:
        content = {f.name: getattr(board, f.name) for f in fields(Table)} | {
            "rows": [_short(row) for row in board.rows]
        }
    plain = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    if isinstance(board, Table) and len(plain) > MOST_UNPACKED:
        raise BoardError(f"The table is too large, with {len(board.rows)} rows: open a batch file instead.")
    return base64.urlsafe_b64encode(zlib.compress(plain)).decode().rstrip("=")


def decode(text: str) -> Table | Filed:
    """The board of an address. Raises BoardError for anything that `encode` did not write."""
    broken = BoardError("The blackboard in the address cannot be read: the link is broken or incomplete.")
    try:
        unpack = zlib.decompressobj()
        packed = base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True)
        plain = unpack.decompress(packed, max(MOST_UNPACKED, 20 * len(packed)))
        if not unpack.eof or unpack.unused_data:
            raise broken
        found = json.loads(plain)
        common = {"correct_from": _number(found["correct_from"])}
        if "file" in found:
            if not isinstance(found["file"], dict):
                raise broken
            return Filed(_clean(found["name"])[:80], found["file"], **common)
        return Table(
            rows=tuple(_row(*row) for row in found["rows"]),
            max_length=_whole(found["max_length"]),
            step=_whole(found["step"]) or 0,
            total_steps=_whole(found["total_steps"]),
            **common,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error, binascii.Error) as error:
        raise broken from error


def _short(row: Row) -> list[Any]:
    """The row's values without the defaults at its end."""
    values, default = list(astuple(row)), list(astuple(Row()))
    while values and values[-1] == default[len(values) - 1]:
        values.pop()
    return values


def _row(
    prompt: str = "", reward: Any = None, length: Any = None, truncated: Any = False, *texts: str
) -> Row:  # the order of Row's fields
    return Row(
        _clean(prompt),
        None if reward is None else _number(reward),
        _whole(length),
        bool(truncated),
        *(_clean(text) for text in texts),
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise TypeError("a finite number is wanted")
    return float(value)


def _whole(value: Any) -> int | None:
    number = None if value is None else _number(value)
    if number is not None and not (number == int(number) and abs(number) <= MOST):
        raise TypeError("a whole number is wanted")
    return None if number is None else int(number)


def _clean(text: str) -> str:
    """One line of what can be seen; everything else is a space."""
    if not isinstance(text, str):
        raise TypeError("text is wanted")
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _place(number: int, column: str) -> str:
    return f"Row {number}, {COLUMNS[column]}"


def _numbers(text: str, number: int, column: str, check: Callable[[float], str]) -> list[float]:
    found = []
    for part in re.split(r"[\s,;]+", text.strip(" ,;")) if text.strip(" ,;") else []:
        try:
            value = float(part)
        except ValueError:
            raise BoardError(f"{_place(number, column)}: “{part[:20]}” is not a number.") from None
        wrong = check(value)
        if wrong:
            raise BoardError(f"{_place(number, column)}: {part[:20]} {wrong}.")
        found.append(value)
    return found


def _probability(value: float) -> str:
    return "" if 0 < value <= 1 else "is not a probability, which lies above 0 and is at most 1"


def _entropy(value: float) -> str:
    return "" if 0 <= value < math.inf else "is not an entropy, which is finite and at least 0 nats"


def _reward(value: float | None, number: int) -> float:
    if value is None:
        raise BoardError(f"{_place(number, 'reward')}: missing; give a number, such as 1 for right and 0 for wrong.")
    if not abs(value) <= LARGEST:
        raise BoardError(f"{_place(number, 'reward')}: must be a finite number, but is {num(value)}.")
    return value


def _length(
    row: Row, number: int, limit: int | None, given: list[float], entropy: list[float], words: list[str]
) -> int:
    """The row's tokens: as typed, else as many as its cells agree on."""
    counts = {"words": len(words), "probabilities": len(given), "entropies": len(entropy)}
    lists = {column: n for column, n in counts.items() if n > 1 or (n and column == "words")}
    length = row.length
    if length is None:
        length = next(iter(lists.values()), 1 if given or entropy else None)
    if length is None:
        raise BoardError(f"{_place(number, 'length')}: missing; give the tokens' number, or a probability for each.")
    if length < 1:
        raise BoardError(
            f"{_place(number, 'length')}: must be at least 1, but is {num(length)}: a response has its end at least."
        )
    if length > MOST_TOKENS:
        raise BoardError(f"{_place(number, 'length')}: {num(length)} tokens, but a table holds {MOST_TOKENS} at most.")
    for column, n in lists.items():
        if n != length and row.length is None:
            first = COLUMNS[next(iter(lists))]
            raise BoardError(
                f"{_place(number, column)}: {n} of them, but {length} {first}; give the length, or as many."
            )
    if limit is not None and length > limit:
        raise BoardError(
            f"{_place(number, 'length')}: {length} tokens are more than the length limit, {limit}; raise it."
        )
    return length


def _prompts(rows: list[Row]) -> list[str]:
    found: list[str] = []
    for row in rows:
        found.append(row.prompt or (found[-1] if found else FIRST_PROMPT))
    return found


def _fitted(values: list[float], length: int) -> list[float]:
    """One value a token: too many are cut, too few go on from the first."""
    return [values[t % len(values)] for t in range(length)] if values else []


def _named(words: list[str], length: int) -> list[str]:
    return [*words[:length], *(f"t{t + 1}" for t in range(len(words), length))]


def _evenly(length: int) -> list[float]:
    return np.linspace(*EVENLY, length).round(4).tolist()


def _notes(cells: dict[str, dict[int, list]], length: dict[int, int]) -> list[str]:
    """What was made up, continued or cut; `cells` has each column's values by the row's number."""
    notes = []
    without = [number for number, values in cells["probabilities"].items() if not values]
    if without:
        rows = _rows(without) if len(without) < len(length) else "any row"
        notes.append(f"No token probabilities in {rows}: made up, falling evenly from {EVENLY[0]} to {EVENLY[1]}.")
    for column, by_row in cells.items():
        least = 1 if column == "words" else 2  # one number is for all tokens
        short = [number for number, values in by_row.items() if least <= len(values) < length[number]]
        long = [number for number, values in by_row.items() if len(values) > length[number]]
        name = COLUMNS[column]
        if short:
            then = "the rest are t1, t2, … by their places" if column == "words" else "they start again from the first"
            notes.append(f"Fewer {name} than tokens in {_rows(short)}: {then}.")
        if long:
            notes.append(f"More {name} than tokens in {_rows(long)}: the last ones are left out.")
    return notes


def _rows(numbers: list[int]) -> str:
    return f"row{'s' * (len(numbers) > 1)} {listed([str(number) for number in numbers])}"
