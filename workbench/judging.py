"""Ask one judge one question: cache, budget, one retry layer, ledger, parse; what fails is a typed unknown."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from workbench.budget import price_of
from workbench.errors import BudgetError, JudgeError, ReplayMiss, SetupError, StoreError
from workbench.judges.base import Judge, Prompt, Reply, Request
from workbench.parsing import parse_assessment
from workbench.prompts import prompt_language, render
from workbench.schema import Assessment, Tier, View, unknown
from workbench.selfcheck.retry import parse_feedback
from workbench.text import encodable, sha256

if TYPE_CHECKING:
    from workbench.budget import Budget
    from workbench.store import Row, Store

ATTEMPTS: Final = 2  # one answer and, if it cannot be read, one more
LARGER: Final = 4  # a truncated answer is asked again with this many times the tokens
OVERLOADED: Final = 0.3  # share of refused calls above which an endpoint is overloaded rather than unlucky
WINDOW: Final = 32
MAX_WAIT_S: Final = 60.0
_AGAIN: Final = {"parse_error", "schema_error", "truncated"}


def call_key(judge: Judge, request: Request) -> str:
    """SHA-256 of all that decides the answer: what reaches the model, the repeat and the attempt; nothing else."""
    parts = {
        "judge": judge.identity(request),
        "messages": request.prompt.sha256,
        "repeat": request.repeat,
        "attempt": request.attempt,
    }
    return sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True))


class Limiter:
    """How many calls one endpoint has in flight: one step more per quiet window, half when it is overloaded.

    A window is as many answers as are allowed in flight, at least WINDOW. In an overloaded one, no call starts
    before the longest wait the endpoint asked for is over; a single refusal makes only its own call wait.
    """

    def __init__(self, most: int, sleep: Callable[[float], Awaitable[None]], ticks: Callable[[], float] = time.monotonic) -> None:
        self.most = self.limit = most
        self._busy = self._answers = self._refused = 0
        self._open_at = self._asked_wait = 0.0
        self._sleep, self._ticks = sleep, ticks
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._waiting or self._busy >= self.limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    with suppress(ValueError):
                        self._waiting.remove(turn)
                else:  # the place was given to us at the same moment: pass it on
                    self._leave()
                raise
        else:
            self._busy += 1
        if (wait := self._open_at - self._ticks()) > 0:
            try:
                await self._sleep(wait)
            except BaseException:
                self._leave()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._busy -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._busy < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():  # else cancelled, and not yet told so
                self._busy += 1
                turn.set_result(None)

    def note(self, *, refused: bool, wait: float = 0.0) -> None:
        """Take in one answer: was it a refusal for load, and which wait did it ask for?"""
        self._answers += 1
        self._refused += refused
        self._asked_wait = max(self._asked_wait, wait if refused else 0.0)
        if wait and not refused:  # the allowance is used up: the next call would be refused
            self._open_at = max(self._open_at, self._ticks() + min(wait, MAX_WAIT_S))
        window = max(self.limit, min(WINDOW, 4 * self.limit))
        overloaded = self._refused > OVERLOADED * window
        if overloaded:
            self.limit = max(1, self.limit // 2)
            self._open_at = max(self._open_at, self._ticks() + min(self._asked_wait, MAX_WAIT_S))
        elif self._answers >= window:
            self.limit = min(self.most, self.limit + max(1, self.most // 16))
        if overloaded or self._answers >= window:
            self._answers = self._refused = 0
            self._asked_wait = 0.0
            self._wake()


class Asker:
    """Puts questions to judges. All state of asking is here, so that one run, or one notebook, has one of it.

    With a *store* every call is in the ledger before its assessment is returned; an answer that is there already is
    not asked for again, a failed one is (once per Asker). ``replay``: answers come from the ledger alone, failed ones
    too. ``parse_retry`` says what follows an answer that cannot be read: feedback | blind | none.
    ``concurrency`` is the most calls in flight per endpoint. ``timeout_s`` is for judges that state none.

    Whatever a judge does becomes an assessment; only StoreError, ReplayMiss, SetupError and cancellation are raised.
    """

    def __init__(
        self, *, store: Store | None = None, run_id: str = "", budget: Budget | None = None, replay: bool = False,
        parse_retry: str = "feedback", concurrency: int = 64, retries: int = 2, timeout_s: float = 120.0,
        clock: Callable[[], float] = time.time, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        self.store, self.run_id, self.budget, self.replay, self.parse_retry = store, run_id, budget, replay, parse_retry
        self.concurrency, self.retries, self.timeout_s = concurrency, retries, timeout_s
        self._clock, self._sleep, self._rng = clock, sleep, rng or random.Random()
        self._keys = store.call_keys(run_id) if store else set()
        self._failed: dict[str, Assessment] = {}
        self._asking: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[Assessment | None]] = {}
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = WeakKeyDictionary()
        if store and budget and not replay:
            budget.attach(store, run_id)

    async def ask(
        self, judge: Judge, view: View, *, tier: Tier, repeat: int = 0, prompt_tier: Tier | None = None, version: str = "v1", text_hash: str = ""
    ) -> Assessment:  # fmt: skip
        """One assessment of *view* by *judge*. ``prompt_tier`` (default: tier) chooses the wording, *version* its version."""
        request = Request(render(view, prompt_tier or tier, version=version), tier, repeat)
        prompt, last = request.prompt, ATTEMPTS - 1 if self.parse_retry != "none" else 0
        while True:
            key = call_key(judge, request)
            found = await self._once(judge, request, key, final=request.attempt == last)
            if found.known or request.attempt == last or found.reason not in _AGAIN:
                break
            request = self._again(judge, request, found)
        facts = {"tier": tier, "judge": judge.name, "judge_kind": judge.kind, "text_hash": text_hash or sha256(view.text)}
        return found.model_copy(update=facts | {"prompt_hash": prompt.sha256, "call_key": key, "attempts": request.attempt + 1})

    def _again(self, judge: Judge, request: Request, found: Assessment) -> Request:
        """The second attempt: with more room after a cut-off answer, else with the parser's message or just once more."""
        if found.action == "retry_larger_then_unknown":
            return replace(request, attempt=request.attempt + 1, max_tokens=LARGER * getattr(judge, "max_tokens", 600))
        prompt = request.prompt
        if self.parse_retry == "feedback":
            *before, question = prompt.messages
            note = parse_feedback(found.detail, prompt_language(prompt.view))
            messages = (*before, {**question, "content": f"{question['content']}\n\n{note}"})
            digest = sha256(json.dumps(messages, ensure_ascii=True, sort_keys=True))
            prompt = Prompt(messages, prompt.prompt_id, prompt.version, digest, prompt.view)
        return replace(request, prompt=prompt, attempt=request.attempt + 1)

    async def _once(self, judge: Judge, request: Request, key: str, *, final: bool) -> Assessment:
        """The answer to one key: recorded, being asked for by someone else, or asked for now."""
        here = (asyncio.get_running_loop(), key)
        while (asking := self._asking.get(here)) is not None:
            if (found := await asyncio.shield(asking)) is not None:
                return found
        if (found := self._failed.get(key) or self._recorded(judge, request, key, final)) is not None:
            return found
        asking = self._asking[here] = here[0].create_future()
        found = None
        try:
            found = await self._call(judge, request, key)
        finally:
            del self._asking[here]
            asking.set_result(found)
        if self.store and not found.known:
            self._failed[key] = found
        return found

    def _recorded(self, judge: Judge, request: Request, key: str, final: bool) -> Assessment | None:
        row = self.store.last_call(self.run_id, key) if self.store and key in self._keys else None
        if row is None:
            if self.replay:
                raise ReplayMiss(f"the ledger has no call of {judge.name} for prompt {request.prompt.sha256[:12]}: the run, its prompts or its settings changed")  # fmt: skip
            return None
        if not self.replay and row["status"] != "ok" and (final or row["status"] not in _AGAIN):
            return None  # a failure is not an answer: ask again
        return _parsed(row, request) if row["answered"] else unknown(row["status"], tier=request.tier, detail=row["detail"])

    async def _call(self, judge: Judge, request: Request, key: str) -> Assessment:
        """Ask, at most ``retries`` times again after a transport error; each try has its own row in the ledger."""
        for tries in range(1, self.retries + 2):
            reply, error = await self._try(judge, request)
            row = self._row(judge, request, key, reply, error, tries)
            found = unknown(error.reason, tier=request.tier, detail=error.detail) if error else _parsed(row, request)
            if self.store:
                await self.store.record_call(row | {"status": found.reason or "ok", "detail": found.detail})
                self._keys.add(key)
            if error is None or not error.retryable or tries > self.retries or (error.retry_after or 0) > MAX_WAIT_S:
                break
            await self._sleep(self._wait(error, tries))
        return found

    async def _try(self, judge: Judge, request: Request) -> tuple[Reply, JudgeError | None]:
        """One call when it is its turn at the endpoint, if the budget allows it."""
        limiter = self._limiter(getattr(judge, "endpoint", None))
        async with limiter or nullcontext():
            hold, error, reply = None, None, Reply(None)
            try:
                if self.budget:
                    hold = self.budget.reserve(judge, request.prompt, request.max_tokens or int(getattr(judge, "max_tokens", 0)))
                reply = await self._timed(judge, request)
            except BudgetError as refusal:
                return reply, JudgeError("budget", str(refusal))
            except JudgeError as failure:
                error = failure
            if self.budget and hold:
                lost = error is not None and error.reason == "timeout"  # it may have been charged all the same
                self.budget.settle(hold, None if lost else reply.usage)
            if limiter and error:
                loaded = error.reason in ("rate_limited", "timeout") or error.retry_after is not None
                limiter.note(refused=loaded, wait=error.retry_after or 0.0)
            elif limiter:
                limiter.note(refused=False, wait=reply.pause_s)
        return reply, error

    def _limiter(self, endpoint: str | None) -> Limiter | None:
        if endpoint is None:
            return None
        here = self._limiters.setdefault(asyncio.get_running_loop(), {})
        return here.get(endpoint) or here.setdefault(endpoint, Limiter(self.concurrency, self._sleep))

    async def _timed(self, judge: Judge, request: Request) -> Reply:
        limit, started = None if hasattr(judge, "timeout_s") else self.timeout_s, time.perf_counter()
        try:
            async with asyncio.timeout(limit):
                reply = await judge.answer(request)
        except (JudgeError, SetupError, StoreError):
            raise
        except TimeoutError:
            raise JudgeError("timeout", "no answer in time", retryable=True) from None
        except Exception as error:  # a judge is foreign code: whatever it raises is one failed call
            raise JudgeError("api_error", type(error).__name__) from error
        text = None if reply.text is None else encodable(reply.text)
        return replace(reply, text=text, latency_s=reply.latency_s or time.perf_counter() - started)

    def _wait(self, error: JudgeError, tries: int) -> float:
        if error.retry_after is not None:
            return error.retry_after + self._rng.uniform(0, min(1.0, 0.1 * error.retry_after))
        return self._rng.uniform(0.25, 0.5) * 2.0**tries

    def _row(self, judge: Judge, request: Request, key: str, reply: Reply, error: JudgeError | None, tries: int) -> Row:
        usage, prompt, price = reply.usage, request.prompt, price_of(judge)
        return {
            "run_id": self.run_id, "call_key": key, "judge": judge.name, "tier": request.tier, "repeat": request.repeat, "attempt": request.attempt,
            "tries": tries, "answered": error is None, "text": reply.text, "finish_reason": reply.finish_reason if error is None else None,
            "message": None if reply.message is None else json.dumps(reply.message), "no_choices": reply.choices == [],
            "prompt_id": prompt.prompt_id, "prompt_version": prompt.version, "prompt_hash": prompt.sha256, "text_hash": sha256(prompt.view.text),
            "model_requested": model if isinstance(model := getattr(judge, "model", None), str) else None, "model_returned": reply.model, "fingerprint": reply.fingerprint,
            "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, "cached_tokens": usage.cached_tokens,
            "usage_estimated": usage.estimated, "cost_usd": None if price is None else price.cost(usage), "latency_s": reply.latency_s,
            "dropped": ",".join(reply.dropped), "created_at": self._clock(),
        }  # fmt: skip


def _parsed(row: Row, request: Request) -> Assessment:
    message = None if row["message"] is None else json.loads(row["message"])
    choices: list[Any] | None = [] if row["no_choices"] else None
    return parse_assessment(
        row["text"], finish_reason=row["finish_reason"], message=message, choices=choices, analysed_text=request.prompt.view.text, tier=request.tier
    )  # fmt: skip
