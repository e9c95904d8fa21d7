"""Dask arrays to partitions."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.delayed import delayed

from squeak_dist.distributed.failures import Guarded
from squeak_dist.distributed.memory import rows_frame
from squeak_dist.distributed.rows import as_rows, refuse_sparse, target_columns
from squeak_dist.distributed.schema import (
    WEIGHT_NAME,
    Source,
    array_schema,
    check_types,
    other_targets,
    output_names,
)
from squeak_dist.errors import ColumnTypeError, DataError, LengthMismatchError
from squeak_dist.table import Table, TableSchema, cut_table


def array_source(X: Any, y: Any, sample_weight: Any) -> Source:
    """Cut a Dask array into its blocks of rows.

    Parameters
    ----------
    X : Dask array of shape (n, d)
        Its chunks may be of unknown length.
    y, sample_weight : Dask or numpy array, or Dask Series
        One value per row of X, or one row of values.
    """
    if X.ndim != 2:
        raise DataError(
            f"X must be a 2D array of shape (n, d), got {X.ndim}D with shape {X.shape}"
        )
    X = X.rechunk({1: -1})
    y = _aligned("y", y, X)
    if y.ndim not in (1, 2):
        raise DataError(f"y must be of shape (n,) or (n, outputs), got {y.ndim}D")
    single = y.ndim == 1
    if not single:
        y = y.rechunk({1: -1})
    targets = other_targets(
        output_names(1 if single else int(y.shape[1]), single=single), single=single
    )
    arrays, weighted = [X, y], sample_weight is not None
    schema = array_schema(int(X.shape[1]), targets, weighted=weighted)
    dtypes = dict.fromkeys(schema.features, np.dtype(np.float64))  # as_rows checks those of X
    dtypes |= dict.fromkeys(schema.targets, y.dtype)
    if weighted:
        weights = _aligned(WEIGHT_NAME, sample_weight, X)
        arrays.append(weights)
        dtypes[schema.weight] = weights.dtype
    check_types(schema, dtypes)
    blocks = list(zip(*(array.to_delayed().ravel() for array in arrays), strict=True))
    shared = delayed(schema, traverse=False)
    tables = tuple(delayed(Guarded(_cut_block))(shared, *block) for block in blocks)
    return Source(tables, schema, single, unnamed_features=True, origins=blocks, dtypes=dtypes)


def _cut_block(schema: TableSchema, X: Any, y: Any, weights: Any = None) -> Table:
    X = as_rows(X)
    for name, values in (("y", y), (WEIGHT_NAME, weights)):
        if values is not None and len(values) != len(X):
            raise LengthMismatchError(
                f"a chunk of X has {len(X):,} rows, but its chunk of {name} has {len(values):,}; "
                f"cut both alike, e.g. from lengths that are known: X.compute_chunk_sizes(), or "
                f"to_dask_array(lengths=True)"
            )
    columns, _ = target_columns(y, len(X))
    return cut_table(rows_frame(X, columns, weights, schema), schema)


def _aligned(name: str, values: Any, X: Any) -> Any:
    """Return an array of one value per row of X, cut where X is cut."""
    values = _as_dask_array(name, values, X)
    known = not (np.isnan(X.shape[0]) or np.isnan(values.shape[0]))
    if known and values.shape[0] != X.shape[0]:
        raise LengthMismatchError(
            f"X has {X.shape[0]:,} rows, but {name} has {values.shape[0]:,}; they must be equal"
        )
    if known:
        return values.rechunk({0: X.chunks[0]})
    if values.numblocks[0] != X.numblocks[0]:
        raise LengthMismatchError(
            f"X has {X.numblocks[0]} chunks of unknown length, but {name} has "
            f"{values.numblocks[0]}; cut both alike, or call compute_chunk_sizes() on both"
        )
    return values


def _as_dask_array(name: str, values: Any, X: Any) -> Any:
    refuse_sparse(name, values)
    if isinstance(values, (dd.Series, dd.DataFrame)):
        return values.to_dask_array()
    array = values if isinstance(values, da.Array) else np.asarray(values)
    if array.ndim == 0:
        raise LengthMismatchError(
            f"X is a Dask array, but {name} has a scalar ({type(values).__name__}); it must be an "
            f"array of one value per row"
        )
    if isinstance(array, da.Array):
        return array
    if np.isnan(X.shape[0]):
        raise ColumnTypeError(
            f"X is a Dask array of unknown length, but {name} is {type(values).__name__}; pass a "
            f"Dask array cut like X, or call X.compute_chunk_sizes() first"
        )
    return da.from_array(array, chunks=-1)
