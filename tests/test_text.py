"""Hostile text is inert, and normalisation folds what looks the same."""

from __future__ import annotations

import html
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import text


def test_normalise_folds_width_apostrophes_and_invisible_characters():
    assert text.normalise("Ｄｏｎ\u2019t\u200b  STOP\u00ad") == "don't stop"


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "a\u202eb", "a\u200bb", "\x9b2J", "\u2066x", "\x07", "\ud800"])
def test_no_control_or_bidi_character_survives(hostile):
    shown = text.inert(hostile)

    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in shown)


@given(st.text())
def test_html_is_always_escaped(raw):
    shown = text.inert_html(raw)

    assert "<" not in shown
    assert '"' not in shown
    assert "$" not in shown
    assert html.unescape(shown) == text.inert(raw)


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_a_cell_never_starts_a_formula(start):
    assert str(text.inert_cell(f"{start}SUM(A1)")).startswith(("'", "\\u"))


def test_numbers_pass_a_cell_unchanged():
    assert text.inert_cell(-3.5) == -3.5


@pytest.mark.parametrize(
    ("raw", "lang"),
    [("hello there", "en"), ("我很好", "zh"), ("最近 really can't do this anymore，已经写好了", "mixed"), ("用 json 看", "zh")],
)
def test_language_is_detected(raw, lang):
    assert text.detect_lang(raw) == lang


@given(st.text(), st.text(), st.binary(min_size=1, max_size=32))
def test_keyed_hash_separates_texts_and_keys(a, b, key):
    assert (text.keyed_hash(a, key) == text.keyed_hash(b, key)) == (a == b)
    assert text.keyed_hash(a, key) != text.keyed_hash(a, key + b"x")
