"""The presentation switch: larger type on every page, readable from the back of a classroom.

It lives in the address (`present=1`), goes along with every link, and the session remembers it for the links of the
navigation, which carry nothing. Streamlit's own lengths follow the root's font size, the lab's views that count in
pixels are zoomed (`--lab-zoom`), and figures are enlarged by `app.views.base.enlarged`.
"""

from __future__ import annotations

import streamlit as st

from app import urls
from app.palette import Theme

SCALE = 1.35
ROOT_PX = 16
"""The font size of Streamlit's root, which its theme does not let a page change."""
ROOMY, ROOMY_REM = "roomy", 31
"""What stands in a row and has long words: a container whose key begins so is never narrower than this many rem, unless
the page is; what stands beside it then goes below."""
MARKED = "button[data-variant][data-selected='true'] *, [data-testid='stSliderThumbValue']"
"""Small type that Streamlit draws in the primary colour, too dim on a dark page."""


def scale() -> float:
    """How much larger than usual everything is to be drawn."""
    return SCALE if urls.presenting() else 1.0


def settle() -> None:
    """Put what this session chose into an address that says nothing of it."""
    if urls.param(urls.PRESENT) is not None:
        urls.remember(urls.PRESENT, urls.param(urls.PRESENT))
    elif urls.remembered(urls.PRESENT) == "1":
        urls.set_params(**{urls.PRESENT: True})


def style(theme: Theme) -> str:
    """The style that every page starts with: less space above its first line, marks that are readable in the dark."""
    large = f"html {{ font-size: {ROOT_PX * SCALE}px !important; --lab-zoom: {SCALE} }}" if urls.presenting() else ""
    return (
        "<style>.stMainBlockContainer { padding-top: 4.5rem } "
        f"{MARKED} {{ color: {theme.text} !important }} "
        f"[data-testid='stLayoutWrapper']:has(> [class*='st-key-{ROOMY}']) {{ min-width: min(100%, {ROOMY_REM}rem) }} "
        "[data-testid='stSelectbox'] input { text-overflow: ellipsis } "
        f"{large}</style>"
    )


def button() -> None:
    """The switch, a small icon."""
    now = urls.presenting()
    st.button(
        "", key="present", type="tertiary", icon=":material/text_decrease:" if now else ":material/text_increase:",
        help="Back to the usual size" if now else "Larger type, for presenting", on_click=_set, args=(not now,),
    )  # fmt: skip


def _set(now: bool) -> None:
    urls.remember(urls.PRESENT, str(int(now)))
    urls.set_params(**{urls.PRESENT: now or None})
