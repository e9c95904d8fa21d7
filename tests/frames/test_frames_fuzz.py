"""Random tables: finite numbers, or an error of this package; never anything else.

The default run is bounded by the number of examples; ``slow`` tries many more.
"""

from __future__ import annotations

import datetime
import itertools
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import squeak_dist
from squeak_dist.errors import SqueakError, SqueakWarning

QUICK = {"max_dictionary": 20}

# --- tables -----------------------------------------------------------------------------------

floats = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=False),
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 1e-300, 5e-324, 1e12, -1e38, 1e155, 1.7e308, np.nan]),
)
rare_floats = st.one_of(floats, st.sampled_from([np.inf, -np.inf]))
texts = st.one_of(
    st.sampled_from(["a", "b", "1", "1.0", "nan", "None", "", " ", "<other>", "é", "x\n", "True"]),
    st.text(max_size=3),
)
moments = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
mixtures = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), floats, texts, moments, st.binary(max_size=2)
)


def listed(values, n):
    return st.lists(values, min_size=n, max_size=n)


def columns(n):
    """Strategies for a column of n rows, of every kind that people have."""

    def series(dtype, values):
        return listed(values, n).map(lambda v: pd.Series(v, dtype=dtype))

    small = st.integers(0, 100)
    maybe = st.one_of(st.none(), small)
    decade = datetime.timedelta(3653)
    ordered = pd.CategoricalDtype(["lo", "mid", "hi"], ordered=True)
    return st.one_of(
        series("f8", floats),
        series("f8", rare_floats),
        series("f4", st.floats(width=32, allow_infinity=False)),
        series("f2", st.floats(width=16, allow_infinity=False)),
        series("i1", st.integers(-128, 127)),
        series("u8", st.integers(0, 2**64 - 1)),
        series("i8", st.integers(-(2**63), 2**63 - 1)),
        series("?", st.booleans()),
        series("Int64", maybe),
        series("boolean", st.one_of(st.none(), st.booleans())),
        series("Float32", st.one_of(st.none(), st.floats(-9, 9, width=32))),
        series(object, mixtures),
        series(object, st.one_of(st.none(), texts)),
        series("str", st.one_of(st.none(), texts)),
        series("category", st.one_of(st.none(), texts)),
        series("datetime64[us]", st.one_of(st.none(), moments)),
        series("datetime64[us, Europe/Berlin]", st.one_of(st.none(), moments)),
        series("timedelta64[us]", st.timedeltas(-decade, decade)),
        series(pd.ArrowDtype(pa.decimal128(12, 3)), st.decimals(-9999, 9999, places=3)),
        series(pd.ArrowDtype(pa.date32()), moments.map(datetime.datetime.date)),
        series(pd.ArrowDtype(pa.time64("us")), st.times()),
        series(pd.ArrowDtype(pa.list_(pa.int64())), st.lists(small, max_size=2)),
        series("c16", st.complex_numbers(max_magnitude=9)),
        series(ordered, st.sampled_from(["lo", "mid", "hi", None])),
        st.just(pd.Series([1.5] * n, dtype="f8")),
        st.just(pd.Series([None] * n, dtype=object)),
        st.just(pd.Series(np.arange(n), dtype="f8")),
        st.just(pd.Series([f"id {i}" for i in range(n)], dtype="str")),
    )  # fmt: skip


labels = st.one_of(
    st.sampled_from(["a", "b", "index", "__weight__", "__target_0__", "", 0, 1.5, None, ("p", 1)]),
    st.text(max_size=4),
)
targets = st.one_of(st.floats(-9, 9), st.floats(-9, 9), rare_floats)


