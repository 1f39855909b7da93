"""Execute the notebooks top to bottom and keep what belongs in the repository: outputs and counts, no machine, no widget state.

Run from the root: ``python tests/refresh_notebooks.py [NOTEBOOK ...]`` (default: all of ``notebooks/``).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def clean(book: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs from machine to machine; a widget keeps its still (HTML) and its repr."""
    book.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in book.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "tags"})
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
            if "metadata" in output:
                output["metadata"] = nbformat.NotebookNode()
    return book


def execute(path: Path, *, timeout_s: int = 300) -> nbformat.NotebookNode:
    """The notebook, run in its own folder in a fresh kernel; raises on the first error that no tag allows."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(book, timeout=timeout_s, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    return clean(book)


def main(names: list[str]) -> int:
    os.environ.pop("MPLBACKEND", None)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"IPYTHONDIR": scratch, "WORKBENCH_REVIEWS": f"{scratch}/reviews.db"}
        for path in [Path(n).resolve() for n in names] or sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
            book = execute(path)
            nbformat.write(book, path)
            print(path.name, len(book.cells), "cells")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
