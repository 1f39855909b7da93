"""The compensation workflow: a rule table decides the amount, a model may only explain it, a person approves. Nothing is paid."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from workbench.errors import DataError
from workbench.extract import NotJSON, scan
from workbench.folding import words
from workbench.guardrail.check import GuardrailResult, check
from workbench.guardrail.reader import NAMES

Explainer = Callable[[list[dict[str, str]]], Awaitable[str | None]]
STAMPS: Final = ("created", "dispatched", "at_shop", "picked_up", "delivered", "promised")
LEGS: Final = ("dispatch_wait", "to_shop", "merchant_prep", "on_road")


@dataclass(frozen=True, slots=True)
class Order:
    """A synthetic order: ``stamps`` maps each of ``STAMPS`` to a time, a missing one is None; amounts are in yuan."""

    order_id: str
    scenario: str
    amount: Decimal
    station: str = ""
    weather: str = ""
    delivery_fee: Decimal = Decimal(0)
    stamps: Mapping[str, datetime | None] = field(default_factory=dict)
    synthetic: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step; ``duration_ms`` is of a monotonic clock, ``tool`` is set on tool steps only."""

    order: int
    type: str
    name: str
    tool: str | None
    status: str
    input: dict[str, Any]
    output: dict[str, Any]
    duration_ms: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """``output`` has the 21 keys; ``status`` is SUCCESS, or DEGRADED when the model gave no text."""

    output: dict[str, Any]
    steps: tuple[Step, ...]
    status: str
    guardrail: GuardrailResult


def find_order(order_id: str) -> Order:
    """The synthetic order with this id; an unknown or blank id raises DataError."""
    table = words("orders")
    for scenario, row in table["scenario"].items():
        if order_id in row["orders"]:
            at = datetime.fromisoformat(table["placed_at"])
            ends = [*(sum(row["legs"][:i]) for i in range(5)), row["promised"]]
            stamps = {name: at + timedelta(minutes=m) for name, m in zip(STAMPS, ends, strict=True)}
            amounts = Decimal(row["amount"]), Decimal(table["delivery_fee"])
            return Order(order_id, scenario, amounts[0], row["station"], row["weather"], amounts[1], stamps)
    known = sorted(o for row in table["scenario"].values() for o in row["orders"])
    raise DataError(f"there is no order {order_id!r}: choose one of {', '.join(known)}")


