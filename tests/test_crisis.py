"""Crisis resources: only verified rows, only for an explicit region, with their age, and no number from anywhere else."""

from __future__ import annotations

from datetime import date, timedelta
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.crisis import render, rows, table, unlisted_numbers

TODAY = date(2026, 12, 1)
ROWS = table()[0]
REGIONS = sorted({r for row in ROWS for r in row.regions} - {"*"})


def test_every_row_says_where_it_is_from_and_when_it_was_checked():
    for row in ROWS:
        assert row.status in ("verified", "plausible", "rejected", "outdated") and row.kind in (
            "crisis",
            "emergency",
            "youth",
            "directory",
        )
        assert date.fromisoformat(row.evidence_date) <= date.fromisoformat(row.checked_on) <= date(2026, 11, 30)
        assert urlsplit(row.source_url).scheme == "https" and row.source and row.regions


def test_only_verified_rows_are_rendered():
    unverified = [r for r in ROWS if r.status != "verified"]

    assert "010-82951332" in [r.number for r in unverified]
    for region in [None, *REGIONS]:
        assert not any(r.number in render(region, TODAY) for r in unverified if r.number)


def test_the_mainland_has_12356_first_and_never_988():
    shown = rows("zh-CN")

    assert shown[0].number == "12356"
    assert "988" not in render("zh-CN", TODAY)
    assert [r.number for r in shown if r.kind == "emergency"] == ["120", "110"]


def test_988_is_for_the_united_states_and_canada():
    assert {region for region in REGIONS if "988" in [r.number for r in rows(region)]} == {"en-US", "es-US", "en-CA", "fr-CA"}


def test_the_mislabelled_volunteer_line_is_not_listed():
    assert not any("1619995" in r.number.replace("-", "") for r in ROWS)


@pytest.mark.parametrize("region", [None, "", "zh", "en", "xx-XX", "ZH-cn "])
def test_without_a_known_region_there_is_no_number(region):
    text = render(region, TODAY)

    assert not any(c.isdigit() for c in text) and "findahelpline.com" in text
    assert "emergency services" in text or "急救" in text


@pytest.mark.parametrize("region", [None, *REGIONS])
def test_every_region_has_the_directory_and_no_number_outside_the_table(region):
    text = render(region, TODAY)

    assert "https://findahelpline.com" in text
    assert unlisted_numbers(text, region) == ()


def test_old_rows_carry_a_warning():
    checked = date(2026, 11, 30)

    assert "180" not in render("zh-CN", checked + timedelta(days=180))
    assert "180" in render("zh-CN", checked + timedelta(days=181))
    assert "180" in render(None, checked + timedelta(days=181))


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("拨打12356", "zh-CN"), ("拨打１２３５６", "zh-CN"), ("12356 或 120/110", "zh-CN"), ("请拨打 110 120 12356", "zh-CN"), ("一二三五六", "zh-CN"), ("拨打幺二零", "zh-CN"), ("call 988", "en-US"), ("nine eight eight hotline", "en-CA"),
        ("13 11 14", "en-AU"), ("131114", "en-AU"), ("116 123", "en-GB"), ("2389 2222", "zh-HK"), ("1925", "zh-TW"), ("confidence 0.92, level 4 of 4", None), ("2026-11-30 18:30", None), ("L1 0.920, L2 0.90.", None),
        ("连续7天，40次，200字", None), ("version 1.2.3", None), ("a text of 200 characters", None), ("the years 2025 and 2026", None), ("", None),
    ],
)  # fmt: skip
def test_listed_and_other_numbers_are_left_alone(text, region):
    assert unlisted_numbers(text, region) == ()


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("拨打988", "zh-CN"), ("call 9-8-8", "zh-CN"), ("热线 400-161-9995", "zh-CN"), ("热线：４００－１６１－９９９５", "zh-CN"), ("010-82951332", "zh-CN"), ("拨打九八八", "zh-CN"), ("热线一二三五五六", "zh-CN"), ("call nine eight eight", "zh-CN"),
        ("+1 (800) 273-8255", "en-US"), ("call 911", "en-US"), ("12356", "en-US"), ("12356", None), ("dial 1.800.273.8255", "en-US"), ("call 12\u200b356", "en-US"), ("1 2 3 5 6", "en-US"), ("1<b>2</b>356 hotline", "en-US"), ("116 124", "en-GB"),
        ("微信 13800138000", "zh-CN"), ("12320", "zh-CN"), ("text 741741", "en-US"), ("٩٨٨ hotline", "zh-CN"),
    ],
)  # fmt: skip
def test_a_number_that_is_not_in_the_table_is_found(text, region):
    assert unlisted_numbers(text, region) != ()


@given(
    st.integers(10**6, 10**11 - 1), st.sampled_from(["", " ", "-", " - ", "."]), st.booleans(), st.sampled_from([None, "zh-CN"])
)
def test_any_long_number_is_found_whatever_its_form(number, separator, full_width, region):
    digits = str(number)
    text = f"热线 {digits[:3]}{separator}{digits[3:]}，谢谢"
    text = "".join(chr(ord(c) + 0xFEE0) if full_width and c.isdigit() else c for c in text)

    assert unlisted_numbers(text, region) != ()
