"""The notebooks: run to the end, tell their story in small cells, leak nothing, and are really compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import html5lib
import nbformat
import pytest
from nbconvert import HTMLExporter

from tests.conftest import ROOT
from tests.refresh_notebooks import WIDGET

BOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))  # report.ipynb is a template that `workbench report` fills
MACHINE = re.compile(r"(/home/|/Users/|/root/|/tmp/|/work/|/var/|[A-Z]:\\\\|site-packages)")
KEY = re.compile(r"\b(sk-[A-Za-z0-9]{8,}|Bearer [A-Za-z0-9._-]{8,}|[0-9a-f]{32}\.[A-Za-z0-9]{16})")
# What a browser fetches by itself when it shows a page.
FETCHED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
each = pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)


@cache
def book(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in book(path).cells if cell.cell_type == "code"]


def exporter() -> HTMLExporter:
    """As docs/widgets.md says to export: with the project's offline template."""
    return HTMLExporter(
        template_name="offline", extra_template_basedirs=[str(ROOT / "workbench" / "resources")], embed_images=True
    )


@cache
def exported(path: Path) -> str:
    return str(exporter().from_notebook_node(book(path))[0])


def test_there_are_notebooks():
    assert [p.name[:2] for p in BOOKS[:2]] == ["00", "01"]


@each
def test_it_was_run_from_top_to_bottom_without_an_error(path):
    assert [cell.execution_count for cell in code(path)] == list(range(1, len(code(path)) + 1)), "run: make notebooks"
    bad = [o for c in code(path) for o in c.outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert not bad or "raises-exception" in str([c.metadata for c in code(path)])


@each
def test_it_keeps_no_widget_state_no_machine_and_no_key(path):
    text = path.read_text("utf-8")
    assert "widgets" not in book(path).metadata and WIDGET not in text
    assert not MACHINE.search(text), MACHINE.search(text)
    assert not KEY.search(text)


@each
def test_it_opens_with_purpose_content_note_and_needs_and_ends_in_something_to_see(path):
    first = book(path).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    for word in ("Content note", "Needs"):
        assert word in first.source, f"the first cell of {path.name} must say '{word}'"
    assert code(path)[-1].outputs, "the last code cell shows a figure or a table"


@each
def test_its_cells_are_short_and_define_no_long_function(path):
    for cell in code(path):
        assert len(cell.source.splitlines()) <= 14, cell.source[:80]
        for body in re.findall(r"^def .*?(?=^\S|\Z)", cell.source, re.M | re.S):
            assert len(body.strip().splitlines()) <= 6, body


@each
def test_its_exported_page_fetches_nothing_and_shows_every_widget_as_a_still(path):
    page = exported(path)
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    links = [e.get(FETCHED[e.tag], "") for e in tree.iter() if isinstance(e.tag, str) and e.tag in FETCHED]
    assert [u for u in links if u and not u.startswith(("data:", "#"))] == []
    assert not re.search(r"url\(\s*['\"]?https?:|@import", page)
    assert "Error displaying widget" not in page and "vnd.jupyter.widget" not in page


def nbval(folder: Path) -> subprocess.CompletedProcess[str]:
    options = [
        "--nbval",
        "--nbval-current-env",
        f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}",
        "--nbval-cell-timeout=120",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=", *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_the_check_fails_on_a_planted_wrong_number(tmp_path):
    """The comparison is not for show: one changed digit in one stored output makes nbval fail, the untouched copy passes."""
    notebook = {
        "cells": [
            {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1, "source": "import workbench as wb\nd = wb.load_corpus(limit=4)",
             "outputs": []},
            {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": 2, "source": "[t.role for t in d[0].turns][:1], round(2 / 3, 3)",
             "outputs": [{"output_type": "execute_result", "execution_count": 2, "metadata": {}, "data": {"text/plain": ["(['user'], 0.667)"]}}]},
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    folder = ROOT / "notebooks"
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    good.write_text(
        json.dumps(notebook).replace("wb.load_corpus(limit=4)", f"wb.load_corpus({str(ROOT / 'data' / 'dialogues')!r}, limit=4)")
    )
    bad.write_text(good.read_text().replace("0.667)", "0.677)"))
    assert folder.is_dir()
    fine, wrong = nbval(good), nbval(bad)
    assert fine.returncode == 0, fine.stdout
    assert wrong.returncode == 1 and "1 failed" in wrong.stdout, wrong.stdout


def with_wrong_number(path: Path) -> str | None:
    """The notebook's text with one digit of one printed result changed; None when it prints none."""
    changed = json.loads(path.read_text("utf-8"))
    for cell in reversed(changed["cells"]):
        for output in cell.get("outputs", []):
            plain = output.get("data", {}).get("text/plain")
            at = re.search(r"\d\.(\d)", "".join(plain)) if plain and output["output_type"] == "execute_result" else None
            if at:
                text = "".join(plain)
                digit = str((int(at[1]) + 1) % 10)
                output["data"]["text/plain"] = text[: at.start(1)] + digit + text[at.end(1) :]
                return json.dumps(changed)
    return None


def test_the_check_fails_on_a_wrong_number_in_a_copy_of_a_shipped_notebook(tmp_path):
    planted = with_wrong_number(ROOT / "notebooks" / "01_side_by_side.ipynb")
    assert planted is not None, "01_side_by_side must print a number"
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "notebooks").mkdir()
    copy = tmp_path / "notebooks" / "copy.ipynb"
    copy.write_text(planted, "utf-8")
    wrong = nbval(copy)
    assert wrong.returncode == 1 and "1 failed" in wrong.stdout, wrong.stdout


@each
def test_what_a_figure_says_to_those_who_cannot_see_it_is_words(path):
    for alt in re.findall(r"""alt=\\?["']([^"']*)""", path.read_text("utf-8")):
        assert not re.search(r"[\[{](&#x27;|\[)|None|nan", alt), alt[:120]
