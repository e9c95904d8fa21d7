"""The same bits from every executor, and after a worker is lost."""

from __future__ import annotations

import os
import signal
import threading

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist.distributed import executor as executor_module
from squeak_dist.distributed import read_source
from squeak_dist.errors import ClusterError, InsufficientMemoryError
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

pytestmark = pytest.mark.cluster

PARTITIONS = 20
SETTINGS = {"max_dictionary": 250, "mu": 0.05}


def table(rows: int = 6000) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(rows, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)
    frame = pd.DataFrame(X, columns=list("abcd"))
    return frame.assign(y=y, w=rng.integers(0, 4, size=rows).astype(float))


@pytest.fixture(scope="module")
def collection():
    return dd.from_pandas(table(), npartitions=PARTITIONS, sort=False)


def plain_fit(collection, **settings):
    """The reference: the plain loop over the same partitions, without any scheduler."""
    source = read_source(collection, target="y", sample_weight="w")
    tables = dask.compute(*source.tables, scheduler="sync")
    return fit_tables(
        PlainExecutor(),
        tables,
        source.schema,
        FitParameters(**settings),
        target_names=source.target_names,
        single_output=True,
    )


@pytest.fixture(scope="module")
def references(collection):
    return {
        (solver, dtype): plain_fit(collection, **SETTINGS, solver=solver, dtype=dtype)
        for solver in ("direct", "cg")
        for dtype in ("float32", "float64")
    }


def assert_same_bits(model, reference):
    for name in ("points", "indices", "probabilities", "multiplicities", "row_weights"):
        got, expected = getattr(model.dictionary, name), getattr(reference.dictionary, name)
        assert got.tobytes() == expected.tobytes(), name
    assert model.coefficients.tobytes() == reference.coefficients.tobytes()
    assert model.linear_coefficients.tobytes() == reference.linear_coefficients.tobytes()
    assert (model.mu, model.dictionary.gamma) == (reference.mu, reference.dictionary.gamma)


def fit(collection, **options):
    return squeak_dist.fit(
        collection, target="y", sample_weight="w", **(SETTINGS | options)
    ).model_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_local_schedulers(collection, references, scheduler, solver, dtype):
    with dask.config.set(scheduler=scheduler):
        model = fit(collection, solver=solver, dtype=dtype)
    reference = references[solver, dtype]
    assert reference.report["solver"] == solver
    assert_same_bits(model, reference)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_worker_processes(collection, references, workers):
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for (solver, dtype), reference in references.items():
            model = fit(collection, solver=solver, dtype=dtype, client=client)
            assert_same_bits(model, reference)


def test_worker_threads_in_this_process(collection, references):
    with (
        LocalCluster(processes=False, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        assert_same_bits(fit(collection, solver="cg"), references["cg", "float32"])


def test_partitions_read_again_at_each_pass(collection, references, monkeypatch):
    monkeypatch.setattr(executor_module, "_total_memory", lambda client: 0)
    for solver in ("direct", "cg"):
        assert_same_bits(fit(collection, solver=solver), references[solver, "float32"])


def test_order_of_steps_does_not_matter(collection, references, monkeypatch):
    monkeypatch.setattr("squeak_dist.stages.planning._STEP_ROWS", 1)
    assert_same_bits(fit(collection, solver="cg"), references["cg", "float32"])


@pytest.mark.parametrize("stage", ["dictionary", "solve", "iteration 2"])
def test_a_worker_is_killed(stage):
    frame = table(60_000)
    collection = dd.from_pandas(frame, npartitions=PARTITIONS, sort=False)
    settings = {"max_dictionary": 600, "mu": 0.05}
    solver = "cg" if stage.startswith("iteration") else "direct"
    reference = plain_fit(collection, **settings, solver=solver)
    killed = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())

        def kill(name, done, total):
            if name == stage and done >= min(2, total) and not killed:
                killed.append(done)
                os.kill(pids[0], signal.SIGKILL)

        model = fit(collection, **settings, solver=solver, client=client, progress=kill)
        survivors = list(client.run(os.getpid).values())
    assert killed
    assert pids[0] not in survivors
    assert_same_bits(model, reference)
    assert len(np.unique(model.dictionary.indices)) == len(model.dictionary)


def test_two_fits_at_once(collection, references):
    models = {}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(solver):
            models[solver] = fit(collection, solver=solver, client=client)

        threads = [threading.Thread(target=run, args=(s,)) for s in ("direct", "cg")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for solver, model in models.items():
        assert_same_bits(model, references[solver, "float32"])
    assert len(models) == 2


def fit_inside():
    return fit(dd.from_pandas(table(), npartitions=PARTITIONS, sort=False), solver="cg")


def test_inside_a_task(references):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        model = client.submit(fit_inside).result()
    assert_same_bits(model, references["cg", "float32"])


def test_predictions_stay_on_the_cluster(collection, references, tmp_path):
    model = squeak_dist.fit(collection, target="y", sample_weight="w", **SETTINGS)
    local = model.predict(collection.compute())
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        lazy = model.predict(collection)
        assert isinstance(lazy, dd.Series)
        assert lazy.compute().to_numpy().tobytes() == local.tobytes()
        model.save_dual_weights(tmp_path / "dual.zarr", collection, sample_weight="w")
    from squeak_dist.store import load_dual_weights

    frame = collection.compute()
    expected = frame["w"] * (frame["y"] - local) / model.mu_
    stored = load_dual_weights(tmp_path / "dual.zarr")[:, 0]
    np.testing.assert_allclose(stored, expected, rtol=1e-9, atol=1e-12)


def test_memory_is_refused_before_the_dictionary_stage(collection):
    stages = []
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="600MB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        pytest.raises(InsufficientMemoryError, match=r"MiB.*max_dictionary"),
    ):
        fit(
            collection, max_dictionary=6000, client=client,
            progress=lambda stage, done, total: stages.append(stage),
        )  # fmt: skip
    assert set(stages) == {"profile"}


def test_clients_that_cannot_serve(collection, monkeypatch):
    monkeypatch.setattr(executor_module, "_WORKER_TIMEOUT", 0.2)
    with pytest.raises(ClusterError, match=r"distributed\.Client"):
        fit(collection, client="tcp://127.0.0.1:1")
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        Client(cluster) as client,
        pytest.raises(ClusterError, match="no workers"),
    ):
        fit(collection, client=client)
    with pytest.raises(ClusterError, match="closed"):
        fit(collection, client=client)


def test_an_asynchronous_client_is_refused(collection):
    import asyncio

    async def run():
        async with Client(processes=False, asynchronous=True, dashboard_address=None) as client:
            with pytest.raises(ClusterError, match="asynchronous"):
                fit(collection, client=client)

    asyncio.run(run())


def test_the_graph_of_many_partitions_is_small():
    import cloudpickle

    rows = dd.from_map(_tiny, range(2000), meta=_tiny(0))
    source = read_source(rows, target="y")
    assert len(cloudpickle.dumps(source.tables)) < 10e6


def _tiny(part):
    return pd.DataFrame({"a": [float(part), 1.0], "y": [0.0, float(part)]})
