"""Judge by transparent rules: cues found in the text, what weakens them, and the one rule that decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from workbench.corpus import family_of, load_corpus, split_of
from workbench.errors import DataError
from workbench.gate import lexicon
from workbench.judges import cues
from workbench.judges.base import Reply, Request
from workbench.judges.cues import Hit, Lexicon, Reader
from workbench.schema import DIMENSIONS, FLAGS, Dialogue, RiskLevel, View
from workbench.text import normalise, sha256

EVIDENCE_CHARS: Final = 100
REACH: Final = 2  # sentences over which a harmless setting excuses a cue
_TOLD: Final = frozenset({"ideation", "self_injury", "passive", "farewell_strong"})
_SERIOUS: Final = _TOLD | {"imminent", "wish_gone", "better_off", "plan", "prep", "intent"}
_EXCUSES: Final = frozenset({"banal", "joke", "emoji_laugh", "benign"})
_LAUGHTER: Final = frozenset({"joke", "emoji_laugh", "mock", "cheer"})
_LIGHT: Final = frozenset({"ideation", "passive", "veiled", "wish_gone"})


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
class _Rule:
    name: str
    level: RiskLevel
    confidence: float
    all: tuple[frozenset[str], ...]
    none: frozenset[str]
    near: bool


def _rule(raw: dict[str, Any]) -> _Rule:
    wanted = tuple(frozenset(item.split("|")) for item in raw.get("all", ()))
    none = frozenset(raw.get("none", ()))
    return _Rule(raw["name"], RiskLevel(raw["level"]), raw["confidence"], wanted, none, raw.get("near", False))


@dataclass(frozen=True, slots=True)
class _Reading:
    hits: tuple[Hit, ...]
    flags: dict[str, bool]
    keys: frozenset[str]


def _read(book: Lexicon, text: str) -> _Reading:
    reader = Reader(book, text)
    hits = reader.hits()
    seen = {h.category for h in hits}
    live = {h.category for h in hits if h.status == "live"}
    serious: frozenset[str] = _SERIOUS & live
    laughing = ("mock" in seen or (not seen.isdisjoint(("joke", "emoji_laugh")) and "banal" in seen)) and "reveal" not in seen
    playful = laughing and serious <= _LIGHT
    if playful:
        hits = tuple(replace(h, status="joke") if h.status == "live" and h.category in _LIGHT else h for h in hits)
        serious = frozenset()
    if "reveal" in seen:  # "no, seriously": what was playful around it no longer excuses
        hits = tuple(replace(h, status="revealed") if h.category in _EXCUSES else h for h in hits)
    status = {h.status for h in hits}
    theirs = {h.category for h in hits if h.status == "other"}
    flags = {
        "fiction": not serious and ("fiction" in status or ("fiction" in seen and "reveal" not in seen)),
        "quote": not serious and ("quoted" in status or ("quote_frame" in seen and reader.quotes)),
        "third_party": not serious
        and ("other_peril" in seen or ("third" in seen and bool(_TOLD & theirs or {"worried", "helping"} & seen))),
        "joke": not serious and (playful or "joke" in status or ("shield.idiom" in seen and not seen.isdisjoint(_LAUGHTER))),
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
        self.book, table = _book(self.off), lexicon("rules")
        self.rules = [_rule(r) for r in table["rule"] if r["name"] not in self.off]
        self.dimensions: dict[str, dict[str, float]] = table["dimension"]
        self._read = lru_cache(maxsize=8192)(lambda text: _read(self.book, text))
        self._asked = {key for r in self.rules for keys in (*r.all, r.none) for key in keys if key.startswith("ctx.")}
        self._earlier = lru_cache(maxsize=8192)(self._of_earlier)

    def explain(self, view: View) -> Explanation:
        """Which cues, where, in which category and with what weight, and the rule that decided."""
        reading = self._read(view.text)
        keys = set(reading.keys) | set(self._around(view))
        rule = next(r for r in self.rules if _matches(r, keys, reading.hits))
        live = [h for h in reading.hits if h.status == "live" and h.category in self.book.scoped]
        return Explanation(
            rule.level, rule.confidence, rule.name, reading.flags, self._dimensions(live), _evidence(view.text, rule, live or reading.hits),
            reading.hits, frozenset(keys),
        )  # fmt: skip

    def _of_earlier(self, text: str) -> tuple[RiskLevel, frozenset[str]]:
        """The level of an earlier turn (low where flagged), and those of its keys that rules ask for."""
        e = self.explain(View(text=text))
        return RiskLevel.LOW if any(e.flags.values()) else e.level, frozenset(f"ctx.{key}" for key in e.keys) & self._asked

    def _around(self, view: View) -> Iterator[str]:
        """Keys from the user's earlier turns and the trend."""
        earlier = [self._earlier(text) for role, text in view.context if role == "user"]
        if earlier:
            yield f"prior.{max(level for level, _ in earlier)}"
            for _, keys in earlier:
                yield from keys
        if view.trend is not None:
            yield from (f"trend.{n}" for n in range(view.trend.negative_days_7d + 1))

    def _dimensions(self, live: list[Hit]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, shares in self.dimensions.items():
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
        told = {"name": self.name, "kind": self.kind, "version": _version(), "off": sorted(self.off)}
        return told | {"patterns": len(self.book.patterns)}

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
    return sha256("".join([*data, *(Path(code).read_text("utf-8") for code in (__file__, cues.__file__))]))[:12]


def _matches(rule: _Rule, keys: set[str], hits: tuple[Hit, ...]) -> bool:
    for options in rule.all:
        if keys.isdisjoint(options):
            return False
    if not rule.near and rule.none.isdisjoint(keys):
        return True
    where = [{h.sentence for h in hits if _speaks(h, options)} for options in rule.all]
    if rule.near and not any(all(any(abs(s - t) <= REACH for t in others) for others in where) for s in where[0]):
        return False
    anchors = {s for found in where for s in found}
    return not any(h.key in rule.none and (not anchors or any(abs(h.sentence - s) <= REACH for s in anchors)) for h in hits)


def _speaks(h: Hit, options: frozenset[str]) -> bool:
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
