"""The blackboard: a group of rollouts typed in by hand, an example, or a batch file, all of it in the address.

`&example=NAME` is a ready group, `&b=…` what somebody typed. What is too large for an address stays in its session.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import actions, urls, widgets
from app.board_table import (
    MOST_BYTES,
    MOST_ROWS,
    MOST_TOKENS,
    BoardError,
    Filed,
    Row,
    Table,
    Typed,
    decode,
    drawable,
    encode,
    frame,
    of_batch,
    of_frame,
    read,
)
from app.inert import inert_markdown, visible
from app.views.whatif_source import Source
from app.words import count
from core.advantage import AdvantageError, Batch, Method, batch_from_json
from core.advantage.files import parse_json, refuse_lone_rollouts
from core.advantage.ranking import rollout_index
from core.counterfactual.examples import EXAMPLES, Example

FIRST = "one_right"
OWN = ""
"""What the picker of examples holds for a board of one's own."""
EMPTY = "empty"
"""What it holds for a table to start from."""
START = Table((Row(reward=1.0, length=5), Row(reward=0.0, length=5)))
"""That table: a right answer and a wrong one, the least that methods can compare."""
MOST_IN_ADDRESS = 8_000
"""Characters; a longer board is kept in the session, under its digest."""
FORGOTTEN: dict[str, Any] = {"group": None, "rollout": None, "position": None, "diff": None}
"""What was chosen on a board means nothing on the next one."""
CHOSEN = ("m", "scope", "group", "rollout", "diff")
"""An address with any of these says itself what to look at; a plain link to an example has none."""
HELD = "."
"""What such a digest begins with; no packed board does."""
SLOW = 20
"""Added rows after which the editor starts anew: it puts each of them in again whenever it is drawn."""
_HELD, _EDITING = "board:held", "board:editing"

HOW = """
Each row is one rollout: what it was rewarded with, how many tokens it has, and how probable each of them was.

- **prompt**: rollouts of one prompt form a group; leave it empty for the prompt of the row above.
- **token probabilities**: one a token (`0.9 0.5 0.1`), one number for all, or nothing; then they are made up.
- **length**: may stay empty where there is a probability or a word for each token. Change it alone, and they are cut
  or start again from the first.
- **truncated**: the length limit cut the answer off.
- More columns: **token entropies** in nats for methods that read them, and the **words** that stand for the tokens.

The address holds the whole board. A lab answers its own machine alone, unless it was started otherwise: elsewhere, open
what the link has from `/whatif` on in a lab there, or hand on BATCH.json, which `python -m core advantage` reads too.
"""


def source(picker: DeltaGenerator) -> Source | None:
    """Draw the blackboard's widgets, its examples into `picker`; None where something is missing or wrong, which has
    then been said.
    """
    text, example = _now()
    board = _decoded(text)
    also: dict[str, Any] = {}
    if example:
        _show(EXAMPLES[example])
        also = {} if urls.list_param("m") else {"m": EXAMPLES[example].methods}  # an edit leaves the example, not these
    with picker:
        _examples(example)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _open()
        place = st.empty()  # the download, once the board has been read
        if isinstance(board, Table):
            _limits(board, also)
        more = _more(board)
        widgets.how_to_read(HOW, "How to type")
    try:
        if isinstance(board, Table):
            _table(board, more, also)
        if example:  # under the table, which stays in its place when an edit makes it one's own
            st.caption(inert_markdown(EXAMPLES[example].look))
        typed, batch = _read(text)
    except (BoardError, AdvantageError) as error:
        st.error(inert_markdown(error), icon=":material/error:")
        return None
    if isinstance(board, Filed):
        _file(board, batch)
    for note in typed.notes:
        st.caption(inert_markdown(note))
    with place:
        _download(typed.data)
    title = EXAMPLES[example].title if example else board.name if isinstance(board, Filed) else "The blackboard"
    return Source(
        key="board/" + hashlib.sha256(text.encode()).hexdigest()[:16],
        title=title,
        batch=batch,
        rollout=rollout_index(batch),
        prompts=dict(zip(batch.groups.tolist(), typed.prompts, strict=True)),
        texts=typed.tokens.__getitem__,
        defaults=EXAMPLES[example].methods if example else (),
        refuse=lambda method: _refusal(method, batch, typed.lone),
    )


def _show(example: Example) -> None:
    """A plain link to an example opens on what it is about."""
    if not any(urls.param(name) for name in CHOSEN):
        urls.set_params(diff=example.diff, scope=example.scope)


def _refusal(method: Method, batch: Batch, lone: str) -> str:
    """Why a method that compares the rollouts of a prompt has no answer to one with a single rollout."""
    try:
        refuse_lone_rollouts(method, batch)
    except AdvantageError as error:
        return f"{lone}, but {method.label} compares the rollouts of a prompt: give it two." if lone else f"{error}."
    return ""


