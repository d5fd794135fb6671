"""`precision: bfloat16`: the base model in bfloat16, adapters and log-probs in float32, results near float32's."""

import numpy as np
import pytest
import torch

from core.config import parse_run
from core.train.policy import load_policy
from core.train.update import Updater
from tests.core.train.runs import Reporter, run
from tests.core.train.test_forward import sequences

LOGPROB_TOLERANCE = (0.03, 0.3)
"""Mean and largest difference in nats between the embedded model's log-probs in bfloat16 and in float32: bfloat16 has 8
bits, three decoder layers round a dozen times each."""


def policy(precision, **settings):
    return load_policy(parse_run({"precision": precision, "lora": {"r": 4}, **settings}))


def random_rows():
    """Tokens of the embedded model, any of them after any other."""
    return sequences(count=32)


def test_the_base_is_bfloat16_and_the_adapter_float32():
    ours = policy("bfloat16")
    assert {p.dtype for p in ours.parameters.values()} == {torch.float32}
    base = {p.dtype for name, p in ours.model.named_parameters() if not p.requires_grad}
    assert base == {torch.bfloat16}
    piece = next(ours.scorer.pieces(random_rows(), entropy=True))
    assert piece.logprob.dtype == piece.entropy.dtype == torch.float32
    piece.logprob.sum().backward()
    optimizer = Updater(ours, parse_run({}), parse_run({}).build_method().loss).optimizer
    optimizer.step()
    kept = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    assert kept
    assert {value.dtype for value in kept} == {torch.float32}


def test_log_probs_are_near_those_of_float32():
    exact, entropy = policy("float32").scorer.score(random_rows())
    rough, rough_entropy = policy("bfloat16").scorer.score(random_rows())
    mask = np.arange(exact.shape[1])[None, :] < random_rows().length[:, None]
    mean, largest = LOGPROB_TOLERANCE
    for one, other in ((exact, rough), (entropy, rough_entropy)):
        difference = np.abs(one - other)[mask]
        assert difference.mean() < mean
        assert difference.max() < largest
    assert np.abs(exact - rough)[mask].max() > 0  # it is another precision


def test_log_probs_are_normalised_in_float32():
    """In bfloat16 a log-prob near -8 would be a multiple of 1/32."""
    rough, _ = policy("bfloat16").scorer.score(random_rows())
    values = torch.from_numpy(rough[rough < -1])
    assert len(values) > 50
    assert (values.bfloat16().float() != values).float().mean() > 0.9


def test_the_gradient_is_near_that_of_float32():
    gradients = []
    for precision in ("float32", "bfloat16"):
        ours, generator = policy(precision), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in ours.parameters.values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
        sum(piece.logprob.sum() for piece in ours.scorer.pieces(random_rows())).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in ours.parameters.values()]))
    exact, rough = gradients
    assert 0 < (rough - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_run_trains_in_bfloat16(tmp_path, checkpointing):
    reporter = Reporter()
    run(tmp_path / "run", reporter, precision="bfloat16", steps=4, gradient_checkpointing=checkpointing)
    assert reporter.steps[:4] == [0, 1, 2, 3]
    numbers = [metrics for metrics in reporter.metrics if "loss" in metrics]
    assert all(np.isfinite(metrics["loss"]) and metrics["grad_norm"] > 0 for metrics in numbers)
    assert all(metrics["entropy_source"] == "trainer" for metrics in numbers)
