"""A person's SQL: everything that reads works, nothing that writes, reaches out or runs away does."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from core.store import StoreError, open_runs
from core.store.sql import query
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A sealed run without its steps, and a live one."""
    root = tmp_path_factory.mktemp("runs")
    sealed = make_run(root, "sealed", method="dapo", steps=3, prompts=3, group_size=4, sealed=True)
    shutil.rmtree(sealed / "steps")
    return [sealed, make_run(root, "live", method="a3po", steps=2, prompts=3, group_size=4, state="running")]


def disk(root: Path) -> dict[str, str]:
    """Every file under a folder with a hash of its contents."""
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT run, step, reward FROM metrics ORDER BY run, step",
        "FROM groups SELECT run, \"group\", count(*) AS n GROUP BY ALL ORDER BY ALL",
        "WITH t AS (SELECT * FROM tokens WHERE f_a3po > 1) SELECT run, count(*) AS n FROM t GROUP BY run ORDER BY run;",
        "SELECT run, max(advantage) AS most FROM (FROM tokens UNION ALL FROM tokens) GROUP BY run ORDER BY run",
        "SELECT a.run, sum(n)::BIGINT AS n FROM Summary a JOIN METRICS b USING (run, step) GROUP BY ALL ORDER BY ALL",
        "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM c WHERE x < 5) SELECT sum(x)::INT AS s FROM c",
        "SELECT traits['wait'] AS wait, text FROM rollouts ORDER BY ALL LIMIT 3 -- a comment; with a semicolon",
    ],
)  # fmt: skip
def test_queries_say_what_the_views_of_the_pages_say(runs: list[Path], sql: str) -> None:
    result = query(runs, sql)
    expected = open_runs(runs).rows(sql)
    assert [dict(zip(result.columns, row, strict=True)) for row in result.rows] == expected
    assert not result.truncated
    assert len(expected) > 0
    assert list(result.df().columns) == result.columns


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE tokens", "SUMMARIZE metrics"])
def test_looking_around_works(runs: list[Path], sql: str) -> None:
    assert len(query(runs, sql).rows) >= 6


