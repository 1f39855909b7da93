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
from workbench.guardrail import GuardrailResult, check

Explainer = Callable[[list[dict[str, str]]], Awaitable[str | None]]
STAMPS: Final = ("created", "dispatched", "at_shop", "picked_up", "delivered", "promised")
LEGS: Final = ("dispatch_wait", "to_shop", "merchant_prep", "on_road")
_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Order:
    """A synthetic order: ``stamps`` maps each of ``STAMPS`` to a time, a missing one is None; ``amount`` is in yuan."""

    order_id: str
    scenario: str
    amount: Decimal
    station: str = ""
    weather: str = ""
    delivery_fee: Decimal = Decimal(0)
    stamps: Mapping[str, datetime | None] = field(default_factory=dict)
    synthetic: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rule table decides. ``amount`` is final; ``cap`` is the rule's own; ``approval_reason`` is "" when none is needed."""

    complaint: str
    minutes: int
    damage: str | None
    rule: Mapping[str, Any] | None
    amount: Decimal
    cap: Decimal | None
    method: str
    confidence: str
    approval_required: bool
    approval_reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step; ``duration_ms`` is of a monotonic clock, ``tool`` is set on tool steps only."""

    order: int
    type: str
    name: str
    tool: str | None
    status: str
    input: Any
    output: Any
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
            ends = [sum(row["legs"][:i]) for i in range(5)] + [row["promised"]]
            stamps = {name: at + timedelta(minutes=m) for name, m in zip(STAMPS, ends, strict=True)}
            fee = Decimal(table["delivery_fee"])
            return Order(order_id, scenario, Decimal(row["amount"]), row["station"], row["weather"], fee, stamps)
    known = sorted(o for row in table["scenario"].values() for o in row["orders"])
    raise DataError(f"there is no order {order_id!r}: choose one of {', '.join(known)}")


def timeline(order: Order | None) -> dict[str, Any]:
    """Ten keys: the four legs, promised, actual and overtime in whole minutes >= 0 (a missing stamp gives 0), the longest leg when late."""
    stamps = order.stamps if order else {}

    def minutes(start: str, end: str) -> int:
        a, b = stamps.get(start), stamps.get(end)
        return max(0, int((b - a).total_seconds() // 60)) if a and b else 0

    legs = {leg: minutes(STAMPS[i], STAMPS[i + 1]) for i, leg in enumerate(LEGS)}
    promised, actual = minutes("created", "promised"), minutes("created", "delivered")
    late = max(0, actual - promised) if promised else 0
    order_of_ties = ("merchant_prep", "dispatch_wait", "on_road", "to_shop")
    longest = max(order_of_ties, key=lambda leg: legs[leg]) if late else "none"
    return {f"{leg}_minutes": value for leg, value in legs.items()} | {
        "promised_minutes": promised, "actual_minutes": actual, "overtime_minutes": late, "dominant_leg": longest,
        "dominant_leg_label": words("orders")["labels"][longest], "timeline_complete": all(stamps.get(s) for s in STAMPS),
    }  # fmt: skip


def decide(complaint: str | None, minutes: int, order_amount: Decimal, damage: str | None = None) -> Decision:
    """Apply the rule table: the first rule by priority that fits *complaint* and *minutes*; without one, 0 and a person decides."""
    table = words("compensation_rules")
    kind, minutes, level = (complaint or "OVERTIME").strip().upper(), max(0, minutes), (damage or "").strip().upper() or None
    fits = [
        r for r in sorted(table["rule"], key=lambda r: (-r["priority"], r["id"]))
        if r["complaint"] == kind and r.get("enabled", True) and r.get("min_minutes", 0) <= minutes <= r.get("max_minutes", minutes)
    ]  # fmt: skip
    rule = fits[0] if fits else None
    terms = rule.get("damage", {}).get(level or "", rule if "damage" not in rule else None) if rule else None
    cap = Decimal(terms["cap"]) if terms and "cap" in terms else None
    amount = Decimal(0) if terms is None else _amount(terms, max(Decimal(0), order_amount), cap)
    line = Decimal(table["approval_line"])
    reasons = [rule.get("approval", "") if rule else table["reasons"]["manual"]]
    reasons += [table["reasons"]["line"].format(line=line)] if amount >= line else []
    reason = "；".join(r for r in reasons if r)
    method, confidence = (rule or table["manual"])["method"], (rule or table["manual"])["confidence"]
    return Decision(
        kind, minutes, level, rule, amount, cap, method if terms else table["manual"]["method"], confidence, bool(reason), reason
    )


def _amount(terms: Mapping[str, Any], order_amount: Decimal, cap: Decimal | None) -> Decimal:
    """Percentages are rounded half up to a cent before the cap."""
    if "amount" in terms:
        return Decimal(terms["amount"]).quantize(_CENT)
    share = (order_amount * Decimal(terms["percent"]) / 100).quantize(_CENT, ROUND_HALF_UP)
    return share if cap is None else min(share, cap)


def evidence_of(decision: Decision, order: Order) -> list[tuple[str, Decimal]]:
    """The amounts of the decision that an explanation may quote by name."""
    table = words("compensation_rules")
    caps = [("cap", Decimal(table["max_amount"])), *([("cap", decision.cap)] if decision.cap is not None else [])]
    return [("order_value", order.amount), ("approval_line", Decimal(table["approval_line"])), *caps]


def builtin_explanation(order: Order, decision: Decision, line: Mapping[str, Any]) -> str:
    """The explanation used when no model is asked: the same JSON that a model returns."""
    t = words("compensation_prompt")["builtin"]
    rule = f"{decision.rule['id']} {decision.rule['name']}" if decision.rule else decision.method
    reason = t["reason"].format(order_id=order.order_id, minutes=decision.minutes, label=line["dominant_leg_label"], rule=rule)
    if decision.amount > 0:
        reason += t["pays"].format(amount=decision.amount, method=decision.method)
    else:
        reason += t["manual"] if decision.approval_required else t["nothing"]
    body = {
        "reason": reason,
        "customer_message": t["message"],
        "risk_warnings": [t["warning"]],
        "escalate": False,
        "confidence": "HIGH",
    }
    return json.dumps(body, ensure_ascii=False)


def parse_justification(text: str | None) -> tuple[dict[str, Any] | None, bool]:
    """(the model's justification or None when it is off the contract, whether it asks to escalate)."""
    try:
        found = [f.value for f in scan(text or "").found if isinstance(f.value, dict)]
    except NotJSON:
        found = []
    body = found[0] if found else {}
    good = all(isinstance(body.get(k), str) and body[k].strip() for k in ("reason", "customer_message"))
    good = good and isinstance(body.get("risk_warnings"), list) and isinstance(body.get("escalate"), bool)
    good = good and str(body.get("confidence", "")).upper() in ("HIGH", "MEDIUM", "LOW")
    return (body if good else None), body.get("escalate") is True


def citations(query: str, scenario: str, limit: int = 3) -> list[dict[str, Any]]:
    """The rules and the case of this scenario that share most terms with *query*; score = shared terms / all, case x 0.95."""
    terms = {t for t in re.split(r"[\s，。、；：]+", query) if len(t) > 1}
    rules = [
        ("rule", r["id"], r["name"], f"{r['name']}{r['content']}{r['complaint']}", Decimal(1))
        for r in words("compensation_rules")["rule"]
    ]
    case = words("orders")["scenario"][scenario]["case"]
    sources = [*rules, ("case", scenario, case.split("：")[0], case, Decimal("0.95"))]
    scored = [(round(float(sum(t in s[3] for t in terms) / Decimal(len(terms) or 1) * s[4]), 3), s) for s in sources]
    best = sorted((x for x in scored if x[0] > 0), key=lambda x: (-x[0], x[1][1]))[:limit]
    return [
        {"index": i, "source_type": s[0], "source_id": s[1], "title": s[2], "score": score}
        for i, (score, s) in enumerate(best, 1)
    ]


def messages_for(order: Order, line: Mapping[str, Any], decision: Decision, cited: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The prompt: the decision is authoritative, amounts and promises are forbidden, JSON only."""
    t = words("compensation_prompt")

    def flat(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)

    facts = {k: v for k, v in asdict(order).items() if k != "stamps"}
    user = t["user"].format(
        order=flat(facts), timeline=flat(line), complaint=decision.complaint, decision=flat(_decided(decision)), cases=flat(cited)
    )
    return [{"role": "system", "content": t["system"].format(phrases="、".join(t["phrases"]))}, {"role": "user", "content": user}]


def _decided(d: Decision) -> dict[str, Any]:
    matched = [{k: d.rule[k] for k in ("id", "name", "content", "complaint", "priority")}] if d.rule else []
    return {
        "complaint_type": d.complaint, "overtime_minutes": d.minutes, "damage_level": d.damage, "matched_rules": matched,
        "should_compensate": d.amount > 0, "suggested_amount": d.amount, "suggested_method": d.method, "confidence": d.confidence,
        "approval_required": d.approval_required, "approval_reason": d.approval_reason, "decided_by": "rule_engine", "policy_source": "rule_base",
    }  # fmt: skip


async def run_workflow(
    order_id: str, *, complaint: str | None = "OVERTIME", damage: str | None = None, explain: Explainer | None = None, model: str = "builtin",
    order: Order | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC), clock: Callable[[], float] = time.perf_counter,
) -> WorkflowRun:  # fmt: skip
    """Run the seven steps for one order. *explain* gets chat messages and returns text, None or raises; without it the built-in explains.

    A model that fails leaves the rule's amount as it is and the run DEGRADED. Raises DataError for an unknown order.
    """
    steps: list[Step] = []

    def record(
        kind: str,
        name: str,
        started: float,
        given: Any,
        output: Any,
        tool: str | None = None,
        error: str | None = None,
        ok: bool = True,
    ) -> None:
        took = (clock() - started) * 1000
        steps.append(
            Step(len(steps) + 1, kind, name, tool, "SUCCESS" if ok and not error else "FAILED", given, output, took, error)
        )

    at = clock()
    order = order or find_order(order_id)
    record(
        "tool_call",
        "查询订单",
        at,
        {"order_id": order_id},
        {"scenario": order.scenario, "synthetic": order.synthetic},
        "order_query",
    )
    at = clock()
    line = timeline(order)
    record("analysis", "时间线分析", at, {"order_id": order_id}, line)
    at = clock()
    decision = decide(complaint, line["overtime_minutes"], order.amount, damage)
    record(
        "tool_call",
        "赔付规则",
        at,
        {"complaint_type": decision.complaint, "damage_level": decision.damage},
        _decided(decision),
        "compensation_rule",
    )
    at = clock()
    cited = citations(f"{decision.complaint} {decision.rule['name'] if decision.rule else ''} 超时", order.scenario)
    record(
        "retrieval",
        "检索依据",
        at,
        {"scenario": order.scenario},
        {"total_found": len(cited), "source_ids": [c["source_id"] for c in cited]},
    )
    at = clock()
    messages, error, text = messages_for(order, line, decision, cited), None, None
    try:
        text = builtin_explanation(order, decision, line) if explain is None else await explain(messages)
    except Exception as problem:  # whatever a model or its transport raises, the rule's decision stands
        error = f"{type(problem).__name__}: the model gave no explanation"
    text = text if text and text.strip() else None
    error = error or (None if text else "the model returned no text")
    sizes = {"prompt_chars": sum(len(m["content"]) for m in messages), "response_chars": len(text or "")}
    record("llm_call", "生成说明", at, {"model": model}, {"model": model, **sizes}, error=error)
    at = clock()
    guard = check(text or "", decision.amount, evidence=evidence_of(decision, order))
    proposed = [
        str(m.value) if m.value is not None else m.text
        for m in guard.conflict.mentions
        if m.kind not in ("order_value", "cap", "approval_line")
    ]
    verdict = {
        "passed": guard.passed, "amount_within_policy": guard.amount_within_policy, "language_acceptable": not guard.promises.forbidden,
        "model_proposed_amounts": proposed, "model_amount_conflicts_with_policy": guard.conflict.conflict, "checked_amount": str(decision.amount),
    }  # fmt: skip
    record("guardrail", "护栏检查", at, {"checked_amount": str(decision.amount)}, verdict, ok=guard.passed)
    at = clock()
    output = format_output(order, line, decision, text, cited, guard, now())
    record("format", "结果整理", at, {}, {"field_count": len(output)})
    return WorkflowRun(output, tuple(steps), "DEGRADED" if output["degraded"] else "SUCCESS", guard)


def format_output(
    order: Order,
    line: Mapping[str, Any],
    d: Decision,
    text: str | None,
    cited: list[dict[str, Any]],
    guard: GuardrailResult,
    now: datetime,
) -> dict[str, Any]:
    """The 21 keys. Reasons for approval come in a fixed order; text that is away and text that cannot be read are never both a reason."""
    body, escalate = parse_justification(text)
    found = {
        d.approval_reason or "rule_engine_requires_approval": d.approval_required, "guardrail_failed": not guard.passed,
        "model_output_unavailable": text is None, "model_output_unparseable": text is not None and body is None,
        "model_confidence_below_high": body is not None and str(body["confidence"]).upper() != "HIGH",
        "model_requested_escalation": escalate, "incomplete_order_timeline": not line["timeline_complete"],
    }  # fmt: skip
    reasons = [name for name, true in found.items() if true]
    decided = _decided(d)
    return {
        "order_id": order.order_id, "complaint_type": d.complaint, "analysis_type": "compensation_suggestion", "timeline": dict(line),
        "should_compensate": d.amount > 0, "suggested_amount": d.amount, "suggested_method": d.method, "matched_rules": decided["matched_rules"],
        "policy_source": decided["policy_source"], "amount_decided_by": "rule_engine", "model_justification": body, "model_raw_output": text,
        "model_output_available": text is not None, "model_output_parsed": body is not None, "citations": cited,
        "guardrail_passed": guard.passed, "approval_required": bool(reasons), "approval_reasons": reasons, "advisory_only": True,
        "generated_at": now.astimezone(UTC).isoformat(), "degraded": text is None,
    }  # fmt: skip
