"""The same views over live, sealed, failed and empty runs, together."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml

from core.advantage.tis import GAP_METRICS
from core.store import StoreError, check, fingerprint, open_runs, replay, schema, seal, write_step
from core.store.queries.live import Follower
from core.store.queries.tokens import group_tokens
from core.store.queries.tokens_run import agreement
from tests.synthetic import make_run

HOSTILE = [
    "it's",
    'quo"te',
    "br[a]ck*t?",
    "{a,b}",
    "semi;DROP TABLE tokens--",
    "step=000003",
    "k=v",
    "né 漢 🦆",
    "a\nb",
    "%s $1",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A live run, a failed one, a sealed one without its steps, and one that never made a step."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        "live": make_run(root, "live", method="a3po", steps=3, state="running"),
        "failed": make_run(root, "failed", method="adora_amplify", steps=2, state="failed"),
        "sealed": make_run(root, "sealed", method="dapo", steps=4, sealed=True),
        "empty": make_run(root, "empty", method="psr", state="queued"),
    }
    shutil.rmtree(made["sealed"] / "steps")
    return made


def test_every_table_has_all_runs_with_rows(runs: dict[str, Path]) -> None:
    lab = open_runs(runs.values())
    assert lab.runs == ["live", "failed", "sealed", "empty"]
    for table in schema.TABLES:
        frame = lab.df(f"SELECT * FROM {table}")
        assert list(frame.columns)[: 1 + len(schema.COLUMNS[table])] == [
            "run", *(column.name for column in schema.COLUMNS[table])
        ]  # fmt: skip
        assert set(frame["run"]) == {"live", "failed", "sealed"}
    assert lab.steps("live") == [0, 1, 2]
    assert lab.steps("sealed") == [0, 1, 2, 3, 4]
    assert lab.steps("empty") == []


LATER = {
    "tokens": ["tis", "proxy_logprob", "penalty"],
    "metrics": [*GAP_METRICS, "penalty", "penalised_share", "time_proxy"],
}
"""Columns that the first version did not have."""


def as_the_first_version_wrote_it(run: Path, steps: Sequence[int]) -> None:
    """Take later columns out of live steps, and later settings out of the config."""
    for step in steps:
        for table, gone in LATER.items():
            for file in (run / "steps" / f"step={step:06d}").glob(f"{table}.parquet"):
                pq.write_table(pq.read_table(file, partitioning=None).drop_columns(gone), file)
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["tis"], config["overlong"], config["record"]["proxy_min_p"], config["method"]["mass_matched"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("steps", [range(4), range(1)], ids=["an old run", "an old run that went on"])
def test_a_run_from_before_a_column_opens_with_nulls_live_and_sealed(tmp_path: Path, steps: Sequence[int]) -> None:
    path = make_run(tmp_path, "old", method="a3po", steps=3, prompts=4, group_size=4, updates={"minibatches": 2})
    as_the_first_version_wrote_it(path, steps)
    for sealed in (False, True):
        if sealed:
            seal(path)
            shutil.rmtree(path / "steps")
        lab = open_runs([path])
        counts = ", ".join(f"count({name}) AS {name}" for name in LATER["tokens"])
        (row,) = lab.rows(f"SELECT count(*) AS tokens, {counts} FROM tokens")
        assert row.pop("tokens") > 0 and set(row.values()) == {0}
        nulls = lab.rows(f"SELECT {', '.join(LATER['metrics'])} FROM metrics")
        assert nulls == [dict.fromkeys(LATER["metrics"])] * 3
        batch = replay(lab, "old", 1).batch
        assert batch.proxy_logprob is None and batch.proxy_min_p is None and batch.minibatches == 2
        assert len(group_tokens(lab, "old", 0, "train", 0)) > 0
        assert Follower(path).read().metrics["reward"].notna().all()
        report = check(path)
        assert report.ok, report.problems


def test_factor_columns_are_united_and_null_where_a_run_lacks_one(runs: dict[str, Path]) -> None:
    lab = open_runs(runs.values())
    assert lab.factors("rollouts") == ["f_adora_amplify", "f_selected"]
    assert lab.factors("tokens") == ["f_a3po"]
    counts = {
        row["run"]: (row["a3po"], row["tokens"])
        for row in lab.rows("SELECT run, count(f_a3po) AS a3po, count(*) AS tokens FROM tokens GROUP BY run")
    }
    assert counts["live"][0] == counts["live"][1] > 0
    assert counts["failed"][0] == counts["sealed"][0] == 0
    types = dict(lab.rows("SELECT column_name AS a, column_type AS b FROM (DESCRIBE tokens)")[-1].items())
    assert types == {"a": "f_a3po", "b": "FLOAT"}


@pytest.mark.parametrize("which", ["live", "failed", "sealed", "empty"])
def test_types_are_the_same_wherever_the_rows_lie(runs: dict[str, Path], which: str) -> None:
    every, one = open_runs(runs.values()), open_runs([runs[which]])
    for table in schema.TABLES:
        described = "SELECT column_name, column_type FROM (DESCRIBE {}) WHERE column_name NOT LIKE 'f~_%' ESCAPE '~'"
        assert one.rows(described.format(table)) == every.rows(described.format(table))


def test_a_run_without_steps_has_empty_views_with_its_factors(runs: dict[str, Path]) -> None:
    lab = open_runs([runs["empty"]])
    assert lab.df("SELECT * FROM metrics").shape == (0, 1 + len(schema.METRICS))
    assert lab.factors("rollouts") == ["f_selected"]  # from schema.json
    assert lab.step("empty", 0).rows("SELECT * FROM tokens") == []


def test_no_runs_at_all_give_empty_views() -> None:
    lab = open_runs([])
    assert lab.runs == []
    assert lab.rows("SELECT run, step FROM tokens") == []


@pytest.mark.parametrize("which", ["live", "sealed"])
def test_one_step_gives_what_a_filter_gives(runs: dict[str, Path], which: str) -> None:
    lab = open_runs(runs.values())
    for table in schema.TABLES:
        for step in (0, 2, 99):
            expected = lab.rows(f"SELECT * FROM {table} WHERE run = ? AND step = ? ORDER BY ALL", [which, step])
            assert lab.step(which, step).rows(f"SELECT * FROM {table} ORDER BY ALL") == expected


def test_one_step_takes_queries_with_their_own_with_clause(runs: dict[str, Path]) -> None:
    step = open_runs(runs.values()).step("live", 1)
    counted = step.rows("SELECT count(*) AS n FROM tokens")
    assert step.rows("WITH t AS (SELECT * FROM tokens) SELECT count(*) AS n FROM t") == counted
    assert (
        step.rows("with recursive t AS (SELECT * FROM tokens) SELECT count(*) AS n FROM t WHERE step >= ?", [0])
        == counted
    )
    assert step.rows("SELECT 1 AS one") == [{"one": 1}]


def test_numbers_come_as_arrays_with_nan_for_null(runs: dict[str, Path]) -> None:
    columns = open_runs([runs["live"]]).arrays("SELECT position, ref_logprob, entropy FROM tokens")
    assert columns["position"].dtype == "int32"
    assert bool((columns["ref_logprob"] != columns["ref_logprob"]).all())
    assert columns["entropy"].dtype == "float32"


@pytest.fixture(scope="module")
def sealed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sealed file of a run with four steps."""
    path = make_run(tmp_path_factory.mktemp("sealed"), "run", steps=3, prompts=3, group_size=4, sealed=True)
    return path / "rollouts.duckdb"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("where", ["run", "parent"])
