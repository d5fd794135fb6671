"""The lab in verl: `register_adv_est` gets the estimator `lab`, and `trainer.v1.trainer_mode` the mode `lab`.

The mode is verl's synchronous trainer. It shows the estimator what verl does not hand to one (log-probs, entropies, the
step, which answers are right), takes tokens that the method drops out of the response mask, and adds to verl's dump of
rollouts each token's id, log-probs and advantage, under the names that the lab imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lab_advantage import TENSORS, from_settings
from verl.trainer.ppo.core_algos import register_adv_est

NAME = "lab"
HERE = Path(__file__).parent
SETTINGS: dict[str, Any] = json.loads((HERE / "lab.json").read_text(encoding="utf-8"))
ESTIMATOR = from_settings(SETTINGS, padding=True)
register_adv_est(NAME)(ESTIMATOR)

NUMBERS = {"rollout_log_probs", "old_log_probs", "ref_log_prob", "entropys"}


def show(
    batch: dict[str, torch.Tensor], step: int, ends: set[int], extra: list[Any] | None = None
) -> dict[str, np.ndarray]:
    """Hand the estimator what it reads beside rewards: padded (n, L) tensors by verl's names, the step from 0, and
    verl's extra fields of each rollout, of which `acc` says whether the answer is right. `ends` are the ids of tokens
    that end a response. Returns what was found out of each response, (n,) bool by the name that the dump has for it."""
    mask = batch["response_mask"].bool()
    places = mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)
    last = (places.max(dim=1).values - 1).clamp(min=0)
    ended = torch.isin(batch["responses"].gather(1, last[:, None])[:, 0], torch.tensor(sorted(ends)).to(mask.device))
    truncated = ((last + 1 >= SETTINGS["max_length"]) & ~ended).cpu().numpy()
    said = [each.get("reward_extra_info", {}).get("acc") if isinstance(each, dict) else None for each in extra or ()]
    known = bool(said) and all(each is not None for each in said)
    found = {"truncated": truncated} | ({"acc": np.array(said, dtype=bool)} if known else {})
    ESTIMATOR.show(batch, step=step, correct=found.get("acc"), truncated=truncated)
    return found


def recorded(
    keys: list[str], batch: dict[str, torch.Tensor], found: dict[str, np.ndarray], tokenizer: Any
) -> dict[str, dict[str, Any]]:
    """What the dump says of each rollout beyond verl's own columns, by verl's key of it; padding rows have nothing."""
    mask = batch["response_mask"].bool()
    rows = [row for row in range(len(keys)) if mask[row].any()]
    entries = {}
    for place, row in enumerate(rows):
        own = mask[row]
        entry: dict[str, Any] = {
            "lab_reward": float(ESTIMATOR.reward[place]),
            "length": int(own.sum()),
            **{name: bool(values[row]) for name, values in found.items()},
            "token_ids": (ids := batch["responses"][row][own].tolist()),
            "tokens": [tokenizer.decode([token]) for token in ids],
            "token_advantage": batch["advantages"][row][own].tolist(),
            "kept": ESTIMATOR.kept[row][own].tolist(),
        }
        for name in NUMBERS & batch.keys():
            entry[TENSORS[name]] = batch[name][row][own].tolist()
        entries[keys[row]] = entry
    return entries


def register_trainer_mode() -> type:
    """Register the trainer mode; here and not above, since it imports all of verl's trainer."""
    import transfer_queue as tq
    from tensordict import TensorDict
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.workers.utils.padding import response_to_nested

    if NAME in TRAINER_REGISTRY:
        return TRAINER_REGISTRY[NAME]

    @register_trainer(NAME)
    class LabTrainer(PPOTrainerSync):
        _recorded: dict[str, dict[str, Any]] | None = None

        def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
            fields = ["response_mask", "responses", *(NUMBERS - {"entropys"}), "entropy", "extra_fields"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
            extra = data.pop("extra_fields").tolist() if "extra_fields" in data.keys() else None  # noqa: SIM118
            nested = data["response_mask"]
            padded = dict(data.to_padded_tensor().items())
            if "entropy" in padded:
                padded["entropys"] = padded.pop("entropy")
            ends = {self.tokenizer.eos_token_id, self.tokenizer.pad_token_id} - {None}
            found = show(padded, self.global_steps - 1, ends, extra)
            batch = super()._compute_advantage(batch, metrics)
            after = tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages", "response_mask"]
            ).to_padded_tensor()
            padded["advantages"] = after["advantages"]
            self._recorded = recorded(batch.keys, padded, found, self.tokenizer)
            kept = ESTIMATOR.kept.to(after["response_mask"].device)[:, : after["response_mask"].shape[1]]
            if not kept[padded["response_mask"].bool()].all():
                mask = after["response_mask"] * kept.to(after["response_mask"].dtype)
                update = TensorDict({"response_mask": response_to_nested(mask, nested)}, batch_size=len(batch))
                batch = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=update)
            return batch

        def _dump_generations(self, inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path):  # type: ignore[no-untyped-def]
            known, keys = self._recorded, reward_extra_infos_dict.get("uid")
            if dump_path == self.config.trainer.rollout_data_dir and known and keys:
                self._recorded = None
                names = dict.fromkeys(name for entry in known.values() for name in entry)
                rows = [known.get(key, {}) for key in keys]
                own = {name: [row.get(name) for row in rows] for name in names}
                scores = [row.get("lab_reward", score) for row, score in zip(rows, scores, strict=True)]
                own.pop("lab_reward", None)
                reward_extra_infos_dict = {**reward_extra_infos_dict, **own}
            super()._dump_generations(inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path)

    return LabTrainer
