"""The command line on real schedulers: tcp, tls and web sockets, and all that can be wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import dask
import numpy as np
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner

import squeak_dist
from squeak_dist.cli import main
from squeak_dist.cli.addresses import parse_address
from squeak_dist.errors import InvalidParameterError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]  # a hang must not cost ten minutes

BIN = Path(sys.executable).parent
FIT = ["--target", "y", "--max-dictionary", "60", "--mu", "0.01"]


class Running(NamedTuple):
    """A scheduler process: its address, its worker's, and the file that tells its own."""

    address: str
    worker: str
    file: Path

    @property
    def port(self):
        return parse_address(self.address, encrypted=False).port


def server_options(certificates, role):
    if certificates is None:
        return []
    names = {"--tls-ca-file": "ca", "--tls-cert": "cert", "--tls-key": "key"}
    return [
        part
        for option, name in names.items()
        for part in (option, str(certificates / role / f"{name}.pem"))
    ]


@contextmanager
def processes():
    """A list of processes, which are ended together."""
    started = []
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise TimeoutError(f"no {what} within {seconds} s")


def known(path):
    """What a scheduler file holds, once it holds anything."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def dask_cluster(directory, protocol, certificates=None):
    """``dask scheduler`` and one ``dask worker``, as a user starts them."""
    file = directory / f"{protocol}.json"
    command = ["scheduler", "--protocol", protocol, "--host", "127.0.0.1", "--port", "0",
               "--dashboard-address", "127.0.0.1:0", "--scheduler-file", file,
               *server_options(certificates, "scheduler")]  # fmt: skip
    log = (directory / f"{protocol}.log").open("wb")
    with log, processes() as started:
        options = {"stdout": log, "stderr": log, "cwd": directory}
        started.append(subprocess.Popen([BIN / "dask", *map(str, command)], **options))
        wait_for(lambda: known(file), "scheduler file")
        command = ["worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny",
                   "--dashboard-address", "127.0.0.1:0",
                   *server_options(certificates, "worker")]  # fmt: skip
        started.append(subprocess.Popen([BIN / "dask", *map(str, command)], **options))
        worker = wait_for(lambda: worker_address(directory / f"{protocol}.log"), "worker")
        yield Running(json.loads(file.read_text())["address"], worker, file)


def worker_address(log):
    """The address that a worker has told the scheduler of, from the log of both."""
    lines = log.read_text().splitlines()
    if not any("Registered to:" in line for line in lines):
        return None
    return next(line.split()[-1] for line in lines if "Start worker at:" in line)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with ``train`` and ``model.zarr``, fitted on threads."""
    place = tmp_path_factory.mktemp("schedulers")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    frame = frame.assign(y=np.sin(2 * frame["a"]) + frame["b"])
    (place / "train").mkdir()
    for i in range(3):
        frame.iloc[100 * i : 100 * i + 100].to_parquet(place / "train" / f"part-{i}.parquet")
    result = run("fit", place / "train", *FIT, "--model", place / "model.zarr", "--workers", 0)
    assert result.exit_code == 0, result.stderr
    return place


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("plain"), "tcp") as running:
        yield running


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory, certificates):
    with dask_cluster(tmp_path_factory.mktemp("encrypted"), "tls", certificates) as running:
        yield running


@pytest.fixture(scope="module")
def websockets(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("ws"), "ws") as running:
        yield running


@pytest.fixture(autouse=True)
def _no_scheduler_of_the_shell(monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)


def run(*arguments, timeout="3s"):
    with dask.config.set({"distributed.comm.timeouts.connect": timeout}):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_apart(*arguments, **environment):
    """The real program in a process of its own."""
    return subprocess.run(
        [BIN / "squeak-dist", *map(str, arguments)], capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL, env=os.environ | {k: str(v) for k, v in environment.items()},
    )  # fmt: skip


def tls_environment(certificates):
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    return {
        f"{prefix}CA_FILE": certificates / "client" / "ca.pem",
        f"{prefix}CLIENT__CERT": certificates / "client" / "cert.pem",
        f"{prefix}CLIENT__KEY": certificates / "client" / "key.pem",
    }


def assert_same_model(place, model):
    ours, theirs = squeak_dist.load(model), squeak_dist.load(place / "model.zarr")
    assert ours.dual_coef_.tobytes() == theirs.dual_coef_.tobytes()
    assert ours.components_.tobytes() == theirs.components_.tobytes()


