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
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather

NEEDED = {"critical": 3, "high": 2}
RATIOS = (1, 2, 5, 10, 20, 50, 100)


def thresholds(
    source: Any, dialogues: Any = None, *, gate: float = CONFIRM_CONFIDENCE, cost_fn: float = 10.0, step: float = 0.05, seed: int = 0,
    n_resamples: int = 500, **options: Any,
) -> Result:  # fmt: skip
    """Everything that follows from moving the gates, from the verdicts of a run: no call is made.

    *gate*: the confidence in use. *cost_fn*: what a missed critical costs, in false confirmations, for the nested choice of
    a gate; the cost curve covers 1:1 to 100:1. The choice is made on some families and reported on the others.
    """
    material = gather(source, dialogues, **options).only(arm="blind")
    gates = np.unique(np.round([0.0, *np.arange(0.5, 1.0001, step), gate - 0.01, gate, gate + 0.01], 9))
    main = material.strata()[""]
    rows = _sides(main)
    cloud, chosen = _choice(rows, gates, cost_fn, seed, n_resamples)
    estimates = by_stratum(material, lambda m: _rates(m, gate, seed)) + chosen
    grid = _sweep(rows, gates)
    frames = {
        "sweep": grid,
        "curve": _curve(rows, gates),
        "cost": _costs(rows, gate),
        "decided": blocked(main.outcomes),
        "chosen": cloud,
    }
    base = grid[(grid["need_1"] == "critical") & (grid["need_2"] == "critical")]
    shown = frames["curve"].mask(
        frames["curve"]["series"] != "both", frames["curve"].drop(columns=["low", "high"])
    )  # one band is legible
    draws = {
        "gates": figure("thresholds.gates", plots.gate_map, base, cloud, of=main, here=(gate, gate)),
        "curve": figure("thresholds.curve", plots.curves, shown, of=main, percent="xy"),
        "cost": figure("thresholds.cost", plots.curves, frames["cost"], of=main, log="x"),
    }  # fmt: skip
    for tier in ("L1", "L2"):
        frames[f"reliability {tier}"], mass = _reliability(main, tier)
        draws[f"reliability_{tier}"] = figure("thresholds.reliability", plots.reliability, frames[f"reliability {tier}"], mass, of=main,
                                              gate=gate, fill={"tier": tier})  # fmt: skip
    says: Any = [("thresholds.rates", {"found": "sensitivity at the gate", "false": "false confirmations at the gate"}, {})]
    says += [("thresholds.bind", {"one": "decided by confidence L1", "two": "decided by confidence L2", "flags": "decided by a flag",
                                  "mass": "confidence exactly at the gate"}, {}),
             ("thresholds.choice", {"inside": "cost where it was chosen", "outside": "cost on other families", "gate": "chosen gate L1"}, {})]  # fmt: skip
    says += [("thresholds.calibration", {"ece": f"ECE {t}", "test": f"calibration {t}"}, {"tier": t}) for t in ("L1", "L2")]
    return Result("thresholds", frames, estimates, draws, says, material.simulated)


def _sides(material: Material) -> pd.DataFrame:
    """Per outcome: gold, and for each side the rank a gate asks for (-1 unknown or flagged), confidence and score (-1 unknown)."""
    rows = material.outcomes
    rows = rows[rows["gold_level"].notna() & (rows["turn"] == rows["n_user_turns"] - 1)]
    sound = rows["cond_no_blocking_defect"] & rows["cond_same_text"]
    out = pd.DataFrame({"family": rows["family"], "critical": rows["gold_level"] == "critical"})
    for i, side in enumerate(("l1", "l2"), start=1):
        clean = (sound & rows[f"cond_{side}_no_flags"]).to_numpy(bool)
        out[f"rank_{i}"] = np.where(clean, np.nan_to_num(ranks(rows[f"{side}_level"].fillna("unknown")), nan=-1.0), -1.0)
        for name in ("confidence", "score"):
            out[f"{name}_{i}"] = rows[f"{side}_{name}"].astype("Float64").fillna(-1.0).to_numpy(float)
    return out.reset_index(drop=True)


def _passes(rows: pd.DataFrame, side: int, gates: Any, need: int = 3) -> np.ndarray:
    """(gates, rows): does this side meet the gate?"""
    level = rows[f"rank_{side}"].to_numpy() >= need
    return np.asarray(level & (rows[f"confidence_{side}"].to_numpy() >= np.asarray(gates, float).reshape(-1, 1)))


