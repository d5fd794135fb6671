"""One step, token by token: the eight cells with their mass and their part in the entropy, and the prompts behind."""

from __future__ import annotations

from app import widgets
from app.history import history
from app.polarity.place import Place
from app.theme import theme
from app.views import polarity_entropy as entropy
from app.views.polarity_cells import cell_table, group_table
from core.store.queries import polarity as query

HOW_CELLS = """
The eight cells of A3PO: {right, wrong} × {probability, entropy} × {lowest, highest 20 % of each answer}. A token can
lie in a probability cell and in an entropy cell, and most lie in none, so shares do not add up to 100 %.

**Share of tokens** and **of advantage mass** are of the whole step; the thin mark is the mass before shaping. **Push**
weighs each token by 1 − p as well: near-certain tokens have mass but no push.

**Entropy change**: what the cell's tokens add to the step's mean change, to the left where it falls. *Predicted* is by
the covariance of log-prob and advantage, −(log p − mean) A summed over the cell (arXiv 2505.22617), in nats by the
scale fitted over the run: likely tokens reinforced and rare ones suppressed lower the entropy. *Came* is the entropy
after the update minus before, at the same tokens. Each of the two blocks has its own scale: compare directions and
proportions by the bars, sizes by the numbers. The links lead to the token with the most mass of the cell.
"""
HOW_GROUPS = "Each prompt of the step with the advantage mass of its wrong and right answers, all on one scale."


def show(place: Place) -> None:
    if not place.token_steps:
        widgets.empty_state("No step of this run kept its tokens, so the eight cells cannot be shown.")
        return
    moved = place.steps.loc[place.steps["base_mass"] > 0, "step"]
    default = int(moved.max()) if len(moved) else None
    step = widgets.step_picker(place.token_steps, total=place.info.total, default=default)
    where = {"run": place.run, "split": place.split, "step": step}
    cells = query.cells(place.lab, place.run, step, place.split)
    sums = history(place.info, place.lab, query.covariances, place.split) if place.trained else None
    cells = entropy.in_cells(cells, None if sums is None else entropy.fitted(entropy.by_step(sums)))
    widgets.verdict(entropy.cell_words(cells, step, place.trained))
    title = f"**The eight cells: which tokens the update hears** · step {step}"
    html = cell_table(cells, theme(), where)
    place.table(title, html, how=HOW_CELLS, key=f"polarity:cells:{step}", frame=cells)
    groups = query.group_masses(place.lab, place.run, step, place.split)
    html = group_table(groups, theme(), where)
    title = f"**The prompts behind it** · step {step}"
    place.table(title, html, how=HOW_GROUPS, key=f"polarity:groups:{step}", frame=groups)
    widgets.what_if(scope="step", **where)
