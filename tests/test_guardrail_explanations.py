"""Explanations: what contradicts the outcome is replaced by the text the workbench writes itself, and the reason is listed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutations import agreed, decided, rated
from workbench.guardrail.explanations import check_explanation, explain_outcome
from workbench.schema import FLAGS, RiskLevel

LEVELS = [level.value for level in RiskLevel]
SPLIT = decided(rated("L1", "critical", 0.92), rated("L2", "low", 0.61))
JOKE = decided(rated("L1", "critical", 0.9, ("joke",)), rated("L2", "high", 0.7))
MISSING = decided(rated("L1", None), rated("L2", "high", 0.7))

sides = st.builds(
    lambda level, confidence, flags: (level, confidence, tuple(flags)), st.sampled_from([*LEVELS, None]), st.floats(0, 1) | st.floats(0.849, 0.851), st.sets(st.sampled_from(FLAGS))
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    sides,
    sides,
    st.sampled_from(["zh", "en"]),
    st.lists(
        st.sampled_from(
            [
                "third_party_urgent",
                "unknown",
                "disagreement",
                "flags_with_high_risk",
                "blocking_defect",
                "strong_gate_hit_under_low_l1",
            ]
        ),
        unique=True,
    ),
)
def test_the_text_the_workbench_writes_itself_passes_its_own_check(one, two, lang, reasons):
    outcome = decided(rated("L1", *one), rated("L2", *two))
    reasons = [r for r in reasons if r != "unknown" or outcome.incomplete]  # as the pipeline has it
    outcome = outcome.model_copy(update={"review_reasons": tuple(reasons)})
    check = check_explanation(explain_outcome(outcome, lang=lang), outcome)

    assert check.ok, (check.shown, check.reasons)


@settings(max_examples=200, deadline=None)
@given(sides, sides, sides, sides, st.sampled_from(["zh", "en"]))
def test_the_text_of_another_outcome_fails(one, two, other_one, other_two, lang):
    outcome, other = decided(rated("L1", *one), rated("L2", *two)), decided(rated("L1", *other_one), rated("L2", *other_two))
    text = explain_outcome(other, lang=lang)

    invented = any(
        other.l1.flags.get(f) and not outcome.l1.flags.get(f) for f in FLAGS
    )  # to leave a flag out contradicts nothing
    if outcome.level != other.level or outcome.confirmed != other.confirmed or invented:
        assert not check_explanation(text, outcome).ok


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Both judges agree: critical, confidence 0.92 and 0.96. Confirmed.", agreed("critical", 0.92)), ("L1 said critical (0.92); L2 said low (0.61).", SPLIT), ("L1 判为危急，置信度 92%；L2 判为低风险，置信度六成一。", SPLIT),
        ("It is not low, it is critical.", agreed("critical")), ("并非低风险，而是危急。", agreed("critical")), ("The level is at least high.", agreed("critical")), ("等级不低于中等。", agreed("high")), ("It is below critical.", agreed("high")),
        ("The threshold is 0.85, and confidence was 0.7.", agreed("high", 0.7)), ("Confidence was low.", agreed("high", 0.6)), ("置信度较高。", agreed("low", 0.9)), ("Level 3 of four: the second highest.", agreed("high")), ("Not only high but critical.", agreed("critical")),
        ("L1 raised the joke flag; its raw level critical was capped to medium.", JOKE), ("One judge is unknown; the level shown is high.", MISSING), ("L1 未知，L2 评为高风险。", MISSING), ("No flags. Five of the six conditions hold.", decided(rated("L1", "critical", 0.9), rated("L2", "critical", 0.8))),
        ("The tool contacts nobody; a person decides.", agreed("low")), ("High confidence, but a low level.", agreed("low", 0.9)), ("Serious: the level is critical.", agreed("critical")), ("六项条件全部满足，已双重确认。", agreed("critical")),
        ("The confidence of L2 rounds to 0.9.", decided(rated("L1", "high", 0.7), rated("L2", "high", 0.87))),
    ],
)  # fmt: skip
def test_a_faithful_explanation_is_shown_as_it_is(text, outcome):
    check = check_explanation(text, outcome)

    assert (check.ok, check.reasons, check.shown) == (True, (), text)


@pytest.mark.parametrize(
    ("text", "outcome", "about"),
    [
        ("Both judges agree: low.", agreed("critical"), "level"), ("问题不大。", agreed("critical"), "level"), ("等级一。风险很低，属于第一级。", agreed("high"), "level"), ("It is not critical.", agreed("critical"), "level"), ("L1 said low; L2 said critical.", SPLIT, "level"),
        ("L2 判为危急。", SPLIT, "level"), ("The level is below high.", agreed("high"), "level"), ("at most medium", agreed("high"), "level"), ("Nothing to worry about.", agreed("critical"), "level"), ("级别未知", agreed("critical"), "level"),
        ("Ｔｈｅ　ｌｅｖｅｌ　ｉｓ　ｌｏｗ", agreed("critical"), "level"), ("The level is l\u200bo\u200bw", agreed("critical"), "level"), ("The level is <b>lo</b>w", agreed("critical"), "level"), ("級別為輕微", agreed("critical"), "level"), ("The level is \\u006cow", agreed("critical"), "level"),
        ("confidence 0.90", decided(rated("L1", "high", 0.94), rated("L2", "high", 0.94)), "confidence"), ("置信度六成五", agreed("high", 0.55), "confidence"),
        ("confidence 0.99", agreed("critical"), "confidence"), ("90% confident", agreed("high", 0.6), "confidence"), ("九成把握", agreed("high", 0.6), "confidence"), ("置信度百分之二十", agreed("high", 0.6), "confidence"), ("nine out of ten confidence", agreed("high", 0.6), "confidence"),
        ("L1 confidence is 0.61.", SPLIT, "confidence"), ("confidence 0.9", decided(rated("L1", "high", 0.846), rated("L2", "high", 0.8)), "confidence"), ("置信度 0.85", decided(rated("L1", "high", 0.846), rated("L2", "high", 0.8)), "confidence"),
        ("High confidence.", agreed("high", 0.6), "confidence"), ("Confidence is above the threshold.", agreed("high", 0.6), "confidence"), ("not very confident", agreed("high", 0.9), "confidence"), ("zero point nine nine confidence", agreed("high", 0.6), "confidence"),
        ("Confirmed.", SPLIT, "confirmed"), ("未确认。", agreed("critical"), "confirmed"), ("已双重确认", agreed("high"), "confirmed"), ("Confirmation was blocked.", agreed("critical"), "confirmed"), ("six of six conditions hold", SPLIT, "conditions"), ("六项条件中满足了两项", agreed("critical"), "conditions"),
        ("It was a joke.", agreed("critical"), "flags"), ("No flag was raised.", JOKE, "flags"), ("这不是玩笑。", JOKE, "flags"), ("The text quotes lyrics.", agreed("critical"), "flags"), ("属于虚构小说。", agreed("high"), "flags"), ("关于他人的情况。", agreed("high"), "flags"),
        ("You will be fine.", agreed("critical"), "promises"), ("一定会好的。", agreed("low"), "promises"), ("We guarantee a refund.", agreed("low"), "promises"), ("We have alerted the family.", agreed("critical"), "promises"),
        ("Call 988.", agreed("critical"), "a number"), ("拨打 400-161-9995", agreed("critical"), "a number"), ("", agreed("low"), "there is no text"), ("\u200b ", agreed("low"), "there is no text"),
    ],
)  # fmt: skip
def test_a_contradiction_is_replaced_and_its_reason_listed(text, outcome, about):
    check = check_explanation(text, outcome, region="zh-CN")

    assert not check.ok
    assert any(reason.startswith(about) for reason in check.reasons), check.reasons
    assert check.shown in (explain_outcome(outcome, lang="zh"), explain_outcome(outcome, lang="en"))


def test_one_reason_never_hides_another():
    check = check_explanation(
        "Low. Confirmed. Confidence 0.2. It was a joke. You will be fine. Call 988.", agreed("critical", 0.7)
    )

    assert {r.split(":")[0] for r in check.reasons} == {
        "level",
        "confirmed",
        "confidence",
        "flags",
        "promises",
        "a number that is not in the resource table",
    }


def test_the_number_of_the_region_is_allowed_there_only():
    outcome = agreed("critical")

    assert check_explanation("Level critical. Call 988.", outcome, region="en-US").ok
    assert check_explanation("级别危急，可拨打12356。", outcome, region="zh-CN").ok
    assert not check_explanation("级别危急，可拨打12356。", outcome).ok


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises(text):
    check_explanation(text, SPLIT, region="zh-CN")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["The level is low.", "未确认。", "L1 confidence 0.2.", "It was a joke."]),
    st.text(alphabet="critical confirmed 危急不是已确认。. \n", max_size=40),
)
def test_a_further_sentence_never_turns_a_contradiction_into_a_pass(text, more):
    assert not check_explanation(f"{text}\n{more}", agreed("critical")).ok
