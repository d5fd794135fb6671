"""Which convention made some advantages: found for each, and said; none where none did."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from core.advantage import AdvantageError, Batch, build, compute
from core.importers.fit import CONVENTIONS, Rollouts, convention, fit
from core.importers.manifest import LACKS, Manifest, from_json, to_json

FORMULAS = {
    "grpo-ddof1": lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-4),
    "grpo-ddof1-eps6": lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-6),
    "grpo-ddof0": lambda r: (r - r.mean()) / (r.std() + 1e-4),
    "grpo-ddof0-eps6": lambda r: (r - r.mean()) / (r.std() + 1e-6),
    "dr_grpo": lambda r: r - r.mean(),
    "rloo": lambda r: np.array([own - np.delete(r, i).mean() for i, own in enumerate(r)]),
    "rloo-scaled": lambda r: np.array(
        [
            (own - (rest := np.delete(r, i)).mean()) / (rest.std(ddof=1) + 1e-6 if rest.std() > 0 else 1)
            for i, own in enumerate(r)
        ]
    ),
}
"""A group's rewards in, its advantages out: written down apart from the code."""


def rollouts(seed: int = 0, steps: int = 5, groups: int = 8, size: int = 6) -> Rollouts:
    random = np.random.default_rng(seed)
    n = steps * groups * size
    reward = random.choice([0.0, 0.25, 1.0, 1.5], n)
    reward[:size] = 1.0  # a group without a signal
    place = np.arange(n)
    return Rollouts(place // (groups * size), place // size, reward, reward >= 0.5, random.integers(1, 40, n))


def by_group(own: Rollouts, formula: object) -> np.ndarray:
    return np.concatenate([formula(own.reward[own.group == group]) for group in np.unique(own.group)])  # type: ignore[operator]


@pytest.mark.parametrize("name", FORMULAS)
def test_each_convention_of_groups_is_found(name: str) -> None:
    own = rollouts()
    found = fit(own, by_group(own, FORMULAS[name]))
    assert found.chosen.name == name
    assert found.fits[0].name == name and found.fits[0].within == 1 and found.fits[0].largest < 1e-5
    assert found.compared == len(own.reward)
    assert CONVENTIONS[name].short in found.sentence and "100 % of 240" in found.sentence
    assert len(found.fits) == len(CONVENTIONS)


def test_conventions_over_the_batch_are_found() -> None:
    own = rollouts()
    scaled = np.empty(len(own.reward))
    for step in range(5):
        here = own.step == step
        scaled[here] = own.reward[here].std(ddof=1) + 1e-4
    assert fit(own, by_group(own, FORMULAS["dr_grpo"]) / scaled).chosen.name == "batch-scaled"
    for name in ("reinforce_pp", "reinforce_pp_baseline"):
        parts = []
        for step in range(5):
            here = own.step == step
            length = own.tokens[here]
            batch = Batch(own.group[here], own.reward[here], own.correct[here], length, length < 0, max_length=64)
            parts.append(compute(build(name), batch).advantage[:, 0])
        found = fit(own, np.concatenate(parts))
        assert found.chosen.name == name
        assert found.fits[0].largest < 1e-9, "the registry's rule gives the same"


def test_three_digits_are_rounding() -> None:
    own = rollouts()
    found = fit(own, np.round(by_group(own, FORMULAS["grpo-ddof0"]), 3))
    assert found.chosen.short == "ddof 0"
    assert found.sentence.startswith("The advantages in the files were computed with ddof 0: GRPO")
    assert found.fits[0].within == 1 and 1e-4 < found.fits[0].largest < 1e-3


def test_where_none_fits_it_says_by_how_much() -> None:
    own = rollouts()
    found = fit(own, 3 * by_group(own, FORMULAS["dr_grpo"]) + 0.2)
    assert found.sentence.startswith("None of 11 conventions fits: the nearest, ")
    assert f"is {found.fits[0].mean:.3g} off on average" in found.sentence


def test_without_advantages_grpo_is_assumed_and_said() -> None:
    own = rollouts()
    found = fit(own, np.full(len(own.reward), np.nan))
    assert (found.chosen.name, found.fits, found.compared) == ("grpo-ddof1", (), 0)
    assert "no advantages to compare with" in found.sentence and "assumed" in found.sentence
    assert fit(own, np.zeros(len(own.reward))).sentence.startswith("The imported advantages are all 0")
    nothing = np.full(len(own.reward), np.nan)
    assert "change along a response" in fit(own, nothing, varying=True).sentence
    assert "as asked" in fit(own, nothing, "rloo").sentence
    empty = Rollouts(*(values[:0] for values in vars(own).values()))
    assert "no rewards" in fit(empty, nothing[:0]).sentence


def test_missing_advantages_are_left_out_but_their_rewards_count() -> None:
    own = rollouts()
    advantage = by_group(own, FORMULAS["grpo-ddof0"])
    advantage[::3] = np.nan
    found = fit(own, advantage)
    assert (found.chosen.name, found.compared) == ("grpo-ddof0", 160)


def test_a_convention_can_be_asked_for() -> None:
    own = rollouts()
    found = fit(own, by_group(own, FORMULAS["rloo"]), "dr_grpo")
    assert found.chosen.name == "dr_grpo" and found.fits[0].name == "rloo"
    assert "Recomputed with Dr. GRPO" in found.sentence
    with pytest.raises(AdvantageError, match="did you mean dr_grpo"):
        convention("drgrpo")


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_runs_method_gives_its_conventions_numbers(name: str) -> None:
    own, each = rollouts(steps=1), CONVENTIONS[name]
    params = each.method.get("set", {})
    batch = Batch(own.group, own.reward, own.correct, own.tokens, own.tokens < 0, max_length=64)
    trained = compute(build(each.method["name"], params=params), batch).advantage[:, 0]
    assert np.allclose(trained, each.compute(own), atol=1e-9) == each.exact


def test_pages_read_manifests_without_a_database() -> None:
    code = "import sys, core.importers.manifest; assert not {'duckdb', 'torch', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_manifest_survives_its_file() -> None:
    found = fit(rollouts(), by_group(rollouts(), FORMULAS["rloo"]))
    made = Manifest(
        "trl", "TRL", "/somewhere", 1.5, 2, 3, 4, {"why": 5}, {"why": "a, line 2"}, ("note",),
        ("tokens", "token_ids"), "rloo", found.sentence, found.fits, 9,
    )  # fmt: skip
    assert from_json(to_json(made)) == replace(made, places={})
    for text in ("", "[]", "{}", '{"version": 2}', '{"version": 1, "fits": [{}]}'):
        with pytest.raises(ValueError):
            from_json(text)
    whole = replace(made, lacks=tuple(LACKS))
    assert "tokens, and what is known of each" in whole.lacking()
    assert not any("entropies" in words for words in whole.lacking())
