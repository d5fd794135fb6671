"""The packed pass against the library's own, and the parts it is made of."""

import numpy as np
import pytest
import torch

from core.advantage import PROXY_DROPPED
from core.train.forward import Scorer, Sequences
from core.train.head import token_logprobs
from core.train.llama import trains
from core.train.packing import Heads, by_prompt, pack
from tests.core import tiny

MODELS = {
    "llama": tiny.llama,
    "as many keys as queries": lambda: tiny.llama(kv_heads=4),
    "tied": lambda: tiny.llama(tie_word_embeddings=True),
    "qwen2, with biases": tiny.qwen,
    "qwen3, with normed heads": tiny.qwen3,
    "mistral": tiny.mistral,
}


def groups(seed=0, size=4):
    """Five prompts, one of them twice; responses of 1 to 14 tokens, in rows of no order."""
    random = np.random.default_rng(seed)
    prompts = [random.integers(2, 20, count).tolist() for count in (1, 9, 3, 5)]
    rows = random.permutation(np.repeat([0, 1, 2, 3, 1], size))
    length = random.integers(1, 15, len(rows)).astype(np.int32)
    length[:2] = 1, 14
    return Sequences([list(prompts[p]) for p in rows], random.integers(0, 20, (len(rows), 14)).astype(np.int32), length)


def gradient_of(model, scorer, rows):
    """Of a weighted sum of the rows' log-probs; with the log-probs."""
    weight = torch.from_numpy(np.random.default_rng(2).normal(size=rows.token_ids.shape)).float()
    logprob = torch.zeros(rows.token_ids.shape)
    model.zero_grad()
    for piece in scorer.pieces(rows):
        width = piece.mask.shape[1]
        logprob[piece.rows, :width] = piece.logprob.detach()
        (piece.logprob * weight[piece.rows, :width]).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]), logprob


