"""Whatever is wrong with the input: the right error, in time, with a message that helps."""

from __future__ import annotations

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import squeak_dist
from squeak_dist import RBF
from squeak_dist.errors import (
    ColumnTypeError,
    ConstantTargetError,
    DataError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidKernelError,
    InvalidParameterError,
    LengthMismatchError,
    MissingColumnsError,
    MissingValuesError,
    NumericalError,
    SqueakError,
)

ROWS = 60
BUILTIN = {
    InvalidParameterError: ValueError,
    InvalidKernelError: ValueError,
    DataError: ValueError,
    EmptyDataError: ValueError,
    MissingColumnsError: (ValueError, KeyError),
    MissingValuesError: ValueError,
    InfiniteValuesError: ValueError,
    LengthMismatchError: ValueError,
    ConstantTargetError: ValueError,
    ColumnTypeError: TypeError,
    NumericalError: ArithmeticError,
}


def made():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=list("abc"))
    return frame.assign(y=np.sin(frame["a"]) + frame["b"], w=rng.uniform(1, 2, ROWS), text="word")


F = made()
X, Y = F[["a", "b", "c"]].to_numpy(), F["y"].to_numpy()
HALF = np.arange(ROWS) % 2 == 0


def explode(part):
    raise AssertionError("a task ran that should not have been submitted")


def lazy(frame):
    """The frame as a Dask collection whose partitions must never be made."""
    return dd.from_map(explode, range(3), meta=frame.iloc[:0])


def lazy_array(array, columns=None):
    shape = (ROWS,) if columns is None else (ROWS, columns)
    chunks = (20,) if columns is None else (20, columns)
    return da.map_blocks(
        explode, da.zeros(shape, chunks=chunks), dtype=float, meta=np.empty((0,) * len(shape))
    )


def in_dask(frame):
    return dd.from_pandas(frame, npartitions=3)


def fit(*args, **options):
    return squeak_dist.fit(*args, **options)


def assert_raises(error, message, call):
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, SqueakError)
    for builtin in np.atleast_1d(np.array(BUILTIN[error], dtype=object)):
        assert isinstance(caught.value, builtin)
    text = str(caught.value)
    assert text.strip() == text
    assert "\n" not in text
    assert len(text) < 600
    assert "__target" not in text
    assert "__weight" not in text


