"""Live mode: one message at a time, counted by the local day, and safe whatever breaks."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.misbehaving import CRITICAL
from tests.test_judging import Scripted
from workbench.budget import Price
from workbench.errors import JudgeError, SetupError, StoreError
from workbench.judges.base import Reply, Usage
from workbench.live import Counts, LiveAnalyzer
from workbench.prompts import render
from workbench.schema import RiskLevel, Trend, View
from workbench.store import Store

RISKY = "I have decided to end my life tonight"  # passes the gate
CALM = "the weather is nice"  # does not
SHANGHAI = ZoneInfo("Asia/Shanghai")


def says(level, confidence=0.95, **flags):
    return json.dumps(
        CRITICAL | {"risk_level": level, "confidence": confidence, "context_flags": CRITICAL["context_flags"] | flags}
    )


class Clock:
    def __init__(self, year, month, day, hour=12, minute=0, second=0, tz=SHANGHAI):
        self.now = datetime(year, month, day, hour, minute, second, tzinfo=tz).timestamp()

    def __call__(self):
        return self.now

    def move(self, **delta):
        self.now += timedelta(**delta).total_seconds()


async def no_sleep(_seconds):
    await asyncio.sleep(0)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "live.db", busy_s=0.2) as opened:
        yield opened


def live(store, l1, l2=None, *, session_id="s", **options):
    l1 = l1 if hasattr(l1, "answer") else Scripted(l1, name="one")
    l2 = l2 if hasattr(l2, "answer") else Scripted(l2 or says("critical"), name="two")
    return LiveAnalyzer(
        l1, l2, store, session_id=session_id, **({"clock": Clock(2026, 11, 30), "sleep": no_sleep, "daily_usd": None} | options)
    )


def analyse(analyzer, *texts):
    async def go():
        return [await analyzer.submit(text) for text in texts]

    return asyncio.run(go())


def kept(store, tier=None, session="s"):
    return [body for _, body in store.assessments(session) if tier in (None, body["tier"])]


# -- the order of things (W4, W12 to W16, W22 to W28)


def test_two_critical_answers_confirm_and_both_are_kept(store):
    (outcome,) = analyse(live(store, says("critical")), RISKY)

    assert outcome.confirmed
    assert [(b["tier"], b["level"], b["confirmed"]) for b in kept(store)] == [("L1", "critical", False), ("L2", "critical", True)]


@pytest.mark.parametrize("level", ["low", "medium"])
def test_below_high_l2_is_not_asked(store, level):
    analyzer = live(store, says(level))
    (outcome,) = analyse(analyzer, RISKY)

    assert (outcome.level.value, outcome.l2.reason, outcome.confirmed, outcome.incomplete) == (level, "not_run", False, False)
    assert analyzer._pipeline.l2.asked == []


@pytest.mark.parametrize("level", ["high", "critical"])
def test_high_and_critical_reach_l2(store, level):
    """The ordering fault of the source let critical end at L1 (W69)."""
    analyzer = live(store, says(level), says("low"))
    (outcome,) = analyse(analyzer, RISKY)

    assert len(analyzer._pipeline.l2.asked) == 1
    assert (outcome.level.value, outcome.confirmed) == (level, False)  # an L2 low does not erase what L1 saw


def test_an_unknown_l1_ends_there_and_an_unknown_l2_keeps_l1(store):
    analyzer = live(store, "no idea")
    (first,) = analyse(analyzer, RISKY)
    (second,) = analyse(live(store, says("critical"), "no idea"), RISKY)

    assert (first.l1.reason, first.level.value, analyzer._pipeline.l2.asked) == ("parse_error", "unknown", [])
    assert (second.level.value, second.l2.reason, second.confirmed, second.incomplete) == ("critical", "parse_error", False, True)


def test_a_message_without_a_cue_is_not_analysed_and_leaves_no_record(store):
    analyzer = live(store, says("critical"))
    (outcome,) = analyse(analyzer, CALM)

    assert (outcome.l1.tier, outcome.l1.reason, outcome.level.value, outcome.confirmed) == ("L0", "not_run", "unknown", False)
    assert kept(store) == []
    assert analyzer.counts() == Counts()


@pytest.mark.parametrize("flag", ["fiction", "quote", "third_party", "joke"])
def test_a_flag_on_either_side_blocks(store, flag):
    one = analyse(live(store, says("critical", **{flag: True})), RISKY)[0]
    two = analyse(live(store, says("critical"), says("critical", **{flag: True})), RISKY)[0]

    assert not one.confirmed
    assert not two.confirmed
    assert (one.level.value, two.level.value) == ("medium", "critical")


@pytest.mark.parametrize(("confidence", "confirmed"), [(0.85, True), (0.8499, False)])
def test_the_threshold_is_inclusive(store, confidence, confirmed):
    assert analyse(live(store, says("critical", confidence)), RISKY)[0].confirmed is confirmed


def test_l1_is_kept_before_l2_is_asked(store):
    seen = []

    async def look(request):
        seen.extend(kept(store))
        return Reply(says("critical"))

    analyse(live(store, says("critical"), Scripted(look)), RISKY)

    assert [b["tier"] for b in seen] == ["L1"]


# -- what each may see


def test_l2_sees_the_last_ten_messages_and_l1_only_the_text(store):
    analyzer = live(store, says("critical"))
    for n in range(12):
        analyzer.observe(f"reply {n}")
    analyse(analyzer, RISKY)
    one, two = (j.asked[0].prompt.messages[-1]["content"] for j in (analyzer._pipeline.l1, analyzer._pipeline.l2))

    assert "reply" not in one
    assert ["reply 2" in two, "reply 1\n" in two, "reply 11" in two] == [True, False, True]


def test_after_a_restart_the_context_is_empty_and_the_message_still_read(store):
    analyse(live(store, says("critical")), "hello there", RISKY)
    analyzer = live(store, says("critical"))
    (outcome,) = analyse(analyzer, RISKY)

    assert outcome.confirmed
    assert "hello there" not in analyzer._pipeline.l2.asked[0].prompt.messages[-1]["content"]


@pytest.mark.parametrize("level", ["high", "critical"])
def test_l2s_prompt_tells_nothing_of_l1s_verdict_on_this_message(store, tmp_path, level):
    """Also not through the trend: today's count is taken before L1 has spoken."""
    analyzer = live(store, says(level, 0.777))
    analyse(analyzer, RISKY)
    view = View(text=RISKY, trend=Trend(negative_days_7d=0, consecutive_negative_days=0))

    assert analyzer._pipeline.l2.asked[0].prompt.sha256 == render(view, "L2").sha256


