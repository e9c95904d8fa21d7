"""Dask frames and pandas ones, however they are cut, indexed and named."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.distributed import read_source
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    DataError,
    InsufficientMemoryError,
    LengthMismatchError,
    MissingColumnsError,
    UnknownParameterError,
)

TARGET = "median_house_value"
QUICK = {"max_dictionary": 60, "missing": "impute"}


def fit(*args, **options):
    return squeak_dist.fit(*args, **(QUICK | options))


def cut(frame, edges):
    """A Dask frame of the rows between edges; equal edges make an empty partition."""
    edges = [0, *edges, len(frame)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda part: part, parts, meta=frame.iloc[:0])


def restarted(frame, npartitions):
    """As files have it: unknown divisions, labels from 0 in each partition."""
    parts = dd.from_pandas(frame, npartitions=npartitions)
    return parts.map_partitions(lambda part: part.reset_index(drop=True)).clear_divisions()


# --- cuts -------------------------------------------------------------------------------------

CUTS = {
    "known": lambda f, _: dd.from_pandas(f, npartitions=4),
    "unknown": lambda f, _: dd.from_pandas(f, npartitions=4).clear_divisions(),
    "persisted": lambda f, _: dd.from_pandas(f, npartitions=4).persist(),
    "empty first": lambda f, _: cut(f, [0, 700]),
    "empty middle": lambda f, _: cut(f, [700, 700, 1100]),
    "empty last": lambda f, _: cut(f, [700, 1500]),
    "one row each": lambda f, _: cut(f, [1, 2, 3, 4]),
    "labels start again": lambda f, _: restarted(f, 3),
    "labels repeat": lambda f, _: dd.from_pandas(f.set_axis(np.arange(1500) // 2), npartitions=3),
    "one label": lambda f, _: cut(f.set_axis([7] * 1500), [600]),
    "text index": lambda f, _: dd.from_pandas(f.set_axis(f.index.map("r{:05}".format)), 3),
    "two levels": lambda f, _: cut(f.set_index([f.index // 9, f.index % 9]), [500]),
    "csv": lambda f, tmp: csv(f, tmp),
    "parquet": lambda f, tmp: parquet(f, tmp),
}  # fmt: skip


def csv(frame, place):
    frame.to_csv(place / "rows.csv", index=False)
    return dd.read_csv(place / "rows.csv", blocksize=20_000)


def parquet(frame, place):
    dd.from_pandas(frame, npartitions=3).to_parquet(place / "rows")
    return str(place / "rows")


@pytest.mark.parametrize("make", CUTS.values(), ids=CUTS)
def test_every_cut_of_a_table(california, reference, round_trip, tmp_path, make):
    table = make(california, tmp_path)
    model = round_trip(table, target=TARGET)
    assert model.report_["rows"] == len(california)
    assert model.report_["rows_fitted"] == len(california)
    predicted = reference.predict(table).compute()
    np.testing.assert_allclose(predicted, reference.predict(california), rtol=1e-4)
    given = dd.read_parquet(table) if isinstance(table, str) else table
    assert predicted.index.equals(given.compute().index)


def test_a_file_whose_range_of_labels_has_a_name(california, reference, tmp_path):
    """Which Dask would look for among the columns, and raise a KeyError in its tasks."""
    california.rename_axis("id").to_parquet(tmp_path / "rows.parquet")
    for place in (tmp_path / "rows.parquet", tmp_path, tmp_path / "*.parquet"):
        model = fit(str(place), target=TARGET)
        predicted = model.predict(str(place)).compute()
        np.testing.assert_array_equal(predicted, reference.predict(california))


def test_one_giant_partition_with_fifty_tiny_ones(california):
    """The giant one passes in blocks: what a task holds beside its rows does not grow."""
    many = pd.concat([california] * 40, ignore_index=True).sample(frac=1, random_state=0)
    table = cut(many, list(range(10, 260, 10)) + list(range(59_750, 60_000, 10)))
    model = fit(table, target=TARGET)
    rows = model.report_["partition_rows"]
    assert len(rows) == 51
    assert max(rows) == 59_500
    assert sorted(rows)[-2] == 10
    assert model.score(table) > 0.6
    assert len(model.dictionary_) <= 60


def test_a_giant_partition_that_does_not_fit_is_named(california, monkeypatch):
    table = cut(california, [*range(10, 110, 10), *range(1400, 1500, 10)])
    memory = SimpleNamespace(available=2 << 20, total=2 << 20)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    with pytest.raises(
        InsufficientMemoryError, match=r"partition 10, counted from 0.*repartition"
    ):
        fit(table, target=TARGET)


def test_arrays_cut_along_columns_or_of_unknown_lengths(numbers):
    X, y = numbers.drop(columns=TARGET).to_numpy(), numbers[TARGET].to_numpy()
    whole = fit(da.from_array(X, chunks=(500, -1)), y)
    by_column = da.from_array(X, chunks=(500, 3))
    np.testing.assert_array_equal(fit(by_column, y).dual_coef_, whole.dual_coef_)
    np.testing.assert_allclose(whole.predict(by_column).compute(), whole.predict(X), rtol=1e-4)
    unknown, unknown_y = (
        a[da.from_array(y > 0, chunks=500)] for a in (by_column, da.from_array(y, chunks=500))
    )
    assert np.isnan(unknown.shape[0])
    model = fit(unknown, unknown_y)
    assert model.report_["rows"] == len(y)
    assert model.predict(unknown).compute().shape == y.shape
    assert model.evaluate(unknown, unknown_y).rows == len(y)
    with pytest.raises(LengthMismatchError, match=r"a chunk of X has .* its chunk of y has"):
        fit(by_column.rechunk((600, -1)), dd.from_pandas(numbers[TARGET], npartitions=3))


# --- X and y from different collections --------------------------------------------------------


def test_another_collection_is_joined_by_its_labels(numbers):
    X, y = numbers.drop(columns=TARGET), numbers[TARGET]
    expected = fit(dd.from_pandas(numbers, npartitions=4), target=TARGET).score(numbers)
    for known in (True, False):
        left = dd.from_pandas(X, npartitions=4)
        right = dd.from_pandas(y.sample(frac=1, random_state=0).sort_index(), npartitions=3)
        if not known:
            left, right = left.clear_divisions(), right.clear_divisions()
        model = fit(left, right, sample_weight=right * 0 + 1)
        assert model.report_["rows"] == len(numbers)
        assert model.score(numbers) == pytest.approx(expected, abs=0.03)
    twice = pd.concat([numbers, numbers]).sort_index()
    doubled = fit(
        dd.from_pandas(twice.drop(columns=TARGET), npartitions=4),
        dd.from_pandas(twice[TARGET], npartitions=3),
    )  # the same labels in the same order: no doubt which row is which
    assert doubled.report_["rows"] == len(twice)


def lying(frame, npartitions):
    """Divisions that a reset_index inside of map_partitions made wrong."""
    parts = dd.from_pandas(frame, npartitions=npartitions)
    return parts.map_partitions(lambda part: part.reset_index(drop=True))


def in_pairs(frame):
    return dd.from_pandas(frame.set_axis(frame.index // 2), npartitions=3)


@pytest.mark.parametrize(
    ("message", "X", "y"),
    [
        (
            "index of (X|y) is not where its divisions say.*rows would be lost",
            lambda f: lying(f, 4),
            lambda f: lying(f, 3),
        ),
        (
            "index of y is not where its divisions say",
            lambda f: dd.from_pandas(f, npartitions=4),
            lambda f: lying(f, 3),
        ),
        ("y repeats labels", lambda f: restarted(f, 4), lambda f: restarted(f, 3)),
        (
            "a partition of y has .* rows, but its partition of X has",
            lambda f: cut(f, [400, 800]).map_partitions(lambda p: p.reset_index(drop=True)),
            lambda f: cut(f, [700, 1100]).map_partitions(lambda p: p.reset_index(drop=True)),
        ),
        (
            "y repeats labels",
            lambda f: in_pairs(f).query("households > 300"),
            lambda f: in_pairs(f),
        ),
        (
            "divisions of some are known, of others not",
            lambda f: dd.from_pandas(f, npartitions=3),
            lambda f: dd.from_pandas(f, npartitions=3).clear_divisions(),
        ),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_told_apart_are_refused(numbers, message, X, y):
    """Never a fit of other rows, or of some of them, in silence."""
    with pytest.raises(DataError, match=message):
        fit(X(numbers).drop(columns=TARGET), y(numbers)[TARGET])


# --- names ------------------------------------------------------------------------------------

NAMES = {
    "integers": lambda columns: list(range(len(columns))),
    "floats": lambda columns: [i + 0.5 for i in range(len(columns))],
    "tuples": lambda columns: pd.MultiIndex.from_tuples([("a", c) for c in columns]),
    "mixed": lambda columns: [1, None, ("x", 2), *columns[3:]],
    "dates": lambda columns: list(pd.date_range("2024", periods=len(columns))),
    "odd": lambda columns: ["", " ", "__weight__x", "é∂\n", *columns[4:]],
}


@pytest.mark.parametrize("make", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("lazy", [False, True], ids=["pandas", "dask"])
def test_names_of_any_kind(numbers, round_trip, make, lazy):
    named = numbers.set_axis(make(list(numbers.columns)), axis=1)
    target = named.columns[-1]
    table = dd.from_pandas(named, npartitions=3) if lazy else named
    model = round_trip(table, target=target)
    backwards = named[list(named.columns[::-1])].assign(extra="unneeded")
    np.testing.assert_allclose(model.predict(backwards), model.predict(named), rtol=1e-6)
    first = named.columns[0]
    with pytest.raises(MissingColumnsError, match="missing column"):
        model.predict(named.drop(columns=[first]))


def test_names_that_stand_twice_are_refused(numbers):
    twice = numbers.rename(columns={"households": "population"})
    for table in (twice, dd.from_pandas(twice, npartitions=2)):
        with pytest.raises(DataError, match="more than once: 'population'"):
            fit(table, target=TARGET)
        unneeded = fit(table, target=TARGET, features=["longitude", "latitude"])
        assert np.isfinite(unneeded.score(table))


# --- columns that were left out ---------------------------------------------------------------


@pytest.fixture(scope="module")
def with_useless(california):
    return california.assign(
        constant=1.0, name=[f"block {i}" for i in range(1500)], void=np.nan, nothing=None
    )


@pytest.mark.parametrize("missing", ["impute", "drop"])
@pytest.mark.parametrize("lazy", [False, True], ids=["pandas", "dask"])
def test_columns_left_out_are_not_asked_for(california, with_useless, missing, lazy):
    def as_given(frame):
        return dd.from_pandas(frame, npartitions=3) if lazy else frame

    with pytest.warns(ColumnsDropped) as caught:
        model = fit(as_given(with_useless), target=TARGET, missing=missing)
    (warning,) = caught
    for name in ("constant", "name", "void", "nothing"):
        assert f"'{name}'" in str(warning.message)
    complete = california.notna().all(axis=1)
    dropped = 0 if missing == "impute" else int((~complete).sum())
    assert model.report_["rows_dropped"] == dropped
    predicted = np.asarray(model.predict(as_given(california)))
    np.testing.assert_array_equal(np.isnan(predicted), ~complete if dropped else complete & False)
    expected = fit(as_given(california), target=TARGET, missing=missing)
    np.testing.assert_array_equal(predicted, np.asarray(expected.predict(as_given(california))))
    assert model.evaluate(as_given(california)).rows == 1500 - dropped
    assert not {"constant", "name", "void"} & set(model.model_.encoding.feature_names)
    assert list(model.feature_names_in_) == [c for c in with_useless if c != TARGET]


@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_missing_values_are_counted_in_the_report(california, missing):
    holed = california.assign(**{TARGET: california[TARGET].where(np.arange(1500) % 100 > 0)})
    expected = {k: int(n) for k, n in california.isna().sum().items() if n}
    kept = holed.dropna(subset=[TARGET] if missing == "impute" else None)
    assert "total_bedrooms" in expected
    for table in (holed, cut(holed, [400, 400, 900])):
        report = fit(table, target=TARGET, missing=missing).report_
        assert report["missing"] == expected
        assert report["missing_targets"] == [15]
        assert report["rows_dropped"] == len(holed) - len(kept)


def test_a_fit_that_drops_rows_counts_what_it_uses(california):
    """A constant with holes costs no rows; a hole in a column that is used does."""
    holed = california.assign(flag=np.where(np.arange(1500) % 3, 1.0, np.nan))
    with pytest.warns(ColumnsDropped, match=r"'flag' \(constant\)"):
        model = fit(holed, target=TARGET, missing="drop")
    assert model.report_["rows_dropped"] == california.total_bedrooms.isna().sum()
    assert model.evaluate(holed).rows == model.report_["rows_fitted"]
    with pytest.raises(DataError, match=r"1500 of 1500 were dropped, missing 'half' .*'other'"):
        fit(
            california[["population", TARGET]].assign(
                half=np.where(np.arange(1500) % 2, np.arange(1500), np.nan),
                other=np.where(np.arange(1500) % 2, np.nan, np.arange(1500)),
            ),
            target=TARGET,
            missing="drop",
        )


def test_arrays_keep_their_width(numbers):
    X, y = numbers.drop(columns=TARGET).to_numpy(), numbers[TARGET].to_numpy()
    with pytest.warns(ColumnsDropped, match=r"'x2' \(constant\)"):
        model = fit(np.insert(X, 2, 7.0, axis=1), y)
    assert model.n_features_in_ == 9
    wide = np.insert(X, 2, np.nan, axis=1)  # what stands in a column that is not used
    np.testing.assert_array_equal(model.predict(wide), fit(X, y).predict(X))
    with pytest.raises(DataError, match="X has 8 features"):
        model.predict(X)


# --- clear words ------------------------------------------------------------------------------

GONE_WRONG = [
    (UnknownParameterError, "'gama'; did you mean 'gamma'", lambda f: fit(f, TARGET, gama=1)),
    (UnknownParameterError, "'alpha'; did you mean 'mu'", lambda f: fit(f, TARGET, alpha=1)),
    (UnknownParameterError, "'traget'; did you mean 'target'", lambda f: fit(f, traget=TARGET)),
    (UnknownParameterError, "'qqq'; there are X, .*target", lambda f: fit(f, qqq=TARGET)),
    (ValueError, r"X is a tuple of 2 things.*fit\(X, y\)", lambda f: fit((f, f[TARGET]))),
    (ValueError, f"to name a column of X, pass target='{TARGET}'", lambda f: fit(f, TARGET)),
    (ColumnTypeError, "X is a NoneType; expected a table", lambda f: fit(None, target=TARGET)),
    (ColumnTypeError, "X is a generator", lambda f: fit((x for x in [1]), f[TARGET])),
    (DataError, "read_csv", lambda f: fit(__file__, target=TARGET)),
]


@pytest.mark.parametrize(("error", "message", "call"), GONE_WRONG)
def test_a_call_gone_wrong_says_how_it_is_done(numbers, error, message, call):
    with pytest.raises(error, match=message) as caught:
        call(numbers)
    assert isinstance(caught.value, squeak_dist.errors.SqueakError)


def test_a_graph_holds_no_more_than_the_rows(numbers):
    """The partitions of a table in memory are in the graph once."""
    source = read_source(pd.concat([numbers] * 200), target=TARGET)
    sizes = [dask.sizeof.sizeof(dict(table.dask)) for table in source.tables]
    whole = numbers.memory_usage(index=False).sum() * 200
    assert sum(sizes) < 1.5 * whole
