"""A fit on 8 to 1,024 workers, by discrete-event simulation of its real task graph.

    python benchmarks/cluster_simulation.py --rows 1e9 --out docs/scaling.csv

The graph is recorded from the library: a fit of a table whose partitions, steps and chains have
1/1,000 of the usual rows calls what a fit of 1,000 times the rows calls. Seconds (processor time
of one thread) and bytes of each kind of task are the means of a recorded fit at full size. Each
task then waits for the scheduler (one at a time), for its inputs (one at a time into and out of a
worker, from any worker that has them), and for its worker. Rows stay where they were encoded,
which Dask does not promise; other tasks start where most of their bytes are. Files are cached.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.sizeof import sizeof
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist import merge_tree
from squeak_dist.distributed import read_source
from squeak_dist.distributed.reading import Reading, unread
from squeak_dist.distributed.sizes import EVERYWHERE, true_size
from squeak_dist.linalg import single_blas_thread
from squeak_dist.stages import FitParameters, fit_tables, planning

COLUMNS, STEP = 18, 65_536  # rows of a partition
PER_STEP = 2  # partitions that share a task, at 1,000 centres
SMALLER = 1000  # rows of the usual steps and chains to those of the graph
MEASURED_ROWS = 8 * STEP
# Tasks whose seconds grow with their rows.
OF_ROWS = {"profile_task", "profile_group", "encode_task", "chain_step", "sums_task",
           "first_pass", "product", "errors"}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One call of a fit: what it takes, where it belongs, and what it costs."""

    name: str
    stage: int
    needs: tuple[int, ...]
    seconds: float
    nbytes: int


@dataclass(frozen=True)
class Graph:
    """The calls in order, the stages they end in, and the driver's seconds before each stage."""

    tasks: tuple[Task, ...]
    stages: tuple[str, ...]
    driver: tuple[float, ...]


@dataclass(frozen=True)
class Network:
    """What stands between workers."""

    latency: float = 5e-4
    bandwidth: float = 1e9  # bytes a second into, and out of, a worker
    scheduler: float = 1.5e-3  # seconds per task of the one scheduler


@dataclass(frozen=True, eq=False)
class Handle:
    number: int
    value: Any


class Recorder:
    """An executor that runs each call at once and writes down what it was."""

    def __init__(self, slots: int = 8) -> None:
        self.tasks: list[Task] = []
        self.stages: list[str] = []
        self.driver: list[float] = []
        self._slots, self._inside, self._mark = slots, 0.0, time.thread_time()

    def call(self, function: Callable[..., Any], *args: Any) -> Handle:
        values = [_value(arg) for arg in args]
        needs = tuple(dict.fromkeys(number for arg in args for number in _numbers(arg)))
        began = time.thread_time()
        value = Reading(function)(*values)
        seconds = time.thread_time() - began
        self._inside += seconds
        return self._written(function.__name__.strip("_"), needs, seconds, value)

    def share(self, value: Any) -> Handle:
        return self._written("share", (), 0.0, value)

    def _written(self, name: str, needs: tuple[int, ...], seconds: float, value: Any) -> Handle:
        nbytes = true_size(value) if isinstance(value, EVERYWHERE) else int(sizeof(value))
        self.tasks.append(Task(name, len(self.stages), needs, seconds, nbytes))
        return Handle(len(self.tasks) - 1, value)

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        return handles

    def gather(self, stage: str, handle: Handle) -> Any:
        now = time.thread_time()
        self.driver.append(max(now - self._mark - self._inside, 0.0))
        self.stages.append(stage)
        self._mark, self._inside = now, 0.0
        return handle.value

    def check_memory(self, needed: int, explanation: str) -> None: ...

    def slots(self) -> int:
        return self._slots

    def graph(self) -> Graph:
        return Graph(tuple(self.tasks), tuple(self.stages), tuple(self.driver))


def _value(arg: Any) -> Any:
    if isinstance(arg, Handle):
        return arg.value
    return [_value(item) for item in arg] if isinstance(arg, list) else arg


