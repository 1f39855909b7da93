"""Compare two runs of the same dialogues: paired differences with intervals, and what changed in the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import scoring
from workbench.errors import SetupError
from workbench.runner import Run, differences
from workbench.stats.estimate import Estimate, SignificanceTest, undefined
from workbench.stats.paired import mcnemar
from workbench.stats.resample import mean

if TYPE_CHECKING:
    import pandas as pd

KEY = ["dialogue_id", "turn", "repeat"]


def compare(run_a: str | Path, run_b: str | Path) -> str:
    """A page of text: configuration changes, then each paired difference B - A. Raises SetupError for other transcripts."""
    a, b = Run.open(run_a), Run.open(run_b)
    changed = differences(b.manifest["config"], a.manifest["config"])
    lines = [
        f"{a.path.name} (A) against {b.path.name} (B)",
        "changed: " + (", ".join(changed) or "nothing in the configuration"),
        "",
    ]
    return "\n".join([*lines, *(str(r) for r in paired(a, b))])


def paired(a: Run, b: Run) -> list[Estimate | SignificanceTest]:
    """Mean differences B - A on the dialogues that both assessed, families as the unit, and an exact test on ``confirmed``.

    Both runs must hold the same transcripts (by hash): a difference between judges on different texts means nothing.
    """
    if a.manifest["config"]["corpus_sha256"] != b.manifest["config"]["corpus_sha256"]:
        raise SetupError(
            f"'{a.path.name}' and '{b.path.name}' are runs of different dialogues: run both on the same --dialogues, --split, --lang and --limit"
        )
    both = scoring.scorable(a.outcomes).merge(scoring.scorable(b.outcomes), on=KEY, suffixes=("_a", "_b"))
    if not len(both):
        return [undefined("paired differences", "no scorable outcome is in both runs")]
    family, critical = both.family_a, both.gold_level_a == "critical"
    found: list[Estimate | SignificanceTest] = []
    for name, part in (("missed criticals", critical), ("false confirmations", ~critical)):
        change = _confirmed(both, "b")[part] - _confirmed(both, "a")[part]
        found.append(mean(change * (-1 if name == "missed criticals" else 1), name=f"{name}, B - A", cluster=family[part]))
    for side in ("l1", "l2"):
        score = both[f"{side}_score_b"] - both[f"{side}_score_a"]
        found.append(mean(score, name=f"{side.upper()} score, B - A", cluster=family))
        same = (both[f"{side}_level_a"] != both[f"{side}_level_b"]).astype("float64")
        found.append(mean(same, name=f"{side.upper()} level changed", cluster=family))
    only_b, only_a = int((both.confirmed_b & ~both.confirmed_a).sum()), int((both.confirmed_a & ~both.confirmed_b).sum())
    found.append(mcnemar(only_b, only_a, n=len(both), name=f"confirmed in one run only (B {only_b}, A {only_a})"))
    return found


def _confirmed(both: pd.DataFrame, run: str) -> Any:
    return both[f"confirmed_{run}"].astype("float64")
