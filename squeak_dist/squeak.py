"""SQUEAK over a stream of rows, and the merge of dictionaries (DISQUEAK).

Expand samples new rows by their estimated ridge leverage scores; Shrink
re-estimates the rows that are in, and thins them. A dictionary never needs the
rows that it left behind. Sources: Calandriello, Lazaric & Valko, "Pack only the
essentials" (Alg. 1), and "Distributed adaptive sampling" (AISTATS 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from squeak_dist._typing import BoolArray, Float64Array, FloatArray, IntArray
from squeak_dist.dictionary import Dictionary, concatenate, empty_dictionary
from squeak_dist.errors import NumericalError
from squeak_dist.kernels import Kernel, kernel_diag
from squeak_dist.leverage import (
    estimated_effective_dimension,
    merge_gamma,
    rls_of_dictionary,
    rls_of_new_rows,
)
from squeak_dist.linalg import inverse_diagonal
from squeak_dist.nystrom import NystromMap, regularized_factor, regularized_map
from squeak_dist.validation import check_choice, check_integer, check_real

MIN_ROWS = 512  # a dictionary below this size costs nothing, so it may grow to it unshrunk
_MAX_BLOCK_ROWS = 4096
COARSE_STRIDE = 4  # the prefilter's map keeps every fourth row of the dictionary
COARSE_FROM = 256  # below this size the prefilter does not pay
_SMALLEST_STEP, _LARGEST_STEP = 1.02, 4.0  # of γ, where a dictionary does not fit
_FULL_SHARE = 0.95  # of max_dictionary: with less room than that a stream stops


@dataclass(frozen=True)
class SqueakParameters:
    """What SQUEAK needs to know besides kernel and rows.

    Parameters
    ----------
    gamma : float
        Leverage regularization γ > 0.
    epsilon : float, default 0.3
        Accuracy ε in (0, 1).
    qbar : int, default 16
        Copies per row before selection, q̄ ≥ 1.
    max_dictionary : int, optional
        Largest number of distinct rows; none by default.
    on_overrun : {"raise_gamma", "stop"}, default "raise_gamma"
        What happens when Shrink cannot hold ``max_dictionary``: raise γ (by as much
        as the excess of rows asks for, at most fourfold) and shrink again; or let the
        dictionary never exceed it, and see no more rows once Shrink frees less
        than a twentieth of it.
    growth : float, default 1.5
        Shrink runs when the dictionary has grown by this factor, > 1.
    prefilter : bool, default True
        Judge rows by a coarse map first; the distribution stays the same.

    Raises
    ------
    InvalidParameterError
        For a value outside its range.
    """

    gamma: float
    epsilon: float = 0.3
    qbar: int = 16
    max_dictionary: int | None = None
    on_overrun: str = "raise_gamma"
    growth: float = 1.5
    prefilter: bool = True

    def __post_init__(self) -> None:
        check_real("gamma", self.gamma, above=0)
        check_real("epsilon", self.epsilon, above=0, below=1)
        check_integer("qbar", self.qbar, at_least=1)
        if self.max_dictionary is not None:
            check_integer("max_dictionary", self.max_dictionary, at_least=1, hint=", or None")
        check_choice("on_overrun", self.on_overrun, ("raise_gamma", "stop"))
        check_real("growth", self.growth, above=1)


@dataclass(frozen=True, eq=False)
class SqueakState:
    """A dictionary on its way through the rows.

    Parameters
    ----------
    dictionary : Dictionary
        All rows held now.
    mapped : int
        How many leading rows of it the last Shrink left; rows are judged by the
        map of these, so the state alone decides what comes next.
    rows_seen : int
        Rows that went through Expand.
    rows_mapped : int
        Rows seen at the last Shrink.
    stopped : bool
        True once ``on_overrun="stop"`` has ended the stream.
    """

    dictionary: Dictionary
    mapped: int = 0
    rows_seen: int = 0
    rows_mapped: int = 0
    stopped: bool = False


def start_state(
    n_features: int, dtype: np.dtype[np.floating], parameters: SqueakParameters
) -> SqueakState:
    """Return the state before the first row."""
    return SqueakState(empty_dictionary(n_features, dtype, parameters.gamma, parameters.qbar))


def squeak(
    kernel: Kernel,
    X: FloatArray,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    *,
    start: SqueakState | None = None,
    indices: IntArray | None = None,
    row_weights: Float64Array | None = None,
) -> SqueakState:
    """Pass rows through SQUEAK once, in blocks with delayed Shrink.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray of shape (n, d)
        Encoded rows.
    parameters : SqueakParameters
        γ, ε, q̄ and the size limit.
    rng : numpy.random.Generator
        Source of all randomness of this call.
    start : SqueakState, optional
        Where an earlier call left off; from nothing by default.
    indices : ndarray of int64, shape (n,), optional
        Global row numbers; counted on from ``start`` by default.
    row_weights : ndarray of shape (n,), optional
        Sample weights v ≥ 0; rows of weight 0 are never kept.

    Returns
    -------
    SqueakState
        Call :func:`finish` for the dictionary with its last Shrink.

    Notes
    -----
    Cost: n m² multiply-adds at most, m the dictionary size; the prefilter saves
    most of it. Memory: O(m²), independent of n. Alg. 1 in blocks (DESIGN §1).
    """
    state = start if start is not None else start_state(X.shape[1], X.dtype, parameters)
    if indices is None:
        indices = np.arange(state.rows_seen, state.rows_seen + len(X), dtype=np.int64)
    weights = np.ones(len(X)) if row_weights is None else row_weights
    judge = _make_judge(kernel, state, parameters)
    position = 0
    while position < len(X) and not state.stopped:
        if len(state.dictionary) >= _capacity(state, parameters):
            state = _shrink_state(kernel, state, parameters, rng)
            judge = _make_judge(kernel, state, parameters)
            continue
        block = slice(position, position + _block_rows(state))
        state, used = _expand(
            state, judge, kernel, X[block], indices[block], weights[block], parameters, rng
        )
        position += used
    return state


def finish(
    kernel: Kernel, state: SqueakState, parameters: SqueakParameters, rng: np.random.Generator
) -> SqueakState:
    """Return the state after a Shrink of whatever came since the last one.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    state : SqueakState
        Where :func:`squeak` left off.
    parameters : SqueakParameters
        Those of the stream.
    rng : numpy.random.Generator
        Source of the thinning.
    """
    if state.stopped or state.rows_mapped == state.rows_seen:
        return state
    return _shrink_state(kernel, state, parameters, rng)


def squeak_by_row(
    kernel: Kernel,
    X: FloatArray,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    *,
    start: SqueakState | None = None,
    row_weights: Float64Array | None = None,
) -> SqueakState:
    """Alg. 1 of the paper word for word: one row, then Shrink, then the next row.

    Parameters are those of :func:`squeak`. Cost: n m³; for small n and for tests.

    Notes
    -----
    A new row enters with p = 1 and q̄ copies, and Shrink keeps
    p⁺ = max(min(τ̃, p), p/2). Rows of weight 0 do not enter. Beyond ``max_dictionary``
    :func:`shrink` follows.
    """
    state = start if start is not None else start_state(X.shape[1], X.dtype, parameters)
    weights = np.ones(len(X)) if row_weights is None else row_weights
    for row, weight in zip(X, weights, strict=True):
        if weight == 0:
            state = replace(state, rows_seen=state.rows_seen + 1)
            continue
        arrival = Dictionary(
            points=row[None, :],
            indices=np.array([state.rows_seen], dtype=np.int64),
            probabilities=np.ones(1),
            multiplicities=np.full(1, parameters.qbar),
            row_weights=np.full(1, weight),
            gamma=state.dictionary.gamma,
            qbar=parameters.qbar,
        )
        grown = concatenate([state.dictionary, arrival])
        thinned = thin(grown, _estimated_rls(kernel, grown, parameters.epsilon), rng, halving=True)
        if len(thinned) > (parameters.max_dictionary or math.inf):
            thinned = shrink(kernel, thinned, parameters, rng)
        state = _shrunk(thinned, state.rows_seen + 1)
    return state


def shrink(
    kernel: Kernel,
    dictionary: Dictionary,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    *,
    merged: int = 1,
) -> Dictionary:
    """Re-estimate the RLS of a dictionary's rows and thin it by them.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    dictionary : Dictionary
        Rows to judge; its own γ counts, not that of ``parameters``.
    parameters : SqueakParameters
        ε, ``max_dictionary`` and ``on_overrun``.
    rng : numpy.random.Generator
        Source of the thinning.
    merged : int, default 1
        Number of inexact dictionaries that this one is the union of.

    Returns
    -------
    Dictionary
        At most ``max_dictionary`` rows, at a γ raised as often as that took;
        with ``on_overrun="stop"`` γ is left alone, and the size is what it is.

    Notes
    -----
    Cost: m³ multiply-adds in float64, m the rows that came in.
    """
    tau = _estimated_rls(kernel, dictionary, parameters.epsilon, merged)
    thinned = thin(dictionary, tau, rng)
    limit = parameters.max_dictionary
    while limit is not None and len(thinned) > limit and parameters.on_overrun == "raise_gamma":
        # RLS fall as γ grows, so this is sound; the dictionary is accurate for the new γ only.
        thinned = replace(thinned, gamma=overrun_step(len(thinned), limit) * thinned.gamma)
        thinned = thin(thinned, _estimated_rls(kernel, thinned, parameters.epsilon), rng)
    return thinned


def overrun_step(size: int, limit: int) -> float:
    """Return the factor of γ that takes a dictionary down to its limit, or nearly so.

    Parameters
    ----------
    size, limit : int
        Rows that it has, and may have.

    Returns
    -------
    float
        Between 1.02 and 4: sizes fall with γ^½ or less, and a little with each estimate.
    """
    return min(max((size / limit) ** 2, _SMALLEST_STEP), _LARGEST_STEP)


def thin(
    dictionary: Dictionary, tau: Float64Array, rng: np.random.Generator, *, halving: bool = False
) -> Dictionary:
    """Lower the probabilities to min(τ̃, p) and thin the copies to match.

    Parameters
    ----------
    dictionary : Dictionary
        m rows.
    tau : ndarray of float64, shape (m,)
        Estimated RLS; may exceed 1 at a practical q̄.
    rng : numpy.random.Generator
        Q⁺ ~ Binomial(Q, p⁺/p).
    halving : bool, default False
        Keep p⁺ ≥ p/2, the paper's floor for the one-row form.

    Returns
    -------
    Dictionary
        Rows with copies left, in the same order.
    """
    p = dictionary.probabilities
    lowered = np.minimum(tau, p)
    if halving:
        lowered = np.maximum(lowered, p / 2)
    copies = rng.binomial(dictionary.multiplicities, lowered / p)
    updated = replace(dictionary, probabilities=lowered, multiplicities=copies)
    return updated.take(np.flatnonzero(copies))


def merge(
    kernel: Kernel,
    dictionaries: Sequence[Dictionary],
    parameters: SqueakParameters,
    rng: np.random.Generator,
) -> Dictionary:
    """Merge dictionaries of disjoint rows into one that stands for all of them.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    dictionaries : sequence of Dictionary
        Two or more; one is returned as it is.
    parameters : SqueakParameters
        ε, ``max_dictionary`` and ``on_overrun``.
    rng : numpy.random.Generator
        Source of the thinning.

    Returns
    -------
    Dictionary
        At the largest γ of those merged, or a raised one.

    Notes
    -----
    The RLS of the union are estimated with γ_k = (1 + (k−1)ε)γ inside
    (:func:`squeak_dist.leverage.merge_gamma`); then τ/α_k ≤ τ̃ ≤ τ. A dictionary
    of all its rows (p = 1) is exact and does not count in k. Cost: (Σ m)³.
    """
    if len(dictionaries) == 1:
        return dictionaries[0]
    inexact = sum(not (len(d) and np.all(d.probabilities == 1)) for d in dictionaries)
    return shrink(kernel, concatenate(list(dictionaries)), parameters, rng, merged=max(1, inexact))


def dictionary_effective_dimension(kernel: Kernel, dictionary: Dictionary) -> float:
    """Return the dictionary's estimate of d_eff(γ) of all rows it stands for; cost m³."""
    if not len(dictionary):
        return 0.0
    L = regularized_factor(kernel, dictionary, dictionary.gamma)
    return estimated_effective_dimension(inverse_diagonal(L), dictionary.gamma)


