"""The review panel: what reaches the browser, what reaches the store, and what a reviewer can do with keys alone."""

from __future__ import annotations

import csv
import json
from datetime import date
from itertools import count

import comm.base_comm
import pytest

from tests.samples import HOSTILE, assessment, corpus, outcome
from tests.test_display import parsed, words
from tests.test_widgets_session import Full
from workbench.schema import RiskLevel
from workbench.store import Store
from workbench.widgets.base import KeyPad
from workbench.widgets.review import ReviewPanel, export
from workbench.widgets.session import EXPORT_COLUMNS, AdjudicationSession, ReviewSession

TODAY = date(2026, 12, 1)
CANARY = "canary-7f3a"


def verdicts(dialogues, evidence: str = CANARY, level: RiskLevel = RiskLevel.CRITICAL, confidence: float = 0.8731) -> list:
    side = {"level": level, "raw_level": level, "confidence": confidence, "evidence": evidence, "judge": f"judge-{evidence}"}
    return [
        outcome(dialogue_id=d.id, l1=assessment(**side), l2=assessment("L2", **side), level=level, review_reasons=())
        for d in dialogues
    ]


def session(store, reviewer: str = "ana", n: int = 4, outcomes=None, **options) -> ReviewSession:
    dialogues = corpus(n)
    return ReviewSession(
        dialogues,
        verdicts(dialogues) if outcomes is None else outcomes,
        store=store,
        reviewer=reviewer,
        ticks=count().__next__,
        **options,
    )


def panel(store, *args, **options) -> ReviewPanel:
    return ReviewPanel(session(store, *args, **options), today=TODAY)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "review.db") as opened:
        yield opened


def tree(widget) -> list:
    found = [widget]
    for child in getattr(widget, "children", ()):
        found += tree(child)
    return found


def states(root) -> str:
    """All that the browser holds of a panel, without the random ids."""
    kept = []
    for widget in tree(root):
        state = {k: v for k, v in widget.get_state().items() if not (isinstance(v, str) and v.startswith("IPY_MODEL_"))}
        kept.append({k: v for k, v in state.items() if k not in ("children", "_esm", "_css", "_anywidget_id")})
    return json.dumps(kept, default=str)


@pytest.fixture
def messages(monkeypatch):
    """Every comm message that any widget sends, as text."""
    sent: list[str] = []
    # Outside a kernel the comm drops what it is given: this is the one place where all messages pass.
    monkeypatch.setattr(
        comm.DummyComm,
        "publish_msg",
        lambda self, msg_type, data=None, metadata=None, buffers=None, **keys: sent.append(json.dumps([data, keys], default=str)),
    )
    assert issubclass(comm.DummyComm, comm.base_comm.BaseComm)
    return sent


def test_the_judges_verdict_is_in_no_message_to_the_browser_until_the_label_is_committed(store, messages):
    shown = panel(store, show="never")
    assert len(messages) > 10 and any("text" in m for m in messages)
    for step in ("o", "3", "j", "s", "2"):
        shown.press(step)
    assert not [m for m in messages if CANARY in m or "0.87" in m]
    shown.press("Enter")
    assert [m for m in messages if CANARY in m and "0.87" in m], "the reveal must be seen by this test"
    messages.clear()
    shown.press("Enter")
    shown.press("1")
    assert not [m for m in messages if CANARY in m or "0.87" in m]


def test_in_the_blind_arm_the_browser_cannot_tell_one_verdict_from_another(tmp_path):
    """Non-interference: two panels that differ in the verdicts only hold the same state, key by key, until the commit."""
    dialogues = corpus(4)
    panels = []
    for name, facts in (("a", ("one", RiskLevel.LOW, 0.6)), ("b", ("two", RiskLevel.CRITICAL, 0.99))):
        store = Store(tmp_path / f"{name}.db")
        panels.append(panel(store, outcomes=verdicts(dialogues, *facts), show="never"))
    for key in ("", "o", "3", "t", "s", "u", "4"):
        for p in panels:
            if key:
                p.press(key)
        assert states(panels[0]) == states(panels[1]), key
    for p in panels:
        p.press("Enter")
    assert states(panels[0]) != states(panels[1])
    for p in panels:
        p.session.store.close()


