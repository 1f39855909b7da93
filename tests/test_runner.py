"""A run is a directory that can be stopped, continued, replayed and read; bad input leaves nothing behind."""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest

from tests.scripted import Scripted, corpus, verdict
from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import JudgeError, ReplayMiss, RunMismatch, SetupError
from workbench.runner import Run, replayed, run, sync
from workbench.schema import RiskLevel


def pair(one=None, two=None, **settings):
    return DoubleConfirmation(
        Scripted("one", one or (lambda _: verdict())), Scripted("two", two or (lambda _: verdict())), **settings
    )


def go(pipeline, dialogues, **kw):
    return asyncio.run(run(pipeline, dialogues, progress=False, **kw))


def test_one_row_per_assessment_and_one_per_outcome(tmp_path):
    r = go(pair(), corpus(6), out=tmp_path / "r", repeats=2)

    assert (len(r.frame), len(r.outcomes)) == (24, 12)
    assert r.manifest["status"] == "complete"
    assert set(r.frame.tier) == {"L1", "L2"}
    assert r.outcomes.confirmed.all()
    assert repr(r) == "Run('r', dialogues=6, done=12/12, unknown=0, status='complete')"


def test_a_run_reads_the_same_when_opened_again(tmp_path):
    r = go(pair(), corpus(), out=tmp_path / "r")
    again = Run.open(tmp_path / "r")

    pd.testing.assert_frame_equal(r.frame, again.frame)
    pd.testing.assert_frame_equal(r.outcomes, again.outcomes)


def test_missing_is_missing_and_never_zero(tmp_path):
    r = go(pair(two=lambda _: JudgeError("timeout")), corpus(2), out=tmp_path / "r")
    l2 = r.frame[r.frame.tier == "L2"]

    assert list(l2.level) == ["unknown", "unknown"]
    assert l2[["rank", "confidence", "score", "dim_anxiety", "flag_joke"]].isna().all(axis=None)
    assert list(l2.reason) == ["timeout", "timeout"]
    assert not r.outcomes.confirmed.any()
    assert r.manifest["unknown"] == 2


def test_replay_gives_the_same_tables_and_asks_nobody(tmp_path):
    r = go(
        pair(two=lambda q: "no json" if "3" in q.prompt.view.text else verdict("high")),
        corpus(),
        out=tmp_path / "r",
        arms=[Arm(), Arm("low", anchor="told_low")],
    )
    for judge in r.pipeline.judges:
        judge.answer = None
    frame, outcomes = replayed(r)

    pd.testing.assert_frame_equal(frame, r.frame)
    pd.testing.assert_frame_equal(outcomes, r.outcomes)


def test_a_replay_with_another_prompt_misses(tmp_path):
    r = go(pair(), corpus(2), out=tmp_path / "r")
    r._pipeline = pair(context="none", trend="none", version="v1-short")

    with pytest.raises(ReplayMiss):
        replayed(r)


def test_resume_tries_only_what_failed(tmp_path):
    broken = pair(two=lambda q: JudgeError("api_error") if "4" in q.prompt.view.text else verdict())
    first = go(broken, corpus(), out=tmp_path / "r")
    mended = pair()
    second = go(mended, corpus(), out=tmp_path / "r", resume=True)

    assert first.manifest["unknown"] == 1
    assert [len(j.seen) for j in mended.judges] == [0, 1]
    assert (second.outcomes.l2_level != "unknown").all()
    assert second.manifest["done"] == 6


