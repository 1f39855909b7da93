"""What every study shares: the rows it may use, and the result it gives back."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import SetupError
from workbench.runner import Run, run, sync
from workbench.stats.estimate import Estimate, SignificanceTest, number, to_frame
from workbench.text import inert_cell, inert_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = ("low", "medium", "high", "critical")
FRESH = ("held_out", "out_of_fold", "unseen")
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
    """A result inside a sentence. Formats: pct, bare, barepct, n, unknown, families; none is number and interval, or p."""

    def __init__(self, result: Number, lang: str) -> None:
        self.result, self.words, self.written = result, phrases()["words"][lang], list[str]()

    def __format__(self, spec: str) -> str:
        self.written.append(self._text(spec))
        return self.written[-1]

    def _text(self, spec: str) -> str:
        r = self.result
        if spec in ("n", "n_unknown", "n_cluster"):
            return f"{getattr(r, spec, 0):,}"
        p = isinstance(r, SignificanceTest)
        value = r.value if isinstance(r, Estimate) else r.p if r.p_adjusted is None else r.p_adjusted
        if value is None:
            return f"{self.words[r.status]} ({r.reason})"
        weak = f" ({self.words[r.status]})" if r.status in ("too_few", "degenerate") and "bare" not in spec else ""
        if p:
            return ("p < 0.001" if value < 0.001 else f"p = {number(value, 3)}") + weak
        scale, unit, digits = (100, " %", 1) if "pct" in spec else (1, "", 0 if float(value).is_integer() and value > 1 else 2)
        low, high = getattr(r, "low", None), getattr(r, "high", None)
        if value == 0 and r.reason.startswith("0 of ") and high is not None:
            return str(self.words["zero"].format(n=r.n, high=number(100 * high, 1)))
        shown = number(scale * value, digits) + unit
        if "bare" in spec or low is None or high is None:
            return shown + weak
        return f"{shown} [{number(scale * low, digits)}, {number(scale * high, digits)}]{weak}"


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

    def plot(self, which: str | None = None, *, ax: Axes | None = None, lang: str = "en") -> Axes:
        """Draw one figure (the first if not named) and return its axes (the first, if it has several)."""
        name = which or next(iter(self.drawings))
        if name not in self.drawings:
            raise SetupError(f"study '{self.name}' has no figure '{name}': choose one of {', '.join(self.drawings)}")
        axes: Any = self.drawings[name](ax=ax, lang=lang)
        return axes if hasattr(axes, "figure") else axes[0]  # type: ignore[no-any-return]

    def figures(self, lang: str = "en") -> dict[str, Figure]:
        """Every figure, newly drawn; each shows itself as PNG in a notebook."""
        return {name: self.plot(name, lang=lang).figure for name in self.drawings}  # type: ignore[misc]

    def summary(self, lang: str = "en") -> list[str]:
        """Plain sentences; every number in them is a value of ``estimates`` (each is a ``Sentence``)."""
        words = phrases()["words"]
        if lang not in words:
            raise SetupError(f"no sentences in '{lang}': choose one of {', '.join(words)}")
        known = {r.name for r in self.estimates}
        first: list[str] = [Sentence(words[lang]["simulated"])] if self.simulated else []
        lines = [self._say(key, slots, fill, lang) for key, slots, fill in self.says if set(slots.values()) <= known]
        return list(dict.fromkeys([*first, *lines]))

    def _say(self, key: str, slots: Mapping[str, str], fill: Mapping[str, str], lang: str) -> Sentence:
        shown = {slot: _Shown(self[name], lang) for slot, name in slots.items()}
        study, phrase = key.split(".")
        template = phrases()[study][phrase][lang]
        head = self[next(iter(slots.values()))]
        if (head.value if isinstance(head, Estimate) else head.p) is None:  # the sentence has no subject
            template, fill = "{subject}: {head}", {"subject": head.name}
            shown = {"head": _Shown(head, lang)}
        sentence = Sentence(template.format(**shown, **fill))
        sentence.depends_on = tuple(dict.fromkeys(slots.values()))
        sentence.numbers = tuple(text for s in shown.values() for text in s.written)
        sentence.names = tuple(fill.values())
        return sentence

    def save(self, folder: str | Path) -> Path:
        """Write tables (CSV, formula-safe), figures (PNG) and the summary in each language into *folder*; returns it."""
        from workbench.plots import png

        out = Path(folder).expanduser()
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in (self.frames | {"estimates": self.to_frame()}).items():
            frame.map(inert_cell).to_csv(out / f"{self.name}_{name}.csv", index=False)
        for name, figure in self.figures().items():
            (out / f"{self.name}_{name}.png").write_bytes(png(figure))
        for lang in phrases()["words"]:
            (out / f"{self.name}_summary.{lang}.txt").write_text("\n".join(self.summary(lang)) + "\n", "utf-8")
        return out

    def _repr_html_(self) -> str:
        says, rows = ("".join(f"<li>{inert_html(x)}</li>" for x in part) for part in (self.summary(), self.estimates))
        title = inert_html(self.name) + (" (simulated)" if self.simulated else "")
        return (
            f"<h4>{title}</h4><ul>{says}</ul><details><summary>{len(self.estimates)} results</summary><ul>{rows}</ul></details>"
        )


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

    def strata(self) -> dict[str, Material]:
        """'' is what the headline stands on: dialogues no judge learnt from. Development dialogues are kept apart.

        A dialogue that is in-sample for any judge is left out for all of them, so that comparisons stay paired. Where
        there are only development dialogues, they are '' (the caption says so).
        """
        worst = self.frame.groupby("dialogue_id")["exposure"].agg(_worst)
        fresh, seen = (set(worst.index[worst.isin(kinds)]) for kinds in (FRESH, ("development",)))
        if not fresh:
            return {"": self.only(dialogue_id=seen)}
        return {"": self.only(dialogue_id=fresh)} | ({" (development)": self.only(dialogue_id=seen)} if seen else {})

    def caption(self, lang: str = "en") -> str:
        """The line under a figure: dialogues, families, exposure, unknowns."""
        rows, words = self.frame, phrases()["words"][lang]
        kinds = ", ".join(words.get(str(k), str(k)) for k in dict.fromkeys(rows["exposure"].dropna()))
        counts = {"n": rows["dialogue_id"].nunique(), "families": rows["family"].nunique(), "rows": len(rows)}
        return str(words["caption"].format(**counts, unknown=(rows["level"] == "unknown").sum(), kinds=kinds or "-"))

    def deterministic(self, judge: str) -> bool:
        """Does this judge always give the same answer? Asked of the pipeline's judge, else guessed from its kind."""
        for j in self.pipeline.judges if self.pipeline else ():
            if j.name == judge:
                return j.deterministic
        kinds = set(self.frame.loc[self.frame["judge"] == judge, "judge_kind"])
        return bool(kinds) and kinds <= {"rules", "model"}


def _worst(kinds: Iterable[Any]) -> str:
    order = ("in_sample", "development", *FRESH)
    return min((k for k in kinds if not pd.isna(k)), key=order.index, default="unseen")


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


def by_stratum(material: Material, measure: Callable[[Material], Iterable[Number]]) -> list[Number]:
    """The results of every stratum, those of development dialogues under names that say so."""
    return [replace(r, name=r.name + word) for word, part in material.strata().items() for r in measure(part)]


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


def table(results: Mapping[str, Number], **columns: Any) -> pd.DataFrame:
    """Estimates as rows for ``plots.forest``: label, value, low, high, n, note; *columns* are added to each row."""
    names = ("value", "low", "high", "n")
    rows = [{"label": k, "note": f"{e.status.replace('_', ' ')}: {e.reason}"} | {c: getattr(e, c, None) for c in names}
            for k, e in results.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=["label", *names, "note"]).assign(**columns)
