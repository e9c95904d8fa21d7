"""The tridiagonal form of a symmetric matrix: what ridge regression for every μ needs of it.

(A + μI)⁻¹ B = Q (T + μI)⁻¹ Qᵀ B takes O(m) operations a column once A = Q T Qᵀ is known, so
that no eigenvectors are needed, which would take as long again as Q and T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squeak_dist._lapack import lapack
from squeak_dist._typing import BoolArray, Float64Array

_BLOCK = 64  # columns of LAPACK's blocked routines: more than any takes


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric positive semidefinite tridiagonal matrix T.

    Parameters
    ----------
    diagonal : ndarray of float64, shape (m,)
        T_ii.
    beside : ndarray of float64, shape (m - 1,)
        T_i,i+1; zeros where T is diagonal.
    values : ndarray of float64, shape (m,)
        Its eigenvalues λ ≥ 0, ascending.
    """

    diagonal: Float64Array
    beside: Float64Array
    values: Float64Array

    def solved(self, mus: Float64Array, B: Float64Array) -> tuple[Float64Array, BoolArray]:
        """Return (T + μI)⁻¹ B for each μ.

        Parameters
        ----------
        mus : ndarray of float64, shape (g,)
            μ.
        B : ndarray of float64, shape (m, k)
            Right-hand sides.

        Returns
        -------
        solutions : ndarray of float64, shape (g, m, k)
            6 m k flops for each μ. Zeros where there is none.
        definite : ndarray of bool, shape (g,)
            Whether T + μI is positive definite: where it is not, rounding outweighs μ.

        Notes
        -----
        One call of LAPACK's dptsv for all μ: its matrix has each T + μI as a block.
        """
        (m, k), g = B.shape, len(mus)
        if not (m and k and g):
            return np.zeros((g, m, k)), np.ones(g, bool)
        columns = np.empty((k, g, m))
        columns[...] = B.T[:, None, :]
        beside = np.zeros((g, m))
        beside[:, :-1] = self.beside
        if not lapack("dptsv", g * m, k, self.diagonal + mus[:, None], beside, columns, g * m):
            return np.moveaxis(columns, 0, 2), np.ones(g, bool)
        if g == 1:
            return np.zeros((1, m, k)), np.zeros(1, bool)
        alone = [self.solved(mus[place : place + 1], B) for place in range(g)]
        return np.concatenate([one for one, _ in alone]), np.concatenate([is_ for _, is_ in alone])


def diagonal_form(values: Float64Array) -> Tridiagonal:
    """Return the diagonal matrix of given eigenvalues, ascending and ≥ 0."""
    return Tridiagonal(values, np.zeros(max(len(values) - 1, 0)), values)


@dataclass(frozen=True, eq=False)
class Rotation:
    """The orthogonal Q of A = Q T Qᵀ, as the reflectors that it is a product of.

    Parameters
    ----------
    reflectors : ndarray of float64, shape (m, m), in Fortran order
        Below the first subdiagonal.
    scales : ndarray of float64, shape (m,)
        Of the reflectors.
    """

    reflectors: Float64Array
    scales: Float64Array

    def coordinates(self, vectors: Float64Array) -> Float64Array:
        """Return Qᵀ B for B of shape (m, k); cost 2 m² k."""
        return self._rotated(vectors, "T")

    def combined(self, coordinates: Float64Array) -> Float64Array:
        """Return Q C for C of shape (m, k); cost 2 m² k."""
        return self._rotated(coordinates, "N")

    def _rotated(self, vectors: Float64Array, transposed: str) -> Float64Array:
        found = np.array(vectors, np.float64, order="F")
        m, k = found.shape
        if m and k:
            work = np.empty(_BLOCK * max(k, m))
            lapack(
                "dormtr", "L", "L", transposed, m, k, self.reflectors, m, self.scales,
                found, m, work, len(work),
            )  # fmt: skip
        return np.ascontiguousarray(found)


def tridiagonal_form(A: Float64Array) -> tuple[Tridiagonal, Rotation]:
    """Return T and Q of a symmetric matrix, A = Q T Qᵀ.

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)
        Finite, and positive semidefinite but for rounding, such as that of float32 sums: where
        its least eigenvalue is negative, T is that of A less so many times I. Overwritten if it
        is in C order.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the iteration for the eigenvalues fails.

    Notes
    -----
    LAPACK's dsytrd, 4 m³/3 flops, half of them on vectors, and dsterf, O(m²).
    """
    m = len(A)
    reflectors = np.ascontiguousarray(A).T  # symmetric: itself in LAPACK's order, no copy
    diagonal, beside, scales = np.empty(m), np.empty(m), np.empty(m)
    if m:
        work = np.empty(_BLOCK * m)
        lapack("dsytrd", "L", m, reflectors, m, diagonal, beside, scales, work, len(work))
    values = diagonal.copy()
    if m and (failed := lapack("dsterf", m, values, beside.copy())):
        raise np.linalg.LinAlgError(f"eigenvalues do not converge: dsterf, info = {failed}")
    raised = max(-float(values[0]), 0.0) if m else 0.0
    form = Tridiagonal(diagonal + raised, beside[: max(m - 1, 0)], np.maximum(values + raised, 0))
    return form, Rotation(reflectors, scales)
