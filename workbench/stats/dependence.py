"""Do two judges fail together? Joint errors, lift, phi with its maximum, copulas, and the fair comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from workbench.stats.estimate import Estimate, counted, undefined
from workbench.stats.proportions import codes, numbers, proportion
from workbench.stats.resample import Seed, bootstrap, family_sums, standard_error


def joint_normal(h: Any, k: Any, rho: Any) -> np.ndarray:
    """P(X <= h, Y <= k) for standard normals with correlation *rho* in [-1, 1], by Owen's T; broadcasts."""
    h, k, r = np.broadcast_arrays(*(np.asarray(v, float) for v in (h, k, rho)))
    h, k = np.where(np.abs(h) < 1e-12, 1e-12, h), np.where(np.abs(k) < 1e-12, 1e-12, k)
    root = np.sqrt(np.maximum((1 - r) * (1 + r), 1e-300))
    half = (special.ndtr(h) + special.ndtr(k)) / 2 - np.where(h * k < 0, 0.5, 0.0)
    out = half - special.owens_t(h, (k / h - r) / root) - special.owens_t(k, (h / k - r) / root)
    low, high = special.ndtr(np.minimum(h, k)), np.maximum(special.ndtr(h) + special.ndtr(k) - 1, 0)
    return np.asarray(np.where(r >= 1, low, np.where(r <= -1, high, out)))


def copula_joint(p1: Any, p2: Any, rho: Any) -> np.ndarray:
    """Probability that two errors of rates p1, p2 in (0, 1) coincide under a Gaussian copula; broadcasts."""
    return joint_normal(special.ndtri(p1), special.ndtri(p2), rho)


def t_copula_joint(p: float, rho: Any, *, df: int = 4, nodes: int = 96) -> np.ndarray:
    """As ``copula_joint`` with equal margins under a t copula, whose tails cling together: the pessimistic end of the band."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    scale = np.sqrt(stats.chi2.ppf((x + 1) / 2, df) / df) * stats.t.ppf(p, df)
    return np.asarray((joint_normal(scale, scale, np.asarray(rho, float)[..., None]) * w / 2).sum(-1))


def effective_judges(p1: float, p2: float, joint: float) -> float | None:
    """log(joint) / log(geometric mean of the rates): 2 if independent, 1 if one judge is as good as two."""
    return None if min(p1, p2, joint) <= 0 or p1 * p2 >= 1 else float(2 * np.log(joint) / np.log(p1 * p2))


def tetrachoric(p1: float, p2: float, joint: float) -> float | None:
    """Latent correlation that gives this joint rate under a Gaussian copula; None at the edges."""
    if not max(0.0, p1 + p2 - 1) < joint < min(p1, p2):
        return None
    return float(optimize.brentq(lambda r: float(copula_joint(p1, p2, r)) - joint, -1 + 1e-9, 1 - 1e-9))


def _phi(t: np.ndarray) -> np.ndarray:
    """Phi of (..., 4) counts: both, first only, second only, neither."""
    both, one, two, none = np.moveaxis(t, -1, 0)
    return np.asarray((both * none - one * two) / np.sqrt((both + one) * (two + none) * (both + two) * (one + none)))


def error_dependence(first: Any, second: Any, *, cluster: Any = None, seed: Seed = 0, confidence: float = 0.95, n_resamples: int = 2000,
                     add: float = 0.5) -> dict[str, Estimate]:  # fmt: skip
    """Joint errors of two judges over rows of one gold class, (n,) booleans each, unknown missing.

    Keys: rate_first, rate_second, joint, second_given_first, first_given_second (exact, by families), product, lift (log
    interval with *add* per cell, linearised by families), phi (bootstrap), phi_max, odds_ratio, yule_q, tetrachoric,
    effective_judges. The lift's own value has nothing added; without joint errors it is 0 with an upper bound only.
    """
    a, b = numbers(first), numbers(second)
    known = ~np.isnan(a + b)
    family = None if cluster is None else codes(codes(cluster, len(a))[known], int(known.sum()))
    lost, a, b = int((~known).sum()), a[known], b[known]
    counts = counted(len(a), lost, confidence, 0 if family is None else len(set(family)))

    def rate(key: str, hits: np.ndarray, among: np.ndarray | None = None) -> Estimate:
        within = np.ones(len(a), bool) if among is None else among
        return proportion(np.r_[hits[within], np.full(lost, np.nan)], name=key, confidence=confidence,
                          cluster=None if family is None else np.r_[family[within], np.full(lost, -1)])  # fmt: skip

    out = {"rate_first": rate("rate_first", a), "rate_second": rate("rate_second", b), "joint": rate("joint", a * b),
           "second_given_first": rate("second_given_first", b, a == 1), "first_given_second": rate("first_given_second", a, b == 1)}  # fmt: skip
    rest = ("lift", "phi", "phi_max", "odds_ratio", "yule_q", "tetrachoric", "effective_judges")
    p1, p2, p12 = (v.mean() if len(a) else np.nan for v in (a, b, a * b))
    out["product"] = Estimate("product", p1 * p2, **counts)
    if not len(a) or not 0 < a.mean() < 1 or not 0 < b.mean() < 1:
        return out | {key: undefined(key, "one of the judges never or always errs here", **counts) for key in rest}
    cells = np.column_stack([a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)])
    q = (cells.sum(0) + add) / (len(a) + 4 * add)
    with np.errstate(all="ignore"):  # without joint errors and without *add* there is no interval
        row, column = q[0] + q[1], q[0] + q[2]
        gradient = np.array([1 / q[0] - 1 / row - 1 / column, -1 / row, -1 / column, 0.0])
        se = np.sqrt(((gradient**2 * q).sum() - (gradient * q).sum() ** 2) / len(a))
        se = se if family is None else max(se, standard_error(cells @ gradient, family))
        low, high = q[0] / (row * column) * np.exp(np.array([-1, 1]) * special.ndtri((1 + confidence) / 2) * se)
    p_max = np.sqrt(min(p1, p2) * (1 - max(p1, p2)) / (max(p1, p2) * (1 - min(p1, p2))))
    c = cells.sum(0) + (0.5 if (cells.sum(0) == 0).any() else 0.0)
    ratio = c[0] * c[3] / (c[1] * c[2])
    counts["method"] = f"log interval, +{add:g} per cell"
    lift = Estimate("lift", p12 / (p1 * p2), low if p12 else 0.0, high, **counts)
    counts["method"] = "with 0.5 per cell" if (cells.sum(0) == 0).any() else ""
    out |= {key: Estimate(key, value, **counts) for key, value in {
        "phi_max": p_max, "odds_ratio": ratio, "yule_q": (ratio - 1) / (ratio + 1),
        "tetrachoric": tetrachoric(p1, p2, p12), "effective_judges": effective_judges(p1, p2, p12)}.items()}  # fmt: skip
    out["lift"] = lift.flagged("too_few", "no joint errors: an upper bound only") if not p12 else lift
    options: dict[str, Any] = {"seed": seed, "n_resamples": n_resamples, "n": len(a), "n_unknown": lost, "confidence": confidence}
    return out | {"phi": bootstrap(family_sums(cells, family), _phi, name="phi", **options)}


def latent_correlation(first: Any, second: Any, *, cluster: Any = None, seed: Seed = 0, n_resamples: int = 2000, name: str = "latent error correlation") -> Estimate:  # fmt: skip
    """Correlation of two judges' persistent score errors, (n, R1) and (n, R2) errors against *planted* severity, R >= 2.

    Disattenuated by the variance between repeats. Simulated data only: gold levels leave severity inside the residuals.
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    if min(x.shape[1], y.shape[1]) < 2:
        return undefined(name, "needs two repeats of each judge", n=len(x))
    a, b = x.mean(1), y.mean(1)
    columns = [a * 0 + 1, a, b, a * a, b * b, a * b, x.var(1, ddof=1) / x.shape[1], y.var(1, ddof=1) / y.shape[1]]

    def correlation(s: np.ndarray) -> np.ndarray:
        n = s[..., 0]
        a, b, aa, bb, ab, u, v = np.moveaxis(s[..., 1:] / n[..., None], -1, 0)
        bessel = n / (n - 1)
        return np.asarray(bessel * (ab - a * b) / np.sqrt((bessel * (aa - a * a) - u) * (bessel * (bb - b * b) - v)))

    sums = family_sums(np.column_stack(columns), cluster)
    return bootstrap(sums, correlation, name=name, seed=seed, n=len(x), n_resamples=n_resamples)


