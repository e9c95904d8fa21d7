"""What users pass at the front door: each test was once a wrong answer or a raw error."""

from __future__ import annotations

import json
import warnings

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import squeak_dist
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    InfiniteValuesError,
    InvalidKernelError,
    InvalidParameterError,
    LengthMismatchError,
    MissingColumnsError,
    MissingValuesError,
)
from squeak_dist.kernels import RBF

ROWS = 300
QUICK = {"max_dictionary": 40}  # small enough for the whole file to take seconds


@pytest.fixture(scope="module")
def frame():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 3)), columns=list("abc"))
    return rows.assign(y=rows.a + rows.b**2)


@pytest.fixture(scope="module")
def arrays(frame):
    return frame[["a", "b", "c"]].to_numpy(), frame.y.to_numpy()


@pytest.fixture(scope="module")
def lazy(frame):
    return dd.from_pandas(frame, npartitions=3)


@pytest.fixture(scope="module")
def lazy_arrays(arrays):
    return tuple(da.from_array(array, chunks=100) for array in arrays)


@pytest.fixture(scope="module")
def model(frame):
    return squeak_dist.fit(frame, target="y", **QUICK)


def fit(*args, **kwargs):
    return squeak_dist.fit(*args, **QUICK, **kwargs)


# --- arrays -------------------------------------------------------------------------------------


def test_a_scalar_beside_a_dask_array_is_refused(lazy_arrays):
    X, y = lazy_arrays
    with pytest.raises(LengthMismatchError, match=r"sample_weight has a scalar \(str\)"):
        fit(X, y, sample_weight="w")
    with pytest.raises(LengthMismatchError, match=r"y has a scalar \(float\)"):
        fit(X, 3.0)


@pytest.mark.parametrize("kind", ["arrays", "lazy_arrays"])
def test_weights_in_a_matrix_are_refused(kind, request):
    X, y = request.getfixturevalue(kind)
    with pytest.raises(DataError, match=r"sample_weight must be of shape \(n,\)"):
        fit(X, y, sample_weight=np.ones((ROWS, 1)))


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["a", 1.5, True, -1])
def test_a_wrong_random_state_says_what_is_right(arrays, seed):
    with pytest.raises(InvalidParameterError, match="random_state must be an integer ≥ 0"):
        fit(*arrays, random_state=seed)


def test_a_generator_is_a_random_state(arrays):
    seeds = [fit(*arrays, random_state=np.random.default_rng(s)).model_.seed for s in (3, 3, 4)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_standardize_takes_numpy_booleans(arrays):
    given = [fit(*arrays, standardize=value).predict(arrays[0]) for value in (np.False_, False)]
    np.testing.assert_array_equal(*given)
    with pytest.raises(InvalidParameterError, match="standardize must be one of"):
        fit(*arrays, standardize=1)


# --- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("collection", ["frame", "lazy"])
def test_features_are_a_list_of_distinct_labels(collection, request):
    table = request.getfixturevalue(collection)
    with pytest.raises(InvalidParameterError, match=r"got 'abc', use \['abc'\]"):
        fit(table, target="y", features="abc")
    with pytest.raises(InvalidParameterError, match="features must be a list of labels; got 3"):
        fit(table, target="y", features=3)
    with pytest.raises(InvalidParameterError, match="features names 'a' 2 times"):
        fit(table, target="y", features=["a", "b", "a"])
    assert fit(table, target="y", features=pd.Index(["a"])).n_features_in_ == 1


def test_targets_are_distinct_labels(frame):
    with pytest.raises(InvalidParameterError, match="target names 'y' 2 times"):
        fit(frame, target=["y", "y"])
    with pytest.raises(InvalidParameterError, match=r"target must be a label .* got ndarray"):
        fit(frame, target=np.array(["y"]))


# --- collections that are no table --------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda lazy: dask.delayed(1), "Delayed"),
        (lambda lazy: dask.bag.from_sequence([1]), "Bag"),
        (lambda lazy: lazy.a, "Series.*to_frame"),
    ],
    ids=["delayed", "bag", "series"],
)
def test_other_dask_collections_are_named(lazy, model, made, name):
    with pytest.raises(ColumnTypeError, match=f"X is a Dask {name}"):
        fit(made(lazy), lazy.y)
    with pytest.raises(ColumnTypeError, match=f"X is a Dask {name}"):
        model.predict(made(lazy))


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.coo_matrix])
def test_sparse_is_refused_by_name_everywhere(arrays, lazy_arrays, model, make):
    X, y = arrays
    for attempt in (
        lambda: fit(make(X), y),
        lambda: model.predict(make(X)),
        lambda: model.evaluate(make(X), y),
        lambda: fit(lazy_arrays[0].map_blocks(make), lazy_arrays[1]),
    ):
        with pytest.raises(ColumnTypeError, match="X is a sparse matrix"):
            attempt()
    for rows in (X, lazy_arrays[0]):
        with pytest.raises(ColumnTypeError, match="y is a sparse matrix"):
            fit(rows, make(y[:, None]))


