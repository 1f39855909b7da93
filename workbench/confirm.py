"""Double confirmation: what each judge may see, when L2 runs, and when two assessments confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import SetupError
from workbench.gate import l0
from workbench.judges.base import Judge
from workbench.prompts import anchor_text, prompt_language
from workbench.schema import (
    CONFIRM_CONFIDENCE,
    FLAGS,
    UNKNOWN,
    Assessment,
    Condition,
    Dialogue,
    Level,
    Outcome,
    RiskLevel,
    Tier,
    Trend,
    View,
    unknown,
)

if TYPE_CHECKING:
    from workbench.judging import Asker

L2_POLICIES: Final = ("always", "source", "gate_or_trend")
COMBINATIONS: Final = ("and", "or", "mean_score", "arbitration")
CONTEXTS: Final = ("none", "user", "both")
TRENDS: Final = ("none", "corpus", "from_l1", "flipped")
SERIOUS_DIMENSION: Final = 0.7
CONDITION_NAMES: Final = (
    "l1_critical", "l2_critical", "l1_confidence", "l2_confidence", "l1_no_flags", "l2_no_flags", "no_blocking_defect", "same_text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arm:
    """One experimental condition: what L2 is told, and what replaces the pipeline's own settings.

    ``anchor`` is a kind of ``prompts.ANCHOR_KINDS`` or None (blind); ``told`` is the level it names, None for
    L1's true verdict. ``None`` elsewhere means: as the pipeline has it.
    """

    name: str = "blind"
    anchor: str | None = None
    told: RiskLevel | None = None
    paraphrase: int = 0
    order: int = 0
    context: str | None = None
    trend: str | None = None
    prompt: Tier = "L2"
    version: str | None = None
    judge: Judge | None = field(default=None, compare=False)


def l1_view(dialogue: Dialogue) -> View:
    """L1 sees the text under analysis and nothing else."""
    return View(text=dialogue.text, lang=dialogue.lang)


def l2_view(
    dialogue: Dialogue, *, context: str = "both", messages: int = 10, trend: Trend | None = None, anchor: str | None = None
) -> View:
    """L2 sees the text, the last *messages* earlier messages and the trend. L1's assessment is not an argument here."""
    earlier = [(t.role, t.content) for t in dialogue.turns[:-1] if context == "both" or t.role == "user"]
    shown = () if context == "none" or messages == 0 else tuple(earlier[-messages:])
    return View(text=dialogue.text, lang=dialogue.lang, context=shown, trend=trend, anchor=anchor)


def trend_from(assessments: Sequence[Assessment]) -> Trend:
    """The 7-day trend from L1's assessments of the earlier user turns, each counted as a day; negative is medium or above."""
    negative = [isinstance(a.level, RiskLevel) and a.level >= RiskLevel.MEDIUM for a in assessments[-7:]]
    run = next((i for i, bad in enumerate(reversed(negative)) if not bad), len(negative))
    return Trend(negative_days_7d=sum(negative), consecutive_negative_days=run)


def flipped(trend: Trend | None) -> Trend | None:
    """The opposite week, for the ablation."""
    if trend is None:
        return None
    good = 7 - trend.negative_days_7d
    return Trend(negative_days_7d=good, consecutive_negative_days=0 if trend.consecutive_negative_days else good)


