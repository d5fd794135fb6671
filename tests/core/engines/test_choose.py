"""Which engine a run gets, and what is said before anything is made where it cannot have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import ConfigError, ExperimentConfig, parse, parse_run
from core.engines import choose
from core.engines.choose import check_engine, engine_name, vllm_build
from core.runs.create import create_runs


@pytest.fixture(params=["cuda", "cpu", None])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Machines with vLLM for a GPU, with vLLM for a CPU, and without any."""
    monkeypatch.setattr(choose, "vllm_build", lambda: request.param)
    return request.param


def config(**settings: object):
    return parse_run({"model": "some/model", **settings})


def test_auto_takes_vllm_on_a_gpu_alone(build: str | None) -> None:
    assert engine_name(config(), "cuda") == ("vllm" if build == "cuda" else "transformers")
    assert engine_name(config(), "cpu") == "transformers"
    assert engine_name(config(model="embedded"), "cuda") == "transformers"


def test_a_named_engine_is_taken(build: str | None) -> None:
    for device in ("cpu", "cuda"):
        assert engine_name(config(engine="vllm"), device) == "vllm"
        assert engine_name(config(engine="transformers"), device) == "transformers"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_vllm_must_be_there_and_built_for_the_device(build: str | None, device: str) -> None:
    check_engine(config(), device)
    if build == device:
        check_engine(config(engine="vllm"), device)
        return
    with pytest.raises(ConfigError, match=r"^engine is vllm, but .* set engine: transformers$") as caught:
        check_engine(config(engine="vllm"), device)
    assert choose.INSTALL[device] in str(caught.value)
    assert ("is not installed" in str(caught.value)) == (build is None)


def test_what_vllm_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "vllm_build", lambda: "cpu")
    with pytest.raises(ConfigError, match=r"lora\.r is 600.*512"):
        check_engine(config(engine="vllm", lora={"r": 600}), "cpu")
    with pytest.raises(ConfigError, match=r"sampling\.temperature is 0\.005.*0\.01"):
        check_engine(config(engine="vllm", sampling={"temperature": 0.005}), "cpu")
    check_engine(config(engine="vllm", sampling={"temperature": 2}), "cpu")
    with pytest.raises(ConfigError, match=r"sampling\.temperature is 2\.5.*2"):
        check_engine(config(engine="vllm", sampling={"temperature": 2.5}), "cpu")
    check_engine(config(engine="transformers", lora={"r": 600}), "cpu")


def test_the_installed_vllm_is_recognised() -> None:
    from importlib.util import find_spec

    assert (vllm_build() is None) == (find_spec("vllm") is None)


def test_nothing_is_made_where_vllm_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "vllm_build", lambda: None)
    experiment: ExperimentConfig = parse({"engine": "vllm", "device": "cpu"})
    with pytest.raises(ConfigError, match=r"^engine is vllm"):
        create_runs(tmp_path / "runs", experiment)
    assert not (tmp_path / "runs").exists()
