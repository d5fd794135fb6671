"""`core advantage`: methods on somebody's own numbers, and everything that can be wrong with them."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path

import pytest

from core.advantage import batch_from_json, build, compute, trace_to_json
from core.cli import batch_file
from tests.core.shell import Shell

GOLDEN = json.loads((Path(__file__).parent / "advantage" / "golden.json").read_text())
NAN, INF = float("nan"), float("inf")
BATCH = {
    "group": [0, 0, 0, 0],
    "reward": [1, 0, 0, 0],
    "length": [2, 1, 3, 1],
    "truncated": [False, False, True, False],
    "max_length": 3,
    "old_logprob": [[-0.1, -2], [-0.3], [-0.1, -0.5, -1], [-0.7]],
    "entropy": [[0.1, 1.2], [0.3], [0.1, 0.5, 1], [0.7]],
}
TOKENS = ("old_logprob", "entropy")


@pytest.fixture
def core(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(capsys)


@pytest.fixture
def save(tmp_path: Path):
    """Writes a batch file: BATCH with changes, a key without a value left out; or a text as it is."""

    def write(text: str | bytes | None = None, **changes: object) -> Path:
        path = tmp_path / "batch.json"
        if text is None:
            text = json.dumps({key: value for key, value in {**BATCH, **changes}.items() if value is not ...})
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def ask(core: Shell, save):
    """The JSON that a command prints for the batch."""

    def run(*words: object, **changes: object) -> dict:
        assert core("advantage", save(**changes), *words, "--json") == 0, core.err
        return json.loads(core.out)

    return run


def factors(found: dict) -> dict:
    return {factor["name"]: factor["values"] for factor in found["factors"]}


def test_every_advantage_and_its_factors(ask) -> None:
    found = ask("--method", "grpo")
    assert list(found) == ["method", "advantage", "kept", "class", "base", "factors"]
    assert found["advantage"][0] == pytest.approx([1.5, 1.5], abs=1e-3)
    assert found["advantage"][2] == pytest.approx([-0.5] * 3, abs=1e-3)
    assert found["kept"] == [True] * 4
    assert found["class"] == {"0": "favorable"}
    assert found["factors"] == []


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp", "a3po", "adora_code_llm", "fork_tokens"])
def test_the_numbers_are_those_of_the_rules(core: Shell, tmp_path: Path, name: str) -> None:
    inputs = GOLDEN[0]["inputs"]
    path = tmp_path / "golden.json"
    path.write_text(json.dumps(inputs))
    assert core("advantage", path, "--method", name, "--json") == 0
    batch = batch_from_json(inputs)
    assert json.loads(core.out) == json.loads(json.dumps(trace_to_json(compute(build(name), batch), batch)))


def test_token_fields_are_only_needed_where_they_are_read(core: Shell, save, ask) -> None:
    assert ask("--method", "adora_code_llm", old_logprob=..., entropy=...)["advantage"]
    refusal = core.refuses("advantage", save(old_logprob=...), "--method", "a3po")
    assert "A3PO on DAPO needs sampler_logprob (old_logprob in a batch file), which this batch doesn't have" in refusal
    assert "needs entropy" in core.refuses("advantage", save(entropy=...), "--method", "fork_tokens")
    assert "needs proxy_logprob" in core.refuses("advantage", save(), "--method", "lp_reg")
    assert "needs total_steps" in core.refuses("advantage", save(), "--method", "a3po;decay_fraction=0.5")


def test_parameters_bases_and_more_weights(ask) -> None:
    words = ["--method", "polarity", "--set", "positive=3", "--set", "negative=1", "--base", "dr_grpo", "--also", "nsr"]
    found = ask(*words)
    assert factors(found) == {"selected": [0, 1, 1, 1], "polarity": [3, 1, 1, 1]}
    assert found["kept"] == [False, True, True, True]
    assert found["advantage"][1] == pytest.approx([-0.25])


def test_a_parameters_full_name(core: Shell, save, ask) -> None:
    words = ["--method", "adora_amplify", "--also", "adora_attenuate"]
    refusal = core.refuses("advantage", save(), *words, "--set", "weight=3")
    assert refusal == "weight could mean adora_amplify.weight or adora_attenuate.weight: write it in full"
    assert factors(ask(*words, "--set", "adora_amplify.weight=3"))["adora_amplify"] == [3]


def test_options_say_the_same_as_a_line(ask) -> None:
    words = ["--base", "dr_grpo", "--also", "adora_amplify", "--set", "rho_positive=3", "--mass-matched"]
    line = "a3po;base=dr_grpo;also=adora_amplify;rho_positive=3;mass_matched=1;loss.aggregation=token_mean"
    assert ask("--method", "a3po", *words, "--loss", "aggregation=token_mean") == ask("--method", line)
    assert ask("--method", "a3po;rho_positive=5", "--set", "rho_positive=3") == ask("--method", "a3po;rho_positive=3")


def test_mass_matching_is_the_last_factor_and_follows_the_loss(ask) -> None:
    plain = ask("--method", "polarity;positive=3;negative=1")
    found = ask("--method", "polarity;positive=3;negative=1", "--mass-matched")
    assert [factor["name"] for factor in found["factors"]] == ["polarity", "mass_matched"]
    by = found["factors"][1]["values"]
    assert by == [by[0]] * 4 and by[0] == pytest.approx(3 / 6)  # GRPO: 1.5 + 3 x 0.5 of it, the correct one tripled
    for own, other in zip(found["advantage"], plain["advantage"], strict=True):
        assert own == pytest.approx([by[0] * value for value in other])
    token_mean = ask("--method", "polarity;positive=3;negative=1", "--mass-matched", "--loss", "aggregation=token_mean")
    assert token_mean["factors"][1]["values"][0] == pytest.approx((2 * 1.5 + 5 * 0.5) / (2 * 4.5 + 5 * 0.5), rel=1e-4)


def test_correct_from_a_threshold(ask) -> None:
    words = ["--method", "pm1"]
    partial = {"reward": [1, 0.6, 0.2, 0]}
    assert [row[0] for row in ask(*words, **partial)["advantage"]] == [1, 1, -1, -1]
    assert [row[0] for row in ask(*words, "--threshold", "0.2", **partial)["advantage"]] == [1, 1, 1, -1]
    assert [row[0] for row in ask(*words, "--threshold", "0.7", **partial)["advantage"]] == [1, -1, -1, -1]


def test_the_step_of_schedules(ask) -> None:
    def rho(*words: str, **changes: object) -> float:
        return max(factors(ask("--method", "a3po", *words, **changes))["a3po"][0])

    assert (rho(), rho(step=100), rho("--step", "100"), rho("--step", "0", step=100)) == (2, 1.5, 1.5, 2)


def test_a_penalty_comes_along(ask) -> None:
    found = ask("--method", "kl_cov;ratio=0.5;coefficient=2")["penalty"]
    assert (found["name"], found["form"]) == ("kl_cov", "absolute")
    assert [len(row) for row in found["values"]] == BATCH["length"]
    assert sorted(chain(*found["values"])) == [0, 0, 0, 0, 2, 2, 2]
    proxied = [[-0.1, -1], [-0.3], [-1e4, -0.5, -1], [-0.7]]
    assert ask("--method", "lp_reg", proxy_logprob=proxied)["penalty"]["form"] == "proxy"


def test_random_rules_follow_the_seed(ask) -> None:
    inputs = GOLDEN[0]["inputs"]
    words = ["--method", "clip_cov;ratio=0.5;cov_low=0;cov_high=100"]
    drawn = [ask(*words, **inputs, seed=seed)["factors"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_for_people(core: Shell, save) -> None:
    assert core("advantage", save(), "--method", "psr") == 0
    lines = core.out.splitlines()
    assert lines[0].startswith("PSR: ") and lines[1].startswith("  × selected: ")
    assert lines[2].split() == [
        "rollout",
        "group",
        "class",
        "reward",
        "length",
        "base",
        "×",
        "selected",
        "advantage",
        "kept",
    ]
    assert lines[3].split() == ["0", "0", "favorable", "1", "2", "1.5", "1", "1.5", "yes"]
    assert lines[4].split() == ["1", "0", "favorable", "0", "1", "-0.5", "0", "0", "no"]
    assert len(lines) == 8


def test_several_methods_side_by_side(core: Shell, save) -> None:
    words = ["--method", "dr_grpo", "--method", "polarity;base=dr_grpo;positive=2;negative=1"]
    assert core("advantage", save(), *words) == 0
    methods, pairs, rollouts = (part.splitlines() for part in core.out.split("\n\n"))
    assert methods[1].endswith("Dr. GRPO   0.125   0.104  100 %     1 of 1            1")
    assert methods[2].endswith("Polarity weights on Dr. GRPO    0.25   0.104  100 %     1 of 1            1")
    assert pairs[1].split() == ["1,", "2", "1", "28.6", "%", "0", "%", "16", "%", "0.647"]
    assert rollouts[1].split() == ["0", "0", "1", "2", "0.75", "1.5"]


def test_several_methods_as_json(ask) -> None:
    found = ask("--method", "grpo", "--method", "a3po", "--method", "psr")
    assert found["methods"][1] == ask("--method", "a3po")
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [(0, 1), (0, 2), (1, 2)]
    assert set(found["pairs"][0]) == {"a", "b", "rank_correlation", "changed_share", "flipped_share", "moved", "scale"}
    assert found["pairs"][1]["changed_share"] == pytest.approx(5 / 7)


def test_settings_beside_several_methods_are_refused(core: Shell, save) -> None:
    words = ["advantage", save(), "--method", "a3po", "--method", "grpo"]
    for more in (["--set", "ratio=0.1"], ["--base", "dapo"], ["--also", "psr"], ["--loss", "kl=1"], ["--mass-matched"]):
        assert core.refuses(*words, *more).startswith("with several methods, write what each changes in its own line")


def test_why_a_token_has_its_advantage(core: Shell, save, ask) -> None:
    words = ["--method", "a3po;rho_positive=3;ratio=0.5", "--explain", "0:1"]
    assert core("advantage", save(), *words) == 0
    text = core.out
    assert text.startswith("A3PO on DAPO: token 1 of rollout 0, a correct response of 2 tokens in group 0\n")
    for words_of in (
        "A = (R − m) / (s + ε)",
        "(1 − 0.25) / 0.5",
        "× a3po",
        "p = 0.135 is among the 1 lowest",
        "= advantage",
    ):
        assert words_of in text
    lines = ask(*words)["explain"]
    assert [line["kind"] for line in lines] == ["base", "factor", "factor", "total"]
    assert [line["value"] for line in lines] == pytest.approx([1.5, 1, 3, 4.5], rel=1e-5)
    assert core("advantage", save(), "--method", "grpo", *words) == 0
    first, second = core.out.split("\n\n")
    assert first.startswith("GRPO: token 1") and second.startswith("A3PO on DAPO: token 1")


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("4:0", "--explain 4:0: the batch has no rollout 4, the last is 3"),
        ("0:2", "--explain 0:2: rollout 0 has no token 2, the last is 1"),
        ("0", "--explain 0: write it as ROLLOUT:TOKEN, such as 0:0, both counted from 0"),
        ("-1:0", "--explain -1:0: write it as"),
        ("a:b", "--explain a:b: write it as"),
        ("0:" + "9" * 5000, "write it as"),
    ],
)
def test_places_that_are_not_there(core: Shell, save, place: str, sentence: str) -> None:
    assert sentence in core.refuses("advantage", save(), "--method", "grpo", "--explain", place)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "grpoo"], "there is no method 'grpoo'; did you mean grpo?"),
        (["--method", "A3P0"], "there is no method 'A3P0'"),
        (
            ["--method", "polarity", "--set", "positve=3"],
            "no parameter 'positve' in this method; did you mean positive?",
        ),
        (
            ["--method", "polarity", "--set", "positive"],
            "--set positive: write it as key=value, such as rho_positive=3",
        ),
        (["--method", "polarity", "--set", "positive=nan"], "positive must be a number, but is 'nan'"),
        (["--method", "polarity", "--set", "positive=1e999"], "positive must be a finite number, but is inf"),
        (["--method", "polarity", "--set", "positive=-1"], "positive must be"),
        (["--method", "grpo", "--loss", "clip=3"], "the loss has no field 'clip'"),
        (["--method", "grpo", "--loss", "clip_high"], "--loss clip_high: write it as key=value, such as clip_high=0.3"),
        (["--method", "grpo", "--base", "dapo"], "grpo is itself a base rule"),
        (["--method", "a3po", "--base", "dapp"], "there is no base rule 'dapp'; did you mean dapo?"),
        (["--method", "psr", "--also", "grpo"], "grpo brings no weights"),
        (
            ["--method", "grpo", "--threshold", "nan"],
            "the threshold of a correct reward must be a finite number, but is nan",
        ),
        (["--method", "grpo", "--step", "-1"], "step must be a whole number between 0 and"),
        (["--method", "a3po;ratio"], "'ratio' is no setting: write key=value"),
    ],
)
def test_methods_that_cannot_be(core: Shell, save, words: list[str], sentence: str) -> None:
    assert sentence in core.refuses("advantage", save(), *words)
    assert core.out == ""


def tokens(*rows: list[object]) -> dict[str, object]:
    return {"old_logprob": [*rows, *BATCH["old_logprob"][len(rows) :]]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reward": [1, NAN, 0, 0]}, "reward[1] must be a finite number, but is nan"),
        ({"reward": [1, 0, INF, 0]}, "reward[2] must be a finite number, but is inf"),
        ({"reward": [1, 0, -INF, 0]}, "reward[2] must be a finite number, but is -inf"),
        ({"reward": [True, 0, 0, 0]}, "reward[0] must be a finite number, but is true"),
        ({"reward": [1, "0", 0, 0]}, "reward[1] must be a finite number, but is '0'"),
        ({"reward": [1, None, 0, 0]}, "reward[1] must be a finite number, but is null"),
        ({"reward": [1, [0], 0, 0]}, "reward[1] must be a finite number, but is a list"),
        ({"reward": [1]}, "reward has 1 entries, but group has 4: give one a rollout"),
        ({"reward": {"0": 1}}, "reward must be a list, but is an object"),
        ({"reward": ...}, "the batch lacks reward"),
        ({"length": ..., "truncated": ...}, "the batch lacks length and truncated"),
        ({"length": [2, 1, 3]}, "length has 3 entries, but group has 4"),
        ({"length": [2, 0, 3, 1], **tokens([-0.1, -2], [])}, "length[1] must be a whole number between 1 and"),
        ({"length": [2, 1, 2, 1], "truncated": [False] * 4}, "old_logprob[2] has 3 entries, but length[2] is 2"),
        ({"length": [2, 1.5, 3, 1]}, "length[1] must be a whole number"),
        ({"length": [2, True, 3, 1]}, "length[1] must be a whole number between 1 and 1000000, but is true"),
        ({"max_length": 2}, "length of rollout 2 must be at most max_length, 2, but is 3"),
        ({"truncated": [0, 0, "yes", 0]}, "truncated[2] must be true or false, but is 'yes'"),
        (tokens([-0.1, -2], [0.3]), "old_logprob[1][0] must be a log-prob, at most 0, but is 0.3"),
        (tokens([-0.1, NAN]), "old_logprob[0][1] must be a finite number, but is nan"),
        (tokens([-0.1, False]), "old_logprob[0][1] must be a finite number, but is false"),
        (tokens([-0.1]), "old_logprob[0] has 1 entries, but length[0] is 2: give one a token"),
        (tokens([]), "old_logprob[0] has 0 entries, but length[0] is 2"),
        ({"old_logprob": [-0.1, -0.2, -0.3, -0.4]}, "old_logprob[0] must be a list, but is -0.1"),
        ({"entropy": [[0.1, -1.2], [0.3], [0.1, 0.5, 1], [0.7]]}, "entropy[0][1] must be an entropy, at least 0"),
        ({"proxy_logprob": [[0.1, -1.2], [-0.3], [-0.1, -0.5, -1], [-0.7]]}, "proxy_logprob[0][0] must be a log-prob"),
        ({"group": [0, 0, 0, 1]}, "group 1 has rollout 3 alone, but GRPO compares the rollouts of a group"),
        ({"group": ["a", "a", "b", "b"]}, "group[0] must be a whole number, one for each prompt, but is 'a'"),
        ({"group": [0, 0, -1, -1]}, "group[2] must be a whole number between 0 and"),
        (
            {"group": [0, 0, 10**30, 1]},
            "group[2] must be a whole number between 0 and 9007199254740992, but is too large",
        ),
        ({"group": [], "reward": [], "length": [], "truncated": [], "old_logprob": [], "entropy": []}, "no rollouts"),
        ({"rewards": [1, 0, 0, 0]}, "the batch has an unknown key 'rewards'; did you mean reward?"),
        ({"x" * 100_000: 1}, "the batch has an unknown key 'xxx"),
        ({"seed": -1}, "seed must be a whole number between 0 and"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"step": "3"}, "step must be a whole number between 0 and 1000000, but is '3'"),
        ({"total_steps": 0}, "total_steps must be a whole number between 1 and"),
    ],
)
def test_batches_that_cannot_be(core: Shell, save, changes: dict, sentence: str) -> None:
    refusal = core.refuses("advantage", save(**changes), "--method", "grpo", "--json")
    assert sentence in refusal and len(refusal) < 300
    assert core.out == ""


def test_a_lone_rollout_is_well_where_nothing_is_compared(core: Shell, save, ask) -> None:
    alone = {"group": [0, 0, 0, 1]}
    assert [row[0] for row in ask("--method", "pm1", **alone)["advantage"]] == [1, -1, -1, -1]
    assert ask("--method", "nsr_pm1", **alone)["kept"] == [False, True, True, True]
    assert ask("--method", "reinforce_pp", **alone)["advantage"]
    words = ["advantage", save(**alone), "--method", "pm1", "--method", "rloo"]
    assert "group 1 has rollout 3 alone, but RLOO compares" in core.refuses(*words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "batch.json: cannot be read as JSON (Expecting property name"),
        ("", "batch.json: cannot be read as JSON (Expecting value"),
        ("[1, 2]", "the batch must be an object with the keys group, reward, length, max_length and truncated"),
        ("null", "the batch must be an object"),
        ('{"group": [0], "reward": [1], "group": [1]}', "(the key 'group' stands twice in one object)"),
        ('{"\\u001b[31m": 1, "\\u001b[31m": 1}', "stands twice"),
        (b"\xff\xfe{}", "batch.json: byte 0 is not UTF-8, which a batch file must be"),
        (b'{"group": "\xe9"}', "batch.json: byte 11 is not UTF-8"),
        ("[" * 100_000, "batch.json: cannot be read as JSON"),
        ('{"seed": ' + "9" * 10_000 + "}", "batch.json: cannot be read as JSON"),
        ('{"group": ' + "[" * 900 + "]" * 900 + "}", "the batch lacks"),
    ],
)
def test_files_that_are_no_batch(core: Shell, save, text: str | bytes, sentence: str) -> None:
    refusal = core.refuses("advantage", save(text), "--method", "grpo")
    assert sentence in refusal and "\x1b" not in refusal and len(refusal) < 300
    assert core.out == ""


def test_deep_lists_where_a_number_belongs(core: Shell, save) -> None:
    text = json.dumps(BATCH).replace("[1, 0, 0, 0]", "[1, 0, " + "[" * 900 + "]" * 900 + ", 0]")
    assert "reward[2] must be a finite number, but is a list" in core.refuses(
        "advantage", save(text), "--method", "grpo"
    )


def test_the_literals_of_json_that_are_no_json(core: Shell, save) -> None:
    for literal in ("NaN", "Infinity", "-Infinity", "1e999"):
        text = json.dumps(BATCH).replace('"reward": [1,', f'"reward": [{literal},')
        refusal = core.refuses("advantage", save(text), "--method", "grpo")
        assert refusal.startswith("reward[0] must be a finite number, but is ")


def test_a_byte_order_mark_is_forgiven(core: Shell, save) -> None:
    assert core("advantage", save("\ufeff" + json.dumps(BATCH)), "--method", "grpo") == 0


def test_places_that_are_no_file(core: Shell, tmp_path: Path) -> None:
    assert core.refuses("advantage", tmp_path, "--method", "grpo") == f"{tmp_path}: is a directory"
    missing = tmp_path / "missing.json"
    assert core.refuses("advantage", missing, "--method", "grpo") == f"{missing}: no such file or directory"


def test_huge_files_are_not_read(core: Shell, save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_file, "LARGEST", 2_000_000)
    path = save()
    os.truncate(path, 3_000_000)
    refusal = core.refuses("advantage", path, "--method", "grpo")
    assert refusal.endswith("batch.json: larger than 2 MB, the largest batch file that is read")
