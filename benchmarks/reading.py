"""How much of the wait for a slow store a fit hides behind its computing.

    python benchmarks/reading.py [--quick] [--csv FILE]

Each partition comes after a wait, as from object storage, and takes no processor time while it
waits. "waits": their sum, over the passes that read, divided by the workers. "hidden": the share
of it by which the fit is not longer than one of the same rows without waits. "small": many
partitions in one task, which reads ahead. "threads": of each of two workers.
"""

from __future__ import annotations

import time

import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster
from growth import made
from output import Rows, run

import squeak_dist

WORKERS, PASSES = 2, 2  # the profile and the encoding read
SETTINGS = {"kernel": "rbf", "length_scale": "median", "mu": 0.1, "solver": "direct"}


def part(number: int, rows: int, wait: float) -> pd.DataFrame:
    time.sleep(wait)
    return made(rows, 18).sample(rows, random_state=number)


def seconds(client: Client, partitions: int, rows: int, m: int, wait: float) -> float:
    table = dd.from_map(part, range(partitions), rows=rows, wait=wait, meta=made(1, 18).iloc[:0])
    began = time.perf_counter()
    squeak_dist.fit(table, target="y", client=client, max_dictionary=m, **SETTINGS)
    return time.perf_counter() - began


def measure(quick: bool) -> Rows:
    total, m, wait = (65_536, 100, 1.0) if quick else (524_288, 1000, 4.0)
    found: Rows = []
    for threads in (1, 2):
        with (
            LocalCluster(
                n_workers=WORKERS, threads_per_worker=threads, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            squeak_dist.fit(made(2000, 18), target="y", client=client, max_dictionary=50)
            for size, partitions in (("large", 8), ("small", 64)):
                rows = total // partitions
                each = wait * WORKERS / partitions
                without = seconds(client, partitions, rows, m, 0.0)
                slow = seconds(client, partitions, rows, m, each)
                waits = PASSES * wait
                found.append(
                    {
                        "threads": threads,
                        "partitions": f"{partitions} {size}",
                        "without_waits_s": round(without, 2),
                        "seconds": round(slow, 2),
                        "waits": round(waits, 2),
                        "hidden": round(1 - (slow - without) / waits, 2),
                    }
                )
    return found


if __name__ == "__main__":
    run(__doc__.splitlines()[0], measure)
