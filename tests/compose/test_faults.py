"""Faults of real containers in the middle of a fit: the same bits, or an error that says why."""

from __future__ import annotations

import re
import time

import pytest
from containers import run, running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

ROWS = 16 * 8_000
FOREIGN = re.compile(r"Traceback|KilledWorker|CommClosed|CancelledError")


@pytest.fixture(scope="module")
def reference(cluster):
    return cluster.job("plain").model()


@pytest.fixture(scope="module")
def undisturbed(cluster, reference, costs):
    """A first fit, for the imports of the workers; and a second, whose time counts."""
    first = cluster.job("fit").model()
    second = cluster.job("fit").model()
    assert first["digest"] == second["digest"] == reference["digest"]
    costs["none"] = second["seconds"]
    return second


@pytest.fixture
def healthy(cluster, undisturbed):
    """The cluster with all its workers."""
    cluster.wait_for_workers()
    return cluster


def check_same(model, reference):
    assert model["digest"] == reference["digest"]
    assert model["rows"] == model["seen"] == ROWS
    assert model["distinct"] == model["size"]


def test_four_workers_give_the_bits_of_the_plain_loop(undisturbed, reference):
    check_same(undisturbed, reference)
    assert undisturbed["chains"] == 8
    assert undisturbed["size"] > 50


@pytest.mark.parametrize(
    ("stage", "task"),
    [("the chains", "chain-step"), ("the merges", "merge-task"), ("the solve", "sums-task")],
)
def test_a_killed_worker(healthy, reference, costs, stage, task):
    with running(healthy.job("fit")) as job:
        victim = healthy.worker_at(job.wait_for_task(task))
        run("docker", "kill", victim)
        try:
            model = job.model()
        finally:
            run("docker", "start", victim)
    check_same(model, reference)
    costs[f"worker killed in {stage}"] = model["seconds"]


@pytest.mark.slow  # a minute or so
def test_a_worker_cut_off_from_the_network(healthy, reference, costs):
    with running(healthy.job("fit")) as job:
        victim = healthy.worker_at(job.wait_for_task("chain-step"))
        run("docker", "network", "disconnect", healthy.network, victim)
        try:
            time.sleep(40)  # longer than WORKER_TTL
        finally:
            run("docker", "network", "connect", healthy.network, victim)
        model = job.model()
    check_same(model, reference)
    costs["worker cut off for 40 s"] = model["seconds"]
    healthy.wait_for_workers()  # it is back


@pytest.mark.slow  # a minute, and much like the one above
def test_a_paused_worker(healthy, reference, costs):
    with running(healthy.job("fit")) as job:
        victim = healthy.worker_at(job.wait_for_task("chain-step"))
        run("docker", "pause", victim)
        try:
            time.sleep(40)  # longer than WORKER_TTL: the others do its work
        finally:
            run("docker", "unpause", victim)
        model = job.model()
    check_same(model, reference)
    costs["worker paused for 40 s"] = model["seconds"]
    healthy.wait_for_workers()


@pytest.mark.slow  # two minutes
def test_a_rolling_restart_of_all_workers(healthy, reference, costs):
    """Each is back before the next one goes; the kernel is slower, so that the fit lasts."""
    costs["none, kernel 3 times as slow"] = healthy.job("fit", "3").model()["seconds"]
    with running(healthy.job("fit", "3")) as job:
        job.wait_for_task("chain-step")
        began = [healthy.inspect(c, "{{.State.StartedAt}}") for c in healthy.containers("worker")]
        for container in healthy.containers("worker"):
            assert job.process.poll() is None, f"the fit was over too early\n{job.errors}"
            run("docker", "restart", "--time", "5", container)
            healthy.wait_for_workers()
        model = job.model()
    check_same(model, reference)
    costs["all workers restarted one by one, kernel 3 times as slow"] = model["seconds"]
    after = [healthy.inspect(c, "{{.State.StartedAt}}") for c in healthy.containers("worker")]
    assert not set(began) & set(after)


@pytest.mark.slow  # a minute or so
def test_a_client_that_goes_away(healthy, reference):
    with running(healthy.job("fit")) as job:
        job.wait_for_task("chain-step")
        run("docker", "exec", healthy.client, "python", "-c", KILL_JOBS)
        code, _ = job.end()
        assert code == 137
    # The scheduler forgets its tasks, and the next job is as good as ever.
    healthy.python(
        "import os, time; from distributed import Client\n"
        "with Client(os.environ['DASK_SCHEDULER_ADDRESS'], timeout=30) as client:\n"
        "    deadline = time.monotonic() + 60\n"
        "    while any(client.processing().values()) or client.who_has():\n"
        "        assert time.monotonic() < deadline, (client.processing(), client.who_has())\n"
        "        time.sleep(0.2)"
    )
    check_same(healthy.job("fit").model(), reference)