def timeline(order: Order | None) -> dict[str, Any]:
    """Ten keys: four legs, promised, actual and overtime in whole minutes >= 0 (a missing stamp gives 0), the longest leg if late."""
    stamps = order.stamps if order else {}

    def minutes(start: str, end: str) -> int:
        a, b = stamps.get(start), stamps.get(end)
        return max(0, int((b - a).total_seconds() // 60)) if a and b else 0

    legs = {leg: minutes(*STAMPS[i : i + 2]) for i, leg in enumerate(LEGS)}
    promised, actual = minutes("created", "promised"), minutes("created", "delivered")
    late = max(0, actual - promised) if promised else 0
    by_rank = ("merchant_prep", "dispatch_wait", "on_road", "to_shop")  # the first of equals
    longest = max(by_rank, key=lambda leg: legs[leg]) if late else "none"
    return {f"{leg}_minutes": value for leg, value in legs.items()} | {
        "promised_minutes": promised, "actual_minutes": actual, "overtime_minutes": late, "dominant_leg": longest,
        "dominant_leg_label": words("orders")["labels"][longest], "timeline_complete": all(stamps.get(s) for s in STAMPS),
    }  # fmt: skip


def decide(complaint: str | None, minutes: int, order_amount: Decimal, damage: str | None = None) -> dict[str, Any]:
    """Apply the rule table: the first rule by priority that fits *complaint* and *minutes*; without one, 0 and a person decides.

    ``suggested_amount`` is final; ``cap`` is the cap of the rule that decided, None without one.
    """
    table = words("compensation_rules")
    kind, minutes, level = (complaint or "OVERTIME").strip().upper(), max(0, minutes), (damage or "").strip().upper() or None
    ranked = sorted(table["rule"], key=lambda r: (-r["priority"], r["id"]))
    fits = [r for r in ranked if r["complaint"] == kind and r.get("min_minutes", 0) <= minutes <= r.get("max_minutes", minutes)]
    rule = fits[0] if fits else table["manual"]
    terms = rule.get("damage", {}).get(level, {"amount": "0.00"} | table["manual"]) if "damage" in rule else rule
    amount = Decimal(terms["amount"]) if "amount" in terms else max(Decimal(0), order_amount) * terms["percent"] / 100
    amount, cap = amount.quantize(Decimal("0.01"), ROUND_HALF_UP), Decimal(terms["cap"]) if "cap" in terms else None
    amount = amount if cap is None else min(amount, cap)
    reasons = [rule["approval"]] if "approval" in rule else []
    if amount >= Decimal(table["approval_line"]):
        reasons.append(table["line_reason"].format(line=table["approval_line"]))
    matched = [{k: r[k] for k in ("id", "name", "content", "complaint", "priority")} for r in fits[:1]]
    return {
        "complaint_type": kind, "overtime_minutes": minutes, "order_amount": order_amount, "damage_level": level, "matched_rules": matched,
        "should_compensate": amount > 0, "suggested_amount": amount, "suggested_method": terms.get("method", rule["method"]), "cap": cap,
        "confidence": rule["confidence"], "approval_required": bool(reasons), "approval_reason": "；".join(reasons),
        "decided_by": "rule_engine", "policy_source": "rule_base",
    }  # fmt: skip


def evidence_of(decision: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The amounts of the decision that an explanation may quote by name."""
    table = words("compensation_rules")
    found = [("order_value", decision["order_amount"]), ("approval_line", table["approval_line"]), ("cap", table["max_amount"])]
    return [*found, *([("cap", decision["cap"])] if decision["cap"] is not None else [])]


def builtin_explanation(order_id: str, decision: Mapping[str, Any], leg: str) -> str:
    """The explanation used when no model is asked: the same JSON that a model returns."""
    t = words("compensation_prompt")["builtin"]
    rule = " ".join(f"{r['id']} {r['name']}" for r in decision["matched_rules"]) or decision["suggested_method"]
    ending = "pays" if decision["should_compensate"] else "manual" if decision["approval_required"] else "nothing"
    reason = (t["reason"] + t[ending]).format(order_id=order_id, leg=leg, rule=rule, **decision)
    fixed = {"customer_message": t["message"], "risk_warnings": [t["warning"]], "escalate": False, "confidence": "HIGH"}
    return json.dumps({"reason": reason} | fixed, ensure_ascii=False)


def parse_justification(text: str | None) -> tuple[dict[str, Any] | None, bool]:
    """(the justification, None when it is off the contract; whether the model asks to escalate, which counts in any case)."""
    try:
        body: dict[str, Any] = next((f.value for f in scan(text or "").found if isinstance(f.value, dict)), {})
    except NotJSON:
        body = {}
    good = all(isinstance(body.get(k), str) and body[k].strip() for k in ("reason", "customer_message"))
    good = good and isinstance(body.get("risk_warnings"), list) and isinstance(body.get("escalate"), bool)
    good = good and str(body.get("confidence", "")).upper() in ("HIGH", "MEDIUM", "LOW")
    return (body if good else None), body.get("escalate") is True


def citations(query: str, scenario: str, limit: int = 3) -> list[dict[str, Any]]:
    """The rules and the case of this scenario that share most terms with *query*; score = shared / all terms, x 0.95 for a case."""
    terms = {t for t in re.split(r"[\s，。、；：]+", query) if len(t) > 1}
    case = words("orders")["scenario"][scenario]["case"]
    rules = words("compensation_rules")["rule"]
    sources = [("rule", r["id"], r["name"], f"{r['name']}{r['content']}{r['complaint']}", 1.0) for r in rules]
    scored = [
        {"source_type": kind, "source_id": key, "title": title, "score": round(sum(t in body for t in terms) / max(1, len(terms)) * weight, 3)}
        for kind, key, title, body, weight in [*sources, ("case", scenario, case.split("：")[0], case, 0.95)]
    ]  # fmt: skip
    best = sorted((s for s in scored if s["score"]), key=lambda s: (-s["score"], s["source_id"]))[:limit]
    return [{"index": i} | s for i, s in enumerate(best, 1)]


def messages_for(order: Order, **facts: Any) -> list[dict[str, str]]:
    """The prompt: the decision is authoritative, amounts and promises are forbidden, JSON only."""
    t = words("compensation_prompt")
    facts["order"] = {k: v for k, v in asdict(order).items() if k != "stamps"}
    user = t["user"].format(**{k: json.dumps(v, ensure_ascii=False, default=str) for k, v in facts.items()})
    return [{"role": "system", "content": t["system"].format(phrases="、".join(t["phrases"]))}, {"role": "user", "content": user}]


async def run_workflow(
    order_id: str, *, complaint: str | None = "OVERTIME", damage: str | None = None, explain: Explainer | None = None, model: str = "builtin",
    order: Order | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC), clock: Callable[[], float] = time.perf_counter,
) -> WorkflowRun:  # fmt: skip
    """Run the seven steps for one order. *explain* gets chat messages and returns text, None or raises; without it the built-in explains.

    A model that fails leaves the rule's amount as it is and the run DEGRADED. Raises DataError for an unknown order.
    """
    steps: list[Step] = []
    started = clock()

    def record(given: dict[str, Any], output: dict[str, Any], *, error: str | None = None, ok: bool = True) -> None:
        nonlocal started
        took, started = (clock() - started) * 1000, clock()
        status, about = "SUCCESS" if ok and not error else "FAILED", words("compensation_prompt")["step"][len(steps)]
        steps.append(Step(len(steps) + 1, about["type"], about["name"], about.get("tool"), status, given, output, took, error))

    order = order or find_order(order_id)
    record({"order_id": order_id}, {"scenario": order.scenario, "synthetic": order.synthetic})
    line = timeline(order)
    record({"order_id": order_id}, line)
    decision = decide(complaint, line["overtime_minutes"], order.amount, damage)
    record({"complaint_type": complaint, "damage_level": damage}, decision)
    names = " ".join(r["name"] for r in decision["matched_rules"])
    cited = citations(f"{decision['complaint_type']} {names} 超时", order.scenario)
    record({"scenario": order.scenario}, {"total_found": len(cited), "source_ids": [c["source_id"] for c in cited]})
    messages, error, text = messages_for(order, timeline=line, decision=decision, cases=cited), None, None
    try:
        text = await explain(messages) if explain else builtin_explanation(order_id, decision, line["dominant_leg_label"])
    except Exception as problem:  # whatever a model or its transport raises, the rule's decision stands
        error = f"{type(problem).__name__}: the model gave no explanation"
    text = text if text and text.strip() else None
    sizes = {"prompt_chars": sum(len(m["content"]) for m in messages), "response_chars": len(text or "")}
    record({"model": model}, {"model": model} | sizes, error=error or (None if text else "the model returned no text"))
    guard = check(text or "", decision["suggested_amount"], evidence=evidence_of(decision))
    verdict = {
        "passed": guard.passed, "amount_within_policy": guard.amount_within_policy, "language_acceptable": not guard.promises.forbidden,
        "model_proposed_amounts": [m.text for m in guard.conflict.mentions if m.kind not in NAMES],
        "model_amount_conflicts_with_policy": guard.conflict.conflict, "checked_amount": decision["suggested_amount"],
    }  # fmt: skip
    record({"checked_amount": decision["suggested_amount"]}, verdict, ok=guard.passed)
    output = format_output(order, line, decision, text, cited, guard.passed, now())
    record({}, {"field_count": len(output)})
    return WorkflowRun(output, tuple(steps), "DEGRADED" if output["degraded"] else "SUCCESS", guard)


def format_output(
    order: Order, line: Mapping[str, Any], decision: Mapping[str, Any], text: str | None, cited: list[dict[str, Any]], passed: bool, now: datetime
) -> dict[str, Any]:  # fmt: skip
    """The 21 keys. Reasons for approval come in a fixed order; text that is away and text that cannot be read are never both a reason."""
    body, escalate = parse_justification(text)
    found = {
        decision["approval_reason"] or "rule_engine_requires_approval": decision["approval_required"], "guardrail_failed": not passed,
        "model_output_unavailable": text is None, "model_output_unparseable": text is not None and body is None,
        "model_confidence_below_high": body is not None and str(body["confidence"]).upper() != "HIGH",
        "model_requested_escalation": escalate, "incomplete_order_timeline": not line["timeline_complete"],
    }  # fmt: skip
    reasons = [name for name, true in found.items() if true]
    kept = ("complaint_type", "should_compensate", "suggested_amount", "suggested_method", "matched_rules", "policy_source")
    return {k: decision[k] for k in kept} | {
        "order_id": order.order_id, "analysis_type": "compensation_suggestion", "timeline": dict(line), "amount_decided_by": "rule_engine",
        "model_justification": body, "model_raw_output": text, "model_output_available": text is not None, "model_output_parsed": body is not None,
        "citations": cited, "guardrail_passed": passed, "approval_required": bool(reasons), "approval_reasons": reasons, "advisory_only": True,
        "generated_at": now.astimezone(UTC).isoformat(), "degraded": text is None,
    }  # fmt: skip
