"""Decide what follows a failed answer: pure code, no model and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from workbench.selfcheck.checks import Task, texts
from workbench.selfcheck.diagnose import Diagnosis
from workbench.text import strip_invisible

Strategy = Literal["none", "blind", "feedback", "restructure"]
LADDER: Final = (0.0, 0.3, 0.7)
LARGER: Final = 4  # a truncated answer is asked again with this many times the tokens
MAX_FEEDBACK: Final = 600  # characters that any retry adds to the prompt
_MAX_DETAIL, _MAX_HINT = 140, 100
Messages = tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Step:
    """One call to make: the ``action`` it stands for, the error it repairs, temperature, room and the text added."""

    action: str = "ask"
    error: str | None = None
    temperature: float = LADDER[0]
    feedback: str = ""
    more_tokens: int = 1

    @property
    def inject(self) -> bool:
        return bool(self.feedback)


def parse_feedback(detail: str, lang: str = "en") -> str:
    """What a judge is told about an answer that could not be read: the parser's message, bounded, in *lang*."""
    return str(texts()["loop"]["en" if lang == "en" else "zh"]["parse"]).format(detail=_one_line(detail, 200))


def next_step(task: Task, diagnosis: Diagnosis, attempt: int, *, strategy: Strategy = "restructure") -> Step:
    """The step after failed attempt number *attempt* (from 1).

    The ladder heats every type but refusal, which is softened at 0. From the third attempt the structure changes too.
    """
    if strategy == "blind":
        return Step("blind", next(iter(diagnosis.error_types), None))
    refused = "refusal" in diagnosis.error_types
    return Step(
        action=texts()["action"][diagnosis.action], error=next(iter(diagnosis.error_types), None),
        temperature=LADDER[0] if refused else LADDER[min(attempt, len(LADDER) - 1)],
        feedback=_feedback(task, diagnosis, restructure=strategy == "restructure" and attempt >= 2),
        more_tokens=LARGER if diagnosis.action == "truncated" else 1,
    )  # fmt: skip


def _feedback(task: Task, diagnosis: Diagnosis, *, restructure: bool) -> str:
    """Repair of the first type, the checker's words, the last hint; repairs of further types as far as they fit."""
    words, repair = texts()["loop"][task.lang], texts()["repair"][task.lang]
    parts = [words["feedback"], repair[diagnosis.action]]
    if diagnosis.detail:
        parts.append(words["found"].format(detail=_one_line(diagnosis.detail, _MAX_DETAIL)))
    if hint := _one_line(diagnosis.fix_hint, _MAX_HINT):
        parts.append(words["hint"].format(hint=hint))
    if restructure:
        parts.append(words["restructure"])
    for kind in diagnosis.error_types[1:]:
        if sum(map(len, parts)) + len(parts) + len(repair[kind]) < MAX_FEEDBACK:
            parts.insert(2, repair[kind])
    return "\n".join(parts)[: MAX_FEEDBACK - 2]


def _one_line(text: str, limit: int) -> str:
    plain = " ".join(strip_invisible(text).split()).replace("“", "'").replace("”", "'").replace('"', "'")
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def messages(task: Task, step: Step) -> Messages:
    """The prompt of one attempt: the task's own, plus the last feedback; earlier answers never travel."""
    words = texts()["loop"][task.lang]
    rules: list[tuple[Any, str, dict[str, Any]]] = [
        (task.expect == "json", "json", {"keys": ", ".join(task.schema_keys)}), (task.expect == "code:python", "code", {}),
        (task.language, "language", {"name": texts()["language_name"].get(task.language or "", {}).get(task.lang, task.language)}),
        (task.max_chars, "max_chars", {"n": task.max_chars}), (task.min_chars, "min_chars", {"n": task.min_chars}),
        (task.bullets, "bullets", {"n": task.bullets}), (task.banned, "banned", {"words": ", ".join(task.banned)}),
        (task.require_citation, "citation", {}),
    ]  # fmt: skip
    asked = [
        words["question"].format(question=task.question),
        words["context"].format(context=task.context.strip() or words["none"]),
    ]
    asked += [words[name].format(**slots) for wanted, name, slots in rules if wanted]
    content = "\n".join(asked) + (f"\n\n{step.feedback}" if step.feedback else "")
    return ({"role": "system", "content": words["system"]}, {"role": "user", "content": content})
