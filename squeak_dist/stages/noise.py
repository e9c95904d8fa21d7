"""The noise σ² of a model, freed of the errors that the novelty of rows explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.calibration import LEAST_REMAINDER
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel

_ROWS = 512


def with_noise_of_fit(model: FittedModel) -> FittedModel:
    """Return the model with the σ² that its errors on a sample of the rows fitted speak for.

    Parameters
    ----------
    model : FittedModel
        Its σ² is Σ v e² / (n − df): the noise, and what the dictionary does not span, which
        r(x)/μ in the predictive variance stands for already.

    Notes
    -----
    See :func:`noise_share`. Cost: 2 s m² multiply-adds for the s ≤ 512 rows of the sample.
    """
    return _with_noise(model, lambda leverages: leverages)


def with_noise_of_stream(model: FittedModel) -> FittedModel:
    """Return the model as :func:`with_noise_of_fit` does, for the sums of a stream.

    Parameters
    ----------
    model : FittedModel
        The sums of a stream hold only what the changes of the dictionary have left of an
        early row, so its leverage v h may exceed 1; v h / (1 + v h) is that in sums with
        the row added.
    """
    return _with_noise(model, lambda leverages: leverages / (1 + leverages))


def _with_noise(model: FittedModel, within: Callable[[Float64Array], Float64Array]) -> FittedModel:
    sample = model.sample
    if sample is None or not len(sample) or not len(model.dictionary):
        return model
    X, weights = sample.X[:_ROWS], sample.weights[:_ROWS]
    with single_blas_thread():
        errors = sample.targets[:_ROWS] - model.predict_encoded(X)
        leverages, residuals = model.leverage_and_residual(X)
    novelty = weights * residuals / model.mu
    share = noise_share(errors, weights, within(weights * leverages), novelty)
    noise = model.noise_variance * share
    report = {**model.report, "noise_std": np.sqrt(noise).tolist()}
    return replace(model, noise_variance=noise, report=report)


def noise_share(
    errors: Float64Array, weights: Float64Array, leverages: Float64Array, novelty: Float64Array
) -> Float64Array:
    """Return which part of the squared errors is noise of a weight-1 target, shape (k,).

    Parameters
    ----------
    errors : ndarray of float64, shape (s, k)
        y − f of rows that were fitted.
    weights : ndarray of float64, shape (s,)
        v ≥ 0.
    leverages : ndarray of float64, shape (s,)
        v h, in [0, 1).
    novelty : ndarray of float64, shape (s,)
        v r / μ ≥ 0.

    Returns
    -------
    ndarray of float64, shape (k,)
        In (0, 1]; 1 where the dictionary spans all rows.

    Notes
    -----
    Without row i its error is e / (1 − v h), and the model gives it the variance
    σ² (1/v + h/(1 − v h) + r/μ). The σ² that makes the mean of their ratio 1 is the mean of
    v e² / (1 − v h) / (1 + (1 − v h) v r/μ); over the mean of v e² / (1 − v h), the same for
    r = 0, it is a share that hardly depends on which rows are in the sample.
    """
    remainder = np.maximum(1 - leverages, LEAST_REMAINDER)
    squares = (weights / remainder)[:, None] * errors**2
    total = squares.sum(axis=0)
    noise = (squares / (1 + remainder * novelty)[:, None]).sum(axis=0)
    return np.divide(noise, total, out=np.ones_like(total), where=total > 0)
