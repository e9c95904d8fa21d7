"""Clients and clusters that cannot do the work, and what a fit asks of a cluster."""

from __future__ import annotations

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


def test_order_of_steps_does_not_matter(collection, references, monkeypatch):
    monkeypatch.setattr("squeak_dist.stages.planning._STEP_ROWS", 1)
    assert_same_bits(fit(collection, solver="cg"), references["cg", "float32"])


def test_memory_is_refused_as_soon_as_the_rows_are_known(collection):
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
