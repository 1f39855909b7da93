"""Draw tidy frames: every drawing takes an axis and gives it back, and says why when there is nothing to draw.

No pyplot, no global style: this works headless and in threads. A drawing is called as ``forest(table, title=..., ax=None,
xlabel="", ylabel="", caption="", ...)`` and returns the axes. A missing number is written out, never drawn at 0.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any, Final, cast

import numpy as np
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from workbench.text import inert, sha256

OKABE_ITO: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final[tuple[Any, ...]] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
LEVELS: Final = ("low", "medium", "high", "critical")
INK, GREY, PALE = "#222222", "#707070", "#DDDDDD"
BESIDE: Final[dict[str, Any]] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
CJK_FONTS: Final = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
                    "Microsoft YaHei", "PingFang SC", "Hiragino Sans GB", "SimHei", "Noto Serif CJK SC")  # fmt: skip


def png(figure: Figure, *, dpi: int = 144) -> bytes:
    """The figure as PNG bytes; equal figures give equal bytes."""
    figure.savefig(out := io.BytesIO(), format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


class Picture(Figure):
    """A figure that shows itself in a notebook without pyplot or a backend."""

    _repr_png_ = png


@cache
def families() -> tuple[str, ...]:
    """Font families to try in turn; the second one, if any is installed, draws Chinese."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", *[name for name in CJK_FONTS if name in installed][:1])


def label(text: object) -> str:
    """*text* as it can be drawn: inert, and as an ASCII code where no installed font has the letters."""
    drawn = inert(text)
    return drawn if len(families()) > 1 or all(ord(c) < 0x2E80 for c in drawn) else f"#{sha256(drawn)[:6]} (no CJK font)"


def canvas(columns: int = 1, *, width: float = 7.2, height: float = 4.2) -> tuple[Picture, Any]:
    """A new figure at report width (inches) and its axes: one, or an array of them side by side."""
    figure = Picture(figsize=(width, height), dpi=100, layout="constrained")
    return figure, figure.subplots(1, columns)


def _wrap(text: object, width: int) -> str:
    """*text* in lines of *width* Latin letters; a Chinese letter takes two and may end a line."""
    spaced = re.sub("([\u2e80-\uffff])", r"\1 ", label(text))
    return re.sub("([\u2e80-\uffff]) ", r"\1", "\n".join(textwrap.wrap(spaced, width)))