def conditions(l1: Assessment, l2: Assessment, *, threshold: float = CONFIRM_CONFIDENCE) -> tuple[Condition, ...]:
    """The six conditions and two guards, each with its value. An unknown side fails all of its own."""

    def side(name: str, a: Assessment) -> list[Condition]:
        confident = a.confidence is not None and a.confidence >= threshold
        raised = [f for f in FLAGS if a.flags.get(f)]
        shown = "unknown" if not a.flags else ", ".join(raised) or "none"
        return [
            Condition(name=f"{name}_critical", passed=a.raw_level is RiskLevel.CRITICAL and a.known, value=str(a.raw_level)),
            Condition(
                name=f"{name}_confidence", passed=confident, value="none" if a.confidence is None else f"{a.confidence:.3f}"
            ),
            Condition(name=f"{name}_no_flags", passed=len(a.flags) == len(FLAGS) and not raised, value=shown),
        ]

    defects = [f"{name}: {d}" for name, a in (("L1", l1), ("L2", l2)) for d in a.blocking_defects]
    same = bool(l1.text_hash) and l1.text_hash == l2.text_hash
    first, second = side("l1", l1), side("l2", l2)
    return (
        first[0], second[0], first[1], second[1], first[2], second[2],
        Condition(name="no_blocking_defect", passed=not defects and l1.known and l2.known, value=", ".join(defects) or "none"),
        Condition(name="same_text", passed=same, value="same" if same else "different"),
    )  # fmt: skip


def combined(
    combine: str, l1: Assessment, l2: Assessment, arbiter: Assessment | None = None, *, threshold: float = CONFIRM_CONFIDENCE
) -> bool:
    """Does the combination rule confirm? Whatever the rule, both sides must be known and of the same text: a failure never confirms."""
    if not (l1.known and l2.known and l1.text_hash and l1.text_hash == l2.text_hash):
        return False
    one, two = l1.meets_gate(threshold), l2.meets_gate(threshold)
    if combine == "and":
        return one and two
    if combine == "or":
        return one or two
    if combine == "mean_score":
        clean = not (l1.flagged or l2.flagged or l1.blocking_defects or l2.blocking_defects)
        mean = ((l1.score or 0.0) + (l2.score or 0.0)) / 2
        return clean and len(l1.flags) == len(l2.flags) == len(FLAGS) and mean >= critical_score(threshold) - 1e-12
    if combine == "arbitration":
        if one == two:
            return one
        return arbiter is not None and arbiter.text_hash == l1.text_hash and arbiter.meets_gate(threshold)
    raise SetupError(f"unknown combination '{combine}': choose one of {', '.join(COMBINATIONS)}")


def critical_score(confidence: float) -> float:
    """The score of a critical assessment with this confidence: ``(3 + confidence) / 4``."""
    return (3 + confidence) / 4


def displayed_level(*sides: Assessment | None) -> Level:
    """The highest known level: an L2 low never erases an L1 critical."""
    known = [a.level for a in sides if a is not None and isinstance(a.level, RiskLevel)]
    return max(known) if known else UNKNOWN


def review_reasons(dialogue: Dialogue, l1: Assessment, l2: Assessment) -> tuple[str, ...]:
    """Why a person should look, most urgent first."""
    ran = [a for a in (l1, l2) if a.reason != "not_run"]
    strong = l0(dialogue.text).strong
    third = [a for a in ran if a.flags.get("third_party")]
    levels = [a.level for a in ran if isinstance(a.level, RiskLevel)]
    flagged = any(
        a.flagged and (_rank(a.raw_level) >= 2 or max(a.dimensions.values(), default=0.0) >= SERIOUS_DIMENSION) for a in ran
    )
    found = {
        "third_party_urgent": bool(third) and (strong or any(_rank(a.raw_level) >= 2 for a in third)),
        "unknown": any(not a.known for a in ran),
        "disagreement": len(levels) == 2 and levels[0] != levels[1] and max(levels) >= RiskLevel.HIGH,
        "flags_with_high_risk": flagged,
        "blocking_defect": any(a.blocking_defects for a in ran),
        "strong_gate_hit_under_low_l1": strong and l1.level is RiskLevel.LOW,
    }
    return tuple(name for name, true in found.items() if true)


def _rank(level: object) -> int:
    return level.rank if isinstance(level, RiskLevel) else -1


