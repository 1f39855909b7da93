"""What does L2 take from context, trend, prompt and model? One thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench import plots
from workbench.confirm import CONTEXTS, TRENDS, Arm, DoubleConfirmation
from workbench.errors import SetupError
from workbench.stats.estimate import SignificanceTest, not_applicable
from workbench.stats.paired import adjust
from workbench.stats.proportions import proportion
from workbench.stats.resample import mean
from workbench.study._arms import arm_rows, contrast, differences, families_of
from workbench.study.base import Material, Number, Result, by_stratum, figure, gather, inside, sentences, table


def ablation_arms(pipeline: DoubleConfirmation) -> list[Arm]:
    """The pipeline as it is (``blind``), then each other context, trend, L1's prompt, L1's model, and prompt and model together."""
    swaps = [Arm(name="prompt of L1", prompt="L1"), Arm(name="model of L1", judge=pipeline.l1),
             Arm(name="prompt and model of L1", prompt="L1", judge=pipeline.l1)]  # fmt: skip
    swaps = swaps if pipeline.l1 is not pipeline.l2 else swaps[:1]
    return [Arm(), *(Arm(name=f"context {c}", context=c) for c in CONTEXTS if c != pipeline.context),
            *(Arm(name=f"trend {t}", trend=t) for t in TRENDS if t != pipeline.trend), *(s for s in swaps if s.prompt == "L2" or pipeline.l2.reads_anchor)]  # fmt: skip


def ablation(source: Any, dialogues: Any = None, *, repeats: int = 1, seed: int = 0, **options: Any) -> Result:
    """Change what L2 sees, how it is asked and who is asked, one at a time, on the same dialogues.

    A stored run is used with the arms it has. Holm over the arms; flips are net of repeat noise where it is known.
    """
    arms = ablation_arms(source) if isinstance(source, DoubleConfirmation) else [Arm()]
    material = gather(source, dialogues, arms=arms, repeats=repeats, seed=seed, **options).last()
    changed = [a for a in dict.fromkeys(material.outcomes["arm"]) if a != "blind"]
    if not changed:
        raise SetupError("ablation needs other arms besides the blind one: run it with study.ablation(pipeline, dialogues)")

    def study(m: Material) -> Result:
        estimates = list(_measure(m, changed, seed))
        found = {r.name: r for r in estimates}
        shift, right = (table({a: found[f"{a}: {k}"] for a in changed}) for k in ("score shift", "more often right"))
        rates = pd.concat(
            [table({a: found[f"{a}: {k}"] for a in ("blind", *changed)}, group=k) for k in ("sensitivity", "false alarms")]
        )
        draws = {
            "shift": figure("ablation.shift", plots.forest, shift, of=m, reference=0.0),
            "right": figure("ablation.right", plots.forest, right, of=m, reference=0.0, percent=True),
            "rates": figure("ablation.rates", plots.forest, rates, of=m, percent=True),
        }
        says = sentences("ablation", arm=[{"arm": a} for a in changed])
        return Result(
            "ablation",
            {"arms": pd.concat([shift, right], keys=["score shift", "more often right"])},
            estimates,
            draws,
            says,
            m.simulated,
        )

    result = by_stratum(material, study)
    if material.pipeline is not None and not material.pipeline.l2.reads_anchor:
        blind_to = not_applicable(
            "prompt of L1: score shift", f"judge '{material.pipeline.l2.name}' reads the view, not the wording of a prompt"
        )
        result.estimates.append(blind_to)
    return result


def _measure(m: Material, changed: list[str], seed: int) -> Iterator[Number]:
    tests = list[SignificanceTest]()
    for arm in changed:
        for r in contrast(m, arm, seed=seed):
            if isinstance(r, SignificanceTest):
                tests.append(r)
            else:
                yield r
        gain = differences(m, arm, value="right")
        yield inside(mean(gain, name=f"{arm}: more often right", cluster=families_of(gain)))
    for kind in ("no shift", "critical as often"):
        yield from adjust([t for t in tests if t.name.endswith(kind)])
    for arm in ("blind", *changed):
        rows = arm_rows(m, arm)
        critical, known = rows["gold_level"] == "critical", rows["gold_level"].notna()
        for name, part in (("sensitivity", critical), ("false alarms", known & ~critical)):
            yield proportion((rows["l2_level"] == "critical")[part], name=f"{arm}: {name}", cluster=rows["family"][part])
