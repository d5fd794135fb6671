"""The settings of a run as TRL's: arguments of its `GRPOConfig`, and what has no twin there (TRL 1.16)."""

from __future__ import annotations

from typing import Any

from core.advantage import Method
from core.config import RunConfig
from core.exporters.adapter import ExportError
from core.exporters.cluster import model_there
from core.exporters.twins import Fate, Twins
from core.runs.sinks import wanted

AGGREGATION = {"token_mean": "dapo", "sequence_mean": "grpo", "fixed_length": "dr_grpo"}
UNBOUNDED = 1e9
"""A clip that stops nothing."""
BATCH_TOKENS = 16_384


def trl_settings(config: RunConfig) -> tuple[dict[str, Any], list[Fate]]:
    """(the arguments of GRPOConfig, what became of every setting). Raises ExportError for what TRL cannot have."""
    method = config.build_method()
    if penalties := [rule.name for rule in method.weights if rule.name in ("kl_cov", "lp_reg")]:
        raise ExportError(f"method: {penalties[0]} is a term of the loss, and TRL's has no place for one: no twin")
    if config.polarity_by == "sign":
        raise ExportError("polarity_by: sign has no twin in TRL: the exported rules go by whether an answer is right")
    if config.group_size < 2:
        raise ExportError("group_size is 1, but TRL needs 2 answers or more to a prompt")
    arguments: dict[str, Any] = {}
    twins = Twins(config)
    _loss(config, method, arguments, twins)
    _batches(config, arguments, twins)
    _sampling(config, arguments, twins)
    _around(config, arguments, twins)
    return arguments, twins.fates()


def _loss(config: RunConfig, method: Method, arguments: dict[str, Any], twins: Twins) -> None:
    loss = method.loss
    kind = AGGREGATION[loss.aggregation]
    if loss.objective == "cispo":
        if loss.aggregation != "token_mean":
            raise ExportError(f"loss.aggregation: TRL has cispo as a mean over tokens alone, not {loss.aggregation}")
        kind = "cispo"
    clips = loss.objective in ("clip", "gspo", "cispo")
    arguments |= {
        "loss_type": kind,
        "importance_sampling_level": "sequence" if loss.objective == "gspo" else "token",
        "epsilon": loss.clip_low if clips else UNBOUNDED,
        "epsilon_high": (loss.clip_high if clips else UNBOUNDED) + (loss.objective == "cispo"),
        "delta": loss.dual_clip,
        "beta": loss.kl,
        "use_bias_correction_kl": False,
        "scale_rewards": "none",
    }
    twins.twin(("method", "polarity_by"), "LabTrainer (lab_trl.py, by lab.json)")
    twins.twin(("schedule_steps", "correct_threshold"), "lab.json")
    twins.none(("dynamic_sampling.enabled", "dynamic_sampling.max_refills"),
               "TRL draws no further prompts; tokens of groups without a signal leave the loss")  # fmt: skip
    twins.twin("overlong", "lab.json (joins the reward in lab_trl.py)")
    twins.twin("loss.objective", f"loss_type={kind!r}, importance_sampling_level", {
        "cispo": "TRL bounds the weight from above alone",
        "gspo": "where advantages differ by token, each gets the response's mean of ratio x advantage",
        "reinforce": "no earlier log-probs are kept, so that the ratio is 1",
    }.get(loss.objective, ""))  # fmt: skip
    twins.twin("loss.aggregation", f"loss_type={kind!r}", {
        "sequence_mean": "TRL counts responses without a kept token too",
        "token_mean": "TRL shares the step's tokens out evenly among its optimizer steps",
    }.get(loss.aggregation, ""))  # fmt: skip
    twins.twin("loss.clip_low", f"epsilon={arguments['epsilon']:g}")
    twins.twin("loss.clip_high", f"epsilon_high={arguments['epsilon_high']:g}")
    twins.twin("loss.dual_clip", f"delta={loss.dual_clip}")
    twins.twin("loss.kl", f"beta={loss.kl:g}")


