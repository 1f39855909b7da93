"""A JupyterLab server on loopback and a real Chromium that drives it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Locator, Page, sync_playwright

from tests.conftest import ROOT, chromium

# As root there is no sandbox; /dev/shm is small in CI; the rest stops Chromium from calling home.
FLAGS = [
    "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# Off-screen cells are not in the page under JupyterLab's default windowing.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
KERNEL_MS, CLICK_MS = 120_000, 20_000
SHOTS = ROOT / "artefacts"
NOTEBOOKS = ROOT / "notebooks"


def workspace(folder: Path, *names: str) -> Path:
    """A copy of some notebooks beside the shipped data, where what they write disturbs nobody."""
    (folder / "notebooks").mkdir(parents=True)
    (folder / "data").mkdir()
    for part in ("dialogues", "recorded"):
        if (ROOT / "data" / part).exists():
            (folder / "data" / part).symlink_to(ROOT / "data" / part)
    for name in (n for n in names if (NOTEBOOKS / n).exists()):  # a missing one fails its own tests, not all
        (folder / "notebooks" / name).write_text((NOTEBOOKS / name).read_text("utf-8"), "utf-8")
    return folder / "notebooks"


class Lab:
    """One running JupyterLab."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.token, self.folder = secrets.token_hex(16), folder
        for name, values in SETTINGS.items():
            plugin, schema = name.rsplit("/", 1)
            target = scratch / "settings" / plugin / f"{schema}.jupyterlab-settings"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(values))
        env = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"} | {
            "HOME": str(scratch), "JUPYTERLAB_SETTINGS_DIR": f"{scratch}/settings", "JUPYTERLAB_WORKSPACES_DIR": f"{scratch}/workspaces",
            "JUPYTER_CONFIG_DIR": f"{scratch}/config", "JUPYTER_RUNTIME_DIR": f"{scratch}/runtime", "IPYTHONDIR": f"{scratch}/ipython",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={folder}",
            "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--expose-app-in-browser",
        ]  # fmt: skip
        self.log = scratch / "server.log"
        with self.log.open("w") as sink:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=sink, stderr=subprocess.STDOUT)
        self._wait()

    def _wait(self, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server stopped with exit code {self.process.returncode}: {self.log.read_text()[-2000:]}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("JupyterLab did not answer")

    def url(self, notebook: str) -> str:
        return f"http://127.0.0.1:{self.port}/doc/tree/{notebook}?token={self.token}"

    def kill_kernels(self) -> int:
        """kill -9 every kernel of this server, as a crash would."""
        kernels = [
            p for p in psutil.Process(self.process.pid).children(recursive=True) if "ipykernel_launcher" in " ".join(p.cmdline())
        ]
        for kernel in kernels:
            kernel.send_signal(signal.SIGKILL)
        return len(kernels)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def lab(folder: Path, scratch: Path) -> Iterator[Lab]:
    scratch.mkdir(parents=True, exist_ok=True)
    server = Lab(folder, scratch)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def browser_page(*, width: int = 1280, height: int = 900) -> Iterator[Page]:
    """One page of a fresh Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium()), headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(CLICK_MS)
        yield page
        browser.close()


def open_notebook(page: Page, server: Lab, name: str, *, run: bool = True) -> None:
    """Open a notebook and run all of its cells, waiting for the last."""
    page.goto(server.url(name), timeout=KERNEL_MS)
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=KERNEL_MS)
    page.set_default_timeout(KERNEL_MS)
    command = "await window.jupyterapp.commands.execute('notebook:run-all-cells');" if run else ""
    page.evaluate(f"async () => {{ await window.jupyterapp.shell.currentWidget.sessionContext.ready; {command} }}")
    page.set_default_timeout(CLICK_MS)


def shot(page: Page, name: str, what: str | Locator = "") -> Path:
    """A screenshot for a person to look at, in the ignored folder ``artefacts``; with *what* (a selector or a locator) that element, whole."""
    SHOTS.mkdir(exist_ok=True)
    path, size = SHOTS / f"{name}.png", page.viewport_size
    if what and size:
        element = page.locator(what).first if isinstance(what, str) else what
        page.set_viewport_size({"width": size["width"], "height": 2600})
        element.scroll_into_view_if_needed()
        element.screenshot(path=path)
        page.set_viewport_size(size)
    else:
        page.screenshot(path=path)
    return path


CUT_OFF = """(panel) => [...panel.querySelectorAll('button, select, input, textarea, .wb')].filter(e => e.offsetParent !== null)
  .filter(e => { const b = e.getBoundingClientRect(), p = panel.getBoundingClientRect();
                 return b.right > p.right + 1 || b.left < p.left - 1 || b.right > innerWidth || e.scrollWidth > e.clientWidth + 2; })
  .map(e => e.tagName + ' ' + (e.innerText || e.value || '').slice(0, 40))"""


def cut_off(page: Page, panel: Locator, *, width: int = 1280) -> list[str]:
    """What of a panel does not fit at 100 % and 125 % zoom of a screen this wide (a zoomed page has fewer CSS pixels)."""
    size, found = page.viewport_size, []
    for zoom in (1.0, 1.25):
        page.set_viewport_size({"width": round(width / zoom), "height": 900})
        for _ in range(20):  # JupyterLab lays out again some time after the window has changed
            now = panel.evaluate(CUT_OFF)
            if not now:
                break
            page.wait_for_timeout(150)
        found += [f"{zoom:.0%}: {what}" for what in now]
    if size:
        page.set_viewport_size(size)
    return found
