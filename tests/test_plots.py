"""Figures: axes in, axes out; what is missing is written; every script renders; nothing global is touched."""

from __future__ import annotations

import subprocess
import sys
import threading

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from workbench import plots

ESTIMATES = pd.DataFrame(
    {"label": ["a", "b"], "value": [0.2, None], "low": [0.1, None], "high": [0.4, None], "note": ["", "not applicable: fixed"]}
)
LINES = pd.DataFrame({"x": [0, 1, 2], "y": [0.1, 0.2, 0.4], "low": [0.0, 0.1, 0.3], "high": [0.2, 0.3, 0.5], "series": "one"})
MATRIX = pd.DataFrame([[0.2, np.nan], [0.8, 1.0]], ["r1", "r2"], ["c1", "c2"])
POINTS = pd.DataFrame([["a", 0.02, 0.01, 0.04, 0.8, 0.7, 0.9]], columns=["label", "x", "x_low", "x_high", "y", "y_low", "y_high"])
ERRORS = pd.DataFrame({"x": [-0.1, 0.2, 0.3], "y": [0.1, 0.2, -0.2], "gold_rank": [0, 1, 3]})
BINS = pd.DataFrame(
    {"x": [0.6, 0.9], "value": [0.5, 0.8], "low": [0.3, 0.6], "high": [0.7, 0.9], "null_low": [0.5, 0.8], "null_high": [0.7, 1.0]}
)
MASS = pd.DataFrame({"confidence": [0.6, 0.85], "n": [3, 9]})
GRID = pd.DataFrame(
    [(a, b, a * b / 10, 1 - a * b) for a in (0.5, 0.7, 0.9) for b in (0.5, 0.7, 0.9)], columns=["t1", "t2", "fpr", "sens"]
)
CLOUD = pd.DataFrame({"t1": [0.7], "t2": [0.9], "n": [5]})
FALL = pd.DataFrame({"label": ["all", "l1 critical"], "value": [1000.0, 52.0], "independent": [1000.0, 52.0]})
THREADS = pd.DataFrame({"id": ["d1", "d1", "d2"], "x": [0, 1, 0], "y": [0.1, 0.3, 0.2]})
MEANS = {"mean": LINES.rename(columns={"y": "value"})}
WORDS = {"title": "A title", "xlabel": "share of x", "ylabel": "share of y", "caption": "n = 3 dialogues; 1 unknown."}
DRAWINGS = {
    "forest": lambda **w: plots.forest(ESTIMATES, **w),
    "heat": lambda **w: plots.heat(MATRIX, colour="share", **w),
    "curves": lambda **w: plots.curves(LINES, **w),
    "spaghetti": lambda **w: plots.spaghetti(THREADS, MEANS, **w),
    "points": lambda **w: plots.points(POINTS, **w),
    "error_scatter": lambda **w: plots.error_scatter(ERRORS, **w),
    "reliability": lambda **w: plots.reliability(BINS, MASS, gate=0.85, **w),
    "gate_map": lambda **w: plots.gate_map(GRID, CLOUD, here=(0.85, 0.85), **w),
    "waterfall": lambda **w: plots.waterfall(FALL, **w),
}  # fmt: skip
EMPTY = {
    "forest": lambda **w: plots.forest(ESTIMATES.iloc[:0], **w),
    "forest without numbers": lambda **w: plots.forest(ESTIMATES.iloc[1:], **w),
    "heat": lambda **w: plots.heat(MATRIX.iloc[:0], colour="share", **w),
    "curves": lambda **w: plots.curves(LINES.assign(y=None), **w),
    "spaghetti": lambda **w: plots.spaghetti(THREADS.assign(y=pd.NA), MEANS, **w),
    "points": lambda **w: plots.points(POINTS.assign(x=None), **w),
    "error_scatter": lambda **w: plots.error_scatter(ERRORS.iloc[:0], **w),
    "reliability": lambda **w: plots.reliability(BINS.iloc[:0], MASS, gate=0.85, **w),
    "gate_map": lambda **w: plots.gate_map(GRID.assign(fpr=None), CLOUD, here=(0.85, 0.85), **w),
    "waterfall": lambda **w: plots.waterfall(FALL.iloc[:0], **w),
}  # fmt: skip


def words_in(figure) -> str:
    return "\n".join(t.get_text() for t in figure.findobj(mpl.text.Text))


def theory() -> pd.DataFrame:
    rho = np.linspace(0, 0.9, 4)
    return pd.DataFrame(
        {
            "rho": rho,
            "p": 0.05,
            "joint": 0.01 + rho / 50,
            "t4": 0.02 + rho / 50,
            "gain": 3 - rho,
            "sens": 0.9,
            "lost": 0.1 - rho / 20,
        }
    )


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_takes_an_axis_and_gives_it_back(name):
    ax = plots.canvas()[1]

    assert DRAWINGS[name](ax=ax, **WORDS) is ax


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_title_labels_and_its_numbers_in_the_small_print(name):
    figure = DRAWINGS[name](**WORDS).figure
    shown = words_in(figure).replace("\n", " ")

    assert all(text in shown for text in WORDS.values())
    assert plots.png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_draw_says_why(name):
    figure = EMPTY[name](**WORDS).figure

    assert "nothing to draw: " in words_in(figure)
    assert WORDS["caption"] in words_in(figure)


