"""Amounts: a repeat passes, another amount conflicts, what cannot be compared conflicts, and other numbers are no amounts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import cn2an
import num2words
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.cases.guardrail import check as check_row
from tests.mutations import EVIDENCE
from workbench.folding import fold
from workbench.guardrail import check_amounts, check_promises
from workbench.guardrail.numerals import english_numeral, money, numeral

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "guardrail.jsonl").read_text("utf-8").splitlines()]


def verdict(text: str, amount: object = "20.00", **options: object) -> str:
    """ "none" (no amount named), "repeat" or "conflict"."""
    got = check_amounts(text, amount, **options)
    return "conflict" if got.conflict else "repeat" if got.mentions else "none"


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["id"])
def test_case_file(row):
    assert check_row(row) is None


def test_the_case_checker_fails_a_wrong_expectation():
    row = ROWS[0] | {"expect": {"conflict": True, "forbidden": True}}

    assert "expected" in (check_row(row) or "")


@pytest.mark.parametrize(
    "text",
    [
        "２０元", "20块", "20块钱", "贰拾元整", "人民币20", "最高不超过20元", "**20**元", "赔付20元、3单合并", "本次赔付020元", "￥ 20.00", "CNY20", "赔付20(元)", "金额（元）：20", "至多20元", "no more than ¥20",
        "廿块", "2e1元", "赔付20元人民币", "1. ¥20\n2. 3单", "20 yuan (twenty yuan)", "贰拾元整（¥20.00）", "赔付２０．００圓", "二十塊錢", "2<!-- x -->0元", "20&nbsp;元", "&#165;20", "\\u8d54\\u4ed820\\u5143",
        '"suggested_amount": 20.00}', "赔付“20”元", "COMP-001：¥20", "2026-03-20 20元", "18:30 20元到账", "赔付20元次日到账", "20元一单", "赔付20元年底前到账", "20元2小时内到账", "¥20.-",
        "退款20元月底前到账", "20元代金券", "20元组合券", "二零元", "2️⃣0️⃣元", "共20元。", "𝟚𝟘元", "٢٠元", "赔付20元，分3次", "您将获得 ¥20 的补偿", "RMB20.00元", "20.00（人民币元）", "赔付 20 元 整",
    ],
)  # fmt: skip
def test_a_repeat_in_any_form_passes(text):
    assert verdict(text) == "repeat"


@pytest.mark.parametrize(
    "text",
    [
        "5元", "赔付2万元", "五毛", "20角", "负二十元", "５0元", "五十塊", "up to ¥50", "外加10元券，赔付20元", "20块5", "20元零5分", "二十元五", "两块半钱", "20千元", "¥20w", "2O元", "赔付元", "赔付¥，", "50|元", "赔付五 十元",
        "20+元", "10或20元", "10、20元", "1，020元", "1'020元", "12:50元", "不赔付20元", "并非20元", "not 20 yuan", "rather than ¥20", "20元不予赔付", "20元的两倍", "2张20元券", "20元×2", "至少20元", "20元起", "不低于20元",
        "over ¥20", "less than 20 yuan", "不到20元", "20-odd yuan", "several yuan", "若干元", "近百元", "一百多块", "好几十块", "十七八元", "between 10 and 20 yuan", "10/20元", "20刀，赔付20刀", "赔付50。", "金额：50", "refund of 50.",
        "补5角", "赔付20分", "half a yuan", "one hundred and twenty yuan", "20元有余", "￥1e3", "赔付伍拾圆", "上百块钱", "n元", "赔付null元", "不止20元", "<x 赔付50元>", "<x 赔付50元。>", "赔付5*0元", "5_0元", "suggested_amount：50，20元",
        '"suggested_amount": "20"，赔付20元', "{suggestedAmount: 50}", "'amount': null", '"amount": +20', "赔付20元到50元", "两个20元", "20元两倍", "赔付20元左右？不，50元", "20元以上", "起码20元", "20 dollars", "US$20",
        "\\\\u8d54\\\\u4ed850\\\\u5143", "¥20k", "赔付20.00.00元", "赔付二十几元", "赔付2十5元", "赔一块", "赔付壹万元", "20元/50元", "20多块", "赔付20来元", "¥ ___", "20 million yuan", "赔付$20$元", "20円",
    ],
)  # fmt: skip
def test_another_or_incomparable_amount_conflicts(text):
    assert verdict(text) == "conflict"


@pytest.mark.parametrize(
    "text",
    [
        "2024元旦", "3元素", "20 minutes", "半小时", "百分之五十", "订单号 12345678", "三元里", "一元二次方程", "三块区域", "一万个抱歉", "20 orders", "五星好评", "退款3笔", "一块儿来", "十分之一", "第3单元", "二次元", "公元2026年",
        "5分好评", "评分4.8分", "三角形", "两毛巾", "二元论", "电话12356", "距离20米", "20层", "v20.1.3", "TEST003 S001", "一块披萨", "退款2小时内到账", "补送2份", "我们一块吧", "赔付进度50%", "退一步说", "百年好合", "补3单",
        "具体赔付多少元由审核决定", "服务器有50元件", "20度", "满分100分", "3-5个工作日", "10~20分钟", "餐品20克", "第20次", "二十年", "三十六计", "18:30-19:05", "一百二十条评论", "2.5km", "ID 20", "赔付率2%",
    ],
)  # fmt: skip
def test_other_numbers_are_no_amounts(text):
    assert verdict(text) == "none"


@pytest.mark.parametrize(
    ("structured", "conflict"),
    [
        ('{"suggested_amount": 20.00}', False), ('{"refund_count": 2, "amount": 20}', False), ('{"amount_decided_by": "rule_engine"}', False), ('{"should_compensate": true}', False), ('{"compensation": {"amount": 20}}', False),
        ('{"refund": "已按规则处理"}', False), ('{"order_amount": 73.60, "amount": 20}', False), ('{"amount": 20, "approval_threshold": 10}', False), ('{"suggested_method": "原路退款"}', False), ('{"feedback": 50}', False),
        ('{"suggestedAmount": 50}', True), ('{"data": [{"payout": 50}]}', True), ('{"refund": "50元"}', True), ('{"amount": 20, "amount": 50}', True), ('{"amount": "20"}', True), ('{"amount": {"value": 20}}', True), ('{"amount": -20}', True),
        ('{"suggested\\u005famount": 50}', True), ('{"message": "\\u8d54\\u4ed850\\u5143"}', True), ('{"order_amount": 50}', True), ('{"amount": 20} {"amount": 50}', True), ('{"amount": 20, ', False), ('{"amount": 50, ', True),
        ("[" * 5000 + '{"amount": 50}', True), ('{"amount": 1e400}', True), ('{"a": "{\\"amount\\": 50}"}', True), ("赔付50元", True), ("", False), ('{"AMOUNT": 50}', True), ('{"赔付金额": 50}', True), ('{"amount\u200b": 50}', True),
    ],
)  # fmt: skip
def test_amount_fields(structured, conflict):
    assert check_amounts("", "20.00", structured_json=structured, evidence=EVIDENCE).conflict is conflict


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        ("订单金额73.6元，赔付20元。", False), ("按订单金额73.60元的50%计算后封顶，赔付20元。", False), ("单笔封顶55元，赔付20元。", False), ("未达到10元的审批线。", False), ("20元，超过10元审批线。", False), ("订单实付73.60元。", False),
        ("The ¥73.60 order was late; we decided on ¥20.", False), ("The cap is ¥55 and the approval threshold is 10 yuan.", False), ("Capped at ¥55, the payout is 20 yuan.", False), ("The refund cap of 55 yuan was not reached.", False),
        ("退还订单金额73.60元。", True), ("按上限55元赔付。", True), ("订单金额73.60元全额退还。", True), ("You will receive the order total of ¥73.60.", True), ("We pay the maximum of ¥55.", True), ("审批线55元。", True), ("订单金额55元。", True),
        ("封顶后赔付55元。", True), ("上限73.60元。", True), ("订单金额20元。", True), ("审批线10元，赔付10元。", True), ("封顶55元，可得55元。", True), ("55元。", True), ("审批线10到15元。", True),
    ],
)  # fmt: skip
def test_evidence_is_allowed_where_it_is_named(text, conflict):
    assert check_amounts(text, "20.00", evidence=EVIDENCE).conflict is conflict


def test_evidence_may_hold_one_name_twice():
    pairs = [("cap", "20.00"), ("cap", "50.00")]

    assert not check_amounts("规则封顶20元，护栏上限50元，赔付17.75元。", "17.75", evidence=pairs).conflict
    assert check_amounts("规则封顶30元，赔付17.75元。", "17.75", evidence=pairs).conflict


def test_each_mention_has_its_span_type_value_and_reason():
    text = "订单<b>金额</b>73.60元，赔付５０元，审批线10元"
    order, payout, line = check_amounts(text, "20", evidence=EVIDENCE).mentions

    assert [(m.kind, m.value, m.status) for m in (order, payout, line)] == [
        ("order_value", Decimal("73.60"), "evidence"), ("payout", Decimal(50), "different"), ("approval_line", Decimal(10), "evidence"),
    ]  # fmt: skip
    assert [text[m.start : m.end] for m in (order, payout, line)] == ["73.60元", "５０元", "10元"]
    assert payout.reason == "the decision is 20"


NAMED = {"order_value": "64.00", "cap": "50.00", "approval_line": "10.00"}


@pytest.mark.parametrize(
    "text",
    [
        "赔付金额为20元（人民币）", "20元将原路退回", "一张20元优惠券", "每单最多20元", "合计20元", "赔付20元，不含配送费", "我们理解您不希望只赔付20元", "不再另行赔付，本次赔付20元", "无需审核即可赔付20元", "除20元外不再赔付", "并没有超过20元", "仅赔付20元", "只赔20元", "第2次赔付20元", "2份餐品赔付20元", "5个工作日内到账20元", "20元/单", "¥20（贰拾元）", "CN¥20", "￥20元", "贰拾圆零角零分", "20元0角", "a ¥20 coupon", "a 20-yuan coupon", "twenty-yuan voucher", "20 Chinese yuan", "Amount (yuan): 20", "fifty percent of the order, 20 yuan", "赔付【20】元", "赔付{20}元", "赔付[20]元", "≤20元", "小于等于20元", "最高可达20元", "20元左右", "不超20元", "as much as ¥20", "赔付20元以表歉意", "退款20元已到账", "补偿20元整，祝您生活愉快", "已为您申请20元补偿", "您好，本单超时18分钟，按规则补偿20元优惠券1张", "赔付20元；如需帮助请拨打400电话", "根据订单金额64.00元×50%计算，超过20元封顶，按20元赔付", "本单64元的订单赔付20元", "已超过10元审批线，需人工审批", "低于50元上限", "未超出50元上限", "20元未达到单笔上限50元", "订单总额为64.00元", "The order total was ¥64.00, so 50% capped at ¥20 gives ¥20.", "exceeds the 10 yuan approval threshold", "20元，大约2天到账", "20元(约3天)", "二十元整", "赔付二十元钱", "总共二十块", "赔付 20.00（元）", "赔付金额(元):20.00", "20 RMB only", "Rmb 20.00", "The sum of twenty yuan", "twenty (20) yuan", "您可得20元，请于3日内领取", "补偿20元，非现金", "本次为20元，非50%", "20元不会变更", "20元不会影响您的信用", "赔付20元后订单关闭", "补给您20块钱哈", "赔付20元，5分钟内到账", "20元5折券", "20元一次性发放", "赔付20元100%到账",
    ],
)  # fmt: skip
def test_ordinary_faithful_sentences_pass(text):
    assert not check_amounts(text, "20.00", evidence=NAMED).conflict


@pytest.mark.parametrize(
    "text",
    [
        "50 Chinese yuan", "五十大元", "50大洋", "50软妹币", "退您五十可以吗", "赔付50可以吗", "补偿50表示歉意", "退款50已到账", "赔付20元起步", ">20元", "≥20元", "＞20元", "<20元", "超20元", "逾20元", "20元不等", "20元(起)", "20元或更多", "in excess of ¥20", "beyond 20 yuan", "We will pay 20 pounds", "the amount is 20 pounds", "NZ$20", "20元（港币）", "港币20元", "日币20元", "赔付l5元", "suggested_amount为50", "amount is 50", "Amount (yuan): 50", "赔付【50】元", "赔付{50}元", "赔付{amount1}元", "没有达到20元", "两笔20元", "20元的三倍", "20元再加5元", "20元外加运费3元", "赔付贰拾壹元", "20元零一分", "20元1角", "赔付20元，另送5元", "满50减20元", "按64元赔付", "赔付32元", "订单金额64元全额退", "按订单金额64元赔付", "twenty-one yuan", "two zero yuan", "赔付20元吗？不，是30元", "20点5元", "赔付二点零元", "零元", "赔付 0 元", "-20元", "20元减5元", "20÷2元", "五块", "十块", "赔你10块", "100元", "一百元", "一百来块", "十来块", "几块钱", "¥20-30", "20~30块", "二三十块", "二十至三十元", "20到三十元", "20 or 30 yuan", "either 20 or 30 yuan", "赔付20/30元", "赔付20元|30元", "¥20 + ¥5", "20元*3", "3x20元", "3×20元", "20元X2", "赔付2O元", "赔付貳佰元", "赔付５０圓", "赔付ⅩⅩ元", "赔付㊿元", "赔付⑳⓪元", "赔付%s元", "赔付${amount}", "赔付$amount元", "¥undefined", "¥NaN", "赔付---元", "赔付--元", "赔付——元", "赔付？？元", "赔付□□元", "赔付＿＿元", "¥-", "赔付 元", "约合3美元，即20元", "赔20块5毛", "20.001元", "20.0.0元", "２０．５０元", "20,5元", "20'00元", "2 000元", "20 00元", "１，０２０元", "1.020,00元", "20/元30", "赔付20元起，上不封顶",
    ],
)  # fmt: skip
def test_other_wordings_of_another_amount_conflict(text):
    assert check_amounts(text, "20.00", evidence=NAMED).conflict


# Wordings collected before the patterns were widened to hold them; new ones that escape belong here.


@pytest.mark.parametrize(
    "text",
    [
        "赔您20元整", "这单给您补20块", "共赔偿人民币贰拾元整", "补偿金额: ¥ 20.00元", "20元（大写：贰拾元整）", "本次仅20元", "按规则应赔20元", "赔付：20元；时效：3天", "【赔付金额】20元", "赔付金额 = 20", "一共二十块钱", "您会收到一张面值20元的券", "We'll give you 20 yuan", "Your compensation amount is RMB 20.00", "¥20.00 will be refunded", "refund amount: CNY 20", "total compensation of twenty RMB", "we propose 20 (twenty) yuan", "将20元退至原账户", "20元退款已受理", "退款金额为20.00元，预计1-3个工作日到账", "补偿20元，2选1", "20元现金券", "赔付20 元/订单", "因超时35分钟赔付20元", "2026年11月30日赔付20元", "11月30日前到账20元", "订单DEMO-002：赔付20元", "第2单赔付20元", "第3条规定赔付20元", "COMP-001规定赔付20元", "赔付20元!", "赔付20元~", "赔付20元～", "赔付20元。。。", "赔付20元…", "“20元”", "赔付20元(税后)", "赔付20元（不含运费）", "赔付20元 (≈20 RMB)", "赔付约20元", "赔付大约二十元", "最多赔付20元", "赔付最高20元", "20元以内赔付", "赔付额度20元", "赔付额20元", "20元的优惠券", "20元的赔付", "这20元", "上述20元", "该20元将于3日内到账", "其余不变，赔付20元", "0.5小时内到账20元", "半小时内到账20元", "先核实再赔付20元", "不含5%手续费，赔付20元", "达到20元", "等额20元", "每笔20元", "单笔20元", "满意度90分，赔付20元", "距离3公里，赔付20元",
    ],
)  # fmt: skip
def test_more_faithful_wordings_pass(text):
    assert not check_amounts(text, "20.00", evidence=NAMED).conflict


@pytest.mark.parametrize(
    "text",
    [
        "赔您25元整", "这单给您补二十五块", "共赔偿人民币贰拾伍元整", "补偿金额: ¥ 200元", "20元（大写：贰佰元整）", "赔付金额 = 50", "面值50元的券", "We'll give you 25 yuan", "RMB 200.00", "¥2.00 will be refunded", "refund amount: CNY 50", "total compensation of thirty RMB", "we propose 20 (thirty) yuan", "赔付20元+5元", "赔付20元、5元", "赔付20元和5元券", "20元，再减3块", "赔付二十元八角", "赔付20块零5毛", "赔付20元6", "二十六块六", "20.5元", "赔付20元半", "二十块半", "赔付两个十块", "赔付十九块九", "赔付19.99元", "赔付020.01元", "赔付2００元", "赔付20百元", "赔付20十元", "赔付二百元", "赔付20佰元", "赔付20K", "赔付¥20 thousand", "赔付¥0.2k", "赔付20毛", "赔付20分钱", "20 jiao", "20 fen", "20 cents", "20 baht", "20 THB", "20 MYR", "20令吉", "20林吉特", "20韩币", "20欧", "20美刀", "A$20", "20 Swiss francs", "CHF 20", "20 bitcoins", "赔付20元等值港币", "ten to twenty yuan", "from ten yuan to twenty yuan", "between ¥10 and ¥20", "10元~20元", "10元起最高20元", "不少于20元", "不得少于20元", "不得低于20元", "最低20元", "no lower than 20 yuan", "a minimum of 20 yuan", "20 yuan or more", "20 yuan minimum", "20元往上", "20元朝上", "20元不封顶", "20元为下限", "下限20元", "20元保底", "高于20元", "大于20元", "多于20元", "大于等于20元", "将超过20元", "会超过20元", "可能超过20元", "近20元", "快20元", "差不多几十元", "数百元", "成百上千元", "小几百块", "大几十块", "三四十块", "五六元", "十几二十块", "一二十元", "a dozen yuan", "a couple of yuan", "tens of yuan", "some 20-odd yuan", "不到二十元", "未满20元", "不足额20元", "不予赔付20元", "不支持20元赔付", "20元已撤回", "20元作废", "没有20元", "不给20元", "不退20元", "拒赔20元", "we refuse to pay 20 yuan", "we do not owe you 20 yuan", "you will not receive ¥20", "never 20 yuan", "¥20 is not payable", "赔付(空)元", "赔付[金额]元", "赔付<金额>元", "赔付{{x}}元", "赔付N/A元", "赔付TBD元", "赔付?元", "赔付…元", "¥???", "¥TBD", "¥--", "赔付0.20元", "赔付(-20)元", "赔付负20元", "倒扣20元", "扣您20元", "20元（共2笔）",
    ],
)  # fmt: skip
def test_more_wordings_of_another_amount_conflict(text):
    assert check_amounts(text, "20.00", evidence=NAMED).conflict


@pytest.mark.parametrize(
    "text",
    [
        "赔付若干", "赔付若干元", "建议赔付若干，请知悉", "补偿若干。", "退款若干金额", "赔付好几十", "赔付好几十元", "赔付好几十块", "好几十块钱", "赔付好几百", "数十元", "赔付数十", "赔付数百", "赔付数元", "赔付几元", "几元补偿", "赔付几块", "赔几十", "赔付几十。", "赔付十几", "赔付多少元？", "多少元?", "赔付多少元不等", "赔付多少钱？", "赔付??元", "赔付？？", "赔付？？？", "赔付___元", "赔付____", "赔付___", "∞元", "赔付∞元", "赔付∞", "赔付*元", "赔付**元", "赔付***元", "赔付□□元", "赔付XX", "赔付xx元", "赔付■■", "赔付…元", "¥∞", "¥*", "¥**", "RMB ??", "赔付 - 20元", "赔付 − 20元", "赔付 – 20元", "赔付 -20元", "赔付：- 20元", "金额 - 20元", "金额: - 20", "赔付 - 20", "补偿金额为 - 20 元", "¥ - 20", "- ¥20", "赔付 - ¥20", "赔付负 20元", "refund of - ¥20", "refund of - 20 yuan", "refund minus 20 yuan", "赔付一些钱", "赔付数千", "赔付上百", "赔付约？元", "赔付（）元", "赔付( )元", "赔付[ ]元", "赔付%s元", "refund ??? yuan", "refund ** yuan", "refund ∞ yuan", "refund __ yuan", "赔付若干块", "赔付好几块", "赔付个位数", "赔付几毛", "赔付几角钱", "赔付数角", "赔付些许", "赔付多少块？", "赔付#元", "赔付~元", "赔付*块", "赔付您若干元整", "给您补若干块", "补若干元券", "返现若干元", "可获若干元补偿", "赔付数百块", "赔付好几千", "赔好几十吧", "退好几十给您", "将退还几百元", "数十块钱补偿", "补偿数元", "补偿几元左右", "赔付几块钱", "会赔多少元？", "赔付多少块钱？", "金额：???元", "金额？？元", "补偿____元", "补偿__元", "补偿 ___ 元", "¥___", "￥ ∞", "无限∞元", "赔付∞元整", "赔付 * 元", "赔付*元整", "补偿□元", "金额：○元", "退款 - 20 元", "补偿 − 20元", "赔付－20元", "赔付 － 20元", "退款为 - 20元", "赔付了 - 20元", "赔付负20元", "赔付 负 20 元", "返还- 20元", "refund of − 20 yuan", "we pay - 20 yuan", "amount is - 20 yuan",
        "我们将赔付若干元给您", "补偿款若干", "退您若干块钱", "赔好几十呢", "大概好几百元", "赔偿数十", "赔付几百", "赔付几块吧", "合计多少元？", "建议补偿？？元", "补偿___", "补偿金 ∞ 元", "退款*元", "补偿 - 20 块", "金额为 - 20元", "退还 - ¥20", "一共赔付十几", "赔付几十几元", "赔付若干人民币", "补偿约若干元",
    ],
)  # fmt: skip
def test_an_indefinite_amount_a_placeholder_or_a_spaced_minus_conflicts(text):
    assert check_amounts(text, "20.00", evidence=NAMED).conflict


@pytest.mark.parametrize(
    "text",
    [
        "赔付20元 - 已登记", "- 赔付20元", "- 20元券一张", "方案：- 赔付20元", "1. 赔付 20元", "赔付20元（若干工作日到账）", "经过若干次沟通，赔付20元", "若干天后到账20元", "赔付20元，好几十单合并", "排队好几十分钟，赔付20元", "数十分钟后送达", "几分钟后到账20元", "赔付多少元由审核决定", "具体赔付多少以审核为准", "赔付多少元以规则为准，本单20元", "数十单超时", "您想要赔付吗？", "会赔付？请等待审核", "如何退款??", "为什么不赔付？？", "是否可以补偿？", "怎么赔？", "**赔付**20元", "*赔付20元*", "赔付 **20** 元", "赔付*20*元", "赔付20元***", "几元旦", "骑手好几十公里外", "元旦若干活动", "赔付方案若干条", "退款若干笔", "补偿若干次", "赔付几天到账", "退款几小时到账", "赔付数日内到账", "赔付几次", "补几份餐", "赔付好几次了", "退款：20元", "赔付金额—20元", "赔付——20元", "赔付：20元", "适用规则 COMP-001 — 赔付20元", "总计 20元", "几十分钟", "数百条评论", "赔付20元。* 以审核为准", "赔付*以审核为准*", "赔付 *20元*", "什么时候退款？？", "赔付结果？？待审核", "- 20元\n- 三天到账", "一、赔付20元；二、道歉若干次", "赔付 20 元 — 已审核", "赔付20元？是的", "若干规则适用，赔付20元", "好几十位顾客，赔付20元", "几天后赔付20元", "数十个订单，各赔付20元", "多少人等待，赔付20元", "赔付多少次都一样", "我们付出若干努力", "补偿若干方案供参考", "退款十几天到账", "赔付十几单", "补十几份餐具", "退几件商品", "赔付__20元__", "赔付__20__元", "赔付≈20元？", "¥20 - 已登记", "20元 - 赔付", "公里数角度", "参数角标", "赔付数据", "退款数量2单", "补偿数额20元", "赔付一些订单", "支付方式？？", "怎样退款？？？", "能不能赔付??", "请问何时到账??", "Is it paid??", "Refund in yuan, 20 yuan", "pay 20 yuan", "The refund is 20 yuan", "compensation is ¥20", "RMB 20", "CNY 20?", "RMB20？", "几乎无需赔付", "多少有些抱歉，赔付20元",
        "赔付20元，若干问题已解决", "好几十单延误，按规则赔付20元", "多少单超时？赔付20元", "数十位骑手，20元", "赔付：20元；联系：- 客服", "骑手 - 3单", "为何还没退款？？", "赔付**20元**", "*20元*", "已补偿20元，其余若干事项待核", "几点送达？赔付20元", "赔付 20 元 - 完成", "几单合并赔付20元", "谁来赔付？？", "赔付数据若干", "什么时候可以补偿??", "金额（元）20", "赔付20(元)", "赔付金额 20 元（约几分钟到账）", "几乎准时，赔付20元",
    ],
)  # fmt: skip
def test_indefinite_counts_questions_bullets_and_dashes_are_no_other_amount(text):
    assert not check_amounts(text, "20.00", evidence=NAMED).conflict


# The intents of the source's guardrail tests.


@pytest.mark.parametrize(
    ("text", "named"), [("suggested_amount: 20", True), ("20元", True), ("￥ 20.50", True), ("20分钟", False)]
)  # fmt: skip
def test_intent_6_what_mentions_an_amount(text, named):
    assert bool(check_amounts(text, "20").mentions) is named


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        ("最高不超过20元", False), ("￥20.00", False), ('{"suggested_amount": 20}', False), ('{"suggested_amount": "20"}', True), ("50元", True), ('{"suggested_amount": 999}', True), ("35分钟", False),
        ('{"suggested_amount": 2e1}', False), ('{"suggested_amount": 3e1}', True), ('{"suggested_amount": 1e2147483648}', True), ('{"suggested_amount": 1e-2147483648}', True), ('{"suggested_amount": 1e99999999999999999999}', True),
    ],
)  # fmt: skip
def test_intents_7_to_9_prose_and_fields_against_20(text, conflict):
    assert check_amounts(text, "20.00").conflict is conflict


@pytest.mark.parametrize("text", ["20元", "20.元", "20.00 元", "¥20", "￥ 20.00"])
def test_intent_10_forms_of_20(text):
    assert (verdict(text, "20"), verdict(text, "10")) == ("repeat", "conflict")


@pytest.mark.parametrize("text", ["-.5元", "-0.50 元", "¥-.5", "￥ -0.50"])
def test_intent_10_forms_of_minus_a_half(text):
    assert (verdict(text, "-0.5"), verdict(text, "0.5")) == ("repeat", "conflict")


@pytest.mark.parametrize("run", ["1" * 40_000, "-" + "1" * 40_000, "1" * 20_000 + "." + "1" * 20_000, "1" * 40_000 + "份"])
def test_intent_11_long_digit_runs(run):
    assert verdict(run) == "none"
    assert verdict(run + "；赔付20元") == "repeat"
    assert verdict(run + "；赔付30元") == "conflict"
    if run[-1] == "1":
        assert verdict(run + "元") == verdict("￥" + run.lstrip("-")) == "conflict"


def best_time(text: str, *checks: Callable[[str], object], repeats: int = 2) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for check in checks:
            check(text)
        times.append(time.process_time() - start)
    return min(times)


def against_20(text: str) -> object:
    return check_amounts(text, "20")


HOSTILE = {
    "digits": "1", "digits and unit": "1元", "spaced digits": "1 ", "commas": "1,", "ranges": "1-", "han digits": "一", "han units": "十", "signs": "¥", "signs and digits": "¥1", "openers": "<", "tags": "<a", "comments": "<!--", "escapes": "\\",
    "entities": "&#1", "braces": "{", "brackets": "[", "underscores": "_", "question marks": "?", "keys": "amount:", "letters": "a", "words": "twenty ", "verbs": "赔", "sure": "保证", "sure and gap": "保证会", "negations": "不", "spelled": "保-",
    "stars": "*", "spaces": " ", "newlines": "\n", "names": "上限", "links": "的", "quotes": '"', "dots": ".", "english": "guarantee that you ", "percent": "%", "points": "一点", "clocks": "1:23", "dates": "2026-", "x": "x", "equals": "a=", "gives": "给您", "refunds": "refund ", "assured": "rest assured you ", "unclear": "若干", "minus": "款 - ",
}  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_time_is_linear_in_hostile_text(unit):
    short, long = (best_time(unit * (n // len(unit)), against_20, check_promises) for n in (2_000, 16_000))

    assert long < max(0.05, 8 * 2.5 * short), f"{short * 1000:.1f} ms -> {long * 1000:.1f} ms for 8 times the text"


def test_a_run_of_40_000_digits_takes_less_than_50_ms():
    assert best_time("1" * 40_000 + "元", against_20, repeats=5) < 0.05


# Contracts.


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=200),
    st.one_of(st.none(), st.text(max_size=8), st.decimals(), st.integers()),
    st.one_of(st.none(), st.text(max_size=60)),
)
@example("\ud83d\udca9<&#xD800;\\ud800元", None, '{"amount": \ud800}')
def test_no_text_raises(text, amount, structured):
    check_amounts(text, amount, structured_json=structured)


PIECES = st.sampled_from([
    "赔付", "20元", "50元", "订单金额", "上限", "¥", "20", "五十", "块", "一块", "分", "<b", ">", "&yen;", "\\u5143", "不是", "至少", "元", "旦", "素", "以内", "；", "，", "-", "至", "(", "“", " ", "1,0", "{", '"amount":', "20分", "三元", "桥", "审批线",
    "10", "not ", "over ", "yuan", "twenty ", "'", "<!--", "-->", "*", "`", "\u200b", "的两倍", "2张", "XX", "_", "?",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(PIECES, max_size=8).map("".join),
    st.sampled_from(["。", "\n\n", "！", "； "]),
)
@example("赔付块", "", "\n\n")
@example("赔付若干", "您好", "\n\n")
@example("订单金额五十", "分。", "\n\n")
@example("订单金额20", "赔付；", "\n\n")
@example('审批线"amount":10', "2张", "！")
@example("审批线10元赔付", "1,0上限", "\n\n")
@example("¥ twenty ", "&yen;订单", "\n\n")
def test_a_further_sentence_never_turns_a_conflict_into_a_pass(text, more, mark):
    # An open tag or comment and a field without its value go on in the next sentence.
    assume(text.rfind("<") <= text.rfind(">") and "<!--" not in text)
    assume(not re.search(r":[^\w¥]*$", fold(text).text))
    if check_amounts(text, "20", evidence=EVIDENCE).conflict:
        assert check_amounts(text + mark + more, "20", evidence=EVIDENCE).conflict


@settings(max_examples=300, deadline=None)
@given(
    st.decimals(min_value=0, max_value=99_999, places=2),
    st.sampled_from(["{}元", "¥{}", "RMB {}", "赔付{}块钱。", "{} yuan"]),
    st.booleans(),
)
def test_the_authoritative_amount_in_any_digit_form_passes(amount, form, full_width):
    for digits in {f"{amount:.2f}", f"{amount:.3f}", format(amount.normalize(), "f"), f"{amount:,.2f}", f"0{amount:.2f}"}:
        text = form.format("".join(chr(ord(c) + 0xFEE0) if c.isdigit() and full_width else c for c in digits))
        assert verdict(text, amount) == "repeat", text


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**12))
def test_numerals_of_independent_libraries_are_read_back(n):
    # cn2an and num2words render; this package has no code in common with them
    assert numeral(cn2an.an2cn(n, "low")) == n
    assert numeral(cn2an.an2cn(n, "up")) == n
    assert english_numeral(num2words.num2words(n % 10**6).replace(",", "")) == n % 10**6


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1百20", "120"),
        ("2万5", "25000"),
        ("一百二", "120"),
        ("十五点五", "15.5"),
        ("廿五", "25"),
        ("两百", "200"),
        ("一百零二", "102"),
        ("1.5万", "15000"),
    ],
)
def test_colloquial_numerals(text, value):
    assert numeral(text) == Decimal(value)


@pytest.mark.parametrize("text", ["二三十", "三五", "20,00", "1.2.3", "十十", "1" * 31, "一二百"])
def test_what_has_no_one_value_is_none(text):
    assert numeral(text) is None


@pytest.mark.parametrize("value", [None, True, "NaN", "Infinity", float("nan"), "1e400", "abc", [], "1__0"])
def test_money_refuses_what_is_no_plain_number(value):
    assert money(value) is None


def test_an_authoritative_amount_that_is_no_number_conflicts_with_any_mention():
    for nothing in (None, "NaN", True, "abc"):
        assert (verdict("赔付20元", nothing), verdict("没有数字", nothing)) == ("conflict", "none")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=120))
def test_folding_keeps_track_of_every_character(text):
    folded = fold(text)

    assert len(folded.text) == len(folded.starts) == len(folded.ends)
    assert all(0 <= a < b <= len(text) for a, b in zip(folded.starts, folded.ends, strict=True))
    assert folded.starts == sorted(folded.starts)