def _numbers(arg: Any) -> Iterator[int]:
    if isinstance(arg, Handle):
        yield arg.number
    elif isinstance(arg, list):
        for item in arg:
            yield from _numbers(item)


# --- recording --------------------------------------------------------------------------------


def part(number: int, rows: int = STEP) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, COLUMNS)).astype(np.float32) * rng.gamma(2, 0.3, size=(rows, 1))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)])
    return frame.assign(y=(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]).astype(np.float32))


def written(folder: Path, parts: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(parts):
        part(number).to_parquet(folder / f"part-{number:04d}.parquet")
    return folder


def settings(m: int, solver: str) -> dict[str, Any]:
    return {"max_dictionary": m, "solver": solver, "kernel": "rbf", "length_scale": "median"}


def recorded(collection: Any, m: int, solver: str, slots: int) -> Graph:
    source, recorder = read_source(collection, target="y"), Recorder(slots)
    with single_blas_thread():
        fit_tables(
            recorder, unread(source.tables) or source.tables, source.schema,
            FitParameters(**settings(m, solver)), target_names=("y",), single_output=True,
        )  # fmt: skip
    recorder.gather("model", recorder.share(None))  # what the driver does at the end
    return recorder.graph()


@contextmanager
def small_steps() -> Iterator[None]:
    """Steps and chains of 1/1,000 of the rows: the same graph from 1/1,000 of the data."""
    before = planning._STEP_ROWS, merge_tree.plan_merge_tree.__kwdefaults__.copy()
    planning._STEP_ROWS = PER_STEP * (STEP // SMALLER)
    kept = merge_tree.plan_merge_tree.__kwdefaults__
    kept["rows_per_chain"] = merge_tree.ROWS_PER_CHAIN // SMALLER
    try:
        yield
    finally:
        planning._STEP_ROWS = before[0]
        kept.update(before[1])


def real_graph(rows: int, measured: Graph, solver: str, slots: int, larger: int = 1) -> Graph:
    """The graph of a fit of so many rows, with the costs of the measured one.

    ``larger``: partitions of so many times 65,536 rows, each a step.
    """
    parts, part_rows = max(1, rows // (larger * STEP)), larger * STEP // SMALLER
    table = dd.from_map(part, range(parts), rows=part_rows, meta=part(0, 1).iloc[:0])
    with small_steps():
        shape = recorded(table, 20, solver, slots)
    by_name = defaultdict(list)
    for task in measured.tasks:
        by_name[task.name].append(task)
    group = by_name["profile_task"] or by_name["profile_group"]
    tasks = []
    for task in shape.tasks:
        like, times = by_name.get(task.name), 1
        if task.name.startswith("profile"):
            like, times = group, 8 if task.name == "profile_group" else 1
        if task.name in OF_ROWS:
            times *= larger
        if not like:
            tasks.append(task)
            continue
        seconds = times * fmean(one.seconds for one in like)
        nbytes = fmean(one.nbytes for one in like) * (larger if task.name == "encode_task" else 1)
        tasks.append(replace(task, seconds=seconds, nbytes=int(nbytes)))
    return replace(shape, tasks=tuple(tasks), driver=_aligned(measured, shape))


def _aligned(measured: Graph, shape: Graph) -> tuple[float, ...]:
    by_stage = dict(zip(measured.stages, measured.driver, strict=True))
    return tuple(by_stage.get(stage, 0.0) for stage in shape.stages)


# --- simulation -------------------------------------------------------------------------------


@dataclass
class Times:
    """What a simulation found: the end of each stage, and what was moved and waited for."""

    ends: list[float]
    moved: int = 0
    busy: float = 0.0


def simulate(graph: Graph, workers: int, network: Network) -> Times:
    """Run the stages one after the other; a task starts when its inputs are at its worker."""
    free = np.zeros(workers)  # when a worker ends what it has
    into, out = np.zeros(workers), np.zeros(workers)  # when its network is free
    at: list[dict[int, float]] = [{} for _ in graph.tasks]  # worker → since when it has a value
    place = _chain_places(graph, workers)
    found = Times([])
    scheduler = now = 0.0
    waiting = _by_stage(graph)
    for stage, driver in enumerate(graph.driver):
        now = scheduler = now + driver
        numbers = waiting.get(stage, [])
        inside, missing, users = set(numbers), {}, defaultdict(list)
        for number in numbers:
            needs = [need for need in graph.tasks[number].needs if need in inside]
            missing[number] = len(needs)
            for need in needs:
                users[need].append(number)
        ready = [(now, number) for number in numbers if not missing[number]]
        heapq.heapify(ready)
        end = now
        while ready:
            since, number = heapq.heappop(ready)
            task = graph.tasks[number]
            scheduler = max(scheduler, since) + network.scheduler
            worker = place.get(number)
            if worker is None:
                worker = _best(task, graph, at, free, scheduler, network)
            arrived = scheduler + network.latency
            for need in task.needs:
                if worker not in at[need]:
                    nbytes = graph.tasks[need].nbytes
                    arrived = max(arrived, _moved(at[need], worker, nbytes, scheduler, into, out,
                                                  network))  # fmt: skip
                    found.moved += nbytes
            done = max(free[worker], arrived) + task.seconds
            free[worker] = done
            found.busy += task.seconds
            at[number][worker] = done
            end = max(end, done)
            for user in users[number]:
                missing[user] -= 1
                if not missing[user]:
                    latest = max(min(at[need].values()) for need in graph.tasks[user].needs)
                    heapq.heappush(ready, (latest, user))
        now = end + network.latency
        found.ends.append(now)
    return found


def _by_stage(graph: Graph) -> dict[int, list[int]]:
    stages = defaultdict(list)
    for number, task in enumerate(graph.tasks):
        stages[task.stage].append(number)
    return stages


def _chain_places(graph: Graph, workers: int) -> dict[int, int]:
    """Encoded steps, chain by chain in turn, and every task that takes them."""
    steps = {n for n, task in enumerate(graph.tasks) if task.name == "encode_task"}
    chain_of, chain = {}, -1
    for number, task in enumerate(graph.tasks):
        if task.name == "chain_step":
            rows = [need for need in task.needs if graph.tasks[need].name == "encode_task"]
            before = [need for need in task.needs if graph.tasks[need].name == "chain_step"]
            chain = chain_of[before[0]] if before else chain + 1
            chain_of[number] = chain_of[rows[0]] = chain
    places = {step: chain_of[step] % workers for step in steps}
    for number, task in enumerate(graph.tasks):
        rows = [need for need in task.needs if need in steps]
        if rows:
            places[number] = places[rows[0]]
    return places


def _best(
    task: Task, graph: Graph, at: list[dict[int, float]], free: np.ndarray, now: float,
    network: Network,
) -> int:  # fmt: skip
    """Return where a task starts first: by its inputs' bytes and the work that is queued."""
    first_free = int(np.argmin(free))
    near = {worker for need in task.needs for worker in list(at[need])[:4]}

    def start(worker: int) -> float:
        missing = sum(graph.tasks[n].nbytes for n in task.needs if worker not in at[n])
        return max(float(free[worker]), now) + missing / network.bandwidth

    return min({first_free, *near}, key=lambda worker: (start(worker), worker))


def _moved(
    have: dict[int, float], worker: int, nbytes: int, now: float, into: np.ndarray,
    out: np.ndarray, network: Network,
) -> float:  # fmt: skip
    """Move a value to a worker from the one that can send it first; return when it is there."""
    source = min(have, key=lambda other: max(have[other], float(out[other])))
    begin = max(now, have[source], float(out[source]), float(into[worker]))
    end = begin + nbytes / network.bandwidth
    out[source] = into[worker] = end
    have[worker] = end + network.latency
    return have[worker]


# --- variants and tables ----------------------------------------------------------------------


def threaded(graph: Graph, threads: int) -> Graph:
    """Merges, map and solve on several BLAS threads at 70 % efficiency."""
    serial = {"merge_task", "map_task", "solve_task", "system", "add_sums"}
    return replace(graph, tasks=tuple(
        replace(t, seconds=t.seconds / (0.7 * threads)) if t.name in serial else t
        for t in graph.tasks
    ))  # fmt: skip


def row(label: str, workers: int, graph: Graph, network: Network) -> dict[str, Any]:
    found = simulate(graph, workers, network)
    work = sum(task.seconds for task in graph.tasks) + sum(graph.driver)
    lengths = np.diff([0.0, *found.ends])
    by_stage: dict[str, float] = defaultdict(float)
    for stage, seconds in zip(graph.stages, lengths, strict=True):
        by_stage["iterations" if stage.startswith(("iteration", "residual")) else stage] += seconds
    scheduled = len(graph.tasks) * network.scheduler
    return {
        "variant": label, "workers": workers, "makespan_s": round(found.ends[-1], 2),
        "efficiency": round(work / (workers * found.ends[-1]), 3),
        "scheduler_share": round(scheduled / found.ends[-1], 3),
        "moved_GB": round(found.moved / 1e9, 3),
        **{f"{k}_s": round(by_stage.get(k, 0.0), 2)
           for k in ("profile", "tuning", "dictionary", "solve", "iterations", "solution")},
    }  # fmt: skip


def validated(folder: Path, measured: Graph, m: int, solver: str) -> list[dict[str, Any]]:
    """The recorded fit on 1 and 2 real workers beside its simulation."""
    rows = []
    for workers in (1, 2):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as c,
            Client(c) as client,
        ):
            # Each worker has used each library once.
            squeak_dist.fit(folder, target="y", client=client, **settings(50, solver))
            began = time.perf_counter()
            squeak_dist.fit(folder, target="y", client=client, **settings(m, solver))
            real = time.perf_counter() - began
        simulated = simulate(measured, workers, Network()).ends[-1]
        load = os.getloadavg()[0]
        rows.append(
            {
                "workers": workers,
                "real_s": round(real, 2),
                "simulated_s": round(simulated, 2),
                "ratio": round(real / simulated, 3),
                "load": load,
            }
        )
    return rows  # fmt: skip


def like_a_worker() -> None:
    """Start again with the environment that Dask gives its workers: memory goes back at once
    there, and pages that are fetched anew count."""
    given = {k: str(v) for k, v in dask.config.get("distributed.nanny.pre-spawn-environ").items()}
    if not given.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], given | dict(os.environ))


