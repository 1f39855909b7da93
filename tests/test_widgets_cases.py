"""The side-by-side explorer and the anchoring lab, driven from Python."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.samples import HOSTILE, WordJudge, corpus
from tests.test_display import words
from workbench.errors import SetupError
from workbench.widgets.base import background
from workbench.widgets.cases import AnchoringLab, SideBySide, flips


def judges(**options) -> list[WordJudge]:
    return [WordJudge("one"), WordJudge("two", **options)]


def press(panel, label: str, *, wait: bool = True) -> None:
    """Click the button with this label and wait for the work it starts."""
    stack = list(panel.children)
    while stack:
        widget = stack.pop()
        if getattr(widget, "description", "") == label and hasattr(widget, "click"):
            widget.click()
            return panel.work.wait() if wait else None
        stack += getattr(widget, "children", ())
    raise AssertionError(f"no button {label}")


def test_a_run_shows_both_verdicts_the_conditions_and_the_evidence_in_the_text():
    panel = SideBySide(corpus(), judges=judges())
    panel.pick.value = "d3"
    assert "not run yet" in words(panel.out.value)
    press(panel, "▶ Run")
    shown = words(panel.out.value)
    assert "one (rules)" in shown and "two (rules)" in shown and shown.count("✓ met") == 8 and "confirmed: all six" in shown
    assert "<mark>" in panel.out.value and panel.work.status.value.startswith("done: 1 assessed, 1 confirmed")


def test_filters_narrow_the_choice_and_say_how_many_of_how_many():
    panel = SideBySide(corpus(8), judges=judges())
    panel.lang.value = "zh"
    assert panel.count.value == "4 of 8" and dict(panel.pick.options).keys() == {"d1", "d3", "d5", "d7"}
    panel.level.value = "critical"
    assert dict(panel.pick.options).keys() == {"d3", "d7"}
    panel.find.value = "TEXT 7"
    assert panel.pick.options == (("d7", "d7"),)
    panel.kind.value = "plain"
    assert panel.count.value == "0 of 8" and "no dialogue matches" in panel.text.value
    press(panel, "▶ Run", wait=False)
    assert "no dialogue matches" in panel.message.value


def test_the_outcome_filter_works_on_what_was_run():
    panel = SideBySide(corpus(8), judges=judges())
    panel.result.value = "confirmed"
    assert panel.count.value == "0 of 8"
    panel.result.value = "any"
    press(panel, "▶▶ Run all matching")
    panel.result.value = "confirmed"
    assert dict(panel.pick.options).keys() == {"d3", "d7"} and "confirmed: all six" in words(panel.out.value)
    panel.result.value = "judges disagree"
    assert panel.count.value == "0 of 8"


def test_an_edited_text_is_judged_as_it_stands_and_does_not_touch_the_corpus():
    panel = SideBySide(corpus(), judges=judges())
    panel.edit.value = "critical words now"
    press(panel, "▶ Run")
    assert "d0 (edited)" in words(panel.out.value) and panel.outcome.level == "critical" and "d0" not in panel.known
    press(panel, "↺ Original text")
    assert panel.edit.value.startswith("low text") and panel.outcome is None
    panel.edit.value = "  "
    press(panel, "▶ Run", wait=False)
    assert "there is no text to judge" in panel.message.value


def test_a_kept_outcome_stays_beside_the_next_one():
    panel = SideBySide(corpus(), judges=judges())
    press(panel, "▶ Run")
    press(panel, "⊞ Keep for comparison")
    panel.pick.value = "d3"
    press(panel, "▶ Run")
    shown = words(panel.out.value)
    assert shown.index("d3") < shown.index("Kept for comparison") < shown.index("d0")


def test_the_exact_prompts_and_the_raw_answers_are_there_on_demand():
    panel = SideBySide(corpus(), judges=judges(leans=True))
    press(panel, "Prompts and raw answers", wait=False)
    assert "nothing was asked yet" in panel.message.value
    panel.arm.value = "told_critical"
    press(panel, "▶ Run")
    press(panel, "Prompts and raw answers", wait=False)
    shown = words(panel.proof.value)
    assert shown.count("Its hash matches the recorded one") == 2 and "rated this message: critical" in shown
    assert shown.count('"risk_level"') >= 2 and panel.outcome.arm == "told_critical" and panel.known == {}


def test_the_same_question_is_not_asked_twice():
    both = judges()
    panel = SideBySide(corpus(), judges=both)
    press(panel, "▶ Run")
    press(panel, "▶ Run")
    assert [j.asked for j in both] == [1, 1]


def test_a_failing_judge_is_an_unknown_in_the_panel_not_a_traceback():
    panel = SideBySide(corpus(), judges=judges(fails=True))
    press(panel, "▶ Run")
    assert "timeout" in words(panel.out.value) and "1 with an unknown" in panel.work.status.value


def test_an_error_of_the_work_is_one_sentence_in_the_panel():
    panel = SideBySide(corpus(), judges=judges())

    async def broken(_):
        raise ValueError(f"bad thing\nsecond line {HOSTILE}")

    panel.each(panel.matching, broken, lambda done: "never")
    panel.work.wait()
    assert "ValueError: bad thing" in panel.work.status.value and "second line" not in panel.work.status.value
    assert panel.work.halt.disabled


def test_stopping_keeps_what_is_done_and_running_again_goes_on_from_there():
    both = judges()
    panel = SideBySide(corpus(24), judges=both)
    answer = both[1].answer

    async def slow(request):
        await asyncio.sleep(0.03 if "text 1" not in request.prompt.view.text else 0)
        return await answer(request)

    both[1].answer = slow
    press(panel, "▶▶ Run all matching", wait=False)
    deadline = time.monotonic() + 20
    while panel.work.bar.value < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not panel.work.halt.disabled and "of 24, about" in panel.work.status.value
    panel.work.halt.click()
    panel.work.wait()
    done = len(panel.known)
    assert 8 <= done < 24 and "running again goes on from there" in panel.work.status.value
    asked = both[1].asked
    press(panel, "▶▶ Run all matching")
    assert len(panel.known) == 24 and both[1].asked - asked <= 24 - done


def test_work_does_not_run_on_the_callers_thread_and_refuses_a_second_at_once():
    panel = SideBySide(corpus(), judges=judges())
    loops = []

    async def one(_):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0.1)

    panel.each(panel.matching[:1], one, lambda done: "done")
    panel.each(panel.matching[:1], one, lambda done: "done")
    assert "still working" in panel.work.status.value
    panel.work.wait()
    assert loops == [background().loop]


def test_a_panel_needs_dialogues_and_two_judges():
    for args in (([], judges()), (corpus(), judges()[:1])):
        with pytest.raises(SetupError, match="at least two judges"):
            SideBySide(args[0], judges=args[1])


def test_a_panel_has_a_stable_repr_and_an_inert_still():
    panel = SideBySide(corpus(), judges=judges())
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == "SideBySide(6 dialogues, judges=['one', 'two'])" == repr(panel)
    assert "a still" in bundle["text/html"] and "model_id" in str(bundle)


def test_the_lab_draws_an_arrow_from_blind_to_told_and_tallies_flips():
    lab = AnchoringLab(corpus(), judges=judges(leans=True))
    lab.pick.value = "d0"
    press(lab, "▶ Run")
    assert "score: blind 0.02 → told 0.97" in words(lab.out.value) and "<path" in lab.out.value
    assert "1 of 1" in words(lab.tally.value) and "always the same answer" in words(lab.tally.value)
    press(lab, "▶▶ Run all matching")
    # d3 is critical already; the other five of six move.
    assert "two (rules) told critical 1 5 of 6 [" in words(lab.tally.value)
    lab.told.value = "told_low"
    lab.pick.value = "d3"
    press(lab, "▶ Run")
    # (3 + 0.5 + 0.4) / 4 = 0.975 down to (0 + 0.5 - 0.4) / 4 = 0.025: the score's definition, by hand.
    assert "(-0.95)" in words(lab.out.value) and "told low 1 1 of 1" in words(lab.tally.value)


def test_running_a_comparison_again_does_not_count_it_twice():
    lab = AnchoringLab(corpus(), judges=judges(leans=True))
    press(lab, "▶ Run")
    press(lab, "▶ Run")
    assert len(lab.seen) == 1
    lab.wording.value = 1
    press(lab, "▶ Run")
    assert len(lab.seen) == 2 and words(lab.tally.value).count("told critical") == 2


def test_a_judge_that_cannot_read_an_anchor_is_not_applicable_and_not_zero():
    lab = AnchoringLab(corpus(), judges=judges())
    press(lab, "▶ Run", wait=False)
    assert "not applicable: judge 'two' cannot read an anchor" in words(lab.message.value) and not lab.seen


def test_an_unknown_side_is_counted_and_never_a_flip():
    lab = AnchoringLab(corpus(), judges=judges(leans=True, fails=True))
    press(lab, "▶ Run")
    assert "no arrow to draw" in lab.out.value and "nothing to compare" in lab.tally.value
    (row,) = lab.seen.values()
    assert row["toward"] is None and words(lab.tally.value).rstrip().endswith("1")


def test_flips_name_their_direction():
    from tests.samples import assessment, outcome

    low, high = (outcome(l2=assessment("L2", level=v, raw_level=v)) for v in ("low", "high"))
    assert flips("told_critical", low, None, high)["toward"] is True and flips("told_low", low, None, high)["toward"] is False
    assert flips("told_medium", low, None, high)["toward"] is False, "one step below or one above are as far from medium"
    assert flips("told_high", low, None, high)["toward"] is True
    assert flips("told_l1", low, None, high)["toward"] is True, "L1 said critical"
    assert flips("neutral", low, high, high) == {"toward": True, "noise": True, "confirm": False}


def test_a_run_tells_its_progress_to_a_function(tmp_path):
    import workbench as wb

    told = []
    pipeline = wb.DoubleConfirmation(*judges())
    wb.sync(wb.run(pipeline, corpus(4), out=tmp_path / "run", progress=lambda done, total: told.append((done, total))))
    assert told == [(n, 4) for n in range(5)]
