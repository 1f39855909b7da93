"""Reserve money, tokens and calls before a call is made, and settle what it really took."""

from __future__ import annotations

import os
import socket
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from functools import cache
from importlib import resources
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workbench.errors import BudgetError
from workbench.judges.base import Judge, Prompt, Usage

if TYPE_CHECKING:
    from workbench.confirm import DoubleConfirmation
    from workbench.schema import Dialogue
    from workbench.store import Store

NANO: Final = 1_000_000_000  # money is counted in whole billionths of a dollar: sums stay exact
CHUNK: Final = 128  # at most so many calls' worth is drawn from a shared ledger at a time


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        again = self.input if self.cached is None else self.cached
        return ((usage.prompt_tokens - cached) * self.input + cached * again + usage.completion_tokens * self.output) / 1e6


FREE: Final = Price(0.0, 0.0, 0.0)


@cache
def _prices() -> dict[str, Any]:
    return tomllib.loads(resources.files("workbench.resources").joinpath("prices.toml").read_text("utf-8"))["models"]  # type: ignore[no-any-return]


def known_price(model: str) -> Price | None:
    """The price of a model in the dated table, None if it has none."""
    row = _prices().get(model)
    return None if row is None else Price(row["input"], row["output"], row.get("cached"))


def price_of(judge: Judge) -> Price | None:
    """What a judge's tokens cost: nothing on this machine, as configured or listed elsewhere, None if nobody knows."""
    return getattr(judge, "price", None) if judge.kind == "remote" else FREE


def estimate_tokens(text: str) -> int:
    """Tokens by a rule that errs upwards: one per three UTF-8 bytes, which is one per Chinese character."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


def prompt_tokens(prompt: Prompt) -> int:
    """An upward estimate of a prompt's tokens, with four for the frame of each message."""
    return sum(estimate_tokens(m["content"]) + 4 for m in prompt.messages)


class Hold(NamedTuple):
    """What was reserved for one call: (counter, amount) pairs."""

    parts: tuple[tuple[str, int], ...]
    price: Price | None


