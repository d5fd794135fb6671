"""The exported trainer mode of verl on verl's own queue, under Ray on a CPU: advantages, response mask and dump.

`test_verl.py` makes the export and runs this with verl's environment. Sampling and the model's update need a GPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(os.environ["LAB_EXPORT"]).resolve()
sys.path.insert(0, str(FOLDER))
ends_with = 1  # the embedded model's end of sequence


@pytest.fixture(scope="module")
def queue() -> Any:
    import ray
    import transfer_queue
    from omegaconf import OmegaConf

    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    store = {"total_storage_size": 100, "num_data_storage_units": 1}
    transfer_queue.init(OmegaConf.create({"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": store}}))
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()


def rollouts() -> tuple[list[str], list[dict[str, Any]]]:
    """Keys and fields as verl's agent loop writes them: two groups of four, ragged."""
    draw = np.random.default_rng(0)
    keys, fields = [], []
    for group in range(2):
        for sample in range(4):
            length = int(draw.integers(2, 9))
            ids = torch.from_numpy(draw.integers(3, 40, length))
            ids[-1] = ends_with
            score = torch.zeros(length)
            score[-1] = float((group + sample) % 2)
            keys.append(f"u{group}_{sample}_0")
            fields.append(
                {
                    "uid": f"u{group}",
                    "prompts": torch.arange(3, 8),
                    "responses": ids,
                    "response_mask": torch.ones(length, dtype=torch.int64),
                    "rm_scores": score,
                    "rollout_log_probs": torch.from_numpy(-draw.random(length)).float(),
                    "old_log_probs": torch.from_numpy(-draw.random(length)).float(),
                    "entropy": torch.from_numpy(draw.random(length)).float(),
                    "extra_fields": {"reward_extra_info": {"acc": bool(score[-1])}},
                    "reward_model": {"ground_truth": "3"},
                }
            )
    return keys, fields


def test_the_trainers_step_gives_the_labs_advantages_and_dumps_them(queue: Any) -> None:
    import lab_verl
    from hydra import compose, initialize_config_module
    from transformers import AutoTokenizer
    from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    from core.advantage import Batch, compute

    assert lab_verl.register_trainer_mode() is get_trainer_cls("lab") is lab_verl.register_trainer_mode()
    keys, fields = rollouts()
    tags = [{"status": "success"} for _ in keys]
    queue.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
    batch = queue.KVBatchMeta(keys=keys, partition_id="train", tags=tags)
    trainer = object.__new__(get_trainer_cls("lab"))  # its own start wants GPUs
    trainer.tokenizer, trainer.global_steps = AutoTokenizer.from_pretrained(FOLDER / "model"), 1
    with initialize_config_module("verl.trainer.config", version_base=None):
        trainer.config = compose("ppo_trainer", overrides=["algorithm.adv_estimator=lab"])
    trainer.config.trainer.rollout_data_dir = str(FOLDER / "rollouts")
    batch = trainer._compute_advantage(batch, {})
    trainer._init_dump_executor()
    trainer._log_rollout_data(batch, {}, trainer.config.trainer.rollout_data_dir)
    trainer._shutdown_dump_executor()

    rows = {row["uid"]: row for row in map(json.loads, (FOLDER / "rollouts" / "1.jsonl").read_text().splitlines())}
    assert rows.keys() == set(keys)
    length = np.array([len(each["responses"]) for each in fields])

    def padded(name: str) -> np.ndarray:
        return np.array([np.pad(each[name].double().numpy(), (0, 8 - len(each[name]))) for each in fields])

    right = np.array([float(each["rm_scores"][-1]) for each in fields])
    trace = compute(
        lab_verl.ESTIMATOR.method,
        Batch(
            group=np.repeat([0, 1], 4), reward=right, correct=right > 0.5, length=length,
            truncated=np.zeros(8, dtype=bool), max_length=lab_verl.SETTINGS["max_length"], total_steps=100,
            sampler_logprob=padded("rollout_log_probs"), trainer_logprob=padded("old_log_probs"),
            entropy=padded("entropy"),
        ),
    )  # fmt: skip
    stored = queue.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])["advantages"]
    assert len({round(float(each), 6) for each in trace.advantage[0, : length[0]]}) > 1, "a token apart from the rest"
    for place, (key, each) in enumerate(zip(keys, fields, strict=True)):
        expected = trace.advantage[place, : length[place]]
        np.testing.assert_allclose(stored[place].numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rows[key]["token_advantage"], expected, rtol=1e-5, atol=1e-6)
        assert rows[key]["token_ids"] == each["responses"].tolist()
        np.testing.assert_allclose(rows[key]["sampler_logprob"], each["rollout_log_probs"].numpy(), rtol=1e-6)
        np.testing.assert_allclose(rows[key]["trainer_logprob"], each["old_log_probs"].numpy(), rtol=1e-6)
        assert (rows[key]["score"], rows[key]["acc"]) == (right[place], bool(right[place]))