@st.cache_resource(max_entries=16, show_spinner=False)
def _decoded(text: str) -> Table | Filed:
    return decode(text)


@st.cache_resource(max_entries=16, show_spinner=False)
def _read(text: str) -> tuple[Typed, Batch]:
    """What a packed board holds. Raises BoardError or AdvantageError where it is no batch."""
    board = decode(text)
    if isinstance(board, Table):
        typed = read(board)
        return typed, batch_from_json(typed.data, board.correct_from)
    batch = drawable(batch_from_json(board.data, board.correct_from))
    tokens = [[f"t{t + 1}" for t in range(n)] for n in batch.length.tolist()]
    return Typed(board.data, [f"group {group}" for group in batch.groups], tokens, []), batch


def _now() -> tuple[str, str]:
    """(the packed board of the address, the name of its example or "")."""
    text = urls.param("b")
    if text:
        try:
            text = _fetched(text)
            _decoded(text)
            return text, OWN
        except BoardError as error:
            st.warning(inert_markdown(f"{error} This is an example instead."))
    name = urls.choice_param("example", list(EXAMPLES), FIRST)
    return _example(name), name


@st.cache_data(show_spinner=False)
def _example(name: str) -> str:
    return encode(of_batch(EXAMPLES[name].batch, EXAMPLES[name].prompts))


def _write(board: Table | Filed, **also: Any) -> None:
    """The board into the address, or into the session where it is too long for one, and further parameters."""
    text = encode(board)
    if len(text) > MOST_IN_ADDRESS:
        mark = HELD + hashlib.sha256(text.encode()).hexdigest()[:16]
        held = {**st.session_state.get(_HELD, {}), mark: text}
        st.session_state[_HELD] = dict(list(held.items())[-4:])
        text = mark
    urls.set_params(b=text, example=None, **also)


def _fetched(text: str) -> str:
    if not text.startswith(HELD):
        return text
    if text not in st.session_state.get(_HELD, {}):
        raise BoardError("This blackboard was too large for an address and stayed where it was made.")
    return st.session_state[_HELD][text]


def _examples(example: str) -> None:
    titles = {EMPTY: "Empty table", **{name: each.title for name, each in EXAMPLES.items()}}
    if not example:
        titles = {OWN: "Your own", **titles}
    key = "board:example"
    st.session_state[key] = example

    def write() -> None:
        name = st.session_state[key]
        if name == EMPTY:
            _write(START, **FORGOTTEN, scope=None, m=None)
        elif name:
            chosen = EXAMPLES[name]
            shown = {"m": chosen.methods, "scope": chosen.scope, "diff": chosen.diff}
            urls.set_params(**{**FORGOTTEN, **shown, "example": name, "b": None})

    st.selectbox("Example", list(titles), key=key, on_change=write, width=360, format_func=titles.__getitem__)


def _open() -> None:
    with st.popover("Open a file", icon=":material/upload:"):
        key = "board:file"
        size = f"{MOST_BYTES // 1_000_000} MB"

        def load() -> None:
            file = st.session_state[key]
            if file is not None:
                _load(file.getvalue(), file.name)

        st.file_uploader(
            "BATCH.json", type="json", key=key, on_change=load, max_upload_size=MOST_BYTES // 1_000_000,
            help=f"The keys of `python -m core advantage`; up to {size}.",
        )  # fmt: skip
        pasted = st.text_area("or paste it", key="board:paste", placeholder='{"group": [0, 0], "reward": [1, 0], …}')
        st.button("Use what was pasted", disabled=not pasted, on_click=lambda: _load(pasted.encode(), "pasted batch"))


