"""What every sampler takes and returns, and what they share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.errors import (
    EmptyDataError,
    InsufficientMemoryError,
    InvalidParameterError,
    LengthMismatchError,
)
from squeak_dist.kernels import Kernel
from squeak_dist.squeak import SqueakParameters, overrun_step


class Sampler(Protocol):
    """A choice of rows: a function, or an object that can be called like one.

    It is called as ``sampler(X, kernel, parameters, rng, row_weights)`` with

    - X, ndarray of shape (n, d): the encoded rows;
    - kernel: ``kernel(X, Y)`` and ``kernel.diag(X)``;
    - parameters: γ, ε, q̄, and the budget m as ``max_dictionary`` (at most n, or None);
    - rng, numpy.random.Generator: the source of all randomness;
    - row_weights, ndarray of shape (n,) or None: sample weights v ≥ 0,

    and returns a :class:`~squeak_dist.dictionary.Dictionary` whose indices are positions
    in X, or the positions alone (integers, each at most once; every row then has selection
    weight 1). It must not depend on anything else: the same rng gives the same rows.
    """

    def __call__(
        self,
        X: FloatArray,
        kernel: Kernel,
        parameters: SqueakParameters,
        rng: np.random.Generator,
        row_weights: Float64Array | None = None,
    ) -> Dictionary | IntArray:
        """Choose rows."""
        ...


def checked_weights(
    X: FloatArray, parameters: SqueakParameters, row_weights: Float64Array | None
) -> Float64Array:
    """Return the sample weights, 1 where there are none, shape (n,).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows.
    parameters : SqueakParameters
        Its budget may not exceed n.
    row_weights : ndarray of shape (n,), optional
        Sample weights.

    Raises
    ------
    EmptyDataError
        If there are no rows, or all have weight 0.
    InvalidParameterError
        For a budget above n, or negative weights.
    LengthMismatchError
        For another number of weights than rows.
    """
    n = len(X)
    if not n:
        raise EmptyDataError("got no rows to choose from; at least one is needed")
    if parameters.max_dictionary is not None and parameters.max_dictionary > n:
        raise InvalidParameterError(
            f"max_dictionary={parameters.max_dictionary:,} is more than the {n:,} rows there are "
            f"to choose from; ask for {n:,} at most"
        )
    if row_weights is None:
        return np.ones(n)
    weights = np.asarray(row_weights, np.float64)
    if weights.shape != (n,):
        raise LengthMismatchError(f"got row_weights of shape {weights.shape} for {n:,} rows")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InvalidParameterError("row_weights must be finite and at least 0")
    if not weights.any():
        raise EmptyDataError("every row has weight 0, so there is nothing to choose from")
    return weights


def budget(parameters: SqueakParameters, sampler: str) -> int:
    """Return the number of rows to choose, which some samplers must be told.

    Raises
    ------
    InvalidParameterError
        If ``max_dictionary`` is None.
    """
    if parameters.max_dictionary is None:
        raise InvalidParameterError(
            f"the {sampler} sampler needs its size in advance; give max_dictionary"
        )
    return parameters.max_dictionary


def check_fits(nbytes: int, what: str) -> None:
    """Refuse arrays that are larger than the memory of this machine.

    Parameters
    ----------
    nbytes : int
        Projected bytes.
    what : str
        What they are for, and what to do instead.

    Raises
    ------
    InsufficientMemoryError
        With both sizes.
    """
    memory = physical_memory()
    if nbytes > memory:
        raise InsufficientMemoryError(
            f"{what} needs about {nbytes:,} bytes ({nbytes / 2**20:,.0f} MiB), but this machine "
            f"has {memory / 2**20:,.0f} MiB; use fewer rows, or a sampler that needs no n × n "
            f"matrix"
        )


def physical_memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kept_rows(
    X: FloatArray,
    rows: IntArray,
    gamma: float,
    row_weights: Float64Array,
    *,
    probabilities: Float64Array | None = None,
    multiplicities: IntArray | None = None,
    qbar: int = 1,
) -> Dictionary:
    """Return the dictionary of some rows of X.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        All rows.
    rows : ndarray of int64, shape (m,)
        Positions of those kept, distinct.
    gamma : float
        γ.
    row_weights : ndarray of float64, shape (n,)
        Sample weights of all rows.
    probabilities, multiplicities : ndarray of shape (m,), optional
        p and Q of those kept; 1 and q̄ by default: selection weight 1.
    qbar : int, default 1
        q̄.
    """
    return Dictionary(
        points=X[rows],
        indices=np.asarray(rows, np.int64),
        probabilities=np.ones(len(rows)) if probabilities is None else probabilities,
        multiplicities=(
            np.full(len(rows), qbar, np.int64) if multiplicities is None else multiplicities
        ),
        row_weights=row_weights[rows],
        gamma=gamma,
        qbar=qbar,
    )


def drawn_rows(
    X: FloatArray,
    candidates: IntArray,
    scores: Float64Array,
    draws: int,
    gamma: float,
    row_weights: Float64Array,
    rng: np.random.Generator,
) -> Dictionary:
    """Draw rows with replacement in proportion to their scores.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        All rows.
    candidates : ndarray of int64, shape (R,)
        Positions to draw from, themselves chosen uniformly.
    scores : ndarray of float64, shape (R,)
        At least 0, not all of them.
    draws : int
        M, which becomes q̄: a row drawn Q times has s² = Q / (M P R/n).
    gamma : float
        γ of the dictionary.
    row_weights : ndarray of float64, shape (n,)
        Sample weights of all rows.
    rng : numpy.random.Generator
        Source of the draws.
    """
    shares = scores / scores.sum()
    copies = rng.multinomial(draws, shares)
    hit = np.flatnonzero(copies)
    return kept_rows(
        X,
        candidates[hit],
        gamma,
        row_weights,
        probabilities=shares[hit] * (len(candidates) / len(X)),
        multiplicities=copies[hit],
        qbar=draws,
    )


def at_a_gamma_that_fits(
    choose: Callable[[float], Dictionary], parameters: SqueakParameters
) -> Dictionary:
    """Choose at the given γ, and at larger ones until the budget holds.

    Parameters
    ----------
    choose : callable
        From γ to a dictionary whose size falls as γ grows.
    parameters : SqueakParameters
        γ and ``max_dictionary``.
    """
    gamma, limit = parameters.gamma, parameters.max_dictionary
    chosen = choose(gamma)
    while limit is not None and len(chosen) > limit:
        gamma *= overrun_step(len(chosen), limit)
        chosen = choose(gamma)
    return chosen
