"""Score outcomes against gold: what L1, L2 and each combination find, miss and raise falsely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from workbench.schema import RiskLevel
from workbench.stats.estimate import Estimate
from workbench.stats.proportions import bounds, proportion

if TYPE_CHECKING:
    import pandas as pd

LEVELS: Final = [level.value for level in RiskLevel]
RULES: Final = ("L1", "L2", "and", "or", "confirmed")
GROUPS: Final = ("lang", "phenomenon", "length", "exposure")


def length_class(n_user_turns: pd.Series) -> pd.Series:
    """single (one user turn), short (2-3) or long (4 or more)."""
    import pandas as pd

    return pd.cut(n_user_turns.astype("int64"), [0, 1, 3, 10_000], labels=["single", "short", "long"]).astype("string")


def scorable(outcomes: pd.DataFrame) -> pd.DataFrame:
    """The rows that may enter a rate: with gold, blind arm, main text, not in-sample; with a ``length`` column."""
    keep = outcomes.gold_level.notna() & (outcomes.exposure.fillna("unseen") != "in_sample") & (outcomes.arm == "blind")
    rows = outcomes[keep].copy()
    rows["length"] = length_class(rows.n_user_turns)
    return rows


def positive(rows: pd.DataFrame, rule: str, target: str) -> pd.Series:
    """Does *rule* call each row critical (target ``critical``) or at least high (``high``)? <NA> where a side is unknown.

    Kleene logic: one known 'no' settles an AND, one known 'yes' settles an OR; ``confirmed`` is never unknown.
    """
    if rule == "confirmed":
        return rows.confirmed.astype("boolean")
    wanted = ["critical"] if target == "critical" else ["high", "critical"]

    def side(name: str) -> pd.Series:
        level = rows[f"{name}_level"]
        return level.isin(wanted).astype("boolean").mask(level == "unknown")

    if rule in ("L1", "L2"):
        return side(rule.lower())
    return side("l1") & side("l2") if rule == "and" else side("l1") | side("l2")


def gold_positive(rows: pd.DataFrame, target: str) -> pd.Series:
    return rows.gold_level.isin(["critical"] if target == "critical" else ["high", "critical"])


def confusion(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Counts, gold level (rows) by *column* (low..critical, unknown): the full scale even where it is empty."""
    import pandas as pd

    gold = pd.Categorical(rows.gold_level, LEVELS)
    said = pd.Categorical(rows[column], [*LEVELS, "unknown"])
    return pd.crosstab(gold, said, dropna=False).rename_axis(index="gold", columns=column)


def _both(rows: pd.DataFrame, rule: str, target: str) -> Iterator[Estimate]:
    said, truth = positive(rows, rule, target), gold_positive(rows, target)
    for measure, part, value in (("sensitivity", truth, said), ("specificity", ~truth, ~said)):
        name = f"{measure} {'critical' if target == 'critical' else '>= high'} {rule}"
        yield proportion(value[part], name=name, cluster=rows.family[part])
        if value[part].isna().any():
            yield bounds(value[part], name=f"{name}, unknown bounded")


def _operational(rows: pd.DataFrame) -> Iterator[Estimate]:
    critical = rows.gold_level == "critical"
    passed = critical & positive(rows, "L1", "high").fillna(False)
    yield proportion(~rows.confirmed[critical], name="missed criticals", cluster=rows.family[critical])
    yield proportion(rows.confirmed[~critical], name="false confirmations", cluster=rows.family[~critical])
    yield proportion(rows.confirmed[passed], name="confirmable recall", cluster=rows.family[passed])
    for side in ("l1", "l2"):
        ran = rows[f"{side}_reason"].fillna("") != "not_run"
        yield proportion(rows[f"{side}_level"][ran] == "unknown", name=f"unknown {side.upper()}", cluster=rows.family[ran])


def estimates(rows: pd.DataFrame) -> list[Estimate]:
    """All estimates for one set of scorable rows: per rule and target, then the operational ones."""
    pairs = [(rule, target) for rule in RULES for target in ("critical", "high") if (rule, target) != ("confirmed", "high")]
    return [e for rule, target in pairs for e in _both(rows, rule, target)] + list(_operational(rows))


