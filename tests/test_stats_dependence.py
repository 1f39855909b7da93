"""Dependence of errors: closed forms, edges, and the numbers of the double-confirmation table."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.stats.dependence import (
    copula_joint,
    effective_judges,
    error_dependence,
    fair_comparison,
    joint_normal,
    latent_correlation,
    ppv,
    t_copula_joint,
    tetrachoric,
)


@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(-0.99, 0.99))
@settings(max_examples=40, deadline=None)
def test_the_joint_normal_is_scipys(h, k, rho):
    theirs = stats.multivariate_normal.cdf([h, k], cov=[[1, rho], [rho, 1]])
    assert float(joint_normal(h, k, rho)) == pytest.approx(float(theirs), abs=2e-5)


def test_the_joint_normal_at_its_edges():
    assert float(joint_normal(0, 0, 0)) == pytest.approx(0.25)
    assert float(joint_normal(1.2, -0.3, 1)) == pytest.approx(stats.norm.cdf(-0.3))
    assert float(joint_normal(0.5, -0.5, -1)) == pytest.approx(0.0)
    assert float(joint_normal(0, 1, 0.5)) == pytest.approx(float(joint_normal(1e-9, 1, 0.5)), abs=1e-8)


# statistics.md, section E: joint false-confirm in percent at error correlation rho
@pytest.mark.parametrize(("rho", "p", "percent"), [(0.1, 0.01, 0.0193), (0.5, 0.01, 0.129), (0.5, 0.05, 1.22), (0.9, 0.10, 6.89)])
def test_the_table_of_double_confirmation(rho, p, percent):
    assert 100 * float(copula_joint(p, p, rho)) == pytest.approx(percent, rel=5e-3)


# the same section: t4 copula at 1 %, and the fair comparison at sensitivity .90
@pytest.mark.parametrize(("rho", "percent"), [(0.3, 0.191), (0.5, 0.288), (0.7, 0.426)])
def test_the_tail_dependent_copula_is_worse(rho, percent):
    assert 100 * float(t_copula_joint(0.01, rho)) == pytest.approx(percent, rel=1e-2)


@pytest.mark.parametrize(("fpr", "rho", "gain"), [(0.01, 0.0, 31.7), (0.01, 0.5, 3.2), (0.05, 0.5, 2.0), (0.10, 0.9, 1.1)])
def test_the_gain_over_one_stricter_judge(fpr, rho, gain):
    assert fair_comparison(fpr, 0.90, rho)["gain"] == pytest.approx(gain, rel=0.03)


def test_the_mean_score_beats_the_and_rule_and_retuning_gives_false_alarms_back():
    f = fair_comparison(0.05, 0.90, 0.5)
    assert 100 * f["fpr_mean_score"] == pytest.approx(0.79, abs=0.01)
    assert 100 * f["fpr_stricter"] == pytest.approx(2.48, abs=0.01)
    assert 100 * f["fpr_retuned"] == pytest.approx(2.73, abs=0.01)


@given(st.floats(0.01, 0.6), st.floats(0.01, 0.6), st.floats(-0.9, 0.9))
@settings(max_examples=40, deadline=None)
def test_the_tetrachoric_correlation_inverts_the_copula(p, q, rho):
    joint = float(copula_joint(p, q, rho))
    found = tetrachoric(p, q, joint)
    assert found is None or float(copula_joint(p, q, found)) == pytest.approx(joint, abs=1e-9)


def test_effective_judges_run_from_two_to_one():
    assert effective_judges(0.05, 0.05, 0.0025) == pytest.approx(2.0)
    assert effective_judges(0.05, 0.05, 0.05) == pytest.approx(1.0)
    assert effective_judges(0.05, 0.05, 0.0) is None


def test_independent_errors_have_lift_one_and_a_shuffled_pairing_too():
    g = np.random.default_rng(0)
    a = g.random(4000) < 0.1
    b = np.where(a, g.random(4000) < 0.5, g.random(4000) < 0.05)
    d, shuffled = error_dependence(a, b, n_resamples=200), error_dependence(a, g.permutation(b), n_resamples=200)
    assert d["lift"].low > 3 and d["phi"].low > 0.3
    assert shuffled["lift"].low < 1 < shuffled["lift"].high
    assert d["joint"].value == pytest.approx(d["second_given_first"].value * d["rate_first"].value)


def test_no_joint_error_is_a_bound_and_never_a_silent_zero():
    d = error_dependence([1] * 10 + [0] * 190, [0] * 190 + [1] * 10, n_resamples=50)
    assert str(d["joint"]).startswith("joint 0 of 200, upper 95 % bound 0.015")
    assert (d["lift"].value, d["lift"].low, d["lift"].status) == (0.0, 0.0, "too_few") and d["lift"].high > 1
    assert d["tetrachoric"].value is None and d["effective_judges"].value is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], []),
        ([1], [1]),
        ([0] * 30, [0] * 30),
        ([1] * 30, [0, 1] * 15),
        ([None] * 5, [1] * 5),
        ([0, 1, None] * 4, [1, None, 0] * 4),
    ],
)
@pytest.mark.parametrize("families", [None, 3])
def test_degenerate_errors_have_statuses_and_no_warning(a, b, families):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d = error_dependence(a, b, cluster=None if families is None else [i % families for i in range(len(a))], n_resamples=20)
    assert all(e.status == "ok" or e.reason for e in d.values())
    assert all(e.value is None or math.isfinite(e.value) for e in d.values())
    assert len(d) == 13


def test_duplicated_families_widen_every_interval():
    g = np.random.default_rng(1)
    a = g.random(300) < 0.2
    b = np.where(g.random(300) < 0.5, a, g.random(300) < 0.2)
    one = error_dependence(a, b, seed=2, n_resamples=500)
    many = error_dependence(np.repeat(a, 4), np.repeat(b, 4), cluster=np.repeat(range(300), 4), seed=2, n_resamples=500)
    for key in ("joint", "lift", "phi"):
        assert many[key].high - many[key].low == pytest.approx(one[key].high - one[key].low, rel=0.08)


def test_latent_correlation_needs_repeats():
    assert latent_correlation(np.zeros((5, 1)), np.zeros((5, 1))).status == "undefined"


def test_predictive_value_falls_with_prevalence():
    table = ppv(0.9, 0.05, [0.001, 0.01, 0.1])
    assert table["ppv"].is_monotonic_increasing
    assert table["ppv"][1] == pytest.approx(0.154, abs=5e-4)  # statistics.md, section E
    assert ppv(0.0, 0.0, 0.1)["ppv"].isna().all()
