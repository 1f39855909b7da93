"""`workbench judges check` finds out what an endpoint accepts, in few calls, and later judges use what was found."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.scripted import verdict
from workbench.cli import main
from workbench.errors import JudgeSetupError
from workbench.judges import check
from workbench.judges.check import check_judge, recorded
from workbench.judges.registry import judge

KEY = "sk-planted-0123456789"
GOOD = verdict("low", 0.9)


def openai_error(message, *, param=None, code=None):
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


# What vendors say, word for word; each returns (status, body) when it refuses, else None.
def fixed_temperature(b):  # OpenAI, gabrii/Cursor-Azure-GPT-5 #33
    said = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
    return (400, openai_error(said, param="temperature", code="unsupported_value")) if "temperature" in b else None


def renamed_cap(b):  # OpenAI's gpt-5, griptape-ai/ComfyUI-Griptape #312
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    return (400, openai_error(said, param="max_tokens", code="unsupported_parameter")) if "max_tokens" in b else None


def no_seed(b):  # Mistral, langchain-ai/langchain-azure #82
    detail = [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]
    return (
        (422, {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error", "code": None})
        if "seed" in b
        else None
    )


def schema_only(b):  # LM Studio, lmstudio-ai/lmstudio-bug-tracker #189
    kind = b.get("response_format", {}).get("type")
    return (400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}) if kind == "json_object" else None


def object_only(b):  # DeepSeek, UKGovernmentBEIS/inspect_ai #4916
    kind = b.get("response_format", {}).get("type")
    said = openai_error("This response_format type is unavailable now", code="invalid_request_error")
    return (400, said) if kind == "json_schema" else None


def no_system(b):  # Gemma's template under vLLM, vllm-project/vllm #2964
    said = {"object": "error", "message": "System role not supported", "type": "BadRequestError", "code": 400}
    return (400, said) if b["messages"][0]["role"] == "system" else None


def cryptic_temperature(b):  # a gateway whose words name nothing
    return (400, {"error": "Bad Request"}) if "temperature" in b else None


class Endpoint:
    """An OpenAI-compatible endpoint on loopback that refuses as told and remembers what it was sent."""

    def __init__(self, *rules, answer=None, usage=True, model="given-model"):
        self.rules, self.usage, self.model = rules, usage, model
        self.answer = answer or (lambda body: (GOOD, "stop", 40))
        self.seen: list[dict] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.reply(body)
                raw = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True

    def reply(self, body):
        self.seen.append(body)
        refused = next((r for rule in self.rules if (r := rule(body))), None)
        if refused:
            return refused
        text, finish, tokens = self.answer(body)
        message = {"role": "assistant", "content": text}
        found = {
            "model": self.model,
            "system_fingerprint": "fp_1",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        }
        return 200, found | (
            {"usage": {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}} if self.usage else {}
        )

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Names an endpoint `mine` in judges.toml."""

    def write(endpoint, **more):
        settings = {"base_url": endpoint.url, "model": "given-model", "key_env": "MINE_KEY"} | more
        lines = "\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items())
        (tmp_path / "judges.toml").write_text(f"[mine]\n{lines}\n")
        monkeypatch.setenv("WORKBENCH_JUDGES", str(tmp_path / "judges.toml"))
        monkeypatch.setenv("WORKBENCH_CAPABILITIES", str(tmp_path / "found.json"))
        monkeypatch.setenv("MINE_KEY", KEY)

    return write


@pytest.mark.parametrize(
    ("rules", "refused", "seed", "formats"),
    [
        ((), (), True, ("json_schema", "json_object")),
        ((fixed_temperature,), ("temperature",), True, ("json_schema", "json_object")),
        ((renamed_cap,), ("max_tokens",), True, ("json_schema", "json_object")),
        ((renamed_cap, fixed_temperature), ("max_tokens", "temperature"), True, ("json_schema", "json_object")),
        ((no_seed,), ("seed",), False, ("json_schema", "json_object")),
        ((schema_only,), ("response_format",), True, ("json_schema",)),
        ((object_only,), (), True, ("json_object",)),
        ((schema_only, object_only), ("response_format",), True, ()),
        ((no_system,), ("system",), True, ("json_schema", "json_object")),
        ((cryptic_temperature,), ("temperature",), True, ("json_schema", "json_object")),
        ((no_seed, no_system, object_only), ("seed", "system"), False, ("json_object",)),
    ],
)
def test_what_is_refused_is_found_in_few_calls(named, rules, refused, seed, formats):
    with Endpoint(*rules) as endpoint:
        named(endpoint)
        found = check_judge("mine")

    assert (found.refused, found.seed, found.formats) == (refused, seed, formats)
    assert found.calls == len(endpoint.seen) <= 12


