"""The policy update: minibatches x epochs of gradient steps on a step's rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from core.advantage import Loss
from core.advantage.types import Penalty
from core.config import RunConfig
from core.ranks import ALONE, Ranks
from core.train.forward import Piece, Sequences
from core.train.losses import TokenPenalty, kl_k3, policy_terms
from core.train.policy import Policy


class NotFiniteError(ArithmeticError):
    """The loss or the gradient is NaN or infinite; the adapter is as it was before this minibatch."""


@dataclass(frozen=True)
class Plan:
    """What to train on. N rollouts, T positions; arrays (N, T) unless said otherwise."""

    sequences: Sequences
    old: np.ndarray  # float32: the trainer's log-probs at the start of the step
    advantage: np.ndarray
    weight: np.ndarray  # the loss weight of each token, 0 on dropped ones
    reference: np.ndarray | None  # log-probs under the base model
    minibatch: np.ndarray  # (N,) int
    tis: np.ndarray | None = None  # what multiplies each token's policy term; None: nothing does
    penalty: Penalty | None = None  # what some tokens have beside their policy term
    proxy: np.ndarray | None = None  # log-probs under the proxy of a penalty of the form "proxy"
    group: np.ndarray | None = None  # (N,) int, by which several ranks split the rollouts

    @cached_property
    def matters(self) -> np.ndarray:
        """(N,) bool: the rollout adds something to the policy loss or the penalty."""
        matters = self.advantage != 0
        if self.penalty is not None:
            matters = matters | (self.penalty.coefficient > 0)
        return (matters & (self.weight > 0)).any(axis=1)


@dataclass
class Updated:
    """What the update did. (N, T) arrays are of each token's last gradient pass; NaN and False where it had none."""

    ratio: np.ndarray  # float32
    clipped_low: np.ndarray  # bool
    clipped_high: np.ndarray  # bool
    penalised: np.ndarray | None  # bool: the penalty applied; None where the method has none
    loss: float | None  # mean over the updates
    policy_loss: float | None
    penalty: float | None  # its part of the loss; None where the method has none
    grad_norm: float | None  # before clipping, mean over the updates
    update_norm: float  # of the change of the adapter's weights
    lr: float | None  # of the last update
    updates: int
    skipped: int  # minibatches in which no token was kept

    @property
    def clipped(self) -> np.ndarray:
        return self.clipped_low | self.clipped_high


