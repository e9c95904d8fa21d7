"""Classification: labels of every type, scikit-learn's conventions, frames, the store."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import sklearn
from click.testing import CliRunner
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import squeak_dist
from squeak_dist import SqueakClassifier, SqueakRegressor
from squeak_dist.calibration import fit_link
from squeak_dist.classes import indicate
from squeak_dist.cli import main
from squeak_dist.distributed import class_source, labelled
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingColumnsError,
    MissingValuesError,
    SqueakError,
)
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

FEATURES = ["a", "b", "c"]
FEW = {"max_dictionary": 80}
WORDS = ["low", "mid", "high"]


def made(n=400, seed=0, classes=3):
    """Features and positions of classes that rings of a and b decide, with noise."""
    rng = np.random.default_rng([seed, n])
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=FEATURES)
    radius = frame["a"] ** 2 + frame["b"] ** 2 + 0.2 * rng.normal(size=n)
    edges = [1.4] if classes == 2 else [0.8, 2.2]
    return frame, np.digitize(radius, edges)


def pieces(frame, sizes):
    """A Dask frame whose partitions have these numbers of rows."""
    edges = np.cumsum([0, *sizes])
    assert edges[-1] == len(frame)
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda i: parts[i], range(len(parts)), meta=frame.iloc[:0])


# --- scikit-learn's own checks ----------------------------------------------------------------

EXPECTED_FAILURES = {
    # As for the regressor (see test_estimators.py): generalized cross-validation counts rows,
    # columns are scaled by the deviation of the rows as they are, and rows of the dictionary
    # are drawn one by one. And a leave-one-out score leaves out one of several equal rows, but
    # the whole of a weighted one. That weights and repeated rows agree where nothing is
    # automatic is tested below.
    "check_sample_weight_equivalence_on_dense_data": "automatic parameters count rows",
}


@parametrize_with_checks(
    [SqueakClassifier()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_estimator_checks(estimator, check):
    check(estimator)


def test_weights_are_repeated_rows_where_nothing_is_automatic():
    X, codes = made(60)
    weights = np.arange(60) % 3
    given = {
        "mu": 0.5, "gamma": 1e-12, "length_scale": 1.0, "linear_part": False, "dtype": "float64",
    }  # fmt: skip
    weighted = SqueakClassifier(**given).fit(X - 1, codes, weights)
    rows = np.repeat(np.arange(60), weights)
    repeated = SqueakClassifier(**given).fit((X - 1).iloc[rows], codes[rows])
    scores = [
        model.model_.predict_encoded(model.model_.encoding.encode(X - 1)[0])
        for model in (weighted, repeated)
    ]
    np.testing.assert_allclose(*scores, atol=1e-6)


# --- labels -----------------------------------------------------------------------------------

LABELS = {
    "text": np.array(WORDS),
    "objects": np.array(WORDS, dtype=object),
    "int64": np.array([-3, 0, 700]),
    "uint8": np.array([0, 1, 255], np.uint8),
    "float": np.array([-1.0, 0.0, 2.0]),
    "bool": np.array([False, True]),
    "large": np.array([2**53, 2**53 + 1, 2**60]),
    "Int64": pd.array([1, 2, 30], dtype="Int64"),
    "boolean": pd.array([False, True], dtype="boolean"),
    "string": pd.array(WORDS, dtype="string"),
    "arrow": pd.array([5, 6, 7], dtype="int64[pyarrow]"),
    "category": pd.Categorical(WORDS, categories=["none", *WORDS], ordered=True),
    "category of int": pd.Categorical([10, 20, 30], categories=[30, 20, 10, 0]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_type(kind, tmp_path):
    labels = LABELS[kind]
    X, codes = made(200, classes=len(labels))
    y = pd.Series(labels).iloc[codes].set_axis(X.index).rename("kind")
    model = SqueakClassifier(**FEW).fit(X, y)
    expected = np.unique(np.asarray(labels))
    np.testing.assert_array_equal(model.classes_, expected)
    predicted = model.predict(X)
    assert set(predicted) <= set(expected.tolist())
    assert np.mean(predicted == np.asarray(y)) > 0.8
    if kind not in ("Int64", "boolean", "string", "arrow", "category", "category of int"):
        assert predicted.dtype.kind in (labels.dtype.kind, "O")
    # Frames: the type of the column, and its categories.
    frame = dd.from_pandas(X.assign(kind=y), npartitions=3)
    lazy = SqueakClassifier(**FEW).fit(frame, target="kind")
    result = lazy.predict(frame)
    assert result.dtype == frame["kind"].dtype
    computed = result.compute()
    assert computed.dtype == result.dtype
    assert computed.name == "kind"
    assert computed.index.equals(X.index)
    assert (computed == frame["kind"].compute()).mean() > 0.8
    # The store: exactly the same labels, in strict JSON.
    lazy.save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert type(loaded) is SqueakClassifier
    assert loaded.model_.classes == lazy.model_.classes
    assert list(map(type, loaded.model_.classes.labels)) == list(
        map(type, lazy.model_.classes.labels)
    )
    pd.testing.assert_series_equal(loaded.predict(frame).compute(), computed)
    pd.testing.assert_frame_equal(
        loaded.predict_proba(frame).compute(), lazy.predict_proba(frame).compute()
    )


@pytest.mark.parametrize("wrap", [list, np.array, pd.Series, lambda y: pd.Series(y).to_frame()])
def test_labels_in_any_container(wrap):
    X, codes = made(150)
    y = [WORDS[c] for c in codes]
    model = SqueakClassifier(**FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn.exceptions.DataConversionWarning)
        model.fit(X, wrap(y))
    assert accuracy_score(y, model.predict(X)) > 0.8


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        (["a"] * 100, DataError, "one class"),
        ([1.5, 2.0] * 50, DataError, "continuous.*SqueakRegressor"),
        ([1.0, np.inf] * 50, InfiniteValuesError, "infinity"),
        (np.array(["a", 1] * 50, dtype=object), ColumnTypeError, "text and numbers"),
        (np.array([("a",), "b"] * 50 + [0], dtype=object)[:100], ColumnTypeError, "tuple"),
        (pd.date_range("2020", periods=100), ColumnTypeError, "Unknown label type"),
        (pd.array(["a", None, "b", "b"] * 25), MissingValuesError, r"\(25 of 100 rows\)"),
        ([np.nan, 1.0, 0.0, 1.0] * 25, MissingValuesError, "NaN"),
        (pd.array([None] * 100, dtype="string"), MissingValuesError, "100 of 100"),
        (["a", "b"] * 49, SqueakError, "rows"),
        (np.array([["a", "b"]] * 100), DataError, "one target"),
        (np.array([1 + 1j, 2] * 50), SqueakError, "Complex|complex"),
        ("a", SqueakError, "scalar|rows"),
    ],
)
def test_labels_that_are_no_classes(labels, error, words):
    X, _ = made(100)
    with pytest.raises(error, match=words):
        SqueakClassifier(**FEW).fit(X, labels)
    if len(labels) == 100 and np.ndim(labels) == 1 and not isinstance(labels, np.ndarray):
        frame = dd.from_pandas(X.assign(y=labels), npartitions=3)
        with pytest.raises(error, match=words):
            SqueakClassifier(**FEW).fit(frame, target="y")


@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_rows_without_a_label_are_left_out(missing):
    X, codes = made(300)
    y = pd.Series(np.array(WORDS, dtype=object)[codes])
    absent = np.arange(300) % 5 == 0
    y[absent] = None
    model = SqueakClassifier(missing=missing, **FEW).fit(X, y)
    assert model.report_["rows_fitted"] == 240
    assert model.report_["rows_dropped"] == 60
    assert set(model.component_indices_).isdisjoint(np.flatnonzero(absent))
    assert model.evaluate(X, y).rows == 240
    with pytest.raises(EmptyDataError, match="label"):
        SqueakClassifier(missing=missing).fit(X, pd.Series([None] * 300, dtype="string"))


def test_rows_left_out_of_a_prediction_have_no_label():
    X, codes = made(200, classes=2)
    X.loc[::10, "a"] = np.nan
    for y, blank in ((codes, "Int64"), (codes == 1, "boolean"), (np.array(WORDS)[codes], "str")):
        frame = dd.from_pandas(X.assign(y=y), npartitions=3)
        model = SqueakClassifier(missing="drop", **FEW).fit(frame, target="y")
        column = model.predict(frame)
        assert column.dtype == column.compute().dtype
        if blank != "str":
            assert column.dtype == blank
        np.testing.assert_array_equal(column.compute().isna(), X["a"].isna())
        array = model.predict(X)
        np.testing.assert_array_equal([v is None for v in array], X["a"].isna())
        assert np.isnan(model.predict_proba(X)[::10]).all()


def test_every_row_its_own_class():
    X, _ = made(40)
    model = SqueakClassifier(**FEW).fit(X, np.arange(40))
    assert len(model.classes_) == 40
    assert model.predict_proba(X).shape == (40, 40)
    assert model.score(X, np.arange(40)) > 0.2


def test_too_many_labels_are_refused():
    X = np.arange(20_002.0)[:, None]
    with pytest.raises(DataError, match=r"more than 10,000.*SqueakRegressor"):
        SqueakClassifier().fit(X, np.arange(20_002).astype(str))


def test_one_class_of_positive_weight():
    X, codes = made(100)
    with pytest.raises(DataError, match="one class"):
        SqueakClassifier(**FEW).fit(X, codes, (codes == 1).astype(float))


def test_a_text_target_of_the_regressor_names_the_classifier():
    X, codes = made(50)
    frame = X.assign(y=np.array(WORDS)[codes])
    for table in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(ColumnTypeError, match="SqueakClassifier"):
            squeak_dist.fit(table, target="y")


# --- what it predicts -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    X, codes = made(500, classes=request.param)
    y = np.array(WORDS)[codes]
    return SqueakClassifier(**FEW).fit(X, y), X, y


def test_scores_labels_and_probabilities_agree(fitted):
    model, X, y = fitted
    K = len(model.classes_)
    odds, shares = model.decision_function(X), model.predict_proba(X)
    assert odds.shape == ((len(X),) if K == 2 else (len(X), K))
    assert shares.shape == (len(X), K)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], model.predict(X))
    np.testing.assert_allclose(np.log(shares), model.predict_log_proba(X))
    if K == 2:
        np.testing.assert_array_equal(model.classes_[(odds > 0).astype(int)], model.predict(X))
        np.testing.assert_allclose(odds, np.log(shares[:, 1] / shares[:, 0]))
    assert model.score(X, y) == accuracy_score(y, model.predict(X)) > 0.85


def test_two_classes_are_one_column(fitted):
    model, *_ = fitted
    columns = 1 if len(model.classes_) == 2 else 3
    assert model.model_.coefficients.shape[1] == columns
    assert model.dual_coef_.shape == (len(model.dictionary_), 3)[: 1 if columns == 1 else 2]
    assert is_classifier(model)


def test_it_is_the_regression_on_indicators():
    X, codes = made(300)
    model = SqueakClassifier(**FEW).fit(X, codes)
    same = SqueakRegressor(**FEW).fit(X, np.where(codes[:, None] == np.arange(3), 1.0, -1.0))
    np.testing.assert_array_equal(model.dual_coef_, same.dual_coef_)
    np.testing.assert_array_equal(model.component_indices_, same.component_indices_)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_link_is_fitted_on_left_out_scores(weighted):
    """Against 50 fits of scikit-learn's KernelRidge, each without one row."""
    X, codes = made(50)
    X, y = X.to_numpy() - X.to_numpy().mean(axis=0), 2.0 * np.eye(3)[codes] - 1
    weights = np.linspace(0.5, 2, 50) if weighted else np.ones(50)
    model = SqueakClassifier(
        mu=0.5, gamma=1e-12, length_scale=1.0, linear_part=False, dtype="float64"
    ).fit(X, codes, weights if weighted else None)
    assert len(model.dictionary_) == 50
    mean = np.average(y, axis=0, weights=weights)
    left_out = np.empty((50, 3))
    for i in range(50):
        rest = np.delete(np.arange(50), i)
        exact = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.5)
        exact.fit(X[rest], y[rest] - mean, sample_weight=weights[rest])
        left_out[i] = exact.predict(X[[i]])[0] + mean
    expected = fit_link(left_out, codes, weights)
    found = model.model_.classes.link
    np.testing.assert_allclose(
        found.log_odds(left_out), expected.log_odds(left_out), rtol=1e-3, atol=1e-3
    )
    inside = fit_link(model.model_.predict_encoded(X), codes, weights)
    assert not np.allclose(inside.log_odds(left_out), expected.log_odds(left_out), atol=0.1)


