"""From the user's columns to a float32 matrix, and back.

Numeric columns are centred (in float64, before the cast) and standardized, text
becomes one 0/1 column per level, dates become elapsed time and cycles. An encoding
is made of a profile (:func:`make_encoding`), is a frozen value, and can be stored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_object_dtype

from squeak_dist._typing import BoolArray, Float64Array, FloatArray, IntArray
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    DataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingValuesError,
)
from squeak_dist.profile import (
    DAY,
    ColumnProfile,
    Kind,
    Profile,
    RowSample,
    Table,
    TableSchema,
    check_policy,
    check_profile,
    column_kind,
    column_positions,
    cut_table,
    from_numbers,
    kept_rows,
    kind_name,
    listing,
    merge_profiles,
    named_counts,
    profile_table,
    read_column,
    row_blocks,
    sorted_levels,
)

__all__ = [
    "ColumnEncoding",
    "ColumnProfile",
    "EncodedTable",
    "FeatureEncoding",
    "Profile",
    "RowSample",
    "Table",
    "TableSchema",
    "check_profile",
    "column_kind",
    "cut_table",
    "encode_table",
    "make_encoding",
    "merge_profiles",
    "profile_table",
]

EncodedKind = Literal["numeric", "boolean", "ordinal", "datetime", "timedelta", "categorical"]

_PERIODS = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}
_OTHER = "<other>"
_SQRT2 = math.sqrt(2.0)


@dataclass(frozen=True)
class ColumnEncoding:
    """How one of the user's columns becomes encoded columns.

    Parameters
    ----------
    label : hashable
        The user's label.
    kind : str
        As :func:`column_kind`, or ``"ordinal"`` for an ordered categorical.
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


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where everything goes, worked out once per encoding.

    ``numbers`` are the positions of the columns that are read as numbers; ``values``
    and ``indicators`` are rows of their block, and ``..._slots`` where they go.
    The encoded columns of column j are those from ``starts[j]`` to ``stops[j]``.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    unused: tuple[int, ...]
    numbers: tuple[int, ...]
    values: IntArray
    value_slots: slice | IntArray
    indicators: IntArray
    indicator_slots: IntArray
    center: Float64Array
    scale: Float64Array
    fill: Float64Array


