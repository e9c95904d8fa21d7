"""SqueakTransformer: features of the map, in every container, inside scikit-learn, in a store."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import squeak_dist
from squeak_dist import RBF, Polynomial, SqueakPCA, SqueakRegressor, SqueakTransformer
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    DataError,
    EmptyDataError,
    GammaRaised,
    InfiniteValuesError,
    InvalidParameterError,
    LengthMismatchError,
    MissingColumnsError,
    MissingValuesError,
    SqueakError,
    StoreError,
)

FEATURES = ["a", "b", "c"]
FULL = {"gamma": 1e-10, "max_dictionary": None, "dtype": "float64"}  # keeps every row
GAMMA = 1 / (2 * 1.5**2)  # scikit-learn's of length_scale=1.5
TRANSFORMERS = [SqueakTransformer, SqueakPCA]
each = pytest.mark.parametrize("cls", TRANSFORMERS)


def made(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=FEATURES)
    return frame.assign(y=np.sin(2 * frame["a"]) + frame["b"] + 0.1 * rng.normal(size=n))


@pytest.fixture(scope="module")
def frame():
    return made()[FEATURES]


@pytest.fixture(scope="module")
def fitted(frame):
    return SqueakTransformer(max_dictionary=40).fit(frame)


@pytest.fixture(name="X")
def rows(frame):
    return frame.to_numpy()


# --- scikit-learn's own checks ----------------------------------------------------------------

EXPECTED_FAILURES = {
    # The check compares weights 0, 1, 2 … with rows left out and repeated. Columns are scaled by
    # the deviation of the rows as they are, the length scale is their median distance, and the
    # rows of the dictionary are drawn one by one. With these given the two fits are equal:
    # test_a_weight_is_a_number_of_repeated_rows here and in test_pca.py.
    "check_sample_weight_equivalence_on_dense_data": "automatic parameters count rows",
}


@parametrize_with_checks(
    [cls() for cls in TRANSFORMERS],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        "check_global_output_transform_pandas",
        "check_set_output_transform",
        "check_set_output_transform_pandas",
        "check_transformer_get_feature_names_out",
        "check_transformer_get_feature_names_out_pandas",
    ],
)
@each
# Not check_dataframe_column_names_consistency: columns in another order are found by name.
def test_estimator_checks_of_frames(cls, check):
    getattr(estimator_checks, check)(cls.__name__, cls())


# --- the features -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        (RBF(1.5), lambda X: rbf_kernel(X, gamma=GAMMA)),
        (squeak_dist.Laplacian(2.0), lambda X: laplacian_kernel(X, gamma=0.5)),
        (Polynomial(2.0, degree=2), lambda X: polynomial_kernel(X, degree=2, gamma=0.25)),
    ],
)
def test_a_full_dictionary_gives_the_kernel_matrix(X, kernel, theirs):
    model = SqueakTransformer(kernel=kernel, **FULL).fit(X - X.mean(axis=0))
    Z = model.transform(X - X.mean(axis=0))
    np.testing.assert_allclose(Z @ Z.T, theirs(X - X.mean(axis=0)), rtol=0, atol=1e-6)


def test_a_full_dictionary_in_single_precision(X):
    Z = SqueakTransformer(length_scale=1.5, **{**FULL, "dtype": "float32"}).fit_transform(X)
    assert Z.dtype == np.float32
    product = Z.astype(np.float64) @ Z.T
    np.testing.assert_allclose(product, rbf_kernel(X, gamma=GAMMA), rtol=0, atol=1e-6)


def test_nystroem_of_the_same_components_up_to_a_rotation(X):
    model = SqueakTransformer(length_scale=1.5, max_dictionary=30, dtype="float64").fit(X)
    theirs = Nystroem(gamma=GAMMA, n_components=len(model.components_))
    centred = X - X.mean(axis=0)
    theirs.fit(centred[model.component_indices_])
    ours, other = model.transform(X), theirs.transform(centred)
    assert ours.shape == other.shape
    assert 10 < ours.shape[1] <= 30
    np.testing.assert_allclose(ours @ ours.T, other @ other.T, rtol=0, atol=1e-8)
    rotation = np.linalg.lstsq(ours, other, rcond=None)[0]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(rotation)), rtol=0, atol=1e-6)


def test_the_regularized_map_is_that_of_the_paper(X):
    model = SqueakTransformer(
        length_scale=1.5, gamma=0.5, approximation="regularized", dtype="float64"
    ).fit(X)
    dictionary, K = model.dictionary_, model.kernel_
    encoded, _ = model.model_.encoding.encode(X)
    KS = K(encoded, dictionary.points) * dictionary.selection_weights
    inner = K(dictionary.points, dictionary.points) * np.outer(*[dictionary.selection_weights] * 2)
    expected = KS @ np.linalg.solve(inner + model.gamma_ * np.eye(len(dictionary)), KS.T)
    Z = model.transform(X)
    np.testing.assert_allclose(Z @ Z.T, expected, rtol=0, atol=1e-8)
    assert np.linalg.eigvalsh(K(encoded, encoded) - Z @ Z.T)[0] > -1e-8
    projected = clone(model).set_params(approximation="projected").fit(X).transform(X)
    assert np.trace(Z @ Z.T) < np.trace(projected @ projected.T) - 1


def test_equal_rows_are_one_component(X):
    doubled = np.concatenate([X[:50], X[:50], X[:20]])
    model = SqueakTransformer(length_scale=1.5, **FULL).fit(doubled)
    assert model.components_.shape == (50, 3)
    assert len(model.dictionary_) > 50
    assert set(model.component_indices_ % 50) == set(range(50))
    Z = model.transform(X[:50])
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(X[:50], gamma=GAMMA), rtol=0, atol=1e-6)
    paper = clone(model).set_params(approximation="regularized").fit(doubled)
    assert paper.components_.shape == (len(paper.dictionary_), 3)
    assert paper.transform(X).shape == (300, len(paper.dictionary_))


def test_a_row_alone_has_the_features_it_has_in_a_batch(X):
    """Although gamma is so small that single precision would show which rows stand beside it."""
    model = SqueakTransformer().fit(X)
    assert len(model.components_) > 200
    together = model.transform(X)
    alone = np.concatenate([model.transform(X[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(alone, together[:40], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("budget", "size"), [(20, (8, 20)), (100, (60, 100))])
def test_without_a_target_the_budget_decides(X, budget, size):
    with dask.config.set(scheduler="sync"):
        model = SqueakTransformer(max_dictionary=budget).fit(X)
    assert size[0] <= len(model.components_) <= size[1]


def test_where_the_budget_holds_all_rows_nearly_all_are_kept(X):
    assert len(SqueakTransformer().fit(X).components_) > 250
    assert len(SqueakTransformer(dtype="float64").fit(X).components_) == 300


def test_a_weight_is_a_number_of_repeated_rows(X):
    weights = np.arange(60) % 3
    given = {"length_scale": 1.5, **FULL}
    repeated = np.repeat(X[:60], weights, axis=0)
    weighted = SqueakTransformer(**given).fit(X[:60], sample_weight=weights)
    Z = weighted.transform(X)
    again = SqueakTransformer(**given).fit(repeated).transform(X)
    np.testing.assert_allclose(Z @ Z.T, again @ again.T, rtol=0, atol=1e-6)
    assert set(weighted.component_indices_) == set(np.flatnonzero(weights))


def test_large_weights_are_kept_first(X):
    weights = np.where(np.arange(len(X)) < 30, 100.0, 1e-6)
    model = SqueakTransformer(max_dictionary=30, gamma=1.0).fit(X, sample_weight=weights)
    assert np.mean(model.component_indices_ < 30) == 1


def test_y_is_ignored(frame, X):
    y = np.full(len(X), np.nan)
    np.testing.assert_array_equal(
        SqueakTransformer(max_dictionary=30).fit_transform(X, y),
        SqueakTransformer(max_dictionary=30).fit_transform(X),
    )


# --- parameters and attributes ----------------------------------------------------------------


@each
def test_parameters_are_those_of_the_regressor(cls):
    own = cls().get_params()
    own.pop("n_components", None)
    assert own.pop("kernel") == "rbf"  # without a target there is no error to choose one by
    assert own.items() <= SqueakRegressor().get_params().items()
    missing = {"mu", "solver", "linear_part"}
    assert SqueakRegressor().get_params().keys() - own.keys() == missing | {"kernel"}
    documented = inspect.getdoc(cls)
    assert all(f"\n{name} : " in documented for name in cls().get_params())


@each
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("kernel", "gauss"), ("length_scale", -1.0), ("gamma", 0), ("epsilon", 1.0), ("qbar", 0),
        ("max_dictionary", 0), ("on_overrun", "fail"), ("approximation", "exact"), ("fan_in", 1),
        ("missing", "ignore"), ("standardize", 2), ("dtype", "float16"), ("random_state", -1),
    ],
)  # fmt: skip
def test_wrong_parameters(cls, X, parameter, value):
    model = cls(**{parameter: value})
    with pytest.raises(InvalidParameterError, match=parameter):
        model.fit(X)
    assert not hasattr(model, "model_")


def test_attributes(fitted):
    m = len(fitted.components_)
    assert fitted.components_.shape == (m, 3)
    assert fitted.component_indices_.shape == (m,)
    assert len(set(fitted.component_indices_)) == m
    assert fitted.get_feature_names_out().tolist() == [f"squeaktransformer{i}" for i in range(m)]
    assert fitted.n_features_in_ == 3
    assert fitted.feature_names_in_.tolist() == FEATURES
    assert fitted.gamma_ == fitted.report_["gamma"] > 0
    assert 0 < fitted.effective_dimension_ < m
    assert fitted.report_["task"] == "features"
    assert len(repr(fitted.model_)) < 300


def test_gamma_raised_warns(X):
    with pytest.warns(GammaRaised, match="max_dictionary=20"):
        SqueakTransformer(gamma=1e-6, max_dictionary=20).fit(X)


@each
@pytest.mark.parametrize(
    "use",
    [
        lambda model, f: model.transform(f),
        lambda model, f: model.transform(dd.from_pandas(f, npartitions=2)),
        lambda model, f: model.get_feature_names_out(),
        lambda model, f: model.save("nowhere"),
        lambda model, f: model.components_,
        lambda model, f: model.report_,
    ],
)
def test_before_the_fit(cls, frame, use):
    with pytest.raises(SklearnNotFittedError, match=f"{cls.__name__}.*call fit first") as caught:
        use(cls(), frame)
    assert isinstance(caught.value, SqueakError)


# --- containers -------------------------------------------------------------------------------


def test_numpy_and_pandas(fitted, frame, X):
    Z = fitted.transform(frame)
    assert type(Z) is np.ndarray
    np.testing.assert_array_equal(Z, fitted.transform(X))
    np.testing.assert_array_equal(Z, fitted.transform(frame[["c", "a", "b"]].assign(extra=1)))
    assert fitted.transform(frame.iloc[:0]).shape == (0, Z.shape[1])


def test_a_fit_is_the_same_on_every_container(fitted, frame, X, tmp_path):
    frame.to_parquet(tmp_path / "t.parquet")
    for table in (X, da.from_array(X, chunks=(300, 2)), tmp_path / "t.parquet", frame):
        model = SqueakTransformer(max_dictionary=40).fit(table)
        np.testing.assert_array_equal(model.components_, fitted.components_)
        np.testing.assert_array_equal(np.asarray(model.transform(X)), fitted.transform(X))


@each
@pytest.mark.parametrize("configured", ["default", "pandas"])
def test_dask_frames_are_transformed_lazily(cls, frame, configured):
    model = cls(max_dictionary=40).fit(frame).set_output(transform=configured)
    lazy = dd.from_pandas(frame.set_index(np.arange(300) * 10), npartitions=4)
    with dask.config.set(scheduler=forbidden):
        Z = model.transform(lazy)
        names = model.get_feature_names_out()
        assert isinstance(Z, dd.DataFrame)
        assert Z.divisions == lazy.divisions
        assert list(Z.columns) == list(names)
        assert set(Z.dtypes) == {np.dtype(np.float32)}
        assert Z.to_dask_array().shape[1] == len(names)
    computed = Z.compute(scheduler="sync")
    assert computed.index.tolist() == list(range(0, 3000, 10))
    np.testing.assert_allclose(computed, model.transform(frame), rtol=0, atol=1e-6)
    assert set(computed.dtypes) == {np.dtype(np.float32)}


@each
@pytest.mark.parametrize("configured", ["default", "pandas"])
def test_dask_arrays_are_transformed_lazily(cls, X, configured):
    model = cls(max_dictionary=40).fit(X).set_output(transform=configured)
    lazy = da.from_array(X, chunks=(70, 2))
    unknown = lazy[lazy[:, 0] > 0]
    m = len(model.get_feature_names_out())
    with dask.config.set(scheduler=forbidden):
        Z, some = model.transform(lazy), model.transform(unknown)
        assert isinstance(Z, da.Array)
        assert (Z.chunks[1], Z.dtype) == ((m,), np.float32)
        assert Z.chunks[0] == lazy.chunks[0]
        assert some.chunks[1] == (m,)
    expected = np.asarray(model.transform(X))
    np.testing.assert_allclose(Z.compute(scheduler="sync"), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(some.compute(), expected[X[:, 0] > 0], rtol=0, atol=1e-6)


def forbidden(*args, **kwargs):
    raise AssertionError("something was computed that should have stayed lazy")


def test_fit_transform_of_a_collection(frame):
    lazy = dd.from_pandas(frame, npartitions=3)
    Z = SqueakTransformer(max_dictionary=40).fit_transform(lazy, sample_weight=lazy["a"] * 0 + 2)
    assert isinstance(Z, dd.DataFrame)
    assert Z.compute().notna().all(axis=None)


def test_fit_on_a_dask_array_of_unknown_chunks(X):
    lazy = da.from_array(X, chunks=(70, 2))
    some = lazy[lazy[:, 0] > 0]
    model = SqueakTransformer(max_dictionary=40).fit(some)
    assert model.report_["rows"] == (X[:, 0] > 0).sum()
    assert len(model.report_["partition_rows"]) == 5


def test_tables_of_xarray(fitted, frame, X):
    xarray = pytest.importorskip("xarray")
    rows = xarray.DataArray(X, dims=("row", "column"))
    Z = SqueakTransformer(max_dictionary=40).fit(rows).transform(rows)
    np.testing.assert_array_equal(np.asarray(Z), fitted.transform(frame))
    assert Z.dims == ("row", "feature")
    assert list(Z["feature"].values) == list(fitted.get_feature_names_out())


@each
def test_grids_of_xarray(cls):
    xarray = pytest.importorskip("xarray")
    t, u = np.linspace(-2, 2, 12), np.linspace(0, 5, 15)
    heat = np.sin(np.add.outer(t, u))
    grid = xarray.Dataset({"heat": (("t", "u"), heat)}, {"t": t, "u": u})
    table = grid.to_dataframe().reset_index()
    model = cls(max_dictionary=40).set_output(transform="pandas").fit(grid)
    assert set(model.feature_names_in_) == {"t", "u", "heat"}
    expected = cls(max_dictionary=40).fit(table[list(model.feature_names_in_)]).transform(table)
    for wanted in (grid, grid.chunk(t=5, u=15), grid.heat):
        Z = model.transform(wanted)
        assert Z.dims == ("t", "u", "feature")
        assert Z.dtype == np.float32
        assert list(Z["feature"].values) == list(model.get_feature_names_out())
        np.testing.assert_allclose(
            np.asarray(Z).reshape(len(table), -1), expected, rtol=0, atol=1e-5
        )
    flat = cls(max_dictionary=20).fit(grid, features=["t"])
    assert flat.transform(grid).dims == ("t", "feature")
    apart = grid.assign(edges=(("t", "edge"), np.zeros((12, 2))))
    with pytest.raises(DataError, match=r"no variable has all of the dimensions.*features="):
        cls().fit(apart)


def test_a_column_left_out_of_the_fit_is_not_asked_for(frame):
    with pytest.warns(ColumnsDropped, match="flat"):
        model = SqueakTransformer(max_dictionary=40).fit(frame.assign(flat=1.0))
    lazy = model.transform(dd.from_pandas(frame, npartitions=2))
    np.testing.assert_allclose(lazy.compute(), model.transform(frame), rtol=0, atol=1e-6)


def test_a_column_of_weights_and_named_features(frame):
    table = frame.assign(w=np.where(frame.index < 100, 1.0, 0.0))
    for collection in (table, dd.from_pandas(table, npartitions=3)):
        model = SqueakTransformer(max_dictionary=40).fit(
            collection, sample_weight="w", features=["a", "b"]
        )
        assert model.feature_names_in_.tolist() == ["a", "b"]
        assert model.component_indices_.max() < 100


def test_text_dates_and_missing_values():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "kind": rng.choice(["x", "y", "z"], 80)})
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.uniform(0, 9, 80), "D")
    frame.loc[::10, "a"] = np.nan
    with pytest.raises(MissingValuesError, match="'a'"):
        SqueakTransformer().fit(frame)
    filled = SqueakTransformer(missing="impute").fit_transform(frame)
    assert np.isfinite(filled).all()
    dropped = SqueakTransformer(missing="drop").fit(frame)
    Z = dropped.transform(frame)
    np.testing.assert_array_equal(np.isnan(Z).all(axis=1), frame["a"].isna())
    assert dropped.report_["rows_dropped"] == 8
    whole = dropped.transform(dd.from_pandas(frame, npartitions=2)).compute()
    np.testing.assert_allclose(whole, Z, rtol=0, atol=1e-6)


# --- bad input --------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (MissingColumnsError, "'c'", lambda m, f: m.transform(f[["a", "b"]])),
        (MissingColumnsError, "'c'", lambda m, f: m.transform(in_dask(f[["a", "b"]]))),
        (DataError, "2 features, but Squeak.* expecting 3", lambda m, f: m.transform(arr(f, 2))),
        (DataError, "4 features, but Squeak.* expecting 3", lambda m, f: m.transform(arr(f, 4))),
        (DataError, "expecting 3", lambda m, f: m.transform(da.from_array(arr(f, 4)))),
        (DataError, "Expected 2D", lambda m, f: m.transform(f["a"].to_numpy())),
        (ColumnTypeError, "sparse", lambda m, f: m.transform(sparse.csr_matrix(arr(f, 3)))),
        (ColumnTypeError, "to_frame", lambda m, f: m.transform(in_dask(f)["a"])),
        (ColumnTypeError, "'a'", lambda m, f: m.transform(f.assign(a="text"))),
        (InfiniteValuesError, "'a'", lambda m, f: m.transform(f.assign(a=np.inf))),
        (MissingValuesError, "'a'", lambda m, f: m.transform(f.assign(a=np.nan))),
        (DataError, "nothing found", lambda m, f: m.transform("nowhere.parquet")),
        (ColumnTypeError, "sparse", lambda m, f: m.fit(sparse.csr_matrix(arr(f, 3)))),
        (DataError, "Expected 2D", lambda m, f: m.fit(f["a"].to_numpy())),
        (DataError, "2D", lambda m, f: m.fit(da.from_array(f["a"].to_numpy()))),
        (DataError, "Complex", lambda m, f: m.fit(arr(f, 3) + 1j)),
        (DataError, "nothing found", lambda m, f: m.fit("nowhere.parquet")),
        (EmptyDataError, "n_samples=0", lambda m, f: m.fit(f.iloc[:0])),
        (EmptyDataError, "one row", lambda m, f: m.fit(f.iloc[:1])),
        (MissingValuesError, "'a'", lambda m, f: m.fit(f.assign(a=np.nan))),
        (InfiniteValuesError, "'a'", lambda m, f: m.fit(f.assign(a=np.inf))),
        (MissingColumnsError, "'w'", lambda m, f: m.fit(f, sample_weight="w")),
        (LengthMismatchError, "sample_weight has 2", lambda m, f: m.fit(f, None, [1, 2])),
        (LengthMismatchError, "sample_weight has 2", lambda m, f: m.fit(arr(f, 3), None, [1, 2])),
        (InvalidParameterError, "negative", lambda m, f: m.fit(f, None, -np.ones(len(f)))),
        (InvalidParameterError, "zero", lambda m, f: m.fit(f, None, np.zeros(len(f)))),
        (InvalidParameterError, "no column names", lambda m, f: m.fit(arr(f, 3), features=[0])),
        (InvalidParameterError, "list of labels", lambda m, f: m.fit(f, features="a")),
        (EmptyDataError, "lower gamma", lambda m, f: m.set_params(gamma=1e30).fit(f)),
    ],
)  # fmt: skip
def test_bad_input(cls, frame, error, message, call):
    model = cls(max_dictionary=20).fit(frame)
    before = model.transform(frame)
    with pytest.raises(error, match=message):
        call(model, frame)
    np.testing.assert_array_equal(model.transform(frame), before)


def in_dask(frame):
    return dd.from_pandas(frame, npartitions=2)


def arr(frame, width):
    return np.resize(frame.to_numpy(), (len(frame), width))


# --- copies -----------------------------------------------------------------------------------


@each
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
def test_a_copy_gives_the_same_bits(cls, frame, tmp_path, copied):
    model = cls(max_dictionary=40).fit(frame)
    expected = model.transform(frame)
    again = copied(model, tmp_path)
    assert type(again) is cls
    assert again.transform(frame).tobytes() == expected.tobytes()
    assert again.report_ == model.report_
    assert (again.gamma_, again.kernel_) == (model.gamma_, model.kernel_)
    assert list(again.feature_names_in_) == FEATURES
    assert list(again.get_feature_names_out()) == list(model.get_feature_names_out())


def test_a_used_model_travels_without_its_map(fitted, frame):
    fresh = len(pickle.dumps(clone(fitted).fit(frame)))
    fitted.transform(frame)
    assert len(pickle.dumps(fitted)) < fresh + 200


@each
def test_a_loaded_model_fits_again_with_its_parameters(cls, frame, tmp_path):
    model = cls(
        kernel="matern", gamma=0.2, length_scale=2.0, standardize=True, epsilon=0.4, qbar=8,
        approximation="regularized", random_state=3, dtype="float64",
    ).fit(frame)  # fmt: skip
    model.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert loaded.get_params() == model.get_params()
    again = clone(loaded).fit(frame)
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))


def test_models_replace_each_other_in_a_store(fitted, frame, tmp_path):
    regressor = SqueakRegressor(max_dictionary=40).fit(frame, frame["a"])
    pca = SqueakPCA(2, max_dictionary=40).fit(frame)
    for model in (fitted, regressor, pca, fitted):
        model.save(tmp_path / "m.zarr")
        assert type(squeak_dist.load(tmp_path / "m.zarr")) is type(model)
    with pytest.raises(StoreError, match="exists"):
        fitted.save(tmp_path / "m.zarr", overwrite=False)


def test_the_command_line_says_that_features_predict_nothing(fitted, frame, tmp_path):
    from click.testing import CliRunner

    from squeak_dist.cli import main

    fitted.save(tmp_path / "m.zarr")
    frame.to_parquet(tmp_path / "rows.parquet")
    place = [str(tmp_path / name) for name in ("m.zarr", "rows.parquet", "out")]
    done = CliRunner().invoke(main, ["predict", *place[:2], "--out", place[2], "--workers", "0"])
    assert done.exit_code == 2
    assert "SqueakTransformer" in done.output


# --- inside scikit-learn ----------------------------------------------------------------------


def test_in_the_place_of_nystroem(X):
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    labels = np.where(y > 0, "up", "down")
    ours = SqueakTransformer(max_dictionary=60)
    assert make_pipeline(ours, Ridge(0.01)).fit(X, y).score(X, y) > 0.95
    assert make_pipeline(ours, LogisticRegression(C=100)).fit(X, labels).score(X, labels) > 0.93
    weights = np.where(np.arange(len(X)) % 2, 1.0, 0.0)
    pipeline = make_pipeline(ours, Ridge(0.01))
    pipeline.fit(X, y, squeaktransformer__sample_weight=weights)
    assert np.all(pipeline[0].component_indices_ % 2 == 1)


def test_in_a_grid_search(X):
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    pipeline = Pipeline([("map", SqueakTransformer()), ("ridge", Ridge(0.01))])
    search = GridSearchCV(pipeline, {"map__max_dictionary": [3, 80]}, cv=3).fit(X, y)
    assert search.best_params_ == {"map__max_dictionary": 80}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@each
def test_in_a_column_transformer(cls, frame):
    table = frame.assign(d=1.0)
    columns = ColumnTransformer(
        [("map", cls(max_dictionary=20), ["a", "b"]), ("rest", "passthrough", ["d"])]
    ).set_output(transform="pandas")
    out = columns.fit_transform(table)
    assert isinstance(out, pd.DataFrame)
    assert out.columns[0] == f"map__{cls.__name__.lower()}0"
    assert out.columns[-1] == "rest__d"
    assert out.index.equals(table.index)


@each
def test_set_output_changes_the_container_and_nothing_else(cls, frame):
    fitted = cls(max_dictionary=40).fit(frame)
    model = copy.deepcopy(fitted)
    table = frame.set_index(np.arange(300) + 7)
    plain = model.transform(table)
    framed = model.set_output(transform="pandas").transform(table)
    assert framed.index.equals(table.index)
    assert list(framed.columns) == list(model.get_feature_names_out())
    np.testing.assert_array_equal(framed, plain)
    assert isinstance(clone(model).fit_transform(table), pd.DataFrame)
    assert type(model.set_output(transform="default").transform(table)) is np.ndarray
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(fitted.transform(table), pd.DataFrame)


@each
def test_metadata_routing_of_weights(cls, X):
    weights = np.where(np.arange(len(X)) % 2, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        step = cls(max_dictionary=30).set_fit_request(sample_weight=True)
        ridge = Ridge().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(step, ridge).fit(X, X[:, 0], sample_weight=weights)
    assert np.all(pipeline[0].component_indices_ % 2 == 1)


# --- docs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["transformer", "pca"])
def test_examples_of_the_docstrings(module):
    found = doctest.testmod(importlib.import_module(f"squeak_dist.estimators.{module}"))
    assert found.attempted > 3
    assert found.failed == 0


def test_rows_in_memory_are_those_of_the_model(fitted, frame):
    model = fitted.model_
    encoded, _ = model.encoding.encode(frame)
    np.testing.assert_array_equal(model.transform_encoded(encoded), fitted.transform(frame))
