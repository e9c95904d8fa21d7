"""The scikit-learn face: conventions, pipelines, searches, copies."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from dataclasses import replace
from fractions import Fraction

import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone, is_regressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import squeak_dist
from squeak_dist import SqueakRegressor
from squeak_dist.errors import GammaRaised, SqueakError
from squeak_dist.kernels import RBF, Matern
from squeak_dist.stages import FitParameters
from squeak_dist.store import save_model

FEATURES = ["a", "b", "c"]


def made(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=FEATURES)
    return frame.assign(y=np.sin(2 * frame["a"]) + frame["b"] + 0.1 * rng.normal(size=n))


@pytest.fixture(scope="module")
def frame():
    return made()


@pytest.fixture(scope="module")
def fitted(frame):
    return SqueakRegressor(max_dictionary=100).fit(frame, target="y")


@pytest.fixture(name="X")
def features(frame):
    return frame[FEATURES].to_numpy()


@pytest.fixture(name="y")
def target(frame):
    return frame["y"].to_numpy()


# --- scikit-learn's own checks ----------------------------------------------------------------

EXPECTED_FAILURES = {
    # The check compares weights 0, 1, 2 … with rows left out and repeated, at automatic
    # parameters and 15 rows. Three things differ by design: generalized cross-validation counts
    # rows (a repeated row is a new observation to it, a weight is not), columns are scaled by
    # the deviation of the rows as they are, and the rows of the dictionary are drawn one by one.
    # With the parameters given the two fits are equal: test_stages.py,
    # test_a_weight_is_a_number_of_repeated_rows.
    "check_sample_weight_equivalence_on_dense_data": "automatic parameters count rows",
}


@parametrize_with_checks(
    [SqueakRegressor()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_estimator_checks(estimator, check):
    check(estimator)


# --- parameters -------------------------------------------------------------------------------


def test_parameters_come_and_go(frame):
    model = SqueakRegressor(gamma=0.1, kernel=RBF(2.0))
    parameters = model.get_params()
    assert parameters["gamma"] == 0.1
    assert model.set_params(gamma=0.2, mu=0.3) is model
    assert (model.gamma, model.mu) == (0.2, 0.3)
    with pytest.raises(ValueError, match="Invalid parameter 'gama'"):
        model.set_params(gama=1)
    copy = clone(model.fit(frame, target="y"))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")


def test_constructing_checks_and_computes_nothing(frame):
    model = SqueakRegressor(epsilon=7)  # as scikit-learn asks; fit checks
    with pytest.raises(ValueError, match="epsilon"):
        model.fit(frame, target="y")
    with pytest.raises(ValueError, match="epsilon"):
        model.check_parameters()
    assert not hasattr(model, "model_")


def test_defaults_are_the_same_everywhere():
    """Of the estimator, its checked parameters and DESIGN §4, but for the kernel."""
    parameters = SqueakRegressor().get_params()
    checked = {
        name: field.default for name, field in inspect.signature(FitParameters).parameters.items()
    }
    checked["random_state"] = checked.pop("seed")
    del checked["classifies"]  # which the kind of the estimator says
    assert parameters == checked
    promised = {
        "kernel": "auto", "length_scale": "auto", "mu": "auto", "gamma": "auto", "epsilon": 0.3,
        "qbar": 16, "max_dictionary": 2000, "solver": "auto", "approximation": "projected",
        "fan_in": 2, "random_state": 0,
    }  # fmt: skip
    assert parameters.items() >= promised.items()


def test_fit_is_the_estimator_in_a_line(frame):
    short = squeak_dist.fit(frame, target="y", max_dictionary=80, random_state=5)
    long = SqueakRegressor(max_dictionary=80, random_state=5).fit(frame, target="y")
    assert type(short) is SqueakRegressor
    np.testing.assert_array_equal(short.dual_coef_, long.dual_coef_)
    with pytest.raises(TypeError, match="gama"):
        squeak_dist.fit(frame, target="y", gama=1)


def test_repr_shows_what_is_not_default(fitted):
    assert repr(SqueakRegressor()) == "SqueakRegressor()"
    assert repr(SqueakRegressor(gamma=0.1)) == "SqueakRegressor(gamma=0.1)"
    assert "RBF(length_scale=2.0)" in repr(SqueakRegressor(kernel=RBF(2.0)))
    assert len(repr(fitted.model_)) < 1000
    assert len(repr(fitted.dictionary_)) < 300


@pytest.mark.parametrize("state", [7, np.int64(7), np.random.RandomState(7)])
def test_random_states(frame, state):
    model = SqueakRegressor(max_dictionary=80, random_state=state).fit(frame, target="y")
    assert model.model_.seed >= 0
    if not isinstance(state, np.random.RandomState):
        assert model.model_.seed == 7


def test_no_random_state_is_another_dictionary_each_time(frame):
    models = [
        SqueakRegressor(max_dictionary=80, random_state=None).fit(frame, target="y")
        for _ in range(2)
    ]
    assert set(models[0].component_indices_) != set(models[1].component_indices_)


def test_standardize_may_come_from_a_grid_of_numpy(frame):
    model = SqueakRegressor(standardize=np.array([True, False])[1])
    assert not model.fit(frame, target="y").model_.encoding.standardize


# --- what a fitted one has --------------------------------------------------------------------


def test_attributes_of_the_fit(fitted, frame):
    m = len(fitted.dictionary_)
    assert fitted.components_.shape == (m, 3)
    assert fitted.dual_coef_.shape == (m,)
    assert fitted.component_indices_.shape == (m,)
    assert isinstance(fitted.kernel_, RBF | Matern)
    slopes = fitted.model_.slopes
    assert fitted.intercept_ == pytest.approx(frame["y"].mean() + slopes[-1:].sum())
    assert isinstance(fitted.intercept_, float)
    assert fitted.gamma_ == fitted.report_["gamma"]
    assert fitted.mu_ == fitted.report_["mu"]
    assert 0 < fitted.effective_dimension_ < m
    assert fitted.n_features_in_ == 3
    assert list(fitted.feature_names_in_) == FEATURES
    assert is_regressor(fitted)
    # A prediction is what its attributes say, in float64.
    encoded = fitted.model_.encoding.encode(frame[FEATURES])[0].astype(np.float64)
    by_hand = fitted.kernel_(encoded, fitted.components_) @ fitted.dual_coef_ + fitted.intercept_
    by_hand += encoded @ fitted.linear_coef_
    np.testing.assert_allclose(by_hand, fitted.predict(frame), rtol=1e-9)


def test_a_row_has_the_same_prediction_beside_any_others(fitted, frame):
    together = fitted.predict(frame)
    for rows in (slice(0, 1), slice(7, 40), slice(40, None)):
        np.testing.assert_allclose(fitted.predict(frame[rows]), together[rows], rtol=1e-9)


def test_attributes_of_several_outputs(X, y):
    model = SqueakRegressor(max_dictionary=50, linear_part=False)
    model.fit(X, np.column_stack([y, -y]))
    m = len(model.dictionary_)
    assert model.dual_coef_.shape == (m, 2)
    np.testing.assert_allclose(model.intercept_, [y.mean(), -y.mean()])
    assert not hasattr(model, "feature_names_in_")


def test_a_refit_forgets_the_names(frame, X, y):
    model = SqueakRegressor(max_dictionary=50).fit(frame, target="y")
    assert hasattr(model, "feature_names_in_")
    model.fit(X[:, :2], y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2


def test_a_fit_that_fails_leaves_the_earlier_model(fitted, frame):
    model = clone(fitted).fit(frame, target="y")
    before = model.predict(frame)
    with pytest.raises(SqueakError):
        model.fit(frame.assign(y=1.0), target="y")
    np.testing.assert_array_equal(model.predict(frame), before)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, f: model.predict(f),
        lambda model, f: model.score(f),
        lambda model, f: model.evaluate(f),
        lambda model, f: model.save("nowhere"),
        lambda model, f: model.save_dual_weights("nowhere", f),
        lambda model, f: model.dictionary_,
        lambda model, f: model.report_,
    ],
)
def test_before_the_fit(use, frame):
    with pytest.raises(SklearnNotFittedError, match="call fit first") as caught:
        use(SqueakRegressor(), frame)
    assert isinstance(caught.value, SqueakError)
    assert isinstance(caught.value, ValueError)
    assert not hasattr(SqueakRegressor(), "dual_coef_")


# --- copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [
        lambda model, path: pickle.loads(pickle.dumps(model)),
        lambda model, path: copy.deepcopy(model),
        lambda model, path: joblib.load(joblib.dump(model, path / "model.joblib")[0]),
        lambda model, path: (model.save(path / "m.zarr"), squeak_dist.load(path / "m.zarr"))[1],
        lambda model, path: (model.save(path / "m.zip"), squeak_dist.load(path / "m.zip"))[1],
    ],
    ids=["pickle", "copy", "joblib", "zarr", "zip"],
)
def test_a_copy_predicts_the_same_bits(fitted, frame, tmp_path, copied):
    again = copied(fitted, tmp_path)
    assert again.predict(frame).tobytes() == fitted.predict(frame).tobytes()
    assert again.predict(frame[FEATURES].to_numpy()).tobytes() == fitted.predict(frame).tobytes()
    assert again.report_ == fitted.report_
    assert again.get_params() == fitted.get_params()
    assert (again.mu_, again.gamma_, again.kernel_) == (fitted.mu_, fitted.gamma_, fitted.kernel_)
    assert list(again.feature_names_in_) == FEATURES


def test_a_loaded_model_fits_again_with_its_parameters(frame, tmp_path):
    model = SqueakRegressor(
        kernel="matern", mu=0.1, gamma=0.2, length_scale=2.0, standardize=True, epsilon=0.4,
        qbar=8, approximation="regularized", random_state=3, dtype="float64",
    ).fit(frame, target="y")  # fmt: skip
    model.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert loaded.get_params() == model.get_params()
    assert loaded.kernel_ == Matern(2.0)
    again = clone(loaded).fit(frame, target="y")
    np.testing.assert_array_equal(again.dual_coef_, model.dual_coef_)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_dictionary": 40, "solver": "cg", "fan_in": 3, "qbar": np.int64(12)},
        {"length_scale": (1.0, np.float64(2.0), 3), "qbar": 8, "linear_part": np.bool_(False)},
        {"kernel": RBF(2.0), "mu": 0.1},
        {"random_state": np.random.RandomState(3), "max_dictionary": 50},
        {"epsilon": Fraction(1, 4), "on_overrun": "stop", "max_dictionary": 300},
    ],
)
def test_a_loaded_model_fits_the_same_bits_again(frame, tmp_path, settings):
    """Also where parameters were "auto", or the seed was drawn."""
    model = SqueakRegressor(**settings).fit(frame, target="y")
    model.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    again = clone(loaded).fit(frame, target="y")
    assert again.predict(frame).tobytes() == model.predict(frame).tobytes()
    assert again.get_params() == loaded.get_params()
    for name in {"mu", "gamma", "max_dictionary", "solver", "qbar"}:
        assert loaded.get_params()[name] == model.get_params()[name]


def test_a_store_without_parameters_has_the_values_chosen(fitted, frame, tmp_path):
    report = {k: v for k, v in fitted.report_.items() if k != "parameters"}
    save_model(replace(fitted.model_, report=report), tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert (loaded.mu, loaded.gamma, loaded.kernel) == (fitted.mu_, fitted.gamma_, fitted.kernel_)
    assert loaded.predict(frame).tobytes() == fitted.predict(frame).tobytes()


def test_an_existing_model_is_kept_on_request(fitted, tmp_path):
    fitted.save(tmp_path / "m.zarr")
    with pytest.raises(squeak_dist.errors.StoreError, match="exists"):
        fitted.save(tmp_path / "m.zarr", overwrite=False)
    fitted.save(tmp_path / "m.zarr")


class Wavy:
    """A kernel of the user's own: a product of cosines, positive semidefinite."""

    def __call__(self, X, Y):
        return np.prod(np.cos(X[:, None] - Y), axis=2)

    def diag(self, X):
        return np.ones(len(X))


