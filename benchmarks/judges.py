"""Measure the two offline judges: `measure` (cross-fitted tables), `rules` (how right each rule of cue is), `ablate` (what each part buys), `speed` (assessments a second).

Everything printed is Markdown and is quoted in docs/judges.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.corpus import family_of, load_corpus, read_rows, split_of
from workbench.gate import l0
from workbench.judges.cue import CueJudge
from workbench.judges.ngram import NgramJudge, examples
from workbench.parsing import parse_assessment
from workbench.schema import Assessment, Dialogue, RiskLevel, View
from workbench.stats.calibration import auc
from workbench.stats.proportions import wilson

TESTS = Path(__file__).parents[1] / "tests" / "data"
HIGH = RiskLevel.HIGH.rank
CUE_OFF = (
    "ideation", "passive", "better_off", "wish_gone", "veiled", "intent", "plan", "prep", "imminent", "time", "farewell", "farewell_strong", "arranging",
    "settled", "after_me", "steady", "calm", "burden", "hopeless", "trapped", "self_injury", "concealed", "distress", "emoji_dark", "recovered",
    "protective", "benign", "banal", "joke", "fiction", "quote_frame", "quotation", "professional", "reveal", "past", "hypothetical", "third", "worried",
    "shield.idiom", "shield.denied", "negation", "injection", "typo", "gone", "no_more", "fixed", "aftermath", "absolve", "unstop", "own_death", "final",
    "envy", "window", "waits", "ctb", "other_peril", "helping", "mock", "cheer", "ordinary",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One dialogue with both answers; levels as ranks after the flag cap."""

    dialogue: Dialogue
    l1: Assessment
    l2: Assessment

    @property
    def gold(self) -> int:
        return self.dialogue.gold.risk_level.rank  # type: ignore[union-attr]

    @property
    def either(self) -> int:
        return max(self.l1.level.rank, self.l2.level.rank)  # type: ignore[union-attr]

    @property
    def both(self) -> int:
        return min(self.l1.level.rank, self.l2.level.rank)  # type: ignore[union-attr]

    @property
    def confirmed(self) -> bool:
        return self.l1.may_confirm and self.l2.may_confirm


def view_of(d: Dialogue, *, context: bool) -> View:
    """What the default pipeline shows: L1 the text; L2 the last ten messages and the trend as well."""
    turns = [(t.role, t.content) for t in d.turns]
    return View(text=d.text, lang=d.lang, context=tuple(turns[:-1][-10:]) if context else (), trend=d.trend if context else None)


def ask(judge: CueJudge | NgramJudge, view: View, tier: str) -> Assessment:
    return parse_assessment(judge.respond(view), finish_reason="stop", analysed_text=view.text, tier=tier)  # type: ignore[arg-type]


def cases(dialogues: Iterable[Dialogue], cue: CueJudge, ngram: NgramJudge) -> list[Case]:
    return [Case(d, ask(cue, view_of(d, context=False), "L1"), ask(ngram, view_of(d, context=True), "L2")) for d in dialogues]


def rate(hits: Sequence[bool]) -> str:
    if not hits:
        return "–"
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits) / len(hits):.2f} [{low:.2f}, {high:.2f}] ({sum(hits)}/{len(hits)})"


def sensitivity(rows: Sequence[Case], level: Callable[[Case], int]) -> str:
    return rate([level(c) >= HIGH for c in rows if c.gold >= HIGH])


def specificity(rows: Sequence[Case], level: Callable[[Case], int]) -> str:
    return rate([level(c) < HIGH for c in rows if c.gold < HIGH])


RULES: tuple[tuple[str, Callable[[Case], int]], ...] = (
    ("cue", lambda c: c.l1.level.rank), ("ngram", lambda c: c.l2.level.rank), ("or", lambda c: c.either), ("and", lambda c: c.both),
)  # type: ignore[assignment, union-attr]  # fmt: skip


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n**{title}**\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(v) for v in row)} |")


