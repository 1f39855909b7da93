"""What a user sees in JupyterLab: a real Chromium runs the notebooks, clicks and types, and the page changes."""

from __future__ import annotations

import re

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser import KERNEL_MS, browser_page, cut_off, lab, open_notebook, shot, workspace
from tests.conftest import ROOT
from tests.samples import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BOOKS = ("01_side_by_side.ipynb", "03_anchoring.ipynb", "06_manual_review.ipynb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("lab") / "work", *BOOKS)


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    with lab(folder, tmp_path_factory.mktemp("lab-settings")) as running:
        yield running


@pytest.fixture
def page():
    with browser_page() as opened:
        yield opened


def panel_of(page: Page, text: str):
    """The panel that holds *text*."""
    found = page.locator(".wb-panel").filter(has_text=text).first
    found.wait_for(timeout=KERNEL_MS)
    found.scroll_into_view_if_needed()
    return found


def test_side_by_side_filters_runs_edits_and_compares(server, page):
    open_notebook(page, server, "01_side_by_side.ipynb")
    panel = panel_of(page, "language")
    total = int(re.search(r"(\d+) of \1", panel.inner_text())[1])
    panel.get_by_label("gold level").select_option("critical")
    expect(panel.get_by_text(re.compile(rf"^\d+ of {total}$"))).not_to_have_text(f"{total} of {total}")
    panel.get_by_role("button", name="▶ Run", exact=True).click()
    status = panel.locator(".wb-status")
    expect(status).to_contain_text("done: 1 assessed")
    expect(panel.get_by_text("guard: both read the same text")).to_be_visible()
    panel.locator("summary").filter(has_text="Text under analysis").first.click()
    expect(panel.locator(".wb-text").first).to_be_visible()
    shot(page, "side_by_side", ".wb-panel")
    panel.get_by_role("button", name="⊞ Keep for comparison").click()
    expect(panel.get_by_text("Kept for comparison", exact=True)).to_be_visible()
    panel.get_by_text("Edit the text under analysis").click()
    panel.get_by_role("textbox").last.fill("I am fine, just tired.")
    panel.get_by_role("button", name="▶ Run", exact=True).click()
    expect(panel.get_by_role("heading").filter(has_text="(edited)")).to_be_visible()
    panel.get_by_role("button", name="Prompts and raw answers").click()
    panel.locator("summary").filter(has_text="L2: raw answer").click()
    expect(panel.locator(".wb-text").filter(has_text="risk_level").last).to_be_visible()
    panel.locator("summary").filter(has_text="L1: prompt").click()
    expect(panel.get_by_text("Its hash matches the recorded one.").first).to_be_visible()
    shot(page, "side_by_side_edited", ".wb-panel")
    assert cut_off(page, panel) == []


def test_the_anchoring_lab_moves_the_arrow_and_keeps_a_tally(server, page):
    open_notebook(page, server, "03_anchoring.ipynb")
    panel = panel_of(page, "tell L2")
    status = panel.locator(".wb-status")
    for told, words in (("told_critical", "told critical"), ("told_low", "told low")):
        panel.get_by_label("tell L2").select_option(label=words)
        panel.get_by_role("button", name="▶ Run", exact=True).click()
        expect(status).to_contain_text("in the tally")
        expect(panel.get_by_role("cell", name=words, exact=True)).to_be_visible()
        expect(panel.get_by_text(re.compile(r"score: blind \d\.\d\d → told"))).to_be_visible()
        assert told
    panel.get_by_role("button", name="▶▶ Run all matching").click()
    expect(status).to_contain_text(re.compile(r"done: \d\d+ comparisons"), timeout=KERNEL_MS)
    shot(page, "anchoring_lab", ".wb-panel")
    assert cut_off(page, panel) == []


def frames_of(page: Page) -> list[bytes]:
    """Everything that comes from the kernel over web sockets from now on."""
    frames: list[bytes] = []

    def keep(payload: str | bytes) -> None:
        frames.append(payload if isinstance(payload, bytes) else payload.encode())

    page.on("websocket", lambda socket: socket.on("framereceived", keep))
    return frames


def test_twenty_labels_by_keyboard_survive_a_killed_kernel_and_blind_means_blind(server, page):
    frames = frames_of(page)
    open_notebook(page, server, "06_manual_review.ipynb")
    panel = panel_of(page, "skipped")
    cells = page.locator(".jp-Cell").count()
    head = panel.get_by_text(re.compile(r"\d+ of \d+ done"))
    panel.locator(".wb-keypad").click()
    blind = 0
    for n in range(20):
        expect(head).to_contain_text(f"{n} of")
        hidden = panel.get_by_text("The judges' verdict is hidden until you commit.")
        if hidden.count():
            blind += 1
            assert not [f for f in frames if b"For review:" in f], "the verdict reached the browser before the commit"
        page.keyboard.press(str(n % 4 + 1))
        expect(panel.get_by_role("button", name=re.compile(rf"^✓ {n % 4 + 1} ·"))).to_be_visible()
        if n == 4:
            page.keyboard.press("j")
            page.keyboard.press("o")
            expect(panel.locator("details[open]").first).to_be_visible()
            shot(page, "review_label", ".wb-panel")
        page.keyboard.press("Enter")
        expect(panel.get_by_role("button", name="Enter · next")).to_be_visible()
        assert [f for f in frames if b"For review:" in f] or not hidden.count()
        if n == 4:
            shot(page, "review_revealed", ".wb-panel")
            assert cut_off(page, panel) == []
        page.wait_for_timeout(310)  # the same key within 300 ms is taken for a double click, and ignored
        page.keyboard.press("Enter")
        expect(panel.get_by_role("button", name="Enter · commit")).to_be_visible()
        frames.clear()
    assert 5 <= blind <= 15
    for key in "dd":  # notebook shortcuts that would delete the cell
        page.keyboard.press(key)
    assert page.locator(".jp-Cell").count() == cells
    expect(head).to_contain_text("20 of")

    assert server.kill_kernels() >= 1
    page.goto("about:blank")
    open_notebook(page, server, "06_manual_review.ipynb")
    again = panel_of(page, "skipped")
    expect(again.get_by_text(re.compile(r"\d+ of \d+ done"))).to_contain_text("20 of")


def test_buttons_alone_suffice_and_the_focus_is_visible(server, page):
    open_notebook(page, server, "06_manual_review.ipynb")
    panel = panel_of(page, "skipped")
    before = panel.get_by_text(re.compile(r"\d+ of \d+ done")).inner_text()
    panel.get_by_role("button", name=re.compile("2 · medium")).click()
    panel.get_by_role("button", name="Enter · commit").click()
    expect(panel.locator(".wb-status")).to_contain_text("saved medium")
    panel.get_by_role("button", name="u · undo").click()
    expect(panel.get_by_text(re.compile(r"\d+ of \d+ done"))).to_have_text(before)
    panel.locator("textarea").focus()
    page.keyboard.type("1 note with keys 4")
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    expect(panel.get_by_role("button", name="✓ 3 · high")).to_be_visible()
    assert panel.locator("textarea").input_value() == "1 note with keys 4"
    page.keyboard.press("Tab")
    style = page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + ' ' + getComputedStyle(document.activeElement).outlineWidth"
    )
    assert style == "solid 3px"


