"""Dask frames to partitions, and their alignment with other collections."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import dask.dataframe as dd
from dask.delayed import delayed

from squeak_dist.distributed.alignment import join_by_index
from squeak_dist.distributed.failures import Guarded
from squeak_dist.distributed.schema import (
    WEIGHT,
    WEIGHT_NAME,
    Source,
    Targets,
    check_types,
    frame_schema,
    other_targets,
    own_targets,
)
from squeak_dist.errors import ColumnTypeError, DataError
from squeak_dist.table import cut_table


def dask_frame_source(
    X: Any, y: Any, target: Any, features: Sequence[Hashable] | None, sample_weight: Any
) -> Source:
    """Cut a Dask frame; y and weights are aligned with it by index.

    Parameters are those of :func:`~squeak_dist.distributed.sources.read_source`.

    Raises
    ------
    DataError
        In a task, if a row of X has no row in y or in the weights.

    Notes
    -----
    As in pandas, alignment keeps the rows of X: rows that y alone has are left out.
    """
    others: dict[str, tuple[str, Any]] = {}
    if y is None:
        targets = own_targets(target)
    else:
        columns, targets = _columns_of(y)
        others = {str(k): ("y", c) for k, c in zip(targets.labels, columns, strict=True)}
    weight = sample_weight
    if isinstance(weight, dd.Series):
        weight = WEIGHT
        others[WEIGHT] = (WEIGHT_NAME, sample_weight)
    elif not isinstance(weight, Hashable):
        raise ColumnTypeError(
            f"X is a Dask DataFrame, so sample_weight must be a column name or a Dask Series; got "
            f"{type(sample_weight).__name__}"
        )
    own = list(X.columns)
    schema = frame_schema([*own, *others], own, targets, weight, features)
    dtypes = dict(zip(own, X.dtypes, strict=True))
    dtypes |= {label: column.dtype for label, (_, column) in others.items()}
    check_types(schema, dtypes)
    needed = dict.fromkeys((*schema.features, *schema.targets, *schema.weights))
    frame = select(X, [label for label in needed if label not in others])
    frame = join_by_index(frame, others) if others else frame
    shared = delayed(schema, traverse=False)
    parts = tuple(frame.to_delayed())
    tables = tuple(delayed(Guarded(cut_table))(part, shared) for part in parts)
    return Source(
        tables, schema, targets.single, unnamed_features=False, origins=parts, dtypes=dtypes
    )


def select(X: Any, labels: Iterable[Hashable]) -> Any:
    """Return the columns of a Dask frame; all of them where pandas would not find some.

    Parameters
    ----------
    X : Dask DataFrame
        Has the columns.
    labels : iterable of hashable
        In a list with numbers, None would be looked for as NaN.
    """
    labels = list(labels)
    return X if any(label is None or label != label for label in labels) else X[labels]


def _columns_of(y: Any) -> tuple[list[Any], Targets]:
    if not isinstance(y, (dd.Series, dd.DataFrame)):
        raise ColumnTypeError(
            f"X is a Dask DataFrame, but y is {type(y).__name__}; pass a Dask Series, or put the "
            f"target into X and name it: target=..."
        )
    single = isinstance(y, dd.Series)
    columns = [y] if single else [y[label] for label in y.columns]
    names = ["y" if column.name is None else str(column.name) for column in columns]
    if not columns:
        raise DataError("y has no columns; at least one is needed")
    return columns, other_targets(names, single=single)
