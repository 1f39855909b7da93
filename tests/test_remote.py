"""A remote judge asks any OpenAI-compatible endpoint, learns what it refuses, and keeps its key to itself."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from tests.misbehaving import ANSWERS, FAULTS, HARMLESS, Server
from workbench.budget import Price
from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Request
from workbench.judges.registry import judge, judge_from, listing, remote
from workbench.judges.remote import RemoteJudge, _retry_after, _seconds
from workbench.prompts import render
from workbench.schema import View

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def request(text="I am fine", **fields):
    return Request(render(View(text=text), "L1"), "L1", **fields)


def ask(judge, *requests):
    async def go():
        return [await judge.answer(r) for r in requests or (request(),)]

    return asyncio.run(go())


def remote_judge(server, fault="good", **settings):
    patience = 0.4 if fault in ("hang", "slow-first-byte", "slow-body") else 5.0
    return RemoteJudge("mock", server.url(fault), "mock-judge", **({"timeout_s": patience} | settings))


@pytest.mark.parametrize("fault", sorted(HARMLESS))
def test_an_odd_answer_is_an_answer(server, fault):
    (reply,) = ask(remote_judge(server, fault))

    assert json.loads(reply.text)["risk_level"] == "critical"
    assert reply.usage.estimated == (fault in ("no-usage", "odd-usage"))
    assert reply.usage.prompt_tokens > 0
    assert reply.model == ("another-model" if fault == "wrong-model" else "mock-judge")
    assert "low" not in reply.text


@pytest.mark.parametrize(
    "fault",
    sorted(f for f in FAULTS if FAULTS[f] in ("rate_limited", "api_error", "timeout", "content_filter") and f != "filtered"),
)
def test_a_fault_is_a_typed_error_without_the_servers_words(server, fault):
    with pytest.raises(JudgeError) as caught:
        ask(remote_judge(server, fault))

    assert caught.value.reason == FAULTS[fault]
    body = json.dumps(ANSWERS[fault][4], default=str) if fault in ANSWERS else ""
    assert "sk-leaked" not in str(caught.value)
    assert not any(len(word) > 40 and word in str(caught.value) for word in body.split('"'))
    assert caught.value.__cause__ is None or fault == "hang"


def test_what_will_not_help_is_not_retryable(server):
    def retryable(fault):
        with pytest.raises(JudgeError) as caught:
            ask(remote_judge(server, fault))
        return caught.value.retryable

    assert [retryable(f) for f in ("429", "500", "503", "reset", "closed")] == [True] * 5
    assert [retryable(f) for f in ("429-quota", "429-zhipu-unpaid", "401", "402", "filter-400", "redirect")] == [False] * 6


@pytest.mark.parametrize("name", ["max_tokens", "temperature", "response_format", "seed", "system"])
def test_a_refused_parameter_is_learnt_once(server, name):
    j = remote_judge(server, f"no-{name}", seed=7)
    before = server.calls(f"no-{name}")

    replies = ask(j, request("one"), request("two"), request("three"))

    assert server.calls(f"no-{name}") - before == 4  # one refusal, then never again
    assert all(r.dropped == (name,) for r in replies)
    assert j.refused == {name}
    last = json.loads(next(b for f, b in reversed(server.asked) if f == f"no-{name}"))
    assert name not in last
    assert ("max_completion_tokens" in last) == (name == "max_tokens")
    assert last["messages"][0]["role"] == ("user" if name == "system" else "system")
    assert "three" in last["messages"][-1]["content"]
    assert "JSON" in last["messages"][0]["content"]


def test_a_call_keeps_its_identity_when_a_parameter_is_learnt(server):
    j = remote_judge(server, "no-temperature")
    before = j.identity(request())
    ask(j)

    assert j.identity(request()) == before
    assert j.identity(request(max_tokens=2400)) != before


def test_calls_at_the_same_time_learn_without_a_loop(server):
    j = remote_judge(server, "no-response_format")

    async def go():
        return await asyncio.gather(*[j.answer(request(f"text {i}")) for i in range(20)])

    assert len(asyncio.run(go())) == 20
    assert server.calls("no-response_format") <= 44  # those of the test above, and at most two per call


def test_a_context_overflow_is_no_refused_parameter(server):
    j = remote_judge(server)
    words = "'max_tokens' or 'max_completion_tokens' is too large: 600. This model's maximum context length is 512 tokens"

    class Error:
        status_code, body = 400, {"error": {"message": words}}

    assert j._learn(Error(), frozenset()) is False  # vLLM's words
    assert j.refused == set()


def test_the_key_comes_from_the_environment_and_stays_there(server, monkeypatch, caplog):
    monkeypatch.setenv("MOCK_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    j = remote_judge(server, key_env="MOCK_API_KEY")
    ask(j)
    with pytest.raises(JudgeError) as caught:
        ask(remote_judge(server, "401", key_env="MOCK_API_KEY"))

    assert f"Bearer {KEY}" in server.keys
    shown = repr(j) + str(j.describe()) + str(j.identity(request())) + str(vars(j)) + repr(caught.value) + caplog.text
    assert KEY not in shown
    assert "sk-" not in str(caught.value)


def test_a_missing_key_names_its_variable(tmp_path, monkeypatch):
    (tmp_path / "judges.toml").write_text('[mock]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\nkey_env = "MOCK_API_KEY"\n')
    monkeypatch.setenv("WORKBENCH_JUDGES", str(tmp_path / "judges.toml"))

    with pytest.raises(JudgeSetupError, match="set the environment variable MOCK_API_KEY"):
        judge("mock")
    assert listing().query("judge == 'mock'")["key"].item() == "missing"
    monkeypatch.setenv("MOCK_API_KEY", KEY)
    assert judge("mock").name == "mock"
    assert KEY not in listing().to_string()


@pytest.mark.parametrize("value", ["sk-…copied-from-a-page", "sk-1 sk-2", "sk-1\nHost: elsewhere"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(server, monkeypatch, value):
    monkeypatch.setenv("MOCK_API_KEY", value)
    with pytest.raises(JudgeSetupError, match="the value of MOCK_API_KEY cannot be a key") as caught:
        ask(remote_judge(server, key_env="MOCK_API_KEY"))

    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "base_url and model missing"),
        ({"base_url": "ftp://x", "model": "m"}, "http"),
        ({"base_url": "http://user:pw@x/v1", "model": "m"}, "must hold no key"),
        ({"base_url": "http://x/v1?key=abc", "model": "m"}, "must hold no key"),
        ({"base_url": "http://x/v1", "model": "m", "temperature": 0.9}, "0 to 0.7"),
        ({"base_url": "http://x/v1", "model": "m", "api_key": "sk-1"}, "unknown setting 'api_key'"),
        ({"base_url": "http://x/v1", "model": "m", "max_tokens": "600"}, "max_tokens must be int"),
        ({"base_url": "http://x/v1", "model": "m", "price": {"in": 1}}, "price needs input and output"),
    ],
)
def test_a_wrong_table_is_one_clear_sentence(table, says):
    with pytest.raises(JudgeSetupError, match=says):
        remote("mock", table)


def test_an_unknown_judge_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JudgeSetupError, match="built in are cue, ngram, simulated, local"):
        judge("gpt-17")
    (tmp_path / "judges.toml").write_text("not toml [")
    with pytest.raises(JudgeSetupError, match="cannot be read as TOML"):
        judge("gpt-17")
    monkeypatch.setenv("WORKBENCH_JUDGES", "nowhere.toml")
    with pytest.raises(JudgeSetupError, match="not a file"):
        judge("gpt-17")


def test_a_judge_is_rebuilt_from_its_description():
    made = remote("mock", {"base_url": "https://api.openai.com/v1", "model": "gpt-4.1-mini", "extra": {"top_p": 0.5}})
    again = judge_from(json.loads(json.dumps(made.describe())))

    assert again.describe() == made.describe()
    assert again.identity(request()) == made.identity(request())
    assert made.price == Price(0.4, 1.6, 0.1)  # the dated table


def test_the_shipped_example_holds_no_key_and_every_table_works():
    import tomllib
    from importlib import resources

    text = resources.files("workbench.resources").joinpath("judges.example.toml").read_text("utf-8")
    assert tomllib.loads(text) == {}
    body = "\n".join(line.removeprefix("# ") for line in text[text.index("# [gpt-mini]") :].splitlines())
    tables = tomllib.loads(body)

    assert list(tables) == ["gpt-mini", "glm-flash", "deepseek", "ollama", "vllm", "llamacpp"]
    assert all(remote(name, table).price is not None for name, table in tables.items())
    assert "sk-" not in text


def test_header_durations():
    # Values as in https://platform.openai.com/docs/guides/rate-limits (reset-requests 1s, reset-tokens 6m0s)
    assert [_seconds(v) for v in ("1s", "6m0s", "120ms", "1h2m3s", "7", "0.5", "-1")] == [1, 360, 0.12, 3723, 7, 0.5, 0]
    assert [_seconds(v) for v in ("", None, "soon", "1s later")] == [None] * 4
    assert _retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert _retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 30
    assert _retry_after({"retry-after": "whenever"}) is None
    assert _retry_after({}) is None
