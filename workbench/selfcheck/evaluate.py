"""Ask a judge about an answer: the rubric prompt, the reading of its reply, and the gate that is code."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

from workbench import extract
from workbench.judges.base import Reply
from workbench.selfcheck.checks import Task, texts
from workbench.selfcheck.diagnose import Diagnosis, Verdict, type_of

THRESHOLD: Final = 8.0
Messages = tuple[dict[str, str], ...]


class JudgeFault(ValueError):
    """The judge's reply is no verdict; the text says why and quotes nothing."""


def judge_messages(task: Task, answer: str) -> Messages:
    """The rubric, then question, material and answer between markers that carry a hash of all of it."""
    words = texts()["loop"][task.lang]
    material = words["context"].format(context=task.context.strip() or words["none"])
    body = f"{words['question'].format(question=task.question)}\n{material}\n---\n{answer}"
    mark = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:12]
    return (
        {"role": "system", "content": texts()["rubric"][task.lang].strip()},
        {"role": "user", "content": f"<<{mark}\n{body}\n{mark}>>"},
    )


def rubric_hash() -> str:
    """Twelve hex digits that change whenever a rubric text does."""
    return hashlib.sha256(repr(sorted(texts()["rubric"].items())).encode()).hexdigest()[:12]


def read_verdict(reply: Reply, answer: str = "") -> Verdict:
    """The judge's one verdict; raises ``JudgeFault`` when it is unreadable, incomplete, contradictory or an echo of the answer.

    ``score`` is a finite number in [0, 10] or its plain text, ``passed`` a boolean or true/false in words. Unknown error
    types are dropped, known ones kept whatever their spelling.
    """
    if reply.text is None or reply.finish_reason in ("length", "content_filter", "max_tokens"):
        raise JudgeFault("no complete reply")
    try:
        found = [f for f in extract.scan(reply.text).found if isinstance(f.value, dict) and f.value.keys() & {"score", "passed"}]
    except extract.NotJSON as why:
        raise JudgeFault(str(why)) from None
    values = [f.value for f in found if f.source not in answer]
    if not values or any(value != values[0] for value in values):
        raise JudgeFault("not exactly one verdict")
    value = values[0]
    score, passed = _score(value.get("score")), value.get("passed")
    passed = {"true": True, "false": False}.get(passed.strip().casefold()) if isinstance(passed, str) else passed
    if score is None or not isinstance(passed, bool):
        raise JudgeFault("score must be a number from 0 to 10 and passed true or false")
    hint = value.get("fix_hint")
    known = tuple(dict.fromkeys(t for name in _names(value.get("error_types")) if (t := type_of(name))))
    return Verdict(score, passed, known, tuple(map(str, _names(value.get("issues")))), hint if isinstance(hint, str) else "")


def _names(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part for part in value.replace("，", ",").replace("、", ",").split(",") if part.strip()]
    return value if isinstance(value, list) else []


def _score(value: Any) -> float | None:
    if isinstance(value, str):
        plain = extract.fold_width(value).strip()
        value = float(plain) if plain.replace(".", "", 1).isdecimal() and plain.isascii() else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= 10 else None


def passes(verdict: Verdict, diagnosis: Diagnosis, *, threshold: float = THRESHOLD) -> bool:
    """The gate: the judge says so AND the score reaches *threshold* AND no fatal type is named."""
    return verdict.says_passed and verdict.score >= threshold and not diagnosis.fatal
