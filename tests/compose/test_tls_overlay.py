"""The compose cluster with deploy/tls/docker-compose.tls.yml on top, on real containers."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from squeak_dist.cli.connecting import Place, connected
from squeak_dist.errors import ClusterError

containers = pytest.importorskip("containers", reason="the helpers of tests/compose are not here")
pytest.importorskip("cryptography")
TOP = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1800),  # with the image, on a busy machine
    pytest.mark.skipif(bool(containers.missing()), reason=str(containers.missing())),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0,
                       reason="only root may give the certificates to the image's user"),
]  # fmt: skip

MAKE_TABLE = """
import numpy as np, pandas as pd
X = np.random.default_rng(0).normal(size=(400, 2))
frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=np.sin(2 * X[:, 0]) + X[:, 1])
frame.to_parquet("/data/table.parquet")
"""
COMPARE = """
import squeak_dist
here, there = (squeak_dist.load(f"/data/{name}.zarr") for name in ("here", "there"))
print(here.dual_coef_.tobytes() == there.dual_coef_.tobytes(), len(here.dual_coef_) > 0)
"""


def make_certificates(directory):
    script = TOP / "deploy" / "tls" / "make_certificates.py"
    subprocess.run([sys.executable, script, directory, "--owner", "1000:1000"], check=True)
    return directory


class Project:
    """A compose project with the overlay."""

    def __init__(self, certificates):
        self.name = f"squeak-tls-{uuid.uuid4().hex[:6]}"
        self.environment = os.environ | {
            "IMAGE": containers.build_image(),
            "CERTS": str(certificates),
            "WORKERS": "1",
            **dict.fromkeys(("SCHEDULER_PORT", "DASHBOARD_PORT", "NOTEBOOK_PORT"), "0"),
        }

    def call(self, *arguments):
        command = [*containers.compose_command(), "--project-name", self.name,
                   "--file", "docker-compose.yml",
                   "--file", "deploy/tls/docker-compose.tls.yml", *arguments]  # fmt: skip
        return containers.run(*command, env=self.environment)

    def python(self, script):
        return self.call("exec", "-T", "client", "python", "-c", script)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    running = Project(make_certificates(tmp_path_factory.mktemp("tls") / "certs"))
    try:
        running.call("up", "--detach", "--no-build", "scheduler", "worker", "client")
        running.python(MAKE_TABLE)
        yield running
    finally:
        running.call("down", "--volumes", "--timeout", "1")


def test_a_fit_has_the_same_bits(project):
    fit = ["exec", "-T", "client", "squeak-dist", "fit", "/data/table.parquet", "--target", "y",
           "--max-dictionary", "60", "--mu", "0.1", "--model"]  # fmt: skip
    project.call(*fit, "/data/there.zarr")
    project.call(*fit, "/data/here.zarr", "--workers", "0")
    assert project.python(COMPARE).split() == ["True", "True"]
    log = project.call("logs", "--no-color")
    assert "Registered to:       tls://scheduler:8786" in log
    assert "tcp://" not in log


def test_from_outside(project, tmp_path):
    address = project.call("port", "scheduler", "8786").strip()
    assert address.startswith("127.0.0.1:"), "bound to this machine alone"

    def connect(directory, scheme):
        role = Path(directory, "client")
        files = {} if directory == "" else {
            "tls_ca_file": str(role / "ca.pem"),
            "tls_cert": str(role / "cert.pem"),
            "tls_key": str(role / "key.pem"),
        }  # fmt: skip
        with connected(Place(scheduler=f"{scheme}://{address}", **files)) as client:
            return client.scheduler_info(n_workers=-1)["type"]

    assert connect(project.environment["CERTS"], "tls") == "Scheduler"
    with pytest.raises(ClusterError, match="speaks TLS"):
        connect("", "tcp")
    strangers = make_certificates(tmp_path / "certs")
    with pytest.raises(ClusterError, match="not signed by the CA"):
        connect(strangers, "tls")
