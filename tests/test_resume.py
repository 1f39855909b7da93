"""A run that dies is continued, not repeated: the same tables in the end, and no settled call made twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sqlite3
import time
from collections import Counter

import pytest

from tests.misbehaving import CRITICAL, Server
from workbench.budget import Budget, Price
from workbench.confirm import DoubleConfirmation
from workbench.errors import ReplayMiss, SetupError
from workbench.judges.remote import RemoteJudge
from workbench.prompts import render
from workbench.runner import Run, replayed, run, sync
from workbench.schema import Dialogue, RiskLevel, Turn, View
from workbench.store import Store
from workbench.verify import hashes, verify

# Most answer; some need a second try, some a second wording, some never answer. What is answered depends on the
# request alone: an endpoint that changes its mind would give other tables, and rightly so.
MOODS = ["good"] * 15 + ["once-500", "once-429-after", "good unclear", "prose", "refusal"]
PLAIN_END = render(View(text="x"), "L1").messages[-1]["content"][-20:]


def corpus(n):
    def one(i):
        turns = (Turn(role="user", content=f"day {i}"), Turn(role="assistant", content="tell me"), Turn(role="user", content=f"I am fine, day {i}. fault:{MOODS[i % 20]}"))  # fmt: skip
        return Dialogue(id=f"d{i}", family=f"f{i // 4}", turns=turns, provenance={"synthetic": True})

    return [one(i) for i in range(n)]


def verdict(body):
    """An answer that depends on the question only."""
    question = body["messages"][-1]["content"]
    if "unclear" in question and question.endswith(PLAIN_END):
        return "Let me think."
    h = hashlib.blake2b(json.dumps(body["messages"]).encode(), digest_size=4).digest()
    return json.dumps(CRITICAL | {"risk_level": list(RiskLevel)[h[0] % 4].value, "confidence": round(0.5 + h[1] / 510, 3)})


def pipeline(url):
    l1, l2 = (
        RemoteJudge(name, url, "mock-judge", timeout_s=10.0, max_tokens=size) for name, size in (("one", 600), ("two", 601))
    )
    return DoubleConfirmation(l1, l2)


def work(url, out, n, resume):
    sync(run(pipeline(url), corpus(n), out=out, resume=resume, concurrency=16, progress=False))


def asked(server):
    """How often each prompt was sent, by the hash the ledger knows it by."""
    counts: Counter[str] = Counter()
    for (_, body), n in list(server.asked.items()):
        data = json.loads(body)
        counts[
            hashlib.sha256(json.dumps(data["messages"], ensure_ascii=True, sort_keys=True).encode()).hexdigest(),
            data["max_tokens"],
        ] += n
    return counts


def settled(out):
    """The prompts whose answer is in the ledger, told apart by judge."""
    with Store(out / "ledger.db") as store:
        size = {"one": 600, "two": 601}
        run_id = Run.open(out).manifest["run_id"]
        return {(row["prompt_hash"], size[row["judge"]]) for row in store.calls(run_id) if row["status"] == "ok"}


def killed_after(server, calls, child, rng):
    """Let the child make about so many calls, then end it without a word."""
    start, deadline = server.calls(), time.monotonic() + 60
    while server.calls() - start < calls and child.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    return child.exitcode == -signal.SIGKILL


def cut_up(server, out, n, kills, rng):
    """Run, killed *kills* times, to the end; what was settled at each kill with how often it had been asked."""
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(["workbench.runner", "workbench.judges.remote", "openai", "aiohttp", "tests.test_resume"])
    seen, before, deaths = [], server.calls(), 0
    while deaths < kills:
        child = fork.Process(target=work, args=(server.url("by-text"), str(out), n, (out / "manifest.json").exists()))
        child.start()
        if not killed_after(server, rng.randint(1, 4 * n // kills), child, rng):
            break
        deaths += 1
        if (out / "manifest.json").exists():
            counts = asked(server)
            seen.append({p: counts[p] for p in settled(out)})
    work(server.url("by-text"), str(out), n, (out / "manifest.json").exists())
    return seen, deaths, server.calls() - before


def check(tmp_path, n, kills, seed):
    rng = random.Random(seed)
    with Server(answer=verdict) as server:
        work(server.url("by-text"), str(tmp_path / "whole"), n, False)
        whole = Run.open(tmp_path / "whole")
        needed = server.calls()
        server.asked.clear()
        server.seen.clear()
        seen, deaths, made = cut_up(server, tmp_path / "cut", n, kills, rng)
        final = asked(server)
        cut = Run.open(tmp_path / "cut")

        assert deaths >= kills * 0.8
        assert [(p, k) for counts in seen for p, k in counts.items() if final[p] != k] == []  # settled: never asked again
        unread = sum(r["settled"] is False for _, r in cut.store().outcomes(cut.manifest["run_id"]))
        assert made - needed <= deaths * (16 * 2 + 2 * unread)  # in flight at a kill, and what had failed
        assert hashes(cut.frame, cut.outcomes) == hashes(whole.frame, whole.outcomes)
        assert cut.manifest["status"] == "complete"
    assert verify(tmp_path / "cut") == []
    return deaths


def test_killed_a_few_times_the_tables_are_the_same(tmp_path):
    check(tmp_path, n=60, kills=4, seed=1)


@pytest.mark.slow
def test_kill_9_at_50_random_points_of_a_1000_dialogue_run(tmp_path):
    assert check(tmp_path, n=1000, kills=50, seed=7) >= 40


def test_a_kill_at_any_moment_of_the_start_leaves_something_to_continue(tmp_path):
    fork, rng = multiprocessing.get_context("forkserver"), random.Random(3)
    fork.set_forkserver_preload(["workbench.runner", "workbench.judges.remote", "openai", "aiohttp", "tests.test_resume"])
    with Server(answer=verdict) as server:
        for i in range(12):
            out = tmp_path / f"run{i}"
            child = fork.Process(target=work, args=(server.url("by-text"), str(out), 8, False))
            child.start()
            limit = time.monotonic() + 20
            while not out.exists() and time.monotonic() < limit:
                time.sleep(0.0005)
            time.sleep(rng.random() * 0.08)
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            work(server.url("by-text"), str(out), 8, True)

            assert Run.open(out).manifest["status"] == "complete"


def test_cancel_leaves_a_run_that_goes_on(tmp_path):
    with Server(answer=verdict, latency_s=0.01) as server:

        async def cancelled():
            task = asyncio.create_task(
                run(pipeline(server.url("by-text")), corpus(80), out=tmp_path / "r", concurrency=8, progress=False)
            )
            await asyncio.sleep(0.4)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        before, ok = asked(server), settled(tmp_path / "r")
        assert Run.open(tmp_path / "r").manifest["status"] == "interrupted"
        assert 0 < len(ok) < 140
        work(server.url("by-text"), str(tmp_path / "r"), 80, True)
        after = asked(server)

    assert all(after[p] == before[p] for p in ok)
    assert Run.open(tmp_path / "r").manifest["done"] == 80


def test_resume_goes_on_with_what_the_budget_has_left(tmp_path):
    with Server(answer=verdict) as server:
        p = pipeline(server.url())
        for judge in p.judges:
            judge.price = Price(10.0, 10.0)

        def go(usd, **options):
            before = server.calls()
            done = sync(run(p, corpus(40), out=tmp_path / "r", budget=Budget(usd=usd), concurrency=8, progress=False, **options))
            return server.calls() - before, done.manifest["unknown"], set(done.frame["reason"].dropna())

        first = go(0.1)
        again = go(0.1, resume=True)
        more = go(10.0, resume=True)

    assert first[1] > 0 and "budget" in first[2]
    assert 0 < first[0] <= 25  # each call takes $0.0039
    assert first[0] + again[0] <= 25  # the ledger remembers; what was held beside calls in flight is free again
    assert more[0] == 84 - first[0] - again[0] and more[1] == 0  # 80 questions, four of them put twice


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run, and the address of a server that is gone."""
    out = tmp_path_factory.mktemp("finished") / "r"
    with Server(answer=verdict) as server:
        work(server.url("by-text"), str(out), 40, False)
    return out


