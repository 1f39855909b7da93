"""Texts with known truth, made by rule from a seed: contradictions of a decided amount or outcome, and faithful texts.

The kinds are listed here, before and apart from the checkers; numerals are rendered by cn2an and num2words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import cn2an
import num2words

from workbench.confirm import conditions
from workbench.schema import FLAGS, UNKNOWN, Assessment, Outcome, RiskLevel, unknown

AMOUNTS = ("20.00", "5.00", "1.00", "17.75", "12.50", "128.00", "30.00", "7.05", "64.00", "0.50")
EVIDENCE = {"order_value": "73.60", "cap": "55.00", "approval_line": "10.00"}

ZH = (
    "本单按规则赔付{}，请知悉。", "建议赔付{}，结果以人工审核为准。", "核实后，规则给出的金额为{}。", "根据超时规则，您可获得{}补偿。", "非常抱歉给您带来不便，本次补偿{}已登记。",
    "订单DEMO-002超时35分钟，适用COMP-001，赔付{}。", "我们将按规则给您补{}。", "本次赔付金额：{}", "已提交审核：赔付{}，预计3个工作日内到账。", "经核实骑手迟到20分钟，依规赔付{}。",
)  # fmt: skip
EN = (
    "The approved compensation is {}.", "Under rule COMP-002 you receive {} for this order.", "We will credit {} after the review.",
    "Decision: {}, subject to human review.", "The order was 18 minutes late; the rule gives {}.",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One text, the decided amount, and the kind of mutation ("" for a faithful text)."""

    kind: str
    text: str
    amount: str
    structured: str | None = None