def test_lazy_y_or_weights_beside_rows_in_memory_are_named(frame, lazy, arrays):
    with pytest.raises(ColumnTypeError, match=r"X is in memory \(DataFrame\), but y is a Dask"):
        fit(frame[["a"]], lazy.y)
    with pytest.raises(ColumnTypeError, match="but sample_weight is a Dask collection"):
        fit(*arrays, sample_weight=da.ones(ROWS))


# --- types and names ----------------------------------------------------------------------------


@pytest.mark.parametrize("collection", ["frame", "lazy"])
def test_a_type_that_cannot_be_used_is_named_with_its_column(collection, request):
    table = request.getfixturevalue(collection)
    with pytest.raises(ColumnTypeError, match="column 'a': dtype complex128 cannot be used"):
        fit(table.assign(a=table.a + 0j), target="y")


@pytest.mark.parametrize("kind", ["arrays", "lazy_arrays"])
@pytest.mark.parametrize("text", [str, "S8"])
def test_text_in_an_array_y_is_refused_by_name(kind, text, request):
    X, y = request.getfixturevalue(kind)
    expected = r"the target 'y' is text .* for classes use SqueakClassifier"
    with pytest.raises(ColumnTypeError, match=expected) as error:
        fit(X, y.astype(text))
    assert "__" not in str(error.value)


@pytest.mark.parametrize("collection", ["frame", "lazy"])
@pytest.mark.parametrize("dtype", [str, object])
def test_text_in_a_series_y_is_refused_by_its_own_name(collection, dtype, request):
    table = request.getfixturevalue(collection)
    price = table.y.astype(str).astype(dtype).rename("price")
    with pytest.raises(ColumnTypeError, match="the target 'price' is text") as error:
        fit(table[["a", "b"]], price)
    assert "__" not in str(error.value)


def test_text_in_weights_is_refused_by_name(frame, arrays):
    with pytest.raises(ColumnTypeError, match="the sample weight 'sample_weight' is text"):
        fit(*arrays, sample_weight=["u"] * ROWS)
    with pytest.raises(ColumnTypeError, match="the sample weight 'w' is text") as error:
        fit(frame.assign(w="u"), target="y", sample_weight="w")
    assert "classes" not in str(error.value)


def test_numbers_as_objects_are_read(lazy_arrays, arrays):
    X, y = lazy_arrays
    expected = fit(X, y).predict(arrays[0])
    np.testing.assert_array_equal(fit(X, y.astype(object)).predict(arrays[0]), expected)


# --- alignment ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
def test_indexes_that_do_not_match_are_refused(frame, lazy, missing):
    moved = dd.from_pandas(frame.y.set_axis(range(1000, 1000 + ROWS)), npartitions=3)
    with pytest.raises(DataError, match="the indexes of X and y do not match"):
        fit(lazy[["a", "b"]], moved, missing=missing)
    with pytest.raises(DataError, match="the indexes of X and sample_weight do not match"):
        fit(lazy[["a", "b"]], lazy.y, sample_weight=moved.abs(), missing=missing)


def test_a_row_of_x_without_its_row_in_y_is_refused(lazy):
    with pytest.raises(DataError, match="have no row in y"):
        fit(lazy[["a", "b"]], lazy[lazy.a > 0].y, missing="impute")


def test_rows_that_y_alone_has_are_left_out(frame, lazy):
    """Also where a partition has rows of y alone, which pandas would adopt."""
    first = dd.from_pandas(frame.iloc[:100], npartitions=2)
    for missing in ("raise", "impute"):
        fitted = fit(first[["a", "b"]], lazy.y, missing=missing)
        assert fitted.report_["rows"] == 100
    few = lazy[lazy.a > 0]
    assert fit(few[["a", "b"]], lazy.y).report_["rows"] == int((frame.a > 0).sum())


