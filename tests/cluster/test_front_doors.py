"""Where a fit is called from, and which workers it finds: kernels, loops, other versions."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import zarr
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist.distributed import executor
from squeak_dist.errors import (
    ClusterError,
    ColumnTypeError,
    DataError,
    InfiniteValuesError,
    LargeTable,
    MissingValuesError,
    VersionMismatchError,
)

pytestmark = pytest.mark.cluster

QUICK = {"max_dictionary": 30}
ROOT = Path(squeak_dist.__file__).parents[1]


def made(n=400):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(n, 3)), columns=list("abc"))
    return rows.assign(y=np.sin(rows.a) + rows.b)


def fit(*args, **options):
    return squeak_dist.fit(*args, **(QUICK | options))


# --- loops ------------------------------------------------------------------------------------

CELLS = (
    """
import asyncio, numpy as np, pandas as pd, squeak_dist, dask.dataframe as dd
assert asyncio.get_running_loop().is_running()
rows = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 2)), columns=["a", "y"])
alone = squeak_dist.fit(rows, target="y", max_dictionary=20)
""",
    """
from distributed import Client, LocalCluster
cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
lazy = dd.from_pandas(rows, npartitions=1)
stages = []
model = squeak_dist.fit(
    lazy, target="y", max_dictionary=20, progress=lambda *event: stages.append(event[0])
)
assert {"profile", "dictionary", "solve"} <= set(stages)
assert model.report_["merges"][0]["worker"] != "this process"
""",
    """
both = await asyncio.gather(
    asyncio.to_thread(squeak_dist.fit, lazy, target="y", max_dictionary=20),
    asyncio.to_thread(squeak_dist.fit, lazy, target="y", max_dictionary=20, random_state=1),
)
assert both[0].dual_coef_.tobytes() == model.dual_coef_.tobytes() == alone.dual_coef_.tobytes()
print(model.evaluate(lazy).rows, len(model.predict(lazy).compute()))
client.close(); cluster.close()
""",
)


def test_in_a_notebook_whose_loop_runs(tmp_path):
    """A real kernel: the loop of the notebook runs while a cell waits for the fit."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env=environment)
    (printed,) = [o["text"] for o in notebook.cells[-1].outputs if o["output_type"] == "stream"]
    assert printed.split() == ["400", "400"]


def test_an_asynchronous_client_from_its_loop_and_from_a_thread():
    rows = made()
    expected = fit(rows, target="y")

    async def run():
        async with Client(processes=False, asynchronous=True, dashboard_address=None) as client:
            for options in ({"client": client}, {}):  # as the current client too
                with pytest.raises(ClusterError, match=r"asynchronous.*asyncio\.to_thread"):
                    fit(rows, target="y", **options)
            with pytest.raises(ClusterError, match="asynchronous"):
                expected.evaluate(rows, client=client)
            return await asyncio.to_thread(fit, rows, target="y", client=client)

    model = asyncio.run(run())
    assert model.dual_coef_.tobytes() == expected.dual_coef_.tobytes()


# --- workers of other versions ----------------------------------------------------------------


