"""The joined weights against the model's own layers, through changes of the adapter."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from core.engines import merged as module
from core.engines.merged import merged, supports
from tests.core import tiny

MODELS = {
    "llama": tiny.llama,
    "qwen2": tiny.qwen,
    "qwen3": tiny.qwen3,
    "mistral": tiny.mistral,
}


def assert_same_as_the_layers(weights, model):
    """Every projection gives what the model's linear layers give, LoRA included, side by side."""
    for joined, layer in zip(weights.layers, model.model.layers, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        for projection, linears in (
            (joined.qkv, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (joined.out, (attention.o_proj,)),
            (joined.gate_up, (mlp.gate_proj, mlp.up_proj)),
            (joined.down, (mlp.down_proj,)),
        ):
            x = torch.randn(5, projection.weight.shape[0])
            with torch.no_grad():
                expected = torch.cat([linear(x) for linear in linears], dim=-1)
                torch.testing.assert_close(projection(x), expected, rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(projection.onto(expected, x), 2 * expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("base_bytes", [0, 2**30])
def test_the_weights_follow_every_change_of_the_adapter(name, base_bytes, monkeypatch):
    monkeypatch.setattr(module, "BASE_BYTES", base_bytes)
    policy = tiny.with_lora(MODELS[name]())
    model = policy.get_base_model()
    weights = merged(model)
    assert_same_as_the_layers(weights, model)
    b = model.model.layers[1].mlp.up_proj.lora_B["default"].weight
    with torch.no_grad():
        b.mul_(-3)
    assert_same_as_the_layers(merged(model), model)
    b.data += 1  # unseen by the parameter's version counter
    assert_same_as_the_layers(merged(model), model)
    with policy.disable_adapter():
        assert_same_as_the_layers(merged(model), model)
    assert_same_as_the_layers(merged(model), model)


def test_a_model_has_one_copy_and_no_merge_without_a_change():
    model = tiny.with_lora(tiny.llama()).get_base_model()
    weights = merged(model)
    weights.layers[0].out.weight.zero_()
    assert merged(model) is weights
    assert not weights.layers[0].out.weight.any()


def test_the_head_is_the_output_layer_in_blocks(monkeypatch):
    monkeypatch.setattr(module, "HEAD_COLUMNS", 8)
    model = tiny.llama()
    head = merged(model).head
    assert [block.shape[1] for block in head] == [8, 8, 8, 3]
    assert torch.equal(torch.cat(head, dim=1), model.lm_head.weight.t())


def test_merged_weights_can_be_saved_for_a_backward_pass_after_sampling():
    model = tiny.with_lora(tiny.llama()).get_base_model()
    with torch.inference_mode():
        weights = merged(model)
    x = torch.randn(2, 32, requires_grad=True)
    weights.layers[0].qkv(x).sum().backward()
    assert x.grad is not None


def lora(**settings):
    config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    return get_peft_model(tiny.llama(), config).get_base_model()


def test_what_is_not_plain_llama_arithmetic_is_left_to_the_library():
    assert all(supports(build()) for build in MODELS.values())
    assert supports(lora())
    assert not supports(tiny.gpt2())
    assert not supports(tiny.llama().to(torch.bfloat16))
    assert not supports(tiny.llama(hidden_act="gelu"))
    assert not supports(tiny.mistral(sliding_window=4))
    assert not supports(tiny.qwen(use_sliding_window=True, sliding_window=4, max_window_layers=1))
    assert not supports(tiny.llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}))
    assert not supports(lora(use_dora=True))
    head = LoraConfig(r=2, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    assert not supports(get_peft_model(tiny.llama(), head).get_base_model())
    policy = tiny.with_lora(tiny.llama())
    policy.merge_adapter()
    assert not supports(policy.get_base_model())
