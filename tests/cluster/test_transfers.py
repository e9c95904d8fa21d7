"""What moves between workers, what a task reads by itself, and how many tasks there are."""

from __future__ import annotations

import pickle

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof

import squeak_dist
from squeak_dist.distributed import DaskExecutor, read_source
from squeak_dist.distributed.calls import as_delayed
from squeak_dist.distributed.reading import Unread, unread
from squeak_dist.distributed.sizes import EVERYWHERE, true_size
from squeak_dist.errors import MissingValuesError
from squeak_dist.stages import FitParameters, PlainExecutor, fit_components, fit_tables
from squeak_dist.stages.planning import profile_stage

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

PARTITIONS, ROWS, COLUMNS = 18, 30_000, 12


def part(number: int, rows: int = ROWS, width: int = COLUMNS) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, width)).astype(np.float32)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(width)])
    return frame.assign(y=np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1])


def table(partitions: int = PARTITIONS, **shape: int):
    return dd.from_map(part, range(partitions), meta=part(0, **shape), **shape)


@pytest.fixture(scope="module")
def steady_workers(started):
    """Two workers that take no work from one another, whatever else runs on this machine."""
    with dask.config.set({"distributed.scheduler.work-stealing": False}), started(2) as client:
        yield client


def _outgoing(dask_worker):
    keys = {key for sent in dask_worker.transfer_outgoing_log for key in sent["keys"]}
    return dask_worker.transfer_outgoing_bytes_total, keys


def moved(client):
    """Bytes that workers sent to one another so far, and the keys of what they sent."""
    counts = client.run(_outgoing).values()
    return sum(nbytes for nbytes, _ in counts), set().union(*(keys for _, keys in counts))


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_what_moves(steady_workers, solver):
    """Dictionaries, maps and sums, and the 4,096 rows at most of a profile's sample.

    Bound: a profile once up its tree; a dictionary once, to its merge, and to the other worker
    as part of the map; in each pass a sum per chain and its way up the tree. Dask moves a step
    of encoded rows to a worker that has less to do, which then has them too: on two workers once
    at most. Raw rows never move.
    """
    before, _ = moved(steady_workers)
    model = squeak_dist.fit(
        table(), target="y", kernel="rbf", length_scale="median", max_dictionary=60, mu=0.1,
        solver=solver, client=steady_workers,
    )  # fmt: skip
    after, keys = moved(steady_workers)
    report = model.report_
    m, width = len(model.dictionary_), len(model.dictionary_) + COLUMNS + 1
    assert report["chains"] == 8
    profiles = 1.25 * PARTITIONS * (4096 * 8 * (COLUMNS + 3) + 20_000)
    dictionaries = 2 * 1.5 * report["bytes"]["dictionaries"] + 50_000
    maps = 2 * 2 * 3 * 8 * m * m
    vectors = len(report["cg_residuals"]) * 2 * 8 * 3 * 8 * width
    sums = 2 * report["chains"] * 2 * report["bytes"]["sum"]
    rows = report["bytes"]["encoded"]
    assert after - before < profiles + dictionaries + maps + sums + vectors + rows
    assert keys, "nothing moved at all: the counters are not what they were"
    assert not [key for key in keys if "cut_table" in str(key) or "part" in str(key)]


def test_dask_knows_the_sizes_of_what_tasks_return():
    """A value that Dask takes for a small one moves at will, and is not counted as memory."""
    values = []

    class Keeping(PlainExecutor):
        def call(self, function, *args):
            values.append(super().call(function, *args))
            return values[-1]

    source = read_source(table(3, rows=3000), target="y")
    tables = dask.compute(*source.tables, scheduler="sync")
    for solver in ("direct", "cg"):
        fit_tables(
            Keeping(), tables, source.schema,
            FitParameters(max_dictionary=100, mu=0.1, solver=solver, length_scale="median"),
            target_names=("y",), single_output=True,
        )  # fmt: skip
    fit_components(Keeping(), tables, FitParameters(max_dictionary=100), n_components=3)
    large = [value for value in values if len(pickle.dumps(value)) > 20_000]
    assert len({type(value) for value in large}) >= 8
    for value in [*tables, *large]:
        everywhere = isinstance(value, EVERYWHERE)  # what no worker can do without draws no task
        assert not everywhere or sizeof(value) < 100
        size = true_size(value) if everywhere else sizeof(value)
        assert 0.4 < size / len(pickle.dumps(value)) < 1.6, type(value)
    assert {type(value) for value in large} >= set(EVERYWHERE)


