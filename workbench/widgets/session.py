"""One reviewer working through a queue: blind until committed, every step appended to the store at once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any, ClassVar, Final, Literal, Protocol

from workbench.errors import SetupError
from workbench.schema import FLAGS, Dialogue, Outcome
from workbench.text import sha256

LEVEL_KEYS: Final = {"1": "low", "2": "medium", "3": "high", "4": "critical", "0": "unknown"}
FLAG_KEYS: Final = {name[0]: name for name in FLAGS}
SAME_KEY_S: Final = 0.3  # a double click on a slow kernel must not label the next item
EXPORT_COLUMNS: Final = (
    "queue", "id", "dialogue_id", "reviewer", "kind", "level", "flags", "note", "arm", "blind", "phase", "undone", "undoes", "position",
    "seconds", "at", "text_hash", "detail",
)  # fmt: skip
Row = dict[str, Any]


class AnnotationLog(Protocol):
    """What a session needs of the store: append one row (its id comes back), read a queue's rows in order."""

    def annotate(self, row: Row) -> int: ...

    def annotations(self, queue: str) -> list[Row]: ...


@dataclass(frozen=True)
class Draft:
    """A label that is not committed yet."""

    level: str = ""
    flags: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return " + ".join([self.level.replace("unknown", "cannot tell") or "no level yet", *self.flags])


def as_draft(row: Row) -> Draft:
    """A stored label as a draft."""
    return Draft(row["level"], tuple(filter(None, row["flags"].split(";"))), row["note"])


def standing(rows: Iterable[Row]) -> list[Row]:
    """The labels, skips and adjudications that no later undo took back, in order."""
    rows = list(rows)
    undone = {r["undoes"] for r in rows if r["kind"] == "undo"}
    return [r for r in rows if r["kind"] in ("label", "skip", "adjudicate") and r["id"] not in undone]


