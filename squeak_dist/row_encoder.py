"""Rows of numbers from a frame or an array, written block by block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from squeak_dist._typing import BoolArray, Float64Array, FloatArray, IntArray
from squeak_dist.column_encoding import (
    LEVEL_DISTANCE,
    ColumnEncoding,
    level_places,
    read_numbers,
)
from squeak_dist.columns import DAY
from squeak_dist.errors import DataError, InfiniteValuesError, MissingValuesError
from squeak_dist.table import as_slice, column_positions, named_counts, row_blocks

_PERIODS = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where everything goes, worked out once per encoding.

    ``numbers`` are the positions of the columns that are read as numbers; ``values``
    and ``indicators`` are rows of their block, and ``..._slots`` where they go.
    """

    numbers: tuple[int, ...]
    values: IntArray
    value_slots: slice | IntArray
    indicators: IntArray
    indicator_slots: IntArray
    center: Float64Array
    scale: Float64Array
    fill: Float64Array


@dataclass(frozen=True, eq=False)
class RowEncoder:
    """An encoding at work.

    Parameters
    ----------
    columns, missing, standardize, dtype
        As :class:`~squeak_dist.encoding.FeatureEncoding` has them.
    """

    columns: tuple[ColumnEncoding, ...]
    missing: str
    standardize: bool
    dtype: str

    @cached_property
    def slots(self) -> tuple[slice, ...]:
        """Where the encoded columns of each column stand."""
        stops = list(accumulate(len(column.names) for column in self.columns))
        return tuple(map(slice, [0, *stops[:-1]], stops))

    @property
    def width(self) -> int:
        """Number of encoded columns, p."""
        return self.slots[-1].stop if self.slots else 0

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The user's labels, in order."""
        return tuple(column.label for column in self.columns)

    @cached_property
    def used_labels(self) -> tuple[Hashable, ...]:
        """Those of the columns that are encoded."""
        return tuple(column.label for column in self.columns if column.names)

    def encode(self, features: pd.DataFrame | npt.NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        """Encode a table: see :meth:`FeatureEncoding.encode`."""
        if not isinstance(features, pd.DataFrame):
            features = np.asarray(features)
            self._check_shape(features)
            if self._plain and features.dtype.kind in "biuf":
                return self._encode_array(features)
            features = pd.DataFrame(features)
            features.columns = pd.Index(self.labels, tupleize_cols=False)
        return self._encode_frame(features)

    @cached_property
    def _plain(self) -> bool:
        """Whether every column that is used is a plain number."""
        return all(c.kind in ("numeric", "boolean") for c in self.columns if c.names)

    @cached_property
    def _layout(self) -> _Layout:
        numbers = [j for j, c in enumerate(self.columns) if c.names and c.kind != "categorical"]
        chosen = [self.columns[j] for j in numbers]
        starts = [self.slots[j].start for j in numbers]
        values = [i for i, column in enumerate(chosen) if column.value]
        indicators = [i for i, column in enumerate(chosen) if column.indicator]
        return _Layout(
            numbers=tuple(numbers),
            values=np.array(values, np.int64),
            value_slots=as_slice([starts[i] for i in values]),
            indicators=np.array(indicators, np.int64),
            indicator_slots=np.array([starts[i] + chosen[i].value for i in indicators], np.int64),
            center=np.array([column.center for column in chosen])[:, None],
            scale=np.array([column.scale for column in chosen])[:, None],
            fill=np.array([column.fill for column in chosen])[:, None],
        )

    def _check_shape(self, features: npt.NDArray[Any]) -> None:
        if features.ndim != 2:
            raise DataError(
                f"Expected 2D array, got {features.ndim}D array instead; use X.reshape(-1, 1) for "
                f"a single feature or X.reshape(1, -1) for a single row"
            )
        if features.shape[1] != len(self.columns):
            raise DataError(
                f"X has {features.shape[1]} features, but squeak_dist is expecting "
                f"{len(self.columns)} features as input"
            )

    def _encode_array(self, X: npt.NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        positions = list(self._layout.numbers)
        everything = len(positions) == X.shape[1]

        def read(rows: slice) -> Float64Array:
            block = np.array(X[rows].T, np.float64, order="C")
            return block if everything else block[positions]

        out, kept = self._write_numbers(read, len(X))
        return (out if kept.all() else out[kept]), kept

    def _encode_frame(self, frame: pd.DataFrame) -> tuple[FloatArray, BoolArray]:
        positions = column_positions(frame.columns, self.used_labels)
        used = [j for j, column in enumerate(self.columns) if column.names]
        series = {j: frame.iloc[:, place] for j, place in zip(used, positions, strict=True)}
        numbers = [read_numbers(self.columns[j], series[j]) for j in self._layout.numbers]

        def read(rows: slice) -> Float64Array:
            block = np.empty((len(numbers), rows.stop - rows.start))
            for i, values in enumerate(numbers):
                block[i] = values[rows]
            return block

        out, kept = self._write_numbers(read, len(frame))
        self._write_levels(series, out, kept)
        return (out if kept.all() else out[kept]), kept

    def _write_numbers(
        self, read: Callable[[slice], Float64Array], n: int
    ) -> tuple[FloatArray, BoolArray]:
        """Return n rows with the columns made of numbers filled, and which rows are complete."""
        layout, k = self._layout, len(self._layout.numbers)
        out, kept = np.empty((n, self.width), self.dtype), np.ones(n, np.bool_)
        missing, infinite = np.zeros(k, np.int64), np.zeros(k, np.int64)
        for rows in row_blocks(n, k) if k else ():
            block, target = read(rows), out[rows]
            absent = None
            if not np.isfinite(block).all():
                absent = np.isnan(block)
                missing += absent.sum(axis=1)
                infinite += np.isinf(block).sum(axis=1)
                if self.missing == "impute":
                    block = np.where(absent, layout.fill, block)
                elif self.missing == "drop":
                    kept[rows] = ~absent.any(axis=0)
            self._write_indicators(absent, target)
            self._write_cycles(block, target)
            self._write_values(block, target)
        names = [repr(self.columns[j].label) for j in layout.numbers]
        _raise_infinite(names, infinite)
        if self.missing == "raise":
            _raise_missing(names, missing)
        return out, kept

    def _write_indicators(self, absent: BoolArray | None, out: FloatArray) -> None:
        if len(self._layout.indicators):
            size = LEVEL_DISTANCE if self.standardize else 1.0
            shown = 0.0 if absent is None else absent[self._layout.indicators].T * size
            out[:, self._layout.indicator_slots] = shown

    def _write_values(self, block: Float64Array, out: FloatArray) -> None:
        layout = self._layout
        try:
            with np.errstate(over="raise"):  # infinite values overflow nothing
                np.subtract(block, layout.center, out=block)
                np.multiply(block, layout.scale, out=block)
                everything = len(layout.values) == len(block)
                out[:, layout.value_slots] = (block if everything else block[layout.values]).T
        except FloatingPointError:
            raise InfiniteValuesError(
                f"values too large for {self.dtype} after centring; pass "
                f'dtype="float64" or standardize=True'
            ) from None

    def _write_cycles(self, block: Float64Array, out: FloatArray) -> None:
        for i, j in enumerate(self._layout.numbers):
            cycles = self.columns[j].cycles
            slot = self.slots[j].stop - 2 * len(cycles)
            for cycle in cycles:
                period = _PERIODS[cycle]
                phase = np.mod(block[i], period) * (2 * np.pi / period)
                out[:, slot] = np.sin(phase)
                out[:, slot + 1] = np.cos(phase)
                slot += 2

    def _write_levels(
        self, series: Mapping[int, pd.Series[Any]], out: FloatArray, kept: BoolArray
    ) -> None:
        """Write the 0/1 columns of the levels; with "drop", rows without one are not kept."""
        chosen = [j for j, c in enumerate(self.columns) if c.kind == "categorical" and c.names]
        missing, places = np.zeros(len(chosen), np.int64), {}
        for i, j in enumerate(chosen):
            places[j], absent = level_places(self.columns[j], series[j])
            missing[i] = np.count_nonzero(absent)
            if self.missing == "drop":
                kept &= ~absent
        if self.missing == "raise":
            _raise_missing([repr(self.columns[j].label) for j in chosen], missing)
        for rows in row_blocks(len(out), self.width):
            for j in chosen:
                target = out[rows, self.slots[j]]
                target[...] = 0
                shown = np.flatnonzero(places[j][rows] >= 0)
                target[shown, places[j][rows][shown]] = 1


def _raise_infinite(names: Sequence[str], counts: IntArray) -> None:
    if counts.any():
        affected = named_counts(zip(names, counts.tolist(), strict=True))
        raise InfiniteValuesError(f"infinite values (inf) in {affected}; replace or remove them")


def _raise_missing(names: Sequence[str], counts: IntArray) -> None:
    if counts.any():
        affected = named_counts(zip(names, counts.tolist(), strict=True))
        raise MissingValuesError(
            f"missing values (NaN, or unseen levels of ordered categories) in {affected}, and the "
            f'encoding was made with missing="raise"; fit with missing="impute" or '
            f'missing="drop"'
        )
