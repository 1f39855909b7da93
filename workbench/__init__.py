"""Judge Workbench: what is a second, independent judge really worth?

Research tool on synthetic dialogues. It never contacts anyone; everything it outputs is advisory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench import study
    from workbench.confirm import Arm, DoubleConfirmation
    from workbench.corpus import Corpus, load_corpus
    from workbench.judges.registry import judge
    from workbench.runner import Run, run, sync
    from workbench.schema import UNKNOWN, Assessment, Dialogue, Outcome, RiskLevel

__version__ = "0.1.0"

_HOME = {
    "Arm": "confirm", "Assessment": "schema", "Corpus": "corpus", "Dialogue": "schema", "DoubleConfirmation": "confirm", "Outcome": "schema",
    "RiskLevel": "schema", "Run": "runner", "UNKNOWN": "schema", "judge": "judges.registry", "load_corpus": "corpus", "run": "runner",
    "study": "study", "sync": "runner",
}  # fmt: skip

__all__ = [
    "UNKNOWN", "Arm", "Assessment", "Corpus", "Dialogue", "DoubleConfirmation", "Outcome", "RiskLevel", "Run", "judge", "load_corpus", "run",
    "study", "sync",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that ``import workbench`` stays quick (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'workbench' has no attribute '{name}': public names are {', '.join(__all__)}")
    module = importlib.import_module(f"workbench.{_HOME[name]}")
    value = module if name == "study" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
