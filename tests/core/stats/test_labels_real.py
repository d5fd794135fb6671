"""The sureness of labels against the embedded model: 200 real groups of 8 for each of some probe prompts."""

from __future__ import annotations

import numpy as np
import pytest

from core.advantage import build
from core.engines.base import SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from core.models.load import load_model
from core.stats.classes import CLASSES, class_rule
from core.stats.known import flip_by_resampling
from core.stats.labels import by_size, simulate
from core.stats.policies import Visits
from core.tasks import get_task

PROBES, GROUPS, G = 6, 200, 8
Groups = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def groups() -> Groups:
    """correct, length, truncated of (PROBES, GROUPS, G) rollouts of the untrained model."""
    task, engine = get_task("embedded"), TransformersEngine(*load_model("embedded"))
    probes = list(task.held_out(PROBES))
    shape = (PROBES, GROUPS, G)
    drawn = engine.generate([p.text for p in probes], GROUPS * G, Sampling(), SampleKey(seed=0, split="probe", step=0))
    asked = [probe for probe in probes for _ in range(GROUPS * G)]
    correct = [task.verify(*pair).correctness >= 0.5 for pair in zip(asked, drawn.text, strict=True)]
    return np.reshape(correct, shape), drawn.length.reshape(shape), drawn.truncated.reshape(shape)


@pytest.mark.parametrize("method", ["grpo", "adora_attenuate"])
def test_three_visits_say_what_two_hundred_groups_show(
    groups: Groups, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = class_rule(build(method))
    labels = rule.labels(*(part.reshape(-1, G) for part in groups)).reshape(PROBES, GROUPS)
    share = np.stack([(labels == index).mean(axis=1) for index in range(len(CLASSES))], axis=1)
    truth = 1 - (share * (share * GROUPS - 1)).sum(axis=1) / (GROUPS - 1)

    histories = GROUPS // 3  # a history: three groups of one prompt, as its visits 0, 1 and 2
    shape = (PROBES, histories, 3, G)
    taken = [part[:, : 3 * histories].reshape(shape).transpose(2, 0, 1, 3).reshape(-1, G) for part in groups]
    count = PROBES * histories
    visits = Visits(
        prompt=np.tile(np.arange(count), 3), step=np.repeat(np.arange(3), count),
        visit=np.repeat(np.arange(3 * count), G), correct=taken[0].ravel(), length=taken[1].ravel(),
        truncated=taken[2].ravel(),
    )  # fmt: skip
    middle = np.arange(count, 2 * count)
    sure = simulate(visits, rule, middle)
    estimate = sure.flip.reshape(PROBES, histories).mean(axis=1)
    favorable = sure.probability[:, 0].reshape(PROBES, histories).mean(axis=1)
    naive = np.array(
        [flip_by_resampling(*(part[v] for part in taken), rule, draws=60) for v in middle]
    ).reshape(PROBES, histories).mean(axis=1)  # fmt: skip
    with capsys.disabled():
        rates = groups[0].mean(axis=(1, 2))
        print(f"\n{method}: P(two groups of a probe differ), {GROUPS} groups of {G}")
        for row in zip(rates, truth, estimate, naive, share[:, 0], favorable, strict=True):
            print("  pass rate {:.2f}: truth {:.2f}, estimate {:.2f}, redrawing {:.2f}; "
                  "P(favorable) {:.2f}, estimate {:.2f}".format(*row))  # fmt: skip
        print(f"  mean: truth {truth.mean():.3f}, estimate {estimate.mean():.3f}, redrawing {naive.mean():.3f}")
    for size in (2, 32):
        joined = rule.labels(*(part.reshape(-1, size) for part in groups)).reshape(PROBES, -1)
        share_of = np.stack([(joined == index).mean(axis=1) for index in range(len(CLASSES))], axis=1)
        real = 1 - (share_of * (share_of * joined.shape[1] - 1)).sum(axis=1) / (joined.shape[1] - 1)
        other = by_size(visits, rule, [size]).flip[0, middle]
        with capsys.disabled():
            print(f"  in groups of {size}: truth {real.mean():.3f}, estimate {other.mean():.3f}")
        assert other.mean() == pytest.approx(real.mean(), abs=0.07)
    assert estimate.mean() == pytest.approx(truth.mean(), abs=0.06)
    assert abs(estimate.mean() - truth.mean()) < abs(naive.mean() - truth.mean())
    assert favorable.mean() == pytest.approx(share[:, 0].mean(), abs=0.1)
