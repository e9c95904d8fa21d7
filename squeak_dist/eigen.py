"""Eigendecomposition of a symmetric matrix whose eigenvectors are never multiplied out.

Ridge regression for every μ needs Vᵀb and Vθ for a few columns, not V: with the reflectors of
the tridiagonal form and that form's own eigenvectors, half of the time of a full decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squeak_dist._lapack import lapack
from squeak_dist._typing import Float64Array

_BLOCK = 64  # columns of LAPACK's blocked routines: more than any takes


@dataclass(frozen=True, eq=False)
class Eigenvectors:
    """V = Q W: Q of the reduction to tridiagonal form T, and W the eigenvectors of T.

    Parameters
    ----------
    reflectors : ndarray of float64, shape (m, m), in Fortran order
        Of Q, below the first subdiagonal.
    scales : ndarray of float64, shape (m,)
        Of the reflectors.
    tridiagonal : ndarray of float64, shape (m, m), in Fortran order
        W.
    """

    reflectors: Float64Array
    scales: Float64Array
    tridiagonal: Float64Array

    def coordinates(self, vectors: Float64Array) -> Float64Array:
        """Return Vᵀ B for B of shape (m, k); cost 3 m² k."""
        product: Float64Array = self.tridiagonal.T @ self._rotated(vectors, "T")
        return product

    def combined(self, coordinates: Float64Array) -> Float64Array:
        """Return V C for C of shape (m, k); cost 3 m² k."""
        return self._rotated(self.tridiagonal @ coordinates, "N")

    def _rotated(self, vectors: Float64Array, transposed: str) -> Float64Array:
        """Return Q B, or Qᵀ B."""
        found = np.array(vectors, np.float64, order="F")
        m, k = found.shape
        if m and k:
            work = np.empty(_BLOCK * max(k, m))
            lapack(
                "dormtr", "L", "L", transposed, m, k, self.reflectors, m, self.scales,
                found, m, work, len(work),
            )  # fmt: skip
        return np.ascontiguousarray(found)


def eigen(A: Float64Array) -> tuple[Float64Array, Eigenvectors]:
    """Decompose a symmetric matrix, A = V diag(λ) Vᵀ.

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)
        Symmetric and finite; overwritten if it is in C order.

    Returns
    -------
    values : ndarray of float64, shape (m,)
        λ, ascending.
    vectors : Eigenvectors
        V.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the iteration for the eigenvectors of T fails.

    Notes
    -----
    LAPACK's dsytrd, 4 m³/3 flops, half of them on vectors, and dstedc, which takes half as long or
    less. (Its dstemr, O(m²), fails where many eigenvalues are equal, as of columns of 0 and 1.)
    """
    m = len(A)
    reflectors = np.ascontiguousarray(A).T  # symmetric: itself in LAPACK's order, no copy
    values, beside, scales = np.empty(m), np.empty(m), np.empty(m)
    vectors = np.empty((m, m), order="F")
    if m:
        work = np.empty(_BLOCK * m)
        lapack("dsytrd", "L", m, reflectors, m, values, beside, scales, work, len(work))
        levels = m.bit_length()
        work = np.empty(1 + 4 * m + m * m)
        integers = np.empty(6 + 6 * m + 5 * m * levels, np.intc)
        failed = lapack(
            "dstedc", "I", m, values, beside, vectors, m, work, len(work), integers, len(integers)
        )
        if failed:
            raise np.linalg.LinAlgError(f"eigenvectors do not converge: dstedc, info = {failed}")
    return values, Eigenvectors(reflectors, scales, vectors)
