"""Whole tables and UNIPO's JSON of a run: what comes back is what the store has."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from core.cli import main
from core.exporters.adapter import ExportError
from core.exporters.tables import write_table
from core.exporters.unipo import write_unipo
from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from core.store import open_runs, schema
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), "mine", "a3po", steps=3, prompts=2, group_size=4)


@pytest.mark.parametrize("table", schema.TABLES)
def test_a_table_comes_back_whole(run: Path, tmp_path: Path, table: str) -> None:
    rows = {}
    for ending in ("parquet", "csv", "json", "jsonl"):
        rows[ending] = write_table(run, table, tmp_path / f"it's.{ending}")
    with open_runs([run]) as lab:
        expected = int(lab.arrays(f"SELECT count(*) AS n FROM {table}")["n"][0])
    assert set(rows.values()) == {expected} and sorted(path.suffix for path in tmp_path.iterdir()) == [
        ".csv", ".json", ".jsonl", ".parquet",
    ]  # fmt: skip
    whole = pq.read_table(tmp_path / "it's.parquet")
    objects = json.loads((tmp_path / "it's.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (tmp_path / "it's.jsonl").read_text(encoding="utf-8").splitlines()]
    with (tmp_path / "it's.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert len(whole) == len(objects) == len(lines) == len(cells) == expected
    assert list(cells[0]) == whole.column_names == list(objects[0]) and objects == lines
    assert [row["step"] for row in objects] == whole["step"].to_pylist() == [int(row["step"]) for row in cells]


def test_numbers_are_exact_and_json_knows_no_nan(run: Path, tmp_path: Path) -> None:
    write_table(run, "tokens", tmp_path / "t.parquet")
    write_table(run, "tokens", tmp_path / "t.json")
    whole = pq.read_table(tmp_path / "t.parquet").to_pydict()
    objects = json.loads((tmp_path / "t.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    with open_runs([run]) as lab:
        stored = lab.arrays('SELECT advantage FROM tokens ORDER BY step, split, "group", rollout, position')[
            "advantage"
        ]
    np.testing.assert_array_equal(np.array(whole["advantage"], dtype=np.float32), stored)
    found = np.array([row["advantage"] for row in objects], dtype=np.float32)
    np.testing.assert_array_equal(found, stored)


def test_what_cannot_be_written_is_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table, out, words in (
        ("token", "x.csv", "is no table: name one of metrics"),
        ("tokens", "x.xlsx", r"ends in \.parquet, \.csv"),
        ("tokens", "gone/x.csv", "cannot be written"),
    ):
        with pytest.raises(ExportError, match=words):
            write_table(run, table, tmp_path / out)
    with pytest.raises(ExportError, match="already there"):
        write_table(run, "metrics", _there(tmp_path))
    folder = str(run.parent)
    assert main(["export", "table", "mine", "metrics", "-o", str(tmp_path / "m.csv"), "--runs", folder]) == 0
    assert "m.csv: 3 rows" in capsys.readouterr().out


def _there(folder: Path) -> Path:
    (folder / "there.csv").write_text("mine")
    return folder / "there.csv"


def test_unipo_comes_back_with_groups_rewards_advantages_and_tokens(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert main(["export", "unipo", "mine", "-o", str(file), "--runs", str(run.parent)]) == 0
    json.loads(file.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    found = find(file)
    assert found.format == "unipo"
    made = bring_in(tmp_path / "runs", all_formats()["unipo"], found)
    order = 'ORDER BY step, "group", rollout'
    with open_runs([run]) as lab, open_runs([made.path]) as other:
        asked = f"""SELECT step, "group", rollout, reward, length, text FROM rollouts WHERE split = 'train' {order}"""
        assert other.rows(asked) == lab.rows(asked)
        tokens = f"""SELECT token_id, token, sampler_logprob, {{}} AS advantage, entropy FROM tokens
            WHERE split = 'train' {order}, position"""
        mine, theirs = lab.arrays(tokens.format("advantage")), other.arrays(tokens.format("imported_advantage"))
        prompts = """SELECT step, "group", prompt, answer FROM groups WHERE split = 'train' ORDER BY step, "group" """
        assert other.rows(prompts) == lab.rows(prompts)
    for name, values in mine.items():
        np.testing.assert_array_equal(theirs[name], values, err_msg=name)
    with pytest.raises(ExportError, match="already there"):
        write_unipo(run, file)
