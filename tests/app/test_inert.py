"""Foreign text in each sink. What a browser makes of it is in tests/browser."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inert import LONGEST_TOKEN, inert_html, inert_markdown, inert_plotly, visible, visible_token

HOSTILE = {
    "image": "![x](http://evil.example/p.png)",
    "latex": "$$\\frac{1}{2}$$ and $a$",
    "icon": ":material/home: :smile: :red[loud] :blue-badge[b]",
    "link": '<a href="http://evil.example">go</a> [go](http://evil.example) www.evil.example me@evil.example',
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "bidi": "safe \u202egnp.exe\u202c \u2066x\u2069 \u200f",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "null": "a\x00b",
    "surrogate": "a\ud800b\udfff",
    "block": "# head\n- list\n1. one\n> quote\n```\ncode\n```\n| a | b |\n|---|---|",
    "plotly": "<b>bold</b> %{customdata[0]} <br>",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("sink", [visible, inert_markdown, inert_plotly, inert_html, visible_token])
def test_every_sink_gives_text_that_can_be_sent(sink, text):
    shown = sink(text)
    json.dumps(shown).encode("utf-8")
    shown.encode("utf-8")
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert not any(c in shown for c in "\u202e\u202c\u2066\u200f\x7f")


def test_visible_shows_what_cannot_be_seen():
    assert visible("a\x00b\x1b[0m") == "a⟨NUL⟩b⟨ESC⟩[0m"
    assert visible("x\u202ey") == "x⟨U+202E⟩y"
    assert visible("\ud800") == visible("␛ud800") == "⟨U+D800⟩"  # straight, and by way of the store
    assert visible("a\u200bb") == "a⟨U+200B⟩b"
    assert visible("line\nnext\ttab") == "line\nnext\ttab"
    assert visible("naïve → 日本 🙂") == "naïve → 日本 🙂"


def test_right_to_left_letters_stay_inside_an_isolate():
    assert visible("שלום") == "\u2068שלום\u2069"


def test_markdown_is_escaped_character_by_character():
    assert inert_markdown("a_b*c") == r"a\_b\*c"
    assert inert_markdown("![x](h)") == r"\!\[x\]\(h\)"
    assert inert_markdown("<b>") == r"\<b\>"
    assert "\n" not in inert_markdown(HOSTILE["block"])


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("http://x", "://"),
        (":smile:", ":smile:"),
        ("a@b.c", "@b"),
        ("www.x.y", "www."),
        ("a -> b", "->"),
        ("$x$", "$x$"),
    ],
)
def test_patterns_that_renderers_look_for_after_parsing_are_broken(text, pattern):
    unescaped = inert_markdown(text).replace("\\", "")
    assert pattern in text
    assert pattern not in unescaped
    assert unescaped.replace("\u2060", "") == text


def test_ordinary_words_are_left_alone():
    assert inert_markdown("GRPO seed 0") == "GRPO seed 0"
    assert inert_plotly("7+8-3=?") == "7+8-3=?"
    assert inert_html("plain") == "plain"


def test_plotly_sees_no_tags_and_no_templates():
    shown = inert_plotly(HOSTILE["plotly"])
    assert "<" not in shown
    assert "%{" not in shown
    go.Figure(go.Scatter(x=[1], y=[1], name=inert_plotly(HOSTILE["surrogate"]))).to_json()


def test_plotly_text_can_be_cut():
    assert inert_plotly("abcdefgh", 5) == "abcd…"
    assert inert_plotly("abc", 5) == "abc"


def test_html_is_escaped_in_content_and_attributes():
    assert inert_html("<a href='x' title=\"y\">&") == "&lt;a href=&#x27;x&#x27; title=&quot;y&quot;&gt;&amp;"


def test_tokens_show_their_spaces():
    assert visible_token(" so ") == "␣so␣"
    assert visible_token("\n\t") == "⏎⇥"
    assert visible_token("") == "∅"


def test_a_token_that_no_tokenizer_has_is_cut():
    """A page shows thousands of tokens: one of 100 kB in each row would be sent as often."""
    long = "<b>x</b>" * 12_500
    assert visible_token(long) == long[:LONGEST_TOKEN] + "…"
    assert visible_token("a" * LONGEST_TOKEN) == "a" * LONGEST_TOKEN


@given(st.text(st.characters(), max_size=40))
def test_markdown_says_the_text_and_nothing_else(text):
    """Backslashes and joiners aside, the reader sees exactly what `visible` shows, on one line."""
    shown = inert_markdown(text)
    plain = []
    escaped = False
    for char in shown:
        if char == "\\" and not escaped:
            escaped = True
            continue
        escaped = False
        plain.append(char)
    wanted = " ".join(visible(text).replace("\t", " ").replace("\n", " ⏎ ").split())
    assert " ".join("".join(plain).replace("\u2060", "").split()) == wanted
