"""Agreement between raters on the full ordinal scale: kappa family, alpha, AC1/AC2, specific agreement, ICC, crossed effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench.stats.estimate import Estimate, counted, to_frame, undefined
from workbench.stats.proportions import codes, few, numbers, proportion
from workbench.stats.resample import Seed, Statistic, bootstrap, family_sums, weights

LEVELS = ("low", "medium", "high", "critical")
K = len(LEVELS)
Board = dict[tuple[str, str], Estimate]


def ranks(labels: Any, *, levels: tuple[str, ...] = LEVELS) -> np.ndarray:
    """Level words (or ranks) as 0..3, unknown and missing as NaN. Any other word is an error, never a lost pair."""
    place: dict[Any, float] = {name: float(i) for i, name in enumerate(levels)} | {"unknown": np.nan}
    out = numbers([place.get(str(v), v) if isinstance(v, str) else v for v in labels])
    if np.any((out < 0) | (out >= len(levels)) | (out % 1 > 0)):
        raise ValueError(f"ranks must be whole numbers from 0 to {len(levels) - 1}, or unknown")
    return out


def distance(kind: str, k: int = K) -> np.ndarray:
    """Disagreement weights in [0, 1]: unweighted, linear, quadratic, ordinal (Gwet's, by number of pairs)."""
    gap = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
    power = {"unweighted": (gap > 0) * 1.0, "linear": gap / (k - 1), "quadratic": (gap / (k - 1)) ** 2}
    return power[kind] if kind != "ordinal" else gap * (gap + 1) / (k * (k - 1))


def pair_table(a: Any, b: Any, k: int = K) -> np.ndarray:
    """Counts of ranks (a, b) over rows where both are known, (k, k); rows a, columns b."""
    x, y = np.asarray(a, float), np.asarray(b, float)
    both = ~np.isnan(x + y)
    return np.bincount((x[both] * k + y[both]).astype(int), minlength=k * k).reshape(k, k).astype(float)


def kappa(table: Any, kind: str = "quadratic") -> np.ndarray:
    """Weighted kappa of tables (..., k, k); NaN where both raters are constant and equal."""
    t = np.asarray(table, float)
    d = distance(kind, t.shape[-1])
    with np.errstate(all="ignore"):
        chance = np.einsum("...i,...j,ij->...", t.sum(-1), t.sum(-2), d)
        return np.asarray(1 - (t * d).sum((-1, -2)) * t.sum((-1, -2)) / chance)


def specific_agreement(table: Any, level: int) -> np.ndarray:
    """2 n_kk / (n_k. + n_.k) of tables (..., k, k): agreement given that one of the two said *level*."""
    t = np.asarray(table, float)
    with np.errstate(all="ignore"):
        return np.asarray(2 * t[..., level, level] / (t[..., level, :].sum(-1) + t[..., :, level].sum(-1)))


def rating_counts(ratings: Any, k: int = K) -> np.ndarray:
    """How many raters chose each level, (items, k), from (items, raters) ranks with NaN for missing."""
    return np.asarray((np.asarray(ratings, float)[:, :, None] == np.arange(k)).sum(1), float)


def coincidences(counts: Any) -> np.ndarray:
    """Krippendorff's coincidences per item, (items, k, k); items with fewer than two ratings give zeros."""
    c = np.asarray(counts, float)
    m, pairs = c.sum(1)[:, None, None], c[:, :, None] * c[:, None, :] - np.eye(c.shape[1]) * c[:, :, None]
    return np.asarray(np.where(m > 1, pairs / np.maximum(m - 1, 1), 0.0))


def alpha(coincidence: Any, kind: str = "ordinal") -> np.ndarray:
    """Krippendorff's alpha (nominal, ordinal, interval) of summed coincidences (..., k, k); NaN without variation."""
    o = np.asarray(coincidence, float)
    n_k = o.sum(-1)
    if kind == "ordinal":
        middle = np.cumsum(n_k, -1) - n_k / 2  # two levels are as far apart as the ratings between their middles
        d = (middle[..., :, None] - middle[..., None, :]) ** 2
    else:
        d = distance("unweighted" if kind == "nominal" else "quadratic", n_k.shape[-1])
    with np.errstate(all="ignore"):
        chance = (n_k[..., :, None] * n_k[..., None, :] * d).sum((-1, -2))
        return np.asarray(1 - (n_k.sum(-1) - 1) * (o * d).sum((-1, -2)) / chance)


def gwet_sums(counts: Any, kind: str = "quadratic") -> np.ndarray:
    """Per item: agreement, 1 if two ratings, 1 if any, shares by level: (items, 3 + k), to be summed for ``gwet``."""
    c = np.asarray(counts, float)
    m = c.sum(1)
    agree = (c * (c @ (1 - distance(kind, c.shape[1])) - 1)).sum(1) / np.maximum(m * (m - 1), 1)
    return np.column_stack([np.where(m > 1, agree, 0.0), m > 1, m > 0, c / np.maximum(m, 1)[:, None]])


def gwet(sums: Any, kind: str = "quadratic") -> np.ndarray:
    """Gwet's AC1 (unweighted) or AC2 of summed ``gwet_sums`` (..., 3 + k)."""
    s = np.asarray(sums, float)
    k = s.shape[-1] - 3
    with np.errstate(all="ignore"):
        share = s[..., 3:] / s[..., 2:3]
        chance = (1 - distance(kind, k)).sum() / (k * (k - 1)) * (share * (1 - share)).sum(-1)
        return np.asarray((s[..., 0] / s[..., 1] - chance) / (1 - chance))


def _critical(t: np.ndarray) -> np.ndarray:
    """Tables (..., k, k) folded to critical or not, (..., 2, 2)."""
    fold = np.array([[1.0, 0.0]] * (t.shape[-1] - 1) + [[0.0, 1.0]])
    return np.asarray(fold.T @ t @ fold)


PAIR_METRICS: dict[str, Statistic] = {
    "quadratic kappa": kappa,
    "kappa": lambda t: kappa(t, "unweighted"),
    "critical kappa": lambda t: kappa(_critical(t), "unweighted"),
    "critical PABAK": lambda t: 2 * np.trace(_critical(t), axis1=-2, axis2=-1) / t.sum((-1, -2)) - 1,
    "positive agreement": lambda t: specific_agreement(t, -1),
    "negative agreement": lambda t: specific_agreement(_critical(t), 0),
}


def _explained(e: Estimate, metric: str, table: np.ndarray, raters: tuple[str, str]) -> Estimate:
    """Say why a pair's measure has no number, or one that means nothing."""
    why = {"positive agreement": "no positives: neither said critical", "negative agreement": "no negatives: both always did"}
    if e.value is None:
        reason = why.get(metric, "no variation: both raters are constant and equal") if table.sum() else "no complete pairs"
        return replace(e, reason=reason)
    t = _critical(table) if metric == "critical kappa" else table
    constant = [name for name, axis in zip(raters, (1, 0), strict=True) if (t.sum(axis) > 0).sum() == 1]
    return e.flagged("degenerate", f"constant rater: {' and '.join(constant)}") if "kappa" in metric and constant else e


def agreement_board(ratings: Mapping[str, Any], *, cluster: Any = None, seed: Seed = 0, n_resamples: int = 2000, confidence: float = 0.95) -> Board:  # fmt: skip
    """Every agreement measure of every pair and of all raters, from one set of family resamples.

    ratings: rater -> level words or ranks 0..3 (unknown: missing), all over the same rows; gold may be one of them.
    Keys are (measure, 'a ~ b') and (measure, 'all'), see ``board_frame``. ``n`` counts rows with both ratings (all: at
    least two), ``n_unknown`` the others. Raw agreement has a Wilson interval on n / design effect.
    """
    columns = {name: ranks(values) for name, values in ratings.items()}
    size = len(next(iter(columns.values()), ()))
    family, counts = codes(cluster, size), rating_counts(np.column_stack(list(columns.values()))) if size else np.zeros((0, K))
    w = weights(len(set(family)), n_resamples, seed=seed) if size else np.zeros((n_resamples, 0))
    board: Board = {}

    def add(who: str, metrics: Mapping[str, Statistic], items: np.ndarray, n: int) -> None:
        sums = family_sums(items, family)
        drawn = np.tensordot(w, sums, 1)
        for metric, statistic in metrics.items():
            with np.errstate(all="ignore"):
                draws = statistic(drawn)
            counts_of: dict[str, Any] = {"n": n, "n_unknown": size - n, "confidence": confidence}
            board[metric, who] = bootstrap(sums, statistic, name=f"{metric} {who}", draws=draws, **counts_of)

    for a, b in combinations(columns, 2):
        x, y, who = columns[a], columns[b], f"{a} ~ {b}"
        both = ~np.isnan(x + y)
        same, name = np.where(both, x == y, np.nan), f"agreement {who}"
        board["agreement", who] = proportion(same, name=name, cluster=family, method="wilson", confidence=confidence)
        add(who, PAIR_METRICS, (x * K + y)[:, None, None] == np.arange(K * K).reshape(K, K), int(both.sum()))
        for metric in PAIR_METRICS:
            board[metric, who] = _explained(board[metric, who], metric, pair_table(x, y), (a, b))
    rated = int((counts.sum(1) > 1).sum())
    add("all", {"ordinal alpha": alpha}, coincidences(counts), rated)
    for metric, kind in (("AC1", "unweighted"), ("AC2", "quadratic")):
        add("all", {metric: partial(gwet, kind=kind)}, gwet_sums(counts, kind), rated)
    return board


def board_frame(board: Board) -> pd.DataFrame:
    """The board as a tidy frame: measure, raters, then the fields of the estimates."""
    frame = to_frame(board.values()).drop(columns="name")
    return pd.concat([pd.DataFrame(list(board), columns=["measure", "raters"]), frame], axis=1)


def _mean_squares(x: np.ndarray) -> tuple[float, float, float]:
    """Mean squares of rows, columns and residual of a two-way layout."""
    (n, k), error = x.shape, x - x.mean(1, keepdims=True) - x.mean(0) + x.mean()
    return k * x.mean(1).var(ddof=1), n * x.mean(0).var(ddof=1), (error**2).sum() / ((n - 1) * (k - 1))


def icc(scores: Any, *, confidence: float = 0.95) -> dict[str, Estimate]:
    """Shrout-Fleiss icc1_1, icc2_1 (with interval), icc3_1, icc2_k of an (items, raters) matrix; incomplete items are unknown."""
    x, names = np.asarray(scores, float), ("icc1_1", "icc2_1", "icc3_1", "icc2_k")
    lost, x = int(np.isnan(x).any(1).sum()), x[~np.isnan(x).any(1)]
    n, k = x.shape
    if n < 2 or k < 2 or np.ptp(x) == 0:
        return {m: undefined(m, "needs two items and two raters that vary", n=n, n_unknown=lost) for m in names}
    r, c, e = _mean_squares(x)
    within, two = ((n - 1) * e + c) / n, (r - e) / (r + (k - 1) * e + k * (c - e) / n)
    a, b = k * two / (n * (1 - two) or np.nan), 1 + k * two * (n - 1) / (n * (1 - two) or np.nan)
    v = (a * c + b * e) ** 2 / ((a * c) ** 2 / (k - 1) + (b * e) ** 2 / ((n - 1) * (k - 1)) or np.nan)
    f1, f2 = stats.f.ppf((1 + confidence) / 2, n - 1, v), stats.f.ppf((1 + confidence) / 2, v, n - 1)
    rest = k * c + (k * n - k - n) * e
    ends = {"icc2_1": (n * (r - f1 * e) / (f1 * rest + n * r), n * (f2 * r - e) / (rest + n * f2 * r))}
    values = ((r - within) / (r + (k - 1) * within), two, (r - e) / (r + (k - 1) * e), (r - e) / (r + (c - e) / n))
    counts = counted(n, lost, confidence, n, "two-way ANOVA, Shrout-Fleiss")
    return {m: Estimate(m, v, *ends.get(m, (None, None)), **counts) for m, v in zip(names, values, strict=True)}


def crossed_mean(effects: Any, *, name: str, confidence: float = 0.95) -> Estimate:
    """Mean of a complete (raters, items) matrix when the claim is about new raters and new items; t with raters - 1 df.

    Var = s_r^2/H + s_i^2/N + s_e^2/(HN), never below what the raters alone say.
    """
    x = np.asarray(effects, float)
    if x.ndim != 2 or min(x.shape) < 2 or np.isnan(x).any():
        reason = "needs a complete matrix of at least two raters and two items"
        return undefined(name, reason, n=(~np.isnan(x)).sum(), n_unknown=np.isnan(x).sum())
    r, c, e = _mean_squares(x)
    half = stats.t.ppf((1 + confidence) / 2, len(x) - 1) * np.sqrt(max(r + c - e, r) / x.size)
    counts = counted(x.size, 0, confidence, x.shape[1], "crossed raters x items, t on raters")
    out = Estimate(name, x.mean(), x.mean() - half, x.mean() + half, **counts)
    return out.flagged("degenerate", "no variation at all") if half == 0 else few(out, x.shape[1])
