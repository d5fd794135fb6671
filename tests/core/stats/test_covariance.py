"""The covariance behind the entropy: sums against brute force on tokens, and the formula itself on a softmax."""

from __future__ import annotations

import numpy as np
import pytest

from core.stats.covariance import LEAST_STEPS, Fit, Sums, contribution, fit


def sums(logprob: np.ndarray, advantage: np.ndarray, entropy: np.ndarray | None = None) -> Sums:
    """Sums over tokens; without `entropy`, as if its mean were exactly minus that of the log-probs."""
    entropy = -logprob if entropy is None else entropy
    return Sums(
        np.array(float(len(logprob))), np.array(entropy.sum()), np.array(advantage.sum()),
        np.array((logprob * advantage).sum()),
    )  # fmt: skip


def test_parts_are_what_their_tokens_add_to_the_covariance():
    random = np.random.default_rng(0)
    logprob, advantage = np.log(random.beta(4, 1, 500)), random.normal(0.3, 1, 500)
    part = random.integers(0, 3, 500)
    advantage[part == 2] = 0.0  # not trained on
    whole = sums(logprob, advantage)
    exact = np.cov(logprob, advantage, bias=True)[0, 1]
    assert contribution(whole, whole) == pytest.approx(exact)
    terms = (logprob - logprob.mean()) * advantage / 500
    got = [float(contribution(sums(logprob[part == i], advantage[part == i]), whole)) for i in range(3)]
    assert got == pytest.approx([terms[part == i].sum() for i in range(3)])
    assert sum(got) == pytest.approx(exact) and got[2] == 0


def test_sets_add_up_along_an_axis():
    random = np.random.default_rng(1)
    logprob, advantage = random.normal(size=(4, 2, 30)), random.normal(size=(4, 2, 30))
    parts = Sums(np.full((4, 2), 30.0), -logprob.sum(2), advantage.sum(2), (logprob * advantage).sum(2))
    got = contribution(parts, parts.total())
    assert got.shape == (4, 2)
    for step in range(4):
        exact = np.cov(logprob[step].ravel(), advantage[step].ravel(), bias=True)[0, 1]
        assert got[step].sum() == pytest.approx(exact)


def test_nothing_sampled_is_no_covariance():
    none = Sums(*(np.zeros(1) for _ in range(4)))
    assert np.isnan(contribution(none, none)).all()


def softmax(z: np.ndarray) -> np.ndarray:
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def entropy_of(z: np.ndarray) -> np.ndarray:
    p = softmax(z)
    return -(p * np.log(p)).sum(axis=-1)


@pytest.mark.parametrize("trained", [1.0, 0.5])
def test_sampled_tokens_foretell_the_entropy_of_a_small_policy(trained):
    """On-policy: tokens drawn from a softmax of 6 states x 5 actions, one small natural gradient step, and the exact
    change of its mean entropy. With `trained` below 1, that share of the states gets no advantage.
    """
    random = np.random.default_rng(7)
    z = random.normal(0, 1.5, (6, 5))
    p, before = softmax(z), entropy_of(z)
    reward = random.normal(0, 1, (6, 5))
    advantage = reward - (p * reward).sum(axis=1, keepdims=True)  # of mean 0 in every state
    advantage[round(6 * trained) :] = 0.0
    eta, n = 1e-3, 60_000
    exact = (entropy_of(z + eta * advantage) - before).mean()
    state = np.repeat(np.arange(6), n)
    action = np.concatenate([random.choice(5, n, p=row) for row in p])
    whole = sums(np.log(p[state, action]), advantage[state, action], before[state])
    got = -eta * float(contribution(whole, whole))
    assert got == pytest.approx(exact, rel=0.05) and abs(exact) > 1e-5
    # and state by state, as the cells of a step are told apart
    for row in range(6):
        here = state == row
        part = sums(np.log(p[state, action])[here], advantage[state, action][here], before[state][here])
        own = -eta * float(contribution(part, part))
        change = float(entropy_of(z[row] + eta * advantage[row]) - before[row])
        assert own == pytest.approx(change, rel=0.1, abs=3e-6)


