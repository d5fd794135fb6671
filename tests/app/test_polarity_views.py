"""The Polarity page's numbers: windows, ratios, quantiles and tables, on frames small enough to check by hand."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from app.palette import DARK, LIGHT
from app.views import polarity as view
from app.views import polarity_figures as figures
from app.views.panels import Panels
from app.views.polarity_cells import cell_table, group_table, window_table
from app.views.polarity_tables import Bar, Row, mirror_table


def steps() -> pd.DataFrame:
    rollouts = pd.DataFrame(
        {
            "step": [0, 0, 1, 1, 2], "polarity": [-1, 1, -1, 1, 1], "rollouts": [6, 2, 2, 6, 8], "length": [10.0,
            4.0, 20.0, 8.0, 6.0],
            "reward": [0.0, 1.0, 0.0, 1.0, 1.0], "truncated": [0.5, 0.0, 0.0, 0.0, 0.0], "flagged": [0, 0, 0, 1, 0],
        }
    )  # fmt: skip
    fields = pd.DataFrame(
        {
            "step": [0, 0, 1, 1, 2], "polarity": [-1, 1, -1, 1, 1], "tokens": [60, 8, 40, 48, 48], "entropy": [0.5,
            0.25, 0.75, 0.25, 0.1],
            "probability": [0.8, 0.9, 0.7, 0.9, 0.95], "mass": [0.6, 0.2, 0.6, 0.2, 0.0], "base_mass": [0.3, 0.3,
            0.3, 0.3, 0.0],
        }
    )  # fmt: skip
    return view.by_step(rollouts, fields)


def signal() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": [0, 1, 2], "groups": [2, 2, 2], "all_correct": [0, 1, 2], "all_wrong": [1, 0, 0], "mixed": [1, 1,
            0],
            "no_signal": [1, 1, 2], "dropped": [0, 0, 0],
        }
    )  # fmt: skip


def test_every_step_has_both_polarities():
    frame = steps()
    assert len(frame) == 6
    missing = frame[(frame["step"] == 2) & (frame["polarity"] == -1)].iloc[0]
    assert missing["rollouts"] == missing["mass"] == 0 and np.isnan(missing["length"])
    assert frame.groupby("step")["share"].sum().tolist() == [1.0, 1.0, 1.0]


def test_signal_has_one_row_a_step():
    answers = pd.DataFrame({"step": [0, 0, 1], "polarity": [-1, 1, 1], **{name: [3, 3, 4] for name in view.SIGNAL}})
    got = view.signal_by_step(answers)
    assert got["step"].tolist() == [0, 1] and got["groups"].tolist() == [3, 4]


def test_a_windows_means_are_weighted():
    seen = view.window(steps(), signal(), 0, 1)
    assert (seen.wrong.rollouts, seen.right.rollouts) == (8, 8)
    assert seen.wrong.length == pytest.approx((6 * 10 + 2 * 20) / 8)
    assert seen.wrong.entropy == pytest.approx((60 * 0.5 + 40 * 0.75) / 100)
    assert seen.wrong.truncated == pytest.approx(6 * 0.5 / 8)
    assert (seen.wrong.mass, seen.right.mass) == pytest.approx((0.6, 0.2))  # a step
    assert seen.ratio() == pytest.approx(3) and seen.ratio(before=True) == pytest.approx(1)
    assert seen.wrong_share() == pytest.approx(0.75) and seen.wrong_share(before=True) == pytest.approx(0.5)
    assert (seen.groups, seen.no_signal, seen.all_correct, seen.all_wrong) == (4, 2, 1, 1)


def test_verdict_is_made_from_the_window():
    words = view.verdict(view.window(steps(), signal(), 0, 1), True)
    assert (
        "In steps 0 to 1 the wrong answers carry **75\u00a0%** of the advantage mass, 50\u00a0% before shaping."
        in words
    )
    assert "Wrong answers (n = 8) are 5.5\u00a0tokens longer and 0.35\u00a0nats less certain a token than" in words
    assert "than right ones (n = 8)." in words
    assert "**50\u00a0%** of 4 groups carry no signal (1 all right, 1 all wrong)" in words
    assert "1 right answers have a negative advantage" in words


def test_verdict_of_one_sided_and_empty_windows():
    frame = steps()
    assert "Nothing was trained on in step 2" in view.verdict(view.window(frame, signal(), 2, 2), True)
    assert "Every answer was right." in view.verdict(view.window(frame, signal(), 2, 2), True)
    frame.loc[frame["polarity"] == -1, ["mass", "base_mass"]] = 0
    assert "Only the right answers teach" in view.verdict(view.window(frame, signal(), 0, 1), True)
    assert "Probes are not trained" in view.verdict(view.window(frame, signal(), 0, 1), False)


@pytest.mark.parametrize(
    ("wrong", "words"), [(6.0, "6\u00a0answers were wrong, 2 right."), (0.0, "Every answer was right.")]
)
def test_verdict_of_a_window_without_tokens_does_not_speak_of_training(wrong, words):
    answers = pd.DataFrame({
        "step": [3, 3], "polarity": [-1, 1], "rollouts": [wrong, 2.0], "length": [np.nan] * 2, "reward": [0.0, 1.0],
        "truncated": [np.nan] * 2, "flagged": [0, 0], **{name: [2, 2] for name in view.SIGNAL},
    })  # fmt: skip
    nothing = ["step", "polarity", "tokens", "entropy", "probability", "mass", "base_mass"]
    frame = view.by_step(answers, pd.DataFrame(columns=nothing))
    signals = view.signal_by_step(answers)
    said = view.verdict(view.window(frame, signals, 3, 3), True)
    assert "The advantage mass is not known: it is a sum over tokens, and step 3 came without." in said
    assert words in said and "trained" not in said
    assert "not known without tokens" in window_table(view.window(frame, signals, 3, 3), LIGHT, True, None)


def test_unchanged_mass_says_so():
    frame = steps()
    frame["base_mass"] = frame["mass"]
    assert "as before shaping" in view.verdict(view.window(frame, signal(), 0, 1), True)


def histograms() -> pd.DataFrame:
    rows = [(0, -1, 0, 2), (0, -1, 19, 8), (1, -1, 19, 10), (0, 1, 10, 4)]
    return pd.DataFrame(rows, columns=["step", "polarity", "bucket", "n"])


def test_histogram_window_is_each_polaritys_own_share():
    got = view.histogram_window(histograms(), 0, 1, 20)
    assert got["wrong"][0] == pytest.approx(0.1) and got["wrong"][19] == pytest.approx(0.9)
    assert got["right"][10] == 1.0 and got["n_wrong"].sum() == 20
    assert view.histogram_window(histograms(), 1, 1, 20)["right"].isna().all()


def test_quantiles_are_exact_to_a_bin():
    got = view.quantiles(histograms(), "probability").set_index(["step", "polarity"])
    assert got.loc[(0, -1), "q10"] == pytest.approx(0.025)  # half of the first bin, 0 to 0.05
    assert got.loc[(0, -1), "q50"] == pytest.approx(0.95 + 0.05 * 3 / 8)
    assert got.loc[(0, 1), "q50"] == pytest.approx(0.525)
    rng = np.random.default_rng(0)
    values = rng.beta(4, 2, 4000)
    bucket, n = np.unique(np.floor(values / 0.05).astype(int), return_counts=True)
    frame = pd.DataFrame({"step": 0, "polarity": 1, "bucket": bucket, "n": n})
    got = view.quantiles(frame, "probability").iloc[0]
    for level in (10, 25, 50, 75, 90):
        assert got[f"q{level}"] == pytest.approx(np.percentile(values, level), abs=0.05)


def words_of(frame: pd.DataFrame, field: str, first: int, last: int) -> str:
    moves, seen = (view.quantiles(part, field) for part in (frame, view.pooled(frame, first, last)))
    counts = view.histogram_window(frame, first, last, len(view.bucket_names(field)))
    return view.distribution_words(seen, moves, counts, field, first, last)


def test_distribution_words_name_both_medians_over_how_many_and_where_they_began():
    words = words_of(histograms(), "probability", 1, 1)
    assert words.startswith("Median probability of a token in step 1: none in right answers, **0.975** in wrong")
    assert "(n = 10\u00a0tokens; the middle 80 % from 0.955 to 0.995; 0.969 at step 0)." in words
    assert "overlap" not in words and "bins 0.05 wide" in words
    both = words_of(histograms(), "probability", 0, 1)
    assert "(n = 4\u00a0tokens; " in both and "(n = 20\u00a0tokens; " in both and "at step" not in both
    assert "overlap by 0\u00a0%" in both


def test_a_windows_quantiles_weigh_every_token_not_every_step():
    frame = pd.DataFrame({"step": [0, 1], "polarity": -1, "bucket": [0, 19], "n": [99, 1]})
    got = view.quantiles(view.pooled(frame, 0, 1), "probability").iloc[0]
    assert got["q50"] < 0.05 and got["step"] == 0


def answers() -> pd.DataFrame:
    """Rollouts by length, as `query.rollout_values` gives them."""
    rows = [(0, -1, 10, 3), (0, -1, 60, 1), (0, 1, 12, 4), (1, -1, 10, 1), (1, 1, 12, 2), (1, 1, 13, 2)]
    return pd.DataFrame(rows, columns=["step", "polarity", "value", "n"]).astype({"value": float})


def test_lengths_have_exact_quantiles_and_whole_bins():
    got = view.value_quantiles(answers()).set_index(["step", "polarity"])
    assert got.loc[(0, -1), ["q10", "q50", "q75", "q90"]].tolist() == [10, 10, 10, 60]
    assert got.loc[(1, 1), ["q25", "q50", "q75"]].tolist() == [12, 12, 13]
    counts, names = view.value_bins(answers(), "length", 0, 1)
    assert names[0] == "10 – 12" and names[-1] == "58 – 60" and len(names) == 17  # 51 lengths, 3 a bin
    assert counts["n_wrong"].tolist() == [4, *[0] * 15, 1] and counts["n_right"][:2].tolist() == [6, 2]
    counts, names = view.value_bins(answers(), "length", 1, 1)
    assert names == ["10", "11", "12", "13"] and counts["right"].tolist() == [0, 0, 0.5, 0.5]


def test_rewards_have_a_bar_a_value_or_bins_where_there_are_many():
    frame = pd.DataFrame({"step": 0, "polarity": [-1, 1, 1], "value": [0.0, 0.5, 1.0], "n": [3, 1, 1]})
    counts, names = view.value_bins(frame, "reward", 0, 0)
    assert names == ["0", "0.5", "1"] and counts["right"].tolist() == [0, 0.5, 0.5]
    many = pd.DataFrame({"step": 0, "polarity": 1, "value": np.linspace(0, 1, 200), "n": 1})
    counts, names = view.value_bins(many, "reward", 0, 0)
    assert len(names) == view.MOST_BINS and counts["n_right"].sum() == 200


def test_words_about_answers_count_answers():
    frame = answers()
    counts, _ = view.value_bins(frame, "length", 1, 1)
    seen, moves = view.value_quantiles(view.pooled(frame, 1, 1)), view.value_quantiles(frame)
    words = view.distribution_words(seen, moves, counts, "length", 1, 1)
    assert "Median length of an answer in step 1: **12\u00a0tokens** in right answers (n = 4\u00a0answers;" in words
    assert "(n = 1\u00a0answer; the middle 80 % from 10 to 10; 10 at step 0)" in words
    assert "bins" not in words and "overlap by 0\u00a0%" in words


def test_bucket_names_say_which_ends_are_open():
    names = view.bucket_names("probability")
    assert len(names) == 20 and names[0] == "0 – 0.05" and names[-1] == "0.95 – 1"
    names = view.bucket_names("push")
    assert len(names) == 26 and names[0] == "< −3" and names[-1] == "≥ 3"
    assert view.bucket_names("entropy")[-1] == "≥ 3"


def test_ratio_has_no_value_where_a_side_is_empty():
    got = figures.ratios(pd.Series([1.0, 0.0, 2.0]), pd.Series([2.0, 1.0, 0.0]))
    assert got.iloc[0] == 0.5 and got.iloc[1:].isna().all()


def data_of(fig: object, name: str) -> list:
    return [trace for trace in fig.data if trace.name.startswith(name)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_curves_mirror_on_the_same_axes(theme):
    fig = figures.curves(steps(), theme, (0, 1))
    wrong, right = data_of(fig, "− wrong, length")[0], data_of(fig, "+ right, length")[0]
    assert wrong.y[:2].tolist() == [10.0, 20.0] and right.y.tolist() == [4.0, 8.0, 6.0]
    assert wrong.line.color == theme.suppressed and right.line.color == theme.reinforced
    assert fig.layout[right.yaxis.replace("y", "yaxis")].matches == wrong.yaxis
    assert fig.layout.yaxis3.title.text == "length (tokens)"
    assert [fig.layout[f"yaxis{i}"].title.text for i in (5, 7)] == ["entropy (nats)", "probability"]
    graded = steps().assign(reward=[0.0, 1.0, 0.1, 0.9, 0.0, 1.0])  # more than right or wrong
    assert figures.curves(graded, theme).layout.yaxis9.title.text == "mean reward"
    assert len(fig.layout.shapes) == 8 and fig.layout.shapes[0].x0 == -0.5 and fig.layout.shapes[0].x1 == 1.5
    assert not figures.curves(steps(), theme, (0, 2)).layout.shapes  # a window of all steps marks nothing
    unknown = steps().assign(entropy=np.nan, probability=np.nan)  # as in an import of texts
    titles = [axis.title.text for axis in figures.curves(unknown, theme).select_yaxes() if axis.title.text]
    assert titles == ["rollouts", "length (tokens)"]


def test_masses_show_before_after_and_the_ratio_between():
    fig = figures.masses(steps(), LIGHT)
    before, after = data_of(fig, "− wrong, before")[0], data_of(fig, "− wrong, after")[0]
    assert before.y[:2].tolist() == [0.3, 0.3] and after.y[:2].tolist() == [0.6, 0.6]
    assert (before.line.dash, after.line.dash) == ("dot", "solid")
    assert data_of(fig, "ratio after")[0].y[:2] == pytest.approx([3.0, 3.0])
    assert fig.layout.yaxis2.type == "log" and fig.layout.yaxis3.matches == "y"
    assert fig.layout.yaxis2.visible is None


def test_masses_of_one_side_alone_say_that_there_is_no_ratio():
    one = steps()
    one.loc[one["polarity"] == 1, ["mass", "base_mass"]] = 0.0
    fig = figures.masses(one, LIGHT)
    assert fig.layout.yaxis2.visible is False
    assert any("no ratio" in note.text for note in fig.layout.annotations)


def test_distribution_is_a_butterfly():
    names = view.bucket_names("probability")
    fig = figures.distribution(
        view.histogram_window(histograms(), 0, 1, 20), names, "probability", "steps 0 to 1", LIGHT
    )
    left, right = fig.layout.xaxis.range, fig.layout.xaxis2.range
    assert left == (right[1], right[0]) and right[0] == 0
    assert fig.data[0].x[19] == pytest.approx(0.9) and fig.data[0].customdata[19] == 18
    assert fig.data[0].text[:2] == ("10%", "") and "steps 0 to 1" in fig.layout.title.text
    assert fig.layout.xaxis.title.text == "share of its tokens"
    counts, names = view.value_bins(answers(), "length", 0, 1)
    assert figures.distribution(counts, names, "length", "x", LIGHT).layout.xaxis.title.text == "share of its answers"


def test_fan_and_signal_figures():
    fig = figures.fan(view.quantiles(histograms(), "probability"), "probability", LIGHT)
    assert {trace.name for trace in fig.data} == {f"{level}th percentile" for level in (10, 25, 75, 90)} | {"median"}
    fig = figures.signal(signal(), LIGHT, (1, 1))
    assert fig.data[0].y.tolist() == [0.5, 0.0, 0.0] and fig.data[2].y.tolist() == [0.0, 0.5, 1.0]
    assert [trace.name[0] for trace in fig.data] == ["−", "±", "+"]  # equal rewards are the all right and all wrong
    graded = figures.signal(signal().assign(no_signal=[0, 1, 2]), LIGHT)
    assert graded.data[3].y.tolist() == [0.0, 0.5, 1.0] and graded.data[3].line.dash == "dot"


def test_panels_of_a_row_have_the_range_of_their_data():
    layout = figures.curves(steps(), LIGHT).layout
    for left, right, highest in (("yaxis", "yaxis2", 8), ("yaxis3", "yaxis4", 20), ("yaxis5", "yaxis6", 0.75)):
        assert layout[left].range == layout[right].range
        assert layout[left].range[0] == 0 and highest < layout[left].range[1] < 1.1 * highest
    layout = figures.masses(steps(), LIGHT).layout
    assert layout.yaxis.range == layout.yaxis3.range and layout.yaxis2.range == pytest.approx(
        (-0.1, np.log10(3) + 0.03)
    )
    panels = Panels(LIGHT, "t", heads=[("a", "#000000")], height=300)
    panels.fit_y(1)
    assert panels.figure().layout.yaxis.range == (-0.06, 1.06)


def test_panels_fill_the_figure_without_overlap():
    panels = Panels(LIGHT, "t", rows=3, heads=[("a", "#000000"), ("b", "#000000")], height=300)
    layout = panels.figure().layout
    rows = sorted(tuple(layout[f"yaxis{i}" if i > 1 else "yaxis"].domain) for i in (1, 3, 5))
    assert rows[0][0] == pytest.approx(0, abs=1e-9) and rows[-1][1] == pytest.approx(1)
    assert all(below[1] < above[0] for below, above in pairwise(rows))
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0] and layout.xaxis2.domain[1] == pytest.approx(1)


def values(html: str, test_id: str) -> list[float | None]:
    row = re.search(rf"<tr data-testid='{test_id}'>(.*?)</tr>", html).group(1)
    return [float(text) if text else None for text in re.findall(r"data-value='([^']*)'", row)]


def test_window_table_has_the_windows_numbers_and_leads_to_rollouts():
    html = window_table(view.window(steps(), signal(), 0, 1), LIGHT, True, {"run": "a&b", "step": 1})
    assert values(html, "window-length") == pytest.approx([12.5, 44 / 8 + 1.5])
    assert values(html, "window-mass") == pytest.approx([0.6, 0.2])
    assert "wrong : right 3 (1 before)" in html
    assert "href='tokens?run=a%26b&amp;step=1&amp;sort=length'" in html
    assert "window-mass" not in window_table(view.window(steps(), signal(), 0, 1), LIGHT, False, None)


def cells() -> pd.DataFrame:
    row = {
        "tokens": 10,
        "share": 0.1,
        "mass": 1.0,
        "base_mass": 1.0,
        "push": 0.5,
        "change": -0.2,
        "toward": 0.02,
        "predicted": np.nan,
        "came": -0.001,
        "group": 3,
        "rollout": 2,
        "position": 7,
    }
    rows = [
        row | {"polarity": polarity, "metric": metric, "end": end, "mass_share": share, "base_mass_share": 0.1,
        "push_share": 0.3}
        for (polarity, metric, end), share in {
            (1, "probability", "low"): 0.4, (1, "probability", "high"): 0.1, (1, "entropy", "low"): 0.1, (1,
            "entropy", "high"): 0.3,
            (-1, "probability", "low"): 0.05, (-1, "probability", "high"): 0.2, (-1, "entropy", "low"): 0.15,
        }.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_eight_cells_lead_to_their_strongest_token():
    html = cell_table(cells(), LIGHT, {"run": "r", "step": 4})
    assert values(html, "cell-mass-probability-low") == pytest.approx([0.05, 0.4])
    assert values(html, "cell-mass-entropy-high") == [None, 0.3]  # no such tokens on the left
    assert "no tokens" in html
    assert "tokens?run=r&amp;step=4&amp;group=3&amp;rollout=2&amp;position=7" in html
    assert values(html, "cell-share-entropy-low") == [0.1, 0.1]
    assert values(html, "cell-came-probability-high") == [-0.001, -0.001]
    assert "−Cov(log p, A)" in html and "predicted" not in html  # no scale, so no nats
    assert html.count("<tr data-testid=") == 20
    scaled = cell_table(cells().assign(predicted=0.002), LIGHT, {"run": "r", "step": 4})
    assert "−Cov" not in scaled and values(scaled, "cell-predicted-probability-low") == [0.002, 0.002]
    bare = cell_table(cells().assign(toward=np.nan, came=np.nan), LIGHT, {"run": "r", "step": 4})
    assert bare.count("<tr data-testid=") == 12 and "entropy change" not in bare


def test_group_table_shows_hostile_prompts_inert_and_counts_what_has_no_mass():
    groups = pd.DataFrame(
        {
            "group": [0, 1, 2], "prompt": ["<img src=x onerror=alert(1)>", "1+1=?", "2+2=?"], "n": [4, 4, 4],
            "correct": [3, 1, 4], "kept": [True, True, False], "positive": [0.1, 0.3, 0.0],
            "negative": [0.0, 0.2, 0.0],
        }
    )  # fmt: skip
    html = group_table(groups, LIGHT, {"run": "r", "step": 4})
    assert "<img" not in html and "&lt;img" in html and "3 wrong, 1 right" in html
    assert values(html, "group-1") == [0.2, 0.3]
    assert html.index("group-1") < html.index("group-0")  # the most mass comes first
    assert "group-2" not in html and "1\u00a0prompt without mass: 1 all right, 0 all wrong (1 of them dropped)" in html
    many = pd.concat([groups.head(1)] * 20 + [groups.tail(1)], ignore_index=True).assign(group=range(21))
    html = group_table(many, LIGHT, {"run": "r", "step": 4})
    assert html.count("<tr data-testid=") == 16 and "and 4\u00a0more prompts with mass; 1\u00a0prompt without" in html
    none = group_table(groups.tail(1).assign(kept=True, correct=[2]), LIGHT, {"run": "r", "step": 4})
    assert "<tr" not in none and "1\u00a0prompt without mass: 0 all right, 0 all wrong, 1 mixed<" in none


def test_bars_share_one_scale_or_have_their_own():
    rows = [Row("a", Bar(1, "1"), Bar(2, "2", mark=4.0), "a"), Row("b", Bar(8, "8"), Bar(np.nan, "none"), "b")]
    heads = ("l", "m", "r")
    widths = [
        re.findall(r"<span style='width:([\d.]+)%", mirror_table(rows, LIGHT, common=c, heads=heads, caption="c"))
        for c in (True, False)
    ]
    assert widths[0] == ["12.5", "25.0", "100.0", "0.0"]
    assert widths[1] == ["25.0", "50.0", "100.0", "0.0"]
    signed = [Row("a", Bar(-1, "−1"), Bar(2, "2"), "a"), Row("b", Bar(-4, "−4"), Bar(np.nan, "none"), "b")]
    drawn = mirror_table(signed, LIGHT, common=True, heads=heads, caption="c", signed=True)
    found = re.findall(r"<span style='width:([\d.]+)%;[^']*margin-left:([\d.]+)%", drawn)
    assert found == [("12.5", "37.5"), ("25.0", "50.0"), ("50.0", "0.0"), ("0.0", "50.0")]
    hostile = mirror_table(
        [Row("x", Bar(1, "'><script>"), Bar(1, "1"), "t'><b>")], LIGHT, common=True, heads=heads, caption="'><i>"
    )
    assert "<script>" not in hostile and "<b>" not in hostile and "<i>" not in hostile
