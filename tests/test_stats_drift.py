"""Drift: charts that know their false-alarm rate, trends that know ties, flips net of noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.stats.drift import (
    charts,
    cusum_arl,
    cusum_limit,
    exact_looks,
    excess_flips,
    first_alarm,
    flip_rate,
    flips_by_dialogue,
    monitor,
    monitor_limit,
    page,
    psi,
    slopes,
    spend,
    taus,
)

CUTS = np.array([-0.25, 0.67, 1.5])


def probe(g, n, runs, shift=0.0):
    """Levels (n, runs) of a noisy judge on a fixed probe set."""
    theta = np.random.default_rng(99).standard_normal((n, 1))
    return ((theta + shift + 0.3 * g.standard_normal((n, runs)))[..., None] > CUTS).sum(-1)


@given(
    st.lists(st.lists(st.sampled_from(["low", "high", "critical", "unknown"]), min_size=3, max_size=3), min_size=1, max_size=8)
)
def test_the_pairwise_flip_rate_is_the_share_of_differing_pairs(rows):
    brute = [np.mean([r[i] != r[j] for i in range(3) for j in range(i)]) for r in rows]
    np.testing.assert_allclose(flips_by_dialogue(rows), brute)


def test_dropped_unknowns_leave_a_dialogue_without_pairs_missing():
    rate = flip_rate([["low", "unknown", "unknown"], ["low", "high", "high"]], unknown="dropped")
    assert (rate.n, rate.n_unknown, rate.value) == (1, 1, pytest.approx(2 / 3))
    assert flip_rate([["low"], ["high"]]).status == "undefined"
    assert flip_rate([]).status == "undefined"


def test_excess_flips_are_zero_on_average_without_change_and_large_with_it():
    g = np.random.default_rng(1)
    same = [excess_flips(probe(g, 60, 3), probe(g, 60, 3), n_resamples=1)[0].value for _ in range(100)]
    assert abs(np.mean(same)) < 3 * np.std(same) / 10
    e, t = excess_flips(probe(g, 60, 3), probe(g, 60, 3, shift=1.0), n_resamples=199)
    assert e.value > 0.2 and t.p == pytest.approx(1 / 200)


def test_one_repeat_cannot_tell_change_from_noise():
    e, t = excess_flips([["low"], ["low"]], [["low"], ["high"]])
    assert e.status == "not_applicable" and t.p is None


def test_slopes_are_those_of_least_squares_also_with_missing_turns():
    g = np.random.default_rng(2)
    x = g.standard_normal((20, 6)) + 0.3 * np.arange(6)
    x[0, [1, 4]] = np.nan
    x[1, 2:] = np.nan
    expected = [
        np.polyfit(np.flatnonzero(~np.isnan(r)), r[~np.isnan(r)], 1)[0] if (~np.isnan(r)).sum() > 2 else math.nan for r in x
    ]
    np.testing.assert_allclose(slopes(x), expected)


def test_tau_of_a_constant_dialogue_is_missing_while_its_slope_is_zero():
    x = np.array([[1.0, 1, 1, 1], [0, 1, 2, 3], [3, np.nan, np.nan, np.nan]])
    assert np.isnan(taus(x)[[0, 2]]).all() and taus(x)[1] == 1.0
    assert slopes(x)[0] == 0.0


def test_page_without_ties_is_scipys():
    x = np.array([[0.2, 0.3, 0.35, 0.5], [0.1, 0.15, 0.3, 0.28], [0.4, 0.38, 0.5, 0.6]])
    theirs = stats.page_trend_test(x, method="asymptotic")
    ours = page(x, method="normal")
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert page(x, n_resamples=4999, seed=1).p == pytest.approx(stats.page_trend_test(x, method="exact").pvalue, abs=0.004)


def test_page_with_ties_uses_the_smaller_variance():
    x = np.array([[0, 0, 0, 1]] * 12)
    # scipy ignores ties and gives a far larger p
    assert page(x, method="normal").p < stats.page_trend_test(x, method="asymptotic").pvalue
    assert page(np.ones((4, 4))).status == "undefined"
    assert page([[0, 1, float("nan")], [0, 1, 2]]).n_unknown == 1
    assert page(np.zeros((0, 3))).status == "undefined"


def test_psi_is_zero_for_equal_shares_and_finite_with_an_empty_level():
    assert psi([10, 20, 30, 40], [1, 2, 3, 4]) == pytest.approx(0.0)
    assert 0 < psi([60, 40, 0, 0], [50, 30, 15, 5]) < 5


def test_no_alarm_is_none_and_not_the_first_look():
    assert first_alarm([False] * 5) is None
    assert first_alarm([False, True, True]) == 1


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20))
def test_the_cusum_recursion_is_its_reflection_form(z):
    up = charts(z, k=0.5)["up"]
    total = np.concatenate([[0.0], np.cumsum(np.array(z) - 0.5)])
    np.testing.assert_allclose(up, (total - np.minimum.accumulate(total))[1:], atol=1e-9)


def test_average_run_length_matches_simulation():
    g = np.random.default_rng(3)
    up = charts(g.standard_normal((4000, 400)), k=0.5)["up"] > 3.0
    runs = np.where(up.any(1), up.argmax(1) + 1, 400)
    # Page's integral equation with h = 3, k = .5: 117.6 (Montgomery, table 9.4, gives 117.6)
    assert cusum_arl(0.5, 3.0) == pytest.approx(117.6, abs=0.2)
    censored = 117.6 * (1 - math.exp(-400 / 117.6))
    assert runs.mean() == pytest.approx(censored, rel=0.05)
    assert cusum_limit(cusum_arl(0.5, 4.0) / 2) == pytest.approx(4.0, abs=1e-6)


def test_a_short_baseline_needs_a_higher_limit():
    limits = [monitor_limit("cusum", looks=20, false_alarm=0.05, baseline_runs=b, n_simulations=20_000) for b in (5, 20, None)]
    assert limits[0] > limits[1] > limits[2]


def test_the_monitor_sees_a_shift_and_says_when():
    g = np.random.default_rng(4)
    base, quiet = 0.4 + 0.02 * g.standard_normal(30), 0.4 + 0.02 * g.standard_normal(8)
    chart = monitor(base, np.r_[quiet, 0.46 + 0.02 * g.standard_normal(6)])
    assert chart.attrs["status"] == "ok" and 8 <= chart.attrs["alarm_at"] <= 11
    assert monitor(base, quiet).attrs["alarm_at"] is None
    assert monitor(base[:6], quiet).attrs["status"] == "too_few"


@pytest.mark.parametrize(
    ("baseline", "current", "status"),
    [
        ([], [0.1], "too_few"),
        ([0.1, 0.2], [0.1], "too_few"),
        ([0.1] * 30, [0.1, 0.2], "not_applicable"),
        (list(np.arange(30) / 30), [0.1] * 21, "undefined"),
    ],
)
def test_a_monitor_that_cannot_work_says_so(baseline, current, status):
    chart = monitor(baseline, current, looks=20)
    assert chart.attrs["status"] == status and chart.attrs["reason"] and not chart["alarm"].any()


def test_a_missing_run_moves_no_chart():
    base = np.random.default_rng(5).standard_normal(30)
    chart = monitor(base, [None, None, 0.0])
    assert (chart["statistic"][:2] == 0).all()


@pytest.mark.parametrize("spending", ["linear", "obrien_fleming"])
def test_spending_adds_up_to_alpha(spending):
    budget = spend(0.05, 20, spending=spending)
    assert budget.sum() == pytest.approx(0.05) and (budget > 0).all()


@pytest.mark.parametrize("spending", ["linear", "obrien_fleming"])
def test_the_exact_looks_alarm_at_most_at_alpha(spending):
    g = np.random.default_rng(6)
    hits = 0
    for _ in range(400):
        levels = probe(g, 80, 21)
        hits += exact_looks(levels[:, 0], levels[:, 1:], spending=spending, n_simulations=1).attrs["alarm_at"] is not None
    assert hits / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_the_exact_looks_see_a_real_move_count_unknowns_and_print_what_was_spent():
    g = np.random.default_rng(7)
    levels = probe(g, 80, 6).astype(object)
    levels[:, 4:] = probe(g, 80, 2, shift=1.0)
    levels[0, 2] = "unknown"
    table = exact_looks(levels[:, 0], levels[:, 1:], n_simulations=50)
    assert table.attrs["alarm_at"] == 3
    assert list(table["n_unknown"]) == [0, 1, 0, 0, 0]
    assert 0 <= table.attrs["achieved"] <= 1 and table["alpha"].sum() <= 0.05


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2, 3, None]), min_size=2, max_size=4), min_size=0, max_size=6).filter(
        lambda r: len({len(x) for x in r}) <= 1
    )
)
@settings(max_examples=40, deadline=None)
def test_any_levels_give_estimates_or_reasons(rows):
    for e in (flip_rate(rows), *excess_flips(rows, rows, n_resamples=3)):
        assert e.status == "ok" or e.reason
