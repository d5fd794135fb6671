"""Log-probs and entropies of given responses: one way for training, the reference and the after-update pass.

Two paths give the same numbers. Llama-like models in float32 take packed rollouts (`core.train.llama`). Any other model
reads rows of prompt + response, right-padded, so causal attention needs no mask, in micro-batches of like length. In
both the head is applied to the positions that predict response tokens, and to no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from core.limits import PACKED_BYTES, PACKED_LONGEST, micro_batch_tokens
from core.train.head import min_p_logprob, token_logprobs
from core.train.llama import PackedLlama, trains
from core.train.packing import Sequences, by_prompt, like_length

__all__ = ["Piece", "Scorer", "Sequences"]


@dataclass(frozen=True)
class Piece:
    """A micro-batch: rows of some `Sequences` with what the model says of their tokens."""

    rows: np.ndarray  # (n,) indices
    logprob: torch.Tensor  # (n, t) float32, 0 on padding; t is the longest response of these rows
    entropy: torch.Tensor | None  # (n, t)
    proxy: torch.Tensor | None  # (n, t) log-probs under the min-p filtered distribution, PROXY_DROPPED outside of it
    mask: torch.Tensor  # (n, t) bool


class Scorer:
    """Scores responses with a causal language model (a PEFT model's adapter included) at the sampling temperature."""

    def __init__(self, model: torch.nn.Module, temperature: float, max_tokens: int | None = None, packed: bool = True):
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.temperature = temperature
        self.head = self.model.get_output_embeddings()
        self.plain_head = self._head_is_plain()
        self.packed = PackedLlama(self.model) if packed and trains(self.model) else None
        vocabulary = self.model.config.get_text_config().vocab_size
        self.max_tokens = micro_batch_tokens(vocabulary, max_tokens)

    def pieces(self, sequences: Sequences, entropy: bool = False, min_p: float | None = None) -> Iterator[Piece]:
        """The rollouts in micro-batches, each row once; gradients flow where they are enabled."""
        if not len(sequences.length):
            return
        prompts = np.array([len(ids) for ids in sequences.prompt_ids])
        packed = self.packed if (prompts + sequences.length <= PACKED_LONGEST).all() else None
        batches = (
            like_length(prompts + sequences.length, self.max_tokens)
            if packed is None
            else _within(sequences, packed, self.max_tokens)
        )
        for rows in batches:
            chosen = sequences.rows(rows)
            width = int(chosen.length.max())
            mask = np.arange(width) < chosen.length[:, None]
            target = self._tensor(chosen.token_ids[:, :width][mask])
            mask = torch.from_numpy(mask).to(self.model.device)
            found = self._logprobs(chosen, target, packed, entropy, min_p)
            yield Piece(rows, *(None if values is None else _scatter(values, mask) for values in found), mask)

    def score(self, sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
        """(N, T) float32 log-probs and entropies, without gradient."""
        logprob, entropy = self._score(sequences, ("logprob", "entropy"))
        return logprob, entropy

    def score_with_proxy(self, sequences: Sequences, min_p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `score` gives, and (N, T) float32 log-probs of the same tokens under the distribution without those that
        are less likely than `min_p` times the likeliest, renormalised; PROXY_DROPPED where the token is one of them."""
        logprob, entropy, proxy = self._score(sequences, ("logprob", "entropy", "proxy"), min_p)
        return logprob, entropy, proxy

    def _score(self, sequences: Sequences, names: tuple[str, ...], min_p: float | None = None) -> list[np.ndarray]:
        """(N, T) float32, without gradient: these fields of the pieces, 0 on padding."""
        arrays = [np.zeros(sequences.token_ids.shape, dtype=np.float32) for _ in names]
        with torch.inference_mode():
            for piece in self.pieces(sequences, entropy=True, min_p=min_p):
                for name, array in zip(names, arrays, strict=True):
                    array[piece.rows, : piece.mask.shape[1]] = getattr(piece, name).cpu().numpy()
        return arrays

    def _logprobs(
        self,
        sequences: Sequences,
        target: torch.Tensor,
        packed: PackedLlama | None,
        entropy: bool,
        min_p: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """(m,) log-probs of the response tokens `target`, row by row; entropies if wanted, proxies with a `min_p`."""
        if packed is None and not self.plain_head:
            ids, predicting = self._padded(sequences)
            logits = self.model(input_ids=ids, use_cache=False).logits.flatten(0, 1).index_select(0, predicting)
            logp = (logits.float() / self.temperature).log_softmax(-1)
            logprob = logp.gather(-1, target[:, None])[:, 0]
            spread = torch.special.entr(logp.exp()).sum(-1) if entropy else None
            proxy = None if min_p is None else min_p_logprob(logprob, logp.exp(), target, min_p)
            return logprob, spread, proxy
        hidden = self._hidden(sequences) if packed is None else packed.hidden(sequences)
        return token_logprobs(hidden, self.head.weight, target, self.temperature, entropy, min_p)

    def _hidden(self, sequences: Sequences) -> torch.Tensor:
        """(m, E) the states that the response tokens are predicted from."""
        ids, predicting = self._padded(sequences)
        return self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)[predicting]

    def _padded(self, sequences: Sequences) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, L) prompt + response, and the flat indices of the places that predict response tokens."""
        prompts = np.array([len(ids) for ids in sequences.prompt_ids])
        ids = np.zeros((len(prompts), int((prompts + sequences.length).max()) - 1), dtype=np.int64)
        for row, (prompt, response, count) in enumerate(
            zip(sequences.prompt_ids, sequences.token_ids, sequences.length, strict=True)
        ):
            ids[row, : len(prompt) + count - 1] = [*prompt, *response[: count - 1]]  # from the last comes nothing
        first = np.arange(len(prompts)) * ids.shape[1] + prompts - 1
        predicting = [np.arange(start, start + count) for start, count in zip(first, sequences.length, strict=True)]
        return self._tensor(ids), self._tensor(np.concatenate(predicting))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.model.device)

    def _head_is_plain(self) -> bool:
        """Whether the logits are the output layer's frozen weight alone; some models scale or cap them afterwards."""
        if type(self.head) is not torch.nn.Linear or self.head.bias is not None or self.head.weight.requires_grad:
            return False
        ids = torch.arange(4, device=self.model.device)[None] % self.model.config.get_text_config().vocab_size
        with torch.inference_mode():
            hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            return torch.equal(self.head(hidden), self.model(input_ids=ids, use_cache=False).logits)


def _within(sequences: Sequences, packed: PackedLlama, max_tokens: int) -> Iterator[np.ndarray]:
    """Rows in micro-batches, the rollouts of a prompt next to each other, by what training keeps of them."""
    prompt_of = by_prompt(sequences.prompt_ids)
    order = np.argsort(prompt_of, kind="stable")
    start = tokens = kept = 0
    for end, row in enumerate(order):
        prompt, length = len(sequences.prompt_ids[row]), int(sequences.length[row])
        own = np.array([length, packed.kept_bytes(length, prompt)])
        with_prompt = own + np.array([prompt, packed.kept_bytes(prompt)])
        more = own if end > start and prompt_of[order[end - 1]] == prompt_of[row] else with_prompt
        if end > start and (tokens + more[0] > max_tokens or kept + more[1] > PACKED_BYTES):
            yield order[start:end]
            start, tokens, kept, more = end, 0, 0, with_prompt
        tokens, kept = tokens + more[0], kept + more[1]
    yield order[start:]


def _scatter(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(n, t) with the values in the True places of the mask, in order, and 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)