# --- columns and lengths: known before anything runs ------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (MissingColumnsError, r"'Y' \(did you mean 'y'\?\)", lambda f: fit(f, target="Y")),
        (MissingColumnsError, "'y2'", lambda f: fit(f, target=["y", "y2"])),
        (
            MissingColumnsError,
            r"missing columns 'q' and 'r'; the table has 'a', 'b', 'c', 'y', 'w' and 'text'",
            lambda f: fit(f, target="y", features=["a", "q", "r"]),
        ),
        (MissingColumnsError, "'v'", lambda f: fit(f, target="y", sample_weight="v")),
        (ColumnTypeError, "'text' is text", lambda f: fit(f, target="text")),
        (ColumnTypeError, "'text' is text", lambda f: fit(f, target="y", sample_weight="text")),
        (
            ColumnTypeError,
            "'when' is datetime",
            lambda f: fit(f.assign(when=pd.Timestamp("2026")), target="when"),
        ),
        (
            ColumnTypeError,
            "'a'.*complex",
            lambda f: fit(f.assign(a=f["a"] + 0j), target="y"),
        ),
        (
            ColumnTypeError,
            "'y'.*complex",
            lambda f: fit(f.assign(y=f["y"] + 0j), target="y"),
        ),
        (InvalidParameterError, "target is empty", lambda f: fit(f, target=[])),
        (
            InvalidParameterError,
            "target names 'y' 2 times",
            lambda f: fit(f, target=["y", "y"]),
        ),
        (
            InvalidParameterError,
            "features names 'a' 2 times",
            lambda f: fit(f, target="y", features=["a", "a"]),
        ),
        (
            InvalidParameterError,
            r"features.*list.*\['a'\]",
            lambda f: fit(f, target="y", features="a"),
        ),
        (
            InvalidParameterError,
            "'y' is both a feature and the target",
            lambda f: fit(f, target="y", features=["a", "y"]),
        ),
        (
            InvalidParameterError,
            "'a' is both a feature and the target or weight",
            lambda f: fit(f, target="y", features=["a"], sample_weight="a"),
        ),
        (DataError, "no columns are left", lambda f: fit(f[["y"]], target="y")),
        (InvalidParameterError, "the target y is None", lambda f: fit(f)),
        (
            InvalidParameterError,
            "target once: either y, or target=",
            lambda f: fit(f, f["y"], target="y"),
        ),
        (
            MissingColumnsError,
            r"\('y', 'a'\)",
            lambda f: fit(f, target=("y", "a")),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_columns(kind, error, message, call):
    table = F if kind == "pandas" else lazy(F)
    assert_raises(error, message, lambda: call(table))


@pytest.mark.parametrize("frame", [F, in_dask(F)], ids=["pandas", "dask"])
def test_duplicate_names(frame):
    twice = F.rename(columns={"b": "a"})
    assert_raises(DataError, "more than once: 'a'", lambda: fit(twice, target="y"))
    model = fit(frame[["a", "b", "y"]], target="y")
    assert_raises(DataError, "more than once: 'a'", lambda: model.predict(F.rename(
        columns={"c": "a"})))  # fmt: skip
    unneeded = F.rename(columns={"w": "text"})
    assert np.isfinite(model.predict(unneeded)).all()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("y", lambda: fit(X, Y[:-1])),
        ("y", lambda: fit(F[["a"]], Y[:-1])),
        ("y", lambda: fit(F[["a"]], F["y"].iloc[:-1])),
        ("y", lambda: fit(F[["a"]], F[["y"]].iloc[:-1])),
        ("y", lambda: fit(X, 3.0)),
        ("y", lambda: fit(X.tolist(), Y[:-1].tolist())),
        ("sample_weight", lambda: fit(X, Y, sample_weight=np.ones(ROWS + 1))),
        ("sample_weight", lambda: fit(F, target="y", sample_weight=np.ones(ROWS + 1))),
        ("y", lambda: fit(lazy_array(X, 3), lazy_array(Y)[:-1])),
        ("y", lambda: fit(lazy_array(X, 3), Y[:-1])),
        ("sample_weight", lambda: fit(lazy_array(X, 3), Y, sample_weight=np.ones(ROWS + 1))),
    ],
)
def test_lengths(name, call):
    assert_raises(LengthMismatchError, rf"X has 60 rows, but {name} has (59|61|a scalar)", call)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (InvalidParameterError, "array has no column names", lambda: fit(X, target="y")),
        (InvalidParameterError, "array has no column names", lambda: fit(X, Y, features=["a"])),
        (
            InvalidParameterError,
            "array has no column names",
            lambda: fit(lazy_array(X, 3), target="y"),
        ),
        (DataError, "Expected 2D array", lambda: fit(Y, Y)),
        (DataError, "Expected 2D array", lambda: fit(F["a"], Y)),
        (DataError, "2D array", lambda: fit(lazy_array(Y), Y)),
        (DataError, "X has no columns", lambda: fit(X[:, :0], Y)),
        (DataError, r"\(n,\) or \(n, outputs\), got 3D", lambda: fit(X, Y.reshape(ROWS, 1, 1))),
        (ColumnTypeError, "sparse matrix.*toarray", lambda: fit(sparse.csr_matrix(X), Y)),
        (ColumnTypeError, "sparse matrix.*toarray", lambda: fit(sparse.csr_array(X), Y)),
        (ColumnTypeError, "sparse", lambda: fit(X, sparse.csr_array(Y[:, None]))),
        (DataError, "Complex data not supported", lambda: fit(X + 0j, Y)),
        (DataError, "Complex data not supported", lambda: fit(X, Y + 0j)),
        (
            ColumnTypeError,
            "must hold numbers.*for columns of several types pass a DataFrame",
            lambda: fit(np.where(HALF[:, None], X.astype(object), "word"), Y),
        ),
        (ColumnTypeError, "y.* is text", lambda: fit(X, np.full(ROWS, "word"))),
        (ColumnTypeError, "y.* is text", lambda: fit(X, np.full(ROWS, "word", object))),
        (ColumnTypeError, "'text' is text", lambda: fit(F[["a"]], F["text"])),
        (ColumnTypeError, "weight.* is text", lambda: fit(X, Y, sample_weight=["word"] * ROWS)),
        (
            ColumnTypeError,
            "X is (a )?(Dask )?Series",
            lambda: fit(in_dask(F)["a"], in_dask(F)["y"]),
        ),
        (ColumnTypeError, "Delayed", lambda: fit(in_dask(F).to_delayed()[0], target="y")),
        (ColumnTypeError, "dict", lambda: fit({"a": [1.0, 2.0]}, [1.0, 2.0])),
    ],
)
def test_arrays_and_things_that_are_none(error, message, call):
    assert_raises(error, message, call)


