"""The Favorability page's pictures, tables and sentences, from frames of a synthetic run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.utils import PlotlyJSONEncoder

from app.palette import DARK, LIGHT
from app.views import favorability as views
from app.views import favorability_criteria as criteria
from app.views import favorability_mass as mass
from app.views import favorability_step as step
from app.views import favorability_time as time
from app.views import sureness
from app.words import share
from core.advantage import build
from core.counterfactual import Spec
from core.stats.classes import CLASSES, OBSERVED, class_rule, held_back, make_rule
from core.stats.labels import Flips, by_size, flips, simulate
from core.store import open_runs
from core.store.queries import favorability as queries
from tests.synthetic import make_run

VARIANTS = ("adora_amplify", "adora_attenuate", "adora_code_llm", "adora_code_vlm")
RULE = class_rule(build("adora_attenuate"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("views"), "attenuate", method="adora_attenuate", steps=12, prompts=4, group_size=4
    )


def seen(run: Path) -> pd.DataFrame:
    """A run's visits as the page has them."""
    frame = queries.visits(open_runs([run]), run.name)
    return frame.assign(held=held_back(frame["step"].to_numpy(), frame["weight"].to_numpy(float)))


@pytest.fixture
def visits(run: Path) -> pd.DataFrame:
    return seen(run)


@pytest.fixture
def rollouts(run: Path) -> pd.DataFrame:
    return queries.rollouts(open_runs([run]), run.name)


def stays(visits: pd.DataFrame) -> int:
    """Pairs of consecutive visits with the same label."""
    labels = [part["label"].to_numpy() for _, part in visits.groupby("prompt_id")]
    return sum(int((own[1:] == own[:-1]).sum()) for own in labels)


