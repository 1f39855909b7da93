"""Send many dialogues through a pipeline: progress, cancel, resume, replay; the result is a run directory."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from workbench import __version__, prompts
from workbench.confirm import Arm, DoubleConfirmation
from workbench.corpus import Corpus, load_corpus
from workbench.errors import RunMismatch, SetupError, StoreError
from workbench.frames import Item, assessments_frame, outcomes_frame
from workbench.judging import Asker
from workbench.schema import Dialogue, Outcome
from workbench.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from workbench.budget import Budget
    from workbench.judges.base import Judge

T = TypeVar("T")
SPARE: Final = 4  # dialogues under way per call in flight: some wait out a pause that the endpoint asked for
ParseRetry = Literal["feedback", "blind", "none"]
LEDGER: Final = "ledger.db"
MANIFEST: Final = "manifest.json"
DIALOGUES: Final = "dialogues.jsonl"
_OURS: Final = (MANIFEST, DIALOGUES, LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm", f"{LEDGER}-journal", ".write-test")


def sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop is already running (then in a thread of its own)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[Any] = []

    def go() -> None:
        try:
            box.append((True, asyncio.run(work)))
        except BaseException as error:
            box.append((False, error))

    thread = threading.Thread(target=go, name="workbench-sync")
    thread.start()
    thread.join()
    ok, value = box[0]
    if not ok:
        raise value
    return value  # type: ignore[no-any-return]


class Run:
    """A run directory: manifest, dialogues, the ledger of every call, and the tidy tables made from it.

    ``frame`` has one row per assessment, ``outcomes`` one per dialogue x turn x arm x repeat (docs/architecture.md, Frames).
    """

    def __init__(
        self, path: Path, manifest: dict[str, Any], *, corpus: Corpus | None = None, pipeline: DoubleConfirmation | None = None
    ) -> None:
        self.path, self.manifest = path, manifest
        self._corpus, self._pipeline = corpus, pipeline

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run directory; raises SetupError when it is none."""
        from workbench.corpus import resolve

        folder = resolve(path)
        try:
            manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        except (OSError, ValueError):
            raise SetupError(f"'{path}' is not a run directory (no readable {MANIFEST}): make one with `workbench run`") from None
        return cls(folder, manifest)

    def __repr__(self) -> str:
        m = self.manifest
        return f"Run({self.path.name!r}, dialogues={m['n_dialogues']}, done={m['done']}/{m['total']}, unknown={m['unknown']}, status={m['status']!r})"

    @cached_property
    def corpus(self) -> Corpus:
        return self._corpus if self._corpus is not None else load_corpus(self.path / DIALOGUES, allow_real=True)

    @cached_property
    def pipeline(self) -> DoubleConfirmation:
        """The pipeline as it was run; judges are rebuilt from the manifest and make no call until asked."""
        return self._pipeline if self._pipeline is not None else pipeline_from(self.manifest["config"])

    def store(self, *, read_only: bool = True) -> Store:
        return Store(f"sqlite:///{self.path / LEDGER}", read_only=read_only)

    def items(self) -> Iterator[Item]:
        """Finished work, in the order of the dialogues."""
        with self.store() as store:
            rows = dict(store.outcomes(self.manifest["run_id"]))
        arms = arms_from(self.manifest["config"])
        for unit in units(self.corpus, self.manifest["config"]["turns"], self.manifest["config"]["repeats"]):
            for arm in arms:
                row = rows.get(unit.key(arm))
                if row is not None:
                    yield unit.item(arm, Outcome.model_validate(row["outcome"]), row)

    @cached_property
    def _tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        items = list(self.items())
        with self.store() as store:
            calls = {row["call_key"]: row for row in store.calls(self.manifest["run_id"])}
        return assessments_frame(items, calls), outcomes_frame(items)

    @property
    def frame(self) -> pd.DataFrame:
        return self._tables[0]

    @property
    def outcomes(self) -> pd.DataFrame:
        return self._tables[1]


