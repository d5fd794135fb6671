"""What if: what would another method have done with these very rollouts?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import board, data, rollouts, slots, urls, widgets
from app.guard import guarded
from app.inert import inert_markdown, visible
from app.slots import Slot
from app.theme import theme
from app.views import whatif as view
from app.views import whatif_tables as tables
from app.views import whatif_words as words
from app.views.whatif_component import whatif_view
from app.views.whatif_source import Shown, Source, View, cut, view_of
from app.whatif_run import whole_run
from app.words import count
from core.advantage import AdvantageError, Method
from core.counterfactual import Answer, Pair, Summary, answer, compare, summarise
from core.runs import RunInfo

PLACE = "whatif:place"
"""Session state: the rollouts in view and the token that the address named among them."""
SEEN = "whatif:seen"
"""Session state: the rollouts that were in view last."""
SPLITS = {"train": "training", "probe": "probes", "eval": "held-out"}
SOURCES = {"run": "of a run", "board": "typed in by hand"}
SCOPES = {"group": "one prompt", "step": "the whole step", "run": "the whole run"}
STYLE = """<style>
@media (max-width: 1000px) {
  .st-key-whatif-answers [data-testid="stHorizontalBlock"]:has(> [data-testid="stColumn"]) { flex-wrap: wrap; }
  .st-key-whatif-answers [data-testid="stColumn"] { flex: 1 1 100%; }
  .st-key-whatif-slots { flex-direction: row; flex-wrap: wrap; }
  .st-key-whatif-slots > div { flex: none; width: calc(50% - 0.5rem); }
}
</style>"""
"""On a narrow page the slots lie above the picture instead of beside it."""
HOW = """
Each method's advantages on the same tokens, on one scale: **teal** reinforces (edge above), **vermilion** suppresses
(edge below), a stroke means *not in the loss*. The last panel is the difference of two methods on a scale of its own:
**•** where a factor makes it, **×** where the sign flips.

- Under the pictures the chosen answer: its tokens, and under each token one cell a method.
- **Explain** is the ledger of the chosen token: formula, its numbers, words.
- Advantage **mass** is the sum of loss weight × |advantage|: how much of the update a set of tokens gets.
- The address holds everything, parameters included: *Copy link* shares the view.
"""
PROXY = ". A run records it where its config says record.proxy_min_p."
HOW_MASS = """
The sum of loss weight × |advantage| over the tokens in view, as each method's own loss weighs them; the mark is the
mass before the method's factors. By quarters of the tokens' probability in the policy that sampled them.
"""
HOW_PAIRS = """
Over tokens that either method keeps. **Rank correlation** compares the order of the tokens' advantages: near 1, only
their sizes differ. **Mass elsewhere** ignores the sizes of the two updates and says how much of one lies on other
tokens than the other's. **Step size** is the ratio of the masses.
"""


def page() -> None:
    widgets.page_header("What would another method have done with these very rollouts?")
    st.html(STYLE)
    kind_place, run_place, split_place = st.columns([3, 5, 2], vertical_alignment="bottom")
    with kind_place:
        kind = widgets.choice("Rollouts", list(SOURCES), param="source", format_func=SOURCES.__getitem__)
    info, source = (None, board.source()) if kind == "board" else _recorded(run_place, split_place)
    if source is None:
        return
    if isinstance(source, str):
        widgets.empty_state(f"No method can be compared on these rollouts: {inert_markdown(source)}.")
        return
    st.fragment(lambda: guarded(lambda: _compare(source, info)))()


def _recorded(run_place: DeltaGenerator, split_place: DeltaGenerator) -> tuple[RunInfo | None, Source | str | None]:
    """A run's step from the address; draws the pickers."""
    with run_place:
        info = widgets.run_picker()
    if info is None:
        return None, None
    found = rollouts.steps(info)
    if not found:
        words_ = "has no step yet" if not data.ended(info) else "kept no tokens: no method can be compared on them"
        widgets.empty_state(
            f"**{inert_markdown(info.name)}** {words_}.", "live", "See what it is doing", run=info.id
        )  # fmt: skip
        return info, None
    with split_place:
        split = widgets.choice("Split", list(found), param="split", format_func=SPLITS.__getitem__, kind="select")
    step = widgets.step_picker(found[split], total=info.total, default=rollouts.telling_step(info, split, found[split]))
    urls.set_params(step=step)  # a run may grow, the view stays
    return info, rollouts.source(info, step, split)


def _compare(source: Source, info: RunInfo | None) -> None:
    """The slots and what they give; every change of a slider redraws this and nothing else."""
    scopes = [name for name in SCOPES if name != "run" or info is not None]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        scope = widgets.choice("Look at", scopes, param="scope", format_func=SCOPES.__getitem__)
        group = _group(source) if scope == "group" else None
        widgets.how_to_read(HOW, "Help")
    found = slots.read(source.own, source.defaults)
    answers = {slot.letter: _answer(source, slot) for slot in found}
    with st.container(key="whatif-answers"):
        left, right = st.columns([3, 9], gap="medium")
    with left, st.container(key="whatif-slots", gap="small"):
        slots.cards(found, source.own, theme(), lambda slot: _refused(answers[slot.letter]))
    good = [slot for slot in found if isinstance(answers[slot.letter], Answer)]
    with right:
        if not good:
            widgets.empty_state("None of these methods can be computed here; their cards say why.")
        elif scope == "run" and info is not None:
            whole_run(info, source.own, good, urls.param("split") or "train", _pair(good))
        else:
            _results(source, group, good, answers)


