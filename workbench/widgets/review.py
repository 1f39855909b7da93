"""The manual review panel: one keystroke per label, the judges' verdict out of the browser until the label is committed."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import ipywidgets as w

from workbench.crisis import render
from workbench.display import card, dialogue_html, outcome_html
from workbench.text import inert, inert_cell, inert_html
from workbench.widgets.base import KeyPad, Panel, dropdown, file_name
from workbench.widgets.session import EXPORT_COLUMNS, FLAG_KEYS, LEVEL_KEYS, AdjudicationSession, ReviewSession, Row, export_rows

ACTIONS: Final = {"Enter": "commit", "s": "skip", "u": "undo", "o": "open or close the text", "b": "I took a break"}
HINT: Final = (
    "Keys, after a click anywhere in this panel: 1 2 3 4 level · 0 cannot tell · f q t j flags · Enter commit, then next · s skip · u undo · "
    "o text · b break · Esc leaves the note"
)


def export(rows: Sequence[Row], path: str | Path, *, region: str | None = None, today: date | None = None) -> Path:
    """Write a queue's annotations to ``.csv`` or ``.jsonl``, and beside it a note on what they are, with crisis resources.

    CSV cells cannot start a formula. Who, when, blind or shown, before or after the reveal are columns of every row.
    """
    out, table = Path(path), export_rows(rows)
    if out.suffix == ".csv":
        with out.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerows([EXPORT_COLUMNS, *([inert_cell(v) for v in row.values()] for row in table)])
    else:
        out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table), encoding="utf-8")
    about = f"{inert(out.name)}: {len(table)} steps of manual review on synthetic dialogues; advisory only."
    out.with_suffix(out.suffix + ".about.txt").write_text(
        f"{about}\n\n{render(region, today or date.today())}\n", encoding="utf-8"
    )
    return out


class ReviewPanel(Panel):
    """Label dialogues by key or button; also the adjudication view, given an AdjudicationSession.

    *region* (such as zh-CN) chooses the crisis resources at the foot; without one: local emergency services and a directory.
    """

    def __init__(
        self, session: ReviewSession, *, region: str | None = None, today: date | None = None, folder: str | Path = "."
    ) -> None:
        self.session, self.region, self.today = session, region, today or date.today()
        self.folder, self.opened = Path(folder), False
        self.head, self.text, self.verdict, self.said = w.HTML(), w.HTML(), w.HTML(), w.HTML("nothing pressed yet")
        self.said.add_class("wb-status")
        self.note = w.Textarea(placeholder="note (optional)", layout=w.Layout(width="480px", height="52px"))
        self.buttons = {key: self.button("", partial(self.press, key)) for key in [*LEVEL_KEYS, *FLAG_KEYS, *ACTIONS]}
        langs = sorted({d.lang for d in session.dialogues})
        self.lang, self.find = dropdown("language", ["all", *langs]), w.Text(placeholder="find in text", continuous_update=False)
        self.count = w.HTML()
        for control in (self.lang, self.find):
            control.observe(lambda _: self.filter(), "value")
        exports = [self.button(f"Export {kind.upper()}", partial(self.export, kind)) for kind in ("csv", "jsonl")]
        pad = KeyPad(self.press, accepts=list(self.buttons), hint=HINT)
        rows = [[self.buttons[k] for k in group] for group in (LEVEL_KEYS, FLAG_KEYS)]
        work = w.VBox(
            [self.text, self.verdict, *map(w.HBox, rows), self.note, w.HBox([self.buttons[k] for k in ACTIONS]), self.said, pad]
        )
        work.add_class("wb-keys")
        self.foot = w.HTML(card(*(f"<p>{inert_html(line)}</p>" for line in render(region, self.today).splitlines())))
        self.build([w.HBox([self.lang, self.find, self.count]), self.head, work, w.HBox(exports), self.foot])
        self.filter()

    def summary(self) -> str:
        p = self.session.progress
        return f"queue={self.session.queue!r}, {p['done']} of {p['total']} done"

    def still(self) -> str:
        return f"{self.head.value}{self.text.value}{self.foot.value}"

    def press(self, key: str) -> None:
        """One key or button."""
        with self.guard():
            if key == "o":
                self.opened = not self.opened
            else:
                if self.session.current and self.note.value != self.session.draft.note:
                    self.session.edit(note=self.note.value)
                self.said.value = inert_html(self.session.press(key)) or self.said.value
            self.refresh()

    def filter(self) -> None:
        """Offer the chosen language and words only. Nothing here tells what a judge said."""
        words, lang = self.find.value.casefold(), self.lang.value
        kept = self.session.focus(lambda d: lang in ("all", d.lang) and words in " ".join(t.content for t in d.turns).casefold())
        self.count.value = f"{kept} of {len(self.session.dialogues)}"
        self.refresh()

    def export(self, kind: str) -> None:
        """Write the queue's annotations beside the notebook, under the queue's name."""
        rows = self.session.store.annotations(self.session.queue)
        self.said.value = f"exported to {inert_html(export(rows, self.folder / f'{file_name(self.session.queue)}.{kind}', region=self.region).name)}"

    def refresh(self) -> None:
        """Bring the screen up to what the session says, and no further."""
        s = self.session
        self.head.value = self._head(s.progress)
        quotes = {"L1": s.verdict.l1.evidence, "L2": s.verdict.l2.evidence} if s.verdict else None
        over = s.progress["done"] == s.progress["total"]
        done = card("<h4>All done. Thank you.</h4>" if over else "<p>Nothing open matches: loosen the filter.</p>")
        self.text.value = dialogue_html(s.current, quotes=quotes, opened=self.opened) if s.current else done
        self.verdict.value = self._verdict()
        self.note.value = s.draft.note
        for key, button in self.buttons.items():
            level, flag = LEVEL_KEYS.get(key), FLAG_KEYS.get(key)
            on = (level or flag) is not None and (s.draft.level == level or flag in s.draft.flags)
            word = level.replace("unknown", "cannot tell") if level else flag or ACTIONS[key]
            button.description = f"{'✓ ' if on else ''}{key} · {'next' if key == 'Enter' and s.moves_on else word}"
            (button.add_class if on else button.remove_class)("wb-on")
            button.disabled = s.current is None and key != "u"

    def _head(self, p: dict[str, Any]) -> str:
        pace = "" if p["pace_s"] is None else f" · {p['pace_s']:.0f} s each, about {max(1, round(p['left_s'] / 60))} min left"
        pause = "<p class='wb-warn'>Several heavy dialogues in a row. Look away for a few minutes; b when you are back.</p>"
        return f"<b>{p['done']} of {p['total']} done, {p['skipped']} skipped</b>{pace}{pause if self.session.break_due else ''}"

    def _verdict(self) -> str:
        s = self.session
        if isinstance(s, AdjudicationSession):
            said = "".join(
                f"<p><b>A reviewer said:</b> {inert_html(o)}{f' — {inert_html(o.note)}' if o.note else ''}</p>"
                for o in s.opinions
            )
            return card(said) if said else ""
        if s.verdict is not None:
            return outcome_html(s.verdict, brief=True)
        return "<p>The judges' verdict is hidden until you commit.</p>" if s.current else ""
