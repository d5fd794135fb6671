"""The language of colour, the same on every page; each hue has a light and a dark shade.

Reinforced (advantage > 0) is teal, suppressed (< 0) vermilion, zero the page's own background. Favorable is indigo,
unfavorable a hatched grey, uniform an outline. A method keeps its Okabe-Ito colour everywhere; relatives of a method
share its colour and differ in dash. Hues that also colour text have a contrast of at least 4.5 with the background and
the surface. Colour never stands alone: polarity also has a sign, methods also a name.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """The colours of one mode; `app.theme.theme()` gives the one that the reader sees."""

    dark: bool
    background: str
    surface: str  # cards, hover labels
    text: str
    muted: str  # captions, axis labels
    grid: str
    reinforced: str
    suppressed: str
    favorable: str
    unfavorable: str
    uniform: str  # the outline; its fill is the background
    warning: str

    def polarity(self, sign: int) -> str:
        """The colour of correct (+1) and wrong (-1) rollouts."""
        return self.reinforced if sign > 0 else self.suppressed

    def prompt_class(self, name: str) -> str:
        """The colour of an ADORA class: favorable, unfavorable or uniform."""
        return {"favorable": self.favorable, "unfavorable": self.unfavorable}.get(name, self.uniform)


LIGHT = Theme(
    dark=False, background="#ffffff", surface="#f5f7f8", text="#1f2933", muted="#5b6670", grid="#e4e8eb",
    reinforced="#0b7a75", suppressed="#bd4c34", favorable="#4c5fd5", unfavorable="#8d969e", uniform="#aab2b9",
    warning="#9a6700",
)  # fmt: skip
DARK = Theme(
    dark=True, background="#0e1117", surface="#1a1f29", text="#e8ecef", muted="#a3adb7", grid="#2a313c",
    reinforced="#2fb3a9", suppressed="#ec7d63", favorable="#8c9bff", unfavorable="#8d969e", uniform="#66707b",
    warning="#e3b341",
)  # fmt: skip

HATCH = "/"
"""Plotly's `marker.pattern.shape` for unfavorable."""

SIGN = {1: "+", -1: "\N{MINUS SIGN}"}
"""Polarity as a sign: it goes wherever polarity has a colour."""

# Okabe-Ito, (light, dark): black and yellow are shifted where the background would swallow them.
_BLUE, _GREEN, _VERMILION = ("#0072b2", "#3d9bd9"), ("#009e73", "#1fbf8f"), ("#d55e00", "#f0803c")
_SKY, _ORANGE, _PURPLE = ("#3a9fd8", "#56b4e9"), ("#e69f00", "#e69f00"), ("#b8609a", "#cc79a7")
_BLACK, _YELLOW = ("#1a1a1a", "#d7dce0"), ("#a89a00", "#f0e442")
_OKABE_ITO = (_BLUE, _GREEN, _VERMILION, _SKY, _ORANGE, _PURPLE, _BLACK, _YELLOW)

METHODS: dict[str, tuple[tuple[str, str], str]] = {
    "grpo": (_BLUE, "solid"),
    "gspo": (_BLUE, "dash"),
    "cispo": (_BLUE, "dot"),
    "pass_at_k": (_BLUE, "dashdot"),
    "dapo": (_SKY, "solid"),
    "dr_grpo": (_SKY, "dash"),
    "w_reinforce": (_BLACK, "solid"),
    "polarity": (_BLACK, "dash"),
    "pm1": (_BLACK, "dot"),
    "rloo": (_BLACK, "dashdot"),
    "reinforce_pp": (_BLACK, "longdash"),
    "reinforce_pp_baseline": (_BLACK, "longdashdot"),
    "psr": (_GREEN, "solid"),
    "psr_pm1": (_GREEN, "dash"),
    "nsr": (_VERMILION, "solid"),
    "nsr_pm1": (_VERMILION, "dash"),
    "a3po": (_PURPLE, "solid"),
    "token_shaping": (_PURPLE, "dash"),
    "fork_tokens": (_PURPLE, "dot"),
    "entropy_advantage": (_PURPLE, "dashdot"),
    "kl_cov": (_YELLOW, "solid"),
    "clip_cov": (_YELLOW, "dash"),
    "lp_reg": (_YELLOW, "dot"),
    "adora_amplify": (_ORANGE, "solid"),
    "adora_attenuate": (_ORANGE, "dash"),
    "adora_code_llm": (_ORANGE, "dot"),
    "adora_code_vlm": (_ORANGE, "dashdot"),
    "a_grae": (_ORANGE, "longdash"),
}


def method_style(method: str, dark: bool = False) -> tuple[str, str]:
    """(colour, plotly dash) of a recipe. A recipe that the table does not know gets a fixed pair from its name."""
    if method in METHODS:
        pair, dash = METHODS[method]
    else:
        pair, dash = _OKABE_ITO[zlib.crc32(method.encode("utf-8", "replace")) % len(_OKABE_ITO)], "dot"
    return pair[dark], dash


def method_colour(method: str, dark: bool = False) -> str:
    """The one colour of a recipe (by its name: `grpo`, `a3po`)."""
    return method_style(method, dark)[0]


def run_styles(methods: Sequence[str], dark: bool = False) -> list[tuple[str, str]]:
    """(colour, dash) for curves on the same axes: a method's colour, and another dash for each further run of it."""
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
    styles: list[tuple[str, str]] = []
    for method in methods:
        colour, dash = method_style(method, dark)
        order = [dash, *(other for other in dashes if other != dash)]
        taken = {used for seen, used in styles if seen == colour}
        styles.append((colour, next((free for free in order if free not in taken), dash)))
    return styles


def series_styles(number: int, dark: bool = False) -> list[tuple[str, str]]:
    """(colour, dash) for series that are no methods: Okabe-Ito in order, then again in other dashes."""
    dashes = ("solid", "dash", "dot", "dashdot")
    return [(_OKABE_ITO[i % 8][dark], dashes[i // 8 % 4]) for i in range(number)]


def diverging(theme: Theme) -> list[tuple[float, str]]:
    """A plotly colour scale for signed values, zero is the background; use it with `zmid=0` and a symmetric domain."""
    return [(0.0, theme.suppressed), (0.5, theme.background), (1.0, theme.reinforced)]


def sequential(theme: Theme, colour: str | None = None) -> list[tuple[float, str]]:
    """A plotly colour scale for values from 0 up: from the background to one hue (favorable's unless named)."""
    return [(0.0, theme.background), (1.0, colour or theme.favorable)]


def rgba(colour: str, alpha: float) -> str:
    """`#rrggbb` with an alpha in [0, 1], as CSS."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{min(max(alpha, 0.0), 1.0):.3f})"
