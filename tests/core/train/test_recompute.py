"""Gradient checkpointing: the same gradient, and less kept for the backward pass."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from core.config import parse_run
from core.train.forward import Scorer
from core.train.policy import Policy
from core.train.recompute import recompute_layers
from core.train.reporter import TrainingError
from tests.core import tiny
from tests.core.train.test_forward import sequences

MODELS = {"llama": tiny.llama, "qwen2": tiny.qwen, "gpt2": tiny.gpt2}


def policy(model="llama", **settings):
    config = parse_run({"lora": {"r": 4}, **settings})
    ours = Policy(MODELS[model](), tiny.tokenizer(), config)
    ours.scorer = Scorer(ours.model, 1.0, packed=False)
    with torch.no_grad():
        for parameter in ours.parameters.values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    return ours


def gradient(policy):
    """(parameters,) of the sum of all log-probs, and the bytes that autograd was given to keep."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with policy.training(seed=0, step=0), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        sum(piece.logprob.sum() for piece in policy.scorer.pieces(sequences())).backward()
    total = torch.cat([p.grad.flatten() for p in policy.parameters.values()])
    return total, sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("model", MODELS)
def test_the_gradient_is_the_same_and_less_is_kept(model, dropout):
    lora = {"lora": {"r": 4, "dropout": dropout}}
    plain, much = gradient(policy(model, **lora))
    again, little = gradient(policy(model, **lora, gradient_checkpointing=True))
    assert plain.norm() > 1
    assert (again - plain).norm() <= 1e-6 * plain.norm()
    assert little < much / 2


def test_without_gradients_nothing_changes():
    plain, _ = policy().scorer.score(sequences())
    assert (policy(gradient_checkpointing=True).scorer.score(sequences())[0] == plain).all()


def test_no_pass_goes_around_the_layers():
    for checkpointing in (True, False):
        config = parse_run({"lora": {"r": 4}, "gradient_checkpointing": checkpointing})
        scorer = Policy(tiny.llama(), tiny.tokenizer(), config).scorer
        assert (scorer.packed is None) == checkpointing


def test_a_models_own_dropout_stays_off():
    """The library's switch would need training mode, and with it the base model's dropout."""
    model = tiny.llama(attention_dropout=0.5)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")).eval()
    assert recompute_layers(adapted) == 2
    scores = [next(Scorer(adapted, 1.0).pieces(sequences())).logprob for _ in range(2)]
    assert scores[0].requires_grad
    assert torch.equal(scores[0], scores[1])


def test_a_model_without_such_layers_is_named(monkeypatch):
    monkeypatch.setattr("core.train.policy.recompute_layers", lambda model: 0)
    with pytest.raises(TrainingError, match="gradient_checkpointing: the model embedded has no layers"):
        policy(gradient_checkpointing=True)
