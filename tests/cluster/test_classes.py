"""Classification on worker processes: the bits of a plain loop, and a file sorted by class."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import worker_client

from squeak_dist import SqueakClassifier
from squeak_dist.distributed import class_source, labelled
from squeak_dist.errors import DataError
from squeak_dist.stages import FitParameters, PlainExecutor, fit_tables

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

SETTINGS = {"max_dictionary": 120, "missing": "impute"}
LABELS = np.array(["ash", "birch", "cedar"], dtype=object)


def sorted_by_class(rows=3000, seed=0):
    """Partitions of one class, rows without a label, weights and missing features."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=list("abc"))
    codes = np.digitize(frame["a"] ** 2 + frame["b"] ** 2, [0.8, 2.5])
    frame["tree"] = LABELS[codes]
    frame["w"] = rng.integers(0, 4, size=rows).astype(float)
    frame = frame.iloc[np.argsort(codes, kind="stable")].reset_index(drop=True)
    frame.loc[rng.random(rows) < 0.03, "tree"] = None
    frame.loc[rng.random(rows) < 0.03, "c"] = np.nan
    return dd.from_pandas(frame, npartitions=11)


def bits(model):
    return (
        model.coefficients.tobytes(),
        model.slopes.tobytes(),
        model.dictionary.points.tobytes(),
        model.posterior.tobytes(),
        model.mu,
        model.classes,
    )


@pytest.fixture(scope="module")
def table():
    return sorted_by_class()


@pytest.fixture(scope="module")
def reference(table):
    source, classes, _ = class_source(
        labelled(table, target="tree", sample_weight="w"), "balanced", "impute"
    )
    return fit_tables(
        PlainExecutor(),
        dask.compute(*source.tables, scheduler="sync"),
        source.schema,
        FitParameters(**SETTINGS, classifies=True),
        target_names=source.target_names,
        single_output=source.single_output,
        classes=classes,
    )


def fit(table, **options):
    model = SqueakClassifier(class_weight="balanced", **SETTINGS)
    return model.fit(table, target="tree", sample_weight="w", **options)


@pytest.mark.parametrize("workers", [1, 4])  # two: below
def test_the_same_bits_on_any_number_of_workers(started, table, reference, workers):
    seen = []
    with started(workers) as client:
        model = fit(table, client=client, progress=lambda *event: seen.append(event))
        assert bits(model.model_) == bits(reference)
        assert seen[0][0] == "labels"
        predicted, shares = dask.compute(model.predict(table), model.predict_proba(table))
        assert model.score(table) > 0.85
    assert set(predicted.dropna()) == set(LABELS)
    assert list(shares.columns) == list(LABELS)


def test_inside_a_task_and_its_errors(two_workers, table, reference):
    def inside():
        with worker_client():
            return fit(table).model_

    assert bits(two_workers.submit(inside, pure=False).result()) == bits(reference)
    alone = table[table["tree"] == "ash"]
    with pytest.raises(DataError, match="one class"):
        SqueakClassifier(**SETTINGS).fit(alone, target="tree", client=two_workers)
