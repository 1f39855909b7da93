"""Several judges on the same transcripts: rates against gold, agreement, exact pairwise tests, ranks, cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.confirm import Arm, DoubleConfirmation
from workbench.errors import SetupError
from workbench.judges.base import Judge
from workbench.runner import exposure
from workbench.scoring import confusion
from workbench.stats.agreement import agreement_board, board_frame, kappa, pair_table, ranks
from workbench.stats.calibration import brier
from workbench.stats.drift import flips_by_dialogue
from workbench.stats.estimate import Estimate, not_applicable
from workbench.stats.paired import adjust, cochran_q, sign_flip
from workbench.stats.proportions import bounds, proportion
from workbench.stats.resample import bootstrap, family_sums, mean, rank_intervals, seed_for, weights
from workbench.study.base import LEVELS, Material, Number, Result, by_stratum, figure, gather, row_shares, sentences, share

RANKS = ["name", "value", "rank", "rank_low", "rank_high", "p_best"]


def compare(
    source: Any, dialogues: Any = None, *, tier: str = "", seed: int = 0, n_resamples: int = 2000, **options: Any
) -> Result:
    """Compare M judges over R repeats of the same transcripts (enforced by the hash of the text).

    *source*: a run (its L1 and L2), several runs, or a sequence of judges to run over *dialogues*, each in L2's place, so
    that all see the same. *tier* keeps one tier of stored runs. The board, the confusions and the omnibus test stand on repeat 0,
    declared in advance; the pairwise tests use all repeats. An unknown is never right, and the bounds say what it could hide.
    """

    def study(m: Material) -> Result:
        rated = _ratings(m)
        family = m.frame.groupby("dialogue_id")["family"].first().reindex(rated.index)
        columns = {str(c): rated[c] for c in rated}
        board = agreement_board(columns, cluster=family, seed=seed_for(seed, "board"), n_resamples=n_resamples)
        counts = {j: confusion(m.only(judge=j, repeat=0).frame, "level") for j in judges}
        frames = {"judges": _costs(m), "disagreements": _disagreements(rated), "board": board_frame(board)}
        frames |= {
            "ranks": _ranks(m, judges, seed, n_resamples),
            **{f"confusion {j}": c.reset_index() for j, c in counts.items()},
        }
        estimates = [*_rates(m, judges, seed), *_tests(m, judges, seed), *board.values()]
        pairs = [{"a": a, "b": b} for a, b in combinations(judges, 2)]
        says = sentences("compare", judge=[{"judge": j} for j in judges], pair=pairs)
        draws = _figures(frames, {r.name: r for r in estimates}, m, judges)
        for j, c in counts.items():
            part, text = row_shares(c.reindex(index=list(LEVELS), columns=[*LEVELS, "unknown"], fill_value=0))
            draws[f"confusion {j}"] = figure("compare.confusion", plots.heat, part, text=text, of=m, fill={"judge": j})
        return Result("compare", frames, estimates, draws, says, m.simulated)

    material = _material(source, dialogues, tier, options)
    judges = list(dict.fromkeys(material.frame["judge"]))
    return by_stratum(material, study)


def _material(source: Any, dialogues: Any, tier: str, options: dict[str, Any]) -> Material:
    many = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if many and all(isinstance(j, Judge) for j in many):
        arms = [Arm(name="blind" if i == 0 else f"judge {j.name}", judge=j) for i, j in enumerate(many)]
        m, tier = gather(DoubleConfirmation(many[0], many[0]), dialogues, arms=arms, **options), "L2"
        seen = {(j.name, d.id): exposure(j, d) for j in many for d in dialogues}
        claims = [seen.get(key, "unseen") for key in zip(m.frame["judge"], m.frame["dialogue_id"], strict=True)]
        found = [replace(m, frame=m.frame.assign(exposure=claims))]
    else:
        found = [gather(s, dialogues, **options).only(arm="blind") for s in many]
    rows = pd.concat([m.last().frame for m in found], ignore_index=True)
    rows = rows[(rows["tier"] == tier) | (not tier)]
    twice = rows["judge"].map(rows.groupby("judge")["tier"].nunique() > 1).fillna(False).astype(bool)
    rows = rows.assign(judge=rows["judge"].where(~twice, rows["judge"] + " as " + rows["tier"]))
    rows = rows.drop_duplicates(["dialogue_id", "judge", "repeat"])
    if (rows.groupby("dialogue_id")["text_hash"].nunique() > 1).any():
        raise SetupError(
            "the judges did not read the same transcripts: one dialogue id has two texts; compare runs of one corpus"
        )
    shared = rows["dialogue_id"].map(rows.groupby("dialogue_id")["judge"].nunique() == rows["judge"].nunique())
    return replace(found[0], frame=rows[shared.fillna(False).astype(bool)])


def _ratings(material: Material) -> pd.DataFrame:
    """Level words of repeat 0, dialogues x judges and gold."""
    rows = material.frame[material.frame["repeat"] == 0]
    wide = rows.pivot(index="dialogue_id", columns="judge", values="level")[list(dict.fromkeys(rows["judge"]))]
    gold = rows.groupby("dialogue_id")["gold_level"].first()
    return (wide.assign(gold=gold) if gold.notna().any() else wide).fillna("unknown").astype(object)


def _rates(material: Material, judges: list[str], seed: int) -> Iterator[Number]:
    for j in judges:
        rows = material.frame[material.frame["judge"] == j]
        family, gold, said = rows["family"], ranks(rows["gold_level"].fillna("unknown")), ranks(rows["level"])
        for name, part, wrong in (("sensitivity", gold == 3, said != 3), ("specificity", gold < 3, (said == 3) | np.isnan(said))):
            yield proportion(~wrong[part], name=f"{name} [{j}]", cluster=family[part])
            if np.isnan(said[part]).any():
                yield bounds(np.where(np.isnan(said), np.nan, ~wrong)[part], name=f"{name}, unknown bounded [{j}]")
        gap = said - gold
        yield mean(gap, name=f"signed level error [{j}]", cluster=family)
        yield proportion(
            np.where(np.isnan(gap), np.nan, gap <= -2)[gold == 3],
            name=f"critical missed by two levels [{j}]",
            cluster=family[gold == 3],
        )
        yield proportion(np.isnan(said), name=f"unknown [{j}]", cluster=family)
        yield proportion(rows["reason"].isin(["refused", "content_filter"]), name=f"refused [{j}]", cluster=family)
        cells = np.array([pair_table([a], [b]) for a, b in zip(gold, said, strict=True)]).reshape(len(rows), 4, 4)
        lost = int(np.isnan(gap).sum())
        yield bootstrap(
            family_sums(cells, family),
            kappa,
            name=f"quadratic kappa [{j}]",
            seed=seed_for(seed, "kappa"),
            n=len(gap) - lost,
            n_unknown=lost,
        )
        yield brier(
            np.where(np.isnan(gap), np.nan, gap == 0), rows["confidence"], cluster=family, name=f"Brier score of the level [{j}]"
        )
        yield _flips(material, rows, j)


def _flips(material: Material, rows: pd.DataFrame, judge: str) -> Estimate:
    name = f"flip rate over repeats [{judge}]"
    if material.deterministic(judge.split(" as ")[0]):
        return not_applicable(name, "a deterministic judge always repeats itself", n=len(rows))
    if rows["repeat"].nunique() < 2:
        return not_applicable(name, "one repeat only: run with repeats=3 or more", n=len(rows))
    wide = rows.pivot(index=["family", "dialogue_id"], columns="repeat", values="level").fillna("unknown")
    return share(flips_by_dialogue(wide.to_numpy(object)), cluster=wide.index.get_level_values("family"), name=name)


def _right(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of repeats on which each judge was right about critical or not, dialogues x judges; unknown is never right."""
    rows = rows[rows["gold_level"].notna()]
    right = ((rows["level"] == "critical") == (rows["gold_level"] == "critical")) & (rows["level"] != "unknown")
    return rows.assign(right=right.astype(float)).pivot_table(index=["family", "dialogue_id"], columns="judge", values="right")


