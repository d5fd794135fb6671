"""What is easily got wrong in verifiers, open-instruct, ms-swift, tinker-cookbook and AReaL."""

import pytest

from core.importers.base import Report
from core.importers.formats.ms_swift import REPEATED
from core.importers.formats.verifiers import seconds
from tests.core.importers.formats.reading import EXAMPLES, example_rows, read, write_lines

VERIFIERS = "verifiers/outputs/evals/sum--m/ab12cd34/results.jsonl"
OPEN_INSTRUCT = "open_instruct/run1_rollouts_000000.jsonl"
TINKER = "tinker/iteration_000003/train_rollout_summaries.jsonl"


@pytest.mark.parametrize(
    "timing",
    [
        {"generation_ms": 11.0, "scoring_ms": 0.5, "total_ms": 11.5},
        {
            "start_time": 1.7e9,
            "generation": {"start": 1.0, "duration": 0.011},
            "scoring": 0.0005,
            "total": {"duration": 0.0115},
        },
    ],
)
def test_verifiers_timing_in_either_shape_is_seconds(timing):
    assert seconds(timing) == pytest.approx(
        {"seconds_generation": 0.011, "seconds_scoring": 0.0005, "seconds_total": 0.0115}
    )


@pytest.mark.parametrize("timing", [None, [], "fast", {"total_ms": "soon", "generation": None}])
def test_verifiers_timing_in_no_shape_is_none(timing):
    assert seconds(timing) == {}


def test_verifiers_messages_and_metrics(tmp_path):
    row = example_rows(VERIFIERS)[0] | {
        "completion": [
            {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]},
            {"role": "tool", "content": "5"},
            {"role": "assistant", "content": "5", "reasoning_content": "Easy."},
        ],
        "is_truncated": True, "num_turns": 2, "metrics": {"right": 1.0, "note": "text"},
    }  # fmt: skip
    found = read(write_lines(tmp_path / "results.jsonl", [row]))[0]
    assert found["text"] == 'assistant: [{"name": "add"}]\n\ntool: 5\n\nassistant: <think>Easy.</think>\n5'
    assert found["truncated"] is True
    assert found["traits"]["num_turns"] == 2 and found["traits"]["right"] == 1.0
    assert "step" not in found


def test_verifiers_runs_below_one_folder_are_steps_of_their_own(tmp_path):
    for name in ("a", "b"):
        write_lines(tmp_path / name / "results.jsonl", example_rows(VERIFIERS))
    report = Report()
    assert [row["step"] for row in read(tmp_path, report)] == [0] * 4 + [1] * 4
    assert report.notes == [
        "Each of the 2 evaluations is a step of its own, in this order: a/results.jsonl, b/results.jsonl."
    ]


def test_open_instruct_groups_begin_anew_each_step(tmp_path):
    rows = [row | {"step": step} for step in (3, 4) for row in example_rows(OPEN_INSTRUCT)]
    found = read(write_lines(tmp_path / "a.jsonl", rows))
    assert [(row["step"], row["group"]) for row in found] == [
        (step, group) for step in (3, 4) for group in ("0", "0", "1", "1")
    ]
    assert [row["sample"] for row in found] == ["0", "1", "2", "3"] * 2


def test_open_instruct_has_ids_and_no_text():
    row = read(EXAMPLES / OPEN_INSTRUCT)[0]
    assert "text" not in row and "tokens" not in row
    assert (row["token_ids"], row["prompt"], row["answer"]) == ([13, 2], "token ids 10 11", "5")
    assert row["truncated"] is False


def test_open_instruct_rows_that_were_cut_are_truncated_and_bad_ids_refused(tmp_path):
    row = example_rows(OPEN_INSTRUCT)[0]
    wrong = [row | {"response_tokens": value} for value in ([1.5], [-1], [2**40], "13 2")]
    rows = [row | {"finish_reason": "length"}, *wrong, row | {"logprobs": [-1.0]}]
    report = Report()
    found = read(write_lines(tmp_path / "a.jsonl", rows), report)
    assert [row["truncated"] for row in found] == [True, False]
    assert "sampler_logprob" not in found[1]
    assert report.refused == {"`response_tokens` is no list of token ids": 4}


def swift(**more):
    return {"step": ["3", "3"], "prompt": ["p", "p"], "completion": ["a", "b"], "Accuracy": [1.0, 0.0],
            "advantages": [0.7, -0.7], "entropy": [0.5, 0.25], "length": [10, 20], **more}  # fmt: skip


def test_ms_swift_columns_before_advantages_are_rewards_and_those_behind_are_not(tmp_path):
    found = read(write_lines(tmp_path / "a.jsonl", [swift(solution=["5", "6"])]))
    assert [row["parts"] for row in found] == [{"Accuracy": 1.0}, {"Accuracy": 0.0}]
    assert found[0]["traits"] == {"entropy": 0.5, "length": 10.0}
    assert [row["answer"] for row in found] == ["5", "6"]
    assert [row["step"] for row in found] == [3, 3]


