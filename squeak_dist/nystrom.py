"""The Nyström map of a dictionary: features z(x) and residual r(x)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from squeak_dist._floats import UNIT_FLUSH
from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel, kernel_block, kernel_diag
from squeak_dist.linalg import (
    ForwardSubstitution,
    cholesky_jittered,
    forward_substitution,
    solve_lower,
    solve_lower_transposed,
)

_BLOCK_ROWS = 2048
_CONVERTED_ROWS = 8192


@dataclass(frozen=True, eq=False)
class NystromMap:
    """Features z(x) = T⁻¹ k_D(x) of a dictionary D, with T lower triangular.

    With B = S K_DD S + γI = L Lᵀ and T = S⁻¹ L this is z(x) = L⁻¹ S k_D(x), and
    Z Zᵀ is the paper's regularized Nyström approximation, eq. (nystrom). With
    T Tᵀ = K_DD it is the projection on the span of the dictionary.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    points : ndarray of shape (m, d)
        The rows of the dictionary.
    factor : ndarray of float64, shape (m, m)
        T.
    forward : ForwardSubstitution
        Solves with T in the precision of the points.
    """

    kernel: Kernel
    points: FloatArray
    factor: Float64Array
    forward: ForwardSubstitution

    def __len__(self) -> int:
        return len(self.points)

    def transform(self, X: FloatArray) -> FloatArray:
        """Return the features Z of shape (n, m).

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows; the result has their dtype.

        Notes
        -----
        Cost: n m kernel entries and n m² multiply-adds. Memory: the result.
        """
        return self._fill(X, np.empty((len(X), len(self)), self.points.dtype))

    def blocks(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows, Z of these rows) over blocks of X, in one reused buffer."""
        shape = min(_BLOCK_ROWS, len(X)), len(self)
        with scratch(shape, self.points.dtype) as buffer:
            for rows in row_slices(len(X), _BLOCK_ROWS):
                yield rows, self._fill(X[rows], buffer[: rows.stop - rows.start])

    def residual(self, X: FloatArray) -> Float64Array:
        """Return r(x) = k(x, x) − ‖z(x)‖², what the dictionary does not explain of each row.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Encoded rows.

        Returns
        -------
        ndarray of float64, shape (n,)
            At least some roundings of k(x, x), so that an RLS made of it never
            falls to zero by cancellation.
        """
        diagonal = kernel_diag(self.kernel, X).astype(np.float64)
        norms = np.empty(len(X))
        for rows, Z in self.blocks(X):
            norms[rows] = np.einsum("ij,ij->i", Z, Z)
        return np.maximum(diagonal - norms, residual_rounding(self.points.dtype) * diagonal)

    def coefficients(self, theta: Float64Array) -> Float64Array:
        """Return c = T⁻ᵀ θ, so that z(x)ᵀ θ = k_D(x)ᵀ c.

        Rows of θ after the first m belong to linear columns beside z and stay as
        they are.
        """
        m = len(self)
        return np.concatenate([solve_lower_transposed(self.factor, theta[:m]), theta[m:]])

    def features_of(self, sums: Float64Array) -> Float64Array:
        """Return T⁻¹ g for g = Σ k_D(x) …: the same sums over z. Further rows stay."""
        m = len(self)
        return np.concatenate([solve_lower(self.factor, sums[:m]), sums[m:]])

    def _fill(self, X: FloatArray, out: FloatArray) -> FloatArray:
        kernel_block(self.kernel, X, self.points, out)
        return self.forward.solve_rows(out)


def residual_rounding(dtype: np.dtype[Any]) -> float:
    """Return the smallest residual, relative to k(x, x), that rounding leaves a meaning."""
    return 4 * float(np.finfo(dtype).eps)


def linear_columns(
    X: FloatArray, dtype: npt.DTypeLike, width: int | None = None
) -> npt.NDArray[Any]:
    """Return the columns of X and a constant one, or the last of these, shape (n, width).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Encoded rows.
    dtype : dtype
        Of the result.
    width : int, optional
        0 for none, 1 for the constant, which is an intercept, d + 1 (the default) for all.
    """
    if width is not None and width < 2:
        return np.ones((len(X), width), dtype)
    columns = np.ones((len(X), X.shape[1] + 1), dtype)
    columns[:, :-1] = X
    return columns


