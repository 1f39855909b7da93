"""Judge by transparent rules: cues found in the text, what weakens them, and the one rule that decides."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from re import _constants as _sre  # type: ignore[attr-defined]
from re import _parser as _sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

import ahocorasick

from workbench.corpus import family_of, load_corpus, split_of
from workbench.errors import DataError
from workbench.gate import fold_characters, lexicon
from workbench.judges.base import Reply, Request
from workbench.schema import DIMENSIONS, FLAGS, Dialogue, RiskLevel, View
from workbench.text import normalise, sha256, strip_invisible

EVIDENCE_CHARS: Final = 100
REACH: Final = 2  # sentences over which a harmless setting excuses a cue
_SENTENCE_END: Final = re.compile(r"[.!?;。…~\n]+")
_LONG_WORD: Final = re.compile(r"[a-z]{4,}")
_ALNUM: Final = re.compile(r"[a-z0-9]")
_QUOTED: Final = re.compile(
    r"“[^“”\n]{1,160}”|「[^「」\n]{1,160}」|『[^』\n]{1,160}』|《[^》\n]{1,60}》|\"[^\"\n]{1,160}\"|(?<![a-z])'[^'\n]{3,160}'(?![a-z])"
)


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
class Explanation:
    """Why the judge said what it said: the cues, the rule that decided, and the rules that also matched."""

    level: RiskLevel
    confidence: float
    rule: str
    flags: dict[str, bool]
    dimensions: dict[str, float]
    evidence: str
    hits: tuple[Hit, ...] = ()
    keys: frozenset[str] = frozenset()

    def __str__(self) -> str:
        rows = [
            f"{self.level} ({self.confidence:.2f}) by rule {self.rule}; flags: {[f for f, on in self.flags.items() if on] or 'none'}"
        ]
        return "\n".join(rows + [f"  {h.start}-{h.end} {h.key} weight {h.weight:g}: {h.text}" for h in self.hits])


@dataclass(frozen=True, slots=True)
class _Pattern:
    category: str
    weight: float
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    level: RiskLevel
    confidence: float
    all: tuple[tuple[str, ...], ...]
    none: tuple[str, ...]
    near: bool


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


def _required(parsed: Any) -> frozenset[str]:
    """Literals of which at least one stands in every match of the parsed pattern; empty when there is none."""
    best: frozenset[str] = frozenset()
    run = ""
    for op, arg in [*parsed, (None, None)]:
        if op is _sre.LITERAL:
            run += chr(arg)
            continue
        found = frozenset({run}) if run else frozenset()
        run = ""
        if op is _sre.SUBPATTERN:
            options = [found, _required(arg[3])]
        elif op is _sre.BRANCH:
            parts = [_required(branch) for branch in arg[1]]
            options = [found, frozenset().union(*parts) if all(parts) else frozenset()]
        elif op is _sre.IN and all(kind is _sre.LITERAL for kind, _ in arg):
            options = [found, frozenset(chr(code) for _, code in arg)]
        elif op in (_sre.MAX_REPEAT, _sre.MIN_REPEAT) and arg[0] > 0:
            options = [found, _required(arg[2])]
        else:
            options = [found]
        best = max([best, *options], key=_strength)
    return best


def _strength(literals: frozenset[str]) -> float:
    """Longer literals filter better; a Han character weighs as much as three letters."""
    if not literals:
        return 0.0
    return min(sum(3.0 if c > "\u2e80" else 1.0 for c in w) for w in literals) - 0.01 * len(literals)


class Lexicon:
    """The cues and rules of the resource files, with an Aho-Corasick filter in front of the patterns."""

    def __init__(self, off: frozenset[str] = frozenset()) -> None:
        self.off = off
        self.patterns: list[_Pattern] = []
        owners: dict[str, list[int]] = {}
        for data in map(lexicon, ("en", "zh", "any")):
            for entry in data["cue"]:
                if not off.intersection((entry["category"], entry["category"].split(".")[0])):
                    self._add(entry, data["macro"], owners)
        self._filter = ahocorasick.Automaton()
        for literal, indices in owners.items():
            self._filter.add_word(literal, indices)
        self._filter.make_automaton()
        self.typos = {} if "typo" in off else _swapped(lexicon("en")["typo"]["words"])
        table = lexicon("rules")
        self.rules = [_rule(r) for r in table["rule"] if not off.intersection((r["name"], r.get("family", "")))]
        self.scope = {name: re.compile(pattern) for name, pattern in table["scope"].items()}
        self.dimensions: dict[str, dict[str, float]] = table["dimension"]
        self.scoped, self.personal, self.dated, self.workable = (
            frozenset(table[k]) for k in ("scoped", "personal", "dated", "workable")
        )

    def _add(self, entry: dict[str, Any], macros: dict[str, str], owners: dict[str, list[int]]) -> None:
        for raw in entry["patterns"]:
            source = _expand(raw, macros)
            for literal in _required(_sre_parser.parse(source)):
                owners.setdefault(literal, []).append(len(self.patterns))
            self.patterns.append(_Pattern(entry["category"], float(entry.get("weight", 1)), re.compile(source)))

    def find(self, folded: str) -> Iterator[tuple[_Pattern, int, int]]:
        """Every cue in the folded text; a Latin match must begin at a word boundary."""
        candidates = {index for _, indices in self._filter.iter(folded) for index in indices}
        for index in sorted(candidates):
            pattern = self.patterns[index]
            for match in pattern.regex.finditer(folded):
                start, end = match.span()
                if end > start and not (start and _ALNUM.match(folded, start - 1) and _ALNUM.match(folded, start)):
                    yield pattern, start, end


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
    source = re.sub(r"\[[^\]]*\]|\\.|[ '~]", lambda m: _SHORT.get(m[0], m[0]), source)
    return f"(?:{source}){_NOT_GLUED}"


_NOT_GLUED: Final = r"(?:(?<![a-z0-9])|(?![a-z0-9]))"
_SHORT: Final = {" ": r"[\s,]{1,2}", "'": "'?", "~": r"[^.!?;。\n]{0,24}?"}


def _rule(raw: dict[str, Any]) -> _Rule:
    wanted = tuple(tuple(item.split("|")) for item in raw.get("all", ()))
    return _Rule(
        raw["name"], RiskLevel(raw["level"]), raw["confidence"], wanted, tuple(raw.get("none", ())), raw.get("near", False)
    )


class _Reader:
    """Find the cues of one text and say which of them count as the speaker's own present state."""

    def __init__(self, book: Lexicon, text: str) -> None:
        self.book, self.text = book, text
        folded, self._where = fold(text)
        self.folded = _LONG_WORD.sub(lambda m: book.typos.get(m[0], m[0]), folded)
        self._starts = [0, *(m.end() for m in _SENTENCE_END.finditer(self.folded))]
        raw = [
            Hit(p.category, a, b, p.weight, "", "live", bisect_right(self._starts, a) - 1) for p, a, b in book.find(self.folded)
        ]
        self.raw = raw
        self._spans = {name: sorted((h.start, h.end) for h in raw if h.category == name) for name in _SPAN_CATEGORIES}
        self._quoted = [] if "quotation" in book.off else [m.span() for m in _QUOTED.finditer(self.folded)]
        self._past = {h.sentence for h in raw if h.category == "past"}
        self._asked = [h for h in raw if h.category == "hypothetical"]
        seen = {h.category for h in raw}
        self._revealed, self._working = "reveal" in seen, "professional" in seen
        self._framed = set() if self._revealed else {h.sentence for h in raw if h.category == "fiction"}
        self._people = self._subjects()
        self.worried = any(h.category == "worried" for h in raw)

    def hits(self) -> tuple[Hit, ...]:
        """All cues with their status, in text order, with spans of the original text."""
        wishes = [(h.start, h.end) for h in self.raw if h.category in _WISHES]
        found = [replace(h, status=self._status(h)) if h.category in self.book.scoped else h for h in self.raw]
        # "not wake up tomorrow" says when the waking would be, not when something is planned
        found = [replace(h, status="inside") if h.category == "time" and _touches(wishes, h) else h for h in found]
        return tuple(self._placed(h) for h in sorted(found, key=lambda h: (h.start, -h.end)))

    def _placed(self, h: Hit) -> Hit:
        start, end = h.start, h.end
        if self._where is not None:
            start, end = self._where[start], self._where[end - 1] + 1
        return replace(h, start=start, end=end, text=self.text[start:end])

    def _status(self, h: Hit) -> str:
        if _touches(self._spans["injection"], h):
            return "injected"
        if _touches(self._spans["shield.idiom"], h):
            return "idiom"
        if _touches(self._spans["shield.denied"], h) or self._negated(h):
            return "negated"
        inside = next((span for span in self._quoted if span[0] <= h.start and h.end <= span[1]), None)
        if inside is not None and (speaker := self._who(inside[0])) != "self":
            return speaker or "quoted"
        if h.category in self.book.personal and not self._revealed and self._who(h.start, h.end) == "other":
            return "other"
        if self._working and not self._revealed and h.category in self.book.workable:
            return "work"
        if {h.sentence - 1, h.sentence, h.sentence + 1} & self._framed:
            return "fiction"
        if (
            h.category in self.book.dated
            and h.sentence in self._past
            and not self.book.scope["present"].search(self._sentence(h.sentence))
        ):
            return "past"
        return (
            "hypothetical"
            if not self._revealed and any(a.sentence == h.sentence and a.start < h.start for a in self._asked)
            else "live"
        )

    def _sentence(self, index: int) -> str:
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.folded)
        return self.folded[self._starts[index] : end]

    def _negated(self, h: Hit) -> bool:
        if "negation" in self.book.off:
            return False
        before = self.folded[max(self._starts[h.sentence], h.start - 40) : h.start]
        return bool(self.book.scope["negation"].search(before))

    def _subjects(self) -> list[tuple[int, int, str]]:
        """(start, end, self or other) of every word that can be the subject, in text order."""
        if "third" in self.book.off:
            return []
        others = sorted((h.start, h.end, "other") for h in self.raw if h.category == "third")
        own = [(*m.span(), "self") for m in self.book.scope["first_person"].finditer(self.folded)]
        return sorted(others + [o for o in own if not any(a <= o[0] and o[1] <= b for a, b, _ in others)])

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
        if who == "self" or not re.search("[,，、]", between) or self.book.scope["said"].search(between) or self.worried:
            return who
        return ""


