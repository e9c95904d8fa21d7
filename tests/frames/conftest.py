"""Real tables, small, and how each test fits them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import squeak_dist

DATA = Path(__file__).parent.parent / "data"
TARGET = "median_house_value"
QUICK = {"max_dictionary": 60, "missing": "impute"}


def values_of(predicted: Any) -> np.ndarray:
    """Predictions of any kind as one array."""
    predicted = predicted.compute() if hasattr(predicted, "compute") else predicted
    return np.asarray(predicted)


@pytest.fixture(scope="session")
def california() -> pd.DataFrame:
    return pd.read_parquet(DATA / "california.parquet")


@pytest.fixture(scope="session")
def numbers(california: pd.DataFrame) -> pd.DataFrame:
    """Its complete rows without the text."""
    return california.drop(columns="ocean_proximity").dropna().reset_index(drop=True)


@pytest.fixture(scope="session")
def houses() -> pd.DataFrame:
    return pd.read_parquet(DATA / "kc_house.parquet")


@pytest.fixture(scope="session")
def reference(california: pd.DataFrame) -> Any:
    """The fit of the whole table in pandas, that others are compared with."""
    return squeak_dist.fit(california, target=TARGET, **QUICK)


@pytest.fixture
def round_trip() -> Any:
    """Fit, predict and evaluate one collection; finite predictions, better than the mean."""

    def run(X: Any, y: Any = None, *, quiet: bool = True, **options: Any) -> Any:
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", squeak_dist.errors.ColumnsDropped)
            model = squeak_dist.fit(X, y, **(QUICK | options))
        predicted = values_of(model.predict(X))
        assert np.isfinite(predicted).all()
        assert len(predicted.ravel()) == model.report_["rows"]
        scores = model.evaluate(X, y)
        assert scores.rows == model.report_["rows_fitted"]
        assert scores.model.r2[0] > 0.4
        return model

    return run
