"""Fit time, memory and test error beside other programs, on the same data, in the same run.

    python benchmarks/peers.py [DATA.parquet ...] [--rows 100000 ...] [--centres 1000 ...]

DATA are tables of numbers, the target last; --rows adds made rows × 18 of that many rows, each
with its own --centres (the last of them serves for all that follow). A tenth, at most 20,000
rows, is for testing. squeak_dist runs on one worker process per CPU, the others with as many BLAS
threads, each in its own process. squeak_dist has an RBF kernel of the median distance, so that
Nystroem and, where it can be imported, FALKON get its kernel, its μ and as many centres (FALKON no
less than 1e-6 n: below that it diverges in float32); then its
defaults, and boosted trees for orientation. What would not fit into memory is left out. Prints
markdown; seconds are of one run each, comparable within their table. FALKON is no dependency:
`pip install torch`, and in a clone of FalkonML/falkon `FORCE_ONLY_CPU=1 pip install
--no-build-isolation .`, which takes some minutes of a C++ compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from output import machine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import squeak_dist

SAME = {"kernel": "rbf", "length_scale": "median"}
FALKON_ITERATIONS = 20  # its default
FALKON_PENALTY = 1e-6  # of n, at least: with less its float32 preconditioner diverges
MEMORY_SHARE = 0.6


@dataclass(frozen=True)
class Split:
    """Rows to fit and to test with; columns as numbers, the target last."""

    name: str
    train: pd.DataFrame
    test: pd.DataFrame

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return X and y of the training rows, columns divided by their deviation."""
        return self._scaled(self.train), self.train.iloc[:, -1].to_numpy()

    @property
    def test_rows(self) -> np.ndarray:
        """Return X of the test rows, as those of :attr:`arrays`."""
        return self._scaled(self.test)

    def _scaled(self, frame: pd.DataFrame) -> np.ndarray:
        spread = self.train.iloc[:, :-1].to_numpy().std(axis=0)
        return frame.iloc[:, :-1].to_numpy() / np.where(spread > 0, spread, 1)


@dataclass(frozen=True)
class Fitted:
    """What a method did: seconds of the fit, its predictions of the test rows, remarks."""

    seconds: float
    predicted: np.ndarray
    centres: int | None = None
    remark: str = ""
    peak_bytes: int = 0
    length_scale: float = 0.0
    mu: float = 0.0


def made_rows(rows: int, seed: int = 0) -> pd.DataFrame:
    """A smooth signal on uneven rows: clusters of unequal spread, and noise of sd 0.3."""
    rng = np.random.default_rng(seed)
    centres, spread = rng.normal(size=(30, 18)), rng.gamma(2, 0.3, size=30)
    cluster = rng.choice(30, size=rows, p=rng.dirichlet(np.ones(30)))
    X = centres[cluster] + rng.normal(size=(rows, 18)) * spread[cluster, None]
    waves, amplitudes = rng.normal(size=(60, 18)), rng.normal(size=60) / 4
    y = np.sin(X @ waves.T / 8) @ amplitudes + rng.normal(size=rows) * 0.3
    names = [f"x{j}" for j in range(18)]
    return pd.DataFrame(X.astype(np.float32), columns=names).assign(y=y.astype(np.float32))


