"""A method of the lab as another trainer calls it: tensors in, advantages out, by the rules of `core.advantage`.

    lab = Estimator(build("adora_code_llm"))
    register_adv_est("lab_adora_code_llm")(lab)        # verl: then algorithm.adv_estimator=lab_adora_code_llm

verl hands an estimator the rewards, the response mask and the prompts' ids. What a method reads beside them (log-probs,
entropies, the step) it is shown before, once for every batch:

    lab.show(data.batch, step=self.global_steps)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from core.advantage import AdvantageError, Batch, Method, Trace, build, compute

TENSORS = {
    "rollout_log_probs": "sampler_logprob",
    "old_log_probs": "trainer_logprob",
    "ref_log_prob": "ref_logprob",
    "entropys": "entropy",
    "proxy_log_probs": "proxy_logprob",
}
"""verl's (n, L) tensors, and what the lab calls them; verl has none of the min-p proxy, whose name is the lab's."""


class Estimator:
    """Callable as verl calls an estimator; n rollouts, L positions.

    `threshold`: a rollout is correct where its reward is at least this, unless `show` says so itself. `max_length`: the
    limit on new tokens, the tensors' width unless given; a response that reaches it counts as truncated, unless `show`
    says so itself. `cost` gives
    what responses gain or lose by their lengths, (n,) to (n,): it joins the rewards.

    `trace`, `reward` and `kept` are those of the last batch, rows without a response token left out of the first two.
    Where a method drops tokens, a loss still counts them in its denominators unless `kept` (n, L) becomes its response
    mask. `trace.penalty` is a term of the loss, not of this.
    """

    def __init__(
        self,
        method: Method,
        threshold: float = 0.5,
        max_length: int | None = None,
        total_steps: int | None = None,
        proxy_min_p: float | None = None,
        cost: Any = None,
        minibatches: int = 1,
        seed: int = 0,
        padding: bool = False,
    ) -> None:
        self.method = method
        self.threshold = threshold
        self.max_length = max_length
        self.settings = {
            "total_steps": total_steps, "proxy_min_p": proxy_min_p, "minibatches": minibatches, "seed": seed,
        }  # fmt: skip
        self.cost = cost
        self.padding = padding
        self.trace: Trace | None = None
        self.reward: np.ndarray | None = None
        self.kept: torch.Tensor | None = None
        self._shown: dict[str, Any] = {}

    def show(
        self, tensors: Mapping[str, torch.Tensor], step: int = 0, correct: Any = None, truncated: Any = None
    ) -> None:
        """The tensors of the batch that comes next, by verl's names, its step from 0, and which rollouts are correct
        and cut off, both (n,) bool. They serve once."""
        there = set(tensors.keys())
        self._shown = {name: tensors[name] for name in TENSORS if name in there} | {"step": step}
        said = {"correct": correct, "truncated": truncated}
        self._shown |= {name: np.asarray(values, dtype=bool) for name, values in said.items() if values is not None}

    def __call__(
        self, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and, as verl's own outcome estimators have it, the same as returns: both (n, L), 0 off the mask.

        `token_level_rewards` (n, L) is summed to a reward a rollout, `index` (n,) holds prompt ids of any kind, and
        `more` may hold what `show` takes. Masked-out positions may lie within a response (a tool's output): the rules
        see its own tokens side by side. With `padding`, rows without a response token are such, and no rule sees them.
        Raises AdvantageError where the method needs what it was not shown.
        """
        shown, self._shown = self._shown | more, {}
        every = response_mask.detach().cpu().numpy() > 0
        rows = np.flatnonzero(every.any(axis=1)) if self.padding else np.arange(len(every))
        if not len(rows):
            raise AdvantageError("the batch has no response token at all")
        mask = every[rows]
        places = np.argsort(~mask, axis=1, kind="stable")  # a response's own tokens first, in order

        def side_by_side(name: str) -> np.ndarray:
            values = shown[name].detach().float().cpu().numpy()[rows]
            return np.take_along_axis(np.where(mask, values, 0.0), places, axis=1)

        def back(values: np.ndarray) -> torch.Tensor:
            spread = np.zeros(mask.shape, dtype=values.dtype)
            np.put_along_axis(spread, places[:, : values.shape[1]], values, axis=1)
            whole = np.zeros(every.shape, dtype=values.dtype)
            whole[rows] = spread
            return torch.from_numpy(whole).to(response_mask.device)

        judged = token_level_rewards.detach().sum(dim=-1).double().cpu().numpy()[rows]
        length = mask.sum(axis=1)
        self.reward = judged if self.cost is None else judged + self.cost(length)
        limit = mask.shape[1] if self.max_length is None else self.max_length
        last = np.where(mask, np.arange(mask.shape[1]) + 1, 0).max(axis=1)
        groups: dict[str, int] = {}
        tokens = {TENSORS[name]: side_by_side(name) for name in TENSORS if name in shown}
        if "trainer_logprob" in tokens:
            tokens.setdefault("sampler_logprob", tokens["trainer_logprob"])
        batch = Batch(
            group=np.array([groups.setdefault(str(each), len(groups)) for each in np.asarray(index)[rows]]),
            reward=self.reward,
            correct=shown["correct"][rows] if "correct" in shown else judged >= self.threshold,
            length=length,
            truncated=shown["truncated"][rows] if "truncated" in shown else last >= limit,
            max_length=limit,
            step=shown.get("step", 0),
            **self.settings,
            **tokens,
        )
        self.trace = compute(self.method, batch)
        self.kept = back(self.trace.kept)
        advantages = back(self.trace.advantage).to(token_level_rewards.dtype)
        return advantages, advantages


def method_of(lab: Mapping[str, Any]) -> Method:
    """The composition that lab.json names."""
    method = lab["method"]
    return build(
        method["name"],
        base=method["base"],
        also=method["also"],
        params=method["set"],
        loss=lab["loss"],
        dynamic_sampling=lab["dynamic_sampling"],
        mass_matched=method["mass_matched"],
    )


def from_settings(lab: Mapping[str, Any], **more: Any) -> Estimator:
    """The estimator that lab.json describes."""
    from core.tasks.overlong import soft_overlong

    limit, overlong, weight = lab["max_length"], lab["overlong"], lab["task"]["reward"]["length"]

    def cost(length: np.ndarray) -> np.ndarray:
        return soft_overlong(length, limit, overlong["buffer"], overlong["factor"]) - weight * length / limit

    return Estimator(
        method_of(lab),
        threshold=lab["correct_threshold"],
        max_length=limit,
        total_steps=lab["total_steps"],
        cost=cost,
        minibatches=lab["minibatches"],
        seed=lab["seed"],
        **more,
    )
