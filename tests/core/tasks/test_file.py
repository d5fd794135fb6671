"""A dataset file of the user's own: any of its formats, split by the text alone, every unusable row told."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config_tasks import TaskSettings
from core.tasks import TaskError, file, file_prompts, get_task
from core.tasks.file import is_held_out, resolved
from core.tasks.rows import look, rows

GOOD = [{"question": f"{a}+{b}=?", "result": a + b} for a in range(10) for b in range(10)]


def settings(path: Path | str, verify: dict | None = None, **more: object) -> TaskSettings:
    columns = {"path": str(path), "prompt": "question", "answer": "result", **more}
    return TaskSettings(name="file", file=columns, verify=verify or {"kind": "numeric"})


def jsonl(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture(params=["jsonl", "csv", "tsv", "parquet"])
def dataset(request, tmp_path) -> Path:
    path = tmp_path / f"sums.{request.param}"
    if request.param == "jsonl":
        return jsonl(path, *GOOD)
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(GOOD), path, row_group_size=7)
        return path
    mark = {"csv": ",", "tsv": "\t"}[request.param]
    table = [["result", "question"], *([str(row["result"]), row["question"]] for row in GOOD)]
    path.write_text("\ufeff" + "\n".join(mark.join(cells) for cells in table) + "\n")
    return path


def test_every_format_gives_the_same_prompts(dataset, tmp_path):
    found = file_prompts(settings(dataset))
    assert not found.refused
    assert {prompt.text: prompt.answer for prompt in found.train + found.held} == {
        row["question"]: str(row["result"]) for row in GOOD
    }
    assert found.train_pool(9, 0) == file_prompts(settings(jsonl(tmp_path / "again.jsonl", *GOOD))).train_pool(9, 0)
    names, first = look(dataset)
    assert set(names) == {"question", "result"} and len(first) == 5


def test_the_split_is_by_the_text_and_grows_with_the_share(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *GOOD)
    fifth, half = file_prompts(settings(path)), file_prompts(settings(path, held_out=0.5))
    sides = [({p.text for p in found.train}, {p.text for p in found.held}) for found in (fifth, half)]
    for train, held in sides:
        assert not train & held and len(train | held) == 100
    assert sides[0][1] < sides[1][1]
    assert 8 <= len(fifth.held) <= 35 and 35 <= len(half.held) <= 65
    other = file_prompts(settings(jsonl(tmp_path / "b.jsonl", *GOOD[::-1][:50]), held_out=0.5))
    assert {p.text for p in other.held} == {p.text for p in half.held} & {row["question"] for row in GOOD[50:]}
    assert all(is_held_out(prompt.text, 0.5) for prompt in other.held)


def test_a_larger_pool_begins_with_a_smaller_one_and_a_seed_shuffles_it(tmp_path):
    found = file_prompts(settings(jsonl(tmp_path / "a.jsonl", *GOOD)))
    assert found.train_pool(30, 0)[:10] == found.train_pool(10, 0) != found.train_pool(10, 1)
    assert found.held_out(6)[:3] == found.held_out(3)
    assert len(found.train_pool(1000, 0)) == len(found.train)


def test_the_template_is_what_the_model_reads_and_leaves_the_split(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *GOOD)
    plain, told = file_prompts(settings(path)), file_prompts(settings(path, template="Q: {prompt} {x}"))
    assert {f"Q: {p.text} {{x}}" for p in plain.held} == {p.text for p in told.held}


def test_rows_that_cannot_be_used_are_counted_by_reason(tmp_path):
    path = tmp_path / "bad.jsonl"
    jsonl(
        path, *GOOD[:3], {"question": "", "result": 1}, {"question": "a?"}, "not json", '"text"', GOOD[0],
        {"question": "0+0=?", "result": 9}, {"question": ["a", "b"], "result": 1},
        {"question": "b?", "result": {"x": 1}}, {"question": "c?", "result": float("nan")},
        {"question": "d?", "result": True}, {"question": "e?", "result": "x"},
        '{"question": "\\ud800", "result": 1}', {"question": "q" * 60_000, "result": 1}, "[" * 100_000, "",
        {"question": None, "result": 2}, {"question": 7, "result": 7},
    )  # fmt: skip
    with path.open("ab") as out:
        out.write(b'{"question": "\xff", "result": 1}\n')
        out.write(b'{"question": "torn", "res')
    found = file_prompts(settings(path))
    assert {prompt.text for prompt in found.train + found.held} == {"0+0=?", "0+1=?", "0+2=?", "7"}
    assert found.refused == {
        "no prompt": 2, "no answer": 2, "not JSON": 3, "not a JSON object": 1, "not UTF-8": 2,
        "the prompt stands above already, with the same answer": 1,
        "the prompt stands above already, with another answer": 1,
        "the prompt is neither text nor a number": 1, "the answer is neither text nor a number": 2,
        "the answer is no number": 1, "the prompt has more than 50000 characters": 1,
    }  # fmt: skip
    assert found.first["no prompt"] == "line 4" and found.first["not JSON"] == "line 6"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "question;result\n1+1=?;2\n3,5+1=?;4\n"),
        ("a.csv", "question\tresult\n1+1=?\t2\n3;5\t4\n"),
        ("a.csv", '"question, short";question;result\n"x, y; z";1+1=?;2\n;3+1=?;4\n'),
        ("a.csv", 'question,"result; a number; no unit"\n1+1=?,2\n3;1=?,4\n'),
        ("a.csv", 'question,result\n"1;1;\n=?",2\n3+1=?,4\n'),
        ("a.tsv", "question,result\n1+1=?,2\n3+1=?,4\n"),
        ("a.tsv", "question\tresult\n1,1,1=?\t2\n3+1=?\t4\n"),
    ],
)
def test_the_separator_of_a_table_is_that_of_its_first_line(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    answer = next(name for name in look(tmp_path / name)[0] if name.startswith("result"))
    found = file_prompts(settings(tmp_path / name, answer=answer))
    assert sorted(prompt.answer for prompt in found.train + found.held) == ["2", "4"] and not found.refused


def test_bad_rows_of_csv(tmp_path):
    path = tmp_path / "bad.csv"
    long = "y" * 200_000
    path.write_bytes(b'question,result\n"1+1=?",2\n1+2=?\n"2+2=?",4,5\n\n\xff+1,3\n' + f'"{long}",3\n'.encode())
    found = file_prompts(settings(path))
    assert [prompt.text for prompt in found.train + found.held] == ["1+1=?"]
    assert found.refused["not as many fields as the first line"] == 2
    assert found.refused["not UTF-8"] == 1
    assert found.refused.total() >= 4


def test_chats_lists_and_fields_within_columns_are_text(tmp_path):
    row = {"prompt": [{"role": "user", "content": "1+1=?"}], "reward_model": {"ground_truth": ["2"]}}
    path = tmp_path / "chat.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    assert "reward_model.ground_truth" in look(path)[0]
    found = file_prompts(settings(path, prompt="prompt", answer="reward_model.ground_truth"))
    assert [(prompt.text, prompt.answer) for prompt in found.train + found.held] == [("1+1=?", "2")]


def test_only_so_many_rows_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "MOST_ROWS", 10)
    found = file_prompts(settings(jsonl(tmp_path / "a.jsonl", *GOOD)))
    assert len(found.train) + len(found.held) == 10 and found.unread


def test_a_line_without_end_is_one_bad_row(tmp_path, monkeypatch):
    monkeypatch.setattr("core.tasks.rows.LONGEST_LINE", 100)
    path = jsonl(tmp_path / "a.jsonl", GOOD[0], "x" * 5000, GOOD[1])
    assert [where for where, row in rows(path) if isinstance(row, str)] == ["line 2"]
    assert len([row for _, row in rows(path) if not isinstance(row, str)]) == 2


def test_a_changed_file_is_read_again(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *GOOD)
    assert len(file_prompts(settings(path)).train) > 50
    jsonl(path, *GOOD[:4])
    assert len(file_prompts(settings(path)).train + file_prompts(settings(path)).held) == 4


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("", b"", r"^task\.file\.path is empty: name a \.jsonl"),
        ("none.jsonl", None, r"^task\.file\.path: there is no file .*none\.jsonl$"),
        ("a.pkl", b"\x80\x04", r"^task\.file\.path: .* ends in \.pkl; it must be a \.jsonl, \.parquet or \.csv"),
        ("a", b"{}", "ends in nothing"),
        ("list.json", b' [{"question": 1}]', r"is one JSON list; write one object a line"),
        ("a.parquet", b"not parquet at all", r"is not Parquet, or damaged"),
        ("b.parquet", b"", "is empty"),
        ("empty.jsonl", b"", r"has no row that can be used$"),
        ("twice.csv", b"question,question\n1,2\n", "names a column twice"),
        (
            "latin.csv",
            "question,l\u00f6sung\n1,2\n".encode("latin-1"),
            r"first line of .*latin\.csv is not UTF-8; save",
        ),
        (
            "cells.csv",
            "question;result\nL\u00f6se 1+1;2\n".encode("latin-1"),
            r"cells\.csv is not UTF-8: save it as UTF-8$",
        ),
        ("w.jsonl", '{"question": 1}\n'.encode("utf-16"), r"no row that can be used \(1 × not UTF-8, 1 × not JSON\)"),
        ("wide.csv", "question\tresult\n1+1\t2\n".encode("utf-16"), r"wide\.csv is not UTF-8; save"),
        (
            "latin.jsonl",
            '{"question": "L\u00f6se", "result": 2}\n'.encode("latin-1"),
            r"latin\.jsonl is not UTF-8: save it as UTF-8$",
        ),
        (
            "long.csv",
            b"question,result" + b"x" * 200_000 + b"\n1,2\n",
            r"first line of .*long\.csv names no columns \(field",
        ),
        (
            "c.jsonl",
            b'{"prompt": "1+1=?", "result": 2}\n',
            r"^task\.file\.prompt: .* has no column 'question' with anything in it; it has 'prompt', 'result'$",
        ),
        (
            "d.jsonl",
            b'{"question": "1+1=?", "answer": 2}\n',
            r"^task\.file\.answer: .* has no column 'result' with anything in it; it has 'question', 'answer'$",
        ),
        (
            "e.jsonl",
            b'{"question": "1+1=?", "result": "x"}\n',
            r"no row that can be used \(1 × the answer is no number",
        ),
        ("null\x00.csv", None, r"^task\.file\.path: "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, name, content, words):
    path = str(tmp_path / name) if name else ""
    if content is not None and name:
        Path(path).write_bytes(content)
    with pytest.raises(TaskError, match=words):
        get_task(settings(path))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(TaskError, match="is no file"):
        file_prompts(settings(tmp_path / "x.csv"))


def test_a_relative_path_starts_here_or_in_the_lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "README.md")
    assert resolved("README.md") == tmp_path / "README.md"
    assert resolved("pyproject.toml") == file.REPO / "pyproject.toml"
    assert resolved("nowhere.csv") == tmp_path / "nowhere.csv"


def test_the_task_verifies_with_the_chosen_verifier(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *GOOD)
    task = get_task(settings(path))
    prompt = task.train_pool(1, 0)[0]
    assert task.verify(prompt, f"it is {prompt.answer}.0").correctness == 1
    exact = get_task(settings(path, {"kind": "auto"}))
    assert exact.verify(prompt, f"{prompt.answer}.0").correctness == 0
    assert exact.verify(prompt, prompt.answer).correctness == 1
