"""The same fits on Ray and on Dask, turn by turn, on as many worker processes.

    python benchmarks/ray_and_dask.py --rows 400000 --centres 800 --partitions 16

Needs squeak-dist[ray]. Both are warm: the first fit of each is not counted. Prints the
seconds of each turn and the median of their ratios, which is what holds on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import ray
from distributed import Client, LocalCluster
from ray.util.dask import ray_dask_get

import squeak_dist

COLUMNS = [f"x{j}" for j in range(8)]


def part(number: int, rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, 8)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)
    return pd.DataFrame(X, columns=COLUMNS).assign(y=y)


def seconds(place: str, table, client: Client, **settings) -> tuple[float, bytes]:
    began = time.perf_counter()
    if place == "ray.util.dask":
        # No client may be the current one: it would take the fit.
        with dask.config.set(scheduler=ray_dask_get):
            model = squeak_dist.fit(table, target="y", **settings)
    else:
        chosen = "ray" if place == "ray" else client
        model = squeak_dist.fit(table, target="y", client=chosen, **settings)
    return time.perf_counter() - began, model.dual_coef_.tobytes()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=400_000)
    options.add_argument("--partitions", type=int, default=16)
    options.add_argument("--centres", type=int, default=800)
    options.add_argument("--solver", default="direct")
    options.add_argument("--turns", type=int, default=3)
    given = options.parse_args()
    rows = given.rows // given.partitions
    table = dd.from_map(part, range(given.partitions), rows=rows, meta=part(0, 1).iloc[:0])
    settings = {"max_dictionary": given.centres, "mu": 0.05, "solver": given.solver}
    cpus = os.cpu_count() or 1
    ray.init(num_cpus=cpus, object_store_memory=1 << 30, include_dashboard=False)
    places = ("dask", "ray", "ray.util.dask")
    turns: dict[str, list[float]] = {place: [] for place in places}
    with (
        LocalCluster(n_workers=cpus, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for turn in range(given.turns + 1):
            got = {place: seconds(place, table, client, **settings) for place in places}
            assert len({bits for _, bits in got.values()}) == 1, "the bits differ"
            if turn:
                for place, (time_, _) in got.items():
                    turns[place].append(time_)
    ray.shutdown()
    for place in places:
        ratio = statistics.median(a / b for a, b in zip(turns[place], turns["dask"], strict=True))
        shown = " ".join(f"{time_:6.2f}" for time_ in turns[place])
        print(f"{place:>14} {shown} s   {ratio:.2f} × dask")


if __name__ == "__main__":
    main()