def test_probabilities_are_calibrated_on_held_out_rows():
    X, codes = made(3000, seed=1, classes=2)
    X_new, held_out = made(6000, seed=2, classes=2)
    shares = SqueakClassifier(max_dictionary=200).fit(X, codes).predict_proba(X_new)[:, 1]
    bins = np.minimum((shares * 10).astype(int), 9)
    gaps = [
        abs(shares[bins == b].mean() - held_out[bins == b].mean()) * np.mean(bins == b)
        for b in np.unique(bins)
    ]
    assert sum(gaps) < 0.02
    plain = np.clip(
        SqueakRegressor(max_dictionary=200).fit(X, 2 * codes - 1).predict(X_new), -1, 1
    )
    assert log_loss(held_out, shares) < log_loss(held_out, (1 + plain) / 2)


def test_evaluate_is_what_scikit_learn_measures(fitted):
    model, X, y = fitted
    rng = np.random.default_rng(0)
    weights = rng.uniform(size=len(y))
    for w in (None, weights):
        result = model.evaluate(X, y, w)
        predicted, shares = model.predict(X), model.predict_proba(X)
        assert result.rows == len(y)
        assert result.model.accuracy == pytest.approx(
            accuracy_score(y, predicted, sample_weight=w)
        )
        assert result.model.balanced_accuracy == pytest.approx(
            balanced_accuracy_score(y, predicted, sample_weight=w)
        )
        assert result.model.log_loss == pytest.approx(log_loss(y, shares, sample_weight=w))
        brier = brier_score_loss(y, shares, sample_weight=w, scale_by_half=False)
        assert result.model.brier == pytest.approx(brier)
        assert model.score(X, y, w) == result.model.accuracy
        assert result.majority.accuracy < result.model.accuracy
    assert "squeak" in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


