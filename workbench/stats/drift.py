"""Change over turns, repeats, snapshots and days: flips, slopes, ordered trends, distribution shift, drift monitors."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from workbench.stats.agreement import K, ranks
from workbench.stats.estimate import Estimate, SignificanceTest, not_applicable
from workbench.stats.proportions import numbers
from workbench.stats.resample import Seed, mean

Kind = Literal["cusum", "ewma"]
Unknowns = Literal["level", "dropped"]
Spending = Literal["linear", "obrien_fleming"]


def _one_hot(levels: Any) -> np.ndarray:
    """(n, R) level words or ranks as counts by level, unknown as a fifth: (n, R, 5)."""
    cells = np.asarray(levels, dtype=object)
    x = ranks(cells.ravel()).reshape(len(cells), math.prod(cells.shape[1:]))
    return np.asarray(np.where(np.isnan(x), K, x)[:, :, None] == np.arange(K + 1), float)


def flips_by_dialogue(levels: Any, *, unknown: Unknowns = "level") -> np.ndarray:
    """Share of pairs of repeats that differ, per dialogue, (n,): 1 - sum n_k(n_k-1) / (R(R-1)); NaN under two repeats."""
    c = _one_hot(levels).sum(1)
    c = c if unknown == "level" else c[:, :K]
    r = c.sum(1)
    return np.asarray(np.where(r > 1, 1 - (c * (c - 1)).sum(1) / np.maximum(r * (r - 1), 1), np.nan))


def flip_rate(levels: Any, *, cluster: Any = None, name: str = "flip rate", unknown: Unknowns = "level") -> Estimate:
    """Mean pairwise flip rate over dialogues, (n, R) levels; independent of R, so it may be compared across R."""
    return mean(flips_by_dialogue(levels, unknown=unknown), name=name, cluster=cluster)


def excess_flips(before: Any, after: Any, *, cluster: Any = None, name: str = "excess flips", n_resamples: int = 999,
                 seed: Seed = 0) -> tuple[Estimate, SignificanceTest]:  # fmt: skip
    """Flips between two snapshots beyond repeat noise, and the exact test that labels do not matter within a dialogue.

    before (n, R1), after (n, R2), both with at least two repeats. Zero when nothing changed, whatever the noise.
    """
    a, b = _one_hot(before), _one_hot(after)
    if min(a.shape[1], b.shape[1]) < 2:
        why = "needs two repeats on each side"
        return not_applicable(name, why), SignificanceTest(name, status="undefined", reason=why)

    def excess(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        (c, r), (d, s) = (x.sum(1), x.shape[1]), (y.sum(1), y.shape[1])
        within = 1 - (c * (c - 1)).sum(1) / (2 * r * (r - 1)) - (d * (d - 1)).sum(1) / (2 * s * (s - 1))
        return np.asarray(1 - (c * d).sum(1) / (r * s) - within)

    rng, pooled, observed = np.random.default_rng(seed), np.concatenate([a, b], axis=1), excess(a, b)
    reach = sum(excess(*np.split(rng.permuted(pooled.argmax(2), axis=1)[:, :, None] == np.arange(K + 1), [a.shape[1]], axis=1)).mean()
                >= observed.mean() - 1e-12 for _ in range(n_resamples))  # fmt: skip
    p, method = (1 + reach) / (1 + n_resamples), "permutation within dialogue"
    return mean(observed, name=name, cluster=cluster), SignificanceTest(name, observed.mean(), p, n=len(a), method=method)


def slopes(values: Any) -> np.ndarray:
    """OLS slope on turn number within each dialogue, (n, T) with NaN for missing turns; NaN under three turns."""
    y = np.asarray(values, float)
    known = ~np.isnan(y)
    count = np.maximum(known.sum(1, keepdims=True), 1)
    t = np.where(known, np.arange(y.shape[1]), 0.0)
    t = np.where(known, t - t.sum(1, keepdims=True) / count, 0.0)
    return np.asarray(np.where(count[:, 0] >= 3, (np.where(known, y, 0) * t).sum(1) / np.maximum((t**2).sum(1), 1e-300), np.nan))


def taus(levels: Any) -> np.ndarray:
    """Kendall's tau-b of level against turn within each dialogue, (n,); NaN where the level never changes (count them)."""
    rows = [row[~np.isnan(row)] for row in np.asarray(levels, float)]
    return np.array([stats.kendalltau(np.arange(len(r)), r).statistic if len(r) > 1 and np.ptp(r) else np.nan for r in rows])


