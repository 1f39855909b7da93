"""Check one row of judge_output.jsonl: parse the answer and compare with ``expect`` or any ``also_ok``."""

from __future__ import annotations

from typing import Any

from workbench.parsing import parse_assessment
from workbench.schema import Assessment


def _raw(row: dict[str, Any]) -> Any:
    if "raw_parts" in row:
        return "".join(text * times for text, times in row["raw_parts"])
    return row.get("raw")


def _mismatch(expect: dict[str, Any], got: Assessment) -> str | None:
    outcome = "ok" if got.known else "reject"
    if expect.get("outcome", outcome) != outcome:
        return f"outcome {expect['outcome']}"
    seen: dict[str, Any] = {
        "risk_level": str(got.level), "confidence": got.confidence, "flags": got.flags, "evidence": got.evidence,
        "may_confirm": got.may_confirm, "action": got.action, "reason": got.reason,
    }  # fmt: skip
    for key, value in expect.items():
        if key == "dims":
            wrong = [name for name, number in value.items() if abs(got.dimensions.get(name, -1) - number) > 1e-9]
            if wrong:
                return f"dims {wrong[0]}={value[wrong[0]]}"
        elif key in seen and seen[key] != value:
            return f"{key}={value}"
    return None


def check(row: dict[str, Any]) -> str | None:
    """None when the row matches its expectation or an alternative, else a short 'expected … got …'."""
    got = parse_assessment(
        _raw(row), finish_reason=row.get("finish_reason"), message=row.get("message"), choices=row.get("choices"),
        analysed_text=row.get("analysed_text"),
    )  # fmt: skip
    if not row["expect"].get("may_confirm", False) and got.may_confirm:
        return "expected may_confirm=False got a passing half of the gate"
    if got.evidence.encode("utf-8", "strict") and "\x00" in got.evidence:
        return "expected evidence without NUL"
    wrong = [_mismatch(expect, got) for expect in (row["expect"], *row.get("also_ok", ()))]
    if None in wrong:
        return None
    return (
        f"expected {wrong[0]} got {got.level} confidence={got.confidence} reason={got.reason} action={got.action} ({got.detail})"
    )
