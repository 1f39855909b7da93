"""The ledger: every call, assessment, outcome and annotation in one SQL database, committed before anyone goes on."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from workbench.errors import StoreError
from workbench.text import sha256

BUSY_S: Final = 10.0
LINGER_S: Final = 0.002  # rows that come this soon after the first share its commit: fewer commits, fewer thread switches
Row = dict[str, Any]
_META: Final = sa.MetaData()
_BIG: Final = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _table(name: str, *columns: Any) -> sa.Table:
    return sa.Table(name, _META, *columns)


def _id() -> sa.Column[int]:
    return sa.Column("id", _BIG, primary_key=True, autoincrement=True)


_TEXT: Final = ("judge", "tier", "status", "text", "detail", "finish_reason", "message", "prompt_id", "prompt_version", "prompt_hash",
                "text_hash", "model_requested", "model_returned", "fingerprint", "dropped")  # fmt: skip
_INT: Final = ("repeat", "attempt", "tries", "prompt_tokens", "completion_tokens", "cached_tokens")
_REAL: Final = ("cost_usd", "latency_s", "created_at")

MIGRATIONS_RUN: Final = _table(
    "migrations", sa.Column("name", sa.String(80), primary_key=True), sa.Column("applied_at", sa.Float)
)
RUNS: Final = _table(
    "runs", sa.Column("id", sa.String(64), primary_key=True), sa.Column("created_at", sa.Float), sa.Column("config", sa.Text)
)
CALLS: Final = _table(
    "calls", _id(), sa.Column("run_id", sa.String(300), nullable=False), sa.Column("call_key", sa.String(64), nullable=False),
    *(sa.Column(n, sa.Text) for n in _TEXT), *(sa.Column(n, sa.Integer) for n in _INT), *(sa.Column(n, sa.Float) for n in _REAL),
    sa.Column("answered", sa.Boolean), sa.Column("no_choices", sa.Boolean), sa.Column("usage_estimated", sa.Boolean), sa.Index("calls_by_key", "run_id", "call_key"),
)  # fmt: skip
ASSESSMENTS: Final = _table(
    "assessments",
    _id(),
    sa.Column("session_id", sa.String(250), index=True),
    sa.Column("day", sa.String(10)),
    sa.Column("body", sa.Text),
)
OUTCOMES: Final = _table(
    "outcomes",
    sa.Column("run_id", sa.String(300), primary_key=True),
    sa.Column("unit", sa.String(400), primary_key=True),
    sa.Column("body", sa.Text),
)
ANNOTATIONS: Final = _table("annotations", _id(), sa.Column("queue", sa.String(200), index=True), sa.Column("body", sa.Text))
COUNTERS: Final = _table(
    "counters", sa.Column("name", sa.String(400), primary_key=True), sa.Column("value", sa.BigInteger, nullable=False)
)


def m001_initial(conn: sa.Connection) -> None:
    """Runs, calls, assessments, outcomes, annotations and counters."""
    _META.create_all(conn)


# Append only: a name, once released, stays; a database remembers which of them ran.
MIGRATIONS: Final[tuple[Callable[[sa.Connection], None], ...]] = (m001_initial,)


class _Conflict(StoreError):
    """Another process was first."""


class Store:
    """One database, by SQLAlchemy URL or by the path of a SQLite file. A context manager; safe to use from several threads.

    ``record_*`` are coroutines that return once their row is committed: one writer thread commits all waiting rows
    together, so a crash loses nothing that a caller was told of. Everything else is synchronous. Whatever the database
    refuses (locked, full, read-only) is raised as StoreError and nothing of that batch is kept.
    """

    def __init__(
        self, url: str | Path, *, read_only: bool = False, busy_s: float = BUSY_S, clock: Callable[[], float] = time.time
    ) -> None:
        plain = str(url).removeprefix("sqlite:///")  # a path may hold what an URL could not
        self.url = sa.make_url(plain) if "://" in plain else sa.URL.create("sqlite", database=plain)
        self.read_only, self.clock, self._busy_s = read_only, clock, busy_s
        self._waiting: list[tuple[sa.Table, Row, asyncio.Future[None]]] = []
        self._wake, self._closing = threading.Condition(), False
        self._writer: threading.Thread | None = None
        self._reads = threading.Lock()
        self.before_close: list[Callable[[], None]] = []
        self._engine = self._open()
        with self._guard():
            self._migrate()
            self._reader = self._engine.connect().execution_options(reads=True)

    # -- opening and closing

    def _open(self) -> sa.Engine:
        url = self.url
        if url.get_backend_name() != "sqlite":
            return sa.create_engine(url)
        if self.read_only:
            if not Path(url.database or "").is_file():
                raise StoreError(f"there is no ledger at {url.database}: the run was never started, or its files were moved")
            url = url.set(database=f"file:{quote(str(Path(url.database or '').absolute()))}", query={"mode": "ro", "uri": "true"})
        engine = sa.create_engine(url, connect_args={"timeout": self._busy_s, "check_same_thread": False})
        sa.event.listen(engine, "connect", self._pragmas)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def _pragmas(self, connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun by us, and at once for writing
        if not self.read_only:
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
                connection.execute(f"PRAGMA {pragma}")

    def _migrate(self) -> None:
        known = {m.__name__ for m in MIGRATIONS}
        if self.read_only:
            with self._engine.connect().execution_options(reads=True) as conn:
                ran = set(conn.scalars(sa.select(MIGRATIONS_RUN.c.name)))
        else:
            with self._engine.begin() as conn:
                MIGRATIONS_RUN.create(conn, checkfirst=True)
                ran = set(conn.scalars(sa.select(MIGRATIONS_RUN.c.name)))
                for step in MIGRATIONS:
                    if step.__name__ not in ran and not ran - known:
                        step(conn)
                        conn.execute(sa.insert(MIGRATIONS_RUN), {"name": step.__name__, "applied_at": self.clock()})
        if newer := sorted(ran - known):
            raise StoreError(f"this ledger was written by a newer version ({', '.join(newer)}): update the workbench to read it")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url.render_as_string(hide_password=True)!r})"

    def close(self) -> None:
        """Commit what waits, then close. A SQLite ledger at rest is one plain file."""
        for leave in self.before_close:
            with suppress(StoreError):
                leave()
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._writer:
            self._writer.join()
        self._reader.close()
        self._engine.dispose()
        if self._engine.dialect.name == "sqlite" and not self.read_only:
            with suppress(SQLAlchemyError, sqlite3.Error), closing(self._engine.raw_connection()) as raw:
                raw.driver_connection.execute("PRAGMA busy_timeout=0")  # type: ignore[union-attr]
                raw.driver_connection.execute("PRAGMA journal_mode=DELETE")  # type: ignore[union-attr]  # refused while others use it
        self._engine.dispose()

    # -- the group commit

    async def _record(self, table: sa.Table, row: Row) -> None:
        done = asyncio.get_running_loop().create_future()
        with self._wake:
            if self._closing:
                raise StoreError("the ledger is closed: open the run again")
            self._waiting.append((table, row, done))
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_all, name="workbench-ledger", daemon=True)
                self._writer.start()
            self._wake.notify()
        await done

    def _write_all(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closing)
            if not self._closing:
                time.sleep(LINGER_S)
            with self._wake:
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            error: StoreError | None = None
            try:
                with self._guard(), self._engine.begin() as conn:
                    self._write(conn, batch)
            except StoreError as caught:
                error = caught
            _settle([done for _, _, done in batch], error)

    def _write(self, conn: sa.Connection, batch: list[tuple[sa.Table, Row, asyncio.Future[None]]]) -> None:
        for table in dict.fromkeys(table for table, _, _ in batch):
            rows = [row for t, row, _ in batch if t is table]
            if table is OUTCOMES:
                rows = list({(r["run_id"], r["unit"]): r for r in rows}.values())
                gone = sa.delete(OUTCOMES).where(OUTCOMES.c.run_id == sa.bindparam("r"), OUTCOMES.c.unit == sa.bindparam("u"))
                conn.execute(gone, [{"r": r["run_id"], "u": r["unit"]} for r in rows])
            conn.execute(sa.insert(table), rows)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise _Conflict("the ledger already has a row of this name") from None
        except (SQLAlchemyError, ValueError, OverflowError) as error:
            raise StoreError(self._sentence(error)) from None

    def _sentence(self, error: Exception) -> str:
        # The database's own words only: the statement and its values, which SQLAlchemy would add, hold analysed text.
        words = str(getattr(error, "orig", None) or type(error).__name__).split("\n")[0]
        place = self.url.render_as_string(hide_password=True)
        advice = {
            "locked": "close what else uses it",
            "full": "free some space",
            "readonly": "make it writable",
            "unable to open": "check the path",
        }
        step = next((a for word, a in advice.items() if word in words), "check the database")
        return f"the ledger {place} refused ({words}): {step}, then continue with --resume"

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with self._guard(), self._engine.begin() as conn:
            yield conn

    def _all(self, query: sa.Select[Any], **values: Any) -> list[Any]:
        with self._guard(), self._reads, self._reader.begin():
            return list(self._reader.execute(query, values))

    # -- runs, calls, outcomes

    def begin_run(self, config: Mapping[str, Any]) -> str:
        """The id of the run with this configuration; a new row if there is none yet."""
        text = json.dumps(config, sort_keys=True, ensure_ascii=True)
        run_id = sha256(text)[:16]
        with self._begin() as conn:
            if not conn.scalar(sa.select(sa.func.count()).select_from(RUNS).where(RUNS.c.id == run_id)):
                conn.execute(sa.insert(RUNS), {"id": run_id, "created_at": self.clock(), "config": text})
        return run_id

    async def record_call(self, row: Row) -> None:
        """Append one network try (columns of ``calls``)."""
        await self._record(CALLS, row)

    def call_keys(self, run_id: str) -> set[str]:
        """The keys of all calls of a run."""
        return {key for (key,) in self._all(sa.select(CALLS.c.call_key).where(CALLS.c.run_id == run_id))}

    def last_call(self, run_id: str, key: str) -> Row | None:
        """The newest row with this key, whatever its status."""
        rows = self._all(_LAST, run=run_id, key=key)
        return dict(rows[0]._mapping) if rows else None

    def calls(self, run_id: str) -> Iterator[Row]:
        """Every call of a run, oldest first."""
        yield from (dict(r._mapping) for r in self._all(sa.select(CALLS).where(CALLS.c.run_id == run_id).order_by(CALLS.c.id)))

    def spent(self, run_id: str) -> tuple[float, int]:
        """US dollars and tokens of all recorded calls of a run."""
        c = CALLS.c
        tokens = sa.func.coalesce(sa.func.sum(c.prompt_tokens + c.completion_tokens), 0)
        ((usd, n),) = self._all(sa.select(sa.func.coalesce(sa.func.sum(c.cost_usd), 0.0), tokens).where(c.run_id == run_id))
        return float(usd), int(n)

    def tally(self, run_id: str) -> list[tuple[Any, ...]]:
        """(tier, attempt, tries, status, how many) over the calls of a run."""
        by = (CALLS.c.tier, CALLS.c.attempt, CALLS.c.tries, CALLS.c.status)
        return [tuple(row) for row in self._all(sa.select(*by, sa.func.count()).where(CALLS.c.run_id == run_id).group_by(*by))]

    async def record_outcome(self, run_id: str, unit: str, row: Mapping[str, Any]) -> None:
        """Keep the outcome of one unit of work; a newer one replaces it."""
        await self._record(OUTCOMES, {"run_id": run_id, "unit": unit, "body": json.dumps(row)})

    def outcomes(self, run_id: str) -> Iterator[tuple[str, Row]]:
        """(unit, row) of every finished unit of work."""
        query = sa.select(OUTCOMES.c.unit, OUTCOMES.c.body).where(OUTCOMES.c.run_id == run_id)
        yield from ((unit, json.loads(body)) for unit, body in self._all(query))

    # -- live assessments, annotations, counters

    async def record_assessment(self, session_id: str, day: str, body: Mapping[str, Any]) -> None:
        """Append one assessment of a live session, under its local date (YYYY-MM-DD)."""
        await self._record(ASSESSMENTS, {"session_id": session_id, "day": day, "body": json.dumps(body)})

    def assessments(self, session_id: str, *, since: str = "") -> list[tuple[str, Row]]:
        """(day, body) of a session's assessments from the day *since* on, oldest first."""
        c = ASSESSMENTS.c
        query = sa.select(c.day, c.body).where(c.session_id == session_id, c.day >= since).order_by(c.id)
        return [(day, json.loads(body)) for day, body in self._all(query)]

    def annotate(self, row: Mapping[str, Any]) -> int:
        """Append one annotation to its queue; returns its id once it is committed."""
        with self._begin() as conn:
            done = conn.execute(sa.insert(ANNOTATIONS), {"queue": row["queue"], "body": json.dumps(dict(row))})
            return int(done.inserted_primary_key[0])  # type: ignore[index]

    def annotations(self, queue: str) -> list[Row]:
        """All annotations of a queue, oldest first, each with its id."""
        query = sa.select(ANNOTATIONS.c.id, ANNOTATIONS.c.body).where(ANNOTATIONS.c.queue == queue).order_by(ANNOTATIONS.c.id)
        return [json.loads(body) | {"id": number} for number, body in self._all(query)]

    def add(self, name: str, delta: int = 1, *, limit: int | None = None) -> int | None:
        """Add to a counter, atomically among processes; returns the new value, or None if it would pass *limit*."""
        for _ in range(2):  # the second round is for the loser of two first inserts
            with suppress(_Conflict), self._begin() as conn:
                c = COUNTERS.c
                fits = sa.true() if limit is None else c.value + delta <= limit
                if conn.execute(sa.update(COUNTERS).where(c.name == name, fits).values(value=c.value + delta)).rowcount:
                    return int(conn.scalar(sa.select(c.value).where(c.name == name)) or 0)
                if conn.scalar(sa.select(c.value).where(c.name == name)) is not None or (limit is not None and delta > limit):
                    return None
                conn.execute(sa.insert(COUNTERS), {"name": name, "value": delta})
                return delta
        raise StoreError(f"counter '{name}' could not be written: try again")

    def counter(self, name: str) -> int:
        """The value of a counter, 0 if it was never written."""
        return self.counters(name).get(name, 0)

    def counters(self, prefix: str) -> dict[str, int]:
        """All counters whose name starts with *prefix*."""
        return {
            name: int(value)
            for name, value in self._all(sa.select(COUNTERS).where(COUNTERS.c.name.startswith(prefix, autoescape=True)))
        }


_LAST: Final = sa.select(CALLS).where(CALLS.c.run_id == sa.bindparam("run"), CALLS.c.call_key == sa.bindparam("key")).order_by(CALLS.c.id.desc()).limit(1)  # fmt: skip


def _begin(conn: sa.Connection) -> None:
    # A transaction that will write takes the write lock at once: one that upgrades later may fail without waiting.
    conn.exec_driver_sql("BEGIN" if conn.get_execution_options().get("reads") else "BEGIN IMMEDIATE")


def _settle(futures: list[asyncio.Future[None]], error: StoreError | None) -> None:
    """Wake the waiting coroutines, each on its own loop, one wake-up per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures:
        by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, group in by_loop.items():
        with suppress(RuntimeError):  # that loop was closed meanwhile: its row is committed all the same
            loop.call_soon_threadsafe(_finish, group, error)


def _finish(futures: list[asyncio.Future[None]], error: StoreError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(StoreError(str(error)))
