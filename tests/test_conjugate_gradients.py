"""Conjugate gradients against the dense products and the direct solve."""

from __future__ import annotations

import numpy as np
import pytest

import squeak_dist
from squeak_dist.conjugate_gradients import (
    dictionary_row_weights,
    kernel_product,
    preconditioner,
    residual_moment,
    restart_cg,
    sampled_row_weights,
    start_cg,
    step_cg,
)
from squeak_dist.kernels import RBF, Matern, kernel_block
from squeak_dist.linalg import cholesky, least_eigenvalue, solve_lower, spectral_norm
from squeak_dist.nystrom import evaluated_in_double, projected_map, regularized_map
from squeak_dist.solvers import normal_equations, solve_direct
from squeak_dist.squeak import SqueakParameters, finish, squeak
from squeak_dist.stages.iterating import faster_by_iterations


def problem(n=900, d=3, outputs=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.2, 1.0, 3.0], size=(n, 1), p=[0.7, 0.25, 0.05])
    X = (spread * rng.normal(size=(n, d))).astype(dtype)
    Y = np.stack([np.sin(X[:, 0]) + X[:, 1], np.cos(X[:, 2])], axis=1)[:, :outputs]
    return X, Y - Y.mean(axis=0) + 0.1 * rng.normal(size=(n, outputs)), rng.integers(0, 3, n)


