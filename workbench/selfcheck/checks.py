"""Check an answer mechanically: each check is one small function from a task and an answer to an issue or None."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, get_args

from workbench import extract
from workbench.text import strip_invisible

ErrorType = Literal["format", "instruction", "hallucination", "incomplete", "reasoning", "refusal"]
Check = Callable[["Task", str], "Issue | None"]
TYPES: Final[tuple[ErrorType, ...]] = get_args(ErrorType)
MAX_ISSUE: Final = 50
_CODE_SPAN: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
_BLOCK: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_BULLET: Final = re.compile(r"^([ \t]*)(?:[-*+•·▪●]\s+|[-•·▪●]|\d{1,2}[.)、．）]|[（(]\d{1,2}[)）]|[①-⑳])", re.MULTILINE)
_CITED: Final = re.compile(r"[\[【［]([^\[\]【】［］\n]{1,60})[\]】］]")
_SENTENCE: Final = re.compile(r"[。！？!?；;\n]|\.(?=\s|\Z)")


@dataclass(frozen=True)
class Issue:
    """One located problem: its type, what is wrong (<= 50 characters) and, where that is longer, the checker's own words.

    ``action`` overrides the repair of the type: ``truncated`` asks for more room instead of another text.
    """

    type: ErrorType
    text: str
    detail: str = ""
    action: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text[:MAX_ISSUE])


@dataclass(frozen=True)
class Task:
    """What is asked and what a right answer looks like. Lengths count characters without white space.

    ``language``: zh | en. ``bullets``: the exact number. ``patterns`` are regular expressions that must be found.
    ``checks`` are further checks. ``low_risk`` traffic may be judged by sample only.
    """

    question: str
    context: str = ""
    expect: Literal["text", "json", "code:python"] = "text"
    schema_keys: tuple[str, ...] = ()
    language: str | None = None
    min_chars: int = 0
    max_chars: int | None = None
    bullets: int | None = None
    banned: tuple[str, ...] = ()
    citation_ids: tuple[str, ...] | None = None
    require_citation: bool = False
    patterns: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    low_risk: bool = False

    @property
    def lang(self) -> str:
        """The language of prompts and feedback."""
        return self.language or ("zh" if re.search(r"[\u3400-\u9fff]", self.question) else "en")


@cache
def texts() -> dict[str, Any]:
    """The texts of the loop."""
    return tomllib.loads(resources.files("workbench.resources").joinpath("selfcheck.toml").read_text("utf-8"))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(texts()["patterns"][name])


def first_issues(task: Task, answer: str | None, finish_reason: str | None = "stop") -> tuple[Issue, ...]:
    """Every mechanical issue, worst first; an answer whose form is broken is looked at no further. () means it passed."""
    if finish_reason in ("length", "max_tokens"):
        return (Issue("incomplete", "cut off at the token limit", action="truncated"),)
    if finish_reason in ("content_filter", "refusal"):
        return (Issue("refusal", "the model declined"),)
    if answer is None or not answer.strip(extract.BLANK):
        return (Issue("incomplete", "empty answer"),)
    text = answer
    for gate in (_declined, *{"json": (_json,), "code:python": (_code,)}.get(task.expect, ())):
        if issue := gate(task, answer):
            return (issue,)
    if task.expect == "json":
        text = "\n".join(_strings(extract.strict(answer)))
        if issue := _declined(task, text):
            return (issue,)
    checks = (_length, _bullets, _banned, _language, _citations, _patterns)
    found = [check(task, answer if check is _length else text) for check in checks]
    return tuple(i for i in [*found, *(check(task, answer) for check in task.checks)] if i is not None)


def _declined(task: Task, answer: str) -> Issue | None:
    """A refusal declines and says nothing else; an apology, or a part that is not covered, is none."""
    clauses = [c for s in _SENTENCE.split(answer) for c in _pattern("contrast").split(s)]
    clauses = [c for clause in clauses if len(c := clause.strip(extract.BLANK + "，,。.：:*")) > 1]
    declines = [c for c in clauses if _pattern("refusal").search(c.replace("’", "'"))]
    rest = [c for c in clauses if c not in declines and not _pattern("filler").search(c.replace("’", "'"))]
    return Issue("refusal", "declines without an answer") if declines and not rest else None


def _json(task: Task, answer: str) -> Issue | None:
    try:
        value = extract.strict(answer)
    except extract.NotJSON as why:
        return Issue("format", f"not valid JSON: {why}", detail=str(why))
    if not isinstance(value, dict):
        return Issue("format", "the top level must be one JSON object")
    missing = [key for key in task.schema_keys if _blank(_at(value, key))]
    named = ", ".join(missing)
    return Issue("incomplete", f"missing: {named}", detail=f"missing or empty: {named}") if missing else None


def _at(value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    head, _, rest = key.partition(".")
    return _at(value[head], rest) if rest and isinstance(value, dict) and head in value else None


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip(extract.BLANK))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def _code(task: Task, answer: str) -> Issue | None:
    """Does the fenced code (or the whole answer) compile? Top-level await may stand in a notebook."""
    blocks = [m[2] for m in _BLOCK.finditer(answer)]
    code = textwrap.dedent("\n".join(blocks) if blocks else answer[slice(*extract.unfence(answer))])
    if not code.strip(extract.BLANK):
        return Issue("incomplete", "no code in the answer")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<answer>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as why:
        line = (code.splitlines()[why.lineno - 1 : why.lineno] or [""])[0].strip()[:60] if why.lineno else ""
        return Issue("format", f"line {why.lineno}: {why.msg}", detail=f"line {why.lineno}: {why.msg}: {line}")
    except (ValueError, OverflowError, RecursionError, MemoryError) as why:
        return Issue("format", f"does not compile: {why}")
    return None


def _length(task: Task, answer: str) -> Issue | None:
    body = answer[slice(*extract.unfence(answer))]
    n = sum(not c.isspace() and unicodedata.category(c) not in ("Mn", "Me", "Cf") for c in body)
    if task.max_chars is not None and n > task.max_chars:
        return Issue("instruction", f"{n} characters, at most {task.max_chars}")
    return Issue("incomplete", f"{n} characters, at least {task.min_chars}") if n < task.min_chars else None


def _bullets(task: Task, answer: str) -> Issue | None:
    if task.bullets is None:
        return None
    indents = [len(m[1].expandtabs(4)) for m in _BULLET.finditer(answer)]
    n = sum(i < min(indents) + 2 for i in indents)
    return None if n == task.bullets else Issue("instruction", f"{n} bullet points, {task.bullets} asked for")


def _banned(task: Task, answer: str) -> Issue | None:
    """Banned words, also spaced or dotted out; a Latin word is found as a whole word only."""
    text = strip_invisible(unicodedata.normalize("NFKC", answer)).casefold()
    for word in task.banned:
        letters = "".join(unicodedata.normalize("NFKC", word).casefold().split())
        spaced = r"[\s*_.\-·•~|/]{0,3}".join(map(re.escape, letters))
        if letters and re.search(rf"(?<![a-z0-9]){spaced}(?![a-z0-9])" if letters.isascii() else spaced, text):
            return Issue("instruction", f"banned word: {word}")
    return None


def _language(task: Task, answer: str) -> Issue | None:
    prose = _CODE_SPAN.sub(" ", answer)
    han, kana = len(re.findall(r"[\u3400-\u9fff]", prose)), len(re.findall(r"[\u3040-\u30ff\uac00-\ud7af]", prose))
    latin = len(re.findall(r"[A-Za-zÀ-ɏ]", prose))
    # One Han character carries about as much as three letters; a few foreign names do not change the language.
    wrong = {"zh": latin > max(3, 9 * han) or kana * 4 > han + kana > 0, "en": 3 * (han + kana) > latin}.get(
        task.language or "", False
    )
    return Issue("instruction", f"not in the language asked for ({task.language})") if wrong else None


def _citations(task: Task, answer: str) -> Issue | None:
    if task.citation_ids is None:
        return None
    known = {_plain_id(i) for i in task.citation_ids}
    shapes = {re.sub(r"\d+", "#", i) for i in known} | {"#"}
    groups = (re.split(r"[,，、;；\s–—~-]+", m[1]) for m in _CITED.finditer(_CODE_SPAN.sub(" ", answer)))
    cited = [i for group in groups for part in group if re.sub(r"\d+", "#", i := _plain_id(part)) in shapes]
    unknown = [i for i in cited if i not in known]
    if unknown:
        return Issue("hallucination", f"[{unknown[0][:20]}] is not in the material")
    return Issue("instruction", "no citation, one is required") if task.require_citation and not cited else None


def _plain_id(text: str) -> str:
    folded = extract.fold_width(text).strip().casefold().lstrip("^")
    return str(int(folded)) if folded.isdecimal() and len(folded) < 20 else folded


def _patterns(task: Task, answer: str) -> Issue | None:
    missing = [p for p in task.patterns if not re.search(p, answer)]
    return Issue("instruction", "a required pattern is missing", detail=f"not found: {missing[0]}") if missing else None
