"""Text from models, users and files, made harmless: one function for each place where it can land.

Streamlit renders Markdown with HTML entities, LaTeX, remote images, emoji and `:directives:` in labels, errors and
metrics; plotly renders `<b>` and `<a>` in every text of a figure; lone surrogates crash protobuf and pyarrow. So all
text that the lab did not write itself goes through exactly one of:

- `inert_markdown` for st.markdown, labels, captions, metrics, errors, popovers;
- `inert_plotly` for anything in a figure, hover text included;
- `inert_html` for st.html and HTML built by views, attributes included;
- `visible` alone for plain text (st.text, st.code, cells of st.dataframe, options of a selectbox, downloads).

What cannot be seen is shown: control characters by name (⟨ESC⟩, ⟨NUL⟩), bidirectional and zero-width marks and lone
surrogates by number (⟨U+202E⟩). Right-to-left letters stay letters, inside an isolate so that they cannot reorder what
follows.
"""

from __future__ import annotations

import html
import re
import unicodedata

from core.store.text import decode

_JOINER = "\u2060"  # word joiner: invisible, no width; breaks patterns that renderers look for after parsing
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_BREAKABLE = re.compile(r"([:@](?=\S)|\$|www|[<>~=-](?=\\?[<>=-]))", re.IGNORECASE)
_NAMES = {0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0D: "CR", 0x1B: "ESC", 0x7F: "DEL"}
_PLAIN = re.compile(r"[ -~]*")
LONGEST_TOKEN = 500
"""Characters shown of one token: no tokenizer has longer ones, but a file can, and a page shows thousands."""


def visible(text: object) -> str:
    """The text with everything invisible or dangerous to a terminal or encoder made visible; newlines and tabs stay.

    What the store had to escape comes back first, so that a lone surrogate reads the same wherever it comes from.
    """
    text = decode(str(text))
    if _PLAIN.fullmatch(text):
        return text
    shown = "".join(_visible(char) for char in text)
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in shown):
        shown = f"{_ISOLATE}{shown}{_END_ISOLATE}"
    return shown


def _visible(char: str) -> str:
    code = ord(char)
    if char in "\n\t" or 0x20 <= code < 0x7F:
        return char
    if code in _NAMES:
        return f"⟨{_NAMES[code]}⟩"
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"⟨U+{code:04X}⟩"
    return char


def inert_markdown(text: object) -> str:
    """One line of Markdown that shows the text as it is: no image, link, HTML, LaTeX, emoji or directive."""
    line = re.sub(r"[ \t]*\n[ \t]*", " ⏎ ", visible(text)).replace("\t", " ")
    escaped = _PUNCTUATION.sub(r"\\\1", line)
    return _BREAKABLE.sub(rf"\1{_JOINER}", escaped)


def inert_plotly(text: object, width: int | None = None) -> str:
    """Text for a figure: plotly's tags and hover templates see none. `width` cuts it to so many characters with an …"""
    shown = visible(text)
    if width is not None and len(shown) > width:
        shown = shown[: width - 1] + "…"
    shown = html.escape(shown, quote=False).replace("\n", " ⏎ ").replace("\t", " ")
    return shown.replace("%{", f"%{_JOINER}{{").replace("$", f"${_JOINER}")


def inert_html(text: object) -> str:
    """Text for HTML, as content or as a quoted attribute."""
    return html.escape(visible(text), quote=True)


def clipped(token: object) -> str:
    """A token's text, cut to LONGEST_TOKEN characters with an …; as foreign as before."""
    text = str(token)
    return text if len(text) <= LONGEST_TOKEN else text[:LONGEST_TOKEN] + "…"


def visible_token(token: object) -> str:
    """A token's own text with its spaces shown: ␣ for a space, ⏎ for a newline, ⇥ for a tab, ∅ for nothing.

    Plain text: pass it on through the function of its sink. A token beyond LONGEST_TOKEN is cut, with an …
    """
    shown = visible(clipped(token))
    return shown.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "∅"
