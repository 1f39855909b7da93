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
from zipfile import BadZipFile

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
MIN_DOCUMENTS: Final = 3
NEW_TO_CUE: Final = "# The authors of the rules of `cue` have not seen what follows"
KEPT_MODELS: Final = 8  # in the cache folder, newest first
RIDGE: Final = 2.0
TEXT_SHARE: Final = 0.7
TREND_SHARE: Final = 0.3
CUT_MEDIUM, CUT_CRITICAL, CUT_FLAG = 0.5, 0.4, 0.3
CUT_ALONE, CUT_LATIN, CUT_HAN = 0.75, 0.68, 0.5  # for high: a text without context, one with context and without Han, with both
EARLIER_TURN_WEIGHT: Final = (
    0.3  # a dialogue's last turn is what a judge is asked about; its earlier turns help, but repeat each other
)
_WORD: Final = re.compile(r"[a-z0-9']+|[\u4e00-\u9fff]|[\U0001f300-\U0001faff\u2600-\u27bf]")
_SENTENCE: Final = re.compile(r"[^.!?;。…~\n]+[.!?;。…~\n]*")
_HAN: Final = re.compile("[\u4e00-\u9fff]")
_DIALOGUES: Final = re.compile(r"^(?:> |--$)", re.M)
_PRIME, _SPREAD = np.uint64(1_000_003), np.uint64(0x9E3779B97F4A7C15)
_TRUE: Final = np.ones(1, dtype=bool)
_SALTS: Final = tuple(np.uint64(n << 40) for n in (1, 2, 3))


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
    """Buckets of the character 1- to 3-grams (all 1-grams in text order, then all 2-grams, then all 3-grams) and word 1- and 2-grams."""
    one = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    two = one[:-1] * _PRIME + one[1:]
    three = two[:-1] * _PRIME + one[2:]
    word = np.array([zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in _WORD.findall(text)], dtype=np.uint64)
    return _buckets(one, two, three), _buckets(word, word[:-1] * _PRIME + word[1:], word[:0])


def _buckets(*parts: Array) -> Array:
    mixed = np.concatenate([part + salt for part, salt in zip(parts, _SALTS, strict=True)]) * _SPREAD
    return (mixed >> np.uint64(64 - BITS)).astype(np.int32)


def examples(corpus: Corpus, *, practice: bool = True) -> list[Example]:
    """Every user turn of the corpus that has gold, and the package's practice messages and last turns of practice dialogues."""
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
    folder = files("workbench.resources").joinpath("ngram")
    for name in sorted(f.name for f in folder.iterdir() if f.name.endswith(f"_{lang}.txt")):
        source = "practice"
        for b, block in enumerate(folder.joinpath(name).read_text("utf-8").split("\n\n")):
            source = "practice, new to cue" if block.startswith(NEW_TO_CUE) else source
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            dialogues = _DIALOGUES.search(block)
            talks = [t.splitlines() for t in "\n".join(lines).split("\n--\n")] if dialogues else [[line] for line in lines]
            talks = [talk for talk in talks if talk]
            for n, talk in enumerate(talks):
                *before, (level, flags, text) = [line.split(" ", 2) for line in talk if not line.startswith("> ")]
                rank, marks = "LMHC".index(level), tuple(names[f] for f in flags.split(",") if f != "-")
                family = f"{name}-{b}" if len(talks) <= 5 else f"{name}-{b}-{n}"
                yield Example(text, tuple(t for *_, t in before), None, rank, frozenset({rank}), marks, family, 1.0, source)


