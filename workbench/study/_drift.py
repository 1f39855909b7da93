"""Does the same judge stay the same: over turns, repeats, snapshots, prompt versions and days?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.schema import DIMENSIONS
from workbench.stats.agreement import icc, pair_table, ranks
from workbench.stats.drift import charts, exact_looks, excess_flips, flips_by_dialogue, monitor, slopes, taus
from workbench.stats.estimate import Estimate, SignificanceTest, not_applicable
from workbench.stats.paired import adjust, sign_flip, stuart_maxwell
from workbench.stats.proportions import proportion
from workbench.stats.resample import mean, seed_for
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, inside, named, sentences, share, table

KEYS = ["family", "dialogue_id"]
TIERS = ("L1", "L2")
ONE_TURN = "the run has one turn per dialogue: run with turns='all'"


def drift(
    source: Any,
    dialogues: Any = None,
    *,
    against: Any = None,
    repeats: int = 3,
    margin: float = 0.02,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Drift over turns (against the gold of each turn), over repeats, and between snapshots.

    *against* is a second run of the same dialogues (another day, model or prompt version); other arms of a run are taken
    as further snapshots of L2. *margin* (score per turn) shades the slopes that would not matter. Turns need a run made
    with ``turns='all'``; a pipeline is run so.
    """
    material = gather(source, dialogues, **{"turns": "all", "repeats": repeats, "seed": seed, **options})
    later = {"later": gather(against)} if against is not None else {}
    later |= {a: material.only(arm=a) for a in dict.fromkeys(material.frame["arm"]) if a != "blind"}

    def study(m: Material) -> Result:
        estimates = [*_measure(m, seed), *(r for name, other in later.items() for r in _snapshot(m, other, name, seed))]
        says = sentences(
            "drift", tier=[{"tier": t} for t in TIERS], snapshot=[{"name": n, "tier": t} for n in later for t in TIERS]
        )
        models = {"first": m, **later}
        keys = ["judge", "model_requested", "model_returned", "fingerprint"]
        seen = [
            x.frame.groupby(keys, dropna=False).size().rename("n").reset_index().assign(snapshot=n) for n, x in models.items()
        ]
        turns = _turns(m, seed)
        draws = _figures(m, turns, {r.name: r for r in estimates}, margin)
        return Result(
            "drift", {"turns": turns, "models": pd.concat(seen, ignore_index=True)}, estimates, draws, says, m.simulated
        )

    return by_stratum(material.only(arm="blind"), study)


def _figures(m: Material, turns: pd.DataFrame, found: dict[str, Number], margin: float) -> dict[str, Any]:
    lines = (
        _wide(m, "L2", "error")
        .melt(ignore_index=False, value_name="y", var_name="x")
        .reset_index()
        .rename(columns={"dialogue_id": "id"})
    )
    means = {
        n: turns[(turns["tier"] == "L2") & (turns["what"] == w)]
        for n, w in (("mean", "error"), ("control: turns shuffled", "shuffled"))
    }
    right = turns[turns["what"] == "right"].rename(columns={"value": "y", "tier": "series"})
    several = turns["x"].nunique() > 1
    what = ("score error", "turns shuffled", *DIMENSIONS)
    slope = pd.concat([table({n: found[f"{n} slope [{t}]"] for n in what}, group=t) for t in TIERS])
    flips = table({n: r for n, r in found.items() if "flip" in n and isinstance(r, Estimate)})
    return {
        "turns": figure("drift.turns", plots.spaghetti, lines, means, of=m)
        if several
        else figure("drift.turns", plots.nothing, of=m, reason=ONE_TURN),
        "right": figure("drift.right", plots.curves, right, of=m, percent="y")
        if several
        else figure("drift.right", plots.nothing, of=m, reason=ONE_TURN),
        "slopes": figure("drift.slopes", plots.forest, slope, of=m, reference=0.0, band=(-margin, margin)),
        "flips": figure("drift.flips", plots.forest, flips, of=m, percent=True, reference=0.0),
    }


def _rows(m: Material, tier: str) -> pd.DataFrame:
    rows = m.frame[m.frame["tier"] == tier]
    error = rows["score"] - (rows["gold_rank"] + 0.5) / 4
    right = (rows["level"] == rows["gold_level"]).astype("Float64").mask((rows["level"] == "unknown") | rows["gold_level"].isna())
    return rows.assign(error=error, right=right, gap=ranks(rows["level"]) - ranks(rows["gold_level"].fillna("unknown")))


