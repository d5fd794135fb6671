"""One import on its way: from what a reader gives to the run's files, new or with what is new.

Everything lies in a hidden folder until it is whole; then one move makes the run, or replaces its file.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from core.advantage.registry import selects
from core.config import RunConfig, dump, read_run
from core.importers import follow
from core.importers.base import Format, Found, ImportFailed, Places, Report
from core.importers.fit import Outcome, fit
from core.importers.follow import Wishes
from core.importers.keys import Order, arrange
from core.importers.lab import LAB, Agreement, Exported, exported, mended
from core.importers.manifest import LACKS, Manifest, write_manifest
from core.importers.records import Builder, Vocabulary
from core.importers.said import reasons, status_of, write_log
from core.importers.sealed import TAIL_STEPS, Before, Sealed
from core.importers.settings import settings
from core.importers.spelling import Speller
from core.importers.stage import Stage, conform
from core.importers.steps import Last, Progress, rollouts_of, write_steps
from core.runs.locks import run_lock
from core.runs.status import Status, read_status, write_atomic, write_status
from core.store.factors import Factors, read_schema, write_schema
from core.store.files import SEALED, flush

NO_STEP = "Rows that say no step were put into step 0."
EVALUATIONS = "The files hold evaluations alone: their rollouts are shown as if they were a step of training."


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    path: Path
    """The run's folder."""
    manifest: Manifest
    report: Report
    """Of this import alone."""
    new_steps: int
    """Steps that were added or written anew; 0 where the files had nothing new."""
    followed: bool
    """Whether the run was there before."""


