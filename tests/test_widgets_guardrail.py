"""The guardrail lab: spans in colour and in words, three results, inert text, reasons from the workflow."""

from __future__ import annotations

import html5lib
import pytest

from workbench.guardrail import check
from workbench.widgets.guardrail import GuardrailLab, marked_html, results_html

EVIDENCE = {"order_value": "64.00", "cap": "50.00", "approval_line": "10.00"}


def text_of(html: str) -> str:
    return "".join(html5lib.parse(html, namespaceHTMLElements=False).itertext())


def test_every_span_is_labelled_in_words_and_in_its_own_colour():
    text = "订单金额64元，赔付20元，另送10元，一定赔付"
    html = marked_html(text, check(text, "20", evidence=EVIDENCE))

    assert (
        text_of(html)
        == "订单金额64元[order value: evidence]，赔付20元[payout: equal]，另送10元[other: different]，一定赔付[promise]"
    )
    assert len({m.split('"')[1] for m in html.split("<mark ")[1:]}) == 4


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)>赔付50元", "赔付<b>50</b>元\x1b[31m", "保证到账50元", "\u202e赔付50元"]
)
def test_marking_keeps_the_text_and_makes_it_inert(text):
    html = marked_html(text, check(text, "20"))

    assert "<img" not in html and "<b>" not in html and "\x1b" not in html and "\u202e" not in html
    assert "50" in text_of(html)


def test_the_three_results_carry_their_evidence():
    html = text_of(results_html(check("一定赔偿50元", "64")))

    assert html.count("✗ failed") == 3 and "64 in [0, 50.00]" in html and "一定赔偿" in html and "50元" in html


def test_the_panel_follows_text_and_amount():
    lab = GuardrailLab("赔付20元", "20.00", evidence=EVIDENCE)
    first = lab.view.value

    assert repr(lab) == "GuardrailLab(passed)"
    lab.text.value = "赔付50元"
    assert repr(lab) == "GuardrailLab(failed)" and lab.view.value != first and "guardrail_failed" in lab.view.value
    lab.amount.value = "50"
    assert repr(lab) == "GuardrailLab(passed)"
    assert lab.still() == lab.view.value and lab.message.value == ""


@pytest.mark.parametrize("amount", ["", "abc", "NaN", "-1"])
def test_an_amount_that_is_no_number_fails_and_raises_nothing(amount):
    lab = GuardrailLab("没有金额", amount)

    assert repr(lab) == "GuardrailLab(failed)" and lab.message.value == ""


def test_an_unknown_order_is_said_in_the_panel():
    lab = GuardrailLab("赔付20元", "20", order_id="NOPE")

    assert "there is no order" in lab.message.value
