from dataclasses import replace

import numpy as np
import pytest

from core.advantage import PROXY_DROPPED, AdvantageError, build, compute
from tests.core.advantage.batches import batch


def test_the_least_likely_tokens_that_are_pushed_down():
    one = batch([0, 0, 1, 1] * 5, [1, 0, 1, 1] * 5, [20] * 20)
    trace = compute(build("lp_reg", params={"ratio": 0.05}), one)
    chosen, down = trace.penalty.coefficient > 0, trace.advantage < 0
    assert chosen.sum() == 5 and down.sum() == 100 and down[chosen].all()
    assert one.trainer_logprob[chosen].max() < one.trainer_logprob[down & ~chosen].min()
    assert trace.penalty.form == "proxy"
    known = int((chosen & (one.proxy_logprob > PROXY_DROPPED)).sum())
    assert trace.penalty.reason.endswith(f"the proxy knows {known} of them")
    i, t = np.argwhere(chosen)[0]
    noise = one.proxy_logprob[i, t] == PROXY_DROPPED
    assert ("filters it as noise" if noise else "drawn to the proxy's") in trace.penalty.explain(i, t)
    assert trace.penalty.explain(0, 0) == "no negative advantage here"


def test_nothing_is_pushed_down_nothing_is_penalised():
    assert not compute(build("lp_reg"), batch([0, 0], [1, 1])).penalty.coefficient.any()


def test_a_proxy_of_another_min_p_is_refused():
    one = replace(batch([0, 0], [1, 0]), proxy_min_p=0.1)
    with pytest.raises(AdvantageError, match=r"lp_reg.min_p is 0.02, but these proxy log-probs were recorded with 0.1"):
        compute(build("lp_reg"), one)
    assert compute(build("lp_reg", params={"min_p": 0.1}), one).penalty
