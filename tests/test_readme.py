"""What the README says of the demo is what the demo gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import workbench as wb
from workbench import scoring
from workbench.cli import _parser

README = " ".join((Path(__file__).parent.parent / "README.md").read_text("utf-8").replace("*", "").split())


@pytest.fixture(scope="module")
def table():
    pair = wb.DoubleConfirmation(l1=wb.judge("cue"), l2=wb.judge("ngram"))
    outcomes = wb.sync(wb.run(pair, wb.load_corpus(), progress=False)).outcomes
    return scoring.score(outcomes), scoring.summary(outcomes)


def row(scores, name, exposure=""):
    wanted = (scores.name == name) & (scores.value_of_group == exposure) & (scores.group == ("exposure" if exposure else "all"))
    return scores[wanted].iloc[0]


def test_the_counts_are_those_of_the_run(table):
    s = table[1]

    for said in (
        f"On {s['dialogues']} dialogues in 92 families, {s['gold_critical']} of them critical",
        f"L1 alone calls {s['l1_false_criticals']} of {s['scored'] - s['gold_critical']} non-critical dialogues critical",
        f"Double confirmation confirms {s['false_confirmations']} of {s['scored'] - s['gold_critical']}",
        f"of {s['gold_critical']} criticals it confirms {s['confirmed_critical']} and misses {s['missed_criticals']}",
        f"L1 alone misses {s['l1_missed_criticals']}",
    ):
        assert said in README


def test_the_rates_are_those_of_the_run(table):
    missed = row(table[0], "missed criticals")
    assert (
        f"({missed.value:.0%}, 95 % interval {missed.low:.0%} to {missed.high:.0%})".replace("%", " %").replace("95  %", "95 %")
        in README
    )
    wrong = row(table[0], "false confirmations")
    assert f"(95 % interval {100 * wrong.low:.2g} % to {100 * wrong.high:.1f} %," in README
    for exposure in ("", "held_out"):
        sens, spec = (row(table[0], f"{m} >= high or", exposure) for m in ("sensitivity", "specificity"))
        for e in (sens, spec):
            assert f"{e.value:.2f} ({e.low:.2f} to {e.high:.2f})" in README


def test_every_command_of_the_readme_exists():
    commands = set(
        re.findall(r"(?:^|[`&] ?)workbench ([a-z]+)", (Path(__file__).parent.parent / "README.md").read_text("utf-8"), re.M)
    )
    known = next(a for a in _parser()._actions if a.choices and "run" in a.choices).choices

    assert commands <= set(known)
    assert len(commands) >= 10


def test_every_linked_file_is_there():
    root = Path(__file__).parent.parent
    for page in ("README.md", "README.zh-CN.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (root / page).read_text("utf-8")):
            assert (root / target).exists(), target
