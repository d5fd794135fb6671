"""What another method would have done with the same rollouts. numpy and `core.advantage` only.

    spec = Spec.parse("a3po;base=dapo;rho_positive=3")
    mine, other = (answer(method, batch) for method in (spec.build(), build("grpo")))
    summarise(mine, batch).mass                # advantage mass by polarity
    compare(mine, other, batch).changed_share  # how much of the update it touches

`series` asks the same at the steps of a whole run; it alone reads the store. Nothing here says what a policy would
have become: the rollouts are those that the run's own method led to.
"""

from core.counterfactual.answer import Answer, answer
from core.counterfactual.pair import Pair, compare
from core.counterfactual.spec import Spec
from core.counterfactual.steps import Stored, series, stored
from core.counterfactual.summary import Mass, Prompt, Quartiles, Span, Summary, summarise

__all__ = [
    "Answer",
    "Mass",
    "Pair",
    "Prompt",
    "Quartiles",
    "Span",
    "Spec",
    "Stored",
    "Summary",
    "answer",
    "compare",
    "series",
    "stored",
    "summarise",
]
