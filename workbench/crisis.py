"""Crisis resources for an explicit region, from one dated and sourced table; never from a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from workbench.folding import fold, words


@dataclass(frozen=True, slots=True)
class Resource:
    """One row. ``kind``: crisis, emergency, youth, directory. ``regions`` are language-region tags, "*" is everywhere."""

    name: str
    number: str
    regions: list[str]
    hours: str
    kind: str
    status: str
    source: str
    source_url: str
    evidence_date: str
    checked_on: str


@cache
def table() -> tuple[tuple[Resource, ...], dict[str, Any]]:
    """All rows, also those that are never rendered, and the wording."""
    data = words("crisis_resources")
    return tuple(Resource(**row) for row in data["resource"]), data


def rows(region: str | None) -> tuple[Resource, ...]:
    """The verified rows for a region such as ``zh-CN``, first choice first; without a known region the directory alone."""
    return tuple(r for r in table()[0] if r.status == "verified" and (region in r.regions or "*" in r.regions))


def render(region: str | None, today: date) -> str:
    """The text shown for *region* (None: local emergency services and a directory), with a warning when a row is old."""
    data, shown = table()[1], rows(region)
    say = data["text"]["zh" if (region or "").startswith("zh") else "en"]
    lines = [say["title"]] + [say["row"].format(name=r.name, number=r.number, hours=r.hours) for r in shown if r.number]
    lines += [say["directory"].format(url=r.source_url) for r in shown if r.kind == "directory"]
    oldest = min(date.fromisoformat(r.checked_on) for r in shown)
    old = (today - oldest).days > data["max_age_days"]
    return "\n".join([*lines, say["old"].format(date=oldest, days=data["max_age_days"])] if old else lines)


def unlisted_numbers(text: str, region: str | None) -> tuple[str, ...]:
    """What looks like a phone number in *text* (any width or script, spelled out, with separators) and is not listed for *region*."""
    find, listed = table()[1]["find"], {_digits(r.number) for r in rows(region)}
    unit = "|".join(find["digits"])
    read = re.sub(find["spelled"], lambda m: "".join(find["digits"][w] for w in re.findall(unit, m[0])), fold(text).text)
    read = re.sub(find["not_phone"], "|", read)
    found = []
    for run in re.finditer(find["run"], read):
        digits, pieces = _digits(run[0]), re.split(r"[\s/]+", run[0].strip())
        near = read[max(0, run.start() - 24) : run.end() + 16]
        phone_like = len(digits) >= 5 or (len(digits) >= 3 and re.search(find["call"], near))
        if phone_like and digits not in listed and not all(_digits(p) in listed for p in pieces):
            found.append(run[0].strip())
    return tuple(found)


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)
