"""Conjugate gradients against the dense products and the direct solve."""

from __future__ import annotations

from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist import conjugate_gradients
from squeak_dist.conjugate_gradients import (
    dictionary_row_weights,
    embedded_factor,
    kernel_product,
    preconditioner,
    residual_moment,
    restart_cg,
    sampled_row_weights,
    sign_embedding,
    start_cg,
    step_cg,
)
from squeak_dist.kernels import RBF, Matern, kernel_block
from squeak_dist.linalg import cholesky, least_eigenvalue, solve_lower, spectral_norm
from squeak_dist.nystrom import (
    evaluated_in_double,
    linear_columns,
    projected_map,
    regularized_map,
)
from squeak_dist.solvers import normal_equations, solve_direct
from squeak_dist.squeak import SqueakParameters, finish, squeak
from squeak_dist.stages import iterating
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


# --- the sketch of all rows -------------------------------------------------------------------


@pytest.mark.parametrize("width", [0, 1, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sketch_has_the_sums_of_all_rows_on_average(width, weighted, monkeypatch):
    monkeypatch.setattr(conjugate_gradients, "_EMBEDDED", 16)
    X, _, v = problem(n=50)
    nystrom = projected_map(RBF(1.5), X[::9])
    weights = v if weighted else None
    sums = np.zeros((len(nystrom) + width,) * 2)
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        embedded = sign_embedding(nystrom, X, weights, width, 20, rng)
        assert embedded.shape == (20, len(sums))
        sums += embedded.T @ embedded / 2000
    K = kernel_block(nystrom.kernel, X, nystrom.points, np.empty((50, len(nystrom))))
    F = np.hstack([K, linear_columns(X, np.float64, width)])
    expected = F.T @ (F if weights is None else F * v[:, None])
    np.testing.assert_allclose(sums, expected, atol=0.06 * np.abs(expected).max())


def test_sketches_of_parts_add_up():
    X, _, v = problem(n=300)
    nystrom = projected_map(RBF(1.5), X[::30])
    start = np.random.default_rng(0).normal(size=(40, len(nystrom) + 1))
    before = start.copy()
    alone = sign_embedding(nystrom, X, v, 1, 40, np.random.default_rng(1))
    after = sign_embedding(nystrom, X, v, 1, 40, np.random.default_rng(1), start)
    np.testing.assert_array_equal(start, before)
    np.testing.assert_allclose(after, start + alone, atol=1e-12)


def test_a_sketch_preconditions_rows_that_no_sample_has():
    """All leverage is in thirty rows of 6,000: a uniform sample has one or two of them."""
    rng = np.random.default_rng(0)
    X = 0.05 * rng.normal(size=(6000, 3))
    X[rng.choice(6000, 30, replace=False)] = 10 * rng.normal(size=(30, 3))
    far = np.flatnonzero(np.abs(X).max(axis=1) > 1)
    nystrom = projected_map(RBF(1.0), np.concatenate([X[far], X[:30]]))
    mu, m = 1e-3, len(nystrom)
    Z = nystrom.transform(X)
    A = Z.T @ Z + mu * np.eye(m)
    embedded = sign_embedding(nystrom, X, None, 0, 3 * m, np.random.default_rng(1))
    by_sketch = embedded_factor(nystrom, embedded, np.full((m, 1), mu))
    sample = rng.choice(6000, 10 * m, replace=False)
    by_sample = preconditioner(10 * Z[sample].T @ Z[sample], mu)

    def condition(factor):
        inverse = np.linalg.inv(factor)
        return np.linalg.cond(inverse @ A @ inverse.T)

    assert condition(by_sketch) < 30
    assert condition(by_sample) > 10 * condition(by_sketch)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_where_the_sample_is_too_poor_a_sketch_takes_its_place(dtype, weighted, monkeypatch):
    monkeypatch.setattr(iterating, "sample_per_centre", lambda rows, m: 0.5)
    monkeypatch.setattr(iterating, "_MOST_ITERATIONS", 6)
    X, Y, v = problem(n=8000, outputs=2, seed=3)
    Y = Y + 0.3 * np.random.default_rng(5).normal(size=Y.shape)
    options = {"max_dictionary": 200, "dtype": dtype, "mu": 0.02, "linear_part": True}
    weights = v + 1.0 if weighted else None
    stages = []
    direct, cg = (
        squeak_dist.fit(
            X, Y, sample_weight=weights, solver=solver,
            progress=lambda stage, *_: stages.append(stage), **options,
        )
        for solver in ("direct", "cg")
    )  # fmt: skip
    assert cg.report_["solver"] == "cg"
    assert cg.report_["cg_preconditioner"] == "sketch"
    assert direct.report_["cg_preconditioner"] is None
    order = list(dict.fromkeys(stages))
    sketch = order.index("sketch")
    assert order.index("iteration 5") < sketch
    assert order[sketch + 1].startswith("iteration")
    assert len(cg.report_["cg_seconds"]) == len(cg.report_["cg_residuals"])
    assert len(cg.report_["cg_train_rmse"]) == len(cg.report_["cg_residuals"])
    gap = np.std(cg.predict(X) - direct.predict(X), axis=0) / Y.std(axis=0)
    assert gap.max() < 0.02
    np.testing.assert_allclose(cg.report_["train_rmse"], direct.report_["train_rmse"], rtol=2e-3)


def test_where_a_sketch_is_too_poor_too_the_solve_is_direct(monkeypatch):
    monkeypatch.setattr(iterating, "sample_per_centre", lambda rows, m: 0.5)
    monkeypatch.setattr(iterating, "_MOST_ITERATIONS", 3)
    monkeypatch.setattr(iterating, "_LOOSEST", 1e-12)
    monkeypatch.setattr(iterating, "_TIGHTEST", 1e-13)
    X, Y, _ = problem(n=8000, seed=3)
    options = {"max_dictionary": 200, "dtype": "float64", "mu": 0.02}
    stages = set()
    direct, cg = (
        squeak_dist.fit(
            X, Y, solver=solver, progress=lambda stage, *_: stages.add(stage), **options
        )
        for solver in ("direct", "cg")
    )
    assert "sketch" in stages
    assert cg.report_["solver"] == "direct"
    assert cg.dual_coef_.tobytes() == direct.dual_coef_.tobytes()


def test_a_sketch_starts_anew_where_iterations_are_nowhere():
    X, Y, _ = problem()
    nystrom = projected_map(RBF(1.5), X[::6])
    equations = normal_equations(nystrom, X, Y)
    factor = preconditioner(equations.gram, 0.1)
    theta = solve_direct(equations, 0.1)
    system = iterating.CGSystem(
        theta=theta, mu=0.1, penalties=np.full((len(theta), 1), 0.1), factor=factor,
        linear=equations, column_range=np.zeros((2, 3)), tolerance=0.01, kernel_norm=1.0,
        norm=1.0, least=0.1, peak_bytes=0,
    )  # fmt: skip
    good = start_cg(0.5 * theta, factor)
    lost = replace(good, theta=np.full_like(theta, np.nan))
    for state, expected in ((good, 0.5 * theta), (lost, theta)):
        found = iterating._start_again(iterating.Iterate(state, theta), system)
        np.testing.assert_array_equal(found.theta, expected)


def test_a_sketch_has_the_same_bits_wherever_it_is_made(monkeypatch):
    monkeypatch.setattr(iterating, "sample_per_centre", lambda rows, m: 0.5)
    monkeypatch.setattr(iterating, "_MOST_ITERATIONS", 6)
    monkeypatch.setattr(iterating, "_LOOSEST", 1e-3)
    X, Y, _ = problem(n=8000, outputs=2, seed=3)
    Y = Y + 0.3 * np.random.default_rng(5).normal(size=Y.shape)
    frame = pd.DataFrame(np.hstack([X, Y]), columns=list("abcyz"))
    table = dd.from_pandas(frame, npartitions=5)
    options = {
        "target": ["y", "z"], "max_dictionary": 200, "mu": 0.02, "solver": "cg",
        "linear_part": True,
    }  # fmt: skip
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=4):
            found.append(squeak_dist.fit(table, **options))
    assert {model.report_["cg_preconditioner"] for model in found} == {"sketch"}
    assert len({model.dual_coef_.tobytes() for model in found}) == 1
