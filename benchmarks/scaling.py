"""The same fit on 1 and 2 worker processes, and twice the rows on twice the workers.

    python benchmarks/scaling.py [--quick] [--csv FILE]

Wall seconds of warm clusters, so only those of an idle machine count; "work": processor seconds
of all workers.
"""

from __future__ import annotations

import time

import dask.dataframe as dd
from distributed import Client, LocalCluster
from growth import made
from output import Rows, run

import squeak_dist

PART = 65_536


def part(number: int, rows: int) -> object:
    return made(rows + number, 18).iloc[:rows]


def timed(workers: int, partitions: int, m: int, solver: str) -> tuple[float, float]:
    table = dd.from_map(part, range(partitions), rows=PART, meta=made(1, 18).iloc[:0])
    settings = {"kernel": "rbf", "length_scale": "median", "solver": solver, "mu": 0.1}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        squeak_dist.fit(made(2000, 18), target="y", client=client, max_dictionary=50, **settings)
        before = sum(client.run(time.process_time).values())
        began = time.perf_counter()
        squeak_dist.fit(table, target="y", client=client, max_dictionary=m, **settings)
        wall = time.perf_counter() - began
        return wall, sum(client.run(time.process_time).values()) - before


def measure(quick: bool) -> Rows:
    partitions, m = (8, 200) if quick else (16, 1000)
    rows: Rows = []
    for solver in ("direct", "cg"):
        one, work = timed(1, partitions, m, solver)
        cases = {
            "1 worker": (1, partitions),
            "2 workers": (2, partitions),
            "2 workers, twice the rows": (2, 2 * partitions),
        }
        for label, (workers, parts) in cases.items():
            wall, used = (one, work) if workers == 1 else timed(workers, parts, m, solver)
            rows.append({
                "solver": solver, "case": label, "rows": parts * PART, "m": m,
                "seconds": round(wall, 2), "work_s": round(used, 2),
                "speed_up": round(one / wall * parts / partitions, 2),
            })  # fmt: skip
    return rows


if __name__ == "__main__":
    run(__doc__ or "", measure)
