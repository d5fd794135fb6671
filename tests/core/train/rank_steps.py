"""One rank of small runs, as `accelerate launch` starts it: MEETING, then run folders to train one after another.

Each folder gets `gradients-<rank>.npz`: what the optimizer was given at each of its steps, one array a parameter.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from core.ranks import ALONE, Ranks
from core.train.loop import train
from core.train.ranks import joined
from tests.core.train.runs import Reporter


def gradients_of(run_dir: Path, ranks: Ranks = ALONE) -> Reporter:
    """Train the run, and keep every gradient before its optimizer step."""
    seen: dict[str, np.ndarray] = {}

    def keep(optimizer: torch.optim.Optimizer, *_: object) -> None:
        step = len({key.partition(".")[0] for key in seen})
        for index, parameter in enumerate(optimizer.param_groups[0]["params"]):
            seen[f"{step}.{index}"] = parameter.grad.cpu().numpy().copy()

    handle = register_optimizer_step_pre_hook(keep)
    reporter = Reporter()
    try:
        train(run_dir, reporter, ranks)
    finally:
        handle.remove()
        np.savez(run_dir / f"gradients-{ranks.rank}.npz", **seen)
    return reporter


def main() -> None:
    meeting, *folders = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    with joined(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), meeting, "cpu") as ranks:
        for folder in folders:
            reporter = gradients_of(folder, ranks)
            print(f"rank {ranks.rank}: {folder.name}: {len(reporter.steps)} steps", flush=True)


if __name__ == "__main__":
    main()
