"""The mutation corpus: contradictions made by rule are caught, faithful texts pass, and no flipped severity escapes."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations import EVIDENCE, contradictions, faithful, faithful_claims, flipped_severity, other_contradictions
from workbench.guardrail import check_amounts
from workbench.guardrail.explanations import check_explanation

# Set WORKBENCH_MUTATION_SEED in CI to vary the corpus; a failure prints its shortest examples.
SEED = int(os.environ.get("WORKBENCH_MUTATION_SEED", "20261130"))


def conflict(case):
    return check_amounts(case.text, case.amount, structured_json=case.structured, evidence=EVIDENCE).conflict


def wrong(claim):
    return not check_explanation(claim.text, claim.outcome, region="zh-CN").ok


def shortest(cases, n=5):
    return [f"{c.kind or 'faithful'}: {c.text!r}" for c in sorted(cases, key=lambda c: len(c.text))[:n]]


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_contradictions_of_an_amount_are_caught(seed):
    cases = list(contradictions(seed))
    escaped = [c for c in cases if not conflict(c)]
    per_kind = Counter(c.kind for c in cases)

    assert len(cases) >= 500 and len(per_kind) >= 10 and min(per_kind.values()) >= 30
    assert len(escaped) <= 0.01 * len(cases), shortest(escaped)
    assert max(Counter(c.kind for c in escaped).values(), default=0) <= 2, shortest(escaped)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_faithful_amounts_pass(seed):
    cases = list(faithful(seed))
    alarms = [c for c in cases if conflict(c)]

    assert len(cases) >= 500
    assert len(alarms) <= 0.01 * len(cases), shortest(alarms)


def test_no_flipped_severity_escapes():
    claims = list(flipped_severity())
    escaped = [c for c in claims if not wrong(c)]

    assert len(claims) >= 1000
    assert escaped == [], shortest(escaped)


def test_contradictions_of_an_outcome_are_caught():
    claims = list(other_contradictions(SEED))
    escaped = [c for c in claims if not wrong(c)]

    assert len({c.kind for c in claims}) >= 5
    assert len(escaped) <= 0.01 * len(claims), shortest(escaped)


def test_faithful_explanations_pass():
    claims = list(faithful_claims(SEED))
    alarms = [c for c in claims if wrong(c)]

    assert len(claims) >= 500
    assert len(alarms) <= 0.01 * len(claims), shortest(alarms)


def test_the_corpus_can_fail():
    # a checker that sees nothing would let all of these through
    assert all(c.text or c.structured for c in contradictions(SEED, 2))
    assert {c.kind for c in contradictions(SEED, 1)} >= {"digits", "ranges", "negated_repeats", "json_escapes", "fields"}


def test_the_notebooks_sample_is_labelled_right():
    rows = [json.loads(line) for line in (Path("data") / "guardrail_samples.jsonl").read_text("utf-8").splitlines()]

    assert len(rows) >= 100 and len({r["kind"] for r in rows}) >= 10
    for row in rows:
        got = check_amounts(
            row["text"], row["authoritative"], structured_json=row.get("structured_json"), evidence=row["evidence"]
        ).conflict
        assert got is row["conflict"], row
