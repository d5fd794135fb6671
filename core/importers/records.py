"""Rows of one step as the record that the store writes: texts, padded arrays, and a trace of the chosen convention."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.advantage import Batch, Method, Trace, compute, loss_weights
from core.advantage.registry import selects
from core.config import RunConfig
from core.importers.base import Report
from core.importers.lab import Agreement
from core.importers.stage import LISTS
from core.store.record import SplitRecord
from core.store.replay import tokenless_batch

PER_TOKEN = ("sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", "ratio")
READ = frozenset(PER_TOKEN) - {"ratio"}
"""What of each token a method may read."""
PARTLY = "Steps in which some rollouts have tokens and others none were taken without tokens."


class Vocabulary:
    """Numbers for token texts that came without ids: one a text, in the order in which they first come."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self.ids = dict(known or {})

    def number(self, texts: Sequence[str | None]) -> np.ndarray:
        ids = self.ids
        return np.array([ids.setdefault(text or "", len(ids)) for text in texts], np.int32)


class Rows:
    """Rows of whole steps in the order in which they are stored, made ready in one go and cut step by step."""

    def __init__(self, table: pa.Table, keys: dict[str, np.ndarray]) -> None:
        self.table = table.combine_chunks()
        self.texts = {name: self.table[name].to_pylist() for name in ("prompt", "answer", "text")}
        self.maps = {name: _dicts(self.table[name]) for name in ("parts", "traits")}
        self.reward, self.advantage, self.verdict = keys["reward"], keys["advantage"], keys["verdict"]
        self.truncated = numbers(self.table["truncated"])
        self.length = numbers(self.table["length"])
        self.tokens_n = _sizes(self.table)


class Builder:
    """Makes the records of one run. `agreement` collects how far its advantages are the imported ones, if wanted."""

    def __init__(
        self, config: RunConfig, report: Report, vocabulary: Vocabulary, agreement: Agreement | None = None
    ) -> None:
        self.config, self.report, self.vocabulary = config, report, vocabulary
        self.method: Method = config.build_method()
        self.selects = selects(self.method)
        self.agreement = agreement

    def split(
        self, name: str, step: int, rows: Rows, first: int, last: int, group: np.ndarray, rollout: np.ndarray
    ) -> SplitRecord:
        """The record of rows `first` to `last` (beyond), whose group and rollout numbers are given."""
        here = slice(first, last)
        heads = np.flatnonzero(rollout == 0) + first
        reward = rows.reward[here].astype(np.float32).astype(np.float64)
        verdict = rows.verdict[here].astype(np.float32).astype(np.float64)
        known = np.isfinite(verdict).all()
        prompts = [rows.texts["prompt"][i] for i in heads]
        record = SplitRecord(
            split=name,
            prompt_id=[_prompt_id(text, step, name, g) for g, text in enumerate(prompts)],
            prompt=prompts,
            answer=[rows.texts["answer"][i] for i in heads],
            attempt=np.zeros(len(heads), np.int32),
            group_kept=np.ones(len(heads), bool),
            group=group,
            rollout=rollout,
            text=rows.texts["text"][here],
            reward=reward,
            correctness=verdict,
            correct=verdict >= self.config.correct_threshold if known else None,
            parts=rows.maps["parts"][here],
            traits=rows.maps["traits"][here],
            length=_optional(rows.length[here], int),
            truncated=_optional(rows.truncated[here], bool),
            max_length=self.config.sampling.max_new_tokens,
            imported_advantage=rows.advantage[here],
        )
        counts = rows.tokens_n[here]
        trained = None
        if np.isfinite(counts).all():
            trained = self._tokens(record, rows.table.slice(first, last - first), counts.astype(np.int64))
        elif np.isfinite(counts).any():
            self.report.note(PARTLY)
        self._judge(record, step, trained)
        return record

    def _tokens(self, record: SplitRecord, table: pa.Table, length: np.ndarray) -> np.ndarray | None:
        """Fill in the record's tokens; returns (N, T) which of them the trainer's mask left in, None for all."""
        record.length = length.astype(np.int32)
        mask = np.arange(int(length.max())) < length[:, None]
        if (texts := table["tokens"].combine_chunks()).null_count < len(texts):
            record.token_text = [own or [""] * n for own, n in zip(texts.to_pylist(), length.tolist(), strict=True)]
        record.token_ids = np.zeros(mask.shape, np.int32)
        ids = table["token_ids"].combine_chunks()
        if ids.null_count < len(ids):
            record.token_ids = np.nan_to_num(_padded(ids, mask), nan=0).astype(np.int32)
        elif record.token_text is not None:
            record.token_ids[mask] = self.vocabulary.number([text for own in record.token_text for text in own])
        for name in PER_TOKEN:
            setattr(record, name, _padded(table[name].combine_chunks(), mask))
        clipped = _padded(table["clipped"].combine_chunks(), mask)
        if clipped is not None:
            record.clipped = np.where(np.isnan(clipped), None, clipped > 0)
        own = _padded(table["token_advantage"].combine_chunks(), mask)
        whole = np.broadcast_to(record.imported_advantage[:, None], mask.shape)
        record.imported_token_advantage = whole if own is None else np.where(np.isnan(own) & ~_has(table), whole, own)
        kept = _padded(table["kept"].combine_chunks(), mask)
        trained = None if kept is None else np.where(np.isnan(kept), mask, kept > 0)
        return None if trained is None or trained[mask].all() else trained & mask

    def _judge(self, record: SplitRecord, step: int, trained: np.ndarray | None) -> None:
        """Fill in the trace and what follows from it; without rewards, the polarity alone."""
        if not np.isfinite(record.reward).all():
            if record.correct is None:
                pushed = record.imported_token_advantage
                pushed = record.imported_advantage if pushed is None else np.nansum(pushed, axis=1)
                record.polarity = np.where(np.nan_to_num(pushed) > 0, 1, -1)
            return
        if record.split != "train":
            return
        batch = self._batch(record, step, trained)
        trace: Trace = compute(self.method, batch, polarity_by=self.config.polarity_by)
        weight = loss_weights(
            trace.kept, batch.length, batch.max_length, self.method.loss.aggregation, trace.minibatch
        )  # fmt: skip
        record.trace, record.minibatch = trace, trace.minibatch
        if self.agreement is not None:
            own = record.imported_token_advantage
            self.agreement.add(trace.advantage, record.imported_advantage[:, None] if own is None else own, trace.kept)
        record.loss_weight = weight.astype(np.float32) if record.token_ids is not None else weight

    def _batch(self, record: SplitRecord, step: int, trained: np.ndarray | None) -> Batch:
        """What the rules see, as `core.store.replay` finds it in the store."""
        count = len(record.group)
        truncated = [bool(value) for value in record.truncated] if record.truncated is not None else [False] * count
        if record.token_ids is None:
            length = [-1] * count if record.length is None else [-1 if n is None else int(n) for n in record.length]
            return tokenless_batch(
                self.config, step, record.group, record.rollout, record.reward, record.correct, np.array(truncated),
                np.array(length),
            )  # fmt: skip
        trained = None if self.selects else trained
        return Batch(
            group=record.group, reward=record.reward, correct=record.correct, length=record.length,
            truncated=np.array(truncated), max_length=self.config.sampling.max_new_tokens, step=step,
            total_steps=self.config.schedule_steps or self.config.steps, rollout=record.rollout,
            minibatches=self.config.updates.minibatches, seed=self.config.seed, trained=trained,
            **{name: _read(getattr(record, name), trained) for name in READ & self.method.needs},
        )  # fmt: skip


def numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """(N,) float64, NaN for null."""
    return column.cast(pa.float64()).to_numpy()


def _sizes(table: pa.Table) -> np.ndarray:
    """(N,) the length of each row's lists, NaN without one."""
    sizes = np.full(table.num_rows, np.nan)
    for name in LISTS:
        if table[name].null_count < table.num_rows:
            sizes = np.fmax(sizes, numbers(pc.list_value_length(table[name])))
    return sizes


def _has(table: pa.Table) -> np.ndarray:
    """(N, 1) bool: rows with a list of advantages of their own."""
    return table["token_advantage"].is_valid().to_numpy()[:, None]


def _optional(values: np.ndarray, kind: type) -> Any:
    """An array where every value is known, a list with None where some are, None where none is."""
    known = np.isfinite(values)
    if known.all():
        return values.astype(np.int32 if kind is int else bool)
    return [kind(value) if there else None for value, there in zip(values, known, strict=True)] if known.any() else None


def _prompt_id(text: str | None, step: int, split: str, group: int) -> str:
    """The hash of the prompt's text, as `core.tasks.base.Prompt.id`; of its place where the text is missing."""
    text = f"{step}\0{split}\0{group}" if text is None else text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _padded(lists: pa.Array, mask: np.ndarray) -> np.ndarray | None:
    """(N, T) float64 from one list a row, NaN where a row has none; None where no row has."""
    if lists.null_count == len(lists):
        return None
    there = lists.is_valid().to_numpy(zero_copy_only=False)
    out = np.full(mask.shape, np.nan)
    out[mask & there[:, None]] = lists.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    return out


def _read(values: np.ndarray | None, trained: np.ndarray | None) -> np.ndarray | None:
    """(N, T) float32 as rules read it: what the trainer's mask left out may be missing."""
    if values is None:
        return None
    values = values.astype(np.float32)
    return values if trained is None else np.where(~trained & np.isnan(values), np.float32(0), values)


def _dicts(column: pa.ChunkedArray | pa.Array) -> list[dict[str, float]]:
    """One mapping a row of a column of maps, {} for null."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if column.null_count == len(column):
        return [{} for _ in range(len(column))]
    keys, values = column.keys.to_pylist(), numbers(column.items).tolist()
    ends = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [
        dict(zip(keys[a:b], values[a:b], strict=True)) if there else {}
        for a, b, there in zip(ends, ends[1:], valid, strict=False)
    ]