def test_labels_that_the_fit_had_not(fitted):
    model, X, y = fitted
    strange = y.copy().astype(object)
    strange[:100] = "unheard of"
    result = model.evaluate(X, strange)
    assert result.unseen == 100
    assert result.model.accuracy == pytest.approx(
        np.mean(model.predict(X)[100:] == y[100:]) * (len(y) - 100) / len(y)
    )
    assert np.isfinite(result.model.log_loss)
    assert "100 rows have labels" in str(result)
    with pytest.raises(ColumnTypeError, match="classes of the fit are text"):
        model.evaluate(X, np.arange(len(y)))


# --- weights ----------------------------------------------------------------------------------


def test_balanced_is_that_of_scikit_learn():
    X, codes = made(300, classes=2)
    rare = np.flatnonzero((codes == 0) | (np.arange(300) % 8 == 0))
    X, codes = X.iloc[rare].reset_index(drop=True), codes[rare]
    y = np.array(["no", "yes"])[codes]
    expected = compute_class_weight("balanced", classes=np.unique(y), y=y)
    by_name = SqueakClassifier(class_weight="balanced", **FEW).fit(X, y)
    np.testing.assert_allclose(by_name.report_["class_weights"], expected)
    by_dict = SqueakClassifier(
        class_weight=dict(zip(["no", "yes"], expected, strict=True)), **FEW
    ).fit(X, y)
    by_rows = SqueakClassifier(**FEW).fit(X, y, expected[codes])
    for other in (by_dict, by_rows):
        np.testing.assert_array_equal(by_name.predict_proba(X), other.predict_proba(X))
    # On one kernel, which separates the classes less well than the one of the default.
    kernel = {"kernel": "rbf", "length_scale": "median"}
    balanced, plain = (
        SqueakClassifier(class_weight=weight, **FEW, **kernel).fit(X, y).predict(X)
        for weight in ("balanced", None)
    )
    assert (balanced == "yes").sum() > (plain == "yes").sum()
    # Both kinds of weights multiply, and a table's column of weights does the same.
    own = np.linspace(0.5, 2, len(y))
    both = SqueakClassifier(class_weight={"yes": 3.0}, **FEW).fit(X, y, own)
    product = SqueakClassifier(**FEW).fit(X, y, own * np.where(codes == 1, 3.0, 1.0))
    np.testing.assert_array_equal(both.predict_proba(X), product.predict_proba(X))
    named = SqueakClassifier(class_weight={"yes": 3.0}, **FEW).fit(
        X.assign(y=y, w=own), target="y", sample_weight="w"
    )
    np.testing.assert_array_equal(both.predict_proba(X), named.predict_proba(X))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ("even", "balanced"),
        ({0: -1.0}, "≥ 0"),
        ({0: "many"}, "≥ 0"),
        ({7: 1.0}, "names 7"),
        ([1.0, 2.0], "dict"),
    ],
)
def test_class_weights_that_are_none(weight, words):
    X, codes = made(60)
    with pytest.raises(InvalidParameterError, match=words):
        SqueakClassifier(class_weight=weight).fit(X, codes)


