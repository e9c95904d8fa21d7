"""From collections to partitions: what a user may pass, cut into tables."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from numbers import Number
from typing import Any

import dask.array as da
import dask.dataframe as dd
import pandas as pd
from dask.base import is_dask_collection

from squeak_dist.distributed.arrays import array_source
from squeak_dist.distributed.containers import as_collection, as_lazy
from squeak_dist.distributed.frames import dask_frame_source
from squeak_dist.distributed.grids import (
    as_dataset,
    feature_frame,
    is_data_array,
    is_dataset,
    training_frame,
)
from squeak_dist.distributed.identity import Files
from squeak_dist.distributed.memory import frame_source, rows_source
from squeak_dist.distributed.paths import read_parquet, read_path
from squeak_dist.distributed.rows import as_rows, refuse_sparse
from squeak_dist.distributed.schema import NO_TARGETS, Source
from squeak_dist.errors import ColumnTypeError, InvalidParameterError

__all__ = [
    "Source",
    "as_rows",
    "check_collection",
    "is_label",
    "opened",
    "read_features",
    "read_parquet",
    "read_source",
]


def read_source(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Cut a collection into partitions of features, targets and weights.

    Parameters
    ----------
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        The features, and the target too where ``target`` names it. Also a table of polars
        or pyarrow, an xarray Dataset or DataArray, a zarr array. A string is a path or
        URL: see :func:`~squeak_dist.distributed.paths.read_path`.
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
        files = Files(os.fspath(X), dict(storage_options or {}))
        source = read_source(
            opened(X, storage_options), y,
            target=target, features=features, sample_weight=sample_weight,
            storage_options=storage_options,
        )  # fmt: skip
        alone = not (is_dask_collection(y) or is_dask_collection(sample_weight))
        return replace(source, origins=(files,)) if alone else source
    _check_given_once(X, y, target)
    X, y = opened(X, storage_options), _values(y, X, storage_options)
    if not is_label(sample_weight):
        sample_weight = _values(sample_weight, X, storage_options)
    check_collection(X)
    if is_data_array(X):
        X = X.data if target is None else as_dataset(X)
    if is_dataset(X):
        X, y = gridded(X, y, target, features, sample_weight), None
    if isinstance(X, dd.DataFrame):
        return dask_frame_source(X, y, target, features, sample_weight)
    if not isinstance(X, pd.DataFrame) and (target is not None or features is not None):
        raise InvalidParameterError(
            "an array has no column names: pass y instead of target=..., and only the columns to "
            "learn from"
        )
    X = as_lazy(X)
    if isinstance(X, da.Array):
        return array_source(X, as_lazy(y), as_lazy(sample_weight))
    _check_in_memory("y", y, X)
    _check_in_memory("sample_weight", sample_weight, X)
    if isinstance(X, pd.DataFrame):
        return frame_source(X, y, target, features, sample_weight)
    return rows_source(X, y, sample_weight)


def read_features(
    X: Any,
    *,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Cut a collection into partitions of features and weights, without targets.

    Parameters are those of :func:`read_source`.

    Raises
    ------
    DataError, ColumnTypeError, LengthMismatchError, InvalidParameterError
        For whatever can be seen without reading the data.
    """
    X = opened(X, storage_options)
    check_collection(X)
    if is_data_array(X):
        X = X.data
    if is_dataset(X):
        X = feature_frame(X, features, _weight_name(sample_weight))
    if features is not None and not hasattr(X, "columns"):
        raise InvalidParameterError(
            "an array has no column names: pass only the columns to learn from, without features="
        )
    if hasattr(X, "columns"):
        return read_source(X, target=NO_TARGETS, features=features, sample_weight=sample_weight)
    X = X if isinstance(X, da.Array) else as_rows(X)
    # No columns, cut as X is: an array of targets that has none.
    return read_source(X, X[:, :0] if X.ndim == 2 else X, sample_weight=sample_weight)


def opened(X: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return a table or array of pandas, NumPy, Dask or xarray, opened where X is a path.

    Raises
    ------
    DataError, ColumnTypeError
        If it cannot be opened.
    """
    if isinstance(X, (str, os.PathLike)):
        return read_path(X, storage_options)
    return as_collection(X)


def _values(values: Any, X: Any, storage_options: Mapping[str, Any] | None) -> Any:
    """Return y or weights as NumPy, pandas or Dask have them."""
    if isinstance(values, (str, os.PathLike)):
        if not isinstance(X, (str, os.PathLike)) and hasattr(X, "columns"):
            raise InvalidParameterError(
                f"y is the text {os.fspath(values)!r}; to name a column of X, pass "
                f"target={os.fspath(values)!r}"
            )
        return read_path(values, storage_options)
    if is_data_array(values):
        return values.data
    column = hasattr(values, "__arrow_c_stream__") and not hasattr(values, "schema")
    return values if column else as_collection(values)


def is_label(value: Any) -> bool:
    """Say whether something names a column, and is not values itself."""
    values = hasattr(value, "dtype") or hasattr(value, "__arrow_c_stream__")
    return isinstance(value, Hashable) and not values


def gridded(X: Any, y: Any, target: Any, features: Any, weight: Any) -> Any:
    """Return a Dataset as a frame of one row per point.

    Parameters are those of :func:`read_source`.

    Raises
    ------
    ColumnTypeError
        If target or weights are no variables of it.
    """
    if y is not None:
        raise ColumnTypeError(
            "X is an xarray Dataset, so the target must be a variable of it: pass "
            "X.assign(name=y) and target='name'"
        )
    return training_frame(X, target, features, _weight_name(weight))


def _weight_name(weight: Any) -> Any:
    if not is_label(weight):
        raise ColumnTypeError(
            "X is an xarray Dataset, so sample_weight must name a variable of it; got "
            f"{type(weight).__name__}"
        )
    return weight


def _check_given_once(X: Any, y: Any, target: Any) -> None:
    if isinstance(X, tuple) and len(X) in (2, 3) and y is None and target is None:
        raise InvalidParameterError(
            f"X is a tuple of {len(X)} things; pass them one by one: fit(X, y), or "
            f"fit(X, y, sample_weight=weights)"
        )
    if target is None and y is None:
        raise InvalidParameterError(
            "fit requires y to be passed, but the target y is None: give y, or target=... naming "
            "columns of X"
        )
    if target is not None and y is not None:
        raise InvalidParameterError(
            "give the target once: either y, or target=... naming columns of X; got both"
        )


def _check_in_memory(name: str, values: Any, X: Any) -> None:
    if is_dask_collection(values):
        raise ColumnTypeError(
            f"X is in memory ({type(X).__name__}), but {name} is a Dask collection; compute "
            f"{name}, or make X a Dask collection too"
        )


def check_collection(X: Any) -> None:
    """Refuse what is no table, and no array.

    Raises
    ------
    ColumnTypeError
        Saying what is accepted.
    """
    refuse_sparse("X", X)
    foreign = is_dask_collection(X) and not isinstance(X, (dd.DataFrame, da.Array))
    if is_dataset(X) or is_data_array(X):
        return
    if foreign or X is None or isinstance(X, (Number, Mapping, Set, Iterator)):
        cure = ". X.to_frame() makes a frame of one column" if isinstance(X, dd.Series) else ""
        kind = f"Dask {type(X).__name__}" if foreign else type(X).__name__
        raise ColumnTypeError(
            f"X is a {kind}; expected a table (Dask, pandas, polars, pyarrow, xarray), an array "
            f"(Dask, NumPy, zarr), or a path of parquet or zarr{cure}"
        )
