"""The marginal likelihood of the targets of a sample, and its gradient.

Rasmussen & Williams, "Gaussian Processes for Machine Learning" (2006), eq. 5.8
and 5.9, with the scale of each target integrated out at its best value, so that
length scales and μ, the ratio of noise to kernel scale, are all that is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.kernels import RBF, Matern
from squeak_dist.linalg import inverse_and_log_determinant

Radial = RBF | Matern


@dataclass(frozen=True, eq=False)
class TuningRows:
    """Rows that parameters are chosen on: a uniform sample, in random order.

    Parameters
    ----------
    X : ndarray of float64, shape (s, d)
        Encoded rows.
    targets : ndarray of float64, shape (s, k)
        Targets, of mean 0 and variance 1 or so.
    weights : ndarray of float64, shape (s,), optional
        Sample weights v > 0.
    """

    X: Float64Array
    targets: Float64Array
    weights: Float64Array | None = None

    def __len__(self) -> int:
        return len(self.X)

    def first(self, size: int) -> TuningRows:
        """Return the first rows, a uniform sample as well."""
        weights = None if self.weights is None else self.weights[:size]
        return TuningRows(self.X[:size], self.targets[:size], weights)


def negative_log_likelihood(
    kernel: Radial, logarithms: Float64Array, rows: TuningRows
) -> tuple[float, Float64Array]:
    """Return −log p(y | X) per row, up to a constant, and its gradient.

    Parameters
    ----------
    kernel : RBF or Matern
        Its length scale is not used.
    logarithms : ndarray of float64, shape (d + 1,) or (2,)
        log ℓ, one per feature or one for all, and log μ.
    rows : TuningRows
        s rows.

    Returns
    -------
    value : float
        (½ log det(K + μV⁻¹) + ½ s log(yᵀ(K + μV⁻¹)⁻¹y / s)) / s, summed over targets.
    gradient : ndarray of float64, shape of ``logarithms``

    Raises
    ------
    numpy.linalg.LinAlgError
        If K + μV⁻¹ is not positive definite in float64.

    Notes
    -----
    Cost: s³ multiply-adds and 2 s² d for the gradient of all length scales.
    """
    scaled = rows.X / np.exp(logarithms[:-1])
    value, W, by_noise = _likelihood(kernel, scaled, float(np.exp(logarithms[-1])), rows)
    by_scale = np.einsum("i,ij->j", W.sum(axis=1), scaled**2)
    by_scale -= np.einsum("ij,ij->j", scaled, W @ scaled)
    if len(logarithms) == 2:
        by_scale = by_scale.sum(keepdims=True)
    return value, np.append(by_scale, by_noise)


def likelihood_of_directions(
    kernel: Radial, directions: Float64Array, log_mu: float, rows: TuningRows
) -> tuple[float, Float64Array, float]:
    """Return −log p(y | X) per row as :func:`negative_log_likelihood`, along some directions.

    Parameters
    ----------
    kernel : RBF or Matern
        Its length scale is not used.
    directions : ndarray of float64, shape (r, d)
        A: rows are as far apart as A x is, of length scale 1.
    log_mu : float
        log μ.
    rows : TuningRows
        s rows.

    Returns
    -------
    value : float
    by_directions : ndarray of float64, shape (r, d)
        Gradient.
    by_noise : float
        Gradient in log μ.

    Raises
    ------
    numpy.linalg.LinAlgError
        If K + μV⁻¹ is not positive definite in float64.

    Notes
    -----
    Cost: s³ multiply-adds and 2 s² r.
    """
    turned = rows.X @ directions.T
    value, W, by_noise = _likelihood(kernel, turned, float(np.exp(log_mu)), rows)
    # ∂K = −G (A δ)ᵀ(∂A δ) of a difference δ of rows
    by_directions = (W @ turned).T @ rows.X - (turned * W.sum(axis=1)[:, None]).T @ rows.X
    return value, by_directions, by_noise


def _likelihood(
    kernel: Radial, scaled: Float64Array, mu: float, rows: TuningRows
) -> tuple[float, Float64Array, float]:
    """Return −log p per row, W ∘ G / s with ∂value = ½ Σ W ∂K, and the gradient in log μ."""
    s, k = rows.targets.shape
    noise = mu / (1.0 if rows.weights is None else rows.weights)
    K, slope = _radial(kernel, scaled)
    K[np.diag_indices(s)] += noise
    inverse, log_determinant = inverse_and_log_determinant(K)
    solved = inverse @ rows.targets
    quadratic = np.einsum("ij,ij->j", rows.targets, solved)
    value = 0.5 * (k * log_determinant + s * float(np.sum(np.log(quadratic / s))))
    # ∂value = ½ s tr(W ∂A), A = K + μV⁻¹
    W = inverse
    W *= k / s
    W -= (solved / quadratic) @ solved.T
    by_noise = 0.5 * float(np.sum(np.diagonal(W) * noise))
    W *= slope
    return value / s, W, by_noise


def squared_distances(X: Float64Array) -> Float64Array:
    """Return ‖x − y‖² between all rows, shape (s, s); 0 on the diagonal.

    Parameters
    ----------
    X : ndarray of float64, shape (s, d)
        Rows; the cost is s² d.
    """
    squares = np.einsum("ij,ij->i", X, X)
    distances = X @ X.T
    distances *= -2
    distances += squares
    distances += squares[:, None]
    np.maximum(distances, 0, out=distances)
    distances[np.diag_indices_from(distances)] = 0
    return distances


def _radial(kernel: Radial, scaled: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return K of rows x/ℓ, and G with ∂K/∂log ℓ_j = G (x_j − y_j)² / ℓ_j²."""
    if isinstance(kernel, RBF):
        K = _matrix(kernel, 1.0, scaled)
        return K, K.copy()
    nu = kernel.nu
    if nu == 0.5:  # whose slope at distance 0 tells a rounding from 0
        a = np.sqrt(squared_distances(scaled))
        decay = np.exp(-a)
        return decay, decay / np.where(a > 0, a, np.inf)
    # ν / (ν − 1) times the kernel of smoothness ν − 1 at the same sqrt(2ν) ‖x − y‖.
    slope = _matrix(replace(kernel, nu=nu - 1), math.sqrt((nu - 1) / nu), scaled)
    slope *= nu / (nu - 1)
    return _matrix(kernel, 1.0, scaled), slope


def _matrix(kernel: Radial, length_scale: float, X: Float64Array) -> Float64Array:
    plain = replace(kernel, length_scale=length_scale, directions=None)
    return np.asarray(plain(X), np.float64)