# --- frames -----------------------------------------------------------------------------------


def test_lazy_in_lazy_out(fitted):
    model, X, _ = fitted
    K = len(model.classes_)
    shuffled = X.iloc[::-1]
    frame = dd.from_pandas(shuffled[["c", "a", "b"]].assign(more=1), npartitions=4, sort=False)
    for method in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        lazy = getattr(model, method)(frame)
        values = lazy.compute()
        assert values.index.equals(shuffled.index)
        expected = getattr(model, method)(shuffled)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(values.to_numpy(), expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(values.to_numpy(), expected)
    assert list(model.predict_proba(frame).columns) == list(model.classes_)
    array = SqueakClassifier(**FEW).fit(X.to_numpy(), np.arange(len(X)) % K)
    chunked = da.from_array(X.to_numpy(), chunks=(130, 2))
    for method in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        lazy = getattr(array, method)(chunked)
        expected = getattr(array, method)(X.to_numpy())
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-4, atol=1e-5)
    unknown = dd.from_pandas(X, npartitions=3).to_dask_array()
    assert array.predict(unknown).compute().shape == (len(X),)


def test_every_way_to_say_the_same():
    X, codes = made(300)
    y = pd.Series(np.array(WORDS)[codes], name="kind")
    frame = X.assign(kind=y)
    lazy = dd.from_pandas(frame, npartitions=3)
    reference = SqueakClassifier(**FEW).fit(lazy, target="kind")
    models = [
        SqueakClassifier(**FEW).fit(lazy, target=["kind"]),
        SqueakClassifier(**FEW).fit(lazy[FEATURES], lazy["kind"]),
        SqueakClassifier(**FEW).fit(lazy.assign(more="x"), target="kind", features=FEATURES),
    ]
    arrays = lazy[FEATURES].to_dask_array(lengths=True)
    models += [
        SqueakClassifier(**FEW).fit(arrays, lazy["kind"].to_dask_array(lengths=True)),
        SqueakClassifier(**FEW).fit(arrays, lazy["kind"]),
        SqueakClassifier(**FEW).fit(arrays, y.to_numpy(dtype=object)),
    ]
    for model in models:
        assert model.model_.coefficients.tobytes() == reference.model_.coefficients.tobytes()
        assert model.model_.classes.link == reference.model_.classes.link
    assert reference.score(lazy) == pytest.approx(
        accuracy_score(y, reference.predict(X)), abs=0.01
    )
    assert reference.score(lazy[FEATURES], lazy["kind"]) == reference.score(lazy)