class Import:
    """One import on its way."""

    def __init__(
        self,
        path: Path,
        hidden: Path,
        form: Format,
        found: Found,
        progress: Progress,
        wishes: Wishes,
        speller: Speller | None,
    ) -> None:
        self.path, self.hidden, self.form, self.found = path, hidden, form, found
        self.progress, self.wishes, self.speller, self.report = progress, wishes, speller, Report()
        self.said = exported(found, self.report)
        self.agreement: Agreement | None = None
        self.stage = Stage(hidden / "scratch")

    def create(self, source: str, name: str) -> Imported:
        """A new run."""
        places: Places = {}
        self._read(places)
        if not self.stage.rows:
            raise ImportFailed(f"{source}: nothing could be taken{reasons(self.report)}")
        evaluation = bool(self.stage.keys()["evaluated"].all())
        if evaluation:
            self.report.note(EVALUATIONS)
        order = self._arrange(evaluation)
        if not len(order.seq):
            raise ImportFailed(f"{source}: nothing could be taken{reasons(self.report)}")
        said, wanted = self._lab(order), self.wishes.convention
        outcome = fit(rollouts_of(order), self._advantages(order), None if said else wanted, varying=self._varying)
        if said:
            outcome, self.agreement = replace(outcome, chosen=said.convention), Agreement()
        config = settings(name, order, outcome.chosen, said)
        self._write_run(config)
        manifest = self._manifest(source, outcome, places, order, evaluation)
        with Sealed(self.hidden / SEALED, read_schema(self.hidden) or Factors()) as file:
            last = self._write_steps(file, order, config, Vocabulary())
            manifest = self._compared(replace(manifest, tokens=last.tokens, notes=tuple(self.report.notes)), config)
            file.close(self._tail(order), manifest)
        flush(self.hidden / SEALED)
        write_manifest(self.hidden, manifest)
        write_log(self.hidden, manifest)
        write_status(self.hidden, status_of(Status(created=time.time()), manifest, last, config.build_method().label))
        self.stage.close()
        shutil.rmtree(self.hidden / "scratch")
        os.rename(self.hidden, self.path)
        flush(self.path.parent)
        return Imported(self.path, manifest, self.report, manifest.steps, False)

    def extend(self) -> Imported:
        """The run that is there, with what is new."""
        with run_lock(self.path).acquire(timeout=0):
            before = Before(self.path / SEALED)
            try:
                return self._extend(before)
            finally:
                before.close()

    def _extend(self, before: Before) -> Imported:
        old, config = before.manifest, read_run(self.path / "config.yaml")
        by_lab = old.convention == LAB
        if by_lab and self.said is None:
            raise ImportFailed(
                f"{self.found.root}: the {LAB} by which {self.path.name} was imported is gone or damaged"
            )
        if old.tokenizer and self.speller is None:
            self.speller = Speller(Path(old.tokenizer))
        places = dict(old.places or {})
        if before.tail.num_rows:
            self.stage.add(before.tail, Report())
        kept_rows = self.stage.rows
        self._read(places)
        changed: set[int] = set()
        if self.stage.rows > kept_rows:
            changed, chosen = follow.sort_out(self.stage, before, kept_rows, places, self.report)
            whole = self._arrange(old.evaluation, chosen)
            changed &= {int(step) for step in np.unique(whole.step[whole.seq >= kept_rows])}
            order = whole.only(changed)
            self.report.taken = int((order.seq >= kept_rows).sum())
        if not changed:
            manifest = replace(self._added(old), places=places, imported=time.time())
            self._say(manifest)
            return Imported(self.path, manifest, self.report, 0, True)
        stored = before.rollouts(changed)
        outcome = follow.fit_again(
            stored, rollouts_of(order), self._advantages(order), None if by_lab else old.convention, self._varying
        )  # fmt: skip
        self.agreement = Agreement() if by_lab else None
        config = settings(config.name or "", order, outcome.chosen, before=config)
        known = read_schema(self.path) or Factors()
        factors = Factors(known.rollout, tuple(dict.fromkeys((*known.token, *self._masked(config)))))
        shutil.copyfile(self.path / SEALED, self.hidden / SEALED)
        made_up = "token_ids" in old.lacks and "tokens" not in old.lacks
        with Sealed(self.hidden / SEALED, factors) as file:
            file.drop(changed & before.steps)
            last = self._write_steps(file, order, config, Vocabulary(before.vocabulary() if made_up else None))
            rollouts, tokens = file.totals()
            manifest = replace(
                self._added(old), places=places, imported=time.time(), steps=len(before.steps | changed),
                rollouts=rollouts, tokens=tokens, fits=outcome.fits, compared=outcome.compared,
                sentence=outcome.sentence, lacks=tuple(name for name in old.lacks if name in self._lacks(order)),
            )  # fmt: skip
            manifest = self._compared(manifest, config)
            file.close(self._tail(whole), manifest)
        flush(self.hidden / SEALED)
        write_atomic(self.path / "config.yaml", dump(config))  # it suits the old file too: it has only room for more
        write_schema(self.path, config, factors.token)
        os.replace(self.hidden / SEALED, self.path / SEALED)
        flush(self.path)
        self._say(manifest, last)
        return Imported(self.path, manifest, self.report, len(changed), True)

    def _read(self, places: Places) -> None:
        """All that the reader has to give."""
        for table in self.form.read(self.found, self.report, places):
            table = conform(table)
            if self.said:
                table = mended(table, self.said, self.report)
            if self.speller:
                table = self.speller.fill(table)
            self.stage.add(table, self.report)
            self.progress("reading", self.stage.rows, None)
        if self.speller and self.stage.rows:
            self.speller.tell(self.report)

    def _lab(self, order: Order) -> Exported | None:
        """What lab.json says of the advantages, if that is what is wanted and can be computed. Raises ImportFailed."""
        wanted = self.wishes.convention
        if self.said is None:
            if wanted == LAB:
                raise ImportFailed(f"--convention {LAB}: there is none beside {self.found.root} that can be used")
            return None
        if wanted not in (None, LAB):
            return None
        missing = self.said.missing(self.stage.have, self.stage.rows)
        if not missing:
            return self.said
        words = " and ".join(LACKS.get(name, f"`{name}`") for name in missing)
        sentence = f"{LAB} names {self.said.method.label}, which needs {words}: not all rollouts have that."
        if wanted == LAB:
            raise ImportFailed(sentence)
        self.report.note(f"{sentence} The convention that fits best was looked for.")
        return None

    def _compared(self, manifest: Manifest, config: RunConfig) -> Manifest:
        """With the sentence of how far lab.json's method gives the trainer's numbers, where that was computed."""
        if self.agreement is None:
            return manifest
        return replace(manifest, sentence=self.agreement.sentence(config.build_method().label))

    def _arrange(self, evaluation: bool, chosen: np.ndarray | None = None) -> Order:
        """The rows in order, all or the `chosen` (rows,) bool. Evaluations may be taken for training rollouts."""
        keys = dict(self.stage.keys())
        if (keys["step"] < 0).any():
            self.report.note(NO_STEP)
            keys["step"] = np.maximum(keys["step"], 0)
        if evaluation:
            keys["evaluated"] = np.zeros(self.stage.rows, bool)
        if chosen is not None:
            keys = {name: values[chosen] for name, values in keys.items()}
        order = arrange(keys, self.report, self.stage.where)
        self.report.taken = len(order.seq)
        return order

    def _advantages(self, order: Order) -> np.ndarray:
        """(N,) the imported advantages of the training rollouts with a reward, NaN without one."""
        return order.keys["advantage"][order.judged]

    @property
    def _varying(self) -> bool:
        """Whether there are advantages a token."""
        return self.stage.have["token_advantage"] > 0

    def _lacks(self, order: Order) -> list[str]:
        """Columns that no rollout has."""
        have = self.stage.have
        there = {name: have[name] > 0 for name in LACKS}
        there["reward"] = bool(np.isfinite(order.keys["reward"]).any())
        there["advantage"] |= have["token_advantage"] > 0
        there["length"] |= bool((order.keys["length"] >= 0).any())
        return [name for name, is_there in there.items() if not is_there]

    def _manifest(
        self, source: str, outcome: Outcome, places: Places, order: Order, evaluation: bool
    ) -> Manifest:  # fmt: skip
        return Manifest(
            format=self.form.name, label=self.form.label, source=source, imported=time.time(),
            steps=len(np.unique(order.step)), rollouts=len(order.seq), tokens=0, refused=dict(self.report.refused),
            examples=dict(self.report.examples), notes=tuple(self.report.notes), lacks=tuple(self._lacks(order)),
            convention=outcome.chosen.name, sentence=outcome.sentence, fits=outcome.fits, compared=outcome.compared,
            evaluation=evaluation, places=places, tokenizer=str(self.wishes.tokenizer or ""),
        )  # fmt: skip

    def _added(self, old: Manifest) -> Manifest:
        """The old manifest, with what this import refused and noted."""
        refused = dict(old.refused)
        for reason, rows in self.report.refused.items():
            refused[reason] = refused.get(reason, 0) + rows
        notes = tuple(dict.fromkeys((*old.notes, *self.report.notes)))
        return replace(old, refused=refused, examples={**self.report.examples, **old.examples}, notes=notes)

    def _write_run(self, config: RunConfig) -> None:
        (self.hidden / "config.yaml").write_text(dump(config), encoding="utf-8")
        write_schema(self.hidden, config, self._masked(config))

    def _masked(self, config: RunConfig) -> tuple[str, ...]:
        """Factors of tokens that come with the rollouts: the trainer's own mask, where no selection of the method made
        it."""
        return ("selected",) if self.stage.have["kept"] and not selects(config.build_method()) else ()

    def _write_steps(self, file: Sealed, order: Order, config: RunConfig, vocabulary: Vocabulary) -> Last:
        """Every step of the order, in bulk."""
        builder = Builder(config, self.report, vocabulary, self.agreement)
        return write_steps(self.stage, file, order, builder, self.progress)

    def _tail(self, order: Order) -> pa.Table:
        """The rows of the last steps, as they were read."""
        steps = np.unique(order.step)[-TAIL_STEPS:]
        return self.stage.fetch(np.sort(order.seq[order.step >= steps[0]]))

    def _say(self, manifest: Manifest, last: Last | None = None) -> None:
        """Have the run say what is in its file: also where an import was cut off right after it put the file there."""
        write_manifest(self.path, manifest)
        write_log(self.path, manifest)
        status = read_status(self.path) or Status(created=time.time())
        if last or status.step != manifest.steps:
            write_status(self.path, status_of(status, manifest, last or Last(status.metrics), status.label))
