"""How many are critical when the judge errs: corrected prevalence and prediction-powered means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from workbench.stats.estimate import Estimate, undefined
from workbench.stats.proportions import numbers


def rogan_gladen(k: int, n: int, tp: int, n_pos: int, tn: int, n_neg: int, *, name: str = "corrected prevalence", confidence: float = 0.95) -> Estimate:  # fmt: skip
    """True rate behind *k* of *n* positive calls, given calls on labelled rows: *tp* of *n_pos* and *tn* of *n_neg* right.

    Lang-Reiczigel 2014 interval, which allows for the noise of all three rates.
    Needs sensitivity + specificity > 1; a value outside [0, 1] is clipped and flagged. n, n_pos, n_neg must be separate rows.
    """
    counts: dict[str, Any] = {"n": n, "confidence": confidence}
    if not min(n, n_pos, n_neg):
        return undefined(name, "needs unlabelled rows and labelled rows of both classes", **counts)
    z, ap, se, sp = special.ndtri((1 + confidence) / 2), k / n, tp / n_pos, tn / n_neg
    if se + sp <= 1:
        return undefined(name, "sensitivity + specificity <= 1: the judge carries no information", **counts)
    raw = (ap + sp - 1) / (se + sp - 1)
    value = min(max(raw, 0.0), 1.0)
    ap, se, sp = (k + z * z / 2) / (n + z * z), (tp + 1) / (n_pos + 2), (tn + 1) / (n_neg + 2)
    if se + sp <= 1:
        return Estimate(
            name, value, status="too_few", reason="too few labels to tell the judge from chance: no interval", **counts
        )
    centre, vse, vsp = (ap + sp - 1) / (se + sp - 1), se * (1 - se) / (n_pos + 2), sp * (1 - sp) / (n_neg + 2)
    half = z * np.sqrt(ap * (1 - ap) / (n + z * z) + centre**2 * vse + (1 - centre) ** 2 * vsp) / (se + sp - 1)
    centre += 2 * z * z * (centre * vse - (1 - centre) * vsp)
    out = Estimate(name, value, max(0.0, centre - half), min(1.0, centre + half), method="Lang-Reiczigel", **counts)
    return out if raw == value else out.flagged("degenerate", f"the raw estimate {raw:.3g} lies outside [0, 1] and was clipped")


def corrected_prevalence(labelled_truth: Any, labelled_calls: Any, unlabelled_calls: Any, *, name: str = "corrected prevalence", confidence: float = 0.95) -> Estimate:  # fmt: skip
    """``rogan_gladen`` from 0/1 arrays; rows with an unknown are left out and counted. Holds when the labelled set is enriched."""
    y, f, u = numbers(labelled_truth), numbers(labelled_calls), numbers(unlabelled_calls)
    known, seen = ~np.isnan(y + f), ~np.isnan(u)
    y, f, u = y[known], f[known], u[seen]
    e = rogan_gladen(int(u.sum()), len(u), int((y * f).sum()), int(y.sum()), int(((1 - y) * (1 - f)).sum()), int((1 - y).sum()),
                     name=name, confidence=confidence)  # fmt: skip
    return replace(e, n_unknown=int((~known).sum() + (~seen).sum()))


def ppi_mean(truth: Any, labelled: Any, unlabelled: Any, *, tuned: bool = True, name: str = "prediction-powered mean", confidence: float = 0.95) -> Estimate:  # fmt: skip
    """Mean of the truth from a few labelled rows and many judge scores (PPI, or PPI++ when *tuned*); same population, separate rows.

    truth and labelled (n,), unlabelled (N,). Fewer than 20 of either class among the labels are flagged.
    """
    y, f, u = numbers(truth), numbers(labelled), numbers(unlabelled)
    known, seen = ~np.isnan(y + f), ~np.isnan(u)
    y, f, u, lost = y[known], f[known], u[seen], int((~known).sum() + (~seen).sum())
    if len(y) < 2 or len(u) < 2:
        return undefined(name, "needs two labelled and two unlabelled rows", n=len(y), n_unknown=lost)
    spread = np.r_[f, u].var(ddof=1)
    lam = min(max(float(np.cov(y, f, ddof=0)[0, 1] / ((1 + len(y) / len(u)) * spread)), 0.0), 1.0) if spread > 0 else 0.0
    lam = lam if tuned else 1.0
    value, half = lam * u.mean() + (y - lam * f).mean(), np.sqrt(lam**2 * u.var() / len(u) + (y - lam * f).var() / len(y))
    half *= special.ndtri((1 + confidence) / 2)
    method = f"PPI++ lambda {lam:.3f}" if tuned else "PPI"
    out = Estimate(name, value, value - half, value + half, confidence, len(y) + len(u), 0, lost, method=method)
    if half < 1e-12:
        return Estimate(name, value, None, None, confidence, out.n, 0, lost, "degenerate", "no variation: no interval", method)
    rare = int(min((y == v).sum() for v in (0, 1))) if set(y) <= {0.0, 1.0} else 20
    return out.flagged("too_few", f"{rare} labels of the rarer class: measured coverage 93 %") if rare < 20 else out
