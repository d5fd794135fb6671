"""What can be done to a run from outside its process: launch, stop, resume, delete."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from core.config import ConfigError, ExperimentConfig, RunConfig, dump, parse_run, read_run
from core.runs import machine
from core.runs.create import check_machine, check_space, create_runs
from core.runs.folders import EXAMPLES, REPO, RESERVED, RunError, RunInfo, is_run_dir, run_info
from core.runs.locks import DeviceQueues, device_keys
from core.runs.status import Status, read_status, write_atomic, write_status
from core.tasks import names_code
from core.tasks.own_function import ONLY_THERE

GRACE_S = 30.0
"""Seconds for the current step to end after a request to stop (three times the run's own step if that is longer)."""
TERM_S = 15.0
"""Seconds between SIGTERM and SIGKILL."""

WORKER = (sys.executable, "-m", "core.runs.worker")

_LAUNCHERS = re.compile(r"(TORCHELASTIC|ACCELERATE|GROUP|ROLE)_|(LOCAL_)?(RANK|WORLD_SIZE)$|MASTER_(ADDR|PORT)$")
"""What `accelerate launch` tells the processes that it starts; a run's own are told anew."""

_children: list[subprocess.Popen[bytes]] = []


def start(root: Path, experiment: ExperimentConfig, *, code: bool = False) -> list[Path]:
    """Create and launch all runs of an experiment; they queue on their device in order.

    Raises ConfigError or RunError, before anything exists, if one of them cannot run. `code`: it may name Python of the
    user's own, which a page never starts.
    """
    paths = create_runs(root, experiment, code=code)
    for path in paths:
        launch(path, code=code)
    return paths


def launch(path: Path, *, code: bool = False) -> int:
    """Start a run's process, which waits in its device's line; returns its pid. Raises RunError.

    `code` as in `start`.
    """
    info = _own(path)
    status = read_status(path) or Status(created=time.time())
    if status.pid is not None:
        _refuse_if_busy(info, "wait for its end, or stop it first")
    config = _config_of(path)
    _refuse_if_read_only(info, config)
    own = names_code(config.task)
    if own and not code:
        raise RunError(ONLY_THERE)
    (path / "stop").unlink(missing_ok=True)
    here = {"host": machine.host(), "boot_id": machine.boot_id(), "heartbeat": time.time()}
    fresh = replace(status, state="queued", total=config.steps, message="", error="", pid=None, eta_s=None, **here)
    write_status(path, replace(fresh, started=None, finished=None, label=config.build_method().label))
    try:
        queue = DeviceQueues(device_keys(config.device, config.processes))
        number = queue.next_number()
        process = _spawn([*WORKER, str(path.resolve()), "--ticket", str(number)], path / "log.txt", here=own)
        queue.enter(info.id, number, process.pid)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise RunError(f"{info.id} cannot be started ({where}{error.strerror or error})") from error
    return process.pid


def _spawn(command: list[str], log: Path, here: bool = False) -> subprocess.Popen[bytes]:
    """A process of its own session, that lives on when this one ends; its output goes to the log. With `here`, it finds
    the Python modules of the current folder too."""
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    environment = {name: value for name, value in os.environ.items() if not _LAUNCHERS.match(name)}
    if here:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=REPO, stdout=out, start_new_session=True, env=environment, **streams)
    _children[:] = [child for child in _children if child.poll() is None] + [process]
    return process


def stop(path: Path, wait: bool = False, now: bool = False) -> None:
    """Ask a run to stop at its next step boundary; if it does not, SIGTERM, then SIGKILL. Raises RunError.

    Returns at once and sees to it in the background, unless `wait`. `now` does not wait for the step to end. Signals
    go only to the process that the run recorded, on this machine; elsewhere the `stop` file must do.
    """
    info = _own(path)
    if not info.live:
        raise RunError(f"{info.id} is not running: it is {info.state}")
    (path / "stop").touch()
    status = read_status(path)
    if status is None or not info.host_is_here or status.boot_id != machine.boot_id():
        return
    grace = 0.0 if now else max(GRACE_S, 3 * (status.step_s or 0.0))
    see_to_it = threading.Thread(target=_escalate, args=(path, status, grace), daemon=True)
    see_to_it.start()
    if wait:
        see_to_it.join()


