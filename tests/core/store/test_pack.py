"""Packed runs: every row as in the run they were made from, tokens of some steps, nothing of the machine."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config import dump, read_run
from core.runs import RunError, delete, resume
from core.runs.folders import PACKED, list_runs
from core.store import StoreError, check, fingerprint, open_runs, pack, replay, schema, seal, write_step
from core.store import files as store_files
from core.store.pack import ROUNDED, choose_steps
from core.store.queries.by_step import ByStep
from core.store.queries.landmarks import held_back, strongest_push
from core.store.queries.live import Follower, newest_with_tokens
from core.store.queries.tokens import group_tokens, steps_with_tokens
from core.store.sql import query
from tests.synthetic import make_run, records

STEPS, KEPT = 9, 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of nine steps and a final evaluation, A3PO's token factor and ADORA's prompt weight in it."""
    method = {"name": "a3po", "also": ["adora_attenuate"]}
    return make_run(tmp_path_factory.mktemp("runs"), "run", method=method, steps=STEPS, prompts=3, group_size=4)


@pytest.fixture(scope="module")
def packed(whole: Path) -> Path:
    return pack(whole, whole.parent / "packs" / "run", token_steps=KEPT)


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    """A pack that a test may break."""
    return shutil.copytree(packed, tmp_path / "run")


def everything(path: Path, table: str) -> pd.DataFrame:
    keys = ("step", "split", "group", "rollout", "position", "polarity", "bin", "field", "token_id")
    with open_runs([path]) as lab:
        order = ", ".join(f'"{key}"' for key in keys if key in lab.columns(table))
        return lab.df(f"SELECT * FROM {table} ORDER BY {order}")


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_row_is_there_but_for_the_tokens_of_most_steps(whole: Path, packed: Path, table: str) -> None:
    expected, found = everything(whole, table), everything(packed, table)
    if table == "tokens":
        with open_runs([packed]) as lab:
            kept = steps_with_tokens(lab, "run")
        assert len(kept) == KEPT
        expected = expected[expected["step"].isin(kept)].reset_index(drop=True)
    assert len(found) > 0
    rounding = {"rtol": 1e-6} if table in ROUNDED else {"check_exact": True}
    pd.testing.assert_frame_equal(found, expected, **rounding)


def test_it_reads_like_any_run(whole: Path, packed: Path) -> None:
    with open_runs([packed]) as lab, open_runs([whole]) as before:
        assert lab.steps("run") == before.steps("run") == list(range(STEPS + 1))
        step = max(steps_with_tokens(lab, "run") - {STEPS})
        assert newest_with_tokens(lab, "run", STEPS - 1) == step
        assert newest_with_tokens(before, "run", STEPS - 1) == STEPS - 1
        pd.testing.assert_frame_equal(
            group_tokens(lab, "run", step, "train", 1), group_tokens(before, "run", step, "train", 1)
        )
        assert not lab.step("run", step).rows("SELECT * FROM tokens WHERE step <> ?", [step])
        again = replay(lab, "run", step)
        assert again.trace.advantage.shape == replay(before, "run", step).trace.advantage.shape
    assert check(packed).ok
    assert sorted(Follower(packed).read().metrics["step"]) == list(range(STEPS))


def test_beside_a_live_and_a_sealed_run_all_are_one_table(whole: Path, packed: Path, tmp_path: Path) -> None:
    live = make_run(tmp_path, "live", method="psr", steps=2, prompts=2, group_size=2)
    sealed = make_run(tmp_path, "sealed", method="nsr", steps=2, prompts=2, group_size=2, sealed=True)
    with open_runs([live, sealed, packed]) as lab:
        rows = lab.rows("SELECT run, count(*) AS n, count(f_a3po) AS shaped FROM tokens GROUP BY run ORDER BY run")
    assert [row["run"] for row in rows] == ["live", "run", "sealed"]
    assert [row["shaped"] > 0 for row in rows] == [False, True, False]
    found = query([live, sealed, packed], "SELECT run, max(step) AS last FROM metrics GROUP BY run ORDER BY run")
    assert found.rows == [("live", 1), ("run", STEPS - 1), ("sealed", 1)]
    assert query([packed], "SELECT count(DISTINCT step) FROM tokens").rows == [(KEPT,)]


def test_a_persons_sql_cannot_read_the_packs_files_themselves(packed: Path) -> None:
    file = packed / PACKED / "metrics.parquet"
    with pytest.raises(StoreError):
        query([packed], f"SELECT * FROM read_parquet('{file}')")


def test_check_says_which_steps_it_recomputed_and_finds_a_changed_advantage(packed: Path, copy: Path) -> None:
    report = check(packed)
    assert report.recomputed is not None and len(report.recomputed) == KEPT
    assert report.rollouts > 0 and report.largest_difference < 1e-6
    file = copy / PACKED / "tokens.parquet"
    table = pq.read_table(file)
    advantage = table["advantage"].to_numpy().copy()
    advantage[5] += 0.5
    place = table.column_names.index("advantage")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(advantage)), file)
    assert any("advantage is" in problem for problem in check(copy).problems)


