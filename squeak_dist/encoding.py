"""From the user's columns to a float32 matrix, and back.

Numeric columns are centred (in float64, before the cast) and standardized, text
becomes one 0/1 column per level, dates become elapsed time and cycles. An encoding
is made of a profile (:func:`~squeak_dist.encoding_rules.make_encoding`), is a frozen
value, and can be stored.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from squeak_dist._typing import BoolArray, Float64Array, FloatArray, IntArray
from squeak_dist.column_encoding import ColumnEncoding, decode_column, unseen_numbers
from squeak_dist.errors import DataError, MissingValuesError
from squeak_dist.row_encoder import RowEncoder
from squeak_dist.table import Table, column_positions, kept_rows, named_counts

_COLUMN_NUMBERS = ("center", "scale", "fill")  # arrays in a store, for the sake of their bits


@dataclass(frozen=True, eq=False)
class FeatureEncoding:
    """From the user's columns to rows of numbers: a frozen value that can be stored.

    Parameters
    ----------
    columns : tuple of ColumnEncoding
        One per column of the user, in order; those that were left out of the fit have no
        encoded columns.
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
        """The user's labels, in order: what an array holds by position."""
        return self._encoder.labels

    @property
    def used_labels(self) -> tuple[Hashable, ...]:
        """The labels of the columns that are encoded: all that a frame must have."""
        return self._encoder.used_labels

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns that are encoded, in order."""
        return tuple(map(str, self.used_labels))

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the encoded columns, shape (p,)."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def n_features(self) -> int:
        """Number of encoded columns, p."""
        return self._encoder.width

    def check_columns(
        self, columns: Sequence[Hashable], dtypes: Mapping[Hashable, Any] | None = None
    ) -> None:
        """Check names and types of a table before any of it is read.

        Columns that were left out of the fit are not asked for.

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
        column_positions(columns, self.used_labels)
        for column in self.columns:
            dtype = None if dtypes is None else dtypes.get(column.label)
            if dtype is not None:
                column.check_dtype(dtype)

    def encode(self, features: pd.DataFrame | npt.NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        """Encode a table.

        Parameters
        ----------
        features : pandas.DataFrame or ndarray of shape (n, d)
            A frame is matched by column names, and needs none that was left out of the
            fit; an array is matched by position, and has them all.

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
        return self._encoder.encode(features)

    def unseen_numbers(self, frame: pd.DataFrame) -> dict[Hashable, int]:
        """Count, by column, rows of numbers that are none of its levels.

        Parameters
        ----------
        frame : pandas.DataFrame
            Has the columns that are used.

        Returns
        -------
        dict of label to int
            Of the columns that were text in the fit and hold numbers, booleans or dates here.
        """
        positions = column_positions(frame.columns, self.used_labels)
        chosen = dict(zip(self.used_labels, positions, strict=True))
        return {
            column.label: unseen_numbers(column, frame.iloc[:, chosen[column.label]])
            for column in self.columns
            if column.label in chosen and column.kind in ("categorical", "ordinal")
        }

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
        decoded = {
            j: decode_column(column, encoded[:, self._encoder.slots[j]], self.dtype)
            for j, column in enumerate(self.columns)
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
        config = {
            "missing": self.missing,
            "standardize": self.standardize,
            "dtype": self.dtype,
            "columns": [column.to_config() for column in self.columns],
        }
        arrays = {
            name: np.array([getattr(column, name) for column in self.columns], np.float64)
            for name in _COLUMN_NUMBERS
        }
        return config, arrays

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> FeatureEncoding:
        """Return the encoding that :meth:`to_config` described: the same bits."""
        columns = tuple(
            ColumnEncoding.from_config(
                column, **{name: float(arrays[name][j]) for name in _COLUMN_NUMBERS}
            )
            for j, column in enumerate(config["columns"])
        )
        return cls(
            columns, str(config["missing"]), bool(config["standardize"]), str(config["dtype"])
        )

    @cached_property
    def _encoder(self) -> RowEncoder:
        return RowEncoder(self.columns, self.missing, self.standardize, self.dtype)


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
    encoding: FeatureEncoding,
    table: Table,
    *,
    target_mean: Float64Array,
    target_scale: Float64Array | float = 1.0,
    offset: int,
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
    target_scale : ndarray of float64, shape (k,), default 1.0
        What the targets are then divided by, so that float32 products hold them.
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
        targets=((table.targets if everything else table.targets[rows]) - target_mean)
        / target_scale,
        weights=table.weights if everything or table.weights is None else table.weights[rows],
        indices=rows + offset,
    )
