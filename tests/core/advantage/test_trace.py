"""What holds for every recipe: the promise that factors multiply to the advantage, and what must not matter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.advantage import AdvantageError, build, compute, recipes
from core.advantage.registry import BASES
from tests.core.advantage.batches import batch, batches

METHODS = {name: build(name) for name in recipes() if name != "pass_at_k"} | {
    "pass@1": build("pass_at_k", params={"k": 1}),
    "discounted": build("reinforce_pp", params={"gamma": 0.9}),
    "everything": build(
        "a3po",
        base="dapo",
        also=["adora_amplify", "adora_attenuate", "polarity", "entropy_advantage", "fork_tokens", "a_grae", "lp_reg"],
        mass_matched=True,
    ),
    "fading": build(
        "a3po",
        also=["adora_amplify", "polarity"],
        params={
            "a3po.schedule": "until",
            "a3po.schedule_fraction": 0.5,
            "adora_amplify.schedule": "linear",
            "adora_amplify.schedule_steps": 70,
            "polarity.schedule": "decay",
            "polarity.schedule_alpha": 0.01,
        },
    ),
    "psr, mass-matched": build("psr", mass_matched=True),
    "grpo, mass-matched": build("grpo", mass_matched=True),
    "clip_cov on everything": build("clip_cov", params={"ratio": 0.2, "cov_low": -100, "cov_high": 100}),
    "a3po under adora": build("a3po", also=["adora_amplify"], base="dr_grpo"),
    "adora on dapo": build("adora_code_llm", base="dapo"),
    "shaped by probability": build(
        "token_shaping", params={"negative_high_scale": 5, "positive_low_scale": 2, "positive_high_scale": 0.2}
    ),
    "positives shaped by entropy": build(
        "psr", also=["token_shaping"], params={"metric": "entropy", "positive_high_scale": 3}
    ),
}
anything = given(one=batches(), name=st.sampled_from(sorted(METHODS)), by=st.sampled_from(["correct", "sign"]))


def reordered(one, order):
    rows = {
        name: getattr(one, name)[order]
        for name in (
            "group",
            "reward",
            "correct",
            "length",
            "truncated",
            "sampler_logprob",
            "trainer_logprob",
            "entropy",
            "proxy_logprob",
            "rollout",
        )
    }
    return replace(one, **rows)


@settings(max_examples=150, deadline=None)
@anything
def test_factors_multiply_to_the_advantage(one, name, by):
    trace = compute(METHODS[name], one, polarity_by=by)
    product = np.where(one.mask, trace.base if trace.base.ndim == 2 else trace.base[:, None], 0.0)
    for factor in trace.factors:
        product = product * factor.spread(one)
    np.testing.assert_allclose(product, trace.advantage, rtol=1e-12, atol=1e-12)
    assert not trace.advantage[~trace.kept].any()
    assert not (trace.kept & ~one.mask).any()
    assert not np.signbit(trace.advantage[trace.advantage == 0]).any()
    if [factor.id for factor in trace.factors].count("selected"):
        selected = next(factor for factor in trace.factors if factor.id == "selected")
        assert set(np.unique(selected.values)) <= {0.0, 1.0}
        np.testing.assert_array_equal(selected.spread(one)[one.mask] > 0, trace.kept[one.mask])
    else:
        np.testing.assert_array_equal(trace.kept, one.mask)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), one=batches(), name=st.sampled_from(sorted(METHODS)))
def test_order_of_rollouts_does_not_matter(data, one, name):
    order = list(data.draw(st.permutations(range(len(one.group)))))
    trace, other = compute(METHODS[name], one), compute(METHODS[name], reordered(one, order))
    np.testing.assert_allclose(other.advantage, trace.advantage[order], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(other.kept, trace.kept[order])
    assert other.classes.label == trace.classes.label


@settings(max_examples=60, deadline=None)
@given(one=batches(), name=st.sampled_from(sorted(METHODS)).filter(lambda name: "clip_cov" not in name))
def test_numbers_of_groups_do_not_matter(one, name):
    """Clip-Cov's draws go by the group's number."""
    trace = compute(METHODS[name], one)
    flipped = replace(one, group=100 - 3 * one.group)
    other = compute(METHODS[name], flipped)
    np.testing.assert_allclose(other.advantage, trace.advantage, rtol=1e-9, atol=1e-12)
    assert other.classes.label == trace.classes.label[::-1]


GROUP_RELATIVE = [name for name, method in METHODS.items() if BASES[method.base.name].compares]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    rewards=st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=4, max_size=4),
    name=st.sampled_from(sorted(set(GROUP_RELATIVE) - {"reinforce_pp_baseline"})),
)
def test_groups_of_equal_rewards_get_nothing_under_group_relative_rules(sizes, rewards, name):
    """Whitening over the batch moves REINFORCE++'s zero: see test_whitened.py."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    mixed = [len(sizes)] * 4
    one = batch([*group, *mixed], [*(rewards[g] for g in group), 1, 0, 0, 1], seed=len(group))
    assert not compute(METHODS[name], one).advantage[: len(group)].any()


