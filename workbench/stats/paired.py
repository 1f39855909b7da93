"""Same dialogues, two conditions: exact paired tests, multiplicity, equivalence, the anchoring index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy import special, stats

from workbench.stats.estimate import Estimate, SignificanceTest
from workbench.stats.proportions import codes, numbers, upper_bound
from workbench.stats.resample import Seed, bootstrap_rows, family_sums, mean


def mcnemar(b: int, c: int, *, n: int = 0, mid_p: bool = False, name: str = "McNemar") -> SignificanceTest:
    """Exact test that the *b* pairs lost and the *c* pairs won are equally likely; *n* pairs in all (for the bound)."""
    method = "McNemar exact" + (", mid-p" if mid_p else "")
    if b + c == 0:
        reason = "no discordant pairs" + (f": upper 95 % bound of their share {upper_bound(0, n):.2g}" if n else "")
        return SignificanceTest(name, 0, 1.0, n=n, status="degenerate", reason=reason, method=method)
    point = stats.binom.pmf(b, b + c, 0.5) * (0.5 if b == c else 1.0)
    p = min(1.0, 2 * special.bdtr(min(b, c), b + c, 0.5)) - mid_p * point
    return SignificanceTest(name, b - c, p, n=n or b + c, method=method)


def bowker(table: Any, *, name: str = "Bowker symmetry") -> SignificanceTest:
    """Symmetry of a square table of counts; pairs of cells that are both empty do not count as degrees of freedom."""
    t = np.asarray(table, float)
    up, down = t[np.triu_indices(len(t), 1)], t.T[np.triu_indices(len(t), 1)]
    df, chi2 = int((up + down > 0).sum()), float((((up - down) ** 2)[up + down > 0] / (up + down)[up + down > 0]).sum())
    if df == 0:
        return SignificanceTest(name, 0, 1.0, 0, n=t.sum(), status="degenerate", reason="no discordant pairs")
    return SignificanceTest(name, chi2, stats.chi2.sf(chi2, df), df, n=t.sum(), method="chi-squared")


def stuart_maxwell(table: Any, *, name: str = "Stuart-Maxwell homogeneity") -> SignificanceTest:
    """Equality of the two marginals of a square table of counts; levels that nobody used are dropped."""
    t = np.asarray(table, float)
    used = t.sum(0) + t.sum(1) - 2 * np.diag(t) > 0
    t = t[np.ix_(used, used)]
    d, s = (t.sum(1) - t.sum(0))[:-1], (np.diag(t.sum(0) + t.sum(1)) - t - t.T)[:-1, :-1]
    if len(t) < 2 or np.linalg.matrix_rank(s) < len(s):
        return SignificanceTest(name, n=np.sum(table), status="undefined", reason="too few discordant pairs")
    chi2 = float(d @ np.linalg.solve(s, d))
    return SignificanceTest(name, chi2, stats.chi2.sf(chi2, len(d)), len(d), n=np.sum(table), method="chi-squared")


def cochran_q(correct: Any, *, name: str = "Cochran Q") -> SignificanceTest:
    """Omnibus test that all judges (columns) are right equally often; rows with an unknown are left out and counted."""
    x = np.asarray(correct, float)
    lost, x = int(np.isnan(x).any(1).sum()), x[~np.isnan(x).any(1)]
    k, by_row, by_judge = x.shape[1], x.sum(1), x.sum(0)
    spread = (by_row * (k - by_row)).sum()
    if spread == 0:
        return SignificanceTest(name, n=len(x), n_unknown=lost, status="undefined", reason="no row on which the judges differ")
    q = (k - 1) * k * ((by_judge - by_judge.mean()) ** 2).sum() / spread
    return SignificanceTest(name, q, stats.chi2.sf(q, k - 1), k - 1, n=len(x), n_unknown=lost, method="chi-squared")


def _flips(units: int, n_resamples: int, seed: Seed) -> tuple[np.ndarray, str]:
    """All sign patterns of up to 16 units, else the identity and *n_resamples* - 1 random ones."""
    if units <= 16:
        return 1.0 - 2.0 * ((np.arange(2**units)[:, None] >> np.arange(units)) & 1), "exact"
    random = np.random.default_rng(seed).integers(0, 2, size=(n_resamples - 1, units)) * 2.0 - 1
    return np.vstack([np.ones(units), random]), f"{n_resamples} sign patterns"


def max_t(differences: Any, *, names: Sequence[str], cluster: Any = None, n_resamples: int = 10_000, seed: Seed = 0) -> list[SignificanceTest]:  # fmt: skip
    """Sign-flip tests of M mean differences, (n, M); whole clusters flip jointly. ``p_adjusted`` is the max-T family-wise one.

    Rows with a NaN are left out of all M and counted. Exact up to 16 clusters that differ. Romano and Wolf 2005, single step.
    """
    x = np.asarray(differences, float)
    known = ~np.isnan(x).any(1)
    sums = family_sums(x[known], codes(cluster, len(x))[known])
    sums = sums[(sums != 0).any(1)]
    counts: dict[str, Any] = {"n": known.sum(), "n_unknown": (~known).sum()}
    if not len(sums):
        none = SignificanceTest("", 0, 1.0, status="degenerate", reason="no unit differs", method="sign flip", **counts)
        return [replace(none, name=m) for m in names]
    flips, how = _flips(len(sums), n_resamples, seed)
    scale = np.sqrt((sums**2).sum(0))
    t = np.abs(flips @ sums) / np.where(scale > 0, scale, 1.0)
    raw, top = (t >= t[0] - 1e-9).mean(0), (t.max(1)[:, None] >= t[0] - 1e-9).mean(0)
    adjusted: list[Any] = list(top) if len(names) > 1 else [None]
    return [SignificanceTest(m, sums[:, j].sum() / max(int(known.sum()), 1), raw[j], p_adjusted=adjusted[j], adjustment="max-T" if len(names) > 1 else "",
                             method=f"sign flip, {how}", **counts) for j, m in enumerate(names)]  # fmt: skip


def sign_flip(differences: Any, *, name: str = "sign flip", cluster: Any = None, n_resamples: int = 10_000, seed: Seed = 0) -> SignificanceTest:  # fmt: skip
    """Two-sided test of a mean difference (n,): cluster sums change sign at random; exact up to 16 clusters."""
    return max_t(numbers(differences)[:, None], names=[name], cluster=cluster, n_resamples=n_resamples, seed=seed)[0]


def signed_rank(differences: Any, *, name: str = "signed rank") -> SignificanceTest:
    """Wilcoxon signed rank with Pratt zeros; exact with ties by convolution of doubled ranks. Statistic: W+."""
    d = numbers(differences)
    lost, d = int(np.isnan(d).sum()), d[~np.isnan(d)]
    ranks = stats.rankdata(np.abs(d))[d != 0]
    w = ranks[d[d != 0] > 0].sum()
    if not len(ranks):
        return SignificanceTest(name, 0, 1.0, n=len(d), n_unknown=lost, status="degenerate", reason="no pair differs")
    law = np.ones(1)
    for r in (2 * ranks).astype(int):
        law = (np.r_[law, np.zeros(r)] + np.r_[np.zeros(r), law]) / 2
    away = np.abs(np.arange(len(law)) / 2 - ranks.sum() / 2) >= abs(w - ranks.sum() / 2) - 1e-9
    return SignificanceTest(name, w, min(1.0, law[away].sum()), n=len(d), n_unknown=lost, method="Pratt exact")


def holm(p: Any) -> np.ndarray:
    """Holm's adjusted p-values, in the order given."""
    raw = np.asarray(p, float)
    order, out = np.argsort(raw), np.empty(len(raw))
    out[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)))
    return out


