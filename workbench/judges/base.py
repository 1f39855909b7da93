"""The judge seam: a rendered prompt goes in, text and usage come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from workbench.schema import Tier, View


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. Remote judges read ``messages``; offline judges may read ``view``, which is what was rendered.

    ``sha256`` is of the exact prompt bytes (canonical JSON of messages).
    """

    messages: tuple[dict[str, str], ...]
    prompt_id: str
    version: str
    sha256: str
    view: View


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; ``estimated`` when the endpoint returned none."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: the arguments of ``parsing.parse_assessment`` plus usage and provenance."""

    text: str | None
    finish_reason: str | None = "stop"
    message: dict[str, Any] | None = None
    choices: list[Any] | None = None
    usage: Usage = field(default_factory=Usage)
    model: str | None = None  # as returned
    fingerprint: str | None = None
    latency_s: float = 0.0
    pause_s: float = 0.0  # the endpoint's allowance is used up: no call before this many seconds
    dropped: tuple[str, ...] = ()  # parameters that the endpoint refuses, so they were not sent


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a judge. ``repeat`` and ``attempt`` separate answers to identical messages."""

    prompt: Prompt
    tier: Tier
    repeat: int = 0
    attempt: int = 0
    max_tokens: int | None = None  # None: the judge's own


@runtime_checkable
class Judge(Protocol):
    """Something that answers a rendered prompt with text.

    ``kind``: rules | model | simulated | remote | local. ``deterministic``: the same request always gets the
    same text, so repeat noise is 'not applicable'. ``reads_anchor``: false when it cannot read an anchor, so
    anchoring is 'not applicable'.
    """

    name: str
    kind: str
    deterministic: bool
    reads_anchor: bool

    async def answer(self, request: Request) -> Reply:
        """Make one attempt; raise ``errors.JudgeError`` when there is no answer."""
        ...

    def identity(self, request: Request) -> dict[str, Any]:
        """Everything besides the messages that reaches the model (base_url, model, sampling, schema), JSON-able, no secret."""
        ...

    def describe(self) -> dict[str, Any]:
        """The configuration for a manifest, without secrets."""
        ...

    async def aclose(self) -> None: ...
