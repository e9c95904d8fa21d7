"""Clusters of worker processes, and the plain loop that all of them are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from squeak_dist.distributed import read_source
from squeak_dist.model import FittedModel
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

ARRAYS = ("points", "indices", "probabilities", "multiplicities", "row_weights")


@contextmanager
def start_cluster(workers: int, **options: Any) -> Iterator[Client]:
    settings = {"threads_per_worker": 1, "dashboard_address": None} | options
    with LocalCluster(n_workers=workers, **settings) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def started() -> Callable[..., Any]:
    """A context manager that starts a cluster: ``with started(2) as client``."""
    return start_cluster


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Client]:
    with start_cluster(2) as client:
        yield client


@pytest.fixture(scope="session")
def plain_fit() -> Callable[..., FittedModel]:
    """The reference: the same partitions in a plain loop, without any scheduler."""

    def fit(
        X: Any,
        y: Any = None,
        *,
        target: Any = None,
        sample_weight: Any = None,
        features: Any = None,
        **settings: Any,
    ) -> FittedModel:
        source = read_source(X, y, target=target, sample_weight=sample_weight, features=features)
        tables = dask.compute(*source.tables, scheduler="sync")
        return fit_tables(
            PlainExecutor(),
            tables,
            source.schema,
            FitParameters(**settings),
            target_names=source.target_names,
            single_output=source.single_output,
            unnamed_features=source.unnamed_features,
        )

    return fit


@pytest.fixture(scope="session")
def assert_same_bits() -> Callable[[Any, FittedModel], None]:
    def check(fitted: Any, reference: FittedModel) -> None:
        model = getattr(fitted, "model_", fitted)
        for name in ARRAYS:
            got, expected = (getattr(m.dictionary, name) for m in (model, reference))
            assert got.dtype == expected.dtype, name
            assert got.tobytes() == expected.tobytes(), name
        assert model.coefficients.tobytes() == reference.coefficients.tobytes()
        assert model.linear_coefficients.tobytes() == reference.linear_coefficients.tobytes()
        assert model.target_mean.tobytes() == reference.target_mean.tobytes()
        assert model.encoding.columns == reference.encoding.columns
        assert model.mu == reference.mu
        assert model.kernel == reference.kernel
        assert model.dictionary.gamma == reference.dictionary.gamma
        for name in ("X", "targets", "weights"):
            got, expected = (getattr(m.sample, name) for m in (model, reference))
            assert got.tobytes() == expected.tobytes(), name
        assert timeless(model.report) == timeless(reference.report)

    return check


VARYING = ("seconds", "worker", "peak_bytes")  # of a node of the merge tree


def timeless(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says of the model: nothing of seconds, memory and places."""
    varying = {"seconds", "cg_seconds", "peak_worker_bytes", "peak_bytes", "merges"}
    nodes = [
        {name: value for name, value in node.items() if name not in VARYING}
        for node in report["merges"]
    ]
    return {name: v for name, v in report.items() if name not in varying} | {"merges": nodes}
