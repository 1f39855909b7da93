"""Time the L0 gate: percentiles at 2,000 characters of corpus text, and growth up to 1 MB on friendly and hostile input."""

from __future__ import annotations

import time

from workbench.corpus import load_corpus
from workbench.gate import l0


def seconds(text: str) -> float:
    """Processor time of this thread: what other programs do meanwhile is not the gate's."""
    start = time.thread_time()
    l0(text)
    return time.thread_time() - start


def percentiles(lang: str) -> tuple[float, float]:
    """(p50, p99) in milliseconds over 1,000 windows of 2,000 characters."""
    said = " ".join(t.content for d in load_corpus(lang=lang) for t in d.turns)
    took = sorted(seconds(said[i * 37 % (len(said) - 2000) :][:2000]) for i in range(1000))
    return took[500] * 1e3, took[990] * 1e3


if __name__ == "__main__":
    l0("warm")
    for lang in ("en", "zh"):
        print(f"{lang}: 2,000 characters p50 {percentiles(lang)[0]:.2f} ms, p99 {percentiles(lang)[1]:.2f} ms")
    for piece in ("a quiet evening ", "kms ", "想死你", "不是", "笑死 自 杀 "):
        line = [
            f"{n:>9,}: {1e3 * min(seconds((piece * (n // len(piece) + 1))[:n]) for _ in range(2)):8.1f} ms"
            for n in (10_000, 100_000, 1_000_000)
        ]
        print(repr(piece), "  ".join(line))
