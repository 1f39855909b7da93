"""Run the loop for one request within its own budget, and give back the best attempt with the reason for stopping."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from workbench.errors import JudgeError, SetupError
from workbench.judges.base import Judge, Prompt, Reply, Request
from workbench.schema import View
from workbench.selfcheck import retry
from workbench.selfcheck.checks import Issue, Task, first_issues, texts
from workbench.selfcheck.diagnose import Diagnosis, Verdict, diagnose
from workbench.selfcheck.evaluate import THRESHOLD, JudgeFault, judge_messages, passes, read_verdict
from workbench.selfcheck.retry import Messages, Step, Strategy

Generate = Callable[[Messages, float, int], Awaitable[Reply]]  # messages, temperature, max_tokens
T = TypeVar("T")
Status = Literal["passed", "failed", "unverified", "budget", "timeout", "no_attempt"]
REJUDGE: Final = Step("rejudge")


@dataclass(frozen=True)
class Limits:
    """Budget of one request: attempts, tokens of generation and judging together, seconds for everything."""

    max_attempts: int = 3
    max_total_tokens: int = 20_000
    timeout_s: float = 90.0


@dataclass(frozen=True)
class Attempt:
    """One answer and what became of it. ``l1`` is the mechanical finding (None: passed), ``cancelled`` or the transport's reason.

    ``verdict`` is None when no judge could say; then there is no score, and ``passed`` is False.
    """

    index: int
    step: Step
    answer: str | None = None
    l1: str | None = None
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    verdict: Verdict | None = None
    passed: bool = False
    tokens: int = 0
    judge_tokens: int = 0
    judge_calls: int = 0
    judge_faults: int = 0
    prompt_chars: int = 0
    allowed_s: float = 0.0
    latency_s: float = 0.0

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Passed, then score (unchecked below any score, mechanically broken below that, no answer last), then earliest."""
        score = self.verdict.score if self.verdict else -1.0 if self.l1 is None else -3.0 if self.answer is None else -2.0
        return self.passed, score, -self.index


@dataclass(frozen=True)
class Result:
    """What one request came to. ``returned`` is the index of the best attempt, None when there is no answer at all."""

    task: Task
    status: Status
    attempts: tuple[Attempt, ...]
    actions: tuple[Step, ...]
    elapsed_s: float

    @property
    def returned(self) -> int | None:
        answered = [a for a in self.attempts if a.answer is not None]
        return max(answered, key=lambda a: a.rank).index if answered else None

    @property
    def best(self) -> Attempt | None:
        return None if self.returned is None else self.attempts[self.returned]

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def error_types(self) -> tuple[str, ...]:
        return self.best.diagnosis.error_types if self.best else ()

    @property
    def tokens(self) -> dict[str, int]:
        made, judged = sum(a.tokens for a in self.attempts), sum(a.judge_tokens for a in self.attempts)
        return {"generation": made, "judge": judged, "total": made + judged}

    @property
    def user_message(self) -> str:
        """Plain words for the person who asked; nothing internal."""
        return str(texts()["user"][self.task.lang][self.status if self.best and self.best.answer else "no_attempt"])

    def rows(self) -> list[dict[str, Any]]:
        """One tidy row per attempt: question, answer, verdict, attempt, tokens."""
        return [
            {
                "question": self.task.question, "attempt": a.index, "action": a.step.action, "temperature": a.step.temperature,
                "answer": a.answer, "l1": a.l1, "score": a.verdict.score if a.verdict else None, "passed": a.passed,
                "error_types": ";".join(a.diagnosis.error_types), "issues": ";".join(a.diagnosis.issues), "fix_hint": a.diagnosis.fix_hint,
                "tokens": a.tokens, "judge_tokens": a.judge_tokens, "judge_faults": a.judge_faults, "latency_s": a.latency_s,
                "returned": a.index == self.returned, "status": self.status,
            }
            for a in self.attempts
        ]  # fmt: skip