def _finish(ax: Any, title: str, *, xlabel: str = "", ylabel: str = "", top: float | None = None) -> Any:
    """Words, fonts and spines; *top* is the height of the title above the axis."""
    spec = ax.get_subplotspec()
    letters = int(ax.figure.get_figwidth() * 11.5 / (spec.get_gridspec().ncols if spec else 1))
    ax.set_title(_wrap(title, letters), fontsize=10, loc="left", color=INK, y=top)
    ax.set_xlabel(xlabel, fontsize=9)
    ax.set_ylabel(ylabel, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    for item in ax.figure.findobj(Text):
        item.set_fontfamily(list(families()))
        item.set_parse_math(False)
    return ax


def _caption(ax: Any, text: str) -> None:
    """Small print: at the foot of a figure of ours, under the axis of somebody else's."""
    figure, lines = ax.figure, _wrap(text, int(ax.figure.get_figwidth() * 16))
    style: dict[str, Any] = {"fontsize": 7.5, "color": GREY, "gid": "caption"}
    if isinstance(figure, Picture):
        height = (11 * (lines.count("\n") + 1) + 4) / 72 / figure.get_figheight()
        cast(Any, figure.get_layout_engine()).set(rect=(0, height, 1, 0.985 - height))
        figure.text(0.012, 0.01, lines, va="bottom", **style)
    else:
        at = (0, -36 if ax.axison else -6)
        ax.annotate(lines, (0, 0), at, "axes fraction", textcoords="offset points", annotation_clip=False, va="top", **style)


def nothing(title: str, reason: str, *, ax: Any = None, caption: str = "", **_: str) -> Axes:
    """An axis that says why it is empty."""
    ax = canvas(height=1.6)[1] if ax is None else ax
    ax.set_axis_off()
    look = {"ha": "center", "va": "center", "fontsize": 9, "color": GREY, "transform": ax.transAxes}
    ax.text(0.5, 0.5, _wrap(f"nothing to draw: {reason}", 80), **look)
    _caption(ax, caption)
    return cast(Axes, _finish(ax, title))


def _drawing(why: str, *needs: str, height: float = 4.2, row: str = "") -> Callable[..., Callable[..., Axes]]:
    """Make ``draw(ax, table, ...)`` a drawing. Rows lacking one of *needs* go; without rows it says *why* it is empty.

    *row* is the column whose distinct values (or "index") make the figure higher. What *draw* returns is the title's height.
    """

    def wrap(draw: Callable[..., float | None]) -> Callable[..., Axes]:
        def drawing(table: pd.DataFrame, *args: Any, title: str, ax: Any = None, caption: str = "", **options: Any) -> Axes:
            words = {name: options.pop(name, "") for name in ("xlabel", "ylabel")}
            kept = table.dropna(subset=list(needs)) if len(table) else table
            if kept.empty or ("note" in kept and kept["value"].isna().all()):
                return nothing(title, why if "note" not in kept or kept.empty else kept["note"].iloc[0], ax=ax, caption=caption)
            rows = len(kept) if row == "index" else kept[row].nunique() if row else 0
            ax = canvas(height=min(9.0, height + 0.36 * rows))[1] if ax is None else ax
            top = draw(ax, kept, *args, **options)
            _caption(ax, caption)
            return cast(Axes, _finish(ax, title, **words, top=top))

        return update_wrapper(drawing, draw)

    return wrap


def _legend(ax: Any, **options: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**{"fontsize": 8, "frameon": False, "handlelength": 2.6, **options})


def _numbers(frame: pd.DataFrame, *columns: str) -> list[Any]:
    """Columns as floats, missing as NaN (which matplotlib leaves out)."""
    return [pd.to_numeric(frame[c]).astype("Float64").to_numpy(dtype=float, na_value=np.nan) for c in columns]


def _scale(ax: Any, *, log: str = "", percent: str = "", x: Any = (0.5,), ticks: Any = ()) -> None:
    """*log* and *percent* name the axes ("x", "y", "xy") drawn so; *ticks* name x = 0, 1, …, or *x* has whole numbers only."""
    if ticks:
        ax.set_xticks(range(len(ticks)), [label(t) for t in ticks])
    elif all(float(v).is_integer() for v in x):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for which in dict.fromkeys(log + percent):
        axis, factor, unit = getattr(ax, f"{which}axis"), *((100, " %") if which in percent else (1, ""))
        if which in log:
            getattr(ax, f"set_{which}scale")("log")
            low, high = axis.get_view_interval()
            subs = (1, 2, 3, 4, 5, 6, 8) if high < 8 * low else (1, 2, 5) if high < 100 * low else (1,)
            axis.set_major_locator(LogLocator(10, subs=subs))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda v, _, f=factor, u=unit: f"{f * v:.6g}{u}"))


def _error_bars(ax: Any, x: Any, y: Any, low: Any, high: Any, *, across: bool = False, i: int = 0, **style: Any) -> None:
    """Points with intervals in the style of series *i*; *across* draws the intervals along x."""
    arms = np.nan_to_num(np.abs(np.vstack([low, high]) - (x if across else y)))
    look = {"fmt": MARKERS[i % 7], "color": OKABE_ITO[i % 7], "capsize": 2.5, "lw": 1.3, "ms": 5.5}
    ax.errorbar(x, y, **{"xerr" if across else "yerr": arms}, **{**look, **style})


def _places(names: Any) -> dict[Any, int]:
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


