"""Something computed of each row of any collection, lazily where the collection is lazy.

Predictions, labels, probabilities and features differ in what is computed; the containers they
come in and go out in are handled here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.delayed import delayed

from squeak_dist._typing import FloatArray
from squeak_dist.distributed.fitted_input import (
    Model,
    as_array,
    check_columns,
    of_right_width,
    warn_of_numbers,
)
from squeak_dist.distributed.frames import select
from squeak_dist.distributed.grids import (
    as_dataset,
    data_array,
    is_data_array,
    is_dataset,
    make_grid,
    on_grid,
)
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.sources import check_collection, opened
from squeak_dist.errors import InfiniteValuesError
from squeak_dist.feature_model import FeatureModel
from squeak_dist.linalg import single_blas_thread

_BLOCK_ENTRIES = 262_144  # of the result at once: that many rows of one column
_LEAST_ROWS = 16_384


@dataclass(frozen=True)
class RowOutput:
    """What is computed of each row.

    Parameters
    ----------
    names : tuple of hashable
        Of the columns.
    single : bool
        Whether it is one-dimensional.
    compute : callable
        Makes of (model, encoded rows) an ndarray of ``dtype``, shape (n, columns).
    whole_model : bool, default False
        Whether that needs the posterior, which is large.
    dtype : dtype, default float64
        Of an array of it.
    hole : object, default NaN
        What stands in rows that the missing policy drops.
    column_dtype : dtype, optional
        Of the columns of a frame; ``dtype`` by default.
    axis : str, optional
        The dimension of xarray that the columns are along. Without one each column is a
        variable of its own in a Dataset.
    """

    names: tuple[Hashable, ...]
    single: bool
    compute: Callable[[Any, FloatArray], npt.NDArray[Any]]
    whole_model: bool = False
    dtype: Any = np.float64
    hole: Any = np.nan
    column_dtype: Any = None
    axis: str | None = None

    def model_for(self, model: Model) -> Model:
        """Return what of the model a task needs."""
        if self.whole_model or isinstance(model, FeatureModel):
            return model
        return model.for_predictions()

    @property
    def meta(self) -> Any:
        """Names and types of the columns of a frame, as Dask takes them."""
        dtype = self.dtype if self.column_dtype is None else self.column_dtype
        return (self.names[0], dtype) if self.single else dict.fromkeys(self.names, dtype)

    @property
    def trailing(self) -> tuple[int, ...]:
        """What comes after n in the shape of the result."""
        return () if self.single else (len(self.names),)


def map_rows(model: Model, X: Any, output: RowOutput) -> Any:
    """Compute something of each row of any collection; lazy for lazy input.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        The model.
    X : Dask or pandas DataFrame, Dask or numpy array, str or path
        And whatever :func:`~squeak_dist.distributed.sources.read_source` takes. Columns of a
        frame are matched by name, those of an array by position.
    output : RowOutput
        What.

    Returns
    -------
    Dask Series, DataFrame or array, xarray DataArray or Dataset, or ndarray
        Of shape (n,) or (n, columns), with the index of X; of xarray, on the grid of the
        variables that are used.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.

    Warns
    -----
    UnseenLevels
        For numbers in memory in a column that was text in the fit.
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
        X = as_array(model, X)
    check_columns(model, X)
    if isinstance(X, dd.DataFrame):
        shared = delayed(output.model_for(model), traverse=False)
        used = select(X, model.encoding.used_labels)
        return used.map_partitions(frame_output, shared, output, meta=output.meta)
    if isinstance(X, da.Array):
        return _map_dask_array(model, X, output)
    if not isinstance(X, pd.DataFrame):
        return rows_output(of_right_width(model, as_rows(X)), model, output)
    values = rows_output(X, model, output)
    warn_of_numbers(model, X)
    return values


