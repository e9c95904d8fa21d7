"""The stages of a fit, run as a plain loop without any scheduler."""

from __future__ import annotations

import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from squeak_dist.errors import ColumnsDropped, EmptyDataError, FitStopped, GammaRaised
from squeak_dist.kernels import RBF, Laplacian, Linear, Matern, Polynomial
from squeak_dist.leverage import accuracy_ratio, effective_dimension
from squeak_dist.stages import (
    FitParameters,
    PlainExecutor,
    fit_tables,
    iterating,
    projected_bytes,
)
from squeak_dist.stages.executors import reduce_tree
from squeak_dist.stages.planning import make_layout, make_plan, profile_stage
from squeak_dist.table import TableSchema, cut_table

EVERY_ROW = {
    "gamma": 1e-12,
    "max_dictionary": None,
    "dtype": "float64",
    "linear_part": False,
}


def made(n, seed=0, d=3, noise=0.1):
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1] + noise * rng.normal(size=n)
    return X, y


def tables_of(X, y, weights=None, parts=1):
    """The partitions of arrays, as a source cuts them, and their schema."""
    frame = pd.DataFrame(np.asarray(X))
    targets = pd.DataFrame(y).add_prefix("y")
    frame = pd.concat([frame, targets], axis=1)
    if weights is not None:
        frame["w"] = weights
    schema = TableSchema(
        tuple(range(np.shape(X)[1])), tuple(targets), None if weights is None else "w"
    )
    cuts = parts if np.ndim(parts) else [len(frame) * i // parts for i in range(1, parts)]
    edges = [0, *cuts, len(frame)]
    pieces = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return [cut_table(piece, schema) for piece in pieces], schema


def plain_fit(X, y, weights=None, parts=1, **settings):
    """Fit with the plain executor; without the search for a kernel, which rounding decides."""
    tables, schema = tables_of(X, y, weights, parts)
    if "kernel" not in settings:
        settings = {"kernel": "rbf", "length_scale": "median"} | settings
    return fit_tables(
        PlainExecutor(),
        tables,
        schema,
        FitParameters(**settings),
        target_names=tuple(map(str, schema.targets)),
        single_output=np.ndim(y) == 1,
    )


def predict(model, X):
    encoded, kept = model.encoding.encode(pd.DataFrame(X))
    assert kept.all()
    predictions = model.predict_encoded(encoded)
    return predictions[:, 0] if model.single_output else predictions


def bits(model):
    dictionary = model.dictionary
    return (
        dictionary.points.tobytes(),
        dictionary.indices.tobytes(),
        dictionary.probabilities.tobytes(),
        dictionary.multiplicities.tobytes(),
        model.coefficients.tobytes(),
        model.linear_coefficients.tobytes(),
        model.mu,
        dictionary.gamma,
    )


# --- the whole kernel matrix ------------------------------------------------------------------


@pytest.mark.parametrize("approximation", ["projected", "regularized"])
@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (RBF(0.7), {"kernel": "rbf", "gamma": 0.5 / 0.7**2}),
        (Laplacian(2.0), {"kernel": "laplacian", "gamma": 0.5}),
        (Polynomial(2.0, 3, 1.0), {"kernel": "polynomial", "gamma": 0.25, "degree": 3}),
        (Matern(1.5, 1.5), {"kernel": SklearnMatern(1.5, nu=1.5)}),
        (Linear(1.0), {"kernel": "linear"}),
    ],
)
def test_with_every_row_it_is_kernel_ridge_regression(kernel, reference, approximation):
    X, y = made(200)
    X_new, _ = made(100, seed=1)
    model = plain_fit(X, y, kernel=kernel, mu=0.3, approximation=approximation, **EVERY_ROW)
    if not isinstance(kernel, Linear | Polynomial):  # of low rank: a few rows span them
        assert len(model.dictionary) == len(X)
    exact = KernelRidge(alpha=0.3, **reference).fit(X - X.mean(axis=0), y - y.mean())
    expected = exact.predict(X_new - X.mean(axis=0)) + y.mean()
    np.testing.assert_allclose(predict(model, X_new), expected, rtol=0, atol=1e-8)


