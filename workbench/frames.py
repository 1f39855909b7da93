"""Turn outcomes into the two tidy tables that everything else reads (docs/architecture.md, Frames)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workbench.confirm import CONDITION_NAMES
from workbench.corpus import facts
from workbench.schema import DIMENSIONS, FLAGS, Assessment, Dialogue, Outcome, RiskLevel

if TYPE_CHECKING:
    import pandas as pd

FACTS: Final = (
    "dialogue_id", "family", "lang", "phenomenon", "n_user_turns", "needs_context", "disputed", "split", "exposure", "turn", "arm", "paraphrase",
    "order", "repeat",
)  # fmt: skip
GOLD: Final = ("gold_level", "gold_rank", "gold_acceptable", "gold_flags", "gold_confirm")
CALL: Final = (
    "model_requested", "model_returned", "fingerprint", "prompt_id", "prompt_tokens", "completion_tokens", "cached_tokens", "usage_estimated",
    "cost_usd", "latency_s",
)  # fmt: skip
SIDE: Final = ("level", "raw_level", "confidence", "score", "reason")
# Left out when two runs are compared: they differ each time and say nothing about the judgement.
VOLATILE: Final = ("latency_s",)


class Item(NamedTuple):
    """One finished piece of work: an outcome and where it belongs."""

    dialogue: Dialogue
    turn: int
    arm: str
    paraphrase: int
    order: int
    repeat: int
    exposures: tuple[str, str]  # of L1 and L2
    outcome: Outcome


# The weakest claim wins for a pair: a row that one judge saw in training is in-sample for both.
EXPOSURES: Final = ("in_sample", "development", "held_out", "out_of_fold", "unseen")


def pair_exposure(one: str, two: str) -> str:
    """How an outcome may be used, given how each judge's assessment may be."""
    return min(one, two, key=EXPOSURES.index)


def _base(item: Item) -> dict[str, Any]:
    known = facts(item.dialogue)
    known |= {
        "turn": item.turn,
        "arm": item.arm,
        "paraphrase": item.paraphrase,
        "order": item.order,
        "repeat": item.repeat,
        "exposure": pair_exposure(*item.exposures),
    }
    return known


def assessment_row(item: Item, a: Assessment, call: Mapping[str, Any]) -> dict[str, Any]:
    """One row of ``run.frame``."""
    base = _base(item)
    row = {name: base[name] for name in FACTS} | {
        "exposure": item.exposures[a.tier != "L1"],
        "tier": a.tier, "judge": a.judge, "judge_kind": a.judge_kind, "level": str(a.level), "raw_level": str(a.raw_level),
        "rank": a.level.rank if isinstance(a.level, RiskLevel) else None, "confidence": a.confidence, "score": a.score,
        "reason": a.reason, "action": a.action, "defects": ";".join(a.defects), "evidence": a.evidence,
    }  # fmt: skip
    row |= {f"flag_{f}": a.flags.get(f) for f in FLAGS} | {
        f"dim_{d}": None if d in a.not_assessed else a.dimensions.get(d) for d in DIMENSIONS
    }
    row |= {"not_assessed": ";".join(a.not_assessed)} | {name: base[name] for name in GOLD}
    row |= {"text_hash": a.text_hash, "prompt_hash": a.prompt_hash, "call_key": a.call_key, "attempts": a.attempts}
    return row | {name: call.get(name) for name in CALL}


def outcome_row(item: Item) -> dict[str, Any]:
    """One row of ``run.outcomes``."""
    o, base = item.outcome, _base(item)
    row = {name: base[name] for name in FACTS}
    for name, a in (("l1", o.l1), ("l2", o.l2)):
        row |= {f"{name}_level": str(a.level), f"{name}_raw_level": str(a.raw_level), f"{name}_confidence": a.confidence}
        row |= {
            f"{name}_score": a.score,
            f"{name}_reason": a.reason,
            f"{name}_flags": ";".join(f for f in FLAGS if a.flags.get(f)),
        }
    row |= {"arbiter_level": str(o.arbiter.level) if o.arbiter else None, "level": str(o.level), "incomplete": o.incomplete}
    row |= {"confirmed": o.confirmed, "blocked_by": ";".join(o.blocked_by), "review_reasons": ";".join(o.review_reasons)}
    row |= {f"cond_{c.name}": c.passed for c in o.conditions}
    return row | {name: base[name] for name in GOLD}


_BOOLEAN: Final = (
    "needs_context", "disputed", "gold_confirm", "usage_estimated", "incomplete", "confirmed", *(f"flag_{f}" for f in FLAGS),
    *(f"cond_{c}" for c in CONDITION_NAMES),
)  # fmt: skip
_INTEGER: Final = (
    "n_user_turns", "turn", "paraphrase", "order", "repeat", "rank", "gold_rank", "attempts", "prompt_tokens", "completion_tokens", "cached_tokens",
)  # fmt: skip
_FLOAT: Final = (
    "confidence", "score", "l1_confidence", "l2_confidence", "l1_score", "l2_score", "cost_usd", "latency_s", *(f"dim_{d}" for d in DIMENSIONS),
)  # fmt: skip


def typed(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    """A frame with nullable types: missing stays missing, and an empty table keeps its columns."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(columns))
    types = dict.fromkeys(_BOOLEAN, "boolean") | dict.fromkeys(_INTEGER, "Int64") | dict.fromkeys(_FLOAT, "Float64")
    return frame.astype({c: types.get(c, "string") for c in frame.columns})


def assessments_frame(items: Iterable[Item], calls: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per assessment, L1 then L2 then an arbiter if there is one. *calls* maps call_key to its ledger row.

    With several arms, L1 is one assessment shared by all of them and appears once per arm, under that arm's name.
    """
    rows = [
        assessment_row(item, a, calls.get(a.call_key, {}))
        for item in items
        for a in (item.outcome.l1, item.outcome.l2, item.outcome.arbiter)
        if a is not None
    ]
    return typed(rows, _frame_columns())


def outcomes_frame(items: Iterable[Item]) -> pd.DataFrame:
    """One row per dialogue x turn x arm x paraphrase x repeat."""
    sides = [f"{s}_{c}" for s in ("l1", "l2") for c in (*SIDE, "flags")]
    columns = [*FACTS, *sides, "arbiter_level", "level", "incomplete", "confirmed", "blocked_by", "review_reasons"]
    return typed([outcome_row(i) for i in items], [*columns, *(f"cond_{c}" for c in CONDITION_NAMES), *GOLD])


def _frame_columns() -> list[str]:
    verdict = [
        "tier",
        "judge",
        "judge_kind",
        "level",
        "raw_level",
        "rank",
        "confidence",
        "score",
        "reason",
        "action",
        "defects",
        "evidence",
    ]
    parts = [*(f"flag_{f}" for f in FLAGS), *(f"dim_{d}" for d in DIMENSIONS), "not_assessed"]
    return [*FACTS, *verdict, *parts, *GOLD, "text_hash", "prompt_hash", "call_key", "attempts", *CALL]