def test_hostile_folder_names(tmp_path: Path, run_dir: Path, sealed_file: Path, name: str, where: str) -> None:
    path = tmp_path / name / "inner" if where == "parent" else tmp_path / "x" / name
    shutil.copytree(run_dir, path)
    decoy = tmp_path / "x" / "bra"  # what br[a]ck*t? and {a,b} would match as patterns
    shutil.copytree(run_dir, decoy, dirs_exist_ok=True)
    for state in ("live", "sealed"):
        if state == "sealed":
            (path / "steps").rename(tmp_path / "steps")
            shutil.copy(sealed_file, path / "rollouts.duckdb")
        lab = open_runs([path])
        assert lab.runs == [path.name]
        assert lab.rows("SELECT DISTINCT run, step FROM tokens ORDER BY step") == [
            {"run": path.name, "step": step} for step in (0, 1, 2, 3)
        ]
        assert lab.step(path.name, 2).rows("SELECT DISTINCT step FROM rollouts") == [{"step": 2}]
    (path / "rollouts.duckdb").unlink()
    (tmp_path / "steps").rename(path / "steps")
    (path / "status.json").write_text('{"state": "finished"}')
    if "?" in name:
        with pytest.raises(StoreError, match=r"a folder with \? in its name cannot be sealed"):
            seal(path)
    else:
        seal(path)
        assert open_runs([path]).source(path.name).live == {}


def test_a_folder_name_that_is_not_utf8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    path.mkdir()
    with pytest.raises(StoreError, match="not valid UTF-8"):
        open_runs([path])


def test_live_rows_win_over_sealed_rows_of_the_same_step(run_dir: Path, step_record) -> None:
    (run_dir / "status.json").write_text('{"state": "finished"}')
    seal(run_dir)
    shutil.rmtree(run_dir / "steps")
    step_record.step, step_record.metrics = 2, {"reward": 42.0}
    write_step(run_dir, step_record)
    step_record.step = 4
    write_step(run_dir, step_record)
    lab = open_runs([run_dir])
    rewards = {row["step"]: row["reward"] for row in lab.rows("SELECT step, reward FROM metrics")}
    assert rewards[2] == rewards[4] == 42.0 and rewards[1] != 42.0
    assert len(lab.rows("SELECT * FROM metrics")) == 4
    assert lab.steps("run") == [0, 1, 2, 3, 4]
    for step in (1, 2, 4):
        assert lab.step("run", step).rows("SELECT reward FROM metrics") == [{"reward": rewards[step]}]


