"""From a step's record to Arrow tables with the columns of `schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from core.ranks import ALONE, Ranks
from core.store import schema
from core.store.errors import StoreError
from core.store.factors import Factors
from core.store.record import SplitRecord, StepRecord
from core.store.summary import sum_rows, summary_rows
from core.store.text import encode, encode_all

Tables = dict[str, pa.Table]

_OF_GROUPS = ("prompt", "answer", "attempt", "group_kept")
_OR_NONE = ("correct", "length", "truncated")
_OF_ROLLOUTS = ("rollout", "text", "reward", "correctness", "correct", "parts", "traits", "length", "truncated")


def tables(record: StepRecord, factors: Factors, ranks: Ranks = ALONE) -> Tables:
    """The step's tables; those without a row are left out. Raises StoreError where the record contradicts itself.

    Of several ranks, each makes the rows of its own groups and sums them up; `metrics` and `evals` are the first's.
    """
    parts: dict[str, list[pa.Table]] = {table: [] for table in schema.TABLES}
    for split in record.splits:
        _check(split, record.step)
        groups = _own_groups(split, ranks)
        rollouts = groups[split.group]
        parts["groups"].append(_only(_groups(split, record.step), groups))
        parts["rollouts"].append(_only(_rollouts(split, record.step, factors.rollout), rollouts))
        if split.token_ids is not None:
            tokens = _tokens(split, rollouts, record.step, factors.token)
            parts["tokens"].append(tokens)
            length = split.counted[rollouts]
            polarity = np.repeat(_polarity(split)[rollouts], length)
            parts["summary"].append(summary_rows(tokens, polarity, np.repeat(length, length)))
            for table in schema.LATER_TABLES:
                parts[table].append(sum_rows(table, tokens, polarity))
    for table, row in (("metrics", record.metrics), ("evals", record.eval)):
        if row is not None and ranks.first:
            parts[table].append(_one_row(table, {**row, "step": record.step}))
    joined = {table: pa.concat_tables(several) for table, several in parts.items() if several}
    return {table: rows for table, rows in joined.items() if rows.num_rows}


def _only(rows: pa.Table, own: np.ndarray) -> pa.Table:
    return rows if own.all() else rows.filter(own)


def _own_groups(split: SplitRecord, ranks: Ranks) -> np.ndarray:
    """(P,) bool: the groups whose rows this rank writes, about as many tokens as the others."""
    return ranks.owners(np.bincount(split.group, split.counted, len(split.prompt_id))) == ranks.rank


def _check(split: SplitRecord, step: int) -> None:
    groups, rollouts = len(split.prompt_id), len(split.group)
    for name in (*_OF_GROUPS, *_OF_ROLLOUTS):
        expected, what = (groups, "groups") if name in _OF_GROUPS else (rollouts, "rollouts")
        values = getattr(split, name)
        if values is None and name in _OR_NONE:
            continue
        if (count := len(values)) != expected:
            raise StoreError(f"step {step}, {split.split}: {name} has {count} entries for {expected} {what}")
    if split.token_ids is not None and (split.length is None or isinstance(split.length, list)):
        raise StoreError(f"step {step}, {split.split}: with tokens, every length is a number")
    if rollouts and not (np.min(split.group) >= 0 and np.max(split.group) < groups):
        raise StoreError(f"step {step}, {split.split}: group must lie in 0..{groups - 1}")
    if split.token_text is not None and [len(texts) for texts in split.token_text] != np.asarray(split.length).tolist():
        raise StoreError(f"step {step}, {split.split}: token_text must have one text a token of each rollout")


def _groups(split: SplitRecord, step: int) -> pa.Table:
    count = len(split.prompt_id)
    n = np.bincount(split.group, minlength=count)
    reward = np.bincount(split.group, weights=np.asarray(split.reward, np.float64), minlength=count)
    some = np.maximum(n, 1)
    columns = {
        "step": np.full(count, step),
        "split": [split.split] * count,
        "group": np.arange(count),
        "prompt_id": encode_all(split.prompt_id),
        "prompt": encode_all(split.prompt),
        "answer": encode_all(split.answer),
        "n": n,
        "mean_reward": reward / some,
        "kept": np.asarray(split.group_kept, bool),
        "attempt": split.attempt,
    }
    if split.correct is not None:
        correct = np.bincount(split.group, weights=np.asarray(split.correct, np.float64), minlength=count)
        columns |= {"correct": correct.astype(np.int32), "pass_rate": correct / some}
    if split.trace is not None:
        classes, present = split.trace.classes, np.unique(split.group)
        place = {group: i for i, group in enumerate(present.tolist())}

        def spread(values: Any) -> list[Any]:
            return [values[place[group]] if group in place else None for group in range(count)]

        def spread_numbers(values: Any) -> np.ndarray:
            whole = np.full(count, np.nan)
            whole[present] = values
            return whole

        columns |= {
            "longest_correct": spread_numbers(classes.longest_correct),
            "mean_wrong_length": spread_numbers(classes.mean_wrong),
            "length_advantage": spread(classes.length_advantage),
            "difficulty_advantage": spread(classes.difficulty_advantage),
            "class": spread(classes.label),
            "weight": spread_numbers(classes.weight),
        }
    return _table("groups", columns, count)


def _rollouts(split: SplitRecord, step: int, factors: Sequence[str]) -> pa.Table:
    count = len(split.group)
    columns: dict[str, Any] = {
        "step": np.full(count, step),
        "split": [split.split] * count,
        "group": split.group,
        "rollout": split.rollout,
        "prompt_id": encode_all(split.prompt_id[group] for group in split.group),
        "text": encode_all(split.text),
        "reward": split.reward,
        "correctness": split.correctness,
        "polarity": _polarity(split),
        "parts": _maps(split.parts),
        "traits": _maps(split.traits),
    }
    known = {name: values for name in _OR_NONE if (values := getattr(split, name)) is not None}
    for name, values in known.items():
        columns[name] = np.asarray(values, bool) if name != "length" and isinstance(values, np.ndarray) else values
    if split.imported_advantage is not None:
        columns["imported_advantage"] = split.imported_advantage
    if split.minibatch is not None:
        columns["minibatch"] = split.minibatch
    elif split.loss_weight is not None:
        columns["minibatch"] = np.zeros(count, np.int32)
    if split.sampler_logprob is not None and count:
        mask = np.arange(split.sampler_logprob.shape[1]) < split.counted[:, None]
        columns["sequence_logprob"] = np.where(mask, split.sampler_logprob, 0).sum(axis=1, dtype=np.float64)
    if split.token_ids is not None:
        columns["repeated"] = repeated(split.token_ids, split.counted)
    trace = split.trace
    if trace is not None:
        if trace.base.ndim == 1:
            columns["base_advantage"] = trace.base
        if split.loss_weight is not None:
            base = trace.base if trace.base.ndim == 2 else trace.base[:, None]
            columns["mass"] = _mass(split, trace.advantage)
            columns["base_mass"] = _mass(split, np.broadcast_to(base, trace.advantage.shape))
        columns["kept"] = trace.kept.any(axis=1)
        groups = np.unique(split.group)
        for factor in _named(trace.factors, token=False, allowed=factors, step=step):
            values = np.asarray(factor.values)
            values = values if factor.per == "rollout" else values[np.searchsorted(groups, split.group)]
            columns[schema.FACTOR_PREFIX + factor.id] = values
    return _table("rollouts", columns, count, rollout_factors=tuple(factors))


def repeated(token_ids: np.ndarray, length: np.ndarray, size: int = 4) -> np.ndarray:
    """(N,) the share of each response's n-grams of `size` tokens that occurred before in it; 0 where it has none.

    `token_ids` is (N, T), `length` (N,) in tokens.
    """
    shares = np.zeros(len(length))
    if token_ids.shape[1] < size:
        return shares
    places = token_ids.shape[1] - size + 1
    code = np.zeros((len(length), places), np.int64)
    for i in range(size):
        code = code * 1_000_003 + token_ids[:, i : i + places]  # it wraps around: hardly ever do two get one code
    for i, count in enumerate(np.asarray(length) - size + 1):
        if count > 0:
            shares[i] = 1 - len(np.unique(code[i, :count])) / count
    return shares


def _mass(split: SplitRecord, advantage: np.ndarray) -> np.ndarray:
    """(N,) sum of loss weight x |advantage| over each rollout's kept tokens."""
    width = min(advantage.shape[1], split.loss_weight.shape[1])
    kept = split.trace.kept[:, :width] & (np.arange(width) < split.counted[:, None])
    return np.where(kept, split.loss_weight[:, :width] * np.abs(advantage[:, :width]), 0.0).sum(axis=1)


