"""For all tests: homes of their own, no display, and skips that fail where everything is required."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# The same examples every time, so that a change is what turns the suite red; `make fuzz` draws new ones.
settings.register_profile("suite", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

REQUIRED = ("browser", "local_model")


def chromium() -> Path | None:
    """The Chromium to drive: WORKBENCH_CHROMIUM, or the distribution's."""
    places = [
        os.environ.get("WORKBENCH_CHROMIUM", ""),
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ]
    return next((Path(p) for p in places if p and Path(p).is_file()), None)


def pytest_configure(config: pytest.Config) -> None:
    """The notebooks that nbval runs keep their labels away from those of whoever works here."""
    scratch = tempfile.TemporaryDirectory(prefix="workbench-tests-")
    config.add_cleanup(scratch.cleanup)
    os.environ["WORKBENCH_REVIEWS"] = str(Path(scratch.name) / "reviews.db")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("browser") and chromium() is None:
        pytest.skip("no Chromium: apt-get install chromium, or set WORKBENCH_CHROMIUM to one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """With WORKBENCH_REQUIRE_ALL=1 a browser or local-model test that would be skipped fails instead."""
    report = yield
    needed = [m for m in REQUIRED if item.get_closest_marker(m)]
    if report.skipped and not hasattr(report, "wasxfail") and needed and os.environ.get("WORKBENCH_REQUIRE_ALL") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"WORKBENCH_REQUIRE_ALL=1, but this {needed[0]} test was skipped: {reason}"
    return report


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of fonts and trained models for the whole session: building them takes seconds."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has an empty home and caches, draws without a display, and sees no key and no judge of this machine."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home / name.split("_")[1].lower()))
    monkeypatch.setenv("MPLCONFIGDIR", str(shared_cache))
    monkeypatch.setenv("WORKBENCH_CACHE", str(shared_cache / "models"))  # training takes seconds
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for name in [n for n in os.environ if n.endswith("_API_KEY") or n == "WORKBENCH_JUDGES"]:
        monkeypatch.delenv(name)
    return home