@st.composite
def tables(draw):
    n = draw(st.one_of(st.integers(0, 6), st.integers(7, 40)))
    names = draw(st.lists(labels, min_size=1, max_size=4))  # some stand twice
    parts = [draw(columns(n)) for _ in names]
    if draw(st.booleans()):  # something to learn from, so that most fits get to the end
        names, parts = [*names, "ok"], [*parts, pd.Series(np.sin(np.arange(n)), dtype="f8")]
    frame = pd.concat(parts, axis=1) if parts else pd.DataFrame(index=range(n))
    frame.columns = pd.Index(names, tupleize_cols=False)
    kind = draw(st.sampled_from(["some", "line", "few"]))
    y = {
        "some": lambda: draw(listed(targets, n)),
        "line": lambda: list(np.arange(n) * 1.0),
        "few": lambda: [float(i % 3) for i in range(n)],
    }[kind]()
    index = draw(st.sampled_from(["range", "text", "same"]))
    if index == "text":
        frame.index = pd.Index([f"r{i}" for i in range(n)])
    elif index == "same":
        frame.index = pd.Index([0] * n)
    return frame, pd.Series(y, dtype="f8", index=frame.index)


def lazily(frame, cuts):
    edges = [0, *sorted(cut % (len(frame) + 1) for cut in cuts), len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    with dask.config.set({"dataframe.convert-string": False}):  # bytes are no text for Dask
        return dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])


