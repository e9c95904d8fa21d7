"""Ridge regression on a Nyström map: normal equations, and the choice of μ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.linalg import (
    add_gram,
    cholesky_jittered,
    solve_lower,
    solve_lower_transposed,
    symmetrize,
)
from squeak_dist.nystrom import NystromMap, linear_columns, row_slices
from squeak_dist.ridge_path import Border, RidgePath, ridge_path
from squeak_dist.tridiagonal import Rotation

_LINEAR_BLOCK_ROWS = 8192
_Sums = tuple[Float64Array, Float64Array]  # Gram and moment
_COLLINEAR = 1e-5  # of Σ v x²: what float32 leaves of a column that the kernel part spans
_CONSTANT = float(np.finfo(np.float32).eps)  # of Σ v: more would grow with n to hold it at 0


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


@dataclass(frozen=True, eq=False)
class JointEquations:
    """Normal equations of the features [z(x), x, 1]: the kernel part, a linear one beside it.

    A column x that the kernel part spans would be left with rounding alone, so each
    column has a ridge of 1e-5 of its own square beside μ; the constant, one rounding of it.

    Parameters
    ----------
    kernel : NormalEquations
        Of z.
    linear : NormalEquations
        Of the encoded columns x and a constant alone: plain ridge regression.
    cross : ndarray of float64, shape (m, d + 1)
        Σ v z xᵀ.
    lower, upper : ndarray of float64, shape (d,)
        Smallest and largest values of each encoded column.
    """

    kernel: NormalEquations
    linear: NormalEquations
    cross: Float64Array
    lower: Float64Array
    upper: Float64Array

    def assembled(self, ridge: Float64Array) -> NormalEquations:
        """Return the normal equations of z and the last linear columns, one per given ridge.

        Parameters
        ----------
        ridge : ndarray of float64, shape (w,)
            What the w columns have beside μ: :attr:`RidgePath.ridge`.
        """
        width = len(ridge)
        if width == 0:
            return self.kernel
        m, kept = len(self.cross), slice(self.cross.shape[1] - width, None)
        gram = np.empty((m + width, m + width))
        gram[:m, :m] = self.kernel.gram
        gram[m:, :m] = self.cross[:, kept].T
        gram[:m, m:] = self.cross[:, kept]
        gram[m:, m:] = symmetrize(self.linear.gram)[kept, kept] + np.diag(ridge)
        moment = np.concatenate([self.kernel.moment, self.linear.moment[kept]])
        return NormalEquations(gram, moment, self.kernel.target_square, self.kernel.rows)

    def path(self) -> RidgePath:
        """Return the ridge path of [z, x]; cost as :func:`ridge_path`."""
        return self.path_and_rotation()[0]

    def path_and_rotation(self) -> tuple[RidgePath, Rotation]:
        """Return :meth:`path` and the rotation Q that its coefficients of z are in."""
        kernel = self.kernel
        path, rotation = ridge_path(kernel.gram, kernel.moment, kernel.target_square, kernel.rows)
        ridge = collinearity_ridge(self.linear)
        gram = symmetrize(self.linear.gram) + np.diag(ridge)
        border = Border(rotation.coordinates(self.cross), gram, ridge, self.linear.moment)
        return replace(path, border=border), rotation


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
    blocks = ((rows, Z, targets[rows]) for rows, Z in nystrom.blocks(X))
    shape, dtype = (len(nystrom), targets.shape[1]), nystrom.points.dtype
    sums = _summed(blocks, shape, dtype, row_weights, _parts(start))
    return _counted(*sums, targets, row_weights, start)


def linear_equations(
    X: FloatArray,
    targets: Float64Array,
    row_weights: Float64Array | None = None,
    start: NormalEquations | None = None,
) -> NormalEquations:
    """Add the rows of a partition to the normal equations of plain ridge regression.

    Parameters are those of :func:`normal_equations`; the features are
    :func:`linear_columns`, summed in float64.
    """
    blocks = (
        (rows, linear_columns(X[rows], np.float64), targets[rows])
        for rows in row_slices(len(X), _LINEAR_BLOCK_ROWS)
    )
    shape = X.shape[1] + 1, targets.shape[1]
    sums = _summed(blocks, shape, np.float64, row_weights, _parts(start))
    return _counted(*sums, targets, row_weights, start)


def _summed(
    blocks: Iterable[tuple[slice, FloatArray, Float64Array]],
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    weights: Float64Array | None,
    start: _Sums | None,
) -> _Sums:
    """Add blocks of features, of that dtype, and targets to Gram and moment.

    ``shape`` is that of the moment. The features are overwritten where there are weights, which
    are looked up block by block; the start is not.
    """
    gram, moment = (
        (np.zeros((shape[0], shape[0])), np.zeros(shape))
        if start is None
        else (start[0].copy(), start[1].copy())
    )
    with scratch(gram.shape, dtype) as product:
        for rows, Z, targets in blocks:
            weighted = targets
            if weights is not None:
                roots = np.sqrt(weights[rows])[:, None]
                weighted = roots * targets
                np.multiply(Z, roots.astype(Z.dtype), out=Z)
            moment += Z.T @ weighted.astype(Z.dtype)
            add_gram(Z, gram, product)
    return gram, moment


def _parts(start: NormalEquations | None) -> _Sums | None:
    return None if start is None else (start.gram, start.moment)


def _counted(
    gram: Float64Array,
    moment: Float64Array,
    targets: Float64Array,
    weights: Float64Array | None,
    start: NormalEquations | None,
) -> NormalEquations:
    """Put sums together with those of the targets, and with the number of rows."""
    v = np.ones(len(targets)) if weights is None else weights
    square, rows = np.einsum("i,ij->j", v, targets**2), int(np.count_nonzero(v))
    if start is not None:
        square, rows = start.target_square + square, start.rows + rows
    return NormalEquations(gram, moment, square, rows)


def add_normal_equations(*parts: NormalEquations) -> NormalEquations:
    """Return the sums of several sets of rows, added from left to right."""
    return NormalEquations(
        _total([part.gram for part in parts]),
        _total([part.moment for part in parts]),
        _total([part.target_square for part in parts]),
        sum(part.rows for part in parts),
    )


def _total(arrays: Sequence[Float64Array]) -> Float64Array:
    """Return the sum from left to right, in one new array."""
    if len(arrays) == 1:
        return arrays[0].copy()
    total = arrays[0] + arrays[1]
    for array in arrays[2:]:
        total += array
    return total


def joint_equations(
    nystrom: NystromMap,
    X: FloatArray,
    targets: Float64Array,
    row_weights: Float64Array | None = None,
    start: JointEquations | None = None,
    *,
    reweigh: Callable[[slice, FloatArray], Float64Array] | None = None,
) -> JointEquations:
    """Add the rows of a partition to the normal equations of [z(x), x].

    Parameters
    ----------
    nystrom, X, targets, row_weights, start
        As in :func:`normal_equations`; so is the cost, the linear part included while d is
        small beside m.
    reweigh : callable (rows, Z) → ndarray of shape (len(Z),), optional
        Factors of the weights of a block of rows that follow from their features.
    """
    weights = row_weights
    if reweigh is not None:
        weights = np.ones(len(X)) if row_weights is None else row_weights.copy()
    k, width = targets.shape[1], X.shape[1] + 1

    def blocks() -> Iterator[tuple[slice, FloatArray, Float64Array]]:
        for rows, Z in nystrom.blocks(X):
            if reweigh is not None and weights is not None:
                weights[rows] *= reweigh(rows, Z)
            # Σ v z xᵀ is the moment that the columns of x would have as targets.
            yield rows, Z, np.hstack([targets[rows], linear_columns(X[rows], X.dtype)])

    before = None if start is None else _with_columns_as_targets(start)
    shape, dtype = (len(nystrom), k + width), nystrom.points.dtype
    gram, moment = _summed(blocks(), shape, dtype, weights, before)
    linear = linear_equations(X, targets, weights, None if start is None else start.linear)
    return _joint(gram, moment, linear, targets, X, weights, start)


def joint_equations_of_features(
    features: Float64Array,
    X: FloatArray,
    targets: Float64Array,
    row_weights: Float64Array | None = None,
) -> JointEquations:
    """Return the normal equations of [z(x), x] of a few rows whose features are at hand.

    Parameters
    ----------
    features : ndarray of float64, shape (n, m + d + 1)
        z(x), x and 1. Cost: n (m + d)² / 2 multiply-adds.
    X, targets, row_weights
        As in :func:`joint_equations`.
    """
    m = features.shape[1] - X.shape[1] - 1
    weighted = features if row_weights is None else features * row_weights[:, None]
    gram, moment = features.T @ weighted, weighted.T @ targets
    linear = _counted(gram[m:, m:], moment[m:], targets, row_weights, None)
    kernel = replace(linear, gram=gram[:m, :m], moment=moment[:m])
    return JointEquations(kernel, linear, gram[:m, m:], *column_range(X))


def _joint(
    gram: Float64Array,
    moment: Float64Array,
    linear: NormalEquations,
    targets: Float64Array,
    X: FloatArray,
    weights: Float64Array | None,
    start: JointEquations | None,
) -> JointEquations:
    """Put the sums together: the first columns of the moment are those of the targets."""
    k = targets.shape[1]
    # Copies: a view and what is unpickled of it give BLAS other strides, and so other bits.
    own, cross = moment[:, :k].copy(), moment[:, k:].copy()
    kernel = _counted(gram, own, targets, weights, None if start is None else start.kernel)
    lower, upper = column_range(X)
    if start is not None:
        lower, upper = np.minimum(lower, start.lower), np.maximum(upper, start.upper)
    return JointEquations(kernel, linear, cross, lower, upper)


def _with_columns_as_targets(sums: JointEquations) -> _Sums:
    return sums.kernel.gram, np.concatenate([sums.kernel.moment, sums.cross], axis=1)


def collinearity_ridge(linear: NormalEquations) -> Float64Array:
    """Return the least ridge of each linear column beside μ, shape (d + 1,)."""
    ridge = _COLLINEAR * np.diagonal(linear.gram)
    ridge[-1] = _CONSTANT * linear.gram[-1, -1]
    return ridge


def column_range(X: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return the smallest and largest value of each column; ±infinity of no rows."""
    return (
        X.min(axis=0, initial=np.inf).astype(np.float64),
        X.max(axis=0, initial=-np.inf).astype(np.float64),
    )


