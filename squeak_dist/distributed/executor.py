"""The Dask executor of a fit: one graph per stage, on a cluster or on local threads."""

from __future__ import annotations

import itertools
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import dask
import psutil
from dask.callbacks import Callback
from dask.core import quote
from dask.system import CPU_COUNT
from distributed import (
    Client,
    Future,
    KilledWorker,
    default_client,
    futures_of,
    get_worker,
    worker_client,
)
from distributed.comm import CommClosedError

from squeak_dist.checkpoint import Vault
from squeak_dist.classes import Classes
from squeak_dist.distributed.calls import Call, as_delayed, call_of
from squeak_dist.distributed.failures import Guarded, value_of
from squeak_dist.distributed.identity import open_for
from squeak_dist.distributed.on_ray import RAY, RayExecutor
from squeak_dist.distributed.reading import Reading, unread
from squeak_dist.distributed.sources import Source
from squeak_dist.errors import (
    ClusterError,
    InsufficientMemoryError,
    LargeTable,
    SqueakError,
    StorageError,
    warn_user,
)
from squeak_dist.linalg import single_blas_thread
from squeak_dist.model import FittedModel
from squeak_dist.progress import Progress, TaskListener, automatic_view
from squeak_dist.stages import (
    CheckpointExecutor,
    Executor,
    FitParameters,
    Forecast,
    Stream,
    fit_stream,
    fit_tables,
    forecast_fit,
    task_facts,
)
from squeak_dist.validation import check_memory, check_versions

TOPIC = "squeak_dist-"  # what the topics of Dask's events begin with: one per fit
_KEY = "squeak"  # what the keys of a fit's tasks begin with
_REMOTE = ("aiohttp", "azure", "botocore", "gcsfs", "google")  # errors that are no OSError
_LARGE_TABLE = 256 << 20  # bytes in memory that are better read by the workers
_WARNED_SIZE = "distributed.admin.large-graph-warning-threshold"
_ANY_SIZE = threading.Lock()  # Dask's configuration is that of all threads
_WORKER_TIMEOUT = 30  # seconds that a fit waits for the first worker


class DaskExecutor:
    """Runs the calls of a fit as Dask tasks: one graph per stage.

    Parameters
    ----------
    client : distributed.Client, optional
        Where to run; without one, Dask's threaded scheduler in this process.
    progress : callable, optional
        Called with (stage, tasks done, tasks in all), from the client's event
        loop: it must be quick, must not raise and must not use the client. A
        :class:`~squeak_dist.progress.TaskListener` also hears what each task says of itself.

    Notes
    -----
    On a cluster each task logs an event when it is done, and each stage when it begins, under
    a topic of the fit: ``squeak-dist watch`` reads them.
    """

    def __init__(self, client: Client | None, progress: Progress | None = None) -> None:
        self._client = client
        self._progress = progress
        self._calls = 0  # since the last gather
        self._numbers = itertools.count()
        self._run = uuid.uuid4().hex[:8]
        self._topic = f"{TOPIC}{self._run}"

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a :class:`~squeak_dist.distributed.calls.Call` of function(*args)."""
        self._calls += 1
        task: Callable[..., Any] = Guarded(Reading(function))
        if self._client is not None:
            task = _Announced(task, self._topic)
        name = function.__name__.strip("_").replace("_", "-")
        return call_of(f"{_KEY}-{name}-{self._run}-{next(self._numbers):06}", task, args)

    def share(self, value: Any) -> Any:
        """Return a value as one key of the graph."""
        return Call(f"{type(value).__name__}-{self._run}-{next(self._numbers)}", quote(value))

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        """Keep encoded partitions in memory if they take at most half of it."""
        if not self.keeps(nbytes):
            return handles
        delayed = as_delayed(handles)
        if self._client is not None:
            values = [futures_of(one)[0] for one in self._client.persist(delayed)]
        else:
            with single_blas_thread():
                values = dask.compute(*delayed)
        return [Call(call.key, quote(value)) for call, value in zip(handles, values, strict=True)]

    def keeps(self, nbytes: int) -> bool:
        """Return whether values are at most half of all memory."""
        return nbytes <= _total_memory(self._client) // 2

    def gather(self, stage: str, handle: Any) -> Any:
        """Compute one handle; its graph is the stage."""
        calls, self._calls = self._calls, 0
        with _storage_errors(stage):
            if self._client is not None:
                return value_of(self._gather_from_cluster(stage, handle, calls))
            with single_blas_thread(), _local_progress(self._progress, stage, calls):
                (value,) = dask.compute(*as_delayed([handle]))
            return value_of(value)

    def tables(self, source: Source) -> Sequence[Any]:
        """Return the tables of a source; rows in memory are sent to the cluster, once.

        Partitions that stand by themselves are read by the tasks that take them.

        Each partition is the argument of a task, which the scheduler keeps and so can run
        again where a worker is lost; scattered rows would be lost with it.
        """
        if self._client is None:
            return source.tables
        if not source.nbytes:
            return unread(source.tables) or source.tables
        if source.nbytes > _LARGE_TABLE:
            warn_user(
                f"{source.nbytes / 2**20:,.0f} MiB of rows in memory go through the Dask "
                f"scheduler, which keeps them until the work is done; write them to parquet and "
                f"pass the path, so that the workers read them",
                LargeTable,
            )
        with _ANY_SIZE, dask.config.set({_WARNED_SIZE: sys.maxsize}):  # it is said above
            return [self._client.persist(table) for table in source.tables]

    def check_memory(self, needed: int, explanation: str) -> None:
        """Compare with the memory limit of each worker, or with this machine's."""
        if self._client is not None:
            check_memory(self._client, needed, explanation)
            return
        available = psutil.virtual_memory().available
        if needed > available:
            raise InsufficientMemoryError(
                f"a task needs about {needed / 2**20:,.0f} MiB ({explanation}), but "
                f"{available / 2**20:,.0f} MiB are free on this machine; lower max_dictionary or "
                f"cut the data into smaller partitions"
            )

    def slots(self) -> int:
        """Return the threads of all workers, or the CPUs of this machine."""
        if self._client is None:
            return int(dask.config.get("num_workers", CPU_COUNT))
        return max(1, sum(self._client.nthreads().values()))

    def _gather_from_cluster(self, stage: str, handle: Any, calls: int) -> Any:
        assert self._client is not None
        with (
            _cluster_errors(f"the {stage} stage"),
            _cluster_progress(self._client, self._topic, self._progress, stage, calls),
        ):
            begun = isinstance(handle.task, Future)
            future = handle.task if begun else self._client.compute(*as_delayed([handle]))
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise


