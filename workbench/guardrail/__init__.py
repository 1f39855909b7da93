"""The advisory guardrail: a rule engine owns the number, a model may only explain it. It reports; it never changes an amount."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from workbench.folding import words
from workbench.guardrail.amounts import AmountCheck, Evidence, Mention, check_amounts
from workbench.guardrail.numerals import money
from workbench.guardrail.promises import Hit, PromiseCheck, check_promises

__all__ = [
    "AmountCheck",
    "Evidence",
    "GuardrailResult",
    "Hit",
    "Mention",
    "PromiseCheck",
    "check",
    "check_amounts",
    "check_promises",
]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """Three independent results, each with its evidence; ``passed`` only when all three are good."""

    amount: Decimal | None
    limit: Decimal
    amount_within_policy: bool
    promises: PromiseCheck
    conflict: AmountCheck

    @property
    def passed(self) -> bool:
        return self.amount_within_policy and not self.promises.forbidden and not self.conflict.conflict


def check(
    text: str, authoritative: object, *, structured_json: str | None = None, evidence: Evidence = (), max_amount: object = None
) -> GuardrailResult:
    """Check a decided amount and the text that explains it: within [0, *max_amount*] (default 50.00), no promise, no other amount."""
    amount = money(authoritative)
    limit = money(max_amount if max_amount is not None else words("compensation_rules")["max_amount"])
    if limit is None:
        raise ValueError(f"max_amount must be a number of yuan, not {max_amount!r}")
    within = amount is not None and 0 <= amount <= limit
    prose = text if structured_json is None else f"{text}\n\n{structured_json}"
    return GuardrailResult(
        amount,
        limit,
        within,
        check_promises(prose),
        check_amounts(text, authoritative, structured_json=structured_json, evidence=evidence),
    )
