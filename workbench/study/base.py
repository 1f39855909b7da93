"""What every study shares: the rows it may use, and the result it gives back."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import SetupError
from workbench.runner import Run, run, sync
from workbench.stats.estimate import Estimate, SignificanceTest, number, to_frame
from workbench.stats.proportions import proportion
from workbench.stats.resample import mean
from workbench.text import inert_cell, inert_html

LEVELS = ("low", "medium", "high", "critical")
EXPOSURES = ("in_sample", "development", "held_out", "out_of_fold", "unseen", "people")  # the weakest claim first
Number = Estimate | SignificanceTest
Says = Sequence[tuple[str, Mapping[str, str], Mapping[str, str]]]


@cache
def phrases() -> dict[str, Any]:
    return tomllib.loads(resources.files("workbench.resources").joinpath("phrases.toml").read_text("utf-8"))


class Sentence(str):
    """A sentence of a summary: ``depends_on`` names the results it stands on, ``numbers`` are their texts in it, ``names`` other parts."""

    depends_on: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class _Shown:
    """A result inside a sentence. Formats: pct, bare, barepct, n, n_unknown, n_cluster; none is number and interval, or p."""

    def __init__(self, result: Number, lang: str) -> None:
        self.result, self.words, self.written = result, phrases()["words"][lang], list[str]()

    def __format__(self, spec: str) -> str:
        self.written.append(self._text(spec))
        return self.written[-1]

    def _text(self, spec: str) -> str:
        r = self.result
        if spec in ("n", "n_unknown", "n_cluster"):
            return f"{getattr(r, spec, 0):,}"
        value = value_of(r)
        if value is None:
            return f"{self.words[r.status]} ({r.reason})"
        weak = f" ({self.words[r.status]})" if r.status in ("too_few", "degenerate") and "bare" not in spec else ""
        if isinstance(r, SignificanceTest):
            return ("p < 0.001" if value < 0.001 else f"p = {number(value, 3)}") + weak
        if value == 0 and r.reason.startswith("0 of ") and r.high is not None:
            return str(self.words["zero"].format(n=r.n, high=_digits(r.high, "pct")))
        if "bare" in spec or r.low is None or r.high is None:
            return _digits(value, spec) + weak
        return f"{_digits(value, spec)} [{_digits(r.low, spec, '')}, {_digits(r.high, spec, '')}]{weak}"


def _digits(value: float, spec: str, unit: str = " %") -> str:
    if "pct" in spec:
        return ("0" if abs(value) < 1e-9 else "0.01" if 0 < value < 1e-4 else number(100 * value, 1)) + unit
    value = 0.0 if abs(value) < 1e-9 else value
    return number(value, 0 if spec == "bare" and float(value).is_integer() and value > 1 else 2)


def value_of(result: Number) -> float | None:
    """The number a sentence shows: an estimate's value, a test's adjusted p (p itself outside a family)."""
    if isinstance(result, Estimate):
        return result.value
    return result.p if result.p_adjusted is None else result.p_adjusted


@dataclass(frozen=True)
class Result:
    """What a study found.

    ``frames`` are tidy tables, ``estimates`` the numbers with intervals and the tests, ``drawings`` draw one figure each
    on an axis (or a new one), ``says`` are (phrase, slot -> name of a result, slot -> text) for the summary.
    """

    name: str
    frames: dict[str, pd.DataFrame]
    estimates: list[Number]
    drawings: dict[str, Callable[..., Any]] = field(default_factory=dict)
    says: Says = ()
    simulated: bool = False

    def __getitem__(self, name: str) -> Number:
        for r in self.estimates:
            if r.name == name:
                return r
        raise KeyError(f"no result is called '{name}': names are in .to_frame().name")

    def __repr__(self) -> str:
        mark = ", simulated" if self.simulated else ""
        return f"Result({self.name!r}, estimates={len(self.estimates)}, figures={list(self.drawings)}{mark})"

    def to_frame(self) -> pd.DataFrame:
        """All estimates and tests, one row each."""
        return to_frame(self.estimates).assign(simulated=self.simulated)

    def plot(self, which: str | None = None, *, ax: Any = None, lang: str = "en") -> Any:
        """Draw one figure (the first if not named) and return its axes (the first, if it has several)."""
        name = which or next(iter(self.drawings), "")
        if name not in self.drawings:
            raise SetupError(f"study '{self.name}' has no figure '{name}': it has {', '.join(self.drawings) or 'none'}")
        axes = self.drawings[name](ax=ax, lang=lang)
        return axes if hasattr(axes, "figure") else axes[0]

    def figures(self, lang: str = "en") -> dict[str, Any]:
        """Every figure, newly drawn; each shows itself as PNG in a notebook."""
        return {name: self.plot(name, lang=lang).figure for name in self.drawings}

    def summary(self, lang: str = "en") -> list[str]:
        """Plain sentences; every number in them is a value of ``estimates`` (each is a ``Sentence``)."""
        words = phrases()["words"]
        if lang not in words:
            raise SetupError(f"no sentences in '{lang}': choose one of {', '.join(words)}")
        known = {r.name: r for r in self.estimates}
        lines = [_say(key, slots, fill, lang, known) for key, slots, fill in self.says if set(slots.values()) <= set(known)]
        return list(dict.fromkeys([*([Sentence(words[lang]["simulated"])] if self.simulated else []), *lines]))

    def save(self, folder: str | Path) -> Path:
        """Write tables (CSV, formula-safe), figures (PNG) and the summary in each language into *folder*; returns it."""
        from workbench.plots import png

        out = Path(folder).expanduser()
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in (self.frames | {"estimates": self.to_frame()}).items():
            frame.map(inert_cell).to_csv(out / _file(self.name, name, "csv"), index=False)
        for name, figure in self.figures().items():
            (out / _file(self.name, name, "png")).write_bytes(png(figure))
        for lang in phrases()["words"]:
            (out / _file(self.name, f"summary.{lang}", "txt")).write_text("\n".join(self.summary(lang)) + "\n", "utf-8")
        return out

    def _repr_html_(self) -> str:
        says, rows = ("".join(f"<li>{inert_html(x)}</li>" for x in part) for part in (self.summary(), self.estimates))
        title = inert_html(self.name) + (" (simulated)" if self.simulated else "")
        return (
            f"<h4>{title}</h4><ul>{says}</ul><details><summary>{len(self.estimates)} results</summary><ul>{rows}</ul></details>"
        )


def _file(study: str, name: str, ending: str) -> str:
    """A file name from names that may hold anything (judges are named by the user)."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{study}_{name}.{ending}")


