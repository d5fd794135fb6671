"""A method of the lab as an advantage estimator of verl: copy this module beside a verl trainer.

    lab = Estimator(build("adora_code_llm"))
    register_adv_est("lab_adora_code_llm")(lab)        # then algorithm.adv_estimator=lab_adora_code_llm

verl hands an estimator the rewards, the response mask and the prompts' ids. What a method reads beside them (log-probs,
entropies, the step) it is shown before verl's `compute_advantage`, once for every batch:

    lab.show(data.batch, step=self.global_steps)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from core.advantage import Batch, Method, Trace, compute

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

    `threshold`: a rollout is correct where its reward is at least this. `max_length`: the limit on new tokens, the
    tensors' width unless given; a response that reaches it counts as truncated.

    `trace` and `kept` are those of the last batch. Where a method drops tokens, verl's loss still counts them in its
    denominators unless `kept` (n, L) becomes its response mask. `trace.penalty` is a term of the loss, not of this.
    """

    def __init__(
        self,
        method: Method,
        threshold: float = 0.5,
        max_length: int | None = None,
        total_steps: int | None = None,
        proxy_min_p: float | None = None,
    ) -> None:
        self.method = method
        self.threshold = threshold
        self.max_length = max_length
        self.settings = {"total_steps": total_steps, "proxy_min_p": proxy_min_p}
        self.trace: Trace | None = None
        self.kept: torch.Tensor | None = None
        self._shown: dict[str, Any] = {}

    def show(self, tensors: Mapping[str, torch.Tensor], step: int = 0) -> None:
        """The tensors of the batch that comes next, by verl's names, and its step from 0. They serve once."""
        self._shown = {name: tensors[name] for name in TENSORS if name in tensors} | {"step": step}

    def __call__(
        self, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and, as verl's own outcome estimators have it, the same as returns: both (n, L), 0 off the mask.

        `token_level_rewards` (n, L) is summed to a reward a rollout, `index` (n,) holds prompt ids of any kind, and
        `more` may hold what `show` takes. Masked-out positions may lie within a response (a tool's output): the rules
        see its own tokens side by side. Raises AdvantageError where the method needs what it was not shown.
        """
        shown, self._shown = self._shown | more, {}
        mask = response_mask.detach().cpu().numpy() > 0
        places = np.argsort(~mask, axis=1, kind="stable")  # a response's own tokens first, in order

        def side_by_side(name: str) -> np.ndarray:
            values = shown[name].detach().float().cpu().numpy()
            return np.take_along_axis(np.where(mask, values, 0.0), places, axis=1)

        def back(values: np.ndarray) -> torch.Tensor:
            spread = np.zeros(mask.shape, dtype=values.dtype)
            np.put_along_axis(spread, places[:, : values.shape[1]], values, axis=1)
            return torch.from_numpy(spread).to(response_mask.device)

        reward = token_level_rewards.detach().sum(dim=-1).double().cpu().numpy()
        limit = mask.shape[1] if self.max_length is None else self.max_length
        groups: dict[str, int] = {}
        tokens = {TENSORS[name]: side_by_side(name) for name in TENSORS if name in shown}
        if "trainer_logprob" in tokens:
            tokens.setdefault("sampler_logprob", tokens["trainer_logprob"])
        batch = Batch(
            group=np.array([groups.setdefault(str(each), len(groups)) for each in index]),
            reward=reward,
            correct=reward >= self.threshold,
            length=mask.sum(axis=1),
            truncated=np.where(mask, np.arange(mask.shape[1]) + 1, 0).max(axis=1) >= limit,
            max_length=limit,
            step=shown.get("step", 0),
            **self.settings,
            **tokens,
        )
        self.trace = compute(self.method, batch)
        self.kept = back(self.trace.kept)
        advantages = back(self.trace.advantage).to(token_level_rewards.dtype)
        return advantages, advantages
