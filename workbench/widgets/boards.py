"""Panels over stored verdicts: drift along a dialogue, judges against each other, thresholds."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ipywidgets as w

from workbench.confirm import Arm, DoubleConfirmation
from workbench.corpus import Corpus
from workbench.display import card, compare_html, dialogue_html, table_html
from workbench.errors import SetupError
from workbench.judges.base import Judge
from workbench.schema import Assessment, Dialogue, RiskLevel
from workbench.text import inert_html
from workbench.widgets.base import Panel, Report, Work, dropdown, file_name, inert_options, picture

if TYPE_CHECKING:
    import pandas as pd

    from workbench.runner import Run

MEASURES: Final = ("quadratic kappa", "agreement", "ordinal alpha", "AC1", "AC2", "critical kappa")
WHATS: Final = {"level": "rank", "confidence": "confidence", "score": "score"}


def marked(frame: pd.DataFrame) -> str:
    """What a title must say of these rows."""
    return " (simulated)" if (frame.judge_kind == "simulated").any() else ""


def drawn(ax: Any, alt: str) -> str:
    """A study's or a plot's axis as an image."""
    from workbench.plots import png

    return picture(png(ax.figure, dpi=110), alt)


class DriftViewer(Panel):
    """Level and confidence per turn, for one dialogue and for the corpus: repeats as a band, gold as a step.

    *run* must have judged every user turn (``turns="all"``).
    """

    def __init__(self, run: Run) -> None:
        self.run, rows = run, run.frame
        self.rows = rows[(rows.arm == "blind") & (rows.groupby("dialogue_id").turn.transform("nunique") > 1)]
        if self.rows.empty:
            raise SetupError("this run judged last turns only: make one with turns='all'")
        self.pick = dropdown("dialogue", sorted(self.rows.dialogue_id.unique()), width="380px")
        self.tier = dropdown("judge", list(self.rows.tier.unique()), width="160px")
        self.what = dropdown("show", list(WHATS), width="260px")
        self.text, self.one, self.all = w.HTML(), w.HTML(), w.HTML()
        for control in (self.pick, self.tier, self.what):
            control.observe(lambda _: self.draw(), "value")
        self.build([w.HBox([self.pick, self.tier, self.what]), self.text, self.one, self.all])
        self.draw()

    def summary(self) -> str:
        return f"{self.rows.dialogue_id.nunique()} dialogues with more than one user turn"

    def still(self) -> str:
        return f"{self.one.value}{self.all.value}"

    def draw(self) -> None:
        """Draw both figures for the choice."""
        from workbench.plots import curves, spaghetti

        rows, what = self.rows[self.rows.tier == self.tier.value], WHATS[self.what.value]
        mine, name = rows[rows.dialogue_id == self.pick.value], f"{self.tier.value}: {self.what.value}{marked(rows)}"
        unknown = f"{int(mine[what].isna().sum())} of {len(mine)} assessments unknown. User turns count from 0."
        table = per_turn(mine, what)
        one = curves(table, title=f"{self.pick.value} ({name})", xlabel="user turn", ylabel=name, step=what == "rank",
                     caption=f"Band: lowest and highest of {mine.repeat.nunique()} repeats. {unknown}")  # fmt: skip
        one.set_xticks(sorted(set(table.x)))
        one.set_ylim((-0.2, 3.2) if what == "rank" else (-0.02, 1.02))
        if what == "rank":
            one.set_yticks(range(4), list(map(str, RiskLevel)))
        lines = rows.rename(columns={"dialogue_id": "id", "turn": "x", what: "y"}).groupby(["id", "x"], as_index=False).y.mean()
        every = spaghetti(lines, {"mean, 95 % interval by family": turn_means(rows, what)}, title=f"All dialogues ({name})", xlabel="user turn", ylabel=name, steps=what == "rank",
                          caption=f"{lines.id.nunique()} dialogues; mean over those that have the turn.")  # fmt: skip
        told = "; ".join(f"{who}: {', '.join(f'{y:.2g}' for y in part.y)}" for who, part in table.groupby("series"))
        self.one.value = drawn(one, f"{name} per user turn of {self.pick.value}. {told}")
        self.all.value = drawn(every, f"{name} per user turn over all dialogues")
        self.text.value = dialogue_html(self.run.corpus.by_id(self.pick.value))


def per_turn(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """x (turn), y, low, high over the repeats, and gold's own line where *what* is the level."""
    import pandas as pd

    by = rows.groupby(["judge", "turn"])[what]
    said = by.agg(y="mean", low="min", high="max").reset_index().rename(columns={"judge": "series", "turn": "x"})
    gold = rows.drop_duplicates("turn").assign(series="gold", x=lambda d: d.turn, y=lambda d: d.gold_rank, low=None, high=None)
    return pd.concat([said, gold[list(said)]]).sort_values(["series", "x"]) if what == "rank" else said


