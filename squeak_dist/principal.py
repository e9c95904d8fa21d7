"""Principal components in feature space, from sums over rows of the Nyström features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import NumericalError
from squeak_dist.kernels import kernel_diag
from squeak_dist.linalg import solve_lower_transposed, symmetrize
from squeak_dist.nystrom import NystromMap
from squeak_dist.solvers import NormalEquations, add_normal_equations, normal_equations

_ROUNDING = 1e-12  # of the largest eigenvalue: what the sums leave a meaning


@dataclass(frozen=True, eq=False)
class Scatter:
    """Sums over rows from which the principal components follow; mergeable.

    Parameters
    ----------
    equations : NormalEquations
        Of the features, with 1 as the target: Σ v z zᵀ, Σ v z and Σ v.
    diagonal : float
        Σ v k(x, x).
    """

    equations: NormalEquations
    diagonal: float


def add_rows(
    nystrom: NystromMap,
    X: FloatArray,
    row_weights: Float64Array | None = None,
    start: Scatter | None = None,
) -> Scatter:
    """Add the rows of a partition to the sums.

    Parameters
    ----------
    nystrom : NystromMap
        Map of m features, in float64: in float32 the products would lose what is small
        beside the mean of the features.
    X : ndarray of shape (n, d)
        Encoded rows.
    row_weights : ndarray of shape (n,), optional
        Sample weights v ≥ 0.
    start : Scatter, optional
        The sums so far; left unchanged.

    Notes
    -----
    Cost: n m kernel entries and 3 n m² / 2 multiply-adds.
    """
    sums = None if start is None else start.equations
    X = X.astype(np.float64, copy=False)
    diagonal = kernel_diag(nystrom.kernel, X)
    added = float(diagonal.sum() if row_weights is None else diagonal @ row_weights)
    return Scatter(
        normal_equations(nystrom, X, np.ones((len(X), 1)), row_weights, sums),
        added + (0.0 if start is None else start.diagonal),
    )


def add_scatters(*parts: Scatter) -> Scatter:
    """Return the sums of several sets of rows, added from left to right."""
    return Scatter(
        add_normal_equations(*(part.equations for part in parts)),
        sum(part.diagonal for part in parts),
    )


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components as functions of kernel columns.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (m, q)
        A score is k_D(x)ᵀ coefficients − offsets.
    offsets : ndarray of float64, shape (q,)
        Scores of the mean.
    eigenvalues : ndarray of float64, shape (q,)
        Of Σ v (z − z̄)(z − z̄)ᵀ, descending: of the centred kernel matrix, without weights.
    total : float
        Σ v ‖φ(x) − φ̄‖², of the kernel's own features: what z does not explain included.
    divisor : float
        Σ v (n − 1) / n for n rows of positive weight: n − 1 without weights.
    """

    coefficients: Float64Array
    offsets: Float64Array
    eigenvalues: Float64Array
    total: float
    divisor: float


def principal_components(
    nystrom: NystromMap, sums: Scatter, n_components: int | None = None
) -> Components:
    """Return the principal components of the rows summed.

    Parameters
    ----------
    nystrom : NystromMap
        What the sums were made with.
    sums : Scatter
        Over all rows.
    n_components : int, optional
        How many, at most m; by default all whose eigenvalue is no rounding.

    Raises
    ------
    NumericalError
        If the sums are not finite.

    Notes
    -----
    Cost: about 9 m³. The sign of a component is such that its largest score, by size,
    among the points of the dictionary is positive.
    """
    centred, mean, total = _centred(sums)
    if not np.isfinite(centred).all():
        raise NumericalError("the sums of the features are not finite; rescale the columns")
    values, vectors = np.linalg.eigh(centred)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    if n_components is None:
        n_components = max(1, int(np.count_nonzero(values > _ROUNDING * values[0])))
    values, vectors = values[:n_components], vectors[:, :n_components]
    vectors = vectors * _signs((nystrom.factor - mean) @ vectors)
    weight, rows = float(sums.equations.target_square[0]), sums.equations.rows
    return Components(
        coefficients=solve_lower_transposed(nystrom.factor, vectors),
        offsets=mean @ vectors,
        eigenvalues=values,
        total=total,
        divisor=weight * (rows - 1) / rows if rows > 1 else weight,
    )


def _centred(sums: Scatter) -> tuple[Float64Array, Float64Array, float]:
    """Return Σ v (z − z̄)(z − z̄)ᵀ, z̄, and Σ v ‖φ(x) − φ̄‖² with z̄ for φ̄."""
    gram = symmetrize(sums.equations.gram)
    weight, moment = float(sums.equations.target_square[0]), sums.equations.moment[:, 0]
    unexplained = max(0.0, sums.diagonal - float(np.trace(gram)))
    gram -= np.outer(moment, moment) / weight
    return gram, moment / weight, float(np.trace(gram)) + unexplained


def _signs(scores: Float64Array) -> Float64Array:
    """Return the sign of the largest entry, by size, of each column; shape (q,)."""
    largest = np.argmax(np.abs(scores), axis=0)
    return np.where(scores[largest, np.arange(scores.shape[1])] < 0, -1.0, 1.0)
