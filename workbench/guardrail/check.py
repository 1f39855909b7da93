"""The guardrail's three independent results, joined only in the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from workbench.folding import words
from workbench.guardrail.amounts import AmountCheck, Evidence, check_amounts
from workbench.guardrail.numerals import money
from workbench.guardrail.promises import PromiseCheck, check_promises


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """Three independent results, each with its evidence; ``passed`` only when all three are good. *limit* and *amount* are in yuan."""

    amount: Decimal | None
    limit: Decimal
    promises: PromiseCheck
    conflict: AmountCheck

    @property
    def amount_within_policy(self) -> bool:
        """The decided amount is a number in the closed range [0, limit]."""
        return self.amount is not None and 0 <= self.amount <= self.limit

    @property
    def passed(self) -> bool:
        return self.amount_within_policy and not self.promises.forbidden and not self.conflict.conflict

    def __str__(self) -> str:
        lines = [f"amount {self.amount} {'within' if self.amount_within_policy else 'NOT within'} [0, {self.limit}]"]
        lines += [f"promise: {h.text!r} [{h.start}:{h.end}] ({h.pattern})" for h in self.promises.hits] or ["no promise"]
        lines += [f"{m.kind}: {m.text!r} [{m.start}:{m.end}] {m.status}: {m.reason}" for m in self.conflict.mentions] or [
            "no amount named"
        ]
        return "\n".join([f"guardrail {'passed' if self.passed else 'FAILED'}", *lines])


def check(
    text: str, authoritative: object, *, structured_json: str | None = None, evidence: Evidence = (), max_amount: object = None
) -> GuardrailResult:  # fmt: skip
    """Check a decided amount and the text that explains it: within [0, *max_amount*] (default 50.00), no promise, no other amount."""
    limit = money(words("compensation_rules")["max_amount"] if max_amount is None else max_amount)
    if limit is None:
        raise ValueError(f"max_amount must be a number of yuan, not {max_amount!r}")
    conflict = check_amounts(text, authoritative, structured_json=structured_json, evidence=evidence)
    return GuardrailResult(
        money(authoritative), limit, check_promises("\n\n".join(filter(None, (text, structured_json)))), conflict
    )
