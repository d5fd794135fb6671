"""Ready groups for the blackboard: small batches made up so that one thing can be seen, and the methods that show it.

Lengths are in tokens. Token probabilities are made up too: a fixed round of likely and unlikely ones, so that rules
that weigh tokens have something to choose from. No example has entropies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PROBABILITIES = (0.9, 0.5, 0.99, 0.2, 0.7, 0.05, 0.8, 0.35)
"""What the tokens' probabilities go round through; each rollout starts one further on than the rollout before."""


@dataclass(frozen=True)
class Example:
    """A batch as `core.advantage.batch_from_json` takes it, and what to do with it.

    `prompts` names the groups in order; `methods` are specs (`a3po;base=dapo`) to put side by side, the first of them
    the plain one. `diff` are the places of the two whose difference shows what `look` says, as addresses write them
    (`A-C`); `scope` is what has to be in view for it, one prompt ("group") or all of them ("step").
    """

    name: str
    title: str
    look: str
    prompts: tuple[str, ...]
    batch: dict[str, Any]
    methods: tuple[str, ...]
    diff: str = "A-B"
    scope: str = "group"


Rollout = tuple[float, int] | tuple[float, int, bool]
"""(reward, length) or (reward, length, whether the length limit cut it off)."""


def _batch(groups: Sequence[Sequence[Rollout]], max_length: int) -> dict[str, Any]:
    rollouts = [(g, *rollout, False)[:4] for g, group in enumerate(groups) for rollout in group]
    round_ = len(PROBABILITIES)
    return {
        "group": [g for g, *_ in rollouts],
        "reward": [reward for _, reward, *_ in rollouts],
        "length": [length for _, _, length, _ in rollouts],
        "truncated": [cut for *_, cut in rollouts],
        "max_length": max_length,
        "old_logprob": [
            [math.log(PROBABILITIES[(i + t) % round_]) for t in range(length)]
            for i, (_, _, length, _) in enumerate(rollouts)
        ],
    }


_ADORA: dict[str, Sequence[Rollout]] = {
    "longest correct > mean wrong": [(1, 4), (1, 9), (0.4, 8), (0, 6)],
    "longest correct = mean wrong": [(1, 4), (1, 7), (0.4, 8), (0, 6)],
    "every wrong one truncated": [(1, 4), (1, 7), (0.4, 12, True), (0, 12, True)],
    "all correct": [(1, 4), (0.8, 9), (0.8, 8), (1, 6)],
    "none correct, some not truncated": [(0.4, 4), (0.2, 9), (0, 12, True), (0, 6)],
    "none correct, all truncated": [(0.4, 12, True), (0.2, 12, True), (0, 12, True), (0, 12, True)],
}
"""The released code's edge cases, a group a row of the table; with partial credit every one of them has a signal."""

EXAMPLES: dict[str, Example] = {
    example.name: example
    for example in (
        Example(
            "adora_edges",
            "ADORA's edge cases",
            "The two released versions of ADORA's code weigh the same six prompts differently: they agree on the first "
            "two only, and with partial credit even the prompts that nobody solved are pushed ten times harder by one "
            "than by the other.",
            tuple(_ADORA),
            _batch(list(_ADORA.values()), 12),
            ("grpo", "adora_code_llm", "adora_code_vlm", "adora_amplify"),
            diff="B-C",
            scope="step",
        ),
        Example(
            "one_right",
            "One right of four (1, 0, 0, 0)",
            "The same lonely success gets +1.4997, +1.732 or +0.75: the standard deviation over n − 1 with ε = 0.0001 "
            "as TRL takes it, over n, or not divided by at all.",
            ("one right of four",),
            _batch([[(1, 6), (0, 5), (0, 8), (0, 7)]], 12),
            ("grpo;ddof=1;eps=0.0001", "grpo;ddof=0", "dr_grpo"),
        ),
        Example(
            "all_correct",
            "All correct",
            "Rules that compare a rollout with its group have nothing to compare and give 0; DAPO drops the prompt and "
            "samples another, while REINFORCE ±1 reinforces every token.",
            ("all correct",),
            _batch([[(1, 5), (1, 7), (1, 6), (1, 9)]], 12),
            ("grpo", "dapo", "pm1"),
            diff="A-C",
        ),
        Example(
            "all_wrong",
            "All wrong",
            "Nobody solved it, so GRPO gives 0, and ADORA's doubled weight of a difficult prompt doubles nothing; only "
            "the ±1 rule, which compares with no group, still pushes away from every answer.",
            ("all wrong",),
            _batch([[(0, 5), (0, 12, True), (0, 6), (0, 9)]], 12),
            ("grpo", "adora_amplify", "dapo", "nsr_pm1"),
            diff="A-D",
        ),
        Example(
            "longest_wrong",
            "The longest is wrong",
            "All four get the same advantage up to its sign, but not the same say in the loss: averaged by response "
            "the long wrong answer counts as much as a short one, averaged by token it is half of the batch; and ADORA "
            "weighs the prompt down, since its correct answers run short.",
            ("the longest is wrong",),
            _batch([[(1, 4), (1, 6), (0, 5), (0, 15)]], 16),
            ("grpo", "dapo", "dr_grpo", "adora_attenuate"),
        ),
    )
}
"""All examples by the name that addresses use."""
