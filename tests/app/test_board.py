"""The blackboard on its page: edits, links, files, and what the What if page makes of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.board_table import (
    BoardError,
    Row,
    Table,
    encode,
)
from core.advantage import batch_from_json
from core.counterfactual.examples import EXAMPLES
from tests.app.conftest import texts
from tests.app.test_board_table import BATCH, LOGPROBS, PAIR


def blackboard() -> None:
    """A page with the blackboard alone, and what it hands on."""
    import streamlit as st

    from app import actions, board

    actions.show_flash()
    found = board.source(st.container())
    if found is not None:
        n = len(found.batch.group)
        st.json({
            "title": found.title, "key": found.key, "defaults": found.defaults, "prompts": list(found.prompts.values()),
            "rollout": found.rollout.tolist(), "tokens": [list(found.texts(i)) for i in range(n)],
            "reward": found.batch.reward.tolist(), "correct": found.batch.correct.tolist(),
            "max_length": found.batch.max_length,
        })  # fmt: skip


def opened(**params: str) -> AppTest:
    at = AppTest.from_function(blackboard, default_timeout=30)
    for name, value in params.items():
        at.query_params[name] = value
    return at.run()


def found(at: AppTest) -> dict:
    return json.loads(at.json[0].value)


def edit(at: AppTest, **changes: object) -> AppTest:
    """What the editor does with a reader's edits."""
    at.session_state[at.data_editor[0].key] = {"edited_rows": {}, "added_rows": [], "deleted_rows": [], **changes}
    return at.run()


def test_it_opens_on_an_example():
    at = opened()
    assert not at.exception and not at.error and not at.warning
    assert found(at)["title"] == EXAMPLES["one_right"].title and found(at)["reward"] == [1, 0, 0, 0]
    assert "b" not in at.query_params and "1\\.4997" in texts(at)
    assert found(at)["tokens"][1] == ["t1", "t2", "t3", "t4", "t5"] and found(at)["rollout"] == [0, 1, 2, 3]


def test_choosing_an_example_brings_its_methods_and_forgets_the_token():
    at = opened(rollout="3", position="2", m="psr")
    at.selectbox(key="board:example").set_value("adora_edges").run()
    assert at.query_params["example"] == "adora_edges" and "rollout" not in at.query_params
    assert at.query_params["m"] == list(EXAMPLES["adora_edges"].methods)
    assert found(at)["prompts"] == list(EXAMPLES["adora_edges"].prompts) and found(at)["rollout"] == [0, 1, 2, 3] * 6


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_plain_link_to_an_example_opens_on_what_it_is_about(name):
    example = EXAMPLES[name]
    plain = opened(source="board", example=name)
    assert (plain.query_params["diff"], plain.query_params["scope"]) == (example.diff, example.scope)
    other = next(other for other in EXAMPLES if other != name)
    chosen = opened(example=other, m="psr", diff="A-B", scope="group", group="3")
    chosen.selectbox(key="board:example").set_value(name).run()
    assert (chosen.query_params["diff"], chosen.query_params["scope"]) == (example.diff, example.scope)
    assert "group" not in chosen.query_params


@pytest.mark.parametrize("said", [{"diff": "A-B"}, {"scope": "group"}, {"group": "2"}, {"m": "psr"}, {"rollout": "1"}])
def test_a_link_that_says_what_to_look_at_is_left_alone(said):
    at = opened(example="adora_edges", **said)
    assert {name: at.query_params[name] for name in ("diff", "scope", *said) if name in at.query_params} == said


def test_a_table_to_start_from():
    at = opened(example="adora_edges", m=["psr", "nsr"], group="4", scope="step", diff="B-C")
    at.selectbox(key="board:example").set_value("empty").run()
    assert not at.exception and not at.error and not at.warning
    assert found(at)["reward"] == [1, 0] and found(at)["tokens"][1] == ["t1", "t2", "t3", "t4", "t5"]
    assert at.data_editor[0].value["probabilities"].tolist() == ["", ""]
    assert "No token probabilities in any row: made up" in texts(at).replace("\\", "")
    assert list(at.query_params) == ["b"] and at.selectbox(key="board:example").value == ""
    edit(at, edited_rows={0: {"length": 3}})
    assert [len(tokens) for tokens in found(at)["tokens"]] == [3, 5]


