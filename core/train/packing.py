"""Rollouts as one stream of tokens, without padding and with nothing in it twice.

A token's state depends on what stands before it alone, so rollouts share theirs for as long as they are alike: the
prompt, and the beginnings of responses to it (three tokens in ten early in a run of the embedded model, half of them
later). Work on single tokens (projections, norms, the head) runs over the stream. Attention alone needs the rollouts
apart: it takes the part that is a rollout's own, in blocks of like length, each behind its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

PADDING = 2**15
"""Pairs of a query and a key, that are none, from which on a block of attention is better split in two."""


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
class Heads:
    """A stream's projections are (S, queries + 2 keys, D): the query heads, then the key and the value heads."""

    queries: int
    keys: int

    @property
    def all(self) -> int:
        return self.queries + 2 * self.keys


@dataclass(frozen=True)
class Block:
    """n sequences of like length: T queries each, on K keys, the first K - T of them those of what stands before.

    `q`, `k` and `v` gather the heads' rows of a stream, (S x all, D), into (n, heads, T or K, D); padding takes any
    row. `padded` are the rows of the result, (n x queries x T, D), that are no padding, and `stream` their places in
    the stream's result, (S x queries, D).
    """

    n: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor  # (n, 1, T, K) float32: 0 where a query sees a key, -inf where it does not
    padded: torch.Tensor
    stream: torch.Tensor


@dataclass(frozen=True)
class Packed:
    """S tokens of some responses with their prompts; a response's last token, which predicts nothing, is left out."""

    ids: torch.Tensor  # (S,) int64
    positions: torch.Tensor  # (S,) int64, from the start of the prompt
    blocks: list[Block]
    predicting: torch.Tensor  # (m,) int64: the stream's token from which each response token is predicted, row by row


def by_prompt(prompt_ids: list[list[int]]) -> np.ndarray:
    """(N,) the index of each rollout's prompt, equal prompts alike, in the order of their first rollouts."""
    index: dict[tuple[int, ...], int] = {}
    return np.array([index.setdefault(tuple(ids), len(index)) for ids in prompt_ids], dtype=np.int64)


def pack(sequences: Sequences, heads: Heads, device: torch.device) -> Packed:
    """All rollouts of `sequences` as one stream."""
    ids: list[int] = []
    positions: list[int] = []
    prompts: dict[tuple[int, ...], list[int]] = {}  # their places in the stream
    following: dict[tuple[int, int], int] = {}  # the place of an id behind another place
    own: list[_Own] = []
    paths: list[int] = []
    for prompt, response, count in zip(sequences.prompt_ids, sequences.token_ids, sequences.length, strict=True):
        before = prompts.get(tuple(prompt))
        if before is None:
            before = prompts[tuple(prompt)] = list(range(len(ids), len(ids) + len(prompt)))
            own.append(_Own(len(ids), len(prompt), []))
            ids += prompt
            positions += range(len(prompt))
        start, path = len(ids), before[-1:]
        for token in response[: count - 1].tolist():
            place = following.setdefault((path[-1], token), len(ids))
            if place == len(ids):
                ids.append(token)
                positions.append(positions[path[-1]] + 1)
            path.append(place)
        if new := len(ids) - start:
            own.append(_Own(start, new, before + path[1:-new]))
        paths += path
    return Packed(
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        [_block(parts, heads, device) for parts in _alike(own)],
        torch.tensor(paths, device=device),
    )


def like_length(lengths: np.ndarray, max_tokens: int | None = None) -> Iterator[np.ndarray]:
    """Rows in batches of like length, longest first: at most `max_tokens` padded tokens (a longer row goes alone), and
    from 8 rows on a batch ends where padding would pass a quarter of a row."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        longest, rows = lengths[order[start]], end - start
        if (
            end == len(order)
            or (max_tokens and (rows + 1) * longest > max_tokens)
            or (rows >= 8 and lengths[order[end]] < 0.75 * longest)
        ):
            yield order[start:end]
            start = end


@dataclass(frozen=True)
class _Own:
    """A part of the stream that belongs to one rollout, or a prompt, and the places of what stands before it."""

    start: int
    length: int
    before: list[int]

    @property
    def pairs(self) -> int:
        """Of its queries with the keys that they may look at."""
        return self.length * (self.length + len(self.before))


def _alike(own: list[_Own]) -> Iterator[list[_Own]]:
    """The parts in blocks of like length, none with much padding: a long prompt does not widen short answers."""
    for some in like_length(np.array([part.length for part in own])):
        parts = sorted((own[i] for i in some), key=lambda part: -part.pairs)
        start = real = length = before = 0
        for end, part in enumerate(parts):
            real, length, before = real + part.pairs, max(length, part.length), max(before, len(part.before))
            padding = (end + 1 - start) * length * (length + before) - real
            if padding > max(PADDING, real):
                yield parts[start:end]
                start, real, length, before = end, part.pairs, part.length, len(part.before)
        yield parts[start:]


def _block(parts: list[_Own], heads: Heads, device: torch.device) -> Block:
    start, length, prefix = (
        np.array(values) for values in zip(*((p.start, p.length, len(p.before)) for p in parts), strict=True)
    )
    step = np.arange(length.max())
    real = step < length[:, None]
    token = np.where(real, start[:, None] + step, 0)  # (n, T) places in the stream
    before = np.zeros((len(parts), prefix.max()), dtype=np.int64)  # (n, K - T) places
    there = np.arange(before.shape[1]) < prefix[:, None]
    before[there] = [place for part in parts for place in part.before]
    key = np.concatenate([before, token], axis=1)
    inside = (step[:, None] >= step) & real[:, None, :]
    seen = np.concatenate([np.broadcast_to(there[:, None, :], (*token.shape, before.shape[1])), inside], axis=2)

    def rows(tokens: np.ndarray, first: int, count: int) -> torch.Tensor:
        """Of heads `first` to `first + count` at these places (n, any), head by head."""
        return _tensor((tokens[:, None, :] * heads.all + first + np.arange(count)[:, None]).ravel(), device)

    n, width = token.shape
    head = np.arange(heads.queries)[:, None]
    padded = (np.arange(n)[:, None, None] * heads.queries + head) * width + np.arange(width)  # (n, queries, T)
    stream = token[:, None, :] * heads.queries + head
    filled = np.broadcast_to(real[:, None, :], padded.shape)
    return Block(
        n=n,
        q=rows(token, 0, heads.queries),
        k=rows(key, heads.queries, heads.keys),
        v=rows(key, heads.queries + heads.keys, heads.keys),
        mask=torch.from_numpy(np.where(seen, np.float32(0), np.float32(-np.inf))[:, None]).to(device),
        padded=_tensor(padded[filled], device),
        stream=_tensor(stream[filled], device),
    )


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64)).to(device)
