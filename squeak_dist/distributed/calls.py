"""The calls of a stage as small values; the graph is made of them where the stage ends.

A Delayed is a graph of its own, merged anew with those of its arguments at every call:
half a millisecond of the client each, which a pass over 10,000 partitions would wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph


class Call:
    """A call, or a value that calls take: one key of a graph.

    Parameters
    ----------
    key : str
        Of the graph.
    task : object
        What the graph has there.
    below : sequence of Call or Dask collections
        What it takes.
    """

    __slots__ = ("below", "key", "task")

    def __init__(self, key: str, task: Any, below: Sequence[Any] = ()) -> None:
        self.key = key
        self.task = task
        self.below = below


def call_of(key: str, function: Callable[..., Any], args: Iterable[Any]) -> Call:
    """Return a call of a function whose arguments may be calls, collections and lists of these.

    Parameters
    ----------
    key : str
        Of the graph.
    function : callable
        Called with the arguments.
    args : iterable
        The arguments; for those named above their values come.
    """
    below: list[Any] = []
    filled = Filled(function, tuple(_place(arg, below) for arg in args))
    return Call(key, (filled, *(one.key for one in below)), below)


def as_delayed(calls: Sequence[Call]) -> list[Delayed]:
    """Return calls for Dask, in one graph with all that they need.

    Parameters
    ----------
    calls : sequence of Call
        At least one.

    Notes
    -----
    Cost: linear in the calls. Collections of the user bring layers and annotations of their own.
    """
    own: dict[Any, Any] = {}
    foreign: dict[str, Any] = {}
    waiting = list(calls)
    while waiting:
        call = waiting.pop()
        if call.key in own:
            continue
        if not isinstance(call, Call):
            foreign[call.key] = call
            continue
        own[call.key] = call.task
        waiting.extend(call.below)
    name = f"calls-{calls[0].key}"
    graph = HighLevelGraph.from_collections(name, own, dependencies=list(foreign.values()))
    return [Delayed(call.key, graph, layer=name) for call in calls]


class Filled:
    """A function with its arguments but for those that other calls make.

    Parameters
    ----------
    function : callable
        Called with the arguments.
    args : tuple
        The arguments, a :class:`_Place` for each that comes from elsewhere.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.__name__ = function.__name__

    def __call__(self, *values: Any) -> Any:
        """Return the result for the values of the missing arguments, in order."""
        return self.function(*(_filled(arg, values) for arg in self.args))


class _Place(int):
    """Stands for a value that another call makes: which one."""

    __slots__ = ()


def _place(arg: Any, below: list[Any]) -> Any:
    if isinstance(arg, list):
        return [_place(item, below) for item in arg]
    if isinstance(arg, Call) or is_dask_collection(arg):
        below.append(arg)
        return _Place(len(below) - 1)
    return arg


def _filled(arg: Any, values: Sequence[Any]) -> Any:
    if isinstance(arg, list):
        return [_filled(item, values) for item in arg]
    return values[arg] if isinstance(arg, _Place) else arg
