"""What one pass over a table learns: a mergeable value, partition by partition.

A partition is cut by name into features, targets and weights (:func:`cut_table`),
summarized (:func:`profile_table`) and the summaries are merged
(:func:`merge_profiles`): rows, missing and infinite values, moments, levels and
a seeded row sample. Nothing here knows about a cluster.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import numbers
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_object_dtype

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.errors import (
    ColumnTypeError,
    ConstantTargetError,
    DataError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingColumnsError,
    MissingValuesError,
)

Kind = Literal["numeric", "boolean", "categorical", "datetime", "timedelta"]

MISSING_POLICIES = ("raise", "impute", "drop")
DAY = 86_400.0  # seconds

_MAX_LEVELS_KEPT = 10_000
_BLOCK_ENTRIES = 1 << 17  # float64 entries of a row block: 1 MiB, which stays in L2
_MAX_BLOCK_ROWS = 1 << 14
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
_KIND_NAMES = {"categorical": "text", None: "missing"}


# --- cutting a frame -------------------------------------------------------------------


@dataclass(frozen=True)
class TableSchema:
    """Which columns of a frame are what.

    Parameters
    ----------
    features : tuple of hashable
        Labels of the feature columns, in order.
    targets : tuple of hashable
        Labels of the target columns; may be empty.
    weight : hashable, optional
        Label of the column of sample weights.
    """

    features: tuple[Hashable, ...]
    targets: tuple[Hashable, ...]
    weight: Hashable | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """One partition, cut.

    Parameters
    ----------
    features : pandas.DataFrame of n rows
        The feature columns, of any dtypes.
    targets : ndarray of float64, shape (n, k)
        NaN where missing.
    weights : ndarray of float64, shape (n,), optional
        Sample weights.
    """

    features: pd.DataFrame
    targets: Float64Array
    weights: Float64Array | None


def cut_table(frame: pd.DataFrame, schema: TableSchema) -> Table:
    """Cut features, targets and weights out of a frame, by column name.

    Parameters
    ----------
    frame : pandas.DataFrame of n rows
        Its columns may be in any order; others than those of the schema are ignored.
    schema : TableSchema
        What to cut.

    Returns
    -------
    Table

    Raises
    ------
    MissingColumnsError
        If the frame lacks columns, with the names that come close.
    ColumnTypeError
        If a target or the weight is not numeric or boolean.
    DataError
        If a needed label stands twice in the frame.
    """
    weight = () if schema.weight is None else (schema.weight,)
    positions = column_positions(frame.columns, (*schema.features, *schema.targets, *weight))
    n_features, n_targets = len(schema.features), len(schema.targets)
    targets = np.empty((len(frame), n_targets))
    for j in range(n_targets):
        targets[:, j] = _float_column(frame.iloc[:, positions[n_features + j]], "target")
    weights = _float_column(frame.iloc[:, positions[-1]], "sample weight") if weight else None
    return Table(take_columns(frame, positions[:n_features]), targets, weights)


def _float_column(series: pd.Series[Any], role: str) -> Float64Array:
    """Return a target or weight as float64 with NaN where missing."""
    column = read_column(series)
    if column.numbers is None and column.n_missing == len(series):
        return np.full(len(series), np.nan)
    if column.numbers is None or column.kind not in ("numeric", "boolean"):
        raise ColumnTypeError(
            f"the {role} {series.name!r} is {kind_name(column.kind)} (dtype {series.dtype}); "
            f"expected numbers"
            + ("; for classes use SqueakClassifier" if column.kind == "categorical" else "")
        )
    return np.array(column.numbers, dtype=np.float64)


def take_columns(frame: pd.DataFrame, positions: Sequence[int]) -> pd.DataFrame:
    """Return the columns at the given positions, without a copy where they are adjacent."""
    if positions and list(positions) == list(range(positions[0], positions[0] + len(positions))):
        return frame.iloc[:, positions[0] : positions[-1] + 1]
    return frame.iloc[:, list(positions)]


def column_positions(columns: Iterable[Hashable], needed: Sequence[Hashable]) -> list[int]:
    """Return where the needed labels stand among the columns.

    Raises
    ------
    MissingColumnsError
        Naming the labels that are not there and the labels that come close.
    DataError
        If a needed label stands there more than once.
    """
    labels = list(columns)
    found = {label: position for position, label in enumerate(labels)}
    absent = [label for label in needed if label not in found]
    if absent:
        raise MissingColumnsError(_missing_columns_message(absent, labels))
    if len(found) < len(labels):
        counts = Counter(labels)
        repeated = [label for label in needed if counts[label] > 1]
        if repeated:
            raise DataError(
                f"columns must have different names; these stand in the table more than once: "
                f"{listing(map(repr, repeated))}"
            )
    return [found[label] for label in needed]


def _missing_columns_message(absent: Sequence[Hashable], labels: Sequence[Hashable]) -> str:
    by_lower = {str(label).lower(): label for label in labels}
    described = []
    for label in absent:
        close = difflib.get_close_matches(str(label).lower(), by_lower, n=2)
        hint = " or ".join(repr(by_lower[name]) for name in close)
        described.append(f"{label!r} (did you mean {hint}?)" if hint else repr(label))
    plural = "s" if len(absent) > 1 else ""
    has = listing(map(repr, labels)) if labels else "no columns"
    return f"missing column{plural} {listing(described)}; the table has {has}"


def listing(items: Iterable[str], limit: int = 10) -> str:
    """Return "a, b and c", or the first ``limit`` and how many more there are."""
    names = list(items)
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# --- reading a column ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """A column as numbers, or as codes of levels.

    Parameters
    ----------
    kind : str or None
        None where an object column holds nothing but missing values.
    numbers : ndarray of shape (n,), optional
        Of any real dtype; NaN where missing. Times are seconds since 1970 (UTC).
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


