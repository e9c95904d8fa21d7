"""Predictive standard deviation and novelty of a model."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from squeak_dist import RBF, SqueakRegressor
from squeak_dist.stages.noise import noise_share

EVERY_ROW = {
    "gamma": 1e-12,
    "max_dictionary": None,
    "dtype": "float64",
    "length_scale": 0.8,
    "mu": 0.2,
}


def made(n, seed=0, noise=0.3):
    rng = np.random.default_rng([seed, n])
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


def encoded(model, X):
    return model.model_.encoding.encode(X)[0]


def test_with_every_row_it_is_that_of_a_gaussian_process():
    X, y = made(200)
    X_new, _ = made(100, seed=1)
    model = SqueakRegressor(linear_part=False, **EVERY_ROW).fit(X, y)
    assert len(model.dictionary_) == len(X)
    noise = float(model.model_.noise_variance[0])
    prior = kernels.ConstantKernel(noise / model.mu_) * kernels.RBF(0.8)
    kernel = prior + kernels.WhiteKernel(noise)
    process = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-12)
    process.fit(X - X.mean(axis=0), y - y.mean())
    _, expected = process.predict(X_new - X.mean(axis=0), return_std=True)
    found = model.model_.deviation_encoded(encoded(model, X_new))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_what_the_dictionary_does_not_span_is_no_noise(begin):
    # Hardly any noise, and far too few centres: the novelty of a row explains its error.
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (6000, 3))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 2] + 0.01 * rng.normal(size=6000)
    model = SqueakRegressor(kernel=RBF(1.0), max_dictionary=120, random_state=0)
    getattr(model, begin)(X[:4000], y[:4000])
    mean, std = model.predict(X[4000:], return_std=True)
    assert np.sqrt(np.mean(((y[4000:] - mean) / std) ** 2)) == pytest.approx(1, abs=0.15)
    assert model.report_["noise_std"] == [np.sqrt(model.model_.noise_variance[0])]


def test_the_share_of_the_noise():
    rng = np.random.default_rng(1)
    v, r, h = rng.uniform(0.5, 2, 20_000), rng.exponential(3, 20_000), rng.uniform(0, 0.9, 20_000)
    # Errors on rows fitted whose errors without them have variance 1/v + h/(1 − v h) + r/μ.
    h /= v
    left_out = np.sqrt(1 / v + h / (1 - v * h) + r) * rng.normal(size=len(v))
    errors = ((1 - v * h) * left_out)[:, None]
    share = noise_share(errors, v, v * h, v * r)
    assert share * np.mean(v[:, None] * errors**2 / (1 - v * h)[:, None]) == pytest.approx(
        1, abs=0.03
    )
    assert noise_share(errors, v, v * h, 0 * r) == 1
    assert noise_share(0 * errors, v, v * h, v * r) == 1


def test_the_noise_is_what_was_added():
    X, y = made(3000, noise=0.3)
    model = SqueakRegressor(max_dictionary=200).fit(X, y)
    assert np.sqrt(model.model_.noise_variance[0]) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("linear_part", [False, True])
def test_a_batch_is_its_rows_one_by_one(solver, dtype, linear_part):
    X, y = made(2000)
    model = SqueakRegressor(
        max_dictionary=150, solver=solver, dtype=dtype, linear_part=linear_part
    ).fit(X, np.column_stack([y, 10 * y]))
    rows = encoded(model, np.concatenate([X[:50], 100 + X[:3]]))
    batch = model.model_.deviation_encoded(rows)
    single = np.concatenate([model.model_.deviation_encoded(row[None]) for row in rows])
    np.testing.assert_allclose(batch, single, rtol=1e-7)
    assert batch.shape == (53, 2)
    assert (batch > 0).all()
    np.testing.assert_allclose(batch[:, 1], 10 * batch[:, 0], rtol=1e-3)


def test_it_grows_away_from_the_data():
    X, y = made(2000)
    model = SqueakRegressor(max_dictionary=150).fit(X, y)
    near, far = (model.model_.deviation_encoded(encoded(model, Z)) for Z in (X, X + 50))
    assert far.min() > 2 * near.mean()
    novelty = model.model_.residual_encoded(encoded(model, np.concatenate([X, X + 50])))
    assert novelty[: len(X)].mean() < 0.05
    np.testing.assert_allclose(novelty[len(X) :], 1, atol=1e-3)


def test_the_solvers_agree():
    X, y = made(4000)
    direct, cg = (
        SqueakRegressor(max_dictionary=150, mu=0.1, solver=solver, linear_part=True).fit(X, y)
        for solver in ("direct", "cg")
    )
    a, b = (m.model_.deviation_encoded(encoded(m, X[:200])) for m in (direct, cg))
    np.testing.assert_allclose(a, b, rtol=0.02)
    assert cg.report_["degrees_of_freedom"] == pytest.approx(
        direct.report_["degrees_of_freedom"], rel=0.1
    )


def test_half_of_the_intervals_of_half_the_targets_hold_them():
    X, y = made(3000)
    X_new, y_new = made(4000, seed=1)
    model = SqueakRegressor(max_dictionary=200).fit(X, y)
    std = model.model_.deviation_encoded(encoded(model, X_new))[:, 0]
    errors = np.abs(y_new - model.predict(X_new))
    for share, width in ((0.5, 0.6745), (0.9, 1.6449)):
        # Four standard deviations of a binomial share on 4,000 rows.
        assert np.mean(errors < width * std) == pytest.approx(share, abs=0.032)


def test_the_linear_part_is_constant_beyond_the_data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 1))
    y = 3 * X[:, 0]
    model = SqueakRegressor(linear_part=True, max_dictionary=20, mu=1e-3).fit(X, y)
    edge, far, farther = model.predict(np.array([[1.0], [100.0], [1000.0]]))
    assert far == pytest.approx(farther, abs=1e-6)
    assert abs(far - edge) < 1.5


def test_the_linear_part_is_there_where_it_helps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    line = X @ rng.normal(size=10)
    noisy = line + 0.1 * rng.normal(size=2000)
    linear = SqueakRegressor(max_dictionary=100, length_scale="median").fit(X, noisy)
    assert linear.report_["linear_part"] is True
    assert linear.evaluate(X, line).model.r2[0] > 0.995
    wave = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=2000)
    curved = SqueakRegressor(max_dictionary=100, length_scale="median").fit(X[:, :1], wave)
    assert curved.report_["linear_part"] is False
    assert not curved.linear_coef_.any()