def _tokens(split: SplitRecord, rollouts: np.ndarray, step: int, factors: Sequence[str]) -> pa.Table:
    """The tokens of the chosen rollouts, (N,) bool."""
    length = np.where(rollouts, split.length, 0)
    count, width = int(length.sum()), split.token_ids.shape[1]
    mask = np.arange(width) < length[:, None]
    if length.max(initial=0) > width:
        raise StoreError(f"step {step}, {split.split}: length says {length.max()} tokens, token_ids has {width}")
    columns: dict[str, Any] = {
        "step": np.full(count, step),
        "split": [split.split] * count,
        "group": np.repeat(split.group, length),
        "rollout": np.repeat(split.rollout, length),
        "position": np.nonzero(mask)[1],
        "token_id": split.token_ids[mask],
    }
    if split.token_text is not None:
        chosen = (texts for texts, own in zip(split.token_text, rollouts, strict=True) if own)
        columns["token"] = encode_all(text for texts in chosen for text in texts)
    for name in (
        "sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", "proxy_logprob", "loss_weight", "tis", "ratio",
        "clipped", "after_logprob", "entropy_after",
    ):  # fmt: skip
        if (values := getattr(split, name)) is not None:
            columns[name] = _flat(values, mask, name, step)
    if (values := split.imported_token_advantage) is not None:
        columns["imported_advantage"] = _flat(values, mask, "imported_token_advantage", step)
    trace = split.trace
    if trace is not None:
        base = trace.base if trace.base.ndim == 2 else np.broadcast_to(trace.base[:, None], trace.advantage.shape)
        for name, values in (("base_advantage", base), ("advantage", trace.advantage), ("kept", trace.kept)):
            columns[name] = _flat(values, mask, name, step)
        if trace.penalty is not None:
            columns["penalty"] = _flat(trace.penalty.coefficient, mask, "penalty", step)
        for factor in _named(trace.factors, token=True, allowed=factors, step=step):
            columns[schema.FACTOR_PREFIX + factor.id] = _flat(factor.values, mask, factor.id, step)
    return _table("tokens", columns, count, token_factors=tuple(factors))


