"""Importing a path again: which run is its, which rows are new, and which of them find their step still open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.importers.base import Places, Report
from core.importers.fit import Outcome, Rollouts, fit
from core.importers.manifest import Manifest, read_manifest
from core.importers.places import ENDING, Place, ending_of
from core.importers.sealed import Before
from core.importers.stage import Stage
from core.runs.folders import list_runs
from core.store.files import SEALED

TAKEN = "its step was imported before, and more than that is new since"


@dataclass(frozen=True)
class Wishes:
    """What is asked of an import beside its files."""

    name: str | None = None
    convention: str | None = None
    """In place of the one that fits best."""
    tokenizer: Path | None = None
    """A model's folder, or its tokenizer.json, that spells token ids."""
    origin: str | None = None
    """What the run is to say of its source: the files are a copy that will be gone."""


def find(root: Path, form: str, source: Path, wishes: Wishes) -> Path | None:
    """The newest run that was imported from here and can go on: none where the files were begun anew, or another name,
    convention or tokenizer is asked for.
    """
    for info in list_runs(root, examples=False):
        if not info.imported or info.packed or not (info.path / SEALED).is_file():
            continue
        manifest = read_manifest(info.path)
        if manifest is None or (manifest.format, manifest.source) != (form, str(source)):
            continue
        asked = (wishes.convention, wishes.name, wishes.tokenizer and str(wishes.tokenizer))
        has = (manifest.convention, info.name, manifest.tokenizer)
        if all(wish in (None, own) for wish, own in zip(asked, has, strict=True)):
            return info.path if _grown(source, manifest) else None
    return None


def _grown(source: Path, manifest: Manifest) -> bool:
    """Whether every file that was read is still there, no shorter, and with the same bytes where its reading ended."""
    base = source.parent if source.is_file() else source
    try:
        return all(_goes_on(base / file, place) for file, place in (manifest.places or {}).items())
    except OSError:
        return False


def _goes_on(file: Path, place: Place) -> bool:
    stat = file.stat()
    if stat.st_size < place.size or not place.ending or stat.st_mtime_ns == place.modified_ns:
        return stat.st_size >= place.size
    with file.open("rb") as handle:
        start = max(0, place.size - ENDING)
        handle.seek(start)
        return ending_of(handle.read(place.size - start)) == place.ending


def sort_out(
    stage: Stage, before: Before, kept_rows: int, places: Places, report: Report
) -> tuple[set[int], np.ndarray]:
    """The steps that are new or have new rows, and (rows,) bool which rows of the stage its last steps are to hold.

    The first `kept_rows` of the stage are the rows of those steps as they were. A file that was read from its beginning
    once more, since it cannot be gone on with, takes the place of its earlier rows.
    """
    keys = dict(stage.keys())
    keys["step"] = np.maximum(keys["step"], 0)
    new = keys["seq"] >= kept_rows
    again = _read_again(stage, keys, new, before.manifest.places or {}, places)
    open_steps = np.unique(keys["step"][~new])
    closed = np.setdiff1d(np.array(sorted(before.steps), np.int64), open_steps)
    late = new & np.isin(keys["step"], closed)
    from_anew = np.isin(keys["file"], again)
    if (refused := late & ~from_anew).any():
        report.refuse(TAKEN, stage.where(int(keys["seq"][np.argmax(refused)])), int(refused.sum()))
    touched = np.unique(keys["step"][new & ~late])
    replaced = ~new & from_anew & np.isin(keys["step"], touched)
    changed = {int(step) for step in touched if _differs(keys, keys["step"] == step, new, replaced)}
    replaced &= np.isin(keys["step"], sorted(changed))
    gone = late | replaced | (new & ~np.isin(keys["step"], sorted(changed)))
    return changed, ~gone


def _read_again(stage: Stage, keys: dict[str, np.ndarray], new: np.ndarray, old: Places, now: Places) -> np.ndarray:
    """The hashes of files that gave more rows than they grew by: they were read from the start."""
    found, first, counts = np.unique(keys["file"][new], return_index=True, return_counts=True)
    seqs = keys["seq"][new][first]
    again = []
    for value, seq, rows in zip(found, seqs, counts, strict=True):
        file = stage.file_of(int(seq))
        if file in old and file in now and old[file].rows and rows > now[file].rows - old[file].rows:
            again.append(value)
    return np.array(again, keys["file"].dtype)


def _differs(keys: dict[str, np.ndarray], here: np.ndarray, new: np.ndarray, replaced: np.ndarray) -> bool:
    """Whether a step's rows are others than before."""
    was = np.sort(keys["row_hash"][here & ~new])
    now = np.sort(keys["row_hash"][here & ~replaced])
    return not np.array_equal(was, now)


def fit_again(
    stored: dict[str, np.ndarray], new: Rollouts, advantage: np.ndarray, named: str | None, varying: bool
) -> Outcome:
    """The fit over the whole run, under the convention that it has."""
    step = np.concatenate([stored["step"], new.step])
    fresh = np.append(True, (np.diff(stored["step"]) != 0) | (np.diff(stored["group"]) != 0))[: len(stored["step"])]
    groups = np.cumsum(fresh) - 1
    after = int(groups[-1]) + 1 if len(groups) else 0
    rollouts = Rollouts(
        step,
        np.concatenate([groups, new.group + after]),
        np.concatenate([stored["reward"], new.reward]),
        np.concatenate([stored["correct"], new.correct]).astype(bool),
        np.concatenate([stored["tokens"], new.tokens]),
    )
    return fit(rollouts, np.concatenate([stored["advantage"], advantage]), named, asked=False, varying=varying)
