"""How probability, entropy, advantage and push are distributed in right and in wrong answers, now and over the run."""

from __future__ import annotations

from app import widgets
from app.history import history
from app.polarity.place import Place
from app.theme import theme
from app.views import polarity as view
from app.views import polarity_figures as figures
from core.store.queries import polarity as query

HOW_DISTRIBUTION = """
Each side shows the share of **its own** tokens in each bin, over all tokens of the chosen window. Read from the
pre-aggregated histograms, so every token counts, dropped ones too for probability and entropy.
"""
HOW_FAN = """
The line is the median token, the bands hold the middle half and the middle 80 %. Quantiles are read from histograms:
exact to a bin's width.
"""


def show(place: Place) -> None:
    labels = {name: label for name, (label, _) in figures.FIELDS.items()}
    field = widgets.choice("Distribution of", list(labels), param="field", format_func=labels.__getitem__)
    histograms = history(place.info, place.lab, query.histograms, field, place.split)
    if not len(histograms):
        reason = (
            "log-probs after the update were not recorded (record.after_update)"
            if field == "change"
            else "there are no values"
        )
        widgets.empty_state(f"No distribution of {labels[field]}: {reason}.")
        return
    first, last = place.window()
    names = view.bucket_names(field)
    counts = view.histogram_window(histograms, first, last, len(names))
    moves = view.quantiles(histograms, field)
    widgets.verdict(view.distribution_words(moves, field, first, last))
    fig = figures.distribution(counts, names, field, view.steps_words(first, last), theme())
    widgets.chart(fig, key="polarity:distribution", how=HOW_DISTRIBUTION, frame=counts.assign(bucket=names))
    fan = figures.fan(moves, field, theme(), (first, last))
    widgets.chart(fan, key="polarity:fan", how=HOW_FAN, frame=moves)
