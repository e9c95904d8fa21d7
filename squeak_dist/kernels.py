"""Kernels: frozen values that fill a block of the kernel matrix.

A kernel is any object with the :class:`Kernel` protocol. The built-in ones
also fill a buffer that the caller reuses (:func:`kernel_block`), which is where
most of the time of a fit goes: an augmented product gives the squared
distances, and :mod:`squeak_dist.kernel_code` makes entries of them before they
leave the registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from squeak_dist._scratch import scratch
from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import InvalidKernelError, InvalidParameterError

if TYPE_CHECKING:
    from squeak_dist.kernel_code import EntryCode, Radial

_LARGEST_ROUNDING = 0.1  # of a squared distance in units of the length scale
_OVERFLOW_ROWS = 256
_CACHE_BYTES = 1 << 20  # of a strip, which stays in L2
_TILE_ROWS = 8  # a strip has this many, or a multiple: fewer leave registers idle
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
        return self.block(X, Y, np.empty((len(X), len(Y)), _entry_dtype(X, Y)))

    def block(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> FloatArray:
        """Fill ``out`` of shape (len(X), len(Y)) with the kernel matrix and return it."""
        for _ in self._filled(X, Y, lambda rows: out[rows], out.dtype):
            pass
        return out

    def strips(self, X: FloatArray, Y: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows, kernel entries of these rows with Y) in one reused buffer in the cache."""
        dtype = _entry_dtype(X, Y)
        with scratch((min(_strip_rows(Y, dtype), len(X)), len(Y)), dtype) as buffer:
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
        step = _strip_rows(Y, dtype)
        prepared = step * max(1, _PREPARED_ROWS // step)
        for first in range(0, len(X), prepared):
            left = self._left(self._scaled(X[first : first + prepared], dtype))
            for start in range(first, first + len(left), step):
                rows = slice(start, min(start + step, len(X)))
                strip, here = place(rows), start - first
                self._fill(left[here : here + step], right, strip)
                yield rows, strip

    def diag(self, X: FloatArray) -> FloatArray:
        """Return k(x, x) for every row, shape (len(X),)."""
        return np.ones(len(X), np.result_type(np.asarray(X), np.float32))

    unit_diagonal: ClassVar[bool] = False  # k(x, x) = 1, and entries fall to 0 with distance

    def _left(self, X: FloatArray) -> FloatArray:
        return X

    def _right(self, Y: FloatArray) -> FloatArray:
        return np.ascontiguousarray(Y.T)

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> None:
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
        # In C order, in which the squares of a row are always summed alike.
        return np.multiply(X, 1.0 / scale, dtype=dtype, order="C")

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


class _RadialKernel(_BuiltinKernel):
    """A kernel of the distance, whose entries :mod:`squeak_dist.kernel_code` writes.

    ``_right_rows`` of a subclass returns the rows that are packed, Y as it is unless it says so.
    """

    unit_diagonal: ClassVar[bool] = True

    @property
    def _radial(self) -> Radial:
        """The kernel's name there."""
        raise NotImplementedError

    def _code(self, dtype: np.dtype[Any]) -> EntryCode:
        from squeak_dist.kernel_code import entry_code  # LLVM: 0.1 s, and only where it is called

        return entry_code(self._radial, dtype)

    def _right(self, Y: FloatArray) -> FloatArray:
        return self._code(Y.dtype).packed(self._right_rows(Y))

    def _right_rows(self, Y: FloatArray) -> FloatArray:
        return Y

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> None:
        self._code(out.dtype).fill(X, Y, out)


_LARGEST_POWER = 0.4  # of the largest number: sums of squares of its 0.4th power are finite


def _strip_rows(Y: FloatArray, dtype: np.dtype[Any]) -> int:
    rows = _CACHE_BYTES // max(1, len(Y) * dtype.itemsize)
    return max(_TILE_ROWS, rows - rows % _TILE_ROWS)


def _entry_dtype(X: FloatArray, Y: FloatArray) -> np.dtype[Any]:
    """Return float32 for rows in float32, else float64."""
    single = np.dtype(np.float32)
    return single if np.result_type(X, Y, single) == single else np.dtype(np.float64)


def _augmented_left(X: FloatArray, factor: float) -> FloatArray:
    """Return A (n × d+2) of which A Bᵀ = −factor² ‖x − y‖² / 2, B of :func:`_augmented_right`."""
    rows = _within_range(X, factor)
    squares = np.einsum("ij,ij->i", rows, rows)
    return _beside(rows, -0.5 * squares, -1)


def _augmented_right(Y: FloatArray, factor: float) -> FloatArray:
    """Return B (m × d+2)."""
    rows = _within_range(Y, factor)
    squares = np.einsum("ij,ij->i", rows, rows)
    return _beside(rows, 1, 0.5 * squares)


def _within_range(X: FloatArray, factor: float) -> FloatArray:
    """Return factor · X.

    Values whose squares would overflow are cut off: such distances are beyond the farthest.
    """
    limit = float(np.finfo(X.dtype).max) ** _LARGEST_POWER
    rows = X * X.dtype.type(factor)
    return np.clip(rows, -limit, limit, out=rows)


def _beside(rows: FloatArray, *columns: Any) -> FloatArray:
    """Return rows with more columns."""
    d = rows.shape[1]
    wider = np.empty((len(rows), d + len(columns)), rows.dtype)
    wider[:, :d] = rows
    for j, column in enumerate(columns, start=d):
        wider[:, j] = column
    return wider


@dataclass(frozen=True)
class RBF(_RadialKernel):
    """Gaussian kernel k(x, y) = exp(−‖x − y‖² / (2 ℓ²)).

    Parameters
    ----------
    length_scale : float or tuple of float, default 1.0
        ℓ > 0, in the units of the rows; one number or one per feature.
    directions : tuple of tuple of float, optional
        A of shape (r, d), by keyword: rows are measured along these, A x in place of x, and
        there are length scales for these.
    """

    @property
    def _radial(self) -> Radial:
        return "rbf"

    def _left(self, X: FloatArray) -> FloatArray:
        return _augmented_left(X, 1.0)

    def _right_rows(self, Y: FloatArray) -> FloatArray:
        return _augmented_right(Y, 1.0)


@dataclass(frozen=True)
class Matern(_RadialKernel):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise InvalidParameterError(
                f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; for nu = inf use RBF"
            )
        object.__setattr__(self, "nu", float(self.nu))

    @property
    def _radial(self) -> Radial:
        names: dict[float, Radial] = {0.5: "matern 1/2", 1.5: "matern 3/2", 2.5: "matern 5/2"}
        return names[self.nu]

    def _left(self, X: FloatArray) -> FloatArray:
        return _augmented_left(X, self._factor)

    def _right_rows(self, Y: FloatArray) -> FloatArray:
        right = _augmented_right(Y, self._factor)
        return np.negative(right, out=right)  # (2ν) ‖x − y‖²

    @property
    def _factor(self) -> float:
        return float(np.sqrt(4 * self.nu))


@dataclass(frozen=True)
class Laplacian(_RadialKernel):
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
    Cost: 3 d operations per entry, as the distance has no matrix product; two to three times
    that of :class:`RBF`.
    """

    @property
    def _radial(self) -> Radial:
        return "laplacian"


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

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> None:
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

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> None:
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

    def _fill(self, X: FloatArray, Y: FloatArray, out: FloatArray) -> None:
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
        out = np.empty((len(X), len(Y)), _entry_dtype(X, Y))
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
    step = _strip_rows(Y, _entry_dtype(X, Y))
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        yield rows, kernel_block(kernel, X[rows], Y)


def strip_product(K: FloatArray, C: Float64Array) -> Float64Array:
    """Return K C of a strip, summed in float64 where the strip is float32.

    For coefficients that are large and cancel where the function is smooth: a product in float32
    would lose what the entries still hold.

    Parameters
    ----------
    K : ndarray of shape (n, m)
        Kernel entries.
    C : ndarray of float64, shape (m, k)
        Coefficients.
    """
    if K.dtype == np.float64:
        return np.asarray(K @ C, np.float64)
    from squeak_dist.kernel_code import wide_product

    return wide_product(K, C)


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
