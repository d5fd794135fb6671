"""What moves the entropy: the change that the covariance of log-prob and advantage predicts, and the one that came."""

from __future__ import annotations

from app import widgets
from app.history import history
from app.polarity.place import EARLIER, Place
from app.theme import theme
from app.views import polarity_entropy as view
from core.store.queries import polarity as query

HOW_TOTAL = """
What the updates did to the entropy, added up from the first step on: each step's change at its own tokens (after the
update minus before, mean over tokens), split by whose tokens they were, on the same axes. Left and right add up to the
middle, and the middle comes close to how far the entropy of the answers fell. The steep places say **when**; move the
window there and look at *Strings* and *One step*.

**Where it fell is not yet who pushed.** All tokens share the weights, so an advantage of wrong answers moves the tokens
of right ones as well, and whoever has more tokens has more of the change. Dashed is what the covariance makes of each
side's own advantages. What settles it is a run that trains on one side alone (PSR, right answers; NSR, wrong ones).
"""
HOW_STEPS = """
**Left**: by how much the entropy at the step's own tokens changed in its update (mean over tokens, nats), solid; dashed
is what the covariance predicts. **Right**: each dot is a step, the prediction (−Cov) across and what came upwards; the
line goes through 0 and its slope is the fitted scale η. Filled dots lie in the window.

**The prediction.** When an update moves a token's logit by η × its advantage A, the entropy of a softmax policy changes
by −η Cov(log p, A): it falls when likely tokens are reinforced or rare ones suppressed, and rises when rare tokens are
reinforced or likely ones suppressed (arXiv 2505.22617). Cov is the mean of (log p − mean) A over all tokens of a step,
log p and A at its start; a token that was not trained on has A = 0. For the mean of log p stands minus the mean
entropy, which it equals on average. η, the size of the step, is not known: one number for the whole run is fitted by
least squares through 0.

**Its limits.** The formula holds at one place in a text and for one small step; pooled over tokens that share their
weights it is a rule of thumb. AdamW makes updates about equally long whatever the gradient, so sizes fit less well than
directions. *r* (Pearson's correlation over the steps) says how well the sizes fit: 1 is perfect, 0 is not at all. Where
the entropy falls in nearly every step, a right direction says little by itself.
"""
HOW_SIDES = """
The same change step by step, split by whose tokens it came at: both sides add up to the step's. Solid is what came at
them, dashed what the covariance predicts from their own advantages. Click a point to open that step and see its eight
cells.
"""


def show(place: Place) -> None:
    if not place.trained:
        widgets.empty_state(
            "Probes are not trained, so no advantage pushes their entropy. Choose the training rollouts above to see "
            "the predicted change beside the real one."
        )
        return
    sums = history(place.info, place.lab, query.covariances, place.split)
    if not sums["products"].sum():
        old = sums["trained"].sum() > 0
        reason = f"{EARLIER}, which did not add up log-prob × advantage" if old else "No token was trained on yet"
        widgets.empty_state(f"{reason}: there is no covariance to show. A new run records it.")
        return
    if not sums["changed"].sum():
        widgets.empty_state(
            "Entropies after the update were not recorded, so no change can be shown beside the prediction. "
            "record.after_update: all records them."
        )
        return
    chosen = place.window()
    frame = view.by_step(sums)
    seen = view.fitted(frame)
    widgets.verdict(view.verdict(frame, seen, *chosen), view.tone(seen))
    fig = view.total_figure(frame, seen, theme(), chosen)
    place.clickable(fig, key="polarity:total", how=HOW_TOTAL, frame=frame)
    fig = view.steps_figure(frame, seen, theme(), chosen)
    place.clickable(fig, key="polarity:entropy", how=HOW_STEPS, frame=frame, step_at="customdata")
    fig = view.sides_figure(frame, seen, theme(), chosen)
    place.clickable(fig, key="polarity:sides", how=HOW_SIDES, frame=frame)
