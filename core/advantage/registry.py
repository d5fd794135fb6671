"""Every rule by name: `BASES` give the first advantage, `WEIGHTS` multiply it.

To add a method:
1. Write one small module here, with a function that returns an `Outcome`: values, a sentence, and `explain(i, t)`.
   - a base rule: `rule(batch, params)`, values (N,) or (N, T) (see `bases.py`);
   - a weight: `rule(state, params)`, values (N,), (P,) or (N, T) as its `per` says (see `polarity.py`, `adora.py`,
     `a3po.py`). It sees the product so far as `state.advantage`, so an additive rule is the factor (A + b) / A. A rule
     that drops tokens returns 0 and 1 and sets `selects` (see `selection.py`); an objective belongs to `Loss`.
   State the formula, its source and what it assumes in the docstring; give every number a `Param` with its source.
   Handle the group of equal rewards, the group of one, and T = 1.
2. Add it to the dict below. Its name is the factor's id (`[a-z0-9_]+`), so no two rules share one.
3. Add a `Recipe` to `recipes.py`. Configs, the command line, the pages and the store find it from there.
4. Add its numbers to `tests/core/advantage/`. `test_trace.py` and `test_compose.py` go over all recipes by themselves.
"""

from __future__ import annotations

from core.advantage.a3po import A3PO
from core.advantage.adora import ADORA_AMPLIFY, ADORA_ATTENUATE, ADORA_CODE_LLM, ADORA_CODE_VLM
from core.advantage.bases import DR_GRPO, GRPO, PM1
from core.advantage.polarity import POLARITY
from core.advantage.rules import BaseRule, Weight
from core.advantage.selection import SELECTION
from core.advantage.token_shaping import TOKEN_SHAPING

BASES: dict[str, BaseRule] = {"grpo": GRPO, "dr_grpo": DR_GRPO, "pm1": PM1}

WEIGHTS: dict[str, Weight] = {
    "selection": SELECTION,
    "polarity": POLARITY,
    "token_shaping": TOKEN_SHAPING,
    "a3po": A3PO,
    "adora_amplify": ADORA_AMPLIFY,
    "adora_attenuate": ADORA_ATTENUATE,
    "adora_code_llm": ADORA_CODE_LLM,
    "adora_code_vlm": ADORA_CODE_VLM,
}
