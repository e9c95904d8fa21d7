"""Columns of other Dask collections brought to the rows of X, by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

from squeak_dist._typing import IntArray
from squeak_dist.distributed.failures import Guarded
from squeak_dist.errors import DataError

_CURE = "put it into X as a column and name it: target=..., sample_weight=..."


def join_by_index(X: Any, others: Mapping[str, tuple[str, Any]]) -> Any:
    """Return X with the columns of other collections, each row with its own.

    Parameters
    ----------
    X : Dask DataFrame
        Its labels are distinct.
    others : mapping of label to (name, Dask Series)
        New columns: their labels, what the user calls the collection they are from, and
        the values.

    Returns
    -------
    Dask DataFrame
        The rows of X, in their order: rows that another collection alone has are left out.

    Raises
    ------
    DataError
        If partitions cannot be matched; in a task, if the index of a partition is
        not where the divisions say, if a row of X has no row in another collection, or
        could have several.

    Notes
    -----
    Rows are matched by the labels of the index. As many partitions of unknown divisions
    are matched one to one; where labels start again in each, rows could then be taken for
    those of another partition: so the indexes of each pair must be equal. Unknown divisions
    and other numbers of partitions cost a shuffle by the index.
    """
    collections = [X, *(series for _, series in others.values())]
    names = ["X", *(name for name, _ in others.values())]
    zipped = len({c.divisions for c in collections}) == 1
    if not zipped:
        collections = _cut_alike(collections, names)
    empty = pd.DataFrame(
        {label: pd.Series(dtype=dtype) for label, dtype in zip(X.columns, X.dtypes, strict=True)}
        | {label: pd.Series(dtype=series.dtype) for label, (_, series) in others.items()}
    )
    return dd.map_partitions(
        Guarded(_join),  # a Failure instead of a frame, for the task that cuts it
        *collections,
        labels=tuple(others),
        names=tuple(names[1:]),
        strict=zipped and not X.known_divisions,
        meta=empty,
        align_dataframes=False,
        enforce_metadata=False,
    )


def _cut_alike(collections: list[Any], names: list[str]) -> list[Any]:
    """Return the collections cut at the divisions of all of them, or where hashes say."""
    if all(c.known_divisions for c in collections):
        checked = [
            c.map_partitions(_check_divisions, c.divisions, name, enforce_metadata=False)
            for c, name in zip(collections, names, strict=True)
        ]
        try:
            divisions = sorted({edge for c in collections for edge in c.divisions})
            return [c.repartition(divisions=divisions, force=True) for c in checked]
        except (TypeError, ValueError, AssertionError) as error:
            raise _unalignable(names, error) from error
    if any(c.known_divisions for c in collections):
        raise _unalignable(names, "the divisions of some are known, of others not")
    counts = [c.npartitions for c in collections]
    return [c.shuffle(on_index=True, npartitions=max(counts)) for c in collections]


def _unalignable(names: list[str], why: object) -> DataError:
    others = " and ".join(dict.fromkeys(names[1:]))
    return DataError(f"X and {others} cannot be aligned by index ({why}); {_CURE}")


def _check_divisions(
    part: Any, divisions: tuple[Any, ...], name: str, partition_info: Any = None
) -> Any:
    """Return the partition; DataError if its labels lie where the divisions do not say."""
    if partition_info is None or not len(part):
        return part  # Dask asks for the type of the result
    number = partition_info["number"]
    low, high = divisions[number], divisions[number + 1]
    last = number == len(divisions) - 2
    labels = part.index
    if labels.min() >= low and (labels.max() < high or (last and labels.max() == high)):
        return part
    raise DataError(
        f"the index of {name} is not where its divisions say: partition {number} has labels from "
        f"{labels.min()} to {labels.max()}, its divisions are {low} to {high}; rows would be lost "
        f"in the alignment. After a reset_index in map_partitions call clear_divisions(), or "
        f"{_CURE}"
    )


def _join(
    part: pd.DataFrame,
    *columns: pd.Series[Any],
    labels: tuple[str, ...],
    names: tuple[str, ...],
    strict: bool,
) -> pd.DataFrame:
    """Return the rows of one partition of X with the values of the others."""
    joined: list[pd.DataFrame | pd.Series[Any]] = [part]
    for label, name, column in zip(labels, names, columns, strict=True):
        if not column.index.equals(part.index):
            column = column.iloc[_positions(part.index, column.index, name, strict=strict)]
        joined.append(column.rename(label).set_axis(part.index))
    return pd.concat(joined, axis=1)


def _positions(rows: Any, labels: Any, name: str, *, strict: bool) -> IntArray:
    """Return where each label of X stands among those of another collection."""
    if not labels.is_unique:
        repeated = _shown(labels[labels.duplicated()].unique())
        raise DataError(
            f"the index of {name} repeats labels (index {repeated}) and is not that of X, so it "
            f"cannot be said which row belongs to which; {_CURE}"
        )
    found = np.asarray(labels.get_indexer(rows), dtype=np.int64)
    alone = rows[found < 0]
    if len(alone):
        raise DataError(
            f"the indexes of X and {name} do not match: in one partition, {len(alone):,} of "
            f"{len(rows):,} rows of X (index {_shown(alone)}) have no row in {name}; give both "
            f"the same index, or {_CURE}"
        )
    if strict and len(labels) != len(rows):
        raise DataError(
            f"a partition of {name} has {len(labels):,} rows, but its partition of X has "
            f"{len(rows):,}, and divisions are not known, so labels may mean other rows; take "
            f"both from the same rows, or {_CURE}"
        )
    return found


def _shown(labels: Any) -> str:
    return ", ".join(map(str, labels[:3])) + (", …" if len(labels) > 3 else "")
