"""What a collection of many partitions costs before and beside the work: graphs and the scheduler.

    python benchmarks/graph.py --partitions 10000

Scheduler and two workers are processes of their own. Prints, as CSV, the processor seconds of
this process and of the scheduler, the tasks, and the bytes of the graphs, per stage; the
partitions are tiny, so that nothing else counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from squeak_dist.distributed import DaskExecutor, read_source
from squeak_dist.distributed.calls import as_delayed
from squeak_dist.stages import FitParameters, fit_tables

ROWS = 20  # of a partition


def rows_of(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    X = rng.normal(size=(ROWS, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    return frame.assign(y=np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=ROWS))


class Measuring(DaskExecutor):
    """Prints one line for each stage."""

    began = 0.0
    scheduler = 0.0

    def mark(self) -> None:
        self.began, self.scheduler = time.process_time(), _scheduler_seconds(self._client)

    def gather(self, stage: str, handle: Any) -> Any:
        planned, calls = time.process_time() - self.began, self._calls
        nbytes = len(cloudpickle.dumps(as_delayed([handle])[0].__dask_graph__()))
        before = time.perf_counter()
        value = super().gather(stage, handle)
        wall = time.perf_counter() - before
        scheduler = _scheduler_seconds(self._client) - self.scheduler
        per_task = 1e3 * scheduler / max(calls, 1)
        print(
            f"{stage},{calls},{nbytes},{planned:.2f},{wall:.2f},{scheduler:.2f},{per_task:.2f}",
            flush=True,
        )
        self.mark()
        return value


def _scheduler_seconds(client: Client | None) -> float:
    assert client is not None
    return float(client.run_on_scheduler(time.process_time))


@contextmanager
def processes(workers: int) -> Iterator[Client]:
    """A scheduler and workers that are processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1"]
        quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        started = [
            subprocess.Popen([*program, "--port", "0", "--scheduler-file", str(file)], **quiet)
        ]
        while not file.exists():
            time.sleep(0.1)
        options = ["--scheduler-file", str(file), "--no-dashboard", "--local-directory", folder]
        started += [subprocess.Popen([*worker, *options], **quiet) for _ in range(workers)]
        try:
            with Client(scheduler_file=str(file)) as client:
                client.wait_for_workers(workers)
                yield client
                client.shutdown()
        finally:
            for process in started:
                process.terminate()
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="1,000 partitions")
    options = parser.parse_args()
    partitions = 1000 if options.quick else options.partitions
    print(f"# {partitions} partitions; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print("stage,tasks,graph_bytes,client_cpu_s,wall_s,scheduler_cpu_s,scheduler_ms_a_task")
    with processes(2) as client:
        began = time.process_time()
        table = dd.from_map(rows_of, range(partitions), meta=rows_of(0).iloc[:0])
        source = read_source(table, target="y")
        executor = Measuring(client)
        tables = executor.tables(source)
        print(f"# source: {time.process_time() - began:.2f} s of this process")
        executor.mark()
        fit_tables(
            executor, tables, source.schema,
            FitParameters(kernel="rbf", length_scale="median", max_dictionary=100, solver="cg"),
            target_names=source.target_names, single_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
