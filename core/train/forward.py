"""Log-probs and entropies of given responses: one way for training, the reference and the after-update pass.

Rows are prompt + response, right-padded, so causal attention needs no mask; micro-batches hold rows of like length.
The head is applied to the positions that predict response tokens, and to no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

MAX_TOKENS = 16_384
"""Padded tokens of a micro-batch at most."""
MAX_LOGITS = 2**27
"""Numbers in a micro-batch's logits at most (half a gigabyte in float32)."""


@dataclass(frozen=True)
class Sequences:
    """N responses with their prompts."""

    prompt_ids: list[list[int]]  # one list a rollout (the rollouts of a group share theirs)
    token_ids: np.ndarray  # (N, T) int32
    length: np.ndarray  # (N,) int32

    def rows(self, rows: np.ndarray) -> Sequences:
        """The chosen rollouts."""
        return Sequences([self.prompt_ids[row] for row in rows], self.token_ids[rows], self.length[rows])


@dataclass(frozen=True)
class Piece:
    """A micro-batch: rows of some `Sequences` with what the model says of their tokens."""

    rows: np.ndarray  # (n,) indices
    logprob: torch.Tensor  # (n, t) float32, 0 on padding; t is the longest response of these rows
    entropy: torch.Tensor | None  # (n, t)
    mask: torch.Tensor  # (n, t) bool


class Scorer:
    """Scores responses with a causal language model (a PEFT model's adapter included) at the sampling temperature."""

    def __init__(self, model: torch.nn.Module, temperature: float):
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.temperature = temperature
        self.head = self.model.get_output_embeddings()
        self.plain_head = self._head_is_plain()
        vocabulary = self.model.config.get_text_config().vocab_size
        self.max_tokens = max(1024, min(MAX_TOKENS, MAX_LOGITS // vocabulary))

    def pieces(self, sequences: Sequences, entropy: bool = False) -> Iterator[Piece]:
        """The rollouts in micro-batches, each row once; gradients flow where they are enabled."""
        prompts = np.array([len(ids) for ids in sequences.prompt_ids])
        for rows in micro_batches(prompts + sequences.length, self.max_tokens):
            yield self._piece(sequences, rows, entropy)

    def score(self, sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
        """(N, T) float32 log-probs and entropies, without gradient."""
        logprob = np.zeros(sequences.token_ids.shape, dtype=np.float32)
        entropy = np.zeros_like(logprob)
        with torch.inference_mode():
            for piece in self.pieces(sequences, entropy=True):
                width = piece.mask.shape[1]
                logprob[piece.rows, :width] = piece.logprob.cpu().numpy()
                entropy[piece.rows, :width] = piece.entropy.cpu().numpy()
        return logprob, entropy

    def _piece(self, sequences: Sequences, rows: np.ndarray, entropy: bool) -> Piece:
        device = self.model.device
        length = sequences.length[rows]
        width = int(length.max())
        prompts = np.array([len(sequences.prompt_ids[row]) for row in rows])
        ids = np.zeros((len(rows), int((prompts + length).max()) - 1), dtype=np.int64)
        for i, row in enumerate(rows):
            whole = [*sequences.prompt_ids[row], *sequences.token_ids[row, : length[i]]]
            ids[i, : len(whole) - 1] = whole[:-1]  # nothing is predicted from the last token
        positions = np.arange(width)[None, :]
        mask = positions < length[:, None]
        flat = (np.arange(len(rows))[:, None] * ids.shape[1] + prompts[:, None] - 1 + positions)[mask]

        logits = self._logits(torch.from_numpy(ids).to(device), torch.from_numpy(flat).to(device))
        logits = logits.float() / self.temperature
        target = torch.from_numpy(sequences.token_ids[rows, :width][mask].astype(np.int64)).to(device)
        mask = torch.from_numpy(mask).to(device)
        picked = logits.gather(-1, target[:, None])[:, 0] - logits.logsumexp(-1)
        spread = None
        if entropy:
            spread = _scatter(torch.special.entr(logits.softmax(-1)).sum(-1), mask)
        return Piece(rows, _scatter(picked, mask), spread, mask)

    def _logits(self, input_ids: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        """(tokens, V) logits at the flat indices into (n, L)."""
        if self.plain_head:
            hidden = self.model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
            return self.head(hidden.flatten(0, 1).index_select(0, flat))
        return self.model(input_ids=input_ids, use_cache=False).logits.flatten(0, 1).index_select(0, flat)

    def _head_is_plain(self) -> bool:
        """Whether the logits are the output layer alone; some models scale or cap them afterwards."""
        if self.head is None:
            return False
        ids = torch.arange(4, device=self.model.device)[None] % self.model.config.get_text_config().vocab_size
        with torch.inference_mode():
            hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            return torch.equal(self.head(hidden), self.model(input_ids=ids, use_cache=False).logits)


def micro_batches(lengths: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Rows in batches of like length, longest first: at most `max_tokens` padded tokens (a longer row goes alone), and
    from 8 rows on a batch ends where padding would pass a quarter of a row."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        longest = lengths[order[start]]
        rows = end - start
        if end == len(order):
            yield order[start:]
        elif (rows + 1) * longest > max_tokens or (rows >= 8 and lengths[order[end]] < 0.75 * longest):
            yield order[start:end]
            start = end


def _scatter(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(n, t) with the values in the True places of the mask, in order, and 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)
