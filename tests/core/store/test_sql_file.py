"""A query's answer as a file: every row, to the last digit, and nothing that the query itself could not read."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.store import StoreError
from core.store.sql import FORMS, query, query_file
from core.store.values import apart, no_formula, plain_value
from tests.synthetic import make_run

ODD = """SELECT 1 AS a, 2 AS a, 0.1::FLOAT AS f, 1e-300 AS tiny, 'nan'::DOUBLE AS none, NULL AS nothing,
1.5::DECIMAL(9, 2) AS d, 10::HUGEINT AS h, DATE '2026-01-01' AS day, [1, NULL] AS l,
MAP {'b': 2.0} AS m, '=1+1' AS formula, e'line\n"quoted", \u202e' AS text, true AS yes"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    sealed = make_run(root, "sealed", steps=6, prompts=4, group_size=8, sealed=True)
    return [sealed, make_run(root, "live", steps=6, prompts=4, group_size=8, state="running")]


@pytest.mark.parametrize("form", FORMS)
def test_every_row_is_there_to_the_last_digit(runs: list[Path], tmp_path: Path, form: str) -> None:
    sql = 'SELECT run, step, "group", rollout, position, token, advantage, entropy FROM tokens ORDER BY ALL'
    wanted = query(runs, sql, max_rows=10**6)
    out = tmp_path / f"tokens{form}"
    assert query_file(runs, sql, out) == len(wanted.rows) > 2048
    if form == ".parquet":
        found = list(zip(*pq.read_table(out).to_pydict().values(), strict=True))
    elif form == ".csv":
        lines = list(csv.reader(out.open(encoding="utf-8", newline="")))
        assert lines[0] == wanted.columns
        found = [(row[0], *map(int, row[1:5]), row[5], *map(float, row[6:])) for row in lines[1:]]
    else:
        text = out.read_text(encoding="utf-8")
        found = [
            tuple(row.values())
            for row in (map(json.loads, text.splitlines()) if form == ".jsonl" else json.loads(text))
        ]
    assert found == wanted.rows


def test_values_of_every_kind_have_a_place(runs: list[Path], tmp_path: Path) -> None:
    for form in FORMS:
        assert query_file(runs, ODD, tmp_path / f"odd{form}") == 1
    (row,) = json.loads((tmp_path / "odd.json").read_text(encoding="utf-8"))
    assert (row["a"], row["a (2)"], row["tiny"], row["none"], row["nothing"], row["d"], row["h"]) == (
        1,
        2,
        1e-300,
        None,
        None,
        1.5,
        10,
    )
    assert (row["day"], row["l"], row["m"], row["formula"]) == ("2026-01-01", [1, None], {"b": 2.0}, "=1+1")
    table = pq.read_table(tmp_path / "odd.parquet").to_pylist()[0]
    assert table["none"] != table["none"] and table["nothing"] is None and table["text"] == row["text"]
    names, values = csv.reader((tmp_path / "odd.csv").open(encoding="utf-8", newline=""))
    cells = dict(zip(names, values, strict=True))
    assert (cells["none"], cells["nothing"], cells["formula"], cells["text"]) == ("nan", "", "=1+1", row["text"])
    query_file(runs, ODD, tmp_path / "safe.csv", safe=True)
    assert "'=1+1" in (tmp_path / "safe.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("sql", "name", "told"),
    [
        ("SELECT 1", "x.txt", "name a file that ends in .csv, .json, .jsonl, .parquet"),
        ("SELECT 1", "there.csv", "is already there"),
        ("SELECT 1", "no/folder/x.csv", "No such file"),
        ("DROP TABLE metrics", "x.csv", "only SELECT"),
        ("COPY metrics TO 'y.csv'", "x.csv", "only SELECT"),
        ("SELECT nope FROM metrics", "x.parquet", "nope"),
        (
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3",
            "x.csv",
            "after 1 s",
        ),
        ("SELECT INTERVAL 1 DAY AS pause", "x.parquet", "pause is an interval"),
        ("SELECT repeat('x', 1000) FROM range(100000)", "x.jsonl", "larger than 1 MB"),
        ("SELECT error('half ' || x) FROM range(100000) t(x) WHERE x > 90000", "x.csv", "half"),
    ],
)
def test_what_cannot_be_written_is_one_sentence_and_leaves_nothing(
    runs: list[Path], tmp_path: Path, sql: str, name: str, told: str
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(StoreError, match=told) as caught:
        query_file(runs, sql, tmp_path / name, timeout_s=1.0 if told == "after 1 s" else 30.0, max_bytes=2**20)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_values_of_text_formats() -> None:
    assert plain_value({"a": [float("nan"), (1, float("inf"))], 2: "x"}) == {"a": [None, [1, None]], "2": "x"}
    assert apart(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    assert [no_formula(one) for one in ("=1", " \uff1d1", "-1", "-x", "x", 3)] == [
        "'=1",
        "' \uff1d1",
        "-1",
        "'-x",
        "x",
        3,
    ]
