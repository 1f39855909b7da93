"""Do L1 and L2 fail together, and what is asking both really worth?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, named, sentences, table

PLANNED = ((0.01, 0.80), (0.05, 0.90), (0.10, 0.95))  # (false-alarm rate, sensitivity) of one judge, for the model curves
STEPS = ("l1_critical", "l1_confidence", "l1_no_flags", "l2_critical", "l2_confidence", "l2_no_flags", "no_blocking_defect")
RULES = ("both", "L1 stricter", "L2 stricter", "mean score")
MAIN = "L1 x L2"
Pairs = dict[str, pd.DataFrame]


def independence(
    source: Any, dialogues: Any = None, *, others: Mapping[str, Any] | None = None, at: str = "level", gate: float = CONFIRM_CONFIDENCE,
    permutations: int = 200, seed: int = 0, n_resamples: int = 500, **options: Any,
) -> Result:  # fmt: skip
    """Joint errors of L1 and L2 given gold, with controls, the fair comparison, PPV and what decided.

    *at*: an error of a judge is its level alone (``level``) or its whole half of the gate (``gate``). *others* are further
    runs over the same dialogues whose L2 is paired with this L1 (another family). Controls: each judge with its own
    repeats, and the pairing permuted. Anchored arms of the run become pairs of their own.
    """
    more = {name: gather(m).last() for name, m in (others or {}).items()}

    def study(m: Material) -> Result:
        pairs = _pairs(m, more, at, gate)
        estimates = [e for name, pair in pairs.items() for e in _joint(pair, name, seed)]
        estimates += [*_pair_only(pairs[MAIN]), *_fair(pairs[MAIN], seed, n_resamples), *_controls(m, pairs, permutations, seed)]
        found = {r.name: r for r in estimates}
        return Result("independence", *_shown(m, pairs, found), sentences("independence"), m.simulated)

    return by_stratum(gather(source, dialogues, **options).last(), study)


def _shown(m: Material, pairs: Pairs, found: dict[str, Number]) -> tuple[dict[str, pd.DataFrame], list[Number], dict[str, Any]]:
    """Frames, estimates and figures."""
    falls = {"waterfall": _waterfall(m, critical=False), "waterfall_critical": _waterfall(m, critical=True)}
    both = table({n.removesuffix(": joint"): e for n, e in found.items() if n.endswith(": joint") and "missed" not in n})
    both = both.rename(columns={"value": "joint"}).assign(
        rho=both["label"].map(lambda n: getattr(found[f"{n}: tetrachoric"], "value", None))
    )
    lifts = table({n.removesuffix(": lift"): e for n, e in found.items() if n.endswith(": lift") and "missed" not in n})
    middle = (pairs[MAIN]["gold_rank"] + 0.5) / 4
    errors = pairs[MAIN].assign(x=pairs[MAIN]["score_1"] - middle, y=pairs[MAIN]["score_2"] - middle)
    rules = table({r: found[f"false alarms at equal sensitivity: {r}"] for r in RULES})
    ppv_rows = _ppv(found)
    draws = {
        "headline": figure("independence.headline", plots.headline, theory(), both, of=m),
        "lift": figure("independence.lift", plots.forest, lifts, of=m, log=True, reference=1.0),
        "errors": figure("independence.errors", plots.error_scatter, errors, of=m),
        "ppv": figure("independence.ppv", plots.curves, ppv_rows, of=m, log="x", percent="xy"),
        "rules": figure("independence.rules", plots.forest, rules, of=m, percent=True),
        **{name: figure(f"independence.{name}", plots.waterfall, fall, of=m) for name, fall in falls.items()},
    }
    every = pd.concat([p.assign(pair=n) for n, p in pairs.items()], ignore_index=True)
    frames = {"pairs": every, "decided": blocked(m.outcomes), "ppv": ppv_rows, "model": theory(), **falls}
    return frames, list(found.values()), draws


def _rows(material: Material, tier: str, at: str, gate: float) -> pd.DataFrame:
    """One judge's verdicts on the last turn: ``hit`` is critical (by level, or by its half of the gate), missing where unknown."""
    rows = material.frame[(material.frame["tier"] == tier) & material.frame["gold_level"].notna()]
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


def _pairs(material: Material, more: Mapping[str, Material], at: str, gate: float) -> Pairs:
    """L1 with L2, blind, in each other arm of the run, and with the L2 of other runs. L1 is one assessment for all arms."""
    one, two = (_rows(material, tier, at, gate) for tier in ("L1", "L2"))
    one = one.drop_duplicates(["dialogue_id", "repeat"])
    arms = [a for a in dict.fromkeys(two["arm"]) if a != "blind"]
    out = {MAIN: _pair(one, two[two["arm"] == "blind"])} | {f"{MAIN} ({a})": _pair(one, two[two["arm"] == a]) for a in arms}
    return out | {name: _pair(one, _rows(m.only(arm="blind"), "L2", at, gate)) for name, m in more.items()}


