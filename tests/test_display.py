"""What is shown: complete, side by side, and inert whatever the text holds."""

from __future__ import annotations

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.samples import HOSTILE, NAMES, assessment, dialogue, outcome
from workbench import display
from workbench.schema import FLAGS, Condition, RiskLevel, unknown


def parsed(fragment: str):
    """The fragment through a real HTML parser, strict about what html5lib calls an error inside a fragment."""
    return html5lib.parseFragment(fragment, treebuilder="etree", namespaceHTMLElements=False)


def words(fragment: str) -> str:
    tree = parsed(fragment)
    for style in tree.iter("style"):
        style.text = ""
    return " ".join(" ".join(tree.itertext()).split())


def test_an_outcome_shows_both_verdicts_every_condition_and_what_blocked():
    shown = words(outcome()._repr_html_())
    for word in (
        "cue (rules)",
        "ngram (rules)",
        "0.91",
        "0.80",
        "not confirmed: these are not met: L2 is confident enough",
        "disagreement",
        "not assessed",
    ):
        assert word in shown
    assert shown.count("✓ met") == 7 and shown.count("✗ not met") == 1
    plain = str(outcome())
    assert plain.count("[x]") == 7 and plain.count("[ ]") == 1 and "cue (rules)" in plain and repr(outcome()) == plain


def test_a_confirmed_outcome_says_so():
    done = outcome(confirmed=True, conditions=tuple(Condition(name=n, passed=True, value="yes") for n in NAMES))
    assert "confirmed: all six conditions and both guards are met" in words(display.outcome_html(done))


def test_an_unknown_gives_its_reason_and_the_level_is_marked_incomplete():
    half = outcome(l2=unknown("timeout", tier="L2", detail="no answer in 12 s"), incomplete=True)
    assert "timeout: no answer in 12 s" in words(display.outcome_html(half)) and "Incomplete" in words(display.outcome_html(half))
    assert "timeout: no answer in 12 s" in display.outcome_text(half) and "(incomplete)" in display.outcome_text(half)


def test_a_capped_level_keeps_its_raw_level_in_sight():
    capped = assessment(level=RiskLevel.MEDIUM, flags=dict.fromkeys(FLAGS, False) | {"joke": True})
    assert "raw: critical" in words(display.assessment_html(capped))


def test_no_level_is_told_by_colour_alone():
    for level in [*RiskLevel, "unknown"]:
        assert str(level) in words(display.level_html(level))


def test_evidence_is_marked_where_it_is_a_quote_and_only_there():
    marked = display.highlight(
        "it is all arranged now", {"L1": "all arranged", "L2": "arranged now", "L3": "not in it", "L4": "  "}
    )
    assert [m.text for m in parsed(marked).iter("mark")] == ["all ", "arranged", " now"]
    assert [s.text for s in parsed(marked).iter("sup")] == ["L1", "L1 L2", "L2"]


@given(st.text(max_size=80), st.text(max_size=10), st.text(max_size=10))
def test_highlighting_loses_no_character(text, one, two):
    tree = parsed(f"<div>{display.highlight(text, {'A': one, 'B': two})}</div>")
    for sup in tree.iter("sup"):
        sup.text = ""
    assert "".join(tree.itertext()) == "".join(parsed(f"<div>{display.inert_html(text)}</div>").itertext())


@pytest.mark.parametrize("fragment", [
    lambda: display.dialogue_html(dialogue(HOSTILE, id=HOSTILE, phenomenon=HOSTILE)),
    lambda: display.assessment_html(assessment(evidence=HOSTILE, judge=HOSTILE, judge_kind=HOSTILE), text=HOSTILE),
    lambda: display.assessment_html(unknown("api_error", detail=HOSTILE)),
    lambda: display.outcome_html(outcome(dialogue_id=HOSTILE, review_reasons=(HOSTILE,), arm=HOSTILE, conditions=(
        Condition(name=HOSTILE, passed=False, value=HOSTILE),)), text=HOSTILE),
])  # fmt: skip
def test_hostile_text_is_inert_as_html(fragment):
    tree = parsed(fragment())
    allowed = {
        "div",
        "span",
        "style",
        "h4",
        "p",
        "b",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "mark",
        "i",
        "sup",
    }
    elements = [e for e in tree.iter() if isinstance(e.tag, str) and e.tag != "DOCUMENT_FRAGMENT"]
    assert {e.tag for e in elements} <= allowed
    assert not [a for e in elements for a in e.attrib if a.startswith("on") or a in ("src", "href")]
    text = "".join(tree.itertext())
    assert "\x1b" not in text and "\u202e" not in text and "alert(1)" in text
    assert any("mathjax_ignore" in e.get("class", "") for e in elements)


def test_hostile_text_is_inert_as_plain_text():
    for shown in display.outcome_text(outcome(dialogue_id=HOSTILE)):
        assert "\x1b" not in shown and "\u202e" not in shown


def test_a_dialogue_is_folded_behind_its_content_note_and_shows_no_gold():
    shown = display.dialogue_html(dialogue("text", gold={"risk_level": "critical"}))
    details = list(parsed(shown).iter("details"))
    assert len(details) == 1 and "open" not in details[0].attrib and display.wording()["content_note"] in words(shown)
    assert "critical" not in words(shown)


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("style", ["display.css", "panel.css"])
def test_every_colour_pair_of_the_style_reaches_contrast_aa(style):
    import re
    from pathlib import Path

    (path,) = Path(display.__file__).parent.rglob(style)

    full = lambda c: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:])  # noqa: E731
    checked = 0
    for rule in re.findall(r"([^{}]+)\{([^}]*)\}", path.read_text("utf-8")):
        fore = re.search(r"(?<![-\w])color:(#[0-9a-f]{3,6})", rule[1])
        if fore:
            back = re.search(r"background:(#[0-9a-f]{3,6})", rule[1])
            light, dark = sorted((luminance(full(fore[1])), luminance(full(back[1] if back else "#f6f7f9"))), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, rule[0]
            checked += 1
    assert checked > 5


def test_display_needs_no_notebook_library():
    import subprocess
    import sys

    code = "import sys, workbench.display; assert not {'IPython', 'ipywidgets', 'pandas', 'matplotlib'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