@dataclass(frozen=True)
class _Judge:
    """The maps that new rows are judged by; None while there is no dictionary."""

    full: NystromMap | None
    coarse: NystromMap | None


def _make_judge(kernel: Kernel, state: SqueakState, parameters: SqueakParameters) -> _Judge:
    if state.mapped == 0:
        return _Judge(None, None)
    leading = np.arange(state.mapped)
    full = regularized_map(kernel, state.dictionary.take(leading))
    if not parameters.prefilter or state.mapped < COARSE_FROM:
        return _Judge(full, None)
    coarse = state.dictionary.take(leading[::COARSE_STRIDE])
    return _Judge(full, regularized_map(kernel, coarse))


def _expand(
    state: SqueakState,
    judge: _Judge,
    kernel: Kernel,
    X: FloatArray,
    indices: IntArray,
    row_weights: Float64Array,
    parameters: SqueakParameters,
    rng: np.random.Generator,
) -> tuple[SqueakState, int]:
    """Sample a block into the dictionary; return the state and the rows used.

    The block is left where the dictionary reaches its capacity: the rest of it
    is judged again, by the map after Shrink. This bounds the memory even where
    every row is news.
    """
    kept, p, copies = _sample(state, judge, kernel, X, row_weights, parameters, rng)
    room = _capacity(state, parameters) - len(state.dictionary)
    # Right after the row that fills the dictionary: to look further, at rows that were
    # not sampled, would bias their chance of ever being so.
    used = len(X) if len(kept) < room else int(kept[room - 1]) + 1
    kept, p, copies = kept[:room], p[:room], copies[:room]
    arrivals = replace(
        state.dictionary,
        points=X[kept],
        indices=indices[kept],
        probabilities=p,
        multiplicities=copies,
        row_weights=row_weights[kept],
    )
    grown = concatenate([state.dictionary, arrivals]) if len(kept) else state.dictionary
    return replace(state, dictionary=grown, rows_seen=state.rows_seen + used), used


