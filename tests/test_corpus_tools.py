"""Corpus tools: what shape alone predicts, every rule of the corpus, and loaders that refuse what is not synthetic."""

from __future__ import annotations

import json

import pytest

from workbench.corpus import Corpus, load_corpus
from workbench.corpus_tools import Columns, leaks, load_mapped, load_vera, names_method, stats, stats_text, validate
from workbench.errors import DataError
from workbench.schema import Dialogue


@pytest.fixture(scope="module")
def whole():
    return load_corpus()


@pytest.fixture(scope="module")
def corpus(whole):
    """The first families, enough for a rule to be broken in."""
    return whole[:24]


def changed(corpus, **fields):
    """The corpus with its first dialogue's raw data changed."""
    raw = corpus[0].model_dump(mode="json")
    for key, value in fields.items():
        raw[key] = {**raw[key], **value} if isinstance(value, dict) else value
    return Corpus([Dialogue.model_validate(raw), *corpus[1:]])


def with_text(corpus, text, at=-1):
    turns = corpus[0].model_dump(mode="json")["turns"]
    turns[at]["content"] = text
    return changed(corpus, turns=turns)


def test_the_shipped_corpus_keeps_every_rule(whole):
    assert validate(whole) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gold": {"flags": ["joke"]}}, "caps the level"), ({"gold": {"confirm": False}}, "confirm must be true"),
        ({"gold": {"acceptable_levels": ["medium"]}}, "must contain risk_level"), ({"gold": {"acceptable_levels": ["critical", "medium"]}}, "never accepts medium"),
        ({"gold": {"acceptable_levels": ["critical", "high", "low"]}}, "only when disputed"), ({"gold": {"dimensions": {"depression": 0.3}}}, "dimensions"),
        ({"gold": {"risk_level": "high", "confirm": False, "acceptable_levels": ["high"]}}, "last turn's gold"), ({"family": "alone"}, "two members"),
        ({"provenance": {"synthetic": False}}, "not marked synthetic"), ({"gold": None}, "no gold"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(corpus, fields, words):
    problems = validate(changed(corpus, **fields))

    assert any(p.startswith((corpus[0].id, "alone")) and words in p for p in problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("see https://example.org now", "URL"), ("write to @somebody_else please", "handle"), ("call 0800 123 4567 now", "phone number"),
        ("打 １２３－４５６－７８９０ 吧", "phone number"), ("a screentestword in the middle", "method screen"), ("这里有筛查测试词呢", "method screen"),
    ],
)  # fmt: skip
def test_what_a_text_may_not_hold_is_named_and_the_text_is_not_repeated(corpus, text, words):
    problems = validate(with_text(corpus, text))

    assert any(words in p for p in problems)
    assert not any(text in p for p in problems)


def test_ordinary_numbers_and_words_pass(corpus):
    ordinary = "At 5.30 on 12 May 2026 we were 14 people, 3 cakes and 250 pages, I'm hanging on."

    assert not any(p.startswith(corpus[0].id) for p in validate(with_text(corpus, ordinary)))


def test_roles_alternate_and_gold_stands_with_the_user_only(corpus):
    turns = corpus[0].model_dump(mode="json")["turns"]
    assert any("alternate" in p for p in validate(changed(corpus, turns=turns[1:])))

    turns[1]["gold"] = {"risk_level": "low"}
    assert any("gold belongs to every user turn" in p for p in validate(changed(corpus, turns=turns)))


def test_equal_and_nearly_equal_endings_are_found(corpus):
    other = next(d for d in corpus if d.family != corpus[0].family and len(d.text) > 80)

    assert any("ends in the same text" in p for p in validate(with_text(corpus, other.text)))
    assert any("nearly the same last turn" in p for p in validate(with_text(corpus, other.text[:-6] + " ok")))


def test_a_family_that_contrasts_nothing_is_named(corpus):
    a = corpus[0].model_dump(mode="json")
    twins = [Dialogue.model_validate(a | {"id": f"t{i}", "family": "twins"}) for i in (1, 2)]

    assert any("contrast nothing" in p for p in validate(Corpus([*corpus, *twins])))


def test_the_known_length_leak_shows_and_place_in_file_does_not(whole):
    table = leaks(whole).set_index("feature")

    assert table.loc["user turns", "auc"] > 0.6 and table.loc["user turns", "low"] > 0.5
    assert table.loc["place in file", "low"] <= 0.5 <= table.loc["place in file", "high"]
    assert (table.low <= table.auc).all() and (table.auc <= table.high).all()


