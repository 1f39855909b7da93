"""Try a text against the guardrail: every span in colour and in words, the three results, the reasons for approval."""

from __future__ import annotations

import json
from typing import Final

import ipywidgets as w

from workbench.display import card, table_html
from workbench.guardrail import Evidence, GuardrailResult, check
from workbench.guardrail.compensation import run_workflow
from workbench.text import inert_html
from workbench.widgets.base import Panel, background

_STYLE: Final = {
    "equal": "background:#eef7f1;border-bottom:2px solid #1f5c3a", "evidence": "background:#f2f6fa;border-bottom:2px solid #1d4f80",
    "promise": "background:#fdf6dc;border-bottom:2px dotted #8a6d00",
}  # fmt: skip
_BAD: Final = "background:#fbeaec;border-bottom:2px dashed #8f1d2c"


def marked_html(text: str, result: GuardrailResult) -> str:
    """*text* with its mentions and promises marked: a colour, and a label that says the same in words."""
    mentions = [m for m in result.conflict.mentions if m.where == "text"]
    spans: list[tuple[int, int, str, str]] = [
        (m.start, m.end, m.status, f"{m.kind.replace('_', ' ')}: {m.status}") for m in mentions
    ]
    spans += [(h.start, h.end, "promise", "promise") for h in result.promises.hits if h.end <= len(text)]
    out, at = [], 0
    for start, end, status, label in sorted(spans):
        start = max(start, at)  # two rules may speak of the same words
        out.append(inert_html(text[at:start]))
        out.append(f'<mark style="{_STYLE.get(status, _BAD)}">{inert_html(text[start:end])}<sup>[{label}]</sup></mark>')
        at = max(at, end)
    return f"<div class='wb-text'>{''.join(out)}{inert_html(text[at:])}</div>"


def results_html(result: GuardrailResult) -> str:
    """The three results, each with its evidence."""

    def row(name: str, good: bool, evidence: str) -> list[str]:
        word = "<span class='wb-met'>✓ passed</span>" if good else "<span class='wb-unmet'>✗ failed</span>"
        return [name, word, evidence or "nothing found"]

    mentions = "<br>".join(inert_html(f"{m.text!r} ({m.where}): {m.status}, {m.reason}") for m in result.conflict.mentions)
    promises = "<br>".join(inert_html(f"{h.text!r}, rule {h.pattern}") for h in result.promises.hits)
    within = f"{result.amount} in [0, {result.limit}]" if result.amount is not None else "no amount"
    rows = [
        row("amount within the fuse", result.amount_within_policy, inert_html(within)),
        row("no promise", not result.promises.forbidden, promises),
        row("no other amount", not result.conflict.conflict, mentions),
    ]
    return table_html(["result", "", "evidence"], rows)


class GuardrailLab(Panel):
    """Type a text and an amount; see what the guardrail sees. *evidence* names amounts that the text may quote.

    *order_id* fills the reasons for approval from the compensation workflow, with the text as the model's explanation.
    """

    def __init__(self, text: str, authoritative: str, *, evidence: Evidence = (), order_id: str = "DEMO-002") -> None:
        self.evidence, self.order_id = evidence, order_id
        self.text = w.Textarea(text, layout=w.Layout(width="98%", height="90px"), description="text")
        self.amount = w.Text(authoritative, description="decided ¥", layout=w.Layout(width="220px"))
        self.view = w.HTML()
        for control in (self.text, self.amount):
            control.observe(lambda _: self.draw(), "value")
        self.build([self.text, self.amount, self.view])
        self.draw()

    @property
    def result(self) -> GuardrailResult:
        return check(self.text.value, self.amount.value, evidence=self.evidence)

    def summary(self) -> str:
        return "passed" if self.result.passed else "failed"

    def still(self) -> str:
        return str(self.view.value)

    def approval_reasons(self) -> list[str]:
        """Why the workflow would ask a person, were this text the model's reason."""
        fixed = {"customer_message": "…", "risk_warnings": [], "escalate": False, "confidence": "HIGH"}
        body = json.dumps({"reason": self.text.value or "…"} | fixed, ensure_ascii=False)

        async def explain(messages: list[dict[str, str]]) -> str:
            return body

        run = background().start(run_workflow(self.order_id, explain=explain)).result(timeout=10)
        return list(run.output["approval_reasons"])

    def draw(self) -> None:
        """Show the text as it is now."""
        with self.guard():
            result = self.result
            reasons = "; ".join(self.approval_reasons()) or "none"
            self.view.value = card(
                marked_html(self.text.value, result), results_html(result),
                f"<p>Reasons for approval of order {inert_html(self.order_id)}: {inert_html(reasons)}</p>",
            )  # fmt: skip
