"""The report is one file that reaches nothing, says only what it computed, and is the same twice."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
import re
import shutil
import sqlite3
from pathlib import Path

import html5lib
import pytest

import workbench as wb
from workbench.judges.simulated import SimulatedJudge, planted_corpus
from workbench.report import report, words
from workbench.runner import Run, run
from workbench.sections import Page
from workbench.text import sha256
from workbench.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::nbformat.warnings.MissingIDFieldWarning")


def simulated(folder: Path, n: int, *, dialogues=None, **planted) -> Run:
    made, truth = planted_corpus(n, seed=3)
    made = dialogues(made) if dialogues else made
    table = dict(zip(truth.text_hash, truth.severity, strict=True))
    pair = wb.DoubleConfirmation(*(SimulatedJudge(table, name=f"sim-{x}", seed=x, **planted) for x in (1, 2)))
    return asyncio.run(run(pair, made, out=folder, progress=False))


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Run:
    pair = wb.DoubleConfirmation(wb.judge("cue"), wb.judge("ngram"))
    return asyncio.run(run(pair, wb.load_corpus(limit=60), out=tmp_path_factory.mktemp("runs") / "demo", progress=False))


@pytest.fixture(scope="module")
def page(demo) -> Path:
    return report(demo)


def visible(path: Path) -> str:
    """The text a reader sees, without scripts, styles and the code that is hidden until asked for."""
    tree = html5lib.parse(path.read_text("utf-8"), namespaceHTMLElements=False)
    for parent in tree.iter():
        for child in list(parent):
            if child.tag in ("script", "style") or "jp-Cell-inputWrapper" in child.get("class", ""):
                child.clear()
    return " ".join("".join(tree.itertext()).split())


def test_it_fetches_nothing(page):
    tree = html5lib.parse(page.read_text("utf-8"), namespaceHTMLElements=False)
    fetched = [e.get(a) for e in tree.iter() for a in ("src", "srcset", "data", "poster") if isinstance(e.tag, str) and e.get(a)]
    fetched += [e.get("href") for e in tree.iter("link")]

    assert fetched
    assert all(str(f).startswith("data:") for f in fetched)
    assert not re.search(r"@import|url\(\s*['\"]?https?:", page.read_text("utf-8"))


def test_headings_are_in_order_and_every_picture_is_described(page):
    tree = html5lib.parse(page.read_text("utf-8"), namespaceHTMLElements=False)
    levels = [int(e.tag[1]) for e in tree.iter() if isinstance(e.tag, str) and re.fullmatch(r"h[1-6]", e.tag)]
    pictures = list(tree.iter("img"))

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert len(pictures) >= 5
    for img in pictures:
        assert img.get("alt").strip()
        assert base64.b64decode(img.get("src").split(",", 1)[1]).startswith(b"\x89PNG")


def test_no_number_is_missing_as_nan_and_no_place_or_text_leaks(page, demo):
    text = visible(page)

    assert not re.search(r"\b(nan|NaN|None|inf|<NA>)\b", text)
    assert "Traceback" not in text
    assert str(Path.home()) not in page.read_text("utf-8")
    assert str(demo.path.parent) not in page.read_text("utf-8")
    assert not any(d.text[:40] in text for d in demo.corpus if len(d.text) > 40)


def test_it_is_the_same_twice_and_verifies(demo, page, tmp_path):
    again = report(demo, out=tmp_path / "again.html")

    assert again.read_bytes() == page.read_bytes()
    assert verify(page) == []


def test_the_manifest_says_where_everything_came_from(page):
    facts = json.loads(page.with_name("report.manifest.json").read_text())

    assert facts["html_sha256"] == hashlib.sha256(page.read_bytes()).hexdigest()
    assert set(facts["tables"]) == {"assessments", "outcomes", "scores", "blocked"}
    for key in (
        "workbench",
        "git_commit",
        "git_dirty",
        "environment_sha256",
        "python",
        "corpus_sha256",
        "prompts_sha256",
        "judges",
        "seed",
        "counts",
    ):
        assert key in facts
    assert not re.search(r'"/|key', json.dumps(facts).replace("call_key", ""))


def copied(demo: Run, folder: Path) -> Path:
    shutil.copytree(demo.path, folder)
    return folder


def change(folder: Path, edit) -> None:
    """Apply *edit* to every stored outcome."""
    with sqlite3.connect(folder / "ledger.db") as db:
        for unit, body in db.execute("select unit, body from outcomes").fetchall():
            row = json.loads(body)
            edit(row["outcome"])
            db.execute("update outcomes set body = ? where unit = ?", (json.dumps(row), unit))


def test_a_flipped_confidence_is_found_and_its_table_named(demo, page, tmp_path):
    folder = copied(demo, tmp_path / "copy")
    change(folder, lambda o: o["l2"].update(confidence=0.42) if o["dialogue_id"] == demo.corpus[0].id else None)

    assert any("table 'assessments' differs" in line for line in verify(folder))


def test_a_changed_page_is_found(demo, page, tmp_path):
    folder = copied(demo, tmp_path / "copy")
    (folder / "report.html").write_text(page.read_text("utf-8") + " ", "utf-8")

    assert verify(folder / "report.html") == ["the page itself was changed after it was written"]


def sentences(run_: Run) -> dict[str, str]:
    p = Page(run_)
    found = {}
    for name in ("asked", "data", "results", "blocked", "unknowns", "independence", "thresholds", "agreement", "cost"):
        found |= {f"{name}.{i}": s for i, s in enumerate(getattr(p, name)().sentences)}
    return found


def test_each_sentence_follows_the_values_it_depends_on(demo, tmp_path):
    before = sentences(demo)
    folder = copied(demo, tmp_path / "copy")

    def confirm_all(o):
        for side in ("l1", "l2"):
            o[side].update(
                level="critical", raw_level="critical", confidence=0.99, flags=dict.fromkeys(o[side]["flags"], False), reason=None
            )
        o.update(confirmed=True, level="critical", review_reasons=[], conditions=[c | {"passed": True} for c in o["conditions"]])

    change(folder, confirm_all)
    after = sentences(Run.open(folder))

    changed = {k for k in before if before[k] != after.get(k)}
    assert {"results.0", "results.1", "results.2", "blocked.0"} <= changed
    assert any(k.startswith("independence") for k in changed)
    assert any(k.startswith("thresholds") for k in changed)
    assert not {"asked.0", "data.0", "cost.0"} & changed


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_number_is_typed_into_the_prose(lang):
    def leaves(node):
        if isinstance(node, dict):
            return [x for v in node.values() for x in leaves(v)]
        return [x for v in node for x in leaves(v)] if isinstance(node, list) else [node]

    for text in leaves(words(lang)):
        assert not re.search(r"\d", re.sub(r"\bL[12]\b|L[12]", "", re.sub(r"\{\w+\}", "", text))), text
    assert set(words("en")["say"]) == set(words("zh")["say"])
    for key, text in words("en")["say"].items():
        if isinstance(text, str):
            assert set(re.findall(r"\{(\w+)\}", text)) == set(re.findall(r"\{(\w+)\}", words("zh")["say"][key])), key


HARD = {
    "thirty per cent unknown": (60, {"malformed": 0.3}, None, "unknown"),
    "no critical": (60, {}, lambda made: [d for d in made if d.gold.risk_level != "critical"], "no scored case is critical"),
    "one dialogue": (1, {}, None, "families"),
    "all unknown": (12, {"malformed": 1.0}, None, "unknown"),
}


@pytest.mark.parametrize("case", HARD)
def test_a_hard_run_says_what_can_be_concluded(tmp_path, case):
    n, planted, keep, says = HARD[case]
    text = visible(report(simulated(tmp_path / "run", n, dialogues=keep, **planted)))

    assert says in text.lower()
    assert "SIMULATED" in text
    assert not re.search(r"\b(nan|NaN|None|inf|<NA>)\b|Traceback", text)


def test_an_interrupted_run_says_so(demo, tmp_path):
    folder = copied(demo, tmp_path / "copy")
    manifest = json.loads((folder / "manifest.json").read_text())
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("delete from outcomes where rowid % 2 = 0")
        (left,) = db.execute("select count(*) from outcomes").fetchone()
    (folder / "manifest.json").write_text(json.dumps(manifest | {"status": "interrupted", "done": left}))
    text = visible(report(folder))

    assert f"This run is interrupted: {left} of 60" in text


def test_a_chinese_run_reads_in_chinese(tmp_path):
    pair = wb.DoubleConfirmation(wb.judge("cue"), wb.judge("ngram"))
    made = asyncio.run(run(pair, wb.load_corpus(lang="zh", limit=30), out=tmp_path / "run", progress=False))
    text = visible(report(made, lang="zh", region="zh-CN"))

    assert "双重确认在 30 个计分案例中确认了" in text
    assert "12356" in text
    assert not re.search(r"(?<![\d.,])988(?!\d)", text)


def test_hostile_text_is_inert_in_the_page(tmp_path):
    bad = '<script>alert(1)</script><img src=x onerror="alert(2)"> $x$ \x1b[31m \u202e'
    made, truth = planted_corpus(8, seed=5)
    made = [d.model_copy(update={"phenomenon": bad, "id": f"{bad}{i}", "lang": "en"}) for i, d in enumerate(made)]
    table = dict(zip([sha256(d.text) for d in made], truth.severity, strict=True))
    pair = wb.DoubleConfirmation(SimulatedJudge(table, name="a"), SimulatedJudge(table, name="b", seed=1))
    path = report(asyncio.run(run(pair, made, out=tmp_path / "run", progress=False)))
    tree = html5lib.parse(path.read_text("utf-8"), namespaceHTMLElements=False)

    assert not [e for e in tree.iter("script") if "alert" in "".join(e.itertext())]
    assert not [e for e in tree.iter() if isinstance(e.tag, str) and any(k.startswith("on") for k in e.keys())]  # noqa: SIM118
    assert "\x1b" not in path.read_text("utf-8")
    assert "\u202e" not in path.read_text("utf-8")