def operating(groups: dict[str, list[Case]]) -> None:
    rows = [(g, len(cs), n, sensitivity(cs, f), specificity(cs, f)) for g, cs in groups.items() for n, f in RULES]
    table("High or worse", ("texts", "n", "rule", "sensitivity", "specificity"), rows)
    alone = {g: [c for c in cs if c.dialogue.gold.confirm and not c.dialogue.gold.needs_context] for g, cs in groups.items()}  # type: ignore[union-attr]
    table(
        "Confirmed (both critical, both at 0.85, no flag)", ("texts", "gold-critical whose last turn shows it", "all gold-critical", "falsely confirmed non-critical"),
        [(g, rate([c.confirmed for c in alone[g]]), rate([c.confirmed for c in cs if c.gold == 3]), rate([c.confirmed for c in cs if c.gold < 3]))
         for g, cs in groups.items()],
    )  # fmt: skip


def breakdown(rows: list[Case]) -> None:
    for part, key in (("level", lambda c: c.dialogue.gold.risk_level.value), ("language", lambda c: c.dialogue.lang),
                      ("user turns", lambda c: "1" if c.dialogue.n_user_turns == 1 else "2-3" if c.dialogue.n_user_turns < 4 else "4+"),
                      ("needs context", lambda c: str(c.dialogue.gold.needs_context).lower()), ("split", lambda c: split_of(family_of(c.dialogue)))):  # fmt: skip
        groups: dict[str, list[Case]] = defaultdict(list)
        for c in rows:
            groups[key(c)].append(c)
        table(f"By {part}", (part, "n", "cue sens", "cue spec", "ngram sens", "ngram spec", "or sens", "or spec"),
              [(g, len(cs), *(f(cs, level) for _, level in RULES[:3] for f in (sensitivity, specificity))) for g, cs in sorted(groups.items())])  # fmt: skip
    for name, get in (("cue", lambda c: c.l1), ("ngram", lambda c: c.l2)):
        names = [v.value for v in RiskLevel]
        counts = np.zeros((4, 4), int)
        for c in rows:
            counts[c.gold, get(c).level.rank] += 1
        table(f"Confusion, {name} (rows gold, columns said)", ("gold", *names), [(names[i], *counts[i]) for i in range(4)])
        table(f"Flags, {name}", ("flag", "found", "false"),
              [(f, rate([get(c).flags[f] for c in rows if f in c.dialogue.gold.flags]), rate([get(c).flags[f] for c in rows if f not in c.dialogue.gold.flags]))
               for f in ("fiction", "quote", "third_party", "joke")])  # fmt: skip
        bins = [(0.0, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.85), (0.85, 0.9), (0.9, 1.01)]
        inside = [[c for c in rows if low <= (get(c).confidence or 0) < high] for low, high in bins]
        table(f"Calibration, {name}: how often the case is on the side of 'high' that the raw level says", ("confidence", "n", "mean confidence", "right"),
              [(f"{low:.2f}-{min(high, 1):.2f}", len(cs), f"{np.mean([get(c).confidence for c in cs]):.2f}" if cs else "–",
                rate([(get(c).raw_level.rank >= HIGH) == (c.gold >= HIGH) for c in cs])) for (low, high), cs in zip(bins, inside, strict=True)])  # fmt: skip
    wrong: dict[str, list[bool]] = defaultdict(list)
    for c in rows:
        wrong[c.dialogue.phenomenon].append((c.either >= HIGH) != (c.gold >= HIGH))
    worst = sorted(wrong.items(), key=lambda kv: (-sum(kv[1]), -sum(kv[1]) / len(kv[1])))[:12]
    table("Where the pair (or) is wrong most", ("phenomenon", "wrong", "of"), [(p, sum(w), len(w)) for p, w in worst])


def messages(name: str) -> list[Dialogue]:
    return [d for _, d in read_rows(TESTS / name)]


