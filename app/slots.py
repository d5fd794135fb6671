"""The slots of the What-if page: two to four methods, each a line of the address (`m=…`), its card full of sliders.

A line is a spec (`core.counterfactual.Spec`); `trained` stands for the run's own method, so that it follows the run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from app import urls
from app.inert import inert_html, inert_markdown, visible
from app.palette import Theme, method_colour
from app.param_forms import Place, escape, places, schedule
from app.views.whatif import LETTERS
from core.advantage import AdvantageError, Loss, Method, Recipe, bases, recipes
from core.counterfactual import Spec

TRAINED = "trained"
FIRST = ("grpo", "a3po;base=grpo")
"""Where nothing says what to compare."""
MORE = ("adora_amplify", "psr", "dr_grpo", "grpo")
"""What a further slot starts with: the first that is not there yet."""
OWN_BASE = ""
FOLDED = ("eps", "ddof")
"""Parameters of base rules that few will want to move."""
CLIPPING = ("clip", "gspo", "cispo")
"""The objectives that clip bounds matter to."""


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
        name = self.method.label if self.method else self.spec.name if self.spec else self.text[:40]
        return visible(name) + (f" · {self.note}" if self.note else "") + (" (as trained)" if self.own else "")


def read(own: Spec | None, defaults: Sequence[str] = ()) -> list[Slot]:
    """The slots in the address; without any, the example's, or the run's own method and what tells most beside it."""
    texts = [text for text in st.query_params.get_all("m") if text][: len(LETTERS)]
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


def cards(slots: Sequence[Slot], own: Spec | None, theme: Theme, answered: Callable[[Slot], str]) -> None:
    """Draw every slot's card. `answered(slot)` is the sentence that says why its method has no answer here, else ""."""
    texts = [slot.text for slot in slots]
    for i, slot in enumerate(slots):
        with st.container(border=True, key=f"whatif-slot-{i}", gap="small"):
            _head(slot, i, texts, theme)
            _card(slot, i, texts, own)
            said = slot.error or answered(slot)
            if said:
                st.error(inert_markdown(said), icon=":material/block:")
    if len(slots) < len(LETTERS):
        added = next((name for name in MORE if name not in {slot.spec.name for slot in slots if slot.spec}), MORE[-1])
        st.button(
            "Add a method", icon=":material/add:", key="whatif:add", on_click=_write, args=([*texts, added],),
            help="Up to four beside each other",
        )  # fmt: skip


def _head(slot: Slot, i: int, texts: list[str], theme: Theme) -> None:
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        colour = method_colour(slot.spec.name if slot.spec else "", theme.dark)
        st.html(
            f'<span style="display:inline-block;min-width:20px;text-align:center;border:2px solid {colour};'
            f'border-radius:5px;font:700 12px/17px sans-serif;margin-right:7px">{slot.letter}</span>'
            f'<b style="font-size:14px">{inert_html(slot.label)}</b>',
            width="stretch",
        )
        if len(texts) > 2:
            st.button(
                "", icon=":material/close:", type="tertiary", key=f"whatif:{i}:remove", help="Take this method out",
                on_click=_write, args=([*texts[:i], *texts[i + 1 :]],),
            )  # fmt: skip


def _card(slot: Slot, i: int, texts: list[str], own: Spec | None) -> None:
    """The method and what can be changed about it; a line that cannot be read offers the choice of a method alone."""
    known = recipes()
    spec = slot.spec if slot.spec and slot.spec.name in known else None
    key = f"whatif:{i}:method"
    options = ([TRAINED] if own else []) + list(known)
    now = TRAINED if own and slot.text == TRAINED else spec.name if spec else None
    st.session_state[key] = now

    def choose() -> None:
        _put(texts, i, st.session_state[key])

    st.selectbox(
        "Method", options, key=key, on_change=choose, label_visibility="collapsed", placeholder="Choose a method",
        format_func=lambda name: "as trained" if name == TRAINED else known[name].label,
        help=escape(known[spec.name].summary) if spec else None,
    )  # fmt: skip
    if spec is None:
        return

    def change(**fields: Any) -> None:
        _put(texts, i, fitting(replace(spec, **fields)).text)

    recipe = known[spec.name]
    by_rule = places(recipe, spec.base or "", spec.also)
    stand = known.get(spec.base or recipe.on, recipe)
    base_rule = stand.base.name if stand.base else ""
    weights = {rule: there for rule, there in by_rule.items() if rule != base_rule}
    for there in weights.values() or [by_rule.get(base_rule, [])]:
        _sliders(there, spec, f"whatif:{i}", change)
    if weights:
        _switch(
            "Mass-matched", f"whatif:{i}:mass", spec.mass_matched, lambda value: change(mass_matched=value),
            "Rescale the whole batch to the base rule's advantage mass: what stays different is no larger step",
        )  # fmt: skip
    with st.expander("Base, more weights, loss", icon=":material/tune:", key=f"whatif:{i}:more"):
        _composition(spec, recipe, f"whatif:{i}", change)
        for place in by_rule.get(base_rule, []):
            if weights or place.param.name in FOLDED:
                _setting(place, spec, f"whatif:{i}:{place.name}", change)
        _loss(slot.method, spec, f"whatif:{i}", change)


def _sliders(there: Sequence[Place], spec: Spec, key: str, change: Callable[..., None]) -> None:
    """A rule's parameters, its schedule folded away."""
    for place in there:
        if place.param.group != "schedule" and place.param.name not in FOLDED:
            _setting(place, spec, f"{key}:{place.name}", change)
    schedules = [place for place in there if place.param.group == "schedule"]
    if schedules:
        schedule(schedules, spec.params, f"{key}:{schedules[0].rule}", lambda params: change(params=params))