def _joint(pair: pd.DataFrame, label: str, seed: int, *, n_resamples: int = 500) -> list[Number]:
    """The errors of one pair among non-critical dialogues, and the misses of both among critical ones."""
    critical, out = pair["gold_level"] == "critical", list[Number]()
    for word, part, wrong in (("", ~critical, pair[["hit_1", "hit_2"]]), ("missed: ", critical, ~pair[["hit_1", "hit_2"]])):
        a, b = (wrong[c][part] for c in ("hit_1", "hit_2"))
        found = error_dependence(
            a, b, cluster=pair.loc[part, "family"], seed=seed_for(seed, label, word), n_resamples=n_resamples
        )
        out += [named(e, f"{label}: {word}{key}") for key, e in found.items()]
        if (a & b).isna().any():
            out.append(bounds(a & b, name=f"{label}: {word}joint, unknown bounded"))
    return out


def _pair_only(pair: pd.DataFrame) -> Iterator[Number]:
    critical = pair["gold_level"] == "critical"
    missed = ~(pair["hit_1"] & pair["hit_2"])[critical].fillna(False)
    yield proportion(missed, name=f"{MAIN}: missed by either", cluster=pair["family"][critical])
    one, two, gold = (ranks(pair[c]) for c in ("level_1", "level_2", "gold_level"))
    apart = (one != two) & ~np.isnan(one + two + gold)
    yield proportion((two == gold)[apart], name=f"{MAIN}: L2 right where they differ", cluster=pair["family"][apart])
    wrong = (one != gold) & (two != gold) & ~np.isnan(one + two)
    yield proportion((one == two)[wrong], name=f"{MAIN}: same wrong level", cluster=pair["family"][wrong])


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
            g = critical[i]
            if g.all() or not g.any():
                return float("nan")
            target = both[i][g].mean()
            cuts = np.unique(score[i])[::-1]
            tpr, fpr = (np.r_[0, 1 - np.searchsorted(np.sort(score[i][k]), cuts) / k.sum()] for k in (g, ~g))
            first = np.unique(tpr, return_index=True)[1]
            return float(np.interp(target, tpr[first], fpr[first]))

        yield bootstrap_rows(
            at_equal, len(pair), name=name, seed=seed_for(seed, "fair"), cluster=pair["family"], n_resamples=n_resamples
        )


def _controls(material: Material, pairs: Pairs, permutations: int, seed: int) -> Iterator[Number]:
    """Each judge with its own repeats (the upper reference), and the pairing permuted (its lift must be 1)."""
    for tier in ("L1", "L2"):
        rows, name = _rows(material.only(arm="blind"), tier, "level", 0), f"{tier} twice: lift"
        judges = set(material.frame.loc[material.frame["tier"] == tier, "judge"])
        if any(map(material.deterministic, judges)):
            yield not_applicable(name, "a deterministic judge repeats itself", n=len(rows))
        elif rows["repeat"].nunique() < 2:
            yield not_applicable(name, "one repeat only: run with repeats=3", n=len(rows))
        else:
            pairs[f"{tier} twice"] = _pair(rows, rows, twice=True)
            yield from _joint(pairs[f"{tier} twice"], f"{tier} twice", seed)
    pair = pairs[MAIN][pairs[MAIN]["gold_level"] != "critical"]
    a, b = (pair[c].astype("Float64").to_numpy(dtype=float, na_value=np.nan) for c in ("hit_1", "hit_2"))
    a, b = a[~np.isnan(a + b)], b[~np.isnan(a + b)]
    if not a.any() or not b.any():
        yield undefined("permuted: lift", "one of the judges never errs here", n=len(a))
        return
    rng = np.random.default_rng(seed_for(seed, "permuted"))
    lifts = [(a * rng.permutation(b)).mean() / (a.mean() * b.mean()) for _ in range(permutations)]
    low, high = np.quantile(lifts, [0.025, 0.975])
    yield Estimate("permuted: lift", np.mean(lifts), low, high, n=len(a), method=f"range of {permutations} permuted pairings")


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
        m, f = (found.get(f"{MAIN}: {k}") for k in (miss, false))
        ends = [getattr(e, k, None) for e in (m, f) for k in ("value", "low", "high")]
        if None not in ends:
            y, low, high = (ppv(1 - ends[i], ends[j], prevalence)["ppv"] for i, j in ((0, 3), (2, 5), (1, 4)))  # type: ignore[operator, arg-type]
            parts.append(pd.DataFrame({"x": prevalence, "y": y, "low": low, "high": high, "series": series}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["x", "y", "low", "high", "series"])
