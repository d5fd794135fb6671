"""What Find found: a page of hits as a table, how many there are, the other pages, and all of them as a file."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from app import downloads, urls, widgets
from app.inert import inert_markdown, visible, visible_token
from app.theme import theme
from app.tokens.steps import SPLITS
from app.views import tokens_find as view
from app.views.tokens_fields import FIELDS, NOT_RECORDED
from app.words import count, number, share
from core.runs import RunInfo
from core.store import Lab, fingerprint
from core.store.queries import find as query
from core.store.queries.find import Text, Where
from core.store.schema import STRINGS_KEPT

PAGE, MOST, AROUND = 50, 5000, 8
"""Hits a page, hits in a download, and tokens shown on each side of a token."""

SAID = {
    "longest": "{n} by length, the longest first.",
    "repeats": f"{{n}} in which at least {share(query.REPEATED)} of all runs of four tokens had occurred before in the "
    "same answer.",
    "same": "{n} that several answers of one group share, word for word.",
    "truncated": "{n} cut off by the length limit before an end, the longest first.",
    "lucky": "{n} with a right result that rests on a wrong step: right by luck.",
    "suppressed": "{n}, right, whose base advantage is negative: the update made them less likely.",
    "reinforced": "{n}, wrong, whose base advantage is positive: the update made them more likely.",
}
"""What was found, where something was."""
PER_TOKEN = "This run's base rule gives every token its own advantage, so that an answer has no single one."
MISSING = {
    "repeats": "This run was recorded by an earlier version of the lab, which did not count repeats.",
    "lucky": "This task's verifier cannot tell: it looks at the result alone, not at the steps (no trait `lucky`).",
    "suppressed": PER_TOKEN,
    "reinforced": PER_TOKEN,
}


@dataclass(frozen=True)
class Search:
    """Where is searched, and which page of hits is shown (from 0)."""

    info: RunInfo
    lab: Lab
    where: Where
    page: int

    @property
    def offset(self) -> int:
        return self.page * PAGE

    @property
    def mark(self) -> Hashable:
        """What changes when the run has a new step."""
        return fingerprint([self.info.path])

    @property
    def window(self) -> str:
        """`steps 3 to 9 (training, right answers)`."""
        where = self.where
        steps = f"step {where.first}" if where.first == where.last else f"steps {where.first} to {where.last}"
        side = {1: ", right answers", -1: ", wrong answers"}.get(where.polarity, "")
        return f"{steps} ({SPLITS[where.split]}{side})"

    def link(self, **place: int) -> str:
        """The address of a rollout or token of this split."""
        return urls.href("tokens", run=self.info.id, split=self.where.split, **place)


def text(search: Search, wanted: Text) -> None:
    """Answers that hold a text. Raises StoreError for a regular expression that cannot be read."""
    query.check(search.lab, wanted)
    hits, total = _by_text(search.lab, search.where, wanted, search.offset, search.mark)
    if _beyond(search, hits):
        return
    said = f"{'the pattern ' if wanted.regex else ''}“{inert_markdown(wanted.text)}”"
    if not total:
        widgets.empty_state(f"No answer of {search.window} holds {said}.")
        return
    hold = "holds" if total == 1 else "hold"
    st.markdown(f"**{count(total, 'answer')}** of {search.window} {hold} {said}, the newest first.")
    rows = query.details(search.lab, search.where, hits)
    spans = query.spans(search.lab, wanted, rows["text"].tolist())
    rows = rows.assign(start=[start for start, _ in spans], end=[end for _, end in spans], note="")
    rows["position"] = _positions(search, rows)
    _rollouts(search, rows, total, lambda: query.by_text(search.lab, search.where, wanted, MOST)[0])


def ready(search: Search, find: str) -> None:
    """Answers of one of the ready finds, or what several answers of a group share."""
    hits, total = _by_find(search.lab, search.where, find, search.offset, search.mark)
    if _beyond(search, hits):
        return
    if not total:
        known = find not in MISSING or query.recorded(search.lab, search.where, find)
        widgets.empty_state(f"There is nothing of the kind in {search.window}: 0 hits." if known else MISSING[find])
        return
    one, several = ("text", "texts") if find == "same" else ("answer", "answers")
    st.markdown(f"In {search.window}: " + SAID[find].format(n=f"**{count(total, one, several)}**"))
    rows = query.details(search.lab, search.where, hits).assign(start=0, end=0, position=np.nan)
    rows["note"] = [_note(row, find) for row in rows.itertuples()]
    _rollouts(search, rows, total, lambda: _ask(search.lab, search.where, find, MOST, 0)[0])


def tokens(search: Search, field: str, largest: bool, token: int | None) -> None:
    """The tokens with the most extreme values of a field; with `token`, of that token of the vocabulary alone."""
    hits, total = _extremes(search.lab, search.where, field, largest, token, search.offset, search.mark)
    if _beyond(search, hits):
        return
    about = next(one for one in FIELDS if one.id == field)
    if not total:
        why = NOT_RECORDED.get(field, "the tokens of these steps were not kept, or none has a value")
        widgets.empty_state(f"No token of {search.window} has a value of {about.label}: {why}.")
        return
    which = "" if token is None else f" “{inert_markdown(visible_token(hits['token'].iloc[0]))}”"
    end = "largest" if largest else "smallest"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        words = f"The tokens{which} with the {end} {about.label}, of the **{count(total, 'token')}** kept in"
        st.markdown(f"{words} {search.window}.", width="content")
        if token is not None:
            st.button("Every token", key="find:every", type="tertiary", icon=":material/close:",
                      on_click=urls.set_params, kwargs={"token": None})  # fmt: skip
    rows = view.around(hits, query.tokens_of(search.lab, search.where, hits, AROUND))
    st.html(view.token_table(rows, about, theme(), search.link))

    def every() -> pd.DataFrame:
        full = query.extremes(search.lab, search.where, field, largest, MOST, 0, token)
        return _readable(full, "token").rename(columns={"value": field})

    _foot(search, total, every, "tokens")


def strings(search: Search, reinforced: bool) -> None:
    """The token strings that were pushed up, or down, most."""
    hits, total, sums = _by_string(search.lab, search.where, reinforced, search.offset, search.mark)
    if _beyond(search, hits):
        return
    word = "reinforced" if reinforced else "suppressed"
    if not sums["rows"] and sums["tokens"]:
        widgets.empty_state(
            "This run was recorded by an earlier version of the lab, which did not add up its token strings. "
            "**Extreme tokens** reads the tokens themselves."
        )
        return
    if not total:
        widgets.empty_state(f"No token string of {search.window} was {word}: 0 hits.")
        return
    than, together = ("more", sums["up"]) if reinforced else ("less", sums["down"])
    st.markdown(
        f"**{count(total, 'token string')}** whose pushes over {search.window} add up to {than} than 0, "
        f"the most {word} first; together {number(together, signed=True)}."
    )
    link = partial(
        search.link, view="find", find="tokens", extreme="push", end="largest" if reinforced else "smallest",
        steps=[search.where.first, search.where.last], answers=urls.param("answers"),
    )  # fmt: skip
    st.html(view.string_table(hits, sums["tokens"], theme(), lambda token: link(token=token)))
    st.caption(
        f"Sums and means over {search.window}. Of each step and polarity the {count(STRINGS_KEPT, 'string')} with the "
        "largest push are kept, so rare ones can be missing; the share is of all tokens sampled."
    )

    def every() -> pd.DataFrame:
        return _readable(query.strings(search.lab, search.where, reinforced, MOST)[0], "token")

    _foot(search, total, every, "strings")


def _rollouts(search: Search, rows: pd.DataFrame, total: int, hits: Callable[[], pd.DataFrame]) -> None:
    st.html(view.rollout_table(rows, theme(), search.link))
    _foot(
        search, total, lambda: _readable(query.details(search.lab, search.where, hits()), "text", "prompt"), "answers"
    )


def _foot(search: Search, total: int, every: Callable[[], pd.DataFrame], name: str) -> None:
    """Which hits these are, the other pages, and all of them as a file."""
    last = min(total, search.offset + PAGE)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button("◀", key="find:back", disabled=search.page == 0, help="The hits before",
                  on_click=urls.set_params, kwargs={"hits": search.page or None})  # fmt: skip
        shown = f"{search.offset + 1:,} to {last:,} of {total:,}".replace(",", "\u202f")
        st.markdown(shown, width="content")
        st.button("▶", key="find:next", disabled=last >= total, help="The next hits",
                  on_click=urls.set_params, kwargs={"hits": search.page + 2})  # fmt: skip
        all_ = "All" if total <= MOST else f"The first {MOST:,} of".replace(",", "\u202f")
        downloads.menu(f"found {name}", key="find", frame=every, label=f"{all_} {count(total, 'hit')}")


def _beyond(search: Search, hits: pd.DataFrame) -> bool:
    """Whether the address asks for a page after the last hit; says so then."""
    if len(hits) or not search.page:
        return False
    st.warning(f"There is no page {search.page + 1} of these hits.")
    st.button("The first page", key="find:first", on_click=urls.set_params, kwargs={"hits": None})
    return True


def _positions(search: Search, rows: pd.DataFrame) -> list[float]:
    """The token at which each match begins; NaN where the tokens were not kept."""
    kept = query.tokens_of(search.lab, search.where, rows)
    own = {key: part["token"].tolist() for key, part in kept.groupby(["step", "group", "rollout"])}
    places = (
        view.position_of(row.start, row.text, own.get((row.step, row.group, row.rollout), ()))
        for row in rows.itertuples()
    )
    return [np.nan if place is None else float(place) for place in places]


def _note(row: object, find: str) -> str:
    if find == "same":
        return f"{row.times} of {row.n} answers are this text"
    return f"{share(row.repeated)} repeated" if find == "repeats" else ""


def _readable(full: pd.DataFrame, *texts: str) -> pd.DataFrame:
    """A copy for a file, with what cannot be seen in its texts made visible."""
    return full.assign(**{name: [visible(one) for one in full[name]] for name in texts})


def _ask(lab: Lab, where: Where, find: str, limit: int, offset: int) -> tuple[pd.DataFrame, int]:
    ask = query.same_answers if find == "same" else partial(query.by_find, find=find)
    return ask(lab, where, limit=limit, offset=offset)


@st.cache_data(max_entries=64, show_spinner="Searching the answers …")
def _by_text(_lab: Lab, where: Where, wanted: Text, offset: int, mark: Hashable) -> tuple[pd.DataFrame, int]:
    return query.by_text(_lab, where, wanted, PAGE, offset)


@st.cache_data(max_entries=64, show_spinner="Looking through the answers …")
def _by_find(_lab: Lab, where: Where, find: str, offset: int, mark: Hashable) -> tuple[pd.DataFrame, int]:
    return _ask(_lab, where, find, PAGE, offset)


@st.cache_data(max_entries=64, show_spinner="Reading every token of these steps …")
def _extremes(
    _lab: Lab, where: Where, field: str, largest: bool, token: int | None, offset: int, mark: Hashable
) -> tuple[pd.DataFrame, int]:
    hits = query.extremes(_lab, where, field, largest, PAGE, offset, token)
    return hits, query.with_value(_lab, where, field, token)


@st.cache_data(max_entries=64, show_spinner="Adding up the token strings …")
def _by_string(
    _lab: Lab, where: Where, reinforced: bool, offset: int, mark: Hashable
) -> tuple[pd.DataFrame, int, dict[str, float]]:
    hits, total = query.strings(_lab, where, reinforced, PAGE, offset)
    return hits, total, query.pushes(_lab, where)