# --- parameters: known before anything runs ---------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "values", "expected"),
    [
        ("gamma", [0, -1, np.nan, np.inf, None, True, "0.1"], 'a number > 0, .*or "auto"'),
        ("mu", [0, -1e-9, np.nan, np.inf, None, "small"], 'a number > 0, .*or "auto"'),
        ("epsilon", [0, 1, -0.1, 1.5, np.nan, None, "auto"], r"a number in \(0, 1\)"),
        ("delta", [0, 1, None], r"a number in \(0, 1\)"),
        ("qbar", [0, -1, 1.5, True, None, "auto"], 'an integer ≥ 1, .*or "theory"'),
        ("max_dictionary", [0, -5, 10.0, True, "auto"], "an integer ≥ 1, .*or None"),
        ("fan_in", [1, 0, 2.0, None], "an integer ≥ 2"),
        ("missing", ["ignore", None, True], "one of 'raise', 'impute', 'drop'"),
        ("solver", ["lu", None], "one of 'auto', 'direct', 'cg'"),
        ("approximation", ["exact", None], "one of 'projected', 'regularized'"),
        ("dtype", ["float16", float, None], "one of 'float32', 'float64'"),
        ("on_overrun", ["raise", None], "one of 'raise_gamma', 'stop'"),
        ("standardize", ["yes", 1, None], "one of 'auto', True, False"),
        ("random_state", [-1, 1.5, "seed"], "random_state"),
        ("kernel", ["magic", 3, None, RBF], "kernel"),
        (
            "length_scale",
            [0, -1.0, np.nan, np.inf, None, "long", [], [1, 0, 1], [1, np.nan, 1], [[1, 2, 3]]],
            "length_scale must be a positive number",
        ),
    ],
)
def test_parameters(parameter, values, expected):
    for value in values:
        call = lambda: fit(lazy(F), target="y", **{parameter: value})  # noqa: E731, B023
        assert_raises(InvalidParameterError, rf"{parameter}.*{expected}|{expected}", call)
        with pytest.raises(InvalidParameterError, match=parameter):
            squeak_dist.SqueakRegressor(**{parameter: value}).check_parameters()


def test_parameters_that_do_not_go_together():
    assert_raises(
        InvalidParameterError, "a kernel object has its own",
        lambda: fit(lazy(F), target="y", kernel=RBF(1.0), length_scale=2.0),
    )  # fmt: skip
    assert_raises(
        InvalidParameterError, r"length_scale has 2 values, but the columns encode to 3 .*a, b, c",
        lambda: fit(F[["a", "b", "c", "y"]], target="y", length_scale=[1.0, 2.0]),
    )  # fmt: skip
    with pytest.raises(TypeError, match="gama"):
        fit(lazy(F), target="y", gama=1.0)


# --- values: known after the profile ----------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (EmptyDataError, "n_samples=0", lambda f: f.iloc[:0]),
        (EmptyDataError, "n_samples=1.*at least two", lambda f: f.iloc[:1]),
        (MissingValuesError, r"'a' \(30 rows\).*of 60 rows.*impute.*drop",
         lambda f: f.assign(a=np.where(HALF, np.nan, f["a"]))),
        (MissingValuesError, r"the target \(30 rows\).*missing=",
         lambda f: f.assign(y=np.where(HALF, np.nan, f["y"]))),
        (MissingValuesError, "'a' .*and 'text'",
         lambda f: f.assign(a=np.nan, text=None)),
        (InfiniteValuesError, r"'a' \(30 rows\)", lambda f: f.assign(
            a=np.where(HALF, np.inf, f["a"]))),
        (InfiniteValuesError, r"the target \(30 rows\)", lambda f: f.assign(
            y=np.where(HALF, -np.inf, f["y"]))),
        (InfiniteValuesError, "'a' .*too large.*rescale", lambda f: f.assign(a=f["a"] * 1e300)),
        (InfiniteValuesError, "target.*too large.*rescale", lambda f: f.assign(y=f["y"] * 1e300)),
        (ConstantTargetError, "constant: 3 ", lambda f: f.assign(y=3.0)),
        (ConstantTargetError, "constant", lambda f: f.assign(y=0.1 + 1e9)),
        (DataError, "no feature is left.*'a'", lambda f: f[["y"]].assign(a=1.0)),
        (InvalidParameterError, r"negative.*sample weights \(30 rows\)",
         lambda f: f.assign(w=np.where(HALF, -1.0, 1.0))),
        (InvalidParameterError, "all sample weights are zero", lambda f: f.assign(w=0.0)),
        (MissingValuesError, r"sample weights \(30 rows\)",
         lambda f: f.assign(w=np.where(HALF, np.nan, 1.0))),
        (InfiniteValuesError, r"sample weights \(30 rows\)",
         lambda f: f.assign(w=np.where(HALF, np.inf, 1.0))),
        (ConstantTargetError, "rows of positive weight",
         lambda f: f.assign(w=np.where(f.index == 3, 1.0, 0.0))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [lambda f: f, in_dask], ids=["pandas", "dask"])
