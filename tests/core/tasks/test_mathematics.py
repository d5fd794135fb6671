"""math-verify in a process that can be killed: right, wrong, too long, and never the end of the trainer."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pytest

from core.config_tasks import TaskSettings
from core.tasks import Prompt, TaskError, get_task, mathematics
from core.tasks.mathematics import PROCESS, Mathematics
from tests.needs import need_math

ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


@pytest.fixture(scope="module", autouse=True)
def _process():
    need_math()
    yield
    PROCESS.close()


def outcome(answer: str, response: str, seconds: float = 20.0) -> str:
    judged = Mathematics(seconds=seconds).judge(Prompt("?", answer), response)
    named = [name for name in ("timed_out", "failed") if judged.traits[name]]
    return (named or ["right" if judged.correctness else "wrong" if judged.traits["answered"] else "no answer"])[0]


@pytest.mark.parametrize(
    ("answer", "response", "wanted"),
    [
        ("1/2", r"so \boxed{\frac{1}{2}}", "right"),
        (r"$\frac12$", "the answer is 0.5", "right"),
        ("x^2+1", r"\boxed{1+x^2}", "right"),
        (r"\sqrt{8}", r"it is $2\sqrt{2}$", "right"),
        ("(1,2)", r"\boxed{(1, 2)}", "right"),
        ("5 #### 7", r"\boxed{7}", "right"),
        ("7", r"\boxed{8}", "wrong"),
        ("7", "no idea", "no answer"),
        ("7", "", "no answer"),
        ("7", "\ud800 \\boxed{7} \x00", "right"),
    ],
)
def test_formulas_are_compared(answer, response, wanted):
    assert outcome(answer, response) == wanted


def test_a_formula_without_end_is_its_own_outcome_and_the_next_one_is_judged():
    outcome("1", r"\boxed{1}")
    started = time.monotonic()
    assert outcome("3", ENDLESS, seconds=0.5) == "timed_out"
    assert time.monotonic() - started < 0.5 + 20
    assert outcome("3", r"\boxed{3}") == "right"


def test_nothing_in_a_response_is_run(tmp_path):
    for text in ("__import__('os').system('touch {}')", r"\boxed{{__import__('os').system('touch {}')}}"):
        assert outcome("7", text.format(tmp_path / "ran")) in ("wrong", "no answer", "failed", "right")
    assert not list(tmp_path.iterdir())


def test_threads_take_turns():
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(outcome("4", r"\boxed{4}"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["right"] * 4


def test_a_lost_process_is_replaced():
    outcome("1", r"\boxed{1}")
    first = PROCESS.pid
    os.kill(first, signal.SIGKILL)
    assert outcome("1", r"\boxed{1}") == "right"
    assert PROCESS.pid != first


def test_closing_leaves_no_process_behind():
    outcome("1", r"\boxed{1}")
    family = [psutil.Process(PROCESS.pid), *psutil.Process(PROCESS.pid).children(recursive=True)]
    assert len(family) == 2
    PROCESS.close()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def test_without_the_package_one_sentence_has_the_command(monkeypatch):
    monkeypatch.setattr(mathematics.importlib.util, "find_spec", lambda name: None)
    words = r'^task\.verify\.kind is math, which needs the package math-verify: pip install "math-verify>='
    with pytest.raises(TaskError, match=words):
        get_task(TaskSettings(verify={"kind": "math"}))
