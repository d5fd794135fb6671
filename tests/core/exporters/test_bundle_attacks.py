"""Bundles from anybody: whatever is wrong with one is said in a sentence, and nothing of it stays or gets out."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from core.exporters.bundle import BundleError, layout, open_bundle, write_bundle
from core.exporters.bundle import open as opening
from core.runs.folders import run_info
from tests.core.exporters.bundles import RUN, bundle, contents, files_of, nothing_left, refused, send

Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("core.exporters.bundle.open.EXAMPLES", tmp_path / "no examples")
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "inner" / "runs"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mine")
    return write_bundle(send(place, method="grpo"), place / "sent.zip")


@pytest.fixture(scope="module")
def files(sent: Path) -> Files:
    return files_of(sent)


def test_what_is_opened_as_it_is_opens(files: Files, root: Path, tmp_path: Path) -> None:
    """So that every refusal below is one of what was changed; also as other programs zip a folder."""
    folders = [(f"{RUN}/", b""), (f"{RUN}/tables/", b""), (f"{RUN}/adapter/", b"")]
    assert run_info(open_bundle(bundle(tmp_path / "a.zip", files, extra=folders), root)).state == "finished"


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "/etc/evil", "C:\\evil", f"{RUN}/../../evil", f"{RUN}/tables/../config.yaml", f"{RUN}\\evil", "",
        f"{RUN}/rollouts.duckdb", f"{RUN}/.rollouts.duckdb", f"{RUN}/CONFIG.YAML", f"{RUN}/config.yaml\n",
        f"{RUN}//config.yaml", f"{RUN}/./config.yaml", f"{RUN}/tables/tokens-1.parquet", f"{RUN}/opened.json",
        f"{RUN}/adapter/adapter_model.bin", f"{RUN}/checkpoint/step=1/optimizer.pt", f"{RUN}/my_rewards.py",
        f"{RUN}/steps/", "__MACOSX/._config.yaml", "another/config.yaml", f"{RUN}/tables/\u202etokens.parquet",
    ],
)  # fmt: skip
def test_only_the_fixed_names_of_one_folder(name: str, files: Files, root: Path, tmp_path: Path) -> None:
    refused(
        bundle(tmp_path / "a.zip", files, extra=[(zipfile.ZipInfo(name), b"evil")]), root, "which no bundle has|one run"
    )


@pytest.mark.parametrize("run", ["presets", ".hidden", "a b", "..", "x" * 121])
def test_the_folder_is_a_runs(run: str, files: Files, root: Path, tmp_path: Path) -> None:
    refused(bundle(tmp_path / "a.zip", files, run), root, "a bundle holds one run's folder")


def odd(name: str, mode: int = 0o644 | stat.S_IFREG, flags: int = 0) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{RUN}/{name}")
    entry.external_attr, entry.flag_bits = mode << 16, flags
    return entry


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_no_links_and_no_devices(kind: int, files: Files, root: Path, tmp_path: Path) -> None:
    files = {name: data for name, data in files.items() if name != "log.txt"}
    refused(bundle(tmp_path / "a.zip", files, extra=[(odd("log.txt", kind | 0o777), b"/etc/passwd")]), root, "a link")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_name_twice_nothing_missing_nothing_more_than_was_said(files: Files, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    refused(bundle(file, files, extra=[(odd("config.yaml"), b"x: 1")]), root, "holds config.yaml twice")
    without = {name: data for name, data in files.items() if name != "log.txt"}
    refused(bundle(file, without, extra=[(odd("log.txt"), b"x")]), root, "disagree about .log.txt")
    listed = json.loads(contents(files))["files"]
    refused(bundle(file, without, files=listed), root, "disagree about .log.txt")
    for name in ("config.yaml", "schema.json", "status.json", "tables/pack.json"):
        refused(bundle(file, {k: v for k, v in files.items() if k != name}), root, f"{name} is missing")
    refused(bundle(file, {k: v for k, v in files.items() if k != "tables/tokens.parquet"}), root, "tokens.parquet")
    weights = "adapter/adapter_model.safetensors"
    refused(bundle(file, {k: v for k, v in files.items() if k != weights}), root, f"{weights}: is missing")


def test_bombs(files: Files, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        bomb = {**files, "tables/tokens.parquet": bytes(20 * layout.MB)}
        archive.writestr(f"{RUN}/bundle.json", contents(bomb))
        for name, data in bomb.items():
            archive.writestr(f"{RUN}/{name}", data)
    refused(file, root, "would unpack to more than 100 times its size")
    refused(bundle(file, {**files, "status.json": bytes(layout.MB)}), root, "larger than 0.25 MB")
    monkeypatch.setattr(layout, "LARGEST", sum(map(len, files.values())) - 1)
    refused(bundle(file, files), root, "is larger than|would unpack to more")


def test_an_archive_that_lies_about_itself(files: Files, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    honest = bundle(file, files).read_bytes()
    end = honest.rindex(b"PK\x05\x06")
    many = honest[: end + 8] + struct.pack("<HH", 60_000, 60_000) + honest[end + 12 :]
    file.write_bytes(many)
    refused(file, root, "more than the files of a run")
    last = honest.rindex(b"PK\x01\x02")  # the central entry of the last file: say that it is smaller, then larger
    size = struct.unpack("<I", honest[last + 24 : last + 28])[0]
    for other in (size - 1, size + 1, 0):
        file.write_bytes(honest[: last + 24] + struct.pack("<I", other) + honest[last + 28 :])
        refused(file, root, "damaged")
    first = honest.index(b"PK\x01\x02")
    overlapping = honest[: last + 42] + honest[first + 42 : first + 46] + honest[last + 46 :]
    file.write_bytes(overlapping)
    refused(file, root, "damaged")
    file.write_bytes(b"#!/bin/sh\n" + honest)
    refused(file, root, "is no bundle")
    locked = bytearray(honest)
    locked[last + 8] |= 1
    file.write_bytes(bytes(locked))
    refused(file, root, "locked with a password")


def test_half_a_bundle_and_other_files(sent: Path, root: Path, tmp_path: Path) -> None:
    whole = sent.read_bytes()
    file = tmp_path / "a.zip"
    for cut in (0, 3, 100, len(whole) // 2, len(whole) - 23, len(whole) - 1):
        file.write_bytes(whole[:cut])
        refused(file, root, "cut off|no bundle")
    file.write_bytes(whole + b"more")
    refused(file, root, "cut off")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a-run-adapter/adapter_model.safetensors", b"weights")
    refused(file, root, "no bundle")
    refused(bundle(file, {}), root, "is not whole: config.yaml is missing")
    with pytest.raises(BundleError, match="no such file"):
        open_bundle(tmp_path, root)


def test_random_damage(sent: Path, root: Path, tmp_path: Path) -> None:
    """Flipped bits, lost and doubled pieces: refused, or, where nothing read them, opened as it was sent."""
    whole, draw, file = sent.read_bytes(), random.Random(7), tmp_path / "a.zip"
    directory = whole.index(b"PK\x01\x02")
    root.mkdir(parents=True)
    opened = 0
    for turn in range(60):
        data = bytearray(whole)
        start = draw.randrange(0 if turn % 6 else directory, len(data))
        if turn % 5 == 4:
            length = draw.randrange(1, 2000)
            data[start : start + length] = data[start : start + length] * 2 if turn % 2 else b""
        else:
            data[start] ^= 1 << draw.randrange(8)
        file.write_bytes(bytes(data))
        try:
            path = open_bundle(file, root)
        except BundleError:
            nothing_left(root)
            continue
        opened += 1
        assert run_info(path).imported
        os.rename(path, tmp_path / f"opened-{turn}")
    assert opened < 20


def test_what_a_killed_opening_left_is_cleared(sent: Path, root: Path) -> None:
    (root / ".opening-0123" / "came").mkdir(parents=True)
    open_bundle(sent, root)
    assert [path.name for path in root.iterdir()] == [RUN]


def test_two_copies_that_are_opened_at_once_are_one_run(
    sent: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, write_tables = Path(shutil.copy(sent, tmp_path / "copy.zip")), opening._write_tables

    def meanwhile(*args: Any) -> None:
        monkeypatch.setattr(opening, "_write_tables", write_tables)
        open_bundle(copy, root)
        write_tables(*args)

    monkeypatch.setattr(opening, "_write_tables", meanwhile)
    with pytest.raises(BundleError, match="open already"):
        open_bundle(sent, root)
    assert [path.name for path in root.iterdir()] == [RUN]
