"""The promise: recomputed from the store, advantages equal the trained ones; and `check` sees every way to break it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from core.advantage import PROXY_DROPPED, Param, build, compute
from core.advantage.recipes import RECIPES
from core.config import RunConfig, read_run
from core.store import CheckReport, StoreError, check, open_runs, replay, seal
from tests.synthetic import make_run, records

Change = Callable[[pa.Table], pa.Table]


def change(run_dir: Path, step: int, table: str, how: Change) -> CheckReport:
    """Change a stored table, and check the run."""
    file = run_dir / f"steps/step={step:06d}" / f"{table}.parquet"
    rows = how(pq.read_table(file, partitioning=None))
    pq.write_table(rows, file)
    return check(run_dir)


def column(name: str, value_of: Callable[[pa.ChunkedArray], pa.Array]) -> Change:
    def changed(rows: pa.Table) -> pa.Table:
        i = rows.schema.get_field_index(name)
        return rows.set_column(i, rows.schema.field(i), value_of(rows[name]).cast(rows.schema.field(i).type))

    return changed


def nudge(by: float, at: int = 0) -> Callable[[pa.ChunkedArray], pa.Array]:
    """Add to one value."""

    def nudged(values: pa.ChunkedArray) -> pa.Array:
        changed = values.to_numpy().astype(np.float64).copy()
        changed[at] += by
        return pa.array(changed)

    return nudged


def scale(by: float) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda values: pc.multiply(values, pa.scalar(float(by)))


def fill(value: float) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda values: pa.array([value] * len(values))


def flip(values: pa.ChunkedArray) -> pa.Array:
    """The other truth; False where there was none."""
    return pa.array([not value if value is not None else False for value in values.to_pylist()])


def swap_classes(values: pa.ChunkedArray) -> pa.Array:
    return pa.array(["unfavorable" if value == "favorable" else "favorable" for value in values.to_pylist()])


def test_a_whole_run_passes_and_is_counted(run_dir: Path) -> None:
    report = check(run_dir)
    assert report.problems == [] and report.ok
    assert report.steps == 4
    assert 0 < report.largest_difference < 1e-7
    assert report.where.startswith("step ")
    lab = open_runs([run_dir])
    assert report.rollouts == len(lab.rows("SELECT 1 FROM rollouts"))
    assert report.tokens == len(lab.rows("SELECT 1 FROM tokens"))


METHODS = {
    name: {"name": name}
    for name in (
        "grpo", "dapo", "dr_grpo", "nsr", "w_reinforce", "token_shaping", "adora_code_vlm", "a_grae", "kl_cov",
        "clip_cov", "lp_reg", "fork_tokens", "reinforce_pp_baseline",
    )
} | {
    "a base per token": {"name": "reinforce_pp", "set": {"gamma": 0.9}},
    "mass matched": {"name": "a3po", "also": ["adora_amplify"], "mass_matched": True},
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_every_method_passes_live_and_sealed(tmp_path: Path, method: str) -> None:
    settings = {"method": METHODS[method], "seed": 3, "updates": {"minibatches": 2}}
    path = make_run(tmp_path, "run", steps=2, prompts=4, group_size=4, **settings)
    live = check(path)
    assert live.problems == []
    seal(path)
    shutil.rmtree(path / "steps")
    assert check(path) == live


def test_progress_is_told_after_every_step(run_dir: Path) -> None:
    told = []
    check(run_dir, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("table", "how", "told"),
    [
        (
            "tokens",
            column("advantage", nudge(1e-4, at=3)),
            "step 1, train, group 0, rollout 0, position 3: advantage is",
        ),
        ("tokens", column("base_advantage", nudge(1e-4)), "base_advantage is"),
        ("tokens", column("f_a3po", nudge(0.5)), "f_a3po is"),
        ("tokens", column("loss_weight", nudge(1e-7)), "loss_weight is"),
        ("tokens", column("kept", pc.invert), "kept is"),
        ("tokens", column("advantage", lambda v: pa.nulls(len(v))), "advantage is nan"),
        ("tokens", lambda t: t.slice(1), "the tokens do not fit the rollouts' lengths"),
        ("tokens", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "the tokens do not fit the rollouts' lengths"),
        ("tokens", column("position", lambda v: pc.add(v, 1)), "the tokens do not fit the rollouts' lengths"),
        (
            "rollouts",
            column("length", fill(2**31 - 1)),
            "the tokens do not fit the rollouts' lengths",
        ),  # and no memory is asked for
        ("tokens", column("sampler_logprob", lambda v: pc.multiply(v, pa.scalar(0, pa.float32()))), "is"),
        ("rollouts", column("polarity", pc.negate), "polarity is"),
        ("rollouts", column("reward", nudge(0.25)), "advantage is"),
        ("rollouts", column("f_selected", nudge(1.0)), "f_selected is"),
        ("rollouts", column("length", lambda v: pc.add(v, 1)), "the tokens do not fit"),
        ("rollouts", lambda t: t.slice(1), "group 0: 3 rollouts where the group says 4"),
        ("rollouts", lambda t: pa.concat_tables([t.slice(0, 1), t]), "group 0: the same key twice"),
        ("rollouts", column("correct", pc.invert), "correct rollouts where the group says"),
        ("groups", lambda t: t.slice(1), "group 0: rollouts without a group"),
        ("groups", lambda t: pa.concat_tables([t, t]), "the same key twice"),
        ("groups", column("class", swap_classes), "step 1, train, group 0: class is "),
        ("groups", column("weight", nudge(0.01, at=2)), "step 1, train, group 2: weight is 1.00999999 in the store"),
        ("groups", column("length_advantage", flip), "step 1, train, group 0: length_advantage is "),
        ("groups", column("difficulty_advantage", flip), "step 1, train, group 0: difficulty_advantage is "),
        ("groups", column("longest_correct", lambda v: pa.nulls(len(v))), "longest_correct is missing in the store"),
        ("groups", column("mean_wrong_length", fill(3.5)), "mean_wrong_length is 3.5 in the store"),
        ("metrics", column("mass_positive", scale(1.0001)), "step 1: mass_positive is "),
        ("metrics", column("mass_negative", scale(0.9999)), "step 1: mass_negative is "),
        ("metrics", column("mass_positive_base", scale(2)), "step 1: mass_positive_base is "),
        (
            "metrics",
            column("mass_negative_base", lambda v: pa.nulls(len(v))),
            "mass_negative_base is missing in the metrics",
        ),
        ("metrics", lambda t: pa.concat_tables([t, t]), "step 1: 2 rows of metrics"),
        ("metrics", lambda t: t.slice(1), "step 1: no metrics"),
        ("summary", lambda t: t.slice(1), "the summary counts"),
        ("positions", lambda t: t.slice(1), "positions counts"),
    ],
)
def test_every_broken_promise_is_seen(run_dir: Path, table: str, how: Change, told: str) -> None:
    report = change(run_dir, 1, table, how)
    assert not report.ok
    assert any(told in problem for problem in report.problems), report.problems


@pytest.fixture
def gap_dir(tmp_path: Path) -> Path:
    """A run whose sampler was another engine than the trainer's model."""
    return make_run(tmp_path, "gap", steps=2, prompts=3, group_size=4, gap=0.2, tis={"cap": 1.3, "gap": 0.15})


