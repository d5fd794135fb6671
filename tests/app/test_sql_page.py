"""The SQL page: it asks only when told to, tells what came, and a link carries the statement but never runs it."""

from __future__ import annotations

import pandas as pd
import pytest

from app import answer_file
from app.palette import LIGHT
from app.views import sql as view
from core.runs.folders import run_info
from core.store.queries.ready import READY, ready, statement
from core.store.sql import Result
from tests.app.conftest import texts


def run(at, text=None):
    """Write a statement into the editor, if one is given, and press Run."""
    if text is not None:
        at.text_area[0].set_value(text)
    return next(button for button in at.button if button.label == "Run").click().run()


def test_nothing_runs_before_it_is_asked_for(states, open_page, monkeypatch):
    monkeypatch.setattr("core.store.sql.query", lambda *_, **__: pytest.fail("asked"))
    at = open_page("sql", run="finished", sql="SELECT 42 AS answer")
    assert at.text_area[0].value == "SELECT 42 AS answer"
    assert "appear here when you press **Run**" in texts(at)
    assert not at.dataframe


def test_run_shows_rows_seconds_and_a_chart_and_the_link_carries_the_statement(states, open_page):
    at = run(open_page("sql", run=["finished", "sealed"]), "SELECT run, step, reward FROM metrics ORDER BY run, step")
    assert not at.exception
    assert list(at.dataframe[0].value.columns) == ["run", "step", "reward"]
    assert len(at.dataframe[0].value) == 12
    assert "12\u00a0rows, in" in texts(at)
    assert at.query_params["sql"] == "SELECT run, step, reward FROM metrics ORDER BY run, step"
    assert [select.value for select in at.selectbox[1:]] == ["step", "reward", "run"]
    assert at.get("plotly_chart")


def test_more_rows_than_the_limit_are_cut_and_it_says_so(states, open_page):
    at = run(open_page("sql", run="finished", rows="100"), "SELECT * FROM range(5000)")
    assert len(at.dataframe[0].value) == 100
    assert "The first 100\u00a0rows of more: the limit was 100" in texts(at)


def test_the_file_of_an_answer_has_every_row_as_the_store_has_it(states, monkeypatch):
    infos = [run_info(states / "finished")]
    made = answer_file._made(infos, "SELECT '=1+1' AS a, 'x\u202e' AS b FROM range(3000)", "CSV")
    assert made.decode().splitlines() == ["a,b", *["'=1+1,x\u202e"] * 3000]
    assert answer_file._made(infos, "SELECT nope FROM metrics", "JSON").startswith("Binder Error")
    monkeypatch.setattr(answer_file, "MOST_BYTES", 1000)
    assert "larger than 0 MB" in answer_file._made(infos, "SELECT * FROM range(3000)", "JSON")


def test_an_error_is_one_sentence_that_says_where(states, open_page):
    at = run(open_page("sql", run="finished"), "SELECT step,\n  rewrd\nFROM metrics")
    assert not at.exception
    assert "rewrd" in at.error[0].value.replace("\\", "")
    assert "line 2, column 3" in at.error[0].value.replace("\\", "")
    assert not at.dataframe


def test_a_statement_that_would_write_is_refused(states, open_page):
    at = run(open_page("sql", run="finished"), "COPY (SELECT 1) TO '/tmp/out.csv'")
    assert "not COPY" in at.error[0].value


def test_a_ready_question_is_loaded_and_linked_by_its_name(states, open_page):
    at = open_page("sql", run="finished", sql="SELECT 1")
    at.selectbox[0].select("no-signal").run()
    assert at.text_area[0].value == statement(ready("no-signal"))
    assert at.query_params["ready"] == "no-signal"
    assert "sql" not in at.query_params
    run(at)
    assert len(at.dataframe[0].value) == 6
    assert at.query_params["ready"] == "no-signal"


def test_what_is_typed_stays_while_another_choice_is_made(states, open_page):
    at = open_page("sql", run="finished")
    at = run(at, "SELECT 7 AS seven")
    at.text_input[0].set_value("entropy").run()
    assert at.text_area[0].value == "SELECT 7 AS seven"
    assert at.dataframe[0].value["seven"].tolist() == [7]


def test_a_statement_too_long_for_the_address_is_kept_and_said_so(states, open_page):
    long = "SELECT 1 AS one -- " + "x" * 5000
    at = run(open_page("sql", run="finished"), long)
    assert at.text_area[0].value == long
    assert "no link carries it" in texts(at)
    assert "sql" not in at.query_params
    assert at.dataframe[0].value["one"].tolist() == [1]


def test_no_rows_is_said_and_an_older_run_explained(states, open_page):
    at = run(open_page("sql", run="finished"), "SELECT * FROM strings WHERE step > 1000")
    assert "found no rows. Runs recorded by an earlier version of the lab have none in strings" in texts(at)


