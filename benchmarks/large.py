"""A table larger than the memory of its workers: a fit, then predictions to parquet.

    python benchmarks/large.py [--rows 10000000] [--centres 1000] [--memory 4GiB] [--folder DIR]

Rows × 18, written to FOLDER first (a temporary one by default), in files of 250,000 rows; two
workers of one thread with that memory limit each. Prints the seconds, and the largest resident
memory of a worker, read twice a second, beside what the fit had projected.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import dask.dataframe as dd
import psutil
from dask.utils import format_bytes
from distributed import Client, LocalCluster
from growth import made
from output import machine

import squeak_dist

PART = 250_000


class Watch(threading.Thread):
    """Notes the largest resident memory of some processes."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self._processes = [psutil.Process(pid) for pid in pids]
        self.peak, self._over = 0, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.peak = max(self.peak, *(p.memory_info().rss for p in self._processes))

    def stop(self) -> int:
        self._over.set()
        return self.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--centres", type=int, default=1000)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        for part in range(options.rows // PART):
            made(PART + part, 18).iloc[:PART].to_parquet(folder / f"rows/part-{part:04d}.parquet")
        size = sum(file.stat().st_size for file in (folder / "rows").iterdir())
        print(f"{machine()}\n{options.rows:,} rows × 18, {format_bytes(size)} of parquet")
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, memory_limit=options.memory,
                dashboard_address=None,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            watch = Watch(list(client.run(os.getpid).values()))
            watch.start()
            began = time.perf_counter()
            model = squeak_dist.fit(
                str(folder / "rows"), target="y", max_dictionary=options.centres, kernel="rbf",
                length_scale="median",
            )  # fmt: skip
            fitted = time.perf_counter() - began
            report, fit_peak = model.report_, watch.peak
            stages = ", ".join(f"{k} {v:.1f}" for k, v in report["seconds"].items())
            print(f"fit: {fitted:.0f} s ({stages}; {report['solver']}), m = "
                  f"{len(model.dictionary_)}, peak of a worker {format_bytes(fit_peak)}",
                  flush=True)  # fmt: skip
            began = time.perf_counter()
            rows = dd.read_parquet(folder / "rows").drop(columns="y")
            model.predict(rows).to_frame("y").to_parquet(folder / "predicted")
            print(f"predictions to parquet: {time.perf_counter() - began:.0f} s, peak of a worker "
                  f"{format_bytes(watch.stop())}")  # fmt: skip
            assert len(dd.read_parquet(folder / "predicted")) == options.rows


if __name__ == "__main__":
    main()
