"""Open the recorded runs of a real local model, so that studies and notebooks have real behaviour without a model."""

from __future__ import annotations

from typing import Final

from workbench.errors import SetupError
from workbench.runner import Run

FOLDER: Final = "data/recorded/smollm2"
RUNS: Final = {
    "blind": "constrained to the answer's schema, L1 and L2, three repeats at temperature 0.7",
    "free": "the same model unconstrained: what it says when nothing holds it to the schema",
    "anchors": "constrained, with L2 told something: twelve arms, two repeats",
}


def recorded(name: str = "blind") -> Run:
    """One of the recorded runs (``RUNS``), as an ordinary run: frames, replay, report. Raises SetupError for another name."""
    if name not in RUNS:
        raise SetupError(f"there is no recorded run '{name}': there are {', '.join(RUNS)}")
    return Run.open(f"{FOLDER}/{name}")