# -- one at a time


def test_a_message_while_busy_is_dropped_with_a_record(store):
    hold = asyncio.Event()

    async def slow(request):
        await hold.wait()
        return Reply(says("critical"))

    analyzer = live(store, Scripted(slow))

    async def go():
        tasks = [analyzer.submit(f"{RISKY} {i}") for i in range(4)]
        assert not any(t.done() for t in tasks)  # submit came back before anything was analysed
        dropped = await asyncio.gather(*tasks[1:])
        hold.set()
        first = await tasks[0]
        return [first, *dropped, await analyzer.submit(RISKY)]

    outcomes = asyncio.run(go())

    assert [o.l1.reason for o in outcomes] == [None, "concurrency_drop", "concurrency_drop", "concurrency_drop", None]
    assert [o.confirmed for o in outcomes] == [True, False, False, False, True]
    assert [(b["tier"], b["level"]) for b in kept(store, "L0")] == [("L0", "unknown")] * 3
    assert analyzer.counts().dropped == 3
    assert len(analyzer._pipeline.l1.asked) == 2


def test_cancelling_an_analysis_frees_the_analyser(store):
    async def forever(request):
        await asyncio.Event().wait()

    analyzer = live(store, Scripted(forever, says("low"), name="one"))

    async def go():
        early = analyzer.submit(RISKY)
        early.cancel()  # before its first step
        await asyncio.gather(early, return_exceptions=True)
        late = analyzer.submit(RISKY)
        await asyncio.sleep(0.05)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        return await analyzer.submit(RISKY)

    assert asyncio.run(go()).level is RiskLevel.LOW