@settings(max_examples=60, deadline=None)
@given(one=batches(), c=st.sampled_from([0.1, 0.5, 2.0, 7.0]), base=st.sampled_from(["grpo", "dr_grpo", "rloo", "pm1"]))
def test_scaling_both_polarities_by_c_scales_every_advantage_by_c(one, c, base):
    scaled = build("polarity", base=base, params={"positive": c, "negative": c})
    np.testing.assert_allclose(compute(scaled, one).advantage, c * compute(build(base), one).advantage, rtol=1e-12)
    matched = build("polarity", base=base, params={"positive": c, "negative": c}, mass_matched=True)
    np.testing.assert_allclose(compute(matched, one).advantage, compute(build(base), one).advantage, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(one=batches(), name=st.sampled_from(sorted(METHODS)))
def test_padding_does_not_matter(one, name):
    wide = {
        key: np.concatenate([getattr(one, key), np.full((len(one.group), 3), np.nan)], axis=1)
        for key in ("sampler_logprob", "trainer_logprob", "entropy", "proxy_logprob")
    }
    trace, other = compute(METHODS[name], one), compute(METHODS[name], replace(one, **wide))
    np.testing.assert_array_equal(other.advantage[:, : one.width], trace.advantage)
    assert not other.advantage[:, one.width :].any()


@settings(max_examples=60, deadline=None)
@anything
def test_recomputed_from_stored_precision_is_equal(one, name, by):
    stored = replace(
        one,
        reward=one.reward.astype(np.float32),
        sampler_logprob=one.sampler_logprob.astype(np.float32),
        trainer_logprob=one.trainer_logprob.astype(np.float32),
        entropy=one.entropy.astype(np.float32),
        proxy_logprob=one.proxy_logprob.astype(np.float32),
    )
    found = compute(METHODS[name], stored, polarity_by=by).advantage
    np.testing.assert_array_equal(found, compute(METHODS[name], one, polarity_by=by).advantage)


@settings(max_examples=60, deadline=None)
@anything
def test_every_token_can_be_explained(one, name, by):
    trace = compute(METHODS[name], one, polarity_by=by)
    ids = [factor.id for factor in trace.factors]
    assert len(set(ids)) == len(ids)
    for explain in (trace.explain_base, *(factor.explain for factor in trace.factors)):
        for i in range(len(one.group)):
            for t in {0, one.length[i] - 1}:
                words = explain(i, t)
                assert words and "\n" not in words and "nan" not in words
    assert all(factor.reason and "\n" not in factor.reason for factor in trace.factors)


def test_inputs_are_left_alone():
    one = batch([0, 0, 1, 1], [1, 0, 1, 1])
    before = {name: np.copy(getattr(one, name)) for name in ("reward", "sampler_logprob", "entropy", "length")}
    for method in METHODS.values():
        compute(method, one)
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(one, name), values)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_read_only_what_they_say_they_need(name):
    method = METHODS[name]
    fields = {"sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", "proxy_logprob", "total_steps"}
    bare = batch([0, 0, 1, 1], [1, 0, 1, 1], **dict.fromkeys(fields - method.needs))
    compute(method, bare)
    for missing in method.needs:
        with pytest.raises(AdvantageError, match=f"needs {missing}"):
            compute(method, replace(bare, **{missing: None}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": np.array([1.0, np.nan, 0, 0])}, "reward of rollout 1 must be a finite number"),
        ({"reward": np.array([1.0, 0, 0])}, "reward has shape"),
        ({"length": np.array([4, 0, 4, 4])}, "length of rollout 1 must be at least 1"),
        ({"length": np.array([4, 4, 4, 21])}, "length of rollout 3 must be at most max_length, 20"),
        ({"sampler_logprob": np.zeros((4, 3))}, "sampler_logprob has shape"),
        ({"sampler_logprob": np.full((4, 4), 0.1)}, "sampler_logprob of rollout 0 must be at most 0"),
        ({"sampler_logprob": np.full((4, 4), np.nan)}, "sampler_logprob of rollout 0 must be finite"),
        ({"group": np.array([], dtype=int)}, "no rollouts"),
    ],
)
def test_malformed_batches(changes, words):
    with pytest.raises(AdvantageError, match=words):
        compute(METHODS["a3po"], replace(batch([0, 0, 1, 1], [1, 0, 1, 1]), **changes))


def test_unknown_polarity_by():
    with pytest.raises(AdvantageError, match="correct or sign"):
        compute(METHODS["grpo"], batch([0, 0], [1, 0]), polarity_by="reward")