_WISHES: Final = frozenset({"ideation", "passive", "wish_gone"})
_SPAN_CATEGORIES: Final = ("injection", "shield.idiom", "shield.denied")


def _touches(spans: list[tuple[int, int]], h: Hit) -> bool:
    return any(a < h.end and h.start < b for a, b in spans)


_SERIOUS: Final = frozenset(
    {"imminent", "ideation", "passive", "wish_gone", "better_off", "self_injury", "plan", "prep", "intent", "farewell_strong"}
)
_EXCUSES: Final = frozenset({"banal", "joke", "emoji_laugh", "benign"})
_LIGHT: Final = frozenset({"ideation", "passive", "veiled", "wish_gone"})


@dataclass(frozen=True, slots=True)
class _Reading:
    hits: tuple[Hit, ...]
    flags: dict[str, bool]
    keys: frozenset[str]


def _read(book: Lexicon, text: str) -> _Reading:
    reader = _Reader(book, text)
    hits = reader.hits()
    seen = {h.category for h in hits}
    live = {h.category for h in hits if h.status == "live"}
    serious: frozenset[str] = _SERIOUS & live
    playful = ("joke" in seen or "emoji_laugh" in seen) and "banal" in seen and "reveal" not in seen and not (serious - _LIGHT)
    if playful:
        hits = tuple(replace(h, status="joke") if h.status == "live" and h.category in _LIGHT else h for h in hits)
        serious = frozenset()
    if "reveal" in seen:  # "no, seriously": what was playful around it no longer excuses
        hits = tuple(replace(h, status="revealed") if h.category in _EXCUSES else h for h in hits)
    status = {h.status for h in hits}
    flags = {
        "fiction": not serious and ("fiction" in status or ("fiction" in seen and "reveal" not in seen)),
        "quote": not serious and ("quoted" in status or "quote_frame" in seen),
        "third_party": not serious and "third" in seen and ("other" in status or "worried" in seen),
        "joke": not serious and (playful or "shield.idiom" in seen or "joke" in status),
    }
    return _Reading(hits, flags, frozenset(_keys(hits)))


