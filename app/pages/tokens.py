"""Tokens: which tokens got the advantage, and why?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import data, urls, widgets
from app.guard import guarded
from app.history import history
from app.inert import inert_markdown, visible, visible_token
from app.theme import theme
from app.views import tokens as view
from app.views.tokens_component import token_view
from app.views.tokens_why import Reasons, why
from app.words import count
from core.advantage.rules import SELECTED
from core.config import ConfigError
from core.runs import RunInfo
from core.store import Lab, Replay, StoreError, fingerprint, replay
from core.store.queries import tokens as query

HOW = """
Each row is one answer to the prompt, each cell one of its tokens. The badge says whether the answer was right (**+**,
round) or wrong (**−**, square); beside it the mean advantage of its tokens.

- **Teal** tokens were reinforced, **vermilion** ones suppressed; the stronger the colour, the larger the value. Zero
  is the page's background. All rows share one scale that spans the 2nd to the 98th percentile of this group.
- An edge **above** a cell means plus, **below** it minus, so that the sign needs no colour; a thick edge lies beyond
  the scale. A diagonal stroke marks what is not recorded or not in the loss, a small corner a clipped token.
- Under the answer's text the same tokens as bars: push, probability, entropy and what the update did, each on its own
  scale.
- **Push** is advantage × (1 − p): a token that was certain anyway hardly moves, whatever its advantage.
- Click a cell or use the arrow keys; the address always holds the view, so *Copy link* shares it.
"""


def page() -> None:
    widgets.page_header("Which tokens got the advantage, and why?")
    pick, split_place = st.columns([3, 1], vertical_alignment="bottom")
    with pick:
        info = widgets.run_picker()
    if info is None:
        return
    lab = data.lab(info)
    index = history(info, lab, query.group_index)
    steps = _steps(lab, index, info.id, fingerprint([info.path]))
    if not steps:
        _nothing_yet(info)
        return
    with split_place:
        split = widgets.choice("Rollouts", list(steps), param="split", format_func=SPLITS.__getitem__)
    step_place, prompt_place = st.columns([3, 2], vertical_alignment="bottom")
    with step_place:
        step = widgets.step_picker(steps[split], total=info.total, default=_telling_step(index, split))
    groups = query.group_list(lab, info.id, step, split)
    if groups.empty:
        widgets.empty_state(f"Step {step} is being written anew; look again in a moment.")
        return
    with prompt_place:
        group = _group_picker(groups)
    if urls.param("prompt") not in (None, group["prompt_id"]):
        urls.set_params(rollout=None, position=None)  # another prompt: its own strongest token
    urls.set_params(step=step, group=group["group"], prompt=group["prompt_id"])
    _visits(index[index["split"] == split], info, step, split, group)
    if not data.ended(info):
        st.fragment(lambda: guarded(lambda: _newer(info, max(steps.get("train", [-1])))), run_every=EVERY_S)()
    st.fragment(lambda: guarded(lambda: _group(lab, info, step, split, group.to_dict())))()


SPLITS = {"train": "training", "probe": "probes"}
EVERY_S = 5.0
"""Seconds between looks for newer steps of a run that is still writing."""


@st.cache_data(max_entries=64, show_spinner=False)
def _steps(_lab: Lab, _index: pd.DataFrame, run: str, mark: object) -> dict[str, list[int]]:
    """Steps with tokens by split, training first; splits without any are left out."""
    there = query.steps_with_tokens(_lab, run)
    found = {split: _index.loc[_index["split"] == split, "step"].unique().tolist() for split in SPLITS}
    found = {split: [step for step in steps if step in there] for split, steps in found.items()}
    return {split: steps for split, steps in found.items() if steps}


@st.cache_resource(max_entries=24, show_spinner=False)
def _replay(_lab: Lab, run: str, step: int, split: str, mark: object) -> Replay | str:
    """The step's advantages recomputed, or the sentence that says why they cannot be."""
    try:
        return replay(_lab, run, step, split)
    except (StoreError, ConfigError) as error:
        return str(error)


