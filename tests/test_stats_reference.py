"""Every reference entry is reproduced, and the checker itself can fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from tests.cases.stats import RECIPES, check, compare

ENTRIES = json.loads((Path(__file__).parent / "data" / "stat_reference.json").read_text("utf-8"))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["name"])
def test_reference_values_are_reproduced(entry):
    assert check(entry) is None


def spoilt(value):
    """*value* with its first number moved."""
    if isinstance(value, dict):
        key = next(iter(value))
        return {**value, key: spoilt(value[key])}
    if isinstance(value, list):
        return [spoilt(value[0]), *value[1:]]
    return not value if isinstance(value, bool) else value + 0.5


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["name"])
def test_a_wrong_number_is_noticed(entry):
    bad = copy.deepcopy(entry)
    bad["expected"] = spoilt(bad["expected"])
    assert check(bad) is not None


def test_every_entry_has_a_recipe_and_an_unknown_name_is_a_failure():
    assert all(any(e["name"].startswith(name) for name in RECIPES) for e in ENTRIES)
    assert "no recipe" in check({"name": "nothing", "inputs": {}, "expected": {}})


def test_missing_is_not_zero_and_lengths_must_match():
    assert compare(None, 0.0, 1e-9) and compare(0.0, None, 1e-9)
    assert compare([1.0, 2.0], [1.0], 1e-9)
    assert compare({"a": 1.0}, {"b": 1.0}, 1e-9)
    assert compare({"a": 1.0}, {"a": 1.0, "b": 2.0}, 1e-9) is None


L = ["low", "medium", "high", "critical"]
# what has no number is null in such files: the same entry names on data without variation
DEGENERATE = [
    ("cohen_kappa_x", {"rater1": ["low"] * 4, "rater2": ["low"] * 4, "levels": L}, {"quadratic": None, "n_complete": 4}),
    ("roc_auc_one_class", {"y": [0, 0, 0], "score": [0.1, 0.2, 0.3]}, {"auc": None, "delong_se": None}),
    ("pr_auc_none", {"y": [0, 0, 0], "score": [0.1, 0.2, 0.3]}, {"average_precision": None}),
    ("signed_rank_pratt_exact_zero", {"diff": [0, 0, 0]}, {"exact_p_two_sided": 1.0}),
    ("cochran_q_same", {"items_by_judges_correct": [[1, 1], [0, 0]]}, {"q": None, "p": None}),
    ("rogan_gladen_bad", {"k": 1, "n": 10, "tp": 1, "n_pos": 4, "tn": 1, "n_neg": 4}, {"prevalence": None}),
    ("ppi_mean_const", {"y_labeled": [1, 1], "f_labeled": [1, 1], "f_unlabeled": [1, 1, 1]}, {"mean_ppi": 1.0}),
    (
        "error_dependence_2x2_zero",
        {"table_false_critical": {"both": 0, "L1_only": 3, "L2_only": 4, "neither": 93}},
        {"lift": 0.0, "joint_false_confirm": 0.0, "tetrachoric": None, "phi": -0.03586},
    ),
    ("krippendorff_const", {"raters_by_units": [[1, 1], [1, 1]], "values": [0, 1]}, {"nominal": None}),
    ("flip_rate_y", {"repeats_by_item": [["low", "high"], ["low", "low"]]}, {"pairwise_unknown_as_level": 0.5}),
    ("tost_equivalence_const", {"paired_diff": [0, 0, 0], "low": -1, "upp": 1}, {"p": None, "mean": 0.0}),
    ("mcnemar_exact_more", {"tables": [[[1, 0], [0, 1]]]}, [{"exact_p": 1.0}]),
    (
        "cusum_ewma_b",
        {"z": [0, 0, 0], "cusum_k": 0.5, "cusum_h": 3, "ewma_lambda": 0.2, "ewma_L": 3},
        {"cusum_alarm_index": None},
    ),
    (
        "anchoring_index_const",
        {
            "blind": [0.5] * 3,
            "low_anchor": [0.5] * 3,
            "critical_anchor": [0.5] * 3,
            "low_anchor_value": 0.1,
            "high_anchor_value": 0.9,
        },
        {"index_mean_based": 0.0},
    ),
    ("bowker_stuart_maxwell_diag", {"table": [[3, 0], [0, 4]]}, {"bowker_df": 0, "stuart_maxwell_p": None}),
    ("icc_shrout_fleiss_const", {"items_by_raters": [[1, 1], [1, 1]]}, {"icc2_1": None}),
]


@pytest.mark.parametrize(("name", "inputs", "expected"), DEGENERATE, ids=[d[0] for d in DEGENERATE])
def test_entries_without_an_answer_are_null_and_not_a_crash(name, inputs, expected):
    assert check({"name": name, "inputs": inputs, "expected": expected, "tolerance": 1e-3}) is None
