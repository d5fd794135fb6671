import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from core.advantage import PROXY_DROPPED
from core.train.forward import Scorer, Sequences
from core.train.packing import like_length
from tests.core import tiny


def capped_head():
    """A model whose logits are more than its output layer's."""
    torch.manual_seed(0)
    sizes = {"head_dim": 8, "num_key_value_heads": 2, "final_logit_softcapping": 3.0}
    return Gemma2ForCausalLM(Gemma2Config(**tiny.SIZES | sizes)).eval()


MODELS = {
    "llama": lambda: tiny.with_lora(tiny.llama()),
    "llama, all keys": lambda: tiny.with_lora(tiny.llama(kv_heads=4)),
    "qwen2": lambda: tiny.with_lora(tiny.qwen()),
    "gpt2": lambda: tiny.gpt2().requires_grad_(False),
    "gemma2": lambda: capped_head().requires_grad_(False),
}


def sequences(count=20, seed=0):
    random = np.random.default_rng(seed)
    length = random.integers(1, 15, count).astype(np.int32)
    prompts = [random.integers(2, 20, random.integers(1, 9)).tolist() for _ in range(count)]
    return Sequences(prompts, random.integers(0, 20, (count, 15)).astype(np.int32), length)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_unpadded_full_passes(name):
    model, rows = MODELS[name](), sequences()
    scorer = Scorer(model, temperature=0.8)
    assert scorer.plain_head == (name != "gemma2")
    logprob, entropy = scorer.score(rows)
    for i, count in enumerate(rows.length):
        ids = torch.tensor([rows.prompt_ids[i] + rows.token_ids[i, :count].tolist()])
        with torch.no_grad():
            logp = (model(input_ids=ids, use_cache=False).logits[0] / 0.8).log_softmax(-1)[-count - 1 : -1]
        expected = logp.gather(-1, ids[0, -count:, None])[:, 0]
        np.testing.assert_allclose(logprob[i, :count], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(entropy[i, :count], -(logp.exp() * logp).sum(-1), rtol=1e-5, atol=1e-5)
        assert not logprob[i, count:].any()
        assert not entropy[i, count:].any()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("packed", [True, False])
def test_proxies_are_log_probs_of_what_the_filter_leaves(name, packed):
    model, rows = MODELS[name](), sequences()
    scorer = Scorer(model, temperature=0.8, packed=packed)
    assert (scorer.packed is not None) == (packed and ("llama" in name or "qwen" in name))
    *scores, proxy = scorer.score_with_proxy(rows, min_p=0.3)
    for mine, expected in zip(scores, scorer.score(rows), strict=True):
        assert np.array_equal(mine, expected)
    dropped = 0
    for i, count in enumerate(rows.length):
        ids = torch.tensor([rows.prompt_ids[i] + rows.token_ids[i, :count].tolist()])
        with torch.no_grad():
            prob = (model(input_ids=ids, use_cache=False).logits[0] / 0.8).softmax(-1)[-count - 1 : -1]
        prob[prob < 0.3 * prob.amax(-1, keepdim=True)] = 0
        left = (prob / prob.sum(-1, keepdim=True)).gather(-1, ids[0, -count:, None])[:, 0]
        expected = torch.where(left > 0, left.log(), PROXY_DROPPED)
        np.testing.assert_allclose(proxy[i, :count], expected, rtol=1e-5, atol=1e-5)
        assert not proxy[i, count:].any()
        dropped += int((left == 0).sum())
    assert 0 < dropped < rows.length.sum()


def test_micro_batches_do_not_change_the_gradient():
    policy, rows = tiny.with_lora(tiny.llama()), sequences()
    gradients = []
    for max_tokens in (40, 10_000):
        scorer = Scorer(policy, temperature=1.0)
        scorer.max_tokens = max_tokens
        policy.zero_grad()
        pieces = list(scorer.pieces(rows))
        assert sorted(np.concatenate([piece.rows for piece in pieces])) == list(range(20))
        sum(piece.logprob.sum() for piece in pieces).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters() if p.requires_grad]))
    assert gradients[0].norm() > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("max_tokens", [10, 100, 1000])
def test_micro_batches_hold_each_row_once_within_the_budget(max_tokens):
    lengths = np.random.default_rng(1).integers(5, 60, 100)
    batches = list(like_length(lengths, max_tokens))
    assert sorted(np.concatenate(batches)) == list(range(100))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens
