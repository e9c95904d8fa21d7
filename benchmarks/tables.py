"""Accuracy on real tables: the mean, ridge, Nystroem + Ridge, boosted trees, squeak_dist.

    python benchmarks/tables.py DATA [--sets a,b] [--seeds 3] [--out docs/accuracy]

DATA is a folder of parquet files; the last column of each is the target, a column ``test`` is
not used: each seed holds out its own tenth. All methods but the trees get the columns that
squeak_dist encodes; Nystroem has our kernel and as many centres as our dictionary; the ridge
penalties of scikit-learn are chosen by RidgeCV. Writes OUT.csv and OUT.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import make_pipeline

import squeak_dist

CLASSES = {"adult", "elec2", "letter", "magic", "skin"}
LEAKS = {  # columns from which the target is computed, and row numbers: see the data's README
    "uci_bike": ["casual", "registered"],
    "bike_hour": ["casual", "registered", "instant"],
    "kc_house": ["id"],
}
MOST_ROWS = 100_000  # of the larger sets, drawn by the seed
ALPHAS = np.logspace(-6, 3, 10)
FAR = 0.05  # share of test rows of highest leverage


@dataclass(frozen=True)
class Result:
    """One method on one split; the error is RMSE / sd of the target, or 1 − accuracy."""

    data: str
    seed: int
    rows: int
    columns: int
    centres: int
    method: str
    seconds: float
    error: float
    error_far: float


def read(path: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return training rows, test rows and the name of the target."""
    frame = pd.read_parquet(path).drop(columns="test", errors="ignore")
    frame = frame.drop(columns=LEAKS.get(path.stem, ()), errors="ignore")
    target = frame.columns[-1]
    frame = frame[frame[target].notna()]
    frame = frame.sample(min(len(frame), MOST_ROWS), random_state=seed).reset_index(drop=True)
    cut = len(frame) // 10
    return frame[cut:], frame[:cut], target


def leverage(kernel, X: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    """Return the leverage of test rows against 2,000 training rows, γ = 1; larger is rarer."""
    rows = np.random.default_rng(seed).choice(len(X), min(2000, len(X)), replace=False)
    sample = X[rows].astype(float)
    K = kernel(sample, sample) + np.eye(len(sample))
    k = kernel(sample, X_test.astype(float))
    return 1 - np.einsum("ij,ij->j", k, np.linalg.solve(K, k))


def trees(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as boosted trees take them: dates as seconds, text as categories."""
    table = frame.copy()
    for name, column in table.items():
        if pd.api.types.is_datetime64_any_dtype(column):
            table[name] = column.astype("int64") / 1e9
        elif not pd.api.types.is_numeric_dtype(column):
            codes = column.astype("category").cat.codes
            few = codes.max() < 250
            table[name] = codes.astype("category") if few else codes
    return table


def one_split(path: Path, seed: int) -> list[Result]:
    """Return the results of all methods on one split."""
    train, test, target = read(path, seed)
    is_class = path.stem in CLASSES
    y, y_test = train[target].to_numpy(), test[target].to_numpy()
    features = train.columns[:-1]
    began = time.perf_counter()
    make = squeak_dist.SqueakClassifier if is_class else squeak_dist.SqueakRegressor
    ours = make(missing="impute", random_state=seed).fit(train, target=target)
    seconds = {"squeak_dist": time.perf_counter() - began}
    predictions = {"squeak_dist": np.asarray(ours.predict(test[features]))}

    model = ours.model_
    X, X_test = (model.encoding.encode(f[features])[0] for f in (train, test))
    m = len(ours.dictionary_)
    scale = getattr(ours.kernel_, "length_scale", 1.0)
    ridge = RidgeClassifierCV(ALPHAS) if is_class else RidgeCV(ALPHAS)
    boosted = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    nystroem = Nystroem(gamma=0.5 / scale**2, n_components=min(m, len(X)), random_state=seed)
    both = pd.concat([train, test])[features]
    table = trees(both)
    peers: dict[str, tuple[object, object, object]] = {
        "ridge": (ridge, X, X_test),
        "Nystroem + Ridge": (make_pipeline(nystroem, ridge), X, X_test),
        "boosted trees": (
            boosted(random_state=seed, categorical_features="from_dtype"),
            table[: len(train)],
            table[len(train) :],
        ),
    }
    for name, (peer, rows, rows_test) in peers.items():
        began = time.perf_counter()
        peer.fit(rows, y)
        seconds[name] = time.perf_counter() - began
        predictions[name] = peer.predict(rows_test)
    values, counts = np.unique(y, return_counts=True)
    guess = values[counts.argmax()] if is_class else y.mean()
    predictions["mean"], seconds["mean"] = np.full(len(y_test), guess), 0.0

    far = np.argsort(-leverage(ours.kernel_, X, X_test, seed))[: max(1, int(FAR * len(test)))]
    spread = 1.0 if is_class else float(np.std(y_test))
    error: Callable = misses if is_class else rmse
    return [
        Result(
            path.stem, seed, len(train), X.shape[1], m, name, seconds[name],
            error(y_test, predictions[name]) / spread,
            error(y_test[far], predictions[name][far]) / spread,
        )
        for name in ("mean", "ridge", "Nystroem + Ridge", "boosted trees", "squeak_dist")
    ]  # fmt: skip


def rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def misses(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of wrong labels."""
    return float(np.mean(y != predicted))


def markdown(results: pd.DataFrame) -> str:
    """Return the table: means over seeds, ± half the range where it matters."""
    methods = list(dict.fromkeys(results.method))
    head = (
        "| set | rows | m | " + " | ".join(methods) + " | far: ridge | far: Nystroem | far: ours |"
    )
    lines = [head, "|---" * (len(methods) + 6) + "|"]
    for data, part in results.groupby("data", sort=False):
        by = part.groupby("method")
        mean, far = by.error.mean(), by.error_far.mean()
        half = (by.error.max() - by.error.min()) / 2
        seconds = by.seconds.mean()
        best = mean.min()
        cells = [
            f"{'**' if mean[x] <= best * 1.0005 else ''}{mean[x]:.4f}"
            f"{'**' if mean[x] <= best * 1.0005 else ''} ± {half[x]:.4f} ({seconds[x]:.1f} s)"
            for x in methods
        ]
        others = [f"{far[x]:.3f}" for x in ("ridge", "Nystroem + Ridge", "squeak_dist")]
        lines.append(
            f"| {data} | {part.rows.iloc[0]:,} | {part.centres.mean():.0f} | "
            + " | ".join(cells + others)
            + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default="", help="names, separated by commas; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/accuracy"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    chosen = set(filter(None, options.sets.split(",")))
    results: list[Result] = []
    for path in sorted(options.data.glob("*.parquet")):
        if chosen and path.stem not in chosen:
            continue
        for seed in range(options.seeds):
            results += one_split(path, seed)
            print(results[-1], flush=True)
            frame = pd.DataFrame([asdict(result) for result in results])
            frame.to_csv(options.out.with_suffix(".csv"), index=False)
    options.out.with_suffix(".md").write_text(markdown(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
