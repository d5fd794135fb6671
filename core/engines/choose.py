"""Which engine a run samples with, and whether it can here. torch is imported only where an engine is made."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from core.config import ConfigError, RunConfig
from core.models.catalog import EMBEDDED

if TYPE_CHECKING:
    from core.engines.base import Engine
    from core.train.policy import Policy

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The sizes that vLLM makes room for; an adapter takes the next that holds it."""
VLLM_COLDEST = 0.01
"""vLLM raises a lower temperature to this one, without a word."""
VLLM_HOTTEST = 2.0
"""vLLM refuses a higher temperature."""
INSTALL = {
    "cuda": "pip install -r requirements-gpu.txt",
    "cpu": "python .ci/vllm_cpu.py",
}


def engine_name(config: RunConfig, device: str) -> Literal["transformers", "vllm"]:
    """`auto` resolved for a device, cpu or cuda."""
    if config.engine != "auto":
        return config.engine
    return "vllm" if device == "cuda" and vllm_build() == "cuda" and config.model != EMBEDDED else "transformers"


def vllm_build() -> Literal["cpu", "cuda"] | None:
    """What the installed vLLM was built for; None where there is none."""
    if find_spec("vllm") is None:
        return None
    try:
        version("vllm-cpu")
        return "cpu"
    except PackageNotFoundError:
        pass
    try:
        return "cpu" if version("vllm").endswith("+cpu") else "cuda"
    except PackageNotFoundError:
        return None


def check_engine(config: RunConfig, device: str) -> None:
    """Raises ConfigError where the run's engine is not there, or cannot do what the config asks for."""
    if engine_name(config, device) != "vllm":
        return
    build = vllm_build()
    where = {"cuda": "an NVIDIA GPU", "cpu": "the CPU"}
    if build != device:
        there = f"the one installed is for {where[build]}" if build else "it is not installed"
        raise ConfigError(
            f"engine is vllm, but for a run on {where[device]} vLLM must be one built for it, and {there}: install it "
            f"({INSTALL[device]}; the README says more), or set engine: transformers"
        )
    if config.lora.r > VLLM_RANKS[-1]:
        raise ConfigError(f"lora.r is {config.lora.r}, but vLLM takes adapters of rank {VLLM_RANKS[-1]} at most")
    if not VLLM_COLDEST <= config.sampling.temperature <= VLLM_HOTTEST:
        raise ConfigError(
            f"sampling.temperature is {config.sampling.temperature:g}, but vLLM samples at {VLLM_COLDEST:g} to "
            f"{VLLM_HOTTEST:g}"
        )


def make_engine(config: RunConfig, policy: Policy, run_dir: Path, rank: int = 0) -> Engine:
    """The run's engine, started; `close()` ends it. Raises ConfigError, EngineError."""
    device = policy.device.type
    check_engine(config, device)
    if engine_name(config, device) == "vllm":
        from core.engines.vllm import VllmEngine

        return VllmEngine(config, policy, run_dir, rank)
    from core.engines.transformers import TransformersEngine

    return TransformersEngine(policy.model, policy.tokenizer, system_prompt=config.system_prompt)
