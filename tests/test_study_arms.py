"""Anchoring, ablation and drift through the real runner and the simulated judge: what is planted comes back, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.study_samples import planted
from workbench import study
from workbench.confirm import Arm
from workbench.errors import SetupError
from workbench.judges.simulated import SimulatedJudge, planted_corpus, severities
from workbench.prompts import ANCHOR_KINDS
from workbench.study._anchoring import arms_for
from workbench.study._arms import contrast, noise
from workbench.study._drift import _snapshot


def pipeline(truth: pd.DataFrame, **planted: float) -> wb.DoubleConfirmation:
    table = severities(truth)
    return wb.DoubleConfirmation(
        SimulatedJudge(table, name="sim-1", seed=1), SimulatedJudge(table, name="sim-2", seed=2, **planted)
    )


@pytest.fixture(scope="module")
def corpus():
    return planted_corpus(60, 3, families=60, shift=0.3)


@pytest.fixture(scope="module")
def anchored(corpus):
    dialogues, truth = corpus
    return study.anchoring(pipeline(truth, anchoring=0.5), dialogues, paraphrases=3, repeats=2)


@pytest.fixture(scope="module")
def unmoved(corpus):
    dialogues, truth = corpus
    return study.anchoring(pipeline(truth, anchoring=0.0), dialogues, arms=["told_low", "told_critical", "neutral"], repeats=2)


def test_every_kind_has_three_wordings_and_a_blind_arm():
    arms = arms_for()

    assert {a.name for a in arms} == {"blind", *ANCHOR_KINDS, "told_medium", "told_high"}
    assert all(sum(a.name == kind for a in arms) == 3 for kind in ANCHOR_KINDS)
    assert len({(a.name, a.paraphrase) for a in arms}) == len(arms)


def test_a_planted_anchor_is_found(anchored):
    # planted weight .5 between the anchors at -1 and 2 on the latent scale; the score is a monotone function of it
    assert anchored["anchoring index"].low > 0.2
    assert anchored["no anchoring"].p < 0.001
    assert anchored["anchoring within the margin"].p > 0.5
    assert anchored["told_critical: net towards"].low > 0
    assert anchored["told_low: net towards"].low > 0
    assert anchored["dose response per level told"].low > 0


def test_arms_that_name_no_level_move_nothing(anchored):
    for arm in ("neutral", "irrelevant_number"):
        e = anchored[f"{arm}: score shift"]
        assert e.low < 0.02 and e.high > -0.02
        assert (
            anchored[f"{arm}: net flips"].low < 0 < anchored[f"{arm}: net flips"].high
            or abs(anchored[f"{arm}: net flips"].value) < 0.1
        )


def test_no_anchoring_is_shown_by_equivalence_not_by_a_large_p(unmoved):
    assert unmoved["anchoring index"].low < 0 < unmoved["anchoring index"].high
    assert unmoved["anchoring within the margin"].p < 0.05
    assert unmoved["told_critical: net towards"].low < 0.05


def test_wordings_of_one_anchor_are_compared(anchored, unmoved):
    assert 0 < anchored["told_low: flips between wordings"].value < 0.5
    assert anchored["told_low: flips between wordings"].n == 60


def test_contrasts_are_adjusted_as_one_family(anchored):
    tests = [r for r in anchored.estimates if r.name.endswith(" = blind")]

    assert {t.adjustment for t in tests} == {"holm"}
    assert all(t.p_adjusted >= t.p for t in tests)


def test_the_order_of_arms_is_random_per_dialogue_and_recorded(anchored):
    order = anchored.frames["order"]

    assert (order.groupby("arm")["order"].nunique() > 5).all()


def test_told_the_truth_splits_into_benefit_and_damage(anchored):
    names = {r.name for r in anchored.estimates}

    assert {
        "benefit",
        "damage",
        "false together, blind: joint",
        "false together, told_l1: joint",
        "disagreement with L1, told_l1",
    } <= names
    assert anchored["benefit"].value > 0.3
    assert anchored["disagreement with L1, told_l1"].value < anchored["disagreement with L1, blind"].value


def test_a_judge_that_cannot_read_an_anchor_is_not_applicable_and_not_asked(corpus):
    class Deaf(SimulatedJudge):
        reads_anchor = False

        async def answer(self, request):
            raise AssertionError("asked")

    dialogues, truth = corpus
    deaf = wb.DoubleConfirmation(pipeline(truth).l1, Deaf(severities(truth), name="deaf"))
    result = study.anchoring(deaf, dialogues)

    assert [r.status for r in result.estimates] == ["not_applicable"]
    assert "cannot read an anchor" in result.summary()[0] and result.figures() == {}


def test_offline_judges_say_not_applicable():
    result = study.anchoring(wb.DoubleConfirmation(wb.judge("cue"), wb.judge("cue")), wb.load_corpus("data/dialogues", limit=2))

    assert result["anchoring index"].status == "not_applicable"


def test_a_stored_run_is_studied_without_a_call(corpus, tmp_path, monkeypatch):
    dialogues, truth = corpus
    arms = arms_for(["told_low", "told_critical"], paraphrases=1, doses=False)
    wb.sync(wb.run(pipeline(truth, anchoring=0.5), dialogues[:20], arms=arms, repeats=2, out=tmp_path / "run", progress=False))

    async def refuse(self, request):
        raise AssertionError("a call was made")

    monkeypatch.setattr(SimulatedJudge, "answer", refuse)
    result = study.anchoring(str(tmp_path / "run"))

    assert result["anchoring index"].n == 20
    assert study.drift(str(tmp_path / "run")).name == "drift"
    assert study.independence(str(tmp_path / "run"))["L1 x L2 (told_low): joint"].n > 0


def test_a_run_without_told_arms_is_refused():
    with pytest.raises(SetupError, match="at least one told arm"):
        study.anchoring(planted(10))


def test_the_noise_floor_of_identical_repeats_is_known_or_said_to_be_missing():
    assert noise(planted(20, kind="rules")).eq(0).all()
    assert noise(planted(20)).status == "not_applicable"
    assert noise(planted(20, repeats=3)).between(0, 1).all()


def test_contrasts_count_what_they_name():
    m = planted(40, families=20, arms=(Arm(), Arm(name="told_critical", anchor="told_critical")), w=0.5)
    found = {r.name: r for r in contrast(m, "told_critical")}
    wide = m.outcomes.pivot(index="dialogue_id", columns="arm", values="l2_level")
    flags = m.outcomes.pivot(index="dialogue_id", columns="arm", values="confirmed")

    assert found["told_critical: flips"].value == pytest.approx((wide["blind"] != wide["told_critical"]).mean())
    assert found["told_critical: confirm flips"].value == pytest.approx((flags["blind"] != flags["told_critical"]).mean())
    assert found["told_critical: net flips"].status == "not_applicable"


# -- ablation ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ablated(corpus):
    dialogues, truth = corpus
    return study.ablation(pipeline(truth, noise=0.0), dialogues[:40])


def test_one_thing_is_changed_at_a_time(ablated):
    arms = {r.name.split(":")[0] for r in ablated.estimates if r.name.endswith("score shift")}

    assert {
        "context none",
        "context user",
        "trend none",
        "trend from_l1",
        "trend flipped",
        "prompt of L1",
        "model of L1",
        "prompt and model of L1",
    } == arms


def test_a_judge_that_reads_only_the_text_does_not_move_with_its_view(ablated):
    for arm in ("context none", "trend none", "prompt of L1"):
        assert ablated[f"{arm}: flips"].value == 0
    assert ablated["model of L1: flips"].value > 0
    assert ablated["prompt and model of L1: score shift"].value == pytest.approx(
        ablated["model of L1: score shift"].value, abs=0.05
    )


def test_judges_that_read_no_prompt_say_so():
    result = study.ablation(wb.DoubleConfirmation(wb.judge("cue"), wb.judge("cue")), wb.load_corpus("data/dialogues", limit=12))

    assert result["prompt of L1: score shift"].status == "not_applicable"
    assert "context none: score shift" in {r.name for r in result.estimates}


def test_ablation_needs_arms():
    with pytest.raises(SetupError, match="other arms"):
        study.ablation(planted(10))


# -- drift ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long():
    return planted_corpus(50, 8, families=50, turns=6)


def test_a_planted_drift_over_turns_is_found_and_its_control_is_flat(long):
    dialogues, truth = long
    result = study.drift(pipeline(truth, drift=0.3), dialogues, repeats=1)

    # .3 latent SD per turn is .03 or more on the score, whose four levels span about 3.2 SD
    assert result["score error slope [L2]"].low > 0.02
    assert result["score error slope [L1]"].low < 0.01 and result["score error slope [L1]"].high > -0.01
    assert abs(result["turns shuffled slope [L2]"].value) < 0.015
    assert result["farewell slope is 0 [L2]"].p_adjusted < 0.05


def test_without_drift_the_slope_covers_zero(long):
    dialogues, truth = long
    e = study.drift(pipeline(truth), dialogues, repeats=1)["score error slope [L2]"]

    assert e.low < 0 < e.high


def test_each_turn_is_judged_against_its_own_gold(long):
    dialogues, truth = long
    turns = study.drift(pipeline(truth), dialogues[:20], repeats=1).frames["turns"].query("tier == 'L2' and what == 'right'")

    assert list(turns["x"]) == [0, 1, 2, 3, 4, 5]
    assert set(turns["n"]) == {20}
    assert turns["low"].min() >= 0 and turns["high"].max() <= 1


def test_repeat_noise_is_measured_and_a_deterministic_judge_has_none():
    noisy = study.drift(planted(60, families=30, repeats=3))
    fixed = study.drift(planted(60, families=30, repeats=3, kind="rules"))

    assert noisy["flip rate over repeats [L2]"].value > 0.05
    assert noisy["score SD over repeats [L2]"].value > 0
    assert fixed["flip rate over repeats [L2]"].status == fixed["reliability over repeats (ICC) [L2]"].status == "not_applicable"


def test_two_snapshots_of_one_judge_have_no_excess_flips_though_they_differ():
    # the same judge on another day: each dialogue's six draws are dealt anew to two days of three repeats
    six, excess, p = planted(60, families=60, repeats=6), [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        deal = {(d, r): int(i) for d in six.frame.dialogue_id.unique() for r, i in enumerate(rng.permutation(6))}
        place = np.array([deal[d, r] for d, r in zip(six.frame.dialogue_id, six.frame.repeat, strict=True)])
        first, again = (
            replace(six, frame=six.frame[place // 3 == day].assign(repeat=place[place // 3 == day] % 3)) for day in (0, 1)
        )
        found = {r.name: r for r in _snapshot(first, again, "later", seed)}
        assert found["later: raw flips [L2]"].value > 0.1
        excess.append(found["later: excess flips [L2]"].value)
        p.append(found["later: nothing changed [L2]"].p)

    assert abs(np.mean(excess)) < 0.015
    assert np.mean(np.array(p) < 0.05) <= 0.25 and np.median(p) > 0.2


def test_intervals_stay_where_values_exist():
    m = planted(4, families=2, repeats=2)
    result = study.drift(m, against=m)

    for e in result.estimates:
        if "flip" in e.name and getattr(e, "low", None) is not None:
            assert -1 <= e.low <= e.high <= 1, e


def test_arms_are_snapshots_of_l2_only():
    m = planted(30, families=15, repeats=2, arms=(Arm(), Arm(name="told_low", anchor="told_low")))
    names = {r.name for r in study.drift(m).estimates}

    assert "told_low: score difference [L2]" in names and "told_low: score difference [L1]" not in names


def test_a_shifted_snapshot_is_found_in_scores():
    first, later = planted(80, families=80, repeats=2), planted(80, families=80, repeats=2, shift=(0.0, 0.3))
    result = study.drift(first, against=later)

    assert result["later: score difference [L2]"].low > 0
    assert result["later: same scores [L2]"].p < 0.01


def test_returned_models_are_listed_per_snapshot(corpus):
    dialogues, truth = corpus
    run = wb.sync(wb.run(pipeline(truth), dialogues[:5], progress=False))
    models = study.drift(run, against=run).frames["models"]

    assert set(models["snapshot"]) == {"first", "later"}
    assert "simulated-2" in set(models["fingerprint"])


def test_the_monitor_alarms_on_a_shift_and_not_without_one():
    baseline = [planted(40, families=20, seed=7, noise=0.3 + i / 1e6) for i in range(12)]
    still = [planted(40, families=20, seed=7, noise=0.3 + i / 1e6) for i in range(20, 24)]
    moved = [planted(40, families=20, seed=7, noise=0.3 + i / 1e6, shift=(0.0, 0.8)) for i in range(20, 24)]
    # tiny differences of noise leave the draws alike, so the baseline is jittered by hand
    jitter = np.random.default_rng(1)
    baseline, still = (
        [replace(m, frame=m.frame.assign(score=m.frame.score + jitter.normal(0, 0.01))) for m in part]
        for part in (baseline, still)
    )
    quiet, loud = study.drift_monitor(baseline, still), study.drift_monitor(baseline, moved)

    assert (
        quiet["looks until the chart alarms"].status == "undefined"
        and "no alarm in 4 looks" in quiet["looks until the chart alarms"].reason
    )
    assert loud["looks until the chart alarms"].value is not None
    assert loud["looks until the exact test alarms"].value is not None
    assert quiet["achieved false-alarm rate of the exact test"].value <= 0.05
    assert loud.plot().lines


def test_a_baseline_that_never_varies_needs_no_chart():
    same = [planted(20, families=10, seed=7)] * 4

    assert study.drift_monitor(same, same[:2])["looks until the chart alarms"].status == "not_applicable"
