"""Cluster bootstrap by count matrices, means with cluster-robust intervals, rank intervals."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse, special, stats

from workbench.stats.estimate import Estimate, counted, undefined
from workbench.stats.proportions import codes, few, numbers

Seed = int | Sequence[int] | np.random.SeedSequence
Statistic = Callable[[np.ndarray], np.ndarray]


def seed_for(root: int, *names: str) -> np.random.SeedSequence:
    """A seed of its own for every study and estimator, so that results do not depend on the order of calls."""
    return np.random.SeedSequence([root, *(zlib.crc32(name.encode()) for name in names)])


def family_sums(columns: Any, cluster: Any = None) -> np.ndarray:
    """Sum the rows of *columns* (n, ...) within each cluster: (G, ...), clusters in order of first appearance."""
    x = np.asarray(columns, float)
    c = codes(cluster, len(x))
    member = sparse.csr_matrix((np.ones(len(c)), (c, np.arange(len(c)))), shape=(len(set(c)), len(c)))
    return np.asarray(member @ x.reshape(len(x), math.prod(x.shape[1:]))).reshape(-1, *x.shape[1:])


def weights(groups: int, n_resamples: int = 2000, *, seed: Seed, strata: Any = None) -> np.ndarray:
    """How often each of *groups* clusters is drawn in each resample, (n_resamples, groups); within *strata* when given."""
    rng, out = np.random.default_rng(seed), np.zeros((n_resamples, groups))
    stratum = codes([0] * groups if strata is None else strata, groups)
    for part in (np.flatnonzero(stratum == s) for s in range(len(set(stratum)))):
        drawn = rng.integers(0, len(part), size=(n_resamples, len(part))) + np.arange(n_resamples)[:, None] * len(part)
        out[:, part] = np.bincount(drawn.ravel(), minlength=n_resamples * len(part)).reshape(n_resamples, len(part))
    return out


def _limits(point: float, draws: np.ndarray, jackknife: np.ndarray | None, confidence: float) -> np.ndarray:
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if jackknife is not None:
        z0 = special.ndtri(np.clip(((draws < point).mean() + (draws <= point).mean()) / 2, 1e-4, 1 - 1e-4))
        u, z = jackknife.mean() - jackknife, z0 + special.ndtri(tails)
        tails = special.ndtr(z0 + z / (1 - (u**3).sum() / (6 * max((u**2).sum(), 1e-300) ** 1.5) * z))
    return np.asarray(np.quantile(draws, tails))


def bootstrap(
    totals: Any, statistic: Statistic, *, name: str, seed: Seed = 0, n_resamples: int = 2000, bca: bool = False, strata: Any = None,
    draws: np.ndarray | None = None, n: int | None = None, n_unknown: int = 0, confidence: float = 0.95,
) -> Estimate:  # fmt: skip
    """Interval of a statistic of per-cluster sums, resampling whole clusters: percentile, or BCa.

    totals: (G, *shape) sums per cluster (``family_sums``). statistic: maps (..., *shape) sums to (...), NaN where undefined.
    strata: a label per cluster when classes were sampled in fixed numbers. draws: values of resamples made elsewhere from
    shared ``weights``. More than 1 % undefined resamples, or no variation at all, leave the value without interval.
    """
    t = np.asarray(totals, float)
    counts = counted(len(t) if n is None else n, n_unknown, confidence, len(t))
    with np.errstate(all="ignore"):
        point = float(statistic(t.sum(0))) if len(t) else np.nan
        if not np.isfinite(point):
            return undefined(name, "the statistic does not exist for these data", **counts)
        if draws is None:
            draws = statistic(np.tensordot(weights(len(t), n_resamples, seed=seed, strata=strata), t, 1))
        jackknife = np.asarray(statistic(t.sum(0) - t)) if bca else None
    counts["method"] = f"cluster bootstrap {'BCa' if bca else 'percentile'}, {len(draws)} resamples"
    out, good = Estimate(name, point, **counts), np.asarray(draws)[np.isfinite(draws)]
    if len(good) < 0.99 * len(draws):
        return out.flagged("degenerate", f"{100 * (1 - len(good) / len(draws)):.0f} % of resamples are undefined: no interval")
    if np.ptp(good) < 1e-12 or (jackknife is not None and not np.isfinite(jackknife).all()):
        return out.flagged("degenerate", "every resample gives the same value, or one cluster carries it: no interval")
    low, high = _limits(point, good, jackknife, confidence)
    return few(Estimate(name, point, low, high, **counts), len(t))


def bootstrap_rows(
    statistic: Callable[[np.ndarray], float], n: int, *, name: str, seed: Seed, cluster: Any = None, n_resamples: int = 1000,
    n_unknown: int = 0, confidence: float = 0.95,
) -> Estimate:  # fmt: skip
    """As ``bootstrap`` for a statistic of row numbers (medians, areas, chosen thresholds): one call per resample."""
    c, rng = codes(cluster, n), np.random.default_rng(seed)
    rows = np.split(np.argsort(c, kind="stable"), np.cumsum(np.bincount(c))[:-1]) if n else []
    picks = rng.integers(0, len(rows), size=(n_resamples, len(rows))) if n else np.zeros((0, 0), int)
    with np.errstate(all="ignore"):
        draws = np.array([statistic(np.concatenate([rows[g] for g in pick])) for pick in picks])
        point = statistic(np.arange(n)) if n else np.nan
    return bootstrap(np.zeros((len(rows), 1)), lambda _: np.asarray(point), name=name, n=n, n_unknown=n_unknown, confidence=confidence,
                     draws=draws)  # fmt: skip


def standard_error(influence: Any, cluster: Any = None) -> float:
    """CR1 standard error of the mean of *influence* (n,) by clusters; NaN with fewer than two."""
    sums = family_sums(np.asarray(influence) - np.mean(influence), cluster)
    return float(np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(influence)) if len(sums) > 1 else float("nan")


def mean(values: Any, *, name: str, cluster: Any = None, confidence: float = 0.95) -> Estimate:
    """Mean over known values, t interval from cluster sums (CR1; with equal clusters the t interval on cluster means)."""
    y = numbers(values)
    known = ~np.isnan(y)
    c, y = codes(cluster, len(y))[known], y[known]
    groups, method = len(set(c)), "t on cluster sums" if cluster is not None else "t"
    counts = counted(len(y), int((~known).sum()), confidence, groups, method)
    if not len(y):
        return undefined(name, "no evaluable rows", **counts)
    se = standard_error(y, c)
    if not se > 1e-12:
        reason = "one independent unit: no interval" if groups < 2 else "all cluster sums are equal: no interval"
        return Estimate(name, y.mean(), status="too_few" if groups < 2 else "degenerate", reason=reason, **counts)
    half = special.stdtrit(groups - 1, (1 + confidence) / 2) * se
    return few(Estimate(name, y.mean(), y.mean() - half, y.mean() + half, **counts), groups)


def rank_intervals(draws: Any, names: Sequence[str], *, point: Any, confidence: float = 0.95) -> pd.DataFrame:
    """Bootstrap ranks of M competitors, 1 = highest value; ties share the middle rank, never broken by order.

    draws: (B, M) from one shared ``weights`` matrix. Columns: name, value, rank, rank_low, rank_high, p_best (ties for best
    share it) and p_rank_1..M, the share of resamples at that rank (middle ranks rounded up).
    """
    d = np.asarray(draws, float)
    placed, best = stats.rankdata(-d, axis=1), d >= d.max(1, keepdims=True)
    value = np.asarray(point, float)
    frame = pd.DataFrame({"name": list(names), "value": value, "rank": stats.rankdata(-value)})
    frame[["rank_low", "rank_high"]] = np.quantile(placed, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0).T
    frame["p_best"] = (best / best.sum(1, keepdims=True)).mean(0)
    return frame.assign(**{f"p_rank_{r}": (np.floor(placed + 0.5) == r).mean(0) for r in range(1, d.shape[1] + 1)})
