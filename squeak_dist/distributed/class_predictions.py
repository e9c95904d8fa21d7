"""Labels, log-odds and probabilities of any collection, lazy where the input is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.classes import Classes
from squeak_dist.distributed.row_outputs import RowOutput, check_finite, map_rows
from squeak_dist.model import FittedModel

_AXIS = "class"


def predict_labels(model: FittedModel, X: Any) -> Any:
    """Predict the label of each row: the class of the largest log-odds.

    Parameters
    ----------
    model : FittedModel
        Of classes.
    X : collection
        As for :func:`~squeak_dist.distributed.row_outputs.map_rows`.

    Returns
    -------
    Dask Series or array, xarray DataArray, or ndarray
        Shape (n,), of the type that the labels of the fit had. A row that
        ``missing="drop"`` leaves out has no label: NA in a frame, None in an array.
    """
    classes, holes = _classes(model), _holes(model)
    output = RowOutput(
        (classes.target,),
        True,
        _labels,
        dtype=classes.decoded(np.array([0]), holes=holes).dtype,
        hole=None,
        column_dtype=classes.column_dtype(holes=holes),
    )
    return map_rows(model, X, output)


def predict_log_odds(model: FittedModel, X: Any) -> Any:
    """Return log-odds: of the second of two classes, shape (n,), or one per class, (n, K).

    The parameters are those of :func:`predict_labels`.
    """
    classes = _classes(model)
    if len(classes) == 2:
        return map_rows(model, X, RowOutput((classes.target,), True, _difference))
    return map_rows(model, X, RowOutput(classes.labels, False, _log_odds, axis=_AXIS))


def predict_probabilities(model: FittedModel, X: Any, *, logarithm: bool = False) -> Any:
    """Return the probability of each class, shape (n, K); columns of a frame are the labels.

    Parameters
    ----------
    model, X
        As for :func:`predict_labels`.
    logarithm : bool, default False
        Return natural logarithms.
    """
    compute = _log_shares if logarithm else _shares
    return map_rows(model, X, RowOutput(_classes(model).labels, False, compute, axis=_AXIS))


def _classes(model: FittedModel) -> Classes:
    assert model.classes is not None
    return model.classes


def _holes(model: FittedModel) -> bool:
    return model.encoding.missing == "drop"


def _log_odds(model: FittedModel, X: FloatArray) -> Float64Array:
    outputs = model.predict_encoded(X)
    check_finite(model, outputs)
    return _classes(model).log_odds(outputs)


def _labels(model: FittedModel, X: FloatArray) -> npt.NDArray[Any]:
    places = _log_odds(model, X).argmax(axis=1)
    return _classes(model).decoded(places, holes=_holes(model))[:, None]


def _difference(model: FittedModel, X: FloatArray) -> Float64Array:
    odds = _log_odds(model, X)
    return odds[:, 1:] - odds[:, :1]


def _shares(model: FittedModel, X: FloatArray) -> Float64Array:
    shares: Float64Array = softmax(_log_odds(model, X), axis=1)
    return shares


def _log_shares(model: FittedModel, X: FloatArray) -> Float64Array:
    shares: Float64Array = log_softmax(_log_odds(model, X), axis=1)
    return shares
