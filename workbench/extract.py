"""Find JSON in model text, at two strictness levels, in linear time: no duplicate keys, no NaN, errors with line and column.

``strict``: once an outer fence is removed, the whole text is one JSON value (the self-check loop).
``scan``: the same first, then every complete value between prose, with few safe repairs (the judges' parser).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

MAX_CHARS: Final = 131_072
MAX_DEPTH: Final = 48
_MAX_GROUPS: Final = 256  # bracketed groups looked at, closed or not: keeps hostile input linear and quick
_MAX_UNCLOSED: Final = 16
_INVISIBLE: Final = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
BLANK: Final = _INVISIBLE + " \t\r\n\f\v\u0085\u00a0\u2028\u2029\u3000"
_WIDTH: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*(?:[A-Za-z0-9_+.-]+(?![^\s\[{\"`~]))?\s*(?:json[ \t]*\r?\n\s*)?")
_START: Final = re.compile(rf"[{{｛]|[\[［](?=[{BLANK}]{{0,80}}[\[{{\"'｛［“])")
_HEAD: Final = re.compile(rf"[\[{{［｛{BLANK}]{{1,80}}(['“＂])")
_CLOSER: Final = {'"': '"', "'": "'", "“": "”", "＂": "＂"}
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_QUOTED: Final = {"\\'": "'", '"': '\\"', "\\“": "“", "\\”": "”", "\\＂": "＂"}
_PLAIN: Final = r"""{0}[^{0}\\]*+(?:\\.[^{0}\\]*+)*+(?:{0}|\\?\Z)"""
_STRING: Final = {
    '"': _PLAIN.format('"'), "＂": _PLAIN.format("＂"), "'": _PLAIN.format('"') + "|" + _PLAIN.format("'"),
    "“": r"“[^“”\\]*+(?:\\.[^“”\\]*+)*+(?:”|(?=“)|\\?\Z)",
}  # fmt: skip
_TOKEN: Final = {
    style: re.compile(
        rf"(?P<string>{string})|(?P<note>//[^\n]*+|\#[^\n]*+|/\*.{{0,400}}?\*/)|(?P<mark>[{{\[}}\],:｛［｝］，：])"
        rf"|(?P<skip>[\s{_INVISIBLE}]++)|(?P<word>[A-Za-z0-9+.-]++|.)", re.DOTALL,
    ) for style, string in _STRING.items()
}  # fmt: skip


class NotJSON(ValueError):
    """The text holds no acceptable JSON; ``str()`` is short, names line and column where known, and quotes nothing."""

    def __init__(self, message: str, text: str = "", at: int | None = None) -> None:
        super().__init__(message)
        self.at, self._text = at, text

    def __str__(self) -> str:
        if self.at is None:
            return str(self.args[0])
        line, column = self._text.count("\n", 0, self.at) + 1, self.at - self._text.rfind("\n", 0, self.at)
        return f"line {line} column {column}: {self.args[0]}"


class Found(NamedTuple):
    """One decoded top-level value, the exact text it came from, and whether that had to be repaired."""

    value: Any
    source: str
    repaired: bool = False


class Scan(NamedTuple):
    """Values in order, the text that belongs to none of them, and the first syntax error met."""

    found: list[Found]
    leftover: str = ""
    error: NotJSON | None = None


def fold_width(text: str) -> str:
    """Full-width forms to ASCII; not NFKC, which would also turn look-alikes into letters."""
    return text.translate(_WIDTH)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(out := dict(pairs)) != len(pairs):
        raise NotJSON("a key occurs twice in one object")
    return out


def _constant(_: str) -> Any:
    raise NotJSON("NaN and Infinity are not JSON numbers")


_DECODE: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, strict=False).raw_decode


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODE(text, at)
    except json.JSONDecodeError as error:
        raise NotJSON(error.msg, text, error.pos) from None
    except NotJSON:
        raise
    except (ValueError, RecursionError):  # int() refuses very long digit strings
        raise NotJSON("a number is too long or the nesting too deep") from None


def check_size(text: str) -> None:
    """Raise ``NotJSON`` when *text* is too long or too deep to be looked at (brackets inside strings count too)."""
    if len(text) > MAX_CHARS:
        raise NotJSON(f"longer than {MAX_CHARS} characters")
    depth = 0
    for match in re.finditer(r"[\[{]|[\]}]", text) if text.count("{") + text.count("[") > MAX_DEPTH else ():
        depth = depth + 1 if match[0] in "[{" else max(depth - 1, 0)
        if depth > MAX_DEPTH:
            raise NotJSON(f"nested deeper than {MAX_DEPTH} levels")


def unfence(text: str) -> tuple[int, int]:
    """Start and end of the content without edge blanks and without one outer code fence (which may lack its end)."""
    end = len(text.rstrip(BLANK))
    start = min(end, len(text) - len(text.lstrip(BLANK)))
    opening = _FENCE.match(text, start, end)
    if opening is None:
        return start, end
    if text.endswith(opening[1], opening.end(), end):
        end = len(text[: end - len(opening[1])].rstrip(BLANK))
    return opening.end(), max(end, opening.end())


def _whole(text: str) -> Found:
    start, end = unfence(text)
    value, stop = _decode(text, start)
    if stop < end:
        raise NotJSON("text after the JSON value: return the JSON only", text, stop)
    return Found(value, text[start:end])


def strict(text: str) -> Any:
    """The single JSON value that *text* is once an outer fence is removed; raises ``NotJSON``."""
    check_size(text)
    return _whole(text).value


def scan(text: str) -> Scan:
    """Every complete top-level JSON value of *text*: the whole text first, then between prose, then repaired."""
    check_size(text)
    try:
        return Scan([_whole(text)])
    except NotJSON as problem:
        first = problem
    found: list[Found] = []
    left: list[str] = []
    last = position = unclosed = groups = 0
    while (match := _START.search(text, position)) and (groups := groups + 1) <= _MAX_GROUPS:
        at = match.start()
        try:
            value, position = _decode(text, at)
            found.append(Found(value, text[at:position]))
        except NotJSON as problem:
            first = first if first.at else problem
            mended = _mend(text, at)
            if mended is None:
                unclosed += 1
                # A brace that no key follows is prose; anything else is the remains of an object, to the end.
                if unclosed > _MAX_UNCLOSED or problem.at is None or text[at + 1 : problem.at].strip(BLANK):
                    break
                position = at + 1
                continue
            position = mended[1]
            left.append(mended[2])
            try:
                found.append(Found(_decode(mended[0], 0)[0], text[at:position], repaired=True))
            except NotJSON:
                left.append(text[at:position])
        left.append(text[last:at])
        last = position
    if groups > _MAX_GROUPS:
        raise NotJSON("too many brackets")
    return Scan(found, "\n".join([*left, text[last:]]), first)


def _mend(text: str, at: int) -> tuple[str, int, str] | None:
    """Rewrite the bracketed group at *at* as JSON, changing nothing inside strings; None when it never closes.

    Mends trailing commas, comments, invisible characters, curly or full-width punctuation and Python literals.
    Whatever else is wrong stays wrong, so that the decoder refuses it. Returns (json, end, comments).
    """
    head = _HEAD.match(text, at)
    style = head[1] if head else '"'
    out: list[str] = []
    notes: list[str] = []
    words = {"True"} if style == "'" else set[str]()
    depth = 0
    for match in _TOKEN[style].finditer(text, at):
        token, kind = match[0], match.lastgroup
        if kind == "skip":
            continue
        if kind == "note":
            notes.append(token)
            continue
        if kind == "string":
            if len(token) < 2 or token[-1] != _CLOSER[token[0]]:
                return None
            if token[0] != '"':
                token = '"' + re.sub(r'\\.|"', lambda m: _QUOTED.get(m[0], m[0]), token[1:-1], flags=re.DOTALL) + '"'
        elif kind == "word":
            words.add(token)
            token = _PYTHON.get(token, token)
        elif (token := fold_width(token)) in "}]":
            depth -= 1
            if len(out) > 1 and out[-1] == "," and out[-2] not in ("{", "[", ",", ":"):
                out.pop()
        else:
            depth += token in "{["
        out.append(token)
        if depth == 0:  # true beside True is neither JSON nor Python
            mixed = words & _PYTHON.keys() and words & {*_PYTHON.values()}
            return "" if mixed else " ".join(out), match.end(), "\n".join(notes)
    return None
