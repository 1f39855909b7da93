"""Compare every amount a text or a JSON object names, as an exact decimal, with the decided one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from workbench.folding import fold
from workbench.guardrail.fields import fields_in_text, json_leaves
from workbench.guardrail.numerals import Found, Kind, money
from workbench.guardrail.reader import read

Status = Literal["equal", "evidence", "different", "cannot compare"]
Evidence = Mapping[str, object] | Iterable[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Mention:
    """One amount named. ``text`` is what stands at [start:end) of the checked text, or the value at the JSON path ``where``.

    ``value`` is in yuan, None where the mention has no one value; ``reason`` says why it was judged so.
    """

    text: str
    start: int
    end: int
    kind: Kind
    value: Decimal | None
    status: Status
    reason: str
    where: str = "text"

    @property
    def conflicts(self) -> bool:
        return self.status in ("different", "cannot compare")


@dataclass(frozen=True, slots=True)
class AmountCheck:
    """``conflict`` is true when any mention conflicts: a good mention excuses nothing."""

    conflict: bool
    mentions: tuple[Mention, ...]


class _Decision:
    """The decided amount and the amounts of the decision that may be quoted by name."""

    def __init__(self, authoritative: object, evidence: Evidence) -> None:
        self.amount = money(authoritative)
        self.named: dict[str, list[Decimal | None]] = {}
        for name, amount in evidence.items() if isinstance(evidence, Mapping) else evidence:
            self.named.setdefault(name, []).append(money(amount))

    def judge(self, found: Found) -> tuple[Status, str]:
        """One mention against the decision."""
        if found.fault or found.value is None:
            return "cannot compare", found.fault or "not a number"
        known = self.named.get(found.kind, [])
        if found.value in known:
            return "evidence", f"the decision's {found.kind.replace('_', ' ')}"
        if known and found.named and found.kind != "cap":
            return "different", f"not the decision's {found.kind.replace('_', ' ')}"
        if self.amount is None:
            return "cannot compare", "there is no authoritative amount"
        return (
            ("equal", "the authoritative amount")
            if found.value == self.amount
            else ("different", f"the decision is {self.amount}")
        )


def check_amounts(
    text: str, authoritative: object, *, structured_json: str | None = None, evidence: Evidence = ()
) -> AmountCheck:
    """Does *text* or *structured_json* name an amount other than *authoritative* (yuan; None: there is none)?

    *evidence* names amounts of the decision (``order_value``, ``cap``, ``approval_line``) that may be quoted as what they are.
    Whatever names an amount and cannot be compared conflicts. Any text is accepted; time is linear in its length.
    """
    decision = _Decision(authoritative, evidence)
    mentions = list(_in_text(text, decision))
    if structured_json is not None:
        leaves, rest = json_leaves(structured_json)
        for leaf in leaves:
            if leaf.kind is None:
                mentions.extend(_in_text(leaf.text, decision, leaf.path))
            else:
                status, reason = decision.judge(Found(0, 0, leaf.kind, leaf.value, named=True))
                mentions.append(Mention(leaf.text, 0, len(leaf.text), leaf.kind, leaf.value, status, reason, leaf.path))
        mentions.extend(_in_text(rest, decision, "json"))
    return AmountCheck(any(m.conflicts for m in mentions), tuple(mentions))


def _in_text(text: str, decision: _Decision, where: str = "text") -> Iterator[Mention]:
    folded = fold(text)
    prose = read(folded.text)
    starts = {f.start for f in prose}
    fields = fields_in_text(folded.text, lambda s, e: text[slice(*folded.span(s, e))])
    both = [*prose, *(f for f in fields if f.end not in starts)]
    for found in sorted(both, key=lambda f: f.start):
        start, end = folded.span(found.start, found.end)
        status, reason = decision.judge(found)
        yield Mention(text[start:end], start, end, found.kind, found.value, status, reason, where)
    if folded.hidden:
        yield from _in_text(folded.hidden, decision, f"{where} (in a tag)")
