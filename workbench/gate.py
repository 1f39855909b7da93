"""Decide in under a millisecond whether a message deserves a closer look (tier L0). Pure, no I/O after the first call."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import ahocorasick

from workbench.text import strip_invisible

MAX_CUES: Final = 20
_REACH: Final = 28  # how far before a cue a negation may stand, and the longest exception
_SPACED_HAN: Final = re.compile(r"[ .·*_\-|/](?<=[\u4e00-\u9fff].)[ .·*_\-|/]{0,2}(?=[\u4e00-\u9fff])")


@dataclass(frozen=True, slots=True)
class GateDecision:
    """``escalate``: look closer. ``cues``: the phrases found, in order, at most 20. ``strong``: one of them is explicit."""

    escalate: bool
    cues: tuple[str, ...] = ()
    strong: bool = False


def lexicon(name: str) -> dict[str, Any]:
    """One lexicon resource file."""
    return tomllib.loads(files("workbench.resources").joinpath("lexicon", f"{name}.toml").read_text("utf-8"))


@lru_cache(maxsize=1)
def _fold_table() -> tuple[dict[str, str], re.Pattern[str]]:
    table = lexicon("fold")
    wide = {chr(c): unicodedata.normalize("NFKC", chr(c)) for c in range(0xFF01, 0xFF5F)}
    pairs = wide | dict(zip(table["traditional"], table["simplified"], strict=True)) | table["one_to_one"]
    return pairs, re.compile(f"[{re.escape(''.join(pairs))}]")


def fold_characters(text: str) -> str:
    """Character for character: traditional to simplified, full width to half, curly to straight, lower case. Keeps the length."""
    pairs, any_of_them = _fold_table()
    lowered = text.lower()
    return any_of_them.sub(lambda m: pairs[m[0]], lowered if len(lowered) == len(text) else text)


def plain(text: str) -> str:
    """The text as the gate reads it: NFKC, no invisible characters or apostrophes, simplified, lower case, no spaced-out Han."""
    folded = fold_characters(strip_invisible(text))
    if not unicodedata.is_normalized("NFKC", folded):
        folded = fold_characters(unicodedata.normalize("NFKC", folded))
    return _SPACED_HAN.sub("", " ".join(folded.replace("'", "").split()))


@lru_cache(maxsize=1)
def _machine() -> tuple[ahocorasick.Automaton, re.Pattern[str]]:
    table = lexicon("gate")
    machine = ahocorasick.Automaton()
    for kind in ("weak", "strong", "exception"):
        for phrase in (plain(p) for group in table[kind].values() for p in group):
            machine.add_word(phrase, (phrase, kind))
    machine.make_automaton()
    return machine, re.compile(table["negation"])


def l0(text: str) -> GateDecision:
    """Look for risk phrases in *text* (any length, linear time), leaving out idioms and denials. Favours recall."""
    machine, negation = _machine()
    folded = plain(text)
    found: list[tuple[int, int, str, str]] = []
    for last, (phrase, kind) in machine.iter(folded):
        start, end = last + 1 - len(phrase), last + 1
        if not (glued(folded[start - 1 : start], phrase[0]) or glued(phrase[-1], folded[end : end + 1])):
            found.append((end, start, phrase, kind))
    excused = [(end, start) for end, start, _, kind in found if kind == "exception"]
    cues: dict[str, str] = {}
    for end, start, phrase, kind in found:
        if phrase in cues or kind == "exception" or len(cues) == MAX_CUES:
            continue
        if not (_inside(excused, start, end) or negation.search(folded[max(0, start - _REACH) : start])):
            cues[phrase] = kind
    return GateDecision(bool(cues), tuple(cues), "strong" in cues.values())


def glued(left: str, right: str) -> bool:
    """Latin phrases match at word boundaries only: 'skilled' holds no 'kill'."""
    return left.isascii() and left.isalnum() and right.isascii() and right.isalnum()


def _inside(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    near = spans[bisect_left(spans, (end, -1)) : bisect_left(spans, (end + _REACH, -1))]
    return any(opening <= start for _, opening in near)
