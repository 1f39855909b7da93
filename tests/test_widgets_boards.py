"""Drift viewer, judge board and threshold explorer over small runs, driven from Python."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time

import pytest

import workbench as wb
from tests.samples import WordJudge, corpus
from tests.test_display import words
from tests.test_widgets_cases import press
from workbench.errors import SetupError
from workbench.schema import RiskLevel, Turn
from workbench.widgets.boards import DriftViewer, JudgeBoard, ThresholdExplorer, operating, per_turn


class Shy(WordJudge):
    """Says one level less than the text for every second dialogue."""

    async def answer(self, request):
        reply = await super().answer(request)
        if any(f"text {n}" in request.prompt.view.text for n in (1, 3)):
            return type(reply)(reply.text.replace('"critical"', '"high"').replace('"medium"', '"low"'), model=self.name)
        return reply


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def made(folder, name: str, dialogues, **options):
    pipeline = wb.DoubleConfirmation(WordJudge("one"), Shy("two"))
    return wb.sync(wb.run(pipeline, dialogues, out=folder / name, resume=True, progress=False, **options))


@pytest.fixture(scope="module")
def drift(folder):
    """Three dialogues of two user turns; the first turn is medium by gold, the last as the text says."""
    first = Turn(role="user", content="medium start", gold={"risk_level": "medium"})
    dialogues = [d.model_copy(update={"turns": (first, d.turns[-1])}) for d in corpus(4)]
    return made(folder, "drift", dialogues, turns="all", repeats=2)


@pytest.fixture(scope="module")
def flat(folder):
    return made(folder, "flat", corpus(24))


def is_png(html: str) -> bool:
    found = re.search(r'alt="[^"]{10,}"[^>]*src="data:image/png;base64,([^"]+)"', html)
    return bool(found) and base64.b64decode(found[1]).startswith(b"\x89PNG")


def test_the_drift_viewer_draws_the_dialogue_and_the_corpus(drift):
    viewer = DriftViewer(drift)
    assert (
        is_png(viewer.one.value)
        and is_png(viewer.all.value)
        and repr(viewer) == "DriftViewer(4 dialogues with more than one user turn)"
    )
    before = viewer.one.value
    viewer.pick.value = "d3"
    assert viewer.one.value != before and "d3" in words(viewer.text.value)
    before = viewer.one.value
    viewer.what.value = "confidence"
    assert viewer.one.value != before


def test_gold_is_a_line_of_its_own_for_the_level_and_absent_for_confidence(drift):
    rows = drift.frame[(drift.frame.dialogue_id == "d3") & (drift.frame.tier == "L1")]
    level = per_turn(rows, "rank")
    # medium is 1, critical is 3; the judge reads the same words as gold.
    assert level[level.series == "gold"].y.tolist() == [1, 3] and level[level.series == "one"].y.tolist() == [1, 3]
    assert set(per_turn(rows, "confidence").series) == {"one"}


def test_simulated_judges_are_labelled_in_every_panel(folder, tmp_path):
    from workbench.judges.simulated import SimulatedJudge
    from workbench.widgets.cases import AnchoringLab

    pair = [SimulatedJudge(name="a", seed=1), SimulatedJudge(name="b", seed=2, anchoring=0.5)]
    run = wb.sync(wb.run(wb.DoubleConfirmation(*pair), corpus(12), out=folder / "sim", turns="all", progress=False))
    assert "(simulated)" in DriftViewer(run).one.value and "(simulated)" in repr(ThresholdExplorer(run))
    lab = AnchoringLab(corpus(4), judges=pair)
    press(lab, "▶ Run")
    assert "b (simulated)" in words(lab.tally.value) and "b (simulated) as L2" in words(lab.out.value)


def test_a_run_of_last_turns_only_has_no_drift_to_view(flat):
    with pytest.raises(SetupError, match="turns='all'"):
        DriftViewer(flat)


def test_the_board_runs_judges_on_the_same_transcripts_and_opens_a_disagreement(tmp_path):
    board = JudgeBoard(corpus(8), judges=[WordJudge("one"), Shy("two"), WordJudge("three")], out=tmp_path)
    press(board, "▶ Run")
    assert board.work.status.value == "done: the judges differ on 2 of 8 dialogues" and dict(board.case.options).keys() == {
        "d1",
        "d3",
    }
    assert is_png(board.board.value) and words(board.opened.value).count("(rules)") == 3
    before = board.opened.value
    board.case.value = next(i for _, i in board.case.options if i != board.case.value)
    assert board.opened.value != before
    matrix = board.board.value
    board.measure.value = "agreement"
    assert board.board.value != matrix


def test_the_boards_run_is_kept_and_a_second_press_asks_nothing(tmp_path):
    judges = [WordJudge("one"), Shy("two")]
    board = JudgeBoard(corpus(4), judges=judges, out=tmp_path)
    press(board, "▶ Run")
    asked = [j.asked for j in judges]
    press(board, "▶ Run")
    assert [j.asked for j in judges] == asked and (tmp_path / "one-two-1" / "manifest.json").exists()


def test_a_stopped_board_leaves_a_run_that_the_next_press_goes_on_with(tmp_path):
    class Slow(WordJudge):
        async def answer(self, request):
            await asyncio.sleep(0.01)
            return await super().answer(request)

    judges = [WordJudge("one"), Slow("two")]
    board = JudgeBoard(corpus(120), judges=judges, out=tmp_path)
    press(board, "▶ Run", wait=False)
    deadline = time.monotonic() + 20
    while board.work.bar.value < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    board.work.halt.click()
    board.work.wait()
    manifest = json.loads((tmp_path / "one-two-1" / "manifest.json").read_text())
    assert "running again goes on from there" in board.work.status.value and manifest["status"] == "interrupted"
    assert 20 <= manifest["done"] < 240
    asked = judges[1].asked
    press(board, "▶ Run")
    assert "done: the judges differ on" in board.work.status.value and judges[1].asked - asked <= 120 - asked + 16


def test_the_board_needs_two_judges(tmp_path):
    board = JudgeBoard(corpus(4), judges=[WordJudge("one"), Shy("two")], out=tmp_path)
    board.chosen.value = ("one",)
    press(board, "▶ Run", wait=False)
    assert "choose at least two judges" in board.message.value


def test_the_threshold_explorer_counts_misses_and_false_alarms_beside_each_other(flat):
    explorer = ThresholdExplorer(flat)
    # 24 dialogues, d3, d7, d11 … critical: 6. 'two' says high where the text holds "text 1" or "text 3": d3, d11, d15, d19.
    assert "missed criticals 4 of 6" in words(explorer.numbers.value) and "false confirmations 0 of 18" in words(
        explorer.numbers.value
    )
    assert is_png(explorer.figure.value)
    explorer.gates[0].value = 0.95  # the judges say 0.9: nothing passes
    assert "missed criticals 6 of 6 100.0 %" in words(explorer.numbers.value)


def test_lower_levels_trade_misses_for_false_confirmations(flat):
    explorer = ThresholdExplorer(flat)
    for level in explorer.levels:
        level.value = "high"
    shown = words(explorer.numbers.value)
    # Every high dialogue (6 of the 18 that are not critical) is now confirmed, and no critical is missed.
    assert "missed criticals 0 of 6" in shown and "false confirmations 6 of 18" in shown


def test_moving_a_gate_up_never_confirms_more(flat):
    rows = ThresholdExplorer(flat).rows
    points = [operating(rows, (g, g), ("high", "high")) for g in (0.0, 0.5, 0.9, 0.91, 1.0)]
    assert [m.value for m, _ in points] == sorted(m.value for m, _ in points)
    assert [f.value for _, f in points] == sorted((f.value for _, f in points), reverse=True)
    assert points[2][0].value == 0 and points[3][0].value == 1  # 0.9 is inclusive


def test_at_the_pipelines_own_gate_the_explorer_agrees_with_the_run(flat):
    missed, false = operating(flat.outcomes, (0.85, 0.85), ("critical", "critical"))
    gold = flat.outcomes.gold_level == RiskLevel.CRITICAL.value
    assert missed.value == (~flat.outcomes.confirmed[gold]).mean() and false.value == flat.outcomes.confirmed[~gold].mean()


def test_no_panel_shadows_what_ipywidgets_needs_for_itself():
    """A method called ``open`` once kept a panel from ever reaching the browser."""
    import inspect

    import ipywidgets

    from workbench.widgets import base, boards, cases, review

    meant = {"__init__", "__repr__", "_repr_mimebundle_", "__module__", "__doc__", "__annotations__", "__qualname__"}
    panels = [
        c
        for m in (base, boards, cases, review)
        for _, c in inspect.getmembers(m, inspect.isclass)
        if issubclass(c, ipywidgets.Widget)
    ]
    for cls in (c for c in panels if c.__module__.startswith("workbench")):
        taken = {
            name for base_class in cls.__mro__ if not base_class.__module__.startswith("workbench") for name in vars(base_class)
        }
        theirs = {
            n
            for n in set(vars(cls)) & taken - meant
            if not n.startswith(("_traits", "_all_trait", "_trait", "_instance", "_static", "_descriptors", "_cached"))
        }
        assert theirs - {"_esm", "_css"} == set(), cls


def test_every_panel_opens_its_channel_to_the_browser(flat, drift, tmp_path):
    for panel in (
        JudgeBoard(corpus(4), judges=[WordJudge("one"), Shy("two")], out=tmp_path),
        DriftViewer(drift),
        ThresholdExplorer(flat),
    ):
        assert panel.comm is not None and panel.model_id
