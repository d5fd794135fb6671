"""Every page on the shipped examples, in a real browser: what is drawn is what the store says, and nothing runs out of
the page, at 1280 pixels and at 800. Its screenshots stay: in ci-output/screens where CI runs, else in pytest's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from app.palette import DARK, LIGHT
from app.presentation import SCALE
from core.runs.folders import EXAMPLES
from core.store import Lab, open_runs
from tests.browser.conftest import PROJECT, REQUIRED, serve
from tests.browser.pictures import settled

GRPO, A3PO, ATTENUATE = "example-grpo-s0", "example-a3po-s0", "example-adora-attenuate-s0"
RUNS = tuple(sorted(path.name for path in EXAMPLES.glob("example-*")))

TRACE = """([name, key]) => {
  for (const plot of document.querySelectorAll(`${key} .js-plotly-plot`)) {
    const found = plot.calcdata.find(points => points[0]?.trace?.name === name && points.length > 1);
    if (found) return found.map(point => ({x: point.x, y: point.y, s: point.s}));
  }
  return null;
}"""
MARKS = """selector => {
  const plot = document.querySelector(selector + ' .js-plotly-plot');
  const all = plot.calcdata.filter(points => points[0].x !== undefined);
  return Object.fromEntries(Object.entries(Object.groupBy(all, points => points[0].trace.name))
    .map(([name, traces]) => [name, traces.map(points => points.length)]));
}"""
SIDEWAYS = """() => [document.scrollingElement, document.querySelector('[data-testid=stMain]')]
  .map(box => box.scrollWidth - box.clientWidth)"""
CUT = """() => [...document.querySelectorAll('[data-testid=stSelectbox] input')]
  .filter(input => input.scrollWidth > input.clientWidth + 1).map(input => input.value)"""
BEYOND = """() => {
  const edge = document.querySelector('[data-testid=stMainBlockContainer] > [data-testid=stVerticalBlock]');
  const right = edge.getBoundingClientRect().right + 1;
  return [...edge.querySelectorAll('button')].filter(button => button.getBoundingClientRect().right > right)
    .map(button => button.innerText);
}"""
TYPE_SIZE = "place => parseFloat(getComputedStyle(document.querySelector(place)).fontSize)"
# A figure has no ticks while it is drawn anew: then the answer is "not yet".
IS_SIZE = """([place, size]) => [...document.querySelectorAll(place)].slice(0, 1)
  .some(e => Math.abs(parseFloat(getComputedStyle(e).fontSize) - size) < 0.1)"""
GROUND = "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with open_runs([EXAMPLES / name for name in RUNS]) as lab:
        yield lab


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A lab in which nobody has trained anything: the examples are all it shows."""
    with serve(tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("locks")) as served:
        yield served.url


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = REQUIRED or "CI" in os.environ
    folder = PROJECT / "ci-output" / "screens" if kept else tmp_path_factory.mktemp("screens")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def show(page: Page, address: str, screens: Path) -> Iterator[Callable[..., Page]]:
    """`show("tokens", run=…)`: the page at 1280 pixels. When the test is over it is looked at once more at 800."""
    shown: list[str] = []

    def opener(name: str, **params: object) -> Page:
        page.goto(f"{address}/{'' if name == 'runs' else name}?{urlencode(params, doseq=True)}")
        settled(page)
        page.screenshot(path=screens / f"{name}-1280.png")
        shown.append(name)
        return page

    yield opener
    expect(page.get_by_text("Something went wrong")).to_have_count(0)
    assert page.evaluate(SIDEWAYS) == [0, 0], "at 1280 pixels"
    page.set_viewport_size({"width": 800, "height": 900})
    settled(page)
    page.screenshot(path=screens / f"{shown[-1]}-800.png")
    assert page.evaluate(SIDEWAYS) == [0, 0], "at 800 pixels"


