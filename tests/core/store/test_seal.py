"""A sealed run holds what its steps held."""

from __future__ import annotations

import json
import os
import shutil
from importlib import import_module
from pathlib import Path

import duckdb
import pytest

from core.store import StoreError, check, drop_steps_from, open_runs, schema, seal, sweep, write_step
from core.store.sql import query
from tests.synthetic import make_run, records


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return make_run(tmp_path, "done", method="a3po", steps=5, prompts=3, group_size=4)


def contents(path: Path) -> dict[str, list[dict]]:
    lab = open_runs([path])
    return {table: lab.rows(f"SELECT * FROM {table} ORDER BY ALL") for table in schema.TABLES}


def test_sealed_and_live_rows_are_the_same(finished: Path) -> None:
    before = contents(finished)
    assert seal(finished) == finished / "rollouts.duckdb"
    assert json.loads((finished / "status.json").read_text())["sealed"] is True
    shutil.rmtree(finished / "steps")
    assert contents(finished) == before
    assert sum(map(len, before.values())) > 1000


def test_rows_lie_sorted(finished: Path) -> None:
    seal(finished)
    with duckdb.connect(str(finished / "rollouts.duckdb"), read_only=True) as connection:
        for table, keys in (("tokens", 5), ("rollouts", 4), ("groups", 3), ("metrics", 1), ("evals", 1)):
            names = ", ".join(f'"{key}"' for key in schema.KEYS[:keys])
            lying = connection.execute(f"SELECT {names} FROM {table}").fetchall()
            assert lying == sorted(lying)


@pytest.mark.parametrize("state", ["running", "failed", "stopped", None])
def test_only_finished_runs_are_sealed(run_dir: Path, state: str | None) -> None:
    if state:
        (run_dir / "status.json").write_text(json.dumps({"state": state}))
    with pytest.raises(StoreError, match="only finished runs are sealed"):
        seal(run_dir)
    assert not (run_dir / "rollouts.duckdb").exists()


def test_a_run_without_steps_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "finished"}')
    with pytest.raises(StoreError, match="no steps to seal"):
        seal(tmp_path)


def test_the_status_is_flipped_after_the_file_is_in_place(finished: Path) -> None:
    seen = []
    seal(finished, mark=lambda path: seen.append((path / "rollouts.duckdb").is_file()))
    assert seen == [True]
    assert json.loads((finished / "status.json").read_text())["sealed"] is False


