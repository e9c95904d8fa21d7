"""The graph of a stage: what its handle needs, and nothing else."""

import operator

import cloudpickle
import dask
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client, Future, LocalCluster

from squeak_dist.distributed import DaskExecutor
from squeak_dist.distributed.calls import Call, as_delayed, call_of
from squeak_dist.errors import DataError


def add(*values):
    return sum(values)


def total(values, factor):
    return factor * sum(values)


def same(value):
    return value


def refuse(value):
    raise DataError(f"not {value}")


def graph(*calls):
    return dict(as_delayed(list(calls))[0].__dask_graph__())


def test_only_what_a_call_needs_is_in_its_graph():
    executor = DaskExecutor(None)
    one, other = executor.call(add, 1, 2), executor.call(add, 3, 4)
    root = executor.call(add, one, one, 5)
    assert set(graph(root)) == {one.key, root.key}
    assert set(graph(root, other)) == {one.key, root.key, other.key}
    assert executor.gather("sum", root) == 11


def test_lists_of_calls_and_values():
    executor = DaskExecutor(None)
    calls = [executor.call(add, i) for i in range(4)]
    assert executor.gather("sum", executor.call(total, [*calls, 10], executor.share(2))) == 32


VALUES = {
    "a tuple that begins with a callable": (operator.add, 1, 2),
    "one in a list": [(print, "never"), 1],
    "a text": "squeak-add",
    "a dict": {"a": (add, 1)},
    "a tuple": (1, "x", None),
    "an array": np.arange(3.0),
    "an empty list": [],
    "an empty tuple": (),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_no_tasks(name):
    """In Dask's graphs a tuple that begins with a callable is a call."""
    value, executor = VALUES[name], DaskExecutor(None)
    for handle in (
        executor.call(same, value),
        executor.call(same, executor.share(value)),
        executor.persist([executor.call(same, value)], nbytes=0)[0],
    ):
        found = executor.gather("value", handle)
        assert type(found) is type(value)
        np.testing.assert_equal(found, value)


def test_a_value_that_is_the_name_of_a_key_stays_a_text():
    executor = DaskExecutor(None)
    before = executor.call(add, 1)
    assert executor.gather("text", executor.call(total, [before], before.key)) == before.key


def test_kept_values_are_computed_once():
    ran = []

    def noted(value):
        ran.append(value)
        return value

    executor = DaskExecutor(None)
    [kept] = executor.persist([executor.call(noted, 3)], nbytes=0)
    assert executor.gather("a", executor.call(add, kept, 1)) == 4
    assert executor.gather("b", executor.call(add, kept, 2)) == 5
    assert executor.gather("c", kept) == 3
    assert ran == [3]
    [passed] = executor.persist([executor.call(noted, 4)], nbytes=2**60)
    for _ in range(2):
        assert executor.gather("d", passed) == 4
    assert ran == [3, 4, 4]


def test_a_refusal_inside_a_list_is_the_result():
    executor = DaskExecutor(None)
    parts = [executor.call(add, 1), executor.call(refuse, "this")]
    with pytest.raises(DataError, match="not this"):
        executor.gather("sum", executor.call(total, parts, 1))


def test_collections_of_the_user_come_with_their_annotations():
    with dask.annotate(resources={"GPU": 1}):
        table = delayed(add)(1, 2)
    call = call_of("squeak-same", same, [[table]])
    layers = as_delayed([call])[0].__dask_graph__().layers.values()
    assert [layer.annotations for layer in layers if layer.annotations] == [
        {"resources": {"GPU": 1}}
    ]


def test_a_call_costs_the_client_a_few_objects():
    """A pass over 10,000 partitions: no call carries the graph of those before."""
    executor = DaskExecutor(None)
    handle = executor.call(add, 1)
    for _ in range(2000):
        handle = executor.call(add, handle, 1)
    assert isinstance(handle, Call)
    assert [one.key for one in handle.below] == [f"{handle.key.rpartition('-')[0]}-001999"]
    assert len(cloudpickle.dumps(graph(handle))) < 500 * 2000
    assert executor.gather("count", handle) == 2001


@pytest.mark.cluster
def test_on_a_cluster_kept_values_are_futures():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        executor = DaskExecutor(client)
        calls = [executor.call(add, i) for i in range(5)]
        kept = executor.persist(calls, nbytes=0)
        assert [call.key for call in kept] == [call.key for call in calls]
        assert all(isinstance(call.task, Future) for call in kept)
        assert [executor.gather("value", call) for call in kept] == [0, 1, 2, 3, 4]
        assert executor.gather("sum", executor.call(total, kept, 2)) == 20
