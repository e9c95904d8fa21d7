"""Tables and arrays of other libraries: fitted, predicted and scored as pandas ones are."""

from __future__ import annotations

import datetime
import decimal
import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import zarr

import squeak_dist
from squeak_dist.distributed import read_source
from squeak_dist.errors import (
    ColumnsDropped,
    ColumnTypeError,
    DataError,
    InvalidParameterError,
    MissingColumnsError,
    MissingValuesError,
)

pl = pytest.importorskip("polars")
xr = pytest.importorskip("xarray")

TARGET = "median_house_value"
QUICK = {"max_dictionary": 60, "missing": "impute"}


def fit(*args, **options):
    return squeak_dist.fit(*args, **(QUICK | options))


def refuse(*args, **kwargs):
    raise AssertionError("something was computed")


# --- through Arrow ----------------------------------------------------------------------------

THROUGH_ARROW = {
    "polars": pl.from_pandas,
    "table": pa.Table.from_pandas,
    "batch": pa.RecordBatch.from_pandas,
    "memory dataset": lambda f: pads.dataset(pa.Table.from_pandas(f)),
}


@pytest.mark.parametrize("make", THROUGH_ARROW.values(), ids=THROUGH_ARROW)
def test_a_table_of_arrow_gives_the_bits_of_pandas(california, reference, round_trip, make):
    table = make(california)
    model = round_trip(table, target=TARGET)
    np.testing.assert_array_equal(model.predict(table), reference.predict(california))
    np.testing.assert_array_equal(reference.predict(table), reference.predict(california))
    assert reference.evaluate(table).to_dict() == reference.evaluate(california).to_dict()


def test_a_target_beside_a_table_of_polars(numbers):
    table = pl.from_pandas(numbers.drop(columns=TARGET))
    expected = fit(numbers, target=TARGET)
    for y in (
        pl.Series(numbers[TARGET].to_numpy()),
        pa.chunked_array([numbers[TARGET].to_numpy()]),
        pa.array(numbers[TARGET].to_numpy()),
        pl.from_pandas(numbers[[TARGET]]),
    ):
        predicted = fit(table, y, sample_weight=pl.Series(np.ones(len(numbers)))).predict(table)
        np.testing.assert_allclose(predicted.ravel(), expected.predict(numbers), rtol=1e-3)


def test_files_of_a_dataset_are_read_by_the_tasks(california, reference, tmp_path, monkeypatch):
    """One partition per group of rows; partition keys of the folders are columns."""
    california.to_parquet(
        tmp_path / "parts", partition_cols=["ocean_proximity"], row_group_size=200
    )
    dataset = pads.dataset(tmp_path / "parts", partitioning="hive")
    model = fit(dataset, target=TARGET)
    assert model.report_["rows"] == len(california)
    assert len(model.report_["partition_rows"]) > 7
    assert "ocean_proximity" in model.model_.encoding.used_labels
    monkeypatch.setattr(dask, "compute", refuse)
    lazy = model.predict(dataset)
    monkeypatch.undo()
    assert lazy.npartitions == len(model.report_["partition_rows"])
    assert np.isfinite(lazy.compute()).all()
    with pytest.raises(DataError, match=r"filtered.*to_table"):
        fit(dataset.filter(pads.field("population") > 3), target=TARGET)


def test_what_arrow_cannot_give():
    frame = pl.DataFrame({"a": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]})
    for call in (lambda: fit(frame.lazy(), target="y"), lambda: fit(frame.lazy(), frame["y"])):
        with pytest.raises(ColumnTypeError, match=r"LazyFrame.*X\.collect\(\).*sink_parquet"):
            call()
    with pytest.raises(ColumnTypeError, match="Series through Arrow as a table"):
        fit(frame["a"], frame["y"])
    with pytest.raises(ColumnTypeError, match="cannot read the DataFrame through Arrow"):
        fit(frame.with_columns(pl.col("a").cast(pl.Int128)), target="y")
    nested = frame.with_columns(l=pl.Series([[1], [2], [3]]))
    with pytest.raises(ColumnTypeError, match="'l'"):
        fit(nested, target="y")
    with pytest.raises(MissingColumnsError, match="'z'"):
        fit(frame, target="z")