def test_with_many_copies_every_row_is_kept():
    X, y = made(150)
    model = plain_fit(
        X, y, length_scale=0.7, mu=0.3, gamma=0.1, qbar=2000, linear_part=False, dtype="float64"
    )
    assert len(model.dictionary) == len(X)
    exact = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.5 / 0.7**2).fit(X, y - y.mean())
    np.testing.assert_allclose(predict(model, X), exact.predict(X) + y.mean(), rtol=0, atol=1e-8)


def test_the_paper_to_the_letter():
    X, y = made(60)
    model = plain_fit(X, y, qbar="theory", gamma=1.0)
    assert model.dictionary.qbar > 1000
    assert len(model.dictionary) == len(X)


def test_a_kernel_object_and_its_name_are_the_same_model():
    X, y = made(300)
    named = plain_fit(X, y, kernel="matern", length_scale=2.0, gamma=0.1)
    given = plain_fit(X, y, kernel=Matern(2.0), gamma=0.1)
    assert bits(named) == bits(given)


# --- intercept, offsets, scales ---------------------------------------------------------------


@pytest.mark.parametrize(("solver", "atol"), [("direct", 1e-9), ("cg", 1e-3)])
def test_a_shifted_target_shifts_the_predictions(solver, atol):
    X, y = made(1200)
    settings = {"mu": 0.01, "max_dictionary": 150, "solver": solver}
    plain, shifted = plain_fit(X, y, **settings), plain_fit(X, y + 1e3, **settings)
    assert shifted.target_mean[0] == pytest.approx(y.mean() + 1e3)
    difference = predict(shifted, X) - predict(plain, X)
    np.testing.assert_allclose(difference, 1e3, rtol=0, atol=atol)


def test_mu_does_not_depend_on_a_shift_of_the_target():
    X, y = made(500)
    plain, shifted = plain_fit(X, y), plain_fit(X, y - 1e6)
    assert shifted.mu == pytest.approx(plain.mu, rel=1e-4)
    np.testing.assert_allclose(predict(shifted, X) + 1e6, predict(plain, X), atol=1e-5)


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("length_scale", ["auto", 1.5])
def test_features_far_from_zero(offset, length_scale):
    X, y = made(600)
    settings = {"mu": 0.02, "length_scale": length_scale, "max_dictionary": 200}
    near, far = plain_fit(X, y, **settings), plain_fit(X + offset, y, **settings)
    assert far.dictionary.points.dtype == np.float32
    gap = predict(far, X + offset) - predict(near, X)
    assert np.abs(gap).max() < 1e-3 * y.std()


def test_float32_columns_far_from_zero_lose_only_their_own_rounding():
    X, y = made(600)
    stored = (X + 1e4).astype(np.float32)
    centred = stored.astype(np.float64) - 1e4
    settings = {"mu": 0.02, "max_dictionary": 200}
    near, far = plain_fit(centred, y, **settings), plain_fit(stored, y, **settings)
    assert np.abs(predict(far, stored) - predict(near, centred)).max() < 1e-3 * y.std()


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_units_do_not_matter(scale):
    X, y = made(400)
    units = np.array([scale, 1.0, 1 / scale])
    model = plain_fit(X * units, y)
    np.testing.assert_allclose(
        predict(model, X * units), predict(plain_fit(X, y), X), rtol=0, atol=0.02 * y.std()
    )
    in_other_units = predict(plain_fit(X, y * scale), X) / scale
    np.testing.assert_allclose(
        in_other_units, predict(plain_fit(X, y), X), rtol=0, atol=0.02 * y.std()
    )