@pytest.fixture
def other_version(tmp_path):
    """An installation of the package that calls itself 99.0, metadata and all."""
    shutil.copytree(
        ROOT / "squeak_dist",
        tmp_path / "squeak_dist",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (tmp_path / "squeak_dist" / "_version.py").write_text('__version__ = "99.0"\n')
    (tmp_path / "squeak_dist-99.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: squeak-dist\nVersion: 99.0\n"
    (tmp_path / "squeak_dist-99.0.dist-info" / "METADATA").write_text(metadata)
    return tmp_path


def test_a_worker_of_another_version_is_refused_before_work_is_submitted(other_version):
    """One worker of two is another installation: a process of its own, started as people do."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        assert fit(made(), target="y", client=client)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-dashboard"]
        worker = subprocess.Popen(
            [*command, "--nthreads", "1", "--no-nanny", cluster.scheduler_address],
            env=os.environ | {"PYTHONPATH": str(other_version)},
            cwd=other_version,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(2, timeout=60)
            before = client.run_on_scheduler(
                lambda dask_scheduler: dask_scheduler.transition_counter
            )
            ours = squeak_dist.__version__
            message = rf"squeak_dist: client {ours}, worker tcp://[^ ]+ 99\.0.*same versions"
            with pytest.raises(VersionMismatchError, match=message):
                fit(made(), target="y", client=client)
            after = client.run_on_scheduler(
                lambda dask_scheduler: dask_scheduler.transition_counter
            )
            assert after == before  # nothing was submitted
        finally:
            worker.terminate()
            worker.wait(30)


# --- errors and logs --------------------------------------------------------------------------


def computed_and_failed(client):
    logs = client.get_worker_logs()
    return [text for lines in logs.values() for _, text in lines if "Compute Failed" in text]


def test_what_is_wrong_with_the_data_is_no_failure_of_a_worker(two_workers):
    """The error comes to the user, in its class; the logs of the workers stay clean."""
    rows = made()
    model = fit(rows, target="y")
    holed = rows.assign(a=rows.a.where(rows.a > 0))
    hidden = rows.assign(y=rows.y.astype(object).where(rows.a > 0, "word"))
    shifted = rows.y.set_axis(rows.index + 1000)

    def lazy(frame):
        return dd.from_map(lambda part: part, [frame.iloc[:100], frame.iloc[100:]], meta=frame[:0])

    calls = {
        "profile": (MissingValuesError, lambda: fit(lazy(holed), target="y")),
        "cut": (ColumnTypeError, lambda: fit(lazy(hidden), target="y")),
        "join": (
            DataError,
            lambda: fit(dd.from_pandas(rows[["a"]], 2), dd.from_pandas(shifted, 2)),
        ),
        "score": (InfiniteValuesError, lambda: model.evaluate(lazy(rows.assign(y=np.inf)))),
        "encode": (MissingValuesError, lambda: model.evaluate(lazy(holed))),
        "array": (InfiniteValuesError, lambda: fit(rows[["a"]].to_numpy() / 0, rows.y)),
    }
    for error, call in calls.values():
        with np.errstate(all="ignore"), pytest.raises(error):
            call()
    assert computed_and_failed(two_workers) == []
    with pytest.raises(ZeroDivisionError):
        two_workers.submit(lambda: 1 / 0).result()
    assert len(computed_and_failed(two_workers)) == 1  # the check can fail


# --- data that the workers read ---------------------------------------------------------------


def test_workers_read_arrays_and_files(two_workers, tmp_path):
    rows = made()
    X, y = rows[["a", "b", "c"]].to_numpy(), rows.y.to_numpy()
    expected = fit(X, y).dual_coef_.tobytes()
    np.save(tmp_path / "x.npy", X)
    stored = zarr.create_array(store=str(tmp_path / "x.zarr"), data=X, chunks=(50, 2))
    in_memory = zarr.create_array(store={}, data=X, chunks=(50, 2))
    for given in (
        np.load(tmp_path / "x.npy", mmap_mode="r"), stored, str(tmp_path / "x.zarr"), in_memory,
    ):  # fmt: skip
        model = fit(given, y, client=two_workers)
        assert model.dual_coef_.tobytes() == expected
        assert np.isfinite(np.asarray(model.predict(given))).all()
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=150)
    dataset = pads.dataset(tmp_path / "rows.parquet")
    assert fit(dataset, target="y", client=two_workers).report_["partition_rows"] == [
        150,
        150,
        100,
    ]
    assert fit(pa.Table.from_pandas(rows), target="y").report_["rows"] == 400


def test_a_grid_in_chunks_on_workers(two_workers):
    xr = pytest.importorskip("xarray")
    lat, lon = np.linspace(-1, 1, 20), np.linspace(0, 3, 30)
    values = np.sin(lon)[None, :] * lat[:, None]
    field = xr.Dataset({"t": (("lat", "lon"), values)}, coords={"lat": lat, "lon": lon})
    model = fit(field.chunk(lat=7, lon=30), target="t", client=two_workers)
    assert model.report_["partition_rows"] == [210, 210, 180]
    predicted = model.predict(field.chunk(lat=7, lon=11).drop_vars("t"))
    assert predicted.chunks == ((20,), (30,)) or predicted.chunks is None
    assert float(abs(predicted.compute() - field.t).max()) < 0.2


def test_a_table_in_memory_goes_to_the_workers_without_a_word(two_workers, monkeypatch):
    """Of Dask, which warns of graphs beyond 10 MB; ours comes where a file would be better."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80_000, 17))
    y = X[:, 0] + rng.normal(size=len(X))
    settings = {"max_dictionary": 20, "mu": 1.0}
    expected = squeak_dist.fit(X, y, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = squeak_dist.fit(X, y, client=two_workers, **settings)
        scores = model.evaluate(X, y, client=two_workers)
    assert model.dual_coef_.tobytes() == expected.dual_coef_.tobytes()
    assert scores.rows == len(X)
    assert dask.config.get("distributed.admin.large-graph-warning-threshold") == "10MB"
    monkeypatch.setattr(executor, "_LARGE_TABLE", 10 << 20)
    with pytest.warns(LargeTable, match=r"^11 MiB of rows in memory.*parquet"):
        squeak_dist.fit(X, y, client=two_workers, **settings)
