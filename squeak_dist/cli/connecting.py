"""Where a command runs: a Dask cluster that is up, or worker processes started here."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.resource_tracker import ensure_running

import dask
from distributed import Client, LocalCluster
from distributed.security import Security

from squeak_dist.cli.addresses import Address, address_in_file, connect_timeout, parse_address
from squeak_dist.cli.handshake import check_scheduler
from squeak_dist.cli.places import Place
from squeak_dist.errors import ClusterError, InvalidParameterError


@contextmanager
def connected(place: Place) -> Iterator[Client | None]:
    """Yield a client of the scheduler, or of worker processes started here, or None.

    Parameters
    ----------
    place : Place
        What the user asked for. Without a scheduler and a number of workers, that of
        ``DASK_SCHEDULER_ADDRESS`` or of Dask's configuration files, then this machine.

    Raises
    ------
    InvalidParameterError
        If more than one place is named, the address is none, or the certificates do not
        fit it or each other.
    ClusterError
        If no scheduler answers within Dask's connect timeout, or one of the two sides
        refuses the other's certificate.
    """
    place.check()
    address = _address(place)
    if address is not None:
        with _remote(address, place) as client:
            yield client
    elif place.tls_files():
        raise InvalidParameterError(
            "--tls-ca-file, --tls-cert and --tls-key are for a scheduler that is up, but none is "
            "named; add --scheduler tls://HOST:PORT or --scheduler-file PATH"
        )
    elif place.workers == 0:
        yield None
    else:
        with _local(place.workers or os.cpu_count() or 1) as client:
            yield client


@contextmanager
def connected_to_scheduler(place: Place) -> Iterator[Client]:
    """Yield a client of a scheduler that is up; nothing is started.

    Parameters
    ----------
    place : Place
        As for :func:`connected`, whose errors these are.
    """
    place.check()
    address = _address(place)
    if address is None:
        raise InvalidParameterError(
            "no scheduler is named; add --scheduler tcp://HOST:PORT or --scheduler-file PATH"
        )
    with _remote(address, place) as client:
        yield client


def _address(place: Place) -> Address | None:
    text = place.scheduler
    if text is None and place.scheduler_file is not None:
        text = address_in_file(place.scheduler_file)
    if text is None and place.workers is None:
        # The variable may have been set after Dask read its configuration.
        configured = dask.config.get("scheduler-address", None)
        text = os.environ.get("DASK_SCHEDULER_ADDRESS") or configured or None
    return parse_address(text, encrypted=bool(place.tls_files())) if text is not None else None


@contextmanager
def _remote(address: Address, place: Place) -> Iterator[Client]:
    files = place.tls_files()
    security = Security(**files, **({"require_encryption": True} if files else {}))
    check_scheduler(address, security)
    # What fails there ends here as an error of one line, without Dask's traceback before it.
    for name in ("distributed", "distributed.client"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(
            address.url, timeout=connect_timeout(), security=security, set_as_default=False
        )
    except OSError as error:
        raise ClusterError(f"the Dask scheduler at {address} went away: {error}") from error
    with client:
        yield client


@contextmanager
def _local(workers: int) -> Iterator[Client]:
    with _interrupts_held():
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",  # whatever Dask's configuration says: nobody else has a say here
            protocol="tcp",
            security=Security(require_encryption=False),
            dashboard_address=None,
            silence_logs=logging.CRITICAL,  # what fails there ends here as an error of one line
        )
    with cluster, Client(cluster) as client:
        yield client


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the end; processes started here never hear of it.

    A terminal sends it to the workers too, which would each print a traceback. What
    ends them is the end of their cluster.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    ensure_running()  # or it starts with the first worker, and lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