def _polarity(split: SplitRecord) -> np.ndarray:
    """(N,) +1 or -1: the trace's, which may go by sign; by correctness where there is none."""
    if split.trace is not None:
        return np.asarray(split.trace.polarity, np.int8)
    if split.polarity is not None:
        return np.asarray(split.polarity, np.int8)
    return np.where(np.asarray(split.correct, bool), 1, -1).astype(np.int8)


def _flat(values: Any, mask: np.ndarray, name: str, step: int) -> np.ndarray:
    """(tokens,) the response tokens of an (N, T) array, whose T may be anything that holds the longest response."""
    values, width = np.asarray(values), int(np.flatnonzero(mask.any(axis=0)).max(initial=-1)) + 1
    if values.ndim != 2 or len(values) != len(mask) or values.shape[1] < width:
        raise StoreError(f"step {step}: {name} has shape {values.shape}, the tokens need ({len(mask)}, {width})")
    return values[:, :width][mask[:, :width]]


def _named(factors: Sequence[Any], token: bool, allowed: Sequence[str], step: int) -> list[Any]:
    chosen = [factor for factor in factors if (factor.per == "token") == token]
    for factor in chosen:
        if factor.id not in allowed:
            raise StoreError(f"step {step}: the factor {factor.id} is not in the run's schema.json")
    return chosen


def _one_row(table: str, row: Mapping[str, Any]) -> pa.Table:
    known = {column.name: column.type for column in schema.COLUMNS[table]}
    for name in row:
        if name not in known:
            raise StoreError(f"step {row['step']}: {table} has no column {name}")
    values = {
        name: _maps([value]) if isinstance(value, Mapping) else [encode(value) if isinstance(value, str) else value]
        for name, value in row.items()
    }
    return _table(table, values, 1)


def _maps(several: Sequence[Mapping[str, float | None]]) -> pa.Array:
    """Named numbers as one map a row; NaN becomes null."""
    if not any(several):
        ends = pa.array(np.zeros(len(several) + 1, np.int32))
        return pa.MapArray.from_arrays(ends, pa.array([], pa.string()), pa.array([], pa.float64()))
    ends = np.cumsum([0, *map(len, several)])
    names = {name: encode(str(name)) for name in set().union(*several)}
    keys = [names[name] for numbers in several for name in numbers]
    values = np.array([value for numbers in several for value in numbers.values()], dtype=np.float64)
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, pa.array(values, from_pandas=True))


def _table(name: str, columns: Mapping[str, Any], count: int, **factors: tuple[str, ...]) -> pa.Table:
    """Columns in the schema's order and types; NaN and absent columns become null."""
    wanted = schema.arrow(name, **factors)
    arrays = []
    for field in wanted:
        if field.name not in columns:
            arrays.append(pa.nulls(count, field.type))
            continue
        values = columns[field.name]
        if isinstance(values, np.ndarray) and pa.types.is_floating(field.type):
            values = values.astype(field.type.to_pandas_dtype())
        if isinstance(values, pa.Array):
            arrays.append(values)
        elif isinstance(values, np.ndarray):
            arrays.append(pa.array(values, type=field.type, from_pandas=True))
        elif pa.types.is_string(field.type):
            arrays.append(pa.array(values, type=field.type))
        else:
            scalars = [None if _is_nan(value) else _plain(value) for value in values]
            arrays.append(pa.array(scalars, type=field.type))
    return pa.Table.from_arrays(arrays, schema=wanted)


def _is_nan(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