_KINDS_OF_TYPES: tuple[tuple[tuple[type, ...], Kind], ...] = (
    # The order matters: bool is an int, timedelta64 a signedinteger.
    ((bool, np.bool_), "boolean"),
    ((datetime.timedelta, np.timedelta64), "timedelta"),
    ((datetime.date, np.datetime64), "datetime"),
    ((numbers.Real, decimal.Decimal), "numeric"),
    ((str, bytes, datetime.time, np.object_, pd.CategoricalDtype.type), "categorical"),
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
        if is_object_dtype(dtype) or dtype.type is datetime.date:
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
        levels = _read_levels(series)
        return ColumnValues(kind, codes=levels.codes, levels=levels.levels)
    result = np.full(len(series), np.nan)
    if kind == "datetime":
        times = pd.to_datetime(pd.Series(values, dtype=object), utc=True)
        result[present] = _seconds(times.to_numpy("datetime64[us]"))
    elif kind == "timedelta":
        steps = pd.to_timedelta(pd.Series(values, dtype=object))
        result[present] = _seconds(steps.to_numpy("timedelta64[us]"))
    else:
        result[present] = values.astype(np.float64)
    return ColumnValues(kind, result)


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
    texts = [level_text(value) for value in uniques]
    levels = tuple(dict.fromkeys(texts))  # values of one text are one level
    place = {text: code for code, text in enumerate(levels)}
    renumber = np.array([*(place[text] for text in texts), -1], np.int64)  # code −1 takes the last
    return ColumnValues("categorical", codes=renumber[codes], levels=levels, ordered=ordered)


def level_text(value: Any) -> str:
    """Return the text that a level is compared by: str(value), and "3" for the float 3.0.

    Integers become floats as soon as one value is missing; the level stays the same.
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def kind_name(kind: str | None) -> str:
    """Return the user's word for a kind."""
    return _KIND_NAMES.get(kind, kind or "")


# --- moments ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments and ranges of several columns over some rows.

    Parameters
    ----------
    weight : ndarray of float64, shape (d,)
        Sum of the weights: the number of finite values where rows have no weights.
    mean : ndarray of float64, shape (d,)
        0 where the weight is 0.
    squares : ndarray of float64, shape (d,)
        Weighted sum of squared deviations from the mean.
    minimum, maximum : ndarray of float64, shape (d,)
        Over rows of positive weight; +inf and −inf where there are none.
    """

    weight: Float64Array
    mean: Float64Array
    squares: Float64Array
    minimum: Float64Array
    maximum: Float64Array

    @property
    def variance(self) -> Float64Array:
        """Population variance, shape (d,); 0 where the weight is 0."""
        return self.squares / np.where(self.weight > 0, self.weight, 1.0)

    @property
    def constant(self) -> BoolArray:
        """Where the values do not vary by more than rounding, shape (d,)."""
        largest = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
        sd = np.sqrt(self.variance)
        return (self.weight <= 0) | (sd <= _ROUNDING * largest) | (self.minimum == self.maximum)


def no_moments(d: int) -> Moments:
    """Return the moments of no rows."""
    zero, infinite = np.zeros(d), np.full(d, np.inf)
    return Moments(zero, zero, zero, infinite, -infinite)


@np.errstate(over="ignore", invalid="ignore")
def block_moments(values: Float64Array, weights: Float64Array | None = None) -> Moments:
    """Return the moments of a block, finite values only.

    Parameters
    ----------
    values : ndarray of float64, shape (d, b)
        One row per column of the table.
    weights : ndarray of float64, shape (b,), optional
        Non-negative.

    Notes
    -----
    Two passes, so that an offset of 1e9 costs no more than the rounding of the mean.
    Sums that overflow become infinite or NaN, and the checks find them.
    Cost: about five passes over the block.
    """
    finite = np.isfinite(values)
    if weights is None and values.shape[1] and finite.all():
        return _plain_moments(values)
    w = finite * (1.0 if weights is None else weights)
    total = w.sum(axis=1)
    divisor = np.where(total > 0, total, 1.0)
    values = np.where(finite, values, 0.0)
    mean = np.einsum("ij,ij->i", w, values) / divisor
    deviations = values - mean[:, None]
    shift = np.einsum("ij,ij->i", w, deviations) / divisor
    squares = np.einsum("ij,ij,ij->i", w, deviations, deviations) - total * shift**2
    return Moments(
        total,
        mean + shift,
        np.maximum(squares, 0.0),
        np.where(w > 0, values, np.inf).min(axis=1, initial=np.inf),
        np.where(w > 0, values, -np.inf).max(axis=1, initial=-np.inf),
    )


def _plain_moments(values: Float64Array) -> Moments:
    total = np.full(len(values), float(values.shape[1]))
    mean = values.mean(axis=1)  # numpy adds in pairs here: right to the last bits
    deviations = values - mean[:, None]
    squares = np.einsum("ij,ij->i", deviations, deviations)
    return Moments(total, mean, squares, values.min(axis=1), values.max(axis=1))


@np.errstate(over="ignore", invalid="ignore")
def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both (Chan, Golub & LeVeque 1979)."""
    total = a.weight + b.weight
    share = b.weight / np.where(total > 0, total, 1.0)
    difference = b.mean - a.mean
    return Moments(
        total,
        a.mean + difference * share,
        a.squares + b.squares + difference**2 * a.weight * share,
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )


# --- the profile -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What is known of one feature column, apart from its moments.

    Parameters
    ----------
    label : hashable
        The user's label.
    kind : str or None
        See :func:`column_kind`; None while nothing but missing values was seen.
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


def from_numbers(values: npt.NDArray[Any], kind: Kind | None) -> npt.NDArray[Any]:
    """Return seconds as datetime64[us] or timedelta64[us]; other values as they are."""
    if kind not in ("datetime", "timedelta"):
        return values
    missing = np.isnan(values)
    ticks = np.round(np.where(missing, 0.0, values) * 1e6).astype(np.int64)
    times = ticks.view("datetime64[us]" if kind == "datetime" else "timedelta64[us]")
    times[missing] = np.array("NaT", times.dtype)
    return times


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
    table: Table, *, partition: int, missing: str, seed: int, sample_rows: int
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
    keep = kept_rows(columns, table.targets, missing)
    weights = _valid_weights(table.weights)
    infinite, moments = _feature_moments(columns, keep)
    target_infinite = np.count_nonzero(np.isinf(table.targets), axis=0)
    return Profile(
        partition_rows={partition: len(table.targets)},
        partition_kept={partition: int(np.count_nonzero(keep))},
        columns=tuple(
            _column_profile(label, column, keep, count, partition)
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
        sample=_sample(table, columns, keep, partition, seed, sample_rows),
        sample_rows=sample_rows,
    )


def check_policy(missing: str) -> None:
    """Raise InvalidParameterError unless ``missing`` is a known policy."""
    if missing not in MISSING_POLICIES:
        raise InvalidParameterError(
            f"missing must be one of {', '.join(map(repr, MISSING_POLICIES))}, got {missing!r}"
        )


def kept_rows(columns: Sequence[ColumnValues], targets: Float64Array, missing: str) -> BoolArray:
    """Return which rows the policy keeps, shape (n,)."""
    keep = np.ones(len(targets), np.bool_)
    if missing != "raise":
        keep &= ~np.isnan(targets).any(axis=1)
    if missing == "drop":
        for column in columns:
            keep &= ~column.missing
    return keep


def _valid_weights(weights: Float64Array | None) -> Float64Array | None:
    """Return the weights with 0 where they are missing, negative or infinite."""
    if weights is None:
        return None
    return np.where(np.isfinite(weights) & (weights > 0), weights, 0.0)


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose float64 block of ``width`` columns stays in the cache."""
    step = max(256, min(_MAX_BLOCK_ROWS, _BLOCK_ENTRIES // max(1, width)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


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


def _column_profile(
    label: Hashable, column: ColumnValues, keep: BoolArray, infinite: int, partition: int
) -> ColumnProfile:
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


def _sample(
    table: Table,
    columns: Sequence[ColumnValues],
    keep: BoolArray,
    partition: int,
    seed: int,
    size: int,
) -> RowSample:
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0, partition)))
    priorities = rng.random(len(keep))
    rows = np.flatnonzero(keep)
    rows = rows[_smallest(priorities[rows], size)]
    return RowSample(
        columns=tuple(_plain_values(column, rows) for column in columns),
        labels=tuple(table.features.columns),
        kinds=tuple(column.kind for column in columns),
        targets=table.targets[rows],
        weights=None if table.weights is None else table.weights[rows],
        priorities=priorities[rows],
    )


def _smallest(priorities: Float64Array, size: int) -> IntArray:
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


# --- merging ---------------------------------------------------------------------------


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
        reduce(_merge_columns, column)
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
        sample=_merge_samples([p.sample for p in profiles], kinds, sample_rows),
        sample_rows=sample_rows,
    )


def _disjoint_union(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    union: dict[int, int] = {}
    for rows in counts:
        twice = union.keys() & rows.keys()
        if twice:
            raise InvalidParameterError(f"partitions {sorted(twice)} were profiled twice")
        union |= rows
    return union


def _merge_columns(a: ColumnProfile, b: ColumnProfile) -> ColumnProfile:
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


def _merge_samples(
    samples: Sequence[RowSample], kinds: tuple[Kind | None, ...], size: int
) -> RowSample:
    priorities = np.concatenate([sample.priorities for sample in samples])
    rows = _smallest(priorities, size)
    has_weights = all(sample.weights is not None for sample in samples)
    return RowSample(
        columns=tuple(
            _join_values([sample.columns[j] for sample in samples], kind)[rows]
            for j, kind in enumerate(kinds)
        ),
        labels=samples[0].labels,
        kinds=kinds,
        targets=np.concatenate([sample.targets for sample in samples])[rows],
        weights=np.concatenate([s.weights for s in samples if s.weights is not None])[rows]
        if has_weights
        else None,
        priorities=priorities[rows],
    )


def _join_values(pieces: Iterable[npt.NDArray[Any]], kind: Kind | None) -> npt.NDArray[Any]:
    """Concatenate; a piece of the other type holds nothing but missing values."""
    dtype = object if kind == "categorical" else np.float64
    blank = None if kind == "categorical" else np.nan
    return np.concatenate(
        [p if p.dtype == dtype else np.full(len(p), blank, dtype) for p in pieces]
    )


# --- checking --------------------------------------------------------------------------


def check_profile(profile: Profile, *, missing: str) -> None:
    """Raise what makes a fit impossible, with the columns and counts.

    Parameters
    ----------
    profile : Profile
        Of all partitions.
    missing : {"raise", "impute", "drop"}
        The policy it was made with.

    Raises
    ------
    EmptyDataError
        If fewer than two rows are left.
    MissingValuesError, InfiniteValuesError
        Naming the columns and how many rows are affected.
    InvalidParameterError
        For negative weights, or none above 0.
    ConstantTargetError
        If the target does not vary.
    """
    check_policy(missing)
    if not profile.rows:
        raise EmptyDataError("found no rows to fit (n_samples=0)")
    _check_missing(profile, missing)
    _check_infinite(profile)
    _check_rows(profile)
    _check_weights(profile)
    constant = profile.target_moments.constant
    if constant.size and constant.all():
        value = float(profile.target_mean[0])
        raise ConstantTargetError(
            f"the target is constant: {value:.6g} in all rows of positive weight, out of "
            f"{profile.kept}; there is nothing to learn"
        )


def _target_names(profile: Profile) -> list[str]:
    k = len(profile.target_missing)
    return ["the target"] if k == 1 else [f"target {j}" for j in range(k)]


def named_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Return "'a' (2 rows) and 'b' (1 row)" of the counts that are not 0; "" if all are."""
    affected = [f"{name} ({n} row{'s' if n != 1 else ''})" for name, n in counts if n]
    return listing(affected) if affected else ""


def _check_missing(profile: Profile, missing: str) -> None:
    if profile.weight_missing:
        raise MissingValuesError(
            f"missing values in {named_counts([('the sample weights', profile.weight_missing)])}; "
            f"every row needs a weight (0 leaves a row out)"
        )
    counts = [(repr(column.label), column.missing) for column in profile.columns]
    counts += zip(_target_names(profile), profile.target_missing.tolist(), strict=True)
    affected = named_counts(counts)
    if missing == "raise" and affected:
        raise MissingValuesError(
            f'missing values (NaN) in {affected} of {profile.rows} rows; pass missing="impute" '
            f'to fill features in, or missing="drop" to leave such rows out'
        )


def _check_infinite(profile: Profile) -> None:
    counts = [(repr(column.label), column.infinite) for column in profile.columns]
    counts += zip(_target_names(profile), profile.target_infinite.tolist(), strict=True)
    affected = named_counts([*counts, ("the sample weights", profile.weight_infinite)])
    if affected:
        raise InfiniteValuesError(
            f"infinite values (inf) in {affected} of {profile.rows} rows; replace or remove them"
        )
    if not np.isfinite(profile.target_moments.squares).all():
        raise InfiniteValuesError("the target is too large to be squared in float64; rescale it")


def _check_rows(profile: Profile) -> None:
    if profile.kept > 1:
        return
    message = f"found {'one row' if profile.kept else 'no rows'} to fit (n_samples={profile.kept})"
    dropped = profile.rows - profile.kept
    if dropped:
        counts = [(repr(column.label), column.missing) for column in profile.columns]
        counts += zip(_target_names(profile), profile.target_missing.tolist(), strict=True)
        message += f": {dropped} of {profile.rows} were dropped, missing {named_counts(counts)}"
    raise EmptyDataError(f"{message}; at least two are needed")


def _check_weights(profile: Profile) -> None:
    if profile.weight_negative:
        affected = named_counts([("the sample weights", profile.weight_negative)])
        raise InvalidParameterError(f"negative values in {affected}; weights must be ≥ 0")
    if not profile.weight_sum > 0:
        raise InvalidParameterError("all sample weights are 0; at least two rows need one above 0")