def outcome(call):
    """The result, or None for an error of this package; anything else passes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of NumPy is a number that went wrong
        warnings.simplefilter("ignore", SqueakWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=pd.errors.Pandas4Warning)
        try:
            return call()
        except SqueakError as error:
            message = str(error)
    assert message.strip()
    assert "\n" not in message
    return None


def check(table, other, missing, dtype, cuts, kernel):
    frame, y = table
    label = "the target"
    whole = pd.concat([frame, y.rename(label)], axis=1)
    given_as = lazily(whole, cuts) if cuts is not None else whole
    options = QUICK | {"missing": missing, "dtype": dtype, "kernel": kernel}
    model = outcome(lambda: squeak_dist.fit(given_as, target=label, **options))
    if model is None:
        return "refused"
    assert np.isfinite(model.dual_coef_).all()
    for rows in (frame, other):
        lazy = lazily(rows, cuts) if cuts is not None else rows
        predicted = outcome(lambda: np.asarray(dask.compute(model.predict(lazy))[0]))  # noqa: B023
        if predicted is not None:
            assert predicted.shape == (len(rows),)
            finite = np.isfinite(predicted)
            assert finite.all() if missing != "drop" else not np.isinf(predicted).any()
    scores = outcome(lambda: model.evaluate(given_as))
    if scores is not None:
        assert np.isfinite([scores.model.rmse, scores.linear.rmse, scores.mean.rmse]).all()
    return "fitted"


def check_labels(table, other, missing, cuts, kind):
    """The same of a classifier: probabilities, or an error of ours."""
    frame, y = table
    label = "the label"
    yes = np.where(y > 0, "yes", "no")
    names = {
        "text": lambda: pd.Series(yes, dtype="str"),
        "holes": lambda: pd.Series(np.where(y > 1, None, yes), dtype=object),
        "numbers": lambda: pd.Series(np.where(y > 1, 2.0, np.where(y > 0, 1.0, 0.0))),
        "bool": lambda: pd.Series(np.asarray(y > 0)),
        "category": lambda: pd.Series(yes).astype("category"),
        "as they are": lambda: y.reset_index(drop=True),
    }
    labels = names[kind]().set_axis(y.index)
    whole = pd.concat([frame, labels.rename(label)], axis=1)
    given_as = lazily(whole, cuts) if cuts is not None else whole
    make = squeak_dist.SqueakClassifier(missing=missing, **QUICK)
    model = outcome(lambda: make.fit(given_as, target=label))
    if model is None:
        return "refused"
    for rows in (frame, other):
        lazy = lazily(rows, cuts) if cuts is not None else rows
        found = outcome(lambda: dask.compute(model.predict_proba(lazy), model.predict(lazy)))  # noqa: B023
        if found is None:
            continue
        shares, predicted = np.asarray(found[0]), np.asarray(found[1], dtype=object)
        assert shares.shape == (len(rows), len(model.classes_))
        known = ~np.isnan(shares).any(axis=1)
        assert known.all() or missing == "drop"
        np.testing.assert_allclose(shares[known].sum(axis=1), 1)
        assert set(predicted[known]) <= set(model.classes_.tolist())
        assert pd.isna(predicted[~known]).all()
    scores = outcome(lambda: model.evaluate(given_as))
    assert scores is None or np.isfinite(scores.model.log_loss)
    return "fitted"


def check_features(table, other, missing, cuts, kind):
    """The same of the two transformers."""
    frame, _ = table
    given_as = lazily(frame, cuts) if cuts is not None else frame
    make = squeak_dist.SqueakPCA if kind == "pca" else squeak_dist.SqueakTransformer
    model = outcome(lambda: make(missing=missing, **QUICK).fit(given_as))
    if model is None:
        return "refused"
    for rows in (frame, other):
        lazy = lazily(rows, cuts) if cuts is not None else rows
        Z = outcome(lambda: np.asarray(dask.compute(model.transform(lazy))[0]))  # noqa: B023
        if Z is not None:
            assert Z.shape == (len(rows), len(model.get_feature_names_out()))
            known = ~np.isnan(Z).any(axis=1)
            assert np.isfinite(Z[known]).all()
            assert known.all() or missing == "drop"
    return "fitted"


anything = {
    "table": tables(),
    "second": tables(),
    "missing": st.sampled_from(["raise", "impute", "impute", "drop"]),
    "dtype": st.sampled_from(["float32", "float64"]),
    "cuts": st.one_of(st.none(), st.lists(st.integers(0, 40), max_size=3)),
    "kernel": st.sampled_from(["rbf", "rbf", "laplacian", "polynomial", "linear", "cosine"]),
}
others = {name: anything[name] for name in ("table", "second", "missing", "cuts")}
KINDS = {
    "text": check_labels, "holes": check_labels, "numbers": check_labels, "bool": check_labels,
    "category": check_labels, "as they are": check_labels,
    "features": check_features, "pca": check_features,
}  # fmt: skip
bounded = settings(
    deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None
)


def rows_like(frame, second):
    """Other rows to predict: the columns of one table with the names of another."""
    other = second[0].copy()
    names = list(frame.columns[: other.shape[1]])
    other.columns = pd.Index([*names, *range(other.shape[1] - len(names))], tupleize_cols=False)
    return other


@settings(bounded, max_examples=60, derandomize=True)
@given(**anything)
def test_any_table_gives_numbers_or_an_error_of_ours(table, second, missing, dtype, cuts, kernel):
    with dask.config.set(scheduler="sync"):
        check(table, rows_like(table[0], second), missing, dtype, cuts, kernel)


@settings(bounded, max_examples=80, derandomize=True)
@given(**others, kind=st.sampled_from(sorted(KINDS)))
def test_any_table_gives_classes_and_features_or_an_error_of_ours(
    table, second, missing, cuts, kind
):
    with dask.config.set(scheduler="sync"):
        KINDS[kind](table, rows_like(table[0], second), missing, cuts, kind)


# 1,500 examples took 3 minutes of one core, 14 beside ten other jobs; shrinking takes 5 more.
many = pytest.mark.timeout(1800)


@pytest.mark.slow
@many
@settings(bounded, max_examples=1500)
@given(**others, kind=st.sampled_from(sorted(KINDS)))
def test_any_of_many_tables_of_labels(table, second, missing, cuts, kind):
    with dask.config.set(scheduler="sync"):
        KINDS[kind](table, rows_like(table[0], second), missing, cuts, kind)


@pytest.mark.slow
@many
@settings(bounded, max_examples=1500)
@given(**anything)
def test_any_of_many_tables(table, second, missing, dtype, cuts, kernel):
    with dask.config.set(scheduler="sync"):
        check(table, rows_like(table[0], second), missing, dtype, cuts, kernel)


def test_most_kinds_of_tables_are_fitted():
    """The fuzz would show nothing if all of its tables were refused."""
    outcomes = []

    @settings(bounded, max_examples=60, derandomize=True)
    @given(**anything)
    def run(table, second, missing, dtype, cuts, kernel):
        with dask.config.set(scheduler="sync"):
            outcomes.append(check(table, table[0], missing, dtype, cuts, kernel))

    run()
    # Hypothesis draws from the constants of whatever modules are loaded: counts differ.
    assert outcomes.count("fitted") >= 3
    assert outcomes.count("refused") >= 3
