"""Does the same judge stay the same: over turns, repeats, snapshots, prompt versions and days?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.schema import DIMENSIONS
from workbench.stats.agreement import icc, pair_table, ranks
from workbench.stats.drift import charts, exact_looks, excess_flips, flip_rate, monitor, slopes, taus
from workbench.stats.estimate import Estimate, SignificanceTest, not_applicable
from workbench.stats.paired import adjust, sign_flip, stuart_maxwell
from workbench.stats.proportions import proportion
from workbench.stats.resample import mean, seed_for
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, named, table

KEYS = ["family", "dialogue_id"]
TIERS = ("L1", "L2")


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
    base = material.only(arm="blind")
    main = base.strata()[""]
    estimates = by_stratum(base, lambda m: _measure(m, seed))
    for name, other in later.items():
        estimates += _snapshot(main, other, name, seed)
    found = {r.name: r for r in estimates}
    turns = _turns(main, seed)
    lines = (
        _wide(main, "L2", "error")
        .melt(ignore_index=False, value_name="y")
        .reset_index()
        .rename(columns={"turn": "x", "dialogue_id": "id"})
    )
    means = {
        n: turns[(turns["tier"] == "L2") & (turns["what"] == w)]
        for n, w in (("mean", "error"), ("control: turns shuffled", "shuffled"))
    }
    right = turns[turns["what"] == "right"].rename(columns={"value": "y", "tier": "series"})
    slope = pd.concat(
        [table({n: found[f"{n} slope [{t}]"] for n in ("score error", "turns shuffled", *DIMENSIONS)}, group=t) for t in TIERS]
    )
    gaps = table({r.name: r for r in estimates if "flip" in r.name and isinstance(r, Estimate)})
    draws = {
        "turns": figure("drift.turns", plots.spaghetti, lines, means, of=main),
        "right": figure("drift.right", plots.curves, right, of=main, percent="y"),
        "slopes": figure("drift.slopes", plots.forest, slope.sort_values("label", kind="stable"), of=main, reference=0.0, band=(-margin, margin)),
        "flips": figure("drift.flips", plots.forest, gaps, of=main, percent=True, reference=0.0),
    }  # fmt: skip
    says: Any = [
        ("drift.turns", {"slope": f"score error slope [{t}]", "control": f"turns shuffled slope [{t}]"}, {"tier": t})
        for t in TIERS
    ]
    says += [
        ("drift.repeats", {"flips": f"flip rate over repeats [{t}]", "sd": f"score SD over repeats [{t}]"}, {"tier": t})
        for t in TIERS
    ]
    says += [("drift.snapshot", {"shift": f"{n}: score difference [{t}]", "excess": f"{n}: excess flips [{t}]", "test": f"{n}: same scores [{t}]"},
              {"tier": t, "name": n}) for n in later for t in TIERS]  # fmt: skip
    models = [m.frame.groupby(["judge", "model_requested", "model_returned", "fingerprint"], dropna=False).size().rename("n").reset_index().assign(snapshot=n)
              for n, m in {"first": base, **later}.items()]  # fmt: skip
    return Result(
        "drift", {"turns": turns, "models": pd.concat(models, ignore_index=True)}, estimates, draws, says, material.simulated
    )


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
    rows = m.frame[(m.frame["tier"] == tier) & (m.frame["turn"] == m.frame["n_user_turns"] - 1)]
    return rows.drop_duplicates([*KEYS, "repeat"]).pivot(index=KEYS, columns="repeat", values=value)


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
                e = mean(wide[turn], name=what, cluster=wide.index.get_level_values("family"))
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
    yield flip_rate(levels.to_numpy(object), cluster=family, name=names[0])
    yield mean(scores.std(axis=1), name=names[1], cluster=family)
    yield named(icc(scores.to_numpy())["icc2_1"], names[2])


def _snapshot(first: Material, second: Material, name: str, seed: int) -> list[Number]:
    """Score shift and flips beyond repeat noise between two snapshots, on the dialogues that both have."""
    out = list[Number]()
    for tier in TIERS:
        a, b = (_last(m, tier, "score").astype(float).mean(axis=1) for m in (first, second))
        gap = (b - a).dropna()
        family = gap.index.get_level_values("family")
        out.append(mean(gap, name=f"{name}: score difference [{tier}]", cluster=family))
        out.append(sign_flip(gap, name=f"{name}: same scores [{tier}]", cluster=family, seed=seed_for(seed, name, tier)))
        x, y = (_last(m, tier, "level").fillna("unknown") for m in (first, second))
        both = x.index.intersection(y.index)
        if not len(both):
            continue
        excess, test = excess_flips(x.loc[both].to_numpy(object), y.loc[both].to_numpy(object), cluster=both.get_level_values("family"),
                                    name=f"{name}: excess flips [{tier}]", seed=seed_for(seed, name, tier, "flips"))  # fmt: skip
        cells = pair_table(ranks(x.loc[both, x.columns[0]]), ranks(y.loc[both, y.columns[0]]))
        out += [
            excess,
            named(test, f"{name}: nothing changed [{tier}]"),
            stuart_maxwell(cells, name=f"{name}: same level margins [{tier}]"),
        ]
        moved = (x.loc[both, x.columns[0]] != y.loc[both, y.columns[0]]).to_numpy()
        out.append(proportion(moved, name=f"{name}: raw flips [{tier}]", cluster=both.get_level_values("family")))
    return out


def drift_monitor(
    baseline: Sequence[Any],
    current: Sequence[Any],
    *,
    tier: str = "L2",
    looks: int = 20,
    false_alarm: float = 0.05,
    kind: Any = "cusum",
    seed: int = 0,
) -> Result:
    """Watch a frozen probe set: one run per look against the runs of the baseline, with a declared false-alarm rate.

    A chart (CUSUM or EWMA) on the mean score, and an exact paired test on the levels with the alarm rate spent over *looks*.
    """
    base, now = [gather(b) for b in baseline], [gather(c) for c in current]
    scores = [[_last(m, tier, "score").astype(float).mean(axis=1).mean() for m in part] for part in (base, now)]
    chart = monitor(*scores, looks=looks, false_alarm=false_alarm, kind=kind, seed=seed_for(seed, "monitor"))
    levels = [_last(m.only(repeat=0), tier, "level").set_axis([i], axis=1) for i, m in enumerate((base[0], *now)) if len(m.frame)]
    wide = (
        pd.concat(levels, axis=1).fillna("unknown")
        if levels
        else pd.DataFrame(columns=range(1 + len(now)), index=pd.MultiIndex.from_tuples([], names=KEYS))
    )
    exact = exact_looks(
        wide.iloc[:, 0].to_numpy(object),
        wide.iloc[:, 1:].to_numpy(object),
        looks=looks,
        alpha=false_alarm,
        seed=seed_for(seed, "exact"),
    )
    counts: dict[str, Any] = {"n": len(now), "n_cluster": wide.index.get_level_values("family").nunique()}
    status, why = chart.attrs["status"], chart.attrs["reason"]
    alarm = chart.attrs["alarm_at"]
    estimates: list[Number] = [
        Estimate("looks until the chart alarms", None if alarm is None else alarm + 1, **counts, method=f"{kind}, false alarm {false_alarm:g} in {looks} looks",
                 status=status if status in ("not_applicable", "undefined") else "ok" if alarm is not None else "undefined", reason=why if status in ("not_applicable", "undefined") else "; ".join(filter(None, [f"no alarm in {len(now)} looks", why]))),
        Estimate("looks until the exact test alarms", None if exact.attrs["alarm_at"] is None else exact.attrs["alarm_at"] + 1, **counts,
                 reason="" if exact.attrs["alarm_at"] is not None else f"no alarm in {len(now)} looks", method="sign test per look, alpha spent over looks"),
        Estimate("achieved false-alarm rate of the exact test", exact.attrs["achieved"], n=len(wide), method="looks shuffled within dialogues"),
    ]  # fmt: skip
    ends = charts(chart["z"].fillna(0.0).to_numpy()) if status in ("ok", "too_few") and len(chart) else {}
    up = (
        {"upward": ends["up"], "downward": ends["down"]}
        if kind == "cusum" and ends
        else {"deviation": chart["statistic"].to_numpy()}
    )
    shown = pd.concat([pd.DataFrame({"x": chart["look"], "y": v, "series": k}) for k, v in up.items()])
    limit = chart["limit"].iloc[0] if len(chart) else np.nan
    draw = figure("drift.monitor", plots.curves, shown, of=base[0], limit=None if np.isnan(limit) else float(limit))
    says = [
        (
            "drift.monitor",
            {"chart": estimates[0].name, "exact": estimates[1].name, "achieved": estimates[2].name},
            {"kind": kind.upper()},
        )
    ]
    return Result("monitor", {"chart": chart, "exact": exact}, estimates, {"chart": draw}, says, base[0].simulated)
