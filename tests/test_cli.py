"""Each command says what it did; bad input is one sentence and exit code 2, and nothing half-written."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import pytest

from workbench.cli import main

HOSTILE = "<script>alert(1)</script> $x$ \x1b[31mred\x1b[0m \u202egnp.exe =SUM(A1) `rm`"


@pytest.fixture
def small(tmp_path):
    """A hostile file of four dialogues."""
    rows = [
        {"id": f"d{i}-<b>=1+1", "family": f"f{i // 2}", "phenomenon": HOSTILE, "lang": "en", "turns": [{"role": "user", "content": f"I want to die tonight {HOSTILE} {i}"}],
         "gold": {"risk_level": "critical" if i % 2 else "low"}, "provenance": {"synthetic": True}}
        for i in range(4)
    ]  # fmt: skip
    path = tmp_path / "small.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows), "utf-8")
    return path


def said(capsys, *args) -> tuple[int, str, str]:
    code = main([str(a) for a in args])
    got = capsys.readouterr()
    return code, got.out, got.err


def test_run_score_and_verify(tmp_path, small, capsys):
    out = tmp_path / "run"
    code, text, _ = said(capsys, "run", small, "--out", out)

    assert code == 0
    assert "missed criticals" in text
    assert "What blocked confirmation" in text
    code, text, _ = said(capsys, "score", out, "--json")
    scored = json.loads(text)
    assert (code, scored["summary"]["dialogues"]) == (0, 4)
    assert {"name", "value", "low", "high", "n", "n_unknown", "group"} <= set(scored["estimates"][0])
    assert said(capsys, "verify", out)[0] == 0
    assert said(capsys, "run", small, "--out", out, "--replay")[0] == 0


def test_a_changed_ledger_is_named_by_verify(tmp_path, small, capsys):
    import sqlite3

    out = tmp_path / "run"
    said(capsys, "run", small, "--out", out)
    with sqlite3.connect(out / "ledger.db") as db:
        key, body = db.execute("select unit, body from outcomes limit 1").fetchone()
        row = json.loads(body)
        row["outcome"]["l1"]["confidence"] = 0.123
        db.execute("update outcomes set body = ? where unit = ?", (json.dumps(row), key))
    code, text, _ = said(capsys, "verify", out)

    assert code == 1
    assert "table 'assessments' differs" in text
    assert "confidence" in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "no/such.jsonl", "--out", "{tmp}/r"], "give a JSONL file"),
        (["run", "{small}", "--out", "{tmp}/r", "--l1", "nobody"], "nobody"),
        (["run", "{small}", "--out", "{tmp}/r", "--combine", "arbitration"], "arbitration needs a third judge"),
        (["run", "{small}", "--out", "{tmp}/r", "--repeats", "0"], "repeats"),
        (["run", "{small}", "--out", "/proc/nowhere/r"], "cannot write"),
        (["run", "{small}", "--out", "{tmp}/r", "--lang", "zh"], "no dialogue to assess"),
        (["score", "{tmp}"], "not a run directory"),
        (["verify", "{tmp}/x.html"], "manifest"),
        (["report", "{tmp}/none"], "not a run directory"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, small, capsys, args, says):
    filled = [a.format(tmp=tmp_path, small=small) for a in args]
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = said(capsys, *filled)

    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_missing_key_variable_is_named(tmp_path, small, capsys, monkeypatch):
    (tmp_path / "judges.toml").write_text(
        '[far]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\nkey_env = "NO_SUCH_KEY_HERE"\n'
    )
    monkeypatch.setenv("WORKBENCH_JUDGES", str(tmp_path / "judges.toml"))
    code, _, err = said(capsys, "run", small, "--out", tmp_path / "r", "--l1", "far")

    assert code == 2
    assert "NO_SUCH_KEY_HERE" in err


def test_assess_shows_both_sides_the_conditions_and_why(capsys):
    code, text, _ = said(capsys, "assess", "I have written the letters, it is tonight, goodbye")

    assert code == 0
    for word in ("L1", "L2", "critical"):
        assert word in text


def test_assess_reads_standard_input_and_files(small, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("我没事，只是加班太累"))
    code, text, _ = said(capsys, "assess", "--json")

    assert code == 0
    assert json.loads(text)["dialogue_id"] == "command-line"
    assert said(capsys, "assess", small)[0] == 0


def test_hostile_text_is_inert_on_the_terminal(tmp_path, small, capsys):
    out = tmp_path / "run"
    said(capsys, "run", small, "--out", out)
    shown = said(capsys, "score", out)[1] + said(capsys, "score", out, "--json")[1] + said(capsys, "assess", small)[1]

    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_hostile_text_starts_no_formula_in_an_export(tmp_path, small, capsys):
    out = tmp_path / "run"
    said(capsys, "run", small, "--out", out)
    code, _, _ = said(capsys, "export", out, "--format", "csv", "--out", tmp_path / "export")

    assert code == 0
    for path in (tmp_path / "export").glob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text("utf-8-sig"))):
            assert not any(cell[:1] in "=+@\t\r" and cell for cell in row)


def test_doctor_and_judges_list(capsys):
    code, text, _ = said(capsys, "doctor")

    assert code == 0
    assert "required packages" in text
    code, text, _ = said(capsys, "judges", "list")
    assert code == 0
    assert {"cue", "ngram", "simulated", "local"} <= set(text.split())


def test_ctrl_c_leaves_a_resumable_run(tmp_path):
    """Run for real, interrupt for real."""
    import signal
    import time

    path, out = tmp_path / "many.jsonl", tmp_path / "run"
    rows = [
        {"id": f"d{i}", "turns": [{"role": "user", "content": f"text {i} " + "word " * 200}], "provenance": {"synthetic": True}}
        for i in range(6000)
    ]
    path.write_text("\n".join(json.dumps(r) for r in rows))
    command = [sys.executable, "-m", "workbench.cli", "run", str(path), "--out", str(out)]
    # A shell that starts the suite in the background makes its children deaf to Ctrl-C; a user's terminal does not.
    hears = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=os.environ, **hears
    ) as process:
        deadline = time.monotonic() + 180
        while not (out / "manifest.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=180)

    assert process.returncode == 130, err
    assert "--resume" in err
    assert json.loads((out / "manifest.json").read_text())["status"] == "interrupted"


def test_what_was_spent_stands_beside_the_estimate(tmp_path, small, capsys):
    asked = ("run", str(small), "--l1", "simulated", "--l2", "simulated", "--out", str(tmp_path / "run"))
    code, forecast, _ = said(capsys, *asked, "--dry-run")
    assert code == 0
    assert "calls, up to" in forecast
    assert not (tmp_path / "run").exists()

    code, out, _ = said(capsys, *asked)
    assert code == 0
    assert "% of the estimate)" in out
