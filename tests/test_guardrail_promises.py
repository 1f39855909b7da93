"""Promises: found through any disguise, excused only by a negation before them, a question or a named other speaker."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

import opencc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.folding import fold
from workbench.guardrail import check_promises


@cache
def convert(variant: str):
    """Simplified to traditional, by an independent library."""
    return opencc.OpenCC(variant).convert


LISTED = ("保证赔偿", "一定赔偿", "一定赔付", "必须全额退款", "我们承诺")


@pytest.mark.parametrize("phrase", LISTED)
@pytest.mark.parametrize(
    "disguise", ["{}", "平台{}您的损失。", "“{}”", "即使审核不通过也{}", "不但{}，还送券", "没问题，{}", "尊敬的用户：{}！"]
)
def test_each_listed_phrase_is_found_in_any_sentence(phrase, disguise):
    assert check_promises(disguise.format(phrase)).forbidden


SEPARATORS = [
    " ",
    "\u3000",
    "-",
    "/",
    ".",
    "·",
    "_",
    "*",
    "\u200b",
    "\u00ad",
    "~",
    "❤",
    "|",
    "、",
    "\n",
    "—",
    "+",
    "＊",
    "、 ",
    "，",
]


@pytest.mark.parametrize("phrase", LISTED)
@pytest.mark.parametrize("separator", SEPARATORS)
def test_separators_do_not_hide_a_phrase(phrase, separator):
    assert check_promises(separator.join(phrase)).forbidden


@pytest.mark.parametrize("phrase", LISTED)
def test_markup_escapes_and_entities_do_not_hide_a_phrase(phrase):
    for text in (
        f"{phrase[:2]}<b>{phrase[2:]}</b>",
        f"**{phrase[:2]}**{phrase[2:]}",
        "".join(f"\\u{ord(c):04x}" for c in phrase),
        "".join(f"&#{ord(c)};" for c in phrase),
        f"`{phrase[0]}`{phrase[1:]}",
    ):
        assert check_promises(text).forbidden, text


@pytest.mark.parametrize("phrase", LISTED)
@pytest.mark.parametrize("variant", ["s2t", "s2tw", "s2hk"])
def test_traditional_characters_do_not_hide_a_phrase(phrase, variant):
    assert check_promises(convert(variant)(phrase)).forbidden


@pytest.mark.parametrize("name", ["amounts", "promises", "explanations"])
def test_every_word_of_the_lists_is_read_in_traditional_characters_too(name):
    # OpenCC, Apache-2.0, is the independent source of the traditional forms
    text = resources.files("workbench.resources").joinpath(f"{name}.toml").read_text("utf-8")
    han = "".join(sorted(set(re.findall(r"[\u4e00-\u9fff]", text))))

    for variant in ("s2t", "s2tw", "s2hk"):
        # 著 is also simplified, as in 显著, so it is not read as 着
        missed = [c for c in han if c != "着" and fold(convert(variant)(c)).text != fold(c).text]
        assert missed == [], variant


@pytest.mark.parametrize(
    "text",
    [
        "一定会为您赔付", "保证会给您赔偿", "肯定会退款", "绝对赔", "必赔", "包退", "包赔到底", "百分百赔付", "确保赔付到账", "承诺赔付", "无条件退款", "一定能够获得赔偿", "保证您能拿到退款", "我们郑重承诺", "平台承诺赔付", "保证到账50元", "一定给您20元",
        "赔偿我们一定到位", "退款肯定没问题", "审核通过后一定赔偿", "如果超时，一定赔偿", "客服：保证赔偿", "保证：赔偿50元", "用户要求退款，我们承诺赔付", "我们会『保证赔偿』", "我向您保证会赔偿", "必须赔偿", "答应退款", "100%退款",
        "平台不会不赔，保证赔偿。", "不是不保证赔偿", "不能不保证赔偿", "不得不保证赔偿", "不管怎样一定赔偿", "毫无疑问保证赔偿", "不能拖延，一定赔偿",
        "You will definitely get a full refund", "We promise a full refund", "guaranteed refund", "We promise to handle it today", "compensation is guaranteed", "Your money back, guaranteed", "We will refund you for sure",
        "I assure you that you will be compensated", "there is no doubt we guarantee a refund", "We not only guarantee a refund but apologize", "No problem, we guarantee a refund", "The merchant must refund you", "We G-U-A-R-A-N-T-E-E compensation",
        "We can't but guarantee a refund", "it's not slow, we guarantee a refund", "WE GUARANTEE A REFUND", "We commit to pay you back", "you are guaranteed to receive your money back", "We guarantee you ¥20", "Ｗｅ ｇｕａｒａｎｔｅｅ ａ ｒｅｆｕｎｄ",
    ],
)  # fmt: skip
def test_promises(text):
    assert check_promises(text).forbidden


@pytest.mark.parametrize(
    "text",
    [
        "目前无法保证赔偿", "我们不能保证一定赔偿", "不一定赔偿", "我们不承诺到账时间", "并非一定赔付", "谁也不能保证赔偿", "从未承诺赔付", "不代表一定赔偿", "不意味着保证赔偿", "未必赔偿", "不必赔偿", "何必赔", "禁止承诺赔付", "没有承诺赔偿",
        "我们并没有保证赔偿", "请勿使用“保证赔偿”等字样", "暂不保证赔偿", "难以保证赔付", "系统不会保证赔偿", "无人保证赔付",
        "We can not guarantee compensation before the review.", "We cannot promise a refund", "We can't guarantee a refund", "We can’t guarantee a refund", "No refund is guaranteed", "Your refund is not guaranteed", "we never promised a refund",
        "There is no guarantee of compensation", "It does not mean that we guarantee compensation", "must not promise compensation", "nobody can guarantee a refund", "We are unable to promise a refund",
        "是否保证赔偿以审核为准", "一定赔偿吗？", "保证赔偿吗", "whether we guarantee compensation depends on the review", "Do we guarantee a refund?", "用户称必须全额退款", "客户要求保证赔偿", "The customer demanded a guaranteed refund",
        "保证沟通顺畅", "我们会保证核实赔偿申请", "保证按时处理您的退款申请", "按订单金额的100%赔付", "We will certainly review your refund request", "The refund must be reviewed first", "You must submit a refund request", "确保沟通",
        "肯定您的耐心", "保证书", "退款一般3天到账", "您的赔偿申请一定会被认真审核", "已提交审核，请留意通知。", "建议赔付20元", "We will refund ¥20 after the review", "Thank you for your patience", "",
    ],
)  # fmt: skip
def test_no_promises(text):
    assert not check_promises(text).forbidden


@pytest.mark.parametrize(
    "text",
    [
        "务必赔付", "必将赔付", "定会赔付", "我承诺今天处理", "我们的承诺是赔付", "我们现在承诺处理", "We will compensate you, guaranteed.", "Rest assured you'll get your refund", "You have our word that you will be refunded", "We guarantee you'll be refunded", "We'll make sure you are compensated", "compensation is a given", "百分之一百赔", "包准赔", "准保退款", "平台一定全额赔偿", "保证全额退款", "绝对全额退款", "必须给用户全额退款", "必须退款", "我们保证退款", "一定能退款", "一定帮您退款", "承诺退款", "承诺全额赔付", "肯定能赔", "包赔付", "保证 赔 偿", "一 定 赔 偿", "必須全額退款", "我們承諾", "保證會賠", "a guaranteed refund", "100% compensation guaranteed", "We promise you a refund", "refund guaranteed", "We absolutely will refund you", "must be fully refunded",
    ],
)  # fmt: skip
def test_other_wordings_of_a_promise(text):
    assert check_promises(text).forbidden


@pytest.mark.parametrize(
    "text",
    [
        "保证您的赔偿申请得到处理", "make sure your refund request is reviewed", "We guarantee that your refund request will be reviewed", "我们不会轻易承诺", "我们拒绝承诺赔付", "我们难以承诺", "我们从来没有承诺", "一定给您一个满意的答复", "absolutely no refund", "我们无法承诺", "本平台不做赔付承诺", "赔付结果以审核为准", "我们会尽力协助您申请赔偿", "不能承诺一定赔付", "我们并未承诺赔偿", "We make no promises about refunds", "we cannot promise that you will be refunded", "不敢打包票赔偿", "我们绝不承诺", "用户认为平台必须全额退款", "顾客要求“必须全额退款”", "能否保证赔偿，需等待审核", "请不要相信任何“保证赔偿”的说法", "是不是一定赔偿还不确定", "没有人可以保证赔偿", "商家并不保证退款", "未承诺赔付",
    ],
)  # fmt: skip
def test_other_wordings_without_a_promise(text):
    assert not check_promises(text).forbidden


@pytest.mark.parametrize(
    "text",
    [
        "未必一定赔付", "并非一定赔付", "不一定会赔付", "不见得一定赔偿", "不见得会退款", "谈不上保证赔付", "谈不上一定赔付", "称不上保证赔偿", "算不上承诺赔付", "未必保证赔偿", "未必能保证赔付", "并非必须全额退款", "不是一定赔付", "并不一定赔付", "并不是一定赔偿", "不见得必定赔付", "未必肯定退款", "不见得肯定能赔", "不一定必须赔偿", "未必会一定赔付", "We will not necessarily guarantee a refund", "it is not the case that we guarantee a refund", "This is by no means a guaranteed refund", "you will not be paid for sure", "rest assured your request will be reviewed", "rest assured that we have received your complaint", "Rest assured, a person will look at the refund request", "you may be refunded", "You will be refunded after review", "rest assured we will review whether you should be paid", "You can't rest assured you will be paid", "rest assured your claim will be read", "并未一定赔付", "尚未保证赔付", "无从保证赔付", "不打算承诺赔付", "不太可能保证赔付", "说不上保证赔付", "远非保证赔付", "平台未必一定会赔付", "此单并非必须赔偿", "这不一定保证赔付", "不见得就一定退款", "谈不上承诺赔付", "超时未必保证退款", "审核后也未必一定全额退款", "并非所有订单一定赔付", "rest assured your feedback will be paid attention to", "Rest assured that we will pay attention to this", "You will be paid only if approved", "Rest assured, we are looking into it", "are you sure you are paid?", "The fee must be paid first", "We cannot guarantee you will be paid", "Be assured that your request is recorded", "not sure you will be compensated", "There is no promise you will be refunded", "不打算保证赔偿", "不太可能保证退款",
        "未必会保证退款", "这并非承诺赔付", "不见得保证赔付", "谈不上承诺退款", "不一定全额退款", "系统并非一定退款", "rest assured your concerns will be read", "rest assured we take this seriously", "you may or may not be refunded", "rest assured that a person will check the amount paid",
    ],
)  # fmt: skip
def test_a_denial_before_a_promise_and_assured_care_are_no_promise(text):
    assert not check_promises(text).forbidden


@pytest.mark.parametrize(
    "text",
    [
        "不是不一定赔付，是一定赔付", "不得不一定赔付", "不是不保证赔付", "并非不保证赔付", "不得不保证赔偿", "我们不得不承诺赔付", "不见得晚，一定赔付", "未必今天，但一定赔付", "谈不上慢，保证赔付", "不是不赔，一定赔付", "未必不保证赔付", "rest assured you will be paid", "Rest assured you will be refunded", "rest assured you will be compensated", "Rest assured, you will be paid", "rest assured that you'll be paid in full", "please rest assured: you will be reimbursed", "rest assured that your refund is coming", "Rest assured we will pay you", "rest assured, you'll get paid", "rest assured you are going to be compensated", "Be assured you will be paid", "you can rest assured that you will be paid ¥20", "Rest easy, you will be refunded", "we guarantee you will be paid", "We promise you'll be paid", "you will definitely be paid", "not only will you be refunded, we guarantee a refund", "并非不会保证赔付", "不可能不保证赔付", "不能不一定赔付", "平台未必快，但保证赔付", "请放心，一定赔付", "您放心，赔付一定到账", "这不是不一定会赔付", "不是不承诺赔付", "不可能不一定赔付", "Please be assured that you will be compensated", "Rest assured, we'll refund you", "rest assured you'll get paid", "you can rest assured that you will be reimbursed", "Rest assured they will pay you", "REST ASSURED YOU WILL BE PAID", "we assure you you will be paid", "you will certainly be paid", "Rest assured you shall be refunded in full", "rest assured that you will get your money back", "并非夸张，一定赔付", "未必很快，我们承诺赔付", "没有不一定赔付的，保证赔付",
        "不得不承诺退款", "不是不保证退款", "您可放心，一定退款", "Rest assured that you will be fully refunded", "be rest assured you will be paid", "Rest assured you'll be compensated soon", "Rest assured, your money will be returned", "You can be assured you will be paid", "未必今天到，但我们保证退款", "并非拖延，保证赔付",
    ],
)  # fmt: skip
def test_a_double_denial_and_an_assured_payment_are_promises(text):
    assert check_promises(text).forbidden


@pytest.mark.parametrize("phrase", ["保证赔偿", "承诺赔付", "保证一定赔偿"])
@pytest.mark.parametrize("negation", ["不能", "无法", "不会", "并未", "没有", "不敢", "从不", "尚不能", "暂不", "未曾"])
def test_a_negation_counts_in_its_own_clause_only(negation, phrase):
    assert not check_promises(f"我们{negation}{phrase}。").forbidden
    assert check_promises(f"我们{negation}拖延，{phrase}。").forbidden
    assert check_promises(f"{negation}担心！{phrase}。").forbidden


def test_quotation_marks_alone_exempt_nothing_but_a_named_speaker_does():
    assert check_promises("我们会“保证赔偿”。").forbidden
    assert not check_promises("用户称“必须全额退款”，已记录。").forbidden


def test_a_hit_points_at_the_raw_text():
    text = "抱歉，<b>保-证</b>赔\u200b偿。"
    (hit,) = check_promises(text).hits

    assert text[hit.start : hit.end] == hit.text == "保-证</b>赔\u200b偿"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises(text):
    check_promises(text)
    check_promises(text, about="care")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["保证赔偿", "我们承诺", "We guarantee a refund"]), st.text(alphabet="好的，。 abc不\n", max_size=20))
def test_a_further_sentence_never_excuses_a_promise(promise, more):
    assert check_promises(f"{promise}。{more}").forbidden


@pytest.mark.parametrize(
    "text",
    [
        "You will be fine.", "一定会好的", "一定会好起来的。", "保证没事", "Everything is going to be okay", "they will be safe", "绝对安全", "绝对不会出事", "She is completely safe.", "We guarantee your safety",
        "我们已经通知家属", "系统将自动报警", "We have contacted the guardian.", "The family has been notified today.", "放心，不会有事", "It will definitely get better", "the user will never harm themselves", "没有任何危险",
    ],
)  # fmt: skip
def test_comfort_as_a_certainty_and_action_taken_are_promises_too(text):
    assert check_promises(text, about="care").forbidden


@pytest.mark.parametrize(
    "text",
    [
        "This tool contacts nobody.",
        "本工具不会通知任何人",
        "A person should read this.",
        "需人工复核",
        "不能保证没事",
        "We cannot promise that you will be fine",
        "level low, confidence 0.9",
        "We have not contacted anyone.",
    ],
)
def test_sober_wording_is_no_promise_of_care(text):
    assert not check_promises(text, about="care").forbidden


def test_the_lists_hold_the_wording_that_the_prompt_forbids():
    prompt = tomllib.loads((Path("workbench") / "resources" / "compensation_prompt.toml").read_text("utf-8"))

    assert set(LISTED) == set(prompt["phrases"])