def test_partitions_of_one_class_and_empty_ones():
    """A file sorted by class, whose last class is in one partition only."""
    X, codes = made(400)
    order = np.argsort(codes, kind="stable")
    frame = X.iloc[order].assign(kind=np.array(WORDS)[codes[order]]).reset_index(drop=True)
    model = SqueakClassifier(**FEW).fit(
        pieces(frame, [0, 60, 60, 0, 60, 60, 60, 60, 40, 0]), target="kind"
    )
    assert model.score(frame) > 0.85
    assert set(model.predict(frame)) == set(WORDS)


def test_a_rare_class():
    X, codes = made(3000, classes=2)
    y = np.where(codes == 1, "common", "usual").astype(object)
    y[:3] = "rare"
    X.iloc[:3] = 50.0
    model = SqueakClassifier(**FEW).fit(dd.from_pandas(X.assign(y=y), npartitions=5), target="y")
    assert list(model.predict(X.iloc[:3])) == ["rare"] * 3
    assert model.predict_proba(X.iloc[3:])[:, 1].max() < 0.2


def overwrite_columns(path, columns):
    """Make the values of some columns of a parquet file unreadable."""
    metadata = pq.read_metadata(path)
    content = bytearray(path.read_bytes())
    for group in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            column = metadata.row_group(group).column(j)
            if column.path_in_schema in columns:
                start = column.dictionary_page_offset or column.data_page_offset
                content[start : start + column.total_compressed_size] = bytes(
                    column.total_compressed_size
                )
    path.write_bytes(content)


def test_only_the_columns_that_are_needed_are_read(tmp_path):
    X, codes = made(300)
    path = tmp_path / "t.parquet"
    frame = X.assign(kind=np.array(WORDS)[codes], weight=1.0, other=np.arange(300.0))
    frame.to_parquet(path, index=False)
    overwrite_columns(path, {"other"})
    given = {"target": "kind", "features": FEATURES, "sample_weight": "weight"}
    model = SqueakClassifier(**FEW).fit(path, **given)
    assert model.score(X, frame["kind"]) > 0.85
    overwrite_columns(path, {*FEATURES, "weight"})  # the labels alone are counted
    source, classes, _ = class_source(labelled(path, **given), None, "raise")
    assert classes.labels == tuple(sorted(WORDS))
    with pytest.raises(OSError, match=r".+"):
        dask.compute(*source.tables)