def trace(page: Page, name: str, key: str = "") -> list[dict[str, float]]:
    """The points of the first curve or bars of that name, as plotly draws them; `key` selects the figure."""
    page.wait_for_function(f"wanted => ({TRACE})(wanted) !== null", arg=[name, key])
    return page.evaluate(TRACE, [name, key])


def number(text: str) -> float:
    return float(re.search(r"[−\d][\d.\u202f]*", text)[0].replace("\u202f", "").replace("−", "-"))


def test_runs_has_the_examples_and_questions_that_lead_to_their_answers(show: Callable[..., Page]) -> None:
    page = show("runs")
    expect(page.get_by_role("heading", level=2).first).to_have_text(re.compile("five minutes"))
    for question in (
        "Which method kept entropy",
        "Which prompts did ADORA hold back",
        "Which token did A3PO push hardest",
    ):
        expect(page.get_by_text(re.compile(question)).first).to_be_visible()
    page.get_by_role("link", name="Look at the token").click()
    page.wait_for_url(re.compile("/tokens"))
    page.wait_for_selector("[data-testid=why-advantage][data-value]")


def test_launch_shows_the_plan_of_a_preset(show: Callable[..., Page]) -> None:
    page = show("launch", preset="a3po")
    expect(page.get_by_text("python -m core run").first).to_be_visible()
    assert "rho_positive" in page.inner_text("[data-testid=stMain]")


def test_live_draws_the_metrics_of_the_store(show: Callable[..., Page], lab: Lab) -> None:
    page = show("live", run=GRPO)
    stored = lab.df("SELECT step, reward FROM metrics WHERE run = ? ORDER BY step", [GRPO])
    drawn = trace(page, "reward")
    assert [point["x"] for point in drawn] == stored["step"].tolist()
    assert [point["y"] for point in drawn] == pytest.approx(stored["reward"].tolist(), rel=1e-6)
    evals = lab.df("SELECT step, pass_at_1 FROM evals WHERE run = ? ORDER BY step", [GRPO])
    assert [point["y"] for point in trace(page, "pass@1, sampled")] == pytest.approx(evals["pass_at_1"].tolist())
    gain = evals["pass_at_1"].iloc[-1] - evals["pass_at_1"].iloc[0]
    expect(
        page.get_by_text(f"pass@\u20601 +{gain:.3f}").or_(page.get_by_text(f"+{gain:.3g} in 100 steps")).first
    ).to_be_visible()


def test_tokens_explains_the_token_of_the_store(show: Callable[..., Page], lab: Lab) -> None:
    step, group, rollout, position, advantage, base = lab.rows(
        'SELECT step, "group", rollout, position, advantage, base_advantage FROM tokens '
        "WHERE run = ? AND split = 'train' AND kept AND f_a3po <> 1 ORDER BY abs(advantage) DESC LIMIT 1",
        [A3PO],
    )[0].values()
    page = show("tokens", run=A3PO, step=step, group=group, rollout=rollout, position=position)
    page.wait_for_selector(f"[data-testid=why-where]:has-text('rollout {rollout}, position {position} ')")
    page.wait_for_selector("[data-testid=why-advantage][data-value]")
    for name, value in (("advantage", advantage), ("base_advantage", base)):
        assert float(page.get_attribute(f"[data-testid=why-{name}]", "data-value")) == pytest.approx(value, rel=1e-4)
    rows = lab.rows(
        "SELECT count(*) AS n FROM rollouts WHERE run = ? AND step = ? AND split = 'train' AND \"group\" = ?",
        [A3PO, step, group],
    )
    assert page.locator("button[data-testid^=rollout-]").count() == rows[0]["n"]


@pytest.mark.parametrize("view", ["group", "prompt"])
def test_the_prompt_is_read_whole_when_presenting_and_at_800_pixels(show: Callable[..., Page], view: str) -> None:
    page = show("tokens", run=A3PO, view=view, present=1)
    page.wait_for_selector("[data-testid=stSelectbox] input")
    assert page.evaluate(CUT) == [], "presenting"
    page.set_viewport_size({"width": 800, "height": 900})
    page = show("tokens", run=A3PO, view=view, present=0)
    page.wait_for_selector("[data-testid=stSelectbox] input")
    assert page.evaluate(CUT) == [], "at 800 pixels"


