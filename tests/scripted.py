"""A judge that answers from a function, for tests; not a mock of our code but another judge behind the same seam."""

from __future__ import annotations

import json

from workbench.judges.base import Reply, Usage
from workbench.schema import DIMENSIONS, FLAGS, Dialogue


class Scripted:
    """Answers with ``answer(request)``: text, a Reply, or an exception to raise. Remembers what it was asked."""

    kind, deterministic, reads_anchor = "scripted", True, True

    def __init__(self, name, answer):
        self.name, self._answer, self.seen = name, answer, []

    async def answer(self, request):
        self.seen.append(request)
        got = self._answer(request)
        if isinstance(got, Exception):
            raise got
        return got if isinstance(got, Reply) else Reply(text=got, usage=Usage(10, 5), model=self.name)

    def identity(self, request):
        return {"model": self.name}

    def describe(self):
        return {"name": self.name, "kind": self.kind}

    async def aclose(self):
        pass


def verdict(level="critical", confidence=0.95, evidence="", **flags) -> str:
    return json.dumps({
        "risk_level": level, "confidence": confidence, "dimensions": dict.fromkeys(DIMENSIONS, 0.5), "evidence": evidence,
        "context_flags": dict.fromkeys(FLAGS, False) | flags,
    })  # fmt: skip


def dialogue(text="hello", turns=(), **more) -> Dialogue:
    spoken = [{"role": r, "content": c} for r, c in [*turns, ("user", text)]]
    return Dialogue.model_validate({"id": "d", "turns": spoken, "provenance": {"synthetic": True}} | more)


def corpus(n=6):
    """n dialogues in n/2 families; every third is critical."""
    return [
        dialogue(
            f"text number {i}",
            id=f"d{i}",
            family=f"f{i // 2}",
            gold={"risk_level": "critical" if i % 3 == 0 else "low"},
            phenomenon="p",
        )
        for i in range(n)
    ]
