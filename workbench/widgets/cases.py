"""Panels about one case at a time: the side-by-side explorer and the anchoring lab."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ipywidgets as w

from workbench.confirm import Arm, DoubleConfirmation, l1_view, l2_view
from workbench.corpus import family_of
from workbench.display import card, dialogue_html, folded, level_html, outcome_html, table_html
from workbench.errors import SetupError
from workbench.judges.base import Judge
from workbench.judging import Asker
from workbench.prompts import ANCHOR_KINDS, render
from workbench.schema import Assessment, Dialogue, Outcome, RiskLevel, Turn
from workbench.stats.proportions import proportion
from workbench.store import Store
from workbench.text import inert_html
from workbench.widgets.base import Panel, Report, Work, dropdown, inert_options

ANY: Final = "any"
TOGETHER: Final = 8  # dialogues in flight when all matching ones are run
TOLD: Final = {f"told_{level}": level for level in RiskLevel}
KINDS: Final = tuple(dict.fromkeys(["blind", "neutral", *TOLD, *ANCHOR_KINDS]))
RESULTS: Final[dict[str, Callable[[Outcome], bool]]] = {
    "confirmed": lambda o: o.confirmed,
    "critical, not confirmed": lambda o: o.level is RiskLevel.CRITICAL and not o.confirmed,
    "judges disagree": lambda o: o.l1.known and o.l2.known and o.l1.level != o.l2.level,
    "unknown": lambda o: o.incomplete,
    "for review": lambda o: bool(o.review_reasons),
}


def arm_of(kind: str, paraphrase: int = 0) -> Arm:
    """The arm of an anchor kind; ``blind`` is none."""
    anchor = None if kind == "blind" else kind if kind in ANCHOR_KINDS else "told_l1"  # the wording that takes any level
    return Arm(name=kind, anchor=anchor, told=TOLD.get(kind), paraphrase=paraphrase)


class CasePanel(Panel):
    """A dialogue picked by filters, two judges, and a ledger of its own, so that nothing is asked twice."""

    def __init__(
        self, corpus: Sequence[Dialogue], judges: Sequence[Judge], outcomes: Iterable[Outcome], store: Store | None
    ) -> None:
        if not corpus or len(judges) < 2:
            raise SetupError("this panel needs dialogues and at least two judges: give corpus and judges=[...]")
        self.corpus, self.judges = {d.id: d for d in corpus}, {j.name: j for j in judges}
        self.known: dict[str, Outcome] = {o.dialogue_id: o for o in outcomes}
        self._folder = None if store else tempfile.TemporaryDirectory(prefix="workbench-panel-")
        self.store = store or Store(Path(self._folder.name) / "ledger.db" if self._folder else "")
        self.run_id = self.store.begin_run({"panel": type(self).__name__})
        names = list(self.judges)
        self.l1, self.l2 = dropdown("L1", names, names[0], width="200px"), dropdown("L2", names, names[1], width="200px")
        self.lang = dropdown("language", [ANY, *sorted({d.lang for d in corpus})], width="150px")
        self.level = dropdown("gold level", [ANY, *map(str, RiskLevel)], width="180px")
        self.kind = dropdown("phenomenon", [ANY, *sorted({d.phenomenon for d in corpus})], width="260px")
        self.result = dropdown("outcome", [ANY, *RESULTS], width="240px")
        self.find = w.Text(placeholder="find in text or id", continuous_update=False, layout=w.Layout(width="200px"))
        self.pick, self.work = dropdown("dialogue", [""], width="420px"), Work()
        self.count, self.text, self.out = w.HTML(), w.HTML(), w.HTML()
        self.filters = w.HBox([self.lang, self.level, self.kind, self.result, self.find, self.count])
        for control in self.filters.children[:-1]:
            control.observe(lambda _: self.filter(), "value")
        self.pick.observe(lambda _: self.show(), "value")
        self.filter()

    def summary(self) -> str:
        return f"{len(self.corpus)} dialogues, judges={list(self.judges)}"

    def still(self) -> str:
        return f"{self.text.value}{self.out.value}"

    @property
    def dialogue(self) -> Dialogue:
        """The dialogue picked; raises SetupError when no dialogue passes the filters."""
        if self.pick.value not in self.corpus:
            raise SetupError("no dialogue matches: loosen a filter")
        return self.corpus[self.pick.value]

    @property
    def matching(self) -> list[Dialogue]:
        """The dialogues that pass all filters."""
        return [d for d in self.corpus.values() if self._passes(d)]

    def _passes(self, d: Dialogue) -> bool:
        outcome, result = self.known.get(d.id), self.result.value
        facts = {self.lang: d.lang, self.level: str(d.gold.risk_level) if d.gold else "", self.kind: d.phenomenon}
        if any(control.value not in (ANY, fact) for control, fact in facts.items()):
            return False
        if result != ANY and (outcome is None or not RESULTS[result](outcome)):
            return False
        return self.find.value.casefold() in f"{d.id} {' '.join(t.content for t in d.turns)}".casefold()

    def filter(self) -> None:
        """Offer what passes the filters, and say how many of how many."""
        found = [d.id for d in self.matching]
        self.count.value = f"{len(found)} of {len(self.corpus)}"
        stay = self.pick.value if self.pick.value in found else next(iter(found), None)
        self.pick.options = inert_options(found)
        self.pick.value = stay
        self.show()

    def show(self) -> None:
        """Show the picked dialogue."""
        self.text.value = dialogue_html(self.dialogue) if self.pick.value else card("no dialogue matches: loosen a filter")

    def pipeline(self) -> DoubleConfirmation:
        """The two chosen judges over the panel's ledger."""
        asker = Asker(store=self.store, run_id=self.run_id)
        return DoubleConfirmation(self.judges[self.l1.value], self.judges[self.l2.value], asker=asker)

    def each(self, todo: Sequence[Dialogue], one: Callable[[Dialogue], Awaitable[Any]], then: Callable[[list[Any]], str]) -> None:
        """Do *one* for every dialogue in the background; what was done before a stop stays in the ledger."""

        async def work(report: Report) -> list[Any]:
            done: list[Any] = []
            few = asyncio.Semaphore(TOGETHER)

            async def step(d: Dialogue) -> Any:
                async with few:
                    result = await one(d)
                done.append(d)
                report(len(done), len(todo))
                return result

            report(0, len(todo))
            return await asyncio.gather(*map(step, todo))

        self.work.start(work, then)


