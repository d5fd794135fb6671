"""Finding rollouts and tokens, against plain Python over the same rows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.store import Lab, StoreError, open_runs
from core.store.queries import find as query
from core.store.queries.find import Text, Where
from tests.synthetic import make_run

WHOLE = Where("live", "train", 0, 99)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("find")
    paths: list[Path] = [
        make_run(root, "live", method="a3po", steps=6, prompts=4, group_size=6, state="running"),
        make_run(root, "sealed", steps=4, prompts=3, group_size=4, seed=1, sealed=True),
    ]
    return open_runs(paths)


@pytest.fixture(scope="module")
def rollouts(lab) -> pd.DataFrame:
    return lab.df("SELECT * FROM rollouts WHERE run = 'live' AND split = 'train'")


@pytest.fixture(scope="module")
def tokens(lab) -> pd.DataFrame:
    frame = lab.df(
        'SELECT t.*, r.polarity FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE run = 'live' AND split = 'train'"
    )
    p = np.exp(frame["sampler_logprob"].astype(float))
    return frame.assign(
        push=frame["advantage"] * (1 - p), change=frame["after_logprob"].astype(float) - frame["trainer_logprob"]
    )


def places(frame: pd.DataFrame) -> list[tuple[int, int, int]]:
    return list(frame[["step", "group", "rollout"]].astype(int).itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (Text("CHECK"), lambda text: "check" in text.lower()),
        (Text("CHECK", case=True), lambda text: "CHECK" in text),
        (Text("wait", case=True), lambda text: "wait" in text),
        (Text("1+"), lambda text: "1+" in text),
        (Text("\\boxed{1"), lambda text: "\\boxed{1" in text),
        (Text(r"so \d\d? then", regex=True), lambda text: re.search(r"so \d\d? then", text, re.IGNORECASE)),
        (Text(r"^1\d SO", regex=True), lambda text: re.search(r"^1\d so", text, re.IGNORECASE)),
        (Text(r"SO", regex=True, case=True), lambda text: False),
        (Text("' OR true --"), lambda text: False),
    ],
)
def test_text_is_found_where_it_stands(lab, rollouts, wanted, holds):
    hits, total = query.by_text(lab, WHOLE, wanted, 1000)
    exact = rollouts[[bool(holds(text)) for text in rollouts["text"]]]
    assert total == len(exact) and set(places(hits)) == set(places(exact))
    assert hits["step"].is_monotonic_decreasing


def test_pages_follow_each_other(lab, rollouts):
    pages = [query.by_text(lab, WHOLE, Text("boxed"), 7, offset) for offset in (0, 7, 14)]
    every, total = query.by_text(lab, WHOLE, Text("boxed"), 21)
    assert [place for page, _ in pages for place in places(page)] == places(every)
    assert {n for _, n in pages} == {total} == {sum("boxed" in text for text in rollouts["text"])}


@pytest.mark.parametrize(("pattern", "why"), [("(", "missing )"), ("[a", "missing ]"), ("a**", "repetition")])
def test_a_pattern_that_cannot_be_read_is_one_sentence(lab, pattern, why):
    with pytest.raises(StoreError, match=r"^This is not a regular expression: [^\n]*" + re.escape(why)):
        query.check(lab, Text(pattern, regex=True))
    query.check(lab, Text(pattern))  # as plain words it is fine


def test_a_lone_surrogate_is_searched_as_the_store_keeps_it(lab):
    assert query.by_text(lab, WHOLE, Text("\ud800"), 10)[1] == 0


@pytest.mark.parametrize("wanted", [Text("SO"), Text(r"\bthen\b", regex=True), Text(r"(\d+)$", regex=True), Text("zz")])
def test_spans_are_the_first_match(lab, rollouts, wanted):
    texts = rollouts["text"].tolist()[:20]
    pattern = re.compile(wanted.text if wanted.regex else re.escape(wanted.text), re.IGNORECASE)
    exact = [found.span() if (found := pattern.search(text)) else (0, 0) for text in texts]
    assert query.spans(lab, wanted, texts) == exact


def test_filters_narrow(lab, rollouts):
    where = Where("live", "train", 2, 3, polarity=-1)
    hits, total = query.by_find(lab, where, "longest", 1000)
    exact = rollouts[rollouts["step"].between(2, 3) & (rollouts["polarity"] < 0)]
    assert total == len(exact) and set(places(hits)) == set(places(exact))
    assert query.by_find(lab, Where("live", "probe", 0, 99), "longest", 1)[1] == 2 * 6 * 2  # steps 0 and 4


def test_longest_first(lab, rollouts):
    hits, _ = query.by_find(lab, WHOLE, "longest", 10)
    length = rollouts.set_index(["step", "group", "rollout"])["length"]
    assert [length[place] for place in places(hits)] == sorted(length, reverse=True)[:10]


def test_repeats_are_the_stores_share(lab, rollouts):
    hits, total = query.by_find(lab, WHOLE, "repeats", 1000)
    assert total == (rollouts["repeated"] >= query.REPEATED).sum() > 0
    share = rollouts.set_index(["step", "group", "rollout"])["repeated"]
    found = [share[place] for place in places(hits)]
    assert found == sorted(found, reverse=True)


def test_the_same_answer_several_times(lab, rollouts):
    hits, total = query.same_answers(lab, WHOLE, 1000)
    counts = rollouts.groupby(["step", "group", "text"]).agg(times=("rollout", "size"), rollout=("rollout", "min"))
    exact = counts[counts["times"] > 1].reset_index()
    assert total == len(exact) > 0
    assert sorted(zip(places(hits), hits["times"], strict=True)) == sorted(
        zip(places(exact), exact["times"], strict=True)
    )
    assert hits["times"].is_monotonic_decreasing


def test_luck_and_crossed_signs_come_from_the_rollouts(tmp_path, monkeypatch):
    """Written through the store with traits and base advantages as a verifier and a penalty could give them."""
    import tests.synthetic as synthetic

    real = synthetic._traits
    monkeypatch.setattr(synthetic, "_traits", lambda tokens, right: real(tokens, right) | {"lucky": float(right)})
    lab = open_runs([make_run(tmp_path, "live", steps=2, prompts=3, group_size=4, evaluate={"every": 0})])
    hits, total = query.by_find(lab, WHOLE, "lucky", 100)
    right = lab.df("SELECT * FROM rollouts WHERE correct")
    assert total == len(right) > 0 and set(places(hits)) == set(places(right))
    assert query.recorded(lab, WHOLE, "lucky") and query.recorded(lab, WHOLE, "repeats")
    for find in ("suppressed", "reinforced"):  # GRPO never crosses the signs
        assert query.by_find(lab, WHOLE, find, 100)[1] == 0 and query.recorded(lab, WHOLE, find)


def test_a_trait_that_no_verifier_gives_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.synthetic._traits", lambda tokens, right: {"self_check": 0.0})
    lab = open_runs([make_run(tmp_path, "live", steps=1, prompts=2, group_size=4, evaluate={"every": 0})])
    assert not query.recorded(lab, WHOLE, "lucky")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("field", ["advantage", "push", "change", "ratio"])
def test_extremes_are_the_sorted_tokens(lab, tokens, field, largest):
    got = query.extremes(lab, WHOLE, field, largest, 25)
    there = tokens[field].astype(float).dropna()
    exact = np.sort(there)[::-1][:25] if largest else np.sort(there)[:25]
    assert np.allclose(got["value"], exact, rtol=1e-5, atol=1e-7)
    assert query.with_value(lab, WHOLE, field) == len(there)
    own = tokens.set_index(["step", "group", "rollout", "position"])
    top = got.iloc[0]
    row = own.loc[(top["step"], top["group"], top["rollout"], top["position"])]
    assert row["token"] == top["token"] and row[field] == pytest.approx(top["value"], rel=1e-5, abs=1e-7)


def test_extremes_of_one_polarity_and_one_token(lab, tokens):
    where = Where("live", "train", 1, 4, polarity=-1)
    token_id = int(tokens["token_id"].mode()[0])
    got = query.extremes(lab, where, "push", False, 9, token_id=token_id)
    exact = tokens[tokens["step"].between(1, 4) & (tokens["polarity"] < 0) & (tokens["token_id"] == token_id)]
    assert np.allclose(got["value"], np.sort(exact["push"])[:9], rtol=1e-5)
    assert query.with_value(lab, where, "push", token_id) == len(exact)
    following = query.extremes(lab, where, "push", False, 4, 5, token_id)
    assert np.allclose(following["value"], got["value"][5:9])


def test_kl_is_not_there_without_a_reference(lab):
    assert query.extremes(lab, WHOLE, "kl", True, 5).empty
    assert query.with_value(lab, WHOLE, "kl") == 0


@pytest.mark.parametrize("reinforced", [True, False])
def test_strings_add_up_over_the_window(lab, tokens, reinforced):
    where = Where("live", "train", 1, 3)
    got, total = query.strings(lab, where, reinforced, 100)
    kept = tokens[tokens["step"].between(1, 3)]
    trained = kept[kept["kept"]]
    push = trained.groupby("token_id")["push"].sum()
    side = push[push > 0].sort_values(ascending=False) if reinforced else push[push < 0].sort_values()
    assert total == len(side) == len(got) > 0
    assert got["token_id"].tolist() == side.index.tolist()
    assert np.allclose(got["push"], side, rtol=1e-5)
    assert np.allclose(got["mean_push"], (push / trained.groupby("token_id").size())[side.index], rtol=1e-5)
    assert got["tokens"].tolist() == kept.groupby("token_id").size()[side.index].tolist()
    assert np.allclose(got["change"], kept.groupby("token_id")["change"].mean()[side.index], rtol=1e-4, atol=1e-7)
    sums = query.pushes(lab, where)
    assert sums["tokens"] == len(kept)
    assert sums["up" if reinforced else "down"] == pytest.approx(side.sum(), rel=1e-5)


def test_details_keep_the_order_of_the_hits(lab, rollouts):
    hits, _ = query.by_find(lab, WHOLE, "longest", 12)
    got = query.details(lab, WHOLE, hits)
    assert places(got) == places(hits)
    own = rollouts.set_index(["step", "group", "rollout"])
    assert [own.loc[place, "text"] for place in places(hits)] == got["text"].tolist()
    prompt = lab.rows(
        "SELECT prompt FROM groups WHERE run = 'live' AND split = 'train' AND step = ? AND \"group\" = ?",
        [int(got["step"][0]), int(got["group"][0])],
    )
    assert got["prompt"][0] == prompt[0]["prompt"]


def test_tokens_of_hits_whole_and_around_a_position(lab, tokens):
    hits = query.extremes(lab, WHOLE, "push", True, 6)
    whole, near = query.tokens_of(lab, WHOLE, hits), query.tokens_of(lab, WHOLE, hits, around=2)
    for row in hits.itertuples():
        at = (tokens["step"] == row.step) & (tokens["group"] == row.group) & (tokens["rollout"] == row.rollout)
        own = tokens[at].sort_values("position")
        found = whole[(whole["step"] == row.step) & (whole["group"] == row.group) & (whole["rollout"] == row.rollout)]
        assert set(found["position"]) == set(own["position"])
        part = near[(near["step"] == row.step) & (near["group"] == row.group) & (near["rollout"] == row.rollout)]
        part = part[part["at"] == row.position]
        want = own[own["position"].between(row.position - 2, row.position + 2)]
        assert part["token"].tolist() == want["token"].tolist()


def test_more_steps_than_a_list_takes_are_read_as_a_span(lab):
    assert query._steps(pd.DataFrame({"step": range(5, 300)}), "t") == " AND t.step BETWEEN 5 AND 299"