def test_a_missing_target_is_not_a_missing_row(frame, lazy):
    holes = lazy.y.mask(lazy.a > 1)
    fitted = fit(lazy[["a", "b"]], holes, missing="impute", length_scale="median")
    assert fitted.report_["rows_dropped"] == int((frame.a > 1).sum())


def test_matching_indexes_cut_otherwise_fit_the_same_rows(frame, lazy):
    other = dd.from_pandas(frame.y, npartitions=7)
    fitted = fit(lazy[["a", "b", "c"]], other)
    assert fitted.report_["rows"] == ROWS
    assert fitted.score(frame) > 0.9  # each y came to its own x


def test_indexes_that_cannot_be_compared_are_refused(frame, lazy):
    texts = dd.from_pandas(frame.y.set_axis(frame.index.astype(str)), sort=True)
    restarted = lazy[["a", "b"]].reset_index(drop=True)
    for X, y in ((lazy[["a", "b"]], texts), (restarted, lazy.y)):
        with pytest.raises(DataError, match=r"cannot be aligned by index .* into X"):
            fit(X, y)


def test_repeated_labels_do_not_matter_within_one_collection(frame, lazy):
    restarted = lazy.reset_index(drop=True)  # 0 to 99, three times
    fitted = fit(restarted[["a", "b", "c"]], restarted.y)
    assert fitted.score(frame) > 0.9


# --- evaluate -----------------------------------------------------------------------------------


def test_evaluate_finds_missing_columns_before_it_reads(frame, model):
    def unreadable(part):
        raise AssertionError("the data were read")

    lazy = dd.from_pandas(frame[["a", "b"]], npartitions=2)
    lazy = lazy.map_partitions(unreadable, meta=frame[["a", "b"]].head(0))
    for table, y in ((lazy, lazy.a), (frame[["a", "b"]], frame.y)):
        with pytest.raises(MissingColumnsError, match="missing column 'c'"):
            model.evaluate(table, y)


def test_evaluate_ignores_further_columns_beside_y(frame, lazy, model):
    scores = [model.score(table.assign(z="text"), table.y) for table in (frame, lazy)]
    np.testing.assert_allclose(scores, model.score(frame), rtol=1e-10)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"y": np.inf}, InfiniteValuesError, r"inf\) in the target 'y' \(300 rows\)"),
        ({"y": 1e200}, InfiniteValuesError, "too large to be squared"),
        ({"w": np.inf}, InfiniteValuesError, "the sample weights"),
        ({"w": np.nan}, MissingValuesError, "the sample weights"),
        ({"w": -1.0}, InvalidParameterError, "negative values in the sample weights"),
        ({"w": 0.0}, DataError, "no row has a target and a weight"),
    ],
)
def test_evaluate_checks_values_as_the_fit_does(frame, model, changes, error, message):
    table = frame.assign(**({"w": 1.0} | changes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=message):
            model.evaluate(table, sample_weight="w")


def test_scores_are_strict_json(frame, model):
    holes = model.evaluate(frame.assign(y=frame.y.mask(frame.a > 0)))
    assert holes.rows == int((frame.a <= 0).sum())
    constant = model.evaluate(frame.assign(y=1.0)).to_dict()
    assert constant["model"]["r2"] == [None]
    json.dumps(constant, allow_nan=False)


# --- values -------------------------------------------------------------------------------------


def test_values_have_a_repr_of_one_line(frame, model):
    m = len(model.dictionary_)
    assert repr(model.dictionary_).startswith(f"Dictionary(m={m}, d=3, gamma=")
    assert repr(model.model_).startswith(
        f"FittedModel({type(model.kernel_).__name__}(length_scale="
    )
    assert repr(model.model_).endswith("target='y')")
    assert repr(fit(frame, target=["y", "a"]).model_).endswith("target=['y', 'a'])")
    assert "\n" not in repr(model.model_) + repr(model.dictionary_)


def test_a_complex_kernel_is_refused(arrays):
    class Complex:
        def __call__(self, X, Y):
            return RBF(1.0)(X, Y) + 0j

        def diag(self, X):
            return np.ones(len(X))

    with pytest.raises(InvalidKernelError, match="dtype complex128; expected real numbers"):
        fit(*arrays, kernel=Complex())
