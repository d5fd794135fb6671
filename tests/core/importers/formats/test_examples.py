"""One small file of each format: recognised by what is in it, and what it has arrives."""

import shutil

import pytest

from core.importers.base import Report
from core.importers.formats import all_formats, find
from tests.core.importers.formats.reading import EXAMPLES, read

FORMATS = {
    "trl": "trl", "verl": "verl", "rllb": "rllb", "prime_rl": "prime-rl", "prime_rl/token_exports": "prime-rl-tokens",
    "verifiers": "verifiers", "open_instruct": "open-instruct", "nemo_rl": "nemo-rl", "ms_swift": "ms-swift",
    "tinker": "tinker", "areal": "areal", "unipo": "unipo",
}  # fmt: skip


def test_every_format_has_an_example():
    assert set(FORMATS.values()) == set(all_formats())


@pytest.mark.parametrize(("folder", "name"), FORMATS.items())
def test_a_folder_is_recognised_by_its_files_alone(folder, name, tmp_path):
    path = EXAMPLES / folder
    fitting = [each for each in all_formats() if all_formats()[each].sniff(path)]
    assert fitting == ([name] if folder != "prime_rl" else ["prime-rl", "prime-rl-tokens"])
    assert find(path).format == name
    for at, file in enumerate(find(path).files):
        assert find(file).format == name
        renamed = tmp_path / f"anything{at}.data"
        shutil.copy(file, renamed)
        assert find(renamed).format == name or name == "prime-rl-tokens"


@pytest.mark.parametrize("folder", FORMATS)
def test_it_is_found_however_deep_it_lies(folder, tmp_path):
    deep = tmp_path / "home" / "someone" / "runs" / "7"
    shutil.copytree(EXAMPLES / folder, deep)
    (tmp_path / "home" / "notes.json").write_text('{"about": "nothing"}')
    assert find(tmp_path).format == FORMATS[folder]
    assert len(read(tmp_path)) == 4


@pytest.mark.parametrize("folder", FORMATS)
def test_its_four_rollouts_arrive(folder):
    rows = read(EXAMPLES / folder)
    assert len(rows) == 4
    if folder != "verifiers":
        assert [row["step"] for row in rows] == [3] * 4
    assert {row["split"] for row in rows} == {"eval" if folder == "verifiers" else "train"}


@pytest.mark.parametrize("folder", FORMATS)
def test_a_file_that_goes_away_before_it_is_read_is_noted(folder, tmp_path):
    shutil.copytree(EXAMPLES / folder, tmp_path / "copy")
    found = find(tmp_path / "copy")
    for file in found.files:
        file.unlink()
    report = Report()
    assert list(all_formats()[found.format].read(found, report, {})) == []
    assert any("not there any more" in note for note in report.notes)


@pytest.mark.parametrize("folder", [name for name in FORMATS if name != "prime_rl/token_exports"])
def test_rewards_and_groups_are_those_of_two_prompts(folder):
    rows = read(EXAMPLES / folder)
    rewards = [row["reward"] if "reward" in row else sum(row["parts"].values()) for row in rows]
    best = max(rewards)
    assert [reward == best for reward in rewards] == [True, False, True, True]
    groups = [row.get("group", row.get("prompt")) for row in rows]
    assert groups[0] == groups[1] != groups[2] == groups[3]


@pytest.mark.parametrize("folder", ["trl", "verl", "rllb", "prime_rl", "verifiers", "ms_swift", "areal", "unipo"])
def test_text_arrives(folder):
    rows = read(EXAMPLES / folder)
    assert [row["prompt"] for row in rows] == ["What is 2+3?"] * 2 + ["What is 9-4?"] * 2
    assert [row["text"].removesuffix("<EOD>") for row in rows] == ["5", "6", "5", "5"]


@pytest.mark.parametrize("folder", ["trl", "open_instruct", "ms_swift", "unipo"])
def test_the_advantage_of_a_response_arrives(folder):
    assert [row["advantage"] for row in read(EXAMPLES / folder)] == [0.707, -0.707, 0.0, 0.0]


@pytest.mark.parametrize("folder", ["prime_rl", "prime_rl/token_exports", "nemo_rl", "unipo"])
def test_the_advantage_of_a_token_arrives(folder):
    found = [row["token_advantage"] for row in read(EXAMPLES / folder)]
    assert found == [pytest.approx([value] * 2) for value in (0.707, -0.707, 0.0, 0.0)]


@pytest.mark.parametrize("folder", ["rllb", "prime_rl", "prime_rl/token_exports", "open_instruct", "nemo_rl", "unipo"])
def test_tokens_arrive_without_the_prompt(folder):
    for row in read(EXAMPLES / folder):
        assert row["sampler_logprob"] == pytest.approx([-0.4, -0.1])
        assert row["length"] == 2
        assert row.get("token_ids", [13, 2]) == [13, 2]
