"""Panels for JupyterLab: explore, review, compare."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.widgets.boards import DriftViewer, JudgeBoard, ThresholdExplorer
    from workbench.widgets.cases import AnchoringLab, SideBySide
    from workbench.widgets.guardrail import GuardrailLab
    from workbench.widgets.review import ReviewPanel, export
    from workbench.widgets.session import AdjudicationSession, ReviewSession

_HOME = {
    "AdjudicationSession": "session", "AnchoringLab": "cases", "DriftViewer": "boards", "GuardrailLab": "guardrail", "JudgeBoard": "boards", "ReviewPanel": "review",
    "ReviewSession": "session", "SideBySide": "cases", "ThresholdExplorer": "boards", "export": "review",
}  # fmt: skip

__all__ = [
    "AdjudicationSession", "AnchoringLab", "DriftViewer", "GuardrailLab", "JudgeBoard", "ReviewPanel", "ReviewSession", "SideBySide", "ThresholdExplorer", "export",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"there is no widget '{name}': choose one of {', '.join(__all__)}")
    return getattr(importlib.import_module(f"workbench.widgets.{_HOME[name]}"), name)