def _refused(answered: Answer | str | None) -> str:
    return answered if isinstance(answered, str) else ""


def _group(source: Source) -> int:
    """The group in the address, else the one with right and wrong answers most in balance; draws the picker."""
    batch = source.batch
    counts = {
        int(group): (int(batch.correct[own].sum()), int(own.sum()))
        for group in batch.groups
        for own in [batch.group == group]
    }
    balanced = min(counts, key=lambda group: abs(counts[group][0] / counts[group][1] - 0.5))
    wanted = urls.int_param("group", balanced)
    if wanted not in counts:
        if st.session_state.get(SEEN, source.key) == source.key:  # else it was a group of other rollouts
            st.warning(f"Group {wanted} is not among these rollouts; this is another.")
        wanted = balanced
    st.session_state[SEEN] = source.key
    urls.set_params(group=wanted)

    def label(group: int) -> str:
        right, n = counts[group]
        return f"#{group} {visible(source.prompts.get(group, ''))[:60]} · {right} right / {n - right} wrong"

    arguments = urls.bound("group", wanted)
    st.selectbox("Prompt", list(counts), format_func=label, **{**arguments, "on_change": _pick_group, "args": ()})
    return wanted


def _pick_group() -> None:
    urls.set_params(group=st.session_state["url:group"], rollout=None, position=None)


def _pair(good: Sequence[Slot]) -> view.Chosen | None:
    """The two methods whose difference is shown, as places among the slots that have an answer; a picker from three."""
    if len(good) < 2:
        return None
    names = {f"{a}-{b}": (a, b) for a, b in combinations(range(len(good)), 2)}
    if len(names) == 1:
        return 0, 1
    labels = {name: f"{good[a].letter} → {good[b].letter}" for name, (a, b) in names.items()}
    return names[widgets.choice("Difference", list(names), param="diff", format_func=labels.__getitem__)]


def _results(source: Source, group: int | None, good: list[Slot], answers: dict[str, Answer | str | None]) -> None:
    """A group or a whole step: verdict, pictures, numbers."""
    seen = _view(source.key, group, source)
    shown = [
        Shown(
            slot.letter, slot.label, slot.spec.name, whole, _cut(source.key, group, slot.spec.text, whole, seen, source)
        )
        for slot in good
        if slot.spec is not None and isinstance(whole := answers[slot.letter], Answer)
    ]
    texts = [slot.spec.text for slot in good if slot.spec is not None]
    summaries = [_summary(source.key, group, text, one.answer, seen) for text, one in zip(texts, shown, strict=True)]
    pairs = {
        (a, b): _pair_of(source.key, group, texts[a], texts[b], shown[a].answer, shown[b].answer, seen)
        for a, b in combinations(range(len(shown)), 2)
    }
    pair = _pair(good)
    compared = pairs[pair] if pair else None
    if pair and compared:
        a, b = pair
        sentence, tone = words.verdict(shown[a], shown[b], compared, (summaries[a], summaries[b]), seen)
        widgets.verdict(sentence, tone)
    else:
        only = inert_markdown(shown[0].label)
        widgets.verdict(f"Only **{only}** can be computed on these rollouts; the other cards say why not.", "warning")
    st.caption(words.not_answered(source.own, source.note))
    key = f"{source.key}/{group}"
    whatif_view(
        view.payload(
            source, seen, shown, [words.mass_note(summary) for summary in summaries], theme(), pair=pair,
            compared=compared, key=key, group=group, selected=_selected(key, seen, group, shown, compared),
            mark=f"{key} {pair} {theme().dark} {' '.join(texts)}",
        ),
        key="whatif:view",
        on_select=_select,
    )  # fmt: skip
    _numbers(source, seen, shown, pair, compared, group)
    _tables(shown, summaries, pairs)
    if group is None:
        _prompts(source, shown, summaries)


def _selected(key: str, seen: View, group: int | None, shown: list[Shown], compared: Pair | None) -> tuple[int, int]:
    """(row of the view, position) from the address, or where the methods differ most; then it stays there, whatever the
    sliders do, until other rollouts come into view.
    """
    default = view.strongest(seen, shown, compared)
    if group is None:
        return default
    before, place = st.session_state.get(PLACE, ("", None)), (urls.param("rollout"), urls.param("position"))
    if before[0] != key and before[1] == place:
        urls.set_params(rollout=None, position=None)  # it was of other rollouts
    rows = {int(rollout): row for row, rollout in enumerate(seen.rollout)}
    rollout = urls.int_param("rollout", int(seen.rollout[default[0]]))
    if rollout not in rows:
        st.warning(f"Rollout {rollout} is not in this group, which has {len(rows)}.")
        return default
    row = rows[rollout] if urls.param("rollout") else default[0]
    position = urls.int_param("position", default[1] if row == default[0] else 0)
    position = min(max(position, 0), int(seen.batch.length[row]) - 1)
    rollout = int(seen.rollout[row])
    urls.set_params(rollout=rollout, position=position)
    st.session_state[PLACE] = key, (str(rollout), str(position))
    return row, position


