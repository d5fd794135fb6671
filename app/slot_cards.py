"""The cards of the What-if page's methods: sliders, composition and loss; every change goes to the address."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from app import slots
from app.inert import inert_html, inert_markdown
from app.palette import Theme, method_colour
from app.param_forms import Place, escape, places, schedule, settled, usable
from app.slots import TRAINED, Slot, fitting
from app.views.whatif import LETTERS
from app.words import number
from core.advantage import AdvantageError, Recipe, bases, recipes
from core.advantage.compose import CLIPPING
from core.counterfactual import Spec

MORE = ("adora_amplify", "psr", "dr_grpo", "grpo")
"""What a further slot starts with: the first that is not there yet."""
OWN_BASE = ""
FOLDED = ("eps", "ddof")
"""Parameters of base rules that few will want to move."""
OBJECTIVES = {
    "clip": "clip: min(r A, clip(r) A)", "ratio": "ratio: r A", "gspo": "gspo: r of the whole answer",
    "cispo": "cispo: clip(r) A log p", "reinforce": "reinforce: A log p",
}  # fmt: skip
MEANT = {"eps": "added to the deviation", "ddof": "deviation over n − ddof", "p_below": "rank tokens less likely than"}
"""Names of parameters that need a word."""
_FOLDED = """
  .st-key-whatif-slots > div:has(.st-key-whatif-N-adjust input:checked) { width: 100%; order: -1; }
  div:has(.st-key-whatif-N-adjust input:checked) > div:has(> .st-key-whatif-settings-N) { display: flex; }"""
STYLE = (
    """<style>