class DoubleConfirmation:
    """Two judges, the view each may have, the policy for running L2 and the rule that combines them.

    ``l2_policy``: always | source (only if L1 >= high) | gate_or_trend (L1 >= high, an L0 hit, or at least
    ``negative_days`` of 7). ``combine``: and | or | mean_score | arbitration (needs ``arbiter``).
    ``context``: none | user | both, of the last ``context_messages`` messages. ``trend``: none | corpus | from_l1 | flipped.
    Raises SetupError for settings that do not exist.
    """

    def __init__(
        self, l1: Judge, l2: Judge, *, arbiter: Judge | None = None, l2_policy: str = "always", combine: str = "and", context: str = "both",
        trend: str = "corpus", context_messages: int = 10, confirm_confidence: float = CONFIRM_CONFIDENCE, negative_days: int = 4,
        version: str = "v1", asker: Asker | None = None,
    ) -> None:  # fmt: skip
        for value, allowed, what in (
            (l2_policy, L2_POLICIES, "l2_policy"), (combine, COMBINATIONS, "combine"), (context, CONTEXTS, "context"), (trend, TRENDS, "trend"),
        ):  # fmt: skip
            if value not in allowed:
                raise SetupError(f"unknown {what} '{value}': choose one of {', '.join(allowed)}")
        if combine == "arbitration" and arbiter is None:
            raise SetupError("arbitration needs a third judge: give arbiter=judge(NAME), or --arbiter NAME")
        if not 0 < confirm_confidence <= 1:
            raise SetupError("confirm_confidence must be in (0, 1]")
        self.l1, self.l2, self.arbiter = l1, l2, arbiter
        self.l2_policy, self.combine, self.context, self.trend = l2_policy, combine, context, trend
        self.context_messages, self.confirm_confidence, self.negative_days = context_messages, confirm_confidence, negative_days
        self.version = version
        self._asker = asker

    def __repr__(self) -> str:
        return f"DoubleConfirmation(l1={self.l1.name!r}, l2={self.l2.name!r}, l2_policy={self.l2_policy!r}, combine={self.combine!r})"

    @property
    def asker(self) -> Asker:
        if self._asker is None:
            from workbench.judging import Asker

            self._asker = Asker()
        return self._asker

    def using(self, asker: Asker) -> DoubleConfirmation:
        """The same pipeline over another asker (ledger, budget, replay)."""
        twin = DoubleConfirmation.__new__(DoubleConfirmation)
        twin.__dict__.update(self.__dict__, _asker=asker)
        return twin

    @property
    def judges(self) -> tuple[Judge, ...]:
        return tuple(j for j in (self.l1, self.l2, self.arbiter) if j is not None)

    def describe(self) -> dict[str, Any]:
        """The whole configuration, for manifests and for refusing to mix runs. No secrets."""
        names = ("l2_policy", "combine", "context", "trend", "context_messages", "confirm_confidence", "negative_days", "version")
        roles = {"l1": self.l1, "l2": self.l2, "arbiter": self.arbiter}
        return (
            {n: getattr(self, n) for n in names}
            | {r: j.describe() if j else None for r, j in roles.items()}
            | {"shared_blindness": _same_model(self.l1, self.l2)}
        )

    async def assess_l1(self, dialogue: Dialogue, *, repeat: int = 0) -> Assessment:
        """L1 alone, on the text alone."""
        return await self.asker.ask(self.l1, l1_view(dialogue), tier="L1", repeat=repeat, version=self.version)

    async def assess(
        self, dialogue: Dialogue, *, arm: Arm | None = None, repeat: int = 0, l1: Assessment | None = None
    ) -> Outcome:
        """Assess one dialogue. Judge failures become unknowns; they never raise and never confirm.

        *l1* reuses an L1 assessment made before, so that arms share it.
        """
        arm = arm or Arm()
        first = l1 if l1 is not None else await self.assess_l1(dialogue, repeat=repeat)
        trend = await self._trend(dialogue, arm, repeat)
        if not self._l2_runs(dialogue, first, trend):
            second = unknown(
                "not_run",
                tier="L2",
                text_hash=first.text_hash,
                judge=self.l2.name,
                judge_kind=self.l2.kind,
                detail=self.l2_policy,
            )
            return self.outcome(dialogue, first, second, arm=arm, repeat=repeat)
        view = l2_view(
            dialogue,
            context=arm.context or self.context,
            messages=self.context_messages,
            trend=trend,
            anchor=self._anchor(dialogue, arm, first),
        )
        judge, version = arm.judge or self.l2, arm.version or self.version
        second = await self.asker.ask(judge, view, tier="L2", prompt_tier=arm.prompt, repeat=repeat, version=version)
        third = None
        if (
            self.combine == "arbitration"
            and self.arbiter
            and first.meets_gate(self.confirm_confidence) != second.meets_gate(self.confirm_confidence)
        ):
            blind = l2_view(dialogue, context=self.context, messages=self.context_messages, trend=trend)
            third = await self.asker.ask(self.arbiter, blind, tier="arbiter", repeat=repeat, version=self.version)
        return self.outcome(dialogue, first, second, third, arm=arm, repeat=repeat)

    def assess_sync(self, dialogue: Dialogue, *, arm: Arm | None = None, repeat: int = 0) -> Outcome:
        """``assess`` for a plain script; also works where an event loop is already running."""
        from workbench.runner import sync

        return sync(self.assess(dialogue, arm=arm, repeat=repeat))

    def outcome(
        self,
        dialogue: Dialogue,
        l1: Assessment,
        l2: Assessment,
        arbiter: Assessment | None = None,
        *,
        arm: Arm | None = None,
        repeat: int = 0,
    ) -> Outcome:
        """The outcome of assessments already made: pure, so that any policy is replayed without a call."""
        return Outcome(
            dialogue_id=dialogue.id, l1=l1, l2=l2, arbiter=arbiter, level=displayed_level(l1, l2, arbiter),
            incomplete=any(not a.known and a.reason != "not_run" for a in (l1, l2)),
            confirmed=combined(self.combine, l1, l2, arbiter, threshold=self.confirm_confidence),
            conditions=conditions(l1, l2, threshold=self.confirm_confidence), review_reasons=review_reasons(dialogue, l1, l2),
            arm=(arm or Arm()).name, repeat=repeat, combine=self.combine, l2_policy=self.l2_policy,
        )  # fmt: skip

    def _l2_runs(self, dialogue: Dialogue, l1: Assessment, trend: Trend | None) -> bool:
        if self.l2_policy == "always" or _rank(l1.level) >= RiskLevel.HIGH.rank:
            return True
        if self.l2_policy == "source":
            return False
        return (trend is not None and trend.negative_days_7d >= self.negative_days) or l0(dialogue.text).escalate

    async def _trend(self, dialogue: Dialogue, arm: Arm, repeat: int) -> Trend | None:
        source = arm.trend or self.trend
        if source == "none":
            return None
        if source == "from_l1":
            earlier = [
                await self.assess_l1(dialogue.upto(i), repeat=repeat)
                for i in range(max(0, dialogue.n_user_turns - 8), dialogue.n_user_turns - 1)
            ]
            return trend_from(earlier)
        return flipped(dialogue.trend) if source == "flipped" else dialogue.trend

    def _anchor(self, dialogue: Dialogue, arm: Arm, l1: Assessment) -> str | None:
        """The only way L1's verdict may reach L2: an arm that says so. An unknown L1 has no verdict to tell."""
        if arm.anchor is None:
            return None
        told: str = arm.told.value if arm.told else str(l1.level)
        if arm.anchor in ("told_l1", "label_confidence", "label_rationale") and arm.told is None and not l1.known:
            return None
        confidence = l1.confidence if arm.told is None and l1.confidence is not None else 0.95
        evidence = l1.evidence or dialogue.text[:60]
        return anchor_text(
            arm.anchor,
            prompt_language(l1_view(dialogue)),
            paraphrase=arm.paraphrase,
            level=told,
            confidence=confidence,
            evidence=evidence,
        )


def _same_model(one: Judge, two: Judge) -> bool:
    """One model serving both stages is shared blindness: reported on every run."""
    a, b = one.describe(), two.describe()
    return one is two or (
        a.get("model") is not None and (a.get("base_url"), a.get("model")) == (b.get("base_url"), b.get("model"))
    )