def test_a_table_of_indicators():
    X, codes = made(50)
    frame = X.assign(kind=np.array(WORDS)[codes], weight=np.arange(50.0))
    lazy = labelled(frame, target="kind", sample_weight="weight")
    source, classes, weights = class_source(lazy, {"low": 3.0}, "raise")
    (table,) = dask.compute(*source.tables)
    assert (classes.labels, source.target_names) == (("high", "low", "mid"),) * 2
    np.testing.assert_array_equal(weights, [1, 3, 1])
    expected = frame["kind"].to_numpy(dtype=object)[:, None] == np.array(classes.labels, object)
    np.testing.assert_array_equal(table.targets, np.where(expected, 1.0, -1.0))
    factor = np.where(frame["kind"] == "low", 3.0, 1.0)
    np.testing.assert_array_equal(table.weights, factor * np.arange(50))
    assert list(table.features.columns) == FEATURES


def test_from_a_path_and_by_position(tmp_path):
    X, codes = made(300)
    frame = X.assign(kind=codes)
    frame.columns = [0, 1, 2, 3]
    model = SqueakClassifier(**FEW).fit(frame, target=3)
    assert model.score(frame) > 0.85  # the column is found by the text of its label
    X.assign(kind=codes).to_parquet(tmp_path / "t.parquet")
    from_path = SqueakClassifier(**FEW).fit(tmp_path / "t.parquet", target="kind")
    assert from_path.score(tmp_path / "t.parquet") > 0.85
    assert from_path.predict(str(tmp_path / "t.parquet")).dtype == codes.dtype


def test_tables_of_other_libraries():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    X, codes = made(300)
    frame = X.assign(kind=np.array(WORDS)[codes])
    expected = SqueakClassifier(**FEW).fit(frame, target="kind").predict_proba(X)
    for table in (pa.Table.from_pandas(frame), pl.from_pandas(frame)):
        model = SqueakClassifier(**FEW).fit(table, target="kind")
        np.testing.assert_array_equal(model.predict_proba(X), expected)
        assert model.score(table) == pytest.approx(accuracy_score(frame["kind"], model.predict(X)))


def test_a_grid_of_xarray():
    xr = pytest.importorskip("xarray")
    t, u = np.linspace(-2, 2, 20), np.linspace(-2, 2, 30)
    inside = t[:, None] ** 2 + u**2 < 2
    grid = xr.Dataset(
        {"heat": (("t", "u"), np.add.outer(t, u)), "kind": (("t", "u"), inside)},
        coords={"t": t, "u": u},
    )
    model = SqueakClassifier(**FEW).fit(grid, target="kind")
    assert model.score(grid) > 0.95
    table = grid.to_dataframe().reset_index()
    for wanted in (grid, grid.chunk(t=7, u=11)):
        labels = model.predict(wanted)
        assert (labels.dims, labels.name, labels.dtype) == (("t", "u"), "kind", bool)
        assert (labels.chunks is None) == (wanted.chunks == {})
        np.testing.assert_array_equal(np.asarray(labels).ravel(), model.predict(table))
        odds = model.decision_function(wanted)
        assert odds.dims == ("t", "u")
        np.testing.assert_array_equal(odds > 0, labels)
        shares = model.predict_proba(wanted)
        assert shares.dims == ("t", "u", "class")
        assert shares["class"].values.tolist() == [False, True]
        np.testing.assert_allclose(
            np.asarray(shares).reshape(-1, 2), model.predict_proba(table), rtol=1e-4, atol=1e-7
        )
        np.testing.assert_array_equal(shares.sel({"class": True}) > 0.5, labels)


