"""Predictions and dual weights of any collection, lazy where the input is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import delayed
from distributed import Client

from squeak_dist._typing import Float64Array
from squeak_dist.distributed.executor import compute
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.sources import Source, check_collection, read_parquet
from squeak_dist.errors import DataError, LengthMismatchError
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.store import DualWeightsWriter, create_dual_weights, finish_dual_weights
from squeak_dist.table import Table

_DUAL_CHUNK_ROWS = 262_144


def predict_collection(model: FittedModel, X: Any) -> Any:
    """Predict any collection; lazy for lazy input, with its index.

    Parameters
    ----------
    model : FittedModel
        The model.
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        Columns of a frame are matched by name, those of an array by position.

    Returns
    -------
    Dask Series or DataFrame, Dask array, or ndarray
        Of shape (n,) for a one-dimensional target, else (n, n_outputs). Rows
        dropped by ``missing="drop"`` are predicted as NaN.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    X = _opened(X)
    if model.unnamed_features:
        X = _as_array(model, X)
    _check_frame(model, X)
    if isinstance(X, dd.DataFrame):
        shared = delayed(model, traverse=False)
        columns = list(dict.fromkeys(model.encoding.labels))
        return X[columns].map_partitions(predict_frame, shared, meta=_prediction_meta(model))
    if isinstance(X, da.Array):
        return _predict_dask_array(model, X)
    return predict_rows(model, X if isinstance(X, pd.DataFrame) else as_rows(X))


def as_fitted(model: FittedModel, X: Any) -> Any:
    """Return X as an array where the fit saw an array, and as a frame where it saw names.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    X = _opened(X)
    X = _as_array(model, X) if model.unnamed_features else _as_frame(model, X)
    _check_frame(model, X)
    return X


def _opened(X: Any) -> Any:
    """Return a collection, read where X is a path."""
    if isinstance(X, (str, os.PathLike)):
        X = read_parquet(X)
    check_collection(X)
    return X


def _as_array(model: FittedModel, X: Any) -> Any:
    if isinstance(X, dd.DataFrame):
        return X.to_dask_array()
    X = X.to_numpy() if isinstance(X, pd.DataFrame) else X
    return X if isinstance(X, da.Array) else _of_right_width(model, as_rows(X))


def _as_frame(model: FittedModel, X: Any) -> Any:
    labels = list(model.encoding.labels)
    if isinstance(X, (dd.DataFrame, pd.DataFrame)):
        return X
    if isinstance(X, da.Array):
        return dd.from_dask_array(_of_right_width(model, X), columns=labels)
    return pd.DataFrame(_of_right_width(model, as_rows(X)), columns=labels)


def _check_frame(model: FittedModel, X: Any) -> None:
    if isinstance(X, (dd.DataFrame, pd.DataFrame)):
        model.encoding.check_columns(list(X.columns), dict(zip(X.columns, X.dtypes, strict=True)))


def _of_right_width(model: FittedModel, X: Any) -> Any:
    """Return X if it has as many columns as the fit saw; the words are scikit-learn's."""
    expected = len(model.encoding.labels)
    if X.ndim != 2 or X.shape[1] != expected:
        got = X.shape[1] if X.ndim == 2 else "no"
        face = "SqueakRegressor" if model.classes is None else "SqueakClassifier"
        raise DataError(
            f"X has {got} features, but {face} is expecting {expected} features as input"
        )
    return X


def predict_rows(model: FittedModel, X: pd.DataFrame | np.ndarray[Any, Any]) -> Float64Array:
    """Predict rows in memory: encode, then k_D(x)ᵀ c; shape (n,) or (n, n_outputs)."""
    encoded, kept = model.encoding.encode(X)
    predictions = np.full((len(X), len(model.target_names)), np.nan)
    with single_blas_thread():
        predictions[kept] = model.predict_encoded(encoded)
    return predictions[:, 0] if model.single_output else predictions


