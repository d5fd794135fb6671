"""lab.json beside the rollouts: its method is recomputed token by token and held against the trainer's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.advantage import Batch, compute
from core.config import RunConfig, parse_run, read_run
from core.exporters.cluster import lab_settings
from core.importers.base import ImportFailed
from core.importers.formats import all_formats, find
from core.importers.write import Imported, bring_in
from core.store.check import check

GROUPS, SIZE, LIMIT = 4, 4, 12
METHODS: dict[str, dict[str, Any]] = {
    "a3po": {"method": {"name": "a3po", "base": "dapo"}},  # a number a token, and groups that dynamic sampling drops
    "fork_tokens": {"method": "fork_tokens"},  # its own selection, which the dump shows as the trainer's mask
    "mass_matched": {"method": {"name": "a3po", "mass_matched": True}, "updates": {"minibatches": 2}},
    "psr": {"method": "psr"},  # a number a response, and wrong answers that it drops
}


def config_of(**more: Any) -> RunConfig:
    shape = {"prompts_per_step": GROUPS, "group_size": SIZE, "steps": 6, "sampling": {"max_new_tokens": LIMIT}}
    return parse_run({**shape, "seed": 3, **more})


def dump(folder: Path, config: RunConfig, step: int, first: int = 0, **absent: None) -> None:
    """What the exported trainer writes of a step: TRL's columns, and the lab's own; columns may be `absent`."""
    rng = np.random.default_rng(step)
    n = GROUPS * SIZE
    length = rng.integers(2, LIMIT + 1, n)
    group, reward = np.repeat(np.arange(GROUPS), SIZE), rng.integers(0, 2, n).astype(float)
    reward[:SIZE] = 1  # a group without a signal
    mask = np.arange(LIMIT) < length[:, None]
    logprob = np.where(mask, -rng.exponential(1.0, mask.shape), 0).astype(np.float32)
    entropy = np.where(mask, rng.exponential(1.0, mask.shape), 0).astype(np.float32)
    batch = Batch(
        group=group, reward=reward, correct=reward >= 0.5, length=length, truncated=length == LIMIT, max_length=LIMIT,
        step=step, total_steps=6, sampler_logprob=logprob, trainer_logprob=logprob, entropy=entropy,
        minibatches=config.updates.minibatches, seed=config.seed,
    )  # fmt: skip
    trace = compute(config.build_method(), batch)

    def cut(values: np.ndarray) -> list[list[Any]]:
        return [row[:size].tolist() for row, size in zip(values, length, strict=True)]

    ids = rng.integers(3, 40, mask.shape)
    columns = {
        "step": [step + first] * n,
        "prompt": [f"prompt {g}" for g in group],
        "completion": [f"answer {i}" for i in range(n)],
        "right": reward.tolist(),
        "advantage": [float(row[:size].mean()) for row, size in zip(trace.advantage, length, strict=True)],
        "group": [str(g) for g in group],
        "length": length.tolist(),
        "truncated": (length == LIMIT).tolist(),
        "correct": (reward >= 0.5).tolist(),
        "token_ids": cut(ids),
        "tokens": [[f"t{i}" for i in row] for row in cut(ids)],
        "token_advantage": cut(trace.advantage),
        "kept": cut(trace.kept),
        "trainer_logprob": cut(logprob),
        "entropy": cut(entropy),
    }
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    table = pa.table({name: values for name, values in columns.items() if name not in absent})
    pq.write_table(table, folder / "completions" / f"completions_{step:05d}.parquet")


def say(folder: Path, config: RunConfig, trainer: str = "trl", **changes: Any) -> None:
    data = lab_settings(config, trainer) | changes
    (folder / "completions" / "lab.json").write_text(json.dumps(data), encoding="utf-8")


def bring(root: Path, folder: Path, **wishes: Any) -> Imported:
    found = find(folder)
    return bring_in(root, all_formats()[found.format], found, **wishes)


@pytest.mark.parametrize("name", METHODS)
def test_the_exported_method_is_recomputed_and_agrees(root: Path, tmp_path: Path, name: str) -> None:
    config, folder = config_of(**METHODS[name]), tmp_path / "output"
    for step in (0, 1):
        dump(folder, config, step)
    say(folder, config)
    made = bring(root, folder)
    label = config.build_method().label
    assert made.manifest.sentence.startswith(f"lab.json says that these were computed with {label}: recomputed so, 100")
    assert made.manifest.convention == "lab.json"
    kept = read_run(made.path / "config.yaml")
    assert (kept.build_method(), kept.seed, kept.schedule_steps) == (config.build_method(), 3, 6)
    assert (kept.updates.minibatches, kept.imported) == (config.updates.minibatches, True)
    report = check(made.path)
    assert report.ok, report.problems
    if name == "a3po":
        dump(folder, config, 2)
        again = bring(root, folder)
        assert (again.path, again.new_steps) == (made.path, 1)
        assert "100 % of" in again.manifest.sentence and check(made.path).ok
        (folder / "completions" / "lab.json").unlink()
        dump(folder, config, 3)
        with pytest.raises(ImportFailed, match=r"lab\.json by which .* is gone"):
            bring(root, folder)


def test_steps_that_verl_counts_from_one_are_the_rules_steps(root: Path, tmp_path: Path) -> None:
    config, folder = config_of(**METHODS["a3po"]), tmp_path / "output"
    for step in (0, 3):
        dump(folder, config, step, first=1)
    say(folder, config, "verl")
    made = bring(root, folder)
    assert "recomputed so, 100" in made.manifest.sentence
    assert any("its step 1 is step 0 here" in note for note in made.manifest.notes)
    assert check(made.path).ok


def test_what_disagrees_or_is_wished_otherwise_is_said(root: Path, tmp_path: Path) -> None:
    config, folder = config_of(**METHODS["a3po"]), tmp_path / "output"
    dump(folder, config, 0)
    say(folder, config_of(method="rloo"))
    made = bring(root, folder)
    assert "computed with RLOO, but recomputed so, only" in made.manifest.sentence
    other = bring(root, folder, wanted="dr_grpo")
    assert other.path != made.path and other.manifest.convention == "dr_grpo"
    assert read_run(other.path / "config.yaml").method.name == "dr_grpo"


@pytest.mark.parametrize("text", ["[1]", '{"method": 3}', "{" * 5000, '{"a": "' + "x" * 2**20 + '"}', "\udc80"])
def test_a_lab_json_of_somebody_elses_is_left_aside(root: Path, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "output"
    dump(folder, config_of(), 0)
    (folder / "completions" / "lab.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    made = bring(root, folder)
    assert made.manifest.convention != "lab.json"
    assert any(note.startswith("lab.json was left aside (") for note in made.manifest.notes)
    with pytest.raises(ImportFailed, match="there is none beside"):
        bring(root, folder, wanted="lab.json")


def test_hostile_settings_and_missing_inputs_are_one_sentence(root: Path, tmp_path: Path) -> None:
    config, folder = config_of(**METHODS["a3po"]), tmp_path / "output"
    dump(folder, config, 0, entropy=None, trainer_logprob=None)
    say(folder, config)
    made = bring(root, folder)
    assert made.manifest.convention != "lab.json"
    assert any("A3PO" in note and "per-token log-probs" in note for note in made.manifest.notes), made.manifest.notes
    say(folder, config, method={"name": "os.system", "base": None, "also": [], "set": {}, "mass_matched": False})
    made = bring(root, folder, name="other")
    assert any("left aside" in note and "os.system" in note for note in made.manifest.notes)
