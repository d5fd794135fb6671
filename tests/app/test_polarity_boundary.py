"""pass@1 against pass@k: what moved between two exams, and what may be said of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from app.palette import LIGHT
from app.views import polarity_boundary as view
from core.stats.differences import Difference


def exam(correct: list[int], n: int = 8) -> pd.DataFrame:
    count = range(len(correct))
    return pd.DataFrame(
        {
            "prompt_id": [f"id{i}" for i in count], "prompt": [f"{i}+<b>1</b>=?" for i in count], "n": n,
            "pass_rate": np.array(correct) / n,
        }
    )  # fmt: skip


def exams() -> pd.DataFrame:
    return pd.DataFrame(
        {"step": [0, 40], "prompts": 40, "rollouts": 8, "k": 8, "pass_at_1": [0.3, 0.6], "pass_at_k": [0.9, 0.8]}
    )


BEFORE, AFTER = [2] * 20 + [3] * 12 + [0] * 8, [8] * 20 + [0] * 12 + [1] * 2 + [0] * 6


def test_what_moved_is_paired_by_prompt():
    got = view.moved(exam(BEFORE), exam(AFTER).sample(frac=1, random_state=0), 8, 0, 40)
    assert got.pass_1.value == pytest.approx((np.mean(AFTER) - np.mean(BEFORE)) / 8)
    assert got.pass_k.value == pytest.approx(22 / 40 - 32 / 40) and got.k == 8
    assert (len(got.gained), len(got.lost)) == (2, 12)
    assert got.pass_k.low < got.pass_k.value < got.pass_k.high and got.pass_k.unit == "prompts"


def test_one_exam_or_other_prompts_are_no_move():
    assert view.moved(exam(BEFORE), exam(BEFORE), 8, 4, 4) is None
    assert view.moved(exam([1, 2]), exam([1]).assign(prompt_id="other"), 8, 0, 4) is None


def test_what_luck_alone_would_move_is_counted_over_all_ways_to_deal_the_right_rollouts():
    got = view.moved(exam([0, 3, 1, 0], n=4), exam([1, 2, 0, 0], n=4), 4, 0, 40)
    into = []
    for right in (1, 5, 1):  # of 8 rollouts, 4 in each exam
        deals = list(combinations(range(8), right))
        into.append(np.mean([all(place >= 4 for place in deal) for deal in deals]))
    assert got.by_luck == pytest.approx(sum(into)) and into == pytest.approx([0.5, 0, 0.5])
    assert "luck alone would move about 1 each way" in view.verdict(exams(), got)
    rng = np.random.default_rng(0)
    rates = rng.beta(1, 2, 4000)
    same = view.moved(*(exam(list(rng.binomial(8, rates))) for _ in range(2)), 8, 0, 40)
    assert same.by_luck == pytest.approx((len(same.gained) + len(same.lost)) / 2, rel=0.1)  # nothing had changed


def test_each_evaluation_has_its_interval_over_prompts():
    prompts = pd.DataFrame({"step": np.repeat([0, 40], [40, 10]), "prompt_id": "p", "n": 8, "correct": 1})
    got = view.with_interval(exams(), prompts)
    assert (got["low"] < got["pass_at_k"]).all() and (got["pass_at_k"] < got["high"]).all()
    assert got["high"][1] - got["low"][1] > got["high"][0] - got["low"][0]  # from 10 prompts against 40
    bars = view.curves(got, LIGHT).data[0].error_y
    assert bars.array.tolist() == pytest.approx((got["high"] - got["pass_at_k"]).tolist())
    bare = view.with_interval(exams(), prompts.head(0))
    assert bare["low"].isna().all() and view.curves(bare, LIGHT).data[0].error_y.array is None


def test_verdict_sharpening_with_a_shrinking_boundary():
    got = view.moved(exam(BEFORE), exam(AFTER), 8, 0, 40)
    words = view.verdict(exams(), got)
    assert words.startswith("From step 0 to 40 pass@1 rose by 0.269 [")
    assert "while pass@8 fell by 0.25 [" in words
    assert "it sharpens what it could already do, and the boundary shrinks" in words
    assert "2\u00a0prompts came within reach of the rollouts, 12 fell out of it" in words
    assert "n = 40 held-out prompts × 8 rollouts" in words and view.tone(got) == "warning"
    low, high = (float(part) for part in words.split("fell by 0.25 [")[1].split("]")[0].split(", "))
    assert (low, high) == pytest.approx((-got.pass_k.high, -got.pass_k.low), abs=5e-3) and low < 0.25 < high


def difference(verdict: str, value: float = 0.1) -> Difference:
    low, high = {"higher": (0.05, 0.2), "lower": (-0.2, -0.05), "not distinguishable": (-0.1, 0.2)}[verdict]
    return Difference(value, low, high, 40, 40, "prompts")


@pytest.mark.parametrize("one", ["higher", "lower", "not distinguishable"])
@pytest.mark.parametrize("many", ["higher", "lower", "not distinguishable"])
def test_every_pair_of_moves_has_its_words(one, many):
    got = view.Moved(0, 4, 8, exam([1]), difference(one), difference(many))
    boundary = {
        "higher": "grows|could not reach",
        "lower": "shrinks|got worse at both",
        "not distinguishable": "not clear|no clear",
    }
    assert any(part in view._meaning(got) for part in boundary[many].split("|"))


def test_few_prompts_have_no_interval():
    got = view.moved(exam([1, 2]), exam([3, 2]), 8, 0, 4)
    words = view.verdict(exams(), got)
    assert "too few prompts" in words and "[" not in words


def test_one_evaluation_and_k_of_one():
    assert "One evaluation so far, at step 40" in view.verdict(exams().tail(1), None)
    got = view.moved(exam([1, 2] * 4), exam([3, 2] * 4), 1, 0, 4)
    assert "set evaluate.k higher" in view.verdict(exams(), got)


def test_figures_and_lists():
    fig = view.curves(exams(), LIGHT)
    assert [trace.name for trace in fig.data] == ["pass@8", "pass@1"]
    assert fig.data[1].y.tolist() == [0.3, 0.6] and "share" in fig.layout.yaxis.title.text
    got = view.moved(exam(BEFORE), exam(AFTER), 8, 0, 40)
    bars = view.spread(got, LIGHT).data
    assert bars[0].y.tolist() == [8, 0, 20, 12, 0, 0, 0, 0, 0] and bars[1].y.tolist() == [18, 2, *[0] * 6, 20]
    html = view.prompt_list(got.lost, got, LIGHT)
    assert "<b>" not in html and "3 of 8" in html and "0 of 8" in html and "more" not in html
    assert "and 1 more" in view.prompt_list(pd.concat([got.lost, got.gained.head(1)]), got, LIGHT)