class Unit:
    """One dialogue at one of its user turns in one repeat: L1 is asked once, then L2 in every arm."""

    __slots__ = ("dialogue", "repeat", "turn", "whole")

    def __init__(self, whole: Dialogue, turn: int, repeat: int) -> None:
        self.whole, self.turn, self.repeat = whole, turn, repeat
        self.dialogue = whole.upto(turn)

    def key(self, arm: Arm) -> str:
        return f"{self.whole.id}|{self.turn}|{self.repeat}|{arm.name}|{arm.paraphrase}"

    def item(self, arm: Arm, outcome: Outcome, row: dict[str, Any]) -> Item:
        exposures = (row["exposures"][0], row["exposures"][1])
        return Item(self.dialogue, self.turn, arm.name, arm.paraphrase, row["order"], self.repeat, exposures, outcome)


def units(corpus: Iterable[Dialogue], turns: str, repeats: int) -> Iterator[Unit]:
    """Work in a fixed order; ``turns`` is last (the text under analysis) or all (every user turn, for drift)."""
    for d in corpus:
        for turn in range(d.n_user_turns) if turns == "all" else (d.n_user_turns - 1,):
            for repeat in range(repeats):
                yield Unit(d, turn, repeat)


def shuffled(arms: Sequence[Arm], unit: Unit, seed: int) -> list[tuple[int, Arm]]:
    """The arms in this unit's own random order (seeded), each with its position."""
    order = list(arms)
    random.Random(f"{seed}|{unit.whole.id}|{unit.turn}|{unit.repeat}").shuffle(order)
    return list(enumerate(order))


def arms_from(config: dict[str, Any], *, rebuild: bool = False) -> list[Arm]:
    """The arms of a stored run, in declared order; *rebuild* makes an arm's own judge from its description."""
    from workbench.judges.registry import judge_from
    from workbench.schema import RiskLevel

    made: dict[str, Any] = {"told": RiskLevel, "judge": judge_from if rebuild else lambda _: None}
    return [Arm(**{k: made[k](v) if v and k in made else v for k, v in a.items()}) for a in config["arms"]]


def _arm_config(arm: Arm) -> dict[str, Any]:
    names = ("name", "anchor", "paraphrase", "context", "trend", "prompt", "version")
    told = arm.told.value if arm.told else None
    return {n: getattr(arm, n) for n in names} | {"told": told, "judge": arm.judge.describe() if arm.judge else None}


def pipeline_from(config: dict[str, Any]) -> DoubleConfirmation:
    """Rebuild a pipeline from a manifest's configuration."""
    from workbench.judges.registry import judge_from

    settings = config["pipeline"]
    names = ("l2_policy", "combine", "context", "trend", "context_messages", "confirm_confidence", "negative_days", "version")
    arbiter = judge_from(settings["arbiter"]) if settings["arbiter"] else None
    return DoubleConfirmation(
        judge_from(settings["l1"]), judge_from(settings["l2"]), arbiter=arbiter, **{n: settings[n] for n in names}
    )


def exposure(judge: Judge, dialogue: Dialogue) -> str:
    """How this judge's assessment of this dialogue may be used; judges that learnt from no corpus have not seen it."""
    ask = getattr(judge, "exposure", None)
    return str(ask(dialogue)) if ask else "unseen"


def configuration(
    pipeline: DoubleConfirmation, corpus: Corpus, arms: Sequence[Arm], *, repeats: int, turns: str, seed: int, parse_retry: str
) -> dict[str, Any]:
    """Everything that decides the results: two runs with equal configurations may be mixed, others may not."""
    return {
        "pipeline": pipeline.describe(), "arms": [_arm_config(a) for a in arms], "repeats": repeats, "turns": turns, "seed": seed,
        "parse_retry": parse_retry, "corpus_sha256": corpus.sha256, "prompts_sha256": prompts.resources_hash(),
    }  # fmt: skip


