"""What the ledger says it has, it has: committed, whole, and under its own rules."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from workbench import store as module
from workbench.errors import StoreError
from workbench.store import Store


def call(key="k", **fields):
    base = {"run_id": "r", "call_key": key, "judge": "cue", "tier": "L1", "status": "ok", "text": "{}", "repeat": 0, "attempt": 0, "tries": 1,
            "prompt_tokens": 3, "completion_tokens": 4, "cost_usd": 0.25, "created_at": 1.0, "answered": True, "no_choices": False}  # fmt: skip
    return base | fields


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "l.db", busy_s=0.2) as opened:
        yield opened


def record(store, *rows):
    async def go():
        await asyncio.gather(*[store.record_call(row) for row in rows])

    asyncio.run(go())


def test_a_recorded_call_comes_back_and_the_newest_wins(store):
    record(store, call("a", status="timeout"), call("b", text="你好 😀 \x00\n"))
    record(store, call("a", status="ok"), call("c", run_id="other"))

    assert store.last_call("r", "a")["status"] == "ok"
    assert store.last_call("r", "b")["text"] == "你好 😀 \x00\n"
    assert store.last_call("r", "c") is None
    assert store.call_keys("r") == {"a", "b"}
    assert [row["status"] for row in store.calls("r") if row["call_key"] == "a"] == ["timeout", "ok"]
    assert store.spent("r") == (0.75, 21)
    assert store.spent("nothing") == (0.0, 0)


def test_a_record_is_on_disk_before_its_caller_goes_on(store, tmp_path):
    async def go():
        await store.record_call(call("a"))
        return sqlite3.connect(tmp_path / "l.db").execute("select count(*) from calls").fetchone()

    assert asyncio.run(go()) == (1,)


KILLED = """
import asyncio, sys
from tests.test_store import call
from workbench.store import Store
async def go():
    store = Store(sys.argv[1])
    async def one(worker):
        for i in range(10**6):
            await store.record_call(call(f"{worker}-{i}"))
            print(f"{worker}-{i}", flush=True)
    await asyncio.gather(*[one(w) for w in range(16)])
