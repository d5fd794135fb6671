"""The lab in verl, run by verl's own environment: its numbers (`check_advantages.py`, `check_losses.py`), and what
`core export verl` writes (`check_export.py`, `check_trainer.py`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from core.config import RunConfig, parse_run
from core.exporters.verl import export_verl
from tests.needs import need_verl

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*checks: str, **environment: str) -> str:
    """What pytest prints of these modules, all of whose tests passed.

    They are found beside each other (prepend), and none of this suite's own configuration is used.
    """
    options = ["--noconftest", "--import-mode=prepend", "-oaddopts=", "-pno:cacheprovider", "-Wignore", "-q"]
    command = [need_verl(), "-m", "pytest", *options, *(HERE / check for check in checks)]
    own = os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=500, check=False)
    print(done.stdout[-10_000:])
    if done.returncode:
        pytest.fail(f"{done.stdout[-10_000:]}\n{done.stderr[-2_000:]}", pytrace=False)
    return done.stdout


HARD = 'it\'s $HOME `x` ${y} \\ "q" = [1, 2], {z}'
"""A name that a shell, hydra and OmegaConf would each read something into."""
EXPORTS: dict[str, RunConfig] = {
    "a3po": parse_run({"method": "a3po", "name": HARD, "updates": {"minibatches": 2}}),
    "hard": parse_run({"model": "someone/of-no-machine", "name": "null", "lora": {"targets": ["q_proj", "v_proj"]}}),
    "grpo_kl": parse_run(
        {"method": "grpo", "loss": {"kl": 0.01}, "overlong": {"buffer": 8}, "optimizer": {"name": "sgd"}}
    ),
    "kl_cov": parse_run({"method": "kl_cov"}),
    "gspo": parse_run({"method": "gspo", "optimizer": {"max_grad_norm": None}, "evaluate": {"every": 0}}),
}


def test_verl_gives_the_labs_numbers_takes_every_setting_and_calls_the_estimator(tmp_path: Path) -> None:
    """All in one process, since verl takes ten seconds to load."""
    need_verl()
    for name, config in EXPORTS.items():
        export_verl(config, tmp_path / name)
    said = run("check_advantages.py", "check_losses.py", "check_export.py", LAB_EXPORTS=str(tmp_path))
    assert re.search(r"^\d{3,} passed in ", said, re.MULTILINE), "a check was skipped, or there are none"


def test_verls_trainer_trains_on_the_labs_advantages_and_its_dump_comes_back(tmp_path: Path) -> None:
    """The exported trainer mode on verl's own queue under Ray; sampling and the model's update are left out."""
    need_verl()
    folder = tmp_path / "e"
    config = parse_run({"method": "a3po", "group_size": 4, "prompts_per_step": 2})
    export_verl(config, folder)
    home = Path("/tmp") / f"lab-ray-{os.getpid()}"  # Ray's sockets need a short path
    home.mkdir()
    try:
        said = run("check_trainer.py", LAB_EXPORT=str(folder), HOME=str(home), RAY_TMPDIR=str(home))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert re.search(r"^\d passed in ", said, re.MULTILINE)
    rows = [json.loads(line) for line in (folder / "rollouts" / "1.jsonl").read_text().splitlines()]
    assert len(rows) == 8 and {row["uid"].rsplit("_", 2)[0] for row in rows} == {"u0", "u1"}
    assert all(len(row["token_advantage"]) == len(row["token_ids"]) == row["length"] for row in rows)
