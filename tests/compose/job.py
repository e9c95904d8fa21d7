"""What the client container of the tests runs; the tests send this file to its Python.

Prints one JSON object a line, so that a test follows a fit and knows when to do harm:
``progress`` (stage, tasks done, in all), ``processing`` (worker address → tasks it runs),
and at last ``model`` or ``error``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import dask
import numpy as np
import pandas as pd
from distributed import Client

import squeak_dist
from squeak_dist.distributed import read_parquet, read_source
from squeak_dist.distributed.executor import DaskExecutor
from squeak_dist.errors import SqueakError
from squeak_dist.kernels import RBF
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

PARTITIONS, ROWS = 16, 8_000  # two partitions a chain
SETTINGS = {"gamma": 3000.0, "mu": 0.05, "max_dictionary": 500, "solver": "direct"}
TABLE = Path("/data/table")
# Seconds, memory and places, and the parameters, which the estimator writes in its own words.
TIMELESS = (
    "seconds", "cg_seconds", "peak_worker_bytes", "peak_bytes", "merges", "parameters",
)  # fmt: skip


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event} | facts), flush=True)


def part(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(ROWS, 6)) * rng.choice(
        [0.3, 1.0, 3.0], size=(ROWS, 1), p=[0.7, 0.25, 0.05]
    )
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=ROWS)
    return pd.DataFrame(X, columns=list("abcdef")).assign(y=y)


def write() -> None:
    TABLE.mkdir(exist_ok=True)
    for number in range(PARTITIONS):
        part(number).to_parquet(TABLE / f"part-{number:02}.parquet")
    say("written", rows=PARTITIONS * ROWS)


class Thoughtful:
    """A kernel that takes its time, as a user's own may: faults find a long fit, idle cores."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.kernel = RBF(1.5)

    def __repr__(self) -> str:
        return f"Thoughtful({self.kernel})"

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        time.sleep(self.pace * (1.0 if len(X) == len(Y) else 0.12))  # merges, the solve
        return self.kernel(X, Y)

    def diag(self, X: np.ndarray) -> np.ndarray:
        time.sleep(self.pace * 0.05)  # chains
        return self.kernel.diag(X)


def digest(model: squeak_dist.model.FittedModel) -> str:
    """Every bit of a model, and what its report says of the rows."""
    dictionary, report = model.dictionary, model.report
    arrays = [
        *(getattr(dictionary, name) for name in
          ("points", "indices", "probabilities", "multiplicities", "row_weights")),
        model.coefficients, model.linear_coefficients, model.target_mean,
    ]  # fmt: skip
    facts = {name: value for name, value in report.items() if name not in TIMELESS}
    nodes = [
        {k: v for k, v in node.items() if k not in ("seconds", "worker", "peak_bytes")}
        for node in report["merges"]
    ]
    total = hashlib.sha256(repr((model.kernel, model.mu, dictionary.gamma, facts, nodes)).encode())
    for array in arrays:
        total.update(str(array.dtype).encode() + array.tobytes())
    return total.hexdigest()


def say_model(model: squeak_dist.model.FittedModel, seconds: float) -> None:
    indices = model.dictionary.indices
    say(
        "model",
        digest=digest(model),
        rows=model.report["rows"],
        seen=model.report["rows_in_dictionary_pass"],
        size=len(indices),
        distinct=len(np.unique(indices)),
        chains=model.report["chains"],
        stages=dict(model.report["seconds"]),
        seconds=seconds,
    )


def plain() -> None:
    """The reference: a plain loop over the same partitions in this process."""
    began = time.perf_counter()
    source = read_source(read_parquet(TABLE), target="y")
    model = fit_tables(
        PlainExecutor(),
        dask.compute(*source.tables, scheduler="sync"),
        source.schema,
        FitParameters(kernel=Thoughtful(pace=0), **SETTINGS),
        target_names=source.target_names,
        single_output=source.single_output,
    )
    say_model(model, time.perf_counter() - began)


def watch(client: Client, over: threading.Event) -> None:
    """Say what each worker runs, whenever that changes."""
    last: dict[str, list[str]] = {}
    while not over.wait(0.05):
        try:
            running = {
                address: sorted(str(key) for key in keys)
                for address, keys in client.processing().items()
            }
        except Exception:  # the cluster is gone: the fit says it
            return
        if running != last:
            say("processing", workers=running)
            last = running


def fit(pace: str = "1") -> None:
    with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=30) as client:
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(client, over), daemon=True)
        watcher.start()
        began = time.perf_counter()
        try:
            model = squeak_dist.fit(
                TABLE, target="y", kernel=Thoughtful(pace=float(pace)), client=client, **SETTINGS,
                progress=lambda stage, done, total: say(
                    "progress", stage=stage, done=done, total=total
                ),
            )  # fmt: skip
        finally:
            over.set()
            watcher.join(timeout=10)  # or its last word comes after ours
        say_model(model.model_, time.perf_counter() - began)


def refused() -> None:
    """A fit whose tasks do not fit the workers, as the projection sees."""
    with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=30) as client:
        squeak_dist.fit(
            TABLE, target="y", client=client, **SETTINGS | {"max_dictionary": 20_000},
            progress=lambda stage, done, total: say(
                "progress", stage=stage, done=done, total=total
            ),
        )  # fmt: skip


class Trusting(DaskExecutor):
    """An executor that believes that everything fits."""

    def check_memory(self, needed: int, explanation: str) -> None:
        say("needed", bytes=needed)


def forced() -> None:
    """The same kind of fit without the projection: γ keeps every row, one merge takes all."""
    frame = read_parquet(TABLE).map_partitions(pd.DataFrame.head, 700)
    source = read_source(frame, target="y")
    with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=30) as client:
        fit_tables(
            Trusting(client),
            source.tables,
            source.schema,
            FitParameters(
                gamma=1e-6, mu=0.05, max_dictionary=None, fan_in=8, length_scale="median"
            ),
            target_names=source.target_names,
            single_output=source.single_output,
        )


if __name__ == "__main__":
    actions = {f.__name__: f for f in (write, plain, fit, refused, forced)}
    try:
        actions[sys.argv[1]](*sys.argv[2:])
    except SqueakError as error:
        say("error", type=type(error).__name__, message=str(error))
        sys.exit(1)
