"""Tables cut by column name, and which of their rows a missing policy keeps."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from squeak_dist._typing import BoolArray, Float64Array, IntArray
from squeak_dist.columns import ColumnValues, kind_name, read_column
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    InvalidParameterError,
    MissingColumnsError,
)
from squeak_dist.parameter_table import MISSING_POLICIES

_BLOCK_ENTRIES = 1 << 17  # float64 entries of a row block: 1 MiB, which stays in L2
_MAX_BLOCK_ROWS = 1 << 14


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
    target_names : tuple of str, optional
        What the user calls the targets; their labels by default.
    weight_name : str, optional
        What the user calls the weights; their label by default.
    """

    features: tuple[Hashable, ...]
    targets: tuple[Hashable, ...]
    weight: Hashable | None = None
    target_names: tuple[str, ...] = ()
    weight_name: str = ""

    def __post_init__(self) -> None:
        # Frozen: defaults that follow other fields have no other way in.
        object.__setattr__(
            self, "target_names", self.target_names or tuple(map(str, self.targets))
        )
        object.__setattr__(self, "weight_name", self.weight_name or str(self.weight))

    @property
    def weights(self) -> tuple[Hashable, ...]:
        """The label of the sample weights, or none."""
        return () if self.weight is None else (self.weight,)


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
    needed = (*schema.features, *schema.targets, *schema.weights)
    positions = column_positions(frame.columns, needed)
    n_features, n_targets = len(schema.features), len(schema.targets)
    targets = np.empty((len(frame), n_targets))
    for j, name in enumerate(schema.target_names):
        column = frame.iloc[:, positions[n_features + j]]
        targets[:, j] = _float_column(column.rename(name), "target")
    weights = None
    if schema.weights:
        column = frame.iloc[:, positions[-1]]
        weights = _float_column(column.rename(schema.weight_name), "sample weight")
    features = frame.iloc[:, as_slice(positions[:n_features])]
    return Table(features, targets, weights)


def _float_column(series: pd.Series[Any], role: str) -> Float64Array:
    """Return a target or weight as float64 with NaN where missing."""
    column = read_column(series)
    if column.numbers is None and column.n_missing == len(series):
        return np.full(len(series), np.nan)
    if column.numbers is None or column.kind not in ("numeric", "boolean"):
        raise ColumnTypeError(
            f"the {role} {series.name!r} is {kind_name(column.kind)} (dtype {series.dtype}); "
            f"expected numbers"
            + ("; for classes use SqueakClassifier" if role == "target" else "")
        )
    return np.array(column.numbers, dtype=np.float64)


def as_slice(positions: Sequence[int]) -> slice | IntArray:
    """Return adjacent positions as a slice, which neither copies columns nor scatters them."""
    if positions and list(positions) == list(range(positions[0], positions[0] + len(positions))):
        return slice(positions[0], positions[0] + len(positions))
    return np.array(positions, np.int64)


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


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose float64 block of ``width`` columns stays in the cache."""
    step = max(256, min(_MAX_BLOCK_ROWS, _BLOCK_ENTRIES // max(1, width)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def listing(items: Iterable[str], limit: int = 10) -> str:
    """Return "a, b and c", or the first ``limit`` and how many more there are."""
    names = list(items)
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def named_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Return "'a' (2 rows) and 'b' (1 row)" of the counts that are not 0; "" if all are."""
    affected = [f"{name} ({n} row{'s' if n != 1 else ''})" for name, n in counts if n]
    return listing(affected) if affected else ""
