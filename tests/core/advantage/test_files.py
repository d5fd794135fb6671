import json

import numpy as np
import pytest

from core.advantage import AdvantageError, batch_from_json, build, compute, refuse_lone_rollouts, trace_to_json

GOOD = {
    "group": [0, 0, 4, 4],
    "reward": [1, 0, 1.0, 1.0],
    "length": [2, 3, 1, 2],
    "max_length": 3,
    "truncated": [False, True, False, False],
    "old_logprob": [[-0.1, -0.2], [-0.3, -0.1, -0.5], [-0.7], [-0.1, -0.2]],
}


def test_read():
    batch = batch_from_json({**GOOD, "step": 7, "total_steps": 50})
    assert batch.correct.tolist() == [True, False, True, True]
    assert (batch.step, batch.total_steps, batch.max_length) == (7, 50, 3)
    np.testing.assert_array_equal(batch.sampler_logprob, batch.trainer_logprob)
    assert batch.sampler_logprob[2].tolist() == [np.float32(-0.7), 0, 0]
    assert batch.entropy is None


@pytest.mark.parametrize(("reward", "correct"), [(0.5, True), (0.49, False), (0.51, True)])
def test_correct_from_the_threshold(reward, correct):
    assert batch_from_json({**GOOD, "reward": [reward, 0, 1, 1]}).correct[0] == correct


def test_methods_that_need_no_tokens_take_a_batch_without():
    bare = batch_from_json({key: value for key, value in GOOD.items() if key != "old_logprob"})
    found = trace_to_json(compute(build("adora_attenuate"), bare), bare)
    assert [len(row) for row in found["advantage"]] == GOOD["length"]
    with pytest.raises(AdvantageError, match=r"A3PO on DAPO needs sampler_logprob \(old_logprob in a batch file\)"):
        compute(build("a3po"), bare)
    with pytest.raises(AdvantageError, match="Token shaping needs entropy"):
        compute(build("token_shaping", params={"metric": "entropy", "positive_low_scale": 2}), bare)


def test_random_rules_have_their_seed_and_proxies_their_own_key():
    own = [[-0.1, -1e4], [-0.3, -0.1, -0.5], [-0.7], [-0.1, -0.2]]
    batch = batch_from_json({**GOOD, "seed": 5, "proxy_logprob": own})
    assert batch.seed == 5 and batch.proxy_logprob[0].tolist() == [np.float32(-0.1), -1e4, 0]
    assert batch_from_json(GOOD).seed == 0 and batch_from_json(GOOD).proxy_logprob is None


def test_a_penalty_is_written_too():
    batch = batch_from_json(GOOD)
    found = trace_to_json(compute(build("kl_cov", params={"ratio": 0.5}), batch), batch)["penalty"]
    assert (found["name"], found["form"]) == ("kl_cov", "absolute") and "cov" in found["reason"]
    assert [len(row) for row in found["values"]] == GOOD["length"]
    assert sorted({value for row in found["values"] for value in row}) == [0, 1]
    assert "penalty" not in trace_to_json(compute(build("grpo"), batch), batch)


LONE = {**GOOD, "group": [0, 0, 0, 4]}


@pytest.mark.parametrize("name", ["grpo", "rloo", "dapo", "a3po"])
def test_a_group_of_one_is_refused_where_groups_are_compared(name):
    method = build(name)
    with pytest.raises(AdvantageError, match=f"group 4 has rollout 3 alone, but {method.label} compares"):
        refuse_lone_rollouts(method, batch_from_json(LONE))


@pytest.mark.parametrize("name", ["pm1", "w_reinforce", "reinforce_pp"])
def test_a_group_of_one_is_well_where_none_is_compared(name):
    refuse_lone_rollouts(build(name), batch_from_json(LONE))
    refuse_lone_rollouts(build("grpo"), batch_from_json(GOOD))


def test_written():
    batch = batch_from_json(GOOD)
    found = trace_to_json(compute(build("a3po", also=["adora_amplify"]), batch), batch)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["kept"] == [True, True, False, False]
    assert found["class"] == {"0": "favorable", "4": "unfavorable"}
    assert [(f["name"], f["per"]) for f in found["factors"]] == [
        ("selected", "rollout"), ("a3po", "token"), ("adora_amplify", "group"),
    ]  # fmt: skip
    selected, a3po, adora = (factor["values"] for factor in found["factors"])
    assert all(isinstance(factor["reason"], str) and factor["reason"] for factor in found["factors"])
    for i, row in enumerate(found["advantage"]):
        weight = adora[[0, 0, 1, 1][i]] * selected[i] * found["base"]["values"][i]
        np.testing.assert_allclose(row, np.array(a3po[i]) * weight, atol=1e-12)
    assert found["advantage"][2:] == [[0], [0, 0]]


