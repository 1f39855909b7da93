"""Judge by character and word n-grams: cumulative linear scores, cross-fitted by family and calibrated."""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from workbench.corpus import Corpus, family_of, fold_of, load_corpus
from workbench.gate import fold_characters
from workbench.judges.base import Reply, Request
from workbench.schema import FLAGS, Dialogue, RiskLevel, Trend, View
from workbench.text import sha256, strip_invisible

Array = np.ndarray[Any, Any]
LEVELS: Final = tuple(RiskLevel)
GROUPS: Final = ("char", "word", "context", "trend", "practice")
FOLDS: Final = 5
BITS: Final = 20  # n-grams are hashed into 2**BITS buckets; those of fewer than MIN_DOCUMENTS training texts are dropped
MIN_DOCUMENTS: Final = 2
RIDGE: Final = 2.0
EARLIER_TURN_WEIGHT: Final = (
    0.3  # a dialogue's last turn is what a judge is asked about; its earlier turns help, but repeat each other
)
_WORD: Final = re.compile(r"[a-z0-9']+|[\u4e00-\u9fff]|[\U0001f300-\U0001faff\u2600-\u27bf]")
_SENTENCE: Final = re.compile(r"[^.!?;。…~\n]+[.!?;。…~\n]*")
_PRIMES: Final = np.array([1, 1_000_003, 998_244_353], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Example:
    """One training text: a user turn with what the user said before it."""

    text: str
    context: tuple[str, ...]
    trend: Trend | None
    level: int
    acceptable: frozenset[int]
    flags: tuple[str, ...]
    family: str
    weight: float
    source: str


def normal(text: str) -> str:
    """The text as the n-grams see it: no invisible characters, simplified, half width, lower case. Keeps positions otherwise."""
    return fold_characters(strip_invisible(text))


@lru_cache(maxsize=8192)
def _grams(text: str) -> tuple[Array, Array]:
    """Hashed character 1- to 3-grams by position (those that start at each character), and hashed word 1- and 2-grams."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64) + np.uint64(1)
    rolled = [codes]
    for n in (1, 2):
        rolled.append(rolled[-1][:-1] * _PRIMES[1] + codes[n:] if len(codes) > n else codes[:0])
    chars = np.concatenate([_bucket(r, n) for n, r in enumerate(rolled)])
    words = [zlib.crc32(w.encode()) for w in _WORD.findall(text)]
    one = np.array(words, dtype=np.uint64)
    two = one[:-1] * _PRIMES[1] + one[1:] if len(words) > 1 else one[:0]
    return chars, np.concatenate([_bucket(one, 3), _bucket(two, 4)])


def _bucket(values: Array, salt: int) -> Array:
    mixed = (values + np.uint64(salt * 7919)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(64 - BITS)).astype(np.int32)


def examples(corpus: Corpus, *, practice: bool = True) -> list[Example]:
    """Every user turn of the corpus that has gold, and the package's practice messages."""
    found = [e for d in corpus for e in _turns(d)]
    return found + [e for lang in ("en", "zh") for e in _practice(lang)] if practice else found


def _turns(d: Dialogue) -> Iterable[Example]:
    said: list[str] = []
    for i, turn in enumerate(d.turns):
        if turn.role != "user":
            continue
        last = i == len(d.turns) - 1
        gold = turn.gold or (d.gold if last else None)
        if gold is not None:
            levels = frozenset(a.rank for a in d.gold.acceptable_levels) if last and d.gold else frozenset()
            yield Example(
                turn.content, tuple(said), d.trend if last else None, gold.risk_level.rank, levels | {gold.risk_level.rank}, gold.flags,
                family_of(d), 1.0 if last else EARLIER_TURN_WEIGHT, "corpus",
            )  # fmt: skip
        said.append(turn.content)


def _practice(lang: str) -> Iterable[Example]:
    names = {"f": "fiction", "q": "quote", "t": "third_party", "j": "joke"}
    blocks = files("workbench.resources").joinpath("ngram", f"practice_{lang}.txt").read_text("utf-8").split("\n\n")
    for b, block in enumerate(blocks):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        for n, line in enumerate(lines):
            level, flags, text = line.split(" ", 2)
            rank = "LMHC".index(level)
            family = f"practice-{lang}-{b}" if len(lines) <= 5 else f"practice-{lang}-{b}-{n}"
            marks = tuple(names[f] for f in flags.split(",") if f != "-")
            yield Example(text, (), None, rank, frozenset({rank}), marks, family, 1.0, "practice")


class _Features:
    """Turn texts into sparse rows: sublinear tf-idf per n-gram kind, each of unit length, and two trend values."""

    def __init__(self, slots: Array, idf: Array, off: frozenset[str]) -> None:
        self.slots, self.idf, self.off = slots, idf, off  # slots: bucket to column, -1 where unused

    @classmethod
    def fit(cls, rows: Sequence[Example], off: frozenset[str]) -> _Features:
        seen = np.zeros(1 << BITS, dtype=np.int32)
        for row in rows:
            for ids in cls._documents(row.text, row.context, off):
                seen[np.unique(ids)] += 1
        used = np.flatnonzero(seen >= MIN_DOCUMENTS)
        slots = np.full(1 << BITS, -1, dtype=np.int32)
        slots[used] = np.arange(len(used))
        return cls(slots, (np.log((1 + len(rows)) / (1 + seen[used])) + 1).astype(np.float32), off)

    @staticmethod
    def _documents(text: str, context: Sequence[str], off: frozenset[str]) -> list[Array]:
        turns = [_grams(normal(t)) for t in ((*context, text) if "context" not in off else (text,))]
        kinds = [k for k, name in enumerate(("char", "word")) if name not in off]
        return [np.concatenate([t[k] for t in turns]) for k in kinds]

    def row(self, text: str, context: Sequence[str], trend: Trend | None) -> tuple[Array, Array]:
        """(columns, values) of one text; the last two columns are the trend."""
        columns, values = [], []
        for ids in self._documents(text, context, self.off):
            found = self.slots[ids]
            column, count = np.unique(found[found >= 0], return_counts=True)
            value = (1 + np.log(count)) * self.idf[column]
            columns.append(column)
            values.append(value / max(float(np.sqrt(value @ value)), 1e-9))
        if trend is not None and "trend" not in self.off:
            columns.append(np.array([len(self.idf), len(self.idf) + 1]))
            values.append(np.array([trend.negative_days_7d / 7, trend.consecutive_negative_days / 7]) * 0.3)
        return np.concatenate(columns), np.concatenate(values)


@dataclass(frozen=True)
class Model:
    """Everything a prediction needs, as arrays. Axis 0 of the parameters: the five cross-fitted models, then the full one."""

    used: Array  # buckets in use
    idf: Array
    weights: Array  # (6, columns, 3 cumulative levels + 4 flags)
    intercept: Array  # (6, 7)
    scale: Array  # (6, 7, 2): logistic calibration of the scores
    trust: Array  # (6, 4, 4): logit of "a careful rater would accept this level", per level, from the three level logits
    texts: Array  # 64-bit hashes of the corpus's user turns
    text_folds: Array

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: getattr(self, name) for name in self.__dataclass_fields__})
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_bytes(buffer.getvalue())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Model:
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{name: stored[name] for name in cls.__dataclass_fields__})


