"""Bit-equality of every kind of table on every kind of cluster; what moves, what is kept."""

from __future__ import annotations

import itertools
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import worker_client

import squeak_dist
from squeak_dist.distributed import executor, predictions
from squeak_dist.errors import MissingValuesError
from squeak_dist.store import load_dual_weights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]


# --- tables -----------------------------------------------------------------------------------


def messy(rows=4000, seed=0):
    """Numbers, text, a date, missing values, a heavy tail, weights and two targets."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=list("abc"))
    frame["tail"] = rng.standard_t(2, size=rows)
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.uniform(0, 60, rows), "D")
    frame["kind"] = rng.choice(["red", "green", "blue"], size=rows)
    frame["w"] = rng.integers(0, 4, size=rows).astype(float)
    frame["y"] = np.sin(2 * frame["a"]) + (frame["kind"] == "red") * frame["b"]
    frame["z"] = frame["a"] * frame["c"] + 0.1 * rng.normal(size=rows)
    frame.loc[rng.random(rows) < 0.05, "b"] = np.nan
    frame.loc[rng.random(rows) < 0.02, "y"] = np.nan
    return frame


def in_pieces(frame, sizes):
    """A collection whose partitions have these numbers of rows; divisions are unknown."""
    edges = np.cumsum([0, *sizes])
    assert edges[-1] == len(frame)
    pieces = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda i: pieces[i], range(len(pieces)), meta=frame.iloc[:0])


UNEVEN = (0, 500, 100, 0, 900, 50, 450, 300, 1, 199, 700, 0, 300, 250, 250, 0)


@pytest.fixture(scope="module")
def cases():
    """Arguments of a fit, by name: a table in ≥ 9 partitions, and parameters."""
    frame = messy()
    numbers = frame[["a", "c", "tail", "z"]].rename(columns={"z": "y"})
    plain = in_pieces(numbers, UNEVEN)
    X = da.from_array(numbers[["a", "c", "tail"]].to_numpy(), chunks=(400, 2))
    return {
        "float32": ((plain,), {"target": "y", "max_dictionary": 150}),
        "float64": ((plain,), {"target": "y", "max_dictionary": 150, "dtype": "float64"}),
        "everything at once": (
            (in_pieces(frame, UNEVEN),),
            {
                "target": ["y", "z"], "sample_weight": "w", "missing": "impute", "fan_in": 3,
                "kernel": "matern", "approximation": "regularized", "max_dictionary": 120,
            },
        ),
        "iterations": (
            (in_pieces(frame, UNEVEN),),
            {
                "target": "z", "features": ["a", "c"], "sample_weight": "w", "solver": "cg",
                "mu": 0.1, "gamma": 0.5, "random_state": 9, "kernel": "rbf",
                "length_scale": "median",
            },
        ),
        "arrays": (
            (X, numbers["y"].to_numpy()),
            {"kernel": "laplacian", "length_scale": 3.0, "max_dictionary": 100, "qbar": 4},
        ),
        "a stream that stops": (
            (plain,),
            {
                "target": "y", "gamma": 1e-3, "max_dictionary": 100, "on_overrun": "stop",
                "mu": 0.1, "kernel": "rbf", "length_scale": "median",
            },
        ),
    }  # fmt: skip


NAMES = (
    "float32", "float64", "everything at once", "iterations", "arrays", "a stream that stops",
)  # fmt: skip


@pytest.fixture(scope="module")
def references(cases, plain_fit):
    def settings(options):
        renamed = dict(options)
        if "random_state" in renamed:
            renamed["seed"] = renamed.pop("random_state")
        return renamed

    with pytest.warns(squeak_dist.errors.FitStopped):
        return {n: plain_fit(*args, **settings(options)) for n, (args, options) in cases.items()}


def fit(cases, name, **more):
    args, options = cases[name]
    if name != "a stream that stops":
        return squeak_dist.fit(*args, **options, **more)
    with pytest.warns(squeak_dist.errors.FitStopped):
        return squeak_dist.fit(*args, **options, **more)


def test_the_references_are_worth_comparing_with(references):
    """Chains of several steps, merges, and dictionaries that are a part of the rows."""
    for name, model in references.items():
        report = model.report
        assert len(report["partition_rows"]) >= 9, name
        assert 40 < len(model.dictionary) < 0.5 * report["rows_fitted"], name
        assert len(np.unique(model.dictionary.indices)) == len(model.dictionary), name
        if name != "a stream that stops":
            assert report["chains"] == 8
            assert sum(node["level"] > 0 for node in report["merges"]) >= 4
    assert references["iterations"].report["solver"] == "cg"
    assert references["float32"].report["solver"] == "direct"


# --- executors --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_local_schedulers(cases, references, assert_same_bits, name, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=3):
        assert_same_bits(fit(cases, name), references[name])


@pytest.mark.parametrize(
    ("workers", "options"),
    [(1, {}), (2, {}), (4, {}), (1, {"processes": False, "threads_per_worker": 2})],
    ids=["1 process", "2 processes", "4 processes", "2 threads"],
)
def test_clusters(cases, references, assert_same_bits, started, workers, options):
    with started(workers, **options) as client:
        for name in NAMES:
            assert_same_bits(fit(cases, name, client=client), references[name])
        deadline = time.monotonic() + 10
        while client.who_has() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not client.who_has(), "a fit left results on the cluster"


def test_partitions_that_are_not_kept(
    cases, references, assert_same_bits, two_workers, monkeypatch
):
    kept = []

    def persist(handles, *args, **kwargs):
        kept.extend(handle.key for handle in handles if "encode" in handle.key)
        return original(handles, *args, **kwargs)

    original = two_workers.persist
    monkeypatch.setattr(two_workers, "persist", persist)
    assert_same_bits(fit(cases, "float32", client=two_workers), references["float32"])
    assert len(kept) == references["float32"].report["chains"]  # of one step each
    monkeypatch.setattr(executor, "_total_memory", lambda client: 0)
    for name in ("float32", "everything at once", "iterations"):
        kept.clear()
        assert_same_bits(fit(cases, name, client=two_workers), references[name])
        assert not kept


def test_workers_join_and_leave(cases, references, assert_same_bits, started):
    with started(1) as client:
        joined = []

        def grow(stage, done, total):
            if stage == "dictionary" and not joined:
                joined.append(stage)
                client.cluster.scale(3)

        assert_same_bits(
            fit(cases, "float32", client=client, progress=grow), references["float32"]
        )
        assert joined
        client.wait_for_workers(3, timeout=30)
        first = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
        client.retire_workers([first])
        assert_same_bits(fit(cases, "iterations", client=client), references["iterations"])


# --- several fits, and fits inside tasks ------------------------------------------------------


def test_fits_at_once_on_one_client(cases, references, assert_same_bits, two_workers):
    events = {name: [] for name in ("float32", "everything at once", "iterations")}
    models, errors = {}, []

    def run(name):
        try:
            models[name] = fit(
                cases, name, client=two_workers,
                progress=lambda *event: events[name].append(event),
            )  # fmt: skip
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in events]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for name, model in models.items():
        assert_same_bits(model, references[name])
        # The counts of one fit know nothing of the others.
        runs = [list(run) for _, run in itertools.groupby(events[name], key=lambda e: e[0])]
        stages = [run[0][0] for run in runs if run[0][0] != "tuning"]
        assert stages[:3] == ["profile", "dictionary", "solve"]
        for run in runs:
            done, totals = [d for _, d, _ in run], {total for _, _, total in run}
            assert done == sorted(done), run
            assert totals == {done[-1]}


def fit_in_a_task(collection, options):
    with worker_client() as client:
        explicit = squeak_dist.fit(collection, **options, client=client)
    implicit = squeak_dist.fit(collection, **options)
    return explicit, implicit


def test_inside_a_task(cases, references, assert_same_bits, two_workers):
    (collection,), options = cases["float32"]
    for model in two_workers.submit(fit_in_a_task, collection, options).result():
        assert_same_bits(model, references["float32"])


def test_the_current_client_is_found(cases, references, assert_same_bits, two_workers):
    model = fit(cases, "float32")  # no client passed
    assert_same_bits(model, references["float32"])
    workers = {record["worker"] for record in model.report_["merges"]}
    here = squeak_dist.stages.records.worker_name()
    assert here not in workers
    assert workers <= set(two_workers.run(squeak_dist.stages.records.worker_name).values())


def test_an_error_of_a_task_leaves_a_cluster_that_works(
    cases, references, assert_same_bits, two_workers
):
    broken = in_pieces(messy(), UNEVEN)
    for _ in range(3):
        with pytest.raises(MissingValuesError, match="'b'"):
            squeak_dist.fit(broken, target="z", client=two_workers)
    with pytest.raises(ValueError, match="text is no number"):
        squeak_dist.fit(broken.map_partitions(fail, meta=broken), target="z", client=two_workers)
    assert_same_bits(fit(cases, "float32", client=two_workers), references["float32"])


def fail(part):
    raise ValueError("text is no number")


# --- predictions, scores, dual weights --------------------------------------------------------


def test_predictions_and_scores_of_a_cluster(cases, references, two_workers):
    (collection,), _ = cases["everything at once"]
    model = fit(cases, "everything at once", client=two_workers)
    frame = collection.compute(scheduler="sync")
    lazy = model.predict(collection)
    on_cluster = two_workers.compute(lazy).result()
    locally = lazy.compute(scheduler="sync")
    assert on_cluster.index.equals(frame.index)
    assert on_cluster.to_numpy().tobytes() == locally.to_numpy().tobytes()
    np.testing.assert_allclose(on_cluster, model.predict(frame), atol=1e-4)
    scores = model.evaluate(collection, client=two_workers)
    assert scores.rows == frame[["y", "z"]].notna().all(axis=1).sum()
    assert model.evaluate(frame).model.r2 == pytest.approx(scores.model.r2, abs=1e-6)


@pytest.mark.parametrize("chunk_rows", [64, 1000, 10**6])
def test_dual_weights_written_by_workers(cases, two_workers, tmp_path, monkeypatch, chunk_rows):
    """Chunks cut across partitions: each has one writer, none is lost."""
    (collection,), options = cases["float32"]
    options = options | {
        "approximation": "regularized", "mu": 0.5, "dtype": "float64", "linear_part": False,
    }  # fmt: skip
    model = squeak_dist.fit(collection, **options, client=two_workers)
    monkeypatch.setattr(predictions, "_DUAL_CHUNK_ROWS", chunk_rows)
    model.save_dual_weights(tmp_path / "dual.zarr", collection, client=two_workers)
    stored = load_dual_weights(tmp_path / "dual.zarr")[:, 0]
    frame = collection.compute(scheduler="sync")
    assert stored.shape == (4000,)
    # (K̃ + μI)⁻¹ y with the dense matrix of the first rows against all of the dictionary.
    X, _ = model.model_.encoding.encode(frame[["a", "c", "tail"]])
    s = model.dictionary_.column_weights
    inner = s[:, None] * model.kernel_(model.components_, model.components_) * s
    inner += model.gamma_ * np.eye(len(s))
    root = np.linalg.solve(np.linalg.cholesky(inner), (model.kernel_(X, model.components_) * s).T)
    approximated = root.T @ root
    approximated[np.diag_indices_from(approximated)] += 0.5
    expected = np.linalg.solve(approximated, (frame["y"] - frame["y"].mean()).to_numpy())
    np.testing.assert_allclose(stored, expected, rtol=0, atol=1e-7)
