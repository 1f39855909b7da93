"""Time the core with everything on, beside what a short script would do. Prints ratios of medians over paired runs.

    python benchmarks/core.py [--runs 5] [--only loop,offline,mixes,replay,gate,parser,seams] [--large]

Every contestant is a process of its own; the server (benchmarks/mockserver.py) is one too and counts the calls. Prompts,
parsing, budget, retries, ledger and progress are on; texts are unique, caches cold. Imports are not timed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
N, LATENCY_S, IN_FLIGHT = 1000, 0.05, 64
FLOOR_S = math.ceil(N / IN_FLIGHT) * 2 * LATENCY_S
WORDS = [
    "today",
    "the",
    "shift",
    "ran",
    "long",
    "and",
    "nobody",
    "answered",
    "so",
    "I",
    "walked",
    "home",
    "in",
    "the",
    "rain",
    "and",
    "thought",
    "about",
    "the",
    "week",
]


def dialogues(n: int) -> list[Any]:
    """n synthetic dialogues: ten turns of about 35 words before a text of about 60, all different."""
    from workbench.schema import Dialogue, Turn

    def one(i: int) -> Dialogue:
        rng = random.Random(i)

        def say(k: int) -> str:
            return " ".join(rng.choice(WORDS) for _ in range(k)) + f" #{i}"

        turns = [Turn(role="user" if t % 2 == 0 else "assistant", content=say(35)) for t in range(10)]
        turns.append(Turn(role="user", content=say(60)))
        return Dialogue(id=f"d{i}", family=f"f{i // 4}", turns=tuple(turns), provenance={"synthetic": True})

    return [one(i) for i in range(n)]


# -- contestants: each prints one line of JSON


def plain_sdk(url: str, n: int) -> dict[str, Any]:
    """The loop that everybody writes: openai SDK, semaphore, json.loads. Our own prompts, rendered beforehand."""
    from openai import AsyncOpenAI

    prompts = rendered(n)

    async def go() -> int:
        client, gate = AsyncOpenAI(base_url=url, api_key="x", max_retries=0, timeout=30), asyncio.Semaphore(IN_FLIGHT)

        async def one(messages: Any) -> Any:
            async with gate:
                r = await client.chat.completions.create(
                    model="m", messages=messages, temperature=0, response_format={"type": "json_object"}
                )
                return json.loads(r.choices[0].message.content or "")

        return len(await asyncio.gather(*[one(m) for m in prompts]))

    return timed(lambda: asyncio.run(go()))


def plain_aiohttp(url: str, n: int) -> dict[str, Any]:
    """As little as can be done with aiohttp."""
    import aiohttp

    prompts = rendered(n)

    async def go() -> int:
        gate = asyncio.Semaphore(IN_FLIGHT)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

            async def one(messages: Any) -> Any:
                body = {"model": "m", "messages": messages, "temperature": 0, "response_format": {"type": "json_object"}}
                async with gate, session.post(f"{url}/chat/completions", json=body) as r:
                    return json.loads(json.loads(await r.read())["choices"][0]["message"]["content"])

            return len(await asyncio.gather(*[one(m) for m in prompts]))

    return timed(lambda: asyncio.run(go()))


def rendered(n: int) -> list[Any]:
    from workbench.confirm import l1_view, l2_view
    from workbench.prompts import render

    return [list(render(v, t).messages) for d in dialogues(n) for v, t in ((l1_view(d), "L1"), (l2_view(d), "L2"))]  # type: ignore[arg-type]


def ours(url: str, n: int, timeout_s: float = 30.0) -> dict[str, Any]:
    """The whole path of `workbench run`."""
    import openai  # noqa: F401  so that no import is timed
    import uvloop  # noqa: F401

    from workbench.budget import Budget, Price
    from workbench.cli import _loop
    from workbench.confirm import DoubleConfirmation
    from workbench.judges.remote import RemoteJudge
    from workbench.runner import run

    corpus = dialogues(n)
    pair = [RemoteJudge(name, url, "mock-judge", price=Price(1, 2), timeout_s=timeout_s) for name in ("one", "two")]
    with tempfile.TemporaryDirectory() as out:
        work = run(
            DoubleConfirmation(*pair), corpus, out=Path(out) / "r", concurrency=IN_FLIGHT, budget=Budget(usd=1e6, tokens=10**12)
        )
        result = timed(lambda: _loop(work))
        return result | accounts(corpus, result.pop("value"))


def accounts(corpus: list[Any], done: Any) -> dict[str, Any]:
    """Is every judgement there, and right by the server's own truth?"""
    from mockserver import LEVELS, LOST, MIXES, kind_of, verdict

    from workbench.confirm import l1_view, l2_view
    from workbench.prompts import render

    found = {(row.dialogue_id, row.tier): row for row in done.frame.itertuples()}
    wrong = lost = unknown = recovered = recoverable = 0
    reasons: dict[str, int] = {}
    for d in corpus:
        for view, tier in ((l1_view(d), "L1"), (l2_view(d), "L2")):
            question = re.search(r"[0-9a-f]{16}", render(view, tier).messages[0]["content"])[0].encode()  # type: ignore[index,arg-type]
            row, truth = found.get((d.id, tier)), verdict(question)
            capped = min(LEVELS.index(truth["risk_level"]), 1 if any(truth["context_flags"].values()) else 3)
            hopeless = kind_of(question, MIXES[os.environ.get("MIX", "")]) in LOST
            recoverable += not hopeless
            if row is None:
                lost += 1
            elif row.level == "unknown":
                unknown += 1
                reasons[row.reason] = reasons.get(row.reason, 0) + 1
            else:
                wrong += row.level != LEVELS[capped] or hopeless
                recovered += not hopeless
    return {
        "wrong": wrong,
        "lost": lost,
        "unknown": unknown,
        "recovered": recovered,
        "recoverable": recoverable,
        "reasons": reasons,
    }


