"""Calls per minute of the local judge at 1, 2 and 4 slots, held to the schema and not, and what a cached prompt saves.

    workbench local fetch
    python benchmarks/local.py [--calls 24] [--threads 2]

Each setting asks L1 about the same dialogues, in a random order of settings, on a server of its own that has answered
one question before. Calls are as many as the slots allow at once. Answers end by themselves or at 100 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time

import pandas as pd

import workbench as wb
from workbench.confirm import l1_view
from workbench.judges.base import Reply, Request
from workbench.judges.local import LocalJudge
from workbench.prompts import render

SLOTS = (1, 2, 4)


async def measure(judge: LocalJudge, dialogues: wb.Corpus, repeat: int) -> tuple[float, list[Reply]]:
    """(seconds, replies) for one question per dialogue, all at once; the judge lets as many through as it has slots."""
    questions = [Request(render(l1_view(d), "L1", version="v1-short"), "L1", repeat) for d in dialogues]
    await judge.answer(Request(render(l1_view(dialogues[0]), "L1", version="v1-short"), "L1", 99))
    started = time.perf_counter()
    replies = await asyncio.gather(*(judge.answer(q) for q in questions))
    seconds = time.perf_counter() - started
    await judge.aclose()
    return seconds, list(replies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    everyone = wb.load_corpus("data/dialogues", lang="en")
    dialogues = wb.Corpus(rng.sample(list(everyone), args.calls))
    settings = [(slots, constrained) for slots in SLOTS for constrained in (True, False)]
    rng.shuffle(settings)
    rows = []
    for slots, constrained in settings:
        judge = LocalJudge(temperature=0.7, seed=1, slots=slots, threads=args.threads, constrained=constrained, max_tokens=100)
        seconds, replies = asyncio.run(measure(judge, dialogues, 0))
        again, _ = asyncio.run(measure(judge, dialogues, 1))
        judge.server().close()
        rows.append({
            "slots": slots, "constrained": constrained, "calls_per_minute": 60 * len(replies) / seconds,
            "asked_again": 60 * len(replies) / again, "median_latency_s": statistics.median(r.latency_s for r in replies),
            "prompt_tokens": statistics.mean(r.usage.prompt_tokens for r in replies),
            "answer_tokens": statistics.mean(r.usage.completion_tokens for r in replies),
            "cut_off": sum(r.finish_reason == "length" for r in replies),
        })  # fmt: skip
    print(pd.DataFrame(rows).sort_values(["constrained", "slots"]).round(1).to_string(index=False))


if __name__ == "__main__":
    main()
