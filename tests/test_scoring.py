"""Scores count what they say they count: checked against a table worked out by hand."""

from __future__ import annotations

import asyncio

import pytest

from tests.scripted import Scripted, dialogue, verdict
from workbench import scoring
from workbench.confirm import DoubleConfirmation
from workbench.errors import JudgeError
from workbench.runner import run

# gold, L1 says, L2 says (None: the judge fails)
CASES = [
    ("critical", "critical", "critical"), ("critical", "critical", "low"), ("critical", "low", "critical"), ("critical", "high", None),
    ("low", "critical", "critical"), ("low", "critical", "low"), ("low", "low", "low"), ("low", None, "high"),
    ("high", "high", "medium"), ("medium", "medium", "medium"),
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    def say(side):
        def answer(request):
            level = CASES[int(request.prompt.view.text.split()[-1])][side]
            return JudgeError("timeout") if level is None else verdict(level, 0.9)

        return answer

    dialogues = [
        dialogue(
            f"case {i}",
            id=f"d{i}",
            family=f"f{i}",
            gold={"risk_level": gold},
            lang="zh" if i % 2 else "en",
            phenomenon=f"p{i % 3}",
        )
        for i, (gold, _, _) in enumerate(CASES)
    ]
    pipeline = DoubleConfirmation(Scripted("one", say(1)), Scripted("two", say(2)))
    return asyncio.run(run(pipeline, dialogues, out=tmp_path_factory.mktemp("run"), progress=False)).outcomes


def estimate(rows, name):
    return next(e for e in scoring.estimates(rows) if e.name == name)


@pytest.mark.parametrize(
    ("name", "k", "n", "unknown"),
    [
        ("sensitivity critical L1", 2, 4, 0), ("specificity critical L1", 3, 5, 1), ("sensitivity critical L2", 2, 3, 1),
        ("specificity critical L2", 5, 6, 0), ("sensitivity critical and", 1, 4, 0), ("specificity critical and", 5, 6, 0),
        ("sensitivity critical or", 3, 3, 1), ("specificity critical or", 3, 5, 1),
        ("sensitivity critical confirmed", 1, 4, 0), ("specificity critical confirmed", 5, 6, 0),
        ("sensitivity >= high L1", 4, 5, 0), ("specificity >= high or", 2, 5, 0), ("sensitivity >= high and", 1, 4, 1),
        ("missed criticals", 3, 4, 0), ("false confirmations", 1, 6, 0), ("confirmable recall", 1, 3, 0), ("unknown L1", 1, 10, 0), ("unknown L2", 1, 10, 0),
    ],
)  # fmt: skip
def test_each_rate_by_hand(outcomes, name, k, n, unknown):
    e = estimate(scoring.scorable(outcomes), name)

    assert (e.n, e.n_unknown, e.value) == (n, unknown, pytest.approx(k / n))
    assert e.low <= e.value <= e.high


def test_an_unknown_is_bounded_beside_the_point(outcomes):
    e = estimate(scoring.scorable(outcomes), "sensitivity critical L2, unknown bounded")

    assert (e.value, e.n, e.n_unknown) == (pytest.approx(2 / 4), 4, 1)
    assert "0.50 (unknown = no) and 0.75 (unknown = yes)" in e.reason


def test_the_summary_counts_rows(outcomes):
    assert scoring.summary(outcomes) == {
        "dialogues": 10, "scored": 10, "gold_critical": 4, "confirmed": 2, "confirmed_critical": 1, "missed_criticals": 3, "false_confirmations": 1,
        "l1_false_criticals": 2, "l1_missed_criticals": 2, "unknown_l1": 1, "unknown_l2": 1, "for_review": 6,
    }  # fmt: skip


def test_confusion_keeps_the_whole_scale(outcomes):
    table = scoring.confusion(scoring.scorable(outcomes), "l2_level")

    assert list(table.columns) == ["low", "medium", "high", "critical", "unknown"]
    assert list(table.loc["critical"]) == [1, 0, 0, 2, 1]
    assert table.to_numpy().sum() == 10


def test_blocked_counts_each_condition_and_what_blocked_alone(outcomes):
    table = scoring.blocked(outcomes).set_index("condition")

    assert table.loc["l2_critical", "blocked_critical"] == 2
    assert table.loc["l2_critical", "blocked_critical_alone"] == 1
    assert table.loc["l1_no_flags", "blocked"] == 1
    assert table.loc["same_text", "blocked"] == 0


def test_groups_are_scored_on_their_own(outcomes):
    table = scoring.score(outcomes)
    zh = table[(table.group == "lang") & (table.value_of_group == "zh") & (table.name == "missed criticals")].iloc[0]

    assert zh.n == 2
    assert set(table.group) == {"all", "lang", "phenomenon", "length", "exposure"}


def test_in_sample_rows_and_rows_without_gold_are_left_out(outcomes):
    changed = outcomes.copy()
    changed.loc[0, "exposure"] = "in_sample"
    changed.loc[1, "gold_level"] = None

    assert len(scoring.scorable(changed)) == 8


@pytest.mark.parametrize("keep", [0, 1])
def test_nothing_to_score_is_said_not_thrown(outcomes, keep):
    part = outcomes.iloc[:keep]

    assert scoring.summary(part)["scored"] == keep
    assert all(e.value is None or 0 <= e.value <= 1 for e in scoring.estimates(scoring.scorable(part)))
    scoring.score(part)
    scoring.blocked(part)
