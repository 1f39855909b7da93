"""One arm against another on the same dialogues: shifts, flips beyond repeat noise, what they help and harm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.schema import CONFIRM_CONFIDENCE
from workbench.stats.agreement import ranks
from workbench.stats.drift import flips_by_dialogue
from workbench.stats.estimate import Estimate, not_applicable
from workbench.stats.paired import mcnemar, sign_flip
from workbench.stats.proportions import proportion
from workbench.stats.resample import mean, seed_for
from workbench.study.base import Material, Number, inside, share

KEPT = ["dialogue_id", "family", "gold_level", "gold_acceptable", "repeat", "paraphrase", "order", "l1_level", "l2_level", "l2_confidence",
        "l2_score", "confirmed"]  # fmt: skip


def arm_rows(material: Material, arm: str) -> pd.DataFrame:
    """Outcomes of one arm, with ``right``: L2's level is acceptable (missing where unknown or without gold)."""
    rows = material.outcomes[material.outcomes["arm"] == arm][KEPT]
    accepted = [
        not pd.isna(a) and level in a.split(";") for level, a in zip(rows["l2_level"], rows["gold_acceptable"], strict=True)
    ]
    lost = (rows["l2_level"] == "unknown") | rows["gold_level"].isna()
    return rows.assign(right=pd.array(accepted, "boolean")).assign(
        right=lambda r: r["right"].mask(lost), rank=ranks(rows["l2_level"].fillna("unknown"))
    )


def by_dialogue(rows: pd.DataFrame, value: str) -> pd.Series:
    """Mean of a column over repeats and paraphrases, per (family, dialogue)."""
    return rows.assign(v=rows[value].astype("Float64")).groupby(["family", "dialogue_id"])["v"].mean().astype(float)


def differences(material: Material, arm: str, against: str = "blind", value: str = "l2_score") -> pd.Series:
    """Per dialogue, the mean of *value* in one arm less that in the other."""
    return by_dialogue(arm_rows(material, arm), value) - by_dialogue(arm_rows(material, against), value)


def families_of(series: pd.Series | pd.DataFrame) -> Any:
    return series.index.get_level_values("family")


def noise(material: Material, arm: str = "blind") -> pd.Series | Estimate:
    """Flip rate between repeats of one arm per dialogue: the floor that every flip claim has to beat; 0 for a deterministic judge."""
    rows = arm_rows(material, arm).drop_duplicates(["dialogue_id", "repeat"])
    names = set(material.frame.loc[(material.frame["tier"] == "L2") & (material.frame["arm"] == arm), "judge"])
    wide = rows.pivot(index=["family", "dialogue_id"], columns="repeat", values="l2_level").fillna("unknown")
    if names and all(material.deterministic(j) for j in names):
        return pd.Series(0.0, wide.index)
    if wide.shape[1] < 2:
        return not_applicable(f"{arm}: repeat noise", "one repeat only: run with repeats=3 to know the noise floor", n=len(rows))
    return pd.Series(flips_by_dialogue(wide.to_numpy(object)), wide.index)


def wordings(material: Material, arm: str) -> Estimate:
    """Flip rate between the paraphrases of one arm, first repeat: what the choice of words alone does, repeat noise included."""
    rows = arm_rows(material, arm)
    wide = (
        rows[rows["repeat"] == 0]
        .pivot(index=["family", "dialogue_id"], columns="paraphrase", values="l2_level")
        .fillna("unknown")
    )
    name = f"{arm}: flips between wordings"
    if wide.shape[1] < 2:
        return not_applicable(name, "one wording only", n=len(wide))
    return share(flips_by_dialogue(wide.to_numpy(object)), name=name, cluster=families_of(wide))