def test_cancelling_leaves_a_run_that_can_be_resumed(tmp_path):
    class Slow(Scripted):
        async def answer(self, request):
            await asyncio.sleep(0.01 if len(self.seen) < 4 else 60)
            return await super().answer(request)

    async def cancelled():
        pipeline = DoubleConfirmation(Slow("one", lambda _: verdict()), Scripted("two", lambda _: verdict()))
        task = asyncio.create_task(run(pipeline, corpus(), out=tmp_path / "r", concurrency=1, progress=False))
        await asyncio.sleep(0.4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    stopped = Run.open(tmp_path / "r").manifest
    mended = pair()
    whole = go(mended, corpus(), out=tmp_path / "r", resume=True)

    assert stopped["status"] == "interrupted"
    assert 0 < stopped["done"] < 6
    assert len(mended.judges[0].seen) == 6 - stopped["done"]
    assert len(whole.outcomes) == 6


def test_another_configuration_is_not_mixed_in(tmp_path):
    go(pair(), corpus(), out=tmp_path / "r")

    with pytest.raises(SetupError, match="--resume to continue it, --fresh"):
        go(pair(), corpus(), out=tmp_path / "r")
    with pytest.raises(RunMismatch, match=r"pipeline\.combine"):
        go(pair(combine="or"), corpus(), out=tmp_path / "r", resume=True)
    with pytest.raises(RunMismatch, match="corpus_sha256"):
        go(pair(), corpus(4), out=tmp_path / "r", resume=True)
    assert len(go(pair(combine="or"), corpus(4), out=tmp_path / "r", fresh=True).outcomes) == 4


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"repeats": 0}, "repeats"),
        ({"arms": []}, "arms"),
        ({"arms": [Arm(), Arm()]}, "arms"),
        ({"turns": "some"}, "turns"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_bad_settings_leave_nothing_behind(tmp_path, wrong, says):
    with pytest.raises(SetupError, match=says):
        go(pair(), corpus(), out=tmp_path / "r", **wrong)
    assert not (tmp_path / "r").exists()


def test_no_dialogue_and_a_foreign_folder_are_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")

    with pytest.raises(SetupError, match="no dialogue"):
        go(pair(), [], out=tmp_path / "r")
    with pytest.raises(SetupError, match="not a run directory"):
        go(pair(), corpus(), out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_every_arm_shares_one_l1_and_the_order_is_random_but_recorded(tmp_path):
    arms = [Arm(), Arm("low", anchor="told_low"), Arm("critical", anchor="told_critical", told=RiskLevel.CRITICAL)]
    pipeline = pair()
    r = go(pipeline, corpus(12), out=tmp_path / "r", arms=arms)

    assert len(pipeline.judges[0].seen) == 12
    assert len(pipeline.judges[1].seen) == 36
    assert all(sorted(part.order) == [0, 1, 2] for _, part in r.outcomes.groupby("dialogue_id"))
    assert r.outcomes.groupby("arm").order.nunique().gt(1).all()


def test_all_turns_assesses_every_user_turn_against_its_own_gold(tmp_path):
    from workbench.corpus import load_corpus

    d = next(d for d in load_corpus() if d.n_user_turns == 3)
    r = go(pair(), [d], out=tmp_path / "r", turns="all")

    assert list(r.outcomes.turn) == [0, 1, 2]
    assert list(r.outcomes.gold_level) == [t.gold.risk_level.value for t in d.turns if t.role == "user"]


def test_sync_works_from_a_script_and_inside_a_running_loop():
    async def seven():
        return 7

    async def inside():
        return sync(seven())

    assert sync(seven()) == 7
    assert asyncio.run(inside()) == 7


def test_a_run_without_a_place_lasts_as_long_as_its_object():
    r = go(pair(), corpus(2))
    folder = r.path

    assert len(r.outcomes) == 2
    del r
    assert not folder.exists()


def test_the_manifest_has_no_text_and_the_dialogues_are_kept(tmp_path):
    go(pair(), corpus(2), out=tmp_path / "r")

    assert "text number" not in (tmp_path / "r/manifest.json").read_text()
    assert [json.loads(line)["id"] for line in (tmp_path / "r/dialogues.jsonl").read_text().splitlines()] == ["d0", "d1"]


def test_an_arm_with_its_own_judge_replays_as_that_judge_and_is_exposed_as_it(tmp_path):
    from workbench.judges.registry import judge
    from workbench.judges.simulated import planted_corpus

    made, _ = planted_corpus(6, seed=2)
    other = judge("simulated", name="other", seed=9, bias=1.0)
    pair = DoubleConfirmation(judge("cue"), judge("simulated", name="one", seed=1))
    r = go(pair, made, out=tmp_path / "r", arms=[Arm(), Arm("other", judge=other)])
    frame, outcomes = replayed(Run.open(tmp_path / "r"))

    pd.testing.assert_frame_equal(frame, r.frame)
    pd.testing.assert_frame_equal(outcomes, r.outcomes)
    assert set(r.frame[(r.frame.arm == "other") & (r.frame.tier == "L2")].judge) == {"other"}
