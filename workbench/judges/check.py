"""Find out what an endpoint accepts, and record it, so that a judge's settings rest on an answer and not on a guess."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from workbench.budget import price_of
from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Reply, Request
from workbench.judges.local import LocalJudge, answer_schema
from workbench.judges.remote import RemoteJudge
from workbench.parsing import parse_assessment
from workbench.prompts import render
from workbench.schema import View

TEXT: Final = "The bus was late again and I missed the start of the film."  # invented, and about nothing
LARGER: Final = 4  # times the cap, to see whether hidden reasoning used it up
_SCHEMA: Final = answer_schema(dimensions=False)
_FORMATS: Final[dict[str, dict[str, Any]]] = {
    "json_schema": {"type": "json_schema", "json_schema": {"name": "assessment", "strict": True, "schema": _SCHEMA}},
    "json_object": {"type": "json_object"},
}
# What may have to be left out before an endpoint answers at all; each is tried when its refusal was in words we do not know.
_BARE: Final = (("temperature",), ("max_tokens",), ("system",), ("temperature", "max_tokens"))


@dataclass(frozen=True)
class Capabilities:
    """What an endpoint accepts. ``refused`` holds names of ``RemoteJudge.refused``; prices are in US dollars per million tokens."""

    judge: str
    endpoint: str
    model: str
    checked: str  # date, UTC
    refused: tuple[str, ...] = ()
    seed: bool = False
    formats: tuple[str, ...] = ()  # of json_schema, json_object
    schema_kept: bool | None = None  # the answer to a json_schema request had the schema's form; None: it was not accepted
    model_returned: str | None = None
    fingerprint: str | None = None
    usage_returned: bool = False
    cap_needed: int | None = None  # tokens that an answer took when max_tokens was not enough; None: it was
    price: tuple[float, float, float | None] | None = None
    answer: str = ""
    calls: int = 0
    tokens: int = 0

    def __str__(self) -> str:
        same = "the same id" if self.model_returned == self.model else f"answers as {self.model_returned or '(no id)'}"
        kept = {True: ", and keeps to the schema", False: ", but ignores the schema", None: ""}[self.schema_kept]
        price = (
            "unknown: give it one in judges.toml"
            if self.price is None
            else f"${self.price[0]:g} in, ${self.price[1]:g} out per million tokens"
        )
        reasoning = "max_tokens is enough" if self.cap_needed is None else f"it used up max_tokens; an answer took {self.cap_needed}: set max_tokens higher"  # fmt: skip
        rows = {
            "model": f"{self.model}; {same}; fingerprint {self.fingerprint or 'none'}",
            "temperature": self._word("temperature"), "seed": "accepted" if self.seed else "refused: left out",
            "response_format": (" and ".join(self.formats) or "neither json_schema nor json_object: left out") + kept,
            "token cap": "max_completion_tokens" if "max_tokens" in self.refused else "max_tokens",
            "system role": "refused: joined to the user's message" if "system" in self.refused else "accepted",
            "usage": "returned" if self.usage_returned else "not returned: tokens are estimated, and marked so",
            "reasoning": reasoning, "price": price, "answer": self.answer, "cost": f"{self.calls} calls, {self.tokens} tokens",
        }  # fmt: skip
        return "\n".join([f"{self.judge} at {self.endpoint}", *(f"  {name:<16} {value}" for name, value in rows.items())])

    def _word(self, name: str) -> str:
        return "refused: left out" if name in self.refused else "accepted"


def record_file() -> Path:
    """Where checks are kept: ``WORKBENCH_CAPABILITIES``, or capabilities.json in the user's data folder."""
    given, data = os.environ.get("WORKBENCH_CAPABILITIES"), os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(given).expanduser() if given else Path(data) / "judge-workbench" / "capabilities.json"