HUGE = 10**400
NAN = float("nan")


def logprobs(*first, second=(-0.3, -0.1, -0.5)):
    return {"old_logprob": [list(first), list(second), [-0.7], [-0.1, -0.2]]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": [1, NAN, 1, 1]}, r"reward\[1\] must be a finite number, but is nan"),
        ({"reward": [1, float("inf"), 1, 1]}, r"reward\[1\] must be a finite number, but is inf"),
        ({"reward": [1, HUGE, 1, 1]}, r"reward\[1\] must be a finite number, but is too large"),
        ({"reward": [1, "0", 1, 1]}, r"reward\[1\] must be a finite number, but is '0'"),
        ({"reward": [1, None, 1, 1]}, r"reward\[1\] must be"),
        ({"reward": [1, 0, 1]}, "reward has 3 entries, but group has 4"),
        ({"reward": 1}, "reward must be a list, but is 1"),
        ({"group": [0, 0, 0.5, 1]}, r"group\[2\] must be a whole number"),
        ({"length": [2, 0, 1, 2]}, r"length\[1\] must be a whole number between 1 and"),
        ({"length": [2, HUGE, 1, 2]}, r"length\[1\] must be a whole number"),
        ({"length": [2, 4, 1, 2], "old_logprob": [[-1] * 2, [-1] * 4, [-1], [-1] * 2]}, "at most max_length, 3"),
        ({"truncated": [0, 1, 0, "no"]}, r"truncated\[3\] must be true or false, but is 'no'"),
        ({"max_length": 0}, "max_length must be a whole number between 1"),
        ({"max_length": None}, "max_length must be"),
        ({"step": -1}, "step must be a whole number between 0"),
        ({"seed": 0.5}, "seed must be a whole number between 0"),
        ({"group": ["a", "a", "b", "b"]}, r"group\[0\] must be a whole number, one for each prompt, but is 'a'"),
        ({"reward": [1, [[0]], 1, 1]}, r"reward\[1\] must be a finite number, but is a list"),
        ({"reward": [1, True, 1, 1]}, r"reward\[1\] must be a finite number, but is true"),
        ({"step": True}, "step must be"),
        (logprobs(-0.1, -0.2, second=[-0.3, -0.1]), r"old_logprob\[1\] has 2 entries, but length\[1\] is 3"),
        (logprobs(-0.1, 0.2), r"old_logprob\[0\]\[1\] must be a log-prob, at most 0, but is 0.2"),
        (logprobs(-0.1, NAN), r"old_logprob\[0\]\[1\] must be a finite number, but is nan"),
        ({"old_logprob": [-0.1, -0.2, -0.3, -0.4]}, r"old_logprob\[0\] must be a list"),
        ({"old_logprob": []}, "old_logprob has 0 entries"),
        ({"entropy": [[0.1, -0.2], [0.3, 0.1, 1], [0.7], [0.1, 0.2]]}, r"entropy\[0\]\[1\] must be an entropy"),
        ({"new_logprob": [[0.1, 0.2], [0.3, 0.1, 1], [0.7], [0.1, 0.2]]}, r"new_logprob\[0\]\[0\] must be a log-prob"),
        ({"rewards": [1, 0, 1, 1]}, "unknown key 'rewards'; did you mean reward"),
        ({"group": [], "reward": [], "length": [], "truncated": [], "old_logprob": []}, "no rollouts"),
        ({"length": [1_000_000] * 4, "max_length": 1_000_000, "group": [0] * 4}, "old_logprob|too large"),
    ],
)  # fmt: skip
def test_bad_batches_are_one_sentence_that_names_the_key(changes, words):
    with pytest.raises(AdvantageError, match=words) as caught:
        batch_from_json({**GOOD, **changes})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("missing", ["group", "reward", "length", "max_length", "truncated"])
def test_missing_keys(missing):
    with pytest.raises(AdvantageError, match=f"the batch lacks {missing}"):
        batch_from_json({key: value for key, value in GOOD.items() if key != missing})


@pytest.mark.parametrize("data", [None, [], "batch", 3])
def test_not_an_object(data):
    with pytest.raises(AdvantageError, match="must be an object with the keys group"):
        batch_from_json(data)


def test_too_large_a_batch_is_refused_before_memory_is_taken():
    n = 100
    data = {
        "group": [0] * n,
        "reward": [0] * n,
        "length": [1_000_000] * n,
        "max_length": 1_000_000,
        "truncated": [True] * n,
    }
    with pytest.raises(AdvantageError, match="too large: 100 rollouts"):
        batch_from_json(data)
