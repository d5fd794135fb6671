"""The sentence about a run, and the illnesses it may have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from app.views.verdict import illnesses, levels, verdict, window
from core.store.queries.live import Curves

N = 40
HEALTHY = {
    "reward": np.linspace(0.4, 0.7, N), "entropy": np.full(N, 0.38), "no_signal_share": np.full(N, 0.2),
    "all_correct_share": np.full(N, 0.1), "all_wrong_share": np.full(N, 0.1), "truncated_share": np.zeros(N),
    "length": np.full(N, 20.0), "clip_low_share": np.zeros(N), "clip_high_share": np.zeros(N),
    "grad_norm": np.full(N, 0.5), "policy_loss": np.full(N, -0.02),
}  # fmt: skip


def curves(evals=((0, 0.42), (40, 0.63)), steps=N, **changes) -> Curves:
    metrics = pd.DataFrame({**HEALTHY, **{k: np.asarray(v, float) for k, v in changes.items()}}).head(steps)
    metrics.insert(0, "step", range(len(metrics)))
    exams = pd.DataFrame([{"step": s, "pass_at_1": p, "prompts": 64, "rollouts": 8} for s, p in evals])
    return Curves(metrics, exams if len(exams) else pd.DataFrame({"step": []}), 1)


def named(found) -> list[str]:
    return [finding.sentence.split("**")[1] for finding in found]


def test_learning_says_the_gain_its_steps_and_its_n():
    said = verdict(curves())
    assert said.tone == "good"
    assert said.sentence == (
        "**Learning**: held-out pass@1 +0.21 in 40\u00a0steps (0.42 → 0.63, 64 prompts × 8 rollouts); "
        "entropy steady at 0.38\u00a0nats; 20\u00a0% of groups carry no signal."
    )


def test_a_gain_within_the_noise_is_no_claim():
    assert verdict(curves(evals=((0, 0.42), (40, 0.43)))).tone == "neutral"
    assert verdict(curves(evals=((0, 0.63), (40, 0.42)))).tone == "bad"
    assert verdict(curves(evals=((0, 0.42), (40, 0.43))), ended=True).sentence.startswith("**No clear change**")


def test_without_evaluations_the_training_reward_speaks():
    said = verdict(curves(evals=()))
    assert said.tone == "good"
    assert "training reward +0.24" in said.sentence
    noise = np.where(np.arange(N) % 2, 0.3, 0.6)
    assert verdict(curves(evals=(), reward=noise)).tone == "neutral"


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_nothing_is_claimed_before_there_is_anything(steps):
    said = verdict(curves(steps=steps))
    assert said.tone == "neutral"
    assert "Learning" not in said.sentence
    assert illnesses(curves(steps=steps), "r") == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "Too early to say: 3\u00a0steps so far."),
        ({"no_signal_share": [1.0] * 3}, "3\u00a0steps so far, but **no group had a signal yet**."),
        (
            {"no_signal_share": [1.0] * 3, "all_wrong_share": [1.0] * 3, "truncated_share": [0.9] * 3},
            "a signal yet**: every answer was wrong, and 90\u00a0% of the answers were cut off by the length limit.",
        ),
    ],
)
def test_a_run_that_has_just_begun_says_only_what_is_plain(columns, words):
    found = verdict(curves(steps=3, **{name: values + [0.0] * (N - 3) for name, values in columns.items()}))
    assert found.sentence.endswith(words) and found.tone == ("warning" if columns else "neutral")


def test_falling_entropy_is_said_with_its_numbers():
    assert "entropy falling fast (0.4 → 0.1" in verdict(curves(entropy=[0.4] * 20 + [0.1] * 20)).sentence


def test_a_healthy_run_has_no_illness():
    assert illnesses(curves(), "r", 72) == []
    close = {"tis_mean_ratio": [1.01] * N, "gap_mean": [0.004] * N, "gap_share": [0.02] * N}
    assert illnesses(curves(**close), "r", 72) == []


@pytest.mark.parametrize(
    ("changes", "name", "tone", "page"),
    [
        ({"entropy": [0.4] * 20 + [0.02] * 20}, "Entropy collapse", "warning", "polarity"),
        ({"no_signal_share": [0.97] * N, "all_wrong_share": [0.97] * N}, "Nearly all groups are uniform", "bad",
         "favorability"),
        ({"truncated_share": [1.0] * N}, "Every response is truncated", "bad", "tokens"),
        ({"truncated_share": [0.5] * N}, "50\u00a0% of responses are truncated", "warning", "tokens"),
        ({"length": [10.0] * 20 + [40.0] * 20}, "Length is growing with the reward", "warning", "polarity"),
        ({"clip_low_share": [0.2] * N, "clip_high_share": [0.1] * N}, "Clipping is at its ceiling", "warning",
         "tokens"),
        ({"policy_loss": [1e-9] * N}, "The loss reads 0 and that is no error", "neutral", "tokens"),
        ({"grad_norm": [0.5] * (N - 1) + [50.0]}, "The gradient jumped", "warning", "tokens"),
    ],
)  # fmt: skip
def test_each_illness_is_named_with_the_page_that_shows_it(changes, name, tone, page):
    found = illnesses(curves(**changes), "r", 72)
    assert named(found) == [name]
    assert (found[0].tone, found[0].page) == (tone, page)
    assert found[0].params["run"] == "r"


def test_only_a_run_of_one_update_a_step_is_told_that_every_ratio_is_1():
    def said(**columns) -> str:
        return illnesses(curves(policy_loss=[1e-9] * N, **columns), "r")[0].sentence

    assert "with one update a step every ratio is 1" in said(updates=[1] * (N - 1) + [0])
    for other in ({"updates": [1] * (N - 1) + [2]}, {}):
        assert "one update a step" not in said(**other) and "first update finds every ratio at 1" in said(**other)


def test_uniform_groups_say_which_way():
    easy = illnesses(curves(no_signal_share=[0.97] * N, all_correct_share=[0.97] * N), "r")
    assert "too easy" in easy[0].sentence


@pytest.mark.parametrize(
    ("changes", "tone", "advice"),
    [
        ({"tis_mean_ratio": 1.08}, "bad", "not drawn as the engine says"),
        ({"tis_mean_ratio": 0.9}, "bad", "not drawn as the engine says"),
        ({"gap_mean": 0.3}, "bad", "the trainer's precision"),
        ({"gap_share": 0.2}, "warning", "the trainer's precision"),
    ],
)
def test_sampler_and_trainer_that_disagree_are_named_with_their_numbers(changes, tone, advice):
    numbers = {"tis_mean_ratio": 1.0, "gap_mean": 0.01, "gap_share": 0.02} | changes
    (found,) = illnesses(curves(**{name: [value] * N for name, value in numbers.items()}), "r")
    assert named([found]) == ["Sampler and trainer disagree"]
    assert (found.tone, found.page, found.params["run"]) == (tone, "tokens", "r")
    assert advice in found.sentence
    assert f"the mean ratio is {numbers['tis_mean_ratio']:.3g} where 1 is expected" in found.sentence
    assert f"{round(100 * numbers['gap_share'])}\u00a0% of tokens are far apart" in found.sentence


def test_a_run_of_one_model_has_no_disagreement():
    nothing = dict.fromkeys(("tis_mean_ratio", "gap_mean", "gap_share"), [np.nan] * N)
    assert illnesses(curves(**nothing), "r") == []


def test_missing_columns_are_no_illness():
    bare = Curves(pd.DataFrame({"step": range(10), "reward": np.linspace(0, 1, 10)}), pd.DataFrame({"step": []}), 1)
    assert illnesses(bare, "r") == []
    assert verdict(bare).tone == "good"


def test_levels_are_means_over_a_fifth_of_the_run():
    assert [window(n) for n in (1, 3, 10, 40, 500)] == [1, 3, 3, 8, 10]
    first, last = levels(pd.DataFrame({"x": [0.0] * 10 + [None] + [1.0] * 10}), "x")
    assert (first, last) == (0.0, 1.0)
    assert np.isnan(levels(pd.DataFrame({"x": [1.0]}), "y")).all()