def offline(n: int) -> dict[str, Any]:
    """n dialogues x two simulated stages through the whole path."""
    import uvloop  # noqa: F401

    from workbench.cli import _loop
    from workbench.confirm import DoubleConfirmation
    from workbench.judges.simulated import SimulatedJudge
    from workbench.runner import run

    corpus, judges = dialogues(n), [SimulatedJudge(name=name, seed=seed) for seed, name in enumerate(("one", "two"))]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with tempfile.TemporaryDirectory() as out:
        result = timed(lambda: _loop(run(DoubleConfirmation(*judges), corpus, out=Path(out) / "r", concurrency=IN_FLIGHT)))
        return result | {"value": result["value"].manifest["done"], "rss_corpus_mib": before}


def replay(n: int) -> dict[str, Any]:
    """Recompute both tables of a finished run of n dialogues from its ledger."""
    import pandas  # noqa: F401

    from workbench.confirm import DoubleConfirmation
    from workbench.judges.simulated import SimulatedJudge
    from workbench.runner import replayed, run, sync

    judges = [SimulatedJudge(name=name, seed=seed) for seed, name in enumerate(("one", "two"))]
    with tempfile.TemporaryDirectory() as out:
        done = sync(run(DoubleConfirmation(*judges), dialogues(n), out=Path(out) / "r", concurrency=IN_FLIGHT, progress=False))
        return timed(lambda: len(replayed(done)[0]))


def gate() -> dict[str, Any]:
    """p99 of the L0 gate at 2,000 characters, and its growth up to a million."""
    from workbench.gate import l0

    texts = [d.text for d in dialogues(50)]
    texts = [(t * 40)[:2000] for t in texts] + [("今天有点累,但是还好,想早点睡。" * 200)[:2000]] * 50
    l0(texts[0])

    def took(text: str) -> float:  # in CPU time: a busy machine does not make the gate slower
        start = time.thread_time()
        l0(text)
        return time.thread_time() - start

    one = sorted(took(t) for _ in range(20) for t in texts)
    growth = [min(took((texts[0] * 600)[:size]) for _ in range(3)) for size in (62_500, 250_000, 1_000_000)]
    return {
        "p50_ms": 1000 * statistics.median(one),
        "p99_ms": 1000 * one[int(0.99 * len(one))],
        "growth_4x": [growth[1] / growth[0], growth[2] / growth[1]],
    }


def parser() -> dict[str, Any]:
    from parser import CLEAN, median_us  # type: ignore[attr-defined]

    from workbench.parsing import parse_assessment

    return {"median_us": median_us(lambda: parse_assessment(CLEAN))}