def test_a_planted_leak_is_found(whole):
    """A trend given exactly when the gold is high must be told by AUC 1."""
    raw = [d.model_dump(mode="json") for d in whole]
    for r in raw:
        r["trend"] = (
            {"negative_days_7d": 3, "consecutive_negative_days": 1} if r["gold"]["risk_level"] in ("high", "critical") else None
        )
    table = leaks(Corpus(Dialogue.model_validate(r) for r in raw)).set_index("feature")

    assert table.loc["a trend is given", "auc"] == 1.0


def test_counts_add_up_and_read_as_text(whole):
    table = stats(whole)

    assert table[table.part == "level"].n.sum() == len(whole) == table[table.part == "language"].n.sum()
    assert "216 dialogues in 92 families" in stats_text(whole) and "AUC" in stats_text(whole)


def test_the_screen_reads_words_whole():
    assert names_method("a ScreenTestWord!") and not names_method("screentestwords are other words")


@pytest.fixture
def clone(tmp_path):
    """A clone of the shape that VERA-MH has, with text of our own."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "personas.tsv").write_text("Name\tCurrent Risk Level\nAda Long\tHigh\nAda\tNone\n")
    run = tmp_path / "concept_paper_conversations" / "run1"
    run.mkdir(parents=True)
    (run / "ab12_Ada Long_some-model_run1.txt").write_text(
        "user: Hello there.\n\nSecond part. Note: this stays.\n\nagent: Hi.\n\nuser: I am tired.\n\nagent: Bye.\n"
    )
    (run / "cd34_Ada_some-model_run2.txt").write_text("user: Fine, thanks.\n\nagent: Good.\n")
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text("f813d29\n")
    (tmp_path / "LICENSE").write_text("MIT-style with conditions\nmore\n")
    return tmp_path


def test_vera_transcripts_keep_intended_risk_apart_from_gold(clone):
    long, short = load_vera(clone)

    assert [t.role for t in long.turns] == ["user", "assistant", "user"] and "Note: this stays." in long.turns[0].content
    assert long.gold is None and long.provenance["intended_risk"] == "High" and short.provenance["intended_risk"] == "None"
    assert (
        long.provenance | {"display": False, "commit": "f813d29", "licence": "MIT-style with conditions", "synthetic": True}
        == long.provenance
    )


def test_a_transcript_of_an_unknown_persona_is_refused(clone):
    next((clone / "concept_paper_conversations" / "run1").glob("cd34*")).rename(
        clone / "concept_paper_conversations" / "run1" / "cd34_Bob_m_run2.txt"
    )

    with pytest.raises(DataError, match="no persona"):
        load_vera(clone)


def test_a_folder_that_is_no_clone_says_what_is_missing(tmp_path):
    with pytest.raises(DataError, match=r"personas\.tsv"):
        load_vera(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_any_table_loads_by_its_column_names(tmp_path, suffix):
    rows = [{"say": "我很累", "risk": "SAFE", "tags": "joke;quote"}, {"say": "hello", "risk": "?", "tags": ""}]
    file = tmp_path / f"rows.{suffix}"
    head = "say,risk,tags\n" + "".join(f"{r['say']},{r['risk']},{r['tags']}\n" for r in rows)
    file.write_text(head if suffix == "csv" else "\n".join(json.dumps(r) for r in rows), "utf-8")

    one, two = load_mapped(file, Columns("say", level="risk", flags="tags", levels={"SAFE": "low"}), synthetic=True)

    assert (one.lang, one.gold.risk_level.value, one.gold.flags) == ("zh", "low", ("joke", "quote"))
    assert two.gold is None and two.lang == "en" and two.provenance["display"] is False and two.synthetic


def test_real_messages_are_refused_unless_allowed_and_that_is_recorded(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"t": "secret words", "s": "true"}\n{"t": "secret words too", "s": "false"}\n')

    with pytest.raises(DataError, match="row 2: not synthetic") as error:
        load_mapped(file, Columns("t", synthetic="s"))
    kept = load_mapped(file, Columns("t", synthetic="s"), allow_real=True)

    assert "secret" not in str(error.value)
    assert [d.synthetic for d in kept] == [True, False] and all(d.provenance["allow_real"] for d in kept)


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        ('{"t": "x"}', Columns("text"), "no column text; there are t"), ('{"t": ""}', Columns("t"), "row 1: turns.0.content"),
        ('{"t": "x", "l": "dire"}', Columns("t", level="l", levels={"dire": "dire"}), "risk_level"), ("not json", Columns("t"), "cannot read"),
    ],
)  # fmt: skip
def test_a_wrong_table_says_where_and_what(tmp_path, content, columns, words):
    file = tmp_path / "rows.jsonl"
    file.write_text(content)

    with pytest.raises(DataError, match=words):
        load_mapped(file, columns, synthetic=True)
