"""The whole run on the Tokens page: cells by hand, columns of a long run, and what it says where something lacks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.palette import DARK, LIGHT
from app.views import tokens_map as view
from core.store import open_runs
from core.store.schema import bin_start, position_bin
from tests.app.conftest import texts
from tests.synthetic import make_run


def figures(at: AppTest) -> list[go.Figure]:
    return [go.Figure(json.loads(chart.proto.spec)) for chart in at.get("plotly_chart")]


def cells(figure: go.Figure) -> np.ndarray:
    """(bins, columns, 2): mean and n as they are drawn."""
    trace = figure.data[0]
    n = np.array([[int(cell[0]) for cell in row] for row in trace.customdata])
    return np.stack([numbers(trace.z), n], axis=2)


def numbers(sent: dict) -> np.ndarray:
    """An array as plotly sends it."""
    values = np.frombuffer(base64.b64decode(sent["bdata"]), sent["dtype"])
    return values.reshape([int(size) for size in sent["shape"].split(",")]) if "shape" in sent else values


def frame(steps: np.ndarray, bins: int, n: int = 10) -> pd.DataFrame:
    """Every cell with n tokens; the mean of a cell is its step + bin / 1000, for right answers 1 more."""
    grid = pd.MultiIndex.from_product([steps, [-1, 1], range(bins)], names=["step", "polarity", "bin"]).to_frame(False)
    mean = grid["step"] + grid["bin"] / 1000 + (grid["polarity"] > 0)
    return grid.assign(n=n, sum=n * mean)


@pytest.mark.parametrize(("place", "whose"), [("relative", "all"), ("absolute", "all"), ("absolute", "wrong")])
def test_cells_are_means_over_the_tokens(states, open_page, place, whose):
    at = open_page("tokens", view="run", run="finished", field="entropy", place=place, answers=whose)
    assert not at.exception and not at.error
    tokens = open_runs([states / "finished"]).df(
        "SELECT t.step, t.position, t.entropy, r.length, r.polarity FROM tokens t "
        "JOIN rollouts r USING (run, step, split, \"group\", rollout) WHERE split = 'train'"
    )
    if whose != "all":
        tokens = tokens[tokens["polarity"] == view.ANSWERS[whose]]
    tokens["bin"] = tokens["position"] * 10 // tokens["length"] if place == "relative" else tokens["position"]
    exact = tokens.groupby(["bin", "step"])["entropy"].agg(["mean", "size"])
    drawn = cells(figures(at)[0])
    assert drawn.shape[1] == 6
    for row, column in np.ndindex(drawn.shape[:2]):
        mean, n = exact.loc[(row, column)] if (row, column) in exact.index else (np.nan, 0)
        assert drawn[row, column, 1] == n
        if n < view.FEW:
            assert np.isnan(drawn[row, column, 0])
        else:
            assert drawn[row, column, 0] == pytest.approx(mean, rel=1e-4)
    assert np.isfinite(drawn[:, :, 0]).any()


def test_it_says_how_many_tokens_moved_as_pushed(states, open_page):
    at = open_page("tokens", view="run", run="sealed")
    rows = open_runs([states / "sealed"]).rows(
        "SELECT sum(sum) AS agreed, sum(n) AS pushed FROM summary WHERE split = 'train' AND field = 'agreed'"
    )[0]
    assert f"**{100 * rows['agreed'] / rows['pushed']:.0f}\u00a0%** of {rows['pushed']:,.0f}" in texts(at).replace(
        "\u202f", ","
    )
    assert len(figures(at)) == 2


def test_a_chosen_step_is_marked_and_leads_to_its_tokens(states, open_page):
    at = open_page("tokens", view="run", run="finished", step=3)
    names = [trace.name for trace in figures(at)[0].data]
    assert "step 3" in names and names[2] == "first (step 0)"
    links = [link.proto.label for link in at.get("page_link")]
    assert "Open step 3, token by token" in links
    at.button(key="tokens:unchoose").click().run()
    assert "step" not in at.query_params and not at.exception


def test_probes_have_their_own_steps_and_no_mass(states, open_page):
    at = open_page("tokens", view="run", run="finished", split="probe", field="probability")
    assert numbers(figures(at)[0].data[1].x).tolist() == [0, 4, 6]
    assert "Probes are not trained" in texts(at)
    at = open_page("tokens", view="run", run="finished", split="probe", field="mass")
    assert "probes are not trained" in texts(at) and not at.exception


def test_without_the_forward_after_the_update_it_says_so(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    path = make_run(tmp_path, "before", steps=3, prompts=2, group_size=4)
    earlier(path, ("change", "entropy_change", "agreed"))
    at = open_page("tokens", view="run", run="before", field="change")
    assert "`record.after_update`" in texts(at) and not at.exception


def test_a_run_of_an_earlier_version_says_what_it_lacks(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    path = make_run(tmp_path, "old", steps=3, prompts=2, group_size=4)
    earlier(path, ("agreed", "entropy_change", "logprob", "logprob_advantage"))
    at = open_page("tokens", view="run", run="old", place="absolute")
    assert "earlier version of the lab" in texts(at) and "Choose **relative**" in texts(at)
    for field in ("agreed", "entropy_change"):
        at = open_page("tokens", view="run", run="old", field=field)
        assert "earlier version of the lab" in texts(at) and not at.exception
    at = open_page("tokens", view="run", run="old")
    assert len(figures(at)) == 1 and "not known here how many tokens moved as pushed" in texts(at)


def earlier(path: Path, fields: tuple[str, ...]) -> None:
    """Take away what earlier versions did not write: tables of sums, and fields of `summary`."""
    for step in path.glob("steps/*"):
        for file in (*step.glob("positions*.parquet"), *step.glob("strings*.parquet")):
            file.unlink()
        for file in step.glob("summary*.parquet"):
            rows = pq.read_table(file)
            keep = [name not in fields for name in rows["field"].to_pylist()]
            pq.write_table(rows.filter(pa.array(keep)), file)


@pytest.mark.parametrize(("state", "words"), [("queued", "queued and has no step yet"), ("empty", "has no step yet")])
def test_a_run_without_a_step_says_what_it_waits_for(states, open_page, state, words):
    at = open_page("tokens", view="run", run=state)
    assert not at.exception and words in texts(at) and not figures(at)


@pytest.mark.parametrize("choice", [{"field": "mood"}, {"place": "left"}, {"answers": "none"}, {"step": "x"}])
def test_an_impossible_choice_gives_a_sentence_and_the_default(states, open_page, choice):
    at = open_page("tokens", view="run", run="finished", **choice)
    assert not at.exception and at.warning and len(figures(at)) == 2


@pytest.mark.parametrize(("first", "n", "gap"), [(0, 401, 1), (3, 4000, 1), (0, 201, 20), (0, 200, 1), (7, 1, 1)])
def test_a_long_runs_columns_are_windows_that_lose_no_token(first, n, gap):
    steps = first + gap * np.arange(n)
    every = view.window_of(steps)
    assert (every == 1) == (n <= view.MOST_COLUMNS)
    rows = frame(steps, 10)
    shown = view.grid(rows, steps, every, 0, absolute=False)
    assert shown.n.shape[1] <= view.MOST_COLUMNS and shown.n.sum() == rows["n"].sum()
    assert shown.steps[0, 0] == steps[0] and shown.steps[-1, 1] == steps[-1]
    first_, last = shown.steps[0]
    inside = rows[rows["step"].between(first_, last) & (rows["bin"] == 4)]
    assert shown.mean[4, 0] == pytest.approx(inside["sum"].sum() / inside["n"].sum())
    assert shown.column(int(steps[-1])) == shown.n.shape[1] - 1 and shown.column(int(steps[-1]) + 1) is None


def test_late_positions_share_rows_and_empty_ones_are_left_out():
    last = int(position_bin(np.array([3999]))[0])
    rows = frame(np.arange(4), last + 1)
    rows.loc[rows["bin"] > 200, "n"] = 1  # two tokens a cell, both polarities together
    shown = view.grid(rows, np.arange(4), 1, 0, absolute=True)
    merged = 2
    assert last >= view.MOST_BINS and len(shown.places) == 200 // merged + 1
    assert shown.places[:2].tolist() == [[0, 1], [2, 3]]
    starts = bin_start(np.arange(202))
    assert shown.places[60].tolist() == [starts[120], starts[122] - 1]
    assert shown.n[10, 0] == 4 * 10


def test_scales_are_zero_centred_only_for_signed_fields():
    shown = view.grid(frame(np.arange(-3, 4), 10), np.arange(-3, 4), 1, 0, absolute=False)
    signed, amount, share = (
        view.heatmap(shown, view.MAP_FIELDS[name], "all", LIGHT).data[0] for name in ("push", "entropy", "agreed")
    )
    low, high = np.percentile(shown.mean, [2, 98])
    assert -signed.zmin == signed.zmax == pytest.approx(max(abs(low), abs(high)))
    for scale in (amount, share):
        assert (scale.zmin, scale.zmax) == (pytest.approx(low), pytest.approx(high))


def test_profiles_are_the_ends_of_the_run():
    steps = np.arange(40)
    shown = view.grid(frame(steps, 10), steps, 1, 1, absolute=False)
    fig = view.heatmap(shown, view.MAP_FIELDS["advantage"], "right", DARK, chosen=20)
    first, last, chosen = fig.data[2:]
    assert np.allclose(first.x, 1.5 + 1 + np.arange(10) / 1000)
    assert np.allclose(last.x, 37.5 + 1 + np.arange(10) / 1000)
    assert np.allclose(chosen.x, 20 + 1 + np.arange(10) / 1000) and chosen.name == "step 20"


def test_the_largest_map_is_small_enough_to_send():
    steps = np.arange(4000)
    every = view.window_of(steps)
    windows = np.unique(steps // every) * every
    shown = view.grid(frame(windows, view.MOST_BINS), steps, every, 0, absolute=True)
    assert shown.n.shape == (view.MOST_BINS, len(windows))
    assert len(view.heatmap(shown, view.MAP_FIELDS["push"], "all", LIGHT).to_json()) < 3_000_000


def test_agreement_by_window_weighs_by_tokens():
    rows = pd.DataFrame({"step": [0, 1, 0], "polarity": [1, 1, -1], "pushed": [10, 30, 4], "agreed": [10, 0, 1]})
    got = view.agreed_by_window(rows, 2).set_index("polarity")["share"]
    assert got.to_dict() == {1: 0.25, -1: 0.25}
    assert "moved **25\u00a0%** of 44\u00a0tokens" in view.verdict(view.agreed_by_window(rows, 2))
    assert view.verdict(rows.iloc[:0].assign(share=0.0)) == ""
    assert view.verdict(rows[rows["polarity"] == -1]).endswith("advantage pushed, all of them in wrong answers.")
