"""The What-if page in a real Chromium: sliders move it, links reopen it, keys walk it, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.advantage import build, compute
from core.store import Replay, replay
from tests.browser.conftest import serve
from tests.browser.hostile import make_hostile_run
from tests.synthetic import make_run

METHODS = "m=trained&m=a3po;base=grpo"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "plain", steps=4, prompts=3, group_size=4)
    make_hostile_run(root)
    return root


@pytest.fixture(scope="module")
def stored(root: Path) -> Replay:
    return replay(root / "plain", "plain", 2)


@pytest.fixture(scope="module")
def address(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(root, tmp_path_factory.mktemp("locks")) as served:
        yield served.url


def picture(page: Page, slot: str) -> str:
    """The pixels of a slot's heatmap."""
    return page.locator(f"[data-testid=whatif-canvas-{slot}]").evaluate("(canvas) => canvas.toDataURL()")


def mixed(stored: Replay) -> int:
    """A group with right and wrong answers."""
    batch = stored.batch
    return next(int(group) for group in batch.groups if len(set(batch.correct[batch.group == group].tolist())) == 2)


def advantage(stored: Replay, rollout: int, position: int, **params: float) -> float:
    trace = compute(build("a3po", base="grpo", params=params), stored.batch)
    return float(trace.advantage[stored.row[mixed(stored), rollout], position])


def ledger(page: Page, slot: str) -> float:
    return float(page.get_attribute(f"[data-testid=whatif-{slot}-advantage]", "data-value"))


def wait_for(page: Page, rollout: int, position: int) -> None:
    """The ledgers of the token have come from the server: they have their base lines."""
    page.wait_for_selector(f"[data-testid=whatif-where]:has-text('rollout {rollout}, token {position + 1} of')")
    page.wait_for_selector("[data-testid=whatif-b-advantage][data-value]")


def shaped_position(stored: Replay, rollout: int) -> int:
    """A position of the rollout that A3PO amplifies."""
    trace = compute(build("a3po", base="grpo"), stored.batch)
    factor = next(one for one in trace.factors if one.id == "a3po").spread(stored.batch)
    return int((factor[stored.row[mixed(stored), rollout]] != 1).argmax())


def test_a_slider_moves_the_picture_and_the_link_reopens_it(page: Page, address: str, stored: Replay):
    position = shaped_position(stored, 2)
    place = f"run=plain&step=2&group={mixed(stored)}&rollout=2&position={position}"
    page.goto(f"{address}/whatif?{place}&{METHODS}")
    wait_for(page, 2, position)
    assert ledger(page, "b") == pytest.approx(advantage(stored, 2, position))
    before = picture(page, "b")
    sign = "rho positive" if stored.batch.correct[stored.row[mixed(stored), 2]] else "rho negative"
    page.get_by_role("slider", name=sign).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    name = sign.replace(" ", "_")
    page.wait_for_url(re.compile(f"{name}(=|%3D)2.15"))
    now = advantage(stored, 2, position, **{name: 2.15})
    expect(page.locator("[data-testid=whatif-explain-b]")).to_contain_text("2.15")
    assert ledger(page, "b") == pytest.approx(now)
    still, link = (picture(page, "a"), picture(page, "b")), page.url
    assert still[1] != before
    words = page.inner_text("[data-testid=whatif-explain-b]")
    verdict = page.get_by_test_id("stAlert").first.inner_text()

    page.goto("about:blank")
    page.goto(link)
    wait_for(page, 2, position)
    assert (picture(page, "a"), picture(page, "b")) == still
    assert page.inner_text("[data-testid=whatif-explain-b]") == words
    assert page.get_by_test_id("stAlert").first.inner_text() == verdict


