"""TRL's GRPOTrainer on the same weights, prompts, adapter and reward, one whole step at a time.

Its settings are chosen for speed where it offers a choice: no gradient checkpointing (its default recomputes the
forward pass), float32 without autocast (its default is bfloat16, slower on most CPUs), no reference model (beta 0), no
logging, saving or data workers, and the fused AdamW.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from core.config import RunConfig
from core.tasks import Prompt, get_task
from tests.bench.speed.result import PeerError
from tests.bench.speed.weights import adapted_model


class TrlStepper(TrainerCallback):
    """Trains on `prompts`, a step's worth after another; between its steps it calls `between`.

    A step is timed from the end of `between` to the end of TRL's own step: fetching prompts, generating, rewarding,
    the loss, its gradient and the optimizer. `steps` has one entry each, the first of them a warm-up. Raises PeerError
    if a step is not exactly one batch of rollouts and one optimizer step.
    """

    def __init__(
        self,
        config: RunConfig,
        prompts: Sequence[Prompt],
        micro_batch: int,
        between: Callable[[], None],
        folder: Path,
    ):
        self.rollouts_per_step = config.prompts_per_step * config.group_size
        self.task = get_task(config.task)
        self.between = between
        self.steps: list[dict[str, Any]] = []
        self._clear()
        self.model, tokenizer = adapted_model(config)
        rows = [
            {"prompt": _as_message(tokenizer, prompt.text), "text": prompt.text, "answer": prompt.answer}
            for prompt in prompts
        ]
        self.trainer = GRPOTrainer(
            model=self.model,
            reward_funcs=self._reward,
            args=_arguments(config, len(prompts) // config.prompts_per_step, micro_batch, folder),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[self],
        )
        self.trainer.remove_callback(PrinterCallback)

    def run(self) -> None:
        """Every step; `between` is called before each."""
        self._next()
        self.trainer.train()

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.updates += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        took = {"seconds": time.perf_counter() - self.started, "cpu_seconds": time.process_time() - self.cpu}
        if self.rollouts != self.rollouts_per_step or self.updates != 1:
            raise PeerError(
                f"TRL made {self.rollouts} rollouts and {self.updates} optimizer steps in a step, "
                f"but {self.rollouts_per_step} and 1 were asked for"
            )
        self.steps.append(took | {"tokens": self.tokens})
        if state.global_step < state.max_steps:
            self._next()

    def _next(self) -> None:
        self.between()
        self._clear()

    def _clear(self) -> None:
        self.rollouts = self.updates = self.tokens = 0
        self.started, self.cpu = time.perf_counter(), time.process_time()

    def _reward(
        self, completions: list[Any], completion_ids: list[list[int]], text: list[str], answer: list[str], **_: Any
    ) -> list[float]:
        self.rollouts += len(completions)
        self.tokens += sum(map(len, completion_ids))
        responses = [each if isinstance(each, str) else each[0]["content"] for each in completions]
        asked = [Prompt(*each) for each in zip(text, answer, strict=True)]
        return [self.task.verify(*pair).reward for pair in zip(asked, responses, strict=True)]


def _as_message(tokenizer: PreTrainedTokenizerBase, text: str) -> str | list[dict[str, str]]:
    return [{"role": "user", "content": text}] if tokenizer.chat_template else text


def _arguments(config: RunConfig, steps: int, micro_batch: int, folder: Path) -> GRPOConfig:
    rollouts = config.prompts_per_step * config.group_size
    optimizer = config.optimizer
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rollouts // micro_batch,
        num_generations=config.group_size,
        max_completion_length=config.sampling.max_new_tokens,
        temperature=config.sampling.temperature,
        top_p=1.0,
        top_k=0,
        num_iterations=1,
        beta=0.0,
        epsilon=config.build_method().loss.clip_low,
        loss_type="grpo",
        learning_rate=optimizer.lr,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm or 0.0,
        max_steps=steps,
        seed=config.seed,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