def test_a_kernel_of_ones_own(frame, tmp_path):
    model = SqueakRegressor(kernel=Wavy(), standardize=True, max_dictionary=60)
    assert model.fit(frame, target="y").score(frame) > 0.2
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    model.save(tmp_path / "m.zarr")
    with pytest.raises(SqueakError, match="kernel="):
        squeak_dist.load(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr", kernel=Wavy())
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


# --- inside scikit-learn ----------------------------------------------------------------------


def test_in_a_pipeline(X, y):
    pipeline = make_pipeline(StandardScaler(), SqueakRegressor(max_dictionary=80, mu=0.1))
    assert pipeline.fit(X, y).score(X, y) > 0.9
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.7
    weights = np.where(np.arange(len(y)) % 2, 1.0, 0.0)
    weighted = clone(pipeline).fit(X, y, squeakregressor__sample_weight=weights)
    assert np.all(weighted[-1].component_indices_ % 2 == 1)


def test_in_a_grid_search(X, y):
    search = GridSearchCV(
        SqueakRegressor(max_dictionary=None, length_scale=1.5),
        {"gamma": [0.1, 1.0, 100.0], "mu": [0.1, 10.0]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_["mu"] == 0.1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    sizes = [
        len(SqueakRegressor(gamma=gamma, length_scale=1.5, mu=0.1).fit(X, y).dictionary_)
        for gamma in (0.1, 1.0, 100.0)
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_routing_of_sample_weight(X, y):
    """Through a pipeline, a search and the score; and by ``partial_fit``."""
    weights = np.where(np.arange(len(y)) % 2, 1.0, 0.0)
    spoiled = np.where(weights > 0, y, 1e3)
    with sklearn.config_context(enable_metadata_routing=True):
        step = SqueakRegressor(max_dictionary=80).set_fit_request(sample_weight=True)
        step.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, step).fit(X, spoiled, sample_weight=weights)
        assert np.all(pipeline[-1].component_indices_ % 2 == 1)
        search = GridSearchCV(
            make_pipeline(scaler, step), {"squeakregressor__mu": [0.1, 1e6]}, cv=3
        ).fit(X, spoiled, sample_weight=weights)
        assert search.best_params_ == {"squeakregressor__mu": 0.1}
        assert search.best_score_ > 0.7  # rows of weight 0 count in no score
        assert "sample_weight" in step.get_metadata_routing().partial_fit.requests


def test_in_a_column_transformer(frame):
    table = frame.assign(kind=np.where(frame["a"] > 0, "up", "down"))
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), FEATURES), ("kinds", OneHotEncoder(sparse_output=False),
         ["kind"])], verbose_feature_names_out=False,
    ).set_output(transform="pandas")  # fmt: skip
    pipeline = make_pipeline(columns, SqueakRegressor(max_dictionary=80)).fit(table, table["y"])
    assert list(pipeline[-1].feature_names_in_) == [*FEATURES, "kind_down", "kind_up"]
    assert pipeline.score(table, table["y"]) > 0.9
    assert type(pipeline.predict(table)) is np.ndarray


