"""prime-rl traces: a tree of nodes, values for masked-in tokens alone, null advantages, score x weight, two folders."""

import json

import pytest

from core.importers.base import Report
from core.importers.formats.prime_rl import IN_BOTH
from tests.core.importers.formats.reading import example_rows, read, write_lines

EXAMPLE = "prime_rl/rollouts/step_3/train/effective/traces.jsonl"


@pytest.fixture
def episode():
    return example_rows(EXAMPLE)[0]


def node(role, text, ids, mask, logprobs=(), sampled=None, **more):
    return {"message": {"role": role, "content": text}, "sampled": role == "assistant" if sampled is None else sampled,
            "token_ids": ids, "mask": mask, "logprobs": list(logprobs), **more}  # fmt: skip


def read_one(tmp_path, episode, report=None):
    (row,) = read(write_lines(tmp_path / "traces.jsonl", [episode]), report)
    return row


def test_values_lie_at_the_masked_in_tokens_and_the_rest_is_null(tmp_path, episode):
    episode["traces"][0]["nodes"] = [
        node("user", "q", [1, 2], [False, False]),
        node("assistant", "a", [3, 4, 5], [False, True, True], [-1.0, -2.0], parent=0, advantages=[0.5, 0.25]),
        node("tool", "t", [6, 7], [False, False], parent=1),
        node("assistant", "b", [8, 9], [False, True], [-3.0], parent=2, advantages=[0.125]),
    ]
    row = read_one(tmp_path, episode)
    assert row["token_ids"] == [4, 5, 6, 7, 8, 9]
    assert row["kept"] == [True, True, False, False, False, True]
    assert row["sampler_logprob"] == [-1.0, -2.0, None, None, None, -3.0]
    assert row["token_advantage"] == [0.5, 0.25, None, None, None, 0.125]
    assert row["length"] == 6
    assert row["prompt"] == "q"
    assert row["text"] == "assistant: a\n\ntool: t\n\nassistant: b"


@pytest.mark.parametrize("given", ["null", "absent"])
def test_null_advantages_are_none_and_not_zeros(tmp_path, episode, given):
    answer = episode["traces"][0]["nodes"][1]
    answer["advantages"] = None
    if given == "absent":
        del answer["advantages"]
    row = read_one(tmp_path, episode)
    assert "token_advantage" not in row
    assert row["sampler_logprob"] == pytest.approx([-0.4, -0.1])


def test_an_advantage_that_is_null_for_one_token_is_null_there(tmp_path, episode):
    episode["traces"][0]["nodes"][1]["advantages"] = [None, 0.5]
    assert read_one(tmp_path, episode)["token_advantage"] == [None, 0.5]


def test_of_several_branches_the_longest_is_taken_and_noted(tmp_path, episode):
    episode["traces"][0]["nodes"] = [
        node("user", "q", [1], [False]),
        node("assistant", "short", [2], [True], [-1.0], parent=0),
        node("assistant", "long", [3, 4], [True, True], [-1.0, -2.0], parent=0),
    ]
    report = Report()
    assert read_one(tmp_path, episode, report)["text"] == "long"
    assert any("branches" in note for note in report.notes)


@pytest.mark.parametrize("parent", [1, 5, -1, "0", True])
def test_nodes_that_form_no_tree_are_refused(tmp_path, episode, parent):
    report = Report()
    good = json.loads(json.dumps(episode))
    episode["traces"][0]["nodes"][1]["parent"] = parent
    assert len(read(write_lines(tmp_path / "traces.jsonl", [good, episode]), report)) == 1
    assert report.refused == {"`parent` of a node is no earlier node": 1}


def test_nodes_without_parents_follow_one_another(tmp_path, episode):
    del episode["traces"][0]["nodes"][1]["parent"]
    row = read_one(tmp_path, episode)
    assert (row["prompt"], row["text"]) == ("What is 2+3?", "5")


def test_the_reward_is_score_times_weight(tmp_path, episode):
    episode["traces"][0]["rewards"] = {
        "right": {"score": 1.0, "weight": 0.5}, "style": {"score": 0.5}, "judge": {"score": None, "weight": 1.0},
        "plain": 0.25,
    }  # fmt: skip
    row = read_one(tmp_path, episode)
    assert row["parts"] == {"right": 0.5, "style": 0.5, "plain": 0.25}
    assert "reward" not in row


def test_keys_may_be_absent(tmp_path):
    episode = {"run": {}, "traces": [{"nodes": [{"message": {"role": "assistant", "content": "a"}}]}]}
    row = read_one(tmp_path, episode)
    assert row["text"] == "a"
    assert {"token_ids", "length", "step", "group"} & set(row) == set()


def test_a_list_of_another_length_is_left_empty_and_noted(tmp_path, episode):
    episode["traces"][0]["nodes"][1]["logprobs"] = [-1.0]
    report = Report()
    row = read_one(tmp_path, episode, report)
    assert "sampler_logprob" not in row
    assert row["token_ids"] == [13, 2]
    assert any("`logprobs`" in note for note in report.notes)


def test_only_trained_agents_are_rollouts(tmp_path, episode):
    judge = json.loads(json.dumps(episode["traces"][0]))
    judge["agent"] = {"name": "judge", "trainable": False}
    episode["traces"].append(judge)
    assert len(read(write_lines(tmp_path / "traces.jsonl", [episode]))) == 1


def test_agents_that_are_trained_together_are_groups_of_their_own(tmp_path, episode):
    other = json.loads(json.dumps(episode["traces"][0])) | {"agent": {"name": "other"}, "id": "t99"}
    episode["traces"].append(other)
    rows = read(write_lines(tmp_path / "traces.jsonl", [episode]))
    assert [row["group"] for row in rows] == ["g0/agent", "g0/other"]


def test_what_is_only_in_all_was_sampled_but_not_trained(tmp_path, episode):
    rows = example_rows(EXAMPLE)
    step = tmp_path / "rollouts" / "step_3" / "train"
    write_lines(step / "effective" / "traces.jsonl", rows[:2])
    write_lines(step / "all" / "traces.jsonl", rows)
    write_lines(tmp_path / "rollouts" / "step_3" / "eval" / "all" / "traces.jsonl", rows[:1])
    report = Report()
    found = read(tmp_path, report)
    assert report.refused == {IN_BOTH: 2}
    train = {row["sample"]: row["kept"] for row in found if row["split"] == "train"}
    assert train == {"t00": [True] * 2, "t01": [True] * 2, "t10": [False] * 2, "t11": [False] * 2}
    assert [row["kept"] for row in found if row["split"] == "eval"] == [[True, True]]


def test_an_episode_that_failed_before_the_first_message_is_refused(tmp_path, episode):
    failed = json.loads(json.dumps(episode)) | {"ok": False}
    failed["traces"][0]["nodes"] = failed["traces"][0]["nodes"][:1]
    report = Report()
    assert len(read(write_lines(tmp_path / "traces.jsonl", [episode, failed]), report)) == 1
    assert report.refused == {"no node of the trace was sampled": 1}
