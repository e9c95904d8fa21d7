"""Profile and encoding: from frames of any dtypes to float32 rows, and back."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squeak_dist.columns import column_kind
from squeak_dist.encoding import FeatureEncoding, encode_table
from squeak_dist.encoding_rules import make_encoding
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    ConstantTargetError,
    DataError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidParameterError,
    MissingColumnsError,
    MissingValuesError,
)
from squeak_dist.profile import Profile, merge_profiles, profile_table
from squeak_dist.profile_checks import check_profile
from squeak_dist.table import Table, TableSchema, cut_table


def arrow(values: list[Any], type_: pa.DataType) -> pd.Series:
    return pd.Series(pd.array(pa.array(values, type_), dtype=pd.ArrowDtype(type_)))


def profile_of(
    frames: pd.DataFrame | Sequence[pd.DataFrame],
    *,
    missing: str = "raise",
    seed: int = 0,
    sample_rows: int = 1000,
) -> Profile:
    """Profile frames whose every column is a feature, with a target 0, 1, 2 …"""
    frames = [frames] if isinstance(frames, pd.DataFrame) else frames
    tables = [Table(f, np.arange(float(len(f)))[:, None], None) for f in frames]
    return merge_profiles(
        [
            profile_table(t, partition=i, missing=missing, seed=seed, sample_rows=sample_rows)
            for i, t in enumerate(tables)
        ]
    )


def encoding_of(
    frames: pd.DataFrame | Sequence[pd.DataFrame],
    *,
    standardize: bool = True,
    missing: str = "raise",
    dtype: str = "float64",
    max_levels: int = 64,
) -> FeatureEncoding:
    return make_encoding(
        profile_of(frames, missing=missing),
        standardize=standardize,
        missing=missing,
        dtype=dtype,
        max_levels=max_levels,
    )


def encoded(frame: pd.DataFrame, **options: Any) -> dict[str, np.ndarray]:
    """Fit an encoding on a frame and return its encoded columns by name."""
    encoding = encoding_of(frame, **options)
    X, _ = encoding.encode(frame)
    return dict(zip(encoding.encoded_names, X.T, strict=True))


def mixed_frame(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return a frame with a column of every kind, without missing values."""
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2020-03-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {
            "x": rng.normal(5, 2, n),
            "count": rng.integers(0, 9, n),
            "flag": rng.random(n) < 0.3,
            "city": rng.choice(["Oslo", "Rome", "Bern"], n, p=[0.6, 0.3, 0.1]),
            "size": pd.Categorical(
                rng.choice(["S", "M", "L"], n), categories=["S", "M", "L"], ordered=True
            ),
            "day": days,
            "time": days.tz_localize("UTC") + pd.to_timedelta(rng.integers(0, 86400, n), unit="s"),
            "delay": pd.to_timedelta(rng.integers(0, 1000, n), unit="s"),
        }
    )


