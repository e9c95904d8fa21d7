"""Systems that hold a matrix of all rows by all rows: EXACT, and sampling by exact RLS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel, kernel_block
from squeak_dist.leverage import exact_rls
from squeak_dist.samplers.protocol import (
    at_a_gamma_that_fits,
    check_fits,
    checked_weights,
    kept_rows,
)
from squeak_dist.squeak import SqueakParameters, thin


def dense_bytes(n: int) -> int:
    """Return the bytes of the four float64 matrices of n × n that a dense system holds."""
    return 4 * 8 * n**2


def exact(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """EXACT: keep every row, so that the solve is that of (K + μI)⁻¹ y.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InsufficientMemoryError
        If the dense solve does not fit this machine, with its bytes.

    Notes
    -----
    The budget is not used: a row is left out only where its weight is 0. Cost of the
    solve: n³, memory n². Guarantee: K̃ = K in the projected form; it is the measure of all
    other systems. Table 1 of Calandriello, Lazaric & Valko (2016), first row.
    """
    weights = checked_weights(X, parameters, row_weights)
    check_fits(dense_bytes(len(X)), f"the exact solve of {len(X):,} rows")
    return kept_rows(X, np.flatnonzero(weights), parameters.gamma, weights)


def rls_sampling(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """RLS-sampling: the oracle, Q_i ~ Binomial(q̄, τ_i) by the exact RLS.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InsufficientMemoryError
        If the n × n matrix does not fit this machine, with its bytes.

    Notes
    -----
    Cost: n³, memory n². At a dictionary above the budget γ is raised, as in SQUEAK.
    Guarantee: a γ-approximation with probability 1 − δ at q̄ of the order of
    log(n/δ)/ε², and ``|D|`` ≤ q̄ d_eff(γ) in the mean: the best that sampling by RLS can be.
    Alaoui & Mahoney, "Fast randomized kernel ridge regression with statistical
    guarantees" (2015), Theorem 2; Table 1 of Calandriello, Lazaric & Valko (2016).
    """
    weights = checked_weights(X, parameters, row_weights)
    check_fits(dense_bytes(len(X)), f"the oracle's kernel matrix of {len(X):,} rows")
    K = weighted_matrix(kernel, X, weights)
    rows = np.flatnonzero(weights)
    every = kept_rows(X, rows, parameters.gamma, weights, qbar=parameters.qbar)
    return at_a_gamma_that_fits(
        lambda gamma: thin(replace(every, gamma=gamma), exact_rls(K, gamma)[rows], rng), parameters
    )


def weighted_matrix(kernel: Kernel, X: FloatArray, row_weights: Float64Array) -> Float64Array:
    """Return the matrix of sqrt(v_i v_j) k(x_i, x_j) in float64, shape (n, n)."""
    doubled = X.astype(np.float64, copy=False)
    K = np.empty((len(X), len(X)))
    kernel_block(kernel, doubled, doubled, K)
    roots = np.sqrt(row_weights)
    K *= roots
    K *= roots[:, None]
    return K
