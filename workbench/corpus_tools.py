"""Describe, check and import dialogues: distributions and leaks, the corpus's rules, loaders for other people's data."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from workbench.corpus import Corpus, family_of
from workbench.crisis import unlisted_numbers
from workbench.errors import DataError
from workbench.gate import lexicon, plain
from workbench.schema import DIMENSIONS, Dialogue, RiskLevel, Turn
from workbench.text import detect_lang, sha256

if TYPE_CHECKING:
    import pandas as pd

NEAR_DUPLICATE: Final = 0.6  # share of common 5-character pieces above which two texts of different families are one too many
_URL: Final = re.compile(
    r"https?://|www\.|\b[\w-]{2,}\.(?:com|org|net|edu|gov|io|cn|co\.uk|me|info)\b|(?<![\w.])@\w{3,}", re.IGNORECASE
)
_WORDS: Final = re.compile(r"[a-z]+|[\u4e00-\u9fff]+")
_CAPPED: Final = frozenset({RiskLevel.LOW, RiskLevel.MEDIUM})


def stats(corpus: Corpus) -> pd.DataFrame:
    """How many dialogues have what: columns part, value, n, share."""
    import pandas as pd

    rows: list[tuple[str, str, int, float]] = []
    for part, values in _facts(corpus).items():
        rows += [(part, value, n, n / max(1, len(corpus))) for value, n in sorted(Counter(values).items())]
    return pd.DataFrame(rows, columns=["part", "value", "n", "share"])


def _facts(corpus: Corpus) -> dict[str, list[str]]:
    golds = [d.gold for d in corpus if d.gold]
    turns = sorted(d.n_user_turns for d in corpus)
    return {
        "language": [d.lang for d in corpus], "level": [g.risk_level.value for g in golds], "flag": [f for g in golds for f in g.flags],
        "confirm": [str(g.confirm).lower() for g in golds], "needs context": [str(g.needs_context).lower() for g in golds],
        "disputed": [str(d.disputed).lower() for d in corpus], "user turns": [f"{n:02d}" for n in turns],
        "phenomenon": [d.phenomenon for d in corpus], "trend": ["given" if d.trend else "none" for d in corpus],
    }  # fmt: skip


def leaks(corpus: Corpus) -> pd.DataFrame:
    """What shape alone predicts: ROC AUC of 'gold >= high' per feature, with intervals that keep families together.

    0.5 is no leak. Features: user turns, characters (all, last), negative days, days in a row, a trend being given, place in file.
    """
    import pandas as pd

    from workbench.stats.calibration import auc

    kept = [(i, d, d.gold.risk_level.rank >= RiskLevel.HIGH.rank) for i, d in enumerate(corpus) if d.gold]
    shapes: dict[str, list[tuple[bool, float, str]]] = defaultdict(list)
    for i, d, high in kept:
        for name, value in _shape(i, d).items():
            shapes[name].append((high, value, family_of(d)))
    rows = []
    for name, cases in shapes.items():
        y, x, families = zip(*cases, strict=True)
        if 0 < sum(y) < len(y):
            e = auc([int(v) for v in y], x, cluster=families, name=name)
            rows.append((name, len(y), len(set(families)), e.value, e.low, e.high))
    return pd.DataFrame(rows, columns=["feature", "n", "families", "auc", "low", "high"])


def _shape(place: int, d: Dialogue) -> dict[str, float]:
    said, tongue = [len(t.content) for t in d.turns if t.role == "user"], "en" if d.lang == "en" else "zh"
    found: dict[str, float] = {"user turns": len(said), "place in file": place, "a trend is given": d.trend is not None}
    found |= {f"characters ({tongue})": sum(said), f"characters of the last turn ({tongue})": said[-1]}
    if d.trend is not None:
        found |= {"negative days": d.trend.negative_days_7d, "negative days in a row": d.trend.consecutive_negative_days}
    return found


def stats_text(corpus: Corpus) -> str:
    """Distribution and leaks as plain text."""
    lines = [f"{len(corpus)} dialogues in {len(corpus.families)} families"]
    for part, rows in stats(corpus).groupby("part", sort=False):
        shown = rows.sort_values("n", ascending=False).head(12) if part == "phenomenon" else rows
        lines.append(f"{part}: " + ", ".join(f"{r.value} {r.n}" for r in shown.itertuples()))
    lines.append("what shape alone predicts (AUC of gold >= high; 0.5 is nothing):")
    lines += [f"  {r.feature}: {r.auc:.2f} [{r.low:.2f}, {r.high:.2f}], n {r.n}" for r in leaks(corpus).itertuples()]
    return "\n".join(lines)


def validate(corpus: Corpus) -> list[str]:
    """Every broken rule of data/dialogues/SPEC.md, as '<id>: what is wrong'; the texts themselves are not repeated."""
    found = [f"{d.id}: {problem}" for d in corpus for problem in (*_gold(d), *_turns(d), *_content(d))]
    texts = Counter(plain(d.text) for d in corpus)
    found += [f"{d.id}: another dialogue ends in the same text" for d in corpus if texts[plain(d.text)] > 1]
    families: dict[str, list[Dialogue]] = defaultdict(list)
    for d in corpus:
        families[family_of(d)].append(d)
    for name, members in families.items():
        if len(members) < 2:
            found.append(f"{name}: a family needs at least two members")
        elif len({(g.risk_level, g.flags, g.confirm) for m in members if (g := m.gold)}) < 2:
            found.append(f"{name}: all members have the same gold, so they contrast nothing")
    if sum(d.disputed for d in corpus) > 0.1 * len(corpus):
        found.append("more than 10 % of the dialogues are disputed")
    return found + list(_near_duplicates(corpus))


def _gold(d: Dialogue) -> Iterator[str]:
    g = d.gold
    if g is None:
        yield "no gold"
        return
    levels = set(g.acceptable_levels)
    if g.flags and (g.risk_level not in _CAPPED or not levels <= _CAPPED):
        yield "a flag caps the level and the acceptable levels at medium"
    if g.confirm != (g.risk_level is RiskLevel.CRITICAL and not g.flags):
        yield "confirm must be true exactly when the level is critical and no flag is set"
    if g.risk_level not in levels:
        yield "acceptable_levels must contain risk_level"
    if len(levels) > 2 and not d.disputed:
        yield "three acceptable levels only when disputed"
    if g.risk_level is RiskLevel.CRITICAL and RiskLevel.MEDIUM in levels:
        yield "critical never accepts medium"
    if set(g.dimensions) != set(DIMENSIONS) or not set(g.dimensions.values()) <= {0, 0.5, 1}:
        yield "dimensions must be the eight, each 0, 0.5 or 1"
    last = d.turns[-1].gold
    if last is None or (last.risk_level, set(last.flags)) != (g.risk_level, set(g.flags)):
        yield "the last turn's gold must equal the dialogue's"


def _turns(d: Dialogue) -> Iterator[str]:
    if any(t.role != ("user", "assistant")[i % 2] for i, t in enumerate(d.turns)):
        yield "roles must alternate, starting with the user"
    for i, t in enumerate(d.turns):
        if (t.gold is not None) != (t.role == "user"):
            yield f"turn {i}: gold belongs to every user turn and to no other"
        elif t.gold and t.gold.flags and t.gold.risk_level not in _CAPPED:
            yield f"turn {i}: a flag caps the level at medium"


def _content(d: Dialogue) -> Iterator[str]:
    if not d.synthetic:
        yield "not marked synthetic"
    for i, t in enumerate(d.turns):
        if _URL.search(t.content):
            yield f"turn {i}: a URL, an address or a handle"
        if unlisted_numbers(t.content, None) or re.search(r"\d(?:[\s().-]{0,2}\d){6,}", plain(t.content)):
            yield f"turn {i}: digits that look like a phone number"
        if names_method(t.content):
            yield f"turn {i}: a word of the method screen"


@lru_cache(maxsize=1)
def _screen() -> tuple[frozenset[str], int]:
    table = lexicon("methods")
    return frozenset(table["hashes"]), table["longest_han"]


def names_method(text: str) -> bool:
    """Does the text hold a word of the method screen? The screen is stored as hashes, so that the list spreads nothing."""
    hashes, longest = _screen()
    for run in _WORDS.findall(plain(text)):
        latin = run.isascii()
        pieces = {run} if latin else {run[i : i + n] for n in range(2, longest + 1) for i in range(len(run) - n + 1)}
        if not hashes.isdisjoint(sha256(f"method:{p}")[:12] for p in pieces):
            return True
    return False


def _near_duplicates(corpus: Corpus) -> Iterator[str]:
    """Pairs of different families whose last turns share most of their 5-character pieces."""
    pieces = [{t[i : i + 5] for i in range(len(t) - 4)} for t in (plain(d.text) for d in corpus)]
    owners: dict[str, list[int]] = defaultdict(list)
    for i, own in enumerate(pieces):
        shared = Counter(j for piece in own for j in owners[piece])
        for j, n in shared.items():
            if n / len(own | pieces[j]) >= NEAR_DUPLICATE and family_of(corpus[i]) != family_of(corpus[j]):
                yield f"{corpus[i].id}: nearly the same last turn as {corpus[j].id}, of another family"
        for piece in own:
            owners[piece].append(i)


# -- other people's data ----------------------------------------------------------------------------------------------------

VERA_RISK: Final = ("None", "Low", "High", "Imminent")
_SPEAKER: Final = re.compile(r"^(user|agent):[ \t]*", re.MULTILINE)


def load_vera(clone: str | Path) -> Corpus:
    """Transcripts and personas of a user's own clone of SpringCare/VERA-MH. Nothing of it ships here.

    The persona's risk level is what was *intended*, not what the conversation shows: it stands in ``provenance.intended_risk`` and
    there is no gold. ``provenance.display`` is false: show ids only. Raises DataError when the clone is not as expected.
    """
    root = Path(clone).expanduser()
    table, folder = root / "data" / "personas.tsv", root / "concept_paper_conversations"
    if not table.is_file() or not folder.is_dir():
        raise DataError(f"no VERA-MH clone at '{clone}': it must hold data/personas.tsv and concept_paper_conversations/")
    with table.open(encoding="utf-8", newline="") as lines:
        personas = {_slug(row["Name"]): row for row in csv.DictReader(lines, delimiter="\t") if row.get("Name")}
    origin = {
        "repo": "SpringCare/VERA-MH",
        "commit": _commit(root),
        "licence": _licence(root),
        "synthetic": True,
        "display": False,
    }
    return Corpus(d for file in sorted(folder.rglob("*.txt")) if (d := _vera(file, root, personas, origin)))


def _vera(file: Path, root: Path, personas: Mapping[str, Mapping[str, str]], origin: dict[str, Any]) -> Dialogue | None:
    stem = _slug(file.stem.partition("_")[2])
    name = max((p for p in personas if stem.startswith(p)), key=len, default=None)
    risk = personas[name].get("Current Risk Level", "").strip() if name else ""
    if risk not in VERA_RISK:
        raise DataError(f"{file}: no persona with a risk level ({', '.join(VERA_RISK)}) matches this file's name")
    parts = _SPEAKER.split(file.read_text("utf-8"))[1:]
    turns = [
        Turn(role="user" if who == "user" else "assistant", content=said.strip())
        for who, said in zip(parts[::2], parts[1::2], strict=True)
        if said.strip()
    ]
    while turns and turns[-1].role != "user":
        turns.pop()
    if not turns:
        return None
    place = file.relative_to(root).as_posix()
    return Dialogue(
        id=f"vera-{sha256(place)[:12]}", turns=tuple(turns), family=f"vera-{name}", lang="en", phenomenon="vera_mh",
        provenance=origin | {"path": place, "intended_risk": risk},
    )  # fmt: skip


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _commit(root: Path) -> str:
    head = root / ".git" / "HEAD"
    try:
        ref = head.read_text("utf-8").strip()
        return (root / ".git" / ref[5:]).read_text("utf-8").strip() if ref.startswith("ref: ") else ref
    except OSError:
        return "unknown"


def _licence(root: Path) -> str:
    named = next((p for p in sorted(root.glob("LICEN[CS]E*")) if p.is_file()), None)
    return named.read_text("utf-8", "replace").strip().split("\n", 1)[0][:120] if named else "unknown"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column holds what. ``text`` is required; ``synthetic`` names a column of true/false, one per row.

    ``levels`` translates the source's labels into ours; a label that is not in it leaves the row without gold.
    """

    text: str
    id: str = ""
    level: str = ""
    flags: str = ""
    lang: str = ""
    family: str = ""
    synthetic: str = ""
    levels: Mapping[str, str] | None = None


