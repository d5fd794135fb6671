"""python -m tests.gpu.on_pretend FOLDER JSON: train a run with these settings on the pretend device, stopping once.

FOLDER/run is the run; it is stopped after two steps and resumed from its checkpoint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from core.config import RunConfig
from core.models.load import load_model
from core.train import loop
from core.train.policy import Policy
from tests.core.train.runs import Reporter, run
from tests.gpu import pretend


def load_policy(config: RunConfig) -> Policy:
    model, tokenizer = load_model(config.model, "cpu", config.precision)
    return Policy(model.to(pretend.NAME), tokenizer, config)


def main() -> None:
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    loop.load_policy = load_policy
    with pretend.machine():
        run(folder / "run", Reporter(stop_after=2), **settings)
        run(folder / "run", Reporter())


if __name__ == "__main__":
    main()
