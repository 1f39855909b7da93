"""Ask any OpenAI-compatible endpoint, through the SDK's generic request on an aiohttp client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from workbench.budget import Price, estimate_tokens
from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Reply, Request, Usage
from workbench.schema import Reason

if TYPE_CHECKING:
    import httpx2
    from openai import APIStatusError, AsyncOpenAI

MAX_TEMPERATURE: Final = 0.7
MAX_BODY: Final = 4 * 1024 * 1024
_SAFE: Final = re.compile(r"[\w.\-\[\]]{1,48}", re.ASCII)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# What the SDK would tell about this machine with each call; nobody needs it, and it takes time.
_TELLTALE: Final = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
# What an endpoint may refuse and the word its refusal uses, in the order they are looked for.
_REFUSABLE: Final = {
    "max_tokens": "max_tokens",
    "response_format": "response_format",
    "temperature": "temperature",
    "seed": "seed",
    "system": "system",
}
_UNSUPPORTED: Final = re.compile(
    r"unsupported|not support|n't support|unrecogni[sz]ed|unknown (?:parameter|argument|field)|unexpected (?:keyword|parameter|argument|field)"
    r"|extra (?:inputs|fields)|not permitted|not allowed|only the default|must alternate"
)
# Out of money or allowance for the day: waiting a minute will not help (OpenAI; Zhipu 1113, 1304, 1308, 1310).
_NO_MONEY: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "1113", "1304", "1308", "1310"})
# Finish reasons that leave something to parse; any other means that the endpoint broke off.
_FINISH: Final = frozenset({"stop", "length", "max_tokens", "content_filter", "refusal", "tool_calls", "function_call", "tool_use", "eos", "eos_token",
                            "end_turn", "stop_sequence"})  # fmt: skip
_FILTER_CODES: Final = frozenset({"content_filter", "content_policy_violation", "1301"})


@dataclass(eq=False)
class RemoteJudge:
    """One model behind one OpenAI-compatible endpoint.

    ``key_env`` names the environment variable that holds the key (None: the endpoint wants none); the key itself is
    read when a client is made and kept nowhere else. ``timeout_s`` is for the whole call. ``extra`` goes into the
    request body as it is. Raises JudgeSetupError for a temperature above 0.7 or an address that holds a secret.
    """

    name: str
    base_url: str
    model: str
    key_env: str | None = None
    max_tokens: int = 600
    timeout_s: float = 12.0
    temperature: float = 0.0
    seed: int | None = None
    json_mode: bool = True
    price: Price | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "remote"
    deterministic: bool = False
    reads_anchor: bool = True
    refused: set[str] = field(default_factory=set, compare=False)  # learnt: parameters this endpoint does not take
    _clients: dict[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[AsyncOpenAI, None]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JudgeSetupError(f"judge '{self.name}': base_url must be an http(s) address such as https://api.openai.com/v1")
        if parts.username or parts.password or parts.query:
            raise JudgeSetupError(f"judge '{self.name}': base_url must hold no key: name its environment variable in key_env")
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise JudgeSetupError(
                f"judge '{self.name}': temperature must be 0 to {MAX_TEMPERATURE} for judging; 0 is the default"
            )

    @property
    def endpoint(self) -> str:
        """What shares one rate limit."""
        return self.base_url.rstrip("/")

    def key(self) -> str:
        """The key, from the environment; JudgeSetupError names the variable that is missing."""
        value = os.environ.get(self.key_env, "").strip() if self.key_env else "none"
        if not value:
            raise JudgeSetupError(f"judge '{self.name}' needs a key: set the environment variable {self.key_env}")
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise JudgeSetupError(f"the value of {self.key_env} cannot be a key: it holds spaces or characters that no key has")
        return value

    def identity(self, request: Request) -> dict[str, Any]:
        """What is asked for. Parameters that the endpoint turns out to refuse stay in: a call keeps its key for good."""
        return {
            "base_url": self.endpoint, "model": self.model, "temperature": self.temperature, "seed": self.seed,
            "max_tokens": request.max_tokens or self.max_tokens, "json": self.json_mode, "extra": dict(self.extra),
        }  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """The configuration, for a manifest; ``registry.judge_from`` rebuilds the judge from it."""
        names = ("name", "kind", "base_url", "model", "key_env", "max_tokens", "timeout_s", "temperature", "seed", "json_mode")
        price = None if self.price is None else self.price._asdict()
        return {n: getattr(self, n) for n in names} | {"extra": dict(self.extra), "price": price}

    async def answer(self, request: Request) -> Reply:
        """Send one request; a parameter that the endpoint refuses is left out from then on, once and for all."""
        import aiohttp
        import openai

        started = time.perf_counter()
        while True:
            left_out = frozenset(self.refused)
            try:
                response = await self._post(self._body(request, left_out))
                return self._reply(response, request, time.perf_counter() - started, left_out)
            except openai.APIStatusError as error:
                if not self._learn(error, left_out):
                    raise _refusal(error) from None
            except (openai.APIConnectionError, aiohttp.ClientError, TimeoutError) as error:
                raise _lost(error) from None

    async def aclose(self) -> None:
        """Close the client of the running loop; other loops close theirs when they end."""
        entry = self._clients.get(asyncio.get_running_loop())
        if entry:
            await entry[1].aclose()

    # -- one client per event loop

    async def _client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        entry = self._clients.get(loop)
        if entry is None:
            keeper = self._keep(loop)
            entry = self._clients[loop] = (await keeper.__anext__(), keeper)
        return entry[0]

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[AsyncOpenAI, None]:
        """Hold a client for as long as its loop runs: asyncio ends open generators, so this one, before a loop closes."""
        import httpx2
        from openai import AsyncOpenAI, Omit

        headers: dict[str, Any] = {f"X-Stainless-{name}": Omit() for name in _TELLTALE} | {"Accept-Encoding": "gzip, deflate"}
        client = AsyncOpenAI(
            base_url=self.base_url, api_key=self.key(), max_retries=0, timeout=httpx2.Timeout(self.timeout_s), default_headers=headers,
            http_client=_direct_client()(
                verify=_tls(), limits=httpx2.Limits(max_connections=1000), follow_redirects=False,
                trust_env=not _here(self.base_url),  # a proxy cannot reach this machine's own loopback
            ),
        )  # fmt: skip
        try:
            yield client
        finally:
            self._clients.pop(loop, None)
            await client.close()

    async def _post(self, body: bytes) -> Any:
        import httpx2

        client = await self._client()
        async with asyncio.timeout(self.timeout_s):  # the SDK's own limit is per read: a trickle would never end
            return await client.post(f"{self.endpoint}/chat/completions", cast_to=httpx2.Response, content=body)

    def _body(self, request: Request, left_out: frozenset[str]) -> bytes:
        messages: list[dict[str, str]] = list(request.prompt.messages)
        if "system" in left_out and messages[0]["role"] == "system":
            first, second, *rest = messages
            messages = [{"role": "user", "content": f"{first['content']}\n\n{second['content']}"}, *rest]
        cap = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        body: dict[str, Any] = {"model": self.model, "messages": messages, cap: request.max_tokens or self.max_tokens}
        optional = {
            "temperature": self.temperature,
            "seed": self.seed,
            "response_format": {"type": "json_object"} if self.json_mode else None,
        }
        body |= {k: v for k, v in optional.items() if v is not None and k not in left_out} | dict(self.extra)
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    def _learn(self, error: APIStatusError, left_out: frozenset[str]) -> bool:
        """True when the request is worth sending again: this or another call just learnt that a parameter is refused."""
        if error.status_code in (400, 422, 500) and _UNSUPPORTED.search(words := json.dumps(error.body)[:4000].lower()):
            sent = {"max_tokens", "temperature", "system"} | ({"seed"} if self.seed is not None else set())
            sent = (sent | {"response_format"} if self.json_mode else sent) - left_out
            self.refused.update([name for name, spelling in _REFUSABLE.items() if name in sent and spelling in words][:1])
        return bool(self.refused - left_out)

    def _reply(self, response: Any, request: Request, latency: float, left_out: frozenset[str]) -> Reply:
        raw = response.content
        try:
            if len(raw) > MAX_BODY:
                raise ValueError
            data = json.loads(raw)
            choices = data["choices"]
            if not isinstance(choices, list):
                raise TypeError
            choices = [c for c in choices if isinstance(c, dict)]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise _not_a_completion(raw) from None
        messages = [m for c in choices if isinstance(m := c.get("message"), dict)]
        text = "\n".join(t for m in messages if isinstance(t := _plain(m.get("content")), str)) if messages else None
        finish = next((str(f) for c in choices if (f := c.get("finish_reason"))), None)
        if finish is not None and finish.lower() not in _FINISH:
            filtered = any(word in finish.lower() for word in ("filter", "sensitive", "safety"))
            reason: Reason = "content_filter" if filtered else "api_error"
            raise JudgeError(
                reason, "the endpoint broke off" + (f" ({finish})" if _SAFE.fullmatch(finish) else ""), retryable=not filtered
            )
        refusal = next((m["refusal"] for m in messages if m.get("refusal")), None)
        return Reply(
            text=text, finish_reason=finish, message={"refusal": str(refusal)[:200]} if refusal else None,
            choices=[] if not choices else None,
            usage=_usage(data.get("usage"), request, text), model=_name(data.get("model")), fingerprint=_name(data.get("system_fingerprint")),
            latency_s=latency, pause_s=_pause(response.headers), dropped=tuple(sorted(left_out)),
        )  # fmt: skip


@cache
def _direct_client() -> type[httpx2.AsyncClient]:
    """The SDK's client on aiohttp, which takes address and headers as the SDK made them instead of merging them once more."""
    import httpx2
    from openai import DefaultAioHttpClient

    address = lru_cache(httpx2.URL)

    class DirectClient(DefaultAioHttpClient):
        def build_request(
            self, method: str, url: Any, *, content: Any = None, headers: Any = None, timeout: Any = None, **_: Any
        ) -> httpx2.Request:
            return httpx2.Request(
                method, address(str(url)), content=content, headers=headers, extensions={"timeout": timeout.as_dict()}
            )

    return DirectClient


