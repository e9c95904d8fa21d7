"""A cluster with TLS: the same bits, and nobody without one of its certificates."""

from __future__ import annotations

import asyncio

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from distributed.core import rpc
from distributed.security import Security

import squeak_dist

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SETTINGS = {"max_dictionary": 120, "mu": 0.01, "random_state": 3}


def security(directory, **changed):
    """All roles, each with its own certificate, as the guide tells."""
    files = {
        f"tls_{role}_{kind}": str(directory / role / f"{kind}.pem")
        for role in ("scheduler", "worker", "client")
        for kind in ("cert", "key")
    }
    files |= {"tls_ca_file": str(directory / "ca" / "ca.pem")} | changed
    return Security(require_encryption=True, **files)


def client_only(directory, ca=None):
    return Security(
        require_encryption=True,
        tls_ca_file=str((ca or directory) / "ca" / "ca.pem"),
        tls_client_cert=str(directory / "client" / "cert.pem"),
        tls_client_key=str(directory / "client" / "key.pem"),
    )


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    rows = pd.DataFrame(rng.normal(size=(1200, 3)), columns=list("abc"))
    return dd.from_pandas(rows.assign(y=np.sin(2 * rows["a"]) + rows["b"]), npartitions=6)


@pytest.fixture(scope="module")
def encrypted(started, certificates):
    with started(2, security=security(certificates), protocol="tls://") as client:
        yield client


def test_a_fit_has_the_same_bits(encrypted, frame, plain_fit, assert_same_bits):
    info = encrypted.scheduler_info(n_workers=-1)
    assert info["address"].startswith("tls://")
    assert len(info["workers"]) == 2
    assert all(address.startswith("tls://") for address in info["workers"])
    model = squeak_dist.fit(frame, target="y", client=encrypted, **SETTINGS)
    settings = {"seed" if k == "random_state" else k: v for k, v in SETTINGS.items()}
    assert_same_bits(model, plain_fit(frame, target="y", **settings))


def test_a_client_with_a_certificate_of_this_cluster_may_connect(encrypted, certificates):
    with Client(
        encrypted.scheduler.address, security=client_only(certificates), set_as_default=False
    ) as client:
        assert client.submit(sum, [1, 2]).result() == 3


def call(address, arguments):
    """Call a server's simplest function."""

    async def identity():
        async with rpc(address, timeout=10, connection_args=arguments) as server:
            return await server.identity()

    return asyncio.run(asyncio.wait_for(identity(), 20))


class Anonymous(Security):
    """Speaks TLS, but shows no certificate."""

    def get_connection_args(self, role):
        arguments = super().get_connection_args(role)
        import ssl

        context = ssl.create_default_context(cafile=self.tls_ca_file)
        context.check_hostname = False
        return arguments | {"ssl_context": context}


@pytest.mark.parametrize("server", ["scheduler", "worker"])
@pytest.mark.parametrize(
    "who", ["member", "anonymous", "stranger", "stranger with our CA", "plain"]
)
def test_who_may_call(encrypted, certificates, other_certificates, server, who):
    """Workers too run what they are told to: each must refuse on its own."""
    info = encrypted.scheduler_info(n_workers=-1)
    address = info["address"] if server == "scheduler" else next(iter(info["workers"]))
    callers = {
        "member": client_only(certificates),
        "anonymous": Anonymous(tls_ca_file=str(certificates / "ca" / "ca.pem")),
        "stranger": client_only(other_certificates),
        "stranger with our CA": client_only(other_certificates, ca=certificates),
        "plain": Security(require_encryption=False),
    }
    if who == "plain":
        address = address.replace("tls://", "tcp://")
    arguments = callers[who].get_connection_args("client")
    if who == "member":
        assert call(address, arguments)["type"].lower() == server
        return
    with pytest.raises(OSError):  # noqa: PT011  Dask wraps the many forms of a refusal
        call(address, arguments)


def test_a_clients_certificate_makes_no_worker_or_scheduler(certificates):
    """So a stolen one cannot lure others; it can still run code, as any client."""
    impostor = security(
        certificates,
        tls_scheduler_cert=str(certificates / "client" / "cert.pem"),
        tls_scheduler_key=str(certificates / "client" / "key.pem"),
    )

    async def serve_and_call():
        from distributed import Scheduler

        async with Scheduler(
            protocol="tls://", host="127.0.0.1", port=0, dashboard=False, security=impostor
        ) as scheduler:
            arguments = client_only(certificates).get_connection_args("client")
            async with rpc(scheduler.address, timeout=10, connection_args=arguments) as server:
                await server.identity()

    with pytest.raises(OSError, match=r"."):
        asyncio.run(asyncio.wait_for(serve_and_call(), 60))
