"""One number with its interval, its denominators and, where it has no answer, the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["ok", "undefined", "degenerate", "too_few", "not_applicable"]


def number(x: float | None, digits: int = 2) -> str:
    """*x* for a reader: *digits* decimals, as many significant digits below 0.1, '?' when missing."""
    if x is None:
        return "?"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.{digits}f}" if x == 0 or abs(x) >= 0.1 else f"{x:.{digits}g}"


def _settle(result: Any, main: str) -> None:
    """Make every number finite or None, and let no status but ok stand without a reason."""
    for f in fields(result):
        v = getattr(result, f.name)
        if "float" in str(f.type):
            object.__setattr__(result, f.name, float(v) if v is not None and math.isfinite(v) else None)
        elif f.type == "int":
            object.__setattr__(result, f.name, int(v))
    if getattr(result, main) is None and result.status == "ok":
        object.__setattr__(result, "status", "undefined")
        object.__setattr__(result, "reason", result.reason or "the data give no finite number")
    if result.status not in get_args(Status) or (result.status != "ok" and not result.reason):
        known = ", ".join(get_args(Status))
        raise ValueError(f"{result.name}: status {result.status!r} must be one of {known} and, but for ok, needs a reason")


def _tail(result: Any, families: int = 0) -> str:
    counts = f"n={result.n}" + (f", {families} families" if families else "") + f", {result.n_unknown} unknown"
    return f" ({counts}{'; ' if result.method else ''}{result.method})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with an interval. ``value``, ``low`` and ``high`` are finite or None, never NaN.

    status: ``ok``; ``undefined`` (no number exists: value None); ``degenerate`` (a number, but the data have no variation
    to carry an interval); ``too_few`` (an interval known to be weak at this size); ``not_applicable`` (the question does
    not arise). ``n`` counts evaluable rows, ``n_unknown`` the rows left out, ``n_cluster`` families (0: none given).
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    n: int = 0
    n_cluster: int = 0
    n_unknown: int = 0
    status: Status = "ok"
    reason: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        _settle(self, "value")

    def flagged(self, status: Status, reason: str) -> Estimate:
        """The same numbers under another status; an earlier reason stays in front, a missing value stays undefined."""
        if self.status in ("undefined", "not_applicable"):
            return self
        return replace(self, status=status, reason="; ".join(r for r in (self.reason, reason) if r))

    def __str__(self) -> str:
        tail = _tail(self, self.n_cluster)
        if self.value is None:
            return f"{self.name} {self.status.replace('_', ' ')}: {self.reason}{tail}"
        if self.value == 0 and self.reason.startswith("0 of "):
            return f"{self.name} {self.reason}{tail}"
        interval = "" if self.low is None and self.high is None else f" [{number(self.low)}, {number(self.high)}]"
        return f"{self.name} {number(self.value)}{interval}{tail}" + (f" - {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """A p-value with its statistic. ``p`` is None when the test has no answer; ``paired.adjust`` fills ``p_adjusted``."""

    name: str
    statistic: float | None = None
    p: float | None = None
    df: float | None = None
    p_adjusted: float | None = None
    adjustment: str = ""
    n: int = 0
    n_unknown: int = 0
    status: Status = "ok"
    reason: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        _settle(self, "p")

    def __str__(self) -> str:
        p = self.status.replace("_", " ") if self.p is None else f"p={number(self.p, 3)}"
        adjusted = "" if self.p_adjusted is None else f", {self.adjustment} {number(self.p_adjusted, 3)}"
        return f"{self.name} {p}{adjusted}{_tail(self)}" + (f" - {self.reason}" if self.reason else "")


def counted(n: int, n_unknown: int = 0, confidence: float = 0.95, n_cluster: int = 0, method: str = "") -> dict[str, Any]:
    """The denominators of an estimate, as its keyword arguments."""
    return {"n": n, "n_unknown": n_unknown, "confidence": confidence, "n_cluster": n_cluster, "method": method}


def undefined(name: str, reason: str, **counts: Any) -> Estimate:
    """An estimate that does not exist for these data."""
    return Estimate(name, status="undefined", reason=reason, **counts)


def not_applicable(name: str, reason: str, **counts: Any) -> Estimate:
    """An estimate whose question does not arise."""
    return Estimate(name, status="not_applicable", reason=reason, **counts)


def to_frame(results: Iterable[Estimate | SignificanceTest]) -> pd.DataFrame:
    """One row per result, one column per field; missing numbers are <NA> (nullable Float64/Int64), never 0."""
    import pandas as pd

    rows = list(results)
    kinds = {f.name: str(f.type) for kind in (dict.fromkeys(map(type, rows)) or [Estimate]) for f in fields(kind)}
    frame = pd.DataFrame([asdict(r) for r in rows], columns=list(kinds))
    return frame.astype({c: "Float64" if "float" in t else "Int64" if t == "int" else "str" for c, t in kinds.items()})