def _keys(hits: Iterable[Hit]) -> Iterator[str]:
    spans: dict[str, list[Hit]] = {}
    for h in hits:
        rows = spans.setdefault(h.key, [])
        if not rows or h.start >= rows[-1].end:
            rows.append(h)
        if h.key.startswith("distress.") and h.status == "live":
            yield "distress"
    for key, rows in spans.items():
        yield key
        if len(rows) > 1:
            yield f"{key}2"
    if sum(len(rows) for key, rows in spans.items() if key.startswith("distress.") and "@" not in key) > 1:
        yield "distress2"


class CueJudge:
    """Offline judge by rules. ``off`` switches cue families, statuses or rules off by name, for ablation.

    It reads no anchor. As L2 it also reads the user's earlier turns and the trend. Flags, dimensions and evidence come from
    the cues found; a dimension that no cue speaks to is not assessed.
    """

    kind, deterministic, reads_anchor = "rules", True, False

    def __init__(self, *, off: Iterable[str] = (), name: str = "cue") -> None:
        self.name, self.off = name, frozenset(off)
        self.book = _book(self.off)
        self._read = lru_cache(maxsize=8192)(lambda text: _read(self.book, text))
        self._alone = lru_cache(maxsize=8192)(lambda text: self.explain(View(text=text)))

    def explain(self, view: View) -> Explanation:
        """Which cues, where, in which category and with what weight, and the rule that decided."""
        reading = self._read(view.text)
        keys = set(reading.keys) | set(self._around(view))
        rule = next(r for r in self.book.rules if _matches(r, keys, reading.hits))
        live = [h for h in reading.hits if h.status == "live" and h.category in self.book.scoped]
        return Explanation(
            rule.level, rule.confidence, rule.name, reading.flags, self._dimensions(live), _evidence(view.text, rule, live or reading.hits),
            reading.hits, frozenset(keys),
        )  # fmt: skip

    def _around(self, view: View) -> Iterator[str]:
        """Keys from the user's earlier turns and the trend."""
        earlier = [self._alone(text) for role, text in view.context if role == "user"]
        if earlier:
            yield f"prior.{max((e.level for e in earlier if not any(e.flags.values())), default=RiskLevel.LOW)}"
            yield from (f"ctx.{key}" for e in earlier for key in e.keys)
        if view.trend is not None:
            yield from (f"trend.{n}" for n in range(view.trend.negative_days_7d + 1))

    def _dimensions(self, live: list[Hit]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, shares in self.book.dimensions.items():
            n = [shares[h.category] for h in live if h.category in shares]
            if n:
                found[name] = round(min(1.0, max(n) + 0.1 * (len(n) - 1)), 2)
        return {name: found[name] for name in DIMENSIONS if name in found}

    def respond(self, view: View) -> str:
        """The answer as JSON text, in the contract of every judge."""
        e = self.explain(view)
        verdict = {"risk_level": e.level.value, "confidence": e.confidence, "dimensions": e.dimensions, "evidence": e.evidence}
        return json.dumps(verdict | {"context_flags": {name: e.flags[name] for name in FLAGS}}, ensure_ascii=False)

    async def answer(self, request: Request) -> Reply:
        return Reply(self.respond(request.prompt.view), model=f"cue-{_version()}")

    def identity(self, request: Request) -> dict[str, Any]:
        return {"judge": "cue", "version": _version(), "off": sorted(self.off)}

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "version": _version(),
            "off": sorted(self.off),
            "patterns": len(self.book.patterns),
        }

    @classmethod
    def from_description(cls, described: dict[str, Any]) -> CueJudge:
        return cls(off=described.get("off", ()), name=described["name"])

    def exposure(self, item: Dialogue | str) -> str:
        """``development`` for the families the rules were written with (train, dev), ``held_out`` for test, else ``unseen``."""
        turns = [item] if isinstance(item, str) else [t.content for t in item.turns if t.role == "user"]
        splits = {split for t in turns if (split := _splits().get(normalise(t)))}
        return "development" if splits & {"train", "dev"} else "held_out" if splits else "unseen"

    async def aclose(self) -> None:
        return None