def _load(content: bytes, name: str) -> None:
    """Callback: a batch file onto the board; a sentence at the top of the page where it is none."""
    try:
        if len(content) > MOST_BYTES:
            raise BoardError(f"it is larger than {MOST_BYTES // 1_000_000} MB")
        try:
            data = parse_json(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            words = str(error) if "twice" in str(error) else "it is not JSON"
            raise BoardError(words) from error
        drawable(batch_from_json(data))
    except (BoardError, AdvantageError) as error:
        actions.flash(inert_markdown(f"“{visible(name)[:80]}” cannot be used: {error}."), "bad")
        return
    _write(Filed(name[:80], data), **FORGOTTEN)


def _file(board: Filed, batch: Batch) -> None:
    """What stands in for the table where the batch came from a file."""
    groups, longest = count(len(batch.groups), "group"), count(int(batch.length.max()), "token")
    said = f"{count(len(batch.group), 'rollout')} in {groups} of up to {longest}, from “{inert_markdown(board.name)}”"
    kept = (urls.param("b") or "").startswith(HELD)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{said}{', too large for a link: it stays in this tab' if kept else ''}.")
        if len(batch.group) <= MOST_ROWS and batch.length.max() <= MOST_TOKENS:
            st.button(
                "Edit as a table", icon=":material/edit:", type="tertiary",
                help="Probabilities to 4 digits; other log-probs and the seed stay behind",
                on_click=lambda: _write(replace(of_batch(board.data), correct_from=board.correct_from)),
            )  # fmt: skip


def _more(board: Table | Filed) -> bool:
    """Whether the table shows its two further columns; draws the switch."""
    if isinstance(board, Filed):
        return False
    used = any(row.entropies or row.words for row in board.rows)
    return widgets.switch("More columns", param="more", default=used, help="The tokens' entropies, and words")


def _limits(table: Table, also: dict[str, Any]) -> None:
    """What holds for all rows, behind a button; `also` goes into the address with it."""
    limits = [
        ("Length limit (tokens)", "max_length", 1, 1, "Empty: the longest answer's length"),
        ("Correct from a reward of", "correct_from", None, 0.1, "A rollout with at least this reward is correct"),
        ("Step", "step", 0, 1, "Weights that change over the run read it"),
        ("of steps", "total_steps", 1, 10, "The run's length, for schedules that are a share of it"),
    ]
    with st.popover("Length limit, step", icon=":material/tune:"):
        for label, field, low, step, help_ in limits:
            key = f"board:{field}"
            st.session_state[key] = getattr(table, field)

            def write(field: str = field, key: str = key) -> None:
                _write(replace(table, **{field: st.session_state[key]}), **also)

            needed = field in ("correct_from", "step")
            st.number_input(
                label, low, value="min" if needed else None, step=step, key=key, on_change=write,
                help=help_, placeholder="not set", format="%g" if field == "correct_from" else "%d",
            )  # fmt: skip


def _table(table: Table, more: bool, also: dict[str, Any]) -> None:
    """The editor. An edit goes to the address, `also` with it, and the page is drawn anew from there.

    Raises BoardError for more than an address or a session holds.
    """
    rows = _edited(table.rows, more)
    if rows != table.rows:
        _write(replace(table, rows=rows), **also)
        st.rerun()


@dataclass(frozen=True)
class _Editing:
    """The editor now: `start` is what it was given, `last` what it gave back, `more` whether it has all columns."""

    version: int = 0
    start: tuple[Row, ...] = ()
    last: tuple[Row, ...] | None = None
    more: bool = False

    @property
    def key(self) -> str:
        return f"board:rows:{self.version}"


def _edited(rows: tuple[Row, ...], more: bool) -> tuple[Row, ...]:
    """The rows after the reader's edits. The editor keeps its own state for as long as the address holds what it last
    gave back; anything else there (a link, another example, the back button) starts it anew.
    """
    now: _Editing = st.session_state.get(_EDITING, _Editing())
    if rows != now.last or more != now.more or now.key not in st.session_state:
        now = _Editing(now.version + 1, rows, rows, more)
    added = len(st.session_state.get(now.key, {}).get("added_rows", ()))
    if added and len(now.start) + added > MOST_ROWS:  # the editor takes its time over each added row
        st.error(f"A table holds {MOST_ROWS} rows, so these {added} more were left out: open a batch file instead.")
        now, added = _Editing(now.version + 1, rows, rows, more), 0
    config = st.column_config
    edited = st.data_editor(
        frame(now.start), key=now.key, num_rows="dynamic", hide_index=True, width="stretch", placeholder="",
        column_order=["prompt", "reward", "length", "truncated", "probabilities"] + ["entropies", "words"] * more,
        column_config={
            "prompt": config.TextColumn("prompt", max_chars=200, width=120, help="Empty: as in the row above"),
            "reward": config.NumberColumn("reward", format="%g", width=60),
            "length": config.NumberColumn("length", step=1, width=60, help="In tokens"),
            "truncated": config.CheckboxColumn("truncated", default=False, width=76),
            "probabilities": config.TextColumn("token probabilities", width=180, help="`0.9 0.5`, or one for all"),
            "entropies": config.TextColumn("token entropies", width=100, help="In nats"),
            "words": config.TextColumn("words", width=110, help="A word a token"),
        },
    )  # fmt: skip
    found = of_frame(edited)
    st.session_state[_EDITING] = replace(now, last=None if added > SLOW else found)
    return found


def _download(data: dict[str, Any]) -> None:
    st.download_button(
        "BATCH.json", lambda: json.dumps(data).encode(), file_name="BATCH.json", mime="application/json",
        key="board:download", icon=":material/download:", on_click="ignore",
        help="The board as a file, for “Open a file” in another lab and for `python -m core advantage`. A link opens "
        "where this lab runs: “How to type” says how others get there.",
    )  # fmt: skip