@pytest.mark.parametrize(
    ("table", "how", "told"),
    [
        ("tokens", column("tis", nudge(3e-6, at=4)), "step 1, train, group 0, rollout 0, position 4: tis is"),
        ("tokens", column("tis", lambda v: pa.nulls(len(v))), "tis is nan in the store"),
        ("tokens", column("trainer_logprob", nudge(0.01, at=2)), "position 2: tis is"),
        ("metrics", column("gap_mean", scale(1.0001)), "step 1: gap_mean is "),
        ("metrics", column("gap_max", nudge(0.01)), "step 1: gap_max is "),
        ("metrics", column("gap_share", nudge(0.01)), "step 1: gap_share is "),
        ("metrics", column("tis_mean_ratio", scale(1.0001)), "step 1: tis_mean_ratio is "),
        ("metrics", column("tis_capped_share", lambda v: pa.nulls(len(v))), "tis_capped_share is missing"),
        ("metrics", column("gap_mean", lambda v: pa.nulls(len(v))), "but this step corrected nothing"),
    ],
)
def test_a_correction_that_does_not_follow_from_the_log_probs_is_seen(
    gap_dir: Path, table: str, how: Change, told: str
) -> None:
    assert check(gap_dir).problems == []
    report = change(gap_dir, 1, table, how)
    assert any(told in problem for problem in report.problems), report.problems


