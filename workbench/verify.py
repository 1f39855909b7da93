"""Recompute a run with the network blocked and compare; compare two runs; export tidy tables."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from workbench import scoring
from workbench.errors import ReplayMiss, SetupError
from workbench.frames import VOLATILE
from workbench.runner import Run, replayed

if TYPE_CHECKING:
    import pandas as pd

REPORT_MANIFEST: Final = ".manifest.json"


@contextmanager
def network_blocked() -> Iterator[None]:
    """Any attempt to open a connection inside the block fails."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ReplayMiss("the network is blocked while a run is recomputed")

    kept = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
    socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo = kept  # type: ignore[method-assign]


def table_hash(frame: pd.DataFrame) -> str:
    """SHA-256 of a table as canonical CSV, without the columns that differ at each run (``frames.VOLATILE``)."""
    stable = frame.drop(columns=[c for c in VOLATILE if c in frame.columns])
    return hashlib.sha256(
        stable.to_csv(index=False, lineterminator="\n", float_format="%.12g").encode("utf-8", "surrogatepass")
    ).hexdigest()


def tables(frame: pd.DataFrame, outcomes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of a run, by name."""
    return {"assessments": frame, "outcomes": outcomes, "scores": scoring.score(outcomes), "blocked": scoring.blocked(outcomes)}


def hashes(frame: pd.DataFrame, outcomes: pd.DataFrame) -> dict[str, str]:
    return {name: table_hash(table) for name, table in tables(frame, outcomes).items()}


def verify(target: str | Path) -> list[str]:
    """What differs between what is stored and what the ledger gives, one sentence each; empty when nothing does.

    *target* is a run directory, or a report (its manifest must lie beside it). Raises SetupError when it is neither.
    """
    path = Path(target)
    if path.suffix == ".html":
        return _verify_report(path)
    run = Run.open(path)
    return _compare_tables(run, hashes(run.frame, run.outcomes), "stored")


def _compare_tables(run: Run, expected: Mapping[str, str], label: str) -> list[str]:
    try:
        with network_blocked():
            frame, outcomes = replayed(run)
    except ReplayMiss as miss:
        return [f"the ledger is incomplete: {miss}"]
    again = hashes(frame, outcomes)
    return [
        f"table '{name}' differs: {label} {expected[name][:12]}, recomputed {again[name][:12]}{_where(run, name, frame, outcomes)}"
        for name in again
        if expected.get(name) != again[name]
    ]


def _where(run: Run, name: str, frame: pd.DataFrame, outcomes: pd.DataFrame) -> str:
    """The first dialogue and column in which a table of single judgements differs."""
    stored, again = {"assessments": (run.frame, frame), "outcomes": (run.outcomes, outcomes)}.get(name, (None, None))
    if stored is None or again is None:
        return ""
    if len(stored) != len(again):
        return f" ({len(stored)} rows against {len(again)})"
    columns = [c for c in stored.columns if c not in VOLATILE]
    text_a, text_b = stored[columns].astype("string").fillna(""), again[columns].astype("string").fillna("")
    rows, cols = (text_a != text_b).to_numpy().nonzero()
    return (
        f" (first at dialogue {stored.dialogue_id.iloc[rows[0]]}, column {columns[cols[0]]}; {len(set(rows))} rows)"
        if len(rows)
        else ""
    )


def _verify_report(path: Path) -> list[str]:
    beside = path.with_name(path.stem + REPORT_MANIFEST)
    try:
        manifest, page = json.loads(beside.read_text("utf-8")), path.read_bytes()
    except (OSError, ValueError):
        raise SetupError(
            f"'{path}' has no readable manifest beside it ({beside.name}): write it again with `workbench report`"
        ) from None
    run = Run.open(path.parent / manifest["run"])
    found = (
        []
        if hashlib.sha256(page).hexdigest() == manifest["html_sha256"]
        else ["the page itself was changed after it was written"]
    )
    return found + _compare_tables(run, manifest["tables"], "in the report")
