"""A loopback endpoint that misbehaves for real: the fault is named in the address, ``http://127.0.0.1:PORT/FAULT/v1``.

Each fault imitates documented behaviour; its source stands beside it. ``once-FAULT`` misbehaves the first time it sees
a question and answers properly from then on; ``by-text`` takes the fault from ``fault:NAME`` in the text under analysis;
``good`` answers at once. Everything it was asked is counted by body.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from workbench.schema import DIMENSIONS, FLAGS

CRITICAL = {
    "risk_level": "critical", "confidence": 0.95, "dimensions": dict.fromkeys(DIMENSIONS, 0.5), "evidence": "quoted",
    "context_flags": dict.fromkeys(FLAGS, False),
}  # fmt: skip
USAGE = {"prompt_tokens": 300, "completion_tokens": 90, "total_tokens": 390}
HANG_S = 30.0
CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "judge_output.jsonl").read_text("utf-8").splitlines()]

Send = Callable[..., Awaitable[None]]


def completion(content: Any = None, *, finish: Any = "stop", **over: Any) -> dict[str, Any]:
    """A chat completion (https://platform.openai.com/docs/api-reference/chat/object)."""
    message = {"role": "assistant", "content": json.dumps(CRITICAL) if content is None else content} | over.pop("message", {})
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "mock-judge", "usage": USAGE,
            "choices": [{"index": 0, "finish_reason": finish, "message": message}]}  # fmt: skip
    return body | over


