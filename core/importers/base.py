"""What a reader of somebody's rollout files gives: tables of rollouts in one shape, whatever the files look like.

A format is one module of this package with a `FORMAT`, found from there. It recognises files by what is in them, and
reads them in order, some thousand rollouts at a time, so that a million of them never lie in memory at once. What a
format does not have stays null; what of a file cannot be taken is reported, never dropped in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from core.importers.places import Place, Places
from core.store.schema import Column

__all__ = [
    "LETTERS", "ROLLOUT", "ROWS", "SCHEMA", "Format", "Found", "ImportFailed", "Place", "Places", "Report",
]  # fmt: skip

ROWS = 8192
"""Rollouts of one table, about."""
LETTERS = 32 * 2**20
"""Characters of the texts of one table, about: fewer rollouts, where they are long."""

_text, _f32, _f64, _i32, _i64, _bool = (
    pa.string(), pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.bool_(),
)  # fmt: skip
_numbers = pa.map_(pa.string(), pa.float64())

ROLLOUT = (
    Column("file", _text, "", "where the row was read, below what was imported, with `/`: as in `Places`"),
    Column("step", _i64, "", "rollout step, from 0; null where no file says"),
    Column("split", _text, "", "train or eval"),
    Column("group", _text, "", "what rollouts of one group share within a step; null: neighbours of one prompt"),
    Column("sample", _text, "", "what tells rollouts of a group apart, so that a repeated row is known; or null"),
    Column("prompt", _text, "", "the prompt's text"),
    Column("answer", _text, "", "the right answer"),
    Column("text", _text, "", "the response"),
    Column("reward", _f64, "", "the reward that the trainer used; null: the sum of the parts"),
    Column("parts", _numbers, "", "reward parts by name"),
    Column("traits", _numbers, "", "other numbers of the response by name"),
    Column("correct", _bool, "", "whether the answer is right; null: from the reward"),
    Column("length", _i32, "tokens", "response tokens"),
    Column("truncated", _bool, "", "stopped by the length limit"),
    Column("advantage", _f64, "", "the trainer's advantage, where it has one a response"),
    Column("token_ids", pa.list_(_i32), "", "of the response; of all lists a rollout has one length"),
    Column("tokens", pa.list_(_text), "", "each token's own text"),
    Column("sampler_logprob", pa.list_(_f32), "nats", "log-prob in the engine that sampled"),
    Column("trainer_logprob", pa.list_(_f32), "nats", "log-prob in the trainer at the start of the step"),
    Column("ref_logprob", pa.list_(_f32), "nats", "log-prob under the reference model"),
    Column("entropy", pa.list_(_f32), "nats", "entropy of the sampling distribution"),
    Column("ratio", pa.list_(_f32), "", "importance ratio"),
    Column("clipped", pa.list_(_bool), "", "whether clipping stopped the token's gradient"),
    Column("kept", pa.list_(_bool), "", "whether the token is part of the loss"),
    Column("token_advantage", pa.list_(_f32), "", "the trainer's advantage, where it has one a token"),
)
"""The columns of every table that a reader gives."""

SCHEMA = pa.schema([pa.field(column.name, column.type) for column in ROLLOUT])


class ImportFailed(ValueError):
    """Nothing can be taken from the files; one sentence that names the file and says what would be right."""


@dataclass
class Report:
    """What was taken and what was not, and why. Reasons are short and the same for the same trouble."""

    taken: int = 0
    """Rollouts."""
    refused: Counter[str] = field(default_factory=Counter)
    """Rows that were not taken, by reason."""
    examples: dict[str, str] = field(default_factory=dict)
    """Where the first row of each reason stands: `file.jsonl, line 12`."""
    notes: list[str] = field(default_factory=list)
    """Sentences about the files as a whole: columns that changed, a torn last line, files that were left out."""

    def refuse(self, reason: str, where: str, rows: int = 1) -> None:
        self.refused[reason] += rows
        self.examples.setdefault(reason, where)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True)
class Found:
    """Files of one format: what a format's `sniff` recognised below a path."""

    format: str
    root: Path
    files: tuple[Path, ...]
    """In the order in which they are read: by step where their names say it."""


@dataclass(frozen=True)
class Format:
    """A kind of rollout files.

    `sniff(path)` looks at a file or a folder, a few rows at most, and says which files are of this kind; None for none.
    `read(found, report, done)` gives tables of `SCHEMA`, about `ROWS` rows each, and keeps `done` up to date: a file's
    place is set once all rows up to there were given. Files that `done` knows are gone on with from their place, and
    left out where they have not grown. Columns that a table lacks are null; of repeated rows, only those of different
    `file`s are taken for one, so a reader that joins files into one table says which row is from which.
    """

    name: str
    """As the command line says it: `trl`, `verl`, ..."""
    label: str
    """As pages say it."""
    looks_like: str
    """Where such files lie and what is in them, in one line."""
    sniff: Callable[[Path], Found | None]
    read: Callable[[Found, Report, Places], Iterator[pa.Table]]