def with_missing(frame: pd.DataFrame, seed: int = 1) -> pd.DataFrame:
    """Return the frame with about a tenth of every column missing."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            name: column.astype("boolean" if column.dtype == bool else column.dtype).mask(
                rng.random(len(frame)) < 0.1
            )
            for name, column in frame.items()
        }
    )


# --- cutting a frame -------------------------------------------------------------------


def test_cut_takes_columns_by_name_in_any_order_and_ignores_others():
    frame = pd.DataFrame(
        {"w": [1, 2], "extra": ["p", "q"], "b": [3.0, 4.0], "y": [5, 6], "a": [7, 8]}
    )
    table = cut_table(frame, TableSchema(("a", "b"), ("y",), "w"))
    assert list(table.features.columns) == ["a", "b"]
    np.testing.assert_array_equal(table.features.to_numpy(), [[7, 3], [8, 4]])
    np.testing.assert_array_equal(table.targets, [[5.0], [6.0]])
    np.testing.assert_array_equal(table.weights, [1.0, 2.0])
    assert table.targets.dtype == table.weights.dtype == np.float64


@pytest.mark.parametrize("labels", [[0, 1, 2], [("a", 1), ("a", 2), ("b", 1)]])
def test_labels_may_be_integers_or_tuples(labels):
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2)
    frame.columns = pd.Index(labels)
    schema = TableSchema(tuple(labels[:2]), (labels[2],))
    table = cut_table(frame, schema)
    np.testing.assert_array_equal(table.targets[:, 0], frame.to_numpy()[:, 2])
    encoding = encoding_of(table.features)
    assert encoding.labels == tuple(labels[:2])
    assert encoding.feature_names == tuple(map(str, labels[:2]))
    X, _ = encoding.encode(frame.iloc[:, ::-1])
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    again = FeatureEncoding.from_config(*json_round_trip(encoding))
    assert again.labels == encoding.labels
    np.testing.assert_array_equal(again.encode(frame)[0], X)


def test_missing_columns_are_named_with_close_matches():
    frame = pd.DataFrame({"Dep_Time": [1], "origin": ["JFK"], "y": [0]})
    with pytest.raises(MissingColumnsError) as caught:
        cut_table(frame, TableSchema(("dep_time", "weather"), ("y",)))
    message = str(caught.value)
    assert "missing columns 'dep_time' (did you mean 'Dep_Time'?) and 'weather'" in message
    assert "the table has 'Dep_Time', 'origin' and 'y'" in message
    assert isinstance(caught.value, KeyError)
    with pytest.raises(MissingColumnsError, match=r"missing column 'z'; the table has"):
        cut_table(frame, TableSchema(("y",), ("z",)))


def test_a_needed_name_that_stands_twice_is_an_error_others_are_not():
    frame = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=["a", "b", "b", "y"])
    cut_table(frame, TableSchema(("a",), ("y",)))
    with pytest.raises(DataError, match=r"more than once: 'b'"):
        cut_table(frame, TableSchema(("a", "b"), ("y",)))


NAN = float("nan")
NUMBER_COLUMNS = {
    "int8": (pd.Series([1, -2, 3], dtype="int8"), [1, -2, 3]),
    "uint8": (pd.Series([0, 200, 255], dtype="uint8"), [0, 200, 255]),
    "float16": (pd.Series([0.5, np.nan, 2], dtype="float16"), [0.5, NAN, 2]),
    "float32": (pd.Series([0.5, np.nan, 2], dtype="float32"), [0.5, NAN, 2]),
    "bool": (pd.Series([True, False, True]), [1, 0, 1]),
    "Int64": (pd.Series([1, None, 3], dtype="Int64"), [1, NAN, 3]),
    "UInt8": (pd.Series([1, None, 255], dtype="UInt8"), [1, NAN, 255]),
    "Float32": (pd.Series([0.5, None, 3], dtype="Float32"), [0.5, NAN, 3]),
    "boolean": (pd.Series([True, None, False], dtype="boolean"), [1, NAN, 0]),
    "decimal objects": (pd.Series([Decimal("0.25"), None, Decimal(3)]), [0.25, NAN, 3]),
    "mixed numbers": (pd.Series([1, 2.5, Decimal(3)], dtype=object), [1, 2.5, 3]),
    "bool objects": (pd.Series([True, None, False], dtype=object), [1, NAN, 0]),
    "NA objects": (pd.Series([1.5, pd.NA, None], dtype=object), [1.5, NAN, NAN]),
    "sparse": (pd.Series(pd.arrays.SparseArray([0.0, np.nan, 2.0])), [0, NAN, 2]),
    "arrow int": (arrow([1, None, 3], pa.int16()), [1, NAN, 3]),
    "arrow double": (arrow([0.5, None, 3.0], pa.float64()), [0.5, NAN, 3]),
    "arrow bool": (arrow([True, None, False], pa.bool_()), [1, NAN, 0]),
    "arrow decimal": (
        arrow([Decimal("0.25"), None, Decimal("3.00")], pa.decimal128(9, 2)),
        [0.25, NAN, 3],
    ),
    "arrow null": (arrow([None, None, None], pa.null()), [NAN, NAN, NAN]),
    "none objects": (pd.Series([None, None, None], dtype=object), [NAN, NAN, NAN]),
}


@pytest.mark.parametrize("name", NUMBER_COLUMNS)
def test_targets_of_every_numeric_dtype_become_float64_with_nan(name):
    series, expected = NUMBER_COLUMNS[name]
    table = cut_table(pd.DataFrame({"x": [1, 2, 3], "y": series}), TableSchema(("x",), ("y",)))
    assert table.targets.dtype == np.float64
    np.testing.assert_array_equal(table.targets[:, 0], expected)


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(["1", "2"]),
        pd.Series(["a", 2], dtype=object),
        pd.Series(["u", "v"], dtype="category"),
        pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02"])),
        pd.to_timedelta(pd.Series([1, 2]), unit="s"),
    ],
)
def test_a_target_that_is_not_numbers_is_an_error(series):
    frame = pd.DataFrame({"x": [1, 2], "y": series})
    with pytest.raises(ColumnTypeError, match=r"the target 'y' is .*expected numbers"):
        cut_table(frame, TableSchema(("x",), ("y",)))
    with pytest.raises(ColumnTypeError, match=r"the sample weight 'y' is"):
        cut_table(frame, TableSchema(("x",), (), "y"))


def test_an_empty_partition_as_dask_makes_it_can_be_cut_and_profiled():
    frame = pd.DataFrame({"x": [], "y": []}, dtype=object)
    table = cut_table(frame, TableSchema(("x",), ("y",)))
    assert table.targets.shape == (0, 1)
    profile = profile_table(table, partition=3, missing="drop", seed=0, sample_rows=5)
    assert profile.partition_rows == {3: 0}
    assert profile.columns[0].kind is None


# --- kinds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (np.dtype("int8"), "numeric"),
        (np.dtype("float16"), "numeric"),
        (np.dtype("uint64"), "numeric"),
        (np.dtype("bool"), "boolean"),
        (np.dtype("O"), "categorical"),
        (np.dtype("datetime64[s]"), "datetime"),
        (np.dtype("timedelta64[ns]"), "timedelta"),
        (pd.Int64Dtype(), "numeric"),
        (pd.Float32Dtype(), "numeric"),
        (pd.BooleanDtype(), "boolean"),
        (pd.StringDtype("pyarrow"), "categorical"),
        (pd.StringDtype("python"), "categorical"),
        (pd.Series(["a"]).dtype, "categorical"),
        (pd.CategoricalDtype([1, 2]), "categorical"),
        (pd.CategoricalDtype(["a"], ordered=True), "categorical"),
        (pd.DatetimeTZDtype(tz="Europe/Berlin"), "datetime"),
        (pd.SparseDtype("float64"), "numeric"),
        (pd.ArrowDtype(pa.int8()), "numeric"),
        (pd.ArrowDtype(pa.decimal128(9, 2)), "numeric"),
        (pd.ArrowDtype(pa.bool_()), "boolean"),
        (pd.ArrowDtype(pa.large_string()), "categorical"),
        (pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())), "categorical"),
        (pd.ArrowDtype(pa.timestamp("us", tz="UTC")), "datetime"),
        (pd.ArrowDtype(pa.date32()), "datetime"),
        (pd.ArrowDtype(pa.duration("ms")), "timedelta"),
        (pd.ArrowDtype(pa.null()), "categorical"),
    ],
    ids=str,
)
def test_kind_of_dtype(dtype, kind):
    assert column_kind(dtype) == kind


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("complex64"),
        np.dtype([("a", "i4")]),
        pd.PeriodDtype("D"),
        pd.IntervalDtype("int64"),
        pd.ArrowDtype(pa.list_(pa.int8())),
        pd.ArrowDtype(pa.struct([("a", pa.int8())])),
        pd.ArrowDtype(pa.map_(pa.string(), pa.int8())),
    ],
    ids=str,
)
def test_unusable_dtypes_are_errors_that_name_the_dtype(dtype):
    with pytest.raises(ColumnTypeError, match=r"cannot be used; expected numbers"):
        column_kind(dtype)


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1j, np.zeros(2), pd.Period("2020"), {1}])
def test_unusable_objects_are_errors_that_name_the_column(value):
    frame = pd.DataFrame({"bad": pd.Series([None, value], dtype=object)})
    with pytest.raises(ColumnTypeError, match=r"column 'bad': values of type \w+ cannot be used"):
        profile_of(frame)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], "numeric"),
        ([Decimal(1), 2], "numeric"),
        ([True, False], "boolean"),
        ([True, 2], "numeric"),
        ([dt.date(2020, 1, 1), None], "datetime"),
        ([dt.datetime(2020, 1, 1), pd.Timestamp("2021"), np.datetime64("2020")], "datetime"),
        ([dt.timedelta(1), pd.Timedelta("1h")], "timedelta"),
        (["a", None], "categorical"),
        (["a", 1], "categorical"),
        ([dt.time(1, 2)], "timedelta"),
        ([None, np.nan, pd.NaT, pd.NA], None),
        ([], None),
    ],
    ids=str,
)
def test_object_columns_are_what_their_values_are(values, kind):
    profile = profile_of(pd.DataFrame({"o": pd.Series(values, dtype=object)}))
    assert profile.columns[0].kind == kind


@pytest.mark.parametrize("name", NUMBER_COLUMNS)
def test_every_numeric_dtype_profiles_and_encodes_as_its_floats(name):
    series, expected = NUMBER_COLUMNS[name]
    reference = pd.DataFrame({"a": [1.0, 2.0, 4.0], "x": expected})
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "x": series})
    profile = profile_of(frame, missing="impute")
    assert profile.columns[1].missing == int(np.isnan(expected).sum())
    known = [value for value in expected if not math.isnan(value)]
    if not known:
        assert profile.columns[1].kind is None
        return
    np.testing.assert_allclose(profile.moments.mean[1], np.mean(known))
    np.testing.assert_allclose(profile.moments.variance[1], np.var(known))
    encoding = encoding_of(frame, missing="impute")
    np.testing.assert_array_equal(encoding.encode(frame)[0], encoding.encode(reference)[0])


def test_text_columns_of_every_dtype_encode_alike():
    texts = ["b", "a", None, "b"]
    columns = {
        "object": pd.Series(texts, dtype=object),
        "string": pd.Series(texts, dtype="string"),
        "pyarrow": pd.Series(texts, dtype="string[pyarrow]"),
        "inferred": pd.Series(texts),
        "arrow": arrow(texts, pa.string()),
        "dictionary": arrow(texts, pa.dictionary(pa.int8(), pa.string())),
        "category": pd.Series(texts, dtype="category"),
    }
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    for fitted in columns.values():
        encoding = encoding_of(pd.DataFrame({"c": fitted}), missing="impute")
        assert encoding.encoded_names == ("c=b", "c=a", "c is missing")
        for column in columns.values():
            X, _ = encoding.encode(pd.DataFrame({"c": column}))
            np.testing.assert_array_equal(X, expected)


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(pd.to_datetime(["2020-01-01", None, "2024-01-01"])),
        pd.Series(pd.to_datetime(["2020-01-01", None, "2024-01-01"])).astype("datetime64[ns]"),
        pd.Series(pd.to_datetime(["2020-01-01", None, "2024-01-01"])).astype("datetime64[s]"),
        pd.Series(pd.to_datetime(["2020-01-01T01", None, "2024-01-01T01"])).dt.tz_localize("CET"),
        pd.Series([dt.date(2020, 1, 1), None, dt.date(2024, 1, 1)], dtype=object),
        pd.Series([pd.Timestamp("2020", tz="UTC"), None, dt.datetime(2024, 1, 1)], dtype=object),
        arrow([dt.date(2020, 1, 1), None, dt.date(2024, 1, 1)], pa.date32()),
        arrow([dt.datetime(2020, 1, 1), None, dt.datetime(2024, 1, 1)], pa.timestamp("ns")),
        arrow([dt.datetime(2020, 1, 1), None, dt.datetime(2024, 1, 1)], pa.timestamp("s", "CET")),
    ],
    ids=lambda series: str(series.dtype),
)
def test_datetimes_of_every_dtype_are_seconds_in_utc(series):
    profile = profile_of(pd.DataFrame({"t": series}), missing="impute")
    column = profile.columns[0]
    assert (column.kind, column.missing, column.has_time) == ("datetime", 1, False)
    first, last = pd.Timestamp("2020-01-01").timestamp(), pd.Timestamp("2024-01-01").timestamp()
    assert (profile.moments.minimum[0], profile.moments.maximum[0]) == (first, last)


@pytest.mark.parametrize(
    "series",
    [
        pd.to_timedelta(pd.Series([1.5, np.nan, 3]), unit="s"),
        pd.Series([dt.timedelta(seconds=1.5), None, dt.timedelta(seconds=3)], dtype=object),
        arrow([dt.timedelta(seconds=1.5), None, dt.timedelta(seconds=3)], pa.duration("ms")),
    ],
    ids=lambda series: str(series.dtype),
)
def test_timedeltas_are_seconds(series):
    profile = profile_of(pd.DataFrame({"t": series}), missing="impute")
    assert profile.columns[0].kind == "timedelta"
    assert (profile.moments.mean[0], profile.moments.maximum[0]) == (2.25, 3.0)


# --- the profile: moments --------------------------------------------------------------


@st.composite
def cut_points(draw: st.DrawFn, n: int) -> list[slice]:
    """Cut n rows into partitions, empty ones among them."""
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=6)))
    return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


@given(
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
    offset=st.sampled_from([0.0, 1e9, -1e6]),
    holes=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=40, deadline=None)
def test_moments_of_any_partitions_are_those_of_the_whole(data, seed, offset, holes):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 900))
    values = offset + rng.normal(size=(n, 3))
    values[rng.random((n, 3)) < holes] = np.nan
    values[rng.random((n, 3)) < holes / 4] = np.inf
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    parts = [frame.iloc[rows] for rows in data.draw(cut_points(n))]
    parts = [part.astype(object) if part.empty else part for part in parts]
    profile = profile_of(parts)
    assert profile.rows == profile.kept == n
    for j in range(3):
        column = values[:, j]
        finite = column[np.isfinite(column)].astype(np.longdouble)
        assert profile.columns[j].missing == np.isnan(column).sum()
        assert profile.columns[j].infinite == np.isinf(column).sum()
        assert profile.moments.weight[j] == len(finite)
        if len(finite):
            mean, variance = float(finite.mean()), float(((finite - finite.mean()) ** 2).mean())
            np.testing.assert_allclose(profile.moments.mean[j], mean, rtol=1e-14, atol=1e-13)
            # The mean has 53 bits, so deviations from it are known to offset · 2⁻⁵³.
            rounding = 1e-12 + 4 * abs(offset) * 2.0**-53
            np.testing.assert_allclose(
                profile.moments.variance[j], variance, rtol=1e-11, atol=rounding
            )
            assert profile.moments.minimum[j] == column[np.isfinite(column)].min()
            assert profile.moments.maximum[j] == column[np.isfinite(column)].max()


def test_moments_over_many_blocks_keep_unit_spread_at_an_offset_of_1e9():
    values = 1e9 + np.random.default_rng(0).normal(size=(100_000, 2))
    profile = profile_of(pd.DataFrame(values, columns=["a", "b"]))
    exact = values.astype(np.longdouble)
    np.testing.assert_allclose(profile.moments.mean, exact.mean(axis=0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(
        profile.moments.variance, exact.var(axis=0).astype(float), rtol=1e-8
    )


@given(seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(max_examples=25, deadline=None)
def test_target_moments_are_weighted_and_over_rows_of_positive_weight(seed, data):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 300))
    targets = rng.normal(1e6, 1, size=(n, 2))
    weights = rng.integers(0, 4, n) * rng.random(n)
    weights[0] = 1.0
    features = pd.DataFrame({"x": np.arange(float(n))})
    parts = [
        profile_table(
            Table(features.iloc[rows], targets[rows], weights[rows]),
            partition=i,
            missing="raise",
            seed=0,
            sample_rows=10,
        )
        for i, rows in enumerate(data.draw(cut_points(n)))
    ]
    profile = merge_profiles(parts)
    mean = np.average(targets, axis=0, weights=weights)
    np.testing.assert_allclose(profile.target_mean, mean, rtol=1e-14)
    np.testing.assert_allclose(
        profile.target_variance,
        np.average((targets - mean) ** 2, axis=0, weights=weights),
        rtol=1e-8,
        atol=1e-12,
    )
    np.testing.assert_array_equal(profile.target_moments.minimum, targets[weights > 0].min(0))
    np.testing.assert_allclose(profile.weight_sum, weights.sum())


def test_bad_weights_are_counted_and_do_not_touch_the_moments():
    targets = np.array([[1.0], [2.0], [3.0], [np.nan], [np.inf], [6.0]])
    weights = np.array([1.0, -1.0, np.nan, 1.0, 1.0, np.inf])
    table = Table(pd.DataFrame({"x": np.arange(6.0)}), targets, weights)
    profile = profile_table(table, partition=0, missing="raise", seed=0, sample_rows=10)
    counts = (profile.weight_negative, profile.weight_missing, profile.weight_infinite)
    assert counts == (1, 1, 1)
    assert (profile.target_missing[0], profile.target_infinite[0]) == (1, 1)
    assert (profile.target_mean[0], profile.target_variance[0]) == (1.0, 0.0)


# --- the profile: rows, levels, kinds, sample ------------------------------------------


def test_policies_decide_which_rows_are_kept():
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0, 5.0], "b": ["u", "v", None, "u", "w"]})
    targets = np.array([[1.0], [2.0], [3.0], [np.nan], [5.0]])
    expected = {"raise": 5, "impute": 4, "drop": 2}
    for missing, kept in expected.items():
        profile = profile_table(
            Table(frame, targets, None), partition=7, missing=missing, seed=0, sample_rows=9
        )
        assert profile.partition_rows == {7: 5}
        assert profile.partition_kept == {7: kept}
        assert [column.missing for column in profile.columns] == [1, 1]
        assert profile.target_missing.tolist() == [1]
        assert len(profile.sample) == kept
    assert profile.moments.mean[0] == 3.0  # of the kept rows 1 and 5
    assert profile.columns[1].levels == {"u": 1, "w": 1}
    assert sorted(profile.sample.features["a"]) == [1.0, 5.0]
    both = np.column_stack([targets, np.ones(5)])
    profile = profile_table(
        Table(frame, both, None), partition=0, missing="impute", seed=0, sample_rows=9
    )
    assert profile.partition_kept == {0: 4}  # a row without one of its targets goes
    with pytest.raises(InvalidParameterError, match="missing must be one of"):
        profile_table(Table(frame, targets, None), partition=0, missing="x", seed=0, sample_rows=1)


def test_levels_are_counted_across_partitions_by_their_text():
    parts = [
        pd.DataFrame({"c": pd.Series(["a", "b", "a", None])}),
        pd.DataFrame({"c": pd.Series(["c", "a"], dtype="category")}),
        pd.DataFrame({"c": pd.Series([], dtype=object)}),
        pd.DataFrame({"c": pd.Series([None, None], dtype=object)}),
        pd.DataFrame({"c": pd.Series([np.nan])}),
    ]
    column = profile_of(parts).columns[0]
    assert column.kind == "categorical"
    assert column.levels == {"a": 3, "b": 1, "c": 1}
    assert (column.missing, column.distinct, column.truncated) == (4, 3, False)


def test_rare_levels_are_let_go_beyond_ten_thousand_and_that_is_remembered():
    common = [f"common{i}" for i in range(3)] * 5
    parts = [
        pd.DataFrame({"c": common + [f"rare{part}-{i}" for i in range(6000)]}) for part in range(3)
    ]
    column = profile_of(parts).columns[0]
    assert len(column.levels) == 10_000
    assert column.truncated
    assert column.distinct >= 12_003
    later = profile_of([*parts, pd.DataFrame({"c": common})]).columns[0]
    assert later.truncated
    assert later.levels["common0"] == 20
    assert all(column.levels[level] == 15 for level in set(common))


def test_integer_levels_stay_the_same_when_a_missing_value_makes_them_floats():
    fitted = pd.DataFrame({"zip": pd.Series([7, 8, 7, 8]).astype("category")})
    encoding = encoding_of(fitted, missing="impute")
    assert encoding.encoded_names == ("zip=7", "zip=8")
    X, _ = encoding.encode(pd.DataFrame({"zip": [8.0, np.nan]}))
    np.testing.assert_array_equal(X, [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1.0], ["a"], "'c' is numeric in partition 1 but text in partition 2"),
        (["a"], [1.0], "'c' is text in partition 1 but numeric in partition 2"),
        ([dt.date(2020, 1, 1)], [1], "'c' is datetime in partition 1 but numeric in partition 2"),
    ],
)
def test_a_column_of_two_kinds_is_an_error_that_names_both(first, second, message):
    parts = [pd.DataFrame({"c": values}) for values in ([None], first, second)]
    with pytest.raises(ColumnTypeError, match=message):
        profile_of(parts)


def test_kinds_come_from_partitions_with_values():
    parts = [
        pd.DataFrame({"n": pd.Series([], dtype=object), "t": pd.Series([], dtype=float)}),
        pd.DataFrame({"n": [1.0, 2.0], "t": pd.Series([None, None], dtype=object)}),
        pd.DataFrame({"n": pd.Series([3, Decimal(4)], dtype=object), "t": ["a", "b"]}),
        pd.DataFrame({"n": [True, False], "t": [np.nan, np.nan]}),
    ]
    profile = profile_of(parts)
    assert [column.kind for column in profile.columns] == ["numeric", "categorical"]
    sample = profile.sample.features
    assert sorted(sample["n"]) == [0, 1, 1, 2, 3, 4]
    assert sample["t"].isna().sum() == 4


def regroup(profiles: list[Profile], rng: np.random.Generator) -> Profile:
    """Merge neighbours at random until one is left."""
    profiles = list(profiles)
    while len(profiles) > 1:
        i = int(rng.integers(len(profiles) - 1))
        j = int(rng.integers(i + 2, len(profiles) + 1))
        profiles[i:j] = [merge_profiles(profiles[i:j])]
    return profiles[0]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_sample_counts_and_levels_do_not_depend_on_the_grouping_of_merges(seed):
    rng = np.random.default_rng(seed)
    frame = with_missing(mixed_frame(120, seed % 1000))
    cuts = sorted(rng.integers(0, 121, 7).tolist())
    parts = [frame.iloc[a:b] for a, b in zip([0, *cuts], [*cuts, 120], strict=True)]
    profiles = [
        profile_table(
            Table(part, rng.normal(size=(len(part), 1)), rng.random(len(part))),
            partition=i,
            missing="impute",
            seed=3,
            sample_rows=17,
        )
        for i, part in enumerate(parts)
    ]
    one, other = merge_profiles(profiles), regroup(profiles, rng)
    pd.testing.assert_frame_equal(one.sample.features, other.sample.features, check_exact=True)
    np.testing.assert_array_equal(one.sample.priorities, other.sample.priorities)
    np.testing.assert_array_equal(one.sample.targets, other.sample.targets)
    np.testing.assert_array_equal(one.sample.weights, other.sample.weights)
    assert one.partition_rows == other.partition_rows
    assert len(one.sample) == 17
    for a, b in zip(one.columns, other.columns, strict=True):
        assert (a.kind, a.missing, a.levels, a.order) == (b.kind, b.missing, b.levels, b.order)
    np.testing.assert_allclose(one.moments.mean, other.moments.mean, rtol=1e-12)


def test_the_sample_is_uniform_over_partitions_of_unequal_sizes():
    sizes, size, trials = (5, 60, 0, 135), 20, 400
    parts = np.split(np.arange(200.0), np.cumsum(sizes)[:-1])
    frames = [pd.DataFrame({"row": part}) for part in parts]
    hits = np.zeros(200)
    for seed in range(trials):
        rows = profile_of(frames, seed=seed, sample_rows=size).sample.features["row"]
        assert rows.nunique() == size
        hits[rows.astype(int)] += 1
    rate = size / 200
    z = (hits - trials * rate) / math.sqrt(trials * rate * (1 - rate))
    assert abs(z).max() < 4.5
    # Pearson's statistic without replacement: chi² of 199 degrees, sd 20.
    assert abs(float((z**2).sum()) * 199 / 200 - 199) < 80


def test_the_sample_is_the_smallest_priorities_in_order():
    profile = profile_of(
        [pd.DataFrame({"row": np.arange(30.0)}), pd.DataFrame({"row": np.arange(30.0, 50)})],
        seed=5,
        sample_rows=8,
    )
    drawn = np.concatenate(
        [
            np.random.default_rng(np.random.SeedSequence(5, spawn_key=(0, 0, i))).random(n)
            for i, n in enumerate((30, 20))
        ]
    )
    expected = np.argsort(drawn)[:8]
    np.testing.assert_array_equal(profile.sample.features["row"], expected)
    np.testing.assert_array_equal(profile.sample.priorities, drawn[expected])


@pytest.mark.parametrize("sample_rows", [0, 1, 1000])
def test_any_size_of_sample(sample_rows):
    profile = profile_of([mixed_frame(30), mixed_frame(5)], sample_rows=sample_rows)
    assert len(profile.sample) == len(profile.sample.features) == min(sample_rows, 35)


def test_sampled_rows_encode_to_the_bits_of_the_rows_they_are():
    frame = with_missing(mixed_frame(80))
    frame.insert(0, "row", np.arange(80.0))
    profile = profile_of([frame.iloc[:50], frame.iloc[50:]], missing="impute", sample_rows=40)
    encoding = make_encoding(profile, standardize=True, missing="impute")
    sampled = profile.sample.features
    X, _ = encoding.encode(sampled)
    expected, _ = encoding.encode(frame.iloc[sampled["row"].astype(int)])
    np.testing.assert_array_equal(X, expected)


def test_profiles_that_do_not_belong_together_are_not_merged():
    a, b = profile_of(pd.DataFrame({"x": [1.0]})), profile_of(pd.DataFrame({"z": [1.0]}))
    with pytest.raises(DataError, match="different columns"):
        merge_profiles([a, b])
    with pytest.raises(InvalidParameterError, match=r"\[0\] were profiled twice"):
        merge_profiles([a, a])
    with pytest.raises(InvalidParameterError, match="no profiles"):
        merge_profiles([])


# --- checks ----------------------------------------------------------------------------


def checked(
    features: dict[str, Any],
    targets: Any,
    weights: Any = None,
    *,
    missing: str = "raise",
) -> None:
    y = np.asarray(targets, float)
    y = y[:, None] if y.ndim == 1 else y
    w = None if weights is None else np.asarray(weights, float)
    table = Table(pd.DataFrame(features), y, w)
    profile = profile_table(table, partition=0, missing=missing, seed=0, sample_rows=10)
    check_profile(profile, missing=missing)


def test_good_data_passes():
    checked({"x": [1.0, 2.0]}, [0.0, 1.0], [0.5, 1.0])
    checked({"x": [1.0, np.nan, 3.0]}, [0.0, 1.0, np.nan], missing="impute")
    checked({"x": [1.0, np.nan, 3.0, 4.0]}, [0.0, 1.0, np.nan, 4.0], missing="drop")
    checked({"x": [1.0, 2.0]}, np.empty((2, 0)))


def test_too_few_rows():
    with pytest.raises(EmptyDataError, match="no rows to fit"):
        checked({"x": []}, [])
    with pytest.raises(EmptyDataError, match=r"n_samples=0"):
        checked({"x": []}, [])
    with pytest.raises(EmptyDataError, match=r"n_samples=1\); at least two are needed"):
        checked({"x": [1.0]}, [1.0])
    with pytest.raises(
        EmptyDataError,
        match=r"n_samples=0\): 3 of 3 were dropped, missing 'x' \(3 rows\) and the target \(1",
    ):
        checked({"x": [np.nan] * 3, "z": [1, 2, 3]}, [1.0, 2.0, np.nan], missing="drop")


def test_missing_values_are_named_with_counts_and_the_way_out():
    with pytest.raises(MissingValuesError) as caught:
        checked({"a": [1, None, None], "b": [1, 2, 3], "c": ["u", None, "v"]}, [1, 2, np.nan])
    assert str(caught.value) == (
        "missing values (NaN) in 'a' (2 rows), 'c' (1 row) and the target (1 row) of 3 rows; "
        'pass missing="impute" to fill features in, or missing="drop" to leave such rows out'
    )
    wide = {f"c{j}": [np.nan, 1.0, 2.0] for j in range(30)}
    with pytest.raises(
        MissingValuesError, match=r"'c9' \(1 row\) and 20 more of 3 rows"
    ) as caught:
        checked(wide, [1.0, 2.0, 3.0])
    assert "c10" not in str(caught.value)
    with pytest.raises(MissingValuesError, match=r"target 1 \(1 row\)"):
        checked({"x": [1, 2]}, [[1, 2], [3, np.nan]])
    with pytest.raises(MissingValuesError, match=r"the sample weights \(1 row\); every row needs"):
        checked({"x": [1, 2]}, [1, 2], [1, np.nan], missing="impute")


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
def test_infinite_values_are_named_with_counts(missing):
    with pytest.raises(InfiniteValuesError, match=r"in 'a' \(2 rows\) and the target \(1 row\)"):
        checked({"a": [np.inf, -np.inf, 1.0]}, [1.0, 2.0, np.inf], missing=missing)
    with pytest.raises(InfiniteValuesError, match=r"the sample weights \(1 row\)"):
        checked({"a": [1.0, 2.0]}, [1.0, 2.0], [1.0, np.inf], missing=missing)


@pytest.mark.parametrize(
    ("targets", "weights"),
    [
        ([0.1] * 1000, None),
        ([0.1, 0.1, 7.0], [1.0, 2.0, 0.0]),
        ([1e9, 1e9 * (1 + 2e-16), 1e9], None),
        (list(0.1 * np.arange(50) - 0.1 * np.arange(50) + (0.1 + 0.2 - 0.2)), None),
    ],
)
def test_a_constant_target_is_an_error(targets, weights):
    features = {"x": np.arange(float(len(targets)))}
    with pytest.raises(ConstantTargetError, match=r"the target is constant: "):
        checked(features, targets, weights)


def test_a_target_far_from_zero_is_not_constant():
    checked({"x": [1, 2, 3]}, 1e9 + np.array([0, 1e-3, 0]))
    checked({"x": [1, 2, 3]}, [[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])  # one of two varies


def test_bad_weights_are_errors():
    with pytest.raises(InvalidParameterError, match=r"negative values in the sample weights \(2"):
        checked({"x": [1, 2, 3]}, [1, 2, 3], [1, -1, -2])
    with pytest.raises(InvalidParameterError, match=r"all sample weights are zero"):
        checked({"x": [1, 2]}, [1, 2], [0, 0])


# --- encoding: numbers -----------------------------------------------------------------


def test_numbers_are_centred_before_the_cast_to_float32():
    values = 1e9 + np.random.default_rng(0).normal(size=5000)
    for standardize in (True, False):
        X = encoded(pd.DataFrame({"x": values}), standardize=standardize, dtype="float32")["x"]
        exact = values - values.mean()
        exact = exact / exact.std() if standardize else exact
        assert X.dtype == np.float32
        np.testing.assert_allclose(X, exact, atol=2e-6)


def test_numbers_are_standardized_or_not():
    frame = pd.DataFrame({"a": [1.0, 2.0, 6.0], "b": [10, 20, 60]})
    X = encoded(frame)
    np.testing.assert_allclose(X["a"], (frame["a"] - 3) / frame["a"].std(ddof=0))
    np.testing.assert_allclose(X["a"], X["b"])
    X = encoded(frame, standardize=False)
    np.testing.assert_allclose(X["b"], [-20, -10, 30])


def test_booleans_are_centred_and_spread_like_levels():
    X = encoded(pd.DataFrame({"f": [True, False, False, False]}))["f"]
    np.testing.assert_allclose(X, math.sqrt(2) * np.array([0.75, -0.25, -0.25, -0.25]))
    X = encoded(pd.DataFrame({"f": [True, False]}), standardize=False)["f"]
    np.testing.assert_allclose(X, [0.5, -0.5])


def test_columns_without_information_are_left_out_with_a_warning():
    frame = pd.DataFrame(
        {
            "x": [1.0, 2.0, 3.0],
            "one": [0.1, 0.1, 0.1],
            "rounding": [1e9, 1e9 + 1e-7, 1e9],
            "flag": [True, True, True],
            "text": ["a", "a", "a"],
            "order": pd.Categorical(["a"] * 3, categories=["a", "b"], ordered=True),
            "void": [None, None, None],
        }
    )
    with pytest.warns(ColumnsDropped) as caught:
        encoding = encoding_of(frame, missing="impute")
    assert encoding.encoded_names == ("x",)
    assert encoding.labels == tuple(frame.columns)
    assert encoding.feature_names == encoding.used_labels == ("x",)
    (warning,) = caught
    assert str(warning.message) == (
        "left out of the fit: 'one', 'rounding', 'flag', 'text' and 'order' (constant); "
        "'void' (missing throughout)"
    )
    assert encoding.encode(frame[["x"]])[0].shape == (3, 1)  # the others are not asked for
    encoding.check_columns(["x"])
    decoded = encoding.decode_points(np.zeros((1, 1)))
    assert decoded["one"][0] == pytest.approx(0.1)
    assert pd.isna(decoded["void"][0])
    with pytest.raises(DataError, match=r"no feature is left to learn from: 'one' \(constant\)"):
        encoding_of(frame[["one"]])


def test_a_column_that_is_constant_where_known_keeps_its_indicator():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "cancelled": [1.0, np.nan, 1.0]})
    X = encoded(frame, missing="impute", standardize=False)
    np.testing.assert_array_equal(X["cancelled is missing"], [0, 1, 0])
    assert "cancelled" not in X
    with pytest.warns(ColumnsDropped, match=r"'cancelled' \(constant\)"):
        encoding_of(frame, missing="drop")


def test_values_too_large_for_the_dtype_are_errors_not_infinities():
    frame = pd.DataFrame({"x": [0.0, 1e300, 1.0]})
    with pytest.raises(InfiniteValuesError, match=r"'x' has values too large to be squared"):
        encoding_of(frame)
    encoding = encoding_of(pd.DataFrame({"x": [0.0, 1.0]}), standardize=False, dtype="float32")
    with pytest.raises(InfiniteValuesError, match=r"too large for float32"):
        encoding.encode(frame)


def test_values_that_overflow_are_errors_without_a_numpy_warning():
    with pytest.raises(InfiniteValuesError, match=r"the target is too large to be squared"):
        checked({"x": [1, 2, 3]}, [1e200, -1e200, 0.0])
    with pytest.raises(DataError, match=r"column 'x' holds a value out of range"):
        profile_of(pd.DataFrame({"x": pd.Series([1, 10**400], dtype=object)}))
    encoding = encoding_of(pd.DataFrame({"x": [0.0, 1e-5]}))
    with pytest.raises(InfiniteValuesError, match=r"too large for float64"):
        encoding.encode(pd.DataFrame({"x": [1e306]}))


def test_the_median_and_an_indicator_stand_for_missing_numbers():
    frame = pd.DataFrame({"x": [1.0, 2.0, np.nan, 9.0], "z": [1.0, 2.0, 3.0, 4.0]})
    X = encoded(frame, missing="impute")
    sd = np.std([1, 2, 9])
    np.testing.assert_allclose(X["x"], (np.array([1, 2, 2, 9]) - 4) / sd)
    np.testing.assert_allclose(X["x is missing"], [0, 0, math.sqrt(2), 0])
    np.testing.assert_allclose(
        encoded(frame, missing="impute", standardize=False)["x is missing"], [0, 0, 1, 0]
    )
    assert "z is missing" not in X
    encoding = encoding_of(frame, missing="impute", standardize=False)
    later, _ = encoding.encode(pd.DataFrame({"x": [1.0], "z": [np.nan]}))
    np.testing.assert_allclose(later, [[-3, 0, 2.5 - 2.5]])


def test_missing_values_where_none_are_allowed():
    encoding = encoding_of(mixed_frame())
    frame = with_missing(mixed_frame())
    counts = frame.isna().sum()
    with pytest.raises(MissingValuesError) as caught:
        encoding.encode(frame[["city", *frame.columns.drop("city")]])
    assert f"'x' ({counts['x']} rows), 'count' ({counts['count']} rows)" in str(caught.value)
    with pytest.raises(MissingValuesError, match=r"in 'city' \(1 row\), and the encoding was"):
        encoding.encode(mixed_frame(2).assign(city=["Oslo", None]))


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
def test_infinite_values_are_errors_always(missing):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "z": [1.0, 5.0, 2.0]})
    encoding = encoding_of(frame, missing=missing)
    bad = frame.assign(z=[np.inf, -np.inf, np.nan])
    for features in (bad, bad.to_numpy()):
        with pytest.raises(InfiniteValuesError, match=r"\(inf\) in 'z' \(2 rows\); replace"):
            encoding.encode(features)


def test_incomplete_rows_are_dropped_wherever_they_are_incomplete():
    full = mixed_frame(300)
    holed = with_missing(full)
    encoding = encoding_of(holed, missing="drop")
    X, kept = encoding.encode(holed)
    np.testing.assert_array_equal(kept, holed.notna().all(axis=1))
    assert 0 < len(X) == kept.sum() < 300
    assert X.flags.c_contiguous
    np.testing.assert_array_equal(X, encoding.encode(full)[0][kept])
    assert profile_of(holed, missing="drop").kept == len(X)


def test_an_unseen_ordered_level_drops_its_row():
    frame = pd.DataFrame({"s": pd.Categorical(["S", "L", "S"], ["S", "L"], ordered=True)})
    _, kept = encoding_of(frame, missing="drop").encode(pd.DataFrame({"s": ["S", "XXL", "L"]}))
    np.testing.assert_array_equal(kept, [True, False, True])


# --- encoding: levels ------------------------------------------------------------------


def test_levels_have_a_column_each_by_count_then_text():
    frame = pd.DataFrame({"c": ["b", "a", "c", "c", "b", "a", "c", "d"]})
    encoding = encoding_of(frame)
    assert encoding.encoded_names == ("c=c", "c=a", "c=b", "c=d")
    X, _ = encoding.encode(frame)
    np.testing.assert_array_equal(X.sum(axis=1), 1)
    np.testing.assert_array_equal(X.argmax(axis=1), [2, 1, 0, 0, 2, 1, 0, 3])
    unseen, _ = encoding.encode(pd.DataFrame({"c": ["zzz"]}))
    np.testing.assert_array_equal(unseen, [[0, 0, 0, 0]])


def test_rare_and_unseen_levels_share_a_column():
    frame = pd.DataFrame({"c": ["a"] * 5 + ["b"] * 3 + ["c", "d"]})
    encoding = encoding_of(frame, max_levels=2)
    assert encoding.encoded_names == ("c=a", "c=b", "c=<other>")
    X, _ = encoding.encode(pd.DataFrame({"c": ["b", "c", "unseen"]}))
    np.testing.assert_array_equal(X, [[0, 1, 0], [0, 0, 1], [0, 0, 1]])


def test_a_level_of_one_partition_only_has_a_column_everywhere():
    parts = [pd.DataFrame({"c": ["a", "b"]}), pd.DataFrame({"c": ["a", "only here"]})]
    encoding = encoding_of(parts)
    assert encoding.encoded_names == ("c=a", "c=b", "c=only here")
    assert encoding.encode(parts[0])[0].shape == (2, 3)


def test_missing_levels_have_a_column_if_the_fit_had_any():
    frame = pd.DataFrame({"c": ["a", None, "b", "a"]})
    encoding = encoding_of(frame, missing="impute", max_levels=1)
    assert encoding.encoded_names == ("c=a", "c=<other>", "c is missing")
    np.testing.assert_array_equal(
        encoding.encode(frame)[0], [[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    )
    full = encoding_of(frame.fillna("b"), missing="impute", max_levels=1)
    assert full.encoded_names == ("c=a", "c=<other>")
    np.testing.assert_array_equal(full.encode(frame)[0], [[1, 0], [0, 1], [0, 1], [1, 0]])
    alone = encoding_of(pd.DataFrame({"c": ["a", None]}), missing="impute")
    assert alone.encoded_names == ("c=a", "c is missing")


def test_identifiers_are_left_out_with_the_reason():
    frame = pd.DataFrame({"x": np.arange(100.0), "id": [f"k{i}" for i in range(100)]})
    with pytest.warns(ColumnsDropped, match=r"'id' \(identifiers: most rows have a level of"):
        encoding = encoding_of(frame)
    assert encoding.encoded_names == ("x",)
    few = frame.assign(id=[f"k{i % 40}" for i in range(100)])
    assert len(encoding_of(few, max_levels=16).encoded_names) == 1 + 16 + 1


def test_ordered_categories_are_numbers_in_their_order():
    frame = pd.DataFrame(
        {"s": pd.Categorical(["M", "S", "L", "S"], ["S", "M", "L", "XL"], ordered=True)}
    )
    X = encoded(frame, standardize=False)["s"]
    np.testing.assert_allclose(X, np.array([1, 0, 2, 0]) - 0.75)
    X = encoded(frame)["s"]
    np.testing.assert_allclose([X.mean(), X.std()], [0, 1], atol=1e-12)
    encoding = encoding_of(frame, missing="impute", standardize=False)
    later, _ = encoding.encode(pd.DataFrame({"s": ["XL", "unseen", None]}))
    np.testing.assert_allclose(later[:, 0], np.array([3, 0.5, 0.5]) - 0.75)
    with pytest.raises(MissingValuesError, match=r"unseen levels of ordered categories\) in 's'"):
        encoding_of(frame).encode(pd.DataFrame({"s": ["XL", "unseen"]}))


def test_orders_of_partitions_must_agree_or_there_is_no_order():
    def part(values: list[str], categories: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"s": pd.Categorical(values, categories, ordered=True)})

    parts = [part(["a", "c"], ["a", "c"]), part(["b", "b"], ["a", "b", "c"])]
    assert encoding_of(parts).columns[0].levels == ("a", "b", "c")
    assert encoding_of(parts).encoded_names == ("s",)
    parts.append(part(["a", "c"], ["c", "a"]))
    assert encoding_of(parts).encoded_names == ("s=a", "s=b", "s=c")
    parts[2] = pd.DataFrame({"s": ["a", "c"]})
    assert encoding_of(parts).encoded_names == ("s=a", "s=b", "s=c")
    parts[2] = part([None, None], ["z"])
    assert encoding_of(parts, missing="impute").encoded_names == ("s", "s is missing")


# --- encoding: times -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "step", "n", "cycles"),
    [
        ("2020-01-01", "1h", 48, ["day"]),
        ("2020-01-01", "1D", 10, []),
        ("2020-01-01", "1D", 15, ["week"]),
        ("2020-01-01", "2D", 200, ["year", "week"]),
        ("2020-01-01", "37h", 400, ["year", "week", "day"]),
    ],
)
def test_datetimes_have_the_cycles_that_their_span_shows(start, step, n, cycles):
    frame = pd.DataFrame({"t": pd.date_range(start, periods=n, freq=step)})
    X = encoded(frame, standardize=False)
    names = ["t"] + [f"t ({wave} {cycle})" for cycle in cycles for wave in ("sin", "cos")]
    assert list(X) == names
    np.testing.assert_allclose([X["t"].mean(), X["t"].std()], [0, 1], atol=1e-9)
    for cycle in cycles:
        sin, cos = X[f"t (sin {cycle})"], X[f"t (cos {cycle})"]
        np.testing.assert_allclose(sin**2 + cos**2, 1)


def test_cycles_have_their_periods():
    frame = pd.DataFrame({"t": pd.date_range("2019-01-01", periods=20_000, freq="1h")})
    X = encoded(frame)
    for cycle, hours in [("day", 24), ("week", 168)]:
        for wave in ("sin", "cos"):
            values, half = X[f"t ({wave} {cycle})"], hours // 2
            np.testing.assert_allclose(values[hours:], values[:-hours], atol=1e-9)
            np.testing.assert_allclose(values[half:], -values[:-half], atol=1e-9)
    noon = (frame["t"].dt.hour == 12).to_numpy()
    np.testing.assert_allclose(X["t (cos day)"][noon], -1)
    angle = np.arctan2(X["t (sin year)"], X["t (cos year)"])
    summer = (frame["t"].dt.month == 7) & (frame["t"].dt.day == 2)
    assert np.all(np.abs(angle[summer.to_numpy()]) > math.pi - 0.06)


def test_time_zones_are_read_as_utc():
    times = pd.date_range("2020-01-01", periods=300, freq="7h", tz="UTC")
    encoding = encoding_of(pd.DataFrame({"t": times}))
    X, _ = encoding.encode(pd.DataFrame({"t": times}))
    for other in (times.tz_convert("Asia/Tokyo"), times.tz_localize(None), times.astype(object)):
        np.testing.assert_array_equal(encoding.encode(pd.DataFrame({"t": other}))[0], X)


def test_missing_times_become_the_median_time():
    times = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-03", None, "2020-01-09"]))
    X = encoded(pd.DataFrame({"t": times}), missing="impute")
    assert X["t"][2] == X["t"][1]
    np.testing.assert_allclose(X["t is missing"], [0, 0, math.sqrt(2), 0])


def test_timedeltas_are_encoded_as_seconds():
    frame = pd.DataFrame({"d": pd.to_timedelta([1, 2, 6], unit="s")})
    np.testing.assert_allclose(encoded(frame, standardize=False)["d"], [-2, -1, 3])


# --- encoding: tables ------------------------------------------------------------------


def test_columns_are_matched_by_name():
    frame = mixed_frame()
    encoding = encoding_of(frame)
    X, kept = encoding.encode(frame)
    assert kept.all()
    assert X.shape == (len(frame), encoding.n_features)
    shuffled = frame[frame.columns[::-1]].assign(extra="?")
    np.testing.assert_array_equal(encoding.encode(shuffled)[0], X)
    with pytest.raises(MissingColumnsError, match=r"missing column 'x'.*the table has"):
        encoding.encode(frame.drop(columns="x"))
    with pytest.raises(MissingColumnsError, match=r"'city' \(did you mean 'City'\?\)"):
        encoding.check_columns([*frame.columns.drop("city"), "City"])
    with pytest.raises(DataError, match=r"more than once: 'x'"):
        encoding.check_columns([*frame.columns, "x"])
    encoding.check_columns(list(shuffled.columns), dict(shuffled.dtypes))


@pytest.mark.parametrize("missing", ["raise", "impute"])
def test_any_cut_of_the_rows_encodes_to_the_same_bits(missing):
    frame = mixed_frame(3000)
    frame = with_missing(frame) if missing == "impute" else frame
    encoding = encoding_of(frame, missing=missing, dtype="float32")
    X, _ = encoding.encode(frame)
    assert X.dtype == np.float32
    assert X.flags.c_contiguous
    assert np.isfinite(X).all()
    pieces = [
        encoding.encode(frame.iloc[a:b])[0] for a, b in [(0, 1), (1, 1), (1, 700), (700, 3000)]
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), X)


def test_blocks_count_infinite_and_missing_values_together():
    values = np.random.default_rng(0).normal(size=(40_000, 9))
    values[[0, 20_000, 39_999], 4] = np.inf
    values[[1, 20_001], 4] = np.nan
    profile = profile_of(pd.DataFrame(values))
    assert (profile.columns[4].infinite, profile.columns[4].missing) == (3, 2)
    assert profile.moments.weight[4] == 39_995


def test_blocks_report_missing_values_of_all_of_them():
    values = np.random.default_rng(0).normal(size=(40_000, 9))
    encoding = encoding_of(pd.DataFrame(values))
    values[[0, 20_000, 39_999], 4] = np.nan
    with pytest.raises(MissingValuesError, match=r"in 4 \(3 rows\), and"):
        encoding.encode(pd.DataFrame(values))


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "bool"])
def test_an_array_and_a_frame_encode_to_the_same_bits(missing, dtype):
    rng = np.random.default_rng(0)
    array = (rng.normal(0, 3, size=(9000, 20)).round(1)).astype(dtype)
    array[:, 7] = 1
    if missing != "raise" and array.dtype.kind == "f":
        array[rng.random(array.shape) < 0.01] = np.nan
    frame = pd.DataFrame(array)
    with (
        pytest.warns(ColumnsDropped)
        if missing != "impute" or array.dtype.kind != "f"
        else (np.errstate())
    ):
        encoding = encoding_of(frame, missing=missing, dtype="float32")
    X, kept = encoding.encode(frame)
    for layout in (array, np.asfortranarray(array)):
        from_array, kept_of_array = encoding.encode(layout)
        np.testing.assert_array_equal(from_array, X)
        np.testing.assert_array_equal(kept_of_array, kept)
    objects, _ = encoding.encode(array.astype(object))
    np.testing.assert_array_equal(objects, X)
    one, _ = encoding.encode(array[kept][:1])
    np.testing.assert_array_equal(one, X[:1])


def test_arrays_of_the_wrong_shape_are_errors():
    encoding = encoding_of(pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4))))
    with pytest.raises(
        DataError, match="X has 3 features, but squeak_dist is expecting 4 features as input"
    ):
        encoding.encode(np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"Expected 2D array, got 1D array instead.*reshape"):
        encoding.encode(np.zeros(4))


def test_an_object_array_holds_text_too():
    frame = pd.DataFrame({0: [1.0, 2.0, 4.0], 1: ["a", "b", "a"]})
    encoding = encoding_of(frame)
    X, _ = encoding.encode(frame.to_numpy(dtype=object))
    np.testing.assert_array_equal(X, encoding.encode(frame)[0])


def test_a_column_of_another_kind_than_in_the_fit_is_an_error():
    frame = mixed_frame()
    encoding = encoding_of(frame)
    text = frame["city"].astype("string")
    cases = {
        "x": (
            pd.Series(["1"] * 60, dtype="string"),
            "'x' was numeric in the fit but is text here",
        ),
        "flag": (text, "'flag' was boolean in the fit but is text here"),
        "day": (text, "'day' was datetime in the fit but is text here"),
        "count": (frame["day"], "'count' was numeric in the fit but is datetime here"),
        "delay": (text, "'delay' was timedelta in the fit but is text here"),
    }
    for name, (column, message) in cases.items():
        changed = frame.assign(**{name: column})
        with pytest.raises(ColumnTypeError, match=message):
            encoding.encode(changed)
        with pytest.raises(ColumnTypeError, match=message):
            encoding.check_columns(list(changed.columns), dict(changed.dtypes))
    with pytest.raises(ColumnTypeError, match=r"column 'x': dtype complex128 cannot be used"):
        encoding.check_columns(list(frame.columns), {"x": np.dtype(complex)})
    numbers = frame.assign(x=frame["x"].astype(object), flag=frame["flag"].astype(int))
    np.testing.assert_array_equal(encoding.encode(numbers)[0], encoding.encode(frame)[0])


def test_columns_that_are_missing_throughout_at_prediction_are_imputed():
    frame = with_missing(mixed_frame())
    encoding = encoding_of(frame, missing="impute")
    void = pd.DataFrame({name: pd.Series([None], dtype=object) for name in frame.columns})
    X, _ = encoding.encode(void)
    assert np.isfinite(X).all()
    floats, _ = encoding.encode(pd.DataFrame({name: [np.nan] for name in frame.columns}))
    np.testing.assert_array_equal(X, floats)
    shown = dict(zip(encoding.encoded_names, X[0], strict=True))
    assert shown["day is missing"] == pytest.approx(math.sqrt(2))
    assert shown["city is missing"] == 1


def test_an_empty_table_encodes_to_no_rows():
    encoding = encoding_of(mixed_frame())
    for empty in (mixed_frame().iloc[:0], mixed_frame().iloc[:0].astype(object)):
        X, kept = encoding.encode(empty)
        assert X.shape == (0, encoding.n_features)
        assert kept.shape == (0,)


# --- storing and decoding --------------------------------------------------------------


def json_round_trip(encoding: FeatureEncoding) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    config, arrays = encoding.to_config()
    assert all(array.dtype == np.float64 for array in arrays.values())
    return json.loads(json.dumps(config, allow_nan=False)), arrays


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_stored_encoding_encodes_to_the_same_bits(missing, standardize):
    frame = mixed_frame(200)
    frame = frame if missing == "raise" else with_missing(frame)
    encoding = encoding_of(frame, missing=missing, standardize=standardize, dtype="float32")
    X, kept = encoding.encode(frame)
    stored = FeatureEncoding.from_config(*json_round_trip(encoding))
    for again in (stored, pickle.loads(pickle.dumps(encoding))):
        assert again.encoded_names == encoding.encoded_names
        assert again.columns == encoding.columns
        X_again, kept_again = again.encode(frame)
        np.testing.assert_array_equal(X_again, X)
        np.testing.assert_array_equal(kept_again, kept)
        assert X_again.dtype == X.dtype


def test_a_label_that_json_cannot_hold_is_an_error():
    frame = pd.DataFrame({pd.Timestamp("2020"): [1.0, 2.0]})
    with pytest.raises(InvalidParameterError, match=r"cannot be stored; rename the columns"):
        encoding_of(frame).to_config()


def test_points_decode_to_the_users_columns():
    frame = mixed_frame()
    encoding = encoding_of(frame)
    decoded = encoding.decode_points(encoding.encode(frame)[0])
    assert list(decoded.columns) == list(frame.columns)
    np.testing.assert_allclose(decoded["x"], frame["x"])
    np.testing.assert_allclose(decoded["count"], frame["count"], atol=1e-9)
    assert decoded["flag"].tolist() == frame["flag"].tolist()
    assert decoded["city"].tolist() == frame["city"].tolist()
    assert decoded["size"].tolist() == frame["size"].tolist()
    second = pd.Timedelta("1s")
    assert (abs(decoded["day"] - frame["day"]) < second).all()
    assert (abs(decoded["time"] - frame["time"].dt.tz_localize(None)) < second).all()
    assert (abs(decoded["delay"] - frame["delay"]) < second).all()


def test_decoded_numbers_show_the_decimals_that_float32_holds():
    frame = pd.DataFrame({"rooms": [880, 7099, 15, 0], "t": pd.to_datetime(["2020-01-01"] * 4)})
    frame["t"] += pd.to_timedelta([0, 100, 777, 5000], unit="D")
    encoding = encoding_of(frame, dtype="float32")
    decoded = encoding.decode_points(encoding.encode(frame)[0])
    assert decoded["rooms"].tolist() == [880, 7099, 15, 0]
    assert (abs(decoded["t"] - frame["t"]) < pd.Timedelta("1min")).all()
    assert encoding.decode_points(np.empty((0, encoding.n_features))).shape == (0, 2)


def test_missing_other_and_unseen_levels_decode_as_such():
    frame = pd.DataFrame(
        {
            "x": [1.0, np.nan, 3.0, 4.0],
            "c": ["a", None, "a", "a"],
            "d": ["u", "u", "v", "u"],
        }
    )
    encoding = encoding_of(frame, missing="impute", max_levels=1)
    points, _ = encoding.encode(frame)
    decoded = encoding.decode_points(points)
    assert decoded["x"].isna().tolist() == [False, True, False, False]
    assert decoded["c"].isna().tolist() == [False, True, False, False]
    assert decoded["d"].tolist() == ["u", "u", "<other>", "u"]
    with pytest.raises(DataError, match=r"expected points of shape \(m, 6\), got \(3, 2\)"):
        encoding.decode_points(np.zeros((3, 2)))


# --- encoding a partition --------------------------------------------------------------


def test_partition_keeps_global_row_numbers_of_the_rows_that_are_left():
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0, 6.0]})
    targets = np.array([[1.0], [2.0], [np.nan], [4.0], [5.0]])
    table = Table(frame, targets, np.arange(5.0))
    expected = {"impute": [0, 1, 3, 4], "drop": [0, 3, 4]}
    for missing, rows in expected.items():
        profile = profile_table(table, partition=0, missing=missing, seed=0, sample_rows=9)
        encoding = make_encoding(profile, standardize=True, missing=missing)
        part = encode_table(encoding, table, target_mean=profile.target_mean, offset=100)
        assert len(part) == profile.partition_kept[0] == len(rows)
        np.testing.assert_array_equal(part.indices, np.array(rows) + 100)
        np.testing.assert_array_equal(part.weights, rows)
        np.testing.assert_allclose(part.targets, targets[rows] - profile.target_mean)
        np.testing.assert_array_equal(part.X, encoding.encode(frame.iloc[rows])[0])
        assert part.indices.dtype == np.int64
        assert part.targets.dtype == np.float64


def test_partition_without_missing_values_and_without_weights():
    table = Table(pd.DataFrame({"x": [1.0, 2.0]}), np.array([[1.0], [3.0]]), None)
    profile = profile_table(table, partition=0, missing="raise", seed=0, sample_rows=9)
    encoding = make_encoding(profile, standardize=True, missing="raise")
    part = encode_table(encoding, table, target_mean=profile.target_mean, offset=0)
    np.testing.assert_array_equal(part.targets, [[-1.0], [1.0]])
    assert part.weights is None
    np.testing.assert_array_equal(table.targets, [[1.0], [3.0]])
    holed = Table(table.features, np.array([[1.0], [np.nan]]), None)
    with pytest.raises(MissingValuesError, match=r"in the target \(1 row\)"):
        encode_table(encoding, holed, target_mean=profile.target_mean, offset=0)


def test_parameters_out_of_range_are_errors():
    profile = profile_of(pd.DataFrame({"x": [1.0, 2.0]}))
    for options in ({"missing": "x"}, {"dtype": "float16"}, {"max_levels": 0}):
        arguments = {"standardize": True, "missing": "raise"} | options
        with pytest.raises(InvalidParameterError, match=next(iter(options))):
            make_encoding(profile, **arguments)
