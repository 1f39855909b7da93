"""Do L1 and L2 fail together, and what is asking both really worth?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.schema import BLOCKING_DEFECTS, CONFIRM_CONFIDENCE, FLAGS
from workbench.scoring import blocked
from workbench.stats.agreement import ranks
from workbench.stats.dependence import copula_joint, error_dependence, fair_comparison, ppv, t_copula_joint
from workbench.stats.estimate import Estimate, not_applicable, undefined
from workbench.stats.proportions import bounds, proportion
from workbench.stats.resample import bootstrap_rows, seed_for
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, table

PLANNED = ((0.01, 0.80), (0.05, 0.90), (0.10, 0.95))  # (false-alarm rate, sensitivity) of one judge, for the model curves
STEPS = ("l1_critical", "l1_confidence", "l1_no_flags", "l2_critical", "l2_confidence", "l2_no_flags", "no_blocking_defect")
Pairs = dict[str, pd.DataFrame]


def independence(
    source: Any, dialogues: Any = None, *, others: Mapping[str, Any] | None = None, at: str = "level", gate: float = CONFIRM_CONFIDENCE,
    permutations: int = 200, seed: int = 0, n_resamples: int = 500, **options: Any,
) -> Result:  # fmt: skip
    """Joint errors of L1 and L2 given gold, with controls, the fair comparison, PPV and what decided.

    *at*: an error of a judge is its level alone (``level``) or its whole half of the gate (``gate``). *others* are further
    runs over the same dialogues whose L2 is paired with this L1 (another family). Controls: each judge with its own
    repeats, and dialogues permuted within gold class. Anchored arms of the run become pairs of their own.
    """
    material = gather(source, dialogues, **options)
    more = {name: gather(m) for name, m in (others or {}).items()}
    main = material.strata()[""]
    pairs = _pairs(main, at, gate) | {
        name: _pair(_rows(main, "L1", at, gate), _rows(m, "L2", at, gate)) for name, m in more.items()
    }
    estimates = by_stratum(material, lambda m: _study(m, _pairs(m, at, gate), seed, n_resamples))
    for name in more:
        estimates += _joint(pairs[name], name, seed)
    estimates += _controls(main, pairs, permutations, seed)
    found = {r.name: r for r in estimates}
    names = [
        n for n in dict.fromkeys([*pairs, "L1 twice", "L2 twice", "permuted"]) if f"{n}: joint" in found or f"{n}: lift" in found
    ]
    steps = {kind: _waterfall(main, critical) for kind, critical in (("false", False), ("found", True))}
    curve = _ppv(found)
    frames = {
        "pairs": pd.concat([p.assign(pair=n) for n, p in pairs.items()], ignore_index=True), "decided": blocked(main.outcomes), "ppv": curve,
        "model": theory(), **{f"waterfall {k}": w for k, w in steps.items()},
    }  # fmt: skip
    shown = pd.DataFrame([{"label": n, "rho": getattr(found.get(f"{n}: tetrachoric"), "value", None)}
                          | {c: getattr(found[f"{n}: joint"], k) for c, k in (("joint", "value"), ("low", "low"), ("high", "high"))}
                          for n in names if f"{n}: joint" in found], columns=["label", "rho", "joint", "low", "high"])  # fmt: skip
    errors = pairs["L1 x L2"].assign(
        x=lambda p: p["score_1"] - (p["gold_rank"] + 0.5) / 4, y=lambda p: p["score_2"] - (p["gold_rank"] + 0.5) / 4
    )
    draws = {
        "headline": figure("independence.headline", plots.headline, theory(), shown, of=main),
        "lift": figure("independence.lift", plots.forest, table({n: found[f"{n}: lift"] for n in names}), of=main, log=True, reference=1.0),
        "errors": figure("independence.errors", plots.error_scatter, errors, of=main),
        "waterfall": figure("independence.waterfall", plots.waterfall, steps["false"], of=main),
        "waterfall_critical": figure("independence.waterfall_critical", plots.waterfall, steps["found"], of=main),
        "ppv": figure("independence.ppv", plots.curves, curve, of=main, log="x", percent="xy"),
        "rules": figure("independence.rules", plots.forest, table({r: found[f"false alarms at equal sensitivity: {r}"] for r in RULES}), of=main, percent=True),
    }  # fmt: skip
    says: Any = [(f"independence.{key}", {k: f"L1 x L2: {v}" for k, v in slots.items()}, {}) for key, slots in SAYS.items()]
    says += [
        (
            "independence.fair",
            {
                k: f"false alarms at equal sensitivity: {r}"
                for k, r in zip(("both", "one", "mean"), ("both", "L1 stricter", "mean score"), strict=True)
            },
            {},
        )
    ]
    return Result("independence", frames, estimates, draws, says, material.simulated)


RULES = ("both", "L1 stricter", "L2 stricter", "mean score")
SAYS = {
    "joint": {"joint": "joint", "one": "rate_first", "two": "rate_second", "product": "product"},
    "lift": {"lift": "lift", "given": "second_given_first", "judges": "effective_judges"},
    "missed": {"both": "missed by either", "one": "missed: rate_first"},
    "same": {"same": "same wrong level"},
}


def _rows(material: Material, tier: str, at: str, gate: float) -> pd.DataFrame:
    """One judge's verdicts on the last turn: ``hit`` is critical (by level, or by its half of the gate), missing where unknown."""
    rows = material.frame[(material.frame["tier"] == tier) & material.frame["gold_level"].notna()]
    rows = rows[rows["turn"] == rows["n_user_turns"] - 1]
    hit = rows["level"] == "critical"
    if at == "gate":
        clean = ~rows[[f"flag_{f}" for f in FLAGS]].fillna(True).any(axis=1)
        sound = ~rows["defects"].fillna("").map(lambda d: bool(BLOCKING_DEFECTS & set(d.split(";"))))
        hit &= (rows["confidence"].fillna(-1) >= gate) & clean & sound
    kept = ["dialogue_id", "family", "text_hash", "gold_level", "gold_rank", "arm", "paraphrase", "repeat", "level", "score"]
    return rows[kept].assign(hit=hit.astype("boolean").mask(rows["level"] == "unknown"))


