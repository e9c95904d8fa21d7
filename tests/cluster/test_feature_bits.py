"""Features and components: the same bits in a plain loop, on threads, and on worker processes."""

from __future__ import annotations

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import worker_client

from squeak_dist import SqueakPCA, SqueakTransformer
from squeak_dist.distributed import read_features
from squeak_dist.errors import MissingValuesError
from squeak_dist.stages import FitParameters, PlainExecutor, fit_components, fit_features

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

UNEVEN = (0, 500, 100, 0, 900, 50, 450, 300, 1, 199, 700, 0, 300, 250, 250, 0)
SETTINGS = {
    "float32": {"max_dictionary": 150},
    "float64": {"max_dictionary": 150, "dtype": "float64", "fan_in": 3},
    "regularized": {"max_dictionary": 100, "approximation": "regularized", "missing": "impute"},
}


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_t(3, size=(4000, 3)), columns=list("abc"))
    frame["kind"] = rng.choice(["red", "green", "blue"], size=4000)
    frame["w"] = rng.integers(0, 4, size=4000).astype(float)
    edges = np.cumsum([0, *UNEVEN])
    pieces = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda i: pieces[i], range(len(pieces)), meta=frame.iloc[:0])


@pytest.fixture(scope="module")
def references(collection):
    source = read_features(collection, sample_weight="w")
    tables = dask.compute(*source.tables, scheduler="sync")
    results = {}
    for name, options in SETTINGS.items():
        parameters = FitParameters(**options)
        results[name] = (
            fit_features(PlainExecutor(), tables, parameters),
            fit_components(PlainExecutor(), tables, parameters, n_components=20),
        )
    return results


def fits(collection, name, **more):
    given = {"sample_weight": "w", **more}
    return (
        SqueakTransformer(**SETTINGS[name]).fit(collection, **given).model_,
        SqueakPCA(20, **SETTINGS[name]).fit(collection, **given).model_,
    )


def assert_same_bits(models, references):
    for model, reference in zip(models, references, strict=True):
        assert type(model) is type(reference)
        for name in ("points", "indices", "probabilities", "multiplicities", "row_weights"):
            ours, theirs = (getattr(m.dictionary, name) for m in (model, reference))
            assert ours.tobytes() == theirs.tobytes(), name
        assert model.dictionary.gamma == reference.dictionary.gamma
        assert model.kernel == reference.kernel
    for name in ("coefficients", "offsets", "eigenvalues"):
        assert getattr(models[1], name).tobytes() == getattr(references[1], name).tobytes(), name
    assert (models[1].total, models[1].divisor) == (references[1].total, references[1].divisor)


def test_the_references_are_worth_comparing_with(references):
    for features, components in references.values():
        assert features.report["chains"] == 8
        assert 40 < len(features.dictionary) < 200
        assert components.eigenvalues.shape == (20,)
        assert components.dictionary.points.tobytes() == features.dictionary.points.tobytes()


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("name", SETTINGS)
def test_local_schedulers(collection, references, name, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=3):
        assert_same_bits(fits(collection, name), references[name])


@pytest.mark.parametrize(("workers", "names"), [(1, ["float32"]), (2, list(SETTINGS))])
def test_clusters(collection, references, started, workers, names):
    with started(workers) as client:
        for name in names:
            assert_same_bits(fits(collection, name, client=client), references[name])


def fit_in_a_task(collection):
    with worker_client():
        return fits(collection, "float32")


def test_lazy_features_of_a_cluster(collection, references, two_workers):
    frame = collection.compute(scheduler="sync")
    for estimator in (SqueakTransformer(max_dictionary=150), SqueakPCA(20, max_dictionary=150)):
        model = estimator.fit(collection, sample_weight="w", client=two_workers)
        lazy = model.transform(collection)
        on_cluster = two_workers.compute(lazy).result()
        assert on_cluster.index.equals(frame.index)
        locally = lazy.compute(scheduler="sync")
        assert on_cluster.to_numpy().tobytes() == locally.to_numpy().tobytes()
        # A whole table at once has other products than its partitions: not the same bits.
        np.testing.assert_allclose(on_cluster, model.transform(frame), rtol=0, atol=1e-6)
        assert on_cluster.dtypes.eq(np.float32).all()


def test_inside_a_task(collection, references, two_workers):
    models = two_workers.submit(fit_in_a_task, collection).result()
    assert_same_bits(models, references["float32"])


def test_progress_counts_every_stage(collection, two_workers):
    events = []
    SqueakPCA(3, max_dictionary=50).fit(
        collection, sample_weight="w", client=two_workers, progress=lambda *e: events.append(e)
    )
    stages = list(dict.fromkeys(stage for stage, _, _ in events))
    assert stages == ["profile", "tuning", "dictionary", "solve"]
    assert all(done <= total for _, done, total in events)


def test_an_error_of_a_task(collection, two_workers):
    broken = collection.assign(a=collection["a"].where(collection["a"] > -1))
    with pytest.raises(MissingValuesError, match="'a'"):
        SqueakTransformer().fit(broken, sample_weight="w", client=two_workers)