def main() -> None:
    like_a_worker()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--centres", type=int, default=1000)
    parser.add_argument("--solver", default="direct", choices=["direct", "cg"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/squeak-simulation"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="1e8 rows, 300 centres")
    options = parser.parse_args()
    rows, m = (1e8, 300) if options.quick else (options.rows, options.centres)
    folder = written(options.folder, MEASURED_ROWS // STEP)
    measured = recorded(folder, m, options.solver, slots=8)
    print("# validation, on this machine")
    _print(validated(folder, measured, m, options.solver))
    graph = real_graph(int(rows), measured, options.solver, slots=1024)
    print(f"# {rows:.0e} rows x {COLUMNS}, m = {m}, {options.solver}: {len(graph.tasks):,} tasks")
    network, table = Network(), []
    for workers in (1, 8, 32, 128, 256, 512, 1024):
        table.append(row("as it is", workers, graph, network))
    large = real_graph(int(rows), measured, options.solver, slots=1024, larger=4)
    for workers in (128, 1024):
        table += [
            row("partitions and steps of 262,144 rows", workers, large, network),
            row(
                "these, and the faster scheduler", workers, large, replace(network, scheduler=3e-4)
            ),
            row("scheduler 5 x as fast", workers, graph, replace(network, scheduler=3e-4)),
            row("merges and solve on 8 threads", workers, threaded(graph, 8), network),
            row("both", workers, threaded(graph, 8), replace(network, scheduler=3e-4)),
            row("network 10 x as fast", workers, graph, replace(network, bandwidth=1e10)),
        ]
    _print(table)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0].keys())
            writer.writeheader()
            writer.writerows(table)


def _print(rows: list[dict[str, Any]]) -> None:
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for found in rows:
        print("| " + " | ".join(map(str, found.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
