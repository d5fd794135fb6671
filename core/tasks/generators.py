"""Generated tasks: arithmetic, geometry in text, knights and knaves, countdown; their puzzles are reasoning-gym's.

The lab takes its questions and solutions, not its scoring, which gives part marks for naming things and reads a
response by evaluating it. One problem in five is held out, by a hash of the problem itself: the same one in other
words, or its numbers in another order, stays on its side.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from core.config_tasks import GeneratorSettings
from core.models.packaged import cache_folder
from core.runs.status import write_atomic
from core.tasks.base import POOL_SEED, Prompt, TaskError, Verifier
from core.tasks.puzzles import Countdown, KnightsKnaves
from core.tasks.verifiers import Numeric

INSTALL = 'pip install "reasoning-gym>=0.1.25,<0.2"'
TRIES = 400
"""Draws in a row that bring nothing new; then the problems of this difficulty are taken to be used up."""


@dataclass(frozen=True)
class Kind:
    """One task: the dataset of reasoning-gym, its settings, and what makes two of its questions one problem."""

    dataset: Callable[[GeneratorSettings], str]
    settings: Callable[[GeneratorSettings], dict[str, Any]]
    problem: Callable[[Mapping[str, Any]], object]  # of the question's metadata
    verifier: Verifier
    answer: Callable[[dict[str, Any]], str] = lambda item: str(item["answer"])


def _arithmetic(of: GeneratorSettings) -> dict[str, Any]:
    sizes = {"min_terms": 2, "max_terms": of.terms, "min_digits": 1, "max_digits": of.digits}
    return sizes | ({"operators": ("+", "-", "*"), "allow_negation": False} if of.products else {})


def _geometry(of: GeneratorSettings) -> dict[str, Any]:
    if of.shape == "angles":
        return {"min_sides": 3, "max_sides": of.sides}
    return {"task_types": ["angle_measure", "incircle_radius"]}


KINDS: Mapping[str, Kind] = {
    "arithmetic": Kind(
        lambda of: "basic_arithmetic" if of.products else "chain_sum", _arithmetic,
        lambda about: about["expression"], Numeric(),
    ),
    "geometry": Kind(
        lambda of: "simple_geometry" if of.shape == "angles" else "advanced_geometry", _geometry,
        lambda about: about.get("known_angles") or [about["task_type"], about["A"], about["B"], about["C"]],
        Numeric(tolerance=1e-3),
    ),
    "knights_knaves": Kind(
        lambda of: "knights_knaves",
        lambda of: {"n_people": of.people, "depth_constraint": of.depth, "width_constraint": of.width},
        lambda about: about["statements"], KnightsKnaves(),
    ),
    "countdown": Kind(
        lambda of: "countdown",
        lambda of: {
            "min_numbers": 3, "max_numbers": of.numbers, "max_value": of.largest, "min_target": 10,
            "max_target": of.target,
        },
        lambda about: [sorted(about["numbers"]), about["target"]], Countdown(),
        lambda item: f"{item['answer']} = {item['metadata']['target']}",
    ),
}  # fmt: skip
"""By the name of the task."""


@dataclass(frozen=True)
class Generated:
    """The prompts of one task at one difficulty. Raises TaskError where reasoning-gym is not installed."""

    name: str
    settings: GeneratorSettings

    def __post_init__(self) -> None:
        if importlib.util.find_spec("reasoning_gym") is None:
            raise TaskError(
                f"task.name is {self.name}, which needs the package reasoning-gym (and a C compiler for a part of it): "
                f"{INSTALL}"
            )

    def train_pool(self, size: int, seed: int) -> list[Prompt]:
        """At most `size` distinct prompts; a larger pool of the same seed begins with a smaller one."""
        return _walk(self.name, self.settings, seed).first(size, held_out=False)

    def held_out(self, count: int) -> list[Prompt]:
        return _walk(self.name, self.settings, POOL_SEED).first(count, held_out=True)


def is_held_out(name: str, problem: object) -> bool:
    """Whether a problem is one of those that are never trained on."""
    return hashlib.sha256(f"held out {name} {problem}".encode()).digest()[0] < 256 // 5


class Walk:
    """Distinct prompts of both sides in a fixed order, made as far as they are asked for, and kept in the lab's cache:
    some take reasoning-gym a tenth of a second each."""

    def __init__(self, name: str, settings: GeneratorSettings, seed: int) -> None:
        self.kind, self.lock = KINDS[name], threading.Lock()
        self.dataset, self.settings = self.kind.dataset(settings), self.kind.settings(settings)
        self.seed = int.from_bytes(hashlib.sha256(f"{name} pool {seed}".encode()).digest()[:4], "big")
        key = json.dumps([1, version("reasoning-gym"), name, self.dataset, self.settings, seed], sort_keys=True)
        self.cache = cache_folder() / "tasks" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self.name, self.drawn = name, 0
        self.sides: dict[bool, list[Prompt]] = {False: [], True: []}
        self.newest = {False: 0, True: 0}
        """How many were drawn when a side got its last prompt."""
        self._load()

    def first(self, count: int, held_out: bool) -> list[Prompt]:
        """At most `count` of a side: fewer where the difficulty has no more. Raises TaskError."""
        with self.lock:
            side = self.sides[held_out]
            if len(side) < count and self.drawn - self.newest[held_out] < TRIES:
                self._go_on(count, held_out)
                self._save()
            return side[:count]

    def _go_on(self, count: int, held_out: bool) -> None:
        try:
            gym = importlib.import_module("reasoning_gym")
        except Exception as error:
            raise TaskError(f"task.name: reasoning-gym cannot be imported ({error}): {INSTALL}") from error
        dataset = gym.create_dataset(self.dataset, seed=self.seed, size=2**31, **self.settings)
        seen = {prompt.text for side in self.sides.values() for prompt in side}
        while len(self.sides[held_out]) < count and self.drawn - self.newest[held_out] < TRIES:
            self.drawn += 1
            try:
                item = dataset[self.drawn - 1]
            except (ValueError, IndexError, ZeroDivisionError):  # no problem of this difficulty came of this draw
                continue
            prompt = Prompt(item["question"].strip(), self.kind.answer(item))
            if prompt.text not in seen:
                seen.add(prompt.text)
                side = is_held_out(self.name, self.kind.problem(item["metadata"]))
                self.sides[side].append(prompt)
                self.newest[side] = self.drawn

    def _load(self) -> None:
        """Go on from the cache; what is not there, or damaged, is made anew."""
        try:
            kept = json.loads(self.cache.read_text(encoding="utf-8"))
            train, held = ([Prompt(str(text), str(answer)) for text, answer in side] for side in kept["sides"])
            drawn, newest = int(kept["drawn"]), [int(place) for place in kept["newest"]]
            self.newest = {False: newest[0], True: newest[1]}
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return
        self.drawn, self.sides = drawn, {False: train, True: held}

    def _save(self) -> None:
        sides = [[[prompt.text, prompt.answer] for prompt in self.sides[side]] for side in (False, True)]
        kept = {"drawn": self.drawn, "newest": [*self.newest.values()], "sides": sides}
        with suppress(OSError):  # a cache that cannot be written costs time alone
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.cache, json.dumps(kept))


@lru_cache(maxsize=16)
def _walk(name: str, settings: GeneratorSettings, seed: int) -> Walk:
    return Walk(name, settings, seed)