def measure() -> None:
    cue, ngram = CueJudge(), NgramJudge()
    rows = cases(load_corpus(), cue, ngram)
    groups = {
        "dialogues, several turns": [c for c in rows if c.dialogue.n_user_turns > 1], "dialogues, one turn": [c for c in rows if c.dialogue.n_user_turns == 1],
        "test families, several turns": [c for c in rows if split_of(family_of(c.dialogue)) == "test" and c.dialogue.n_user_turns > 1],
        "test families, one turn": [c for c in rows if split_of(family_of(c.dialogue)) == "test" and c.dialogue.n_user_turns == 1],
        "unseen dialogues": cases(messages("unseen_dialogues.jsonl"), cue, ngram), "unseen messages": cases(messages("unseen_messages.jsonl"), cue, ngram),
        "development messages (domain)": cases(messages("domain.jsonl"), cue, ngram), "development messages (own)": cases(messages("messages_dev.jsonl"), cue, ngram),
    }  # fmt: skip
    operating(groups)
    y = [c.gold >= HIGH for c in rows]
    for name, score in (
        ("ngram", [ngram.scores(view_of(c.dialogue, context=True))[1][1] for c in rows]),
        ("cue", [c.l1.score for c in rows]),
    ):
        e = auc([int(v) for v in y], score, cluster=[family_of(c.dialogue) for c in rows])
        print(
            f"\nAUC of high or worse, {name}: {e.value:.3f} [{e.low:.3f}, {e.high:.3f}] over {len(rows)} dialogues in {len({family_of(c.dialogue) for c in rows})} families"
        )
    breakdown(rows)
    print("\n### Unseen texts")
    breakdown(groups["unseen dialogues"] + groups["unseen messages"])


def rules() -> None:
    """How often each rule of cue puts a text on the right side of high, on the practice texts that its authors have not seen.

    The confidence of a rule in rules.toml is such a rate, drawn towards that of all rules of its level with the weight of ten texts.
    """
    cue = CueJudge()
    right: dict[str, list[bool]] = defaultdict(list)
    level = {r.name: r.level for r in cue.rules}
    for e in examples(load_corpus()[:0]):
        if e.source == "practice, new to cue":
            name = cue.explain(View(text=e.text)).rule
            right[name].append((e.level >= HIGH) == (level[name].rank >= HIGH))
    pooled = {v: np.mean([r for n, rs in right.items() if level[n] == v for r in rs]) for v in level.values()}
    rows = [
        (
            r.name,
            r.level.value,
            rate(right[r.name]),
            f"{(sum(right[r.name]) + 10 * pooled[r.level]) / (len(right[r.name]) + 10):.2f}",
            r.confidence,
        )
        for r in cue.rules
    ]
    table(
        "Rules of cue on practice texts new to their authors",
        ("rule", "level", "right side of high", "drawn to its level", "in use"),
        rows,
    )


def gate_rates() -> None:
    rows = [*load_corpus(), *messages("domain.jsonl"), *messages("messages_dev.jsonl")]
    risky = [l0(d.text) for d in rows if d.gold and d.gold.risk_level.rank >= HIGH]
    calm = [l0(d.text) for d in rows if d.gold and d.gold.risk_level.rank < HIGH]
    table("L0 gate on last turns", ("gold", "escalated", "strong"),
          [(n, rate([g.escalate for g in part]), rate([g.strong for g in part])) for n, part in (("high or worse", risky), ("below high", calm))])  # fmt: skip


def balanced(pairs: Iterable[tuple[int, int]]) -> tuple[float, float]:
    both = list(pairs)
    return (np.mean([s >= HIGH for g, s in both if g >= HIGH]), np.mean([s < HIGH for g, s in both if g < HIGH]))  # type: ignore[return-value]


