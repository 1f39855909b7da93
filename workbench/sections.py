"""The sections of the report: prose whose every number is bound to a computed value, tables and figures."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from workbench import scoring
from workbench.report import words
from workbench.runner import Run
from workbench.stats.estimate import Estimate, SignificanceTest, number
from workbench.text import inert_html

if TYPE_CHECKING:
    import pandas as pd


LONG_TABLE: Final = 30


@dataclass(frozen=True)
class Section:
    """One section as HTML: heading, sentences, tables (title -> frame), figures (caption -> PNG)."""

    heading: str
    sentences: tuple[str, ...] = ()
    tables: tuple[tuple[str, Any], ...] = ()
    figures: tuple[tuple[str, bytes], ...] = ()
    alerts: tuple[str, ...] = ()
    level: int = 2
    items: tuple[str, ...] = field(default=())

    def _repr_html_(self) -> str:
        parts = [f"<h{self.level}>{inert_html(self.heading)}</h{self.level}>"]
        parts += [f'<p class="wb-alert" role="note">{inert_html(a)}</p>' for a in self.alerts]
        parts += [f"<p>{inert_html(s)}</p>" for s in self.sentences]
        if self.items:
            parts.append("<ul>" + "".join(f"<li>{inert_html(i)}</li>" for i in self.items) + "</ul>")
        parts += [figure_html(caption, data) for caption, data in self.figures]
        parts += [table_html(title, frame) for title, frame in self.tables]
        return f'<section class="wb-report mathjax_ignore tex2jax_ignore">{"".join(parts)}</section>'

    def __repr__(self) -> str:
        return (
            f"Section({self.heading!r}, sentences={len(self.sentences)}, tables={len(self.tables)}, figures={len(self.figures)})"
        )


def figure_html(caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<figure><img alt="{inert_html(caption)}" src="data:image/png;base64,{data}"><figcaption>{inert_html(caption)}</figcaption></figure>'


def table_html(title: str, frame: pd.DataFrame) -> str:
    """A folded table: missing cells are a dash, numbers are short, text is inert."""
    head = "".join(f'<th scope="col">{inert_html(c)}</th>' for c in frame.columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(v)}</td>" for v in row) + "</tr>" for row in frame.itertuples(index=False))
    return f'<details{" open" if len(frame) <= LONG_TABLE else ""}><summary>{inert_html(title)} ({len(frame)})</summary><div class="wb-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'


def _cell(value: Any) -> str:
    import pandas as pd

    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, bool) or (hasattr(value, "dtype") and value.dtype == bool):
        return "yes" if value else "no"
    return inert_html(number(float(value), 3)) if isinstance(value, float) else inert_html(value)


def estimates_table(results: Iterable[Estimate | SignificanceTest]) -> pd.DataFrame:
    """Estimates and tests in one table; a test shows its p-value (adjusted where it is) as its value."""
    import pandas as pd

    rows = []
    for r in results:
        row = {"result": r.name, "n": r.n, "unknown": r.n_unknown, "status": r.status.replace("_", " "), "reason": r.reason}
        if isinstance(r, Estimate):
            rows.append(row | {"value": r.value, "low": r.low, "high": r.high, "families": r.n_cluster})
        else:
            rows.append(row | {"p": r.p if r.p_adjusted is None else r.p_adjusted})
    columns = ["result", "value", "low", "high", "p", "n", "families", "unknown", "status", "reason"]
    frame = pd.DataFrame(rows, columns=columns).astype({"families": "Int64"})
    return frame.drop(columns=[c for c in ("p", "reason") if frame[c].replace("", None).isna().all()])


class Page:
    """The report of one run, section by section. Each method returns a Section; none calls a judge."""

    def __init__(self, run: Run, *, lang: str = "en", region: str | None = None, today: date | None = None) -> None:
        self.run, self.lang, self.region, self.today = run, lang, region, today or date.today()
        self.text = words(lang)
        self.used: list[Estimate] = []  # what the methods appendix is made from

    def say(self, key: str, **values: Any) -> str:
        """One sentence of the report's prose; every number in it is one of *values*."""
        shown = {k: number(v, 3) if isinstance(v, float) else v for k, v in values.items()}
        return str(self.text["say"][key]).format(**shown)

    def _section(self, key: str, **parts: Any) -> Section:
        return Section(self.text["headings"][key], **parts)

    @cached_property
    def rows(self) -> pd.DataFrame:
        return scoring.scorable(self.run.outcomes)

    @cached_property
    def summary(self) -> dict[str, Any]:
        return scoring.summary(self.run.outcomes)

    # -- sections

    def head(self, title: str | None = None) -> Section:
        m = self.run.manifest
        alerts = [self.text["note" if m["synthetic"] else "note_real"]]
        if (self.run.frame.judge_kind == "simulated").any():
            alerts.append(self.text["simulated"])
        if m["status"] != "complete":
            alerts.append(str(self.text["interrupted"]).format(status=m["status"], done=m["done"], total=m["total"]))
        return Section(title or str(self.text["title"]).format(run=self.run.path.resolve().name), alerts=tuple(alerts), level=1)

    def asked(self) -> Section:
        c, p = self.run.manifest["config"], self.run.manifest["config"]["pipeline"]
        shared = {n: p[n] for n in ("context", "context_messages", "trend", "l2_policy", "combine", "confirm_confidence")}
        who = {f"{r}{s}": p[r][k] for r in ("l1", "l2") for s, k in (("", "name"), ("_kind", "kind"))}
        first = self.say(
            "asked", arms=", ".join(dict.fromkeys(a["name"] for a in c["arms"])), repeats=c["repeats"], **shared, **who
        )
        return self._section("asked", sentences=(first, self.say("shared" if p["shared_blindness"] else "separate")))

    def data(self) -> Section:
        facts, rows = self.run.corpus.frame, self.run.outcomes
        notes = self._exposures()
        if rows.family.nunique() < 20:
            notes.append(self.say("too_small", families=int(rows.family.nunique())))
        languages = ", ".join(f"{n} {lang}" for lang, n in facts.lang.value_counts().items())
        first = self.say("data", dialogues=len(facts), families=int(facts.family.nunique()), languages=languages, gold=int(facts.gold_level.notna().sum()),
                         critical=int((facts.gold_level == "critical").sum()), exposure=" ".join(notes))  # fmt: skip
        counts = facts.groupby(["split", "lang", facts.gold_level.fillna("no gold")]).size().rename("dialogues").reset_index()
        return self._section("data", sentences=(first,), tables=(("split x language x gold level", counts),))

    def _exposures(self) -> list[str]:
        frame, notes = self.run.frame, []
        for judge, part in frame.groupby("judge"):
            kinds = part.exposure.value_counts()
            if kinds.get("development"):
                notes.append(
                    self.say(
                        "exposure_development",
                        judge=judge,
                        development=int(kinds["development"]),
                        held_out=int(kinds.get("held_out", 0)),
                    )
                )
            elif kinds.get("out_of_fold"):
                notes.append(self.say("exposure_out_of_fold"))
        return notes

    def judges(self) -> Section:
        frame = self.run.frame
        returned = frame.groupby(["tier", "judge", "judge_kind"], dropna=False).agg(
            assessments=("level", "size"), unknown=("level", lambda x: int((x == "unknown").sum())), model_requested=("model_requested", _distinct),
            model_returned=("model_returned", _distinct), fingerprint=("fingerprint", _distinct), prompt=("prompt_id", _distinct),
        )  # fmt: skip
        return self._section("judges", tables=(("requested and returned", returned.reset_index()),))

    def results(self) -> Section:
        s, rows = self.summary, self.rows
        if not len(rows):
            return self._section("results", sentences=(self.say("no_gold"),))
        sentences = [self.say("results", **s)]
        if not s["gold_critical"]:
            sentences.append(self.say("no_critical"))
        removed, lost = s["l1_false_criticals"] - s["false_confirmations"], s["missed_criticals"] - s["l1_missed_criticals"]
        sentences.append(
            self.say("removed", removed=removed, lost=lost, **{k: s[k] for k in ("l1_false_criticals", "l1_missed_criticals")})
        )
        if not s["confirmed"]:
            sentences.append(self.say("no_confirm"))
        sentences.append(self.say("review_load", for_review=s["for_review"], scored=s["scored"]))
        found = scoring.estimates(rows)
        self.used += found
        tables = [("estimates, all scored rows", estimates_table(found))]
        tables += [
            (f"gold level by {t.upper()} level", scoring.confusion(rows, f"{t}_level").reset_index()) for t in ("l1", "l2")
        ]
        parts = scoring.score(self.run.outcomes)
        parts = parts[
            (parts.group != "all")
            & parts.name.isin(["missed criticals", "false confirmations", "sensitivity >= high or", "specificity >= high or"])
        ]
        keep = ["group", "value_of_group", "name", "value", "low", "high", "n", "n_cluster", "n_unknown", "status"]
        return self._section(
            "results", sentences=tuple(sentences), tables=(*tables, ("by language, phenomenon, length and exposure", parts[keep]))
        )

    def blocked(self) -> Section:
        table = scoring.blocked(self.run.outcomes)
        if not len(table) or not table.n_critical.max():
            return self._section("blocked", sentences=(self.say("no_critical"),), tables=(("conditions and guards", table),))
        top = max(table.to_dict("records"), key=lambda row: int(row["blocked_critical"]))
        says = self.say("blocked", **{str(k): v for k, v in top.items()})
        return self._section("blocked", sentences=(says,), tables=(("conditions and guards", table),))

    def unknowns(self) -> Section:
        frame, s = self.run.frame, self.summary
        ran = frame[frame.reason.fillna("") != "not_run"]
        reasons = ran[ran.level == "unknown"].groupby(["tier", "judge", "reason"]).size().rename("assessments").reset_index()
        if not len(reasons):
            return self._section("unknowns", sentences=(self.say("no_unknown"),))
        share = len(ran[ran.level == "unknown"]) / len(ran)
        sentences = [self.say("unknown", **s)] + ([self.say("many_unknown", share=f"{share:.1%}")] if share > 0.02 else [])
        bounded = [e for e in scoring.estimates(self.rows) if "bounded" in e.name] if len(self.rows) else []
        return self._section(
            "unknowns",
            sentences=tuple(sentences),
            tables=(("reasons", reasons), ("worst and best case", estimates_table(bounded))),
        )

    def study(self, key: str, *first: Any, name: str = "") -> Section:
        """A section from a study of this run's stored verdicts: its summary, figures and estimates."""
        from workbench import study
        from workbench.plots import png

        result = getattr(study, name or key)(*first, self.run)
        self.used += [e for e in result.estimates if isinstance(e, Estimate)]
        says = tuple(str(x) for x in result.summary(self.lang))
        if not any(e.status in ("ok", "too_few") for e in result.estimates):
            return self._section(key, sentences=says)  # a figure of what does not apply would be an empty one
        figures = tuple(
            (f"{name.replace('_', ' ')}: {_title(figure)}", png(figure)) for name, figure in result.figures(self.lang).items()
        )
        return self._section(key, sentences=says, figures=figures, tables=(("estimates", estimates_table(result.estimates)),))

    def drift(self) -> Section:
        return self.study("drift")

    def anchoring(self) -> Section:
        if set(self.run.outcomes.arm) == {"blind"}:
            return self._section("anchoring", sentences=(self.say("no_arms"),))
        return self.study("anchoring")

    def agreement(self) -> Section:
        return self.study("agreement", name="compare")

    def independence(self) -> Section:
        return self.study("independence")

    def thresholds(self) -> Section:
        return self.study("thresholds")

    def review(self) -> Section:
        with self.run.store() as store:
            labels = store.annotations("review")
        if not labels:
            return self._section("review", sentences=(self.say("no_review"),))
        return self.study("review", labels)

    def cost(self) -> Section:
        with self.run.store() as store:
            calls = list(store.calls(self.run.manifest["run_id"]))
        tokens = sum((c["prompt_tokens"] or 0) + (c["completion_tokens"] or 0) for c in calls)
        usd = sum(c["cost_usd"] or 0.0 for c in calls)
        estimated = self.say("estimated") if any(c["usage_estimated"] for c in calls) else ""
        money = self.say("priced", usd=float(usd)) if usd else self.say("free")
        failed = sum(c["status"] != "ok" for c in calls)
        return self._section(
            "cost",
            sentences=(self.say("cost", calls=len(calls), failed=failed, tokens=tokens, estimated=estimated, money=money),),
        )

    def limits(self) -> Section:
        return self._section("limits", items=tuple(self.text["say"]["limits"]))

    def methods(self) -> Section:
        """Generated from the estimates' own method fields."""
        import pandas as pd

        table = pd.DataFrame([{"method": e.method.split(",")[0], "estimate": e.name} for e in self.used if e.method])
        if not len(table):
            return self._section("methods", sentences=(str(self.text["nothing"]).format(reason="no estimate"),))
        grouped = table.groupby("method").estimate.agg(lambda names: "; ".join(dict.fromkeys(names))).reset_index()
        return self._section("methods", tables=(("methods used, and what for", grouped),))

    def resources(self) -> Section:
        from workbench.crisis import render

        return self._section("resources", items=tuple(str(render(self.region, self.today)).splitlines()))


def _title(figure: Any) -> str:
    """The titles of a figure's axes, which are its description for those who cannot see it."""
    return "; ".join(dict.fromkeys(ax.get_title(loc="left").replace("\n", " ") for ax in figure.axes if ax.get_title(loc="left")))


def _distinct(values: pd.Series) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in values.dropna())) or "–"
