"""Left-out predictions, leverage scores and the dictionary as a frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.errors import DataError, InvalidParameterError, LengthMismatchError
from squeak_dist.inspection import leverage_scores
from squeak_dist.leverage import exact_rls
from squeak_dist.report import judged
from squeak_dist.report.quality import MODEL, scores_of

TARGET = "median_house_value"


def waves(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    weights = rng.uniform(0.5, 2.0, n)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n), weights


@pytest.mark.parametrize("linear_part", [False, True])
def test_a_left_out_error_is_that_of_a_fit_without_the_row(linear_part):
    X, y, weights = waves()
    fitted = squeak_dist.SqueakRegressor(
        mu=0.3, gamma=1.0, dtype="float64", linear_part=linear_part, solver="direct"
    ).fit(X, y, weights)
    rows, model = judged(fitted), fitted.model_
    assert len(rows) == len(X)  # so small a table is kept whole
    Z = np.concatenate([model._map.transform(rows.rows.X), model._linear_columns(rows.rows.X)], 1)
    Z = Z if linear_part else Z[:, : len(model._map)]
    v, target = rows.rows.weights, rows.rows.targets - model.target_mean
    for i in (0, 7, 90):
        kept = np.arange(len(Z)) != i
        A = (Z[kept] * v[kept, None]).T @ Z[kept] + model.mu * np.eye(Z.shape[1])
        theta = np.linalg.solve(A, Z[kept].T @ (v[kept, None] * target[kept]))
        # The columns of a linear part have a small ridge of their own beside μ.
        tolerance = 1e-5 if linear_part else 1e-9
        expected = Z[i] @ theta + model.target_mean
        np.testing.assert_allclose(rows.predicted[i], expected, rtol=1e-6, atol=tolerance)


def test_the_linear_baseline_is_left_out_as_exactly():
    X, y, weights = waves()
    fitted = squeak_dist.SqueakRegressor(dtype="float64", max_dictionary=40).fit(X, y, weights)
    rows = judged(fitted)
    C = np.column_stack([rows.rows.X, np.ones(len(X))])
    v, mean = rows.rows.weights, fitted.model_.target_mean
    mu = fitted.report_["baseline_mu"]
    for i in (3, 50):
        kept = np.arange(len(C)) != i
        A = (C[kept] * v[kept, None]).T @ C[kept] + mu * np.eye(C.shape[1])
        b = C[kept].T @ (v[kept, None] * (rows.rows.targets[kept] - mean))
        np.testing.assert_allclose(rows.linear[i], C[i] @ np.linalg.solve(A, b) + mean, rtol=1e-6)


def test_left_out_errors_are_larger_than_those_of_the_fit_and_near_those_of_new_rows(model, test):
    rows, new = judged(model), judged(model, test.drop(columns=TARGET), test[TARGET])
    fitted = rows.rows.targets - model.model_.predict_encoded(rows.rows.X)
    rmse = scores_of(rows)[MODEL]["RMSE"]
    assert np.sqrt(np.mean(fitted**2)) < rmse
    assert rmse == pytest.approx(scores_of(new)[MODEL]["RMSE"], rel=0.25)
    assert new.held_out
    assert not rows.held_out


def test_scores_of_held_out_rows_are_those_of_evaluate(model, test):
    ours = scores_of(judged(model, test))
    theirs = model.evaluate(test)
    assert ours[MODEL]["RMSE"] == pytest.approx(theirs.model.rmse[0])
    assert ours["linear ridge"]["R²"] == pytest.approx(theirs.linear.r2[0])
    assert ours["mean"]["RMSE"] == pytest.approx(theirs.mean.rmse[0])


def test_other_methods_stand_beside_ours(model, test):
    rows = judged(model, test)
    perfect = scores_of(rows, {"oracle": test[TARGET].to_numpy()})
    assert perfect["oracle"] == {"RMSE": 0.0, "R²": 1.0}
    assert list(perfect) == ["mean", "linear ridge", "oracle", MODEL]
    with pytest.raises(LengthMismatchError, match="3 predictions"):
        scores_of(rows, {"short": [1.0, 2.0, 3.0]})


def test_scores_of_classes_are_those_of_evaluate(classifier, test):
    rows = judged(classifier, test)
    scores, theirs = scores_of(rows), classifier.evaluate(test)
    assert scores[MODEL]["accuracy"] == pytest.approx(theirs.model.accuracy)
    assert scores[MODEL]["log loss"] == pytest.approx(theirs.model.log_loss)
    assert scores["linear ridge"]["accuracy"] == pytest.approx(theirs.linear.accuracy)
    left_out = scores_of(judged(classifier))[MODEL]
    assert left_out["accuracy"] == pytest.approx(theirs.model.accuracy, abs=0.08)


def test_rows_of_no_weight_and_unknown_labels_are_left_out(classifier, test):
    strange = test.assign(ocean_proximity=test["ocean_proximity"].astype(object))
    strange.loc[strange.index[:5], "ocean_proximity"] = "ON MARS"
    weights = np.ones(len(test))
    weights[5:8] = 0
    assert len(judged(classifier, strange, sample_weight=weights)) == len(test) - 8
    with pytest.raises(DataError, match="n_samples=0"):
        judged(classifier, test, sample_weight=np.zeros(len(test)))


def test_what_cannot_be_judged(model, houses):
    bare = replace(model.model_, sample=None)
    with pytest.raises(DataError, match="format 2"):
        judged(bare)
    with pytest.raises(DataError, match="pass them as y"):
        judged(model, houses.drop(columns=TARGET))
    with pytest.raises(DataError, match=r"X has 1,500 rows and y 2"):
        judged(model, houses.drop(columns=TARGET), [1.0, 2.0])
    with pytest.raises(InvalidParameterError, match="fitted estimator"):
        judged(houses)
    features = squeak_dist.SqueakTransformer(max_dictionary=20).fit(waves()[0])
    with pytest.raises(InvalidParameterError, match="SqueakTransformer has no predictions"):
        judged(features)


def test_leverage_scores_are_close_to_the_exact_ones():
    X, y, _ = waves(300)
    model = squeak_dist.SqueakRegressor(gamma=2.0, qbar=400, dtype="float64").fit(X, y).model_
    encoded, _ = model.encoding.encode(X)
    exact = exact_rls(model.kernel(encoded, encoded), model.dictionary.gamma)
    ratio = leverage_scores(model, encoded) / exact
    alpha = (1 + model.epsilon) / (1 - model.epsilon)
    assert ratio.max() <= 1.01
    assert ratio.min() >= 0.99 / alpha


def test_the_dictionary_as_a_frame_has_the_rows_of_the_data(model, train):
    frame = model.dictionary_frame()
    assert frame.index.name == "row"
    assert list(frame.columns[-4:]) == ["probability", "multiplicity", "weight", "leverage"]
    original = train.drop(columns=TARGET).iloc[frame.index]
    for name in original:
        if original[name].dtype.kind == "f":
            np.testing.assert_allclose(frame[name], original[name], rtol=1e-4)
        else:
            assert list(frame[name]) == list(original[name])
    assert frame["leverage"].between(0, 1).all()
    np.testing.assert_array_equal(frame["multiplicity"], model.dictionary_.multiplicities)


def test_columns_that_are_called_as_ours_keep_their_names():
    X, y, _ = waves(60)
    frame = pd.DataFrame(X, columns=["weight", "leverage"]).assign(y=y)
    found = squeak_dist.fit(frame, target="y", max_dictionary=20).dictionary_frame()
    assert list(found.columns) == [
        "weight", "leverage", "probability", "multiplicity", "_weight", "_leverage",
    ]  # fmt: skip
    np.testing.assert_allclose(found["weight"], X[found.index, 0], rtol=1e-4)


def test_the_sample_is_bounded_in_bytes():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(1100, 900)).astype(np.float32)
    model = squeak_dist.SqueakTransformer(max_dictionary=30).fit(wide).model_
    assert 100 < len(model.sample) < 1000
    assert model.sample.X.nbytes + model.sample.weights.nbytes <= 1 << 21
