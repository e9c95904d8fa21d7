"""Columns of every type, at the fit, when predicting and when scoring; and real tables."""

from __future__ import annotations

import datetime
import decimal
import os
import warnings
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import squeak_dist
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    ConstantTargetError,
    InfiniteValuesError,
    MissingValuesError,
    UnseenLevels,
)

QUICK = {"max_dictionary": 60, "missing": "impute"}
ROWS = 300
RNG = np.random.default_rng(0)
BASE = RNG.normal(size=ROWS)
WHOLE = np.round(BASE * 20 + 50).astype(int).clip(0, 100)
LEVELS = np.where(BASE > 0.5, "high", np.where(BASE < -0.5, "low", "mid"))


def fit(*args, **options):
    return squeak_dist.fit(*args, **(QUICK | options))


def holed(values):
    """The values with every tenth missing."""
    return pd.Series(values).astype(object).where(np.arange(ROWS) % 10 > 0, None)


ARROW = {
    "decimal": pa.decimal128(9, 2),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("s"),
    "time64": pa.time64("us"),
    "timestamp": pa.timestamp("ns", "America/New_York"),
    "duration": pa.duration("s"),
    "arrow text": pa.string(),
    "large text": pa.large_string(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "arrow bool": pa.bool_(),
    "arrow float": pa.float32(),
}
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(w)) for w in WHOLE]
STAMPS = pd.to_datetime(DAYS)
IN_ARROW = {
    "decimal": [decimal.Decimal(int(w)) / 4 for w in WHOLE],
    "date32": DAYS,
    "date64": DAYS,
    "time32": [datetime.time(int(w) // 5, 7) for w in WHOLE],
    "time64": [datetime.time(int(w) // 5, 7, 1) for w in WHOLE],
    "timestamp": STAMPS.tz_localize("America/New_York"),
    "duration": [datetime.timedelta(hours=int(w)) for w in WHOLE],
    "arrow text": LEVELS,
    "large text": LEVELS,
    "dictionary": LEVELS,
    "arrow bool": BASE > 0,
    "arrow float": BASE,
}
PLAIN = {
    **{
        f"{kind}{bits}": pd.Series(WHOLE, dtype=f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "float32": pd.Series(WHOLE, dtype="float32"),
    "float64": pd.Series(WHOLE, dtype="float64"),
    "float16": pd.Series(BASE, dtype="float16"),
    "bool": pd.Series(BASE > 0),
    **{t: holed(WHOLE).astype(t) for t in ("Int8", "UInt16", "Int64", "Float32", "Float64")},
    "boolean": holed(BASE > 0).astype("boolean"),
    "object bool": holed(BASE > 0),
    "object int": holed(WHOLE),
    "mixed numbers": pd.Series([w if w % 2 else float(w) for w in WHOLE.tolist()], dtype=object),
    "object text": holed(LEVELS),
    "str": holed(LEVELS).astype("str"),
    "string": holed(LEVELS).astype("string"),
    "string[pyarrow]": holed(LEVELS).astype("string[pyarrow]"),
    "category": holed(LEVELS).astype("category"),
    "int category": pd.Series(WHOLE // 20).astype("category"),
    "ordered": pd.Series(pd.Categorical(LEVELS, ["low", "mid", "high"], ordered=True)),
    "datetime": pd.Series(STAMPS),
    "tz": pd.Series(STAMPS.tz_localize("Asia/Tokyo")),
    "timedelta": pd.Series(pd.to_timedelta(WHOLE, "h")),
    "dates": pd.Series(DAYS, dtype=object),
}
for _name, _type in ARROW.items():
    _values = pa.array(list(IN_ARROW[_name]), type=getattr(_type, "value_type", _type))
    PLAIN[_name] = pd.Series(_values.cast(_type), dtype=pd.ArrowDtype(_type))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("lazy", [False, True], ids=["pandas", "dask"])
def test_a_column_of_every_type_carries_its_signal(name, lazy):
    """Alone beside noise; missing values imputed; the same from Dask, and from other rows."""
    column = PLAIN[name]
    frame = pd.DataFrame({"x": column, "noise": RNG.normal(size=ROWS), "y": BASE})
    # Dask takes objects for text, unless it is told not to: numbers of two types would be levels.
    with dask.config.set({"dataframe.convert-string": name != "mixed numbers"}):
        table = dd.from_pandas(frame, npartitions=3) if lazy else frame
    model = fit(table, target="y")
    predicted = np.asarray(model.predict(table))
    assert np.isfinite(predicted).all()
    assert model.evaluate(table).model.r2[0] > 0.4, model.model_.encoding.columns
    rows = frame.sample(frac=0.5, random_state=0)
    np.testing.assert_allclose(model.predict(rows), predicted[rows.index], rtol=1e-4, atol=1e-4)
    assert np.isfinite(model.predict(rows.iloc[:1])).all()


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([[1]] * ROWS),
        pd.Series([{"a": 1}] * ROWS),
        pd.Series(pd.period_range("2020", periods=ROWS)),
        pd.Series(pd.interval_range(0, ROWS)),
        pd.Series(BASE + 0j),
        pd.Series(pd.array([[1]] * ROWS, dtype=pd.ArrowDtype(pa.list_(pa.int64())))),
    ],
)
def test_types_without_a_number_are_refused_by_name(column):
    frame = pd.DataFrame({"x": BASE, "odd": column, "y": BASE})
    with pytest.raises(ColumnTypeError, match="'odd'"):
        fit(frame, target="y")
    assert np.isfinite(fit(frame, target="y", features=["x"]).predict(frame)).all()


# --- levels -----------------------------------------------------------------------------------


def test_levels_of_one_partition_and_levels_never_seen():
    frame = pd.DataFrame({"k": LEVELS, "x": BASE, "y": BASE}).sort_values("k")
    table = dd.from_map(lambda part: part, [frame[frame.k == k] for k in ("high", "low", "mid")])
    model = fit(table, target="y")
    names = model.model_.encoding.encoded_names
    assert {"k=high", "k=low", "k=mid"} < set(names)
    for new in ("never", "", None, "HIGH"):
        assert np.isfinite(model.predict(frame.assign(k=new))).all()


def test_numbers_in_a_column_of_text():
    """Refused where no level reads like a number; levels where some does."""
    words = pd.DataFrame({"k": LEVELS, "x": BASE, "y": BASE})
    model = fit(words, target="y")
    refused = "'k' was text .*'low'.* in the fit but is"
    for other in (WHOLE, BASE, BASE > 0, STAMPS, WHOLE.astype("uint8"), pd.array(WHOLE, "Int64")):
        for table in (words.assign(k=other), dd.from_pandas(words.assign(k=other), npartitions=2)):
            with pytest.raises(ColumnTypeError, match=refused):
                np.asarray(model.predict(table))
            with pytest.raises(ColumnTypeError, match=refused):
                model.evaluate(table)
    with pytest.raises(ColumnTypeError, match=refused):  # by its type, before a row is read
        model.predict(dd.from_map(pd.DataFrame, [0], meta=words.assign(k=1).iloc[:0]))
    for missing in (np.nan, None, pd.NaT):
        assert np.isfinite(model.predict(words.assign(k=missing))).all()

    codes = pd.DataFrame({"k": (WHOLE // 20).astype(str), "x": BASE, "y": BASE})
    model = fit(codes, target="y")
    expected = model.predict(codes)
    for other in (WHOLE // 20, (WHOLE // 20).astype(float), pd.array(WHOLE // 20, "Int64")):
        np.testing.assert_array_equal(model.predict(codes.assign(k=other)), expected)
    ordered = words.assign(k=pd.Categorical(LEVELS, ["low", "mid", "high"], ordered=True))
    # Numbers that are none of the levels are levels never seen, which is said where it is known.
    rest = codes.assign(k=np.where(np.arange(ROWS) < 7, 99, WHOLE // 20))
    with pytest.warns(UnseenLevels, match=rf"'k' \(7 rows\) of {ROWS}"):
        model.predict(rest)
    with pytest.warns(UnseenLevels):
        model.predict(rest.astype({"k": object}), return_std=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(dd.from_pandas(rest, npartitions=2)).compute()
        model.predict(rest.assign(k=rest["k"].astype(str)))
        model.evaluate(rest)
    with pytest.raises(ColumnTypeError, match="'k' was text"):
        fit(ordered, target="y").predict(words.assign(k=1))


def test_identifiers_are_left_out_with_a_warning():
    frame = pd.DataFrame({"id": [f"u{i}" for i in range(ROWS)], "x": BASE, "y": BASE})
    for table in (frame, dd.from_pandas(frame, npartitions=4)):
        with pytest.warns(ColumnsDropped, match=r"'id' \(identifiers"):
            model = fit(table, target="y")
        assert np.isfinite(np.asarray(model.predict(table))).all()
        assert model.score(frame[["x", "y"]]) > 0.9


# --- values -----------------------------------------------------------------------------------


def test_columns_of_very_different_scales():
    frame = pd.DataFrame({"big": BASE * 1e12 + 1e15, "tiny": RNG.normal(size=ROWS) * 1e-9})
    frame["y"] = np.sin(BASE) + frame.tiny * 1e9
    for dtype in ("float32", "float64"):
        model = fit(frame, target="y", dtype=dtype, max_dictionary=200)
        assert model.evaluate(frame).model.r2[0] > 0.95
        shown = model.model_.encoding.decode_points(model.components_)
        assert np.abs(shown.big - 1e15).max() > 1e11


def test_constant_and_void_columns_cost_nothing():
    frame = pd.DataFrame({"x": BASE, "y": BASE})
    useless = frame.assign(one=7, void=np.nan, none=None, word="w", day=pd.Timestamp("2024"))
    with pytest.warns(ColumnsDropped, match=r"'one', 'word' and 'day' \(constant\).*throughout"):
        model = fit(useless, target="y")
    assert model.dual_coef_.tobytes() == fit(frame, target="y").dual_coef_.tobytes()


@pytest.mark.parametrize("missing", ["raise", "impute", "drop"])
def test_targets_with_holes_by_policy(missing):
    frame = pd.DataFrame({"x": BASE, "y": np.where(np.arange(ROWS) % 3, BASE, np.nan)})
    if missing == "raise":
        with pytest.raises(MissingValuesError, match=r"the target \(100 rows\)"):
            fit(frame, target="y", missing=missing)
        return
    model = fit(frame, target="y", missing=missing)
    assert model.report_["rows_dropped"] == 100
    assert np.isfinite(model.predict(frame)).all()
    assert model.evaluate(frame).rows == 200


def test_huge_outliers_leave_finite_numbers():
    for factor in (1e3, 1e8, 1e15):
        frame = pd.DataFrame({"x": BASE, "z": BASE[::-1], "y": BASE})
        frame.loc[7, "x"] = factor
        frame.loc[8, "y"] = factor
        model = fit(frame, target="y")
        assert np.isfinite(model.predict(frame)).all()
        assert np.isfinite(model.evaluate(frame).model.rmse[0])


def test_what_no_policy_accepts():
    frame = pd.DataFrame({"x": BASE, "y": BASE})
    with pytest.raises(InfiniteValuesError, match="'x'"):
        fit(frame.assign(x=np.inf), target="y")
    with pytest.raises(InfiniteValuesError, match="the target"):
        fit(frame.assign(y=np.where(BASE > 0, np.inf, BASE)), target="y")
    with pytest.raises(ConstantTargetError):
        fit(frame.assign(y=1), target="y")


# --- real tables ------------------------------------------------------------------------------


def test_houses_as_they_come(houses):
    """Dates, a category of 70 levels, an integer id, skewed prices: no cleaning."""
    train, test = houses.iloc[:800], houses.iloc[800:]
    model = fit(dd.from_pandas(train, npartitions=4), target="price", max_dictionary=300)
    assert model.evaluate(test).model.r2[0] > 0.5
    labels = {c.label: c.kind for c in model.model_.encoding.columns}
    assert labels["date"] == "datetime"
    assert labels["zipcode"] == "categorical"
    assert labels["id"] == "numeric"  # integers are numbers: leave them out with features=
    as_text = train.assign(id=train.id.astype(str))
    with pytest.warns(ColumnsDropped, match="'id' .identifiers"):
        fit(as_text, target="price")


SETS = {  # name: (target, what is not to be learned from, a lower bound of R²)
    "adult": ("hours-per-week", [], 0.1),
    "beijing_pm25": ("pm2.5", [], 0.3),
    "bike_hour": ("cnt", ["casual", "registered", "instant"], 0.4),
    "california_housing": ("median_house_value", [], 0.6),
    "kc_house": ("price", ["id"], 0.6),
    "uci_keggundirected": ("y", [], 0.9),
    "uci_tamielectric": ("y", [], -0.05),
    "mv": ("y", [], 0.9),
    "ailerons": ("goal", [], 0.7),
    "etopo20": ("elevation", [], 0.5),
    "uci_gas": ("y", [], 0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_public_tables_with_their_traps(name):
    """Whole files, as they come. SQUEAK_DIST_DATA names the folder that has them."""
    path = Path(os.environ.get("SQUEAK_DIST_DATA", "")) / f"{name}.parquet"
    if not os.environ.get("SQUEAK_DIST_DATA") or not path.exists():
        pytest.skip("SQUEAK_DIST_DATA names no folder with this table")
    target, left_out, bound = SETS[name]
    table = dd.read_parquet(path)
    target = target if target in table.columns else table.columns[-1]
    unused = {target, "test", *left_out}
    frame = table.compute().sample(frac=1, random_state=0).reset_index(drop=True)
    train, test = frame.iloc[: int(0.8 * len(frame))], frame.iloc[int(0.8 * len(frame)) :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnsDropped)
        model = squeak_dist.fit(
            dd.from_pandas(train, npartitions=7), target=target, missing="impute",
            features=[c for c in frame if c not in unused], max_dictionary=400,
        )  # fmt: skip
    predicted = model.predict(dd.from_pandas(test, npartitions=3)).compute()
    assert np.isfinite(predicted).all()
    assert predicted.index.equals(test.index)
    scores = model.evaluate(test)
    assert scores.rows == test[target].notna().sum()
    assert scores.model.r2[0] > bound, scores
