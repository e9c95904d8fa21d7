"""Ask a scheduler who it is, and say in one line why it does not answer.

A ``Client`` of its own would wait for ever where the other side speaks another
protocol, and ends some failures with a traceback of its destructor.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from distributed.core import rpc
from distributed.security import Security

from squeak_dist.cli.addresses import Address, connect_timeout
from squeak_dist.errors import ClusterError, InvalidParameterError

_PROBE = 5.0  # seconds, at most, to find out what else is spoken there

_MARGIN = 1.0  # seconds


def check_scheduler(address: Address, security: Security) -> None:
    """Check that a Dask scheduler answers and takes our certificate.

    Parameters
    ----------
    address : Address
        Where it should be.
    security : distributed.security.Security
        The certificates of this client.

    Raises
    ------
    InvalidParameterError
        If an encrypted address has no certificates, or they cannot be used, or Dask's
        configuration asks for encryption and the address has none.
    ClusterError
        If none answers within Dask's connect timeout, or one side refuses the other.

    Notes
    -----
    One small call: a few milliseconds on a scheduler that is up.
    """
    arguments = _connection_arguments(address, security)
    try:
        kind = asyncio.run(_kind(address.url, arguments))
    # Dask lets through whatever a stranger's bytes make of its protocol: MemoryError too.
    except Exception as error:
        raise ClusterError(_why(address, error)) from error
    if kind != "Scheduler":
        raise ClusterError(
            f"{address} is a Dask {kind.lower()}, not a scheduler; name the scheduler's address"
        )


def _connection_arguments(address: Address, security: Security) -> dict[str, Any]:
    try:
        arguments: dict[str, Any] = security.get_connection_args("client")
    except OSError as error:  # ssl.SSLError is one
        raise InvalidParameterError(
            f"the certificates for {address} cannot be used: {error}; expected PEM files of a CA, "
            f"of a certificate and of the key that belongs to it"
        ) from error
    if address.encrypted and arguments["ssl_context"] is None:
        raise InvalidParameterError(
            f"{address} is encrypted, so it needs certificates: give --tls-ca-file, --tls-cert "
            f"and --tls-key, or set distributed.comm.tls in Dask's configuration "
            f"(DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …__TLS__CLIENT__CERT, …__TLS__CLIENT__KEY)"
        )
    if arguments["require_encryption"] and not address.encrypted:
        raise InvalidParameterError(
            f"Dask's configuration requires encryption (distributed.comm.require-encryption), but "
            f"{address} has none; name a tls:// address"
        )
    return arguments


async def _kind(url: str, arguments: dict[str, Any]) -> str:
    async def identity() -> str:
        async with rpc(url, timeout=connect_timeout(), connection_args=arguments) as server:
            return str((await server.identity())["type"])

    # Dask's own timeout comes first, with its reason; where it has none, this one ends the wait.
    return await asyncio.wait_for(identity(), connect_timeout() + _MARGIN)


def _why(address: Address, error: BaseException) -> str:
    causes = _chain(error)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return (
            f"the scheduler at {address} shows a certificate that was not signed by the CA of "
            f"--tls-ca-file: it is another cluster's, or not whom it says; connect with that "
            f"cluster's CA"
        )
    tls = _speaks_tls(address)
    if tls and not address.encrypted:
        return (
            f"the scheduler at {address} speaks TLS; connect to tls://{address.host}:"
            f"{address.port} with --tls-ca-file, --tls-cert and --tls-key"
        )
    if tls and address.scheme == "tls":
        return (
            f"the scheduler at {address} refused this client's certificate; give one that its CA "
            f"signed, and that has not expired, with --tls-cert and --tls-key"
        )
    if tls is False:
        return (
            f"something listens at {address}, but it does not speak {address.scheme}:// as a Dask "
            f"scheduler does; check scheme and port"
        )
    reason = str(causes[-1]) or f"no answer within {connect_timeout():g} s"
    return (
        f"no Dask scheduler answers at {address}: {reason}. Check host, port and firewall, or "
        f"wait longer with DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=60s"
    )


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what caused it, the first cause last; not what was cancelled."""
    chain = [error]
    while (cause := chain[-1].__cause__) and not isinstance(cause, asyncio.CancelledError):
        chain.append(cause)
    return chain


def _speaks_tls(address: Address) -> bool | None:
    """Return whether a server starts TLS with a stranger; None if nobody listens."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only asked what it speaks; nothing is sent
    try:
        raw = socket.create_connection((address.host, address.port), timeout=_PROBE)
    except OSError:
        return None
    with raw:
        try:
            context.wrap_socket(raw, server_hostname=address.host).close()
        except ssl.SSLError as error:
            return "ALERT" in str(error.reason)
        except OSError:
            return False
    return True
