"""The token view in a real Chromium: its numbers are the store's, keys and mouse move it, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from core.store import Lab, open_runs
from tests.browser.conftest import serve
from tests.browser.hostile import make_hostile_run
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "a3po", method={"name": "a3po", "set": {"rho_positive": 3}}, steps=4, prompts=3, group_size=4)
    make_hostile_run(root)
    return root


@pytest.fixture(scope="module")
def lab(root: Path) -> Lab:
    return open_runs([root / "a3po"])


@pytest.fixture(scope="module")
def address(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(root, tmp_path_factory.mktemp("locks")) as served:
        yield served.url


def token(lab: Lab, group: int, rollout: int, position: int) -> dict:
    return lab.rows(
        "SELECT *, exp(sampler_logprob) AS probability FROM tokens WHERE step = 2 AND split = 'train' "
        'AND "group" = ? AND rollout = ? AND position = ?',
        [group, rollout, position],
    )[0]


def shown(page: Page, name: str) -> float:
    return float(page.get_attribute(f"[data-testid=why-{name}]", "data-value"))


def wait_for(page: Page, rollout: int, position: int) -> None:
    """The reasons of the token have come from the server: its numbers are there in full precision."""
    page.wait_for_selector(f"[data-testid=why-where]:has-text('rollout {rollout}, position {position} ')")
    page.wait_for_selector("[data-testid=why-advantage][data-value]")


def test_numbers_by_deep_link_keys_and_mouse(page: Page, address: str, lab: Lab):
    page.goto(f"{address}/tokens?run=a3po&step=2&group=1&rollout=2&position=0")
    wait_for(page, 2, 0)
    for name in ("probability", "entropy", "base_advantage", "advantage", "loss_weight"):
        assert shown(page, name) == pytest.approx(token(lab, 1, 2, 0)[name], rel=1e-6), name

    page.focus("[data-testid=token-matrix]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wait_for(page, 2, 2)
    assert shown(page, "entropy") == pytest.approx(token(lab, 1, 2, 2)["entropy"], rel=1e-6)
    page.wait_for_url(re.compile("position=2"))

    page.click("[data-testid=token-1]")
    wait_for(page, 2, 1)
    page.wait_for_url(re.compile("position=1"))
    assert shown(page, "factor_a3po") == pytest.approx(token(lab, 1, 2, 1)["f_a3po"], rel=1e-6)

    page.click("[data-testid=rollout-0]")
    page.wait_for_url(re.compile("rollout=0"))
    wait_for(page, 0, 1)
    assert shown(page, "advantage") == pytest.approx(token(lab, 1, 0, 1)["advantage"], rel=1e-6)


def test_a_cell_of_the_matrix_is_a_token(page: Page, address: str, lab: Lab):
    page.goto(f"{address}/tokens?run=a3po&step=2&group=1&sort=rollout&rollout=0&position=0")
    wait_for(page, 0, 0)
    width = lab.rows("SELECT max(length) AS n FROM rollouts WHERE step = 2 AND split = 'train' AND \"group\" = 1")[0][
        "n"
    ]
    box = page.locator("[data-testid=token-canvas]").bounding_box()
    x, y = box["x"] + 3.5 * box["width"] / width, box["y"] + 2.5 * box["height"] / 4
    page.mouse.move(x, y)
    page.wait_for_selector(".tip:has-text('rollout 2, position 3')")
    page.mouse.click(x, y)
    wait_for(page, 2, 3)
    assert shown(page, "probability") == pytest.approx(token(lab, 1, 2, 3)["probability"], rel=1e-6)


def test_hostile_tokens_are_text(page: Page, address: str):
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{address}/tokens?run=hostile&step=1&group=0&rollout=0&position=0")
    wait_for(page, 0, 0)
    words = page.inner_text("[data-testid=token-text]")
    assert "<script>document.title='pwned'</script>" in words.replace("␣", " ") and "⟨U+202E⟩evil" in words
    assert page.locator("[data-testid=token-text] img, [data-testid=token-text] script").count() == 0
    assert page.title() != "pwned"
    assert not [url for url in fetched if "127.0.0.1:9" in url or url.endswith("/x")]
