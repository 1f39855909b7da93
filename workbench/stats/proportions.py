"""Rates: exact and score intervals, families as the unit, unknowns as bounds, zero events in words."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from workbench.stats.estimate import Estimate, SignificanceTest, number, undefined

FEW_EVENT_FAMILIES = 5
METHODS = {"clopper_pearson": "Clopper-Pearson", "wilson": "Wilson"}
Method = Literal["clopper_pearson", "wilson"]


def numbers(values: Any) -> np.ndarray:
    """*values* as floats; None, <NA> and NaN become NaN. Text is refused: encode levels first."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(float)
    column = pd.Series(values if isinstance(values, pd.Series) else list(values), dtype=object)
    return column.where(column.notna(), np.nan).astype(float).to_numpy()


def codes(cluster: Any, n: int) -> np.ndarray:
    """Cluster numbers 0..G-1 in order of first appearance; None makes every row its own cluster."""
    if cluster is None:
        return np.arange(n)
    seen: dict[Any, int] = {}
    out = np.fromiter((seen.setdefault(c, len(seen)) for c in cluster), dtype=np.intp, count=len(cluster))
    if len(out) != n:
        raise ValueError(f"{n} values but {len(out)} cluster labels: pass one label per value")
    return out


def wilson(k: float, n: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of k/n; k and n may be effective (real) counts. Needs n > 0."""
    z, p = stats.norm.ppf((1 + confidence) / 2), k / n
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (
        0.0 if k <= 0 else max(0.0, float((centre - half) / scale)),
        1.0 if k >= n else min(1.0, float((centre + half) / scale)),
    )


def clopper_pearson(k: float, n: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Exact interval of k/n (never under-covers); k and n may be effective (real) counts. Needs n > 0."""
    tail = (1 - confidence) / 2
    low = 0.0 if k <= 0 else float(stats.beta.ppf(tail, k, n - k + 1))
    return low, 1.0 if k >= n else float(stats.beta.ppf(1 - tail, k + 1, n - k))


def upper_bound(k: float, n: float, *, confidence: float = 0.95) -> float:
    """One-sided exact upper bound of k/n; with k = 0 it is ``1 - (1 - confidence) ** (1 / n)``."""
    return 1.0 if k >= n else float(stats.beta.ppf(confidence, k + 1, n - k))


def design_effect(values: Any, cluster: Any) -> float:
    """Variance of the mean by clusters over its variance by rows (linearised, at least 1); NaN without variation."""
    y, c = np.asarray(values, float), codes(cluster, len(values))
    groups = int(c.max()) + 1 if len(c) else 0
    spread = y.var()
    if groups < 2 or spread == 0:
        return float("nan")
    by_family = np.bincount(c, weights=y - y.mean(), minlength=groups)
    return float(max(1.0, groups / (groups - 1) * (by_family**2).sum() / (len(y) * spread)))


def _zero(n: int, families: int, confidence: float) -> str:
    text = f"0 of {n}, upper {100 * confidence:g} % bound {number(upper_bound(0, families, confidence=confidence))}"
    if families < n:
        text += f" with families as the unit ({number(upper_bound(0, n, confidence=confidence))} if rows were independent)"
    return text


def proportion_of(
    k: int, n: int, *, name: str, method: Method = "clopper_pearson", confidence: float = 0.95, n_unknown: int = 0
) -> Estimate:
    """k of n independent rows, as an Estimate. Zero events carry the one-sided upper bound in words."""
    counts: dict[str, Any] = {"n": n, "n_unknown": n_unknown, "confidence": confidence}
    if n == 0:
        return undefined(name, "no evaluable rows", **counts)
    low, high = (wilson if method == "wilson" else clopper_pearson)(k, n, confidence=confidence)
    reason = _zero(n, n, confidence) if k == 0 else ""
    return Estimate(name, k / n, low, high, reason=reason, method=METHODS[method], **counts)


def proportion(
    success: Any, *, name: str, cluster: Any = None, method: Method = "clopper_pearson", confidence: float = 0.95
) -> Estimate:
    """Share of true values among the known ones; None/NaN is unknown and only counted.

    With clusters the interval stands on ``n / design effect`` rows, scaled by the t quantiles for the number of families
    (Korn and Graubard 1998). No variation at all leaves nothing to estimate the effect from, so then the families are
    the rows. Events in fewer than five families are flagged ``too_few``.
    For operational rates code an unknown as False (not confirmed) before calling.
    """
    y = numbers(success)
    known = ~np.isnan(y)
    y, k, n, missing = y[known], int(np.nansum(y)), int(known.sum()), int((~known).sum())
    if cluster is None or n == 0:
        return proportion_of(k, n, name=name, method=method, confidence=confidence, n_unknown=missing)
    c = codes([label for label, keep in zip(cluster, known, strict=True) if keep], n)
    groups = int(c.max()) + 1
    counts: dict[str, Any] = {"n": n, "n_cluster": groups, "n_unknown": missing, "confidence": confidence}
    deff = design_effect(y, c)
    if np.isnan(deff):
        n_eff, note = float(groups), "families as rows"
    else:
        tail = (1 + confidence) / 2
        n_eff = min(n, n / deff * (stats.t.ppf(tail, max(n - 1, 1)) / stats.t.ppf(tail, groups - 1)) ** 2)
        note = f"n_eff {n_eff:.0f}"
    low, high = (wilson if method == "wilson" else clopper_pearson)(k / n * n_eff, n_eff, confidence=confidence)
    reason = _zero(n, groups, confidence) if k == 0 else ""
    out = Estimate(name, k / n, low, high, reason=reason, method=f"{METHODS[method]}, {note}", **counts)
    touched = len(set(c[y == 1]))
    if 0 < touched < min(FEW_EVENT_FAMILIES, groups) and n > groups:
        return out.flagged("too_few", f"events in {touched} families only: their clustering cannot be estimated")
    return out


def bounds(success: Any, *, name: str, confidence: float = 0.95) -> Estimate:
    """Worst and best case of a rate: every unknown a failure, then every unknown a success (Manski).

    ``value`` is the rate with unknowns as failures; ``low``/``high`` are the outer Wilson limits of the two extremes.
    The two extremes themselves are in ``reason``.
    """
    y = numbers(success)
    n, missing = len(y), int(np.isnan(y).sum())
    if n == 0:
        return undefined(name, "no rows", confidence=confidence)
    k = int(np.nansum(y))
    low, high = wilson(k, n, confidence=confidence)[0], wilson(k + missing, n, confidence=confidence)[1]
    reason = f"between {number(k / n)} (unknown = no) and {number((k + missing) / n)} (unknown = yes)"
    return Estimate(name, k / n, low, high, confidence, n, 0, missing, reason=reason, method="Manski bounds, outer Wilson limits")


def missingness(unknown: Any, group: Any, *, name: str = "unknown by group") -> SignificanceTest:
    """Does being unknown depend on *group* (gold level, arm)? Exact for two groups (Fisher), chi-squared for more."""
    u, g = np.asarray(unknown, bool), codes(group, len(unknown))
    table = np.array([[int((u[g == i] == v).sum()) for v in (True, False)] for i in range(int(g.max()) + 1 if len(g) else 0)])
    if len(table) < 2 or not u.any() or u.all():
        return SignificanceTest(name, status="undefined", reason="one group, or nothing unknown, or all unknown", n=len(u))
    if len(table) == 2:
        return SignificanceTest(name, p=float(stats.fisher_exact(table).pvalue), n=len(u), method="Fisher exact")
    chi2, p, df, _ = stats.chi2_contingency(table)
    return SignificanceTest(name, float(chi2), float(p), float(df), n=len(u), method="chi-squared")
