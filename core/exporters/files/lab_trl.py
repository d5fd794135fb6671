"""TRL's GRPOTrainer with the lab's advantages: a number a token, from the rules in the package `core` beside this file.

TRL samples, scores and computes the loss; the advantages between them are the lab's. Its log of completions has each
answer's tokens, log-probs, entropies and advantages too, under the names that the lab imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import load_dataset
from lab_advantage import Estimator, from_settings
from lab_reward import judge
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

HERE = Path(__file__).resolve().parent
SETTINGS: dict[str, Any] = json.loads((HERE / "lab.json").read_text(encoding="utf-8"))
SCORED = {
    "old_per_token_logps": "old_log_probs",
    "sampling_per_token_logps": "rollout_log_probs",
    "ref_per_token_logps": "ref_log_prob",
    "entropies": "entropys",
}
"""TRL's tensors (n, T), and what the estimator calls them."""
LOGGED = {
    "old_log_probs": "trainer_logprob",
    "rollout_log_probs": "sampler_logprob",
    "ref_log_prob": "ref_logprob",
    "entropys": "entropy",
}


class LabTrainer(GRPOTrainer):
    """`lab` describes the method; every process computes all advantages and keeps those of its own answers."""

    def __init__(self, *args: Any, lab: Estimator, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.lab = lab
        self.judged: list[bool] = []

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return output
        self._score(output)
        rows = gather_object(self._rows(output))
        advantage, kept = self._advantages(rows)
        own = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        width, device = output["completion_ids"].shape[1], output["completion_ids"].device
        output["advantages"] = torch.nn.functional.pad(advantage, (0, width))[own, :width].to(device)
        mask = torch.nn.functional.pad(kept, (0, width))[own, :width].to(device)
        if not mask[output["completion_mask"].bool()].all():
            output["tool_mask"] = mask.to(output["completion_mask"].dtype)  # TRL's mask of the loss alone
            output["num_items_in_batch"] = kept.sum().to(device)
        if SETTINGS["objective"] == "reinforce":
            output.pop("old_per_token_logps", None)  # then the ratio is 1, with the gradient of the log-prob
        output.pop("entropies")
        return output

    def _score(self, output: dict[str, Any]) -> None:
        """Log-probs and entropies of the step's start, as TRL computes them."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        attention = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            logprob, entropy, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, attention, output["completion_ids"].shape[1],
                batch_size=self.args.per_device_train_batch_size, compute_entropy=True,
            )  # fmt: skip
        output.setdefault("old_per_token_logps", logprob)
        output["entropies"] = entropy

    def _rows(self, output: dict[str, Any]) -> list[dict[str, Any]]:
        """This process's answers as plain lists, which processes exchange."""
        mask = output["completion_mask"].bool()
        rows = []
        for row in range(len(mask)):
            own = mask[row]
            entry = {"ids": output["completion_ids"][row][own].tolist(), "correct": self.judged[row]}
            for name in SCORED.keys() & output.keys():
                entry[SCORED[name]] = output[name][row][own].tolist()
            rows.append(entry)
        return rows

    def _advantages(self, rows: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
        """((N, T) advantages, (N, T) bool kept) of all processes' answers; what the log gets of them is added to it."""
        rewards = self._last_rewards
        width = max(len(row["ids"]) for row in rows)

        def padded(name: str) -> torch.Tensor:
            return torch.tensor([row[name] + [0] * (width - len(row[name])) for row in rows])

        mask = torch.tensor([[True] * len(row["ids"]) + [False] * (width - len(row["ids"])) for row in rows])
        group = [index // self.num_generations for index in range(len(rows))]
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        truncated = [len(row["ids"]) >= self.max_completion_length and row["ids"][-1] not in ends for row in rows]
        tensors = {name: padded(name) for name in LOGGED if name in rows[0]}
        self.lab.show(tensors, self._lab_step(), [row["correct"] for row in rows], truncated)
        spread = torch.zeros(mask.shape, dtype=torch.float64)
        spread[:, 0] = rewards.double().cpu()
        advantage, _ = self.lab(spread, mask, group)
        kept = self.lab.kept
        self._log(rows, group, truncated, advantage, kept)
        return advantage.float(), kept

    def _log(
        self, rows: list[dict[str, Any]], group: list[int], truncated: list[bool], advantage: Any, kept: Any
    ) -> None:
        """Replace TRL's advantages in its log by the lab's, and add the columns of each answer."""
        lengths = [len(row["ids"]) for row in rows]
        values = [advantage[index, :length].tolist() for index, length in enumerate(lengths)]
        for _ in rows:
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(sum(each) / len(each) for each in values)
        columns: dict[str, list[Any]] = {
            "step": [self._lab_step()] * len(rows),  # in place of TRL's own, which counts updates
            "group": [str(each) for each in group],
            "length": lengths,
            "truncated": truncated,
            "correct": [row["correct"] for row in rows],
            "token_ids": [row["ids"] for row in rows],
            "tokens": [[self._tokenizer.decode([token]) for token in row["ids"]] for row in rows],
            "token_advantage": values,
            "kept": [kept[index, :length].tolist() for index, length in enumerate(lengths)],
        }
        columns |= {LOGGED[name]: [row[name] for row in rows] for name in LOGGED if name in rows[0]}
        for name, column in columns.items():
            self._logs["extra"][name].extend(column)

    def _lab_step(self) -> int:
        """How often answers were sampled before, from 0."""
        updates = self.args.steps_per_generation * self.num_iterations // self.args.gradient_accumulation_steps
        return self.state.global_step // max(1, updates)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(*args, **kwargs)
        self._last_rewards = rewards[:, 0]
        return rewards

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """An evaluation would write its answers over those of the step that it follows."""
        wanted = self.log_completions
        self.log_completions = wanted and self.model.training
        try:
            super().log(logs, start_time)
        finally:
            self.log_completions = wanted


def train(model: str, lora: dict[str, Any], arguments: dict[str, Any], threads: int | None = None) -> LabTrainer:
    """Train, and save the adapter in `output/adapter`. `model` may be the folder beside this file."""
    if threads:
        torch.set_num_threads(threads)
    folder = HERE / model
    data = {name: str(HERE / "data" / f"{name}.jsonl") for name in ("train", "held_out")}
    prompts = load_dataset("json", data_files=data)
    trainer: LabTrainer
    lab = from_settings(SETTINGS)
    cost, lab.cost = lab.cost, None  # here it joins the rewards that TRL logs

    def reward(
        completions: list[Any], completion_ids: list[Any], text: list[str], answer: list[str], **_: Any
    ) -> list[float]:
        said = [each if isinstance(each, str) else each[0]["content"] for each in completions]
        verdicts = [judge(*each) for each in zip(text, answer, said, strict=True)]
        trainer.judged = [verdict.correctness >= SETTINGS["correct_threshold"] for verdict in verdicts]
        lost = cost(np.array([len(ids) for ids in completion_ids]))
        return [verdict.reward + float(each) for verdict, each in zip(verdicts, lost, strict=True)]

    trainer = LabTrainer(
        model=str(folder) if folder.is_dir() else model,
        reward_funcs=reward,
        args=GRPOConfig(output_dir=str(HERE / "output"), **arguments),
        train_dataset=prompts["train"],
        eval_dataset=prompts["held_out"],
        peft_config=LoraConfig(**lora),
        lab=lab,
    )
    trainer.train()
    trainer.save_model(str(HERE / "output" / "adapter"))
    return trainer


__all__ = ["LabTrainer", "train"]
