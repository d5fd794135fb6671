"""What imported rollouts may lack: lengths, and tokens that the trainer's own mask left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.advantage import AdvantageError, Batch, build, classify, compute, loss_weights
from core.advantage.recipes import RECIPES

N = 8


def batch(**more: object) -> Batch:
    random = np.random.default_rng(0)
    length = np.array([3, 5, 2, 4, 4, 1, 5, 2])
    reward = np.array([1, 0, 0, 1, 1, 0, 0, 0.0])
    logprob = -random.random((N, 5))
    given = {
        "group": np.repeat([0, 1], 4), "reward": reward, "correct": reward > 0, "length": length,
        "truncated": np.zeros(N, bool), "max_length": 8, "total_steps": 10,
        **dict.fromkeys(("sampler_logprob", "trainer_logprob", "ref_logprob", "proxy_logprob"), logprob),
        "entropy": -logprob, "proxy_min_p": 0.02,
    }  # fmt: skip
    return Batch(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: getattr(recipe, "name", str(recipe)))
def test_masked_tokens_leave_the_batch_under_every_method(recipe: object) -> None:
    method = build(getattr(recipe, "name", recipe))
    trained = np.ones((N, 5), bool)
    trained[0, 1] = trained[3, :] = False
    trace = compute(method, batch(trained=trained))
    assert not trace.advantage[~trained].any() and not trace.kept[~trained].any()
    factors = np.prod([factor.spread(batch()) for factor in trace.factors], axis=0)
    base = trace.base if trace.base.ndim == 2 else trace.base[:, None]
    mask = batch().mask
    assert np.allclose((base * factors)[mask], trace.advantage[mask])
    assert trace.factors[0].id == "selected"
    assert "the trainer's" in trace.factors[0].explain(0, 1)


def test_a_mask_that_keeps_all_changes_nothing_but_the_words() -> None:
    method = build("grpo")
    plain, masked = compute(method, batch()), compute(method, batch(trained=np.ones((N, 5), bool)))
    assert np.array_equal(plain.advantage, masked.advantage) and np.array_equal(plain.kept, masked.kept)
    assert "keeps 26 of 26 tokens" in masked.factors[0].reason


def test_unknown_lengths_count_once_and_decide_no_class() -> None:
    unknown = replace(
        batch(length=np.ones(N, int), measured=False),
        sampler_logprob=None, trainer_logprob=None, ref_logprob=None, proxy_logprob=None, entropy=None,
    )  # fmt: skip
    trace = compute(build("grpo"), unknown)
    assert trace.advantage.shape == (N, 1)
    assert np.array_equal(trace.advantage[:, 0], compute(build("grpo"), batch()).base)
    weight = loss_weights(trace.kept, unknown.length, 8, "sequence_mean", trace.minibatch)
    assert np.allclose(weight, 1 / N)
    classes = classify(unknown)
    assert classes.length_advantage == [None, None]
    assert np.isnan(classes.longest_correct).all() and np.isnan(classes.mean_wrong).all()
    assert classes.difficulty_advantage == [True, True]
    assert compute(build("adora_amplify"), unknown).classes.label == ["favorable", "favorable"]
    for name in ("adora_attenuate", "adora_code_llm", "adora_code_vlm"):
        with pytest.raises(AdvantageError, match=f"{name} compares lengths, and no response's length is known"):
            compute(build(name), unknown)
