"""The only Cholesky, triangular solves, jitter ladder and BLAS thread limits.

Nothing here holds the GIL for long, so tasks on the threaded scheduler run side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import threadpoolctl

from squeak_dist._floats import flush_tiny
from squeak_dist._lapack import blas, lapack
from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import NumericalError

_PANEL = 128
_CORNER = 64  # rows of a triangular matrix that are solved with by its inverse
_POWER_STEPS = 10
_INVERTED_AT_ONCE = 128  # rows of a triangular matrix


class _BlasLimit:
    """One process-wide limit, counted, since several tasks may hold it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limit: Any = None

    def acquire(self) -> None:
        with self._lock:
            if self._holders == 0:
                _free_control()
                self._limit = _blas_libraries().limit(limits=1, user_api="blas")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _free_control()
                self._limit.restore_original_limits()
                self._limit = None
                _free_control()


@cache
def _blas_libraries() -> Any:
    """Return the BLAS of NumPy and SciPy, which are loaded by now: to look costs milliseconds."""
    return threadpoolctl.ThreadpoolController()


def _free_control() -> None:
    """Let any thread set the limit: it is process-wide, and its holders are counted here.

    threadpoolctl ≥ 3.8 silently ignores all threads but the first that set one.
    """
    controller = getattr(threadpoolctl, "OpenBLASController", None)
    clear = getattr(controller, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_blas_limit = _BlasLimit()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread inside the ``with`` block; restore the limit at the end.

    The number of threads decides how a product is summed, hence its last bits;
    with one thread per task a fit has the same bits everywhere. May be nested
    and held by several threads at once.
    """
    _blas_limit.acquire()
    try:
        yield
    finally:
        _blas_limit.release()


@contextmanager
def single_openmp_thread() -> Iterator[None]:
    """Run OpenMP loops that this thread starts (scikit-learn's) on one thread."""
    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        yield


def cholesky(A: Float64Array, *, overwrite: bool = False) -> Float64Array:
    """Return the lower Cholesky factor of a symmetric positive definite matrix.

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)
        Only the lower triangle is read.
    overwrite : bool, default False
        Use the memory of ``A`` for the factor.

    Returns
    -------
    ndarray of float64, shape (m, m)
        L with L Lᵀ = A, zeros above the diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.

    Notes
    -----
    LAPACK's dpotrf; cost m³/6 multiply-adds.
    """
    L = np.array(A, np.float64, order="C", copy=None if overwrite else True)
    # The lower triangle in C order is the upper one in LAPACK's.
    if lapack("dpotrf", "U", len(L), L, max(len(L), 1)):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return _clear_above(L)


def _clear_above(L: Float64Array) -> Float64Array:
    """Set what is above the diagonal to 0, in place."""
    for start in range(0, len(L), _PANEL):
        stop = min(start + _PANEL, len(L))
        L[start:stop, stop:] = 0
        L[start:stop, start:stop] = np.tril(L[start:stop, start:stop])
    return L


def cholesky_jittered(A: Float64Array, jitter: float, *, overwrite: bool = False) -> Float64Array:
    """Return the factor of A + j·I for the first j = jitter·10^i that works, i = 0, 1, ….

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)
        Symmetric positive semidefinite up to rounding.
    jitter : float
        First value tried, relative to the largest diagonal entry.
    overwrite : bool, default False
        Use the memory of ``A``, in C order, for the factor.

    Raises
    ------
    NumericalError
        If 1e-2 of the largest diagonal entry is not enough, or A is not finite.
    """
    diagonal = np.diagonal(A).copy()
    scale = float(diagonal.max(initial=0.0)) or 1.0
    if not np.isfinite(A).all():
        raise NumericalError(
            f"a {len(A)} × {len(A)} kernel matrix holds NaN or infinity; check the kernel, and "
            f"that no value of the data is beyond 1e18"
        )
    rows, trial = np.arange(len(A)), A if overwrite else A.copy()
    step = jitter
    while step <= 1e-2:
        trial[rows, rows] = diagonal + step * scale
        try:
            return cholesky(trial, overwrite=True)
        except np.linalg.LinAlgError:
            step *= 10
            trial = symmetrize(trial.T)  # the triangle above the diagonal is as it was
    raise NumericalError(
        f"a {len(A)} × {len(A)} kernel matrix is not positive definite even with 1e-2 of its "
        f"largest diagonal entry ({scale:.3g}) added; check that the kernel is positive "
        f"semidefinite"
    )


def triangular_inverse(L: Float64Array) -> Float64Array:
    """Return the inverse of a lower triangular matrix, shape (m, m); cost m³/6.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is a zero on the diagonal.
    """
    return _inverted(np.array(L, np.float64, order="C"))


def _inverted(W: Float64Array) -> Float64Array:
    """Invert a lower triangular matrix in C order, in place.

    The inverse of ((A, 0), (B, C)) is ((A⁻¹, 0), (−C⁻¹ B A⁻¹, C⁻¹)). OpenBLAS's dtrtri takes 1.3
    times as long as this from m = 1,000 on, and 1.9 times at 500.
    """
    m, stride = len(W), _stride(W)
    if m <= _INVERTED_AT_ONCE:
        # The lower triangle in C order is the upper one in LAPACK's.
        if lapack("dtrtri", "U", "N", m, W, stride):
            raise np.linalg.LinAlgError("the matrix is singular")
        return W
    half = m // 2
    A, B, C = W[:half, :half], W[half:, :half], W[half:, half:]
    _inverted(A)
    _inverted(C)
    blas("dtrmm", "L", "U", "N", "N", half, m - half, -1.0, A, stride, B, stride)
    blas("dtrmm", "R", "U", "N", "N", half, m - half, 1.0, C, stride, B, stride)
    return W


def inverse_and_log_determinant(A: Float64Array) -> tuple[Float64Array, float]:
    """Return A⁻¹ and log det A of a symmetric positive definite matrix, which is overwritten.

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.

    Notes
    -----
    L⁻ᵀ L⁻¹ by LAPACK's dlauum, m³/2 multiply-adds in all.
    """
    factor = cholesky(A, overwrite=True)
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(factor))))
    return triangular_gram(_inverted(factor)), log_determinant


