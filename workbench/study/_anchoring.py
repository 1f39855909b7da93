"""Does being told a verdict move L2? Told-what arms, the index, net flips, what it harms, and equivalence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import SetupError
from workbench.prompts import ANCHOR_KINDS
from workbench.schema import CONFIRM_CONFIDENCE, RiskLevel
from workbench.stats.dependence import error_dependence
from workbench.stats.estimate import not_applicable
from workbench.stats.paired import adjust, anchoring_index, sign_flip, tost
from workbench.stats.proportions import proportion
from workbench.stats.resample import bootstrap, family_sums, mean, seed_for
from workbench.study._arms import arm_rows, by_dialogue, contrast, differences, families_of, moves, towards, wordings
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, named, row_shares, sentences, table

QUOTING = ("told_l1", "label_confidence", "label_rationale")  # they tell L1's own level
ANCHORLESS = ("neutral", "irrelevant_number")  # they name no level
DOSES = ("told_low", "told_medium", "told_high", "told_critical")


def arms_for(kinds: Sequence[str] = ANCHOR_KINDS, *, paraphrases: int = 3, doses: bool = True) -> list[Arm]:
    """The blind arm and every told-what arm in each of its wordings; *doses* adds told medium and told high."""
    told = {"told_medium": RiskLevel.MEDIUM, "told_high": RiskLevel.HIGH} if doses else {}
    return [Arm(), *(Arm(name=k, anchor=k, paraphrase=p) for k in kinds for p in range(paraphrases)),
            *(Arm(name=k, anchor="told_l1", told=level, paraphrase=p) for k, level in told.items() for p in range(paraphrases))]  # fmt: skip


def anchoring(
    source: Any, dialogues: Any = None, *, arms: Sequence[Arm | str] | None = None, paraphrases: int = 3, repeats: int = 2, margin: float = 0.03,
    gate: float = CONFIRM_CONFIDENCE, seed: int = 0, **options: Any,
) -> Result:  # fmt: skip
    """Measure anchoring of L2 by what it is told, against its blind answers and their own noise.

    *arms*: kinds of ``prompts.ANCHOR_KINDS`` or Arms; all kinds by default, each in *paraphrases* wordings, in an order
    drawn at random per dialogue. *margin* (score, 0 to 1) is the equivalence margin for 'no anchoring', fixed in advance.
    A stored run is used with the arms it has. A judge that cannot read an anchor gives 'not applicable' and no call.
    """
    l2 = source.l2 if isinstance(source, DoubleConfirmation) else getattr(getattr(source, "pipeline", None), "l2", None)
    if l2 is not None and not l2.reads_anchor:
        silent = not_applicable("anchoring index", f"judge '{l2.name}' cannot read an anchor")
        return Result("anchoring", {}, [silent], {}, [("anchoring.index", {"index": silent.name}, {})])
    named_kinds = [a for a in ANCHOR_KINDS if arms is None or a in arms]
    custom = [a for a in arms or () if isinstance(a, Arm) and a.name != "blind"]
    wanted = [*arms_for(named_kinds, paraphrases=paraphrases, doses=arms is None), *custom]
    material = gather(source, dialogues, arms=wanted, repeats=repeats, seed=seed, **options).last()
    told = [a for a in dict.fromkeys(material.outcomes["arm"]) if a != "blind"]
    if not told or "blind" not in set(material.outcomes["arm"]):
        raise SetupError(
            "anchoring needs a blind arm and at least one told arm: run it with study.anchoring(pipeline, dialogues)"
        )

    def study(m: Material) -> Result:
        estimates = list(_measure(m, told, margin, gate, seed))
        scores = pd.DataFrame({a: by_dialogue(arm_rows(m, a), "l2_score") for a in ("blind", *told)})
        draws = _figures(m, {r.name: r for r in estimates}, scores, told, margin)
        says = sentences("anchoring", arm=[{"arm": a} for a in told if a not in ANCHORLESS])
        return Result("anchoring", {"scores": scores.reset_index(), "order": _order(m)}, estimates, draws, says, m.simulated)

    return by_stratum(material, study)


def _figures(m: Material, found: dict[str, Number], scores: pd.DataFrame, told: list[str], margin: float) -> dict[str, Any]:
    order = [a for a in ("told_low", "blind", "told_critical") if a in scores]
    lines = scores[order].set_axis(range(len(order)), axis=1).melt(ignore_index=False, var_name="x", value_name="y").reset_index()
    dose = [a for a in DOSES if a in scores]
    after = "told_critical" if "told_critical" in told else told[0]
    part, text = row_shares(moves(m, after))
    harm = [table({a: found[f"{a}: {k}"] for a in told}, group=k) for k in ("harmful flips", "beneficial flips", "confirm flips")]
    nearer = {a: found[f"{a}: net towards"] for a in told if f"{a}: net towards" in found}
    shifts = table({a: found[f"{a}: score shift"] for a in told})
    index = {"L2": found["anchoring index"]} if "anchoring index" in found else {}
    median: Any = [getattr(found["anchoring index (Jacowitz-Kahneman)"], "value", None)] if index else []
    return {
        "index": figure("anchoring.index", plots.forest, table(index).assign(other=median), of=m, reference=0.0, hollow="medians (Jacowitz-Kahneman)"),
        "lines": figure("anchoring.lines", plots.spaghetti, lines.rename(columns={"dialogue_id": "id"}), {"mean": _means(scores[order])}, of=m, ticks=order),
        "shift": figure("anchoring.shift", plots.forest, shifts, of=m, reference=0.0, band=(-margin, margin)),
        "towards": figure("anchoring.towards", plots.forest, table(nearer), of=m, reference=0.0, percent=True),
        "harm": figure("anchoring.harm", plots.forest, pd.concat(harm), of=m, percent=True),
        "moves": figure("anchoring.moves", plots.heat, part, text=text, of=m, fill={"arm": after}),
        "dose": figure("anchoring.dose", plots.curves, _means(scores[dose]).rename(columns={"value": "y"}).assign(series="L2"), of=m, ticks=dose),
    }  # fmt: skip


def _means(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean of each column with its interval, at x = 0, 1, …"""
    found = [mean(scores[a], name=str(a), cluster=families_of(scores)) for a in scores]
    rows = [{"x": i, "value": e.value, "low": e.low, "high": e.high} for i, e in enumerate(found)]
    return pd.DataFrame(rows, columns=["x", "value", "low", "high"])