def ablate() -> None:
    """Each family of cue and each feature group of ngram switched off: change of sensitivity and specificity, in points."""
    dialogues = [*load_corpus(), *messages("domain.jsonl"), *messages("messages_dev.jsonl")]
    texts = [(d.text, d.gold.risk_level.rank, d.gold.flags) for d in dialogues if d.gold]
    texts += [(e.text, e.level, e.flags) for e in examples(load_corpus()[:0]) if e.source == "practice, new to cue"]
    gold = [level for _, level, _ in texts]

    def cue_rates(off: Sequence[str]) -> tuple[float, float, float]:
        judge = CueJudge(off=off)
        said = [ask(judge, View(text=text), "L1") for text, *_ in texts]
        right = [
            a.level.rank == level and set(flags) == {f for f, on in a.flags.items() if on}  # type: ignore[union-attr]
            for a, (_, level, flags) in zip(said, texts, strict=True)
        ]
        return (*balanced(zip(gold, [a.level.rank for a in said], strict=True)), float(np.mean(right)))  # type: ignore[union-attr]

    base = cue_rates(())
    rows = [(name, *(f"{100 * (r - b):+.1f}" for r, b in zip(cue_rates((name,)), base, strict=True))) for name in CUE_OFF]
    table(f"cue, text only, {len(texts)} texts: sensitivity {base[0]:.2f}, specificity {base[1]:.2f}, level and flags all right {base[2]:.2f}; "
          "change in points when switched off", ("family", "sensitivity", "specificity", "level and flags right"), rows)  # fmt: skip
    corpus = list(load_corpus())
    truth = [int(d.gold.risk_level.rank >= HIGH) for d in corpus if d.gold]
    rows = []
    for off in ((), ("char",), ("word",), ("context",), ("trend",), ("practice",)):
        judge = NgramJudge(off=off)
        said = [ask(judge, view_of(d, context=True), "L2").level.rank for d in corpus]  # type: ignore[union-attr]
        e = auc(truth, [judge.scores(view_of(d, context=True))[1][1] for d in corpus], cluster=[family_of(d) for d in corpus])
        s, p = balanced(zip([d.gold.risk_level.rank for d in corpus if d.gold], said, strict=True))
        rows.append((off[0] if off else "nothing off", f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]", f"{s:.2f}", f"{p:.2f}"))
    table("ngram as L2, cross-fitted on the corpus", ("switched off", "AUC of high or worse", "sensitivity", "specificity"), rows)


def speed(seconds: float) -> None:
    """Fresh texts each round (a suffix makes them new), so that no cache answers; best of the rounds."""
    dialogues = list(load_corpus())
    rows = []
    for name, judge, context in (("cue as L1", CueJudge(), False), ("ngram as L1", NgramJudge(), False), ("ngram as L2", NgramJudge(), True), ("cue as L2", CueJudge(), True)):  # fmt: skip
        best_wall = best_cpu = 0.0
        until, round_ = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            round_ += 1
            views = [
                v.model_copy(update={"text": f"{v.text} {round_}"}) for v in (view_of(d, context=context) for d in dialogues)
            ]
            wall, cpu = time.perf_counter(), time.process_time()
            for v in views:
                judge.respond(v)
            best_wall = max(best_wall, len(views) / (time.perf_counter() - wall))
            best_cpu = max(best_cpu, len(views) / (time.process_time() - cpu))
        rows.append((name, f"{best_wall:,.0f}", f"{best_cpu:,.0f}", round_))
    table(f"Assessments a second, one process, mean text {np.mean([len(d.text) for d in dialogues]):.0f} characters",
          ("judge", "by the clock", "by processor time", "rounds"), rows)  # fmt: skip
    print(json.dumps({"loop_1e6_s": round(_loop(), 3)}))


def _loop() -> float:
    start = time.process_time()
    sum(i * i for i in range(1_000_000))
    return time.process_time() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "rules", "ablate", "speed", "gate"))
    parser.add_argument("--seconds", type=float, default=4.0, help="speed: time for each judge")
    given = parser.parse_args()
    {"measure": measure, "rules": rules, "ablate": ablate, "speed": lambda: speed(given.seconds), "gate": gate_rates}[
        given.what
    ]()
