"""Workers that are killed in the middle of a fit: the same bits, no row lost or repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.distributed import executor, memory
from squeak_dist.errors import ClusterError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

ROWS = 2500  # of a partition
PARTITIONS = 20
SETTINGS = {"max_dictionary": 350, "mu": 0.05}


def part(number):
    rng = np.random.default_rng(number)
    X = rng.normal(size=(ROWS, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=ROWS)
    frame = pd.DataFrame(X, columns=list("abcde"))
    return frame.assign(y=y, w=rng.integers(1, 4, size=ROWS).astype(float))


@pytest.fixture(scope="module")
def collection():
    return dd.from_map(part, range(PARTITIONS), meta=part(0).iloc[:0])


@pytest.fixture(scope="module")
def references(collection, plain_fit):
    return {
        solver: plain_fit(collection, target="y", sample_weight="w", solver=solver, **SETTINGS)
        for solver in ("direct", "cg")
    }


class Killer:
    """A progress callback that kills workers once, in a stage, after some tasks of it."""

    def __init__(self, client, stage, *, victims=1, after=2):
        self.stage, self.victims, self.after = stage, victims, after
        self.running = list(client.run(os.getpid).values())
        self.killed = []

    def __call__(self, stage, done, total):
        if stage == self.stage and done >= min(self.after, total - 1) and not self.killed:
            self.killed = self.running[: self.victims]
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


class Case(NamedTuple):
    stage: str
    solver: str = "direct"
    victims: int = 1
    persisted: bool = True


CASES = {
    "profile": Case("profile"),
    "dictionary": Case("dictionary"),
    "solve": Case("solve"),
    "both workers in an iteration": Case("iteration 2", solver="cg", victims=2),
    "partitions not kept": Case("solve", persisted=False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_worker_costs_time_alone(
    collection, references, assert_same_bits, started, monkeypatch, name
):
    case = CASES[name]
    if not case.persisted:
        monkeypatch.setattr(executor, "_total_memory", lambda client: 0)
    with started(2) as client:
        killer = Killer(client, case.stage, victims=case.victims)
        model = squeak_dist.fit(
            collection, target="y", sample_weight="w", solver=case.solver, client=client,
            progress=killer, **SETTINGS,
        )  # fmt: skip
        assert len(killer.killed) == case.victims
        client.wait_for_workers(1, timeout=60)
        assert not set(killer.killed) & set(client.run(os.getpid).values())
    reference = references[case.solver]
    assert reference.report["solver"] == case.solver
    assert_same_bits(model, reference)
    assert model.report_["rows"] == model.report_["rows_in_dictionary_pass"] == PARTITIONS * ROWS
    assert model.report_["partition_rows"] == [ROWS] * PARTITIONS
    indices = model.component_indices_
    assert len(np.unique(indices)) == len(indices)
    first = indices[indices < ROWS]
    encoded, _ = model.model_.encoding.encode(part(0)[list("abcde")].iloc[first])
    assert encoded.tobytes() == model.components_[indices < ROWS].tobytes()


def test_rows_in_memory_are_not_lost_with_a_worker(started, monkeypatch):
    """They are sent once, and the scheduler can send them again."""
    monkeypatch.setattr(memory, "_PARTITION_ROWS", ROWS)
    table = pd.concat([part(number) for number in range(4)], ignore_index=True)
    expected = squeak_dist.fit(table, target="y", sample_weight="w", **SETTINGS)
    with started(2) as client:
        killer = Killer(client, "dictionary", victims=1)
        model = squeak_dist.fit(
            table, target="y", sample_weight="w", client=client, progress=killer, **SETTINGS
        )
        assert len(killer.killed) == 1
    assert model.dual_coef_.tobytes() == expected.dual_coef_.tobytes()


def test_a_worker_without_a_nanny_is_not_replaced(
    collection, references, assert_same_bits, started
):
    """The others take over its chains."""
    with started(1) as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny",
                   "--nthreads", "1", "--no-dashboard", client.scheduler.address]  # fmt: skip
        extra = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(2, timeout=60)
            began = []

            def kill(stage, done, total):
                if stage == "dictionary" and done >= 3 and not began:
                    began.append(stage)
                    extra.kill()

            model = squeak_dist.fit(
                collection, target="y", sample_weight="w", solver="direct", client=client,
                progress=kill, **SETTINGS,
            )  # fmt: skip
            assert began
            assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1
        finally:
            extra.kill()
            extra.wait(timeout=30)
    assert_same_bits(model, references["direct"])


class Deadly:
    """A kernel that kills the worker it runs on, once the client has checked it."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, X, Y):
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return X @ Y.T

    def diag(self, X):
        return (X**2).sum(axis=1)


def test_workers_that_die_again_and_again_are_an_error(collection, started):
    with started(1) as client:
        with pytest.raises(ClusterError, match=r"died repeatedly during the .* stage.*memory"):
            squeak_dist.fit(collection, target="y", kernel=Deadly(), mu=1.0, client=client)
        assert client.status == "running"
        client.wait_for_workers(1, timeout=60)


def test_a_worker_killed_while_predicting(collection, references, started):
    with started(2) as client:
        model = squeak_dist.fit(
            collection, target="y", sample_weight="w", solver="direct", client=client, **SETTINGS
        )
        pids = list(client.run(os.getpid).values())
        future = client.compute(model.predict(collection))
        time.sleep(0.3)
        os.kill(pids[0], signal.SIGKILL)
        predicted = future.result(timeout=120)
    local = model.predict(collection).compute(scheduler="sync")
    assert predicted.to_numpy().tobytes() == local.to_numpy().tobytes()
    assert len(predicted) == PARTITIONS * ROWS
