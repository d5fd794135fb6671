"""The subject of the lab: which token gets how much advantage, and why. numpy only.

    method = build("a3po", base="dapo", params={"rho_positive": 3})
    trace = compute(method, batch)      # trace.advantage = trace.base x the factors, with a reason for each

A method is data: base rule -> weights -> loss. `registry.py` says how to add one.
"""

from core.advantage.aggregate import loss_weights
from core.advantage.compose import build, factor_columns, flat_params
from core.advantage.explain import Line, explain
from core.advantage.files import batch_from_json, refuse_lone_rollouts, trace_to_json
from core.advantage.methods.adora import classify
from core.advantage.methods.lp_reg import PROXY_DROPPED
from core.advantage.recipes import Recipe, bases, recipes
from core.advantage.registry import BASES, WEIGHTS
from core.advantage.rules import Param
from core.advantage.tis import gap_metrics, tis_weights
from core.advantage.trace import compute
from core.advantage.types import AdvantageError, Batch, Classes, Factor, Loss, Method, Penalty, Per, Rule, Trace

__all__ = [
    "BASES",
    "PROXY_DROPPED",
    "WEIGHTS",
    "AdvantageError",
    "Batch",
    "Classes",
    "Factor",
    "Line",
    "Loss",
    "Method",
    "Param",
    "Penalty",
    "Per",
    "Recipe",
    "Rule",
    "Trace",
    "bases",
    "batch_from_json",
    "build",
    "classify",
    "compute",
    "explain",
    "factor_columns",
    "flat_params",
    "gap_metrics",
    "loss_weights",
    "recipes",
    "refuse_lone_rollouts",
    "tis_weights",
    "trace_to_json",
]