def _hash64(text: str) -> int:
    return int(sha256(" ".join(normal(text).split()))[:16], 16)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -30, 30)))


def train(rows: Sequence[Example], *, off: frozenset[str] = frozenset()) -> tuple[Model, Array]:
    """Fit on *rows*; returns the model and the out-of-fold scores, one row per example (3 cumulative levels, 4 flags)."""
    from scipy.linalg import solve
    from scipy.sparse import csr_matrix

    features = _Features.fit(rows, off)
    parts = [features.row(r.text, r.context, r.trend) for r in rows]
    at = np.repeat(np.arange(len(rows)), [len(c) for c, _ in parts])
    shape = (len(rows), len(features.idf) + 2)
    x = csr_matrix((np.concatenate([v for _, v in parts]), (at, np.concatenate([c for c, _ in parts]))), shape=shape)
    kernel = (x @ x.T).toarray()
    y = np.array([[*(r.level >= k for k in (1, 2, 3)), *(f in r.flags for f in FLAGS)] for r in rows], dtype=float)
    weight = np.array([r.weight for r in rows])
    fold = np.array([fold_of(r.family, FOLDS) for r in rows])
    held = np.zeros_like(y)
    weights, intercept = [], []
    for f in range(FOLDS + 1):
        seen = np.flatnonzero(fold != f)
        mean = np.average(y[seen], axis=0, weights=weight[seen])
        alpha = solve(kernel[np.ix_(seen, seen)] + np.diag(RIDGE / weight[seen]), y[seen] - mean, assume_a="pos")
        weights.append(np.asarray(x[seen].T @ alpha, dtype=np.float32))
        intercept.append(mean)
        if f < FOLDS:
            held[fold == f] = kernel[np.ix_(fold == f, seen)] @ alpha + mean
    scale = np.array([_calibrate(held[fold != f], y[fold != f], weight[fold != f]) for f in range(FOLDS + 1)])
    trust = np.array([_trust(rows, held, scale[f], fold != f) for f in range(FOLDS + 1)])
    turns = {_hash64(t): f for r, f in zip(rows, fold, strict=True) for t in (*r.context, r.text)}
    model = Model(
        np.flatnonzero(features.slots >= 0).astype(np.int32), features.idf, np.stack(weights), np.stack(intercept), scale, trust,
        np.array(list(turns), dtype=np.uint64), np.array(list(turns.values()), dtype=np.int8),
    )  # fmt: skip
    return model, held