@_drawing("no estimates", height=1.5, row="label")
def forest(
    ax: Any, table: pd.DataFrame, *, reference: float | None = None, band: tuple[float, float] | None = None, log: bool = False,
    percent: bool = False, hollow: str = "",
) -> None:  # fmt: skip
    """Estimates as marks with intervals, one row per label, groups above each other.

    Columns: label, value, low, high; optional group (colour and marker), other (a second, hollow mark named *hollow*),
    note (written where there is no value). *band* shades a range, *reference* draws a dashed line.
    """
    table = table if "group" in table else table.assign(group="")
    groups, places = _places(table["group"]), _places(table["label"])
    which = table["group"].map(groups).to_numpy(float)
    y = len(places) - 1 - table["label"].map(places).to_numpy(float) - (which - (len(groups) - 1) / 2) * 0.7 / len(groups)
    value, low, high = _numbers(table, "value", "low", "high")
    if band:
        ax.axvspan(*band, color=PALE, alpha=0.7, lw=0, zorder=0)
    if reference is not None:
        ax.axvline(reference, color=GREY, lw=1, ls="--", zorder=1)
    for name, i in groups.items():
        k = (which == i) & np.isfinite(value)
        _error_bars(ax, value[k], y[k], low[k], high[k], across=True, i=i, label=label(name) or None)
    if "other" in table:
        ax.plot(_numbers(table, "other")[0], y, "o", mfc="none", mec=INK, ms=9, label=hollow or None)
    for at, row in zip(y[~np.isfinite(value)], table[~np.isfinite(value)].to_dict("records"), strict=True):
        text = textwrap.shorten(label(row.get("note") or "no number"), 70)
        ax.text(0.01, at, text, transform=ax.get_yaxis_transform(), va="center", fontsize=7, color=GREY, style="italic")
    ax.set_yticks(range(len(places))[::-1], [label(t) for t in places])
    ax.set_ylim(-0.6, len(places) - 0.4)
    _scale(ax, log="x" if log and np.nanmin(value, initial=1) > 0 else "", percent="x" if percent else "")
    _legend(ax, **BESIDE)


@_drawing("the table has no cells", height=1.9, row="index")
def heat(
    ax: Any, table: pd.DataFrame, *, colour: str, text: pd.DataFrame | None = None, outline: pd.DataFrame | None = None,
    limits: tuple[float, float] = (0, 1),
) -> None:  # fmt: skip
    """A matrix as coloured cells with their numbers (*text*, same shape); missing cells are hatched; *outline* frames cells."""
    values = np.column_stack(_numbers(table, *table.columns))
    image = ax.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=limits[0], vmax=limits[1], aspect="auto")
    for (i, j), v in np.ndenumerate(values):
        if np.isnan(v):
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fc="#F4F4F4", hatch="///", ec="#BBBBBB", lw=0))
        if values.size <= 400:
            shown = ("" if np.isnan(v) else f"{v:.2f}") if text is None else str(text.iloc[i, j])
            light = np.isnan(v) or v - limits[0] > 0.55 * (limits[1] - limits[0])
            ax.text(j, i, shown, ha="center", va="center", fontsize=7.5, color=INK if light else "white")
        if outline is not None and bool(outline.iloc[i, j]):
            ax.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, ec="#D55E00", lw=2.2))
    columns = [label(c) for c in table.columns]
    slant = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len("".join(columns)) > 60 else {}
    if len(columns) <= 30:
        ax.set_xticks(range(len(columns)), columns, **slant)
    ax.set_yticks(range(len(table)), [label(r) for r in table.index])
    ax.figure.colorbar(image, ax=ax, shrink=0.9).set_label(colour, fontsize=9)


