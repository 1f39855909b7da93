"""Find wording that promises what only a review can grant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from workbench.folding import fold, grammar

_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff"
# Anything that is neither a word nor a clause mark between two Han characters is a separator: 保 证, 保-证.
_SEPARATOR: Final = re.compile(rf"(?<=[{_HAN}])(?:[^\w，。；！？、：:,;!?%()（）…\n]{{1,3}}|\n|_{{1,3}})(?=[{_HAN}])")
# One character at a time, whatever stands between, is one word: 保、证、赔、偿.
_SPELLED: Final = re.compile(
    rf"(?<![{_HAN}])[{_HAN}](?:[^\w]{{1,3}}[{_HAN}]){{3,}}(?![{_HAN}])|(?<![a-z])[a-z](?:[\s.\-_*]{{1,2}}[a-z]){{2,}}(?![a-z])"
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A promise: ``text`` stands at [start:end) of the checked text; ``pattern`` names the rule."""

    text: str
    start: int
    end: int
    pattern: str


@dataclass(frozen=True, slots=True)
class PromiseCheck:
    """``forbidden`` is true when anything is promised."""

    forbidden: bool
    hits: tuple[Hit, ...]


def check_promises(text: str, *, about: str = "payout") -> PromiseCheck:
    """Does *text* promise a payout (or, *about* = "care", that someone will be well or that help is on its way)?

    A negation counts in the same clause directly before the certainty. Policy: what a named other person is said to
    have said, and questions, are not promises; quotation marks alone exempt nothing; a condition is still a promise.
    """
    folded = fold(text)
    kept, read = squeezed(folded.text)
    hits: dict[int, Hit] = {}
    for name, pattern in grammar("promises", about).items():
        if name.endswith(("_sure", "_object", "_between")):
            continue
        for match in pattern.finditer(read):
            if not _excused(read, match.start(), match.end()):
                start, end = folded.span(kept[match.start()], kept[match.end() - 1] + 1)
                hits.setdefault(start, Hit(text[start:end], start, end, name))
    return PromiseCheck(bool(hits), tuple(hits[k] for k in sorted(hits)))


def squeezed(text: str) -> tuple[list[int], str]:
    """The text without separators inside words, and where each character that is left came from."""
    drop = {i for m in _SEPARATOR.finditer(text) for i in range(*m.span())}
    for match in _SPELLED.finditer(text):
        drop.update(i for i in range(*match.span()) if not text[i].isalnum())
    kept = [i for i in range(len(text)) if i not in drop]
    return kept, "".join(text[i] for i in kept)


def _excused(text: str, start: int, end: int) -> bool:
    """Denied in the same clause, asked, or reported of someone else."""
    g = grammar("promises", "context")
    before = g["clause"].split(text[max(0, start - 60) : start])[-1]
    stop = g["clause"].search(text, end)
    sentence = before + text[start : (stop.end() if stop else len(text))][:80]
    if g["reported"].search(before) or g["question_end"].search(sentence.strip()):
        return True
    plain = g["not_negation"].sub("|", before)
    if re.search(rf"{g['question'].pattern}(?:{g['between'].pattern})*$", plain):
        return True
    denials = re.search(
        rf"(?:{g['negation_zh'].pattern}|{g['negation_en'].pattern})(?:{g['between'].pattern}|{g['negation_en'].pattern})*$",
        plain,
    )
    if not denials:
        return False
    count = len(re.findall(rf"{g['negation_zh'].pattern}|{g['negation_en'].pattern}", denials[0]))
    return count % 2 == 1