def fair_comparison(fpr: float, sensitivity: float, rho: float) -> dict[str, float]:
    """What 'both must say critical' gains over one stricter judge and over the mean of two scores, at equal sensitivity.

    Binormal judges of one *fpr* and *sensitivity*, errors correlated *rho*. Keys: sensitivity and fpr of the AND rule,
    fpr_stricter, fpr_mean_score (both at that sensitivity), gain (fpr_stricter / fpr), fpr_retuned (AND loosened until
    it keeps the single judge's sensitivity).
    """
    distance = special.ndtri(sensitivity) - special.ndtri(fpr)
    s, f = float(copula_joint(sensitivity, sensitivity, rho)), float(copula_joint(fpr, fpr, rho))
    stricter, pooled = (float(special.ndtr(special.ndtri(s) - distance * scale)) for scale in (1.0, np.sqrt(2 / (1 + rho))))
    z = optimize.brentq(lambda v: float(joint_normal(v, v, rho)) - sensitivity, -6, 8)
    return {"sensitivity": s, "fpr": f, "fpr_stricter": stricter, "fpr_mean_score": pooled, "gain": stricter / f,
            "fpr_retuned": float(joint_normal(z - distance, z - distance, rho))}  # fmt: skip


def ppv(sensitivity: float, fpr: float, prevalence: Any) -> pd.DataFrame:
    """Positive predictive value over *prevalence* in (0, 1): columns prevalence, ppv; missing where nothing is called positive."""
    prevalence = np.atleast_1d(np.asarray(prevalence, float))
    called = prevalence * sensitivity + (1 - prevalence) * fpr
    value = np.where(called > 0, prevalence * sensitivity / np.maximum(called, 1e-300), np.nan)
    return pd.DataFrame({"prevalence": prevalence, "ppv": value})
