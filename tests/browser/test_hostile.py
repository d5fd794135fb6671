"""Hostile text in every place of a run, on every page, in a real browser: it is shown, and nothing comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from playwright.sync_api import Dialog, Page, Request, expect

from app.pages.polarity import PARTS
from app.tokens.find import FINDS
from core.config import read_run
from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from core.store import SplitRecord, write_step
from tests.browser.conftest import Served, serve
from tests.browser.hostile import HOSTILE
from tests.synthetic import make_run, records

EVIL = (
    '<script>window.hit=1</script><img src=x onerror="window.hit=1">![i](http://evil.example/p.png) '
    "[go](http://evil.example) $$x^2$$ and $a$ :smile: :material/home: :red[r] www.evil.example me@evil.example "
    'http://evil.example/a <a href="http://evil.example">l</a> \u202eRTL \x1b[31mred \u05e9\u05dc\u05d5\u05dd **b** `c`'
)
UNSPEAKABLE = EVIL + " \x00 \ud800"
FOUND = """() => ({
  hit: window.hit ?? 0,
  title: document.title.includes('pwned'),
  images: [...document.images].map(e => e.src).filter(src => /evil|127[.]0[.]0[.]1:9|[/]x$/.test(src)),
  links: [...document.querySelectorAll('a')].map(e => e.href).filter(href => !href.startsWith(location.origin)
    && href !== 'https://github.com/google/re2/wiki/Syntax'),
  formulas: document.querySelectorAll('.katex').length,
  smileys: (document.body.innerText.match(/\\u{1F604}/gu) ?? []).length,
  reordered: document.body.innerText.includes('\\u202e'),
  marked: [...document.querySelectorAll('strong, b, em, code, .stMarkdownColoredText')].map(e => e.textContent.trim())
    .filter(text => ['b', 'c', 'r'].includes(text)),
})"""
SHOWN = """() => [document.body.innerText, ...[...document.querySelectorAll('input')].map(e => e.value),
  ...[...document.querySelectorAll('canvas')].map(e => e.textContent)].some(text => text.includes('evil'))"""
HARMLESS = {
    "hit": 0, "title": False, "images": [], "links": [], "formulas": 0, "smileys": 0, "reordered": False, "marked": [],
}  # fmt: skip
STATEMENT = (
    'SELECT step, prompt AS "<b>$$x$$</b> evil", left(text, 60) || rollouts.correct AS answers, rollouts.length '
    "FROM groups JOIN rollouts USING (run, step)"
)
ADDRESSES = {
    "runs": "",
    "live": "live?run=evil&detail=evil",
    "live, an unreadable config": "live?run=odd&detail=odd",
    "several": "live?run=evil&run=good&more=1",
    "launch": "launch?from=evil",
    "tokens": "tokens?run=evil",
    "a prompt": "tokens?view=prompt&run=evil",
    "the whole run": "tokens?view=run&run=evil&place=absolute&step=2",
    **{f"find {find}": f"tokens?view=find&run=evil&find={find}&q=evil" for find in FINDS},
    "find nothing": f"tokens?view=find&run=evil&q={quote(EVIL)}!",
    **{f"polarity, {part}": f"polarity?run=evil&part={part}" for part in PARTS},
    "favorability": "favorability?run=evil&check=1",
    "favorability, one group": "favorability?run=evil&step=2&group=1&scope=step",
    "whatif": "whatif?run=evil",
    "whatif, a step": "whatif?run=evil&scope=step",
    "whatif, the run": "whatif?run=evil&scope=run",
    "a method": "whatif?run=evil&m=%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E%20evil&m=grpo;base=$$x$$",
    "compare": "compare?run=evil&run=good",
    "compare, an unreadable config": "compare?run=evil&run=odd",
    "compare, an experiment": f"compare?experiment={quote(EVIL)}",
    "compare, side by side": "compare?run=evil&run=good&side=evil&side=good&colour=entropy&metric=entropy",
    "import": "imports?run=imported",
    "import, nonsense": f"imports?run={quote(EVIL)}&way=machine&path={quote(EVIL)}&job={quote('evil')}",
    "an import in Tokens": "tokens?run=imported",
    "sql": "sql?run=evil&sql=%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E&ready=%3Cimg%20src%3Dx%3E%20%24%24x%24%24",
    "address": "live?run=%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E!%5Bi%5D(http%3A%2F%2Fevil.example%2Fp)",
    "change": "launch?set=%24%24x%24%24%20%3Asmile%3A%20http%3A%2F%2Fevil.example",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("hostile")
    make_run(root / "runs", "good", method="psr", steps=5, prompts=3, group_size=4)
    _evil_run(root / "runs", "evil")
    odd = _evil_run(root / "runs", "odd")
    config = yaml.safe_load((odd / "config.yaml").read_text(encoding="utf-8"))
    config |= {"method": EVIL, "task": {"name": EVIL}, "seed": EVIL, EVIL: EVIL}
    (odd / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    _imported(root / "runs", root / "trainer")
    with serve(root / "runs", root / "locks") as served:
        yield served


def _imported(root: Path, trainer: Path) -> None:
    """Somebody's rollouts, of which the second is refused with a reason that quotes it."""
    row = {"input": EVIL, "output": EVIL, "gts": EVIL, "score": 1.0, "step": 1, EVIL: 1.0}
    trainer.mkdir()
    lines = [json.dumps(row), json.dumps(row | {"output": "evil", "score": 0.0}), json.dumps(row | {"score": EVIL})]
    (trainer / "1.jsonl").write_text("\n".join(lines))
    found = find(trainer)
    bring_in(root, all_formats()[found.format], found, name=EVIL[:100]).path.rename(root / "imported")