# --- partitions that tasks read ---------------------------------------------------------------


def tables_of(collection):
    return read_source(collection, target="y").tables


def test_a_partition_that_stands_by_itself_is_read_where_it_is_needed():
    small = table(3, rows=50)
    found = unread(tables_of(small))
    assert [type(one) for one in found] == [Unread] * 3
    expected = dask.compute(*tables_of(small), scheduler="sync")
    for one, other in zip(found, expected, strict=True):
        restored = pickle.loads(cloudpickle.dumps(one))
        pd.testing.assert_frame_equal(restored.read().features, other.features)
        assert len(cloudpickle.dumps(one)) < 10_000


def test_partitions_that_share_work_are_left_to_dask(two_workers):
    small = table(4, rows=50)
    assert unread(tables_of(small.shuffle("x0"))) is None
    assert unread(tables_of(small.persist())) is None
    rows = np.random.default_rng(0).normal(size=(4000, 3))
    blocks = da.from_array(rows, chunks=(1000, 3))
    # The whole array is in the graph once, for all.
    whole = read_source(blocks.map_blocks(lambda b, other: b, da.from_array(rows, chunks=-1)[:1]),
                        rows[:, 0])  # fmt: skip
    assert unread(whole.tables) is None or len(cloudpickle.dumps(unread(whole.tables))) < 2e6
    with dask.annotate(resources={"GPU": 1}):
        annotated = tables_of(table(2, rows=50))
    assert unread(annotated) is None


def test_an_error_of_the_data_is_raised_as_without_a_cluster(steady_workers):
    spoilt = table(3, rows=50).map_partitions(lambda f: f.assign(x1=np.nan), meta=part(0).iloc[:0])
    with pytest.raises(MissingValuesError, match="x1"):
        squeak_dist.fit(spoilt, target="y", client=steady_workers)


# --- the graph --------------------------------------------------------------------------------


class Counting(PlainExecutor):
    """Counts calls; as many at once as asked for."""

    def __init__(self, slots: int) -> None:
        self.calls, self._slots = 0, slots

    def call(self, function, *args):
        self.calls += 1
        return super().call(function, *args)

    def slots(self) -> int:
        return self._slots


@pytest.mark.parametrize(("slots", "per_partition"), [(1, 0.15), (10**6, 1.15)])
def test_tasks_per_partition(slots, per_partition):
    """One task profiles a partition, or eight; all further tasks are of many rows or chains."""
    partitions = 400
    source = read_source(table(partitions, rows=20, width=3), target="y")
    tables = dask.compute(*source.tables, scheduler="sync")
    executor = Counting(slots)
    fit_tables(
        executor, tables, source.schema,
        FitParameters(max_dictionary=50, mu=0.1, kernel="rbf", length_scale="median"),
        target_names=("y",), single_output=True,
    )  # fmt: skip
    assert executor.calls < per_partition * partitions + 100


def test_the_graph_of_many_partitions_is_small():
    """Below 1 kB a partition: 10 MB for 10,000."""
    partitions = 2000
    tables = unread(tables_of(table(partitions, rows=20, width=3)))
    handle = profile_stage(DaskExecutor(None), tables, FitParameters())
    assert len(cloudpickle.dumps(as_delayed([handle])[0].__dask_graph__())) < 1000 * partitions
