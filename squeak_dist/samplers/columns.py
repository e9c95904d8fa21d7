"""Column sampling in one draw: uniformly, and by approximate RLS of a first draw."""

from __future__ import annotations

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel, kernel_diag
from squeak_dist.linalg import cholesky, forward_substitution
from squeak_dist.nystrom import NystromMap, distinct_rows, projected_map
from squeak_dist.samplers.protocol import budget, checked_weights, drawn_rows, kept_rows
from squeak_dist.squeak import SqueakParameters


def uniform(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Keep m = ``max_dictionary`` rows, each with the same chance, without replacement.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError
        Without a budget, or for one above n.

    Notes
    -----
    Rows of weight 0 that are drawn are left out. Cost: m; the rows need not be in one
    place, and ``fit`` draws them where they are. Guarantee: the accuracy of RLS-sampling
    where m is of the order of n max_i τ_i, the *maximal* degrees of freedom: n times too
    many where few rows have all the leverage. Bach, "Sharp analysis of low-rank kernel
    matrix approximations" (COLT 2013), Theorem 1.
    """
    weights = checked_weights(X, parameters, row_weights)
    m = budget(parameters, "uniform")
    return uniformly_kept(X, uniform_positions(len(X), m, rng), m / len(X), parameters, weights)


def uniform_positions(n: int, m: int, rng: np.random.Generator) -> IntArray:
    """Return m of n positions, ascending."""
    return np.sort(rng.choice(n, size=m, replace=False))


def uniformly_kept(
    X: FloatArray,
    rows: IntArray,
    probability: float,
    parameters: SqueakParameters,
    row_weights: Float64Array,
) -> Dictionary:
    """Return the dictionary of rows that were drawn with equal chances.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows, or those of one partition.
    rows : ndarray of int64
        Positions in X.
    probability : float
        Of each row to be drawn.
    parameters : SqueakParameters
        γ.
    row_weights : ndarray of float64, shape (n,)
        Sample weights of X.
    """
    rows = rows[row_weights[rows] > 0]
    p = np.full(len(rows), probability)
    return kept_rows(X, rows, parameters.gamma, row_weights, probabilities=p)


def two_pass_rls(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Draw m rows by k(x, x), estimate all RLS on them, and draw m rows by these.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError
        Without a budget, or for one above n.

    Notes
    -----
    Both draws are m = ``max_dictionary`` with replacement, so fewer rows are distinct.
    With Z the Nyström features of the first, τ̂_i = z_iᵀ (ZᵀZ + γI)⁻¹ z_i. Cost: n m²,
    memory m², two further passes over the rows. Guarantee: τ_i − 2ε' ≤ τ̂_i ≤ τ_i with
    probability 1 − δ where the first draw has 8 (tr K/(γ ε') + 1/6) log(n/δ) rows, so the
    accuracy of RLS-sampling, at a budget that follows tr K/γ and not d_eff. With fewer rows
    a row that the first draw does not explain has an estimate near 0, and is hardly drawn.
    Alaoui & Mahoney, "Fast randomized kernel ridge regression with statistical guarantees"
    (2014), Theorem 4.
    """
    weights = checked_weights(X, parameters, row_weights)
    m, everyone = budget(parameters, "two-pass-rls"), np.arange(len(X))
    diagonal = weights * kernel_diag(kernel, X)
    first = drawn_rows(X, everyone, diagonal, m, parameters.gamma, weights, rng)
    nystrom = projected_map(kernel, first.points[distinct_rows(first.points)])
    scores = _scores_on(nystrom, X, weights, parameters.gamma)
    return drawn_rows(X, everyone, scores, m, parameters.gamma, weights, rng)


def _scores_on(
    nystrom: NystromMap, X: FloatArray, row_weights: Float64Array, gamma: float
) -> Float64Array:
    """Return the RLS of the matrix Z Zᵀ of a map, shape (n,): n m² multiply-adds twice."""
    gram = gamma * np.eye(len(nystrom))
    for rows, Z in nystrom.blocks(X):
        weighted = Z * np.sqrt(row_weights[rows])[:, None]
        gram += weighted.T @ weighted
    whiten = forward_substitution(cholesky(gram, overwrite=True), np.dtype(np.float64))
    scores = np.empty(len(X))
    for rows, Z in nystrom.blocks(X):
        white = whiten.solve_rows(Z.astype(np.float64))
        scores[rows] = np.einsum("ij,ij->i", white, white) * row_weights[rows]
    return scores