def test_a_plain_policy_gradient_step_weighs_each_action_by_its_probability():
    """One step on the sampled loss -mean A log pi(a), its gradient exact; the second formula, from the same tokens."""
    random = np.random.default_rng(8)
    z = random.normal(0, 1.5, 6)
    p = softmax(z)
    reward = random.normal(0, 1, 6)
    action = random.choice(6, 200_000, p=p)
    a = (reward - (p * reward).sum())[action]
    gradient = np.bincount(action, weights=a, minlength=6) / len(action) - a.mean() * p  # of mean A log pi by z
    eta = 1e-3
    change = float(entropy_of(z + eta * gradient) - entropy_of(z))
    whole = sums(np.log(p[action]), p[action] * a, np.full(len(action), entropy_of(z)))
    assert -eta * float(contribution(whole, whole)) == pytest.approx(change, rel=0.05)


@pytest.mark.parametrize(
    ("likely", "rare", "falls"), [(1.0, 0.0, True), (0.0, -1.0, True), (-1.0, 0.0, False), (0.0, 1.0, False)]
)
def test_the_sign_is_that_of_the_four_cases(likely, rare, falls):
    """Reinforce likely or suppress rare tokens: entropy falls. The reverse: it rises."""
    z = np.log(np.array([0.8, 0.2]))
    action = np.repeat([0, 1], [80, 20])
    a = np.array([likely, rare])
    whole = sums(z[action], a[action], np.full(100, entropy_of(z)))
    foretold = -float(contribution(whole, whole))
    change = float(entropy_of(z + 1e-3 * a) - entropy_of(z))
    assert (foretold < 0) == (change < 0) == falls
    assert 1e-3 * foretold == pytest.approx(change, rel=0.01)


@pytest.mark.parametrize("natural", [True, False])
def test_entropy_of_a_softmax_moves_against_the_covariance(natural):
    """The claim of the module: a small move of the logits changes the entropy by -Cov(log pi, dz)."""
    random = np.random.default_rng(2)

    def entropy(z: np.ndarray) -> tuple[float, np.ndarray]:
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        return float(-(p * np.log(p)).sum()), p

    for _ in range(20):
        z, advantage, eta = random.normal(0, 2, 12), random.normal(size=12), 1e-5
        before, p = entropy(z)
        moved = eta * (advantage if natural else p * advantage)
        log_p = np.log(p)
        covariance = (p * log_p * moved).sum() - (p * log_p).sum() * (p * moved).sum()
        assert entropy(z + moved)[0] - before == pytest.approx(-covariance, rel=1e-3, abs=1e-11)


def test_the_scale_is_the_least_squares_line_through_zero():
    random = np.random.default_rng(3)
    covariance = random.normal(0.1, 0.05, 40)
    change = -0.04 * covariance + random.normal(0, 1e-3, 40)
    got = fit(covariance, change)
    (exact,) = np.linalg.lstsq(-covariance[:, None], change, rcond=None)[0]
    assert got.scale == pytest.approx(exact) and got.usable
    assert got.r == pytest.approx(np.corrcoef(-covariance, change)[0, 1])
    assert (got.n, got.fell) == (40, int((change < 0).sum()))
    assert got.agreed == int((np.sign(-covariance) == np.sign(change)).sum())


def test_few_steps_give_a_direction_and_no_scale():
    covariance, change = np.array([0.1, 0.2, -0.1, np.nan, 0.3]), np.array([-1.0, 1.0, 1.0, 1.0, np.nan])
    got = fit(covariance, change)
    assert (got.n, got.agreed, got.fell) == (3, 2, 1)
    assert np.isnan(got.scale) and np.isnan(got.r) and not got.usable
    assert fit(np.array([]), np.array([])).n == 0


def test_a_scale_of_the_wrong_sign_or_without_spread_is_not_used():
    steps = np.linspace(0.1, 1, LEAST_STEPS)
    assert fit(steps, steps).scale == pytest.approx(-1) and not fit(steps, steps).usable
    assert not fit(np.full(20, 0.1), np.linspace(-1, 0, 20)).usable
    assert Fit(1.0, 0.5, 20, 15, 12).usable
    flat = fit(steps, np.full(LEAST_STEPS, -0.5))
    assert flat.usable and np.isnan(flat.r)