def test_rows_beyond_the_limit_are_cut_and_it_says_so(runs: list[Path]) -> None:
    result = query(runs, "SELECT * FROM range(1000000000)", max_rows=7)
    assert (result.rows, result.truncated) == ([(i,) for i in range(7)], True)
    assert not query(runs, "SELECT * FROM range(7)", max_rows=7).truncated


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("", "exactly one SELECT statement, not nothing"),
        ("  -- nothing", "exactly one SELECT statement, not nothing"),
        ("SELECT 1; SELECT 2", "exactly one SELECT statement, not 2"),
        ("SELECT 1; DROP TABLE tokens", "exactly one SELECT statement, not 2"),
        ("COPY (SELECT 1) TO '{out}'", "not COPY"),
        ("ATTACH '{out}' AS x", "not ATTACH"),
        ("INSTALL httpfs", "not LOAD"),
        ("LOAD httpfs", "not LOAD"),
        ("PRAGMA database_list", "not PRAGMA"),
        ("SET enable_external_access = true", "not SET"),
        ("RESET lock_configuration", "not SET"),
        ("USE sealed_0", "not SET"),
        ("CREATE TABLE x AS SELECT 1", "not CREATE"),
        ("INSERT INTO live.tokens SELECT * FROM live.tokens", "not INSERT"),
        ("UPDATE sealed_0.main.tokens SET advantage = 0", "not UPDATE"),
        ("DELETE FROM sealed_0.main.tokens", "not DELETE"),
        ("DROP VIEW tokens", "not DROP"),
        ("DETACH sealed_0", "not DETACH"),
        ("CHECKPOINT sealed_0", "not CALL"),
        ("EXPORT DATABASE '{out}'", "not EXPORT"),
        ("EXPLAIN ANALYZE SELECT 1", "not EXPLAIN"),
        ("CALL pragma_version()", "not CALL"),
        ("PIVOT tokens ON step USING count(*)", "not PIVOT"),
        ("BEGIN", "not TRANSACTION"),
        ("WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1", "not COPY inside WITH"),
        ("SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1)", "not COPY inside WITH"),
        ("WITH x AS (INSERT INTO sealed_0.main.metrics (step) VALUES (9) RETURNING *) SELECT * FROM x", "not INSERT"),
        ("WITH x AS (DELETE FROM live.tokens RETURNING *) SELECT count(*) FROM x", "not DELETE"),
        ("WITH x AS (UPDATE sealed_0.main.metrics SET reward = 9 RETURNING *) SELECT * FROM x", "not UPDATE"),
        ("SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{out}'') SELECT 1')", "function query cannot"),
        ("SELECT * FROM QUERY_TABLE('tok' || 'ens')", "function query_table cannot"),
        ("SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))", "serialized_sql cannot"),
        ("SELECT * FROM read_csv('{secret}')", "Cannot access file"),
        ("SELECT * FROM read_text('{secret}')", "Cannot access file"),
        ("SELECT * FROM '{secret}'", "Cannot access file"),
        ("SELECT * FROM read_parquet('{live}/steps/*/tokens.parquet')", "Cannot access"),
        ("SELECT * FROM glob('/*')", "Cannot access"),
        ("SELECT * FROM sniff_csv('{secret}')", "Cannot access file"),
        ("SELECT * FROM read_json('http://localhost:9/x')", "Cannot access file"),
        ("SELECT getenv('HOME')", "does not exist"),
        ("SELECT * FROM sqlite_scan('{secret}', 'x')", "sqlite_scan"),
        ("SELECT * FROM secret_variable", "does not exist"),
        ("SELECT * FROM nope", "nope does not exist"),
        ("SELECT reward FROM metrics WHERE step = ?", "has parameters"),
        ("SELECT reward FROM metrics WHERE step = $step", "has parameters"),
        ("SELEC 1", "Parser Error"),
        ("SELECT '\udcff'", "not valid UTF-8"),
        ("SELECT " + "+".join(["1"] * 900), "nested too deeply"),
        ("SELECT '" + "x" * 100_000 + "'", "at most 100000 are allowed"),
    ],
)  # fmt: skip
def test_attacks_are_refused_and_leave_no_trace(runs: list[Path], tmp_path: Path, sql: str, told: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    secret_variable = [1, 2, 3]
    before = disk(runs[0].parent)
    with pytest.raises(StoreError, match=told) as refused:
        query(runs, sql.format(out=tmp_path / "out", secret=secret, live=runs[1]))
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert disk(runs[0].parent) == before
    assert secret_variable


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3",
        "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        "SELECT count(*) FROM tokens a, tokens b, tokens c WHERE a.entropy + b.entropy > c.entropy",
    ],
)
def test_a_query_that_runs_away_is_stopped(runs: list[Path], sql: str) -> None:
    started = time.perf_counter()
    with pytest.raises(StoreError, match=r"stopped after 0\.5 s"):
        query(runs, sql, timeout_s=0.5)
    assert time.perf_counter() - started < 10


def test_a_query_that_needs_too_much_memory_is_refused(runs: list[Path]) -> None:
    with pytest.raises(StoreError, match="needs more than 100MB of memory"):
        query(runs, "SELECT list(range) FROM range(100000000)", memory="100MB")


def test_nothing_is_left_in_the_temporary_folder(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    query(runs, "SELECT * FROM tokens ORDER BY advantage", memory="50MB")
    assert os.listdir(tmp_path) == []


def test_a_step_that_is_swept_away_meanwhile_is_no_error(
    runs: list[Path], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.store import sql as module

    real = module.find_all
    calls = []

    def find_then_sweep(*args: object) -> object:
        found = real(*args)
        if not calls:
            shutil.rmtree(run_dir / "steps/step=000001")
        calls.append(1)
        return found

    monkeypatch.setattr(module, "find_all", find_then_sweep)
    assert query([run_dir], "SELECT DISTINCT step FROM tokens ORDER BY step").rows == [(0,), (2,), (3,)]
    assert len(calls) == 2
