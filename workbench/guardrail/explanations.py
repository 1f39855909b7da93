"""Check that an explanation of an outcome contradicts nothing in it, and write the one shown when it does."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import chain
from typing import Final

from workbench.crisis import unlisted_numbers
from workbench.folding import fold, grammar, words
from workbench.guardrail.numerals import english, english_numeral, numeral
from workbench.guardrail.promises import check_promises, squeezed
from workbench.schema import CONFIRM_CONFIDENCE, FLAGS, Assessment, Outcome, RiskLevel
from workbench.text import detect_lang

_ALL: Final = tuple(level.value for level in RiskLevel)
_NAMED: Final = {"高": "high", "中": "medium", "低": "low", "轻": "low", "重": "loud"} | {
    name: level
    for names, level in zip(("1 一 one", "2 二 two", "3 三 three", "4 四 four"), _ALL, strict=True)
    for name in names.split()
}
_LINE: Final = Decimal(str(CONFIRM_CONFIDENCE))
_BEFORE: Final = 60  # characters before a claim in which its negation or scope is looked for


@dataclass(frozen=True, slots=True)
class ExplanationCheck:
    """``shown`` is the text itself when ``ok``, else the deterministic explanation; ``reasons`` says what was wrong."""

    ok: bool
    reasons: tuple[str, ...]
    shown: str


def explain_outcome(outcome: Outcome, *, lang: str = "en") -> str:
    """The explanation that the workbench writes itself, in ``zh`` or ``en``; it states each value of the outcome once."""
    t: dict[str, str] = words("explanations")["text"][lang]
    names: dict[str, str] = words("explanations")["levels"].get(lang, {})

    def level(value: object) -> str:
        return names.get(str(value), str(value))

    def side(a: Assessment) -> str:
        if a.confidence is None:
            return t["missing"].format(tier=a.tier, reason=a.reason or t["none"])
        flags = t["join"].join(f for f in FLAGS if a.flags.get(f)) or t["none"]
        capped = t["capped"].format(tier=a.tier, raw=level(a.raw_level)) if a.raw_level != a.level else ""
        return t["side"].format(tier=a.tier, level=level(a.level), confidence=_shown(a.confidence), flags=flags) + capped

    verdict = t["yes"] if outcome.confirmed else t["no"].format(blocked=t["join"].join(outcome.blocked_by) or t["none"])
    parts = [
        t["level"].format(level=level(outcome.level)),
        t["incomplete"] if outcome.incomplete else "",
        side(outcome.l1),
        side(outcome.l2),
        verdict,
    ]
    if outcome.review_reasons:
        parts.append(t["review"].format(reasons=t["join"].join(f"({r})" for r in outcome.review_reasons)))
    return (" " if lang == "en" else "").join(p for p in [*parts, t["advisory"]] if p)


def check_explanation(text: str, outcome: Outcome, *, region: str | None = None) -> ExplanationCheck:
    """Does *text* contradict the outcome's levels, confidences, flags or confirmed bit, promise anything, or name an unlisted number?

    A claim is read in its sentence: which judge it is about, whether it is denied or a bound. Every claim must hold.
    """
    reasons = [f"promises: “{h.text}”" for about in ("care", "payout") for h in check_promises(text, about=about).hits]
    reasons += [f"a number that is not in the resource table: {n}" for n in unlisted_numbers(text, region)]
    _, read = squeezed(fold(text).text)
    if not read.strip():
        reasons.append("there is no text")
    for sentence in grammar("explanations", "words")["sentence"].split(read):
        reasons += _Sentence(sentence, outcome).contradictions()
    lang = "en" if detect_lang(text) == "en" else "zh"
    shown = explain_outcome(outcome, lang=lang) if reasons else text
    return ExplanationCheck(not reasons, tuple(dict.fromkeys(reasons)), shown)


@cache
def _either(section: str, *names: str) -> re.Pattern[str]:
    """One pattern of several: the leftmost match, and of those at the same place the first named, says which it was."""
    table = grammar("explanations", section)
    return re.compile("|".join(f"(?P<{n}>{re.sub(r'[?]P<[a-z]+>', '?:', table[n].pattern)})" for n in names or table))


class _Sentence:
    """The claims of one sentence, each held against the outcome."""

    def __init__(self, text: str, outcome: Outcome) -> None:
        self.t, self.o, self.w = text, outcome, grammar("explanations", "words")
        self.scopes = [(m.start(), str(m.lastgroup)) for m in _either("scope").finditer(text)]
        self.raw = bool(self.w["raw"].search(text))

    def contradictions(self) -> Iterator[str]:
        yield from self._levels()
        yield from self._confidences()
        yield from self._confirmed()
        yield from self._flags()

    def _scope(self, at: int) -> str:
        """Which judge the words at *at* are about: the one named last before them."""
        before = bisect_left(self.scopes, (at, ""))
        return self.scopes[before - 1][1] if before else "overall"

    def _sides(self, at: int) -> list[Assessment]:
        o, scope = self.o, self._scope(at)
        return {"l1": [o.l1], "l2": [o.l2], "arbiter": [o.arbiter or o.l1]}.get(scope, [o.l1, o.l2])

    def _before(self, at: int) -> str:
        return self.w["clause"].split(self.t[max(0, at - _BEFORE) : at])[-1]

    def _denied(self, at: int) -> bool:
        return bool(self.w["negation"].search(self._before(at)))

    def _levels(self) -> Iterator[str]:
        for m in _either("level").finditer(self.t):
            kind, before = str(m.lastgroup), self._before(m.start())
            if kind == "not_level" or self.w["not_only"].search(before):
                continue
            if kind in ("han", "number"):
                kind = _NAMED[re.findall("|".join(_NAMED), m[0])[-1]]
            fits: list[str] = self._bounded(words("explanations")["fits"][kind], before, m.end())
            if self._denied(m.start()) != bool(self.w["denied_after"].match(self.t, m.end())):
                fits = [level for level in _ALL if level not in fits]
            one_each = [[str(a.level), str(a.raw_level)] if self.raw else [str(a.level)] for a in self._sides(m.start())]
            if self._scope(m.start()) == "overall":
                loose = self.raw or fits == ["unknown"]  # then either side may be meant
                one_each = [[str(self.o.level), *(chain(*one_each) if loose else ())]]
            if not all(set(fits) & set(held) for held in one_each):
                yield f"level: “{m[0].strip()}”, the outcome says {', '.join(held[0] for held in one_each)}"

    def _bounded(self, fits: list[str], before: str, end: int) -> list[str]:
        first, last = (_ALL.index(fits[0]), _ALL.index(fits[-1])) if fits[0] in _ALL else (0, -1)
        after = self.t[end : end + 16]
        if self.w["at_least"].search(before) or self.w["or_above"].search(after):
            return list(_ALL[first:])
        if self.w["at_most"].search(before) or self.w["or_below"].search(after):
            return list(_ALL[: last + 1])
        if self.w["above"].search(before):
            return list(_ALL[last + 1 :])
        return list(_ALL[:first]) if self.w["below"].search(before) else fits

    def _confidences(self) -> Iterator[str]:
        g = grammar("explanations", "confidence")
        spoken_of = bool(g["word"].search(self.t))
        for m in grammar("explanations", "share", (("EN", english()),))["share"].finditer(self.t):
            value, sides, near = _share(m), self._sides(m.start()), self.t[max(0, m.start() - 24) : m.end() + 16]
            if value is None or not (spoken_of or self._scope(m.start()) != "overall"):
                continue
            if value == _LINE and g["threshold"].search(near):
                continue
            held = [a.confidence for a in sides if a.confidence is not None]
            if not any(_reads_as(c, value) for c in held):
                yield f"confidence: “{m[0]}”, the outcome says {', '.join(map(_shown, held)) or 'unknown'}"
        for m in _either("confidence", "low", "high").finditer(self.t):
            claims_high = (m.lastgroup == "high") != self._denied(m.start())
            enough = [a.confidence is not None and a.confidence >= CONFIRM_CONFIDENCE for a in self._sides(m.start())]
            if claims_high != all(enough):
                yield f"confidence: “{m[0]}”, against the threshold of {CONFIRM_CONFIDENCE}"

    def _confirmed(self) -> Iterator[str]:
        for m in _either("confirmed", "no", "yes").finditer(self.t):
            if self.o.confirmed != ((m.lastgroup == "yes") != (m.lastgroup == "yes" and self._denied(m.start()))):
                yield f"confirmed: “{m[0].strip()}”, the outcome says {self.o.confirmed}"
        held = sum(c.passed for c in self.o.conditions[:6])
        for m in grammar("explanations", "confirmed")["count"].finditer(self.t):
            said = 6 if m["all"] else 0 if m["none"] else int(_number(m["n"] or m["z"]) or 0)
            if self.o.conditions and said != held:
                yield f"conditions: “{m[0].strip()}”, {held} of 6 hold"

    def _flags(self) -> Iterator[str]:
        for m in _either("flags").finditer(self.t):
            name, sides, denied = str(m.lastgroup), self._sides(m.start()), self._denied(m.start())
            raised = any(a.flagged if name in ("none", "some") else a.flags.get(name) for a in sides)
            if raised != ((name != "none") != (denied and name != "none")):
                yield f"flags: “{m[0].strip()}”, the outcome says {'some' if name in ('none', 'some') else name}: {raised}"


def _share(m: re.Match[str]) -> Decimal | None:
    """A confidence as written (0.9, 90%, 九成, 百分之九十, 9/10, nine out of ten) in [0, 1], with as many places as were written."""
    if m["ten"]:
        return Decimal("0." + "".join(str(_number(c)) for c in m["ten"] if c != "成"))
    value = _number(m["x"] or m["percent"] or m["han_percent"] or m["tenth"])
    return value if value is None or m["x"] else value.scaleb(-1 if m["tenth"] else -2)


def _number(text: str) -> Decimal | None:
    return numeral(text) if not text.isascii() or any(c.isdigit() for c in text) else english_numeral(text.strip())


def _reads_as(confidence: float, value: Decimal) -> bool:
    """Is *value* the confidence, rounded (or cut, from three places on) as it is written, on the same side of the threshold?"""
    step = Decimal(1).scaleb(int(value.as_tuple().exponent))
    gap = Decimal(str(confidence)) - value
    return (confidence >= CONFIRM_CONFIDENCE) == (value >= _LINE) and (
        abs(gap) <= step / 2 or (0 <= gap < step <= Decimal("0.001"))
    )


def _shown(confidence: float) -> str:
    """Three places, cut where rounding would cross the threshold."""
    text = f"{confidence:.3f}"
    return text if _reads_as(confidence, Decimal(text)) else str(_LINE - Decimal("0.001"))
