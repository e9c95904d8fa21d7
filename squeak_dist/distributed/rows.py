"""Rows in memory: what a user may pass as X, y and sample_weight, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from squeak_dist.distributed.schema import Targets, other_targets, output_names
from squeak_dist.errors import ColumnTypeError, DataError, LengthMismatchError


def as_rows(X: Any) -> np.ndarray[Any, Any]:
    """Return an in-memory array of real numbers of shape (n, d).

    Raises
    ------
    ColumnTypeError
        If it is sparse, or holds text or other objects.
    DataError
        If it is complex, has not two dimensions, or no columns.
    """
    refuse_sparse("X", X)
    array = _plain(X)
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


def _plain(values: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array; what a mask hides is NaN."""
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biufO":
        kept = np.array(values.data, dtype=object if values.dtype.kind == "O" else np.float64)
        kept[np.ma.getmaskarray(values)] = np.nan
        return kept
    return np.asarray(values)


def refuse_sparse(name: str, values: Any) -> None:
    """Raise ColumnTypeError for a sparse matrix or array."""
    if issparse(values):
        raise ColumnTypeError(
            f"{name} is a sparse matrix; squeak_dist needs dense rows: pass {name}.toarray(), or "
            f"fewer columns if that does not fit"
        )


def target_columns(y: Any, rows: int) -> tuple[list[Any], Targets]:
    """Return the columns of y, one value per row of X, and what they are called.

    Raises
    ------
    LengthMismatchError, DataError, ColumnTypeError
        If y is not of shape (rows,) or (rows, outputs), complex or sparse.
    """
    if isinstance(y, pd.DataFrame):
        one_per_row("y", y, rows)
        columns = [y.iloc[:, j].array for j in range(y.shape[1])]
        return columns, other_targets(list(map(str, y.columns)), single=False)
    values = one_per_row("y", y, rows)
    if values.ndim == 1:
        name = getattr(y, "name", None)
        return [values], other_targets(["y" if name is None else str(name)], single=True)
    if values.ndim != 2:
        raise DataError(f"y must be of shape (n,) or (n, outputs), got {values.ndim}D")
    outputs = values.shape[1]
    columns = [values[:, j] for j in range(outputs)]
    return columns, other_targets(output_names(outputs, single=False), single=False)


def row_weights(values: Any, rows: int) -> Any:
    """Return sample weights of shape (rows,).

    Raises
    ------
    LengthMismatchError, DataError, ColumnTypeError
        If they are of another shape, complex or sparse.
    """
    weights = one_per_row("sample_weight", values, rows)
    if weights.ndim != 1:
        raise DataError(f"sample_weight must be of shape (n,), got shape {weights.shape}")
    return weights


def one_per_row(name: str, values: Any, rows: int) -> Any:
    """Return an array of ``rows`` values or rows of values.

    Raises
    ------
    LengthMismatchError, DataError, ColumnTypeError
        If it is a scalar or of another length, complex, or sparse.
    """
    refuse_sparse(name, values)
    values = values.array if isinstance(values, pd.Series) else _plain(values)
    if values.ndim == 0 or len(values) != rows:
        got = "a scalar" if values.ndim == 0 else f"{len(values):,}"
        raise LengthMismatchError(f"X has {rows:,} rows, but {name} has {got}; they must be equal")
    if getattr(values.dtype, "kind", "") == "c":
        raise DataError(f"Complex data not supported: {name} must hold real numbers")
    return values
