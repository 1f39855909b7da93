"""Read a text the way a reader sees it, once, and remember where each character came from."""

from __future__ import annotations

import html
import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

_NO_GLYPH: Final = ("Cf", "Mn", "Me", "Cc")
# Clause marks keep their width: NFKC would make the full-width comma a digit separator.
_KEEP: Final = frozenset("，。；！？：、（）【】《》“”…")
# One pass over everything that is not itself: escapes (also doubled), entities, comments, tags, emphasis marks.
_MARKUP: Final = re.compile(
    r"(?P<escape>(?<!\\)\\++(?:u[0-9a-fA-F]{4}|[nrt\"'/\\]))|(?P<entity>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});?)"
    r"|(?P<tag><(?:!--(?:(?!-->|<!--).)*-->|/?[A-Za-z][^<>]*>))|(?P<mark>\*{2,}|~~+|`+|(?<!\d)\*|\*(?!\d))",
    re.DOTALL,
)
_BLOCK: Final = re.compile(r"</?(?:br|p|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|section|article)\b", re.IGNORECASE)


@cache
def words(name: str) -> dict[str, Any]:
    """A word list of the package, by file name."""
    return tomllib.loads(resources.files("workbench.resources").joinpath(f"{name}.toml").read_text("utf-8"))


@cache
def grammar(name: str, section: str, given: tuple[tuple[str, str], ...] = ()) -> dict[str, re.Pattern[str]]:
    """The patterns of one table of a word list, compiled once; ``%x%`` stands for *given* x or for an earlier pattern x."""
    known = dict(given)
    for key, pattern in words(name)[section].items():
        known[key] = re.sub(r"%(\w+)%", lambda m: known[m[1]], pattern)
    return {key: re.compile(known[key]) for key in words(name)[section]}


class _Chars(dict[str, str]):
    """Character to what it reads as: width, case, digits of any script, traditional to simplified; marks without a glyph vanish."""

    def __missing__(self, char: str) -> str:
        if char in _KEEP:
            out = char
        elif char in "\u115f\u1160\u3164\uffa0" or (unicodedata.category(char) in _NO_GLYPH and char not in "\n\t\r"):
            out = ""
        elif unicodedata.decimal(char, None) is not None:
            out = str(unicodedata.decimal(char))
        else:
            plain = unicodedata.normalize("NFKC", char).lower().replace("⁄", "/")
            out = "".join(" " if c.isspace() and c != "\n" else _simplified().get(c, c) for c in plain)
        self[char] = out
        return out


@cache
def _simplified() -> dict[str, str]:
    return {pair[0]: pair[1] for pair in " ".join(words("fold").values()).split()}


_CHARS: Final = _Chars()


@dataclass(frozen=True, slots=True)
class Folded:
    """``text`` as read; character i came from raw[starts[i]:ends[i]]; ``hidden`` is what stood inside tags and comments."""

    text: str
    starts: list[int]
    ends: list[int]
    hidden: str

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where folded[start:end], not empty, stands in the raw text."""
        return self.starts[start], self.ends[end - 1]


def _replaced(match: re.Match[str]) -> str:
    text, kind = match[0], match.lastgroup
    if kind == "entity":
        return html.unescape(text)
    if kind == "tag":
        return "\n" if _BLOCK.match(text) else ""
    if kind == "escape":
        tail = text.lstrip("\\")
        return chr(int(tail[1:], 16)) if tail[:1] == "u" and len(tail) == 5 else {"n": "\n", "r": "\n", "t": " "}.get(tail, tail)
    return ""


def fold(text: str) -> Folded:
    """Fold *text* in time linear in its length; any text is accepted."""
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    hidden: list[str] = []
    last = 0
    for match in [*_MARKUP.finditer(text), None]:
        start, end = match.span() if match else (len(text), len(text))
        reads = [_CHARS[c] for c in text[last:start]]
        out.extend(reads)
        if len(piece := "".join(reads)) == start - last and "" not in reads:
            starts.extend(range(last, start))
            ends.extend(range(last + 1, start + 1))
        elif piece:
            at = [i for i, read in enumerate(reads, last) for _ in read]
            starts.extend(at)
            ends.extend(i + 1 for i in at)
        if match:
            read = "".join(_CHARS[c] for c in _replaced(match))
            out.append(read)
            starts.extend([start] * len(read))
            ends.extend([end] * len(read))
            if match.lastgroup == "tag" and len(match[0]) > 3:
                hidden.append(match[0].strip("<>!-/"))
        last = end
    return Folded("".join(out), starts, ends, "\n".join(hidden))