async def run(
    pipeline: DoubleConfirmation, corpus: Corpus | Sequence[Dialogue], *, out: str | Path | None = None, arms: Sequence[Arm] = (Arm(),),
    repeats: int = 1, turns: str = "last", concurrency: int = 16, resume: bool = False, fresh: bool = False, budget: Budget | None = None,
    parse_retry: ParseRetry = "feedback", seed: int = 0, progress: bool | Callable[[int, int], None] = True,
) -> Run:  # fmt: skip
    """Assess every dialogue and keep everything in a run directory.

    ``out`` is the directory (a temporary one when None, kept as long as the Run object). An existing run is refused
    unless ``resume`` (same configuration: settled calls are kept, unknowns are tried again) or ``fresh`` (replaced).
    ``concurrency`` is the number of calls in flight at one endpoint. Cancelling leaves a resumable run. ``progress`` may be a function
    that is told (done, total).
    Raises SetupError, RunMismatch, StoreError; judge failures become unknowns.
    """
    corpus = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    config = configuration(pipeline, corpus, arms, repeats=repeats, turns=turns, seed=seed, parse_retry=parse_retry)
    _check(corpus, arms, repeats, turns, concurrency)
    folder = _folder(out, config, resume=resume, fresh=fresh)
    total = sum(1 for _ in units(corpus, turns, repeats)) * len(arms)
    if not (folder / DIALOGUES).exists():
        _write(folder / DIALOGUES, (json.dumps(d.model_dump(mode="json"), ensure_ascii=False) + "\n" for d in corpus))
    with Store(f"sqlite:///{folder / LEDGER}") as store:
        run_id = store.begin_run(config)
        manifest = {
            "run_id": run_id, "workbench": __version__, "status": "running", "n_dialogues": len(corpus), "total": total, "done": 0, "unknown": 0,
            "synthetic": all(d.synthetic for d in corpus), "config": config,
        }  # fmt: skip
        asker = Asker(store=store, run_id=run_id, budget=budget, parse_retry=parse_retry, concurrency=concurrency)
        work = _Work(pipeline.using(asker), store, run_id, arms, seed)
        work.load(corpus, turns, repeats)
        _write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
        status = "interrupted"
        try:
            with _bar(total, work.done, show=progress) as bar:
                await work.all(units(corpus, turns, repeats), concurrency, bar)
            status = "complete"
        except StoreError:
            status = "failed"
            raise
        finally:
            manifest |= {"status": status, "done": work.done, "unknown": work.unknown}
            _write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
    result = Run(folder, manifest, corpus=corpus, pipeline=pipeline)
    if out is None:
        weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


class _Work:
    """The state of one run while it runs."""

    def __init__(self, pipeline: DoubleConfirmation, store: Store, run_id: str, arms: Sequence[Arm], seed: int) -> None:
        self.pipeline, self.store, self.run_id, self.arms, self.seed = pipeline, store, run_id, arms, seed
        self.finished: set[str] = set()
        self.done = self.unknown = 0

    def load(self, corpus: Corpus, turns: str, repeats: int) -> None:
        """What an earlier, interrupted run already settled; outcomes with an unknown are tried again."""
        self.finished = {key for key, row in self.store.outcomes(self.run_id) if row["settled"]}
        self.done = len(self.finished)

    async def all(self, work: Iterator[Unit], concurrency: int, bar: Any) -> None:
        async def worker() -> None:
            for unit in work:
                await self.one(unit, bar)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(SPARE * concurrency):
                    group.create_task(worker())
        except BaseExceptionGroup as failures:  # the first reason is the one to tell: a full disk, not sixteen of them
            raise failures.exceptions[0] from None

    async def one(self, unit: Unit, bar: Any) -> None:
        todo = [(order, arm) for order, arm in shuffled(self.arms, unit, self.seed) if unit.key(arm) not in self.finished]
        if not todo:
            return
        l1 = await self.pipeline.assess_l1(unit.dialogue, repeat=unit.repeat)
        seen = exposure(self.pipeline.l1, unit.whole)
        for order, arm in todo:
            outcome = await self.pipeline.assess(unit.dialogue, arm=arm, repeat=unit.repeat, l1=l1)
            exposures = [seen, exposure(arm.judge or self.pipeline.l2, unit.whole)]
            row = {"order": order, "exposures": exposures, "settled": not outcome.incomplete, "outcome": outcome.model_dump(mode="json")}  # fmt: skip
            await self.store.record_outcome(self.run_id, unit.key(arm), row)
            self.done += 1
            self.unknown += outcome.incomplete
            bar.update(1)
            bar.set_postfix_str(f"unknown {self.unknown}", refresh=False)


