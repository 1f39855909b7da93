"""Text on the ground floor: normalisation, hashes, language, and making hostile text inert."""

from __future__ import annotations

import hashlib
import hmac
import html
import re
import unicodedata
from typing import Final, Literal

# Zero-width, bidirectional controls, soft hyphen, BOM, variation selectors, tag characters.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_APOSTROPHES: Final = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u02b9": "'", "\u0060": "'", "\u00b4": "'", "\uff07": "'"}
)
_SPACES: Final = re.compile(r"\s+")
_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
# hashlib lets go of the interpreter lock for pieces above 2,047 bytes; beside a writing thread, getting it back takes
# longer than the hash.
_PIECE: Final = 2000
_LATIN_WORD: Final = re.compile(r"[A-Za-z]{2,}")


def strip_invisible(text: str) -> str:
    """Remove characters that carry no glyph: zero-width, bidi controls, tags, soft hyphens."""
    return _INVISIBLE.sub("", text)


def normalise(text: str) -> str:
    """NFKC, invisible characters removed, apostrophes folded, case folded, runs of white space made one space."""
    folded = unicodedata.normalize("NFKC", strip_invisible(text)).translate(_APOSTROPHES)
    return _SPACES.sub(" ", folded).strip().casefold()


def encodable(text: str) -> str:
    """Replace lone surrogates and NUL, so that the text can be stored and sent."""
    if "\x00" not in text and text.isprintable():
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def sha256(text: str) -> str:
    """Hex SHA-256 of the UTF-8 bytes; lone surrogates are kept distinct."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        digest.update(data[start : start + _PIECE])
    return digest.hexdigest()


def keyed_hash(text: str, key: bytes) -> str:
    """HMAC-SHA256 (hex) of the text: tells two texts apart without telling what they say."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def detect_lang(text: str) -> Literal["zh", "en", "mixed"]:
    """zh, en or mixed, by counting Han characters against Latin words."""
    han, latin = len(_HAN.findall(text)), len(_LATIN_WORD.findall(text))
    if not han:
        return "en"
    return "mixed" if latin >= 3 and latin * 2 > han * 0.3 else "zh"


def inert(text: object) -> str:
    """Plain text that cannot drive a terminal or reorder a line: control and bidi characters become visible escapes."""
    return "".join(_escape(c) if _CONTROL.match(c) or _INVISIBLE.match(c) or "\ud800" <= c <= "\udfff" else c for c in str(text))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def inert_html(text: object) -> str:
    """HTML-escaped, inert text; ``$`` and backticks are entities, so that MathJax and Markdown leave them alone."""
    escaped = html.escape(inert(text), quote=True)
    return escaped.replace("$", "&#36;").replace("`", "&#96;").replace("\\(", "&#92;(").replace("\\[", "&#92;[")


def inert_cell(value: object) -> object:
    """A value for CSV or a spreadsheet: text that would start a formula gets a leading apostrophe."""
    if not isinstance(value, str):
        return value
    text = inert(value)
    formula = text[:1] in ("\t", "\r") or text.lstrip()[:1] in tuple("=+-@＝＋－＠")
    return "'" + text if formula else text
