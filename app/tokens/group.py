"""One group of the Tokens page: its rollouts as a matrix of tokens, their text, and why a token got its advantage."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import data, downloads, presentation, urls, widgets
from app.guard import guarded
from app.history import history
from app.inert import inert_markdown, visible, visible_token
from app.kept import same_prompt
from app.theme import theme
from app.tokens import answers
from app.tokens.outcome import outcome
from app.tokens.replayed import Replayed, factor_names, reasons, replayed, selection
from app.tokens.steps import SPLITS, all_steps, nothing_yet, steps_by_split
from app.views import tokens as view
from app.views.tokens_component import token_view
from app.views.tokens_fields import Field, fields, legend, token_frame
from app.views.tokens_why import why
from app.words import NO_PROMPT, count, said
from core.runs import RunInfo
from core.store import Lab, fingerprint
from core.store.queries import tokens as query

HOW = """
Each row is one answer to the prompt, each cell one of its tokens. The badge says whether the answer was right (**+**,
round) or wrong (**−**, square); beside it the mean advantage of its tokens.

- **Teal** tokens were reinforced, **vermilion** ones suppressed; the stronger the colour, the larger the value. Zero
  is the page's background. All rows share one scale that spans the 2nd to the 98th percentile of this group.
- **moved as pushed?** shows which way the step's update took each token: with its advantage's sign, or (a cross)
  against it.
- An edge **above** a cell means plus, **below** it minus, so that the sign needs no colour; a thick edge lies beyond
  the scale. A diagonal stroke marks what is not recorded or not in the loss, a small corner a clipped token.
- Under the answer's text the same tokens as bars: push, probability, entropy and what the update did, each on its own
  scale.
- **Push** is advantage × (1 − p): a token that was certain anyway hardly moves, whatever its advantage.
- Click a cell or use the arrow keys; the address always holds the view, so *Copy link* shares it.
"""


def show(info: RunInfo, lab: Lab) -> None:
    """The view of one group, chosen by its split, step and prompt."""
    index = history(info, lab, query.group_index)
    steps = steps_by_split(lab, index, info.id, fingerprint([info.path]))
    tokens = bool(steps)
    if not tokens and data.ended(info):
        steps = all_steps(index)
    if not steps:
        nothing_yet(info)
        return
    above = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        split = widgets.choice("Rollouts", list(steps), param="split", format_func=SPLITS.__getitem__)
        with above:
            same_prompt(info, lab, split, steps[split])
        own = index[(index["split"] == split) & index["step"].isin(steps[split])]
        step = widgets.step_picker(steps[split], total=info.total, default=_telling_step(own))
    groups = query.group_list(lab, info.id, step, split)
    if groups.empty:
        widgets.empty_state(f"Step {step} is being written anew; look again in a moment.")
        return
    prompt_row = st.container(horizontal=True, vertical_alignment="bottom")  # the visits go below where it is narrow
    group = _group_picker(groups, prompt_row)
    if urls.param("prompt") not in (None, group["prompt_id"]):
        urls.set_params(rollout=None, position=None)  # another prompt: its own strongest token
    urls.set_params(step=step, group=group["group"], prompt=group["prompt_id"])
    with prompt_row:
        _visits(own, info, step, split, group, replays=tokens)
    if not data.ended(info):
        st.fragment(lambda: guarded(lambda: _newer(info, max(steps.get("train", [-1])))), run_every=EVERY_S)()
    if not tokens:
        answers.show(lab, info, step, split, group.to_dict())
        return
    st.fragment(lambda: guarded(lambda: _group(lab, info, step, split, group.to_dict())))()
    if split == "train":
        outcome(lab, info, step, groups)


EVERY_S = 5.0
"""Seconds between looks for newer steps of a run that is still writing."""


def _telling_step(index: pd.DataFrame) -> int | None:
    """The newest step with right and wrong answers to one prompt: elsewhere most advantages are 0."""
    mixed = index[(index["correct"] > 0) & (index["correct"] < index["n"])]
    return int(mixed["step"].max()) if len(mixed) else None


def _group_picker(groups: pd.DataFrame, row: DeltaGenerator) -> pd.Series:
    """Draws the choice of the group in the row and returns it. It is the one in the URL: the same prompt as before if
    this step has it, else the group's number, else the one with right and wrong answers most in balance."""
    numbers = groups["group"].astype(int).tolist()
    balance = (groups["correct"] / groups["n"] - 0.5).abs().to_numpy()
    wanted = urls.int_param("group", numbers[int(balance.argmin())])
    prompt = urls.param("prompt")
    same = groups.loc[groups["prompt_id"] == prompt, "group"].astype(int).tolist()
    if wanted not in numbers:
        if not same:
            st.warning(f"Group {wanted} is not in this step; this is its first one.")
        wanted = numbers[0]
    if same and wanted not in same:
        wanted = same[0]
    by_number = groups.set_index(groups["group"].astype(int))

    def label(number: int) -> str:
        row = by_number.loc[number]
        marks = "" if said(row["kept"]) else " · not trained"
        judged = "not judged"
        if pd.notna(row["correct"]):
            judged = f"{int(row['correct'])} right / {int(row['n'] - row['correct'])} wrong"
        return f"{visible((row['prompt'] or NO_PROMPT)[:60])} · {judged}{marks}"

    place = numbers.index(wanted)
    with row.container(
        horizontal=True, wrap=False, vertical_alignment="bottom", gap="small", key=f"{presentation.ROOMY}-prompt"
    ):
        _go_to("▲", numbers[max(place - 1, 0)], place == 0, "before", "Alt+Up")
        arguments = urls.bound("group", wanted)
        st.selectbox("Prompt", numbers, format_func=label, **{**arguments, "on_change": _pick_group, "args": ()})
        _go_to("▼", numbers[min(place + 1, len(numbers) - 1)], place == len(numbers) - 1, "after", "Alt+Down")
    return by_number.loc[wanted]