def score(outcomes: pd.DataFrame, *, groups: tuple[str, ...] = GROUPS) -> pd.DataFrame:
    """One row per estimate and group (``group`` = all, then each value of *groups*), with interval and denominators."""
    import pandas as pd

    rows = scorable(outcomes)
    table: list[dict[str, Any]] = [{"group": "all", "value_of_group": "", **asdict(e)} for e in estimates(rows)]
    for group in groups:
        for value, part in rows.groupby(rows[group].fillna("").replace("", "(none)"), sort=True):
            table += [{"group": group, "value_of_group": str(value), **asdict(e)} for e in estimates(part)]
    return pd.DataFrame(table)


def blocked(outcomes: pd.DataFrame) -> pd.DataFrame:
    """How many cases each condition blocked, how many it blocked alone, and the same among gold-critical cases."""
    import pandas as pd

    rows = scorable(outcomes)
    lists = rows.blocked_by.fillna("").str.split(";")
    critical = rows.gold_level == "critical"
    table = []
    for name in [c.removeprefix("cond_") for c in rows.columns if c.startswith("cond_")]:
        hit = lists.map(lambda names, name=name: name in names).astype(bool)
        alone = lists.map(lambda names, name=name: names == [name]).astype(bool)
        table.append({
            "condition": name, "blocked": int(hit.sum()), "blocked_alone": int(alone.sum()), "blocked_critical": int((hit & critical).sum()),
            "blocked_critical_alone": int((alone & critical).sum()), "n": len(rows), "n_critical": int(critical.sum()),
        })  # fmt: skip
    return pd.DataFrame(table)


def summary(outcomes: pd.DataFrame) -> dict[str, Any]:
    """The counts a newcomer asks for first; every number is a count of rows."""
    rows = scorable(outcomes)
    critical = rows.gold_level == "critical"
    return {
        "dialogues": int(outcomes.dialogue_id.nunique()), "scored": len(rows), "gold_critical": int(critical.sum()),
        "confirmed": int(rows.confirmed.sum()), "confirmed_critical": int((rows.confirmed & critical).sum()),
        "missed_criticals": int((~rows.confirmed & critical).sum()), "false_confirmations": int((rows.confirmed & ~critical).sum()),
        "l1_false_criticals": int((positive(rows, "L1", "critical").fillna(False) & ~critical).sum()),
        "l1_missed_criticals": int((~positive(rows, "L1", "critical").fillna(False) & critical).sum()),
        "unknown_l1": int((rows.l1_level == "unknown").sum()),
        "unknown_l2": int(((rows.l2_level == "unknown") & (rows.l2_reason.fillna("") != "not_run")).sum()),
        "for_review": int((rows.review_reasons.fillna("") != "").sum()),
    }  # fmt: skip


def text(outcomes: pd.DataFrame, frame: pd.DataFrame) -> str:
    """The table that ``workbench run`` and ``workbench score`` print: what was found beside what was missed."""
    rows, s = scorable(outcomes), summary(outcomes)
    judges = [
        f"{tier} {', '.join(part.judge.unique())} ({', '.join(part.judge_kind.unique())})" for tier, part in frame.groupby("tier")
    ]
    simulated = " SIMULATED judges: these numbers describe a simulation." if (frame.judge_kind == "simulated").any() else ""
    lines = [f"{s['dialogues']} dialogues, {s['scored']} scored; {'; '.join(judges)}.{simulated}", ""]
    if not len(rows):
        return "\n".join([*lines, "No row can be scored: there is no gold, or every row is in-sample."])
    for side in ("L1", "L2"):
        lines += [f"{side} level (columns) by gold (rows)", confusion(rows, f"{side.lower()}_level").to_string(), ""]
    lines += [
        f"confirmed {s['confirmed']}: {s['confirmed_critical']} of {s['gold_critical']} criticals, and {s['false_confirmations']} false confirmations",
        f"missed criticals {s['missed_criticals']} (L1 alone: {s['l1_missed_criticals']}); "
        f"false criticals of L1 alone {s['l1_false_criticals']}, after double confirmation {s['false_confirmations']}",
        f"unknown: L1 {s['unknown_l1']}, L2 {s['unknown_l2']}; cases a person should look at: {s['for_review']}", "",
        "What blocked confirmation (a case can be blocked by several)", blocked(outcomes).to_string(index=False), "",
        *(str(e) for e in estimates(rows)),
    ]  # fmt: skip
    kinds = ", ".join(f"{n} {str(name).replace('_', '-')}" for name, n in rows.exposure.value_counts().items())
    return "\n".join([*lines, "", f"Rows: {kinds}; in-sample rows are left out of every rate."])
