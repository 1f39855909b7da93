"""Whatever a judge, an endpoint or a disk does: nothing is confirmed, nothing is scored low, and the reason has a name."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.misbehaving import ANSWERS, CASES, FAULTS, HARMLESS, REFUSALS, Server
from workbench.confirm import DoubleConfirmation
from workbench.errors import StoreError
from workbench.judges.remote import RemoteJudge
from workbench.judging import Asker
from workbench.runner import Run, run, sync
from workbench.schema import Dialogue, Turn
from workbench.store import Store

KEY = "sk-secret-0123456789abcdef"
ROLES = ("l1", "l2", "arbiter")


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def dialogues(n=1, **fields):
    provenance = {"synthetic": True}
    return [
        Dialogue(
            id=f"d{i}", family=f"f{i}", turns=(Turn(role="user", content=f"I am fine, day {i}"),), provenance=provenance, **fields
        )
        for i in range(n)
    ]


async def quick(_seconds):
    await asyncio.sleep(0)


def judge(server, fault="good", name="good", **settings):
    patience = 0.25 if fault.removeprefix("once-") in ("hang", "slow-first-byte", "slow-body") else 5.0
    return RemoteJudge(name, server.url(fault), "mock-judge", **({"timeout_s": patience} | settings))


def assess(server, fault, role):
    """One dialogue where everyone says critical, except the faulty one, whose fault it is."""
    judges = {r: judge(server, fault, r) if r == role else judge(server, "good", r) for r in ROLES}
    if role == "arbiter":  # called on disagreement: L1 half confirms, L2 cannot
        judges["l2"] = judge(server, LOW_CASE, "l2")
    pipeline = DoubleConfirmation(**judges, combine="arbitration" if role == "arbiter" else "and", asker=Asker(sleep=quick))
    return asyncio.run(pipeline.assess(dialogues()[0]))


LOW_CASE = f"case-{next(i for i, c in enumerate(CASES) if c['expect'].get('risk_level') == 'low' and c['strength'] == 'firm')}"


def test_without_a_fault_it_is_confirmed(server):
    assert assess(server, "good", "l1").confirmed
    assert assess(server, "good", "arbiter").confirmed


@pytest.mark.parametrize("fault", sorted(HARMLESS))
@pytest.mark.parametrize("role", ["l1", "l2"])
def test_an_odd_but_proper_answer_still_confirms(server, fault, role):
    assert assess(server, fault, role).confirmed


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_never_confirms_and_never_scores_low(server, fault, role):
    outcome = assess(server, fault, role)
    side = getattr(outcome, role)

    assert not outcome.confirmed
    assert side.reason == FAULTS[fault]
    assert (side.level.value, side.score, side.confidence) == ("unknown", None, None)
    assert outcome.level.value == "critical"  # the other side's
    if role != "arbiter":
        assert outcome.incomplete
        assert "unknown" in outcome.review_reasons


@pytest.mark.parametrize("role", ["l1", "l2"])
@pytest.mark.parametrize(
    "fault",
    ["429-after", "429", "500", "502", "503", "reset", "closed", "html-200", "hang", "prose", "truncated", "null", "short-body"],
)
def test_a_fault_that_passes_is_survived(server, fault, role):
    assert assess(server, f"once-{fault}", role).confirmed


@pytest.mark.parametrize("role", ["l1", "l2"])
def test_no_malformed_verdict_confirms_unless_it_may(server, role):
    """All of data/judge_output.jsonl, through a real endpoint and the whole pipeline."""

    pair = {r: judge(server, "by-text" if r == role else "good", r) for r in ("l1", "l2")}

    async def go():
        pipeline, wrong = DoubleConfirmation(**pair, asker=Asker(sleep=quick)), []
        for i, case in enumerate(CASES):
            turn = Turn(role="user", content=f"{case.get('analysed_text') or 'I am fine.'} fault:case-{i}")
            outcome = await pipeline.assess(dialogues()[0].model_copy(update={"turns": (turn,)}))
            side = getattr(outcome, role)
            if outcome.confirmed and not case["expect"].get("may_confirm", False):
                wrong.append((case["id"], "confirmed"))
            if not side.known and side.reason is None:
                wrong.append((case["id"], "no reason"))
            if case["strength"] == "firm" and case["expect"]["outcome"] == "reject" and side.known:
                wrong.append((case["id"], "scored"))
        return wrong

    assert asyncio.run(go()) == []


def test_a_run_goes_on_past_every_fault_and_keeps_no_key(server, tmp_path, monkeypatch):
    """All faults in one run, by dialogue; the run directory holds no key, whatever the server echoed."""
    monkeypatch.setenv("MOCK_API_KEY", KEY)
    names, out = [*sorted(FAULTS), "good"], tmp_path / "run"
    mixed = judge(server, "by-text", "mixed", key_env="MOCK_API_KEY", timeout_s=2.0)
    corpus = [
        d.model_copy(update={"id": n, "turns": (Turn(role="user", content=f"I am fine. fault:{n}"),)})
        for d, n in zip(dialogues(len(names)), names, strict=True)
    ]

    result = sync(run(DoubleConfirmation(mixed, judge(server)), corpus, out=out, concurrency=48, progress=False))

    assert result.manifest["status"] == "complete"
    assert list(result.outcomes[result.outcomes["confirmed"]]["dialogue_id"]) == ["good"]
    assert dict(zip(result.outcomes["dialogue_id"], result.outcomes["l1_reason"].fillna(""), strict=True)) == FAULTS | {
        "good": ""
    }
    assert (result.outcomes["l1_level"] == "low").sum() == 0
    assert f"Bearer {KEY}" in server.keys
    for path in out.rglob("*"):
        assert KEY.encode() not in path.read_bytes()
        assert b"sk-leaked" not in path.read_bytes()


# -- the disk


def full(tmp_path, monkeypatch):
    pragmas = Store._pragmas
    monkeypatch.setattr(Store, "_pragmas", lambda self, c, r: (pragmas(self, c, r), c.execute("pragma max_page_count=60")))
    return lambda: None


def locked(tmp_path, monkeypatch):
    """Another program takes the write lock once the run is under way."""
    monkeypatch.setitem(Store.__init__.__kwdefaults__, "busy_s", 0.2)

    def go():
        ledger = tmp_path / "run" / "ledger.db"
        while not ledger.exists():
            time.sleep(0.01)
        other = sqlite3.connect(ledger, timeout=5, isolation_level=None)
        while not other.execute("select count(*) from sqlite_master where name = 'outcomes'").fetchone()[0]:
            time.sleep(0.01)
        while other.execute("select count(*) from outcomes").fetchone()[0] < 10:
            time.sleep(0.01)
        other.execute("begin immediate")
        time.sleep(1.5)
        other.close()

    thread = threading.Thread(target=go)
    thread.start()
    return thread.join


@pytest.mark.parametrize("fault", [full, locked])
def test_a_ledger_fault_stops_the_run_which_resumes(tmp_path, fault, monkeypatch):
    out, many = tmp_path / "run", dialogues(200)
    with Server(latency_s=0.02) as server:
        pipeline = DoubleConfirmation(judge(server), judge(server))
        with monkeypatch.context() as patch:
            wait = fault(tmp_path, patch)
            with pytest.raises(StoreError, match=rf"{fault.__name__}.*--resume"):
                sync(run(pipeline, many, out=out, concurrency=4, progress=False))
            wait()
        partial = Run.open(out)
        assert partial.manifest["status"] == "failed"
        assert 0 < len(partial.outcomes) < 200
        asked = server.calls()

        result = sync(run(pipeline, many, out=out, resume=True, concurrency=16, progress=False))

        assert (result.manifest["status"], result.manifest["done"]) == ("complete", 200)
        assert result.outcomes["confirmed"].all()
        assert server.calls() - asked < 400  # what was settled is not asked again


def test_the_command_line_tells_the_reason_on_stderr(tmp_path):
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "workbench.cli",
        "run",
        "--l1",
        "simulated",
        "--l2",
        "simulated",
        "--limit",
        "3",
        "--out",
        str(out),
    ]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120).returncode == 0
    (out / "ledger.db").write_bytes(b"not a database" * 500)
    broken = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120)

    assert broken.returncode == 1
    assert broken.stderr.startswith("workbench: the ledger")
    assert "Traceback" not in broken.stderr


def test_the_document_lists_every_fault_and_its_source():
    text = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text("utf-8")

    assert [f for f in (*FAULTS, *HARMLESS, *REFUSALS) if f"`{f}`" not in text] == []
    assert [
        f
        for f, (reason, source, *_) in ANSWERS.items()
        if f"`{f}` | " not in text or source not in text or f"`{reason}`" not in text
    ] == []