def test_a_grid_of_text_labels_with_holes():
    xr = pytest.importorskip("xarray")
    t, u = np.linspace(-2, 2, 20), np.linspace(-2, 2, 30)
    radius = t[:, None] ** 2 + u**2
    kind = np.array(WORDS, dtype=object)[np.digitize(radius, [1.0, 3.0])]
    wet = np.where(t[:, None] > -1.5, np.add.outer(t, u), np.nan)
    grid = xr.Dataset({"wet": (("t", "u"), wet), "kind": (("t", "u"), kind)}, {"t": t, "u": u})
    model = SqueakClassifier(missing="drop", **FEW).fit(grid, target="kind")
    for wanted in (grid, grid.chunk(t=8)):
        labels = model.predict(wanted).compute()
        assert pd.isna(labels.values[np.isnan(wet)]).all()
        assert np.mean(labels.values[~np.isnan(wet)] == kind[~np.isnan(wet)]) > 0.9
        assert model.decision_function(wanted).sizes == {"t": 20, "u": 30, "class": 3}


def test_data_arrays_of_rows():
    xr = pytest.importorskip("xarray")
    X, codes = made(200)
    rows = xr.DataArray(X.to_numpy(), dims=("row", "name"), coords={"row": np.arange(200) + 5})
    model = SqueakClassifier(**FEW).fit(rows, codes)
    labels = model.predict(rows)
    assert (labels.dims, int(labels.row[0])) == (("row",), 5)
    np.testing.assert_array_equal(labels, model.predict(X.to_numpy()))
    assert model.predict_proba(rows.chunk(row=50)).dims == ("row", "class")


def test_an_error_of_a_partition_comes_through():
    X, codes = made(100)
    frame = X.assign(kind=codes, w=pd.Series([1.0] * 99 + ["heavy"], dtype=object))
    lazy = pieces(frame, [50, 50])
    with pytest.raises(ColumnTypeError, match="'w'"):
        SqueakClassifier(**FEW).fit(lazy, target="kind", sample_weight="w")


