"""The memory plan against what torch really takes, on models that are built here; and what is refused."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from core.config import ConfigError, RunConfig, parse_run
from core.engines import merged as merged_module
from core.engines.cached import CachedDecoder
from core.engines.llama import LlamaDecoder
from core.models.catalog import LinearShape, ModelInfo, describe
from core.models.load import load_model
from core.runs import memory
from core.runs.create import check_machine
from core.runs.hardware import Memory
from core.runs.memory import adapter_parameters, check_fits, gigabytes, longest_prompt, plan, plan_here, vllm_bytes
from core.tasks import get_task
from core.train.forward import Scorer
from core.train.head import token_logprobs
from core.train.packing import Sequences, pack
from core.train.policy import Policy
from core.train.update import Updater
from tests.core import tiny

SIZES = {
    "vocab_size": 512,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
MODELS = {"llama": (LlamaForCausalLM, LlamaConfig), "qwen2": (Qwen2ForCausalLM, Qwen2Config)}
PROMPT, RESPONSE = 8, 56
CARD = Memory("NVIDIA T4", 15 * 2**30, 14 * 2**30)


def saved(name: str, folder: Path, **changes: int) -> tuple[PreTrainedModel, ModelInfo]:
    """A random model, and what the catalog reads of it."""
    torch.manual_seed(0)
    kind, config = MODELS[name]
    model = kind(config(**SIZES | changes)).eval()
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model, describe(str(folder))


def config(**settings) -> RunConfig:
    sizes = {"prompts_per_step": 4, "group_size": 4, "sampling": {"max_new_tokens": RESPONSE}, "evaluate": {"every": 0}}
    return parse_run({**sizes, **settings})


def part(name: str, of: memory.Plan) -> int:
    """The bytes of a part; of the logits, those of training."""
    return next(
        (part.bytes for part in of.parts if part.name == name and (name, part.when) != ("logits", "sampling")), 0
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
def test_what_stays_is_counted_exactly(tmp_path, name, precision, targets) -> None:
    _, info = saved(name, tmp_path)
    settings = config(precision=precision, lora={"r": 4, "targets": targets})
    policy = Policy(*load_model(str(tmp_path), dtype=precision), settings)
    updater = Updater(policy, settings, settings.build_method().loss)
    for parameter in policy.parameters.values():
        parameter.grad = torch.ones_like(parameter)
    updater.optimizer.step()
    trained = list(policy.parameters.values())
    state = [value for one in updater.optimizer.state.values() for key, value in one.items() if key != "step"]
    planned = plan(settings, info, PROMPT)
    # a head that shares the embeddings' tensor is stored once and held once
    base = {p.data_ptr(): p.nbytes for p in policy.model.parameters() if not p.requires_grad}
    assert part("model", planned) == sum(base.values())
    assert adapter_parameters(settings, info) == sum(p.numel() for p in trained)
    assert part("adapter and gradient", planned) == sum(p.nbytes + p.grad.nbytes for p in trained)
    assert part("optimizer", planned) == sum(value.nbytes for value in state)


def test_sgd_without_momentum_keeps_nothing(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    assert part("optimizer", plan(config(optimizer={"name": "sgd"}), info, PROMPT)) == 0


def test_a_target_outside_the_layers_is_counted(tmp_path) -> None:
    model, info = saved("llama", tmp_path)
    settings = config(lora={"r": 4, "targets": ["q_proj", "lm_head"]})
    policy = Policy(model, tiny.tokenizer(), settings)
    assert adapter_parameters(settings, info) == sum(p.numel() for p in policy.parameters.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fast", [True, False])
def test_the_cache_is_as_large_as_planned(tmp_path, name, fast) -> None:
    model, info = saved(name, tmp_path)
    ids = torch.ones((4, PROMPT), dtype=torch.int64)
    decoder = (LlamaDecoder if fast else CachedDecoder)(model, RESPONSE)
    with torch.inference_mode():
        decoder.prefill(ids, ids > 0, room=16)
        decoder.arrange(16, torch.arange(4, 16), torch.arange(4).repeat(3))
        for _ in range(RESPONSE - 1):
            decoder.step(torch.ones(16, dtype=torch.int64))
    layers = decoder.cache if fast else [(layer.keys, layer.values) for layer in decoder.cache.layers]
    tensors = [tensor for layer in layers for tensor in layer]
    real = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    planned = part("key-value cache", plan(config(), info, PROMPT))
    assert 0.85 * planned < real <= planned


def test_the_cache_grows_one_layer_after_another(tmp_path, monkeypatch) -> None:
    """Never the old and the new of all layers at once: the plan counts one cache."""
    model, _ = saved("llama", tmp_path)
    decoder, ids, there = LlamaDecoder(model, RESPONSE), torch.ones((1, PROMPT), dtype=torch.int64), []
    empty = torch.Tensor.new_empty

    def watched(*arguments):
        there.append(sum(old() is not None for old in before))
        return empty(*arguments)

    with torch.inference_mode():
        decoder.prefill(ids, ids > 0, room=1)
        before = [weakref.ref(keys) for keys, _ in decoder.cache]
        monkeypatch.setattr(torch.Tensor, "new_empty", watched)
        decoder._grow()
    assert there == [4, 4, 3, 3, 2, 2, 1, 1], "keys and values of one layer after another"


@pytest.mark.parametrize("limit", [2**30, 0])
@pytest.mark.parametrize("name", MODELS)
def test_the_merged_weights(tmp_path, name, limit, monkeypatch) -> None:
    for module in (memory, merged_module):
        monkeypatch.setattr(module, "BASE_BYTES", limit)
    model, info = saved(name, tmp_path)
    policy = Policy(model, tiny.tokenizer(), config())
    copies = merged_module.merged(policy.model.get_base_model())
    real = sum(projection.nbytes for layer in copies.layers for projection in layer.projections)
    real += sum(block.nbytes for block in copies.head)
    assert part("merged weights", plan(config(), info, PROMPT)) == real
    assert not part("merged weights", plan(config(precision="bfloat16"), info, PROMPT))


def test_the_family_is_the_engines() -> None:
    assert {kind.__name__ for kind in merged_module.FAMILY} == set(memory.FAMILY)


def rollouts(rows: int, prompt: int = PROMPT) -> Sequences:
    """Of one prompt; no two begin alike, for what is alike is computed once."""
    tokens = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (rows, RESPONSE)).astype(np.int32)
    tokens[:, 0] = np.arange(rows)
    return Sequences([[3] * prompt] * rows, tokens, np.full(rows, RESPONSE, np.int32))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_activations_are_near_what_autograd_keeps(tmp_path, name, precision) -> None:
    _, info = saved(name, tmp_path)
    settings = config(precision=precision)
    policy = Policy(*load_model(str(tmp_path), dtype=precision), settings)
    scorer = Scorer(policy.model, 1.0, packed=False)
    weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        pieces = list(scorer.pieces(rollouts(16)))
    assert len(pieces) == 1
    real = sum(size for place, size in kept.items() if place not in weights)
    planned = part("activations", plan(settings, info, PROMPT))
    assert 0.75 * planned < real < 1.15 * planned


@pytest.mark.parametrize(("rows", "prompt", "least"), [(16, PROMPT, 0.3), (1, 900, 0.7), (2, 900, 0.35)])
def test_the_packed_pass_keeps_less_than_planned(tmp_path, rows, prompt, least) -> None:
    _, info = saved("llama", tmp_path)
    settings = config(method="pm1", prompts_per_step=1, group_size=rows)
    policy = Policy(*load_model(str(tmp_path)), settings)
    llama_pass = policy.scorer.packed
    _, layers = llama_pass.forward(pack(rollouts(rows, prompt), llama_pass.heads, policy.device), save=True)
    tensors = [tensor for layer in layers for value in vars(layer).values() for tensor in _flat(value)]
    real = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
    planned = part("activations", plan(settings, info, prompt))
    assert least * planned < real < planned


def test_packed_micro_batches_end_at_their_limit(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    many = {"prompts_per_step": 128, "group_size": 128}
    assert part("activations", plan(config(**many), info, PROMPT)) <= memory.PACKED_BYTES
    wide = ModelInfo(**{**vars(info), "linears": tuple(replace(shape, count=400) for shape in info.linears)})
    assert part("activations", plan(config(**many), wide, PROMPT)) == memory.PACKED_BYTES
    for plain in ({"lora": {"dropout": 0.1}}, {"precision": "bfloat16"}, {"sampling": {"max_new_tokens": 2000}}):
        assert part("activations", plan(config(**many, **plain), wide, PROMPT)) > memory.PACKED_BYTES


def _flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [tensor for one in value for tensor in _flat(one)]


def test_logits_are_looked_at_in_chunks(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    settings = config(prompts_per_step=64, group_size=64)
    for vocab in (512, 150_000):
        planned = part("logits", plan(settings, ModelInfo(**{**vars(info), "vocab": vocab}), PROMPT))
        assert 2**20 < planned < memory.LOGIT_COPIES * 4 * memory.CHUNK_LOGITS + 2**23


def test_a_head_takes_no_more_than_planned(tmp_path) -> None:
    """Everything that the head's pass makes, of which most is gone again before its end."""
    _, info = saved("llama", tmp_path)
    hidden = torch.randn(16 * RESPONSE, SIZES["hidden_size"], requires_grad=True)
    weight = torch.randn(SIZES["vocab_size"], SIZES["hidden_size"])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        token_logprobs(hidden, weight, torch.zeros(len(hidden), dtype=torch.int64), 0.9, True)
    now = peak = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    planned = part("logits", plan(config(), info, PROMPT))
    assert 0.5 * planned < peak < 1.1 * planned