def page(values: Any, *, name: str = "Page trend", method: Literal["permutation", "normal"] = "permutation", n_resamples: int = 1999,
         seed: Seed = 0) -> SignificanceTest:  # fmt: skip
    """One-sided test of an increase over turns, complete (n, T) values, ties allowed; statistic Page's L.

    permutation: turns shuffled within dialogues. normal: tie-corrected variance. Rows with a NaN are left out and counted.
    """
    x = np.asarray(values, float)
    lost, x = int(np.isnan(x).any(1).sum()), x[~np.isnan(x).any(1)]
    r, t = stats.rankdata(x, axis=1) if x.size else x, np.arange(1.0, x.shape[1] + 1)
    spread = ((r - r.mean(1, keepdims=True)) ** 2).sum() * ((t - t.mean()) ** 2).sum() / max(len(t) - 1, 1) if x.size else 0
    if spread == 0:
        return SignificanceTest(name, n=len(x), n_unknown=lost, status="undefined", reason="no dialogue changes over turns")
    observed = (r @ t).sum()
    if method == "normal":
        p = float(stats.norm.sf((observed - len(x) * t.sum() * t.mean()) / np.sqrt(spread)))
    else:
        rng = np.random.default_rng(seed)
        p = (1 + sum((rng.permuted(r, axis=1) @ t).sum() >= observed - 1e-9 for _ in range(n_resamples))) / (1 + n_resamples)
    return SignificanceTest(name, observed, p, n=len(x), n_unknown=lost, method=f"tie-corrected, {method}")


def psi(reference: Any, current: Any) -> float:
    """Population stability index of two rows of level counts; 0.5 is added to every count when one is empty. Descriptive."""
    p, q = (np.asarray(c, float) + (0.5 if min(*reference, *current) == 0 else 0.0) for c in (reference, current))
    return float(((q / q.sum() - p / p.sum()) * np.log((q / q.sum()) / (p / p.sum()))).sum())


def charts(z: Any, *, k: float = 0.5, lam: float = 0.2) -> dict[str, np.ndarray]:
    """CUSUM up and down and EWMA of standardised values (..., T), with the EWMA's exact standard deviation (T,)."""
    x = np.asarray(z, float)
    up, down, ewma = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    a = b = m = np.zeros(x.shape[:-1])
    for t in range(x.shape[-1]):
        a, b, m = np.maximum(0, a + x[..., t] - k), np.maximum(0, b - x[..., t] - k), (1 - lam) * m + lam * x[..., t]
        up[..., t], down[..., t], ewma[..., t] = a, b, m
    sd = np.sqrt(lam / (2 - lam) * (1 - (1 - lam) ** (2 * np.arange(1, x.shape[-1] + 1))))
    return {"up": up, "down": down, "ewma": ewma, "ewma_sd": sd}


def first_alarm(over: Any) -> int | None:
    """Index of the first true value, None if there is none (argmax would say 0)."""
    hits = np.flatnonzero(over)
    return int(hits[0]) if len(hits) else None


def cusum_arl(k: float, h: float, *, shift: float = 0.0, nodes: int = 80) -> float:
    """Average run length of a one-sided CUSUM on N(shift, 1), by Page's integral equation (Gauss-Legendre)."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    x, w = (x + 1) * h / 2, w * h / 2
    kernel = stats.norm.pdf(x[None, :] - x[:, None] + k - shift) * w
    system = np.eye(nodes + 1) - np.block([[special.ndtr(k - shift), stats.norm.pdf(x + k - shift) * w],
                                           [special.ndtr(k - shift - x)[:, None], kernel]])  # fmt: skip
    return float(np.linalg.solve(system, np.ones(nodes + 1))[0])


def cusum_limit(arl: float, *, k: float = 0.5) -> float:
    """The decision limit h of a two-sided CUSUM with in-control average run length *arl* and a known baseline."""
    return float(optimize.brentq(lambda h: cusum_arl(k, h) / 2 - arl, 0.1, 20))


def monitor_limit(kind: Kind, *, looks: int, false_alarm: float, baseline_runs: int | None, k: float = 0.5, lam: float = 0.2,
                  n_simulations: int = 50_000, seed: Seed = 0) -> float:  # fmt: skip
    """Limit with P(any alarm in *looks* | no drift) = *false_alarm*, two-sided; the noise of a baseline whose mean and SD
    come from *baseline_runs* runs is part of the simulation (None: known baseline)."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n_simulations, looks))
    if baseline_runs is not None:
        sd = np.sqrt(rng.chisquare(baseline_runs - 1, (n_simulations, 1)) / (baseline_runs - 1))
        z = (z - rng.standard_normal((n_simulations, 1)) / np.sqrt(baseline_runs)) / sd
    return float(np.quantile(_statistic(z, kind, k, lam).max(-1), 1 - false_alarm))


def _statistic(z: np.ndarray, kind: Kind, k: float, lam: float) -> np.ndarray:
    c = charts(z, k=k, lam=lam)
    return np.asarray(np.maximum(c["up"], c["down"]) if kind == "cusum" else np.abs(c["ewma"]) / c["ewma_sd"])


