"""It works wherever an event loop is, was, or is not; and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from tests.misbehaving import Server
from workbench.confirm import DoubleConfirmation
from workbench.judges.remote import RemoteJudge
from workbench.judging import Asker
from workbench.runner import run, sync
from workbench.schema import Dialogue, Turn, View


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """No socket and no thread survives a test, and no warning about one is given."""
    before = sockets()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    deadline = time.monotonic() + 5
    while sockets() > before and time.monotonic() < deadline:  # the server, in this process too, notices a little later
        time.sleep(0.01)
    assert [str(w.message) for w in caught if issubclass(w.category, ResourceWarning | RuntimeWarning)] == []
    assert sockets() <= before
    assert [t.name for t in threading.enumerate() if t.name.startswith("workbench")] == []


def sockets():
    def target(fd):
        try:
            return str(fd.readlink())
        except OSError:
            return ""

    return sum(target(fd).startswith("socket:") for fd in Path("/proc/self/fd").iterdir())


def dialogue(i=0):
    return Dialogue(id=f"d{i}", turns=(Turn(role="user", content=f"I am fine, day {i}"),), provenance={"synthetic": True})


def pipeline(server):
    judge = RemoteJudge("m", server.url(), "mock-judge", timeout_s=10)
    return DoubleConfirmation(judge, judge)


def test_from_a_plain_script(server):
    assert pipeline(server).assess_sync(dialogue()).confirmed


def test_two_loops_in_a_row_with_the_same_judge(server):
    p = pipeline(server)

    assert asyncio.run(p.assess(dialogue())).confirmed
    assert asyncio.run(p.assess(dialogue())).confirmed
    assert p.l1._clients == {}


def test_inside_a_running_loop(server):
    p = pipeline(server)

    async def cell():
        awaited = await p.assess(dialogue())
        blocking = p.assess_sync(dialogue())  # what a notebook user may also write
        return awaited.confirmed, blocking.confirmed

    assert asyncio.run(cell()) == (True, True)


def test_from_threads_at_the_same_time(server):
    p, results = pipeline(server), []
    threads = [threading.Thread(target=lambda i=i: results.append(p.assess_sync(dialogue(i // 2)).confirmed)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert results == [True] * 6


def test_a_whole_run_in_each_of_them(server, tmp_path):
    p, many = pipeline(server), [dialogue(i) for i in range(12)]
    for name, go in (
        ("script", lambda out: sync(run(p, many, out=out, progress=False))),
        ("loop", lambda out: asyncio.run(_inside(p, many, out))),
    ):
        result = go(tmp_path / name)
        assert result.outcomes["confirmed"].all()


async def _inside(p, many, out):
    sync(run(p, many, out=out, progress=False))
    return await run(p, many, out=out, resume=True, progress=False)


def test_cancelled_in_the_middle_it_leaves_no_task_and_goes_on():
    with Server(latency_s=0.05) as slow:
        judge = RemoteJudge("m", slow.url(), "mock-judge", timeout_s=10)

        async def go():
            asker = Asker(concurrency=4)
            tasks = [asyncio.create_task(asker.ask(judge, View(text=str(i)), tier="L1")) for i in range(20)]
            await asyncio.sleep(0.08)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            limiter = next(iter(asker._limiters[asyncio.get_running_loop()].values()))
            again = await asker.ask(judge, View(text="again"), tier="L1")
            return left, limiter._busy, again.known, asker._asking

        assert asyncio.run(go()) == ([], 0, True, {})


def test_uvloop_closes_its_clients_too(server):
    uvloop = pytest.importorskip("uvloop")
    p = pipeline(server)

    assert uvloop.run(p.assess(dialogue())).confirmed
    assert p.l1._clients == {}


def test_a_judge_can_be_closed_early_and_used_again(server):
    judge = RemoteJudge("m", server.url(), "mock-judge", timeout_s=10)

    async def go():
        asker = Asker()
        first = await asker.ask(judge, View(text="one"), tier="L1")
        await judge.aclose()
        await judge.aclose()
        return first.known, judge._clients == {}, (await asker.ask(judge, View(text="two"), tier="L1")).known

    assert asyncio.run(go()) == (True, True, True)


def test_no_loop_is_patched():
    code = (
        "import asyncio, sys, workbench as wb; from workbench.schema import Dialogue, Turn\n"
        "before = asyncio.run\n"
        "p = wb.DoubleConfirmation(wb.judge('simulated'), wb.judge('simulated'))\n"
        "d = Dialogue(id='d', turns=(Turn(role='user', content='fine'),))\n"
        "asyncio.run(p.assess(d)); p.assess_sync(d)\n"
        "assert asyncio.run is before; print([m for m in sys.modules if 'nest_asyncio' in m])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)

    assert done.stdout.strip() == "[]", done.stderr
    assert done.stderr == ""