def test_replay_gives_the_same_tables_with_sockets_blocked(finished, monkeypatch):
    def refuse(*_a, **_k):
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    done = Run.open(finished)
    frame, outcomes = replayed(done)

    assert hashes(frame, outcomes) == hashes(done.frame, done.outcomes)
    assert set(frame["reason"].dropna()) == {"parse_error", "refused"}
    monkeypatch.undo()
    assert verify(finished) == []


def test_replay_needs_every_call(finished, tmp_path):
    copy = tmp_path / "r"
    shutil.copytree(finished, copy)
    with sqlite3.connect(copy / "ledger.db") as ledger:
        ledger.execute(
            "delete from calls where call_key = (select call_key from calls where status = 'ok' order by id desc limit 1)"
        )
    ledger.close()

    with pytest.raises(ReplayMiss, match="the ledger has no call of"):
        replayed(Run.open(copy))
    assert verify(copy)[0].startswith("the ledger is incomplete")


def test_a_tampered_answer_is_found(finished, tmp_path):
    copy = tmp_path / "r"
    shutil.copytree(finished, copy)
    with sqlite3.connect(copy / "ledger.db") as ledger:
        ledger.execute("update calls set text = replace(text, '\"low\"', '\"medium\"') where status = 'ok'")
    ledger.close()

    assert any("differs" in line for line in verify(copy))


def test_resume_refuses_another_configuration(finished):
    with pytest.raises(SetupError, match="another configuration"):
        sync(run(pipeline("http://127.0.0.1:9/other/v1"), corpus(40), out=finished, resume=True, progress=False))