def test_every_type_of_polars(round_trip):
    n = 200
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    start = datetime.datetime(2024, 3, 1)
    hours = [start + datetime.timedelta(hours=k) for k in range(n)]
    levels = np.array(["b", "a", None], dtype=object)[rng.integers(0, 3, n)].tolist()
    columns = {
        "f": x,
        "i": pl.Series([*rng.integers(0, 9, n - 1).tolist(), None], dtype=pl.Int16),
        "u": pl.Series(rng.integers(0, 200, n), dtype=pl.UInt8),
        "big": pl.Series([2**63 + int(k) for k in rng.integers(0, 2**60, n)], dtype=pl.UInt64),
        "s": levels,
        "cat": pl.Series(levels, dtype=pl.Categorical),
        "enum": pl.Series(levels, dtype=pl.Enum(["b", "a"])),
        "dec": pl.Series([decimal.Decimal(round(v * 100)) / 100 for v in x]),
        "date": [start.date() + datetime.timedelta(days=k) for k in range(n)],
        "when": pl.Series(hours).dt.replace_time_zone("Asia/Kolkata"),
        "time": [datetime.time(k % 24, k % 60) for k in range(n)],
        "step": [datetime.timedelta(minutes=k) for k in range(n)],
        "flag": pl.Series([*rng.integers(0, 2, n - 1).tolist(), None]).cast(pl.Boolean),
        "bytes": [b"p" if v > 0 else b"q" for v in x],
        "void": pl.Series([None] * n),
        "y": np.sin(x),
    }  # fmt: skip
    model = round_trip(pl.DataFrame(columns), target="y")
    kinds = {c.label: c.kind for c in model.model_.encoding.columns}
    assert {k for k, v in kinds.items() if v == "timedelta"} == {"time", "step"}
    assert {k for k, v in kinds.items() if v == "datetime"} == {"date", "when"}
    assert {k for k, v in kinds.items() if v == "categorical"} == {"s", "cat", "bytes"}
    assert kinds["enum"] == "ordinal"
    assert kinds["flag"] == "boolean"
    assert set(model.model_.encoding.used_labels) == set(columns) - {"void", "y"}


# --- xarray -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def field():
    """A field on a grid of time, latitude and longitude, with all that goes with it."""
    time = pd.date_range("2024-01-01", periods=40, freq="3D")
    lat, lon = np.linspace(-30, 30, 9), np.linspace(0, 90, 7)
    t, la, lo = np.meshgrid(np.arange(40), lat, lon, indexing="ij")
    rng = np.random.default_rng(0)
    wind = rng.normal(size=t.shape)
    warm = 20 - (la / 15) ** 2 + np.sin(lo / 20) + np.sin(t / 6) + 0.5 * wind
    return xr.Dataset(
        {
            "sst": (("time", "lat", "lon"), warm),
            "wind": (("time", "lat", "lon"), wind),
            "depth": (("lat", "lon"), rng.uniform(10, 4000, (9, 7))),
            "bounds": (("time", "edge"), np.zeros((40, 2))),
            "crs": ((), 4326),
        },
        coords={"time": time, "lat": lat, "lon": lon, "height": 2.0},
    )