.st-key-whatif-slots ::placeholder { opacity: 0.75; color: inherit; -webkit-text-fill-color: currentColor; }
@media (min-width: 1001px) { [class*="st-key-whatif-"][class*="-adjust"] { display: none; } }
@media (max-width: 1000px) {
  .st-key-whatif-slots { flex-direction: row; flex-wrap: wrap; }
  .st-key-whatif-slots > div { flex: none; width: calc(50% - 0.5rem); }
  div:has(> [class*="st-key-whatif-settings-"]) { display: none; }
  [class*="st-key-whatif-settings-"] {
    display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 0.25rem 1.5rem; align-items: end;
  }
  [class*="st-key-whatif-settings-"] > div:has([data-testid="stExpander"]) { grid-column: 1 / -1; }
  [data-testid="stColumn"]:has([class*="-adjust"] input:checked) {
    position: sticky; top: 3.75rem; z-index: 50; max-height: 42vh; overflow-y: auto; background: BACKGROUND;
  }"""
    + "".join(_FOLDED.replace("N", str(i)) for i in range(len(LETTERS)))
    + "\n}\n</style>"
)
"""On a narrow page the cards lie above the picture, folded to their methods until their reader adjusts one: they then
stay in sight while the picture is scrolled under them."""


def cards(
    found: Sequence[Slot], own: Spec | None, theme: Theme, answered: Callable[[Slot], str], total: int | None = None
) -> None:
    """Draw every slot's card. `answered(slot)` is the sentence that says why its method has no answer here, else "".
    `total`: the steps of the run.
    """
    st.html(STYLE.replace("BACKGROUND", theme.background))
    texts = [slot.text for slot in found]
    for i, slot in enumerate(found):
        with st.container(border=True, key=f"whatif-slot-{i}", gap="small"):
            _head(slot, i, texts, theme)
            _card(slot, i, texts, own, total)
            said = slot.error or answered(slot)
            if said:
                st.error(inert_markdown(said), icon=":material/block:")
    if len(found) < len(LETTERS):
        there = {slot.spec.name for slot in found if slot.spec}
        added = next((name for name in MORE if name not in there), MORE[-1])
        st.button(
            "Add a method", icon=":material/add:", key="whatif:add", on_click=slots.write, args=([*texts, added],),
            help="Up to four beside each other",
        )  # fmt: skip


def _head(slot: Slot, i: int, texts: list[str], theme: Theme) -> None:
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        colour = method_colour(slot.spec.name if slot.spec else "", theme.dark)
        st.html(
            f'<span style="display:inline-block;min-width:1.25rem;text-align:center;border:2px solid {colour};'
            f'border-radius:5px;font:700 .75rem/1.4 sans-serif;margin-right:7px">{slot.letter}</span>'
            f'<b style="font-size:.875rem">{inert_html(slot.label)}</b>',
            width="stretch",
        )
        if len(texts) > 2:
            st.button(
                "", icon=":material/close:", type="tertiary", key=f"whatif:{i}:remove", help="Take this method out",
                on_click=slots.write, args=([*texts[:i], *texts[i + 1 :]],),
            )  # fmt: skip


def _card(slot: Slot, i: int, texts: list[str], own: Spec | None, total: int | None) -> None:
    """The method and what can be changed about it; a line that cannot be read offers the choice of a method alone."""
    known = recipes()
    spec = slot.spec if slot.spec and slot.spec.name in known else None
    key = f"whatif:{i}:method"
    options = ([TRAINED] if own else []) + list(known)
    now = TRAINED if own and slot.text == TRAINED else spec.name if spec else None
    st.session_state[key] = now

    def choose() -> None:
        slots.put(texts, i, st.session_state[key])

    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.selectbox(
            "Method", options, key=key, on_change=choose, label_visibility="collapsed", placeholder="Choose a method",
            format_func=lambda name: "as trained" if name == TRAINED else known[name].label,
            help=escape(known[spec.name].summary) if spec else None,
        )  # fmt: skip
        if spec is not None:
            st.toggle("Adjust", key=f"whatif:{i}:adjust", width="content")
    if spec is not None:
        with st.container(key=f"whatif-settings-{i}", gap="small"):
            _parameters(slot, spec, i, texts, total)


def _parameters(slot: Slot, spec: Spec, i: int, texts: list[str], total: int | None) -> None:
    """The sliders of the weights, or of a bare base rule; the rest is folded away."""

    def change(**fields: Any) -> None:
        slots.put(texts, i, fitting(replace(spec, **fields)).text)

    known = recipes()
    recipe = known[spec.name]
    by_rule = places(recipe, spec.base or "", spec.also)
    stand = known.get(spec.base or recipe.on, recipe)
    base_rule = stand.base.name if stand.base else ""
    weights = {rule: there for rule, there in by_rule.items() if rule != base_rule}
    for there in weights.values() or [by_rule.get(base_rule, [])]:
        _sliders(there, spec, f"whatif:{i}", change, total)
    if weights:
        _switch(
            "Mass-matched", f"whatif:{i}:mass", spec.mass_matched, lambda value: change(mass_matched=value),
            "Rescale the whole batch to the base rule's advantage mass: what stays different is no larger step",
        )  # fmt: skip
    with st.expander("Base, more weights, loss", icon=":material/tune:", key=f"whatif:{i}:more"):
        _composition(spec, recipe, f"whatif:{i}", change)
        for place in by_rule.get(base_rule, []):
            if weights or place.param.name in FOLDED:
                put, word = _putting(place, [], spec, change), MEANT.get(place.param.name, "")
                _setting(place, place.value(spec.params), f"whatif:{i}:{place.name}", put, word)
        _loss(spec, f"whatif:{i}", change)


def _sliders(there: Sequence[Place], spec: Spec, key: str, change: Callable[..., None], total: int | None) -> None:
    """A rule's parameters, its schedule folded away. Where a fraction of the run sets how fast A3PO's rho falls, alpha
    shows what that comes to.
    """
    fall = slots.falls(there, spec.params, total)
    for place in there:
        if place.param.group == "schedule" or place.param.name in FOLDED:
            continue
        now, put = place.value(spec.params), _putting(place, there, spec, change)
        if fall is None or place.param.name != "alpha":
            _setting(place, now, f"{key}:{place.name}", put, MEANT.get(place.param.name, ""))
        else:
            other = "" if fall[0] == fall[1] else f" (ρ⁻ {number(fall[1])})"
            _setting(place, fall[0], f"{key}:{place.name}", put, f"by decay fraction{other}")
    schedules = [place for place in there if place.param.group == "schedule"]
    if schedules:

        def write(params: dict[str, Any]) -> None:
            change(params=settled(spec.params, params, there, "schedule"))

        schedule(schedules, spec.params, f"{key}:{schedules[0].rule}", write)


def _putting(place: Place, there: Sequence[Place], spec: Spec, change: Callable[..., None]) -> Callable[[Any], None]:
    """What takes a parameter's new value; `there` are its rule's parameters."""

    def put(value: Any) -> None:
        params = place.put(spec.params, float(f"{value:.6g}") if isinstance(value, float) else value)
        change(params=settled(spec.params, params, there, place.param.name))

    return put


def _setting(place: Place, now: Any, key: str, put: Callable[[Any], None], word: str = "") -> None:
    """A slider; a choice as a list; a parameter that may be unused as a number that may be empty."""
    param = place.param
    label, doc = place.name.replace("_", " "), escape(param.doc)
    label = f"{label}: {word}" if word else label

    def write() -> None:
        put(st.session_state[key])

    if param.kind == "choice":
        st.session_state[key] = now if now in param.choices else param.default
        st.selectbox(label, param.choices, key=key, on_change=write, help=doc)
        return
    kind = int if param.kind == "int" else float
    st.session_state[key] = kind(now) if usable(now) else None
    default = param.default
    if not usable(now) or default is None or 0 < abs(default) < TINY:
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


def _loss(spec: Spec, key: str, change: Callable[..., None]) -> None:
    """What the loss does with the advantages: objective, averaging, clip bounds, dropped groups. There even where the
    loss is refused, so that its choice can be taken back.
    """
    try:
        plain = replace(spec, loss={}, dynamic_sampling=None).build()
    except AdvantageError:
        return
    loss = {name: spec.loss.get(name, value) for name, value in vars(plain.loss).items()}

    def put(name: str, value: Any) -> None:
        change(loss={**spec.loss, name: value})

    own = plain.loss.objective
    _choice("Objective", f"{key}:objective", list(OBJECTIVES), loss["objective"], partial(put, "objective"),
            lambda name: OBJECTIVES[name] + (" (its own)" if name == own else ""))  # fmt: skip
    options = ["token_mean", "sequence_mean", "fixed_length"]
    _choice("Averaged", f"{key}:aggregation", options, loss["aggregation"], partial(put, "aggregation"),
            lambda name: name.replace("_", " "))  # fmt: skip
    if loss["objective"] in CLIPPING:
        for name, label in (("clip_low", "clip below 1 by"), ("clip_high", "clip above 1 by")):
            usual = float(getattr(plain.loss, name))
            now = float(loss[name]) if usable(loss[name]) else usual
            _slider(label, f"{key}:{name}", reach(0.0, 1.0, max(usual, TINY), now), now, partial(put, name))
    dropping = plain.dynamic_sampling if spec.dynamic_sampling is None else spec.dynamic_sampling
    _switch(
        "Drop groups of equal rewards", f"{key}:dynamic", dropping, lambda value: change(dynamic_sampling=value),
        "Dynamic sampling: such groups carry no signal",
    )  # fmt: skip


def _choice(
    label: str, key: str, options: list[str], now: str, put: Callable[[str], None], words: Callable[[str], str]
) -> None:
    st.session_state[key] = now if now in options else None
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