def _go_to(sign: str, group: int, disabled: bool, which: str, keys: str) -> None:
    """The button of the prompt before or after the chosen one, and its keys."""
    st.button(
        sign, key=f"group:{which}", disabled=disabled, help=f"The prompt {which} this one in the step ({keys})",
        shortcut=keys, on_click=_choose_group, args=(group,),
    )  # fmt: skip


def _pick_group() -> None:
    _choose_group(st.session_state["url:group"])


def _choose_group(group: int) -> None:
    urls.set_params(group=group, prompt=None, rollout=None, position=None)


def _visits(index: pd.DataFrame, info: RunInfo, step: int, split: str, group: pd.Series, *, replays: bool) -> None:
    """The other steps that met this prompt, one press away, and the other methods where they can be replayed.

    `index` is `group_index` of one split, the steps that are shown.
    """
    met = index[index["prompt_id"] == group["prompt_id"]].drop_duplicates("step", keep="last").astype({"step": int})
    before, after = met[met["step"] < step], met[met["step"] > step]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
        for label, rows, help_ in (("earlier", before.tail(1), "before"), ("later", after.head(1), "after")):
            if len(rows):
                row = rows.iloc[0]
                st.button(
                    f"{'◀ ' if label == 'earlier' else ''}step {row['step']}: {row['correct']}/{row['n']} right"
                    f"{' ▶' if label == 'later' else ''}",
                    key=f"visit:{label}", type="tertiary", help=f"This prompt when it was met {help_}",
                    on_click=urls.set_params, kwargs={"step": int(row["step"]), "group": None},
                )  # fmt: skip
        help_ = "Steps that have this prompt with tokens" if replays else "Steps that have this prompt"
        st.caption(f"met at {count(len(met), 'step')}", help=help_, width="content")
        if replays:
            widgets.what_if(run=info.id, step=step, split=split, group=int(group["group"]))


def _newer(info: RunInfo, newest: int) -> None:
    """Offers the newest step of a run that is still writing; the view itself never moves under its reader."""
    now = data.run(info.id)
    if now is None or now.step - 1 <= newest:
        st.caption("This run is still training; newer steps are offered here.")
    elif st.button(f"Step {now.step - 1} has arrived", icon=":material/update:", type="tertiary", key="tokens:newer"):
        urls.set_params(step=now.step - 1)
        st.rerun()


