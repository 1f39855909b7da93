"""Independence and thresholds: planted dependence is recovered, and every number can be recomputed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.study_samples import planted
from workbench import study
from workbench.stats.proportions import clopper_pearson
from workbench.study._independence import theory


@pytest.fixture(scope="module")
def material():
    return planted(300, families=100, repeats=2, rho=0.5, malformed=0.02, flag=0.05)


@pytest.fixture(scope="module")
def joint(material):
    return study.independence(material)


@pytest.fixture(scope="module")
def gates(material):
    return study.thresholds(material)


# statistics of double confirmation, Gaussian copula with equal margins: FPR 5 %, rho .5 -> joint 1.22 %; FPR 1 %, rho .5 -> .129 %
@pytest.mark.parametrize(
    ("p", "rho", "expected"), [(0.05, 0.0, 0.0025), (0.05, 0.495, 0.0121), (0.01, 0.495, 0.00127), (0.10, 0.0, 0.01)]
)
def test_the_model_curves_are_the_published_ones(p, rho, expected):
    row = theory()[(theory()["p"] == p) & np.isclose(theory()["rho"], rho)]

    assert float(row["joint"].iloc[0]) == pytest.approx(expected, rel=0.02)
    assert float(row["t4"].iloc[0]) > float(row["joint"].iloc[0])


def test_the_gain_over_one_stricter_judge_shrinks_to_nothing():
    # binormal, sensitivity .90, FPR 5 %: 8.1x at rho 0
    rows = theory()[theory()["p"] == 0.05]

    assert float(rows["gain"].iloc[0]) == pytest.approx(8.1, rel=0.01)
    assert float(rows["gain"].iloc[-1]) < 1.1
    assert rows["gain"].is_monotonic_decreasing


def test_the_joint_rate_is_what_counting_gives(joint):
    pair = joint.frames["pairs"].query("pair == 'L1 x L2' and gold_level != 'critical'").dropna(subset=["hit_1", "hit_2"])
    both = (pair["hit_1"] & pair["hit_2"]).astype(bool)

    assert joint["L1 x L2: joint"].value == pytest.approx(both.mean())
    assert joint["L1 x L2: lift"].value == pytest.approx(both.mean() / (pair["hit_1"].mean() * pair["hit_2"].mean()))
    assert joint["L1 x L2: joint"].n == len(pair)
    # with families as the unit the interval is never narrower than that of independent rows
    low, high = clopper_pearson(int(both.sum()), len(pair))
    assert joint["L1 x L2: joint"].low <= low and joint["L1 x L2: joint"].high >= high - 1e-9


def test_every_repeat_of_one_is_paired_with_every_repeat_of_the_other(joint):
    pair = joint.frames["pairs"].query("pair == 'L1 x L2'")

    assert (pair.groupby("dialogue_id").size() == 4).all()
    assert set(joint.frames["pairs"].query("pair == 'L1 twice'")["repeat_1"]) == {0}


def test_planted_dependence_raises_the_lift():
    loose, tied = (study.independence(planted(400, families=400, rho=r, seed=3)) for r in (0.0, 0.95))

    assert loose["L1 x L2: lift"].high < tied["L1 x L2: lift"].value
    assert loose["L1 x L2: effective_judges"].value > tied["L1 x L2: effective_judges"].value
    assert loose["permuted: lift"].low <= 1 <= loose["permuted: lift"].high
    assert loose["permuted: lift"].value == pytest.approx(1, abs=0.2)


def test_a_judge_with_itself_is_the_upper_reference(joint):
    assert joint["L1 twice: lift"].value > joint["permuted: lift"].high


def test_repeats_of_a_deterministic_judge_are_not_a_control():
    result = study.independence(planted(60, families=30, kind="rules", repeats=2))

    assert result["L1 twice: lift"].status == result["L2 twice: lift"].status == "not_applicable"
    assert "L1 twice: joint" not in {r.name for r in result.estimates}


def test_one_repeat_is_no_control_either():
    assert study.independence(planted(60, families=30))["L1 twice: lift"].status == "not_applicable"


def test_unknown_is_bounded_and_never_a_miss_hidden(joint, material):
    named = {r.name: r for r in joint.estimates}
    missed = named["L1 x L2: missed by either"]
    outcomes = material.outcomes

    assert named["L1 x L2: joint"].n_unknown > 0
    assert (
        named["L1 x L2: joint, unknown bounded"].low
        <= named["L1 x L2: joint"].value
        <= named["L1 x L2: joint, unknown bounded"].high
    )
    assert missed.n == 4 * outcomes[outcomes.gold_level == "critical"].dialogue_id.nunique() and missed.n_unknown == 0


def test_another_run_and_anchored_arms_become_pairs_of_their_own(material):
    from workbench.confirm import Arm

    arms = planted(80, families=40, arms=(Arm(), Arm(name="told_l1", anchor="told_l1")), w=0.5)
    result = study.independence(arms, others={"other family": planted(80, families=40, rho=0.0)})

    assert {"L1 x L2", "L1 x L2 (told_l1)", "other family"} <= set(result.frames["pairs"]["pair"])
    assert result["other family: joint"].n == result["L1 x L2: joint"].n


def test_the_fair_comparison_is_at_the_same_sensitivity(joint):
    pair = joint.frames["pairs"].query("pair == 'L1 x L2'")
    critical = (pair["gold_level"] == "critical").to_numpy(bool)
    both = (pair["hit_1"] & pair["hit_2"]).fillna(False).to_numpy(bool)
    score = pair["score_1"].astype(float).fillna(-1).to_numpy()
    target = both[critical].mean()
    # brute force: the two thresholds that bracket the sensitivity bracket the false-alarm rate
    cuts = sorted(set(score), reverse=True)
    rates = [((score[critical] >= t).mean(), (score[~critical] >= t).mean()) for t in cuts]
    below = max(f for s, f in rates if s <= target)
    above = min(f for s, f in rates if s >= target)

    assert joint["false alarms at equal sensitivity: both"].value == pytest.approx(both[~critical].mean())
    assert below <= joint["false alarms at equal sensitivity: L1 stricter"].value <= above


def test_the_waterfall_ends_where_the_gate_ends(joint, material):
    rows = material.outcomes[material.outcomes.gold_level != "critical"]
    fall = joint.frames["waterfall"]

    assert fall["value"].iloc[0] == 1000
    assert fall["value"].is_monotonic_decreasing
    assert fall["value"].iloc[-1] == pytest.approx(1000 * rows.confirmed.mean())


def test_ppv_follows_bayes(joint):
    row = joint.frames["ppv"].query("series == 'both'").iloc[-1]
    sens, fpr = 1 - joint["L1 x L2: missed by either"].value, joint["L1 x L2: joint"].value

    assert row["x"] == pytest.approx(0.1)
    assert row["y"] == pytest.approx(0.1 * sens / (0.1 * sens + 0.9 * fpr))
    assert row["low"] <= row["y"] <= row["high"]


def test_disagreement_is_worth_what_l2_gets_right(joint):
    pair = joint.frames["pairs"].query(
        "pair == 'L1 x L2' and level_1 != 'unknown' and level_2 != 'unknown' and level_1 != level_2"
    )

    assert joint["L1 x L2: L2 right where they differ"].value == pytest.approx((pair["level_2"] == pair["gold_level"]).mean())


def test_the_whole_gate_is_stricter_than_the_level(material, joint):
    assert study.independence(material, at="gate")["L1 x L2: rate_first"].value < joint["L1 x L2: rate_first"].value


# -- thresholds ----------------------------------------------------------------------------------------------------------


def test_the_sweep_meets_the_stored_outcomes_at_the_gate_in_use(gates, material):
    rows = material.outcomes
    at = gates.frames["sweep"].query("need_1 == 'critical' and need_2 == 'critical' and t1 == 0.85 and t2 == 0.85").iloc[0]

    assert at["confirm_rate"] == pytest.approx(rows.confirmed.mean())
    assert at["sens"] == pytest.approx(rows.confirmed[rows.gold_level == "critical"].mean())
    assert gates["sensitivity at the gate"].value == pytest.approx(at["sens"])
    assert gates["false confirmations at the gate"].value == pytest.approx(at["fpr"])


def test_a_stricter_gate_never_confirms_more(gates):
    sweep = gates.frames["sweep"].astype({"confirm_rate": float})

    for _, part in sweep.groupby(["need_1", "need_2", "t2"]):
        assert part.sort_values("t1")["confirm_rate"].is_monotonic_decreasing
    assert (sweep.query("need_1 == 'high' and need_2 == 'high'")["confirm_rate"].to_numpy()
            >= sweep.query("need_1 == 'critical' and need_2 == 'critical'")["confirm_rate"].to_numpy() - 1e-12).all()  # fmt: skip


def test_thresholds_need_no_pipeline_and_so_make_no_call(material):
    assert material.pipeline is None
    assert study.thresholds(material)["chosen gate L1"].value is not None


def test_what_decided_is_counted_from_the_conditions(gates, material):
    alone = (material.outcomes.blocked_by.fillna("") == "l1_confidence").mean()

    assert gates["decided by confidence L1"].value == pytest.approx(alone)
    assert gates["decided by a flag"].value == pytest.approx(
        material.outcomes.blocked_by.isin(["l1_no_flags", "l2_no_flags", "l1_no_flags;l2_no_flags"]).mean()
    )


def test_the_mass_exactly_at_the_gate_is_found():
    m = planted(80, families=40)
    lumpy = replace(
        m, frame=m.frame.assign(confidence=pd.array(np.where(np.arange(len(m.frame)) % 4 == 0, 0.85, 0.9), "Float64"))
    )

    assert study.thresholds(lumpy)["confidence exactly at the gate"].value == pytest.approx(0.25)


def test_a_chosen_gate_looks_better_where_it_was_chosen():
    # statistics: tuned and reported on the same 200 dialogues, the cost shows 66 % of what it is
    gaps = []
    for seed in range(6):
        r = study.thresholds(planted(120, families=40, seed=seed, enrich=0.8), cost_fn=3.0, n_resamples=50)
        gaps.append(r["cost on other families"].value - r["cost where it was chosen"].value)

    assert min(gaps) >= -1e-12
    assert np.mean(gaps) > 0


def test_the_spread_of_the_chosen_gate_is_shown(gates):
    cloud = gates.frames["chosen"]

    assert cloud["n"].sum() == 500
    assert gates["chosen gate L1"].low <= gates["chosen gate L1"].value <= gates["chosen gate L1"].high


def test_calibration_is_judged_against_a_calibrated_judge(gates):
    assert gates["ECE L1"].status == "too_few" or gates["ECE L1"].n >= 1000
    assert gates["calibration L1"].p is not None
    bins = gates.frames["reliability L1"]
    assert (bins["null_low"] <= bins["x"] + 0.15).all() and (bins["null_high"] >= bins["x"] - 0.15).all()


def test_the_cost_curve_is_the_cost_of_each_rule(gates, material):
    rows, c = material.outcomes, (material.outcomes.gold_level == "critical").to_numpy(bool)
    confirmed = rows.confirmed.to_numpy(bool)
    row = gates.frames["cost"].query("series == 'both' and x == 10").iloc[0]

    assert row["y"] == pytest.approx((10 * (c & ~confirmed).sum() + (~c & confirmed).sum()) / (10 * c.sum() + (~c).sum()))
    assert math.isfinite(row["y"])
