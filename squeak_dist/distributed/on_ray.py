"""The Ray executor of a fit: each call is a Ray task.

Ray is optional: this module alone imports it, and only when it is asked for.
The library never starts Ray: ``ray.init()`` is the user's.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import dask
from dask.base import is_dask_collection

from squeak_dist._version import __version__
from squeak_dist.distributed.failures import value_of
from squeak_dist.distributed.schema import Source
from squeak_dist.errors import ClusterError, InsufficientMemoryError, VersionMismatchError

RAY = "ray"  # what a user passes as client

_PACKAGES = ("numpy", "scipy", "pandas", "dask")
_POLL_SECONDS = 0.2


class RayExecutor:
    """Runs the calls of a fit as Ray tasks, which start as soon as they are called.

    Parameters
    ----------
    progress : callable, optional
        Called with (stage, tasks done, tasks in all), from the thread of the fit.

    Raises
    ------
    ClusterError
        If Ray is not installed, or this process is not connected to one.

    Notes
    -----
    A value lives in Ray's object store while its handle does; what does not fit
    there, Ray spills to the disks of its nodes. A lost task is run again by Ray;
    an error of the library is not.
    """

    def __init__(self, progress: Callable[[str, int, int], None] | None = None) -> None:
        self._ray = connected_ray()
        self._run = self._ray.remote(num_returns=2, retry_exceptions=False)(_run_task)
        self._progress = progress
        self._versions = _versions()
        self._tables: dict[str, Any] = {}
        self._pending: list[Any] = []  # one small reference per task; it keeps no value alive

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Submit function(*args); return its object reference."""
        refs: list[Any] = []
        packed = tuple(self._packed(arg, refs) for arg in args)
        name = function.__name__.strip("_")
        task = self._run.options(name=f"squeak_{name}")
        handle, done = task.remote(self._versions, function, packed, *refs)
        self._pending.append(done)
        return handle

    def share(self, value: Any) -> Any:
        """Put a value into the object store."""
        return self._ray.put(value)

    def tables(self, source: Source) -> Sequence[Any]:
        """Return the tables of a source, each of which Ray stores once."""
        return source.tables

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        """Return the handles: Ray keeps what they stand for, on disk where memory is short."""
        return handles

    def keeps(self, nbytes: int) -> bool:
        """Return True: Ray keeps values of any size."""
        return True

    def gather(self, stage: str, handle: Any) -> Any:
        """Wait for a handle; return its value."""
        try:
            with _plain_errors(self._ray, stage):
                self._wait(stage)
                return self._ray.get(handle)
        except BaseException:
            self._cancel()
            raise

    def slots(self) -> int:
        """Return the CPUs of all nodes."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def check_memory(self, needed: int, explanation: str) -> None:
        """Compare with the memory per CPU of each node that Ray knows of."""
        for node in self._ray.nodes():
            resources = node["Resources"]
            cpus = int(resources.get("CPU", 0))
            if not node["Alive"] or not cpus or "memory" not in resources:
                continue
            limit = resources["memory"] / cpus
            if needed > limit:
                raise InsufficientMemoryError(
                    f"a task needs about {needed / 2**20:,.0f} MiB ({explanation}), but the Ray "
                    f"node {node['NodeManagerAddress']} has {limit / 2**20:,.0f} MiB per CPU; "
                    f"lower max_dictionary, cut the data into smaller partitions, or start the "
                    f"node with fewer CPUs or more memory"
                )

    def _packed(self, arg: Any, refs: list[Any]) -> Any:
        """Replace references by slots: Ray resolves those alone that are arguments themselves."""
        if isinstance(arg, list):
            return [self._packed(item, refs) for item in arg]
        ref = self._table(arg) if is_dask_collection(arg) else arg
        if not isinstance(ref, self._ray.ObjectRef):
            return arg
        refs.append(ref)
        return _Slot(len(refs) - 1)

    def _table(self, table: Any) -> Any:
        """Store a partition of the user once, uncomputed: a task reads it."""
        if table.key not in self._tables:
            self._tables[table.key] = self._ray.put(own_graph(table))
        return self._tables[table.key]

    def _wait(self, stage: str) -> None:
        """Wait for all tasks or the first error; report how many are done."""
        total, report = len(self._pending), self._progress or _silent
        report(stage, 0, total)
        while self._pending:
            done, self._pending = self._ray.wait(
                self._pending, num_returns=len(self._pending), timeout=_POLL_SECONDS
            )
            if done:
                self._ray.get(done)  # raises what a task raised
                report(stage, total - len(self._pending), total)

    def _cancel(self) -> None:
        for ref in self._pending:
            self._ray.cancel(ref)
        self._pending = []


def own_graph(table: Any) -> Any:
    """Return a Delayed with its own part of the graph alone.

    A partition of a frame carries the graph of all: with 2,000 partitions 0.27 MB
    each, and 1.7 kB when cut.
    """
    return dask.optimize(table)[0]


@dataclass(frozen=True)
class _Slot:
    """The place of a value that Ray hands to a task by itself."""

    position: int


def _run_task(
    versions: dict[str, str], function: Callable[..., Any], packed: tuple[Any, ...], *values: Any
) -> tuple[Any, None]:
    """Run a call in a worker of Ray, where partitions are read; the None says that it is done."""
    _check_versions(versions)
    read = [_read(value) for value in values]
    return function(*(_unpacked(arg, read) for arg in packed)), None


def _read(value: Any) -> Any:
    if not is_dask_collection(value):
        return value
    return value_of(dask.compute(value, scheduler="sync")[0])


def _unpacked(arg: Any, values: list[Any]) -> Any:
    if isinstance(arg, list):
        return [_unpacked(item, values) for item in arg]
    return values[arg.position] if isinstance(arg, _Slot) else arg


@cache
def _versions() -> dict[str, str]:
    return {"squeak_dist": __version__} | {name: version(name) for name in _PACKAGES}


def _check_versions(expected: dict[str, str]) -> None:
    """Compare in every task: nodes may join at any time. Ray itself compares Ray and Python."""
    here = _versions()
    differing = [f"{n}: driver {v}, worker {here[n]}" for n, v in expected.items() if v != here[n]]
    if differing:
        raise VersionMismatchError(
            f"the Ray node {platform.node()} has other versions than the driver: "
            f"{'; '.join(differing)}. Install the same versions everywhere, or name them in "
            f"ray.init(runtime_env=...)"
        )


def connected_ray() -> Any:
    """Return the module ray, of a process that is connected to a cluster.

    Raises
    ------
    ClusterError
        If Ray is not installed, or ``ray.init()`` was not called.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ClusterError(
            f"client={RAY!r} needs the package ray ({error}); pip install 'squeak-dist[ray]'"
        ) from error
    if not ray.is_initialized():
        raise ClusterError(
            f"client={RAY!r}, but this process is not connected to Ray; call ray.init() first, "
            f"or ray.init(address=...) for a cluster"
        )
    return ray


@contextmanager
def _plain_errors(ray: Any, stage: str) -> Iterator[None]:
    """Raise what a task raised, not Ray's wrapping of it."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError):
            cause = cause.cause
        if not isinstance(cause, ray.exceptions.RayError):
            raise cause from error
        died = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
        hint = (
            ". Workers died repeatedly; mostly they ran out of memory: lower max_dictionary, use "
            "smaller partitions, or give the nodes more memory"
        )
        raise ClusterError(
            f"Ray could not finish the {stage} stage: {cause}{hint * isinstance(cause, died)}"
        ) from error


def _silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""
