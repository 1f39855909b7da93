"""The command line: one function per command; errors are one sentence on stderr and exit code 2 (settings) or 1 (work)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.errors import RunError, SetupError
from workbench.text import inert

if TYPE_CHECKING:
    from workbench.confirm import DoubleConfirmation
    from workbench.corpus import Corpus

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``workbench``; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        return int(args.command(args))
    except SetupError as error:
        print(f"workbench: {inert(error)}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"workbench: {inert(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("workbench: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _say(text: object) -> None:
    """Print to a terminal that hostile text must not drive; line ends stay."""
    print("\n".join(inert(line) for line in str(text).split("\n")))


def _table(frame: Any) -> None:
    _say(frame.to_string(index=False) if len(frame) else "(no rows)")


# -- runs -----------------------------------------------------------------------------------------------------------


def _corpus(args: argparse.Namespace) -> Corpus:
    from workbench.corpus import load_corpus

    return load_corpus(args.dialogues, lang=args.lang, split=args.split, limit=args.limit, allow_real=args.allow_real)


def _pipeline(args: argparse.Namespace) -> DoubleConfirmation:
    from workbench.confirm import DoubleConfirmation
    from workbench.judges.registry import judge

    arbiter = judge(args.arbiter) if args.arbiter else None
    names = ("l2_policy", "combine", "context", "trend", "confirm_confidence")
    return DoubleConfirmation(judge(args.l1), judge(args.l2), arbiter=arbiter, **{n: getattr(args, n) for n in names})


def cmd_run(args: argparse.Namespace) -> int:
    from workbench.budget import Budget, estimate
    from workbench.runner import Run, run

    if args.replay:
        return cmd_verify(argparse.Namespace(target=args.out))
    corpus, pipeline = _corpus(args), _pipeline(args)
    if args.dry_run:
        _say(str(estimate(pipeline, corpus, repeats=args.repeats, turns=args.turns)))
        return 0
    budget = Budget(usd=args.budget_usd, tokens=args.budget_tokens, allow_unpriced=args.allow_unpriced)
    work = run(
        pipeline, corpus, out=args.out, repeats=args.repeats, concurrency=args.concurrency, resume=args.resume, fresh=args.fresh, budget=budget,
        parse_retry=args.parse_retry, turns=args.turns,
    )  # fmt: skip
    try:
        result: Run = _loop(work)
    except KeyboardInterrupt:
        print(f"workbench: interrupted; settled calls are kept, continue with --resume --out {args.out}", file=sys.stderr)
        return 130
    _summary(result)
    with result.store() as store:
        usd, tokens = store.spent(result.manifest["run_id"])
    if tokens:
        _say(estimate(pipeline, corpus, repeats=args.repeats, turns=args.turns).against(usd, tokens))
    return 0


def _loop(work: Any) -> Any:
    """Run on uvloop where it is installed (not on Windows), in a process of our own that has the corpus for life."""
    import asyncio
    import gc

    gc.freeze()  # what is loaded stays: searching it for garbage again and again costs a tenth of a run
    gc.set_threshold(20_000, 20, 20)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def _summary(result: Any) -> None:
    from workbench.scoring import text

    _say(text(result.outcomes, result.frame))


def cmd_score(args: argparse.Namespace) -> int:
    from workbench import scoring
    from workbench.runner import Run

    result = Run.open(args.run)
    table = scoring.score(result.outcomes)
    if not args.json:
        _summary(result)
        return 0
    rows = scoring.scorable(result.outcomes)
    print(json.dumps({
        "run": result.path.name, "summary": scoring.summary(result.outcomes),
        "confusion": {s: scoring.confusion(rows, f"{s.lower()}_level").to_dict("index") for s in ("L1", "L2")},
        "estimates": json.loads(table.to_json(orient="records")), "blocked": json.loads(scoring.blocked(result.outcomes).to_json(orient="records")),
    }, ensure_ascii=True, indent=1))  # fmt: skip
    return 0


def cmd_assess(args: argparse.Namespace) -> int:
    from workbench.corpus import load_corpus
    from workbench.schema import Dialogue
    from workbench.text import detect_lang

    given = sys.stdin.read() if args.text in (None, "-") else args.text
    if given.endswith((".json", ".jsonl")) and Path(given).is_file():
        dialogues = list(load_corpus(given, allow_real=args.allow_real))
    elif given.strip():
        turn = {"role": "user", "content": given.strip()}
        dialogues = [Dialogue.model_validate({"id": "command-line", "lang": args.lang or detect_lang(given), "turns": [turn]})]
    else:
        raise SetupError(
            'nothing to assess: give a text, a dialogue file, or text on standard input, as in `workbench assess "…"`'
        )
    pipeline = _pipeline(args)
    for d in dialogues:
        outcome = pipeline.assess_sync(d)
        print(outcome.model_dump_json(indent=1) if args.json else outcome)
    return 0


def cmd_report(args: argparse.Namespace) -> int:
    from workbench.report import report

    _say(f"wrote {report(args.run, out=args.out, lang=args.lang, title=args.title, region=args.region)}")
    return 0


def cmd_verify(args: argparse.Namespace) -> int:
    from workbench.verify import verify

    differences = verify(args.target)
    _say(
        "\n".join(differences)
        if differences
        else "identical: every table was recomputed with the network blocked and has the same hash"
    )
    return 1 if differences else 0


def cmd_compare(args: argparse.Namespace) -> int:
    from workbench.contrast import compare

    _say(compare(args.run_a, args.run_b))
    return 0


def cmd_export(args: argparse.Namespace) -> int:
    from workbench.export import export

    _say(f"wrote {export(args.run, format=args.format, out=args.out)}")
    return 0


def cmd_study(args: argparse.Namespace) -> int:
    from workbench import study

    result = study.from_cli(
        args.name, args.target, judges=[j for j in (args.l1, args.l2) if j], repeats=args.repeats, limit=args.limit
    )
    if args.out:
        _say(f"wrote {result.save(args.out)}")
    _say("\n".join([*(str(s) for s in result.summary(args.lang)), "", *(str(e) for e in result.estimates)]))
    return 0


# -- judges, corpus, environment ----------------------------------------------------------------------------------------


def cmd_judges(args: argparse.Namespace) -> int:
    from workbench.judges import registry

    if args.action == "list":
        _table(registry.listing())
        return 0
    if not args.name:
        raise SetupError("which judge? workbench judges check NAME")
    from workbench.judges.check import check_judge

    _say(check_judge(args.name))
    return 0


def cmd_local(args: argparse.Namespace) -> int:
    from workbench.judges import local

    _say(f"weights are at {local.fetch(to=args.to)}")
    return 0


def cmd_corpus(args: argparse.Namespace) -> int:
    from workbench import corpus_tools

    if args.action == "generate":
        from workbench.selfcheck.generate import generate_from_cli

        _say(generate_from_cli(args))
        return 0
    corpus = _corpus(args)
    if args.action == "stats":
        _say(corpus_tools.stats_text(corpus))
        return 0
    problems = corpus_tools.validate(corpus)
    _say("\n".join(problems) if problems else f"{len(corpus)} dialogues: every invariant holds")
    return 1 if problems else 0


def cmd_doctor(args: argparse.Namespace) -> int:
    from workbench.doctor import examine

    lines, healthy = examine()
    _say("\n".join(lines))
    return 0 if healthy else 1


# -- the sister systems ---------------------------------------------------------------------------------------------------


def cmd_compensation(args: argparse.Namespace) -> int:
    from workbench.guardrail import compensation_json

    print(compensation_json(args.order, complaint=args.complaint, damage=args.damage, model=args.model))
    return 0


def cmd_guard(args: argparse.Namespace) -> int:
    from workbench.guardrail import guard_text

    text, passed = guard_text(args.text if args.text is not None else sys.stdin.read(), authoritative=args.authoritative)
    _say(text)
    return 0 if passed else 1


def cmd_selfcheck(args: argparse.Namespace) -> int:
    from workbench.selfcheck.calibrate import regress_text

    text, passed = regress_text(judge=args.judge)
    _say(text)
    return 0 if passed else 1


# -- arguments ------------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workbench", description=__doc__, epilog="Research on synthetic dialogues; it never contacts anyone."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    run = add("run", cmd_run, "send dialogues through L1 and L2 and keep everything in a run directory")
    _dialogue_options(run)
    _pipeline_options(run)
    run.add_argument("--out", required=True, help="the run directory")
    for flag, text in (("resume", "continue an interrupted run"), ("fresh", "replace an existing run"), ("replay", "recompute --out from its ledger"),
                       ("dry-run", "estimate calls, tokens and money, and stop"), ("allow-unpriced", "let models without a known price spend")):  # fmt: skip
        run.add_argument(f"--{flag}", action="store_true", help=text)
    run.add_argument("--repeats", type=int, default=1)
    run.add_argument("--concurrency", type=int, default=16, help="calls in flight at one endpoint (default 16)")
    run.add_argument("--turns", choices=("last", "all"), default="last", help="assess the last user turn, or every one")
    run.add_argument("--parse-retry", choices=("feedback", "blind", "none"), default="feedback")
    run.add_argument("--budget-usd", type=float)
    run.add_argument("--budget-tokens", type=int)

    score = add("score", cmd_score, "score a run against gold")
    score.add_argument("run")
    score.add_argument("--json", action="store_true")

    assess = add("assess", cmd_assess, "assess one text (or a dialogue file, or standard input)")
    assess.add_argument("text", nargs="?")
    assess.add_argument("--lang", choices=("zh", "en", "mixed"))
    assess.add_argument("--allow-real", action="store_true", help=argparse.SUPPRESS)
    assess.add_argument("--json", action="store_true")
    _pipeline_options(assess)

    report = add("report", cmd_report, "write one self-contained HTML report of a run")
    report.add_argument("run")
    report.add_argument("--out")
    report.add_argument("--lang", choices=("en", "zh"), default="en")
    report.add_argument("--title")
    report.add_argument("--region", help="whose crisis resources to print, such as zh-CN or en-US")
    add("verify", cmd_verify, "recompute a run or report with the network blocked and compare").add_argument("target")
    compare = add("compare", cmd_compare, "paired differences between two runs of the same dialogues")
    compare.add_argument("run_a")
    compare.add_argument("run_b")
    export = add("export", cmd_export, "tidy tables with a data dictionary, figures and a citation")
    export.add_argument("run")
    export.add_argument("--format", choices=("parquet", "csv", "jsonl"), default="csv")
    export.add_argument("--out")

    study = add("study", cmd_study, "run one study on a run or on dialogues")
    study.add_argument("name", help="drift, anchoring, ablation, compare, independence, thresholds, review, design or selfcheck")
    study.add_argument("target", nargs="?", help="a run directory, or dialogues")
    study.add_argument("--l1")
    study.add_argument("--l2")
    study.add_argument("--repeats", type=int, default=3)
    study.add_argument("--limit", type=int)
    study.add_argument("--lang", choices=("en", "zh"), default="en")
    study.add_argument("--out", help="folder for tables and figures")

    judges = add("judges", cmd_judges, "list the judges, or find out what an endpoint accepts")
    judges.add_argument("action", choices=("list", "check"))
    judges.add_argument("name", nargs="?")
    local = add("local", cmd_local, "get the weights of the small local model")
    local.add_argument("action", choices=("fetch",))
    local.add_argument("--to")
    corpus = add("corpus", cmd_corpus, "look at, check or extend dialogues")
    corpus.add_argument("action", choices=("stats", "validate", "generate"))
    _dialogue_options(corpus)
    for name in ("phenomenon", "level", "judge", "out"):
        corpus.add_argument(f"--{name}", help=f"generate: {name}")
    corpus.add_argument("--n", type=int, default=5, help="generate: how many drafts")
    add("doctor", cmd_doctor, "look at the environment: what is there, what is missing and how to get it")

    compensation = add("compensation", cmd_compensation, "the advisory compensation workflow for one synthetic order")
    compensation.add_argument("order")
    compensation.add_argument("--complaint", default="OVERTIME")
    compensation.add_argument("--damage")
    compensation.add_argument("--model", help="a judge that writes the explanation (default: the built-in text)")
    guard = add("guard", cmd_guard, "check a text against an authoritative amount")
    guard.add_argument("text", nargs="?")
    guard.add_argument("--authoritative", required=True)
    selfcheck = add("selfcheck", cmd_selfcheck, "run the self-check judge on its labelled answers")
    selfcheck.add_argument("action", choices=("regress",))
    selfcheck.add_argument("--judge")
    return parser


def _dialogue_options(parser: argparse.ArgumentParser) -> None:
    from workbench.corpus import DEFAULT, SPLITS

    parser.add_argument("dialogues", nargs="?", default=DEFAULT, help=f"a JSONL file or a folder of them (default {DEFAULT})")
    parser.add_argument("--lang", choices=("zh", "en", "mixed"))
    parser.add_argument("--split", choices=SPLITS)
    parser.add_argument("--limit", type=int, help="this many dialogues, spread over the corpus")
    parser.add_argument("--allow-real", action="store_true", help="accept rows not marked synthetic; recorded in the run")


def _pipeline_options(parser: argparse.ArgumentParser) -> None:
    from workbench.confirm import COMBINATIONS, CONTEXTS, L2_POLICIES, TRENDS
    from workbench.schema import CONFIRM_CONFIDENCE

    parser.add_argument("--l1", default="cue", help="a built-in judge, or a name from judges.toml (default cue)")
    parser.add_argument("--l2", default="ngram", help="likewise (default ngram)")
    parser.add_argument("--arbiter", help="the third judge of --combine arbitration")
    parser.add_argument("--l2-policy", choices=L2_POLICIES, default="always")
    parser.add_argument("--combine", choices=COMBINATIONS, default="and")
    parser.add_argument("--context", choices=CONTEXTS, default="both")
    parser.add_argument("--trend", choices=TRENDS, default="corpus")
    parser.add_argument("--confirm-confidence", type=float, default=CONFIRM_CONFIDENCE)


if __name__ == "__main__":
    sys.exit(main())
