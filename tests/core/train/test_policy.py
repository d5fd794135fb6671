import numpy as np
import pytest
import torch
from peft import PeftModel

from core.config import parse_run
from core.train.forward import Scorer
from core.train.policy import Policy
from core.train.reporter import TrainingError
from tests.core import tiny
from tests.core.train.test_forward import sequences


def policy(**settings):
    return Policy(tiny.llama(), tiny.tokenizer(), parse_run({"lora": {"r": 4}, **settings}))


def move(policy):
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)


def test_a_fresh_adapter_changes_nothing_and_the_base_stays_itself():
    ours = policy()
    base, _ = Scorer(tiny.llama(), 1.0).score(sequences())
    assert np.array_equal(ours.scorer.score(sequences())[0], base)
    move(ours)
    moved, _ = ours.scorer.score(sequences())
    assert np.abs(moved - base).max() > 0.01
    with ours.base():
        assert np.array_equal(ours.scorer.score(sequences())[0], base)
    assert np.array_equal(ours.scorer.score(sequences())[0], moved)


def test_only_the_adapter_trains_and_the_seed_decides_it():
    assert all("lora_" in name for name in policy().parameters)
    assert torch.equal(policy(seed=3).flat(), policy(seed=3).flat())
    assert not torch.equal(policy(seed=3).flat(), policy(seed=4).flat())


def test_a_saved_adapter_loads_through_peft(tmp_path):
    ours = policy()
    ours.save(tmp_path / "adapter")
    move(ours)
    ours.save(tmp_path / "adapter")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    loaded = PeftModel.from_pretrained(tiny.llama(), tmp_path / "adapter").eval()
    assert np.array_equal(Scorer(loaded, 1.0).score(sequences())[0], ours.scorer.score(sequences())[0])
    assert loaded.peft_config["default"].base_model_name_or_path == "embedded"


def test_targets_that_the_model_lacks_are_named():
    with pytest.raises(TrainingError, match=r"lora.targets: .*'attention_of_another_model'"):
        policy(lora={"r": 4, "targets": ["attention_of_another_model"]})
