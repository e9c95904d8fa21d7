"""Weighted moments of columns over blocks of rows, and their merging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squeak_dist._typing import BoolArray, Float64Array

_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments and ranges of several columns over some rows.

    Parameters
    ----------
    weight : ndarray of float64, shape (d,)
        Sum of the weights: the number of finite values where rows have no weights.
    mean : ndarray of float64, shape (d,)
        0 where the weight is 0.
    squares : ndarray of float64, shape (d,)
        Weighted sum of squared deviations from the mean.
    minimum, maximum : ndarray of float64, shape (d,)
        Over rows of positive weight; +inf and −inf where there are none.
    """

    weight: Float64Array
    mean: Float64Array
    squares: Float64Array
    minimum: Float64Array
    maximum: Float64Array

    @property
    def variance(self) -> Float64Array:
        """Population variance, shape (d,); 0 where the weight is 0."""
        return self.squares / np.where(self.weight > 0, self.weight, 1.0)

    @property
    def constant(self) -> BoolArray:
        """Where the values do not vary by more than rounding, shape (d,)."""
        largest = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
        sd = np.sqrt(self.variance)
        return (self.weight <= 0) | (sd <= _ROUNDING * largest) | (self.minimum == self.maximum)


def no_moments(d: int) -> Moments:
    """Return the moments of no rows."""
    zero, infinite = np.zeros(d), np.full(d, np.inf)
    return Moments(zero, zero, zero, infinite, -infinite)


@np.errstate(over="ignore", invalid="ignore")
def block_moments(values: Float64Array, weights: Float64Array | None = None) -> Moments:
    """Return the moments of a block, finite values only.

    Parameters
    ----------
    values : ndarray of float64, shape (d, b)
        One row per column of the table.
    weights : ndarray of float64, shape (b,), optional
        Non-negative.

    Notes
    -----
    Two passes, so that an offset of 1e9 costs no more than the rounding of the mean.
    Sums that overflow become infinite or NaN, and the checks find them.
    Cost: about five passes over the block.
    """
    finite = np.isfinite(values)
    # Weights of 1 are none, to the bit.
    unweighted = weights is None or bool((weights == 1).all())
    if unweighted and values.shape[1] and finite.all():
        return _plain_moments(values)
    w = finite * (1.0 if weights is None else weights)
    total = w.sum(axis=1)
    divisor = np.where(total > 0, total, 1.0)
    values = np.where(finite, values, 0.0)
    mean = np.einsum("ij,ij->i", w, values) / divisor
    deviations = values - mean[:, None]
    shift = np.einsum("ij,ij->i", w, deviations) / divisor
    squares = np.einsum("ij,ij,ij->i", w, deviations, deviations) - total * shift**2
    return Moments(
        total,
        mean + shift,
        np.maximum(squares, 0.0),
        np.where(w > 0, values, np.inf).min(axis=1, initial=np.inf),
        np.where(w > 0, values, -np.inf).max(axis=1, initial=-np.inf),
    )


def _plain_moments(values: Float64Array) -> Moments:
    total = np.full(len(values), float(values.shape[1]))
    mean = values.mean(axis=1)  # numpy adds in pairs here: right to the last bits
    deviations = values - mean[:, None]
    squares = np.einsum("ij,ij->i", deviations, deviations)
    return Moments(total, mean, squares, values.min(axis=1), values.max(axis=1))


@np.errstate(over="ignore", invalid="ignore")
def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both (Chan, Golub & LeVeque 1979)."""
    total = a.weight + b.weight
    share = b.weight / np.where(total > 0, total, 1.0)
    difference = b.mean - a.mean
    return Moments(
        total,
        a.mean + difference * share,
        a.squares + b.squares + difference**2 * a.weight * share,
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )
