"""Dask frames to partitions, and their alignment with other collections."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.delayed import delayed

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
from squeak_dist.table import Table, TableSchema, cut_table

# Columns that are True in the rows of a collection, and missing where it has no such row.
_IN_X, _IN_Y, _IN_WEIGHT = "__in_x__", "__in_y__", "__in_weight__"


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
    others: dict[str, Any] = {}
    partners: dict[str, str] = {}
    if y is None:
        targets = own_targets(target)
    else:
        columns, targets = _columns_of(y)
        others = dict(zip(map(str, targets.labels), columns, strict=True))
        others[_IN_Y], partners[_IN_Y] = _marks(columns[0]), "y"
    weight = sample_weight
    if isinstance(weight, dd.Series):
        weight = WEIGHT
        others |= {WEIGHT: sample_weight, _IN_WEIGHT: _marks(sample_weight)}
        partners[_IN_WEIGHT] = WEIGHT_NAME
    elif not isinstance(weight, Hashable):
        raise ColumnTypeError(
            f"X is a Dask DataFrame, so sample_weight must be a column name or a Dask Series; got "
            f"{type(sample_weight).__name__}"
        )
    frame = _joined(X, others)
    schema = frame_schema(list(frame.columns), list(X.columns), targets, weight, features)
    dtypes = dict(zip(frame.columns, frame.dtypes, strict=True))
    check_types(schema, dtypes)
    parts = _parts(frame, schema, partners)
    shared = delayed(schema, traverse=False)
    tables = tuple(delayed(_cut_aligned)(part, shared, dict(partners)) for part in parts)
    return Source(
        tables, schema, targets.single, unnamed_features=False, origins=parts, dtypes=dtypes
    )


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


def _marks(column: Any) -> Any:
    return column.isnull() | True


def _joined(X: Any, others: Mapping[str, Any]) -> Any:
    if not others:
        return X
    try:
        return X.assign(**{_IN_X: True, **others})
    except (TypeError, ValueError, AssertionError) as error:
        raise _unalignable(error) from error


def _parts(frame: Any, schema: TableSchema, partners: Mapping[str, str]) -> tuple[Any, ...]:
    weight = () if schema.weight is None else (schema.weight,)
    marks = (_IN_X, *partners) if partners else ()
    needed = list(dict.fromkeys((*schema.features, *schema.targets, *weight, *marks)))
    try:
        return tuple(frame[needed].to_delayed())
    except (TypeError, ValueError, AssertionError) as error:
        if not partners:
            raise
        raise _unalignable(error) from error


def _unalignable(error: Exception) -> DataError:
    return DataError(
        f"X and y (or sample_weight) cannot be aligned by index ({error}); put the target and the "
        f"weights into X and name them: target=..., sample_weight=..."
    )


def _cut_aligned(frame: pd.DataFrame, schema: TableSchema, partners: Mapping[str, str]) -> Table:
    """Cut a partition, after a look at which collections its rows came from."""
    if partners and not (of_x := frame[_IN_X].notna()).all():
        frame = frame[of_x]
    for mark, name in partners.items():
        alone = frame.index[frame[mark].isna()]
        if len(alone):
            shown = ", ".join(map(str, alone[:3])) + (", …" if len(alone) > 3 else "")
            raise DataError(
                f"the indexes of X and {name} do not match: in one partition, {len(alone):,} of "
                f"{len(frame):,} rows of X (index {shown}) have no row in {name}; give both the "
                f"same index, or put {name} into X as a column and name it"
            )
    return cut_table(frame, schema)
