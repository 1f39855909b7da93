"""Nothing is spent that was not reserved, and nobody reserves what is not there."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.budget import FREE, NANO, Budget, Price, estimate, estimate_tokens, known_price, price_of, prompt_tokens
from workbench.confirm import DoubleConfirmation
from workbench.errors import BudgetError
from workbench.judges.base import Prompt, Usage
from workbench.schema import Dialogue, Turn, View
from workbench.store import Store

PRICE = Price(1.0, 2.0)


@dataclass
class Judge:
    name: str = "mock"
    kind: str = "remote"
    price: Price | None = PRICE
    deterministic: bool = False
    reads_anchor: bool = True
    max_tokens: int = 600


PROMPT = Prompt(({"role": "user", "content": "x" * 297},), "l1.en", "v1", "0" * 64, View(text="x"))
TOKENS = 104  # 297 bytes / 3 + 1, and 4 for the frame
ONE = (TOKENS * 1.0 + 600 * 2.0) / 1e6  # dollars that one call may take


def admitted(budget, n=200, judge=None):
    count = 0
    for _ in range(n):
        try:
            budget.reserve(judge or Judge(), PROMPT, 600)
        except BudgetError:
            return count
        count += 1
    return count


def test_prices_are_per_million_tokens_and_cached_ones_are_cheaper():
    # https://platform.openai.com/docs/pricing, gpt-4.1-mini: $0.40 in, $0.10 cached, $1.60 out
    price = known_price("gpt-4.1-mini")

    assert price.cost(Usage(1_000_000, 1_000_000)) == pytest.approx(2.00)
    assert price.cost(Usage(1_000_000, 0, 500_000)) == pytest.approx(0.25)
    assert Price(1, 1).cost(Usage(10, 0, 99)) == pytest.approx(10e-6)  # more cached than sent: all of them, at the full price
    assert known_price("gpt-17") is None
    assert price_of(Judge(kind="rules", price=None)) == FREE


def test_the_token_estimate_errs_upwards():
    assert estimate_tokens("我今天很累") >= 5
    assert estimate_tokens("I am tired today") >= 4
    assert prompt_tokens(PROMPT) == TOKENS


@pytest.mark.parametrize("limits", [{"usd": ONE * 7.5}, {"tokens": 704 * 7 + 3}, {"calls_per_day": 7}])
@pytest.mark.parametrize("stored", [False, True])
def test_a_limit_admits_exactly_what_fits(tmp_path, limits, stored):
    with Store(tmp_path / "l.db") as store:
        budget = Budget(**limits)
        if stored:
            budget.attach(store, "r")

        assert admitted(budget) == 7
        with pytest.raises(BudgetError, match=r"raise|tomorrow"):
            budget.reserve(Judge(), PROMPT, 600)


def test_coroutines_behind_a_barrier_with_a_budget_for_one_admit_one(tmp_path):
    async def go(budget):
        barrier = asyncio.Barrier(50)

        async def one():
            await barrier.wait()
            try:
                budget.reserve(Judge(), PROMPT, 600)
            except BudgetError:
                return 0
            await asyncio.sleep(0)
            return 1

        return sum(await asyncio.gather(*[one() for _ in range(50)]))

    with Store(tmp_path / "l.db") as store:
        shared = Budget(usd=ONE * 1.5)
        shared.attach(store, "r")
        assert asyncio.run(go(Budget(usd=ONE * 1.5))) == asyncio.run(go(shared)) == 1


def test_settling_gives_back_what_was_not_used():
    budget = Budget(usd=ONE * 1.5, tokens=10_000)
    for _ in range(30):  # each takes a seventieth of what was held
        hold = budget.reserve(Judge(), PROMPT, 600)
        budget.settle(hold, Usage(6, 6))
    assert admitted(budget) == 1

    lost = Budget(usd=ONE * 1.5)
    lost.settle(lost.reserve(Judge(), PROMPT, 600), None)  # a timeout: it may have been charged
    assert admitted(lost) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=60), st.integers(0, 20_000))
def test_reserved_and_spent_together_never_pass_the_limit(steps, limit):
    budget, open_holds, spent = Budget(tokens=limit), [], 0
    for reserve, used in steps:
        if reserve:
            try:
                open_holds.append(budget.reserve(Judge(), PROMPT, 600))
            except BudgetError:
                pass
        elif open_holds:
            budget.settle(open_holds.pop(), Usage(min(used, 704), 0))
            spent += min(used, 704)

        assert spent + len(open_holds) * 704 <= limit


def test_an_unpriced_model_needs_permission_to_spend_money():
    unpriced = Judge(price=None)

    with pytest.raises(BudgetError, match="price of judge 'mock' is unknown"):
        Budget(usd=1.0).reserve(unpriced, PROMPT, 600)
    assert admitted(Budget(usd=1.0, allow_unpriced=True), 3, unpriced) == 3
    assert admitted(Budget(tokens=704), 3, unpriced) == 1
    assert admitted(Budget(usd=0.0), 3, Judge(kind="rules")) == 3  # nothing on this machine costs money


def test_calls_per_day_start_anew_at_local_midnight():
    from zoneinfo import ZoneInfo

    now = [1796054399.0]  # 2026-11-30 23:59:59 in Shanghai, 15:59:59 UTC
    shanghai, utc = (Budget(calls_per_day=2, clock=lambda: now[0], tz=ZoneInfo(tz)) for tz in ("Asia/Shanghai", "UTC"))
    assert (admitted(shanghai), admitted(utc)) == (2, 2)
    now[0] += 1

    assert (admitted(shanghai), admitted(utc)) == (2, 0)


def _hold(path, ready, go):
    with Store(path) as store:
        budget = Budget(usd=ONE * 100.5)
        budget.attach(store, "r")
        ready.put(admitted(budget, 45))
        go.get(timeout=60)


def test_processes_at_the_same_time_draw_from_one_amount(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    ready, go = spawn.Queue(), spawn.Queue()
    Store(tmp_path / "l.db").close()
    others = [spawn.Process(target=_hold, args=(str(tmp_path / "l.db"), ready, go)) for _ in range(2)]
    for other in others:
        other.start()
    held = [ready.get(timeout=60) for _ in others]
    with Store(tmp_path / "l.db") as store:
        last = Budget(usd=ONE * 100.5)
        last.attach(store, "r")
        more = admitted(last)
    for _ in others:
        go.put(1)
    for other in others:
        other.join()

    assert max(held) == 45
    assert 45 < sum(held) + more <= 100


def _die(path):
    store = Store(path)
    budget = Budget(usd=ONE * 100.5)
    budget.attach(store, "r")
    admitted(budget, 40)
    os._exit(9)


def test_what_a_dead_process_held_is_free_again_but_not_what_it_spent(tmp_path):
    path = str(tmp_path / "l.db")
    dead = multiprocessing.get_context("spawn").Process(target=_die, args=(path,))
    dead.start()
    dead.join()
    with Store(path) as store:
        asyncio.run(
            store.record_call({"run_id": "r", "call_key": "k", "cost_usd": ONE * 30, "prompt_tokens": 1, "completion_tokens": 1})
        )
        budget = Budget(usd=ONE * 100.5)
        budget.attach(store, "r")
        assert store.counter("r:usd") == pytest.approx(ONE * 30 * NANO, abs=2)
        assert admitted(budget) == 70


def test_a_process_number_that_came_back_is_not_taken_for_the_dead_one(tmp_path):
    """In a container each start has the same number."""
    with Store(tmp_path / "l.db") as store:
        store.add(f"owner:r:{socket.gethostname()}:{os.getpid()}:0ld0ld0l")
        store.add("r:usd", round(ONE * 100 * NANO))
        budget = Budget(usd=ONE * 100.5)
        budget.attach(store, "r")
        assert admitted(budget) == 100


def test_two_budgets_of_one_process_share_too(tmp_path):
    with Store(tmp_path / "l.db") as store:
        one, two = Budget(usd=ONE * 100.5), Budget(usd=ONE * 100.5)
        one.attach(store, "r")
        held = admitted(one, 60)
        two.attach(store, "r")
        assert held + admitted(two) <= 100


def test_a_later_run_of_the_same_scope_goes_on_from_the_ledger(tmp_path):
    for _ in range(2):
        with Store(tmp_path / "l.db") as store:
            budget = Budget(calls_per_day=10, clock=lambda: 0.0)
            budget.attach(store, "r")
            assert admitted(budget, 6) in (6, 4)
    with Store(tmp_path / "l.db") as store:
        assert store.counter("calls:1970-01-01") == 10


def test_a_refusal_takes_nothing_of_the_other_limits():
    budget = Budget(usd=ONE * 10, tokens=704 * 2)
    assert admitted(budget) == 2
    assert budget._drawn["" + ":usd"] - budget._idle[":usd"] == pytest.approx(2 * ONE * NANO, abs=4)


def test_the_estimate_counts_every_call_before_any_is_made():
    turns = (Turn(role="user", content="hello"), Turn(role="assistant", content="hi"), Turn(role="user", content="I am fine"))
    corpus = [Dialogue(id=str(i), turns=turns) for i in range(3)]
    pipeline = DoubleConfirmation(Judge("a"), Judge("b", price=None))

    forecast = estimate(pipeline, corpus, repeats=2, turns="all")
    free = estimate(DoubleConfirmation(Judge("a", "rules"), Judge("b")), corpus)

    assert [(f.judge, f.calls, f.completion_tokens) for f in forecast.judges] == [("l1 a", 12, 7200), ("l2 b", 12, 7200)]
    assert forecast.judges[0].usd > 0
    assert forecast.judges[1].usd is None
    assert "24 calls, money unknown (give the judge a price)" in str(forecast)
    assert free.judges[0].usd == 0
    assert "in all: 6 calls, money at most $" in str(free)


def test_the_estimate_is_held_against_what_was_spent():
    corpus = [Dialogue(id="1", turns=(Turn(role="user", content="hello"),))]
    forecast = estimate(DoubleConfirmation(Judge("a"), Judge("b")), corpus)
    expected = sum(f.prompt_tokens + f.completion_tokens for f in forecast.judges)

    assert forecast.against(0.0123, expected // 2).startswith(
        f"spent: {expected // 2} tokens (50% of the estimate), $0.0123 of $"
    )
    assert "price unknown" in estimate(DoubleConfirmation(Judge("a"), Judge("b", price=None)), corpus).against(0, 1)