@_drawing("no point has both coordinates", "x", "y")
def curves(
    ax: Any, table: pd.DataFrame, *, log: str = "", percent: str = "", step: bool = False, marks: Any = (), ticks: Any = (),
    limit: float | None = None,
) -> None:  # fmt: skip
    """Lines, one per series, each with its own colour and dash. Columns: x, y, series; optional low and high (a band).

    *log* and *percent* name the axes ("x", "y", "xy") drawn so; *marks* are (x, y, text) points, *limit* is a horizontal
    line, *ticks* names x = 0, 1, …
    """
    for name, i in _places(table["series"]).items():
        part = table[table["series"] == name]
        x, y = _numbers(part, "x", "y")
        style = {"color": OKABE_ITO[i % 7], "ls": DASHES[i % 7], "marker": MARKERS[i % 7] if len(part) < 12 else ""}
        ax.plot(x, y, lw=1.7, ms=4, drawstyle="steps-post" if step else "default", label=label(name), **style)
        if {"low", "high"} <= set(part):
            low, high = _numbers(part, "low", "high")
            ax.fill_between(x, low, high, color=OKABE_ITO[i % 7], alpha=0.15, lw=0, step="post" if step else None)
    for x0, y0, text in marks:
        ax.plot([x0], [y0], "P", color=INK, ms=8, zorder=5)
        ax.annotate(label(text), (x0, y0), (6, 6), textcoords="offset points", fontsize=8)
    if limit is not None:
        ax.axhline(limit, color=INK, lw=1, ls=":", label=f"limit {limit:.3g}")
    _scale(ax, log=log, percent=percent, x=table["x"], ticks=ticks)
    _legend(ax)


@_drawing("no dialogue has a known value", "y")
def spaghetti(ax: Any, table: pd.DataFrame, means: dict[str, pd.DataFrame], *, ticks: Any = (), steps: bool = False) -> None:
    """Thin lines per dialogue (columns id, x, y) under named means with intervals (columns x, value, low, high).

    *ticks* name the x positions 0, 1, …; *steps* marks y as the four levels.
    """
    for _, part in table.groupby("id", sort=True):
        ax.plot(*_numbers(part.sort_values("x"), "x", "y"), color="#56B4E9", lw=0.7, alpha=0.45, marker=".", ms=2, zorder=1)
    for i, (name, frame) in enumerate(means.items(), start=1):
        x, value, low, high = _numbers(frame.dropna(subset=["value"]), "x", "value", "low", "high")
        colour = OKABE_ITO[i] if i == 1 else GREY
        ax.plot(x, value, color=colour, lw=2.2, marker=MARKERS[i], ls=DASHES[i - 1], ms=5, label=label(name), zorder=3)
        ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0, zorder=2)
    _scale(ax, x=table["x"], ticks=ticks)
    if steps:
        ax.set_yticks(range(4), LEVELS)
        ax.set_ylim(-0.2, 3.2)
    _legend(ax)


@_drawing("no point has both coordinates", "x", "y")
def points(ax: Any, table: pd.DataFrame, *, log: bool = False) -> None:
    """Labelled rates with intervals both ways; *log*: x on a log scale if none is 0. Columns: label, x, x_low, x_high, y, …"""
    x, x_low, x_high, y, y_low, y_high = _numbers(table, "x", "x_low", "x_high", "y", "y_low", "y_high")
    for i, name in enumerate(table["label"]):
        k = slice(i, i + 1)
        _error_bars(ax, x[k], y[k], x_low[k], x_high[k], across=True, i=i, ms=7)
        _error_bars(ax, x[k], y[k], y_low[k], y_high[k], i=i, ms=7, label=label(name))
    _scale(ax, log="x" if log and (x > 0).all() else "", percent="xy")
    _legend(ax, **BESIDE)


@_drawing("no dialogue has both scores", "x", "y", height=4.8)
def error_scatter(ax: Any, table: pd.DataFrame) -> None:
    """Two judges' score errors against each other, by gold level, with counts per quadrant. Columns: x, y, gold_rank."""
    for rank, name in enumerate(LEVELS):
        x, y = _numbers(table[table["gold_rank"] == rank], "x", "y")
        ax.scatter(x, y, s=22, alpha=0.6, color=OKABE_ITO[rank], marker=MARKERS[rank], lw=0, label=f"{name} (n = {len(x)})")
    x, y = _numbers(table, "x", "y")
    for line in (ax.axhline, ax.axvline):
        line(0, color=GREY, lw=0.8)
    for right, top in ((0, 0), (0, 1), (1, 0), (1, 1)):
        text = f"n = {int((((x > 0) == right) & ((y > 0) == top)).sum())}"
        place = {"transform": ax.transAxes, "ha": ("left", "right")[right], "va": ("bottom", "top")[top], "fontsize": 8.5}
        ax.text(0.02 + 0.96 * right, 0.02 + 0.96 * top, text, **place)
    _legend(ax, **BESIDE, title="gold level", title_fontsize=8)