@pytest.mark.parametrize("name", MODELS)
def test_log_probs_entropies_and_gradients_are_the_librarys(name):
    model, rows = tiny.with_lora(MODELS[name]()), groups()
    packed, plain = Scorer(model, 0.8), Scorer(model, 0.8, packed=False)
    assert packed.packed is not None and plain.packed is None
    (ours, logprob), (theirs, expected) = (gradient_of(model, scorer, rows) for scorer in (packed, plain))
    torch.testing.assert_close(logprob, expected, rtol=1e-5, atol=1e-5)
    assert theirs.norm() > 1
    assert (ours - theirs).norm() < 2e-5 * theirs.norm()  # two orders of adding float32: 1.2e-5 on some CPUs
    for mine, other in zip(packed.score(rows), plain.score(rows), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_an_adapter_that_is_switched_off_changed_or_only_on_some_layers_is_seen():
    from peft import LoraConfig, get_peft_model

    rows = groups()
    lora = LoraConfig(r=2, target_modules=["v_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(tiny.llama(), lora).eval()
    packed, plain = Scorer(model, 1.0), Scorer(model, 1.0, packed=False)
    seen = []
    for change in ("none", "off", "weights"):
        if change == "weights":
            with torch.no_grad():
                next(p for p in model.parameters() if p.requires_grad).data.mul_(3)
        if change == "off":
            with model.disable_adapter():
                seen.append(packed.score(rows)[0])
                np.testing.assert_allclose(seen[-1], plain.score(rows)[0], atol=1e-5)
        else:
            seen.append(packed.score(rows)[0])
            np.testing.assert_allclose(seen[-1], plain.score(rows)[0], atol=1e-5)
            ours, theirs = (gradient_of(model, scorer, rows)[0] for scorer in (packed, plain))
            assert (ours - theirs).norm() < 1e-5 * theirs.norm()
    assert not np.allclose(seen[0], seen[1], atol=1e-3) and not np.allclose(seen[0], seen[2], atol=1e-3)


def test_micro_batches_bound_memory_and_change_nothing(monkeypatch):
    model, rows = tiny.with_lora(tiny.llama()), groups(size=6)
    whole = Scorer(model, 1.0)
    expected, _ = gradient_of(model, whole, rows)
    assert len(list(whole.pieces(rows))) == 1
    monkeypatch.setattr("core.train.forward.PACKED_BYTES", 60_000)
    pieces = list(whole.pieces(rows))
    assert len(pieces) > 3
    assert sorted(np.concatenate([piece.rows for piece in pieces])) == list(range(30))
    for piece in pieces:
        assert len(piece.rows) == 1 or kept_by(whole, rows.rows(piece.rows)) <= 60_000
    found, _ = gradient_of(model, whole, rows)
    assert (found - expected).norm() < 1e-5 * expected.norm()


def kept_by(scorer, rows):
    """The estimate of what training keeps of the rows, each prompt once."""
    responses = zip(rows.prompt_ids, rows.length, strict=True)
    kept = sum(scorer.packed.kept_bytes(int(length), len(prompt)) for prompt, length in responses)
    return kept + sum(scorer.packed.kept_bytes(len(prompt)) for prompt in set(map(tuple, rows.prompt_ids)))


@pytest.mark.parametrize(("prompts", "size"), [((400,), 8), ((400, 390, 380), 1), ((400, 5, 5), 8), ((20, 20), 12)])
def test_what_training_keeps_is_about_the_estimate(prompts, size):
    """Padding included: a long prompt widens neither its short answers nor those of other prompts."""
    random = np.random.default_rng(0)
    prompts = [random.integers(2, 20, count).tolist() for count in np.repeat(prompts, size)[::size]]
    ids = [prompt for prompt in prompts for _ in range(size)]
    rows = Sequences(ids, random.integers(0, 20, (len(ids), 14)).astype(np.int32), np.full(len(ids), 14, np.int32))
    scorer = Scorer(tiny.with_lora(tiny.llama(max_position_embeddings=512)), 1.0)
    packed = pack(rows, scorer.packed.heads, torch.device("cpu"))
    _, layers = scorer.packed.forward(packed, save=True)
    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors_of(layers)}
    assert 0.5 * kept_by(scorer, rows) < sum(kept.values()) < 1.5 * kept_by(scorer, rows)
    (ours, _), (theirs, _) = (
        gradient_of(scorer.model, Scorer(scorer.model, 1.0, packed=packed), rows) for packed in (True, False)
    )
    assert (ours - theirs).norm() < 1e-5 * theirs.norm()


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value if isinstance(value, (list, tuple)) else vars(value).values()
    return [tensor for each in inside for tensor in tensors_of(each)]


def test_long_rollouts_take_the_librarys_pass(monkeypatch):
    model, rows = tiny.with_lora(tiny.llama()), groups()
    expected = Scorer(model, 1.0).score(rows)
    monkeypatch.setattr("core.train.forward.PACKED_LONGEST", 10)
    scorer = Scorer(model, 1.0)
    monkeypatch.setattr(scorer.packed, "hidden", None)
    for ours, theirs in zip(scorer.score(rows), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_what_the_packed_pass_cannot_do_is_left_to_the_library():
    from peft import LoraConfig, get_peft_model

    assert trains(tiny.with_lora(tiny.llama()).get_base_model())
    dropout = LoraConfig(r=2, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM")
    assert not trains(get_peft_model(tiny.llama(), dropout).get_base_model())
    assert not trains(tiny.gpt2())
    assert not trains(tiny.llama().to(torch.bfloat16))


def test_only_a_pass_with_a_way_back_keeps_the_layers_states(monkeypatch):
    scorer, kept = Scorer(tiny.with_lora(tiny.llama()), 1.0), []
    inner = scorer.packed.forward

    def forward(packed, save):
        states, saved = inner(packed, save)
        kept.append(len(saved))
        return states, saved

    monkeypatch.setattr(scorer.packed, "forward", forward)
    scorer.score(groups())
    next(scorer.pieces(groups())).logprob.sum().backward()
    assert kept == [0, tiny.SIZES["num_hidden_layers"]]


def test_no_rows_are_no_pieces():
    scorer = Scorer(tiny.with_lora(tiny.llama()), 1.0)
    assert list(scorer.pieces(groups().rows(np.array([], dtype=int)))) == []


def test_nothing_is_in_the_stream_twice_and_nothing_else_is_shared():
    rows = groups()
    rows.token_ids[:, :6] %= 2  # so that responses begin alike
    packed = pack(rows, Heads(4, 2), torch.device("cpu"))
    texts = [[*prompt, *ids[: count - 1]] for prompt, ids, count in
             zip(rows.prompt_ids, rows.token_ids, rows.length, strict=True)]  # fmt: skip
    beginnings = {tuple(text[:end]) for prompt, text in zip(rows.prompt_ids, texts, strict=True)
                  for end in range(len(prompt) + 1, len(text) + 1)}  # fmt: skip
    assert len(packed.ids) == len(beginnings) + sum(map(len, {tuple(ids) for ids in rows.prompt_ids}))
    assert len(packed.ids) < sum(map(len, {tuple(text) for text in texts}))
    start = 0
    for prompt, text, count in zip(rows.prompt_ids, texts, rows.length, strict=True):
        places = packed.predicting[start : start + count]
        start += count
        assert packed.positions[places].tolist() == list(range(len(prompt) - 1, len(text)))
        assert packed.ids[places].tolist() == text[len(prompt) - 1 :]
    assert by_prompt(rows.prompt_ids).max() == 3
    covered = torch.cat([block.stream for block in packed.blocks])
    assert sorted(covered.tolist()) == list(range(4 * len(packed.ids))), "attention reaches each token's heads once"


def test_rollouts_that_begin_alike_or_are_the_same_have_the_librarys_gradients():
    model, rows = tiny.with_lora(tiny.llama()), groups(size=6)
    rows.token_ids[:, :6] %= 2
    rows = rows.rows(np.array([*range(30), 3, 3, 7]))
    (ours, logprob), (theirs, expected) = (
        gradient_of(model, Scorer(model, 1.0, packed=packed), rows) for packed in (True, False)
    )
    torch.testing.assert_close(logprob, expected, rtol=1e-5, atol=1e-5)
    assert (ours - theirs).norm() < 1e-5 * theirs.norm()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_head_is_a_log_softmax_and_its_gradient(monkeypatch, temperature):
    monkeypatch.setattr("core.train.head.CHUNK_LOGITS", 7 * 50)
    torch.manual_seed(0)
    hidden, weight = torch.randn(30, 12, requires_grad=True), torch.randn(50, 12)
    target, grad = torch.randint(0, 50, (30,)), torch.randn(30)
    logprob, entropy, proxy = token_logprobs(hidden, weight, target, temperature, entropy=True, min_p=0.005)
    (logprob * grad).sum().backward()
    exact = hidden.detach().double().requires_grad_()
    logp = (exact @ weight.double().t() / temperature).log_softmax(-1)
    expected = logp.gather(-1, target[:, None])[:, 0]
    (expected * grad).sum().backward()
    torch.testing.assert_close(logprob.double(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(entropy.double(), -(logp.exp() * logp).sum(-1), rtol=0, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)
    assert token_logprobs(hidden, weight, target, temperature)[1:] == (None, None)

    prob = logp.detach().exp()
    left = prob >= 0.005 * prob.amax(-1, keepdim=True)
    filtered = (prob * left / (prob * left).sum(-1, keepdim=True)).gather(-1, target[:, None])[:, 0]
    assert 3 < (filtered == 0).sum() < 28, "some are dropped, some are not"
    torch.testing.assert_close(proxy.double(), filtered.log().clamp(min=PROXY_DROPPED), rtol=0, atol=1e-5)
    assert not proxy.requires_grad


def test_near_certain_tokens_keep_their_gradient_in_bfloat16():
    """It is about 1 - p of the weights, while bfloat16 has nothing between 0.996 and 1."""
    torch.manual_seed(0)
    weight = torch.randn(200, 64).bfloat16()
    target = torch.arange(60)
    hidden = (weight[target].float() * torch.linspace(0.1, 0.25, 60)[:, None]).bfloat16().requires_grad_()
    logprob = token_logprobs(hidden, weight, target, 1.0)[0]
    logprob.sum().backward()
    exact = hidden.detach().float().requires_grad_()
    (exact @ weight.float().t()).log_softmax(-1).gather(-1, target[:, None]).sum().backward()
    apart = (hidden.grad.float() - exact.grad).norm(dim=1) / exact.grad.norm(dim=1)
    near = logprob.exp() > 0.99
    assert 10 < near.sum() < 50
    assert apart.median() < 0.05 and apart[near].median() < 0.1


def test_the_head_survives_certain_and_impossible_tokens():
    weight = torch.tensor([[200.0], [-200.0], [0.0]])
    logprob, entropy, proxy = token_logprobs(torch.ones(3, 1), weight, torch.tensor([0, 1, 2]), 1.0, True, 0.02)
    torch.testing.assert_close(logprob, torch.tensor([0.0, -400.0, -200.0]))
    assert entropy.abs().max() < 1e-6
    assert proxy.tolist() == [0, PROXY_DROPPED, PROXY_DROPPED]
    minus = torch.tensor([[1.0], [float("-inf")]])
    _, entropy, _ = token_logprobs(torch.ones(1, 1), minus, torch.tensor([0]), 1.0, entropy=True)
    assert entropy.tolist() == [0]