def test_a_changed_length_keeps_the_answer_and_is_said():
    at = opened(example="one_right")
    edit(at, edited_rows={0: {"length": 9}})
    assert not at.error and [len(tokens) for tokens in found(at)["tokens"]] == [9, 5, 8, 7]
    assert "Fewer token probabilities than tokens in row 1" in texts(at)
    edit(at, edited_rows={0: {"length": 6}})
    assert "Fewer" not in texts(at) and at.data_editor[0].value["probabilities"][0] == "0.9 0.5 0.99 0.2 0.7 0.05"


def test_edits_reach_the_address_and_the_address_brings_them_back():
    at = opened(example="all_correct")
    edit(at, edited_rows={0: {"reward": 0.25}}, added_rows=[{"prompt": "other", "reward": 1.0, "length": 3}])
    assert not at.exception and "example" not in at.query_params
    assert at.query_params["m"] == list(EXAMPLES["all_correct"].methods)
    assert found(at)["reward"] == [0.25, 1, 1, 1, 1] and found(at)["prompts"] == ["all correct", "other"]
    assert found(at)["correct"] == [False, True, True, True, True]
    assert "No token probabilities in row 5" in texts(at)
    before = found(at)
    assert found(at.run()) == before
    again = opened(b=at.query_params["b"])
    assert found(again) == before and again.selectbox(key="board:example").value == ""
    assert again.data_editor[0].value["reward"].tolist() == [0.25, 1, 1, 1, 1]


def test_rows_can_be_taken_out_and_back():
    at = opened(m="psr")
    edit(at, deleted_rows=[1, 2])
    assert at.query_params["m"] == "psr" and found(at)["reward"] == [1, 0] and found(at)["rollout"] == [0, 1]
    first = at.query_params["b"]
    edit(at, deleted_rows=[1, 2], edited_rows={0: {"truncated": True}})
    assert at.query_params["b"] != first
    at.query_params["b"] = first  # the back button
    at.run()
    assert at.query_params["b"] == first and found(at)["reward"] == [1, 0]
    assert at.data_editor[0].value["truncated"].tolist() == [False, False]


def test_a_mistake_is_said_and_nothing_is_handed_on():
    at = opened()
    edit(at, edited_rows={2: {"probabilities": "0.5 1.5"}})
    assert not at.exception and not at.json
    assert at.error[0].value.startswith("Row 3\\, token probabilities\\: 1\\.5 is not a probability")
    edit(at, edited_rows={2: {"probabilities": "0.5"}})
    assert not at.error and found(at)["reward"] == [1, 0, 0, 0]


def test_limits_live_in_the_address():
    at = opened(example="adora_edges")
    assert found(at)["correct"].count(True) == 10
    at.number_input(key="board:correct_from").set_value(0.3).run()
    assert found(at)["correct"].count(True) == 15
    at.number_input(key="board:max_length").set_value(30).run()
    assert "Row 11\\, truncated\\: it has 12 tokens" in at.error[0].value and not at.json
    at = opened(example="one_right")
    at.number_input(key="board:max_length").set_value(30).run()
    at.number_input(key="board:total_steps").set_value(70).run()
    assert found(at)["max_length"] == 30 and found(opened(b=at.query_params["b"])) == found(at)
    at.number_input(key="board:max_length").set_value(5).run()
    assert "more than the length limit\\, 5" in at.error[0].value and not at.json


def test_a_paste_of_a_thousand_rows_is_left_out_and_said():
    at = opened(example="all_wrong")
    edit(at, added_rows=[{"prompt": "p", "reward": 1.0, "length": 3}] * 1000)
    assert not at.exception and "these 1000 more were left out" in at.error[0].value
    assert found(at)["title"] == EXAMPLES["all_wrong"].title and "b" not in at.query_params
    edit(at, added_rows=[{"prompt": "p", "reward": 1.0, "length": 3}] * 30)
    assert not at.error and len(found(at)["reward"]) == 34
    edit(at, edited_rows={33: {"reward": 0.5}})
    assert found(at)["reward"][30:] == [1, 1, 1, 0.5]


def test_a_link_to_a_thousand_rows_is_refused_and_can_be_shortened():
    at = opened(b=encode(Table(PAIR * 500)))
    assert not at.exception and not at.json and "has 1000 rows\\, but holds 200" in at.error[0].value
    edit(at, deleted_rows=list(range(2, 1000)))
    assert not at.error and found(at)["reward"] == [1, 0]


