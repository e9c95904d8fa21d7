"""What `squeak_dist.plan` says beside what the fit then takes, stage by stage.

    python benchmarks/forecast.py [--workers 2] [--rows 100000,300000] [--sizes 500,1500]
                                  [--table FILE.parquet:TARGET]

Made data (18 columns, a smooth function and noise) and tables of one's own, as Dask frames on
worker processes. Each cell is planned / taken. A stage of more than a second that is off by
more than a factor of 1.5 is marked with "!". Processor seconds are those of the threads that
run the tasks: on a busy machine they tell more than the clock.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
from distributed import Client, LocalCluster

import squeak_dist

_FACTOR, _LEAST_SECONDS = 1.5, 1.0
_PARTITION_ROWS = 25_000


def made(n: int, d: int = 18, seed: int = 0) -> pd.DataFrame:
    """Return a table whose target depends on a few directions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    W = rng.normal(size=(d, 3)) / np.sqrt(d)
    a, b, c = (X @ W).T
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    return frame.assign(y=np.sin(2 * a) + np.tanh(b) * c + 0.3 * rng.normal(size=n))


def task_threads() -> tuple[int, set[int]]:
    """Return the process, and its threads that run tasks: a call for each worker."""
    threads = threading.enumerate()
    return os.getpid(), {t.native_id for t in threads if "Dask-Default" in t.name}


class StageClock:
    """Processor seconds of the tasks of each stage, read as the stages come and go."""

    def __init__(self, client: Client) -> None:
        found = client.run(task_threads).values()
        self._workers = [(psutil.Process(pid), threads) for pid, threads in found]
        self._marks: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note the first word of a stage; iterations belong to the solve."""
        if stage not in ("profile", "tuning", "dictionary"):
            stage = "solve"
        if stage not in self._marks:
            self._marks[stage] = self._used()

    def seconds(self) -> dict[str, float]:
        """Return the processor seconds of each stage, the last of which has just ended."""
        marks = [*self._marks.values(), self._used()]
        return dict(zip(self._marks, np.diff(marks).tolist(), strict=True))

    def _used(self) -> float:
        return sum(
            thread.user_time + thread.system_time
            for worker, threads in self._workers
            for thread in worker.threads()
            if thread.id in threads
        )


def moved(client: Client) -> int:
    """Return the bytes that workers have sent each other so far."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def cell(planned: float, taken: float, least: float = _LEAST_SECONDS) -> str:
    """Return planned / taken, marked where it is large and off by more than the factor."""
    off = not 1 / _FACTOR <= planned / max(taken, 1e-9) <= _FACTOR
    return f"{planned:.1f} / {taken:.1f}{' !' if off and taken > least else ''}"


def tables(rows: list[int], given: list[str]) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield name, target and rows of each table."""
    for n in rows:
        yield "made", "y", made(n)
    for text in given:
        path, _, target = text.rpartition(":")
        frame = pd.read_parquet(path)
        frame = frame.drop(columns="test", errors="ignore")
        # Stored rows are often sorted, and a plan is for chains that are alike.
        yield Path(path).stem, target, frame.sample(frac=1, random_state=0, ignore_index=True)


def compare(client: Client, name: str, frame: pd.DataFrame, settings: dict[str, Any]) -> list[str]:
    """Return a row: a plan, then the fit."""
    partitions = max(len(frame) // _PARTITION_ROWS, 4)
    table = dd.from_pandas(frame, npartitions=partitions).persist()
    planned = squeak_dist.plan(table, **settings, client=client).chosen
    clock, sent, load = StageClock(client), moved(client), os.getloadavg()[0]
    report = squeak_dist.fit(table, **settings, client=client, progress=clock).report_
    used, sent = clock.seconds(), moved(client) - sent
    return [
        name,
        f"{len(frame):,}",
        f"{settings['max_dictionary']:,}",
        f"{planned.solver} / {report['solver']}",
        f"{planned.dictionary_size:,} / {report['dictionary_size']:,}",
        cell(planned.network_bytes / 2**20, sent / 2**20, least=np.inf),
        *(
            cell(planned.processor_seconds[stage], used[stage])
            for stage in ("dictionary", "solve")
        ),
        *(
            cell(planned.seconds[stage], report["seconds"][stage])
            for stage in ("profile", "tuning", "dictionary", "solve")
        ),
        f"{load:.1f}",
    ]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", default="100000,300000")
    parser.add_argument("--sizes", default="500,1500")
    parser.add_argument("--table", action="append", default=[])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows, sizes = (
        [int(x) for x in text.split(",") if x] for text in (options.rows, options.sizes)
    )
    titles = ["table", "rows", "limit", "solver", "kept", "MiB moved"]
    titles += ["dictionary, processor s", "solve, processor s"]
    titles += [f"{stage} s" for stage in ("profile", "tuning", "dictionary", "solve")] + ["load"]
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    marked = 0
    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for name, target, frame in tables(rows, options.table):
            for size in sizes:
                settings = {"target": target, "max_dictionary": size, "length_scale": "median"}
                cells = compare(client, name, frame, settings)
                marked += sum("!" in text for text in cells[6:8])
                print("| " + " | ".join(cells) + " |", flush=True)
    if marked:
        sys.exit(f"{marked} stages took more or less processor time than planned, by over 1.5")


if __name__ == "__main__":
    main()
