"""From tables of rollouts to a run: groups, repeats, what is missing, and the store's own promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.advantage import AdvantageError, build, compute
from core.config import ConfigError, read_run
from core.importers import sealed
from core.importers import steps as writing
from core.importers.base import Found, ImportFailed, Places, Report
from core.importers.manifest import MANIFEST, read_manifest
from core.importers.write import HIDDEN, Imported, bring_in
from core.runs import RunError, check_resume, get_run, resume
from core.runs.create import check_machine
from core.store import StoreError, check, open_runs, replay
from tests.core.importers.tables import TABLES, found, read, step, write


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


def take(root: Path, files: Path, **more: Any) -> Imported:
    return bring_in(root, TABLES, found(files), **more)


def rows(made: Imported, query: str) -> list[dict[str, Any]]:
    with open_runs([made.path]) as lab:
        return lab.rows(query)


def test_text_alone_becomes_a_sealed_run_that_keeps_the_promise(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(3, [[1, 0, 0, 1], [1, 1, 1, 1]]))
    write(files, "b.parquet", **step(5, [[0, 0, 0, 0], [1, 0, 0, 0]]))
    made = take(root, files)
    assert check(made.path).problems == []
    info = get_run(root, made.path.name)
    assert (info.state, info.imported, info.sealed, info.step, info.total) == ("finished", True, True, 2, 2)
    assert (info.model, info.method, info.name) == ("unknown", "grpo", "files")
    assert info.reward == pytest.approx(0.125), "of the last step"
    stored = rows(made, 'SELECT * FROM rollouts ORDER BY step, "group", rollout')
    assert [(row["step"], row["group"], row["rollout"]) for row in stored] == [
        (s, g, r) for s in (3, 5) for g in (0, 1) for r in range(4)
    ]
    for row in stored:
        for column in ("length", "truncated", "repeated", "sequence_logprob"):
            assert row[column] is None
        assert row["base_advantage"] == pytest.approx(row["imported_advantage"], abs=1e-6)
        assert row["mass"] == pytest.approx(abs(row["base_advantage"]) / 8)
    assert rows(made, "SELECT 1 FROM tokens UNION ALL SELECT 1 FROM summary UNION ALL SELECT 1 FROM strings") == []
    (first, _) = rows(made, "SELECT * FROM metrics ORDER BY step")
    assert (first["reward"], first["pass_rate"], first["rollouts"]) == (0.75, 0.75, 8)
    assert first["length"] is first["tokens"] is first["entropy"] is first["grad_norm"] is first["time"] is None
    assert first["no_signal_share"] == 0.5
    assert not list(root.glob(".*"))


def test_no_length_is_made_up_for_classes(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 1, 1, 0], [1, 0, 0, 0]]))
    stored = rows(take(root, files), 'SELECT * FROM groups ORDER BY "group"')
    for row in stored:
        assert row["longest_correct"] is row["mean_wrong_length"] is row["length_advantage"] is None
    assert [row["class"] for row in stored] == ["unfavorable", "favorable"], "by difficulty alone"


def test_what_needs_lengths_or_log_probs_says_so(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 0]]))
    made = take(root, files)
    again = replay(made.path, made.path.name, 0)
    for method, words in (("adora_code_vlm", "compares lengths"), ("a3po", "sampler_logprob")):
        with pytest.raises(AdvantageError, match=words):
            compute(build(method), again.batch)
    assert compute(build("adora_amplify"), again.batch).classes.label == ["favorable"]


def test_lengths_without_tokens_count(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 0, 0, 1]], length=[5, 9, 0, 7], truncated=[False, True, False, False]))
    made = take(root, files)
    assert check(made.path).problems == []
    assert read_run(made.path / "config.yaml").sampling.max_new_tokens == 9
    (row,) = rows(made, "SELECT longest_correct, mean_wrong_length FROM groups")
    assert row == {"longest_correct": 7, "mean_wrong_length": 1}, "a response has a token at least"
    (row,) = rows(made, "SELECT length, tokens, truncated_share FROM metrics")
    assert row == {"length": 5.25, "tokens": 21, "truncated_share": 0.25}


def tokens(**more: Any) -> dict[str, Any]:
    logprob = [[-0.1, -0.2, -0.3], [-1, -2], [-0.5], [-0.6, -0.7]]
    return step(
        2, [[1, 0], [0, 1]], token_ids=[[4, 5, 6], [4, 7], [8], [8, 9]], sampler_logprob=logprob,
        trainer_logprob=[logprob[0], [-1, -2.1], *logprob[2:]], entropy=[[0.3] * 3, [1] * 2, [0], [0.1] * 2],
    ) | more  # fmt: skip


def test_tokens_are_stored_with_recomputed_and_imported_advantages(root: Path, files: Path) -> None:
    given = [[0.7, 0.7, 0.7], [-0.7, -0.7], [-0.7], [0.7, None]]
    write(files, "a.parquet", **tokens(advantage=[None] * 4, token_advantage=given))
    made = take(root, files)
    assert check(made.path).problems == []
    stored = rows(made, 'SELECT * FROM tokens ORDER BY "group", rollout, position')
    assert [row["token_id"] for row in stored] == [4, 5, 6, 4, 7, 8, 8, 9]
    assert [row["imported_advantage"] for row in stored] == pytest.approx(
        [value for own in given for value in own], nan_ok=True
    )
    assert stored[-1]["imported_advantage"] is None, "null is no zero"
    assert {round(abs(row["advantage"]), 3) for row in stored} == {0.707}
    assert sum(row["loss_weight"] for row in stored) == pytest.approx(1)
    (row,) = rows(made, "SELECT length, tokens, entropy, gap_max FROM metrics")
    assert (row["length"], row["tokens"], row["gap_max"]) == (2, 8, pytest.approx(0.1))
    assert row["entropy"] == pytest.approx((0.9 + 2 + 0 + 0.2) / 8)
    assert made.manifest.tokens == 8
    assert rows(made, "SELECT sum(n) AS n FROM summary WHERE field = 'probability'") == [{"n": 8}]
    assert compute(build("a3po"), replay(made.path, made.path.name, 2).batch).advantage.shape == (4, 3)


def test_what_the_trainers_mask_left_out_takes_no_part(root: Path, files: Path) -> None:
    kept = [[True, False, True], [True, True], [True], [True, True]]
    logprob = [[-0.1, None, -0.3], [-1, -2], [-0.5], [-0.6, -0.7]]
    write(files, "a.parquet", **tokens(kept=kept, sampler_logprob=logprob))
    made = take(root, files)
    assert check(made.path).problems == []
    stored = rows(made, 'SELECT * FROM tokens ORDER BY "group", rollout, position')
    assert [row["kept"] for row in stored] == [value for own in kept for value in own]
    assert (stored[1]["advantage"], stored[1]["loss_weight"], stored[1]["f_selected"]) == (0, 0, 0)
    assert stored[0]["loss_weight"] == pytest.approx(1 / 7)
    again = replay(made.path, made.path.name, 2)
    assert "mask keeps 7 of 8" in again.trace.factors[0].reason
    assert compute(build("a3po"), again.batch).kept.sum() == 7, "a masked token needs no log-prob"


def test_token_texts_without_ids_get_numbers(root: Path, files: Path) -> None:
    texts = [["a", "b", "a"], ["b", "c"], ["a"], ["c", "a"]]
    write(files, "a.parquet", **tokens(token_ids=[None] * 4, tokens=texts))
    made = take(root, files)
    stored = rows(made, "SELECT DISTINCT token, token_id FROM tokens ORDER BY token")
    assert stored == [{"token": text, "token_id": i} for i, text in enumerate("abc")]
    assert "token_ids" in made.manifest.lacks and "tokens" not in made.manifest.lacks
    assert check(made.path).problems == []


def test_groups_are_neighbours_of_one_prompt_or_what_the_files_say(root: Path, files: Path) -> None:
    prompts = ["p", "p", "q", "q", "p", "p"]
    write(files, "a.parquet", **step(0, [[1, 0, 1, 0, 1, 0]], prompt=prompts, advantage=[None] * 6))
    write(
        files,
        "b.parquet",
        **step(1, [[1, 0, 1, 0, 1, 0]], prompt=["p"] * 6, group=list("ababab"), advantage=[None] * 6),
    )
    stored = rows(take(root, files), 'SELECT step, "group", prompt, n, prompt_id FROM groups ORDER BY ALL')
    assert [(row["step"], row["prompt"], row["n"]) for row in stored] == [
        (0, "p", 2), (0, "q", 2), (0, "p", 2), (1, "p", 3), (1, "p", 3)
    ]  # fmt: skip
    assert len({row["prompt_id"] for row in stored}) == 2, "a prompt is known wherever it comes back"


def test_shuffled_rollouts_are_grouped_by_their_prompts_and_prompts_may_be_missing(root: Path, files: Path) -> None:
    shuffled = ["p", "q", "r"] * 3
    write(files, "a.parquet", **step(0, [[1, 0, 0] * 3], prompt=shuffled, advantage=[None] * 9))
    made = take(root, files)
    assert [row["n"] for row in rows(made, "SELECT n FROM groups")] == [3, 3, 3]
    assert any("side by side" in note for note in made.report.notes)
    alone = files.parent / "alone"
    write(alone, "a.parquet", **step(0, [[1, 0]], prompt=[None] * 2, advantage=[None] * 2))
    made = take(root, alone)
    assert [row["n"] for row in rows(made, "SELECT n FROM groups")] == [1, 1]
    assert "prompt" in made.manifest.lacks and check(made.path).problems == []


def test_rows_that_are_there_twice_are_dropped_and_counted(root: Path, files: Path) -> None:
    same = step(0, [[1, 0, 1, 1]], text=["x", "y", "x", "x"], advantage=[0.5, -1.5, 0.5, 0.5])
    write(files, "a.parquet", **same)
    write(files, "b.parquet", **same)
    made = take(root, files)
    assert [row["text"] for row in rows(made, "SELECT text FROM rollouts ORDER BY rollout")] == ["x", "y", "x", "x"]
    assert made.report.refused == {"the same rollout is there twice": 4}
    assert made.report.examples == {"the same rollout is there twice": "b.parquet, step 0"}
    named = files.parent / "named"
    write(named, "a.parquet", **step(0, [[1, 0, 1]], sample=["1", "2", "1"]))
    made = take(root, named)
    assert (made.report.taken, sum(made.report.refused.values())) == (2, 1)


def test_rewards_come_from_their_parts_and_correctness_from_its_part(root: Path, files: Path) -> None:
    parts = [{"accuracy": 1.0, "format": 1.0}, {"accuracy": 0.0, "format": 1.0}, {"accuracy": None, "format": None}]
    write(files, "a.parquet", **step(0, [[1, 0, 1]], reward=[None] * 3, parts=[list(p.items()) for p in parts]))
    made = take(root, files)
    stored = rows(made, "SELECT reward, correct, correctness, parts FROM rollouts ORDER BY rollout")
    assert [(row["reward"], row["correct"], row["correctness"]) for row in stored] == [(2, True, 1), (1, False, 0)]
    assert stored[0]["parts"] == {"accuracy": 1.0, "format": 1.0}
    assert made.report.refused == {"no reward, where other rollouts of its step have one": 1}
    assert any("`accuracy`" in note for note in made.report.notes)


def test_rollouts_without_rewards_are_kept_without_advantages(root: Path, files: Path) -> None:
    given = tokens(reward=[None] * 4, advantage=[None] * 4, token_advantage=[[1, 1, 1], [-1, -1], [0], [1, -2]])
    write(files, "a.parquet", **given)
    made = take(root, files)
    assert check(made.path).problems == []
    assert {"reward", "correct"} <= set(made.manifest.lacks)
    stored = rows(made, 'SELECT * FROM rollouts ORDER BY "group", rollout')
    assert [row["polarity"] for row in stored] == [1, -1, -1, -1]
    assert all(row["reward"] is row["correct"] is row["base_advantage"] is None for row in stored)
    assert [row["imported_advantage"] for row in stored] == [1, -1, 0, None]
    assert [row["correct"] for row in rows(made, "SELECT correct FROM groups")] == [None, None]
    with pytest.raises(StoreError, match="without rewards"):
        replay(made.path, made.path.name, 2)


def test_evaluations_beside_training_and_alone(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 0]]))
    write(files, "b.parquet", **step(0, [[1, 0], [0, 0]], split=["eval"] * 4, advantage=[None] * 4))
    made = take(root, files)
    assert check(made.path).problems == []
    (row,) = rows(made, "SELECT * FROM evals")
    assert (row["prompts"], row["rollouts"], row["pass_at_1"], row["k"], row["pass_at_k"]) == (2, 2, 0.25, 2, 0.5)
    alone = files.parent / "alone"
    write(alone, "b.parquet", **step(0, [[1, 0], [0, 0]], step=[None] * 4, split=["eval"] * 4, advantage=[None] * 4))
    made = take(root, alone)
    assert check(made.path).problems == []
    assert made.manifest.evaluation
    assert rows(made, "SELECT split, step, count(*) AS n FROM rollouts GROUP BY ALL") == [
        {"split": "train", "step": 0, "n": 4}
    ]
    assert len(made.report.notes) == 2


def test_rows_that_cannot_be_stored_are_refused_with_their_place(root: Path, files: Path) -> None:
    write(files, "a.parquet", **tokens(entropy=[[0.3] * 2, [1] * 2, [0], [0.1] * 2]))
    write(files, "b.parquet", **step(7, [[1, float("inf"), float("nan"), 0]], step=[7, 7, 7, -1]))
    made = take(root, files)
    assert made.report.refused == {
        "its lists of tokens are of different lengths": 1,
        "the step is not between 0 and 999,999,999,999": 1,
        "the reward is not a finite number": 1,
        "no reward, where other rollouts of its step have one": 1,
    }
    assert made.report.examples["the reward is not a finite number"] == "b.parquet, step 7"
    assert made.report.taken == 4
    assert read_manifest(made.path) == made.manifest


def test_nothing_to_take_leaves_nothing(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[float("inf")]]))
    with pytest.raises(
        ImportFailed, match=r"nothing could be taken: the reward is not a finite number \(a.parquet, step 0\)"
    ):
        take(root, files)
    assert list(root.iterdir()) == []


def test_an_interrupted_import_leaves_nothing_behind(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 0]]))

    def cut_off(found: Found, report: Report, done: Places) -> Iterator[pa.Table]:
        yield from read(found, report, done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_in(root, replace(TABLES, read=cut_off), found(files))
    assert list(root.iterdir()) == []
    (root / f"{HIDDEN}of-a-killed-process").mkdir()
    made = take(root, files)
    assert list(root.iterdir()) == [made.path]


def test_an_imported_run_is_never_started(root: Path, files: Path) -> None:
    write(files, "a.parquet", **step(0, [[1, 0]]))
    made = take(root, files)
    for act in (check_resume, resume):
        for steps in (None, 10):
            with pytest.raises(RunError, match=r"came from elsewhere|is finished"):
                act(made.path, steps)
    with pytest.raises(ConfigError, match="imported"):
        check_machine(read_run(made.path / "config.yaml"))


def test_hostile_texts_and_names_are_data(root: Path, tmp_path: Path) -> None:
    files = tmp_path / "'; DROP TABLE rollouts; --"
    bad = "\0' <script> ␛ \\ \u202e"
    write(files, "a'b.parquet", **step(
        0, [[1, 0]], text=[bad, "' OR 1"], prompt=[bad] * 2, parts=[[(bad, 1.0), ("acc']", 1.0)]] * 2,
        group=["'"] * 2, sample=["1", "2"],
    ))  # fmt: skip
    made = take(root, files)
    assert check(made.path).problems == []
    from core.store.text import decode

    assert decode(rows(made, "SELECT text FROM rollouts ORDER BY rollout")[0]["text"]) == bad
    assert (made.path / MANIFEST).is_file() and "/" not in made.path.name


def test_many_steps_in_one_chunk_and_a_step_in_many_tables(root: Path, files: Path) -> None:
    random = np.random.default_rng(0)
    wanted = {}
    for number in (4, 2, 9):
        rewards = (random.random((6, 4)) < 0.5).astype(float)
        wanted[number] = rewards.ravel().tolist()
        own = step(number, rewards.tolist())
        for part in range(3):
            write(
                files,
                f"{part}-{number}.parquet",
                **{name: values[part * 8 : part * 8 + 8] for name, values in own.items()},
            )
    made = take(root, files)
    assert check(made.path).problems == []
    for number, rewards in wanted.items():
        stored = rows(made, f'SELECT reward FROM rollouts WHERE step = {number} ORDER BY "group", rollout')
        assert [row["reward"] for row in stored] == rewards


def test_steps_with_long_texts_are_written_a_few_at_a_time(
    root: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 KB a response, thousands would fill the memory where rows alone are counted."""
    for number in range(6):
        write(files, f"{number}.parquet", **step(number, [[1, 0]], text=["a" * 200] * 2))
    ready, inserts = [], []
    monkeypatch.setattr(writing, "LETTERS", 1000)
    monkeypatch.setattr(
        writing, "Rows", lambda table, keys, make=writing.Rows: ready.append(len(table)) or make(table, keys)
    )
    monkeypatch.setattr(sealed, "BYTES_AT_ONCE", 1)
    insert = sealed.Sealed._insert
    monkeypatch.setattr(sealed.Sealed, "_insert", lambda *args: inserts.append(args[2]) or insert(*args))
    made = take(root, files)
    assert ready == [4, 4, 4]
    assert inserts == [[0, 1], [2, 3], [4, 5]]
    assert check(made.path).problems == []
