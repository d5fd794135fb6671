"""Every setting of a run as the Launch page offers it: label, help and sane limits. A test holds it to `RunConfig`."""

from __future__ import annotations

from app.views.setting import Setting
from app.views.task_settings import all_task_settings

ESSENTIAL = (
    Setting("steps", "Steps", "int",
        "Rollout steps. On the embedded model most of the change comes in the first 100.",
        1, 100_000, 10),
    Setting("optimizer.lr", "Learning rate", "float",
        "Of the LoRA weights. 0.001 suits the embedded model; larger models want 0.00001 to 0.0001.",
        1e-07, 0.1, 0.0001),
    Setting("prompts_per_step", "Prompts a step", "int",
        "Groups sampled in every step. More make a step slower and its gradient less noisy.",
        1, 4096, 1),
    Setting("group_size", "Rollouts a prompt (G)", "int",
        "The group that a rollout is compared with. Small groups are often all right or all wrong and then "
        "teach nothing.",
        1, 256, 1),
    Setting("sampling.max_new_tokens", "Longest response", "int",
        "In tokens; what is cut off there counts as wrong.",
        1, 32_768, 8),
    Setting("sampling.temperature", "Temperature", "float",
        "Of sampling, and of every log-prob and entropy in the lab.",
        0.05, 5.0, 0.1),
)  # fmt: skip

