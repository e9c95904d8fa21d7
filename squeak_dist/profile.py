"""What one pass over a table learns: a mergeable value, partition by partition.

A partition is cut by name into features, targets and weights
(:func:`~squeak_dist.table.cut_table`), summarized (:func:`profile_table`) and the
summaries are merged (:func:`merge_profiles`): rows, missing and infinite values,
moments, levels and a seeded row sample. Nothing here knows about a cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.column_profile import ColumnProfile, merge_columns, profile_column
from squeak_dist.columns import ColumnValues, read_column
from squeak_dist.errors import DataError, InvalidParameterError
from squeak_dist.moments import Moments, block_moments, merge_moments, no_moments
from squeak_dist.row_sample import RowSample, merge_samples, sample_table
from squeak_dist.table import Table, check_policy, kept_rows, row_blocks


@dataclass(frozen=True, eq=False)
class Profile:
    """What is known of some partitions after one pass over them; mergeable.

    Parameters
    ----------
    partition_rows : mapping of int to int
        Rows of each partition, as they came.
    partition_kept : mapping of int to int
        Rows of each partition after the missing policy.
    columns : tuple of ColumnProfile
        One per feature.
    moments : Moments of length d
        Of the features over kept rows; of weight 0 for categorical columns.
    target_missing, target_infinite : ndarray of int64, shape (k,)
        Rows with such a target.
    target_moments : Moments of length k
        Weighted, over kept rows of positive weight.
    weight_sum : float
        Sum of the weights of the kept rows; their number without weights.
    weight_negative, weight_missing, weight_infinite : int
        Rows with such a weight.
    sample : RowSample
        Uniform sample of at most ``sample_rows`` kept rows.
    sample_rows : int
        Size of the sample.
    uncounted : tuple of hashable
        Columns for whose missing values no row is dropped.
    """

    partition_rows: Mapping[int, int]
    partition_kept: Mapping[int, int]
    columns: tuple[ColumnProfile, ...]
    moments: Moments
    target_missing: IntArray
    target_infinite: IntArray
    target_moments: Moments
    weight_sum: float
    weight_negative: int
    weight_missing: int
    weight_infinite: int
    sample: RowSample
    sample_rows: int
    uncounted: tuple[Hashable, ...] = ()

    @property
    def rows(self) -> int:
        """Rows as they came."""
        return sum(self.partition_rows.values())

    @property
    def kept(self) -> int:
        """Rows left after the missing policy."""
        return sum(self.partition_kept.values())

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """Labels of the features."""
        return tuple(column.label for column in self.columns)

    @property
    def target_mean(self) -> Float64Array:
        """Weighted mean of the targets, shape (k,)."""
        return self.target_moments.mean

    @property
    def target_variance(self) -> Float64Array:
        """Weighted population variance of the targets, shape (k,)."""
        return self.target_moments.variance


def profile_table(
    table: Table,
    *,
    partition: int,
    missing: str,
    seed: int,
    sample_rows: int,
    uncounted: tuple[Hashable, ...] = (),
) -> Profile:
    """Profile one partition.

    Parameters
    ----------
    table : Table of n rows
        The partition; may be empty.
    partition : int
        Its number, which its random numbers depend on.
    missing : {"raise", "impute", "drop"}
        With "impute" rows without a target are dropped, with "drop" rows with
        any missing feature or target; with "raise" they are only counted.
    seed : int
        Seed of the row sample.
    sample_rows : int
        Size of the row sample, at least 0.
    uncounted : tuple of hashable, optional
        Columns for whose missing values no row is dropped: those that the fit leaves out.

    Returns
    -------
    Profile

    Raises
    ------
    ColumnTypeError
        If a feature has a type that cannot be used.
    InvalidParameterError
        For an unknown policy.

    Notes
    -----
    Cost: about ten passes over the numbers; the temporaries are 1 MiB per block.
    """
    check_policy(missing)
    columns = [read_column(series) for _, series in table.features.items()]
    counted = [
        column
        for label, column in zip(table.features.columns, columns, strict=True)
        if label not in uncounted
    ]
    keep = kept_rows(counted, table.targets, missing)
    weights = _valid_weights(table.weights)
    infinite, moments = _feature_moments(columns, keep)
    target_infinite = np.count_nonzero(np.isinf(table.targets), axis=0)
    return Profile(
        partition_rows={partition: len(table.targets)},
        partition_kept={partition: int(np.count_nonzero(keep))},
        columns=tuple(
            profile_column(label, column, keep, count, partition)
            for label, column, count in zip(table.features.columns, columns, infinite, strict=True)
        ),
        moments=moments,
        target_missing=np.count_nonzero(np.isnan(table.targets), axis=0).astype(np.int64),
        target_infinite=target_infinite.astype(np.int64),
        target_moments=_target_moments(table.targets, weights, keep),
        weight_sum=float(np.count_nonzero(keep) if weights is None else weights[keep].sum()),
        weight_negative=0 if table.weights is None else int(np.sum(table.weights < 0)),
        weight_missing=0 if table.weights is None else int(np.isnan(table.weights).sum()),
        weight_infinite=0 if table.weights is None else int(np.isinf(table.weights).sum()),
        sample=sample_table(table, columns, keep, partition, seed, sample_rows),
        sample_rows=sample_rows,
        uncounted=uncounted,
    )


def _valid_weights(weights: Float64Array | None) -> Float64Array | None:
    """Return the weights with 0 where they are missing, negative or infinite."""
    if weights is None:
        return None
    return np.where(np.isfinite(weights) & (weights > 0), weights, 0.0)


def _feature_moments(
    columns: Sequence[ColumnValues], keep: BoolArray
) -> tuple[list[int], Moments]:
    """Return the infinite values of each column, and the moments over kept rows."""
    numbers = [(j, c.numbers) for j, c in enumerate(columns) if c.numbers is not None]
    infinite = np.zeros(len(columns), np.int64)
    places = np.array([j for j, _ in numbers], np.int64)
    merged = no_moments(len(numbers))
    everything = bool(keep.all())
    for rows in row_blocks(len(keep), len(numbers)):
        block = np.empty((len(numbers), rows.stop - rows.start))
        for i, (_, values) in enumerate(numbers):
            block[i] = values[rows]
        infinite[places] += np.count_nonzero(np.isinf(block), axis=1)
        block = block if everything else block[:, keep[rows]]
        merged = merge_moments(merged, block_moments(block))
    return infinite.tolist(), _spread_out(merged, places, len(columns))


def _spread_out(moments: Moments, places: IntArray, d: int) -> Moments:
    """Return moments of d columns: the given ones at their places, none elsewhere."""
    result = no_moments(d)
    columns = {f.name: getattr(result, f.name).copy() for f in fields(Moments)}
    for name, column in columns.items():
        column[places] = getattr(moments, name)
    return Moments(**columns)


def _target_moments(
    targets: Float64Array, weights: Float64Array | None, keep: BoolArray
) -> Moments:
    merged = no_moments(targets.shape[1])
    for rows in row_blocks(len(keep), targets.shape[1]):
        kept = keep[rows]
        block = np.ascontiguousarray(targets[rows][kept].T)
        merged = merge_moments(
            merged, block_moments(block, None if weights is None else weights[rows][kept])
        )
    return merged


def merge_profiles(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of the partitions of all the given profiles.

    Parameters
    ----------
    profiles : sequence of Profile
        At least one, of different partitions of one table.

    Returns
    -------
    Profile
        The same bits for the same sequence. The sample, the counts, the levels
        (below 10,000) do not depend on how the merges are grouped.

    Raises
    ------
    ColumnTypeError
        If a column is of one kind in a partition and of another kind in another.
    InvalidParameterError
        If there are no profiles, or two of them hold the same partition.
    DataError
        If the profiles are of different columns.
    """
    if not profiles:
        raise InvalidParameterError("got no profiles to merge; at least one is needed")
    if len({profile.labels for profile in profiles}) > 1:
        raise DataError("profiles of different columns cannot be merged")
    columns = tuple(
        reduce(merge_columns, column)
        for column in zip(*(profile.columns for profile in profiles), strict=True)
    )
    sample_rows = max(profile.sample_rows for profile in profiles)
    kinds = tuple(column.kind for column in columns)
    return Profile(
        partition_rows=_disjoint_union([p.partition_rows for p in profiles]),
        partition_kept=_disjoint_union([p.partition_kept for p in profiles]),
        columns=columns,
        moments=reduce(merge_moments, [p.moments for p in profiles]),
        target_missing=np.sum([p.target_missing for p in profiles], axis=0),
        target_infinite=np.sum([p.target_infinite for p in profiles], axis=0),
        target_moments=reduce(merge_moments, [p.target_moments for p in profiles]),
        weight_sum=sum(p.weight_sum for p in profiles),
        weight_negative=sum(p.weight_negative for p in profiles),
        weight_missing=sum(p.weight_missing for p in profiles),
        weight_infinite=sum(p.weight_infinite for p in profiles),
        sample=merge_samples([p.sample for p in profiles], kinds, sample_rows),
        sample_rows=sample_rows,
        uncounted=profiles[0].uncounted,
    )


def _disjoint_union(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    union: dict[int, int] = {}
    for rows in counts:
        twice = union.keys() & rows.keys()
        if twice:
            raise InvalidParameterError(f"partitions {sorted(twice)} were profiled twice")
        union |= rows
    return union
