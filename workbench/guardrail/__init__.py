"""The advisory guardrail: a rule engine owns the number, a model may only explain it. It reports; it never changes an amount."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

from workbench.folding import words
from workbench.guardrail.amounts import AmountCheck, Evidence, Mention, check_amounts
from workbench.guardrail.check import GuardrailResult, check
from workbench.guardrail.promises import Hit, PromiseCheck, check_promises

if TYPE_CHECKING:
    from workbench.guardrail.compensation import WorkflowRun

__all__ = [
    "AmountCheck", "Evidence", "GuardrailResult", "Hit", "Mention", "PromiseCheck", "check", "check_amounts", "check_promises", "compensation_json",
    "guard_text",
]  # fmt: skip


def guard_text(text: str, *, authoritative: str) -> tuple[str, bool]:
    """The three results of ``check`` in plain lines, and whether all passed: for the command line."""
    from workbench.text import inert

    result = check(text, authoritative)
    return inert(str(result)), result.passed


def compensation_json(order_id: str, *, complaint: str = "OVERTIME", damage: str | None = None, model: str | None = None) -> str:
    """The workflow for one order as JSON: output, steps, status. *model* names a judge of judges.toml; without it the built-in explains."""
    import asyncio
    from dataclasses import asdict

    from workbench.guardrail.compensation import run_workflow

    if model is None:
        run = asyncio.run(run_workflow(order_id, complaint=complaint, damage=damage))
    else:
        run = asyncio.run(_with_model(order_id, complaint, damage, model))
    body = {
        "status": run.status,
        "output": run.output,
        "steps": [asdict(s) for s in run.steps],
        "guardrail": str(run.guardrail).splitlines(),
    }
    return json.dumps(body, ensure_ascii=False, indent=2, default=lambda v: float(v) if isinstance(v, Decimal) else str(v))


async def _with_model(order_id: str, complaint: str, damage: str | None, model: str) -> WorkflowRun:
    from workbench.guardrail.compensation import run_workflow
    from workbench.judges.base import Prompt, Request
    from workbench.judges.registry import judge
    from workbench.schema import View
    from workbench.text import sha256

    asked = judge(model)

    async def explain(messages: list[dict[str, str]]) -> str | None:
        view = View(text=messages[-1]["content"], lang="zh")
        prompt = Prompt(
            tuple(messages), "compensation", words("compensation_rules")["version"], sha256(json.dumps(messages)), view
        )
        return (await asked.answer(Request(prompt, "L1"))).text

    try:
        return await run_workflow(order_id, complaint=complaint, damage=damage, explain=explain, model=model)
    finally:
        await asked.aclose()
