"""Numbers from arrays and tidy frames: estimates with intervals, exact tests, never a silent 0, 1 or NaN."""

from workbench.stats.estimate import Estimate, SignificanceTest, not_applicable, number, to_frame, undefined

__all__ = ["Estimate", "SignificanceTest", "not_applicable", "number", "to_frame", "undefined"]
