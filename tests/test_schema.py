"""The scale is ordered as it is spoken, and unknown is outside it."""

from __future__ import annotations

import operator

import pytest
from pydantic import ValidationError

from workbench.schema import UNKNOWN, Assessment, Dialogue, Gold, RiskLevel, Trend

LEVELS = list(RiskLevel)
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_every_pair_orders_like_its_position(a, b, op):
    assert op(LEVELS[a], LEVELS[b]) is op(a, b)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("other", [UNKNOWN, "high", "critical", 2, None])
def test_ordering_against_anything_else_raises(level, other, op):
    with pytest.raises(TypeError):
        op(level, other)
    with pytest.raises(TypeError):
        op(other, level)


@pytest.mark.parametrize("op", OPERATORS)
def test_unknown_does_not_order_against_itself_or_text(op):
    for other in (UNKNOWN, "low"):
        with pytest.raises(TypeError):
            op(UNKNOWN, other)


def test_sorting_and_extremes_follow_the_scale():
    mixed = [RiskLevel.CRITICAL, RiskLevel.LOW, RiskLevel.HIGH, RiskLevel.MEDIUM]

    assert sorted(mixed) == LEVELS
    assert min(mixed) is RiskLevel.LOW
    assert max(mixed) is RiskLevel.CRITICAL


def test_a_level_prints_as_its_word():
    assert f"{RiskLevel.HIGH:>6}|{RiskLevel.LOW}|{UNKNOWN}" == "  high|low|unknown"


@pytest.mark.parametrize(
    ("level", "confidence", "score"),
    [
        ("low", 1.0, 0.0),
        ("low", 0.0, 0.25),
        ("medium", 0.9, 0.375),
        ("high", 0.1, 0.625),
        ("critical", 0.85, 0.9625),
        ("critical", 1.0, 1.0),
    ],
)
def test_score_is_the_stated_convention(level, confidence, score):
    got = Assessment(level=RiskLevel(level), raw_level=RiskLevel(level), confidence=confidence).score

    assert got == pytest.approx(score)


def test_an_unknown_has_no_score_and_no_half_of_the_gate():
    nothing = Assessment()

    assert (nothing.score, nothing.may_confirm, nothing.known) == (None, False, False)


def test_minimal_gold_is_completed():
    gold = Gold.model_validate({"risk_level": "critical", "flags": []})

    assert (gold.confirm, gold.acceptable_levels) == (True, (RiskLevel.CRITICAL,))
    assert Gold.model_validate({"risk_level": "medium", "flags": ["joke"]}).confirm is False


def test_a_dialogue_must_end_with_the_user():
    with pytest.raises(ValidationError, match="last turn"):
        Dialogue.model_validate({"id": "x", "turns": [{"role": "assistant", "content": "hello"}]})


def test_a_trend_cannot_have_more_days_in_a_row_than_days():
    with pytest.raises(ValidationError, match="consecutive"):
        Trend(negative_days_7d=2, consecutive_negative_days=3)