def test_another_run_hides_the_answer_of_the_last(states, open_page):
    at = run(open_page("sql", run="finished"), "SELECT count(*) AS n FROM metrics")
    at.multiselect[0].set_value(["finished", "sealed"]).run()
    assert not at.dataframe
    assert "appear here when you press" in texts(at)


def test_the_schema_has_every_table_and_the_factors_of_the_open_runs(states, open_page):
    html = "".join(element.proto.body for element in open_page("sql", run="sealed").get("html"))
    for table in ("metrics", "groups", "rollouts", "tokens", "evals", "summary", "positions", "strings"):
        assert f"data-table='{table}'" in html
    assert "f_" in html
    assert "&quot;group&quot;" in html


def test_the_schema_is_searched_by_name_meaning_and_unit():
    tables = {"tokens": view.fields({"entropy": "FLOAT", "f_a3po": "FLOAT", "group": "INTEGER"}, "tokens")}
    assert "entropy" in view.schema_html(tables, "NATS", LIGHT)
    assert "f_a3po" not in view.schema_html(tables, "NATS", LIGHT)
    assert " open" in view.schema_html(tables, "a3po", LIGHT)
    assert view.schema_html(tables, "nowhere", LIGHT) == ""


@pytest.mark.parametrize("one", READY, ids=lambda one: one.id)
def test_every_ready_question_runs_on_runs_of_every_kind(one, ask_states):
    result = ask_states(statement(one))
    assert result.columns
    assert one.id == "held-back" or result.rows, "step 40 is beyond these runs"


@pytest.fixture(scope="module")
def ask_states(states_root):
    """A statement's answer over a sealed run and a live one, without a process for each."""
    import io

    from core.store import sql_worker
    from core.store.sql import result_of

    def asked(sql):
        out = io.BytesIO()
        sql_worker.answer(out, [states_root / "finished", states_root / "sealed"], sql, 20.0, 1000, "512MB", 2, 2**25)
        return result_of(out.getvalue(), 20.0)

    return asked


def result(columns, types, *rows):
    return Result(columns, types, list(rows), False, 0.1)


def test_all_kinds_of_values_become_a_table_that_hides_nothing():
    types = ["VARCHAR", "BIGINT", "HUGEINT", "DOUBLE", "BOOLEAN", "MAP(VARCHAR, DOUBLE)"]
    rows = ("\u202eevil\x00", 1, 2**70, None, True, {"<b>": 1.0}), (None, None, 1, 2.5, None, None)
    table = view.frame(result(["a", "a", "big", "x", "yes", "map"], types, *rows))
    assert list(table.columns) == ["a", "a (2)", "big", "x", "yes", "map"]
    assert table["a"].tolist()[0] == "⟨U+202E⟩evil⟨NUL⟩"
    assert view.numbers(table) == ["a (2)", "big", "x"]
    assert table["big"].tolist()[0] == float(2**70)
    assert table["map"].tolist()[0] == "{'<b>': 1.0}"


def test_a_page_ships_an_excerpt_and_the_download_all():
    table = view.frame(result(["text", "n"], ["VARCHAR", "BIGINT"], *(("y" * 1000, i) for i in range(10_000))))
    shown = view.excerpt(table)
    assert 4000 < len(shown) < 5000
    assert set(shown["text"]) == {"y" * 299 + "…"}
    assert set(table["text"]) == {"y" * 1000}
    assert len(view.excerpt(table[["n"]])) == 10_000


def test_a_chart_joins_points_only_along_a_growing_x_and_says_what_it_leaves_out():
    table = pd.DataFrame({"step": [0, 1, 2, 0, 1, 2], "reward": [0.1, 0.2, 0.3] * 2, "run": list("aaabbb")})
    table = table.astype({"step": "Int64"})
    assert view.chart_defaults(table) == ("step", "reward", "run")
    assert view.chart_defaults(table.iloc[:1].assign(step=1)) == ("step", "reward", None)
    once = table.drop_duplicates("run")[["run", "step", "reward"]].assign(reward=[0.1, 0.2])
    assert view.chart_defaults(once) == ("run", "reward", None)
    fig, said = view.chart(table, "step", "reward", "run", LIGHT)
    assert [(trace.mode, trace.name, list(trace.y)) for trace in fig.data] == [
        ("lines+markers", "a", [0.1, 0.2, 0.3]), ("lines+markers", "b", [0.1, 0.2, 0.3]),
    ]  # fmt: skip
    assert said == ""
    assert view.chart(table, "step", "reward", None, LIGHT)[0].data[0].mode == "markers"
    many = pd.DataFrame(
        {"step": pd.array(range(20_000), "Int64"), "v": [1.0] * 20_000, "k": [str(i % 30) for i in range(20_000)]}
    )
    fig, said = view.chart(many, "step", "v", "k", LIGHT)
    assert len(fig.data) == view.MOST_SERIES
    assert said.startswith("the first 12 of 30 values of k are drawn; one row in ")
    assert sum(len(trace.x) for trace in fig.data) <= view.MOST_POINTS + view.MOST_SERIES
