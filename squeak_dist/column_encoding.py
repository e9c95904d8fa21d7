"""How one column of the user becomes encoded columns, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_object_dtype

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.columns import Kind, column_kind, from_numbers, kind_name, named_kind, read_column
from squeak_dist.errors import ColumnTypeError, InvalidParameterError

EncodedKind = Literal["numeric", "boolean", "ordinal", "datetime", "timedelta", "categorical"]

LEVEL_DISTANCE = math.sqrt(2.0)  # between the 0/1 rows of two levels

_OTHER = "<other>"


@dataclass(frozen=True)
class ColumnEncoding:
    """How one of the user's columns becomes encoded columns.

    Parameters
    ----------
    label : hashable
        The user's label.
    kind : str
        As :func:`~squeak_dist.columns.column_kind`, or ``"ordinal"`` for an ordered categorical.
    center, scale : float
        A number x becomes (x − center) · scale.
    fill : float
        What a missing number is replaced by with ``missing="impute"``.
    value : bool
        True where the number itself is encoded; False where it is constant.
    indicator : bool
        True where missing values have a column of their own.
    levels : tuple of str
        Levels with a column each (categorical), or in order (ordinal).
    other : bool
        True where all other levels share a column.
    cycles : tuple of str
        Of ``"year"``, ``"week"``, ``"day"``: sine and cosine of the time.
    """

    label: Hashable
    kind: EncodedKind
    center: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    value: bool = False
    indicator: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False
    cycles: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns, in order; empty where the column is left out."""
        name = str(self.label)
        missing = (f"{name} is missing",) * self.indicator
        if self.kind == "categorical":
            levels = (*self.levels, *(_OTHER,) * self.other)
            return (*(f"{name}={level}" for level in levels), *missing)
        waves = (f"{name} ({wave} {cycle})" for cycle in self.cycles for wave in ("sin", "cos"))
        return (*(name,) * self.value, *missing, *waves)

    @property
    def expects(self) -> tuple[Kind, ...]:
        """The kinds of column that can be encoded; empty where any can."""
        if not self.names or self.kind in ("categorical", "ordinal"):
            return ()
        if self.kind in ("numeric", "boolean"):
            return ("numeric", "boolean")
        return ("datetime",) if self.kind == "datetime" else ("timedelta",)

    def check_dtype(self, dtype: Any) -> None:
        """Raise ColumnTypeError if no column of that dtype can be encoded.

        A column of dtype object passes: its values decide when it is read.
        """
        if not self.names or is_object_dtype(dtype) or str(dtype) == "null[pyarrow]":
            return
        kind = named_kind(self.label, dtype)
        if not self.expects:
            # Other types than these may hold nothing but missing values.
            if isinstance(dtype, np.dtype) and dtype.kind in "biu":
                self.check_levels(kind, dtype)
            return
        # A float column may hold nothing but NaN, so its values decide.
        if kind not in (*self.expects, "numeric"):
            raise _type_error(self, kind, dtype)

    def check_levels(self, kind: Kind, dtype: Any) -> None:
        """Raise ColumnTypeError if no level of the fit reads like a value of that kind."""
        if not any(_reads_like(level, kind) for level in self.levels):
            raise _type_error(self, kind, dtype)

    def to_config(self) -> dict[str, Any]:
        """Return all but center, scale and fill as strict JSON values.

        Raises
        ------
        InvalidParameterError
            If the label is not a string, a number, a boolean, None or a tuple of these.
        """
        return {
            "label": _plain_label(self.label),
            "kind": self.kind,
            "value": self.value,
            "indicator": self.indicator,
            "levels": list(self.levels),
            "other": self.other,
            "cycles": list(self.cycles),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, center: float, scale: float, fill: float
    ) -> ColumnEncoding:
        """Return the encoding that :meth:`to_config` described.

        Parameters
        ----------
        config : mapping
            What :meth:`to_config` returned.
        center, scale, fill : float
            The numbers that it leaves to arrays.
        """
        return cls(
            label=_hashable_label(config["label"]),
            kind=config["kind"],
            center=center,
            scale=scale,
            fill=fill,
            value=bool(config["value"]),
            indicator=bool(config["indicator"]),
            levels=tuple(config["levels"]),
            other=bool(config["other"]),
            cycles=tuple(config["cycles"]),
        )


def _reads_like(level: str, kind: Kind) -> bool:
    """Say whether a value of the kind may have that text."""
    if kind == "categorical":
        return True
    if kind == "boolean":
        return level in ("True", "False")
    make = {"numeric": float, "datetime": pd.Timestamp, "timedelta": pd.Timedelta}[kind]
    try:
        make(level)
    except ValueError:
        return False
    return True


def _type_error(column: ColumnEncoding, kind: str | None, dtype: Any) -> ColumnTypeError:
    was = f"text (levels {', '.join(map(repr, column.levels[:3]))}, …)"
    was = was if column.kind in ("categorical", "ordinal") else column.kind
    return ColumnTypeError(
        f"column {column.label!r} was {was} in the fit but is {kind_name(kind)} here "
        f"(dtype {dtype}); convert it with astype"
    )


