"""Systems that refine one dictionary by another: recursive RLS, and BLESS."""

from __future__ import annotations

import math

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel, kernel_diag
from squeak_dist.nystrom import regularized_map
from squeak_dist.samplers.dense import dense_bytes
from squeak_dist.samplers.protocol import (
    at_a_gamma_that_fits,
    check_fits,
    checked_weights,
    drawn_rows,
    kept_rows,
)
from squeak_dist.squeak import SqueakParameters

_BASE_ROWS = 256  # where the halving of recursive RLS ends


def recursive_rls(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """Recursive RLS-Nyström: judge 2, 4, 8, … as many rows by what was kept of half of them.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Notes
    -----
    Each row is kept with p = min(1, q̄ · 3 r/(2γ)), r by the dictionary of the half; q̄
    stands where the paper has 16 log(d_eff/δ). At a dictionary above the budget it begins
    anew at a larger γ. Cost: 2 n m², memory m². Guarantee: with that constant a
    γ-approximation with probability 1 − 3δ, of q̄ d_eff(γ) rows in order, for any data.
    Musco & Musco, "Recursive sampling for the Nyström method" (NIPS 2017), Theorem 7.
    """
    weights = checked_weights(X, parameters, row_weights)
    order = rng.permutation(np.flatnonzero(weights))
    limit = parameters.max_dictionary or math.inf

    def choose(gamma: float) -> Dictionary:
        size = min(_BASE_ROWS, len(order))
        chosen = kept_rows(X, order[:size], gamma, weights)
        while True:
            size = min(2 * size, len(order))
            rows = order[:size]
            scores = 1.5 * _estimates(X[rows], weights[rows], kernel, chosen, gamma)
            p = np.minimum(1, parameters.qbar * scores)
            hit = np.flatnonzero(rng.random(size) < p)
            chosen = kept_rows(X, rows[hit], gamma, weights, probabilities=p[hit])
            if size == len(order) or len(chosen) > limit:
                return chosen

    return at_a_gamma_that_fits(choose, parameters)


def bless(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """BLESS, bottom-up leverage score sampling: halve γ from n·max k(x, x) down to the given one.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Notes
    -----
    At each γ_h, R_h = min(q̄ n max k / γ_h, n) rows are looked at, judged by the dictionary
    of γ_{h−1}, and q̄ d̂_h of them drawn with replacement by τ̂ = r/γ_h, where d̂_h is
    (n/R_h) Σ τ̂; q̄ stands for the paper's constants q₁ and q₂, which are some hundreds. At
    a dictionary above the budget it begins anew at a larger γ. Cost: min(1/λ, n) m² with
    λ = γ/n, independent of n where λ is; memory m². Guarantee: with the paper's
    constants all estimates within a factor of each other with probability 1 − δ. Rudi,
    Calandriello, Carratino & Rosasco, "On fast leverage score sampling and optimal
    learning" (NeurIPS 2018), Algorithm 1 and Theorem 1.
    """
    weights = checked_weights(X, parameters, row_weights)
    top = len(X) * float((weights * kernel_diag(kernel, X)).max())
    empty = kept_rows(X, np.empty(0, np.int64), parameters.gamma, weights)
    if not top:
        return empty
    limit = parameters.max_dictionary or math.inf

    def choose(gamma: float) -> Dictionary:
        chosen, ratio = empty, max(top / gamma, 1)
        steps = max(math.ceil(math.log2(ratio)), 1)
        for step in range(1, steps + 1):
            at = gamma * ratio ** (1 - step / steps)
            looked_at = min(math.ceil(parameters.qbar * top / at), len(X))
            rows = rng.choice(len(X), size=looked_at, replace=False)
            scores = np.minimum(1, _estimates(X[rows], weights[rows], kernel, chosen, at))
            draws = math.ceil(parameters.qbar * len(X) / looked_at * scores.sum())
            chosen = drawn_rows(X, rows, scores, draws, at, weights, rng)
            if len(chosen) > limit:
                break
        return chosen

    return at_a_gamma_that_fits(choose, parameters)


def _estimates(
    X: FloatArray,
    row_weights: Float64Array,
    kernel: Kernel,
    dictionary: Dictionary,
    gamma: float,
) -> Float64Array:
    """Return v r/γ of some rows, r by a dictionary; v k/γ by an empty one."""
    if not len(dictionary):
        return row_weights * kernel_diag(kernel, X) / gamma
    check_fits(dense_bytes(len(dictionary)), f"a dictionary of {len(dictionary):,} rows")
    return row_weights * regularized_map(kernel, dictionary, gamma).residual(X) / gamma
