"""Find JSON in model text, at two strictness levels, in linear time.

``strict``: after removing one outer fence the whole text is one JSON value (the self-check loop's format check).
``scan``: the same first, then every complete top-level value between prose, with few safe repairs (the judges' parser).
Both reject duplicate keys and NaN, tolerate raw newlines inside strings, and name line and column.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

MAX_CHARS: Final = 131_072
MAX_DEPTH: Final = 48
_MAX_MISSES: Final = 16  # unclosed braces that are tried before giving up: keeps hostile input linear

INVISIBLE: Final = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
_EDGE: Final = INVISIBLE + " \t\r\n\f\v\u00a0\u3000\u2028\u2029\u0085"
_WIDTH: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_DROP: Final = dict.fromkeys(map(ord, INVISIBLE))

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*(?:[A-Za-z0-9_+.-]+(?![^\s\[{\"`~]))?\s*(?:json[ \t]*\r?\n\s*)?")
_START: Final = re.compile(r"[{｛]|[\[［](?=[\s%s]*[\[{\"'｛［“])" % INVISIBLE)
_STRINGS: Final = {
    '"': r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))',
    "'": r"""(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|'[^'\\]*+(?:\\.[^'\\]*+)*+(?:'|\\?\Z))""",
    "“": r"(?P<string>“[^“”\\]*+(?:\\.[^“”\\]*+)*+(?:”|(?=“)|\\?\Z))",
    "＂": r"(?P<string>＂[^＂\\]*+(?:\\.[^＂\\]*+)*+(?:＂|\\?\Z))",
}
_TOKENS: Final = {
    style: re.compile(
        string + r"|(?P<note>//[^\n]*+|\#[^\n]*+|/\*.{0,400}?\*/)|(?P<open>[{\[｛［])|(?P<close>[}\]｝］])"
        r"|(?P<mark>[,:，：])|(?P<word>[A-Za-z0-9+.-]++)|(?P<skip>[\s" + INVISIBLE + r"]++)|(?P<bad>.)",
        re.DOTALL,
    )
    for style, string in _STRINGS.items()
}  # fmt: skip
_CLOSER: Final = {'"': '"', "'": "'", "“": "”", "＂": "＂"}
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}


class NotJSON(ValueError):
    """The text holds no acceptable JSON; ``str()`` is a short message without any of the text."""

    def __init__(self, message: str, text: str = "", at: int | None = None) -> None:
        self.at = at
        self.line = None if at is None else text.count("\n", 0, at) + 1
        self.column = None if at is None else at - text.rfind("\n", 0, at)
        super().__init__(message if at is None else f"line {self.line} column {self.column}: {message}")


@dataclass(frozen=True, slots=True)
class Found:
    """One decoded top-level value and the exact text it came from."""

    value: Any
    source: str
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """Values found in order, the text that belongs to none of them, and the first syntax error met."""

    found: tuple[Found, ...] = ()
    leftover: str = ""
    error: NotJSON | None = None


def fold_width(text: str) -> str:
    """Full-width forms to ASCII; not NFKC, which would also turn look-alikes into letters."""
    return text.translate(_WIDTH)


def drop_invisible(text: str) -> str:
    """Remove zero-width and direction characters."""
    return text.translate(_DROP)


def trim(text: str) -> str:
    """Strip white space, BOM and zero-width characters from both ends."""
    return text.strip(_EDGE)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
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
    except StopIteration as error:
        raise NotJSON("Expecting value", text, error.value) from None
    except NotJSON:
        raise
    except ValueError:  # int() refuses very long digit strings
        raise NotJSON("a number has too many digits") from None
    except RecursionError:
        raise NotJSON(f"nested deeper than {MAX_DEPTH} levels") from None


def check_size(text: str) -> None:
    """Raise ``NotJSON`` when *text* is too long or too deep to be looked at (counts brackets inside strings too)."""
    if len(text) > MAX_CHARS:
        raise NotJSON(f"longer than {MAX_CHARS} characters")
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    depth = 0
    for match in re.finditer(r"[\[{]|[\]}]", text):
        depth = depth + 1 if match[0] in "[{" else max(depth - 1, 0)
        if depth > MAX_DEPTH:
            raise NotJSON(f"nested deeper than {MAX_DEPTH} levels")


def unfence(text: str) -> tuple[int, int]:
    """Where the content starts and ends without edge blanks and without one outer code fence (which may lack its end)."""
    end = len(text.rstrip(_EDGE))
    start = min(end, len(text) - len(text.lstrip(_EDGE)))
    opening = _FENCE.match(text, start, end)
    if opening is None:
        return start, end
    if text.endswith(opening[1], opening.end(), end):
        end = len(text[: end - len(opening[1])].rstrip(_EDGE))
    return opening.end(), max(end, opening.end())


def strict(text: str) -> Any:
    """The single JSON value that *text* is once an outer fence is removed; raises ``NotJSON`` with line and column."""
    check_size(text)
    start, end = unfence(text)
    if start == end:
        raise NotJSON("empty: a JSON value is needed")
    value, stop = _decode(text, start)
    if stop < end:
        raise NotJSON("text after the JSON value: return the JSON only", text, stop)
    return value


def scan(text: str) -> Scan:
    """Every complete top-level JSON value of *text*: the whole text first, then between prose, then repaired."""
    check_size(text)
    start, end = unfence(text)
    try:
        value, stop = _decode(text, start)
        if stop >= end:
            return Scan((Found(value, text[start:stop]),))
    except NotJSON as error:
        first: NotJSON | None = error
    else:
        first = None
    return _between_prose(text, first)


def _between_prose(text: str, error: NotJSON | None) -> Scan:
    found: list[Found] = []
    left: list[str] = []
    last = position = misses = 0
    while match := _START.search(text, position):
        at = match.start()
        source = text
        repaired = False
        try:
            value, end = _decode(text, at)
        except NotJSON as problem:
            error = problem if error is None or not found and match[0] == "{" and error.at == 0 else error
            group = _mend(text, at)
            if group is None:
                misses += 1
                # A brace that no key follows is prose; anything else is the remains of an object, to the end.
                if misses > _MAX_MISSES or problem.at is None or text[at + 1 : problem.at].strip(_EDGE):
                    break
                position = at + 1
                continue
            source, end, notes = group
            left.append(notes)
            try:
                value, _ = _decode(source, 0)
                repaired = True
            except NotJSON:
                left.append(text[last:end])
                last = position = end
                continue
        left.append(text[last:at])
        found.append(Found(value, text[at:end], repaired))
        last = position = end
    left.append(text[last:])
    return Scan(tuple(found), "\n".join(left), error)


def _mend(text: str, at: int) -> tuple[str, int, str] | None:
    """Rewrite the bracketed group at *at* as JSON, changing nothing inside strings; None when it never closes.

    Mends trailing commas, comments, invisible characters, curly or full-width punctuation and Python literals.
    Whatever else is wrong stays wrong, so that the decoder refuses it. Returns (json, end, comments).
    """
    head = text[at : at + 80].translate(_DROP).lstrip(_EDGE + "[{｛［")[:1]
    style = head if head in _CLOSER and head else '"'
    out: list[str] = []
    notes: list[str] = []
    words: set[bool] = {True} if style == "'" else set()
    depth = 0
    for match in _TOKENS[style].finditer(text, at):
        token, kind = match[0], match.lastgroup
        if kind == "string":
            if len(token) < 2 or token[-1] != _CLOSER[token[0]]:
                return None
            out.append(token if token[0] == '"' else _requote(token[1:-1]))
        elif kind == "open":
            depth += 1
            out.append(token.translate(_WIDTH))
        elif kind == "close":
            if len(out) > 1 and out[-1] == "," and out[-2] not in ("{", "[", ",", ":"):
                out.pop()
            depth -= 1
            out.append(token.translate(_WIDTH))
            if depth == 0:
                both = len(words) > 1  # true beside True is neither JSON nor Python
                return ("" if both else " ".join(out)), match.end(), "\n".join(notes)
        elif kind == "note":
            notes.append(token)
        elif kind != "skip":
            if token in _PYTHON or token in ("true", "false", "null"):
                words.add(token in _PYTHON)
            out.append(_PYTHON.get(token, token.translate(_WIDTH) if kind == "mark" else token))
    return None


def _requote(body: str) -> str:
    fixes = {"\\'": "'", '"': '\\"', "\\“": "“", "\\”": "”", "\\＂": "＂"}
    return '"' + re.sub(r'\\.|"', lambda m: fixes.get(m[0], m[0]), body, flags=re.DOTALL) + '"'