def test_in_other_meta_estimators(X, y):
    model = TransformedTargetRegressor(
        SqueakRegressor(max_dictionary=80), func=np.arcsinh, inverse_func=np.sinh
    )
    assert model.fit(X, y).score(X, y) > 0.9
    with joblib.parallel_backend("threading", n_jobs=2):
        scores = cross_val_score(SqueakRegressor(max_dictionary=80), X, y, cv=4)
    np.testing.assert_array_equal(
        scores, cross_val_score(SqueakRegressor(max_dictionary=80), X, y, cv=4)
    )


def test_score_is_that_of_scikit_learn(fitted, frame, X, y):
    predicted = fitted.predict(frame)
    weights = np.random.default_rng(0).uniform(size=len(y))
    assert fitted.score(frame) == pytest.approx(r2_score(y, predicted))
    assert fitted.score(X, y) == pytest.approx(r2_score(y, predicted))
    assert fitted.score(X, y, weights) == pytest.approx(
        r2_score(y, predicted, sample_weight=weights)
    )
    assert fitted.score(dd.from_pandas(frame, npartitions=3)) == pytest.approx(
        r2_score(y, predicted), abs=1e-5
    )


def test_mu_is_the_alpha_of_kernel_ridge(X, y):
    ours = SqueakRegressor(
        kernel="laplacian", length_scale=2.0, mu=0.7, gamma=1e-9, max_dictionary=None,
        linear_part=False, dtype="float64",
    ).fit(X, y)  # fmt: skip
    theirs = KernelRidge(kernel="laplacian", gamma=0.5, alpha=0.7).fit(X, y - y.mean())
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X) + y.mean(), atol=1e-8)


# --- warnings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fit", "method"])
def test_warnings_point_to_the_line_of_the_user(frame, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if call == "fit":
            squeak_dist.fit(frame, target="y", gamma=1e-6, max_dictionary=30)
        else:
            SqueakRegressor(gamma=1e-6, max_dictionary=30).fit(frame, target="y")
    raised = [w for w in caught if w.category is GammaRaised]
    assert len(raised) == 1
    assert raised[0].filename == __file__
