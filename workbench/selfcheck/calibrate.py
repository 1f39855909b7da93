"""Calibrate the self-check judge on labelled answers: threshold curve, agreement with labels, regression after rubric changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench.corpus import resolve
from workbench.errors import DataError, JudgeError
from workbench.selfcheck.checks import Issue, Task, first_issues
from workbench.selfcheck.diagnose import Verdict, diagnose
from workbench.selfcheck.engine import Generate, from_judge
from workbench.selfcheck.evaluate import THRESHOLD, JudgeFault, judge_messages, passes, read_verdict, rubric_hash

if TYPE_CHECKING:
    import pandas as pd

    from workbench.stats.estimate import Estimate

LABELLED: Final = "data/selfcheck/labelled_answers.jsonl"


@dataclass(frozen=True)
class Sample:
    """One labelled answer. ``types`` are the planted faults ((): a good answer); ``mechanical``: the checks alone must find it."""

    id: str
    task: Task
    answer: str
    types: tuple[str, ...] = ()
    mechanical: bool = False
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Scored:
    """A sample, the mechanical issues, and the judge's verdict (None: not asked, or not readable)."""

    sample: Sample
    issues: tuple[Issue, ...]
    verdict: Verdict | None = None

    def passes(self, threshold: float = THRESHOLD) -> bool | None:
        """The gate's decision; None when there is no verdict to decide on."""
        if self.issues:
            return False
        return None if self.verdict is None else passes(self.verdict, diagnose((), self.verdict), threshold=threshold)


def load_labelled(path: str | Path = LABELLED) -> list[Sample]:
    """The labelled answers; raises DataError with the line that is wrong."""
    samples = []
    for number, line in enumerate(resolve(path).read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            task: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row["task"].items()}
            label, finish = row["label"], row.get("finish_reason", "stop")
            samples.append(Sample(row["id"], Task(**task), row["answer"], tuple(label["types"]), label["mechanical"], finish))
        except (ValueError, KeyError, TypeError) as why:
            raise DataError(f"{path} line {number}: not a labelled answer ({type(why).__name__})") from None
    return samples


async def score(samples: Sequence[Sample], judge: Generate | None = None) -> list[Scored]:
    """Check every sample and ask the judge, once, about those that the checks let through."""
    out = []
    for sample in samples:
        issues = first_issues(sample.task, sample.answer, sample.finish_reason)
        verdict = None
        if judge is not None and not issues:
            try:
                verdict = read_verdict(await judge(judge_messages(sample.task, sample.answer), 0.0, 600), sample.answer)
            except (JudgeFault, JudgeError):
                pass
        out.append(Scored(sample, issues, verdict))
    return out


def curve(scored: Sequence[Scored]) -> pd.DataFrame:
    """One row per threshold 0, 0.5 … 10: share of faulty answers that pass (missed) and of all answers sent back (retries)."""
    import pandas as pd

    known = [s for s in scored if s.passes() is not None]
    rows = []
    for threshold in [i / 2 for i in range(21)]:
        bad, good = ([bool(s.passes(threshold)) for s in known if bool(s.sample.types) is faulty] for faulty in (True, False))
        sent_back = sum(not p for p in bad + good)
        rows.append({
            "threshold": threshold, "missed": sum(bad) / len(bad) if bad else None, "retries": sent_back / len(known) if known else None,
            "false_failures": sum(not p for p in good) / len(good) if good else None, "n": len(known), "n_unknown": len(scored) - len(known),
        })  # fmt: skip
    return pd.DataFrame(rows)


def suggest_threshold(scored: Sequence[Scored], *, missed: float = 0.05) -> float | None:
    """The lowest threshold that misses at most this share of faulty answers; None when none does."""
    table = curve(scored)
    enough = table[table["missed"] <= missed]
    return float(enough["threshold"].min()) if len(enough) else None


def agreement(scored: Sequence[Scored], *, threshold: float = THRESHOLD) -> Estimate:
    """Share of answers on which gate and label agree, with an exact interval; unreadable verdicts are counted, not guessed."""
    from workbench.stats.proportions import proportion

    decided = [(s.passes(threshold), s.sample.types) for s in scored]
    return proportion([None if p is None else p is (not types) for p, types in decided], name="agreement of gate and label")


def regress_text(judge: str | None = None, *, path: str | Path = LABELLED) -> tuple[str, bool]:
    """``workbench selfcheck regress``: the report to print, and whether nothing good failed and no planted fault passed.

    Without a judge only the mechanical faults are decided; the others are counted as needing one.
    """
    from workbench.judges.registry import judge as named
    from workbench.runner import sync  # also where a loop runs already, as in a notebook

    scored = sync(score(load_labelled(path), from_judge(named(judge)) if judge else None))
    undecided = [s for s in scored if s.passes() is None]
    wrong: list[tuple[str, str]] = [
        (s.sample.id, "a good answer failed") for s in scored if s.passes() is False and not s.sample.types
    ]
    wrong += [(s.sample.id, f"{', '.join(s.sample.types)} passed") for s in scored if s.passes() and s.sample.types]
    wrong += [(s.sample.id, "the checks missed it") for s in scored if s.sample.mechanical and not s.issues]
    lines = [f"{len(scored)} labelled answers, rubric {rubric_hash()}, judge {judge or 'none (mechanical checks only)'}"]
    lines += [f"{name}: {what}" for name, what in wrong]
    if undecided:
        lines.append(f"{len(undecided)} have no verdict" + ("" if judge else ": they need a judge, give --judge NAME"))
    lines.append(str(agreement(scored)))
    return "\n".join([*lines, f"{len(wrong)} wrong"]), not wrong and not (judge and undecided)


def rows_of(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """One tidy row per sample."""
    return [
        {"id": s.sample.id, "label": ";".join(s.sample.types) or "ok", "checks": ";".join(i.type for i in s.issues),
         "score": s.verdict.score if s.verdict else None, "judge": ";".join(s.verdict.error_types) if s.verdict else "", "passes": s.passes()}
        for s in scored
    ]  # fmt: skip
