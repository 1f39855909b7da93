"""Look at the environment: what is there, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from importlib import metadata
from typing import Final

from workbench import __version__

NEEDED: Final = (
    "aiohttp", "anywidget", "ipywidgets", "jupyterlab", "matplotlib", "numpy", "openai", "pandas", "pyahocorasick", "pydantic", "scikit-learn",
    "scipy", "sqlalchemy", "statsmodels",
)  # fmt: skip
OPTIONAL: Final = {
    "xllamacpp": ("xllamacpp", "the local LLM judge", "pip install 'judge-workbench[local]', then workbench local fetch"),
    "pytest and nbval": ("nbval", "the test suite", "pip install 'judge-workbench[test]', or make test"),
    "playwright": ("playwright", "browser tests", "pip install 'judge-workbench[test]' and a system Chromium"),
}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def examine() -> tuple[list[str], bool]:
    """(lines for a person, whether everything needed is there). Names of key variables are shown, values never."""
    lines = [f"judge-workbench {__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    missing = [p for p in NEEDED if _version(p) is None]
    lines += [f"  missing: {p} (pip install {p})" for p in missing] or [f"  all {len(NEEDED)} required packages are installed"]
    for name, (module, what, how) in OPTIONAL.items():
        there = importlib.util.find_spec(module) is not None
        lines.append(f"  {name}: {'installed' if there else f'not installed; needed for {what}: {how}'}")
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    lines.append(f"  browser for tests: {browser or 'none found; browser tests are skipped (install chromium)'}")
    lines += _judges() + _data()
    return lines, not missing


def _judges() -> list[str]:
    from workbench.errors import SetupError
    from workbench.judges import registry

    try:
        table = registry.listing()
    except SetupError as error:
        return [f"  judges.toml: {error}"]
    rows = table[table.source != "built in"].to_dict("records")
    named = [f"{r['judge']} ({'set ' + r['key_variable'] if r['key'] == 'missing' else 'ready'})" for r in rows]
    return [
        f"  judges: {', '.join(table.judge[table.source == 'built in'])}"
        + (f"; from judges.toml: {', '.join(named)}" if named else "")
    ]


def _data() -> list[str]:
    from workbench.corpus import load_corpus
    from workbench.errors import SetupError

    try:
        corpus = load_corpus()
    except SetupError as error:
        return [f"  dialogues: {error}"]
    return [f"  dialogues: {len(corpus)} in {len(corpus.families)} families"]