def adjust(tests: Sequence[SignificanceTest], *, method: Literal["holm", "bh"] = "holm") -> list[SignificanceTest]:
    """Fill ``p_adjusted`` over one declared family; tests without a p-value are not part of it."""
    p = [t.p for t in tests if t.p is not None]
    adjusted = iter(holm(p) if method == "holm" else stats.false_discovery_control(p) if p else [])
    return [t if t.p is None else replace(t, p_adjusted=next(adjusted), adjustment=method) for t in tests]


def tost(differences: Any, low: float, high: float, *, name: str = "equivalence", cluster: Any = None, alpha: float = 0.05) -> tuple[SignificanceTest, Estimate]:  # fmt: skip
    """Two one-sided t tests that the mean lies inside (low, high), a margin fixed in advance; and the 1 - 2 alpha interval."""
    e = mean(differences, name=name, cluster=cluster, confidence=1 - 2 * alpha)
    if e.low is None or e.value is None or e.high is None:
        return SignificanceTest(name, n=e.n, n_unknown=e.n_unknown, status="undefined", reason=e.reason, method="TOST"), e
    df = e.n_cluster - 1
    se = (e.high - e.value) / stats.t.ppf(1 - alpha, df)
    p = max(stats.t.sf((e.value - low) / se, df), stats.t.cdf((e.value - high) / se, df))
    return SignificanceTest(name, e.value, p, df, n=e.n, n_unknown=e.n_unknown, method=f"TOST, margin {low:g} to {high:g}"), e


def anchoring_index(
    told_low: Any, told_high: Any, *, low_value: float, high_value: float, cluster: Any = None, seed: Seed = 0, confidence: float = 0.95,
    n_resamples: int = 2000,
) -> tuple[Estimate, Estimate]:  # fmt: skip
    """How far answers move per unit of anchor: 0 none, 1 full adoption. Mean-based with t interval, and Jacowitz-Kahneman.

    told_low, told_high: (n,) score of each dialogue under the two anchors, whose places on the score scale are low_value and
    high_value. For one anchor against blind give the blind scores and their median as its value.
    """
    low, high, span = numbers(told_low), numbers(told_high), high_value - low_value
    both = ~np.isnan(low + high)
    index = mean((high - low) / span, name="anchoring index", cluster=cluster, confidence=confidence)
    x, y = low[both], high[both]
    jk = bootstrap_rows(lambda i: float(np.median(y[i]) - np.median(x[i])) / span, len(x), name="anchoring index (Jacowitz-Kahneman)", seed=seed,
                        cluster=codes(cluster, len(low))[both], n_unknown=int((~both).sum()), confidence=confidence, n_resamples=n_resamples)  # fmt: skip
    return index, jk