def test_tokens_over_the_run_draws_its_means(show: Callable[..., Page], lab: Lab) -> None:
    page = show("tokens", run=A3PO, view="run")
    agreed = lab.df(
        "SELECT step, sum(sum) / sum(n) AS agreed FROM summary WHERE run = ? AND field = 'agreed' AND polarity = 1 "
        "AND split = 'train' GROUP BY step ORDER BY step",
        [A3PO],
    )
    drawn = {point["x"]: point["y"] for point in trace(page, "+ right answers")}
    assert [drawn[step] for step in agreed["step"]] == pytest.approx(agreed["agreed"].tolist(), rel=1e-6)


def test_polarity_mirrors_wrong_and_right_of_the_store(show: Callable[..., Page], lab: Lab) -> None:
    page = show("polarity", run=GRPO)
    counts = lab.df(
        "SELECT step, count(*) AS n FROM rollouts WHERE run = ? AND split = 'train' AND polarity = -1 GROUP BY step",
        [GRPO],
    ).set_index("step")["n"]
    drawn = {point["x"]: point["y"] for point in trace(page, "− wrong, rollouts")}
    assert {step: drawn[step] for step in counts.index} == counts.to_dict()
    right = lab.rows(
        "SELECT count(*) AS n FROM rollouts WHERE run = ? AND split = 'train' AND correct AND step >= 90", [GRPO]
    )[0]["n"]
    assert number(page.locator("[data-testid=window-rollouts]").inner_text().splitlines()[-1]) == right


def test_favorability_counts_every_visit_in_its_class_and_names_who_was_held_back(
    show: Callable[..., Page], lab: Lab
) -> None:
    page = show("favorability", run=ATTENUATE, step=40)
    marks = page.evaluate(MARKS, ".st-key-favorability-grid")
    assert {"favorable", "unfavorable", "uniform"} <= set(marks)
    classes = lab.df(
        "SELECT class, count(*) AS n FROM groups WHERE run = ? AND split = 'train' GROUP BY class", [ATTENUATE]
    )
    for name, visits in zip(classes["class"], classes["n"], strict=True):
        assert number(page.locator(f"[data-testid={name}]").last.inner_text()) == visits
    held = lab.df(
        "SELECT prompt FROM groups WHERE run = ? AND split = 'train' AND step = 40 AND weight < 1", [ATTENUATE]
    )
    table = page.locator("[data-testid=step-prompts]").inner_text()
    assert len(held)
    assert all(prompt in table for prompt in held["prompt"])


def test_what_if_shows_both_methods_mass(show: Callable[..., Page], lab: Lab) -> None:
    page = show("whatif", run=GRPO, step=30, group=7)
    mass = lab.rows(
        "SELECT sum(loss_weight * abs(advantage)) AS mass FROM tokens t JOIN rollouts r "
        "USING (run, step, split, \"group\", rollout) WHERE run = ? AND step = 30 AND split = 'train' "
        'AND "group" = 7 AND t.kept AND r.polarity = -1',
        [GRPO],
    )[0]["mass"]
    assert number(page.locator("[data-testid=mass-a]").inner_text()) == pytest.approx(mass, rel=5e-3)
    assert page.locator("[data-testid^=whatif-canvas-]").count() >= 2
    assert number(page.locator("[data-testid=pair-rank-correlation]").inner_text()) < 1