def seams() -> dict[str, float]:
    """CPU microseconds of one call through the SDK with a network that answers at once: what each seam is worth. Least of 25."""
    import httpx2
    from mockserver import completion, verdict
    from openai import AsyncOpenAI, Omit

    from workbench.judges.remote import _TELLTALE, _direct_client

    answer = json.dumps(completion(json.dumps(verdict(b"x")), 4000)).encode()
    messages = rendered(1)[1]
    body = json.dumps({"model": "m", "messages": messages, "temperature": 0}).encode()

    class Answer(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield answer

    class Instant(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            return httpx2.Response(200, headers=[(b"content-type", b"application/json")], stream=Answer(), request=request)

    def client(kind: Any = httpx2.AsyncClient, **options: Any) -> Any:
        http = kind(transport=Instant(), follow_redirects=False)
        return AsyncOpenAI(
            base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0, timeout=httpx2.Timeout(12), http_client=http, **options
        )

    quiet = {f"X-Stainless-{name}": Omit() for name in _TELLTALE}
    path, full = "/chat/completions", "http://127.0.0.1:9/v1/chat/completions"
    plain, lean, direct = client(), client(default_headers=quiet), client(_direct_client(), default_headers=quiet)
    ways = {
        "typed create()": lambda: plain.chat.completions.create(model="m", messages=messages, temperature=0),
        "raw response": lambda: plain.chat.completions.with_raw_response.create(model="m", messages=messages, temperature=0),
        "generic post, body as bytes": lambda: plain.post(path, cast_to=httpx2.Response, content=body),
        "+ whole address, no platform headers": lambda: lean.post(full, cast_to=httpx2.Response, content=body),
        "+ request built once (what we use)": lambda: direct.post(full, cast_to=httpx2.Response, content=body),
    }

    async def cost(way: Any) -> float:
        least = math.inf
        for _ in range(25):
            start = time.process_time()
            for _ in range(60):
                await way()
            least = min(least, (time.process_time() - start) / 60)
        return 1e6 * least

    async def go() -> dict[str, float]:
        return {name: await cost(way) for name, way in ways.items()}

    return asyncio.run(go())


def timed(work: Any) -> dict[str, Any]:
    start, cpu = time.perf_counter(), time.process_time()
    value = work()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"value": value, "wall_s": wall, "cpu_s": cpu, "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


ONE = {
    "sdk": plain_sdk,
    "aiohttp": plain_aiohttp,
    "ours": ours,
    "offline": offline,
    "replay": replay,
    "gate": gate,
    "parser": parser,
    "seams": seams,
}


# -- the referee


class Endpoint:
    """The mock server in a process of its own."""

    def __init__(self, mix: str = "") -> None:
        command = [
            sys.executable,
            str(HERE / "mockserver.py"),
            "--port",
            "0",
            "--latency-ms",
            str(LATENCY_S * 1000),
            "--mix",
            mix,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline().split()[-1])

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, path: str) -> Any:
        method = "POST" if path == "reset" else "GET"
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", method=method)) as answer:
            return json.loads(answer.read())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def contest(which: str, *arguments: object, mix: str = "") -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", which, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MIX": mix})
    if done.returncode:
        raise SystemExit(f"{which} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def line(what: str, value: str, target: str = "", ok: bool | None = None) -> None:
    print(f"{what:<58}{value:>22}   {target}{'' if ok is None else '  ok' if ok else '  MISSED'}", flush=True)


def bench_loop(runs: int) -> None:
    walls: dict[str, list[float]] = {"aiohttp": [], "sdk": [], "ours": []}
    cpu: dict[str, list[float]] = {name: [] for name in walls}
    with Endpoint() as server:
        for _ in range(runs):
            for name in walls:
                server.ask("reset")
                result = contest(name, server.url, N)
                stats = server.ask("stats")
                if stats["chat"] != 2 * N or stats["in_flight_max"] > IN_FLIGHT:
                    raise SystemExit(f"{name}: the server saw {stats}")
                if name == "ours" and (result["wrong"] or result["lost"] or result["unknown"]):
                    raise SystemExit(f"ours: {result}")
                walls[name].append(result["wall_s"])
                cpu[name].append(result["cpu_s"])
    ratios = [o / s for o, s in zip(walls["ours"], walls["sdk"], strict=True)]
    line(f"{N} dialogues x 2, {LATENCY_S * 1000:.0f} ms, {IN_FLIGHT} in flight, {runs} paired runs", f"floor {FLOOR_S:.2f} s")
    for name in walls:
        wall = statistics.median(walls[name])
        line(
            f"  {name}",
            f"{wall:.2f} s = {wall / FLOOR_S:.2f} x floor",
            f"{500 * statistics.median(cpu[name]) / N:.2f} ms CPU per call",
        )
    line(
        "  ours / plain SDK loop, median of paired ratios",
        f"{statistics.median(ratios):.2f}",
        "<= 0.6",
        statistics.median(ratios) <= 0.6,
    )
    lean = statistics.median(o / a for o, a in zip(walls["ours"], walls["aiohttp"], strict=True))
    line("  ours / bare aiohttp loop", f"{lean:.2f}", "what everything on top of a bare request costs")
    best = statistics.median(walls["ours"]) / FLOOR_S
    line("  ours / floor", f"{best:.2f}", "<= 1.6", best <= 1.6)


def bench_offline(large: bool) -> None:
    walls = {}
    for n in (10_000, 50_000) if large else (10_000,):
        result = contest("offline", n)
        walls[n] = result["wall_s"]
        share = (result["rss_mib"] - result["rss_corpus_mib"]) * 1024 / n
        line(f"{n} simulated dialogues x 2", f"{result['wall_s']:.1f} s, {result['rss_mib']} MiB",
             "<= 20 s, <= 400 MiB" if n == 10_000 else f"linear; {share:.1f} KiB per dialogue beside the corpus",
             (result["wall_s"] <= 20 and result["rss_mib"] <= 400) if n == 10_000 else result["wall_s"] <= 6 * walls[10_000])  # fmt: skip


def bench_mixes(runs: int) -> None:
    with Endpoint() as server:
        clean = statistics.median(contest("ours", server.url, N, 1.0)["wall_s"] for _ in range(runs))
    for mix, waits in (
        ("plain", 2.0),
        ("hostile", 2.0 + 2 * 1.1),
    ):  # the longest chain: Retry-After 1 s, or timeout 1 s, in both stages
        results = []
        for _ in range(runs):
            with Endpoint(mix) as server:
                results.append(contest("ours", server.url, N, 1.0, mix=mix) | {"kinds": server.ask("stats")["kinds"]})
        wall, r = statistics.median(x["wall_s"] for x in results), results[-1]
        bad = sum(r["kinds"].values()) / (2 * N)
        line(f"mix '{mix}': {bad:.1%} of questions misbehave", f"{wall:.2f} s ({wall / clean:.2f} x clean)", f"<= 1.5 x clean + {waits:.1f} s of waits",
             wall <= 1.5 * clean + waits)  # fmt: skip
        line(
            "  recovered of recoverable",
            f"{r['recovered']} of {r['recoverable']}",
            "all",
            all(x["recovered"] == x["recoverable"] for x in results),
        )
        line("  silently wrong / lost / typed unknown", f"{r['wrong']} / {r['lost']} / {r['unknown']}", f"0 / 0 / {2 * N - r['recoverable']}",
             all(x["wrong"] == x["lost"] == 0 and x["unknown"] == 2 * N - x["recoverable"] for x in results))  # fmt: skip
        line("  reasons", json.dumps(r["reasons"]))


def bench_rest(only: set[str], runs: int) -> None:
    if "replay" in only:
        wall = statistics.median(contest("replay", N)["wall_s"] for _ in range(runs))
        line(f"replay of {N} x 2 from the ledger", f"{wall:.2f} s", "<= 1.5 s", wall <= 1.5)
    if "gate" in only:
        g = contest("gate")
        line("L0 gate, 2,000 characters", f"p50 {g['p50_ms']:.2f}, p99 {g['p99_ms']:.2f} ms", "p99 < 1 ms", g["p99_ms"] < 1)
        line(
            "  time for four times the text, up to 1 MB",
            " ".join(f"x{x:.1f}" for x in g["growth_4x"]),
            "about 4",
            max(g["growth_4x"]) < 6,
        )
    if "seams" in only:
        for name, took in contest("seams").items():
            line(f"SDK, {name}", f"{took:.0f} us CPU")
    if "parser" in only:
        p = contest("parser")
        line("parser, clean answer", f"{p['median_us']:.1f} us", "<= 40 us", p["median_us"] <= 40)


def main() -> None:
    sections = ("loop", "offline", "mixes", "replay", "gate", "parser", "seams")
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--runs", type=int, default=5)
    args.add_argument("--only", default=",".join(sections))
    args.add_argument("--large", action="store_true", help="also 50,000 dialogues")
    args.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    a = args.parse_args()
    if a.one:
        name, *rest = a.one
        print(json.dumps(ONE[name](*[int(x) if x.isdigit() else float(x) if re.fullmatch(r"[\d.]+", x) else x for x in rest])))  # type: ignore[operator]
        return
    only, load = set(a.only.split(",")), os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}{' (not idle: times, but not ratios, are too high)' if load > 1 else ''}")
    if "loop" in only:
        bench_loop(a.runs)
    if "offline" in only:
        bench_offline(a.large)
    if "mixes" in only:
        bench_mixes(max(1, a.runs // 2))
    bench_rest(only, a.runs)


if __name__ == "__main__":
    main()