class SideBySide(CasePanel):
    """Pick a dialogue, choose judges and an arm, see both verdicts beside each other; edit the text and run again."""

    def __init__(
        self, corpus: Sequence[Dialogue], *, judges: Sequence[Judge], outcomes: Iterable[Outcome] = (), store: Store | None = None
    ) -> None:
        self.arm = dropdown("arm", KINDS, width="220px")
        self.edit, self.proof, self.kept = w.Textarea(layout=w.Layout(width="98%", height="90px")), w.HTML(), ""
        self.outcome: Outcome | None = None
        self.asked: tuple[DoubleConfirmation, Dialogue, Arm] | None = None
        super().__init__(corpus, judges, outcomes, store)
        actions = {
            "▶ Run": lambda: self.run([self.edited()]), "▶▶ Run all matching": lambda: self.run(self.matching), "↺ Original text": self.show,
            "⊞ Keep for comparison": self.pin, "Prompts and raw answers": self.prove,
        }  # fmt: skip
        editor = w.Accordion([self.edit], titles=("Edit the text under analysis (content: distress)",), selected_index=None)
        chosen = w.HBox([self.pick, self.l1, self.l2, self.arm])
        self.build([self.filters, chosen, self.text, editor, self.row_of(actions), self.work, self.out, self.proof])

    def show(self) -> None:
        super().show()
        self.edit.value, self.proof.value = self.dialogue.text if self.pick.value else "", ""
        self.put(self.known.get(self.pick.value))

    def put(self, outcome: Outcome | None) -> None:
        """Show an outcome, its evidence marked in the text."""
        self.outcome = outcome
        shown = outcome_html(outcome, text=self.edit.value) if outcome else card("not run yet")
        self.out.value = f'<div class="wb-pair"><div>{shown}</div><div>{self.kept}</div></div>' if self.kept else shown

    def edited(self) -> Dialogue:
        """The picked dialogue with the text as it stands in the editor; an edited one has no gold."""
        d = self.dialogue
        if self.edit.value == d.text:
            return d
        if not self.edit.value.strip():
            raise SetupError("there is no text to judge: write some, or press 'Original text'")
        turns = (*d.turns[:-1], Turn(role="user", content=self.edit.value))
        return d.model_copy(update={"id": f"{d.id} (edited)", "turns": turns, "gold": None})

    def run(self, todo: Sequence[Dialogue]) -> None:
        """Ask both judges, in the background."""
        pipeline, arm = self.pipeline(), arm_of(self.arm.value)

        async def one(d: Dialogue) -> Outcome:
            outcome = await pipeline.assess(d, arm=arm)
            if d.id in self.corpus and arm.name == "blind":
                self.known[d.id] = outcome
            return outcome

        def then(done: list[Outcome]) -> str:
            self.asked = (pipeline, todo[-1], arm)
            self.put(done[-1]) if len(todo) == 1 else self.filter()
            return f"done: {len(done)} assessed, {sum(o.confirmed for o in done)} confirmed, {sum(o.incomplete for o in done)} with an unknown"

        self.each(todo, one, then)

    def pin(self) -> None:
        """Keep the outcome on the table beside the next ones; without one, let go of what was kept."""
        self.kept = f"<b>Kept for comparison</b>{outcome_html(self.outcome, text=self.edit.value)}" if self.outcome else ""
        self.put(self.outcome)

    def prove(self) -> None:
        """Show the exact prompts and the raw answers of the outcome on the table."""
        if self.outcome is None or self.asked is None:
            raise SetupError("nothing was asked yet: press Run first")
        self.proof.value = card(*self._proof(*self.asked, self.outcome))

    def _proof(self, pipeline: DoubleConfirmation, d: Dialogue, arm: Arm, outcome: Outcome) -> Iterator[str]:
        anchor, size = pipeline._anchor(d, arm, outcome.l1), pipeline.context_messages
        second = l2_view(d, context=pipeline.context, messages=size, trend=d.trend, anchor=anchor)
        for side, view in ((outcome.l1, l1_view(d)), (outcome.l2, second)):
            prompt, call = render(view, side.tier), self.store.last_call(self.run_id, side.call_key) or {}
            same = "matches" if prompt.sha256 == side.prompt_hash else "differs from"
            sent = "".join(f"<p><b>{m['role']}</b></p>{quoted(m['content'])}" for m in prompt.messages)
            yield folded(
                f"{side.tier}: prompt {prompt.prompt_id} {prompt.version}", f"<p>Its hash {same} the recorded one.</p>{sent}"
            )
            yield folded(f"{side.tier}: raw answer", quoted(call.get("text") or "none recorded"))


