"""What if: what would another method have done with these very rollouts?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import board, data, rollouts, slot_cards, slots, urls, whatif_answers, widgets
from app import whatif_numbers as under
from app.guard import guarded
from app.inert import inert_markdown, visible
from app.kept import same_prompt
from app.slots import Slot
from app.theme import theme
from app.views import whatif as view
from app.views import whatif_words as words
from app.views.whatif_component import whatif_view
from app.views.whatif_pairs import shaped, telling_group
from app.views.whatif_source import Shown, Source, View
from app.whatif_links import is_it_real
from app.whatif_run import whole_run
from core.counterfactual import Answer, Pair
from core.runs import RunInfo

PLACE = "whatif:place"
"""Session state: the rollouts in view and the token that the address named among them."""
SEEN = "whatif:seen"
"""Session state: the rollouts that were in view last."""
SPLITS = {"train": "training", "probe": "probes", "eval": "held-out"}
SOURCES = {"run": "of a run", "board": "typed in by hand"}
SCOPES = {"group": "one prompt", "step": "the whole step", "run": "the whole run"}
STYLE = """<style>
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p { color: inherit; opacity: 0.9; }
[data-testid="stSliderThumbValue"], button[data-selected="true"] p, button kbd {
  color: TEXT !important; opacity: 1 !important;
}
@media (max-width: 1000px) {
  .st-key-whatif-answers [data-testid="stHorizontalBlock"]:has(> [data-testid="stColumn"]) { flex-wrap: wrap; }
  .st-key-whatif-answers [data-testid="stColumn"] { flex: 1 1 100%; }
}
</style>"""
"""Streamlit's captions and its teal on dark cards are too faint; on a narrow page the slots lie above the picture."""
HOW = """
Each method's advantages on the same tokens, on one scale: **teal** reinforces (edge above), **vermilion** suppresses
(edge below), a stroke means *not in the loss*. The last panel is the difference of two methods on a scale of its own:
**•** where a factor makes it, **×** where the sign flips. A method is compared with its base: what its weights add.

- Under the pictures the chosen answer: its tokens, and under each token one cell a method.
- **Explain** is the ledger of the chosen token: formula, its numbers, words.
- Advantage **mass** is the sum of loss weight × |advantage|: how much of the update a set of tokens gets.
- The address holds everything, parameters included: *Copy link* shares the view.
"""


def page() -> None:
    widgets.page_header("What would another method have done with these very rollouts?")
    st.html(STYLE.replace("TEXT", theme().text))
    kind_place, run_place, split_place = st.columns([3, 5, 2], vertical_alignment="bottom")
    with kind_place:
        kind = widgets.choice("Rollouts", list(SOURCES), param="source", format_func=SOURCES.__getitem__)
    if kind == "board":
        info, source = None, board.source(run_place)
        with split_place:
            widgets.how_to_read(HOW, "Help")
    else:
        info, source = _recorded(run_place, split_place)
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
    same_prompt(info, data.lab(info), split, found[split])
    telling = None if urls.param("step") else rollouts.telling_step(info, split, found[split], slots.lines())
    step = widgets.step_picker(found[split], total=info.total, default=telling)
    urls.set_params(step=step)  # a run may grow, the view stays
    return info, rollouts.source(info, step, split)


def _compare(source: Source, info: RunInfo | None) -> None:
    """The slots and what they give; every change of a slider redraws this and nothing else."""
    found = slots.read(source.own, source.defaults)
    answers = {slot.letter: whatif_answers.answer_of(source, slot) for slot in found}
    scope, group = _in_view(source, info, [one for one in answers.values() if isinstance(one, Answer)])
    with st.container(key="whatif-answers"):
        left, right = st.columns([3, 9], gap="medium")
    with left, st.container(key="whatif-slots", gap="small"):
        total = source.batch.total_steps
        slot_cards.cards(found, source.own, theme(), lambda slot: _refused(answers[slot.letter]), total)
    good = [slot for slot in found if isinstance(answers[slot.letter], Answer)]
    with right:
        if not good:
            widgets.empty_state("None of these methods can be computed here; their cards say why.")
        elif scope == "run" and info is not None:
            whole_run(info, source.own, good, urls.param("split") or "train", _pair(good))
        else:
            _results(source, info, group, good, answers)


