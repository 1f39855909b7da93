"""Result objects: numbers bound to estimates, two languages, honest strata, nothing hidden by degenerate input."""

from __future__ import annotations

import csv
import re
import string
from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.text import Text

import workbench as wb
from tests.study_samples import degenerate, planted
from workbench import study
from workbench.confirm import Arm
from workbench.errors import SetupError
from workbench.stats.estimate import Estimate, SignificanceTest
from workbench.study.base import Result, phrases, sentences

ARMS = (
    Arm(),
    Arm(name="told_low", anchor="told_low"),
    Arm(name="told_critical", anchor="told_critical"),
    Arm(name="told_l1", anchor="told_l1"),
)
RUN = {
    "anchoring": study.anchoring, "ablation": study.ablation, "compare": study.compare, "drift": study.drift,
    "independence": study.independence, "thresholds": study.thresholds,
}  # fmt: skip
TEMPLATES = [
    (f"{name}.{key}", phrase)
    for name, part in phrases().items()
    if name not in ("words", "figures")
    for key, phrase in part.items()
]


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    material = planted(150, families=50, repeats=2, arms=ARMS, w=0.2, malformed=0.03, flag=0.05)
    return {name: run(material) for name, run in RUN.items()}


def slots(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_number_in_a_summary_comes_from_an_estimate(results, name, lang):
    result = results[name]
    known = {r.name for r in result.estimates}
    for sentence in result.summary(lang)[1:]:
        rest = str(sentence)
        for part in sorted([*sentence.numbers, *sentence.names], key=len, reverse=True):
            rest = rest.replace(part, "")

        assert not re.search(r"\d", re.sub(r"L[012]\b|L[012](?=\D)", "", rest)), rest
        assert sentence.depends_on and set(sentence.depends_on) <= known


def test_a_summary_follows_its_estimates(results):
    result = results["independence"]
    name = "L1 x L2: joint"
    before = next(s for s in result.summary() if name in getattr(s, "depends_on", ()))
    changed = [replace(r, value=0.123, low=0.1, high=0.2, status="ok") if r.name == name else r for r in result.estimates]

    assert "12.3 % [10.0, 20.0]" in next(
        s for s in replace(result, estimates=changed).summary() if name in getattr(s, "depends_on", ())
    )
    assert "12.3 %" not in before


@pytest.mark.parametrize(("key", "phrase"), TEMPLATES, ids=[k for k, _ in TEMPLATES])
def test_templates_hold_no_number_and_say_the_same_in_both_languages(key, phrase):
    assert slots(phrase["en"]) == slots(phrase["zh"])
    for lang in ("en", "zh"):
        assert not re.search(r"\d", re.sub(r"\{[^}]*\}|L[012]|AC2", "", phrase[lang])), phrase[lang]


@pytest.mark.parametrize("key", phrases()["figures"])
def test_figures_have_their_words_in_both_languages(key):
    words = phrases()["figures"][key]

    assert set(words["en"]) == set(words["zh"])
    assert {k: slots(v) for k, v in words["en"].items()} == {k: slots(v) for k, v in words["zh"].items()}


@pytest.mark.parametrize("name", RUN)
def test_a_simulated_judge_is_labelled_in_every_title_and_table(results, name):
    for lang, mark in (("en", "(simulated)"), ("zh", "(模拟)")):
        for figure in results[name].figures(lang).values():
            assert mark in "".join(a.get_title(loc="left") for a in figure.axes).replace("\n", " ")
    assert results[name].to_frame()["simulated"].all()
    assert "imulated" in results[name].summary()[0]


@pytest.mark.parametrize("name", RUN)
def test_captions_carry_n_families_and_unknowns(results, name):
    for figure in results[name].figures().values():
        shown = " ".join(t.get_text().replace("\n", " ") for t in figure.findobj(Text))

        assert "n = 150 dialogues in 50 families" in shown and "assessments unknown" in shown


def with_arms(material):
    """The degenerate rows once more as told arms, for the studies that need them."""
    arms = ("blind", "told_low", "told_critical", "told_l1")
    return replace(material, frame=pd.concat([material.frame.assign(arm=a) for a in arms], ignore_index=True),
                   outcomes=pd.concat([material.outcomes.assign(arm=a) for a in arms], ignore_index=True))  # fmt: skip


@pytest.mark.parametrize("case", degenerate())
@pytest.mark.parametrize("name", RUN)
def test_degenerate_input_gives_reasons_and_no_silent_number(name, case):
    material = degenerate()[case]
    if name in ("anchoring", "ablation"):
        material = with_arms(material)
        if material.outcomes.empty:
            with pytest.raises(SetupError, match="arm"):
                RUN[name](material)
            return
    result = RUN[name](material)

    for r in result.estimates:
        assert "nan" not in str(r).lower()
        assert r.status == "ok" or r.reason
    for lang in ("en", "zh"):
        assert all("nan" not in s.lower() for s in result.summary(lang))
    for figure in result.figures().values():
        axes = figure.axes[0]
        assert axes.has_data() or "nothing to draw: " in "".join(t.get_text() for t in axes.texts)


def test_held_out_dialogues_stand_beside_all_and_in_sample_ones_are_left_out():
    fresh, seen, used = (
        planted(60, families=30, exposure=e, seed=s) for e, s in (("out_of_fold", 1), ("development", 2), ("in_sample", 3))
    )
    parts = [(m.frame.assign(dialogue_id=m.frame.dialogue_id + tag), m.outcomes.assign(dialogue_id=m.outcomes.dialogue_id + tag))
             for m, tag in ((fresh, "a"), (seen, "b"), (used, "c"))]  # fmt: skip
    both = replace(fresh, frame=pd.concat([f for f, _ in parts]), outcomes=pd.concat([o for _, o in parts]))
    whole = replace(
        both, frame=both.frame[both.frame.exposure != "in_sample"], outcomes=both.outcomes[both.outcomes.exposure != "in_sample"]
    )
    result, alone = study.independence(both), study.independence(fresh)

    assert result["L1 x L2: joint (held out)"].value == alone["L1 x L2: joint"].value
    assert (
        result["L1 x L2: joint"]
        == study.independence(replace(whole, frame=whole.frame.assign(exposure="out_of_fold")))["L1 x L2: joint"]
    )
    assert set(result.frames["pairs"].dialogue_id.str[-1]) == {"a", "b"}
    assert set(result.frames["pairs (held out)"].dialogue_id.str[-1]) == {"a"}
    assert not any("held out" in name for name in result.drawings)


def test_one_judge_that_learnt_from_a_dialogue_takes_it_away_from_all():
    m = planted(40, families=20, exposure="out_of_fold")
    frame = m.frame.assign(
        exposure=[
            "in_sample" if d == "d0001" and t == "L2" else e
            for d, t, e in zip(m.frame.dialogue_id, m.frame.tier, m.frame.exposure, strict=True)
        ]
    )

    assert "d0001" not in set(replace(m, frame=frame).strata()[""].frame.dialogue_id)


def test_only_development_dialogues_say_so_in_the_caption():
    m = planted(30, families=15, exposure="development")

    assert set(m.strata()) == {""}
    assert "development: rules were written" in m.strata()[""].caption()
    assert "开发集" in m.strata()[""].caption("zh")


def result_of(*estimates, says=()) -> Result:
    return Result("compare", {}, list(estimates), says=says)


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (Estimate("x", 0.256, 0.2, 0.3), "25.6 % [20.0, 30.0]"),
        (Estimate("x", 0.0, 0.0, 0.024, n=120, reason="0 of 120, upper 95 % bound 0.024"), "none of 120 (95 % limit 2.4 %)"),
        (Estimate("x", status="not_applicable", reason="fixed"), "not applicable (fixed)"),
        (Estimate("x", 0.5, 0.1, 0.9, status="too_few", reason="few"), "50.0 % [10.0, 90.0] (weak: few families or events)"),
        (Estimate("x", 1e-18, 0.0, 0.1), "0 % [0, 10.0]"),
        (Estimate("head", -2.2e-16, -0.1, 0.1), "kappa of 0.00 [-0.10, 0.10]"),
        (Estimate("x", 0.5, 1e-7, 0.9), "50.0 % [0.01, 90.0]"),
    ],
)
def test_how_a_number_is_written(estimate, shown):
    head = estimate if estimate.name == "head" else Estimate("head", 0.5, 0.4, 0.6)
    says = [
        ("compare.judge", {"quadratic_kappa": "head", "sensitivity": "x", "specificity": "x", "unknown": "x"}, {"judge": "j"})
    ]

    assert shown in result_of(head, replace(estimate, name="x"), says=says).summary()[0]