def recorded() -> dict[str, dict[str, Any]]:
    """All checks so far, by "endpoint model"; {} when there is none or the file cannot be read."""
    try:
        found = json.loads(record_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def refusals(base_url: str, model: str) -> set[str]:
    """The parameters that the last check found refused."""
    return set(recorded().get(f"{base_url.rstrip('/')} {model}", {}).get("refused", ()))


def check_judge(name: str) -> Capabilities:
    """Ask the judge's endpoint at most a dozen short questions and record what it accepts.

    Raises JudgeSetupError for a judge without an endpoint, and when the endpoint does not answer at all.
    """
    from workbench.judges.registry import judge
    from workbench.runner import sync

    named, here = judge(name), ""
    if isinstance(named, LocalJudge):
        here, named = f"this machine, weights {named.weights_sha256[:16]}", named.remote(named.server().address())
    if not isinstance(named, RemoteJudge):
        raise JudgeSetupError(f"judge '{name}' answers on this machine without an endpoint: there is nothing to check")
    try:
        found = sync(_Probe(named, datetime.now(UTC).date().isoformat()).run())
    except JudgeError as error:
        key = f"the key in {named.key_env}" if named.key_env else "whether it needs a key"
        raise JudgeSetupError(
            f"judge '{name}' could not be checked ({error}): check base_url, model and {key}, or try again later"
        ) from None
    if here:
        return replace(found, endpoint=here)
    path = record_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(recorded() | {f"{found.endpoint} {found.model}": asdict(found)}, indent=1), "utf-8")
    part.replace(path)
    return found


@dataclass
class _Probe:
    """One check: what was asked, what came back."""

    judge: RemoteJudge
    day: str
    calls: int = 0
    tokens: int = 0
    request: Request = field(default_factory=lambda: Request(render(View(text=TEXT), "L1", version="v1-short"), "L1"))

    async def run(self) -> Capabilities:
        base, reply = await self._any_answer()
        cap_needed, capped = None, reply.finish_reason == "length" and not (reply.text or "").strip()
        if capped and isinstance(more := await self._ask(base, max_tokens=LARGER * base.max_tokens), Reply):
            reply, cap_needed = more, more.usage.completion_tokens
        cap = LARGER * base.max_tokens if cap_needed else None
        seeded = await self._ask(replace(base, seed=7), cap)
        seed = isinstance(seeded, Reply) and "seed" not in seeded.dropped
        asked = {
            kind: await self._ask(replace(base, extra={**base.extra, "response_format": form}), cap)
            for kind, form in _FORMATS.items()
        }
        formats = tuple(kind for kind, got in asked.items() if isinstance(got, Reply))
        refused = base.refused | {
            name for name, taken in (("seed", seed), ("response_format", "json_object" in formats)) if not taken
        }
        read = parse_assessment(
            reply.text, finish_reason=reply.finish_reason, message=reply.message, choices=reply.choices, analysed_text=TEXT
        )
        price = price_of(self.judge)
        return Capabilities(
            self.judge.name, self.judge.endpoint, self.judge.model, self.day, tuple(sorted(refused)), seed, formats,
            _kept(asked["json_schema"]), reply.model, reply.fingerprint, not reply.usage.estimated, cap_needed, price and tuple(price),  # type: ignore[arg-type]
            f"{read.level}, confidence {read.confidence}" if read.known else f"not readable: {read.reason} ({read.detail})", self.calls, self.tokens,
        )  # fmt: skip

    async def _any_answer(self) -> tuple[RemoteJudge, Reply]:
        """The judge with as few parameters as it takes, and its first answer."""
        first: JudgeError | None = None
        for left_out in ((), *_BARE):
            base = replace(self.judge, seed=None, json_mode=False, refused=set(left_out))
            got = await self._ask(base)
            if isinstance(got, Reply):
                return base, got
            first = first or got
        raise first or JudgeError("api_error")

    async def _ask(self, judge: RemoteJudge, max_tokens: int | None = None) -> Reply | JudgeError:
        """A reply, or the refusal of a parameter; any other failure says nothing about parameters and is raised."""
        known = len(judge.refused)
        try:
            reply = await judge.answer(replace(self.request, max_tokens=max_tokens))
        except JudgeError as error:
            if not error.detail.startswith(("HTTP 400", "HTTP 422")):
                raise
            return error
        finally:
            self.calls += 1 + len(judge.refused) - known  # the transport asks again for each parameter it learns to leave out
            await judge.aclose()
        self.tokens += reply.usage.prompt_tokens + reply.usage.completion_tokens
        return reply


def _kept(got: Reply | JudgeError) -> bool | None:
    """Whether the answer has the keys of the schema; None where the schema was refused."""
    if not isinstance(got, Reply):
        return None
    try:
        return set(json.loads(got.text or "")) == set(_SCHEMA["required"])
    except (ValueError, TypeError):
        return False
