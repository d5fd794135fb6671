"""The settings of a run as verl's: keys of its `ppo_trainer` config, and what has no key there (verl 0.9)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.advantage import Loss, Method
from core.config import RunConfig
from core.exporters.adapter import ExportError
from core.exporters.cluster import has_chat_template, model_there
from core.exporters.twins import Fate, Twins
from core.runs.sinks import wanted

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
AGGREGATION = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "fixed_length": "seq-mean-token-sum-norm",
}
LOSSES = {"clip": "vanilla", "gspo": "gspo", "cispo": "cispo", "reinforce": "gpg", "ratio": "kl_cov"}
NEVER = 1e9
"""A dual clip that bounds nothing: verl's loss always has one."""
PLAIN_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""The template for a model without one: the prompt as it is."""
ESTIMATOR, TRAINER = "lab", "lab"
"""The names under which `lab_verl` registers the advantages and the trainer."""


def verl_settings(config: RunConfig, pool: int, longest_prompt: int) -> tuple[dict[str, Any], list[Fate]]:
    """(verl's keys with their values, what became of every setting).

    `pool`: the training prompts that there are; `longest_prompt` in characters. Raises ExportError for a method whose
    loss verl cannot have.
    """
    method = config.build_method()
    keys: dict[str, Any] = {}
    twins = Twins(config)
    _method(config, method, keys, twins)
    _loss(method, keys, twins)
    _data(config, pool, longest_prompt, keys, twins)
    _model(config, keys, twins)
    _training(config, keys, twins)
    _around(config, pool, keys, twins)
    return keys, twins.fates()


def _method(config: RunConfig, method: Method, keys: dict[str, Any], twins: Twins) -> None:
    penalties = [rule.name for rule in method.weights if rule.name in ("kl_cov", "lp_reg")]
    if "lp_reg" in penalties:
        raise ExportError("method: lp_reg is a term of the loss over log-probs that verl does not record: no twin")
    keys |= {
        "algorithm.adv_estimator": ESTIMATOR,
        "trainer.v1.trainer_mode": TRAINER,
        "trainer.use_v1": True,
        "algorithm.use_kl_in_reward": False,
        "critic.enable": False,
    }
    twins.twin(("method", "polarity_by"), f"algorithm.adv_estimator={ESTIMATOR} (lab_verl.py, by lab.json)")
    twins.twin(("schedule_steps", "correct_threshold"), "lab.json")
    if config.polarity_by == "sign":
        raise ExportError("polarity_by: sign has no twin in verl: the exported rules go by whether an answer is right")
    if penalties:
        rule = next(rule for rule in method.weights if rule.name == "kl_cov")
        keys |= {
            f"{ACTOR}.policy_loss.kl_cov_ratio": rule.params["ratio"],
            f"{ACTOR}.policy_loss.ppo_kl_coef": rule.params["coefficient"],
        }
        twins.twin("method", "the estimator lab, and policy_loss.loss_mode=kl_cov",
                   "verl ranks the tokens anew in each minibatch, the lab once a step")  # fmt: skip
    if method.dynamic_sampling:
        keys |= {
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward",
        }
    twins.twin("dynamic_sampling.enabled", f"algorithm.filter_groups.enable={_word(method.dynamic_sampling)}",
               "verl looks at the verifier's reward, before what a length costs")  # fmt: skip
    twins.none("dynamic_sampling.max_refills", "verl draws until the batch is full, however long that takes")
    twins.twin(("overlong", "task.reward.length"), "lab.json (lab_verl.py adds it to the rewards)",
               "verl's own logs show the reward without it")  # fmt: skip


def _loss(method: Method, keys: dict[str, Any], twins: Twins) -> None:
    loss: Loss = method.loss
    penalised = any(rule.name == "kl_cov" for rule in method.weights)
    if penalised and loss.objective not in ("clip", "ratio"):
        raise ExportError(f"method: verl has kl_cov on its own loss alone, not with the objective {loss.objective}")
    mode = "kl_cov" if penalised else LOSSES[loss.objective]
    keys |= {
        f"{ACTOR}.policy_loss.loss_mode": mode,
        f"{ACTOR}.loss_agg_mode": AGGREGATION[loss.aggregation],
        f"{ACTOR}.clip_ratio": loss.clip_low,
        f"{ACTOR}.clip_ratio_low": loss.clip_low,
        f"{ACTOR}.clip_ratio_high": loss.clip_high,
        f"{ACTOR}.clip_ratio_c": loss.dual_clip or NEVER,
        f"{ACTOR}.use_kl_loss": loss.kl > 0,
        f"{ACTOR}.entropy_coeff": 0,
    }
    if mode == "kl_cov" and not penalised:
        keys[f"{ACTOR}.policy_loss.ppo_kl_coef"] = 0.0
    if loss.kl:
        keys |= {f"{ACTOR}.kl_loss_coef": loss.kl, f"{ACTOR}.kl_loss_type": "low_var_kl"}
    twins.twin("loss.objective", f"{ACTOR}.policy_loss.loss_mode={mode}",
               "verl clips none of its tokens" if penalised and loss.objective == "clip" else "")  # fmt: skip
    twins.twin("loss.aggregation", f"{ACTOR}.loss_agg_mode={AGGREGATION[loss.aggregation]}")
    twins.twin("loss.clip_low", f"{ACTOR}.clip_ratio_low={loss.clip_low}")
    twins.twin("loss.clip_high", f"{ACTOR}.clip_ratio_high={loss.clip_high}")
    twins.twin("loss.dual_clip", f"{ACTOR}.clip_ratio_c={loss.dual_clip or NEVER:g}")
    twins.twin("loss.kl", f"{ACTOR}.kl_loss_coef={loss.kl:g}" if loss.kl else f"{ACTOR}.use_kl_loss=false",
               "verl cuts the k3 of a token at 10")  # fmt: skip


def _data(config: RunConfig, pool: int, longest_prompt: int, keys: dict[str, Any], twins: Twins) -> None:
    room = max(64, 64 * math.ceil(longest_prompt / 64) + 64 * math.ceil(len(config.system_prompt or "") / 64))
    keys |= {
        "data.train_files": "data/train.parquet",
        "data.val_files": "data/held_out.parquet",
        "data.train_batch_size": config.prompts_per_step,
        "data.max_prompt_length": room + 64,
        "data.max_response_length": config.sampling.max_new_tokens,
        "data.shuffle": True,
        "data.seed": config.seed,
        "reward.custom_reward_function.path": "lab_reward.py",
        "reward.custom_reward_function.name": "compute_score",
    }
    twins.twin("task", "data/, and lab_reward.py with lab.json", "verl's dump has the reward without its parts")
    twins.twin("task.pool_size", f"data.train_files (the pool's {pool} prompts)",
               "an epoch's last prompts, too few for a step, are left out")  # fmt: skip
    twins.twin("task.file.path", "data.train_files and data.val_files")
    if config.task.verify.kind == "function":
        twins.twin("task.verify.function", "lab.json", "your module must be in PYTHONPATH on every machine")
    twins.twin("prompts_per_step", f"data.train_batch_size={config.prompts_per_step}")
    twins.twin("system_prompt", "the first message of every prompt in data/")
    twins.twin("seed", f"data.seed, {ROLLOUT}.seed, {ACTOR}.data_loader_seed", "another generator: other samples")


def _model(config: RunConfig, keys: dict[str, Any], twins: Twins) -> None:
    path, differs = model_there(config)
    lora = config.lora
    keys |= {
        f"{MODEL}.path": path,
        f"{MODEL}.lora_rank": lora.r,
        f"{MODEL}.lora_alpha": lora.alpha,
        f"{MODEL}.target_modules": lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        f"{MODEL}.enable_gradient_checkpointing": config.gradient_checkpointing,
        f"{ACTOR}.fsdp_config.model_dtype": "fp32" if config.precision == "float32" else "bf16",
        f"{ACTOR}.fsdp_config.dtype": config.precision,
        f"{ROLLOUT}.dtype": config.precision,
        f"{ROLLOUT}.load_format": "safetensors",
    }
    if not has_chat_template(config):
        keys[f"{MODEL}.custom_chat_template"] = PLAIN_CHAT
    twins.twin("model", f"{MODEL}.path={path}", differs)
    twins.twin("lora.r", f"{MODEL}.lora_rank={lora.r}")
    twins.twin("lora.alpha", f"{MODEL}.lora_alpha={lora.alpha:g}")
    twins.twin("lora.targets", f"{MODEL}.target_modules")
    twins.none("lora.dropout", "verl's FSDP adapters have none")
    twins.twin(
        "gradient_checkpointing", f"{MODEL}.enable_gradient_checkpointing={_word(config.gradient_checkpointing)}"
    )
    twins.twin("precision", f"{ACTOR}.fsdp_config.dtype and {ROLLOUT}.dtype",
               "the adapter follows fsdp_config.model_dtype")  # fmt: skip


def _training(config: RunConfig, keys: dict[str, Any], twins: Twins) -> None:
    optimizer, updates = config.optimizer, config.updates
    mini = config.prompts_per_step // updates.minibatches
    tokens = config.batch_tokens or 16_384
    keys |= {
        f"{ACTOR}.optim.lr": optimizer.lr,
        f"{ACTOR}.optim.lr_warmup_steps": optimizer.warmup_steps,
        f"{ACTOR}.optim.lr_scheduler_type": "constant",
        f"{ACTOR}.optim.zero_indexed_step": False,
        f"{ACTOR}.optim.weight_decay": optimizer.weight_decay,
        f"{ACTOR}.optim.optimizer": "AdamW" if optimizer.name == "adamw" else "SGD",
        f"{ACTOR}.optim.betas": list(optimizer.betas),
        f"{ACTOR}.optim.clip_grad": optimizer.max_grad_norm or NEVER,
        f"{ACTOR}.grad_clip": optimizer.max_grad_norm or NEVER,
        f"{ACTOR}.ppo_mini_batch_size": mini,
        f"{ACTOR}.ppo_epochs": updates.epochs,
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": tokens,
        "trainer.balance_batch": False,
    }
    twins.twin("optimizer", f"{ACTOR}.optim")
    twins.twin("optimizer.max_grad_norm", f"{ACTOR}.grad_clip={optimizer.max_grad_norm or NEVER:g}")
    twins.twin("optimizer.warmup_steps", f"{ACTOR}.optim.lr_warmup_steps={optimizer.warmup_steps}")
    twins.twin("updates.minibatches", f"{ACTOR}.ppo_mini_batch_size={mini}", "counted in prompts; groups may be cut")
    twins.twin("updates.epochs", f"{ACTOR}.ppo_epochs={updates.epochs}")
    twins.twin("batch_tokens", f"{ACTOR}.ppo_max_token_len_per_gpu={tokens}", "verl counts the prompts' tokens too")
    if config.tis.cap:
        keys |= {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": config.tis.cap,
        }
    twins.twin("tis.cap", "algorithm.rollout_correction.rollout_is_threshold" if config.tis.cap else "rollout_is=null")
    twins.none("tis.gap", "it only names a metric, and verl has its own (training/rollout_probs_diff_mean)")


def _around(config: RunConfig, pool: int, keys: dict[str, Any], twins: Twins) -> None:
    a_pass = max(1, pool // config.prompts_per_step)
    gpus, share = max(1, config.processes), config.vllm.gpu_share
    save = config.checkpoint_every if config.checkpoint.every or config.model != "embedded" else 10
    evaluate = config.evaluate
    keys |= {
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.n": config.group_size,
        f"{ROLLOUT}.temperature": config.sampling.temperature,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.gpu_memory_utilization": share,
        f"{ROLLOUT}.enforce_eager": bool(config.vllm.eager),
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.val_kwargs.n": evaluate.rollouts,
        f"{ROLLOUT}.val_kwargs.do_sample": True,
        f"{ROLLOUT}.val_kwargs.temperature": config.sampling.temperature,
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": math.ceil(config.steps / a_pass) + 1,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": gpus,
        "trainer.test_freq": evaluate.every or -1,
        "trainer.val_before_train": bool(evaluate.every),
        "trainer.save_freq": save,
        "trainer.max_actor_ckpt_to_keep": config.checkpoint.keep,
        "trainer.default_local_dir": "checkpoints",
        "trainer.rollout_data_dir": "rollouts",
        "trainer.logger": ["console", *wanted(config)],
        "trainer.project_name": config.log_to.project,
        "trainer.experiment_name": config.name or config.method.name,
    }
    twins.twin("name", "trainer.experiment_name")
    twins.twin("steps", f"trainer.total_training_steps={config.steps}", "verl counts them from 1")
    twins.twin("group_size", f"{ROLLOUT}.n={config.group_size}")
    twins.twin("sampling.temperature", f"{ROLLOUT}.temperature={config.sampling.temperature:g}")
    twins.twin("sampling.max_new_tokens", f"data.max_response_length={config.sampling.max_new_tokens}")
    twins.none("sampling.stop", "verl's sampling settings have no stop strings")
    twins.twin("evaluate.every", f"trainer.test_freq={evaluate.every or -1}")
    twins.twin("evaluate.prompts", "data.val_files")
    twins.twin("evaluate.rollouts", f"{ROLLOUT}.val_kwargs.n={evaluate.rollouts}")
    twins.none("evaluate.k", "verl reports best@k for powers of two of its own choice")
    twins.none("evaluate.greedy", "verl validates with one way of sampling, and here that is the run's temperature")
    twins.none("evaluate.probes", "verl stores no tokens of its validation")
    twins.twin("log_to", f"trainer.logger=[{','.join(['console', *wanted(config)])}], trainer.project_name")
    twins.twin("checkpoint.every", f"trainer.save_freq={save}")
    twins.twin("checkpoint.keep", f"trainer.max_actor_ckpt_to_keep={config.checkpoint.keep}")
    twins.none("checkpoint.exact", "verl resumes wherever it is started")
    twins.none("record", "the dump in rollouts/ has the log-probs and entropies of the step's start, nothing after it")
    twins.twin("engine", f"{ROLLOUT}.name=vllm", "verl samples with vLLM or SGLang alone")
    twins.twin("vllm.gpu_share", f"{ROLLOUT}.gpu_memory_utilization={share:g}")
    twins.none("vllm.kv_cache_gb", "it is about sampling on a CPU")
    twins.twin("vllm.eager", f"{ROLLOUT}.enforce_eager={_word(bool(config.vllm.eager))}")
    twins.none("device", "verl trains on GPUs")
    twins.twin(
        "processes", f"trainer.n_gpus_per_node={gpus}", "one process a GPU; trainer.nnodes says how many machines"
    )
    twins.none("threads", "it is about training on a CPU")
    twins.none(("experiment", "imported"), "it is the lab's own bookkeeping")


def hydra(value: Any) -> str:
    """A value as hydra's command line reads it back: quoted where it is text, nothing in it is looked up."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return _word(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra, value)) + "]"
    if isinstance(value, Mapping):
        raise ExportError(f"hydra: a mapping cannot be a setting of the command line: {value!r:.80}")
    text = str(value)
    plain = text.replace("/", "").replace("_", "").replace(".", "").replace("-", "")
    if (
        plain.isascii()
        and plain.isalnum()
        and plain[0].isalpha()
        and plain.lower() not in ("null", "true", "false", "nan", "inf")
    ):
        return text
    text = text.replace("${", "\\${")
    out, run = [], 0  # a backslash is one, but before a quote or the end it must be doubled
    for character in text + "'":
        if character == "'":
            out.append("\\" * run + "\\'")
        else:
            out.append(character)
        run = run + 1 if character == "\\" else 0
    return "'" + "".join(out)[:-2] + "'"


def _word(value: bool) -> str:
    return "true" if value else "false"