def _telling_step(index: pd.DataFrame, split: str) -> int | None:
    """The newest step with right and wrong answers to one prompt: elsewhere most advantages are 0."""
    mixed = index[(index["split"] == split) & (index["correct"] > 0) & (index["correct"] < index["n"])]
    return int(mixed["step"].max()) if len(mixed) else None


def _nothing_yet(info: RunInfo) -> None:
    if info.state in ("queued", "loading", "running", "stopping"):
        sentence = f"This run is {info.state} and has no step yet. Its tokens appear here with its first step."
    elif info.step:
        sentence = "This run's steps hold no tokens: they were left out when it was shared, or never recorded."
    else:
        sentence = (
            f"This run {'failed' if info.state == 'failed' else 'ended'} before its first step: there are no tokens."
        )
    widgets.empty_state(
        sentence, "live", "See what it is doing" if not data.ended(info) else "See its log", run=info.id
    )


def _group_picker(groups: pd.DataFrame) -> pd.Series:
    """The group in the URL: the same prompt as before if this step has it, else the group's number, else the one with
    right and wrong answers most in balance."""
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
        marks = "" if row["kept"] else " · not trained"
        right, wrong = int(row["correct"]), int(row["n"] - row["correct"])
        return f"{visible(row['prompt'][:60])} · {right} right / {wrong} wrong{marks}"

    arguments = urls.bound("group", wanted)
    st.selectbox("Prompt", numbers, format_func=label, **{**arguments, "on_change": _pick_group, "args": ()})
    return by_number.loc[wanted]


def _pick_group() -> None:
    urls.set_params(group=st.session_state["url:group"], prompt=None, rollout=None, position=None)


def _visits(index: pd.DataFrame, info: RunInfo, step: int, split: str, group: pd.Series) -> None:
    """The other steps that met this prompt, one press away, and the other methods. `index` is `group_index` of one
    split.
    """
    met = index[index["prompt_id"] == group["prompt_id"]].drop_duplicates("step", keep="last").astype({"step": int})
    before, after = met[met["step"] < step], met[met["step"] > step]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for label, rows, help_ in (("earlier", before.tail(1), "before"), ("later", after.head(1), "after")):
            if len(rows):
                row = rows.iloc[0]
                st.button(
                    f"{'◀ ' if label == 'earlier' else ''}step {row['step']}: {row['correct']}/{row['n']} right"
                    f"{' ▶' if label == 'later' else ''}",
                    key=f"visit:{label}", type="tertiary", help=f"This prompt when it was met {help_}",
                    on_click=urls.set_params, kwargs={"step": int(row["step"]), "group": None},
                )  # fmt: skip
        st.caption(f"This prompt was met at {count(len(met), 'step')} of the run.")
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
    rollouts = query.group_rollouts(lab, run, step, split, number)
    stored = query.group_tokens(lab, run, step, split, number)
    if not len(stored) or not len(rollouts):
        widgets.empty_state("This group's tokens are not in the store: only some steps of this run kept theirs.")
        return
    done = _replay(lab, run, step, split, fingerprint([info.path]))
    factors = _factors(lab, rollouts, stored, done)
    frame = view.token_frame(stored, rollouts, factors)
    sentence, strongest = view.verdict(frame, rollouts, trained)
    _say(sentence, strongest, group, trained, done)

    shown = view.fields(frame, factors)
    by_id = {field.id: field for field in shown}
    colour_place, sort_place, help_place = st.columns([7, 2, 1], vertical_alignment="bottom")
    with colour_place:
        chosen = by_id[_colour({field.id: field.label for field in shown})]
    with sort_place:
        sort = widgets.choice("Sort rows by", list(view.SORTS), param="sort", kind="select")
    with help_place:
        widgets.how_to_read(HOW, "Help")

    ordered = view.row_order(rollouts, frame, sort)
    selected = _selected(ordered, strongest)
    own = frame[frame["rollout"] == selected[0]]
    row = ordered.set_index("rollout").loc[selected[0]]
    rows, reach, recorded = view.matrix_rows(ordered, frame, chosen, shown, trained, selected[0])
    reasons = _reasons(done, number, selected[0])
    updates = query.step_updates(lab, run, step) if trained else None
    token_view(
        view.payload(
            rows,
            view.legend(chosen, reach, recorded, theme()),
            shown,
            view.strips(frame, theme()),
            key=f"{run}/{split}/{step}/{number}",
            prompt=group["prompt"],
            selected=selected,
            why=why(
                own, correct=bool(row["correct"]), factors=factors, trained=trained, updates=updates, reasons=reasons,
                position=selected[1],
            ),
            theme=theme(),
        ),
        key="tokens:view",
        on_select=_select,
    )  # fmt: skip
    _tables(own, frame, shown, selected[0], f"tokens_{run}_{split}_step{step}_group{number}")


