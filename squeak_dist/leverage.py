"""Ridge leverage scores (RLS), exact and estimated, and the constants around them.

The estimates take residuals r(x) of a Nyström map or the diagonal of B⁻¹, so
that this module knows neither kernels nor rows. Sources: Calandriello, Lazaric
& Valko, "Pack only the essentials" (SQUEAK) and "Distributed adaptive sampling
for kernel matrix approximation" (AISTATS 2017, DISQUEAK).
"""

from __future__ import annotations

import math

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.linalg import cholesky, inverse_diagonal


def exact_rls(K: Float64Array, gamma: float) -> Float64Array:
    """Return the exact ridge leverage scores τ_i = [K (K + γI)⁻¹]_ii.

    Parameters
    ----------
    K : ndarray of float64, shape (n, n)
        Kernel matrix, positive semidefinite. With sample weights v the matrix
        of sqrt(v_i v_j) k(x_i, x_j).
    gamma : float
        γ > 0.

    Returns
    -------
    ndarray of float64, shape (n,)
        Between 0 and 1. Cost n³.
    """
    B = K + gamma * np.eye(len(K))
    return 1.0 - gamma * inverse_diagonal(cholesky(B, overwrite=True))


def effective_dimension(K: Float64Array, gamma: float) -> float:
    """Return d_eff(γ) = Σ_i τ_i = tr(K (K + γI)⁻¹); cost n³."""
    return float(exact_rls(K, gamma).sum())


def accuracy_ratio(epsilon: float, merged: int = 1) -> float:
    """Return α_k = (1 + (2k − 1)ε) / (1 − ε), so that τ/α_k ≤ τ̃ ≤ τ.

    Parameters
    ----------
    epsilon : float
        ε in (0, 1).
    merged : int, default 1
        k, the number of dictionaries merged; 1 is SQUEAK itself.
    """
    return (1 + (2 * merged - 1) * epsilon) / (1 - epsilon)


def merge_gamma(gamma: float, epsilon: float, merged: int) -> float:
    """Return γ_k = (1 + (k − 1)ε) γ, the regularization inside a merge of k.

    Each dictionary is within ε(Φ_j + γI) of its own covariance Φ_j; the sum of
    k is within ε(Φ + kγI), and this γ_k makes the estimate a lower bound.
    """
    return (1 + (merged - 1) * epsilon) * gamma


def rls_of_new_rows(
    residual: FloatArray, gamma: float, epsilon: float, row_weights: FloatArray | float = 1.0
) -> Float64Array:
    """Return τ̃ = (1 − ε) v r / (v r + γ) of rows counted as in the dictionary itself.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        r(x) = k(x, x) − ‖z(x)‖² ≥ 0 by the dictionary before these rows.
    gamma, epsilon : float
        γ > 0 and ε in (0, 1).
    row_weights : ndarray of shape (n,) or float, default 1.0
        Sample weights v.

    Returns
    -------
    ndarray of float64, shape (n,)
        Between 0 and 1 − ε: eq. (rls-estimator) with weight 1 for the row.
    """
    weighted = np.asarray(residual, np.float64) * row_weights
    return (1 - epsilon) * weighted / (weighted + gamma)


def rls_of_known_rows(
    residual: FloatArray, gamma: float, epsilon: float, row_weights: FloatArray | float = 1.0
) -> Float64Array:
    """Return min((1 − ε) v r / γ, 1) of rows that the dictionary stands for, itself or not.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        r(x) by the regularized map of the dictionary.
    gamma, epsilon : float
        γ > 0 and ε in (0, 1).
    row_weights : ndarray of shape (n,) or float, default 1.0
        Sample weights v.

    Returns
    -------
    ndarray of float64, shape (n,)
        Between 0 and 1: eq. (rls-estimator), whose prefactor is (1 − ε)/γ.
    """
    return np.minimum((1 - epsilon) * row_weights * residual / gamma, 1)


def rls_of_dictionary(
    inverse_diag: Float64Array, selection_weights: Float64Array, gamma: float, epsilon: float
) -> Float64Array:
    """Return τ̃_i = (1 − ε)(1 − γ [B⁻¹]_ii) / s_i² of the rows of a dictionary.

    Parameters
    ----------
    inverse_diag : ndarray of float64, shape (m,)
        Diagonal of B⁻¹, B = S K S + γI.
    selection_weights : ndarray of float64, shape (m,)
        s_i = sqrt(Q_i / (q̄ p_i)).
    gamma, epsilon : float
        The γ inside B (γ_k in a merge of k), and ε.

    Returns
    -------
    ndarray of float64, shape (m,)
        Not capped: at a practical q̄ a row of small weight may exceed 1.

    Notes
    -----
    The same as (1 − ε) r(x_i) / γ, without a kernel product. The prefactor is
    1/γ with the γ inside B; DESIGN §1.1 shows why.
    """
    return (1 - epsilon) * np.maximum(1 - gamma * inverse_diag, 0) / selection_weights**2


def estimated_effective_dimension(inverse_diag: Float64Array, gamma: float) -> float:
    """Return tr(SKS (SKS + γI)⁻¹) = Σ (1 − γ [B⁻¹]_ii), the dictionary's view of d_eff(γ)."""
    return float(np.sum(1 - gamma * inverse_diag))


def theory_qbar(n: int, epsilon: float, delta: float) -> int:
    """Return q̄ = ceil(39 α log(2n/δ) / ε²), for which Theorem 1 holds with probability 1 − δ.

    Parameters
    ----------
    n : int
        Rows of the whole data.
    epsilon, delta : float
        Accuracy and failure probability, both in (0, 1).
    """
    return math.ceil(39 * accuracy_ratio(epsilon) * math.log(2 * n / delta) / epsilon**2)
