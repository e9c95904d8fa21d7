"""Fit time and test error beside scikit-learn, on the same data, in the same run.

    python benchmarks/peers.py --rows 100000 --centres 1000

squeak_dist runs on one worker process per CPU, scikit-learn with as many BLAS
threads. Nystroem has the kernel and the number of centres of squeak_dist. Prints a
markdown table; seconds are of one run each and comparable within it alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import squeak_dist

FEATURES = [f"x{j}" for j in range(18)]


def made_data(rows: int, seed: int = 0) -> pd.DataFrame:
    """A smooth signal on uneven rows: clusters of unequal spread, and noise of sd 0.3."""
    rng = np.random.default_rng(seed)
    centres, spread = rng.normal(size=(30, 18)), rng.gamma(2, 0.3, size=30)
    cluster = rng.choice(30, size=rows, p=rng.dirichlet(np.ones(30)))
    X = centres[cluster] + rng.normal(size=(rows, 18)) * spread[cluster, None]
    waves, amplitudes = rng.normal(size=(60, 18)), rng.normal(size=60) / 4
    y = np.sin(X @ waves.T / 8) @ amplitudes + rng.normal(size=rows) * 0.3
    return pd.DataFrame(X.astype(np.float32), columns=FEATURES).assign(y=y.astype(np.float32))


def write_parts(frame: pd.DataFrame, directory: Path, parts: int = 16) -> None:
    directory.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(frame)), parts)):
        frame.iloc[rows].to_parquet(directory / f"part-{part:02d}.parquet")


def squeak_row(train: pd.DataFrame, test: pd.DataFrame, centres: int, solver: str):
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train"
        write_parts(train, data)
        with (
            LocalCluster(
                n_workers=os.cpu_count(), threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            began = time.perf_counter()
            model = squeak_dist.fit(
                data, target="y", kernel="rbf", length_scale="median", max_dictionary=centres,
                solver=solver,
            )  # fmt: skip
            seconds = time.perf_counter() - began
    return model, seconds, model.predict(test)


def sklearn_row(model, train: pd.DataFrame, test: pd.DataFrame):
    began = time.perf_counter()
    model.fit(train[FEATURES].to_numpy(), train["y"].to_numpy())
    seconds = time.perf_counter() - began
    return seconds, model.predict(test[FEATURES].to_numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--centres", type=int, default=1000)
    options = parser.parse_args()
    frame = made_data(options.rows + 20_000)
    train, test = frame.iloc[:-20_000], frame.iloc[-20_000:]
    spread = float(test["y"].std())

    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs; ", end="")
    print(f"{options.rows:,} rows × 18; RMSE / sd of the noise alone: {0.3 / spread:.4f}\n")
    print("| method | m | seconds | RMSE / sd | detail |\n|---|---|---|---|---|")

    def show(method: str, m: object, seconds: float, predicted: np.ndarray, detail: str) -> None:
        rmse = float(np.sqrt(np.mean((predicted - test["y"].to_numpy()) ** 2))) / spread
        print(f"| {method} | {m} | {seconds:.1f} | {rmse:.4f} | {detail} |", flush=True)

    for solver in ("cg", "direct"):
        model, seconds, predicted = squeak_row(train, test, options.centres, solver)
        stages = ", ".join(f"{k} {v:.1f}" for k, v in model.report_["seconds"].items())
        peak = model.report_["peak_worker_bytes"] / 2**20
        used = model.report_["solver"]
        show(
            f"squeak_dist, {solver}", len(model.dictionary_), seconds, predicted,
            f"{stages}; {peak:,.0f} MiB per worker; solved by {used}, "
            f"{len(model.report_['cg_residuals'])} iterations",
        )  # fmt: skip
    scale = train[FEATURES].to_numpy().std(axis=0)
    gamma = 0.5 / model.kernel_.length_scale**2
    peer = make_pipeline(
        Nystroem(gamma=gamma, n_components=len(model.dictionary_), random_state=0),
        Ridge(alpha=model.mu_),
    )
    scaled = [f.assign(**dict(zip(FEATURES, (f[FEATURES] / scale).to_numpy().T, strict=True)))
              for f in (train, test)]  # fmt: skip
    show("Nystroem + Ridge", len(model.dictionary_), *sklearn_row(peer, *scaled), "same kernel, μ")
    trees = HistGradientBoostingRegressor(max_iter=200, random_state=0)
    show("HistGradientBoosting", "–", *sklearn_row(trees, train, test), "for orientation")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process (scikit-learn's fits): {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