class ReviewSession:
    """The logic of manual review, without a widget.

    *outcomes* are the judges' results for the dialogues. ``show``: half (shown or blind at random per item, crossed over
    reviewers), never, always. ``reveal``: show the verdict after each commit; a change made then carries the phase ``post``.
    The seed, the arms and the items belong to the queue: opening it again with others raises SetupError.
    A step that the store refuses raises StoreError and changes nothing.
    """

    kind: ClassVar[str] = "label"

    def __init__(
        self, dialogues: Sequence[Dialogue], outcomes: Iterable[Outcome] = (), *, store: AnnotationLog, reviewer: str, queue: str = "review",
        seed: int | None = None, show: Literal["half", "never", "always"] = "half", reveal: bool = True, break_after: int = 5,
        now: Callable[[], datetime] = lambda: datetime.now(UTC), ticks: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        if not reviewer.strip():
            raise SetupError("a review needs the reviewer's name or initials: give reviewer=")
        self._dialogues = {d.id: d for d in dialogues}
        self._outcomes = {o.dialogue_id: o for o in reversed(list(outcomes))}
        self.store, self.reviewer, self.queue, self.reveal, self.break_after = store, reviewer, queue, reveal, break_after
        self._now, self._ticks, self._last_press = now, ticks, ("", float("-inf"))
        self._rows = store.annotations(queue)
        self._at: str | None = None
        self.revealing = False  # committed, and the verdict is on the table: the next Enter goes on
        self.draft = self._committed = Draft()
        self._since = ticks()
        self._offered = set(self._dialogues)
        self._open(seed, show)
        self._arrive(None)

    def _open(self, seed: int | None, show: str) -> None:
        opened = [r for r in self._rows if r["kind"] == "open"]
        settings = {"seed": seed or 0, "show": show, "reveal": self.reveal, "items": self._items_hash()}
        stored = json.loads(opened[0]["detail"]) if opened else settings
        settings["seed"] = stored["seed"] if seed is None else seed
        if changed := ", ".join(sorted(k for k in stored if stored[k] != settings[k])):
            raise SetupError(
                f"queue '{self.queue}' was opened with other settings ({changed}): use those, or give another queue="
            )
        joined = list(dict.fromkeys([*(r["reviewer"] for r in opened), self.reviewer]))
        slot, ids = joined.index(self.reviewer), list(self._dialogues)
        self._order = random.Random(f"{settings['seed']}:order:{self.reviewer}").sample(ids, len(ids))
        crossed = random.Random(f"{settings['seed']}:arms").sample(ids, len(ids))
        shown = {"half": lambda n: (n + slot) % 2 == 0, "never": lambda n: False, "always": lambda n: True}[show]
        self._arms = {i: "shown" if shown(n) and i in self._outcomes else "blind" for n, i in enumerate(crossed)}
        if not any(r["reviewer"] == self.reviewer for r in opened):
            self._append("open", "", detail=json.dumps(settings))

    def _items_hash(self) -> str | None:
        return sha256("\n".join(sorted(f"{d.id} {sha256(d.text)}" for d in self._dialogues.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(queue={self.queue!r}, {', '.join(f'{k}={self.progress[k]}' for k in ('done', 'total', 'skipped'))})"

    @property
    def mine(self) -> list[Row]:
        """This reviewer's steps that stand, in order."""
        return standing(r for r in self._rows if r["reviewer"] == self.reviewer)

    @property
    def current(self) -> Dialogue | None:
        """The dialogue on the table, None when all are done."""
        return self._dialogues.get(self._at or "")

    @property
    def arm(self) -> str:
        return self._arms.get(self._at or "", "blind")

    @property
    def verdict(self) -> Outcome | None:
        """The judges' outcome, None as long as this reviewer may not know it."""
        return self._outcomes.get(self._at or "") if self.revealing or self.arm == "shown" else None

    @property
    def progress(self) -> dict[str, Any]:
        """``done, total, skipped``, ``pace_s`` (median seconds per label, None before the first) and ``left_s`` at that pace."""
        last = {r["dialogue_id"]: r["kind"] for r in self.mine if r["dialogue_id"] in self._dialogues}
        skipped = sum(kind == "skip" for kind in last.values())
        spent = [r["seconds"] for r in self.mine if r["kind"] != "skip" and r["phase"] == "pre"]
        done, pace = len(last) - skipped, median(spent) if spent else None
        left = None if pace is None else pace * (len(self._order) - done)
        return {"done": done, "total": len(self._order), "skipped": skipped, "pace_s": pace, "left_s": left}

    @property
    def break_due(self) -> bool:
        """A run of heavy labels since the last pause: time to look away."""
        paused = max((r["id"] for r in self._rows if r["kind"] == "pause" and r["reviewer"] == self.reviewer), default=-1)
        recent = [r["level"] for r in self.mine if r["kind"] != "skip" and r["id"] > paused][-self.break_after :]
        return len(recent) == self.break_after and set(recent) <= {"high", "critical"}

    def press(self, key: str) -> str:
        """One keystroke; returns what happened as a sentence, "" when it was ignored."""
        if key == self._last_press[0] and self._ticks() - self._last_press[1] < SAME_KEY_S:
            return ""
        steps = {"Enter": self._enter, "s": self._skip, "u": self._undo, "b": self._pause}
        try:
            if key in ("u", "b") or (key in steps and self._at):
                return steps[key]()
            if not self._at:
                return "nothing is open"
            flags = tuple(f for f in FLAGS if (f in self.draft.flags) != (f == FLAG_KEYS.get(key)))
            return self.edit(level=LEVEL_KEYS.get(key, self.draft.level), flags=flags)
        finally:
            self._last_press = (key, self._ticks())

    @property
    def dialogues(self) -> list[Dialogue]:
        return list(self._dialogues.values())

    @property
    def moves_on(self) -> bool:
        """Would Enter go to the next item now?"""
        return self.revealing and self.draft == self._committed

    def edit(self, **fields: Any) -> str:
        """Change the draft: ``level``, ``flags`` or ``note``."""
        self.draft = replace(self.draft, **fields)
        return f"{self.draft}: Enter commits"

    def focus(self, keep: Callable[[Dialogue], bool]) -> int:
        """Offer only dialogues that *keep* accepts; returns how many of the queue that is."""
        self._offered = {d.id for d in self._dialogues.values() if keep(d)}
        self._arrive(None)
        return len(self._offered)

    def _enter(self) -> str:
        if self.moves_on:
            self._arrive(None)
            return "next"
        if not self.draft.level:
            return "choose a level first: 1 low, 2 medium, 3 high, 4 critical, 0 cannot tell"
        said, shows = self.draft, self.reveal and self._at in self._outcomes
        self._append(self.kind, str(self._at), level=said.level, flags=";".join(said.flags), note=said.note, reveals=shows)
        if shows:
            self.revealing, self._committed = True, said
        else:
            self._arrive(None)
        return f"saved {said}"

    def _skip(self) -> str:
        if self.revealing:
            return "already saved: Enter goes on, u takes it back"
        self._append("skip", str(self._at), note=self.draft.note)
        self._arrive(None)
        return "skipped: it comes back at the end"

    def _undo(self) -> str:
        if self.draft != self._committed:
            self.draft = self._committed
            return "cleared what was not committed"
        if not self.mine:
            return "nothing to undo"
        last = self.mine[-1]
        self._append("undo", last["dialogue_id"], undoes=last["id"])
        self._arrive(last["dialogue_id"])
        self.draft = self._committed = as_draft(last)
        return "took back the last one"

    def _pause(self) -> str:
        self._append("pause", "")
        return "welcome back"

    def _arrive(self, dialogue_id: str | None) -> None:
        last = {r["dialogue_id"]: (n, r["kind"]) for n, r in enumerate(self.mine)}
        waiting = (i for i in self._order if last.get(i, (0, "skip"))[1] == "skip" and i in self._offered)
        self._at = (
            dialogue_id if dialogue_id in self._dialogues else min(waiting, key=lambda i: last.get(i, (-1, ""))[0], default=None)
        )
        self.draft = self._committed = Draft()
        self.revealing, self._since = False, self._ticks()

    def _append(self, kind: str, dialogue_id: str, **fields: Any) -> None:
        item = self._dialogues.get(dialogue_id)
        # Seen after a commit is seen, also when that commit was undone.
        seen = any(r["reveals"] and r["dialogue_id"] == dialogue_id and r["reviewer"] == self.reviewer for r in self._rows)
        row: Row = {
            "queue": self.queue, "reviewer": self.reviewer, "dialogue_id": dialogue_id, "kind": kind, "level": "", "flags": "", "note": "",
            "arm": self._arms.get(dialogue_id, ""), "phase": ("post" if seen else "pre") if item else "", "reveals": False, "undoes": None, "detail": "",
            "position": self._order.index(dialogue_id) if item else None, "text_hash": sha256(item.text) if item else "",
            "seconds": round(self._ticks() - self._since, 3) if item else None, "at": self._now().isoformat(timespec="seconds"),
        } | fields  # fmt: skip
        self._rows.append(row | {"id": self.store.annotate(row)})


def first_labels(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """dialogue_id -> reviewer -> the label that stands from before any reveal."""
    found: dict[str, dict[str, Row]] = {}
    for r in standing(rows):
        if r["kind"] == "label" and r["phase"] == "pre":
            found.setdefault(r["dialogue_id"], {})[r["reviewer"]] = r
    return found


class AdjudicationSession(ReviewSession):
    """The items on which the reviewers of a queue differ, blind to who said what and to the judges."""

    kind: ClassVar[str] = "adjudicate"

    def __init__(
        self, dialogues: Sequence[Dialogue], *, store: AnnotationLog, reviewer: str, queue: str = "review", **options: Any
    ) -> None:
        labels = {i: list(by.values()) for i, by in first_labels(store.annotations(queue)).items()}
        self._said = {i: rows for i, rows in labels.items() if len({(r["level"], r["flags"]) for r in rows}) > 1}
        disputed = [d for d in dialogues if d.id in self._said]
        super().__init__(disputed, store=store, reviewer=reviewer, queue=f"{queue}/adjudication", show="never", **options)

    def _items_hash(self) -> str | None:
        return None  # more disagreements may appear as reviewers go on

    def _append(self, kind: str, dialogue_id: str, **fields: Any) -> None:
        if kind == self.kind:  # gold is to be made from blind labels only: say whether these were
            fields["detail"] = (
                "from blind labels" if all(r["arm"] == "blind" for r in self._said[dialogue_id]) else "from shown labels"
            )
        super()._append(kind, dialogue_id, **fields)

    @property
    def opinions(self) -> list[Draft]:
        """What the reviewers said of the current item, in an order that tells nothing."""
        said = sorted(map(as_draft, self._said.get(self._at or "", [])), key=str)
        return random.Random(f"{self.queue}:{self._at}").sample(said, len(said))


def export_rows(rows: Iterable[Row]) -> list[Row]:
    """Every step of a queue, also those taken back: who, when, blind or shown, before or after the reveal."""
    rows = list(rows)
    undone = {r["undoes"] for r in rows if r["kind"] == "undo"}
    full = [{"blind": r["arm"] == "blind", "undone": r["id"] in undone} | r for r in rows if r["kind"] != "open"]
    return [{column: row[column] for column in EXPORT_COLUMNS} for row in full]