class Budget:
    """Limits for one run in US dollars and tokens, and per day in calls; None is no limit.

    ``reserve`` raises BudgetError rather than let the next call pass a limit; ``settle`` gives back what was not used.
    Attached to a store, the ledger is shared: all processes on the same scope draw from one amount, at most CHUNK calls'
    worth and a 64th of the limit at a time, and a later one sees what is gone. What a dead process had drawn and not spent is freed when the next
    one attaches and finds nobody alive.
    """

    def __init__(
        self, *, usd: float | None = None, tokens: int | None = None, calls_per_day: int | None = None, allow_unpriced: bool = False,
        clock: Callable[[], float] = time.time, tz: tzinfo = UTC,
    ) -> None:  # fmt: skip
        self.usd, self.tokens, self.calls_per_day, self.allow_unpriced = usd, tokens, calls_per_day, allow_unpriced
        self._clock, self._tz, self._scope = clock, tz, ""
        self._store: Store | None = None
        self._drawn: Counter[str] = Counter()  # without a store: all that is drawn
        self._idle: Counter[str] = Counter()  # drawn by this process and not reserved

    def attach(self, store: Store, scope: str) -> None:
        """Share the ledger of *scope* (a run id) in *store*, counting what its recorded calls took."""
        if self._store is not None:
            return
        self._store, self._scope, me = store, scope, f"owner:{scope}:{_HOST}:{os.getpid()}:{_TOKEN}"
        store.add(me)
        if not any(n > (owner == me) and _alive(owner) for owner, n in store.counters(f"owner:{scope}:").items()):
            usd, tokens = store.spent(scope)
            for name, spent in ((f"{scope}:usd", round(usd * NANO)), (f"{scope}:tokens", tokens)):
                store.add(name, spent - store.counter(name))
        store.before_close.append(lambda: self._leave(store, me))

    def _leave(self, store: Store, me: str) -> None:
        for name, free in self._idle.items():
            store.add(name, -free)
        store.add(me, -1)
        self._idle.clear()
        self._store = None

    def reserve(self, judge: Judge, prompt: Prompt, max_tokens: int) -> Hold:
        """Hold what one call may take at most; raises BudgetError when a limit would be passed, or for a model without a price."""
        price = price_of(judge)
        if self.usd is not None and price is None and not self.allow_unpriced:
            raise BudgetError(f"the price of judge '{judge.name}' is unknown: give it one in judges.toml, or --allow-unpriced")
        asked = Usage(prompt_tokens(prompt), max_tokens)
        wanted: list[tuple[str, int, int]] = []
        if self.usd is not None and price:
            wanted.append((f"{self._scope}:usd", ceil(price.cost(asked) * NANO), round(self.usd * NANO)))
        if self.tokens is not None and judge.kind == "remote":
            wanted.append((f"{self._scope}:tokens", asked.prompt_tokens + max_tokens, self.tokens))
        if self.calls_per_day is not None:
            wanted.append((f"calls:{datetime.fromtimestamp(self._clock(), self._tz).date()}", 1, self.calls_per_day))
        held: list[tuple[str, int]] = []
        for name, need, limit in wanted:
            if not self._take(name, need, limit):
                self._idle.update(dict(held))
                raise BudgetError(_REFUSALS.get(name.rsplit(":")[-1], _NO_CALLS).format(need, limit, need / NANO, limit / NANO))
            held.append((name, need))
        return Hold(tuple(held), price)

    def settle(self, hold: Hold, usage: Usage | None) -> None:
        """Replace the hold by what was used; None when the call may have been charged without an answer: the hold is spent."""
        if usage is not None:
            money = ceil(hold.price.cost(usage) * NANO) if hold.price else 0
            used = {"usd": money, "tokens": usage.prompt_tokens + usage.completion_tokens}
            for name, amount in hold.parts:
                self._idle[name] += amount - used.get(name.rsplit(":", 1)[1], amount)

    def _take(self, name: str, need: int, limit: int) -> bool:
        # Drawing on the shared ledger takes a transaction: many calls' worth at a time, but little of a small budget.
        for want in (min(CHUNK * need, max(need, limit // 64)), need - self._idle[name]):
            if self._idle[name] < need and self._draw(name, want, limit):
                self._idle[name] += want
        fits = self._idle[name] >= need
        self._idle[name] -= need if fits else 0
        return fits

    def _draw(self, name: str, want: int, limit: int) -> bool:
        if self._store is not None:
            return self._store.add(name, want, limit=limit) is not None
        if self._drawn[name] + want > limit:
            return False
        self._drawn[name] += want
        return True


_HOST, _TOKEN = socket.gethostname(), uuid.uuid4().hex[:8]  # a process id alone comes back, in a container at each start
_REFUSALS: Final = {
    "usd": "the next call may take ${2:.6f} and that would pass the budget of ${3:.6f}: raise --budget-usd and --resume",
    "tokens": "the next call may take {0} tokens and that would pass the budget of {1}: raise --budget-tokens and --resume",
}
_NO_CALLS: Final = "the {1} calls of today are used up: go on tomorrow, or raise calls_per_day"


def _alive(owner: str) -> bool:
    """Whether the process behind an owner's name may still run; one on another machine may."""
    *_, host, pid, token = owner.split(":")
    if host == _HOST and int(pid) == os.getpid():
        return token == _TOKEN
    try:
        os.kill(int(pid), 0) if host == _HOST else None
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Forecast(NamedTuple):
    """What a run would ask of one judge at most: calls, tokens (upper estimates) and US dollars (None: no known price)."""

    judge: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None

    def __str__(self) -> str:
        money = "price unknown" if self.usd is None else f"at most ${self.usd:.4f}"
        return f"{self.judge}: {self.calls} calls, up to {self.prompt_tokens} prompt and {self.completion_tokens} completion tokens, {money}"


class Estimate(NamedTuple):
    """The forecast of a whole run, judge by judge; retries come on top and are charged to the budget like other calls."""

    judges: tuple[Forecast, ...]

    def __str__(self) -> str:
        unpriced = any(f.usd is None for f in self.judges)
        total = "unknown (give the judge a price)" if unpriced else f"at most ${sum(f.usd or 0 for f in self.judges):.4f}"
        calls = sum(f.calls for f in self.judges)
        return "\n".join([*map(str, self.judges), f"in all: {calls} calls, money {total}, before retries"])

    def against(self, usd: float, tokens: int) -> str:
        """How far off it was: what the ledger says was spent (US dollars, tokens of both kinds, retries included)."""
        expected = sum(f.prompt_tokens + f.completion_tokens for f in self.judges)
        share = f"{tokens / expected:.0%} of the estimate" if expected else "nothing was expected"
        unpriced = any(f.usd is None for f in self.judges)
        money = "price unknown" if unpriced else f"${usd:.4f} of ${sum(f.usd or 0 for f in self.judges):.4f}"
        return f"spent: {tokens} tokens ({share}), {money}"


def estimate(pipeline: DoubleConfirmation, corpus: Iterable[Dialogue], *, repeats: int = 1, turns: str = "last") -> Estimate:
    """Render every prompt of a run and add up what it may take; makes no call. L2 is counted for every dialogue."""
    from workbench.confirm import l1_view, l2_view
    from workbench.prompts import render

    cost: dict[str, list[int]] = {}
    for whole in corpus:
        n = whole.n_user_turns
        for turn in range(n) if turns == "all" else (n - 1,):
            d = whole.upto(turn)
            earlier = [whole.upto(i) for i in range(max(0, turn - 7), turn)] if pipeline.trend == "from_l1" else []
            second = l2_view(d, context=pipeline.context, messages=pipeline.context_messages, trend=d.trend)
            asks = [("l1", l1_view(x), "L1") for x in (*earlier, d)] + [("l2", second, "L2")]
            for role, view, tier in asks + ([("arbiter", second, "L2")] if pipeline.combine == "arbitration" else []):
                row = cost.setdefault(role, [0, 0])
                row[0] += repeats
                row[1] += repeats * prompt_tokens(render(view, tier, version=pipeline.version))  # type: ignore[arg-type]
    rows = []
    for role, (calls, tokens) in cost.items():
        judge = getattr(pipeline, role)
        completion, price = calls * getattr(judge, "max_tokens", 0), price_of(judge)
        rows.append(Forecast(f"{role} {judge.name}", calls, tokens, completion, price and price.cost(Usage(tokens, completion))))
    return Estimate(tuple(rows))