def monitor(baseline: Any, current: Any, *, looks: int = 20, false_alarm: float = 0.05, kind: Kind = "cusum", k: float = 0.5,
            lam: float = 0.2, seed: Seed = 0) -> pd.DataFrame:  # fmt: skip
    """Control chart of a frozen probe set: one mean score per run, (baseline runs,) and (T <= looks,).

    Columns: look, value, z, statistic, limit, alarm; ``attrs`` has alarm_at (None: no alarm), baseline_mean, baseline_sd,
    false_alarm, status, reason. A baseline without variation (a deterministic judge) is 'not_applicable': compare directly.
    """
    base, x = numbers(baseline), numbers(current)
    known, base = ~np.isnan(x), base[~np.isnan(base)]
    sd = base.std(ddof=1) if len(base) > 1 else float("nan")
    frame = pd.DataFrame({"look": np.arange(1, len(x) + 1), "value": x})
    centre = base.mean() if len(base) else None
    frame.attrs = {"alarm_at": None, "baseline_mean": centre, "baseline_sd": sd, "false_alarm": false_alarm}
    if len(base) < 3 or not sd > 1e-12 or len(x) > looks:
        status = "too_few" if len(base) < 3 else "not_applicable" if len(x) <= looks else "undefined"
        reason = {"too_few": "needs three baseline runs", "not_applicable": "the baseline never varies: any change is a change",
                  "undefined": f"{len(x)} looks, but the limit was declared for {looks}"}[status]  # fmt: skip
        frame.attrs |= {"status": status, "reason": reason}
        return frame.assign(z=np.nan, statistic=np.nan, limit=np.nan, alarm=False)
    limit = monitor_limit(kind, looks=looks, false_alarm=false_alarm, baseline_runs=len(base), k=k, lam=lam, seed=seed)
    z = np.where(known, (x - base.mean()) / sd, 0.0)  # a missing run moves no chart
    frame = frame.assign(z=z, statistic=_statistic(z, kind, k, lam), limit=limit).assign(alarm=lambda f: f["statistic"] > limit)
    weak = len(base) < 20
    reason = f"{len(base)} baseline runs: the limit allows for their noise, at the price of power" if weak else ""
    frame.attrs |= {"alarm_at": first_alarm(frame["alarm"]), "status": "too_few" if weak else "ok", "reason": reason}
    return frame


def spend(alpha: float, looks: int, *, spending: Spending = "linear") -> np.ndarray:
    """Alpha available at each look (looks,), summing to *alpha* (Lan and DeMets 1983)."""
    t = np.arange(1, looks + 1) / looks
    total = alpha * t if spending == "linear" else 2 * stats.norm.sf(special.ndtri(1 - alpha / 2) / np.sqrt(t))
    return np.diff(total, prepend=0.0)


def exact_looks(baseline: Any, current: Any, *, looks: int = 20, alpha: float = 0.05, spending: Spending = "linear",
                n_simulations: int = 1000, seed: Seed = 0) -> pd.DataFrame:  # fmt: skip
    """Categorical levels on a frozen probe set: baseline (n,), current (n, T); an exact sign test of moves up against down per look.

    The union bound over looks keeps P(any alarm | no drift) <= alpha whatever the dependence. Columns: look, up, down,
    n_unknown, p, alpha, alarm; ``attrs``: alarm_at, achieved (share of shuffles of the looks within dialogues that alarm).
    """
    cells = np.column_stack([np.asarray(baseline, dtype=object), np.asarray(current, dtype=object)])
    x = ranks(cells.ravel()).reshape(cells.shape)
    # looks beyond the declared ones have no alpha left
    budget = np.pad(spend(alpha, looks, spending=spending), (0, len(x.T)))[: len(x.T) - 1]

    def p_values(levels: np.ndarray) -> tuple[np.ndarray, ...]:
        move = np.nan_to_num(np.sign(levels[..., 1:] - levels[..., :1]))
        up, down = (move > 0).sum(-2), (move < 0).sum(-2)
        return up, down, np.minimum(1.0, 2 * special.bdtr(np.minimum(up, down), up + down, 0.5))

    up, down, p = p_values(x)
    rng = np.random.default_rng(seed)
    achieved = np.mean([(p_values(rng.permuted(x, axis=1))[2] <= budget).any() for _ in range(n_simulations)]) if x.size else 0.0
    frame = pd.DataFrame({"look": np.arange(1, len(p) + 1), "up": up, "down": down, "n_unknown": np.isnan(x[:, 1:] + x[:, :1]).sum(0),
                          "p": p, "alpha": budget, "alarm": p <= budget})  # fmt: skip
    frame.attrs = {"alarm_at": first_alarm(frame["alarm"]), "achieved": float(achieved), "alpha": alpha}
    return frame