def test_a_correction_that_never_was_is_seen(run_dir: Path) -> None:
    problems = change(run_dir, 1, "tokens", column("tis", lambda v: pa.array([1.0] * len(v)))).problems
    assert problems == ["step 1, train, group 0, rollout 0, position 0: tis is 1, but this step corrected nothing"]


def test_a_gap_without_a_correction_passes_live_and_sealed(tmp_path: Path) -> None:
    path = make_run(tmp_path, "plain", steps=2, prompts=3, group_size=4, gap=0.2, tis={"cap": None})
    lab = open_runs([path])
    assert lab.rows("SELECT count(tis) AS n FROM tokens") == [{"n": 0}]
    assert [row["tis_capped_share"] for row in lab.rows("SELECT * FROM metrics")] == [None, None]
    assert lab.rows("SELECT min(gap_mean) AS gap FROM metrics")[0]["gap"] > 0.05
    live = check(path)
    assert live.ok, live.problems
    seal(path)
    shutil.rmtree(path / "steps")
    assert check(path) == live


@pytest.fixture(scope="session")
def _penalised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    method = {"name": "lp_reg", "set": {"lp_reg.ratio": 0.2, "min_p": 0.3}, "mass_matched": True, "also": ["polarity"]}
    root = tmp_path_factory.mktemp("penalised")
    return make_run(root, "lp", method=method, steps=2, prompts=3, group_size=4)


@pytest.fixture
def penalised_dir(_penalised: Path, tmp_path: Path) -> Path:
    """A run with a penalty towards a proxy, and matched mass."""
    return shutil.copytree(_penalised, tmp_path / "lp")


@pytest.mark.parametrize(
    ("table", "how", "told"),
    [
        ("tokens", column("penalty", nudge(0.01, at=4)), "step 1, train, group 0, rollout 0, position 4: penalty is"),
        ("tokens", column("penalty", lambda v: pa.nulls(len(v))), "penalty is nan in the store"),
        ("tokens", column("proxy_logprob", nudge(-2.0, at=3)), "position 3: proxy_logprob is "),
        ("tokens", column("proxy_logprob", lambda v: pa.nulls(len(v))), "needs proxy_logprob"),
        ("rollouts", column("f_mass_matched", nudge(0.01, at=2)), "f_mass_matched is"),
        ("rollouts", column("minibatch", lambda v: pa.array(range(len(v)))), "minibatch is"),
    ],
)
def test_a_penalty_a_proxy_or_a_mass_that_is_not_what_trained_is_seen(
    penalised_dir: Path, table: str, how: Change, told: str
) -> None:
    assert check(penalised_dir).problems == []
    report = change(penalised_dir, 1, table, how)
    assert any(told in problem for problem in report.problems), report.problems


def test_a_penalty_that_the_method_does_not_have_is_seen(run_dir: Path) -> None:
    problems = change(run_dir, 1, "tokens", column("penalty", lambda v: pa.array([0.5] * len(v)))).problems
    assert problems == ["step 1, train, group 0, rollout 0, position 0: penalty is 0.5, but this method has none"]


def test_the_largest_difference_and_its_place_are_reported(run_dir: Path) -> None:
    report = change(run_dir, 2, "tokens", column("advantage", nudge(0.5, at=-1)))
    assert report.largest_difference == pytest.approx(0.5, rel=0.7)
    assert report.where.startswith("step 2, ")
    assert report.where in report.problems[0]


def test_a_missing_step_is_named(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "steps/step=000001")
    assert "steps 1 are missing" in check(run_dir).problems


