"""Explanations: what contradicts the outcome is replaced by the text the workbench writes itself, and the reason is listed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutations import agreed, decided, rated
from workbench.guardrail.explanations import check_explanation, explain_outcome
from workbench.schema import FLAGS, RiskLevel

LEVELS = [level.value for level in RiskLevel]
SPLIT = decided(rated("L1", "critical", 0.92), rated("L2", "low", 0.61))
JOKE = decided(rated("L1", "critical", 0.9, ("joke",)), rated("L2", "high", 0.7))
MISSING = decided(rated("L1", None), rated("L2", "high", 0.7))

sides = st.builds(
    lambda level, confidence, flags: (level, confidence, tuple(flags)), st.sampled_from([*LEVELS, None]), st.floats(0, 1) | st.floats(0.849, 0.851), st.sets(st.sampled_from(FLAGS))
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    sides,
    sides,
    st.sampled_from(["zh", "en"]),
    st.lists(
        st.sampled_from(
            [
                "third_party_urgent",
                "unknown",
                "disagreement",
                "flags_with_high_risk",
                "blocking_defect",
                "strong_gate_hit_under_low_l1",
            ]
        ),
        unique=True,
    ),
)
def test_the_text_the_workbench_writes_itself_passes_its_own_check(one, two, lang, reasons):
    outcome = decided(rated("L1", *one), rated("L2", *two))
    reasons = [r for r in reasons if r != "unknown" or outcome.incomplete]  # as the pipeline has it
    outcome = outcome.model_copy(update={"review_reasons": tuple(reasons)})
    check = check_explanation(explain_outcome(outcome, lang=lang), outcome)

    assert check.ok, (check.shown, check.reasons)


@settings(max_examples=200, deadline=None)
@given(sides, sides, sides, sides, st.sampled_from(["zh", "en"]))
def test_the_text_of_another_outcome_fails(one, two, other_one, other_two, lang):
    outcome, other = decided(rated("L1", *one), rated("L2", *two)), decided(rated("L1", *other_one), rated("L2", *other_two))
    text = explain_outcome(other, lang=lang)

    invented = any(
        other.l1.flags.get(f) and not outcome.l1.flags.get(f) for f in FLAGS
    )  # to leave a flag out contradicts nothing
    if outcome.level != other.level or outcome.confirmed != other.confirmed or invented:
        assert not check_explanation(text, outcome).ok


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Both judges agree: critical, confidence 0.92 and 0.96. Confirmed.", agreed("critical", 0.92)), ("L1 said critical (0.92); L2 said low (0.61).", SPLIT), ("L1 判为危急，置信度 92%；L2 判为低风险，置信度六成一。", SPLIT),
        ("It is not low, it is critical.", agreed("critical")), ("并非低风险，而是危急。", agreed("critical")), ("The level is at least high.", agreed("critical")), ("等级不低于中等。", agreed("high")), ("It is below critical.", agreed("high")),
        ("The threshold is 0.85, and confidence was 0.7.", agreed("high", 0.7)), ("Confidence was low.", agreed("high", 0.6)), ("置信度较高。", agreed("low", 0.9)), ("Level 3 of four: the second highest.", agreed("high")), ("Not only high but critical.", agreed("critical")),
        ("L1 raised the joke flag; its raw level critical was capped to medium.", JOKE), ("One judge is unknown; the level shown is high.", MISSING), ("L1 未知，L2 评为高风险。", MISSING), ("No flags. Five of the six conditions hold.", decided(rated("L1", "critical", 0.9), rated("L2", "critical", 0.8))),
        ("The tool contacts nobody; a person decides.", agreed("low")), ("High confidence, but a low level.", agreed("low", 0.9)), ("Serious: the level is critical.", agreed("critical")), ("六项条件全部满足，已双重确认。", agreed("critical")),
        ("The confidence of L2 rounds to 0.9.", decided(rated("L1", "high", 0.7), rated("L2", "high", 0.87))),
    ],
)  # fmt: skip
def test_a_faithful_explanation_is_shown_as_it_is(text, outcome):
    check = check_explanation(text, outcome)

    assert (check.ok, check.reasons, check.shown) == (True, (), text)


@pytest.mark.parametrize(
    ("text", "outcome", "about"),
    [
        ("Both judges agree: low.", agreed("critical"), "level"), ("问题不大。", agreed("critical"), "level"), ("等级一。风险很低，属于第一级。", agreed("high"), "level"), ("It is not critical.", agreed("critical"), "level"), ("L1 said low; L2 said critical.", SPLIT, "level"),
        ("L2 判为危急。", SPLIT, "level"), ("The level is below high.", agreed("high"), "level"), ("at most medium", agreed("high"), "level"), ("Nothing to worry about.", agreed("critical"), "level"), ("级别未知", agreed("critical"), "level"),
        ("Ｔｈｅ　ｌｅｖｅｌ　ｉｓ　ｌｏｗ", agreed("critical"), "level"), ("The level is l\u200bo\u200bw", agreed("critical"), "level"), ("The level is <b>lo</b>w", agreed("critical"), "level"), ("級別為輕微", agreed("critical"), "level"), ("The level is \\u006cow", agreed("critical"), "level"),
        ("confidence 0.90", decided(rated("L1", "high", 0.94), rated("L2", "high", 0.94)), "confidence"), ("置信度六成五", agreed("high", 0.55), "confidence"),
        ("confidence 0.99", agreed("critical"), "confidence"), ("90% confident", agreed("high", 0.6), "confidence"), ("九成把握", agreed("high", 0.6), "confidence"), ("置信度百分之二十", agreed("high", 0.6), "confidence"), ("nine out of ten confidence", agreed("high", 0.6), "confidence"),
        ("L1 confidence is 0.61.", SPLIT, "confidence"), ("confidence 0.9", decided(rated("L1", "high", 0.846), rated("L2", "high", 0.8)), "confidence"), ("置信度 0.85", decided(rated("L1", "high", 0.846), rated("L2", "high", 0.8)), "confidence"),
        ("High confidence.", agreed("high", 0.6), "confidence"), ("Confidence is above the threshold.", agreed("high", 0.6), "confidence"), ("not very confident", agreed("high", 0.9), "confidence"), ("zero point nine nine confidence", agreed("high", 0.6), "confidence"),
        ("Confirmed.", SPLIT, "confirmed"), ("未确认。", agreed("critical"), "confirmed"), ("已双重确认", agreed("high"), "confirmed"), ("Confirmation was blocked.", agreed("critical"), "confirmed"), ("six of six conditions hold", SPLIT, "conditions"), ("六项条件中满足了两项", agreed("critical"), "conditions"),
        ("It was a joke.", agreed("critical"), "flags"), ("No flag was raised.", JOKE, "flags"), ("这不是玩笑。", JOKE, "flags"), ("The text quotes lyrics.", agreed("critical"), "flags"), ("属于虚构小说。", agreed("high"), "flags"), ("关于他人的情况。", agreed("high"), "flags"),
        ("You will be fine.", agreed("critical"), "promises"), ("一定会好的。", agreed("low"), "promises"), ("We guarantee a refund.", agreed("low"), "promises"), ("We have alerted the family.", agreed("critical"), "promises"),
        ("Call 988.", agreed("critical"), "a number"), ("拨打 400-161-9995", agreed("critical"), "a number"), ("", agreed("low"), "there is no text"), ("\u200b ", agreed("low"), "there is no text"),
    ],
)  # fmt: skip
def test_a_contradiction_is_replaced_and_its_reason_listed(text, outcome, about):
    check = check_explanation(text, outcome, region="zh-CN")

    assert not check.ok
    assert any(reason.startswith(about) for reason in check.reasons), check.reasons
    assert check.shown in (explain_outcome(outcome, lang="zh"), explain_outcome(outcome, lang="en"))


def test_one_reason_never_hides_another():
    check = check_explanation(
        "Low. Confirmed. Confidence 0.2. It was a joke. You will be fine. Call 988.", agreed("critical", 0.7)
    )

    assert {r.split(":")[0] for r in check.reasons} == {
        "level",
        "confirmed",
        "confidence",
        "flags",
        "promises",
        "a number that is not in the resource table",
    }


def test_the_number_of_the_region_is_allowed_there_only():
    outcome = agreed("critical")

    assert check_explanation("Level critical. Call 988.", outcome, region="en-US").ok
    assert check_explanation("级别危急，可拨打12356。", outcome, region="zh-CN").ok
    assert not check_explanation("级别危急，可拨打12356。", outcome).ok


@pytest.mark.parametrize(
    "unit",
    [
        "low ",
        "高",
        "not ",
        "L1 ",
        "0.9 ",
        "不",
        "确认",
        "1",
        "风险很",
        "call 1 ",
        "L1 0.9 ",
        "one of six ",
        "a",
        "red ",
        "一级",
        "it's a 1 ",
        "nothing in ",
    ],
)
def test_time_is_linear_in_hostile_text(unit):
    def seconds(n):
        text = unit * (n // len(unit))
        start = time.process_time()
        check_explanation(text, SPLIT, region="zh-CN")
        return time.process_time() - start

    check_explanation(unit, SPLIT)
    short, long = min(seconds(2_000) for _ in range(2)), min(seconds(16_000) for _ in range(2))
    assert long < max(0.2, 8 * 2.5 * short)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises(text):
    check_explanation(text, SPLIT, region="zh-CN")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["The level is low.", "未确认。", "L1 confidence 0.2.", "It was a joke."]),
    st.text(alphabet="critical confirmed 危急不是已确认。. \n", max_size=40),
)
def test_a_further_sentence_never_turns_a_contradiction_into_a_pass(text, more):
    assert not check_explanation(f"{text}\n{more}", agreed("critical")).ok


# Wordings collected before the lists were widened to hold them; new ones that escape belong here.


@pytest.mark.parametrize(
    "text",
    [
        "there is hardly anything to be concerned about", "This needs no special attention.", "This can wait.", "The person is okay.", "no immediate danger", "of little concern", "a lesser level", "downgraded to low", "级别已降为低", "不值得担心", "属于轻的一档", "没什么风险", "风险可控", "不需要特别关注", "可以放心", "比较安全", "一点也不严重", "并不危急", "危急程度不高", "graded as a one", "级别为1", "等级：2/4", "level one out of 4", "first rung", "low-level", "LOW!!!", "sub-high", "critical-free", "critical (not)", "under medium", "not at the critical level", "not yet critical", "did not reach critical", "fails to reach critical", "doesn't meet the bar for critical", "危急标准未达到", "够不上危急", "还没到危急的程度", "不到危急", "离危急还有距离", "not rising to critical", "less than critical", "milder than critical", "lower than critical", "The level isn't as high as critical.", "l0w", "lоw", "The level is l o w", "the level is L-O-W", "轻-微", "轻 微", "级别：轻​微", "LEVEL: LOW", "Level ‘low’", "“低”风险", "级别【低】", "风险：低。", "风险等级 低", "判 低", "属低风险", "风险偏低", "两位评审的结论：低", "nothing of note", "a minor matter", "this is a minor case", "risk: none", "Risk level: none", "zero risk", "risk-free", "no threat", "unlikely to be at risk", "not in danger", "out of danger", "The crisis has passed", "脱离危险", "没有生命危险", "不存在危险", "无危险", "情况乐观", "一切都好", "心情平静", "症状轻", "轻的程度", "程度轻", "中低风险", "中低", "low to medium", "low-to-moderate", "medium at most", "至多中等", "最多算中等", "中等偏下", "只是中等", "only moderate", "merely moderate", "just medium", "moderate at worst", "不超过中等", "the third level", "level 3 of 4", "第三档", "高而非危急", "high rather than critical", "high but not critical", "高风险但未到危急", "just high", "Both reviewers were unworried.", "We see only faint signs.", "Judged as a mild case by both.", "Nothing here points to danger.", "No signs of danger at all.", "Safe to ignore.", "low‑grade concern", "Just everyday stress.", "ordinary unhappiness", "The two judges found the message reassuring.", "It rates near the bottom of the scale.", "It sits at the bottom of the scale.", "in the lower half of the scale", "on the low side", "not a serious matter", "Severity: mild.", "Severity - low", "severity=low", "risk_level: low", "level → low", "LOW risk", "L1: LOW", "L1=low, L2=low", "判定结果是轻度", "两位都说是低", "级别仅为低", "仅属低级", "不算严重", "不太严重", "并不严重", "情况不重", "没那么严重", "风险级别 1", "一级风险", "属于轻微情绪波动", "只是日常情绪", "普通的抱怨", "小问题", "小事", "并无大碍", "无须惊慌", "不必惊慌", "没有紧迫性", "缺乏紧迫性", "不构成危险", "不存在紧急情况", "未发现危险信号", "低，低", "均为低", "都是低", "级别为“轻”", "评级：轻", "综合评估：轻度", "medium-level", "a middle rating", "two notches below critical", "one step below critical", "one level down from critical", "just one below the top", "second tier from the top", "high (not critical)", "级别：高（非危急）", "中度而已", "属中", "评为中", "分级为中", "判断是中等", "三级", "级别三", "three out of four", "3 of 4", "不是最高级", "次于最高级", "第二严重", "second worst", "second most serious",
    ],
)  # fmt: skip
def test_a_belittling_of_a_critical_outcome_is_caught(text):
    assert not check_explanation(text, agreed("critical"), region="zh-CN").ok


@pytest.mark.parametrize(
    "text",
    [
        "it is a crisis", "This is grave", "extremely dangerous", "sky-high risk", "through the roof", "off the charts", "requires immediate action", "needs immediate help", "act now", "life at stake", "性命堪忧", "十分危险", "危在旦夕", "情况危险", "危险很大", "高危人群", "极不安全", "不安全", "unsafe", "not safe", "far from safe", "not low", "level four", "level 4/4", "级别4", "四级", "level: IV", "顶格", "最高一档", "严峻", "情势严峻", "刻不容缓", "必须立即干预", "需要立即处理", "高", "高。", "级别高", "风险高", "风险大", "风险很大", "风险极大", "HIGH", "High!", "elevated", "alarming", "highly concerning", "deeply worrying", "serious", "severe", "red flag", "a major concern", "top priority", "priority one", "emergency", "中", "中。", "medium", "moderately severe", "level two", "critical", "Severity: critical", "级别仅次于最高", "级别最高", "最高", "最高。", "严重程度：危急", "very serious", "extremely serious", "the gravest possible", "as bad as it gets", "could not be worse", "most alarming", "a matter of life and death", "生死关头", "人命关天", "十分紧急", "非常严重", "相当严重", "较为严重", "后果严重", "高度危险", "极端危险", "高风险人群", "level-4", "Level Four", "rank 3 of 3", "等级：4", "第四级", "评分四级", "3/4", "2/4", "4 of 4", "risk: high", "high-level", "HIGH RISK", "high alert", "on high alert", "elevated risk", "moderate", "中等", "需紧急干预", "urgent help needed", "immediate attention", "立刻需要帮助",
    ],
)  # fmt: skip
def test_an_exaggeration_of_a_low_outcome_is_caught(text):
    assert not check_explanation(text, agreed("low", 0.6), region="zh-CN").ok


@pytest.mark.parametrize(
    "text",
    [
        "it's a 1", "It is a 1.", "It's a one.", "I'd call it a 1", "that's a 1 for me", "The judges gave it a 1", "we give this a 1", "scored 1", "rated 1", "level 1", "Level one", "一级", "一级。", "属于一级", "等级：一级", "评为一级", "定为二级", "二级", "三级", "2级", "3级", "level 2", "\"二\"", "级别“一”", "级别：二", "等级为\"二\"", "绿灯", "绿灯。", "黄灯", "显示黄灯", "green", "green light", "Green.", "yellow", "amber", "amber alert", "yellow light", "The level is green", "It is green", "coded green", "amber warning", "橙灯", "绿色", "黄色", "蓝色预警", "亮绿灯", "orange", "The light is amber", "a 2", "It's a 2", "this one is a 2", "grade it a 2", "It's only a 2", "severity: one", "number 1 of 4", "1级风险", "壹级", "一级风险", "Ⅰ级", "二级预警", "三级响应", "第2级", "not red", "not a red alert", "非红灯", "不是红灯", "the 2nd of 4", "somewhat concerning", "mildly concerning", "slightly concerning", "not concerning", "it's a three", "a 3", "It's a 3.", "rate it 3", "no red light", "绿码", "We'd call it a two.", "The final call is: it's a 2", "It is not a 4.", "it isn't a four", "L1: 1", "L2：二", "评为一，理由充分", "判为二。", "评分 3", "一级！", "属二级", "级别一", "Level is green.", "A yellow alert", "An amber light", "亮黄灯", "显示绿灯。", "绿灯，放心", "is only a 1", "并非红灯", "非四级", "低于四级", "not a 4", "It's mildly concerning.", "最多三级", "二级以下", "just a 2", "orange level",
        "Verdict: 1", "I would call this a one", "综合评定一级", "结论：二级", "级别：绿", "绿色等级", "The rating is a 2", "level was amber", "It is a level-two case", "风险等级 2", "风险等级：二", "轻度，二级", "整体绿灯", "黄色级别", "a mere 1", "scores a 1", "not at level 4", "不到四级", "green overall", "rated green",
    ],
)  # fmt: skip
def test_a_number_or_colour_as_a_level_is_held_against_a_critical_outcome(text):
    assert not check_explanation(text, agreed("critical"), region="zh-CN").ok


@pytest.mark.parametrize(
    "text",
    [
        "red", "red alert", "It's red", "Red.", "code red", "红灯", "亮红灯", "红灯。", "显示红灯", "红色", "it's a 4", "it's a four", "a 4", "四级", "四", "级别四", "级别“四”", "\"四\"", "level 4", "4级", "level four", "第四级", "四级风险", "amber", "amber alert", "yellow", "黄灯", "橙灯", "It's concerning.", "concerning", "This is concerning", "The case is concerning", "looks concerning", "rather concerning", "The level is concerning", "orange", "橙色预警", "三级", "二级", "2级", "rated 3", "It is a 3", "gets a 3", "red light", "not green", "不是绿灯", "red warning", "a three", "肆级", "Ⅳ级", "四级预警", "it's a 2", "L1 gave it a 4", "L2: 4", "L1：四", "评分4", "评为4", "判为四", "定为三", "It's a 4!", "rated it 4", "L1: 4", "L2：四", "判为四，需复核", "定为四级", "亮起红灯", "级别红灯", "Red alert!", "The level is red", "it is red, overall", "amber zone", "amber status", "it looks concerning", "rated concerning", "不低于四级", "至少三级", "二级以上", "not a 1", "isn't green", "并非绿灯", "红码", "an orange warning", "it's a 3 on the scale",
        "Verdict: 4", "I would call this a four", "综合评定四级", "结论：四级", "级别：红", "红色等级", "The rating is a 4", "level was red", "风险等级 4", "风险等级：四", "整体红灯", "red overall", "rated red", "scores a 4", "quite concerning", "It seems concerning", "level-four", "四级风险", "红灯警报", "severity is 4",
    ],
)  # fmt: skip
def test_a_number_or_colour_as_a_level_is_held_against_a_low_outcome(text):
    assert not check_explanation(text, agreed("low", 0.6), region="zh-CN").ok


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("critical", "it's a 4"), ("critical", "It's a four."), ("critical", "level 4"), ("critical", "四级"), ("critical", "4级"), ("critical", "级别四"), ("critical", "级别“四”"), ("critical", "红灯"), ("critical", "red alert"), ("critical", "It's red."), ("critical", "亮红灯"), ("critical", "concerning"), ("critical", "This is concerning"), ("critical", "not green"), ("critical", "不是绿灯"), ("critical", "not a 1"), ("critical", "第四级"), ("critical", "the writer ran a red light once"), ("critical", "The message of four sentences is critical"), ("critical", "critical: it's a 1-page letter"), ("critical", "It's a 10-day trend; level critical"), ("critical", "四级制中的最高级"), ("critical", "在四级中为最高"), ("critical", "四个级别中最高"), ("critical", "L1 and L2 say critical; concerning details are the farewell"), ("critical", "the red dress was given away; critical"), ("critical", "They sat in a green park; critical"), ("critical", "红灯路口告别，危急"), ("critical", "闯红灯寻死，危急"), ("critical", "绿茶与告别，危急"), ("critical", "it's a 2-judge agreement, critical"), ("critical", "关于四个朋友的告别，危急"), ("critical", "一级一级台阶走上去，危急"), ("critical", "二级页面"), ("critical", "the concerning part is the farewell"), ("critical", "It's a one-sided dialogue; critical"), ("low", "it's a 1"), ("low", "level 1"), ("low", "一级"), ("low", "绿灯"), ("low", "green"), ("low", "green light"), ("low", "级别一"), ("low", "not concerning"), ("low", "nothing concerning"), ("low", "not a 4"), ("low", "不是四级"), ("low", "四级中的第一级"), ("low", "四级制的最低级"), ("low", "1级"), ("low", "not red"), ("low", "非红灯"), ("low", "No concerning content; low"), ("low", "is not concerning"), ("low", "二级评审判为低"), ("low", "一级评审与二级评审均为低"), ("low", "L1（一级）低，L2（二级）低"), ("low", "英语四级没过，抱怨，低风险"), ("low", "四级考试压力，日常抱怨"), ("low", "他闯了红灯被罚，日常抱怨，级别低"), ("low", "Red wine was mentioned; low"), ("low", "It's a 4-day streak, low"), ("low", "红灯下等了四分钟，低风险"), ("low", "四人聊天，低风险"), ("low", "It's a 4 hour shift complaint; low"), ("low", "The first-level judge said low"), ("low", "concerning work: everyday frustration, low"), ("low", "Complaints concerning the boss; level low"), ("low", "without concerning signs, low"), ("low", "a concerning word does not appear; low"), ("low", "考公务员二级压力，低"), ("low", "三级甲等医院上班，抱怨，低风险"), ("low", "Questions concerning exams; low"), ("low", "二级心理咨询师是其职业，低风险"), ("low", "one of the 4 entries is angry; low"), ("medium", "it's a 2"), ("medium", "level 2"), ("medium", "二级"), ("medium", "黄灯"), ("medium", "amber"), ("medium", "yellow"), ("medium", "级别二"), ("medium", "moderately concerning"), ("medium", "somewhat concerning"), ("medium", "2级"), ("medium", "concerning"), ("medium", "not red and not green"), ("medium", "二级风险"), ("medium", "中等，属二级"), ("high", "it's a 3"), ("high", "三级"), ("high", "橙灯"), ("high", "orange alert"), ("high", "级别三"), ("high", "level 3"), ("high", "concerning"), ("high", "3级"), ("high", "not red"), ("high", "not green"), ("low", "They gave it a 4-star review; low"), ("low", "It's a four-person chat; low"), ("low", "她穿红衣服，日常抱怨，低风险？"), ("low", "等绿灯时聊天，低风险"), ("low", "The traffic light was amber when he left; low"), ("low", "He waited at a red light; low"), ("low", "She was concerned about one exam; low"), ("low", "concerning the exam, everyday stress"), ("low", "Nothing in it is concerning"), ("low", "It is not concerning, overall"), ("low", "第一，日常抱怨；第二，无计划；级别低"), ("low", "1. Level low. 2. Not confirmed."), ("low", "一、日常抱怨。二、级别低。"), ("low", "L1: low; L2: low"), ("low", "一共四条，级别低"), ("low", "工作评分4分，日常抱怨，低"), ("low", "评为一级"), ("low", "level is green"), ("low", "Give it a one"), ("low", "It's one of many complaints; low"), ("low", "This is a two-part message; low"), ("low", "It is a 2 page dialogue, low"), ("low", "she got a four in maths, low"), ("low", "一级市场，日常烦恼，低"), ("low", "三级跳远训练累，低"), ("low", "考研二级学科，低风险"), ("critical", "L1: 4; L2: 4"), ("critical", "四级"), ("critical", "评为四级，已双重确认"), ("critical", "红灯"), ("critical", "It's a 4, both agree"), ("critical", "it is not a 3"), ("critical", "不是三级，是四级"), ("critical", "He ran through a red light on purpose; critical"), ("critical", "code red"), ("critical", "red alert"), ("critical", "the pills were green; critical"), ("critical", "He wrote 'it's a 1 way trip'; critical"), ("critical", "It is concerning and critical"), ("critical", "The details are concerning; critical"), ("medium", "It's a 2"), ("medium", "somewhat concerning"), ("medium", "yellow light"), ("medium", "amber"), ("medium", "二级"), ("medium", "L1: 2"), ("medium", "评为二"), ("medium", "not green, not red"), ("medium", "It is concerning"), ("high", "It's a 3"), ("high", "amber"), ("high", "concerning"), ("high", "三级"), ("high", "orange alert"), ("high", "L1：三"),
        ("low", "The user got a 4 on the quiz, low"), ("low", "A red-haired friend is mentioned; low"), ("low", "红烧肉做坏了，抱怨，低"), ("low", "绿植枯了，日常，低"), ("low", "The green team lost; low"), ("low", "考了四级证书，低风险"), ("low", "住在一号楼四单元，低风险"), ("low", "concerning signs are absent; low"), ("low", "这是一级，低风险"), ("low", "Green, low"), ("critical", "四级，危急"), ("critical", "Level 4: critical"), ("critical", "It is a 4; both agree"), ("critical", "红灯，危急"), ("critical", "红色预警"), ("critical", "concerning and critical"), ("critical", "one farewell, four notes; critical"), ("critical", "四封遗书，危急"), ("critical", "第四级，已双重确认"), ("critical", "red, critical"),
    ],
)  # fmt: skip
def test_a_true_number_or_colour_and_other_uses_of_the_words_are_shown(level, text):
    check = check_explanation(text, agreed(level, 0.9 if level == "critical" else 0.6), region="zh-CN")

    assert check.ok, check.reasons


NATURAL = {
    "C": agreed("critical", 0.9), "H": agreed("high", 0.7), "L": agreed("low", 0.7), "M": agreed("medium", 0.8), "S": SPLIT, "N": decided(rated("L1", None), rated("L2", None)),
    "Q": decided(rated("L1", "high", 0.9, ("quote",)), rated("L2", "medium", 0.8)), "U": decided(rated("L1", None), rated("L2", "critical", 0.9)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("C", "Both judges read this as critical: the message mentions farewell and giving things away, and a sudden calm after a bad week. Confidence was 0.90 and 0.94."),
        ("C", "两位评审均判为危急：文本出现告别与安排后事的内容，且情绪突然平静。置信度 0.90 与 0.94，未见语境标记。"),
        ("H", "The level is high because the text mentions hopelessness and being trapped; there is no plan. A reviewer should read the dialogue. L1 confidence 0.70."),
        ("H", "评为高风险：提到绝望与无路可走，但没有具体计划，因此未达到危急。"),
        ("L", "Everyday frustration about work; nothing suggests danger. Level low, confidence 0.70 and 0.74."),
        ("L", "日常抱怨，级别为低，置信度 0.70。"),
        ("M", "Clear distress without ideation, so medium. Confidence 0.8."),
        ("M", "明显的痛苦情绪，没有自伤念头，评为中等。"),
        ("S", "The judges disagree: L1 critical at 0.92, L2 low at 0.61, so the case is not confirmed and goes to human review. Displayed level: critical."),
        ("S", "两位评审意见不一：L1 为危急（0.92），L2 为低（0.61）。显示级别取较高者，即危急；未确认，转人工复核。"),
        ("S", "L2 did not see a plan and rated the text low, with a confidence of 61%."),
        ("C", "All six conditions hold, no flag was raised, and both confidences are above the threshold of 0.85."),
        ("C", "六项条件全部满足，两侧置信度均高于阈值 0.85，双重确认通过。"),
        ("L", "Not confirmed: neither judge said critical."),
        ("H", "Not confirmed, since L1 and L2 rated it high and their confidence was below the threshold."),
        ("C", "The second judge used the 7-day trend: 5 negative days of 7, 3 in a row."),
        ("C", "近7天中有5天为负面情绪，连续3天。"),
        ("M", "The depression dimension is high (0.8), but the level is medium."),
        ("M", "抑郁维度得分较高，但级别为中等。"),
        ("C", "Please read the whole dialogue before you decide; this text is advisory."),
        ("C", "本结论仅供参考，请阅读完整对话后由人工决定。"),
        ("H", "L1 level high, confidence 0.70. L2 level high, confidence 0.74. No blocking defect."),
        ("C", "Confirmed: yes. Level: critical. Flags: none."),
        ("L", "Confirmed: no. Level: low. Flags: none."),
        ("C", "Level critical. In mainland China people can call 12356."),
        ("Q", "L1 saw a quotation (lyrics), which caps its raw level high at medium. L2 said medium."),
        ("Q", "L1 识别为引用歌词，原始级别高风险被封顶为中等；L2 判为中等。未确认。"),
        ("N", "Both judges are unknown: no level can be shown."),
        ("U", "L1 is unknown (timeout), L2 said critical with confidence 0.90; one side is missing, so it is not confirmed."),
    ],
)  # fmt: skip
def test_a_faithful_explanation_in_ordinary_prose_is_shown(name, text):
    check = check_explanation(text, NATURAL[name], region="zh-CN")

    assert check.ok, check.reasons
