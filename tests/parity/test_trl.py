"""The lab's update beside the loss of TRL's GRPOTrainer: the same model, adapter, rollouts and advantages.

TRL samples under one adapter, then both sides train another one, so that the ratios differ from 1. The lab's side is
its own `Updater`: the loss that it reports and the gradient that it leaves for the optimizer.

Where the two mean different things by a name:
- bnpo is the lab's token_mean, taken of each micro-batch and averaged; the lab's mean is of the whole minibatch.
- dapo divides by the tokens of all that was generated together, shared out evenly among its optimizer steps; the lab
  divides by the tokens of the minibatch. With one optimizer step these are the same.
- dr_grpo divides by rollouts x the limit on new tokens, as the lab's fixed_length does.
- TRL has no dynamic sampling: the lab's is off here, so groups of equal rewards count in the denominators.
- cispo's epsilon_high is the bound itself, the lab's clip_high what it adds to 1; neither has a lower bound.
- TRL multiplies the KL by the ratio unless use_bias_correction_kl is off; the lab never does.
- With a ratio of the whole response, TRL's gradient of a token has the response's mean of ratio x advantage. The lab's
  has the token's own, which is the same while the advantage is per rollout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig

from core.advantage import Batch, Loss, Method, build, compute, loss_weights
from core.config import parse_run
from core.train.packing import Sequences
from core.train.policy import Policy
from core.train.update import Plan, Updated, Updater
from tests.core import tiny
from tests.parity.trl_trainer import Adapter, Inputs, Trl, gradients, load

PROMPTS = ["1+2=?", "7=", "12+345-6=?", "abc"]
GROUP = np.repeat(np.arange(4), 4)
ONE = np.zeros_like(GROUP)  # all in one minibatch
REWARDS = [1.0, 0.0, 0.0, 0.0, 0.2, 1.0, 0.4, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
TEMPERATURE = 1.3
SAMPLED, LIMIT = 12, 20  # new tokens at most; the loss is told of a limit that no response reaches
CONFIG = parse_run(
    {
        "lora": {"r": 4}, "sampling": {"temperature": TEMPERATURE}, "batch_tokens": 64,
        "optimizer": {"name": "sgd", "lr": 0.1, "max_grad_norm": None},
    }
)  # fmt: skip


class Lab:
    """The lab's policy with an adapter, and its update."""

    def __init__(self, adapter: Adapter | None = None):
        self.policy = Policy(tiny.llama(), tiny.tokenizer(), CONFIG)
        if adapter is not None:
            load(self.policy.parameters, adapter)

    @property
    def lora(self) -> LoraConfig:
        return replace(self.policy.model.peft_config["default"], base_model_name_or_path=None)

    def backward(self, loss: Loss, plan: Plan) -> tuple[Updated, Adapter]:
        """What one optimizer step did, and the gradient that it was made with."""
        done = Updater(self.policy, CONFIG, loss).update(plan, step=0)
        return done, gradients(self.policy.parameters)


@dataclass(frozen=True)
class Rollouts:
    """One batch, as TRL's loss takes it and as the lab's update and advantage rules do."""

    folder: Path
    lora: LoraConfig
    trained: Adapter  # the adapter that both sides train; the rollouts are an earlier one's
    inputs: Inputs
    sequences: Sequences
    old: np.ndarray  # (N, T), the lab's own scores
    reference: np.ndarray
    batch: Batch

    def trl(self, **arguments: Any) -> Trl:
        return Trl(
            self.folder, self.lora, self.trained, REWARDS, num_generations=4, temperature=TEMPERATURE,
            max_completion_length=LIMIT, use_bias_correction_kl=False, **arguments,
        )  # fmt: skip

    def plan(self, method: Method, advantage: np.ndarray, weight: np.ndarray | None = None) -> Plan:
        """All rollouts in one minibatch; the loss weights are the method's unless others are given."""
        if weight is None:
            weight = self.weights(method, minibatch=ONE)
        return Plan(self.sequences, self.old, advantage, weight, self.reference, minibatch=ONE)

    def weights(self, method: Method, minibatch: np.ndarray) -> np.ndarray:
        batch = self.batch
        return loss_weights(batch.mask, batch.length, batch.max_length, method.loss.aggregation, minibatch)


