"""Read numerals as exact decimals: Arabic, Chinese, mixed and English; None is a numeral that has no one value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Final, Literal

from workbench.folding import words

Kind = Literal["payout", "order_value", "cap", "approval_line", "other"]
MAX_DIGITS: Final = 30
HAN: Final = "零〇○一二两三四五六七八九十百千万亿廿卅卌壹贰叁参肆伍陆柒捌玖拾佰仟"
ARABIC: Final = r"(?:\d++(?:[.,'·]\d++)*+|(?<!\d)\.\d++)"
NUMERAL: Final = rf"(?:{ARABIC}|[{HAN}])(?:{ARABIC}|[{HAN}]|点(?=[\d{HAN}]))*+"

_ROWS: Final = ("零〇○", "一壹", "二两贰", "三叁参", "四肆", "五伍", "六陆", "七柒", "八捌", "九玖")
_DIGIT: Final = {c: i for i, row in enumerate(_ROWS) for c in row}
_UNIT: Final = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000, "万": 10**4, "亿": 10**8}
_OLD: Final = str.maketrans({"廿": "二十", "卅": "三十", "卌": "四十"})
_PLAIN: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+|[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_MONEY: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,15})?", re.ASCII)
_PARTS: Final = re.compile(rf"{ARABIC}|.")


def arabic(text: str) -> Decimal | None:
    """``1,020.50`` as a Decimal; ``20,00`` and ``1.2.3`` have no one reading, and neither have over-long digit runs."""
    if len(text) > MAX_DIGITS or not _PLAIN.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def numeral(text: str) -> Decimal | None:
    """An Arabic, Chinese or mixed numeral (``NUMERAL``): 一百二十, 1百20, 十五点五, 2万5, 二零. 二三十 has no one value."""
    if text.isascii():
        return arabic(text)
    if len(text) > MAX_DIGITS:
        return None
    whole, point, rest = text.translate(_OLD).partition("点")
    if not point:
        return _whole(whole)
    scale = next((u for c, u in _UNIT.items() if rest.endswith(c)), 1)
    digits = "".join(str(_DIGIT.get(c, c)) for c in (rest[:-1] if scale > 1 else rest))
    left = _whole(whole)
    return None if left is None or not digits.isdecimal() else (left + Decimal(f"0.{digits}")) * scale


def _whole(text: str) -> Decimal | None:
    if not any(c in _UNIT for c in text):
        return _spelled(text)
    total = section = Decimal(0)
    number: Decimal | None = None
    last, zero = 0, False  # the last unit seen, and whether 零 followed it
    for part in _PARTS.findall(text):
        unit = _UNIT.get(part, 0)
        if unit >= 10**4:
            section += number or 0
            if unit > 10**4:  # 一万亿: the 亿 multiplies all that stands before it
                total = (total + section or Decimal(1)) * unit
            else:
                total += (section or 1) * unit
            section, number, last, zero = Decimal(0), None, unit, False
        elif unit:
            if (number is None and section) or 0 < last <= unit:
                return None
            section += (1 if number is None else number) * unit
            number, last, zero = None, unit, False
        elif part in "零〇○":
            if number is not None:
                return None
            zero = True
        else:
            value = Decimal(_DIGIT[part]) if part in _DIGIT else arabic(part)
            if number is not None or value is None:  # 二三十: two digits in a row are an approximation
                return None
            number = value
    if number is None:
        return total + section
    if last > 10 and not zero and number < 10 and number == int(number):  # 一百二 is 120
        return total + section + number * last / 10
    return total + section + number if number < last else None


def _spelled(text: str) -> Decimal | None:
    """Digit by digit: 二零, 一二零. Two digits that are not a tens figure (三五) are an approximation."""
    digits = "".join(str(_DIGIT.get(c, c)) for c in text)
    if not digits.isdecimal() or (len(digits) == 2 and digits[1] != "0" and not text.isascii()):
        return None
    return Decimal(digits)


@cache
def english() -> str:
    """The pattern of an English numeral."""
    table = words("amounts")["english"]
    word = "|".join(w for w in sorted(table, key=len, reverse=True) if table[w] or w in ("zero", "half", "point"))
    return rf"\b(?:an?(?= (?:hundred|thousand|million|half|yuan|kuai))|{word})(?:[ \n-]{{1,2}}(?:and[ -])?(?:{word}|(?<=half )an?))*+\b"


def english_numeral(text: str) -> Decimal | None:
    """``one hundred and twenty-five``, ``fifty point five``, ``half a``; None where the words make no number."""
    table = words("amounts")["english"]
    parts = [p for p in re.split(r"[ \n-]+", text) if p not in ("and", "a", "an")] or ["one"]
    if "point" in parts:
        at = parts.index("point")
        whole, digits = english_numeral(" ".join(parts[:at])), [table[p] for p in parts[at + 1 :]]
        return None if whole is None or any(d > 9 for d in digits) else whole + Decimal("0." + "".join(map(str, digits)))
    if "half" in parts:
        return Decimal("0.5") if parts == ["half"] else None
    total = section = Decimal(0)
    room = 10**9  # the next word must be smaller than this
    for part in parts:
        value = table[part]
        if value >= 100:
            section = (section or Decimal(1)) * value
            total, section, room = (total + section, Decimal(0), 10**9) if value > 100 else (total, section, 100)
        elif value >= room or (value == 0 and len(parts) > 1):
            return None
        else:
            section, room = section + value, 10 if value >= 20 else 1
    return total + section


def money(value: object) -> Decimal | None:
    """*value* as an exact amount, or None when it is not a finite plain number of reasonable size (a boolean is not a number)."""
    text = str(value).strip() if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool) else ""
    number = Decimal(text) if len(text) <= 400 and _MONEY.fullmatch(text) else None
    return number if number is not None and abs(number.adjusted()) <= MAX_DIGITS // 2 else None


@dataclass(frozen=True, slots=True)
class Found:
    """An amount named in a folded text, not yet compared; ``fault`` says why it cannot be, ``named`` that its name stands before it."""

    start: int
    end: int
    kind: Kind
    value: Decimal | None
    fault: str = ""
    named: bool = False
