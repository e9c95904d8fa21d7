"""Peak memory of worker processes beside the projection; rows without number in little memory.

"Base" is the peak of a worker after a small fit: interpreter, libraries, buffers of BLAS.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import squeak_dist
from squeak_dist.distributed import executor as executor_module
from squeak_dist.stages import learning

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

PART, COLUMNS = 20_000, 18
FEATURES = [f"x{j}" for j in range(COLUMNS)]
SMALL = {"max_dictionary": 40, "mu": 0.1, "kernel": "rbf", "length_scale": "median"}
MALLOC = 24 << 20  # what allocators hold back


def part(number: int, rows: int = PART) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    return pd.DataFrame(X, columns=FEATURES).assign(y=np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2])


def made(rows: int):
    return dd.from_map(part, range(rows // PART), meta=part(0, 1).iloc[:0])


def peak(client) -> int:
    from squeak_dist.stages.records import peak_memory

    return max(client.run(peak_memory).values())


def fitted(started, rows: int, m: int, projections: list[int]):
    """The growth of the largest worker in a fit on new workers, and the model."""
    with started(2) as client:
        squeak_dist.fit(made(4 * PART), target="y", client=client, **SMALL)
        base = peak(client)
        projections.clear()
        model = squeak_dist.fit(
            made(rows), target="y", client=client, solver="direct",
            **SMALL | {"max_dictionary": m},
        )  # fmt: skip
        return peak(client) - base, model


@pytest.fixture
def projections(monkeypatch):
    """What fits project."""
    found = []

    def projected(*args):
        found.append(original(*args))
        return found[-1]

    original = learning.projected_bytes
    monkeypatch.setattr(learning, "projected_bytes", projected)
    return found


@pytest.mark.parametrize(
    ("rows", "more_rows", "m"),
    [(60_000, 240_000, 500), pytest.param(100_000, 1_000_000, 1200, marks=pytest.mark.slow)],
)
def test_memory_is_as_projected_and_does_not_grow_with_the_rows(
    started, projections, monkeypatch, rows, more_rows, m
):
    monkeypatch.setattr(executor_module, "_total_memory", lambda client: 0)  # nothing is kept
    growth = {}
    for n in (rows, more_rows):
        growth[n], model = fitted(started, n, m, projections)
        [(projected, _)] = projections
        assert len(model.dictionary_) > 0.6 * m
        assert growth[n] < 1.25 * projected + MALLOC, f"{growth[n]:,} of {projected:,} at {n:,}"
    assert growth[more_rows] < growth[rows] + 0.25 * projected + MALLOC, growth


def test_rows_are_kept_once(started, projections):
    """Kept rows come on top of the projection: their share of all, evenly."""
    growth, model = fitted(started, 240_000, 200, projections)
    [(projected, _)] = projections
    kept = model.report_["bytes"]["encoded"] / 2
    assert growth < 1.25 * (projected + kept) + MALLOC


def _written(collection, path) -> None:
    collection.to_parquet(path, write_index=False)


@pytest.mark.parametrize(
    ("rows", "more_rows"),
    [(100_000, 400_000), pytest.param(1_000_000, 10_000_000, marks=pytest.mark.slow)],
)
def test_predictions_are_written_in_constant_memory(started, tmp_path, rows, more_rows):
    model = squeak_dist.fit(part(0, 3000), target="y", **SMALL)
    peaks = {}
    for n in (rows, more_rows):
        with started(2) as client:
            model.predict(made(n)[FEATURES]).to_frame().to_parquet(tmp_path / str(n))
            peaks[n] = peak(client)
        written = pq.ParquetDataset(tmp_path / str(n)).read(columns=["y"])
        assert len(written) == n
    assert peaks[more_rows] < peaks[rows] + 48 * 2**20


@pytest.mark.slow
def test_rows_larger_than_the_memory_of_the_workers(started, tmp_path):
    """2 workers of 500 MiB, 1.5 GiB of rows; a worker over 95 % of its limit would be killed."""
    partitions, rows = 400, 25_000
    made_rows = dd.from_map(lambda i: part(i, rows).astype(np.float64), range(partitions),
                            meta=part(0, 1).iloc[:0].astype(np.float64))  # fmt: skip
    with started(2, memory_limit=None) as client:
        made_rows.to_parquet(tmp_path / "rows")
    assert partitions * rows * (COLUMNS + 1) * 8 > 1.4 * 2**30
    with started(2, memory_limit="500MiB") as client:
        model = squeak_dist.fit(tmp_path / "rows", target="y", client=client, **SMALL)
        assert peak(client) < 500 * 2**20
    assert model.report_["rows_fitted"] == partitions * rows