class _Stop(Exception):
    """The request ends here with this status."""


class Engine:
    """The loop over two injected calls. Holds settings only: every request has its own state and its own budget.

    ``strategy``: none | blind | feedback | restructure. ``quota`` is a global limit shared by requests (any async context
    manager, such as a semaphore). ``sample``: share of low-risk tasks that a judge sees; the others end ``unverified``.
    ``slow_check`` is an awaited check (a linter, a lookup); with ``parallel`` the judge starts beside it and is cancelled when it
    finds something. ``record`` gets one row for every attempt that failed. *clock* must tick like the event loop's.
    """

    def __init__(
        self, generate: Generate, judge: Generate, *, limits: Limits = Limits(), threshold: float = THRESHOLD, strategy: Strategy = "restructure",
        max_tokens: int = 1000, judge_max_tokens: int = 600, clock: Callable[[], float] = time.monotonic,
        quota: contextlib.AbstractAsyncContextManager[Any] | None = None, sample: float = 1.0,
        slow_check: Callable[[Task, str], Awaitable[Issue | None]] | None = None, parallel: bool = False,
        record: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:  # fmt: skip
        self.generate, self.judge, self.limits, self.threshold, self.strategy = generate, judge, limits, threshold, strategy
        self.max_tokens, self.judge_max_tokens, self.clock = max_tokens, judge_max_tokens, clock
        self.quota, self.sample, self.slow_check, self.parallel, self.record = quota, sample, slow_check, parallel, record

    async def run(self, task: Task) -> Result:
        """Answer *task*; failures of either call become a status, never an exception (SetupError apart)."""
        result = await _Request(self, task).run()
        for attempt, row in zip(result.attempts, result.rows(), strict=True):
            if self.record and not attempt.passed:
                self.record(row)
        return result


class _Request:
    def __init__(self, engine: Engine, task: Task) -> None:
        self.engine, self.task = engine, task
        self.started = engine.clock()
        self.deadline = self.started + engine.limits.timeout_s
        self.attempts: list[Attempt] = []
        self.actions: list[Step] = []

    async def run(self) -> Result:
        status: Any = "failed"
        try:
            await self._loop()
        except _Stop as stop:
            status = str(stop)
        return Result(self.task, status, tuple(self.attempts), tuple(self.actions), self.engine.clock() - self.started)

    async def _loop(self) -> None:
        most, step = self.engine.limits.max_attempts, Step()
        if most < 1:
            raise _Stop("no_attempt")
        most = 1 if self.engine.strategy == "none" else most
        for index in range(most):
            self._afford()
            self.attempts.append(Attempt(index, step))
            await self._answer()
            if not self.attempts[-1].l1:
                await self._judge()
            if self.attempts[-1].passed:
                raise _Stop("passed")
            if self.attempts[-1].answer is not None:  # after a failed call there is nothing to say: the same step again
                step = retry.next_step(self.task, self.attempts[-1].diagnosis, index + 1, strategy=self.engine.strategy)
            if index + 1 < most:
                self.actions.append(step)

    def _note(self, **facts: Any) -> None:
        self.attempts[-1] = replace(self.attempts[-1], **facts)

    def _afford(self) -> None:
        if sum(a.tokens + a.judge_tokens for a in self.attempts) >= self.engine.limits.max_total_tokens:
            raise _Stop("budget")
        if self.engine.clock() >= self.deadline:
            raise _Stop("timeout")

    async def _within(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await foreign work for as long as the deadline allows; what is cut short is charged nothing."""
        limit = asyncio.timeout(max(0.0, self.deadline - self.engine.clock()))
        try:
            async with limit, self.engine.quota or contextlib.nullcontext():
                return await call()
        except (JudgeError, SetupError):
            raise
        except TimeoutError:
            if limit.expired():
                raise _Stop("timeout") from None
            raise JudgeError("timeout") from None
        except Exception as error:  # foreign code: whatever it raises is one failed call
            raise JudgeError("api_error", type(error).__name__) from error

    async def _answer(self) -> None:
        step, began = self.attempts[-1].step, self.engine.clock()
        prompt = retry.messages(self.task, step)
        self._note(prompt_chars=sum(len(m["content"]) for m in prompt), allowed_s=self.deadline - began)
        try:
            room = self.engine.max_tokens * step.more_tokens
            reply = await self._within(lambda: self.engine.generate(prompt, step.temperature, room))
        except JudgeError as error:
            self._note(l1=error.reason, latency_s=self.engine.clock() - began)
            return
        except _Stop:
            self._note(l1="cancelled", latency_s=self.engine.clock() - began)
            raise
        declined = "refusal" if (reply.message or {}).get("refusal") else reply.finish_reason
        self._found(first_issues(self.task, reply.text, declined))
        self._note(answer=reply.text or "", tokens=_used(reply), latency_s=self.engine.clock() - began)

    def _found(self, issues: tuple[Issue, ...]) -> None:
        if issues:
            self._note(l1=issues[0].type, diagnosis=diagnose(issues))

    async def _judge(self) -> None:
        """The slow check, then the judge; or both at once, where a finding cancels the judge."""
        answer, slow = self.attempts[-1].answer or "", self.engine.slow_check
        judging = asyncio.ensure_future(self._ask_judge(answer)) if slow and self.engine.parallel else None
        try:
            issue = await self._within(lambda: slow(self.task, answer)) if slow else None
        except JudgeError:  # a check that breaks down finds nothing; the judge decides
            issue = None
        except BaseException:
            await _drop(judging)
            raise
        if issue is None:
            return await (judging or self._ask_judge(answer))
        await _drop(judging)
        self._note(verdict=None, passed=False)
        return self._found((issue,))

    async def _ask_judge(self, answer: str) -> None:
        """Ask at temperature 0, once more after a fault of the judge; two faults end the request without a score."""
        share = (
            int(hashlib.sha256(self.task.question.encode()).hexdigest()[:8], 16) / 2**32
        )  # stable: the same task, the same lot
        if self.task.low_risk and share >= self.engine.sample:
            raise _Stop("unverified")
        prompt = judge_messages(self.task, answer)
        for again in (False, True):
            self._afford()
            self._note(judge_calls=self.attempts[-1].judge_calls + 1)
            try:
                reply = await self._within(lambda: self.engine.judge(prompt, 0.0, self.engine.judge_max_tokens))
                self._note(judge_tokens=self.attempts[-1].judge_tokens + _used(reply))
                verdict = read_verdict(reply, answer)
            except (JudgeError, JudgeFault):
                self._note(judge_faults=self.attempts[-1].judge_faults + 1)
                if again:
                    raise _Stop("unverified") from None
                self.actions.append(REJUDGE)
                continue
            found = diagnose((), verdict)
            self._note(verdict=verdict, diagnosis=found, passed=passes(verdict, found, threshold=self.engine.threshold))
            return


def _used(reply: Reply) -> int:
    return reply.usage.prompt_tokens + reply.usage.completion_tokens


async def _drop(judging: asyncio.Future[None] | None) -> None:
    if judging is not None:
        judging.cancel()
        with contextlib.suppress(asyncio.CancelledError, _Stop):
            await judging


def from_judge(judge: Judge) -> Generate:
    """A configured judge as one of the engine's calls; the temperature reaches judges that have one."""

    async def ask(messages: Messages, temperature: float, max_tokens: int) -> Reply:
        twin = copy.copy(judge)  # shares the client
        if hasattr(twin, "temperature"):
            twin.temperature = temperature
        digest = hashlib.sha256(repr(messages).encode("utf-8", "replace")).hexdigest()
        return await twin.answer(Request(Prompt(messages, "selfcheck", "v1", digest, View(text="")), "L1", max_tokens=max_tokens))

    return ask
