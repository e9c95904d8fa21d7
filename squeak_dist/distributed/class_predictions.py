"""Labels, log-odds and probabilities of any collection, lazy where the input is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.delayed import delayed
from scipy.special import log_softmax, softmax

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes
from squeak_dist.distributed.grids import is_data_array, is_dataset
from squeak_dist.distributed.predictions import predict_collection
from squeak_dist.errors import ColumnTypeError
from squeak_dist.model import FittedModel

_Rule = Callable[[Classes, Float64Array, bool], npt.NDArray[Any]]


def predict_labels(model: FittedModel, X: Any) -> Any:
    """Predict the label of each row: the class of the largest log-odds.

    Parameters
    ----------
    model : FittedModel
        Of classes.
    X : collection
        As for :func:`~squeak_dist.distributed.predictions.predict_collection`.

    Returns
    -------
    Dask Series or array, or ndarray
        Shape (n,), of the type that the labels of the fit had. A row that
        ``missing="drop"`` leaves out has no label: NA in a frame, None in an array.
    """
    assert model.classes is not None
    classes, outputs = model.classes, predict_collection(model, X)
    dtype = classes.column_dtype(holes=_holes(model))
    column = pd.Series([], dtype=dtype, name=classes.target)
    return _mapped(model, outputs, _labels, column, width=None)


def predict_log_odds(model: FittedModel, X: Any) -> Any:
    """Return log-odds: of the second of two classes, shape (n,), or one per class, (n, K).

    The parameters are those of :func:`predict_labels`.
    """
    assert model.classes is not None
    classes, outputs = model.classes, predict_collection(model, X)
    if len(classes) == 2:
        column = pd.Series([], dtype=np.float64, name=classes.target)
        return _mapped(model, outputs, _odds, column, width=None)
    return _mapped(model, outputs, _odds, _columns(classes), width=len(classes))


def predict_probabilities(model: FittedModel, X: Any, *, logarithm: bool = False) -> Any:
    """Return the probability of each class, shape (n, K); columns of a frame are the labels.

    Parameters
    ----------
    model, X
        As for :func:`predict_labels`.
    logarithm : bool, default False
        Return natural logarithms.
    """
    assert model.classes is not None
    rule = _log_shares if logarithm else _shares
    classes, outputs = model.classes, predict_collection(model, X)
    return _mapped(model, outputs, rule, _columns(classes), width=len(classes))


def _columns(classes: Classes) -> pd.DataFrame:
    empty = pd.DataFrame({i: pd.Series(dtype=np.float64) for i in range(len(classes))})
    return empty.set_axis(pd.Index(list(classes.labels)), axis=1)


def _holes(model: FittedModel) -> bool:
    return model.encoding.missing == "drop"


def _labels(classes: Classes, outputs: Float64Array, holes: bool) -> npt.NDArray[Any]:
    odds = classes.log_odds(outputs)
    places = np.where(np.isnan(odds[:, 0]), -1, odds.argmax(axis=1))
    return classes.decoded(places, holes=holes)


def _odds(classes: Classes, outputs: Float64Array, holes: bool) -> Float64Array:
    odds = classes.log_odds(outputs)
    return odds[:, 1] - odds[:, 0] if len(classes) == 2 else odds


def _shares(classes: Classes, outputs: Float64Array, holes: bool) -> Float64Array:
    shares: Float64Array = softmax(classes.log_odds(outputs), axis=1)
    return shares


def _log_shares(classes: Classes, outputs: Float64Array, holes: bool) -> Float64Array:
    shares: Float64Array = log_softmax(classes.log_odds(outputs), axis=1)
    return shares


def _mapped(model: FittedModel, outputs: Any, rule: _Rule, meta: Any, width: int | None) -> Any:
    """Apply a rule to what the regression predicts, block by block where that is lazy."""
    classes, holes = model.classes, _holes(model)
    assert classes is not None
    if is_dataset(outputs) or is_data_array(outputs):
        raise ColumnTypeError(
            "a classifier predicts frames and arrays; of an xarray Dataset take "
            "X.to_dask_dataframe(), of a DataArray its values: X.data"
        )
    shared = delayed(classes, traverse=False)
    if isinstance(outputs, (dd.Series, dd.DataFrame)):
        frame: Any = outputs
        return frame.map_partitions(_map_frame, shared, rule, holes, meta, meta=meta)
    if not isinstance(outputs, da.Array):
        return rule(classes, np.asarray(outputs), holes)
    outputs = outputs.rechunk({1: -1}) if outputs.ndim == 2 else outputs
    example = rule(classes, np.zeros((1, outputs.shape[1] if outputs.ndim == 2 else 1)), holes)
    shape: dict[str, Any] = {"dtype": example.dtype, "meta": example[:0]}
    if width is not None:
        shape["chunks"] = (outputs.chunks[0], (width,))
    if (width is None) != (outputs.ndim == 1):
        shape["drop_axis" if width is None else "new_axis"] = 1
    return da.map_blocks(_map_block, outputs, classes=shared, rule=rule, holes=holes, **shape)


def _map_frame(
    frame: pd.Series[Any] | pd.DataFrame, classes: Classes, rule: _Rule, holes: bool, meta: Any
) -> Any:
    values = rule(classes, frame.to_numpy(), holes)
    if values.ndim == 2:
        return pd.DataFrame(values, index=frame.index, columns=meta.columns)
    return pd.Series(values, index=frame.index, dtype=meta.dtype, name=meta.name)


def _map_block(
    block: Float64Array, classes: Classes, rule: _Rule, holes: bool
) -> npt.NDArray[Any]:
    return rule(classes, block, holes)
