"""A uniform sample of rows by random priorities, whichever way partitions are merged."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.columns import ColumnValues, Kind, from_numbers
from squeak_dist.table import Table


@dataclass(frozen=True, eq=False)
class RowSample:
    """A uniform sample of the kept rows, by priority.

    Parameters
    ----------
    columns : tuple of ndarray, each of shape (s,)
        float64 (NaN where missing) or, for categorical columns, object (None).
    labels : tuple of hashable
        The labels of the columns.
    kinds : tuple of str or None
        Their kinds.
    targets : ndarray of float64, shape (s, k)
        Targets.
    weights : ndarray of float64, shape (s,), optional
        Sample weights.
    priorities : ndarray of float64, shape (s,)
        Ascending; the rows of the smallest priorities of all are the sample.
    """

    columns: tuple[npt.NDArray[Any], ...]
    labels: tuple[Hashable, ...]
    kinds: tuple[Kind | None, ...]
    targets: Float64Array
    weights: Float64Array | None
    priorities: Float64Array

    def __len__(self) -> int:
        return len(self.priorities)

    @cached_property
    def features(self) -> pd.DataFrame:
        """The features in the user's units: numbers as float64, levels as text, UTC times."""
        columns = dict(enumerate(map(from_numbers, self.columns, self.kinds)))
        frame = pd.DataFrame(columns, index=pd.RangeIndex(len(self)))
        frame.columns = pd.Index(self.labels, tupleize_cols=False)
        return frame


def sample_table(
    table: Table,
    columns: Sequence[ColumnValues],
    keep: BoolArray,
    partition: int,
    seed: int,
    size: int,
) -> RowSample:
    """Sample the kept rows of one partition.

    Parameters
    ----------
    table : Table of n rows
        The partition, with its targets and weights.
    columns : sequence of ColumnValues
        Its features, read.
    keep : ndarray of bool, shape (n,)
        Rows to sample from.
    partition : int
        Its number, which the random numbers depend on.
    seed : int
        Seed of the random numbers.
    size : int
        Most rows to take.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0, partition)))
    priorities = rng.random(len(keep))
    rows = np.flatnonzero(keep)
    rows = rows[smallest(priorities[rows], size)]
    return RowSample(
        columns=tuple(_plain_values(column, rows) for column in columns),
        labels=tuple(table.features.columns),
        kinds=tuple(column.kind for column in columns),
        targets=table.targets[rows],
        weights=None if table.weights is None else table.weights[rows],
        priorities=priorities[rows],
    )


def smallest(priorities: Float64Array, size: int) -> IntArray:
    """Return the positions of the smallest priorities, ascending."""
    positions = np.arange(len(priorities))
    if size < len(priorities):
        positions = np.argpartition(priorities, max(size - 1, 0))[:size]
    return positions[np.argsort(priorities[positions], kind="stable")]


def _plain_values(column: ColumnValues, rows: IntArray) -> npt.NDArray[Any]:
    if column.numbers is not None:
        return column.numbers[rows].astype(np.float64)
    assert column.codes is not None
    return np.array([*column.levels, None], dtype=object)[column.codes[rows]]


def merge_samples(
    samples: Sequence[RowSample], kinds: tuple[Kind | None, ...], size: int
) -> RowSample:
    """Return the ``size`` rows of the smallest priorities of all, as columns of ``kinds``."""
    priorities = np.concatenate([sample.priorities for sample in samples])
    rows = smallest(priorities, size)
    weights = [sample.weights for sample in samples if sample.weights is not None]
    return RowSample(
        columns=tuple(
            _join_values([sample.columns[j] for sample in samples], kind)[rows]
            for j, kind in enumerate(kinds)
        ),
        labels=samples[0].labels,
        kinds=kinds,
        targets=np.concatenate([sample.targets for sample in samples])[rows],
        weights=np.concatenate(weights)[rows] if len(weights) == len(samples) else None,
        priorities=priorities[rows],
    )


def _join_values(pieces: Iterable[npt.NDArray[Any]], kind: Kind | None) -> npt.NDArray[Any]:
    """Concatenate; a piece of the other type holds nothing but missing values."""
    dtype = object if kind == "categorical" else np.float64
    blank = None if kind == "categorical" else np.nan
    return np.concatenate(
        [p if p.dtype == dtype else np.full(len(p), blank, dtype) for p in pieces]
    )
