"""How many dialogues, how many repeats: by formula and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from workbench.stats.estimate import Estimate, SignificanceTest
from workbench.stats.proportions import proportion, wilson


def n_for_rate(p: float, half_width: float, *, confidence: float = 0.95, deff: float = 1.0) -> int:
    """Rows for a Wilson interval of a rate near *p* no wider than 2 *half_width*; times the design effect of families."""
    n = next(n for n in range(1, 10**7) if np.diff(wilson(p * n, n, confidence=confidence))[0] <= 2 * half_width)
    return math.ceil(n * deff)


def n_for_zero(bound: float, *, confidence: float = 0.95) -> int:
    """Rows without a single event needed to claim a rate of at most *bound*, one-sided."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - bound))


def n_for_paired_effect(dz: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Dialogues for a two-sided paired t test of a mean difference of *dz* standard deviations of the differences."""
    from statsmodels.stats.power import TTestPower

    return math.ceil(float(TTestPower().solve_power(dz, power=power, alpha=alpha)))


def n_for_mcnemar(discordance: float, difference: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Dialogues for McNemar's test: *discordance* = share of discordant pairs, *difference* = difference of the two rates."""
    za, zb = special.ndtri(1 - alpha / 2), special.ndtri(power)
    return math.ceil(float((za * math.sqrt(discordance) + zb * math.sqrt(discordance - difference**2)) ** 2 / difference**2))


def n_for_equivalence(margin: float, sd: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Dialogues for two one-sided tests to show a true zero within +- *margin*, differences having deviation *sd*."""
    return math.ceil(float(((special.ndtri(1 - alpha) + special.ndtri((1 + power) / 2)) * sd / margin) ** 2))


def repeat_factor(icc: float, repeats: int) -> float:
    """Standard error with *repeats* per dialogue over that with one: sqrt(icc + (1 - icc) / R)."""
    return math.sqrt(icc + (1 - icc) / repeats)


def power(study: Callable[[np.random.Generator], SignificanceTest | float | None], *, alpha: float = 0.05, n_simulations: int = 500,
          seed: int = 0, name: str = "power") -> Estimate:  # fmt: skip
    """Share of simulated studies whose p-value is at most *alpha*, with its exact interval; a study without p-value does not reject."""

    def p_of(result: SignificanceTest | float | None) -> float | None:
        return result.p if isinstance(result, SignificanceTest) else result

    ps = [p_of(study(np.random.default_rng(s))) for s in np.random.SeedSequence(seed).spawn(n_simulations)]
    return proportion([p is not None and p <= alpha for p in ps], name=name)


def expected_width(study: Callable[[np.random.Generator], Estimate], *, n_simulations: int = 200, seed: int = 0) -> Estimate:
    """Mean width of a simulated study's interval; studies without an interval are unknown and counted."""
    from workbench.stats.resample import mean

    made = [study(np.random.default_rng(s)) for s in np.random.SeedSequence(seed).spawn(n_simulations)]
    return mean([None if e.low is None or e.high is None else e.high - e.low for e in made], name="interval width")
