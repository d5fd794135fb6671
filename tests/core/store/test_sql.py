"""A person's SQL: everything that reads works, nothing that writes, reaches out or runs away does."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import psutil
import pytest

from core.store import StoreError, open_runs, schema, sql_worker
from core.store.sql import Result, query, result_of
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A sealed run without its steps, and a live one."""
    root = tmp_path_factory.mktemp("runs")
    sealed = make_run(root, "sealed", method="dapo", steps=3, prompts=3, group_size=4, sealed=True)
    shutil.rmtree(sealed / "steps")
    return [sealed, make_run(root, "live", method="a3po", steps=2, prompts=3, group_size=4, state="running")]


def ask(paths: list[Path], sql: str, max_rows: int = 10_000, max_bytes: int = 2**30) -> Result:
    """What a query's process would answer, without the half second that a process takes."""
    out = io.BytesIO()
    sql_worker.answer(out, paths, sql, 20.0, max_rows, "1GB", 2, max_bytes)
    return result_of(out.getvalue(), 20.0)


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
        "SELECT run, count(*) AS n FROM tokens GROUP BY run ORDER BY run",
        "SELECT max(t) AS last FROM metrics AS t",
        "SELECT count(*) AS n FROM metrics NATURAL JOIN evals",
        "SELECT a, b FROM evals AS e(run_of, a, b) ORDER BY ALL",
        "SELECT COLUMNS('pass_.*') FROM evals ORDER BY ALL",
        "SELECT Push AS step, STEP AS push FROM positions ORDER BY ALL",
    ],
)  # fmt: skip
def test_queries_say_what_the_views_of_the_pages_say(runs: list[Path], sql: str) -> None:
    result = ask(runs, sql)
    expected = open_runs(runs).rows(sql)
    assert [dict(zip(result.columns, row, strict=True)) for row in result.rows] == expected
    assert not result.truncated
    assert len(expected) > 0
    assert list(result.df().columns) == result.columns


