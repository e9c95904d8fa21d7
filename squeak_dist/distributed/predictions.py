"""Predictions and dual weights of any collection, lazy where the input is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Client

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.reading import Reading
from squeak_dist.distributed.row_outputs import RowOutput, map_rows
from squeak_dist.distributed.sources import Source
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
    X : collection
        As in :func:`~squeak_dist.distributed.row_outputs.map_rows`; so are the errors.

    Returns
    -------
    Dask Series or DataFrame, Dask array, xarray DataArray or Dataset, or ndarray
        Of shape (n,) for a one-dimensional target, else (n, n_outputs). Rows dropped by
        ``missing="drop"`` are predicted as NaN.
    """
    output = RowOutput(model.target_names, model.single_output, FittedModel.predict_encoded)
    return map_rows(model, X, output)


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
    _check_partitions(model, source)
    writer = create_dual_weights(
        path,
        rows=sum(model.report["partition_rows"]),
        outputs=len(model.target_names),
        chunk_rows=_DUAL_CHUNK_ROWS,
        attributes={"mu": model.mu, "target_names": list(model.target_names)},
        storage_options=storage_options,
    )
    with active_executor(client) as executor:
        weights = _dual_weights(model, executor.tables(source))
        chunks = weights.rechunk((_DUAL_CHUNK_ROWS, -1))
        starts = np.cumsum((0, *chunks.chunks[0][:-1]))
        shared = executor.share(writer)
        writes = [
            executor.call(_write_chunk, shared, int(start), block)
            for start, block in zip(starts, chunks.to_delayed().ravel(), strict=True)
        ]
        executor.gather("dual weights", executor.call(len, writes))
    finish_dual_weights(path, storage_options)


def _write_chunk(writer: DualWeightsWriter, start: int, block: Float64Array) -> None:
    writer[start : start + len(block)] = block


def _check_partitions(model: FittedModel, source: Source) -> None:
    rows = model.report["partition_rows"]
    if len(rows) != len(source.tables):
        raise DataError(
            f"the model was fitted to {len(rows)} partitions, but the table has "
            f"{len(source.tables)}; dual weights are those of the rows fitted"
        )


def _dual_weights(model: FittedModel, tables: Sequence[Any]) -> Any:
    """Return w̃ of every row as a lazy Dask array (n, k), cut like the partitions."""
    shared = delayed(model.for_predictions(), traverse=False)
    outputs, block = len(model.target_names), delayed(Reading(_dual_block))
    blocks = [
        da.from_delayed(block(shared, table, n), (n, outputs), np.float64)
        for table, n in zip(tables, model.report["partition_rows"], strict=True)
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
