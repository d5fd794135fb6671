"""Which rows are rollouts of one group, and which are there twice: from the rows' keys alone, all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.importers.base import Report

AGAIN = "the same rollout is there twice"
NO_REWARD = "no reward, where other rollouts of its step have one"
NO_NUMBER = "the reward is not a finite number"
APART = "Rollouts of one prompt do not lie side by side: those of equal prompts in a step were taken for a group."
ALONE = "Nothing says which rollouts are of one prompt (no group, no prompt): each is a group of its own."

Keys = dict[str, np.ndarray]


@dataclass(frozen=True)
class Order:
    """The rollouts in the order in which they are stored: by step, split, group and rollout; all (N,)."""

    seq: np.ndarray
    step: np.ndarray
    evaluated: np.ndarray  # bool: of the eval split
    group: np.ndarray  # index within step and split
    rollout: np.ndarray  # index within its group
    keys: Keys
    """The keys of `Stage.keys` in this order."""

    @property
    def judged(self) -> np.ndarray:
        """(N,) bool: training rollouts with a reward, which have an advantage."""
        return ~self.evaluated & np.isfinite(self.keys["reward"])

    def only(self, steps: set[int]) -> Order:
        """The rollouts of these steps."""
        here = np.isin(self.step, sorted(steps))
        keys = {name: values[here] for name, values in self.keys.items()}
        own = (self.seq, self.step, self.evaluated, self.group, self.rollout)
        return Order(*(values[here] for values in own), keys)

    @property
    def whole(self) -> np.ndarray:
        """(N,) a number for each group of the import, ascending."""
        new = np.ones(len(self.seq), bool)
        new[1:] = self.rollout[1:] == 0
        return np.cumsum(new) - 1


def arrange(keys: Keys, report: Report, where: Callable[[int], str]) -> Order:
    """Drop what is there twice or has no place, and put the rest in order. `where` names a row by its `seq`."""
    for reason, bad in ((NO_NUMBER, _infinite), (AGAIN, _repeated), (NO_REWARD, _unrewarded)):
        gone = bad(keys)
        if gone.any():
            report.refuse(reason, where(int(keys["seq"][np.argmax(gone)])), int(gone.sum()))
            keys = {name: values[~gone] for name, values in keys.items()}
    order = np.lexsort((keys["seq"], ~keys["evaluated"], keys["step"]))  # eval before train, as its name sorts
    keys = {name: values[order] for name, values in keys.items()}
    group = _groups(keys, report)
    order = np.lexsort((keys["seq"], group))
    keys = {name: values[order] for name, values in keys.items()}
    group = group[order]
    return Order(
        keys["seq"], keys["step"], keys["evaluated"], group - _first(group, _split_starts(keys)),
        _rank(group), keys,
    )  # fmt: skip


def _infinite(keys: Keys) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.isinf(keys["reward"].astype(np.float32))


def _repeated(keys: Keys) -> np.ndarray:
    """(rows,) bool. With a sample's name: every row after the first of that step, group, prompt and name. Without:
    rows that are equal in everything, where they come from different files; one file may say the same twice."""
    sampled = keys["sampled"]
    same = np.where(sampled, keys["sample_hash"], keys["row_hash"])
    place = (keys["step"], keys["evaluated"], sampled, keys["group_hash"], keys["prompt_hash"], same)
    order = np.lexsort((keys["seq"], keys["file"], *place))
    copy = _rank(_label([values[order] for values in (*place, keys["file"])]))
    copies = np.zeros(len(copy), np.int64)
    copies[order] = np.where(sampled[order], 0, copy)
    order = np.lexsort((keys["seq"], copies, *place))
    again = _rank(_label([values[order] for values in (*place, copies)])) > 0
    gone = np.zeros(len(again), bool)
    gone[order] = again
    return gone


def _unrewarded(keys: Keys) -> np.ndarray:
    """(rows,) bool: without a reward, in a step and split that has some."""
    rewarded = np.isfinite(keys["reward"])
    if rewarded.all() or not rewarded.any():
        return np.zeros(len(rewarded), bool)
    _, step = np.unique(keys["step"] * 2 + keys["evaluated"], return_inverse=True)
    return ~rewarded & (np.bincount(step, rewarded) > 0)[step]


def _groups(keys: Keys, report: Report) -> np.ndarray:
    """(N,) a number a group, in the order of their first rows; rows are in the order of step, split and `seq`."""
    starts = _split_starts(keys)
    named, prompted = keys["grouped"], keys["prompted"]
    fresh = starts | np.append(True, keys["prompt_hash"][1:] != keys["prompt_hash"][:-1])
    fresh |= np.append(True, named[1:] != named[:-1]) | ~(named | prompted)
    run = np.cumsum(fresh)
    loose = ~named & prompted
    if loose.any():
        equal = _label_any([np.cumsum(starts)[loose], keys["prompt_hash"][loose]])
        if len(np.unique(run[loose])) > 2 * (equal.max() + 1):
            run[loose] = len(fresh) + 1 + equal
            report.note(APART)
    if not (named | prompted).any():
        report.note(ALONE)
    part = np.cumsum(starts)
    label = _label_any([part, named, np.where(named, keys["group_hash"], run.astype(np.uint64)), keys["prompt_hash"]])
    _, first = np.unique(label, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[label]


def _split_starts(keys: Keys) -> np.ndarray:
    """(N,) bool: the first row of each step and split, of rows in order."""
    starts = np.ones(len(keys["seq"]), bool)
    starts[1:] = (keys["step"][1:] != keys["step"][:-1]) | (keys["evaluated"][1:] != keys["evaluated"][:-1])
    return starts


def _first(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(N,) the value at the start of each stretch."""
    return values[starts][np.cumsum(starts) - 1] if len(values) else values


def _label(columns: list[np.ndarray]) -> np.ndarray:
    """(N,) numbers for rows that lie side by side and are equal in all columns."""
    new = np.zeros(len(columns[0]), bool)
    for values in columns:
        new[1:] |= values[1:] != values[:-1]
    return np.cumsum(new)


def _label_any(columns: list[np.ndarray]) -> np.ndarray:
    """(N,) numbers from 0 for rows that are equal in all columns, wherever they lie."""
    order = np.lexsort(columns)
    label = np.empty(len(order), np.int64)
    label[order] = _label([values[order] for values in columns])
    return label


def _rank(label: np.ndarray) -> np.ndarray:
    """(N,) the index of each row within its stretch of equal labels."""
    starts = np.ones(len(label), bool)
    starts[1:] = label[1:] != label[:-1]
    place = np.arange(len(label))
    return place - _first(place, starts)