def error(message: str, code: Any = None, kind: str = "server_error", param: str | None = None) -> dict[str, Any]:
    """An error body (https://platform.openai.com/docs/guides/error-codes)."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


NULL = {"content": None}
_NONCE = re.compile(rb"[0-9a-f]{16}")  # in the marker around the text under analysis
_NAMED = re.compile(rb"fault:([\w-]+)")
OPENAI_ERRORS = "https://platform.openai.com/docs/guides/error-codes"
OPENAI_CHAT = "https://platform.openai.com/docs/api-reference/chat/object"
DEEPSEEK_ERRORS = "https://api-docs.deepseek.com/quick_start/error_codes"
DEEPSEEK_CHAT = "https://api-docs.deepseek.com/api/create-chat-completion"
ZHIPU_ERRORS = "https://docs.bigmodel.cn/cn/api/api-code"
AZURE_FILTER = "https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter"
RFC_9110 = "https://www.rfc-editor.org/rfc/rfc9110"

# name: (reason expected, source, status, headers, body)
ANSWERS: dict[str, tuple[str, str, int, dict[str, str], Any]] = {
    "429-after": ("rate_limited", RFC_9110 + "#section-10.2.3", 429, {"retry-after": "0"}, error("Rate limit reached", "rate_limit_exceeded", "requests")),
    "429-date": ("rate_limited", RFC_9110 + "#section-10.2.3", 429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, error("Rate limit reached")),
    "429": ("rate_limited", OPENAI_ERRORS, 429, {}, error("Rate limit reached", "rate_limit_exceeded", "requests")),
    "429-quota": ("rate_limited", OPENAI_ERRORS, 429, {}, error("You exceeded your current quota", "insufficient_quota", "insufficient_quota")),
    "429-zhipu": ("rate_limited", ZHIPU_ERRORS, 429, {}, {"error": {"code": "1302", "message": "您当前使用该 API 的并发数过高"}}),
    "429-zhipu-unpaid": ("rate_limited", ZHIPU_ERRORS, 429, {}, {"error": {"code": "1113", "message": "您的账户已欠费"}}),
    "401": ("api_error", OPENAI_ERRORS, 401, {}, error("Incorrect API key provided: sk-leaked-key-000", "invalid_api_key", "invalid_request_error")),
    "402": ("api_error", DEEPSEEK_ERRORS, 402, {}, error("Insufficient Balance", "invalid_request_error", "unknown_error")),
    "500": ("api_error", OPENAI_ERRORS, 500, {}, error("The server had an error while processing your request")),
    "502": ("api_error", RFC_9110 + "#section-15.6.3", 502, {"content-type": "text/html"}, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "503": ("api_error", DEEPSEEK_ERRORS, 503, {}, error("The server is overloaded")),
    "503-after": ("api_error", RFC_9110 + "#section-15.6.4", 503, {"retry-after": "0"}, error("Slow Down")),
    "504": ("timeout", RFC_9110 + "#section-15.6.5", 504, {"content-type": "text/html"}, "<html>504 Gateway Time-out</html>"),
    "redirect": ("api_error", RFC_9110 + "#section-15.4.3", 302, {"location": "http://127.0.0.1:9/"}, ""),
    "html-200": ("api_error", RFC_9110 + "#section-15.3.1", 200, {"content-type": "text/html"}, "<!DOCTYPE html><title>Sign in to this network</title>"),
    "error-200": ("api_error", "https://openrouter.ai/docs/api-reference/errors", 200, {}, {"error": {"code": 502, "message": "Provider returned error"}}),
    "filter-400": ("content_filter", AZURE_FILTER, 400, {}, error("The response was filtered", "content_filter", "invalid_request_error", "prompt")),
    "filter-zhipu": ("content_filter", ZHIPU_ERRORS, 400, {}, {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}}),
    "no-choices": ("parse_error", "https://github.com/567-labs/instructor/issues/2548", 200, {}, completion(choices=[])),
    "null": ("parse_error", OPENAI_CHAT, 200, {}, completion(message=NULL)),
    "refusal": ("refused", "https://platform.openai.com/docs/guides/structured-outputs", 200, {}, completion(message={**NULL, "refusal": "I can't help with that."})),
    "filtered": ("content_filter", OPENAI_CHAT, 200, {}, completion("", finish="content_filter")),
    "sensitive": ("content_filter", "https://docs.bigmodel.cn/api-reference", 200, {}, completion("", finish="sensitive")),
    "interrupted": ("api_error", DEEPSEEK_CHAT, 200, {}, completion('{"risk_level": "lo', finish="insufficient_system_resource")),
    "truncated": ("truncated", OPENAI_CHAT, 200, {}, completion('{"risk_level": "critical", "confid', finish="length")),
    "tool-call": ("parse_error", OPENAI_CHAT, 200, {}, completion(finish="tool_calls", message={**NULL, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "report", "arguments": json.dumps(CRITICAL)}}]})),
    "reasoning-only": ("parse_error", "https://api-docs.deepseek.com/guides/reasoning_model", 200, {}, completion("", message={"reasoning_content": json.dumps(CRITICAL)})),
    "prose": ("parse_error", "https://platform.openai.com/docs/guides/structured-outputs", 200, {}, completion("This looks critical to me.")),
    "broken-gzip": ("api_error", RFC_9110 + "#section-8.4.1.3", 200, {"content-encoding": "gzip"}, b"\x1f\x8b\x08\x00broken"),
    "short-body": ("api_error", RFC_9110 + "#section-8.6", 200, {"content-length": "5000"}, '{"choices": ['),
    "not-http": ("api_error", "https://www.rfc-editor.org/rfc/rfc9112#section-4", 0, {}, b"SSH-2.0-OpenSSH_9.6\r\n"),
}  # fmt: skip
# Transport faults with behaviour of their own, and what they must come to.
BEHAVIOURS = {
    "reset": "api_error",
    "closed": "api_error",
    "hang": "timeout",
    "slow-first-byte": "timeout",
    "slow-body": "timeout",
}
# Odd, but answers all the same.
HARMLESS: dict[str, tuple[dict[str, str], Any]] = {
    "good": ({}, completion()),
    "gzip": ({"content-encoding": "gzip"}, gzip.compress(json.dumps(completion()).encode())),
    "no-usage": ({}, completion(usage=None)),
    "odd-usage": ({}, completion(usage={"prompt_tokens": -1, "completion_tokens": "9", "total_tokens": True})),
    "wrong-model": ({}, completion(model="another-model", system_fingerprint="fp_1")),
    "reasoning": ({}, completion(message={"reasoning_content": '{"risk_level": "low"}'})),
    "parts": ({}, completion([{"type": "text", "text": json.dumps(CRITICAL)}])),
    "jitter": ({}, completion()),
}
FAULTS = {name: row[0] for name, row in ANSWERS.items()} | BEHAVIOURS
# What an endpoint does not take, and how it says so (OpenAI; vLLM; Google's Gemma template under vLLM).
REFUSALS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "no-max_tokens": lambda b: error("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                                     "unsupported_parameter", "invalid_request_error", "max_tokens") if "max_tokens" in b else None,
    "no-temperature": lambda b: error("Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
                                      "unsupported_value", "invalid_request_error", "temperature") if "temperature" in b else None,
    "no-response_format": lambda b: {"object": "error", "message": "response_format is not supported by this backend", "type": "BadRequestError", "code": 400}
    if "response_format" in b else None,
    "no-seed": lambda b: {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]}
    if "seed" in b else None,
    "no-system": lambda b: {"object": "error", "message": "System role not supported", "type": "BadRequestError", "code": 400}
    if b["messages"][0]["role"] == "system" else None,
}  # fmt: skip


class Server:
    """Use as a context manager. ``url(fault)`` is a judge's base_url; ``asked`` counts (fault, body) pairs."""

    def __init__(self, *, latency_s: float = 0.0, answer: Callable[[dict[str, Any]], str] | None = None) -> None:
        self.latency_s, self.answer = latency_s, answer
        self.asked: Counter[tuple[str, bytes]] = Counter()
        self.seen: Counter[tuple[str, bytes]] = Counter()
        self.in_flight = self.in_flight_max = 0
        self.keys: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="misbehaving", daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, fault: str = "good") -> str:
        return f"http://127.0.0.1:{self.port}/{fault}/v1"

    def calls(self, fault: str | None = None) -> int:
        return sum(n for (f, _), n in self.asked.items() if fault in (None, f))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.keys.add(headers.get("authorization", ""))
                await self._reply(lines[0].split(" ")[1].split("/")[1], body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _reply(self, fault: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.asked[fault, body] += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await asyncio.sleep(self.latency_s)
            if fault == "by-text":
                fault = _NAMED.search(body)[1].decode()
            if fault.startswith("once-"):
                question = (fault, _NONCE.search(body)[0])  # the same question in another request is not new
                self.seen[question] += 1
                fault = fault.removeprefix("once-") if self.seen[question] == 1 else "good"
            await self._misbehave(fault, body, writer)
        finally:
            self.in_flight -= 1

    async def _misbehave(self, fault: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if fault in REFUSALS:
            refusal = REFUSALS[fault](json.loads(body))
            await _send(writer, 400 if refusal else 200, {}, refusal or completion())
        elif fault == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif fault == "closed":
            writer.close()
        elif fault in ("hang", "slow-first-byte"):
            await asyncio.sleep(HANG_S)
        elif fault == "slow-body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
            for _ in range(1000):  # each byte arrives in time, the whole never does
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        elif fault.startswith("case-"):
            case = CASES[int(fault.removeprefix("case-"))]
            raw = case["raw"] if "raw" in case else "".join(text * n for text, n in case["raw_parts"])
            finish, message, over = case.get("finish_reason", "stop"), {"content": raw} | case.get("message", {}), {}
            over = {"choices": case["choices"]} if "choices" in case else {}
            await _send(writer, 200, {}, completion(finish=finish, message=message, **over))
        elif fault in HARMLESS:
            headers, good = HARMLESS[fault]
            if fault == "jitter":
                await asyncio.sleep(hash(body) % 7 * 0.01)
            await _send(
                writer, 200, headers, completion(self.answer(json.loads(body))) if self.answer and fault == "good" else good
            )
        else:
            _, _, status, headers, answer = ANSWERS[fault]
            await _send(writer, status, headers, answer)


async def _send(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], answer: Any) -> None:
    raw = answer if isinstance(answer, bytes) else answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    if status == 0:
        writer.write(raw)
        writer.close()
        return
    head = {"content-type": "application/json", "content-length": str(len(raw))} | headers
    writer.write(f"HTTP/1.1 {status} X\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in head.items()).encode() + b"\r\n" + raw)
    await writer.drain()
    if int(head["content-length"]) != len(raw):
        writer.close()
