"""The slots of the What-if page: two to four methods, each a line of the address (`m=…`).

A line is a spec (`core.counterfactual.Spec`); `trained` stands for the run's own method, so that it follows the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app import urls
from app.inert import visible
from app.param_forms import Place, places, usable
from app.views.whatif import LETTERS
from core.advantage import AdvantageError, Loss, Method, recipes
from core.counterfactual import Spec

TRAINED = "trained"
FIRST = ("grpo", "a3po;base=grpo")
"""Where nothing says what to compare."""


@dataclass(frozen=True, eq=False)
class Slot:
    """One method of the comparison: as the address has it, and what became of it."""

    letter: str
    text: str
    spec: Spec | None = None
    method: Method | None = None
    error: str = ""  # why there is no method
    own: bool = False  # it is what the run trained with
    note: str = ""  # its settings, where another slot would be called the same

    @property
    def label(self) -> str:
        name = self.method.label if self.method else _called(self.spec) if self.spec else self.text[:40]
        return visible(name) + (f" · {self.note}" if self.note else "") + (" (as trained)" if self.own else "")


def _called(spec: Spec) -> str:
    """The name of a composition whose settings are refused."""
    try:
        return Spec(spec.name, spec.base, spec.also).build().label
    except AdvantageError:
        recipe = recipes().get(spec.name)
        return recipe.label if recipe else spec.name


def lines() -> list[str]:
    """The lines of the address."""
    return st.query_params.get_all("m")


def read(own: Spec | None, defaults: Sequence[str] = (), at: Sequence[str] | None = None) -> list[Slot]:
    """The slots in the address; without any, the example's, or the run's own method and what tells most beside it.
    `at`: the lines, where they were read before.
    """
    texts = [text for text in (lines() if at is None else at) if text][: len(LETTERS)]
    start = list(defaults) or ([TRAINED, beside(own)] if own else list(FIRST))
    missing = 2 - len(texts) if texts or not defaults else len(LETTERS)
    texts += [text for text in start if text not in texts][: max(0, missing)]
    texts += FIRST[: max(0, 2 - len(texts))]
    return _distinct([_slot(letter, text, own) for letter, text in zip(LETTERS, texts, strict=False)])


def _distinct(slots: list[Slot]) -> list[Slot]:
    """Slots that would be called the same get their settings as a note: `GRPO · ddof 0`."""
    seen = Counter(slot.label for slot in slots)
    return [replace(slot, note=_settings(slot.spec)) if seen[slot.label] > 1 else slot for slot in slots]


def _settings(spec: Spec | None) -> str:
    parts = [part.replace("=", " ").replace("_", " ") for part in (spec.text if spec else "").split(";")[1:]]
    return visible(", ".join(part for part in parts if not part.startswith(("base ", "also "))))


def beside(own: Spec) -> str:
    """What tells most beside a method: the base rule under its weights, and A3PO beside a bare base."""
    recipe = recipes().get(own.name)
    if recipe is None:
        return FIRST[0]
    if recipe.weights:
        return own.base or recipe.on
    return own.name if own.also else f"a3po;base={own.name}"


def _slot(letter: str, text: str, own: Spec | None) -> Slot:
    if text == TRAINED and own is None:
        return Slot(letter, text, error="No method trained on these rollouts: choose one.")
    try:
        spec = own if text == TRAINED and own else Spec.parse(text)
    except AdvantageError as error:
        return Slot(letter, text, error=str(error))
    try:
        method = spec.build()
        return Slot(letter, text, spec, method, own=text == TRAINED or (own is not None and method == own.build()))
    except AdvantageError as error:
        return Slot(letter, text, spec, error=str(error))


def fitting(spec: Spec) -> Spec:
    """The spec without parameters that its composition does not have (any more), and without a loss of its own where
    the base's says the same.
    """
    recipe = recipes().get(spec.name)
    if recipe is None:
        return spec
    there = [place for own in places(recipe, spec.base or "", spec.also).values() for place in own]
    spellings = {name for place in there for name in place.spellings}
    spec = replace(spec, params={name: value for name, value in spec.params.items() if name in spellings})
    try:
        plain = replace(spec, loss={}, dynamic_sampling=None).build()
    except AdvantageError:
        return spec
    brought: Loss = plain.loss
    loss = {name: value for name, value in spec.loss.items() if getattr(brought, name, value) != value}
    same = spec.dynamic_sampling == plain.dynamic_sampling
    return replace(spec, loss=loss, dynamic_sampling=None if same else spec.dynamic_sampling)


def falls(there: Sequence[Place], params: Mapping[str, Any], total: int | None) -> tuple[float, float] | None:
    """What A3PO's two rhos lose a step where `decay_fraction` sets it, in a run of `total` steps; else None."""
    own = {place.param.name: place.value(params) for place in there}
    numbers = [own.get(name) for name in ("decay_fraction", "rho_positive", "rho_negative")]
    if not total or not all(usable(number) for number in numbers) or not numbers[0]:
        return None
    fraction, *rhos = numbers
    positive, negative = ((rho - 1.0) / (fraction * total) for rho in rhos)
    return positive, negative


def put(texts: list[str], i: int, text: str | None) -> None:
    """Change one line of the address."""
    if text:
        write([*texts[:i], text, *texts[i + 1 :]])


def write(texts: list[str]) -> None:
    """The lines of the address; with another number of them the chosen pair is none any more."""
    urls.set_params(m=texts, diff=urls.param("diff") if len(texts) == len(lines()) else None)