def moved(adapter: Adapter, seed: int, size: float) -> Adapter:
    """The adapter with noise added to every weight."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: each.detach() + size * torch.empty_like(each).normal_(generator=random) for name, each in adapter.items()
    }


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """With a second one, a model as small as this mostly waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Rollouts:
    folder = tmp_path_factory.mktemp("trl")
    sampling = moved(Lab().policy.parameters, seed=1, size=0.1)
    lab = Lab(sampling)
    trl = Trl(
        folder, lab.lora, sampling, REWARDS, num_generations=4, temperature=TEMPERATURE, max_completion_length=SAMPLED,
        beta=0.1, num_iterations=2,
    )  # fmt: skip
    inputs = trl.sample([PROMPTS[g] for g in GROUP])
    length = inputs["completion_mask"].sum(1).numpy().astype(np.int32)
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(inputs["prompt_ids"], inputs["prompt_mask"], strict=True)]
    sequences = Sequences(prompts, inputs["completion_ids"].numpy().astype(np.int32), length)
    old, entropy = lab.policy.scorer.score(sequences)
    with lab.policy.base():
        reference, _ = lab.policy.scorer.score(sequences)
    reward = np.array(REWARDS)
    batch = Batch(
        GROUP, reward, correct=reward >= 1, length=length, truncated=np.zeros(len(GROUP), dtype=bool),
        max_length=LIMIT, total_steps=100,
        sampler_logprob=old, trainer_logprob=old, ref_logprob=reference, entropy=entropy,
    )  # fmt: skip
    trained = moved(sampling, seed=3, size=0.015)
    return Rollouts(folder, lab.lora, trained, inputs, sequences, old, reference, batch)


def arguments(loss_type: str, loss: Loss) -> dict[str, Any]:
    """GRPOConfig's names for the lab's loss."""
    return {
        "loss_type": loss_type,
        "importance_sampling_level": "sequence" if loss.objective == "gspo" else "token",
        "epsilon": loss.clip_low,
        "epsilon_high": loss.clip_high + (loss_type == "cispo"),
        "delta": loss.dual_clip,
        "beta": loss.kl,
    }


def given(inputs: Inputs, method: Method, advantage: np.ndarray) -> Inputs:
    """TRL's inputs with the lab's advantages: one a rollout where no weight tells its tokens apart."""
    values = advantage if method.weights else advantage[:, 0]
    return inputs | {"advantages": torch.tensor(values, dtype=torch.float32)}


def assert_same(ours: tuple[float, Adapter], theirs: tuple[float, Adapter]) -> None:
    """The loss, and the gradient of every matrix of the adapter, to 1e-4 of TRL's."""
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4)
    assert ours[1].keys() == theirs[1].keys()
    for name, gradient in theirs[1].items():
        assert gradient.norm() > 0, name
        assert (ours[1][name] - gradient).norm() <= 1e-4 * gradient.norm(), name


def test_the_rollouts_are_ragged_and_padded_on_both_sides(rollouts: Rollouts) -> None:
    assert len(np.unique(rollouts.batch.length)) > 3 and rollouts.batch.length.min() < SAMPLED
    assert (rollouts.inputs["prompt_mask"][:, 0] == 0).any() and (rollouts.inputs["prompt_mask"][:, -1] == 1).all()
    assert (rollouts.inputs["completion_mask"][:, -1] == 0).any()


def test_both_score_the_tokens_the_same(rollouts: Rollouts) -> None:
    mask = rollouts.batch.mask
    for ours, theirs in ((rollouts.old, "old_per_token_logps"), (rollouts.reference, "ref_per_token_logps")):
        np.testing.assert_allclose(ours[mask], rollouts.inputs[theirs].numpy()[mask], rtol=1e-5, atol=1e-5)
    assert np.abs(rollouts.old - rollouts.reference)[mask].max() > 0.5


@pytest.mark.parametrize(
    ("name", "params", "scale_rewards"), [("grpo", {"eps": 1e-4}, "group"), ("dr_grpo", {}, "none")]
)
def test_advantages(rollouts: Rollouts, name: str, params: dict[str, float], scale_rewards: str) -> None:
    theirs = rollouts.trl(scale_rewards=scale_rewards).sample([PROMPTS[g] for g in GROUP])["advantages"]
    ours = compute(build(name, params=params), rollouts.batch).advantage
    np.testing.assert_allclose(ours[:, 0], theirs.numpy(), rtol=1e-5, atol=1e-6)
    assert (theirs[8:12] == 0).all() and theirs[0] > 0.7


CLIP = {"clip_low": 0.02, "clip_high": 0.03}  # of a mean over the response, which stays closer to 1
LOSSES = {
    "grpo": ("grpo", build("grpo")),
    "grpo, KL": ("grpo", build("grpo", loss={"kl": 0.1})),
    "dapo": ("dapo", build("dapo", dynamic_sampling=False)),
    "dapo, dual clip": ("dapo", build("dapo", dynamic_sampling=False, loss={"dual_clip": 1.3})),
    "dapo, KL, advantages by token": ("dapo", build("a3po", dynamic_sampling=False, loss={"kl": 0.1})),
    "dr_grpo": ("dr_grpo", build("dr_grpo")),
    "bnpo": ("bnpo", build("grpo", loss={"aggregation": "token_mean"})),
    "gspo": ("grpo", build("gspo", loss=CLIP)),
    "gspo, token mean, KL": ("dapo", build("gspo", loss=CLIP | {"aggregation": "token_mean", "kl": 0.1})),
    "gspo, fixed length": ("dr_grpo", build("dr_grpo", loss=CLIP | {"objective": "gspo"})),
    "cispo": ("cispo", build("cispo")),
}