def headline(theory: pd.DataFrame, pairs: pd.DataFrame, *, title: str, caption: str = "", ax: Any = None, **words: str) -> Any:
    """What double confirmation buys, as three panels (*ax*: three axes) over the latent error correlation; returns the three.

    *theory* columns: rho, p (false-alarm rate of one judge), joint, t4, gain, sens (sensitivity of one judge), lost.
    *pairs* columns: label, rho, joint, low, high; a pair without rho is drawn at the left edge.
    """
    axes = canvas(3, width=10.5, height=4.8)[1] if ax is None else ax
    for i, (p, part) in enumerate(theory.groupby("p", sort=True)):
        alone, (rho, joint, t4, gain) = float(str(p)), _numbers(part, "rho", "joint", "t4", "gain")
        style: dict[str, Any] = {"color": OKABE_ITO[i], "ls": DASHES[i], "lw": 1.8, "label": f"one judge {100 * alone:g} %"}
        axes[0].plot(rho, joint, **style)
        axes[0].fill_between(rho, joint, np.maximum(joint, t4), color=OKABE_ITO[i], alpha=0.15, lw=0)
        axes[0].axhline(alone, color=OKABE_ITO[i], lw=0.7, ls=":")
        axes[0].axhline(alone**2, color=OKABE_ITO[i], lw=0.7, ls=(0, (6, 4)))
        axes[2].plot(rho, gain, **style)
    for i, (s, part) in enumerate(theory.groupby("sens", sort=True), start=3):
        x, y = _numbers(part.drop_duplicates("rho"), "rho", "lost")
        axes[1].plot(x, y, color=OKABE_ITO[i], ls=DASHES[i - 3], lw=1.8, label=f"one judge {100 * float(str(s)):g} %")
    for i, row in enumerate(pairs.dropna(subset=["high"]).to_dict("records")):
        at = 0.01 if pd.isna(row["rho"]) else max(0.01, float(row["rho"]))
        bound = pd.isna(row["joint"]) or row["joint"] == 0
        axes[0].plot([at, at], [max(float(row["low"]), 5e-5), float(row["high"])], color=INK, lw=1.2, zorder=4)
        look = {"marker": "v" if bound else MARKERS[i % 7], "mfc": OKABE_ITO[i % 7], "mec": INK, "ms": 8, "ls": ""}
        axes[0].plot([at], [row["high" if bound else "joint"]], zorder=5, label=label(row["label"]), **look)
    for panel, log, percent in zip(axes, ("y", "", "y"), ("y", "y", ""), strict=True):
        _scale(panel, log=log, percent=percent)
    _caption(axes[0], caption)
    titles = (title, words.get("lost_title", ""), words.get("gain_title", ""))
    for panel, heading, key in zip(axes, titles, ("ylabel", "lost_label", "gain_label"), strict=True):
        panel.set_xlim(-0.02, 1.02)
        _legend(panel, fontsize=7)
        _finish(panel, heading, xlabel=words.get("xlabel", ""), ylabel=words.get(key, ""))
    return axes


