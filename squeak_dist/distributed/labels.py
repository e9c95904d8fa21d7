"""Targets of labels: their column in any collection, as positions of classes.

The column of labels is replaced by positions of classes inside its own collection, before
it is cut: so whatever collection is fine for a target of numbers is fine for labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes
from squeak_dist.distributed.grids import as_dataset, is_data_array, is_dataset
from squeak_dist.distributed.rows import refuse_sparse
from squeak_dist.distributed.schema import Source
from squeak_dist.distributed.sources import gridded, opened, read_source
from squeak_dist.errors import DataError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class Labelled:
    """A collection and the column of it, or beside it, that holds labels.

    Parameters
    ----------
    X, y, target, features, sample_weight
        As in :func:`~squeak_dist.distributed.sources.read_source`, opened; ``target`` is
        one label and y one column.
    """

    X: Any
    y: Any
    target: Any
    features: Sequence[Hashable] | None
    sample_weight: Any

    @property
    def name(self) -> str:
        """What the user calls the target."""
        if self.y is None:
            return str(self.target)
        name = getattr(self.y, "name", None)
        lazy_array = isinstance(self.y, da.Array)  # whose name is a key
        return "y" if name is None or lazy_array else str(name)

    @property
    def column(self) -> Any:
        """The labels: a Series or array, Dask's or in memory."""
        return self.X[self.target] if self.y is None else self.y

    def source(self, classes: Classes | None) -> Source:
        """Return the partitions with positions of classes as their target.

        Parameters
        ----------
        classes : Classes, optional
            None: zeros for all, to see whether the rest can be cut.

        Raises
        ------
        SqueakError
            As :func:`~squeak_dist.distributed.sources.read_source`.
        """
        X, y = self.X, self.y
        shared = delayed(classes, traverse=False) if is_dask_collection(X) else classes
        if y is not None:
            y = _coded(y, classes)
        elif isinstance(X, pd.DataFrame) and self._has_columns():
            X = X.copy(deep=False)
            X[self.target] = _codes(X[self.target], classes)
        elif isinstance(X, dd.DataFrame) and self._has_columns():
            X = self._needed()
            X = X.map_partitions(
                _code_column,
                self.target,
                shared,
                meta=_meta(X, self.target),
                enforce_metadata=False,  # to Dask a column called None is another one each time
            )
        return read_source(
            X,
            y,
            target=self.target,
            features=self.features,
            sample_weight=self.sample_weight,
        )

    def _has_columns(self) -> bool:
        """Say whether no column is missing or there twice; else read_source says what is wrong."""
        columns = list(self.X.columns)
        wanted = [self.target, *(() if self.features is None else self.features)]
        distinct = len(set(columns)) == len(columns)
        return distinct and all(isinstance(w, Hashable) and w in columns for w in wanted)

    def _needed(self) -> Any:
        """Return the Dask frame with the columns that are used: parquet is read for no others."""
        if self.features is None:
            return self.X
        weight = self.sample_weight
        own = [weight] if isinstance(weight, Hashable) and weight in self.X.columns else []
        return self.X[list(dict.fromkeys((*self.features, self.target, *own)))]


def labelled(
    X: Any,
    y: Any = None,
    *,
    target: Any = None,
    features: Sequence[Hashable] | None = None,
    sample_weight: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Labelled:
    """Find the column of labels.

    Parameters are those of :func:`~squeak_dist.distributed.sources.read_source`, but the
    target is one column.

    Raises
    ------
    SqueakError
        For whatever can be seen without reading labels.
    """
    X = opened(X, storage_options)
    if isinstance(target, list):
        if len(target) != 1:
            raise InvalidParameterError(
                f"a classifier has one target; got {len(target)} of them: {target!r}"
            )
        target = target[0]
    if is_data_array(X):
        X = X.data if target is None else as_dataset(X)
    if is_dataset(X):
        X = gridded(X, y, target, features, sample_weight)
        y = None
    found = Labelled(X, _one_column(y), target, features, sample_weight)
    found.source(None)
    return found


def _one_column(y: Any) -> Any:
    """Return y as one column of values."""
    refuse_sparse("y", y)
    if y is None or isinstance(y, (dd.Series, pd.Series)):
        return y
    if not isinstance(y, (dd.DataFrame, pd.DataFrame, da.Array)):
        y = np.asarray(y)
    if y.ndim == 1 or y.ndim == 0:
        return y
    if y.ndim != 2 or y.shape[1] != 1:
        raise DataError(
            f"a classifier has one target: y must be of shape (n,), got shape {y.shape}"
        )
    if isinstance(y, dd.DataFrame):
        return y[y.columns[0]]
    return y.iloc[:, 0] if isinstance(y, pd.DataFrame) else y[:, 0]


def _coded(y: Any, classes: Classes | None) -> Any:
    shared = delayed(classes, traverse=False)
    if isinstance(y, dd.Series):
        return y.map_partitions(_code_series, shared, meta=(y.name, "f8"))
    if isinstance(y, da.Array):
        return da.map_blocks(_codes, y, classes=shared, dtype=np.float64, meta=np.empty(0))
    if isinstance(y, pd.Series):
        return _code_series(y, classes)
    return _codes(y, classes)


def _codes(values: Any, classes: Classes | None) -> Float64Array:
    if classes is None or np.ndim(values) == 0:
        return np.zeros(np.shape(values))
    return classes.codes(values)


def _code_series(values: pd.Series[Any], classes: Classes | None) -> pd.Series[Any]:
    return pd.Series(_codes(values, classes), index=values.index, name=values.name)


def _code_column(frame: pd.DataFrame, target: Hashable, classes: Classes | None) -> pd.DataFrame:
    frame = frame.copy(deep=False)
    frame[target] = _codes(frame[target], classes)
    return frame


def _meta(X: Any, target: Hashable) -> pd.DataFrame:
    """Return an empty frame of the types of X, with numbers for the target."""
    dtypes = dict(zip(X.columns, X.dtypes, strict=True)) | {target: np.dtype(np.float64)}
    index = pd.Index([], dtype=X.index.dtype, name=X.index.name)
    empty = pd.DataFrame({i: pd.Series(dtype=dtype) for i, dtype in enumerate(dtypes.values())})
    empty.columns = pd.Index(list(dtypes), tupleize_cols=False)
    return empty.set_index(index)