def test_compare_draws_every_run_and_says_how_many_seeds(show: Callable[..., Page], lab: Lab) -> None:
    page = show("compare", experiment="recorded-examples", metric="pass_at_1")
    last = lab.df("SELECT run, arg_max(pass_at_1, step) AS value FROM evals GROUP BY run")
    drawn = page.evaluate(
        "() => document.querySelector('.st-key-compare-finals .js-plotly-plot').calcdata.flatMap("
        "points => points.map(point => point.x)).filter(x => x !== undefined)"
    )
    assert set(last["value"]) <= set(drawn)
    assert len(last) == len(RUNS)
    assert page.evaluate(
        "() => [...document.querySelectorAll('.js-plotly-plot')].some(plot => plot.calcdata.some("
        "points => points[0].trace.name === 'GRPO, mean of n = 2'))"
    )
    page.set_viewport_size({"width": 800, "height": 900})
    settled(page)
    assert page.get_by_text("Who ends highest").count() == 1
    assert page.evaluate(BEYOND) == []


def test_sql_runs_when_asked_and_not_before(show: Callable[..., Page], lab: Lab) -> None:
    page = show("sql", run=GRPO, ready="entropy-by-polarity")
    assert page.locator(".js-plotly-plot").count() == 0
    page.get_by_role("textbox", name="Statement: one SELECT").press("Control+Enter")
    stored = lab.df(
        "SELECT step, sum(sum) / sum(n) AS entropy FROM summary WHERE run = ? AND field = 'entropy' "
        "AND split = 'train' AND polarity = -1 GROUP BY step ORDER BY step",
        [GRPO],
    )
    drawn = trace(page, f"{GRPO}, wrong")
    assert [point["x"] for point in drawn] == stored["step"].tolist()
    assert [point["y"] for point in drawn] == pytest.approx(stored["entropy"].tolist(), rel=1e-6)
    expect(page.get_by_text(re.compile(r"\d+\srows, in ")).first).to_be_visible()
    page.locator(".st-key-download-sql").get_by_test_id("stPopoverButton").first.click()
    page.get_by_role("button", name="CSV", exact=True).click()
    with page.expect_download() as saved:
        page.get_by_role("button", name=re.compile("Save CSV")).click()
    assert saved.value.suggested_filename == f"{GRPO}-sql.csv"
    rows = lab.df(
        "SELECT DISTINCT step, polarity FROM summary WHERE run = ? AND field = 'entropy' AND split = 'train'", [GRPO]
    )
    assert len(saved.value.path().read_text(encoding="utf-8").splitlines()) == 1 + len(rows)


@pytest.mark.parametrize("name", ["tokens", "polarity"])
def test_the_dark_mode_is_dark_in_page_and_figures(page: Page, address: str, screens: Path, name: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/{name}?run={GRPO}")
    settled(page)
    page.screenshot(path=screens / f"{name}-1280-dark.png")
    assert page.evaluate(GROUND) == rgb(DARK.background)
    page.wait_for_selector(".js-plotly-plot .xtick text")
    inks = page.eval_on_selector_all(".js-plotly-plot .xtick text", "all => all.map(e => getComputedStyle(e).fill)")
    assert set(inks) == {rgb(DARK.muted)}


def test_the_presentation_switch_enlarges_type_and_stays_over_links(show: Callable[..., Page], screens: Path) -> None:
    page = show("polarity", run=GRPO)
    tick, heading = ".js-plotly-plot .xtick text", "h2"
    page.wait_for_selector(tick)
    before, title = page.evaluate(TYPE_SIZE, tick), page.evaluate(TYPE_SIZE, heading)
    assert page.evaluate(GROUND) == rgb(LIGHT.background)
    page.locator(".st-key-present button").first.click()
    for place, was in ((tick, before), (heading, title)):
        page.wait_for_function(IS_SIZE, arg=[place, was * SCALE])
    assert "present=1" in page.url
    page.screenshot(path=screens / "polarity-1280-present.png")
    page.get_by_role("link", name="Tokens").first.click()
    page.wait_for_url(re.compile("/tokens.*present=1"))
    settled(page)
    page.wait_for_function(IS_SIZE, arg=[heading, title * SCALE])
    assert page.locator("[data-testid=why-where]").first.evaluate("e => e.currentCSSZoom") == pytest.approx(SCALE)


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
