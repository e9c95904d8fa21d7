"""Kernels along directions among the features: the kernel, the search, the choice, the store."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime

import squeak_dist
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import (
    RBF,
    Laplacian,
    Matern,
    Polynomial,
    kernel_config,
    kernel_from_config,
)
from squeak_dist.tuning import (
    Candidate,
    TuningRows,
    choose_kernel,
    likelihood_of_directions,
    likely_directions,
    likely_kernel,
)

A = np.array([[1.0, 0.5, -2.0], [0.0, 1.0, 1.0]])


def arm(n, seed=0, noise=0.02):
    """An arm of six links: where its end is depends on sums of angles, and not on the seventh."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 7))
    y = np.cos(X.cumsum(axis=1)[:, :6]).sum(axis=1) + noise * rng.normal(size=n)
    return X, 2 * (y - 2.5)


@pytest.mark.parametrize("family", [RBF, Matern, Laplacian, Polynomial])
def test_the_kernel_is_that_of_turned_rows(family):
    X = np.random.default_rng(0).normal(size=(40, 3))
    along, plain = family((0.7, 1.4), directions=A), family((0.7, 1.4))
    np.testing.assert_allclose(along(X), plain(X @ A.T), rtol=1e-12)
    single = along(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, plain(X @ A.T), rtol=1e-4, atol=1e-4)


def test_the_identity_changes_nothing():
    X = np.random.default_rng(0).normal(size=(40, 3))
    scales = (0.7, 1.4, 2.0)
    np.testing.assert_allclose(RBF(scales, directions=np.eye(3))(X), RBF(scales)(X), rtol=1e-13)


def test_its_values_are_plain_and_come_back():
    kernel = Matern((0.7, 1.4), 2.5, directions=A)
    assert kernel.directions == tuple(map(tuple, A.tolist()))
    assert hash(kernel) == hash(Matern((0.7, 1.4), 2.5, directions=A.tolist()))
    assert kernel != Matern((0.7, 1.4), 2.5)
    assert kernel_from_config(kernel_config(kernel)) == kernel
    assert "directions" not in kernel_config(Matern())
    assert "along 2 directions of 3 features" in str(kernel)
    assert "nan" not in repr(kernel)


def test_length_scales_of_single_features():
    scales = RBF((2.0, 0.5), directions=A).feature_scales
    for j, scale in enumerate(scales):
        step = np.zeros((2, 3))
        step[1, j] = scale
        assert RBF((2.0, 0.5), directions=A)(step)[0, 1] == pytest.approx(np.exp(-0.5))
    assert RBF((2.0, 0.5)).feature_scales == (2.0, 0.5)
    assert RBF(directions=[[1.0, 0.0]]).feature_scales == (1.0, np.inf)


@pytest.mark.parametrize(
    ("directions", "scale", "words"),
    [
        ([1.0, 2.0], 1.0, "matrix"),
        ([[1.0, np.nan]], 1.0, "finite"),
        ([[]], 1.0, "matrix"),
        (A, (1.0, 2.0, 3.0), "3 values for 2 directions"),
    ],
)
def test_no_directions(directions, scale, words):
    with pytest.raises(InvalidParameterError, match=words):
        RBF(scale, directions=directions)


def test_rows_of_other_features():
    with pytest.raises(InvalidParameterError, match="of 3 features, but the rows have 4"):
        RBF(directions=A)(np.ones((5, 4)))


@pytest.mark.parametrize("family", [RBF(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient(family, weighted):
    X, y = arm(60)
    X = X[:, :4]
    v = np.random.default_rng(1).uniform(0.5, 2, 60) if weighted else None
    rows = TuningRows(X, np.column_stack([y, X[:, 0]]), v)
    start = np.append(np.random.default_rng(2).normal(size=8) / 2, np.log(0.1))

    def value(values):
        return likelihood_of_directions(family, values[:-1].reshape(2, 4), values[-1], rows)[0]

    _, by_directions, by_noise = likelihood_of_directions(
        family, start[:-1].reshape(2, 4), start[-1], rows
    )
    numeric = approx_fprime(start, value, 1e-6)
    np.testing.assert_allclose(np.append(by_directions, by_noise), numeric, atol=5e-5)


def test_the_directions_of_an_arm_are_found():
    X, y = arm(1600)
    rows = TuningRows(X, y[:, None])
    start = likely_kernel(RBF(), rows, separate=True)
    found = likely_directions(start, rows)
    assert found.value < start.value - 0.2
    kernel = found.kernel
    V = np.array(kernel.directions)
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-9)
    assert list(kernel.length_scale) == sorted(kernel.length_scale)
    changes = np.linalg.norm(V / np.array(kernel.length_scale)[:, None], axis=0)
    assert changes[6] < 0.1 * changes[:5].min()  # the last angle has no say


def test_of_too_many_features_there_are_none():
    X = np.random.default_rng(0).normal(size=(200, 33))
    rows = TuningRows(X, X[:, :1])
    assert likely_directions(likely_kernel(RBF(), rows, separate=True), rows) is None


def test_they_have_to_be_clearly_better():
    separate = Candidate("ARD", RBF((1.0, 2.0)), loss=0.5)
    for loss, chosen in ((0.483, "ARD"), (0.47, "directions"), (np.inf, "ARD")):
        turned = Candidate("directions", RBF(directions=np.eye(2)), loss=loss)
        assert choose_kernel([separate, turned], "error").chosen.length_scale == chosen


@pytest.fixture(scope="module")
def fitted():
    X, y = arm(8000, noise=0.01)
    frame = pd.DataFrame(X, columns=list("abcdefg")).assign(y=y)
    table = dd.from_pandas(frame, npartitions=3)
    along, separate = (
        squeak_dist.fit(table, target="y", max_dictionary=250, length_scale=how)
        for how in ("auto", "ARD")
    )
    return frame, along, separate


def test_a_fit_finds_them_and_halves_its_error(fitted):
    _, along, separate = fitted
    assert along.report_["tuning"]["chosen"] == "directions"
    assert separate.report_["tuning"]["chosen"] == "ARD"
    assert along.kernel_.directions is not None
    assert separate.kernel_.directions is None
    X, y = arm(2000, seed=1, noise=0)
    new = pd.DataFrame(X, columns=list("abcdefg"))
    errors = [np.std(model.predict(new) - y) for model in (along, separate)]
    assert errors[0] < errors[1] / 2


def test_they_are_stored(fitted, tmp_path):
    frame, along, _ = fitted
    along.save(tmp_path / "model.zarr")
    again = squeak_dist.load(tmp_path / "model.zarr")
    assert again.kernel_ == along.kernel_
    assert again.predict(frame).tobytes() == along.predict(frame).tobytes()


def test_the_report_says_so(fitted, tmp_path):
    _, along, separate = fitted
    page = along.report(tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "RBF along 7 directions, length scales of columns a " in page
    assert "along" not in str(separate.kernel_)


def test_rows_of_no_sum_get_none():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.2 * rng.normal(size=6000)
    model = squeak_dist.fit(X, y, max_dictionary=200)
    assert model.report_["tuning"]["chosen"] == "ARD"


def test_directions_of_ones_own():
    X, y = arm(4000)
    kernel = RBF(2.0, directions=np.tril(np.ones((6, 7))))
    model = squeak_dist.fit(X, y, kernel=kernel, max_dictionary=200)
    assert model.kernel_ == kernel
    assert np.std(model.predict(X) - y) < 0.1