def _sample(
    state: SqueakState,
    judge: _Judge,
    kernel: Kernel,
    X: FloatArray,
    row_weights: Float64Array,
    parameters: SqueakParameters,
    rng: np.random.Generator,
) -> tuple[IntArray, Float64Array, IntArray]:
    """Return positions, probabilities and copies of the rows that are sampled.

    With a coarse map, p' ≥ p draws Q' first, and Binomial(Q', p/p') thins it:
    the same distribution as Binomial(q̄, p), with few rows judged in full.
    """
    gamma, qbar = state.dictionary.gamma, parameters.qbar

    def rls(nystrom: NystromMap | None, rows: FloatArray, weights: Float64Array) -> Float64Array:
        residual = kernel_diag(kernel, rows) if nystrom is None else nystrom.residual(rows)
        return rls_of_new_rows(residual, gamma, parameters.epsilon, weights)

    first = judge.full if judge.coarse is None else judge.coarse
    p = rls(first, X, row_weights)
    if not np.isfinite(p).all():
        raise NumericalError(
            f"k(x, x) or its Nyström approximation is not finite in {X.dtype} on some rows; scale "
            f'the columns (standardize=True) or use dtype="float64"'
        )
    copies = rng.binomial(qbar, p)
    kept = np.flatnonzero(copies)
    p, copies = p[kept], copies[kept]
    if judge.coarse is None or not len(kept):
        return kept, p, copies
    fine = np.minimum(rls(judge.full, X[kept], row_weights[kept]), p)
    copies = rng.binomial(copies, fine / p)
    again: BoolArray = copies > 0
    return kept[again], fine[again], copies[again]


