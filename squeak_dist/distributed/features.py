"""Fits of feature maps on any executor, and lazy features of any collection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dask.base import is_dask_collection
from distributed import Client

from squeak_dist._typing import FloatArray
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.grids import is_data_array, is_dataset
from squeak_dist.distributed.row_outputs import RowOutput, map_rows
from squeak_dist.distributed.sources import Source
from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.progress import Progress
from squeak_dist.stages import (
    FitParameters,
    Stream,
    fit_components,
    fit_components_stream,
    fit_features,
    fit_features_stream,
)


def fit_features_source(
    source: Source,
    parameters: FitParameters,
    *,
    client: Client | None = None,
    progress: Progress | bool | None = None,
) -> FeatureModel:
    """Fit the features of a dictionary to a source on a cluster, or on local threads.

    Parameters
    ----------
    source : Source
        Partitions, without targets.
    parameters : FitParameters
        All parameters.
    client : distributed.Client, optional
        The current client by default.
    progress : callable or bool, optional
        Called with (stage, tasks done, tasks in all); True: a view of its own.

    Raises
    ------
    VersionMismatchError, ClusterError, InsufficientMemoryError
        Before work is submitted.
    DataError
        After the profile, for what only the values show.
    """
    with active_executor(client, progress) as executor:
        return fit_features(
            executor, executor.tables(source), parameters, unnamed_features=source.unnamed_features
        )


def fit_components_source(
    source: Source,
    parameters: FitParameters,
    *,
    n_components: int | None,
    client: Client | None = None,
    progress: Progress | bool | None = None,
) -> ComponentModel:
    """Fit principal components to a source on a cluster, or on local threads.

    Parameters
    ----------
    source, parameters
        As in :func:`fit_features_source`; so are the errors.
    n_components : int or None
        How many; None for all.
    client, progress
        As in :func:`fit_features_source`.
    """
    with active_executor(client, progress) as executor:
        return fit_components(
            executor,
            executor.tables(source),
            parameters,
            n_components=n_components,
            unnamed_features=source.unnamed_features,
        )


def extend_features_source(
    stream: Stream | None,
    source: Source,
    parameters: FitParameters,
    *,
    client: Client | None = None,
    progress: Progress | bool | None = None,
) -> tuple[Stream, FeatureModel]:
    """Pass the partitions of a source through a stream, for the features of its dictionary.

    Parameters
    ----------
    stream : Stream, optional
        So far.
    source, parameters, client, progress
        As in :func:`fit_features_source`; so are the errors.
    """
    with active_executor(client, progress) as executor:
        return fit_features_stream(
            executor,
            stream,
            executor.tables(source),
            parameters,
            unnamed_features=source.unnamed_features,
        )


def extend_components_source(
    stream: Stream | None,
    source: Source,
    parameters: FitParameters,
    *,
    n_components: int | None,
    client: Client | None = None,
    progress: Progress | bool | None = None,
) -> tuple[Stream, ComponentModel]:
    """Pass the partitions of a source through a stream, for the components of all its rows.

    Parameters
    ----------
    stream : Stream, optional
        So far.
    source, parameters, n_components, client, progress
        As in :func:`fit_components_source`; so are the errors.
    """
    with active_executor(client, progress) as executor:
        return fit_components_stream(
            executor,
            stream,
            executor.tables(source),
            parameters,
            n_components=n_components,
            unnamed_features=source.unnamed_features,
        )


def has_own_container(X: Any) -> bool:
    """Say whether features of X are a Dask or xarray collection, as X is."""
    paths = isinstance(X, (str, os.PathLike))
    return paths or is_dask_collection(X) or is_dataset(X) or is_data_array(X)


def transform_collection(model: FeatureModel, X: Any, names: Sequence[str]) -> Any:
    """Return the features of any collection; lazy for lazy input, with its index.

    Parameters
    ----------
    model : FeatureModel
        The model.
    X : collection
        As in :func:`~squeak_dist.distributed.row_outputs.map_rows`; so are the errors.
    names : sequence of str
        What the columns of a frame of features are called.

    Returns
    -------
    Dask DataFrame or array, xarray DataArray, or ndarray
        Of shape (n, n_outputs), in one chunk along the columns; of xarray along a last
        dimension ``feature``. Rows dropped by ``missing="drop"`` are NaN.
    """
    dtype = model.encoding.dtype
    output = RowOutput(tuple(names), False, _features, dtype=dtype, axis="feature")
    return map_rows(model, X, output)


def _features(model: FeatureModel, X: FloatArray) -> FloatArray:
    return model.transform_encoded(X)
