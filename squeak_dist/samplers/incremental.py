"""Systems that see each row once: SQUEAK by row, in blocks and in trees, and INK-Estimate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary, concatenate, empty_dictionary
from squeak_dist.kernels import Kernel, kernel_diag
from squeak_dist.leverage import rls_of_dictionary, rls_of_new_rows
from squeak_dist.linalg import inverse_diagonal, solve_lower_transposed
from squeak_dist.merge_tree import Levels, balanced_levels, left_deep_levels, random_levels
from squeak_dist.nystrom import regularized_factor, regularized_map
from squeak_dist.samplers.protocol import budget, checked_weights, kept_rows
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak, squeak_by_row, thin
from squeak_dist.validation import check_choice, check_integer

TREES: dict[str, Callable[[int, int, np.random.Generator], Levels]] = {
    "balanced": lambda leaves, fan_in, rng: balanced_levels(leaves, fan_in),
    "left-deep": lambda leaves, fan_in, rng: left_deep_levels(leaves, fan_in),
    "random": random_levels,
}


def squeak_blocks(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """SQUEAK over all rows as one stream, in blocks with delayed Shrink.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Notes
    -----
    A face of :func:`squeak_dist.squeak.squeak`. Cost: n m² at most, memory m². Guarantee:
    Theorem 1 of Calandriello, Lazaric & Valko, "Pack only the essentials" (2016): at every
    time a γ-approximation with probability 1 − δ at the q̄ of the theory, and ``|D|`` of the
    order of q̄ d_eff(γ).
    """
    weights = checked_weights(X, parameters, row_weights)
    state = squeak(kernel, X, parameters, rng, row_weights=weights)
    return finish(kernel, state, parameters, rng).dictionary


def squeak_rows(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """SQUEAK as it is printed: one row, Shrink, the next row.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Notes
    -----
    A face of :func:`squeak_dist.squeak.squeak_by_row`. Cost: n m³, memory m². Guarantee:
    that of :func:`squeak_blocks`.
    """
    weights = checked_weights(X, parameters, row_weights)
    state = squeak_by_row(kernel, X, parameters, rng, row_weights=weights)
    return state.dictionary


def disqueak(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
    *,
    tree: str = "balanced",
    pieces: int = 8,
    fan_in: int = 2,
) -> Dictionary:
    """DISQUEAK: SQUEAK on pieces of the rows, and a tree of merges.

    Parameters
    ----------
    X, kernel, parameters, rng, row_weights
        As in :class:`~squeak_dist.samplers.Sampler`.
    tree : {"balanced", "left-deep", "random"}, default "balanced"
        Which dictionaries merge: neighbours level by level; the next piece into all
        before it; any, chosen by ``rng``.
    pieces : int, default 8
        Dictionaries to begin with, of neighbouring rows; at most n.
    fan_in : int, default 2
        Most dictionaries per merge.

    Notes
    -----
    Faces of :func:`squeak_dist.squeak.squeak` and :func:`squeak_dist.squeak.merge`. Cost:
    n m² split over the pieces, and (fan_in · m)³ per merge: log(pieces) of them one after
    the other in a balanced tree, ``pieces`` in a left-deep one. Guarantee: that of SQUEAK
    at every node of a tree of any shape. Calandriello, Lazaric & Valko, "Distributed
    adaptive sampling for kernel matrix approximation" (AISTATS 2017), Theorem 2.
    """
    check_choice("tree", tree, tuple(TREES))
    check_integer("pieces", pieces, at_least=1)
    check_integer("fan_in", fan_in, at_least=2)
    weights = checked_weights(X, parameters, row_weights)
    nodes = []
    for rows in np.array_split(np.arange(len(X)), min(pieces, len(X))):
        state = squeak(kernel, X[rows], parameters, rng, indices=rows, row_weights=weights[rows])
        nodes.append(finish(kernel, state, parameters, rng).dictionary)
    for level in TREES[tree](len(nodes), fan_in, rng):
        nodes = [_joined(kernel, [nodes[i] for i in group], parameters, rng) for group in level]
    return nodes[0]


def _joined(
    kernel: Kernel,
    dictionaries: list[Dictionary],
    parameters: SqueakParameters,
    rng: np.random.Generator,
) -> Dictionary:
    filled = [dictionary for dictionary in dictionaries if len(dictionary)]
    return merge(kernel, filled, parameters, rng) if filled else dictionaries[0]


def ink_estimate(
    X: FloatArray,
    kernel: Kernel,
    parameters: SqueakParameters,
    rng: np.random.Generator,
    row_weights: Float64Array | None = None,
) -> Dictionary:
    """INK-Estimate: a budget of copies given in advance, shared out by τ̃ / d̃.

    Parameters are those of :class:`~squeak_dist.samplers.Sampler`.

    Raises
    ------
    InvalidParameterError
        Without a budget, or for one above n.

    Notes
    -----
    b = ``max_dictionary`` copies: row i has Q_i ~ Binomial(b, p_i), p_i = min(τ̃_i/d̃, p_i
    before), where d̃ is a running estimate of d_eff(γ). A row adds
    (r − γ‖L⁻ᵀz‖²)/(γ + r) to it, with r and z by the dictionary before the row: exact for
    a dictionary of all rows. The copies are b Σ τ̃/d̃ in the mean, so ``|D|`` stays below b up
    to chance. Rows come in blocks of a tenth of the dictionary; with fewer than ten rows
    in it this is the row-by-row form of the paper. Cost: n m² + b m³ log(d_eff), memory
    m². Guarantee: a γ-approximation at every time where b is of the order of
    d_eff log(n/δ)/ε² times λ_max(K)/γ, which has to be known in advance. Calandriello,
    Lazaric & Valko, "Analysis of Nyström method with sequential ridge leverage scores"
    (UAI 2016), Algorithm 1 and Theorem 1.
    """
    weights = checked_weights(X, parameters, row_weights)
    copies_in_all = budget(parameters, "ink-estimate")
    dictionary = empty_dictionary(X.shape[1], X.dtype, parameters.gamma, copies_in_all)
    mapped, position, dimension = dictionary, 0, 0.0
    while position < len(X):
        rows = np.arange(position, min(position + max(len(mapped) // 10, 1), len(X)))
        tau, gains = _judged(X[rows], kernel, mapped, parameters.epsilon, weights[rows])
        running = dimension + np.cumsum(gains)
        p = np.minimum(tau / np.where(running > 0, running, 1), 1)
        copies = rng.binomial(copies_in_all, p)
        hit = np.flatnonzero(copies)
        arrivals = kept_rows(
            X, rows[hit], parameters.gamma, weights,
            probabilities=p[hit], multiplicities=copies[hit], qbar=copies_in_all,
        )  # fmt: skip
        dictionary = concatenate([dictionary, arrivals])
        position, dimension = position + len(rows), float(running[-1])
        if len(dictionary) >= len(mapped) + max(len(mapped) // 10, 1):
            dictionary = mapped = _normalized(dictionary, kernel, parameters, dimension, rng)
    return _normalized(dictionary, kernel, parameters, dimension, rng)


def _judged(
    X: FloatArray,
    kernel: Kernel,
    dictionary: Dictionary,
    epsilon: float,
    row_weights: Float64Array,
) -> tuple[Float64Array, Float64Array]:
    """Return τ̃ of new rows, and what each adds to d_eff(γ)."""
    gamma = dictionary.gamma
    if not len(dictionary):
        left = row_weights * kernel_diag(kernel, X)
        return rls_of_new_rows(left, gamma, epsilon), left / (left + gamma)
    nystrom = regularized_map(kernel, dictionary)
    left = row_weights * nystrom.residual(X)
    Z = nystrom.transform(X).astype(np.float64)
    # T = S⁻¹L, so that L = S T: the norm is that of L⁻ᵀz.
    back = solve_lower_transposed(nystrom.factor * dictionary.column_weights[:, None], Z.T)
    spread = gamma * row_weights * np.einsum("ij,ij->j", back, back)
    gains = np.maximum(left - spread, 0) / (left + gamma)
    return rls_of_new_rows(left, gamma, epsilon), gains


def _normalized(
    dictionary: Dictionary,
    kernel: Kernel,
    parameters: SqueakParameters,
    dimension: float,
    rng: np.random.Generator,
) -> Dictionary:
    """Lower the probabilities to min(τ̃/d̃, p) and thin the copies to match."""
    L = regularized_factor(kernel, dictionary, dictionary.gamma)
    tau = rls_of_dictionary(
        inverse_diagonal(L), dictionary.selection_weights, dictionary.gamma, parameters.epsilon
    )
    return thin(dictionary, tau / max(dimension, np.finfo(float).tiny), rng)
