"""Models that are fitted once for all tests of the report."""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import squeak_dist

TARGET = "median_house_value"


@pytest.fixture(scope="session")
def houses():
    """California's housing blocks: longitude and latitude, text, missing values."""
    return pd.read_parquet(Path(__file__).parents[1] / "data" / "california.parquet")


@pytest.fixture(scope="session")
def train(houses):
    return houses.iloc[:1200]


@pytest.fixture(scope="session")
def test(houses):
    return houses.iloc[1200:]


@pytest.fixture(scope="session")
def model(train):
    lazy = dd.from_pandas(train, npartitions=10)
    return squeak_dist.fit(lazy, target=TARGET, missing="impute", max_dictionary=120)


@pytest.fixture(scope="session")
def classifier(train):
    return squeak_dist.SqueakClassifier(missing="impute", max_dictionary=120).fit(
        train, target="ocean_proximity"
    )