def _bar(total: int, done: int, *, show: bool | Callable[[int, int], None]) -> Any:
    from tqdm.auto import tqdm

    if callable(show):
        counted = itertools.count(done + 1)
        show(done, total)
        return nullcontext(SimpleNamespace(update=lambda _: show(next(counted), total), set_postfix_str=lambda *_, **__: None))
    return tqdm(total=total, initial=done, unit="outcome", disable=None if show else True, mininterval=0.5)


def _check(corpus: Corpus, arms: Sequence[Arm], repeats: int, turns: str, concurrency: int) -> None:
    keys = [(a.name, a.paraphrase) for a in arms]
    for wrong, says in (
        (len(corpus) == 0, "there is no dialogue to assess: check --lang, --split and --limit"),
        (not arms or len(set(keys)) < len(keys), "arms must be at least one, each with its own name and paraphrase"),
        (repeats < 1, "repeats must be at least 1"),
        (turns not in ("last", "all"), "turns must be 'last' or 'all'"),
        (concurrency < 1, "concurrency must be at least 1"),
        (len({d.id for d in corpus}) < len(corpus), "dialogue ids must be unique"),
    ):
        if wrong:
            raise SetupError(says)


def _folder(out: str | Path | None, config: dict[str, Any], *, resume: bool, fresh: bool) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="workbench-run-"))
    folder = Path(out).expanduser()
    if (folder / MANIFEST).exists():
        old = Run.open(folder).manifest["config"]
        if fresh:
            for name in _OURS:
                (folder / name).unlink(missing_ok=True)
        elif not resume:
            raise SetupError(
                f"'{out}' already holds a run: --resume to continue it, --fresh to replace it, or choose another --out"
            )
        elif json.loads(json.dumps(config)) != old:
            raise RunMismatch(
                f"'{out}' was made with another configuration ({', '.join(differences(config, old))}): choose another --out"
            )
    elif folder.exists():
        # A run killed before its manifest was written has made no call: what it left is nothing to keep.
        left = {p.name: p for p in folder.iterdir()}
        if set(left) - {*_OURS, *(f"{name}.part" for name in _OURS)}:
            raise SetupError(f"'{out}' is not empty and is not a run directory: choose another --out")
        for path in left.values():
            path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".write-test").touch()
        (folder / ".write-test").unlink()
    except OSError as error:
        raise SetupError(f"cannot write to '{out}' ({error.strerror}): choose another --out") from None
    return folder


def differences(one: Any, two: Any, path: str = "") -> list[str]:
    """The dotted names of the settings that differ."""
    if isinstance(one, dict) and isinstance(two, dict):
        return [d for k in sorted({*one, *two}) for d in differences(one.get(k), two.get(k), f"{path}.{k}".lstrip("."))]
    return [] if json.loads(json.dumps(one)) == two else [path]


def _write(path: Path, text: str | Iterable[str]) -> None:
    """Write whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines([text] if isinstance(text, str) else text)
    part.replace(path)


def replayed(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Recompute both tables of a run from its ledger alone; raises ReplayMiss where a call was never recorded."""

    async def recompute(store: Store) -> list[Item]:
        asker = Asker(store=store, run_id=run.manifest["run_id"], replay=True, parse_retry=config["parse_retry"])
        pipeline, items = run.pipeline.using(asker), []
        for unit in units(run.corpus, config["turns"], config["repeats"]):
            ordered = {(a.name, a.paraphrase): o for o, a in shuffled(arms, unit, config["seed"])}
            l1 = await pipeline.assess_l1(unit.dialogue, repeat=unit.repeat)
            for arm in arms:
                outcome = await pipeline.assess(unit.dialogue, arm=arm, repeat=unit.repeat, l1=l1)
                seen = (exposure(pipeline.l1, unit.whole), exposure(arm.judge or pipeline.l2, unit.whole))
                items.append(
                    Item(
                        unit.dialogue,
                        unit.turn,
                        arm.name,
                        arm.paraphrase,
                        ordered[arm.name, arm.paraphrase],
                        unit.repeat,
                        seen,
                        outcome,
                    )
                )
        return items

    config, arms = run.manifest["config"], arms_from(run.manifest["config"], rebuild=True)
    with run.store() as store:
        items = sync(recompute(store))
        calls = {row["call_key"]: row for row in store.calls(run.manifest["run_id"])}
    return assessments_frame(items, calls), outcomes_frame(items)
