"""The compensation workflow: the rule owns the amount whatever the model says, and every doubt ends at a person."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import DataError
from workbench.folding import words
from workbench.guardrail import check, compensation_json, guard_text
from workbench.guardrail.compensation import (
    STAMPS,
    Order,
    citations,
    decide,
    find_order,
    parse_justification,
    run_workflow,
    timeline,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEYS = {
    "order_id", "complaint_type", "analysis_type", "timeline", "should_compensate", "suggested_amount", "suggested_method", "matched_rules", "policy_source", "amount_decided_by", "model_justification", "model_raw_output",
    "model_output_available", "model_output_parsed", "citations", "guardrail_passed", "approval_required", "approval_reasons", "advisory_only", "generated_at", "degraded",
}  # fmt: skip
ORDERS = [order for row in words("orders")["scenario"].values() for order in row["orders"]]


def reply(reason: str = "按规则处理。", **changes: object) -> str:
    body = {
        "reason": reason,
        "customer_message": "已提交人工审核。",
        "risk_warnings": [],
        "escalate": False,
        "confidence": "HIGH",
    }
    return json.dumps({k: v for k, v in (body | changes).items() if v is not ...}, ensure_ascii=False)


def workflow(order_id: str, model: object = None, **options: object):
    """Run with a stub model: a text, None, an exception, or no stub (the built-in explainer)."""
    seen: list[list[dict[str, str]]] = []

    async def explain(messages):
        seen.append(messages)
        if isinstance(model, Exception):
            raise model
        return model

    stub = None if model is ... else explain
    run = asyncio.run(run_workflow(order_id, explain=stub, now=lambda: NOW, **options))
    return run, (seen[0] if seen else None)


def test_intent_1_severe_overtime():
    out = workflow("TEST003", reply())[0].output

    assert (out["timeline"]["overtime_minutes"], out["matched_rules"][0]["id"], out["suggested_amount"]) == (
        35,
        "COMP-001",
        Decimal("20.00"),
    )
    assert (out["should_compensate"], out["amount_decided_by"], out["approval_required"]) == (True, "rule_engine", True)


def test_intent_2_quoting_the_cap_the_order_value_and_the_line_as_such_passes():
    out = workflow("TEST003", reply("订单金额64.00元的50%超过20元封顶，故赔付20元，已达10元审批线，未超单笔上限50元。"))[0].output

    assert (out["suggested_amount"], out["guardrail_passed"]) == (Decimal("20.00"), True)


def test_intent_3_moderate_overtime_needs_nobody():
    out = workflow("TEST004", reply("赔付5元。"))[0].output

    assert (out["timeline"]["overtime_minutes"], out["matched_rules"][0]["id"], out["suggested_amount"]) == (
        18,
        "COMP-002",
        Decimal("5.00"),
    )
    assert (out["guardrail_passed"], out["approval_required"], out["approval_reasons"]) == (True, False, [])


def test_intent_4_an_order_on_time_gets_nothing():
    out = workflow("TEST005", reply())[0].output

    assert (out["timeline"]["overtime_minutes"], out["should_compensate"], out["suggested_amount"]) == (0, False, 0)
    assert out["matched_rules"][0]["id"] == "COMP-006"


@pytest.mark.parametrize(
    "contradiction",
    [
        {"suggested_amount": 999},
        {"suggested_amount": "5.00"},
        {"reason": "建议赔付九百九十九元"},
        {"customer_message": "一定赔偿您"},
        {"reason": "赔付20元"},
    ],
)
def test_intent_5_a_contradicting_model_changes_nothing_but_fails_the_guardrail(contradiction):
    run, _ = workflow("TEST004", reply(**contradiction))

    assert run.output["suggested_amount"] == Decimal("5.00")
    assert (run.output["guardrail_passed"], run.output["approval_required"]) == (False, True)
    assert run.output["approval_reasons"] == ["guardrail_failed"]
    assert [s.status for s in run.steps if s.type == "guardrail"] == ["FAILED"]
    assert run.status == "SUCCESS"


def test_intent_6_the_prompt_marks_the_decision_as_authoritative_and_forbids_changes_and_promises():
    _, (system, user) = workflow("TEST003", reply())

    assert "权威" in user["content"] and "不得修改" in system["content"] and "suggested_amount" in system["content"]
    assert all(p in system["content"] for p in ("保证赔偿", "一定赔偿", "一定赔付", "必须全额退款", "我们承诺"))
    assert "TEST003" in user["content"] and "S002" in user["content"]


def test_intent_7_an_escalation_counts_even_in_an_incomplete_answer():
    out = workflow("TEST004", json.dumps({"escalate": True}))[0].output

    assert out["approval_reasons"] == ["model_output_unparseable", "model_requested_escalation"]


@pytest.mark.parametrize("away", [TimeoutError("model down, key sk-secret"), None, "", " \u3000\n"])
def test_intent_8_without_a_model_the_payout_stays_and_the_run_is_degraded(away):
    run, _ = workflow("TEST003", away)
    out = run.output

    assert (run.status, out["degraded"], out["suggested_amount"], out["model_output_available"]) == (
        "DEGRADED",
        True,
        Decimal("20.00"),
        False,
    )
    assert "model_output_unavailable" in out["approval_reasons"]
    assert not {"model_output_unparseable", "guardrail_failed"} & set(out["approval_reasons"])
    (step,) = [s for s in run.steps if s.type == "llm_call"]
    assert step.status == "FAILED" and step.error and "secret" not in step.error


@pytest.mark.parametrize(
    ("damage", "amount", "passed"),
    [
        (None, "0.00", True),
        ("PARTIAL", "20.00", True),
        ("partial", "20.00", True),
        ("FULL", "64.00", False),
        ("odd", "0.00", True),
    ],
)
def test_intent_9_damage_by_level(damage, amount, passed):
    out = workflow("TEST003", reply(), complaint="DAMAGED", damage=damage)[0].output

    assert (out["matched_rules"][0]["id"], out["suggested_amount"], out["approval_required"]) == (
        "COMP-004",
        Decimal(amount),
        True,
    )
    assert out["guardrail_passed"] is passed  # 64.00 is above the fuse of 50.00, reported and not changed
    assert (out["suggested_method"] == "需人工判断") is (amount == "0.00")


@pytest.mark.parametrize("complaint", ["MISSING_ITEM", "NONSENSE", "  ?? "])
def test_intent_10_a_complaint_without_a_rule_goes_to_a_person_with_nothing(complaint):
    out = workflow("TEST003", reply(), complaint=complaint)[0].output

    assert (out["suggested_amount"], out["suggested_method"], out["matched_rules"]) == (0, "需人工判断", [])
    assert out["approval_reasons"] == ["没有适用的赔付规则，需人工判断"]


@pytest.mark.parametrize("order_id", ["", " ", "demo-002", "DEMO-999", "DEMO-002 "])
def test_an_unknown_order_is_rejected(order_id):
    with pytest.raises(DataError, match="choose one of DEMO-001"):
        workflow(order_id, reply())


# The formatter.


def test_the_output_has_the_21_keys_and_is_always_advisory():
    for order_id in ORDERS:
        for model in (..., reply(), "no json", None):
            out = workflow(order_id, model)[0].output
            assert set(out) == KEYS and len(out) == 21
            assert (
                out["advisory_only"] is True and out["amount_decided_by"] == "rule_engine" and out["policy_source"] == "rule_base"
            )
            assert out["approval_required"] == bool(out["approval_reasons"])
            assert out["generated_at"] == "2026-11-30T12:00:00+00:00"


@pytest.mark.parametrize(
    "text",
    [
        '{"approval_required": false, "risk_level": "low"}',
        "没有 JSON",
        "[1, 2]",
        reply(confidence="SURE"),
        reply(escalate="no"),
        reply(risk_warnings="none"),
        reply(reason=" "),
        reply(customer_message=...),
    ],
)
def test_an_answer_off_the_contract_cannot_suppress_approval(text):
    out = workflow("TEST004", text)[0].output

    assert (out["model_output_parsed"], out["model_justification"], out["approval_reasons"]) == (
        False,
        None,
        ["model_output_unparseable"],
    )


@pytest.mark.parametrize(
    "text", [reply(), f"```json\n{reply()}\n```", f"好的：{reply()} 以上。", reply(confidence="high"), reply(note="extra")]
)
def test_a_complete_confident_answer_needs_nobody(text):
    out = workflow("TEST004", text)[0].output

    assert (out["model_output_parsed"], out["approval_required"]) == (True, False)


def test_the_reasons_come_in_their_order():
    order = replace(find_order("TEST003"), stamps={**find_order("TEST003").stamps, "dispatched": None})
    out = workflow("TEST003", reply("赔付99元", confidence="LOW", escalate=True), order=order)[0].output

    assert out["approval_reasons"] == [
        "严重超时，需人工核实超时责任；赔付金额达到 10.00 元审批线", "guardrail_failed", "model_confidence_below_high", "model_requested_escalation", "incomplete_order_timeline",
    ]  # fmt: skip


def test_the_reason_is_the_reason_of_the_rule_that_fired():
    severe = decide("OVERTIME", 40, Decimal("12.00"))
    damaged = decide("DAMAGED", 0, Decimal("12.00"), "PARTIAL")

    assert "超时" in severe["approval_reason"] and "证据" not in severe["approval_reason"]
    assert "证据" in damaged["approval_reason"] and "超时" not in damaged["approval_reason"]


# Steps.


def test_seven_steps_are_recorded_in_order_with_durations():
    ticks = count()
    run = asyncio.run(run_workflow("DEMO-001", clock=lambda: float(next(ticks)), now=lambda: NOW))

    assert [s.type for s in run.steps] == ["tool_call", "analysis", "tool_call", "retrieval", "llm_call", "guardrail", "format"]
    assert [s.order for s in run.steps] == list(range(1, 8))
    assert [s.tool for s in run.steps if s.type == "tool_call"] == ["order_query", "compensation_rule"]
    assert all(s.duration_ms > 0 and s.status == "SUCCESS" and s.error is None for s in run.steps)
    assert run.steps[-1].output == {"field_count": 21}


def test_the_guardrail_step_tells_what_the_model_named_apart_from_whether_it_conflicts():
    (step,) = [s for s in workflow("TEST003", reply("订单金额64元，赔付20元"))[0].steps if s.type == "guardrail"]

    assert step.output == {
        "passed": True, "amount_within_policy": True, "language_acceptable": True, "model_proposed_amounts": ["20元"], "model_amount_conflicts_with_policy": False, "checked_amount": Decimal("20.00"),
    }  # fmt: skip


# The rule table.


@pytest.mark.parametrize(
    ("minutes", "rule", "amount"),
    [(-5, "COMP-006", "0.00"), (0, "COMP-006", "0.00"), (1, "COMP-003", "1.00"), (15, "COMP-003", "1.00"), (16, "COMP-002", "5.00"), (30, "COMP-002", "5.00"), (31, "COMP-001", "20.00"), (500, "COMP-001", "20.00")],
)  # fmt: skip
def test_overtime_tiers(minutes, rule, amount):
    decision = decide("overtime", minutes, Decimal("64.00"))

    assert (decision["matched_rules"][0]["id"], decision["suggested_amount"]) == (rule, Decimal(amount))


@pytest.mark.parametrize(
    ("order", "amount"),
    [
        ("35.50", "17.75"),
        ("0.01", "0.01"),
        ("0.03", "0.02"),
        ("39.99", "20.00"),
        ("40.01", "20.00"),
        ("-3", "0.00"),
        ("0", "0.00"),
    ],
)
def test_a_share_is_rounded_half_up_before_the_cap(order, amount):
    assert decide("OVERTIME", 31, Decimal(order))["suggested_amount"] == Decimal(amount)


@pytest.mark.parametrize(("order", "needed"), [("19.98", False), ("20.00", True)])
def test_the_approval_line_is_inclusive(order, needed):
    reason = decide("OVERTIME", 31, Decimal(order))["approval_reason"]

    assert ("10.00 元审批线" in reason) is needed


def test_other_complaints():
    wrong = decide("WRONG_ORDER", 0, Decimal("64"))
    missing = decide(None, 20, Decimal("64"))

    assert (wrong["suggested_amount"], wrong["suggested_method"], wrong["confidence"], wrong["approval_required"]) == (
        5,
        "补送并发放优惠券",
        "MEDIUM",
        False,
    )
    assert missing["complaint_type"] == "OVERTIME"


@given(
    st.sampled_from(["OVERTIME", "DAMAGED", "WRONG_ORDER", "X"]),
    st.integers(-100, 1000),
    st.decimals(-10, 10_000, places=2),
    st.sampled_from([None, "FULL", "PARTIAL"]),
)
def test_the_same_order_and_policy_always_give_the_same_amount(complaint, minutes, amount, damage):
    decision = decide(complaint, minutes, amount, damage)

    assert decision == decide(complaint, minutes, amount, damage)
    assert decision["suggested_amount"] >= 0 and decision["suggested_amount"].as_tuple().exponent == -2
    assert decision["approval_required"] or decision["suggested_amount"] < 10


# Timeline and fixtures.


def test_timeline_of_a_slow_shop():
    line = timeline(find_order("TEST001"))

    assert len(line) == 10
    assert [line[f"{leg}_minutes"] for leg in ("dispatch_wait", "to_shop", "merchant_prep", "on_road")] == [3, 7, 28, 20]
    assert (line["actual_minutes"], line["overtime_minutes"], line["dominant_leg_label"], line["timeline_complete"]) == (
        58,
        18,
        "商家出餐慢",
        True,
    )


@pytest.mark.parametrize(
    ("order_id", "label"),
    [
        ("TEST001", "商家出餐慢"),
        ("TEST002", "运力不足"),
        ("DEMO-003", "路途耗时长"),
        ("DEMO-006", "路途耗时长"),
        ("TEST003", "商家出餐慢"),
        ("TEST005", "无异常"),
    ],
)
def test_the_longest_leg_is_named_when_late(order_id, label):
    assert timeline(find_order(order_id))["dominant_leg_label"] == label


def stamped(**minutes: float | None) -> Order:
    at = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
    times = dict(zip(STAMPS, (0, 10, 20, 30, 40, 15), strict=True)) | minutes
    return Order(
        "X", "ON_TIME", Decimal(10), stamps={k: None if v is None else at + timedelta(minutes=v) for k, v in times.items()}
    )


def test_equal_legs_are_ranked_and_the_ride_to_the_shop_can_be_longest():
    assert timeline(stamped())["dominant_leg"] == "merchant_prep"
    assert timeline(stamped(at_shop=29, picked_up=30, delivered=31))["dominant_leg"] == "to_shop"
    assert timeline(stamped(dispatched=15, at_shop=20, picked_up=25, delivered=40))["dominant_leg"] == "dispatch_wait"


def test_minutes_are_whole_and_never_negative():
    line = timeline(stamped(dispatched=-3, at_shop=5.99))

    assert (line["dispatch_wait_minutes"], line["to_shop_minutes"]) == (0, 8)


@pytest.mark.parametrize("missing", STAMPS)
def test_a_missing_stamp_gives_zero_and_an_incomplete_timeline(missing):
    line = timeline(stamped(**{missing: None}))

    assert line["timeline_complete"] is False
    assert all(v >= 0 for k, v in line.items() if k.endswith("_minutes"))
    assert line["overtime_minutes"] == (0 if missing in ("created", "delivered", "promised") else 25)


def test_no_order_gives_an_empty_timeline():
    line = timeline(None)

    assert len(line) == 10 and line["overtime_minutes"] == 0 and line["dominant_leg"] == "none" and not line["timeline_complete"]


def test_fixtures():
    table = words("orders")["scenario"]
    late = {name: timeline(find_order(row["orders"][0]))["overtime_minutes"] for name, row in table.items()}

    assert late == {
        "MERCHANT_SLOW": 18,
        "CAPACITY_SHORT": 18,
        "WEATHER_DELAY": 25,
        "RIDER_DETOUR": 14,
        "SEVERE_MERCHANT_SLOW": 35,
        "ON_TIME": 0,
    }
    assert all(find_order(o).synthetic and find_order(o) == find_order(o) for o in ORDERS)
    assert len(set(ORDERS)) == len(ORDERS) == 11


# Retrieval and the parser.


def test_citations_score_by_shared_terms():
    found = citations("OVERTIME 严重超时 超时 的", "SEVERE_MERCHANT_SLOW")

    assert [c["index"] for c in found] == [1, 2, 3]
    assert (found[0]["source_id"], found[0]["score"]) == ("COMP-001", 1.0)
    assert all(0 < c["score"] <= 1 for c in found)
    assert citations("暴雨", "WEATHER_DELAY") == [
        {"index": 1, "source_type": "case", "source_id": "WEATHER_DELAY", "title": "暴雨 超时 案例", "score": 0.95}
    ]
    assert citations("暴雨", "ON_TIME") == citations("", "ON_TIME") == []


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"reason": 1}', "{" * 10_000, '{"a": NaN}', "\ud800"])
def test_the_parser_never_raises(text):
    assert parse_justification(text) == (None, False)


# The three results.


@pytest.mark.parametrize(
    ("amount", "within"),
    [("50.00", True), ("50.01", False), ("0", True), ("-1", False), ("5e1", True), ("1e9", False), ("50.000000000000000001", False), (None, False), ("NaN", False), ("Infinity", False), (True, False), (Decimal("49.99"), True)],
)  # fmt: skip
def test_the_amount_is_held_against_the_fuse_exactly(amount, within):
    assert check("", amount).amount_within_policy is within


def test_the_fuse_is_configurable():
    assert check("", "60", max_amount="60").passed
    assert not check("", "60.01", max_amount=60).passed
    with pytest.raises(ValueError, match="number of yuan"):
        check("", "60", max_amount="much")


@pytest.mark.parametrize(
    ("text", "amount", "failing"),
    [("赔付20元。", "20", ""), ("赔付64元。", "64", "a"), ("一定赔偿20元。", "20", "p"), ("赔付50元。", "20", "c"), ("一定赔偿50元。", "64", "apc"), ("一定赔偿64元。", "64", "ap"), ("一定赔偿。赔付50元。", "20", "pc")],
)  # fmt: skip
def test_one_result_never_hides_another(text, amount, failing):
    result = check(text, amount)

    assert (result.amount_within_policy, result.promises.forbidden, result.conflict.conflict) == (
        "a" not in failing,
        "p" in failing,
        "c" in failing,
    )
    assert result.passed is (failing == "")


def test_promises_and_amounts_inside_json_are_seen_with_the_text():
    result = check("已提交。", "20", structured_json='{"suggested_amount": 20, "message": "\\u4e00\\u5b9a\\u8d54\\u507f"}')

    assert result.promises.forbidden and not result.conflict.conflict


# The command line's functions.


def test_demo_002_as_json():
    body = json.loads(compensation_json("DEMO-002"))

    assert (body["status"], body["output"]["suggested_amount"], body["output"]["matched_rules"][0]["id"]) == (
        "SUCCESS",
        20.0,
        "COMP-001",
    )
    assert body["output"]["guardrail_passed"] and len(body["steps"]) == 7


def test_a_judge_explains_through_the_judge_seam(monkeypatch):
    from workbench.judges import registry
    from workbench.judges.base import Reply

    class Stub:
        closed = False

        async def answer(self, request):
            assert request.prompt.messages[0]["role"] == "system"
            return Reply(text=reply("赔付999元"))

        async def aclose(self):
            self.closed = True

    stub = Stub()
    monkeypatch.setattr(registry, "judge", lambda name: stub)
    body = json.loads(compensation_json("TEST004", model="any"))

    assert (body["output"]["suggested_amount"], body["output"]["guardrail_passed"], stub.closed) == (5.0, False, True)


def test_guard_text_lists_the_three_results():
    text, passed = guard_text("一定赔偿您50元\x1b[31m", authoritative="20.00")

    assert not passed and "\x1b" not in text
    assert text.splitlines()[:3] == ["guardrail FAILED", "amount 20.00 within [0, 50.00]", "promise: '一定赔偿' [0:4] (zh)"]
    assert guard_text("赔付20元", authoritative="20.00")[1]