def test_ms_swift_lines_that_repeat_a_batch_are_taken_once(tmp_path):
    nothing = {"Format": [None, float("nan")]}
    rows = [swift(**nothing), swift(**nothing, step=["4", "4"]), swift(completion=["a", "c"], step=["4", "4"])]
    report = Report()
    assert [row["text"] for row in read(write_lines(tmp_path / "a.jsonl", rows), report)] == ["a", "b", "a", "c"]
    assert report.refused == {REPEATED: 2}


def test_ms_swift_rows_are_refused_one_by_one_and_columns_of_another_length_left_out(tmp_path):
    rows = [swift(completion=["a", None], Accuracy=[1.0]), swift(step=["x", "4"]), {"step": ["3"], "completion": "a"}]
    report = Report()
    found = read(write_lines(tmp_path / "a.jsonl", rows), report)
    assert [row["text"] for row in found] == ["a", "b"]
    assert "parts" not in found[0]
    assert sum(report.refused.values()) == 3
    assert report.examples["`completion` is missing"] == "a.jsonl, line 1, row 2"
    assert any("`Accuracy`" in note for note in report.notes)


def test_ms_swift_of_megatron_and_of_early_versions(tmp_path):
    ask = [{"role": "user", "content": "p"}]
    rows = [{"gen_step": [7], "prompt": ["p"], "completion": ["a"]},
            {"step": ["1"], "messages": [ask], "completion": ["b"], "reward": [0.5]}]  # fmt: skip
    first, second = read(write_lines(tmp_path / "a.jsonl", rows))
    assert (first["step"], first["prompt"]) == (7, "p")
    assert (second["prompt"], second["reward"]) == ("p", 0.5)


def test_tinker_has_lengths_only(tmp_path):
    row = example_rows(TINKER)[0]
    row["steps"] = [row["steps"][0], row["steps"][0] | {"ac_len": 5, "metrics": {"correct": 0.0}}]
    write_lines(tmp_path / "iteration_000003" / "train_rollout_summaries.jsonl", [row])
    found = read(tmp_path)[0]
    assert found["length"] == 7
    assert {"text", "prompt", "token_ids", "advantage"} & set(found) == set()
    assert found["traits"] == {"correct": 0.0, "turns": 2.0}


def test_tinker_evaluations_of_one_iteration_do_not_share_groups(tmp_path):
    folder = tmp_path / "iteration_000003"
    for name in ("eval_math", "eval_code"):
        rows = [row | {"split": name} for row in example_rows(TINKER)]
        write_lines(folder / f"{name}_rollout_summaries.jsonl", rows)
    write_lines(folder / "train_rollout_summaries.jsonl", example_rows(TINKER))
    found = read(tmp_path)
    assert len({(row["split"], row["group"]) for row in found}) == 6
    assert [row["split"] for row in found].count("train") == 4


def test_tinker_without_lengths_of_all_steps_has_none(tmp_path):
    row = example_rows(TINKER)[0]
    row["steps"][0].pop("ac_len")
    assert "length" not in read(write_lines(tmp_path / "a.jsonl", [row]))[0]


def areal(task, version, prompt="p", **more):
    return {"task_id": task, "sample_idx": 0, "seqlen": 10, "prompt_len": 4, "head_version": 1, "tail_version": version,
            "reward": 1.0, "prompt": prompt, "completion": "a", **more}  # fmt: skip


def test_areal_groups_are_tasks_and_are_trained_when_their_last_rollout_has_come(tmp_path):
    write_lines(tmp_path / "2" / "17.jsonl", [areal(17, 2), areal(17, 4), areal(17, 3)])
    write_lines(tmp_path / "2" / "18.jsonl", [areal(18, 2)])
    found = read(tmp_path)
    assert [row["step"] for row in found] == [4, 4, 4, 2]
    assert len({row["group"] for row in found}) == 2
    assert [row["traits"]["tail_version"] for row in found] == [2.0, 4.0, 3.0, 2.0]
    assert found[0]["length"] == 6


def test_areal_takes_the_folder_for_the_step_where_no_version_is_written(tmp_path):
    row = areal(17, 2)
    del row["tail_version"]
    write_lines(tmp_path / "5" / "17.jsonl", [row, areal(17, "x")])
    report = Report()
    assert [row["step"] for row in read(tmp_path, report)] == [5]
    assert report.refused == {"`tail_version` is no number": 1}


def test_areal_length_that_cannot_be_is_none(tmp_path):
    assert "length" not in read(write_lines(tmp_path / "a.jsonl", [areal(17, 2, prompt_len=11)]))[0]
