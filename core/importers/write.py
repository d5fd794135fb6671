"""From somebody's rollout files to a sealed run: `bring_in` makes one, or brings the one of that path up to date.

A reader's tables go into a scratch database, their keys say groups and repeats, the advantages say which convention the
trainer used, and then each step becomes the record that training itself writes, so that every sum and mass comes from
the same code. `core.importers.work` does it; here is what stands around it: the run's id, locks, what was left behind.
"""

from __future__ import annotations

import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from filelock import Timeout

from core.importers import follow
from core.importers.base import Format, Found, ImportFailed
from core.importers.fit import convention
from core.importers.follow import Wishes
from core.importers.lab import LAB
from core.importers.spelling import Speller
from core.importers.steps import Progress
from core.importers.work import Import, Imported
from core.runs.folders import slug
from core.runs.locks import clear_abandoned, run_lock

__all__ = ["HIDDEN", "Imported", "bring_in"]

HIDDEN = ".importing-"


def bring_in(
    root: Path,
    form: Format,
    found: Found,
    name: str | None = None,
    wanted: str | None = None,
    progress: Progress = lambda what, done, of: None,
    tokenizer: Path | None = None,
    origin: str | None = None,
) -> Imported:
    """Import what a format found into the folder of runs; where a run of it is there already, add what is new to it.

    `wanted` names a convention in place of the one that fits best, `tokenizer` a model's folder or tokenizer.json that
    spells token ids. With an `origin`, what the run is to say of its source, the files are a copy that will be gone: it
    is never added to. Raises ImportFailed where nothing can be taken, AdvantageError for a convention that is not
    known; nothing is left behind then.
    """
    if wanted not in (None, LAB):
        convention(wanted)
    wishes = Wishes(name, wanted, tokenizer.expanduser().absolute() if tokenizer else None, origin)
    speller = Speller(wishes.tokenizer) if wishes.tokenizer else None
    root.mkdir(parents=True, exist_ok=True)
    clear_abandoned(root, HIDDEN)
    source = found.root.resolve()
    before = None if origin else follow.find(root, form.name, source, wishes)
    called = name or origin or source.stem
    run_id = before.name if before else _new_id(form.name, called)
    hidden = root / f"{HIDDEN}{run_id}"
    try:
        with run_lock(hidden).acquire(timeout=0):
            shutil.rmtree(hidden, ignore_errors=True)
            (hidden / "scratch").mkdir(parents=True)
            work = Import(root / run_id, hidden, form, found, progress, wishes, speller)
            try:
                return work.extend() if before else work.create(origin or str(source), called)
            finally:
                work.stage.close()
                shutil.rmtree(hidden, ignore_errors=True)
    except Timeout:
        raise ImportFailed(f"{run_id} is being imported by another process; wait for its end") from None
    except duckdb.Error as error:
        raise ImportFailed(f"{run_id} cannot be written: {str(error).partition(chr(10))[0]}") from error


def _new_id(form: str, name: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{slug(form)}-{slug(name)}-{secrets.token_hex(2)}"
