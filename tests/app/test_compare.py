"""The Compare page in every state; its curves, table and verdicts against the store."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from app.palette import DARK, LIGHT, method_colour
from app.views import compare as views
from app.views import comparison, families, probes
from app.views.comparison import METRICS, Metric, Outcome
from core.runs import RunInfo, get_run
from core.stats.differences import Difference
from core.store import open_runs
from core.store.queries import compare as queries
from tests.app.conftest import STATES, break_status, texts
from tests.synthetic import make_run

METRIC = {metric.id: metric for metric in METRICS}
RUNS = ["grpo-0", "grpo-1", "psr-0", "psr-1", "slow"]
SIZE = {"prompts": 3, "group_size": 4}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each, an experiment, one of them sealed; and GRPO with another learning rate."""
    root = tmp_path_factory.mktemp("compare")
    for method in ("grpo", "psr"):
        for seed in (0, 1):
            sealed = method == "psr" and seed == 0
            make_run(root, f"{method}-{seed}", method=method, seed=seed, steps=6, experiment="x", sealed=sealed, **SIZE)
    make_run(root, "slow", method="grpo", steps=4, optimizer={"lr": 3e-4}, **SIZE)
    return root


@pytest.fixture
def lab_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(root))
    return root


@pytest.fixture(scope="module")
def frames(root: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    lab = open_runs([root / name for name in RUNS])
    return queries.metrics(lab, RUNS), queries.evals(lab, RUNS)


def infos(root: Path, *names: str) -> list[RunInfo]:
    return [get_run(root, name) for name in names]


def html(at) -> str:
    return "\n".join(element.value if hasattr(element, "value") else element.proto.body for element in at.get("html"))


def curve(*runs: tuple[str, list[float]]) -> pd.DataFrame:
    rows = [(run, step, float(step), value) for run, values in runs for step, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["run", "step", "x", "value"])


# -- the page


def test_no_runs(no_runs, open_page):
    at = open_page("compare")
    assert not at.exception and "There is no run yet to compare" in texts(at)
    assert at.header[0].value == "Is this method better than that one, or is it luck?"


def test_without_a_choice_the_two_newest_runs_are_shown(lab_root, open_page):
    at = open_page("compare")
    assert not at.exception and len(at.multiselect(key="url:run").value) == 2
    assert at.query_params["run"] == at.multiselect(key="url:run").value


def test_without_a_choice_an_experiment_comes_whole(tmp_path, monkeypatch, open_page):
    for seed in range(2):
        make_run(tmp_path, f"run-{seed}", seed=seed, steps=2, experiment="fresh", **SIZE)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("compare")
    assert at.query_params["experiment"] == "fresh" and at.dataframe[0].value["Seeds"].tolist() == [2]


def test_an_experiment_is_compared_by_method(lab_root, open_page):
    at = open_page("compare", experiment="x")
    assert not at.exception and not at.error and not at.warning
    said = texts(at)
    assert "**PSR − GRPO**, final held\\-out pass" in said and "2\u00a0seeds each" in said
    assert at.dataframe[0].value["Seeds"].tolist() == [2, 2]
    assert at.dataframe[1].value["setting"].tolist() == ["method.name"]


@pytest.mark.parametrize("state", STATES)
def test_one_run_in_every_state(states, open_page, state):
    at = open_page("compare", run=state, dark=state == "sealed")
    assert not at.exception and not at.error
    waits = state in ("queued", "empty")
    assert ("None of these runs has a step yet" if waits else "choose a run of another method") in texts(at)
    assert bool(at.get("plotly_chart")) != waits


def test_runs_of_every_state_together(states, open_page):
    at = open_page("compare", run=["finished", "sealed", "running", "failed", "queued", "garbage"])
    assert not at.exception and not at.error
    said = texts(at)
    assert "No step yet, so left out: **queued**" in said
    assert "up to step" in said
    assert "one seed cannot tell a better method from luck" in said


def test_single_seeds_get_an_interval_over_prompts(lab_root, open_page):
    at = open_page("compare", run=["grpo-0", "psr-0"])
    said = texts(at)
    assert "one seed each: **one seed cannot tell" in said
    assert "Over the 16\u00a0held-out prompts" in said and "not which seed trained" in said


def test_every_choice_comes_from_the_address(lab_root, open_page, frames):
    chosen = {"metric": "entropy", "align": "tokens", "smooth": 5, "base": 1, "threshold_entropy": 0.4, "step": 4}
    probe = queries.probes(open_runs([lab_root / "grpo-0"]), ["grpo-0"])["prompt_id"].iloc[1]
    at = open_page("compare", run=["grpo-0", "psr-0"], probe=probe, **chosen)
    assert not at.exception and not at.warning
    assert at.selectbox(key="url:metric").value == "entropy" and at.selectbox(key="url:align").value == "tokens"
    assert at.selectbox(key="url:probe").value == probe
    assert at.number_input(key="url:threshold_entropy").value == 0.4
    assert "**GRPO − PSR**, final entropy" in texts(at)
    links = [element.proto.query_string for element in at.get("page_link")]
    assert any(
        "run=psr-0" in link and "split=probe" in link and "step=4" in link and "group=1" in link for link in links
    )
    assert "Final entropy (nats)" in at.dataframe[0].value


def test_bad_addresses_get_a_sentence(lab_root, open_page):
    at = open_page("compare", run=["grpo-0", "gone"], metric="luck", align="moon", smooth=3, threshold_pass_at_1="x")
    assert not at.exception and len(at.warning) == 5


def test_another_learning_rate_is_another_family_and_named_as_a_difference(lab_root, open_page):
    at = open_page("compare", run=["grpo-0", "slow"])
    assert "optimizer.lr" in at.dataframe[1].value["setting"].tolist()
    assert "Not only the method differs" in texts(at) and "`optimizer.lr`" in texts(at)


def test_hostile_labels_stay_text(tmp_path, monkeypatch, open_page):
    evil = "<script>alert(1)</script> ![x](http://evil) $$y$$"
    for method in ("grpo", "psr"):
        path = make_run(tmp_path, method, method=method, steps=2, **SIZE, experiment="e")
        break_status(path, label=evil, look_for=evil)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("compare", experiment="e")
    assert not at.exception
    drawn = [element.proto.spec for element in at.get("plotly_chart")]
    assert "alert" in texts(at) and any("alert" in spec for spec in drawn)
    assert not re.search(r"(?<!\\)(<script|!\[x\]|\$\$)", texts(at))
    assert "<script" not in html(at) + "".join(drawn)


# -- families


def test_families_gather_seeds_and_keep_the_methods_colour(root):
    shown = families.families(infos(root, *RUNS), dark=False)
    assert [family.n for family in shown] == [2, 2, 1]
    assert [family.label for family in shown][1] == "PSR"
    assert len({family.label for family in shown}) == 3 and "lr 0.0003" in shown[2].label
    assert shown[0].colour == shown[2].colour == method_colour("grpo") and shown[0].dash != shown[2].dash
    assert [member.info.seed for member in shown[0].members] == [0, 1]


def test_a_mass_matched_run_is_no_seed_of_its_method(tmp_path):
    for name, method in {"a": "a3po", "b": {"name": "a3po", "mass_matched": True}, "c": "a3po"}.items():
        make_run(tmp_path, name, method=method, steps=1, **SIZE)
    shown = families.families(infos(tmp_path, "a", "b", "c"))
    assert [(family.label, family.runs) for family in shown] == [
        ("A3PO on DAPO", ["a", "c"]),
        ("A3PO on DAPO, mass-matched", ["b"]),
    ]
    assert shown[0].colour == shown[1].colour and shown[0].dash != shown[1].dash
    assert families.differences(shown).set_index("setting").loc["method.mass_matched"].tolist() == ["no", "yes"]


def test_differences_name_the_settings_that_differ(root):
    shown = families.families(infos(root, "grpo-0", "psr-1", "slow"))
    table = families.differences(shown).set_index("setting")
    assert table.loc["method.name"].tolist() == ["grpo", "psr", "grpo"]
    assert table.loc["optimizer.lr"].tolist() == ["0.001", "0.001", "0.0003"]
    assert "seed" not in table.index and "name" not in table.index
    assert families.differences(shown[:1]).empty


def test_a_run_without_a_readable_config_is_a_family_of_its_own(tmp_path):
    for name in ("a", "b"):
        path = make_run(tmp_path, name, steps=1, **SIZE)
        (path / "config.yaml").write_text("steps: [", encoding="utf-8")
    shown = families.families(infos(tmp_path, "a", "b"))
    assert [family.n for family in shown] == [1, 1] and shown[0].label != shown[1].label


# -- numbers


def test_curves_are_the_stores_numbers(frames, root):
    metrics, evals = frames
    found = comparison.curves(metrics, evals, METRIC["entropy"])
    own = found[found["run"] == "psr-1"]
    assert own["value"].tolist() == metrics[metrics["run"] == "psr-1"]["entropy"].tolist()
    exam = comparison.curves(metrics, evals, METRIC["pass_at_1"])
    assert exam[exam["run"] == "grpo-0"]["step"].tolist() == [0, 4, 6]
    ratio = comparison.curves(metrics, evals, METRIC["mass_ratio"])
    assert set(ratio["run"]) == {"grpo-0", "grpo-1", "slow"}  # PSR has no negative mass: no ratio
    check = Metric("trait:self_check", "", "", "metrics", 0, "", trait=True)
    assert comparison.curves(metrics, evals, check)["value"].between(0, 1).all()


def test_alignment_is_what_was_spent_before_the_step(frames):
    metrics, evals = frames
    own = metrics[metrics["run"] == "grpo-1"]
    by_tokens = comparison.curves(metrics, evals, METRIC["reward"], "tokens").query("run == 'grpo-1'")
    assert by_tokens["x"].tolist() == [0, *own["tokens"].cumsum().tolist()[:-1]]
    exam = comparison.curves(metrics, evals, METRIC["pass_at_1"], "tokens").query("run == 'grpo-1'")
    assert exam["x"].tolist() == [0, own["tokens"].iloc[:4].sum(), own["tokens"].sum()]
    seconds = comparison.curves(metrics, evals, METRIC["reward"], "seconds").query("run == 'grpo-1'")
    assert seconds["x"].iloc[3] == pytest.approx(own["time_step"].iloc[:3].sum())


def test_available_metrics_have_a_value_somewhere(frames):
    ids = [metric.id for metric in comparison.available(*frames)]
    assert ids[0] == "pass_at_1" and "trait:self_check" in ids and "kl" not in ids


def test_mean_over_seeds_stops_with_the_shortest():
    found = comparison.mean_curve(curve(("a", [0, 1, 2, 3]), ("b", [2, 3])), ["a", "b"])
    assert found[["step", "mean", "low", "high"]].values.tolist() == [[0, 1, 0, 2], [1, 2, 1, 3]]


def test_outcomes_are_taken_at_the_last_common_step():
    data = curve(("a", [0.0, 0.5, 1.0, 9.0]), ("b", [0.0, 0.2, 0.4]))
    assert comparison.common_end(data) == 2
    found = comparison.outcomes(data, METRIC["pass_at_1"], 0.5)
    assert (found["a"].final, found["b"].final) == (1.0, 0.4)
    assert found["a"].area == pytest.approx(0.5) and found["a"].reached == 1 and math.isnan(found["b"].reached)
    falling = comparison.outcomes(curve(("a", [1.0, 0.4])), METRIC["entropy"], 0.5)
    assert falling["a"].reached == 1
    noisy = comparison.outcomes(curve(("a", [0, 0, 1, 2, 3, 4, 5])), METRIC["reward"], 0.5)
    assert noisy["a"].final == 3  # the mean of the last five


def test_the_threshold_starts_halfway():
    assert comparison.default_threshold(curve(("a", [0.2, 0.8]), ("b", [0.2, 0.4]))) == 0.5
    assert comparison.default_threshold(curve()) == 0.5


def test_the_table_says_how_many_seeds_reached_it(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0"))
    found = {
        "grpo-0": Outcome("grpo-0", 0.8, 0.6, 10.0), "grpo-1": Outcome("grpo-1", 0.7, 0.5, math.nan),
        "psr-0": Outcome("psr-0", 0.6, 0.4, math.nan),
    }  # fmt: skip
    table = comparison.summary(shown, found, METRIC["pass_at_1"], "step")
    assert table["Final held-out pass@1"].tolist() == ["0.75 (0.7 to 0.8)", "0.6"]
    assert table["Threshold reached"].tolist() == ["step 10, 1 of 2 seeds", "not reached"]
    assert comparison.every_run(shown, found)["final"].tolist() == [0.8, 0.7, 0.6]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Difference(0.02, -0.01, 0.05, 5, 5, "seeds"), "+0.02 \\[−0.01, +0.05\\], 5\u00a0seeds each: **not disting"),
        (Difference(0.2, 0.1, 0.3, 3, 2, "seeds"), "3 and 2 seeds: **higher**"),
        (Difference(-0.2, math.nan, math.nan, 1, 1, "seeds"), "one seed each: **one seed cannot tell"),
        (Difference(-0.2, math.nan, math.nan, 2, 2, "seeds"), "every seed gave the same value"),
        (Difference(math.nan, math.nan, math.nan, 0, 1, "seeds"), "no value to compare yet"),
    ],
)  # fmt: skip
def test_verdicts_carry_their_interval_and_their_n(root, found, words):
    a, b = families.families(infos(root, "psr-0", "grpo-0"))
    assert words in comparison.sentence(a, b, METRIC["reward"], found)