def split(name: str, frame: pd.DataFrame) -> Split:
    frame = frame.drop(columns="test", errors="ignore").astype(np.float32)
    order = np.random.default_rng(0).permutation(len(frame))
    cut = min(20_000, len(frame) // 10)
    return Split(name, frame.iloc[order[cut:]], frame.iloc[order[:cut]])


def squeak(data: Split, centres: int, **settings: Any) -> Fitted:
    with tempfile.TemporaryDirectory() as folder:
        for part, rows in enumerate(np.array_split(np.arange(len(data.train)), 16)):
            data.train.iloc[rows].to_parquet(Path(folder) / f"part-{part:02d}.parquet")
        target = data.train.columns[-1]
        workers = {"n_workers": os.cpu_count(), "threads_per_worker": 1}
        with LocalCluster(**workers, dashboard_address=None) as cluster, Client(cluster) as client:
            client.run(importlib.import_module, "squeak_dist.estimators")  # a cluster that is up
            began = time.perf_counter()
            model = squeak_dist.fit(folder, target=target, max_dictionary=centres, **settings)
            seconds = time.perf_counter() - began
    report = model.report_
    stages = ", ".join(f"{k} {v:.1f}" for k, v in report["seconds"].items())
    used = report["solver"]
    steps = f" in {len(report['cg_residuals']) - 1} iterations" if used == "cg" else ""
    scale = model.kernel_.length_scale
    return Fitted(
        seconds,
        np.asarray(model.predict(data.test.iloc[:, :-1])),
        len(model.dictionary_),
        f"{stages}; {used}{steps}",
        report["peak_worker_bytes"],
        scale if isinstance(scale, float) else 0.0,
        model.mu_,
    )


def sklearn_fit(model: Any, remark: str, centres: int | None, data: Split) -> Fitted:
    X, y = data.arrays
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    return Fitted(seconds, model.predict(data.test_rows), centres, remark)


def falkon_fit(ours: Fitted, data: Split) -> Fitted:
    import falkon
    import torch

    X, y = (torch.from_numpy(np.array(a)) for a in data.arrays)
    penalty = max(ours.mu / len(y), FALKON_PENALTY)
    model = falkon.Falkon(
        falkon.kernels.GaussianKernel(ours.length_scale),
        penalty=penalty, M=ours.centres, maxiter=FALKON_ITERATIONS, seed=0,
        # Its default, KeOps, takes four times as long on a CPU.
        options=falkon.FalkonOptions(use_cpu=True, keops_active="no"),
    )  # fmt: skip
    began = time.perf_counter()
    model.fit(X, y[:, None])
    seconds = time.perf_counter() - began
    predicted = model.predict(torch.from_numpy(data.test_rows)).numpy()[:, 0]
    remark = (
        f"{FALKON_ITERATIONS} iterations; penalty {penalty:.1e} n, ours {ours.mu / len(y):.1e} n"
    )
    return Fitted(seconds, predicted, ours.centres, remark)


def alone(method: Callable[[Split], Fitted], data: Split) -> Fitted:
    """Run a method in a process of its own, for its peak of memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (method, data))


def measured(method: Callable[[Split], Fitted], data: Split) -> Fitted:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = method(data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if found.peak_bytes else replace(found, peak_bytes=1024 * max(peak, before))


def methods(data: Split, ours: Fitted) -> dict[str, Callable[[Split], Fitted]]:
    """Return the peers of a fit, those that fit into memory."""
    n, m, gamma = len(data.train), ours.centres, 0.5 / ours.length_scale**2
    room = MEMORY_SHARE * psutil.virtual_memory().total
    found: dict[str, Callable[[Split], Fitted]] = {}
    if 2.2 * n * m * 4 < room:  # the features, and a centred copy
        pipeline = make_pipeline(
            Nystroem(gamma=gamma, n_components=m, random_state=0), Ridge(alpha=ours.mu)
        )
        found["Nystroem + Ridge"] = partial(sklearn_fit, pipeline, "same kernel, μ", m)
    if 3 * n * n * 8 < room:
        exact = KernelRidge(kernel="rbf", gamma=gamma, alpha=ours.mu)
        found["KernelRidge"] = partial(sklearn_fit, exact, "same kernel, μ; all rows", n)
    if importlib.util.find_spec("falkon"):
        found["FALKON"] = partial(falkon_fit, ours)
    trees = HistGradientBoostingRegressor(max_iter=200, random_state=0)
    found["HistGradientBoosting"] = partial(sklearn_fit, trees, "for orientation", None)
    return found


def table(data: Split, centres: int) -> None:
    y = data.test.iloc[:, -1].to_numpy(np.float64)
    shape = f"{len(data.train):,} rows × {data.train.shape[1] - 1}"
    print(f"\n### {data.name}: {shape}, {centres:,} centres at most\n")
    print("| method | m | seconds | RMSE / sd | peak, MiB | remarks |\n|---|---|---|---|---|---|")

    def show(name: str, found: Fitted) -> None:
        rmse = float(np.sqrt(np.mean((found.predicted - y) ** 2))) / y.std()
        kept = "–" if found.centres is None else f"{found.centres:,}"
        peak = f"{found.peak_bytes / parse_bytes('1MiB'):,.0f}"
        print(f"| {name} | {kept} | {found.seconds:.1f} | {rmse:.4f} | {peak} | {found.remark} |",
              flush=True)  # fmt: skip

    ours = squeak(data, centres, **SAME)
    show("squeak_dist, same kernel", ours)
    for name, method in methods(data, ours).items():
        show(name, alone(method, data))
    show("squeak_dist, defaults", squeak(data, centres))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--rows", type=int, nargs="*", default=[])
    parser.add_argument("--centres", type=int, nargs="*", default=[1000])
    options = parser.parse_args()
    print(f"{machine()}. Peak: of the process, of a worker for squeak_dist.")
    for path in options.data:
        table(split(path.stem, pd.read_parquet(path)), options.centres[0])
    for place, rows in enumerate(options.rows):
        centres = options.centres[min(place, len(options.centres) - 1)]
        table(split("made rows", made_rows(rows + 20_000)), centres)


if __name__ == "__main__":
    main()