def converted_blocks(
    X: FloatArray, dtype: npt.DTypeLike
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """Yield (rows, X[rows] in a dtype): all at once where no copy is needed, else 8,192 rows."""
    step = len(X) if X.dtype == dtype else _CONVERTED_ROWS
    for rows in row_slices(len(X), max(step, 1)):
        yield rows, X[rows].astype(dtype, copy=False)


def row_slices(n: int, step: int) -> Iterator[slice]:
    """Yield slices of at most ``step`` rows that cover n rows."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def regularized_map(
    kernel: Kernel, dictionary: Dictionary, gamma: float | None = None
) -> NystromMap:
    """Return the paper's map of a dictionary, T = S⁻¹ chol(S K_DD S + γI).

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    dictionary : Dictionary
        At least one row.
    gamma : float, optional
        γ inside B; the dictionary's own by default.

    Notes
    -----
    Cost: m³/3 multiply-adds in float64.
    """
    weights = dictionary.column_weights
    L = regularized_factor(kernel, dictionary, dictionary.gamma if gamma is None else gamma)
    L /= weights[:, None]
    return _make_map(kernel, dictionary.points, L)


def projected_map(kernel: Kernel, points: FloatArray) -> NystromMap:
    """Return the map of the span of some rows, T = chol(K_DD + jitter).

    The jitter is of the size of the rounding in the kernel entries that the map
    will meet: 1e-6 of the diagonal for float32 rows, 1e-13 for float64.
    """
    jitter = 1e-6 if points.dtype == np.float32 else 1e-13
    return _make_map(
        kernel, points, cholesky_jittered(_double_block(kernel, points), jitter, overwrite=True)
    )


def solution_map(kernel: Kernel, dictionary: Dictionary, approximation: str) -> NystromMap:
    """Return the map that a ridge regression lives on.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    dictionary : Dictionary
        At least one row.
    approximation : {"projected", "regularized"}
        On the span of its distinct points, since a point twice spans no more than once
        and leaves a factor of rounding alone; or the paper's map.
    """
    if approximation == "regularized":
        return regularized_map(kernel, dictionary)
    return projected_map(kernel, dictionary.points[distinct_rows(dictionary.points)])


def evaluated_in_double(nystrom: NystromMap) -> NystromMap:
    """Return the same map, evaluated in float64: for residuals that float32 would drown.

    The factor stays: that of a map of float32 points has a larger jitter than one of
    :func:`in_double`, and a posterior belongs to the factor it was made with.
    """
    return _make_map(nystrom.kernel, nystrom.points.astype(np.float64), nystrom.factor)


def in_double(dictionary: Dictionary) -> Dictionary:
    """Return the dictionary with points in float64: its maps are made and evaluated so."""
    return replace(dictionary, points=dictionary.points.astype(np.float64, copy=False))


def on_dictionary(coefficients: Float64Array, dictionary: Dictionary) -> Float64Array:
    """Return coefficients of the points of :func:`solution_map` as those of the dictionary.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (m', k)
        One row per point of the map.
    dictionary : Dictionary
        Of m ≥ m' rows; the further copies of a point get 0.
    """
    if len(coefficients) == len(dictionary):
        return coefficients
    spread = np.zeros((len(dictionary), coefficients.shape[1]))
    spread[distinct_rows(dictionary.points)] = coefficients
    return spread


def distinct_rows(points: FloatArray) -> IntArray:
    """Return the positions of the first of each set of equal rows, ascending."""
    _, first = np.unique(points, axis=0, return_index=True)
    return np.sort(first)


def summed_on_distinct(values: Float64Array, points: FloatArray) -> Float64Array:
    """Return the sums of values over equal rows, one for each of :func:`distinct_rows`.

    Parameters
    ----------
    values : ndarray of float64, shape (m,)
        One per row.
    points : ndarray of shape (m, d)
        The rows.
    """
    _, first, which = np.unique(points, axis=0, return_index=True, return_inverse=True)
    sums = np.bincount(which.ravel(), values, len(first))
    return np.asarray(sums[np.argsort(first)], np.float64)


def regularized_factor(kernel: Kernel, dictionary: Dictionary, gamma: float) -> Float64Array:
    """Return L with L Lᵀ = B = S K_DD S + γI, the sample weights inside S."""
    weights = dictionary.column_weights
    B = _double_block(kernel, dictionary.points)
    B *= weights
    B *= weights[:, None]
    B[np.diag_indices_from(B)] += gamma
    # B ≥ γI: jitter is for the rounding of kernels that are not quite semidefinite.
    return cholesky_jittered(B, 1e-14, overwrite=True)


def approximation_error(nystrom: NystromMap, X: FloatArray) -> float:
    """Return tr(K − K̃) / n over the rows of X: the mean residual."""
    return float(nystrom.residual(X).mean())


def _double_block(kernel: Kernel, points: FloatArray) -> Float64Array:
    doubled = points.astype(np.float64)
    K = np.empty((len(points), len(points)))
    kernel_block(kernel, doubled, doubled, K)
    return K


def _make_map(kernel: Kernel, points: FloatArray, factor: Float64Array) -> NystromMap:
    dtype: np.dtype[Any] = points.dtype
    unit = dtype == np.float32 and getattr(kernel, "unit_diagonal", False)
    forward = forward_substitution(factor, dtype, UNIT_FLUSH if unit else 0.0)
    return NystromMap(kernel, points, factor, forward)
