"""The blackboard's table: what can be typed, what it says of mistakes, and that its packed form brings it back."""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import replace

import numpy as np
import pytest

from app.board_table import (
    MOST_ROWS,
    BoardError,
    Filed,
    Row,
    Table,
    decode,
    drawable,
    encode,
    frame,
    of_batch,
    of_frame,
    read,
)
from core.advantage import batch_from_json, build, compute
from core.counterfactual.examples import EXAMPLES

PAIR = (Row("a", 1, 3, False, "0.9 0.5 0.1"), Row("a", 0, 2, False, "0.5"))
BATCH = {"group": [0, 0, 7], "reward": [1, 0, 0.4], "length": [3, 4, 2], "truncated": [0, 1, 0], "max_length": 4}
LOGPROBS = {"old_logprob": [[-0.1, -0.2, -0.3], [-1, -2, -3, -4], [-0.5, -0.123456789]]}


def with_row(**changes) -> Table:
    """A table whose second row is changed."""
    row = {"prompt": "a", "reward": 0, "length": 2, "probabilities": "0.5", **changes}
    return Table((PAIR[0], Row(**row)))


def test_a_table_is_a_batch():
    typed = read(Table((*PAIR, Row("b", 0.4, 4, True, "1")), step=3, total_steps=90))
    batch = batch_from_json(typed.data)
    assert batch.group.tolist() == [0, 0, 1] and typed.prompts == ["a", "b"]
    assert batch.reward.tolist() == pytest.approx([1, 0, 0.4]) and batch.truncated.tolist() == [False, False, True]
    assert (batch.max_length, batch.step, batch.total_steps) == (4, 3, 90)
    np.testing.assert_allclose(np.exp(batch.sampler_logprob[0, :3]), [0.9, 0.5, 0.1], rtol=1e-6)
    np.testing.assert_allclose(np.exp(batch.sampler_logprob[1, :2]), [0.5, 0.5], rtol=1e-6)
    assert typed.tokens[1] == ["t1", "t2"] and batch.entropy is None


def test_prompts_follow_the_row_above_and_blank_rows_are_left_out():
    rows = (Row("", 1, 2), Row("", 0, 2), Row(), Row("b", 1, 2), Row("", 0, 2), Row("c"))
    typed = read(Table(rows))
    assert typed.data["group"] == [0, 0, 1, 1] and typed.prompts == ["prompt", "b"]


@pytest.mark.parametrize(
    ("row", "length"),
    [
        (Row("a", 1, None, False, "0.9 0.5 0.1"), 3),
        (Row("a", 1, None, False, "0.9, 0.5; 0.1"), 3),
        (Row("a", 1, None, False, "", "", "the answer is 4"), 4),
        (Row("a", 1, None, False, "0.3"), 1),
        (Row("a", 1, 5, False, "0.3"), 5),
    ],
)
def test_the_length_comes_from_what_is_there(row, length):
    typed = read(Table((row, row)))
    assert typed.data["length"] == [length] * 2 and len(typed.tokens[0]) == length
    assert len(typed.data["old_logprob"][0]) == length


def test_words_and_entropies_are_taken():
    typed = read(Table((Row("a", 1, 2, False, "0.5", "0.1 2", "so 7"), Row("a", 0, 3, False, "0.5", "1.5"))))
    assert typed.tokens == [["so", "7"], ["t1", "t2", "t3"]]
    assert typed.data["entropy"] == [[0.1, 2], [1.5] * 3]


def test_missing_probabilities_are_made_up_and_said():
    typed = read(Table((PAIR[0], Row("a", 0, 5))))
    made = np.exp(typed.data["old_logprob"][1])
    assert made[0] == pytest.approx(0.9) and made[-1] == pytest.approx(0.1)
    assert np.diff(made) == pytest.approx([-0.2] * 4)
    assert typed.notes == ["No token probabilities in row 2: made up, falling evenly from 0.9 to 0.1."]
    assert read(Table(PAIR)).notes == []
    assert "in any row" in read(Table((Row("a", 1, 2), Row("a", 0, 2)))).notes[0]


