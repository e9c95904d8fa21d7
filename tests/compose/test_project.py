"""What docker-compose.yml promises: who may do what, who listens where, one command to a model."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from containers import run

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module", autouse=True)
def notebook(cluster):
    """The one service that the other modules do without."""
    cluster.start("notebook")
    (container,) = cluster.containers("notebook")
    cluster.wait_until_healthy(container)
    return container


def published(cluster, container):
    """Container port → (address, port) on this machine."""
    ports = json.loads(cluster.inspect(container, "{{json .NetworkSettings.Ports}}"))
    return {
        port: (bound[0]["HostIp"], int(bound[0]["HostPort"]))
        for port, bound in ports.items()
        if bound
    }


def everyone(cluster):
    return [
        c for s in ("scheduler", "worker", "notebook", "client") for c in cluster.containers(s)
    ]


def test_the_image_has_no_tools_to_build_with_and_no_root(cluster):
    script = (
        "id -u; touch /opt/venv/x 2>&1; for t in cc gcc g++ make ld pip; do command -v $t; done"
    )
    lines = run("docker", "exec", cluster.client, "sh", "-c", f"{script}; true").splitlines()
    assert lines[0] == "1000"
    assert "denied" in lines[1].lower()
    tools = [line for line in lines[2:] if not line.startswith("/usr/local/bin/pip")]  # the base's
    assert tools == []
    labels = json.loads(
        run("docker", "inspect", "--format", "{{json .Config.Labels}}", cluster.image)
    )
    assert labels["org.opencontainers.image.title"] == "squeak-dist"


def test_all_are_healthy_and_as_many_as_asked_for(cluster):
    assert len(cluster.containers("worker")) == 4
    for service in ("scheduler", "worker", "notebook"):
        for container in cluster.containers(service):
            cluster.wait_until_healthy(container)


def test_ports_are_bound_to_this_machine_alone(cluster):
    listening = {}
    for container in everyone(cluster):
        listening |= published(cluster, container)
    assert set(listening) == {"8786/tcp", "8787/tcp", "8888/tcp"}
    assert {address for address, _ in listening.values()} == {"127.0.0.1"}


def test_dashboard_and_notebook_answer_and_the_notebook_wants_its_token(cluster, notebook):
    def status(port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    _, dashboard = published(cluster, cluster.scheduler)["8787/tcp"]
    assert status(dashboard, "/health") == 200
    _, port = published(cluster, notebook)["8888/tcp"]
    assert status(port, "/api") == 200
    assert status(port, "/api/contents") == 403


def test_workers_have_limits_and_nobody_has_privileges(cluster):
    for container in cluster.containers("worker"):
        limits = cluster.inspect(container, "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}")
        assert limits == f"{768 * 2**20} {768 * 2**20}"
    for container in everyone(cluster):
        assert cluster.inspect(container, "{{json .HostConfig.CapDrop}}") == '["ALL"]'
    seen = cluster.python(
        "import os; from distributed import Client\n"
        "with Client(os.environ['DASK_SCHEDULER_ADDRESS'], timeout=60) as client:\n"
        "    workers = client.scheduler_info(n_workers=-1)['workers'].values()\n"
        "    print({(w['memory_limit'] >> 20, w['nthreads']) for w in workers})"
    )
    assert seen.strip() == "{(652, 1)}"


def test_the_command_line_finds_the_cluster(cluster):
    def squeak(*arguments):
        return run("docker", "exec", cluster.client, "squeak-dist", *arguments, "--quiet")

    out = squeak("fit", "/data/table", "--target", "y", "--model", "/data/m.zarr",
                 "--max-dictionary", "100", "--mu", "0.1")  # fmt: skip
    assert out.strip() == "/data/m.zarr"
    scores = json.loads(squeak("evaluate", "/data/m.zarr", "/data/table", "--json"))
    assert scores["rows"] == 16 * 8_000
    hosts = {cluster.inspect(c, "{{.Config.Hostname}}") for c in cluster.containers("worker")}
    report = json.loads(run("docker", "exec", cluster.client, "squeak-dist", "inspect",
                            "/data/m.zarr", "--json"))["report"]  # fmt: skip
    assert {node["worker"].split(":")[0] for node in report["merges"]} <= hosts
