"""Sweep both gates and both levels from stored verdicts: what each setting finds, raises falsely and costs. No calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench import plots
from workbench.corpus import fold_of
from workbench.schema import CONFIRM_CONFIDENCE, FLAGS
from workbench.scoring import blocked
from workbench.stats.agreement import ranks
from workbench.stats.calibration import auc, calibration_error, reliability
from workbench.stats.estimate import Estimate, undefined
from workbench.stats.proportions import proportion
from workbench.stats.resample import family_sums, mean, seed_for, weights
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, named, sentences

NEEDED = {"critical": 3, "high": 2}
RATIOS = (1, 2, 5, 10, 20, 50, 100)
TIERS = ("L1", "L2")
CHOICE = ("chosen gate L1", "chosen gate L2", "cost where it was chosen", "cost on other families")


def thresholds(
    source: Any, dialogues: Any = None, *, gate: float = CONFIRM_CONFIDENCE, cost_fn: float = 10.0, step: float = 0.05, seed: int = 0,
    n_resamples: int = 500, **options: Any,
) -> Result:  # fmt: skip
    """Everything that follows from moving the gates, from the verdicts of a run: no call is made.

    *gate*: the confidence in use. *cost_fn*: what a missed critical costs, in false confirmations, for the nested choice of
    a gate; the cost curve covers 1:1 to 100:1. The choice is made on some families and reported on the others.
    """
    gates = np.unique(np.round([0.0, *np.arange(0.5, 1.0001, step), gate - 0.01, gate, gate + 0.01], 9))

    def study(m: Material) -> Result:
        rows = _sides(m)
        cloud, chosen = _choice(rows, gates, cost_fn, seed, n_resamples)
        frames = {
            "sweep": _sweep(rows, gates),
            "curve": _curve(rows, gates),
            "cost": _costs(rows, gate),
            "decided": blocked(m.outcomes),
            "chosen": cloud,
        }
        bins = {f"reliability {t}": _reliability(m, t) for t in TIERS}
        estimates = [*_rates(m, rows, gate), *_decided(m, gate), *chosen, *(r for t in TIERS for r in _calibration(m, t, seed))]
        says = sentences("thresholds", tier=[{"tier": t} for t in TIERS])
        draws = _figures(m, frames, bins, gate)
        return Result("thresholds", frames | {k: b for k, (b, _) in bins.items()}, estimates, draws, says, m.simulated)

    return by_stratum(gather(source, dialogues, **options).last().only(arm="blind"), study)


def _figures(
    m: Material, frames: dict[str, pd.DataFrame], bins: dict[str, tuple[pd.DataFrame, pd.DataFrame]], gate: float
) -> dict[str, Any]:
    grid, curve = frames["sweep"], frames["curve"]
    grid = grid[(grid["need_1"] == "critical") & (grid["need_2"] == "critical")]
    one_band = curve.assign(low=curve["low"].where(curve["series"] == "both"))  # five bands would hide each other
    draws = {
        "gates": figure("thresholds.gates", plots.gate_map, grid, frames["chosen"], of=m, here=(gate, gate)),
        "curve": figure("thresholds.curve", plots.curves, one_band, of=m, percent="xy"),
        "cost": figure("thresholds.cost", plots.curves, frames["cost"], of=m, log="x"),
    }
    for t in TIERS:
        shown, mass = bins[f"reliability {t}"]
        draws[f"reliability_{t}"] = figure(
            "thresholds.reliability", plots.reliability, shown, mass, of=m, gate=gate, fill={"tier": t}
        )
    return draws


def _sides(material: Material) -> pd.DataFrame:
    """Per outcome: gold, and for each side the rank a gate asks for (-1 unknown, flagged or defect), confidence and score (-1 unknown)."""
    rows = material.outcomes[material.outcomes["gold_level"].notna()]
    sound = rows["cond_no_blocking_defect"] & rows["cond_same_text"]
    out: dict[str, Any] = {"family": rows["family"], "critical": (rows["gold_level"] == "critical").astype(bool)}
    for i, side in enumerate(("l1", "l2"), start=1):
        clean = (sound & rows[f"cond_{side}_no_flags"]).to_numpy(bool)
        out[f"rank_{i}"] = np.where(clean, np.nan_to_num(ranks(rows[f"{side}_level"].fillna("unknown")), nan=-1.0), -1.0)
        for name in ("confidence", "score"):
            out[f"{name}_{i}"] = rows[f"{side}_{name}"].astype("Float64").fillna(-1.0).to_numpy(float)
    return pd.DataFrame(out).reset_index(drop=True)


def _passes(rows: pd.DataFrame, side: int, gates: Any, need: int = 3) -> np.ndarray:
    """(gates, rows): does this side meet the gate?"""
    level = rows[f"rank_{side}"].to_numpy() >= need
    return np.asarray(level & (rows[f"confidence_{side}"].to_numpy() >= np.asarray(gates, float).reshape(-1, 1)))


def _sweep(rows: pd.DataFrame, gates: np.ndarray) -> pd.DataFrame:
    """Joint false-alarm rate, sensitivity and confirm rate for both needed levels and both gates."""
    c, parts = rows["critical"].to_numpy(bool), []
    groups = {"fpr": ~c, "sens": c, "confirm_rate": np.ones(len(c), bool)}
    for one, two in ((a, b) for a in NEEDED for b in NEEDED):
        p1, p2 = (_passes(rows, i, gates, NEEDED[need]).astype(float) for i, need in ((1, one), (2, two)))
        cells = {"need_1": one, "need_2": two, "t1": np.repeat(gates, len(gates)), "t2": np.tile(gates, len(gates))}
        with np.errstate(invalid="ignore"):
            rates = {name: ((p1[:, g] @ p2[:, g].T) / g.sum()).ravel() for name, g in groups.items()}
        parts.append(pd.DataFrame(cells | rates))
    return pd.concat(parts, ignore_index=True).assign(n=len(c), n_critical=int(c.sum())).convert_dtypes()


def _rules(rows: pd.DataFrame, gate: float) -> dict[str, np.ndarray]:
    one, two = _passes(rows, 1, gate)[0], _passes(rows, 2, gate)[0]
    mean = (rows[["rank_1", "rank_2"]].min(axis=1) >= 0) & (rows[["score_1", "score_2"]].mean(axis=1) >= (3 + gate) / 4 - 1e-12)
    return {"L1 only": one, "L2 only": two, "both": one & two, "either": one | two, "mean score": mean.to_numpy(bool)}


def _curve(rows: pd.DataFrame, gates: np.ndarray) -> pd.DataFrame:
    """Operating points as one gate for both sides moves: x false-alarm rate, y sensitivity with its interval."""
    c, parts = rows["critical"].to_numpy(bool), []
    for t in gates[gates > 0]:
        for rule, called in _rules(rows, t).items():
            y = proportion(called[c], name=rule, cluster=rows["family"][c])
            x = called[~c].mean() if (~c).any() else None
            parts.append({"series": rule, "gate": t, "x": x, "y": y.value, "low": y.low, "high": y.high, "n": len(c)})
    return pd.DataFrame(parts, columns=["series", "gate", "x", "y", "low", "high", "n"])


def _costs(rows: pd.DataFrame, gate: float, ratios: Sequence[float] = RATIOS) -> pd.DataFrame:
    """Expected cost of each rule at the gates in use, as a share of the worst possible, over the FN:FP ratio."""
    c, rules = rows["critical"].to_numpy(bool), _rules(rows, gate)
    cost = {
        (k, r): (r * (c & ~v).sum() + (~c & v).sum()) / (r * c.sum() + (~c).sum())
        for k, v in rules.items()
        for r in ratios
        if len(c)
    }
    return pd.DataFrame(
        [{"series": k, "x": r, "y": v, "n": len(c)} for (k, r), v in cost.items()], columns=["series", "x", "y", "n"]
    )


def _choice(
    rows: pd.DataFrame, gates: np.ndarray, cost_fn: float, seed: int, n_resamples: int
) -> tuple[pd.DataFrame, list[Number]]:
    """Nested choice of both gates: spread over family resamples, and cost on families that did not choose."""
    c, family, k = rows["critical"].to_numpy(bool), rows["family"], len(gates)
    if not 0 < c.sum() < len(c) or family.nunique() < 5:
        why = "needs critical and other dialogues, and at least five families"
        return pd.DataFrame(columns=["t1", "t2", "n"]), [undefined(name, why, n=len(c)) for name in CHOICE]
    called = _passes(rows, 1, gates)[:, None] & _passes(rows, 2, gates)[None]
    cost = np.moveaxis(np.where(c, cost_fn * ~called, called), -1, 0).reshape(len(c), k * k).astype(float)
    sums = family_sums(cost, family)
    drawn, chosen = (
        np.divmod(_strictest(s), k) for s in (weights(len(sums), n_resamples, seed=seed_for(seed, "choice")) @ sums, sums.sum(0))
    )
    fold, outside = family.map(fold_of).to_numpy(), np.zeros(len(c))
    for f in np.unique(fold):
        outside[fold == f] = cost[fold == f][:, _strictest(cost[fold != f].sum(0))]
    how = f"cheapest at {cost_fn:g}:1, spread over {n_resamples} family resamples"
    limits = [np.quantile(gates[d], [0.025, 0.975]) for d in drawn]
    found: list[Number] = [
        Estimate(name, float(gates[at]), low, high, n=len(c), n_cluster=len(sums), method=how)
        for name, at, (low, high) in zip(CHOICE, chosen, limits, strict=False)
    ]
    costs = (cost[:, _strictest(sums.sum(0))], outside)
    cloud = pd.DataFrame({"t1": gates[drawn[0]], "t2": gates[drawn[1]]}).value_counts().rename("n").reset_index()
    return cloud, [*found, *(mean(v, name=name, cluster=family) for name, v in zip(CHOICE[2:], costs, strict=True))]


def _strictest(total: np.ndarray) -> np.ndarray:
    """The last of the cheapest settings: among equal costs the strictest gates."""
    return np.asarray(total.shape[-1] - 1 - np.argmin(np.round(total[..., ::-1], 9), axis=-1))


def _rates(m: Material, rows: pd.DataFrame, gate: float) -> Iterator[Number]:
    """What is confirmed at the gate in use, and a hair below and above it."""
    c, family = rows["critical"].to_numpy(bool), rows["family"]
    for name, t in (("", gate), (" less 0.01", gate - 0.01), (" plus 0.01", gate + 0.01)):
        called = _rules(rows, t)["both"]
        yield proportion(called[c], name=f"sensitivity at the gate{name}", cluster=family[c])
        yield proportion(called[~c], name=f"false confirmations at the gate{name}", cluster=family[~c])


def _decided(m: Material, gate: float) -> Iterator[Number]:
    """How often one gate, or a flag, was all that stood against confirmation, and the mass exactly at the gate."""
    alone, family = m.outcomes["blocked_by"].fillna(""), m.outcomes["family"]
    for side in TIERS:
        yield proportion(alone == f"{side.lower()}_confidence", name=f"decided by confidence {side}", cluster=family)
    by_flag = [bool(b) and set(b.split(";")) <= {"l1_no_flags", "l2_no_flags"} for b in alone]
    yield proportion(by_flag, name="decided by a flag", cluster=family)
    raised = (m.outcomes["l1_flags"].fillna("") + ";" + m.outcomes["l2_flags"].fillna("")).str.split(";")
    for flag in FLAGS:
        yield proportion(
            [by and flag in r for by, r in zip(by_flag, raised, strict=True)], name=f"decided by flag {flag}", cluster=family
        )
    known = m.frame[m.frame["confidence"].notna()]
    yield proportion(
        np.isclose(known["confidence"].astype(float), gate), name="confidence exactly at the gate", cluster=known["family"]
    )


def _calibration(m: Material, tier: str, seed: int) -> Iterator[Number]:
    part = m.frame[(m.frame["tier"] == tier) & m.frame["gold_level"].notna()]
    right = (part["level"] == part["gold_level"]).astype("Float64").mask(part["level"] == "unknown")
    for r in calibration_error(right, part["confidence"], seed=seed_for(seed, tier)):
        yield named(r, f"{r.name} {tier}")
    yield auc(part["gold_level"] == "critical", part["score"], cluster=part["family"], name=f"ROC AUC of the score {tier}")


def _reliability(m: Material, tier: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Equal-mass bins of confidence with the band of a calibrated judge, and how often each confidence was said."""
    rows = m.frame[(m.frame["tier"] == tier) & m.frame["confidence"].notna() & m.frame["gold_level"].notna()]
    bins = reliability((rows["level"] == rows["gold_level"]).astype(float), rows["confidence"]).rename(
        columns={"p_mean": "x", "rate": "value"}
    )
    low, high = (stats.binom.ppf(q, bins["n"], bins["x"]) / bins["n"] for q in (0.025, 0.975))
    mass = rows["confidence"].astype(float).round(3).value_counts().rename_axis("confidence").rename("n").reset_index()
    return bins.assign(null_low=low, null_high=high), mass
