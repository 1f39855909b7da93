"""Find every amount that prose names: one pass over numerals, then what stands beside each."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import Final

from workbench.folding import grammar, words
from workbench.guardrail.numerals import HAN, NUMERAL, Found, Kind, english, english_numeral, money, numeral

_WINDOW: Final = 48  # characters before a numeral that may bear on it
_TIMES: Final = {"k": 1000, "thousand": 1000, "w": 10**4, "million": 10**6}
NAMES: Final[tuple[Kind, ...]] = ("order_value", "cap", "approval_line")
Match = re.Match[str]


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """The patterns of the amount finder."""
    return grammar("amounts", "patterns", (("HAN", HAN), ("NUM", NUMERAL), ("EN", english())))


def read(text: str) -> list[Found]:
    """The amounts that a folded text names, in order."""
    g, out, done = patterns(), [], 0
    tokens = list(g["token"].finditer(text))
    for i, token in enumerate(tokens):
        if token.start() >= done and (found := _Numeral(text, tokens, i).mention()):
            out.append(found)
            done = found.end
    # A currency sign or a 元 right after a payout verb, without any number, is an amount left blank.
    blanks, at = [], 0
    for lone in g["lone"].finditer(text):
        while at < len(out) and out[at].end <= lone.start():
            at += 1
        if at == len(out) or out[at].start >= lone.end():
            blanks.append(Found(lone.start(), lone.end(), "payout", None, "no number"))
    return sorted([*out, *blanks], key=lambda f: f.start)


class _Numeral:
    """One numeral with what stands beside it."""

    def __init__(self, text: str, tokens: list[Match], i: int) -> None:
        self.g, self.t, self.tokens, self.i = patterns(), text, tokens, i
        self.token = tokens[i]
        start = self.token.start()
        self.before = self.g["clause"].split(text[max(0, start - _WINDOW) : start])[-1]
        self.prefix = self.g["prefix"].search(self.before)
        self.lead = self.before[: self.prefix.start()] if self.prefix else self.before
        suffix = self.g["suffix"].match(text, self.token.end())
        assert suffix  # all of it is optional
        self.suffix, self.end = suffix, suffix.end()
        self.direct = bool(self.g["direct"].search(self.lead))
        self.unit = suffix["strong"]
        self.foreign = suffix["foreign"] or suffix["swap"] or (self.prefix and self.prefix["foreign"])

    def mention(self) -> Found | None:
        """The amount that this numeral is, or None when it is a time, a count or any other number."""
        if not self._is_money():
            return None
        sign = self.g["sign"].search(self.lead)
        value = self._value()
        if value is not None and (sign or (self.prefix and (self.prefix["m1"] or self.prefix["m2"]))):
            value = -value
        start = self.token.start() - (len(self.before) - len(self.lead)) - (len(sign[0]) if sign else 0)
        fault = "another currency" if self.foreign else self._form_fault()
        kind, named = self._named()
        if not fault and kind not in NAMES:
            fault = self._word_fault()
        if not fault and value is None:
            fault = "no one value"
        return Found(start, self.end, kind, None if fault else value, fault, named)

    def _is_money(self) -> bool:
        g, t, raw, after = self.g, self.t, self.token[0], self.token.end()
        if self.unit and raw in ("三", "一") and g["place"].match(t, self.token.start()):
            return False
        if weak := self.suffix["weak"]:
            at = self.suffix.start("weak")
            self.unit, self.end = (weak, self.end) if self._weak_is_money(weak, at) else (None, at)
        if self.suffix["loose"]:
            paid = self.direct or bool(g["bare"].search(self.before))
            self.foreign, self.end = self.foreign or paid, self.end if paid else self.suffix.start("loose")
        if not self.unit and self.direct and t.startswith("元", after) and not t.startswith("元旦", after):
            self.unit, self.end = "元", after + 1
        if self.unit or self.foreign or self.prefix:
            return True
        single = len(raw) == 1 and not raw.isascii() and self.suffix["some"] != "几"
        bare = self.token.lastgroup == "num" and not single and g["bare"].search(self.before)
        return bool(bare and g["bare_end"].match(t, self.end))

    def _weak_is_money(self, unit: str, at: int) -> bool:
        """块, 毛, 角, 分 are money where the clause is about money."""
        g, t, raw = self.g, self.t, self.token[0]
        paid = self.prefix or g["payout"].search(self.lead) or g["bare"].search(self.before)
        if unit == "块":
            named = paid or any(g[f"before_{k}"].search(self.lead) for k in NAMES)
            plain = bool(g["kuai_end"].match(t, at + 1)) and (raw != "一" or bool(named) or t[at + 1 : at + 2] in tuple(HAN))
            return not g["not_kuai"].match(t, at) and (plain or self.direct)
        if unit == "分":
            return self.direct and raw != "十" and bool(g["fen_end"].match(t, at + 1))
        ends = g["kuai_end"].match(t, at + 1) and (unit == "毛" or raw.isascii())
        return bool(paid or ends) and not g["not_jiao"].match(t, at)

    def _value(self) -> Decimal | None:
        raw, suffix = self.token[0], self.suffix
        if self.token.lastgroup == "word":
            value = english_numeral(raw)
        elif raw == "半":
            value = Decimal("0.5")
        else:
            value = numeral(raw) if self.token.lastgroup == "num" and raw[0] not in "几数好上近成若" else None
        if value is not None and suffix["exp"]:
            value = money(f"{value}{suffix['exp']}")
        if value is not None and suffix["mult"]:
            value *= _TIMES[suffix["mult"].strip()]
        scale = Decimal(words("amounts")["scale"].get(self.unit or "", "1"))
        tail = self.g["tail"].match(self.t, self.end) if self.unit and scale > Decimal("0.01") else None
        if tail:
            self.end = tail.end()
        return None if value is None else value * scale + (_tail_value(tail, scale) if tail else 0)

    def _form_fault(self) -> str:
        """What makes the number itself have no one value."""
        g, t, suffix = self.g, self.t, self.suffix
        if self.token.lastgroup in ("time", "blank") or suffix["junk"] or (not self.prefix and g["mixed"].search(self.before)):
            return "not a number"
        if suffix["some"] or self.token[0][0] in "几数好上近成若":
            return "indefinite"
        if g["range_after"].match(t, self.end):
            return "a range"
        if not self.i:
            return ""
        last, start = self.tokens[self.i - 1], self.token.start()
        gap = t[last.end() : start]
        if last.lastgroup not in ("num", "word") or len(gap) > 16:
            return ""
        link, is_id = g["range"].fullmatch(gap), bool(g["id"].search(t[max(0, last.start() - 2) : last.start()]))
        if link and not (link["either"] and (link["unit"] or is_id)):
            return "a range"
        split = g["glue"].fullmatch(gap) or (gap == "，" and re.fullmatch(r"\d{3}", self.token[0]))
        return "digits apart" if split and not is_id and not self.prefix else ""

    def _word_fault(self) -> str:
        """What the words around say of the amount: a bound that leaves it open, a denial, a multiple."""
        g, t, lead, end = self.g, self.t, self.lead, self.end
        over = g["too_much"].search(lead)
        if (over and not over["not"]) or g["open"].search(lead) or g["open_after"].match(t, end):
            return "an open bound"
        if g["denied"].search(lead) or g["denied_after"].match(t, end):
            return "denied"
        return "a multiple" if g["times"].search(lead) or g["times_after"].match(t, end) else ""

    def _named(self) -> tuple[Kind, bool]:
        """What the sentence calls the amount, and whether it says so before the number."""
        g = self.g
        for kind in NAMES:
            if before := g[f"before_{kind}"].search(self.lead):
                # 退还订单金额64元 and "pay the maximum of ¥50" name a payout; 赔付上限 and "refund cap" are compounds.
                verb = (before["verb"] or "").rstrip()
                paid = verb and (kind == "order_value" or verb.endswith(("the", " a", "you", "your")))
                return ("payout", False) if paid or g["paid_after"].match(self.t, self.end) else (kind, True)
        for kind in reversed(NAMES):
            if after := g[f"after_{kind}"].match(self.t, self.end):
                return ("payout", False) if g["paid_after"].match(self.t, after.end()) else (kind, False)
        return ("payout" if g["payout"].search(self.lead) else "other"), False


def _tail_value(tail: Match, scale: Decimal) -> Decimal:
    """What follows 元 or 角 (*scale*): 5角3分, 零五, 50, 半."""
    if tail["half"]:
        return scale / 2
    if tail["d"]:
        return (numeral(tail["d"]) or Decimal(0)) * scale / (100 if tail["zero"] or len(tail["d"]) == 2 else 10)
    jiao, fen = (numeral(tail[n] or "0") or Decimal(0) for n in ("n", "n2" if tail["n"] else "f"))
    return jiao / 10 + fen / 100
