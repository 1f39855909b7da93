"""Analyse a live synthetic session: one message at a time, capped by the day, persisted at each step, nothing outward."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Final, Literal
from zoneinfo import ZoneInfo

from workbench.budget import Budget
from workbench.confirm import DoubleConfirmation, displayed_level
from workbench.errors import SetupError, StoreError
from workbench.gate import l0
from workbench.judges.base import Judge
from workbench.judging import Asker
from workbench.schema import CONFIRM_CONFIDENCE, Assessment, Dialogue, Outcome, Reason, RiskLevel, Tier, Trend, Turn, unknown
from workbench.store import Store
from workbench.text import detect_lang, keyed_hash, sha256

DAYS: Final = 7
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Day:
    """One local day of a session: how many L1 assessments, how many of them unknown, the worst level (None: none known)."""

    date: date
    assessments: int = 0
    unknown: int = 0
    worst: RiskLevel | None = None

    @property
    def negative(self) -> bool:
        return self.worst is not None and self.worst >= RiskLevel.MEDIUM


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls of one local day. ``l1`` and ``l2`` are questions put, ``retries`` further tries, ``failures`` tries without an
    assessment, ``dropped`` messages that came while another was analysed."""

    l1: int = 0
    l2: int = 0
    retries: int = 0
    failures: int = 0
    dropped: int = 0