def _here(url: str) -> bool:
    """Is this address on the loopback of this machine?"""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


@cache
def _tls() -> ssl.SSLContext:
    """One context for all clients: loading the certificates takes longer than a call."""
    import httpx2

    return httpx2.create_ssl_context()


def _plain(content: Any) -> Any:
    """The text of a content field: a string, or a list of text parts."""
    if isinstance(content, list):
        return "".join(t for part in content if isinstance(part, dict) and isinstance(t := part.get("text"), str))
    return content


def _name(value: Any) -> str | None:
    return value[:120] if isinstance(value, str) else None


def _usage(given: Any, request: Request, text: str | None) -> Usage:
    """Tokens as the endpoint counted them; estimated, and marked so, where it did not."""
    given = given if isinstance(given, dict) else {}
    details = given.get("prompt_tokens_details")
    cached = given.get("prompt_cache_hit_tokens", details.get("cached_tokens") if isinstance(details, dict) else 0)
    numbers = [given.get("prompt_tokens"), given.get("completion_tokens"), cached or 0]
    if all(type(n) is int and 0 <= n < 10**9 for n in numbers):
        return Usage(*numbers)
    prompt = sum(estimate_tokens(m["content"]) for m in request.prompt.messages)
    return Usage(prompt, estimate_tokens(text or ""), estimated=True)


