"""People: do reviewers agree with each other, with gold and with the judges, and does showing the verdict move them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench import plots
from workbench.stats.agreement import agreement_board, board_frame, ranks
from workbench.stats.estimate import Estimate, undefined
from workbench.stats.proportions import proportion
from workbench.stats.resample import bootstrap, mean, seed_for
from workbench.study.base import Material, Number, Result, figure, gather, named, sentences, table


def review(annotations: Any, source: Any = None, *, simulated: bool = False, seed: int = 0, n_resamples: int = 2000) -> Result:
    """Agreement of reviewers, and the effect of showing them the verdict, from the rows of the annotations table.

    *annotations*: rows or frame with dialogue_id, reviewer, kind, level, arm (blind or shown), phase, id, undoes; only
    labels that stand and were given before any reveal count, and agreement and gold use blind labels only. *source*: the
    run that was reviewed (gold, family, verdict). *simulated*: the raters are simulated; every title says so.
    """
    labels = _known(_standing(annotations), gather(source).last().only(arm="blind") if source is not None else None)
    wide = labels[labels["arm"] != "shown"].pivot(index="dialogue_id", columns="reviewer", values="level").fillna("unknown")
    facts = labels.groupby("dialogue_id")[["family", "gold", "verdict"]].first().reindex(wide.index)
    people = {str(c): wide[c] for c in wide}
    also = {c: facts[c].fillna("unknown") for c in ("gold", "verdict") if facts[c].notna().any()}
    options: dict[str, Any] = {"cluster": facts["family"], "n_resamples": n_resamples}
    board = agreement_board(people | also, seed=seed_for(seed, "review"), **options)
    between = {m: e for (m, who), e in agreement_board(people, seed=seed_for(seed, "people"), **options).items() if who == "all"}
    pairs = [e for (_, who), e in board.items() if who != "all"]
    estimates = [*pairs, *(named(e, f"{m} between reviewers") for m, e in between.items()), *_effect(labels, seed, n_resamples)]
    found = {r.name: r for r in estimates}
    kappas = [
        table({who: e for (m, who), e in board.items() if m == wanted}, group=wanted)
        for wanted in ("quadratic kappa", "critical kappa")
    ]
    effects = table(
        {n.removeprefix("shown less blind").strip(":, "): e for n, e in found.items() if n.startswith("shown less blind")}
    )
    correct = [
        table({f"judge {w}": found[f"right when the judge is {w}, {a}"] for w in ("right", "wrong")}, group=a)
        for a in ("blind", "shown")
    ]
    order = np.argsort(ranks(facts["gold"].fillna("unknown")), kind="stable")
    grid = wide.apply(lambda c: pd.Series(ranks(c), c.index)).iloc[order].T
    letters = grid.map(lambda v: "" if np.isnan(v) else "lmhc"[int(v)])
    of = Material(labels.assign(judge_kind="simulated" if simulated else "person", exposure="people"), labels)
    draws = {
        "agreement": figure("review.agreement", plots.forest, pd.concat([table(between, group="all reviewers"), *kappas]), of=of),
        "effect": figure("review.effect", plots.forest, effects, of=of, reference=0.0, percent=True),
        "right": figure("review.right", plots.forest, pd.concat(correct), of=of, percent=True),
        "grid": figure("review.grid", plots.heat, grid, of=of, limits=(0, 3), text=letters),
    }
    says = sentences("review", reviewer=[{"reviewer": r} for r in people])
    return Result("review", {"board": board_frame(board), "labels": labels}, estimates, draws, says, simulated)


def _standing(annotations: Any) -> pd.DataFrame:
    """Labels that no undo took back, before any reveal, the last one of each reviewer and dialogue."""
    names = ["id", "dialogue_id", "reviewer", "kind", "level", "arm", "phase", "undoes"]
    rows = annotations if isinstance(annotations, pd.DataFrame) else pd.DataFrame(list(map(dict, annotations)))
    rows = rows.reindex(columns=[*dict.fromkeys([*names, *rows.columns])])
    undone = set(rows["undoes"].dropna())
    kept = rows[rows["kind"].fillna("label").eq("label") & ~rows["phase"].eq("post") & ~rows["id"].isin(undone)]
    return kept.drop_duplicates(["dialogue_id", "reviewer"], keep="last").reset_index(drop=True)


def _known(labels: pd.DataFrame, material: Material | None) -> pd.DataFrame:
    """Labels with family, gold and the displayed verdict of their dialogue, and whether each is right."""
    facts = pd.DataFrame(columns=["dialogue_id", "family", "gold_level", "level"])
    if material is not None:
        rows = material.outcomes
        facts = rows[rows["turn"] == rows["n_user_turns"] - 1].drop_duplicates("dialogue_id")[list(facts)]
    facts = facts.rename(columns={"gold_level": "gold", "level": "verdict"})
    out = labels.drop(columns=["family", "gold", "verdict"], errors="ignore").merge(facts, on="dialogue_id", how="left")
    return out.assign(
        family=out["family"].fillna(out["dialogue_id"]), arm=out["arm"].fillna("blind"), level=out["level"].replace("", "unknown")
    )


def _effect(labels: pd.DataFrame, seed: int, n_resamples: int) -> Iterator[Number]:
    """Shown less blind, with reviewers and dialogues both resampled (the claim is about new ones of either)."""
    known = labels[labels["level"] != "unknown"]
    same = known[known["verdict"].isin(["low", "medium", "high", "critical"])]
    yield _crossed(same, (same["level"] == same["verdict"]).astype(float), "agrees with the judge", seed, n_resamples)
    gold = known[known["gold"].notna()]
    right = (gold["level"] == gold["gold"]).astype(float)
    yield _crossed(gold, right, "right", seed, n_resamples)
    for who, part in same.groupby("reviewer", sort=True):
        hit, arm = (part["level"] == part["verdict"]).astype(float), np.where(part["arm"] == "shown", 1.0, -1.0)
        enough = len(set(arm)) == 2
        scaled = hit * arm * len(arm) / np.where(arm > 0, max((arm > 0).sum(), 1), max((arm < 0).sum(), 1))
        name = f"shown less blind, {who}: agrees with the judge"
        yield (
            mean(scaled, name=name, cluster=part["family"])
            if enough
            else undefined(name, "needs shown and blind labels", n=len(part))
        )
    for word, judge_right in (("right", True), ("wrong", False)):
        for side in ("blind", "shown"):
            part = gold[((gold["verdict"] == gold["gold"]) == judge_right) & (gold["arm"] == side) & gold["verdict"].notna()]
            yield proportion(right[part.index], name=f"right when the judge is {word}, {side}", cluster=part["family"])


def _crossed(rows: pd.DataFrame, hit: pd.Series, what: str, seed: int, n_resamples: int) -> Estimate:
    name = f"shown less blind: {what}"
    y = rows.assign(v=hit).pivot(index="reviewer", columns="dialogue_id", values="v").to_numpy(float)
    s = (
        rows.assign(v=(rows["arm"] == "shown").astype(float))
        .pivot(index="reviewer", columns="dialogue_id", values="v")
        .to_numpy(float)
    )
    if len(y) < 2 or not np.any(s == 1) or not np.any(s == 0):
        return undefined(name, "needs two reviewers with shown and blind labels", n=len(rows), n_cluster=len(y))
    rng = np.random.default_rng(seed_for(seed, "crossed", what))
    a, b = (rng.multinomial(k, np.full(k, 1 / k), size=n_resamples).astype(float) for k in y.shape)

    def effect(weigh_raters: np.ndarray, weigh_items: np.ndarray) -> np.ndarray:
        parts = [np.einsum("bh,hn,bn->b", weigh_raters, np.nan_to_num(v * (s == k)), weigh_items)
                 for k in (1, 0) for v in (y, np.where(np.isnan(y), np.nan, 1.0))]  # fmt: skip
        with np.errstate(all="ignore"):
            return np.asarray(parts[0] / parts[1] - parts[2] / parts[3])

    point = effect(np.ones((1, len(y))), np.ones((1, y.shape[1])))[0]
    out = bootstrap(np.zeros((len(y), 1)), lambda _: np.asarray(point), name=name, n=len(rows), draws=effect(a, b))
    return replace(out, method=f"reviewers and dialogues resampled, {n_resamples} times")
