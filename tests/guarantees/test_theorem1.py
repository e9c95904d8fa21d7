"""Theorem 1: accuracy, size and risk, at every time of the stream and after merges.

With the q̄ of the theory the bounds hold with probability 1 − δ, δ = 1e-4, per run,
and nearly every row is kept. The same bounds are then checked at q̄ = 400, where
most rows of the dense part are dropped, for every one of some runs: the failure
probability of one draw is below 1 % there (the Bernstein bound of test_lemma), and
the seeds are fixed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Laplacian, Linear, Matern
from squeak_dist.leverage import effective_dimension, exact_rls, theory_qbar
from squeak_dist.nystrom import projected_map, regularized_map
from squeak_dist.solvers import normal_equations, solve_direct
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak, start_state

EPSILON = 0.3
DELTA = 1e-4
KERNELS = {"rbf": RBF(1.0), "matern": Matern(1.0, 1.5), "laplacian": Laplacian(3.0)}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@pytest.fixture(autouse=True)
def _many_shrinks(monkeypatch):
    monkeypatch.setattr("squeak_dist.squeak.MIN_ROWS", 48)


def prefixes(kernel, X, parameters, seed, stops):
    """The finished dictionary of every prefix; the stream itself goes on unfinished."""
    rng = np.random.default_rng(seed)
    state = start_state(X.shape[1], X.dtype, parameters)
    for start, stop in pairwise([0, *stops]):
        state = squeak(kernel, X[start:stop], parameters, rng, start=state)
        yield stop, finish(kernel, state, parameters, np.random.default_rng(stop)).dictionary


def at_least(larger, smaller, scale):
    """``smaller`` ⪯ ``larger`` up to rounding."""
    return np.linalg.eigvalsh(larger - smaller)[0] >= -1e-9 * scale


def assert_gamma_approximation(kernel, X, dictionary):
    """0 ⪯ K − K̃ ⪯ γ/(1−ε) K(K+γI)⁻¹ in both forms, and K̃_reg ⪯ K̃_proj."""
    K, gamma = kernel(X, X), dictionary.gamma
    scale = K.trace()
    bound = gamma / (1 - EPSILON) * K @ np.linalg.inv(K + gamma * np.eye(len(K)))
    bound = (bound + bound.T) / 2
    regularized = regularized_map(kernel, dictionary).transform(X)
    projected = projected_map(kernel, dictionary.points).transform(X)
    K_reg, K_proj = regularized @ regularized.T, projected @ projected.T
    assert at_least(K_proj, K_reg, scale)
    for approximation in (K_reg, K_proj):
        assert at_least(K, approximation, scale)
        assert at_least(bound, K - approximation, scale)


# --- accuracy -----------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("gamma", [0.5, 10.0])
def test_every_prefix_is_a_gamma_approximation(kernel, gamma, uneven_rows):
    X = uneven_rows(360)
    parameters = SqueakParameters(gamma, EPSILON, theory_qbar(360, EPSILON, DELTA))
    for stop, dictionary in prefixes(kernel, X, parameters, 0, [1, 20, 90, 180, 270, 360]):
        assert_gamma_approximation(kernel, X[:stop], dictionary)


@each_kernel
def test_every_prefix_is_one_where_rows_are_dropped(kernel, uneven_rows):
    X = uneven_rows(900)
    for seed in range(2):
        parameters = SqueakParameters(12.0, EPSILON, 400)
        for stop, dictionary in prefixes(kernel, X, parameters, seed, [100, 400, 900]):
            assert_gamma_approximation(kernel, X[:stop], dictionary)
        assert len(dictionary) < 0.95 * len(X)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("qbar", ["theory", 400])
def test_merged_dictionaries_are_gamma_approximations(k, qbar, uneven_rows):
    n, kernel = 600, RBF(1.0)
    X = uneven_rows(n)
    copies = theory_qbar(n, EPSILON, DELTA) if qbar == "theory" else qbar
    parameters = SqueakParameters(8.0, EPSILON, copies)
    pieces = np.array_split(np.arange(n), k)
    parts = []
    for piece in pieces:
        rng = np.random.default_rng(piece[0])
        state = squeak(kernel, X[piece], parameters, rng, indices=piece)
        parts.append(finish(kernel, state, parameters, rng).dictionary)
    merged = merge(kernel, parts, parameters, np.random.default_rng(0))
    assert_gamma_approximation(kernel, X, merged)


def test_sorted_rows_and_an_abrupt_change_stay_within_the_bound(uneven_rows):
    """RLS fall far within a few rows of the dense cluster, and jump where it ends."""
    X = uneven_rows(900)
    far_then_dense = X[np.argsort(-np.linalg.norm(X, axis=1))]
    moved = np.vstack([X[:450] * 0.05, X[450:] * 0.5 + 7])
    for table in (far_then_dense, far_then_dense[::-1].copy(), moved):
        parameters = SqueakParameters(12.0, EPSILON, 400)
        for stop, dictionary in prefixes(RBF(1.0), table, parameters, 0, [440, 460, 900]):
            assert_gamma_approximation(RBF(1.0), table[:stop], dictionary)


def test_sample_weights_bound_the_weighted_matrix(uneven_rows):
    X, kernel, gamma = uneven_rows(300), RBF(1.0), 2.0
    v = np.random.default_rng(0).choice([0.0, 0.2, 1.0, 9.0], size=300)
    parameters = SqueakParameters(gamma, EPSILON, theory_qbar(300, EPSILON, DELTA))
    rng = np.random.default_rng(0)
    state = squeak(kernel, X, parameters, rng, row_weights=v)
    D = finish(kernel, state, parameters, rng).dictionary
    K = np.sqrt(v)[:, None] * kernel(X) * np.sqrt(v)
    Z = np.sqrt(v)[:, None] * regularized_map(kernel, D).transform(X)
    bound = gamma / (1 - EPSILON) * K @ np.linalg.inv(K + gamma * np.eye(300))
    assert at_least(K, Z @ Z.T, K.trace())
    assert at_least((bound + bound.T) / 2, K - Z @ Z.T, K.trace())


@pytest.mark.parametrize("factor", [0.25, 0.5])
def test_the_accuracy_check_can_fail(factor, uneven_rows):
    """A dictionary that is light by a factor breaks the bound that the test asserts."""
    X, kernel = uneven_rows(360), RBF(1.0)
    light = Dictionary(
        X, np.arange(360), np.ones(360), np.full(360, int(100 * factor)), np.ones(360), 10.0, 100
    )
    K = kernel(X)
    Z = regularized_map(kernel, light).transform(X)
    bound = 10.0 / (1 - EPSILON) * K @ np.linalg.inv(K + 10.0 * np.eye(360))
    assert not at_least((bound + bound.T) / 2, K - Z @ Z.T, K.trace())


# --- size ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("qbar", [8, 16, 64])
@pytest.mark.parametrize("gamma", [3.0, 30.0])
def test_the_size_is_bounded_by_qbar_times_the_effective_dimension(
    qbar, gamma, dtype, uneven_rows
):
    """|D| ≤ q̄ d_eff + 3 sqrt(q̄ d_eff).

    p ≤ τ̃, which is about (1−ε)τ, so E|D| ≤ Σ(1 − (1−p)^q̄) ≤ q̄ Σ p ≤ q̄ d_eff, with a
    factor of 1 − ε to spare for the noise of τ̃ at a small q̄. |D| is a sum of nearly
    independent 0/1 variables, whose variance is at most their mean: three standard
    deviations. (Theorem 1 itself allows 3 q̄ d_eff.) The chance of one failure in the 60
    runs is below 60 · 0.0014 even without the spare factor.
    """
    X, kernel = uneven_rows(1500, dtype=dtype), RBF(1.0)
    tau = exact_rls(kernel(X.astype(np.float64)), gamma)
    d_eff = tau.sum()
    parameters = SqueakParameters(gamma, EPSILON, qbar)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        D = finish(kernel, squeak(kernel, X, parameters, rng), parameters, rng).dictionary
        assert len(D) <= qbar * d_eff + 3 * np.sqrt(qbar * d_eff)
        assert D.multiplicities.sum() <= qbar * d_eff + 3 * np.sqrt(qbar * d_eff)
        # And not a trivial bound: what is kept weighs d_eff, within a half.
        weight = D.selection_weights**2 @ tau[D.indices]
        assert 0.5 * d_eff < weight < 1.5 * d_eff


def test_the_copies_follow_the_effective_dimension_and_not_the_rows():
    """γ in proportion to n leaves d_eff as it is; a smaller γ does not.

    Copies kept are q̄ Σ p in the mean, p about (1−ε)τ: 0.7 q̄ d_eff, with a standard
    deviation of 4 % of q̄ d_eff at 280 copies. Allowed are 0.7 ± 0.14, three of them and
    a little for the noise of τ̃ at this q̄.
    """
    X, kernel, qbar = np.random.default_rng(0).uniform(size=(16_000, 2)), RBF(0.2), 16
    copies = {}
    for n, gamma in [(1000, 2.0), (4000, 8.0), (16_000, 32.0), (4000, 0.5), (4000, 0.05)]:
        parameters = SqueakParameters(gamma, EPSILON, qbar)
        rng = np.random.default_rng(0)
        D = finish(kernel, squeak(kernel, X[:n], parameters, rng), parameters, rng).dictionary
        thinned = X[: n : n // 1000]  # a part of the rows at the same part of γ: the same d_eff
        d_eff = effective_dimension(kernel(thinned), gamma * 1000 / n)
        copies[n, gamma] = int(D.multiplicities.sum())
        assert abs(copies[n, gamma] / (qbar * d_eff) - (1 - EPSILON)) < 0.14, (n, gamma)
    # d_eff 25.5 for 1,000, 4,000 and 16,000 rows: sixteen times the rows, as many copies.
    assert abs(copies[16_000, 32.0] / copies[1000, 2.0] - 1) < 3 * np.sqrt(2 / 280)
    assert copies[4000, 0.05] > 2 * copies[4000, 8.0]


# --- risk ---------------------------------------------------------------------------------


def risk(smoother, signal, noise):
    """E‖f* − ŷ‖² of ŷ = H y, y = f* + noise, exactly."""
    bias = signal - smoother @ signal
    return float(bias @ bias + noise**2 * np.sum(smoother**2))


def smoother_of_map(nystrom, X, mu):
    """H = K̃(K̃ + μI)⁻¹ by the solver itself: fits of all unit vectors."""
    targets = np.eye(len(X))
    return nystrom.transform(X) @ solve_direct(normal_equations(nystrom, X, targets), mu)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])  # γ/μ
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_the_risk_is_bounded_by_that_of_exact_kernel_ridge_regression(ratio, noise, uneven_rows):
    X, kernel, gamma = uneven_rows(300), Matern(1.0, 1.5), 2.0
    mu = gamma / ratio
    K = kernel(X)
    signal = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
    exact = risk(K @ np.linalg.inv(K + mu * np.eye(300)), signal, noise)
    allowed = (1 + gamma / (mu * (1 - EPSILON))) ** 2 * exact
    parameters = SqueakParameters(gamma, EPSILON, theory_qbar(300, EPSILON, DELTA))
    few = SqueakParameters(gamma, EPSILON, 64)
    for chosen in (parameters, few):
        for stop, D in prefixes(kernel, X, chosen, 0, [150, 300]):
            if stop == 300:
                for nystrom in (regularized_map(kernel, D), projected_map(kernel, D.points)):
                    assert risk(smoother_of_map(nystrom, X, mu), signal, noise) <= allowed
    assert len(D) < 300


def test_the_square_in_the_risk_bound_is_needed():
    """K = 20·I, μ = 200, γ = 2, all columns kept: 1.0167 lies above 1 + γ/(μ(1−ε)) = 1.0143."""
    n, mu, gamma = 6, 200.0, 2.0
    X = np.sqrt(20.0) * np.eye(n)
    D = Dictionary(X, np.arange(n), np.ones(n), np.full(n, 8), np.ones(n), gamma, 8)
    signal = np.ones(n)
    exact = risk(20 / (20 + mu) * np.eye(n), signal, 0.0)
    approximate = risk(smoother_of_map(regularized_map(Linear(), D), X, mu), signal, 0.0)
    without_square = 1 + gamma / (mu * (1 - EPSILON))
    assert approximate / exact == pytest.approx(1.0167, abs=5e-5)
    assert without_square == pytest.approx(1.0143, abs=5e-5)
    assert without_square < approximate / exact <= without_square**2
    # The projection of all rows loses nothing at all.
    projected = risk(smoother_of_map(projected_map(Linear(), X), X, mu), signal, 0.0)
    assert_allclose(projected, exact, rtol=1e-10)
