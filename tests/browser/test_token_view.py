"""The token view in a real Chromium: its numbers are the store's, keys and mouse move it, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from core.store import Lab, open_runs
from core.store.queries.tokens import contrary_tokens
from tests import synthetic
from tests.browser.conftest import serve
from tests.browser.hostile import make_hostile_run
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "a3po", method={"name": "a3po", "set": {"rho_positive": 3}}, steps=4, prompts=3, group_size=4)
    make_hostile_run(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "_response", lambda *_: ["7", " so "] * 1500 + [synthetic.EOS])
        long = {"max_new_tokens": 4096}
        make_run(root, "long", steps=1, prompts=2, group_size=4, sampling=long, evaluate={"every": 0})
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


def test_several_texts_the_push_and_the_keys_of_the_prompt(page: Page, address: str, lab: Lab):
    contrary = contrary_tokens(lab, "a3po", 2, limit=1000)
    first = contrary.iloc[0]
    group, rollout, position = (int(first[name]) for name in ("group", "rollout", "position"))
    place = f"group={group}&rollout={rollout}&position={position}"
    page.goto(f"{address}/tokens?run=a3po&step=2&{place}&texts=all&color=along")
    wait_for(page, rollout, position)
    assert page.locator(".answer").count() == 4
    assert "prompt, not trained" in page.inner_text("[data-testid=token-text]")
    chosen = page.locator(".answer[data-chosen] [aria-selected=true]")
    assert chosen.count() == 1 and chosen.get_attribute("data-against") is not None
    crossed = page.locator(".token[data-against]").count()
    assert 0 < crossed <= (contrary["group"] == group).sum()  # the faintest shades are the background

    other = (rollout + 1) % 4
    page.locator(".answer", has_text=f"rollout {other}:").get_by_test_id("token-1").click()
    wait_for(page, other, 1)
    assert page.locator("[aria-selected=true]").count() == 1
    page.wait_for_url(re.compile(f"rollout={other}"))
    page.keyboard.press("Alt+ArrowUp" if group else "Alt+ArrowDown")
    page.wait_for_url(re.compile(f"group={group - 1 if group else 1}&"))


def test_a_long_answer_is_drawn_around_its_chosen_token(page: Page, address: str):
    page.goto(f"{address}/tokens?run=long&step=0&group=0&rollout=1&position=2500")
    wait_for(page, 1, 2500)
    assert page.locator("[data-testid=token-2500][aria-selected=true]").is_visible()
    assert page.locator(".token").count() == 2000 and page.locator("[data-testid=token-0]").count() == 0
    assert page.locator("[data-testid=token-canvas]").bounding_box()["width"] < 1280
    page.get_by_text("show all 3001").first.click()
    page.wait_for_selector("[data-testid=token-0]", state="attached")
    assert page.locator(".token").count() == 3001
    page.focus("[data-testid=token-matrix]")
    page.keyboard.press("End")
    wait_for(page, 1, 3000)


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
