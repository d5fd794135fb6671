"""Phases are timed from start to end, the GPU's work included; the GPU here is a list of what it was asked."""

from __future__ import annotations

import pytest
import torch

from core.train.clock import Clock


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: found.append("wait"))
    return found


def test_phases_add_up_and_a_failure_is_timed_too(calls, monkeypatch):
    moments = iter([1.0, 3.0, 10.0, 15.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    clock = Clock()
    with clock("sample"):
        pass
    with pytest.raises(KeyError), clock("sample"):
        raise KeyError
    assert clock.seconds == {"sample": 7.0}
    assert calls == []  # without a GPU nothing waits


def test_a_gpu_is_waited_for_before_and_after(calls, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with Clock()("update"):
        calls.append("work")
    assert calls == ["wait", "work", "wait"]
