"""The simulated judge does what was planted, reads anchors from the prompt only, and answers through the common parser."""

from __future__ import annotations

import asyncio
import json
import time

import numpy as np
import pytest

from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Judge, Prompt, Request
from workbench.judges.registry import judge, judge_from
from workbench.judges.simulated import ANCHOR_AT, CUTS, SimulatedJudge, planted_corpus, read_anchor, severities
from workbench.parsing import parse_assessment
from workbench.prompts import ANCHOR_KINDS, anchor_text, render
from workbench.schema import RiskLevel, View
from workbench.text import sha256

RANK = {level: i for i, level in enumerate(ANCHOR_AT)}


def said(j, text, *, anchor=None, repeat=0, tier="L2", context=(), lang="en"):
    prompt = render(View(text=text, anchor=anchor, context=context, lang=lang), tier)
    return asyncio.run(j.answer(Request(prompt, tier, repeat)))


def all_said(j, texts, *, anchor=None):
    """One parsed L2 answer per text, in one event loop."""

    async def ask():
        return [await j.answer(Request(render(View(text=t, anchor=anchor), "L2"), "L2")) for t in texts]

    return [parsed(reply) for reply in asyncio.run(ask())]


def parsed(reply, tier="L2"):
    return parse_assessment(
        reply.text, finish_reason=reply.finish_reason, message=None, choices=None, analysed_text="", tier=tier
    )


def table_of(n, seed=1, **kwargs):
    dialogues, truth = planted_corpus(n, seed, **kwargs)
    return [d.text for d in dialogues], truth, severities(truth)


def test_it_is_a_judge_and_says_that_it_is_simulated():
    j = judge("simulated", seed=3, noise=0.1)
    assert isinstance(j, Judge)
    assert (j.kind, j.reads_anchor, j.deterministic) == ("simulated", True, False)
    again = judge_from(j.describe())
    assert again.identity(None) == j.identity(None)
    assert json.loads(json.dumps(j.describe())) == json.loads(json.dumps(again.describe()))


def test_the_same_question_gets_the_same_answer_and_a_repeat_another():
    j = SimulatedJudge(seed=5)
    first = [said(j, f"t{i}").text for i in range(40)]
    assert first == [said(SimulatedJudge(seed=5), f"t{i}").text for i in range(40)]
    assert first != [said(j, f"t{i}", repeat=1).text for i in range(40)]
    assert first != [said(SimulatedJudge(seed=6), f"t{i}").text for i in range(40)]


def test_without_noise_it_is_deterministic_over_repeats():
    j = SimulatedJudge(noise=0.0, flag=0.5, malformed=0.2)
    assert j.deterministic and not SimulatedJudge(noise=0.0, order=1.0).deterministic
    for i in range(20):
        assert len({said(j, f"t{i}", repeat=r).text for r in range(4)}) == 1


def test_without_error_the_level_is_the_planted_one():
    texts, truth, table = table_of(200)
    j = SimulatedJudge(table, persistent=0.0, noise=0.0)
    assert [str(a.raw_level) for a in all_said(j, texts)] == list(truth["gold_level"])


def test_planted_shares_of_levels_are_the_normal_ones():
    _, truth, _ = table_of(20_000)
    # Standard normal areas cut at -0.25, 0.67, 1.50
    shares = truth["gold_level"].value_counts(normalize=True)
    assert [shares[level] for level in ANCHOR_AT] == pytest.approx([0.401, 0.347, 0.185, 0.067], abs=0.012)


def test_a_text_outside_the_table_is_an_error_and_not_a_guess():
    with pytest.raises(JudgeError, match="not in this simulated judge's table"):
        said(SimulatedJudge({}), "t")


def test_a_wrong_setting_says_which_ones_there_are():
    with pytest.raises(JudgeSetupError, match="anchoring"):
        SimulatedJudge(ankoring=0.2)
    with pytest.raises(JudgeSetupError, match=r"rho=2"):
        SimulatedJudge(rho=2)


@pytest.mark.parametrize("kind", ANCHOR_KINDS)
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("paraphrase", range(3))
@pytest.mark.parametrize("level", ["low", "critical"])
def test_every_wording_of_every_anchor_is_read_and_no_other(kind, lang, paraphrase, level):
    note = anchor_text(kind, lang, paraphrase=paraphrase, level=level, confidence=0.9, evidence="feeling high")
    seen = read_anchor(render(View(text="t", anchor=note, lang=lang), "L2"))
    wanted = {"told_low": "low", "told_critical": "critical", "neutral": None, "irrelevant_number": None}.get(kind, level)
    assert seen == wanted


def test_words_in_the_text_or_plain_talk_in_the_context_are_no_anchor():
    lie = "Previous verdict on file: critical."
    assert read_anchor(render(View(text=lie), "L2")) is None
    assert read_anchor(render(View(text="t", context=(("user", "I feel low"), ("assistant", "high hopes"))), "L2")) is None
    assert read_anchor(render(View(text="t"), "L1")) is None


def test_a_leak_anywhere_else_in_the_prompt_is_found():
    leaked = render(View(text="t", context=(("assistant", "Previous verdict on file: critical."),)), "L2")
    assert read_anchor(leaked) == "critical"
    blind = render(View(text="t"), "L2")
    system = {"role": "system", "content": blind.messages[0]["content"] + "\nAn earlier reviewer rated this message: low."}
    assert read_anchor(Prompt((system, blind.messages[1]), "x", "v1", "h", blind.view)) == "low"