def _group(lab: Lab, info: RunInfo, step: int, split: str, group: dict) -> None:
    """The group's matrix, text and reasons; choosing a token redraws only this."""
    run, number, trained = info.id, int(group["group"]), split == "train"
    mark = fingerprint([info.path])
    found = replayed(lab, run, step, split, mark)
    rollouts, frame, factors = _tokens(lab, found, run, step, split, number, mark)
    if not len(frame) or not len(rollouts):
        widgets.empty_state("This group's tokens are not in the store: only some steps of this run kept theirs.")
        return
    sentence, strongest = view.verdict(frame, rollouts, trained)
    _say(sentence, strongest, group, trained, found)

    shown = fields(frame, factors)
    chosen, sort, texts = _choices(shown)
    ordered = view.row_order(rollouts, frame, sort)
    selected = _selected(ordered, strongest)
    own = frame[frame["rollout"] == selected[0]]
    row = ordered.set_index("rollout").loc[selected[0]]
    rows, reach, recorded = view.matrix_rows(ordered, frame, chosen, shown, trained, selected[0])
    updates = query.step_updates(lab, run, step) if trained else None
    token_view(
        view.payload(
            rows,
            legend(chosen, reach, recorded, theme()),
            shown,
            view.strips(frame, theme()),
            key=f"{run}/{split}/{step}/{number}",
            prompt=group["prompt"],
            texts=texts,
            selected=selected,
            why=why(
                own, correct=said(row["correct"]), factors=factors, trained=trained, updates=updates,
                reasons=reasons(found, number, selected[0], own), position=selected[1],
            ),
            theme=theme(),
        ),
        key="tokens:view",
        on_select=_select,
    )  # fmt: skip
    _tables(own, frame, shown, selected[0], f"tokens_{run}_{split}_step{step}_group{number}")


@st.cache_resource(max_entries=8, show_spinner=False)
def _tokens(
    _lab: Lab, _found: Replayed | str, run: str, step: int, split: str, group: int, mark: object
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """A group's rollouts, its `token_frame` and the names of its factors; read once for all choices of a token."""
    rollouts = query.group_rollouts(_lab, run, step, split, group)
    stored = query.group_tokens(_lab, run, step, split, group)
    factors = factor_names(_found, _lab, rollouts, stored)
    return rollouts, token_frame(stored, rollouts, factors, split == "train"), factors


def _choices(shown: list[Field]) -> tuple[Field, str, str]:
    """What the tokens are coloured by, how the rows are sorted, and whose texts are shown."""
    by_id = {field.id: field for field in shown}
    colour_place, sort_place, texts_place = st.columns([4, 3, 3])
    with colour_place:
        chosen = widgets.choice(
            "Colour tokens by", list(by_id), param="color", kind="select",
            format_func=lambda name: visible(by_id[name].label),
        )  # fmt: skip
    with sort_place:
        sort = widgets.choice("Sort rows by", list(view.SORTS), param="sort", kind="select")
    with texts_place:
        texts = widgets.choice(
            "Texts of", list(view.TEXTS), param="texts", format_func=view.TEXTS.__getitem__, kind="select"
        )
    return by_id[chosen], sort, texts


def _select(rollout: int, position: int) -> None:
    urls.set_params(rollout=rollout, position=position)


def _say(sentence: str, strongest: tuple[int, int] | None, group: dict, trained: bool, found: Replayed | str) -> None:
    if not trained:
        sentence += " Probes are not trained: these are the advantages that the method would give."
    elif not said(group["kept"]):
        sentence = view.untrained(sentence, selection(found, int(group["group"])))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        widgets.verdict(sentence, "warning" if trained and not said(group["kept"]) else "neutral")
        if strongest:
            st.button(
                "Strongest push", icon=":material/my_location:", type="tertiary", on_click=_select, args=strongest,
                help="Choose the token that this group pushes hardest",
            )  # fmt: skip
        widgets.how_to_read(HOW, "Help")
    if isinstance(found, str):
        st.warning(f"The reasons cannot be recomputed: {inert_markdown(found)}")


def _selected(ordered: pd.DataFrame, strongest: tuple[int, int] | None) -> tuple[int, int]:
    """(rollout, position) from the URL, or the strongest push, or the first token of the first row."""
    lengths = dict(zip(ordered["rollout"].astype(int), ordered["length"].astype(int), strict=True))
    default = strongest or (next(iter(lengths)), 0)
    rollout = urls.int_param("rollout", default[0])
    if rollout not in lengths:
        st.warning(f"Rollout {rollout} is not in this group, which has {len(lengths)}.")
        rollout = default[0]
    last = max(0, lengths[rollout] - 1)
    position = urls.int_param("position", default[1] if rollout == default[0] else 0)
    return rollout, min(max(position, 0), last)


def _tables(own: pd.DataFrame, frame: pd.DataFrame, shown: list[Field], rollout: int, name: str) -> None:
    """The same numbers as tables: the chosen rollout's here, the whole group's as a file."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        tables = st.toggle("Numbers as a table", **urls.bound("table", urls.flag_param("table")))
        table = frame.assign(token=[visible_token(token) for token in frame["token"]])
        downloads.menu(name, key="tokens:group", frame=table, label="All tokens of this group")
    if tables:
        st.dataframe(
            view.number_table(own, shown), hide_index=True, width="stretch", height=min(460, 40 + 35 * len(own)),
            key=f"tokens:table:{rollout}",
        )  # fmt: skip
