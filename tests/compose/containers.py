"""A compose project of real containers, the jobs on it, and what can be done to them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("job.py")
PATIENCE = 480  # seconds that a test waits for what must come; CI machines are slow


def run(*command: str, timeout: float = 600, **options: Any) -> str:
    """Run a command; return its output, or fail with all that it printed."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def compose_command() -> list[str] | None:
    """Return how Compose is called here: the plug-in of Docker, the older program, or None."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and succeeds(*command, "version"):
            return command
    return None


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def missing() -> str | None:
    """Return why no container can be started here, or None."""
    if shutil.which("docker") is None:
        return "no docker command on this machine"
    if not succeeds("docker", "info"):
        return "no Docker Engine answers `docker info`"
    if compose_command() is None:
        return "neither `docker compose` nor docker-compose on this machine"
    return None


def build_image() -> str:
    """Return the image of this source, built where it is not there yet.

    BASE_IMAGE names a base to build on. Without it, root on Debian makes one of Debian
    packages, for machines without an image registry; anybody else has the usual base.
    """
    environment = dict(os.environ) | {"PYTHON": sys.executable}
    offline = (
        "BASE_IMAGE" not in os.environ
        and os.geteuid() == 0
        and shutil.which("apt-get") is not None
    )
    image = f"squeak-dist-test:{source_hash(offline)}"
    if succeeds("docker", "image", "inspect", image):
        return image
    if offline:
        environment["BASE_IMAGE"] = "squeak-dist-base"
        run("bash", "deploy/docker/offline.sh", timeout=1200, env=environment)
    base = environment.get("BASE_IMAGE")
    arguments = ["--build-arg", f"BASE_IMAGE={base}"] if base else []
    run("docker", "build", "--file", "deploy/docker/Dockerfile", "--tag", image, *arguments, ".",
        timeout=1200, env=environment)  # fmt: skip
    for old in run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split():
        if old.startswith("squeak-dist-test:") and old != image:
            succeeds("docker", "image", "rm", old)
    return image


def source_hash(*more: object) -> str:
    files = [*sorted((ROOT / "squeak_dist").rglob("*.py")), ROOT / "pyproject.toml",
             ROOT / "constraints.txt", *sorted((ROOT / "deploy/docker").glob("*.*")),
             ROOT / "deploy/docker/Dockerfile"]  # fmt: skip
    total = hashlib.sha256(repr((os.environ.get("BASE_IMAGE"), more)).encode())
    for file in files:
        total.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return total.hexdigest()[:12]


class Job:
    """A process in a container of the project; its JSON lines are events."""

    def __init__(self, container: str, *command: str, script: Path | None = JOB) -> None:
        name = ["python", "-", *command] if script else list(command)
        self.process = subprocess.Popen(
            ["docker", "exec", "-i", container, *name],
            stdin=script.open() if script else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self.errors = ""
        self._arrived: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._readers = [threading.Thread(target=f) for f in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self._arrived.put(json.loads(line))
        self._arrived.put(None)

    def _read_errors(self) -> None:
        self.errors = self.process.stderr.read()

    def wait_until(self, wanted: Callable[[dict[str, Any]], Any]) -> Any:
        """Return the first true value of ``wanted(event)``, of events not seen before."""
        deadline = time.monotonic() + PATIENCE
        while True:
            event = self._arrived.get(timeout=max(deadline - time.monotonic(), 0.01))
            assert event is not None, f"the job ended too early\n{self.events[-3:]}\n{self.errors}"
            self.events.append(event)
            if found := wanted(event):
                return found

    def wait_for_task(self, name: str) -> str:
        """Return the address of the first worker that runs a task of this name."""
        return self.wait_until(
            lambda event: event["event"] == "processing"
            and next(
                (worker for worker, keys in sorted(event["workers"].items())
                 if any(key.startswith(f"squeak-{name}-") for key in keys)),
                None,
            )
        )  # fmt: skip

    def wait_for_stage(self, stage: str, done: int) -> None:
        """Wait until so many tasks of a stage are done."""
        self.wait_until(
            lambda event: (
                event["event"] == "progress" and event["stage"] == stage and event["done"] >= done
            )
        )

    def end(self) -> tuple[int, dict[str, Any]]:
        """Return exit code and last event, when the process has ended."""
        code = self.process.wait(timeout=PATIENCE)
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        while (event := self._arrived.get()) is not None:
            self.events.append(event)
        return code, self.events[-1] if self.events else {}

    def model(self) -> dict[str, Any]:
        """Return what the job says of its model."""
        code, last = self.end()
        assert code == 0, f"exit code {code}: {last}\n{self.errors}"
        assert last["event"] == "model"
        return last


class Project:
    """A started compose project; ``with`` ends it and all that belongs to it."""

    def __init__(self, image: str, workers: int, **variables: str) -> None:
        self.name = f"squeak-test-{uuid.uuid4().hex[:8]}"
        self.network = f"{self.name}_default"
        self.image = image
        self.workers = workers
        self._environment = dict(os.environ) | {"IMAGE": image} | variables
        for port in ("SCHEDULER_PORT", "DASHBOARD_PORT", "NOTEBOOK_PORT"):
            self._environment[port] = "0"  # any free one

    def __enter__(self) -> Project:
        try:
            self.start("client")  # and what it depends on: scheduler and workers
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "2")
        mine = f"label=com.docker.compose.project={self.name}"
        for kind in ("container", "network", "volume"):
            left = run("docker", kind, "ls", "--quiet", "--filter", mine)
            assert not left, f"`down` left a {kind}: {left}"

    def compose(self, *arguments: str) -> str:
        command = compose_command()
        assert command
        return run(*command, "--project-name", self.name, *arguments, env=self._environment)

    def start(self, service: str) -> None:
        """Start a service and those it depends on; wait until these are healthy."""
        scale = f"worker={self.workers}"
        self.compose("up", "--detach", "--no-build", "--scale", scale, service)

    def containers(self, service: str) -> list[str]:
        """Return the ids of the containers of a service, stopped ones too."""
        labels = (
            f"com.docker.compose.project={self.name}",
            f"com.docker.compose.service={service}",
        )
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return run("docker", "ps", "--all", "--quiet", *filters).split()

    @property
    def client(self) -> str:
        (container,) = self.containers("client")
        return container

    @property
    def scheduler(self) -> str:
        (container,) = self.containers("scheduler")
        return container

    def inspect(self, container: str, what: str) -> str:
        return run("docker", "inspect", "--format", what, container).strip()

    def worker_at(self, address: str) -> str:
        """Return the container of the worker with a Dask address."""
        host = address.split("//")[1].split(":")[0]
        for container in self.containers("worker"):
            if host == self.inspect(
                container, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
            ):
                return container
        raise AssertionError(f"no container has the address {address}")

    def job(self, *command: str, script: Path | None = JOB) -> Job:
        return Job(self.client, *command, script=script)

    def python(self, code: str) -> str:
        """Run Python code in the client container; return what it prints."""
        return run("docker", "exec", self.client, "python", "-c", code, timeout=PATIENCE)

    def wait_until_healthy(self, container: str) -> None:
        """Wait until the container's own health check is content."""
        deadline = time.monotonic() + PATIENCE
        while (status := self.inspect(container, "{{.State.Health.Status}}")) != "healthy":
            assert time.monotonic() < deadline, status
            time.sleep(1)

    def wait_for_workers(self) -> None:
        """Wait until exactly the workers of the project are registered, all new fits' homes."""
        self.python(
            "import os, time; from distributed import Client\n"
            "with Client(os.environ['DASK_SCHEDULER_ADDRESS'], timeout=60) as client:\n"
            f"    deadline = time.monotonic() + {PATIENCE - 60}\n"
            f"    while len(client.scheduler_info(n_workers=-1)['workers']) != {self.workers}:\n"
            "        assert time.monotonic() < deadline, client.scheduler_info(n_workers=-1)\n"
            "        time.sleep(0.2)"
        )


@contextlib.contextmanager
def running(job: Job) -> Iterator[Job]:
    """End a job that a failed test left behind."""
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.process.kill()


if __name__ == "__main__":  # `make test` builds the image beside the tests that need none
    print(missing() or build_image())