@_drawing("no assessment has both a confidence and a gold level", "x", height=4.8)
def reliability(ax: Any, table: pd.DataFrame, mass: pd.DataFrame, *, gate: float) -> float:
    """Stated confidence against how often it is right, with what a calibrated judge would show, under a histogram of confidence.

    Columns: x, value, low, high, null_low, null_high; *mass*: confidence, n.
    """
    x, value, low, high, null_low, null_high = _numbers(table, "x", "value", "low", "high", "null_low", "null_high")
    ax.fill_between(x, null_low, null_high, color=PALE, lw=0, label="calibrated judge, 95 % of draws")
    ax.axline((0, 0), slope=1, color=GREY, lw=0.9, ls="--")
    _error_bars(ax, x, value, low, high, label="observed")
    ax.axvline(gate, color=OKABE_ITO[1], lw=1, ls="-.", label=f"gate {gate:g}")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    over = ax.inset_axes((0, 1.03, 1, 0.2), sharex=ax)
    at, n = _numbers(mass, "confidence", "n")
    over.bar(at, n, width=0.012, color=np.where(np.isclose(at, gate), OKABE_ITO[1], OKABE_ITO[0]))
    over.tick_params(labelbottom=False)
    _scale(ax, percent="y")
    _legend(ax, loc="upper left")
    _finish(over, "", ylabel="n")
    return 1.24


@_drawing("no non-critical dialogue has both verdicts", "fpr", height=5.4)
def gate_map(ax: Any, table: pd.DataFrame, cloud: pd.DataFrame, *, here: tuple[float, float]) -> float:
    """Joint false-alarm rate (colour) and joint sensitivity (lines) over both gates. Columns: t1, t2, fpr, sens.

    *cloud* (t1, t2, n) holds the cost-optimal gates of the resamples; *here* marks the gates in use.
    """
    wide = {c: table.pivot(index="t2", columns="t1", values=c) for c in ("fpr", "sens")}
    t1, t2 = np.asarray(wide["fpr"].columns, float), np.asarray(wide["fpr"].index, float)
    fpr, sens = (np.column_stack(_numbers(wide[c], *wide[c].columns)) for c in ("fpr", "sens"))
    image = ax.pcolormesh(t1, t2, fpr, cmap="cividis", shading="nearest", vmin=0)
    _scale(ax.figure.colorbar(image, ax=ax, label="joint false-alarm rate").ax, percent="y")
    if np.isfinite(sens).any() and np.nanmin(sens) < np.nanmax(sens):
        lines = ax.contour(t1, t2, sens, levels=5, colors="white", linewidths=1)
        ax.clabel(lines, fmt=lambda v: f"sens. {100 * v:.0f} %", fontsize=7)
    x, y, n = _numbers(cloud, "t1", "t2", "n")
    if len(x):
        ax.scatter(x, y, s=120 * n / n.max(), color="#E69F00", alpha=0.65, ec=INK, lw=0.4, label="best gates of the resamples")
    ax.plot(*[[h] for h in here], "P", color="#D55E00", mec="white", ms=12, label=f"gates in use ({here[0]:g}, {here[1]:g})")
    _legend(ax, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return 1.08


@_drawing("no dialogue to follow through the conditions", "value")
def waterfall(ax: Any, table: pd.DataFrame) -> None:
    """How many of 1,000 dialogues are left after each condition. Columns: label, value, independent (product rule)."""
    x, (value, product) = np.arange(len(table)), _numbers(table, "value", "independent")
    before = np.concatenate([value[:1], value[:-1]])
    ax.bar(x, before - value, bottom=value, color="white", width=0.65, hatch="///", ec="#AAAAAA", lw=0.6, label="dropped here")
    ax.bar(x, value, color=OKABE_ITO[0], width=0.65, label="left")
    ax.plot(x, product, "_", color=OKABE_ITO[1], ms=30, mew=2.5, label="left if L2 erred independently of L1")
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(0, max(1.0, value[0]) * 20)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    for i, v in enumerate(value):
        ax.text(i, v, f"{v:,.0f}" if v >= 100 else f"{v:.2g}", ha="center", va="bottom", fontsize=8)
    ax.set_xticks(x, [_wrap(t, 13) for t in table["label"]])
    _legend(ax, loc="upper right", ncols=3, fontsize=7.5)
