"""Calibration, areas, costs, prevalence and sample sizes: values, edges and what the libraries leave out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.stats.calibration import (
    auc,
    average_precision,
    best_threshold,
    brier,
    calibration_error,
    cost,
    ece,
    net_benefit,
    reliability,
)
from workbench.stats.design import (
    expected_width,
    n_for_equivalence,
    n_for_mcnemar,
    n_for_paired_effect,
    n_for_rate,
    n_for_zero,
    power,
    repeat_factor,
)
from workbench.stats.paired import sign_flip
from workbench.stats.prevalence import corrected_prevalence, ppi_mean, rogan_gladen
from workbench.stats.resample import mean


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.1, 0.3, 0.5, 0.85, 0.9])), min_size=2, max_size=40))
@settings(max_examples=50, deadline=None)
def test_the_area_is_scikit_learns_and_the_single_class_is_undefined(rows):
    from sklearn.metrics import roc_auc_score

    y, s = [int(r[0]) for r in rows], [r[1] for r in rows]
    e = auc(y, s)
    if len(set(y)) == 1:
        assert e.status == "undefined" and "single class" in e.reason
    else:
        assert e.value == pytest.approx(roc_auc_score(y, s))
        assert e.low is None or 0 <= e.low <= e.value <= e.high <= 1


def test_delong_by_clusters_of_one_is_delong():
    g = np.random.default_rng(0)
    y, s = g.random(200) < 0.4, g.standard_normal(200)
    plain, clustered = auc(y, s), auc(y, s, cluster=range(200))
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), rel=0.01)
    doubled = auc(np.repeat(y, 3), np.repeat(s, 3), cluster=np.repeat(range(200), 3))
    assert (doubled.low, doubled.high) == pytest.approx((plain.low, plain.high), rel=0.01)


def test_perfect_separation_has_a_value_without_interval():
    e = auc([0] * 40 + [1] * 40, np.arange(80))
    assert (e.value, e.low, e.status) == (1.0, None, "degenerate")


def test_average_precision_without_positives_is_undefined():
    # scikit-learn gives 0.0 with a warning
    assert average_precision([0, 0, 0], [0.1, 0.2, 0.3]).status == "undefined"
    assert average_precision([], []).status == "undefined"


def test_bins_hold_every_row_once_and_cover_the_decimal_edges():
    p = np.arange(0, 1.01, 0.1)
    assert list(reliability(np.ones(11), p, mass=False)["n"]) == [2, *[1] * 9]
    table = reliability(np.random.default_rng(1).random(103) < 0.5, np.random.default_rng(2).random(103))
    assert table["n"].sum() == 103 and table["n"].max() - table["n"].min() <= 1


def test_a_calibrated_judge_shows_an_error_that_is_only_noise():
    g = np.random.default_rng(3)
    p = g.random(2000)
    plain, debiased, test = calibration_error(g.random(2000) < p, p, n_resamples=200)
    assert plain.low <= plain.value <= plain.high and abs(debiased.value) < 0.02 and test.p > 0.05
    _, worse, rejected = calibration_error(g.random(2000) < p**2, p, n_resamples=200)
    assert worse.value > 0.1 and rejected.p < 0.01


@pytest.mark.parametrize(
    "y, p", [([], []), ([None], [0.5]), ([1], [0.5]), ([1, 1], [1.0, 1.0]), ([0, None, 1], [None, 0.2, 0.3])]
)
def test_degenerate_forecasts_have_statuses_and_no_warning(y, p):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for e in (*calibration_error(y, p, n_resamples=10), brier(y, p), auc(y, p), average_precision(y, p)):
            assert e.status == "ok" or e.reason
        reliability(y, p)
        ece(y, p)


def test_the_gate_is_inclusive_and_an_unknown_confidence_is_never_positive():
    assert cost([0, 0, 1], [0.85, 0.84999, 0.99], 0.85, cost_fn=10)[0] == pytest.approx(1 / 3)
    assert cost([1, 0], [None, 0.2], 0.0, cost_fn=10)[0] == pytest.approx(11 / 2)


def test_the_best_threshold_is_the_highest_of_equal_cost_and_may_be_never():
    assert best_threshold([0, 0, 0], [0.1, 0.2, 0.3], cost_fn=10)[0] == np.inf
    assert best_threshold([0, 1, 1], [0.1, 0.4, 0.6], cost_fn=10) == (0.4, 0.0)


def test_net_benefit_of_calling_nobody_is_zero():
    assert net_benefit([0, 1, 0, 0], [0.0] * 4, 0.2) == pytest.approx(0.0)


def test_an_uninformative_judge_cannot_be_corrected_and_a_clipped_rate_says_so():
    assert rogan_gladen(10, 100, 5, 10, 50, 100).status == "undefined"
    assert rogan_gladen(0, 0, 5, 10, 50, 100).status == "undefined"
    low = rogan_gladen(0, 200, 45, 50, 180, 200)
    assert (low.value, low.low, low.status) == (0.0, 0.0, "degenerate") and "outside [0, 1]" in low.reason


def test_unknown_labels_are_counted_in_the_correction():
    e = corrected_prevalence([1, 1, 0, 0, None], [1, 1, 0, 0, 1], [1, 0, None, 0])
    assert (e.n, e.n_unknown) == (3, 2)


def test_a_perfect_judge_makes_the_prediction_powered_mean_the_whole_sample_mean():
    y, u = np.array([0, 1, 0, 0, 1.0] * 20), np.array([0, 1, 0, 0.0] * 100)
    assert ppi_mean(y, y, u, tuned=False).value == pytest.approx(0.25)
    assert ppi_mean(y, np.zeros(100), u).value == pytest.approx(0.4)
    assert ppi_mean([1], [1], [1, 0]).status == "undefined"
    assert ppi_mean([1, 1], [1, 1], [1, 1]).status == "degenerate"
    assert ppi_mean([1] * 5 + [0] * 95, [1] * 5 + [0] * 95, u).status == "too_few"


# statistics.md, section 0.13
def test_sample_sizes_of_the_guide():
    assert n_for_rate(0.85, 0.10) == pytest.approx(49, abs=1) and n_for_rate(0.85, 0.05) == pytest.approx(196, abs=1)
    assert [n_for_zero(b) for b in (0.05, 0.02, 0.01, 0.005, 0.001)] == [59, 149, 299, 598, 2995]
    assert [n_for_paired_effect(d) for d in (0.2, 0.3, 0.5)] == [199, 90, 34]
    assert n_for_mcnemar(0.20, 0.05) == pytest.approx(626, abs=3) and n_for_mcnemar(0.20, 0.10) == pytest.approx(155, abs=2)
    assert n_for_equivalence(0.03, 0.10) == pytest.approx(97, abs=2)
    assert repeat_factor(0.8, 10) == pytest.approx(0.906, abs=5e-4)


def test_power_by_simulation_is_a_rate_with_an_exact_interval():
    e = power(lambda g: sign_flip(g.standard_normal(12) + 1.0), n_simulations=60)
    assert e.value > 0.6 and e.n == 60 and e.low < e.value
    assert power(lambda g: None, n_simulations=20).value == 0
    assert power(lambda g: sign_flip(g.standard_normal(12)), n_simulations=40) == power(
        lambda g: sign_flip(g.standard_normal(12)), n_simulations=40
    )


def test_expected_width_counts_studies_without_interval():
    e = expected_width(lambda g: mean(g.standard_normal(50) if g.random() < 0.9 else [1.0], name="m"), n_simulations=50)
    assert e.value == pytest.approx(2 * 2.01 / np.sqrt(50), rel=0.1) and e.n_unknown > 0


def test_a_judge_that_few_labels_cannot_tell_from_chance_gets_no_interval():
    e = rogan_gladen(50, 100, 6, 10, 450, 1000)  # .60 + .45 > 1, but .583 + .4503 on smoothed counts
    assert e.value is not None and e.low <= e.value <= e.high
    e = rogan_gladen(50, 100, 56, 100, 4, 9)  # .56 + .444 > 1, smoothed .559 + .4545 > 1
    assert e.value is not None
    e = rogan_gladen(50, 100, 1, 1, 1, 1000)
    assert (e.status, e.low) == ("too_few", None) and "chance" in e.reason