def test_the_shown_arm_shows_the_verdict_before_the_label(store):
    assert CANARY in panel(store, show="always").verdict.value


def test_twenty_labels_by_key_are_twenty_rows_and_a_new_panel_goes_on_from_there(tmp_path):
    path = tmp_path / "review.db"
    with Store(path) as one:
        first = panel(one, n=24)
        for n in range(20):
            for key in (str(n % 4 + 1), "Enter", "Enter"):
                first.press(key)
        assert "20 of 24 done" in first.head.value
    with Store(path) as two:
        again = panel(two, n=24)
        assert "20 of 24 done" in again.head.value and len([r for r in two.annotations("review") if r["kind"] == "label"]) == 20
        assert again.session.current.id == first.session.current.id


def test_every_key_has_a_button_that_does_the_same_and_says_its_key(store):
    shown = panel(store)
    assert [b.description for b in shown.buttons.values()] == [
        "1 · low", "2 · medium", "3 · high", "4 · critical", "0 · cannot tell", "f · fiction", "q · quote", "t · third_party", "j · joke",
        "Enter · commit", "s · skip", "u · undo", "o · open or close the text", "b · I took a break",
    ]  # fmt: skip
    shown.buttons["3"].click()
    assert shown.buttons["3"].description == "✓ 3 · high" and "wb-on" in shown.buttons["3"]._dom_classes
    shown.buttons["Enter"].click()
    assert shown.buttons["Enter"].description == "Enter · next" and "saved high" in shown.said.value
    assert [r["level"] for r in store.annotations("review") if r["kind"] == "label"] == ["high"]


def test_the_key_pad_passes_its_keys_on_and_no_others(store):
    shown = panel(store)
    (pad,) = [w for w in tree(shown) if isinstance(w, KeyPad)]
    for content in ({"key": "4"}, {"key": "z"}, {"key": ["4"]}, {}, {"key": "f"}):
        pad._handle_custom_msg(content, [])
    assert str(shown.session.draft) == "critical + fiction" and repr(pad) == "KeyPad(14 keys)"


def test_the_text_is_folded_until_asked_for_and_stays_open_for_the_next_item(store):
    shown = panel(store)
    assert "<details open>" not in shown.text.value
    shown.press("o")
    assert "<details open>" in shown.text.value
    shown.press("s")
    assert "<details open>" in shown.text.value


def test_a_note_is_saved_with_its_label_and_does_not_follow_to_the_next(store):
    shown = panel(store)
    shown.note.value = "not sure about the last line"
    for key in ("2", "Enter", "Enter"):
        shown.press(key)
    assert [r["note"] for r in store.annotations("review") if r["kind"] == "label"] == ["not sure about the last line"]
    assert shown.note.value == ""


def test_a_store_that_refuses_is_one_sentence_on_the_panel_and_the_item_stays():
    shown = panel(Full())
    shown.press("2")
    shown.press("Enter")
    assert "the ledger is full: free some space" in shown.message.value and "0 of 4 done" in shown.head.value
    assert shown.session.draft.level == "medium" and "✓ 2" in shown.buttons["2"].description


def test_a_run_of_heavy_items_brings_the_break_reminder(store):
    shown = panel(store, n=8, break_after=3)
    for _ in range(3):
        for key in ("4", "Enter", "Enter"):
            shown.press(key)
    assert "Look away" in shown.head.value
    shown.press("b")
    assert "Look away" not in shown.head.value


def test_filters_use_what_the_reviewer_may_know(store):
    shown = panel(store)
    shown.lang.value = "zh"
    assert shown.count.value == "2 of 4" and shown.session.current.lang == "zh"
    shown.find.value = "TEXT 3"
    assert shown.count.value == "1 of 4" and shown.session.current.id == "d3"
    shown.lang.value = "all"
    shown.find.value = "nowhere"
    assert "0 of 4" in shown.count.value and "All done" not in words(shown.text.value)


def test_the_end_of_the_queue_thanks_and_can_still_be_undone(store):
    shown = panel(store, n=1)
    for key in ("2", "Enter", "Enter"):
        shown.press(key)
    assert "All done" in words(shown.text.value) and shown.buttons["1"].disabled and not shown.buttons["u"].disabled
    shown.press("u")
    assert shown.session.current is not None


