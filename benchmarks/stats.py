"""Speed of the agreement board: 2,000 family resamples of 3 judges x 10,000 rows, against a plain loop over scikit-learn.

    python -m benchmarks.stats [--loop 20]

Both run in this process on one core. The loop computes three pairwise quadratic kappas per resample only (the board computes
24 measures) and is timed on *loop* resamples, then scaled. Exit code 1 when the board needs more than 3 s.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import numpy as np  # noqa: E402

from workbench.stats.agreement import agreement_board  # noqa: E402

LIMIT_S = 3.0
CUTS = np.array([-0.25, 0.67, 1.50])


def data(rows: int = 10_000, families: int = 2_000, judges: int = 3, seed: int = 1) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Ratings by judge (2 % unknown) and the family of each row."""
    g = np.random.default_rng(seed)
    family = np.arange(rows) % families
    theta = 0.8 * g.standard_normal(families)[family] + 0.6 * g.standard_normal(rows)
    ratings = {}
    for j in range(judges):
        ratings[f"judge {j}"] = ((theta + 0.6 * g.standard_normal(rows))[:, None] > CUTS).sum(1).astype(float)
        ratings[f"judge {j}"][g.random(rows) < 0.02] = np.nan
    return ratings, family


def loop(ratings: dict[str, np.ndarray], family: np.ndarray, resamples: int) -> float:
    """Seconds per resample of drawing families, gathering their rows and asking scikit-learn for three kappas."""
    from sklearn.metrics import cohen_kappa_score

    rows = np.split(np.argsort(family, kind="stable"), np.cumsum(np.bincount(family))[:-1])
    g, names = np.random.default_rng(2), list(ratings)
    start = time.perf_counter()
    for _ in range(resamples):
        index = np.concatenate([rows[f] for f in g.integers(0, len(rows), len(rows))])
        for i in range(len(names)):
            for j in range(i):
                a, b = ratings[names[i]][index], ratings[names[j]][index]
                both = ~np.isnan(a + b)
                cohen_kappa_score(a[both], b[both], labels=[0, 1, 2, 3], weights="quadratic")
    return (time.perf_counter() - start) / resamples


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stats", description=__doc__)
    parser.add_argument("--loop", type=int, default=20)
    options = parser.parse_args(argv)
    ratings, family = data()
    agreement_board({k: v[:100] for k, v in ratings.items()}, cluster=family[:100], n_resamples=10)
    start, cpu = time.perf_counter(), time.process_time()
    board = agreement_board(ratings, cluster=family, seed=1, n_resamples=2000)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    plain = 2000 * loop(ratings, family, options.loop)
    print(f"board of {len(board)} measures, 2,000 resamples: {seconds:.2f} s ({cpu:.2f} s of CPU), limit {LIMIT_S:.0f} s")
    print(
        f"three kappas by a loop over scikit-learn: {plain:.0f} s (scaled from {options.loop} resamples), {plain / seconds:.0f} times as long"
    )
    return int(seconds > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
