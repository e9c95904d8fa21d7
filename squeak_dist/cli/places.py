"""Options that say where a command runs, and with which credentials it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

from squeak_dist.cli.options import StorageOptions, option
from squeak_dist.errors import InvalidParameterError

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_GROUP = "Where it runs"
_SCHEDULER_OPTIONS = (
    option(
        "--scheduler",
        group=_GROUP,
        metavar="ADDRESS",
        help="Dask cluster to run on: tcp://…, tls://…, ws://… or wss://…  "
        "[default: $DASK_SCHEDULER_ADDRESS]",
    ),
    option(
        "--scheduler-file",
        group=_GROUP,
        type=click.Path(),
        metavar="PATH",
        help="File that `dask scheduler --scheduler-file` writes; waited for.",
    ),
    option(
        "--tls-ca-file",
        group=_GROUP,
        type=_FILE,
        metavar="PATH",
        help="PEM of the CA that signed the scheduler's certificate.",
    ),
    option(
        "--tls-cert",
        group=_GROUP,
        type=_FILE,
        metavar="PATH",
        help="PEM of this client's certificate.",
    ),
    option(
        "--tls-key", group=_GROUP, type=_FILE, metavar="PATH", help="PEM of this client's key."
    ),
)
_LOCAL_OPTIONS = (
    option(
        "--workers",
        group=_GROUP,
        type=click.IntRange(min=0),
        metavar="COUNT",
        help="Worker processes to start here; 0: threads of this process.  [default: one per CPU]",
    ),
    option("--quiet", group=_GROUP, is_flag=True, help="No progress bars."),
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
    return _with_options(command, _SCHEDULER_OPTIONS + _LOCAL_OPTIONS)


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command those that name a scheduler which runs already, as ``cluster``."""
    return _with_options(command, _SCHEDULER_OPTIONS)


def _with_options(
    command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]
) -> Callable[..., Any]:
    names = {field.name for field in fields(Place)}

    @wraps(command)
    def placed(**arguments: Any) -> Any:
        place = Place(**{name: arguments.pop(name) for name in names & arguments.keys()})
        return command(**arguments, cluster=place)

    result: Callable[..., Any] = placed
    for decorate in reversed(options):
        result = decorate(result)
    return result


def storage_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--storage-options``, for the file systems of the URLs that it is given."""

    @wraps(command)
    def equipped(**arguments: Any) -> Any:
        given: dict[str, Any] = {}
        for options in arguments.pop("storage_options"):
            given |= options
        with file_system_defaults(given, _texts(arguments.values())):
            return command(**arguments)

    return option(
        "--storage-options",
        type=StorageOptions(),
        multiple=True,
        metavar="KEY=VALUE",
        help="For URLs: credentials, endpoints and the like, as fsspec takes them; repeat it, or "
        "give a JSON object.",
    )(equipped)


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts(value)


@contextmanager
def file_system_defaults(options: Mapping[str, Any], urls: Iterable[str]) -> Iterator[None]:
    """Make options the defaults of the file systems of some URLs; local ones need none.

    Parameters
    ----------
    options : mapping
        As fsspec takes them.
    urls : iterable of str
        Paths are ignored.
    """
    if not options:
        yield
        return
    from fsspec.config import conf

    protocols = {link.partition("://")[0] for url in urls for link in url.split("::")
                 if "://" in link}  # fmt: skip
    before = dict(conf)
    conf.update({name: {**conf.get(name, {}), **options} for name in protocols - {"file"}})
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)


def options_for(url: str | None) -> dict[str, Any]:
    """Return the defaults of the file system of a URL, for processes that do not have them."""
    from fsspec.config import conf

    return dict(conf.get(url.partition("://")[0], {})) if url is not None and "://" in url else {}
