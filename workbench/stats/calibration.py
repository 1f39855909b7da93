"""Confidence against truth: Brier, ECE with its null, ROC and PR areas, cost and net benefit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from workbench.stats.estimate import Estimate, SignificanceTest, counted, undefined
from workbench.stats.proportions import numbers, wilson
from workbench.stats.resample import Seed, mean, standard_error


def _pairs(y: Any, p: Any) -> tuple[np.ndarray, np.ndarray, int]:
    a, b = numbers(y), numbers(p)
    known = ~np.isnan(a + b)
    return a[known], b[known], int((~known).sum())


def _bins(p: np.ndarray, bins: int, mass: bool) -> np.ndarray:
    """Bin numbers: equal mass (by order of p) or right-closed equal width, p rounded to 9 digits first."""
    if mass:
        return np.asarray(np.argsort(np.argsort(p, kind="stable")) * bins // max(len(p), 1))
    return np.asarray(np.clip(np.ceil(np.round(p * bins, 9)).astype(int) - 1, 0, bins - 1))


def reliability(y: Any, p: Any, *, bins: int = 10, mass: bool = True) -> pd.DataFrame:
    """One row per filled bin: bin, n, p_mean, rate, low, high (Wilson). y in {0, 1}, p in [0, 1]; unknowns left out."""
    a, b, _ = _pairs(y, p)
    frame = pd.DataFrame({"bin": _bins(b, bins, mass), "y": a, "p": b})
    out = frame.groupby("bin", as_index=False).agg(n=("y", "size"), p_mean=("p", "mean"), rate=("y", "mean"))
    ends = [wilson(r * n, n) for r, n in zip(out["rate"], out["n"], strict=True)]
    return out.assign(low=[e[0] for e in ends], high=[e[1] for e in ends])


def ece(y: Any, p: Any, *, bins: int = 10, mass: bool = True) -> float:
    """Expected calibration error over equal-mass (or equal-width) bins; NaN without rows. Never 0 for a finite sample: see ``calibration_error``."""
    a, b, _ = _pairs(y, p)
    return float(np.abs(np.bincount(_bins(b, bins, mass), a - b, bins)).sum() / len(a)) if len(a) else float("nan")


def calibration_error(y: Any, p: Any, *, bins: int = 10, mass: bool = True, n_resamples: int = 999, seed: Seed = 0) -> tuple[Estimate, Estimate, SignificanceTest]:  # fmt: skip
    """Plug-in ECE, ECE less its mean under perfect calibration, and the consistency test (y redrawn from p).

    The first estimate's low and high are the 95 % band of the ECE of a *perfectly calibrated* judge with these p, not an interval.
    """
    a, b, lost = _pairs(y, p)
    if not len(a):
        none = undefined("ECE", "no evaluable rows", n_unknown=lost)
        return none, none, SignificanceTest("calibration", status="undefined", reason=none.reason, n_unknown=lost)
    rng, place = np.random.default_rng(seed), _bins(b, bins, mass)
    null = np.array([np.abs(np.bincount(place, (rng.random(len(b)) < b) - b, bins)).sum() / len(b) for _ in range(n_resamples)])
    value, label = ece(a, b, bins=bins, mass=mass), f"{bins} {'equal-mass' if mass else 'equal-width'} bins"
    counts: dict[str, Any] = {"n": len(a), "n_unknown": lost}
    low, high = np.quantile(null, [0.025, 0.975])
    plain = Estimate("ECE", value, low, high, method=f"{label}; band of a calibrated judge", **counts)
    debiased = Estimate("ECE debiased", value - null.mean(), method=f"{label}, less the mean under calibration", **counts)
    p = (1 + (null >= value - 1e-12).sum()) / (1 + n_resamples)
    if len(a) < 1000:
        plain = plain.flagged("too_few", "under 1000 rows a perfectly calibrated judge shows an ECE above 0.03")
    return plain, debiased, SignificanceTest("calibration", value, p, method="consistency resampling", **counts)


def brier(y: Any, p: Any, *, cluster: Any = None, name: str = "Brier score") -> Estimate:
    """Mean squared error of p in [0, 1] as a forecast of y in {0, 1}."""
    return mean((numbers(y) - numbers(p)) ** 2, name=name, cluster=cluster)


def _above(x: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Share of *others* below each x, ties half: DeLong's placement values."""
    order = np.sort(others)
    return np.asarray((np.searchsorted(order, x) + np.searchsorted(order, x, "right")) / (2 * len(order)))


