"""Where the time of a fit goes: the functions that take most of it themselves.

    python benchmarks/hotspots.py [--quick] [--csv FILE]

The plain executor in one thread under cProfile, processor seconds. A product or a factorization
counts to the function that calls BLAS for it.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from pathlib import Path

import dask
from growth import made
from output import Rows, run

from squeak_dist.distributed import read_source
from squeak_dist.linalg import single_blas_thread
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

SHOWN = 12
SIZES = ((200_000, 18, 1000), (1_000_000, 18, 2500))
QUICK = ((50_000, 18, 300),)


def profiled(n: int, d: int, m: int, solver: str) -> tuple[pstats.Stats, int]:
    """Return the profile of a fit, and how many rows it kept."""
    source = read_source(made(n, d), target="y")
    tables = dask.compute(*source.tables, scheduler="sync")
    parameters = FitParameters(
        kernel="rbf", length_scale="median", max_dictionary=m, solver=solver
    )
    profile = cProfile.Profile(time.thread_time)
    with single_blas_thread():
        model = profile.runcall(
            fit_tables, PlainExecutor(), tables, source.schema, parameters,
            target_names=("y",), single_output=True,
        )  # fmt: skip
    return pstats.Stats(profile), len(model.dictionary)


def hottest(stats: pstats.Stats) -> Rows:
    """Return the functions of most own time, with their share of all of it."""
    found = []
    for (file, line, name), (_, calls, own, *_) in stats.stats.items():
        where = name if file == "~" else f"{Path(file).stem}.{name}"
        found.append((own, where.strip("{}").replace("<", "").replace(">", ""), calls, line))
    total = sum(own for own, *_ in found)
    return [
        {"function": where, "calls": calls, "own_s": round(own, 2), "share": round(own / total, 3)}
        for own, where, calls, _ in sorted(found, reverse=True)[:SHOWN]
    ]


def measure(quick: bool) -> Rows:
    rows: Rows = []
    for n, d, size in QUICK if quick else SIZES:
        for solver in ("direct", "cg") if n < 500_000 else ("cg",):
            stats, m = profiled(n, d, size, solver)
            rows += [{"n": n, "d": d, "m": m, "solver": solver, **row} for row in hottest(stats)]
    return rows


if __name__ == "__main__":
    run(__doc__.splitlines()[0], measure)