def test_keys_and_clicks_choose_a_token_in_every_panel(page: Page, address: str, stored: Replay):
    page.goto(f"{address}/whatif?run=plain&step=2&group={mixed(stored)}&rollout=2&position=0&{METHODS}")
    wait_for(page, 2, 0)
    page.focus("[data-testid=whatif-grid]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wait_for(page, 2, 2)
    page.wait_for_url(re.compile("position=2"))
    assert ledger(page, "b") == pytest.approx(advantage(stored, 2, 2))
    page.click("[data-testid=whatif-token-1]")
    wait_for(page, 2, 1)
    page.wait_for_url(re.compile("position=1"))
    page.keyboard.press("Home")
    page.wait_for_url(re.compile("position=0"))

    lengths = stored.batch.length[[stored.row[mixed(stored), rollout] for rollout in range(4)]]
    wait_for(page, 2, 0)
    box = page.locator("[data-testid=whatif-canvas-b]").bounding_box()
    x, y = box["x"] + 1.5 * box["width"] / lengths.max(), box["y"] + 0.5 * box["height"] / 4
    page.mouse.move(x, y)
    expect(page.locator(".tip")).to_contain_text("token 2 of")
    page.mouse.click(x, y)
    rewards = stored.batch.reward[[stored.row[mixed(stored), rollout] for rollout in range(4)]]
    first = min(range(4), key=lambda rollout: (-rewards[rollout], rollout))
    wait_for(page, first, 1)
    assert ledger(page, "b") == pytest.approx(advantage(stored, first, 1))


def test_on_a_narrow_page_the_cards_are_folded_and_an_open_one_stays_in_sight(page: Page, address: str, stored: Replay):
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(f"{address}/whatif?run=plain&step=2&group={mixed(stored)}&{METHODS}&m=adora_amplify&m=psr")
    page.wait_for_selector("[data-testid=whatif-explain-a]")
    slider = page.get_by_role("slider", name="rho positive")
    verdict = page.get_by_test_id("stAlert").first
    assert not slider.is_visible() and verdict.bounding_box()["y"] < 800
    page.locator(".st-key-whatif-1-adjust label").click()
    expect(slider).to_be_visible()
    below = page.get_by_test_id("whatif-canvas-b").bounding_box()["y"] - 600
    page.get_by_test_id("stMain").evaluate("(main, by) => main.scrollBy(0, by)", below)
    page.wait_for_function("document.querySelector('[data-testid=stMain]').scrollTop > 0")
    assert page.get_by_test_id("whatif-canvas-b").bounding_box()["y"] == pytest.approx(600, abs=2)
    assert 0 < slider.bounding_box()["y"] < 400
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("rho_positive(=|%3D)2.05"))
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.locator(".st-key-whatif-1-adjust")).to_be_hidden()
    expect(slider).to_be_visible()


def test_a_step_opens_its_prompts(page: Page, address: str, stored: Replay):
    batch = stored.batch
    groups = [int(group) for group in batch.groups if len(set(batch.reward[batch.group == group].tolist())) > 1]
    page.goto(f"{address}/whatif?run=plain&step=2&scope=step")
    expect(page.locator("[data-testid^=whatif-row-]")).to_have_count(3 * 4 * len(groups))  # 3 panels, 4 rollouts
    page.locator("[data-testid=whatif-row-6]").first.click()
    page.wait_for_url(re.compile(f"group={groups[6 // 4]}"))
    page.wait_for_selector("[data-testid=whatif-explain-a]")
    assert "scope=step" not in page.url
    expect(page.get_by_role("radio", name="one prompt")).to_be_checked()


def test_hostile_tokens_are_text(page: Page, address: str):
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{address}/whatif?run=hostile&step=1&group=0&rollout=0&position=0")
    wait_for(page, 0, 0)
    words = page.inner_text("[data-testid=whatif-words]")
    assert "<script>document.title='pwned'</script>" in words.replace("␣", " ") and "⟨U+202E⟩evil" in words
    assert page.locator("[data-testid=whatif-text] img, [data-testid=whatif-text] script").count() == 0
    page.hover("[data-testid=whatif-token-0]")
    assert page.locator(".tip img, .tip script").count() == 0
    assert page.title() != "pwned"
    assert not [url for url in fetched if "127.0.0.1:9" in url or url.endswith("/x")]