def test_a_seal_that_fails_leaves_the_run_as_it_was(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(finished)

    def fails(*args: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(import_module("core.store.seal"), "flush", fails)
    with pytest.raises(OSError, match="No space left"):
        seal(finished)
    assert not [name for name in os.listdir(finished) if "duckdb" in name]
    assert contents(finished) == before


def test_a_damaged_step_is_not_sealed(finished: Path) -> None:
    damaged = finished / "steps" / "step=000002" / "tokens.parquet"
    os.truncate(damaged, os.stat(damaged).st_size // 2)
    with pytest.raises(StoreError, match=r"cannot be sealed: .*step=000002/tokens\.parquet"):
        seal(finished)
    assert not [name for name in os.listdir(finished) if "duckdb" in name]


def test_what_a_killed_seal_left_does_not_matter(finished: Path) -> None:
    (finished / ".rollouts.duckdb.writing").write_bytes(b"half")
    assert len(open_runs([finished]).steps("done")) == 6
    seal(finished)
    assert sorted(name for name in os.listdir(finished) if "duckdb" in name) == ["rollouts.duckdb"]


def test_steps_are_swept_after_the_grace_period_and_only_what_is_sealed(finished: Path, step_record) -> None:
    seal(finished)
    before = contents(finished)
    assert sweep(finished, grace_s=600) == []
    step_record.step = 9
    write_step(finished, step_record)
    assert sweep(finished, grace_s=0) == [0, 1, 2, 3, 4, 5]
    assert os.listdir(finished / "steps") == ["step=000009"]
    drop_steps_from(finished, 9)
    assert contents(finished) == before
    assert sweep(finished, grace_s=0) == []


def test_nothing_is_swept_without_a_seal(run_dir: Path) -> None:
    assert sweep(run_dir, grace_s=0) == []
    assert len(os.listdir(run_dir / "steps")) == 4


def test_an_open_reader_survives_sealing_and_sweeping(finished: Path) -> None:
    lab = open_runs([finished])
    before = lab.rows("SELECT * FROM tokens ORDER BY ALL")
    seal(finished)
    sweep(finished, grace_s=0)
    assert lab.rows("SELECT * FROM tokens ORDER BY ALL") == before


def test_an_extended_run_is_sealed_again_with_all_its_steps(tmp_path: Path) -> None:
    from core.config import read_run

    path = make_run(tmp_path, "done", steps=4, prompts=3, group_size=4, sealed=True)
    sweep(path, grace_s=0)
    longer = records(read_run(path / "config.yaml").model_copy(update={"steps": 7}), 7)
    for record in longer[4:]:
        write_step(path, record)
    lab = open_runs([path])
    assert lab.steps("done") == list(range(8))
    trained = [row["step"] for row in lab.rows("SELECT step FROM metrics ORDER BY step")]
    assert trained == list(range(7))
    before = contents(path)
    inode = os.stat(path / "rollouts.duckdb").st_ino
    seal(path)
    assert os.stat(path / "rollouts.duckdb").st_ino != inode
    shutil.rmtree(path / "steps")
    assert contents(path) == before


def test_sealing_again_without_news_keeps_the_file(finished: Path) -> None:
    seal(finished)
    before = os.stat(finished / "rollouts.duckdb")
    seal(finished)
    assert os.stat(finished / "rollouts.duckdb").st_ino == before.st_ino


def foreign(path: Path, *statements: str) -> None:
    (path / "rollouts.duckdb").unlink()
    with duckdb.connect(str(path / "rollouts.duckdb")) as connection:
        for statement in statements:
            connection.execute(statement)


def test_damaged_and_foreign_files_get_one_sentence(finished: Path, tmp_path: Path) -> None:
    seal(finished)
    sealed = finished / "rollouts.duckdb"
    whole = sealed.read_bytes()
    sealed.write_bytes(b"not a database")
    with pytest.raises(StoreError, match=r"rollouts\.duckdb: not a sealed run, or damaged"):
        open_runs([finished])
    sealed.write_bytes(whole[:2000])
    with pytest.raises(StoreError, match=r"rollouts\.duckdb: not a sealed run, or damaged"):
        open_runs([finished])
    foreign(finished, "CREATE TABLE tokens AS SELECT 1 AS step")
    with pytest.raises(StoreError, match="evals, groups, metrics, rollouts, sealed_steps, summary must be a table"):
        open_runs([finished])


def test_a_sealed_file_of_an_earlier_version_has_no_later_tables(finished: Path) -> None:
    seal(finished)
    shutil.rmtree(finished / "steps")
    with duckdb.connect(str(finished / "rollouts.duckdb")) as connection:
        for table in schema.LATER_TABLES:
            connection.execute(f"DROP TABLE {table}")
        connection.execute("ALTER TABLE rollouts DROP COLUMN mass")
    with open_runs([finished]) as lab:
        assert lab.rows("SELECT count(*) AS n FROM strings UNION ALL SELECT count(*) FROM positions") == [{"n": 0}] * 2
        found = lab.rows("SELECT count(*) AS n, count(mass) AS masses, count(base_mass) AS others FROM rollouts")[0]
        assert found["n"] > 0 and found["masses"] == 0 and found["others"] > 0
    assert query([finished], "SELECT count(*) FROM strings").rows == [(0,)]
    assert check(finished).ok


def test_damage_anywhere_in_the_file_gets_a_sentence(finished: Path) -> None:
    seal(finished)
    shutil.rmtree(finished / "steps")
    sealed = finished / "rollouts.duckdb"
    whole = sealed.read_bytes()
    for at in range(0, len(whole) - 9000, 300_000):
        sealed.write_bytes(whole[:at] + b"\xff" * 9000 + whole[at + 9000 :])
        with pytest.raises(StoreError, match="done"):
            lab = open_runs([finished])
            for table in schema.TABLES:
                lab.df(f"SELECT * FROM {table}")


def test_a_view_that_poses_as_a_table_is_refused(finished: Path, tmp_path: Path) -> None:
    seal(finished)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    tables = [
        f"CREATE TABLE {table} ({', '.join(f'{chr(34)}{n}{chr(34)} {t}' for n, t in types.items())})"
        for table, types in sources_types().items()
        if table != "tokens"
    ]
    foreign(
        finished,
        *tables,
        "CREATE TABLE sealed_steps (step BIGINT, mtime_ns BIGINT)",
        f"CREATE VIEW tokens AS SELECT * FROM read_csv('{secret}')",
    )
    with pytest.raises(StoreError, match="tokens must be a table"):
        open_runs([finished])


def test_a_column_of_another_type_is_refused(finished: Path) -> None:
    seal(finished)
    with duckdb.connect(str(finished / "rollouts.duckdb")) as connection:
        connection.execute("ALTER TABLE tokens ALTER advantage TYPE VARCHAR")
    with pytest.raises(StoreError, match=r"tokens\.advantage is VARCHAR, a sealed run has FLOAT there"):
        open_runs([finished])


def sources_types() -> dict[str, dict[str, str]]:
    from core.store.sources import TYPES

    return TYPES
