"""What a fitted model is given: brought to the columns that the fit saw."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import pandas as pd

from squeak_dist.distributed.grids import as_dataset, is_data_array, is_dataset, names_of
from squeak_dist.distributed.rows import as_rows
from squeak_dist.distributed.sources import check_collection, opened
from squeak_dist.errors import DataError, UnseenLevels, warn_user
from squeak_dist.feature_model import FeatureModel
from squeak_dist.model import FittedModel
from squeak_dist.table import named_counts

Model = FittedModel | FeatureModel


def as_fitted(model: Model, X: Any) -> Any:
    """Return X as an array where the fit saw an array, and as a table where it saw names.

    Raises
    ------
    DataError, ColumnTypeError
        For columns that do not match, before anything is read.
    """
    X = opened(X)
    check_collection(X)
    if is_data_array(X):
        X = X.data if model.unnamed_features else as_dataset(X)
    X = as_array(model, X) if model.unnamed_features else _as_table(model, X)
    check_columns(model, X)
    return X


def target_labels(model: FittedModel, X: Any) -> list[Hashable]:
    """Return the columns of a table that are the targets of the fit, found by their text.

    Parameters
    ----------
    model : FittedModel
        Knows what the targets are called, as text.
    X : Dask or pandas DataFrame, xarray Dataset, or array
        The table; of an array the names are returned.
    """
    labels = names_of(X) if is_dataset(X) else list(getattr(X, "columns", ()))
    by_text = {str(label): label for label in labels} | {
        label: label for label in labels if isinstance(label, str)
    }
    return [by_text.get(name, name) for name in model.target_names]


def as_array(model: Model, X: Any) -> Any:
    """Return a table as an array of as many columns as the fit saw.

    Raises
    ------
    DataError, ColumnTypeError
        For another number of columns, or columns that are no numbers.
    """
    if isinstance(X, dd.DataFrame):
        return X.to_dask_array()
    X = X.to_numpy() if isinstance(X, pd.DataFrame) else X
    return of_right_width(model, X if isinstance(X, da.Array) else as_rows(X))


def _as_table(model: Model, X: Any) -> Any:
    labels = list(model.encoding.labels)
    if isinstance(X, (dd.DataFrame, pd.DataFrame)) or is_dataset(X):
        return X
    if isinstance(X, da.Array):
        return dd.from_dask_array(of_right_width(model, X), columns=labels)
    return pd.DataFrame(of_right_width(model, as_rows(X)), columns=labels)


def check_columns(model: Model, X: Any) -> None:
    """Check the names and types of a table; arrays pass.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, DataError
        For columns that do not match the fit.
    """
    if is_dataset(X):
        dtypes = {name: X[name].dtype for name in names_of(X)}
        model.encoding.check_columns(list(dtypes), dtypes)
    elif isinstance(X, (dd.DataFrame, pd.DataFrame)):
        model.encoding.check_columns(list(X.columns), dict(zip(X.columns, X.dtypes, strict=True)))


def of_right_width(model: Model, X: Any) -> Any:
    """Return X if it has as many columns as the fit saw; the words are scikit-learn's.

    Raises
    ------
    DataError
        If it has not.
    """
    expected = len(model.encoding.labels)
    if X.ndim != 2 or X.shape[1] != expected:
        got = X.shape[1] if X.ndim == 2 else "no"
        raise DataError(
            f"X has {got} features, but {model.estimator_name} is expecting {expected} features "
            f"as input"
        )
    return X


def warn_of_numbers(model: Model, X: pd.DataFrame) -> None:
    """Warn of numbers that are none of the levels in columns that were text in the fit.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        Its encoding has the levels.
    X : pandas.DataFrame
        Rows in memory. Of lazy ones nothing is known before they are read, and tasks do
        not warn.

    Warns
    -----
    UnseenLevels
        Naming the columns and counts.
    """
    counts = model.encoding.unseen_numbers(X)
    if affected := named_counts((repr(label), n) for label, n in counts.items()):
        warn_user(
            f"numbers in columns that were text in the fit, and are none of its levels: "
            f"{affected} of {len(X):,}. They are treated as levels never seen; see that the "
            f"columns are those of the fit",
            UnseenLevels,
        )
