"""Eigendecomposition of a symmetric matrix whose eigenvectors are never multiplied out.

Ridge regression for every μ needs Vᵀb and Vθ for a few columns, not V: with the reflectors of
the tridiagonal form and that form's own eigenvectors, half of the time of a full decomposition.

LAPACK is called by the addresses that ``scipy.linalg.cython_lapack`` exports for that: SciPy's
Python wrappers hold the GIL, for minutes where m is large, and a worker must answer meanwhile.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from squeak_dist._typing import Float64Array

_BLOCK = 64  # columns of LAPACK's blocked routines: more than any takes


@dataclass(frozen=True, eq=False)
class Eigenvectors:
    """V = Q W: Q of the reduction to tridiagonal form T, and W the eigenvectors of T.

    Parameters
    ----------
    reflectors : ndarray of float64, shape (m, m), in Fortran order
        Of Q, below the first subdiagonal.
    scales : ndarray of float64, shape (m - 1,)
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
            _call(
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
    LAPACK's dsytrd, 4 m³/3 flops, half of them on vectors, and dstemr, which is O(m²) (Dhillon &
    Parlett 2004).
    """
    m = len(A)
    reflectors = np.ascontiguousarray(A).T  # symmetric: itself in LAPACK's order, no copy
    diagonal, beside, scales = np.empty(m), np.empty(max(m, 1)), np.empty(max(m - 1, 1))
    values, vectors = np.empty(m), np.empty((m, m), order="F")
    if m:
        work = np.empty(_BLOCK * m)
        _call("dsytrd", "L", m, reflectors, m, diagonal, beside, scales, work, len(work))
        support, work = np.empty(2 * m, np.intc), np.empty(18 * m)
        integers = np.empty(10 * m, np.intc)
        _call(
            "dstemr", "V", "A", m, diagonal, beside, 0.0, 0.0, 0, 0, np.empty(1, np.intc),
            values, vectors, m, m, support, np.ones(1, np.intc), work, len(work),
            integers, len(integers),
        )  # fmt: skip
    return values, Eigenvectors(reflectors, scales, vectors)


def _call(name: str, *args: str | int | float | np.ndarray[Any, Any]) -> None:
    """Call a routine of LAPACK, its ``info`` last, which is 0 of success."""
    info = np.zeros(1, np.intc)
    kept = [_in_memory(arg) for arg in (*args, info)]
    _routine(name, len(kept))(*(arg.ctypes.data for arg in kept))
    if info[0]:
        raise np.linalg.LinAlgError(f"{name} of LAPACK failed: info = {info[0]}")


def _in_memory(arg: str | int | float | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of what LAPACK takes by its address."""
    if isinstance(arg, np.ndarray):
        return arg
    if isinstance(arg, str):
        return np.frombuffer(arg.encode(), np.uint8)
    return np.array(arg, np.intc if isinstance(arg, int) else np.float64)


@cache
def _routine(name: str, n_args: int) -> Any:
    """Return a routine of LAPACK, which runs without the GIL."""
    capsule = vars(cython_lapack)["__pyx_capi__"][name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_args)(address)