def read_numbers(column: ColumnEncoding, series: pd.Series[Any]) -> npt.NDArray[Any]:
    """Read a column as the numbers that the encoding expects, NaN where there is none.

    Raises
    ------
    ColumnTypeError
        If the values are of another kind than in the fit.
    """
    if column.kind == "ordinal":
        places, _ = level_places(column, series)
        return np.where(places >= 0, places, np.nan)
    read = read_column(series)
    if read.kind in column.expects:
        assert read.numbers is not None
        return read.numbers
    if read.n_missing < len(series):
        raise _type_error(column, read.kind, series.dtype)
    return np.full(len(series), np.nan)


def level_places(column: ColumnEncoding, series: pd.Series[Any]) -> tuple[IntArray, BoolArray]:
    """Return the place of each value among the levels (−1: none), and where it is missing.

    Raises
    ------
    ColumnTypeError
        If the values are of a kind that no level of the fit reads like.
    """
    read = read_column(series, as_levels=True)
    assert read.codes is not None
    if not is_object_dtype(series.dtype) and read.n_missing < len(series):
        column.check_levels(named_kind(column.label, series.dtype), series.dtype)
    known = {level: place for place, level in enumerate(column.levels)}
    unseen = len(known) if column.other else -1
    has_place = column.indicator and column.kind == "categorical"
    missing = len(known) + column.other if has_place else unseen
    places = [known.get(level, unseen) for level in read.levels]
    return np.array([*places, missing], np.int64)[read.codes], read.missing


def unseen_numbers(column: ColumnEncoding, series: pd.Series[Any]) -> int:
    """Count the values of a column of levels that are no text, and none of its levels.

    Where rare levels share a column they are not known one by one: 0 then, unless not a
    single value is a level.
    """
    if column_kind(series.dtype) == "categorical" and not is_object_dtype(series.dtype):
        return 0
    if read_column(series).kind in ("categorical", None):
        return 0
    read, known = read_column(series, as_levels=True), set(column.levels)
    assert read.codes is not None
    if column.other and not known.isdisjoint(read.levels):
        return 0
    unseen = np.array([*(level not in known for level in read.levels), False])
    return int(np.count_nonzero(unseen[read.codes]))


def decode_column(column: ColumnEncoding, encoded: Float64Array, dtype: str) -> npt.NDArray[Any]:
    """Return a column in the user's units.

    Parameters
    ----------
    column : ColumnEncoding
        With p_j names.
    encoded : ndarray of float64, shape (m, p_j)
        Its encoded columns.
    dtype : {"float32", "float64"}
        Of the rows they come from, for the decimals.

    Returns
    -------
    ndarray of shape (m,)
        Numbers, times, or texts (object, None where missing).
    """
    if column.kind == "categorical":
        return _decode_levels(column, encoded)
    numbers = np.full(len(encoded), column.center)
    if column.value:
        numbers = _decode_numbers(column, encoded[:, 0], dtype)
    if column.indicator:
        numbers[encoded[:, int(column.value)] > 0] = np.nan
    if column.kind == "ordinal":
        texts = np.array([*column.levels, None], dtype=object)
        known = np.isfinite(numbers)
        places = np.clip(np.round(np.where(known, numbers, 0)), 0, len(column.levels) - 1)
        return texts[np.where(known, places, -1).astype(np.int64)]
    if column.kind == "boolean" and not np.isnan(numbers).any():
        return numbers > 0.5
    return from_numbers(numbers, column.kind if column.kind in ("datetime", "timedelta") else None)


def _decode_numbers(column: ColumnEncoding, encoded: Float64Array, dtype: str) -> Float64Array:
    """Return numbers rounded to the decimals that the dtype holds: 880, not 879.999977."""
    error = float(np.abs(encoded).max(initial=0.0)) / column.scale * float(np.finfo(dtype).eps)
    numbers = encoded / column.scale + column.center
    decimals = -math.ceil(math.log10(2 * error)) if 0 < error < math.inf else 300
    return np.round(numbers, decimals) + 0.0 if abs(decimals) < 300 else numbers


def _decode_levels(column: ColumnEncoding, encoded: Float64Array) -> npt.NDArray[Any]:
    shown = [*column.levels, *[_OTHER] * column.other, *[None] * column.indicator]
    texts = np.array([*shown, None], dtype=object)
    if not shown:
        return np.full(len(encoded), None, dtype=object)
    return texts[np.where(encoded.any(axis=1), encoded.argmax(axis=1), -1)]


def _plain_label(label: Hashable) -> Any:
    """Return a label as JSON has it: tuples become lists."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return [_plain_label(part) for part in label]
    if label is None or isinstance(label, (bool, int, str)):
        return label
    if isinstance(label, float) and np.isfinite(label):
        return label
    raise InvalidParameterError(
        f"the column label {label!r} cannot be stored; rename the columns to strings before the "
        f"fit, e.g. frame.columns = frame.columns.astype(str)"
    )


def _hashable_label(label: Any) -> Hashable:
    return tuple(map(_hashable_label, label)) if isinstance(label, list) else label