def _in_view(source: Source, info: RunInfo | None, answers: Sequence[Answer]) -> tuple[str, int | None]:
    """(what to look at, the prompt if it is one); draws the pickers, but for the only prompt of a blackboard."""
    if info is None and len(source.batch.groups) == 1:
        return "group", int(source.batch.groups[0])
    scopes = [name for name in SCOPES if name != "run" or info is not None]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        scope = widgets.choice("Look at", scopes, param="scope", format_func=SCOPES.__getitem__)
        group = _group(source, answers) if scope == "group" else None
        if info is not None:
            widgets.how_to_read(HOW, "Help")
    return scope, group


def _refused(answered: Answer | str | None) -> str:
    return answered if isinstance(answered, str) else ""


def _group(source: Source, answers: Sequence[Answer]) -> int:
    """The group in the address, else the one on which the first two answers part most; draws the picker."""
    batch = source.batch
    counts = {
        int(group): (int(batch.correct[own].sum()), int(own.sum()))
        for group in batch.groups
        for own in [batch.group == group]
    }
    wanted = urls.int_param("group")
    if wanted not in counts:
        if wanted is not None and st.session_state.get(SEEN, source.key) == source.key:  # else it was of other rollouts
            st.warning(f"Group {wanted} is not among these rollouts; this is another.")
        wanted, _ = telling_group(answers[0], answers[min(1, len(answers) - 1)], batch) if answers else (min(counts), 0)
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
    places = combinations(range(len(good)), 2)
    names = {f"{good[a].letter}-{good[b].letter}": _turned(good, a, b) for a, b in places}
    if len(names) == 1:
        return next(iter(names.values()))
    labels = {name: f"{good[b].letter} − {good[a].letter}" for name, (a, b) in names.items()}
    return names[widgets.choice("Difference", list(names), param="diff", format_func=labels.__getitem__)]


def _turned(good: Sequence[Slot], a: int, b: int) -> view.Chosen:
    """(what is changed, what changes it): a method's base comes first, else the earlier slot."""
    first, second = good[a].method, good[b].method
    return (b, a) if first and second and shaped(first, second) else (a, b)


def _results(
    source: Source, info: RunInfo | None, group: int | None, good: list[Slot], answers: dict[str, Answer | str | None]
) -> None:
    """A group or a whole step: verdict, pictures, numbers."""
    seen = whatif_answers.view(source.key, group, source)
    shown = [
        Shown(
            slot.letter, slot.label, slot.spec.name, whole,
            whatif_answers.answer_in_view(source.key, group, slot.spec.text, whole, seen, source),
        )
        for slot in good
        if slot.spec is not None and isinstance(whole := answers[slot.letter], Answer)
    ]  # fmt: skip
    texts = [slot.spec.text for slot in good if slot.spec is not None]
    summaries = [
        whatif_answers.summary(source.key, group, text, one.answer, seen)
        for text, one in zip(texts, shown, strict=True)
    ]
    pairs = {
        (a, b): whatif_answers.pair_of(source.key, group, texts[a], texts[b], shown[a].answer, shown[b].answer, seen)
        for a, b in (_turned(good, *places) for places in combinations(range(len(shown)), 2))
    }
    pair = _pair(good)
    compared = pairs[pair] if pair else None
    if pair and compared:
        a, b = pair
        both = summaries[a], summaries[b]
        widgets.verdict(*words.verdict(shown[a], shown[b], compared, both, seen, whole=group is None))
    else:
        only = inert_markdown(shown[0].label)
        widgets.verdict(f"Only **{only}** can be computed on these rollouts; the other cards say why not.", "warning")
    st.caption(words.not_answered(source.own, source.note))
    is_it_real(info, good)
    drawn, key = view.drawn(seen, shown, group), f"{source.key}/{group}"
    notes = [words.panel_note(one, summary, group) for one, summary in zip(shown, summaries, strict=True)]
    whatif_view(
        view.payload(
            source, seen, shown, notes, theme(), pair=pair, compared=compared, key=key, group=group, drawn=drawn,
            selected=_selected(key, seen, group, shown, compared),
            mark=f"{key} {pair} {theme().dark} {' '.join(texts)}",
        ),
        key="whatif:view",
        on_select=_select,
    )  # fmt: skip
    if not drawn.all():
        st.caption(words.not_drawn(seen, drawn))
    under.numbers(source, seen, shown, pair, compared, group)
    under.alike(shown, summaries, pairs, whole=group is None)
    if group is None:
        under.prompts(source, shown, summaries)


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


if __name__ == "__main__":
    page()