def test_submit_is_quick_however_slow_the_judges_are(store):
    async def slow(request):
        await asyncio.sleep(0.2)
        return Reply(says("low"))

    analyzer = live(store, Scripted(slow))

    async def go():
        await analyzer.submit(CALM)
        started = time.perf_counter()
        analyzer.submit(RISKY)
        took = time.perf_counter() - started
        await analyzer.settled()
        return took

    assert asyncio.run(go()) < 0.05


# -- counting by the day (W52 to W56)


def test_the_cap_counts_l1_questions_failed_ones_too(store):
    failing = Scripted(JudgeError("api_error", "HTTP 500", retryable=True), name="one")
    analyzer = live(store, failing, daily_limit=3)
    outcomes = analyse(analyzer, *[f"{RISKY} {i}" for i in range(5)])

    assert [o.l1.reason for o in outcomes] == ["api_error"] * 3 + ["daily_cap"] * 2
    assert analyzer.counts() == Counts(l1=3, l2=0, retries=3, failures=6, dropped=0)
    assert [b["reason"] for b in kept(store, "L0")] == ["daily_cap"] * 2


def test_l1_l2_retries_and_failures_are_counted_apart(store):
    analyzer = live(
        store,
        Scripted("no idea", says("critical"), name="one"),
        Scripted(JudgeError("timeout", retryable=True), says("critical"), name="two"),
    )
    analyse(analyzer, RISKY)

    assert analyzer.counts() == Counts(l1=1, l2=1, retries=2, failures=2, dropped=0)


def test_the_default_cap_is_forty_and_one_analysis_is_one(store):
    analyzer = live(store, says("critical"))
    outcomes = analyse(analyzer, *[f"{RISKY} {i}" for i in range(42)])

    assert sum(o.confirmed for o in outcomes) == 40
    assert [o.l1.reason for o in outcomes[40:]] == ["daily_cap"] * 2
    assert (analyzer.counts().l1, analyzer.counts().l2) == (40, 40)


def test_a_restart_keeps_the_counts(store, tmp_path):
    clock = Clock(2026, 11, 30)
    analyse(live(store, says("critical"), clock=clock, daily_limit=3), RISKY, RISKY)
    store.close()
    with Store(tmp_path / "live.db") as again:
        analyzer = live(again, says("critical"), clock=clock, daily_limit=3)
        outcomes = analyse(analyzer, RISKY, RISKY)
        assert [o.l1.reason for o in outcomes] == [None, "daily_cap"]
        assert analyzer.counts().l1 == 3


@pytest.mark.parametrize("zone", [SHANGHAI, UTC])
def test_the_day_ends_at_local_midnight(store, zone):
    clock = Clock(2026, 11, 30, 23, 59, 59, tz=zone)
    analyzer = live(store, says("critical"), clock=clock, tz=zone, daily_limit=1)
    assert [o.l1.reason for o in analyse(analyzer, RISKY, RISKY)] == [None, "daily_cap"]
    clock.move(seconds=1)

    assert [o.l1.reason for o in analyse(analyzer, RISKY, RISKY)] == [None, "daily_cap"]
    assert analyzer.counts(date(2026, 11, 30)).l1 == analyzer.counts(date(2026, 12, 1)).l1 == 1