def many(steps: int, groups: int, prompts: int) -> pd.DataFrame:
    """Visits of a long run, made up."""
    random, n = np.random.default_rng(0), steps * groups
    prompt = np.concatenate([random.permutation(prompts) for _ in range(-(-n // prompts))])[:n]
    correct = random.integers(0, 9, n)
    frame = pd.DataFrame(
        {
            "step": np.repeat(np.arange(steps), groups), "group": np.tile(np.arange(groups), steps),
            "prompt_id": [f"{p:016x}" for p in prompt], "prompt": [f"{p}+8-3+6=?" for p in prompt], "answer": "18",
            "n": 8, "correct": correct, "pass_rate": correct / 8,
            "longest_correct": np.where(correct > 0, random.integers(10, 200, n), np.nan),
            "mean_wrong_length": np.where(correct < 8, random.integers(10, 200, n), np.nan), "kept": correct % 8 > 0,
            "usable_wrong": 8 - correct, "equal": correct % 8 == 0, "mass": 1.0, "base_mass": 1.0, "label": "uniform",
        }
    )  # fmt: skip
    found = criteria.move(frame, RULE)
    frame = frame.assign(label=np.array(CLASSES)[found.label], weight=found.weight, held=found.held)
    return queries.numbered(frame)


def megabytes(fig: go.Figure) -> float:
    return len(json.dumps(fig.to_dict(), cls=PlotlyJSONEncoder)) / 1e6


def points(trace: go.Scatter) -> int:
    """How many a trace draws; an empty one holds its place in the legend."""
    return sum(value is not None for value in trace.x)


def test_rows_are_sorted_as_asked(visits):
    by_class = views.prompt_rows(visits, "favorable")
    assert by_class["favorable"].is_monotonic_decreasing
    assert views.prompt_rows(visits, "pass")["pass_rate"].is_monotonic_increasing
    assert views.prompt_rows(visits, "last")["last_step"].is_monotonic_decreasing
    restless = views.prompt_rows(visits, "changes")
    assert restless["changes"].is_monotonic_decreasing
    assert restless["changes"].sum() == len(sureness.transitions(visits)[0]) - stays(visits)
    one = visits[visits["prompt_id"] == by_class["prompt_id"].iloc[0]]
    assert by_class["favorable"].iloc[0] == (one["label"] == "favorable").mean()
    assert by_class["pass_rate"].iloc[0] == pytest.approx(one["correct"].sum() / one["n"].sum())


def test_rows_by_name_by_mass_by_change_and_by_how_sure(visits):
    sure = pd.Series(np.linspace(0, 1, visits["prompt_id"].nunique()), index=visits["prompt_id"].unique())
    rows = {sort: views.prompt_rows(visits, sort, sure) for sort in views.SORTS}
    assert all(set(part["prompt_id"]) == set(sure.index) for part in rows.values())
    assert rows["name"]["prompt"].is_monotonic_increasing and rows["mass"]["mass"].is_monotonic_decreasing
    assert rows["sure"]["p_favorable"].is_monotonic_decreasing
    assert (rows["unsure"]["p_favorable"] - 0.5).abs().is_monotonic_increasing
    changed = rows["change"]["last_change"]
    assert changed.dropna().is_monotonic_decreasing and changed.isna().to_numpy()[: changed.notna().sum()].sum() == 0
    one = visits[visits["prompt_id"] == rows["change"]["prompt_id"].iloc[0]]
    moved = one["label"].to_numpy()[1:] != one["label"].to_numpy()[:-1]
    assert rows["change"]["last_change"].iloc[0] == one["step"].to_numpy()[1:][moved].max()


def test_a_visit_that_was_not_trained_says_so(visits):
    shown = visits.assign(kept=[i % 2 == 0 for i in range(len(visits))])
    traces = [t for t in views.grid(shown, views.prompt_rows(shown), LIGHT).data if "not trained" in (t.name or "")]
    assert sum(len(trace.x) for trace in traces) == (~shown["kept"]).sum() > 0
    assert all("not trained" in trace.hovertemplate and trace.opacity < 0.5 for trace in traces)


def test_more_squares_than_can_be_drawn_become_one_picture(visits, monkeypatch):
    rows = views.prompt_rows(visits)
    assert views.grid_note(visits, rows, len(rows), "favorable") == ""
    monkeypatch.setattr(views, "MARKS", len(visits) - 1)
    monkeypatch.setattr(views, "COLUMNS", 5)
    picture = next(trace for trace in views.grid(visits, rows, LIGHT, "step").data if trace.type == "heatmap")
    assert picture.z.shape == (len(rows), 4) and picture.dx == 3
    for place, key in enumerate(rows["prompt_id"]):
        mine = visits[visits["prompt_id"] == key]
        last = mine.assign(column=mine["step"] // 3).groupby("column")["label"].last()
        shown = {column: CLASSES[code - 1] for column, code in enumerate(picture.z[place]) if code}
        assert shown == last.to_dict()
    assert "one picture" in views.grid_note(visits, rows, len(rows), "favorable")


@pytest.mark.parametrize("by", ["visit", "step"])
def test_the_grid_has_a_square_for_every_visit(visits, by):
    rows = views.prompt_rows(visits)
    fig = views.grid(visits, rows, LIGHT, by, chosen=(5, 2))
    squares = {trace.name: trace for trace in fig.data if trace.showlegend}
    assert sum(points(trace) for trace in squares.values()) == len(visits)
    for name, trace in squares.items():
        assert points(trace) == (visits["label"] == name).sum()
        assert {(row[0], row[1]) for row in trace.customdata} <= set(zip(visits["step"], visits["group"], strict=True))
    hatch = [trace for trace in fig.data if trace.name == "unfavorable" and not trace.showlegend]
    assert len(hatch) == 1 and len(hatch[0].x) == len(squares["unfavorable"].x)
    mark = next(trace for trace in fig.data if trace.name == "chosen")
    expected = visits[(visits["step"] == 5) & (visits["group"] == 2)].iloc[0]
    assert mark.x[0] == expected[by] and rows["prompt_id"].iloc[mark.y[0]] == expected["prompt_id"]


def test_hostile_prompts_stay_text(visits):
    evil = visits.assign(prompt="<b>x</b> <a href='http://evil'>y</a> $$z$$")
    fig = views.grid(evil, views.prompt_rows(evil), LIGHT)
    drawn = fig.to_json()
    assert "<a href" not in drawn and "<b>x" not in drawn and "&lt;b&gt;" in drawn


def test_criteria_split_at_tau_and_by_the_diagonal(visits):
    fig = criteria.scatter(visits, criteria.move(visits, RULE), LIGHT, RULE)
    drawn = [trace for trace in fig.data if trace.mode == "markers" and trace.customdata is not None]
    assert sum(len(trace.x) for trace in drawn) == len(visits) - criteria.without_lengths(visits)
    favorable = next(trace for trace in drawn if trace.name == "favorable")
    assert np.all(np.array(favorable.y) > np.array(favorable.x)) and len(favorable.x)
    scale = criteria.pass_rate_scale(LIGHT, 0.5)
    assert [place for place, _ in scale] == [0.0, 0.5, 0.5, 1.0] and scale[1][1] != scale[2][1]
    assert len(criteria.pass_rate_scale(DARK, None)) == 2


def test_margins_show_every_group_and_ring_those_whose_class_differs(visits):
    rule = make_rule("adora_amplify", tau=0.3, combine="all")
    moved = criteria.move(visits, rule)
    fig = criteria.scatter(visits, moved, DARK, rule, "margin")
    drawn = [trace for trace in fig.data if trace.customdata is not None]
    assert sum(len(trace.x) for trace in drawn) == len(visits)
    ring = next(trace for trace in fig.data if trace.name == "another class than recorded")
    assert len(ring.x) == moved.changed.sum() > 0
    favorable = next(trace for trace in drawn if trace.name == "favorable")
    assert np.all(np.array(favorable.y) > 0) and np.all(np.array(favorable.x) < 0.3 + 0.5 / 4)
    assert {shape.x0 for shape in fig.layout.shapes} >= {0.3}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_run_s_own_rule_on_its_groups_changes_nothing(variant, tmp_path):
    frame = seen(make_run(tmp_path, variant, method=variant, steps=6, prompts=4, group_size=3))
    moved = criteria.move(frame, class_rule(build(variant)))
    assert not moved.changed.any() and moved.weight == pytest.approx(frame["weight"].to_numpy(float))
    assert (moved.held == frame["held"]).all()
    counts = criteria.counts(frame, moved).set_index("what")
    assert counts["recorded"].to_numpy(float) == pytest.approx(counts["moved"].to_numpy(float))
    assert "As recorded" in criteria.moved_sentence(frame, 1, moved, moved, *[class_rule(build(variant))] * 2)


@pytest.mark.parametrize(
    "own",
    ["grpo", "adora_attenuate", "a3po;also=adora_amplify;adora_amplify.tau=0.2", "adora_amplify;base=dapo;tau=0.4"],
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_link_to_what_if_trains_with_the_moved_rule_and_nothing_else_is_changed(own, variant):
    rule = make_rule(variant, weight=0.7)
    spec = criteria.moved_spec(Spec.parse(own), rule)
    method, before = Spec.parse(spec.text).build(), Spec.parse(own).build()
    assert class_rule(method) == rule and method.base.name == before.base.name and method.loss == before.loss
    others = [weight.name for weight in before.weights if weight.name not in VARIANTS]
    assert [weight.name for weight in method.weights if weight.name not in VARIANTS] == others
    assert sum(weight.name in VARIANTS for weight in method.weights) == 1


def test_counts_are_those_of_the_frame(visits):
    moved = criteria.move(visits, make_rule("adora_code_llm"))
    table = criteria.counts(visits, moved).set_index("what")
    assert table.loc[list(CLASSES), "recorded"].tolist() == [(visits["label"] == name).sum() for name in CLASSES]
    assert table.loc["held back", "moved"] == (moved.weight < 0.5).sum()
    assert table.loc["mean weight", "moved"] == pytest.approx(moved.weight.mean())
    drawn = criteria.counts_table({"the run": (table.reset_index(), len(visits))}, LIGHT)
    assert f"{int((moved.label == 0).sum())} ({share((moved.label == 0).mean())})" in drawn
    over = criteria.favorable_over_time(visits, moved, LIGHT, 1, 3)
    line = next(trace for trace in over.data if trace.name == "moved")
    assert list(line.y) == pytest.approx((100 * pd.Series(moved.label == 0).groupby(visits["step"]).mean()).tolist())


def test_the_sentence_names_who_was_held_back(visits):
    now = visits[visits["step"] == 7]
    said = step.held_sentence(now, RULE, "ADORA attenuate")
    names = now[now["held"]]["prompt"]
    assert f"held back {len(names)} of 4" in said and all(
        re.sub(r"[^0-9]", "", n) in re.sub(r"[^0-9]", "", said) for n in names
    )
    all_down = now.assign(weight=0.1, held=True, kept=True)
    mixed = step.held_sentence(now.assign(equal=False), RULE, "x")
    assert "which AdamW cancels" in step.held_sentence(all_down, RULE, "x") and "which AdamW" not in mixed
    amplify = class_rule(build("adora_amplify"))
    none = now.assign(weight=1.0, held=False, label="unfavorable")
    assert "none was amplified" in step.held_sentence(none, amplify, "x")
    assert "amplified **every one of 4" in step.held_sentence(none.assign(weight=2.0, label="favorable"), amplify, "x")
    assert "**no prompt was held back**" in step.held_sentence(none, OBSERVED, "GRPO")
    silent = now.assign(held=True, equal=True)
    assert "4 of those held back had equal rewards" in step.held_sentence(silent, RULE, "x")
    evil = step.held_sentence(now.assign(prompt="![x](http://evil) $$z$$", held=True), RULE, "[a](http://evil)")
    assert "![x](" not in evil and "[a](" not in evil and "$$z" not in evil


def test_the_table_shows_the_criterion_and_the_mass_of_each_prompt(visits):
    now = visits[visits["step"] == 5].assign(prompt="<script>x</script> <a href='http://evil'>y</a>")
    table = step.step_table(
        now, RULE, LIGHT, int(now["group"].iloc[1]), lambda group: f"tokens?group={group}", [0.25] * 4
    )
    assert "<script" not in table and "http://evil'>y</a>" not in table and table.count("tokens?group=") == 8
    assert table.count("aria-current") == 1 and "25\u00a0%" in table
    for row in now.itertuples():
        parts = [share(getattr(row, name) / now[name].sum()) for name in ("base_mass", "mass")]
        assert f"{parts[0]} → <b>{parts[1]}</b>" in table
    older = step.step_table(now.assign(mass=np.nan, base_mass=np.nan), RULE, LIGHT, 0, str)
    assert "before → after" not in older and "before → after" in table
    assert step.criterion_words(now.assign(longest_correct=9.0, mean_wrong_length=9.0).iloc[0]) == "9 ≤ 9\u00a0tokens"
    assert step.criterion_words(now.assign(longest_correct=np.nan).iloc[0]) == "none right"
    whole = now.assign(correct=4, longest_correct=9.0, mean_wrong_length=np.nan)
    assert "none wrong" in step.criterion_words(whole.iloc[0])
    assert "cut off" in step.criterion_words(whole.assign(correct=2).iloc[0])


def test_mass_by_difficulty_and_length_adds_up(visits, rollouts):
    rates, lengths = mass.by_pass_rate(visits), mass.by_length(rollouts)
    assert rates["groups"].sum() == len(visits) and lengths["rollouts"].sum() == len(rollouts)
    for table in (rates, lengths):
        assert table[["share_of", "base", "mass"]].sum().tolist() == pytest.approx([1, 1, 1])
    half = visits[visits["pass_rate"].between(0.41, 0.6)]
    row = rates.set_index("bin").loc["≤ 60 %"]
    assert row["groups"] == len(half) > 0 and row["mass"] == pytest.approx(half["mass"].sum() / visits["mass"].sum())
    assert rates.set_index("bin").loc[["all wrong", "all right"], "mass"].tolist() == [0, 0]
    first, last = (int(edge) for edge in lengths["bin"].iloc[1].split("–"))
    inside = rollouts[rollouts["length"].between(first, last)]
    assert lengths["mass"].iloc[1] == pytest.approx(inside["mass"].sum() / rollouts["mass"].sum()) and len(inside)
    fig = mass.split(rates, lengths, LIGHT, "the whole run")
    bars = [trace for trace in fig.data if trace.type == "bar"]
    assert sum(sum(bar.y) for bar in bars) == pytest.approx(400) and "the whole run" in fig.layout.title.text


def test_a_band_of_pass_rates_holds_its_upper_end():
    frame = pd.DataFrame({"correct": range(11), "n": 10, "mass": 1.0, "base_mass": 1.0})
    assert mass.by_pass_rate(frame)["groups"].tolist() == [1, 2, 2, 2, 2, 1, 1]


def test_the_prompts_with_the_most_mass(visits):
    top = mass.top_prompts(visits, 3)
    total = visits.groupby("prompt_id")["mass"].sum().sort_values(ascending=False) / visits["mass"].sum()
    assert top["mass"].tolist() == pytest.approx(total.head(3).tolist())
    last = visits[visits["prompt_id"] == top["prompt_id"].iloc[0]].iloc[-1]
    assert top[["step", "group"]].iloc[0].tolist() == [last["step"], last["group"]]
    fig = mass.top_figure(top.assign(prompt="<b>x</b>"), LIGHT, "step 3")
    assert "<b>x" not in json.dumps(fig.to_dict()["layout"], cls=PlotlyJSONEncoder)
    cut = mass.windows(8)
    assert set(cut["step"](visits)["step"]) == {8} and set(cut["recent"](visits)["step"]) == set(range(9))
    assert len(cut["run"](visits)) == len(visits) and mass.window_words("recent", 30) == "steps 11 to 30"


def test_relative_weights_are_over_the_kept_mean(visits):
    relative = time.relative_weights(visits)
    one = visits[visits["step"] == 4]
    row = relative[(relative["step"] == 4) & (relative["label"] == one["label"].iloc[0])].iloc[0]
    assert row["relative"] == pytest.approx(row["weight"] / one["weight"].mean())


def test_transition_counts_sum_to_the_pairs(visits):
    before, after = sureness.transitions(visits)
    counts = time.transition_counts(sureness.labels(visits), before, after)
    assert counts.sum() == len(before) == len(visits) - visits["prompt_id"].nunique()
    assert np.trace(counts) == stays(visits)


def test_arrays_keep_each_visits_rollouts(visits, rollouts):
    arrays = sureness.to_visits(visits, rollouts)
    assert arrays.size.tolist() == visits["n"].tolist()
    assert arrays.passed.tolist() == visits["correct"].tolist()
    shape = (len(visits), 4)
    again = RULE.labels(arrays.correct.reshape(shape), arrays.length.reshape(shape), arrays.truncated.reshape(shape))
    assert again.tolist() == sureness.labels(visits).tolist()
    sure = simulate(arrays, OBSERVED, np.array([0, 1]), draws=8)
    fig = sureness.bars(visits.iloc[:2], sure, LIGHT)
    assert fig.data[0].x == pytest.approx(sure.probability[:, 0])


def test_long_runs_are_counted_on_whole_prompts(visits):
    some = sureness.whole_prompts(visits, most=20)
    assert 0 < len(some) <= 20
    for key, part in some.groupby("prompt_id"):
        assert len(part) == (visits["prompt_id"] == key).sum()
    assert sureness.whole_prompts(visits, most=1000) is visits


def test_latest_visits_follow_the_prompts_order(visits):
    order = views.prompt_rows(visits)["prompt_id"]
    found = sureness.latest(visits, order, 6)
    assert (found["step"] <= 6).all() and found["prompt_id"].is_unique
    for key, row in found.set_index("prompt_id").iterrows():
        assert row["step"] == visits[(visits["prompt_id"] == key) & (visits["step"] <= 6)]["step"].max()
    assert [key for key in order if key in set(found["prompt_id"])] == found["prompt_id"].tolist()


@pytest.mark.parametrize(
    ("observed", "words"),
    [(150, "luck alone can explain them"), (260, "about 110 are more than luck"), (60, "fewer than luck")],
)
def test_the_sentence_says_what_luck_explains(observed, words):
    sentence = sureness.flips_sentence(Flips(400, observed, 150.0, 9.0), 8)
    assert words in sentence and "(G = 8)" in sentence
    assert re.search(r"about \*\*150\*\* \(± 29\)", sentence)
    assert "No prompt has come back" in sureness.flips_sentence(Flips(0, 0, 0.0, 0.0), 8)


def test_other_group_sizes_are_told_beside_the_run_s_own(visits, rollouts):
    arrays = sureness.to_visits(visits, rollouts)
    labels = sureness.labels(visits)
    found = by_size(arrays, RULE, (2, 4, 8, 16))
    rates = sureness.rates_by_size(found, arrays, labels)
    own = flips(arrays.prompt, labels, found.flip[1])
    assert rates["luck"].iloc[1] == pytest.approx(own.expected / own.transitions)
    assert (rates["low"] <= rates["luck"]).all() and (rates["luck"] <= rates["high"]).all()
    fig = sureness.by_size_figure(rates, 0.5, 4, LIGHT)
    line = next(trace for trace in fig.data if trace.name == "label changes by luck")
    assert list(line.x) == [2, 4, 8, 16] and list(line.y) == pytest.approx((100 * rates["luck"]).tolist())
    seen = next(trace for trace in fig.data if trace.name == "label changes observed")
    assert list(seen.x) == [4] and list(seen.y) == [50]
    said = sureness.size_sentence(rates, own.transitions, 4)
    assert f"**G\u00a0=\u00a016** about **{rates['luck'].iloc[3] * own.transitions:.0f}**" in said


def test_the_size_that_halves_luck_is_named():
    rates = pd.DataFrame({"size": [4, 8, 16, 32], "luck": [0.6, 0.5, 0.3, 0.2]})
    said = sureness.size_sentence(rates, 100, 8)
    assert "**G\u00a0=\u00a032** about **20** would" in said and "it takes G = 32 to halve" in said
    assert "never falls by half" in sureness.size_sentence(rates.assign(luck=0.5), 100, 8)
    assert sureness.size_sentence(rates, 0, 8) == "" == sureness.size_sentence(rates, 100, 64)


def test_label_changes_by_step_add_up_to_the_run_s(visits):
    flip = np.random.default_rng(0).random(len(visits))
    fig, frame = sureness.changes_over_time(visits, flip, LIGHT, 1, 3)
    whole = flips(pd.factorize(visits["prompt_id"])[0], sureness.labels(visits), flip)
    assert frame["observed"].sum() == whole.observed and frame["luck"].sum() == pytest.approx(whole.expected)
    line = next(trace for trace in fig.data if trace.name == "observed")
    assert list(line.y) == pytest.approx((100 * frame["observed"] / frame["pairs"]).tolist())


@pytest.mark.parametrize(("steps", "groups", "prompts"), [(400, 16, 128), (400, 160, 1280)])
def test_a_long_run_s_figures_stay_small(steps, groups, prompts):
    frame = many(steps, groups, prompts)
    rows, moved = views.prompt_rows(frame), criteria.move(frame, OBSERVED)
    figures = [views.grid(frame, rows, LIGHT, by) for by in ("visit", "step")]
    figures += [criteria.scatter(frame, moved, LIGHT, OBSERVED, plane) for plane in criteria.PLANES]
    figures += [sureness.changes_over_time(frame, np.zeros(len(frame)), LIGHT, 10, 0)[0]]
    figures += [time.weights_over_time(time.relative_weights(frame), LIGHT)]
    assert sum(map(megabytes, figures)) < 3
