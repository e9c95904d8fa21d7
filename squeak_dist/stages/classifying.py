"""What a fit of ±1 columns adds: the link from scores to probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.calibration import fit_link, left_out_scores
from squeak_dist.classes import Classes
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.row_sample import RowSample


def classified(model: FittedModel, classes: Classes, sample: RowSample) -> FittedModel:
    """Return the model with its classes and their link, fitted on left-out scores.

    Parameters
    ----------
    model : FittedModel
        Of the ±1 columns.
    classes : Classes
        What they stand for.
    sample : RowSample
        Of the rows fitted, with their ±1 columns and weights.

    Notes
    -----
    No further pass over the data: the s rows of the sample cost 2 s m² multiply-adds.
    """
    X, kept = model.encoding.encode(sample.features)
    weights = np.ones(len(X)) if sample.weights is None else sample.weights[kept]
    with single_blas_thread():
        leverages = weights * model.leverage_encoded(X)
    return _linked(model, classes, X, sample.targets[kept], weights, leverages)


def classified_stream(
    model: FittedModel,
    classes: Classes,
    X: FloatArray,
    targets: Float64Array,
    weights: Float64Array,
) -> FittedModel:
    """Return the model with its classes and their link, fitted on left-out scores.

    Parameters
    ----------
    model, classes
        As in :func:`classified`.
    X : ndarray of shape (s, p)
        Encoded rows that were fitted.
    targets : ndarray of float64, shape (s, k)
        Their ±1 columns.
    weights : ndarray of float64, shape (s,)
        Their weights.

    Notes
    -----
    The sums of a stream hold only what the changes of the dictionary have left of an early
    row, so its leverage v h may exceed 1; v h / (1 + v h) is that in sums with the row added.
    """
    with single_blas_thread():
        leverages = weights * model.leverage_encoded(X)
    return _linked(model, classes, X, targets, weights, leverages / (1 + leverages))


def _linked(
    model: FittedModel,
    classes: Classes,
    X: FloatArray,
    targets: Float64Array,
    weights: Float64Array,
    leverages: Float64Array,
) -> FittedModel:
    indicators = classes.scores(targets)
    if not weights.any():  # the rows of positive weight are too few to be in the sample
        weights = np.ones(len(X))
    with single_blas_thread():
        scores = classes.scores(model.predict_encoded(X))
        left_out = left_out_scores(scores, indicators, leverages)
        link = fit_link(left_out, indicators.argmax(axis=1), weights)
    report = {**model.report, "task": "classification"}
    return replace(model, classes=replace(classes, link=link), report=report)