def error_line(result, code):
    """The one line of an error, after its exit code and streams were checked."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


# --- what works -------------------------------------------------------------------------------


def test_tcp(place, plain, tmp_path):
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m",
                 "--scheduler", plain.address)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert_same_model(place, tmp_path / "m")


def test_an_address_without_a_scheme(place, plain):
    result = run("evaluate", place / "model.zarr", place / "train",
                 "--scheduler", f"127.0.0.1:{plain.port}")  # fmt: skip
    assert result.exit_code == 0, result.stderr


def test_tls(place, encrypted, certificates, tmp_path):
    assert encrypted.address.startswith("tls://")
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m",
                 "--scheduler", encrypted.address,
                 *server_options(certificates, "client"))  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert_same_model(place, tmp_path / "m")


def test_certificates_make_an_address_without_a_scheme_tls(place, encrypted, certificates):
    result = run("evaluate", place / "model.zarr", place / "train", "--scheduler",
                 f"127.0.0.1:{encrypted.port}",
                 *server_options(certificates, "client"))  # fmt: skip
    assert result.exit_code == 0, result.stderr


def test_web_sockets(place, websockets, tmp_path):
    assert websockets.address.startswith("ws://")
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m",
                 "--scheduler", websockets.address)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert_same_model(place, tmp_path / "m")


def test_encrypted_web_sockets(place, certificates, tmp_path):
    with dask_cluster(tmp_path, "wss", certificates) as running:
        assert running.address.startswith("wss://")
        result = run("fit", place / "train", *FIT, "--model", tmp_path / "m", "--scheduler",
                     f"wss://127.0.0.1:{running.port}",
                     *server_options(certificates, "client"))  # fmt: skip
        assert result.exit_code == 0, result.stderr
    assert_same_model(place, tmp_path / "m")


def test_all_from_the_environment(place, encrypted, certificates, tmp_path):
    done = run_apart(
        "fit", place / "train", *FIT, "--model", tmp_path / "m",
        DASK_SCHEDULER_ADDRESS=encrypted.address, **tls_environment(certificates),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_same_model(place, tmp_path / "m")


def test_all_from_a_configuration_file(place, encrypted, certificates, tmp_path):
    client = certificates / "client"
    (tmp_path / "dask.yaml").write_text(f"""
scheduler-address: {encrypted.address}
distributed:
  comm:
    require-encryption: true
    tls:
      ca-file: {client / "ca.pem"}
      client:
        cert: {client / "cert.pem"}
        key: {client / "key.pem"}
