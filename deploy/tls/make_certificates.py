"""Make a CA and certificates for the scheduler, the workers and the clients of a Dask cluster.

    python deploy/tls/make_certificates.py certs --host scheduler --host 10.0.0.5

writes, readable by you alone:

    certs/ca/         ca.pem ca-key.pem          keep the key off the cluster
    certs/scheduler/  ca.pem cert.pem key.pem
    certs/worker/     ca.pem cert.pem key.pem
    certs/client/     ca.pem cert.pem key.pem

Whoever holds a certificate of this CA can run code on the cluster. So make a CA for each
cluster, and use it for nothing else. Needs the package cryptography: `pip install
"squeak-dist[tls]"`.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
# The scheduler calls workers and workers call each other, so both are servers and clients.
ROLES = {
    "scheduler": (_SERVER, _CLIENT),
    "worker": (_SERVER, _CLIENT),
    "client": (_CLIENT,),
}
_CLOCKS_DIFFER = timedelta(minutes=5)  # between the machine that signs and those that check


class Refused(Exception):
    """What was asked for is not done; the message says why."""


@dataclass(frozen=True)
class Authority:
    """A CA: its key and certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_authority(name: str, days: int) -> Authority:
    """Return a new CA that signs certificates of servers and clients, but no other CA.

    Parameters
    ----------
    name : str
        Common name.
    days : int
        How long it is valid.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def make_certificate(
    authority: Authority, role: str, hosts: list[str], days: int
) -> tuple[bytes, bytes]:
    """Return the PEM of a certificate and of its key.

    Parameters
    ----------
    authority : Authority
        Who signs.
    role : {"scheduler", "worker", "client"}
        What for: a client's certificate cannot be a server's.
    hosts : list of str
        Names and addresses under which it is reached.
    days : int
        How long it is valid.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(f"squeak-dist {role}"), authority.certificate.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(ROLES[role]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def write_all(directory: Path, hosts: list[str], days: int) -> list[Path]:
    """Write a new CA and a certificate for each role; return the directories.

    Parameters
    ----------
    directory : Path
        Must not hold any of them yet.
    hosts : list of str
        Names and addresses of the scheduler; workers have those of this machine too.
    days : int
        How long they are valid.

    Raises
    ------
    Refused
        If something is there already. Nothing is written then.
    """
    places = {name: directory / name for name in ("ca", *ROLES)}
    if there := [str(place) for place in places.values() if place.exists()]:
        raise Refused(
            f"{', '.join(there)} exists, and is not overwritten: the certificates of a running "
            f"cluster would no longer fit; name another directory, or move it away"
        )
    authority = make_authority(f"squeak-dist {directory.name} CA", days)
    with _for_owner_only():
        directory.mkdir(parents=True, exist_ok=True)
        for place in places.values():
            place.mkdir()
        _write(places["ca"] / "ca.pem", _pem(authority.certificate))
        _write(places["ca"] / "ca-key.pem", _key_pem(authority.key))
        for role in ROLES:
            names = {"scheduler": hosts, "worker": ["worker", *hosts], "client": ["client"]}
            certificate, key = make_certificate(authority, role, names[role], days)
            _write(places[role] / "ca.pem", _pem(authority.certificate))
            _write(places[role] / "cert.pem", certificate)
            _write(places[role] / "key.pem", key)
    return list(places.values())


def give_away(directory: Path, user: int, group: int) -> None:
    """Make another user the owner of the certificates; the CA's key stays yours.

    Parameters
    ----------
    directory : Path
        What :func:`write_all` wrote.
    user, group : int
        Numbers of the new owner.
    """
    os.chown(directory, user, group)
    for place in (directory / role for role in ROLES):
        for path in (place, *place.iterdir()):
            os.chown(path, user, group)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - _CLOCKS_DIFFER
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(**allowed: bool) -> x509.KeyUsage:
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@contextmanager
def _for_owner_only() -> Iterator[None]:
    """Make what is created meanwhile readable by its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _host(text: str) -> str:
    """Return a name or an address that a certificate can hold."""
    try:
        _general_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not text or (any(c in text for c in "/ :") and not _is_address(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a host name nor an IP address")
    return text


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _owner(text: str) -> tuple[int, int]:
    user, _, group = text.partition(":")
    return int(user), int(group)


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 3650:
        raise argparse.ArgumentTypeError(f"{days} is not from 1 to 3650")
    return days


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="where to write")
    parser.add_argument(
        "--host",
        action="append",
        type=_host,
        default=[],
        help="name or IP address of the scheduler; repeat it [always: localhost, 127.0.0.1, ::1, "
        "scheduler]",
    )
    parser.add_argument(
        "--owner",
        type=_owner,
        metavar="UID:GID",
        help="whose files they become, as 1000:1000 of the container image; only root may [you]",
    )
    parser.add_argument("--days", type=_days, default=365, help="valid for [default: 365]")
    options = parser.parse_args(arguments)
    hosts = list(dict.fromkeys(["localhost", "127.0.0.1", "::1", "scheduler", *options.host]))
    try:
        places = write_all(options.directory, hosts, options.days)
        if options.owner is not None:
            give_away(options.directory, *options.owner)
    except (Refused, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    for place in places:
        print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