def test_of_a_live_run_only_the_columns_that_are_named_are_copied(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    views = sql_worker._views

    def look(connection: duckdb.DuckDBPyConnection, *others: object) -> None:
        views(connection, *others)
        made.append([name for name, *_ in connection.execute("DESCRIBE live.tokens").fetchall()])

    monkeypatch.setattr(sql_worker, "_views", look)
    ask(
        runs, 'SELECT "group", avg(Advantage * exp(sampler_logprob)) AS mean FROM tokens GROUP BY "group" ORDER BY mean'
    )
    assert made == [["run", "step", "group", "sampler_logprob", "advantage"]]
    with pytest.raises(StoreError, match=r"advantages.*Candidate.*advantage"):
        ask(runs, "SELECT advantages FROM tokens")
    assert len(made) == 3 and len(made[2]) > 20  # a name that is missing is looked for among all


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE tokens", "SUMMARIZE metrics"])
def test_looking_around_works(runs: list[Path], sql: str) -> None:
    assert len(ask(runs, sql).rows) >= 6


def test_rows_beyond_the_limit_are_cut_and_it_says_so(runs: list[Path]) -> None:
    result = ask(runs, "SELECT * FROM range(1000000000)", max_rows=700)
    assert (result.rows, result.truncated) == ([(i,) for i in range(700)], True)
    whole = ask(runs, "SELECT * FROM range(700)", max_rows=700)
    assert (len(whole.rows), whole.truncated) == (700, False)


def test_rows_that_are_too_much_to_send_are_refused(runs: list[Path]) -> None:
    with pytest.raises(StoreError, match="rows are already too much to send"):
        ask(runs, "SELECT repeat('x', 10000) FROM range(100000)", max_bytes=10_000_000)


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
        ("SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{out}'') SELECT 1')", "table function query cannot"),
        ("SELECT * FROM QUERY_TABLE('tok' || 'ens')", "table function query_table cannot"),
        ("SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))", "serialized_sql cannot"),
        ("SELECT * FROM histogram_values(tokens, entropy)", "histogram_values cannot"),
        ("SELECT * FROM read_csv('{secret}')", "table function read_csv cannot"),
        ("SELECT (SELECT max(content) FROM read_text('{secret}'))", "read_text cannot"),
        ("DESCRIBE FROM read_csv('{secret}')", "read_csv cannot"),
        ("SELECT * FROM metrics, LATERAL (FROM glob('/*'))", "glob cannot"),
        ("SELECT * FROM '{secret}'", "does not exist; there are metrics"),
        ("SUMMARIZE '{secret}'", "does not exist; there are metrics"),
        ('WITH a AS (FROM "{secret}") FROM a', "does not exist; there are metrics"),
        ('WITH a AS (WITH "{secret}" AS (SELECT 1) SELECT 1) SELECT * FROM "{secret}"', "Cannot access file"),
        ("SELECT path FROM duckdb_databases WHERE (WITH duckdb_databases AS (SELECT 1) SELECT 1) = 1", "another name"),
        ("WITH a AS (FROM Pragma_Database_List), PRAGMA_database_list AS (SELECT 1) FROM a", "another name"),
        ("SELECT * FROM sealed_0.main.sealed_steps", "sealed_0.main.sealed_steps does not exist"),
        ("SELECT * FROM sealed_0.main.tokens", "sealed_0.main.tokens does not exist"),
        ("SELECT * FROM live.tokens", "live.tokens does not exist"),
        ("SELECT * FROM information_schema.tables", "information_schema.tables does not exist"),
        ("SELECT * FROM duckdb_settings()", "duckdb_settings cannot"),
        ("SELECT path FROM duckdb_databases()", "duckdb_databases cannot"),
        ("SELECT * FROM duckdb_databases", "duckdb_databases does not exist"),
        ("FROM pragma_database_list", "pragma_database_list does not exist"),
        ("SELECT * FROM duckdb_secrets()", "duckdb_secrets cannot"),
        ("SELECT * FROM enable_profiling(save_location = '{out}')", "enable_profiling cannot"),
        ("SELECT * FROM checkpoint('sealed_0')", "checkpoint cannot"),
        ("SHOW DATABASES", "only SHOW TABLES, DESCRIBE and SUMMARIZE"),
        ("SHOW temp_directory", "only SHOW TABLES, DESCRIBE and SUMMARIZE"),
        ("SHOW TABLES FROM sealed_0", "only SHOW TABLES, DESCRIBE and SUMMARIZE"),
        ("SELECT current_setting('temp_directory')", "function current_setting cannot"),
        ("SELECT write_log('x', level := 'WARN')", "function write_log cannot"),
        ("SELECT sleep_ms(100000)", "function sleep_ms cannot"),
        ("SELECT getenv('HOME')", "function getenv cannot"),
        ("SELECT * FROM sqlite_scan('{secret}', 'x')", "sqlite_scan cannot"),
        ("SELECT * FROM secret_variable", "does not exist"),
        ("SELECT * FROM nope", "nope does not exist"),
        ("SELECT reward FROM metrics WHERE step = ?", "has parameters"),
        ("SELECT reward FROM metrics WHERE step = $step", "has parameters"),
        ("SELEC 1", "Parser Error"),
        ("SELECT " + "+".join(["1"] * 900), "nested too deeply"),
    ],
)  # fmt: skip
def test_attacks_are_refused_and_leave_no_trace(runs: list[Path], tmp_path: Path, sql: str, told: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    secret_variable = [1, 2, 3]
    before = disk(runs[0].parent)
    with pytest.raises(StoreError, match=told) as refused:
        ask(runs, sql.format(out=tmp_path / "out", secret=secret))
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert disk(runs[0].parent) == before
    assert secret_variable


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT '\udcff'", "not valid UTF-8"),
        ("SELECT '" + "x" * 100_000 + "'", "at most 100000 are allowed"),
    ],
)
def test_a_text_that_is_no_statement_starts_nothing(runs: list[Path], sql: str, told: str) -> None:
    with pytest.raises(StoreError, match=told):
        query(runs, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_parquet('{live}/steps/*/tokens.parquet')",
        "SELECT * FROM read_blob('{live}/config.yaml')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM read_json('http://localhost:9/x')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM enable_logging()",
        "COPY (SELECT 1) TO '{out}'",
        "COPY (SELECT 1) TO '{live}/steps/step=000009/metrics.parquet'",
        "ATTACH '{out}' AS x",
        "EXPORT DATABASE '{out}'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "RESET lock_configuration",
        "LOAD httpfs",
        "INSERT INTO sealed_0.main.metrics (step) VALUES (9)",
        "DELETE FROM sealed_0.main.tokens",
    ],
)
def test_the_door_is_shut_even_to_what_a_reading_of_the_statement_would_miss(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr(sql_worker, "checked", lambda connection, sql: (set(schema.TABLES), None))
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    before = disk(runs[0].parent)
    with pytest.raises(StoreError, match=r"disabled|read-only|locked|Cannot access"):
        ask(runs, sql.format(out=tmp_path / "out", secret=secret, live=runs[1]))
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert disk(runs[0].parent) == before


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT rewrd\nFROM metrics", r'Candidate bindings: "reward".* \(line 1, column 8\)'),
        ("SELECT step,\n  nope(reward)\nFROM metrics", r"\(line 2, column 3\)"),
        ("SELECT " + "1 + " * 100 + "rewrd FROM metrics", r"\(line 1, column 408\)"),
        ("SELECT step FROM metrics WHERE group = 1", r'write "group" \(line 1, column 32\)'),
        ("SELECT reward FROM metrics WHERE reward > 'much'", r"string 'much' to DOUBLE \(line 1, column 43\)"),
    ],
)  # fmt: skip
def test_an_error_says_where_it_is(runs: list[Path], sql: str, place: str) -> None:
    with pytest.raises(StoreError, match=place):
        ask(runs, sql)