def test_a_given_length_scale_is_in_the_units_of_the_columns():
    X, y = made(300)
    stretched = X * [10, 1, 1]
    one = plain_fit(X, y, length_scale=2.0, mu=0.1, gamma=0.1)
    other = plain_fit(stretched, y, length_scale=[20.0, 2.0, 2.0], mu=0.1, gamma=0.1)
    np.testing.assert_allclose(predict(other, stretched), predict(one, X), atol=1e-3)
    unscaled = plain_fit(stretched, y, length_scale=2.0, mu=0.1, gamma=0.1)
    assert np.abs(predict(unscaled, stretched) - predict(one, X)).max() > 0.1
    scaled = plain_fit(stretched, y, length_scale=2.0, mu=0.1, gamma=0.1, standardize=True)
    np.testing.assert_allclose(predict(scaled, stretched), predict(one, X), atol=0.2)


# --- repeated rows, weights, outputs ----------------------------------------------------------


@pytest.mark.parametrize("jitter", [0.0, 1e-7])
def test_duplicates_give_finite_right_predictions(jitter):
    X, y = made(80)
    X_new, _ = made(200, seed=1)
    rng = np.random.default_rng(0)
    copies = np.repeat(X, 50, axis=0)
    copies += jitter * rng.normal(size=copies.shape)
    model = plain_fit(
        copies, np.repeat(y, 50), length_scale=1.0, mu=0.5, gamma=0.5, max_dictionary=600
    )
    exact = KernelRidge(alpha=0.01, kernel="rbf", gamma=0.5).fit(X, y - y.mean())
    expected = exact.predict(X_new) + y.mean()
    assert np.abs(predict(model, X_new) - expected).max() < 0.01 * y.std()


def test_automatic_parameters_survive_duplicates():
    X, y = made(80)
    model = plain_fit(np.repeat(X, 50, axis=0), np.repeat(y, 50))
    assert np.sqrt(np.mean((predict(model, X) - y) ** 2)) < 0.1 * y.std()


def test_a_constant_column_is_left_out_with_a_warning():
    X, y = made(300)
    with pytest.warns(ColumnsDropped, match=r"1 \(constant\)"):
        model = plain_fit(np.insert(X, 1, 7.0, axis=1), y)
    without = plain_fit(X, y)
    assert bits(model) == bits(without)
    assert model.encoding.labels == (0, 1, 2, 3)  # still asked for when predicting


@pytest.mark.parametrize("approximation", ["projected", "regularized"])
def test_a_weight_is_a_number_of_repeated_rows(approximation):
    X, y = made(150)
    X_new, _ = made(50, seed=1)
    copies = np.random.default_rng(0).integers(0, 4, size=len(X))
    settings = {"length_scale": 0.7, "mu": 0.3, "approximation": approximation} | EVERY_ROW
    weighted = plain_fit(X, y, copies.astype(float), **settings)
    repeated = plain_fit(np.repeat(X, copies, axis=0), np.repeat(y, copies), **settings)
    assert weighted.target_mean[0] == pytest.approx(np.average(y, weights=copies))
    assert weighted.report["train_rmse"] == pytest.approx(repeated.report["train_rmse"])
    np.testing.assert_allclose(
        predict(weighted, X_new), predict(repeated, X_new), rtol=0, atol=1e-7
    )


def test_rows_of_weight_zero_are_never_kept():
    X, y = made(400)
    weights = np.where(np.arange(400) % 4 == 0, 0.0, 1.0)
    y[weights == 0] = 1e6  # would be seen in any sum
    model = plain_fit(X, y, weights, parts=3, mu=0.1, gamma=0.1)
    assert np.all(weights[model.dictionary.indices] > 0)
    assert np.abs(predict(model, X)).max() < 10


