from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from squeak_dist import nystrom as nystrom_module
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Laplacian, Matern, kernel_block
from squeak_dist.linalg import symmetrize
from squeak_dist.nystrom import linear_columns, projected_map, regularized_map
from squeak_dist.ridge_path import ridge_path
from squeak_dist.solvers import (
    NormalEquations,
    add_normal_equations,
    dual_weights,
    joint_equations,
    joint_equations_of_features,
    linear_equations,
    mu_by_gcv,
    normal_equations,
    solve_direct,
)
from squeak_dist.squeak import SqueakParameters, finish, squeak

KERNEL = Matern(1.5, 2.5)


@pytest.fixture
def table(uneven_rows):
    X = uneven_rows(260)
    rng = np.random.default_rng(0)
    y = np.stack([np.sin(X[:, 0]), np.tanh(X[:, 1] * X[:, 2]), np.cos(X[:, 2])], axis=1)
    y = y + 0.1 * rng.normal(size=y.shape)
    return X, y - y.mean(axis=0)


def sampled(X, m=60, gamma=0.8):
    rng = np.random.default_rng(5)
    rows = rng.choice(len(X), m, replace=False)
    return Dictionary(
        X[rows], rows, rng.uniform(0.2, 1, m), rng.integers(1, 9, m), np.ones(m), gamma, 8
    )


def maps(X, m=60):
    D = sampled(X, m)
    return {
        "projected": projected_map(KERNEL, D.points),
        "regularized": regularized_map(KERNEL, D),
    }


each_form = pytest.mark.parametrize("form", ["projected", "regularized"])


