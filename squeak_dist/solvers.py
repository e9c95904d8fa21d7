"""Ridge regression on a Nyström map: normal equations, and the choice of μ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import NumericalError
from squeak_dist.linalg import (
    add_gram,
    cholesky_jittered,
    solve_lower,
    solve_lower_transposed,
    symmetrize,
)
from squeak_dist.nystrom import NystromMap, row_slices

_LINEAR_BLOCK_ROWS = 8192
_MU_FLOOR = 1e-9  # of the largest eigenvalue: below it the sums hold only rounding


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Sums over rows from which every ridge solution on a map follows; mergeable.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m)
        Σ v z zᵀ; the lower block triangle counts.
    moment : ndarray of float64, shape (m, k)
        Σ v z yᵀ.
    target_square : ndarray of float64, shape (k,)
        Σ v y².
    rows : int
        Rows of positive weight.
    """

    gram: Float64Array
    moment: Float64Array
    target_square: Float64Array
    rows: int


def normal_equations(
    nystrom: NystromMap,
    X: FloatArray,
    targets: Float64Array,
    row_weights: Float64Array | None = None,
    start: NormalEquations | None = None,
) -> NormalEquations:
    """Add the rows of a partition to the normal equations.

    Parameters
    ----------
    nystrom : NystromMap
        Map of m features.
    X : ndarray of shape (n, d)
        Encoded rows.
    targets : ndarray of float64, shape (n, k)
        Centred targets.
    row_weights : ndarray of shape (n,), optional
        Sample weights v ≥ 0.
    start : NormalEquations, optional
        The sums so far; left unchanged.

    Notes
    -----
    Cost: n m kernel entries and 3 n m² / 2 multiply-adds. Memory: m² float64
    and one block of features.
    """
    return _accumulate(nystrom.blocks(X), len(nystrom), targets, row_weights, start)


def linear_equations(
    X: FloatArray,
    targets: Float64Array,
    row_weights: Float64Array | None = None,
    start: NormalEquations | None = None,
) -> NormalEquations:
    """Add the rows of a partition to the normal equations of plain ridge regression.

    Parameters are those of :func:`normal_equations`; the features are the
    columns of X themselves, summed in float64.
    """
    blocks = (
        (rows, X[rows].astype(np.float64)) for rows in row_slices(len(X), _LINEAR_BLOCK_ROWS)
    )
    return _accumulate(blocks, X.shape[1], targets, row_weights, start)


def _accumulate(
    blocks: Iterable[tuple[slice, FloatArray]],
    n_features: int,
    targets: Float64Array,
    row_weights: Float64Array | None,
    start: NormalEquations | None,
) -> NormalEquations:
    """Sum over blocks of features, which may be overwritten."""
    k = targets.shape[1]
    gram = np.zeros((n_features, n_features)) if start is None else start.gram.copy()
    moment = np.zeros((n_features, k)) if start is None else start.moment.copy()
    weights = np.ones(len(targets)) if row_weights is None else row_weights
    roots = np.sqrt(weights)
    for rows, Z in blocks:
        if row_weights is not None:
            Z *= roots[rows, None].astype(Z.dtype)
        weighted = roots[rows, None] * targets[rows]
        moment += Z.T @ weighted.astype(Z.dtype)
        add_gram(Z, gram)
    square = np.einsum("i,ij->j", weights, targets**2)
    count = int(np.count_nonzero(weights))
    if start is None:
        return NormalEquations(gram, moment, square, count)
    return NormalEquations(gram, moment, start.target_square + square, start.rows + count)


def add_normal_equations(*parts: NormalEquations) -> NormalEquations:
    """Return the sums of several sets of rows, added from left to right."""
    gram, moment = parts[0].gram.copy(), parts[0].moment.copy()
    square = parts[0].target_square.copy()
    for part in parts[1:]:
        gram += part.gram
        moment += part.moment
        square += part.target_square
    return NormalEquations(gram, moment, square, sum(part.rows for part in parts))


def solve_direct(equations: NormalEquations, mu: float) -> Float64Array:
    """Return θ = (Σ v z zᵀ + μI)⁻¹ Σ v z yᵀ.

    Parameters
    ----------
    equations : NormalEquations
        Sums over all rows.
    mu : float
        Ridge penalty μ > 0 on the scale of a sum of squares: scikit-learn
        KernelRidge's ``alpha``.

    Returns
    -------
    ndarray of float64, shape (m, k)
        Cost m³/3 multiply-adds.
    """
    A = symmetrize(equations.gram)
    A[np.diag_indices_from(A)] += mu
    L = cholesky_jittered(A, 1e-15)
    return solve_lower_transposed(L, solve_lower(L, equations.moment))


def mu_by_gcv(equations: NormalEquations) -> float:
    """Return the μ that minimizes generalized cross-validation.

    GCV(μ) = n ‖y − ŷ‖² / (n − df(μ))², with df(μ) = tr(A (A + μI)⁻¹) + 1 for
    the intercept, summed over outputs (Golub, Heath & Wahba 1979). One
    eigendecomposition gives it for every μ, so it needs no pass over the rows.

    Parameters
    ----------
    equations : NormalEquations
        Sums over all rows.

    Raises
    ------
    NumericalError
        If the sums are not finite.

    Returns
    -------
    float
        Between 1e-9 and 1 times the largest eigenvalue. Cost: about 9 m³.
    """
    if not (np.isfinite(equations.gram).all() and np.isfinite(equations.moment).all()):
        raise NumericalError(
            "the normal equations are not finite: kernel values, targets or sample weights "
            'overflow; scale them, or use dtype="float64"'
        )
    values, vectors = np.linalg.eigh(symmetrize(equations.gram))
    values = np.maximum(values, 0)
    projected = np.sum((vectors.T @ equations.moment) ** 2, axis=1)
    total = float(equations.target_square.sum())
    largest = float(values[-1]) or 1.0

    def gcv(log_mu: float) -> float:
        shifted = values + np.exp(log_mu)
        explained = np.sum(projected * (2 / shifted - values / shifted**2))
        freedom = equations.rows - 1 - float(np.sum(values / shifted))
        if freedom <= 0:
            return np.inf
        return float(max(total - explained, 1e-14 * total) / freedom**2)

    grid = np.log(largest) + np.linspace(np.log(_MU_FLOOR), 0, 55)
    scores = [gcv(float(g)) for g in grid]
    best = int(np.argmin(scores))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    refined = minimize_scalar(gcv, bounds=(float(low), float(high)), method="bounded")
    return float(np.exp(refined.x if refined.fun <= scores[best] else grid[best]))


def dual_weights(
    nystrom: NystromMap, theta: Float64Array, X: FloatArray, targets: Float64Array, mu: float
) -> Float64Array:
    """Return w̃ = (K̃ + μI)⁻¹ y = (y − Zθ)/μ for the rows of a partition.

    Parameters
    ----------
    nystrom : NystromMap
        The map with K̃ = Z Zᵀ.
    theta : ndarray of float64, shape (m, k)
        :func:`solve_direct` over all rows.
    X, targets : ndarray of shape (n, d) and (n, k)
        Encoded rows and centred targets.
    mu : float
        The μ of ``theta``.

    Notes
    -----
    By block inversion (Woodbury): w̃ over all rows needs no n × n matrix.
    """
    weights = np.empty_like(targets)
    for rows, Z in nystrom.blocks(X):
        weights[rows] = (targets[rows] - Z.astype(np.float64) @ theta) / mu
    return weights