def test_values(cut, error, message, change):
    table = change(F)
    weight = "w" if "w" in table else None
    assert_raises(error, message, lambda: fit(cut(table), target="y", sample_weight=weight))


@pytest.mark.parametrize("array", [X, da.from_array(X, chunks=(20, 2))], ids=["numpy", "dask"])
def test_values_of_arrays(array):
    spoiled = np.where(X > 1, np.nan, array)
    assert_raises(MissingValuesError, "'x0'.*'x1'.*'x2'", lambda: fit(spoiled, Y))
    assert_raises(InfiniteValuesError, "'x0'", lambda: fit(np.where(X > 1, np.inf, array), Y))


def test_no_rows_are_left():
    table = F.assign(y=np.nan)
    for missing in ("impute", "drop"):
        assert_raises(
            EmptyDataError, r"60 of 60 were dropped, missing the target \(60 rows\)",
            lambda: fit(table, target="y", missing=missing),  # noqa: B023
        )  # fmt: skip


@pytest.mark.parametrize("scale", [1e15, 1e30])
@pytest.mark.parametrize(
    "kernel", ["rbf", "matern", "laplacian", "polynomial", "linear", "cosine"]
)
def test_huge_values_are_fitted_or_refused(scale, kernel):
    """Never NaN and never an error of numpy."""
    table = F.assign(a=F["a"] * scale, y=F["y"] * scale)[["a", "b", "c", "y"]]
    model = fit(table, target="y", kernel=kernel)
    assert np.isfinite(model.predict(table)).all()
    assert model.score(table) > 0.1
    refused = (NumericalError, InvalidParameterError, InvalidKernelError, InfiniteValuesError)
    try:
        raw = fit(table, target="y", kernel=kernel, length_scale=1.0)
    except refused as error:
        advice = ("length_scale", "standardize", "rescale")
        assert any(word in str(error) for word in advice)  # noqa: PT017
    else:
        assert np.isfinite(raw.predict(table)).all()


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e120])
def test_the_scale_of_the_target_does_not_matter(scale):
    model = fit(X, Y * scale)
    np.testing.assert_allclose(model.predict(X) / scale, fit(X, Y).predict(X), atol=0.02)


def test_one_value_far_away():
    table = F.assign(a=np.where(F.index == 7, 1e5, F["a"]))[["a", "b", "c", "y"]]
    model = fit(table, target="y")
    assert np.isfinite(model.predict(table)).all()
    try:
        model = fit(table, target="y", length_scale=1.0)
    except InvalidParameterError as error:
        assert "length scale" in str(error)  # noqa: PT017
    else:
        assert model.score(table) > 0.5


# --- kernels of the user's own ----------------------------------------------------------------


class Dot:
    """A linear kernel that can be spoiled."""

    def __init__(self, spoil=lambda K: K, diagonal=lambda d: d):
        self.spoil, self.diagonal = spoil, diagonal

    def __call__(self, A, B):
        return self.spoil(A @ B.T)

    def diag(self, A):
        return self.diagonal((A**2).sum(axis=1))


def spoiled_entry(K):
    K[0, 0] = np.nan
    return K


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Dot(lambda K: K[:1]), r"returned shape \(1, 60\); expected \(60, 60\)"),
        (Dot(lambda K: K.ravel()), r"returned shape \(3600,\); expected \(60, 60\)"),
        (Dot(lambda K: "text"), r"returned shape \(\)"),
        (Dot(spoiled_entry), "returned NaN or infinity"),
        (Dot(lambda K: K * np.inf), "returned NaN or infinity"),
        (Dot(lambda K: -K, lambda d: -d), "not positive semidefinite.*eigenvalue -"),
        (Dot(lambda K: K + np.arange(K.shape[1])), "not symmetric"),
        (Dot(diagonal=lambda d: d + 1), r"diag\(X\) differs from the diagonal"),
        (Dot(diagonal=lambda d: d[:, None]), r"diag\(X\).*shape \(60, 1\); expected \(60,\)"),
        (Dot(lambda K: K + 0.1j), "complex"),
    ],
)
def test_kernels(kernel, message):
    assert_raises(InvalidKernelError, message, lambda: fit(X, Y, kernel=kernel))