def triangular_gram(L: Float64Array) -> Float64Array:
    """Return Lᵀ L of a lower triangular matrix in C order, which is overwritten.

    Parameters
    ----------
    L : ndarray of float64, shape (m, m)
        LAPACK's dlauum: m³/6 multiply-adds, a third of those of a product with itself.
    """
    lapack("dlauum", "U", len(L), L, max(len(L), 1))
    return symmetrize(L)


def inverse_diagonal(L: Float64Array) -> Float64Array:
    """Return the diagonal of (L Lᵀ)⁻¹, shape (m,); cost m³/6."""
    with scratch(L.shape, np.float64) as W:
        W[...] = L
        _inverted(W)
        return np.einsum("ij,ij->j", W, W)


@dataclass(frozen=True, eq=False)
class _Corner:
    """A diagonal block of at most 64 rows: transposed, its inverse."""

    columns: slice
    inverse: FloatArray


@dataclass(frozen=True, eq=False)
class _Halves:
    """A diagonal block ((A, 0), (B, C)): A, then B, transposed, times its solutions, then C."""

    first: _Corner | _Halves
    left: FloatArray
    second: _Corner | _Halves
    columns: slice


@dataclass(frozen=True, eq=False)
class ForwardSubstitution:
    """Solves with a lower triangular matrix, prepared once for many right-hand sides.

    Parameters
    ----------
    block : _Corner or _Halves, optional
        The matrix, cut in halves down to small corners; None of 0 rows.
    flush : float
        Where positive, solutions are rounded as :func:`flush_tiny` does.
    """

    block: _Corner | _Halves | None
    flush: float

    def solve_rows(self, rows: FloatArray) -> FloatArray:
        """Replace each row b by (L⁻¹ b)ᵀ, in place; returns ``rows``.

        Parameters
        ----------
        rows : ndarray of shape (n, m)
            One right-hand side per row, each in one piece of memory.

        Notes
        -----
        Cost: n m² multiply-adds, as matrix products: of large ones BLAS arranges the rows once,
        of narrow panels once for each. Memory: one corner.
        """
        if len(rows) and self.block is not None:
            with scratch((len(rows), min(_CORNER, rows.shape[1])), rows.dtype) as strip:
                self._solve(self.block, rows, strip)
        return rows

    def _solve(self, block: _Corner | _Halves, rows: FloatArray, strip: FloatArray) -> None:
        own = rows[:, block.columns]
        if isinstance(block, _Corner):
            copy = strip[:, : own.shape[1]]
            np.copyto(copy, own)
            np.matmul(copy, block.inverse, out=own)
            if self.flush:
                flush_tiny(own, self.flush)
            return
        self._solve(block.first, rows, strip)
        subtract_product(rows[:, block.first.columns], block.left, rows[:, block.second.columns])
        self._solve(block.second, rows, strip)


