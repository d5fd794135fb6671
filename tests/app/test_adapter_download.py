"""The adapter of a run that has ended can be taken along, from Live and from Runs."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from app import adapter_download
from core.runs.folders import run_info
from tests.synthetic import make_run


def with_adapter(root: Path, name: str, **settings: object) -> Path:
    path = make_run(root, name, steps=3, prompts=2, group_size=2, **settings)
    (path / "adapter").mkdir()
    (path / "adapter" / "adapter_config.json").write_text('{"r": 16, "base_model_name_or_path": "/home/me/x"}')
    (path / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
    return path


def buttons(at, label: str = "Download adapter") -> list[str]:
    return [one.proto.label for one in at.get("download_button") if one.proto.label == label]


@pytest.mark.parametrize(("state", "offered"), [("finished", 1), ("stopped", 1), ("running", 0)])
def test_a_run_that_has_ended_offers_it(no_runs, open_page, state, offered):
    with_adapter(no_runs, "mine", state=state)
    make_run(no_runs, "without", steps=3, prompts=2, group_size=2)
    for at in (open_page("live", run="mine"), open_page("runs")):
        assert not at.exception
        assert len(buttons(at)) == offered
        assert len(buttons(at, "Send to a colleague")) in (offered, offered + 1), "an adapter is not needed for it"
    assert not buttons(open_page("live", run="without"))


def test_what_is_downloaded_is_the_adapter_with_its_card(no_runs, monkeypatch):
    info = run_info(with_adapter(no_runs, "mine"))
    asked = {}
    monkeypatch.setattr(adapter_download.st, "download_button", lambda *a, **k: asked.update(data=a[1], name=a[2]))
    adapter_download.button(info, "key")
    assert asked["name"] == "mine-adapter.zip"
    with zipfile.ZipFile(io.BytesIO(asked["data"]())) as archive:
        assert archive.read("mine-adapter/adapter_model.safetensors") == b"weights"
        assert json.loads(archive.read("mine-adapter/adapter_config.json"))["base_model_name_or_path"] == "embedded"
        assert "Steps: 3 of 3" in archive.read("mine-adapter/README.md").decode()