def test_a_kernel_that_fails_later():
    """The check sees a sample in double precision; a block of the fit may still go wrong."""

    class Late(Dot):
        def __call__(self, A, B):
            return np.full((len(A), len(B)), np.nan) if A.dtype == np.float32 else A @ B.T

    for solver in ("direct", "cg"):
        assert_raises(
            InvalidKernelError, "returned NaN or infinity",
            lambda: fit(X, Y, kernel=Late(), solver=solver),  # noqa: B023
        )  # fmt: skip


def test_an_error_of_the_users_own_kernel_is_passed_on():
    def fail(K):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        fit(X, Y, kernel=Dot(fail))


# --- predictions ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return fit(F[["a", "b", "c", "y"]], target="y")


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (MissingColumnsError, "missing column 'b'", lambda f: f.drop(columns="b")),
        (MissingColumnsError, r"'b' \(did you mean 'B'\?\)", lambda f: f.rename(
            columns={"b": "B"})),
        (ColumnTypeError, "'a' was numeric in the fit but is text here",
         lambda f: f.assign(a="word")),
        (ColumnTypeError, "'a' was numeric in the fit but is datetime here",
         lambda f: f.assign(a=pd.Timestamp("2026"))),
        (ColumnTypeError, "'a'.*complex", lambda f: f.assign(a=f["a"] + 0j)),
    ],
)  # fmt: skip
def test_tables_to_predict(model, error, message, change):
    assert_raises(error, message, lambda: model.predict(change(F)))
    assert_raises(error, message, lambda: model.predict(lazy(change(F))))


@pytest.mark.parametrize(
    ("error", "message", "rows"),
    [
        (DataError, "X has 2 features.*expecting 3 features", X[:, :2]),
        (DataError, "X has 4 features.*expecting 3 features", np.hstack([X, X[:, :1]])),
        (DataError, "X has 2 features.*expecting 3 features", lazy_array(X, 2)),
        (DataError, "Expected 2D array", X[0]),
        (DataError, "Complex data not supported", X + 0j),
        (ColumnTypeError, "must hold numbers", np.full((2, 3), "word", dtype=object)),
        (ColumnTypeError, "sparse matrix", sparse.csr_matrix(X)),
        (MissingValuesError, r"'a' \(60 rows\)", X * [np.nan, 1, 1]),
        (InfiniteValuesError, r"'a' \(60 rows\)", X * [np.inf, 1, 1]),
        (DataError, "nothing found at 'nowhere'", "nowhere"),
    ],
)
def test_rows_to_predict(model, error, message, rows):
    assert_raises(error, message, lambda: model.predict(rows))


@pytest.mark.parametrize(
    "kernel", ["rbf", "matern", "laplacian", "polynomial", "linear", "cosine"]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_far_beyond_the_fit_have_numbers_or_an_error(kernel, dtype):
    """Never NaN, and no warning of NumPy."""
    table = F[["a", "b", "y"]]
    options = {"kernel": kernel, "dtype": dtype, "max_dictionary": 20}
    model = fit(table, target="y", **options)
    classifier = squeak_dist.SqueakClassifier(**options).fit(table[["a", "b"]], table.y > 0)
    uses = (model.predict, lambda rows: model.predict(rows, return_std=True), model.novelty,
            classifier.predict_proba, classifier.predict)  # fmt: skip
    for power in (12, 19, 25, 37, 160, 300):
        rows = pd.DataFrame({"a": [10.0**power, -(10.0**power)], "b": [0, 10.0**power]})
        for use in uses:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found = use(rows)
                except InfiniteValuesError as error:
                    assert "overflow" in str(error) or "too large" in str(error)  # noqa: PT017
                else:
                    assert np.isfinite(np.asarray(found, float)).all()


def test_text_where_numbers_were_is_found_in_object_columns_too(model):
    mixed = F.assign(a=np.where(HALF, F["a"].astype(object), "word"))
    with pytest.raises(ColumnTypeError, match="'a' was numeric in the fit but is text"):
        model.predict(mixed)
    assert np.isfinite(model.predict(F.assign(a=F["a"].astype(object)))).all()
