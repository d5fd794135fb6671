import shutil

import numpy as np
import pytest

from core.advantage import build
from core.counterfactual import answer, compare, series, stored, summarise
from core.counterfactual.steps import spaced
from core.store import StoreError, open_runs
from tests.synthetic import make_run

METHODS = [build("grpo"), build("a3po", mass_matched=True), build("adora_amplify", base="dapo")]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Five steps of A3PO, two minibatches each, probes at steps 0 and 4."""
    size = {"steps": 5, "prompts": 2, "group_size": 4, "updates": {"minibatches": 2}}
    return make_run(tmp_path_factory.mktemp("runs"), "run", method="a3po", **size)


@pytest.fixture
def lab(recorded):
    with open_runs([recorded]) as opened:
        yield opened


def test_a_stored_step_has_its_ratios_at_their_tokens(lab):
    found = stored(lab, "run", 2)
    assert found.ratio.shape == found.batch.mask.shape
    rows = lab.step("run", 2).rows("SELECT * FROM tokens WHERE split = 'train'")
    assert len(rows) == found.batch.mask.sum()
    for row in rows:
        own = found.ratio[found.row[row["group"], row["rollout"]], row["position"]]
        assert np.isnan(own) if row["ratio"] is None else own == np.float32(row["ratio"])
    assert np.isnan(found.ratio[~found.batch.mask]).all() and np.isfinite(found.ratio).any()


def test_the_runs_own_method_gives_the_stored_advantages(lab):
    found = stored(lab, "run", 3)
    own = answer(found.config.build_method(), found.batch, found.config.polarity_by, found.ratio)
    tokens = lab.step("run", 3).arrays(
        "SELECT advantage, loss_weight, clipped FROM tokens WHERE split = 'train' ORDER BY \"group\", rollout, position"
    )
    mask = found.batch.mask
    np.testing.assert_allclose(own.trace.advantage[mask], tokens["advantage"], atol=1e-6)
    np.testing.assert_allclose(own.weight[mask], tokens["loss_weight"], rtol=1e-6)


def test_rows_are_what_each_step_gives_alone(lab):
    rows = list(series(lab, "run", METHODS))
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [(row["done"], row["of"], row["lacking"], row["skipped"]) for row in rows] == [
        (done, 5, 0, None) for done in range(1, 6)
    ]
    step = stored(lab, "run", 3)
    answers = [answer(method, step.batch, ratio=step.ratio) for method in METHODS]
    row = rows[3]
    assert [method["label"] for method in row["methods"]] == [method.label for method in METHODS]
    for found, one in zip(row["methods"], answers, strict=True):
        alone = summarise(one, step.batch)
        assert (found["mass_positive"], found["mass_negative"]) == (alone.mass.positive, alone.mass.negative)
        assert (found["mass_positive_base"], found["mass_negative_base"]) == (
            alone.base_mass.positive, alone.base_mass.negative,
        )  # fmt: skip
        np.testing.assert_array_equal(found["quartile_mass"], alone.quartiles.mass.sum(axis=0))
        for name in ("favorable_share", "mean_weight", "kept_share", "clip_share"):
            assert found[name] == getattr(alone, name)
    assert [(pair["a"], pair["b"]) for pair in row["pairs"]] == [(0, 1), (0, 2), (1, 2)]
    assert row["pairs"][1] == {"a": 0, "b": 2} | compare(answers[0], answers[2], step.batch).numbers


def test_it_gives_row_after_row(lab):
    told = []
    rows = series(lab, "run", METHODS[:1], progress=lambda done, of: told.append((done, of)))
    assert next(rows)["step"] == 0 and told == [(1, 5)]
    assert next(rows)["step"] == 1 and told == [(1, 5), (2, 5)]


def test_at_most_so_many_steps(lab):
    assert [row["step"] for row in series(lab, "run", METHODS[:1], most=3)] == [0, 2, 4]
    assert [row["of"] for row in series(lab, "run", METHODS[:1], most=2)] == [2, 2]


@pytest.mark.parametrize(("count", "most"), [(1, 60), (7, 3), (400, 60), (60, 60), (61, 60), (5, 2)])
def test_spaced_evenly_from_first_to_last(count, most):
    steps = [10 * i for i in range(count)]
    found = spaced(steps, most)
    assert len(found) == min(count, most) == len(set(found))
    assert (found[0], found[-1]) == (0, steps[-1])
    gaps = np.diff(found)
    assert not len(gaps) or gaps.max() - gaps.min() <= 10


def test_probes_have_their_own_steps(lab):
    rows = list(series(lab, "run", METHODS[:1], split="probe"))
    assert [row["step"] for row in rows] == [0, 4, 5]
    assert all(row["methods"][0]["clip_share"] is None for row in rows)


def test_steps_without_tokens_are_counted_and_left_out(recorded, tmp_path):
    path = shutil.copytree(recorded, tmp_path / "run")
    for step in (1, 3):
        (path / "steps" / f"step={step:06d}" / "tokens.parquet").unlink()
    with open_runs([path]) as lab:
        rows = list(series(lab, "run", METHODS[:1]))
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert {row["lacking"] for row in rows} == {2}


def test_a_step_that_cannot_be_computed_says_why(lab):
    rows = list(series(lab, "run", [build("lp_reg")], most=2))
    assert [row["methods"] + row["pairs"] for row in rows] == [[], []]
    assert "needs proxy_logprob" in rows[0]["skipped"]


def test_a_run_without_tokens_is_refused(lab):
    with pytest.raises(StoreError, match="run: no step has tokens of the split eval"):
        next(series(lab, "run", METHODS, split="eval"))
