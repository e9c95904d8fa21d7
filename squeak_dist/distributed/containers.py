"""Tables and arrays of other libraries, as pandas, NumPy or Dask ones.

None of these libraries is imported: Arrow's C stream carries polars, pyarrow, DuckDB and
the like; zarr and memory-mapped arrays become Dask arrays whose blocks the workers read.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from squeak_dist.distributed.paths import read_zarr_array
from squeak_dist.errors import ColumnTypeError, DataError

_BLOCK_BYTES = 64 << 20  # of a memory-mapped file in one partition
_OWN = (pd.DataFrame, pd.Series, np.ndarray)


def as_collection(X: Any) -> Any:
    """Return a table or array as one of pandas, NumPy or Dask; others as they are.

    Parameters
    ----------
    X : object
        A table that Arrow can read (polars DataFrame, pyarrow Table, RecordBatch or
        Dataset, …) becomes a frame; a zarr array a lazy Dask array.

    Raises
    ------
    ColumnTypeError
        For a lazy query, a single column, or types that Arrow or pandas do not have.
    DataError
        For a zarr group, or a filtered pyarrow Dataset.
    """
    if isinstance(X, _OWN) or is_dask_collection(X):  # a Delayed claims to have any attribute
        return X
    if _library(X) == "xarray":
        return X
    if hasattr(X, "collect") and type(X).__name__ == "LazyFrame":
        raise ColumnTypeError(
            "X is a LazyFrame, which has no rows yet; pass X.collect(), or write it with "
            "X.sink_parquet(path) and pass the path"
        )
    if hasattr(X, "get_fragments") and hasattr(X, "schema"):
        return _dataset_frame(X)
    if hasattr(X, "__arrow_c_stream__") or isinstance(X, pa.RecordBatch):
        return _arrow_frame(X)
    if _library(X) == "zarr":
        return read_zarr_array(X)
    return X


def _library(X: Any) -> str:
    return type(X).__module__.split(".")[0]


def _arrow_frame(X: Any) -> pd.DataFrame:
    name = type(X).__name__
    try:
        table = pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else pa.table(X)
        return _to_pandas(table)
    except (pa.ArrowException, TypeError, NotImplementedError) as error:
        raise ColumnTypeError(
            f"cannot read the {name} through Arrow as a table: {error}"
        ) from error


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=_pandas_type)


def _pandas_type(kind: pa.DataType) -> Any:
    """Return a type for what pandas would have as Python objects, which are slow."""
    checks = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time, pa.types.is_boolean)
    return pd.ArrowDtype(kind) if any(check(kind) for check in checks) else None


def _dataset_frame(X: Any) -> Any:
    """Return a pyarrow Dataset as a Dask frame: one partition per group of rows in a file."""
    try:
        fragments = [piece for fragment in X.get_fragments() for piece in _pieces(fragment)]
    except ValueError as error:
        raise DataError(
            f"cannot read the pyarrow {type(X).__name__} in pieces ({error}); pass "
            f"X.to_table(), or the Dataset as it was opened"
        ) from error
    if not fragments or not hasattr(fragments[0], "path"):  # in memory
        return _arrow_frame(X.to_table())
    empty = _to_pandas(X.schema.empty_table())
    return dd.from_map(_read_fragment, fragments, schema=X.schema, meta=empty)


def _pieces(fragment: Any) -> list[Any]:
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _read_fragment(fragment: Any, schema: Any, columns: Any = None) -> pd.DataFrame:
    return _to_pandas(fragment.to_table(schema=schema, columns=columns))


@dataclass(frozen=True)
class FileRows:
    """An array in a file, described: a task opens it where it runs.

    Parameters
    ----------
    path : str
        On a disk that every worker sees.
    offset : int
        Bytes before the first entry.
    shape, strides : tuple of int
        Of one or two dimensions; no stride is negative.
    dtype : dtype
        Of the entries.
    """

    path: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        steps = zip(self.shape, self.strides, strict=True)
        span = self.dtype.itemsize + sum((n - 1) * step for n, step in steps)
        try:
            whole = np.memmap(self.path, np.uint8, "r", self.offset, (span,))
        except (OSError, ValueError) as error:
            raise DataError(
                f"a task cannot open the memory-mapped file {self.path} ({error}); put it on a "
                f"disk that all workers see, or pass np.array(X) to send the rows"
            ) from error
        return np.array(np.ndarray(self.shape, self.dtype, whole, 0, self.strides)[key])


def as_lazy(X: Any) -> Any:
    """Return a memory-mapped array as a Dask array that the tasks read; others as they are.

    Raises
    ------
    DataError
        In a task, if a worker cannot open the file.
    """
    described = _describe(X) if isinstance(X, np.memmap) else None
    if described is None or not len(X):
        return X
    per_row = max(1, X[:1].nbytes)
    chunks = (max(1, _BLOCK_BYTES // per_row), *(-1,) * (X.ndim - 1))
    return da.from_array(
        described, chunks=chunks, name=False, meta=np.empty((0,) * X.ndim, X.dtype)
    )


def _describe(X: np.memmap[Any, Any]) -> FileRows | None:
    """Say where an array lies in its file; None where that cannot be said."""
    root: Any = X
    while isinstance(root.base, np.memmap):
        root = root.base
    if not isinstance(root.base, mmap.mmap) or root.filename is None or X.ndim not in (1, 2):
        return None
    if X.dtype.kind not in "biuf" or min(X.strides) < 0:
        return None
    moved = X.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return FileRows(str(root.filename), root.offset + moved, X.shape, X.strides, X.dtype)
