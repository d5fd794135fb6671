"""The vLLM engine for real, on a CPU: one start serves most tests, in order of versions, which only grow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from core.config import RunConfig, parse_run
from core.engines.base import EngineError, Rollouts, SampleKey, Sampling
from core.engines.choose import make_engine
from core.engines.transformers import TransformersEngine
from core.engines.vllm import VllmEngine, _arguments, seeds
from core.tasks import get_task
from core.train.forward import Sequences
from core.train.policy import Policy, load_policy
from tests.needs import need_vllm

CONFIG: RunConfig = parse_run(
    {"engine": "vllm", "device": "cpu", "threads": 1, "lora": {"r": 12}, "vllm": {"kv_cache_gb": 0.25}}
)
PROMPTS = [prompt.text for prompt in get_task("embedded").train_pool(8, 0)]
KEY = SampleKey(0, "train", 0)
TOLERANCE = 5e-5
"""Nats between vLLM's log-prob of a token and the trainer's, in float32; 1e-5 is what was seen."""

versions = itertools.count()


@pytest.fixture(scope="module")
def policy() -> Policy:
    need_vllm()
    torch.set_num_threads(1)
    return load_policy(CONFIG)


@pytest.fixture(scope="module")
def engine(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    engine = make_engine(CONFIG, policy, tmp_path_factory.mktemp("run"))
    yield engine
    engine.close()


def change(policy: Policy, seed: int, std: float = 0.03) -> int:
    """Give the adapter other weights; the new version."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.parameters.items():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
    return next(versions)


def sequences(rollouts: Rollouts) -> Sequences:
    group_size = len(rollouts.length) // len(rollouts.prompt_ids)
    return Sequences(
        [ids for ids in rollouts.prompt_ids for _ in range(group_size)], rollouts.token_ids, rollouts.length
    )


def gap(policy: Policy, rollouts: Rollouts) -> float:
    """The largest difference to the trainer's log-probs of the same tokens at T = 1."""
    assert int(rollouts.length.sum()) > 100
    return float(np.abs(policy.scorer.score(sequences(rollouts))[0] - rollouts.logprob).max())


def test_responses_are_as_the_protocol_says(engine: VllmEngine, policy: Policy) -> None:
    rollouts = engine.generate(PROMPTS, 4, Sampling(max_new_tokens=12), KEY, change(policy, 0))
    own = TransformersEngine(policy.model, policy.tokenizer).generate(PROMPTS, 1, Sampling(max_new_tokens=12), KEY)
    assert rollouts.prompt_ids == own.prompt_ids
    assert rollouts.entropy is None
    assert rollouts.token_ids.shape == rollouts.logprob.shape == (32, 12)
    assert rollouts.token_ids.dtype == rollouts.length.dtype == np.int32
    assert rollouts.logprob.dtype == np.float32
    assert 0 < rollouts.truncated.mean() < 1, "some must end and some not, or this shows nothing"
    for row, n in enumerate(rollouts.length):
        ids = rollouts.token_ids[row]
        assert (ids[n - 1] in engine.eos) == (not rollouts.truncated[row])
        assert not set(ids[: n - 1].tolist()) & set(engine.eos)
        assert n == 12 or not rollouts.truncated[row]
        assert (ids[n:] == engine.pad).all()
        assert (rollouts.logprob[row, n:] == 0).all()
        assert (rollouts.logprob[row, :n] <= 0).all()
        assert rollouts.token_text[row] == [engine.texts.token(int(token)) for token in ids[:n]]
        assert rollouts.text[row] == policy.tokenizer.decode(ids[:n].tolist(), skip_special_tokens=True)


def test_log_probs_are_the_trainers(engine: VllmEngine, policy: Policy) -> None:
    rollouts = engine.generate(PROMPTS, 8, Sampling(), KEY, change(policy, 1))
    assert gap(policy, rollouts) < TOLERANCE


def test_log_probs_are_those_at_the_temperature(engine: VllmEngine, policy: Policy) -> None:
    config = CONFIG.model_copy(update={"sampling": CONFIG.sampling.model_copy(update={"temperature": 0.7})})
    warm = load_policy(config)
    rollouts = engine.generate(PROMPTS, 4, Sampling(temperature=0.7), KEY, change(policy, 1))
    for name, parameter in warm.parameters.items():
        parameter.data.copy_(policy.parameters[name])
    assert gap(warm, rollouts) < TOLERANCE
    assert gap(policy, rollouts) > 0.05, "at T = 1 they are others"


