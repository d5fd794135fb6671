"""Colours: one a method, readable in both modes."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.palette import DARK, LIGHT, METHODS, method_colour, method_style, run_styles, series_styles
from app.views import probes
from core.advantage import recipes


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_recipe_has_a_look_of_its_own():
    looks = [method_style(name) for name in recipes()]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize(
    "relatives",
    [
        ("grpo", "gspo", "cispo", "pass_at_k"),
        ("dapo", "dr_grpo"),
        ("pm1", "w_reinforce", "rloo", "reinforce_pp", "reinforce_pp_baseline"),
        ("psr", "psr_pm1"),
        ("nsr", "nsr_pm1"),
        ("a3po", "token_shaping", "fork_tokens", "entropy_advantage"),
        ("kl_cov", "clip_cov", "lp_reg"),
        ("adora_amplify", "adora_attenuate", "adora_code_llm", "adora_code_vlm", "a_grae"),
    ],
)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_relatives_share_a_colour_and_differ_in_dash(relatives, dark):
    colours, dashes = zip(*(method_style(name, dark) for name in relatives), strict=True)
    assert len(set(colours)) == 1
    assert len(set(dashes)) == len(relatives)


def test_no_recipe_is_left_to_chance():
    assert set(recipes()) <= set(METHODS)
    assert method_style("a method of the future")[1] == "dot"


TEXT_HUES = ("text", "muted", "reinforced", "suppressed", "favorable", "warning")
TINT = 0.6
"""The strongest tint behind text: tokens in their own colours (tokens_text.js), probes side by side (probes.py)."""


def mixed(colour: str, ground: str, alpha: float) -> str:
    parts = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(over * alpha + under * (1 - alpha)):02x}" for over, under in parts)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("hue", TEXT_HUES)
def test_hues_that_colour_text_can_be_read(theme, hue):
    for ground in (theme.background, theme.surface):
        assert contrast(getattr(theme, hue), ground) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("hue", ["reinforced", "suppressed", "favorable"])
def test_text_can_be_read_on_the_strongest_tint(theme, hue):
    assert contrast(theme.text, mixed(getattr(theme, hue), theme.background, TINT)) >= 4.5


def test_the_tint_behind_text_is_the_one_that_is_tested():
    views = Path(__file__).parents[2] / "app" / "views"
    assert f"shade(view.data, value, {TINT})" in (views / "tokens_text.js").read_text(encoding="utf-8")
    assert probes.FULL <= TINT


def test_series_that_are_no_methods_differ_in_colour_or_dash():
    for dark in (False, True):
        assert len(set(series_styles(12, dark))) == 12


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_stand_out_from_the_background(theme):
    for name in ("reinforced", "suppressed", "favorable", "warning"):
        assert contrast(getattr(theme, name), theme.background) > 3
    assert contrast(theme.text, theme.background) > 7
    assert contrast(theme.muted, theme.background) > 4.5
    for name in recipes():
        assert contrast(method_colour(name, theme.dark), theme.background) > 2


def test_runs_of_one_method_differ_in_dash():
    styles = run_styles(["grpo", "grpo", "psr", "grpo"])
    assert len(set(styles)) == 4
    assert {colour for colour, _ in (styles[0], styles[1], styles[3])} == {method_colour("grpo")}
