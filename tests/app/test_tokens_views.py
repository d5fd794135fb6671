"""The token view's numbers: domains, shades, factors, rows and reasons, on tokens small enough to check by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from app.palette import LIGHT
from app.views import tokens as view
from app.views import tokens_fields
from app.views.explain_loss import Term
from app.views.tokens_why import Reasons, rank_words, ranks, token_lines, why

LOG = np.log


def rollouts(**changes: object) -> pd.DataFrame:
    """Rollout 0 is right and 3 tokens long, rollout 1 wrong and 2 tokens long."""
    columns = {
        "rollout": [0, 1], "correct": [True, False], "polarity": [1, -1], "reward": [1.0, 0.0], "length": [3, 2],
        "truncated": [False, True], "kept": [True, True], "sequence_logprob": [-1.0, -0.2], "f_adora": [2.0, 2.0],
    }  # fmt: skip
    return pd.DataFrame(columns | changes)


def tokens(**changes: object) -> pd.DataFrame:
    probability = np.array([0.9, 0.2, 0.5, 0.99, 0.1])
    columns = {
        "rollout": [0, 0, 0, 1, 1], "position": [0, 1, 2, 0, 1], "token": ["7", " so ", "\n", "<b>x</b>", "\u202eevil"],
        "sampler_logprob": LOG(probability).astype("float32"), "trainer_logprob": LOG(probability).astype("float32"),
        "ref_logprob": [np.nan] * 5, "entropy": [0.1, 1.0, 0.5, 0.0, 2.0], "base_advantage": [0.5, 0.5, 0.5, -1.0,
        -1.0],
        "advantage": [1.0, 3.0, 1.0, -2.0, -2.0], "kept": [True] * 5, "loss_weight": [0.2] * 5, "ratio": [1.0] * 5,
        "clipped": [False, True, False, False, False], "after_logprob": LOG([0.95, 0.3, 0.4, 0.99, 0.1]),
        "f_shape": [1.0, 3.0, 1.0, 1.0, 1.0],
    }  # fmt: skip
    return pd.DataFrame(columns | changes)


def frame(**changes: object) -> pd.DataFrame:
    return tokens_fields.token_frame(tokens(**changes), rollouts(), ["adora", "shape"])


def test_fields_of_a_token_by_hand():
    got = frame(ref_logprob=LOG([0.9, 0.1, 0.5, 0.99, 0.1]))
    assert got["push"].to_numpy() == pytest.approx([0.1, 2.4, 0.5, -0.02, -1.8], abs=1e-6)
    assert got["change"].iloc[1] == pytest.approx(LOG(0.3 / 0.2), abs=1e-6)
    assert got["kl"].iloc[1] == pytest.approx(0.5 - LOG(0.5) - 1, abs=1e-6)  # exp(ref - pi) - (ref - pi) - 1
    assert got["kl"].iloc[0] == pytest.approx(0, abs=1e-6)
    assert got["factor_adora"].tolist() == [2.0] * 5  # stored once a rollout
    assert got["factors"].tolist() == [2.0, 6.0, 2.0, 2.0, 2.0]


def test_a_field_that_was_not_recorded_is_missing_and_says_so():
    got = frame(after_logprob=[None] * 5)
    assert got["change"].isna().all()
    field = next(field for field in tokens_fields.FIELDS if field.id == "change")
    _, reach, recorded = view.matrix_rows(view.row_order(rollouts(), got, "reward"), got, field, [field], True, 0)
    assert not recorded
    legend = tokens_fields.legend(field, reach, recorded, LIGHT)
    assert legend["low"] is None and "record.after_update" in legend["note"]


def test_moved_as_pushed_is_the_change_along_the_sign_of_the_advantage():
    got = frame()  # changes: up, up, down, none, none; advantages: three up, two down
    up = [LOG(0.95 / 0.9), LOG(0.3 / 0.2), LOG(0.4 / 0.5)]
    assert got["along"].tolist() == pytest.approx([*up, 0, 0], abs=1e-6)
    assert got["along"].iloc[3] == 0  # float32's rounding is no movement
    against = frame(after_logprob=LOG([0.95, 0.3, 0.4, 0.995, 0.05]))["along"]
    assert against.iloc[3] == pytest.approx(-LOG(0.995 / 0.99), abs=1e-6) and against.iloc[4] > 0.5
    assert frame(kept=[True, False, True, True, True])["along"].isna().tolist() == [False, True, False, False, False]
    assert frame(advantage=[0.0] * 5)["along"].isna().all()
    probes = tokens_fields.token_frame(tokens(), rollouts(), [], trained=False)
    assert probes["along"].isna().all() and probes["change"].notna().all()


def test_the_change_of_entropy_is_after_minus_before():
    got = frame(entropy_after=[0.2, 0.5, 0.5, 0.0, np.nan])["entropy_change"]
    assert got.iloc[:4].tolist() == pytest.approx([0.1, -0.5, 0, 0]) and np.isnan(got.iloc[4])
    assert frame()["entropy_change"].isna().all()


def by_id(name: str) -> tokens_fields.Field:
    return next(field for field in tokens_fields.FIELDS if field.id == name)


def test_against_the_push_has_a_cross_and_words_beside_its_colour():
    along = tokens_fields.legend(by_id("along"), 0.2, True, LIGHT)
    assert along["cross"] and along["low"].startswith("× against, −0.2") and along["high"].endswith("as pushed")
    assert not tokens_fields.legend(by_id("change"), 0.2, True, LIGHT)["cross"]


def test_clipped_is_yes_or_no_and_says_if_nothing_was():
    shades, reach = tokens_fields.shades(np.array([0, 1, np.nan] * 9), "flag")
    assert shades[:3] == [0, 100, None] and reach == 1
    assert tokens_fields.legend(by_id("clipped"), reach, True, LIGHT)["high"] == "yes"
    nothing = tokens_fields.legend(by_id("clipped"), tokens_fields.shades(np.zeros(5), "flag")[1], True, LIGHT)
    assert nothing["note"] == "no token of this group" and nothing["low"] is None


def test_every_field_that_is_always_there_says_what_it_lacks():
    for field in tokens_fields.FIELDS:
        note = tokens_fields.legend(field, 0.0, False, LIGHT)["note"]
        always = field.id not in (*tokens_fields.OPTIONAL, "advantage", "base_advantage")
        assert (note != "not recorded in this run") == always, field.id


def test_kl_is_offered_only_where_it_was_recorded():
    assert "kl" not in [field.id for field in tokens_fields.fields(frame(), ["shape"])]
    assert "kl" in [field.id for field in tokens_fields.fields(frame(ref_logprob=[-1.0] * 5), ["shape"])]
    more = [field.id for field in tokens_fields.fields(frame(tis=[1.0] * 5, penalty=[0.5] * 5), ["shape"])]
    assert {"tis", "penalty"} <= set(more) and "kl" not in more


def test_fields_list_each_factor_and_their_product_only_if_several():
    assert [f.id for f in tokens_fields.fields(frame(), ["shape"])][2:4] == ["factor_shape", "push"]
    assert [f.id for f in tokens_fields.fields(frame(), ["adora", "shape"])][2:5] == [
        "factors",
        "factor_adora",
        "factor_shape",
    ]


def test_domain_is_the_2nd_to_98th_percentile_around_zero():
    values = np.concatenate([np.linspace(-1, 2, 101), [1000.0]])
    low, high = np.percentile(values, [2, 98])
    assert tokens_fields.limit(values) == pytest.approx(max(abs(low), abs(high)))
    assert tokens_fields.limit(np.array([np.nan, 0.0])) == 0.0
    assert tokens_fields.limit(np.array([0.0] * 99 + [5.0])) == 5.0  # a lone value still shows


def test_shades_are_centred_and_mark_what_lies_beyond():
    values = np.concatenate([np.tile([1.0, -1.0, 0.5, 0.0], 40), [np.nan, 50.0]])
    shades, reach = tokens_fields.shades(values, "signed")
    assert reach == pytest.approx(1.0)
    assert shades[:4] == [100, -100, 50, 0]
    assert shades[-2] is None and shades[-1] == 101


def test_factors_and_ratios_have_1_as_their_background():
    assert tokens_fields.shades(np.array([1.0, 3.0, 0.0]), "factor")[0][0] == 0
    shades, reach = tokens_fields.shades(np.array([1.0, 2.0, 0.5] * 20), "ratio")
    assert shades[:3] == [0, 100, -100] and np.exp(reach) == pytest.approx(2)
    assert tokens_fields.shades(np.array([1.0, 1.0 + 1e-12]), "ratio") == ([0, 0], 0.0)


def test_probability_has_its_own_fixed_scale():
    assert tokens_fields.shades(np.array([0.25, 1.0]), "probability") == ([25, 100], 1.0)


def test_unlike_fields_never_share_colours():
    hues = {}
    for field in tokens_fields.FIELDS:
        legend = tokens_fields.legend(field, 1.0, True, LIGHT)
        hues.setdefault((legend["above"], legend["below"]), set()).add(field.kind)
    alike = ({"signed", "ratio"}, {"amount", "flag"})
    assert all(len(kinds) == 1 or kinds in alike for kinds in hues.values()), hues
    one_sided = [field for field in tokens_fields.FIELDS if field.kind in ("probability", "amount", "flag")]
    assert all(tokens_fields.legend(field, 1.0, True, LIGHT)["below"] == "" for field in one_sided)


@pytest.mark.parametrize(
    ("sort", "order"),
    [("reward", [0, 1]), ("length", [0, 1]), ("log-prob", [1, 0]), ("advantage", [0, 1]), ("rollout", [0, 1])],
)
def test_rows_sort_by(sort: str, order: list[int]):
    ordered = view.row_order(rollouts(), frame(), sort)
    assert ordered["rollout"].tolist() == order
    assert ordered.set_index("rollout")["mean_advantage"].to_dict() == pytest.approx({0: 5 / 3, 1: -2.0})


def payload(selected: tuple[int, int] = (1, 1), **changes: object) -> dict:
    got = frame(**changes)
    ordered = view.row_order(rollouts(), got, "reward")
    shown = tokens_fields.fields(got, ["adora", "shape"])
    rows, reach, recorded = view.matrix_rows(ordered, got, shown[0], shown, True, selected[0])
    own = got[got["rollout"] == selected[0]]
    reasons = why(
        own, correct=False, factors=["adora", "shape"], trained=True, updates=2, reasons=None, position=selected[1]
    )
    return view.payload(
        rows, tokens_fields.legend(shown[0], reach, recorded, LIGHT), shown, view.strips(got, LIGHT), key="k",
        prompt="1+1=?", texts="chosen",
        selected=selected, why=reasons, theme=LIGHT,
    )  # fmt: skip


def test_payload_is_json_with_polarity_as_a_sign_and_hostile_tokens_visible():
    data = json.loads(json.dumps(payload()))
    right, wrong = data["rows"]
    assert (right["sign"], wrong["sign"]) == ("+", "−")
    assert right["tokens"] == ["7", "␣so␣", "⏎"] and right["breaks"] == [2]
    assert wrong["tokens"][1] == "⟨U+202E⟩evil"
    assert right["flags"] == [0, 2, 0]  # clipped
    assert wrong["title"] == "rollout 1: wrong, truncated, reward 0, 2\u00a0tokens"
    assert right["values"]["probability"] == pytest.approx([0.9, 0.2, 0.5], abs=1e-6)
    assert [strip["id"] for strip in data["strips"]] == ["push", "probability", "entropy", "change"]


def test_dropped_tokens_are_flagged_in_training_only():
    got = frame(kept=[False] * 5)
    ordered = view.row_order(rollouts(kept=[False, False]), got, "reward")
    field = tokens_fields.FIELDS[0]
    trained, *_ = view.matrix_rows(ordered, got, field, [field], True, 0)
    probe, *_ = view.matrix_rows(ordered, got, field, [field], False, 0)
    assert trained[0]["flags"][0] == 1 and "dropped" in trained[0]["title"] and not trained[0]["kept"]
    assert probe[0]["flags"][0] == 0 and "not trained (probe)" in probe[0]["title"]


def test_a_suppressed_right_answer_is_flagged():
    got = frame(advantage=[-1.0] * 5)
    ordered = view.row_order(rollouts(), got, "reward")
    assert "correct but suppressed" in view.rollout_title(ordered.iloc[0], True)


def test_luck_self_checks_and_right_steps_are_said_where_the_task_knows_them():
    ordered = view.row_order(rollouts(), frame(), "reward")

    def title(traits: object) -> str:
        return view.rollout_title(pd.Series({**ordered.iloc[0], "traits": traits}), True)

    plain = "rollout 0: correct, reward 1, 3\u00a0tokens"
    lucky = {"lucky": 1.0, "steps": 3.0, "steps_right": 2.0, "self_check": 1.0}
    assert title(lucky) == (
        "rollout 0: correct, right by luck, reward 1, 3\u00a0tokens, 2 of 3\u00a0steps right, with a self-check"
    )
    assert (
        title({"lucky": 0.0, "steps": 1.0, "steps_right": 0.0, "self_check": 0.0}) == plain + ", 0 of 1\u00a0step right"
    )
    for none in (
        None,
        np.nan,
        {},
        {"steps": 0.0, "steps_right": 0.0},
        {"steps": np.nan, "lucky": None},
        {"steps": 2.0},
    ):
        assert title(none) == plain, none


def test_an_untrained_group_opens_with_the_reason_and_says_it_once():
    got = frame(kept=[False] * 5)
    sentence, _ = view.verdict(got, rollouts(kept=[False, False]), True)
    reason = "dropped: a wrong response, only correct ones are trained on"
    assert view.untrained(sentence, reason) == f"Nothing of this group was trained on ({reason}). 1 right, 1 wrong."
    assert view.untrained(sentence, None) == "Nothing of this group was trained on. 1 right, 1 wrong."


def test_a_large_group_brings_all_numbers_of_the_selected_rollout_only():
    n = view.NUMBERS // 20
    big = pd.concat([tokens().iloc[[0]]] * (2 * n), ignore_index=True)
    big["rollout"], big["position"] = np.repeat([0, 1], n), np.tile(np.arange(n), 2)
    got = tokens_fields.token_frame(big, rollouts(length=[n, n]), [])
    shown = tokens_fields.fields(got, [])
    rows, *_ = view.matrix_rows(view.row_order(rollouts(), got, "rollout"), got, shown[0], shown, True, 1)
    assert list(rows[0]["values"]) == ["advantage"]
    assert set(rows[1]["values"]) == {field.id for field in shown}


def test_verdict_counts_mass_by_polarity_and_finds_the_strongest_push():
    sentence, place = view.verdict(frame(), rollouts(), True)
    # mass of the wrong: 2 tokens x 2 of 1 + 3 + 1 + 2 + 2 = 9
    assert "1 right, 1 wrong" in sentence and "44\u00a0%" in sentence
    assert place == (0, 1) and "+2.4 in rollout 0" in sentence


def test_verdict_of_a_group_without_signal_and_of_a_selection():
    flat = frame(advantage=[0.0] * 5)
    sentence, place = view.verdict(flat, rollouts(reward=[1.0, 1.0]), True)
    assert sentence.startswith("No signal: all 2 answers have reward 1") and place is None
    only_right = frame(kept=[True, True, True, False, False], advantage=[1.0, 3.0, 1.0, 0.0, 0.0])
    assert "Only the right answers carry advantage" in view.verdict(only_right, rollouts(), True)[0]
    nothing = frame(kept=[False] * 5)
    assert view.verdict(nothing, rollouts(), True) == ("1 right, 1 wrong. Nothing of this group was trained on.", None)


def test_number_table_names_units():
    chosen = [field for field in tokens_fields.FIELDS if field.id in ("advantage", "entropy", "clipped")]
    table = view.number_table(frame(clipped=[False, True, None, None, None]), chosen)
    assert list(table) == ["position", "token", "advantage", "entropy (nats)", "clipped", "in the loss"]
    assert table["clipped"].tolist()[:2] == [False, True] and table["clipped"].isna().sum() == 3


def test_ranks_and_their_words():
    most, least = ranks(np.array([0.5, 0.9, 0.5, 0.1]))
    assert most.tolist() == [2, 1, 3, 4] and least.tolist() == [2, 4, 3, 1]
    assert rank_words(1, 4, 4, False) == "rank 1 of 4: among the 20 % most probable tokens of this wrong answer"
    assert "20 % least probable tokens of this correct" in rank_words(4, 1, 4, True)
    assert rank_words(5, 6, 10, True) == "rank 5 of 10 by probability in this correct answer"


def lines(
    t: int = 1, trained: bool = True, updates: int | None = 1, reasons: Reasons | None = None, **changes: object
) -> dict:
    row = frame(**changes).to_dict("records")[t]
    got = token_lines(
        row, t, rank="rank", factors=["adora", "shape"], trained=trained, updates=updates, reasons=reasons
    )
    return {line.id: line for line in got}


def test_ledger_multiplies_to_the_advantage():
    got = lines()
    product = got["base_advantage"].raw * got["factor_adora"].raw * got["factor_shape"].raw
    assert product == got["advantage"].raw == 3.0
    assert got["advantage"].value == "+3" and "reinforced" in got["advantage"].kind
    assert got["factor_shape"].value == "× 3"
    assert list(got) == [
        "probability", "entropy", "base_advantage", "factor_adora", "factor_shape", "advantage", "push", "loss_weight",
        "ratio", "change",
    ]  # fmt: skip


def test_reasons_are_the_methods_own_words():
    reasons = Reasons(base=lambda t: f"base of {t}", factors={"shape": lambda t: f"shape of {t}"})
    got = lines(reasons=reasons)
    assert (got["base_advantage"].note, got["factor_shape"].note, got["factor_adora"].note) == (
        "base of 1",
        "shape of 1",
        "",
    )


def test_what_the_update_did():
    assert lines(1)["change"].note == "✓ p 0.2 → 0.3: as its advantage pushed"
    assert lines(2)["change"].note.startswith("✗ p 0.5 → 0.4: against its advantage")
    assert "did not move it" in lines(3)["change"].note
    assert "without a push of its own" in lines(1, kept=[False] * 5)["change"].note
    assert "this probe was not trained" in lines(1, trained=False)["change"].note
    assert lines(1, entropy_after=[0.4] * 5)[
        "entropy_change"
    ].value == "−0.6\u00a0nats" and "entropy_change" not in lines(1)
    off = lines(1, after_logprob=[np.nan] * 5)["change"]
    assert off.value == "not recorded" and off.raw is None and "record.after_update" in off.note


def test_the_loss_term_is_told_with_its_weight():
    reasons = Reasons(
        base=lambda t: "",
        factors={},
        term=lambda t: Term(-3.0, "−r A", "−1 × 3 = −3", "r = 1"),
        kl=lambda t: None,
        weighing=lambda t, total: Term(0.2, "1 / tokens", "1 / 5 = 0.2", f"adds {total} to the loss"),
    )
    got = lines(1, reasons=reasons)
    assert (got["loss_term"].value, got["loss_term"].raw) == ("−3", -3.0)
    assert got["loss_term"].note == "−r A = −1 × 3 = −3; r = 1"
    assert got["loss_weight"].note == "1 / tokens = 1 / 5 = 0.2; adds -3.0 to the loss"
    assert list(got)[list(got).index("push") + 1 :][:2] == ["loss_term", "loss_weight"]
    corrected = lines(1, reasons=reasons, tis=[0.5] * 5)
    assert corrected["loss_weight"].note.endswith("adds -1.5 to the loss")  # the correction multiplies the term
    both = lines(1, reasons=reasons, tis=[0.5] * 5, penalty=[2.0] * 5)
    assert both["loss_weight"].note.endswith("adds None to the loss")  # ... but not its penalty
    assert "loss_term" not in lines(1, reasons=reasons, kept=[False] * 5)
    assert "loss_term" not in lines(1, reasons=reasons, trained=False, loss_weight=[None] * 5)
    with_kl = replace(reasons, kl=lambda t: Term(0.5, "β k3", "1 × 0.5 = 0.5"))
    got = lines(1, reasons=with_kl)
    assert got["kl_term"].value == "+0.5" and got["loss_weight"].note.endswith("adds -2.5 to the loss")


def test_clipping_words():
    assert lines(1, updates=1)["ratio"].note == "one update a step: nothing can clip"
    assert lines(1, updates=4)["ratio"].note == "clipped: no gradient in its last pass"
    assert lines(2, updates=4)["ratio"].note == "not clipped in its last pass"


def test_the_correction_between_sampler_and_trainer_is_named_with_its_two_probabilities():
    assert "tis" not in lines()
    logs = {"sampler_logprob": np.log([0.4] * 5), "trainer_logprob": np.log([0.5] * 5)}
    got = lines(tis=[1.25] * 5, **logs)
    assert list(got)[-3:] == ["tis", "ratio", "change"]
    assert (got["tis"].value, got["tis"].raw) == ("× 1.25", 1.25)
    assert got["tis"].note == "p 0.5 in the trainer / 0.4 in the sampler"
    assert lines(tis=[1.1] * 5, **logs)["tis"].note.endswith(", cut at the cap")
    assert "tis" not in lines(tis=[None] * 5)
    assert "penalty" not in got
    held = lines(penalty=[1.5] * 5, **logs)["penalty"]
    assert (held.value, held.raw) == ("1.5 × distance", 1.5)
    assert lines(penalty=[0.0] * 5, **logs)["penalty"].value == "none"


def test_probes_are_not_trained():
    got = lines(1, trained=False, loss_weight=[None] * 5, ratio=[None] * 5)
    assert got["loss_weight"].value == got["ratio"].value == "not trained"
    assert "probes are not trained" in got["advantage"].note


def test_why_covers_a_window_and_escapes_foreign_words():
    reasons = Reasons(base=lambda t: "\u202eevil", factors={})
    own = frame()[frame()["rollout"] == 0]
    got = why(own, correct=True, factors=[], trained=True, updates=1, reasons=reasons, position=1, window=1)
    assert (got["rollout"], got["start"], len(got["tokens"])) == (0, 0, 3)
    got = why(own, correct=True, factors=[], trained=True, updates=1, reasons=reasons, position=2, window=0)
    assert (got["start"], len(got["tokens"])) == (2, 1)
    base = next(line for line in got["tokens"][0] if line["id"] == "base_advantage")
    assert base["note"] == "⟨U+202E⟩evil" and base["raw"] == "0.5"


def test_rounded_keeps_six_digits_and_says_what_is_missing():
    got = view.rounded(pd.Series([1 / 3, -123456.789, 0.0, np.nan, None, 1.23456789e-9, np.inf], dtype=float))
    assert got[:2] == pytest.approx([0.333333, -123457], rel=1e-12) and got[2] == 0.0
    assert got[3] is None and got[4] is None and got[6] is None
    assert got[5] == pytest.approx(1.23457e-9, rel=1e-9)