def _capacity(state: SqueakState, parameters: SqueakParameters) -> int:
    """Size at which Shrink runs: always above the size that the last Shrink left."""
    limit = parameters.max_dictionary
    grown = math.ceil(parameters.growth * max(state.mapped, min(MIN_ROWS, limit or MIN_ROWS)))
    return min(grown, limit) if limit and parameters.on_overrun == "stop" else grown


def _block_rows(state: SqueakState) -> int:
    return min(max(2 * state.mapped, MIN_ROWS), _MAX_BLOCK_ROWS)


def _estimated_rls(
    kernel: Kernel, dictionary: Dictionary, epsilon: float, merged: int = 1
) -> Float64Array:
    inner = merge_gamma(dictionary.gamma, epsilon, merged)
    L = regularized_factor(kernel, dictionary, inner)
    return rls_of_dictionary(inverse_diagonal(L), dictionary.selection_weights, inner, epsilon)


def _shrink_state(
    kernel: Kernel, state: SqueakState, parameters: SqueakParameters, rng: np.random.Generator
) -> SqueakState:
    thinned = shrink(kernel, state.dictionary, parameters, rng)
    limit = parameters.max_dictionary
    full = (
        limit is not None
        and parameters.on_overrun == "stop"
        and len(state.dictionary) >= limit
        and len(thinned) > _FULL_SHARE * limit
    )
    return _shrunk(thinned, state.rows_seen, stopped=full)


def _shrunk(dictionary: Dictionary, rows_seen: int, *, stopped: bool = False) -> SqueakState:
    return SqueakState(dictionary, len(dictionary), rows_seen, rows_seen, stopped)
