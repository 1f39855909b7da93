"""One number with its interval, its denominators and, where it has no answer, the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["ok", "undefined", "degenerate", "too_few", "not_applicable"]


def _finite(x: Any) -> float | None:
    return None if x is None or not math.isfinite(x) else float(x)


def number(x: float | None, digits: int = 2) -> str:
    """*x* for a reader: at least *digits* significant digits below 0.1, thousands separated, '?' when missing."""
    if x is None:
        return "?"
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.{digits}f}" if x == 0 or abs(x) >= 0.1 else f"{x:.{digits}g}"


def _checked(value: Any) -> None:
    if value.status not in get_args(Status):
        raise ValueError(f"status {value.status!r} is not one of {', '.join(get_args(Status))}")
    if value.status != "ok" and not value.reason:
        raise ValueError(f"{value.name}: status {value.status} needs a reason")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with an interval. ``value``, ``low`` and ``high`` are finite or None, never NaN.

    status: ``ok``; ``undefined`` (no number exists: value None); ``degenerate`` (a number or a bound, but the data
    have no variation to carry an interval); ``too_few`` (a number whose interval is known to be weak at this size);
    ``not_applicable`` (the question does not arise, e.g. repeat noise of a deterministic judge).
    ``n`` counts evaluable rows, ``n_unknown`` the rows left out as unknown, ``n_cluster`` families (0: no clusters given).
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
        for key in ("value", "low", "high"):
            object.__setattr__(self, key, _finite(getattr(self, key)))
        for key in ("n", "n_cluster", "n_unknown"):
            object.__setattr__(self, key, int(getattr(self, key)))
        if self.value is None and self.status == "ok":
            object.__setattr__(self, "status", "undefined")
            object.__setattr__(self, "reason", self.reason or "the data give no finite number")
        _checked(self)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def width(self) -> float | None:
        """high - low, or None."""
        return None if self.low is None or self.high is None else self.high - self.low

    def flagged(self, status: Status, reason: str) -> Estimate:
        """The same numbers under another status; an earlier reason is kept in front, a graver status is not weakened."""
        if self.status in ("undefined", "not_applicable"):
            return self
        return replace(self, status=status, reason="; ".join(r for r in (self.reason, reason) if r))

    def renamed(self, name: str) -> Estimate:
        return replace(self, name=name)

    def __str__(self) -> str:
        counts = f"n={self.n}" + (f", {self.n_cluster} families" if self.n_cluster else "") + f", {self.n_unknown} unknown"
        tail = f" ({counts}{'; ' if self.method else ''}{self.method})"
        if self.value is None:
            return f"{self.name} {self.status.replace('_', ' ')}: {self.reason}{tail}"
        if self.value == 0 and self.reason.startswith("0 of "):
            return f"{self.name} {self.reason}{tail}"
        interval = "" if self.low is None and self.high is None else f" [{number(self.low)}, {number(self.high)}]"
        return f"{self.name} {number(self.value)}{interval}{tail}" + (f" - {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """A p-value with its statistic. ``p`` is None when the test has no answer; ``p_adjusted`` is filled by ``paired.adjust``."""

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
        for key in ("statistic", "p", "df", "p_adjusted"):
            object.__setattr__(self, key, _finite(getattr(self, key)))
        if self.p is None and self.status == "ok":
            object.__setattr__(self, "status", "undefined")
            object.__setattr__(self, "reason", self.reason or "the data give no p-value")
        _checked(self)

    def __str__(self) -> str:
        tail = f" (n={self.n}, {self.n_unknown} unknown; {self.method})" + (f" - {self.reason}" if self.reason else "")
        if self.p is None:
            return f"{self.name} {self.status.replace('_', ' ')}{tail}"
        adjusted = "" if self.p_adjusted is None else f", {self.adjustment} {number(self.p_adjusted, 3)}"
        return f"{self.name} p={number(self.p, 3)}{adjusted}{tail}"


Result = Estimate | SignificanceTest


def undefined(name: str, reason: str, **counts: Any) -> Estimate:
    """An estimate that does not exist for these data."""
    return Estimate(name, status="undefined", reason=reason, **counts)


def not_applicable(name: str, reason: str, **counts: Any) -> Estimate:
    """An estimate whose question does not arise."""
    return Estimate(name, status="not_applicable", reason=reason, **counts)


def to_frame(results: Iterable[Result]) -> pd.DataFrame:
    """One row per result, one column per field; missing numbers are <NA> (nullable Float64/Int64), never 0."""
    import pandas as pd

    rows: Sequence[Result] = list(results)
    kinds = list(dict.fromkeys(type(r) for r in rows)) or [Estimate]
    columns = list(dict.fromkeys(f.name for kind in kinds for f in fields(kind)))
    frame = pd.DataFrame([asdict(r) for r in rows], columns=columns)
    text = {"name", "status", "reason", "method", "adjustment"}
    whole = {"n", "n_cluster", "n_unknown"}
    return frame.astype({c: "str" if c in text else "Int64" if c in whole else "Float64" for c in columns})