def _calibrate(scores: Array, y: Array, weight: Array) -> Array:
    """Platt scaling per target: (slope, offset) of the logit."""
    return np.array([_logistic(scores[:, [k]], y[:, k], weight) for k in range(y.shape[1])])


def _logistic(x: Array, y: Array, weight: Array) -> Array:
    from sklearn.linear_model import LogisticRegression

    if len(set(y)) < 2:
        return np.array([*np.zeros(x.shape[1]), 4.0 if y.size and y[0] else -4.0])
    fitted = LogisticRegression(C=100.0).fit(x, y, sample_weight=weight)
    return np.array([*fitted.coef_[0], fitted.intercept_[0]])


def _trust(rows: Sequence[Example], held: Array, scale: Array, keep: Array) -> Array:
    """For each level, when would a careful rater accept it? From the rows where the judge would say that level."""
    logits = held * scale[:, 0] + scale[:, 1]
    said = _level(_sigmoid(logits[:, :3]))
    out = []
    for level in range(4):
        mine = keep & (said == level)
        accepted = np.array([level in r.acceptable for r in rows], dtype=float)[mine]
        out.append(_logistic(logits[mine][:, :3], accepted, np.array([r.weight for r in rows])[mine]))
    return np.array(out)


CUTS: Final = (0.5, 0.42, 0.5)  # a level is given when the chance of it or worse reaches its cut


def _level(chance: Array) -> Array:
    """The highest level whose chance reaches its cut; (n, 3) to (n,)."""
    reached = chance >= np.array(CUTS)
    return np.where(reached[:, 2], 3, np.where(reached[:, 1], 2, reached[:, 0].astype(int)))


