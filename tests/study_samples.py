"""Stored verdicts of two planted judges, built through the package's own outcome and frame code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from workbench.confirm import Arm, combined, conditions, displayed_level
from workbench.frames import Item, assessments_frame, outcomes_frame
from workbench.schema import FLAGS, UNKNOWN, Assessment, Dialogue, Gold, Outcome, RiskLevel, Turn
from workbench.study.base import Material
from workbench.text import sha256

LEVELS = list(RiskLevel)
CUTS = np.array([-0.25, 0.67, 1.50])  # 40/35/18/7 % low..critical (statistics.md C), shifted by enrich
ANCHORS = {"told_low": -1.0, "told_critical": 2.0}


def assessment(
    tier: str, x: float, *, text: str, rng: np.random.Generator, judge: str, kind: str, malformed: float, flag: float
) -> Assessment:
    """One planted answer: level by the cuts, confidence by the distance to the nearest cut."""
    common: dict[str, Any] = {"tier": tier, "judge": judge, "judge_kind": kind, "text_hash": sha256(text)}
    if rng.random() < malformed:
        return Assessment(level=UNKNOWN, reason="parse_error", action="retry_then_unknown", **common)
    level = LEVELS[int((x > CUTS).sum())]
    distance = float(np.abs(x - CUTS).min())
    confidence = round(float(1 / (1 + np.exp(-(0.3 + 3 * distance + 0.5 * rng.standard_normal())))), 2)
    flags = dict.fromkeys(FLAGS, False) | {"fiction": bool(rng.random() < flag)}
    capped = min(level, RiskLevel.MEDIUM) if flags["fiction"] else level
    return Assessment(level=capped, raw_level=level, confidence=confidence, flags=flags, **common)


def dialogue(i: int, rank: int, *, families: int, turns: int = 1) -> Dialogue:
    gold = Gold(risk_level=LEVELS[rank], confirm=rank == 3, acceptable_levels=(LEVELS[rank],))
    said = [Turn(role="user", content=f"text {i} turn {t}") for t in range(turns)]
    answers = [Turn(role="assistant", content="I hear you")] * (turns - 1)
    both = [t for pair in zip(said, [*answers, None], strict=False) for t in pair if t is not None]
    return Dialogue(id=f"d{i:04d}", family=f"f{i % families:03d}", turns=tuple(both), gold=gold, phenomenon="planted",
                    provenance={"synthetic": True})  # fmt: skip


def planted(
    n: int = 200, *, families: int = 80, repeats: int = 1, rho: float = 0.5, w: float = 0.0, arms: tuple[Arm, ...] = (Arm(),), seed: int = 7,
    noise: float = 0.3, shift: tuple[float, float] = (0.0, 0.0), malformed: float = 0.0, flag: float = 0.02, kind: str = "simulated",
    exposure: str = "unseen", enrich: float = 0.5, names: tuple[str, str] = ("sim-a", "sim-b"),
) -> Material:  # fmt: skip
    """Two judges whose persistent errors correlate by *rho*; in anchored arms L2 moves the share *w* towards the anchor."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n) + enrich
    z, v = rng.standard_normal(n), rng.standard_normal((n, 2))
    u = 0.5 * (np.sqrt(rho) * z[:, None] + np.sqrt(1 - rho) * v)
    items = []
    for i in range(n):
        d = dialogue(i, int((theta[i] > CUTS).sum()), families=families)
        for repeat in range(repeats):
            x1 = theta[i] + u[i, 0] + shift[0] + noise * rng.standard_normal()
            l1 = assessment("L1", x1, text=d.text, rng=rng, judge=names[0], kind=kind, malformed=malformed, flag=flag)
            for order, arm in enumerate(rng.permutation(np.array(arms, object))):
                x2 = theta[i] + u[i, 1] + shift[1] + noise * rng.standard_normal()
                told = arm.told or (l1.level if arm.anchor == "told_l1" and l1.known else None)
                at = ANCHORS.get(arm.anchor, None if told is None else [-1.0, 0.2, 1.1, 2.0][told.rank])
                x2 = x2 if at is None else (1 - w) * x2 + w * at
                l2 = assessment("L2", x2, text=d.text, rng=rng, judge=names[1], kind=kind, malformed=malformed, flag=flag)
                outcome = Outcome(dialogue_id=d.id, l1=l1, l2=l2, level=displayed_level(l1, l2), confirmed=combined("and", l1, l2),
                                  incomplete=not (l1.known and l2.known), conditions=conditions(l1, l2), arm=arm.name, repeat=repeat)  # fmt: skip
                items.append(Item(d, 0, arm.name, arm.paraphrase, order, repeat, (exposure, exposure), outcome))
    return Material(assessments_frame(items, {}), outcomes_frame(items))


def degenerate() -> dict[str, Material]:
    """The inputs nobody plans for."""
    m = planted(30, families=15)

    def edit(**columns: Any) -> Material:
        return replace(m, frame=m.frame.assign(**{k: v for k, v in columns.items() if k in m.frame}),
                       outcomes=m.outcomes.assign(**{k: v for k, v in columns.items() if k in m.outcomes}))  # fmt: skip

    unknown = {"level": "unknown", "raw_level": "unknown", "rank": None, "confidence": None, "score": None}
    sides = {f"{s}_{k}": v for s in ("l1", "l2") for k, v in unknown.items() if k != "rank"}
    constant = {"level": "low", "raw_level": "low", "rank": 0, "confidence": 0.9, "score": 0.025}
    same = {f"{s}_{k}": v for s in ("l1", "l2") for k, v in constant.items() if k != "rank"}
    return {
        "no rows": replace(m, frame=m.frame.iloc[:0], outcomes=m.outcomes.iloc[:0]),
        "one row": m.only(dialogue_id="d0001"),
        "one class": m.only(gold_level="low"),
        "only critical": m.only(gold_level="critical"),
        "constant": edit(**constant, **same, confirmed=False),
        "all unknown": edit(**unknown, **sides, confirmed=False),
        "no gold": edit(gold_level=None, gold_rank=None, gold_confirm=None, gold_acceptable=None),
        "one family": edit(family="f"),
        "all in-sample": edit(exposure="in_sample"),
    }