@pytest.mark.parametrize("factor", [1e-15, 1e-3, 1e6])
def test_only_the_ratios_of_weights_matter(factor):
    X, y = made(300)
    weights = np.random.default_rng(0).uniform(0.5, 2, size=300)
    one = plain_fit(X, y, weights, max_dictionary=100)
    other = plain_fit(X, y, factor * weights, max_dictionary=100)
    assert other.mu == pytest.approx(factor * one.mu, rel=0.05)
    gap = predict(other, X) - predict(one, X)
    assert np.sqrt(np.mean(gap**2)) < 0.02 * y.std()


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_several_outputs_are_several_fits(solver):
    X, y = made(1500)
    targets = np.column_stack([y, np.cos(X[:, 0]), 100 - y])
    settings = {"mu": 0.1, "max_dictionary": 100, "dtype": "float64", "solver": solver}
    together = predict(plain_fit(X, targets, **settings), X)
    for j in range(3):
        alone = predict(plain_fit(X, targets[:, j], **settings), X)
        gap = np.sqrt(np.mean((together[:, j] - alone) ** 2))
        # Conjugate gradients stop at a tolerance, which several outputs share.
        assert gap < (1e-9 if solver == "direct" else 0.02) * targets[:, j].std()


# --- size of the dictionary -------------------------------------------------------------------


def test_gamma_is_raised_with_a_warning_where_it_was_given():
    X, y = made(1500)
    with pytest.warns(GammaRaised, match=r"raised from 1e-06 to .* max_dictionary=80"):
        model = plain_fit(X, y, gamma=1e-6, max_dictionary=80, parts=3)
    assert len(model.dictionary) <= 80
    assert model.dictionary.gamma > 1e-6
    assert model.report["gamma"] == model.dictionary.gamma
    assert model.report["gamma_requested"] == 1e-6