def quoted(text: str) -> str:
    """Foreign text as a block."""
    return f'<div class="wb-text" dir="auto">{inert_html(text)}</div>'


def arrow_svg(blind: Assessment, told: Assessment) -> str:
    """The score without and with the anchor, on the four levels, as an arrow; words say the same."""
    if blind.score is None or told.score is None:
        return "<p>One of the two is unknown: there is no arrow to draw.</p>"
    a, b = 20 + 560 * blind.score, 20 + 560 * told.score
    marks = "".join(f'<line x1="{20 + 140 * i}" x2="{20 + 140 * i}" y1="22" y2="62" stroke="#767b87"/>' for i in range(5))
    names = "".join(f'<text x="{90 + 140 * r.rank}" y="80" text-anchor="middle" font-size="13">{r}</text>' for r in RiskLevel)
    tip = f'<path d="M{b:.0f} 42 l{-8 if b > a else 8} -6 v12 z" fill="#8f1d2c"/>' if abs(b - a) > 1 else ""
    line = f'<circle cx="{a:.0f}" cy="42" r="6" fill="#1d4f80"/><line x1="{a:.0f}" x2="{b:.0f}" y1="42" y2="42" stroke="#8f1d2c" stroke-width="3"/>'
    words = f"score: blind {blind.score:.2f} → told {told.score:.2f} ({told.score - blind.score:+.2f})"
    return f'<svg role="img" aria-label="{words}" width="600" height="90" viewBox="0 0 600 90">{marks}{names}{line}{tip}</svg><p>{words}</p>'


