"""What is planted in simulated judges comes out of a whole run: prompts, parser, pipeline, frames and statistics together."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.confirm import Arm, DoubleConfirmation
from workbench.judges.simulated import SimulatedJudge, planted_corpus, severities
from workbench.runner import run, sync
from workbench.schema import RiskLevel
from workbench.stats.dependence import error_dependence
from workbench.stats.drift import flip_rate
from workbench.stats.paired import sign_flip
from workbench.stats.proportions import bounds
from workbench.stats.resample import mean

ARMS = (Arm(), Arm("low", "told_low", RiskLevel.LOW), Arm("critical", "told_critical", RiskLevel.CRITICAL))


def outcomes(dialogues, truth, *, arms=(Arm(),), repeats=1, shared=0, **planted):
    table = severities(truth)
    pair = (SimulatedJudge(table, name=f"sim-{seed}", seed=seed, shared_seed=shared, **planted) for seed in (1, 2))
    return sync(
        run(DoubleConfirmation(*pair), dialogues, arms=arms, repeats=repeats, progress=False, parse_retry="none")
    ).outcomes


def by_arm(frame, column):
    return frame.pivot(index="dialogue_id", columns="arm", values=column)


@pytest.fixture(scope="module")
def corpus():
    return planted_corpus(240, 4, families=60)


def test_planted_anchoring_is_found_and_its_absence_is_not(corpus):
    told = by_arm(outcomes(*corpus, arms=ARMS, anchoring=0.3), "l2_score").astype(float)
    shift = mean(
        told["critical"] - told["low"], name="shift", cluster=corpus[1].set_index("dialogue_id").loc[told.index, "family"]
    )
    assert shift.low > 0.1
    assert shift.n_cluster == 60
    blind = by_arm(outcomes(*corpus, arms=ARMS, anchoring=0.0), "l2_score").astype(float)
    assert sign_flip(blind["critical"] - blind["low"], n_resamples=500).p > 0.01


def test_a_blind_pipeline_leaks_nothing_to_a_judge_that_would_follow(corpus):
    follower, deaf = (outcomes(*corpus, anchoring=w) for w in (1.0, 0.0))
    assert follower["l2_level"].tolist() == deaf["l2_level"].tolist()


def test_shared_errors_raise_the_lift_of_joint_false_alarms():
    dialogues, truth = planted_corpus(600, 5, shift=0.8)
    lifts = {}
    for rho in (0.0, 0.95):
        o = outcomes(dialogues, truth, rho=rho, persistent=1.0)
        calm = o[o["gold_level"] != "critical"]
        lifts[rho] = error_dependence(calm["l1_level"] == "critical", calm["l2_level"] == "critical", n_resamples=50)["phi"].value
    assert lifts[0.95] > lifts[0.0] + 0.2


def test_repeat_noise_comes_out_as_flips_and_a_deterministic_judge_has_none(corpus):
    dialogues, truth = corpus
    rates = []
    for noise in (0.0, 0.3):
        o = outcomes(dialogues[:60], truth[truth["dialogue_id"].isin([d.id for d in dialogues[:60]])], repeats=3, noise=noise)
        rates.append(flip_rate(o.pivot(index="dialogue_id", columns="repeat", values="l1_level").to_numpy()))
    assert rates[0].value == 0 and rates[0].status == "degenerate"
    assert 0.1 < rates[1].value < 0.4


def test_malformed_answers_become_unknowns_that_are_counted_and_bounded(corpus):
    o = outcomes(*corpus, malformed=0.2)
    critical = np.where(o["l1_level"] == "unknown", np.nan, (o["l1_level"] == "critical").astype(float))
    e = bounds(critical, name="critical")
    assert e.n == 240 and 25 <= e.n_unknown <= 75
    assert not o.loc[o["l1_level"] == "unknown", "confirmed"].any()