asyncio.run(go())
"""


def test_kill_9_loses_nothing_that_was_awaited(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "l.db")], stdout=subprocess.PIPE, text=True) as child:
        told = [child.stdout.readline().strip() for _ in range(500)]
        os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.read().split("\n")[:-1]

    with Store(tmp_path / "l.db") as store:
        assert set(filter(None, told)) <= store.call_keys("r")
    assert sqlite3.connect(tmp_path / "l.db").execute("pragma integrity_check").fetchone() == ("ok",)


def test_outcomes_are_replaced_not_doubled(store):
    async def go():
        await store.record_outcome("r", "d1", {"settled": False})
        await store.record_outcome("r", "d2", {"settled": True})
        await asyncio.gather(*[store.record_outcome("r", "d1", {"settled": True, "n": n}) for n in range(5)])

    asyncio.run(go())

    assert dict(store.outcomes("r")) == {"d1": {"settled": True, "n": 4}, "d2": {"settled": True}}
    assert list(store.outcomes("other")) == []


def test_a_run_is_found_again_by_its_configuration(store):
    first = store.begin_run({"a": 1, "b": [2]})

    assert store.begin_run({"b": [2], "a": 1}) == first
    assert store.begin_run({"a": 2, "b": [2]}) != first


def test_many_records_take_seconds_not_minutes(store):
    async def go():
        gate = asyncio.Semaphore(64)

        async def one(i):
            async with gate:
                await store.record_call(call(str(i), text="x" * 300))

        await asyncio.gather(*[one(i) for i in range(5000)])

    started = time.perf_counter()
    asyncio.run(go())

    assert time.perf_counter() - started < 8  # about 0.5 s on an idle core
    assert len(store.call_keys("r")) == 5000


def test_annotations_keep_order_and_get_ids(store):
    ids = [store.annotate({"queue": "q", "level": level, "note": "=1+1"}) for level in ("low", "high")]
    store.annotate({"queue": "other"})

    assert [row["id"] for row in store.annotations("q")] == ids == sorted(ids)
    assert [row["level"] for row in store.annotations("q")] == ["low", "high"]


def test_live_assessments_are_read_by_day(store):
    async def go():
        for day in ("2026-11-28", "2026-11-30", "2026-12-01"):
            await store.record_assessment("s", day, {"level": "high"})
        await store.record_assessment("other", "2026-12-01", {})

    asyncio.run(go())

    assert [day for day, _ in store.assessments("s", since="2026-11-29")] == ["2026-11-30", "2026-12-01"]


# -- what the database refuses


def test_a_locked_database_says_so_and_recovers(store, tmp_path):
    other = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreError, match=r"locked.*close what else uses it"):
        record(store, call("a"))
    with pytest.raises(StoreError, match="locked"):
        store.add("n")
    other.execute("rollback")
    record(store, call("b"))

    assert store.call_keys("r") == {"b"}


def test_a_full_disk_stops_with_the_reason(tmp_path):
    with Store(tmp_path / "l.db") as store:
        sa.event.listen(store._engine, "connect", lambda c, _: c.execute("pragma max_page_count=40"))
        store._engine.dispose()
        with pytest.raises(StoreError, match=r"full.*free some space"):
            for i in range(100):
                record(store, call(str(i), text="secret " * 500))
        kept = store.call_keys("r")

    assert 0 < len(kept) < 100  # what was acknowledged is there, the refused batch is not


def test_a_read_only_ledger_is_read_and_not_written(tmp_path):
    with Store(tmp_path / "l.db") as store:
        record(store, call("a"))
    with Store(tmp_path / "l.db", read_only=True) as store:
        assert store.call_keys("r") == {"a"}
        with pytest.raises(StoreError, match=r"readonly.*make it writable"):
            record(store, call("b"))
        with pytest.raises(StoreError, match="readonly"):
            store.annotate({"queue": "q"})


def test_any_folder_name_will_do(tmp_path):
    odd = tmp_path / "50% of #1? ü&a=b"
    odd.mkdir()
    with Store(f"sqlite:///{odd / 'l.db'}") as store:
        record(store, call("a"))
    with Store(odd / "l.db", read_only=True) as store:
        assert store.call_keys("r") == {"a"}
    assert [p.name for p in odd.iterdir()] == ["l.db"]


@pytest.mark.parametrize(("content", "says"), [(b"this is no database" * 50, "not a database"), (None, "there is no ledger")])
def test_what_is_no_ledger_is_refused(tmp_path, content, says):
    if content:
        (tmp_path / "l.db").write_bytes(content)
    with pytest.raises(StoreError, match=says):
        Store(tmp_path / "l.db", read_only=True)


def test_a_bad_row_fails_its_caller_and_not_the_ledger(store):
    with pytest.raises(StoreError) as caught:
        record(store, call("a", text={"what the user said": "I cannot go on"}))
    record(store, call("b"))

    assert "cannot go on" not in str(caught.value)  # SQLAlchemy would print statement and values
    assert "INSERT" not in str(caught.value)
    assert store.call_keys("r") == {"b"}
    with pytest.raises(StoreError):
        record(store, call("c", text="\ud800"))


def test_a_cancelled_caller_leaves_its_row(store):
    async def go():
        task = asyncio.create_task(store.record_call(call("a")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.record_call(call("b"))

    asyncio.run(go())

    assert store.call_keys("r") == {"a", "b"}


def test_it_serves_loops_one_after_another_and_refuses_when_closed(tmp_path):
    store = Store(tmp_path / "l.db")
    record(store, call("a"))
    record(store, call("b"))
    store.close()

    with pytest.raises(StoreError, match="closed"):
        record(store, call("c"))
    assert [p.name for p in tmp_path.iterdir()] == ["l.db"]  # at rest it is one plain file


# -- counters


def _count(path, n):
    with Store(path) as store:
        for _ in range(n):
            store.add("calls")


def test_8_processes_times_200_writes_lose_nothing(tmp_path):
    path, spawn = str(tmp_path / "l.db"), multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count, args=(path, 200)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [w.exitcode for w in workers] == [0] * 8
    with Store(path) as store:
        assert store.counter("calls") == 1600


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-5, 20), max_size=12), st.integers(0, 40))
def test_a_counter_never_passes_its_limit(tmp_path_factory, deltas, limit):
    expected = 0
    with Store(tmp_path_factory.mktemp("c") / "l.db") as store:
        for delta in deltas:
            fits = expected + delta <= limit
            expected += delta if fits else 0
            assert store.add("n", delta, limit=limit) == (expected if fits else None)
        assert store.counter("n") == expected
        assert store.counter("never") == 0


def test_counters_are_listed_by_prefix_not_by_pattern(store):
    for name in ("a_b:1", "a_b:2", "axb:3"):
        store.add(name)

    assert store.counters("a_b:") == {"a_b:1": 1, "a_b:2": 1}


# -- schema


COLUMNS = {
    "annotations": ["id", "queue", "body"],
    "assessments": ["id", "session_id", "day", "body"],
    "calls": ["id", "run_id", "call_key", "judge", "tier", "status", "text", "detail", "finish_reason", "message", "prompt_id", "prompt_version",
              "prompt_hash", "text_hash", "model_requested", "model_returned", "fingerprint", "dropped", "repeat", "attempt", "tries",
              "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "latency_s", "created_at", "answered", "no_choices",
              "usage_estimated"],
    "counters": ["name", "value"],
    "migrations": ["name", "applied_at"],
    "outcomes": ["run_id", "unit", "body"],
    "runs": ["id", "created_at", "config"],
}  # fmt: skip


def test_a_new_ledger_has_these_columns(tmp_path):
    Store(tmp_path / "l.db").close()
    found = sa.inspect(sa.create_engine(f"sqlite:///{tmp_path / 'l.db'}"))

    assert {t: [c["name"] for c in found.get_columns(t)] for t in found.get_table_names()} == COLUMNS


def test_an_older_ledger_is_brought_up_to_date_once(tmp_path, monkeypatch):
    Store(tmp_path / "l.db").close()

    def m002_more(conn):
        conn.exec_driver_sql("alter table runs add column note text")

    monkeypatch.setattr(module, "MIGRATIONS", (*module.MIGRATIONS, m002_more))
    Store(tmp_path / "l.db").close()
    Store(tmp_path / "l.db").close()
    monkeypatch.undo()

    with pytest.raises(StoreError, match=r"newer version .m002_more.: update the workbench"):
        Store(tmp_path / "l.db")


def test_no_sql_is_for_sqlite_only():
    dialect = postgresql.dialect()
    for table in module._META.tables.values():
        assert "AUTOINCREMENT" not in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))
    source = Path(module.__file__).read_text("utf-8")
    assert source.count("exec_driver_sql") == 1  # BEGIN, under a test for sqlite
    assert "OR REPLACE" not in source.upper()
    assert "json_" not in source
