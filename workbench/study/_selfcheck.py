"""What retrying buys: no retry, blind retry, feedback, and feedback with a new structure, on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, get_args

import numpy as np
import pandas as pd

from workbench import plots
from workbench.judges import registry
from workbench.judges.base import Reply, Usage
from workbench.runner import sync
from workbench.selfcheck.calibrate import LABELLED, load_labelled
from workbench.selfcheck.checks import ErrorType, Task, texts
from workbench.selfcheck.engine import Engine, Generate, Limits, from_judge
from workbench.selfcheck.engine import Result as Request
from workbench.selfcheck.retry import Messages, Strategy
from workbench.stats.proportions import clopper_pearson, proportion
from workbench.stats.resample import mean, seed_for
from workbench.study.base import Number, Result, phrases, table

STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
SCORES: Final[dict[ErrorType | None, float]] = {None: 9.0, "incomplete": 6.0, "reasoning": 5.0, "hallucination": 3.0}
PROMOTE: Final = 0.2  # share of first failures from which a repair instruction is suggested for the system prompt


@dataclass(frozen=True)
class Planted:
    """Planted behaviour of the simulated generator and judge, all probabilities.

    ``fault``: a first answer has a fault. ``persistence``: a retry that is told nothing new repeats it. ``heed``: feedback mends
    it, ``restructure`` more so with a new structure. ``spoil``: a retry that mends one fault brings another. ``misjudged``: the
    judge takes a fault for none.
    """

    fault: float = 0.5
    persistence: float = 0.8
    heed: float = 0.65
    restructure: float = 0.15
    spoil: float = 0.1
    misjudged: float = 0.0


class _Simulated:
    """A generator whose answer names its fault, a judge that reads it, and the clock that both move. One per request."""

    def __init__(self, planted: Planted, lang: str, rng: np.random.Generator) -> None:
        self.planted, self.words, self.rng, self.now = planted, texts()["loop"][lang], rng, 0.0
        self.fault: ErrorType | None = None
        self.calls = 0

    def clock(self) -> float:
        return self.now

    async def generate(self, messages: Messages, temperature: float, max_tokens: int) -> Reply:
        prompt, p, (first, stays, mends, spoils, kind) = messages[-1]["content"], self.planted, self.rng.random(5)
        told, anew = self.words["feedback"] in prompt, self.words["restructure"] in prompt
        faults = [f for f in SCORES if f not in (None, self.fault)]
        other = faults[int(kind * len(faults))]
        if self.calls == 0:
            self.fault = other if first < p.fault else None
        elif (told and mends < p.heed + p.restructure * anew) or (not told and stays >= p.persistence):
            self.fault = other if spoils < p.spoil else None
        self.calls += 1
        self.now += 2.0
        return Reply(f"answer {self.calls}: {self.fault or 'sound'}", usage=Usage(len(prompt) // 3, 120))

    async def judge(self, messages: Messages, temperature: float, max_tokens: int) -> Reply:
        fault = self.fault if self.rng.random() >= self.planted.misjudged else None
        self.now += 1.0
        passed, types = ("true", "") if fault is None else ("false", f'"{fault}"')
        return Reply(f'{{"score": {SCORES[fault]}, "passed": {passed}, "error_types": [{types}]}}', usage=Usage(400, 40))


def selfcheck(
    tasks: Sequence[Task] | None = None, *, generator: Generate | None = None, judge: Generate | None = None, n: int = 300,
    planted: Planted = Planted(), strategies: Sequence[Strategy] = STRATEGIES, limits: Limits = Limits(), seed: int = 0,
) -> Result:  # fmt: skip
    """Run every strategy on the same *tasks* (default: *n* simulated ones) and compare success, cost and harm.

    With *generator* and *judge* a real endpoint is studied; without them both are simulated with *planted* behaviour, the
    same first answers for every strategy. The unit is the task; differences are paired.
    """
    simulated = generator is None or judge is None
    tasks = tasks or [Task(f"simulated question {i}", "simulated material", language="en") for i in range(n)]
    done: list[tuple[str, int, Request]] = []
    for strategy in strategies:
        for i, task in enumerate(tasks):
            fake = _Simulated(planted, task.lang, np.random.default_rng(seed_for(seed, "selfcheck", str(i))))
            calls = (fake.generate, fake.judge) if simulated else (generator, judge)
            clock: dict[str, Any] = {"clock": fake.clock} if simulated else {}
            done.append((strategy, i, sync(Engine(*calls, strategy=strategy, limits=limits, **clock).run(task))))  # type: ignore[arg-type]
    requests = pd.DataFrame([{"strategy": s, "task": i} | _facts(r) for s, i, r in done])
    attempts = pd.DataFrame([{"strategy": s, "task": i} | row for s, i, r in done for row in r.rows()])
    estimates = [e for s in strategies for e in _measure(requests[requests.strategy == s], s)]
    estimates += list(_against(requests, [s for s in strategies if s != "none"]))
    frames = {"requests": requests, "attempts": attempts, "errors": error_distribution(attempts), "promote": promotion(attempts)}
    slots = ("success", "tokens", "same fault again", "regression")
    says = [
        ("selfcheck.strategy", {w.replace(" ", "_"): f"{w} [{s}]" for w in slots}, {"strategy": s})
        for s in strategies
        if s != "none"
    ]
    found = {e.name: e for e in estimates}

    def draw(*, ax: Any = None, lang: str = "en") -> Any:
        words, mark = (
            phrases()["figures"]["selfcheck.success"][lang],
            f" ({phrases()['words'][lang]['simulated_mark']})" * simulated,
        )
        rows = table({s: found[f"success [{s}]"] for s in strategies})
        return plots.forest(
            rows,
            title=words["title"] + mark,
            xlabel=words["xlabel"],
            caption=words["note"].format(n=len(tasks)),
            percent=True,
            ax=ax,
        )

    return Result("selfcheck", frames, estimates, {"success": draw}, says, simulated)


def from_cli(target: str | None, *, judges: Sequence[str] = (), repeats: int = 1, limit: int | None = None) -> Result:
    """Simulated without judges; else the first one answers the tasks of *target* (labelled answers) and the last one judges."""
    if not judges:
        return selfcheck(n=limit or 300)
    calls = [from_judge(registry.judge(name)) for name in judges]
    tasks = list(dict.fromkeys(sample.task for sample in load_labelled(target or LABELLED)))[:limit]
    return selfcheck(tasks * repeats, generator=calls[0], judge=calls[-1])


def _facts(r: Request) -> dict[str, Any]:
    kinds = [a.diagnosis.error_types for a in r.attempts]
    scores = [a.rank[:2] for a in r.attempts]
    back = any(kinds[k] and kinds[k] == kinds[k - 2] != kinds[k - 1] for k in range(2, len(kinds)))
    return {
        "status": r.status, "passed": r.passed, "n_attempts": len(kinds), "tokens": r.tokens["total"], "judge_tokens": r.tokens["judge"],
        "latency_s": r.elapsed_s, "regressed": len(kinds) > 1 and any(s < max(scores[:k]) for k, s in enumerate(scores) if k), "oscillated": back,
        "same_again": kinds[0] == kinds[1] if len(kinds) > 1 and kinds[0] else None, "retried": len(kinds) > 1,
    }  # fmt: skip


def _measure(rows: pd.DataFrame, strategy: str) -> Iterator[Number]:
    yield proportion(rows["passed"], name=f"success [{strategy}]")
    for name, column in (("tokens", "tokens"), ("latency", "latency_s")):
        yield mean(rows[column].astype(float), name=f"{name} [{strategy}]")
    if strategy == "none":
        return
    yield proportion(rows["retried"], name=f"retry rate [{strategy}]")
    again = rows[rows["retried"]]
    columns = {"same fault again": "same_again", "regression": "regressed", "oscillation": "oscillated"}
    for name, column in columns.items():
        yield proportion(again[column].astype("Float64"), name=f"{name} [{strategy}]")
    for k in range(2, int(rows["n_attempts"].max()) + 1):
        yield proportion(rows["passed"] & (rows["n_attempts"] == k), name=f"gain of attempt {k} [{strategy}]")


def _against(requests: pd.DataFrame, strategies: Sequence[str]) -> Iterator[Number]:
    wide: Callable[[str], Any] = lambda column: requests.pivot(index="task", columns="strategy", values=column).astype(float)  # noqa: E731
    success, tokens = wide("passed"), wide("tokens")
    for base, other in pairwise(strategies):
        yield mean(success[other] - success[base], name=f"success, {other} - {base}")
        yield mean(tokens[other] - tokens[base], name=f"tokens, {other} - {base}")


def error_distribution(attempts: pd.DataFrame) -> pd.DataFrame:
    """How often each error type was found, by strategy and attempt."""
    rows = attempts.assign(error=attempts["error_types"].str.split(";")).explode("error")
    return rows[rows["error"] != ""].groupby(["strategy", "attempt", "error"]).size().rename("n").reset_index()


def promotion(attempts: pd.DataFrame, *, share: float = PROMOTE, lang: str = "en") -> pd.DataFrame:
    """Repair instructions that are needed so often that they belong in the system prompt: a suggestion, nothing is changed."""
    first = attempts[(attempts["attempt"] == 0) & (attempts["error_types"] != "")].drop_duplicates("task")
    found = first["error_types"].str.split(";").explode().value_counts() / max(1, len(first))
    rows = [{"error": e, "share": float(s), "suggestion": texts()["repair"][lang][e]} for e, s in found.items() if s >= share]
    return pd.DataFrame(rows, columns=["error", "share", "suggestion"])


def retry_monitor(retried: Sequence[bool], *, baseline: float, window: int = 50, confidence: float = 0.99) -> pd.DataFrame:
    """The share of retried requests in each full window, and an alarm where its exact lower limit lies above *baseline*."""
    rows = []
    for end in range(window, len(retried) + 1):
        k = int(sum(retried[end - window : end]))
        low = clopper_pearson(k, window, confidence=confidence)[0]
        rows.append({"request": end - 1, "rate": k / window, "low": low, "alarm": low > baseline})
    return pd.DataFrame(rows, columns=["request", "rate", "low", "alarm"])