def test_a_length_may_change_alone():
    row = Row("a", 1, 3, False, "0.9 0.5 0.1", "1 2 3", "so it is")
    typed = read(Table((row, replace(row, length=5), replace(row, length=1))))
    made = [np.exp(values).round(6).tolist() for values in typed.data["old_logprob"]]
    assert made == [[0.9, 0.5, 0.1], [0.9, 0.5, 0.1, 0.9, 0.5], [0.9]]
    assert typed.data["entropy"] == [[1, 2, 3], [1, 2, 3, 1, 2], [1]]
    assert typed.tokens == [["so", "it", "is"], ["so", "it", "is", "t4", "t5"], ["so"]]
    assert typed.notes == [
        "Fewer token probabilities than tokens in row 2: they start again from the first.",
        "More token probabilities than tokens in row 3: the last ones are left out.",
        "Fewer token entropies than tokens in row 2: they start again from the first.",
        "More token entropies than tokens in row 3: the last ones are left out.",
        "Fewer words than tokens in row 2: the rest are t1, t2, … by their places.",
        "More words than tokens in row 3: the last ones are left out.",
    ]
    batch_from_json(typed.data)


@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_length_of_every_example_may_change_alone(name, length):
    table = of_batch(EXAMPLES[name].batch, EXAMPLES[name].prompts)
    for i, row in enumerate(table.rows):
        if not row.truncated:
            rows = (*table.rows[:i], replace(row, length=length), *table.rows[i + 1 :])
            changed = replace(table, rows=rows, max_length=None if length == 40 else table.max_length)
            if any(row.truncated for row in rows) and length == 40:
                continue  # what was cut off is as long as the longest
            typed = read(changed)
            assert f"row {i + 1}: " in typed.notes[0] and batch_from_json(typed.data).length[i] == length


def test_a_lone_rollout_is_named():
    typed = read(Table((*PAIR, Row("lonely", 1, 2, False, "0.5"), Row("too", 1, 2, False, "0.5"))))
    assert typed.lone == "“lonely” has row 3 alone" and typed.notes == []
    assert read(Table(PAIR)).lone == ""


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (with_row(probabilities="0.5 1.2"), "Row 2, token probabilities: 1.2 is not a probability"),
        (with_row(probabilities="0.5 0"), "Row 2, token probabilities: 0 is not a probability"),
        (with_row(probabilities="0.5 -0.1"), "Row 2, token probabilities: -0.1 is not a probability"),
        (with_row(probabilities="0.5 nan"), "Row 2, token probabilities: nan is not a probability"),
        (with_row(probabilities="0.5 half"), "Row 2, token probabilities: “half” is not a number"),
        (
            with_row(length=None, words="one two three", probabilities="0.5 0.4"),
            "Row 2, token probabilities: 2 of them, but 3 words; give the length, or as many.",
        ),
        (
            with_row(length=None, entropies="1 2 3", probabilities="0.5 0.4"),
            "Row 2, token entropies: 3 of them, but 2 token probabilities; give the length, or as many.",
        ),
        (with_row(entropies="-1 2"), "Row 2, token entropies: -1 is not an entropy"),
        (with_row(entropies="inf 2"), "Row 2, token entropies: inf is not an entropy"),
        (with_row(entropies="1 2"), "Row 1, token entropies: missing, but other rows have them"),
        (with_row(length=0), "Row 2, length: must be at least 1, but is 0"),
        (with_row(length=-3), "Row 2, length: must be at least 1, but is −3"),
        (with_row(length=None, probabilities=""), "Row 2, length: missing"),
        (with_row(length=100_000), "Row 2, length: 100000 tokens, but a table holds 500 at most"),
        (with_row(reward=None), "Row 2, reward: missing"),
        (with_row(reward=math.nan), "Row 2, reward: must be a finite number, but is nan"),
        (with_row(reward=math.inf), "Row 2, reward: must be a finite number, but is inf"),
        (with_row(truncated=True), "Row 2, truncated: it has 2 tokens, but a response that was cut off has as many"),
        (Table(PAIR, max_length=2), "Row 1, length: 3 tokens are more than the length limit, 2"),
        (Table(()), "The table is empty"),
        (Table((Row(), Row("a"))), "The table is empty"),
        (Table(PAIR * 500), f"The table has 1000 rows, but holds {MOST_ROWS} at most"),
    ],
)
def test_mistakes_are_one_sentence_that_names_the_place(table, words):
    with pytest.raises(BoardError) as caught:
        read(table)
    said = str(caught.value)
    assert said.startswith(words) and said.endswith(".") and "\n" not in said and len(said) < 200


