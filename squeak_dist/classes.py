"""Classes: the labels of a target as a value, and as ±1 columns."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from squeak_dist._typing import Float64Array, IntArray
from squeak_dist.calibration import Link
from squeak_dist.errors import ColumnTypeError, DataError, InfiniteValuesError
from squeak_dist.table import Table

Label = str | bool | int | float

_SHOWN = 5


@dataclass(frozen=True)
class Classes:
    """The K ≥ 2 classes of a target, in order.

    Parameters
    ----------
    target : str
        What the user calls the target.
    labels : tuple of str, bool, int or float
        Distinct and ascending.
    dtype : str
        NumPy's name of the type of an array of labels.
    series_dtype : str
        Pandas' name of the type of a column of labels.
    categories : tuple of label, optional
        Of a categorical target, in its order; also those that no row has.
    ordered : bool, default False
        Whether these are ordered.
    link : Link, optional
        From scores to probabilities; known at the end of the fit.
    """

    target: str
    labels: tuple[Label, ...]
    dtype: str
    series_dtype: str
    categories: tuple[Label, ...] | None = None
    ordered: bool = False
    link: Link | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The labels, shape (K,)."""
        return np.array(self.labels, dtype=self.dtype)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the columns of the regression are called: one of two classes, else K."""
        return (self.target,) if len(self) == 2 else tuple(map(str, self.labels))

    @cached_property
    def places(self) -> dict[Label, int]:
        """The position of each label."""
        return {label: place for place, label in enumerate(self.labels)}

    def codes(self, values: Any) -> Float64Array:
        """Return positions of labels, shape (n,): NaN where missing, K for other labels.

        Parameters
        ----------
        values : Series or array of n labels
            Of the fit, or others of its kind.

        Raises
        ------
        ColumnTypeError
            For labels of another kind: text where the fit had numbers, or numbers for text.
        """
        found, labels = told_apart(values, self.target)
        text = isinstance(self.labels[0], str)
        for label in labels:
            if isinstance(label, str) != text:
                raise ColumnTypeError(
                    f"the target {self.target!r} holds the label {label!r}, but the classes of "
                    f"the fit are {'text' if text else 'numbers'}: {shown(self.labels)}"
                )
        places = [self.places.get(label, len(self)) for label in labels]
        return np.array([*places, np.nan], np.float64)[found]

    def decoded(self, codes: IntArray, *, holes: bool) -> npt.NDArray[Any]:
        """Return the labels at positions, shape (n,).

        Parameters
        ----------
        codes : ndarray of int, shape (n,)
            −1 for no label.
        holes : bool
            Whether there may be such: the labels are then objects, None among them.
        """
        return np.array([*self.labels, None], object)[codes] if holes else self.array[codes]

    def column_dtype(self, *, holes: bool) -> Any:
        """Return the pandas dtype of a column of labels; ``holes`` as in :meth:`decoded`."""
        if self.categories is not None:
            return pd.CategoricalDtype(list(self.categories), ordered=self.ordered)
        dtype = pd.api.types.pandas_dtype(self.series_dtype)
        if holes and isinstance(dtype, np.dtype) and dtype.kind in "iub":
            return pd.BooleanDtype() if dtype.kind == "b" else pd.Int64Dtype()
        return dtype

    def scores(self, outputs: Float64Array) -> Float64Array:
        """Return one score per class, shape (n, K), of what the regression predicts."""
        if len(self) > 2:
            return outputs
        single = outputs.reshape(len(outputs))
        return np.column_stack([-single, single])

    def log_odds(self, outputs: Float64Array) -> Float64Array:
        """Return log-odds, shape (n, K), of what the regression predicts."""
        assert self.link is not None
        return self.link.log_odds(self.scores(outputs))

    def to_config(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Classes:
        """Return what :meth:`to_config` took apart."""
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in config.items()
        }
        link: Any = values.pop("link")
        if link is not None:
            values["link"] = Link(**link | {"offsets": tuple(link["offsets"])})
        return cls(**values)


def told_apart(values: Any, target: str) -> tuple[IntArray, list[Label]]:
    """Return the distinct labels of a column, and which of them each row has.

    Parameters
    ----------
    values : Series or array of n labels
        Text, booleans, integers, or floats that are whole; may be categorical.
    target : str
        What it is called, for the messages.

    Returns
    -------
    found : ndarray of int, shape (n,)
        Positions in ``labels``; −1 where missing.
    labels : list
        As they appear.

    Raises
    ------
    ColumnTypeError
        For other types.
    DataError
        For numbers that are not whole.
    """
    found, uniques = pd.factorize(pd.Series(values))
    return found, [plain_label(value, target) for value in uniques]


def plain_label(value: Any, target: str) -> Label:
    """Return a label as a value of Python."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise ColumnTypeError(
            f"Unknown label type: the target {target!r} holds a {type(value).__name__}; labels "
            f"are text, booleans or whole numbers"
        )
    if not np.isfinite(float(value)):
        raise InfiniteValuesError(
            f"infinite values (inf): Input y contains infinity in the target {target!r}; replace "
            f"or remove them"
        )
    if not float(value).is_integer():
        raise DataError(
            f"Unknown label type: continuous: the target {target!r} holds {value}; classes are "
            f"text, booleans or whole numbers. To predict a number use SqueakRegressor"
        )
    return float(value)


def indicators(classes: Classes, codes: Float64Array) -> Float64Array:
    """Return positions of classes as ±1 columns.

    Parameters
    ----------
    classes : Classes
        The K classes.
    codes : ndarray of shape (n,) or (n, 1)
        As of :meth:`Classes.codes`.

    Returns
    -------
    ndarray of float64, shape (n, 1) of two classes (+1 is the second), else (n, K)
        NaN where the label is missing or none of the classes.
    """
    places = codes.reshape(-1, 1)
    columns = np.where(places == np.arange(len(classes)), 1.0, -1.0)
    columns[~(places[:, 0] < len(classes))] = np.nan  # NaN is not smaller either
    return columns[:, 1:] if len(classes) == 2 else columns


def indicate(table: Table, classes: Classes, weights: Float64Array | None) -> Table:
    """Turn the codes of a table into ±1 columns, and class weights into weights of its rows.

    Parameters
    ----------
    table : Table of n rows
        Its one target has positions of :meth:`Classes.codes`.
    classes : Classes
        The classes.
    weights : ndarray of shape (K,), optional
        Of the classes.

    Returns
    -------
    Table
        With one target of two classes (+1 is the second), else K; NaN where missing.

    Raises
    ------
    DataError
        For a label that is not among the classes.
    """
    codes = table.targets[:, 0]
    missing = np.isnan(codes)
    if (codes >= len(classes)).any():
        raise DataError(
            f"the target {classes.target!r} has labels that are not among the classes "
            f"({shown(classes.labels)}): partial_fit needs all of them in its first classes=, and "
            f"the data must not change during a fit"
        )
    if weights is not None:
        places = np.where(missing, 0, codes).astype(np.int64)
        own = np.where(missing, 1.0, weights[places])
        weights = own if table.weights is None else own * table.weights
    return Table(
        table.features,
        indicators(classes, codes),
        table.weights if weights is None else weights,
    )


def shown(labels: Sequence[Hashable]) -> str:
    """Return the first of some labels, for a message."""
    more = f", … ({len(labels):,} in all)" if len(labels) > _SHOWN else ""
    return ", ".join(map(repr, labels[:_SHOWN])) + more
