"""Partitions that are read in the task that takes them: their rows do not move.

A partition of a collection comes as a Delayed, which carries the graph of all partitions. Cut
down to its own few tasks it is a small value that any task can take and run by itself: one
task less for the scheduler, and no raw rows on another worker than the one that needs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import numpy as np
from dask.core import get_deps
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof
from dask.utils import ensure_dict
from distributed import futures_of

from squeak_dist.distributed.failures import value_of
from squeak_dist.stages.executors import AHEAD, AHEAD_BYTES

_MOST_TASKS = 64  # of a partition that a task makes by itself
_SHARED_BYTES = 10_000  # a value that several partitions take is sent with each of them


class Unread:
    """A partition as the few tasks that make it.

    Parameters
    ----------
    graph : mapping of key to task
        Its own part of a graph.
    key : hashable
        Of the partition in it.
    """

    __slots__ = ("graph", "key")

    def __init__(self, graph: Mapping[Any, Any], key: Any) -> None:
        self.graph = graph
        self.key = key

    def read(self) -> Any:
        """Return the partition, made here and now.

        Raises
        ------
        SqueakError
            If a task of it returned one.
        """
        return value_of(dask.get(self.graph, self.key))


def unread(tables: Sequence[Any]) -> list[Unread] | None:
    """Return partitions as values that tasks read; None where they cannot do so alone.

    Parameters
    ----------
    tables : sequence of Delayed
        Partitions.

    Returns
    -------
    list of Unread, or None
        None for partitions that share work (such as a shuffle), that take more than 64
        tasks, that are in the memory of workers already, or whose tasks are annotated.

    Notes
    -----
    Cost: linear in the tasks of all partitions.
    """
    graphs = [table.__dask_graph__() for table in tables]
    if any(map(_annotated, graphs[:1])):
        return None
    graph = ensure_dict(HighLevelGraph.merge(*graphs))
    before, after = get_deps(graph)
    found = []
    for table in tables:
        own = _own_keys(table.key, before)
        if own is None or any(_is_shared(key, own, graph, before, after) for key in own):
            return None
        found.append(Unread({key: graph[key] for key in own}, table.key))
    return None if any(futures_of(dict(one.graph)) for one in found) else found


def _annotated(graph: Any) -> bool:
    return any(layer.annotations for layer in getattr(graph, "layers", {}).values())


def _own_keys(key: Any, before: Mapping[Any, set[Any]]) -> set[Any] | None:
    """Return a key and all that it depends on; None if these are many."""
    own, waiting = {key}, [key]
    while waiting:
        new = before[waiting.pop()] - own
        own |= new
        waiting += new
        if len(own) > _MOST_TASKS:
            return None
    return own


def _is_shared(
    key: Any,
    own: set[Any],
    graph: Mapping[Any, Any],
    before: Mapping[Any, set[Any]],
    after: Mapping[Any, set[Any]],
) -> bool:
    """Say whether other partitions take a key, and it is not just a small constant."""
    if after[key] <= own:
        return False
    constant = not before[key] and hasattr(graph[key], "value")
    return not constant or sizeof(graph[key].value) > _SHARED_BYTES


class Reading:
    """A function that reads the partitions among its arguments; those of a list one by one.

    Parameters
    ----------
    function : callable
        Called with tables where there are :class:`Unread` ones, and with an iterator over
        tables where there is a list of these: the next ones are read while the function is at
        work on one, one of them or up to 4 that are 64 MiB together.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        """Return the result of the function."""
        return self.function(*map(_read, args))


def _read(arg: Any) -> Any:
    if isinstance(arg, Unread):
        return arg.read()
    if isinstance(arg, list) and any(isinstance(item, Unread) for item in arg):
        return _read_ahead(arg)
    return arg


def _read_ahead(items: Sequence[Any]) -> Iterator[Any]:
    """Yield what is read of each, in order, while threads read the next ones."""
    if len(items) == 1:
        yield _read(items[0])
        return
    readers = ThreadPoolExecutor(AHEAD, "squeak_dist-read")
    try:
        coming = deque(readers.submit(_read, item) for item in items[:2])
        for place in range(len(items)):
            table = coming.popleft().result()
            wanted = int(np.clip(AHEAD_BYTES // sizeof(table), 1, AHEAD))
            begun = place + 1 + len(coming)
            coming += (readers.submit(_read, item) for item in items[begun : place + 1 + wanted])
            yield table
    finally:
        readers.shutdown(cancel_futures=True)