def test_what_lowers_the_peak(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    plain = plan(config(prompts_per_step=64), info, PROMPT)
    assert plain.peak == "training"
    assert plain.total == plain.of("always") + plain.of("training")
    for change in ({"gradient_checkpointing": True}, {"batch_tokens": 128}):
        assert plan(config(prompts_per_step=64, **change), info, PROMPT).total < plain.total
    few = plan(config(prompts_per_step=64, batch_tokens=64, evaluate={"every": 1}), info, PROMPT)
    assert few.peak == "sampling"


def test_an_engine_of_its_own_takes_its_share_all_the_time(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    planned = plan(config(), info, PROMPT, "cuda", vllm_bytes=2**30)
    assert part("vLLM", planned) == 2**30
    assert not planned.of("sampling")
    assert part("CUDA itself", planned)
    assert planned.total == planned.of("always") + planned.of("training") > 2**30


def test_vllms_share(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    settings = config(vllm={"gpu_share": 0.25, "kv_cache_gb": 0.5})
    assert vllm_bytes(settings, info, "cuda", 80 * 2**30) == 20 * 2**30
    on_cpu = vllm_bytes(settings, info, "cpu", 0)
    assert on_cpu == 2**29 + 4 * info.parameters + memory.VLLM_LIBRARIES_BYTES


def test_several_processes_share_the_work_and_on_a_cpu_the_machine(tmp_path) -> None:
    _, info = saved("llama", tmp_path)
    one = {device: plan(config(), info, PROMPT, device) for device in ("cpu", "cuda")}
    two = {device: plan(config(processes=2), info, PROMPT, device) for device in ("cpu", "cuda")}
    assert part("model", two["cuda"]) == part("model", one["cuda"])
    assert part("activations", two["cuda"]) == part("activations", one["cuda"]) // 2
    assert part("key-value cache", two["cuda"]) == part("key-value cache", one["cuda"]) // 2
    assert part("model", two["cpu"]) == 2 * part("model", one["cpu"])
    assert part("activations", two["cpu"]) == part("activations", one["cpu"])


def test_the_longest_prompt_covers_the_embedded_models_own() -> None:
    settings, info, task = RunConfig(), describe("embedded"), get_task("embedded")
    _, tokenizer = load_model("embedded")
    prompts = [*task.train_pool(128, 0), *task.held_out(64)]
    real = max(len(tokenizer(prompt.text)["input_ids"]) for prompt in prompts)
    assert real <= longest_prompt(settings, info, task) <= real + 8


def test_a_system_prompt_makes_every_prompt_longer() -> None:
    told = config(model="smollm2-135m", system_prompt="Answer with a number. " * 20)
    info, task = describe("embedded"), get_task("embedded")
    assert longest_prompt(told, info, task) > longest_prompt(config(), info, task) + 100


@pytest.fixture
def on_a_card(monkeypatch) -> None:
    """Runs here would take a GPU of 15 GB."""
    monkeypatch.setattr(memory, "device_key", lambda device: "cpu" if device == "cpu" else "cuda-0")
    monkeypatch.setattr(memory, "gpu_memory", lambda: CARD)


def billions(parameters: float) -> ModelInfo:
    """A Llama of about so many parameters, as its files would describe it."""
    layers, hidden = 24, round((parameters / 24 / 12) ** 0.5)
    shapes = {
        "q_proj": (1, 1),
        "k_proj": (1, 1),
        "v_proj": (1, 1),
        "o_proj": (1, 1),
        "up_proj": (4, 1),
        "down_proj": (1, 4),
    }
    return ModelInfo(
        "large", Path(), "LlamaForCausalLM", parameters=int(parameters), layers=layers, hidden=hidden, vocab=32_000,
        kv_heads=8, head_size=128,
        linears=tuple(LinearShape(n, (a * hidden, b * hidden), layers) for n, (a, b) in shapes.items()),
    )  # fmt: skip


def test_what_fits_is_let_through(on_a_card) -> None:
    check_fits(config(), billions(0.1e9), get_task("embedded"))
    check_machine(RunConfig())


def test_a_run_that_cannot_fit_is_refused_with_numbers_and_advice(on_a_card) -> None:
    large = {"prompts_per_step": 64, "group_size": 16, "precision": "bfloat16"}
    settings = config(**large)
    with pytest.raises(ConfigError) as error:
        check_fits(settings, billions(1.3e9), get_task("embedded"))
    words = str(error.value)
    needed, _ = plan_here(settings, billions(1.3e9), get_task("embedded"))
    assert words.startswith(f"memory: the run needs about {gigabytes(needed.total)} (activations ")
    assert "but NVIDIA T4 has 15.0 GB: set gradient_checkpointing to true, or batch_tokens to 2048" in words
    for change in ({"gradient_checkpointing": True}, {"batch_tokens": 2048}):
        check_fits(config(**large, **change), billions(1.3e9), get_task("embedded"))


def test_changes_that_help_only_together_and_models_that_never_fit(on_a_card) -> None:
    with pytest.raises(ConfigError, match=r"set gradient_.*, precision to bfloat16 and sampling.* to 28, all of them$"):
        check_fits(config(prompts_per_step=64, group_size=16), billions(5e9), get_task("embedded"))
    with pytest.raises(ConfigError, match=r"take a smaller model$"):
        check_fits(config(), billions(70e9), get_task("embedded"))


def test_what_is_set_already_is_no_advice(on_a_card) -> None:
    settings = {"prompts_per_step": 64, "group_size": 16, "gradient_checkpointing": True, "batch_tokens": 1024}
    with pytest.raises(ConfigError, match=r": set precision to bfloat16$"):
        check_fits(config(**settings), billions(2.2e9), get_task("embedded"))


def test_a_group_that_is_too_large_is_told(on_a_card) -> None:
    task, small = get_task("embedded"), billions(0.1e9)
    with pytest.raises(ConfigError, match=r"\(key-value cache .*\), but .* to 28, or group_size to 500$"):
        check_fits(config(group_size=1000), small, task)
    with pytest.raises(ConfigError, match=r"lower group_size and evaluate.rollouts$"):
        check_fits(config(group_size=100_000), small, task)


def test_vllm_counts_where_it_would_sample(on_a_card, monkeypatch) -> None:
    settings = config(engine="vllm", vllm={"gpu_share": 0.9})
    needed, has = plan_here(settings, billions(0.1e9), get_task("embedded"))
    assert part("vLLM", needed) == int(0.9 * has.total)
    with pytest.raises(ConfigError, match=r"vLLM 13.5 GB.*vllm.gpu_share to 0.4, or engine to transformers$"):
        check_fits(settings, billions(0.6e9), get_task("embedded"))


def test_vllm_needs_room_for_its_weights_and_a_rollout(on_a_card) -> None:
    task = get_task("embedded")
    with pytest.raises(ConfigError, match=r"^vllm.gpu_share is 0.1, 1.5 GB of NVIDIA T4, but .* take 2.. GB: raise it"):
        check_fits(config(engine="vllm", vllm={"gpu_share": 0.1}), billions(0.6e9), task)
    check_fits(config(engine="vllm", vllm={"gpu_share": 0.2}), billions(0.6e9), task)
    on_cpu = {"engine": "vllm", "device": "cpu"}
    for precision in ("float32", "bfloat16"):  # vLLM's own is float32 there
        settings = {**on_cpu, "precision": precision}
        with pytest.raises(ConfigError, match=r"^vllm.kv_cache_gb is 0.01, but .* may take 0.014: raise it"):
            check_fits(config(**settings, vllm={"kv_cache_gb": 0.01}), billions(0.1e9), task)
        check_fits(config(**settings, vllm={"kv_cache_gb": 0.03}), billions(0.1e9), task)
    check_fits(config(**on_cpu, vllm={"kv_cache_gb": 0.0003}), describe("embedded"), task)


def test_a_card_that_does_not_tell_refuses_nothing(on_a_card, monkeypatch) -> None:
    monkeypatch.setattr(memory, "gpu_memory", lambda: None)
    check_fits(config(), billions(70e9), get_task("embedded"))


def test_on_a_cpu_only_the_impossible_is_refused(monkeypatch) -> None:
    check_fits(RunConfig(), describe("embedded"), get_task("embedded"))
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("this machine", 4 * 2**30, 2**20))
    check_fits(RunConfig(), describe("embedded"), get_task("embedded"))
    with pytest.raises(ConfigError, match=r"^memory: .* but this machine has 4.0 GB: "):
        check_fits(config(device="cpu"), billions(3e9), get_task("embedded"))


def test_sizes_in_words() -> None:
    assert [gigabytes(size) for size in (0, 3 * 2**20, 990 * 2**20, 2**30, 15.04 * 2**30)] == [
        "0 MB", "3 MB", "1.0 GB", "1.0 GB", "15.0 GB",
    ]  # fmt: skip