def test_greedy_takes_the_likeliest_with_its_log_prob_at_1(engine: VllmEngine, policy: Policy) -> None:
    rollouts = engine.generate(PROMPTS, 1, Sampling(temperature=0), KEY, change(policy, 2))
    own = TransformersEngine(policy.model, policy.tokenizer).generate(PROMPTS, 1, Sampling(temperature=0), KEY)
    assert np.array_equal(rollouts.token_ids, own.token_ids)
    assert np.abs(rollouts.logprob - own.logprob).max() < TOLERANCE


def test_tokens_come_as_often_as_their_probability_says(engine: VllmEngine, policy: Policy) -> None:
    version, count = change(policy, 3), 2000
    first = engine.generate(PROMPTS[:1], count, Sampling(temperature=1.5, max_new_tokens=1), KEY, version)
    token, index, seen = np.unique(first.token_ids[:, 0], return_index=True, return_counts=True)
    probability = np.exp(first.logprob[index, 0].astype(np.float64))
    assert len(token) > 3
    assert np.all(np.abs(seen - count * probability) < 5 * np.sqrt(count * probability * (1 - probability)) + 1)


def test_the_key_decides_the_draws(engine: VllmEngine, policy: Policy) -> None:
    version = change(policy, 4)
    first, again = (engine.generate(PROMPTS, 4, Sampling(), KEY, version) for _ in range(2))
    assert np.array_equal(first.token_ids, again.token_ids)
    alone = engine.generate(PROMPTS[2:4], 4, Sampling(), SampleKey(0, "train", 0, first_group=2), version)
    assert alone.text == first.text[8:16], "a group's draws do not depend on what else is sampled"
    other = engine.generate(PROMPTS, 4, Sampling(), SampleKey(1, "train", 0), version)
    assert other.text != first.text


@pytest.mark.parametrize(
    ("device", "precision", "dtype"),
    [("cpu", "float32", "float32"), ("cuda", "bfloat16", "bfloat16"), ("cuda", "float32", "auto")],
)
def test_on_a_gpu_it_samples_in_16_bits(device: str, precision: str, dtype: str) -> None:
    """There vLLM's LoRA kernels assert so; its `auto` makes 16 bits of a float32 model."""
    assert _arguments(parse_run({"precision": precision}), "folder", device)["dtype"] == dtype


def test_seeds_are_all_different() -> None:
    keys = [SampleKey(seed, split, step) for seed in (0, 1) for split in ("train", "eval") for step in (0, 1)]
    drawn = [seed for key in keys for seed in seeds(key, 8, 8)]
    assert len(set(drawn)) == len(drawn) == 8 * 64
    assert all(0 <= seed < 2**63 for seed in drawn)
    assert seeds(SampleKey(0, "train", 0, first_group=3), 1, 8) == seeds(SampleKey(0, "train", 0), 4, 8)[24:]


def test_a_changed_adapter_changes_samples_and_log_probs(engine: VllmEngine, policy: Policy) -> None:
    before = engine.generate(PROMPTS, 4, Sampling(), KEY, change(policy, 5))
    changed = engine.generate(PROMPTS, 4, Sampling(), KEY, change(policy, 6))
    assert changed.text != before.text
    assert gap(policy, before) > 0.05, "the old adapter's log-probs are not the new one's"
    assert gap(policy, changed) < TOLERANCE
    back = engine.generate(PROMPTS, 4, Sampling(), KEY, change(policy, 5))
    assert np.array_equal(back.token_ids, before.token_ids)
    assert np.array_equal(back.logprob, before.logprob), "equal weights under a new version"


