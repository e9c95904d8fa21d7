"""Predictions and dual weights of any collection, lazy where the input is."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import delayed
from distributed import Client

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.frames import select
from squeak_dist.distributed.grids import (
    as_dataset,
    data_array,
    is_data_array,
    is_dataset,
    make_grid,
    names_of,
    on_grid,
)
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.sources import Source, check_collection, opened
from squeak_dist.errors import DataError, LengthMismatchError
from squeak_dist.feature_model import FeatureModel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.store import DualWeightsWriter, create_dual_weights, finish_dual_weights
from squeak_dist.table import Table

_DUAL_CHUNK_ROWS = 262_144
_BLOCK_ROWS = 262_144


@dataclass(frozen=True)
class RowOutput:
    """What is computed of each row.

    Parameters
    ----------
    names : tuple of str
        Of the columns.
    single : bool
        Whether it is one-dimensional.
    compute : callable
        Makes of (model, encoded rows) an ndarray of float64, shape (n, columns).
    whole_model : bool
        Whether that needs the posterior, which is large.
    """

    names: tuple[str, ...]
    single: bool
    compute: Callable[[FittedModel, FloatArray], Float64Array]
    whole_model: bool = False

    def model_for(self, model: FittedModel) -> FittedModel:
        """Return what of the model a task needs."""
        return model if self.whole_model else model.for_predictions()


def predict_collection(model: FittedModel, X: Any) -> Any:
    """Predict any collection; lazy for lazy input, with its index.

    Parameters
    ----------
    model : FittedModel
        The model.
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        And whatever :func:`~squeak_dist.distributed.sources.read_source` takes. Columns of a
        frame are matched by name, those of an array by position.

    Returns
    -------
    Dask Series or DataFrame, Dask array, xarray DataArray or Dataset, or ndarray
        Of shape (n,) for a one-dimensional target, else (n, n_outputs); of xarray, on
        the grid of the variables that are used. Rows dropped by ``missing="drop"`` are
        predicted as NaN.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    return map_rows(model, X, _predictions(model))


def deviation_collection(model: FittedModel, X: Any) -> Any:
    """Return the standard deviation of a new target at the rows of any collection.

    Parameters and result are those of :func:`predict_collection`; columns are named
    ``<target>_std``.
    """
    names = tuple(f"{name}_std" for name in model.target_names)
    output = RowOutput(names, model.single_output, FittedModel.deviation_encoded, True)
    return map_rows(model, X, output)


def novelty_collection(model: FittedModel, X: Any) -> Any:
    """Return r(x), what the dictionary does not explain of the rows of any collection.

    Parameters and result are those of :func:`predict_collection`, always of one column.
    """
    return map_rows(model, X, RowOutput(("novelty",), True, _novelty))


def _novelty(model: FittedModel, X: FloatArray) -> Float64Array:
    return model.residual_encoded(X)[:, None]


def _predictions(model: FittedModel) -> RowOutput:
    return RowOutput(model.target_names, model.single_output, FittedModel.predict_encoded)


def map_rows(model: FittedModel, X: Any, output: RowOutput) -> Any:
    """Compute something of each row of any collection; lazy for lazy input.

    Parameters
    ----------
    model : FittedModel
        The model.
    X : collection
        As in :func:`predict_collection`.
    output : RowOutput
        What.
    """
    X = opened(X)
    check_collection(X)
    if is_data_array(X):
        if model.unnamed_features:
            return _map_data_array(model, X, output)
        X = as_dataset(X)
    if is_dataset(X):
        return _map_dataset(model, X, output)
    if model.unnamed_features:
        X = _as_array(model, X)
    _check_columns(model, X)
    if isinstance(X, dd.DataFrame):
        shared = delayed(output.model_for(model), traverse=False)
        meta = (output.names[0], "f8") if output.single else dict.fromkeys(output.names, "f8")
        used = select(X, model.encoding.used_labels)
        return used.map_partitions(frame_output, shared, output, meta=meta)
    if isinstance(X, da.Array):
        return _map_dask_array(model, X, output)
    return rows_output(X if isinstance(X, pd.DataFrame) else as_rows(X), model, output)


def _map_data_array(model: FittedModel, X: Any, output: RowOutput) -> Any:
    """Map rows of a DataArray of shape (n, d): its first dimension stays."""
    values = map_rows(model, X.data, output)
    name = output.names[0] if output.single else None
    dims = X.dims[:1] if values.ndim == 1 else (*X.dims[:1], "output")
    return data_array(X, values, dims, name)


def _map_dataset(model: FittedModel, X: Any, output: RowOutput) -> Any:
    """Map the points of a Dataset: a DataArray, or a Dataset of one per column."""
    _check_columns(model, X)
    grid = make_grid(X, model.encoding.used_labels)
    small = output.model_for(model)
    compute = delayed(rows_output) if grid.lazy else rows_output
    shared = delayed(small, traverse=False) if grid.lazy else small
    blocks = [compute(frame, shared, output) for frame in grid.frames()]
    values = on_grid(grid, blocks, len(output.names))
    arrays = [
        data_array(X, value, grid.dims, name)
        for name, value in zip(output.names, values, strict=True)
    ]
    if output.single:
        return arrays[0]
    return X.drop_vars(list(X.data_vars)).assign(dict(zip(output.names, arrays, strict=True)))


