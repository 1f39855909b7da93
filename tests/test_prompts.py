"""A prompt is a pure function of the view, and nothing in it can break out of its markers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import prompts
from workbench.errors import SetupError
from workbench.schema import Trend, View

LANGS = st.sampled_from(["zh", "en", "mixed"])
VIEWS = st.builds(
    View, text=st.text(min_size=1), lang=LANGS,
    context=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(min_size=1)), max_size=4).map(tuple),
    trend=st.none() | st.just(Trend(negative_days_7d=5, consecutive_negative_days=2)), anchor=st.none() | st.text(min_size=1),
)  # fmt: skip


@given(VIEWS)
def test_equal_views_give_equal_bytes(view):
    assert prompts.render(view, "L2").sha256 == prompts.render(View.model_validate(view.model_dump()), "L2").sha256


@given(VIEWS)
def test_no_text_contains_the_marker_that_closes_it(view):
    body = prompts.render(view, "L2").messages[1]["content"]
    nonce = re.findall(r"<<<BEGIN \w+ ([0-9a-f]{16})>>>", body)[-1]

    foreign = "\n".join([view.text, view.anchor or "", *(content for _, content in view.context)])
    assert nonce not in foreign
    assert body.count(f"{nonce}>>>") == 2 * (1 + bool(view.context) + (view.trend is not None) + (view.anchor is not None))


@given(st.text(min_size=1), st.text(min_size=1))
def test_the_nonce_depends_on_everything_between_markers(a, b):
    one = prompts.render(View(text="t", context=(("user", a),)), "L2")
    two = prompts.render(View(text="t", context=(("user", b),)), "L2")

    assert (one.messages[0] == two.messages[0]) == (a == b)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("tier", ["L1", "L2"])
def test_no_prompt_names_the_other_stage(lang, tier):
    text = "\n".join(m["content"] for m in prompts.render(View(text="x", lang=lang), tier).messages)

    assert not re.search(r"\bL1\b|\bL2\b|first[- ]pass|第一轮", text)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("version", ["v1", "v1-short"])
def test_every_version_states_the_contract(lang, version):
    system = prompts.render(View(text="x", lang=lang), "L1", version=version).messages[0]["content"]

    for word in (
        "JSON",
        "risk_level",
        "confidence",
        "evidence",
        "context_flags",
        "fiction",
        "third_party",
        "arranging",
        "critical",
    ):
        assert word in system


@pytest.mark.parametrize("kind", prompts.ANCHOR_KINDS)
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_anchor_has_three_wordings(kind, lang):
    wordings = {prompts.anchor_text(kind, lang, paraphrase=i, level="high", confidence=0.9, evidence="e") for i in range(3)}

    assert len(wordings) == 3
    assert not any("{" in w for w in wordings)


def test_an_unknown_anchor_or_version_is_a_setup_error():
    with pytest.raises(SetupError, match="paraphrase"):
        prompts.anchor_text("told_low", "en", paraphrase=9)
    with pytest.raises(SetupError, match="version"):
        prompts.render(View(text="x"), "L1", version="v9")
