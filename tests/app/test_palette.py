"""Colours: one a method, readable in both modes."""

from __future__ import annotations

import pytest

from app.palette import DARK, LIGHT, METHODS, method_colour, method_style, run_styles, signed_rgba
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


def test_signed_colours_have_a_hue_by_sign_and_alpha_by_size():
    assert signed_rgba(1.0, 2.0, LIGHT) == "rgba(11,122,117,0.500)"
    assert signed_rgba(-4.0, 2.0, LIGHT) == "rgba(200,85,61,1.000)"
    assert signed_rgba(1.0, 0.0, LIGHT) == "transparent"
    assert signed_rgba(float("nan"), 1.0, LIGHT) == "transparent"