def _evil_run(root: Path, name: str) -> Path:
    path = make_run(root, name, steps=5, prompts=3, group_size=4, state="failed", error=EVIL)
    for record in records(read_run(path / "config.yaml"), 5, final=False):
        for split in record.splits:
            _spoil(split)
        write_step(path, record)
    config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    config |= {"name": EVIL[:118], "model": EVIL, "experiment": EVIL}
    (path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    status = json.loads((path / "status.json").read_text(encoding="utf-8"))
    told = dict.fromkeys(("look_for", "experiment_name", "label", "message", "host"), EVIL)
    (path / "status.json").write_text(json.dumps({**status, **told}), encoding="utf-8")
    (path / "log.txt").write_bytes(EVIL.encode() * 3 + b"\xff\x00\n")
    return path


def _spoil(split: SplitRecord) -> None:
    """Hostile words everywhere, and answers that each of the finds finds."""
    split.prompt = [UNSPEAKABLE + prompt for prompt in split.prompt]
    split.answer = [UNSPEAKABLE for _ in split.answer]
    twins = [index - 1 if index % 4 == 1 else index for index in range(len(split.text))]
    split.text = [UNSPEAKABLE + split.text[index] for index in twins]
    if split.token_text is None:
        return
    split.token_text = [[UNSPEAKABLE, *HOSTILE, *row][: len(row)] for row in split.token_text]
    split.token_ids[:4] = 1  # four answers that repeat themselves
    split.correct[::4] = ~split.correct[::4]  # some are pushed the wrong way
    split.truncated[:2] = True
    split.traits = [{**traits, "lucky": 1.0} for traits in split.traits]


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_it_is_shown_and_nothing_comes_of_it(lab: Served, page: Page, address: str) -> None:
    watched = _Watched(lab, page)
    page.goto(f"{lab.url}/{address}")
    expect(page.get_by_role("heading").first).to_be_visible(timeout=60_000)
    page.wait_for_function(SHOWN, polling=250)
    watched.check()


def test_results_of_a_query_are_text(lab: Served, page: Page) -> None:
    """A hostile column name, hostile cells and a chart coloured by them."""
    watched = _Watched(lab, page)
    page.goto(f"{lab.url}/sql?run=evil&sql={quote(STATEMENT)}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".js-plotly-plot")).to_be_visible(timeout=60_000)
    expect(page.locator(".js-plotly-plot .legendtext").first).to_contain_text("<script>", timeout=60_000)
    page.wait_for_function("() => [...document.querySelectorAll('canvas')].some(e => e.textContent.includes('evil'))")
    watched.check()


class _Watched:
    """What a page did while it was looked at: where it sent requests, and which dialogs it opened."""

    def __init__(self, lab: Served, page: Page) -> None:
        self._page = page
        self._elsewhere: list[str] = []
        self._dialogs: list[str] = []
        self._own = lab.url
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def _request(self, request: Request) -> None:
        if self._own not in request.url:
            self._elsewhere.append(request.url)

    def _dialog(self, dialog: Dialog) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def check(self) -> None:
        """Nothing executed, nothing was drawn from the data, and no part of the page failed."""
        self._page.wait_for_load_state("networkidle")
        self._page.remove_listener("request", self._request)
        self._page.remove_listener("dialog", self._dialog)
        assert self._page.evaluate(FOUND) == HARMLESS
        assert [url for url in self._elsewhere if not url.startswith(("data:", "blob:", "ws:"))] == []
        assert self._dialogs == []
        assert self._page.get_by_text("Something went wrong").count() == 0
