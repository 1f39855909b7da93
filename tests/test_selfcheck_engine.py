"""The loop: budgets, deadline, best attempt, judge faults, feedback that stays bounded, and no shared state."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.cases.selfcheck import Script, check, facts, play, task_of
from tests.faketime import run_fake
from workbench.errors import JudgeError, SetupError
from workbench.judges.base import Reply, Usage
from workbench.selfcheck import retry
from workbench.selfcheck.checks import TYPES, Issue, Task, texts
from workbench.selfcheck.diagnose import Diagnosis
from workbench.selfcheck.engine import Engine, Limits, Result, from_judge
from workbench.selfcheck.retry import LADDER, MAX_FEEDBACK, Step, next_step

ROWS = {r["id"]: r for r in map(json.loads, (Path(__file__).parent / "data" / "selfcheck.jsonl").read_text("utf-8").splitlines())}
TEXT = {"question": "这款相机续航多久？", "context": "[2] 连续拍摄约 4 小时。", "expect": "text", "language": "zh"}
PASS = {"raw": '{"score": 9, "passed": true}'}
FAIL = {"raw": '{"score": 4, "passed": false, "error_types": ["hallucination"], "fix_hint": "删去 6 小时"}'}
GOOD, BAD = {"answer": "续航约 4 小时。"}, {"answer": "续航约 6 小时。"}


def row(attempts: list[Any], judge: list[Any], *, task: Any = None, **budget: Any) -> dict[str, Any]:
    return {"task": TEXT | (task or {}), "attempts": attempts, "judge": judge, "budget": budget}


def loop_clock() -> float:
    return asyncio.get_running_loop().time()


def run(given_row: dict[str, Any], **settings_: Any) -> tuple[Result, Script, Script]:
    engine, generate, judge = play(given_row)
    for name, value in settings_.items():
        setattr(engine, name, value)
    return run_fake(engine.run(task_of(given_row))), generate, judge


@pytest.mark.parametrize("name", ROWS)
def test_case_file(name: str) -> None:
    assert check(ROWS[name]) is None


def test_the_last_hint_alone_travels_and_the_third_attempt_changes_the_structure() -> None:
    judge = [{"raw": FAIL["raw"].replace("6", str(n))} for n in (6, 5)] + [PASS]
    result, generate, _ = run(row([BAD, BAD, GOOD], judge))
    first, second, third = ["\n".join(m["content"] for m in messages) for messages, _, _ in generate.asked]
    assert [t for _, t, _ in generate.asked] == list(LADDER)
    assert "删去 6 小时" in second and "删去 6 小时" not in third and "删去 5 小时" in third
    restructure = texts()["loop"]["zh"]["restructure"]
    assert restructure in third and restructure not in second and "6 小时。" not in second
    assert second.startswith(first) and result.returned == 2


def test_a_refusal_is_softened_at_zero_and_a_truncation_gets_more_room() -> None:
    result, generate, _ = run(row([{"answer": "抱歉，我无法回答这个问题。"}, {"answer": "抱歉，我无法回答。"}, GOOD], [PASS]))
    assert [t for _, t, _ in generate.asked] == [0.0, 0.0, 0.0] and result.passed
    _, generate, _ = run(row([{"answer": "续航", "finish_reason": "length"}, GOOD], [PASS]))
    assert [room for _, _, room in generate.asked] == [1000, 4000]


def test_each_failure_gets_its_own_repair_only() -> None:
    _, generate, _ = run(ROWS["S081"])
    repair = texts()["repair"]["zh"]
    second, third = (messages[-1]["content"] for messages, _, _ in generate.asked[1:])
    assert repair["incomplete"] in second and repair["format"] not in second
    assert repair["format"] in third and repair["incomplete"] not in third and "line 1 column" in third


def test_the_compilers_line_and_the_parsers_place_are_fed_back_verbatim() -> None:
    _, generate, _ = run(ROWS["S029"])
    assert "line 1: expected ':': def f(a,b)" in generate.asked[1][0][-1]["content"]


@pytest.mark.parametrize("strategy", ["none", "blind", "feedback", "restructure"])
def test_strategies_differ_in_what_they_say(strategy: str) -> None:
    _, generate, _ = run(row([BAD, BAD, GOOD], [FAIL, FAIL, PASS]), strategy=strategy)
    prompts = [messages[-1]["content"] for messages, _, _ in generate.asked]
    assert len(prompts) == (1 if strategy == "none" else 3)
    if strategy == "blind":
        assert prompts[0] == prompts[1] == prompts[2] and {t for _, t, _ in generate.asked} == {0.0}
    elif strategy != "none":
        assert "删去 6 小时" in prompts[1] and (texts()["loop"]["zh"]["restructure"] in prompts[2]) == (strategy == "restructure")


def test_a_failed_call_is_no_answer_and_has_nothing_to_say() -> None:
    result, generate, _ = run(row([{"error": "api_error"}, GOOD], [PASS]))
    assert [a.l1 for a in result.attempts] == ["api_error", None] and result.passed and result.returned == 1
    assert generate.asked[0] == generate.asked[1]
    result, _, _ = run(row([{"error": "timeout"}] * 3, []))
    assert (result.status, result.returned, result.tokens["total"]) == ("failed", None, 0)
    assert result.user_message == texts()["user"]["zh"]["no_attempt"]


def test_foreign_errors_are_one_failed_call_but_wrong_settings_are_raised() -> None:
    async def broken(*_: Any) -> Reply:
        raise KeyError("choices")

    async def unset(*_: Any) -> Reply:
        raise SetupError("no key")

    assert run_fake(Engine(broken, broken, clock=loop_clock).run(Task("q"))).attempts[0].l1 == "api_error"
    with pytest.raises(SetupError):
        run_fake(Engine(unset, unset, clock=loop_clock).run(Task("q")))


@pytest.mark.parametrize(
    ("scores", "returned"), [((4, 7, 5), 1), ((4, 5, 7), 2), ((7, 4, 5), 0), ((5, 5, 4), 0), ((None, 3, None), 1), ((None, None, None), 0)]
)  # fmt: skip
def test_the_best_attempt_is_returned_then_the_earliest(scores: Any, returned: int) -> None:
    answers = [{"answer": "It is four hours." if s is None else f"续航约 {i} 小时。"} for i, s in enumerate(scores)]
    judge = [{"raw": json.dumps({"score": s, "passed": False})} for s in scores if s is not None]
    result, _, _ = run(row(answers, judge))
    assert (result.status, result.returned) == ("failed", returned)


def test_two_judge_faults_leave_no_score_and_no_error_type() -> None:
    result, _, _ = run(row([BAD, GOOD], [FAIL, {"raw": None}, {"raw": "?"}]))
    second = result.attempts[1]
    assert (result.status, second.verdict, second.judge_faults, second.diagnosis.error_types) == ("unverified", None, 2, ())
    assert [r["score"] for r in result.rows()] == [4.0, None] and [a.action for a in result.actions] == [
        "remove_unsupported",
        "rejudge",
    ]


def test_the_first_fault_may_exhaust_the_budget() -> None:
    result, _, judge = run(row([GOOD], [{"raw": "?", "tokens": 500}, PASS], max_total_tokens=600))
    assert (result.status, len(judge.asked), result.passed) == ("budget", 1, False)


@pytest.mark.parametrize(
    ("limits", "status"),
    [({"max_attempts": 0}, "no_attempt"), ({"max_total_tokens": 0}, "budget"), ({"timeout_s": 0}, "timeout")],
)
def test_an_empty_budget_makes_no_call(limits: dict[str, Any], status: str) -> None:
    result, generate, _ = run(row([GOOD], [PASS], **limits))
    assert (result.status, result.returned, len(generate.asked), result.attempts) == (status, None, 0, ())


def test_the_deadline_cuts_the_call_in_flight_and_each_gets_what_is_left() -> None:
    result, generate, _ = run(ROWS["S072"])
    assert result.attempts[1].l1 == "cancelled" and result.attempts[1].allowed_s == pytest.approx(29.0)
    assert result.elapsed_s == pytest.approx(90.0) and len(generate.asked) == 2


def test_a_slow_check_is_awaited_and_in_parallel_it_cancels_the_judge() -> None:
    seen: list[str] = []

    async def lookup(task: Task, answer: str) -> Issue | None:
        await asyncio.sleep(0.5)
        seen.append(answer)
        return Issue("hallucination", "number not in the material", "6 小时") if "6" in answer else None

    for parallel, seconds, asked in ((False, 4.0, 1), (True, 3.5, 2)):
        result, generate, judge = run(row([BAD, GOOD], [PASS] * 2), slow_check=lookup, parallel=parallel)
        assert [a.l1 for a in result.attempts] == ["hallucination", None] and result.passed
        assert (result.elapsed_s, len(judge.asked)) == (pytest.approx(seconds), asked)
        assert result.tokens == {"generation": 200, "judge": 50, "total": 250}  # the judge that was cut is charged nothing
        assert "6 小时" in generate.asked[1][0][-1]["content"]


def test_a_slow_check_stands_under_the_same_deadline() -> None:
    async def hangs(task: Task, answer: str) -> None:
        await asyncio.sleep(1000)

    for parallel in (False, True):
        result, _, _ = run(row([GOOD], [PASS]), slow_check=hangs, parallel=parallel)
        assert result.status == "timeout" and not result.passed and result.elapsed_s == pytest.approx(90)


def test_low_risk_traffic_is_judged_by_sample_and_never_passes_unjudged() -> None:
    statuses = []
    for i in range(200):
        given_row = row([GOOD], [PASS], task={"question": f"续航多久？{i}", "low_risk": True})
        statuses.append(run(given_row, sample=0.2)[0].status)
    assert 0.1 < statuses.count("passed") / 200 < 0.3 and set(statuses) == {"passed", "unverified"}
    assert run(row([GOOD], [PASS]), sample=0.0)[0].passed  # only low-risk tasks are sampled


def test_a_global_quota_is_apart_from_request_budgets() -> None:
    busy = most = 0

    async def generate(*_: Any) -> Reply:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(1)
        busy -= 1
        return Reply("续航约 4 小时。", usage=Usage(0, 100))

    async def judge(*_: Any) -> Reply:
        return Reply(PASS["raw"], usage=Usage(0, 50))

    async def many() -> list[Result]:
        engine = Engine(generate, judge, clock=loop_clock, quota=asyncio.Semaphore(2))
        return await asyncio.gather(*(engine.run(Task(**TEXT)) for _ in range(6)))

    results = run_fake(many())
    assert most == 2 and all(r.passed and r.tokens["total"] == 150 for r in results)


def test_one_engine_serves_two_requests_without_shared_state() -> None:
    async def twice() -> list[Any]:
        async def generate(*_: Any) -> Reply:
            await asyncio.sleep(1)
            return Reply("续航约 4 小时。", usage=Usage(0, 15000))

        async def judge(*_: Any) -> Reply:
            return Reply(PASS["raw"], usage=Usage(0, 100))

        engine = Engine(generate, judge, clock=loop_clock)
        one = await engine.run(Task(**TEXT))
        return [one, *await asyncio.gather(engine.run(Task(**TEXT)), engine.run(Task(**TEXT)))]

    first, *others = (facts(r) for r in run_fake(twice()))
    assert first["tokens"]["total"] == 15100 and all(o == first for o in others)


def test_every_failed_attempt_is_recorded_and_the_user_sees_nothing_internal() -> None:
    kept: list[dict[str, Any]] = []
    result, _, _ = run(row([{"answer": "抱歉，我无法回答。"}, BAD, BAD], [FAIL, FAIL]), record=kept.append)
    assert [k["attempt"] for k in kept] == [0, 1, 2]
    assert {"question", "answer", "score", "error_types", "tokens", "judge_tokens"} <= kept[0].keys()
    assert result.status == "failed" and "hallucination" not in result.user_message and "删去" not in result.user_message
    kept.clear()
    run(row([BAD, GOOD], [FAIL, PASS]), record=kept.append)
    assert [k["attempt"] for k in kept] == [0]


def test_the_camera_example_passes_on_the_reference_only() -> None:
    camera = {
        "question": "这款相机续航多久？以 JSON 返回，仅参考资料。",
        "context": "[1] 电池容量 5200mAh。[2] 连续拍摄约 4 小时。",
        "expect": "json",
        "schema_keys": ["answer", "sources"],
        "language": "zh",
    }
    answers = [
        {"answer": "约 4 小时"},
        {"answer": '{"answer": "约 6 小时", "sources": [2]}'},
        {"answer": '{"answer": "约 4 小时", "sources": [2]}'},
    ]
    result, generate, _ = run({"task": camera, "attempts": answers, "judge": [FAIL, PASS]})
    assert (result.status, result.returned) == ("passed", 2) and json.loads(result.best.answer)["answer"] == "约 4 小时"
    assert "JSON" in generate.asked[0][0][-1]["content"] and "answer, sources" in generate.asked[0][0][-1]["content"]


def test_an_absent_context_is_shown_as_none_and_every_rule_reaches_the_prompt() -> None:
    task = Task("q", language="en", min_chars=3, max_chars=90, bullets=2, banned=("best",), require_citation=True)
    content = retry.messages(task, Step())[-1]["content"]
    for part in ("(none)", "English", "At least 3", "At most 90", "Exactly 2", "best", "[number]"):
        assert part in content


def test_a_configured_judge_serves_as_either_call() -> None:
    class Warm:
        name, temperature = "warm", 0.0

        async def answer(self, request: Any) -> Reply:
            return Reply(f"{self.temperature} {request.max_tokens} {request.prompt.messages[0]['content']}")

    judge = Warm()
    got = asyncio.run(from_judge(judge)(({"role": "user", "content": "hi"},), 0.7, 50))  # type: ignore[arg-type]
    assert got.text == "0.7 50 hi" and judge.temperature == 0.0


# The policy


@given(
    kinds=st.lists(st.sampled_from(TYPES), unique=True), hint=st.text(), detail=st.text(), attempt=st.integers(1, 9), lang=st.sampled_from(["zh", "en"]),
    strategy=st.sampled_from(["feedback", "restructure"]), truncated=st.booleans(),
)  # fmt: skip
def test_a_prompt_grows_by_a_bound_whatever_was_wrong(
    kinds: Any, hint: str, detail: str, attempt: int, lang: str, strategy: Any, truncated: bool
) -> None:
    task = Task("q", language=lang)
    action = "truncated" if truncated else kinds[0] if kinds else "generic"
    step = next_step(task, Diagnosis(tuple(kinds), ("x",), hint * 50, action, detail * 50), attempt, strategy=strategy)
    plain, grown = (sum(len(m["content"]) for m in retry.messages(task, s)) for s in (Step(), step))
    assert plain < grown <= plain + MAX_FEEDBACK
    assert step.inject and step.action in texts()["action"].values() and texts()["repair"][lang][action] in step.feedback
    assert step.temperature == (0.0 if "refusal" in kinds else LADDER[min(attempt, 2)])
    if strategy == "restructure" and attempt >= 2:
        assert texts()["loop"][lang]["restructure"] in step.feedback


def test_a_hint_is_quoted_capped_and_cannot_close_its_quotes() -> None:
    feedback = next_step(
        Task("q", language="en"), Diagnosis(("format",), (), 'do "this"\nand “that”\u200b' * 20, "format"), 1
    ).feedback
    (line,) = [part for part in feedback.split("\n") if part.startswith("Suggested fix")]
    assert line.count('"') == 2 and len(line) < 130 and "\u200b" not in line


def test_the_parse_retry_of_judges_says_the_parsers_words() -> None:
    for lang in ("zh", "en", "mixed"):
        text = retry.parse_feedback("line 3 column 5: Expecting ',' delimiter\n" * 20, lang)
        assert "line 3 column 5: Expecting ',' delimiter" in text and "JSON" in text and "\n" not in text and len(text) < 400


# The state machine: any script of answers, judge replies, delays and errors

LATENCY = st.sampled_from([0.0, 0.5, 1.0, 20.0, 45.0, 100.0])
ANSWER = st.fixed_dictionaries({
    "answer": st.sampled_from(["续航约 4 小时。", "续航约 6 小时。", "", "抱歉，我无法回答。", "It lasts four hours.", None]), "latency_s": LATENCY,
    "tokens": st.integers(0, 12_000), "finish_reason": st.sampled_from(["stop", "stop", "length", None]), "error": st.sampled_from([None, None, None, "api_error", "timeout"]),
})  # fmt: skip
VERDICT = st.fixed_dictionaries({
    "raw": st.one_of(
        st.sampled_from([None, "?", '{"score": 9}', PASS["raw"], FAIL["raw"]]),
        st.builds(lambda s, p, t: json.dumps({"score": s, "passed": p, "error_types": t}), st.integers(0, 10), st.booleans(), st.lists(st.sampled_from([*TYPES, "tone"]), max_size=2)),
    ),
    "latency_s": LATENCY, "tokens": st.integers(0, 6_000), "error": st.sampled_from([None, None, None, "rate_limited"]),
})  # fmt: skip


class Scripts(RuleBasedStateMachine):
    """Write a script step by step, play it at any point, and hold every promise against what was asked and answered."""

    @initialize(
        attempts=st.integers(0, 4),
        tokens=st.sampled_from([1, 500, 5_000, 20_000]),
        seconds=st.sampled_from([0.25, 10.0, 90.0]),
        strategy=st.sampled_from(["none", "blind", "feedback", "restructure"]),
    )
    def start(self, attempts: int, tokens: int, seconds: float, strategy: str) -> None:
        self.answers: list[dict[str, Any]] = []
        self.verdicts: list[dict[str, Any]] = []
        self.limits, self.strategy = Limits(attempts, tokens, seconds), strategy

    @rule(answer=ANSWER)
    def add_answer(self, answer: dict[str, Any]) -> None:
        self.answers.append(answer)

    @rule(verdict=VERDICT)
    def add_verdict(self, verdict: dict[str, Any]) -> None:
        self.verdicts.append(verdict)

    @rule(more=st.integers(-1, 1))
    def change_budget(self, more: int) -> None:
        self.limits = replace(self.limits, max_attempts=max(0, self.limits.max_attempts + more))

    def _calls(self) -> tuple[Script, Script]:
        pad = self.limits.max_attempts + 1
        return Script(self.answers + [{"answer": "续航约 5 小时。"}] * pad, "answer", 100), Script(
            self.verdicts + [FAIL] * 2 * pad, "raw", 50
        )

    def _engine(self, generate: Any, judge: Any) -> Engine:
        return Engine(generate, judge, limits=self.limits, strategy=self.strategy, clock=loop_clock)  # type: ignore[arg-type]

    @precondition(lambda self: self.answers)
    @rule()
    def play(self) -> None:
        generate, judge = self._calls()
        result = run_fake(self._engine(generate, judge).run(Task(**TEXT)))
        self._hold(result, generate, judge)
        self._alone_or_together(facts(result))

    def _hold(self, result: Result, generate: Script, judge: Script) -> None:
        limits, attempts, total = self.limits, result.attempts, result.tokens["total"]
        last = max([a.tokens for a in attempts] + [v.get("tokens", 50) for v in judge.items[: len(judge.asked)]], default=0)
        assert total <= limits.max_total_tokens + last  # never beyond the call in flight
        assert result.elapsed_s <= limits.timeout_s + 1e-9
        assert len(generate.asked) == len(attempts) <= max(0, limits.max_attempts) and all(t == 0 for _, t, _ in judge.asked)
        assert sum(a.judge_calls for a in attempts) == len(judge.asked)
        if result.returned is not None:
            assert all(result.best.rank >= a.rank for a in attempts if a.answer is not None)
            assert result.best.rank == max(a.rank for a in attempts)
        assert result.passed == (result.status == "passed") == any(a.passed for a in attempts)
        for a in attempts:
            if a.passed:
                assert (
                    a.l1 is None
                    and a.verdict.says_passed
                    and a.verdict.score >= 8
                    and not set(a.diagnosis.error_types) & {"hallucination", "format", "refusal"}
                )
            assert a.verdict is None or a.l1 is None
        lengths = [sum(len(m["content"]) for m in messages) for messages, _, _ in generate.asked]
        assert all(n <= lengths[0] + MAX_FEEDBACK for n in lengths)
        assert {"no_attempt": limits.max_attempts < 1, "unverified": any(a.judge_faults == 2 for a in attempts)}.get(
            result.status, True
        )

    def _alone_or_together(self, alone: dict[str, Any]) -> None:
        """Two at once on one engine, each with its own script: both come to what one comes to alone."""
        scripts: dict[Any, tuple[Script, Script]] = {}

        async def generate(*call: Any) -> Reply:
            return await scripts[asyncio.current_task()][0](*call)

        async def judge(*call: Any) -> Reply:
            return await scripts[asyncio.current_task()][1](*call)

        async def both() -> list[Result]:
            engine = self._engine(generate, judge)

            async def one() -> Result:
                scripts[asyncio.current_task()] = self._calls()
                return await engine.run(Task(**TEXT))

            return await asyncio.gather(one(), one())

        assert [facts(r) for r in run_fake(both())] == [alone, alone]


TestScripts = Scripts.TestCase
TestScripts.settings = settings(max_examples=150, stateful_step_count=10, deadline=None)


def test_a_cancelled_request_leaves_nothing_running() -> None:
    async def cancelled() -> int:
        async def never(*_: Any) -> Reply:
            await asyncio.sleep(10**6)
            raise JudgeError("timeout")

        running = asyncio.ensure_future(Engine(never, never, clock=loop_clock).run(Task("q")))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return len(asyncio.all_tasks())

    assert run_fake(cancelled()) == 1
