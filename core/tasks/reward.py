"""A task put together: prompts from somewhere, a verifier, and the weights of the reward's parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.config_tasks import RewardSettings
from core.tasks.answers import LONGEST_READ
from core.tasks.base import Prompt, Source, Verdict, Verifier
from core.tasks.patterns import LONGEST_S, compiled, last_match

FIELD = "task.reward.format_pattern"
_FILLED_BOX = re.compile(r"\\boxed\{[^{}\s]")


@dataclass(frozen=True)
class Composed:
    """The parts of a verdict are what each adds to the reward; `correctness` is the verifier's, before its weight.

    The length part and the overlong penalty need tokens: the trainer adds them (`core.train.samples`).
    """

    name: str
    source: Source
    verifier: Verifier
    reward: RewardSettings

    def __post_init__(self) -> None:
        if self.reward.format_pattern:
            compiled(self.reward.format_pattern, FIELD)

    def train_pool(self, size: int, seed: int) -> Sequence[Prompt]:
        return self.source.train_pool(size, seed)

    def held_out(self, count: int) -> Sequence[Prompt]:
        return self.source.held_out(count)

    def verify(self, prompt: Prompt, response: str) -> Verdict:
        judged = self.verifier.judge(prompt, response)
        parts = {"correct": self.reward.correct * judged.correctness}
        traits = dict(judged.traits)
        if self.reward.format or self.reward.format_pattern:
            right, late = self._formed(response)
            parts["format"] = self.reward.format * right
            traits |= {"formed": right} | ({"timed_out": 1.0} if late else {})
        parts |= {name: value for name, value in judged.parts.items() if name not in parts}
        return Verdict(sum(parts.values()), judged.correctness, parts, traits)

    def _formed(self, response: str) -> tuple[float, bool]:
        """(1 for a response of the right form, whether telling took too long)."""
        if not self.reward.format_pattern:
            return float(_FILLED_BOX.search(response[-LONGEST_READ:]) is not None), False
        found, late = last_match(compiled(self.reward.format_pattern, FIELD), response, LONGEST_S)
        return float(found is not None), late