def load_mapped(
    path: str | Path, columns: Columns, *, synthetic: bool = False, allow_real: bool = False, display: bool = False
) -> Corpus:
    """Single messages from any JSONL or CSV file, by column names.

    Every row must be synthetic (all of them by ``synthetic=True``, or each by its column): other rows are refused unless
    ``allow_real``, and both are recorded in each dialogue's provenance. ``display`` is off by default: ids only.
    """
    file = Path(path).expanduser()
    rows = list(_rows(file))
    origin = {"file": file.name, "sha256": sha256(file.read_text("utf-8-sig")), "allow_real": allow_real, "display": display}
    return Corpus(_mapped(f"{file} row {n}", n, row, columns, synthetic, origin) for n, row in enumerate(rows, start=1))


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield from (
                csv.DictReader(lines) if file.suffix.lower() == ".csv" else (json.loads(line) for line in lines if line.strip())
            )
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read {file} as {'CSV' if file.suffix.lower() == '.csv' else 'JSONL'}: {type(error).__name__}"
        ) from None


def _mapped(place: str, number: int, row: Mapping[str, Any], c: Columns, synthetic: bool, origin: dict[str, Any]) -> Dialogue:
    missing = [name for name in (c.text, c.id, c.level, c.flags, c.lang, c.family, c.synthetic) if name and name not in row]
    if missing:
        raise DataError(f"{place}: no column {', '.join(missing)}; there are {', '.join(map(str, row))}")
    made = synthetic or (bool(c.synthetic) and str(row[c.synthetic]).strip().lower() in ("true", "1", "yes", "synthetic"))
    if not (made or origin["allow_real"]):
        raise DataError(
            f"{place}: not synthetic; real messages are refused. If you may lawfully and ethically process them, pass allow_real=True"
        )
    level = (c.levels or {v.value: v.value for v in RiskLevel}).get(str(row[c.level]).strip()) if c.level else None
    flags = tuple(f.strip() for f in str(row[c.flags] or "").replace(";", ",").split(",") if f.strip()) if c.flags else ()
    gold = (
        None
        if level is None
        else {"risk_level": level, "flags": flags, "confirm": level == "critical" and not flags, "acceptable_levels": (level,)}
    )
    text, name = str(row[c.text]), str(row[c.id]) if c.id else f"{Path(origin['file']).stem}-{number:05d}"
    values = {
        "id": name, "turns": ({"role": "user", "content": text},), "family": str(row[c.family]) if c.family else name, "gold": gold,
        "lang": str(row[c.lang]) if c.lang else detect_lang(text), "provenance": origin | {"synthetic": made},
    }  # fmt: skip
    try:
        return Dialogue.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise DataError(f"{place}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
