"""Kernels: frozen values that fill a block of the kernel matrix.

A kernel is any object with the :class:`Kernel` protocol. The built-in ones
also fill a buffer that the caller reuses (:func:`kernel_block`), which is where
most of the time of a fit goes: one augmented matrix product gives minus half
the squared distances, and the rest happens in place while the block is still
in the cache.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import InvalidKernelError, InvalidParameterError

_LARGEST_ROUNDING = 0.1  # of a squared distance in units of the length scale
_OVERFLOW_ROWS = 256
_CACHE_ENTRIES = 1 << 18  # entries of a sub-block: 1 MiB of float32, which stays in L2
_PREPARED_ROWS = 1024  # augmented at a time: their copies stay in the cache
_SHOWN_SCALES = 8


@runtime_checkable
class Kernel(Protocol):
    """What a kernel must offer: k(X, Y) as a matrix, and its diagonal."""

    def __call__(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Return the kernel matrix, shape (len(X), len(Y))."""
        ...

    def diag(self, X: FloatArray) -> FloatArray:
        """Return k(x, x) for every row of X, shape (len(X),)."""
        ...


@dataclass(frozen=True)
class _BuiltinKernel:
    """Common face of the built-in kernels.

    With ``directions``, a matrix A of shape (r, d), rows are measured along these: x stands for
    A x, whose length scales are one number or r of them. Distances are then those of
    Rasmussen & Williams (2006), section 5.1, with a full matrix of length scales.

    Subclasses define ``_fill`` (write a sub-block in place), and ``_left`` and ``_right``
    (what is made of some rows of X, and of Y, before: augmented copies).
    """

    length_scale: float | tuple[float, ...] = 1.0
    directions: tuple[tuple[float, ...], ...] | None = field(
        default=None, kw_only=True, repr=False
    )

    def __post_init__(self) -> None:
        scale = np.asarray(self.length_scale, dtype=float)
        if scale.ndim > 1 or scale.size == 0 or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InvalidParameterError(
                f"length_scale must be a positive number or one per feature, got "
                f"{self.length_scale!r}"
            )
        value = float(scale) if scale.ndim == 0 else tuple(map(float, scale))
        object.__setattr__(self, "length_scale", value)
        if self.directions is not None:
            object.__setattr__(self, "directions", _checked_directions(self.directions, scale))

    def __str__(self) -> str:
        if self.directions is None:
            return repr(self)
        r, d = np.shape(self.directions)
        return f"{self!r} along {r} directions of {d} features"

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """Return the kernel matrix between the rows of X and Y, shape (len(X), len(Y)).

        Cost: 2 d n m multiply-adds and one transcendental function per entry.
        """
        X = np.asarray(X)
        Y = X if Y is None else np.asarray(Y)
        return self.block(X, Y, np.empty((len(X), len(Y)), np.result_type(X, Y, np.float32)))

    def block(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> FloatArray:
        """Fill ``out`` of shape (len(X), len(Y)) with the kernel matrix and return it."""
        for _ in self._filled(X, Y, lambda rows: out[rows], out.dtype):
            pass
        return out

    def strips(self, X: FloatArray, Y: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows, kernel entries of these rows with Y) in one reused buffer in the cache."""
        dtype = np.result_type(X, Y)
        with scratch((min(_strip_rows(Y), len(X)), len(Y)), dtype) as buffer:
            yield from self._filled(X, Y, lambda rows: buffer[: rows.stop - rows.start], dtype)

    def _filled(
        self,
        X: FloatArray,
        Y: FloatArray,
        place: Callable[[slice], FloatArray],
        dtype: np.dtype[Any],
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Fill a strip of rows at a time, each small enough for the cache."""
        right = self._right(self._scaled(Y, dtype))
        step = _strip_rows(Y)
        prepared = step * max(1, _PREPARED_ROWS // step)
        with scratch((min(step, len(X)) * self._needs_spare, len(Y)), dtype) as spare:
            for first in range(0, len(X), prepared):
                left = self._left(self._scaled(X[first : first + prepared], dtype))
                for start in range(first, first + len(left), step):
                    rows = slice(start, min(start + step, len(X)))
                    strip, here = place(rows), start - first
                    self._fill(left[here : here + step], right, strip, spare)
                    yield rows, strip

    def diag(self, X: FloatArray) -> FloatArray:
        """Return k(x, x) for every row, shape (len(X),)."""
        return np.ones(len(X), np.result_type(np.asarray(X), np.float32))

    unit_diagonal: ClassVar[bool] = False  # k(x, x) = 1, and entries fall to 0 with distance
    _needs_spare: ClassVar[bool] = False

    def _left(self, X: FloatArray) -> FloatArray:
        return X

    def _right(self, Y: FloatArray) -> FloatArray:
        return np.ascontiguousarray(Y.T)

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        raise NotImplementedError

    def _scaled(self, X: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
        if self.directions is not None:
            X = self._turned(X, dtype)
        scale = np.asarray(self.length_scale)
        if scale.ndim and scale.size != X.shape[1]:
            raise InvalidParameterError(
                f"length_scale has {scale.size} values, but the rows have {X.shape[1]} features; "
                f"give one number or one per feature"
            )
        return np.multiply(X, 1.0 / scale, dtype=dtype)

    @property
    def feature_scales(self) -> float | tuple[float, ...]:
        """Length scale of each feature while the others stay; infinite for one without a say.

        ``length_scale`` where there are no directions, else 1/‖A e_j / ℓ‖.
        """
        if self.directions is None:
            return self.length_scale
        changes = np.asarray(self.directions) / np.atleast_1d(self.length_scale)[:, None]
        with np.errstate(divide="ignore"):
            return tuple(map(float, 1 / np.linalg.norm(changes, axis=0)))

    def _turned(self, X: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
        """Return the coordinates of the rows along the directions, shape (n, r)."""
        directions = np.asarray(self.directions, dtype)
        if directions.shape[1] != X.shape[1]:
            raise InvalidParameterError(
                f"directions are of {directions.shape[1]} features, but the rows have {X.shape[1]}"
            )
        return np.asarray(X, dtype) @ directions.T


def _checked_directions(directions: Any, scale: Any) -> tuple[tuple[float, ...], ...]:
    """Return directions as plain numbers.

    Raises
    ------
    InvalidParameterError
        Where they are no matrix of finite numbers, a row per length scale.
    """
    matrix = np.asarray(directions, dtype=float)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise InvalidParameterError(
            f"directions must be a matrix of finite numbers, one row of d numbers per direction; "
            f"got one of shape {matrix.shape}"
        )
    if scale.ndim and len(scale) != len(matrix):
        raise InvalidParameterError(
            f"length_scale has {len(scale)} values for {len(matrix)} directions; give one number "
            f"or one per direction"
        )
    return tuple(tuple(map(float, row)) for row in matrix)


# −log of the least entry. Smaller ones mean nothing beside 1, and their products would be
# denormal, which a processor handles many times slower; zeros would need a pass of their own.
_FARTHEST = {np.dtype(np.float32): 39.0, np.dtype(np.float64): 700.0}
_POLYNOMIAL = {0.5: 0.0, 1.5: 4.0, 2.5: 7.0}  # farther, where 1 + a and 1 + a + a²/3 are large


class _Power(NamedTuple):
    """A function of NumPy with function(unit · x) = eˣ; the unit costs no pass over a block."""

    function: np.ufunc
    unit: float


def _fastest_power() -> _Power:
    """Return 2ˣ where NumPy has it in vectors (AVX-512: 0.6 of the time of its eˣ), else eˣ.

    By what NumPy says of itself, not by a clock: all workers of a kind must choose the same.
    """
    introspect = getattr(np.lib, "introspect", None)  # since NumPy 2.1
    if introspect is not None:
        loops = introspect.opt_func_info(func_name="^exp2$", signature="^float32$")
        current = [loop["current"] for of in loops.values() for loop in of.values()]
        if current and all(re.search("AVX512|X86_V4", name) for name in current):
            return _Power(np.exp2, math.log2(math.e))
    return _Power(np.exp, 1.0)


_POWER = _fastest_power()
_LARGEST_POWER = 0.4  # of the largest number: sums of squares of its 0.4th power are finite


def _strip_rows(Y: FloatArray) -> int:
    return max(1, _CACHE_ENTRIES // max(1, len(Y)))


def _augmented_left(X: FloatArray, factor: float) -> FloatArray:
    """Return A (n × d+2) of which A B = −factor² ‖x − y‖² / 2, B of :func:`_augmented_right`."""
    d = X.shape[1]
    left = np.empty((len(X), d + 2), X.dtype)
    rows = _within_range(X, factor, left[:, :d])
    left[:, d] = -0.5 * np.einsum("ij,ij->i", rows, rows)
    left[:, d + 1] = -1
    return left


def _augmented_right(Y: FloatArray, factor: float) -> FloatArray:
    """Return B (d+2 × m)."""
    d = Y.shape[1]
    right = np.empty((d + 2, len(Y)), Y.dtype)
    rows = _within_range(Y, factor, np.empty_like(Y))
    right[:d] = rows.T
    right[d] = 1
    right[d + 1] = 0.5 * np.einsum("ij,ij->i", rows, rows)
    return right


def _within_range(X: FloatArray, factor: float, out: FloatArray) -> FloatArray:
    """Write factor · X to ``out``.

    Values whose squares would overflow are cut off: such distances are beyond the farthest.
    """
    limit = float(np.finfo(X.dtype).max) ** _LARGEST_POWER
    np.multiply(X, X.dtype.type(factor), out=out)
    return np.clip(out, -limit, limit, out=out)


@dataclass(frozen=True)
class RBF(_BuiltinKernel):
    """Gaussian kernel k(x, y) = exp(−‖x − y‖² / (2 ℓ²)).

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0, in the units of the rows; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    """

    unit_diagonal: ClassVar[bool] = True

    def _left(self, X: FloatArray) -> FloatArray:
        return _augmented_left(X, float(np.sqrt(_POWER.unit)))

    def _right(self, Y: FloatArray) -> FloatArray:
        return _augmented_right(Y, float(np.sqrt(_POWER.unit)))

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        np.matmul(X, Y, out=out)
        # Rounding can turn the distance of near rows negative.
        np.clip(out, -_POWER.unit * _FARTHEST[out.dtype], 0, out=out)
        _POWER.function(out, out=out)


@dataclass(frozen=True)
class Matern(_BuiltinKernel):
    """Matérn kernel of smoothness ν ∈ {1/2, 3/2, 5/2}.

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0, in the units of the rows; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    nu : float, default 1.5
        Smoothness. With a = sqrt(2ν) ‖x − y‖ / ℓ the kernel is exp(−a),
        (1 + a) exp(−a) and (1 + a + a²/3) exp(−a).

    Raises
    ------
    InvalidParameterError
        For another ν; use :class:`RBF` for ν → ∞.
    """

    nu: float = 1.5
    unit_diagonal: ClassVar[bool] = True
    _needs_spare: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise InvalidParameterError(
                f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; for nu = inf use RBF"
            )
        object.__setattr__(self, "nu", float(self.nu))

    def _left(self, X: FloatArray) -> FloatArray:
        return _augmented_left(X, self._factor)

    def _right(self, Y: FloatArray) -> FloatArray:
        right = _augmented_right(Y, self._factor)
        return np.negative(right, out=right)  # u² (2ν) ‖x − y‖², without a pass over the block

    @property
    def _factor(self) -> float:
        return _POWER.unit * float(np.sqrt(4 * self.nu))

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        u, c = _POWER.unit, spare[: len(out)]  # c = u a
        np.matmul(X, Y, out=c)
        # Rounding can turn the distance of equal rows negative.
        np.clip(c, 0, (u * (_FARTHEST[c.dtype] + _POLYNOMIAL[self.nu])) ** 2, out=c)
        np.sqrt(c, out=c)
        np.subtract(-u * math.log(self._divisor), c, out=out)
        _POWER.function(out, out=out)
        if self.nu == 1.5:  # (1 + a) exp(−a) = (c + u) exp(−a) / u
            c += u
            out *= c
        elif self.nu == 2.5:  # (1 + a + a²/3) exp(−a) = ((c + 1.5 u)² + 0.75 u²) exp(−a) / 3u²
            c += 1.5 * u
            np.square(c, out=c)
            c += 0.75 * u**2
            out *= c

    @property
    def _divisor(self) -> float:
        """What the polynomial in c is times too large."""
        u = _POWER.unit
        return {0.5: 1.0, 1.5: u, 2.5: 3 * u**2}[self.nu]


@dataclass(frozen=True)
class Laplacian(_BuiltinKernel):
    """Laplacian kernel k(x, y) = exp(−Σ_j abs(x_j − y_j) / ℓ_j).

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.

    Notes
    -----
    The distance has no matrix product: the cost is d passes over the block.
    """

    unit_diagonal: ClassVar[bool] = True
    _needs_spare: ClassVar[bool] = True

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        gap = spare[: len(out)]
        out[...] = 0
        for j in range(X.shape[1]):
            np.subtract(X[:, j, None], Y[j], out=gap)
            np.abs(gap, out=gap)
            out -= gap
        np.maximum(out, -_FARTHEST[out.dtype], out=out)
        np.exp(out, out=out)


@dataclass(frozen=True)
class Linear(_BuiltinKernel):
    """Linear kernel k(x, y) = Σ_j x_j y_j / ℓ_j².

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    """

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        np.matmul(X, Y, out=out)

    def diag(self, X: FloatArray) -> FloatArray:
        """Return ‖x / ℓ‖² for every row, shape (len(X),)."""
        scaled = self._scaled(X, np.result_type(np.asarray(X), np.float32))
        return np.einsum("ij,ij->i", scaled, scaled)


@dataclass(frozen=True)
class Polynomial(_BuiltinKernel):
    """Polynomial kernel k(x, y) = (Σ_j x_j y_j / ℓ_j² + c)^degree.

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    degree : int, default 3
        At least 1.
    coef0 : float, default 1.0
        c ≥ 0, without which the kernel is not positive semidefinite.
    """

    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != int(self.degree) or self.degree < 1:
            raise InvalidParameterError(f"degree must be an integer ≥ 1, got {self.degree!r}")
        if not (np.isfinite(self.coef0) and self.coef0 >= 0):
            raise InvalidParameterError(f"coef0 must be finite and ≥ 0, got {self.coef0!r}")
        object.__setattr__(self, "degree", int(self.degree))
        object.__setattr__(self, "coef0", float(self.coef0))

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        np.matmul(X, Y, out=out)
        out += self.coef0
        np.power(out, self.degree, out=out)

    def diag(self, X: FloatArray) -> FloatArray:
        """Return (‖x / ℓ‖² + c)^degree for every row, shape (len(X),)."""
        scaled = self._scaled(X, np.result_type(np.asarray(X), np.float32))
        return (np.einsum("ij,ij->i", scaled, scaled) + self.coef0) ** self.degree


@dataclass(frozen=True)
class Cosine(_BuiltinKernel):
    """Cosine similarity of the scaled rows; 0 where a row is 0.

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0; only the ratios between features matter.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    """

    def _left(self, X: FloatArray) -> FloatArray:
        return _normalized(X)

    def _right(self, Y: FloatArray) -> FloatArray:
        return np.ascontiguousarray(_normalized(Y).T)

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray, spare: FloatArray) -> None:
        np.matmul(X, Y, out=out)

    def diag(self, X: FloatArray) -> FloatArray:
        """Return 1 for every row that is not 0, shape (len(X),)."""
        X = np.asarray(X)
        return np.any(X != 0, axis=1).astype(np.result_type(X, np.float32))


def _normalized(X: FloatArray) -> FloatArray:
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    norms[norms == 0] = 1
    return X / norms[:, None]


BUILTIN_KERNELS: Mapping[str, type[_BuiltinKernel]] = {
    "rbf": RBF,
    "matern": Matern,
    "laplacian": Laplacian,
    "polynomial": Polynomial,
    "linear": Linear,
    "cosine": Cosine,
}


def kernel_block(
    kernel: Kernel, X: FloatArray, Y: FloatArray, out: FloatArray | None = None
) -> FloatArray:
    """Return k(X, Y), in ``out`` where given.

    Parameters
    ----------
    kernel : Kernel
        Built-in kernels write into ``out``; others are called and copied.
    X, Y : ndarray of shape (n, d) and (m, d)
        Encoded rows.
    out : ndarray of shape (n, m), optional
        Buffer, C-contiguous.

    Raises
    ------
    InvalidKernelError
        If a user's kernel returns another shape or non-finite values.
    """
    if out is None:
        out = np.empty((len(X), len(Y)), np.result_type(X, Y))
    if isinstance(kernel, _BuiltinKernel):
        return kernel.block(X, Y, out)
    out[...] = _checked_block(kernel, X, Y)
    return out


def kernel_strips(
    kernel: Kernel, X: FloatArray, Y: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield (rows, k(X[rows], Y)) over strips of X, each overwritten by the next.

    For products with vectors: a strip is used while it is still in the cache.
    """
    if isinstance(kernel, _BuiltinKernel):
        yield from kernel.strips(X, Y)
        return
    step = _strip_rows(Y)
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        yield rows, kernel_block(kernel, X[rows], Y)


def doubled_strips(
    kernel: Kernel, X: FloatArray, Y: FloatArray
) -> Iterator[tuple[slice, FloatArray, Float64Array]]:
    """Yield (rows, k(X[rows], Y), the same in float64) over strips of X, as :func:`kernel_strips`.

    For products with coefficients, which are large and cancel where the function is smooth: a
    product in float32 would lose what the entries still hold.
    """
    with scratch((min(_strip_rows(Y), len(X)), len(Y)), np.float64) as buffer:
        for rows, K in kernel_strips(kernel, X, Y):
            if K.dtype == np.float64:
                yield rows, K, np.asarray(K, np.float64)
                continue
            doubled = buffer[: len(K)]
            doubled[...] = K
            yield rows, K, doubled


def kernel_diag(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Return k(x, x) for every row, shape (len(X),); user kernels are checked."""
    if isinstance(kernel, _BuiltinKernel):
        return kernel.diag(X)
    return _checked_values(kernel, np.asarray(kernel.diag(X)), (len(X),), "diag(X)")


def _checked_block(kernel: Kernel, X: FloatArray, Y: FloatArray) -> FloatArray:
    return _checked_values(kernel, np.asarray(kernel(X, Y)), (len(X), len(Y)), "kernel(X, Y)")


def _checked_values(
    kernel: Kernel, values: FloatArray, shape: tuple[int, ...], call: str
) -> FloatArray:
    if values.shape != shape:
        raise InvalidKernelError(
            f"{call} of {type(kernel).__name__} returned shape {values.shape}; expected {shape}, "
            f"one value per pair of rows"
        )
    if values.dtype.kind not in "biuf":
        raise InvalidKernelError(
            f"{call} of {type(kernel).__name__} returned values of dtype {values.dtype}; expected "
            f"real numbers"
        )
    if not np.all(np.isfinite(values)):
        raise InvalidKernelError(
            f"{call} of {type(kernel).__name__} returned NaN or infinity; a kernel must be finite "
            f"for finite rows"
        )
    return values


def check_kernel(kernel: Kernel, X: FloatArray) -> None:
    """Check a kernel on some rows: shapes, finite, symmetric, positive semidefinite.

    Parameters
    ----------
    kernel : Kernel
        The kernel to check.
    X : ndarray of shape (n, d)
        Some encoded rows, a few hundred at most: the cost is n³.

    Raises
    ------
    InvalidKernelError
        With what was found and what was expected.
    """
    X = np.asarray(X, np.float64)
    K = _checked_block(kernel, X, X).astype(np.float64)
    diagonal = _checked_values(kernel, np.asarray(kernel.diag(X)), (len(X),), "diag(X)")
    name = type(kernel).__name__
    scale = max(float(np.abs(K).max(initial=0.0)), np.finfo(float).tiny)
    if not np.allclose(K, K.T, atol=1e-6 * scale, rtol=0):
        raise InvalidKernelError(f"{name} is not symmetric: k(x, y) must equal k(y, x)")
    if not np.allclose(np.diagonal(K), diagonal, atol=1e-5 * scale, rtol=0):
        raise InvalidKernelError(
            f"{name}.diag(X) differs from the diagonal of its matrix by up to "
            f"{float(np.abs(np.diagonal(K) - diagonal).max()):.3g}"
        )
    smallest = float(np.linalg.eigvalsh((K + K.T) / 2)[0]) if len(X) else 0.0
    if smallest < -1e-6 * scale * max(len(X), 1):
        raise InvalidKernelError(
            f"{name} is not positive semidefinite: its matrix on {len(X)} rows of the data has "
            f"the eigenvalue {smallest:.3g}; kernel ridge regression needs all of them ≥ 0"
        )


def check_resolution(kernel: Kernel, X: FloatArray) -> None:
    """Check that the precision of the rows resolves the kernel on them.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray of shape (n, d)
        A sample of encoded rows, in the precision of the fit.

    Raises
    ------
    InvalidParameterError
        If rounding in ‖x‖² / ℓ² drowns the distances of most rows, or kernel
        entries overflow.
    """
    cures = 'a larger length_scale, standardize=True or dtype="float64" helps'
    if isinstance(kernel, (RBF, Matern)):
        scaled = kernel._scaled(X, np.dtype(np.float64))
        rounding = float(np.finfo(X.dtype).eps * np.median(np.einsum("ij,ij->i", scaled, scaled)))
        if rounding > _LARGEST_ROUNDING:
            raise InvalidParameterError(
                f"the length scale is too small for the spread of the columns: squared distances "
                f"in its units are rounded by {rounding:.2g} in {X.dtype}; {cures}"
            )
    if isinstance(kernel, _BuiltinKernel):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(kernel(X[:_OVERFLOW_ROWS])).all())
        if not finite:
            raise InvalidParameterError(
                f"{type(kernel).__name__} overflows {X.dtype} on the rows of the data; {cures}"
            )


def make_kernel(kernel: str | Kernel, length_scale: float | tuple[float, ...]) -> Kernel:
    """Return the kernel that a name stands for, with the given length scale.

    Parameters
    ----------
    kernel : str or Kernel
        One of ``rbf``, ``matern`` (ν = 3/2), ``laplacian``, ``polynomial``,
        ``linear``, ``cosine``; or a kernel, which is returned as it is.
    length_scale : float or tuple of float
        For names only.

    Raises
    ------
    InvalidParameterError
        For an unknown name or an object without the protocol.
    """
    if isinstance(kernel, str):
        if kernel.lower() not in BUILTIN_KERNELS:
            raise InvalidParameterError(
                f"unknown kernel {kernel!r}; expected one of {', '.join(BUILTIN_KERNELS)}, or an "
                f"object with kernel(X, Y) and kernel.diag(X)"
            )
        return BUILTIN_KERNELS[kernel.lower()](length_scale)
    if not isinstance(kernel, Kernel) or isinstance(kernel, type):
        raise InvalidParameterError(
            f"kernel must be a name or an object with kernel(X, Y) and kernel.diag(X), got "
            f"{kernel!r}"
        )
    return kernel


def brief_kernel(text: str) -> str:
    """Return the text of a kernel as a line can hold it.

    Parameters
    ----------
    text : str
        What ``str(kernel)`` is.

    Returns
    -------
    str
        Its fractions with four digits, and of many length scales the first ones and how many.
    """

    def first(found: re.Match[str]) -> str:
        scales = found[1].split(", ")
        if len(scales) <= _SHOWN_SCALES:
            return found[0]
        return f"({', '.join(scales[:_SHOWN_SCALES])}, … {len(scales)} in all)"

    rounded = re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)
    return re.sub(r"\(([^()]*)\)", first, rounded)


def kernel_config(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as plain values: its name and parameters, for a store."""
    for name, cls in BUILTIN_KERNELS.items():
        if type(kernel) is cls:
            parameters = {f.name: _plain(getattr(kernel, f.name), list) for f in fields(cls)}
            if kernel.directions is None:
                del parameters["directions"]
            return {"name": name} | parameters
    return {"name": "custom", "class": f"{type(kernel).__module__}.{type(kernel).__qualname__}"}


def _plain(value: Any, sequence: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
    """Return a value with its sequences, and those in them, as lists or tuples."""
    if isinstance(value, list | tuple):
        return sequence(_plain(each, sequence) for each in value)
    return value


def kernel_from_config(config: Mapping[str, Any]) -> Kernel:
    """Return the kernel that :func:`kernel_config` described.

    Raises
    ------
    InvalidKernelError
        For a kernel that is not built in.
    """
    name = str(config.get("name"))
    if name not in BUILTIN_KERNELS:
        raise InvalidKernelError(
            f"the kernel {config.get('class', name)!r} is not built in; pass the object itself: "
            f"load(path, kernel=...)"
        )
    parameters = {k: _plain(v, tuple) for k, v in config.items()}
    parameters.pop("name")
    return BUILTIN_KERNELS[name](**parameters)
