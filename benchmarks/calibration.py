"""Rules from scores of classes to probabilities, compared on held-out rows.

    python benchmarks/calibration.py DIRECTORY [SET ...]

DIRECTORY holds adult, magic, elec2, skin and letter as parquet, the label last. Prints
Markdown: means over three seeds (of split, sample and fit).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from squeak_dist import SqueakClassifier
from squeak_dist.calibration import Link, fit_link, left_out_scores

SETS = ("adult", "magic", "elec2", "skin", "letter")
SEEDS = (0, 1, 2)
MOST_TRAIN, MOST_TEST, SAMPLE, BINS = 40_000, 20_000, 4096, 15


def split(path: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Training rows, test rows and the name of the label."""
    frame = pd.read_parquet(path).drop(columns="test", errors="ignore")
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = min(int(0.7 * len(frame)), MOST_TRAIN)
    rows = [np.sort(order[:cut]), np.sort(order[cut : cut + MOST_TEST])]
    return frame.iloc[rows[0]], frame.iloc[rows[1]], frame.columns[-1]


def measures(shares: np.ndarray, codes: np.ndarray) -> list[float]:
    """Log loss, Brier score, expected calibration error of the top class, accuracy."""
    rows = np.arange(len(codes))
    loss = -np.log(np.maximum(shares[rows, codes], np.finfo(float).eps)).mean()
    brier = (np.square(shares).sum(axis=1) - 2 * shares[rows, codes] + 1).mean()
    top, right = shares.max(axis=1), shares.argmax(axis=1) == codes
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    gap = sum(abs(np.sum(top[bins == b] - right[bins == b])) for b in range(BINS)) / len(codes)
    return [float(v) for v in (loss, brier, gap, right.mean())]


def plain(scores: np.ndarray) -> np.ndarray:
    """(1 + f) / 2, cut at 0.001 and divided by the sum."""
    shares = np.maximum((1 + scores) / 2, 1e-3)
    return shares / shares.sum(axis=1, keepdims=True)


def platt(scores: np.ndarray, codes: np.ndarray, *, offsets: bool) -> Link:
    """Slope, and offsets where asked for, of a softmax of the scores by maximum likelihood."""
    wanted = np.eye(scores.shape[1])[codes]

    def loss(t: np.ndarray) -> tuple[float, np.ndarray]:
        logs = log_softmax(t[0] * scores + t[1:], axis=1)
        rest = np.exp(logs) - wanted
        gradient = np.concatenate([[np.sum(rest * scores)], rest.sum(axis=0) * offsets])
        return -np.sum(wanted * logs) / len(codes), gradient / len(codes)

    start = np.concatenate([[1.0], np.zeros(scores.shape[1])])
    best = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return Link(best[0], 0.0, tuple(best[1:]))


def compared(path: Path, seed: int) -> dict[str, list[float]]:
    train, test, target = split(path, seed)
    fitted = SqueakClassifier(missing="impute", max_dictionary=800, random_state=seed)
    fitted.fit(train, target=target)
    model, classes = fitted.model_, fitted.model_.classes

    def scored(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, _ = model.encoding.encode(frame.drop(columns=target))
        codes = classes.codes(frame[target]).astype(int)
        return X, classes.scores(model.predict_encoded(X)), codes

    X, inside, codes = scored(train.sample(min(SAMPLE, len(train)), random_state=seed))
    indicators = 2.0 * np.eye(len(classes))[codes] - 1
    left_out = left_out_scores(inside, indicators, model.leverage_encoded(X))
    ones = np.ones(len(codes))
    links = {
        "softmax(a f), left out": platt(left_out, codes, offsets=False),
        "softmax(a f + b), left out": platt(left_out, codes, offsets=True),
        "both terms, on the rows fitted": fit_link(inside, codes, ones),
        "both terms, left out": fit_link(left_out, codes, ones),
        "**predict_proba**": classes.link,
    }
    _, scores, codes = scored(test)
    rules = {"(1 + f) / 2": plain(scores)}
    rules |= {name: softmax(link.log_odds(scores), axis=1) for name, link in links.items()}
    return {name: measures(shares, codes) for name, shares in rules.items()}


def main() -> None:
    directory, names = Path(sys.argv[1]), sys.argv[2:] or SETS
    print("| set | rule | log loss | Brier | calibration error | accuracy |")
    print("|---|---|---|---|---|---|")
    for name in names:
        runs = [compared(directory / f"{name}.parquet", seed) for seed in SEEDS]
        for rule in runs[0]:
            means = np.mean([run[rule] for run in runs], axis=0)
            cells = " | ".join(f"{value:.4f}" for value in means)
            print(f"| {name} | {rule} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
