"""The constant beside the kernel: an intercept that is fitted, not the mean of the target."""

from __future__ import annotations

import numpy as np
import pytest

import squeak_dist
from squeak_dist.kernels import RBF
from squeak_dist.nystrom import linear_columns, projected_map
from squeak_dist.ridge_path import choose_penalty
from squeak_dist.solvers import joint_equations, ridge_factor

ROUNDING = np.finfo(np.float32).eps


def problem(n=2000, seed=0, noise=0.05):
    """A flat field at height 3 with two high peaks."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4, 4, (n, 2))
    peaks = np.exp(-4 * ((X - [1, 1]) ** 2).sum(axis=1)) + np.exp(-4 * (X**2).sum(axis=1))
    return X, 3 + 20 * peaks + noise * rng.normal(size=n)


@pytest.mark.parametrize("width", [0, 1, 3])
def test_the_path_is_that_of_the_dense_equations(width):
    X, y = problem(400)
    v = np.random.default_rng(1).uniform(0.5, 2, len(X))
    nystrom = projected_map(RBF(0.7), X[:40])
    joint = joint_equations(nystrom, X, (y - y.mean())[:, None], v)
    path = joint.path().narrowed(width)
    assert path.width == width
    F = np.hstack([nystrom.transform(X), linear_columns(X, np.float64, width)])
    assert F.shape == (400, 40 + width)
    equations = joint.assembled(path.ridge)
    for mu in (1e-2, 1.0):
        A = equations.gram + mu * np.eye(len(equations.gram))
        np.testing.assert_allclose(A - mu * np.eye(len(A)), F.T * v @ F, rtol=1e-4, atol=1e-8)
        theta = np.linalg.solve(A, equations.moment)
        left = v @ (y - y.mean() - F @ theta[:, 0]) ** 2
        assert path.train_square(mu)[0] == pytest.approx(left, rel=1e-6)
        freedom = np.trace(np.linalg.solve(A, A - mu * np.eye(len(A))))
        assert path.freedom(mu) == pytest.approx(freedom, rel=1e-6)
        assert ridge_factor(equations, mu) @ ridge_factor(equations, mu).T == pytest.approx(A)


def test_far_from_all_rows_it_is_what_is_predicted():
    X, y = problem()
    far = np.array([[40.0, -40.0]])
    options = {"kernel": "rbf", "length_scale": 0.6, "max_dictionary": 250, "dtype": "float64"}
    with_constant = squeak_dist.fit(X, y, **options)
    alone = squeak_dist.fit(X, y, linear_part=False, **options)
    assert with_constant.model_.slopes.shape == (1, 1)
    assert alone.model_.slopes.shape == (0, 1)
    assert with_constant.predict(far)[0] == pytest.approx(with_constant.intercept_)
    assert alone.predict(far)[0] == pytest.approx(y.mean()) == alone.intercept_
    assert not with_constant.linear_coef_.any()
    assert with_constant.report_["linear_part"] is False


def test_it_is_that_of_generalized_least_squares():
    X, y = problem()
    model = squeak_dist.fit(
        X, y, kernel="rbf", length_scale=0.6, max_dictionary=200, dtype="float64", mu=0.2
    )
    rows = model.model_.encoding.encode(X)[0]
    Z = projected_map(model.model_.kernel, model.dictionary_.points).transform(rows)
    ones, centred = np.ones(len(X)), y - y.mean()
    solved = np.linalg.solve(Z @ Z.T + 0.2 * np.eye(len(X)), np.column_stack([centred, ones]))
    own = 0.2 + ROUNDING * len(X)  # the penalty of the constant
    level = 0.2 * ones @ solved[:, 0] / (0.2 * ones @ solved[:, 1] + own)
    assert model.intercept_ - y.mean() == pytest.approx(level, rel=1e-3)
    assert abs(level) > 0.05


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_solvers_agree(dtype):
    X, y = problem(4000, noise=0.5)
    direct, cg = (
        squeak_dist.fit(
            X, np.column_stack([y, -2 * y]), solver=solver, dtype=dtype, mu=0.1,
            kernel="rbf", length_scale=0.6, max_dictionary=150,
        )
        for solver in ("direct", "cg")
    )  # fmt: skip
    assert cg.report_["solver"] == "cg"
    assert len(cg.model_.slopes) == len(direct.model_.slopes) == 1
    np.testing.assert_allclose(cg.intercept_, direct.intercept_, rtol=0.01)
    gap = np.std(cg.predict(X) - direct.predict(X), axis=0) / y.std()
    assert gap.max() < 0.02


def test_what_a_store_keeps(tmp_path):
    X, y = problem()
    model = squeak_dist.fit(X, y, kernel="rbf", length_scale=0.6, max_dictionary=100)
    model.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    for return_std in (False, True):
        expected, found = (
            np.asarray(m.predict(X[:50], return_std=return_std)) for m in (model, loaded)
        )
        assert expected.tobytes() == found.tobytes()


def test_the_deviation_knows_the_constant():
    X, y = problem(300)
    every_row = {"gamma": 1e-9, "max_dictionary": None, "dtype": "float64", "mu": 0.3}
    model = squeak_dist.fit(X, y, kernel="rbf", length_scale=0.6, **every_row)
    assert len(model.model_.slopes) == 1
    # A Gaussian process with a constant of (nearly) flat prior beside it.
    inner = model.model_.kernel
    encoded = model.model_.encoding.encode(X)[0]
    flat = 1 / (0.3 + ROUNDING * len(X))  # of the constant, in units of the kernel's scale times μ
    K = inner(encoded, encoded) + 0.3 * flat
    new = np.array([[0.3, 0.2], [8.0, 8.0]])
    Z = model.model_.encoding.encode(new)[0]
    k = inner(Z, encoded) + 0.3 * flat
    own = 1 + 0.3 * flat
    variance = own - np.einsum("ij,ij->i", k, np.linalg.solve(K + 0.3 * np.eye(300), k.T).T)
    expected = np.sqrt(model.model_.noise_variance[0] * (1 + variance / 0.3))
    found = model.model_.deviation_encoded(Z)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("width", [1, 3])
def test_a_constant_that_the_kernel_makes_up_for_stays_within_two_deviations(width):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 2))
    curved = X[:, 0] ** 2 + X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=3000)
    Y = np.column_stack([curved, X[:, 1]])
    Y -= Y.mean(axis=0)
    path = joint_equations(projected_map(RBF(4.0), X[:100]), X, Y).path().narrowed(width)
    mu = 0.01
    bounded = path.bounded(mu)
    free, held = path.solution(mu)[1][-1], bounded.solution(mu)[1][-1]
    deviations = Y.std(axis=0)
    assert np.max(np.abs(free) / deviations) > 3
    assert np.max(np.abs(held) / deviations) == pytest.approx(2)
    assert (bounded.ridge[:-1] == path.ridge[:-1]).all()
    assert bounded.gcv(mu) < 1.01 * path.gcv(mu)
    assert bounded.bounded(mu).ridge == pytest.approx(bounded.ridge)


def test_a_constant_that_costs_is_left_out():
    X, y = problem(500)
    nystrom = projected_map(RBF(0.7), X[:40])
    path = joint_equations(nystrom, X, (y - y.mean())[:, None]).path()

    class Refused(type(path)):
        def gcv(self, mu):
            return np.inf if self.width else super().gcv(mu)

    fields = {name: getattr(path, name) for name in path.__dataclass_fields__}
    _, chosen = choose_penalty(Refused(**fields), None, None)
    assert chosen.width == 0