# --- against dense solutions ------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("kernel", [Matern(1.5, 1.5), Matern(1.5, 2.5), Laplacian(2.0)])
def test_all_rows_as_dictionary_are_kernel_ridge_regression(kernel, mu, table):
    """μ is scikit-learn's alpha."""
    X, y = table
    new = X[::3] + 0.05
    got = predict_by_all_rows(kernel, X, y, mu, new)
    reference = KernelRidge(alpha=mu, kernel="precomputed").fit(kernel(X), y)
    assert_allclose(got, reference.predict(kernel(new, X)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_a_kernel_of_low_rank_is_exact_on_its_rows_and_close_beside_them(mu, table):
    """A direction of eigenvalue below the jitter j = 1e-13 of the map gets another
    coefficient; a new row sees it by at most sqrt(j)/μ."""
    X, y = table
    kernel = RBF(0.5)
    reference = KernelRidge(alpha=mu, kernel="precomputed").fit(kernel(X), y)
    on_rows = predict_by_all_rows(kernel, X, y, mu, X)
    assert_allclose(on_rows, reference.predict(kernel(X)), rtol=0, atol=1e-6)
    new = X[::3] + 0.05
    beside = predict_by_all_rows(kernel, X, y, mu, new)
    assert_allclose(beside, reference.predict(kernel(new, X)), rtol=0, atol=1e-6 / mu)


def predict_by_all_rows(kernel, X, y, mu, new):
    nystrom = projected_map(kernel, X)
    theta = solve_direct(normal_equations(nystrom, X, y), mu)
    return kernel(new, X) @ nystrom.coefficients(theta)


@each_form
@pytest.mark.parametrize("mu", [0.05, 5.0])
def test_fit_and_dual_weights_are_the_dense_ones_of_the_approximation(form, mu, table):
    X, y = table
    nystrom = maps(X)[form]
    theta = solve_direct(normal_equations(nystrom, X, y), mu)
    Z = nystrom.transform(X)
    dense = np.linalg.solve(Z @ Z.T + mu * np.eye(len(X)), y)  # w̃ = (K̃ + μI)⁻¹ y
    assert_allclose(Z @ theta, Z @ Z.T @ dense, atol=1e-9)
    assert_allclose(dual_weights(nystrom, theta, X, y, mu), dense, atol=1e-8 / mu)
    assert_allclose(Z.T @ dense, theta, atol=1e-8)


def test_the_projected_form_solves_the_equations_of_the_span(table):
    """(K_Dn K_nD + μ K_DD) c = K_Dn y."""
    X, y = table
    D, kernel = sampled(X), Laplacian(2.0)
    nystrom = projected_map(kernel, D.points)
    c = nystrom.coefficients(solve_direct(normal_equations(nystrom, X, y), 0.5))
    columns, own = kernel(X, D.points), kernel(D.points, D.points)
    expected = np.linalg.solve(columns.T @ columns + 0.5 * own, columns.T @ y)
    assert_allclose(columns @ c, columns @ expected, atol=1e-8)


def test_dual_weights_by_partition_are_those_of_all_rows(table):
    X, y = table
    nystrom = maps(X)["regularized"]
    theta = solve_direct(normal_equations(nystrom, X, y), 1.0)
    whole = dual_weights(nystrom, theta, X, y, 1.0)
    parts = [dual_weights(nystrom, theta, X[s], y[s], 1.0) for s in (slice(0, 99), slice(99, 260))]
    assert_allclose(np.concatenate(parts), whole, atol=1e-10)


def test_the_linear_baseline_is_ridge_regression(table):
    X, y = table
    Xc = X - X.mean(axis=0)
    theta = solve_direct(linear_equations(Xc.astype(np.float32), y), 2.0)
    columns = np.column_stack([Xc, np.ones(len(Xc))])
    expected = Ridge(alpha=2.0, fit_intercept=False).fit(columns, y).coef_.T
    assert_allclose(theta, expected, atol=1e-6)
    v = np.random.default_rng(0).uniform(0, 3, len(X))
    weighted = solve_direct(linear_equations(Xc, y, v), 2.0)
    expected = Ridge(alpha=2.0, fit_intercept=False).fit(columns, y, sample_weight=v).coef_.T
    assert_allclose(weighted, expected, atol=1e-9)


def test_the_linear_baseline_leaves_its_input_alone(table):
    X, y = table
    before = X.copy()
    linear_equations(X, y, np.full(len(X), 2.0))
    assert_array_equal(X, before)


# --- sums -------------------------------------------------------------------------------------


def as_full(equations: NormalEquations):
    return symmetrize(equations.gram), equations.moment, equations.target_square, equations.rows


def assert_same_sums(left, right, tolerance=1e-10):
    for a, b in zip(as_full(left), as_full(right), strict=True):
        assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


@each_form
def test_normal_equations_are_the_sums_they_say(form, table, monkeypatch):
    monkeypatch.setattr(nystrom_module, "_BLOCK_ROWS", 64)
    X, y = table
    v = np.random.default_rng(0).uniform(0, 3, len(X))
    v[:5] = 0
    nystrom = maps(X)[form]
    Z = nystrom.transform(X)
    gram, moment, square, rows = as_full(normal_equations(nystrom, X, y, v))
    assert_allclose(gram, (Z.T * v) @ Z, atol=1e-9)
    assert_allclose(moment, (Z.T * v) @ y, atol=1e-9)
    assert_allclose(square, v @ y**2, atol=1e-9)
    assert rows == len(X) - 5


def test_no_weights_are_weights_of_one(table):
    X, y = table
    nystrom = maps(X)["projected"]
    ones = normal_equations(nystrom, X, y, np.ones(len(X)))
    assert_same_sums(ones, normal_equations(nystrom, X, y))


@pytest.mark.parametrize("cuts", [[100], [0, 1, 130, 259], [260]])
@pytest.mark.parametrize("weighted", [False, True])
def test_pieces_are_one_go(cuts, weighted, table):
    X, y = table
    v = np.random.default_rng(0).uniform(0, 2, len(X)) if weighted else None
    nystrom = maps(X)["projected"]
    whole = normal_equations(nystrom, X, y, v)
    chained, parts = None, []
    for s in (slice(a, b) for a, b in zip([0, *cuts], [*cuts, 260], strict=True)):
        weights = None if v is None else v[s]
        chained = normal_equations(nystrom, X[s], y[s], weights, start=chained)
        parts.append(normal_equations(nystrom, X[s], y[s], weights))
    assert_same_sums(chained, whole)
    assert_same_sums(add_normal_equations(*parts), whole)


def test_sums_are_values_that_nothing_changes(table):
    X, y = table
    nystrom = maps(X)["projected"]
    first = normal_equations(nystrom, X[:100], y[:100])
    copy = replace(first, gram=first.gram.copy(), moment=first.moment.copy())
    normal_equations(nystrom, X[100:], y[100:], start=first)
    add_normal_equations(first, first)
    solve_direct(first, 1.0)
    mu_by_gcv(first)
    assert_array_equal(first.gram, copy.gram)
    assert_array_equal(first.moment, copy.moment)


@each_form
def test_an_integer_weight_is_a_repeated_row(form, table):
    X, y = table
    v = np.random.default_rng(0).integers(0, 4, len(X))
    nystrom = maps(X)[form]
    weighted = normal_equations(nystrom, X, y, v.astype(float))
    repeated = normal_equations(nystrom, np.repeat(X, v, axis=0), np.repeat(y, v, axis=0))
    for a, b in zip(as_full(weighted)[:3], as_full(repeated)[:3], strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    assert_allclose(solve_direct(weighted, 0.3), solve_direct(repeated, 0.3), atol=1e-8)
    # A row counts once for the degrees of freedom of GCV, a repeated row several times.
    assert weighted.rows == np.count_nonzero(v)
    assert repeated.rows == v.sum()


@each_form
def test_several_outputs_are_single_fits(form, table):
    X, y = table
    nystrom = maps(X)[form]
    together = solve_direct(normal_equations(nystrom, X, y), 0.3)
    for j in range(3):
        alone = solve_direct(normal_equations(nystrom, X, y[:, j : j + 1]), 0.3)
        assert_allclose(together[:, j : j + 1], alone, rtol=1e-8, atol=1e-9)


# --- precision ----------------------------------------------------------------------------------


@each_form
@pytest.mark.parametrize("mu", [0.1, 3.0])
def test_float32_rows_predict_as_float64_rows(form, mu, uneven_rows):
    """To 1e-3 of the spread of the predictions."""
    X = uneven_rows(3000)
    y = (np.sin(2 * X[:, :1]) + X[:, 1:2]) * np.exp(-0.1 * X[:, 2:] ** 2)
    y = y - y.mean(axis=0)
    parameters = SqueakParameters(gamma=1.0)
    rng = np.random.default_rng(0)
    D = finish(KERNEL, squeak(KERNEL, X, parameters, rng), parameters, rng).dictionary
    predictions = []
    for dtype in (np.float64, np.float32):
        rows = X.astype(dtype)
        own = replace(D, points=D.points.astype(dtype))
        if form == "projected":
            nystrom = projected_map(KERNEL, own.points)
        else:
            nystrom = regularized_map(KERNEL, own)
        theta = solve_direct(normal_equations(nystrom, rows, y), mu)
        block = kernel_block(KERNEL, rows, own.points).astype(np.float64)
        predictions.append(block @ nystrom.coefficients(theta))
    double, single = predictions
    assert np.abs(single - double).max() < 1e-3 * double.std()


def test_rows_far_from_zero_are_as_good_once_centred(uneven_rows):
    """An offset of 1e4 in float32: lost in the raw rows, harmless in centred ones."""
    X = uneven_rows(1000)
    y = np.sin(2 * X[:, :1])
    y = y - y.mean()
    moved = X + 1e4

    def error(rows):
        nystrom = projected_map(RBF(1.0), rows[::5])
        theta = solve_direct(normal_equations(nystrom, rows, y), 0.1)
        fitted = nystrom.transform(rows).astype(np.float64) @ theta
        return float(np.sqrt(np.mean((fitted - y) ** 2)))

    without_offset = error((X - X.mean(axis=0)).astype(np.float32))
    centred = error((moved - moved.mean(axis=0)).astype(np.float32))
    raw = error(moved.astype(np.float32))
    assert centred == pytest.approx(without_offset, rel=0.01)
    assert raw > 2 * centred


def test_the_weakest_penalty_still_solves(table):
    """Equal rows and μ → 0: the jitter keeps the factorization alive."""
    X, y = table
    nystrom = projected_map(KERNEL, np.repeat(X[:40], 2, axis=0))
    theta = solve_direct(normal_equations(nystrom, X, y), 1e-14)
    assert np.all(np.isfinite(theta))
    Z = nystrom.transform(X)
    best = np.linalg.lstsq(Z, y, rcond=1e-10)[0]
    assert np.linalg.norm(Z @ theta - y) < 1.1 * np.linalg.norm(Z @ best - y)


# --- the choice of μ --------------------------------------------------------------------------


def gaussian_process(n, noise, seed, kernel=KERNEL, d=2):
    """One draw of a Gaussian process of variance 1 with noise of the given variance."""
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(-4, 4, size=(n, d))
    L = np.linalg.cholesky(kernel(X) + 1e-10 * np.eye(n))
    y = L @ rng.normal(size=(n, 1)) + np.sqrt(noise) * rng.normal(size=(n, 1))
    return X, y - y.mean()


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
def test_gcv_finds_the_noise_of_a_gaussian_process(noise):
    """The best μ is the noise variance; the mean of five log estimates is within ×2."""
    found = []
    for seed in range(5):
        X, y = gaussian_process(500, noise, seed)
        found.append(mu_by_gcv(normal_equations(projected_map(KERNEL, X[::2]), X, y)))
    assert abs(np.mean(np.log(found)) - np.log(noise)) < np.log(2)
    assert np.all(np.abs(np.log(np.array(found) / noise)) < np.log(6))


def test_gcv_is_as_good_as_the_best_penalty_on_new_rows():
    for seed in range(3):
        X, y = gaussian_process(700, 0.2, seed)
        train, new = slice(0, 400), slice(400, 700)
        nystrom = projected_map(KERNEL, X[train][::2])
        sums = normal_equations(nystrom, X[train], y[train])
        Z = nystrom.transform(X[new])

        def error(mu, sums=sums, Z=Z, y=y, new=new):
            return np.mean((Z @ solve_direct(sums, mu) - y[new]) ** 2)

        best = min(error(mu) for mu in np.geomspace(1e-4, 1e3, 36))
        assert error(mu_by_gcv(sums)) < 1.05 * best


def test_gcv_is_the_minimum_of_its_own_formula(table):
    """Against GCV written out with dense matrices on a grid."""
    X, y = table
    y = y[:, :2]
    nystrom = maps(X)["projected"]
    sums = normal_equations(nystrom, X, y)
    Z = nystrom.transform(X)
    n = len(X)

    def gcv(mu):
        smoother = Z @ np.linalg.solve(Z.T @ Z + mu * np.eye(60), Z.T)
        return n * np.sum((y - smoother @ y) ** 2) / (n - 1 - np.trace(smoother)) ** 2

    chosen = mu_by_gcv(sums)
    others = [gcv(chosen * factor) for factor in np.geomspace(1e-3, 1e3, 61)]
    # The largest μ within 1e-4 of the least.
    assert gcv(chosen) <= min(others) * (1 + 1.01e-4)
    assert gcv(1.1 * chosen) > min(others) * (1 + 1e-4)


def test_of_a_flat_curve_the_largest_penalty_is_taken():
    # No noise at all, and more rows than features by far: from 1e-9 to some μ GCV is the same.
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, size=(4000, 1))
    y = np.sin(3 * X) + 0.3 * np.sin(40 * X)
    sums = normal_equations(projected_map(KERNEL, X[::200]), X, y - y.mean())
    path, _ = ridge_path(sums.gram, sums.moment, sums.target_square, sums.rows)
    chosen = path.best_mu()
    least = min(path.gcv(chosen * factor) for factor in np.geomspace(1e-6, 1, 25))
    assert path.gcv(chosen) == pytest.approx(least * (1 + 1e-4), rel=1e-5)
    assert path.gcv(1e-3 * chosen) == pytest.approx(path.gcv(chosen), rel=2e-4)
    assert chosen > 1e-5 * path.form.values[-1]


def test_gcv_of_pure_noise_is_large_and_of_no_noise_is_small():
    """Noise alone: nearly nothing may be fitted. (GCV undersmooths now and then; the
    median of nine seeds does only if five of them do.)"""
    fractions = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(-4, 4, size=(300, 2)), rng.normal(size=(300, 1))
        sums = normal_equations(projected_map(KERNEL, X[::3]), X, y - y.mean())
        mu = mu_by_gcv(sums)
        values = np.linalg.eigvalsh(symmetrize(sums.gram))
        fractions.append(np.sum(values / (values + mu)) / 300)
    assert np.median(fractions) < 0.05
    X, y = gaussian_process(300, 0.0, 0)
    assert mu_by_gcv(normal_equations(projected_map(KERNEL, X), X, y)) < 1e-3


@pytest.mark.parametrize("n", [1, 2, 5, 59, 60, 61])
def test_gcv_is_finite_and_positive_with_fewer_rows_than_features(n, table):
    X, y = table
    sums = normal_equations(maps(X)["projected"], X[:n], y[:n])
    mu = mu_by_gcv(sums)
    assert np.isfinite(mu)
    assert mu > 0
    assert np.all(np.isfinite(solve_direct(sums, mu)))


def test_gcv_of_a_constant_target_and_of_zero_features_is_finite(table):
    X, _ = table
    nystrom = maps(X)["projected"]
    zero = np.zeros((len(X), 1))
    for sums in (normal_equations(nystrom, X, zero), linear_equations(X * 0, zero)):
        assert np.isfinite(mu_by_gcv(sums))
        assert_allclose(solve_direct(sums, mu_by_gcv(sums)), 0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_equations_of_features_at_hand_are_those_of_the_rows(table, weighted):
    X, y = table
    v = np.random.default_rng(1).gamma(1.0, size=len(X)) if weighted else None
    if v is not None:
        v[::7] = 0
    nystrom = projected_map(KERNEL, X[:40])
    features = np.hstack([nystrom.transform(X), linear_columns(X, np.float64)])
    found = joint_equations_of_features(features, X, y, v)
    expected = joint_equations(nystrom, X, y, v)
    for one, other in ((found.kernel, expected.kernel), (found.linear, expected.linear)):
        assert_allclose(symmetrize(one.gram), symmetrize(other.gram), atol=1e-9)
        assert_allclose(one.moment, other.moment, atol=1e-9)
        assert_allclose(one.target_square, other.target_square)
        assert one.rows == other.rows
    assert_allclose(found.cross, expected.cross, atol=1e-9)
    assert_array_equal(found.lower, expected.lower)
    assert_array_equal(found.upper, expected.upper)
