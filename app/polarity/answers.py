"""Right and wrong answers side by side over a window of steps, their curves, their mass, and who teaches nothing."""

from __future__ import annotations

from app import widgets
from app.polarity.place import Place
from app.theme import theme
from app.views import polarity as view
from app.views import polarity_figures as figures
from app.views.polarity_cells import window_table

HOW_WINDOW = """
Wrong answers grow to the left, right ones to the right; each row has its own scale, both sides share it. **Advantage
mass** is the sum of loss weight × |advantage| over the tokens that were trained on, a step: how much of the update
each polarity asks for. The thin mark shows where it stood before shaping (the base advantage under the same
selection). The numbers lead to rollouts of the window's last step.
"""
HOW_CURVES = """
Both columns have the same axes, so heights compare directly. The grey band is the chosen window. A rising length of
wrong answers beside flat right ones, or an entropy that falls on one side only, is what the papers on positives-only
and negatives-only training describe. Entropy and probability are means over tokens (*Distributions* has the rest); the
reward has a row where it is more than right or wrong. Click a point to open that step, token by token.
"""
HOW_MASS = """
Solid: the mass that the update saw. Dotted: the same tokens with the base rule's advantage alone. Between them the
ratio wrong : right on a log axis; 1 is balance. Where one side has no mass (positives only, negatives only) there is
no ratio.
"""
HOW_SIGNAL = """
A group whose answers all have the same reward has advantage 0 everywhere: it costs sampling and teaches nothing. All
wrong is too hard, all right too easy. Where rewards are more than right or wrong, a dotted line counts the groups whose
rewards are all equal. Click a bar to open that step.
"""


def show(place: Place) -> None:
    chosen = place.window()
    seen = view.window(place.steps, place.signal, *chosen)
    widgets.verdict(view.verdict(seen, place.trained))
    behind = max((step for step in place.token_steps if step <= seen.last), default=None)
    where = None if behind is None else {"run": place.run, "split": place.split, "step": behind}
    html = window_table(seen, theme(), place.trained, where)
    place.table(f"**Wrong and right, side by side** · {seen.steps}", html, how=HOW_WINDOW, key="polarity:window")
    fig = figures.curves(place.steps, theme(), chosen)
    place.clickable(fig, key="polarity:curves", how=HOW_CURVES, frame=place.steps)
    if place.trained and place.steps["recorded"].any():
        masses = figures.masses(place.steps, theme(), chosen)
        columns = place.steps[["step", "polarity", "base_mass", "mass"]]
        place.clickable(masses, key="polarity:mass", how=HOW_MASS, frame=columns)
    fig = figures.signal(place.signal, theme(), chosen)
    place.clickable(fig, key="polarity:signal", how=HOW_SIGNAL, frame=place.signal)