def _sweep(rows: pd.DataFrame, gates: np.ndarray) -> pd.DataFrame:
    """Joint false-alarm rate, sensitivity and confirm rate for both needed levels and both gates."""
    parts, critical = [], rows["critical"].to_numpy(bool)
    for (one, a), (two, b) in ((x, y) for x in NEEDED.items() for y in NEEDED.items()):
        p1, p2 = _passes(rows, 1, gates, a).astype(float), _passes(rows, 2, gates, b).astype(float)
        cells = {"need_1": one, "need_2": two, "t1": np.repeat(gates, len(gates)), "t2": np.tile(gates, len(gates))}
        with np.errstate(invalid="ignore"):
            rates = {k: ((p1[:, w] @ p2[:, w].T) / w.sum()).ravel() for k, w in (("fpr", ~critical), ("sens", critical))}
            parts.append(pd.DataFrame(cells | rates | {"confirm_rate": ((p1 @ p2.T) / len(rows)).ravel()}))
    return pd.concat(parts, ignore_index=True).assign(n=len(rows), n_critical=int(critical.sum())).convert_dtypes()


def _rules(rows: pd.DataFrame, gate: float) -> dict[str, np.ndarray]:
    one, two = _passes(rows, 1, gate)[0], _passes(rows, 2, gate)[0]
    mean = (rows[["rank_1", "rank_2"]].min(axis=1) >= 0) & (rows[["score_1", "score_2"]].mean(axis=1) >= (3 + gate) / 4 - 1e-12)
    return {"L1 only": one, "L2 only": two, "both": one & two, "either": one | two, "mean score": mean.to_numpy(bool)}


def _curve(rows: pd.DataFrame, gates: np.ndarray) -> pd.DataFrame:
    """Operating points as one gate for both sides moves: x false-alarm rate, y sensitivity with its interval."""
    c, parts = rows["critical"].to_numpy(bool), []
    for t in gates[gates > 0]:
        for rule, called in _rules(rows, t).items():
            found = proportion(called[c], name=rule, cluster=rows["family"][c])
            x = called[~c].mean() if (~c).any() else None
            parts.append({"series": rule, "gate": t, "x": x, "y": found.value, "low": found.low, "high": found.high, "n": len(c)})
    return pd.DataFrame(parts, columns=["series", "gate", "x", "y", "low", "high", "n"]).sort_values(
        ["series", "x"], ignore_index=True
    )


def _costs(rows: pd.DataFrame, gate: float, ratios: Sequence[float] = RATIOS) -> pd.DataFrame:
    """Expected cost of each rule at the gates in use, as a share of the worst possible, over the FN:FP ratio."""
    c = rows["critical"].to_numpy(bool)
    parts = [{"series": rule, "x": r, "y": (r * (c & ~called).sum() + (~c & called).sum()) / (r * c.sum() + (~c).sum()), "n": len(c)}
             for rule, called in _rules(rows, gate).items() for r in ratios if len(c)]  # fmt: skip
    return pd.DataFrame(parts, columns=["series", "x", "y", "n"])