# What `kill -9 $(pgrep -f 'python - fit')` would do: the image has no pgrep.
KILL_JOBS = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if (folder / "cmdline").read_bytes().split(b"\\0")[:3] == [b"python", b"-", b"fit"]:
            os.kill(int(folder.name), signal.SIGKILL)
    except FileNotFoundError:
        pass
"""


def test_more_than_the_workers_have_is_refused(healthy):
    job = healthy.job("refused")
    code, last = job.end()
    assert code == 1
    assert last["type"] == "InsufficientMemoryError"
    assert re.search(r"needs about [\d,]+ MiB .* has 653 MiB per thread", last["message"])
    stages = {event["stage"] for event in job.events if event["event"] == "progress"}
    assert stages <= {"profile"}, "work was submitted before the projection"


@pytest.mark.slow  # a minute or so
def test_a_worker_over_its_memory_limit(healthy, reference):
    job = healthy.job("forced")
    code, last = job.end()
    assert code == 1, (last, job.errors)
    needed = next(e["bytes"] for e in job.events if e["event"] == "needed")
    assert needed > 652 * 2**20
    assert last["type"] == "ClusterError"
    assert "during the dictionary stage" in last["message"]
    assert "lower max_dictionary" in last["message"]
    assert not FOREIGN.search(job.errors), job.errors
    healthy.wait_for_workers()
    check_same(healthy.job("fit").model(), reference)


def test_workers_of_another_version_are_refused(healthy, tmp_path):
    found = healthy.python(
        "from importlib.metadata import distribution\n"
        "package = distribution('squeak-dist')\n"
        "print(package.locate_file(next(f for f in package.files if f.name == 'METADATA')))\n"
        "print(package.read_text('METADATA'))"
    )
    inside, metadata = found.split("\n", 1)
    other = tmp_path / "METADATA"  # where Dask finds the versions of packages
    other.write_text(re.sub(r"(?m)^Version: .*$", "Version: 0.0.1", metadata))
    name = f"{healthy.name}-other"
    run("docker", "create", "--name", name, "--network", healthy.network, healthy.image,
        "dask", "worker", "tcp://scheduler:8786", "--nthreads", "1", "--no-dashboard")  # fmt: skip
    try:
        run("docker", "cp", str(other), f"{name}:{inside}")
        healthy.workers += 1
        run("docker", "start", name)
        healthy.wait_for_workers()
        job = healthy.job("fit")
        code, last = job.end()
    finally:
        healthy.workers -= 1
        run("docker", "rm", "--force", name)
    assert code == 1
    assert last.get("type") == "VersionMismatchError", job.errors
    assert re.search(r"squeak_dist: client \S+, worker tcp://\S+ 0\.0\.1", last["message"])
    assert not any(event["event"] == "progress" for event in job.events)


def fits_at_work(event):
    """Return the fits whose tasks the workers run: their keys are squeak-TASK-FIT-NUMBER."""
    if event["event"] != "processing":
        return set()
    keys = [key for keys in event["workers"].values() for key in keys]
    return {key.rsplit("-", 2)[1] for key in keys if key.startswith("squeak-")}


def squeak_dist_fit(model, *options):
    return ("squeak-dist", "fit", "/data/table", "--target", "y", "--gamma", "300",
            "--model", model, *options)  # fmt: skip


@pytest.mark.slow  # a minute or so
def test_a_restarted_scheduler(healthy, reference):
    """Fits end with an error of ours and write no model; from a checkpoint one goes on."""
    kept = ("--checkpoint", "/data/checkpoint")
    command = squeak_dist_fit("/data/lost.zarr", *kept)
    with running(healthy.job("fit")) as job, running(healthy.job(*command, script=None)) as cli:
        job.wait_until(lambda event: len(fits_at_work(event)) == 2)
        run("docker", "restart", "--time", "1", healthy.scheduler)
        code, last = job.end()
        assert code == 1
        assert last["type"] == "ClusterError", (last, job.errors)
        assert "the Dask scheduler was lost during the" in last["message"]
        cli_code, _ = cli.end()
        assert cli_code == 1
        # Between two stages the client is back before the workers are.
        line = cli.errors.splitlines()[-1]
        assert re.match(r"Error: .*(scheduler was lost|has no workers)", line), cli.errors
        assert not FOREIGN.search(cli.errors), cli.errors
    assert "lost.zarr" not in run("docker", "exec", healthy.client, "ls", "-a", "/data")
    healthy.wait_for_workers()
    for other in (squeak_dist_fit("/data/found.zarr", *kept), squeak_dist_fit("/data/fresh.zarr")):
        with running(healthy.job(*other, script=None)) as cli:
            assert cli.end()[0] == 0, cli.errors
    assert healthy.python(CHECKSUMS.format("found")) == healthy.python(CHECKSUMS.format("fresh"))
    check_same(healthy.job("fit").model(), reference)


# Of the arrays: the report has seconds, which differ.
CHECKSUMS = """
import zarr
sums = dict(zarr.open_group("/data/{}.zarr", mode="r").attrs["checksums"])
del sums["attributes"]
print(sums)
"""
