"""Lemma 1 and Theorem 1 as functions that count violations.

The tests compare the counts with what chance allows; ``test_mutations.py`` breaks the
algorithm on purpose and wants them to exceed it. The rows are of one column, most of
them in a narrow cluster, so that d_eff is about 2.4 and a q̄ of 300, at which the
Bernstein bound below is 1.3 %, still drops half of 500 rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from scipy.stats import binom, norm

from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Linear
from squeak_dist.leverage import accuracy_ratio, effective_dimension, exact_rls
from squeak_dist.nystrom import projected_map, regularized_map
from squeak_dist.samplers import TREES
from squeak_dist.squeak import SqueakParameters, finish, merge, shrink, squeak
from squeak_dist.squeak import start_state as start

EPSILON, KERNEL = 0.3, RBF(1.0)
GAMMA, QBAR = 20.0, 300
SLACK = 1e-9


def rows(n: int = 500, seed: int = 0) -> np.ndarray:
    """One column: a narrow cluster, a wider one, and a few rows far away."""
    rng = np.random.default_rng([seed, n])
    return rng.choice([0.1, 1.0, 4.0], size=(n, 1), p=[0.8, 0.17, 0.03]) * rng.normal(size=(n, 1))


def parameters(**changes) -> SqueakParameters:
    return SqueakParameters(**{"gamma": GAMMA, "epsilon": EPSILON, "qbar": QBAR} | changes)


def kernel_matrix(X, v=None, kernel=KERNEL) -> np.ndarray:
    roots = np.ones(len(X)) if v is None else np.sqrt(v)
    return roots[:, None] * kernel(X, X) * roots


# --- runs ---------------------------------------------------------------------------------


def stream(X, given: SqueakParameters, seed, v=None) -> Dictionary:
    """SQUEAK over all rows."""
    rng = np.random.default_rng(seed)
    return finish(KERNEL, squeak(KERNEL, X, given, rng, row_weights=v), given, rng).dictionary


def every_prefix(X, given: SqueakParameters, seed, step: int = 1):
    """Yield (t, the dictionary after t rows); the stream goes on without their last Shrink."""
    rng = np.random.default_rng(seed)
    state = start(X.shape[1], X.dtype, given)
    for t in range(step, len(X) + 1, step):
        state = squeak(KERNEL, X[t - step : t], given, rng, start=state)
        yield t, finish(KERNEL, state, given, np.random.default_rng([t, seed])).dictionary


def tree_run(X, given: SqueakParameters, seed, shape: str, fan_in: int, pieces: int):
    """DISQUEAK, node by node: yield (positions of the rows, dictionary, children)."""
    rng = np.random.default_rng(seed)
    nodes = []
    for piece in np.array_split(np.arange(len(X)), pieces):
        state = squeak(KERNEL, X[piece], given, rng, indices=piece)
        nodes.append((piece, finish(KERNEL, state, given, rng).dictionary))
    for level in TREES[shape](pieces, fan_in, rng):
        joined = []
        for group in level:
            positions = np.sort(np.concatenate([nodes[i][0] for i in group]))
            joined.append((positions, merge(KERNEL, [nodes[i][1] for i in group], given, rng)))
            yield (*joined[-1], len(group))
        nodes = joined


# --- what may not happen ------------------------------------------------------------------


def outside_bracket(D: Dictionary, K: np.ndarray, merged: int = 1) -> bool:
    """Lemma 1 on what the dictionary was thinned to: not τ/α_k ≤ p ≤ τ for some row.

    p is the least of the row's estimates, each of which was in the bracket of its time.
    RLS only fall, so the least is above τ/α_k as well; and the last one is below τ.
    ``D.indices`` are positions in K.
    """
    ratio = D.probabilities / exact_rls(K, D.gamma)[D.indices]
    low = (1 - SLACK) / accuracy_ratio(EPSILON, merged)
    return bool((ratio < low).any() or (ratio > 1 + SLACK).any())


def breaks_accuracy(D: Dictionary, X: np.ndarray, K: np.ndarray, v=None) -> bool:
    """Theorem 1 (1): not 0 ⪯ K − K̃ ⪯ γ/(1−ε) K(K+γI)⁻¹, in one of the two forms."""
    slack, gamma = 1e-7 * K.trace(), D.gamma  # projected_map has a jitter of 1e-13 or more
    bound = gamma / (1 - EPSILON) * np.linalg.solve(K + gamma * np.eye(len(K)), K)
    bound = (bound + bound.T) / 2
    roots = np.ones((len(X), 1)) if v is None else np.sqrt(v)[:, None]
    for nystrom in (regularized_map(KERNEL, D), projected_map(KERNEL, D.points)):
        Z = roots * nystrom.transform(X)
        left = K - Z @ Z.T
        if min(np.linalg.eigvalsh(left)[0], np.linalg.eigvalsh(bound - left)[0]) < -slack:
            return True
    return False


def too_large(D: Dictionary, K: np.ndarray, deviations: float = 3) -> bool:
    """Theorem 1 (2): copies above q̄ d_eff by more than 3 standard deviations.

    They are a sum of nearly independent draws of mean q̄ p ≤ q̄ τ; Theorem 1 itself allows
    3 q̄ d_eff.
    """
    mean = D.qbar * effective_dimension(K, D.gamma)
    return int(D.multiplicities.sum()) > mean + deviations * np.sqrt(mean)


def risk(smoother: np.ndarray, signal: np.ndarray, noise: float) -> float:
    """E‖f* − ŷ‖² of ŷ = H y, y = f* + noise, exactly."""
    bias = signal - smoother @ signal
    return float(bias @ bias + noise**2 * np.sum(smoother**2))


def risk_ratio(D: Dictionary, X, K, mu: float, signal, noise: float, form: str) -> float:
    """Return R(w̃)/R(ŵ) on the fixed design X."""
    made = regularized_map(KERNEL, D) if form == "regularized" else projected_map(KERNEL, D.points)
    Z, eye = made.transform(X), np.eye(len(X))
    approximate = Z @ np.linalg.solve(Z.T @ Z + mu * np.eye(Z.shape[1]), Z.T)
    exact = np.linalg.solve(K + mu * eye, K)
    return risk(approximate, signal, noise) / risk(exact, signal, noise)


def exceeds_risk(D: Dictionary, X, K, mu: float, noise: float) -> bool:
    """Theorem 1 (3): a ratio above (1 + γ/(μ(1−ε)))², with the square."""
    signal = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0]
    allowed = (1 + D.gamma / (mu * (1 - EPSILON))) ** 2
    return any(
        risk_ratio(D, X, K, mu, signal, noise, form) > allowed
        for form in ("regularized", "projected")
    )


# --- what chance allows -------------------------------------------------------------------


def bernstein(d_eff: float, qbar: int, merged: int = 1) -> float:
    """4 d_eff exp(−ε² q̄ / (2α_k(1 + ε/3))): one draw by p ≥ τ/α_k fails (intrinsic dimension)."""
    alpha = accuracy_ratio(EPSILON, merged)
    exponent = EPSILON**2 * qbar / (2 * alpha * (1 + EPSILON / 3))
    return min(1.0, 4 * d_eff * np.exp(-exponent))


def allowed_failures(runs: int, probability: float) -> int:
    """The 99.9 % quantile of the number of failing runs: more by chance once in a thousand."""
    return int(binom.ppf(0.999, runs, probability))


# --- checks of many runs, for the mutations -----------------------------------------------


def lemma_failures(runs: int = 6, v=None, **changes) -> int:
    """How many of some runs leave the bracket."""
    X = rows()
    K = kernel_matrix(X, v)
    return sum(outside_bracket(stream(X, parameters(**changes), s, v), K) for s in range(runs))


def accuracy_failures(runs: int = 6, **changes) -> int:
    """How many of some runs are no γ-approximation."""
    X = rows()
    K = kernel_matrix(X)
    return sum(breaks_accuracy(stream(X, parameters(**changes), s), X, K) for s in range(runs))


def merge_failures(ks: Iterable[int] = (2, 3, 4, 8), gamma: float = 2.0) -> int:
    """Lemma 1 where a merge of k attains its bounds: k rows of one feature, all light or heavy.

    Each covariance at its least, (1−ε)Φ_j − εγI, gives τ̃ = τ; at its most, with Φ small
    against γ, τ̃ = τ/α_k. So any other γ inside the merge leaves the bracket.
    """
    failures = 0
    for k in ks:
        for sign, scale in ((-1, 1000.0), (1, 1e-3)):
            weight = 1 + sign * (EPSILON + EPSILON * gamma / scale)
            K = np.full((k, k), scale)
            tau = exact_rls(K, gamma)[0]
            p = 0.99 if sign < 0 else min(0.9, 1 / weight)
            qbar = 1_000_000
            parts = [
                Dictionary(
                    np.full((1, 1), np.sqrt(scale)), np.array([i]), np.array([p]),
                    np.array([round(weight * p * qbar)]), np.ones(1), gamma, qbar,
                )
                for i in range(k)
            ]  # fmt: skip
            given = SqueakParameters(gamma, EPSILON, qbar)
            merged = merge(Linear(), parts, given, np.random.default_rng(0))
            ratio = merged.probabilities / tau
            low = 1 / accuracy_ratio(EPSILON, k)
            near = (abs(ratio - 1) < 1e-4) if sign < 0 else (abs(ratio / low - 1) < 0.03)
            failures += bool((ratio > 1 + 1e-5).any() or (ratio < low * (1 - 1e-5)).any())
            failures += not near.all()
    return failures


def tree_failures(runs: int = 5, shape: str = "balanced", fan_in: int = 8) -> int:
    """How many of some trees have a node whose rows leave the bracket of its fan-in."""
    X = rows(800)
    K = kernel_matrix(X)
    qbar = int(QBAR * accuracy_ratio(EPSILON, fan_in) / accuracy_ratio(EPSILON))
    return sum(
        any(
            outside_bracket(at_positions(D, nodes), K[np.ix_(nodes, nodes)], fan_in)
            for nodes, D, _ in tree_run(X, parameters(qbar=qbar), seed, shape, fan_in, 9)
        )
        for seed in range(runs)
    )


def at_positions(D: Dictionary, positions: np.ndarray) -> Dictionary:
    """The dictionary with indices into a part of the rows."""
    return replace(D, indices=np.searchsorted(positions, D.indices))


def weight_bias(runs: int = 150, qbar: int = 4, gamma: float = 0.3) -> float:
    """Σ s_i² τ_i over d_eff, as standard errors away from 1: thinning is a martingale.

    At a q̄ and a γ this small τ̃ is often above p. Three more Shrinks, each at a γ raised by
    30 %, thin a little every time.
    """
    X = rows(400)
    tau = exact_rls(kernel_matrix(X), gamma)
    given, sums = parameters(qbar=qbar, gamma=gamma), []
    for seed in range(runs):
        D, rng = stream(X, given, [seed, 1]), np.random.default_rng([seed, 2])
        for _ in range(3):
            D = shrink(KERNEL, replace(D, gamma=1.3 * D.gamma), given, rng)
        sums.append(D.selection_weights**2 @ tau[D.indices])
    spread = np.std(sums) / np.sqrt(runs)
    return float((np.mean(sums) - tau.sum()) / spread) if spread else np.inf


def prefilter_distance(runs: int = 150, qbar: int = 8, gamma: float = 0.02) -> float:
    """Two-sample test of how often rows enter, with the prefilter and without: its p-value.

    What has come since the last Shrink is counted, which no Shrink has levelled yet. Ten
    groups of rows by exact RLS, and all copies: a z-test each, the least p-value times
    eleven (Bonferroni).
    """
    X = rows(400, seed=3)
    group = np.argsort(np.argsort(exact_rls(kernel_matrix(X), gamma))) * 10 // len(X)
    a, b = (
        np.array([
            arrivals(X, group, parameters(gamma=gamma, qbar=qbar, prefilter=on), [seed, on])
            for seed in range(runs)
        ])
        for on in (True, False)
    )  # fmt: skip
    spread = np.sqrt((a.var(axis=0) + b.var(axis=0)) / runs)
    z = (a.mean(axis=0) - b.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return float(min(1.0, 11 * 2 * norm.sf(abs(z)).min()))


def arrivals(X, group, given: SqueakParameters, seed) -> np.ndarray:
    """Rows of each group that entered after the first 200, and all their copies."""
    rng = np.random.default_rng(seed)
    state = squeak(KERNEL, X[:200], given, rng)
    state = finish(KERNEL, state, given, rng)
    later = squeak(KERNEL, X[200:], replace(given, growth=50.0), rng, start=state).dictionary
    new = later.take(np.flatnonzero(later.indices >= 200))
    return np.array([*np.bincount(group[new.indices], minlength=10), new.multiplicities.sum()])
