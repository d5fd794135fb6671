"""What every part of the Polarity page starts from: the run, the rollouts that count, the window of steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import streamlit as st

from app import downloads, urls, widgets
from app.history import history, token_steps
from app.views import polarity as view
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import polarity as query

EARLIER = "This run was recorded by an earlier version of the lab"
"""How the empty state of a column or table begins that older runs lack."""


@dataclass(frozen=True)
class Place:
    """A run with at least one step, and the rollouts to look at: those of training, or the probes."""

    info: RunInfo
    lab: Lab
    split: str
    answers: pd.DataFrame
    """`query.answers_by_step`."""

    @property
    def run(self) -> str:
        return self.info.id

    @property
    def trained(self) -> bool:
        return self.split == "train"

    @cached_property
    def steps(self) -> pd.DataFrame:
        """`polarity.by_step`: a row for each step and polarity."""
        return view.by_step(self.answers, history(self.info, self.lab, query.fields_by_step, self.split))

    @cached_property
    def signal(self) -> pd.DataFrame:
        """`polarity.signal_by_step`."""
        return view.signal_by_step(self.answers)

    @cached_property
    def numbers(self) -> list[int]:
        """The steps that there are, ascending."""
        return sorted(int(step) for step in self.answers["step"].unique())

    @cached_property
    def token_steps(self) -> list[int]:
        """Those whose tokens are there."""
        return sorted(token_steps(self.info, self.lab) & set(self.numbers))

    def window(self) -> tuple[int, int]:
        """The window of steps in the URL, by default the last tenth of the run; draws its slider."""
        steps = self.numbers
        return widgets.window_picker(steps, (steps[-min(len(steps), max(5, len(steps) // 10))], steps[-1]))

    def clickable(self, fig: object, *, key: str, how: str, frame: pd.DataFrame, step_at: str = "x") -> None:
        """A figure whose points open their step, token by token; `step_at` names where a point has its step."""

        def chosen() -> None:
            points = st.session_state[key].selection.points
            if points and self.token_steps:
                step = round(points[0][step_at])
                urls.set_params(part="step", step=min(self.token_steps, key=lambda there: abs(there - step)))

        widgets.chart(fig, key=key, how=how, frame=frame, on_select=chosen, selection_mode="points")

    def table(self, title: str, html: str, *, how: str, key: str, frame: pd.DataFrame | None = None) -> None:
        """A table of bars with its title, help and download; `title` is Markdown."""
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                st.markdown(title, width="content")
                with st.container(horizontal=True, gap="small", width="content"):
                    widgets.how_to_read(how, "Help")
                    if frame is not None:
                        downloads.menu(key, key=key, frame=frame)
            st.html(html)
