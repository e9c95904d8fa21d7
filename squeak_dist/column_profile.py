"""What is known of one feature column: its kind, what is missing, its levels; mergeable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from squeak_dist._typing import BoolArray
from squeak_dist.columns import DAY, ColumnValues, Kind, kind_name
from squeak_dist.errors import ColumnTypeError

_MAX_LEVELS_KEPT = 10_000


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What is known of one feature column, apart from its moments.

    Parameters
    ----------
    label : hashable
        The user's label.
    kind : str or None
        See :func:`~squeak_dist.columns.column_kind`; None while nothing but missing
        values was seen.
    missing, infinite : int
        Rows with such a value, dropped rows included.
    levels : mapping of str to int
        Kept rows of each level of a categorical column; at most 10,000.
    distinct : int
        Number of distinct levels; a lower bound where ``truncated``.
    truncated : bool
        True where rare levels were let go.
    order : tuple of str, optional
        All levels of an ordered categorical, in order.
    has_time : bool
        True where a datetime column has a time of day.
    seen_in : int, optional
        A partition where the column has this kind.
    """

    label: Hashable
    kind: Kind | None
    missing: int
    infinite: int
    levels: Mapping[str, int]
    distinct: int
    truncated: bool
    order: tuple[str, ...] | None
    has_time: bool
    seen_in: int | None


def profile_column(
    label: Hashable, column: ColumnValues, keep: BoolArray, infinite: int, partition: int
) -> ColumnProfile:
    """Profile a column of one partition, of n rows.

    Parameters
    ----------
    label : hashable
        The user's label.
    column : ColumnValues of n values
        What was read.
    keep : ndarray of bool, shape (n,)
        Rows that the missing policy keeps; levels and times of others do not count.
    infinite : int
        Number of infinite values.
    partition : int
        Number of the partition.
    """
    missing = column.n_missing
    seen = missing < len(keep)
    levels = _level_counts(column, keep)
    kept_levels = _most_frequent(levels)
    has_time = column.kind == "datetime" and bool(np.any(_time_of_day(column.numbers)[keep]))
    orderly = column.ordered and len(column.levels) <= _MAX_LEVELS_KEPT
    return ColumnProfile(
        label=label,
        kind=column.kind if seen else None,
        missing=missing,
        infinite=infinite,
        levels=kept_levels,
        distinct=len(levels),
        truncated=len(kept_levels) < len(levels),
        order=column.levels if orderly else None,
        has_time=has_time,
        seen_in=partition if seen else None,
    )


def _time_of_day(seconds: npt.NDArray[Any] | None) -> BoolArray:
    assert seconds is not None
    with np.errstate(invalid="ignore"):
        return np.mod(np.nan_to_num(seconds), DAY) != 0


def _level_counts(column: ColumnValues, keep: BoolArray) -> dict[str, int]:
    if column.codes is None:
        return {}
    codes = column.codes[keep & (column.codes >= 0)]
    counts = np.bincount(codes, minlength=len(column.levels)).tolist()
    return {level: n for level, n in zip(column.levels, counts, strict=True) if n}


def sorted_levels(levels: Mapping[str, int]) -> list[str]:
    """Return the levels by falling count, ties by text."""
    return sorted(levels, key=lambda level: (-levels[level], level))


def _most_frequent(levels: Mapping[str, int]) -> Mapping[str, int]:
    if len(levels) <= _MAX_LEVELS_KEPT:
        return levels
    return {level: levels[level] for level in sorted_levels(levels)[:_MAX_LEVELS_KEPT]}


def merge_columns(a: ColumnProfile, b: ColumnProfile) -> ColumnProfile:
    """Return the profile of one column over the rows of both.

    Raises
    ------
    ColumnTypeError
        If it is of different kinds in the two, naming a partition of each.
    """
    levels = dict(a.levels)
    for level, count in b.levels.items():
        levels[level] = levels.get(level, 0) + count
    kept = _most_frequent(levels)
    return ColumnProfile(
        label=a.label,
        kind=_merge_kinds(a, b),
        missing=a.missing + b.missing,
        infinite=a.infinite + b.infinite,
        levels=kept,
        distinct=max(a.distinct, b.distinct, len(levels)),
        truncated=a.truncated or b.truncated or len(kept) < len(levels),
        order=_merge_orders(a, b),
        has_time=a.has_time or b.has_time,
        seen_in=b.seen_in if a.kind is None else a.seen_in,
    )


def _merge_kinds(a: ColumnProfile, b: ColumnProfile) -> Kind | None:
    if a.kind is None or b.kind is None or a.kind == b.kind:
        return a.kind or b.kind
    if {a.kind, b.kind} == {"boolean", "numeric"}:
        return "numeric"
    raise ColumnTypeError(
        f"column {a.label!r} is {kind_name(a.kind)} in partition {a.seen_in} but "
        f"{kind_name(b.kind)} in partition {b.seen_in}; give it one dtype with "
        f"astype, or leave it out of the features"
    )


def _merge_orders(a: ColumnProfile, b: ColumnProfile) -> tuple[str, ...] | None:
    """Return the longer order if it contains the shorter one, else None (not ordered)."""
    if a.kind is None or b.kind is None:
        return a.order if b.kind is None else b.order
    if a.order is None or b.order is None:
        return None
    longer, shorter = (a.order, b.order) if len(a.order) >= len(b.order) else (b.order, a.order)
    members = set(shorter)
    return longer if tuple(level for level in longer if level in members) == shorter else None
