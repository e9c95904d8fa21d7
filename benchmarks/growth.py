"""How the processor time of a fit grows with rows n, columns d and dictionary size m.

    python benchmarks/growth.py [--quick] [--csv FILE]

The plain executor in one thread, seconds of processor time; one of n, d, m is doubled twice.
"exponent": of the last doubling.
"""

from __future__ import annotations

import math
import time

import dask
import numpy as np
import pandas as pd
from output import Rows, run

from squeak_dist.distributed import read_source
from squeak_dist.linalg import single_blas_thread
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

STAGES = ("profile", "dictionary", "solve")


class Timed(PlainExecutor):
    """Notes the processor seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._mark = time.thread_time()

    def gather(self, stage: str, handle: object) -> object:
        now = time.thread_time()
        name = stage if stage in STAGES else "tuning" if stage == "tuning" else "solve"
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._mark
        self._mark = now
        return handle


def made(n: int, d: int) -> pd.DataFrame:
    rng = np.random.default_rng([n, d])
    X = rng.normal(size=(n, d)).astype(np.float32)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    return frame.assign(y=np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n))


def seconds(n: int, d: int, m: int, solver: str) -> tuple[dict[str, float], int]:
    source = read_source(made(n, d), target="y")
    tables = dask.compute(*source.tables, scheduler="sync")
    executor = Timed()
    with single_blas_thread():
        model = fit_tables(
            executor, tables, source.schema,
            FitParameters(kernel="rbf", length_scale="median", max_dictionary=m, solver=solver),
            target_names=("y",), single_output=True,
        )  # fmt: skip
    return executor.seconds, len(model.dictionary)


def measure(quick: bool) -> Rows:
    base = {"n": 50_000, "d": 8, "m": 200} if quick else {"n": 250_000, "d": 18, "m": 500}
    rows: Rows = []
    for solver in ("direct", "cg"):
        for name in base:
            before: dict[str, float] = {}
            for factor in (1, 2, 4):
                sizes = base | {name: factor * base[name]}
                found, size = seconds(sizes["n"], sizes["d"], sizes["m"], solver)
                row = {"solver": solver, "doubled": name, **sizes, "m": size}
                for stage in STAGES:
                    row[f"{stage}_s"] = round(found[stage], 2)
                    last = factor == 4 and before[stage] > 0
                    growth = math.log2(found[stage] / before[stage]) if last else math.nan
                    row[f"{stage}_exponent"] = round(growth, 2) if last else ""
                rows.append(row)
                before = found
    return rows


if __name__ == "__main__":
    run(__doc__ or "", measure)
