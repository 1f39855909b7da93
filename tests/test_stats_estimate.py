"""Estimates and rates: what they promise."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.stats import Estimate, SignificanceTest, not_applicable, to_frame, undefined
from workbench.stats.proportions import (
    bounds,
    clopper_pearson,
    design_effect,
    missingness,
    proportion,
    proportion_of,
    upper_bound,
    wilson,
)


def test_an_estimate_prints_as_one_readable_line():
    e = Estimate("sensitivity critical", 0.79, 0.66, 0.89, n=48, n_cluster=40, n_unknown=2, method="Clopper-Pearson")
    assert str(e) == "sensitivity critical 0.79 [0.66, 0.89] (n=48, 40 families, 2 unknown; Clopper-Pearson)"


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
def test_a_non_finite_number_never_survives(value, bound):
    e = Estimate("x", value, bound, bound)
    assert e.value is None or math.isfinite(e.value)
    assert e.low is None or math.isfinite(e.low)
    assert (e.status == "ok") == (e.value is not None)
    assert e.status == "ok" or e.reason


def test_a_status_without_a_reason_or_of_another_word_is_refused():
    with pytest.raises(ValueError, match="needs a reason"):
        Estimate("x", 1.0, status="too_few")
    with pytest.raises(ValueError, match="must be one of"):
        Estimate("x", 1.0, status="fine", reason="y")


def test_a_frame_keeps_missing_as_missing():
    frame = to_frame([undefined("a", "no rows"), not_applicable("b", "deterministic judge"), SignificanceTest("c", p=0.03)])
    assert frame["value"].isna().all() and frame["p"].notna().sum() == 1
    assert list(frame["status"]) == ["undefined", "not_applicable", "ok"]
    assert to_frame([]).columns[0] == "name"


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.8, 0.95, 0.99]))
def test_exact_intervals_hold_the_estimate_and_agree_with_statsmodels(k, n, confidence):
    from statsmodels.stats.proportion import proportion_confint

    k = min(k, n)
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "beta")):
        low, high = ours(k, n, confidence=confidence)
        assert 0 <= low <= k / n <= high <= 1
        np.testing.assert_allclose((low, high), proportion_confint(k, n, 1 - confidence, method), atol=1e-9)
    assert upper_bound(0, n, confidence=confidence) == pytest.approx(1 - (1 - confidence) ** (1 / n))


def test_zero_events_are_worded_as_a_bound_and_never_as_zero_percent():
    assert str(proportion_of(0, 300, name="false confirm")).startswith("false confirm 0 of 300, upper 95 % bound 0.0099")


def test_zero_events_in_families_take_the_family_as_the_row():
    e = proportion([0] * 40, cluster=[i // 4 for i in range(40)], name="x")
    assert e.high == pytest.approx(clopper_pearson(0, 10)[1])
    assert "0 of 40, upper 95 % bound 0.26 (0.072 if rows were independent)" in str(e)


def test_unknowns_are_counted_and_never_scored():
    e = proportion([True, None, False, pd.NA, float("nan"), True], name="x")
    assert (e.n, e.n_unknown, e.value) == (3, 3, pytest.approx(2 / 3))
    assert proportion([None, None], name="x").status == "undefined"
    assert proportion([], name="x").status == "undefined"


def test_bounds_enclose_the_rate_under_any_resolution_of_the_unknowns():
    y = [1] * 18 + [None] * 12 + [0] * 170
    e = bounds(y, name="critical")
    assert (e.value, e.n, e.n_unknown) == (0.09, 200, 12)
    assert e.low == pytest.approx(0.05768744886219316) and e.high == pytest.approx(0.20605579284166659)
    assert "0.15 (unknown = yes)" in e.reason


def test_identical_rows_in_a_family_count_once():
    y, family = np.repeat([0, 1, 1, 0, 0, 1, 0, 0, 1, 0], 7), np.repeat(range(10), 7)
    assert design_effect(y, family) == pytest.approx(7 * 10 / 9)
    e = proportion(y, cluster=family, name="x")
    assert e.high - e.low > 0.9 * (lambda i: i[1] - i[0])(clopper_pearson(4, 10))


def test_events_in_few_families_are_flagged():
    assert proportion([1, 0, 0, 0] + [0] * 196, cluster=[i // 4 for i in range(200)], name="x").status == "too_few"


def test_a_wrong_number_of_cluster_labels_is_an_error():
    with pytest.raises(ValueError):
        proportion([1, 0, 1], cluster=["a", "b"], name="x")


def test_missingness_says_whether_unknowns_depend_on_the_group():
    assert missingness([1] * 8 + [0] * 2 + [0] * 10, ["critical"] * 10 + ["low"] * 10).p < 0.01
    assert missingness([0] * 4, "abab").status == "undefined"
    assert missingness([1, 0, 0] * 10, list("abc") * 10).method == "chi-squared"


def test_few_families_are_descriptive_and_wilson_is_flagged_earlier():
    y = [1, 0, 1, 0, 0] * 30
    for families, exact, score in ((10, "too_few", "too_few"), (30, "ok", "too_few"), (50, "ok", "ok")):
        cluster = [i % families for i in range(150)]
        assert proportion(y, cluster=cluster, name="x").status == exact
        assert proportion(y, cluster=cluster, method="wilson", name="x").status == score