def test_a_finished_run_without_its_last_steps_is_not_whole(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", steps=3, prompts=2, group_size=4)
    assert check(path).ok
    for step in (2, 3):
        shutil.rmtree(path / f"steps/step={step:06d}")
    assert check(path).problems == ["the run says that it is finished, but 2 of its 3 steps are here"]
    stopped = make_run(tmp_path, "stopped", steps=2, prompts=2, group_size=4, state="stopped")
    assert check(stopped).ok


def test_a_lost_table_is_named(run_dir: Path) -> None:
    (run_dir / "steps/step=000001/tokens.parquet").unlink()
    (run_dir / "steps/step=000002/rollouts.parquet").unlink()
    problems = check(run_dir).problems
    assert any("step 1, train: the tokens do not fit" in problem for problem in problems)
    assert any("step 2, train, group 0: a group without rollouts" in problem for problem in problems)
    assert "step 2: no rollouts" in problems


def test_a_run_that_was_trained_otherwise_than_its_config_says_fails(run_dir: Path) -> None:
    config = run_dir / "config.yaml"
    config.write_text(config.read_text().replace("name: a3po", "name: grpo"))
    assert not check(run_dir).ok


def test_a_damaged_file_is_a_problem_not_a_crash(run_dir: Path) -> None:
    for table in ("groups", "metrics"):
        (run_dir / f"steps/step=000001/{table}.parquet").write_bytes(b"rubbish")
    problems = check(run_dir).problems
    assert any("groups.parquet" in problem for problem in problems)
    assert any("metrics.parquet" in problem for problem in problems)


def test_replay_gives_the_trace_that_trained(run_dir: Path, settings: RunConfig) -> None:
    record = records(settings, 2)[1]
    train = record.splits[0]
    again = replay(run_dir, "run", 1)
    assert [again.row[g, r] for g, r in zip(train.group, train.rollout, strict=True)] == list(range(len(train.group)))
    mask = again.batch.mask
    assert np.array_equal(again.trace.advantage[mask], train.trace.advantage[:, : mask.shape[1]][mask])
    assert [f.id for f in again.trace.factors] == [f.id for f in train.trace.factors]
    for mine, theirs in zip(again.trace.factors, train.trace.factors, strict=True):
        assert mine.reason == theirs.reason
        assert mine.explain(2, 1) == theirs.explain(2, 1)
    assert again.trace.explain_base(3, 0) == train.trace.explain_base(3, 0)


def test_replay_has_all_that_the_rules_saw(penalised_dir: Path) -> None:
    config = read_run(penalised_dir / "config.yaml")
    assert config.proxy_min_p == 0.3
    train = records(config, 2)[1].splits[0]
    batch = replay(penalised_dir, "lp", 1).batch
    mask = batch.mask
    assert batch.minibatches == config.updates.minibatches
    for name in ("rollout", "group"):
        assert getattr(batch, name).tolist() == getattr(train, name).tolist(), name
    assert (batch.seed, batch.proxy_min_p) == (config.seed, 0.3)
    assert np.array_equal(batch.proxy_logprob[mask], train.proxy_logprob[:, : mask.shape[1]][mask])
    assert (batch.proxy_logprob[mask] == PROXY_DROPPED).any()
    assert replay(penalised_dir, "lp", 0, "probe").batch.minibatches == 1


def test_random_rules_draw_with_the_runs_seed(tmp_path: Path) -> None:
    method = {"name": "clip_cov", "set": {"clip_cov.ratio": 0.1, "cov_low": 0.01}}
    path = make_run(tmp_path, "run", method=method, steps=2, prompts=3, group_size=4, seed=11)
    assert check(path).problems == []
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("seed: 11", "seed: 12"))
    assert any("f_clip_cov is" in problem for problem in check(path).problems)


def test_replay_works_for_probes_on_an_open_lab_and_for_another_method(run_dir: Path) -> None:
    lab = open_runs([run_dir])
    again = replay(lab, "run", 2, "probe")
    assert len(again.row) == 8
    other = compute(build("psr"), again.batch)
    assert other.advantage.shape == again.trace.advantage.shape


def test_replay_of_what_is_not_there_says_so(run_dir: Path) -> None:
    with pytest.raises(StoreError, match="run, step 77, train: there are no rollouts"):
        replay(run_dir, "run", 77)
    with pytest.raises(StoreError, match="run, step 0, eval: the tokens do not fit"):
        replay(run_dir, "run", 0, "eval")


def test_a_recipe_may_change_and_a_stored_runs_numbers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run(tmp_path, "run", method="a3po", steps=2, prompts=3, group_size=4)
    later = replace(RECIPES["a3po"], on="grpo", own=(Param("ratio", 0.5, "[I]", target="a3po.ratio"),))
    monkeypatch.setitem(RECIPES, "a3po", later)
    assert read_run(path / "config.yaml").build_method().label == "A3PO"
    assert replay(path, "run", 1).trace.method.label == "A3PO on DAPO"
    assert check(path).problems == []
    (path / "schema.json").write_text(re.sub('"settings"', '"other"', (path / "schema.json").read_text()))
    assert check(path).problems, "without what it wrote out, the run is taken for what the recipe says now"