class Updater:
    """The optimizer with its warm-up; `count` is the optimizer steps made since the run began."""

    def __init__(self, policy: Policy, config: RunConfig, loss: Loss, ranks: Ranks = ALONE):
        self.policy = policy
        self.ranks = ranks
        self.config = config
        self.loss = loss
        self.count = 0
        settings = config.optimizer
        parameters = list(policy.parameters.values())
        if settings.name == "adamw":
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                parameters, settings.lr, settings.betas, weight_decay=settings.weight_decay, fused=True
            )
        else:
            self.optimizer = torch.optim.SGD(parameters, settings.lr, weight_decay=settings.weight_decay)

    def update(self, plan: Plan, step: int) -> Updated:
        """Every minibatch in every epoch, in order. Raises NotFiniteError."""
        shape = plan.old.shape
        done = Updated(
            ratio=np.full(shape, np.nan, dtype=np.float32),
            clipped_low=np.zeros(shape, dtype=bool),
            clipped_high=np.zeros(shape, dtype=bool),
            penalised=None if plan.penalty is None else np.zeros(shape, dtype=bool),
            loss=None, policy_loss=None, penalty=None, grad_norm=None, update_norm=0.0, lr=None, updates=0, skipped=0,
        )  # fmt: skip
        before = self.policy.flat()
        numbers: list[tuple[float, ...]] = []
        kept = (plan.weight > 0).any(axis=1)
        with self.policy.training(self.config.seed, step, self.ranks.rank):
            for _ in range(self.config.updates.epochs):
                for minibatch in range(self.config.updates.minibatches):
                    rows = np.flatnonzero(kept & (plan.minibatch == minibatch))
                    if len(rows):
                        numbers.append(self._minibatch(plan, rows, done))
                    else:
                        done.skipped += 1
        told = [done.ratio, done.clipped_low, done.clipped_high]
        self.ranks.fill(~np.isnan(done.ratio).all(axis=1), *told, *([] if plan.penalty is None else [done.penalised]))
        if numbers:
            done.loss, done.policy_loss, penalty, done.grad_norm = np.mean(numbers, axis=0).tolist()
            done.penalty = None if plan.penalty is None else penalty
            done.updates, done.lr = len(numbers), self.optimizer.param_groups[0]["lr"]
            done.update_norm = float((self.policy.flat() - before).norm())
        return done

    def _minibatch(self, plan: Plan, rows: np.ndarray, done: Updated) -> tuple[float, ...]:
        """One optimizer step on these rollouts; its loss, policy loss, penalty and gradient norm.

        A rollout without advantage (its group's rewards are equal, say) or penalty adds nothing to the loss: it gets no
        pass, and the optimizer steps all the same. Every rank takes part, with its own groups' gradient or with none,
        and hears of a loss that is no number.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total = policy_total = penalty_total = 0.0
        if not self.loss.kl:
            rows = rows[plan.matters[rows]]
        rows = self._mine(plan, rows)
        for piece in self.policy.scorer.pieces(plan.sequences.rows(rows)):
            loss, policy_loss, penalty = self._loss(plan, rows[piece.rows], piece, done)
            total += loss.item()
            policy_total += policy_loss.item()
            penalty_total += 0.0 if penalty is None else penalty.item()
            if not np.isfinite(total):
                break
            loss.backward()
        for parameter in self.policy.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        total, policy_total, penalty_total = self._sum_over_ranks(total, policy_total, penalty_total)
        if not np.isfinite(total):
            raise NotFiniteError("the loss")
        settings = self.config.optimizer
        parameters = self.policy.parameters.values()
        limit = settings.max_grad_norm or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
        if not np.isfinite(norm):
            raise NotFiniteError("the gradient")
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (self.count + 1) / max(1, settings.warmup_steps))
        self.optimizer.step()
        self.count += 1
        return total, policy_total, penalty_total, norm

    def _mine(self, plan: Plan, rows: np.ndarray) -> np.ndarray:
        """Those of a minibatch's rollouts whose gradient this rank computes."""
        if self.ranks.world == 1:
            return rows
        return rows[self.ranks.mine(plan.group[rows], plan.sequences.length[rows])]

    def _sum_over_ranks(self, *losses: float) -> list[float]:
        """The losses of all ranks together; and so for the gradients, in place."""
        if self.ranks.world == 1:
            return list(losses)
        totals = torch.tensor(losses, dtype=torch.float64, device=self.policy.device)
        self.ranks.sum([*(parameter.grad for parameter in self.policy.parameters.values()), totals])
        return totals.tolist()

    def _loss(
        self, plan: Plan, rows: np.ndarray, piece: Piece, done: Updated
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """A micro-batch's share of its minibatch's loss, with the policy part of it and the penalty's, if there is
        one."""
        width = piece.mask.shape[1]

        def of(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array[rows, :width].astype(np.float32)).to(piece.logprob.device)

        weight = of(plan.weight)
        penalty = penalty_loss = None
        if plan.penalty is not None:
            proxy = of(plan.proxy) if plan.penalty.form == "proxy" else None
            penalty = TokenPenalty(plan.penalty.form, of(plan.penalty.coefficient), proxy)
        terms = policy_terms(self.loss, piece.logprob, of(plan.old), of(plan.advantage), piece.mask, penalty)
        policy_weight = weight if plan.tis is None else weight * of(plan.tis)
        policy_loss = loss = (policy_weight * terms.term).sum()
        if terms.penalty is not None:
            penalty_loss = (weight * terms.penalty).sum()
            loss = loss + penalty_loss
        if self.loss.kl:
            loss = loss + self.loss.kl * (weight * kl_k3(piece.logprob, of(plan.reference))).sum()
        taken = plan.weight[rows, :width].astype(np.float32) > 0
        done.ratio[rows, :width] = np.where(taken, terms.ratio.expand(taken.shape).cpu().numpy(), np.nan)
        for array, values in (
            (done.clipped_low, terms.clipped_low),
            (done.clipped_high, terms.clipped_high),
            (done.penalised, terms.penalised),
        ):
            if values is not None:
                array[rows, :width] = taken & values.cpu().numpy()
        return loss, policy_loss, penalty_loss
