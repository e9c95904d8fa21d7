"""Fits of feature maps on any executor, and lazy features of any collection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed
from distributed import Client

from squeak_dist._typing import FloatArray
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.grids import is_dataset
from squeak_dist.distributed.predictions import as_fitted
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.sources import DATASET_HAS_NO_FEATURES, Source
from squeak_dist.errors import ColumnTypeError
from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.progress import Progress
from squeak_dist.stages import FitParameters, fit_components, fit_features


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
            executor, source.tables, parameters, unnamed_features=source.unnamed_features
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
            source.tables,
            parameters,
            n_components=n_components,
            unnamed_features=source.unnamed_features,
        )


def is_lazy(X: Any) -> bool:
    """Say whether features of X are a Dask collection."""
    return isinstance(X, (str, os.PathLike)) or is_dask_collection(X)


def transform_collection(model: FeatureModel, X: Any, names: Sequence[str]) -> Any:
    """Return the features of any collection; lazy for lazy input, with its index.

    Parameters
    ----------
    model : FeatureModel
        The model.
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        Columns of a frame are matched by name, those of an array by position.
    names : sequence of str
        What the columns of a frame of features are called.

    Returns
    -------
    Dask DataFrame, Dask array, or ndarray
        Of shape (n, n_outputs), in one chunk along the columns. Rows dropped by
        ``missing="drop"`` are NaN.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    if is_dataset(X):
        raise ColumnTypeError(DATASET_HAS_NO_FEATURES)
    X = as_fitted(model, X)
    if isinstance(X, dd.DataFrame):
        labels = list(model.encoding.used_labels)
        meta = dict.fromkeys(names, model.encoding.dtype)
        shared = delayed(model, traverse=False)
        return X[labels].map_partitions(_transform_frame, shared, list(names), meta=meta)
    if not isinstance(X, da.Array):
        return transform_rows(model, X)
    X = X.rechunk({1: -1})
    return da.map_blocks(
        _transform_block,
        X,
        model=delayed(model, traverse=False),
        chunks=(X.chunks[0], (model.n_outputs,)),
        dtype=model.encoding.dtype,
        meta=np.empty((0, 0), model.encoding.dtype),
    )


def transform_rows(model: FeatureModel, X: pd.DataFrame | np.ndarray[Any, Any]) -> FloatArray:
    """Return the features of rows in memory, shape (n, n_outputs)."""
    encoded, kept = model.encoding.encode(X)
    with single_blas_thread():
        features = model.transform_encoded(encoded)
    if len(features) == len(kept):
        return features
    spread = np.full((len(kept), model.n_outputs), np.nan, features.dtype)
    spread[kept] = features
    return spread


def _transform_frame(frame: pd.DataFrame, model: FeatureModel, names: list[str]) -> pd.DataFrame:
    return pd.DataFrame(transform_rows(model, frame), index=frame.index, columns=names)


def _transform_block(X: np.ndarray[Any, Any], model: FeatureModel) -> FloatArray:
    return transform_rows(model, as_rows(X))
