"""A group's answers as texts, where there are no tokens. Pure: a frame in, HTML out; all of the text is untrusted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from app.inert import inert_html
from app.palette import Theme, rgba
from app.views.samples import MONO, badge, edges, plain
from app.words import count, length, number, said

MOST = 4000
"""Characters of an answer that are shown."""
STRONGEST = 0.22
"""How much of the colour lies under the answer that the group pushes hardest."""
HEAD = (("", "left"), ("answer", "left"), ("length", "right"), ("reward", "right"), ("advantage", "right"))


def verdict(rollouts: pd.DataFrame, imported: bool) -> str:
    """What the group taught, in a sentence made of its numbers."""
    right = int(rollouts["correct"].fillna(False).sum())
    counts = f"{right} right, {len(rollouts) - right} wrong" if rollouts["correct"].notna().all() else "Not judged"
    advantage = rollouts["base_advantage"]
    if advantage.isna().all():
        return f"{counts}. No advantages are known."
    if not advantage.fillna(0).any():
        same = rollouts["reward"].nunique() == 1
        why = f": all {len(rollouts)} answers have reward {number(rollouts['reward'].iloc[0])}" if same else ""
        return f"{counts}. No signal{why}, so no answer has an advantage."
    low, high = number(advantage.min(), signed=True), number(advantage.max(), signed=True)
    shaped = "the same for every token of an answer" if imported else "before the method shaped those of single tokens"
    return f"{counts}. Advantages reach from {low} to {high}, {shaped}."


def table(rollouts: pd.DataFrame, theme: Theme, selected: int | None) -> str:
    """Rows of `queries.tokens.group_rollouts`, on a ground of their advantage's colour; `selected` has a frame."""
    reach = rollouts["base_advantage"].abs().max()
    return plain(HEAD, "".join(_row(row, theme, reach, selected) for row in rollouts.itertuples()), theme)


def _row(row, theme: Theme, reach: float, selected: int | None) -> str:
    edge, figures = edges(theme)
    advantage = row.base_advantage
    ground = ""
    if pd.notna(advantage) and advantage and reach > 0:
        strength = abs(advantage) / reach if np.isfinite(reach) else float(np.isinf(advantage))
        ground = f"background:{rgba(theme.polarity(1 if advantage > 0 else -1), STRONGEST * strength)};"
    frame = f"outline:2px solid {theme.text};outline-offset:-2px" if row.rollout == selected else ""
    text = "(no text)" if row.text is None else row.text
    left = f"… and {count(len(text) - MOST, 'more character')}" if len(text) > MOST else ""
    dropped = pd.notna(row.kept) and not row.kept
    notes = [note for note, there in (("truncated", said(row.truncated)), ("not trained", dropped)) if there]
    aside = ", ".join([*([left] if left else []), *notes])
    return (
        f'<tr style="{ground}{frame}">{badge(row, theme, edge)}'
        f'<td style="{edge};{MONO};white-space:pre-wrap"><bdi>{inert_html(text[:MOST]) or "∅"}</bdi>'
        f'<span style="color:{theme.muted}">{f" ({aside})" if aside else ""}</span></td>'
        f'<td style="{figures}">{length(row.length)}</td><td style="{figures}">{number(row.reward)}</td>'
        f'<td style="{figures}">{number(advantage, signed=True)}</td></tr>'
    )
