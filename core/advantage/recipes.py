"""The methods by name, as data. A recipe is a base, or weights on a base; the loss is the base's.

Sources in `Recipe.source` and in every parameter's text: [P] the paper, its authors' README or figure, [C] read in the
authors' code, [S] second-hand, [I] inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from core.advantage.registry import BASES, WEIGHTS
from core.advantage.rules import Param
from core.advantage.types import Loss, Rule


@dataclass(frozen=True, eq=False)
class Recipe:
    """A named composition.

    A bare base has `base` and no weights; anything else has `weights` and `on`, the bare base it stands on unless the
    user names another. Numbers inside a `Rule` are fixed; `own` renames or pre-sets parameters of the rules.
    `loss` is a bare base's; `loss_changes` are the fields of it that weights which are half a loss bring along (their
    averaging only on their usual base). `loss_source` says where those numbers come from.
    """

    name: str
    label: str
    family: str  # for grouping in lists: "bases", "polarity", "tokens", "prompts", "losses"
    summary: str
    source: str
    base: Rule | None = None
    on: str = ""
    weights: tuple[Rule, ...] = ()
    loss: Loss = field(default_factory=Loss)
    loss_changes: Mapping[str, Any] = field(default_factory=dict)
    loss_source: str = ""
    dynamic_sampling: bool = False
    own: tuple[Param, ...] = ()

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """What a user can set, each with its `target` "rule.param": the weights' parameters, then the base's."""
        base = self.base or RECIPES[self.on].base
        own = {param.target: param for param in self.own}
        found = []
        for registry, rule in [*((WEIGHTS, weight) for weight in self.weights), (BASES, base)]:
            for param in registry[rule.name].params:
                target = f"{rule.name}.{param.name}"
                if target in own:
                    found.append(own[target])
                elif param.name not in rule.params:
                    found.append(replace(param, target=target))
        return tuple(found)


_RECIPES = (
    Recipe(
        "grpo", "GRPO", "bases",
        "Each rollout against its group: reward minus the mean, over the standard deviation.",
        "arXiv 2402.03300 [P]",
        base=Rule("grpo"),
        loss=Loss(aggregation="sequence_mean"),
        loss_source="clip 0.2, mean over tokens, then over responses [P]",
    ),
    Recipe(
        "dapo", "DAPO", "bases",
        "GRPO's advantage; groups of equal rewards are refilled, all tokens count alike, the upper clip is wider.",
        "arXiv 2503.14476 [P]",
        base=Rule("grpo"),
        loss=Loss(aggregation="token_mean", clip_high=0.28),
        loss_source="clip 0.2 / 0.28, mean over all tokens [P]",
        dynamic_sampling=True,
    ),
    Recipe(
        "dr_grpo", "Dr. GRPO", "bases",
        "Reward minus the group's mean, with neither the standard deviation nor the response's length divided out.",
        "arXiv 2503.20783 [P]",
        base=Rule("dr_grpo"),
        loss=Loss(aggregation="fixed_length"),
        loss_source="clip 0.2, token sum over the longest length allowed [P]",
    ),
    Recipe(
        "rloo", "RLOO", "bases",
        "Reward minus the mean of the other rollouts, with REINFORCE's plain gradient of the whole response.",
        "arXiv 2402.14740 [P]",
        base=Rule("rloo"),
        loss=Loss(objective="reinforce", aggregation="fixed_length"),
        loss_source="REINFORCE on the whole response [P]; divided by the longest length allowed [I]",
    ),
    Recipe(
        "reinforce_pp", "REINFORCE++", "bases",
        "The reward, whitened over all tokens of the batch; no group is needed.",
        "arXiv 2501.03262 [P][C]",
        base=Rule("reinforce_pp"),
        loss=Loss(aggregation="token_mean"),
        loss_source="clip 0.2 [P], token mean [C]",
    ),
    Recipe(
        "reinforce_pp_baseline", "REINFORCE++ baseline", "bases",
        "Reward minus the group's mean, whitened over all tokens of the batch.",
        "arXiv 2501.03262 [P][C]",
        base=Rule("reinforce_pp_baseline"),
        loss=Loss(aggregation="token_mean"),
        loss_source="clip 0.2 [P], token mean [C]",
    ),
    Recipe(
        "gspo", "GSPO", "bases",
        "GRPO's advantage; the importance ratio, and its clipping, are the whole response's.",
        "arXiv 2507.18071 [P]",
        base=Rule("grpo"),
        loss=Loss(objective="gspo", aggregation="sequence_mean", clip_low=3e-4, clip_high=4e-4),
        loss_source="clip 3e-4 / 4e-4, mean over responses [P]",
    ),
    Recipe(
        "cispo", "CISPO", "bases",
        "GRPO's advantage; the clipped ratio only weighs a token's gradient, so no token loses it.",
        "arXiv 2506.13585 [P]",
        base=Rule("grpo"),
        loss=Loss(objective="cispo", aggregation="token_mean", clip_low=1.0, clip_high=0.28),
        loss_source="no lower bound, token mean [P]; upper bound 1.28, which the paper leaves open [I]",
    ),
    Recipe(
        "pass_at_k", "Pass@k training", "bases",
        "What each rollout adds to the group's expected pass@k: hard prompts count, easy ones fade.",
        "arXiv 2508.10751 [P][C]",
        base=Rule("pass_at_k"),
        loss=Loss(aggregation="sequence_mean"),
        loss_source="as GRPO [P]",
    ),
    Recipe(
        "pm1", "REINFORCE ±1", "bases",
        "+1 on every correct token and −1 on every wrong one, no group baseline.",
        "arXiv 2506.01347 [P][C]",
        base=Rule("pm1"),
        loss=Loss(aggregation="token_mean"),
        loss_source="clip 0.2, mean over the tokens that stay [C]",
    ),
    Recipe(
        "psr", "PSR", "polarity",
        "Positives only: GRPO's advantages on the full batch, then only correct rollouts are trained on.",
        "arXiv 2512.21625, its code [C]",
        on="grpo",
        weights=(Rule("selection", {"keep": "positive"}),),
    ),
    Recipe(
        "nsr", "NSR", "polarity",
        "Negatives only: GRPO's advantages on the full batch, then only wrong rollouts are trained on.",
        "arXiv 2512.21625, its code [C]",
        on="grpo",
        weights=(Rule("selection", {"keep": "negative"}),),
    ),
    Recipe(
        "psr_pm1", "PSR ±1", "polarity",
        "Positives only, with +1 on every correct rollout whatever its group did.",
        "arXiv 2506.01347 [P][C]",
        on="pm1",
        weights=(Rule("selection", {"keep": "positive"}),),
    ),
    Recipe(
        "nsr_pm1", "NSR ±1", "polarity",
        "Negatives only, with −1 on every wrong rollout whatever its group did.",
        "arXiv 2506.01347 [P][C]",
        on="pm1",
        weights=(Rule("selection", {"keep": "negative"}),),
    ),
    Recipe(
        "w_reinforce", "W-REINFORCE", "polarity",
        "lambda x PSR + NSR: correct rollouts weigh a little, wrong ones fully.",
        "arXiv 2506.01347 [P][C]",
        on="pm1",
        weights=(Rule("polarity", {"negative": 1.0}),),
        own=(Param("lambda", 0.1, "weight of the correct rollouts [P]", low=0, high=10, target="polarity.positive"),),
    ),
    Recipe(
        "polarity", "Polarity weights", "polarity",
        "Correct and wrong rollouts scaled by two numbers; the dynamics follow their ratio.",
        "arXiv 2512.21625 [P]",
        on="grpo",
        weights=(Rule("polarity"),),
    ),
    Recipe(
        "token_shaping", "Token shaping", "tokens",
        "The most or least likely (or uncertain) tokens of correct and of wrong responses, by scales you set.",
        "arXiv 2512.21625, its code [C]",
        on="grpo",
        weights=(Rule("token_shaping"),),
    ),
    Recipe(
        "a3po", "A3PO", "tokens",
        "Amplifies unlikely tokens of correct and likely tokens of wrong responses, and fades out over the run.",
        "arXiv 2512.21625 [P], numbers [S]",
        on="dapo",
        weights=(Rule("a3po"),),
    ),
    Recipe(
        "fork_tokens", "Fork tokens", "tokens",
        "Trains on the 20 % most uncertain tokens of a step alone.",
        "arXiv 2506.01939 [P]",
        on="dapo",
        weights=(Rule("fork_tokens"),),
    ),
    Recipe(
        "entropy_advantage", "Entropy advantage", "tokens",
        "Adds a bounded share of a token's entropy to its advantage.",
        "arXiv 2506.14758 [P], numbers [S]",
        on="grpo",
        weights=(Rule("entropy_advantage"),),
    ),
    Recipe(
        "kl_cov", "KL-Cov", "losses",
        "Penalises moving the few tokens that drive entropy down; the other ratios are not clipped.",
        "arXiv 2505.22617 [P][C]",
        on="dapo",
        weights=(Rule("kl_cov"),),
        loss_changes={"objective": "ratio"},
        loss_source="no clipping, token mean and refilled groups, as its code [C]",
    ),
    Recipe(
        "clip_cov", "Clip-Cov", "losses",
        "A few of the tokens that drive entropy down, drawn at random, get no gradient.",
        "arXiv 2505.22617 [P][C]",
        on="dapo",
        weights=(Rule("clip_cov"),),
        loss_changes={"clip_low": 1.0, "clip_high": 1.0},
        loss_source="clip 1 / 1, token mean and refilled groups, as its code [C]",
    ),
    Recipe(
        "lp_reg", "Lp-Reg", "losses",
        "Draws the least likely tokens that are pushed down to the policy without its noise.",
        "arXiv 2510.03222 [P][C]",
        on="grpo",
        weights=(Rule("lp_reg"),),
        loss_changes={"clip_low": 1.0, "clip_high": 9.0, "aggregation": "token_mean"},
        loss_source="ratio held within 0 and 10, token mean [C]",
    ),
    Recipe(
        "adora_amplify", "ADORA amplify", "prompts",
        "Prompts whose correct answers run long, or that are mostly failed, weigh more.",
        "arXiv 2602.10019, for language models [S]",
        on="grpo",
        weights=(Rule("adora_amplify"),),
    ),
    Recipe(
        "adora_attenuate", "ADORA attenuate", "prompts",
        "Prompts whose correct answers don't run long weigh less.",
        "arXiv 2602.10019, for vision-language models [S]",
        on="grpo",
        weights=(Rule("adora_attenuate"),),
    ),
    Recipe(
        "adora_code_llm", "ADORA code, LLM", "prompts",
        "The released language-model code: the length criterion, and prompts without a correct answer weigh less.",
        "ADORA's code, March 2025 [C]",
        on="grpo",
        weights=(Rule("adora_code_llm"),),
    ),
    Recipe(
        "adora_code_vlm", "ADORA code, VLM", "prompts",
        "The released vision-language code: the length criterion, and prompts without a usable wrong one weigh less.",
        "ADORA's code, March 2025 [C]",
        on="grpo",
        weights=(Rule("adora_code_vlm"),),
        own=(
            Param("eps", 1e-9, "added to the group's standard deviation, as this code's framework does [I]",
                  low=0, high=1, target="grpo.eps"),
        ),
    ),
    Recipe(
        "a_grae", "A-GRAE", "prompts",
        "From easy to hard prompts as the batch improves, with right answers damped while it is weak.",
        "arXiv 2602.05548, its code [C]",
        on="grpo",
        weights=(Rule("a_grae"),),
    ),
)  # fmt: skip

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}


def recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order lists show them."""
    return dict(RECIPES)


def bases() -> tuple[str, ...]:
    """The names that can stand under another recipe's weights."""
    return tuple(name for name, recipe in RECIPES.items() if not recipe.weights)
