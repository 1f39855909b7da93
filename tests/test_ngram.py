"""The n-gram judge: cross-fitted by family, calibrated, cached in a format that runs nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.corpus import family_of, fold_of, load_corpus
from workbench.judges import ngram
from workbench.judges.base import Judge, Request
from workbench.judges.ngram import FOLDS, Model, NgramJudge, _grams, _trained, cut_for, examples, logistic, normal, train, verdict
from workbench.parsing import parse_assessment
from workbench.prompts import render
from workbench.schema import FLAGS, Trend, View

SMALL = 60


def view(d):
    turns = [(t.role, t.content) for t in d.turns]
    return View(text=d.text, lang=d.lang, context=tuple(turns[:-1]), trend=d.trend)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A corpus file of whole families, and a cache of its own."""
    folder = tmp_path_factory.mktemp("ngram")
    dialogues = load_corpus()[:SMALL]
    file = folder / "small.jsonl"
    file.write_text("\n".join(json.dumps(d.model_dump(mode="json"), ensure_ascii=False) for d in dialogues), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(folder / "cache"))
        _trained.cache_clear()
        yield file
    _trained.cache_clear()


@pytest.fixture(autouse=True)
def own_models(small, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(small.parent / "cache"))


@pytest.fixture(scope="module")
def judge(small):
    return NgramJudge(small, off=["practice"])


def test_a_corpus_text_is_answered_by_the_model_that_never_saw_its_family(judge, small):
    for d in load_corpus(small):
        assert judge.scores(view(d))[0] == fold_of(family_of(d), FOLDS)
        assert judge.exposure(d) == judge.exposure(d.text) == "out_of_fold"
    assert judge.scores(View(text="nobody wrote this"))[0] == FOLDS and judge.exposure("nobody wrote this") == "unseen"


def test_a_new_text_after_a_known_turn_still_leaves_that_family_out(judge, small):
    d = next(d for d in load_corpus(small) if d.n_user_turns > 1)
    v = View(text="a new last message", context=(("user", d.turns[0].content),))

    assert judge.scores(v)[0] == fold_of(family_of(d), FOLDS)


def test_the_left_out_model_is_the_one_trained_without_the_family(small):
    """scikit-learn's Ridge on the other folds alone gives the same weights as the cross-fitted model."""
    from sklearn.linear_model import Ridge

    rows = examples(load_corpus(small), practice=False)
    model, _ = train(rows)
    features = ngram._Features(model.used, model.idf, frozenset())
    kept = [r for r in rows if fold_of(r.family, FOLDS) != 0]
    x = np.zeros((len(kept), features.size))
    for row, r in zip(x, kept, strict=True):
        np.add.at(row, *features.row(r.text, r.context, r.trend))  # two n-grams may share a bucket
    y, w = np.array([r.level >= 2 for r in kept], float), np.array([r.weight for r in kept])
    mean = np.average(y, weights=w)
    fitted = Ridge(alpha=ngram.RIDGE, fit_intercept=False, solver="cholesky").fit(x, y - mean, sample_weight=w)

    assert model.intercept[0, 1] == pytest.approx(mean)
    assert np.abs(model.weights[0][:, 1] - fitted.coef_).max() < 1e-5