def test_a_blank_row_does_not_shift_the_numbers_of_the_others():
    with pytest.raises(BoardError, match="Row 4, reward"):
        read(Table((*PAIR, Row(), Row("a", None, 2))))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_survive_the_table_and_the_address(name):
    example = EXAMPLES[name]
    table = of_batch(example.batch, example.prompts)
    assert decode(encode(table)) == table and of_frame(frame(table.rows)) == table.rows
    assert len(encode(table)) < 1000
    typed = read(decode(encode(table)))
    assert typed.prompts == list(example.prompts) and typed.notes == []
    mine, theirs = batch_from_json(typed.data), batch_from_json(example.batch)
    for method in ("grpo", "adora_code_llm", "a3po"):
        traces = [compute(build(method), batch) for batch in (mine, theirs)]
        np.testing.assert_array_equal(traces[0].advantage, traces[1].advantage)


def test_a_whole_table_survives_the_address():
    rows = (Row("7+8=?", 0.25, None, True, "0.9 0.5", "1 2", "עברית x"), Row(), Row("", None, 3))
    table = Table(rows, max_length=9, step=4, total_steps=50, correct_from=0.2)
    assert decode(encode(table)) == table
    file = Filed("mine.json", {**BATCH, **LOGPROBS}, 0.3)
    assert decode(encode(file)) == file


def packed(content: object) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(content).encode())).decode().rstrip("=")


WHOLE = {"rows": [["a", 1, 2]], "max_length": None, "step": 0, "total_steps": None, "correct_from": 0.5}


@pytest.mark.parametrize(
    "text",
    [
        "x", "!!!", "ütf", "", encode(Table(PAIR))[:-9], encode(Table(PAIR)) + "AAAA", packed(None), packed([1]),
        packed({}), packed({**WHOLE, "rows": 7}), packed({**WHOLE, "rows": [7]}), packed({**WHOLE, "rows": [[1]]}),
        packed({**WHOLE, "rows": [["a", "1"]]}), packed({**WHOLE, "rows": [["a", math.nan]]}),
        packed({**WHOLE, "rows": [["a", 1, 2.5]]}), packed({**WHOLE, "rows": [["a", 1, 1e300]]}),
        packed({**WHOLE, "rows": [["a"] * 8]}), packed({**WHOLE, "step": "x"}),
        packed({**WHOLE, "correct_from": math.inf}),
        packed({"file": [1], "name": "x", "correct_from": 0.5}), packed({"file": {}, "name": 1, "correct_from": 0.5}),
        base64.urlsafe_b64encode(zlib.compress(b"[" * 100_000)).decode(),
        base64.urlsafe_b64encode(zlib.compress(b" " * 50_000_000)).decode(),
    ],
)  # fmt: skip
def test_a_broken_address_is_one_sentence(text):
    with pytest.raises(BoardError, match="link is broken or incomplete"):
        decode(text)


def test_typed_text_keeps_only_what_can_be_seen():
    row = decode(packed({**WHOLE, "rows": [["a\u202eb\x00\n", 1, 2, 0, "", "", "so\u200b \ud800 7"]]})).rows[0]
    assert row.prompt == "a b" and row.words.split() == ["so", "7"]


def test_large_group_numbers_stay_apart_and_unlikely_tokens_possible():
    data = {
        "group": [1234567, 1234567, 1234568, 1234568], "reward": [1, 0, 1, 1], "length": [1] * 4,
        "truncated": [False] * 4, "max_length": 4, "old_logprob": [[-800.0], [-0.1], [-0.1], [-0.1]],
    }  # fmt: skip
    typed = read(of_batch(data))
    batch = batch_from_json(typed.data)
    assert batch.group.tolist() == [0, 0, 1, 1] and typed.prompts == ["group 1234567", "group 1234568"]
    assert batch.sampler_logprob[0, 0] < -600


@pytest.mark.parametrize(("rollouts", "tokens"), [(2, 10_000), (200, 1_000)])
def test_more_than_a_page_can_draw_is_refused(rollouts, tokens):
    lengths = {"length": [tokens] * rollouts, "max_length": tokens, "truncated": [False] * rollouts}
    batch = batch_from_json({"group": [0] * rollouts, "reward": [1] + [0] * (rollouts - 1), **lengths})
    with pytest.raises(BoardError, match=f"{rollouts} rollouts of up to {tokens} tokens are too many to draw"):
        drawable(batch)
