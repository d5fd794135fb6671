"""The peer of the what-if bench: the same methods in the form in which their authors released them.

They are changes to verl's `compute_grpo_outcome_advantage`: torch tensors (bs, T), a dictionary of lists by prompt that
is filled rollout by rollout, `.item()` for what is compared, a mask over the batch for each prompt, a `topk` for each
response. Written anew, so that the numbers are the lab's and nothing of a trainer comes along.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch

EPS = 1e-6


@dataclass(frozen=True)
class Tensors:
    """A batch as a trainer on verl holds it: all (bs, T), but `index` (bs,) and `correct` (bs,)."""

    rewards: torch.Tensor  # the reward at the response's last token
    mask: torch.Tensor
    old_log_prob: torch.Tensor
    index: list[str]
    correct: torch.Tensor
    max_length: int


def grpo(batch: Tensors) -> torch.Tensor:
    """(bs, T): each score against its group's mean and deviation, gathered rollout by rollout."""
    scores = batch.rewards.sum(dim=-1)
    found = defaultdict(list)
    for i in range(len(scores)):
        found[batch.index[i]].append(scores[i])
    mean, std = {}, {}
    for prompt, own in found.items():
        together = torch.stack(own)
        mean[prompt], std[prompt] = together.mean(), together.std()
    for i in range(len(scores)):
        scores[i] = (scores[i] - mean[batch.index[i]]) / (std[batch.index[i]] + EPS)
    return scores.unsqueeze(-1).expand_as(batch.mask) * batch.mask


def adora(batch: Tensors, advantages: torch.Tensor, weight: float = 0.1) -> torch.Tensor:
    """ADORA's released code for language models: prompts whose correct answers don't run long are weighed down."""
    lengths = batch.mask.sum(dim=-1)
    correct, wrong = defaultdict(list), defaultdict(list)
    for i in range(len(lengths)):
        length = lengths[i].item()
        if batch.correct[i].item():
            correct[batch.index[i]].append(length)
        elif length < batch.max_length:
            wrong[batch.index[i]].append(length)
    advantages = advantages.clone()
    for prompt in dict.fromkeys(batch.index):
        right, usable = correct[prompt], wrong[prompt]
        if right and (not usable or max(right) > sum(usable) / len(usable)):
            continue
        rows = torch.tensor([other == prompt for other in batch.index])
        advantages[rows] *= weight
    return advantages


def a3po(batch: Tensors, advantages: torch.Tensor, rho: float = 2.0, ratio: float = 0.2) -> torch.Tensor:
    """A3PO's token shaping: in each response, the least likely tokens if it is correct, else the most likely."""
    probability = torch.exp(batch.old_log_prob)
    advantages = advantages.clone()
    for i in range(len(advantages)):
        places = torch.nonzero(batch.mask[i]).squeeze(-1)
        own = probability[i, places]
        count = max(1, int(ratio * len(own)))
        _, chosen = torch.topk(own, count, largest=not batch.correct[i].item())
        advantages[i, places[chosen]] *= rho
    return advantages


def four(batch: Tensors) -> list[torch.Tensor]:
    """The bench's methods, each from the rewards on, as a trainer would run it."""
    return [
        grpo(batch),
        a3po(batch, grpo(batch)),
        adora(batch, grpo(batch)),
        a3po(batch, adora(batch, grpo(batch))),
    ]