def forward_substitution(
    L: Float64Array, dtype: np.dtype[Any], flush: float = 0.0
) -> ForwardSubstitution:
    """Prepare solves with the lower triangular L in the given precision.

    Parameters
    ----------
    L : ndarray of float64, shape (m, m)
        Lower triangular.
    dtype : dtype
        Of the right-hand sides.
    flush : float, default 0
        Where positive, entries of L are rounded by ``flush`` times the largest,
        and solutions by ``flush`` itself.

    Notes
    -----
    Diagonal blocks are inverted in float64: they are small and far better
    conditioned than L itself.
    """
    rounding = flush * float(np.diagonal(L).max(initial=0.0))

    def block(start: int, stop: int) -> _Corner | _Halves:
        columns, size = slice(start, stop), stop - start
        if size <= _CORNER:
            corner = triangular_inverse(L[columns, columns]).T
            return _Corner(columns, np.ascontiguousarray(corner, dtype=dtype))
        middle = start + max(size // (2 * _CORNER), 1) * _CORNER
        left = np.array(L[middle:stop, start:middle].T, dtype=dtype, order="C")
        if flush:
            flush_tiny(left, rounding)
        return _Halves(block(start, middle), left, block(middle, stop), columns)

    return ForwardSubstitution(block(0, len(L)) if len(L) else None, flush)


def subtract_product(A: FloatArray, B: FloatArray, out: FloatArray) -> None:
    """Subtract A B from ``out``, in place: BLAS's gemm, which NumPy would give a new array.

    Parameters
    ----------
    A, B, out : ndarray of one dtype, shapes (n, k), (k, m) and (n, m)
        Columns in one piece of memory each row; ``out`` overlaps none of them.
    """
    gemm = "sgemm" if out.dtype == np.float32 else "dgemm"
    one = np.ones(1, out.dtype)
    (n, k), m = A.shape, B.shape[1]
    # In Fortran's order all are transposed: outᵀ − Bᵀ Aᵀ.
    blas(gemm, "N", "N", m, n, k, -one, B, _stride(B), A, _stride(A), one, out, _stride(out))


def _stride(A: FloatArray) -> int:
    """Return the numbers from one row to the next: of a single row, what BLAS takes for them."""
    return max(A.strides[0] // A.itemsize, A.shape[1], 1)


def solve_lower(L: Float64Array, b: Float64Array) -> Float64Array:
    """Return L⁻¹ b for b of shape (m, k), in float64; cost m² k / 2.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is a zero on the diagonal.
    """
    return _solve_triangular(L, b, "T")


def solve_lower_transposed(L: Float64Array, b: Float64Array) -> Float64Array:
    """Return L⁻ᵀ b for b of shape (m, k), as :func:`solve_lower`."""
    return _solve_triangular(L, b, "N")


def _solve_triangular(L: Float64Array, b: Float64Array, transposed: str) -> Float64Array:
    """Solve with L, which LAPACK takes for an upper triangular matrix in its order."""
    L, x = np.ascontiguousarray(L, np.float64), np.array(b, np.float64, order="F")
    m, columns = len(L), x.shape[1] if x.ndim > 1 else 1
    if m and columns and lapack("dtrtrs", "U", transposed, "N", m, columns, L, m, x, m):
        raise np.linalg.LinAlgError("the matrix is singular")
    return np.ascontiguousarray(x)


def add_gram(rows: FloatArray, gram: Float64Array, product: FloatArray | None = None) -> None:
    """Add rowsᵀ rows to ``gram``, in place.

    Parameters
    ----------
    rows : ndarray of shape (n, m)
        In float32 the product runs in float32, so n should stay below some
        thousands; the sum is kept in float64.
    gram : ndarray of float64, shape (m, m)
        The sum so far.
    product : ndarray of the dtype of ``rows``, shape (m, m), optional
        Overwritten by the product; a new one by default.

    Notes
    -----
    Cost: n m² / 2 multiply-adds: NumPy hands a matrix times its own transpose to syrk.
    """
    gram += np.matmul(rows.T, rows, out=product)


def spectral_norm(A: Float64Array) -> float:
    """Return ‖A‖₂ of a positive semidefinite matrix with positive entries, or nearly so.

    Parameters
    ----------
    A : ndarray of float64, shape (m, m)
        Symmetric; ten steps of the power method from the vector of ones, m² each.
    """
    return _power(lambda vector: A @ vector, np.ones(len(A)))


def least_eigenvalue(L: Float64Array) -> float:
    """Return the smallest eigenvalue of L Lᵀ, or a little more.

    Parameters
    ----------
    L : ndarray of float64, shape (m, m)
        Lower triangular, positive diagonal; ten steps of the power method on the inverse, 2 m²
        each, from a vector that no symmetry of the data makes orthogonal to what is sought.
    """
    start = np.random.default_rng(0).standard_normal((len(L), 1))
    norm = _power(lambda vector: solve_lower_transposed(L, solve_lower(L, vector)), start)
    return 1 / norm if norm > 0 else 0.0


def _power(product: Callable[[Float64Array], Float64Array], start: Float64Array) -> float:
    vector, norm = start, 0.0
    for _ in range(_POWER_STEPS):
        size = float(np.linalg.norm(vector))
        if size == 0:
            return 0.0
        vector = product(vector / size)
        norm = float(np.linalg.norm(vector))
    return norm


def symmetrize(gram: Float64Array) -> Float64Array:
    """Return the full symmetric matrix of a lower triangle, in C order.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m)
        Only the lower triangle is read. Copied in square tiles, which stay in the cache while
        they are transposed.
    """
    full = gram.copy(order="K")
    above = np.triu(np.ones((_PANEL, _PANEL), bool), 1)
    for start in range(0, len(full), _PANEL):
        stop = min(start + _PANEL, len(full))
        for left in range(stop, len(full), _PANEL):
            tile = slice(left, left + _PANEL)
            full[start:stop, tile] = full[tile, start:stop].T
        corner, size = full[start:stop, start:stop], stop - start
        np.copyto(corner, corner.T.copy(), where=above[:size, :size])
    return full if full.flags.c_contiguous else full.T