def _seconds(value: str | None) -> float | None:
    """Seconds in a header: a number, or durations such as 6m0s and 120ms."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        parts = _DURATION.findall(value)
        return sum(float(n) * _SECONDS[u] for n, u in parts) if parts and _DURATION.sub("", value) == "" else None


def _retry_after(headers: Any) -> float | None:
    """The wait that a refusal asks for: retry-after-ms, or Retry-After in seconds or as a date."""
    if (ms := _seconds(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    value = headers.get("retry-after")
    if value is None or (seconds := _seconds(value)) is not None:
        return seconds if value else None
    try:
        now = headers.get("date")
        return max(
            0.0, parsedate_to_datetime(value).timestamp() - (parsedate_to_datetime(now).timestamp() if now else time.time())
        )
    except ValueError:
        return None


def _pause(headers: Any) -> float:
    """How long the endpoint's allowance is used up, from its x-ratelimit headers; 0 while some is left."""
    waits = [
        _seconds(headers.get(f"x-ratelimit-reset-{what}")) or 0.0
        for what in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{what}") == "0"
    ]  # fmt: skip
    return max(waits, default=0.0)


def _refusal(error: APIStatusError) -> JudgeError:
    """What an HTTP status means. Of the server's words only short codes are kept: the rest may hold a key or the text."""
    body = error.body if isinstance(error.body, dict) else {}
    return _verdict(error.status_code, body.get("error", body), _retry_after(error.response.headers))


def _verdict(status: int, body: Any, retry_after: float | None = None) -> JudgeError:
    body = body if isinstance(body, dict) else {}
    codes = {k: str(body[k]) for k in ("code", "type", "param") if body.get(k) and _SAFE.fullmatch(str(body[k]))}
    detail = f"HTTP {status}" + (f" ({', '.join(f'{k} {v}' for k, v in codes.items())})" if codes else "")
    if _FILTER_CODES & set(codes.values()):
        return JudgeError("content_filter", detail)
    if status == 429:
        return JudgeError("rate_limited", detail, retryable=not _NO_MONEY & set(codes.values()), retry_after=retry_after)
    if status in (408, 504):
        return JudgeError("timeout", detail, retryable=True, retry_after=retry_after)
    return JudgeError("api_error", detail, retryable=status >= 500 or status in (409, 425), retry_after=retry_after)


def _not_a_completion(raw: bytes) -> JudgeError:
    """A 200 whose body is no completion: some gateways report errors this way, others send a web page."""
    try:
        error = json.loads(raw).get("error")
    except (ValueError, AttributeError, RecursionError):
        return JudgeError("api_error", "the answer is not JSON", retryable=True)
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _verdict(status, error) if error else JudgeError("api_error", "the answer has no choices", retryable=True)


def _lost(error: BaseException) -> JudgeError:
    """A timeout, or a lost connection: the SDK reports both as a timeout here, the transport's own error tells them apart."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    if any(isinstance(e, TimeoutError) for e in causes):
        return JudgeError("timeout", "no answer in time", retryable=True)
    return JudgeError("api_error", f"no connection ({type(causes[-1]).__name__})", retryable=True)