def _tests(material: Material, judges: list[str], seed: int) -> list[Number]:
    right, first = _right(material.frame), _right(material.frame[material.frame["repeat"] == 0])
    if len(judges) < 2 or right.empty:
        return []
    family = right.index.get_level_values("family")
    pairs = [
        sign_flip(right[a] - right[b], name=f"{a} = {b}", cluster=family, seed=seed_for(seed, a, b))
        for a, b in combinations(judges, 2)
    ]
    return [cochran_q(first[judges].to_numpy(), name="all judges equal"), *adjust(pairs)]


def _ranks(material: Material, judges: list[str], seed: int, n_resamples: int) -> pd.DataFrame:
    """Bootstrap ranks by balanced accuracy for critical; ties share a rank. Empty where gold has one class only."""
    right, m = _right(material.frame).reindex(columns=judges), len(judges)
    gold = material.frame.groupby("dialogue_id")["gold_level"].first().reindex(right.index.get_level_values("dialogue_id"))
    g = (gold == "critical").to_numpy(bool)[:, None]
    if not 0 < g.sum() < len(g):
        return pd.DataFrame(columns=RANKS)
    x = right.to_numpy(float)
    sums = family_sums(np.hstack([x * g, x * ~g, g, ~g]), right.index.get_level_values("family"))
    drawn = np.vstack([sums.sum(0), weights(len(sums), n_resamples, seed=seed_for(seed, "ranks")) @ sums])
    with np.errstate(all="ignore"):
        value = (drawn[:, :m] / drawn[:, [2 * m]] + drawn[:, m : 2 * m] / drawn[:, [2 * m + 1]]) / 2
    return rank_intervals(value[~np.isnan(value).any(1)][1:], judges, point=value[0])