@lru_cache(maxsize=1)
def _splits() -> dict[str, str]:
    """Split by normalised user turn of the shipped corpus; empty where it is not at hand."""
    try:
        corpus = load_corpus()
    except DataError:
        return {}
    return {normalise(t.content): split_of(family_of(d)) for d in corpus for t in d.turns if t.role == "user"}


_book = lru_cache(maxsize=64)(Lexicon)


@lru_cache(maxsize=1)
def _version() -> str:
    """Hash of everything that can change an answer: the lexicon and this file."""
    data = [json.dumps(lexicon(name), sort_keys=True) for name in ("en", "zh", "any", "fold", "rules")]
    return sha256("".join([*data, Path(__file__).read_text("utf-8")]))[:12]


def _matches(rule: _Rule, keys: set[str], hits: tuple[Hit, ...]) -> bool:
    if not all(any(k in keys for k in options) for options in rule.all):
        return False
    where = [{h.sentence for h in hits if _speaks(h, options)} for options in rule.all]
    if rule.near and not any(all(any(abs(s - t) <= REACH for t in others) for others in where) for s in where[0]):
        return False
    anchors = {s for found in where for s in found}
    return not any(h.key in rule.none and (not anchors or any(abs(h.sentence - s) <= REACH for s in anchors)) for h in hits)


def _speaks(h: Hit, options: tuple[str, ...]) -> bool:
    return h.key in options or f"{h.key}2" in options or h.key.split(".")[0] in options


def _evidence(text: str, rule: _Rule, hits: Iterable[Hit]) -> str:
    """The span of the text, at most 100 characters, around the heaviest cue that the deciding rule asked for."""
    wanted = {key for options in rule.all for key in options}
    best = max(hits, key=lambda h: (h.key in wanted or h.category in wanted, h.weight, h.end - h.start), default=None)
    if best is None:
        return ""
    slack = max(0, EVIDENCE_CHARS - (best.end - best.start)) // 2
    start = max(0, best.start - slack)
    return text[start : min(len(text), start + EVIDENCE_CHARS)].strip()
