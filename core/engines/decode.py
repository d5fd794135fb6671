"""The sampling loop: one token for every unfinished response at a time, and nothing computed twice.

Responses to a prompt that are still alike share one row of the model's batch: its logits, from which each draws with a
uniform of its own. Where they part, the row is copied; a row whose responses have all ended makes room. Early in a run
of the embedded model this saves three tokens in ten, later half of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from core.engines.stops import StopWatch

BLOCK = 512
"""Tokens whose weights are summed before a drawn token is looked for among them, in a large vocabulary."""


class Decoder(Protocol):
    """A model with a key-value cache, as the loop sees it. U rows are in use, V ids in the vocabulary.

    Logits are finite float32, or NaN where the model breaks; the loop may overwrite them.
    """

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, room: int) -> torch.Tensor:
        """Read left-padded prompts (P, L), mask True on tokens, one a row; next logits (P, V). There will be at most
        `room` rows."""
        ...

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append one token (U,) to every row in use; the next logits (U, V)."""
        ...

    def arrange(self, count: int, to: torch.Tensor, source: torch.Tensor) -> None:
        """Copy rows `source` over rows `to`, of which none is among `source`; then the first `count` are in use."""
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
    watch: StopWatch | None = None,
) -> Decoded:
    """Sample `group_size` responses for each left-padded prompt (P, L).

    `draws` (P x group_size, max_new_tokens) are uniforms in [0, 1); temperature 0 takes the likeliest token, with
    log-probs and entropies at temperature 1. A token of `eos` ends its row, as does one that the `watch` says completes
    a stop string.
    """
    count, limit = draws.shape
    device = prompts.device
    uniform = torch.from_numpy(np.ascontiguousarray(draws.T)).to(device)
    ends = frozenset(eos)
    alive = torch.arange(count, device=device)  # the responses that have not ended
    rows = [response // group_size for response in range(count)]  # and the row that each is in
    steps = []
    logits = decoder.prefill(prompts, mask, count)
    for position in range(limit):
        at = torch.tensor(rows, device=device)
        token, logprob, entropy = pick(logits, at, uniform[position].index_select(0, alive), temperature)
        steps.append((alive, token, logprob, entropy))
        drawn = token.tolist()
        stopped = watch.completed(alive.tolist(), drawn) if watch else ()
        left, rows, plan = part(rows, drawn, ends, stopped)
        if len(left) < len(alive):
            alive = alive[torch.tensor(left, dtype=torch.int64, device=device)]
        if not left:
            break
        if position + 1 < limit:
            if plan.to or len(plan.tokens) < len(logits):
                to, source = (torch.tensor(some, dtype=torch.int64, device=device) for some in (plan.to, plan.source))
                decoder.arrange(len(plan.tokens), to, source)
            logits = decoder.step(torch.tensor(plan.tokens, device=device))
    return _assemble(steps, count, alive, pad)


@dataclass(frozen=True)
class Plan:
    """The rows of the next position: the token that each is to read, and which of them are copies of which."""

    tokens: list[int]
    to: list[int]
    source: list[int]


def part(
    rows: list[int], tokens: list[int], ends: frozenset[int], stopped: Collection[int] = ()
) -> tuple[list[int], list[int], Plan]:
    """Of responses in `rows` that drew `tokens`: those that have not ended, their rows at the next position, and how
    these come about. A token of `ends` ends a response; those at the indices `stopped` have ended too.

    Responses of one row stay together if they drew the same token. The first of a row's keep it, unless it lies beyond
    the number of rows that is needed; all others go to rows that are free.
    """
    left = [i for i, token in enumerate(tokens) if token not in ends and i not in stopped]
    together = dict.fromkeys((rows[i], tokens[i]) for i in left)
    count = len(together)
    place: dict[tuple[int, int], int] = {}
    staying: set[int] = set()
    for row, token in together:
        if row < count and row not in staying:
            place[row, token] = row
            staying.add(row)
    free = (row for row in range(count) if row not in staying)
    moves = [(next(free), row, token) for row, token in together if (row, token) not in place]
    place.update({(row, token): to for to, row, token in moves})
    read = [0] * count
    for (_, token), row in place.items():
        read[row] = token
    plan = Plan(read, [to for to, _, _ in moves], [source for _, source, _ in moves])
    return left, [place[rows[i], tokens[i]] for i in left], plan


def pick(
    logits: torch.Tensor, rows: torch.Tensor, uniform: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A token, its log-prob and the distribution's entropy, all (M,), for responses in `rows` (M,) of logits (U, V).

    Drawn by the uniforms (M,), or at temperature 0 the likeliest. Overwrites the logits.
    """
    if temperature not in (0, 1):
        logits /= temperature
    logp = logits.log_softmax(-1)
    prob = torch.exp(logp, out=logits)
    token = logp.argmax(-1).index_select(0, rows) if temperature == 0 else inverse_cdf(prob, rows, uniform)
    return token, logp[rows, token], entropy_of(logp, prob).index_select(0, rows)


def entropy_of(logp: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    """(M,) nats of distributions (M, V), given as log-probs and probabilities; overwrites the latter."""
    return prob.mul_(logp).sum(-1).neg_()


def inverse_cdf(prob: torch.Tensor, rows: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(M,) for each of `rows` (M,) of prob (U, V) the first token whose running sum, itself included, is above
    uniform (M,) x the whole sum.

    Summed in float64, so that rounding moves no boundary. In a large vocabulary, blocks of 512 tokens are summed first,
    in float32 (which moves a block's boundary by about 1e-7 of its sum), and running sums are taken over the blocks and
    inside the one that was hit. Tokens of probability 0 are never drawn.
    """
    vocabulary = prob.shape[1]
    uniform = uniform[:, None]
    if vocabulary <= 2 * BLOCK:
        cdf = prob.cumsum(-1, dtype=torch.float64).index_select(0, rows)
        return _first_above(cdf, uniform * cdf[:, -1:])[:, 0]
    whole = vocabulary - vocabulary % BLOCK
    blocks = prob[:, :whole].view(len(prob), -1, BLOCK).sum(-1)
    blocks = torch.cat([blocks, prob[:, whole:].sum(-1, keepdim=True)], dim=-1)
    cdf = blocks.cumsum(-1, dtype=torch.float64).index_select(0, rows)
    target = uniform * cdf[:, -1:]
    block = _first_above(cdf, target)
    before = F.pad(cdf, (1, 0)).gather(-1, block)
    tokens = block * BLOCK + torch.arange(BLOCK, device=prob.device)
    inside = prob[rows[:, None], tokens.clamp(max=vocabulary - 1)].masked_fill_(tokens >= vocabulary, 0)
    return (block * BLOCK + _first_above(inside.cumsum(-1, dtype=torch.float64), target - before))[:, 0]


def _first_above(cdf: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """(M, 1) index of the first of running sums (M, n) above the target (M, 1); where rounding has put the target at
    the last sum or above it, of the first that reaches that sum. Sums that are no numbers give the last index."""
    last = cdf[:, -1:]
    target = torch.minimum(target, last.nextafter(torch.zeros_like(last)))
    return torch.searchsorted(cdf, target, right=True).clamp_(max=cdf.shape[-1] - 1)


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