def test_the_same_instant_is_another_day_elsewhere(store):
    clock = Clock(2026, 12, 1, 7, 0, tz=SHANGHAI)  # still 30 November in UTC
    analyse(live(store, says("low"), clock=clock, tz=SHANGHAI, session_id="sh"), RISKY)
    analyse(live(store, says("low"), clock=clock, tz=UTC, session_id="utc"), RISKY)

    assert [day for day, _ in store.assessments("sh")] == ["2026-12-01"]
    assert [day for day, _ in store.assessments("utc")] == ["2026-11-30"]


def test_sessions_are_counted_apart(store):
    analyse(live(store, says("low"), daily_limit=1, session_id="a"), RISKY)

    assert analyse(live(store, says("low"), daily_limit=1, session_id="b"), RISKY)[0].l1.known


def test_a_repeated_message_is_a_new_question(store):
    analyzer = live(store, says("low"))
    analyse(analyzer, RISKY, RISKY)

    assert len(analyzer._pipeline.l1.asked) == 2


def test_money_has_a_budget_of_its_own_and_zero_is_not_unlimited(store):
    def judge():
        return Scripted(Reply(says("critical"), usage=Usage(1000, 100)), name="one", price=Price(10.0, 100.0))

    dear, none = (
        live(store, judge(), judge(), daily_usd=0.15, session_id="a"),
        live(store, judge(), judge(), daily_usd=0.0, session_id="b"),
    )
    spent = [o.l1.reason or o.l2.reason for o in analyse(dear, *[f"{RISKY} {i}" for i in range(5)])]

    assert None in spent
    assert spent[-1] == "budget"
    assert analyse(none, RISKY)[0].l1.reason == "budget"
    with pytest.raises(SetupError, match="must not be negative"):
        live(store, judge(), daily_usd=-1.0)


def test_what_was_spent_today_is_remembered_over_a_restart(store, tmp_path):
    def judge():
        return Scripted(Reply(says("low"), usage=Usage(1000, 900)), name="one", price=Price(10.0, 100.0))

    assert analyse(live(store, judge(), daily_usd=0.15), RISKY)[0].l1.known  # took $0.10
    store.close()
    with Store(tmp_path / "live.db") as again:
        assert analyse(live(again, judge(), daily_usd=0.15), RISKY)[0].l1.reason == "budget"
        tomorrow = Clock(2026, 12, 1)
        assert analyse(live(again, judge(), daily_usd=0.15, clock=tomorrow), RISKY)[0].l1.known


# -- profile and trend


def test_profile_and_trend_follow_the_days(store):
    clock = Clock(2026, 11, 22)
    script = ["critical", "low", "medium", "low", "high", "medium", "high", "high"]  # 22 to 29 November
    for level in script:
        analyse(live(store, says(level), clock=clock), RISKY)
        clock.move(days=1)
    analyzer = live(store, says("low"), clock=clock)

    assert analyzer.trend() == Trend(negative_days_7d=5, consecutive_negative_days=4)  # 24 to 30; today not assessed yet
    assert [d.date.day for d in analyzer.profile()] == [24, 25, 26, 27, 28, 29, 30]
    analyse(analyzer, RISKY)
    assert analyzer.trend() == Trend(negative_days_7d=5, consecutive_negative_days=0)  # today was low
    clock.move(days=1)
    assert analyzer.trend() == Trend(negative_days_7d=4, consecutive_negative_days=0)


def test_the_worst_assessment_makes_the_day_and_unknowns_are_counted(store):
    analyzer = live(store, Scripted(says("low"), says("high"), "no idea", "no idea", says("medium"), name="one"))
    analyse(analyzer, *[f"{RISKY} {i}" for i in range(4)])
    today = analyzer.profile()[-1]

    assert (today.assessments, today.unknown, today.worst, today.negative) == (4, 1, RiskLevel.HIGH, True)


def test_the_trend_reaches_l2(store):
    clock = Clock(2026, 11, 28)
    for _ in range(3):
        analyzer = live(store, says("high"), clock=clock)
        analyse(analyzer, RISKY)
        clock.move(days=1)

    assert analyzer._pipeline.l2.asked[0].prompt.view.trend == Trend(negative_days_7d=2, consecutive_negative_days=2)


