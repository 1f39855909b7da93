"""One question: asked once, recorded before it counts, retried by one layer, and a typed unknown when it fails."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.misbehaving import CRITICAL
from workbench.budget import Budget, Price
from workbench.errors import JudgeError, JudgeSetupError, ReplayMiss, StoreError
from workbench.judges.base import Reply, Request, Usage
from workbench.judging import Asker, Limiter, call_key
from workbench.prompts import render
from workbench.schema import RiskLevel, View
from workbench.store import Store

GOOD = json.dumps(CRITICAL)
VIEW = View(text="I am fine", lang="en")


class Scripted:
    """Gives the listed answers (text, Reply or exception) in order, the last one again and again."""

    kind, deterministic, reads_anchor, endpoint, model = "remote", False, True, "http://scripted", "m"

    def __init__(self, *script, name="scripted", **settings):
        self.script, self.name, self.asked, self.settings = deque(script), name, [], settings
        self.price, self.max_tokens = settings.get("price"), 600

    async def answer(self, request):
        self.asked.append(request)
        await asyncio.sleep(0)
        step = self.script.popleft() if len(self.script) > 1 else self.script[0]
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            return await step(request)
        return step if isinstance(step, Reply) else Reply(step, usage=Usage(10, 5))

    def identity(self, request):
        return {"model": "m", "max_tokens": request.max_tokens or 600, **self.settings}

    def describe(self):
        return {"name": self.name}

    async def aclose(self):
        pass


class Sleeps(list):
    async def __call__(self, seconds):
        self.append(seconds)
        await asyncio.sleep(0)


def ask(judge, view=VIEW, *, asker=None, tier="L1", n=1, **options):
    async def go():
        a = asker or Asker(**({"sleep": Sleeps(), "rng": random.Random(0)} | options))
        return [await a.ask(judge, view, tier=tier) for _ in range(n)]

    return asyncio.run(go())


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "l.db", busy_s=0.2) as opened:
        yield opened


def test_an_assessment_says_where_it_comes_from():
    judge = Scripted(GOOD)
    (a,) = ask(judge)

    assert (a.level, a.tier, a.judge, a.judge_kind, a.attempts) == (RiskLevel.CRITICAL, "L1", "scripted", "remote", 1)
    assert a.prompt_hash == render(VIEW, "L1").sha256
    assert a.call_key == call_key(judge, Request(render(VIEW, "L1"), "L1"))
    assert len(a.text_hash) == 64


# -- answers that cannot be read


def test_an_unreadable_answer_is_asked_again_once_with_the_parsers_words():
    judge = Scripted("no idea", GOOD)
    (a,) = ask(judge)

    assert a.known
    assert a.attempts == 2
    first, second = (r.prompt.messages for r in judge.asked)
    assert second[:-1] == first[:-1]
    assert second[-1]["content"].startswith(first[-1]["content"])
    added = second[-1]["content"].removeprefix(first[-1]["content"])
    assert "JSON" in added
    assert "no idea" not in added  # neither the answer nor the text is repeated
    assert [r.attempt for r in judge.asked] == [0, 1]


def test_a_blind_retry_repeats_the_prompt_and_none_does_not_retry():
    blind, never = Scripted("no idea", GOOD), Scripted("no idea", GOOD)
    assert ask(blind, parse_retry="blind")[0].known
    assert blind.asked[0].prompt == blind.asked[1].prompt
    (a,) = ask(never, parse_retry="none")

    assert (a.reason, a.attempts, len(never.asked)) == ("parse_error", 1, 1)


def test_two_unreadable_answers_are_unknown():
    judge = Scripted("no idea")
    (a,) = ask(judge)

    assert (a.reason, a.level.value, a.confidence, a.attempts) == ("parse_error", "unknown", None, 2)
    assert len(judge.asked) == 2


def test_a_cut_off_answer_gets_more_room():
    judge = Scripted(Reply(GOOD[:30], finish_reason="length"), GOOD)
    (a,) = ask(judge)

    assert a.known
    assert [r.max_tokens for r in judge.asked] == [None, 2400]
    assert judge.asked[0].prompt == judge.asked[1].prompt


def test_a_refusal_is_not_asked_again():
    judge = Scripted(Reply(None, message={"refusal": "no"}))

    assert ask(judge)[0].reason == "refused"
    assert len(judge.asked) == 1


# -- transport


def test_transport_errors_are_tried_twice_more_and_then_unknown():
    judge, sleeps = Scripted(JudgeError("api_error", "HTTP 500", retryable=True)), Sleeps()
    (a,) = ask(judge, sleep=sleeps)

    assert (a.reason, a.detail, len(judge.asked), len(sleeps)) == ("api_error", "HTTP 500", 3, 2)
    assert 0.5 <= sleeps[0] <= 1.0 <= sleeps[1] <= 2.0  # exponential, with jitter
    assert a.attempts == 1


def test_retry_after_is_honoured_and_an_absurd_one_is_not_waited_for():
    busy = JudgeError("rate_limited", "HTTP 429", retryable=True, retry_after=7.0)
    sleeps = Sleeps()
    assert ask(Scripted(busy, GOOD), sleep=sleeps)[0].known
    assert 7.0 <= sleeps[0] <= 7.7

    sleeps = Sleeps()
    hours = JudgeError("rate_limited", "HTTP 429", retryable=True, retry_after=7200.0)
    assert ask(Scripted(hours), sleep=sleeps)[0].reason == "rate_limited"
    assert sleeps == []


def test_what_cannot_help_is_not_retried():
    judge = Scripted(JudgeError("api_error", "HTTP 401"))

    assert ask(judge)[0].reason == "api_error"
    assert len(judge.asked) == 1


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom: I want to die"),
        KeyError("x"),
        RecursionError(),
        AssertionError(),
        UnicodeDecodeError("utf-8", b"", 0, 1, ""),
    ],
)
def test_whatever_a_judge_raises_is_one_failed_call_without_its_words(error):
    (a,) = ask(Scripted(error))

    assert (a.reason, a.detail) == ("api_error", type(error).__name__)


def test_a_judge_that_hangs_is_cut_off():
    async def forever(request):
        await asyncio.Event().wait()

    (a,) = ask(Scripted(forever), timeout_s=0.02)

    assert a.reason == "timeout"


def test_a_setting_that_is_wrong_stops_the_work():
    with pytest.raises(JudgeSetupError, match="OPENAI_API_KEY"):
        ask(Scripted(JudgeSetupError("set the environment variable OPENAI_API_KEY")))


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.none(), st.text(), st.binary().map(lambda b: b.decode("latin-1"))),
    st.sampled_from([None, "stop", "length", "content_filter", "tool_calls"]),
)
def test_no_answer_raises_and_none_but_a_good_one_may_confirm(text, finish):
    (a,) = ask(Scripted(Reply(text, finish_reason=finish)))

    assert not a.may_confirm
    assert a.known or a.reason


# -- the ledger


def rows(store, run_id="r"):
    return list(store.calls(run_id))


def test_every_try_has_its_row(store):
    judge = Scripted(JudgeError("api_error", "HTTP 500", retryable=True), "no idea", GOOD, price=Price(1.0, 2.0))
    (a,) = ask(judge, store=store, run_id="r")

    assert [(r["status"], r["attempt"], r["tries"], r["answered"]) for r in rows(store)] == [
        ("api_error", 0, 1, False), ("parse_error", 0, 2, True), ("ok", 1, 1, True),
    ]  # fmt: skip
    last = rows(store)[-1]
    assert last["call_key"] == a.call_key
    assert last["cost_usd"] == pytest.approx(20e-6)
    assert (last["model_requested"], last["prompt_id"], last["prompt_tokens"]) == ("m", "l1.en", 10)


def test_a_settled_answer_is_not_asked_for_again(store):
    judge = Scripted(GOOD)
    first = ask(judge, store=store, run_id="r", n=3)
    again = ask(judge, store=store, run_id="r", n=1)

    assert len(judge.asked) == 1
    assert first[0] == first[2] == again[0]


def test_a_failure_is_never_served_from_the_ledger(store):
    judge = Scripted(JudgeError("api_error", "HTTP 401"), GOOD)
    assert ask(judge, store=store, run_id="r")[0].reason == "api_error"
    assert ask(judge, store=store, run_id="r")[0].known
    assert len(judge.asked) == 2


def test_one_run_asks_a_failing_question_once(store):
    judge = Scripted(JudgeError("api_error", "HTTP 401"), GOOD)

    assert [a.reason for a in ask(judge, store=store, run_id="r", n=3)] == ["api_error"] * 3
    assert len(judge.asked) == 1  # so that a replay, which has one answer per question, is the same


def test_resume_goes_on_where_a_parse_retry_stopped(store):
    judge = Scripted("no idea", asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        ask(judge, store=store, run_id="r")
    judge.script = deque([GOOD])
    (a,) = ask(judge, store=store, run_id="r")

    assert a.known
    assert [r.attempt for r in judge.asked] == [0, 1, 1]  # the first answer was paid for, it is not asked again
    ask(judge, store=store, run_id="r")
    assert len(judge.asked) == 3


def test_resume_asks_again_what_stayed_unreadable(store):
    judge = Scripted("no idea")
    ask(judge, store=store, run_id="r")
    judge.script = deque([GOOD])

    assert ask(judge, store=store, run_id="r")[0].known
    assert [r.attempt for r in judge.asked] == [0, 1, 1]


def test_the_same_question_at_the_same_time_is_one_call(store):
    judge = Scripted(GOOD)

    async def go():
        asker = Asker(store=store, run_id="r")
        return await asyncio.gather(*[asker.ask(judge, VIEW, tier="L1") for _ in range(20)])

    assert len({a.call_key for a in asyncio.run(go())}) == 1
    assert len(judge.asked) == 1


def test_when_the_first_asker_is_cancelled_another_takes_over():
    async def slow(request):
        await asyncio.sleep(0.02)
        return Reply(GOOD)

    judge = Scripted(slow)

    async def go():
        asker = Asker()
        first, second, third = (asyncio.create_task(asker.ask(judge, VIEW, tier="L1")) for _ in range(3))
        await asyncio.sleep(0.005)
        first.cancel()
        third.cancel()
        return await asyncio.gather(first, second, third, return_exceptions=True)

    first, second, third = asyncio.run(go())

    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(third, asyncio.CancelledError)
    assert second.known
    assert len(judge.asked) == 2


def test_a_ledger_that_refuses_stops_the_work(store, tmp_path):
    import sqlite3

    other = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreError, match="locked"):
        ask(Scripted(GOOD), store=store, run_id="r")
    other.execute("rollback")
    other.close()


def test_lone_surrogates_in_an_answer_are_stored_as_they_were_read(store):
    bad = json.dumps(CRITICAL | {"evidence": "x"}).replace('"x"', '"\ud83d broken"')
    judge = Scripted(bad)
    (a,) = ask(judge, store=store, run_id="r")

    assert ask(judge, store=store, run_id="r", replay=True) == [a]


# -- keys


KEYED = {
    "text": ({"view": View(text="other")}, {}),
    "language": ({"view": View(text="I am fine", lang="zh")}, {}),
    "context": ({"view": View(text="I am fine", context=(("user", "before"),)), "tier": "L2"}, {}),
    "tier wording": ({"tier": "L2"}, {}),
    "repeat": ({"repeat": 1}, {}),
    "attempt": ({"attempt": 1}, {}),
    "max_tokens": ({"max_tokens": 2400}, {}),
    "model setting": ({}, {"temperature": 0.5}),
}


@pytest.mark.parametrize("field", sorted(KEYED))
def test_any_changed_key_field_misses(store, field):
    change, setting = KEYED[field]
    base = {"view": VIEW, "tier": "L1", "repeat": 0, "attempt": 0, "max_tokens": None}

    def key(parts, **settings):
        p = base | parts
        return call_key(
            Scripted(GOOD, **settings),
            Request(render(p["view"], p["tier"]), p["tier"], p["repeat"], p["attempt"], p["max_tokens"]),
        )

    assert key(change, **setting) != key({})
    assert key({}) == key({})


def test_the_name_of_a_judge_is_not_part_of_the_key():
    request = Request(render(VIEW, "L1"), "L1")

    assert call_key(Scripted(GOOD, name="a"), request) == call_key(Scripted(GOOD, name="b"), request)


# -- replay


SCRIPTS = {
    "good": [GOOD],
    "parse retry": ["no idea", GOOD],
    "unreadable": ["no idea"],
    "refused": [Reply(None, message={"refusal": "no"})],
    "no choices": [Reply(None, choices=[], finish_reason=None)],
    "cut off": [Reply(GOOD[:30], finish_reason="length")],
    "failed": [JudgeError("api_error", "HTTP 500", retryable=True)],
    "late": [JudgeError("timeout", "no answer in time", retryable=True), GOOD],
}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_replay_repeats_the_assessment_without_a_call(store, name):
    judge = Scripted(*SCRIPTS[name])
    original = ask(judge, store=store, run_id="r")
    before = len(judge.asked)

    assert ask(judge, store=store, run_id="r", replay=True) == original
    assert len(judge.asked) == before


def test_replay_misses_what_was_never_recorded(store):
    judge = Scripted(GOOD)
    ask(judge, store=store, run_id="r")

    for missing in (View(text="another"), View(text="I am fine", lang="zh")):
        with pytest.raises(ReplayMiss, match="the ledger has no call of scripted"):
            ask(judge, missing, store=store, run_id="r", replay=True)
    with pytest.raises(ReplayMiss):
        ask(judge, store=store, run_id="another run", replay=True)
    with pytest.raises(ReplayMiss):
        ask(judge, replay=True)
    assert len(judge.asked) == 1


# -- budget


def test_a_refused_budget_is_an_unknown_without_a_call(store):
    judge = Scripted(GOOD, price=Price(1.0, 2.0))
    a, b = ask(judge, View(text="one"), store=store, run_id="r", budget=Budget(usd=0.0001), n=2)

    assert a.reason == b.reason == "budget"
    assert judge.asked == []
    assert rows(store)[0]["status"] == "budget"
    assert ask(judge, View(text="one"), store=store, run_id="r", replay=True) == [a]
    assert ask(judge, View(text="one"), store=store, run_id="r", budget=Budget(usd=1.0))[0].known


def test_what_failed_costs_nothing_and_what_timed_out_may_have():
    def left(error):
        budget = Budget(tokens=2000)
        ask(Scripted(error, price=Price(1, 1)), budget=budget, retries=0)
        return budget._idle[":tokens"] + 2000 - budget._drawn[":tokens"]

    assert left(JudgeError("api_error", "HTTP 500", retryable=True)) == 2000
    assert left(JudgeError("timeout", retryable=True)) < 1500


# -- how many calls at once


def run_limited(limiter, calls):
    async def go():
        order = []

        async def one(i, action):
            async with limiter:
                order.append(i)
                await action()

        await asyncio.gather(*[one(i, a) for i, a in enumerate(calls)])
        return order

    return asyncio.run(go())


def test_never_more_in_flight_than_allowed_and_first_come_first_served():
    now, most = [0], [0]

    async def action():
        now[0] += 1
        most[0] = max(most)
        most.append(now[0])
        await asyncio.sleep(0)
        now[0] -= 1

    order = run_limited(Limiter(7, Sleeps()), [action] * 100)

    assert max(most) == 7
    assert order == list(range(100))


def test_a_single_refusal_does_not_slow_the_others():
    limiter = Limiter(64, Sleeps())
    for i in range(640):
        limiter.note(refused=i % 10 == 0, wait=1.0 if i % 10 == 0 else 0.0)

    assert limiter.limit == 64
    assert limiter._open_at == 0


def test_an_overloaded_endpoint_gets_half_and_a_pause_then_more_again():
    time = [100.0]
    limiter = Limiter(64, Sleeps(), lambda: time[0])
    for _ in range(20):
        limiter.note(refused=True, wait=5.0)
    assert limiter.limit == 32
    assert limiter._open_at == 105.0
    for _ in range(200):
        limiter.note(refused=True)
    assert limiter.limit == 1
    for _ in range(64 * 40):
        limiter.note(refused=False)
    assert limiter.limit == 64


def test_a_used_up_allowance_closes_the_door_until_it_is_renewed():
    time, sleeps = [0.0], Sleeps()
    limiter = Limiter(8, sleeps, lambda: time[0])
    limiter.note(refused=False, wait=3.0)

    async def nothing():
        pass

    run_limited(limiter, [nothing])

    assert sleeps == [3.0]
    assert limiter.limit == 8


def test_a_cancelled_waiter_does_not_lose_its_turn_for_others():
    async def go():
        limiter, done = Limiter(1, asyncio.sleep), []

        async def one(i):
            async with limiter:
                await asyncio.sleep(0.001)
                done.append(i)

        tasks = [asyncio.create_task(one(i)) for i in range(10)]
        await asyncio.sleep(0)
        for task in tasks[1:6]:
            task.cancel()
        await asyncio.sleep(0.0015)
        tasks[6].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 2)
        return done, limiter._busy

    assert asyncio.run(go()) in (([0, 7, 8, 9], 0), ([0, 6, 7, 8, 9], 0))


def test_judges_of_one_endpoint_share_its_limit():
    busy = [0, 0]

    async def count(request):
        busy[0] += 1
        busy[1] = max(busy)
        await asyncio.sleep(0.001)
        busy[0] -= 1
        return Reply(GOOD)

    async def go():
        asker = Asker(concurrency=5)
        judges = [Scripted(count, name="a"), Scripted(count, name="b")]
        await asyncio.gather(*[asker.ask(judges[i % 2], View(text=f"t {i}"), tier="L1") for i in range(60)])

    asyncio.run(go())

    assert busy[1] == 5
