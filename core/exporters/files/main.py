"""Start verl's trainer with the lab's advantages; `run.sh` calls this with all settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
import lab_verl
import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

HERE = Path(__file__).resolve().parent
IN_HERE = (
    "data.train_files",
    "data.val_files",
    "reward.custom_reward_function.path",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
)
"""Settings whose relative paths start in this folder."""


class LabRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's runner, in whose process the lab's trainer is registered first."""

    def run(self, config: DictConfig) -> None:
        lab_verl.register_trainer_mode()
        super().run(config)


def located(config: DictConfig) -> DictConfig:
    """The config with whole paths: Ray's workers start elsewhere. A model that is not in this folder is left alone."""
    for key in IN_HERE:
        if value := OmegaConf.select(config, key):
            OmegaConf.update(config, key, str(HERE / value))
    model = HERE / str(config.actor_rollout_ref.model.path)
    if model.is_dir():
        config.actor_rollout_ref.model.path = str(model)
    return config


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config: Any) -> None:
    located(config)
    auto_set_device(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    run_ppo(config, task_runner_class=ray.remote(LabRunner))


if __name__ == "__main__":
    main()
