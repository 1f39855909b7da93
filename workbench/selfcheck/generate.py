"""Draft new synthetic dialogues through the loop: checked by machine and judge, kept apart as unreviewed, never in the corpus."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from workbench import extract
from workbench.corpus import DEFAULT, load_corpus, resolve
from workbench.errors import SetupError
from workbench.schema import FLAGS, Dialogue, RiskLevel
from workbench.selfcheck.checks import Check, Issue, Task, texts
from workbench.selfcheck.engine import Engine, Generate, Result, from_judge

DRAFTS: Final = "data/drafts"
SIMILAR: Final = 0.5  # Jaccard share of common 5-character pieces from which two dialogues are near-duplicates


def _pieces(dialogue: Dialogue) -> frozenset[str]:
    text = re.sub(r"\W+", "", "".join(t.content for t in dialogue.turns)).casefold()
    return frozenset(text[i : i + 5] for i in range(max(1, len(text) - 4)))


def names_a_method(text: str) -> bool:
    """Does *text* name a method, tool or place of self-harm? The list is kept as hashes, so that it is not itself a list."""
    plain = text.casefold()
    han = re.sub(r"[^\u3400-\u9fff]+", " ", plain)
    pieces = {han[i : i + n] for n in (2, 3, 4) for i in range(len(han) - n + 1)} | set(re.findall(r"[a-z]+", plain))
    hashes = {hashlib.sha256(f"method:{piece}".encode()).hexdigest()[:12] for piece in pieces if piece.strip() == piece}
    return bool(hashes & set(texts()["drafts"]["method_hashes"]))


def draft_of(answer: str, *, lang: str, phenomenon: str, created: date) -> Dialogue:
    """The dialogue in a generator's answer; raises ValueError (pydantic's included) when it is none."""
    value = extract.strict(answer)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    kept = {key: value[key] for key in ("turns", "gold", "scenario", "rationale", "trend") if key in value}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:10]
    name = f"draft-{lang}-{re.sub(r'[^a-z0-9_]+', '_', phenomenon.casefold())[:40]}-{digest}"
    made = {"synthetic": True, "status": "unreviewed", "created": created.isoformat()}
    return Dialogue.model_validate(
        kept | {"id": name, "family": name, "lang": lang, "phenomenon": phenomenon, "provenance": made}
    )


def _problems(d: Dialogue, level: RiskLevel, seen: Iterable[frozenset[str]]) -> Iterator[str]:
    from workbench.crisis import unlisted_numbers

    gold, text = d.gold, "\n".join(t.content for t in d.turns)
    if [t.role for t in d.turns] != ["user", "assistant"] * (len(d.turns) // 2) + ["user"]:
        yield "roles must alternate and start with user"
    if gold is None or gold.risk_level is not level:
        yield f"gold.risk_level must be {level}"
    elif not set(gold.flags) <= set(FLAGS) or (gold.flags and level > RiskLevel.MEDIUM):
        yield "flags must be of fiction, quote, third_party, joke, and cap the level at medium"
    elif gold.confirm != (level is RiskLevel.CRITICAL and not gold.flags):
        yield "confirm must be true exactly for critical without flags"
    elif level not in gold.acceptable_levels:
        yield "acceptable_levels must contain risk_level"
    if names_a_method(text):
        yield "remove every method, tool, dose and place of self-harm"
    if unlisted_numbers(text, None) or re.search(r"https?://|www\.|@\w", text):
        yield "remove phone numbers, addresses and handles"
    mine = _pieces(d)
    if any(len(mine & other) >= SIMILAR * len(mine | other) for other in seen):
        yield "too close to an existing dialogue: choose another situation and other words"


def draft_check(level: RiskLevel, lang: str, phenomenon: str, created: date, seen: Iterable[frozenset[str]]) -> Check:
    """One check for the loop: schema, invariants, no method, no number, nothing near an existing dialogue."""

    def check(task: Task, answer: str) -> Issue | None:
        try:
            d = draft_of(answer, lang=lang, phenomenon=phenomenon, created=created)
        except ValidationError as why:
            first = why.errors(include_input=False, include_url=False)[0]
            return Issue("format", "off the schema", detail=f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except ValueError as why:
            return Issue("format", "off the schema", detail=str(why))
        problem = next(_problems(d, level, seen), None)
        return None if problem is None else Issue("instruction", problem, detail=problem)

    return check


async def generate(
    generator: Generate, judge: Generate, *, phenomenon: str, level: str, lang: str, n: int, created: date,
    existing: Iterable[Dialogue] = (), turns: int = 5, **settings: Any,
) -> tuple[list[Dialogue], list[Result]]:  # fmt: skip
    """Up to *n* drafts that passed, one request of the loop each, and every request's result. *settings* go to the engine."""
    wanted, seen = RiskLevel(level), [_pieces(d) for d in existing]
    words = {key: text.format(phenomenon=phenomenon, level=level, turns=turns) for key, text in texts()["generate"][lang].items()}
    check = draft_check(wanted, lang, phenomenon, created, seen)
    task = Task(**words, expect="json", schema_keys=("turns", "gold", "rationale"), language=lang, checks=(check,))
    engine = Engine(generator, judge, **({"max_tokens": 2000} | settings))
    drafts: list[Dialogue] = []
    results = []
    for _ in range(n):
        results.append(result := await engine.run(task))
        if result.passed and result.best and result.best.answer:
            drafts.append(draft_of(result.best.answer, lang=lang, phenomenon=phenomenon, created=created))
            seen.append(_pieces(drafts[-1]))
    return drafts, results


def write_drafts(drafts: Iterable[Dialogue], out: str | Path) -> Path:
    """Append to a JSONL file for manual review; refuses a place inside the corpus."""
    path = Path(out)
    if resolve(DEFAULT).resolve() in path.resolve().parents:
        raise SetupError(f"drafts never go into {DEFAULT}: choose another file, such as {DRAFTS}/drafts.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(d.model_dump(mode="json"), ensure_ascii=False) + "\n" for d in drafts)
    return path


def generate_from_cli(args: Any) -> str:
    """``workbench corpus generate``: reads phenomenon, level, lang, n, judge, out and dialogues from *args*; returns what to print."""
    from workbench.judges.registry import judge
    from workbench.runner import sync

    if missing := [f"--{name}" for name in ("phenomenon", "level", "judge") if not getattr(args, name)]:
        raise SetupError(f"corpus generate needs {', '.join(missing)}")
    if args.level not in [level.value for level in RiskLevel]:
        raise SetupError(f"unknown level '{args.level}': choose one of low, medium, high, critical")
    ask, lang, today = from_judge(judge(args.judge)), args.lang if args.lang in ("zh", "en") else "en", date.today()
    drafts, results = sync(generate(
        ask, ask, phenomenon=args.phenomenon, level=args.level, lang=lang, n=args.n, created=today, existing=load_corpus(args.dialogues),
    ))  # fmt: skip
    path = write_drafts(drafts, args.out or f"{DRAFTS}/{lang}-{args.level}.jsonl")
    reasons = sorted({r.status for r in results if not r.passed})
    kept = f"{len(drafts)} of {args.n} drafts passed and were added, unreviewed, to {path}"
    return kept + (f"; the others ended as {', '.join(reasons)}" if reasons else "")
