"""What the methods of the What-if page answer, kept from one change of a slider to the next."""

from __future__ import annotations

import streamlit as st

from app.slots import Slot
from app.views.whatif_source import Source, View, cut, view_of
from core.advantage import AdvantageError, Method
from core.counterfactual import Answer, Pair, Summary, answer, compare, summarise

PROXY = ". A run records it where its config says record.proxy_min_p."


def answer_of(source: Source, slot: Slot) -> Answer | str | None:
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
def view(key: str, group: int | None, _source: Source) -> View:
    """The rollouts in view; `key` is the source's."""
    return view_of(_source, group)


@st.cache_resource(max_entries=8, show_spinner=False)
def answer_in_view(key: str, group: int | None, text: str, _answer: Answer, _view: View, _source: Source) -> Answer:
    """A method's answer, cut to the rollouts in view; `text` is its spec's."""
    return cut(_answer, _view, _source.ratio)


@st.cache_resource(max_entries=48, show_spinner=False)
def summary(key: str, group: int | None, text: str, _answer: Answer, _view: View) -> Summary:
    """The numbers of such an answer."""
    return summarise(_answer, _view.batch)


@st.cache_resource(max_entries=12, show_spinner=False)
def pair_of(key: str, group: int | None, first: str, second: str, _a: Answer, _b: Answer, _view: View) -> Pair:
    """The second method beside the first, in view."""
    return compare(_b, _a, _view.batch)
