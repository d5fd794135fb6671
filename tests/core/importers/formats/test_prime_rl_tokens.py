"""prime-rl token exports: a step is read once STABLE is there."""

import shutil

import pytest

from core.importers.base import ImportFailed, Report
from tests.core.importers.formats.reading import EXAMPLES, example_rows, read, write_lines

STEP = "prime_rl/token_exports/step_3"


def test_a_step_waits_for_stable_and_is_read_later(tmp_path):
    for step in (3, 4):
        shutil.copytree(EXAMPLES / STEP, tmp_path / f"step_{step}")
        rows = [row | {"step": step} for row in example_rows(f"{STEP}/rank_0.jsonl")]
        write_lines(tmp_path / f"step_{step}" / "rank_0.jsonl", rows)
    (tmp_path / "step_4" / "STABLE").unlink()
    report, done = Report(), {}
    assert {row["step"] for row in read(tmp_path, report, done)} == {3}
    assert report.notes == ["step_4: no STABLE yet, left for a later import."]
    assert list(done) == ["step_3/rank_0.jsonl"]
    (tmp_path / "step_4" / "STABLE").touch()
    assert {row["step"] for row in read(tmp_path, done=done)} == {4}


def test_without_any_stable_step_it_says_so(tmp_path):
    shutil.copytree(EXAMPLES / STEP, tmp_path / "step_3")
    (tmp_path / "step_3" / "STABLE").unlink()
    alone = next((tmp_path / "step_3").glob("*.jsonl"))
    with pytest.raises(ImportFailed, match=rf"^{alone.name} is one file of a prime-rl step.*import the step's folder"):
        read(alone)
    with pytest.raises(ImportFailed, match="no step with `STABLE` yet"):
        read(tmp_path)


def test_what_the_trainer_saw_of_each_token_arrives():
    row = read(EXAMPLES / STEP)[0]
    assert row["trainer_logprob"] == pytest.approx([-0.41, -0.1])
    assert row["entropy"] == pytest.approx([0.8, 0.2])
    assert row["ratio"] == pytest.approx([0.99, 1.0])
    assert row["clipped"] == [False, False]
    assert row["kept"] == [True, True]
    assert "reward" not in row and "text" not in row
    assert row["prompt"] == "token ids 10 11"


def test_tokens_between_turns_are_not_kept_and_masked_ones_are_clipped(tmp_path):
    row = example_rows(f"{STEP}/rank_0.jsonl")[0] | {
        "token_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 1, 0, 1, 0], "is_masked": [False, True, None, False, False],
        "rewards": [None, 0.5, None, 0.5, None], "importance_ratio": [None] * 5,
    }  # fmt: skip
    for key in ("advantages", "inference_logprobs", "trainer_logprobs", "entropy"):
        row[key] = [0.0, 0.1, 0.2, 0.3, 0.4]
    write_lines(tmp_path / "rank_0.jsonl", [row])
    (tmp_path / "STABLE").touch()
    found = read(tmp_path)[0]
    assert found["token_ids"] == [2, 3, 4]
    assert found["kept"] == [True, False, True]
    assert found["clipped"] == [True, None, False]
    assert found["token_advantage"] == pytest.approx([0.1, 0.2, 0.3])
    assert found["reward"] == 0.5
    assert "ratio" not in found


def test_groups_are_told_by_the_prompts_ids(tmp_path):
    rows = example_rows(f"{STEP}/rank_0.jsonl")
    rows[1]["token_ids"] = [10, 12, 13, 2]
    rows[3] |= {"loss_mask": [False] * 4}
    write_lines(tmp_path / "rank_0.jsonl", rows)
    (tmp_path / "STABLE").touch()
    report = Report()
    first, second, third = read(tmp_path, report)
    assert first["group"] == third["group"] != second["group"]
    assert report.refused == {"no token is in the loss": 1}