def test_the_reason_of_a_missing_estimate_is_written_not_drawn_at_zero():
    ax = plots.forest(ESTIMATES, **WORDS)
    drawn = [float(x) for line in ax.lines for x in np.atleast_1d(line.get_xdata())]

    assert "not applicable: fixed" in words_in(ax.figure)
    assert 0.0 not in drawn


def test_missing_cells_of_a_matrix_are_hatched_and_carry_no_number():
    ax = plots.heat(MATRIX, colour="share", **WORDS)

    assert [t.get_text() for t in ax.texts][:4] == ["0.20", "", "0.80", "1.00"]
    assert any(p.get_hatch() for p in ax.patches)


def test_chinese_labels_render_without_missing_glyphs():
    if len(plots.families()) < 2:
        pytest.skip("no Chinese font is installed here")
    figure = plots.forest(
        ESTIMATES.assign(label=["对话 甲", "zh-升级-001"]), **WORDS | {"title": "危急检出率", "caption": "共 3 段对话。"}
    ).figure

    plots.png(figure)  # a missing glyph is a warning, and warnings are errors here


def test_long_chinese_captions_are_broken_into_lines_that_fit():
    text = "共 174 段对话，73 个家族；0 条为 unknown。" * 9
    figure = plots.curves(LINES, **WORDS | {"caption": text}).figure
    shown = next(t for t in figure.texts if t.get_gid() == "caption")
    plots.png(figure, dpi=100)

    assert shown.get_text().replace("\n", "").replace(" ", "") == text.replace(" ", "")
    assert shown.get_window_extent().x1 <= figure.bbox.x1


def test_without_a_chinese_font_labels_become_codes_that_stay_apart(monkeypatch):
    monkeypatch.setattr(plots, "families", lambda: ("DejaVu Sans",))
    one, two = plots.label("对话甲"), plots.label("对话乙")

    assert one.isascii() and two.isascii() and one != two
    assert "no CJK font" in one
    assert plots.label("plain") == "plain"
    plots.png(plots.forest(ESTIMATES.assign(label=["对话甲", "对话乙"]), **WORDS).figure)


@pytest.mark.parametrize("hostile", ["$\\frac{1}{", "$x^2$", "a\u202eb", "line\x1b[31mred", "<script>"])
def test_hostile_names_are_inert(hostile):
    figure = plots.forest(ESTIMATES.assign(label=[hostile, "b"]), **WORDS | {"title": hostile}).figure

    plots.png(figure)
    assert "\u202e" not in words_in(figure) and "\x1b" not in words_in(figure)


def test_equal_tables_give_equal_bytes():
    assert plots.png(plots.curves(LINES, **WORDS).figure) == plots.png(plots.curves(LINES, **WORDS).figure)


def test_figures_are_drawn_in_threads():
    done: list[bytes] = []
    workers = [threading.Thread(target=lambda: done.append(plots.png(plots.curves(LINES, **WORDS).figure))) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()

    assert len(set(done)) == 1 and len(done) == 3


def test_no_pyplot_and_no_global_style():
    code = (
        "import matplotlib as mpl; before = dict(mpl.rcParams); import sys; from workbench import plots; plots.png(plots.canvas()[0]); "
        "print('matplotlib.pyplot' in sys.modules, [k for k in before if before[k] != mpl.rcParams[k] and k != 'backend'])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False []"


def test_series_differ_in_colour_marker_and_dash():
    table = pd.concat([LINES.assign(series=s) for s in "abcdefg"])
    lines = plots.curves(table, **WORDS).lines[:7]

    for looks in (
        [x.get_color() for x in lines],
        [x.get_marker() for x in lines],
        [str(x._unscaled_dash_pattern) + str(x.get_linestyle()) for x in lines],
    ):
        assert len(set(looks)) == 7


def test_the_headline_draws_the_pairs_it_is_given_and_zero_as_a_bound():
    pairs = pd.DataFrame(
        {"label": ["L1 x L2", "none seen"], "rho": [0.5, None], "joint": [0.02, 0.0], "low": [0.01, 0.0], "high": [0.04, 0.03]}
    )
    words = {
        "xlabel": "correlation",
        "ylabel": "both",
        "lost_title": "Lost",
        "lost_label": "lost",
        "gain_title": "Gain",
        "gain_label": "times",
    }
    axes = plots.headline(theory(), pairs, title="What asking twice buys", caption="n = 9.", **words)
    marks = {line.get_label(): line for line in axes[0].lines if line.get_label() in ("L1 x L2", "none seen")}

    assert (marks["L1 x L2"].get_xdata()[0], marks["L1 x L2"].get_ydata()[0]) == (0.5, 0.02)
    assert marks["none seen"].get_marker() == "v" and marks["none seen"].get_ydata()[0] == 0.03
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)


def test_groups_stand_above_each_other_on_the_row_of_their_label():
    table = pd.concat([ESTIMATES.iloc[:1].assign(group=g) for g in ("one", "two")])
    ax = plots.forest(table, **WORDS)

    assert len(ax.get_yticks()) == 1
    assert len({float(line.get_ydata()[0]) for line in ax.lines if line.get_marker() in ("o", "s")}) == 2


def test_the_histogram_marks_the_mass_at_the_gate():
    ax = plots.reliability(BINS, MASS, gate=0.85, **WORDS)
    over = ax.child_axes[0]
    colours = {round(b.get_x() + b.get_width() / 2, 2): mpl.colors.to_hex(b.get_facecolor()) for b in over.patches}

    assert colours[0.85] != colours[0.6]
