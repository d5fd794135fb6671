"""The Compare page in every state; its curves, table and verdicts against the store."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from app import progress
from app.compare import seeds as more_seeds
from app.palette import DARK, LIGHT, method_colour
from app.views import compare as views
from app.views import comparison, families, families_diff, probes
from app.views import comparison_words as words
from app.views.comparison import METRICS, Metric, Outcome
from core.runs import RunInfo, get_run, list_runs
from core.stats.bootstrap import Bootstrap
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
    return tuple(pd.concat([query(lab, run) for run in RUNS]) for query in (queries.metrics, queries.evals))


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
    assert "<code>method.<wbr>name</code>" in html(at) and "≠ psr" in html(at)


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
    assert "1\u00a0run queued: queued" in said and "No step yet" not in said
    assert "Drawn, but not in the numbers: " in said and "(failed, step 4 of 8)" in said
    assert "**one seed cannot tell**" in said


def test_single_seeds_get_an_interval_over_prompts(lab_root, open_page):
    at = open_page("compare", run=["grpo-0", "psr-0"])
    said = texts(at)
    assert "Final held\\-out pass" in said and ", highest first: **" in said and "(1\u00a0seed each)" in said
    assert "one seed each: **one seed cannot tell" in said
    assert "Over the 16\u00a0held-out prompts" in said and "the luck of training is not in it" in said


def test_every_choice_comes_from_the_address(lab_root, open_page, frames):
    chosen = {"metric": "entropy", "align": "tokens", "smooth": 5, "base": 1, "threshold_entropy": 0.4, "step": 4}
    probe = queries.probes(open_runs([lab_root / "grpo-0"]), "grpo-0")["prompt_id"].iloc[1]
    chosen |= {"side": ["psr-0"], "colour": "entropy", "diff_from": "psr-0"}
    at = open_page("compare", run=["grpo-0", "psr-0"], probe=probe, **chosen)
    assert not at.exception and not at.warning
    assert at.selectbox(key="url:metric").value == "entropy" and at.selectbox(key="url:align").value == "tokens"
    assert at.selectbox(key="url:probe").value == probe and at.selectbox(key="url:diff_from").value == "psr-0"
    assert at.multiselect(key="url:side").value == ["psr-0"] and "Colour: entropy" in texts(at)
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
    assert "optimizer.<wbr>lr" in html(at) and "Learning rate" in html(at)
    assert "Not only the method differs" in texts(at) and "`optimizer.lr`" in texts(at)
    diff = next(code.value for code in at.code if "config.yaml" in code.value)
    assert "\n-  lr: 0.001\n" in diff and "\n+  lr: 0.0003\n" in diff


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
    assert families_diff.differences(shown).set_index("setting").loc["method.mass_matched"].tolist() == ["no", "yes"]


def test_differences_name_the_settings_that_differ(root):
    shown = families.families(infos(root, "grpo-0", "psr-1", "slow"))
    table = families_diff.differences(shown).set_index("setting")
    assert table.loc["method.name"].tolist() == ["grpo", "psr", "grpo"]
    assert table.loc["method.rules"].tolist() == ["grpo", "grpo × selection", "grpo"]
    assert table.loc["method.selection.keep"].tolist() == ["–", "positive", "–"]
    assert table.loc["optimizer.lr"].tolist() == ["0.001", "0.001", "0.0003"]
    assert "seed" not in table.index and "name" not in table.index
    assert families_diff.differences(shown[:1]).empty


def test_what_the_recipe_decides_is_a_difference_too(tmp_path):
    make_run(tmp_path, "a", method="grpo", steps=1, **SIZE)
    make_run(tmp_path, "b", method="dapo", steps=1, **SIZE)
    make_run(tmp_path, "c", method="dapo", steps=1, loss={"clip_high": 0.2}, **SIZE)
    table = families_diff.differences(families.families(infos(tmp_path, "a", "b", "c"))).set_index("setting")
    assert table.loc["loss.clip_high"].tolist() == ["0.2 (the recipe's)", "0.28 (the recipe's)", "0.2"]
    assert table.loc["dynamic_sampling.enabled"].tolist() == ["no (the recipe's)", *["yes (the recipe's)"] * 2]
    assert "loss.kl" not in table.index


def test_the_table_marks_what_is_not_the_bases_and_is_inert():
    frame = pd.DataFrame([["optimizer.lr", "0.1", "0.2", "0.1"]], columns=["setting", "<b>a", "b", "c"])
    drawn = families_diff.table(frame, "b", LIGHT)
    assert drawn.count("≠") == 2 and "b (base)" in drawn and "<b>" not in drawn
    assert families_diff.table(frame, "c", LIGHT).count("≠") == 1
    wide = pd.DataFrame([["steps", *"12113"]], columns=["setting", *"abcde"])
    assert "≠ 2: " in families_diff.table(wide, "a", LIGHT) and "≠ 3: " in families_diff.table(wide, "a", LIGHT)


def test_the_diff_of_two_configs_is_what_changed(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0"))
    (first, second), other = shown[0].members, shown[1].members[0]
    lines = families_diff.unified(first, second).splitlines()
    assert lines[0] == "--- grpo-0/config.yaml" and "-seed: 0" in lines and "+seed: 1" in lines
    assert "-  name: grpo" in families_diff.unified(first, other).splitlines()
    assert families_diff.unified(first, first) == ""


def test_runs_that_do_not_answer_the_same_question_say_so_first(tmp_path, monkeypatch, open_page):
    make_run(tmp_path, "a", method="grpo", steps=2, **SIZE)
    make_run(tmp_path, "b", method="psr", steps=2, sampling={"temperature": 0.5}, evaluate={"prompts": 8}, **SIZE)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("compare", run=["a", "b"])
    assert not at.exception
    said = at.warning[0].value
    assert "do not answer the same question" in said and "**Not the same temperature" in said
    assert "8 of 16\u00a0prompts were asked of all runs" in said
    shown = families.families(infos(tmp_path, "a", "b"))
    assert families_diff.unlike(shown[:1], {"a": ["x"]}) == []
    assert "none of 2" in families_diff.unlike(shown, {"a": ["x"], "b": ["y"]})[-1]


# -- which runs count


def test_finished_runs_count_while_others_train(root, tmp_path):
    for name, state, seed in (("a0", "finished", 0), ("b0", "finished", 0), ("a1", "running", 1), ("b1", "failed", 1)):
        make_run(tmp_path, name, method={"a": "grpo", "b": "psr"}[name[0]], steps=2, seed=seed, state=state, **SIZE)
    found = families.judged(families.families(infos(tmp_path, "a0", "a1", "b0", "b1")))
    assert found.runs == ("a0", "b0")
    assert [(member.id, why.partition(",")[0]) for member, why in found.left_out] == [
        ("a1", "trains"),
        ("b1", "failed"),
    ]
    early = families.judged(families.families(infos(tmp_path, "a0", "a1", "b1")))
    assert early.runs == ("a0", "a1", "b1") and not early.left_out, "one method alone has a finished run"


def test_a_repeat_of_a_seed_is_no_further_seed(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path, name, steps=2, seed=3, **SIZE)
    found = families.judged(families.families(infos(tmp_path, "a", "b")))
    assert found.runs == ("a",) and found.left_out[0][1] == "a repeat of seed 3"


def test_missing_seeds_are_offered_with_the_same_settings(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0", "psr-1"))
    params = more_seeds.missing(shown)
    assert params["from"] == "grpo-0" and params["set"] == ['methods=[{"name": "grpo"}, {"name": "psr"}]', "seeds=[2]"]
    assert more_seeds.missing(families.families(infos(root, "grpo-0", "slow"))) is None, "not only the method differs"


def test_the_offer_is_a_draft_that_launch_accepts(lab_root, open_page):
    at = open_page("compare", experiment="x")
    link = next(e.proto for e in at.get("page_link") if "seeds" in e.proto.label)
    assert link.label == "Train more seeds: 2 (2\u00a0runs)"
    params = more_seeds.missing(families.families(infos(lab_root, "grpo-0", "grpo-1", "psr-0", "psr-1")))
    launch = open_page("launch", **params)
    assert not launch.exception and not launch.error and "2\u00a0runs: 2\u00a0methods × 1\u00a0seed" in texts(launch)


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
    found = comparison.mean_curve([curve(("a", [0, 1, 2, 3])), curve(("b", [2, 3]))])
    assert found.values.tolist() == [[0, 1, 0, 2], [1, 2, 1, 3]]


def test_the_band_is_taken_at_equal_cost_and_not_at_equal_steps():
    cheap, dear = curve(("a", [0.0, 1.0, 2.0])), curve(("b", [0.0, 1.0, 2.0]))
    dear["x"] *= 2  # each of its steps cost twice as much
    found = comparison.mean_curve([cheap, dear])
    assert found.values.tolist() == [[0, 0, 0, 0], [1, 0.75, 0.5, 1], [2, 1.5, 1, 2]]


def test_outcomes_are_taken_at_the_last_common_place():
    data = curve(("a", [0.0, 0.5, 1.0, 9.0]), ("b", [0.0, 0.2, 0.4]))
    assert comparison.common_end(data) == 2
    found = comparison.outcomes(data, METRIC["pass_at_1"], 0.5)
    assert (found["a"].start, found["a"].final, found["b"].final, found["a"].step) == (0.0, 1.0, 0.4, 2)
    assert found["a"].area == pytest.approx(0.5) and found["a"].reached == 1 and math.isnan(found["b"].reached)
    noisy = comparison.outcomes(curve(("a", [0, 0, 1, 2, 3, 4, 5])), METRIC["reward"], 0.5)
    assert noisy["a"].final == 3 and noisy["a"].start == 1.2  # the means of the last and the first five


def test_one_lucky_step_does_not_reach_the_threshold():
    lucky = comparison.outcomes(curve(("a", [0, 0, 0, 0, 1, 0, 0, 0])), METRIC["reward"], 0.5)
    assert math.isnan(lucky["a"].reached)
    steady = comparison.outcomes(curve(("a", [1, 1, 1, 1, 1, 0, 0, 0, 0])), METRIC["entropy"], 0.5)
    assert steady["a"].reached == 7


def test_at_equal_tokens_the_numbers_stop_where_the_cheapest_run_does():
    data = curve(("a", [0.0, 0.4, 0.8]), ("b", [0.0, 0.2, 0.4]))
    data.loc[data["run"] == "a", "x"] *= 2
    found = comparison.outcomes(data, METRIC["pass_at_1"], 0.5)
    assert (found["a"].final, found["a"].step, found["b"].final, found["b"].step) == (0.4, 1, 0.4, 2)


def test_the_threshold_starts_halfway():
    assert comparison.default_threshold(curve(("a", [0.2, 0.8]), ("b", [0.2, 0.4]))) == 0.5
    assert comparison.default_threshold(curve()) == 0.5


def outcome(run, final, start=0.4, area=0.6, reached=math.nan):
    return Outcome(run, start, final, area, reached, 6)


def test_the_table_says_how_many_seeds_reached_it(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0"))
    found = {"grpo-0": outcome("grpo-0", 0.8, reached=10.0)} | {
        run: outcome(run, value) for run, value in (("grpo-1", 0.7), ("psr-0", 0.6))
    }
    table = words.summary(shown, found, METRIC["pass_at_1"], "step")
    assert table["Final held-out pass@1"].tolist() == ["0.75 (0.7 to 0.8)", "0.6"]
    assert table["Threshold reached"].tolist() == ["step 10, 1 of 2 seeds", "not reached"]
    assert words.every_run(shown, found)["final"].tolist() == [0.8, 0.7, 0.6]


def test_the_first_line_says_which_method_kept_entropy(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0", "psr-1"))
    found = {run: outcome(run, value) for run, value in zip(RUNS, [0.2, 0.3, 0.1, 0.1], strict=False)}
    assert words.ranking(shown, found, METRIC["entropy"]) == (
        "Final entropy, highest first: **GRPO 0.25\u00a0nats**, PSR 0.1 (2\u00a0seeds each); they began near "
        "0.4\u00a0nats, of which GRPO kept 62\u00a0% and PSR kept 25\u00a0%."
    )
    found.pop("psr-1")
    assert "**GRPO 0.25** (2\u00a0seeds), PSR 0.1 (1\u00a0seed)" in words.ranking(shown, found, METRIC["reward"])
    assert words.ranking(shown, {}, METRIC["reward"]) == ""
    found["psr-0"] = replace(found["psr-0"], start=0.0)
    assert words.ranking(shown, found, METRIC["reward"]).endswith("; they began between 0 and 0.4.")


def test_at_a_glance_every_number_names_its_highest_and_whether_that_is_luck(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0", "psr-1"))
    clear = {run: outcome(run, value) for run, value in zip(RUNS, [0.30, 0.31, 0.10, 0.11], strict=False)}
    noisy = {run: outcome(run, value) for run, value in zip(RUNS, [0.1, 0.5, 0.2, 0.3], strict=False)}
    single = {run: clear[run] for run in ("grpo-0", "psr-0")}
    same = {run: outcome(run, 1.0) for run in clear}
    every = [(METRIC["entropy"], clear), (METRIC["reward"], noisy), (METRIC["greedy"], single), (METRIC["kl"], same)]
    table = words.glance(shown, every)
    assert table["More than luck?"].tolist() == ["yes, 2\u00a0seeds", "not shown by 2\u00a0seeds", "one seed", "–"]
    assert table.loc[0, ["Highest", "Lowest"]].tolist() == ["GRPO 0.305\u00a0nats", "PSR 0.105\u00a0nats"]
    assert words.glance(shown[:1], every).empty
    note = words.glance_note(shown, every)
    assert "one comparison of two methods: *yes* needs Welch's 95\u00a0% interval" in note and "4\u00a0rows" in note
    assert words.glance_note(shown, every[2:3]) == (
        "No two methods here have two seeds, so no row can tell a method from luck."
    )


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[families.Family]:
    """Three methods with two seeds each, and one with a single seed."""
    root = tmp_path_factory.mktemp("three")
    for method, seeds in (("grpo", (0, 1)), ("psr", (0, 1)), ("nsr", (0, 1)), ("rloo", (0,))):
        for seed in seeds:
            make_run(root, f"{method}-{seed}", method=method, seed=seed, steps=1, **SIZE)
    return families.families(sorted(list_runs(root, examples=False), key=lambda info: info.id))


def ends(shown: list[families.Family], **finals: tuple[float, ...]) -> dict[str, Outcome]:
    by_method = {family.method: family.runs for family in shown}
    return {
        run: outcome(run, value)
        for method, values in finals.items()
        for run, value in zip(by_method[method], values, strict=False)
    }


def test_only_pairs_that_could_be_told_apart_are_comparisons(three):
    found = ends(three, grpo=(0.4, 0.5), psr=(0.2, 0.3), nsr=(0.1, 0.2), rloo=(0.3,))
    assert words.comparisons(three, found) == 3, "RLOO has one seed and cannot be told from any"
    assert words.comparisons(three, ends(three, grpo=(0.4, 0.5), psr=(0.2, 0.3))) == 1
    assert words.comparisons(three, ends(three, grpo=(0.4,))) == 1
    assert words.strict_level(3) == pytest.approx(1 - 0.05 / 3)


def test_sentence_and_glance_say_the_same_of_the_same_pair(three):
    """What only the 95 % interval shows is "on its own" in both, never "lower" here and "not shown" there."""
    by_method = {family.method: family for family in three}
    grpo, nsr = by_method["grpo"], by_method["nsr"]
    cases = {
        "": ends(three, grpo=(0.500, 0.501), psr=(0.30, 0.33), nsr=(0.200, 0.201)),
        " on its own, not among 3 comparisons": ends(three, grpo=(0.44, 0.50), psr=(0.3, 0.4), nsr=(0.24, 0.29)),
    }
    for words_of, found in cases.items():
        assert comparison.difference(nsr, grpo, found).verdict == "lower", "both, by the 95 % interval"
        pair = words.judge(nsr, grpo, three, found)
        assert pair.comparisons == 3 and pair.verdict == f"lower{words_of}"
        assert words.sentence(pair, grpo, METRIC["reward"]).endswith(f": **lower{words_of}**.")
        told = words.glance(three, [(METRIC["reward"], found)]).loc[0, "More than luck?"]
        assert told == f"{words_of.strip() or 'yes'}, 2\u00a0seeds"
    alone = words.judge(nsr, grpo, [grpo, nsr], cases[" on its own, not among 3 comparisons"])
    assert alone.comparisons == 1 and alone.verdict == "lower", "two methods are one comparison"
    noisy = ends(three, grpo=(0.5, 0.9), psr=(0.3, 0.4), nsr=(0.1, 0.4))
    assert words.judge(nsr, grpo, three, noisy).verdict == "not distinguishable"
    assert words.glance(three, [(METRIC["reward"], noisy)])["More than luck?"].tolist() == ["not shown by 2\u00a0seeds"]


def test_the_glance_needs_the_bootstrap_over_prompts_too(three):
    """As the sentence does: seeds agree, but which prompts were asked decides which method is ahead."""
    grpo, psr = (next(family for family in three if family.method == method) for method in ("grpo", "psr"))
    found = ends(three, grpo=(0.500, 0.501), psr=(0.300, 0.301))
    rates = {grpo.key: [1.0, 0.0] * 4, psr.key: [0.0, 1.0] * 4}
    exams = {
        run: pd.DataFrame({"prompt_id": list("abcdefgh"), "pass_rate": rates[family.key]})
        for family in (grpo, psr)
        for run in family.runs
    }
    pair = words.judge(grpo, psr, [grpo, psr], found, exams)
    assert pair.found.verdict == "higher" and pair.drawn.low < 0 < pair.drawn.high
    assert pair.verdict == "not distinguishable"
    every = [(METRIC["pass_at_1"], found)]
    told = [words.glance([grpo, psr], every, given).loc[0, "More than luck?"] for given in (None, {"pass_at_1": exams})]
    assert told == ["yes, 2\u00a0seeds", "not shown by 2\u00a0seeds"]


def test_the_notes_say_how_many_seeds_comparisons_and_which_interval(three):
    found = ends(three, grpo=(0.44, 0.50), psr=(0.3, 0.4), nsr=(0.24, 0.29), rloo=(0.3,))
    grpo = next(family for family in three if family.method == "grpo")
    pairs = [words.judge(family, grpo, three, found) for family in three if family is not grpo]
    said = words.how_sure(pairs)
    assert "make 3\u00a0comparisons" in said and "up to 15 times in 100" in said
    assert (
        "widened from 95\u00a0% to 98.33\u00a0%" in said and "Over 2\u00a0seeds a bootstrap is far too narrow" in said
    )
    note = words.glance_note(three, [(METRIC["reward"], found)])
    assert "the 3 comparisons that 3 methods with two seeds or more make" in note and "98.33\u00a0% interval" in note
    assert "one comparison" in words.how_sure([words.judge(pairs[0].family, grpo, [grpo, pairs[0].family], found)])


NONE = Bootstrap(math.nan, math.nan, math.nan, 0, 0, "nothing")


@pytest.mark.parametrize(
    ("found", "drawn", "said"),
    [
        (Difference(0.02, -0.01, 0.05, 5, 5, "seeds"), NONE,
         "+0.02 \\[−0.01, +0.05\\], 5\u00a0seeds each: **not disting"),
        (Difference(0.2, 0.1, 0.3, 3, 2, "seeds"), Bootstrap(0.2, 0.1, 0.2, 3, 2, "seeds", prompts=1),
         "3 and 2 seeds; bootstrap over 3 and 2 seeds \\[+0.1, +0.2\\]: **higher**"),
        (Difference(0.2, -0.1, 0.3, 3, 3, "seeds"), Bootstrap(0.2, 0.1, 0.2, 3, 3, "seeds and prompts", 0.95, 64, True),
         "bootstrap over 3\u00a0seed pairs × 64\u00a0prompts \\[+0.1, +0.2\\]: **not distinguishable**"),
        (Difference(-0.2, math.nan, math.nan, 1, 1, "seeds"), NONE, "one seed each: **one seed cannot tell"),
        (Difference(-0.2, math.nan, math.nan, 1, 1, "seeds"), Bootstrap(-0.2, -0.3, -0.1, 1, 1, "prompts", prompts=64),
         "Over the 64\u00a0held-out prompts: −0.2 \\[−0.3, −0.1\\]. That covers which prompts were asked"),
        (Difference(-0.2, math.nan, math.nan, 2, 2, "seeds"), NONE, "every seed gave the same value"),
        (Difference(math.nan, math.nan, math.nan, 0, 1, "seeds"), NONE, "no value to compare yet"),
    ],
)  # fmt: skip
def test_verdicts_carry_their_intervals_and_their_n(root, found, drawn, said):
    a, b = families.families(infos(root, "psr-0", "grpo-0"))
    pair = words.Pair(a, found, drawn)
    assert said in words.sentence(pair, b, METRIC["reward"])


def test_how_sure_says_how_narrow_a_bootstrap_over_few_seeds_is():
    found = Difference(0.2, 0.1, 0.3, 3, 3, "seeds")
    drawn = Bootstrap(0.2, 0.1, 0.2, 3, 3, "seeds and prompts", 0.95, 64, True)
    said = words.how_sure([words.Pair(None, found, drawn)])
    assert "far too narrow: it holds the truth about 75 times in 100" in said
    assert "in pairs" in said and "held-out prompts" in said
    many = Difference(0.2, 0.1, 0.3, 30, 30, "seeds")
    assert "narrow" not in words.how_sure([words.Pair(None, many, drawn)])
    assert words.how_sure([words.Pair(None, replace(found, low=math.nan), drawn)]) == ""


def test_many_pairs_are_one_line_and_a_table(root):
    shown = families.families(infos(root, *RUNS))
    seeds, none = Difference(-0.2, -0.3, -0.1, 2, 2, "seeds"), Difference(0.1, math.nan, math.nan, 1, 2, "seeds")
    both = Bootstrap(-0.2, -0.3, -0.1, 2, 2, "seeds and prompts", prompts=64, paired=True)
    alone = Bootstrap(0.1, 0.05, 0.2, 1, 2, "prompts", prompts=64)
    pairs = [words.Pair(shown[1], seeds, both), words.Pair(shown[2], none, alone)]
    said = words.conclusion(pairs, shown[0])
    assert said.startswith("Against GRPO") and "PSR **lower**; " in said and "**one seed cannot tell**." in said
    table = words.pair_table(pairs, shown[0], METRIC["entropy"])
    assert table["Difference"].tolist() == ["−0.2\u00a0nats", "+0.1\u00a0nats"]
    assert table["Over seeds (Welch's t, 95\u00a0%)"].tolist() == [
        "\\[−0.3, −0.1\\], 2\u00a0seeds",
        "none, 1 and 2 seeds",
    ]
    assert table["Bootstrap"].tolist()[1].endswith("64\u00a0prompts, without the luck of training")


def test_three_methods_against_a_base_are_a_table_on_the_page(tmp_path, monkeypatch, open_page):
    for method in ("grpo", "psr", "nsr", "rloo"):
        make_run(tmp_path, method, method=method, steps=2, **SIZE)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("compare", run=["grpo", "psr", "nsr", "rloo"])
    assert not at.exception and not at.error
    assert "Against GRPO: PSR, NSR, RLOO **one seed cannot tell**." in texts(at)
    assert len(at.table[0].value) == 3 and at.table[0].value.columns[0] == "Minus GRPO"


def test_the_bootstrap_pairs_seeds_and_prompts(root):
    lab = open_runs([root / name for name in RUNS])
    shown = families.families(infos(root, *RUNS[:4]))
    exams = {run: queries.exam(lab, run, 6) for run in RUNS[:4]}
    found = {run: outcome(run, exam["pass_rate"].mean()) for run, exam in exams.items()}
    drawn = comparison.resampled(*shown, found, exams)
    assert (drawn.unit, drawn.n_a, drawn.prompts, drawn.paired) == ("seeds and prompts", 2, 16, True)
    assert drawn.value == pytest.approx(comparison.difference(*shown, found).value)
    shuffled = {run: exam.sample(frac=1, random_state=i) for i, (run, exam) in enumerate(exams.items())}
    assert comparison.resampled(*shown, found, shuffled).value == pytest.approx(drawn.value)
    assert comparison.resampled(*shown, found).unit == "seeds"
    halved = exams | {"psr-0": exams["psr-0"].head(8)}
    assert comparison.resampled(*shown, found, halved).prompts == 8, "only what all were asked"
    apart = exams | {"psr-0": exams["psr-0"].assign(prompt_id="other")}
    assert comparison.resampled(*shown, found, apart).unit == "seeds"


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


def test_mean_and_band_are_about_the_runs_that_count(root, frames):
    shown = families.families(infos(root, *RUNS[:4]))
    data = comparison.curves(*frames, METRIC["entropy"])
    fig = views.curves(shown, data, METRIC["entropy"], DARK, counted=["grpo-1", "psr-0", "psr-1"])
    grpo = [trace for trace in fig.data if trace.legendgroup == shown[0].key]
    assert [(trace.name, trace.showlegend) for trace in grpo] == [("seed 0", False), (f"{shown[0].label}, n = 1", True)]
    assert len([trace for trace in fig.data if "mean of n = 2" in trace.name]) == 1


def test_evaluations_are_never_smoothed(root, frames):
    shown = families.families(infos(root, "slow"))
    data = comparison.curves(*frames, METRIC["pass_at_1"])
    fig = views.curves(shown, data, METRIC["pass_at_1"], LIGHT, window=20)
    assert fig.data[0].y.tolist() == pytest.approx(data[data["run"] == "slow"]["value"].tolist(), rel=1e-6)


def test_rounding_noise_is_drawn_flat(root, frames):
    shown = families.families(infos(root, "slow"))
    data = comparison.curves(*frames, METRIC["pass_at_1"])
    noise = data.assign(value=[1.0 + 1e-8 * (-1) ** i for i in range(len(data))])
    low, high = views.curves(shown, noise, METRIC["pass_at_1"], LIGHT).layout.yaxis.range
    assert low == pytest.approx(0.5) and high == pytest.approx(1.5)
    assert views.curves(shown, data, METRIC["pass_at_1"], LIGHT).layout.yaxis.range is None


def test_every_final_value_is_a_point(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1", "psr-0"))
    found = {name: outcome(name, value) for name, value in (("grpo-0", 0.8), ("grpo-1", 0.7), ("psr-0", 0.6))}
    fig = views.finals(shown, found, METRIC["pass_at_1"], LIGHT)
    assert sorted(x for trace in fig.data for x in trace.x) == [0.6, 0.7, 0.8]
    assert [shape.x0 for shape in fig.layout.shapes] == [pytest.approx(0.75)]


def test_long_curves_are_thinned_and_keep_their_last_point(root):
    shown = families.families(infos(root, "grpo-0", "grpo-1"))
    data = curve(*((run, [float(i) for i in range(2001)]) for run in ("grpo-0", "grpo-1")))
    fig = views.curves(shown, data, METRIC["reward"], LIGHT, window=5)
    assert all(len(trace.x) <= views.MOST_POINTS and trace.x[-1] == 2000 for trace in fig.data)
    assert views.most_points(1) == views.MOST_POINTS and 30 * views.most_points(30) <= views.MOST_TOGETHER


@pytest.mark.parametrize("field", list(probes.COLOURS.values()), ids=lambda field: field.id)
def test_probe_answers_are_coloured_escaped_and_signed(root, field):
    lab = open_runs([root / "grpo-0"])
    rollouts, tokens = queries.probe_rollouts(lab, "grpo-0", 4, 0), queries.probe_tokens(lab, "grpo-0", 4, 0)
    domain = probes.reach([tokens], field)
    drawn = probes.answers(rollouts, tokens, field, domain, LIGHT)
    assert drawn.count('class="say"') == len(rollouts) and drawn.count("<span style=") == len(tokens)
    assert drawn.count('title="correct"') == rollouts["correct"].sum()
    assert f": {field.label} " in drawn
    evil = tokens.assign(token="<img src=x onerror=alert(1)>")
    assert "<img" not in probes.answers(rollouts, evil, field, domain, LIGHT)
    plain = probes.answers(rollouts.assign(text="<b>hi</b>"), tokens.iloc[0:0], field, 0.0, LIGHT)
    assert "&lt;b&gt;hi" in plain
    assert probes.reach([tokens.iloc[0:0]], field) == 0.0
    strong = probes.answers(
        rollouts, tokens.assign(advantage=50.0, entropy=50.0, sampler_logprob=0.0), field, domain, LIGHT
    )
    assert f",{probes.FULL:.3f})" in strong and ",1.000)" not in strong
    assert "one scale for" in probes.scale(field, domain, LIGHT) and "No token" in probes.scale(field, 0.0, LIGHT)
    assert f"{rollouts['correct'].sum()} of {len(rollouts)} right" in probes.summary(rollouts)


def test_one_scale_for_all_runs_is_that_of_their_tokens_together(root):
    lab = open_runs([root / "grpo-0"])
    tokens = queries.probe_tokens(lab, "grpo-0", 4, 0)
    small, large = (tokens.assign(advantage=value) for value in (0.1, 3.0))
    assert probes.reach([small, large], probes.COLOURS["advantage"]) == pytest.approx(3.0)
    assert probes.reach([small], probes.COLOURS["probability"]) == 1.0


# -- while it trains


@pytest.fixture
def training(tmp_path, monkeypatch):
    """An experiment of two methods and two seeds: the first round is done, one trains, one waits."""
    for i, (name, state, seed) in enumerate(
        (("grpo-0", "finished", 0), ("psr-0", "finished", 0), ("grpo-1", "running", 1), ("psr-1", "queued", 1))
    ):
        steps = 6 if state == "finished" else 3  # what is recorded: half of the run while it trains
        path = make_run(tmp_path, name, method=name[:-2], steps=steps, seed=seed, state=state, experiment="e", **SIZE)
        break_status(path, created=1000.0 + i, experiment_name="Two <b>methods</b>")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    return tmp_path


def test_finished_parts_show_while_others_train(training, open_page):
    at = open_page("compare", experiment="e")
    assert not at.exception and not at.error
    said = texts(at)
    assert "Drawn, but not in the numbers: " in said and "(trains, step 3 of 6)" in said
    assert at.dataframe[0].value["Seeds"].tolist() == [1, 1]
    assert not any("more seeds" in link.proto.label for link in at.get("page_link")), "they are on their way"
    (bar,) = at.get("progress")
    assert "**Two \\<b\\>methods\\<\\/b\\>** · 2 of 4\u00a0runs done · about" in bar.proto.text
    every = infos(training, "grpo-0", "psr-0", "grpo-1", "psr-1")
    assert bar.proto.value == int(100 * 15 / sum(info.total for info in every))
    assert "(step 3 of 6)" in said and "1\u00a0run queued: " in said


def test_the_page_is_drawn_again_only_when_something_was_written(training, open_page, monkeypatch):
    looks, drawn = [], []

    def fragment(look, run_every=None):
        looks.append((look, run_every))
        return look

    monkeypatch.setattr("app.progress.st.fragment", fragment)
    monkeypatch.setattr("app.progress.st.rerun", lambda: drawn.append(True))
    monkeypatch.setattr("app.progress.show", lambda infos: None)
    monkeypatch.setattr("app.data._runs", lambda root: list_runs(Path(root), examples=False))
    progress.follow(infos(training, "grpo-0", "grpo-1"))
    look, every = looks[-1]
    look()
    look()
    assert every == progress.EVERY_S and not drawn
    break_status(training / "grpo-1", state="stopped")
    look()
    assert len(drawn) == 1
    looks.clear()
    progress.follow(infos(training, "grpo-0"))
    look, _ = looks.pop()
    look()
    for name in ("grpo-1", "psr-1"):
        break_status(training / name, state="stopped")
    look()
    assert len(drawn) == 2, "the last of the experiment has ended: once more, without a timer"
    progress.follow(infos(training, "grpo-0", "grpo-1"))
    assert not looks, "nothing lives any more"
