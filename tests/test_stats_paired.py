"""Paired tests: exact where they say exact, and never a silent p."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.stats.estimate import SignificanceTest
from workbench.stats.paired import (
    adjust,
    anchoring_index,
    bowker,
    cochran_q,
    holm,
    max_t,
    mcnemar,
    sign_flip,
    signed_rank,
    stuart_maxwell,
    tost,
)

small = st.lists(st.integers(-4, 4).map(lambda i: i / 2), min_size=1, max_size=9)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_exact_binomial_test(b, c):
    t = mcnemar(b, c)
    assert t.p == pytest.approx(stats.binomtest(b, b + c).pvalue if b + c else 1.0)
    assert mcnemar(b, c, mid_p=True).p <= t.p
    assert (t.status == "degenerate") == (b + c == 0)


def test_no_discordant_pairs_give_a_bound_and_not_equality():
    assert "upper 95 % bound of their share 0.03" in mcnemar(0, 0, n=100).reason


@given(small)
def test_signed_rank_is_the_enumeration_of_all_signs(d):
    t = signed_rank(d)
    r = stats.rankdata(np.abs(d))[np.array(d) != 0]
    if not len(r):
        assert (t.p, t.status) == (1.0, "degenerate")
        return
    observed = abs(sum(x for x, v in zip(r, [v for v in d if v], strict=True) if v > 0) - r.sum() / 2)
    law = [
        abs(sum(x for x, up in zip(r, ups, strict=True) if up) - r.sum() / 2) for ups in itertools.product((0, 1), repeat=len(r))
    ]
    assert t.p == pytest.approx(np.mean([x >= observed - 1e-9 for x in law]))


def test_signed_rank_without_zeros_or_ties_is_scipys_exact():
    d = np.random.default_rng(0).standard_normal(30) + 0.3
    assert signed_rank(d).p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)


@given(small)
def test_sign_flip_is_the_enumeration_of_all_signs(d):
    t = sign_flip(d)
    law = [abs(np.dot(signs, d)) for signs in itertools.product((-1, 1), repeat=len(d))]
    assert t.p == pytest.approx(np.mean([x >= abs(sum(d)) - 1e-9 for x in law]))


def test_equal_nonzero_differences_have_the_smallest_possible_p_and_not_zero():
    # scipy's ttest_rel gives p = 0.0 with a warning
    assert sign_flip([0.25] * 8).p == 2 / 2**8


def test_families_flip_as_a_whole():
    assert sign_flip([1.0] * 12, cluster=[0] * 6 + [1] * 6).p == 0.5
    assert sign_flip([0.0, 0.0, None]).status == "degenerate"
    assert sign_flip([0.3, None, 0.1]).n_unknown == 1


def test_many_units_use_random_signs_with_the_identity_among_them():
    t = sign_flip(np.full(60, 1.0), n_resamples=200)
    assert t.p == 1 / 200 and "200 sign patterns" in t.method


def test_max_t_is_never_below_the_raw_p_and_adjusts_less_than_holm_when_tests_are_the_same():
    g = np.random.default_rng(1)
    d = g.standard_normal(80) + 0.25
    tests = max_t(np.column_stack([d, d, d]), names=list("abc"), n_resamples=2000)
    assert all(t.p_adjusted >= t.p for t in tests)
    assert tests[0].p_adjusted == pytest.approx(tests[0].p)
    assert holm([t.p for t in tests])[0] > tests[0].p_adjusted


def test_bowker_counts_only_pairs_of_cells_that_hold_something():
    # statsmodels' SquareTable.symmetry counts six
    t = [[20, 4, 1, 0], [6, 15, 5, 1], [1, 7, 12, 6], [0, 1, 3, 18]]
    assert bowker(t).df == 5
    assert bowker(np.diag([3, 4, 5, 6])).status == "degenerate"


def test_stuart_maxwell_agrees_with_statsmodels_and_drops_unused_levels():
    from statsmodels.stats.contingency_tables import SquareTable

    t = np.array([[20, 4, 1], [6, 15, 5], [2, 9, 12]])
    theirs = SquareTable(t, shift_zeros=False).homogeneity(method="stuart_maxwell")
    ours = stuart_maxwell(t)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    padded = np.zeros((4, 4))
    padded[np.ix_([0, 1, 3], [0, 1, 3])] = t
    assert stuart_maxwell(padded).p == pytest.approx(ours.p)
    assert stuart_maxwell(np.diag([1, 2, 3, 4])).status == "undefined"


def test_cochran_q_of_two_judges_is_mcnemars_chi_squared_and_needs_a_difference():
    x = np.array([[1, 0]] * 7 + [[0, 1]] * 2 + [[1, 1]] * 5)
    assert cochran_q(x).statistic == pytest.approx((7 - 2) ** 2 / 9)
    assert cochran_q(np.ones((5, 3))).status == "undefined"
    assert cochran_q([[1, 0, 1], [1, float("nan"), 0], [0, 0, 1]]).n_unknown == 1


def test_adjustment_leaves_missing_tests_out_and_restores_the_order():
    tests = [SignificanceTest("a", p=0.04), SignificanceTest("b", status="undefined", reason="x"), SignificanceTest("c", p=0.01)]
    holmed = adjust(tests)
    assert [t.p_adjusted for t in holmed] == [0.04, None, 0.02]
    assert [t.name for t in adjust(tests, method="bh")] == ["a", "b", "c"]
    assert adjust([]) == []


def test_equivalence_agrees_with_statsmodels_and_needs_variation():
    from statsmodels.stats.weightstats import ttost_paired

    d = np.random.default_rng(2).normal(0.005, 0.02, 50)
    test, e = tost(d, -0.02, 0.02)
    assert test.p == pytest.approx(ttost_paired(d, np.zeros(50), -0.02, 0.02)[0])
    assert e.confidence == pytest.approx(0.9)
    assert tost([0.0] * 30, -0.1, 0.1)[0].status == "undefined"


def test_the_index_is_zero_without_and_one_with_full_adoption():
    g = np.random.default_rng(3)
    blind = g.uniform(0.2, 0.8, 50)
    none, _ = anchoring_index(blind, blind, low_value=0.1, high_value=0.9, n_resamples=20)
    assert none.value == 0 and none.status == "degenerate"
    full, jk = anchoring_index(np.full(50, 0.1), np.full(50, 0.9), low_value=0.1, high_value=0.9, n_resamples=20)
    assert full.value == pytest.approx(1) and jk.value == pytest.approx(1)
    part, _ = anchoring_index([0.1, None, 0.3], [0.5, 0.2, 0.6], low_value=0.0, high_value=1.0, n_resamples=20)
    assert (part.n, part.n_unknown) == (2, 1)


@pytest.mark.parametrize("data", [[], [0.0], [0.3], [None, None], [float("nan")], [1.0, 1.0]])
def test_degenerate_differences_have_a_status_and_no_warning(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in (sign_flip(data), signed_rank(data), tost(data, -1, 1)[0]):
            assert t.status == "ok" or t.reason
            assert t.p is None or 0 <= t.p <= 1
        for e in anchoring_index(data, data, low_value=0, high_value=1, n_resamples=10):
            assert e.status == "ok" or e.reason


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_table_of_counts_gives_a_p_or_a_reason(t):
    for test in (bowker(t), stuart_maxwell(t)):
        assert (test.p is None) == (test.status == "undefined")
        assert test.p is None or 0 <= test.p <= 1