# -- when the ledger breaks


def broken_after(store, monkeypatch, n):
    """The n-th assessment record and all later ones fail, as a full disk would make them."""
    count, record = [0], store.record_assessment

    async def failing(*args):
        count[0] += 1
        if count[0] >= n:
            raise StoreError("the ledger refused (database or disk is full): free some space")
        await record(*args)

    monkeypatch.setattr(store, "record_assessment", failing)


def test_when_l1_cannot_be_kept_the_result_comes_and_is_not_confirmed(store, monkeypatch):
    broken_after(store, monkeypatch, 1)
    (outcome,) = analyse(live(store, says("critical")), RISKY)

    assert (outcome.level.value, outcome.l2.reason, outcome.confirmed, outcome.incomplete) == (
        "critical",
        "store_error",
        False,
        True,
    )


def test_when_l2_cannot_be_kept_the_result_comes_and_is_not_confirmed(store, monkeypatch):
    broken_after(store, monkeypatch, 2)
    (outcome,) = analyse(live(store, says("high"), says("critical")), RISKY)

    assert (outcome.level.value, outcome.l2.reason, outcome.confirmed) == ("critical", "store_error", False)
    assert "unknown" in outcome.review_reasons


def test_when_a_drop_cannot_be_kept_the_result_comes(store, monkeypatch):
    hold = asyncio.Event()

    async def slow(request):
        await hold.wait()
        return Reply(says("low"))

    analyzer = live(store, Scripted(slow))
    broken_after(store, monkeypatch, 1)

    async def go():
        first, second = analyzer.submit(RISKY), analyzer.submit(RISKY)
        dropped = await second
        hold.set()
        return dropped, await first

    dropped, first = asyncio.run(go())

    assert dropped.l1.reason == "concurrency_drop"
    assert not dropped.confirmed
    assert not first.confirmed


def test_with_the_whole_ledger_locked_no_call_is_made(store, tmp_path):
    other = sqlite3.connect(tmp_path / "live.db", isolation_level=None)
    other.execute("begin exclusive")
    analyzer = live(store, says("critical"))
    (outcome,) = analyse(analyzer, RISKY)
    other.execute("rollback")
    other.close()

    assert (outcome.l1.reason, outcome.confirmed) == ("store_error", False)
    assert analyzer._pipeline.l1.asked == []  # what cannot be counted is not asked
    assert analyse(analyzer, RISKY)[0].confirmed


def test_a_lock_that_comes_during_l2_keeps_l1(store, tmp_path):
    other = sqlite3.connect(tmp_path / "live.db", isolation_level=None)

    async def lock(request):
        other.execute("begin immediate")
        return Reply(says("critical"))

    (outcome,) = analyse(live(store, says("critical"), Scripted(lock)), RISKY)
    other.execute("rollback")
    other.close()

    assert (outcome.level.value, outcome.l2.reason, outcome.confirmed) == ("critical", "store_error", False)


# -- what is kept


def test_records_hold_a_keyed_hash_and_not_the_text(store, tmp_path):
    first, second = (live(store, says("critical"), key=key, session_id=s) for key, s in ((b"a", "x"), (b"b", "y")))
    analyse(first, RISKY)
    analyse(second, RISKY)
    hashes = {b["text_hash"] for s in ("x", "y") for b in kept(store, session=s)}

    assert len(hashes) == 2  # one per key, L1 and L2 alike
    assert RISKY.encode() not in (tmp_path / "live.db").read_bytes()


def test_its_repr_is_one_line(store):
    analyzer = live(store, says("critical"))
    analyse(analyzer, RISKY)

    assert repr(analyzer) == "LiveAnalyzer('s', l1=1/40 today, l2=1, dropped=0)"
