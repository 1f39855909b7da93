"""Open the recorded runs of a real local model, so that studies and notebooks have real behaviour without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workbench.errors import SetupError
from workbench.judging import Asker
from workbench.runner import Run

if TYPE_CHECKING:
    from workbench.confirm import DoubleConfirmation

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


def replaying(run: Run) -> DoubleConfirmation:
    """The pipeline of a run with the run's own ledger in the judges' place: ``assess`` gives the answers that were given.

    Asking what was never asked raises ReplayMiss; no judge is called.
    """
    config = run.manifest["config"]
    return run.pipeline.using(
        Asker(store=run.store(), run_id=run.manifest["run_id"], replay=True, parse_retry=config["parse_retry"])
    )