""")
    done = run_apart("fit", place / "train", *FIT, "--model", tmp_path / "m",
                     DASK_CONFIG=tmp_path / "dask.yaml")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_same_model(place, tmp_path / "m")


def test_a_scheduler_file_that_is_written_late(place, plain, tmp_path):
    late = tmp_path / "late.json"
    late.write_text('{"addr')  # as a slow file system shows it
    writer = threading.Timer(1.0, lambda: late.write_text(plain.file.read_text()))
    writer.start()
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m",
                 "--scheduler-file", late, timeout="20s")  # fmt: skip
    writer.join()
    assert result.exit_code == 0, result.stderr
    assert_same_model(place, tmp_path / "m")


def test_a_number_of_workers_is_stronger_than_the_environment(place, monkeypatch):
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    arguments = ["evaluate", place / "model.zarr", place / "train"]
    assert run(*arguments, "--workers", 0).exit_code == 0
    assert "tcp://127.0.0.1:9" in error_line(run(*arguments, timeout="200ms"), 1)


# --- what does not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--scheduler", "http://localhost:8787"], "http:// is not one of tcp://, tls://"),
        (["--scheduler", "gateway://host:80/name"], "gateway:// is not one of"),
        (["--scheduler", "tcp://localhost"], "expected a host and a port"),
        (["--scheduler", "tcp://localhost:port"], "expected a host and a port"),
        (["--scheduler", "tcp://localhost:0"], "expected a host and a port"),
        (["--scheduler", "tcp://localhost:65536"], "expected a host and a port"),
        (["--scheduler", "tcp://:8786"], "expected a host and a port"),
        (["--scheduler", ""], "expected a host and a port"),
        (["--scheduler", "tls://localhost:8786"], "needs certificates: give --tls-ca-file"),
        (["--scheduler", "tls://localhost:8786"], "DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
        (["--scheduler", "tcp://h:1", "--workers", "1"], "--scheduler and --workers exclude"),
        (["--scheduler", "tcp://h:1", "--scheduler-file", "f"], "--scheduler-file exclude"),
    ],
)
def test_a_bad_address_is_bad_input(place, options, expected):
    result = run("evaluate", place / "model.zarr", place / "train", *options)
    assert expected in error_line(result, 2)


def test_certificates_for_nothing_encrypted(place, certificates):
    arguments = ["evaluate", place / "model.zarr", place / "train"]
    ours = server_options(certificates, "client")
    result = run(*arguments, *ours, "--scheduler", "tcp://localhost:8786")
    assert "write tls://localhost:8786" in error_line(result, 2)
    assert "add --scheduler tls://HOST:PORT" in error_line(run(*arguments, *ours), 2)


@pytest.mark.parametrize("fault", ["foreign key", "no PEM", "half", "missing"])
def test_certificates_that_do_not_fit(place, certificates, other_certificates, tmp_path, fault):
    options = server_options(certificates, "client")
    (tmp_path / "junk.pem").write_text("no PEM")
    if fault == "foreign key":
        options[-1] = other_certificates / "client" / "key.pem"
    elif fault == "no PEM":
        options[1] = tmp_path / "junk.pem"
    elif fault == "missing":
        options[1] = tmp_path / "nowhere.pem"
    elif fault == "half":
        options = options[:2]
    result = run("evaluate", place / "model.zarr", place / "train", *options,
                 "--scheduler", "tls://127.0.0.1:9")  # fmt: skip
    assert result.exit_code == 2, result.output
    expected = {"missing": "does not exist", "half": "needs certificates"}
    assert expected.get(fault, "cannot be used") in result.stderr
    assert "Traceback" not in result.stderr


def test_encryption_that_the_configuration_requires(place, plain):
    with dask.config.set({"distributed.comm.require-encryption": True}):
        result = run("evaluate", place / "model.zarr", place / "train",
                     "--scheduler", plain.address)  # fmt: skip
    assert "requires encryption" in error_line(result, 2)


@pytest.mark.parametrize(
    ("running", "scheme", "expected"),
    [
        ("encrypted", "tcp", "speaks TLS; connect to tls://127.0.0.1:"),
        ("encrypted", "ws", "speaks TLS; connect to tls://127.0.0.1:"),
        ("plain", "ws", "does not speak ws://"),
        ("plain", "tls", "does not speak tls://"),
        ("websockets", "tcp", "does not speak tcp://"),
        ("websockets", "tls", "does not speak tls://"),
    ],
)
def test_the_wrong_protocol_is_named(place, request, certificates, running, scheme, expected):
    """A Client of Dask waits for ever in two of these cases."""
    port = request.getfixturevalue(running).port
    options = server_options(certificates, "client") if scheme == "tls" else []
    result = run("evaluate", place / "model.zarr", place / "train", *options,
                 "--scheduler", f"{scheme}://127.0.0.1:{port}")  # fmt: skip
    assert expected in error_line(result, 1)


def test_a_certificate_of_another_ca(place, encrypted, certificates, other_certificates):
    arguments = ["evaluate", place / "model.zarr", place / "train",
                 "--scheduler", encrypted.address]  # fmt: skip
    theirs = server_options(other_certificates, "client")
    assert "not signed by the CA of --tls-ca-file" in error_line(run(*arguments, *theirs), 1)
    theirs[1] = certificates / "ca" / "ca.pem"
    assert "refused this client's certificate" in error_line(run(*arguments, *theirs), 1)


def test_a_worker_is_no_scheduler(place, plain):
    result = run("evaluate", place / "model.zarr", place / "train", "--scheduler", plain.worker)
    assert "is a Dask worker, not a scheduler" in error_line(result, 1)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://127.0.0.1:9", "Connection refused|no answer within"),
        ("ws://127.0.0.1:9", "Connection refused|no answer within"),
        ("tcp://no-such-host.invalid:8786", "no-such-host.invalid"),
    ],
)
def test_nobody_there(place, address, expected):
    arguments = ["evaluate", place / "model.zarr", place / "train", "--scheduler", address]
    line = error_line(run(*arguments, timeout="3s"), 1)
    assert f"no Dask scheduler answers at {address}" in line
    assert re.search(expected, line)
    assert "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT" in line


def test_no_scheduler_file(place, tmp_path):
    arguments = ["evaluate", place / "model.zarr", place / "train", "--scheduler-file"]
    line = error_line(run(*arguments, tmp_path / "none.json", timeout="300ms"), 1)
    assert "no Dask scheduler wrote" in line
    for content in ("not JSON", "[]", "{}"):
        (tmp_path / "bad.json").write_text(content)
        line = error_line(run(*arguments, tmp_path / "bad.json", timeout="300ms"), 2)
        assert "is not a Dask scheduler file" in line


def test_an_address_is_read_as_dask_takes_it():
    address = parse_address("tls://[::1]:8786", encrypted=True)
    assert (address.scheme, address.host, address.port) == ("tls", "::1", 8786)
    with dask.config.set({"distributed.comm.default-scheme": "wss"}):
        assert parse_address("host:1", encrypted=False).url == "wss://host:1"
    with pytest.raises(InvalidParameterError):
        parse_address("host", encrypted=False)


# --- clusters started here --------------------------------------------------------------------


def listening(process):
    try:
        return {
            c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN
        }
    except psutil.NoSuchProcess:
        return set()


def test_workers_started_here_listen_to_this_machine_alone(place, tmp_path):
    """Scheduler, workers, dashboards: nobody on the network may run code here."""
    command = [BIN / "squeak-dist", "fit", place / "train", *FIT, "--model", tmp_path / "m",
               "--workers", "2"]  # fmt: skip
    environment = os.environ | {
        "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tls",  # of the cluster this user also has
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
        "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__LINK": "",
    }
    addresses, families = set(), 0
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    ) as process:  # fmt: skip
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                members = [parent, *parent.children(recursive=True)]
            except psutil.NoSuchProcess:
                break
            found = [listening(member) for member in members]
            families = max(families, sum(map(bool, found)))
            addresses = addresses.union(*found)
            time.sleep(0.05)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert families >= 3, "the scheduler and both workers were seen listening"
    assert addresses == {"127.0.0.1"}
