"""Turn a judge's reply into an assessment, or say why it cannot be one. Never raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from workbench import extract
from workbench.schema import DIMENSIONS, FLAGS, Action, Assessment, Reason, RiskLevel, Tier, unknown
from workbench.text import encodable, strip_invisible

MAX_EVIDENCE: Final = 100
_KEYS: Final = frozenset({"risk_level", "confidence", "dimensions", "evidence", "context_flags"})
_DIMENSIONS: Final = frozenset(DIMENSIONS)
_LEVELS: Final = {level.value: level for level in RiskLevel}
_EDGE: Final = " \t\r\n\u00a0\u3000\"'`*_.,;:()[]“”‘’„«»…。、，；：（）【】「」『』《》"
_NUMBER: Final = re.compile(r"(\d{1,12}(?:\.\d{1,40})?|\.\d{1,40})\s?(%?)", re.ASCII)
_TAG: Final = re.compile(
    r"[<◁\[]\s{0,4}(/?)\s{0,4}(?:antml:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis)\b[^<>\]▷]{0,80}[>\]▷]"
    r"|<\|(begin|end)_of_thought\|>|<\|channel\|>\s{0,4}(\w{1,40})[^<]{0,80}<\|message\|>",
    re.IGNORECASE,
)
# A risk_level key that no decoded value holds is the remains of a second verdict; in prose it may only repeat the level.
_FRAGMENT: Final = re.compile(r"""(?:["'“”‘’„\\;]|[{,]\s{0,8})risk_?level(?:["'“”‘’\\]|&\w{1,8};|\s){0,8}[:=]""", re.IGNORECASE)
_STATED: Final = re.compile(
    r"risk[_ ]?level[`*\s]{0,4}(?:[:=]|is\b|是|为)[`*\s]{0,4}(low|medium|high|critical)(?![a-z_])", re.IGNORECASE
)
_TRUTH: Final[dict[Any, bool]] = {"true": True, 1: True, "false": False, 0: False}
_FLAGS: Final = f"context_flags must hold {', '.join(FLAGS)}, each true or false, and no other key."
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")


class _Reject(Exception):
    def __init__(self, detail: str, reason: Reason = "parse_error", action: Action = "retry_then_unknown") -> None:
        super().__init__(detail)
        self.reason, self.action = reason, action


def parse_assessment(
    raw: str | bytes | None, *, finish_reason: str | None = None, message: Mapping[str, Any] | None = None,
    choices: list[Any] | None = None, analysed_text: str | None = None, tier: Tier = "L1",
) -> Assessment:  # fmt: skip
    """Parse one judge answer by twelve ordered rules.

    *raw* is the message content; *message* and *choices* are the provider's (read for refusals, and for the content when
    *raw* is None); *analysed_text* tells a verbatim echo from a verdict. Returns an assessment, or a typed unknown with
    ``reason`` (parse_error: no acceptable JSON, schema_error: JSON off the contract, refused, content_filter, truncated),
    ``action`` and a ``detail`` of at most 200 characters for the retry: constants and positions only, never the text.
    """
    try:
        text = _after_reasoning(_content(raw, finish_reason, message, choices))
        return _read(*_choose(extract.scan(text), analysed_text), tier)
    except _Reject as why:
        return unknown(why.reason, tier=tier, action=why.action, detail=str(why)[:200])
    except extract.NotJSON as why:
        return unknown("parse_error", tier=tier, action="retry_then_unknown", detail=f"Not acceptable JSON: {why}"[:200])


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _content(raw: Any, finish: Any, message: Any, choices: Any) -> str:
    """Rule 1: what the transport says comes first."""
    if choices is not None and not choices:
        raise _Reject("The reply has no choices: answer with one JSON object.")
    choices = choices if isinstance(choices, list | tuple) else ()
    messages = [m for m in (message, *(_get(choice, "message") for choice in choices)) if m is not None]
    finish = {str(f).lower() for f in (finish, *(_get(choice, "finish_reason") for choice in choices))}
    if "content_filter" in finish:
        raise _Reject("The provider filtered this answer.", "content_filter", "unknown_no_retry")
    if "refusal" in finish or any(_get(m, "refusal") for m in messages):
        raise _Reject("The model refused to answer.", "refused", "unknown_no_retry")
    if finish & {"length", "max_tokens"}:
        raise _Reject("The answer was cut off at the token limit.", "truncated", "retry_larger_then_unknown")
    if finish & {"tool_calls", "function_call", "tool_use"}:
        raise _Reject("A tool was called and none was offered: answer with one JSON object.")
    if raw is None:  # choices that differ become verdicts that differ, which rule 6 refuses
        raw = "\n".join(filter(None, (_plain(_get(m, "content")) for m in messages)))
    if isinstance(raw, bytes | bytearray):
        try:
            raw = raw.decode()
        except UnicodeDecodeError:
            raise _Reject("The answer is not UTF-8 text.") from None
    if not isinstance(raw, str) or not raw.strip(extract.BLANK):
        raise _Reject("The answer is empty: answer with one JSON object.")
    return raw


def _plain(content: Any) -> str:
    parts = content if isinstance(content, list) else ()
    return content if isinstance(content, str) else "".join(t for part in parts if isinstance(t := _get(part, "text"), str))


def _after_reasoning(text: str) -> str:
    """Rules 2 to 4: size first, then the whole text as JSON, then everything up to the last reasoning closer is dropped."""
    if not ("<" in text or "[" in text or "◁" in text):
        return text
    extract.check_size(text)
    last = next(iter([*_TAG.finditer(text)][-1:]), None)
    if last is None:
        return text
    try:
        extract.strict(text)
        return text
    except extract.NotJSON:
        pass
    closes = last[1] or (last[2] or "").lower() == "end" or (last[3] or "").lower() == "final"
    if not closes or not text[last.end() :].strip(extract.BLANK):
        raise _Reject("The answer ends inside its reasoning: after it, give one JSON object.")
    return text[last.end() :]


def _choose(scan: extract.Scan, analysed_text: str | None) -> tuple[dict[str, Any], set[str]]:
    """Rules 5 and 6: the one verdict and the defects of getting at it."""
    verdicts: list[tuple[dict[str, Any], set[str]]] = []
    echoed = False
    for found in scan.found:
        base = {"repaired_syntax"} if found.repaired else set()
        direct = isinstance(found.value, dict) and "risk_level" in found.value
        for verdict in [found.value] if direct else _unwrap(found.value, {"key", "list", "string"}):
            if analysed_text and _is_echo(found.source, verdict, analysed_text):
                echoed = True
            else:
                _refuse_nested(verdict, found.source)
                verdicts.append((verdict, base if direct else base | {"wrapped"}))
    rest = scan.leftover and extract.fold_width(strip_invisible(_ESCAPE.sub(lambda m: chr(int(m[1], 16)), scan.leftover)))
    remains = bool(rest and _FRAGMENT.search(rest))
    if not verdicts:
        _refuse_nothing(scan, echoed, remains)
    if remains:
        raise _Reject("Beside the JSON stand the remains of another object with a risk_level: give one complete object.")
    level = _level_word(verdicts[0][0]["risk_level"])
    if len({json.dumps(verdict, sort_keys=True) for verdict, _ in verdicts[1:] and verdicts}) > 1:
        raise _Reject("The answer holds more than one verdict and they differ: give exactly one JSON object.")
    if rest and any(stated[1].lower() != level for stated in _STATED.finditer(rest)):
        raise _Reject("The prose states another risk_level than the JSON: give exactly one JSON object.")
    return verdicts[0][0], set().union(*(defects for _, defects in verdicts), {"echo_present"} if echoed else ())


def _refuse_nothing(scan: extract.Scan, echoed: bool, remains: bool) -> None:
    if echoed:
        raise _Reject("The answer only repeats JSON from the text under analysis: give your own verdict.")
    if scan.error and (remains or not scan.found):
        raise scan.error
    if any(isinstance(found.value, dict) for found in scan.found):
        raise _Reject("The JSON has no top-level risk_level: it must be one of low, medium, high, critical.", "schema_error")
    raise _Reject("No JSON object: answer with one JSON object.")


def _unwrap(value: Any, left: set[str]) -> Iterator[dict[str, Any]]:
    """Verdicts through at most one wrapper key, one list and one string level; deeper ones are refused."""
    if isinstance(value, dict) and "risk_level" in value:
        yield value
    elif isinstance(value, str):
        if "string" in left and value.lstrip()[:1] in ("{", "["):
            try:
                inner = extract.strict(value)
            except extract.NotJSON:
                return
            yield from _unwrap(inner, left - {"string"})
    elif isinstance(value, dict | list):
        kind = "key" if isinstance(value, dict) else "list"
        items = [*value.values()] if isinstance(value, dict) else value
        whole = kind == "key" or len(items) == 1 or all(any(_levels(inner)) for inner in items)
        if kind in left and whole:
            for inner in items:
                yield from _unwrap(inner, left - {kind})
        elif any(_levels(value)):
            raise _Reject("The verdict is wrapped too deep: give one flat JSON object.")


def _levels(value: Any) -> Iterator[str]:
    """The level at every key that reads as risk_level, at any depth (``extract`` caps it)."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(key, str) and extract.fold_width(strip_invisible(key)).strip().casefold() == "risk_level":
            yield _level_word(inner) or "?"
        yield from _levels(inner)


def _refuse_nested(verdict: dict[str, Any], source: str) -> None:
    plain = (
        source.count("{") <= 3 and source.lower().count("risk_level") <= 1 and "\\" not in source
    )  # the usual: no need to look
    if not plain and len({*_levels(verdict)}) > 1:
        raise _Reject("A second verdict with another risk_level is nested in the first: give exactly one.")


def _is_echo(source: str, verdict: dict[str, Any], analysed_text: str) -> bool:
    """Does this verdict stand in the analysed text, verbatim or as an equal object at any depth?"""
    if source in analysed_text:
        return True
    try:
        inside = [f.value for f in extract.scan(analysed_text).found] if re.search("[{｛]", analysed_text) else []
    except extract.NotJSON:
        return False
    while inside:
        value = inside.pop()
        if value == verdict:
            return True
        inside += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return False


def _level_word(value: Any) -> str:
    """Rule 8: width folded, invisible characters and edge punctuation removed, case folded; an exact whitelist follows."""
    word = extract.fold_width(strip_invisible(value)) if isinstance(value, str) and len(value) <= 64 else ""
    return word.lstrip(_EDGE).rstrip(_EDGE + "!！").casefold()


def _number(value: Any) -> tuple[float, bool] | None:
    """Rule 9: a finite number, and whether it came as a plain decimal or percent text; else None."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(extract.fold_width(value[:80]).strip())
        return None if match is None else (float(match[1]) / (100 if match[2] else 1), True)
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2 and float(value)
    return None if number is False or math.isnan(number) else (number + 0.0, False)


def _flags(value: Any) -> tuple[dict[str, bool], set[str]]:
    """Rule 10: absent, null or empty is unknown, never 'no flag'."""
    if isinstance(value, list) and value and all(name in FLAGS for name in value):
        return {name: name in value for name in FLAGS}, {"coerced_flags"}
    if not isinstance(value, dict) or not value.keys() >= set(FLAGS):
        raise _Reject(_FLAGS, "schema_error")
    out: dict[str, bool] = {}
    defects: set[str] = set()
    for name, given in value.items():
        known = given.casefold() if isinstance(given, str) else given if isinstance(given, int) else None
        flag = _TRUTH.get(known)
        if flag is None and (name in FLAGS or given is not None):
            raise _Reject(_FLAGS, "schema_error")
        if name in FLAGS:
            out[name] = bool(flag)
            defects |= set() if isinstance(given, bool) else {"coerced_flags"}
        else:
            defects.add("unknown_flag_true" if flag else "extra_keys")
    return out, defects


def _dimensions(value: Any) -> tuple[dict[str, float], tuple[str, ...], set[str]]:
    """Rule 11: the eight scores; what is missing stands at 0.0 and is named."""
    if not isinstance(value, dict | None):
        raise _Reject("dimensions must be an object of numbers from 0 to 1.", "schema_error")
    value = value or {}
    out: dict[str, float] = {}
    missing: list[str] = []
    defects = set() if value.keys() <= _DIMENSIONS else {"extra_keys"}
    for name in DIMENSIONS:
        given = value.get(name)
        if type(given) is not float:  # the usual answer needs no second look
            if given is None:
                missing.append(name)
            number = (0.0, False) if given is None else _number(given)
            given = -1.0 if number is None else number[0]
            defects |= {"coerced_confidence"} if number and number[1] else set()
        if not 0.0 <= given <= 1.0:
            raise _Reject(f"dimensions.{name} must be a number from 0 to 1.", "schema_error")
        out[name] = given + 0.0
    return out, tuple(missing), defects | ({"dimension_missing"} if missing else set())


def _read(verdict: dict[str, Any], defects: set[str], tier: Tier) -> Assessment:
    """Rules 8 to 12: the contract, and the cap that a true flag puts on the level."""
    level = _LEVELS.get(_level_word(verdict["risk_level"]))
    if level is None:
        raise _Reject("risk_level must be exactly one of low, medium, high, critical.", "schema_error")
    confidence = _number(verdict.get("confidence"))
    if confidence is None or not 0 <= confidence[0] <= 2:
        raise _Reject("confidence must be a number from 0 to 1.", "schema_error")
    flags, flag_defects = _flags(verdict.get("context_flags"))
    dimensions, missing, dimension_defects = _dimensions(verdict.get("dimensions"))
    evidence = verdict.get("evidence") or ""
    if not isinstance(evidence, str):
        raise _Reject(f"evidence must be text of at most {MAX_EVIDENCE} characters.", "schema_error")
    noted = {
        "decorated_level": verdict["risk_level"] != level.value, "coerced_confidence": confidence[1],
        "confidence_out_of_range": confidence[0] > 1, "evidence_truncated": len(evidence) > MAX_EVIDENCE,
        "extra_keys": not verdict.keys() <= _KEYS,
    }  # fmt: skip
    found = defects | flag_defects | dimension_defects | {name for name, true in noted.items() if true}
    capped = (any(flags.values()) or "unknown_flag_true" in found) and level > RiskLevel.MEDIUM
    return Assessment(
        tier=tier, level=RiskLevel.MEDIUM if capped else level, raw_level=level, confidence=min(confidence[0], 1.0), flags=flags,
        dimensions=dimensions, not_assessed=missing, evidence=encodable(evidence[:MAX_EVIDENCE]), defects=tuple(sorted(found)),
    )  # fmt: skip
