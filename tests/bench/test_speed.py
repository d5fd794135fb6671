"""The speed benches run, on little; their times are for reading, not for testing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.cli import main
from core.config import parse_run
from tests.bench.speed import table
from tests.bench.speed.benches import BENCHES, Bench, BenchError, find
from tests.bench.speed.report import lines
from tests.bench.speed.result import Comparison, PeerError
from tests.bench.speed.rollouts import RolloutBench
from tests.bench.speed.step import StepBench, changed, prompts_of, without_recording

SMALL = parse_run(
    {
        "method": "grpo", "threads": 1, "device": "cpu", "prompts_per_step": 2, "group_size": 4,
        "sampling": {"max_new_tokens": 24}, "evaluate": {"prompts": 2, "rollouts": 2, "k": 2, "probes": 1},
    }
)  # fmt: skip


def comparison(ours: float = 0.5) -> Comparison:
    return Comparison("a step", "s a step", "trl", ours, 2.0, 2.0 / ours, 3, 2, more={"full_s": 1.0, "full_ratio": 2.0})


def test_an_unknown_bench_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "chess"]) == 2
    assert capfd.readouterr().err.strip() == (
        "error: no bench is called 'chess': there is embedded, smollm2-135m, rollouts, what-if, vllm"
    )
    with pytest.raises(BenchError):
        find("chess")


def test_benches_need_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("core.cli.bench.ROOT", tmp_path)
    assert main(["bench"]) == 2
    assert capsys.readouterr().err.startswith("error: tests/bench/speed/__main__.py is not here: benches come with")


def test_a_peer_that_is_missing_says_how_to_get_it() -> None:
    bench = Bench("chess", "no_such_peer", "pip install no-such-peer", lambda: SMALL, 1, lambda *_: comparison())
    assert bench.missing() == (
        "the bench chess compares with no_such_peer, which is not installed: pip install no-such-peer"
    )
    unready = Bench("chess", "json", "", lambda: changed(SMALL, model="org/unknown"), 1, lambda *_: comparison())
    assert unready.missing().startswith("the bench chess cannot run: model 'org/unknown' is not here")


def test_rollouts_through_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "rollouts", "--json", "--rounds", "1"]) == 0
    found = json.loads(capfd.readouterr().out)["rollouts"]
    assert found["ours_tokens_per_second"] > 0 and found["generate_tokens_per_second"] > 0
    assert found["ratio"] == pytest.approx(
        found["ours_tokens_per_second"] / found["generate_tokens_per_second"], rel=1e-3
    )
    assert (found["rounds"], found["threads"]) == (1, 1)


def test_what_if_questions_beside_loops_over_rollouts() -> None:
    from tests.bench.speed.whatif import WhatIfBench

    found = WhatIfBench(SMALL, rounds=2, warm_up=1, rollouts=16, tokens=40).run()
    assert found.ours > 0 and found.ratio == pytest.approx(found.theirs / found.ours)
    assert found.more["page_s"] > 0
    text = "\n".join(lines("what-if", found))
    assert "4 methods on 16 rollouts x 40 tokens" in text and "a slider move may take 0.2 s" in text
    assert " s with masses and all pairs | 2, 1 |" in table.row("what-if", found)


def test_loops_that_give_other_advantages_are_no_peer() -> None:
    from tests.bench.speed.whatif import SPECS, as_tensors, four, made_up, same

    tensors = as_tensors(made_up(16, 40, seed=1))
    theirs = four(tensors)
    same(theirs, [advantages.numpy().astype(float) for advantages in theirs])
    wrong = [advantages.numpy().astype(float) for advantages in theirs]
    wrong[1][0, 0] += 0.1
    with pytest.raises(PeerError, match=f"the loops' advantages under {SPECS[1]} are not the lab's"):
        same(theirs, wrong)


def test_both_sides_sample_about_the_same() -> None:
    from tests.bench.speed import rollouts

    prompts = [prompt.text for prompt in prompts_of(changed(SMALL, prompts_per_step=8, steps=1))]
    config = changed(SMALL, prompts_per_step=8, group_size=8)
    tokens = [ask(prompts, 0) for ask in (rollouts._ours(config), rollouts._generate(config))]
    assert min(tokens) > 64 * 8 and max(tokens) < 64 * 24
    assert max(tokens) < 1.2 * min(tokens)
    assert RolloutBench(SMALL, rounds=1, warm_up=0).run().rounds == 1


def test_a_step_beside_trl_is_a_whole_step() -> None:
    found = StepBench(SMALL, rounds=1, warm_up=1, micro_batch=4).run()
    assert found.ours > 0 and found.theirs > 0 and found.ratio == pytest.approx(found.theirs / found.ours)
    assert found.more["trl_tokens"] > 8 and found.more["ours_tokens"] > 8
    assert found.more["after_s"] < 1e-3 < found.more["full_after_s"]
    assert 0 < found.more["write_s"] < found.ours
    assert 0 < found.more["entropy_s"] < found.ours
    assert found.more["evaluation_s"] > 0
    assert "TRL" in "\n".join(lines("small", found))


def test_recording_off_writes_the_store_and_nothing_more() -> None:
    off = without_recording(SMALL)
    assert (off.record.after_update, off.evaluate.every) == ("off", 0)
    assert off.checkpoint.every > SMALL.steps
    assert off.method == SMALL.method and off.lora == SMALL.lora


def test_the_prompts_of_the_peer_are_those_of_the_run() -> None:
    prompts = prompts_of(changed(SMALL, steps=3))
    assert len(prompts) == 6 and len({prompt.id for prompt in prompts}) == 6
    assert prompts[:2] == prompts_of(changed(SMALL, steps=1))


def test_the_table_keeps_the_rows_of_other_benches(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Above\n\n{table.BEGIN}\n{table.END}\n\nBelow | stays\n", encoding="utf-8")
    table.write({"embedded": comparison(), "rollouts": comparison()}, readme)
    table.write({"embedded": comparison(ours=0.25)}, readme)
    text = readme.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["embedded", "rollouts"]
    assert "| 0.25 s a step | TRL: 2 s a step | **8.00x** | 1 s, 2.00x | 3, 2 |" in rows[0]
    assert "**4.00x**" in rows[1]
    assert "cores" in rows[0] and "torch" in rows[0]
    assert text.startswith("# Above\n") and text.endswith("\nBelow | stays\n")
    assert text.count(table.BEGIN) == text.count(table.END) == 1


def test_a_readme_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here", encoding="utf-8")
    with pytest.raises(table.TableError, match=r"README\.md has no <!-- speed: begin -->"):
        table.write({"embedded": comparison()}, readme)
    assert readme.read_text(encoding="utf-8") == "nothing here"


def test_the_readme_of_the_benches_has_a_place_for_the_table() -> None:
    text = table.README.read_text(encoding="utf-8")
    assert text.index(table.BEGIN) < text.index(table.END)
    assert all(f"`{name}`" in text for name in BENCHES)
