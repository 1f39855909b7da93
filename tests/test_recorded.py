"""The recorded runs: real answers of a real model, complete, replayable without a network, and as their data sheet says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.record_local import ARMS, sample, sheet
from workbench.corpus import load_corpus
from workbench.errors import ReplayMiss, SetupError
from workbench.judges import local
from workbench.recorded import FOLDER, RUNS, recorded, replaying
from workbench.verify import network_blocked, verify

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / FOLDER
each = pytest.mark.parametrize("name", sorted(RUNS))


@pytest.fixture(scope="module")
def runs():
    return {name: recorded(name) for name in RUNS}


@each
def test_a_recorded_run_is_recomputed_byte_by_byte_with_the_network_blocked(name):
    assert verify(HOME / name) == []


@each
def test_a_recorded_run_is_complete(runs, name):
    manifest = runs[name].manifest

    assert (manifest["status"], manifest["done"]) == ("complete", manifest["total"])
    assert len(runs[name].outcomes) == manifest["total"]


@each
def test_every_answer_came_from_the_pinned_weights(runs, name):
    judge = runs[name].manifest["config"]["pipeline"]["l1"]
    frame = runs[name].frame.drop_duplicates("call_key")

    assert judge["weights_sha256"] == local.WEIGHTS_SHA256
    assert set(frame.model_returned.dropna()) == {local.MODEL}
    assert all(f.startswith("xllamacpp-") for f in frame.fingerprint.dropna())
    assert set(frame.judge_kind) == {"local"}
    assert judge["temperature"] == 0.7
    assert judge["constrained"] == (name != "free")


def test_the_sample_is_spread_over_language_and_level_and_leaves_the_test_split_closed(runs):
    facts = runs["blind"].corpus.frame
    language = facts.lang.where(facts.lang == "en", "zh")

    assert len(facts) == 80
    assert set(facts.groupby([language, "gold_level"]).size()) == {10}
    assert "test" not in set(facts.split)
    assert [d.id for d in sample(load_corpus(ROOT / "data/dialogues"), 80)] == list(facts.dialogue_id)


def test_repeats_and_arms_are_as_designed(runs):
    blind, anchors = runs["blind"].outcomes, runs["anchors"].outcomes

    assert set(blind.groupby("dialogue_id").repeat.nunique()) == {3}
    assert set(zip(anchors.arm, anchors.paraphrase, strict=True)) == {(a.name, a.paraphrase) for a in ARMS}
    assert set(anchors.groupby(["dialogue_id", "arm", "paraphrase"]).size()) == {2}
    assert set(anchors.dialogue_id) <= set(blind.dialogue_id)


def test_repeats_are_real_draws(runs):
    levels = runs["blind"].frame.groupby(["dialogue_id", "tier"])["level"].nunique()

    assert (levels > 1).any()


def test_the_data_sheet_tells_what_the_runs_hold(runs):
    told = (ROOT / "data/recorded/README.md").read_text("utf-8")
    table = re.search(r"<!-- numbers -->\n(.*?)\n<!-- end -->", told, re.S)

    assert table is not None
    assert table[1] == sheet(runs)


def test_nothing_of_the_recording_machine_is_in_the_files():
    pattern = re.compile(rb"/home/|/root/|/tmp/|/Users/|127\.0\.0\.1|api[_-]?key", re.I)
    for path in HOME.rglob("*"):
        if path.is_file():
            assert not pattern.search(path.read_bytes()), path.name


def test_the_recording_is_small_and_at_rest():
    files = [p for p in (ROOT / "data/recorded").rglob("*") if p.is_file()]

    assert sum(p.stat().st_size for p in files) < 8_000_000
    assert not [p for p in files if p.name.endswith(("-wal", "-shm", ".part"))]
    assert all(json.loads((HOME / name / "manifest.json").read_text())["synthetic"] for name in RUNS)


def test_another_name_is_refused_with_the_names_there_are():
    with pytest.raises(SetupError, match="there are blind, free, anchors"):
        recorded("bound")


def test_a_replaying_pipeline_gives_the_answers_that_were_given_and_calls_nobody(runs):
    run = runs["blind"]
    first = next(run.items()).outcome
    pipeline = replaying(run)

    with network_blocked():
        again = pipeline.assess_sync(run.corpus[0], repeat=0)
    assert again == first
    with pytest.raises(ReplayMiss):
        pipeline.assess_sync(run.corpus[0], repeat=77)
    pipeline.asker.store.close()
