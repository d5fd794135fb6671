"""The entropy part's numbers, words and figures, against sums made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from app.palette import DARK, LIGHT
from app.views import polarity_entropy as view
from app.words import number
from core.stats.covariance import Fit


def tokens(steps: int, seed: int = 0, noise: float = 1e-4) -> pd.DataFrame:
    """Tokens whose entropy falls with their part in the covariance: step, polarity, l, h, a, change; some not kept."""
    random = np.random.default_rng(seed)
    parts = []
    for step in range(steps):
        n = 60
        polarity = np.where(random.random(n) < 0.4, 1, -1)
        logprob = np.log(random.beta(5, 1, n))
        kept = random.random(n) < 0.8
        a = kept * (polarity * random.uniform(0.5, 1.5, n) + 0.2 * random.normal(size=n))
        change = -0.05 * (logprob - logprob.mean()) * a + random.normal(0, noise, n)
        made = {"step": step + 3, "polarity": polarity, "l": logprob, "h": -logprob, "a": a, "change": change}
        parts.append(pd.DataFrame(made | {"kept": kept}))
    return pd.concat(parts, ignore_index=True)


def sums(frame: pd.DataFrame) -> pd.DataFrame:
    """What the query `covariances` gives of them."""
    frame = frame.assign(product=frame["l"] * frame["a"])
    by = frame.groupby(["step", "polarity"], as_index=False)
    out = by.agg(
        n=("l", "size"), trained=("kept", "sum"), entropy=("h", "sum"), advantage=("a", "sum"),
        product=("product", "sum"), changed=("change", "size"), entropy_change=("change", "sum"),
    )  # fmt: skip
    return out.assign(products=out["trained"], tokens=out["n"])


def test_sides_add_up_to_the_step():
    made = tokens(3)
    got = view.by_step(sums(made)).set_index("step")
    for step, part in made.groupby("step"):
        row = got.loc[step]
        assert row["covariance"] == pytest.approx(np.cov(part["l"], part["a"], bias=True)[0, 1])
        assert row["covariance_wrong"] + row["covariance_right"] == pytest.approx(row["covariance"])
        assert row["change"] == pytest.approx(part["change"].mean())
        right = part.loc[part["polarity"] > 0, "change"].sum() / len(part)
        assert row["change_right"] == pytest.approx(right)
        assert row["change_wrong"] == pytest.approx(part["change"].mean() - right)
        assert row["n"] == 60 and row["n_right"] == (part["polarity"] > 0).sum() == 60 - row["n_wrong"]


def test_a_side_that_is_not_trained_predicts_nothing():
    """Positives only: what the covariance foretells is by the right answers alone."""
    made = tokens(12)
    made.loc[made["polarity"] < 0, "a"] = 0.0
    got = view.by_step(sums(made))
    assert (got["covariance_wrong"] == 0).all() and got["covariance_right"].tolist() == pytest.approx(got["covariance"])


def test_a_step_with_one_polarity_or_nothing_measured():
    made = tokens(2)
    made = made[(made["step"] == 4) | (made["polarity"] > 0)]
    got = view.by_step(sums(made))
    assert got["covariance_wrong"][0] == 0 and got["change_wrong"][0] == 0
    none = sums(made).assign(n=0, entropy=0, advantage=0, product=0, changed=0, entropy_change=0)
    assert view.by_step(none)[["covariance", "change"]].isna().all().all()


def test_the_verdict_says_what_fits():
    frame = view.by_step(sums(tokens(20)))
    seen = view.fitted(frame)
    assert seen.scale == pytest.approx(0.05, rel=0.1) and seen.r > 0.9
    words = view.verdict(frame, seen, 20, 22)
    part = frame[frame["step"].between(20, 22)]
    moved = "lowered" if part["change"].mean() < 0 else "raised"
    assert f"In steps 20 to 22 the update {moved} the entropy by **" in words
    wrong = -seen.scale * frame["covariance_wrong"].sum()
    assert f"Over the run it puts {number(wrong, signed=True)} by advantages of wrong answers" in words
    assert f"direction in **{seen.agreed} of 20** steps" in words and "up to one scale, how far (r = " in words
    assert "n = 20 steps" in words and view.tone(seen) == "neutral"


def test_the_verdict_says_at_whose_tokens_the_entropy_fell_and_when():
    """A run of 40 steps that loses 0.4 nats, all but 0.04 of it in steps 10 to 18, three quarters at right answers."""
    change = np.full(40, -0.04 / 31)
    change[10:19] = -0.04
    frame = pd.DataFrame(
        {
            "step": range(40), "n": 100, "n_wrong": 25, "n_right": 75, "covariance": 0.1, "covariance_wrong": 0.1,
            "covariance_right": 0.0, "change": change, "change_wrong": change / 4, "change_right": 3 * change / 4,
        }
    )  # fmt: skip
    words = view.verdict(frame, Fit(0.05, 0.1, 40, 40, 40), 36, 39)
    assert words.startswith("Over steps 0 to 39 (n = 40) the updates lowered the entropy at their own tokens by **0.4")
    assert "−0.1 at tokens of wrong answers (25\u00a0% of the change, 25\u00a0% of the tokens), −0.3 at those" in words
    assert "Half of it had come by **step 14**, the fastest were steps 10 to 13 (−0.04\u00a0nats a step)." in words
    assert "−0.2 by advantages of wrong answers, 0 by right ones' (nats over the run), is a hint at most" in words
    flat = view.verdict(frame.assign(change=0.0002), Fit(0.05, 0.1, 40, 40, 0), 36, 39)
    assert "raised the entropy" in flat and "Half of it" not in flat
    gap = frame.assign(change=np.where(frame["step"] > 35, np.nan, frame["change"]))
    words = view.verdict(gap, Fit(0.05, 0.1, 36, 36, 36), 36, 39)
    assert "steps 0 to 35 (n = 36)" in words and "No entropy change was recorded in steps 36 to 39" in words


@pytest.mark.parametrize("usable", [True, False])
def test_the_total_adds_up_what_came_and_what_was_predicted(usable):
    frame = view.by_step(sums(tokens(20)))
    frame.loc[4, ["change", "change_wrong", "change_right"]] = np.nan  # not recorded in this step
    seen = view.fitted(frame) if usable else Fit(np.nan, np.nan, 4, 4, 4)
    traces = {trace.name: trace for trace in view.total_figure(frame, seen, LIGHT, (20, 22)).data}
    known = frame.drop(index=4)
    assert traces["both, came"].y == pytest.approx(known["change"].cumsum())
    assert traces["− wrong, came"].y[-1] + traces["+ right, came"].y[-1] == pytest.approx(known["change"].sum())
    assert ("both, predicted" in traces) == usable
    if usable:
        assert traces["+ right, predicted"].y == pytest.approx(-seen.scale * known["covariance_right"].cumsum())


@pytest.mark.parametrize(
    ("seen", "words", "tone"),
    [
        (Fit(0.03, -0.35, 60, 47, 60), "not how far: **the prediction does not fit this run's sizes**", "warning"),
        (Fit(0.03, 0.49, 40, 40, 40), "only partly how far (r = 0.49, n = 40 steps)", "neutral"),
        (Fit(-0.03, 0.9, 40, 4, 40), "does not fit", "warning"),
        (Fit(np.nan, np.nan, 4, 3, 4), "with fewer than 10 steps nothing more is claimed", "neutral"),
        (Fit(np.nan, np.nan, 0, 0, 0), "No step has both", "neutral"),
    ],
)
def test_the_verdict_is_honest_where_it_does_not_fit(seen, words, tone):
    frame = view.by_step(sums(tokens(3)))
    assert words in view.verdict(frame, seen, 3, 4) and view.tone(seen) == tone


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_figures_show_what_came_and_what_was_predicted(theme):
    frame = view.by_step(sums(tokens(20)))
    seen = view.fitted(frame)
    fig = view.steps_figure(frame, seen, theme, (10, 12))
    by_name = {trace.name: trace for trace in fig.data}
    assert by_name["came"].y == pytest.approx(frame["change"])
    assert by_name["predicted"].y == pytest.approx(-seen.scale * frame["covariance"]) and (
        by_name["predicted"].line.dash == "dash"
    )
    assert by_name["steps"].x == pytest.approx(-frame["covariance"])
    assert by_name["fit through 0"].y == pytest.approx(seen.scale * by_name["fit through 0"].x)
    assert len({*by_name["steps"].marker.color}) == 2  # the window's dots are filled
    assert (
        fig.layout.xaxis2.matches is None
        and fig.layout.yaxis2.matches == "y"
        and fig.layout.xaxis2.title.text.startswith("−Cov")
    )
    assert [shape.xref for shape in fig.layout.shapes if shape.type == "rect"] == ["x"]
    sides = {trace.name: trace for trace in view.sides_figure(frame, seen, theme).data}
    assert sides["− wrong, came"].y == pytest.approx(frame["change_wrong"])
    assert sides["+ right, predicted"].y == pytest.approx(-seen.scale * frame["covariance_right"])


def test_without_a_scale_the_direction_has_its_own_axis():
    frame = view.by_step(sums(tokens(4)))
    seen = view.fitted(frame)
    fig = view.steps_figure(frame, seen, LIGHT, None)
    assert "predicted" not in {trace.name for trace in fig.data}
    fig = view.sides_figure(frame, seen, LIGHT)
    under = {trace.name: trace for trace in fig.data}["− wrong, −Cov"]
    assert under.yaxis == "y3" and fig.layout.yaxis3.title.text == "−Cov (nats × A)"


def cells() -> pd.DataFrame:
    """Two cells of a step with 100 tokens, and the sums of the step."""
    whole = {
        "all_n": 100, "all_trained": 60, "all_entropy": 40.0, "all_advantage": 10.0, "all_product": -1.0,
        "all_changed": 100, "all_entropy_change": -0.5,
    }  # fmt: skip
    rows = [
        {"polarity": 1, "metric": "probability", "end": "high", "n": 10, "entropy": 0.1, "advantage": 9.0,
         "product": -0.09, "entropy_change": -0.2},
        {"polarity": -1, "metric": "probability", "end": "low", "n": 10, "entropy": 20.0, "advantage": -8.0,
         "product": 16.0, "entropy_change": -0.1},
    ]  # fmt: skip
    return pd.DataFrame([row | whole | {"changed": 10} for row in rows])


def test_cells_add_their_part_in_nats():
    got = view.in_cells(cells(), Fit(0.5, 0.9, 20, 18, 20))
    first = (-0.09 + 0.4 * 9) / 100
    assert got["toward"][0] == pytest.approx(-first) and got["predicted"][0] == pytest.approx(-0.5 * first)
    assert got["came"].tolist() == pytest.approx([-0.002, -0.001]) and got["all_came"][0] == pytest.approx(-0.005)
    assert got["all_toward"][0] == pytest.approx(-(-1.0 / 100 + 0.4 * 0.1))
    words = view.cell_words(got, 7, True)
    assert (
        "In step 7 the entropy fell by **0.005\u00a0nats** a token (60 of 100\u00a0tokens were trained on). " in words
    )
    assert "(2\u202f311 of 3\u202f838\u00a0tokens" in view.cell_words(got.assign(all_trained=2311, all_n=3838), 7, True)
    assert "a token (n = 100\u00a0tokens). " in view.cell_words(got.assign(all_trained=100), 7, True)
    assert "the most probable tokens of right answers moved it most that way (−0.002\u00a0nats)" in words
    assert "by the covariance it would be the least probable tokens of wrong answers" in words
    assert "The covariance's direction is right in 2 of 2 cells and right for the whole step" in words


def test_cells_without_an_advantage_have_no_direction_to_be_right_about():
    got = view.in_cells(cells(), Fit(0.5, 0.9, 20, 18, 20))
    got["toward"] = [-0.0, 0.1]
    words = view.cell_words(got, 7, True)
    assert "by the covariance none would" in words
    assert "direction is right in 0 of 1 cells with an advantage" in words
    got["toward"] = 0.0
    assert "the covariance says nothing" in view.cell_words(got, 7, True)


def test_cells_without_a_scale_or_without_training():
    bare = view.in_cells(cells(), Fit(np.nan, np.nan, 4, 4, 4))
    assert bare["predicted"].isna().all() and bare["toward"].notna().all()
    probes = view.in_cells(cells(), None)
    assert probes["toward"].isna().all() and probes["came"].notna().all()
    assert "they were not trained" in view.cell_words(probes, 7, False)
    unmeasured = view.in_cells(cells().assign(all_changed=0), Fit(0.5, 0.9, 20, 18, 20))
    assert "record.after_update" in view.cell_words(unmeasured, 7, True)
    assert "has no tokens" in view.cell_words(cells().head(0), 7, True)
