"""Models as people have them: each kind samples, sampler and trainer agree, it trains and leaves an adapter."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.config import ConfigError, RunConfig, parse_run
from core.engines.base import EngineError, SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from core.models.catalog import describe, require
from core.models.load import load_model
from core.runs.create import check_machine
from core.train.forward import Sequences
from core.train.loop import Trainer
from core.train.policy import Policy, load_policy
from tests.core import tiny
from tests.core.models.folders import (
    CLASSES,
    MAKE,
    TEMPLATE_AGAINST_SYSTEM,
    TEMPLATE_WITHOUT_SYSTEM,
    Kind,
    save,
)
from tests.core.train.runs import Reporter, configure, rows

KINDS = [
    Kind("llama"),
    Kind("llama", chat=True, tied=True, pad="eos"),
    Kind("llama", pad="none"),
    Kind("qwen2", tied=True, pad="none"),
    Kind("qwen2", chat=True, pad="eos"),
    Kind("qwen3", chat=True, tied=True),
    Kind("gpt2", tied=True, pad="none"),
    Kind("gpt2", chat=True, pad="eos"),
]
PROMPTS = ["7+8=?", "1=?", "3-2+15-4=?"]  # of unequal lengths: the shorter ones are padded on the left
KEY = SampleKey(seed=0, split="train", step=0)
SAMPLING = Sampling(temperature=0.8, max_new_tokens=12, stop=("5", "7", "ab"))
TOLERANCE = 1e-4


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def folder(kind: Kind, tmp_path: Path) -> Path:
    return save(kind, tmp_path / "model")


def config_of(folder: Path, **settings: object) -> RunConfig:
    sampling = {"temperature": 0.8, "max_new_tokens": 12}
    return parse_run({"model": str(folder), "lora": {"r": 4}, "sampling": sampling, **settings})


def moved(config: RunConfig) -> Policy:
    """A policy whose adapter does something."""
    policy = load_policy(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return policy


def score(policy: Policy, rollouts, group_size: int) -> np.ndarray:
    prompts = [ids for ids in rollouts.prompt_ids for _ in range(group_size)]
    return policy.scorer.score(Sequences(prompts, rollouts.token_ids, rollouts.length))[0]


def test_the_catalog_says_what_the_files_are(kind: Kind, folder: Path) -> None:
    info = require(str(folder))
    assert info.architecture == CLASSES[kind.architecture].__name__
    assert info.chat_template == kind.chat
    assert (info.layers, info.hidden, info.vocab, info.context) == (2, 32, tiny.SIZES["vocab_size"], 64)
    model, tokenizer = load_model(str(folder))
    assert info.parameters == sum(p.numel() for p in model.parameters()), "a tied head counts once"
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == kind.tied
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token_id == (tiny.PAD if kind.pad == "own" else tiny.EOS)


def test_all_linear_layers_get_an_adapter(kind: Kind, folder: Path) -> None:
    policy = load_policy(config_of(folder))
    adapted = [name.removesuffix(".lora_A.default.weight") for name in policy.parameters if ".lora_A." in name]
    assert {name.rpartition(".")[2] for name in adapted} == set(describe(str(folder)).lora_targets)
    assert len(adapted) == 2 * (4 if kind.architecture == "gpt2" else 7), "in both layers"


def test_sampler_and_trainer_agree_whatever_the_padding(kind: Kind, folder: Path) -> None:
    policy = moved(config_of(folder))
    for fast in (False,) if kind.architecture == "gpt2" else (False, True):
        engine = TransformersEngine(policy.model, policy.tokenizer, fast, "9+9" if kind.chat else None)
        assert engine.fast == fast
        agree(policy, engine)


def agree(policy: Policy, engine: TransformersEngine) -> None:
    """A batch of unequal prompts gives the trainer's log-probs, and what each prompt gives alone."""
    rollouts = engine.generate(PROMPTS, 6, SAMPLING, KEY)
    assert len(set(map(len, rollouts.prompt_ids))) == 3
    assert len(set(rollouts.length.tolist())) > 1
    np.testing.assert_allclose(rollouts.logprob, score(policy, rollouts, 6), atol=TOLERANCE)
    for index, prompt in enumerate(PROMPTS):
        alone = engine.generate([prompt], 6, SAMPLING, dataclasses.replace(KEY, first_group=index))
        rows = slice(6 * index, 6 * index + 6)
        width = alone.token_ids.shape[1]
        assert alone.text == rollouts.text[rows]
        np.testing.assert_array_equal(alone.length, rollouts.length[rows])
        np.testing.assert_allclose(alone.logprob, rollouts.logprob[rows, :width], atol=TOLERANCE)


