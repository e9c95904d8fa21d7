"""deploy/tls: what the certificates are for, who may read them, and how compose mounts them."""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
x509 = pytest.importorskip("cryptography.x509")

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "deploy" / "tls" / "make_certificates.py"
ROLES = ("scheduler", "worker", "client")


def make(*arguments, directory):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True,
        cwd=directory, umask=0,
    )  # fmt: skip


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(cert, kind):
    return cert.extensions.get_extension_for_class(kind).value


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_may_read_them(tmp_path):
    """Whatever the umask is."""
    done = make("new/certs", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    made = sorted((tmp_path / "new" / "certs").rglob("*"))
    assert len(made) == 4 + 2 + 3 * 3
    for path in made:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    for role in ROLES:
        names = sorted(path.name for path in (tmp_path / "new" / "certs" / role).iterdir())
        assert names == ["ca.pem", "cert.pem", "key.pem"], "no service sees the CA's key"


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "certs" / "worker").mkdir(parents=True)
    done = make("certs", directory=tmp_path)
    assert done.returncode == 2
    assert "certs/worker exists, and is not overwritten" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["certs", "worker"]
    (tmp_path / "certs" / "worker").rmdir()
    assert make("certs", directory=tmp_path).returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "certs").rglob("*.pem")}
    assert make("certs", directory=tmp_path).returncode == 2
    assert {p: p.read_bytes() for p in (tmp_path / "certs").rglob("*.pem")} == before


@pytest.mark.parametrize(
    "arguments",
    [("--host", "a/b"), ("--host", ""), ("--host", "a:1"), ("--days", "0"), ("--days", "9999"),
     ("--owner", "me")],
)  # fmt: skip
def test_bad_arguments_write_nothing(tmp_path, arguments):
    done = make("certs", *arguments, directory=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_each_certificate_is_for(tmp_path):
    done = make("certs", "--host", "head.example.org", "--host", "10.0.0.5", "--days", "30",
                directory=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    ca = certificate(tmp_path / "certs" / "ca" / "ca.pem")
    assert extension(ca, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    server, client = (x509.oid.ExtendedKeyUsageOID.SERVER_AUTH,
                      x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)  # fmt: skip
    uses = {"scheduler": {server, client}, "worker": {server, client}, "client": {client}}
    keys = set()
    for role in ROLES:
        place = tmp_path / "certs" / role
        cert = certificate(place / "cert.pem")
        cert.verify_directly_issued_by(ca)
        assert extension(cert, x509.BasicConstraints).ca is False
        assert set(extension(cert, x509.ExtendedKeyUsage)) == uses[role]
        lifetime = cert.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=29) < lifetime <= timedelta(days=30)
        assert cert.not_valid_before_utc < datetime.now(UTC)
        ssl.create_default_context(cafile=place / "ca.pem").load_cert_chain(
            place / "cert.pem", place / "key.pem"
        )
        keys.add((place / "key.pem").read_bytes())
    assert len(keys) == 3
    names = extension(
        certificate(tmp_path / "certs" / "scheduler" / "cert.pem"), x509.SubjectAlternativeName
    )
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "scheduler",
                                                       "head.example.org"]  # fmt: skip
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address(address) for address in ("127.0.0.1", "::1", "10.0.0.5")
    ]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may chown")
def test_they_can_be_given_to_the_user_of_the_image(tmp_path):
    assert make("certs", "--owner", "1000:1001", directory=tmp_path).returncode == 0
    for role in ROLES:
        for path in (tmp_path / "certs" / role).iterdir():
            assert (path.stat().st_uid, path.stat().st_gid) == (1000, 1001)
    assert (tmp_path / "certs" / "ca" / "ca-key.pem").stat().st_uid == 0


# --- compose ----------------------------------------------------------------------------------

OVERLAY = TOP / "deploy" / "tls" / "docker-compose.tls.yml"
BASE = TOP / "docker-compose.yml"


def services(path):
    return yaml.safe_load(path.read_text())["services"]


def test_the_overlay_encrypts_every_service():
    overlay = services(OVERLAY)
    assert set(overlay) == {"scheduler", "worker", "client", "notebook"}
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    for name, service in overlay.items():
        role = "client" if name == "notebook" else name
        assert service["volumes"] == [f"${{CERTS:-./certs}}/{role}:/certs:ro"]
        variables = service["environment"]
        assert variables["DASK_SCHEDULER_ADDRESS"] == "tls://scheduler:8786"
        assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert variables[f"{prefix}CA_FILE"] == "/certs/ca.pem"
        assert variables[f"{prefix}{role.upper()}__CERT"] == "/certs/cert.pem"
        assert variables[f"{prefix}{role.upper()}__KEY"] == "/certs/key.pem"
        assert "ports" not in service
    assert f"{prefix}CLIENT__CERT" in overlay["worker"]["environment"]


@pytest.mark.skipif(not BASE.exists(), reason="docker-compose.yml is not here")
def test_compose_changes_the_protocol_alone():
    base, overlay = services(BASE), services(OVERLAY)
    assert set(overlay) <= set(base)
    assert overlay["worker"]["command"] == base["worker"]["command"].replace("tcp://", "tls://")
    changed = base["scheduler"]["command"].replace(
        "dask scheduler", "dask scheduler --protocol tls"
    )
    assert overlay["scheduler"]["command"] == changed


@pytest.mark.skipif(not BASE.exists(), reason="docker-compose.yml is not here")
def test_no_port_is_open_to_the_network():
    published = [port for service in services(BASE).values() for port in service.get("ports", [])]
    assert published
    assert all(str(port).startswith("127.0.0.1:") for port in published)
