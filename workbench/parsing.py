"""Turn a judge's reply into an assessment, or say why it cannot be one. Never raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from workbench import extract
from workbench.schema import DIMENSIONS, FLAGS, Action, Assessment, Reason, RiskLevel, Tier, unknown

MAX_EVIDENCE: Final = 100
_LEVELS: Final = {level.value: level for level in RiskLevel}
_KEYS: Final = frozenset({"risk_level", "confidence", "dimensions", "evidence", "context_flags"})
_EDGE: Final = " \t\r\n\u00a0\u3000\"'`*_.,;:!()[]“”‘’„«»…。、，；：！（）【】「」『』《》"
_NUMBER: Final = re.compile(r"(\d{1,12}(?:\.\d{1,40})?|\.\d{1,40})\s?(%?)", re.ASCII)
_UNENCODABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

_TAG: Final = re.compile(
    r"[<◁\[]\s{0,4}(/?)\s{0,4}(?:antml:)?(?:think|thinking|thought|thoughts|reasoning|reflection|scratchpad|analysis)\b[^<>\]▷]{0,80}[>\]▷]"
    r"|<\|(begin|end)_of_thought\|>|<\|channel\|>\s*(\w+)[^<]{0,80}<\|message\|>",
    re.IGNORECASE,
)  # fmt: skip
# A key that no accepted value holds: the remains of a second verdict.
_FRAGMENT: Final = re.compile(
    r"""(?:["'“”‘’„＂\\;]|[{,｛，]\s{0,8})risk_?level(?:["'“”‘’＂\\]|&\w+;|\s){0,8}[:：=]""", re.IGNORECASE
)
_STATED: Final = re.compile(
    r"risk[_ ]?level[`*\s]{0,4}(?:[:：=]|is\b|是|为)[`*\s]{0,4}(low|medium|high|critical)\b", re.IGNORECASE
)
_ESCAPE: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")

Verdict = tuple[dict[str, Any], str, frozenset[str]]  # the object, its exact text, the defects of getting at it


class _Reject(Exception):
    def __init__(self, reason: Reason, detail: str, action: Action = "retry_then_unknown") -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail[:200]
        self.action: Action = action


def parse_assessment(
    raw: str | bytes | None, *, finish_reason: str | None = None, message: Mapping[str, Any] | None = None,
    choices: list[Any] | None = None, analysed_text: str | None = None, tier: Tier = "L1",
) -> Assessment:  # fmt: skip
    """Parse one judge answer by twelve ordered rules.

    Args: *raw* is the message content; *message* and *choices* are the provider's, read for refusals only (and for
    the content when *raw* is None); *analysed_text* lets a verbatim echo be told from a verdict.
    Returns an assessment, or a typed unknown with ``reason`` (``parse_error``: no acceptable JSON, ``schema_error``:
    JSON off the contract, ``refused``, ``content_filter``, ``truncated``), ``action`` and a ``detail`` of at most
    200 characters that can be fed back to the judge: it holds constants only, never any of the text.
    """
    try:
        text = _answer(_content(raw, finish_reason, message, choices))
        verdict, defects = _choose(extract.scan(text), analysed_text)
        return _read(verdict, defects, tier)
    except _Reject as why:
        return unknown(why.reason, tier=tier, action=why.action, detail=why.detail)
    except extract.NotJSON as why:
        return unknown("parse_error", tier=tier, action="retry_then_unknown", detail=f"Not acceptable JSON: {why}"[:200])


# Rule 1: transport


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _content(raw: Any, finish: Any, message: Any, choices: Any) -> str:
    if choices is not None and not choices:
        raise _Reject("parse_error", "The reply has no choices: answer with one JSON object.")
    messages = [message] if message is not None else []
    if choices and isinstance(choices, list | tuple):
        messages += [_get(choice, "message") for choice in choices]
        finish = finish or next((f for choice in choices if (f := _get(choice, "finish_reason"))), None)
    finish = finish.lower() if isinstance(finish, str) else ""
    if finish == "content_filter":
        raise _Reject("content_filter", "The provider filtered this answer.", "unknown_no_retry")
    if finish == "refusal" or any(_get(m, "refusal") for m in messages):
        raise _Reject("refused", "The model refused to answer.", "unknown_no_retry")
    if finish in ("length", "max_tokens"):
        raise _Reject("truncated", "The answer was cut off at the token limit.", "retry_larger_then_unknown")
    if finish in ("tool_calls", "function_call", "tool_use"):
        raise _Reject("parse_error", "A tool was called and none was offered: answer with one JSON object.")
    if raw is None:
        # Several choices that differ become several verdicts, which rule 6 refuses.
        raw = "\n".join(filter(None, (_plain(_get(m, "content")) for m in messages)))
    if isinstance(raw, bytes | bytearray):
        try:
            raw = raw.decode()
        except UnicodeDecodeError:
            raise _Reject("parse_error", "The answer is not UTF-8 text.") from None
    if not isinstance(raw, str) or not raw or not extract.trim(raw):
        raise _Reject("parse_error", "The answer is empty: answer with one JSON object.")
    return raw


def _plain(content: Any) -> str:
    if isinstance(content, list):
        content = "".join(
            str(part.get("text") or "") for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


# Rules 2 to 4: size, whole text first, reasoning


def _answer(text: str) -> str:
    extract.check_size(text)
    if "<" not in text and "◁" not in text and "[" not in text:
        return text
    start, _ = extract.unfence(text)
    if text.startswith(("{", "["), start):
        try:
            extract.strict(text)
        except extract.NotJSON:
            pass
        else:
            return text
    last = None
    for last in _TAG.finditer(text):  # noqa: B007 the last one counts
        pass
    if last is None:
        return text
    channel = (last[3] or "").lower()
    if last[1] or (last[2] or "").lower() == "end" or channel == "final":
        rest = text[last.end() :]
        if extract.trim(rest):
            return rest
    raise _Reject("parse_error", "The answer ends inside its reasoning: after it, give one JSON object.")


# Rules 5 and 6: candidates


def _choose(scan: extract.Scan, analysed_text: str | None) -> tuple[dict[str, Any], frozenset[str]]:
    verdicts = [verdict for found in scan.found for verdict in _verdicts(found)]
    echoes = _echoes(analysed_text) if verdicts and analysed_text else None
    kept = [v for v in verdicts if echoes is None or not echoes(v)]
    _refuse_remains(scan.leftover)
    if not kept:
        if verdicts:
            raise _Reject("parse_error", "The answer only repeats JSON from the text under analysis: give your own verdict.")
        raise _nothing(scan)
    first = kept[0][0]
    if len(kept) > 1 and len({json.dumps(v[0], sort_keys=True) for v in kept}) > 1:
        raise _Reject("parse_error", "The answer holds more than one verdict and they differ: give exactly one JSON object.")
    if scan.leftover:
        for stated in _STATED.finditer(extract.drop_invisible(scan.leftover)):
            if stated[1].lower() != _level_word(first.get("risk_level")):
                raise _Reject("parse_error", "The prose states another risk_level than the JSON: give exactly one JSON object.")
    defects = frozenset[str]().union(*(v[2] for v in kept))
    return first, defects | {"echo_present"} if len(kept) < len(verdicts) else defects


def _nothing(scan: extract.Scan) -> Exception:
    if any(isinstance(found.value, dict) for found in scan.found):
        return _Reject(
            "schema_error", "The JSON object has no risk_level at its top level: allowed are low, medium, high, critical."
        )
    if scan.found or scan.error is None:
        return _Reject("parse_error", "The answer is not a JSON object: answer with one JSON object.")
    return scan.error


def _verdicts(found: extract.Found) -> Iterator[Verdict]:
    """Verdicts at the top of one value, through at most one wrapper key, one list and one string."""
    defects = frozenset({"repaired_syntax"}) if found.repaired else frozenset[str]()
    value = found.value
    if isinstance(value, dict) and "risk_level" in value:
        if "risk_level" in value and (found.source.count("risk_level") > 1 or "\\" in found.source):
            _refuse_nested(value)
        yield value, found.source, defects
        return
    for inner in _unwrap(value, frozenset({"key", "list", "string"})):
        _refuse_nested(inner)
        yield inner, found.source, defects | {"wrapped"}


def _unwrap(value: Any, left: frozenset[str]) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "risk_level" in value:
            yield value
        elif "key" in left:
            for inner in value.values():
                yield from _unwrap(inner, left - {"key"})
        elif any(_level_keys(value)):
            raise _Reject("parse_error", "The verdict is wrapped too deep: give one flat JSON object.")
    elif isinstance(value, list):
        held = [[] if isinstance(inner, str) else [*_level_keys(inner)] for inner in value]
        if "list" in left and (len(value) == 1 or all(held)):
            for inner in value:
                yield from _unwrap(inner, left - {"list"})
        elif any(held):
            raise _Reject("parse_error", "The verdict is inside a list: give one flat JSON object.")
    elif isinstance(value, str) and "string" in left and value.lstrip()[:1] in ("{", "["):
        try:
            inner = extract.strict(value)
        except extract.NotJSON:
            return
        yield from _unwrap(inner, left - {"string"})


def _level_keys(value: Any) -> Iterator[Any]:
    """Every value under a key that reads as risk_level, at any depth (depth is capped by ``extract``)."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if _plain_key(key) == "risk_level":
                yield inner
            yield from _level_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _level_keys(inner)


def _plain_key(key: str) -> str:
    return extract.fold_width(extract.drop_invisible(key)).strip().casefold()


def _refuse_nested(verdict: dict[str, Any]) -> None:
    level = _level_word(verdict["risk_level"])
    if any(_level_word(other) != level for other in _level_keys(verdict)):
        raise _Reject("parse_error", "A second verdict with another risk_level is nested in the first: give exactly one.")


def _refuse_remains(leftover: str) -> None:
    if "isk" not in leftover and "ISK" not in leftover and "\\u" not in leftover and "ｉ" not in leftover:
        return
    plain = extract.drop_invisible(extract.fold_width(_ESCAPE.sub(lambda m: chr(int(m[1], 16)), leftover)))
    if _FRAGMENT.search(plain):
        raise _Reject(
            "parse_error", "Beside the JSON stand the remains of another object with a risk_level: give one complete object."
        )


def _echoes(analysed_text: str) -> Any:
    """A test whether a verdict stands in the analysed text: verbatim, or as an equal object at any depth."""
    try:
        inside = [f.value for f in extract.scan(analysed_text).found]
    except extract.NotJSON:
        inside = []
    objects: list[Any] = []
    while inside:
        value = inside.pop()
        objects.append(value)
        inside += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return lambda verdict: verdict[1] in analysed_text or verdict[0] in objects


# Rules 8 to 12: the contract


def _level_word(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > 64:
        return None
    return extract.drop_invisible(extract.fold_width(value)).strip(_EDGE).casefold()


def _number(value: Any) -> tuple[float, bool] | None:
    """A finite number and whether it came as text; None when it is neither a number nor a plain decimal or percent."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(extract.fold_width(value[:80]).strip())
        return None if match is None else (float(match[1]) / (100 if match[2] else 1), True)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return (number, False) if math.isfinite(number) else None


def _flags(value: Any) -> tuple[dict[str, bool], set[str]]:
    allowed = "context_flags must hold " + ", ".join(FLAGS) + ", each true or false."
    if isinstance(value, list) and value and all(isinstance(name, str) and name in FLAGS for name in value):
        return {name: name in value for name in FLAGS}, {"coerced_flags"}
    if not isinstance(value, dict) or not all(name in value for name in FLAGS):
        raise _Reject("schema_error", allowed)
    out: dict[str, bool] = {}
    defects: set[str] = set()
    for name, given in value.items():
        flag = given if isinstance(given, bool) else _flag(given)
        if name in FLAGS:
            if flag is None:
                raise _Reject("schema_error", allowed)
            out[name] = flag
            defects |= set() if isinstance(given, bool) else {"coerced_flags"}
        elif flag is None and given is not None:
            raise _Reject("schema_error", "context_flags has a further key that is neither true nor false. " + allowed)
        else:
            defects.add("unknown_flag_true" if flag else "extra_keys")
    return out, defects


def _flag(given: Any) -> bool | None:
    if isinstance(given, str):
        return {"true": True, "false": False}.get(given.casefold())
    return bool(given) if isinstance(given, int) and given in (0, 1) else None


def _dimensions(value: Any) -> tuple[dict[str, float], tuple[str, ...], set[str]]:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise _Reject("schema_error", "dimensions must be an object of numbers from 0 to 1.")
    out: dict[str, float] = {}
    missing: list[str] = []
    defects = set() if value.keys() <= set(DIMENSIONS) else {"extra_keys"}
    for name in DIMENSIONS:
        given = value.get(name)
        number = (0.0, False) if given is None else _number(given)
        if number is None or not 0 <= number[0] <= 1:
            raise _Reject("schema_error", f"dimensions.{name} must be a number from 0 to 1.")
        if given is None:
            missing.append(name)
        out[name] = number[0] + 0.0
        defects |= {"coerced_confidence"} if number[1] else set()
    return out, tuple(missing), defects | ({"dimension_missing"} if missing else set())


def _read(verdict: dict[str, Any], defects: frozenset[str], tier: Tier) -> Assessment:
    found = set(defects)
    word = verdict["risk_level"]
    level = _LEVELS.get(_level_word(word) or "")
    if level is None:
        raise _Reject("schema_error", "risk_level must be exactly one of low, medium, high, critical.")
    if word != level.value:
        found.add("decorated_level")
    confidence = _number(verdict.get("confidence"))
    if confidence is None or not 0 <= confidence[0] <= 2:
        raise _Reject("schema_error", "confidence must be a number from 0 to 1.")
    found |= {"coerced_confidence"} if confidence[1] else set()
    found |= {"confidence_out_of_range"} if confidence[0] > 1 else set()
    flags, flag_defects = _flags(verdict.get("context_flags"))
    dimensions, missing, dimension_defects = _dimensions(verdict.get("dimensions"))
    evidence = verdict.get("evidence")
    if evidence is not None and not isinstance(evidence, str):
        raise _Reject("schema_error", f"evidence must be text of at most {MAX_EVIDENCE} characters.")
    evidence = _UNENCODABLE.sub("\ufffd", evidence or "")
    found |= flag_defects | dimension_defects
    found |= {"evidence_truncated"} if len(evidence) > MAX_EVIDENCE else set()
    found |= {"extra_keys"} if not verdict.keys() <= _KEYS else set()
    capped = (any(flags.values()) or "unknown_flag_true" in found) and level > RiskLevel.MEDIUM
    return Assessment(
        tier=tier, level=RiskLevel.MEDIUM if capped else level, raw_level=level, confidence=min(confidence[0], 1.0) + 0.0,
        dimensions=dimensions, not_assessed=missing, flags=flags, evidence=evidence[:MAX_EVIDENCE],
        defects=tuple(sorted(found)),
    )  # fmt: skip