def turn_means(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Mean per turn with its interval by family: x, value, low, high."""
    import pandas as pd

    from workbench.stats.resample import mean

    found = [(turn, mean(part[what], name="mean", cluster=part.family)) for turn, part in rows.groupby("turn")]
    return pd.DataFrame([{"x": x, "value": e.value, "low": e.low, "high": e.high} for x, e in found])


class JudgeBoard(Panel):
    """Choose judges and repeats, run them on the same transcripts, see who agrees with whom and open the disagreements."""

    def __init__(self, corpus: Sequence[Dialogue], *, judges: Sequence[Judge], out: str | Path | None = None) -> None:
        self.corpus, self.judges = Corpus(corpus), {j.name: j for j in judges}
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-board-")
        self.out = Path(out or self._folder.name)
        self.chosen = w.SelectMultiple(
            options=inert_options(self.judges), value=list(self.judges), description="judges", rows=min(6, len(judges) + 1)
        )
        self.repeats, self.measure = w.BoundedIntText(value=1, min=1, max=10, description="repeats"), dropdown("matrix", MEASURES)
        self.case, self.work, self.board, self.opened = dropdown("disagreements", [""], width="460px"), Work(), w.HTML(), w.HTML()
        self.said: dict[str, dict[str, Assessment]] = {}
        self.result: Any = None
        self.measure.observe(lambda _: self.draw(), "value")
        self.case.observe(lambda _: self.open_case(), "value")
        choice = w.HBox([self.chosen, self.repeats, self.button("▶ Run", self.run, button_style="primary")])
        self.build([choice, self.work, self.measure, self.board, self.case, self.opened])

    def summary(self) -> str:
        return f"{len(self.corpus)} dialogues, judges={list(self.judges)}"

    def still(self) -> str:
        return f"{self.board.value}{self.opened.value}"

    def run(self) -> None:
        """Run the chosen judges, each in L2's place; stopping leaves a run that the next press goes on with."""
        from workbench.runner import run
        from workbench.study import compare
        from workbench.study.base import Material

        chosen, repeats = [self.judges[name] for name in self.chosen.value], self.repeats.value
        if len(chosen) < 2:
            raise SetupError("choose at least two judges")
        arms = [Arm(name="blind" if i == 0 else f"judge {j.name}", judge=j) for i, j in enumerate(chosen)]
        folder = self.out / file_name("-".join([*(j.name for j in chosen), str(repeats)]))

        async def work(report: Report) -> Any:
            pipeline = DoubleConfirmation(chosen[0], chosen[0])
            done = await run(pipeline, self.corpus, arms=arms, repeats=repeats, out=folder, resume=True, progress=report)
            self.said = {}
            for item in done.items():
                self.said.setdefault(item.dialogue.id, {})[item.outcome.l2.judge] = item.outcome.l2
            same = Material(done.frame.assign(arm="blind"), done.outcomes, done.pipeline)
            return await asyncio.to_thread(compare, same, tier="L2")

        def then(result: Any) -> str:
            self.result, ids = result, list(result.frames["disagreements"].dialogue_id)
            self.case.options = inert_options(ids)
            self.case.value = next(iter(ids), None)
            self.draw()
            return f"done: the judges differ on {len(ids)} of {len(self.corpus)} dialogues"

        self.work.start(work, then)

    def draw(self) -> None:
        """Show the judges' table and the chosen matrix."""
        if self.result is None:
            return
        from workbench.plots import heat

        names = list(self.result.frames["judges"].judge) + ["gold"]
        board = self.result.frames["board"]
        part = board[board.measure == self.measure.value]
        pairs = {
            tuple(who.split(" ~ ")): (value, status)
            for who, value, status in zip(part.raters, part.value, part.status, strict=True)
        }
        import pandas as pd

        matrix = pd.DataFrame(
            [[pairs.get((a, b), pairs.get((b, a), (None, "")))[0] for b in names] for a in names], names, names, dtype=float
        )
        title = f"{self.measure.value}{' (simulated judges)' if self.result.simulated else ''}"
        picture_of = drawn(
            heat(matrix, title=title, xlabel="", ylabel="", colour=self.measure.value, limits=(-0.2, 1)), f"matrix of {title}"
        )
        lines = "".join(f"<li>{inert_html(line)}</li>" for line in self.result.summary())
        self.board.value = card(f"<ul>{lines}</ul>{picture_of}")

    def open_case(self) -> None:
        """Open the chosen disagreement: the dialogue and what every judge said."""
        said = self.said.get(self.case.value or "", {})
        self.opened.value = dialogue_html(self.corpus.by_id(self.case.value)) + card(compare_html(said)) if said else ""


class ThresholdExplorer(Panel):
    """Move both gates and levels over stored verdicts: missed criticals and false confirmations beside each other, no call made."""

    def __init__(self, run: Run) -> None:
        from workbench.scoring import scorable

        self.rows, self.mark = scorable(run.outcomes), marked(run.frame)
        if self.rows.empty:
            raise SetupError("this run has no scorable outcome: it needs gold and rows that no judge learnt from")
        slider = {"min": 0.0, "max": 1.0, "step": 0.01, "value": 0.85, "readout_format": ".2f", "continuous_update": False}
        self.gates = [w.FloatSlider(description=f"gate {side}", **slider) for side in ("L1", "L2")]
        self.levels = [dropdown(f"{side} at least", ["critical", "high"], width="190px") for side in ("L1", "L2")]
        self.figure, self.numbers = w.HTML(), w.HTML()
        for control in (*self.gates, *self.levels):
            control.observe(lambda _: self.draw(), "value")
        self.build([w.HBox([g, level]) for g, level in zip(self.gates, self.levels, strict=True)] + [self.numbers, self.figure])
        self.draw()

    def summary(self) -> str:
        return f"{len(self.rows)} outcomes{self.mark}, {int((self.rows.gold_level == 'critical').sum())} of them critical by gold"

    def still(self) -> str:
        return f"{self.numbers.value}{self.figure.value}"

    def draw(self) -> None:
        """Compute the operating point and draw it on its curve."""
        import pandas as pd

        from workbench.plots import curves

        levels = (self.levels[0].value, self.levels[1].value)
        missed, false = operating(self.rows, (self.gates[0].value, self.gates[1].value), levels)
        path = [operating(self.rows, (g / 50, g / 50), levels) for g in range(51)]
        table = pd.DataFrame([{"x": f.value, "y": m.value, "series": "both gates moved together"} for m, f in path])
        here = [(false.value, missed.value, "here")] if None not in (false.value, missed.value) else []
        ax = curves(table, title=f"Operating curve{self.mark}", xlabel="false confirmations, of dialogues that are not critical",
                    ylabel="missed criticals", percent="xy", marks=here, caption=f"Levels: L1 {levels[0]}, L2 {levels[1]}. {self.summary()}.")  # fmt: skip
        ax.set_xlim(-0.02, max([0.1, *table.x.dropna() * 1.1]))
        ax.set_ylim(-0.02, 1.02)
        rows = [[name, f"{e.value * e.n:.0f} of {e.n}" if e.value is not None else e.reason, interval(e)]
                for name, e in (("missed criticals", missed), ("false confirmations", false))]  # fmt: skip
        self.numbers.value = card(table_html(["", "count", "rate [95 %]"], rows))
        self.figure.value = drawn(ax, f"operating curve; {'; '.join(' '.join(row) for row in rows)}")


def interval(e: Any) -> str:
    """A rate with its interval, in per cent."""
    return "undefined" if e.value is None else f"{100 * e.value:.1f} % [{100 * e.low:.1f}, {100 * e.high:.1f}]"


def operating(rows: pd.DataFrame, gates: tuple[float, float], levels: tuple[str, str]) -> tuple[Any, Any]:
    """Missed criticals (of gold critical) and false confirmations (of the rest) at these gates and levels, by family.

    An unknown side never confirms: its criticals count as missed.
    """
    from workbench.stats.proportions import proportion

    passed = rows.cond_no_blocking_defect & rows.cond_same_text
    for side, gate, level in zip(("l1", "l2"), gates, levels, strict=True):
        enough = rows[f"{side}_raw_level"].isin(["critical"] if level == "critical" else ["high", "critical"])
        passed &= enough & (rows[f"{side}_confidence"].fillna(-1) >= gate) & rows[f"cond_{side}_no_flags"]
    gold = rows.gold_level == "critical"
    return (
        proportion(~passed[gold].to_numpy(bool), name="missed criticals", cluster=rows.family[gold]),
        proportion(passed[~gold].to_numpy(bool), name="false confirmations", cluster=rows.family[~gold]),
    )
