"""Six conditions and two guards; blindness by construction; no failure confirms."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripted import Scripted, dialogue, verdict
from workbench import prompts
from workbench.confirm import (
    COMBINATIONS,
    CONDITION_NAMES,
    Arm,
    DoubleConfirmation,
    combined,
    conditions,
    displayed_level,
    flipped,
    l1_view,
    l2_view,
    review_reasons,
    trend_from,
)  # fmt: skip
from workbench.corpus import load_corpus
from workbench.errors import SetupError
from workbench.schema import BLOCKING_DEFECTS, FLAGS, UNKNOWN, Assessment, RiskLevel, Trend, unknown

CLEAR = dict.fromkeys(FLAGS, False)
LEVELS = list(RiskLevel)


def said(level="critical", confidence=0.9, flags=(), defects=(), tier="L1", text_hash="t", **more) -> Assessment:
    raw = RiskLevel(level)
    capped = min(raw, RiskLevel.MEDIUM) if flags else raw
    return Assessment(
        tier=tier, level=capped, raw_level=raw, confidence=confidence, flags=CLEAR | dict.fromkeys(flags, True), defects=defects,
        text_hash=text_hash, **more,
    )  # fmt: skip


ASSESSMENTS = st.one_of(
    st.builds(
        said, st.sampled_from([x.value for x in LEVELS]), st.sampled_from([0.0, 0.5, 0.8499999, 0.85, 0.9, 1.0]),
        st.lists(st.sampled_from(FLAGS), max_size=2, unique=True).map(tuple),
        st.lists(st.sampled_from(sorted(BLOCKING_DEFECTS) + ["extra_keys"]), max_size=2).map(tuple), text_hash=st.sampled_from(["t", "t", "t", "u"]),
    ),
    st.sampled_from(["timeout", "parse_error", "budget", "refused", "not_run"]).map(lambda r: unknown(r, text_hash="t")),
)  # fmt: skip


@given(ASSESSMENTS, ASSESSMENTS)
def test_and_confirms_exactly_when_all_conditions_and_guards_pass(l1, l2):
    listed = conditions(l1, l2)

    assert tuple(c.name for c in listed) == CONDITION_NAMES
    assert combined("and", l1, l2) is all(c.passed for c in listed)


@given(ASSESSMENTS, ASSESSMENTS)
def test_confirmed_means_both_halves_may_confirm(l1, l2):
    if combined("and", l1, l2):
        assert l1.may_confirm
        assert l2.may_confirm


@pytest.mark.parametrize("rule", COMBINATIONS)
@given(a=ASSESSMENTS, b=ASSESSMENTS, c=ASSESSMENTS)
def test_replacing_any_side_by_a_failure_never_confirms(rule, a, b, c):
    for reason in ("timeout", "parse_error", "not_run"):
        failed = unknown(reason, text_hash="t")
        assert not combined(rule, failed, b, c)
        assert not combined(rule, a, failed, c)
        assert combined(rule, a, b, failed) <= combined(rule, a, b, c) or rule == "arbitration"
        if rule == "arbitration" and combined(rule, a, b, failed):
            assert a.may_confirm
            assert b.may_confirm


@pytest.mark.parametrize(
    ("l1", "l2", "blocked"),
    [
        (said(), said(), set()),
        (said(confidence=0.85), said(confidence=0.85), set()),
        (said(confidence=0.84999), said(), {"l1_confidence"}),
        (said(), said("high"), {"l2_critical"}),
        (said(flags=("joke",)), said(), {"l1_no_flags"}),
        (said(), said(flags=("quote",), tier="L2"), {"l2_no_flags"}),
        (said(defects=("wrapped",)), said(), {"no_blocking_defect"}),
        (said(defects=("extra_keys",)), said(), set()),
        (said(text_hash="u"), said(), {"same_text"}),
        (said(text_hash=""), said(text_hash=""), {"same_text"}),
        (said(), unknown("timeout", text_hash="t"), {"l2_critical", "l2_confidence", "l2_no_flags", "no_blocking_defect"}),
    ],
)
def test_what_blocks_is_named(l1, l2, blocked):
    assert {c.name for c in conditions(l1, l2) if not c.passed} == blocked
    assert combined("and", l1, l2) is (not blocked)


def test_the_displayed_level_is_the_higher_and_never_better_than_the_known_side():
    for a, b in itertools.product(LEVELS, LEVELS):
        assert displayed_level(said(a.value), said(b.value)) is max(a, b)
    assert displayed_level(said("high"), unknown("timeout")) is RiskLevel.HIGH
    assert displayed_level(unknown("timeout"), unknown("timeout")) is UNKNOWN


@pytest.mark.parametrize(
    ("rule", "l1", "l2", "third", "confirms"),
    [
        ("or", said(), said("low"), None, True), ("or", said("high"), said("high"), None, False),
        ("mean_score", said(confidence=0.8), said(confidence=0.9), None, True), ("mean_score", said(confidence=0.8), said(confidence=0.89), None, False),
        ("mean_score", said(confidence=1.0), said("high", confidence=1.0), None, False), ("mean_score", said(), said(flags=("joke",)), None, False),
        ("arbitration", said(), said("low"), said(tier="arbiter"), True), ("arbitration", said(), said("low"), said("low"), False),
        ("arbitration", said(), said("low"), None, False), ("arbitration", said(), said(), None, True),
        ("arbitration", said(), said("low"), said(text_hash="u"), False),
    ],
)  # fmt: skip
def test_each_combination(rule, l1, l2, third, confirms):
    assert combined(rule, l1, l2, third) is confirms


def assess(pipeline, d, **kw):
    return asyncio.run(pipeline.assess(d, **kw))


def test_blind_prompt_bytes_do_not_depend_on_l1():
    d = dialogue(
        "I am fine",
        [("user", "bad week"), ("assistant", "tell me")],
        trend={"negative_days_7d": 5, "consecutive_negative_days": 2},
    )
    hashes = set()
    for i in range(1000):
        level, canary = LEVELS[i % 4].value, f"CANARY-{i}"
        l1 = Scripted(
            "one",
            lambda _, level=level, canary=canary, i=i: (
                verdict(level, (i % 101) / 100, canary, joke=i % 3 == 0) if i % 7 else canary
            ),
        )
        l2 = Scripted("two", lambda _: verdict())
        assess(DoubleConfirmation(l1, l2), d)
        hashes.add(l2.seen[0].prompt.sha256)
        assert "CANARY" not in json.dumps(l2.seen[0].prompt.messages)

    assert len(hashes) == 1


def test_an_anchor_enters_only_through_an_arm():
    l1, l2 = Scripted("one", lambda _: verdict("high", 0.77, "CANARY")), Scripted("two", lambda _: verdict())
    pipeline = DoubleConfirmation(l1, l2)
    told = {}
    for kind in prompts.ANCHOR_KINDS:
        assess(pipeline, dialogue(), arm=Arm(kind, anchor=kind))
        told[kind] = l2.seen[-1].prompt.messages[1]["content"]

    assert "high" in told["told_l1"]
    assert "0.77" in told["label_confidence"]
    assert "CANARY" in told["label_rationale"]
    assert "critical" in told["told_critical"]
    assert not any(x in told["neutral"] for x in ("high", "0.77", "CANARY"))


def test_l1_sees_the_text_only():
    d = dialogue(
        "the text", [("user", "EARLIER"), ("assistant", "ANSWER")], trend={"negative_days_7d": 5, "consecutive_negative_days": 2}
    )

    assert l1_view(d).model_dump(exclude_defaults=True) == {"text": "the text"}


@pytest.mark.parametrize(
    ("context", "seen"),
    [
        ("none", ()),
        ("user", (("user", "a"), ("user", "c"))),
        ("both", (("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))),
    ],
)
def test_context_is_a_switch(context, seen):
    d = dialogue("e", [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")])

    assert l2_view(d, context=context).context == seen
    assert l2_view(d, context="both", messages=1).context == (("assistant", "d"),)


def test_the_trend_from_l1_counts_each_earlier_turn_as_a_day():
    days = [said("low"), said("medium"), unknown("timeout"), said("high"), said("critical")]

    assert trend_from(days) == Trend(negative_days_7d=3, consecutive_negative_days=2)
    assert trend_from([said("high")] * 9) == Trend(negative_days_7d=7, consecutive_negative_days=7)
    assert trend_from([]) == Trend(negative_days_7d=0, consecutive_negative_days=0)


def test_from_l1_asks_l1_about_earlier_turns_and_none_shows_no_trend():
    d = dialogue(
        "now",
        [("user", "one"), ("assistant", "a"), ("user", "two"), ("assistant", "b")],
        trend={"negative_days_7d": 7, "consecutive_negative_days": 7},
    )
    l1, l2 = Scripted("one", lambda _: verdict("medium")), Scripted("two", lambda _: verdict())

    assess(DoubleConfirmation(l1, l2, trend="from_l1"), d)
    assert [r.prompt.view.text for r in l1.seen] == ["now", "one", "two"]
    assert l2.seen[0].prompt.view.trend == Trend(negative_days_7d=2, consecutive_negative_days=2)
    assess(DoubleConfirmation(l1, l2, trend="none"), d)
    assert l2.seen[1].prompt.view.trend is None


def test_a_flipped_trend_stays_a_trend():
    for n in range(8):
        for run in range(n + 1):
            assert flipped(Trend(negative_days_7d=n, consecutive_negative_days=run)).negative_days_7d == 7 - n


@pytest.mark.parametrize(
    ("policy", "level", "text", "days", "runs"),
    [
        ("always", "low", "fine", 0, True), ("source", "medium", "fine", 7, False), ("source", "high", "fine", 0, True), ("source", "critical", "fine", 0, True),
        ("gate_or_trend", "low", "fine", 3, False), ("gate_or_trend", "low", "fine", 4, True), ("gate_or_trend", "low", "I want to die", 0, True),
        ("gate_or_trend", "high", "fine", 0, True),
    ],
)  # fmt: skip
def test_when_l2_runs(policy, level, text, days, runs):
    l1, l2 = Scripted("one", lambda _: verdict(level)), Scripted("two", lambda _: verdict())
    o = assess(
        DoubleConfirmation(l1, l2, l2_policy=policy),
        dialogue(text, trend={"negative_days_7d": days, "consecutive_negative_days": 0}),
    )

    assert bool(l2.seen) is runs
    assert (o.l2.reason == "not_run") is not runs
    assert not (o.confirmed and not runs)
    assert o.incomplete is False


def test_an_unknown_l1_under_the_source_policy_is_not_escalated_and_is_incomplete():
    l1, l2 = Scripted("one", lambda _: "no json"), Scripted("two", lambda _: verdict())
    o = assess(DoubleConfirmation(l1, l2, l2_policy="source"), dialogue())

    assert (o.l1.reason, o.level, o.confirmed, o.incomplete, o.review_reasons) == (
        "parse_error",
        UNKNOWN,
        False,
        True,
        ("unknown",),
    )


def test_a_whole_case_confirms_and_keeps_l1_when_l2_disagrees():
    critical, low = Scripted("one", lambda _: verdict()), Scripted("two", lambda _: verdict("low"))

    assert assess(DoubleConfirmation(critical, critical), dialogue()).confirmed
    o = assess(DoubleConfirmation(critical, low), dialogue())
    assert (o.confirmed, o.level, o.review_reasons) == (False, RiskLevel.CRITICAL, ("disagreement",))


def test_the_arbiter_is_called_on_disagreement_only_and_sees_what_l2_sees():
    critical, low, third = (
        Scripted("a", lambda _: verdict()),
        Scripted("b", lambda _: verdict("low")),
        Scripted("c", lambda _: verdict()),
    )

    agree = DoubleConfirmation(critical, critical, arbiter=third, combine="arbitration")
    assert assess(agree, dialogue()).confirmed
    assert not third.seen
    differ = DoubleConfirmation(critical, low, arbiter=third, combine="arbitration")
    assert assess(differ, dialogue()).confirmed
    assert third.seen[0].prompt.sha256 == low.seen[0].prompt.sha256


@pytest.mark.parametrize(
    ("l1", "l2", "reasons"),
    [
        (said("low"), said("low"), ()),
        (said("low"), said("medium"), ()),
        (said("high"), said("medium"), ("disagreement",)),
        (said("critical", flags=("third_party",)), said("medium"), ("third_party_urgent", "flags_with_high_risk")),
        (said("medium", flags=("joke",), dimensions={"hopelessness": 0.9}), said("medium"), ("flags_with_high_risk",)),
        (said("low", defects=("echo_present",)), said("low"), ("blocking_defect",)),
        (said("low"), unknown("timeout"), ("unknown",)),
        (said("low"), unknown("not_run"), ()),
    ],
)
def test_why_a_person_should_look(l1, l2, reasons):
    assert review_reasons(dialogue("nothing special"), l1, l2) == reasons


def test_a_strong_gate_hit_under_a_low_l1_is_a_reason():
    text = "I'm going to kill myself tonight, goodbye"

    assert review_reasons(dialogue(text), said("low"), said("low")) == ("strong_gate_hit_under_low_l1",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"l2_policy": "maybe"},
        {"combine": "xor"},
        {"context": "all"},
        {"trend": "future"},
        {"combine": "arbitration"},
        {"confirm_confidence": 0},
    ],
)
def test_settings_that_do_not_exist_are_refused(wrong):
    judge = Scripted("one", lambda _: verdict())
    with pytest.raises(SetupError):
        DoubleConfirmation(judge, judge, **wrong)


def test_one_model_at_both_stages_is_reported_as_shared_blindness():
    one, two = Scripted("one", lambda _: ""), Scripted("two", lambda _: "")

    assert DoubleConfirmation(one, one).describe()["shared_blindness"] is True
    assert DoubleConfirmation(one, two).describe()["shared_blindness"] is False


def test_the_offline_pair_runs_on_a_shipped_dialogue():
    import workbench as wb

    o = wb.DoubleConfirmation(l1=wb.judge("cue"), l2=wb.judge("ngram")).assess_sync(load_corpus()[0])

    assert o.l1.known
    assert o.l2.known
    assert o.l1.text_hash == o.l2.text_hash
