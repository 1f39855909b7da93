"""Record the small local model on a sample of the corpus: the run directories of data/recorded/smollm2.

    workbench local fetch
    python benchmarks/record_local.py                      # everything; about 40 minutes on two cores
    python benchmarks/record_local.py --dialogues 3 --repeats 1 --out data/runs/try  # a quick look

Three runs: ``blind`` (constrained to the answer's schema, L1 and L2, repeated), ``free`` (the same model without the
constraint) and ``anchors`` (what L2 is told). An interrupted recording goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import workbench as wb
from workbench.corpus import split_of
from workbench.judges.check import check_judge
from workbench.judges.local import LocalJudge
from workbench.schema import RiskLevel

ROOT = Path(__file__).resolve().parents[1]
TEMPERATURE = 0.7  # the most that judging allows: repeats should differ
TOLD = [("told_low", RiskLevel.LOW), ("told_critical", RiskLevel.CRITICAL)]
ARMS = [
    wb.Arm(),
    wb.Arm("neutral", anchor="neutral"),
    *(wb.Arm(kind, anchor=kind, told=told, paraphrase=p) for kind, told in TOLD for p in range(3)),
    *(wb.Arm(kind, anchor=kind) for kind in ("told_l1", "label_confidence", "label_rationale", "irrelevant_number")),
]


def sample(corpus: wb.Corpus, n: int) -> wb.Corpus:
    """n dialogues, spread evenly over language and level also where cut short; none of the test split, which stays closed."""
    groups: dict[tuple[str, str], list[wb.Dialogue]] = {}
    for d in sorted(corpus, key=lambda d: hashlib.sha256(f"recorded:{d.id}".encode()).hexdigest()):
        if d.gold and split_of(d.family) != "test":
            groups.setdefault(("en" if d.lang == "en" else "zh", d.gold.risk_level.value), []).append(d)
    rounds = zip(*(groups[key] for key in sorted(groups)), strict=False)
    return wb.Corpus([d for one_of_each in rounds for d in one_of_each][:n])


def pipeline(name: str, *, threads: int, slots: int, **options: object) -> wb.DoubleConfirmation:
    """The model in both roles, with the short prompt: it has 135 million parameters and two cores."""
    one = LocalJudge(name, temperature=TEMPERATURE, seed=1, slots=slots, threads=threads, **options)  # type: ignore[arg-type]
    return wb.DoubleConfirmation(one, one, version="v1-short", context_messages=6)


def plan(
    dialogues: int, repeats: int, threads: int, slots: int
) -> list[tuple[str, wb.DoubleConfirmation, int, list[wb.Arm], int]]:
    """(run, pipeline, dialogues, arms, repeats): what fits into the time."""
    bound = pipeline("smollm2", threads=threads, slots=slots)
    return [
        ("blind", bound, dialogues, [wb.Arm()], repeats),
        (
            "free",
            pipeline("smollm2-free", threads=threads, slots=slots, constrained=False, max_tokens=160),
            max(1, dialogues // 5),
            [wb.Arm()],
            repeats,
        ),
        ("anchors", bound, max(1, dialogues // 5), ARMS, min(2, repeats)),
    ]


def sheet(runs: Mapping[str, wb.Run]) -> str:
    """The numbers of the data sheet, as a Markdown table: one row per run and tier, each call counted once."""
    rows = [
        "| run | tier | calls | low | medium | high | critical | unknown | confidence: min, median, max | tokens in, out |",
        "|" + "---|" * 10,
    ]
    for name, run in runs.items():
        for tier, part in run.frame.drop_duplicates("call_key").groupby("tier"):
            levels, known = part.level.value_counts(), part.confidence.dropna()
            spread = f"{known.min():.2f}, {known.median():.2f}, {known.max():.2f}" if len(known) else "none"
            counts = " | ".join(str(levels.get(level, 0)) for level in ("low", "medium", "high", "critical", "unknown"))
            rows.append(
                f"| {name} | {tier} | {len(part)} | {counts} | {spread} | {part.prompt_tokens.sum()}, {part.completion_tokens.sum()} |"
            )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialogues", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="does not change the results; 1 is faster on a busy machine")
    parser.add_argument("--slots", type=int, default=8, help="questions in flight; does not change the results, more is faster")
    parser.add_argument(
        "--sheet", action="store_true", help="print the numbers of the data sheet for the runs in --out, and stop"
    )
    parser.add_argument("--check", action="store_true", help="record what `workbench judges check local` finds, and stop")
    parser.add_argument("--only", choices=("blind", "free", "anchors"))
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "recorded" / "smollm2")
    args = parser.parse_args()
    if args.sheet:
        print(sheet({name: wb.Run.open(args.out / name) for name in ("blind", "free", "anchors")}))
        return
    if args.check:
        found = asdict(check_judge("local"))
        (args.out / "check.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return
    corpus = wb.load_corpus(ROOT / "data" / "dialogues")
    for name, made, n, arms, repeats in plan(args.dialogues, args.repeats, args.threads, args.slots):
        if args.only in (None, name):
            started = time.perf_counter()
            work = wb.run(
                made,
                sample(corpus, n),
                out=args.out / name,
                arms=arms,
                repeats=repeats,
                concurrency=args.slots,
                resume=True,
                parse_retry="none",
            )
            run = wb.sync(work)
            calls = run.frame.call_key.nunique()
            print(f"{run} {calls} calls in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
