"""The Live page in every state of a run, and its figures."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app import data
from app.palette import DARK, LIGHT
from app.progress import telling
from app.views import samples
from app.views.curves import CURVES, GAP, MORE, part_panels
from app.views.live import MOST_POINTS, Line, Series, curves, drawn, legend_html, numbers, one_each
from app.widgets import STATE_ICON
from core.advantage.tis import GAP_METRICS
from core.runs import list_runs
from core.store.queries.live import Curves
from tests.app.conftest import STATES, break_status, texts
from tests.synthetic import make_run

TINY = {"prompts": 2, "group_size": 2}


def charts(at: AppTest) -> int:
    return len(at.get("plotly_chart"))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_state_opens(states, open_page, state, dark):
    at = open_page("live", dark=dark, run=state)
    assert not at.exception
    assert not any("Something went wrong" in error.value for error in at.error)
    assert at.query_params["run"] == state
    assert charts(at) == (0 if state in ("queued", "empty") else 6)


def test_no_run_at_all_says_what_would_fill_the_page(no_runs, open_page):
    at = open_page("live")
    assert not at.exception
    assert "no run yet" in texts(at)
    assert charts(at) == 0


def test_a_finished_run_gets_a_verdict_with_its_n(states, open_page):
    said = texts(open_page("live", run="finished"))
    assert "held-out pass@1" in said
    assert "16 prompts × 8 rollouts" in said
    assert "Newest rollouts** · step 5" in said


def test_a_run_without_a_step_says_what_it_waits_for(states, open_page):
    said = texts(open_page("live", run="queued"))
    assert "No step is done yet" in said


def test_a_failed_run_shows_its_last_words_and_its_log(tmp_path, no_runs, open_page):
    make_run(no_runs, "dead", steps=6, state="failed", error="loss is NaN at step 6 <b>x</b>", **TINY)
    at = open_page("live", run="dead")
    assert any("loss is NaN at step 6" in error.value for error in at.error)
    assert "step 5" in at.code[0].value
    assert any(one.key == "resume:dead" for one in at.button)
    assert charts(at) == 6


def test_several_runs_share_their_axes(states, open_page):
    at = open_page("live", run=["finished", "sealed", "running"])
    assert not at.exception
    assert charts(at) == 6
    assert len(at.get("progress")) == 3
    assert next(one for one in at.multiselect).value == ["finished", "sealed", "running"]


def test_an_experiment_means_its_runs_oldest_first(no_runs, open_page):
    for i, method in enumerate(("grpo", "psr", "nsr")):
        path = make_run(no_runs, f"e-{method}", method=method, steps=2, experiment="e1", **TINY)
        break_status(path, created=1000.0 + i, look_for="Watch the <b>length</b>.")
    at = open_page("live", experiment="e1")
    assert at.multiselect(key="url:run").value == ["e-grpo", "e-psr", "e-nsr"]
    assert at.query_params["experiment"] == "e1" and "run" not in at.query_params
    assert "What to look for" in texts(at)
    link = next(element.proto for element in at.get("page_link") if "Compare" in element.proto.label)
    assert link.label == "Compare all 3" and "experiment=e1" in link.query_string
    assert open_page("live").query_params["experiment"] == "e1", "the newest experiment comes whole"
    at.multiselect(key="url:run").set_value(["e-psr"]).run()
    assert at.query_params["run"] == "e-psr" and charts(at) == 6


@pytest.fixture
def large(no_runs):
    """An experiment of four methods and two seeds, in the order in which its runs go: one trains, two wait."""
    states = ["finished"] * 5 + ["running", "queued", "queued"]
    for i, state in enumerate(states):
        method = ("grpo", "psr", "nsr", "a3po")[i % 4]
        path = make_run(no_runs, f"r{i}", method=method, seed=i // 4, steps=2, state=state, experiment="big", **TINY)
        break_status(path, created=1000.0 + i, experiment_name="Big")
    return no_runs


def test_of_a_large_experiment_those_that_train_are_shown_first(large, open_page):
    at = open_page("live", experiment="big")
    assert not at.exception
    assert at.multiselect(key="url:run").value == ["r0", "r1", "r2", "r3", "r4", "r5"]
    said = texts(at)
    assert "6 of its 8 runs: those that train now, then the newest one of each method" in said
    bars = [element.proto for element in at.get("progress")]
    assert "**Big** · 5 of 8\u00a0runs done · about" in bars[0].text and len(bars) == 7
    assert "Now: **r5** (step 2 of 4)" in said
    assert "2\u00a0runs queued: " in said


def test_what_tells_most_moves_on_with_the_queue(large):
    runs = {info.id: info for info in list_runs(large, examples=False)}
    family = [runs[f"r{i}"] for i in range(8)]
    assert [info.id for info in telling(family, 3)] == ["r3", "r4", "r5"], "what trains, then the newest of a method"
    family[5:7] = [replace(family[5], state="finished"), replace(family[6], state="running", step=1)]
    assert [info.id for info in telling(family, 3)] == ["r4", "r5", "r6"]
    waiting = [replace(info, state="queued", step=0) for info in family]
    assert [info.id for info in telling(waiting, 2)] == ["r0", "r1"], "the next in line"


def test_the_page_goes_on_while_others_of_the_experiment_train(large, open_page, monkeypatch):
    seen = []
    monkeypatch.setattr("streamlit.fragment", lambda draw, run_every=None: seen.append(run_every) or draw)
    open_page("live", experiment="big", run="r0")
    assert [every for every in seen if every not in (None, 3.0)] == [2.0]


@pytest.mark.parametrize(
    "params", [{"run": "zork"}, {"experiment": "zork"}, {"smooth": "7"}, {"run": ["../..", "finished"]}]
)
def test_bad_choices_give_a_sentence(states, open_page, params):
    at = open_page("live", **params)
    assert not at.exception
    assert len(at.warning) >= 1
    assert charts(at) > 0 or len(at.get("progress"))


def test_more_than_six_runs_are_cut_with_a_sentence(states, open_page):
    at = open_page("live", run=list(STATES))
    assert any("first 6" in warning.value for warning in at.warning)
    assert len(at.get("progress")) == 6


def test_more_curves_are_a_choice_in_the_address(states, open_page):
    assert charts(open_page("live", run="finished", more="1")) > 6


def test_stop_is_offered_while_it_runs(states, open_page):
    keys = [one.key for one in open_page("live", run="running").button]
    assert "stop:running" in keys
    assert "resume:stopped" in [one.key for one in open_page("live", run="stopped").button]


def test_a_fragment_refreshes_while_a_run_is_live_and_not_after(states, open_page, monkeypatch):
    seen = []
    monkeypatch.setattr("streamlit.fragment", lambda draw, run_every=None: seen.append(run_every) or draw)
    open_page("live", run="running")
    open_page("live", run="finished")
    assert [every for every in seen if every not in (None, 3.0)] == [2.0]  # 3 s: the list of the page it came from


def test_the_sign_in_a_runs_chip_follows_its_state(no_runs, open_page, monkeypatch):
    run = make_run(no_runs, "mine", steps=2, state="queued", **TINY)
    moved = []

    def fragment(draw, run_every=None):
        def later():
            if not moved:
                moved.append(break_status(run, state="running", heartbeat=time.time()))
                data.refresh()
            draw()

        return later

    monkeypatch.setattr("streamlit.fragment", fragment)
    at = open_page("live", run="mine")
    assert moved and not at.exception
    assert at.multiselect[0].options[0].startswith(STATE_ICON["running"])


def test_a_run_of_one_model_says_that_there_is_no_gap(states, open_page):
    said = texts(open_page("live", run=["finished", "running"]))
    assert "the sampler and the trainer are the same model here" in said
    assert "Mean ratio" not in said


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_gap_between_sampler_and_trainer_has_its_panels(no_runs, open_page, dark):
    make_run(no_runs, "gap", steps=6, gap=0.01, **TINY)
    at = open_page("live", run="gap", dark=dark)
    assert not at.exception
    said = texts(at)
    assert "**Sampler against trainer**" in said and "the same model" not in said
    assert charts(at) == 9
    assert "disagree" not in said


def test_a_large_gap_is_an_alert_for_one_run_and_for_several(no_runs, open_page):
    make_run(no_runs, "far", steps=6, gap=0.4, **TINY)
    make_run(no_runs, "same", steps=6, **TINY)
    assert "**Sampler and trainer disagree**" in texts(open_page("live", run="far"))
    at = open_page("live", run=["far", "same"])
    assert "far: **Sampler and trainer disagree**" in texts(at)
    assert charts(at) == 9


def test_a_gap_that_was_not_recorded_is_no_claim_of_one_model(no_runs, open_page):
    path = make_run(no_runs, "old", steps=3, **TINY)
    for file in path.glob("steps/*/metrics.parquet"):
        rows = pq.read_table(file, partitioning=None).drop_columns(list(GAP_METRICS))
        place = rows.schema.get_field_index("entropy_source")
        pq.write_table(rows.set_column(place, rows.schema.field(place), pa.array(["trainer"])), file)
    said = texts(open_page("live", run="old"))
    assert "the gap between them was not recorded" in said
    assert "the same model" not in said


def test_a_level_is_in_the_middle_of_its_axis_with_every_point_on_it():
    run = series(tis_mean_ratio=[1.0] * 9 + [1.3])
    fig = next(panel for panel in GAP if panel.key == "ratio").figure([run], LIGHT, smooth=1)
    low, high = fig.layout.yaxis.range
    assert (low + high) / 2 == pytest.approx(1)
    assert high > 1.3
    (line,) = fig.layout.shapes
    assert line.y0 == line.y1 == 1
    calm = next(panel for panel in GAP if panel.key == "ratio").figure([series(tis_mean_ratio=[1.0] * 10)], LIGHT, 5)
    assert calm.layout.yaxis.range[1] > 1.05, "rounding must not look like a move"


def test_the_gap_is_drawn_with_its_largest_on_a_logarithmic_axis():
    run = series(gap_mean=[0.01] * 10, gap_max=[0.5] * 10, gap_share=[0.02] * 10, tis_capped_share=[0.0] * 10)
    gap, far = (panel.figure([run], LIGHT, smooth=1) for panel in GAP[1:])
    assert [trace.name for trace in gap.data] == ["largest", "mean"]
    assert gap.layout.yaxis.type == "log"
    assert [trace.name for trace in far.data] == ["far apart", "cut at the cap"]


def series(name="a", steps=10, **columns) -> Series:
    metrics = pd.DataFrame({"step": range(steps), **columns})
    evals = pd.DataFrame({"step": [0, steps], "pass_at_1": [0.4, 0.6], "greedy": [0.5, None]})
    return Series(name, name, "#0072b2", "solid", Curves(metrics, evals, 1))


def test_a_figure_names_its_axes_and_draws_what_there_is():
    run = series(reward=np.linspace(0, 1, 10))
    fig = curves(LIGHT, one_each([run], "reward"), title="Reward", y="mean reward")
    assert (fig.layout.title.text, fig.layout.xaxis.title.text, fig.layout.yaxis.title.text) == (
        "Reward",
        "step",
        "mean reward",
    )
    assert drawn(fig) == 1
    assert list(fig.data[0].y) == pytest.approx(list(np.linspace(0, 1, 10)))
    assert drawn(curves(LIGHT, one_each([run], "kl"), title="KL", y="nats")) == 0


@pytest.mark.parametrize(("steps", "ticks"), [(2, 1), (200, None)])
def test_a_tick_is_a_whole_step(steps, ticks):
    run = series(steps=steps, reward=np.linspace(0, 1, steps))
    assert curves(LIGHT, one_each([run], "reward"), title="Reward", y="mean reward").layout.xaxis.dtick == ticks
    assert curves(LIGHT, one_each([run], "kl"), title="KL", y="nats").layout.xaxis.dtick == 1


def test_smoothing_is_a_trailing_mean_over_pale_raw_values():
    run = series(reward=[0.0, 1.0] * 5)
    raw, smooth = curves(LIGHT, one_each([run], "reward"), title="", y="", smooth=2).data
    assert list(raw.y) == [0.0, 1.0] * 5
    assert list(smooth.y) == [0.0] + [0.5] * 9
    assert raw.showlegend is False


def test_evaluations_are_points_and_never_smoothed():
    (trace,) = curves(LIGHT, one_each([series()], "pass_at_1", "evals"), title="", y="", smooth=15).data
    assert trace.mode == "lines+markers"
    assert list(trace.y) == [0.4, 0.6]


def test_long_runs_are_thinned_and_keep_their_newest_point():
    steps = 3 * MOST_POINTS + 1
    (trace,) = curves(LIGHT, one_each([series(steps=steps, reward=np.arange(steps))], "reward"), title="", y="").data
    assert len(trace.x) <= MOST_POINTS
    assert trace.x[-1] == steps - 1


def test_names_in_a_figure_are_inert():
    run = series("<a href='x'>%{y}</a>", reward=[1.0] * 10)
    fig = curves(DARK, one_each([run, series("b", reward=[1.0] * 10)], "reward"), title="", y="")
    assert "<a" not in fig.data[0].name
    assert "%{" not in fig.data[0].name
    assert "<a" not in legend_html([run])


def test_downloads_hold_the_numbers_that_are_drawn():
    a, b = series("a", reward=[1.0] * 10), series("b", steps=3, reward=[2.0] * 3)
    frame = numbers(one_each([a, b], "reward"))
    assert list(frame.columns) == ["run", "step", "reward"]
    assert len(frame) == 13
    both = numbers(
        [Line(a, "pass_at_1", "p", "#000000", "solid", "evals"), Line(a, "greedy", "g", "#000000", "solid", "evals")]
    )
    assert list(both.columns) == ["run", "step", "pass_at_1", "greedy"]


@pytest.mark.parametrize("panel", [*CURVES, *MORE, *GAP], ids=lambda panel: panel.key)
@pytest.mark.parametrize("runs", [1, 3])
def test_every_panel_draws_any_number_of_runs(panel, runs, states_root):
    from core.store.queries.live import Follower

    several = [
        Series(name, name, "#0072b2", "solid", Follower(states_root / name).read())
        for name in ("finished", "sealed", "running")[:runs]
    ]
    fig = panel.figure(several, LIGHT, smooth=5)
    assert fig.layout.title.text
    assert fig.layout.yaxis.title.text
    assert panel.how
    if panel in CURVES:
        assert drawn(fig) >= runs


def test_a_table_of_rollouts_is_inert_and_signed():
    frame = pd.DataFrame(
        {
            "group": [0, 1], "rollout": [0, 2], "prompt": ["<b>7+8=?</b>", "x"],
            "text": ["<script>alert(1)</script>", ""],
            "correct": [True, False], "truncated": [False, True], "kept": [True, False], "length": [5, 72],
            "advantage": [0.5, -1.25],
        }
    )  # fmt: skip
    page = samples.table(frame, LIGHT, lambda group, rollout: f'tokens?x="&g={group}')
    assert "<script" not in page
    assert "<b>" not in page
    assert 'href="tokens?x=&quot;&amp;g=0"' in page
    assert ">+<" in page
    assert ">−<" in page
    assert "+0.5" in page
    assert "−1.25" in page
    assert "(truncated, not trained)" in page


def test_what_a_reward_is_made_of_has_its_curves():
    parts = {"traits.part_correct": [0.5, 0.75], "traits.part_<b>format": [0.1, 0.2], "traits.said": [1.0, 1.0]}
    metrics = pd.DataFrame({"step": [0, 1], "reward": [0.6, 0.95], **parts})
    run = Series("a", "a", "#000", "solid", Curves(metrics, pd.DataFrame({"step": []}), 1))
    (panel,) = part_panels([run])
    fig = panel.figure([run], LIGHT, 1)
    assert [trace.name for trace in fig.data] == ["&lt;b&gt;format", "correct"] and drawn(fig)
    assert [list(trace.y) for trace in fig.data] == [[0.1, 0.2], [0.5, 0.75]]
    frame = numbers(panel.lines([run], LIGHT))
    assert set(frame.columns) == {"run", "step", *list(parts)[:2]}
    assert [panel.column for panel in part_panels([run, replace(run, run="b")])] == sorted(list(parts)[:2])
    alone = replace(run, curves=Curves(metrics[["step", "reward"]], pd.DataFrame({"step": []}), 1))
    assert part_panels([alone]) == []