def predict_frame(frame: pd.DataFrame, model: FittedModel) -> pd.Series[Any] | pd.DataFrame:
    """Predict one partition and keep its index."""
    values = predict_rows(model, frame)
    if model.single_output:
        return pd.Series(values, index=frame.index, name=model.target_names[0])
    return pd.DataFrame(values, index=frame.index, columns=list(model.target_names))


def _prediction_meta(model: FittedModel) -> Any:
    if model.single_output:
        return (model.target_names[0], "f8")
    return dict.fromkeys(model.target_names, "f8")


def _predict_dask_array(model: FittedModel, X: Any) -> Any:
    X = _of_right_width(model, X).rechunk({1: -1})
    shared = delayed(model, traverse=False)
    if model.single_output:
        return da.map_blocks(_predict_block, X, model=shared, drop_axis=1, dtype=np.float64)
    chunks = (X.chunks[0], (len(model.target_names),))
    return da.map_blocks(_predict_block, X, model=shared, chunks=chunks, dtype=np.float64)


def _predict_block(X: np.ndarray[Any, Any], model: FittedModel) -> Float64Array:
    return predict_rows(model, as_rows(X))


def write_dual_weights(
    model: FittedModel,
    source: Source,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> None:
    """Let the workers write w̃ = (y − f(x))/μ of every training row, chunk by chunk.

    Parameters
    ----------
    model : FittedModel
        The model.
    source : Source
        The partitions that it was fitted to.
    path : str or path
        A store of its own, which all workers reach.
    storage_options : mapping, optional
        Passed to fsspec.
    client : distributed.Client, optional
        The current client by default.

    Raises
    ------
    DataError, LengthMismatchError
        If the partitions are not those of the fit.
    StoreError
        If it cannot be written; it is then left marked as incomplete.

    Notes
    -----
    Partitions are cut anew at the borders of chunks, so that each chunk has one
    writer. Rows that the missing policy drops have weight 0.
    """
    weights = _dual_weights(model, source)
    chunks = weights.rechunk((_DUAL_CHUNK_ROWS, -1))
    writer = create_dual_weights(
        path,
        rows=weights.shape[0],
        outputs=weights.shape[1],
        chunk_rows=_DUAL_CHUNK_ROWS,
        attributes={"mu": model.mu, "target_names": list(model.target_names)},
        storage_options=storage_options,
    )
    starts = np.cumsum((0, *chunks.chunks[0][:-1]))
    shared = delayed(writer, traverse=False)
    writes = [
        delayed(_write_chunk)(shared, int(start), block)
        for start, block in zip(starts, chunks.to_delayed().ravel(), strict=True)
    ]
    compute(delayed(len)(writes), client)
    finish_dual_weights(path, storage_options)


def _write_chunk(writer: DualWeightsWriter, start: int, block: Float64Array) -> None:
    writer[start : start + len(block)] = block


def _dual_weights(model: FittedModel, source: Source) -> Any:
    """Return w̃ of every row as a lazy Dask array (n, k), cut like the partitions."""
    rows = model.report["partition_rows"]
    if len(rows) != len(source.tables):
        raise DataError(
            f"the model was fitted to {len(rows)} partitions, but the table has "
            f"{len(source.tables)}; dual weights are those of the rows fitted"
        )
    shared = delayed(model.for_predictions(), traverse=False)
    outputs = len(model.target_names)
    blocks = [
        da.from_delayed(delayed(_dual_block)(shared, table, n), (n, outputs), np.float64)
        for table, n in zip(source.tables, rows, strict=True)
        if n
    ]
    return da.concatenate(blocks)


def _dual_block(model: FittedModel, table: Table, rows: int) -> Float64Array:
    if len(table.targets) != rows:
        raise LengthMismatchError(
            f"a partition has {len(table.targets):,} rows, but had {rows:,} in the fit; dual "
            f"weights are those of the rows fitted"
        )
    X, kept = model.encoding.encode(table.features)
    with single_blas_thread():
        residuals = table.targets[kept] - model.predict_encoded(X)
    row_weights = 1.0 if table.weights is None else table.weights[kept][:, None]
    weights = np.zeros(table.targets.shape)
    weights[kept] = np.nan_to_num(residuals * row_weights) / model.mu
    return weights
