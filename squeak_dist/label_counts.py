"""Labels counted, partition by partition, and what classes and weights follow from the counts."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes, Label, plain_label, shown, told_apart
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    EmptyDataError,
    InvalidParameterError,
    MissingValuesError,
)
from squeak_dist.table import check_policy

MOST_CLASSES = 10_000


@dataclass(frozen=True)
class LabelCounts:
    """Labels and how many rows have them; mergeable.

    Parameters
    ----------
    rows : mapping of label to int
        Rows of each label.
    missing : int
        Rows without a label.
    largest : int
        Rows of the largest partition.
    """

    rows: Mapping[Label, int]
    missing: int
    largest: int


def count_labels(values: Any, target: str) -> LabelCounts:
    """Count the labels of one partition; the parameters are those of :func:`told_apart`."""
    found, labels = told_apart(values, target)
    counts = np.bincount(found + 1, minlength=len(labels) + 1).tolist()
    rows: dict[Label, int] = {}
    for label, count in zip(labels, counts[1:], strict=True):
        rows[label] = rows.get(label, 0) + count
    return LabelCounts(rows, counts[0], len(found))


def merge_counts(parts: Sequence[LabelCounts]) -> LabelCounts:
    """Return the counts of all parts.

    Raises
    ------
    DataError
        Beyond 10,000 different labels, which are no classes.
    """
    rows: dict[Label, int] = {}
    for part in parts:
        for label, count in part.rows.items():
            rows[label] = rows.get(label, 0) + count
    if len(rows) > MOST_CLASSES:
        raise DataError(
            f"the target has more than {MOST_CLASSES:,} different labels ({shown(tuple(rows))}): "
            f"these are names or numbers, not classes; to predict a number use SqueakRegressor"
        )
    return LabelCounts(
        rows, sum(part.missing for part in parts), max(part.largest for part in parts)
    )


def make_classes(counts: LabelCounts, target: str, dtype: Any, missing: str) -> Classes:
    """Decide what the classes are.

    Parameters
    ----------
    counts : LabelCounts
        Of all rows.
    target : str
        What the user calls the target.
    dtype : dtype
        Of the collection that the labels came in.
    missing : {"raise", "impute", "drop"}
        Whether rows without a label are an error.

    Raises
    ------
    EmptyDataError, MissingValuesError
        If there are no labels, or too few.
    DataError
        If there is one class only.
    ColumnTypeError
        If some are text and some are numbers.
    """
    check_policy(missing)
    total = sum(counts.rows.values()) + counts.missing
    if counts.missing and missing == "raise":
        raise MissingValuesError(
            f"missing values (Input y contains NaN) in the target {target!r} ({counts.missing} of "
            f'{total} rows); pass missing="impute" or missing="drop" to leave such rows out'
        )
    if not counts.rows:
        raise EmptyDataError(
            f"found no rows to fit (n_samples=0): none of {total} rows has a label in {target!r}"
        )
    labels = _sorted(tuple(counts.rows), target)
    if len(labels) < 2:
        raise DataError(
            f"a classifier can't train when only one class is present: all {total} rows are "
            f"{labels[0]!r}"
        )
    return _typed(Classes(target, labels, "object", "object"), dtype)


def _sorted(labels: tuple[Label, ...], target: str) -> tuple[Label, ...]:
    text = {isinstance(label, str) for label in labels}
    if len(text) > 1:
        raise ColumnTypeError(
            f"the target {target!r} holds text and numbers ({shown(labels)}); labels must be all "
            f"text or all numbers: convert them, e.g. with astype(str)"
        )
    return tuple(sorted(labels))


def _typed(classes: Classes, dtype: Any) -> Classes:
    """Return the classes with the types of their labels."""
    labels = classes.labels
    if isinstance(dtype, pd.CategoricalDtype):
        # Dask's own, of categories not known yet, lists none.
        known = [plain_label(value, classes.target) for value in dtype.categories]
        every = tuple(known) if set(labels) <= set(known) else labels
        return replace(
            classes,
            dtype=_array_dtype(labels, None),
            categories=every,
            ordered=bool(dtype.ordered),
        )
    plain = dtype if isinstance(dtype, np.dtype) and dtype.kind in "biufU" else None
    return replace(classes, dtype=_array_dtype(labels, plain), series_dtype=_series_dtype(dtype))


def _series_dtype(dtype: Any) -> str:
    """Return a name that pandas reads back."""
    name = "str" if getattr(dtype, "kind", "") == "U" else str(dtype)
    try:
        pd.api.types.pandas_dtype(name)
    except (TypeError, ValueError, NotImplementedError):
        return "object"
    return name


def _array_dtype(labels: tuple[Label, ...], dtype: np.dtype[Any] | None) -> str:
    if dtype is not None:
        return dtype.str
    found = np.array(labels).dtype
    return "object" if found.kind == "U" else found.str


def class_weights(given: Any, classes: Classes, counts: LabelCounts) -> Float64Array | None:
    """Return the weight of each class, shape (K,), or None where all are 1.

    Parameters
    ----------
    given : None, "balanced" or mapping of label to float
        As scikit-learn has it: ``"balanced"`` is n / (K n_k) with n_k the rows of class k
        as they come; classes that a mapping leaves out have weight 1.
    classes : Classes
        The classes.
    counts : LabelCounts
        Of all rows.

    Raises
    ------
    InvalidParameterError
        For anything else, negative weights, or labels that are not among the classes.
    """
    if given is None:
        return None
    rows = np.array([counts.rows[label] for label in classes.labels], np.float64)
    if isinstance(given, str):
        return rows.sum() / (len(classes) * rows)
    unknown = [label for label in given if label not in classes.places]
    if unknown:
        raise InvalidParameterError(
            f"class_weight names {shown(tuple(unknown))}, but the classes are "
            f"{shown(classes.labels)}"
        )
    return np.array([float(given.get(label, 1.0)) for label in classes.labels])


def check_class_weight(given: Any) -> None:
    """Check ``class_weight`` without any data; raise InvalidParameterError."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return
    if not isinstance(given, Mapping):
        raise InvalidParameterError(
            f'class_weight must be None, "balanced" or a dict of weights by label; got {given!r}'
        )
    for label, weight in given.items():
        number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if not number or not 0 <= float(weight) < np.inf:
            raise InvalidParameterError(
                f"class_weight[{label!r}] must be a number ≥ 0, got {weight!r}"
            )