def _map_data_array(model: Model, X: Any, output: RowOutput) -> Any:
    """Map rows of a DataArray of shape (n, d): its first dimension stays."""
    values = map_rows(model, X.data, output)
    if output.single:
        return data_array(X, values, X.dims[:1], output.names[0])
    axis = output.axis or "output"
    return _labelled(data_array(X, values, (*X.dims[:1], axis), None), output, axis)


def _map_dataset(model: Model, X: Any, output: RowOutput) -> Any:
    """Map the points of a Dataset: a DataArray, or a Dataset of one per column."""
    check_columns(model, X)
    grid = make_grid(X, model.encoding.used_labels)
    small = output.model_for(model)
    compute = delayed(rows_output) if grid.lazy else rows_output
    shared = delayed(small, traverse=False) if grid.lazy else small
    blocks = [compute(frame, shared, output) for frame in grid.frames()]
    values = on_grid(grid, blocks, output.dtype, output.trailing)
    if output.single:
        return data_array(X, values, grid.dims, output.names[0])
    if output.axis is not None:
        whole = data_array(X, values, (*grid.dims, output.axis), None)
        return _labelled(whole, output, output.axis)
    arrays = {
        name: data_array(X, values[..., j], grid.dims, name) for j, name in enumerate(output.names)
    }
    return X.drop_vars(list(X.data_vars)).assign(arrays)


def _labelled(values: Any, output: RowOutput, axis: str) -> Any:
    return values.assign_coords({axis: list(output.names)})


def _map_dask_array(model: Model, X: Any, output: RowOutput) -> Any:
    X = of_right_width(model, X).rechunk({1: -1})
    settings = {
        "model": delayed(output.model_for(model), traverse=False),
        "row_output": output,  # not "output": that is the name of a parameter of Dask's own
        "dtype": output.dtype,
        "meta": np.empty((0,) * (1 + len(output.trailing)), output.dtype),
    }
    if output.single:
        return da.map_blocks(_block_output, X, drop_axis=1, **settings)
    chunks = (X.chunks[0], output.trailing)
    return da.map_blocks(_block_output, X, chunks=chunks, **settings)


def _block_output(X: npt.NDArray[Any], model: Model, row_output: RowOutput) -> npt.NDArray[Any]:
    return rows_output(as_rows(X), model, row_output)


def frame_output(
    frame: pd.DataFrame, model: Model, output: RowOutput
) -> pd.Series[Any] | pd.DataFrame:
    """Compute something of one partition and keep its index."""
    values = rows_output(frame, model, output)
    if not output.single:
        return pd.DataFrame(values, index=frame.index, columns=pd.Index(list(output.names)))
    name, dtype = output.meta
    return pd.Series(values, index=frame.index, name=name, dtype=dtype)


def check_finite(model: Model, values: npt.NDArray[Any]) -> None:
    """Check what is computed of rows.

    Raises
    ------
    InfiniteValuesError
        If it is not finite: the kernel, or a sum of its entries, overflows.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        count = int((~np.isfinite(values)).any(axis=1).sum())
        raise InfiniteValuesError(
            f"{count:,} rows are so far from those of the fit that their "
            f"{type(model.kernel).__name__} kernel overflows; remove them, or use a kernel that "
            f"is bounded, such as rbf"
        )


def rows_output(
    X: pd.DataFrame | npt.NDArray[Any], model: Model, output: RowOutput
) -> npt.NDArray[Any]:
    """Compute something of rows in memory; holes in rows that the missing policy drops."""
    values = np.empty((len(X), len(output.names)), output.dtype)
    # The encoded rows of a file do not fit at once.
    step = max(_LEAST_ROWS, _BLOCK_ENTRIES // max(1, len(output.names)))
    for start in range(0, max(1, len(X)), step):
        rows = slice(start, start + step)
        part = X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
        encoded, kept = model.encoding.encode(part)
        with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            computed = output.compute(model, encoded)
        check_finite(model, computed)
        if kept.all():
            values[rows] = computed
        else:
            values[rows][kept] = computed
            values[rows][~kept] = output.hole
    return values[:, 0] if output.single else values
