"""The sampling loop: one token for every unfinished row at a time, finished rows dropped from the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

BLOCK = 512
"""Tokens whose weights are summed before a drawn token is looked for among them, in a large vocabulary."""


class Decoder(Protocol):
    """A model with a key-value cache, as the loop sees it. M rows are in the cache, V ids in the vocabulary.

    Logits are finite float32, or NaN where the model breaks; the loop may overwrite them.
    """

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, repeats: int) -> torch.Tensor:
        """Read left-padded prompts (P, L), mask True on tokens, each `repeats` times; next logits (P x repeats, V)."""
        ...

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append one token (M,) to every row; the next logits (M, V)."""
        ...

    def keep(self, count: int, to: torch.Tensor, source: torch.Tensor) -> None:
        """Copy rows `source` over rows `to`, then keep the first `count`; no row of `to` is among `source`."""
        ...


@dataclass
class Decoded:
    """N rows of T tokens, padding as it was filled: pad id and zeros."""

    token_ids: np.ndarray  # (N, T) int32
    length: np.ndarray  # (N,) int32
    truncated: np.ndarray  # (N,) bool
    logprob: np.ndarray  # (N, T) float32
    entropy: np.ndarray  # (N, T) float32


def decode(
    decoder: Decoder,
    prompts: torch.Tensor,
    mask: torch.Tensor,
    group_size: int,
    draws: np.ndarray,
    temperature: float,
    eos: Sequence[int],
    pad: int,
) -> Decoded:
    """Sample `group_size` responses for each left-padded prompt (P, L).

    `draws` (P x group_size, max_new_tokens) are uniforms in [0, 1); temperature 0 takes the likeliest token, with
    log-probs and entropies at temperature 1. A token of `eos` ends its row.
    """
    count, limit = draws.shape
    device = prompts.device
    uniform = torch.from_numpy(np.ascontiguousarray(draws.T)).to(device)
    ends = frozenset(eos)
    alive = torch.arange(count, device=device)
    steps = []
    logits = decoder.prefill(prompts, mask, group_size)
    for position in range(limit):
        token, logprob, entropy = pick(logits, uniform[position].index_select(0, alive), temperature)
        steps.append((alive, token, logprob, entropy))
        finished = [row for row, chosen in enumerate(token.tolist()) if chosen in ends]
        if finished:
            left, to, source = compaction(len(token), finished)
            to, source = (torch.tensor(rows, dtype=torch.int64, device=device) for rows in (to, source))
            alive, token = (_moved(rows, left, to, source) for rows in (alive, token))
            if left == 0:
                break
            decoder.keep(left, to, source)
        if position + 1 < limit:
            logits = decoder.step(token)
    return _assemble(steps, count, alive, pad)


def pick(
    logits: torch.Tensor, uniform: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The token of each row of logits (M, V), its log-prob and the distribution's entropy, all (M,).

    Drawn by the uniforms (M,), or at temperature 0 the likeliest. Overwrites the logits.
    """
    if temperature not in (0, 1):
        logits /= temperature
    logp = logits.log_softmax(-1)
    prob = torch.exp(logp, out=logits)
    token = logp.argmax(-1) if temperature == 0 else inverse_cdf(prob, uniform)
    return token, logp.gather(-1, token[:, None])[:, 0], entropy_of(logp, prob)


def entropy_of(logp: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    """(M,) nats of distributions (M, V), given as log-probs and probabilities; overwrites the latter."""
    return prob.mul_(logp).sum(-1).neg_()


def inverse_cdf(prob: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(M,) the first token whose running sum of prob (M, V), itself included, is above uniform (M,) x the whole sum.

    Summed in float64, so that rounding moves no boundary. In a large vocabulary, blocks of 512 tokens are summed first,
    in float32 (which moves a block's boundary by about 1e-7 of its sum), and running sums are taken over the blocks and
    inside the one that was hit. Tokens of probability 0 are never drawn.
    """
    rows, vocabulary = prob.shape
    uniform = uniform[:, None]
    if vocabulary <= 2 * BLOCK:
        cdf = prob.cumsum(-1, dtype=torch.float64)
        return _first_above(cdf, uniform * cdf[:, -1:])[:, 0]
    whole = vocabulary - vocabulary % BLOCK
    blocks = prob[:, :whole].view(rows, -1, BLOCK).sum(-1)
    blocks = torch.cat([blocks, prob[:, whole:].sum(-1, keepdim=True)], dim=-1)
    cdf = blocks.cumsum(-1, dtype=torch.float64)
    target = uniform * cdf[:, -1:]
    block = _first_above(cdf, target)
    before = F.pad(cdf, (1, 0)).gather(-1, block)
    tokens = block * BLOCK + torch.arange(BLOCK, device=prob.device)
    inside = prob.gather(-1, tokens.clamp(max=vocabulary - 1)).masked_fill_(tokens >= vocabulary, 0)
    return (block * BLOCK + _first_above(inside.cumsum(-1, dtype=torch.float64), target - before))[:, 0]


def _first_above(cdf: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """(M, 1) index of the first of running sums (M, n) above the target (M, 1); where rounding has put the target at
    the last sum or above it, of the first that reaches that sum. Sums that are no numbers give the last index."""
    last = cdf[:, -1:]
    target = torch.minimum(target, last.nextafter(torch.zeros_like(last)))
    return torch.searchsorted(cdf, target, right=True).clamp_(max=cdf.shape[-1] - 1)


def compaction(count: int, finished: list[int]) -> tuple[int, list[int], list[int]]:
    """How many of `count` rows are left without the finished ones, and the moves that bring these to the front: holes
    among the first rows, and the rows behind them that fill the holes."""
    left = count - len(finished)
    gone = set(finished)
    return left, [row for row in finished if row < left], [row for row in range(left, count) if row not in gone]


def _moved(values: torch.Tensor, count: int, to: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """(count,) of the values (M,), rows `source` moved to `to`."""
    return values.index_copy(0, to, values.index_select(0, source))[:count]


def _assemble(
    steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]],
    count: int,
    alive: torch.Tensor,
    pad: int,
) -> Decoded:
    """The (rows, tokens, log-probs, entropies) of each position as arrays; `alive` are the rows that never ended."""
    rows, tokens, logprobs, entropies = (torch.cat(column).cpu().numpy() for column in zip(*steps, strict=True))
    columns = np.repeat(np.arange(len(steps)), [len(step[0]) for step in steps])

    def spread(values: np.ndarray, fill: int, kind: type) -> np.ndarray:
        array = np.full((count, len(steps)), fill, dtype=kind)
        array[rows, columns] = values
        return array

    truncated = np.zeros(count, dtype=bool)
    truncated[alive.cpu().numpy()] = True
    return Decoded(
        spread(tokens, pad, np.int32),
        np.bincount(rows, minlength=count).astype(np.int32),
        truncated,
        spread(logprobs, 0, np.float32),
        spread(entropies, 0, np.float32),
    )