def test_resources_for_the_region_are_at_the_foot_and_a_number_never_comes_from_a_language(store):
    default, china = (
        words(ReviewPanel(session(store, who), region=r, today=TODAY).still()) for who, r in (("a", None), ("b", "zh-CN"))
    )
    assert "emergency" in default.casefold() and "12356" not in default and "988" not in default
    assert "12356" in china and "988" not in china


def test_hostile_text_is_inert_everywhere_in_the_panel(store):
    dialogues = corpus(2)
    bad = [
        d.model_copy(update={"id": f"{HOSTILE}{n}", "turns": (d.turns[0].model_copy(update={"content": HOSTILE}),)})
        for n, d in enumerate(dialogues)
    ]
    shown = ReviewPanel(
        ReviewSession(bad, verdicts(bad, HOSTILE), store=store, reviewer=HOSTILE, queue=HOSTILE, ticks=count().__next__),
        today=TODAY,
    )
    shown.note.value = HOSTILE
    for key in ("o", "2", "Enter"):
        shown.press(key)
    for widget in tree(shown):
        value = getattr(widget, "value", "")
        if isinstance(value, str) and widget not in (shown.note, shown.foot):
            names = {e.tag for e in parsed(value).iter() if isinstance(e.tag, str)}
            assert not names & {"script", "img", "iframe", "a"}
            assert "\x1b" not in value and "\u202e" not in value
    assert "alert(1)" in words(shown.text.value)


def test_two_reviewers_and_an_adjudicator_who_sees_opinions_but_no_names(store):
    for who, level in (("ana-reviewer", "2"), ("bo-reviewer", "4")):
        shown = panel(store, who, n=3, show="never")
        while shown.session.current:
            for key in (level, "Enter", "Enter"):
                shown.press(key)
    judge = ReviewPanel(AdjudicationSession(corpus(3), store=store, reviewer="cy", ticks=count().__next__), today=TODAY)
    seen = words(judge.verdict.value)
    assert "medium" in seen and "critical" in seen and "reviewer said" in seen
    assert "ana-reviewer" not in states(judge) and CANARY not in states(judge)
    judge.press("3")
    judge.press("Enter")
    assert [r["level"] for r in store.annotations("review/adjudication") if r["kind"] == "adjudicate"] == ["high"]


def test_exports_hold_every_step_and_no_cell_can_start_a_formula(store, tmp_path):
    shown = panel(store, "=cmd|'/c calc'!A0")
    shown.note.value = "@SUM(A1)"
    for key in ("2", "Enter", "u", "3", "Enter"):
        shown.press(key)
    rows = store.annotations("review")
    table = export(rows, tmp_path / "review.csv", today=TODAY)
    cells = list(csv.DictReader(table.read_text("utf-8-sig").splitlines()))
    assert tuple(cells[0]) == EXPORT_COLUMNS and len(cells) == len(rows) - 1
    assert all(v[:1] not in ("=", "+", "-", "@", "\t", "\r") for row in cells for v in row.values())
    assert [(r["kind"], r["phase"], r["undone"]) for r in cells] == [
        ("label", "pre", "True"),
        ("undo", "post", "False"),
        ("label", "post", "False"),
    ]
    lines = [json.loads(line) for line in export(rows, tmp_path / "review.jsonl", today=TODAY).read_text("utf-8").splitlines()]
    assert len(lines) == len(cells) and lines[0]["note"] == "@SUM(A1)" and lines[0]["blind"] in (True, False)
    assert "emergency" in (tmp_path / "review.csv.about.txt").read_text("utf-8")


def test_the_export_button_writes_next_to_the_notebook_under_a_safe_name(store, tmp_path):
    dialogues = corpus(2)
    shown = ReviewPanel(
        ReviewSession(dialogues, store=store, reviewer="ana", queue="../x y", ticks=count().__next__),
        today=TODAY,
        folder=tmp_path,
    )
    shown.press("2")
    shown.press("Enter")
    shown.export("csv")
    assert (tmp_path / "___x_y.csv").exists() and "exported to ___x_y.csv" in shown.said.value


def test_the_repr_is_one_stable_line(store):
    assert repr(panel(store)) == "ReviewPanel(queue='review', 0 of 4 done)"
