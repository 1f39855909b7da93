"""Find cues in a text, and say which of them count as the speaker's own present state."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from re import _constants as _sre  # type: ignore[attr-defined]
from re import _parser as _sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

import ahocorasick

from workbench.gate import fold_characters, glued, lexicon
from workbench.text import strip_invisible

_SENTENCE_END: Final = re.compile(r"[.!?;。…~\n]+")
_LONG_WORD: Final = re.compile(r"[a-z]{4,}")
_QUOTED: Final = re.compile(
    r"“[^“”\n]{1,160}”|「[^「」\n]{1,160}」|『[^』\n]{1,160}』|《[^》\n]{1,60}》|\"[^\"\n]{1,160}\"|(?<![a-z])'[^'\n]{3,160}'(?![a-z])"
)
_NOT_GLUED: Final = r"(?:(?<![a-z0-9])|(?![a-z0-9]))"
_SHORT: Final = {" ": r"[\s,]{1,2}", " ?": r"[\s,]{0,2}", "'": "'?", "~": r"[^.!?;。\n]{0,24}?"}
_COMMON: Final = frozenset(  # in most sentences: weak as a filter
    re.findall(r"\w+", "the and for you not she her was one all are but has had this that with have they when will what")
    + list("我了在的不是好给就都人到下上会说来去一这那他她要没有得过着完还再能想走天")
)
_WISHES: Final = frozenset({"ideation", "passive", "wish_gone"})


@dataclass(frozen=True, slots=True)
class Hit:
    """One cue found: where (character span of the original text), in which category, and what became of it.

    ``status``: live, or why it does not count as the speaker's own present state
    (negated, past, other, quoted, hypothetical, shielded, injected).
    """

    category: str
    start: int
    end: int
    weight: float
    text: str
    status: str = "live"
    sentence: int = 0

    @property
    def key(self) -> str:
        return self.category if self.status == "live" else f"{self.category}@{self.status}"


@dataclass(frozen=True, slots=True)
class _Pattern:
    category: str
    weight: float
    regex: re.Pattern[str]
    also: tuple[frozenset[str], ...]  # literals, besides the one that made it a candidate, that every match holds
    wide: bool  # may run over the end of a sentence


def fold(text: str) -> tuple[str, list[int] | None]:
    """Fold case, width, apostrophes, invisible characters and traditional Chinese.

    Returns the folded text and, per folded character, its index in *text* (None when the two align one to one).
    """
    quick = fold_characters(text)
    if unicodedata.is_normalized("NFKC", quick) and strip_invisible(quick) == quick:
        return quick, None
    out: list[str] = []
    where: list[int] = []
    for i, char in enumerate(text):
        piece = fold_characters(strip_invisible(unicodedata.normalize("NFKC", char)))
        out.append(piece)
        where += [i] * len(piece)
    return "".join(out), where


def _required(parsed: Any) -> list[frozenset[str]]:
    """Sets of literals, best filter first; every match of the parsed pattern holds at least one of each set."""
    found: list[frozenset[str]] = []
    run = ""
    for op, arg in [*parsed, (None, None)]:
        if op is _sre.LITERAL:
            run += chr(arg)
            continue
        if run:
            found.append(frozenset({run}))
        run = ""
        if op is _sre.SUBPATTERN:
            found += _required(arg[3])
        elif op is _sre.BRANCH and all(parts := [_required(branch)[:1] for branch in arg[1]]):
            found.append(frozenset().union(*(part[0] for part in parts)))
        elif op is _sre.IN and all(kind is _sre.LITERAL for kind, _ in arg):
            found.append(frozenset(chr(code) for _, code in arg))
        elif op in (_sre.MAX_REPEAT, _sre.MIN_REPEAT) and arg[0] > 0:
            found += _required(arg[2])
    return sorted(found, key=_strength, reverse=True)


def _strength(literals: frozenset[str]) -> float:
    """Longer and rarer literals filter better; a Han character weighs as much as three letters."""
    return min(1.9 if w in _COMMON else sum(3.0 if c > "\u2e80" else 1.0 for c in w) for w in literals) - 0.01 * len(literals)


class Lexicon:
    """The cues of the resource files, with an Aho-Corasick filter in front of the patterns."""

    def __init__(self, off: frozenset[str] = frozenset()) -> None:
        self.off = off
        self.patterns: list[_Pattern] = []
        self._words: dict[str, str] = {}
        owners: dict[str, list[int]] = {}
        for data in map(lexicon, ("en", "zh", "any")):
            for entry in data["cue"]:
                if not off.intersection((entry["category"], entry["category"].split(".")[0])):
                    self._add(entry, data["macro"], owners)
        self._filter = ahocorasick.Automaton()
        for literal in owners:
            self._filter.add_word(literal, literal)
        self._filter.make_automaton()
        self._wide, self._narrow = (
            {k: found for k, v in owners.items() if (found := [i for i in v if self.patterns[i].wide is wide])}
            for wide in (True, False)
        )
        self.typos = {} if "typo" in off else _swapped(lexicon("en")["typo"]["words"])
        table = lexicon("rules")
        self.scope = {name: re.compile(pattern) for name, pattern in table["scope"].items()}
        self.scoped, self.personal, self.dated, self.workable = (
            frozenset(table[k]) for k in ("scoped", "personal", "dated", "workable")
        )

    def _add(self, entry: dict[str, Any], macros: dict[str, str], owners: dict[str, list[int]]) -> None:
        category = entry["category"]
        for word in entry.get("words", ()):  # plain words need no pattern
            self._words[word] = category
            owners.setdefault(word, [])
        for raw in entry.get("patterns", ()):
            source = _expand(raw, macros)
            best, *more = _required(_sre_parser.parse(source))
            for literal in best:
                owners.setdefault(literal, []).append(len(self.patterns))
            also = tuple(group for group in more if _strength(group) >= 1.5)[:4]
            for literal in frozenset().union(*also):
                owners.setdefault(literal, [])
            wide = "[^!?" in raw or category == "injection"
            self.patterns.append(_Pattern(category, float(entry.get("weight", 1)), re.compile(source), also, wide))

    def find(self, folded: str, starts: list[int]) -> Iterator[Hit]:
        """Every cue in the folded text, sentence by sentence; a Latin match must begin at a word boundary."""
        everything: set[str] = set()
        for sentence, (low, high) in enumerate(pairwise([*starts, len(folded)])):
            literals = {literal for _, literal in self._filter.iter(folded, low, high)}
            everything |= literals
            for word in literals & self._words.keys():
                at = folded.find(word, low, high)
                while at >= 0:
                    if _whole(folded, at, at + len(word)):
                        yield Hit(self._words[word], at, at + len(word), 1.0, "", "live", sentence)
                    at = folded.find(word, at + 1, high)
            yield from self._matches(folded, literals, self._narrow, (low, high), [low], sentence)
        yield from self._matches(folded, everything, self._wide, (0, len(folded)), starts, 0)

    def _matches(
        self, folded: str, literals: set[str], owners: dict[str, list[int]], span: tuple[int, int], starts: list[int], first: int
    ) -> Iterator[Hit]:
        """Matches of the patterns whose literals are all there; *starts* are those of the sentences in the span, from number *first*."""
        for index in {index for literal in literals for index in owners.get(literal, ())}:
            pattern = self.patterns[index]
            for group in pattern.also:
                if group.isdisjoint(literals):
                    break
            else:
                for match in pattern.regex.finditer(folded, *span):
                    start, end = match.span()
                    if end > start and not glued(folded[start - 1 : start], folded[start]):
                        sentence = first + bisect_right(starts, start) - 1
                        yield Hit(pattern.category, start, end, pattern.weight, "", "live", sentence)


def _whole(text: str, start: int, end: int) -> bool:
    return not (glued(text[start - 1 : start], text[start]) or glued(text[end - 1], text[end : end + 1]))


def _swapped(words: Iterable[str]) -> dict[str, str]:
    """Each word with two neighbouring letters swapped, unless that is another of the words."""
    known = set(words)
    found = {w[:i] + w[i + 1] + w[i] + w[i + 2 :]: w for w in known for i in range(len(w) - 1)}
    return {wrong: right for wrong, right in found.items() if wrong not in known}


def _expand(raw: str, macros: dict[str, str]) -> str:
    """Macros, then the shorthand: optional apostrophes, elastic spaces, gaps, and word boundaries for Latin script."""
    source = raw
    while re.search(r"\{[a-z_]+\}", source):
        source = re.sub(r"\{([a-z_]+)\}", lambda m: f"(?:{macros[m[1]]})", source)
    source = re.sub(r"\[[^\]]*\]|\\.| \?|[ '~]", lambda m: _SHORT.get(m[0], m[0]), source)
    return f"(?:{source}){_NOT_GLUED}"


class Reader:
    """Find the cues of one text and say which of them count as the speaker's own present state."""

    def __init__(self, book: Lexicon, text: str) -> None:
        self.book, self.text = book, text
        folded, self._where = fold(text)
        self.folded = _LONG_WORD.sub(lambda m: book.typos.get(m[0], m[0]), folded)
        self._starts = [0, *(m.end() for m in _SENTENCE_END.finditer(self.folded))]
        raw = sorted(book.find(self.folded, self._starts), key=lambda h: (h.start, -h.end, h.category))
        self.raw = raw
        self._spans = {
            name: sorted((h.start, h.end) for h in raw if h.category == name)
            for name in ("injection", "shield.idiom", "shield.denied", "mock", "other_peril")
        }
        self._quoted = [] if "quotation" in book.off else [m.span() for m in _QUOTED.finditer(self.folded)]
        self._past = {h.sentence for h in raw if h.category == "past"}
        seen = {h.category for h in raw}
        self._worried, self._revealed = "worried" in seen, "reveal" in seen  # "it's me": no frame and no friend stands any more
        self._working = "professional" in seen and not self._revealed
        self._asked = [h for h in raw if h.category == "hypothetical" and not self._revealed]
        self._framed = {h.sentence for h in raw if h.category == "fiction" and not self._revealed}
        self._others = sorted((h.start, h.end, "other") for h in raw if h.category == "third" and not self._revealed)

    @property
    def quotes(self) -> bool:
        """Whether the text holds words between quotation marks."""
        return bool(self._quoted)

    def hits(self) -> tuple[Hit, ...]:
        """All cues with their status, in text order, with spans of the original text."""
        wishes = [(h.start, h.end) for h in self.raw if h.category in _WISHES]
        # "not wake up tomorrow" says when the waking would be, not when something is planned
        inside = [h.category == "time" and _touches(wishes, h) for h in self.raw]
        return tuple(self._placed(h, "inside" if i else self._status(h)) for h, i in zip(self.raw, inside, strict=True))

    def _placed(self, h: Hit, status: str) -> Hit:
        start, end = h.start, h.end
        if self._where is not None:
            start, end = self._where[start], self._where[end - 1] + 1
        return Hit(h.category, start, end, h.weight, self.text[start:end], status, h.sentence)

    def _status(self, h: Hit) -> str:
        if h.category not in self.book.scoped:
            return "injected" if h.category != "injection" and _touches(self._spans["injection"], h) else "live"
        inside = next((a for a, b in self._quoted if a <= h.start and h.end <= b), None)
        speaker = "self" if inside is None else self._who(inside)
        doubts = (
            ("injected", lambda: _touches(self._spans["injection"], h)),
            ("idiom", lambda: _touches(self._spans["shield.idiom"], h) or _touches(self._spans["mock"], h)),
            ("other", lambda: _touches(self._spans["other_peril"], h)),
            ("negated", lambda: _touches(self._spans["shield.denied"], h) or self._negated(h)),
            (speaker or "quoted", lambda: speaker != "self"),
            ("other", lambda: self._others and h.category in self.book.personal and self._who(h.start, h.end) == "other"),
            ("work", lambda: self._working and h.category in self.book.workable),
            ("fiction", lambda: not self._framed.isdisjoint((h.sentence - 1, h.sentence, h.sentence + 1))),
            ("past", lambda: h.category in self.book.dated and self._bygone(h.sentence)),
            ("hypothetical", lambda: any(a.sentence == h.sentence and a.start < h.start for a in self._asked)),
        )  # fmt: skip
        return next((status for status, holds in doubts if holds()), "live")

    def _bygone(self, sentence: int) -> bool:
        if sentence not in self._past:
            return False
        bounds = [*self._starts, len(self.folded)]
        return not self.book.scope["present"].search(self.folded, bounds[sentence], bounds[sentence + 1])

    def _negated(self, h: Hit) -> bool:
        if "negation" in self.book.off:
            return False
        before = self.folded[max(self._starts[h.sentence], h.start - 40) : h.start]
        return bool(self.book.scope["negation"].search(before))

    @cached_property
    def _people(self) -> list[tuple[int, int, str]]:
        """(start, end, self or other) of every word that can be the subject, in text order."""
        own = [(*m.span(), "self") for m in self.book.scope["first_person"].finditer(self.folded)]
        return sorted(self._others + [o for o in own if not any(a <= o[0] and o[1] <= b for a, b, _ in self._others)])

    def _who(self, at: int, end: int = 0) -> str:
        """Whose state a cue at *at* is: that of the nearest subject before it in its clause, or of who is said to have said it."""
        sentence = self._starts[bisect_right(self._starts, at) - 1]
        if any(at <= a < end and who == "self" for a, _, who in self._people):
            return "self"
        near = [p for p in self._people if sentence <= p[0] <= at]
        if not near:
            return ""
        _, stop, who = near[-1]
        between = self.folded[stop:at]
        if who == "self" or not re.search("[,，、]", between) or self.book.scope["said"].search(between) or self._worried:
            return who
        return ""


def _touches(spans: list[tuple[int, int]], h: Hit) -> bool:
    return any(a < h.end and h.start < b for a, b in spans)