def _measure(m: Material, told: list[str], margin: float, gate: float, seed: int) -> Iterator[Number]:
    for arm in told:
        yield from contrast(m, arm, seed=seed, gate=gate)
        yield wordings(m, arm)
        if arm in DOSES or arm in QUOTING:
            yield from towards(m, arm, DOSES.index(arm) if arm in DOSES else None)
    if {"told_low", "told_critical"} <= set(told):
        yield from _index(m, margin, seed)
    tests = [
        sign_flip(d, name=f"{a} = blind", cluster=families_of(d), seed=seed_for(seed, a))
        for a in told
        for d in [differences(m, a)]
    ]
    yield from adjust(tests)
    for arm in (a for a in told if a in ANCHORLESS):
        shift = differences(m, arm)
        yield tost(shift, -margin, margin, name=f"{arm} within the margin", cluster=families_of(shift))[0]
    if "told_l1" in told:
        yield from _truth(m, seed)
    doses = [a for a in DOSES if a in told]
    if len(doses) > 2:
        wide = pd.DataFrame({a: by_dialogue(arm_rows(m, a), "l2_score") for a in doses})
        x = np.array([DOSES.index(a) for a in doses]) - np.mean([DOSES.index(a) for a in doses])
        yield mean(wide.to_numpy() @ x / (x**2).sum(), name="dose response per level told", cluster=families_of(wide))


def _index(m: Material, margin: float, seed: int) -> Iterator[Number]:
    low, high, blind = (by_dialogue(arm_rows(m, a), "l2_score") for a in ("told_low", "told_critical", "blind"))
    wide = pd.DataFrame({"low": low, "high": high, "blind": blind})
    at, family = _places(m), families_of(wide)
    yield from anchoring_index(
        wide["low"], wide["high"], low_value=at[0], high_value=at[1], cluster=family, seed=seed_for(seed, "index")
    )
    gap = wide["high"] - wide["low"]
    yield mean(gap, name="critical less low", cluster=family)
    yield sign_flip(gap, name="no anchoring", cluster=family, seed=seed_for(seed, "primary"))
    yield tost(gap, -margin, margin, name="anchoring within the margin", cluster=family)[0]
    shifts = wide.dropna().assign(up=lambda w: w["high"] - w["blind"], down=lambda w: w["blind"] - w["low"])
    yield bootstrap(family_sums(shifts[["up", "down"]], families_of(shifts)), lambda s: np.abs(s[..., 0]) / np.abs(s[..., 1]), name="asymmetry",
                    seed=seed_for(seed, "asymmetry"), n=len(shifts), n_unknown=len(wide) - len(shifts))  # fmt: skip


def _places(m: Material) -> tuple[float, float]:
    """Where 'low' and 'critical' lie on the score scale: the judge's own blind mean score there, else the score at 0.85."""
    blind = arm_rows(m, "blind")
    own = [blind.loc[blind["l2_level"] == level, "l2_score"].dropna().astype(float) for level in ("low", "critical")]
    low, high = (float(s.mean()) if len(s) >= 5 else fixed for s, fixed in zip(own, (0.0375, 0.9625), strict=True))
    return low, high


def _truth(m: Material, seed: int) -> Iterator[Number]:
    """Told L1's true verdict: does it correct L2 where L1 is right, or make it adopt L1's false critical? And is independence lost?"""
    both = arm_rows(m, "told_l1").merge(arm_rows(m, "blind"), on=["family", "dialogue_id", "repeat"], suffixes=("", "_0"))
    critical, right = both["gold_level"] == "critical", both["right_0"].fillna(False)
    l1_right = both["l1_level"] == both["gold_level"]
    corrected, false = (
        l1_right & ~both["right_0"].fillna(True),
        (both["l1_level"] == "critical") & ~critical & both["gold_level"].notna() & right,
    )
    yield proportion(both["right"][corrected], name="benefit", cluster=both["family"][corrected])
    yield proportion((both["l2_level"] == "critical")[false], name="damage", cluster=both["family"][false])
    for word in ("", "_0"):
        one, two = (
            (both[c] == "critical").astype("boolean").mask(both[c] == "unknown")[~critical]
            for c in ("l1_level", f"l2_level{word}")
        )
        found = error_dependence(one, two, cluster=both["family"][~critical], seed=seed_for(seed, "told", word), n_resamples=500)
        for key in ("joint", "lift", "phi"):
            yield named(found[key], f"false together, {'blind' if word else 'told_l1'}: {key}")
        apart = both["l1_level"] != both[f"l2_level{word}"]
        yield proportion(apart, name=f"disagreement with L1, {'blind' if word else 'told_l1'}", cluster=both["family"])


def _order(m: Material) -> pd.DataFrame:
    """Mean score by arm and position: what a fixed order would have mixed into the arms."""
    rows = m.outcomes.assign(score=m.outcomes["l2_score"].astype("Float64"))
    return (
        rows.groupby(["arm", "order"], as_index=False)["score"]
        .agg(["mean", "size"])
        .rename(columns={"mean": "score", "size": "n"})
    )