def _wide(m: Material, tier: str, value: str) -> pd.DataFrame:
    """Dialogues x turns, mean over repeats."""
    rows = _rows(m, tier).dropna(subset=[value])
    return rows.assign(v=rows[value].astype(float)).pivot_table(index=KEYS, columns="turn", values="v")


def _last(m: Material, tier: str, value: str) -> pd.DataFrame:
    """Dialogues x repeats at the last turn."""
    rows = m.last().frame
    return rows[rows["tier"] == tier].drop_duplicates([*KEYS, "repeat"]).pivot(index=KEYS, columns="repeat", values=value)


def _shuffled(wide: pd.DataFrame, seed: int, tier: str) -> np.ndarray:
    """The known turns of each dialogue in another order: a slope here would be an artefact."""
    x, rng = wide.to_numpy(float).copy(), np.random.default_rng(seed_for(seed, "shuffle", tier))
    for row in x:
        row[~np.isnan(row)] = rng.permutation(row[~np.isnan(row)])
    return x


def _turns(m: Material, seed: int) -> pd.DataFrame:
    """Per tier and turn: mean score error, the shuffled control, and the share of right levels."""
    parts = []
    for tier in TIERS:
        error = _wide(m, tier, "error")
        control = pd.DataFrame(_shuffled(error, seed, tier), error.index, error.columns)
        for what, wide in (("error", error), ("shuffled", control), ("right", _wide(m, tier, "right"))):
            for turn in wide:
                e = (share if what == "right" else mean)(wide[turn], name=what, cluster=wide.index.get_level_values("family"))
                parts.append({"tier": tier, "what": what, "x": turn, "value": e.value, "low": e.low, "high": e.high, "n": e.n})
    return pd.DataFrame(parts, columns=["tier", "what", "x", "value", "low", "high", "n"])


def _slope(wide: np.ndarray, name: str, family: Any) -> Estimate:
    """Mean over dialogues of at least three turns; shorter ones have no slope."""
    found = slopes(wide) if wide.size else np.zeros(0)
    if np.isnan(found).all():
        return not_applicable(name, "no dialogue has three assessed turns (run with turns='all')", n=len(found))
    keep = ~np.isnan(found)
    return mean(found[keep], name=name, cluster=family[keep])


def _measure(m: Material, seed: int) -> Iterator[Number]:
    for tier in TIERS:
        error, gap = _wide(m, tier, "error"), _wide(m, tier, "gap")
        family = np.asarray(error.index.get_level_values("family"))
        yield _slope(error.to_numpy(float), f"score error slope [{tier}]", family)
        yield _slope(_shuffled(error, seed, tier), f"turns shuffled slope [{tier}]", family)
        yield mean(
            taus(gap.to_numpy(float)),
            name=f"Kendall tau of level error and turn [{tier}]",
            cluster=gap.index.get_level_values("family"),
        )
        tests = list[SignificanceTest]()
        for d in DIMENSIONS:
            wide = _wide(m, tier, f"dim_{d}")
            own = np.asarray(wide.index.get_level_values("family"))
            yield _slope(wide.to_numpy(float), f"{d} slope [{tier}]", own)
            if wide.size:
                tests.append(sign_flip(slopes(wide), name=f"{d} slope is 0 [{tier}]", cluster=own, seed=seed_for(seed, d)))
        yield from adjust(tests)
        yield from _repeats(m, tier)


def _repeats(m: Material, tier: str) -> Iterator[Number]:
    judges = sorted(set(m.frame.loc[m.frame["tier"] == tier, "judge"]))
    levels, scores = _last(m, tier, "level").fillna("unknown"), _last(m, tier, "score").astype(float)
    why = (
        "a deterministic judge always repeats itself"
        if any(map(m.deterministic, judges))
        else "one repeat only: run with repeats=3 or more"
    )
    names = [f"{n} [{tier}]" for n in ("flip rate over repeats", "score SD over repeats", "reliability over repeats (ICC)")]
    if levels.shape[1] < 2 or why.startswith("a det"):
        yield from (not_applicable(n, why, n=len(levels)) for n in names)
        return
    family = levels.index.get_level_values("family")
    yield share(flips_by_dialogue(levels.to_numpy(object)), cluster=family, name=names[0])
    yield inside(mean(scores.std(axis=1), name=names[1], cluster=family), 0.0)
    yield named(icc(scores.to_numpy())["icc2_1"], names[2])


