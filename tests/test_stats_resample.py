"""Resampling by cluster: what it promises, whatever the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.stats.proportions import numbers
from workbench.stats.resample import bootstrap, bootstrap_rows, family_sums, mean, rank_intervals, seed_for, weights

values = st.lists(st.one_of(st.none(), st.floats(-5, 5), st.sampled_from([0.0, 1.0])), max_size=40)


def ratio(s):
    return s[..., 0] / s[..., 1]


@given(values, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_mean_is_a_number_with_its_interval_or_says_why_not(y, families):
    e = mean(y, name="m", cluster=[i % families for i in range(len(y))])
    known = [v for v in y if v is not None]
    assert (e.n, e.n_unknown) == (len(known), len(y) - len(known))
    assert (e.value is None) == (not known)
    assert e.low is None or e.low <= e.value <= e.high
    assert e.status == "ok" or e.reason


def test_a_mean_by_family_is_the_t_interval_on_family_means():
    from scipy import stats

    y = np.random.default_rng(0).standard_normal((50, 4))
    e = mean(y.ravel(), name="m", cluster=np.repeat(range(50), 4))
    low, high = stats.ttest_1samp(y.mean(1), 0).confidence_interval()
    np.testing.assert_allclose((e.low, e.high), (low, high), rtol=1e-12)
    assert e.status == "ok"


def test_the_standard_error_is_the_cluster_robust_one_of_statsmodels():
    import statsmodels.api as sm

    from workbench.stats.resample import standard_error

    g = np.random.default_rng(1)
    y, family = g.standard_normal(60), g.integers(0, 12, 60)
    fit = sm.OLS(y, np.ones(60)).fit(cov_type="cluster", cov_kwds={"groups": family})
    # statsmodels adds (n - 1) / (n - k) with k = 1, which is 1
    assert standard_error(y, family) == pytest.approx(float(fit.bse[0]), rel=1e-12)


def test_equal_values_and_single_units_have_no_interval():
    assert mean([2.0] * 30, name="m").status == "degenerate"
    assert mean([1.0, 2.0], name="m", cluster=["a", "a"]).status == "too_few"
    assert mean([], name="m").status == "undefined"


def test_few_families_are_flagged_by_their_number():
    y = np.random.default_rng(2).standard_normal(100)
    assert "descriptive only" in mean(y[:19], name="m").reason
    assert "measured coverage" in mean(y[:39], name="m").reason
    assert mean(y[:40], name="m").status == "ok"


@given(st.integers(1, 30), st.integers(1, 50), st.integers(0, 1000))
def test_each_resample_draws_as_many_clusters_as_there_are(groups, n_resamples, seed):
    w = weights(groups, n_resamples, seed=seed)
    assert w.shape == (n_resamples, groups) and (w.sum(1) == groups).all()


def test_strata_keep_their_sizes_in_every_resample():
    stratum = np.array(["a"] * 5 + ["b"] * 15)
    w = weights(20, 100, seed=3, strata=stratum)
    assert (w[:, :5].sum(1) == 5).all() and (w[:, 5:].sum(1) == 15).all()
    assert (weights(20, 100, seed=3)[:, :5].sum(1) != 5).any()


def test_a_stratified_bootstrap_of_a_rate_fixed_by_design_has_no_spread():
    totals = np.column_stack([np.repeat([1.0, 0.0], [5, 35]), np.ones(40)])
    fixed = bootstrap(totals, ratio, name="r", seed=1, strata=totals[:, 0])
    assert fixed.status == "degenerate" and fixed.value == 0.125
    assert bootstrap(totals, ratio, name="r", seed=1).status == "ok"


def test_the_same_seed_gives_the_same_interval_and_names_give_seeds_of_their_own():
    totals = np.column_stack([np.random.default_rng(4).random(60), np.ones(60)])
    a, b, c = (bootstrap(totals, ratio, name="r", seed=s) for s in (seed_for(1, "x"), seed_for(1, "x"), seed_for(1, "y")))
    assert a == b and a != c


def test_weights_give_the_same_draws_as_resampling_rows():
    y = np.random.default_rng(5).random(50)
    index = np.random.default_rng(6).integers(0, 50, size=(300, 50))
    e = bootstrap(np.column_stack([y, np.ones(50)]), ratio, name="m", seed=6, n_resamples=300)
    np.testing.assert_allclose((e.low, e.high), np.quantile(y[index].mean(1), [0.025, 0.975]))


def test_rows_and_totals_agree_on_a_mean():
    y, family = np.random.default_rng(7).random(200), np.repeat(range(50), 4)
    by_rows = bootstrap_rows(lambda i: float(y[i].mean()), 200, name="m", seed=8, cluster=family, n_resamples=400)
    by_sums = bootstrap(family_sums(np.column_stack([y, np.ones(200)]), family), ratio, name="m", seed=8, n_resamples=400)
    assert (by_rows.low, by_rows.high) == pytest.approx((by_sums.low, by_sums.high))


def test_undefined_resamples_are_counted_and_stop_the_interval():
    rare = np.zeros((40, 2))
    rare[0] = 1, 1
    rare[:, 1] = 1
    e = bootstrap(rare, lambda s: np.where(s[..., 0] > 0, s[..., 0] / s[..., 1], np.nan), name="r", seed=9)
    assert (e.status, e.value, e.low) == ("degenerate", 0.025, None) and "% of resamples are undefined" in e.reason


def test_no_rows_and_no_number_are_undefined():
    assert bootstrap(np.zeros((0, 2)), ratio, name="r", seed=1).status == "undefined"
    assert bootstrap(np.zeros((3, 2)), ratio, name="r", seed=1).status == "undefined"
    assert bootstrap_rows(lambda i: 1.0, 0, name="r", seed=1).status == "undefined"


def test_bca_of_one_cluster_or_a_constant_says_so():
    assert bootstrap(np.ones((1, 2)), ratio, name="r", seed=1, bca=True).status == "degenerate"
    assert bootstrap(np.ones((9, 2)), ratio, name="r", seed=1, bca=True).status == "degenerate"


def test_bca_agrees_with_scipy():
    from scipy import stats

    y = np.random.default_rng(10).exponential(size=60)
    ours = bootstrap(np.column_stack([y, np.ones(60)]), ratio, name="m", seed=11, n_resamples=2000, bca=True)
    theirs = stats.bootstrap((y,), np.mean, n_resamples=2000, method="BCa", rng=np.random.default_rng(11)).confidence_interval
    np.testing.assert_allclose((ours.low, ours.high), theirs, rtol=1e-6)


def test_equal_competitors_share_their_rank_and_order_never_breaks_a_tie():
    draws = np.column_stack([np.ones(100), np.ones(100), np.zeros(100)])
    table = rank_intervals(draws, ["b", "a", "c"], point=[1.0, 1.0, 0.0]).set_index("name")
    assert table.loc["a", "rank"] == table.loc["b", "rank"] == 1.5
    assert table.loc["a", "p_best"] == table.loc["b", "p_best"] == 0.5
    assert table.loc["c", "rank_low"] == table.loc["c", "rank_high"] == 3


def test_text_is_not_taken_for_a_number():
    with pytest.raises(ValueError):
        numbers(["low", "high"])
