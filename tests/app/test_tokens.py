"""The Tokens page in every state, through AppTest: what it says, and that its numbers are the store's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app.tokens import outcome
from app.views.tokens_outcome import MOVES
from core.store import open_runs, replay
from core.store.queries import tokens as query
from tests.app.conftest import texts
from tests.synthetic import make_run


def drawn(at: AppTest) -> dict:
    """What the token view was given."""
    views = at.get("bidi_component")
    assert len(views) == 1, texts(at)
    return json.loads(views[0].proto.json)


def lines(at: AppTest, position: int) -> dict[str, dict]:
    why = drawn(at)["why"]
    return {line["id"]: line for line in why["tokens"][position - why["start"]]}


def test_no_runs(no_runs, open_page):
    at = open_page("tokens")
    assert not at.exception and not at.get("bidi_component")
    assert at.header[0].value == "Which tokens got the advantage, and why?"
    assert "There is no run yet" in texts(at)


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_opens_on_its_newest_mixed_group(states, open_page, state):
    at = open_page("tokens", run=state)
    assert not at.exception and not at.error
    groups = open_runs([states / state]).df(
        'SELECT step, "group", abs(correct / n - 0.5) AS off FROM groups '
        "WHERE split = 'train' AND correct BETWEEN 1 AND n - 1"
        ' ORDER BY step DESC, off, "group"'
    )
    assert at.query_params["step"] == str(groups["step"][0])
    assert drawn(at)["key"] == f"{state}/train/{groups['step'][0]}/{groups['group'][0]}"


@pytest.mark.parametrize(("state", "words"), [("queued", "queued and has no step yet"), ("empty", "has no step yet")])
def test_a_run_without_a_step_says_what_it_waits_for(states, open_page, state, words):
    at = open_page("tokens", run=state)
    assert not at.exception and words in texts(at) and not at.get("bidi_component")


def test_a_token_is_the_stores(states, open_page):
    at = open_page("tokens", run="finished", step=3, group=1, rollout=2, position=1)
    lab = open_runs([states / "finished"])
    token = lab.rows(
        "SELECT * FROM tokens WHERE step = 3 AND split = 'train' AND \"group\" = 1 AND rollout = 2 AND position = 1"
    )[0]
    assert drawn(at)["selected"] == {"rollout": 2, "position": 1}
    got = lines(at, 1)
    for name in ("base_advantage", "advantage", "entropy", "loss_weight", "ratio"):
        assert float(got[name]["raw"]) == pytest.approx(token[name], rel=1e-6), name
    change = token["after_logprob"] - token["trainer_logprob"]
    assert float(got["change"]["raw"]) == pytest.approx(change, rel=1e-5, abs=1e-7)
    assert got["ratio"]["note"] == "one update a step: nothing can clip"


def test_reasons_are_recomputed_by_the_method(tmp_path: Path, monkeypatch, open_page):
    method = {"name": "a3po", "also": ["adora_amplify"], "set": {"rho_positive": 3}}
    make_run(tmp_path, "both", method=method, steps=3, prompts=3, group_size=4)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("tokens", run="both", step=2, group=0, rollout=1, position=0)
    done = replay(tmp_path / "both", "both", 2)
    i, got = done.row[0, 1], lines(at, 0)
    assert got["base_advantage"]["note"] == done.trace.explain_base(i, 0)
    product = float(got["base_advantage"]["raw"])
    for factor in done.trace.factors:
        assert got[f"factor_{factor.id}"]["note"] == factor.explain(i, 0)
        product *= float(got[f"factor_{factor.id}"]["raw"])
    assert product == pytest.approx(float(got["advantage"]["raw"]), abs=1e-6)


def test_the_chosen_token_reaches_the_address_and_back(states, open_page):
    at = open_page("tokens", run="finished", step=2, group=0)
    first = drawn(at)["selected"]
    assert first != {"rollout": 3, "position": 2}
    at.query_params["rollout"], at.query_params["position"] = "3", "2"
    at.run()
    assert drawn(at)["selected"] == {"rollout": 3, "position": 2}
    assert drawn(at)["why"]["rollout"] == 3


def test_colour_and_sort_live_in_the_address(states, open_page):
    at = open_page("tokens", run="finished", step=2, color="probability", sort="length")
    data = drawn(at)
    assert data["colour"]["id"] == "probability" and data["colour"]["below"] == ""
    lengths = [len(row["tokens"]) for row in data["rows"]]
    assert lengths == sorted(lengths, reverse=True)


def test_texts_of_several_rollouts_live_in_the_address(states, open_page):
    at = open_page("tokens", run="finished", step=2, group=0, texts="wrong", rollout=1, position=2)
    assert drawn(at)["texts"] == "wrong" and drawn(at)["selected"] == {"rollout": 1, "position": 2}
    at.selectbox(key="url:texts").select("all").run()
    assert drawn(at)["texts"] == "all" and at.query_params["texts"] == "all" and at.query_params["rollout"] == "1"


def test_every_colour_can_be_chosen(states, open_page):
    at = open_page("tokens", run="finished", step=2)
    offered = at.selectbox(key="url:color").options
    assert len(offered) >= 11 and "moved as pushed?" in offered
    for name in ("clipped", "along", "entropy_change", "loss_weight", "ratio"):
        at.query_params["color"] = name
        at.run()
        data = drawn(at)
        assert not at.exception and data["colour"]["id"] == name
        values = [value for row in data["rows"] for value in row["values"][name]]
        assert len(values) == sum(len(row["tokens"]) for row in data["rows"]) and None not in values


def test_the_prompt_before_and_after_is_one_key_away(states, open_page):
    at = open_page("tokens", run="finished", step=2, group=1, rollout=1, position=1)
    at.button(key="group:after").click().run()
    assert at.query_params["group"] == "2" and "rollout" not in at.query_params
    assert at.button(key="group:after").disabled
    at.button(key="group:before").click().run()
    assert at.query_params["group"] == "1" and drawn(at)["key"] == "finished/train/2/1"


def test_the_loss_term_of_a_token_adds_up(states, open_page):
    at = open_page("tokens", run="finished", step=3, group=1, rollout=2, position=1)
    got = lines(at, 1)
    ratio, advantage = (float(got[name]["raw"]) for name in ("ratio", "advantage"))
    clipped = min(max(ratio, 0.8), 1.2)
    assert float(got["loss_term"]["raw"]) == pytest.approx(-min(ratio * advantage, clipped * advantage), rel=1e-6)
    assert (
        got["loss_term"]["note"].startswith("−min(r A, clip(r) A) = −min(")
        and "to the loss" in got["loss_weight"]["note"]
    )


def test_the_whole_step_says_which_way_its_tokens_moved(states, open_page):
    at = open_page("tokens", run="finished", step=2, group=0)
    lab = open_runs([states / "finished"])
    moves = query.step_moves(lab, "finished", 2)
    assert at.subheader[0].value == "What did step 2 do?"
    agreed, against = int(moves["agreed"].sum()), int(moves["against"].sum())
    said = texts(at)
    assert (
        f"**{agreed}\u00a0tokens**" in said
        and f"**{against}\u00a0tokens**" in said
        and "share the same weights" in said
    )
    figure = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert {trace["name"] for trace in figure["data"]} == set(MOVES.values())
    contrary = query.contrary_tokens(lab, "finished", 2)
    assert at.dataframe[0].value["Δ log p (nats)"].tolist() == pytest.approx(contrary["change"].tolist())


def test_a_contrary_token_is_chosen_from_the_list(states, open_page):
    contrary = query.contrary_tokens(open_runs([states / "finished"]), "finished", 2)
    token = contrary.iloc[1]
    at = open_page("tokens", run="finished", step=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome.st, "dataframe", _selecting(1))
        at.run()
    at.run()
    chosen = {"rollout": int(token["rollout"]), "position": int(token["position"])}
    assert drawn(at)["selected"] == chosen and at.query_params["group"] == str(token["group"])
    assert "✗" in lines(at, chosen["position"])["change"]["note"]


def _selecting(row: int):
    """st.dataframe of a reader who selects a row at once."""

    def dataframe(*_: object, key: str, on_select: object, **__: object) -> None:
        st.session_state[key] = {"selection": {"rows": [row]}}
        on_select()

    return dataframe


def test_probes_have_no_step_that_moved_them(states, open_page):
    assert not open_page("tokens", run="finished", split="probe", step=0).subheader


@pytest.mark.parametrize(
    "choice", [{"color": "mood"}, {"sort": "luck"}, {"rollout": "99"}, {"position": "x"}, {"group": "77"}]
)
def test_an_impossible_choice_gives_a_sentence_and_the_default(states, open_page, choice):
    at = open_page("tokens", run="finished", step=2, **choice)
    assert not at.exception and at.warning
    assert drawn(at)["colour"]["id"] == "advantage"


def test_probes_walk_through_steps_with_the_same_prompt(states, open_page):
    at = open_page("tokens", run="finished", split="probe", step=0, group=1)
    assert "Probes are not trained" in texts(at)
    prompt = at.query_params["prompt"]
    assert lines(at, drawn(at)["selected"]["position"])["loss_weight"]["value"] == "not trained"
    at.button(key="step:next").click().run()
    assert at.query_params["step"] != "0" and at.query_params["prompt"] == prompt
    assert not at.exception and drawn(at)["key"].startswith("finished/probe/")


def test_the_prompt_is_kept_between_steps_and_a_new_one_forgets_the_token(states, open_page):
    lab = open_runs([states / "finished"])
    met = lab.rows(
        "SELECT prompt_id, list(step ORDER BY step) AS steps FROM groups WHERE split = 'train' GROUP BY prompt_id "
        "HAVING count(DISTINCT step) > 1 ORDER BY prompt_id"
    )[0]
    first, second = met["steps"][:2]
    at = open_page("tokens", run="finished", step=first, prompt=met["prompt_id"])
    at.button(key="visit:later").click().run()
    assert at.query_params["step"] == str(second) and at.query_params["prompt"] == met["prompt_id"]
    at.query_params["prompt"], at.query_params["rollout"], at.query_params["position"] = "gone", "1", "1"
    at.run()
    assert "rollout" not in at.query_params and at.query_params["prompt"] != "gone"


def test_rollouts_of_a_selection_are_marked_dropped(states, open_page):
    at = open_page("tokens", run="sealed", step=2)  # PSR keeps the right answers only
    rows = drawn(at)["rows"]
    assert {row["sign"]: row["kept"] for row in rows} == {"+": True, "−": False} or all(row["kept"] for row in rows)
    for row in rows:
        assert ("dropped, not in the loss" in row["title"]) == (not row["kept"])
        assert all(flag & 1 for flag in row["flags"]) == (not row["kept"])


def test_groups_that_dynamic_sampling_dropped_say_so(tmp_path: Path, monkeypatch, open_page):
    make_run(tmp_path, "dapo", method="dapo", steps=8, prompts=4, group_size=4)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    lab = open_runs([tmp_path / "dapo"])
    dropped = lab.rows("SELECT step, \"group\" FROM groups WHERE split = 'train' AND NOT kept ORDER BY ALL")[0]
    at = open_page("tokens", run="dapo", step=dropped["step"], group=dropped["group"])
    said = "Nothing of this group was trained on (dropped: all rewards of its group are equal)."
    assert said in texts(at) and not at.exception
    assert not any(row["kept"] for row in drawn(at)["rows"])
    assert any("· not trained" in option for option in at.selectbox(key="url:group").options)


@pytest.mark.parametrize(("method", "side", "kept"), [("psr", "wrong", "correct"), ("nsr", "correct", "wrong")])
def test_groups_of_which_a_selection_keeps_nothing_say_so_in_its_words(
    tmp_path: Path, monkeypatch, open_page, method, side, kept
):
    path = make_run(tmp_path, "one-sided", method=method, steps=6, prompts=4, group_size=3)
    (shutil.copytree(path, tmp_path / "bare") / "config.yaml").write_text("steps: [", encoding="utf-8")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    empty = "SELECT step, \"group\" FROM groups WHERE split = 'train' AND NOT kept ORDER BY ALL"
    place = open_runs([path]).rows(empty)[0]
    reason = f"Nothing of this group was trained on (dropped: a {side} response, only {kept} ones are trained on)."
    at = open_page("tokens", run="one-sided", **place)
    assert reason in texts(at) and "dynamic sampling" not in texts(at) and not at.exception
    bare = texts(open_page("tokens", run="bare", **place))
    assert "Nothing of this group was trained on. " in bare and "trained on (" not in bare


def test_what_was_not_recorded_is_said(tmp_path: Path, monkeypatch, open_page):
    path = make_run(tmp_path, "bare", steps=2, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens.parquet"):
        table = pq.read_table(file)
        place = table.schema.get_field_index("after_logprob")
        nulls = pa.nulls(len(table), table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), nulls), file)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("tokens", run="bare", step=1, color="change")
    assert "record.after_update" in drawn(at)["colour"]["note"]
    assert "Which way the tokens moved was not recorded" in texts(at)
    assert lines(at, drawn(at)["selected"]["position"])["change"]["value"] == "not recorded"


def test_the_same_numbers_as_a_table(states, open_page):
    at = open_page("tokens", run="finished", step=2, group=0, rollout=1, table=1)
    table = at.dataframe[0].value
    row = next(row for row in drawn(at)["rows"] if row["rollout"] == 1)
    assert table["token"].tolist() == row["tokens"]
    assert table["advantage"].tolist() == pytest.approx(row["values"]["advantage"], rel=1e-5)


def test_a_broken_config_leaves_numbers_without_reasons(tmp_path: Path, monkeypatch, open_page):
    path = make_run(tmp_path, "broken", steps=2, prompts=2, group_size=4)
    (path / "config.yaml").write_text("steps: [", encoding="utf-8")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("tokens", run="broken", step=1)
    assert not at.exception and "reasons cannot be recomputed" in texts(at)
    got = lines(at, drawn(at)["selected"]["position"])
    assert got["base_advantage"]["note"] == "" and got["advantage"]["raw"] is not None