BOARDS = """\
import workbench as wb
from workbench.judges.simulated import SimulatedJudge, planted_corpus, severities
from workbench.widgets import DriftViewer, JudgeBoard, ThresholdExplorer
corpus, truth = planted_corpus(24, seed=5, turns=3, shift=0.5)
one, two = (SimulatedJudge(severities(truth), name=f"sim-{i}", seed=i) for i in (1, 2))
run = wb.sync(wb.run(wb.DoubleConfirmation(one, two), corpus, turns="all", repeats=2, progress=False))
%%
DriftViewer(run)
%%
JudgeBoard(corpus, judges=[one, two])
%%
ThresholdExplorer(run)"""


def test_the_boards_draw_and_answer(server, folder, page):
    open_notebook(page, server, notebook(folder, "boards.ipynb", BOARDS))
    drift = panel_of(page, "show")
    before = drift.locator("img.wb-figure").first.get_attribute("src")
    drift.get_by_label("show", exact=True).select_option("confidence")
    expect(drift.locator("img.wb-figure").first).not_to_have_attribute("src", before or "")
    board = panel_of(page, "repeats")
    board.get_by_role("button", name="▶ Run", exact=True).click()
    expect(board.locator(".wb-status")).to_contain_text("done: the judges differ", timeout=KERNEL_MS)
    expect(board.locator("img.wb-figure")).to_be_visible()
    gates = panel_of(page, "gate L1")
    missed = gates.get_by_role("row").filter(has_text="missed criticals")
    said = missed.inner_text()
    gates.get_by_role("slider").first.focus()
    page.keyboard.press("End")
    expect(missed).not_to_have_text(said)
    for name, panel in (("drift", drift), ("board", board), ("thresholds", gates)):
        shot(page, name, panel)
        assert cut_off(page, panel) == [], name