def test_a_step_without_tokens_is_named_with_those_that_have_them(packed: Path) -> None:
    with open_runs([packed]) as lab:
        without = min(set(lab.steps("run")) - steps_with_tokens(lab, "run"))
        with pytest.raises(StoreError, match=rf"step {without}: its tokens were left out of the pack; it has those of"):
            replay(lab, "run", without)


def test_kept_are_the_first_steps_the_strongest_push_and_those_with_probes(whole: Path, packed: Path) -> None:
    with open_runs([whole]) as before, open_runs([packed]) as lab:
        strongest = strongest_push(before, "run")
        assert strongest is not None and strongest == strongest_push(lab, "run")
        rows = before.rows("SELECT max(abs(advantage * (1 - exp(sampler_logprob)))) AS most FROM tokens "
                           "WHERE split = 'train' AND kept")  # fmt: skip
        assert abs(strongest.push) == pytest.approx(rows[0]["most"], rel=1e-6)
    there = range(101)
    chosen = choose_steps(there, range(0, 101, 10), [37], 15)
    assert len(chosen) == 15 and {0, 1, 2, 5, 37, 40, 100} <= set(chosen)
    assert sum(step % 10 == 0 for step in chosen) == 11
    assert choose_steps(range(5), [], [], 15) == [0, 1, 2, 3, 4]
    even = choose_steps(range(400), [], [], 10)
    assert len(even) == 10 and max(b - a for a, b in itertools.pairwise(even)) <= 100
    assert len(choose_steps(range(400), range(0, 400, 5), [7, 9], 15)) == 15


def test_held_back_counts_prompts_below_the_heaviest(packed: Path) -> None:
    with open_runs([packed]) as lab:
        found = held_back(lab, "run")
        assert found
        for step, (held, others) in found.items():
            weights = [row["weight"] for row in lab.step("run", step).rows(
                "SELECT weight FROM groups WHERE split = 'train' AND kept")]  # fmt: skip
            assert held == sum(weight < max(weights) for weight in weights) > 0
            assert held + others == len(weights)