def _costs(material: Material) -> pd.DataFrame:
    """Rows, tokens, money, seconds and reasons of unknowns per judge; missing where the ledger has none."""
    rows = material.frame.assign(tokens=material.frame["prompt_tokens"] + material.frame["completion_tokens"])
    by = rows.groupby(["judge", "judge_kind"], sort=False)
    means = by[["tokens", "attempts"]].mean().assign(
        n=by.size(), repeats=by["repeat"].nunique(), cost_usd=by["cost_usd"].sum(min_count=1), latency_s_median=by["latency_s"].median(),
        unknown=by["reason"].agg(lambda r: ", ".join(f"{k} {n}" for k, n in r.value_counts().items()) or "none"),
    )  # fmt: skip
    return means.reset_index()


def _disagreements(rated: pd.DataFrame) -> pd.DataFrame:
    """Dialogues on which the judges differ in repeat 0, widest gap first."""
    known = rated.drop(columns="gold", errors="ignore").apply(lambda c: pd.Series(ranks(c), c.index))
    gap = known.max(axis=1) - known.min(axis=1)
    return rated.assign(gap=gap)[gap > 0].sort_values("gap", ascending=False, kind="stable").reset_index()


def _figures(frames: dict[str, pd.DataFrame], found: dict[str, Any], main: Material, judges: list[str]) -> dict[str, Any]:
    roc = pd.DataFrame([
        {"label": j, "y": s.value, "y_low": s.low, "y_high": s.high, "x": _rest(f.value), "x_low": _rest(f.high), "x_high": _rest(f.low)}
        for j in judges for s, f in [(found[f"sensitivity [{j}]"], found[f"specificity [{j}]"])]
    ], columns=["label", "x", "x_low", "x_high", "y", "y_low", "y_high"])  # fmt: skip
    board = frames["board"]
    board = board[board["measure"].isin(["agreement", "quadratic kappa", "critical kappa", "ordinal alpha", "AC1", "AC2"])]
    board = board.assign(label=board["raters"], group=board["measure"], note=board["status"] + ": " + board["reason"])
    odds = frames["ranks"].set_index("name").filter(like="p_rank_").rename(columns=lambda c: c.removeprefix("p_rank_"))
    p = pd.DataFrame(np.nan, judges, judges)
    for a, b in combinations(judges, 2):
        test = found.get(f"{a} = {b}")
        p.loc[a, b] = p.loc[b, a] = np.nan if test is None or test.p is None else test.p_adjusted
    text = p.map(lambda v: "" if np.isnan(v) else "p < 0.001" if v < 0.001 else f"p = {v:.2g}")
    return {
        "roc": figure("compare.roc", plots.points, roc, of=main, log=True),
        "agreement": figure("compare.agreement", plots.forest, board, of=main),
        "ranks": figure("compare.ranks", plots.heat, odds, of=main),
        "differences": figure("compare.differences", plots.heat, p, of=main, text=text, outline=p < 0.05),
    }  # fmt: skip


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share