def _say(key: str, slots: Mapping[str, str], fill: Mapping[str, str], lang: str, known: Mapping[str, Number]) -> Sentence:
    study, phrase = key.split(".")
    template, head = phrases()[study][phrase][lang], known[next(iter(slots.values()))]
    shown = {slot: _Shown(known[name], lang) for slot, name in slots.items()}
    if value_of(head) is None:  # the sentence has lost its subject
        template, shown, fill = "{subject}: {head}", {"head": _Shown(head, lang)}, {}
    texts = {"subject": head.name, **fill}
    sentence = Sentence(template.format(**shown, **texts))
    sentence.depends_on = tuple(dict.fromkeys(slots.values()))
    sentence.numbers = tuple(text for s in shown.values() for text in s.written)
    sentence.names = tuple(texts.values())
    return sentence


def sentences(study: str, **over: Iterable[Mapping[str, str]]) -> Says:
    """The summary of a study as phrases.toml lists it: a phrase with ``each`` is said once for each item of *over* by that name."""
    return [
        (f"{study}.{key}", {slot: name.format(**item) for slot, name in phrase["slots"].items()}, item)
        for key, phrase in phrases()[study].items()
        for item in (over.get(phrase["each"], ()) if "each" in phrase else ({},))
    ]


@dataclass(frozen=True)
class Material:
    """The stored verdicts a study works on, and the pipeline that gave them (None when only tables are known)."""

    frame: pd.DataFrame
    outcomes: pd.DataFrame
    pipeline: DoubleConfirmation | None = None

    @property
    def simulated(self) -> bool:
        return bool((self.frame["judge_kind"] == "simulated").any())

    def only(self, **columns: Any) -> Material:
        """The rows whose columns have these values (a list or set: any of them), in each table that has the column."""

        def cut(rows: pd.DataFrame) -> pd.DataFrame:
            for name, wanted in columns.items():
                if name in rows:
                    rows = rows[rows[name].isin(wanted if isinstance(wanted, list | set | tuple) else [wanted])]
            return rows

        return replace(self, frame=cut(self.frame), outcomes=cut(self.outcomes))

    def last(self) -> Material:
        """The last assessed turn of each dialogue only: its text under analysis."""
        top = self.frame.groupby("dialogue_id")["turn"].max()
        frame, outcomes = (t[(t["turn"] == t["dialogue_id"].map(top)).fillna(False)] for t in (self.frame, self.outcomes))
        return replace(self, frame=frame, outcomes=outcomes)

    def strata(self) -> dict[str, Material]:
        """'' is every dialogue that no judge was trained on (cross-fitted judges: out of fold); where rules were written
        while looking at some of them (development), those that nobody looked at stand beside it as ' (held out)'.

        A dialogue that is in-sample for any judge is left out for all of them, so that comparisons stay paired.
        """
        worst = self.exposure()
        fresh, seen = set(worst.index[worst.isin(EXPOSURES[2:])]), set(worst.index[worst == "development"])
        return {"": self.only(dialogue_id=fresh | seen)} | (
            {" (held out)": self.only(dialogue_id=fresh)} if fresh and seen else {}
        )

    def exposure(self) -> pd.Series:
        """How each dialogue may be used: the weakest claim over the judges."""
        known = self.frame.assign(claim=self.frame["exposure"].fillna("unseen").map(EXPOSURES.index))
        return known.groupby("dialogue_id")["claim"].min().map(lambda i: EXPOSURES[int(i)]).astype(object)

    def caption(self, lang: str = "en") -> str:
        """The line under a figure: dialogues, families, exposure, unknowns."""
        rows, words = self.frame, phrases()["words"][lang]
        kinds = ", ".join(words[k] for k in dict.fromkeys(self.exposure())) or "-"
        counts = {"n": rows["dialogue_id"].nunique(), "families": rows["family"].nunique(), "rows": len(rows)}
        return str(words["caption"].format(**counts, unknown=(rows["level"] == "unknown").sum(), kinds=kinds))

    def deterministic(self, judge: str) -> bool:
        """Does this judge always give the same answer? Asked of the pipeline's judge, else guessed from its kind."""
        for j in self.pipeline.judges if self.pipeline else ():
            if j.name == judge:
                return j.deterministic
        kinds = set(self.frame.loc[self.frame["judge"] == judge, "judge_kind"])
        return bool(kinds) and kinds <= {"rules", "model"}


