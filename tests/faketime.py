"""An event loop whose clock jumps to the next timer: sleeps and timeouts take no real time, cancellation is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class FakeLoop(asyncio.SelectorEventLoop):
    """Time starts at 0 and moves only when nothing is ready to run."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return getattr(self, "now", 0.0)

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


def run_fake(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run *coroutine* to its end on a fresh fake loop."""
    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        return runner.run(coroutine)
