"""Find on the Tokens page: hits and their counts, links that lead to the match, hostile text, pages and files."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.palette import LIGHT
from app.tokens.find import AT_FIRST, FINDS
from app.views import tokens_find as view
from app.views.tokens_fields import FIELDS
from core.store import open_runs
from tests.app.conftest import texts
from tests.app.test_tokens_map import earlier
from tests.browser.hostile import HOSTILE
from tests.synthetic import make_run


def table(at: AppTest) -> str:
    found = [block.proto.body for block in at.get("html") if "<table" in block.proto.body]
    assert len(found) == 1, texts(at)
    return found[0]


def links(html: str) -> list[dict[str, str]]:
    """The address of each row, as parameters."""
    found = re.findall(r'href="([^"]*)"', html)
    return [
        {name: one[0] for name, one in parse_qs(urlsplit(url.replace("&amp;", "&")).query).items()} for url in found
    ]


def test_text_leads_to_the_token_that_holds_the_match(states, open_page):
    at = open_page("tokens", view="find", run="finished", q="CHECK")
    assert not at.exception and not at.error
    lab = open_runs([states / "finished"])
    n = lab.rows("SELECT count(*) AS n FROM rollouts WHERE split = 'train' AND contains(text, 'check')")[0]["n"]
    assert n > 1 and f"**{n}\u00a0answers** of steps 0 to 5 (training) hold “CHECK”" in texts(at)
    html = table(at)
    assert html.count("<mark") == min(n, 50) == html.count(">check</mark>")
    for place in links(html):
        token = lab.rows(
            "SELECT token FROM tokens WHERE split = 'train' AND step = ? AND \"group\" = ? AND rollout = ? "
            "AND position = ?",
            [int(place[name]) for name in ("step", "group", "rollout", "position")],
        )
        assert token[0]["token"] == " check "


def test_case_and_regular_expressions_are_choices(states, open_page):
    at = open_page("tokens", view="find", run="finished", q="CHECK", case=1)
    assert "No answer of steps 0 to 5 (training) holds “CHECK”." in texts(at)
    at = open_page("tokens", view="find", run="finished", q=r"(\d+) so", regex=1, answers="right")
    assert "the pattern “" in texts(at) and "right answers" in texts(at)
    assert all(re.fullmatch(r"\d+ so", mark) for mark in re.findall(r"<mark[^>]*>([^<]*)</mark>", table(at)))
    at = open_page("tokens", view="find", run="finished", q="(", regex=1)
    assert not at.exception and len(at.error) == 1
    assert at.error[0].value.startswith("This is not a regular expression\\: missing")


def test_it_opens_with_the_strings_and_waits_for_a_text(states, open_page):
    at = open_page("tokens", view="find", run="finished")
    assert not at.exception and "Write what to look for" not in texts(at) and "push" in table(at)
    at = open_page("tokens", view="find", run="finished", find="text")
    assert not at.exception and "Write what to look for" in texts(at)


@pytest.mark.parametrize("find", [find for find in FINDS if find not in ("text", "suppressed", "reinforced", "lucky")])
def test_every_ready_find_draws_its_hits(states, open_page, find):
    at = open_page("tokens", view="find", run="finished", find=find)
    assert not at.exception and not at.error
    if find == "truncated":
        assert "There is nothing of the kind in steps 0 to 5 (training): 0 hits." in texts(at)
    else:
        assert table(at).count("<tr>") > 1 and links(table(at))


@pytest.mark.parametrize("find", ["lucky", "suppressed", "reinforced"])
def test_what_a_run_does_not_have_is_nothing_found(states, open_page, find):
    at = open_page("tokens", view="find", run="finished", find=find)
    assert not at.exception and "0 hits" in texts(at)


def test_a_task_that_cannot_tell_luck_says_so(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    monkeypatch.setattr("tests.synthetic._traits", lambda tokens, right: {"self_check": 0.0})
    make_run(tmp_path, "plain", steps=2, prompts=2, group_size=4)
    at = open_page("tokens", view="find", run="plain", find="lucky")
    assert "This task's verifier cannot tell" in texts(at) and not at.exception


def test_a_run_of_an_earlier_version_says_what_it_lacks(tmp_path: Path, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    earlier(make_run(tmp_path, "old", steps=2, prompts=2, group_size=4), ())
    at = open_page("tokens", view="find", run="old", find="strings")
    assert "earlier version of the lab" in texts(at) and not at.exception


def test_the_most_extreme_tokens_and_their_window(states, open_page):
    at = open_page("tokens", view="find", run="finished", find="tokens", steps=[1, 2], end="smallest")
    lab = open_runs([states / "finished"])
    tokens = lab.df("SELECT * FROM tokens WHERE split = 'train' AND step BETWEEN 1 AND 2")
    push = tokens["advantage"] * (1 - np.exp(tokens["sampler_logprob"]))
    assert f"of the **{len(tokens)}\u00a0tokens** kept in steps 1 to 2 (training)" in texts(at).replace("\u202f", "")
    first = tokens.loc[push.idxmin()]
    place = links(table(at))[0]
    assert [int(place[name]) for name in ("step", "group", "rollout", "position")] == [
        int(first[name]) for name in ("step", "group", "rollout", "position")
    ]
    at = open_page("tokens", view="find", run="finished", find="tokens", extreme="kl")
    assert "No token of steps 0 to 5 (training) has a value of KL to base" in texts(at)


def test_a_string_leads_to_its_tokens(states, open_page):
    at = open_page("tokens", view="find", run="sealed", find="strings", answers="right")
    place = links(table(at))[0]
    assert place["find"] == "tokens" and place["answers"] == "right" and not at.exception
    at = open_page("tokens", **place)
    lab = open_runs([states / "sealed"])
    token = lab.rows("SELECT any_value(token) AS token FROM tokens WHERE token_id = ?", [int(place["token"])])[0]
    shown = set(re.findall(r"<mark[^>]*>([^<]*)</mark>", table(at)))
    assert shown == {token["token"].replace(" ", "␣")}
    at.button(key="find:every").click().run()
    assert "token" not in at.query_params


def test_finds_that_read_everything_begin_with_the_last_steps(states, monkeypatch, open_page):
    monkeypatch.setitem(AT_FIRST, "tokens", 2)
    at = open_page("tokens", view="find", run="finished", find="tokens")
    assert "in steps 4 to 5 (training)" in texts(at)
    at = open_page("tokens", view="find", run="finished", find="tokens", steps=[0, 5])
    assert "in steps 0 to 5 (training)" in texts(at)


def test_pages_and_a_page_too_far(states, open_page):
    at = open_page("tokens", view="find", run="finished", find="longest")
    assert "1 to 50 of 72" in texts(at) and len(links(table(at))) == 50 and at.button(key="find:back").disabled
    at.button(key="find:next").click().run()
    assert at.query_params["hits"] == "2" and "51 to 72 of 72" in texts(at) and at.button(key="find:next").disabled
    at.pills(key="url:find").set_value("same").run()
    assert "hits" not in at.query_params and "1 to " in texts(at)
    at = open_page("tokens", view="find", run="finished", find="longest", hits=9)
    assert at.warning[0].value == "There is no page 9 of these hits." and not at.exception


@pytest.mark.parametrize("state", ["queued", "empty"])
def test_a_run_without_a_step_says_what_it_waits_for(states, open_page, state):
    at = open_page("tokens", view="find", run=state)
    assert not at.exception and "no step yet" in texts(at)


@pytest.mark.parametrize("choice", [{"find": "luck", "hits": 0}, {"extreme": "mood", "token": "x", "find": "tokens"}])
def test_an_impossible_choice_gives_a_sentence_and_the_default(states, open_page, choice):
    at = open_page("tokens", view="find", run="finished", **{"q": "so"} | choice)
    assert not at.exception and at.warning and table(at)


def test_a_hostile_question_is_inert(states, open_page):
    at = open_page("tokens", view="find", run="finished", q=" ".join(HOSTILE))
    assert not at.exception and "No answer" in texts(at)
    assert not re.search(r"(?<!\\)<(script|img)|(?<!\\)!\[|(?<!\\)\$\$", texts(at))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_are_inert(text):
    row = pd.DataFrame(
        {"step": [1], "group": 0, "rollout": 0, "text": text, "prompt": text, "correct": True, "truncated": True,
         "length": 3, "base_advantage": 0.5, "start": 0, "end": len(text) // 2, "position": np.nan, "note": text}
    )  # fmt: skip
    token = pd.DataFrame(
        {"step": [1], "group": 0, "rollout": 0, "position": 0, "token": text, "value": 1.0, "probability": 0.5,
         "before": text, "after": text}
    )  # fmt: skip
    string = pd.DataFrame(
        {"token_id": [1], "token": text, "push": 1.0, "mean_push": 1.0, "tokens": 3, "agreed": 1, "pushed": 2,
         "change": 0.0}
    )  # fmt: skip
    push = next(field for field in FIELDS if field.id == "push")
    made = (
        view.rollout_table(row, LIGHT, lambda **place: "tokens"),
        view.token_table(token, push, LIGHT, lambda **place: "tokens"),
        view.string_table(string, 3, LIGHT, lambda token: "tokens"),
    )
    for html in made:
        tags = set(re.findall(r"<\s*/?\s*([a-zA-Z!][\w-]*)", html))
        assert tags <= {"table", "thead", "tbody", "tr", "th", "td", "div", "span", "b", "a", "mark"}
        assert html.count("<a ") == 1 and "onerror=" not in re.sub(r">[^<]*<", "><", html)


@pytest.mark.parametrize(
    ("start", "text", "tokens", "place"),
    [
        (0, "so 1", ["so", " 1"], 0),
        (2, "so 1", ["so", " 1"], 1),
        (3, "ab1", ["<s>", "a", "b", "1"], None),
        (2, "ab1", ["<s>", "a", "b", "1", "<e>"], 3),
        (0, "ab", [], None),
    ],
)
def test_the_token_at_a_character(start, text, tokens, place):
    assert view.position_of(start, text, tokens) == place


def test_a_long_answer_is_cut_around_its_match():
    text = "x" * 500 + "HERE" + "y" * 500
    shown = view.snippet(text, 500, 504, LIGHT)
    assert ">HERE</mark>" in shown and "x" * view.AROUND + "<" in shown
    assert shown.startswith("…x") and shown.endswith(f">{'y' * view.AROUND}…")
    assert view.snippet("", 0, 0, LIGHT) == "∅"


def test_tokens_that_no_tokenizer_has_do_not_fill_the_page(no_runs, open_page):
    """Each row shows its neighbours too, so that one token of 20 kB would be sent many times."""
    run = make_run(no_runs, "long", steps=1, prompts=2, group_size=4)
    for file in run.glob("steps/*/tokens.parquet"):
        found = pq.read_table(file)
        place = found.schema.get_field_index("token")
        long = pa.array(["<b>x</b>" * 2_500] * len(found))
        pq.write_table(found.set_column(place, found.schema.field(place), long), file)
    at = open_page("tokens", view="find", find="tokens", run="long")
    assert not at.exception
    assert "&lt;b&gt;x" in table(at) and len(table(at)) < 2e6
