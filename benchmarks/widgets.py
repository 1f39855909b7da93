"""Kernel time of the panels: a long dialogue, a long review queue, one keystroke.

Run from the root: ``python benchmarks/widgets.py``. Prints one line per figure with its limit; exit code 1 when one is over.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from workbench.display import dialogue_html
from workbench.judges.registry import judge
from workbench.schema import Dialogue, Turn
from workbench.store import Store
from workbench.widgets import ReviewPanel, ReviewSession, SideBySide

WORDS = "I keep thinking about it and I can't sleep. 最近总是睡不着，脑子停不下来。 "


def dialogue(number: int, turns: int) -> Dialogue:
    """A dialogue of this many turns, about 200 characters each."""
    said = tuple(Turn(role="assistant" if i % 2 and i < turns - 1 else "user", content=f"{i} {WORDS * 4}") for i in range(turns))
    return Dialogue(id=f"d{number}", turns=said, lang="mixed", provenance={"synthetic": True})


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time in milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return median(times)


def measure(folder: Path) -> list[tuple[str, float, float]]:
    """(what, milliseconds, limit)."""
    long, queue = dialogue(0, 200), [dialogue(n, 3) for n in range(5000)]
    judges = [judge("cue"), judge("cue")]
    judges[1].name = "cue again"
    explorer = SideBySide([long, dialogue(1, 3)], judges=judges)

    def flip() -> None:
        explorer.pick.value = "d1"
        explorer.pick.value = "d0"

    store = Store(folder / "reviews.db")
    opened = ReviewPanel(ReviewSession(queue, store=store, reviewer="a", queue="q"))
    for n in range(1000):
        opened.session.press(str(n % 4 + 1))
        opened.session.press("Enter")
        opened.session._last_press = ("", 0.0)
    fresh = iter(range(100))
    rows = [
        ("render a 200-turn dialogue", best(lambda: dialogue_html(long, opened=True)), 300.0),
        ("side by side: open a 200-turn dialogue", best(flip), 300.0),
        (
            "review: open a queue of 5,000",
            best(lambda: ReviewPanel(ReviewSession(queue, store=store, reviewer="b", queue=f"q{next(fresh)}"))),
            1000.0,
        ),
        (
            "review: resume it after 1,000 labels",
            best(lambda: ReviewPanel(ReviewSession(queue, store=store, reviewer="a", queue="q"))),
            1000.0,
        ),
        ("review: one keystroke in it", best(lambda: opened.press("3"), 20), 100.0),
    ]
    store.close()
    return rows


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    for what, took, limit in rows:
        print(f"{what:<42} {took:8.1f} ms   limit {limit:6.0f} ms   {'ok' if took <= limit else 'OVER'}")
    return int(any(took > limit for _, took, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
