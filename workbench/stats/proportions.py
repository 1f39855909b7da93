"""Rates: exact and score intervals, families as the unit, unknowns as bounds, zero events in words."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import special, stats

from workbench.stats.estimate import Estimate, SignificanceTest, number, undefined

FEW_EVENT_FAMILIES = 5
Method = Literal["clopper_pearson", "wilson"]


def numbers(values: Any) -> np.ndarray:
    """*values* as floats; None, <NA> and NaN become NaN. Text is refused: encode levels first (``agreement.ranks``)."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(float)
    column = pd.Series(values if isinstance(values, pd.Series) else list(values), dtype=object)
    return column.where(column.notna(), np.nan).astype(float).to_numpy()


def codes(cluster: Any, n: int) -> np.ndarray:
    """Cluster numbers 0..G-1 in order of first appearance; None makes every row its own cluster."""
    out = np.arange(n) if cluster is None else pd.factorize(pd.Series(list(cluster)), use_na_sentinel=False)[0]
    if len(out) != n:
        raise ValueError(f"{n} values but {len(out)} cluster labels: pass one label per value")
    return np.asarray(out, np.intp)


def few(estimate: Estimate, groups: int) -> Estimate:
    """Flag an interval whose coverage is known to be weak at this number of independent units."""
    if groups < 20:
        return estimate.flagged("too_few", f"descriptive only: {groups} independent units, fewer than 20")
    if groups < 40:
        return estimate.flagged("too_few", f"{groups} independent units: measured coverage of a 95 % interval is 88-94 %")
    return estimate


def wilson(k: float, n: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of k/n; k and n may be effective (real) counts. Needs n > 0."""
    z, p = special.ndtri((1 + confidence) / 2), k / n
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return 0.0 if k <= 0 else max(0.0, float(low)), 1.0 if k >= n else min(1.0, float(high))


def clopper_pearson(k: float, n: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval of k/n (never under-covers); k and n may be effective (real) counts. Needs n > 0."""
    tail = (1 - confidence) / 2
    low = 0.0 if k <= 0 else float(special.betaincinv(k, n - k + 1, tail))
    return low, 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 1 - tail))


def upper_bound(k: float, n: float, *, confidence: float = 0.95) -> float:
    """One-sided exact upper bound of k/n; with k = 0 it is ``1 - (1 - confidence) ** (1 / n)``."""
    return 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, confidence))


def design_effect(values: Any, cluster: Any) -> float:
    """Variance of the mean by clusters over its variance by rows (linearised, at least 1); NaN without variation."""
    y, c = np.asarray(values, float), codes(cluster, len(values))
    groups = int(c.max()) + 1 if len(c) else 0
    if groups < 2 or y.var() == 0:
        return float("nan")
    return float(max(1.0, groups / (groups - 1) * (np.bincount(c, y - y.mean()) ** 2).sum() / (len(y) * y.var())))


def _interval(name: str, k: int, n: int, rows: float, method: Method, note: str, **counts: Any) -> Estimate:
    """k of n with an interval for *rows* effective rows; zero events get the one-sided bound in words."""
    confidence, reason = counts["confidence"], ""
    low, high = (wilson if method == "wilson" else clopper_pearson)(k / n * rows, rows, confidence=confidence)
    if k == 0:
        reason = f"0 of {n}, upper {100 * confidence:g} % bound {number(upper_bound(0, rows, confidence=confidence))}"
        reason += f" ({number(upper_bound(0, n, confidence=confidence))} if rows were independent)" if rows < n else ""
    label = "Wilson" if method == "wilson" else "Clopper-Pearson"
    return Estimate(name, k / n, low, high, n=n, reason=reason, method=label + note, **counts)


def proportion_of(k: int, n: int, *, name: str, method: Method = "clopper_pearson", confidence: float = 0.95, n_unknown: int = 0) -> Estimate:  # fmt: skip
    """k of n independent rows, as an Estimate."""
    if n == 0:
        return undefined(name, "no evaluable rows", n_unknown=n_unknown, confidence=confidence)
    return _interval(name, k, n, n, method, "", confidence=confidence, n_unknown=n_unknown)


def proportion(success: Any, *, name: str, cluster: Any = None, method: Method = "clopper_pearson", confidence: float = 0.95) -> Estimate:  # fmt: skip
    """Share of true values among the known ones; None/NaN is unknown and only counted (for operational rates code it False).

    With clusters the interval stands on ``n / design effect`` rows, scaled by the t quantiles for the number of families
    (Korn and Graubard 1998). Without any variation nothing tells the design effect, so families are the rows.
    Flagged ``too_few``: events in fewer than five families, fewer than 20 families (Wilson: 40).
    """
    y = numbers(success)
    known = ~np.isnan(y)
    k, n, missing = int(np.nansum(y)), int(known.sum()), int((~known).sum())
    if cluster is None or n == 0:
        return proportion_of(k, n, name=name, method=method, confidence=confidence, n_unknown=missing)
    c = codes(codes(cluster, len(y))[known], n)
    groups, deff, tail = int(c.max()) + 1, design_effect(y[known], c), (1 + confidence) / 2
    shrink = (special.stdtrit(max(n - 1, 1), tail) / special.stdtrit(max(groups - 1, 1), tail)) ** 2
    rows = float(groups) if np.isnan(deff) else min(n, n / deff * shrink)
    note = ", families as rows" if np.isnan(deff) else f", n_eff {rows:.0f}"
    out = _interval(name, k, n, rows, method, note, n_cluster=groups, n_unknown=missing, confidence=confidence)
    touched = len(set(c[y[known] == 1]))
    if 0 < touched < min(FEW_EVENT_FAMILIES, groups) and n > groups:
        out = out.flagged("too_few", f"events in {touched} families only: their clustering cannot be estimated")
    return few(out, groups) if groups < 20 or method == "wilson" else out


def bounds(success: Any, *, name: str, confidence: float = 0.95) -> Estimate:
    """Worst and best case of a rate: every unknown a failure, then every unknown a success (Manski).

    ``value`` is the rate with unknowns as failures; ``low``/``high`` are the outer Wilson limits of the two extremes.
    """
    y = numbers(success)
    n, missing, k = len(y), int(np.isnan(y).sum()), int(np.nansum(y))
    if n == 0:
        return undefined(name, "no rows", confidence=confidence)
    low, high = wilson(k, n, confidence=confidence)[0], wilson(k + missing, n, confidence=confidence)[1]
    reason = f"between {number(k / n)} (unknown = no) and {number((k + missing) / n)} (unknown = yes)"
    return Estimate(name, k / n, low, high, confidence, n, 0, missing, reason=reason, method="Manski bounds, outer Wilson limits")


def missingness(unknown: Any, group: Any, *, name: str = "unknown by group") -> SignificanceTest:
    """Does being unknown depend on *group* (gold level, arm)? Fisher for two groups, chi-squared for more."""
    u, g = np.asarray(unknown, bool), codes(group, len(unknown))
    table = np.array([np.bincount(g, u), np.bincount(g, ~u)]) if len(u) else np.zeros((2, 0))
    if table.shape[1] < 2 or not table.sum(1).all():
        return SignificanceTest(name, status="undefined", reason="one group, or nothing unknown, or all unknown", n=len(u))
    if table.shape[1] == 2:
        return SignificanceTest(name, p=stats.fisher_exact(table.astype(int)).pvalue, n=len(u), method="Fisher exact")
    chi2, p, df, _ = stats.chi2_contingency(table)
    return SignificanceTest(name, chi2, p, df, n=len(u), method="chi-squared")
