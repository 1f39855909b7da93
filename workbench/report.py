"""One self-contained HTML report of a run: execute the report notebook, render it offline, write the manifest beside it."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import tomllib
from datetime import date
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Final

from workbench import __version__
from workbench.errors import RunError, SetupError
from workbench.prompts import resources_hash
from workbench.runner import LEDGER, Run
from workbench.text import sha256
from workbench.verify import REPORT_MANIFEST, hashes

NOTEBOOK: Final = "notebooks/report.ipynb"
PARAMETERS_ID: Final = "parameters"


@cache
def words(lang: str) -> dict[str, Any]:
    """The prose of the report in one language; raises SetupError for another."""
    book = tomllib.loads(resources.files("workbench.resources").joinpath("report.toml").read_text("utf-8"))
    if lang not in book:
        raise SetupError(f"no report in '{lang}': choose en or zh")
    return dict(book[lang])


def report(
    run: str | Path | Run, *, out: str | Path | None = None, lang: str = "en", title: str | None = None, region: str | None = None
) -> Path:
    """Write the HTML report of *run* (default: ``report.html`` in its directory) and ``report.manifest.json`` beside it.

    Equal runs give equal bytes. Raises SetupError for a run or language that does not exist, RunError if a section fails.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    text = words(lang)
    target = Path(out).expanduser() if out else run.path / "report.html"
    heading = title or str(text["title"]).format(run=run.path.name)
    book = _executed(run, lang=lang, region=region, today=date.today().isoformat())
    book["metadata"] = {"title": heading, "language_info": {"name": "python"}}
    page = _html(book, text)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, "utf-8")
    except OSError as error:
        raise SetupError(f"cannot write '{target}' ({error.strerror}): choose another --out") from None
    facts = manifest(run, page, folder=target.parent, lang=lang)
    target.with_name(target.stem + REPORT_MANIFEST).write_text(json.dumps(facts, indent=1, ensure_ascii=False), "utf-8")
    return target


def _notebook() -> Path:
    from workbench.corpus import resolve

    found = resolve(NOTEBOOK)
    if found.is_file():
        return found
    raise SetupError(f"{NOTEBOOK} is not here: run from the repository, where the report notebook lives")


def _executed(run: Run, *, lang: str, region: str | None, today: str) -> Any:
    """The notebook with its parameters set, run in the run's own directory so that no path enters it."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    book = nbformat.read(_notebook(), as_version=4)  # type: ignore[no-untyped-call]
    cell = next(c for c in book.cells if c["id"] == PARAMETERS_ID)
    cell["source"] = f"RUN, LANG, REGION, TODAY = '.', {lang!r}, {region!r}, {today!r}"
    client = NotebookClient(
        book, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(run.path)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        last = f"{error.ename}: {error.evalue}".splitlines()[0]
        raise RunError(f"a section of the report failed ({last}): this is a fault of ours, please report it") from None
    for cell in book.cells:
        cell["metadata"] = {}
    return book


def _html(book: Any, text: dict[str, Any]) -> str:
    from nbconvert import HTMLExporter

    folder = str(resources.files("workbench.resources"))
    exporter = HTMLExporter(template_name="report", extra_template_basedirs=[folder], embed_images=True)
    page, _ = exporter.from_notebook_node(book, resources={"workbench_toggle": text["toggle"]})
    return str(page)


def _git(*args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def manifest(run: Run, page: str, *, folder: Path, lang: str) -> dict[str, Any]:
    """Provenance of a report: code, environment, data, judges, counts and hashes. No secret and no absolute path."""
    import os

    packages = sorted(f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions())
    dirty = _git("status", "--porcelain", "--untracked-files=no")
    frame, config = run.frame, run.manifest["config"]
    return {
        "run": os.path.relpath(run.path, folder), "run_id": run.manifest["run_id"], "lang": lang, "workbench": __version__,
        "git_commit": _git("rev-parse", "HEAD"), "git_dirty": None if dirty is None else bool(dirty),
        "environment_sha256": sha256("\n".join(packages)), "python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}",
        "corpus_sha256": config["corpus_sha256"], "prompts_sha256": config["prompts_sha256"], "prompts_sha256_now": resources_hash(),
        "resources_sha256": _resource_hashes(), "judges": {role: config["pipeline"][role] for role in ("l1", "l2", "arbiter")},
        "models_returned": sorted(frame.model_returned.dropna().unique()), "seed": config["seed"], "synthetic": run.manifest["synthetic"],
        "status": run.manifest["status"], "counts": {k: run.manifest[k] for k in ("n_dialogues", "total", "done", "unknown")},
        "cost_usd": float(frame.cost_usd.fillna(0).sum()), "tables": hashes(run.frame, run.outcomes),
        "ledger_sha256": hashlib.sha256((run.path / LEDGER).read_bytes()).hexdigest(),
        "html_sha256": hashlib.sha256(page.encode("utf-8")).hexdigest(),
    }  # fmt: skip


def _resource_hashes() -> dict[str, str]:
    """Hashes of the lexicon, rule tables and other data that the package decides by."""
    root = Path(str(resources.files("workbench.resources")))
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(root.rglob("*.toml"))}