def as_fitted(model: FittedModel | FeatureModel, X: Any) -> Any:
    """Return X as an array where the fit saw an array, and as a table where it saw names.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    X = opened(X)
    check_collection(X)
    if is_data_array(X):
        X = X.data if model.unnamed_features else as_dataset(X)
    X = _as_array(model, X) if model.unnamed_features else _as_table(model, X)
    _check_columns(model, X)
    return X


def target_labels(model: FittedModel, X: Any) -> list[Hashable]:
    """Return the columns of a table that are the targets of the fit, found by their text.

    Parameters
    ----------
    model : FittedModel
        Knows what the targets are called, as text.
    X : Dask or pandas DataFrame, xarray Dataset, or array
        The table; of an array the names are returned.
    """
    labels = names_of(X) if is_dataset(X) else list(getattr(X, "columns", ()))
    by_text = {str(label): label for label in labels} | {
        label: label for label in labels if isinstance(label, str)
    }
    return [by_text.get(name, name) for name in model.target_names]


def _as_array(model: FittedModel | FeatureModel, X: Any) -> Any:
    if isinstance(X, dd.DataFrame):
        return X.to_dask_array()
    X = X.to_numpy() if isinstance(X, pd.DataFrame) else X
    return _of_right_width(model, X if isinstance(X, da.Array) else as_rows(X))


def _as_table(model: FittedModel | FeatureModel, X: Any) -> Any:
    labels = list(model.encoding.labels)
    if isinstance(X, (dd.DataFrame, pd.DataFrame)) or is_dataset(X):
        return X
    if isinstance(X, da.Array):
        return dd.from_dask_array(_of_right_width(model, X), columns=labels)
    return pd.DataFrame(_of_right_width(model, as_rows(X)), columns=labels)


def _check_columns(model: FittedModel | FeatureModel, X: Any) -> None:
    if is_dataset(X):
        dtypes = {name: X[name].dtype for name in names_of(X)}
        model.encoding.check_columns(list(dtypes), dtypes)
    elif isinstance(X, (dd.DataFrame, pd.DataFrame)):
        model.encoding.check_columns(list(X.columns), dict(zip(X.columns, X.dtypes, strict=True)))


def _of_right_width(model: FittedModel | FeatureModel, X: Any) -> Any:
    """Return X if it has as many columns as the fit saw; the words are scikit-learn's."""
    expected = len(model.encoding.labels)
    if X.ndim != 2 or X.shape[1] != expected:
        got = X.shape[1] if X.ndim == 2 else "no"
        raise DataError(
            f"X has {got} features, but {model.estimator_name} is expecting {expected} features "
            f"as input"
        )
    return X


def predict_rows(model: FittedModel, X: pd.DataFrame | np.ndarray[Any, Any]) -> Float64Array:
    """Predict rows in memory: encode, then k_D(x)ᵀ c; shape (n,) or (n, n_outputs)."""
    return rows_output(X, model, _predictions(model))


def rows_output(
    X: pd.DataFrame | np.ndarray[Any, Any], model: FittedModel, output: RowOutput
) -> Float64Array:
    """Compute something of rows in memory; NaN in rows that the missing policy drops."""
    values = np.full((len(X), len(output.names)), np.nan)
    # The encoded rows of a file do not fit at once.
    for start in range(0, max(1, len(X)), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        part = X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
        encoded, kept = model.encoding.encode(part)
        with single_blas_thread():
            values[rows][kept] = output.compute(model, encoded)
    return values[:, 0] if output.single else values


def predict_frame(frame: pd.DataFrame, model: FittedModel) -> pd.Series[Any] | pd.DataFrame:
    """Predict one partition and keep its index."""
    return frame_output(frame, model, _predictions(model))


def frame_output(
    frame: pd.DataFrame, model: FittedModel, output: RowOutput
) -> pd.Series[Any] | pd.DataFrame:
    """Compute something of one partition and keep its index."""
    values = rows_output(frame, model, output)
    if output.single:
        return pd.Series(values, index=frame.index, name=output.names[0])
    return pd.DataFrame(values, index=frame.index, columns=list(output.names))


def _map_dask_array(model: FittedModel, X: Any, output: RowOutput) -> Any:
    X = _of_right_width(model, X).rechunk({1: -1})
    shared = delayed(output.model_for(model), traverse=False)
    # Not "output": that is the name of a parameter of Dask's own.
    settings = {"model": shared, "row_output": output, "dtype": np.float64}
    if output.single:
        return da.map_blocks(_block_output, X, drop_axis=1, **settings)
    chunks = (X.chunks[0], (len(output.names),))
    return da.map_blocks(_block_output, X, chunks=chunks, **settings)


def _block_output(
    X: np.ndarray[Any, Any], model: FittedModel, row_output: RowOutput
) -> Float64Array:
    return rows_output(as_rows(X), model, row_output)


def write_dual_weights(
    model: FittedModel,
    source: Source,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | str | None = None,
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
    client : distributed.Client or "ray", optional
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
    with active_executor(client) as executor:
        shared = executor.share(writer)
        writes = [
            executor.call(_write_chunk, shared, int(start), block)
            for start, block in zip(starts, chunks.to_delayed().ravel(), strict=True)
        ]
        executor.gather("dual weights", executor.call(len, writes))
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