def towards(material: Material, arm: str, target: int | None, *, against: str = "blind") -> Iterator[Estimate]:
    """Share of answers nearer to what was told than a blind one, and that share less the same in a blind re-run.

    *target* is the rank told; None: L1's own level. A pair with an unknown answer is unknown.
    """
    a, b, shares = arm_rows(material, arm), arm_rows(material, against), dict[str, pd.Series]()
    for name, rows in (("told", a), ("blind", b)):
        both = rows.merge(b, on=["family", "dialogue_id"], suffixes=("", "_0"))
        both = both[both["repeat"] != both["repeat_0"]] if name == "blind" else both
        told = ranks(both["l1_level"].fillna("unknown")) if target is None else np.full(len(both), float(target))
        nearer = np.abs(both["rank"] - told) < np.abs(both["rank_0"] - told)
        hit = np.where(np.isnan(both["rank"] + both["rank_0"] + told), np.nan, nearer)
        shares[name] = both.assign(hit=hit).groupby(["family", "dialogue_id"])["hit"].mean()
    yield share(shares["told"], name=f"{arm}: towards", cluster=families_of(shares["told"]))
    floor = noise(material, against)
    if isinstance(floor, Estimate):
        yield replace(floor, name=f"{arm}: net towards")
        return
    net = shares["told"] - (shares["blind"].reindex(shares["told"].index) if len(shares["blind"]) else 0.0)
    yield inside(mean(net, name=f"{arm}: net towards", cluster=families_of(net)))


def contrast(
    material: Material, arm: str, *, against: str = "blind", seed: int = 0, gate: float = CONFIRM_CONFIDENCE
) -> Iterator[Number]:
    """Everything that changes between two arms. Repeats are matched for changes of one answer, all pairs count for flips."""
    shift = differences(material, arm, against)
    yield inside(mean(shift, name=f"{arm}: score shift", cluster=families_of(shift)))
    yield sign_flip(shift, name=f"{arm}: no shift", cluster=families_of(shift), seed=seed_for(seed, arm))
    a, b = arm_rows(material, arm), arm_rows(material, against)
    both = a.merge(b, on=["family", "dialogue_id"], suffixes=("", "_0"))
    flips = (
        both.assign(flip=(both["l2_level"] != both["l2_level_0"]).astype(float)).groupby(["family", "dialogue_id"])["flip"].mean()
    )
    yield share(flips, name=f"{arm}: flips", cluster=families_of(flips))
    floor = noise(material, against)
    if isinstance(floor, Estimate):
        yield replace(floor, name=f"{arm}: net flips")
    else:
        net = flips - floor.reindex(flips.index)
        yield inside(mean(net, name=f"{arm}: net flips", cluster=families_of(net)))
    same = both[both["repeat"] == both["repeat_0"]]
    before, after = same["right_0"], same["right"]
    for name, part, hit in (
        ("harmful flips", before.fillna(False), ~after),
        ("beneficial flips", (~before).fillna(False), after),
    ):
        yield proportion(hit[part], name=f"{arm}: {name}", cluster=same["family"][part])
    yield proportion(same["confirmed"] != same["confirmed_0"], name=f"{arm}: confirm flips", cluster=same["family"])
    crossed = (same["l2_confidence"] >= gate) != (same["l2_confidence_0"] >= gate)
    yield proportion(crossed.astype("boolean"), name=f"{arm}: crossings of the gate", cluster=same["family"])
    one = same[(same["repeat"] == 0) & (same["paraphrase"] == 0)]
    up, down = (
        (one[x] == "critical") & (one[y] != "critical") for x, y in (("l2_level", "l2_level_0"), ("l2_level_0", "l2_level"))
    )
    yield mcnemar(int(up.sum()), int(down.sum()), n=len(one), name=f"{arm}: critical as often")


def moves(material: Material, arm: str, *, against: str = "blind") -> pd.DataFrame:
    """Counts of L2's level in *against* (rows) by its level in *arm* (columns), matched repeats, the full scale and unknown."""
    names = ["low", "medium", "high", "critical", "unknown"]
    both = arm_rows(material, arm).merge(arm_rows(material, against), on=["dialogue_id", "repeat"], suffixes=("", "_0"))
    counts = pd.crosstab(pd.Categorical(both["l2_level_0"], names), pd.Categorical(both["l2_level"], names), dropna=False)
    return counts.reindex(index=names, columns=names, fill_value=0)
