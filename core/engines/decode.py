"""The sampling loop: one token for every unfinished row at a time, finished rows dropped from the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch


class Decoder(Protocol):
    """A model with a key-value cache, as the loop sees it. M rows are in the cache, V ids in the vocabulary."""

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, repeats: int) -> torch.Tensor:
        """Read left-padded prompts (P, L), mask True on tokens, each `repeats` times; next logits (P x repeats, V)."""
        ...

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append one token (M,) to every row; the next logits (M, V)."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Row j becomes what row rows[j] was; rows[j] is j, or lies at or beyond len(rows)."""
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
    eos: torch.Tensor,
    pad: int,
) -> Decoded:
    """Sample `group_size` responses for each left-padded prompt (P, L).

    `draws` (P x group_size, max_new_tokens) are uniforms in [0, 1); temperature 0 takes the likeliest token, with
    log-probs and entropies at temperature 1.
    """
    count, limit = draws.shape
    device = prompts.device
    uniform = torch.from_numpy(draws).to(device)
    token_ids = torch.full((count, limit), pad, dtype=torch.int64, device=device)
    logprob = torch.zeros((count, limit), dtype=torch.float32, device=device)
    entropy = torch.zeros_like(logprob)
    length = torch.full((count,), limit, dtype=torch.int64, device=device)
    truncated = torch.ones(count, dtype=torch.bool, device=device)

    alive = torch.arange(count, device=device)
    logits = decoder.prefill(prompts, mask, group_size)
    for position in range(limit):
        logp = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
        prob = logp.exp()
        token = logp.argmax(-1) if temperature == 0 else inverse_cdf(prob, uniform[alive, position])
        token_ids[alive, position] = token
        logprob[alive, position] = logp.gather(-1, token[:, None])[:, 0]
        entropy[alive, position] = torch.special.entr(prob).sum(-1)

        done = torch.isin(token, eos)
        if done.any():
            finished = alive[done]
            length[finished] = position + 1
            truncated[finished] = False
            rows = survivors(done)
            if len(rows) == 0:
                break
            alive, token = alive[rows], token[rows]
            decoder.keep(rows)
        if position + 1 < limit:
            logits = decoder.step(token)

    width = int(length.max())
    return Decoded(
        token_ids[:, :width].to(torch.int32).cpu().numpy(),
        length.to(torch.int32).cpu().numpy(),
        truncated.cpu().numpy(),
        logprob[:, :width].cpu().numpy(),
        entropy[:, :width].cpu().numpy(),
    )


def inverse_cdf(prob: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(M,) the token whose interval of the cumulative distribution (M, V) holds the uniform (M,).

    Summed in float64, so that a large vocabulary's rounding moves no boundary; tokens of probability 0 are never drawn.
    """
    cdf = prob.to(torch.float64).cumsum(-1)
    target = uniform[:, None] * cdf[:, -1:]
    return torch.searchsorted(cdf, target, right=True)[:, 0].clamp_(max=prob.shape[-1] - 1)


def survivors(done: torch.Tensor) -> torch.Tensor:
    """The unfinished rows of (M,) `done`, the last of them moved into the holes that finished rows leave."""
    left = int((~done).sum())
    rows = torch.arange(left, device=done.device)
    rows[done[:left]] = torch.nonzero(~done[left:])[:, 0] + left
    return rows
