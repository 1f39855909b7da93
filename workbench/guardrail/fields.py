"""Find amount fields: keys of a JSON object, and key-value pairs written in prose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from workbench.folding import fold, words
from workbench.guardrail.numerals import Found, Kind, money

_FIELD: Final = re.compile(
    r"(?P<quote>[\"'\\]{0,4})(?<![a-z0-9_])(?P<key>[a-z][a-z0-9_\-]{1,40}+)[\"'\\]{0,4}\s{0,3}(?:[:：=]|为|是|is\b)\s{0,3}"
)
_NUMBER: Final = re.compile(
    r"(?P<number>-?(?:\d{1,30}+(?:\.\d{0,30}+)?|\.\d{1,30}+)(?:e[+-]?\d{1,20}+)?)(?=\s{0,3}(?:$|[,}\]\n;，。；)!?！？）、]|\.(?!\d)))"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9\u4e00-\u9fff]+")


class Pairs(list[tuple[str, Any]]):
    """A decoded JSON object that keeps its duplicate keys."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value of a JSON object: an amount field with its ``value``, or a string that is prose (``kind`` None)."""

    path: str
    kind: Kind | None
    value: Decimal | None
    text: str


def key_kind(key: str) -> tuple[Kind | None, bool]:
    """What a key names, if money, and whether it can name nothing else (``amount``, not ``refund``)."""
    table: dict[str, str] = words("amounts")["keys"]
    parts = [fold(p).text for p in _CAMEL.split(key) if p]
    joined = "".join(parts)
    is_money = re.search(table["money"], joined) or any(re.fullmatch(table["money_word"], p) for p in parts)
    if not is_money or any(re.fullmatch(table["not_first"], p) for p in parts[:1]) or re.search(table["not_last"], parts[-1]):
        return None, False
    strong = bool(re.search(table["strong"], joined))
    for kind in ("approval_line", "cap", "order_value"):
        if re.search(table[kind], joined):
            return kind, strong  # type: ignore[return-value]
    return "payout", strong


def fields_in_text(text: str, raw_key: Any) -> Iterator[Found]:
    """Amount fields written out in a folded text. ``raw_key(start, end)`` gives the key as it was spelled."""
    for match in _FIELD.finditer(text):
        spelled = raw_key(match.start("key"), match.end("key"))
        kind, strong = key_kind(spelled)
        if kind is None:
            continue
        number = _NUMBER.match(text, match.end())
        if number:
            value = money(number["number"])
            yield Found(match.start("key"), number.end(), kind, value, "" if value is not None else "not a number", True)
        elif strong and (match["quote"] or "_" in spelled or not spelled.islower()):
            yield Found(match.start("key"), match.end(), kind, None, "not a number")


class _Number(str):
    """A JSON number as it was written, NaN and Infinity included."""


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_float=_Number, parse_int=_Number, parse_constant=_Number, strict=False
)


def json_leaves(text: str) -> tuple[list[Leaf], str]:
    """Amount fields and prose of the JSON values in *text*, and the part of it that is no JSON. Duplicate keys all count."""
    leaves: list[Leaf] = []
    at = 0
    try:
        while (start := re.compile(r"[^\s,]").search(text, at)) is not None:
            value, at = _DECODER.raw_decode(text, start.start())
            leaves.extend(_leaves(value))
    except (ValueError, RecursionError):
        return leaves, text[at:]
    return leaves, ""


def _leaves(root: Any) -> Iterator[Leaf]:
    todo: list[tuple[str, Any, Kind | None, bool]] = [("$", root, None, False)]
    while todo:
        path, value, kind, strong = todo.pop()
        if isinstance(value, Pairs):
            if kind and strong:
                yield Leaf(path, kind, None, "{…}")
            generic = words("amounts")["keys"]["generic"]
            for key, v in value:
                found = key_kind(key)
                inherits = kind and not found[0] and re.fullmatch(generic, fold(key).text)
                todo.append((f"{path}.{key}", v, *((kind, True) if inherits else found)))
        elif isinstance(value, list):
            plain = any(not isinstance(v, Pairs) for v in value)
            if kind and (strong or plain):
                yield Leaf(path, kind, None, "[…]")
            todo.extend((f"{path}[{i}]", v, None, False) for i, v in enumerate(value))
        elif kind and (strong or not isinstance(value, str) or isinstance(value, _Number) or re.search(r"\d", fold(value).text)):
            yield Leaf(path, kind, money(value) if isinstance(value, _Number) else None, str(value))
        elif isinstance(value, str) and not isinstance(value, _Number):
            yield Leaf(path, None, None, value)