def _snapshot(first: Material, second: Material, name: str, seed: int) -> list[Number]:
    """Score shift and flips beyond repeat noise between two snapshots, on the dialogues that both have."""
    out = list[Number]()
    for tier in TIERS if name == "later" else ("L2",):  # L1 is one assessment shared by all arms
        a, b = (_last(m, tier, "score").astype(float).mean(axis=1) for m in (first, second))
        gap = (b - a).dropna()
        family = gap.index.get_level_values("family")
        out.append(inside(mean(gap, name=f"{name}: score difference [{tier}]", cluster=family)))
        out.append(sign_flip(gap, name=f"{name}: same scores [{tier}]", cluster=family, seed=seed_for(seed, name, tier)))
        x, y = (_last(m, tier, "level").fillna("unknown") for m in (first, second))
        both = x.index.intersection(y.index)
        if not len(both):
            continue
        excess, test = excess_flips(x.loc[both].to_numpy(object), y.loc[both].to_numpy(object), cluster=both.get_level_values("family"),
                                    name=f"{name}: excess flips [{tier}]", seed=seed_for(seed, name, tier, "flips"))  # fmt: skip
        cells = pair_table(ranks(x.loc[both, x.columns[0]]), ranks(y.loc[both, y.columns[0]]))
        out += [
            inside(excess),
            named(test, f"{name}: nothing changed [{tier}]"),
            stuart_maxwell(cells, name=f"{name}: same level margins [{tier}]"),
        ]
        moved = (x.loc[both, x.columns[0]] != y.loc[both, y.columns[0]]).to_numpy()
        out.append(proportion(moved, name=f"{name}: raw flips [{tier}]", cluster=both.get_level_values("family")))
    return out


def drift_monitor(baseline: Sequence[Any], current: Sequence[Any], *, tier: str = "L2", looks: int = 20, false_alarm: float = 0.05,
                  kind: Any = "cusum", seed: int = 0) -> Result:  # fmt: skip
    """Watch a frozen probe set: one run per look against the runs of the baseline, with a declared false-alarm rate.

    A chart (CUSUM or EWMA) on the mean score, and an exact paired test on the levels with the alarm rate spent over *looks*.
    """
    base, now = ([gather(m) for m in part] for part in (baseline, current))
    scores = [[_last(m, tier, "score").astype(float).mean(axis=1).mean() for m in part] for part in (base, now)]
    chart = monitor(*scores, looks=looks, false_alarm=false_alarm, kind=kind, seed=seed_for(seed, "monitor"))
    levels = [
        _last(m.only(repeat=0), tier, "level").reindex(columns=[0]).set_axis([i], axis=1) for i, m in enumerate((base[0], *now))
    ]
    wide = pd.concat(levels, axis=1).fillna("unknown").astype(object).to_numpy()
    exact = exact_looks(wide[:, 0], wide[:, 1:], looks=looks, alpha=false_alarm, seed=seed_for(seed, "exact"))
    status, none = chart.attrs["status"], f"no alarm in {len(now)} looks"
    why = chart.attrs["reason"] if status in ("not_applicable", "undefined") else none
    methods = (f"{kind}, false alarm {false_alarm:g} in {looks} looks", "sign test per look, alpha spent over looks")
    estimates: list[Number] = [
        _alarm("looks until the chart alarms", chart.attrs["alarm_at"], why, methods[0], len(now), status),
        _alarm("looks until the exact test alarms", exact.attrs["alarm_at"], none, methods[1], len(now), "ok"),
        Estimate(
            "achieved false-alarm rate of the exact test",
            exact.attrs["achieved"],
            n=len(wide),
            method="looks shuffled within dialogues",
        ),
    ]
    ends = charts(chart["z"].fillna(0.0).to_numpy()) if chart["limit"].notna().any() else {}
    shown = (
        {"upward": ends["up"], "downward": ends["down"]} if kind == "cusum" and ends else {kind: chart["statistic"].to_numpy()}
    )
    lines = pd.concat([pd.DataFrame({"x": chart["look"], "y": v, "series": k}) for k, v in shown.items()])
    limit = chart["limit"].iloc[0] if ends else None
    draw = figure("drift.monitor", plots.curves, lines, of=base[0], limit=limit)
    return Result(
        "monitor", {"chart": chart, "exact": exact}, estimates, {"chart": draw}, sentences("monitor"), base[0].simulated
    )


def _alarm(name: str, at: int | None, why: str, method: str, n: int, status: Any) -> Estimate:
    """The look (from 1) of the first alarm, or why there is none."""
    if at is not None:
        return Estimate(name, at + 1, n=n, method=method)
    return Estimate(name, n=n, method=method, reason=why, status=status if status == "not_applicable" else "undefined")
