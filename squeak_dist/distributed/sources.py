"""From collections to partitions: what a user may pass, cut into tables."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import delayed

from squeak_dist.columns import column_kind, kind_name
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    InvalidParameterError,
    LengthMismatchError,
)
from squeak_dist.table import Table, TableSchema, column_positions, cut_table

_MEMORY_ROWS = 65_536  # rows per partition of an in-memory table


@dataclass(frozen=True, eq=False)
class Source:
    """The partitions of a user's collection.

    Parameters
    ----------
    tables : tuple of Delayed
        Each a :class:`~squeak_dist.table.Table`.
    schema : TableSchema
        What was cut.
    target_names : tuple of str
        As the user knows them.
    single_output : bool
        Whether the target was one column, not a list of one.
    unnamed_features : bool
        Whether the features came as an array, without names.
    """

    tables: tuple[Any, ...]
    schema: TableSchema
    target_names: tuple[str, ...]
    single_output: bool
    unnamed_features: bool


def read_source(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: dict[str, Any] | None = None,
) -> Source:
    """Cut a collection into partitions of features, targets and weights.

    Parameters
    ----------
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        The features, and the target too where ``target`` names it. A string is
        a path or URL of parquet: a file, a directory or a glob.
    y : array or Series like X, optional
        The target, where it is no column of X.
    target : label or list of labels, optional
        Columns of X to predict.
    features : list of labels, optional
        Columns to learn from; all others than target and weight by default.
    sample_weight : array, Series or label, optional
        Sample weights.
    storage_options : dict, optional
        Passed to fsspec for a URL.

    Raises
    ------
    DataError, ColumnTypeError, LengthMismatchError, InvalidParameterError
        For whatever can be seen without reading the data.
    """
    if isinstance(X, (str, os.PathLike)):
        X = read_parquet(X, storage_options)
    if target is None and y is None:
        raise InvalidParameterError(
            "fit requires y to be passed, but the target y is None: give y, or target=... naming "
            "columns of X"
        )
    if target is not None and y is not None:
        raise InvalidParameterError(
            "give the target once: either y, or target=... naming columns of X; got both"
        )
    if hasattr(X, "toarray") and not isinstance(X, da.Array):
        raise ColumnTypeError(
            "X is a sparse matrix; squeak_dist needs dense rows: pass X.toarray(), or fewer "
            "columns if that does not fit"
        )
    if isinstance(X, dd.DataFrame):
        return _from_dask_frame(X, y, target, features, sample_weight)
    if isinstance(X, da.Array):
        return _from_dask_arrays(X, y, target, features, sample_weight)
    if isinstance(y, (da.Array, dd.Series, dd.DataFrame)):
        raise ColumnTypeError(
            f"X is in memory ({type(X).__name__}), but y is a Dask collection; compute y, or make "
            f"X a Dask collection too"
        )
    return _from_memory(X, y, target, features, sample_weight)


def read_parquet(
    path: str | os.PathLike[str], storage_options: dict[str, Any] | None = None
) -> Any:
    """Open a path or URL of parquet as a Dask DataFrame.

    Raises
    ------
    DataError
        If it is not there, or is not parquet.
    """
    try:
        return dd.read_parquet(os.fspath(path), storage_options=storage_options)
    except FileNotFoundError as error:
        raise DataError(
            f"nothing found at {os.fspath(path)!r}; expected a parquet file, a directory of them, "
            f"a glob or a URL"
        ) from error
    except (OSError, ValueError, IndexError, ImportError) as error:
        raise DataError(f"cannot read {os.fspath(path)!r} as parquet: {error}") from error


def _from_dask_frame(
    frame: Any, y: Any, target: Any, features: Sequence[Hashable] | None, sample_weight: Any
) -> Source:
    single, targets = _as_labels(target)
    names = tuple(map(str, targets))
    taken = list(frame.columns)
    if y is not None:
        if not isinstance(y, (dd.Series, dd.DataFrame)):
            raise ColumnTypeError(
                f"X is a Dask DataFrame, but y is {type(y).__name__}; pass a Dask Series, or put "
                f"the target into X and name it: target=..."
            )
        single = isinstance(y, dd.Series)
        columns = [y] if single else [y[c] for c in y.columns]
        names = tuple(str(c.name if c.name is not None else "y") for c in columns)
        targets = tuple(f"__target_{j}__" for j in range(len(columns)))
        frame = frame.assign(**{str(t): c for t, c in zip(targets, columns, strict=True)})
    weight = sample_weight
    if isinstance(sample_weight, dd.Series):
        weight = "__weight__"
        frame = frame.assign(__weight__=sample_weight)
    elif sample_weight is not None and not isinstance(sample_weight, Hashable):
        raise ColumnTypeError(
            f"X is a Dask DataFrame, so sample_weight must be a column name or a Dask Series; got "
            f"{type(sample_weight).__name__}"
        )
    schema = _schema(list(frame.columns), taken, targets, weight, features)
    _check_types(schema, dict(frame.dtypes))
    needed = [*schema.features, *schema.targets, *([] if weight is None else [weight])]
    parts = frame[list(dict.fromkeys(needed))].to_delayed()
    tables = [delayed(cut_table)(part, delayed(schema, traverse=False)) for part in parts]
    return Source(tuple(tables), schema, names, single, unnamed_features=False)


def _from_dask_arrays(
    X: Any, y: Any, target: Any, features: Sequence[Hashable] | None, sample_weight: Any
) -> Source:
    if target is not None or features is not None:
        raise InvalidParameterError(
            "an array has no column names: pass y instead of target=..., and only the columns to "
            "learn from"
        )
    if X.ndim != 2:
        raise DataError(
            f"X must be a 2D array of shape (n, d), got {X.ndim}D with shape {X.shape}"
        )
    X = X.rechunk({1: -1})
    y = _aligned("y", y, X)
    if y.ndim not in (1, 2):
        raise DataError(f"y must be of shape (n,) or (n, outputs), got {y.ndim}D")
    if y.ndim == 2:
        y = y.rechunk({1: -1})
    blocks = [X.to_delayed().ravel(), y.to_delayed().ravel()]
    if sample_weight is not None:
        blocks.append(_aligned("sample_weight", sample_weight, X).to_delayed().ravel())
    tables = tuple(delayed(_table_of_arrays)(*block) for block in zip(*blocks, strict=True))
    outputs = 1 if y.ndim == 1 else int(y.shape[1])
    schema = _array_schema(int(X.shape[1]), outputs, sample_weight is not None)
    return Source(
        tables, schema, _output_names(y.ndim == 1, outputs), y.ndim == 1, unnamed_features=True
    )


def _aligned(name: str, values: Any, X: Any) -> Any:
    """Return an array of one value per row of X, cut where X is cut."""
    if isinstance(values, (dd.Series, dd.DataFrame)):
        values = values.to_dask_array()
    if not isinstance(values, da.Array):
        known = not np.isnan(X.shape[0])
        if not known:
            raise ColumnTypeError(
                f"X is a Dask array of unknown length, but {name} is {type(values).__name__}; "
                f"pass a Dask array cut like X, or call X.compute_chunk_sizes() first"
            )
        values = da.from_array(np.asarray(values), chunks=-1)
    unknown = np.isnan(X.shape[0]) or np.isnan(values.shape[0])
    if not unknown and values.shape[0] != X.shape[0]:
        raise LengthMismatchError(
            f"X has {X.shape[0]:,} rows, but {name} has {values.shape[0]:,}; they must be equal"
        )
    if not unknown:
        return values.rechunk({0: X.chunks[0]})
    if values.numblocks[0] != X.numblocks[0]:
        raise LengthMismatchError(
            f"X has {X.numblocks[0]} chunks of unknown length, but {name} has "
            f"{values.numblocks[0]}; cut both alike, or call compute_chunk_sizes() on both"
        )
    return values


def _from_memory(
    X: Any, y: Any, target: Any, features: Sequence[Hashable] | None, sample_weight: Any
) -> Source:
    if isinstance(X, pd.DataFrame):
        frame, schema, names, single = _memory_frame(X, y, target, features, sample_weight)
    else:
        if target is not None or features is not None:
            raise InvalidParameterError(
                "an array has no column names: pass y instead of target=..., and only the columns "
                "to learn from"
            )
        frame, schema, names, single = _memory_arrays(X, y, sample_weight)
    with_rows = range(0, max(len(frame), 1), _MEMORY_ROWS)
    slices = [frame.iloc[start : start + _MEMORY_ROWS] for start in with_rows]
    shared = delayed(schema, traverse=False)
    tables = [delayed(cut_table)(delayed(part, traverse=False), shared) for part in slices]
    named = isinstance(X, pd.DataFrame)
    return Source(tuple(tables), schema, names, single, unnamed_features=not named)


def _memory_frame(
    X: pd.DataFrame,
    y: Any,
    target: Any,
    features: Sequence[Hashable] | None,
    sample_weight: Any,
) -> tuple[pd.DataFrame, TableSchema, tuple[str, ...], bool]:
    single, targets = _as_labels(target)
    names = tuple(map(str, targets))
    taken, extra = list(X.columns), {}
    if y is not None:
        columns, names, single = _target_columns(y, len(X))
        extra = {f"__target_{j}__": column for j, column in enumerate(columns)}
        targets = tuple(extra)
    weight = sample_weight
    if sample_weight is not None and (
        not isinstance(sample_weight, Hashable) or isinstance(sample_weight, pd.Series)
    ):
        weight = "__weight__"
        extra[weight] = _one_per_row("sample_weight", sample_weight, len(X))
    frame = X
    if extra:
        frame = pd.concat([X, pd.DataFrame(extra, index=X.index)], axis=1)
    schema = _schema(list(frame.columns), taken, targets, weight, features)
    _check_types(schema, {c: frame.dtypes.iloc[i] for i, c in enumerate(frame.columns)})
    return frame, schema, names, single


def _memory_arrays(
    X: Any, y: Any, sample_weight: Any
) -> tuple[pd.DataFrame, TableSchema, tuple[str, ...], bool]:
    X = as_rows(X)
    columns, names, single = _target_columns(y, len(X))
    schema = _array_schema(X.shape[1], len(columns), sample_weight is not None)
    extra = dict(zip(schema.targets, columns, strict=True))
    if sample_weight is not None:
        extra["__weight__"] = _one_per_row("sample_weight", sample_weight, len(X))
    frame = pd.DataFrame(X, columns=list(schema.features), copy=False)
    frame = pd.concat([frame, pd.DataFrame(extra)], axis=1)
    return frame, schema, names, single


def as_rows(X: Any) -> np.ndarray[Any, Any]:
    """Return an in-memory array of real numbers of shape (n, d).

    Raises
    ------
    ColumnTypeError
        If it holds text or complex numbers.
    DataError
        If it has not two dimensions, or no columns.
    """
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: X must hold real numbers")
    if array.dtype.kind not in "biuf":
        try:
            array = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ColumnTypeError(
                f"X must hold numbers, got an array of dtype {array.dtype} ({error}); for columns "
                f"of several types pass a DataFrame"
            ) from error
    if array.ndim != 2:
        raise DataError(
            f"Expected 2D array of shape (n, d), got {array.ndim}D array instead (shape "
            f"{array.shape}). Reshape your data with X.reshape(-1, 1) for one feature, or "
            f"X.reshape(1, -1) for one row"
        )
    if array.shape[1] == 0:
        raise DataError(
            f"X has no columns: 0 feature(s) (shape={array.shape}) while a minimum of 1 is "
            f"required."
        )
    return array


def _target_columns(y: Any, rows: int) -> tuple[list[Any], tuple[str, ...], bool]:
    if isinstance(y, pd.DataFrame):
        _one_per_row("y", y, rows)
        columns = [y.iloc[:, j].array for j in range(y.shape[1])]
        return columns, tuple(map(str, y.columns)), False
    values = _one_per_row("y", y, rows)
    if values.ndim == 1:
        name = getattr(y, "name", None)
        return [values], ("y" if name is None else str(name),), True
    if values.ndim != 2:
        raise DataError(f"y must be of shape (n,) or (n, outputs), got {values.ndim}D")
    columns = [values[:, j] for j in range(values.shape[1])]
    return columns, _output_names(False, values.shape[1]), False


def _one_per_row(name: str, values: Any, rows: int) -> Any:
    values = values.array if isinstance(values, pd.Series) else np.asarray(values)
    if values.ndim == 0 or len(values) != rows:
        got = "a scalar" if values.ndim == 0 else f"{len(values):,}"
        raise LengthMismatchError(f"X has {rows:,} rows, but {name} has {got}; they must be equal")
    if getattr(values.dtype, "kind", "") == "c":
        raise DataError(f"Complex data not supported: {name} must hold real numbers")
    return values


def _as_labels(target: Any) -> tuple[bool, tuple[Hashable, ...]]:
    if target is None:
        return True, ()
    if isinstance(target, list):
        if not target:
            raise InvalidParameterError("target is an empty list; name at least one column")
        return False, tuple(target)
    return True, (target,)


def _output_names(single: bool, outputs: int) -> tuple[str, ...]:
    return ("y",) if single else tuple(f"y{j}" for j in range(outputs))


def _array_schema(n_features: int, outputs: int, weighted: bool) -> TableSchema:
    return TableSchema(
        features=tuple(f"x{j}" for j in range(n_features)),
        targets=tuple(f"__target_{j}__" for j in range(outputs)),
        weight="__weight__" if weighted else None,
    )


def _schema(
    columns: Sequence[Hashable],
    own: Sequence[Hashable],
    targets: tuple[Hashable, ...],
    weight: Hashable | None,
    features: Sequence[Hashable] | None,
) -> TableSchema:
    """Say what each column is, and check that all of them are there."""
    used = {*targets, *(() if weight is None else (weight,))}
    chosen = [c for c in own if c not in used] if features is None else list(features)
    if not chosen:
        raise DataError(
            "no columns are left to learn from: 0 feature(s) while a minimum of 1 is required"
        )
    overlap = [c for c in chosen if c in used]
    if overlap:
        raise InvalidParameterError(
            f"{overlap[0]!r} is both a feature and the target or weight; it can be one of them"
        )
    column_positions(columns, (*chosen, *targets, *(() if weight is None else (weight,))))
    return TableSchema(tuple(chosen), targets, weight)


def _check_types(schema: TableSchema, dtypes: dict[Hashable, Any]) -> None:
    """Refuse, before anything is read, types that no stage can use."""
    for label in schema.features:
        column_kind(dtypes[label])
    numbers = (*schema.targets, *(() if schema.weight is None else (schema.weight,)))
    for label in numbers:
        dtype = dtypes[label]
        kind = "numeric" if dtype == np.dtype(object) else column_kind(dtype)
        if kind not in ("numeric", "boolean"):
            raise ColumnTypeError(
                f"the column {label!r} is {kind_name(kind)} (dtype {dtype}), but a target or "
                f"weight must be numbers"
            )


def _table_of_arrays(X: Any, y: Any, weights: Any = None) -> Table:
    """Cut one block of arrays."""
    X = as_rows(X)
    columns, _, _ = _target_columns(y, len(X))
    targets = np.empty((len(X), len(columns)))
    for j, column in enumerate(columns):
        targets[:, j] = column
    if weights is not None:
        weights = np.asarray(_one_per_row("sample_weight", weights, len(X)), dtype=np.float64)
    names = [f"x{j}" for j in range(X.shape[1])]
    return Table(pd.DataFrame(X, columns=names, copy=False), targets, weights)