class AnchoringLab(CasePanel):
    """Tell L2 a verdict and watch it: an arrow from blind to anchored, and a running tally of flips with intervals."""

    def __init__(self, corpus: Sequence[Dialogue], *, judges: Sequence[Judge], store: Store | None = None) -> None:
        self.told = dropdown("tell L2", [(k.replace("_", " "), k) for k in KINDS[1:]], "told_critical", width="280px")
        self.wording = dropdown("wording", [("first", 0), ("second", 1), ("third", 2)], width="170px")
        self.seen: dict[tuple[str, str, int, str], dict[str, Any]] = {}  # by L2, anchor, wording, dialogue
        self.tally = w.HTML()
        super().__init__(corpus, judges, (), store)
        self.result.layout.display = "none"
        actions = {"▶ Run": lambda: self.run([self.dialogue]), "▶▶ Run all matching": lambda: self.run(self.matching)}
        chosen = w.HBox([self.l1, self.l2, self.told, self.wording])
        self.build([self.filters, self.pick, chosen, self.text, self.row_of(actions), self.work, self.out, self.tally])

    def still(self) -> str:
        return f"{self.text.value}{self.out.value}{self.tally.value}"

    def run(self, todo: Sequence[Dialogue]) -> None:
        """Ask L2 blind, blind again (its own noise) and told, in the background."""
        pipeline, arm = self.pipeline(), arm_of(self.told.value, self.wording.value)
        if not pipeline.l2.reads_anchor:
            raise SetupError(
                f"not applicable: judge '{pipeline.l2.name}' cannot read an anchor; choose an L2 that reads its prompt"
            )

        async def one(d: Dialogue) -> tuple[Outcome, Outcome]:
            blind = await pipeline.assess(d)
            again = None if pipeline.l2.deterministic else await pipeline.assess(d, repeat=1, l1=blind.l1)
            told = await pipeline.assess(d, arm=arm, l1=blind.l1)
            row = flips(arm.name, blind, again, told) | {"family": family_of(d)}
            self.seen[f"{blind.l2.judge} ({blind.l2.judge_kind})", arm.name, arm.paraphrase, d.id] = row
            return blind, told

        self.each(todo, one, lambda done: self._then(*done[-1]))

    def _then(self, blind: Outcome, told: Outcome) -> str:
        who = inert_html(f"{blind.l2.judge} ({blind.l2.judge_kind})")
        sides = f"<p>{who} as L2: blind {level_html(blind.l2.level)} &nbsp; told {level_html(told.l2.level)}</p>"
        self.out.value = card(f"<h4>{inert_html(blind.dialogue_id)}</h4>", sides, arrow_svg(blind.l2, told.l2))
        head = [
            "L2",
            "told",
            "wording",
            "flips (toward the level told, where one is) [95 %]",
            "flips of the blind repeat",
            "confirm flips",
            "unknown",
        ]
        groups = dict.fromkeys(key[:3] for key in self.seen)
        self.tally.value = card("<h4>Tally of this session</h4>", table_html(head, map(self._tally, groups)))
        return f"done: {len(self.seen)} comparisons in the tally"

    def _tally(self, group: tuple[str, str, int]) -> list[str]:
        rows = [row for key, row in self.seen.items() if key[:3] == group]
        cells = [inert_html(group[0]), inert_html(group[1].replace("_", " ")), str(group[2] + 1)]
        for what in ("toward", "noise", "confirm"):
            e = proportion([row[what] for row in rows], cluster=[row["family"] for row in rows], name=what)
            number = f"{e.value * e.n:.0f} of {e.n} [{e.low:.2f}, {e.high:.2f}]" if e.value is not None else "nothing to compare"
            cells.append("not applicable: always the same answer" if what == "noise" and not e.n else number)
        return [*cells, str(sum(row["toward"] is None for row in rows))]


def flips(arm: str, blind: Outcome, again: Outcome | None, told: Outcome) -> dict[str, bool | None]:
    """Did L2 move toward what it was told, did it move by itself, did ``confirmed`` change? None where a side is unknown."""
    one, two = blind.l2.level, told.l2.level
    if not (isinstance(one, RiskLevel) and isinstance(two, RiskLevel)):
        return {"toward": None, "noise": None, "confirm": None}
    level = TOLD.get(arm) or (blind.l1.level if arm.startswith(("told", "label")) else None)
    told_rank = level.rank if isinstance(level, RiskLevel) else None
    toward = one != two if told_rank is None else abs(two.rank - told_rank) < abs(one.rank - told_rank)
    noise = None if again is None else again.l2.level != one
    return {"toward": toward, "noise": noise, "confirm": blind.confirmed != told.confirmed}
