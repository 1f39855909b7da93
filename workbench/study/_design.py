"""How many dialogues and repeats for a wanted width or power: by formula, checked by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.stats.design import (
    n_for_equivalence,
    n_for_mcnemar,
    n_for_paired_effect,
    n_for_rate,
    n_for_zero,
    power,
    repeat_factor,
)
from workbench.stats.estimate import Estimate
from workbench.stats.paired import sign_flip
from workbench.study.base import Result, figure, sentences


def design(
    *, sensitivity: float = 0.85, half_width: float = 0.05, false_alarms: float = 0.02, false_half_width: float = 0.01, bound: float = 0.01,
    effect: float = 0.3, discordance: float = 0.2, difference: float = 0.1, margin: float = 0.03, sd: float = 0.1, wanted_power: float = 0.8,
    alpha: float = 0.05, icc: float = 0.8, per_family: float = 2.0, family_icc: float = 0.2, repeats: Sequence[int] = (1, 2, 3, 5, 10),
    n_simulations: int = 200, seed: int = 0,
) -> Result:  # fmt: skip
    """Sample sizes for the questions of this workbench.

    Rates: *half_width* around *sensitivity* (critical dialogues) and *false_half_width* around *false_alarms* (others),
    and how many dialogues without one false confirmation show a rate of at most *bound*. Paired: *effect* in SDs of the
    difference, McNemar for *difference* at *discordance*, equivalence within *margin* at *sd*. Families of *per_family*
    dialogues that resemble each other by *family_icc* raise all of it by the design effect. *icc* is how much of the
    variance lies between dialogues rather than between repeats.
    """
    deff = 1 + (per_family - 1) * family_icc
    sizes = {
        "critical dialogues for sensitivity": n_for_rate(sensitivity, half_width, deff=deff),
        "other dialogues for the false-alarm rate": n_for_rate(false_alarms, false_half_width, deff=deff),
        "other dialogues without a false confirmation": round(n_for_zero(bound) * deff),
        "dialogues for a paired score effect": round(n_for_paired_effect(effect, power=wanted_power, alpha=alpha) * deff),
        "dialogues for a paired yes-no difference": round(n_for_mcnemar(discordance, difference, power=wanted_power, alpha=alpha) * deff),
        "dialogues for equivalence": round(n_for_equivalence(margin, sd, power=wanted_power, alpha=alpha) * deff),
    }  # fmt: skip
    needed = [Estimate(name, n, method=f"formula x design effect {deff:.2f}") for name, n in sizes.items()]
    n = sizes["dialogues for a paired score effect"]
    grid = sorted({max(4, round(n * f)) for f in (0.25, 0.5, 0.75, 1, 1.5, 2)})
    curve = [_power(k, effect, per_family, family_icc, alpha, n_simulations, seed) for k in grid]
    at = max(4, n)
    factors = [
        Estimate(f"standard error with {r} repeats", repeat_factor(icc, r), method="of that with one repeat") for r in repeats
    ]
    shown = pd.DataFrame(
        [
            {"x": k, "y": e.value, "low": e.low, "high": e.high, "series": "simulated power"}
            for k, e in zip(grid, curve, strict=True)
        ]
    )
    middle, most = repeats[len(repeats) // 2], repeats[-1]
    says = sentences("design", at=[{"n": str(at), "few_repeats": str(middle), "many_repeats": str(most)}])
    se = pd.DataFrame({"x": list(repeats), "y": [e.value for e in factors], "series": "standard error"})
    draws = {"power": figure("design.power", plots.curves, shown, percent="y", limit=wanted_power),
             "repeats": figure("design.repeats", plots.curves, se, percent="y")}  # fmt: skip
    frames = {"sizes": pd.DataFrame({"what": list(sizes), "n": list(sizes.values())}), "power": shown}
    return Result("design", frames, [*needed, *factors, *curve], draws, says)


def _power(n: int, effect: float, per_family: float, family_icc: float, alpha: float, n_simulations: int, seed: int) -> Estimate:
    """Power of the sign-flip test by family at *n* dialogues, simulated."""
    family = (np.arange(n) // per_family).astype(int)

    def study(rng: np.random.Generator) -> Any:
        shared = rng.standard_normal(family.max() + 1)[family]
        gap = effect + np.sqrt(family_icc) * shared + np.sqrt(1 - family_icc) * rng.standard_normal(n)
        return sign_flip(gap, cluster=family, n_resamples=200, seed=int(rng.integers(2**31)))

    return power(study, alpha=alpha, n_simulations=n_simulations, seed=seed, name=f"power at {n} dialogues")