def _select(group: int, rollout: int, position: int) -> None:
    urls.set_params(group=group, rollout=rollout, position=position, scope=None)


def _numbers(
    source: Source, seen: View, shown: list[Shown], pair: view.Chosen | None, compared: Pair | None, group: int | None
) -> None:
    """The tokens in view as a table and as a file."""
    where = "step" if group is None else "prompt"
    name = re.sub(r"\W+", "_", f"whatif {source.title} {where} {'' if group is None else group}").strip("_")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        wanted = st.toggle("Numbers as a table", **urls.bound("table", urls.flag_param("table")))
        _download(
            lambda: tables.token_frame(source, seen, shown, pair, compared, group),
            name, f"All tokens of this {where} (CSV)",
        )  # fmt: skip
    if wanted:
        frame = tables.token_frame(source, seen, shown, pair, compared, group)
        st.dataframe(frame, hide_index=True, width="stretch", height=min(460, 40 + 35 * len(frame)), key="whatif:table")


def _tables(shown: list[Shown], summaries: list[Summary], pairs: dict[view.Chosen, Pair]) -> None:
    """Advantage mass by polarity and by probability, and every pair of methods."""
    if pairs:
        frame = tables.pair_frame(shown, pairs, summaries)
        _heading("How alike the methods are here", HOW_PAIRS, lambda: frame, "whatif_pairs")
        st.html(tables.pair_table(frame, theme()))
    _heading("Where the advantage mass lies", HOW_MASS, lambda: tables.mass_frame(shown, summaries), "whatif_mass")
    st.html(tables.mass_table(shown, summaries, theme()))
    quarters = tables.quartile_table(shown, summaries, theme())
    if quarters:
        st.html(quarters)
    else:
        st.caption("The sampler's log-probs were not recorded, so tokens cannot be sorted by probability.")


def _prompts(source: Source, shown: list[Shown], summaries: list[Summary]) -> None:
    read, plain = tables.prompt_frame(source, shown, summaries)
    how = (
        "Each prompt's class, weight and share under every method; a class in brackets is only observed, the method "
        "weighs all prompts alike. The share is of the step's whole advantage mass."
    )
    _heading(f"What becomes of the {count(len(read), 'prompt')}", how, lambda: plain, "whatif_prompts")
    st.dataframe(read, hide_index=True, width="stretch", height=min(460, 40 + 35 * len(read)), key="whatif:prompts")


def _heading(title: str, how: str, frame: Callable[[], pd.DataFrame], name: str) -> None:
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.markdown(f"**{title}**", width="stretch")
        with st.container(horizontal=True, wrap=False, gap="small", width="content"):
            with st.popover("", type="tertiary", icon=":material/help:", help="How to read this"):
                st.markdown(how)
            _download(frame, name, "")


def _download(frame: Callable[[], pd.DataFrame], name: str, label: str) -> None:
    st.download_button(
        label, lambda: frame().to_csv(index=False).encode("utf-8", "replace"), file_name=f"{name}.csv", mime="text/csv",
        key=f"csv:{name}", type="tertiary", icon=":material/download:", on_click="ignore",
        help="Download these numbers",
    )  # fmt: skip


def _answer(source: Source, slot: Slot) -> Answer | str | None:
    """The method's answer to the whole batch, or why there is none; None where the slot has no method."""
    if slot.method is None or slot.spec is None:
        return None
    return _answered(source.key, slot.spec.text, source, slot.method)


@st.cache_resource(max_entries=8, show_spinner=False)
def _answered(key: str, text: str, _source: Source, _method: Method) -> Answer | str:
    refused = _source.refuse(_method)
    if refused:
        return refused
    try:
        return answer(_method, _source.batch, _source.polarity_by, _source.ratio)
    except AdvantageError as error:
        lacking = "proxy_logprob" in _method.needs and _source.batch.proxy_logprob is None
        return f"{error}{PROXY if lacking else ''}"


@st.cache_resource(max_entries=4, show_spinner=False)
def _view(key: str, group: int | None, _source: Source) -> View:
    return view_of(_source, group)


@st.cache_resource(max_entries=8, show_spinner=False)
def _cut(key: str, group: int | None, text: str, _answer: Answer, _view: View, _source: Source) -> Answer:
    return cut(_answer, _view, _source.ratio)


@st.cache_resource(max_entries=48, show_spinner=False)
def _summary(key: str, group: int | None, text: str, _answer: Answer, _view: View) -> Summary:
    return summarise(_answer, _view.batch)


@st.cache_resource(max_entries=12, show_spinner=False)
def _pair_of(key: str, group: int | None, first: str, second: str, _a: Answer, _b: Answer, _view: View) -> Pair:
    return compare(_b, _a, _view.batch)


if __name__ == "__main__":
    page()
