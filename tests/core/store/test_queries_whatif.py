"""The What-if page's SQL: the steps that methods can be compared on, and the words of a group."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.store import Lab, open_runs
from core.store.queries import whatif as query
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("whatif")
    live = make_run(root, "live", steps=6, prompts=3, group_size=4, state="running")
    (live / "steps" / "step=000002" / "tokens.parquet").unlink()
    file = live / "steps" / "step=000001" / "tokens.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("token")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.nulls(len(table), pa.string())), file)
    return open_runs([live, make_run(root, "sealed", steps=4, prompts=3, group_size=4, sealed=True)])


def test_steps_without_tokens_are_left_out(lab):
    steps = query.steps_by_split(lab, "live")
    assert next(iter(steps)) == "train" and steps["train"] == [0, 1, 3, 4, 5]
    assert query.steps_by_split(lab, "sealed")["train"] == [0, 1, 2, 3]
    assert query.steps_by_split(lab, "sealed")["probe"] == [0, 4]


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_mixed_steps_have_right_and_wrong_answers_in_balance(lab, run):
    groups = lab.df("SELECT step, correct, n FROM groups WHERE run = ? AND split = 'train'", [run])
    part = groups["correct"] / groups["n"]
    assert query.mixed_steps(lab, run, "train") == sorted(set(groups.loc[(part >= 0.25) & (part <= 0.75), "step"]))


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_words_come_in_order_by_rollout(lab, run):
    texts = query.token_texts(lab, run, 3, "train", 1)
    rows = lab.rows(
        "SELECT rollout, text, length FROM rollouts WHERE run = ? AND step = 3 AND split = 'train' AND \"group\" = 1",
        [run],
    )
    assert sorted(texts) == [row["rollout"] for row in sorted(rows, key=lambda row: row["rollout"])]
    for row in rows:
        assert (
            "".join(texts[row["rollout"]]).removesuffix("⟨eos⟩") == row["text"]
            and len(texts[row["rollout"]]) == row["length"]
        )


def test_a_token_without_a_text_is_its_id(lab):
    ids = lab.df("SELECT token_id FROM tokens WHERE run = 'live' AND step = 1 AND split = 'train' AND \"group\" = 0 "
                 "AND rollout = 2 ORDER BY position")["token_id"]  # fmt: skip
    assert query.token_texts(lab, "live", 1, "train", 0)[2] == [f"#{own}" for own in ids]


def test_prompts_by_group(lab):
    prompts = query.prompts(lab, "sealed", 2, "train")
    assert list(prompts) == [0, 1, 2] and all(prompt.endswith("=?") for prompt in prompts.values())