@contextmanager
def _storage_errors(stage: str) -> Iterator[None]:
    """Say in which stage a file system failed, whose errors do not."""
    try:
        yield
    except SqueakError:
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or type(error).__module__.startswith(_REMOTE)):
            raise
        raise StorageError(
            f"a file system failed during the {stage} stage: {type(error).__name__}: {error}. Fit "
            f"again when it is back; with a checkpoint, finished parts are not lost"
        ) from error


@contextmanager
def _cluster_errors(when: str) -> Iterator[None]:
    """Say what to do where Dask says only that workers died, or the scheduler is gone."""
    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died repeatedly during {when}: {error}. Mostly they ran "
            f"out of memory: lower max_dictionary, use smaller partitions, or give the "
            f"workers more memory"
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            f"the Dask scheduler was lost during {when}: {error} Its tasks are gone; see that "
            f"a scheduler runs and can be reached, and start again"
        ) from error


class _Announced:
    """A task that tells the client when it is done."""

    def __init__(self, function: Callable[..., Any], topic: str) -> None:
        self.function = function
        self.topic = topic
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        value = self.function(*args)
        get_worker().log_event(self.topic, task_facts(self.__name__, value))
        return value


@contextmanager
def _cluster_progress(
    client: Client, topic: str, progress: Progress | None, stage: str, total: int
) -> Iterator[None]:
    client.log_event(topic, {"stage": stage, "total": total})
    if progress is None:
        yield
        return
    done, over = 0, False

    def count(event: Any) -> None:
        nonlocal done
        _, facts = event
        if not over and "task" in facts:  # events may come late
            done = min(done + 1, total)  # a task that ran twice after a lost worker counts once
            _tell(progress, facts)
            progress(stage, done, total)

    progress(stage, 0, total)
    client.subscribe_topic(topic, count)
    try:
        yield
    finally:
        over = True
        client.unsubscribe_topic(topic)
    progress(stage, total, total)


def _tell(progress: Progress, facts: Mapping[str, Any]) -> None:
    if isinstance(progress, TaskListener):
        progress.task_done(facts)