def _batches(config: RunConfig, arguments: dict[str, Any], twins: Twins) -> None:
    updates = config.updates
    step = config.prompts_per_step * config.group_size // updates.minibatches
    if step % config.processes:
        raise ExportError(
            f"processes is {config.processes}, but a minibatch has {step} answers: choose a divisor of that for TRL"
        )
    share = step // config.processes
    room = max(1, (config.batch_tokens or BATCH_TOKENS) // (2 * config.sampling.max_new_tokens))
    rows = next(size for size in range(min(share, room), 0, -1) if share % size == 0)
    every = updates.minibatches * updates.epochs
    arguments |= {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": share // rows,
        "steps_per_generation": share // rows * updates.minibatches,
        "num_iterations": updates.epochs,
        "num_generations": config.group_size,
        "max_steps": config.steps * every,
        "logging_steps": every,
    }
    twins.twin("prompts_per_step", "steps_per_generation", "an epoch's last prompts, too few for a step, are left out")
    twins.twin("group_size", f"num_generations={config.group_size}")
    twins.twin(
        "steps",
        f"max_steps={config.steps * every}",
        "TRL counts updates, from 1; the column step of its log counts steps, from 0",
    )
    twins.twin("updates.minibatches", "gradient_accumulation_steps and steps_per_generation",
               "TRL shuffles answers, so groups are cut")  # fmt: skip
    twins.twin("updates.epochs", f"num_iterations={updates.epochs}")
    twins.twin("batch_tokens", f"per_device_train_batch_size={rows}", "TRL counts answers, not tokens")
    twins.twin("processes", f"accelerate launch --num_processes {config.processes}")


def _sampling(config: RunConfig, arguments: dict[str, Any], twins: Twins) -> None:
    sampling, evaluate = config.sampling, config.evaluate
    vllm = config.engine == "vllm"
    arguments |= {
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": sampling.max_new_tokens,
        "use_vllm": vllm,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": config.vllm.gpu_share,
        "vllm_importance_sampling_correction": config.tis.cap is not None,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": config.tis.cap or 2.0,
    }
    twins.twin("sampling.temperature", f"temperature={sampling.temperature:g}")
    twins.twin("sampling.max_new_tokens", f"max_completion_length={sampling.max_new_tokens}")
    twins.none("sampling.stop", "TRL hands no stop strings to generate")
    twins.twin("engine", f"use_vllm={vllm}", "" if config.engine != "auto" else "auto is TRL's generate: set use_vllm")
    twins.twin("vllm.gpu_share", f"vllm_gpu_memory_utilization={config.vllm.gpu_share:g}")
    twins.none("vllm.kv_cache_gb", "it is about sampling on a CPU")
    twins.none("vllm.eager", "TRL chooses that itself")
    twins.twin("tis.cap", "vllm_importance_sampling_clip_max", "with vLLM alone")
    twins.none("tis.gap", "it only names a metric, and TRL has its own (sampling/sampling_logp_difference)")
    every = config.updates.minibatches * config.updates.epochs * evaluate.every
    arguments |= {"eval_strategy": "steps" if evaluate.every else "no"}
    if evaluate.every:
        arguments |= {
            "eval_steps": every,
            "num_generations_eval": evaluate.rollouts,
            "per_device_eval_batch_size": evaluate.rollouts,
        }
    twins.twin("evaluate.every", f"eval_steps={every}" if evaluate.every else "eval_strategy='no'")
    twins.twin("evaluate.prompts", "data/held_out.jsonl")
    twins.twin("evaluate.rollouts", f"num_generations_eval={evaluate.rollouts}", "TRL reports their mean reward")
    twins.none("evaluate.k", "TRL reports no pass@k")
    twins.none("evaluate.greedy", "TRL evaluates as it trains, by sampling")
    twins.none("evaluate.probes", "TRL stores no tokens of its evaluation")


def _around(config: RunConfig, arguments: dict[str, Any], twins: Twins) -> None:
    optimizer, checkpoint = config.optimizer, config.checkpoint
    path, differs = model_there(config)
    sinks = wanted(config)
    save = config.checkpoint_every * config.updates.minibatches * config.updates.epochs
    arguments |= {
        "learning_rate": optimizer.lr,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": optimizer.warmup_steps,
        "optim": "adamw_torch" if optimizer.name == "adamw" else "sgd",
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": optimizer.max_grad_norm or 0.0,
        "seed": config.seed,
        "model_init_kwargs": {"dtype": config.precision},
        "bf16": False,
        "cast_lm_head_to_fp32": config.precision == "bfloat16",
        "gradient_checkpointing": config.gradient_checkpointing,
        "disable_dropout": not config.lora.dropout,
        "use_cpu": config.device == "cpu",
        "save_steps": save,
        "save_total_limit": checkpoint.keep,
        "log_completions": True,
        "num_completions_to_print": 0,
        "report_to": sinks or "none",
        "project": config.log_to.project,
    }
    twins.twin("log_to", f"report_to={sinks or 'none'}", "in TRL's names for what it logs")
    twins.twin("task", "data/, and lab_reward.py with lab.json")
    twins.twin("task.pool_size", "data/train.jsonl")
    twins.twin("task.file.path", "data/train.jsonl and data/held_out.jsonl")
    if config.task.verify.kind == "function":
        twins.twin("task.verify.function", "lab.json", "your module must be in PYTHONPATH there")
    twins.twin("system_prompt", "the first message of every prompt in data/")
    twins.twin("model", f"MODEL = {path!r}", differs)
    twins.twin("lora", "LORA in train.py, by peft")
    twins.twin("optimizer", "learning_rate, optim, adam_beta1, adam_beta2, weight_decay, max_grad_norm")
    twins.twin("optimizer.warmup_steps", f"warmup_steps={optimizer.warmup_steps}",
               "TRL's first step is at a learning rate of 0 then" if optimizer.warmup_steps else "")  # fmt: skip
    twins.twin("seed", f"seed={config.seed}", "another generator: other samples, another start of the adapter")
    twins.twin("precision", f"model_init_kwargs={{'dtype': {config.precision!r}}}")
    twins.twin("gradient_checkpointing", f"gradient_checkpointing={config.gradient_checkpointing}")
    twins.twin("device", f"use_cpu={config.device == 'cpu'}")
    twins.twin("threads", "THREADS in train.py")
    twins.twin("checkpoint.every", f"save_steps={save}")
    twins.twin("checkpoint.keep", f"save_total_limit={checkpoint.keep}")
    twins.none("checkpoint.exact", "TRL resumes wherever it is started")
    twins.none("record", "output/completions has the log-probs and entropies of the step's start, nothing after it")
    twins.none(("name", "experiment", "imported"), "it is the lab's own bookkeeping")
