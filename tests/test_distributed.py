"""What a user may pass, and lazy predictions and scores, on local threads."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import is_dask_collection
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score, root_mean_squared_error

import squeak_dist
from squeak_dist.distributed import DaskExecutor, predictions, read_source
from squeak_dist.distributed.calls import as_delayed
from squeak_dist.errors import (
    ColumnTypeError,
    DataError,
    EmptyDataError,
    InsufficientMemoryError,
    LengthMismatchError,
    MissingColumnsError,
    MissingValuesError,
    SqueakError,
    StoreError,
)
from squeak_dist.store import load_dual_weights

FEATURES = ["a", "b", "c"]
ROWS = 600
SETTINGS = {"max_dictionary": 150, "mu": 0.01}


def made(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=FEATURES)
    noise = 0.05 * rng.normal(size=n)
    return frame.assign(y=np.sin(2 * frame["a"]) + frame["b"] * frame["c"] + noise)


@pytest.fixture(scope="module")
def frame():
    return made()


@pytest.fixture(scope="module")
def test_frame():
    return made(200, seed=1)


def fit(*args, **options):
    return squeak_dist.fit(*args, **(SETTINGS | options))


def bits(model):
    dictionary = model.dictionary_
    return (
        dictionary.points.tobytes(),
        dictionary.indices.tobytes(),
        dictionary.probabilities.tobytes(),
        model.dual_coef_.tobytes(),
    )


@pytest.fixture(scope="module")
def reference(frame):
    """Fitted to one partition in memory."""
    return fit(frame, target="y")


@pytest.fixture(scope="module")
def in_six(frame):
    """Fitted to six partitions of 100 rows."""
    return fit(dd.from_pandas(frame, npartitions=6), target="y")


def collection_of(pieces):
    """A Dask DataFrame with these frames as its partitions."""
    return dd.from_map(lambda i: pieces[i], range(len(pieces)), meta=pieces[0].iloc[:0])


def explode(part):
    raise AssertionError("a task ran that should not have been submitted")


def untouchable(meta, npartitions=3):
    """A Dask DataFrame whose partitions must never be made."""
    return dd.from_map(explode, range(npartitions), meta=meta.iloc[:0])


# --- what may be passed: the same rows give the same bits -------------------------------------


@pytest.mark.parametrize(
    "pass_it",
    [
        lambda f: fit(f, target="y"),
        lambda f: fit(f[FEATURES], f["y"]),
        lambda f: fit(f[FEATURES], f["y"].to_numpy()),
        lambda f: fit(f[FEATURES], f["y"].tolist()),
        lambda f: fit(f.assign(text="x"), target="y", features=FEATURES),
        lambda f: fit(f[["y", *FEATURES]], target="y"),
        lambda f: fit(f[FEATURES].to_numpy(), f["y"].to_numpy()),
        lambda f: fit(f[FEATURES].to_numpy().tolist(), f["y"].tolist()),
        lambda f: fit(np.asfortranarray(f[FEATURES]), f["y"]),
        lambda f: fit(f.convert_dtypes(), target="y"),
        lambda f: fit(f.astype("float64[pyarrow]"), target="y"),
        lambda f: fit(f, target="y", sample_weight=np.ones(len(f))),
        lambda f: fit(f.set_index(np.arange(len(f))[::-1]), target="y"),
        lambda f: fit(dd.from_pandas(f, npartitions=1), target="y"),
        lambda f: fit(da.from_array(f[FEATURES].to_numpy(), chunks=-1), f["y"].to_numpy()),
    ],
    ids=[
        "pandas and a name", "pandas and Series", "pandas and array", "pandas and list",
        "features by name", "columns in another order", "numpy", "lists", "fortran order",
        "nullable dtypes", "pyarrow dtypes", "weights of one", "another index",
        "one Dask partition", "one Dask chunk",
    ],
)  # fmt: skip
def test_one_partition(frame, reference, pass_it):
    assert bits(pass_it(frame)) == bits(reference)


def dask_frame(f, known=True):
    collection = dd.from_pandas(f, npartitions=6)
    return collection if known else collection.clear_divisions()


def dask_arrays(f, chunks=100):
    X = da.from_array(f[FEATURES].to_numpy(), chunks=chunks)
    return X, da.from_array(f["y"].to_numpy(), chunks=100)


def masked(f):
    """Dask arrays whose lengths nobody knows."""
    X, y = dask_arrays(f)
    everything = X[:, 0] < np.inf
    return X[everything], y[everything]


@pytest.mark.parametrize(
    "pass_it",
    [
        lambda f: fit(dask_frame(f), target="y"),
        lambda f: fit(dask_frame(f, known=False), target="y"),
        lambda f: fit(dask_frame(f)[FEATURES], dask_frame(f)["y"]),
        lambda f: fit(dask_frame(f, known=False)[FEATURES], dask_frame(f, known=False)["y"]),
        lambda f: fit(dask_frame(f)[FEATURES], dask_frame(f)[["y"]]["y"]),
        lambda f: fit(dask_frame(f)[["y", *reversed(FEATURES)]], target="y", features=FEATURES),
        lambda f: fit(dask_frame(f.assign(w=1.0)), target="y", sample_weight="w"),
        lambda f: fit(dask_frame(f), target="y", sample_weight=dask_frame(f)["a"] * 0 + 1),
        lambda f: fit(dask_frame(f).persist(), target="y"),
        lambda f: fit(*dask_arrays(f)),
        lambda f: fit(*dask_arrays(f, chunks=(100, 2))),
        lambda f: fit(dask_arrays(f)[0], f["y"].to_numpy()),
        lambda f: fit(dask_arrays(f)[0], f["y"].tolist()),
        lambda f: fit(dask_arrays(f)[0], dask_arrays(f)[1].rechunk(77)),
        lambda f: fit(*masked(f)),
        lambda f: fit(dask_arrays(f)[0], dask_frame(f)["y"]),
        lambda f: fit(*dask_arrays(f), sample_weight=np.ones(ROWS)),
        lambda f: fit(*dask_arrays(f), sample_weight=da.ones(ROWS, chunks=50)),
    ],
    ids=[
        "known divisions", "unknown divisions", "X and y", "X and y of unknown divisions",
        "y from another frame", "columns in another order", "weights by name",
        "weights as a Series", "persisted", "arrays", "chunks along columns", "numpy y",
        "list y", "unequal chunks", "unknown lengths", "y a Series", "numpy weights",
        "Dask weights",
    ],
)  # fmt: skip
def test_six_partitions(frame, in_six, pass_it):
    assert bits(pass_it(frame)) == bits(in_six)


@pytest.mark.parametrize("known", [True, False])
def test_a_target_cut_at_other_places(frame, known):
    X, y = dask_frame(frame)[FEATURES], dd.from_pandas(frame["y"], npartitions=4)
    if not known:
        X, y = X.clear_divisions(), y.clear_divisions()
    model = fit(X, y)
    assert model.report_["rows_fitted"] == ROWS
    assert model.score(frame) > 0.9


def test_parquet(frame, in_six, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for i in range(6):
        frame.iloc[100 * i : 100 * (i + 1)].to_parquet(data / f"part-{i}.parquet")
    (tmp_path / "whole.parquet").write_bytes(b"")
    frame.to_parquet(tmp_path / "whole.parquet")
    opened = dd.read_parquet(data)
    assert not opened.known_divisions
    for source in (data, str(data), str(data / "part-*.parquet"), f"file://{data}", opened):
        assert bits(fit(source, target="y")) == bits(in_six)
    whole = fit(tmp_path / "whole.parquet", target="y")
    assert whole.report_["rows"] == ROWS
    from_path = whole.predict(str(data))
    assert isinstance(from_path, dd.Series)
    np.testing.assert_array_equal(from_path.compute(), whole.predict(opened).compute())
    assert whole.evaluate(str(data)).rows == ROWS


def test_nothing_at_a_path(tmp_path):
    with pytest.raises(DataError, match=r"nothing found .*no-such.*parquet"):
        fit(tmp_path / "no-such", target="y")
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"cannot read .*text\.parquet.*as parquet"):
        fit(tmp_path / "text.parquet", target="y")


@pytest.mark.parametrize("place", ["first", "middle", "last", "everywhere"])
def test_empty_partitions(frame, place):
    pieces = [frame.iloc[100 * i : 100 * (i + 1)] for i in range(6)]
    positions = {"first": [0], "middle": [3], "last": [6], "everywhere": [0, 0, 4, 4, 8]}[place]
    for position in positions:
        pieces.insert(position, frame.iloc[:0])
    model = fit(collection_of(pieces), target="y")
    assert model.report_["rows_fitted"] == ROWS
    assert model.report_["rows_in_dictionary_pass"] == ROWS
    assert model.report_["partition_rows"] == [len(piece) for piece in pieces]
    indices = model.component_indices_
    encoded, _ = model.model_.encoding.encode(frame[FEATURES].iloc[indices])
    assert encoded.tobytes() == model.components_.tobytes()
    lazy = model.predict(collection_of(pieces))
    np.testing.assert_allclose(lazy.compute(), model.predict(frame), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "empty", [lambda f: f[f["a"] > 1e9], lambda f: f.map_partitions(lambda part: part.iloc[:0])]
)
def test_all_empty(frame, empty):
    collection = dask_frame(frame)
    with pytest.raises(EmptyDataError, match="no rows"):
        fit(empty(collection), target="y")


def test_filters_of_dask_stay_whole(frame):
    """Filters and projections are pushed into the source: rows and columns must still match."""
    collection = dask_frame(frame)
    positive = collection[collection["a"] > 0]
    model = fit(positive[FEATURES], positive["y"])
    direct = fit(positive, target="y")
    assert bits(model) == bits(direct)
    assert model.report_["rows_fitted"] == int((frame["a"] > 0).sum())


def test_several_targets(frame, test_frame):
    both = frame.assign(z=frame["a"] * 2)
    model = fit(dask_frame(both), target=["y", "z"], features=FEATURES)
    lazy = model.predict(dask_frame(test_frame))
    assert isinstance(lazy, dd.DataFrame)
    assert list(lazy.columns) == ["y", "z"]
    computed = lazy.compute()
    assert list(computed.dtypes) == [np.float64, np.float64]
    assert computed.index.equals(test_frame.index)
    in_memory = model.predict(test_frame)
    assert in_memory.shape == (200, 2)
    np.testing.assert_allclose(computed, in_memory, rtol=0, atol=1e-5)
    assert np.sqrt(np.mean((in_memory[:, 1] - 2 * test_frame["a"]) ** 2)) < 0.2
    one = fit(frame, target=["y"])
    assert one.predict(test_frame).shape == (200, 1)
    assert fit(frame, target="y").predict(test_frame).shape == (200,)
    arrays = fit(frame[FEATURES].to_numpy(), both[["y", "z"]].to_numpy())
    lazy = arrays.predict(da.from_array(test_frame[FEATURES].to_numpy(), chunks=(70, 2)))
    assert lazy.shape == (200, 2)
    np.testing.assert_allclose(
        lazy.compute(), arrays.predict(test_frame[FEATURES]), rtol=0, atol=1e-5
    )


def test_the_index_aligns_x_and_y_of_dask(frame):
    with pytest.raises(DataError):
        fit(dask_frame(frame)[FEATURES], dask_frame(frame.set_index(frame.index + 5000))["y"])


@pytest.mark.parametrize(
    ("pass_it", "error", "message"),
    [
        (lambda d, f: fit(d[FEATURES], f["y"].to_numpy()), ColumnTypeError, "y is ndarray"),
        (lambda d, f: fit(d[FEATURES], f["y"]), ColumnTypeError, "y is Series"),
        (lambda d, f: fit(f[FEATURES], d["y"]), ColumnTypeError, "Dask collection; compute y"),
        (
            lambda d, f: fit(d, target="y", sample_weight=np.ones(ROWS)),
            ColumnTypeError,
            "sample_weight must be a column name or a Dask Series",
        ),
        (
            lambda d, f: fit(masked(f)[0], f["y"].to_numpy()),
            ColumnTypeError,
            r"unknown length.*compute_chunk_sizes",
        ),
        (
            lambda d, f: fit(masked(f)[0], dask_arrays(f)[1].rechunk(200)),
            LengthMismatchError,
            r"6 chunks of unknown length.*has 3",
        ),
        (
            lambda d, f: fit(dask_arrays(f)[0], dask_arrays(f)[1][:-1]),
            LengthMismatchError,
            "X has 600 rows, but y has 599",
        ),
        (lambda d, f: fit(dask_arrays(f)[0][:, 0], dask_arrays(f)[1]), DataError, "2D array"),
        (
            lambda d, f: fit(dask_arrays(f)[0], da.ones((ROWS, 1, 1))),
            DataError,
            r"\(n,\) or \(n, outputs\), got 3D",
        ),
        (lambda d, f: fit(*dask_arrays(f), sample_weight="w"), SqueakError, "sample_weight"),
        (lambda d, f: fit(dask_arrays(f)[0], 3.0), SqueakError, "y has a scalar"),
    ],
)
def test_collections_that_do_not_go_together(frame, pass_it, error, message):
    with pytest.raises(error, match=message):
        pass_it(dask_frame(frame), frame)


# --- predictions ------------------------------------------------------------------------------


def test_predictions_are_lazy(reference, frame):
    lazy = reference.predict(untouchable(frame))
    assert is_dask_collection(lazy)
    assert lazy.name == "y"
    assert lazy.dtype == np.float64
    with pytest.raises(AssertionError, match="a task ran"):
        lazy.compute(scheduler="sync")
    from_array = fit(frame[FEATURES].to_numpy(), frame["y"])
    blocks = da.map_blocks(explode, chunks=((50, 50), (3,)), dtype=float, meta=np.empty((0, 0)))
    assert is_dask_collection(from_array.predict(blocks))


def test_the_same_numbers_whichever_way(reference, test_frame):
    expected = reference.predict(test_frame)
    assert type(expected) is np.ndarray
    X = test_frame[FEATURES].to_numpy()
    ways = {
        "array": reference.predict(X),
        "list": reference.predict(X.tolist()),
        "frame": reference.predict(test_frame[["c", "y", "b", "a"]].assign(extra="text")),
        "dask": reference.predict(dd.from_pandas(test_frame, npartitions=7)).compute(),
        "unknown": reference.predict(
            dd.from_pandas(test_frame, npartitions=3).clear_divisions()
        ).compute(),
        "dask array": reference.predict(da.from_array(X, chunks=(33, 2))).compute(),
        "one by one": np.concatenate([reference.predict(X[i : i + 1]) for i in range(20)]),
    }
    for way, predictions_ in ways.items():
        tolerance = 1e-5 * np.std(expected)  # blocks of other sizes round differently
        np.testing.assert_allclose(
            np.asarray(predictions_), expected[: len(predictions_)], atol=tolerance, err_msg=way
        )
    assert ways["array"].tobytes() == expected.tobytes()
    assert ways["frame"].tobytes() == expected.tobytes()


def test_a_model_of_arrays_takes_frames_by_position(frame, test_frame):
    model = fit(frame[FEATURES].to_numpy(), frame["y"].to_numpy())
    X = test_frame[FEATURES]
    expected = model.predict(X.to_numpy())
    np.testing.assert_array_equal(model.predict(X.rename(columns=str.upper)), expected)
    lazy = model.predict(da.from_array(X.to_numpy(), chunks=(64, 1)))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (200,)
    assert lazy.chunks == ((64, 64, 64, 8),)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-5)
    unknown = da.from_array(X.to_numpy(), chunks=(64, 3))
    unknown = unknown[unknown[:, 0] > 0]
    computed = model.predict(unknown).compute()
    np.testing.assert_allclose(computed, expected[X["a"] > 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(np.repeat(["u", "v"], 100), name="letter"),
        pd.date_range("2026-01-01", periods=200, name="when"),
        pd.Index(np.arange(200) * 3),
    ],
    ids=["duplicated", "dates", "numbers"],
)
def test_the_index_is_kept(reference, test_frame, index):
    indexed = test_frame.set_index(index)
    lazy = reference.predict(dd.from_pandas(indexed, npartitions=4, sort=False))
    computed = lazy.compute()
    assert computed.index.name == index.name
    assert computed.index.tolist() == index.tolist()
    np.testing.assert_allclose(computed, reference.predict(test_frame), rtol=0, atol=1e-5)


def test_predictions_can_be_joined_to_their_table(reference, test_frame):
    collection = dd.from_pandas(test_frame, npartitions=4)
    joined = collection.assign(predicted=reference.predict(collection)).compute()
    rmse = root_mean_squared_error(joined["y"], joined["predicted"])
    assert rmse < 0.3 * joined["y"].std()


def test_columns_that_do_not_match_are_found_before_anything_is_read(reference, frame):
    with pytest.raises(MissingColumnsError, match="missing column 'b'"):
        reference.predict(untouchable(frame[["a", "c"]]))
    with pytest.raises(ColumnTypeError, match=r"'a' was numeric in the fit but is text"):
        reference.predict(untouchable(frame.assign(a="text")))
    with pytest.raises(MissingColumnsError, match="missing column 'b'"):
        reference.evaluate(untouchable(frame[["a", "c", "y"]]))
    with pytest.raises(MissingColumnsError, match="missing column 'y'"):
        reference.evaluate(untouchable(frame[FEATURES]))
    lacking = untouchable(frame[["a", "c", "y"]])
    with pytest.raises(MissingColumnsError, match="missing column 'b'"):
        reference.evaluate(lacking[["a", "c"]], lacking["y"])
    for X in (frame[FEATURES].to_numpy()[:, :2], da.ones((10, 2), chunks=5)):
        with pytest.raises(DataError, match="X has 2 features"):
            reference.predict(X)


def test_values_that_cannot_be_predicted(reference, test_frame):
    spoiled = test_frame.assign(b=np.where(test_frame["a"] > 1, np.nan, test_frame["b"]))
    for X in (spoiled, spoiled[FEATURES].to_numpy()):
        with pytest.raises(MissingValuesError, match=r"'b' \(\d+ rows\)"):
            reference.predict(X)
    lazy = reference.predict(dd.from_pandas(spoiled, npartitions=2))
    with pytest.raises(MissingValuesError, match="'b'"):
        lazy.compute()


def test_unseen_categories_and_missing_values(frame, test_frame):
    kind = pd.cut(frame["a"], [-np.inf, -1, 1, np.inf], labels=["low", "middle", "high"])
    table = frame.assign(kind=kind.astype(str))
    model = fit(dask_frame(table), target="y", missing="impute")
    unseen = test_frame.assign(kind="never seen")
    assert np.isfinite(model.predict(dask_frame(unseen)).compute()).all()
    holes = test_frame.assign(kind=None, a=np.nan)
    assert np.isfinite(model.predict(holes)).all()
    dropping = fit(dask_frame(table), target="y", missing="drop")
    half = test_frame.assign(
        kind="low", a=np.where(test_frame.index % 2 == 0, np.nan, test_frame["a"])
    )
    for predicted in (dropping.predict(half), dropping.predict(dask_frame(half)).compute()):
        assert np.isnan(predicted[::2]).all()
        assert np.isfinite(predicted[1::2]).all()


def test_no_rows_to_predict(reference, test_frame):
    assert reference.predict(test_frame.iloc[:0]).shape == (0,)
    assert len(reference.predict(collection_of([test_frame.iloc[:0]] * 2)).compute()) == 0
    assert reference.predict(np.empty((0, 3))).shape == (0,)


def test_a_fresh_process_predicts_the_same_bits(reference, test_frame, tmp_path):
    reference.save(tmp_path / "model.zarr")
    test_frame.to_parquet(tmp_path / "rows.parquet")
    script = (
        "import sys, pandas as pd, squeak_dist\n"
        "model = squeak_dist.load(sys.argv[1] + '/model.zarr')\n"
        "rows = pd.read_parquet(sys.argv[1] + '/rows.parquet')\n"
        "sys.stdout.buffer.write(model.predict(rows).tobytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, check=True, cwd=tmp_path, env=os.environ,
    )  # fmt: skip
    assert done.stdout == reference.predict(test_frame).tobytes()


# --- scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_scikit_learn(frame, test_frame, shift, weighted):
    train, test = (f.assign(y=f["y"] + shift) for f in (frame, test_frame))
    model = fit(dask_frame(train), target="y")
    weights = np.random.default_rng(0).uniform(0, 3, len(test)) if weighted else None
    test = test.assign(w=weights) if weighted else test
    scores = model.evaluate(
        dd.from_pandas(test, npartitions=5), sample_weight="w" if weighted else None
    )
    predicted = model.predict(test)
    assert scores.rows == len(test)
    options = {"sample_weight": weights}
    assert scores.model.rmse[0] == pytest.approx(
        root_mean_squared_error(test["y"], predicted, **options), rel=1e-4
    )
    assert scores.model.r2[0] == pytest.approx(r2_score(test["y"], predicted, **options), abs=1e-5)
    mean = np.full(len(test), train["y"].mean())
    assert scores.mean.r2[0] == pytest.approx(r2_score(test["y"], mean, **options), abs=1e-6)
    assert scores.mean.rmse[0] == pytest.approx(
        root_mean_squared_error(test["y"], mean, **options), rel=1e-6
    )


def test_the_linear_baseline_is_a_good_linear_model(test_frame):
    rng = np.random.default_rng(0)
    train = made(2000)
    train, test = (
        f.assign(y=3 * f["a"] - f["b"] + rng.normal(size=len(f))) for f in (train, test_frame)
    )
    scores = fit(dask_frame(train), target="y").evaluate(test)
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(train[FEATURES], train["y"])
    best = root_mean_squared_error(test["y"], ridge.predict(test[FEATURES]))
    assert scores.linear.rmse[0] == pytest.approx(best, rel=0.01)
    assert scores.linear.rmse[0] < scores.mean.rmse[0]


def test_scores_of_several_targets(frame, test_frame):
    train, test = (f.assign(z=f["y"] * 100) for f in (frame, test_frame))
    model = fit(train, target=["y", "z"], features=FEATURES)
    scores = model.evaluate(dask_frame(test))
    predicted = model.predict(test)
    for j, name in enumerate(["y", "z"]):
        assert scores.model.r2[j] == pytest.approx(r2_score(test[name], predicted[:, j]), abs=1e-5)
    assert model.score(test) == pytest.approx(r2_score(test[["y", "z"]], predicted), abs=1e-5)
    assert "on 200 rows" in str(scores)
    assert str(scores).count("squeak") == 2


def test_rows_without_a_target_are_not_scored(reference, test_frame):
    holes = test_frame.assign(y=np.where(test_frame["a"] > 0, np.nan, test_frame["y"]))
    kept = test_frame[~(test_frame["a"] > 0)]
    assert reference.evaluate(holes).rows == len(kept)
    assert reference.score(holes) == pytest.approx(reference.score(kept), abs=1e-9)


def test_a_constant_test_target_has_no_r2(reference, test_frame):
    scores = reference.evaluate(test_frame.assign(y=1.0))
    assert np.isnan(scores.model.r2[0])
    assert scores.to_dict()["model"]["r2"] == [None]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: (f.iloc[:0], None),
        lambda f: (f.assign(y=np.nan), None),
        lambda f: (f.assign(y=np.inf), None),
        lambda f: (f, np.full(len(f), np.nan)),
        lambda f: (f, np.full(len(f), -1.0)),
        lambda f: (f, np.zeros(len(f))),
    ],
    ids=["no rows", "no targets", "infinite", "weights NaN", "weights negative", "weights zero"],
)
def test_what_cannot_be_scored(reference, test_frame, spoil):
    table, weights = spoil(test_frame)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        reference.evaluate(table, sample_weight=weights)
    assert isinstance(caught.value, SqueakError)


# --- dual weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [64, 100, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_dual_weights_are_the_inverse_of_the_kernel_matrix(
    frame, tmp_path, monkeypatch, chunk_rows, weighted
):
    """(K̃ + μI)⁻¹ y with the dense matrix, weights as repeated rows would have it."""
    table = frame.iloc[:350].assign(w=np.random.default_rng(0).uniform(0.2, 3, 350))
    cuts = [0, 30, 30, 170, 300, 350]
    pieces = [table.iloc[a:b] for a, b in itertools.pairwise(cuts)]
    collection = collection_of(pieces)
    options = {"sample_weight": "w"} if weighted else {}
    model = fit(
        collection, target="y", features=FEATURES, approximation="regularized", mu=0.5,
        gamma=1.0, dtype="float64", linear_part=False, **options,
    )  # fmt: skip
    monkeypatch.setattr(predictions, "_DUAL_CHUNK_ROWS", chunk_rows)
    model.save_dual_weights(tmp_path / "dual.zarr", collection, **options)
    stored = load_dual_weights(tmp_path / "dual.zarr")
    assert stored.shape == (350, 1)

    X, _ = model.model_.encoding.encode(table[FEATURES])
    K_nd = model.kernel_(X, model.components_)
    K_dd = model.kernel_(model.components_, model.components_)
    s = model.dictionary_.column_weights
    inner = s[:, None] * K_dd * s + model.gamma_ * np.eye(len(s))
    approximated = (K_nd * s) @ np.linalg.solve(inner, (K_nd * s).T)
    v = table["w"].to_numpy() if weighted else np.ones(350)
    centred = table["y"].to_numpy() - np.average(table["y"], weights=v)
    expected = np.linalg.solve(approximated + 0.5 * np.diag(1 / v), centred)
    np.testing.assert_allclose(stored[:, 0], expected, rtol=0, atol=1e-7)


def test_dual_weights_give_the_predictions(frame, tmp_path):
    """f(x) = Σ k̃(x, x_i) w̃_i: with every row in the dictionary, k̃ = k."""
    table = frame.iloc[:150]
    model = fit(
        table, target="y", length_scale=0.7, gamma=1e-12, max_dictionary=None, dtype="float64"
    )
    model.save_dual_weights(tmp_path / "dual.zarr", table)
    encoded, _ = model.model_.encoding.encode(table[FEATURES])
    sums = model.kernel_(encoded, encoded) @ load_dual_weights(tmp_path / "dual.zarr")[:, 0]
    np.testing.assert_allclose(sums + model.intercept_, model.predict(table), rtol=0, atol=1e-6)


def test_dual_weights_want_the_rows_of_the_fit(reference, frame, tmp_path):
    with pytest.raises(DataError, match="fitted to 1 partitions, but the table has 6"):
        reference.save_dual_weights(tmp_path / "dual.zarr", dask_frame(frame))
    with pytest.raises(LengthMismatchError, match="10 rows, but had 600"):
        reference.save_dual_weights(tmp_path / "dual.zarr", frame.iloc[:10])
    with pytest.raises(StoreError):
        load_dual_weights(tmp_path / "dual.zarr")  # never finished


def test_dual_weights_of_dropped_rows_are_zero(frame, tmp_path):
    table = frame.assign(a=np.where(frame["b"] > 1, np.nan, frame["a"]))
    model = fit(table, target="y", missing="drop")
    model.save_dual_weights(tmp_path / "dual.zarr", table)
    stored = load_dual_weights(tmp_path / "dual.zarr")[:, 0]
    np.testing.assert_array_equal(stored == 0, frame["b"] > 1)


# --- the executor -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_the_local_schedulers_give_the_same_bits(frame, in_six, scheduler):
    with dask.config.set(scheduler=scheduler):
        assert bits(fit(dask_frame(frame), target="y")) == bits(in_six)


def test_memory_of_this_machine_is_checked():
    with pytest.raises(
        InsufficientMemoryError, match=r"1,073,741,824 MiB \(a reason\).* are free"
    ):
        DaskExecutor(None).check_memory(2**50, "a reason")
    DaskExecutor(None).check_memory(2**20, "a reason")


def test_a_dictionary_beyond_the_memory_is_refused_before_its_stage(frame):
    stages = []

    class Recorded(DaskExecutor):
        def gather(self, stage, handle):
            stages.append(stage)
            return super().gather(stage, handle)

        def check_memory(self, needed, explanation):
            super().check_memory(2**50, explanation)

    from squeak_dist.stages import FitParameters, fit_tables

    source = read_source(dask_frame(frame), target="y")
    with pytest.raises(InsufficientMemoryError, match="max_dictionary"):
        fit_tables(
            Recorded(None), source.tables, source.schema, FitParameters(),
            target_names=("y",), single_output=True,
        )  # fmt: skip
    assert stages == ["profile"]


def test_progress_counts_the_tasks_of_each_stage(frame):
    seen = []
    fit(dask_frame(frame), target="y", progress=lambda *event: seen.append(event))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["profile", "tuning", "dictionary", "solve"]
    for stage in stages:
        counts = [done for name, done, _ in seen if name == stage]
        totals = {total for name, _, total in seen if name == stage}
        assert counts == sorted(counts)
        assert totals == {counts[-1]}


def row(part):
    return pd.DataFrame({"a": [float(part), 1.0], "y": [0.0, float(part)]})


def test_a_graph_of_many_partitions_is_small_and_quick():
    began = time.perf_counter()
    collection = dd.from_map(row, range(2000), meta=row(0))
    source = read_source(collection, target="y")
    executor = DaskExecutor(None)
    from squeak_dist.stages import FitParameters
    from squeak_dist.stages.planning import profile_stage

    handle = profile_stage(executor, source.tables, FitParameters())
    graph = cloudpickle.dumps(as_delayed([handle])[0].__dask_graph__())
    assert time.perf_counter() - began < 15
    assert len(source.tables) == 2000
    assert len(graph) < 10e6


def test_a_fit_of_many_small_partitions():
    collection = dd.from_map(row, range(300), meta=row(0))
    model = fit(collection, target="y", length_scale=10.0)
    assert model.report_["rows"] == 600
    assert model.report_["chains"] == 8


# --- the face ---------------------------------------------------------------------------------


def test_the_public_names():
    assert dir(squeak_dist) == [
        "ClassEvaluation",
        "Cosine",
        "Evaluation",
        "Forecast",
        "Kernel",
        "Laplacian",
        "Linear",
        "Matern",
        "Polynomial",
        "RBF",
        "SqueakClassifier",
        "SqueakPCA",
        "SqueakRegressor",
        "SqueakTransformer",
        "__version__",
        "fit",
        "load",
        "plan",
        "remove_checkpoint",
    ]
