"""Manual review without a widget: blind, saved at once, resumable, undoable, for two reviewers and one adjudicator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import outcome
from workbench.errors import SetupError, StoreError
from workbench.schema import Dialogue, Turn
from workbench.widgets.session import EXPORT_COLUMNS, AdjudicationSession, ReviewSession, export_rows, first_labels, standing


class Log(list):
    """The smallest thing that keeps annotations: a list."""

    def annotate(self, row):
        self.append(dict(row) | {"id": len(self) + 1})
        return len(self)

    def annotations(self, queue):
        return [dict(r) for r in self if r["queue"] == queue]


class Full(Log):
    """A store that refuses to write."""

    def annotate(self, row):
        if row["kind"] == "open":
            return super().annotate(row)
        raise StoreError("the ledger is full: free some space, then press again")


def dialogues(n: int = 6) -> list[Dialogue]:
    return [
        Dialogue(id=f"d{i}", turns=(Turn(role="user", content=f"text {i}"),), provenance={"synthetic": True}) for i in range(n)
    ]


def session(log: Log, reviewer: str = "ana", n: int = 6, step: float = 1.0, **options) -> ReviewSession:
    """A session whose clock advances *step* seconds each time it is read."""
    ticks = count()
    start = datetime(2026, 1, 2, tzinfo=UTC)
    clock = {"ticks": lambda: next(ticks) * step, "now": lambda: start + timedelta(seconds=next(ticks))}
    return ReviewSession(
        dialogues(n), [outcome(dialogue_id=f"d{i}") for i in range(n)], store=log, reviewer=reviewer, **(clock | options)
    )


def label(s: ReviewSession, *keys: str) -> str:
    """Label the item on the table and go on; returns its id."""
    item = s.current.id
    for key in (*keys, "Enter"):
        s.press(key)
    if s.revealing:
        s.press("Enter")
    return item


def test_one_key_per_level_and_flag_enter_commits_and_it_is_in_the_store_at_once():
    log = Log()
    s = session(log)
    s.press("3"), s.press("j"), s.press("q"), s.press("q")
    assert str(s.draft) == "high + joke" and len(standing(log)) == 0
    assert s.press("Enter") == "saved high + joke"
    (row,) = standing(log)
    assert (row["level"], row["flags"], row["reviewer"], row["phase"], row["kind"]) == ("high", "joke", "ana", "pre", "label")
    assert row["at"].startswith("2026-01-02T") and row["text_hash"] and row["seconds"] > 0


def test_cannot_tell_is_a_label_of_its_own():
    log = Log()
    assert label(session(log), "0") and standing(log)[0]["level"] == "unknown"


def test_enter_without_a_level_saves_nothing_and_says_what_to_press():
    log = Log()
    assert "choose a level first" in session(log).press("Enter") and not standing(log)


def test_the_verdict_is_hidden_until_commit_in_the_blind_arm_and_visible_in_the_shown_arm():
    s = session(Log())
    seen = {}
    while s.current:
        seen[s.arm] = seen.get(s.arm, 0) + 1
        assert (s.verdict is None) == (s.arm == "blind")
        s.press("2"), s.press("Enter")
        assert s.revealing and s.verdict.dialogue_id == s.current.id
        s.press("Enter")
    assert seen == {"blind": 3, "shown": 3}


def test_arms_are_crossed_over_two_reviewers_and_fixed_by_the_seed():
    def arms(log, who, **options):
        s, found = session(log, who, **options), {}
        while s.current:
            found[s.current.id] = s.arm
            label(s, "1")
        return found, list(found)

    log = Log()
    (ana, order_a), (bo, order_b) = arms(log, "ana"), arms(log, "bo")
    assert {i: {"blind": "shown", "shown": "blind"}[a] for i, a in ana.items()} == bo
    assert order_a != order_b and arms(Log(), "ana") == (ana, order_a) and arms(Log(), "ana", seed=1) != (ana, order_a)


def test_show_never_and_always_do_what_they_say():
    assert session(Log(), show="never").verdict is None and session(Log(), show="always").verdict is not None


def test_a_change_after_the_reveal_is_kept_beside_the_first_answer():
    log = Log()
    s = session(log)
    s.press("1"), s.press("Enter"), s.press("4"), s.press("Enter"), s.press("Enter")
    assert [(r["level"], r["phase"]) for r in standing(log)] == [("low", "pre"), ("critical", "post")]
    assert first_labels(log)[standing(log)[0]["dialogue_id"]]["ana"]["level"] == "low"


def test_a_label_given_again_after_an_undo_counts_as_given_after_the_reveal():
    log = Log()
    s = session(log)
    item = s.current.id
    s.press("1"), s.press("Enter"), s.press("u")
    assert s.current.id == item and not s.revealing and s.draft.level == "low"
    s.press("2"), s.press("Enter")
    assert [(r["level"], r["phase"]) for r in standing(log)] == [("medium", "post")] and first_labels(log) == {}


def test_without_reveal_an_undone_label_is_still_blind():
    log = Log()
    s = session(log, reveal=False)
    item = label(s, "1")
    assert s.press("u") == "took back the last one" and s.current.id == item
    label(s, "2")
    assert first_labels(log)[item]["ana"]["level"] == "medium" and len(log) == 4


def test_undo_goes_back_step_by_step_and_never_deletes():
    log = Log()
    s = session(log, reveal=False)
    items = [label(s, "1"), label(s, "2"), label(s, "3")]
    for item in reversed(items):
        s.press("u")
        assert s.current.id == item
    assert s.press("u") == "nothing to undo" and standing(log) == [] and len(log) == 7


def test_undo_clears_a_draft_before_it_takes_back_a_label():
    s = session(Log(), reveal=False)
    label(s, "1")
    s.press("3")
    assert "cleared" in s.press("u") and s.progress["done"] == 1


def test_the_same_key_within_300_ms_is_ignored():
    quick = session(Log(), step=0.05, reveal=False)
    quick.press("1"), quick.press("Enter")
    quick.edit(level="low")
    assert quick.press("Enter") == "" and quick.progress["done"] == 1
    slow = session(Log(), step=0.4, reveal=False)
    slow.press("1"), slow.press("Enter")
    slow.edit(level="low")
    assert slow.press("Enter") == "saved low" and slow.progress["done"] == 2


def test_skipped_items_come_back_at_the_end():
    log = Log()
    s = session(log, n=3)
    first = s.current.id
    assert "comes back" in s.press("s") and s.progress["skipped"] == 1
    others = [label(s, "1"), label(s, "1")]
    assert first not in others and s.current.id == first
    s.press("s")
    assert s.current.id == first
    label(s, "2")
    assert s.current is None and s.progress["skipped"] == 0 and s.press("3") == "nothing is open"


def test_a_new_session_resumes_where_the_last_one_stopped():
    log = Log()
    s = session(log)
    done = [label(s, "1"), label(s, "4")]
    nxt = s.current.id
    again = session(log)
    assert again.progress["done"] == 2 and again.current.id == nxt and nxt not in done and again.arm == s.arm
    again.press("u")
    assert again.current.id == done[-1] and again.draft.level == "critical"


def test_a_queue_refuses_other_settings_and_other_items():
    log = Log()
    session(log, seed=3)
    assert session(log, "bo") and session(log, seed=3)
    for other in ({"seed": 4}, {"show": "never"}, {"reveal": False}, {"n": 5}):
        with pytest.raises(SetupError, match="opened with other settings"):
            session(log, **other)
    with pytest.raises(SetupError, match="reviewer"):
        session(log, " ")


def test_a_store_that_fails_changes_nothing_and_says_so():
    s = session(Full())
    s.press("2")
    before = s.current.id
    with pytest.raises(StoreError):
        s.press("Enter")
    assert s.current.id == before and s.progress["done"] == 0 and s.draft.level == "medium" and not s.revealing


def test_a_run_of_heavy_labels_asks_for_a_break_until_it_is_taken():
    s = session(Log(), n=9, break_after=3)
    for key in ("4", "3", "1", "4", "3"):
        label(s, key)
        assert not s.break_due
    label(s, "4")
    assert s.break_due and s.press("b") == "welcome back" and not s.break_due


def test_progress_counts_and_estimates_what_is_left():
    s = session(Log(), n=4)
    assert s.progress == {"done": 0, "total": 4, "skipped": 0, "pace_s": None, "left_s": None}
    label(s, "1")
    assert (
        s.progress["left_s"] == s.progress["pace_s"] * 3
        and repr(s) == "ReviewSession(queue='review', done=1, total=4, skipped=0)"
    )


def disagreement(one: str, two: str) -> Log:
    """A log in which reviewer *one* says 112233 and *two* says 112244 of the six items."""
    log = Log()
    for who, keys in ((one, "112233"), (two, "112244")):
        s = session(log, who, show="never")
        while s.current:
            label(s, keys[int(s.current.id[1])])
    return log


def test_adjudication_shows_the_disagreements_only_and_stores_its_own_labels():
    log = disagreement("ana", "bo")
    judge = AdjudicationSession(dialogues(), store=log, reviewer="cy", ticks=count().__next__)
    assert judge.progress["total"] == 2 and judge.current.id in ("d4", "d5") and judge.verdict is None
    assert {o.level for o in judge.opinions} == {"high", "critical"}
    final = label(judge, "4", "t")
    rows = standing(log.annotations("review/adjudication"))
    assert [(r["kind"], r["dialogue_id"], r["level"], r["flags"], r["detail"]) for r in rows] == [
        ("adjudicate", final, "critical", "third_party", "from blind labels")
    ]  # fmt: skip


def test_an_adjudication_that_rests_on_shown_labels_says_so():
    log = Log()
    for who, key in (("ana", "1"), ("bo", "4")):
        s = session(log, who, n=2)  # half shown: each item is shown to one of the two
        while s.current:
            label(s, key)
    label(AdjudicationSession(dialogues(2), store=log, reviewer="cy", ticks=count().__next__), "2")
    assert [r["detail"] for r in log.annotations("review/adjudication") if r["kind"] == "adjudicate"] == ["from shown labels"]


def test_opinions_do_not_tell_who_said_what():
    def opinions(log):
        judge, found = AdjudicationSession(dialogues(), store=log, reviewer="cy", ticks=count().__next__), {}
        while judge.current:
            found[judge.current.id] = judge.opinions
            label(judge, "1")
        return found

    assert opinions(disagreement("ana", "bo")) == opinions(disagreement("bo", "ana"))


def test_export_rows_tell_who_when_blind_and_what_was_taken_back():
    log = Log()
    s = session(log)
    label(s, "2"), s.press("u"), label(s, "3")
    rows = export_rows(log)
    assert [tuple(r) == EXPORT_COLUMNS for r in rows] == [True] * 3
    assert [(r["kind"], r["level"], r["undone"], r["phase"]) for r in rows] == [
        ("label", "medium", True, "pre"), ("undo", "", False, "post"), ("label", "high", False, "post"),
    ]  # fmt: skip
    assert {r["blind"] for r in rows} <= {True, False} and all(r["reviewer"] == "ana" and r["at"] for r in rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*"01234fqtjusbx", "Enter"]), max_size=40), st.booleans())
def test_whatever_is_pressed_a_restart_shows_the_same_state(keys, reveal):
    log = Log()
    s = session(log, n=4, reveal=reveal)
    for key in keys:
        blind_before = s.current is not None and s.arm == "blind" and not s.revealing
        assert not blind_before or s.verdict is None
        s.press(key)
    again = session(log, n=4, reveal=reveal)
    assert again.progress == s.progress and again.mine == s.mine and again.break_due == s.break_due
    assert again.progress["done"] + again.progress["skipped"] <= 4 and [r["id"] for r in log] == list(range(1, len(log) + 1))
