"""Where a command runs: a Dask cluster that is up, or worker processes started here."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import click
import dask
from distributed import Client, LocalCluster
from distributed.security import Security

from squeak_dist.cli.addresses import Address, address_in_file, connect_timeout, parse_address
from squeak_dist.cli.handshake import check_scheduler
from squeak_dist.errors import ClusterError, InvalidParameterError

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_OPTIONS = (
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask cluster to run on: tcp://…, tls://…, ws://… or wss://… "
        "[default: $DASK_SCHEDULER_ADDRESS]",
    ),
    click.option(
        "--scheduler-file",
        metavar="PATH",
        help="File that `dask scheduler --scheduler-file` writes; waited for.",
    ),
    click.option(
        "--tls-ca-file",
        type=_FILE,
        metavar="PATH",
        help="PEM of the CA that signed the scheduler's certificate.",
    ),
    click.option(
        "--tls-cert", type=_FILE, metavar="PATH", help="PEM of this client's certificate."
    ),
    click.option("--tls-key", type=_FILE, metavar="PATH", help="PEM of this client's key."),
    click.option(
        "--workers",
        type=click.IntRange(min=0),
        metavar="COUNT",
        help="Worker processes to start here; 0: threads of this process.  [default: one per CPU]",
    ),
    click.option("--quiet", is_flag=True, help="No progress bars."),
)


@dataclass(frozen=True)
class Place:
    """Where a command runs, as the options say.

    Parameters
    ----------
    scheduler : str or None
        Address of a scheduler.
    scheduler_file : str or None
        File that tells it.
    tls_ca_file, tls_cert, tls_key : str or None
        PEM files; what is not given comes from Dask's configuration.
    workers : int or None
        Worker processes to start here.
    """

    scheduler: str | None = None
    scheduler_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    workers: int | None = None

    def check(self) -> None:
        """Check that at most one place is named.

        Raises
        ------
        InvalidParameterError
            Naming the options that exclude each other.
        """
        named = {"--scheduler": self.scheduler, "--scheduler-file": self.scheduler_file}
        given = [name for name, value in named.items() if value is not None]
        given += ["--workers"] if self.workers is not None else []
        if len(given) > 1:
            raise InvalidParameterError(
                f"{' and '.join(given)} exclude each other: a command runs on one cluster"
            )

    def tls_files(self) -> dict[str, str]:
        """Return the PEM files that were given, by their names in ``Security``."""
        files = {
            "tls_ca_file": self.tls_ca_file,
            "tls_client_cert": self.tls_cert,
            "tls_client_key": self.tls_key,
        }
        return {name: path for name, path in files.items() if path}


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where it runs, as one argument ``cluster``."""
    names = [field.name for field in fields(Place)]

    @wraps(command)
    def placed(**arguments: Any) -> Any:
        place = Place(**{name: arguments.pop(name) for name in names})
        return command(**arguments, cluster=place)

    result: Callable[..., Any] = placed
    for option in reversed(_OPTIONS):
        result = option(result)
    return result


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
