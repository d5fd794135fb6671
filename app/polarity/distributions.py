"""How tokens (probability, entropy, advantage, push) and whole answers (length, reward) are distributed in right and in
wrong answers, now and over the run.
"""

from __future__ import annotations

from app import widgets
from app.history import history
from app.polarity.place import Place
from app.theme import theme
from app.views import polarity as view
from app.views import polarity_figures as figures
from core.store.queries import polarity as query

HOW_DISTRIBUTION = """
Each side shows the share of **its own** tokens (for length and reward: of its own answers) in each bin, over the chosen
window. Every one of them counts, and those that were not trained on too, except for advantage and push. Bars under 1 %
have no number; hover to see theirs.
"""
HOW_FAN = """
The line is the median token (or answer), the bands hold the middle half and the middle 80 %. Those of tokens are read
from histograms: exact to a bin's width.
"""


def show(place: Place) -> None:
    labels = {name: label for name, (label, _) in figures.FIELDS.items()}
    field = widgets.choice("Distribution of", list(labels), param="field", format_func=labels.__getitem__)
    whole = field in query.ROLLOUT_FIELDS
    read = query.rollout_values if whole else query.histograms
    found = history(place.info, place.lab, read, field, place.split)
    if not len(found):
        reason = (
            "log-probs after the update were not recorded (record.after_update)"
            if field == "change"
            else "there are no values"
        )
        widgets.empty_state(f"No distribution of {labels[field]}: {reason}.")
        return
    first, last = place.window()
    inside = view.pooled(found, first, last)
    if whole:
        counts, names = view.value_bins(found, field, first, last)
        moves, seen = view.value_quantiles(found), view.value_quantiles(inside)
    else:
        names = view.bucket_names(field)
        counts = view.histogram_window(found, first, last, len(names))
        moves, seen = view.quantiles(found, field), view.quantiles(inside, field)
    widgets.verdict(view.distribution_words(seen, moves, counts, field, first, last))
    fig = figures.distribution(counts, names, field, view.steps_words(first, last), theme())
    widgets.chart(fig, key="polarity:distribution", how=HOW_DISTRIBUTION, frame=counts.assign(bucket=names))
    if moves["step"].nunique() > 1:
        fan = figures.fan(moves, field, theme(), (first, last))
        widgets.chart(fan, key="polarity:fan", how=HOW_FAN, frame=moves)
