"""Write a run's tidy tables with a data dictionary, its figures, and how to cite it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench import __version__
from workbench.errors import SetupError
from workbench.runner import Run
from workbench.text import inert_cell
from workbench.verify import tables

if TYPE_CHECKING:
    import pandas as pd

FORMATS: Final = ("parquet", "csv", "jsonl")
STUDIES: Final = ("compare", "independence", "thresholds")
_WORDS: Final = {
    "level": "low, medium, high, critical or unknown, after the flag cap", "raw_level": "as the judge gave it, before the flag cap",
    "rank": "0 (low) to 3 (critical) of level", "confidence": "0 to 1, the judge's own", "score": "0 to 1, see docs/statistics.md",
    "exposure": "how the row may be used: out_of_fold, development, held_out, in_sample, unseen", "family": "unit of resampling",
    "reason": "why an assessment is unknown", "defects": "parser defects, joined by ;", "blocked_by": "conditions and guards that failed, joined by ;",
    "gold_acceptable": "levels a careful rater could also give, joined by ;", "turn": "user turn, from 0; the text under analysis is the last",
    "arm": "experimental condition of L2", "paraphrase": "wording of the anchor", "order": "position of the arm, from 0",
    "cost_usd": "US dollars at the listed price", "latency_s": "seconds; not part of any hash",
}  # fmt: skip


def export(run: str | Path, *, format: str = "csv", out: str | Path | None = None) -> Path:
    """Write tables, ``dictionary.csv``, figures (SVG, and PNG at 300 dpi) and ``CITATION.txt``; returns the folder.

    CSV cells cannot start a formula. Raises SetupError for an unknown format or an unwritable folder.
    """
    if format not in FORMATS:
        raise SetupError(f"unknown format '{format}': choose one of {', '.join(FORMATS)}")
    opened = Run.open(run)
    folder = Path(out).expanduser() if out else opened.path / "export"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = tables(opened.frame, opened.outcomes)
        for name, table in made.items():
            _write(table, folder / f"{name}.{format}", format)
        _write(dictionary(made), folder / "dictionary.csv", "csv")
        _figures(opened, folder)
        (folder / "CITATION.txt").write_text(citation(opened), "utf-8")
    except OSError as error:
        raise SetupError(f"cannot write to '{folder}' ({error.strerror}): choose another --out") from None
    return folder


def _write(table: pd.DataFrame, path: Path, format: str) -> None:
    if format == "parquet":
        table.to_parquet(path, index=False)
    elif format == "jsonl":
        path.write_text(table.to_json(orient="records", lines=True, force_ascii=True), "utf-8")
    else:
        table.map(inert_cell).to_csv(path, index=False, encoding="utf-8-sig")


def dictionary(made: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per table and column: type, missing count, meaning where the name does not say it."""
    import pandas as pd

    rows = [
        {
            "table": name,
            "column": c,
            "type": str(t[c].dtype),
            "missing": int(t[c].isna().sum()),
            "n": len(t),
            "meaning": _meaning(c),
        }
        for name, t in made.items()
        for c in t.columns
    ]
    return pd.DataFrame(rows)


def _meaning(column: str) -> str:
    bare = column.removeprefix("l1_").removeprefix("l2_").removeprefix("gold_")
    for prefix, words in (
        ("dim_", "warning-sign dimension, 0 to 1; missing: not assessed"),
        ("flag_", "context flag"),
        ("cond_", "condition passed"),
    ):
        if column.startswith(prefix):
            return words
    return str(_WORDS.get(column, _WORDS.get(bare, "")))


def _figures(run: Run, folder: Path) -> None:
    from workbench import study
    from workbench.plots import png

    for name in STUDIES:
        for which, figure in getattr(study, name)(run).figures().items():
            (folder / f"{name}_{which}.png").write_bytes(png(figure, dpi=300))
            figure.savefig(folder / f"{name}_{which}.svg", metadata={"Date": None})


def citation(run: Run) -> str:
    """How to cite the run: software, version, data and run id."""
    config: dict[str, Any] = run.manifest["config"]
    judges = json.dumps({role: config["pipeline"][role] for role in ("l1", "l2")}, ensure_ascii=False)
    return (
        f"Judge Workbench {__version__} (Apache-2.0). Run {run.manifest['run_id']}: {run.manifest['n_dialogues']} dialogues, corpus sha256 "
        f"{config['corpus_sha256']}, prompts sha256 {config['prompts_sha256']}, judges {judges}. Dialogues: CC BY 4.0, synthetic.\n"
    )
