"""The ground floor: levels, dialogues, views, assessments and outcomes, all frozen."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, model_validator

FLAGS: Final = ("fiction", "quote", "third_party", "joke")
DIMENSIONS: Final = ("depression", "anxiety", "loneliness", "hopelessness", "trapped", "farewell", "arranging", "agitation")
CONFIRM_CONFIDENCE: Final = 0.85

Tier = Literal["L0", "L1", "L2", "arbiter"]
Reason = Literal[
    "budget", "daily_cap", "concurrency_drop", "timeout", "rate_limited", "api_error", "refused", "content_filter",
    "truncated", "parse_error", "schema_error", "store_error", "not_run",
]  # fmt: skip
Action = Literal["retry_then_unknown", "retry_larger_then_unknown", "unknown_no_retry"]

BLOCKING_DEFECTS: Final = frozenset({
    "repaired_syntax", "wrapped", "coerced_flags", "coerced_confidence", "confidence_out_of_range", "echo_present", "unknown_flag_true",
})  # fmt: skip
NOTES: Final = frozenset({"decorated_level", "extra_keys", "evidence_truncated", "dimension_missing"})


class RiskLevel(str, Enum):
    """The four ordered levels. Comparing with anything but a level raises ``TypeError``.

    All four operators are written out: ``str`` already has them in text order, and
    ``functools.total_ordering`` leaves inherited operators alone.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Position on the scale, 0 (low) to 3 (critical)."""
        return _RANK[self._value_]

    def _other(self, other: object) -> int:
        if type(other) is not RiskLevel:
            raise TypeError(f"a risk level cannot be ordered against {type(other).__name__}: compare two RiskLevel values")
        return _RANK[other._value_]

    def __lt__(self, other: object) -> bool:
        return self.rank < self._other(other)

    def __le__(self, other: object) -> bool:
        return self.rank <= self._other(other)

    def __gt__(self, other: object) -> bool:
        return self.rank > self._other(other)

    def __ge__(self, other: object) -> bool:
        return self.rank >= self._other(other)

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self._value_, spec)


_RANK: Final = {"low": 0, "medium": 1, "high": 2, "critical": 3}


class Unknown(str, Enum):
    """The answer that is not there. It has no order and no number."""

    UNKNOWN = "unknown"

    def _refuse(self, other: object) -> NoReturn:
        raise TypeError("unknown is not a level: it has no order. Count it, or bound it, but do not compare it")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self._value_, spec)


UNKNOWN: Final = Unknown.UNKNOWN
Level = RiskLevel | Unknown


class Frozen(BaseModel):
    """Immutable value; unknown keys are an error, so that a typing slip is not lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(Frozen):
    """A value read from a file; keys that we do not know are left out, since minimal and richer files share one shape."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TurnGold(Row):
    """Gold for one user turn, read with what came before it."""

    risk_level: RiskLevel
    flags: tuple[str, ...] = ()


class Turn(Row):
    """One message; only user turns may carry gold."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1)
    gold: TurnGold | None = None


class Trend(Row):
    """The last seven days: negative days (0..7) and how many of them in a row up to today."""

    negative_days_7d: int = Field(ge=0, le=7)
    consecutive_negative_days: int = Field(ge=0, le=7)

    @model_validator(mode="after")
    def _consistent(self) -> Trend:
        if self.consecutive_negative_days > self.negative_days_7d:
            raise ValueError("consecutive_negative_days cannot exceed negative_days_7d")
        return self


class Gold(Row):
    """What a careful rater says of the last user turn, read in its context.

    A minimal gold is completed: ``confirm`` is critical without flags, ``acceptable_levels`` the level itself.
    """

    risk_level: RiskLevel
    flags: tuple[str, ...] = ()
    confirm: bool = False
    acceptable_levels: tuple[RiskLevel, ...] = ()
    dimensions: dict[str, float] = Field(default_factory=dict)
    needs_context: bool = False

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "risk_level" not in data:
            return data
        level, flags = data["risk_level"], data.get("flags") or ()
        return {"confirm": level == "critical" and not flags, "acceptable_levels": (level,), **data}


class Dialogue(Row):
    """A synthetic conversation. The last turn is the user's: its content is the text under analysis."""

    id: str = Field(min_length=1)
    turns: tuple[Turn, ...] = Field(min_length=1)
    family: str = ""
    lang: Literal["zh", "en", "mixed"] = "en"
    phenomenon: str = ""
    scenario: str = ""
    trend: Trend | None = None
    gold: Gold | None = None
    disputed: bool = False
    rationale: str = ""
    source_hint: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _last_is_user(self) -> Dialogue:
        if self.turns[-1].role != "user":
            raise ValueError("the last turn must be the user's: it is the text under analysis")
        return self

    @property
    def text(self) -> str:
        """The text under analysis."""
        return self.turns[-1].content

    @property
    def synthetic(self) -> bool:
        return self.provenance.get("synthetic") is True

    @property
    def n_user_turns(self) -> int:
        return sum(t.role == "user" for t in self.turns)

    def upto(self, user_turn: int) -> Dialogue:
        """The dialogue as it stood at the *user_turn*-th user turn (0-based), with that turn's gold."""
        ends = [i for i, t in enumerate(self.turns) if t.role == "user"]
        turns = self.turns[: ends[user_turn] + 1]
        if len(turns) == len(self.turns):
            return self
        g = turns[-1].gold
        gold = None if g is None else Gold(risk_level=g.risk_level, flags=g.flags)
        return self.model_copy(update={"turns": turns, "gold": gold, "trend": None})