def test_a_table_beyond_all_measure_is_not_packed():
    with pytest.raises(BoardError, match="too large, with 200 rows"):
        encode(Table((Row("p", 1, 3, False, "0.5 " * 4000),) * 200))


def test_more_columns_keep_the_edits():
    at = opened()
    edit(at, edited_rows={1: {"reward": 0.75}})
    at.toggle(key="url:more").set_value(True).run()
    assert found(at)["reward"] == [1, 0.75, 0, 0] and at.query_params["more"] == "1"
    edit(at, edited_rows={0: {"words": "one two three four five six", "entropies": "1"}})
    assert "Row 2\\, token entropies\\: missing" in at.error[0].value
    edit(at, edited_rows={0: {"words": "one two three four five six"}})
    assert found(at)["tokens"][0][:2] == ["one", "two"] and found(at)["reward"] == [1, 0.75, 0, 0]


def test_hostile_text_stays_text():
    hostile = "![x](http://evil/a.png) <script>alert(1)</script> $$x$$ :skull: \u202e"
    at = opened()
    edit(
        at, edited_rows={0: {"prompt": hostile, "words": "<b> $a$ ![x](http://e) :x: \u202e[l](u) ok", "reward": None}}
    )
    assert not at.exception and at.error
    edit(at, edited_rows={0: {"prompt": hostile, "words": "<b> $a$ ![x](http://e) :x: [l](u) ok", "reward": 1}})
    assert found(at)["tokens"][0] == ["<b>", "$a$", "![x](http://e)", ":x:", "[l](u)", "ok"]
    assert "<script>" not in texts(at) and "![x]" not in texts(at) and "\u202e" not in str(found(at))
    edit(at, edited_rows={0: {"probabilities": "0.5 <img/src=x>"}})
    assert "\\<img\\/src\\=x\\>" in at.error[0].value


@pytest.mark.parametrize("text", ["broken", "eJw", ".0123456789abcdef"])
def test_an_address_that_cannot_be_read_gives_a_sentence_and_an_example(text):
    at = opened(b=text, example="all_wrong")
    assert not at.exception and "This is an example instead" in at.warning[0].value
    assert found(at)["title"] == EXAMPLES["all_wrong"].title


def test_an_unknown_example_gives_a_sentence_and_the_first():
    at = opened(example="mine")
    assert not at.exception and "example" in at.warning[0].value
    assert found(at)["title"] == EXAMPLES["one_right"].title


def upload(at: AppTest, content: bytes, name: str = "mine.json") -> AppTest:
    at.file_uploader[0].set_value((name, content, "application/json"))
    return at.run()


def test_a_batch_file_is_taken_as_it_is():
    at = upload(opened(), json.dumps({**BATCH, **LOGPROBS}).encode())
    assert not at.exception and not at.error and not at.data_editor
    assert found(at)["prompts"] == ["group 0", "group 7"] and found(at)["rollout"] == [0, 1, 0]
    assert "3\xa0rollouts in 2\xa0groups of up to 4\xa0tokens, from “mine\\.json”" in texts(at)
    assert found(opened(b=at.query_params["b"])) == found(at)
    next(button for button in at.button if button.label == "Edit as a table").click().run()
    assert at.data_editor[0].value["probabilities"].tolist()[2] == "0.6065 0.8839"
    assert found(at)["reward"] == pytest.approx([1, 0, 0.4])


