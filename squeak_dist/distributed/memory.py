"""Pandas frames and numpy arrays to partitions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
from dask.delayed import delayed

from squeak_dist.distributed.failures import Guarded
from squeak_dist.distributed.rows import as_rows, row_weights, target_columns
from squeak_dist.distributed.schema import (
    WEIGHT,
    Source,
    Targets,
    array_schema,
    check_types,
    frame_schema,
    own_targets,
)
from squeak_dist.table import TableSchema, cut_table

_PARTITION_ROWS = 65_536


def frame_source(
    X: pd.DataFrame,
    y: Any,
    target: Any,
    features: Sequence[Hashable] | None,
    sample_weight: Any,
) -> Source:
    """Cut a pandas frame; y and weights belong to its rows by position.

    Parameters are those of :func:`~squeak_dist.distributed.sources.read_source`.
    """
    others: dict[Hashable, Any] = {}
    if y is None:
        targets = own_targets(target)
    else:
        columns, targets = target_columns(y, len(X))
        others = dict(zip(targets.labels, columns, strict=True))
    weight = sample_weight
    if weight is not None and (not isinstance(weight, Hashable) or isinstance(weight, pd.Series)):
        weight = WEIGHT
        others[weight] = row_weights(sample_weight, len(X))
    frame = pd.concat([X, pd.DataFrame(others, index=X.index)], axis=1) if others else X
    schema = frame_schema(list(frame.columns), list(X.columns), targets, weight, features)
    return _sliced_source(frame, schema, targets, unnamed_features=False)


def rows_source(X: Any, y: Any, sample_weight: Any) -> Source:
    """Cut arrays in memory.

    Parameters are those of :func:`~squeak_dist.distributed.sources.read_source`.
    """
    X = as_rows(X)
    columns, targets = target_columns(y, len(X))
    schema = array_schema(X.shape[1], targets, weighted=sample_weight is not None)
    frame = rows_frame(X, columns, sample_weight, schema)
    return _sliced_source(frame, schema, targets, unnamed_features=True)


def rows_frame(X: Any, columns: Sequence[Any], weights: Any, schema: TableSchema) -> pd.DataFrame:
    """Return arrays as the frame that a schema cuts.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features.
    columns : sequence of arrays of shape (n,)
        Targets.
    weights : array of shape (n,) or None
        Sample weights.
    schema : TableSchema
        Labels for all of them.
    """
    others = dict(zip(schema.targets, columns, strict=True))
    if weights is not None:
        others[schema.weight] = row_weights(weights, len(X))
    frame = pd.DataFrame(X, columns=list(schema.features), copy=False)
    return pd.concat([frame, pd.DataFrame(others)], axis=1)


def _sliced_source(
    frame: pd.DataFrame, schema: TableSchema, targets: Targets, *, unnamed_features: bool
) -> Source:
    dtypes: dict[Hashable, Any] = dict(zip(frame.columns, frame.dtypes, strict=True))
    check_types(schema, dtypes)
    shared = delayed(schema, traverse=False)
    starts = range(0, max(len(frame), 1), _PARTITION_ROWS)
    slices = [frame.iloc[start : start + _PARTITION_ROWS] for start in starts]
    tables = tuple(
        delayed(Guarded(cut_table))(delayed(part, traverse=False), shared) for part in slices
    )
    nbytes = int(frame.memory_usage(index=False).sum())
    return Source(tables, schema, targets.single, unnamed_features, slices, dtypes, nbytes)