def test_the_exam_pairs_prompts(root):
    lab = open_runs([root / "grpo-0", root / "psr-0"])
    left, right = queries.exam(lab, "grpo-0", 6), queries.exam(lab, "psr-0", 6)
    found = comparison.exam_difference([left], [right])
    assert found.n_a == 16
    assert found.value == pytest.approx(left["pass_rate"].mean() - right["pass_rate"].mean())
    assert comparison.exam_difference([left], [left]).value == 0
    assert not comparison.exam_difference([], [right]).has_interval


# -- figures


def test_several_seeds_get_a_band_and_keep_their_points(root, frames):
    shown = families.families(infos(root, *RUNS))
    data = comparison.curves(*frames, METRIC["entropy"])
    fig = views.curves(shown, data, METRIC["entropy"], DARK, window=3, end=3)
    means = [trace for trace in fig.data if "mean of n = 2" in (trace.name or "")]
    assert len(means) == 2 and all(trace.line.width > 2 for trace in means)
    assert len([trace for trace in fig.data if trace.fill == "tonexty"]) == 2
    seeds = [trace for trace in fig.data if trace.mode == "lines+markers" and not trace.showlegend]
    assert len(seeds) == 4 and len({trace.marker.symbol for trace in seeds if trace.legendgroup == shown[0].key}) == 2
    raw = [trace for trace in fig.data if trace.name == "raw"]
    assert sum(len(trace.x) for trace in raw) == len(data)
    alone = next(trace for trace in fig.data if trace.showlegend and "n = 1" in trace.name)
    assert "0.0003" in alone.name and alone.line.dash == shown[2].dash