def same(rollouts: Rollouts, name: str, weight: np.ndarray | None = None, **split: int) -> tuple[Trl, Updated]:
    """Both sides after a step with this loss, which was the same; `split` says how TRL takes the batch apart."""
    loss_type, method = LOSSES[name]
    advantage = compute(method, rollouts.batch).advantage
    trl = rollouts.trl(**split, **arguments(loss_type, method.loss))
    theirs = trl.backward(given(rollouts.inputs, method, advantage))
    done, gradient = Lab(rollouts.trained).backward(method.loss, rollouts.plan(method, advantage, weight))
    assert_same((done.loss, gradient), theirs)
    return trl, done


@pytest.mark.parametrize("name", LOSSES)
def test_loss_gradient_and_clipping(rollouts: Rollouts, name: str) -> None:
    """Also the shares of what is clipped: of all tokens, or of all responses where the ratio is theirs."""
    trl, done = same(rollouts, name)
    loss_type, method = LOSSES[name]
    advantage, mask = compute(method, rollouts.batch).advantage, rollouts.batch.mask
    assert (advantage != advantage[:, :1])[mask].any() == bool(method.weights)
    each = mask & (np.arange(mask.shape[1]) == 0) if method.loss.objective == "gspo" else mask
    high = (done.clipped_high & (advantage > 0))[each].mean()
    assert high > 0.03
    if loss_type == "cispo":  # it has an upper bound alone
        assert high == pytest.approx(trl.metric("cispo_clip_ratio"), abs=1e-6)
        return
    low = done.clipped_low[each].mean()
    assert 0.03 < low < 0.5
    assert low == pytest.approx(trl.metric("clip_ratio/low_mean"), abs=1e-6)
    assert high == pytest.approx(trl.metric("clip_ratio/high_mean"), abs=1e-6)
    dual = done.clipped_high & (advantage < 0)  # TRL does not count them
    assert dual.any() == (method.loss.dual_clip is not None)


@pytest.mark.parametrize("name", ["grpo, KL", "dapo", "dr_grpo", "gspo", "cispo"])
def test_accumulated_parts_are_one_minibatch(rollouts: Rollouts, name: str) -> None:
    same(rollouts, name, parts=4)


def test_bnpo_averages_the_token_means_of_its_parts(rollouts: Rollouts) -> None:
    assert len(set(np.bincount(GROUP, rollouts.batch.length))) == 4
    weight = rollouts.weights(LOSSES["bnpo"][1], minibatch=GROUP) / 4
    same(rollouts, "bnpo", weight, parts=4)


def test_dapo_shares_the_tokens_out_among_optimizer_steps(rollouts: Rollouts) -> None:
    step = GROUP // 2
    tokens = np.bincount(step, rollouts.batch.length)
    assert tokens[0] != tokens[1]
    weight = rollouts.weights(LOSSES["dapo"][1], minibatch=step) * tokens[0] / tokens.mean()
    same(rollouts, "dapo", np.where(step[:, None] == 0, weight, 0), parts=4, steps=2)


def test_fork_tokens_are_those_of_top_entropy_quantile(rollouts: Rollouts) -> None:
    """TRL asks the current policy for the entropies and divides by all tokens, the lab by the chosen ones.

    TRL's limit is a quantile between two entropies, and equal ones pass it together; the lab takes a number of tokens.
    So both are told of the same number here, and the limit is not between equals.
    """
    method = build("fork_tokens", dynamic_sampling=False, params={"ratio": 0.25})
    mask = rollouts.batch.mask
    _, entropy = Lab(rollouts.trained).policy.scorer.score(rollouts.sequences)
    trace = compute(method, replace(rollouts.batch, entropy=entropy))
    chosen, tokens = int(trace.kept.sum()), int(mask.sum())
    assert chosen == int(0.25 * tokens)
    assert entropy[trace.kept].min() > entropy[mask & ~trace.kept].max() + 1e-3
    trl = rollouts.trl(top_entropy_quantile=(chosen - 0.5) / (tokens - 1), **arguments("dapo", method.loss))
    theirs = trl.backward(given(rollouts.inputs, method, compute(LOSSES["dapo"][1], rollouts.batch).advantage))
    weight = loss_weights(trace.kept, rollouts.batch.length, LIMIT, "token_mean", ONE)
    plan = rollouts.plan(method, trace.advantage, weight * chosen / tokens)
    done, gradient = Lab(rollouts.trained).backward(method.loss, plan)
    assert_same((done.loss, gradient), theirs)