HOSTILE_CELLS = f"""\
from workbench.schema import *
bad = {HOSTILE.replace("alert(1)", "window.__owned=1").replace("alert(2)", "window.__owned=2")!r} + " $$x^2$$ \\\\begin{{align}}y\\\\end{{align}} 你好"
d = Dialogue(id=bad, turns=(Turn(role="user", content=bad), Turn(role="assistant", content=bad), Turn(role="user", content=bad)), phenomenon=bad)
side = dict(level="critical", raw_level="critical", confidence=0.9, evidence=bad, judge=bad, flags=dict.fromkeys(FLAGS, False))
o = Outcome(dialogue_id=bad, l1=Assessment(**side), l2=Assessment(tier="L2", **side), level="critical", review_reasons=(bad,),
            conditions=(Condition(name=bad, passed=False, value=bad),))
o
%%
o.l1
%%
print(o)
%%
import tempfile, pathlib
from workbench.store import Store
from workbench.widgets import ReviewPanel, ReviewSession
panel = ReviewPanel(ReviewSession([d], [o], store=Store(pathlib.Path(tempfile.mkdtemp()) / "a.db"), reviewer=bad, queue="q", show="always"))
panel.press("o")
panel
%%
from workbench.judges.cue import CueJudge
from workbench.judges.simulated import SimulatedJudge
from workbench.widgets import SideBySide
SideBySide([d], judges=[CueJudge(), SimulatedJudge()], outcomes=[o])"""


def notebook(folder, name: str, cells: str) -> str:
    """Write a notebook of these code cells beside the others."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c.strip()) for c in cells.split("%%")])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / name)
    return name


ATTACKS = """() => ({
  owned: window.__owned ?? null,
  elements: document.querySelectorAll('.wb img:not(.wb-figure), .wb script, .wb a, .wb-panel img:not(.wb-figure), .wb-panel script').length,
  maths: document.querySelectorAll('.wb mjx-container, .wb .MathJax').length,
  shown: [...document.querySelectorAll('.wb-text, .wb-turn')].filter(e => e.innerText.includes('window.__owned=1') && e.innerText.includes('$$x^2$$')).length,
  bidi: [...document.querySelectorAll('.wb, .wb-panel')].some(e => /[\\u202a-\\u202e\\u2066-\\u2069]/.test(e.innerText)),
})"""


def test_hostile_text_is_inert_in_the_browser_and_in_the_exported_page(server, folder, page):
    dialogs: list[str] = []
    page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    open_notebook(page, server, notebook(folder, "hostile.ipynb", HOSTILE_CELLS))
    panel_of(page, "skipped")
    for summary in page.locator(".wb summary").all():
        if summary.is_visible() and summary.locator("xpath=..").get_attribute("open") is None:
            summary.click()
    page.wait_for_timeout(500)  # give MathJax the time to do what it must not do
    found = page.evaluate(ATTACKS)
    assert found == {"owned": None, "elements": 0, "maths": 0, "shown": found["shown"], "bidi": False} and found["shown"] >= 3
    assert dialogs == []
    shot(page, "hostile", ".wb-panel")


def test_an_exported_page_opens_without_any_request_and_without_an_error_in_a_widgets_place(folder, page, tmp_path):
    from tests.refresh_notebooks import execute
    from tests.test_notebooks import exporter

    book = execute(folder / notebook(folder, "hostile.ipynb", HOSTILE_CELLS))
    path = tmp_path / "hostile.html"
    path.write_text(exporter().from_notebook_node(book)[0], "utf-8")
    requests: list[str] = []
    page.on("request", lambda r: requests.append(r.url))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = page.evaluate(ATTACKS)
    assert found["owned"] is None and found["elements"] == found["maths"] == 0 and found["shown"] >= 3
    assert [u for u in requests if not u.startswith(("file:", "data:"))] == []
    assert (
        "Error displaying widget" not in page.inner_text("body") and page.get_by_text("a still. Run this notebook").count() >= 2
    )
    shot(page, "hostile_export")


def test_artefacts_are_not_in_the_repository():
    assert "artefacts/" in (ROOT / ".gitignore").read_text()