def test_nothing_of_the_machine_is_in_its_files(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "home" / "run")
    config = read_run(run / "config.yaml").model_copy(update={"model": str(tmp_path / "my-model")})
    (run / "config.yaml").write_text(dump(config))
    (run / "log.txt").write_text(f"12:00:00  training from step 0 to 9\n12:00:01  read {tmp_path}\nhome: {run}\n")
    status = json.loads((run / "status.json").read_text()) | {"host": "myhost", "pid": 7, "boot_id": "b00t"}
    (run / "status.json").write_text(json.dumps(status))
    out = pack(run, tmp_path / "out", experiment="shared")
    said = {file.name: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for secret in (str(tmp_path), "myhost", "b00t", "home"):
        assert not [name for name, text in said.items() if secret.encode() in text], secret
    assert said["log.txt"] == b"12:00:00  training from step 0 to 9\n"
    packed = read_run(out / "config.yaml")
    assert (packed.model, packed.experiment) == ("my-model", "shared")
    assert packed.model_copy(update={"model": config.model, "experiment": config.experiment}) == config


def test_only_runs_that_ended_are_packed_and_only_into_a_new_folder(whole: Path, packed: Path, tmp_path: Path) -> None:
    failed = make_run(tmp_path, "failed", steps=2, prompts=2, group_size=2, state="failed")
    with pytest.raises(StoreError, match="failed: only runs that finished or were stopped are packed"):
        pack(failed, tmp_path / "out")
    with pytest.raises(StoreError, match="already there"):
        pack(whole, packed)
    with pytest.raises(StoreError, match="no steps to pack"):
        empty = make_run(tmp_path, "empty", steps=1, state="queued")
        status = json.loads((empty / "status.json").read_text()) | {"state": "finished"}
        (empty / "status.json").write_text(json.dumps(status))
        pack(empty, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "failed"]


def test_a_run_without_a_list_of_its_factors_is_packed_too(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "schema.json").unlink()
    with open_runs([whole]) as before, open_runs([pack(run, tmp_path / "packs" / "run", token_steps=1)]) as lab:
        assert lab.steps("run") == list(range(STEPS + 1))
        assert lab.factors("tokens") == before.factors("tokens") != []


def test_a_pack_is_read_only_but_can_be_deleted(copy: Path) -> None:
    (info,) = [run for run in list_runs(copy.parent, examples=False) if run.id == "run"]
    assert info.packed and info.state == "finished"
    with pytest.raises(StoreError, match="run is packed, one file a table"):
        seal(copy)
    for more in (None, 50):
        with pytest.raises(RunError, match="run is packed, without its checkpoint"):
            resume(copy, more)
    delete(copy)
    assert not copy.exists()


def test_damaged_packs_get_a_sentence(copy: Path, tmp_path: Path) -> None:
    def breaks(word: str, change) -> None:
        broken = shutil.copytree(copy, tmp_path / word.replace(" ", "-") / "run")
        change(broken / PACKED)
        with pytest.raises(StoreError, match=word):
            open_runs([broken])

    breaks("is missing", lambda folder: (folder / "pack.json").unlink())
    breaks("does not say", lambda folder: (folder / "pack.json").write_text("[1"))
    breaks("missing; copy", lambda folder: (folder / "rollouts.parquet").unlink())
    breaks("or damaged", lambda folder: (folder / "groups.parquet").write_bytes(b"PAR1 no"))

    def other(name: str, **changes: object):
        def change(folder: Path) -> None:
            data = json.loads((folder / "pack.json").read_text())
            (folder / "pack.json").write_text(json.dumps(data | changes))

        breaks(name, change)

    other("this version reads 1", format=2)
    other("holds 9 rows where pack.json says 8", rows={"metrics": 8})
    other("it does not say", rows={"metrics": float("inf")})

    def retyped(folder: Path) -> None:
        table = pq.read_table(folder / "metrics.parquet")
        place = table.column_names.index("reward")
        pq.write_table(table.set_column(place, "reward", table["reward"].cast(pa.string())), folder / "metrics.parquet")

    breaks("metrics.reward is VARCHAR, a packed run has DOUBLE", retyped)
    breaks("has both", lambda folder: (folder.parent / store_files.SEALED).write_bytes(b"x"))


@pytest.mark.parametrize("steps", [[10**40], [-1], [0.5], [True], True, [float("inf")], [float("nan")]], ids=str)
@pytest.mark.parametrize("name", ["steps", "token_steps"])
def test_a_list_of_steps_that_cannot_be_gets_a_sentence(copy: Path, name: str, steps: object) -> None:
    file = copy / PACKED / "pack.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: steps}))
    with pytest.raises(StoreError, match=r"pack\.json: damaged, it does not say"):
        open_runs([copy])


def test_check_names_steps_that_a_pack_does_not_list_and_a_far_gap_at_once(copy: Path) -> None:
    file = copy / PACKED / "pack.json"
    data = json.loads(file.read_text())
    assert data["steps"] == list(range(STEPS + 1))
    file.write_text(json.dumps(data | {"steps": [*range(STEPS), 10**11]}))
    report = check(copy)
    assert f"steps {', '.join(map(str, range(STEPS, STEPS + 10)))} are missing" in report.problems
    assert f"rollouts has rows of step {STEPS}, which the run does not list" in report.problems


def test_check_says_once_that_the_config_cannot_be_read(copy: Path) -> None:
    (copy / "config.yaml").write_text("{{{")
    (problem,) = check(copy).problems
    assert "config.yaml" in problem and "not valid YAML" in problem


def test_bytes_changed_inside_a_table_get_a_sentence(copy: Path) -> None:
    file = copy / PACKED / "rollouts.parquet"
    content = bytearray(file.read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
    file.write_bytes(content)
    with open_runs([copy]) as lab, pytest.raises(StoreError, match="run: cannot be read"):
        lab.df("SELECT * FROM rollouts")


def test_caches_see_a_pack_that_was_replaced(whole: Path, copy: Path) -> None:
    before, rows = fingerprint([copy]), ByStep(lambda lab, run: lab.df("SELECT step FROM metrics ORDER BY step"))
    follower = Follower(copy)
    with open_runs([copy]) as lab:
        assert len(rows.read(lab, "run")) == len(follower.read().metrics) == STEPS
    shutil.rmtree(copy)
    make_run(copy.parent, "run2", steps=3, prompts=2, group_size=2)
    pack(copy.parent / "run2", copy)
    assert fingerprint([copy]) != before
    with open_runs([copy]) as lab:
        assert len(rows.read(lab, "run")) == len(follower.read().metrics) == 3


def test_steps_written_beside_a_pack_win_over_its_own(copy: Path) -> None:
    config = read_run(copy / "config.yaml")
    record = records(config, 3)[2]
    record.metrics["reward"] = 77.0
    write_step(copy, record)
    with open_runs([copy]) as lab:
        rows = lab.rows("SELECT step, reward FROM metrics WHERE step <= 3 ORDER BY step")
        assert [row["step"] for row in rows] == [0, 1, 2, 3]
        assert [row["reward"] == 77 for row in rows] == [False, False, True, False]
        assert lab.step("run", 2).rows("SELECT reward FROM metrics") == [{"reward": 77.0}]


def test_the_packs_folder_has_one_name() -> None:
    assert PACKED == store_files.PACKED
