"""The What-if page through AppTest: its numbers are the rules', its address is the view, and refusals are sentences."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from core.advantage import build, compute
from core.store import open_runs, replay
from tests.app.conftest import texts
from tests.synthetic import make_run

A3PO = {"name": "a3po", "base": "grpo", "set": {"rho_positive": 3}}

FADING = {"name": "a3po", "base": "grpo", "set": {"alpha": 0.5, "ratio": 0.5}}
"""Its rhos are 1 from step 2 on."""
FALLING = {"name": "a3po", "base": "grpo", "set": {"decay_fraction": 1.0}}


def drawn(at: AppTest) -> dict:
    """What the component was given."""
    views = at.get("bidi_component")
    assert len(views) == 1, texts(at)
    return json.loads(views[0].proto.json)


def values(at: AppTest, panel: str) -> np.ndarray:
    own = next(one for one in drawn(at)["panels"] if one["id"] == panel)
    return np.frombuffer(base64.b64decode(own["values"]), "<i2") * own["most"] / 32767


def expected(path: Path, step: int, group: int, method) -> np.ndarray:
    """The method's advantages of a group, rollouts in the page's order: best reward first."""
    done = replay(path, path.name, step)
    advantage = compute(method, done.batch).advantage
    rows = [i for (own, _), i in done.row.items() if own == group]
    rows.sort(key=lambda i: (-done.batch.reward[i], i))
    return np.concatenate([advantage[i, : done.batch.length[i]] for i in rows])


def html(at: AppTest) -> str:
    return " ".join(one.proto.body for one in at.get("html"))


def slider(at: AppTest, label: str, place: int = 0):
    return [one for one in at.slider if one.label == label][place]


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whatif")
    make_run(root, "shaped", method=A3PO, steps=6, prompts=3, group_size=4)
    make_run(root, "plain", steps=6, prompts=3, group_size=4)
    make_run(root, "fading", method=FADING, steps=8, prompts=3, group_size=4)
    make_run(root, "falling", method=FALLING, steps=4, prompts=3, group_size=4)
    bare = make_run(root, "bare", steps=2, prompts=2, group_size=4)
    for file in bare.glob("steps/*/tokens.parquet"):
        table = pq.read_table(file)
        for name in ("entropy", "sampler_logprob", "ratio"):
            place = table.schema.get_field_index(name)
            nulls = pa.nulls(len(table), table.schema.field(place).type)
            table = table.set_column(place, table.schema.field(place), nulls)
        pq.write_table(table, file)
    return root


@pytest.fixture
def runs(runs_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(runs_root))
    return runs_root


def test_without_a_run_there_is_still_the_way_to_one(no_runs, open_page):
    at = open_page("whatif")
    assert not at.exception and "There is no run yet" in texts(at) and not at.get("bidi_component")


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_opens(states, open_page, state):
    at = open_page("whatif", run=state)
    assert not at.exception and not at.error, [error.value for error in at.error]
    assert [panel["id"] for panel in drawn(at)["panels"]] == ["a", "b", "difference"]


@pytest.mark.parametrize("state", ["queued", "empty"])
def test_a_run_without_a_step_says_so(states, open_page, state):
    at = open_page("whatif", run=state)
    assert not at.exception and "has no step yet" in texts(at)


def test_the_runs_own_method_comes_first_and_its_base_beside_it(runs, open_page):
    at = open_page("whatif", run="shaped", step=3, group=1)
    assert [panel["label"] for panel in drawn(at)["panels"]] == ["A3PO on GRPO (as trained)", "GRPO", "A minus B"]
    assert values(at, "difference") == pytest.approx(values(at, "a") - values(at, "b"), abs=1e-3)
    own = build("a3po", base="grpo", params={"rho_positive": 3})
    most = drawn(at)["panels"][0]["most"]
    assert values(at, "a") == pytest.approx(expected(runs / "shaped", 3, 1, own), abs=most / 30000)
    assert values(at, "b") == pytest.approx(expected(runs / "shaped", 3, 1, build("grpo")), abs=most / 30000)
    stored = open_runs([runs / "shaped"]).df(
        'SELECT advantage FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE step = 3 AND split = 'train' AND \"group\" = 1 ORDER BY r.reward DESC, rollout, position"
    )
    assert values(at, "a") == pytest.approx(stored["advantage"].to_numpy(), abs=most / 30000)


def test_a_weighted_method_changes_its_base(runs, open_page):
    at = open_page("whatif", run="shaped", m=["trained", "grpo"])
    assert "**A3PO on GRPO \\(as trained\\)** (A) changes" in texts(at) and drawn(at)["panels"][2]["letter"] == "A−B"
    turned = open_page("whatif", run="shaped", m=["grpo", "trained"])
    assert "**A3PO on GRPO \\(as trained\\)** (B) changes" in texts(turned)
    assert values(turned, "difference") == pytest.approx(values(at, "difference"))
    amplified = values(at, "difference") != 0
    assert (values(at, "difference") * values(at, "b"))[amplified].min() > 0  # teal where it reinforces more


def test_a_slider_moves_the_picture_and_the_address(runs, open_page):
    at = open_page("whatif", run="plain", step=2, group=1, m=["grpo", "a3po;base=grpo"])
    before = values(at, "b")
    slider(at, "rho positive").set_value(5.0).run()
    slider(at, "ratio").set_value(0.5).run()
    assert at.query_params["m"] == ["grpo", "a3po;base=grpo;rho_positive=5.0;ratio=0.5"]
    moved = build("a3po", base="grpo", params={"rho_positive": 5, "ratio": 0.5})
    most = drawn(at)["panels"][1]["most"]
    assert values(at, "b") == pytest.approx(expected(runs / "plain", 2, 1, moved), abs=most / 30000)
    assert values(at, "b") != pytest.approx(before, abs=1e-3)
    slider(at, "rho positive").set_value(2.0).run()  # the default is not said
    assert at.query_params["m"][1] == "a3po;base=grpo;ratio=0.5"


def test_a_deep_link_reopens_the_same_view(runs, open_page):
    at = open_page("whatif", run="plain", step=2, m=["grpo", "a3po;base=grpo"])
    slider(at, "rho negative").set_value(4.0).run()
    at.toggle(key="whatif:1:mass").set_value(True).run()
    at.multiselect(key="whatif:1:also").set_value(["adora_amplify"]).run()
    slider(at, "clip above 1 by", 1).set_value(0.4).run()
    again = open_page("whatif", **dict(at.query_params.items()))
    assert drawn(again) == drawn(at) and texts(again) == texts(at)
    assert slider(again, "a3po.rho negative").value == 4 and again.toggle(key="whatif:1:mass").value
    parts = set(at.query_params["m"][1].split(";"))
    assert {"a3po", "base=grpo", "also=adora_amplify", "mass_matched=1", "loss.clip_high=0.4"} <= parts


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a4po", "there is no method"),
        ("a3po;rho=3", "rho"),
        ("a3po;rho_positive=99", "rho_positive must be between 1 and 10"),
        ("<b>", "there is no method '<b>'"),
        ("fork_tokens;base=gspo", "fork"),
        ("pass_at_k;k=900", "give at least"),
        ("lp_reg", "record.proxy_min_p"),
    ],
)
def test_a_refused_method_says_why_and_the_others_stay(runs, open_page, line, said):
    at = open_page("whatif", run="plain", step=2, m=["grpo", line, "a3po;base=grpo"])
    assert not at.exception and len(at.error) == 1
    assert said in at.error[0].value.replace("\\", "")
    assert [panel["letter"] for panel in drawn(at)["panels"]] == ["A", "C", "C−A"]
    at.selectbox(key="whatif:1:method").set_value("psr").run()
    assert not at.error and [panel["letter"] for panel in drawn(at)["panels"]] == ["A", "B", "C", "B−A"]


@pytest.mark.parametrize("scope", ["group", "step", "run"])
def test_what_a_run_did_not_record_is_one_sentence_a_slot(runs, open_page, scope):
    lines = ["grpo", "a3po", "entropy_advantage", "fork_tokens"]
    at = open_page("whatif", run="bare", step=1, scope=scope, m=lines)
    assert not at.exception and len(at.error) == 3
    assert all("needs" in error.value for error in at.error)
    if scope != "run":
        assert [panel["letter"] for panel in drawn(at)["panels"]] == ["A"]
        assert "Only **GRPO" in texts(at) and "cannot be sorted by probability" in texts(at)


def test_methods_are_added_and_taken_out(runs, open_page):
    at = open_page("whatif", run="plain", step=2)
    at.button(key="whatif:add").click().run()
    at.button(key="whatif:add").click().run()
    assert at.query_params["m"] == ["trained", "a3po;base=grpo", "adora_amplify", "psr"]
    assert not [button for button in at.button if button.key == "whatif:add"]
    at.button(key="whatif:0:remove").click().run()
    assert at.query_params["m"] == ["a3po;base=grpo", "adora_amplify", "psr"]
    assert [panel["letter"] for panel in drawn(at)["panels"]] == ["A", "B", "C", "B−A"]


def test_the_chosen_token_stays_while_sliders_move_and_not_with_other_rollouts(runs, open_page):
    at = open_page("whatif", run="plain", step=2, group=1, m=["grpo", "a3po;base=grpo"])
    first, address = drawn(at)["selected"], (at.query_params["rollout"], at.query_params["position"])
    row = drawn(at)["rows"][first["row"]]
    assert address == (str(row["rollout"]), str(first["position"]))
    slider(at, "ratio").set_value(0.9).run()
    slider(at, "rho negative").set_value(9.0).run()
    assert drawn(at)["selected"] == first
    at.query_params["group"] = "0"
    at.run()
    fresh = open_page("whatif", run="plain", step=2, group=0, m=at.query_params["m"])
    assert drawn(at)["selected"] == drawn(fresh)["selected"]
    given = open_page("whatif", run="plain", step=2, group=1, rollout=3, position=2)
    assert drawn(given)["rows"][drawn(given)["selected"]["row"]]["rollout"] == 3
    assert drawn(given)["selected"]["position"] == 2


def test_the_pair_of_the_difference_is_a_choice(runs, open_page):
    at = open_page("whatif", run="plain", step=2, m=["grpo", "psr", "nsr"], diff="B-C")
    assert drawn(at)["panels"][-1]["letter"] == "C−B"
    assert values(at, "difference") == pytest.approx(values(at, "c") - values(at, "b"), abs=1e-3)
    assert "**NSR** (C)" in texts(at) and "**PSR** (B)" in texts(at)


def test_a_first_look_is_where_the_methods_part(runs, open_page):
    at = open_page("whatif", run="fading")
    assert int(at.query_params["step"]) < 2 and np.abs(values(at, "difference")).max() > 0
    other = open_page("whatif", run="fading", m=["grpo", "psr"])  # which part at every step
    assert np.abs(values(other, "difference")).max() > 0
    same = open_page("whatif", run="fading", m=["grpo", "grpo;loss.clip_low=0.1"])
    assert int(same.query_params["step"]) >= 2 and not np.any(values(same, "difference"))


def test_alpha_and_the_decay_fraction_take_turns(runs, open_page):
    at = open_page("whatif", run="falling", step=2)
    alpha = slider(at, "alpha: by decay fraction")
    assert alpha.value == pytest.approx(1 / 4)  # rho falls from 2 to 1 over the run's 4 steps
    assert drawn(at)["panels"][0]["label"] == "A3PO on GRPO (as trained)"
    alpha.set_value(0.005).run()  # the default: what is said is that nothing sets a fraction
    assert "decay_fraction" not in at.query_params["m"][0] and "alpha" not in at.query_params["m"][0]
    slider(at, "alpha").set_value(0.02).run()
    assert "alpha=0.02" in at.query_params["m"][0] and not at.error
    at.number_input(key="whatif:0:decay_fraction").set_value(0.5).run()
    assert "decay_fraction=0.5" in at.query_params["m"][0] and "alpha" not in at.query_params["m"][0]
    assert not at.error and slider(at, "alpha: by decay fraction").value == pytest.approx(1 / 2)


def test_a_schedule_lets_rho_fall_in_place_of_alpha(runs, open_page):
    at = open_page("whatif", run="falling", step=2)
    at.selectbox(key="whatif:0:a3po.schedule").set_value("linear").run()
    assert not at.error and slider(at, "alpha").value == 0
    assert "decay_fraction" not in at.query_params["m"][0] and "schedule=linear" in at.query_params["m"][0]
    slider(at, "alpha").set_value(0.02).run()
    assert not at.error and "schedule" not in at.query_params["m"][0] and "alpha=0.02" in at.query_params["m"][0]


def test_a_refused_card_keeps_its_name_and_its_sliders(runs, open_page):
    at = open_page("whatif", run="plain", step=2, m=["grpo", "a3po;base=grpo;alpha=0.1;decay_fraction=0.5"])
    assert len(at.error) == 1 and ">A3PO on GRPO</b>" in html(at)
    slider(at, "alpha: by decay fraction").set_value(0.03).run()
    assert not at.error and at.query_params["m"][1].endswith("alpha=0.03")


def test_the_objective_is_a_choice_that_can_be_taken_back(runs, open_page):
    at = open_page("whatif", run="plain", step=2, m=["grpo", "fork_tokens;base=grpo"])
    at.selectbox(key="whatif:0:objective").set_value("cispo").run()
    assert at.query_params["m"][0] == "grpo;loss.objective=cispo" and "their objectives differ (cispo, clip)" in texts(
        at
    )
    at.selectbox(key="whatif:0:objective").set_value("reinforce").run()
    assert not [one for one in at.slider if one.key == "whatif:0:clip_low"]
    at.selectbox(key="whatif:0:objective").set_value("clip").run()
    assert at.query_params["m"][0] == "grpo"
    at.selectbox(key="whatif:1:objective").set_value("gspo").run()
    assert len(at.error) == 1  # no weights of single tokens over a ratio of the whole answer
    at.selectbox(key="whatif:1:objective").set_value("clip").run()
    assert not at.error


def test_the_page_leads_to_an_answer_that_it_cannot_give(runs, open_page):
    at = open_page("whatif", run="plain", step=2, m=["grpo", "a3po;base=grpo;rho_positive=3;loss.clip_low=0.1"])
    (link,) = [one.proto for one in at.get("page_link") if "3 seeds each" in one.proto.label]
    wanted = parse_qs(link.query_string)
    assert wanted["from"] == ["plain"]
    launch = open_page("launch", **{"from": "plain", "set": wanted["set"]})
    assert not launch.exception and not launch.warning
    assert launch.multiselect(key="draft:methods").value == ["grpo", "a3po"]
    assert "6\N{NO-BREAK SPACE}runs" in texts(launch)


def test_a_whole_step_shows_every_rollout_and_prompt(runs, open_page):
    at = open_page("whatif", run="plain", step=2, scope="step")
    groups = [row["group"] for row in drawn(at)["rows"]]
    assert len(groups) == 12 and groups == sorted(groups)
    assert "data-testid='prompt-2'" in html(at) and "data-testid='prompt-3'" not in html(at)
    assert "What becomes of the 3\N{NO-BREAK SPACE}prompts" in texts(at)


def test_a_whole_run_is_computed_once(runs, open_page, monkeypatch):
    calls = []
    from core.counterfactual import steps

    real = steps.stored
    monkeypatch.setattr(steps, "stored", lambda *args: calls.append(args) or real(*args))
    at = open_page("whatif", run="plain", scope="run", m=["grpo", "psr;schedule=until;schedule_steps=3"])
    assert "highest, of 6\N{NO-BREAK SPACE}steps" in texts(at) and len(calls) == 6
    at.run()
    assert len(calls) == 6 and "highest, of 6\N{NO-BREAK SPACE}steps" in texts(at)


@pytest.mark.parametrize(
    "choice", [{"group": "77"}, {"rollout": "99"}, {"scope": "world"}, {"position": "x"}, {"split": "moon"}]
)
def test_an_impossible_choice_gives_a_sentence_and_the_default(runs, open_page, choice):
    at = open_page("whatif", run="plain", step=2, **choice)
    assert not at.exception and at.warning and drawn(at)["rows"]


def test_another_step_may_have_fewer_prompts(tmp_path, monkeypatch, open_page):
    make_run(tmp_path, "dapo", method="dapo", steps=8, prompts=4, group_size=4)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    groups = open_runs([tmp_path / "dapo"]).df(
        "SELECT step, max(\"group\") AS last FROM groups WHERE split = 'train' GROUP BY step ORDER BY last DESC, step"
    )
    most, least = groups.iloc[0], groups.iloc[-1]
    assert most["last"] > least["last"]
    at = open_page("whatif", run="dapo", step=most["step"], group=most["last"])
    at.query_params["step"] = str(least["step"])
    at.run()
    assert not at.exception and not at.warning and int(at.query_params["group"]) <= least["last"]


def test_a_split_without_tokens_says_so(runs, open_page):
    at = open_page("whatif", run="plain", split="eval")
    assert not at.exception and not at.get("bidi_component")
    assert "No method can be compared on these rollouts: held\\-out answers are kept without" in texts(at)


def test_probes_say_that_nothing_was_trained_on_them(runs, open_page):
    at = open_page("whatif", run="plain", split="probe")
    assert not at.exception and "Nothing was trained on these" in texts(at)


def test_what_is_not_answered_is_said(runs, open_page):
    assert "Not answered here" in texts(open_page("whatif", run="plain"))
    assert "Not answered here" in texts(open_page("whatif", run="plain", scope="run"))


def test_the_same_numbers_as_a_table(runs, open_page):
    at = open_page("whatif", run="plain", step=2, group=1, table=1)
    table = at.dataframe[0].value
    assert table.filter(like="A:").iloc[:, 0].to_numpy() == pytest.approx(values(at, "a"), abs=1e-4)
    assert table["token"].tolist() == [token for row in drawn(at)["rows"] for token in row["tokens"]]


def test_every_page_leads_here(runs, open_page):
    for page, place in {
        "tokens": {"run": "plain", "step": "2", "split": "train", "group": "1"},
        "favorability": {"run": "plain", "step": "2", "split": "train", "group": "1"},
        "polarity": {"run": "plain", "step": "2", "split": "train"},
        "live": {"run": "plain", "split": "train"},
        "compare": {"run": "plain", "split": "probe"},
        "runs": {"run": "plain"},
    }.items():
        at = open_page(page, **{name: value for name, value in place.items() if page not in ("runs", "compare")},
                       **({"run": ["plain", "shaped"]} if page == "compare" else {}))  # fmt: skip
        links = [one.proto.query_string for one in at.get("page_link") if one.proto.label == "What if…"]
        assert any(all(f"{name}={value}" in link.split("&") for name, value in place.items()) for link in links), (
            page, links,
        )  # fmt: skip