def test_the_old_prefix_cache_is_never_used(engine: VllmEngine, policy: Policy, tmp_path: Path) -> None:
    """Prompts of several cache blocks, the same under every adapter; a fresh engine has cached nothing."""
    prompts = [" ".join(PROMPTS[start:] + PROMPTS[:start]) for start in range(4)]
    sampling = Sampling(max_new_tokens=24)
    assert min(map(len, engine.texts.encode(prompts))) > 2 * 32
    old = engine.generate(prompts, 8, sampling, KEY, change(policy, 7))
    new = engine.generate(prompts, 8, sampling, KEY, change(policy, 8))
    assert gap(policy, old) > 0.05
    assert gap(policy, new) < TOLERANCE
    fresh = make_engine(CONFIG, policy, tmp_path)
    try:
        expected = fresh.generate(prompts, 8, sampling, KEY, 0)
    finally:
        fresh.close()
    assert np.array_equal(new.token_ids, expected.token_ids)
    assert np.abs(new.logprob - expected.logprob).max() < 1e-6


def test_stop_strings_end_responses_as_in_the_other_engine(engine: VllmEngine, policy: Policy, tmp_path: Path) -> None:
    """An engine whose config has stop strings looks for them itself; one without is cut here: the same rollouts."""
    stop = ("=", "1", "so")
    config = parse_run({**CONFIG.model_dump(), "sampling": {**CONFIG.sampling.model_dump(), "stop": stop}})
    version = change(policy, 11)
    cut = engine.generate(PROMPTS, 8, Sampling(max_new_tokens=24, stop=stop), KEY, version)
    free = engine.generate(PROMPTS, 8, Sampling(max_new_tokens=24), KEY, version)
    fresh = make_engine(config, policy, tmp_path)
    try:
        stopped = fresh.generate(PROMPTS, 8, Sampling(max_new_tokens=24, stop=stop), KEY, 0)
    finally:
        fresh.close()
    assert cut.text == stopped.text
    assert np.array_equal(cut.token_ids, stopped.token_ids)
    assert np.abs(cut.logprob - stopped.logprob).max() < 1e-5
    assert np.array_equal(cut.truncated, stopped.truncated)
    ended = 0
    for row, text in enumerate(cut.text):
        ids = cut.token_ids[row, : cut.length[row]].tolist()
        before = policy.tokenizer.decode(ids[:-1], skip_special_tokens=True)
        here = any(each in text for each in stop)
        assert free.text[row].startswith(text)
        assert not any(each in before for each in stop)
        assert cut.truncated[row] == (not here and ids[-1] not in engine.eos)
        ended += here
    assert ended > 10
    assert gap(policy, stopped) < TOLERANCE


def test_one_adapter_lies_on_the_disk(engine: VllmEngine, policy: Policy) -> None:
    version = change(policy, 9)
    for _ in range(2):
        engine.generate(PROMPTS[:1], 1, Sampling(max_new_tokens=1), KEY, version)
    assert [path.name for path in engine.folder.glob("*adapter*")] == [f"adapter-{version}"]
    with pytest.raises(ValueError, match="after"):
        engine.generate(PROMPTS[:1], 1, Sampling(max_new_tokens=1), KEY, version - 1)


def test_a_prompt_without_room_is_refused(engine: VllmEngine) -> None:
    assert engine.context == 256
    with pytest.raises(EngineError, match=r"sampling\.max_new_tokens is 250.*at most 256 tokens.*lower it to"):
        engine.generate(PROMPTS[:1], 1, Sampling(max_new_tokens=250), KEY, next(versions))


def test_a_start_that_fails_says_why_and_leaves_nothing(policy: Policy, tmp_path: Path) -> None:
    huge = parse_run({**CONFIG.model_dump(), "vllm": {"kv_cache_gb": 4000}})
    with pytest.raises(EngineError, match=r"^vLLM failed: ValueError: Available memory .*all it said is in vllm\.txt"):
        make_engine(huge, policy, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["vllm.txt"]
    assert "Traceback" in (tmp_path / "vllm.txt").read_text()


def test_an_error_while_sampling_says_why(policy: Policy, engine: VllmEngine) -> None:
    """Last of those that share the engine: it ends with the error."""
    version = change(policy, 10)
    place = engine.adapters.path(version)
    (place / "adapter_config.json").write_text("no JSON")
    with pytest.raises(EngineError, match=r"^vLLM failed: .*vllm\.txt"):
        engine.generate(PROMPTS, 1, Sampling(), KEY, version)
    with pytest.raises(EngineError, match="vLLM's process ended with code 1"):
        engine.generate(PROMPTS, 1, Sampling(), KEY, version)
