"""Time the guardrail: texts per second on ordinary texts, growth with length on hostile ones, beside a plain regex that sees far less.

    python benchmarks/guardrail.py [--runs 5]

Texts are those of the mutation corpus (tests/mutations.py). Times are of the process, medians of interleaved runs.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.mutations import EVIDENCE, Case, contradictions, faithful
from workbench.guardrail import check, check_amounts, check_promises

# What the source's checker looks for: a sign and ASCII digits, or ASCII digits and 元; four phrases.
_PLAIN = re.compile(r"[¥￥] ?(-?\d*\.?\d+)|(?<!\d)(-?\d*\.?\d+) ?元")
_PHRASES = ("保证赔偿", "一定赔偿", "必须全额退款", "我们承诺")


def plain(case: Case) -> bool:
    """The baseline's verdict: is there a conflict?"""
    text = case.text + (case.structured or "")
    any(p in text for p in _PHRASES)
    return any(Decimal(a or b) != Decimal(case.amount) for a, b in _PLAIN.findall(text))


def ours(case: Case) -> bool:
    return check_amounts(case.text, case.amount, structured_json=case.structured, evidence=EVIDENCE).conflict


def all_three(case: Case) -> bool:
    return check(case.text, case.amount, structured_json=case.structured, evidence=EVIDENCE).conflict.conflict


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def throughput(runs: int) -> None:
    bad, good = list(contradictions(1)), list(faithful(1))
    cases = bad + good
    times: dict[str, list[float]] = {"plain regex": [], "check_amounts": [], "check (all three)": []}
    for _ in range(runs):
        for name, work in zip(times, (plain, ours, all_three), strict=True):
            times[name].append(seconds(lambda work=work: [work(c) for c in cases]))
    print(
        f"{len(bad)} contradictions, {len(good)} faithful texts, {sum(len(c.text) for c in cases) / len(cases):.0f} characters on average"
    )
    print(f"{'':20}{'texts/s':>10}{'µs/text':>10}{'ratio':>8}{'caught':>9}{'alarms':>9}")
    base = statistics.median(times["plain regex"])
    for name, work in zip(times, (plain, ours, all_three), strict=True):
        took = statistics.median(times[name])
        caught, alarms = sum(map(work, bad)) / len(bad), sum(map(work, good)) / len(good)
        print(
            f"{name:20}{len(cases) / took:>10.0f}{took / len(cases) * 1e6:>10.1f}{took / base:>8.1f}{caught:>9.1%}{alarms:>9.1%}"
        )


def growth(runs: int) -> None:
    kinds = {
        "digits then 元": lambda n: "1" * n + "元",
        "many amounts": lambda n: "赔付20元，" * (n // 6),
        "prose": lambda n: "已提交审核，请留意通知。" * (n // 12),
        "openers": lambda n: "<" * n,
        "spaced digits": lambda n: "1 " * (n // 2),
    }
    lengths = (5_000, 10_000, 20_000, 40_000)
    for title, work in (("check_amounts", lambda t: check_amounts(t, "20")), ("check_promises", check_promises)):
        print(f"\n{title}: ms by length" + "".join(f"{n:>10}" for n in lengths) + f"{'x8 costs':>10}")
        for name, make in kinds.items():
            ms = [min(seconds(lambda t=make(n), work=work: work(t)) for _ in range(runs)) * 1000 for n in lengths]
            print(f"  {name:26}" + "".join(f"{x:>10.1f}" for x in ms) + f"{ms[-1] / max(ms[0], 0.01):>9.1f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    throughput(options.runs)
    growth(options.runs)