def cache_folder() -> Path:
    """``WORKBENCH_CACHE``, else the user's cache folder."""
    given = os.environ.get("WORKBENCH_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(base).expanduser() / "judge-workbench"


@lru_cache(maxsize=16)
def _trained(corpus_path: str, off: frozenset[str]) -> tuple[Model, str]:
    """The model for this corpus, these practice messages and this code: from the cache, else trained now (and cached if it can be)."""
    corpus = load_corpus(corpus_path) if corpus_path else load_corpus()
    rows = examples(corpus, practice="practice" not in off)
    version = sha256(json.dumps([[repr(r) for r in rows], sorted(off), Path(__file__).read_text("utf-8")]))[:16]
    path = cache_folder() / f"ngram-{version}.npz"
    with suppress(OSError, ValueError, KeyError):  # not there, or not ours: train again
        return Model.load(path), version
    model, _ = train(rows, off=off)
    with suppress(OSError):  # a read-only machine keeps it in memory
        model.save(path)
    return model, version


class NgramJudge:
    """Offline judge by n-grams. For a text of a corpus family it uses the model that never saw that family.

    *corpus* is a path (default: the shipped dialogues). As L2 it also reads what the user said before, and the trend; it reads no
    anchor and no assistant turn. It assesses no dimension. Confidence is the estimated chance that a careful rater would accept
    the level. ``off`` leaves feature groups out (char, word, context, trend, practice), for ablation.
    """

    kind, deterministic, reads_anchor = "model", True, False

    def __init__(self, corpus: str | Path = "", *, off: Iterable[str] = (), name: str = "ngram") -> None:
        self.name, self.corpus, self.off = name, str(corpus), frozenset(off)
        self.model, self.version = _trained(self.corpus, self.off)
        m = self.model
        slots = np.full(1 << BITS, -1, dtype=np.int32)
        slots[m.used] = np.arange(len(m.used))
        self._features = _Features(slots, m.idf, self.off)
        self._folds = dict(zip(m.texts.tolist(), m.text_folds.tolist(), strict=True))

    def _fold(self, text: str, context: Sequence[str]) -> int:
        known = (self._folds.get(_hash64(t)) for t in (text, *context))
        return next((f for f in known if f is not None), FOLDS)

    def scores(self, view: View) -> tuple[int, Array]:
        """(which model: its left-out fold, 5 for the full one; logits of >= medium, >= high, critical and the four flags)."""
        context = [t for role, t in view.context if role == "user"]
        fold = self._fold(view.text, context)
        columns, values = self._features.row(view.text, context, view.trend)
        raw = values @ self.model.weights[fold][columns] + self.model.intercept[fold]
        return fold, raw * self.model.scale[fold, :, 0] + self.model.scale[fold, :, 1]

    def respond(self, view: View) -> str:
        """The answer as JSON text, in the contract of every judge."""
        fold, logits = self.scores(view)
        level = int(_level(_sigmoid(logits[None, :3]))[0])
        trust = self.model.trust[fold, level]
        confidence = float(_sigmoid(logits[:3] @ trust[:3] + trust[3]))
        flags = {name: bool(logits[3 + k] >= 0) for k, name in enumerate(FLAGS)}
        verdict = {
            "risk_level": LEVELS[level].value,
            "confidence": round(confidence, 3),
            "dimensions": {},
            "evidence": self.evidence(view, fold),
        }
        return json.dumps(verdict | {"context_flags": flags}, ensure_ascii=False)

    def evidence(self, view: View, fold: int = FOLDS) -> str:
        """The sentence of the text, cut to 100 characters, whose n-grams add most to 'high or worse'."""
        folded = normal(view.text)
        text = view.text if len(folded) == len(view.text) else folded
        chars, _ = _grams(folded)
        where = np.concatenate([np.arange(max(0, len(folded) - n)) for n in range(3)])
        slot = self._features.slots[chars]
        share = np.where(slot >= 0, self.model.weights[fold][slot, 1] * self.model.idf[slot], 0.0)
        total = (
            np.concatenate([[0.0], np.cumsum(np.bincount(where, share, minlength=len(folded)))]) if len(folded) else np.zeros(1)
        )
        spans = [m.span() for m in _SENTENCE.finditer(folded)]
        start, end = max(spans, key=lambda s: total[s[1]] - total[s[0]], default=(0, 0))
        return text[start:end].strip()[:100]

    def exposure(self, item: Dialogue | str) -> str:
        """``out_of_fold`` for corpus families (a model that never saw the family answers), else ``unseen``."""
        turns = [item] if isinstance(item, str) else [t.content for t in item.turns if t.role == "user"]
        return "out_of_fold" if any(_hash64(t) in self._folds for t in turns) else "unseen"

    async def answer(self, request: Request) -> Reply:
        return Reply(self.respond(request.prompt.view), model=f"ngram-{self.version}")

    def identity(self, request: Request) -> dict[str, Any]:
        return {"judge": "ngram", "version": self.version, "off": sorted(self.off)}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "version": self.version, "corpus": self.corpus, "off": sorted(self.off)}

    @classmethod
    def from_description(cls, described: dict[str, Any]) -> NgramJudge:
        return cls(described.get("corpus", ""), off=described.get("off", ()), name=described["name"])

    async def aclose(self) -> None:
        return None
