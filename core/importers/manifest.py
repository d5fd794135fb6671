"""import.json: where an imported run came from, what was taken, what it lacks, and which convention its advantages fit.

Pages read it beside the run's config; nothing here opens a database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from core.importers.places import Place, Places
from core.runs.status import write_atomic

MANIFEST = "import.json"
VERSION = 1

LACKS = {
    "prompt": "the prompts' texts",
    "answer": "right answers",
    "text": "the responses' texts",
    "reward": "rewards",
    "correct": "which answers are right, said beside the rewards",
    "length": "response lengths",
    "truncated": "whether a response was cut off by the length limit",
    "advantage": "the trainer's own advantages",
    "token_ids": "token ids (the lab numbered the tokens' texts itself)",
    "tokens": "the tokens' own texts",
    "sampler_logprob": "per-token log-probs of the sampler",
    "trainer_logprob": "per-token log-probs of the trainer",
    "ref_logprob": "per-token log-probs of the reference model",
    "entropy": "per-token entropies",
    "ratio": "importance ratios",
    "clipped": "which tokens were clipped",
}
"""What an import may lack, in words, by the column of `core.importers.base.ROLLOUT`. A page says "no … in this import".
"""


PER_TOKEN = tuple(name for name in LACKS if "token" in LACKS[name] or name in ("ratio", "clipped"))


@dataclass(frozen=True)
class Fit:
    """How far one convention's advantages are from the imported ones."""

    name: str
    label: str
    largest: float
    """The largest absolute difference over rollouts."""
    mean: float
    within: float
    """The share of rollouts that agree to rounding."""


@dataclass(frozen=True)
class Manifest:
    """What an import says of itself. Texts come from foreign files: show them inert."""

    format: str
    """The format's name, as `--format` takes it."""
    label: str
    source: str
    """What was imported: a file or folder of the machine that did it, or, without a folder, what was dropped."""
    imported: float
    """When it was last brought up to date, seconds since the epoch."""
    steps: int
    rollouts: int
    tokens: int
    refused: dict[str, int]
    """Rows that were not taken, by reason, over all imports of this run."""
    examples: dict[str, str]
    """Where the first row of each reason stands."""
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    """Keys of LACKS: columns that no rollout has."""
    convention: str
    """The name of the convention under which the stored advantages were computed."""
    sentence: str
    """Which convention the imported advantages fit, in one sentence."""
    fits: tuple[Fit, ...] = ()
    """Every convention that was tried, best first; none without imported advantages."""
    compared: int = 0
    """Rollouts whose imported advantage was compared."""
    evaluation: bool = False
    """The files hold evaluations alone, which are shown in place of training rollouts."""
    tokenizer: str = ""
    """The folder or file of the tokenizer that spelled the tokens; "" for none."""
    places: Places | None = None

    def lacking(self) -> list[str]:
        """What the import lacks, in words."""
        return in_words(self.lacks)

    def shareable(self) -> Manifest:
        """The same without the folders of the machine that imported: what a pack or a bundle takes along."""
        source, tokenizer = (_last(path) for path in (self.source, self.tokenizer))
        return replace(self, source=source, tokenizer=tokenizer, places=None)


def in_words(lacks: Iterable[str]) -> list[str]:
    """Columns that are missing, in words; all that is known of tokens in one."""
    lacks = [name for name in lacks if name in LACKS]
    if set(PER_TOKEN) <= set(lacks):
        return [*(LACKS[name] for name in lacks if name not in PER_TOKEN), "tokens, and what is known of each"]
    return [LACKS[name] for name in lacks]


def _last(path: str) -> str:
    """The last name of a path, of any system."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def read_manifest(run_dir: str | Path) -> Manifest | None:
    """What an imported run says of its origin; None where it has none that can be read."""
    try:
        return from_json((Path(run_dir) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Write import.json in one move."""
    write_atomic(run_dir / MANIFEST, to_json(manifest) + "\n")


def to_json(manifest: Manifest) -> str:
    return json.dumps({"version": VERSION, **asdict(manifest)}, indent=1)


def from_json(text: str) -> Manifest:
    """The manifest that `to_json` wrote. Raises ValueError for anything else."""
    try:
        data: dict[str, Any] = json.loads(text)
        if data["version"] != VERSION:
            raise ValueError(f"its version is {data['version']!r}, this one reads {VERSION}")
        values = {field.name: data[field.name] for field in fields(Manifest) if field.name in data}
        values["fits"] = tuple(Fit(**fit) for fit in values["fits"])
        for name in ("notes", "lacks"):
            values[name] = tuple(map(str, values[name]))
        values["refused"] = {str(reason): int(rows) for reason, rows in values["refused"].items()}
        values["examples"] = {str(reason): str(where) for reason, where in values["examples"].items()}
        values["places"] = {file: Place(**place) for file, place in (values["places"] or {}).items()}
        return Manifest(**values)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not the manifest of an import") from error