class _Features:
    """Turn texts into sparse rows: sublinear tf-idf, each block of unit length.

    Blocks: everything the user said, and the text under analysis alone (at TEXT_SHARE), each by characters and by words; then two
    trend values. ``slots`` maps a bucket to its column, -1 where unused.
    """

    def __init__(self, used: Array, idf: Array, off: frozenset[str]) -> None:
        self.used, self.idf, self.off, self.size = used, idf, off, 2 * len(used) + 2
        self.slots = np.full(1 << BITS, -1, dtype=np.int32)
        self.slots[used] = np.arange(len(used))
        self.kinds = [k for k, name in enumerate(("char", "word")) if name not in off]

    @classmethod
    def fit(cls, rows: Sequence[Example], off: frozenset[str]) -> _Features:
        seen = np.zeros(1 << BITS, dtype=np.int32)
        kinds = cls(np.zeros(0, dtype=np.int32), np.zeros(0), off).kinds
        for row in rows:
            said = (*row.context, row.text) if "context" not in off else (row.text,)
            for kind in kinds:
                seen[np.unique(np.concatenate([_grams(normal(t))[kind] for t in said]))] += 1
        used = np.flatnonzero(seen >= MIN_DOCUMENTS).astype(np.int32)
        return cls(used, (np.log((1 + len(rows)) / (1 + seen[used])) + 1).astype(np.float32), off)

    def row(self, text: str, context: Sequence[str], trend: Trend | None) -> tuple[Array, Array]:
        """(columns, values) of one text."""
        turns = [_grams(normal(t)) for t in ((*context, text) if "context" not in self.off else (text,))]
        parts = [self._block(np.concatenate([t[k] for t in turns]), 0, 1.0) for k in self.kinds]
        parts += [self._block(turns[-1][k], len(self.used), TEXT_SHARE) for k in self.kinds]
        if trend is not None and "trend" not in self.off:
            days = np.array([trend.negative_days_7d, trend.consecutive_negative_days], dtype=np.float32)
            parts.append((np.array([self.size - 2, self.size - 1]), days * (TREND_SHARE / 7)))
        return np.concatenate([c for c, _ in parts]), np.concatenate([v for _, v in parts])

    def _block(self, buckets: Array, offset: int, share: float) -> tuple[Array, Array]:
        found = self.slots[buckets]
        found = np.sort(found[found >= 0])
        if not len(found):
            return found, found.astype(np.float32)
        first = np.flatnonzero(np.concatenate([_TRUE, found[1:] != found[:-1]]))
        column = found[first]
        count = np.empty(len(first), dtype=np.float32)
        count[:-1], count[-1] = first[1:] - first[:-1], len(found) - first[-1]
        value = (1 + np.log(count)) * self.idf[column]
        return column + offset, value * np.float32(share / np.sqrt(value @ value))


@dataclass(frozen=True)
class Model:
    """Everything a prediction needs, as arrays. Axis 0 of the parameters: the five cross-fitted models, then the full one."""

    used: Array  # buckets in use
    idf: Array
    weights: Array  # (6, columns, 3 cumulative levels + 4 flags)
    intercept: Array  # (6, 7)
    scale: Array  # (6, 7, 2): logistic calibration of the scores
    texts: Array  # 64-bit hashes of the corpus's user turns
    text_folds: Array

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: getattr(self, name) for name in self.__dataclass_fields__})
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_bytes(buffer.getvalue())
        partial.replace(path)
        for old in sorted(path.parent.glob("ngram-*.npz"), key=lambda p: p.stat().st_mtime)[:-KEPT_MODELS]:
            old.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Model:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            return cls(**{name: stored[name] for name in cls.__dataclass_fields__})


def _hash64(text: str) -> int:
    return int(sha256(" ".join(normal(text).split()))[:16], 16)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -30, 30)))


def train(rows: Sequence[Example], *, off: frozenset[str] = frozenset()) -> tuple[Model, Array]:
    """Fit on *rows*; returns the model and its calibrated out-of-fold logits, one row per example (3 cumulative levels, 4 flags).

    Ridge-regularised linear discriminants, one per target, solved in the dual (one matrix for all of them), then Platt scaling on
    the out-of-fold scores. Each row's logit uses neither its family's model nor its scale.
    """
    from scipy.linalg import solve
    from scipy.sparse import csr_matrix

    features = _Features.fit(rows, off)
    parts = [features.row(r.text, r.context, r.trend) for r in rows]
    at = np.repeat(np.arange(len(rows)), [len(c) for c, _ in parts])
    x = csr_matrix(
        (np.concatenate([v for _, v in parts]), (at, np.concatenate([c for c, _ in parts]))), shape=(len(rows), features.size)
    )
    kernel = (x @ x.T).toarray()
    y = np.array([[*(r.level >= k for k in (1, 2, 3)), *(f in r.flags for f in FLAGS)] for r in rows], dtype=float)
    weight = np.array([r.weight for r in rows])
    fold = np.array([fold_of(r.family, FOLDS) for r in rows])
    held, weights, intercept = np.zeros_like(y), [], []
    for f in range(FOLDS + 1):
        seen = np.flatnonzero(fold != f)
        mean = np.average(y[seen], axis=0, weights=weight[seen])
        alpha = solve(kernel[np.ix_(seen, seen)] + np.diag(RIDGE / weight[seen]), y[seen] - mean, assume_a="pos")
        weights.append(np.asarray(x[seen].T @ alpha, dtype=np.float32))
        intercept.append(mean)
        held[fold == f] = kernel[np.ix_(fold == f, seen)] @ alpha + mean
    scale = np.array([_calibrate(held, y, weight, fold != f) for f in range(FOLDS + 1)])
    turns = {_hash64(r.text): f for r, f in zip(rows, fold.tolist(), strict=True)}
    model = Model(
        features.used, features.idf, np.stack(weights), np.stack(intercept), scale, np.array(list(turns), dtype=np.uint64),
        np.array(list(turns.values()), dtype=np.int8),
    )  # fmt: skip
    return model, held * scale[fold, :, 0] + scale[fold, :, 1]


