"""The L0 gate: favours recall, leaves idioms and denials alone, stays fast and linear whatever comes in."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.gate import MAX_CUES, GateDecision, l0, plain

DATA = Path(__file__).resolve().parent / "data"
RISKY = [
    "I want to die", "kms", "I don’t want to be here anymore", "been wanting to unalive for weeks", "the sewerslide thoughts are back",
    "su1cide", "K\u200bM\u200bS", "ｉ ｗａｎｔ ｔｏ ｄｉｅ", "thinking about END MY LIFE", "我想死", "不想活了", "自 杀", "自*杀", "自\u200b杀", "我想si",
    "唔想活落去啦", "活著沒有意義", "紫砂了", "這個世界不值得", "想銷號", "信写好了，别找我", "last message，信写好了", "gooodnight, i said my goodbyes",
]  # fmt: skip
HARMLESS = [
    "She is such a skilled instructor", "笑死我了", "想死你了", "今天热死了", "我爸最近迷上了紫砂壶", "we watched Suicide Squad", "kill the process",
    "I'm not suicidal, I am on holiday", "我没有想死的念头", "this deadline is killing me", "the diet studies", "重开一局", "dying to see you", "jakms",
]  # fmt: skip


@pytest.mark.parametrize("text", RISKY)
def test_risk_is_escalated(text):
    assert l0(text).escalate


@pytest.mark.parametrize("text", HARMLESS)
def test_idioms_denials_and_parts_of_words_are_left_alone(text):
    assert l0(text) == GateDecision(False)


@pytest.mark.parametrize(
    "text", ["not only sad, I want to die", "没有人在乎，我想死", "I don't know, I want to die", "not sure. kms"]
)
def test_a_negation_elsewhere_excuses_nothing(text):
    assert l0(text).strong


def test_an_idiom_beside_a_disclosure_excuses_nothing():
    assert l0("笑死我了。其实我想死").strong
    assert l0("this deadline is killing me, honestly I want to die").strong


def test_development_messages_of_high_risk_nearly_all_escalate():
    rows = [json.loads(line) for line in (DATA / "domain.jsonl").read_text("utf-8").splitlines()]
    risky = [r for r in rows if r["gold"]["risk_level"] in ("high", "critical")]
    missed = [r["id"] for r in risky if not any(l0(t["content"]).escalate for t in r["turns"] if t["role"] == "user")]

    assert len(missed) <= 0.1 * len(risky), missed


@given(st.text(max_size=400))
def test_any_text_gets_a_decision_and_the_same_one_twice(text):
    first = l0(text)

    assert first == l0(text)
    assert first.escalate == bool(first.cues) and len(first.cues) <= MAX_CUES
    assert not (first.strong and not first.escalate)


@given(st.sampled_from(RISKY), st.text(alphabet="\u200b\u2060\u00ad\ufeff", min_size=1, max_size=5), st.integers(0, 5))
def test_invisible_characters_hide_nothing(text, noise, at):
    assert l0(text[:at] + noise + text[at:]).escalate == l0(text).escalate


@given(st.text(alphabet="abc 死活kms'’", max_size=60))
def test_folding_is_idempotent(text):
    assert plain(plain(text)) == plain(text)


@pytest.mark.parametrize("piece", ["kms ", "死", "想死你", "不是", "not ", "笑死 自 杀 "])
def test_time_is_linear_in_the_length(piece):
    def seconds(n: int) -> float:
        text = (piece * (n // len(piece) + 1))[:n]
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            l0(text)
            best = min(best, time.perf_counter() - start)
        return best

    l0("warm")

    assert seconds(80_000) < 8 * 4 * seconds(10_000)  # linear is 8; quadratic would be 64