def test_scaling_is_a_logistic_regression(small):
    """scikit-learn: LogisticRegression(C=1 / penalty)."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    y = (rng.random(300) < 1 / (1 + np.exp(1 - 3 * x))).astype(float)
    w = rng.uniform(0.3, 1, 300)
    fitted = LogisticRegression(C=100.0, tol=1e-10).fit(x[:, None], y, sample_weight=w)

    assert logistic(x, y, w) == pytest.approx([fitted.coef_[0, 0], fitted.intercept_[0]], abs=1e-4)
    assert logistic(x, np.zeros(300), w).tolist() == [0.0, -4.0]
    assert np.isfinite(logistic(x, (x > 0).astype(float), w)).all()  # separable


def test_the_model_is_cached_in_a_format_that_runs_nothing_and_loads_equal(judge, small, monkeypatch):
    files = list(Path(ngram.cache_folder()).glob("*.npz"))
    assert len(files) == 1
    with np.load(files[0], allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)

    _trained.cache_clear()
    monkeypatch.setattr(ngram, "train", lambda *a, **k: pytest.fail("it trained although the cache has the model"))
    again = NgramJudge(small, off=["practice"])

    assert all(np.array_equal(getattr(again.model, f), getattr(judge.model, f)) for f in Model.__dataclass_fields__)


def test_a_spoilt_cache_file_is_trained_again(judge, small, monkeypatch):
    file = next(Path(ngram.cache_folder()).glob("*.npz"))
    good = file.read_bytes()
    for spoilt in (b"", b"not a zip", good[: len(good) // 2]):
        file.write_bytes(spoilt)
        _trained.cache_clear()
        assert NgramJudge(small, off=["practice"]).respond(View(text="hello")) == judge.respond(View(text="hello"))
    assert file.read_bytes() != b"not a zip"


def test_a_place_that_cannot_be_written_keeps_the_model_in_memory(small, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    _trained.cache_clear()

    assert json.loads(NgramJudge(small, off=["practice"]).respond(View(text="hello")))["risk_level"]
    _trained.cache_clear()


def test_context_and_trend_count_unless_switched_off(judge, small):
    d = next(d for d in load_corpus(small) if d.n_user_turns > 2)
    alone, whole = View(text=d.text), view(d).model_copy(update={"trend": Trend(negative_days_7d=7, consecutive_negative_days=7)})
    bare = NgramJudge(small, off=["practice", "context", "trend"])

    assert not np.allclose(judge.scores(whole)[1], judge.scores(whole.model_copy(update={"trend": None}))[1])
    assert not np.allclose(judge.scores(whole)[1], judge.scores(alone.model_copy(update={"trend": whole.trend}))[1])
    assert np.allclose(bare.scores(whole)[1], bare.scores(alone)[1])


def test_assistant_turns_and_anchors_are_not_read(judge):
    v = View(
        text="i am tired of it all", context=(("user", "hi"), ("assistant", "do you want to die?")), anchor="they said critical"
    )
    other = v.model_copy(update={"context": (("user", "hi"), ("assistant", "lovely weather")), "anchor": None})

    assert judge.respond(v) == judge.respond(other) and not judge.reads_anchor


def test_length_is_not_a_feature(judge):
    """Saying the same thing ten times hardly moves a row: blocks have unit length and counts are damped."""
    once, often = (judge._features.row(" ".join(["i am tired of work"] * n), (), None) for n in (1, 10))
    dense = np.zeros((2, judge._features.size))
    for i, (columns, values) in enumerate((once, often)):
        np.add.at(dense[i], columns, values)

    assert np.allclose((dense**2).sum(1), (dense**2).sum(1)[0])
    assert (dense[0] @ dense[1]) / (dense[0] @ dense[0]) > 0.8


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_gets_an_answer_the_ordinary_parser_accepts(judge, text):
    a = parse_assessment(judge.respond(View(text=text)), finish_reason="stop", analysed_text=text)

    assert a.known and set(a.flags) == set(FLAGS) and not a.blocking_defects
    assert len(a.not_assessed) == 8 and len(a.evidence) <= 100


@pytest.mark.parametrize("text", ["First. I want to die tonight! Thanks", "今天很好。我想死。谢谢", "one"])
def test_evidence_is_a_sentence_of_the_text(judge, text):
    assert json.loads(judge.respond(View(text=text)))["evidence"] in text


@pytest.mark.parametrize(
    ("logits", "cut", "expected"),
    [([-5, -5, -5], 0.6, 0), ([3, -1, -3], 0.6, 1), ([3, 0.8, -3], 0.6, 2), ([3, 0.8, -3], 0.75, 1), ([3, 3, 0], 0.75, 3), ([3, -2, 4], 0.6, 1)],
)  # fmt: skip
def test_the_level_follows_the_cuts_and_confidence_is_that_of_its_side(logits, cut, expected):
    level, confidence = verdict(np.array(logits, float), cut)
    high = 1 / (1 + np.exp(-logits[1]))

    assert level == expected and confidence == pytest.approx(high if level >= 2 else 1 - high)


@given(st.text(max_size=60))
def test_character_grams_are_counted_where_they_stand(text):
    chars, _ = _grams(normal(text))
    n = len(normal(text))

    assert len(chars) == n + max(0, n - 1) + max(0, n - 2)


def test_it_is_a_judge_and_its_description_rebuilds_it(judge, small):
    request = Request(prompt=render(View(text="hello"), "L2"), tier="L2")
    again = NgramJudge.from_description(json.loads(json.dumps(judge.describe())))

    assert isinstance(judge, Judge) and judge.deterministic and judge.kind == "model"
    assert asyncio.run(judge.answer(request)).text == asyncio.run(again.answer(request)).text
    assert judge.identity(request) == again.identity(request)


def test_another_corpus_or_another_switch_is_another_identity(judge, small):
    request = Request(prompt=render(View(text="hello"), "L2"), tier="L2")

    assert NgramJudge(small, off=["practice", "word"]).identity(request) != judge.identity(request)


def test_practice_messages_are_well_formed_and_name_no_method():
    from workbench.corpus_tools import names_method

    rows = [r for r in examples(load_corpus()[:0]) if r.source != "corpus"]

    texts = [path.read_text("utf-8") for path in Path(ngram.__file__).parents[1].glob("resources/ngram/*.txt")]

    assert len(rows) > 4000 and {r.level for r in rows} == {0, 1, 2, 3}
    assert not any(r.flags and r.level > 1 for r in rows) and len({(r.context, r.text) for r in rows}) == len(rows)
    assert [line for text in texts for line in text.splitlines() if names_method(line)] == []
    assert not any(re.search(r"\d{5,}|https?:|www\.", text) for text in texts)


def test_out_of_fold_it_ranks_unseen_families_well_and_its_confidence_is_honest():
    """Cross-fitted over the whole corpus: AUC of 'high or worse' on last turns, and confidence against how often the side is right."""
    from sklearn.metrics import roc_auc_score

    rows = examples(load_corpus())
    _, logits = train(rows)
    last = np.array([r.source == "corpus" and r.weight == 1 for r in rows])
    high = np.array([r.level >= 2 for r in rows])
    said = [verdict(z, cut_for(r.text, alone=not r.context)) for z, r in zip(logits, rows, strict=True)]
    right = np.array([(level >= 2) == h for (level, _), h in zip(said, high, strict=True)])
    sure = np.array([c >= 0.85 for _, c in said]) & last

    assert roc_auc_score(high[last], logits[last, 1]) > 0.85
    assert right[sure].mean() > 0.85 and sure.sum() > 60


def test_the_cache_keeps_the_newest_models_only(judge, tmp_path):
    for i in range(ngram.KEPT_MODELS + 3):
        old = tmp_path / f"ngram-{i:02d}.npz"
        old.write_bytes(b"x")
        os.utime(old, (i, i))

    judge.model.save(tmp_path / "ngram-new.npz")

    left = sorted(p.name for p in tmp_path.iterdir())
    assert len(left) == ngram.KEPT_MODELS and {"ngram-new.npz", "ngram-10.npz"} <= set(left) and "ngram-00.npz" not in left
