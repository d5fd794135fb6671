"""The command line, as a person meets it: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.cli import main
from core.cli.sql import table
from core.config import dump, read_run
from core.runs import list_runs, read_status, start, write_status
from core.runs.folders import REPO, run_info
from core.runs.status import Status
from tests.core.runs.conftest import FAKE_WORKER, experiment, fake, root, wait_for  # noqa: F401
from tests.core.shell import Shell
from tests.synthetic import make_run

Fake = Callable[..., None]
COMMANDS = (
    "run", "resume", "stop", "list", "show", "sql", "check", "seal", "delete", "import", "advantage", "examples",
    "bench",
)  # fmt: skip


@pytest.fixture
def core(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("core.cli.follow.POLL_S", 0.05)
    return Shell(capsys)


@pytest.fixture
def recorded(root: Path) -> Path:  # noqa: F811
    return make_run(root, "20260101-000000-grpo-s0-aaaa", steps=3, prompts=2, group_size=4)


def config(root: Path, text: str) -> Path:  # noqa: F811
    path = root.parent / "config.yaml"
    path.write_text(text)
    return path


def test_help_names_every_command(core: Shell) -> None:
    assert core("--help") == 0
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", core.out)
    assert "python -m core run quickstart" in core.out
    for command in COMMANDS:
        assert core(command, "--help") == 0
        assert "--runs" in core.out or command in ("advantage", "examples", "bench")


def test_run_follows_until_the_end(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    path = config(root, "methods: [grpo, psr]\nsteps: 20\ndevice: cpu\n")
    assert core("run", path, "--set", "steps=4", "--name", "two") == 0
    runs = list_runs(root, examples=False)
    assert [(run.state, run.step, run.experiment_name) for run in runs] == [("finished", 4, "two")] * 2
    assert "1/2 GRPO" in core.out
    assert "2/2 PSR" in core.out
    assert "reward" in core.out
    assert f"Look inside: python -m streamlit run app/main.py -- --runs {root}" in core.out
    for run in runs:
        assert run.id in core.out


def test_a_failed_run_is_exit_code_1_with_its_error(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    fake(fail_at=1)
    assert core("run", config(root, "steps: 3\ndevice: cpu")) == 1
    (run,) = list_runs(root, examples=False)
    assert f"{run.id} failed: ZeroDivisionError: the loss is <b>not</b> a number" in core.out
    assert f"python -m core resume {run.id} --runs {root}" in core.out
    assert "\x1b" not in core.out


def test_detached_runs_are_only_named(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    assert core("run", config(root, "steps: 2\ndevice: cpu"), "--detach") == 0
    wait_for(root / core.out.strip(), "finished")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "nope.yaml"], "nope.yaml: no such config file, and no preset of that name"),
        (["run", "smoke", "--set", "steps=many"], "steps: must be a whole number, but is 'many'"),
        (["run", "smoke", "--set", "stepz=3"], "stepz: no such setting; did you mean steps?"),
        (["run", "smoke", "--set", "steps"], "--set steps: write it as key=value"),
        (["run", "smoke", "--set", "model=gone/away"], "model"),
        (["run", "smoke", "--set", "prompts_per_step=5", "--set", "updates.minibatches=2"], "prompts_per_step (5)"),
        (["run", "smoke", "--set", "name=\x1b]0;x\x07"], "--set name=: the value is not valid YAML"),
        (["run", "smoke", "--set", "steps=" + "[" * 3000], "--set steps=[[["),
        (["run", "/" + "x" * 300], "/xxx"),
        (["run", "smoke", "--runs", "/" + "x" * 300], "/xxx"),
        (["resume", "nope"], "'nope': no such run"),
        (["stop", "../x"], "'../x': no such run"),
        (["show", ""], "'': no such run"),
        (["check", "presets"], "'presets': no such run"),
        (["sql", "DELETE FROM tokens"], "only SELECT can run here"),
        (["sql", "SELECT nothing FROM tokens"], "Binder Error"),
        (
            ["sql", "SELECT * FROM runs"],
            "the table runs does not exist; there are metrics, groups, rollouts, tokens, evals, summary",
        ),
        (["list", "--runs", __file__], f"{Path(__file__).resolve()} is a file: name the folder of runs"),
        (["sql", "SELECT 1", "--runs", __file__], f"{Path(__file__).resolve()} is a file: name the folder of runs"),
        (["sql", "SELECT 1", "--csv", "--json"], "give one of --csv, --json and --out"),
        (["sql", "SELECT 1", "nope"], "'nope': no such run"),
        (["advantage", "nope.json", "--method", "grpo"], "nope.json: no such file"),
    ],
)
def test_bad_input_is_one_sentence_and_makes_nothing(core: Shell, root: Path, words: list[str], sentence: str) -> None:  # noqa: F811
    assert core.refuses(*words).startswith(sentence)
    assert not root.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "Missing argument 'CONFIG' (python -m core run --help says more)"),
        (["no-such-command"], "No such command 'no-such-command' (python -m core --help says more)"),
        (["sql", "SELECT 1", "--limit", "0"], "Invalid value for '--limit'"),
        (["advantage", "BATCH.json", "--mehtod", "grpo"], "No such option: --mehtod"),
    ],
)
def test_wrong_usage_is_one_sentence(core: Shell, words: list[str], sentence: str) -> None:
    assert core.refuses(*words).startswith(sentence)


def test_ctrl_c_stops_the_run_empties_the_line_and_says_how_to_go_on(root: Path, fake: Fake) -> None:  # noqa: F811
    fake(step_s=0.1)
    path = config(root, "seeds: [0, 1]\nsteps: 30\ndevice: cpu\n")
    code = (
        "import signal, sys; from core.runs import control; from core.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background\n"
        f"control.WORKER = (sys.executable, {str(FAKE_WORKER)!r})\n"
        f"sys.exit(main(['run', {str(path)!r}]))"
    )
    command = subprocess.Popen([sys.executable, "-c", code], cwd=REPO, stdout=subprocess.PIPE, text=True)
    wait_for(root, lambda _: any(run.step >= 2 for run in list_runs(root, examples=False)))
    os.kill(command.pid, signal.SIGINT)
    out, _ = command.communicate(timeout=30)
    assert command.returncode == 130
    runs = sorted(list_runs(root, examples=False), key=lambda run: run.created)
    assert [run.state for run in runs] == ["stopped"] * 2
    assert 2 <= runs[0].step < 30
    assert [run.step for run in runs[1:]] == [0]
    resume = re.search(r"python -m core (resume .*)", out)
    assert resume is not None
    fake()
    assert main(resume[1].split()) == 0
    assert [run.state for run in list_runs(root, examples=False)] == ["finished"] * 2


def test_list_says_what_to_do_when_there_is_nothing(core: Shell, root: Path) -> None:  # noqa: F811
    assert core("list") == 0
    assert core.out == f"No runs in {root} yet. Start one: python -m core run quickstart\n"
    assert core("list", "--json") == 0
    assert json.loads(core.out) == []


def test_list_as_json_has_the_agreed_keys(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    make_run(root, "bad", steps=1, prompts=1, group_size=2, state="failed", error="ValueError: no")
    assert core("list", "--json") == 0
    by_id = {run["id"]: run for run in json.loads(core.out)}
    assert by_id[recorded.name] == {
        "id": recorded.name,
        "name": recorded.name,
        "state": "finished",
        "step": 3,
        "total": 3,
        "method": "grpo",
        "path": str(recorded),
        "error": None,
    }
    assert (by_id["bad"]["state"], by_id["bad"]["error"]) == ("failed", "ValueError: no")


def test_hostile_names_are_shown_inert(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    hostile = read_run(recorded / "config.yaml").model_copy(update={"name": "\x1b[2Ja\u202eb\nc[bold]d"})
    (recorded / "config.yaml").write_text(dump(hostile))
    for command in (["list"], ["show", recorded.name]):
        assert core(*command) == 0
        assert "ab c[bold]d" in core.out
        assert "\x1b" not in core.out


def test_another_folder_of_runs_can_be_named_before_or_after(
    core: Shell, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path / "empty"))
    assert core("list") == 0
    assert recorded.name not in core.out
    assert core("list", "--runs", recorded.parent) == 0
    assert recorded.name in core.out
    assert core("--runs", recorded.parent, "list") == 0
    assert recorded.name in core.out


def test_a_run_is_found_by_the_beginning_or_end_of_its_id(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    make_run(root, "20260101-000001-grpo-s0-bbbb", steps=1, prompts=1, group_size=2)
    for name in (recorded.name, "20260101-000000", "aaaa", recorded):
        assert core("show", name, "--json") == 0
        assert json.loads(core.out)["id"] == recorded.name
    assert core.refuses("show", "2026").startswith("'2026' could be any of 2 runs: 20260101-000001-grpo-s0-bbbb, ")


def test_show_tells_state_settings_and_log(core: Shell, recorded: Path) -> None:
    (recorded / "log.txt").write_text("one\ntwo\n\x1b[31mthree\n")
    assert core("show", recorded.name, "--log", "2") == 0
    assert re.search(r"^state +finished$", core.out, re.MULTILINE)
    assert re.search(r"^model +embedded$", core.out, re.MULTILINE)
    assert core.out.endswith("two\nthree\n")
    assert "one" not in core.out.splitlines()


def test_stop_waits_for_the_end(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    fake(step_s=0.1)
    (path,) = start(root, experiment(steps=50))
    wait_for(path, lambda info: info.step >= 1)
    assert core("stop", path.name) == 0
    info = run_info(path)
    assert info.state == "stopped"
    assert f"{path.name}: stopped after step {info.step} of 50" in core.out
    assert core.refuses("stop", path.name) == f"{path.name} is not running: it is stopped"


def test_resume_extends_only_when_told(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    (path,) = start(root, experiment(steps=2))
    wait_for(path, "finished")
    assert "extend it to more than its 2 steps" in core.refuses("resume", path.name)
    assert core.refuses("resume", path.name, "--to", "1000001").startswith("steps: must be at most 1000000")
    assert read_run(path / "config.yaml").steps == 2
    assert core("resume", path.name, "--to", "4") == 0
    assert (run_info(path).step, run_info(path).total) == (4, 4)


def test_resume_checks_every_run_before_it_starts_one(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    (stopped,), (finished,) = start(root, experiment(steps=2)), start(root, experiment(steps=2))
    for path in (stopped, finished):
        wait_for(path, "finished")
    status = Status(**{**vars(read_status(stopped)), "state": "stopped", "step": 1})
    write_status(stopped, status)
    assert f"{finished.name} is finished" in core.refuses("resume", stopped.name, finished.name)
    assert run_info(stopped).state == "stopped", "the good one must not have been started"
    assert core("resume", stopped.name, stopped.name) == 0, "named twice, it is resumed once"
    assert run_info(stopped).state == "finished"


def test_resume_asks_first_whether_the_run_can_go_on_here(core: Shell, root: Path, fake: Fake) -> None:  # noqa: F811
    (path,) = start(root, experiment(steps=2))
    wait_for(path, "finished")
    write_status(path, Status(**{**vars(read_status(path)), "state": "stopped", "step": 1}))
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("model: embedded", "model: gone/elsewhere"))
    assert core.refuses("resume", path.name).startswith("model 'gone/elsewhere' is not here")
    assert run_info(path).state == "stopped"


def test_delete_asks_first(core: Shell, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert core("delete", recorded.name) == 1
    assert recorded.exists()
    assert core("delete", recorded.name, "--yes") == 0
    assert not recorded.exists()


def test_delete_refuses_a_live_run(core: Shell, root: Path, recorded: Path, fake: Fake) -> None:  # noqa: F811
    fake(step_s=0.2)
    (path,) = start(root, experiment(steps=30))
    wait_for(path, "running")
    assert core.refuses("delete", recorded.name, path.name, "--yes") == f"{path.name} is running: stop it first"
    assert recorded.exists()


def test_seal_makes_one_file_of_a_finished_run(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    assert core("seal", recorded.name) == 0
    assert (recorded / "rollouts.duckdb").exists()
    assert run_info(recorded).sealed
    assert core("sql", "SELECT count(*) AS n FROM metrics", recorded.name, "--json") == 0
    assert json.loads(core.out) == [{"n": 3}]
    stopped = make_run(root, "halted", steps=1, prompts=1, group_size=2, state="stopped")
    assert core.refuses("seal", stopped.name) == "halted is stopped: only finished runs are sealed"


def test_sql_prints_tables_csv_and_json(core: Shell, recorded: Path) -> None:
    statement = "SELECT step, reward, entropy_source AS src, NULL AS nothing FROM metrics WHERE step < 2 ORDER BY step"
    assert core("sql", statement) == 0
    header, first, _, end = core.out.splitlines()
    assert header.split() == ["step", "reward", "src", "nothing"]
    assert first.split()[0] == "0"
    assert end == "(2 rows)"
    assert core("sql", statement, "--json") == 0
    rows = json.loads(core.out)
    assert [row["step"] for row in rows] == [0, 1]
    assert core("sql", statement, recorded.name, "--csv") == 0
    parsed = list(csv.DictReader(io.StringIO(core.out)))
    assert [float(row["reward"]) for row in parsed] == [row["reward"] for row in rows]
    assert [row["nothing"] for row in parsed] == ["", ""]


def test_sql_says_when_it_cuts(core: Shell, recorded: Path) -> None:
    assert core("sql", "SELECT step FROM metrics", "--limit", "1") == 0
    assert core.out.splitlines()[-1] == "(1 row)"
    assert core.err == "only the first 1 rows; --limit asks for more\n"


def test_ctrl_c_in_a_query_is_no_error(core: Shell, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError("Query interrupted")  # what DuckDB raises

    monkeypatch.setattr("core.store.sql.query", interrupted)
    assert core("sql", "SELECT 1") == 130
    assert (core.out, core.err) == ("", "\n")


def test_sql_covers_all_runs_of_the_folder_or_those_named(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    other = make_run(root, "other", steps=2, prompts=1, group_size=2)
    statement = "SELECT run, count(*) AS n FROM metrics GROUP BY run ORDER BY run"
    assert core("sql", statement, "--json") == 0
    assert json.loads(core.out) == [{"run": recorded.name, "n": 3}, {"run": "other", "n": 2}]
    assert core("sql", statement, other.name, "--json") == 0
    assert json.loads(core.out) == [{"run": "other", "n": 2}]


def test_cells_are_inert() -> None:
    assert table(["a", "b"], [("\x1b[31mx\ny", 1.5)])[1] == "x y  1.5"


def test_check_passes_a_whole_run_and_fails_a_changed_one(core: Shell, recorded: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    assert core("check", recorded.name) == 0
    assert "4 steps" in core.out
    assert re.search(r"largest difference of a recomputed advantage: [0-9.e-]+", core.out)
    file = next((recorded / "steps").glob("step=000001/tokens*.parquet"))
    tokens = pq.read_table(file)
    column = tokens.column_names.index("advantage")
    raised = pc.add(tokens["advantage"], pa.scalar(0.25, pa.float32()))
    pq.write_table(tokens.set_column(column, tokens.schema.field(column), raised), file)
    assert core("check", recorded.name) == 1
    assert "problem: " in core.err
    assert "step 1" in core.err


def test_a_programming_error_is_not_hidden(core: Shell, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:  # noqa: F811
    monkeypatch.setattr("core.cli.look.list_runs", lambda _: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        core("list")


def test_a_message_of_a_run_elsewhere_is_shown(core: Shell, root: Path, recorded: Path) -> None:  # noqa: F811
    write_status(recorded, Status(state="running", step=1, total=9, host="node7", pid=1, heartbeat=1.0, created=1.0))
    assert core("list") == 0
    assert re.search(r"no heartbeat for \d+ days on node7", core.out)
