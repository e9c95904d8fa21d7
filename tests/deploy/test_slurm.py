"""The SLURM and PBS files: real schedulers and workers, started through fake_queue.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import squeak_dist

pytest.importorskip("dask_jobqueue")
pytest.importorskip("cryptography")

TOP = Path(__file__).parents[2]
HERE = TOP / "deploy" / "slurm"
pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def queue(tmp_path):
    """Environment in which sbatch, srun, scancel, qsub and qdel are the fake ones."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "fake_queue.py"
    shutil.copy(Path(__file__).with_name("fake_queue.py"), fake)
    fake.chmod(0o755)
    for name in ("sbatch", "srun", "scancel", "qsub", "qdel"):
        (programs / name).symlink_to(fake)
    place = tmp_path / "queue"
    place.mkdir()
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PATH": path, "FAKE_QUEUE": str(place), "PYTHONPATH": str(TOP)}
    return os.environ | settings


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    place = tmp_path_factory.mktemp("table") / "table.parquet"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    frame.assign(y=np.sin(2 * frame["a"]) + frame["b"]).to_parquet(place)
    return place


def run(command, environment, directory):
    return subprocess.run(
        list(map(str, command)), env=environment, cwd=directory, capture_output=True, text=True,
        timeout=240, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def place_of(environment):
    return Path(environment["FAKE_QUEUE"])


def assert_as_on_threads(model, table):
    """The cluster changes nothing of the model."""
    reference = squeak_dist.fit(str(table), target="y", missing="impute")
    fitted = squeak_dist.load(model)
    assert fitted.dual_coef_.tobytes() == reference.dual_coef_.tobytes()
    assert fitted.components_.tobytes() == reference.components_.tobytes()


@pytest.mark.cluster
def test_one_job_with_scheduler_client_and_workers(queue, table, tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "deploy").symlink_to(TOP / "deploy")
    command = ["sbatch", "--wait", "--ntasks=4", HERE / "fit.sbatch", table, "y",
               tmp_path / "m.zarr"]  # fmt: skip
    done = run(command, queue, checkout)
    log = (place_of(queue) / "1.log").read_text()
    assert done.returncode == 0, log
    assert f"300 rows, {len(squeak_dist.load(tmp_path / 'm.zarr').components_)} kept" in log
    assert "Scheduler at:     tls://" in log, "the job's scheduler is encrypted"
    assert log.count("Registered to:      tls://") == 2
    assert_as_on_threads(tmp_path / "m.zarr", table)
    assert [path.name for path in checkout.iterdir()] == ["deploy"], "keys and files are removed"
    asked = (place_of(queue) / "1.asked").read_text().splitlines()
    assert "--ntasks=6" in asked
    assert "--cpus-per-task=1" in asked


@pytest.mark.cluster
def test_a_job_with_bad_input_ends_with_its_error(queue, table, tmp_path):
    """All tasks end: a job must not sit there until its time is over."""
    (tmp_path / "deploy").symlink_to(TOP / "deploy")
    command = ["sbatch", "--wait", "--ntasks=3", HERE / "fit.sbatch", table, "z", tmp_path / "m"]
    done = run(command, queue, tmp_path)
    log = (place_of(queue) / "1.log").read_text()
    assert done.returncode == 2, log
    assert "Error: " in log
    assert "'z'" in log
    assert not (tmp_path / "m").exists()


def test_a_job_without_its_arguments(queue, tmp_path):
    done = run(["sbatch", "--wait", HERE / "fit.sbatch", "table"], queue, tmp_path)
    assert done.returncode == 2
    assert (place_of(queue) / "1.log").read_text().startswith("usage: sbatch fit.sbatch")


@pytest.mark.cluster
@pytest.mark.parametrize("system", ["slurm", "pbs"])
def test_workers_as_jobs(queue, table, tmp_path, system):
    command = [sys.executable, HERE / "fit_jobqueue.py", system, table, "y", tmp_path / "m.zarr",
               "--jobs", "2", "--memory", "1GiB", "--walltime", "00:10:00",
               "--directive=-A my-account", "--shared", tmp_path]  # fmt: skip
    done = run(command, queue, tmp_path)
    logs = "".join(log.read_text() for log in place_of(queue).glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert done.stdout.startswith("300 rows, ")
    assert_as_on_threads(tmp_path / "m.zarr", table)
    asked = (place_of(queue) / "1.asked").read_text()
    assert "-A my-account" in asked
    expected = {"slurm": ["-n 1", "--mem=1G", "-t 00:10:00"],
                "pbs": ["-l select=1:ncpus=1:mem=1024MB", "-l walltime=00:10:00"]}  # fmt: skip
    for line in expected[system]:
        assert line in asked
    assert "Registered to:" in logs
    assert "tls://" in logs
    assert "tcp://" not in logs
    jobs = {path.stem for path in place_of(queue).glob("*.script")}
    assert jobs == {path.stem for path in place_of(queue).glob("*.cancelled")} == {"1", "2"}


# --- text -------------------------------------------------------------------------------------


def shellcheck():
    return shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def complaints(script):
    done = subprocess.run(
        [shellcheck(), "--shell=bash", "--severity=style", "--enable=all",
         "--exclude=SC2250,SC2312", script],
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.skipif(not shellcheck(), reason="shellcheck is not installed")
def test_the_script_is_clean(tmp_path):
    assert complaints(HERE / "fit.sbatch") == ""
    (tmp_path / "bad.sh").write_text("#!/bin/bash\ncd $1\nrm -rf $2/*\n")
    assert "SC2086" in complaints(tmp_path / "bad.sh")


def test_slurm_reads_every_directive():
    """SLURM stops at the first line that is no comment, and says nothing."""
    lines = (HERE / "fit.sbatch").read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert lines[0].startswith("#!")
    assert len(directives) == 6
    assert max(directives) < first_command
