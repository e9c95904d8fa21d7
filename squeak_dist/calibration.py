"""From scores of classes to probabilities: a link of few numbers, fitted on left-out scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from squeak_dist._typing import Float64Array

# Below this share the logarithm of a score is cut off: regression on ±1 leaves [−1, 1].
SHARE_FLOOR = 0.03
_LEAST_SLOPE = 1e-2  # above 0, so that no two scores share a probability
LEAST_REMAINDER = 1e-3  # of 1 − h


@dataclass(frozen=True)
class Link:
    """Log-odds g_k = slope · f_k + power · log max((1 + f_k) / 2, 0.03) + offset_k.

    Parameters
    ----------
    slope, power : float
        At least 0.01 and 0, so that g_k rises with f_k. (0, 1) without offsets would be the
        rule p = (1 + f) / 2, cut at 0.03 and divided by its sum.
    offsets : tuple of float, length K
        One per class.
    """

    slope: float
    power: float
    offsets: tuple[float, ...]

    def log_odds(self, scores: Float64Array) -> Float64Array:
        """Return g, shape (n, K), of scores of that shape; their softmax are probabilities."""
        return self.slope * scores + self.power * _log_share(scores) + np.array(self.offsets)


def _log_share(scores: Float64Array) -> Float64Array:
    return np.log(np.maximum((1 + scores) / 2, SHARE_FLOOR))


def left_out_scores(
    scores: Float64Array, indicators: Float64Array, leverages: Float64Array
) -> Float64Array:
    """Return what a model fitted without a row would say of it: y − (y − f) / (1 − h).

    Parameters
    ----------
    scores : ndarray of shape (n, K)
        f of rows that were fitted.
    indicators : ndarray of shape (n, K)
        Their ±1.
    leverages : ndarray of shape (n,)
        h = v φᵀ A⁻¹ φ, in [0, 1).

    Notes
    -----
    Exact for ridge regression with fixed features φ and mean.
    """
    remainder = np.maximum(1 - leverages, LEAST_REMAINDER)
    return indicators - (indicators - scores) / remainder[:, None]


def fit_link(scores: Float64Array, codes: Float64Array, weights: Float64Array) -> Link:
    """Fit a link by penalized maximum likelihood.

    Parameters
    ----------
    scores : ndarray of shape (n, K)
        f, of rows that the model has not seen.
    codes : ndarray of int, shape (n,)
        Classes, 0..K − 1.
    weights : ndarray of shape (n,)
        At least 0, one of them above.

    Returns
    -------
    Link

    Notes
    -----
    As in Platt (1999) a class of N rows has the target probability (N + 1) / (N + 2), so that
    separable classes get no infinite slope; the rest of it is shared by the other classes. The
    offsets have a standard normal prior, which holds those of rare classes. L-BFGS-B; some
    tens of passes over n · K numbers.
    """
    n, K = scores.shape
    weights = weights * (n / weights.sum())
    wanted = _smoothed(codes, weights, K) * weights[:, None]
    parts = (scores, _log_share(scores))

    def loss(t: Float64Array) -> tuple[float, Float64Array]:
        logs = log_softmax(t[0] * parts[0] + t[1] * parts[1] + t[2:], axis=1)
        rest = np.exp(logs) * weights[:, None] - wanted
        slopes = [float(np.sum(rest * part)) for part in parts]
        gradient = np.concatenate([slopes, rest.sum(axis=0) + t[2:]])
        return (0.5 * t[2:] @ t[2:] - np.sum(wanted * logs)) / n, gradient / n

    start = np.concatenate([[0.5, 0.5], np.zeros(K)])
    bounds = [(_LEAST_SLOPE, None), (0.0, None), *[(None, None)] * K]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Link(float(best[0]), float(best[1]), tuple(map(float, best[2:])))


def _smoothed(codes: Float64Array, weights: Float64Array, K: int) -> Float64Array:
    """Return target probabilities (n, K)."""
    counts = np.bincount(codes, weights, minlength=K)
    rest = 1 / (counts[codes] + 2)
    wanted = np.repeat((rest / (K - 1))[:, None], K, axis=1)
    wanted[np.arange(len(codes)), codes] = 1 - rest
    return wanted