def test_evaluations_are_never_smoothed(root, frames):
    shown = families.families(infos(root, "slow"))
    data = comparison.curves(*frames, METRIC["pass_at_1"])
    fig = views.curves(shown, data, METRIC["pass_at_1"], LIGHT, window=20)
    assert fig.data[0].y.tolist() == data[data["run"] == "slow"]["value"].tolist()


def test_rounding_noise_is_drawn_flat(root, frames):
    shown = families.families(infos(root, "slow"))
    data = comparison.curves(*frames, METRIC["pass_at_1"])
    noise = data.assign(value=[1.0 + 1e-8 * (-1) ** i for i in range(len(data))])
    low, high = views.curves(shown, noise, METRIC["pass_at_1"], LIGHT).layout.yaxis.range
    assert low == pytest.approx(0.5) and high == pytest.approx(1.5)
    assert views.curves(shown, data, METRIC["pass_at_1"], LIGHT).layout.yaxis.range is None


def test_every_final_value_is_a_point(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0"))
    found = {name: Outcome(name, value, 0.0, 0.0) for name, value in (("grpo-0", 0.8), ("grpo-1", 0.7), ("psr-0", 0.6))}
    fig = views.finals(shown, found, METRIC["pass_at_1"], LIGHT)
    assert sorted(trace.x[0] for trace in fig.data) == [0.6, 0.7, 0.8]
    assert [shape.x0 for shape in fig.layout.shapes] == [pytest.approx(0.75)]


def test_probe_answers_are_coloured_escaped_and_signed(root):
    lab = open_runs([root / "grpo-0"])
    rollouts, tokens = queries.probe_rollouts(lab, "grpo-0", 4, 0), queries.probe_tokens(lab, "grpo-0", 4, 0)
    domain = probes.reach([tokens])
    drawn = probes.answers(rollouts, tokens, domain, LIGHT)
    assert drawn.count('class="say"') == len(rollouts) and drawn.count("<span style=") == len(tokens)
    assert drawn.count('title="correct"') == rollouts["correct"].sum()
    evil = tokens.assign(token="<img src=x onerror=alert(1)>")
    assert "<img" not in probes.answers(rollouts, evil, domain, LIGHT)
    plain = probes.answers(rollouts.assign(text="<b>hi</b>"), tokens.iloc[0:0], 0.0, LIGHT)
    assert "&lt;b&gt;hi" in plain
    assert probes.reach([tokens.iloc[0:0]]) == 0.0
    strong = probes.answers(rollouts, tokens.assign(advantage=50.0), domain, LIGHT)
    assert f",{probes.FULL:.3f})" in strong and ",1.000)" not in strong
    assert f"{rollouts['correct'].sum()} of {len(rollouts)} right" in probes.summary(rollouts)
