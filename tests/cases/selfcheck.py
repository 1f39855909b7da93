"""Check one row of selfcheck.jsonl: run the loop over the script with a fake clock and compare."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.faketime import run_fake
from workbench.errors import JudgeError
from workbench.judges.base import Reply, Usage
from workbench.selfcheck.checks import Task
from workbench.selfcheck.engine import Engine, Limits, Result
from workbench.selfcheck.retry import MAX_FEEDBACK


class Script:
    """Answers and judge replies in order, each after its latency; remembers what was asked."""

    def __init__(self, items: list[dict[str, Any]], key: str, tokens: int) -> None:
        self.items, self.key, self.tokens, self.asked = items, key, tokens, []

    async def __call__(self, messages: Any, temperature: float, max_tokens: int) -> Reply:
        item = self.items[len(self.asked)]
        self.asked.append((messages, temperature, max_tokens))
        await asyncio.sleep(item.get("latency_s", 1))
        if item.get("error"):
            raise JudgeError(item["error"] if item["error"] in ("timeout", "rate_limited") else "api_error")
        usage = Usage(completion_tokens=item.get("tokens", self.tokens))
        return Reply(text=item.get(self.key), finish_reason=item.get("finish_reason", "stop"), usage=usage)


def task_of(row: dict[str, Any]) -> Task:
    given = dict(row["task"])
    for name in ("schema_keys", "banned", "citation_ids", "patterns"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])
    return Task(**given)


def play(row: dict[str, Any]) -> tuple[Engine, Script, Script]:
    generate, judge = Script(row["attempts"], "answer", 100), Script(row["judge"], "raw", 50)
    return (
        Engine(generate, judge, limits=Limits(**row.get("budget", {})), clock=lambda: asyncio.get_running_loop().time()),
        generate,
        judge,
    )


def facts(result: Result) -> dict[str, Any]:
    return {
        "l1": [a.l1 for a in result.attempts], "judge_calls": sum(a.judge_calls for a in result.attempts), "attempts_used": len(result.attempts),
        "passed": result.passed, "status": result.status, "returned": result.returned, "error_types": list(result.error_types), "tokens": result.tokens,
    }  # fmt: skip


def _action(result: Result) -> dict[str, Any]:
    step = result.actions[0] if result.actions else None
    return (
        {} if step is None else {"type": step.action, "error": step.error, "temperature": step.temperature, "inject": step.inject}
    )


def check(row: dict[str, Any]) -> str | None:
    """None when the run matches, else a short 'expected … got …'."""
    engine, generate, judge = play(row)
    result = run_fake(engine.run(task_of(row)))
    got, expect = facts(result), row["expect"]
    for key, value in expect.items():
        if key in got and got[key] != value:
            return f"expected {key}={value} got {got[key]}"
    for key, value in expect.get("next_action", {}).items():
        if _action(result).get(key) != value:
            return f"expected next_action {key}={value} got {_action(result)}"
    prompts = ["\n".join(m["content"] for m in messages) for messages, _, _ in generate.asked]
    for text in expect.get("next_prompt_must_contain", ()):
        if len(prompts) < 2 or text not in prompts[1]:
            return f"expected the next prompt to contain {text!r}"
    for text in expect.get("next_prompt_must_not_contain", ()):
        if any(text in prompt for prompt in prompts[1:]):
            return f"expected no later prompt to contain {text!r}"
    if any(len(p) > len(prompts[0]) + MAX_FEEDBACK for p in prompts):
        return f"expected at most {MAX_FEEDBACK} characters of feedback"
    if any(temperature != 0 for _, temperature, _ in judge.asked):
        return "expected every judge call at temperature 0"
    return None