def test_what_was_found_is_used_from_then_on(named):
    with Endpoint(fixed_temperature, renamed_cap, no_seed, schema_only) as endpoint:
        named(endpoint, seed=3)
        check_judge("mine")
        before = len(endpoint.seen)
        made = judge("mine")
        from workbench.judges.base import Request
        from workbench.prompts import render
        from workbench.runner import sync
        from workbench.schema import View

        async def once():
            reply = await made.answer(Request(render(View(text="x"), "L1"), "L1"))
            await made.aclose()
            return reply

        reply = sync(once())

    assert len(endpoint.seen) == before + 1
    assert set(endpoint.seen[-1]) == {"model", "messages", "max_completion_tokens"}
    assert reply.dropped == ("max_tokens", "response_format", "seed", "temperature")


def test_an_endpoint_that_takes_a_schema_and_ignores_it_is_told_apart(named):
    free = verdict("low", 0.9).replace('"evidence"', '"remark"')
    with Endpoint(answer=lambda b: (free, "stop", 40)) as endpoint:
        named(endpoint)
        assert check_judge("mine").schema_kept is False

    def obeys(body):
        if body.get("response_format", {}).get("type") != "json_schema":
            return GOOD, "stop", 40
        return json.dumps(dict.fromkeys(body["response_format"]["json_schema"]["schema"]["required"])), "stop", 40

    with Endpoint(answer=obeys) as endpoint:
        named(endpoint)
        assert check_judge("mine").schema_kept is True


def test_reasoning_that_uses_up_the_cap_is_measured(named):
    # litellm-docs #559: content '' with finish_reason length, and all tokens gone in hidden reasoning.
    def thinks(body):
        return ("", "length", body["max_tokens"]) if body["max_tokens"] < 900 else (GOOD, "stop", 812)

    with Endpoint(answer=thinks) as endpoint:
        named(endpoint)
        found = check_judge("mine")

    assert found.cap_needed == 812
    assert "an answer took 812: set max_tokens higher" in str(found)
    assert found.answer == "low, confidence 0.9"
    assert found.formats == ("json_schema", "json_object")


def test_model_fingerprint_usage_and_price_are_reported(named):
    with Endpoint(model="given-model-2026-01", usage=False) as endpoint:
        named(endpoint)
        found = check_judge("mine")
    text = str(found)

    assert (found.model_returned, found.fingerprint, found.usage_returned, found.price) == (
        "given-model-2026-01",
        "fp_1",
        False,
        None,
    )
    assert "answers as given-model-2026-01" in text
    assert "tokens are estimated, and marked so" in text
    assert "unknown: give it one in judges.toml" in text


def test_an_unreadable_answer_is_reported_with_its_reason(named):
    with Endpoint(answer=lambda b: ("I would say it is low.", "stop", 9)) as endpoint:
        named(endpoint)
        assert check_judge("mine").answer.startswith("not readable: parse_error")


@pytest.mark.parametrize(("status", "word"), [(401, "HTTP 401"), (404, "HTTP 404"), (429, "rate_limited"), (503, "HTTP 503")])
def test_an_endpoint_that_does_not_answer_is_a_settings_error_and_records_nothing(named, capsys, status, word):
    with Endpoint(lambda b: (status, openai_error(f"no, {KEY}"))) as endpoint:
        named(endpoint)
        code = main(["judges", "check", "mine"])
        said = capsys.readouterr()

    assert code == 2
    assert word in said.err
    assert "the key in MINE_KEY" in said.err
    assert KEY not in said.err + said.out
    assert recorded() == {}
    assert len(endpoint.seen) == 1


def test_a_busy_moment_is_not_taken_for_a_refusal(named):
    with Endpoint(lambda b: (429, openai_error("Rate limit reached")) if "seed" in b else None) as endpoint:
        named(endpoint)
        with pytest.raises(JudgeSetupError, match=r"rate_limited.*try again later"):
            check_judge("mine")

    assert recorded() == {}


def test_refusing_everything_ends_after_a_handful_of_calls(named):
    with Endpoint(lambda b: (400, {"error": "Bad Request"})) as endpoint:
        named(endpoint)
        with pytest.raises(JudgeSetupError, match="HTTP 400"):
            check_judge("mine")

    assert len(endpoint.seen) == 5


def test_the_command_prints_a_table_and_keeps_no_key(named, tmp_path, capsys):
    with Endpoint(no_seed) as endpoint:
        named(endpoint)
        assert main(["judges", "check", "mine"]) == 0

    out = capsys.readouterr().out
    assert "seed             refused: left out" in out
    assert KEY not in out + (tmp_path / "found.json").read_text()
    assert list(recorded()) == [f"{endpoint.url} given-model"]


def test_a_judge_without_an_endpoint_has_nothing_to_check():
    with pytest.raises(JudgeSetupError, match="nothing to check"):
        check_judge("cue")


def test_a_damaged_record_is_as_good_as_none(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CAPABILITIES", str(tmp_path / "found.json"))
    for text in ("", "[1]", "{", '{"http://x m": {}}'):
        (tmp_path / "found.json").write_text(text)
        assert check.refusals("http://x", "m") == set()
