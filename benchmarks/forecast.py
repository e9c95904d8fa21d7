"""What `squeak_dist.plan` says beside what the fit then takes.

    python benchmarks/forecast.py [--workers 2] [--rows 100000,300000] [--sizes 500,1500]

Made data (18 columns, a smooth function and noise) as a Dask frame on worker processes; columns:
rows kept, and seconds of the dictionary and the solve, as planned and as they were.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import squeak_dist


def made(n: int, d: int = 18, seed: int = 0) -> pd.DataFrame:
    """Return a table whose target depends on a few directions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    W = rng.normal(size=(d, 3)) / np.sqrt(d)
    a, b, c = (X @ W).T
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    return frame.assign(y=np.sin(2 * a) + np.tanh(b) * c + 0.3 * rng.normal(size=n))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", default="100000,300000")
    parser.add_argument("--sizes", default="500,1500")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows, sizes = ([int(x) for x in text.split(",")] for text in (options.rows, options.sizes))
    print("| rows | limit | solver | kept: plan / fit | dictionary s | solve s | ratio of both |")
    print("|---|---|---|---|---|---|---|")
    with (
        LocalCluster(options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        for n, size in itertools.product(rows, sizes):
            table = dd.from_pandas(made(n), npartitions=max(n // 25_000, 4)).persist()
            settings = {"target": "y", "max_dictionary": size, "length_scale": "median"}
            planned = squeak_dist.plan(table, **settings).chosen
            report = squeak_dist.fit(table, **settings).report_
            taken = report["seconds"]
            pairs = [(planned.seconds[s], taken[s]) for s in ("dictionary", "solve")]
            ratio = sum(p for p, _ in pairs) / sum(t for _, t in pairs)
            cells = " | ".join(f"{p:.1f} / {t:.1f}" for p, t in pairs)
            print(
                f"| {n:,} | {size:,} | {report['solver']} | {planned.dictionary_size:,} / "
                f"{report['dictionary_size']:,} | {cells} | {ratio:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
