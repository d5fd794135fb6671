"""TRL's own GRPOTrainer around the tiny model: it samples, and gives its loss and gradient, without a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig

from tests.core import tiny

Inputs = dict[str, torch.Tensor]
Adapter = dict[str, torch.Tensor]


class Trl:
    """A trainer with a new adapter on the tiny model, so that its reference is the model without one.

    `rewards` are what the rollouts of a batch get, in order; `arguments` go to GRPOConfig. A batch is shared out among
    `steps` optimizer steps, and goes through the model in `parts` of one size.
    """

    def __init__(
        self, folder: Path, lora: LoraConfig, adapter: Adapter, rewards: list[float], parts: int = 1, steps: int = 1,
        **arguments: Any,
    ):  # fmt: skip
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer  # seconds, and vLLM comes along where it is installed

        self.trainer = GRPOTrainer(
            model=tiny.llama(),
            reward_funcs=lambda **_: rewards,
            args=GRPOConfig(
                output_dir=str(folder),
                per_device_train_batch_size=len(rewards) // parts,
                gradient_accumulation_steps=parts // steps,
                steps_per_generation=parts,
                bf16=False,
                use_cpu=True,
                gradient_checkpointing=False,
                report_to=[],
                disable_tqdm=True,
                **arguments,
            ),
            train_dataset=Dataset.from_list([{"prompt": "1+1="}]),
            processing_class=tiny.tokenizer(),
            peft_config=lora,
        )
        # what `train` would set before the first step
        self.trainer.current_gradient_accumulation_steps = self.trainer.args.gradient_accumulation_steps
        self.model = self.trainer.model.train()
        self.parameters = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        load(self.parameters, adapter)

    def sample(self, prompts: list[str], seed: int = 0) -> Inputs:
        """A rollout for each prompt, as TRL hands them to its loss: padded on both sides, scored, with advantages."""
        torch.manual_seed(seed)
        return self.trainer._generate_and_score_completions([{"prompt": prompt} for prompt in prompts])

    def backward(self, inputs: Inputs) -> tuple[float, Adapter]:
        """The loss of the first optimizer step and its gradient, both summed over the parts that it takes."""
        self.model.zero_grad()
        size = self.trainer.args.per_device_train_batch_size
        total = 0.0
        for part in range(self.trainer.args.gradient_accumulation_steps):
            rows = slice(part * size, (part + 1) * size)
            loss = self.trainer.compute_loss(self.model, {k: v[rows] if v.dim() else v for k, v in inputs.items()})
            loss.backward()
            total += loss.item()
        return total, gradients(self.parameters)

    def metric(self, name: str) -> float:
        """What the last loss logged under this name."""
        return self.trainer._metrics["train"][name][-1]


def load(parameters: Adapter, adapter: Adapter) -> None:
    """Put the adapter's numbers into a model's parameters, which must be the same by name."""
    assert parameters.keys() == adapter.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(adapter[name])


def gradients(parameters: Adapter) -> Adapter:
    return {name: parameter.grad.clone() for name, parameter in parameters.items()}
