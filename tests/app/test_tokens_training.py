"""One prompt through training: its answers by step, what changed, and how playing begins and ends."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.palette import LIGHT
from app.tokens.training import STATE, Play
from app.views import tokens_training as view
from core.store import open_runs
from core.store.queries import tokens_run as query
from tests.app.conftest import texts
from tests.synthetic import make_run


def answers(at: AppTest) -> str:
    """The answers as they are drawn."""
    found = [block.proto.body for block in at.get("html") if 'class="probe"' in block.proto.body]
    assert len(found) == 1, texts(at)
    return found[0]


def slider(at: AppTest) -> object:
    return next(one for one in at.select_slider if one.label.startswith("Step"))


@pytest.mark.parametrize("run", ["finished", "sealed"])
def test_a_probes_answers_are_the_stores(states, open_page, run):
    at = open_page("tokens", view="prompt", run=run, step=4)
    assert not at.exception and not at.error
    lab = open_runs([states / run])
    first = query.visits(lab, run, "probe").iloc[0]
    assert at.selectbox(key="url:prompt").value == first["prompt_id"]
    rows = lab.df(
        "SELECT t.rollout, t.token, t.advantage, r.correct FROM tokens t "
        'JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE step = 4 AND split = 'probe' AND \"group\" = 0 ORDER BY r.correct DESC, rollout, position"
    )
    shown = re.findall(r'title="([^"]*): advantage ([^"]*)"', answers(at))
    values = [float(value.replace("−", "-")) for _, value in shown]
    assert len(shown) == len(rows) and np.allclose(values, rows["advantage"], rtol=5e-3)
    assert answers(at).count('title="correct"') == rows.loc[rows["correct"], "rollout"].nunique()
    assert list(slider(at).options) == ["0", "4", "6"]
    assert sorted(re.findall(r"step=4&amp;group=0&amp;rollout=(\d)", answers(at))) == ["0", "1", "2", "3"]


def test_colours_are_on_one_scale_for_all_steps(states, open_page):
    lab = open_runs([states / "finished"])
    prompt = query.visits(lab, "finished", "probe")["prompt_id"].iloc[0]
    ends = query.prompt_tokens(lab, "finished", "probe", prompt, "entropy")[["low", "high"]].abs().to_numpy().max()
    scales = set()
    for step in (0, 4):
        at = open_page("tokens", view="prompt", run="finished", step=step, color="entropy")
        bars = [block.proto.body for block in at.get("html") if "one scale for" in block.proto.body]
        scales |= set(bars)
    assert len(scales) == 1 and f"{ends:.3g}\u00a0nats" in scales.pop()


def test_a_training_prompt_is_followed_over_its_visits(states, open_page):
    visits = query.visits(open_runs([states / "finished"]), "finished", "train")
    often = visits["prompt_id"].value_counts().idxmax()
    at = open_page("tokens", view="prompt", run="finished", prompt=often)
    steps = visits.loc[visits["prompt_id"] == often, "step"].astype(str).tolist()
    assert len(steps) > 1 and list(slider(at).options) == steps and not at.warning


def test_it_says_what_changed_since_the_visit_before(states, open_page):
    at = open_page("tokens", view="prompt", run="finished", step=4)
    lab = open_runs([states / "finished"])
    right = lab.df("SELECT step, correct, n FROM groups WHERE split = 'probe' AND \"group\" = 0 ORDER BY step")
    said = texts(at)
    assert f"Step 4: **{right['correct'][1]} of 4 right** ({right['correct'][0]} of 4)" in said
    assert "In brackets: the visit before, step 0." in said
    at = open_page("tokens", view="prompt", run="finished", step=0)
    assert f"Step 0: **{right['correct'][0]} of 4 right**, mean length" in texts(at)


def test_play_starts_and_anything_else_pauses_it(states, open_page):
    at = open_page("tokens", view="prompt", run="finished", step=4)
    at.button(key="tokens:play").click().run()
    assert not at.exception and at.button(key="tokens:pause").label == "Pause" and not at.select_slider
    play = at.session_state[STATE]
    assert (play.step, play.steps) == (4, [0, 4, 6]) and at.query_params["step"] == "4"
    assert play.tick() and play.step == 6  # the timer's next call
    at.button(key="tokens:pause").click().run()
    assert STATE not in at.session_state and at.query_params["step"] == "6" and slider(at).value == 6
    at.button(key="tokens:play").click().run()
    assert at.session_state[STATE].step == 0  # from the last step it begins anew
    at.run()
    assert STATE not in at.session_state and at.button(key="tokens:play").label == "Play"


def test_a_link_to_another_step_ends_playing_there(states, open_page):
    at = open_page("tokens", view="prompt", run="finished", step=0)
    at.button(key="tokens:play").click().run()
    at.query_params["step"] = "6"
    at.run()
    assert STATE not in at.session_state and at.query_params["step"] == "6"


def test_steps_go_by_to_the_last_and_end():
    play = Play("key", [0, 5, 9], place=1, began=5)
    assert [(play.tick(), play.step) for _ in range(4)] == [(True, 5), (True, 9), (False, 9), (False, 9)]


@pytest.mark.parametrize(("state", "words"), [("queued", "queued and has no step yet"), ("empty", "has no step yet")])
def test_a_run_without_a_step_says_what_it_waits_for(states, open_page, state, words):
    at = open_page("tokens", view="prompt", run=state)
    assert not at.exception and words in texts(at)


@pytest.mark.parametrize("choice", [{"prompt": "none"}, {"color": "ratio"}, {"split": "eval"}, {"step": "5"}])
def test_an_impossible_choice_still_shows_a_prompt(states, open_page, choice):
    at = open_page("tokens", view="prompt", run="finished", **choice)
    assert not at.exception and answers(at)


def test_without_tokens_the_text_stands_in(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    path = make_run(tmp_path, "texts", steps=5, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens*.parquet"):
        file.unlink()
    at = open_page("tokens", view="prompt", run="texts", step=4)
    assert not at.exception and "this step's tokens were not kept" in texts(at)
    text = open_runs([path]).rows("SELECT text FROM rollouts WHERE split = 'probe' AND step = 4 AND \"group\" = 0")
    assert all(row["text"].strip() in answers(at) for row in text)


def test_a_colour_that_was_not_recorded_says_so(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    path = make_run(tmp_path, "before", steps=2, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens*.parquet"):
        table = pq.read_table(file)
        place = table.schema.get_field_index("after_logprob")
        nothing = pa.nulls(len(table), pa.float32())
        pq.write_table(table.set_column(place, table.schema.field(place), nothing), file)
    at = open_page("tokens", view="prompt", run="before", color="change")
    assert not at.exception and "Log-probs after the update were not recorded here" in texts(at) and answers(at)


def rows(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"step": [0, 0, 3], "group": 0, "polarity": [-1, 1, 1]} | columns)


def test_a_visits_means_are_over_all_answers_and_tokens():
    visits = pd.DataFrame({"step": [0, 3], "group": 0, "n": 4, "correct": [1, 4]})
    told = rows(rollouts=[3, 1, 4], length=[10.0, 30.0, 8.0], different=[4, 4, 2], alike=[1, 1, 3], truncated=0)
    kept = rows(tokens=[30, 30, 32], entropy=[0.5, 0.1, 0.2], mean_advantage=[-0.5, 1.5, 0.0]).iloc[:2]
    frame = view.series(visits, told, kept)
    first, last = view.visit(frame, 0), view.visit(frame, 3)
    assert (first.right, first.n, first.length, first.entropy) == (1, 4, 15.0, pytest.approx(0.3))
    assert last.length == 8.0 and np.isnan(last.entropy)  # its tokens were not kept
    assert view.changes(frame, 3) == (
        "Step 3: **4 of 4 right** (1 of 4), mean length 8\u00a0tokens (15), 2\u00a0different answers (4), "
        "3 begin alike (none). In brackets: the visit before, step 0."
    )
    fig = view.curves(frame, 3, LIGHT)
    assert [trace.name for trace in fig.data] == ["right", *["+ right", "− wrong"] * 3]
    assert list(fig.data[0].y) == [0.25, 1.0] and fig.data[2].y[0] == 10.0
    assert np.isnan(fig.data[2].y[1])  # no wrong answer at step 3: a gap
    assert fig.data[1].marker.symbol != fig.data[2].marker.symbol  # right and wrong not by colour alone
    unkept = frame.assign(entropy=0.2)
    unkept.loc[unkept["step"] == 0, ["entropy", "tokens"]] = np.nan
    unkept.loc[unkept["step"] == 3, "tokens"] = 32
    assert "entropy 0.2\u00a0nats (tokens not kept)" in view.changes(unkept, 3)


def test_the_widest_ends_of_any_step_make_the_scale():
    tokens = pd.DataFrame({"low": [-0.5, -2.0, np.nan], "high": [1.5, 0.1, np.nan]})
    assert view.reach(tokens, view.COLOURS["push"]) == 2.0
    assert view.reach(tokens, view.COLOURS["probability"]) == 1.0
    assert view.reach(tokens.iloc[2:], view.COLOURS["push"]) == 0.0
