"""Cross-validation from sums, against cross-validation by fits."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.kernel_ridge import KernelRidge

from squeak_dist.errors import DataError, InvalidParameterError
from squeak_dist.model_selection import dictionary_curve, mu_path
from squeak_dist.stages.dictionaries import task_rng

SETTINGS = {
    "gamma": 1e-10,
    "max_dictionary": None,
    "dtype": "float64",
    "length_scale": 1.0,
    "linear_part": False,
}


def made(n, noise=0.3):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


def test_with_every_row_it_is_cross_validation_of_kernel_ridge():
    X, y = made(300)
    mus = [0.01, 0.3, 10.0]
    path = mu_path(X, y, mus=mus, folds=3, **SETTINGS)
    dealt = task_rng(0, 5, 0, 0).integers(3, size=300)
    centred, mean = X - X.mean(axis=0), y.mean()
    for mu in mus:
        for fold in range(3):
            left = dealt == fold
            model = KernelRidge(alpha=mu, kernel="rbf", gamma=0.5)
            model.fit(centred[~left], y[~left] - mean)
            errors = y[left] - mean - model.predict(centred[left])
            # The span of all rows, not of the training rows alone: a little more accurate.
            assert path.loc[mu, f"rmse_{fold}"] == pytest.approx(
                np.sqrt(np.mean(errors**2)), rel=1e-3
            )
        model = KernelRidge(alpha=mu, kernel="rbf", gamma=0.5).fit(centred, y - mean)
        rmse = np.sqrt(np.mean((y - mean - model.predict(centred)) ** 2))
        assert path.loc[mu, "train_rmse"] == pytest.approx(rmse, rel=1e-6)
    assert path["rmse"].idxmin() == 0.3
    assert (path["degrees_of_freedom"].diff().dropna() < 0).all()


def test_the_default_path_has_its_best_inside():
    X, y = made(2000)
    path = mu_path(X, y, max_dictionary=200)
    assert len(path) == 13
    best = path["rmse"].argmin()
    assert 2 < best < 11
    assert path["rmse"].min() == pytest.approx(0.3, rel=0.1)
    assert path["gcv"].argmin() == pytest.approx(best, abs=1)


def test_partitions_are_left_out_whole():
    X, y = made(900)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    # Each partition has an offset of its own that only its own rows can teach.
    frame["b"] += np.repeat(np.arange(9), 100) * 30
    frame["y"] += np.repeat(np.random.default_rng(0).normal(size=9) * 5, 100)
    table = dd.from_pandas(frame, npartitions=9)
    settings = {"folds": 3, "max_dictionary": 200, "standardize": False, "length_scale": 3.0}
    rows = mu_path(table, target="y", by="row", **settings)
    parts = mu_path(table, target="y", by="partition", **settings)
    assert parts["rmse"].min() > 2 * rows["rmse"].min()


def test_the_same_on_any_partitions_of_workers_and_again():
    X, y = made(600)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y, w=np.arange(600) % 3)
    table = dd.from_pandas(frame, npartitions=3)
    one = mu_path(table, target="y", sample_weight="w", max_dictionary=50)
    two = mu_path(table, target="y", sample_weight="w", max_dictionary=50)
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_a_larger_dictionary_is_more_accurate():
    X, y = made(3000, noise=0.05)
    plain = {"kernel": "rbf", "length_scale": "median"}  # 16 rows of the best kernel are enough
    curve = dictionary_curve(X, np.column_stack([y, 2 * y]), max_dictionary=300, **plain)
    assert curve.index.is_monotonic_increasing
    assert curve.index[-1] <= 300
    assert curve["rmse"].iloc[0] > 1.5 * curve["rmse"].iloc[-1]
    assert (curve["mu"] > 0).all()
    chosen = dictionary_curve(X, y, sizes=[5, 20, 10**9], max_dictionary=300, **plain)
    assert list(chosen.index[:2]) == [5, 20]
    assert chosen.index[2] == curve.index[-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mus": [0.0]}, "mus must be"),
        ({"mus": []}, "mus is empty"),
        ({"folds": 1}, "folds must be"),
        ({"by": "fold"}, "by must be one of"),
        ({"mu": 1.0}, "mu cannot be given here"),
        ({"maxdictionary": 5}, "unknown parameter 'maxdictionary'"),
        ({"epsilon": 2}, "epsilon must be"),
    ],
)
def test_bad_settings(settings, message):
    X, y = made(50)
    with pytest.raises(InvalidParameterError, match=message):
        mu_path(X, y, **settings)


def test_a_fold_without_rows():
    X, y = made(50)
    with pytest.raises(DataError, match=r"fold . of 3 has no rows"):
        mu_path(X, y, folds=3, by="partition")