def _pair(one: pd.DataFrame, two: pd.DataFrame, *, twice: bool = False) -> pd.DataFrame:
    """Every repeat of one judge with every repeat of the other, on the same text; *twice*: with the judge's later repeats."""
    one, two = (rows.drop_duplicates(["dialogue_id", "arm", "paraphrase", "repeat"]) for rows in (one, two))
    both = one.merge(
        two.drop(columns=["family", "gold_level", "gold_rank"]), on=["dialogue_id", "text_hash"], suffixes=("_1", "_2")
    )
    return both[both["repeat_1"] < both["repeat_2"]] if twice else both


def _pairs(material: Material, at: str, gate: float) -> Pairs:
    """L1 with L2, blind and in each other arm of the run. L1 is one assessment for all arms: it is taken once."""
    one, two = (_rows(material, tier, at, gate) for tier in ("L1", "L2"))
    one = one.drop_duplicates(["dialogue_id", "repeat"])
    arms = ["blind", *[a for a in dict.fromkeys(two["arm"]) if a != "blind"]]
    return {"L1 x L2" if a == "blind" else f"L1 x L2 ({a})": _pair(one, two[two["arm"] == a]) for a in arms}


def _joint(pair: pd.DataFrame, label: str, seed: int, *, n_resamples: int = 500) -> list[Number]:
    """The errors of one pair among non-critical dialogues, and the misses of both among critical ones."""
    critical, out = pair["gold_level"] == "critical", list[Number]()
    for word, part, wrong in (("", ~critical, pair[["hit_1", "hit_2"]]), ("missed: ", critical, ~pair[["hit_1", "hit_2"]])):
        a, b = (wrong[c][part] for c in ("hit_1", "hit_2"))
        found = error_dependence(
            a, b, cluster=pair.loc[part, "family"], seed=seed_for(seed, label, word), n_resamples=n_resamples
        )
        out += [replace(e, name=f"{label}: {word}{key}") for key, e in found.items()]
        if (a & b).isna().any():
            out.append(bounds(a & b, name=f"{label}: {word}joint, unknown bounded"))
    return out


def _study(material: Material, pairs: Pairs, seed: int, n_resamples: int) -> Iterator[Number]:
    for label, pair in pairs.items():
        yield from _joint(pair, label, seed)
    pair = pairs["L1 x L2"]
    critical = pair["gold_level"] == "critical"
    yield proportion(
        ~(pair["hit_1"] & pair["hit_2"])[critical].fillna(False),
        name="L1 x L2: missed by either",
        cluster=pair.loc[critical, "family"],
    )
    one, two, gold = (ranks(pair[c]) for c in ("level_1", "level_2", "gold_level"))
    wrong = (one != gold) & (two != gold) & ~np.isnan(one + two)
    yield proportion((one == two)[wrong], name="L1 x L2: same wrong level", cluster=pair["family"][wrong])
    yield from _fair(pair, seed, n_resamples)


def _fair(pair: pd.DataFrame, seed: int, n_resamples: int) -> Iterator[Number]:
    """False-alarm rate of each rule at the sensitivity that 'both' has; an unknown is never called critical."""
    critical = (pair["gold_level"] == "critical").to_numpy(bool)
    both = (pair["hit_1"] & pair["hit_2"]).fillna(False).to_numpy(float)
    s1, s2 = (pair[c].astype("Float64").to_numpy(dtype=float, na_value=-1.0) for c in ("score_1", "score_2"))
    mean = np.where(np.minimum(s1, s2) < 0, -1.0, (s1 + s2) / 2)
    for rule, score in zip(RULES, (both, s1, s2, mean), strict=True):
        name = f"false alarms at equal sensitivity: {rule}"
        if not 0 < critical.sum() < len(critical) or not both[critical].any():
            yield undefined(name, "needs non-critical dialogues, and critical ones that both judges find", n=len(critical))
            continue

        def at_equal(i: np.ndarray, score: np.ndarray = score) -> float:
            g, target = critical[i], both[i][critical[i]].mean()
            cuts = np.unique(score[i])[::-1]
            tpr, fpr = (np.r_[0, 1 - np.searchsorted(np.sort(score[i][k]), cuts) / k.sum()] for k in (g, ~g))
            first = np.unique(tpr, return_index=True)[1]
            return float(np.interp(target, tpr[first], fpr[first]))

        yield bootstrap_rows(
            at_equal, len(pair), name=name, seed=seed_for(seed, "fair"), cluster=pair["family"], n_resamples=n_resamples
        )


