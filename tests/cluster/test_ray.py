"""Fits on a local Ray: the bits of the plain loop, lost workers, lost nodes, clear errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
import pytest

import squeak_dist
from squeak_dist.distributed import on_ray, read_source
from squeak_dist.errors import (
    ClusterError,
    ColumnTypeError,
    DataError,
    InsufficientMemoryError,
    VersionMismatchError,
)
from squeak_dist.stages.records import worker_name
from squeak_dist.store import load_dual_weights

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'squeak-dist[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::squeak_dist.errors.TuningFellBack"),
]

ROWS = 2500  # of a partition
PARTITIONS = 12
SETTINGS = {"max_dictionary": 300, "mu": 0.05}
STORE_BYTES = 256 << 20


def part(number):
    rng = np.random.default_rng(number)
    X = rng.normal(size=(ROWS, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=ROWS)
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["kind"] = rng.choice(["red", "green", "blue"], size=ROWS)
    frame.loc[rng.random(ROWS) < 0.02, "a"] = np.nan
    return frame.assign(y=y, z=X[:, 3] ** 2, w=rng.integers(1, 4, size=ROWS).astype(float))


def collection():
    return dd.from_map(part, range(PARTITIONS), meta=part(0).iloc[:0])


def arrays():
    X = np.random.default_rng(1).normal(size=(3000, 3))
    return X, np.sin(X[:, 0])


CASES = {
    "direct": {"target": "y", "features": list("bcde"), "solver": "direct"},
    "iterations": {"target": "y", "features": list("bcde"), "solver": "cg", "sample_weight": "w"},
    "everything at once": {
        "target": ["y", "z"], "sample_weight": "w", "missing": "impute", "fan_in": 3,
        "kernel": "matern", "approximation": "regularized",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def references(plain_fit):
    fits = {name: plain_fit(collection(), **case, **SETTINGS) for name, case in CASES.items()}
    return fits | {"arrays": plain_fit(*arrays(), **SETTINGS)}


@pytest.fixture(scope="module", autouse=True)
def _functions_of_this_file_on_workers():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def wait_until(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def both_work():
    """Whether tasks run on two nodes: a worker process takes seconds to start."""

    @ray.remote
    def where():
        time.sleep(0.1)
        return worker_name()

    return len(set(ray.get([where.remote() for _ in range(6)]))) == 2


@pytest.fixture(scope="module")
def two_nodes():
    """A Ray of two nodes with a worker process each; the second one as a value, to be lost."""
    options = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    head = options | {"include_dashboard": False, "_system_config": soon}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(**options)
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes()
        wait_until(both_work)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


on_two_nodes = pytest.mark.usefixtures("two_nodes")


def fit(name, **more):
    if name == "arrays":
        return squeak_dist.fit(*arrays(), client="ray", **SETTINGS, **more)
    return squeak_dist.fit(collection(), client="ray", **CASES[name], **SETTINGS, **more)


# --- before Ray runs --------------------------------------------------------------------------


def test_without_a_connection_nothing_is_started():
    with pytest.raises(ClusterError, match=r"ray\.init\(\)"):
        squeak_dist.fit(*arrays(), client="ray")
    assert not ray.is_initialized()


def test_without_the_package_the_error_names_the_extra():
    script = (
        "import sys; sys.modules['ray'] = None\n"
        "import numpy as np, squeak_dist\n"
        "try: squeak_dist.fit(np.eye(9), np.arange(9.0), client='ray')\n"
        "except squeak_dist.errors.ClusterError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "squeak-dist[ray]" in done.stdout, done.stderr


# --- bits -------------------------------------------------------------------------------------


@on_two_nodes
@pytest.mark.parametrize("name", [*CASES, "arrays"])
def test_the_bits_of_the_plain_loop(references, assert_same_bits, name):
    model = fit(name)
    assert_same_bits(model, references[name])
    assert worker_name() not in {record["worker"] for record in model.report_["merges"]}


@on_two_nodes
def test_the_same_graphs_by_the_dask_scheduler_of_ray(references, assert_same_bits):
    from ray.util.dask import ray_dask_get

    with dask.config.set(scheduler=ray_dask_get):
        model = squeak_dist.fit(collection(), **CASES["iterations"], **SETTINGS)
    assert_same_bits(model, references["iterations"])
    assert worker_name() not in {record["worker"] for record in model.report_["merges"]}
    predicted = model.predict(collection()).compute(scheduler=ray_dask_get)
    local = model.predict(collection()).compute(scheduler="sync")
    assert predicted.to_numpy().tobytes() == local.to_numpy().tobytes()


@on_two_nodes
def test_scores_and_dual_weights(tmp_path):
    model = fit("direct", approximation="regularized")
    assert model.evaluate(collection(), client="ray") == model.evaluate(collection())
    for client in ("ray", None):
        model.save_dual_weights(tmp_path / f"{client}.zarr", collection(), client=client)
    written, expected = (load_dual_weights(tmp_path / f"{c}.zarr") for c in ("ray", None))
    assert written.tobytes() == expected.tobytes()
    assert len(written) == PARTITIONS * ROWS


@on_two_nodes
def test_progress_is_told_stage_by_stage():
    told = []
    fit("direct", progress=lambda *event: told.append(event))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages == ["profile", "tuning", "dictionary", "solve"]
    for name in stages:
        counts = [(done, total) for stage, done, total in told if stage == name]
        total = counts[0][1]
        assert counts[0] == (0, total)
        assert counts[-1] == (total, total)
        assert total > PARTITIONS / 2 or name == "tuning"
        assert [done for done, _ in counts] == sorted(done for done, _ in counts)


# --- lost workers -----------------------------------------------------------------------------


def busy_workers():
    """Processes that run a task now: Ray puts its name into their title."""
    children = psutil.Process().children(recursive=True)
    return [p for p in children if (p.cmdline() or [""])[0].startswith("ray::squeak_")]


class Slow:
    """A kernel that is slow enough to be caught at work, and equal to the RBF."""

    def __init__(self, seconds):
        self.seconds, self.inner = seconds, squeak_dist.RBF(length_scale=1.5)

    def __call__(self, X, Y):
        time.sleep(self.seconds)
        return self.inner(X, Y)

    def diag(self, X):
        return self.inner.diag(X)


@on_two_nodes
@pytest.mark.parametrize("stage", ["dictionary", "solve"])
def test_a_worker_killed_at_work_costs_time_alone(plain_fit, stage):
    killed = []

    def kill(name, done, total):
        if name == stage and 0 < done < total and not killed:
            wait_until(busy_workers)  # both may be between two tasks
            killed.extend(busy_workers()[:1])
            for process in killed:
                process.kill()

    model = fit("direct", kernel=Slow(0.05), progress=kill)
    expected = plain_fit(collection(), **CASES["direct"], **SETTINGS, kernel=Slow(0))
    assert len(killed) == 1
    assert not killed[0].is_running()
    assert model.dual_coef_.tobytes() == expected.coefficients.tobytes()
    assert model.component_indices_.tobytes() == expected.dictionary.indices.tobytes()
    assert model.report_["rows"] == model.report_["rows_in_dictionary_pass"] == PARTITIONS * ROWS


class Deadly:
    """A kernel that kills the worker it runs on, once the driver has checked it."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, X, Y):
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return X @ Y.T

    def diag(self, X):
        return (X**2).sum(axis=1)


