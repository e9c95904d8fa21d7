"""Addresses of schedulers: read, checked, and found in a scheduler file."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dask
from dask.utils import parse_timedelta

from squeak_dist.errors import ClusterError, InvalidParameterError

_ENCRYPTED = {"tls", "wss"}
_SCHEMES = ("tcp", "tls", "ws", "wss")
_POLL = 0.2  # seconds between two looks for a file


@dataclass(frozen=True)
class Address:
    """Where a scheduler listens.

    Parameters
    ----------
    scheme : {"tcp", "tls", "ws", "wss"}
        What it speaks.
    host : str
        Name or IP.
    port : int
        From 1 to 65,535.
    url : str
        All of it, as Dask takes it.
    """

    scheme: str
    host: str
    port: int
    url: str

    @property
    def encrypted(self) -> bool:
        """Whether both sides show certificates."""
        return self.scheme in _ENCRYPTED

    def __str__(self) -> str:
        return self.url


def connect_timeout() -> float:
    """Return Dask's ``distributed.comm.timeouts.connect`` in seconds."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect")))


def parse_address(text: str, *, encrypted: bool) -> Address:
    """Return an address that can be connected to.

    Parameters
    ----------
    text : str
        ``scheme://host:port``. Without a scheme it is Dask's default one.
    encrypted : bool
        Whether certificates were given: then the default is tls, and others are refused.

    Raises
    ------
    InvalidParameterError
        With what was got, and what an address looks like.
    """
    default = "tls" if encrypted else dask.config.get("distributed.comm.default-scheme")
    url = text if "://" in text else f"{default}://{text}"
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidParameterError(
            f"{text!r} is not the address of a Dask scheduler: {parts.scheme}:// is not one of "
            f"{', '.join(f'{scheme}://' for scheme in _SCHEMES)}"
        )
    host, port = _host_and_port(text, url)
    if encrypted and parts.scheme not in _ENCRYPTED:
        raise InvalidParameterError(
            f"certificates were given, but {text!r} is not encrypted; write tls://{host}:{port}, "
            f"or leave the --tls options out"
        )
    return Address(parts.scheme, host, port, url)


def _host_and_port(text: str, url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port:
        raise InvalidParameterError(
            f"{text!r} is not the address of a Dask scheduler; expected a host and a port from 1 "
            f"to 65,535, as in tcp://localhost:8786"
        )
    return parts.hostname, port


def address_in_file(path: str) -> str:
    """Return the address that a scheduler wrote to a file, once it has.

    Parameters
    ----------
    path : str
        What ``dask scheduler --scheduler-file`` got.

    Raises
    ------
    ClusterError
        If there is no such file within Dask's connect timeout.
    InvalidParameterError
        If it holds no address even then.
    """
    end = time.monotonic() + connect_timeout()
    while True:
        try:
            return str(json.loads(Path(path).read_text(encoding="utf-8"))["address"])
        except FileNotFoundError as error:
            failure: Exception = ClusterError(
                f"no Dask scheduler wrote {path} within {connect_timeout():g} s; start one with "
                f"`dask scheduler --scheduler-file {path}`"
            )
            cause: Exception = error
        except (ValueError, KeyError, TypeError) as error:  # half written, or something else
            failure = InvalidParameterError(
                f"{path} is not a Dask scheduler file: expected JSON with an address"
            )
            cause = error
        if time.monotonic() >= end:
            raise failure from cause
        time.sleep(_POLL)