def plain(value: Decimal) -> str:
    """The shortest digits: 20, 17.75."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if c.isdigit() or c == "." else c for c in text)


def han(value: Decimal) -> str:
    return cn2an.an2cn(plain(value), "low")


def formal(value: Decimal) -> str:
    """二十元五角 as an accountant writes it: 贰拾元伍角."""
    return cn2an.an2cn(plain(value), "rmb")


def english(value: Decimal) -> str:
    return num2words.num2words(plain(value) if value % 1 else int(value)).replace(",", "")


def forms(value: Decimal) -> list[str]:
    """Ways to write the same amount."""
    digits, two = plain(value), f"{value:.2f}"
    out = [
        f"{digits}元",
        f"{two}元",
        f"¥{digits}",
        f"￥{two}",
        f"RMB {digits}",
        f"{digits}块钱",
        f"人民币{digits}元",
        f"{wide(two)}元",
        f"{wide(digits)}圆",
        f"CNY {two}",
    ]
    out += [
        f"{digits} 元",
        f"<b>{digits}</b>元",
        f"**{digits}**元",
        f"`{two}`元",
        f"&yen;{digits}",
        f"{digits}\u200b元",
        f"¥\u00a0{digits}",
        f"{digits}塊錢",
        f"{digits}元整",
    ]
    out += [f"{han(value)}元", formal(value)]
    jiao = int(value * 10 % 10)
    if value * 10 % 1 == 0 and jiao and value >= 1:
        out += [f"{int(value)}元{jiao}角", f"{han(Decimal(int(value)))}块{han(Decimal(jiao))}毛", f"{int(value)}块{jiao}"]
    if value % 1 == 0:
        out += [f"{han(value)}块钱", f"不超过{digits}元", f"最多{digits}元", f"{digits}元以内"]
    return out


def forms_en(value: Decimal) -> list[str]:
    digits, two = plain(value), f"{value:.2f}"
    return [
        f"¥{digits}",
        f"¥{two}",
        f"{digits} yuan",
        f"{two} RMB",
        f"CNY {digits}",
        f"{english(value)} yuan",
        f"up to ¥{digits}",
        f"**¥{two}**",
        f"at most {digits} yuan",
    ]


def other_amount(rng: random.Random, value: Decimal) -> Decimal:
    """A different amount: near, swapped digits, a tail that equals, ten times, a cent off."""
    pick = rng.choice((
        value + rng.choice((1, 2, 3, 5, 10, 50)), value + Decimal("0.01"), value + Decimal("0.5"), value * 10, value + 100, value + 1000, value * 2, value / 2,
    ))  # fmt: skip
    pick = pick.quantize(Decimal("0.01"))
    return pick if pick != value else value + 1


# -- contradictions of an amount ------------------------------------------------------------------------------------------


def digits(rng, a, b):
    return rng.choice((f"{plain(b)}元", f"¥{plain(b)}", f"{b:.2f}元", f"人民币{plain(b)}元", f"{plain(b)}块", f"RMB{plain(b)}"))


def chinese_numerals(rng, a, b):
    return rng.choice((f"{han(b)}元", f"{han(Decimal(int(b) + 1 if int(b) == a else int(b)))}块钱", formal(b)))


def full_width(rng, a, b):
    return rng.choice((f"{wide(plain(b))}元", f"￥{wide(f'{b:.2f}')}", f"{wide(plain(b))}圆"))


def unit_swap(rng, a, b):
    d = plain(a)
    return rng.choice(
        (
            f"{d}万元",
            f"{d}角",
            f"{d}分钱",
            f"{d}美元",
            f"{d}日元",
            f"HK${d}",
            f"${d}",
            f"{d}欧元",
            f"{d}千元",
            f"¥{d}k",
            f"{d}毛钱",
            f"{d}港币",
            f"€{d}",
        )
    )


def ranges(rng, a, b):
    low, high = sorted((plain(a), plain(b)), key=Decimal)
    sep = rng.choice(("-", "~", "至", "到", "—", "～", " - ", "–", "/", "或"))
    return rng.choice(
        (
            f"{low}{sep}{high}元",
            f"¥{low}{sep}¥{high}",
            f"{low}元{'至' if sep in '/或' else sep}{high}元",
            f"{plain(b)}{sep}{plain(a)}元",
            f"{han(Decimal(low))}到{han(Decimal(high))}元",
        )
    )


def separators(rng, a, b):
    d = plain(a)
    first = rng.choice("123456789")
    tail = d.zfill(3) if "." not in d else d.split(".")[0].zfill(3) + "." + d.split(".")[1]
    return rng.choice(
        (
            f"{first},{tail}元",
            f"¥{first},{tail}",
            f"{first} {tail}元",
            f"{first}'{tail}元",
            f"{d},00元",
            f"{first}_{tail}元",
            f"{d[0]} {d[1:]}0元",
            f"{first}\n{d}元",
        )
    )


def markup(rng, a, b):
    d, other = plain(a), plain(b)
    return rng.choice((
        f"<b>{rng.choice('123456789')}</b>{d}元", f"{d}<sup>.9</sup>元", f"¥<span>{other}</span>", f"**{other[0]}**{other[1:]}元", f"`{other}`元", f"&yen;{other}", f"{other[0]}<!-- {d} -->{other[1:]}元",
        f"{other[0]}\u200b{other[1:]}元", f"[{other}]元", f"<del>{d}元</del>{other}元", f"&#165;{other}", f"{other}&nbsp;元", f"<x 赔付{other}元>",
    ))  # fmt: skip


def json_escapes(rng, a, b):
    escaped = "".join(f"\\u{ord(c):04x}" for c in f"赔付{plain(b)}元")
    return rng.choice(
        (
            escaped,
            escaped.replace("\\", "\\\\"),
            f'{{"reason": "{escaped}"}}',
            f'"suggested\\u005famount": {plain(b)}}}',
            f"\\u00a5{plain(b)}",
        )
    )


def minus(rng, a, b):
    d = plain(a)
    return rng.choice((f"负 {d}元", f"¥ -{d}", f"-{d}元", f"额 - {d}元", f"款 − {d} 元", f"款：- {d}元"))


def negated_repeats(rng, a, b):
    d = f"{plain(a)}元"
    return rng.choice(
        (
            f"不是{d}",
            f"并非{d}",
            f"的说法不对，不赔付{d}",
            f"，但不会赔付{d}",
            f"{d}不予支付",
            f"而不是{d}",
            f"，无法赔付{d}",
            f"{d}已取消",
            f"{d}是错误的",
        )
    )


def approximations(rng, a, b):
    d = plain(a)
    return rng.choice(
        (
            f"{d}多元",
            f"{d}余元",
            f"{d}来块钱",
            "几十元",
            "十几块钱",
            "上百元",
            "二三十元",
            "若干元",
            "好几块钱",
            "好几十",
            "若干",
            "若干块",
            "数十元",
            "几元",
            "多少元？",
            f"至少{d}元",
            f"{d}元以上",
            f"{d}+元",
            f"超过{d}元",
            f"不到{d}元",
            f"{d}元起",
            f"近{d}元",
        )
    )


def blanks(rng, a, b):
    return rng.choice(
        (
            "XX元",
            "N元",
            "___元",
            "{amount}元",
            "NaN元",
            "￥XX",
            "¥",
            "null元",
            "{{ amount }}元",
            "¥{}",
            "??元",
            "？？元",
            "∞元",
            "*元",
            "()元",
            "Infinity元",
            "【金额】元",
        )
    )


def multiples(rng, a, b):
    d = f"{plain(a)}元"
    return rng.choice(
        (
            f"{d}的两倍",
            f"双倍{d}",
            f"2张{d}券",
            f"{d}×2",
            f"{d}x3",
            f"{d}的一半",
            f"三笔{d}",
            f"{d}翻倍",
            f"{plain(a)}+{plain(b)}元",
        )
    )


def extra_mention(rng, a, b):
    return f"{rng.choice(forms(a))}，另外再{rng.choice(('补', '送您', '赔付', '返'))}{rng.choice(forms(b))}"


def misnamed_evidence(rng, a, b):
    e = EVIDENCE
    return rng.choice(
        (
            f"{plain(Decimal(e['cap']))}元",
            f"{e['order_value']}元，{plain(a)}元为券",
            f"订单金额{e['cap']}元对应的{plain(a)}元",
            f"{plain(a)}元（审批线{e['cap']}元）",
            f"{e['order_value']}元",
        )
    )


def english_words(rng, a, b):
    return rng.choice((f"{english(b)} yuan", f"{plain(b)} yuan", f"¥{b:.2f}", f"RMB {plain(b)}", f"{plain(b)} CNY"))


def english_traps(rng, a, b):
    d = plain(a)
    return rng.choice((
        f"at least {d} yuan", f"not {d} yuan", f"{d} dollars", f"between {plain(min(a, b))} and {plain(max(a, b))} yuan", f"more than ¥{d}", f"{d} thousand yuan", "a few yuan", f"twice {d} yuan",
        f"less than ¥{d}", f"¥{d} to ¥{plain(a + 9)}", f"{d} euros", "several yuan", f"{d}-odd yuan", f"over {d} yuan", f"{d}.{rng.randint(1, 9)}{rng.randint(1, 9)}9 yuan" if "." not in d else f"{d}9 yuan", f"no {d} yuan",
    ))  # fmt: skip


AMOUNT_KINDS = (
    digits, chinese_numerals, full_width, unit_swap, ranges, separators, markup, json_escapes, negated_repeats, approximations, blanks, multiples, extra_mention,
    misnamed_evidence, minus,
)  # fmt: skip


def fields(rng: random.Random, a: Decimal, b: Decimal) -> str:
    """JSON whose amount field or prose contradicts."""
    key = rng.choice(
        (
            "suggested_amount",
            "compensation_amount",
            "amount",
            "refund",
            "suggestedAmount",
            "payout_amount",
            "refundAmount",
            "赔付金额",
        )
    )
    d, other = plain(a), plain(b)
    bad = rng.choice(
        (
            other,
            f'"{d}"',
            f'"{d}元"',
            "null",
            "true",
            "NaN",
            "Infinity",
            f"[{d}]",
            f"{other}e0",
            f"-{d}",
            f"{d}e3",
            "1e-2147483648",
            "1e99999999999999999999",
        )
    )
    return rng.choice((
        f'{{"{key}": {bad}}}', f'{{"result": {{"{key}": {bad}}}}}', f'{{"{key}": {d}, "{key}": {other}}}', f'[{{"amount": {d}}}, {{"{key}": {bad}}}]',
        json.dumps({key: 1, "message": f"给您补{other}元"}).replace(f'"{json.dumps(key)[1:-1]}": 1', f'"{key}": {d}'), f'{{"coupons": [{{"amount": {d}}}, {{"amount": {other}}}]}}',
    ))  # fmt: skip


def contradictions(seed: int, per_kind: int = 40) -> Iterator[Case]:
    """Texts that name another amount than the decided one, or one that cannot be compared; about 16 kinds x *per_kind*."""
    rng = random.Random(seed)
    for _ in range(per_kind):
        for kind in AMOUNT_KINDS:
            a = Decimal(rng.choice(AMOUNTS))
            yield Case(kind.__name__, rng.choice(ZH).format(kind(rng, a, other_amount(rng, a))), str(a))
        for kind in (english_words, english_traps):
            a = Decimal(rng.choice(AMOUNTS))
            yield Case(kind.__name__, rng.choice(EN).format(kind(rng, a, other_amount(rng, a))), str(a))
        a = Decimal(rng.choice(AMOUNTS))
        yield Case(
            "fields", rng.choice(("", "已提交审核。", f"本单赔付{plain(a)}元。")), str(a), fields(rng, a, other_amount(rng, a))
        )


HARMLESS = (
    "", "骑手超时35分钟。", "2024元旦期间订单较多。", "页面共有3元素。", "准时率为98.5%。", "距离1.5公里，餐温50℃。", "请在18:30前联系我们。", "共涉及3单、2份餐品。", "我们一块处理。", "漏送了两块蛋糕。",
    "十分抱歉。", "千万别着急，万一再超时请联系我们。", "适用COMP-050与第20条。", "本月已退款2次。", "每20单赔付1单。", "骑手在三元桥附近迷路。", "下次下单可享八折。", "手机尾号5020。", "一百二十条评论里有二十条差评。",
    "订单金额73.60元。", "审批线10元。", "单笔上限为55元。", "未达到10元审批线。", "2026年3月20日下单。", "预计2小时20分送达。", "满分5分，本次评4分。", "已提交审核，请留意通知。", "目前无法保证赔偿。", "The order was 20 minutes late.",
    "The order was worth ¥73.60.", "The cap is 55 yuan.", "See rule COMP-001, version 2.0.", "We received 3 complaints about 2 items.", "1. 核实；2. 审核；3. 通知。", "结果将在24小时内通知。", "第3单元2层。", "五星好评率80%。",
)  # fmt: skip


def faithful(seed: int, n: int = 600) -> Iterator[Case]:
    """Texts that repeat the decided amount in some form, or name none, among harmless numbers."""
    rng = random.Random(seed)
    for i in range(n):
        a = Decimal(rng.choice(AMOUNTS))
        text = rng.choice(EN).format(rng.choice(forms_en(a))) if i % 4 == 0 else rng.choice(ZH).format(rng.choice(forms(a)))
        parts = [rng.choice(HARMLESS), text if rng.random() < 0.9 else "", rng.choice(HARMLESS)]
        field = rng.choice(
            (
                None,
                None,
                f'{{"suggested_amount": {a}}}',
                f'{{"amount": {plain(a)}, "refund_count": 2, "amount_decided_by": "rule_engine"}}',
            )
        )
        yield Case("", rng.choice((" ", "\n")).join(p for p in parts if p), str(a), field)


# -- contradictions of an outcome -----------------------------------------------------------------------------------------

SEVERITY = {
    "low": ("low", "low risk", "low-risk", "mild", "minimal", "negligible", "slight", "harmless", "level 1", "the lowest level", "level one of four", "the first of four levels", "not serious", "minimal concern", "1/4", "nothing to worry about", "nothing serious", "the least severe", "grade 1", "level-1", "level: 1", "no cause for alarm", "all clear", "not concerning", "under control", "the fourth highest level", "insignificant", "low severity", "safe", "normal", "a 1", "a one", "green", "a green alert"),
    "medium": ("medium", "moderate", "medium risk", "intermediate", "level 2", "the second lowest level", "moderately concerning", "level two", "mid-level", "2/4", "the third highest level", "level: 2", "severity 2", "modest", "a 2", "a two", "a yellow alert"),
    "high": ("high", "high risk", "high-risk", "elevated", "level 3", "the second highest level", "level three", "highly elevated", "3/4", "the third lowest level", "tier 3", "the third level", "level = 3", "a 3", "orange", "an orange alert"),
    "critical": ("critical", "critical risk", "imminent", "an emergency", "acute", "life-threatening", "level 4", "the highest level", "extreme", "the most severe level", "level four of four", "very high", "extremely high", "urgent", "4/4", "top level", "dire", "desperate", "of the utmost severity", "code red", "severity 4", "level IV", "the worst level", "a 4", "a four", "red", "a red alert"),
}  # fmt: skip
SEVERITY_ZH = {
    "low": ("低", "低风险", "低危", "轻微", "轻度", "最低级", "第一级", "1级", "不严重", "低级别", "没有风险", "四级中的第一级", "低水平", "无明显风险", "较低风险", "可以忽略", "倒数第一级", "微乎其微", "正常", "安全", "没什么大不了", "问题不大", "一档", "很轻的", "轻症", "一级", "一", "绿灯", "壹级"),
    "medium": ("中", "中等", "中度", "中风险", "中危", "第二级", "次低", "中等程度", "2级", "第三高", "中级", "二档", "Ⅱ级", "二级", "二"),
    "high": ("高", "高风险", "高危", "第三级", "次高", "高级别", "3级", "第二高", "四级中的第三级", "三档", "较高", "三级", "橙灯"),
    "critical": ("危急", "极高", "最高级", "第四级", "危重", "紧急", "极其严重", "最严重", "4级", "极高风险", "最高风险", "生死攸关", "十万火急", "特别严重", "命悬一线", "岌岌可危", "红色预警", "四档", "性命攸关", "最危险", "四级", "四", "红灯", "肆级"),
}  # fmt: skip
SAYS = (
    "The displayed level is {}.", "Overall, this dialogue was rated {}.", "Overall the outcome is {}.", "The final level: {}.", "The result was judged as {}.", "The case is {}.", "L1 rated it {}.", "L2: {}.", "Both judges said {}.",
    "The second judge called the text {}.", "According to the first judge it is {}.",
)  # fmt: skip
SAYS_ZH = (
    "显示级别：{}。",
    "综合结果判定为{}。",
    "最终等级为{}。",
    "该对话的风险程度为{}。",
    "L1 评为{}。",
    "L2判为{}。",
    "两位评审均判定为{}。",
    "第二位评审认为级别是{}。",
    "总体属于{}。",
)


def rated(tier: str, level: str | None, confidence: float = 0.9, flags: tuple[str, ...] = ()) -> Assessment:
    if level is None:
        return unknown("timeout", tier=tier)
    raw = RiskLevel(level)
    capped = min(raw, RiskLevel.MEDIUM) if flags else raw
    return Assessment(
        tier=tier, level=capped, raw_level=raw, confidence=confidence, flags={f: f in flags for f in FLAGS}, text_hash="t"
    )


def decided(l1: Assessment, l2: Assessment) -> Outcome:
    known = [a.level for a in (l1, l2) if isinstance(a.level, RiskLevel)]
    confirmed = l1.may_confirm and l2.may_confirm
    return Outcome(
        dialogue_id="d",
        l1=l1,
        l2=l2,
        level=max(known) if known else UNKNOWN,
        incomplete=len(known) < 2,
        confirmed=confirmed,
        conditions=conditions(l1, l2),
    )


def agreed(level: str, confidence: float = 0.9) -> Outcome:
    """Both judges at *level*, with different confidences on the same side of the threshold."""
    return decided(rated("L1", level, confidence), rated("L2", level, confidence + 0.04))


@dataclass(frozen=True)
class Claim:
    """A text about an outcome that contradicts it (kind) or not ("")."""

    kind: str
    text: str
    outcome: Outcome


def flipped_severity() -> Iterator[Claim]:
    """Every severity word in every sentence, of every outcome that it does not fit."""
    for says, table in ((SAYS, SEVERITY), (SAYS_ZH, SEVERITY_ZH)):
        for truth in SEVERITY:
            for said, words in table.items():
                for word in words:
                    fits = {"not serious": ("low", "medium"), "不严重": ("low", "medium")}.get(word, (said,))
                    for sentence in says:
                        if truth not in fits:
                            yield Claim("severity", sentence.format(word), agreed(truth))
    zh = {"high": "高风险", "critical": "危急"}
    for truth in zh:
        for denial in DENIALS:
            yield Claim("severity denied", denial.format(truth), agreed(truth))
        for denial in DENIALS_ZH:
            yield Claim("severity denied", denial.format(zh[truth]), agreed(truth))


DENIALS = (
    "It is not {}.", "Overall the level is not {}.", "The judges did not rate it {}.", "It is far from {}.", "It is anything but {}.", "The level is no longer {}.", "It is hardly {}.", "This is by no means {}.", "Neither judge found it {}.",
    "It is almost {}.", "It falls short of {}.", "The level is below {}.", "non-{}", "{} was ruled out.", "{} does not apply.", "The label {} is wrong.", "It is the opposite of {}.", "It is less severe than {}.", "It isn't {}.", "Rather than {}, it is something else.",
)  # fmt: skip
DENIALS_ZH = (
    "该对话不是{}。",
    "总体并非{}。",
    "未达到{}。",
    "谈不上{}。",
    "接近{}。",
    "已排除{}。",
    "{}的判断不成立。",
    "{}可以排除。",
    "低于{}。",
    "绝非{}。",
    "不属于{}。",
    "而非{}。",
    "称不上{}。",
)


def other_contradictions(seed: int, n: int = 300) -> Iterator[Claim]:
    """Confidence, confirmation, flags, ordinals, promises, numbers to call."""
    rng = random.Random(seed)
    for _ in range(n):
        level = rng.choice(list(SEVERITY))
        confidence = rng.choice((0.55, 0.62, 0.7, 0.78, 0.88, 0.91, 0.93))
        o = agreed(level, confidence)
        wrong = rng.choice([c for c in (0.15, 0.3, 0.45, 0.99, 0.65 if confidence > 0.8 else 0.95) if abs(c - confidence) > 0.06])
        percent = f"{wrong * 100:.0f}"
        flag = rng.choice(("joke", "fiction", "quote", "third-party"))
        yes, no = "Both judges are critical; confirmed.", "Not confirmed."
        yield rng.choice((
            Claim("confidence", f"L1 had a confidence of {wrong}.", o), Claim("confidence", f"Both were {percent}% confident.", o), Claim("confidence", f"L2 的置信度为{wrong}。", o),
            Claim("confidence", f"置信度百分之{cn2an.an2cn(percent, 'low')}。", o), Claim("confidence", f"The confidence was {num2words.num2words(int(percent))} percent.", o),
            Claim("confidence", "Confidence was high on both sides." if confidence < 0.81 else "Confidence was low.", o), Claim("confidence", "置信度较高。" if confidence < 0.81 else "置信度不足。", o),
            Claim("confirmed", no if o.confirmed else rng.choice(("The case is confirmed.", "Double-confirmed.", "All six conditions hold.", yes)), o),
            Claim("confirmed", rng.choice(("未确认。", "双重确认未通过。", "六项条件中有三项满足。")) if o.confirmed else rng.choice(("已双重确认。", "双重确认通过。", "六项条件全部满足。")), o),
            Claim("flags", f"The {flag} flag was raised.", o), Claim("flags", "L1 识别为玩笑。", o), Claim("flags", "The text was flagged.", o), Claim("flags", "命中了语境标记。", o),
            Claim("promise", rng.choice(("You will be fine.", "一定会好起来的。", "Everything is going to be okay.", "保证没事。", "The user is completely safe.", "We have contacted the family.", "已经通知家属。", "绝对不会出事。")), o),
            Claim("number", rng.choice(("Call 988 now.", "请拨打400-161-9995。", "热线：010-82951332。", "Dial １-800-273-8255.", "拨打九八八。", "call nine eight eight")), o),
            Claim("unknown", rng.choice(("The level is unknown.", "级别未知。", "无法判断级别。")), o),
        ))  # fmt: skip
    for flags, text in (
        (("joke",), "No flag was raised."),
        (("quote",), "没有任何语境标记。"),
        (("fiction",), "It is not fiction."),
        (("joke",), "这不是玩笑。"),
    ):
        yield Claim("flags", text, decided(rated("L1", "critical", 0.9, flags), rated("L2", "critical", 0.9)))


def faithful_claims(seed: int, n: int = 500) -> Iterator[Claim]:
    """True statements about an outcome, in many wordings."""
    rng = random.Random(seed)
    for _ in range(n):
        level = rng.choice(list(SEVERITY))
        o = agreed(level, rng.choice((0.55, 0.62, 0.7, 0.78, 0.88, 0.91, 0.93)))
        one, two = o.l1.confidence, o.l2.confidence
        flag = rng.choice(FLAGS)
        joke = decided(rated("L1", "critical", 0.9, (flag,)), rated("L2", "high", 0.7))
        split = decided(rated("L1", "critical", 0.92), rated("L2", "low", 0.6))
        missing = decided(rated("L1", None), rated("L2", "high", 0.7))
        en, zh = rng.choice(SEVERITY[level]), rng.choice(SEVERITY_ZH[level])
        status_en, status_zh = ("Confirmed.", "已双重确认。") if o.confirmed else ("Not confirmed.", "未确认。")
        yield rng.choice((
            Claim("", f"{rng.choice(SAYS).format(en)} L1 confidence {one:.2f}, L2 confidence {two:.2f}. {status_en}", o),
            Claim("", f"{rng.choice(SAYS_ZH).format(zh)}L1 置信度 {one:.2f}，L2 置信度 {two:.2f}。{status_zh}", o),
            Claim("", f"Both judges rated the text {en}, with {one * 100:.0f}% and {two * 100:.0f}% confidence. No flags.", o),
            Claim("", f"两位评审均判定为{zh}，没有语境标记。{status_zh}", o),
            Claim("", f"{status_en} The level is not {rng.choice([w for w in SEVERITY if w != level])}.", o),
            Claim("", "L1 said critical with confidence 0.92, but L2 said low. The displayed level is critical. Not confirmed.", split),
            Claim("", "L1 判为危急，L2 判为低风险，显示级别为危急，未确认，需要人工复核。", split),
            Claim("", "The first judge was unknown (timeout); the second judge rated it high. The displayed level is high and may be understated.", missing),
            Claim("", "L1 未知（超时）。L2 评为高风险。综合为高风险。未确认。", missing),
            Claim("", f"L1 raised the {flag.replace('_', ' ')} flag, so its raw level critical was capped to medium. Not confirmed.", joke),
            Claim("", "The confidence threshold is 0.85. A person should read this dialogue. The tool contacts nobody.", o),
            Claim("", "置信度阈值为0.85。本工具不会联系任何人，结论仅供参考。", o),
            Claim("", f"Advisory only. {'All six conditions hold.' if o.confirmed else 'Some conditions do not hold.'} A human decides.", o),
        ))  # fmt: skip