def _choice(
    rows: pd.DataFrame, gates: np.ndarray, cost_fn: float, seed: int, n_resamples: int
) -> tuple[pd.DataFrame, list[Number]]:
    """Nested choice of both gates: spread over family resamples, and cost on families that did not choose."""
    cloud, c = pd.DataFrame(columns=["t1", "t2", "n"]), rows["critical"].to_numpy(bool)
    if not 0 < c.sum() < len(c) or rows["family"].nunique() < 5:
        why = "needs critical and other dialogues, and at least five families"
        return cloud, [
            undefined(n, why, n=len(c))
            for n in ("chosen gate L1", "chosen gate L2", "cost where it was chosen", "cost on other families")
        ]
    p1, p2 = _passes(rows, 1, gates), _passes(rows, 2, gates)
    called = p1[:, None] & p2[None]
    cost = np.moveaxis(np.where(c, cost_fn * ~called, called), -1, 0).astype(float)
    sums = family_sums(cost, rows["family"]).reshape(-1, len(gates) ** 2)

    def best(total: np.ndarray) -> np.ndarray:
        """The strictest of the cheapest settings."""
        return np.asarray(total.shape[-1] - 1 - np.argmin(np.round(total[..., ::-1], 9), axis=-1))

    drawn = best(weights(len(sums), n_resamples, seed=seed_for(seed, "choice")) @ sums)
    fold = rows["family"].map(fold_of).to_numpy()
    flat = cost.reshape(len(rows), -1)
    outside, inside = np.zeros(len(rows)), flat[:, best(sums.sum(0))]
    for k in np.unique(fold):
        outside[fold == k] = flat[fold == k][:, best(flat[fold != k].sum(0))] if (fold != k).any() else np.nan
    t1, t2 = (gates[i] for i in np.divmod(drawn, len(gates)))
    point = np.divmod(best(sums.sum(0)), len(gates))
    found = [Estimate(f"chosen gate L{i + 1}", float(gates[int(point[i])]), float(np.quantile(t, 0.025)), float(np.quantile(t, 0.975)), n=len(rows), n_cluster=len(sums),
                      method=f"cheapest at {cost_fn:g}:1, spread over {n_resamples} family resamples") for i, t in enumerate((t1, t2))]  # fmt: skip
    cloud = pd.DataFrame({"t1": t1, "t2": t2}).value_counts().rename("n").reset_index()
    costs = {"cost where it was chosen": inside, "cost on other families": outside}
    return cloud, [*found, *(mean(v, name=n, cluster=rows["family"]) for n, v in costs.items())]


def _rates(material: Material, gate: float, seed: int) -> Iterator[Number]:
    """Rates at the gate in use, what decided there, mass at the gate, calibration."""
    rows, out = _sides(material), material.outcomes
    c, family = rows["critical"].to_numpy(bool), rows["family"]
    for name, called in (
        ("", _rules(rows, gate)["both"]),
        (" less 0.01", _rules(rows, gate - 0.01)["both"]),
        (" plus 0.01", _rules(rows, gate + 0.01)["both"]),
    ):
        yield proportion(called[c], name=f"sensitivity at the gate{name}", cluster=family[c])
        yield proportion(called[~c], name=f"false confirmations at the gate{name}", cluster=family[~c])
    alone = out["blocked_by"].fillna("")
    for side in ("L1", "L2"):
        yield proportion(alone == f"{side.lower()}_confidence", name=f"decided by confidence {side}", cluster=out["family"])
    flags = alone.map(lambda b: bool(b) and set(b.split(";")) <= {"l1_no_flags", "l2_no_flags"})
    yield proportion(flags, name="decided by a flag", cluster=out["family"])
    raised = (out["l1_flags"].fillna("") + ";" + out["l2_flags"].fillna("")).str.split(";")
    for flag in FLAGS:
        yield proportion(
            [by and flag in r for by, r in zip(flags, raised, strict=True)], name=f"decided by flag {flag}", cluster=out["family"]
        )
    known = material.frame[material.frame["confidence"].notna()]
    yield proportion(
        np.isclose(known["confidence"].astype(float), gate), name="confidence exactly at the gate", cluster=known["family"]
    )
    for tier in ("L1", "L2"):
        part = material.frame[(material.frame["tier"] == tier) & material.frame["gold_level"].notna()]
        right = (part["level"] == part["gold_level"]).astype("Float64").mask(part["level"] == "unknown")
        plain, debiased, test = calibration_error(right, part["confidence"], seed=seed_for(seed, tier))
        yield from (
            type(r)(**{f: getattr(r, f) for f in r.__slots__} | {"name": f"{r.name} {tier}"}) for r in (plain, debiased, test)
        )
        yield auc(part["gold_level"] == "critical", part["score"], cluster=part["family"], name=f"ROC AUC of the score {tier}")


def _reliability(material: Material, tier: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Equal-mass bins of confidence with the band of a calibrated judge, and how often each confidence was said."""
    rows = material.frame[
        (material.frame["tier"] == tier) & material.frame["confidence"].notna() & material.frame["gold_level"].notna()
    ]
    bins = reliability((rows["level"] == rows["gold_level"]).astype(float), rows["confidence"]).rename(
        columns={"p_mean": "x", "rate": "value"}
    )
    low, high = (stats.binom.ppf(q, bins["n"], bins["x"]) / bins["n"] for q in (0.025, 0.975))
    mass = rows["confidence"].astype(float).round(3).value_counts().rename_axis("confidence").rename("n").reset_index()
    return bins.assign(null_low=low, null_high=high), mass
