"""Loading says which line is wrong and never what it says; families stay together."""

from __future__ import annotations

import json

import pytest

from workbench import corpus
from workbench.errors import DataError

ROW = {"id": "a", "turns": [{"role": "user", "content": "SECRET-TEXT"}], "provenance": {"synthetic": True}}


def write(path, *rows, raw=None):
    path.write_text(raw if raw is not None else "\n".join(json.dumps(r) for r in rows), "utf-8")
    return path


def test_the_shipped_corpus_has_216_dialogues_in_92_families():
    shipped = corpus.load_corpus()

    assert (len(shipped), len(shipped.families)) == (216, 92)
    assert set(shipped.frame.split) == set(corpus.SPLITS)


def test_a_family_never_parts():
    frame = corpus.load_corpus().frame

    assert (frame.groupby("family").split.nunique() == 1).all()


def test_the_bad_line_is_named_and_its_text_is_not(tmp_path):
    rows = [{**ROW, "id": f"r{i}"} for i in range(16)]
    path = write(tmp_path / "x.jsonl", raw="\n".join([*(json.dumps(r) for r in rows), '{"id": "b", "turns": [SECRET-TEXT]}']))

    with pytest.raises(DataError, match="line 17: not valid JSON") as caught:
        corpus.load_corpus(path)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"turns": []}, "turns"), ({"turns": [{"role": "robot", "content": "SECRET-TEXT"}]}, r"turns\.0\.role"),
        ({"lang": "SECRET-TEXT"}, "lang"), ({"gold": {"risk_level": "SECRET-TEXT"}}, "risk_level"),
        ({"trend": {"negative_days_7d": 9, "consecutive_negative_days": 0}}, "negative_days_7d"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_and_the_text_is_not(tmp_path, change, says):
    with pytest.raises(DataError, match=f"line 1: .*{says}") as caught:
        corpus.load_corpus(write(tmp_path / "x.jsonl", {**ROW, **change}))
    assert "SECRET" not in str(caught.value)


def test_duplicate_ids_name_both_places(tmp_path):
    with pytest.raises(DataError, match=r"line 2: the id 'a' was already used at .*line 1"):
        corpus.load_corpus(write(tmp_path / "x.jsonl", ROW, ROW))


def test_wrong_encoding_names_the_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + "你好".encode("gb18030"))

    with pytest.raises(DataError, match="line 2: not UTF-8"):
        corpus.load_corpus(path)


def test_real_dialogues_are_refused_unless_said_otherwise(tmp_path):
    path = write(tmp_path / "x.jsonl", {**ROW, "provenance": {}})

    with pytest.raises(DataError, match="synthetic"):
        corpus.load_corpus(path)
    assert len(corpus.load_corpus(path, allow_real=True)) == 1


def test_a_missing_file_and_a_wrong_choice_say_what_to_give():
    with pytest.raises(DataError, match="give a JSONL file"):
        corpus.load_corpus("no/such/place")
    with pytest.raises(DataError, match="choose zh, en or mixed"):
        corpus.load_corpus(lang="fr")
    with pytest.raises(DataError, match="train, dev, test"):
        corpus.load_corpus(split="eval")


def test_a_limit_spreads_over_the_corpus():
    picked = corpus.load_corpus(limit=40)

    assert len(picked) == 40
    assert {d.lang for d in picked} >= {"zh", "en"}


def test_minimal_rows_with_a_byte_order_mark_and_extra_keys_load(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("\ufeff" + json.dumps({**ROW, "gold": {"risk_level": "low"}, "note": 1}), "utf-8")

    assert corpus.load_corpus(path)[0].gold.acceptable_levels == ("low",)


def test_upto_is_the_dialogue_as_it_stood():
    d = next(d for d in corpus.load_corpus() if d.n_user_turns >= 4)

    early = d.upto(1)
    assert (early.n_user_turns, early.text, early.trend) == (2, d.turns[2].content, None)
    assert early.gold.risk_level == d.turns[2].gold.risk_level
    assert d.upto(d.n_user_turns - 1) is d


def test_the_repository_s_paths_work_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert len(corpus.load_corpus("data/dialogues")) == 216