CURVES = "Curves elsewhere"
ADVANCED: dict[str, tuple[Setting, ...]] = {
    "Labels and rewards": (
        Setting("correct_threshold", "Correct from", "float",
            "A rollout is correct if the correctness part of its reward is at least this.",
            0.0, 1.0, 0.1),
        Setting("polarity_by", "Polarity by", "choice",
            "What makes a rollout positive or negative: its correctness, or the sign of its advantage.",
            choices=("correct", "sign")),
        Setting("overlong.buffer", "Overlong buffer", "int",
            "DAPO's soft penalty: over so many tokens before the longest response, the reward falls with every token. "
            "What was correct stays correct, but even a group that is all right has a signal then. 0: no penalty.",
            0, 32_768, 8),
        Setting("overlong.factor", "Overlong penalty", "float",
            "What a response that reaches the limit loses of its reward.",
            0.01, 100.0, 0.25),
    ),
    "Loss": (
        Setting("loss.objective", "Objective", "choice",
            "clip: PPO's clipped ratio; ratio: the same without clipping; gspo: one ratio a sequence; cispo: clipped "
            "weights; reinforce: no ratio.",
            choices=("clip", "ratio", "gspo", "cispo", "reinforce"), none="the recipe's objective"),
        Setting("loss.aggregation", "Aggregation", "choice",
            "How tokens are averaged: all alike, each response alike, or over one fixed length.",
            choices=("token_mean", "sequence_mean", "fixed_length"), none="the recipe's aggregation"),
        Setting("loss.clip_low", "Clip below", "float",
            "A ratio under 1 − this stops pushing a token down; 1: nothing is stopped there.",
            0.0001, 1.0, 0.05, none="the recipe's bound"),
        Setting("loss.clip_high", "Clip above", "float",
            "A ratio over 1 + this stops pushing a token up.",
            0.0001, 10.0, 0.05, none="the recipe's bound"),
        Setting("loss.dual_clip", "Dual clip", "float",
            "Bounds the loss of negative advantages at this times |advantage|.",
            1.01, 100.0, 0.5, none="the recipe's choice"),
        Setting("loss.kl", "KL coefficient", "float",
            "Of the k3 estimate of the KL to the base model. Above 0, a forward pass of the base model is "
            "made every step.",
            0.0, 10.0, 0.001, none="the recipe's coefficient"),
    ),
    "Updates": (
        Setting("updates.minibatches", "Minibatches a step", "int",
            "Optimizer steps a pass over the step's rollouts; each takes whole groups, so it must divide the "
            "prompts a step. With 1, every ratio is 1 and nothing can clip.",
            1, 4096, 1),
        Setting("updates.epochs", "Passes a step", "int",
            "How often the step's rollouts are gone through.",
            1, 64, 1),
        Setting("optimizer.name", "Optimizer", "choice",
            "AdamW rescales every weight's gradient; SGD shows the gradient's own size.",
            choices=("adamw", "sgd")),
        Setting("optimizer.warmup_steps", "Warm-up", "int",
            "Optimizer steps over which the learning rate rises from 0.",
            0, 100_000, 5),
        Setting("optimizer.betas", "AdamW betas", "list",
            "Decay of the first and second moment."),
        Setting("optimizer.weight_decay", "Weight decay", "float",
            "Of the LoRA weights.",
            0.0, 10.0, 0.01),
        Setting("optimizer.max_grad_norm", "Largest gradient norm", "float",
            "Gradients are scaled down to it.",
            0.001, 1000.0, 0.1, none="no limit"),
        Setting("schedule_steps", "Schedule length", "int",
            "The N of schedules that are given as a part of the run.",
            1, 1_000_000, 10, none="the run's steps"),
    ),
    "Sampler and trainer": (
        Setting("tis.cap", "Largest correction weight", "float",
            "Where the engine that samples is not the trainer's own model, each token's policy term is multiplied by "
            "its probability in the trainer over that in the engine, but at most by this. Left empty: no correction, "
            "the gap is still recorded.",
            1.0, 100.0, 0.5, none="no correction"),
        Setting("tis.gap", "Far apart from (nats)", "float",
            "A token whose two log-probs differ by more than this counts as far apart on the Live page. Training does "
            "not use it.",
            0.001, 10.0, 0.05),
    ),
    "LoRA": (
        Setting("lora.r", "Rank", "int",
            "Of the adapter's matrices.",
            1, 1024, 4),
        Setting("lora.alpha", "Alpha", "float",
            "The adapter is scaled by alpha / rank.",
            0.01, 10000.0, 8.0),
        Setting("lora.dropout", "Dropout", "float",
            "On the adapter's input while training.",
            0.0, 0.99, 0.05),
        Setting("lora.targets", "Layers", "list",
            "all-linear, or the names of the linear layers that get an adapter."),
    ),
    "Dynamic sampling": (
        Setting("dynamic_sampling.enabled", "Drop and refill", "choice",
            "Groups with equal rewards are dropped and fresh prompts sampled in their place.",
            choices=(True, False), none="the recipe's choice"),
        Setting("dynamic_sampling.max_refills", "Refill rounds", "int",
            "At most so many; then the step trains on what there is.",
            0, 64, 1),
    ),
    "Evaluation": (
        Setting("evaluate.every", "Every (steps)", "int",
            "Steps between evaluations on held-out prompts; 0: none at all.",
            0, 100_000, 5),
        Setting("evaluate.prompts", "Held-out prompts", "int",
            "More give a less noisy pass@1 and take longer.",
            1, 10_000, 16),
        Setting("evaluate.rollouts", "Rollouts a prompt", "int",
            "Samples for pass@1 and pass@k.",
            1, 1024, 4),
        Setting("evaluate.k", "k of pass@k", "int",
            "At most the rollouts a prompt.",
            1, 1024, 4),
        Setting("evaluate.greedy", "Greedy too", "flag",
            "Also answer each held-out prompt at temperature 0."),
        Setting("evaluate.probes", "Probe prompts", "int",
            "Fixed held-out prompts whose every token is stored at each evaluation: the same prompts over "
            "time.",
            0, 1000, 1),
    ),
    "Recording": (
        Setting("record.after_update", "After the update", "choice",
            "Log-probs of the same tokens after the update: what the step did to each of them. One more "
            "forward pass.",
            choices=("all", "probe", "off")),
        Setting("record.reference", "Reference log-probs", "flag",
            "Log-probs under the base model; one more forward pass."),
        Setting("record.proxy_min_p", "Proxy log-probs, min-p", "float",
            "Log-probs under the policy without its least likely tokens, those below this share of the likeliest one's "
            "probability, so that Lp-Reg can be asked of the stored rollouts afterwards. Lp-Reg itself used 0.02. A "
            "run that trains with Lp-Reg records its own.",
            0.0001, 1.0, 0.01, none="not recorded"),
        Setting("checkpoint.every", "Checkpoint every", "int",
            "Steps; what is lost by a crash is computed again. Left empty: every step for the embedded model, every "
            "10 elsewhere.",
            1, 100_000, 5, none="as the model asks"),
        Setting("checkpoint.keep", "Checkpoints kept", "int",
            "The newest so many.",
            1, 100, 1),
        Setting("checkpoint.exact", "Resume exactly", "flag",
            "Refuse to resume with another machine, thread count, torch or engine, where rounding differs."),
    ),
    CURVES: (
        Setting("log_to.tensorboard", "TensorBoard", "flag",
            "Also write the curves as event files into the run's folder. Needs the package tensorboard."),
        Setting("log_to.wandb", "Weights & Biases", "flag",
            "Also send the curves there, under the account that this machine is logged in to; without one they lie in "
            "the run's folder, for `wandb sync`. Needs the package wandb."),
        Setting("log_to.trackio", "trackio", "flag",
            "Also write the curves into trackio's own store on this machine. Needs the package trackio."),
        Setting("log_to.project", "Project there", "text",
            "What Weights & Biases and trackio file the run under: letters, digits, dots, dashes."),
    ),
    "Machine": (
        Setting("engine", "Sampling engine", "choice",
            "transformers samples with the trainer's own model; vllm is a second engine, made for speed on a GPU. auto "
            "takes vllm on a GPU where it is installed, but not for the embedded model.",
            choices=("auto", "transformers", "vllm")),
        Setting("vllm.gpu_share", "vLLM's share of the GPU", "float",
            "Of its memory, for vLLM's weights and cache; the trainer needs the rest.",
            0.05, 0.95, 0.05),
        Setting("vllm.kv_cache_gb", "vLLM's cache on a CPU (GB)", "float",
            "For keys and values; with less, fewer rollouts are sampled at once.",
            0.1, 1024.0, 0.5),
        Setting("vllm.eager", "vLLM without compilation", "choice",
            "Starts faster and samples slower.",
            choices=(True, False), none="so on a CPU alone"),
        Setting("device", "Device", "choice",
            "auto: the GPU if there is one.",
            choices=("auto", "cpu", "cuda")),
        Setting("precision", "Precision", "choice",
            "float32 is exact and as fast on the embedded model.",
            choices=("float32", "bfloat16")),
        Setting("gradient_checkpointing", "Gradient checkpointing", "flag",
            "Compute each layer again in the backward pass: far less memory, the same gradient. A third slower in "
            "bfloat16; in float32, models of the Llama family lose their fast pass and train several times slower."),
        Setting("batch_tokens", "Tokens a micro-batch", "int",
            "At most so many are trained on at once: fewer need less memory. The gradient is the same but for "
            "rounding.",
            64, 10_000_000, 1024, none="as many as pay"),
        Setting("processes", "Processes", "int",
            "That train the run together, each on whole groups: one a GPU, or several on a CPU with cores to spare. "
            "The same samples and gradients, but for rounding.",
            1, 64, 1),
        Setting("threads", "CPU threads", "int",
            "Of each process. Another number gives other rounding.",
            1, 1024, 1, none="one for the embedded model, else all cores"),
    ),
}  # fmt: skip

ELSEWHERE = frozenset({"name", "model", "system_prompt", "sampling.stop", "seed", "experiment", "imported",
                       "method.name", "method.base", "method.also", "method.set", "method.mass_matched",
                       "task.verify.function"})  # fmt: skip
"""Settings that the page has widgets of their own for, that the lab itself sets (experiment, imported), or that are the
command line's alone (a function of the user's own)."""


def all_settings() -> list[Setting]:
    """Every setting that has a widget of the common kind."""
    return [*all_task_settings(), *ESSENTIAL, *(setting for group in ADVANCED.values() for setting in group)]