def auc(y: Any, score: Any, *, cluster: Any = None, name: str = "ROC AUC", confidence: float = 0.95, logit: bool = True) -> Estimate:  # fmt: skip
    """Area under the ROC curve, DeLong interval (by clusters: Obuchowski), on the logit scale unless *logit* is false."""
    a, s = numbers(y), numbers(score)
    known = ~np.isnan(a + s)
    pos, neg = s[known & (a == 1)], s[known & (a == 0)]
    counts = counted(int(known.sum()), int((~known).sum()), confidence, method="DeLong")
    if not len(pos) or not len(neg):
        return undefined(name, "single class: the gold has no " + ("positives" if not len(pos) else "negatives"), **counts)
    up, down, place = _above(pos, neg), 1 - _above(neg, pos), np.zeros(len(a))
    value = up.mean()
    place[known & (a == 1)], place[known & (a == 0)] = (up - value) / len(pos), (down - value) / len(neg)
    if cluster is None:
        variance = sum(v.var(ddof=min(1, len(v) - 1)) / len(v) for v in (up, down))
    else:
        variance = (standard_error(place, cluster) * len(place)) ** 2
    half = special.ndtri((1 + confidence) / 2) * np.sqrt(variance)
    if not 0 < value < 1 or not half > 0:
        return Estimate(name, value, **counts).flagged("degenerate", "complete separation or no variation: no interval")
    ends = value + np.array([-half, half])
    if logit:
        ends = special.expit(special.logit(value) + np.array([-half, half]) / (value * (1 - value)))
    out = Estimate(name, value, *np.clip(ends, 0, 1), **counts)
    return out.flagged("too_few", f"{len(pos)} positives: rely on exact rates at chosen points") if len(pos) < 30 else out


def average_precision(y: Any, score: Any, *, name: str = "average precision") -> Estimate:
    """Average precision (ties together, no trapezoid); its baseline is the prevalence, given in ``method``."""
    from sklearn.metrics import average_precision_score

    a, s, lost = _pairs(y, score)
    if not len(a) or not 0 < a.mean() < 1:
        return undefined(name, "single class or no rows", n=len(a), n_unknown=lost)
    method = f"baseline {a.mean():.3g}; interval by bootstrap_rows"
    return Estimate(name, average_precision_score(a, s), n=len(a), n_unknown=lost, method=method)


def cost(y: Any, p: Any, thresholds: Any, *, cost_fn: float, cost_fp: float = 1.0) -> np.ndarray:
    """Mean cost per row of calling positive at p >= t, for each of *thresholds*; an unknown p is a call of negative."""
    a, b = numbers(y), np.nan_to_num(numbers(p), nan=-np.inf)
    called = b[None, :] >= np.asarray(thresholds, float).reshape(-1, 1)
    return np.asarray((cost_fn * (~called & (a == 1)) + cost_fp * (called & (a == 0))).sum(1) / max(len(a), 1))


def best_threshold(y: Any, p: Any, *, cost_fn: float, cost_fp: float = 1.0) -> tuple[float, float]:
    """(threshold, cost) of least cost among the values of p and 'never'; ties go to the highest threshold. Optimistic: report on held-out rows."""
    points = np.append(np.unique(numbers(p)[~np.isnan(numbers(p))]), np.inf)
    costs = cost(y, p, points, cost_fn=cost_fn, cost_fp=cost_fp)
    i = len(costs) - 1 - int(np.argmin(np.round(costs[::-1], 12)))
    return float(points[i]), float(costs[i])


def net_benefit(y: Any, p: Any, threshold: float) -> float:
    """True positives per row less false ones weighted by the odds of *threshold* in (0, 1) (Vickers and Elkin 2006)."""
    return float(numbers(y).mean() - cost(y, p, threshold, cost_fn=1.0, cost_fp=threshold / (1 - threshold))[0])