def _controls(material: Material, pairs: Pairs, permutations: int, seed: int) -> list[Number]:
    out = list[Number]()
    for tier in ("L1", "L2"):
        rows, label = _rows(material.only(arm="blind"), tier, "level", 0), f"{tier} twice"
        names = set(material.frame.loc[material.frame["tier"] == tier, "judge"])
        if any(material.deterministic(j) for j in names):
            out.append(not_applicable(f"{label}: lift", "a deterministic judge repeats itself", n=len(rows)))
        elif rows["repeat"].nunique() < 2:
            out.append(not_applicable(f"{label}: lift", "one repeat only: run with repeats=3", n=len(rows)))
        else:
            pairs[label] = _pair(rows, rows, twice=True)
            out += _joint(pairs[label], label, seed)
    pair = pairs["L1 x L2"][lambda p: p["gold_level"] != "critical"]
    a, b = (pair[c].astype("Float64").to_numpy(dtype=float, na_value=np.nan) for c in ("hit_1", "hit_2"))
    a, b = a[~np.isnan(a + b)], b[~np.isnan(a + b)]
    if not len(a) or not a.any() or not b.any():
        return [*out, undefined("permuted: lift", "one of the judges never errs here", n=len(a))]
    rng = np.random.default_rng(seed_for(seed, "permuted"))
    lifts = [(a * rng.permutation(b)).mean() / (a.mean() * b.mean()) for _ in range(permutations)]
    low, high = np.quantile(lifts, [0.025, 0.975])
    return [
        *out,
        Estimate(
            "permuted: lift",
            float(np.mean(lifts)),
            low,
            high,
            n=len(a),
            method=f"range of {permutations} permutations of the pairing",
        ),
    ]


@cache
def theory() -> pd.DataFrame:
    """The model curves of the headline figure: Gaussian and t4 copula, equal margins (statistics of double confirmation)."""
    rho = np.linspace(0, 0.99, 23)
    parts = []
    for p, s in PLANNED:
        gain = [fair_comparison(p, 0.90, float(r))["gain"] for r in rho]
        parts.append(pd.DataFrame({"rho": rho, "p": p, "joint": copula_joint(p, p, rho), "t4": t_copula_joint(p, rho), "gain": gain, "sens": s,
                                   "lost": s - copula_joint(s, s, rho)}))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _waterfall(material: Material, critical: bool) -> pd.DataFrame:
    """Of 1,000 dialogues of one gold class, how many are left after each condition, and if L2 erred independently of L1."""
    rows = material.only(arm="blind").outcomes
    rows = rows[rows["gold_level"].notna() & ((rows["gold_level"] == "critical") == critical)]
    passed = rows[[f"cond_{s}" for s in STEPS]].astype(bool).cumprod(axis=1).mean()
    alone = rows[[f"cond_{s}" for s in STEPS[3:]]].astype(bool).cumprod(axis=1).mean()
    product = [*passed.iloc[:3], *(passed.iloc[2] * alone)]
    frame = pd.DataFrame({"label": ["all", *(s.replace("_", " ") for s in STEPS)], "value": [1000, *1000 * passed],
                          "independent": [1000, *(1000 * np.array(product, float))], "n": len(rows)})  # fmt: skip
    return frame if len(rows) else frame.iloc[:0]


def _ppv(found: Mapping[str, Number]) -> pd.DataFrame:
    """PPV over prevalence 0.1 to 10 % with the band that the limits of both rates allow."""
    prevalence, parts = np.geomspace(0.001, 0.1, 25), []
    rates = {
        "L1 alone": ("missed: rate_first", "rate_first"),
        "L2 alone": ("missed: rate_second", "rate_second"),
        "both": ("missed by either", "joint"),
    }
    for series, (miss, false) in rates.items():
        m, f = (found.get(f"L1 x L2: {k}") for k in (miss, false))
        ends = [getattr(e, k, None) for e in (m, f) for k in ("value", "low", "high")]
        if None not in ends:
            y, low, high = (ppv(1 - ends[i], ends[j], prevalence)["ppv"] for i, j in ((0, 3), (2, 5), (1, 4)))  # type: ignore[operator, arg-type]
            parts.append(pd.DataFrame({"x": prevalence, "y": y, "low": low, "high": high, "series": series}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["x", "y", "low", "high", "series"])