def _calibrate(scores: Array, y: Array, weight: Array, keep: Array) -> Array:
    """Platt scaling per target: (slope, offset) of the logit."""
    return np.array([logistic(scores[keep, k], y[keep, k], weight[keep]) for k in range(y.shape[1])])


def logistic(x: Array, y: Array, weight: Array, *, penalty: float = 0.01) -> Array:
    """(slope, offset) of a weighted logistic regression of 0/1 *y* on *x*, by Newton's method; the slope is penalised a little."""
    if len(set(y.tolist())) < 2:
        return np.array([0.0, -4.0])  # never seen, so unlikely
    design, beta = np.stack([x, np.ones_like(x)], 1), np.zeros(2)
    for _ in range(50):
        p = _sigmoid(design @ beta)
        gradient = design.T @ (weight * (y - p)) - penalty * beta * (1, 0)
        hessian = (design.T * (weight * p * (1 - p))) @ design + np.diag([penalty, 1e-9])
        step = np.linalg.solve(hessian, gradient)
        beta = beta + step / max(1.0, float(np.abs(step).max()) / 5)
        if np.abs(step).max() < 1e-9:
            break
    return beta


def cut_for(text: str, *, alone: bool) -> float:
    """The chance of high or worse from which a text is called high.

    More is asked of a text without context, where false alarms weigh more, and of dialogues without Han characters, whose
    chances come out too high on the corpus.
    """
    return CUT_ALONE if alone else CUT_HAN if _HAN.search(text) else CUT_LATIN


def verdict(logits: Array, cut: float) -> tuple[int, float]:
    """(level's rank, confidence) from the logits of >= medium, >= high, critical.

    High when its chance reaches *cut*; critical when, besides, its own chance reaches CUT_CRITICAL. Confidence is the estimated
    chance that the case is on the side of 'high' that the level says.
    """
    medium, high, critical = (float(c) for c in _sigmoid(logits[:3]))
    if high >= cut:
        return (3 if critical >= CUT_CRITICAL else 2), high
    return int(medium >= CUT_MEDIUM), 1 - high


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
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):  # not there, or not ours: train again
        return Model.load(path), version
    model, _ = train(rows, off=off)
    with suppress(OSError):  # a read-only machine keeps it in memory
        model.save(path)
    return model, version


class NgramJudge:
    """Offline judge by n-grams. For a text of a corpus family it uses the model that never saw that family.

    *corpus* is a path (default: the shipped dialogues). As L2 it also reads what the user said before, and the trend; it reads no
    anchor and no assistant turn. It assesses no dimension. Confidence is the estimated chance that the case is on the side of
    'high' that the level says. ``off`` leaves feature groups out (char, word, context, trend, practice), for ablation.
    """

    kind, deterministic, reads_anchor = "model", True, False

    def __init__(self, corpus: str | Path = "", *, off: Iterable[str] = (), name: str = "ngram") -> None:
        self.name, self.corpus, self.off = name, str(corpus), frozenset(off)
        self.model, self.version = _trained(self.corpus, self.off)
        self._features = _Features(self.model.used, self.model.idf, self.off)
        self._folds = dict(zip(self.model.texts.tolist(), self.model.text_folds.tolist(), strict=True))

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
        alone = not any(role == "user" for role, _ in view.context)
        level, confidence = verdict(logits, cut_for(view.text, alone=alone))
        flags = {n: bool(_sigmoid(logits[3 + k]) >= CUT_FLAG) for k, n in enumerate(FLAGS)}
        answer: dict[str, Any] = {"risk_level": LEVELS[level].value, "confidence": round(confidence, 3), "dimensions": {}}
        return json.dumps(answer | {"evidence": self.evidence(view, fold), "context_flags": flags}, ensure_ascii=False)

    def evidence(self, view: View, fold: int = FOLDS) -> str:
        """The sentence of the text, cut to 100 characters, whose n-grams add most to 'high or worse'."""
        folded = normal(view.text)
        text = view.text if len(folded) == len(view.text) else folded
        chars, _ = _grams(folded)
        where = np.concatenate([np.arange(max(0, len(folded) - n)) for n in range(3)])
        slot = self._features.slots[chars]
        share = np.where(slot >= 0, self.model.weights[fold, slot, 1] * self.model.idf[slot], 0.0)
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
