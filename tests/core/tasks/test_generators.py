"""Puzzles of reasoning-gym: the same every time, their own solutions right, and nothing held out in other words."""

from __future__ import annotations

import json
import re

import pytest

from core.config_tasks import TaskSettings
from core.tasks import TaskError, generators, get_task
from core.tasks.base import Prompt
from core.tasks.generators import KINDS, Walk
from tests.needs import need_gym

HARDER = {
    "arithmetic": {"products": True, "digits": 2},
    "geometry": {"sides": 8},
    "knights_knaves": {"people": 3, "depth": 2, "width": 3},
    "countdown": {"numbers": 4, "largest": 50},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    need_gym()
    monkeypatch.setenv("ADVANTAGE_LAB_CACHE", str(tmp_path))
    generators._walk.cache_clear()
    yield tmp_path
    generators._walk.cache_clear()


def task(name: str, **difficulty: object):
    return get_task(TaskSettings(name=name, generator=difficulty))


@pytest.mark.parametrize("difficulty", [{}, HARDER], ids=["easy", "harder"])
@pytest.mark.parametrize("name", KINDS)
def test_pools_are_distinct_disjoint_and_solved_by_their_solutions(name, difficulty):
    made = task(name, **difficulty.get(name, {}))
    pool, held = made.train_pool(12, 0), made.held_out(3)
    texts = {prompt.text for prompt in pool} | {prompt.text for prompt in held}
    assert (len(pool), len(held), len(texts)) == (12, 3, 15)
    assert made.train_pool(5, 0) == pool[:5] and made.held_out(2) == held[:2]
    for prompt in [*pool, *held]:
        assert made.verify(prompt, rf"So \boxed{{{prompt.answer}}}").correctness == 1, prompt
        assert made.verify(prompt, r"\boxed{}").correctness == 0


def test_the_cache_gives_the_same_and_damage_is_made_anew(cache):
    pool, held = task("arithmetic").train_pool(8, 0), task("arithmetic").held_out(3)
    (kept,) = (cache / "tasks").iterdir()
    generators._walk.cache_clear()
    assert (task("arithmetic").train_pool(8, 0), task("arithmetic").held_out(3)) == (pool, held)
    assert task("arithmetic").train_pool(12, 0)[:8] == pool  # goes on where it was
    longer = task("arithmetic").train_pool(12, 0)
    for broken in ("{", "[]", '{"drawn": "x"}', json.dumps({"drawn": 1, "newest": [1], "sides": [[], []]})):
        kept.write_text(broken)
        generators._walk.cache_clear()
        assert task("arithmetic").train_pool(12, 0) == longer


def test_the_cache_is_read(cache):
    task("arithmetic").train_pool(3, 0)
    (kept,) = (cache / "tasks").iterdir()
    data = json.loads(kept.read_text())
    data["sides"][0][0] = ["from the cache", "7"]
    kept.write_text(json.dumps(data))
    generators._walk.cache_clear()
    assert task("arithmetic").train_pool(1, 0) == [Prompt("from the cache", "7")]


def test_another_seed_is_another_pool_and_another_difficulty_another_task():
    assert task("arithmetic").train_pool(8, 1) != task("arithmetic").train_pool(8, 0)
    long = task("arithmetic", terms=8, digits=3).train_pool(30, 0)
    numbers = [re.findall(r"\d+", prompt.text) for prompt in long]
    assert max(map(len, numbers)) > 5 and max(len(n) for row in numbers for n in row) == 3


def test_a_difficulty_with_few_problems_ends():
    walk = Walk("arithmetic", TaskSettings(generator={"terms": 2}).generator, 0)
    pool, held = walk.first(10_000, held_out=False), walk.first(10_000, held_out=True)
    assert 100 < len(pool) < 200 and len(pool) + len(held) <= 200  # 10 x 10 numbers, plus and minus


def test_a_problem_keeps_its_side_in_other_words():
    of = KINDS["countdown"].problem
    one = of({"numbers": [3, 1, 2], "target": 6})
    assert one == of({"numbers": [1, 2, 3], "target": 6}) != of({"numbers": [1, 2, 3], "target": 7})


def test_without_the_package_one_sentence_has_the_command(monkeypatch):
    monkeypatch.setattr(generators.importlib.util, "find_spec", lambda name: None)
    words = r'^task\.name is countdown, which needs the package reasoning-gym .*: pip install "reasoning-gym>='
    with pytest.raises(TaskError, match=words):
        task("countdown")
