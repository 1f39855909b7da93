"""Agreement of a pair of judges with labelled dialogues: L1, L2, and the two combined by 'and' and 'or'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from workbench.schema import FLAGS, Assessment, Dialogue, Outcome, RiskLevel

Answer = tuple[RiskLevel | None, frozenset[str], bool]  # level (None: unknown), flags, confirmed


def _one(a: Assessment) -> Answer:
    return (a.level if isinstance(a.level, RiskLevel) else None, frozenset(f for f in FLAGS if a.flags.get(f)), a.may_confirm)


def _both(outcome: Outcome, pick: Callable[[Iterable[RiskLevel]], RiskLevel], confirmed: bool) -> Answer:
    """Combined level: unknown on either side is unknown under 'and' (min); under 'or' (max) the known side stands."""
    sides = [_one(outcome.l1), _one(outcome.l2)]
    levels = [level for level, _, _ in sides if level is not None]
    level = pick(levels) if levels and (pick is max or len(levels) == 2) else None
    return level, sides[0][1] | sides[1][1], confirmed


def _share(hits: Iterable[bool]) -> str:
    seen = list(hits)
    return f"{sum(seen)}/{len(seen)}" + (f" ({sum(seen) / len(seen):.2f})" if seen else "")


def _lines(name: str, pairs: list[tuple[Dialogue, Answer]]) -> str:
    def at_least(level: RiskLevel, answer: Answer) -> bool:
        return answer[0] is not None and answer[0] >= level

    def split(level: RiskLevel) -> tuple[str, str]:
        positive = [at_least(level, a) for d, a in pairs if d.gold and d.gold.risk_level >= level]
        negative = [not at_least(level, a) for d, a in pairs if d.gold and d.gold.risk_level < level]
        return _share(positive), _share(negative)

    gold = [(d.gold, a) for d, a in pairs if d.gold]
    high, critical = split(RiskLevel.HIGH), split(RiskLevel.CRITICAL)
    return (
        f"{name:4} level exact {_share(a[0] == g.risk_level for g, a in gold)}"
        f"; acceptable {_share(a[0] in (g.acceptable_levels or (g.risk_level,)) for g, a in gold)}"
        f"; unknown {sum(a[0] is None for _, a in gold)}\n"
        f"     >= high sensitivity {high[0]}, specificity {high[1]}; critical sensitivity {critical[0]}, specificity {critical[1]}\n"
        f"     flags exact {_share(a[1] == frozenset(g.flags) for g, a in gold)}; confirm {_share(a[2] == g.confirm for g, a in gold)}"
        f", confirmed {sum(a[2] for _, a in gold)}, false confirms {sum(a[2] and not g.confirm for g, a in gold)}"
    )


async def _assess(dialogues: list[Dialogue], l1: str, l2: str) -> list[Outcome]:
    import workbench

    pipeline = workbench.DoubleConfirmation(l1=workbench.judge(l1), l2=workbench.judge(l2))
    return [await pipeline.assess(d) for d in dialogues]


def report(rows: list[tuple[str, dict[str, Any]]], *, l1: str, l2: str) -> str:
    """A few printed lines; rows with minimal gold (risk_level, flags, confirm) are accepted."""
    dialogues = [Dialogue.model_validate(row) for _, row in rows]
    outcomes = asyncio.run(_assess(dialogues, l1, l2))
    done = list(zip(dialogues, outcomes, strict=True))
    parts = [
        _lines("L1", [(d, _one(o.l1)) for d, o in done]),
        _lines("L2", [(d, _one(o.l2)) for d, o in done]),
        _lines("and", [(d, _both(o, min, o.confirmed)) for d, o in done]),
        _lines("or", [(d, _both(o, max, o.l1.may_confirm or o.l2.may_confirm)) for d, o in done]),
    ]
    return "\n".join([f"{len(dialogues)} dialogues, L1 = {l1}, L2 = {l2}", *parts])