@on_two_nodes
def test_workers_that_die_again_and_again_are_an_error(references, assert_same_bits):
    with pytest.raises(ClusterError, match=r"(tuning|dictionary) stage.*memory"):
        squeak_dist.fit(*arrays(), kernel=Deadly(), mu=1.0, client="ray")
    assert_same_bits(fit("arrays"), references["arrays"])


# --- errors -----------------------------------------------------------------------------------


@on_two_nodes
def test_an_error_of_a_task_is_raised_as_it_was_and_not_tried_again(tmp_path):
    def fail(frame):
        (tmp_path / str(time.monotonic_ns())).touch()
        raise RuntimeError("text is no number")

    broken = collection().partitions[:1].map_partitions(fail, meta=part(0).iloc[:0])
    with pytest.raises(RuntimeError, match=r"^text is no number$") as caught:
        squeak_dist.fit(broken, target="y", client="ray")
    assert type(caught.value) is RuntimeError
    assert len(list(tmp_path.iterdir())) == 1
    table = collection().assign(z=np.nan)
    with pytest.raises(DataError, match="'z'"):
        squeak_dist.fit(table, target="y", client="ray")


@on_two_nodes
def test_data_that_only_a_task_can_refuse():
    def spoiled(number):
        return part(number).assign(y=pd.Series(["a"] * ROWS, dtype=object))

    with dask.config.set({"dataframe.convert-string": False}):
        table = dd.from_map(spoiled, range(2), meta=spoiled(0).iloc[:0])
        with pytest.raises(ColumnTypeError, match="'y'"):
            squeak_dist.fit(table, target="y", features=["b"], client="ray")