def test_a_response_ends_with_the_token_that_completes_a_stop_string(kind: Kind, folder: Path) -> None:
    policy = load_policy(config_of(folder))
    engine = TransformersEngine(policy.model, policy.tokenizer)
    rollouts = engine.generate(PROMPTS, 32, SAMPLING, KEY)
    free = engine.generate(PROMPTS, 32, dataclasses.replace(SAMPLING, stop=()), KEY)
    stopped = 0
    for row, count in enumerate(rollouts.length):
        ids, text = rollouts.token_ids[row, :count], rollouts.text[row]
        ended = text.endswith(SAMPLING.stop)
        assert rollouts.truncated[row] == (not ended and tiny.EOS not in ids)
        assert not any(stop in text[:-1] for stop in SAMPLING.stop)
        assert free.text[row].startswith(text), "what comes before it is as without it"
        np.testing.assert_allclose(rollouts.logprob[row, :count], free.logprob[row, :count], atol=1e-5)
        stopped += ended
    assert stopped > 5


def test_a_step_trains_the_adapter_and_plain_peft_reads_it(kind: Kind, folder: Path, tmp_path: Path) -> None:
    settings = {"system_prompt": "1+1=2"} if kind.chat else {}
    run_dir = configure(
        tmp_path / "run", model=str(folder), method="nsr_pm1", steps=1, lora={"r": 4}, **settings,
        sampling={"max_new_tokens": 8, "stop": ["5"]}, evaluate={"every": 0},
    )  # fmt: skip
    trainer = Trainer(run_dir, Reporter())
    before = trainer.policy.flat()
    trainer.step()
    trainer.finish()
    policy = trainer.policy
    if kind.chat:
        assert policy.tokenizer.decode(trainer.engine.texts.encode(["1=?"])[0]).startswith("a1+1=2bc1=?d")
    texts = rows(run_dir, 0, "rollouts", split="train")
    assert all(row["text"].find("5") in (-1, len(row["text"]) - 1) for row in texts)
    assert not any(row["truncated"] for row in texts if row["text"].endswith("5"))
    assert not torch.equal(policy.flat(), before)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), run_dir / "adapter").eval()
    ids = torch.tensor(policy.tokenizer(["7+8-3+6=?"])["input_ids"])
    with torch.no_grad():
        ours, theirs = policy.model(ids).logits, plain(ids).logits
        base = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    assert (ours - base).abs().max() > 1e-4, "the adapter does something"
    torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=1e-6)


def test_a_system_prompt_stands_in_the_models_own_template(tmp_path: Path) -> None:
    folder = save(Kind("qwen2", chat=True), tmp_path / "model")
    _, tokenizer = load_model(str(folder))

    def read(system: str | None) -> str:
        engine = TransformersEngine(MAKE["qwen2"](False), tokenizer, system_prompt=system)
        (ids,) = engine.texts.encode(["1=?"])
        return tokenizer.decode(ids)

    assert read(None) == "c1=?de"
    assert read("2+2") == "a2+2bc1=?de"
    assert read("") == "abc1=?de"


def test_a_base_model_takes_no_system_prompt(tmp_path: Path) -> None:
    folder = save(Kind("llama"), tmp_path / "model")
    with pytest.raises(ConfigError, match=r"^system_prompt: the model .* has no chat template.*leave it out"):
        check_machine(config_of(folder, system_prompt="be brief"))
    _, tokenizer = load_model(str(folder))
    with pytest.raises(EngineError, match=r"^system_prompt: the model has no chat template"):
        TransformersEngine(tiny.llama(), tokenizer, system_prompt="")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (TEMPLATE_WITHOUT_SYSTEM, r"^system_prompt: the model's chat template leaves it out"),
        (TEMPLATE_AGAINST_SYSTEM, r"^system_prompt: .*template refuses .*System role not supported"),
    ],
)
def test_a_template_without_a_place_for_it_says_so(tmp_path: Path, template: str, words: str) -> None:
    _, tokenizer = load_model(str(save(Kind("qwen3", chat=True), tmp_path / "model", template)))
    engine = TransformersEngine(MAKE["qwen3"](False), tokenizer, system_prompt="9+9")
    with pytest.raises(EngineError, match=words):
        engine.generate(PROMPTS, 1, SAMPLING, KEY)
