"""Check one row of guardrail.jsonl: amount conflict and promise wording."""

from __future__ import annotations

from typing import Any

from workbench.guardrail import check_amounts, check_promises


def check(row: dict[str, Any]) -> str | None:
    """None when the row gives what it expects or one of ``also_ok``, else what it gave instead."""
    structured = row.get("structured_json")
    amounts = check_amounts(row["text"], row["authoritative"], structured_json=structured, evidence=row.get("evidence") or ())
    promises = check_promises(row["text"])
    got = {"conflict": amounts.conflict, "forbidden": promises.forbidden}
    accepted = [row["expect"], *row.get("also_ok", ())]
    if got in accepted:
        return None
    seen = "; ".join(f"{m.text!r} {m.status}: {m.reason}" for m in amounts.mentions)
    return f"expected {' or '.join(map(str, accepted))}, got {got} ({seen or 'no mention'}; {', '.join(h.text for h in promises.hits) or 'no promise'})"
