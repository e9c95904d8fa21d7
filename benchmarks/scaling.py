"""The same fit on 1 and 2 worker processes, for more and more rows.

    python benchmarks/scaling.py [--quick] [--csv FILE]

As many CPUs as workers, one each; scheduler and client run on these too. Otherwise one worker
alone would have the CPU of the other for what it reads ahead, and for scheduler and client. Wall
seconds of warm clusters, of short fits the less of two, so only those of an idle machine count;
"work": processor seconds of all workers, "driver": of scheduler and client. "speed_up": beside one
worker. "for_twice": beside one worker with half the rows, for as many rows (weak scaling).
"""

from __future__ import annotations

import os
import time

import dask.dataframe as dd
import psutil
from distributed import Client, LocalCluster
from growth import made
from output import Rows, run

import squeak_dist

PART, LONG = 65_536, 32


def part(number: int, rows: int) -> object:
    return made(rows + number, 18).iloc[:rows]


def confine(*cpus: int) -> None:
    """Keep all threads of this process on some CPUs."""
    for thread in psutil.Process().threads():
        os.sched_setaffinity(thread.id, cpus)


def timed(workers: int, partitions: int, m: int, solver: str) -> tuple[float, float, float]:
    table = dd.from_map(part, range(partitions), rows=PART, meta=made(1, 18).iloc[:0])
    settings = {"kernel": "rbf", "length_scale": "median", "solver": solver, "mu": 0.1}
    confine(*range(os.cpu_count() or 1))
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for cpu, address in enumerate(client.scheduler_info()["workers"]):
            client.run(confine, cpu, workers=[address])
        squeak_dist.fit(made(2000, 18), target="y", client=client, max_dictionary=50, **settings)
        confine(*range(workers))  # scheduler and client
        repeats = 1 if partitions > LONG else 2
        return min(_once(client, table, m, settings) for _ in range(repeats))


def _once(
    client: Client, table: object, m: int, settings: dict[str, object]
) -> tuple[float, float, float]:
    before, own = sum(client.run(time.process_time).values()), time.process_time()
    began = time.perf_counter()
    squeak_dist.fit(table, target="y", client=client, max_dictionary=m, **settings)
    wall, own = time.perf_counter() - began, time.process_time() - own
    return wall, sum(client.run(time.process_time).values()) - before, own


PARTITIONS = {"direct": (8, 16), "cg": (16, 32, 64, 128)}
QUICK = {"direct": (4, 8), "cg": (4, 8)}


def measure(quick: bool) -> Rows:
    m = 200 if quick else 1000
    rows: Rows = []
    for solver, sizes in (QUICK if quick else PARTITIONS).items():
        alone: dict[int, float] = {}
        for partitions in sizes:
            for workers in (1, 2):
                wall, work, driver = timed(workers, partitions, m, solver)
                if workers == 1:
                    alone[partitions] = wall
                half = alone.get(partitions // 2)
                weak = round(2 * half / wall, 2) if workers == 2 and half else ""
                rows.append({
                    "solver": solver, "rows": partitions * PART, "m": m, "workers": workers,
                    "seconds": round(wall, 2), "work_s": round(work, 2),
                    "driver_s": round(driver, 2),
                    "speed_up": round(alone[partitions] / wall, 2), "for_twice": weak,
                })  # fmt: skip
    return rows


if __name__ == "__main__":
    run(__doc__ or "", measure)