def _setting(place: Place, spec: Spec, key: str, change: Callable[..., None]) -> None:
    """A slider; a choice as a list; a parameter that may be unused as a number that may be empty."""
    param, now = place.param, place.value(spec.params)
    label, doc = place.name.replace("_", " "), escape(param.doc)

    def write() -> None:
        value = st.session_state[key]
        change(params=place.put(spec.params, float(f"{value:.6g}") if isinstance(value, float) else value))

    if param.kind == "choice":
        st.session_state[key] = now if now in param.choices else param.default
        st.selectbox(label, param.choices, key=key, on_change=write, help=doc)
        return
    kind = int if param.kind == "int" else float
    usable = isinstance(now, int | float) and not isinstance(now, bool) and abs(now) < 1e9
    st.session_state[key] = kind(now) if usable else None
    default = param.default
    if not usable or default is None or 0 < abs(default) < TINY:
        limits = [None if limit is None else kind(limit) for limit in (param.low, param.high)]
        st.number_input(
            label, *limits, value=None, key=key, on_change=write, help=doc, placeholder="not used",
            format="%d" if kind is int else "%g",
        )  # fmt: skip
        return
    low, high, step = reach(param.low, param.high, default, now, whole=kind is int)
    st.slider(label, low, high, step=step, format="%d" if kind is int else "%g", key=key, on_change=write, help=doc)


TINY = 1e-4
"""A default below this is a number to type: no slider reaches it."""


def reach(
    low: float | None, high: float | None, default: float, now: float, whole: bool = False
) -> tuple[Any, Any, Any]:
    """(from, to, step) of a slider: the parameter's range, but no more than ten times its default where the range is
    far wider; whatever the address says lies inside.
    """
    far = 10 * abs(default) or 1.0
    top = far if high is None or high > 2 * far else high
    bottom = -far if low is None or low < -2 * far else low
    bottom, top = min(bottom, now), max(top, now)
    if whole:
        return int(bottom), max(int(top), int(bottom) + 1), 1
    span = (top - bottom) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 100))
    return float(bottom), float(top), next(step * n for n in (1, 2, 5, 10) if span / (step * n) <= 200)


def _composition(spec: Spec, recipe: Recipe, key: str, change: Callable[..., None]) -> None:
    """The base rule under the weights, and further weights."""
    known = recipes()
    if recipe.weights:
        own = f"{known[recipe.on].label} (its own)"
        others = [name for name in bases() if name != recipe.on]
        now = spec.base if spec.base in others else OWN_BASE
        _choice("Base rule", f"{key}:base", [OWN_BASE, *others], now, lambda name: change(base=name or None),
                lambda name: known[name].label if name else own)  # fmt: skip
    also_key = f"{key}:also"
    st.session_state[also_key] = [name for name in spec.also if name in known]
    st.multiselect(
        "Further weights", [name for name, other in known.items() if other.weights and other is not recipe],
        key=also_key, on_change=lambda: change(also=tuple(st.session_state[also_key])), placeholder="None",
        format_func=lambda name: known[name].label,
    )  # fmt: skip


def _loss(method: Method | None, spec: Spec, key: str, change: Callable[..., None]) -> None:
    """What the loss does with the advantages: averaging, clip bounds, dropped groups."""
    if method is None:
        return
    loss, usual = method.loss, replace(spec, loss={}).build().loss

    def put(name: str, value: Any) -> None:
        change(loss={**spec.loss, name: value})

    options = ["token_mean", "sequence_mean", "fixed_length"]
    _choice("Averaged", f"{key}:aggregation", options, loss.aggregation, partial(put, "aggregation"),
            lambda name: name.replace("_", " "))  # fmt: skip
    if loss.objective in CLIPPING:
        for name, label in (("clip_low", "clip below 1 by"), ("clip_high", "clip above 1 by")):
            now = float(getattr(loss, name))
            span = reach(0.0, 1.0, max(getattr(usual, name), TINY), now)
            _slider(label, f"{key}:{name}", span, now, partial(put, name))
    _switch(
        "Drop groups of equal rewards", f"{key}:dynamic", method.dynamic_sampling,
        lambda value: change(dynamic_sampling=value), "Dynamic sampling: such groups carry no signal",
    )  # fmt: skip


def _choice(
    label: str, key: str, options: list[str], now: str, put: Callable[[str], None], words: Callable[[str], str]
) -> None:
    st.session_state[key] = now
    st.selectbox(label, options, key=key, format_func=words, on_change=lambda: put(st.session_state[key]))


def _slider(label: str, key: str, span: tuple[float, float, float], now: float, put: Callable[[float], None]) -> None:
    st.session_state[key] = now
    low, high, step = span
    st.slider(
        label, low, high, step=step, format="%g", key=key, on_change=lambda: put(float(f"{st.session_state[key]:.6g}"))
    )


def _switch(label: str, key: str, now: bool, put: Callable[[bool], None], doc: str) -> None:
    st.session_state[key] = now
    st.toggle(label, key=key, help=doc, on_change=lambda: put(st.session_state[key]))


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


def _put(texts: list[str], i: int, text: str | None) -> None:
    if text:
        _write([*texts[:i], text, *texts[i + 1 :]])


def _write(texts: list[str]) -> None:
    urls.set_params(m=texts, diff=urls.param("diff") if len(texts) == len(st.query_params.get_all("m")) else None)