def test_a_pasted_batch_is_taken_too():
    at = opened()
    at.text_area(key="board:paste").set_value(json.dumps(BATCH)).run()
    next(button for button in at.button if button.label == "Use what was pasted").click().run()
    assert not at.exception and found(at)["title"] == "pasted batch"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b"[" * 50_000, "it is not JSON"),
        (b'{"group": [], "group": [0]}', "stands twice in one object"),
        (b"[]", "must be an object with the keys group"),
        (json.dumps({**BATCH, "rewards": []}).encode(), "unknown key"),
        (json.dumps({**BATCH, "reward": [1, math.nan, 0]}).encode(), "must be a finite number"),
        (json.dumps({**BATCH, "length": [3, 4, 0]}).encode(), "must be a whole number between 1"),
        (json.dumps({**BATCH, "old_logprob": [[0.5] * 3, [-1] * 4, [-1] * 2]}).encode(), "a log\\-prob\\, at most 0"),
        (json.dumps({**BATCH, "old_logprob": [[-1] * 2, [-1] * 4, [-1] * 2]}).encode(), "has 2 entries"),
        (b" " * 9_000_000, "larger than 8 MB"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_batch_is_one_sentence_and_changes_nothing(content, words):
    at = upload(opened(example="all_wrong"), content, "<b>x.json")
    assert not at.exception and words in at.error[0].value and "\\<b\\>x\\.json" in at.error[0].value
    assert found(at)["title"] == EXAMPLES["all_wrong"].title and "b" not in at.query_params


def test_a_large_file_stays_in_its_session():
    rng = np.random.default_rng(0)
    rows, tokens = 64, 512
    batch = {
        "group": np.repeat(np.arange(8), 8).tolist(), "reward": (rng.random(rows) < 0.5).astype(int).tolist(),
        "length": [tokens] * rows, "truncated": [False] * rows, "max_length": tokens,
        "old_logprob": (-rng.exponential(1, (rows, tokens))).tolist(),
    }  # fmt: skip
    at = upload(opened(), json.dumps(batch).encode())
    assert not at.exception and at.query_params["b"].startswith(".") and len(at.query_params["b"]) < 30
    assert "too large for a link" in texts(at) and len(found(at)["reward"]) == rows
    assert not [button for button in at.button if button.label == "Edit as a table"]
    elsewhere = opened(b=at.query_params["b"])
    assert "stayed where it was made" in elsewhere.warning[0].value and found(elsewhere)["reward"] == [1, 0, 0, 0]


def test_the_download_is_the_batch(monkeypatch):
    import streamlit as st

    given = {}
    monkeypatch.setattr(st, "download_button", lambda label, data, **rest: given.update({label: data()}))
    at = opened(example="adora_edges")
    data = json.loads(given["BATCH.json"])
    mine, theirs = batch_from_json(data), batch_from_json(EXAMPLES["adora_edges"].batch)
    for name in ("group", "reward", "length", "truncated", "sampler_logprob"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    assert not at.exception and mine.max_length == 12


# On the page.


def drawn(at: AppTest) -> dict:
    """What the view of the What-if page was given."""
    views = at.get("bidi_component")
    assert len(views) == 1, texts(at)
    return json.loads(views[0].proto.json)


def test_the_page_answers_an_example_without_any_run(no_runs, open_page):
    at = open_page("whatif", source="board", example="one_right", rollout=0, position=2)
    assert not at.exception and not at.error
    view = drawn(at)
    explained = view["explain"]["tokens"][2 - view["explain"]["start"]]
    totals = [next(line for line in told if line["id"] == "advantage") for told in explained]
    assert [line["value"] for line in totals] == ["+1.4997", "+1.732", "+0.75"]
    assert [panel["label"] for panel in view["panels"]][:3] == [
        "GRPO · ddof 1, eps 0.0001",
        "GRPO · ddof 0",
        "Dr. GRPO",
    ]


def test_the_page_asks_for_a_prompt_only_where_there_are_several(no_runs, open_page):
    at = open_page("whatif", source="board", example="all_wrong", scope="step", group="7")
    assert not at.exception and not at.error
    assert "Prompt" not in [one.label for one in at.selectbox] and "url:scope" not in at.session_state
    assert len(drawn(at)["rows"]) == 4
    at = open_page("whatif", source="board", example="adora_edges")
    assert at.session_state["url:scope"] == "step" and len(drawn(at)["rows"]) == 24
    assert drawn(at)["panels"][-1]["letter"] == "C−B"


def test_the_page_refuses_a_lone_rollout_where_rollouts_are_compared(no_runs, open_page):
    at = open_page("whatif", source="board", b=encode(Table((*PAIR, Row("b", 1, 2, False, "0.5")))), m=["grpo", "pm1"])
    refused = "“b” has row 3 alone\\, but GRPO compares the rollouts of a prompt\\: give it two\\."
    assert not at.exception and [error.value for error in at.error] == [refused]
    assert [panel["label"] for panel in drawn(at)["panels"]] == ["REINFORCE ±1"]


def test_the_page_shows_typed_words_as_they_are(no_runs, open_page):
    words = "<script>alert(1)</script> $$x$$ ![](http://e)"
    rows = (Row("<b>p</b>", 1, None, False, "0.5", "", words), Row("", 0, 2, False, "0.5"))
    at = open_page("whatif", source="board", b=encode(Table(rows)), m=["grpo", "dr_grpo"])
    assert not at.exception and not at.error
    assert drawn(at)["rows"][0]["tokens"] == words.split()
    assert "<b>p</b>" not in texts(at)