DOUBLING = ", ".join(f"a{i} AS (SELECT * FROM a{i - 1} x, a{i - 1} y)" for i in range(1, 24))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3",
        "WITH RECURSIVE c AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        "SELECT count(*) FROM tokens a, tokens b, tokens c WHERE a.entropy + b.entropy > c.entropy",
        f"WITH a0 AS (SELECT 1 AS v), {DOUBLING} FROM a23",
    ],
    ids=["cross join", "recursion", "tokens cubed", "a plan that doubles with every line"],
)
def test_a_query_that_runs_away_is_stopped(runs: list[Path], sql: str) -> None:
    started = time.perf_counter()
    with pytest.raises(StoreError, match=r"stopped after 0\.5 s"):
        query(runs, sql, timeout_s=0.5)
    assert time.perf_counter() - started < 10
    assert not workers()


def test_the_progress_bar_of_a_slow_query_is_not_taken_for_its_answer(runs: list[Path]) -> None:
    bar_after_s = 2.0
    with pytest.raises(StoreError, match=r"stopped after 3 s"):
        query(runs, "SELECT count(*) FROM range(10000000000) t(a) WHERE hash(a) % 7 = 1", timeout_s=bar_after_s + 1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(100000000)",
        "SELECT format('{:>2000000000}', 'x')",
        "SELECT repeat('x', 1000000) FROM range(10000)",
    ],
)
def test_a_query_that_needs_too_much_memory_is_refused(runs: list[Path], sql: str) -> None:
    with pytest.raises(StoreError, match="needs more than 100MB of memory"):
        query(runs, sql, memory="100MB")


def test_nothing_is_left_in_the_temporary_folder(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    query(runs, "SELECT * FROM tokens ORDER BY advantage", memory="50MB")
    assert os.listdir(tmp_path) == []


def test_the_process_of_a_query_knows_no_secret_of_this_ones_environment_and_ends_with_who_waits(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    seen: list[str] = []

    def look(seconds: float) -> None:
        for worker in workers():
            seen.extend(worker.environ())
        if seconds > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        query(runs, "SELECT count(*) FROM range(1000000000000)", waiting=look)
    assert "TMPDIR" in seen
    assert not {"SECRET_TOKEN", "HOME"} & set(seen)
    assert not workers()


def test_a_process_that_cannot_start_is_said_so(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.store.sql.WORKER", (sys.executable, "-m", "core.store.nowhere"))
    with pytest.raises(StoreError, match=r"process failed \(exit status 1\)"):
        query(runs, "SELECT 1")


def test_two_queries_at_once_do_not_mind_each_other(runs: list[Path]) -> None:
    asked = ["SELECT count(*) FROM tokens", "SELECT count(*) FROM rollouts"]
    with ThreadPoolExecutor(2) as pool:
        both = [result.rows for result in pool.map(lambda sql: query(runs, sql), asked)]
    assert both == [ask(runs, sql).rows for sql in asked]


def test_all_kinds_of_values_come_back(runs: list[Path]) -> None:
    sql = "SELECT 1.5::DECIMAL(9, 2), 10::HUGEINT * 10, DATE '2026-01-01', [1, NULL], MAP {'b': 2.0}, '\\xAA'::BLOB"
    assert query(runs, sql).rows == ask(runs, sql).rows


def workers() -> list[psutil.Process]:
    """The processes of queries that this one has started and that still run."""
    found = []
    for child in psutil.Process().children():
        try:
            found += [child] if "core.store.sql_worker" in child.cmdline() else []
        except psutil.Error:
            continue
    return found


def test_a_step_that_is_swept_away_meanwhile_is_no_error(
    runs: list[Path], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sql_worker.find_all
    calls = []

    def find_then_sweep(*args: object) -> object:
        found = real(*args)
        if not calls:
            shutil.rmtree(run_dir / "steps/step=000001")
        calls.append(1)
        return found

    monkeypatch.setattr(sql_worker, "find_all", find_then_sweep)
    assert ask([run_dir], "SELECT DISTINCT step FROM tokens ORDER BY step").rows == [(0,), (2,), (3,)]
    assert len(calls) == 2
