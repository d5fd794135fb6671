"""What the What-if page draws and says, against numbers worked out by other means."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest

from app.palette import LIGHT, method_colour
from app.views import whatif, whatif_figures, whatif_tables, whatif_words
from app.views.whatif_pairs import shaped, telling_group
from app.views.whatif_source import Shown, Source, View, cut, view_of
from core.advantage import Batch, build
from core.counterfactual import Spec, answer, compare, summarise

RNG = np.random.default_rng(4)
LENGTHS = np.array([3, 6, 4, 5, 2, 5, 3, 4])


@pytest.fixture
def source() -> Source:
    """Two groups of four, their rows mixed: one half right, one with a right answer and a partial one."""
    width = int(LENGTHS.max())
    logprob = np.log(RNG.uniform(0.05, 1, (8, width)))
    batch = Batch(
        group=np.array([7, 3, 7, 3, 7, 3, 7, 3]), reward=np.array([0, 0, 1, 0.4, 1, 1, 0, 0.0]),
        correct=np.array([0, 0, 1, 0, 1, 1, 0, 0], bool), length=LENGTHS, truncated=np.zeros(8, bool), max_length=8,
        step=10, sampler_logprob=logprob, trainer_logprob=logprob, entropy=RNG.uniform(0, 2, (8, width)),
    )  # fmt: skip
    return Source(
        key="test", title="test", batch=batch, rollout=np.array([0, 0, 1, 1, 2, 2, 3, 3]),
        prompts={7: "7+8=?", 3: "1+1=? <b>"}, texts=lambda row: [f"r{row}t{t}" for t in range(LENGTHS[row])],
        own=Spec("grpo"),
    )  # fmt: skip


def beside(source: Source, view: View, *lines: str) -> list[Shown]:
    found = []
    for letter, line in zip("ABCD", lines, strict=False):
        method = Spec.parse(line).build()
        whole = answer(method, source.batch)
        found.append(Shown(letter, method.label, method.name, whole, cut(whole, view)))
    return found


def decoded(panel: dict) -> np.ndarray:
    codes = np.frombuffer(base64.b64decode(panel["values"]), "<i2")
    return codes * panel["most"] / 32767


def bits(text: str | None, n: int) -> np.ndarray:
    if text is None:
        return np.zeros(n, bool)
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))[:n].astype(bool)


def test_a_group_is_cut_out_best_reward_first(source):
    view = view_of(source, 3)
    assert view.rows.tolist() == [5, 3, 1, 7] and view.rollout.tolist() == [2, 1, 0, 3]
    assert view.batch.width == LENGTHS[view.rows].max() and view.tokens == LENGTHS[view.rows].sum()
    assert view.batch.sampler_logprob.tolist() == source.batch.sampler_logprob[view.rows, : view.batch.width].tolist()
    assert view_of(source, None).rows.tolist() == [5, 3, 1, 7, 2, 4, 0, 6]


@pytest.mark.parametrize("line", ["grpo", "a3po;also=adora_amplify", "psr", "reinforce_pp", "a3po;mass_matched=1"])
def test_the_parts_of_a_step_add_up_to_it(source, line):
    parts = []
    for group in (3, 7):
        view = view_of(source, group)
        (one,) = beside(source, view, line)
        mask = view.batch.mask
        assert one.answer.trace.advantage[mask].tolist() == one.whole.trace.advantage[view.rows][
            np.arange(one.whole.trace.advantage.shape[1]) < view.batch.length[:, None]
        ].tolist()  # fmt: skip
        parts.append(summarise(one.answer, view.batch))
        assert [prompt.group for prompt in parts[-1].prompts] == [group]
    whole = summarise(one.whole, source.batch)
    assert sum(part.mass.total for part in parts) == pytest.approx(whole.mass.total)
    assert sum(part.mass.positive for part in parts) == pytest.approx(whole.mass.positive)
    for part, prompt in zip(parts, whole.prompts, strict=True):
        assert (part.prompts[0].label, part.prompts[0].weight) == (prompt.label, prompt.weight)


def test_clip_shares_count_the_tokens_in_view_that_have_a_ratio(source):
    ratio = np.full(source.batch.sampler_logprob.shape, np.nan)
    ratio[5, :2] = [1.0, 9.0]  # a right answer of group 3: far above the bound
    ratio[2, :4] = 1.0
    whole = answer(Spec("grpo").build(), source.batch, ratio=ratio)
    assert whole.clip_share == pytest.approx(1 / 6)
    assert cut(whole, view_of(source, 3), ratio).clip_share == pytest.approx(1 / 2)
    assert cut(whole, view_of(source, 7), ratio).clip_share == 0


def test_panels_carry_the_advantages_and_the_marks(source):
    view = view_of(source, 3)
    shown = beside(source, view, "grpo", "a3po;base=grpo;rho_positive=4", "nsr")
    compared = compare(shown[1].answer, shown[0].answer, view.batch)
    mask = view.batch.mask
    panels = whatif.panels(shown, ["one", "two", "three"], LIGHT, (0, 1), compared, mask)
    assert [panel["letter"] for panel in panels] == ["A", "B", "C", "B−A"]
    assert panels[1]["colour"] == method_colour("a3po") and panels[1]["note"] == "two"
    assert len({panel["reach"] for panel in panels[:3]}) == 1  # one domain for all methods
    for panel, one in zip(panels, shown, strict=False):
        assert decoded(panel) == pytest.approx(one.answer.trace.advantage[mask], abs=panel["most"] / 60000)
        assert bits(panel["dropped"], mask.sum()).tolist() == (~one.answer.trace.kept[mask]).tolist()
    difference = shown[1].answer.trace.advantage - shown[0].answer.trace.advantage
    assert decoded(panels[3]) == pytest.approx(difference[mask], abs=panels[3]["most"] / 60000)
    changed = np.abs(difference[mask]) > 1e-9
    assert changed.any() and bits(panels[3]["factor"], mask.sum()).tolist() == changed.tolist()
    assert panels[3]["flipped"] is None


def test_flips_are_marked_where_the_signs_differ(source):
    view = view_of(source, 3)  # the partial answer lies above its group's mean, and counts as wrong
    shown = beside(source, view, "grpo", "pm1")
    compared = compare(shown[1].answer, shown[0].answer, view.batch)
    panel = whatif.panels(shown, ["", ""], LIGHT, (0, 1), compared, view.batch.mask)[-1]
    place = np.repeat(np.arange(4), view.batch.length)
    assert set(place[bits(panel["flipped"], view.tokens)]) == {1} and view.rollout[1] == 1


def test_the_payload_shows_text_as_text_and_explains_the_chosen_token(source):
    hostile = ["<b>", "a b", "\n", "\u202e", "x"]
    source = Source(**{**vars(source), "texts": lambda row: (hostile * 2)[: LENGTHS[row]]})
    view = view_of(source, 3)
    shown = beside(source, view, "grpo", "a3po")
    data = whatif.payload(
        source, view, shown, ["", ""], LIGHT, pair=None, compared=None, key="k", mark="m", group=3, selected=(1, 4),
        drawn=np.ones(4, bool),
    )  # fmt: skip
    row = data["rows"][1]
    assert row["tokens"] == ["<b>", "a␣b", "⏎", "⟨U+202E⟩", "x"] and row["breaks"] == [2]
    assert row["title"] == "rollout 1: wrong, reward 0.4, 5\N{NO-BREAK SPACE}tokens" and row["sign"] == "−"
    explain = data["explain"]
    assert explain["row"] == 1 and explain["start"] <= 4
    for place, one in enumerate(shown):
        lines = {line["id"]: line for line in explain["tokens"][4 - explain["start"]][place]}
        assert lines["advantage"]["raw"] == pytest.approx(one.whole.trace.advantage[3, 4])
    every = view_of(source, None)
    step = whatif.payload(
        source, every, beside(source, every, "grpo", "a3po"), ["", ""], LIGHT,
        pair=None, compared=None, key="k", mark="m", group=None,
        selected=(0, 0), drawn=np.ones(8, bool),
    )  # fmt: skip
    assert step["step"] and "tokens" not in step["rows"][0] and step["explain"] == {}


def test_the_first_look_is_where_the_methods_differ_most(source):
    view = view_of(source, 7)
    shown = beside(source, view, "grpo", "a3po;base=grpo;ratio=0.2")
    compared = compare(shown[1].answer, shown[0].answer, view.batch)
    row, position = whatif.strongest(view, shown, compared)
    assert np.abs(compared.difference)[row, position] == np.abs(compared.difference).max() > 0
    assert whatif.strongest(view, shown[:1], None)[0] in range(4)


def said(source: Source, group: int | None, first: str, second: str) -> tuple[str, str]:
    view = view_of(source, group)
    a, b = beside(source, view, first, second)
    pair = compare(b.answer, a.answer, view.batch)
    both = summarise(a.answer, view.batch), summarise(b.answer, view.batch)
    return whatif_words.verdict(a, b, pair, both, view, whole=group is None)


def test_the_verdict_counts(source):
    sentence, tone = said(source, 3, "grpo", "polarity;positive=3;negative=1")
    part = LENGTHS[5] / LENGTHS[[1, 3, 5, 7]].sum()
    assert f"changes {100 * part:.0f}\N{NO-BREAK SPACE}% of the tokens of **GRPO** (A) by 2 × its size" in sentence
    assert "at most and flips none" in sentence
    assert "from wrong to right answers" in sentence and "this prompt's mass is" in sentence and tone == "neutral"
    assert "its whole step is" in said(source, None, "grpo", "polarity;positive=3;negative=1")[0]
    assert "by 50\N{NO-BREAK SPACE}% at most" in said(source, 3, "grpo", "polarity;positive=1.5;negative=1")[0]
    assert "*n* = 4\N{NO-BREAK SPACE}rollouts, 20\N{NO-BREAK SPACE}tokens." in sentence
    back, _ = said(source, 3, "polarity;positive=3;negative=1", "grpo")
    assert "from right to wrong answers" in back


def test_the_verdict_names_flips_and_sameness_and_silence(source):
    part = LENGTHS[3] / LENGTHS[[1, 3, 5, 7]].sum()
    assert f"flips the sign of {100 * part:.0f}\N{NO-BREAK SPACE}%" in said(source, 3, "grpo", "pm1")[0]
    assert "exactly the advantage" in said(source, 3, "grpo", "grpo;loss.clip_low=0.1")[0]
    assert "of the mass lies elsewhere" in said(source, 3, "grpo", "grpo;loss.aggregation=token_mean")[0]
    nothing = Source(**{**vars(source), "batch": Batch(**{**vars(source.batch), "reward": np.ones(8)})})
    assert said(nothing, 3, "grpo", "a3po;base=grpo")[0].startswith("No signal") is True
    sentence, tone = said(nothing, 3, "grpo", "dapo")
    assert "**DAPO** (B) drops these tokens, **GRPO** (A) keeps them at 0: neither pushes" in sentence
    assert tone == "warning"
    right = Source(**{**vars(nothing), "batch": Batch(**{**vars(nothing.batch), "correct": np.ones(8, bool)})})
    sentence, _ = said(right, 3, "nsr_pm1", "pm1")
    assert "(A) trains on none of these tokens; **" in sentence and "(B) does" in sentence


def test_the_verdict_names_what_parts_methods_beside_their_advantages(source):
    sentence, _ = said(source, 3, "grpo", "kl_cov;ratio=0.2")
    whole = answer(Spec.parse("kl_cov;ratio=0.2").build(), source.batch)
    held = int((whole.trace.penalty.coefficient[[1, 3, 5, 7]] > 0).sum())
    assert held and "exactly the advantage" in sentence
    assert f"B also holds {held}\N{NO-BREAK SPACE}token" in sentence and "by a penalty" in sentence
    assert "their objectives differ (clip, gspo)" in said(source, 3, "grpo", "gspo")[0]
    assert "differ" not in said(source, 3, "grpo", "a3po;base=grpo")[0]


def test_shifts_of_mass_are_the_right_answers_share(source):
    view = view_of(source, None)
    a, b = beside(source, view, "grpo", "adora_amplify")
    summaries = [summarise(one.answer, view.batch) for one in (a, b)]
    shares = []
    for one in (a, b):
        mass = (one.answer.weight * np.abs(one.answer.trace.advantage)).sum(axis=1)
        shares.append(mass[view.batch.correct].sum() / mass.sum())
    frame = whatif_tables.pair_frame([a, b], {(0, 1): compare(b.answer, a.answer, view.batch)}, summaries)
    assert frame["to right answers"][0] == pytest.approx(shares[1] - shares[0])
    masses = [(one.answer.weight * np.abs(one.answer.trace.advantage)).sum() for one in (a, b)]
    assert frame["mass ratio"][0] == pytest.approx(masses[1] / masses[0])
    assert f"{100 * shares[0]:.0f}\N{NO-BREAK SPACE}% on right answers" in whatif_words.mass_note(summaries[0])


def test_tables_hold_every_method_and_quarter(source):
    view = view_of(source, None)
    shown = beside(source, view, "grpo", "adora_amplify", "psr")
    summaries = [summarise(one.answer, view.batch) for one in shown]
    frame = whatif_tables.mass_frame(shown, summaries)
    assert len(frame) == 3 * 2 * 5
    quarters = frame[frame["tokens"] != "all"].groupby(["method", "answers"])["mass"].sum()
    whole = frame[frame["tokens"] == "all"].set_index(["method", "answers"])["mass"]
    assert quarters.to_dict() == pytest.approx(whole.to_dict())
    html = whatif_tables.mass_table(shown, summaries, LIGHT) + whatif_tables.quartile_table(shown, summaries, LIGHT)
    assert f"data-value='{summaries[1].mass.negative!r}'" in html
    assert "quartile-3-c" in html and "tokens kept" in html
    blind = [summarise(answer(Spec("grpo").build(), _without_logprobs(view.batch)), _without_logprobs(view.batch))]
    assert whatif_tables.quartile_table(shown[:1], blind, LIGHT) is None


def _without_logprobs(batch: Batch) -> Batch:
    return Batch(**{**vars(batch), "sampler_logprob": None})


def test_prompts_come_heaviest_first_and_say_what_is_only_observed(source):
    view = view_of(source, None)
    shown = beside(source, view, "grpo", "adora_amplify;weight=5")
    summaries = [summarise(one.answer, view.batch) for one in shown]
    read, plain = whatif_tables.prompt_frame(source, shown, summaries)
    shares = plain[["A mass share", "B mass share"]].max(axis=1).tolist()
    assert shares == sorted(shares, reverse=True)
    row = plain.set_index("group").loc[3]
    assert row["B weight"] == 5 and row["B class"] == "favorable" and row["A weight"] == 1
    told = read.set_index("#").loc[3]
    assert told.iloc[2].startswith("[favorable] × 1") and told.iloc[3].startswith("favorable × 5")


def test_every_token_is_in_the_file(source):
    view = view_of(source, 7)
    shown = beside(source, view, "grpo", "pm1")
    frame = whatif_tables.token_frame(
        source, view, shown, (0, 1), compare(shown[1].answer, shown[0].answer, view.batch), 7
    )
    assert len(frame) == view.tokens and frame["token"].tolist()[:2] == [f"r{view.rows[0]}t{t}" for t in range(2)]
    assert (
        frame["B − A"] - (frame.filter(like="B:").iloc[:, 0] - frame.filter(like="A:").iloc[:, 0])
    ).abs().max() < 1e-12


ROWS = [
    {
        "step": step, "done": step + 1, "of": 2, "lacking": 0, "skipped": None,
        "methods": [
            {"mass_positive": 1.0, "mass_negative": 3.0, "mean_weight": 1.0, "favorable_share": 0.5,
             "quartile_mass": [1.0, 1.0, 1.0, 1.0]},
            {"mass_positive": 3.0, "mass_negative": 3.0, "mean_weight": 1.0 + step, "favorable_share": 0.25 * step,
             "quartile_mass": [3.0, 3.0, 0.0, 0.0] if step else None},
        ],
        "pairs": [{"a": 0, "b": 1, "rank_correlation": 0.5, "changed_share": 0.25 + 0.25 * step, "flipped_share": 0.0,
                   "moved": 0.1, "scale": 0.5}],
    }
    for step in range(2)
]  # fmt: skip


def test_curves_of_a_run():
    by_key = {which.key: which for which in whatif_figures.CURVES}

    def drawn(key: str):
        return whatif_figures.curve(ROWS, by_key[key], ["grpo", "a3po"], ["A · GRPO", "B · A3PO"], LIGHT)

    assert [list(line.y) for line in drawn("right").data] == [[0.25, 0.25], [0.5, 0.5]]
    assert [list(line.y) for line in drawn("changed").data] == [[0.25, 0.5]]
    assert list(drawn("scale").data[0].y) == [2.0, 2.0]  # B's mass over A's
    assert [list(line.y) for line in drawn("weight").data] == [[1.0, 1.0], [1.0, 2.0]]
    assert drawn("flipped") is None
    assert [list(line.y) for line in drawn("favorable").data] == [[0.5, 0.5], [0.0, 0.25]]
    assert [list(line.y) for line in drawn("unlikely").data] == [[0.25, 0.25], [None, 0.5]]
    assert len(whatif_figures.frame(ROWS, ["A", "B"])) == 6


ASKED = [("A", "GRPO", build("grpo")), ("B", "A3PO", build("a3po", base="grpo"))]


def test_the_verdict_of_a_run():
    sentence = whatif_words.run_verdict(ROWS, ASKED, (0, 1))
    spread = "38\N{NO-BREAK SPACE}% (25\N{NO-BREAK SPACE}% to 50\N{NO-BREAK SPACE}%)"
    assert f"**A3PO** changes {spread} of the tokens of **GRPO** and flips none" in sentence
    assert "moves 25\N{NO-BREAK SPACE}% of the mass from wrong to right" in sentence
    assert "Means, and lowest to highest, of 2\N{NO-BREAK SPACE}steps" in sentence
    back = whatif_words.run_verdict(ROWS, ASKED, (1, 0))
    assert f"**GRPO** changes {spread} of the tokens of **A3PO**" in back and "from right to wrong" in back
    assert "penalty" not in sentence and "differ" not in sentence


def test_the_verdict_of_a_run_names_what_no_advantage_shows():
    asked = [("A", "Lp-Reg", build("lp_reg")), ("B", "KL-Cov", build("kl_cov", base="grpo"))]
    sentence = whatif_words.run_verdict(ROWS, asked, (0, 1))
    assert "A also holds tokens in place by a penalty; B also holds" in sentence
    assert "their objectives differ (clip, ratio)" in sentence
    bounds = [("A", "GRPO", build("grpo")), ("B", "DAPO", build("dapo"))]
    assert "their clip bounds differ (0.2 / 0.2, 0.2 / 0.28)" in whatif_words.run_verdict(ROWS, bounds, (0, 1))


def test_a_step_shows_the_prompts_with_signal(source):
    reward = np.where(source.batch.group == 3, 1.0, source.batch.reward)
    source = Source(**{**vars(source), "batch": Batch(**{**vars(source.batch), "reward": reward})})
    view = view_of(source, None)
    shown = beside(source, view, "grpo", "dapo")
    drawn = whatif.drawn(view, shown, None)
    assert view.batch.group[drawn].tolist() == [7] * 4 and whatif.drawn(view, shown, 3).all()
    assert whatif.drawn(view, beside(source, view, "grpo", "pm1"), None).all()  # +1 for every answer is a signal
    data = whatif.payload(
        source, view, shown, ["", ""], LIGHT, pair=None, compared=None, key="k", mark="m", group=None, selected=(5, 1),
        drawn=drawn,
    )  # fmt: skip
    assert [row["group"] for row in data["rows"]] == [7] * 4 and data["selected"] == {"row": 1, "position": 1}
    mask = view.batch.mask & drawn[:, None]
    assert decoded(data["panels"][0]) == pytest.approx(shown[0].answer.trace.advantage[mask], abs=1e-4)
    assert whatif_words.not_drawn(view, drawn).startswith("1\N{NO-BREAK SPACE}prompt without signal")
    silent = Source(**{**vars(source), "batch": Batch(**{**vars(source.batch), "reward": np.ones(8)})})
    assert whatif.drawn(view, beside(silent, view, "grpo"), None).all()  # nothing to choose from


def test_a_panel_of_one_prompt_says_how_the_method_judges_it(source):
    view = view_of(source, 3)
    notes = [
        whatif_words.panel_note(one, summarise(one.answer, view.batch), 3)
        for one in beside(source, view, "grpo", "adora_amplify;weight=5")
    ]
    assert notes[0].endswith("· favorable, not weighed") and notes[1].endswith("· favorable × 5")


def test_a_method_with_more_weights_changes_the_other():
    def build(line: str):
        return Spec.parse(line).build()

    assert shaped(build("a3po"), build("dapo")) and not shaped(build("dapo"), build("a3po"))
    assert shaped(build("a3po;also=adora_amplify"), build("a3po"))
    assert not shaped(build("a3po"), build("adora_amplify")) and not shaped(build("psr_pm1"), build("grpo"))
    assert not shaped(build("grpo"), build("grpo"))


def test_the_telling_group_is_where_two_answers_part(source):
    a, b = (answer(Spec.parse(line).build(), source.batch) for line in ("grpo", "adora_amplify;weight=5"))
    weighed = [prompt for prompt in summarise(b, source.batch).prompts if prompt.weight == 5]
    group, (part, *_) = telling_group(a, b, source.batch)
    assert part > 0 and (len(weighed) == 2 or group == weighed[0].group)
    group, key = telling_group(a, a, source.batch)
    assert (group, key) == (7, (0.0, 0.0, 0.0))  # half of its answers are right


def test_quarters_that_look_the_same_are_one(source):
    width = source.batch.sampler_logprob.shape[1]
    logprob = np.full((8, width), -1e-9)
    logprob[:, 0] = np.log(0.25)
    sure = Source(**{**vars(source), "batch": Batch(**{**vars(source.batch), "sampler_logprob": logprob})})
    view = view_of(sure, None)
    shown = beside(sure, view, "grpo", "psr")
    html = whatif_tables.quartile_table(shown, [summarise(one.answer, view.batch) for one in shown], LIGHT)
    assert "likely and most likely, p &gt; 0.9999" in html and html.count("<tr data-testid='quartile-") == 3 * 2
    assert "unlikely, p 0.812 to &gt; 0.9999" in html and ", p up to 0.812" in html
    masses = [float(value) for value in re.findall(r"data-value='([0-9.e-]+)'", html)]
    assert sum(masses) == pytest.approx(sum(summarise(one.answer, view.batch).mass.total for one in shown))


def test_every_prompt_is_in_the_table_with_its_methods(source):
    view = view_of(source, None)
    shown = beside(source, view, "grpo", "adora_amplify;weight=5")
    read, _ = whatif_tables.prompt_frame(source, shown, [summarise(one.answer, view.batch) for one in shown])
    html = whatif_tables.prompt_table(read, LIGHT)
    assert html.count("data-testid='prompt-") == 2 and "<b>" not in html and "1+1=? &lt;b&gt;" in html
    assert "favorable × 5" in html and "[favorable] × 1" in html


def test_a_token_as_long_as_a_page_is_cut():
    assert whatif._short("x" * 60) == "x" * 60
    assert whatif._short("x" * 5000) == "x" * 60 + "…"