CUTS = {
    "memory": lambda ds: ds,
    "time": lambda ds: ds.chunk(time=10),
    "blocks": lambda ds: ds.chunk(time=15, lat=4, lon=7),
    "one variable": lambda ds: ds.assign(sst=ds.sst.chunk(time=16)),
    "unlike": lambda ds: ds.assign(sst=ds.sst.chunk(time=16), wind=ds.wind.chunk(time=7, lat=2)),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_dataset_is_a_row_per_point_and_back(field, cut):
    dataset = cut(field)
    features = ["time", "lat", "lon", "wind", "depth"]
    model = fit(dataset, target="sst", features=features, max_dictionary=200)
    assert model.report_["rows"] == field.sst.size
    assert set(model.model_.encoding.used_labels) == set(features)
    assert model.evaluate(dataset).model.r2[0] > 0.9

    predicted = model.predict(dataset.drop_vars(["sst", "bounds"]))
    assert predicted.dims == ("time", "lat", "lon")
    assert predicted.name == "sst"
    assert predicted.shape == field.sst.shape
    for coordinate in ("time", "lat", "lon", "height"):
        assert coordinate in predicted.coords
    assert (predicted.chunks is None) == all(dataset[name].chunks is None for name in features)
    assert float(((predicted - field.sst) ** 2).mean()) < 0.1 * float(field.sst.var())
    # The same numbers as the points in a table.
    table = field[["wind", "sst", "depth"]].to_dataframe().reset_index()
    by_table = model.predict(table)
    point = table.index[[0, 500, 1999]]
    for row in point:
        at = {name: table.loc[row, name] for name in ("time", "lat", "lon")}
        assert float(predicted.sel(at)) == pytest.approx(by_table[row], rel=1e-6)


def test_a_dataset_uses_what_lies_on_the_grid_of_the_target(field):
    with pytest.warns(ColumnsDropped, match="'bounds' .*other dimensions than the target"):
        model = fit(field.drop_vars("crs"), target="sst")
    labels = set(model.model_.encoding.labels)
    assert labels == {"time", "lat", "lon", "wind", "depth"}
    flat = fit(field, target="depth", features=["lat", "lon"])
    assert flat.report_["rows"] == 63
    # Only what is used decides the grid of a prediction.
    assert flat.predict(field).dims == ("lat", "lon")


def test_several_targets_and_weights_of_a_dataset(field):
    weighed = field.assign(w=np.cos(np.deg2rad(field.lat)))
    model = fit(
        weighed.chunk(time=20), target=["sst", "wind"], features=["lat", "lon", "depth"],
        sample_weight="w",
    )  # fmt: skip
    predicted = model.predict(weighed)
    assert list(predicted.data_vars) == ["sst", "wind"]
    assert predicted.sst.dims == ("lat", "lon")


def test_a_missing_cell_is_a_missing_value(field):
    land = field.assign(sst=field.sst.where(field.lat > -25))
    with pytest.raises(MissingValuesError, match=r"the target \(280 rows\)"):
        fit(land, target="sst", features=["lat", "lon"], missing="raise")
    model = fit(land, target="sst", features=["time", "lat", "lon"], missing="drop")
    assert model.report_["rows_dropped"] == 280
    assert np.isfinite(model.predict(land)).all()


def test_a_data_array_is_its_values_and_coordinates(field):
    model = fit(field.sst, target="sst", max_dictionary=150)
    assert model.model_.encoding.used_labels == ("time", "lat", "lon")
    assert model.predict(field.sst).dims == ("time", "lat", "lon")
    assert model.score(field.sst) > 0.8
    assert model.score(field.sst.chunk(time=10)) == pytest.approx(model.score(field.sst))
    with pytest.raises(DataError, match="has no name"):
        fit(field.sst.rename(None), target="sst")


@pytest.mark.parametrize("chunks", [None, {"point": 1000}])
def test_stacked_data_arrays_are_arrays_of_rows(field, chunks):
    points = field[["sst", "wind", "depth"]].stack(point=("time", "lat", "lon"))
    rows = points[["wind", "depth"]].to_array("name").transpose("point", "name")
    y = points.sst
    if chunks:
        rows, y = rows.chunk(chunks), y.chunk(chunks)
    model = fit(rows, y)
    predicted = model.predict(rows)
    assert predicted.dims == ("point",)
    assert predicted.unstack().sizes == {"time": 40, "lat": 9, "lon": 7}
    np.testing.assert_allclose(
        np.asarray(predicted), model.predict(np.asarray(rows)), rtol=1e-5, atol=1e-5
    )
    # The levels of stacked dimensions are columns; their tuples are not.
    table = fit(points, target="sst")
    assert set(table.model_.encoding.labels) == {"time", "lat", "lon", "wind", "depth"}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (MissingColumnsError, "'salt'", lambda ds, m: fit(ds, target="salt")),
        (MissingColumnsError, "'salt'", lambda ds, m: fit(ds, target="sst", features=["salt"])),
        (DataError, "'crs' has no dimension", lambda ds, m: fit(ds, target="crs")),
        (
            InvalidParameterError,
            "'bounds' has dimensions .*'edge'",
            lambda ds, m: fit(ds, target="sst", features=["bounds"]),
        ),
        (ColumnTypeError, r"X\.assign\(name=y\)", lambda ds, m: fit(ds, ds.sst)),
        (
            ColumnTypeError,
            "must name a variable",
            lambda ds, m: fit(ds, target="sst", sample_weight=ds.wind),
        ),
        (MissingColumnsError, "'wind'", lambda ds, m: m.predict(ds.drop_vars("wind"))),
        (MissingColumnsError, "'wind'", lambda ds, m: m.evaluate(ds.drop_vars("wind"))),
        (
            ColumnTypeError,
            "'wind' was numeric",
            lambda ds, m: m.predict(ds.assign(wind=ds.wind.astype(str))),
        ),
        (DataError, "2D", lambda ds, m: fit(ds.wind, ds.sst)),
    ],
)
def test_what_a_dataset_cannot_give(field, error, message, call):
    model = fit(field, target="sst", features=["lat", "wind"])
    with pytest.raises(error, match=message):
        call(field, model)


