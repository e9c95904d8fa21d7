"""From collections to partitions: what a user may pass, cut into tables."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import pandas as pd
from dask.base import is_dask_collection

from squeak_dist.distributed.arrays import array_source
from squeak_dist.distributed.frames import dask_frame_source
from squeak_dist.distributed.identity import Files
from squeak_dist.distributed.memory import frame_source, rows_source
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.schema import Source
from squeak_dist.errors import ColumnTypeError, DataError, InvalidParameterError

__all__ = ["Source", "as_rows", "check_collection", "read_parquet", "read_source"]


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
        files = Files(os.fspath(X), storage_options or {})
        source = read_source(
            read_parquet(X, storage_options), y,
            target=target, features=features, sample_weight=sample_weight,
        )  # fmt: skip
        alone = not (is_dask_collection(y) or is_dask_collection(sample_weight))
        return replace(source, origins=(files,)) if alone else source
    _check_given_once(y, target)
    check_collection(X)
    if isinstance(X, dd.DataFrame):
        return dask_frame_source(X, y, target, features, sample_weight)
    if not isinstance(X, pd.DataFrame) and (target is not None or features is not None):
        raise InvalidParameterError(
            "an array has no column names: pass y instead of target=..., and only the columns to "
            "learn from"
        )
    if isinstance(X, da.Array):
        return array_source(X, y, sample_weight)
    _check_in_memory("y", y, X)
    _check_in_memory("sample_weight", sample_weight, X)
    if isinstance(X, pd.DataFrame):
        return frame_source(X, y, target, features, sample_weight)
    return rows_source(X, y, sample_weight)


def _check_given_once(y: Any, target: Any) -> None:
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
    """Refuse Dask collections that are no table.

    Raises
    ------
    ColumnTypeError
        Saying what is accepted.
    """
    if is_dask_collection(X) and not isinstance(X, (dd.DataFrame, da.Array)):
        cure = ". X.to_frame() makes a frame of one column" if isinstance(X, dd.Series) else ""
        raise ColumnTypeError(
            f"X is a Dask {type(X).__name__}; expected a Dask or pandas DataFrame, a Dask or "
            f"numpy array, or a path of parquet{cure}"
        )


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
