"""Fits whose driver, workers or disk go: the next call goes on, to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.checkpoint import Vault
from squeak_dist.errors import CheckpointError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]

DRIVER = Path(__file__).with_name("fit_with_checkpoint.py")
PARTITIONS, ROWS = 12, 6000
SETTINGS = {"target": "y", "max_dictionary": 150, "mu": 0.05}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("resume") / "data"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(PARTITIONS * ROWS, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    dd.from_pandas(frame, npartitions=PARTITIONS).to_parquet(path)
    return path


@pytest.fixture(scope="module")
def references(data, plain_fit):
    return {
        solver: plain_fit(dd.read_parquet(data), solver=solver, **SETTINGS)
        for solver in ("direct", "cg")
    }


class Driver:
    """A fit in a process of its own."""

    def __init__(self, data, folder, solver):
        self.model = folder / "model.zarr"
        command = [sys.executable, DRIVER, data, folder / "checkpoint", self.model, solver]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def kill_after(self, tasks, seconds):
        """SIGKILL some time after so many tasks are done; return whether it was running."""
        for _ in range(tasks):
            self.process.stdout.readline()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)
        return self.process.returncode == -signal.SIGKILL

    def result(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err
        return squeak_dist.load(self.model), json.loads(out.splitlines()[-1])


def finished(folder):
    """What is in the checkpoint: name → time of writing."""
    return {p.name: p.stat().st_mtime_ns for p in (folder / "checkpoint").rglob("*.zarr.zip")}


@pytest.fixture(scope="module")
def undisturbed(data, references, assert_same_bits, tmp_path_factory):
    """Tasks of a fit with a checkpoint that nothing disturbs, by solver and stage."""
    found = {}
    for solver, reference in references.items():
        model, found[solver] = Driver(data, tmp_path_factory.mktemp(solver), solver).result()
        assert_same_bits(model, reference)
    return found


def check_killed_and_resumed(data, folder, solver, rng, undisturbed, reference, same_bits):
    """Kill a driver at a random moment; compare the fit that goes on. Return what was found."""
    tasks = undisturbed[solver]
    moment = int(rng.integers(sum(tasks.values())))
    killed = Driver(data, folder, solver).kill_after(moment, float(rng.uniform(0, 0.05)))
    time.sleep(1)  # workers that outlive their driver for a moment may end a write
    before = finished(folder)
    model, resumed = Driver(data, folder, solver).result()
    after = finished(folder)
    same_bits(model, reference)
    assert all(after[name] == when for name, when in before.items() if name in after)
    kinds = {name.rpartition("-")[0] for name in before}
    if before and kinds != {"merge_profiles"}:
        assert sum(resumed.values()) < sum(tasks.values())
    if kinds & {"sums_task", "add_sums", "first_pass", "system", "step", "solution"}:
        assert resumed["profile"] == resumed["dictionary"] == 1
    if killed and "step" in kinds:
        # Of each iteration whose state was kept, the passes over the data are not repeated.
        steps = sum(name.startswith("step-") for name in before)
        assert sum(n < 10 for s, n in resumed.items() if s.startswith("iteration")) >= steps
    print(
        f"{solver}: {'killed' if killed else 'over'} after {moment} of {sum(tasks.values())} "
        f"tasks, {len(before)} values kept; the second fit had {sum(resumed.values())} tasks"
    )
    return killed, bool(before)


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_a_killed_driver_is_gone_on_from(
    data, tmp_path, undisturbed, references, assert_same_bits, solver
):
    killed, kept = check_killed_and_resumed(
        data, tmp_path, solver, np.random.default_rng(1), undisturbed, references[solver],
        assert_same_bits,
    )  # fmt: skip
    assert killed
    assert kept


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_a_driver_killed_at_ten_random_moments(
    data, tmp_path, undisturbed, references, assert_same_bits, solver
):
    rng, outcomes = np.random.default_rng(7), []
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.append(
            check_killed_and_resumed(
                data, folder, solver, rng, undisturbed, references[solver], assert_same_bits
            )
        )
    assert all(killed for killed, _ in outcomes)
    assert sum(kept for _, kept in outcomes) >= 5


@pytest.mark.slow
def test_a_driver_that_is_killed_again_and_again_gets_there(
    data, tmp_path, undisturbed, references, assert_same_bits
):
    for _ in range(3):
        assert Driver(data, tmp_path, "direct").kill_after(20, 0)
    model, resumed = Driver(data, tmp_path, "direct").result()
    assert_same_bits(model, references["direct"])
    assert resumed["profile"] == 1
    assert sum(resumed.values()) < sum(undisturbed["direct"].values())


# --- workers and disks ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["dictionary", "solve"])
def test_a_worker_killed_while_it_writes(
    data, tmp_path, references, assert_same_bits, started, stage
):
    with started(2) as client:
        victims = list(client.run(os.getpid).values())
        killed = []

        def kill_in_a_write(name, done, total):
            """Kill as soon as a file is half written, or at the latest in mid-stage."""
            if name == stage and not killed and done:
                for _ in range(200):
                    if any(tmp_path.rglob("*.tmp-*")):
                        break
                    time.sleep(0.002)
                os.kill(victims[0], signal.SIGKILL)
                killed.append(any(tmp_path.rglob("*.tmp-*")))

        model = squeak_dist.fit(
            str(data), solver="direct", checkpoint=tmp_path / "ck", client=client,
            progress=kill_in_a_write, **SETTINGS,
        )  # fmt: skip
        assert killed
        assert_same_bits(model, references["direct"])
        again = squeak_dist.fit(
            str(data), solver="direct", checkpoint=tmp_path / "ck", client=client, **SETTINGS
        )
    assert_same_bits(again, references["direct"])
    squeak_dist.remove_checkpoint(tmp_path / "ck")
    assert not (tmp_path / "ck").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB; skipped where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_a_clear_error_and_room_is_all_it_needs(
    data, small_disk, tmp_path, references, assert_same_bits, two_workers
):
    with pytest.raises(
        CheckpointError, match=r"cannot write .* to the checkpoint .*No space left"
    ):
        squeak_dist.fit(str(data), solver="direct", checkpoint=small_disk / "ck", **SETTINGS)
    kept = Vault(str(small_disk / "ck")).names()
    assert kept
    assert not list(small_disk.rglob("*.tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    model = squeak_dist.fit(str(data), solver="direct", checkpoint=small_disk / "ck", **SETTINGS)
    assert_same_bits(model, references["direct"])


def test_a_disk_that_is_full_at_once_is_an_error_before_any_work(small_disk, data):
    with open(small_disk / "full", "wb") as file, pytest.raises(OSError, match="space"):
        file.write(b"x" * (2 << 20))
    with pytest.raises(CheckpointError, match="No space left"):
        squeak_dist.fit(
            str(data), checkpoint=small_disk / "ck", progress=lambda *a: 1 / 0, **SETTINGS
        )