def _escalate(path: Path, status: Status, grace_s: float) -> None:
    """Wait for a process to end; signal it when it does not."""
    deadline = time.monotonic() + grace_s
    while status.pid is None and time.monotonic() < deadline and run_info(path).live:
        time.sleep(0.1)
        status = read_status(path) or status
    if status.pid is None or _ended(path, status, deadline - time.monotonic()):
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not machine.same_process(status.pid, status.pid_started):
            return
        os.kill(status.pid, sign)
        if _ended(path, status, TERM_S):
            return


def _ended(path: Path, status: Status, seconds: float) -> bool:
    """Wait until the process is gone, or has written that it ended (it may still seal the run)."""
    deadline = time.monotonic() + seconds
    while machine.same_process(status.pid or 0, status.pid_started) and run_info(path).live:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def resume(path: Path, extend_to: int | None = None, *, code: bool = False) -> int:
    """Go on with a stopped or failed run, or with a finished one up to more steps; returns the pid. Raises RunError.

    Schedules given as a fraction of the run keep its original length. `code` as in `start`.
    """
    config = check_resume(path, extend_to, code=code)
    if extend_to is not None:
        write_atomic(path / "config.yaml", dump(config))
    return launch(path, code=code)


def check_resume(path: Path, extend_to: int | None = None, *, code: bool = False) -> RunConfig:
    """The settings with which `resume` would go on. Raises ConfigError or RunError where it could not; changes nothing.

    Model, task, engine, device and memory must be there as for a new run, and the steps that extending adds must fit
    on the disk.
    """
    info = _own(path)
    _refuse_if_busy(info, "wait for its end, or stop it first")
    config = _config_of(path)
    _refuse_if_read_only(info, config)
    if extend_to is None:
        if info.state == "finished":
            raise RunError(f"{info.id} is finished: to go on, extend it to more than its {config.steps} steps")
        check_machine(config, code=code)
        return config
    if extend_to <= config.steps:
        raise RunError(f"{info.id} has {config.steps} steps: to extend it, name a larger number than that")
    extended = _extended(config, extend_to)
    check_machine(extended, code=code)
    check_space(path.parent, [extended.model_copy(update={"steps": max(1, extend_to - info.step)})])
    return extended


def _refuse_if_read_only(info: RunInfo, config: RunConfig) -> None:
    if info.packed:
        raise RunError(f"{info.id} is packed, without its checkpoint: it can be looked at, not gone on with")
    if config.imported:
        raise RunError(f"{info.id} came from elsewhere: it can be looked at, not started")


def _extended(config: RunConfig, steps: int) -> RunConfig:
    changes = {"steps": steps, "schedule_steps": config.schedule_steps or config.steps}
    return parse_run({**config.model_dump(), **changes})


def delete(path: Path) -> None:
    """Remove a run's folder, in one move out of sight first. Raises RunError for a run that is live."""
    info = _own(path)
    _refuse_if_busy(info, "stop it first")
    if path.is_symlink():
        path.unlink()
        return
    hidden = path.with_name(f".deleted-{path.name}-{time.time_ns()}")
    try:
        path.rename(hidden)
        shutil.rmtree(hidden)
    except OSError as error:
        raise RunError(f"{info.id} cannot be deleted ({error.strerror or error})") from error


def _refuse_if_busy(info: RunInfo, advice: str) -> None:
    """Raise RunError for a run that a process has, as far as can be told from here."""
    if info.live and not info.abandoned:
        where = "" if info.host_is_here else f" on {info.host}"
        raise RunError(f"{info.id} is {info.state}{where}: {advice}")


def _own(path: Path) -> RunInfo:
    """The run of a folder that may be changed. Raises RunError."""
    if path.name in RESERVED or not is_run_dir(path):
        raise RunError(f"{path.name}: not a run folder")
    if path.resolve().parent == EXAMPLES:
        raise RunError(f"{path.name} is a shipped example: it can be looked at, not changed")
    return run_info(path)


def _config_of(path: Path) -> RunConfig:
    try:
        return read_run(path / "config.yaml")
    except ConfigError as error:
        raise RunError(f"{path.name}: its config cannot run: {error}") from error