def test_steps_that_the_sealed_file_already_holds_are_read_from_it(run_dir: Path) -> None:
    (run_dir / "status.json").write_text('{"state": "finished"}')
    before = open_runs([run_dir]).rows("SELECT * FROM tokens ORDER BY ALL")
    seal(run_dir)
    lab = open_runs([run_dir])
    assert lab.source("run").live == {}
    assert lab.rows("SELECT * FROM tokens ORDER BY ALL") == before
    shutil.rmtree(run_dir / "steps")
    assert lab.rows("SELECT * FROM tokens ORDER BY ALL") == before


def test_a_step_that_vanishes_is_looked_for_once_more(run_dir: Path) -> None:
    lab = open_runs([run_dir])
    shutil.rmtree(run_dir / "steps/step=000001")
    assert {row["step"] for row in lab.rows("SELECT step FROM tokens")} == {0, 2, 3}
    shutil.rmtree(run_dir / "steps")
    assert lab.rows("SELECT step FROM tokens") == []


def test_a_limit_of_memory_holds_after_looking_once_more(run_dir: Path) -> None:
    lab = open_runs([run_dir])
    lab.limit_memory(100)
    limit = "SELECT current_setting('memory_limit') AS most"
    assert lab.rows(limit) == [{"most": "95.3 MiB"}]  # of 1,024 x 1,024 bytes
    shutil.rmtree(run_dir / "steps")
    assert lab.rows("SELECT step FROM tokens") == []
    assert lab.rows(limit) == [{"most": "95.3 MiB"}]


def test_many_threads_query_one_lab(runs: dict[str, Path]) -> None:
    lab = open_runs(runs.values())
    expected = {run: lab.rows("SELECT count(*) AS n FROM tokens WHERE run = ?", [run])[0]["n"] for run in lab.runs}
    start = threading.Barrier(8)

    def ask(i: int) -> bool:
        run = lab.runs[i % 4]
        start.wait()
        return all(
            lab.rows("SELECT count(*) AS n FROM tokens WHERE run = ?", [run])[0]["n"] == expected[run]
            for _ in range(10)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_the_fingerprint_changes_when_there_is_something_new(run_dir: Path, step_record) -> None:
    seen = [fingerprint([run_dir])]
    assert fingerprint([run_dir]) == seen[0]
    hash(seen[0])
    step_record.step = 9
    write_step(run_dir, step_record)
    seen.append(fingerprint([run_dir]))
    write_step(run_dir, step_record)
    seen.append(fingerprint([run_dir]))
    (run_dir / "status.json").write_text('{"state": "finished"}')
    seal(run_dir)
    seen.append(fingerprint([run_dir]))
    assert len(set(seen)) == 4


def test_clear_sentences_for_what_cannot_be_opened(tmp_path: Path, run_dir: Path) -> None:
    with pytest.raises(StoreError, match="no such run folder"):
        open_runs([tmp_path / "nowhere"])
    twin = tmp_path / "other" / "run"
    shutil.copytree(run_dir, twin)
    with pytest.raises(StoreError, match="two of the run folders are named run"):
        open_runs([run_dir, twin])
    lab = open_runs([run_dir])
    with pytest.raises(StoreError, match=r"nope: not one of the runs that are open \(run\)"):
        lab.step("nope", 0)
    (run_dir / "schema.json").write_text('{"format": 99, "rollout_factors": [], "token_factors": []}')
    with pytest.raises(StoreError, match="format is 99"):
        open_runs([run_dir])
    (run_dir / "schema.json").write_text('{"format": 1, "rollout_factors": ["x; DROP"], "token_factors": []}')
    with pytest.raises(StoreError, match="factor's id"):
        open_runs([run_dir])


def test_a_damaged_step_is_named(run_dir: Path) -> None:
    (run_dir / "steps/step=000001/tokens.parquet").write_bytes(b"PAR1 rubbish")
    lab = open_runs([run_dir])
    assert len(lab.rows("SELECT * FROM metrics")) == 3
    with pytest.raises(StoreError, match=r"step=000001/tokens\.parquet"):
        lab.rows("SELECT * FROM tokens")
    (run_dir / "steps/step=000003/tokens.parquet").write_bytes(b"rubbish")
    with pytest.raises(StoreError, match=r"step=000003/tokens\.parquet: not a Parquet file"):
        open_runs([run_dir])


def test_mistakes_in_a_query_are_the_programmers(runs: dict[str, Path]) -> None:
    with pytest.raises(duckdb.CatalogException):
        open_runs([runs["live"]]).rows("SELECT * FROM nothing")
    tokens = [1]  # a Python variable is never a table
    with pytest.raises(duckdb.Error):
        open_runs([]).rows("SELECT x FROM tokens WHERE x = 1")
    assert tokens


def test_a_count_that_is_no_number_is_said_of_the_run(run_dir: Path) -> None:
    for file in run_dir.glob("steps/*/summary.parquet"):
        table = pq.read_table(file)
        place = table.schema.get_field_index("sum")
        pq.write_table(table.set_column(place, table.schema.field(place), [[float("nan")] * len(table)]), file)
    with open_runs([run_dir]) as lab, pytest.raises(StoreError, match="holds a value that cannot be used: Conversion"):
        agreement(lab, lab.runs[0])