@on_two_nodes
def test_what_is_left_of_a_broken_stage_is_cancelled(tmp_path):
    def fail_or_sleep(number):
        if number == 0:
            raise RuntimeError("first")
        (tmp_path / str(number)).touch()
        time.sleep(0.3)
        return part(number)

    slow = dd.from_map(fail_or_sleep, range(40), meta=part(0).iloc[:0])
    with pytest.raises(RuntimeError, match="first"):
        squeak_dist.fit(slow, target="y", features=["b"], client="ray")
    started = len(list(tmp_path.iterdir()))
    time.sleep(1.5)
    assert len(list(tmp_path.iterdir())) <= started + 2
    assert started < 20


@on_two_nodes
def test_memory_is_refused_as_soon_as_the_rows_are_known(monkeypatch):
    small = [{"Alive": True, "NodeManagerAddress": "10.0.0.7",
              "Resources": {"CPU": 2.0, "memory": 20.0 * 2**20}}]  # fmt: skip
    monkeypatch.setattr(ray, "nodes", lambda: small)
    told = []
    with pytest.raises(InsufficientMemoryError, match=r"MiB.*10\.0\.0\.7 has 10 MiB per CPU"):
        fit("direct", progress=lambda *event: told.append(event[0]))
    assert set(told) == {"profile"}


@on_two_nodes
def test_nodes_with_other_versions_are_refused(monkeypatch):
    ours = on_ray._versions() | {"numpy": "1.0"}
    monkeypatch.setattr(on_ray, "_versions", lambda: ours)
    with pytest.raises(VersionMismatchError, match=r"numpy: driver 1\.0, worker 2\."):
        fit("direct")


# --- graphs and nodes -------------------------------------------------------------------------


def test_a_partition_carries_its_own_part_of_the_graph_alone():
    rows = dd.from_map(part, range(2000), meta=part(0).iloc[:0])
    table = read_source(rows, target="y", features=["b"]).tables[1000]
    assert len(cloudpickle.dumps(on_ray.own_graph(table))) < 10_000
    assert len(cloudpickle.dumps(table)) > 100_000


def test_a_lost_node_costs_time_alone(references, assert_same_bits, two_nodes, tmp_path):
    """The encoded partitions that it held are read again from the source. The last test here."""
    cluster, second = two_nodes
    wait_until(both_work)  # the workers that an earlier test killed are started anew in seconds
    before = []

    def nodes_that_read(turn):
        return {path.name.split()[2] for path in tmp_path.glob(f"* {turn} *")}

    def read(number):
        turn = len(list(tmp_path.glob(f"{number} *")))
        node = ray.get_runtime_context().get_node_id()
        (tmp_path / f"{number} {turn} {node}").touch()
        if turn < 2:  # profile, encoding: both nodes get a share, on a busy machine too
            wait_until(lambda: len(nodes_that_read(turn)) == 2)
        return part(number)

    def lose(stage, done, total):
        if stage == "solve" and not before:
            before.extend(path.name for path in tmp_path.iterdir())
            cluster.remove_node(second, allow_graceful=False)

    table = dd.from_map(read, range(PARTITIONS), meta=part(0).iloc[:0])
    case = CASES["everything at once"]
    model = squeak_dist.fit(table, **case, **SETTINGS, client="ray", progress=lose)
    wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    assert_same_bits(model, references["everything at once"])
    assert len(before) == 2 * PARTITIONS  # a profile and an encoding of each
    lost = sum(name.endswith(f" 1 {second.node_id}") for name in before)
    assert len(before) < len(list(tmp_path.iterdir())) <= len(before) + lost
    assert len({record["worker"] for record in model.report_["merges"]}) >= 2