class View(Frozen):
    """All that a judge may see. L1's view has the text only; an anchor enters through an explicit arm only."""

    text: str
    lang: Literal["zh", "en", "mixed"] = "en"
    context: tuple[tuple[str, str], ...] = ()
    trend: Trend | None = None
    anchor: str | None = None


class Assessment(Frozen):
    """One parsed judge answer, or a typed unknown.

    ``level`` is ``raw_level`` after the flag cap. ``confidence`` is in [0, 1], ``None`` when unknown.
    ``dimensions`` holds the eight scores in [0, 1]; those in ``not_assessed`` were not given and stand at 0.0.
    """

    tier: Tier = "L1"
    level: RiskLevel | Unknown = UNKNOWN
    raw_level: RiskLevel | Unknown = UNKNOWN
    confidence: float | None = None
    dimensions: dict[str, float] = Field(default_factory=dict)
    not_assessed: tuple[str, ...] = ()
    flags: dict[str, bool] = Field(default_factory=dict)
    evidence: str = ""
    defects: tuple[str, ...] = ()
    reason: Reason | None = None
    action: Action | None = None
    detail: str = ""  # the parser's or transport's own words; never the analysed text, never a key
    judge: str = ""
    judge_kind: str = ""
    text_hash: str = ""
    prompt_hash: str = ""
    call_key: str = ""
    attempts: int = 1

    @property
    def known(self) -> bool:
        return isinstance(self.level, RiskLevel)

    @property
    def flagged(self) -> bool:
        """Any of the four context flags is true."""
        return any(self.flags.values())

    @property
    def blocking_defects(self) -> tuple[str, ...]:
        return tuple(d for d in self.defects if d in BLOCKING_DEFECTS)

    def meets_gate(self, threshold: float = CONFIRM_CONFIDENCE) -> bool:
        """May this answer satisfy one half of the gate at *threshold* (inclusive)?"""
        return (
            self.level is RiskLevel.CRITICAL and self.confidence is not None and self.confidence >= threshold
            and len(self.flags) == len(FLAGS) and not self.flagged and not self.blocking_defects
        )  # fmt: skip

    @property
    def may_confirm(self) -> bool:
        return self.meets_gate()

    @property
    def score(self) -> float | None:
        """``(rank + 0.5 + (confidence - 0.5) * e) / 4`` with e = -1 for low, +1 for critical, else 0; None when unknown."""
        if not isinstance(self.raw_level, RiskLevel) or self.confidence is None:
            return None
        e = {0: -1, 3: 1}.get(self.raw_level.rank, 0)
        return (self.raw_level.rank + 0.5 + (self.confidence - 0.5) * e) / 4

    def _repr_html_(self) -> str:
        from workbench.display import assessment_html

        return str(assessment_html(self))


def unknown(
    reason: Reason, *, tier: Tier = "L1", action: Action = "unknown_no_retry", detail: str = "", **fields: Any
) -> Assessment:
    """A typed unknown."""
    return Assessment(tier=tier, reason=reason, action=action, detail=detail, **fields)


class Condition(Frozen):
    """One condition or guard of the confirmation, with the value it was decided on."""

    name: str
    passed: bool
    value: str


class Outcome(Frozen):
    """The result for one dialogue: both assessments, the six conditions and two guards, ``confirmed``."""

    dialogue_id: str
    l1: Assessment
    l2: Assessment
    arbiter: Assessment | None = None
    level: RiskLevel | Unknown  # the higher of the two: an L2 low never erases an L1 critical
    incomplete: bool = False  # one side is unknown, so the level may be too low
    confirmed: bool = False
    conditions: tuple[Condition, ...] = ()
    review_reasons: tuple[str, ...] = ()
    arm: str = "blind"
    repeat: int = 0
    combine: str = "and"
    l2_policy: str = "always"

    @property
    def blocked_by(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.conditions if not c.passed)

    def _repr_html_(self) -> str:
        from workbench.display import outcome_html

        return str(outcome_html(self))

    def __str__(self) -> str:
        from workbench.display import outcome_text

        return str(outcome_text(self))

    __repr__ = __str__
