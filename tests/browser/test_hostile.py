"""Hostile text in every place of a run, on every page, in a real browser: it is shown, and nothing comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, expect

from core.config import read_run
from core.store import write_step
from tests.browser.conftest import Served, serve
from tests.synthetic import make_run, records

EVIL = (
    '<script>window.hit=1</script><img src=x onerror="window.hit=1">![i](http://evil.example/p.png) '
    "[go](http://evil.example) $$x^2$$ and $a$ :smile: :material/home: :red[r] www.evil.example me@evil.example "
    'http://evil.example/a <a href="http://evil.example">l</a> \u202eRTL \x1b[31mred \u05e9\u05dc\u05d5\u05dd **b** `c`'
)
UNSPEAKABLE = EVIL + " \x00 \ud800"
FOUND = """() => ({
  hit: window.hit ?? 0,
  images: [...document.images].map(e => e.src).filter(src => src.includes('evil') || src.endsWith('/x')),
  links: [...document.querySelectorAll('a')].map(e => e.href).filter(href => !href.startsWith(location.origin)),
  formulas: document.querySelectorAll('.katex').length,
  smileys: (document.body.innerText.match(/\\u{1F604}/gu) ?? []).length,
  reordered: document.body.innerText.includes('\\u202e'),
})"""
SHOWN = """() => [document.body.innerText, ...[...document.querySelectorAll('input')].map(e => e.value)]
  .some(text => text.includes('evil'))"""
HARMLESS = {"hit": 0, "images": [], "links": [], "formulas": 0, "smileys": 0, "reordered": False}
ADDRESSES = {
    "runs": "",
    "live": "live?run=evil&detail=evil",
    "several": "live?run=evil&run=good&more=1",
    "launch": "launch?from=evil",
    "tokens": "tokens?run=evil",
    "polarity": "polarity?run=evil",
    "favorability": "favorability?run=evil",
    "whatif": "whatif?run=evil",
    "whatif, a step": "whatif?run=evil&scope=step",
    "a method": "whatif?run=evil&m=%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E%20evil&m=grpo;base=$$x$$",
    "compare": "compare?run=evil&run=good",
    "sql": "sql?run=evil&sql=%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E&ready=%3Cimg%20src%3Dx%3E%20%24%24x%24%24",
    "address": "live?run=%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E!%5Bi%5D(http%3A%2F%2Fevil.example%2Fp)",
    "change": "launch?set=%24%24x%24%24%20%3Asmile%3A%20http%3A%2F%2Fevil.example",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("hostile")
    make_run(root / "runs", "good", method="psr", steps=5, prompts=3, group_size=4)
    _evil_run(root / "runs")
    with serve(root / "runs", root / "locks") as served:
        yield served


def _evil_run(root: Path) -> None:
    path = make_run(root, "evil", steps=5, prompts=3, group_size=4, state="failed", error=EVIL)
    for record in records(read_run(path / "config.yaml"), 5, final=False):
        for split in record.splits:
            split.text = [UNSPEAKABLE + text for text in split.text]
            split.prompt = [UNSPEAKABLE + prompt for prompt in split.prompt]
            split.answer = [UNSPEAKABLE for _ in split.answer]
            split.token_text = split.token_text and [[UNSPEAKABLE, *row[1:]] for row in split.token_text]
        write_step(path, record)
    config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    (path / "config.yaml").write_text(yaml.safe_dump({**config, "name": EVIL[:118]}), encoding="utf-8")
    status = json.loads((path / "status.json").read_text(encoding="utf-8"))
    (path / "status.json").write_text(
        json.dumps({**status, "look_for": EVIL, "experiment_name": EVIL}), encoding="utf-8"
    )
    (path / "log.txt").write_bytes(EVIL.encode() * 3 + b"\xff\x00\n")


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_it_is_shown_and_nothing_comes_of_it(lab: Served, page: Page, address: str) -> None:
    elsewhere: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url) if lab.url not in request.url else None)
    page.goto(f"{lab.url}/{address}")
    expect(page.get_by_role("heading").first).to_be_visible(timeout=60_000)
    page.wait_for_function(SHOWN)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(FOUND) == HARMLESS
    assert [url for url in elsewhere if not url.startswith(("data:", "blob:", "ws:"))] == []
    assert page.get_by_text("Something went wrong").count() == 0
