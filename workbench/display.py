"""Show one dialogue, assessment or outcome: inert HTML in Jupyter, plain text elsewhere."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from workbench.schema import DIMENSIONS, Assessment, Condition, Dialogue, Outcome
from workbench.text import inert, inert_html


@cache
def _resource(name: str) -> str:
    return resources.files("workbench.resources").joinpath(name).read_text("utf-8")


@cache
def wording() -> dict[str, Any]:
    """The words shown: ``content_note``, ``conditions`` (name -> sentence) and ``marks`` (level -> bar)."""
    return tomllib.loads(_resource("display.toml"))


def condition_words(name: str) -> str:
    """A condition or guard in words."""
    return str(wording()["conditions"].get(name, name))


def card(*parts: str) -> str:
    """One fragment that carries its own style. MathJax is told to keep out: text between dollars stays text."""
    return f'<style>{_resource("display.css")}</style><div class="wb mathjax_ignore tex2jax_ignore">{"".join(parts)}</div>'


def level_html(level: object) -> str:
    """A level as a chip: a word and a bar mark, so that colour carries nothing alone."""
    word, marks = str(level), wording()["marks"]
    return f'<span class="wb-level wb-{word}"><i>{marks[word]}</i> {word}</span>' if word in marks else inert_html(word)


def bar_html(value: float) -> str:
    """A number in [0, 1] as a bar with its figure."""
    width = 100 * min(max(value, 0.0), 1.0)
    return f'<span class="wb-bar"><span style="width:{width:.0f}%"></span></span>{value:.2f}'


def table_html(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table from cells that are HTML already."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="wb-t"><thead><tr><th>{"</th><th>".join(head)}</th></tr></thead><tbody>{body}</tbody></table>'


def folded(title: str, body: str, *, opened: bool = False) -> str:
    """Content behind its content note: closed unless *opened*."""
    note = f"<p class='wb-note'>{wording()['content_note']}</p>"
    return f"{note}<details{' open' if opened else ''}><summary>{title}</summary>{body}</details>"


def highlight(text: str, quotes: Mapping[str, str]) -> str:
    """The text as inert HTML with each quote (label -> words) marked where it occurs word for word."""
    spans = {label: (at, at + len(q)) for label, q in quotes.items() if q.strip() and (at := text.find(q)) >= 0}
    out = []
    for start, end in pairwise(sorted({0, len(text), *(cut for span in spans.values() for cut in span)})):
        names = " ".join(label for label, (a, b) in spans.items() if a <= start and end <= b)
        piece = inert_html(text[start:end])
        out.append(f"<mark>{piece}<sup>{inert_html(names)}</sup></mark>" if names else piece)
    return "".join(out)


def text_html(text: str, quotes: Mapping[str, str] | None = None, *, opened: bool = False) -> str:
    """The text under analysis, folded behind its content note."""
    return folded("Text under analysis", f'<div class="wb-text" dir="auto">{highlight(text, quotes or {})}</div>', opened=opened)


def _facts(a: Assessment) -> dict[str, str]:
    """What one assessment says, as plain label -> text, in reading order."""
    facts = {
        "judge": f"{a.judge or 'not named'}{f' ({a.judge_kind})' if a.judge_kind else ''}",
        "level": str(a.level) if a.raw_level == a.level else f"{a.level} (raw: {a.raw_level}, capped by a flag)",
        "confidence": "none" if a.confidence is None else f"{a.confidence:.2f}",
        "flags": ", ".join(name for name, on in a.flags.items() if on) or ("none" if a.flags else "not given"),
        "evidence": a.evidence or "none given",
        "defects": ", ".join(f"{d} (blocking)" if d in a.blocking_defects else d for d in a.defects) or "none",
    }
    return facts if a.reason is None else facts | {"why unknown": f"{a.reason}{f': {a.detail}' if a.detail else ''}"}


def _dimension(a: Assessment, name: str) -> str:
    return "not assessed" if name in a.not_assessed or name not in a.dimensions else f"{a.dimensions[name]:.2f}"


def _cell_html(a: Assessment, label: str) -> str:
    if label in DIMENSIONS:
        shown = _dimension(a, label)
        return f'<span class="wb-dim">{shown}</span>' if shown == "not assessed" else bar_html(a.dimensions[label])
    value = _facts(a).get(label, "")
    return f"{level_html(a.level)} {inert_html(value[len(str(a.level)) :])}" if label == "level" else inert_html(value)


def compare_html(assessments: Mapping[str, Assessment], *, text: str | None = None, dimensions: bool = True) -> str:
    """Assessments beside each other (column name -> assessment), with the text they are about when it is given."""
    labels = dict.fromkeys([*(k for a in assessments.values() for k in _facts(a)), *(DIMENSIONS if dimensions else ())])
    rows = [[label, *(_cell_html(a, label) for a in assessments.values())] for label in labels]
    read = "" if text is None else text_html(text, {name: a.evidence for name, a in assessments.items()})
    return f'{read}<div class="wb-even">{table_html(["", *map(inert_html, assessments)], rows)}</div>'


def assessment_html(a: Assessment, *, text: str | None = None) -> str:
    """One assessment as a card."""
    return card(f"<h4>{a.tier} {level_html(a.level)}</h4>", compare_html({a.tier: a}, text=text))


def conditions_html(conditions: Iterable[Condition]) -> str:
    """The six conditions and two guards, met or not, with the values they were decided on."""
    verdict = {True: '<span class="wb-met">✓ met</span>', False: '<span class="wb-unmet">✗ not met</span>'}
    rows = [[inert_html(condition_words(c.name)), verdict[c.passed], inert_html(c.value)] for c in conditions]
    return table_html(["condition", "", "value"], rows)


def verdict_line(o: Outcome) -> str:
    """Confirmed, or what blocked it, in one phrase of plain text."""
    if o.confirmed:
        return "confirmed by the rule in force" if o.blocked_by else "confirmed: all six conditions and both guards are met"
    return f"not confirmed: these are not met: {'; '.join(map(condition_words, o.blocked_by)) or 'nothing was evaluated'}"


def outcome_html(o: Outcome, *, text: str | None = None, brief: bool = False) -> str:
    """One outcome as a card: both verdicts side by side, the conditions, what blocked, why a person should look.

    *brief* leaves the dimensions out and folds the conditions.
    """
    decided = conditions_html(o.conditions)
    decided = f"<details><summary>Conditions and guards</summary>{decided}</details>" if brief else decided
    note = " <b>Incomplete: one side is unknown, so the level may be too low.</b>" if o.incomplete else ""
    sides = {"L1": o.l1, "L2": o.l2} | ({"arbiter": o.arbiter} if o.arbiter else {})
    how = f"arm {o.arm} · repeat {o.repeat} · combine {o.combine} · L2 policy {o.l2_policy} · advisory only"
    return card(
        f"<h4>{inert_html(o.dialogue_id)} {level_html(o.level)}</h4><p>{inert_html(verdict_line(o))}.{note}</p>",
        compare_html(sides, text=text, dimensions=not brief) + decided,
        f"<p><b>For review:</b> {inert_html(', '.join(o.review_reasons) or 'no reason')}</p><p class='wb-dim'>{inert_html(how)}</p>",
    )


def outcome_text(o: Outcome) -> str:
    """One outcome as lines of plain text."""
    sides = [_facts(a) | {name: _dimension(a, name) for name in DIMENSIONS} for a in (o.l1, o.l2)]
    labels = dict.fromkeys([*sides[0], *sides[1]])
    rows = [("", "L1", "L2"), *((k, inert(sides[0].get(k, "")), inert(sides[1].get(k, ""))) for k in labels)]
    width = min(max(len(left) for _, left, _ in rows), 44)
    lines = [f"{inert(o.dialogue_id)}: {o.level}{' (incomplete)' if o.incomplete else ''}, {inert(verdict_line(o))}"]
    lines += [f"  {k:<13} {a:<{width}}  {b}".rstrip() for k, a, b in rows]
    lines += [f"  [{'x' if c.passed else ' '}] {inert(condition_words(c.name))}: {inert(c.value)}" for c in o.conditions]
    return "\n".join([*lines, f"  for review: {inert(', '.join(o.review_reasons) or 'no reason')}"])


def dialogue_html(d: Dialogue, *, quotes: Mapping[str, str] | None = None, opened: bool = False) -> str:
    """A dialogue as a card, its turns folded behind the content note. Shows no gold: a reviewer may be blind to it."""
    shown = [inert_html(t.content) for t in d.turns[:-1]] + [highlight(d.text, quotes or {})]
    pairs = zip(d.turns, shown, strict=True)
    turns = "".join(
        f'<div class="wb-turn wb-{turn.role}" dir="auto"><b>{turn.role}:</b>{content}</div>' for turn, content in pairs
    )
    t = d.trend
    trend = f" · trend: {t.negative_days_7d} negative days of 7, {t.consecutive_negative_days} in a row" if t else ""
    facts = f"{d.lang} · {len(d.turns)} turns · {'synthetic' if d.synthetic else 'origin not stated'}{trend}"
    body = folded(f"Dialogue ({len(d.turns)} turns; the last one is under analysis)", turns, opened=opened)
    return card(f"<h4>{inert_html(d.id)}</h4><p class='wb-dim'>{facts}</p>", body)