class UserKernel:
    """A kernel known by its protocol alone."""

    def __call__(self, X, Y):
        return RBF(1.5)(X, Y)

    def diag(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("kernel", [RBF(1.5), Matern(1.5, 1.5), UserKernel()])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_equal_the_dense_ones(kernel, weighted):
    X, Y, v = problem()
    nystrom = projected_map(kernel, X[::9])
    v = v.astype(float) if weighted else None
    K = kernel_block(kernel, X, X[::9])
    weights = np.ones(len(X)) if v is None else v
    V = np.random.default_rng(1).normal(size=(len(nystrom), 2))
    expected = K.T @ (weights[:, None] * (K @ V))
    np.testing.assert_allclose(kernel_product(nystrom, X, V, v), expected, rtol=1e-10, atol=1e-10)
    moment, square = residual_moment(nystrom, X, Y, V, v)
    errors = Y - K @ V
    np.testing.assert_allclose(moment, K.T @ (weights[:, None] * errors), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(square, weights @ errors**2, rtol=1e-12)


def test_balance_weights_are_unbiased():
    # Over many dictionaries and samples the mean total weight of each row is 1, so the mean
    # of the estimated Gram is the Gram of all rows; 5 standard errors of its trace.
    X, _, _ = problem(n=400)
    kernel, rate, totals = RBF(1.0), 0.1, []
    parameters = SqueakParameters(gamma=2.0)
    for seed in range(120):
        rng = np.random.default_rng(seed)
        state = squeak(kernel, X, parameters, rng)
        dictionary = finish(kernel, state, parameters, rng).dictionary
        total = np.zeros(len(X))
        total[dictionary.indices] += dictionary_row_weights(dictionary, rate)
        sampled = np.flatnonzero(rng.random(len(X)) < rate)
        residual = regularized_map(kernel, dictionary).residual(X[sampled])
        total[sampled] += sampled_row_weights(residual, 1.0, rate, dictionary, 0.3)
        totals.append(total.mean())
    spread = np.std(totals) / np.sqrt(len(totals))
    # The p of a dictionary's row is that of its own history, not that of the final map, so
    # the two samples balance each other nearly, not to the digit.
    assert abs(np.mean(totals) - 1) < 5 * spread + 0.1


def test_steps_reach_the_direct_solution():
    X, Y, _ = problem()
    # A longer scale has a condition of 1e12, and the digits below would depend on the processor.
    nystrom, mu = projected_map(RBF(0.3), X[::6]), 0.05
    theta = solve_direct(normal_equations(nystrom, X, Y), mu)
    factor = preconditioner(normal_equations(nystrom, X[::3], Y[::3], np.full(300, 3.0)).gram, mu)
    first = solve_direct(normal_equations(nystrom, X[::3], Y[::3]), mu / 3)
    moment, _ = residual_moment(nystrom, X, Y, nystrom.coefficients(first))
    residual = solve_lower(nystrom.factor, moment) - mu * first
    state = restart_cg(start_cg(first, factor), residual, factor)
    assert 0 < state.relative_residual < 2
    for _ in range(90):
        product = kernel_product(nystrom, X, nystrom.coefficients(state.direction))
        image = solve_lower(nystrom.factor, product) + mu * state.direction
        state = step_cg(state, image, factor)
    assert state.relative_residual < 1e-7
    Z = nystrom.transform(X)
    np.testing.assert_allclose(Z @ state.theta, Z @ theta, atol=1e-6)
    moment, square = residual_moment(nystrom, X, Y, nystrom.coefficients(state.theta))
    again = restart_cg(state, solve_lower(nystrom.factor, moment) - mu * state.theta, factor)
    assert again.relative_residual < 1e-6
    np.testing.assert_allclose(square, np.sum((Y - Z @ theta) ** 2, axis=0), rtol=1e-6)


def test_residuals_are_measured_against_that_of_nothing():
    X, Y, _ = problem()
    nystrom, mu = projected_map(RBF(1.5), X[::6]), 0.05
    equations = normal_equations(nystrom, X, Y)
    factor = preconditioner(equations.gram, mu)
    solved = start_cg(solve_direct(equations, mu), factor)
    nothing = restart_cg(solved, equations.moment, factor)
    np.testing.assert_allclose(nothing.energy, solved.start_energy, rtol=1e-6)
    assert nothing.relative_residual == pytest.approx(1.0)


def test_a_zero_target_stays_zero():
    X, Y, _ = problem()
    nystrom = projected_map(RBF(1.5), X[::6])
    factor = preconditioner(normal_equations(nystrom, X[::3], Y[::3], np.full(300, 3.0)).gram, 0.1)
    zero = np.zeros((len(nystrom), 1))
    state = restart_cg(start_cg(zero, factor), zero, factor)
    state = step_cg(state, np.zeros((len(nystrom), 1)), factor)
    assert state.relative_residual == 0
    assert not state.theta.any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_agrees_with_the_direct_solve(dtype, weighted):
    X, Y, v = problem(n=8000, outputs=2, seed=3)
    rng = np.random.default_rng(5)
    Y = Y + 0.3 * rng.normal(size=Y.shape)
    options = {"max_dictionary": 200, "dtype": dtype, "mu": 0.3, "linear_part": True}
    weights = v + 1.0 if weighted else None
    direct, cg = (
        squeak_dist.fit(X, Y, sample_weight=weights, solver=solver, **options)
        for solver in ("direct", "cg")
    )
    assert cg.report_["solver"] == "cg"
    assert direct.report_["solver"] == "direct"
    gap = np.std(cg.predict(X) - direct.predict(X), axis=0) / Y.std(axis=0)
    assert gap.max() < 0.02
    np.testing.assert_allclose(cg.report_["train_rmse"], direct.report_["train_rmse"], rtol=2e-3)


def smooth(n=4000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def test_what_float32_cannot_resolve_is_iterated_in_float64():
    # Smooth and noiseless at a tiny μ: rounding of float32 products outweighs it.
    X, y = smooth()
    options = {"max_dictionary": 200, "mu": 1e-4, "kernel": "rbf", "length_scale": "median"}
    direct, cg = (squeak_dist.fit(X, y, solver=solver, **options) for solver in ("direct", "cg"))
    assert cg.report_["solver"] == "cg"
    rows = cg.model_.encoding.encode(X)[0].astype(np.float64)
    Z = evaluated_in_double(projected_map(cg.kernel_, cg.dictionary_.points)).transform(rows)
    Z = np.hstack([Z, np.ones((len(Z), 1))])
    A = Z.T @ Z + np.diag([1e-4] * (Z.shape[1] - 1) + [1e-4 + 2**-23 * len(Z)])
    exact = Z @ np.linalg.solve(A, Z.T @ (y - y.mean())) + y.mean()
    left = np.sqrt(np.mean((y - exact) ** 2))
    assert np.sqrt(np.mean((y - cg.predict(X)) ** 2)) < 1.01 * left
    assert np.sqrt(np.mean((y - direct.predict(X)) ** 2)) > 1.05 * left  # what rounding costs


def test_out_of_reach_falls_back_to_the_direct_solve():
    X, y = smooth()
    options = {
        "max_dictionary": 200, "mu": 1e-18, "dtype": "float64", "kernel": "rbf",
        "length_scale": 30.0,
    }  # fmt: skip
    direct, cg = (squeak_dist.fit(X, y, solver=solver, **options) for solver in ("direct", "cg"))
    assert cg.report_["solver"] == "direct"
    assert cg.dual_coef_.tobytes() == direct.dual_coef_.tobytes()


@pytest.mark.parametrize(("mu", "tried"), [(1e-18, False), (1.0, True)])
def test_what_rounding_forbids_is_not_tried(mu, tried):
    X, y = smooth()
    options = {"solver": "cg", "max_dictionary": 200, "kernel": "rbf", "length_scale": 30.0}
    stages = set()
    squeak_dist.fit(
        X, y, mu=mu, dtype="float64", progress=lambda stage, *_: stages.add(stage), **options
    )
    assert ("iteration 1" in stages) == tried


def test_a_smooth_field_is_solved_directly_from_the_start():
    # So many rows for so few centres that iterations in float32 would be faster, if they
    # converged; those in float64, which do, would not be.
    X, y = smooth(40_000)
    stages = set()
    options = {"max_dictionary": 1000, "kernel": "rbf", "length_scale": "median", "mu": 1e-5}
    model = squeak_dist.fit(X, y, progress=lambda stage, *_: stages.add(stage), **options)
    assert faster_by_iterations(len(X), len(model.dictionary_), 3, 1)
    assert not faster_by_iterations(len(X), len(model.dictionary_), 3, 1, doubled=True)
    assert not stages & {"iteration 1", "residual"}


def test_the_spectral_norm():
    Z = np.random.default_rng(0).uniform(size=(300, 20))  # of positive entries, as a kernel's
    assert spectral_norm(Z.T @ Z) == pytest.approx(np.linalg.norm(Z, 2) ** 2, rel=1e-6)
    assert spectral_norm(np.zeros((3, 3))) == 0


@pytest.mark.parametrize("m", [1, 5, 300])
def test_the_least_eigenvalue(m):
    Z = np.random.default_rng(0).normal(size=(2 * m, m))
    A = Z.T @ Z + 1e-3 * np.eye(m)
    least = np.linalg.eigvalsh(A)[0]
    assert least * (1 - 1e-9) <= least_eigenvalue(cholesky(A)) < 1.3 * least