class LiveAnalyzer:
    """Watches one session. ``submit`` returns at once; a message that comes while another is analysed is dropped, with a record.

    A message passes the L0 gate, then the daily cap (``daily_limit`` L1 questions per local day of ``tz``, failed ones
    counted, kept over restarts), then L1, then, if L1 says high or critical, L2. Money has a budget of its own per day
    (``daily_usd``; None is no limit, 0 is nothing). L2's trend is what was known before this message, so that it
    tells nothing of L1's verdict on it. Records hold a keyed hash of the text, not the text.

    Whatever fails, an outcome comes back and it is not confirmed. Nothing is sent anywhere.
    """

    def __init__(
        self, l1: Judge, l2: Judge, store: Store, *, session_id: str, tz: tzinfo = ZoneInfo("Asia/Shanghai"), daily_limit: int = 40,
        daily_usd: float | None = 0.3, allow_unpriced: bool = False, context_messages: int = 10, confirm_confidence: float = CONFIRM_CONFIDENCE,
        retries: int = 1, key: bytes | None = None, clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        if daily_limit < 0 or (daily_usd is not None and daily_usd < 0):
            raise SetupError("daily_limit and daily_usd must not be negative: 0 allows no call, None is no limit for daily_usd")
        self.store, self.session_id, self.tz, self.daily_limit, self.daily_usd = store, session_id, tz, daily_limit, daily_usd
        self._pipeline = DoubleConfirmation(
            l1, l2, l2_policy="source", context_messages=context_messages, confirm_confidence=confirm_confidence
        )
        self._allow_unpriced, self._retries, self._clock, self._sleep = allow_unpriced, retries, clock, sleep
        self._key = key or secrets.token_bytes(32)
        self._said: deque[Turn] = deque(maxlen=context_messages)
        self._busy = threading.Lock()
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self._asker: tuple[str, Asker] | None = None

    def __repr__(self) -> str:
        c = self.counts()
        return f"LiveAnalyzer({self.session_id!r}, l1={c.l1}/{self.daily_limit} today, l2={c.l2}, dropped={c.dropped})"

    # -- the session

    def observe(self, text: str, role: Literal["user", "assistant"] = "assistant") -> None:
        """Take note of a message that is not to be analysed; later ones are read in its context."""
        self._said.append(Turn(role=role, content=text))

    def submit(self, text: str) -> asyncio.Task[Outcome]:
        """Start the analysis of the user's next message and return its task at once. Needs a running event loop."""
        turn = Turn(role="user", content=text)
        context, today = tuple(self._said), self._today()
        self._said.append(turn)
        dialogue = Dialogue(id=self.session_id, turns=(*context, turn), lang=detect_lang(text))
        if not l0(text).escalate:
            return self._start(self._suppressed(dialogue, today, "not_run", "no cue"))
        if not self._busy.acquire(blocking=False):
            return self._start(self._suppressed(dialogue, today, "concurrency_drop", "another message is being analysed"))
        task = self._start(self._analyse(dialogue, today))
        task.add_done_callback(lambda _: self._busy.release())  # also when it is cancelled before its first step
        return task

    def _start(self, work: object) -> asyncio.Task[Outcome]:
        task: asyncio.Task[Outcome] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self) -> None:
        """Wait until every submitted message has its outcome."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one analysis

    async def _suppressed(self, dialogue: Dialogue, today: date, reason: Reason, detail: str) -> Outcome:
        """The outcome of a message that L1 did not see. All but the uneventful ones leave a record, if the ledger lets them."""
        first = unknown(reason, tier="L0", detail=detail, text_hash=sha256(dialogue.text))
        if reason != "not_run":
            await self._persist(first, today)
        return self._outcome(dialogue, first)

    def _outcome(self, dialogue: Dialogue, first: Assessment, reason: Reason = "not_run") -> Outcome:
        return self._pipeline.outcome(dialogue, first, unknown(reason, tier="L2", text_hash=first.text_hash))

    async def _analyse(self, dialogue: Dialogue, today: date) -> Outcome:
        try:
            dialogue = dialogue.model_copy(update={"trend": self.trend(today)})
            number = self.store.add(self._name(today, "l1"), limit=self.daily_limit)
            if number is None:
                return await self._suppressed(dialogue, today, "daily_cap", f"{self.daily_limit} L1 questions today")
            pipeline = self._pipeline.using(self._todays_asker(today))
            first = await pipeline.assess_l1(dialogue, repeat=number)  # the number makes a repeated text a new question
        except StoreError as error:
            return self._outcome(dialogue, unknown("store_error", detail=str(error), text_hash=sha256(dialogue.text)))
        self._note(first, dialogue)
        if not await self._persist(first, today):
            return self._outcome(dialogue, first, "store_error")
        if not (isinstance(first.level, RiskLevel) and first.level >= RiskLevel.HIGH):
            return self._outcome(dialogue, first)
        try:
            outcome = await pipeline.assess(dialogue, l1=first, repeat=number)
        except StoreError:
            return self._outcome(dialogue, first, "store_error")
        self._note(outcome.l2, dialogue)
        if await self._persist(outcome.l2, today, confirmed=outcome.confirmed):
            return outcome
        level = displayed_level(first, outcome.l2)
        return self._outcome(dialogue, first, "store_error").model_copy(update={"level": level})

    async def _persist(self, a: Assessment, today: date, *, confirmed: bool = False) -> bool:
        """Keep one assessment; False when the ledger refuses, which is logged and never raised."""
        body = a.model_dump(mode="json") | {"confirmed": confirmed, "at": self._clock()}
        body |= {"text_hash": keyed_hash(a.text_hash, self._key)}
        try:
            if a.reason == "concurrency_drop":
                self.store.add(self._name(today, "dropped"))
            await self.store.record_assessment(self.session_id, today.isoformat(), body)
        except StoreError as error:
            log.warning("%s assessment of session %s not kept: %s", a.tier, self.session_id, error)
            return False
        return True

    def _note(self, a: Assessment, dialogue: Dialogue) -> None:
        if not a.known:
            log.info(
                "text %s: %s after %d attempts (%s): unknown",
                keyed_hash(sha256(dialogue.text), self._key)[:12],
                a.reason,
                a.attempts,
                a.detail,
            )

    def _todays_asker(self, today: date) -> Asker:
        run_id = self._name(today)
        if self._asker is None or self._asker[0] != run_id:
            budget = Budget(usd=self.daily_usd, allow_unpriced=self._allow_unpriced, clock=self._clock, tz=self.tz)
            asker = Asker(
                store=self.store, run_id=run_id, budget=budget, retries=self._retries, clock=self._clock, sleep=self._sleep
            )
            self._asker = (run_id, asker)
        return self._asker[1]

    # -- what is kept

    def _today(self) -> date:
        return datetime.fromtimestamp(self._clock(), self.tz).date()

    def _name(self, day: date, what: str = "") -> str:
        return f"live:{self.session_id}:{day}" + (f":{what}" if what else "")

    def profile(self, until: date | None = None) -> tuple[Day, ...]:
        """The last seven local days up to *until* (default today), from the kept L1 assessments."""
        until = until or self._today()
        days = {until - timedelta(days=n): Day(until - timedelta(days=n)) for n in reversed(range(DAYS))}
        for day, body in self.store.assessments(self.session_id, since=min(days).isoformat()):
            old = days.get(date.fromisoformat(day))
            if old is None or body["tier"] != "L1":
                continue
            level = RiskLevel(body["level"]) if body["level"] != "unknown" else None
            worst = max((x for x in (old.worst, level) if x is not None), default=None)
            days[old.date] = Day(old.date, old.assessments + 1, old.unknown + (level is None), worst)
        return tuple(days.values())

    def trend(self, until: date | None = None) -> Trend:
        """Negative days of the last seven and how many in a row; a day not assessed yet does not end the row if it is today."""
        days = list(self.profile(until))
        row = days[:-1] if days[-1].assessments == 0 else days
        length = next((n for n, day in enumerate(reversed(row)) if not day.negative), len(row))
        return Trend(negative_days_7d=sum(d.negative for d in days), consecutive_negative_days=length)

    def counts(self, day: date | None = None) -> Counts:
        """The calls of one local day (default today), each kind counted for itself."""
        day = day or self._today()
        again = failures = 0
        asked: dict[Tier, int] = {}
        for tier, attempt, tries, status, n in self.store.tally(self._name(day)):
            first = attempt == 0 and tries == 1
            asked[tier] = asked.get(tier, 0) + (n if first else 0)
            again += 0 if first else n
            failures += 0 if status == "ok" else n
        l1, dropped = (self.store.counter(self._name(day, what)) for what in ("l1", "dropped"))
        return Counts(l1, asked.get("L2", 0), again, failures, dropped)
