"""The sureness of labels, against groups drawn from prompts whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from core.advantage import AdvantageError, Batch, build, compute
from core.advantage.methods.adora import VARIANTS
from core.advantage.registry import WEIGHTS
from core.stats.classes import CLASSES, OBSERVED, ClassRule, class_rule, held_back, label_index, make_rule
from core.stats.known import check, flip_by_resampling
from core.stats.labels import by_size, flips, simulate
from core.stats.policies import Visits, fit, pass_rate_prior, transitions

G = 8
ATTENUATE = class_rule(build("adora_attenuate"))


def draw(
    rng: np.random.Generator, rate: float, operations: int, many: int, size: int = G
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`many` groups of `size` of a known prompt: direct, stepwise, repaired and checked; the wrong ramble a little."""
    shape = (many, size)
    correct = rng.random(shape) < rate
    style = rng.choice(4, shape, p=[0.34, 0.38, 0.10, 0.18])
    length = np.array([4, 4 + 5 * operations, 8 + 5 * operations, 9 * operations])[style]
    length = length + np.where(style > 0, rng.integers(-2, 3, shape), 0)
    length = length + np.where(~correct & (style > 0), rng.integers(-1, 4, shape), 0)
    return correct, np.clip(length, 1, 72), np.zeros(shape, bool)


def history(seed: int, rates: np.ndarray, operations: np.ndarray, times: int) -> Visits:
    """Every prompt visited `times` times, its policy standing still."""
    rng = np.random.default_rng(seed)
    prompt = np.tile(np.arange(len(rates)), times)
    groups = [draw(rng, rates[p], operations[p], 1) for p in prompt]
    return Visits(
        prompt=prompt, step=np.repeat(np.arange(times), len(rates)), visit=np.repeat(np.arange(len(prompt)), G),
        correct=np.concatenate([g[0][0] for g in groups]), length=np.concatenate([g[1][0] for g in groups]),
        truncated=np.concatenate([g[2][0] for g in groups]),
    )  # fmt: skip


def recorded(rule: ClassRule, visits: Visits) -> np.ndarray:
    """The labels that the visits' own groups got."""
    return rule.labels(*(part.reshape(-1, G) for part in (visits.correct, visits.length, visits.truncated)))


def truth(rule: ClassRule, rate: float, operations: int, size: int = G) -> tuple[float, float]:
    """P(favorable) and P(two groups of `size` differ), from 3 000 groups."""
    labels = rule.labels(*draw(np.random.default_rng(99), rate, operations, 3000, size))
    share = np.bincount(labels, minlength=3) / 3000
    return float(share[0]), float(1 - (share**2).sum())


@pytest.mark.parametrize("method", ["grpo", "adora_amplify", "adora_attenuate", "adora_code_llm", "adora_code_vlm"])
def test_labels_are_those_the_method_gives(method: str) -> None:
    rng = np.random.default_rng(3)
    correct = rng.random((60, G)) < rng.random((60, 1))
    length, truncated = rng.integers(1, 40, (60, G)), rng.random((60, G)) < 0.2
    composed = build(method)
    batch = Batch(
        group=np.repeat(np.arange(60), G), reward=correct.ravel().astype(float), correct=correct.ravel(),
        length=length.ravel(), truncated=truncated.ravel(), max_length=40,
    )  # fmt: skip
    expected = label_index(compute(composed, batch).classes.label)
    np.testing.assert_array_equal(class_rule(composed).labels(correct, length, truncated), expected)


def test_the_rule_knows_what_the_run_uses() -> None:
    assert class_rule(build("grpo")) is OBSERVED
    assert not OBSERVED.trained and OBSERVED.weight == 1
    rule = class_rule(build("a3po", also=("adora_amplify",), params={"tau": 0.25, "combine": "all"}))
    assert (rule.variant, rule.tau, rule.combine, rule.weight) == ("adora_amplify", 0.25, "all", 2.0)
    assert (ATTENUATE.tau, ATTENUATE.combine, ATTENUATE.weight) == (None, None, 0.1)


def test_every_weight_that_classes_prompts_is_a_variant() -> None:
    assert {name for name, weight in WEIGHTS.items() if weight.classify} == set(VARIANTS)


def test_a_rule_is_made_from_a_variant_and_its_numbers() -> None:
    assert make_rule("adora_amplify") == class_rule(build("adora_amplify"))
    assert make_rule("adora_attenuate", tau=0.2, combine="all") == ATTENUATE  # which looks at lengths alone
    assert make_rule("adora_amplify", tau=0.2) == class_rule(build("adora_amplify", params={"tau": 0.2}))
    with pytest.raises(AdvantageError, match="tau must be between 0 and 1"):
        make_rule("adora_amplify", tau=2)


def test_held_back_is_what_weighs_less_than_others_of_its_step_or_less_than_one() -> None:
    step = np.array([0, 0, 1, 1, 2, 2, 3])
    weight = np.array([2, 1, 0.1, 0.1, 1, 1, 2], np.float32)
    assert held_back(step, weight).tolist() == [False, True, True, True, False, False, False]
    assert held_back(step[:0], weight[:0]).tolist() == []
    assert held_back(step[:3], np.array([np.nan, 0.5, 2.0])).tolist() == [False, True, False]


