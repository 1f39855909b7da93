"""The studies: each is one call that gives tables, estimates, figures and sentences (``base.Result``)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.study._ablation import ablation
    from workbench.study._anchoring import anchoring
    from workbench.study._compare import compare
    from workbench.study._design import design
    from workbench.study._drift import drift, drift_monitor
    from workbench.study._independence import independence
    from workbench.study._review import review
    from workbench.study._selfcheck import promotion, retry_monitor, selfcheck
    from workbench.study._thresholds import thresholds
    from workbench.study.base import Material, Result

_STUDIES = ("ablation", "anchoring", "compare", "design", "drift", "independence", "review", "selfcheck", "thresholds")
_HOME = {n: f"_{n}" for n in _STUDIES} | {
    "Material": "base", "Result": "base", "drift_monitor": "_drift", "promotion": "_selfcheck", "retry_monitor": "_selfcheck",
}  # fmt: skip
__all__ = [
    "Material", "Result", "ablation", "anchoring", "compare", "design", "drift", "drift_monitor", "from_cli", "independence", "promotion",
    "retry_monitor", "review", "selfcheck", "thresholds",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a study on first use."""
    if name not in _HOME:
        raise AttributeError(f"there is no study '{name}': choose one of {', '.join(__all__)}")
    return getattr(importlib.import_module(f"workbench.study.{_HOME[name]}"), name)


def from_cli(name: str, target: str | None, *, judges: Sequence[str] = (), repeats: int = 3, limit: int | None = None) -> Result:
    """What ``workbench study NAME TARGET`` runs: *target* is a run directory, or dialogues to send through *judges* (L1, L2)."""
    from workbench.corpus import load_corpus, resolve
    from workbench.errors import SetupError
    from workbench.runner import MANIFEST, Run

    if name not in _STUDIES:
        raise SetupError(f"there is no study '{name}': choose one of {', '.join(_STUDIES)}")
    if name == "selfcheck":
        module = importlib.import_module("workbench.study._selfcheck")
        return module.from_cli(target, judges=judges, repeats=repeats, limit=limit)  # type: ignore[no-any-return]
    study = __getattr__(name)
    if name == "design":
        return study()  # type: ignore[no-any-return]
    if target is None:
        raise SetupError(f"study '{name}' needs a run directory or dialogues: workbench study {name} data/runs/NAME")
    if (resolve(target) / MANIFEST).exists():
        run = Run.open(target)
        if name == "review":
            with run.store() as store:
                return study(store.annotations("review"), run)  # type: ignore[no-any-return]
        return study(run)  # type: ignore[no-any-return]
    if name == "review":
        raise SetupError("study 'review' needs a run directory with annotations")
    from workbench.confirm import DoubleConfirmation
    from workbench.judges.registry import judge

    pair = [judge(j) for j in judges or ("cue", "ngram")]
    corpus = load_corpus(target, limit=limit)
    if name == "compare":
        return study(pair, corpus, repeats=repeats)  # type: ignore[no-any-return]
    return study(DoubleConfirmation(pair[0], pair[-1]), corpus, repeats=repeats)  # type: ignore[no-any-return]