# --- zarr, files, masks -----------------------------------------------------------------------


@pytest.fixture
def arrays(numbers):
    return numbers.drop(columns=TARGET).to_numpy(), numbers[TARGET].to_numpy()


def test_a_zarr_array_or_its_path_is_read_by_the_tasks(arrays, tmp_path, monkeypatch):
    X, y = arrays
    paths = [tmp_path / "x.zarr", tmp_path / "plain"]
    for path in paths:
        zarr.create_array(store=str(path), data=X, chunks=(100, 3))
    zarr.create_array(store=str(tmp_path / "y.zarr"), data=y, chunks=(450,))
    expected = fit(X, y)
    for given in (zarr.open_array(str(paths[0])), str(paths[0]), paths[1]):
        for target in (y, str(tmp_path / "y.zarr")):
            model = fit(given, target)
            np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
        monkeypatch.setattr(zarr.Array, "__getitem__", refuse)
        lazy = model.predict(given)
        monkeypatch.undo()
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy.compute(), expected.predict(X))
        assert model.score(given, y) == pytest.approx(expected.score(X, y))


def test_chunks_of_zarr_share_partitions(tmp_path):
    path = str(tmp_path / "x.zarr")
    zarr.create_array(store=path, shape=(200_000, 2), chunks=(1000, 1), dtype="f4")
    source = read_source(path, np.zeros(200_000))
    assert len(source.tables) == 4


def test_what_is_no_zarr_array(arrays, tmp_path):
    group = zarr.create_group(store=str(tmp_path / "g.zarr"))
    group.create_array("x", data=arrays[0])
    for given in (str(tmp_path / "g.zarr"), group, str(tmp_path / "none.zarr")):
        with pytest.raises(DataError, match=r"is no zarr array|nothing found"):
            fit(given, arrays[1])
    with pytest.raises(InvalidParameterError, match="array has no column names"):
        fit(group["x"], target="x")


def test_a_zarr_group_of_xarray_is_a_dataset(field, tmp_path):
    path = str(tmp_path / "field.zarr")
    field.chunk(time=10).to_zarr(path)
    model = fit(path, target="sst", features=["time", "lat", "lon"])
    assert model.report_["rows"] == field.sst.size
    assert model.predict(path).dims == ("time", "lat", "lon")
    assert model.evaluate(path).rows == field.sst.size


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_memory_mapped_file_is_read_by_the_tasks(arrays, tmp_path, order):
    """The graph names the file; slices of it are found where they are."""
    X, y = arrays
    np.save(tmp_path / "x.npy", np.asarray(np.vstack([X[:7] + 99, X]), order=order))
    np.save(tmp_path / "y.npy", y)
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")[7:]
    expected = fit(X, y)
    for target in (y, np.load(tmp_path / "y.npy", mmap_mode="r")):
        model = fit(rows, target)
        np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    predicted = model.predict(rows)
    assert isinstance(predicted, np.ndarray)
    np.testing.assert_array_equal(predicted, expected.predict(X))
    assert model.score(rows, y) == expected.score(X, y)
    graph = read_source(rows, np.load(tmp_path / "y.npy", mmap_mode="r")).tables[0].dask
    assert len(pickle.dumps(dict(graph))) < 5_000
    for view in (slice(None, None, 2), slice(None, None, -1)):
        other = fit(rows[view], y[view])
        np.testing.assert_array_equal(other.dual_coef_, fit(X[view], y[view]).dual_coef_)


def test_a_file_that_a_task_cannot_open(arrays, tmp_path):
    X, y = arrays
    np.save(tmp_path / "x.npy", X)
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    (tmp_path / "x.npy").unlink()
    with pytest.raises(DataError, match=r"cannot open the memory-mapped file .*all workers see"):
        fit(rows, y)


def test_what_a_mask_hides_is_missing(arrays):
    X, y = arrays
    hidden = np.ma.masked_greater(X, 3000)
    expected = fit(np.where(X > 3000, np.nan, X), y)
    np.testing.assert_array_equal(fit(hidden, y).dual_coef_, expected.dual_coef_)
    np.testing.assert_array_equal(
        expected.predict(hidden), expected.predict(hidden.filled(np.nan))
    )
    with pytest.raises(MissingValuesError, match="'x3'"):
        fit(hidden, y, missing="raise")
    few = np.ma.masked_greater(y, 400_000)
    assert fit(X, few).report_["rows_dropped"] == (y > 400_000).sum()