@dataclass(frozen=True, eq=False)
class FeatureEncoding:
    """From the user's columns to rows of numbers: a frozen value that can be stored.

    Parameters
    ----------
    columns : tuple of ColumnEncoding
        One per column of the user, in order.
    missing : {"raise", "impute", "drop"}
        What happens to rows with missing values.
    standardize : bool
        Whether numbers were divided by their standard deviations.
    dtype : {"float32", "float64"}
        Of the encoded rows.

    Notes
    -----
    A column without missing values in the fit has no indicator: with
    ``missing="impute"`` its missing values at prediction become the median. Levels
    are compared by their text; one that the fit has not seen goes to the
    ``<other>`` column where there is one, else to all zeros.
    """

    columns: tuple[ColumnEncoding, ...]
    missing: str
    standardize: bool
    dtype: str = "float32"

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The user's labels, in order."""
        return tuple(column.label for column in self.columns)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The user's column names, in order."""
        return tuple(str(column.label) for column in self.columns)

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the encoded columns, shape (p,)."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def n_features(self) -> int:
        """Number of encoded columns, p."""
        return len(self.encoded_names)

    def check_columns(
        self, columns: Sequence[Hashable], dtypes: Mapping[Hashable, Any] | None = None
    ) -> None:
        """Check names and types of a table before any of it is read.

        Parameters
        ----------
        columns : sequence of hashable
            Labels, in any order; more than needed is fine.
        dtypes : mapping of label to dtype, optional
            Columns of dtype object pass: :meth:`encode` looks at their values.

        Raises
        ------
        MissingColumnsError
            Naming the missing columns and the ones that come close.
        ColumnTypeError
            If a column that was numeric in the fit is text, or the like.
        DataError
            If a needed name stands there twice.
        """
        column_positions(columns, self.labels)
        for column in self.columns:
            dtype = None if dtypes is None else dtypes.get(column.label)
            if dtype is None or is_object_dtype(dtype) or str(dtype) == "null[pyarrow]":
                continue
            # A float column may hold nothing but NaN, so its values decide.
            allowed = (*column.expects, "numeric")
            if column.expects and _named_kind(column.label, dtype) not in allowed:
                raise _type_error(column, _named_kind(column.label, dtype), dtype)

    def encode(self, features: pd.DataFrame | npt.NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        """Encode a table.

        Parameters
        ----------
        features : pandas.DataFrame or ndarray of shape (n, d)
            A frame is matched by column names; an array by position.

        Returns
        -------
        X : ndarray of ``dtype``, shape (n', p), C-contiguous
            Encoded rows.
        kept : ndarray of bool, shape (n,)
            All True unless ``missing="drop"``; n' is their number.

        Raises
        ------
        MissingColumnsError, DataError
            For other columns than those of the fit.
        ColumnTypeError
            If the values of a column are of another kind than in the fit.
        MissingValuesError
            With ``missing="raise"``, naming the columns and counts.
        InfiniteValuesError
            Naming the columns and counts.

        Notes
        -----
        Cost: a few passes over the numbers in blocks of 1 MiB. An array and a frame
        of the same numbers give the same bits.
        """
        if not isinstance(features, pd.DataFrame):
            features = np.asarray(features)
            self._check_shape(features)
            if self._plain and features.dtype.kind in "biuf":
                return self._encode_array(features)
            features = pd.DataFrame(features)
            features.columns = pd.Index(self.labels, tupleize_cols=False)
        return self._encode_frame(features)

    def decode_points(self, points: FloatArray) -> pd.DataFrame:
        """Return encoded rows in the user's units, as well as they can be recovered.

        Parameters
        ----------
        points : ndarray of shape (m, p)
            Encoded rows, such as those of a dictionary.

        Returns
        -------
        pandas.DataFrame of m rows
            Numbers to the decimals that ``dtype`` holds; times in UTC; ``<other>`` for levels
            without a column; missing where a value was missing, or cannot be known.
        """
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise DataError(f"expected points of shape (m, {self.n_features}), got {points.shape}")
        encoded = points.astype(np.float64)
        stops = self._layout.stops
        decoded = {
            j: _decode_column(column, encoded[:, stop - len(column.names) : stop], self.dtype)
            for j, (column, stop) in enumerate(zip(self.columns, stops, strict=True))
        }
        frame = pd.DataFrame(decoded, index=pd.RangeIndex(len(points)))
        frame.columns = pd.Index(self.labels, tupleize_cols=False)
        return frame

    def to_config(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the encoding as strict JSON values and arrays, for a store.

        Raises
        ------
        InvalidParameterError
            If a label is not a string, a number, a boolean, None or a tuple of these.
        """
        columns = [
            {
                "label": _plain_label(column.label),
                "kind": column.kind,
                "value": column.value,
                "indicator": column.indicator,
                "levels": list(column.levels),
                "other": column.other,
                "cycles": list(column.cycles),
            }
            for column in self.columns
        ]
        config = {
            "missing": self.missing,
            "standardize": self.standardize,
            "dtype": self.dtype,
            "columns": columns,
        }
        arrays = {
            name: np.array([getattr(column, name) for column in self.columns], np.float64)
            for name in ("center", "scale", "fill")
        }
        return config, arrays

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> FeatureEncoding:
        """Return the encoding that :meth:`to_config` described: the same bits."""
        columns = tuple(
            ColumnEncoding(
                label=_hashable_label(column["label"]),
                kind=column["kind"],
                center=float(arrays["center"][j]),
                scale=float(arrays["scale"][j]),
                fill=float(arrays["fill"][j]),
                value=bool(column["value"]),
                indicator=bool(column["indicator"]),
                levels=tuple(column["levels"]),
                other=bool(column["other"]),
                cycles=tuple(column["cycles"]),
            )
            for j, column in enumerate(config["columns"])
        )
        return cls(
            columns, str(config["missing"]), bool(config["standardize"]), str(config["dtype"])
        )

    @cached_property
    def _plain(self) -> bool:
        """Whether every column that is used is a plain number."""
        return all(c.kind in ("numeric", "boolean") for c in self.columns if c.names)

    @cached_property
    def _layout(self) -> _Layout:
        stops = list(accumulate(len(column.names) for column in self.columns))
        starts = [0, *stops[:-1]]
        numbers = [j for j, c in enumerate(self.columns) if c.names and c.kind != "categorical"]
        chosen = [self.columns[j] for j in numbers]
        values = [i for i, column in enumerate(chosen) if column.value]
        indicators = [i for i, column in enumerate(chosen) if column.indicator]
        return _Layout(
            starts=tuple(starts),
            stops=tuple(stops),
            unused=tuple(j for j, column in enumerate(self.columns) if not column.names),
            numbers=tuple(numbers),
            values=np.array(values, np.int64),
            value_slots=_as_slice([starts[numbers[i]] for i in values]),
            indicators=np.array(indicators, np.int64),
            indicator_slots=np.array(
                [starts[numbers[i]] + chosen[i].value for i in indicators], np.int64
            ),
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
        if self.missing == "drop" and not everything:
            kept &= ~np.isnan(X[:, list(self._layout.unused)].astype(np.float64)).any(axis=1)
        return (out if kept.all() else out[kept]), kept

    def _encode_frame(self, frame: pd.DataFrame) -> tuple[FloatArray, BoolArray]:
        positions = column_positions(frame.columns, self.labels)
        series = [frame.iloc[:, position] for position in positions]
        numbers = [_read_as(self.columns[j], series[j]) for j in self._layout.numbers]

        def read(rows: slice) -> Float64Array:
            block = np.empty((len(numbers), rows.stop - rows.start))
            for i, values in enumerate(numbers):
                block[i] = values[rows]
            return block

        out, kept = self._write_numbers(read, len(frame))
        self._write_levels(series, out, kept)
        if self.missing == "drop":
            # As in the profile, a column that is not encoded counts too.
            for j in self._layout.unused:
                kept &= ~read_column(series[j]).missing
        return (out if kept.all() else out[kept]), kept

    def _write_numbers(
        self, read: Callable[[slice], Float64Array], n: int
    ) -> tuple[FloatArray, BoolArray]:
        """Return n rows with the columns made of numbers filled, and which rows are complete."""
        layout, k = self._layout, len(self._layout.numbers)
        out, kept = np.empty((n, self.n_features), self.dtype), np.ones(n, np.bool_)
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
            size = _SQRT2 if self.standardize else 1.0
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
            slot = self._layout.stops[j] - 2 * len(cycles)
            for cycle in cycles:
                period = _PERIODS[cycle]
                phase = np.mod(block[i], period) * (2 * np.pi / period)
                out[:, slot] = np.sin(phase)
                out[:, slot + 1] = np.cos(phase)
                slot += 2

    def _write_levels(
        self, series: Sequence[pd.Series[Any]], out: FloatArray, kept: BoolArray
    ) -> None:
        """Write the 0/1 columns of the levels; with "drop", rows without one are not kept."""
        chosen = [j for j, c in enumerate(self.columns) if c.kind == "categorical" and c.names]
        missing, places = np.zeros(len(chosen), np.int64), {}
        for i, j in enumerate(chosen):
            places[j], absent = _level_places(self.columns[j], series[j])
            missing[i] = np.count_nonzero(absent)
            if self.missing == "drop":
                kept &= ~absent
        if self.missing == "raise":
            _raise_missing([repr(self.columns[j].label) for j in chosen], missing)
        for rows in row_blocks(len(out), self.n_features):
            for j in chosen:
                target = out[rows, self._layout.starts[j] : self._layout.stops[j]]
                target[...] = 0
                shown = np.flatnonzero(places[j][rows] >= 0)
                target[shown, places[j][rows][shown]] = 1


def _as_slice(slots: Sequence[int]) -> slice | IntArray:
    """Return adjacent slots as a slice, which is written several times faster."""
    if slots and list(slots) == list(range(slots[0], slots[0] + len(slots))):
        return slice(slots[0], slots[0] + len(slots))
    return np.array(slots, np.int64)


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


def _named_kind(label: Hashable, dtype: Any) -> Kind:
    try:
        return column_kind(dtype)
    except ColumnTypeError as error:
        raise ColumnTypeError(f"column {label!r}: {error}") from None


def _type_error(column: ColumnEncoding, kind: str | None, dtype: Any) -> ColumnTypeError:
    return ColumnTypeError(
        f"column {column.label!r} was {column.kind} in the fit but is {kind_name(kind)} here "
        f"(dtype {dtype}); convert it with astype"
    )


def _read_as(column: ColumnEncoding, series: pd.Series[Any]) -> npt.NDArray[Any]:
    """Read a column as the numbers that the encoding expects."""
    if column.kind == "ordinal":
        places, _ = _level_places(column, series)
        return np.where(places >= 0, places, np.nan)
    read = read_column(series)
    if read.kind in column.expects:
        assert read.numbers is not None
        return read.numbers
    if read.n_missing < len(series):
        raise _type_error(column, read.kind, series.dtype)
    return np.full(len(series), np.nan)


def _level_places(column: ColumnEncoding, series: pd.Series[Any]) -> tuple[IntArray, BoolArray]:
    """Return the place of each value among the levels (−1: none), and where it is missing."""
    read = read_column(series, as_levels=True)
    assert read.codes is not None
    known = {level: place for place, level in enumerate(column.levels)}
    unseen = len(known) if column.other else -1
    has_place = column.indicator and column.kind == "categorical"
    missing = len(known) + column.other if has_place else unseen
    places = [known.get(level, unseen) for level in read.levels]
    return np.array([*places, missing], np.int64)[read.codes], read.missing


def _decode_column(column: ColumnEncoding, encoded: Float64Array, dtype: str) -> npt.NDArray[Any]:
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


# --- making an encoding ----------------------------------------------------------------


def make_encoding(
    profile: Profile,
    *,
    standardize: bool,
    missing: str,
    dtype: str = "float32",
    max_levels: int = 64,
) -> FeatureEncoding:
    """Make the encoding that a profile calls for.

    Parameters
    ----------
    profile : Profile
        Of all partitions, made with the same ``missing``.
    standardize : bool
        Divide numbers by their standard deviations, so that every column spreads
        alike: the expected squared difference of two rows is 2 per number, and 2
        for different levels. Datetimes are divided anyway: they have no unit.
    missing : {"raise", "impute", "drop"}
        What :meth:`FeatureEncoding.encode` does about missing values. With "impute",
        numbers become the median of the sample, with an indicator column where
        the fit has missing values; levels get a column for missing.
    dtype : {"float32", "float64"}
        Of the encoded rows.
    max_levels : int, default 64
        Levels of a categorical column with a column of their own, the most frequent
        first; the others share one.

    Returns
    -------
    FeatureEncoding

    Raises
    ------
    InvalidParameterError
        For a parameter out of range.
    DataError
        If no column is left.

    Warns
    -----
    ColumnsDropped
        Naming columns that are constant, missing throughout, or identifiers.
    """
    check_policy(missing)
    if dtype not in ("float32", "float64"):
        raise InvalidParameterError(f'dtype must be "float32" or "float64", got {dtype!r}')
    if max_levels < 1:
        raise InvalidParameterError(f"max_levels must be at least 1, got {max_levels!r}")
    impute = missing == "impute"
    columns = []
    for j, column in enumerate(profile.columns):
        if column.kind == "categorical" and column.order is None:
            columns.append(_encode_levels(column, impute, max_levels, profile.kept))
        else:
            columns.append(_encode_numbers(profile, j, standardize, impute))
    reasons = {
        column.label: _why_left_out(profile, j)
        for j, column in enumerate(columns)
        if not column.names
    }
    _report_left_out(reasons, len(columns))
    return FeatureEncoding(tuple(columns), missing, standardize, dtype)


def _encode_levels(
    column: ColumnProfile, impute: bool, max_levels: int, kept: int
) -> ColumnEncoding:
    indicator = impute and column.missing > 0
    identifier = _is_identifier(column, max_levels, kept)
    if identifier or len(column.levels) + indicator < 2:
        return ColumnEncoding(column.label, "categorical")
    levels = sorted_levels(column.levels)
    return ColumnEncoding(
        column.label,
        "categorical",
        levels=tuple(levels[:max_levels]),
        other=len(levels) > max_levels or column.truncated,
        indicator=indicator,
    )


def _is_identifier(column: ColumnProfile, max_levels: int, kept: int) -> bool:
    """Whether most rows have a level of their own, so that nothing can be learned from it."""
    return column.distinct > max(0.5 * kept, max_levels)


def _encode_numbers(profile: Profile, j: int, standardize: bool, impute: bool) -> ColumnEncoding:
    column = profile.columns[j]
    kind: EncodedKind = "ordinal" if column.order is not None else column.kind or "numeric"
    mean, sd, constant = _spread(profile, j)
    if column.kind is None or constant:
        return _encode_constant(column, kind, mean, impute)
    if not np.isfinite(sd):
        raise InfiniteValuesError(
            f"column {column.label!r} has values too large to be squared in float64; rescale it"
        )
    scale = 1.0 / sd if standardize or kind == "datetime" else 1.0
    if kind == "boolean":
        scale = _SQRT2 if standardize else 1.0
    return ColumnEncoding(
        column.label,
        kind,
        center=mean,
        scale=scale,
        fill=_median(profile, j) if impute else mean,
        value=True,
        indicator=impute and column.missing > 0,
        levels=column.order or (),
        cycles=_cycles(profile, j) if kind == "datetime" else (),
    )


def _encode_constant(
    column: ColumnProfile, kind: EncodedKind, value: float, impute: bool
) -> ColumnEncoding:
    """Leave out a column that is constant or missing throughout.

    Where it is constant but not always known, whether it is may still tell something.
    """
    if column.kind is None:
        return ColumnEncoding(column.label, kind, center=math.nan, fill=math.nan)
    indicator = impute and column.missing > 0
    levels = column.order or ()
    return ColumnEncoding(
        column.label, kind, center=value, fill=value, indicator=indicator, levels=levels
    )


def _spread(profile: Profile, j: int) -> tuple[float, float, bool]:
    """Return mean, standard deviation and whether the column is constant."""
    column = profile.columns[j]
    if column.order is None:
        moments = profile.moments
        sd = float(np.sqrt(moments.variance[j]))
        return float(moments.mean[j]), sd, bool(moments.constant[j])
    places = {level: place for place, level in enumerate(column.order)}
    codes = np.array([places[level] for level in column.levels], np.float64)
    counts = np.array(list(column.levels.values()), np.float64)
    if len(codes) < 2:
        return float(codes.sum()), 0.0, True
    mean = float(np.average(codes, weights=counts))
    return mean, float(np.sqrt(np.average((codes - mean) ** 2, weights=counts))), False


def _median(profile: Profile, j: int) -> float:
    """Return the median of the sample, or the mean where the sample has no value."""
    column, values = profile.columns[j], profile.sample.columns[j]
    if column.order is not None:
        places = {level: place for place, level in enumerate(column.order)}
        values = np.array([places.get(text, np.nan) for text in values], np.float64)
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else _spread(profile, j)[0]


def _cycles(profile: Profile, j: int) -> tuple[str, ...]:
    days = float(profile.moments.maximum[j] - profile.moments.minimum[j]) / DAY
    present = {"year": days >= 366, "week": days >= 14, "day": profile.columns[j].has_time}
    return tuple(cycle for cycle, wanted in present.items() if wanted)


def _why_left_out(profile: Profile, j: int) -> str:
    column = profile.columns[j]
    if column.kind is None:
        return "missing throughout"
    if column.kind == "categorical" and column.order is None and len(column.levels) > 1:
        return "identifiers: most rows have a level of their own"
    return "constant"


def _report_left_out(reasons: Mapping[Hashable, str], n_columns: int) -> None:
    if not reasons:
        return
    groups: dict[str, list[str]] = {}
    for label, reason in reasons.items():
        groups.setdefault(reason, []).append(repr(label))
    described = "; ".join(f"{listing(names)} ({reason})" for reason, names in groups.items())
    if len(reasons) == n_columns:
        raise DataError(f"no feature is left to learn from: {described}")
    warnings.warn(f"left out of the fit: {described}", ColumnsDropped, stacklevel=3)


# --- encoding a partition --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """One partition, encoded; n' rows are left of it.

    Parameters
    ----------
    X : ndarray of shape (n', p)
        Encoded features.
    targets : ndarray of float64, shape (n', k)
        Centred targets.
    weights : ndarray of float64, shape (n',), optional
        Sample weights.
    indices : ndarray of int64, shape (n',)
        Global row numbers.
    """

    X: FloatArray
    targets: Float64Array
    weights: Float64Array | None
    indices: IntArray

    def __len__(self) -> int:
        return len(self.X)


def encode_table(
    encoding: FeatureEncoding, table: Table, *, target_mean: Float64Array, offset: int
) -> EncodedTable:
    """Encode one partition: the rows that the missing policy keeps.

    Parameters
    ----------
    encoding : FeatureEncoding
        Made of the profile of all partitions.
    table : Table of n rows
        The partition.
    target_mean : ndarray of float64, shape (k,)
        Taken off the targets.
    offset : int
        Global number of the first row of the partition.

    Returns
    -------
    EncodedTable
        Row numbers are ``offset`` plus the position in the partition, dropped rows
        counted.

    Raises
    ------
    MissingValuesError
        With ``missing="raise"``, for features or targets.
    DataError
        As :meth:`FeatureEncoding.encode`.
    """
    n = len(table.targets)
    keep = kept_rows((), table.targets, encoding.missing)
    if encoding.missing == "raise" and np.isnan(table.targets).any():
        affected = named_counts([("the target", int(np.isnan(table.targets).any(axis=1).sum()))])
        raise MissingValuesError(f"missing values (NaN) in {affected}")
    features = table.features if keep.all() else table.features[keep]
    X, kept = encoding.encode(features)
    rows = np.flatnonzero(keep)[kept]
    everything = len(rows) == n
    return EncodedTable(
        X=X,
        targets=(table.targets if everything else table.targets[rows]) - target_mean,
        weights=table.weights if everything or table.weights is None else table.weights[rows],
        indices=rows + offset,
    )