def test_an_automatic_gamma_is_raised_in_silence():
    X, y = made(1500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = plain_fit(X, y, max_dictionary=80)
    assert len(model.dictionary) <= 80


def test_a_stream_that_stops_says_how_far_it_came():
    X, y = made(2000)
    with pytest.warns(FitStopped, match=r"after [\d,]+ of 2,000 rows"):
        model = plain_fit(
            X, y, gamma=1e-3, max_dictionary=120, on_overrun="stop", parts=8, mu=0.01
        )
    report = model.report
    assert report["stopped"]
    assert report["gamma"] == 1e-3  # any-time: not raised
    assert report["rows"] == 2000
    assert report["chains"] == 1
    seen = report["rows_in_dictionary_pass"]
    assert 120 <= seen < 2000
    assert len(model.dictionary) <= 120
    assert model.dictionary.indices.max() < seen
    # All rows count in the regression all the same.
    assert report["train_rmse"][0] == pytest.approx(
        np.sqrt(np.mean((predict(model, X) - y) ** 2)), rel=1e-3
    )


def test_a_stream_that_fits_does_not_stop():
    X, y = made(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = plain_fit(X, y, gamma=10.0, max_dictionary=900, on_overrun="stop", parts=4)
    assert not model.report["stopped"]
    assert model.report["rows_in_dictionary_pass"] == 1000


@pytest.mark.parametrize("mu", [1e3, 1e9])
def test_a_large_mu_leaves_the_mean_not_an_empty_dictionary(mu):
    X, y = made(200)
    model = plain_fit(X, y + 5, mu=mu)
    assert len(model.dictionary)
    np.testing.assert_allclose(predict(model, X), y.mean() + 5, atol=y.std())


def test_a_gamma_that_empties_the_dictionary_is_named():
    X, y = made(200)
    with pytest.raises(EmptyDataError, match="gamma"):
        plain_fit(X, y, gamma=1e12)


def test_the_effective_dimension_is_that_of_all_rows():
    X, y = made(800)
    model = plain_fit(X, y, length_scale=1.5, gamma=2.0, qbar=64, parts=4)
    K = RBF(1.5)(X, X)
    exact = effective_dimension(K, 2.0)
    assert exact / accuracy_ratio(0.3) < model.report["effective_dimension"]
    assert model.report["effective_dimension"] == pytest.approx(exact, rel=0.2)


# --- rows are neither lost nor repeated -------------------------------------------------------


@pytest.mark.parametrize("cuts", [[0, 0, 300], [100, 100, 250], [300, 400, 400], [1, 2, 399]])
def test_the_dictionary_is_made_of_rows_of_the_table(cuts):
    X, y = made(400)
    model = plain_fit(X, y, parts=cuts, gamma=0.5, length_scale=1.5)
    indices = model.dictionary.indices
    assert len(np.unique(indices)) == len(indices)
    encoded, _ = model.encoding.encode(pd.DataFrame(X))
    assert model.dictionary.points.tobytes() == encoded[indices].tobytes()
    assert model.report["rows_in_dictionary_pass"] == 400
    assert model.report["partition_rows"] == np.diff([0, *cuts, 400]).tolist()
    assert np.sqrt(np.mean((predict(model, X) - y) ** 2)) < 0.3 * y.std()


@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_row_numbers_count_dropped_rows(missing):
    X, y = made(400)
    X[::7, 1], y[::11] = np.nan, np.nan
    model = plain_fit(X, y, parts=3, missing=missing, gamma=0.5)
    dropped = np.isnan(y) | (np.isnan(X).any(axis=1) if missing == "drop" else False)
    assert model.report["rows"] == 400
    assert model.report["rows_dropped"] == dropped.sum()
    assert model.report["rows_fitted"] == 400 - dropped.sum()
    indices = model.dictionary.indices
    assert not dropped[indices].any()
    encoded, _ = model.encoding.encode(pd.DataFrame(X[indices]))
    assert model.dictionary.points.tobytes() == encoded.tobytes()


def test_the_sums_hold_every_row_once():
    X, y = made(700)
    model = plain_fit(X, y, parts=[3, 3, 90, 500], length_scale=1.5, gamma=0.01, dtype="float64")
    rmse = np.sqrt(np.mean((predict(model, X) - y) ** 2))
    assert model.report["train_rmse"][0] == pytest.approx(rmse, rel=1e-6)
    centred, mean = X - X.mean(axis=0), y.mean()
    # The linear baseline too: some ridge regression on the encoded columns.
    linear = centred @ model.linear_coefficients[:-1, 0] + model.linear_coefficients[-1, 0] + mean
    ordinary = Ridge(alpha=1e-8).fit(centred, y).predict(centred)
    assert np.sqrt(np.mean((linear - ordinary) ** 2)) < 0.05 * y.std()


# --- bits -------------------------------------------------------------------------------------


def test_the_seed_decides_every_bit():
    X, y = made(600)
    settings = {"parts": 5, "max_dictionary": 80}
    first = plain_fit(X, y, **settings, seed=3)
    assert bits(plain_fit(X, y, **settings, seed=3)) == bits(first)
    other = plain_fit(X, y, **settings, seed=4)
    assert set(other.dictionary.indices) != set(first.dictionary.indices)


@pytest.mark.parametrize("rows_per_step", [1, 100, 10**9])
@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_the_grouping_into_tasks_decides_no_bit(monkeypatch, rows_per_step, solver):
    X, y = made(1200)
    settings = {"parts": 24, "max_dictionary": 80, "mu": 0.1, "solver": solver}
    reference = plain_fit(X, y, **settings)
    monkeypatch.setattr("squeak_dist.stages.planning._STEP_ROWS", rows_per_step)
    assert bits(plain_fit(X, y, **settings)) == bits(reference)


# --- tree and report --------------------------------------------------------------------------


@pytest.mark.parametrize(("fan_in", "merges"), [(2, 7), (3, 4), (8, 1)])
def test_the_report_lists_every_node_of_the_tree(fan_in, merges):
    X, y = made(800)
    report = plain_fit(X, y, parts=16, fan_in=fan_in, max_dictionary=80).report
    assert report["chains"] == 8
    chains = [node for node in report["merges"] if node["level"] == 0]
    inner = [node for node in report["merges"] if node["level"] > 0]
    assert len(chains) == 8
    assert len(inner) == merges
    assert sum(node["rows"] for node in chains) == 800
    assert max(inner, key=lambda node: node["level"])["rows"] == 800
    assert inner[-1]["size_out"] == report["dictionary_size"]
    assert all(node["size_out"] <= max(80, node["size_in"]) for node in report["merges"])


def test_the_report_is_plain():
    X, y = made(300)
    report = plain_fit(X, np.column_stack([y, X[:, 0]]), parts=2).report
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert set(report["seconds"]) == {"profile", "tuning", "dictionary", "solve"}
    assert all(seconds >= 0 for seconds in report["seconds"].values())
    assert report["peak_worker_bytes"] > 2**20
    assert report["target_mean"] == pytest.approx([y.mean(), X[:, 0].mean()])
    assert report["target_std"] == pytest.approx([y.std(), X[:, 0].std()])
    assert report["encoded_features"] == 3
    assert report["task"] == "regression"


def test_reduce_tree_keeps_the_order():
    leaves = list("abcdefg")
    levels = (((0, 1), (2, 3), (4, 5), (6,)), ((0, 1), (2, 3)), ((0, 1),))
    places = []

    def combine(nodes, level, index):
        places.append((level, index))
        return (lambda parts: f"({''.join(parts)})"), nodes

    assert reduce_tree(PlainExecutor(), leaves, levels, combine) == "(((ab)(cd))((ef)g))"
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


# --- conjugate gradients ----------------------------------------------------------------------


def test_conjugate_gradients_agree_with_the_direct_solve():
    X, y = made(4000, d=4)
    settings = {"mu": 0.1, "max_dictionary": 150, "parts": 5}
    direct = plain_fit(X, y, solver="direct", **settings)
    iterated = plain_fit(X, y, solver="cg", **settings)
    assert (direct.report["solver"], iterated.report["solver"]) == ("direct", "cg")
    residuals = iterated.report["cg_residuals"]
    assert residuals[-1] < 0.02 < residuals[0]
    assert direct.dictionary.points.tobytes() == iterated.dictionary.points.tobytes()
    errors = [predict(model, X) - y for model in (direct, iterated)]
    rmse = [np.sqrt(np.mean(error**2)) for error in errors]
    assert rmse[1] == pytest.approx(rmse[0], rel=2e-3)
    assert iterated.report["train_rmse"][0] == pytest.approx(rmse[1], rel=1e-3)


def test_each_iteration_has_its_residual_seconds_and_error():
    """The errors are those of the iterates, which no pass over the rows was made for."""
    X, y = made(4000, d=4)
    settings = {"mu": 0.1, "max_dictionary": 150, "parts": 5, "solver": "cg"}
    outputs = np.stack([y, 100 * np.sin(y) + 5], axis=1)
    report = plain_fit(X, outputs, **settings).report
    errors = np.array(report["cg_train_rmse"])
    assert errors.shape == (len(report["cg_residuals"]), 2)
    assert len(report["cg_seconds"]) == len(errors) > 1
    np.testing.assert_allclose(errors[-1], report["train_rmse"], rtol=1e-12)
    assert (errors[-1] < errors[0]).all()
    assert (np.diff(errors, axis=0) < 1e-3 * errors[:-1]).all()


def test_where_the_residual_is_computed_anew_the_error_is_too(monkeypatch):
    X, y = made(4000, d=4)
    drifts = []

    def drifted(origin, state, system, nystrom):
        drifts.append(real(origin, state, system, nystrom))
        return 1.0 if state is not origin.state and len(starts) < 2 else drifts[-1]

    def restarted(*args):
        starts.append(real_restart(*args))
        return starts[-1]

    real, real_restart, starts = iterating._drift, iterating._restart, []
    monkeypatch.setattr(iterating, "_drift", drifted)
    monkeypatch.setattr(iterating, "_restart", restarted)
    report = plain_fit(X, y, mu=0.1, max_dictionary=150, parts=5, solver="cg").report
    assert len(starts) == 2, "the iterations did not start anew"
    assert len(report["cg_train_rmse"]) == len(report["cg_residuals"])
    anew = np.sqrt(starts[1].square / 4000)
    scale = report["target_std"][0]
    assert any(np.array(rmse) == pytest.approx(anew * scale, rel=1e-12)
               for rmse in report["cg_train_rmse"])  # fmt: skip


def test_the_training_error_of_conjugate_gradients_at_a_small_mu():
    """Where rounding in the sums is as large as what the fit leaves unexplained."""
    X, y = made(6000)
    model = plain_fit(X, y, solver="cg", mu=1e-3, max_dictionary=200)
    rmse = np.sqrt(np.mean((predict(model, X) - y) ** 2))
    assert model.report["train_rmse"][0] == pytest.approx(rmse, rel=0.02)


def test_a_residual_that_is_no_number_is_not_taken_for_a_small_one(monkeypatch):
    X, y = made(4000, d=4)
    settings = {"mu": 0.1, "max_dictionary": 150, "parts": 5}
    assert plain_fit(X, y, solver="cg", **settings).report["solver"] == "cg"
    monkeypatch.setattr(iterating, "_residual", lambda state: float("nan"))
    model = plain_fit(X, y, solver="cg", **settings)
    assert model.report["solver"] == "direct"
    assert np.isfinite(model.coefficients).all()


def test_where_the_iterations_would_not_converge_the_direct_solve_comes_in():
    X, y = made(3000)
    settings = {"mu": 1e-18, "max_dictionary": 150, "dtype": "float64", "length_scale": 30.0}
    model = plain_fit(X, y, solver="cg", **settings)
    direct = plain_fit(X, y, solver="direct", **settings)
    assert model.report["solver"] == "direct"
    assert bits(model) == bits(direct)


def test_a_small_table_is_solved_directly():
    X, y = made(500)
    assert plain_fit(X, y).report["solver"] == "direct"


# --- plan -------------------------------------------------------------------------------------


def plan_of(X, y, parts=1, **settings):
    parameters = FitParameters(**settings)
    tables, _ = tables_of(X, y, parts=parts)
    executor = PlainExecutor()
    profile = profile_stage(executor, tables, parameters)
    layout = make_layout(profile, len(tables), parameters)
    return make_plan(executor, profile, layout, parameters)


def test_the_plan_is_a_rule_of_data_and_parameters():
    X, y = made(400)
    plan = plan_of(X, y, parts=[0, 100, 100, 250])
    assert plan.partition_rows == (0, 100, 0, 150, 150)
    assert plan.tree.chains == ((1,), (3,), (4,))  # empty partitions are in no chain
    assert plan.encoding.standardize
    assert not plan_of(X, y, length_scale=1.0).encoding.standardize
    assert not plan_of(X, y, kernel=RBF(1.0)).encoding.standardize
    assert plan_of(X, y, length_scale=1.0, standardize=True).encoding.standardize


def test_no_partitions_at_all():
    with pytest.raises(EmptyDataError, match="no partitions"):
        profile_stage(PlainExecutor(), [], FitParameters())


def test_projected_bytes_follow_the_dictionary_not_the_rows():
    X, y = made(3000)
    plan = plan_of(X, y, parts=10)

    def projected(rows=(300,) * 10, **settings):
        cut = replace(plan, partition_rows=rows)
        return projected_bytes(cut, FitParameters(**settings), 1)

    small, explanation = projected(max_dictionary=1000)
    assert "1,000 rows" in explanation
    assert "300 rows × 3 encoded columns" in explanation
    large, _ = projected(max_dictionary=2000)
    assert 3.5 < large / small < 4.5
    wide, _ = projected(max_dictionary=1000, fan_in=4)
    assert 3.5 < wide / small < 4.5
    assert projected(max_dictionary=None)[0] == projected(max_dictionary=3000)[0]
    with_rows, text = projected(rows=(10**7,) * 3, max_dictionary=1000)
    assert with_rows - small > 10**7 * 8
    assert "repartition" not in text
    giant, text = projected(rows=(10,) * 20 + (10**7,) + (10,) * 30, max_dictionary=1000)
    assert giant == with_rows
    assert "10,000,000 rows × 3 encoded columns; partition 20, counted from 0," in text
    assert "median of 51 has 10: cut it, e.g. with X.repartition(" in text