def test_transitions_pair_consecutive_visits_of_one_prompt() -> None:
    before, after = transitions(np.array([0, 1, 0, 2, 1, 0]))
    assert sorted(zip(before.tolist(), after.tolist(), strict=True)) == [(0, 2), (1, 4), (2, 5)]


def test_the_prior_follows_the_spread_of_pass_rates() -> None:
    rng = np.random.default_rng(0)
    size = np.full(4000, G)
    for a, b in ((0.6, 0.6), (4.0, 2.0)):
        found = pass_rate_prior(rng.binomial(G, rng.beta(a, b, 4000)), size)
        assert found == pytest.approx((a, b), rel=0.15)
    tight = pass_rate_prior(rng.binomial(G, 0.5, 4000), size)
    assert sum(tight) == pytest.approx(20)  # the limit: every prompt alike
    assert pass_rate_prior(np.array([]), np.array([])) == (0.5, 0.5)


@pytest.mark.parametrize(("rule", "name"), [(OBSERVED, "amplify"), (ATTENUATE, "attenuate")])
def test_luck_is_estimated_where_resampling_is_biased(
    rule: ClassRule, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(5)
    rates, operations = rng.uniform(0.1, 0.95, 60), rng.integers(2, 5, 60)
    visits = history(6, rates, operations, 5)
    known = np.array([truth(rule, r, o) for r, o in zip(rates, operations, strict=True)])
    sure = simulate(visits, rule)
    naive = np.mean(
        [
            flip_by_resampling(*(part[visits.visit == v] for part in (visits.correct, visits.length, visits.truncated)),
                               rule, draws=100)
            for v in range(60)
        ]
    )  # fmt: skip
    real = float(known[:, 1].mean())
    with capsys.disabled():
        print(f"\n{name}: flips by luck, truth {real:.3f}, estimate {sure.flip.mean():.3f}, redrawing {naive:.3f}")
    assert sure.flip.mean() == pytest.approx(real, rel=0.15)
    assert naive < 0.85 * real
    assert abs(sure.flip.mean() - real) < abs(naive - real)
    assert sure.probability[:, 0].mean() == pytest.approx(known[:, 0].mean(), abs=0.05)
    np.testing.assert_allclose(sure.probability.sum(axis=1), 1)


def test_intervals_hold_the_truth() -> None:
    rng = np.random.default_rng(8)
    rates, operations = rng.uniform(0.1, 0.95, 40), rng.integers(2, 5, 40)
    visits = history(9, rates, operations, 3)
    middle = np.arange(40, 80)
    sure = simulate(visits, ATTENUATE, middle, draws=64)
    known = np.array([truth(ATTENUATE, r, o)[0] for r, o in zip(rates, operations, strict=True)])
    inside = (sure.low - 0.02 <= known) & (known <= sure.high + 0.02)
    assert inside.mean() >= 0.8
    assert np.all(sure.low <= sure.high)
    assert 0.05 < np.mean(sure.high - sure.low) < 0.8


def test_standing_still_gives_about_the_flips_that_are_expected() -> None:
    rng = np.random.default_rng(11)
    visits = history(12, rng.uniform(0.1, 0.95, 80), rng.integers(2, 5, 80), 6)
    shape = (-1, G)
    labels = ATTENUATE.labels(
        visits.correct.reshape(shape), visits.length.reshape(shape), visits.truncated.reshape(shape)
    )
    found = flips(visits.prompt, labels, simulate(visits, ATTENUATE).flip)
    assert found.transitions == 400
    assert abs(found.observed - found.expected) < found.margin
    assert 0 < found.spread < found.margin


def test_a_changed_policy_shows_as_more_flips_than_luck() -> None:
    rng = np.random.default_rng(13)
    operations = rng.integers(2, 5, 80)
    low, high = history(14, np.full(80, 0.05), operations, 3), history(15, np.full(80, 0.95), operations, 3)
    visits = Visits(
        prompt=np.concatenate([low.prompt, high.prompt]), step=np.concatenate([low.step, high.step + 3]),
        visit=np.concatenate([low.visit, high.visit + 240]), correct=np.concatenate([low.correct, high.correct]),
        length=np.concatenate([low.length, high.length]), truncated=np.concatenate([low.truncated, high.truncated]),
    )  # fmt: skip
    shape = (-1, G)
    labels = OBSERVED.labels(
        visits.correct.reshape(shape), visits.length.reshape(shape), visits.truncated.reshape(shape)
    )
    found = flips(visits.prompt, labels, simulate(visits, OBSERVED, model=fit(visits, reach=0)).flip)
    only = flips(low.prompt, labels[:240], simulate(low, OBSERVED).flip)
    assert only.observed < 5
    assert found.observed > only.observed + 25


def test_the_same_seed_gives_the_same_answer_and_odd_histories_are_fine() -> None:
    visits = history(1, np.array([0.0, 1.0, 0.5]), np.array([2, 3, 4]), 1)
    one, two = simulate(visits, OBSERVED, seed=4), simulate(visits, OBSERVED, seed=4)
    np.testing.assert_array_equal(one.probability, two.probability)
    assert flips(visits.prompt, np.zeros(3, np.int8), one.flip).transitions == 0
    nothing = simulate(visits, OBSERVED, np.array([], int))
    assert nothing.flip.shape == (0,)
    lone = Visits(*(np.array(x) for x in ([0], [0], [0], [True], [5], [False])))
    assert simulate(lone, OBSERVED).probability.shape == (1, len(CLASSES))


def test_the_check_finds_the_estimate_nearer_the_truth_than_redrawing() -> None:
    rng = np.random.default_rng(2)
    visits = history(3, rng.uniform(0.1, 0.9, 60), rng.integers(2, 5, 60), 3)
    rows = check(visits, ATTENUATE, G, histories=12, truth=800)
    assert [row["pass_rate"] for row in rows] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    real, ours, naive = (np.mean([row[key] for row in rows]) for key in ("truth", "estimate", "resampled"))
    assert abs(ours - real) < abs(naive - real)
    assert naive < real
    assert check(history(1, np.array([1.0]), np.array([2]), 2), OBSERVED, G) == []


@pytest.mark.parametrize(("rule", "name"), [(OBSERVED, "amplify"), (ATTENUATE, "attenuate")])
def test_groups_of_other_sizes_are_what_a_known_policy_gives(
    rule: ClassRule, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(21)
    rates, operations = rng.uniform(0.1, 0.95, 60), rng.integers(2, 5, 60)
    sizes = (2, 4, 8, 16, 32)
    found = by_size(history(22, rates, operations, 5), rule, sizes)
    known = np.array(
        [[truth(rule, r, o, size) for r, o in zip(rates, operations, strict=True)] for size in sizes]
    ).mean(axis=1)
    estimate = np.stack([found.favorable.mean(axis=1), found.flip.mean(axis=1)], axis=1)
    with capsys.disabled():
        print(f"\n{name}: flips by luck for G in {sizes}: truth {known[:, 1].round(2)}, {estimate[:, 1].round(2)} here")
    assert estimate[:, 0] == pytest.approx(known[:, 0], abs=0.06)
    assert estimate[:, 1] == pytest.approx(known[:, 1], rel=0.15, abs=0.04)


def test_a_visits_own_size_gives_the_same_by_either_way() -> None:
    visits = history(23, np.random.default_rng(23).uniform(0.1, 0.9, 40), np.full(40, 3), 3)
    other, own = by_size(visits, ATTENUATE, (4, G), groups=64), simulate(visits, ATTENUATE, groups=64, seed=1)
    assert other.flip[1].mean() == pytest.approx(own.flip.mean(), abs=0.02)
    assert other.favorable[1].mean() == pytest.approx(own.probability[:, 0].mean(), abs=0.02)
    assert other.size.tolist() == [4, G] and other.flip.shape == (2, 120)


def test_visits_of_several_sizes_are_judged_each_by_its_own() -> None:
    one = history(24, np.full(30, 0.5), np.full(30, 3), 1)
    part = np.flatnonzero(~((one.visit >= 15) & (np.arange(len(one.visit)) % G >= 2)))  # half of the visits have 2
    mixed = Visits(
        one.prompt, one.step, one.visit[part], one.correct[part], one.length[part], one.truncated[part]
    )  # fmt: skip
    assert mixed.size.tolist() == [G] * 15 + [2] * 15
    sure = simulate(mixed, ATTENUATE)
    assert sure.probability[:15, 2].mean() < 0.1 < sure.probability[15:, 2].mean()  # pairs are often all right or wrong


def test_a_model_draws_a_prompts_own_lengths_and_at_times_another_s() -> None:
    visits = Visits(
        prompt=np.array([0, 1]), step=np.array([0, 0]), visit=np.repeat([0, 1], 4),
        correct=np.array([True, True, False, False] * 2), length=np.array([5, 6, 7, 8, 50, 60, 70, 80]),
        truncated=np.array([False, False, False, True] * 2),
    )  # fmt: skip
    model = fit(visits)
    correct, length, truncated = model.policies.draw(20_000, np.random.default_rng(0))
    for visit, own in enumerate((visits.length[:4], visits.length[4:])):
        right, wrong = correct[visit], ~correct[visit]
        assert set(length[visit][right]) <= {5, 6, 50, 60} and set(length[visit][wrong]) <= {7, 8, 70, 80}
        mine = np.isin(length[visit], own)
        assert mine.mean() == pytest.approx(2 / 3, abs=0.02)  # two of its own, and four weigh both
        assert (truncated[visit] == np.isin(length[visit], [8, 80])).all()
        assert right.mean() == pytest.approx(0.5, abs=0.02)
    near = model.around(300, np.random.default_rng(1))
    drawn = near.draw(64, np.random.default_rng(2))[0].mean(axis=1).reshape(2, 300)
    assert 0.1 < drawn.std() < 0.4 and drawn.mean() == pytest.approx(0.5, abs=0.05)