def test_a_sentence_without_its_subject_gives_the_reason():
    says = [("compare.pair", {"agree": "x", "kappa": "k", "test": "t"}, {"a": "A", "b": "B"})]
    result = result_of(
        Estimate("x", status="undefined", reason="no rows"), Estimate("k", 1.0), SignificanceTest("t", p=0.5), says=says
    )

    assert result.summary() == ["x: not defined (no rows)"]
    assert result.summary("zh") == ["x: 无定义 (no rows)"]
    assert result.summary()[0].depends_on == ("x", "k", "t")


def test_a_phrase_whose_results_are_missing_is_left_out():
    assert result_of(says=sentences("independence")).summary() == []


def test_unknown_names_and_languages_are_refused_with_the_choices(results):
    with pytest.raises(KeyError, match="no result is called"):
        results["compare"]["x"]
    with pytest.raises(SetupError, match="headline"):
        results["independence"].plot("x")
    with pytest.raises(SetupError, match="en, zh"):
        results["compare"].summary("fr")
    with pytest.raises(AttributeError, match="there is no study"):
        study.nothing  # noqa: B018


def test_a_result_saves_tables_figures_and_both_summaries(results, tmp_path):
    result = replace(
        results["compare"], frames=results["compare"].frames | {"odd/name": pd.DataFrame({"text": ["=1+1", "+evil"]})}
    )
    folder = result.save(tmp_path / "out")
    names = {p.name for p in folder.iterdir()}

    assert {
        "compare_estimates.csv",
        "compare_summary.en.txt",
        "compare_summary.zh.txt",
        "compare_roc.png",
        "compare_odd_name.csv",
    } <= names
    with (folder / "compare_odd_name.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == ["'=1+1", "'+evil"]


def test_a_result_shows_itself_without_running_what_it_shows(results):
    hostile = replace(results["compare"], estimates=[*results["compare"].estimates, Estimate("<script>alert(1)</script>", 0.5)])

    assert "<script>" not in hostile._repr_html_()
    assert repr(results["compare"]).startswith("Result('compare', estimates=") and "simulated" in repr(results["compare"])


def test_the_same_call_gives_the_same_numbers():
    m = planted(60, families=30, repeats=2)

    assert [str(r) for r in study.independence(m).estimates] == [str(r) for r in study.independence(m).estimates]


def test_a_study_refuses_what_it_cannot_use():
    with pytest.raises(SetupError, match="give the corpus as the second argument"):
        study.drift(wb.DoubleConfirmation(wb.judge("cue"), wb.judge("cue")))
    with pytest.raises(SetupError, match="not dict"):
        study.thresholds({})


def test_loading_the_front_door_loads_no_study():
    import subprocess
    import sys

    code = "import sys, workbench.study; print([m for m in ('pandas', 'matplotlib', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_command_line_reaches_stored_runs_and_dialogues(tmp_path):
    corpus = wb.load_corpus("data/dialogues", limit=24)
    run = wb.sync(wb.run(wb.DoubleConfirmation(wb.judge("cue"), wb.judge("cue")), corpus, out=tmp_path / "run", progress=False))

    assert study.from_cli("thresholds", str(run.path)).name == "thresholds"
    assert study.from_cli("compare", "data/dialogues", judges=["cue", "simulated"], repeats=1, limit=12).name == "compare"
    assert study.from_cli("design", None).name == "design"
    with pytest.raises(SetupError, match="choose one of"):
        study.from_cli("nothing", None)
    with pytest.raises(SetupError, match="needs a run directory or dialogues"):
        study.from_cli("drift", None)
