"""Small values that several test files build on."""

from __future__ import annotations

from workbench.display import wording
from workbench.schema import DIMENSIONS, FLAGS, Assessment, Condition, Dialogue, Outcome, RiskLevel, Turn

NAMES = list(wording()["conditions"])

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> $\\sum_i$ \\(x\\) `code` \x1b[31mred \u202egnp.exe \"'&=cmd|calc"


def assessment(tier: str = "L1", **fields: object) -> Assessment:
    base = {
        "tier": tier, "level": RiskLevel.CRITICAL, "raw_level": RiskLevel.CRITICAL, "confidence": 0.91, "evidence": "all arranged", "judge": "cue", "judge_kind": "rules",
        "dimensions": dict.fromkeys(DIMENSIONS, 0.25), "not_assessed": ("anxiety",), "flags": dict.fromkeys(FLAGS, False),
    }  # fmt: skip
    return Assessment(**(base | fields))


def outcome(**fields: object) -> Outcome:
    base = {
        "dialogue_id": "d-1", "l1": assessment(), "l2": assessment("L2", judge="ngram", confidence=0.8), "level": RiskLevel.CRITICAL,
        "conditions": tuple(Condition(name=n, passed=n != "l2_confidence", value="0.80 against 0.85") for n in NAMES), "review_reasons": ("disagreement",),
    }  # fmt: skip
    return Outcome(**(base | fields))


def dialogue(text: str, **fields: object) -> Dialogue:
    turns = (Turn(role="user", content="hello"), Turn(role="assistant", content=text), Turn(role="user", content=text))
    return Dialogue(**({"id": "d-1", "turns": turns, "provenance": {"synthetic": True}} | fields))
