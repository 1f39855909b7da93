"""Score outcomes against gold: what L1, L2 and each combination find, miss and raise falsely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from workbench.schema import RiskLevel
from workbench.stats.estimate import Estimate
from workbench.stats.proportions import bounds, proportion

if TYPE_CHECKING:
    import numpy as np
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


def _measures(rows: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """name -> (1, 0 or NaN for unknown per row; which rows it is about): computed once, then cut to any group."""
    import numpy as np

    def array(values: pd.Series) -> np.ndarray:
        return values.astype("Float64").to_numpy(dtype=float, na_value=np.nan)

    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for rule, target in [(r, t) for r in RULES for t in ("critical", "high") if (r, t) != ("confirmed", "high")]:
        said, truth = array(positive(rows, rule, target)), gold_positive(rows, target).to_numpy(dtype=bool)
        shown = f"{'critical' if target == 'critical' else '>= high'} {rule}"
        found |= {f"sensitivity {shown}": (said, truth), f"specificity {shown}": (1 - said, ~truth)}
    critical, confirmed = gold_positive(rows, "critical").to_numpy(dtype=bool), array(rows.confirmed)
    through = critical & (array(positive(rows, "L1", "high")) == 1)
    found |= {"missed criticals": (1 - confirmed, critical), "false confirmations": (confirmed, ~critical)}
    found["confirmable recall"] = (confirmed, through)
    for side in ("l1", "l2"):
        ran = (rows[f"{side}_reason"].fillna("") != "not_run").to_numpy(dtype=bool)
        found[f"unknown {side.upper()}"] = (array(rows[f"{side}_level"] == "unknown"), ran)
    return found


def _estimates(measures: dict[str, tuple[np.ndarray, np.ndarray]], family: np.ndarray, group: np.ndarray) -> Iterator[Estimate]:
    for name, (values, part) in measures.items():
        rows = part & group
        yield proportion(values[rows], name=name, cluster=family[rows])
        if (values[rows] != values[rows]).any():
            yield bounds(values[rows], name=f"{name}, unknown bounded")


def estimates(rows: pd.DataFrame) -> list[Estimate]:
    """All estimates for one set of scorable rows: per rule and target, then the operational ones."""
    import numpy as np

    return list(_estimates(_measures(rows), rows.family.to_numpy(dtype=object), np.ones(len(rows), bool)))


def score(outcomes: pd.DataFrame, *, groups: tuple[str, ...] = GROUPS) -> pd.DataFrame:
    """One row per estimate and group (``group`` = all, then each value of *groups*), with interval and denominators."""
    import numpy as np
    import pandas as pd

    rows = scorable(outcomes)
    measures, family = _measures(rows), rows.family.to_numpy(dtype=object)
    parts = [("all", "", np.ones(len(rows), bool))]
    for group in groups:
        column = rows[group].fillna("").replace("", "(none)").to_numpy(dtype=object)
        parts += [(group, value, column == value) for value in sorted(set(column))]
    table = [{"group": g, "value_of_group": v, **asdict(e)} for g, v, part in parts for e in _estimates(measures, family, part)]
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