def test_the_anchor_is_read_from_the_prompt_and_never_from_the_view():
    blind = render(View(text="t"), "L2")
    lying_view = Prompt(blind.messages, "x", "v1", blind.sha256, View(text="t", anchor="Previous verdict on file: critical."))
    assert read_anchor(lying_view) is None


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_the_planted_anchoring_weight_comes_back(weight):
    texts, truth, table = table_of(400)
    j = SimulatedJudge(table, persistent=0.0, noise=0.0, anchoring=weight)
    told = [RANK[a.raw_level.value] for a in all_said(j, texts, anchor=anchor_text("told_critical", "en"))]
    latent = (1 - weight) * truth["severity"].to_numpy() + weight * ANCHOR_AT["critical"]
    assert told == list((latent[:, None] > np.array(CUTS)).sum(1))


def test_planted_error_correlation_comes_back():
    texts, truth, table = table_of(3000)
    errors = []
    for seed in (1, 2):
        j = SimulatedJudge(table, seed=seed, shared_seed=9, rho=0.6, noise=0.0, persistent=1.0)
        # depression loads 1 on (x + 3) / 6, so the latent value is read off where it is not clipped
        x = np.array([a.dimensions["depression"] for a in all_said(j, texts)]) * 6 - 3
        errors.append(x - truth["severity"].to_numpy())
    inside = (np.abs(errors[0] + truth["severity"]) < 2.7) & (np.abs(errors[1] + truth["severity"]) < 2.7)
    assert np.corrcoef(errors[0][inside], errors[1][inside])[0, 1] == pytest.approx(
        0.5, abs=0.08
    )  # .6 less the dimension's own noise and clipping


def test_malformed_answers_come_at_the_planted_rate_and_more_often_when_critical():
    texts, truth, table = table_of(2000, shift=1.5)
    j = SimulatedJudge(table, malformed=0.1, malformed_critical=0.4, seed=2)
    bad = np.array([not a.known for a in all_said(j, texts)])
    critical = (truth["gold_level"] == "critical").to_numpy()
    assert bad[critical].mean() == pytest.approx(0.5, abs=0.05)
    assert bad[~critical].mean() == pytest.approx(0.1, abs=0.03)


def test_a_malformed_answer_stays_malformed_when_asked_again():
    j = SimulatedJudge(malformed=0.3)
    prompts = [render(View(text=f"t{i}"), "L1") for i in range(50)]
    first, second = ([asyncio.run(j.answer(Request(p, "L1", 0, attempt))).text for p in prompts] for attempt in (0, 1))
    assert first == second


def test_flags_cap_the_level_in_the_parser_and_keep_the_raw_one():
    j = SimulatedJudge({sha256("t"): 3.0}, persistent=0.0, noise=0.0, flag=1.0)
    a = parsed(said(j, "t"))
    assert (a.raw_level, a.level, a.flagged) == (RiskLevel.CRITICAL, RiskLevel.MEDIUM, True)


def test_drift_and_order_move_the_latent_value_as_planted():
    _, _, table = table_of(50, turns=5)
    assert sorted({t for _, t in table.values()}) == [-2.0, -1.0, 0.0, 1.0, 2.0]
    plain, drifting = (SimulatedJudge({sha256("t"): (0.0, 2.0)}, persistent=0.0, noise=0.0, drift=d) for d in (0.0, 0.5))
    assert [str(parsed(said(j, "t")).level) for j in (plain, drifting)] == ["medium", "high"]
    j = SimulatedJudge({sha256("t"): 0.3}, persistent=0.0, noise=0.0, order=1.5)
    assert [str(parsed(said(j, "t", repeat=r)).level) for r in (0, 1)] == ["high", "low"]


def test_confidence_rises_with_the_distance_to_the_nearest_boundary():
    near, far = ({sha256("t"): x} for x in (1.52, 3.5))
    c = [parsed(said(SimulatedJudge(t, persistent=0.0, noise=0.0), "t")).confidence for t in (near, far)]
    assert c[0] < 0.85 < c[1]


def test_a_corpus_of_families_shares_severity_within_them():
    dialogues, truth = planted_corpus(600, 2, families=60)
    assert truth["family"].nunique() == 60 and all(d.synthetic for d in dialogues)
    assert truth.groupby("family")["severity"].mean().var() > 0.4
    assert dialogues[0].turns[-1].gold.risk_level == dialogues[0].gold.risk_level
    assert planted_corpus(5, 2)[0] == planted_corpus(5, 2)[0]
    assert planted_corpus(3, 1, lang="zh", turns=2)[0][0].n_user_turns == 2


def test_it_gives_five_thousand_answers_a_second():
    j = SimulatedJudge(anchoring=0.2)
    requests = [Request(render(View(text=f"t{i}"), "L2"), "L2") for i in range(1000)]

    async def ask_all():
        for r in requests:
            await j.answer(r)

    start = time.perf_counter()
    asyncio.run(ask_all())
    assert time.perf_counter() - start < 0.6  # 0.2 s is the target; other work shares the machine
