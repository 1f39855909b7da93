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
