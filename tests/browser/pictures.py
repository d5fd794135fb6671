"""The pictures of README, and the contact sheets that a reviewer looks at: every page as a browser shows it.

    python -m tests.browser.pictures --readme [PAGE ...]
    python -m tests.browser.pictures --runs DIR --out DIR [--width 1280] [--dark] [PAGE ...]

README's show the recorded examples, in app/pictures. `DIR` holds finished runs of the Quick start; the pages show its
newest experiment.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from core.exporters.unipo import write_unipo
from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from core.runs import RunInfo, list_runs
from core.runs.folders import EXAMPLES
from core.store import open_runs
from tests.browser.conftest import CHROMIUM, FLAGS, PROJECT, serve

PICTURES = PROJECT / "app" / "pictures"
HEIGHTS = {"live": 1260, "tokens": 1240, "tokens_run": 1240, "whatif": 1240, "compare": 1240, "sql": 1640}
"""Of README's pictures, in pixels, where what the page is about does not fit into 800."""

IMPORTED = "imported"
"""The folder of the run that the picture of Import shows."""

MIXED_GROUP = """
SELECT step, "group" FROM groups WHERE split = 'train' AND step <= 20 AND correct BETWEEN 3 AND 5
ORDER BY step DESC, "group" LIMIT 1
"""

PUSHED = """
SELECT step, "group", rollout, position FROM tokens WHERE split = 'train' AND kept AND step BETWEEN 20 AND 60
ORDER BY abs(advantage) * (1 - exp(sampler_logprob)) DESC, step, "group", rollout, position LIMIT 1
"""


def addresses(runs: list[RunInfo]) -> dict[str, dict[str, object]]:
    """Each page with the parameters of a telling view."""
    first = runs[0]
    with open_runs([first.path]) as lab:
        mixed = lab.rows(MIXED_GROUP)
    everyone = [run.id for run in runs]
    return {
        "runs": {},
        "launch": {"preset": "a3po"},
        "live": {"run": everyone},
        "tokens": {"run": first.id, **(mixed[0] if mixed else {})},
        "polarity": {"run": first.id},
        "favorability": {"run": first.id},
        "whatif": {"run": first.id, **(mixed[0] if mixed else {})},
        "compare": {"run": everyone},
    }


def examples() -> dict[str, dict[str, object]]:
    """The views of the recorded examples that README shows, by page, or page and what of it (`tokens_run`)."""
    a3po, grpo = "example-a3po-s0", "example-grpo-s0"
    with open_runs([EXAMPLES / a3po]) as lab:
        pushed = lab.rows(PUSHED)[0]
    return {
        "runs": {},
        "launch": {"preset": "a3po"},
        "live": {"run": [a3po, grpo]},
        "tokens": {"run": a3po, "color": "push", **pushed},
        "tokens_run": {"run": a3po, "view": "run"},
        "polarity": {"run": a3po},
        "favorability": {"run": "example-adora-attenuate-s0", "step": 40},
        "whatif": {"run": grpo},
        "compare": {},
        "sql": {"run": [a3po, grpo], "ready": "entropy-by-polarity"},
        "imports": {"run": IMPORTED},  # the last one: Runs is shown as it is without it
    }


def bring_in_example(runs: Path, scratch: Path) -> None:
    """What the Import page makes of a trainer's files: those of a recorded run, as UNIPO has them."""
    write_unipo(EXAMPLES / "example-grpo-s0", scratch / "rollouts.json")
    found = find(scratch / "rollouts.json")
    made = bring_in(
        runs, all_formats()[found.format], found, name="GRPO on a cluster", origin="rollouts.json (dropped)"
    )
    made.path.rename(runs / IMPORTED)


def settled(page: Page) -> None:
    """Wait until the page has drawn: no running script, no skeleton, figures in place."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')", timeout=60_000)
    page.wait_for_timeout(1200)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to show; all of them if none is named")
    parser.add_argument("--readme", action="store_true", help="README's own: the examples, in app/pictures")
    parser.add_argument("--runs", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, help="of the picture; the whole page if not given")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    if arguments.readme:
        arguments.out = PICTURES
    elif not (arguments.runs and arguments.out):
        parser.error("give --readme, or --runs and --out")
    arguments.out.mkdir(parents=True, exist_ok=True)
    views = examples() if arguments.readme else addresses(newest(arguments.runs))
    with tempfile.TemporaryDirectory() as empty:
        runs = Path(empty, "runs") if arguments.readme else arguments.runs
        runs.mkdir(exist_ok=True)
        with serve(runs, Path(empty, "locks")) as lab, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name in arguments.pages or views:
                height = HEIGHTS.get(name, 800) if arguments.readme else arguments.height
                page = chromium.new_page(
                    viewport={"width": arguments.width, "height": height or 900},
                    color_scheme="dark" if arguments.dark else "light",
                )
                if name == "imports" and arguments.readme:
                    bring_in_example(runs, Path(empty))
                address = "" if name == "runs" else name.partition("_")[0]
                page.goto(f"{lab.url}/{address}?{urlencode(views[name], doseq=True)}")
                settled(page)
                if name == "sql" and arguments.readme:
                    page.get_by_role("textbox", name="Statement: one SELECT").press("Control+Enter")
                    page.wait_for_selector(".js-plotly-plot")
                    settled(page)
                if not height:
                    page.set_viewport_size({"width": arguments.width, "height": _full_height(page)})
                    settled(page)
                (arguments.out / f"{name}.png").write_bytes(small(page.screenshot()))
                page.close()
            chromium.close()


def newest(folder: Path) -> list[RunInfo]:
    """The finished runs of the newest experiment, six of them at most."""
    finished = [info for info in list_runs(folder, examples=False) if info.state == "finished"]
    family = [info for info in finished if info.experiment == finished[0].experiment]
    return sorted(family, key=lambda info: (info.created, info.id))[:6]


def small(png: bytes) -> bytes:
    """The picture with a palette of 256 colours: a third of the size, and nobody sees it. As it is without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return png
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _full_height(page: Page) -> int:
    """The page scrolls inside its own box, so a full-page screenshot needs a window as tall as that."""
    inside = "document.querySelector('[data-testid=stMain]')?.scrollHeight ?? document.body.scrollHeight"
    return min(6000, max(700, int(page.evaluate(inside)) + 20))


if __name__ == "__main__":
    main()
