"""How many held-out targets lie within the 90 % interval, predict(X, return_std=True).

    python benchmarks/coverage.py DIRECTORY [SET ...]

DIRECTORY holds the sets as parquet, the target last. Prints Markdown: means over three seeds
(of split and fit). ``kc_house log`` is kc_house with the logarithm of its price.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import squeak_dist
from squeak_dist.errors import ColumnsDropped

SETS = ("uci_kin40k", "etopo20", "uci_protein", "california_housing", "kc_house", "kc_house log")
SEEDS = (0, 1, 2)
MOST_TRAIN, MOST_TEST = 50_000, 10_000
COLUMNS = (
    "set", "rows", "m", "RMSE", "90 %", "50 %", "below", "above", "low leverage", "high leverage",
    "top 5 %", "low fit", "top 10 % of fit",
)  # fmt: skip


def split(path: Path, seed: int, *, logarithm: bool) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Training rows, test rows and the name of the target."""
    frame = pd.read_parquet(path).drop(columns=["test", "id"], errors="ignore")
    target = frame.columns[-1]
    if logarithm:
        frame[target] = np.log(frame[target])
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = min(int(0.8 * len(frame)), MOST_TRAIN)
    rows = [np.sort(order[:cut]), np.sort(order[cut : cut + MOST_TEST])]
    return frame.iloc[rows[0]], frame.iloc[rows[1]], target


def measured(path: Path, seed: int, *, logarithm: bool) -> list[float]:
    """The numbers of one row of the table."""
    train, test, target = split(path, seed, logarithm=logarithm)
    model = squeak_dist.fit(
        train, target=target, max_dictionary=800, missing="impute", random_state=seed
    )
    mean, std = model.predict(test, return_std=True)
    y = test[target].to_numpy()
    away = (y - mean) / std
    within = np.abs(away) <= norm.ppf(0.95)
    # The leverage h(x) + r(x)/μ alone makes one interval wider than another.
    by_leverage, by_fit = np.argsort(std), np.argsort(mean)
    half = len(y) // 2
    return [
        len(train),
        len(model.dictionary_),
        float(np.sqrt(np.mean((y - mean) ** 2)) / y.std()),
        within.mean(),
        np.mean(np.abs(away) <= norm.ppf(0.75)),
        np.mean(away < norm.ppf(0.05)),
        np.mean(away > norm.ppf(0.95)),
        within[by_leverage[:half]].mean(),
        within[by_leverage[half:]].mean(),
        within[by_leverage[-(len(y) // 20) :]].mean(),
        within[by_fit[:half]].mean(),
        within[by_fit[-(len(y) // 10) :]].mean(),
    ]


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore", ColumnsDropped)
    directory, names = Path(sys.argv[1]), sys.argv[2:] or SETS
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name in names:
        stem, _, logarithm = name.partition(" ")
        path = directory / f"{stem}.parquet"
        runs = [measured(path, seed, logarithm=bool(logarithm)) for seed in SEEDS]
        rows, m, rmse, *shares = np.mean(runs, axis=0)
        cells = " | ".join(f"{100 * share:.1f}" for share in shares)
        print(f"| {name} | {rows:,.0f} | {m:.0f} | {rmse:.3f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
