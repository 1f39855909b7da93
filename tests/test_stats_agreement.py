"""Agreement on the full scale: the traps of the libraries, one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.stats.agreement import (
    LEVELS,
    agreement_board,
    alpha,
    board_frame,
    coincidences,
    crossed_mean,
    gwet,
    gwet_sums,
    icc,
    kappa,
    pair_table,
    ranks,
    rating_counts,
    specific_agreement,
)

labels = st.lists(st.sampled_from([*LEVELS, "unknown"]), min_size=1, max_size=30)


def test_level_words_get_their_places_and_unknown_gets_none():
    np.testing.assert_array_equal(ranks(["low", "critical", "unknown", None, pd.NA, 2]), [0, 3, np.nan, np.nan, np.nan, 2])
    for bad in (["severe"], [4], [1.5], [-1]):
        with pytest.raises(ValueError):
            ranks(bad)


def test_an_unused_level_keeps_its_distance():
    # scikit-learn without labels= says .75
    a, b = (
        ranks(x)
        for x in (
            ["low", "medium", "critical", "critical", "low", "medium"],
            ["low", "critical", "critical", "medium", "low", "medium"],
        )
    )
    assert float(kappa(pair_table(a, b))) == pytest.approx(0.5714285714285714)


@given(labels, labels)
@settings(max_examples=60, deadline=None)
def test_kappa_agrees_with_scikit_learn_wherever_it_exists(a, b):
    from sklearn.metrics import cohen_kappa_score

    n = min(len(a), len(b))
    x, y = ranks(a[:n]), ranks(b[:n])
    both = ~np.isnan(x + y)
    t = pair_table(x, y)
    for kind in ("quadratic", "linear", "unweighted"):
        ours = float(kappa(t, kind))
        if np.isnan(ours):
            assert len(set(x[both]) | set(y[both])) <= 1
        else:
            theirs = cohen_kappa_score(x[both], y[both], labels=[0, 1, 2, 3], weights=None if kind == "unweighted" else kind)
            assert ours == pytest.approx(theirs, abs=1e-9)


@given(labels, labels)
@settings(max_examples=40, deadline=None)
def test_the_board_never_raises_and_never_gives_a_silent_number(a, b):
    n = min(len(a), len(b))
    board = agreement_board({"a": a[:n], "b": b[:n]}, n_resamples=30)
    for e in board.values():
        assert e.n + e.n_unknown == n
        assert (e.value is None) == (e.status == "undefined")
        assert e.status == "ok" or e.reason
        assert e.status != "ok" or e.low <= e.value <= e.high


def test_constant_raters_have_agreement_but_no_kappa():
    board = agreement_board({"a": ["low"] * 50, "b": ["low"] * 50})
    assert board["agreement", "a ~ b"].value == 1.0 and board["AC1", "all"].value == 1.0
    assert board["quadratic kappa", "a ~ b"].status == "undefined" and "no variation" in board["quadratic kappa", "a ~ b"].reason
    assert board["positive agreement", "a ~ b"].reason.startswith("no positives")
    assert board["ordinal alpha", "all"].status == "undefined"


def test_one_constant_rater_is_named():
    # scikit-learn gives kappa 0.0 without a word
    board = agreement_board({"a": ["low"] * 50, "b": ["low", "high"] * 25})
    assert board["quadratic kappa", "a ~ b"].value == pytest.approx(0.0)
    assert (board["quadratic kappa", "a ~ b"].status, "constant rater: a" in board["quadratic kappa", "a ~ b"].reason) == (
        "degenerate",
        True,
    )


def test_an_unknown_is_a_counted_pair_and_not_a_lost_one():
    board = agreement_board({"a": ["low", "unknown", "high", "critical"], "b": ["low", "low", "high", "high"]}, n_resamples=50)
    e = board["quadratic kappa", "a ~ b"]
    assert (e.n, e.n_unknown, e.value) == (3, 1, pytest.approx(0.8695652173913043))


def test_the_board_is_the_same_as_a_loop_over_resampled_rows():
    g = np.random.default_rng(0)
    theta = np.repeat(g.standard_normal(60), 3)
    family = np.repeat(range(60), 3)
    cuts = np.array([-0.25, 0.67, 1.5])
    a, b = (((theta + 0.5 * g.standard_normal(180))[:, None] > cuts).sum(1).astype(float) for _ in range(2))
    e = agreement_board({"a": a, "b": b}, cluster=family, seed=5, n_resamples=200)["quadratic kappa", "a ~ b"]
    picks = np.random.default_rng(5).integers(0, 60, size=(200, 60))
    rows = [np.concatenate([np.flatnonzero(family == f) for f in pick]) for pick in picks]
    loop = [float(kappa(pair_table(a[r], b[r]))) for r in rows]
    np.testing.assert_allclose((e.low, e.high), np.quantile(loop, [0.025, 0.975]))


def test_alpha_is_one_for_perfect_and_near_zero_for_random_ratings():
    g = np.random.default_rng(1)
    same = np.repeat(g.integers(0, 4, (200, 1)), 3, axis=1).astype(float)
    assert float(alpha(coincidences(rating_counts(same)).sum(0))) == pytest.approx(1.0)
    loose = g.integers(0, 4, (5000, 3)).astype(float)
    assert float(alpha(coincidences(rating_counts(loose)).sum(0))) == pytest.approx(0.0, abs=0.03)
    assert float(gwet(gwet_sums(rating_counts(loose), "unweighted").sum(0), "unweighted")) == pytest.approx(0.0, abs=0.03)


def test_specific_agreement_tells_critical_from_the_rest():
    t = np.array([[90.0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 5]])
    assert float(specific_agreement(t, 3)) == pytest.approx(2 * 5 / (8 + 7))
    assert float(specific_agreement(t, 0)) == pytest.approx(2 * 90 / (92 + 93))
    assert np.isnan(float(specific_agreement(t, 1)))


def test_the_board_as_a_frame_has_a_row_per_measure_and_pair():
    frame = board_frame(
        agreement_board({"a": ["low", "high"] * 20, "b": ["low", "high"] * 20, "gold": ["low", "low"] * 20}, n_resamples=20)
    )
    assert len(frame) == 3 * 7 + 3
    assert {"measure", "raters", "value", "low", "high", "n", "n_unknown", "status"} <= set(frame.columns)


def test_icc_needs_variation_and_counts_incomplete_items():
    assert icc(np.ones((5, 3)))["icc2_1"].status == "undefined"
    x = np.random.default_rng(2).standard_normal((30, 1)) + 0.3 * np.random.default_rng(3).standard_normal((30, 4))
    x[0, 0] = np.nan
    e = icc(x)["icc2_1"]
    assert (e.n, e.n_unknown) == (29, 1) and e.low < e.value < e.high
    perfect = icc(np.repeat(np.arange(6.0)[:, None], 3, axis=1))
    assert perfect["icc2_1"].value == 1.0 and perfect["icc2_1"].low is None


def test_a_crossed_mean_needs_a_complete_matrix():
    assert crossed_mean([[1.0, np.nan], [2.0, 3.0]], name="x").status == "undefined"
    assert crossed_mean([[1.0, 2.0]], name="x").status == "undefined"
    assert crossed_mean(np.ones((3, 4)), name="x").status == "degenerate"
