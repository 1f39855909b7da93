"""Run case files: ``python -m tests.cases KIND FILE… [--firm] [--l1 NAME --l2 NAME]``.

Kinds with right answers (judge_output, guardrail, selfcheck, stats) print every failing row and end with
``N passed, N failed``; the exit code is 1 on failure. Kinds with labels (domain, dialogues) print agreement.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
CHECKED = ("judge_output", "guardrail", "selfcheck", "stats")


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Id and row: a JSON list (rows named by ``name``) or JSONL (by ``id``); a folder means its *.jsonl files."""
    if path.is_dir():
        for file in sorted(path.glob("*.jsonl")):
            yield from read_rows(file)
        return
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        yield str(row.get("id") or row.get("name") or f"row {number}"), row


def run_checks(rows: list[tuple[str, Row]], check: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Failing ids with their reasons; an exception is a failure of its row, not of the run."""
    failed: list[tuple[str, str]] = []
    for name, row in rows:
        try:
            why = check(row)
        except Exception as error:
            why = f"expected an answer got {type(error).__name__}: {error}"
        if why is not None:
            failed.append((name, why))
    return failed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("kind", choices=(*CHECKED, "domain", "dialogues"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--firm", action="store_true", help="only rows with strength firm (or none)")
    parser.add_argument("--l1", default="cue")
    parser.add_argument("--l2", default="ngram")
    options = parser.parse_args(argv)
    rows = [pair for file in options.files for pair in read_rows(file)]
    if options.firm:
        rows = [(name, row) for name, row in rows if row.get("strength", "firm") == "firm"]
    if options.kind not in CHECKED:
        agreement = importlib.import_module("tests.cases.agreement")
        print(agreement.report(rows, l1=options.l1, l2=options.l2))
        return 0
    failed = run_checks(rows, importlib.import_module(f"tests.cases.{options.kind}").check)
    for name, why in failed:
        print(f"{name}: {why}")
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
