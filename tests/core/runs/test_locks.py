"""Whose turn it is on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import Timeout

from core.runs import RunError, locks
from core.runs.locks import (
    DeviceQueue,
    DeviceQueues,
    device_key,
    device_keys,
    has_cuda,
    locks_dir,
    ordinal,
    run_lock,
    visible_gpus,
)

NEVER = lambda: False  # noqa: E731


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_free_device_is_had_at_once() -> None:
    said: list[str] = []
    queue = DeviceQueue("cpu")
    assert queue.wait("a", None, said.append, NEVER)
    assert said == []
    queue.leave()
    queue.leave()
    assert queue.tickets() == []


def test_the_earlier_ticket_goes_first_whoever_asks_first(sleeper: subprocess.Popen) -> None:
    queue = DeviceQueue("cpu")
    early = queue.next_number()
    late = early + 1
    queue.enter("theirs", early, pid=sleeper.pid)
    said: list[str] = []
    got = threading.Event()
    threading.Thread(target=lambda: queue.wait("mine", late, said.append, NEVER) and got.set(), daemon=True).start()
    assert not got.wait(3 * locks.POLL_S)
    assert said == ["waiting for cpu, 1st in line, after theirs"]
    sleeper.kill()
    sleeper.wait()
    assert got.wait(10)
    queue.leave()


def test_tickets_of_the_dead_and_garbage_are_thrown_away(sleeper: subprocess.Popen) -> None:
    queue = DeviceQueue("cpu")
    ticket = queue.enter("theirs", pid=sleeper.pid)
    for name, text in {"x-1": "{}", "1-1": "", "2-2": "[]", "3-3": '{"pid": "x", "host": null}'}.items():
        (queue.folder / f"{name}.ticket").write_text(text)
    assert queue.tickets() == [ticket]
    sleeper.kill()
    sleeper.wait()
    assert queue.tickets() == []
    assert list(queue.folder.glob("*.ticket")) == []


def test_a_reused_pid_holds_no_ticket() -> None:
    queue = DeviceQueue("cpu")
    ticket = queue.enter("mine")
    text = ticket.path.read_text().replace('"pid_started": ', '"pid_started": 9')
    ticket.path.write_text(text)
    assert queue.tickets() == []


def test_numbers_grow_even_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = DeviceQueue("cpu")
    first = queue.enter("a")
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    assert queue.next_number() == first.number + 1


def test_giving_up_leaves_the_line(sleeper: subprocess.Popen) -> None:
    queue = DeviceQueue("cpu")
    queue.enter("theirs", 1, pid=sleeper.pid)
    assert not queue.wait("mine", 2, lambda words: None, lambda: True)
    assert [ticket.run for ticket in queue.tickets()] == ["theirs"]


def test_devices_have_lines_of_their_own() -> None:
    cpu, cuda = DeviceQueue("cpu"), DeviceQueue("cuda-0")
    assert cpu.wait("a", None, print, NEVER)
    assert cuda.wait("b", None, print, NEVER)
    cpu.leave()
    cuda.leave()


def test_a_dead_process_frees_its_lock() -> None:
    code = "import os; from core.runs.locks import *; DeviceQueue('cpu').wait('a', None, print, bool); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    queue = DeviceQueue("cpu")
    assert queue.wait("b", None, lambda words: pytest.fail(words), NEVER)
    queue.leave()


def test_a_run_has_one_worker_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with run_lock(tmp_path / "run"), pytest.raises(Timeout):
        run_lock(tmp_path / "link").acquire(timeout=0)


def test_the_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locks_dir().stat().st_mode & 0o077 == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "planted").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "planted"))
    with pytest.raises(RunError, match="not a folder of yours"):
        locks_dir()


def test_it_does_not_depend_on_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVANTAGE_LAB_LOCKS")
    made: list[str] = []
    monkeypatch.setattr(Path, "mkdir", lambda self, **_: made.append(str(self)))
    monkeypatch.setattr(Path, "lstat", lambda self: os.stat(Path.cwd()))
    for tmpdir in ("/a", "/b"):
        monkeypatch.setenv("TMPDIR", tmpdir)
        monkeypatch.setenv("XDG_RUNTIME_DIR", tmpdir)
        locks_dir()
    assert made[0] == made[1]
    assert str(os.getuid()) in made[0]


def test_keys_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (device_key("cpu"), device_key("auto"), device_key("cuda")) == ("cpu", "cuda-0", "cuda-0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8/../x,1")
    assert device_key("auto") == "cuda-GPU-8-x"
    monkeypatch.setattr(locks, "has_cuda", lambda: False)
    assert device_key("auto") == "cpu"


def test_a_run_on_several_gpus_holds_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "has_cuda", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1,GPU-8")
    assert visible_gpus() == ["3", "1", "GPU-8"]
    assert device_keys("auto", 2) == ["cuda-3", "cuda-1"]
    assert device_keys("cuda", 9) == ["cuda-3", "cuda-1", "cuda-GPU-8"]
    assert device_keys("cpu", 2) == ["cpu"]
    both, other = DeviceQueues(device_keys("auto", 2)), DeviceQueue("cuda-1")
    assert both.wait("both", None, print, lambda: False)
    said: list[str] = []
    assert not other.wait("other", None, said.append, lambda: bool(said))
    assert said == ["waiting for cuda-1, 1st in line, after both"]
    both.leave()
    assert other.wait("other", None, print, lambda: False)
    assert not both.wait("both", None, said.append, lambda: len(said) > 1), "one of the two is taken"
    assert not DeviceQueue("cuda-3").tickets(), "and the free one is given back"
    assert DeviceQueue("cuda-3").wait("third", None, print, lambda: False)


def test_hidden_gpus_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not has_cuda()


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th",
    ]  # fmt: skip
