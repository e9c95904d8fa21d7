"""Make squeak_dist/data/sea_surface_temperature.parquet of the file that iris-sample-data ships.

    pip install h5py iris-sample-data && python benchmarks/pack_sea_surface_temperature.py

Every float32 of the original is kept; land is left out. tests/test_datasets.py compares.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PLACE = Path(__file__).parents[1] / "squeak_dist" / "data" / "sea_surface_temperature.parquet"
FILL = np.float32(1e20)


def original() -> pa.Table:
    """Return month since January 1970, latitude, longitude and kelvin of every cell of the sea."""
    folder = find_spec("iris_sample_data").submodule_search_locations[0]
    with h5py.File(Path(folder) / "sample_data" / "ostia_monthly.nc") as file:
        kelvin, latitude, longitude = (
            file[name][:] for name in ("surface_temperature", "latitude", "longitude")
        )
        hours = file["time"][:].astype("timedelta64[h]")  # mid-month
    month = (np.datetime64("1970-01-01") + hours).astype("datetime64[M]").astype(np.int64)
    t, i, j = np.nonzero(kelvin != FILL)
    return pa.table(
        {
            "month": month[t].astype(np.int16),
            "latitude": latitude[i],
            "longitude": longitude[j],
            "kelvin": kelvin[t, i, j],
        }
    )


if __name__ == "__main__":
    pq.write_table(
        original(),
        PLACE,
        compression="zstd",
        compression_level=22,
        use_dictionary=["month", "latitude", "longitude"],
        column_encoding={"kelvin": "BYTE_STREAM_SPLIT"},
    )
    print(PLACE, PLACE.stat().st_size, "bytes")
