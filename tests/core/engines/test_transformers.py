import dataclasses

import numpy as np
import pytest
import torch

from core.engines import transformers as engine_module
from core.engines.base import EngineError, SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from tests.core import tiny

PROMPTS = ["7+8=?", "1=?", "3-2+15-4=?"]
KEY = SampleKey(seed=0, split="train", step=2)
SAMPLING = Sampling(temperature=1.0, max_new_tokens=12)
MODELS = {
    "llama": lambda: tiny.with_lora(tiny.llama()),
    "llama, as many kv heads": lambda: tiny.with_lora(tiny.llama(kv_heads=4)),
    "llama without an adapter": tiny.llama,
    "llama with biases": lambda: tiny.with_lora(tiny.llama(seed=3, attention_bias=True, mlp_bias=True)),
    "qwen2": lambda: tiny.with_lora(tiny.qwen()),
    "qwen3": lambda: tiny.with_lora(tiny.qwen3()),
    "mistral": lambda: tiny.with_lora(tiny.mistral()),
    "mistral, sliding window": lambda: tiny.mistral(sliding_window=4),
    "qwen2, sliding window": lambda: tiny.qwen(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "gpt2": tiny.gpt2,
}
PLAIN = {"gpt2", "qwen2, sliding window", "mistral, sliding window"}


def plain_forward(model, rollouts, group_size, temperature):
    """Log-probs and entropies of the sampled ids, one unpadded full forward pass a rollout."""
    logprob, entropy = np.zeros_like(rollouts.logprob), np.zeros_like(rollouts.entropy)
    for row in range(len(rollouts.length)):
        prompt, count = rollouts.prompt_ids[row // group_size], rollouts.length[row]
        ids = torch.tensor([prompt + rollouts.token_ids[row, :count].tolist()])
        with torch.no_grad():
            logp = (model(input_ids=ids, use_cache=False).logits[0] / temperature).log_softmax(-1)
        logp = logp[len(prompt) - 1 : -1]
        logprob[row, :count] = logp.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        entropy[row, :count] = -(logp.exp() * logp).sum(-1)
    return logprob, entropy


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fast", [True, False])
def test_logprobs_and_entropies_are_those_of_a_full_forward_pass(name, fast):
    model = MODELS[name]()
    engine = TransformersEngine(model, tiny.tokenizer(), fast=fast)
    assert engine.fast == (fast and name not in PLAIN)
    rollouts = engine.generate(PROMPTS, 6, dataclasses.replace(SAMPLING, temperature=0.7), KEY)
    assert len(np.unique(rollouts.length)) > 2, "the test needs rows that finish at different times"
    logprob, entropy = plain_forward(model, rollouts, 6, 0.7)
    np.testing.assert_allclose(rollouts.logprob, logprob, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rollouts.entropy, entropy, rtol=1e-5, atol=1e-5)


def test_the_fast_decoder_samples_the_same_tokens():
    model = tiny.with_lora(tiny.llama())
    fast, plain = (
        TransformersEngine(model, tiny.tokenizer(), fast=f).generate(PROMPTS, 8, SAMPLING, KEY) for f in (1, 0)
    )
    assert np.array_equal(fast.token_ids, plain.token_ids)


@pytest.mark.parametrize("fast", [True, False])
def test_sampling_does_not_depend_on_batching(fast, monkeypatch):
    engine = TransformersEngine(tiny.with_lora(tiny.llama()), tiny.tokenizer(), fast=fast)
    together = engine.generate(PROMPTS, 6, SAMPLING, KEY)
    monkeypatch.setattr(engine_module, "CACHE_BYTES", 1)
    one_by_one = engine.generate(PROMPTS, 6, SAMPLING, KEY)
    assert np.array_equal(together.token_ids, one_by_one.token_ids)
    refill = engine.generate(PROMPTS[1:], 6, SAMPLING, dataclasses.replace(KEY, first_group=1))
    assert refill.text == together.text[6:]
    fewer = engine.generate(PROMPTS, 2, SAMPLING, KEY)
    assert fewer.text == [text for i, text in enumerate(together.text) if i % 6 < 2]


def test_sampled_frequencies_follow_the_distribution():
    model = tiny.llama()
    engine = TransformersEngine(model, tiny.tokenizer())
    rollouts = engine.generate(["1=?"], 4000, Sampling(temperature=1.5, max_new_tokens=1), KEY)
    with torch.no_grad():
        expected = (model(torch.tensor(rollouts.prompt_ids)).logits[0, -1] / 1.5).softmax(-1).numpy()
    seen = np.bincount(rollouts.token_ids[:, 0], minlength=len(expected)) / 4000
    assert np.abs(seen - expected).max() < 5 * np.sqrt(0.25 / 4000)


def test_greedy_takes_the_likeliest_token_with_logprobs_at_temperature_1():
    model = tiny.llama(seed=3)
    engine = TransformersEngine(model, tiny.tokenizer())
    greedy = engine.generate(PROMPTS, 1, Sampling(temperature=0, max_new_tokens=12), KEY)
    logprob, _ = plain_forward(model, greedy, 1, 1.0)
    np.testing.assert_allclose(greedy.logprob, logprob, rtol=1e-5, atol=1e-5)
    for row, prompt in enumerate(greedy.prompt_ids):
        ids = torch.tensor([prompt + greedy.token_ids[row, : greedy.length[row]].tolist()])
        with torch.no_grad():
            best = model(ids).logits[0].argmax(-1)
        assert torch.equal(best[len(prompt) - 1 : -1], ids[0, len(prompt) :])


def test_lengths_truncation_and_texts_agree_with_the_ids():
    engine = TransformersEngine(tiny.llama(), tiny.tokenizer())
    rollouts = engine.generate(PROMPTS, 16, SAMPLING, KEY)
    assert rollouts.truncated.any()
    assert not rollouts.truncated.all()
    for row, count in enumerate(rollouts.length):
        ids = rollouts.token_ids[row, :count]
        assert rollouts.truncated[row] == (tiny.EOS not in ids)
        assert tiny.EOS not in ids[:-1]
        assert (rollouts.token_ids[row, count:] == tiny.PAD).all()
        assert len(rollouts.token_text[row]) == count
        if not rollouts.truncated[row]:
            assert rollouts.token_text[row][-1] == "<eos>"
        plain = [text for text in rollouts.token_text[row] if not text.startswith("<")]
        assert rollouts.text[row] == "".join(plain)


def test_any_of_several_end_of_sequence_ids_ends_a_response():
    model = tiny.llama()
    model.generation_config.eos_token_id = [tiny.EOS, 5, 6]
    rollouts = TransformersEngine(model, tiny.tokenizer()).generate(PROMPTS, 16, SAMPLING, KEY)
    last = rollouts.token_ids[np.arange(len(rollouts.length)), rollouts.length - 1]
    assert set(last[~rollouts.truncated]) == {tiny.EOS, 5, 6}


def test_a_chat_template_is_applied():
    tokenizer = tiny.tokenizer()
    turns = "{% for m in messages %}a{{ m.content }}b{% endfor %}"
    tokenizer.chat_template = turns + "{% if add_generation_prompt %}c{% endif %}"
    engine = TransformersEngine(tiny.llama(), tokenizer)
    assert engine.texts.encode(["1=?"]) == [tiny.tokenizer()("a1=?bc")["input_ids"]]


def test_a_prompt_that_leaves_no_room_is_refused_by_name():
    engine = TransformersEngine(tiny.llama(), tiny.tokenizer())
    with pytest.raises(EngineError, match=r"max_new_tokens is 60.*at most 64.*takes 10.*lower it to 54"):
        engine.generate(PROMPTS, 2, Sampling(max_new_tokens=60), KEY)
    with pytest.raises(EngineError, match="no tokens"):
        engine.generate([""], 2, SAMPLING, KEY)


def test_logits_that_are_not_numbers_are_an_error():
    model = tiny.llama()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        TransformersEngine(model, tiny.tokenizer()).generate(PROMPTS, 2, SAMPLING, KEY)
