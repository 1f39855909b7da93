"""Put mechanical issues and the judge's verdict together: error types in a stable order, located issues, one fix hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.selfcheck.checks import MAX_ISSUE, TYPES, ErrorType, Issue, texts


@dataclass(frozen=True)
class Verdict:
    """What the judge said. ``score`` is 0..10; ``says_passed`` is its own word, which never passes alone."""

    score: float
    says_passed: bool
    error_types: tuple[ErrorType, ...] = ()
    issues: tuple[str, ...] = ()
    fix_hint: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What was wrong with one answer. ``action`` is the repair of the first type; ``detail`` is the checker's own text."""

    error_types: tuple[ErrorType, ...] = ()
    issues: tuple[str, ...] = ()
    fix_hint: str = ""
    action: str = "generic"
    detail: str = ""

    @property
    def fatal(self) -> bool:
        """Fabrication, illegal format or refusal: vetoes any score."""
        return any(t in texts()["fatal"] for t in self.error_types)


def type_of(name: object) -> ErrorType | None:
    """The error type a judge meant; None for a name that is not one of the six."""
    word = str(name).strip().casefold()
    word = texts()["alias"].get(word, word)
    return next((t for t in TYPES if t == word), None)


def diagnose(issues: Sequence[Issue] = (), verdict: Verdict | None = None) -> Diagnosis:
    """Mechanical findings first, then the judge's; types without repeats, issues of at most 50 characters."""
    said = verdict or Verdict(0, False)
    types = tuple(dict.fromkeys([*(i.type for i in issues), *said.error_types]))
    located = tuple(dict.fromkeys([*(i.text for i in issues), *(text[:MAX_ISSUE] for text in said.issues)]))
    first = next((i.action for i in issues if i.action), types[0] if types else "generic")
    return Diagnosis(types, located, said.fix_hint, first, next((i.detail or i.text for i in issues), ""))