def test_columns_that_are_not_there():
    X, codes = made(60)
    frame = X.assign(y=codes)
    for table in (frame, dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(MissingColumnsError, match="did you mean 'y'"):
            SqueakClassifier().fit(table, target="Y")
        with pytest.raises(MissingColumnsError, match="'q'"):
            SqueakClassifier().fit(table, target="y", features=["a", "q"])
        with pytest.raises(InvalidParameterError, match="one target"):
            SqueakClassifier().fit(table, target=["y", "a"])
        with pytest.raises(InvalidParameterError, match="y is None"):
            SqueakClassifier().fit(table)
    twice = pd.concat([frame, frame[["y"]]], axis=1)
    with pytest.raises(DataError, match="more than once"):
        SqueakClassifier().fit(twice, target="y")


def test_data_that_change_during_a_fit_are_noticed():
    X, codes = made(100)
    classes = class_source(labelled(X.assign(y=codes), target="y"), None, "raise")[1]
    changed = labelled(X.assign(y=[*range(100)]), target="y").source(classes)
    (table,) = dask.compute(*changed.tables)
    with pytest.raises(DataError, match="must not change"):
        indicate(table, classes, None)


# --- the plain loop ---------------------------------------------------------------------------


def test_the_plain_executor_gives_the_same_bits():
    X, codes = made(600)
    frame = pieces(X.assign(y=np.array(WORDS)[codes]), [0, 100, 250, 1, 149, 100])
    model = SqueakClassifier(class_weight="balanced", max_dictionary=100).fit(frame, target="y")
    source, classes, _ = class_source(labelled(frame, target="y"), "balanced", "raise")
    plain = fit_tables(
        PlainExecutor(),
        dask.compute(*source.tables, scheduler="sync"),
        source.schema,
        FitParameters(max_dictionary=100, classifies=True),
        target_names=source.target_names,
        single_output=source.single_output,
        classes=classes,
    )
    assert plain.coefficients.tobytes() == model.model_.coefficients.tobytes()
    assert plain.classes == model.model_.classes
    assert plain.report["task"] == "classification"


# --- inside scikit-learn ----------------------------------------------------------------------


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
def test_a_copy_predicts_the_same_bits(fitted, tmp_path, copied):
    model, X, _ = fitted
    again = copied(model, tmp_path)
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    np.testing.assert_array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.report_ == model.report_
    assert again.get_params() == model.get_params()


def test_a_loaded_classifier_fits_again(tmp_path):
    X, codes = made(200)
    model = SqueakClassifier(class_weight={1: 2.0}, mu=0.1, gamma=0.5, length_scale=1.5)
    model.fit(X, codes).save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert loaded.get_params() == model.get_params()
    again = clone(loaded).fit(X, codes)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("weight", ["balanced", {"low": 3.0, "mid": 0.5}])
def test_a_loaded_classifier_keeps_its_parameters(tmp_path, weight):
    X, codes = made(200)
    model = SqueakClassifier(class_weight=weight, random_state=None, **FEW)
    model.fit(X, np.array(WORDS)[codes]).save(tmp_path / "m.zarr")
    loaded = squeak_dist.load(tmp_path / "m.zarr")
    assert loaded.class_weight == weight
    again = clone(loaded).fit(X, np.array(WORDS)[codes])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_searches_pipelines_and_validation_with_text_labels():
    X, codes = made(240)
    y = np.array(WORDS)[codes]
    pipeline = make_pipeline(StandardScaler(), SqueakClassifier(mu=0.1, **FEW))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.75
    assert cross_val_score(pipeline, X, y, cv=3, scoring="roc_auc_ovr").min() > 0.85
    assert set(cross_val_predict(pipeline, X, y, cv=3)) == set(WORDS)
    search = GridSearchCV(
        SqueakClassifier(**FEW), {"mu": [0.1, 1e4], "class_weight": [None, "balanced"]},
        cv=3, scoring="neg_log_loss",
    ).fit(X, y)  # fmt: skip
    assert search.best_params_["mu"] == 0.1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    for method in ("sigmoid", "isotonic"):
        outer = CalibratedClassifierCV(SqueakClassifier(**FEW), method=method, cv=3).fit(X, y)
        assert outer.score(X, y) > 0.8


def test_routing_of_sample_weight():
    X, codes = made(200)
    weights = np.where(np.arange(200) % 2, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        step = SqueakClassifier(**FEW).set_fit_request(sample_weight=True)
        step.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, step).fit(X, codes, sample_weight=weights)
        assert np.all(pipeline[-1].component_indices_ % 2 == 1)
        search = GridSearchCV(step, {"mu": [0.1, 1.0]}, cv=3)
        search.fit(X, codes, sample_weight=weights)
        assert np.isfinite(search.best_score_)


def test_defaults_are_those_of_the_regressor():
    parameters = SqueakClassifier().get_params()
    assert parameters.pop("class_weight") is None
    assert parameters == SqueakRegressor().get_params()


# --- the command line -------------------------------------------------------------------------


def test_the_command_line(tmp_path):
    X, codes = made(300)
    frame = X.assign(kind=pd.Categorical.from_codes(codes, WORDS))
    frame.to_parquet(tmp_path / "t.parquet")

    def run(*args):
        result = CliRunner().invoke(main, [str(a) for a in args])
        assert result.exit_code == 0, result.output
        return result

    data, model, out = tmp_path / "t.parquet", tmp_path / "m.zarr", tmp_path / "out"
    run("fit", data, "--target", "kind", "--task", "classification", "--balanced",
        "--max-dictionary", 80, "--model", model, "--workers", 0)  # fmt: skip
    run("predict", model, data, "--out", out, "--workers", 0)
    predicted = pd.read_parquet(out)
    assert list(predicted.columns) == ["kind"]
    assert (predicted["kind"].astype(str) == frame["kind"].astype(str)).mean() > 0.85
    run("predict", model, data, "--out", tmp_path / "p", "--probabilities", "--workers", 0)
    assert list(pd.read_parquet(tmp_path / "p").columns) == sorted(WORDS)
    scores = json.loads(run("evaluate", model, data, "--json", "--workers", 0).stdout)
    assert scores["model"]["accuracy"] > 0.85
    facts = json.loads(run("inspect", model, "--json").stdout)
    assert (facts["task"], facts["classes"], facts["target"]) == (
        "classification", sorted(WORDS), ["kind"],
    )  # fmt: skip
    assert "high, low, mid" in run("inspect", model).stdout


def test_options_of_the_other_task(tmp_path):
    X, codes = made(60)
    X.assign(y=codes).to_parquet(tmp_path / "t.parquet")
    fit = ["fit", str(tmp_path / "t.parquet"), "--target", "y", "--model", str(tmp_path / "m")]
    result = CliRunner().invoke(main, [*fit, "--balanced", "--workers", "0"])
    assert (result.exit_code, "--task classification" in result.stderr) == (2, True)
    assert CliRunner().invoke(main, [*fit, "--workers", "0"]).exit_code == 0
    predict = ["predict", str(tmp_path / "m"), str(tmp_path / "t.parquet"), "--out"]
    result = CliRunner().invoke(main, [*predict, str(tmp_path / "o"), "--probabilities"])
    assert (result.exit_code, "of a classifier" in result.stderr) == (2, True)
