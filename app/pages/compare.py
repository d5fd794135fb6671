"""Compare: is this method better than that one, or is it luck?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from app import data, progress, widgets
from app.compare import answer, choose, settings, side
from app.history import history
from app.theme import theme
from app.views import families, families_diff
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import compare as queries


def page() -> None:
    widgets.page_header("Is this method better than that one, or is it luck?")
    infos = choose.runs()
    if not infos:
        return
    progress.follow(infos)
    lab = data.lab(infos)
    metrics, evals = (_of_all(infos, lab, query) for query in (queries.metrics, queries.evals))
    infos = choose.begun(infos, {*metrics["run"], *evals["run"]})
    if not infos:
        return
    shown = families.families(infos, theme().dark)
    exam = functools.cache(functools.partial(queries.exam, lab))
    last = evals.groupby("run")["step"].max()
    asked = {run: exam(run, int(step))["prompt_id"].tolist() for run, step in last.items()}
    if reasons := families_diff.unlike(shown, asked):
        st.warning(
            "These runs do not answer the same question, so a difference can come from this alone:\n\n"
            + "\n".join(f"- {reason}" for reason in reasons),
            icon=":material/warning:",
        )
    view = answer.choose(shown, families.judged(shown), metrics, evals)
    base = answer.base_of(shown) if len(shown) > 1 else None
    answer.show(view, exam, base)
    answer.small(view)
    side.show(lab, shown, base)
    if base is not None:
        settings.show(shown, base)


def _of_all(infos: Sequence[RunInfo], lab: Lab, query: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """The rows of one whole-run query over all these runs."""
    return pd.concat([history(info, lab, query) for info in infos], ignore_index=True)


if __name__ == "__main__":
    page()