def gather(source: Any, dialogues: Any = None, *, arms: Sequence[Arm] = (Arm(),), **options: Any) -> Material:
    """The material of a study: a Run or a run directory as it is stored, or a pipeline run over *dialogues* now.

    *options* go to ``run`` (repeats, turns, seed, concurrency, budget, out, resume, progress).
    """
    if isinstance(source, Material):
        return source
    source = Run.open(source) if isinstance(source, str | Path) else source
    if isinstance(source, DoubleConfirmation):
        if dialogues is None:
            raise SetupError("a pipeline needs dialogues to assess: give the corpus as the second argument, or give a run")
        source = sync(run(source, dialogues, arms=arms, **{"progress": False, **options}))
    if not hasattr(source, "outcomes"):
        raise SetupError(f"a study takes a run, a run directory or a pipeline with dialogues, not {type(source).__name__}")
    return Material(source.frame, source.outcomes, source.pipeline)


def by_stratum(material: Material, study: Callable[[Material], Result]) -> Result:
    """The study of all usable dialogues; where some were seen in development, the held-out ones' estimates stand beside it."""
    parts = {word: study(part) for word, part in material.strata().items()}
    frames = {name + word: frame for word, r in parts.items() for name, frame in r.frames.items()}
    return replace(
        parts[""], frames=frames, estimates=[named(e, e.name + word) for word, r in parts.items() for e in r.estimates]
    )


def figure(
    key: str,
    plot: Callable[..., Any],
    *args: Any,
    of: Material | None = None,
    fill: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """A drawing of ``Result.drawings``: *plot* with the words of ``figures.<key>`` (phrases.toml), labelled where simulated."""

    def draw(*, ax: Any = None, lang: str = "en") -> Any:
        words = {k: v.format(**fill or {}) for k, v in phrases()["figures"][key][lang].items()}
        mark = f" ({phrases()['words'][lang]['simulated_mark']})" if of is not None and of.simulated else ""
        caption = " ".join(filter(None, [of.caption(lang) if of is not None else "", words.pop("note", "")]))
        return plot(*args, title=words.pop("title") + mark, caption=caption, ax=ax, **words, **options)

    return draw


def named(result: Number, name: str) -> Any:
    """The same result under another name."""
    return replace(result, name=name)


def share(values: Any, *, name: str, cluster: Any = None) -> Estimate:
    """Mean of shares in [0, 1]: an exact interval when all are 0 or 1, else by t and kept inside [0, 1]."""
    known = pd.to_numeric(pd.Series(values, dtype=object)).dropna()
    if known.isin([0, 1]).all():
        return proportion(values, name=name, cluster=cluster)
    return inside(mean(values, name=name, cluster=cluster), 0.0)


def inside(e: Estimate, low: float = -1.0, high: float = 1.0) -> Estimate:
    """The estimate with its interval kept to values that exist (differences of shares or scores: -1 to 1)."""
    return e if e.low is None or e.high is None else replace(e, low=max(low, e.low), high=min(high, e.high))


def table(results: Mapping[str, Number], **columns: Any) -> pd.DataFrame:
    """Estimates as rows for ``plots.forest``: label, value, low, high, n, note; *columns* are added to each row."""
    names = ("value", "low", "high", "n")
    rows = [{"label": k, "note": f"{e.status.replace('_', ' ')}: {e.reason}"} | {c: getattr(e, c, None) for c in names}
            for k, e in results.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=["label", *names, "note"]).assign(**columns)


def row_shares(counts: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table of counts as shares of each row, and its cells as text (n and per cent), for ``plots.heat``."""
    part = counts.div(counts.sum(axis=1).replace(0, np.nan), axis=0)
    return part, counts.astype(str) + part.map(lambda v: "" if np.isnan(v) else f"\n{100 * v:.0f} %")
