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
        assert self.process.stdout.readline() == "started\n", self.process.stderr.read()

    def kill_after(self, seconds):
        """SIGKILL; return whether the fit was still running."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)
        return self.process.returncode == -signal.SIGKILL

    def result(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err
        return squeak_dist.load(self.model), json.loads(out)


def finished(folder):
    """What is in the checkpoint: name → time of writing."""
    return {p.name: p.stat().st_mtime_ns for p in (folder / "checkpoint").rglob("*.zarr.zip")}


@pytest.fixture(scope="module")
def undisturbed(data, references, assert_same_bits, tmp_path_factory):
    """Seconds and tasks of a fit with a checkpoint that nothing disturbs, by solver."""
    found = {}
    for solver, reference in references.items():
        driver = Driver(data, tmp_path_factory.mktemp(solver), solver)
        began = time.monotonic()
        model, tasks = driver.result()
        found[solver] = (time.monotonic() - began, tasks)
        assert_same_bits(model, reference)
    return found


def check_killed_and_resumed(data, folder, solver, share, undisturbed, reference, same_bits):
    """Kill a driver after a share of the time of a fit; compare the fit that goes on."""
    seconds, tasks = undisturbed[solver]
    killed = Driver(data, folder, solver).kill_after(share * seconds)
    time.sleep(0.5)  # workers that outlive their driver for a moment may end a write
    before = finished(folder)
    model, resumed = Driver(data, folder, solver).result()
    after = finished(folder)
    same_bits(model, reference)
    assert all(after[name] == when for name, when in before.items() if name in after)
    assert sum(resumed.values()) <= sum(tasks.values())
    kinds = {name.rpartition("-")[0] for name in before}
    for kind, stage in {"solve_task": "solve", "solution": "solution"}.items():
        if kind in kinds:
            assert resumed[stage] == 1
    if len(kinds) > 1 and "chain_step" not in kinds and "merge_profiles" in kinds:
        assert resumed["dictionary"] == resumed["profile"] == 1
    print(
        f"{solver}: {'killed' if killed else 'done'} after {share:.0%}, {len(before)} values; "
        f"tasks {sum(tasks.values())}, resumed with {sum(resumed.values())}"
    )
    return killed, bool(before)


def moments(seed, count):
    return np.sort(np.random.default_rng(seed).uniform(0.02, 0.9, count))


@pytest.mark.parametrize(("solver", "seed"), [("direct", 1), ("cg", 2)])
def test_a_killed_driver_is_gone_on_from(
    data, tmp_path, undisturbed, references, assert_same_bits, solver, seed
):
    [share] = np.random.default_rng(seed).uniform(0.3, 0.7, 1)
    check_killed_and_resumed(
        data, tmp_path, solver, share, undisturbed, references[solver], assert_same_bits
    )


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_a_driver_killed_at_ten_random_moments(
    data, tmp_path, undisturbed, references, assert_same_bits, solver
):
    outcomes = []
    for number, share in enumerate(moments(7, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.append(
            check_killed_and_resumed(
                data, folder, solver, share, undisturbed, references[solver], assert_same_bits
            )
        )
    assert sum(killed for killed, _ in outcomes) >= 5
    assert sum(kept for _, kept in outcomes) >= 5


def test_a_driver_that_is_killed_again_and_again_gets_there(
    data, tmp_path, undisturbed, references, assert_same_bits
):
    seconds, tasks = undisturbed["direct"]
    kills = sum(Driver(data, tmp_path, "direct").kill_after(0.5 * seconds) for _ in range(3))
    model, resumed = Driver(data, tmp_path, "direct").result()
    assert_same_bits(model, references["direct"])
    assert sum(resumed.values()) < sum(tasks.values())
    print(f"{kills} of 3 killed; tasks {sum(tasks.values())}, at last {sum(resumed.values())}")


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
    """A file system of 192 KiB; skipped where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount, "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(place)]
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
        file.write(b"x" * (1 << 20))
    with pytest.raises(CheckpointError, match="No space left"):
        squeak_dist.fit(
            str(data), checkpoint=small_disk / "ck", progress=lambda *a: 1 / 0, **SETTINGS
        )