def _colour(labels: dict[str, str]) -> str:
    now = urls.choice_param("color", list(labels), "advantage")
    picked = st.pills(
        "Colour tokens by", list(labels), format_func=lambda key: inert_markdown(labels[key]), required=True, wrap=True,
        **urls.bound("color", now),
    )  # fmt: skip
    return picked or now


def _select(rollout: int, position: int) -> None:
    urls.set_params(rollout=rollout, position=position)


def _say(sentence: str, strongest: tuple[int, int] | None, group: dict, trained: bool, done: Replay | str) -> None:
    if not trained:
        sentence += " Probes are not trained: these are the advantages that the method would give."
    elif not group["kept"]:
        sentence = view.untrained(sentence, _selection(done, int(group["group"])))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        widgets.verdict(sentence, "warning" if trained and not group["kept"] else "neutral")
        if strongest:
            st.button(
                "Strongest push", icon=":material/my_location:", type="tertiary", on_click=_select, args=strongest,
                help="Choose the token that this group pushes hardest",
            )  # fmt: skip
    if isinstance(done, str):
        st.warning(f"The reasons cannot be recomputed: {inert_markdown(done)}")


def _selection(done: Replay | str, group: int) -> str | None:
    """Why the method keeps nothing of a group: the words of its factor `selected` for the group's first rollout."""
    if isinstance(done, str):
        return None
    row = next((i for (own, _), i in sorted(done.row.items()) if own == group), None)
    factor = next((factor for factor in done.trace.factors if factor.id == SELECTED), None)
    return None if row is None or factor is None else factor.explain(row, 0)


def _factors(lab: Lab, rollouts: pd.DataFrame, tokens: pd.DataFrame, done: Replay | str) -> list[str]:
    """The method's factors in its own order, or the store's columns where they cannot be recomputed."""
    if not isinstance(done, str):
        return [factor.id for factor in done.trace.factors]
    names = [*lab.factors("rollouts"), *lab.factors("tokens")]
    return [
        name[2:] for name in names if any(name in frame and frame[name].notna().any() for frame in (rollouts, tokens))
    ]


def _reasons(done: Replay | str, group: int, rollout: int) -> Reasons | None:
    if isinstance(done, str) or (group, rollout) not in done.row:
        return None
    i = done.row[group, rollout]
    return Reasons(
        base=lambda t: done.trace.explain_base(i, t),
        factors={factor.id: lambda t, factor=factor: factor.explain(i, t) for factor in done.trace.factors},
        penalty=(lambda t: done.trace.penalty.explain(i, t)) if done.trace.penalty else None,
    )


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


def _tables(own: pd.DataFrame, frame: pd.DataFrame, shown: list[view.Field], rollout: int, name: str) -> None:
    """The same numbers as tables: the chosen rollout's here, the whole group's as a file."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        tables = st.toggle("Numbers as a table", **urls.bound("table", urls.flag_param("table")))
        csv = frame.assign(token=[visible_token(token) for token in frame["token"]])
        widgets.download_csv(csv, name, key="tokens:group", label="All tokens of this group (CSV)")
    if tables:
        st.dataframe(
            view.number_table(own, shown), hide_index=True, width="stretch", height=min(460, 40 + 35 * len(own)),
            key=f"tokens:table:{rollout}",
        )  # fmt: skip


if __name__ == "__main__":
    page()
