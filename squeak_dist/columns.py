"""Columns of any dtype, read as numbers or as codes of levels."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_object_dtype

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.errors import ColumnTypeError, DataError

Kind = Literal["numeric", "boolean", "categorical", "datetime", "timedelta"]

DAY = 86_400.0  # seconds

_KIND_NAMES = {"categorical": "text", None: "missing"}


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """A column as numbers, or as codes of levels.

    Parameters
    ----------
    kind : str or None
        None where an object column holds nothing but missing values.
    numbers : ndarray of shape (n,), optional
        Of any real dtype; NaN where missing. Times are seconds since 1970 (UTC), times of
        day seconds since midnight.
    codes : ndarray of int64, shape (n,), optional
        Positions in ``levels``; −1 where missing.
    levels : tuple of str
        The texts of the levels, each once.
    ordered : bool
        True for an ordered categorical, whose levels are in order.
    """

    kind: Kind | None
    numbers: npt.NDArray[Any] | None = None
    codes: IntArray | None = None
    levels: tuple[str, ...] = ()
    ordered: bool = False

    @cached_property
    def missing(self) -> BoolArray:
        """Where the values are missing, shape (n,)."""
        if self.codes is not None:
            return self.codes < 0
        assert self.numbers is not None
        if self.numbers.dtype.kind == "f":
            return np.isnan(self.numbers)
        return np.zeros(len(self.numbers), np.bool_)

    @cached_property
    def n_missing(self) -> int:
        """Number of missing values."""
        return int(np.count_nonzero(self.missing))


def column_kind(dtype: Any) -> Kind:
    """Return what a column of the given dtype is for the model.

    Parameters
    ----------
    dtype : dtype
        Of NumPy or pandas, pyarrow and categorical ones included.

    Returns
    -------
    {"numeric", "boolean", "categorical", "datetime", "timedelta"}
        ``"categorical"`` for object, whose values decide when it is read.

    Raises
    ------
    ColumnTypeError
        For complex, period, interval and nested types.
    """
    if isinstance(dtype, pd.CategoricalDtype) or str(dtype) == "null[pyarrow]":
        return "categorical"
    kind = _kind_of_type(dtype.type)
    if kind is None:
        raise ColumnTypeError(
            f"dtype {dtype} cannot be used; expected numbers, booleans, text, categories, dates "
            f"or durations"
        )
    return kind


def named_kind(label: Hashable, dtype: Any) -> Kind:
    """Return :func:`column_kind` of a column; its error names the column."""
    try:
        return column_kind(dtype)
    except ColumnTypeError as error:
        raise ColumnTypeError(f"column {label!r}: {error}") from None


_KINDS_OF_TYPES: tuple[tuple[tuple[type, ...], Kind], ...] = (
    # The order matters: bool is an int, timedelta64 a signedinteger.
    ((bool, np.bool_), "boolean"),
    ((datetime.timedelta, np.timedelta64, datetime.time), "timedelta"),
    ((datetime.date, np.datetime64), "datetime"),
    ((numbers.Real, decimal.Decimal), "numeric"),
    ((str, bytes, np.object_, pd.CategoricalDtype.type), "categorical"),
)
_UNUSABLE_TYPES = (numbers.Complex, list, dict, set, np.ndarray, pd.Period, pd.Interval)


def _kind_of_type(scalar: type) -> Kind | None:
    for types, kind in _KINDS_OF_TYPES:
        if issubclass(scalar, types):
            return kind
    return None


def read_column(series: pd.Series[Any], *, as_levels: bool = False) -> ColumnValues:
    """Read a column of any dtype.

    Parameters
    ----------
    series : pandas.Series of n values
        The column.
    as_levels : bool, default False
        Read the column as categorical, whatever its dtype.

    Raises
    ------
    ColumnTypeError
        Naming the column, if its type cannot be used.
    DataError
        Naming the column, if a value is out of the range of float64 or datetime64.
    """
    dtype = series.dtype
    try:
        kind = column_kind(dtype)
        if as_levels or (kind == "categorical" and not is_object_dtype(dtype)):
            return _read_levels(series)
        if is_object_dtype(dtype) or dtype.type in (datetime.date, datetime.time):
            return _read_objects(series.astype(object))
    except ColumnTypeError as error:
        raise ColumnTypeError(f"column {series.name!r}: {error}") from None
    except (OverflowError, pd.errors.OutOfBoundsDatetime) as error:
        raise DataError(f"column {series.name!r} holds a value out of range: {error}") from None
    return _read_numbers(series, kind)


def _read_numbers(series: pd.Series[Any], kind: Kind) -> ColumnValues:
    if kind == "datetime":
        return ColumnValues(kind, _seconds(series.to_numpy("datetime64[us]")))
    if kind == "timedelta":
        return ColumnValues(kind, _seconds(series.to_numpy("timedelta64[us]")))
    if isinstance(series.dtype, np.dtype):
        return ColumnValues(kind, series.to_numpy())
    return ColumnValues(kind, series.to_numpy(np.float64, na_value=np.nan))


def _seconds(ticks: npt.NDArray[Any]) -> Float64Array:
    """Return microseconds as float64 seconds, which holds them exactly for 285 years."""
    seconds = ticks.view(np.int64) / 1e6
    seconds[np.isnat(ticks)] = np.nan
    return seconds


def _read_objects(series: pd.Series[Any]) -> ColumnValues:
    """Read a column of Python objects by the types of its values."""
    present = series.notna().to_numpy()
    values = series.to_numpy()[present]
    kind = _kind_of_values(values)
    if kind is None or kind == "categorical":
        return replace(_read_levels(series), kind=kind)
    result = np.full(len(series), np.nan)
    if kind == "datetime":
        times = pd.to_datetime(pd.Series(values, dtype=object), utc=True)
        result[present] = _seconds(times.to_numpy("datetime64[us]"))
    elif kind == "timedelta":
        steps = pd.to_timedelta(pd.Series(list(map(_since_midnight, values)), dtype=object))
        result[present] = _seconds(steps.to_numpy("timedelta64[us]"))
    else:
        result[present] = values.astype(np.float64)
    return ColumnValues(kind, result)


def _since_midnight(value: Any) -> Any:
    """Return a time of day as a duration; a duration as it is."""
    if not isinstance(value, datetime.time):
        return value
    return datetime.timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    )


def _kind_of_values(values: npt.NDArray[Any]) -> Kind | None:
    types = set(map(type, values))
    kinds = {_kind_of_type(scalar) or "categorical" for scalar in types}
    for scalar in types:
        if issubclass(scalar, _UNUSABLE_TYPES) and not issubclass(scalar, numbers.Real):
            raise ColumnTypeError(
                f"values of type {scalar.__name__} cannot be used; expected numbers, booleans, "
                f"text, dates or durations"
            )
    if kinds == {"boolean", "numeric"}:
        return "numeric"
    return next(iter(kinds)) if len(kinds) == 1 else ("categorical" if kinds else None)


def _read_levels(series: pd.Series[Any]) -> ColumnValues:
    """Read a column as codes of the texts of its values."""
    ordered = False
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes, uniques = series.cat.codes.to_numpy(), series.cat.categories
        ordered = bool(series.cat.ordered)
    else:
        codes, uniques = pd.factorize(series)
    texts = [_level_text(value) for value in uniques]
    levels = tuple(dict.fromkeys(texts))  # values of one text are one level
    place = {text: code for code, text in enumerate(levels)}
    renumber = np.array([*(place[text] for text in texts), -1], np.int64)  # code −1 takes the last
    return ColumnValues("categorical", codes=renumber[codes], levels=levels, ordered=ordered)


def _level_text(value: Any) -> str:
    """Return the text that a level is compared by: str(value), and "3" for the float 3.0.

    Integers become floats as soon as one value is missing; the level stays the same.
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def kind_name(kind: str | None) -> str:
    """Return the user's word for a kind."""
    return _KIND_NAMES.get(kind, kind or "")


def from_numbers(values: npt.NDArray[Any], kind: Kind | None) -> npt.NDArray[Any]:
    """Return seconds as datetime64[us] or timedelta64[us]; other values as they are."""
    if kind not in ("datetime", "timedelta"):
        return values
    missing = np.isnan(values)
    ticks = np.round(np.where(missing, 0.0, values) * 1e6).astype(np.int64)
    times = ticks.view("datetime64[us]" if kind == "datetime" else "timedelta64[us]")
    times[missing] = np.array("NaT", times.dtype)
    return times
