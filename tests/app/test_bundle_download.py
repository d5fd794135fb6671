"""A run that has ended can be sent to a colleague, from Live and from Runs."""

from __future__ import annotations

import pytest

from app import bundle_download
from core.exporters.bundle import open_bundle
from core.runs.folders import run_info
from tests.app.conftest import texts
from tests.synthetic import make_run

TINY = {"steps": 3, "prompts": 2, "group_size": 2}
LABEL = "Send to a colleague"


def buttons(at) -> list[str]:
    return [one.proto.label for one in at.get("download_button") if one.proto.label == LABEL]


def test_a_run_that_has_ended_offers_it(no_runs, open_page, monkeypatch):
    make_run(no_runs, "mine", **TINY)
    make_run(no_runs, "stopped", state="stopped", **TINY)
    make_run(no_runs, "running", state="running", **TINY)
    make_run(no_runs, "queued", state="queued", **TINY)
    assert len(buttons(open_page("runs"))) == 2
    at = open_page("live", run="mine")
    assert not at.exception and len(buttons(at)) == 1
    monkeypatch.setattr(bundle_download, "LARGEST", 1000)
    at = open_page("live", run="mine")
    assert not buttons(at) and "too large to go through a browser" in texts(at)
    assert any("python -m core export run mine" in one.value for one in at.code)


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_downloaded_opens_elsewhere(no_runs, tmp_path, monkeypatch, sealed):
    info = run_info(make_run(no_runs, "mine", sealed=sealed, **TINY))
    asked = {}
    monkeypatch.setattr(bundle_download.st, "download_button", lambda *a, **k: asked.update(data=a[1], name=a[2]))
    bundle_download.button(info, "key")
    assert asked["name"] == "mine.zip"
    (tmp_path / "mine.zip").write_bytes(asked["data"]())
    opened = open_bundle(tmp_path / "mine.zip", tmp_path / "theirs")
    assert run_info(opened).imported
    size = sum(file.stat().st_size for file in info.path.rglob("*.parquet")) if not sealed else 0
    assert bundle_download.folder_size(info.path) >= max(size // 2, 1000)


def test_an_opened_run_is_looked_at_on_every_page(no_runs, open_page, tmp_path):
    run = make_run(tmp_path / "theirs", "from-a-colleague", method="a3po", **TINY)
    open_bundle(_written(run, tmp_path / "a.zip"), no_runs)
    at = open_page("runs")
    assert not at.exception and "sent by another lab" in texts(at)
    keys = [one.key for one in at.button if one.key and one.key.endswith(":from-a-colleague")]
    assert keys == ["delete:from-a-colleague"]
    for page in ("live", "tokens", "polarity"):
        at = open_page(page, run="from-a-colleague")
        assert not at.exception and not at.error, page


def _written(run, out):
    from core.exporters.bundle import write_bundle

    return write_bundle(run, out)
