"""Planted effects come back: intervals cover, true nulls stand, and the naive methods are seen to fail (300 replicates)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.planted import TARGETS, settled
from workbench.stats.drift import charts, monitor_limit

REPLICATES = 300


@pytest.mark.parametrize("target", [t for t in TARGETS if t.ci], ids=lambda t: t.name)
def test_every_method_keeps_its_promise_and_naive_ones_fail(target):
    assert settled(target, REPLICATES)[1] == {}


def test_every_target_is_measured_offline_and_has_a_recommended_method():
    assert all(set(t.kinds.values()) - {"naive"} for t in TARGETS)
    assert len({t.name for t in TARGETS}) == len(TARGETS)
    assert {k for t in TARGETS for k in t.kinds.values()} == {"approximate", "guaranteed", "weak", "naive", "size"}


def alarm_rate(kind: str, baseline_runs: int, *, false_alarm: float = 0.05, looks: int = 20, n: int = 10_000) -> float:
    """Share of *n* driftless series that alarm within *looks*, the baseline being estimated from the series' own runs."""
    g = np.random.default_rng([7, baseline_runs])
    base = 0.4 + 0.02 * g.standard_normal((n, baseline_runs))
    z = (0.4 + 0.02 * g.standard_normal((n, looks)) - base.mean(1, keepdims=True)) / base.std(1, ddof=1, keepdims=True)
    c = charts(z)
    top = np.maximum(c["up"], c["down"]) if kind == "cusum" else np.abs(c["ewma"]) / c["ewma_sd"]
    limit = monitor_limit(kind, looks=looks, false_alarm=false_alarm, baseline_runs=baseline_runs)
    return float((top.max(1) > limit).mean())


@pytest.mark.parametrize("kind", ["cusum", "ewma"])
@pytest.mark.parametrize("baseline_runs", [5, 20, 100])
def test_a_chart_without_drift_alarms_at_the_declared_rate(kind, baseline_runs):
    assert alarm_rate(kind, baseline_runs) == pytest.approx(0.05, abs=0.01)


def test_a_limit_that_ignores_the_baselines_noise_alarms_too_often():
    g = np.random.default_rng(8)
    base, x = g.standard_normal((10_000, 20)), g.standard_normal((10_000, 20))
    z = (x - base.mean(1, keepdims=True)) / base.std(1, ddof=1, keepdims=True)
    c = charts(z)
    naive = monitor_limit("cusum", looks=20, false_alarm=0.05, baseline_runs=None)
    assert (np.maximum(c["up"], c["down"]).max(1) > naive).mean() > 0.08
