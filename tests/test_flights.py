"""The flights of a year, as messy as they come: one call, no cleaning."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.datasets import flights, holdout
from squeak_dist.errors import ColumnsDropped

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table():
    return flights()


@pytest.fixture(scope="module")
def split(table, tmp_path_factory):
    """Twelve months and an empty thirteenth part in parquet, and a part to test on."""
    train, test = holdout(table, fraction=0.1, seed=0)
    directory = tmp_path_factory.mktemp("flights")
    for month, rows in train.groupby("month"):
        rows.to_parquet(directory / f"part-{month:02d}.parquet")
    train.iloc[:0].to_parquet(directory / "part-13.parquet")
    return directory, train, test


def test_the_table_is_as_messy_as_it_should_be(table):
    assert len(table) > 300_000
    assert table["arr_delay"].isna().any()
    assert table["plane_year"].isna().sum() > 10_000
    assert table["engines"].isna().any()
    texts = [c for c in table if pd.api.types.is_string_dtype(table[c].dtype)]
    assert {"carrier", "tailnum", "origin", "dest", "manufacturer"} <= set(texts)
    assert table["tailnum"].nunique() > 4000
    assert pd.api.types.is_datetime64_any_dtype(table["time_hour"])
    assert table["year"].nunique() == 1


@pytest.mark.parametrize("target", ["arr_delay", "air_time"])
def test_a_fit_of_the_flights(split, target):
    directory, train, test = split
    with pytest.warns(ColumnsDropped, match=r"left out of the fit: 'year' \(constant\)"):
        model = squeak_dist.fit(
            dd.read_parquet(directory), target=target, missing="impute", max_dictionary=400
        )
    report = model.report_
    assert len(report["partition_rows"]) == 13
    assert report["partition_rows"][-1] == 0
    assert report["rows"] == len(train)
    assert report["rows_dropped"] == train[target].isna().sum() > 1000
    assert report["rows_fitted"] == train[target].notna().sum()

    predicted = model.predict(dd.from_pandas(test, npartitions=3)).compute()
    assert predicted.index.equals(test.index)
    assert np.isfinite(predicted).all()
    scores = model.evaluate(test)
    assert scores.rows == test[target].notna().sum()
    assert scores.model.r2[0] > max(0.5, scores.mean.r2[0])


def test_dropping_incomplete_rows(split):
    directory, train, test = split
    features = ["dep_time", "dep_delay", "distance", "carrier", "temp", "wind_speed", "time_hour"]
    model = squeak_dist.fit(
        dd.read_parquet(directory), target="arr_delay", features=features, missing="drop"
    )
    complete = train[[*features, "arr_delay"]].notna().all(axis=1)
    assert model.report_["rows_fitted"] == complete.sum()
    assert model.report_["rows_dropped"] == len(train) - complete.sum()
    predicted = model.predict(test)
    np.testing.assert_array_equal(np.isnan(predicted), test[features].isna().any(axis=1))
    assert model.score(test) > 0.7


def test_levels_that_the_fit_never_saw(split):
    directory, train, test = split
    months = dd.read_parquet([directory / f"part-{m:02d}.parquet" for m in (1, 2)])
    with pytest.warns(ColumnsDropped, match="'year'"):
        model = squeak_dist.fit(months, target="arr_delay", missing="impute", max_dictionary=200)
    unseen = test[~test["dest"].isin(train.loc[train["month"] <= 2, "dest"])]
    assert len(unseen) > 10
    assert np.isfinite(model.predict(unseen)).all()
