"""A method that no file of the package knows: one rule each, one recipe, and everything else follows."""

import importlib
import sys

import numpy as np
import pytest

from core.advantage import Recipe, Rule, build, compute, factor_columns, recipes, trace_to_json
from core.advantage.recipes import RECIPES
from core.advantage.registry import BASES, WEIGHTS, discover
from core.advantage.rules import BaseRule, Outcome, Param, Weight
from tests.core.advantage.batches import batch


def _position(one, params):
    values = np.where(one.mask, one.reward[:, None] * (1 + np.arange(one.width)), 0.0)
    return Outcome(values, "reward x position", lambda i, t: f"position {t}")


def _uncertain(state, params):
    kept = (state.batch.entropy >= params["least"]) & state.batch.mask
    return Outcome(kept.astype(float), "uncertain tokens", lambda i, t: "certain or not")


def _plus(state, params):
    a = state.advantage
    return Outcome(np.where(a == 0, 1.0, (a + 1) / np.where(a == 0, 1, a)), "one more", lambda i, t: "one more")


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(BASES, "position", BaseRule("position", _position, "A = R × position"))
    least = Param("least", 0.5, "least entropy [I]", low=0, high=10)
    needs = frozenset({"entropy"})
    monkeypatch.setitem(
        WEIGHTS,
        "uncertain",
        Weight("uncertain", "token", _uncertain, "keep if H is high", (least,), lambda params: needs, selects=True),
    )
    monkeypatch.setitem(WEIGHTS, "plus", Weight("plus", "token", _plus, "A + 1"))
    bare = Recipe("position", "Position", "bases", "A base per token.", "[I]", base=Rule("position"))
    toy = Recipe("toy", "Toy", "tokens", "A toy.", "[I]", on="position", weights=(Rule("uncertain"), Rule("plus")))
    monkeypatch.setitem(RECIPES, "position", bare)
    monkeypatch.setitem(RECIPES, "toy", toy)


def test_a_base_per_token_a_token_selection_and_an_additive_rule(toy):
    one = batch([0, 0], [1, 0.5], [3, 2])
    one.entropy[:] = [[0.1, 0.9, 0.9], [0.9, 0.1, 0.0]]
    method = build("toy", params={"least": 0.4})
    trace = compute(method, one)
    assert trace.advantage.tolist() == [[0, 3, 4], [1.5, 0, 0]]
    assert trace.kept.tolist() == [[False, True, True], [True, False, False]]
    assert factor_columns(method) == {"selected": "token", "plus": "token"}
    assert method.needs == {"entropy"} and "toy" in recipes()
    assert trace_to_json(trace, one)["base"]["values"] == [[1, 2, 3], [0.5, 1]]


def test_it_composes_with_what_was_there(toy):
    one = batch([0, 0], [1, 0.4], [3, 2], seed=3)
    trace = compute(build("a3po", base="position", also=["toy"]), one)
    product = trace.base * np.prod([factor.spread(one) for factor in trace.factors], axis=0)
    np.testing.assert_allclose(trace.advantage, product)
    assert [factor.id for factor in trace.factors] == ["selected", "a3po", "plus"]


MODULE = """
import numpy as np
from core.advantage.rules import BaseRule, Outcome
from core.advantage.methods.bases import GRPO
HALF = BaseRule("{name}", lambda batch, params: Outcome(batch.reward / 2, "half", lambda i, t: "half"), "A = R / 2")
"""


def package(tmp_path, monkeypatch, name):
    (tmp_path / "more_rules").mkdir()
    (tmp_path / "more_rules" / "__init__.py").touch()
    (tmp_path / "more_rules" / "half.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("more_rules", "more_rules.half"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module("more_rules")


def test_a_module_is_found_by_lying_there(tmp_path, monkeypatch):
    assert set(discover(package(tmp_path, monkeypatch, "half"))) == {"half", "grpo"}


def test_two_rules_of_one_name_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"more_rules\.half has a rule 'grpo', and so has another module"):
        discover(package(tmp_path, monkeypatch, "grpo"))
