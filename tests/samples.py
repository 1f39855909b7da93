"""Small values that several test files build on."""

from __future__ import annotations

import json

from workbench.display import wording
from workbench.errors import JudgeError
from workbench.judges.base import Reply, Request
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


class WordJudge:
    """A judge for tests: the first level word of the text is its level; with ``leans`` it takes over the level of an anchor."""

    kind, deterministic = "rules", True

    def __init__(self, name: str = "word", *, leans: bool = False, fails: bool = False) -> None:
        self.name, self.reads_anchor, self.fails, self.asked = name, leans, fails, 0

    async def answer(self, request: Request) -> Reply:
        self.asked += 1
        if self.fails:
            raise JudgeError("timeout", "no answer in 12 s")
        view = request.prompt.view
        seen = view.anchor if self.reads_anchor and view.anchor else view.text
        found = [(seen.find(level.value), level.value) for level in RiskLevel if level.value in seen]
        body = {
            "risk_level": min(found)[1] if found else "low", "confidence": 0.9, "dimensions": dict.fromkeys(DIMENSIONS, 0.5),
            "evidence": view.text[:12], "context_flags": dict.fromkeys(FLAGS, False),
        }  # fmt: skip
        return Reply(json.dumps(body, ensure_ascii=False), model=self.name)

    def identity(self, request: Request) -> dict[str, object]:
        return {"judge": self.name, "anchor": request.prompt.view.anchor}

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "kind": self.kind}

    async def aclose(self) -> None: ...


def corpus(n: int = 6, **fields: object) -> list[Dialogue]:
    """Dialogues d0, d1, … whose texts name the four levels in turn; odd ones are Chinese."""
    levels = list(RiskLevel)
    return [
        Dialogue(id=f"d{i}", family=f"f{i // 2}", lang="zh" if i % 2 else "en", phenomenon="plain" if i < 3 else "other",
                 turns=(Turn(role="user", content="before"), Turn(role="user", content=f"{levels[i % 4]} text {i} 你好")),
                 gold={"risk_level": levels[i % 4]}, provenance={"synthetic": True}, **fields)
        for i in range(n)
    ]  # fmt: skip
