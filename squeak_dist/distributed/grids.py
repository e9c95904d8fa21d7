"""xarray Datasets and DataArrays: one row per point of a grid, and back.

xarray is optional: it is imported where one of its objects was given. The chunks of
a chunked Dataset become partitions.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed

from squeak_dist.errors import ColumnsDropped, DataError, InvalidParameterError, warn_user
from squeak_dist.table import column_positions, listing


def is_dataset(X: Any) -> bool:
    """Say whether an object is an xarray Dataset."""
    return _is_of_xarray(X) and hasattr(X, "data_vars")


def is_data_array(X: Any) -> bool:
    """Say whether an object is an xarray DataArray."""
    return _is_of_xarray(X) and hasattr(X, "to_dataset") and not hasattr(X, "data_vars")


def _is_of_xarray(X: Any) -> bool:
    return type(X).__module__.split(".")[0] == "xarray"


def as_dataset(X: Any) -> Any:
    """Return a DataArray as a Dataset of one variable; a Dataset as it is.

    Raises
    ------
    DataError
        If the DataArray has no name.
    """
    if is_dataset(X):
        return X
    if X.name is None:
        raise DataError(
            "the DataArray has no name, so its values and coordinates cannot be told apart as "
            "columns; pass X.rename('name')"
        )
    return X.to_dataset()


@dataclass(frozen=True, eq=False)
class Grid:
    """Some variables of a Dataset on the grid of some dimensions.

    Parameters
    ----------
    dataset : xarray.Dataset
        With unified chunks.
    names : tuple of hashable
        Variables and coordinates that become columns.
    dims : tuple of hashable
        Their dimensions, in the order of the Dataset; rows are in C order.
    """

    dataset: Any
    names: tuple[Hashable, ...]
    dims: tuple[Hashable, ...]

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Lengths of the blocks along each dimension."""
        sizes, cut = self.dataset.sizes, self.dataset.chunksizes
        return tuple(tuple(cut.get(dim, (sizes[dim],))) for dim in self.dims)

    @property
    def lazy(self) -> bool:
        """Whether a variable is a Dask array."""
        return any(is_dask_collection(self.dataset[name].data) for name in self.names)

    @property
    def places(self) -> list[tuple[int, ...]]:
        """Positions of the blocks, in C order."""
        return list(itertools.product(*(range(len(lengths)) for lengths in self.chunks)))

    def shape(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one block."""
        return tuple(lengths[i] for lengths, i in zip(self.chunks, place, strict=True))

    def frames(self) -> list[Any]:
        """Return the frame of each block: of pandas, or a Delayed of it."""
        make = delayed(_block_frame) if self.lazy else _block_frame
        parts = [self._parts(self.dataset[name]) for name in self.names]
        stops = [[0, *itertools.accumulate(lengths)] for lengths in self.chunks]
        axes, frames = [part[0] for part in parts], []
        for place in self.places:
            rows = [slice(s[i], s[i + 1]) for s, i in zip(stops, place, strict=True)]
            values = [
                whole[tuple(place[a] if lazy else rows[a] for a in own)]
                for own, whole, lazy in parts
            ]
            frames.append(make(self.names, axes, self.shape(place), values))
        return frames

    def _parts(self, variable: Any) -> tuple[tuple[int, ...], Any, bool]:
        """Return the axes of a variable in the grid, its values or its blocks, and which."""
        variable = variable.transpose(*(dim for dim in self.dims if dim in variable.dims))
        axes = tuple(self.dims.index(dim) for dim in variable.dims)
        lazy = is_dask_collection(variable.data)
        return axes, variable.data.to_delayed() if lazy else np.asarray(variable.data), lazy

    def frame(self) -> Any:
        """Return a frame of one row per point: a Dask one where a variable is chunked."""
        if not self.lazy:
            return self.frames()[0]
        meta = pd.DataFrame(
            {name: pd.Series(dtype=self.dataset[name].dtype) for name in self.names}
        )
        return dd.from_delayed(self.frames(), meta=meta, verify_meta=False)


def _block_frame(
    names: Sequence[Hashable],
    axes: Sequence[tuple[int, ...]],
    shape: tuple[int, ...],
    values: Sequence[npt.NDArray[Any]],
) -> pd.DataFrame:
    """Return one block of the grid as a frame of one row per point, in C order."""
    columns: dict[int, Any] = {}
    for j, (own, value) in enumerate(zip(axes, values, strict=True)):
        wide = [shape[a] if a in own else 1 for a in range(len(shape))]
        columns[j] = np.broadcast_to(np.asarray(value).reshape(wide), shape).ravel()
    frame = pd.DataFrame(columns, index=pd.RangeIndex(math.prod(shape)))
    frame.columns = pd.Index(names, tupleize_cols=False)
    return frame


def training_frame(X: Any, target: Any, features: Sequence[Hashable] | None, weight: Any) -> Any:
    """Return a Dataset as the frame that a fit cuts: one row per point of the target.

    Parameters
    ----------
    X : xarray.Dataset
        Its coordinates are columns too, but for those of no dimension.
    target : label or list of labels
        Variables to predict; their dimensions are those of the rows.
    features : list of labels, optional
        All other variables and coordinates without further dimensions by default.
    weight : label, optional
        Variable of sample weights.

    Raises
    ------
    MissingColumnsError
        If a variable is not there.
    DataError
        If the target has no dimension.
    InvalidParameterError
        If a variable that was named has dimensions that the target has not.

    Warns
    -----
    ColumnsDropped
        Naming variables that were left out for their dimensions.
    """
    targets = target if isinstance(target, list) else [target]
    named = [*targets, *(() if weight is None else (weight,)), *(features or ())]
    column_positions(names_of(X), named)
    dims = _dims_of(X, targets)
    if not dims:
        raise DataError(f"the target {listing(map(repr, targets))} has no dimension, so no rows")
    outside = [name for name in names_of(X) if not set(X[name].dims) <= set(dims)]
    if wrong := [name for name in named if name in outside]:
        raise InvalidParameterError(
            f"{wrong[0]!r} has dimensions {X[wrong[0]].dims}, but the target has {dims}; leave it "
            f"out, or reduce it to those"
        )
    if features is not None:
        return make_grid(X, named, dims).frame()
    if left := [name for name in outside if name in X.data_vars]:
        warn_user(
            f"left out of the fit: {listing(map(repr, left))} (other dimensions than the target)",
            ColumnsDropped,
        )
    return make_grid(X, [n for n in names_of(X) if n not in outside], dims).frame()


def feature_frame(X: Any, features: Sequence[Hashable] | None, weight: Any) -> Any:
    """Return a Dataset as the frame that a fit without a target cuts.

    Parameters
    ----------
    X : xarray.Dataset
        Has the variables.
    features : list of labels, optional
        Variables and coordinates; all by default. Rows are the points of their dimensions.
    weight : label, optional
        Variable of sample weights.

    Raises
    ------
    MissingColumnsError
        If a variable is not there.
    DataError
        If none has all of the dimensions, and ``features`` does not say that they are meant.
    """
    names = [*(names_of(X) if features is None else features)]
    names += [] if weight is None else [weight]
    column_positions(names_of(X), names)
    dims = _dims_of(X, names)
    if features is None and not any(set(X[name].dims) == set(dims) for name in names):
        raise DataError(
            f"no variable has all of the dimensions {listing(map(repr, dims))}, so it cannot be "
            f"said which points are rows; name the variables to learn from: features=[...]"
        )
    return make_grid(X, names, dims).frame()


def names_of(X: Any) -> list[Hashable]:
    """Return the names that are columns: coordinates with a dimension, then variables."""
    return [*(name for name in X.coords if X[name].ndim and not _of_tuples(X[name])), *X.data_vars]


def _of_tuples(coordinate: Any) -> bool:
    """Say whether a coordinate is that of stacked dimensions, which are coordinates too."""
    return coordinate.dtype == object and isinstance(coordinate.to_index(), pd.MultiIndex)


def _dims_of(X: Any, names: Sequence[Hashable]) -> tuple[Hashable, ...]:
    found = {dim for name in names for dim in X[name].dims}
    return tuple(dim for dim in X.sizes if dim in found)


def make_grid(X: Any, names: Sequence[Hashable], dims: Any = None) -> Grid:
    """Return the grid of some variables of a Dataset, over all of their dimensions.

    Parameters
    ----------
    X : xarray.Dataset
        Has the variables.
    names : sequence of hashable
        Variables and coordinates.
    dims : tuple of hashable, optional
        Those of the variables by default.
    """
    names = tuple(dict.fromkeys(names))
    dims = _dims_of(X, names) if dims is None else dims
    index = [dim for dim in dims if dim in X.coords and dim not in names]
    return Grid(X[[*names, *index]].unify_chunks(), names, dims)


def on_grid(
    grid: Grid, blocks: Sequence[Any], dtype: npt.DTypeLike, trailing: tuple[int, ...] = ()
) -> Any:
    """Return an array of the shape of a grid, and further dimensions.

    Parameters
    ----------
    grid : Grid
        Of B blocks.
    blocks : sequence of B arrays or Delayed
        Of shape (n, *trailing), in the order of the blocks.
    dtype : dtype
        Of them.
    trailing : tuple of int, default ()
        Lengths of the further dimensions.
    """
    if not grid.lazy:
        return np.reshape(blocks[0], (*map(sum, grid.chunks), *trailing))
    first = (0,) * len(trailing)  # the further dimensions are not cut
    parts = np.empty((*map(len, grid.chunks), *(1 for _ in trailing)), dtype=object)
    for place, block in zip(grid.places, blocks, strict=True):
        shape = (*grid.shape(place), *trailing)
        parts[*place, *first] = da.from_delayed(delayed(np.reshape)(block, shape), shape, dtype)
    return da.block(parts.tolist())


def data_array(X: Any, values: Any, dims: Sequence[Hashable], name: Hashable) -> Any:
    """Return values as a DataArray, with the coordinates of X along their dimensions.

    Parameters
    ----------
    X : xarray.Dataset or DataArray
        Has the dimensions, but for new ones.
    values : array
        Of the shape of these dimensions.
    dims : sequence of hashable
        Names of the dimensions.
    name : hashable
        Of the DataArray.
    """
    xarray = importlib.import_module("xarray")
    coords = {label: coord for label, coord in X.coords.items() if set(coord.dims) <= set(dims)}
    return xarray.DataArray(values, coords=coords, dims=dims, name=name)