def add_joint_equations(*parts: JointEquations) -> JointEquations:
    """Return the sums of several sets of rows, added from left to right."""
    return JointEquations(
        add_normal_equations(*(part.kernel for part in parts)),
        add_normal_equations(*(part.linear for part in parts)),
        _total([part.cross for part in parts]),
        np.min([part.lower for part in parts], axis=0),
        np.max([part.upper for part in parts], axis=0),
    )


def ridge_factor(equations: NormalEquations, mu: float) -> Float64Array:
    """Return the Cholesky factor of A = Σ v z zᵀ + μI, shape (m, m); cost m³/3."""
    A = symmetrize(equations.gram)
    A[np.diag_indices_from(A)] += mu
    return cholesky_jittered(A, 1e-15, overwrite=True)


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
    L = ridge_factor(equations, mu)
    return solve_lower_transposed(L, solve_lower(L, equations.moment))


def mu_by_gcv(equations: NormalEquations) -> float:
    """Return the μ that minimizes generalized cross-validation: :meth:`RidgePath.best_mu`.

    Parameters
    ----------
    equations : NormalEquations
        Sums over all rows. One tridiagonal form and no pass over them.

    Raises
    ------
    NumericalError
        If the sums are not finite.
    """
    path, _ = ridge_path(equations.gram, equations.moment, equations.target_square, equations.rows)
    return path.best_mu()


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