@contextmanager
def _local_progress(progress: Progress | None, stage: str, total: int) -> Iterator[None]:
    if progress is None:
        yield
        return
    done = 0

    def count(key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        nonlocal done
        if str(key).startswith(_KEY):  # not the user's own tasks, which are in the graph too
            done = min(done + 1, total)
            # A key is squeak-<name>-<run>-<number>, the name without its underscores.
            name = "_" + "_".join(str(key).split("-")[1:-2])
            _tell(progress, task_facts(name, result))
            progress(stage, done, total)

    progress(stage, 0, total)
    with Callback(posttask=count):
        yield
    progress(stage, total, total)


def _total_memory(client: Client | None) -> int:
    if client is None:
        return int(psutil.virtual_memory().available)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(info["memory_limit"] or psutil.virtual_memory().total for info in workers)


@contextmanager
def active_client(client: Client | str | None) -> Iterator[Client | None]:
    """Yield the client to run on: the given one, the task's own, the default one, or None.

    Raises
    ------
    ClusterError
        If it is asynchronous, or no Dask client at all.
    """
    if client is None and _inside_a_task():
        with worker_client() as own:
            yield own
        return
    found = _default_client() if client is None else client
    if found is not None and not isinstance(found, Client):
        raise ClusterError(
            f"client must be a distributed.Client or {RAY!r}, got {type(found).__name__}; pass "
            f"Client(address) or Client(cluster)"
        )
    if found is not None and found.asynchronous:
        raise ClusterError(
            "the Dask client is asynchronous, but fit waits for results; make a client with "
            "asynchronous=False, or call fit in a thread: await asyncio.to_thread(fit, …)"
        )
    yield found


@contextmanager
def active_executor(
    client: Client | str | None, progress: Progress | bool | None = None
) -> Iterator[DaskExecutor | RayExecutor]:
    """Yield the executor to run on: Ray, the active client, or local threads.

    Parameters
    ----------
    client : distributed.Client or "ray", optional
        The current client by default.
    progress : callable or bool, optional
        True: a view in a notebook or terminal, and nothing elsewhere.

    Raises
    ------
    VersionMismatchError, ClusterError
        If it cannot do the work.
    """
    with _followed(progress) as told:
        if client == RAY:
            yield RayExecutor(told)
            return
        with active_client(client) as chosen:
            if chosen is not None:
                _wait_for_a_worker(chosen)
                check_versions(chosen)
            yield DaskExecutor(chosen, told)


@contextmanager
def _followed(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Yield the callable that is told of a fit: the given one, or a view of its own."""
    if not isinstance(progress, bool):
        yield progress
        return
    view = automatic_view() if progress else None
    try:
        yield view
    finally:
        if view is not None:
            view.close()


def _wait_for_a_worker(client: Client) -> None:
    if client.status != "running":
        return  # check_versions says so
    try:
        client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask cluster has no workers after {_WORKER_TIMEOUT} s; start some (an adaptive "
            f"cluster needs a minimum of 1)"
        ) from error


def _inside_a_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True


def _default_client() -> Client | None:
    try:
        return default_client()
    except ValueError:
        return None


def fit_source(
    source: Source,
    parameters: FitParameters,
    *,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    checkpoint: Vault | None = None,
    classes: Classes | None = None,
) -> FittedModel:
    """Fit a model to a source on a cluster, or on local threads.

    Parameters
    ----------
    source : Source
        Partitions.
    parameters : FitParameters
        All parameters.
    client : distributed.Client or "ray", optional
        The current client by default; ``"ray"``: the Ray that this process is connected to.
    progress : callable, optional
        Called with (stage, tasks done, tasks in all); True: a view of its own.
    checkpoint : Vault, optional
        Where finished parts are kept, and found by a second fit.
    classes : Classes, optional
        What the ±1 columns of the target stand for.

    Raises
    ------
    CheckpointError, CheckpointMismatchError
        Before work is submitted, for a checkpoint that cannot be written or is of
        another fit.
    VersionMismatchError, ClusterError, InsufficientMemoryError
        Before work is submitted.
    DataError
        After the profile, for what only the values show.
    """
    opened = None if checkpoint is None else open_for(source, parameters, checkpoint)
    with active_executor(client, progress) as chosen:
        executor: Executor = chosen
        tables = chosen.tables(source)
        if opened is not None:
            executor = checkpointing = CheckpointExecutor(executor, opened)
            tables = checkpointing.tables(tables)
        return fit_tables(
            executor,
            tables,
            source.schema,
            parameters,
            target_names=source.target_names,
            single_output=source.single_output,
            unnamed_features=source.unnamed_features,
            classes=classes,
        )


def forecast_source(
    source: Source,
    parameters: FitParameters,
    *,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
) -> Forecast:
    """Say what a fit to a source would cost where it would run.

    Parameters
    ----------
    source, parameters, client, progress
        As in :func:`fit_source`; so are the errors.
    """
    with active_executor(client, progress) as executor:
        return forecast_fit(
            executor, executor.tables(source), parameters, n_outputs=len(source.schema.targets)
        )


def extend_source(
    stream: Stream | None,
    source: Source,
    parameters: FitParameters,
    *,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
    classes: Classes | None = None,
) -> tuple[Stream, FittedModel]:
    """Pass the partitions of a source through a stream, one after the other.

    Parameters
    ----------
    stream : Stream, optional
        So far.
    source, parameters, client, progress, classes
        As in :func:`fit_source`; so are the errors.
    """
    with active_executor(client, progress) as executor:
        return fit_stream(
            executor,
            stream,
            executor.tables(source),
            parameters,
            target_names=source.target_names,
            single_output=source.single_output,
            unnamed_features=source.unnamed_features,
            classes=classes,
        )
