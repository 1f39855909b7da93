"""A stand-in for the engine under workbench.judges.local: the same seam (parameters, a server on loopback), no model.

Its server writes each request body to REQUESTS and answers with a valid assessment. ``installed`` puts it first on the
path of child processes.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import json, os, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

__version__ = "0-stand-in"

class CommonParams(SimpleNamespace):
    def __init__(self):
        super().__init__(model=SimpleNamespace(), cpuparams=SimpleNamespace())

class Handler(BaseHTTPRequestHandler):
    def _send(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self._send({"status": "ok"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(os.environ["REQUESTS"], "ab") as file:
            file.write(body + b"\\n")
        answer = {"evidence": "", "context_flags": dict.fromkeys(("fiction", "quote", "third_party", "joke"), False),
                  "risk_level": "low", "confidence": 0.5}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(answer)}}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self._send({"model": json.loads(body)["model"], "choices": [choice], "usage": usage})

    def log_message(self, *args):
        print("stand-in:", *args, file=__import__("sys").stderr)

class Server:
    def __init__(self, params):
        if open(params.model.path, "rb").read(4) != b"GGUF":
            print("E error loading model:", params.model.path, file=__import__("sys").stderr, flush=True)
            raise RuntimeError("Failed to init server, please check the input params.")
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{self._http.server_address[1]}"
"""


def installed(folder: Path, monkeypatch) -> Path:
    """Put the stand-in on the path of child processes; returns the file that collects request bodies."""
    (folder / "xllamacpp.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("REQUESTS", str(folder / "requests.jsonl"))
    (folder / "requests.jsonl").touch()
    return folder / "requests.jsonl"
