"""What a command must never do: harm its input, leave half an output, or fit in vain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import squeak_dist
from squeak_dist.cli import main, predicting
from squeak_dist.cli.outputs import check_apart
from squeak_dist.errors import InvalidParameterError

BIN = Path(sys.executable).parent


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(y=frame["a"] + np.sin(frame["b"]))


def write(frame, directory, parts=2):
    directory.mkdir(parents=True)
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), parts)):
        frame.iloc[rows].to_parquet(directory / f"part-{i}.parquet")


def run(*args):
    return CliRunner().invoke(main, [*map(str, args), "--workers", "0"])


def error(result, code):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def contents(directory):
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("safety") / "model.zarr"
    fitted = squeak_dist.fit(made(60), target="y", max_dictionary=30, mu=0.01)
    fitted.save(path)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory: data in ``data``, and some links to them."""
    write(made(20), tmp_path / "data")
    write(made(20, 1), tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "data" / "linked.parquet").symlink_to("../elsewhere/part-0.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- 21: what is read is never written --------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "out"),
    [
        ("link/*.parquet", "data"),
        ("link", "{here}/data/../data"),
        ("data", "elsewhere"),  # a file of data is a link into it
        ("simplecache::file://{here}/data", "data"),
        ("data/**", "data/new"),
        ("da*/*.parquet", "data/new.parquet"),
        ("link/*.parquet", "data/new.parquet"),
        ("data/*", "link/new"),
        ("data", "link/deep/new"),
    ],
)
def test_predict_finds_its_input_in_every_spelling(here, model, data, out):
    before = contents(here)
    result = run("predict", model, data.format(here=here), "--out", out.format(here=here),
                 "--overwrite")  # fmt: skip
    assert "overlaps" in error(result, 2)
    assert contents(here) == before


def test_predict_writes_beside_its_input(here, model):
    os.chdir(here / "data")
    result = run("predict", model, "part-*.parquet", "--out", "predictions")
    assert result.exit_code == 0, result.output
    assert len(pd.read_parquet("predictions")) == 20


def test_a_model_is_input_too(here, model):
    before = contents(model)
    error(run("predict", model, "data", "--out", model, "--overwrite"), 2)
    assert "overlaps" in error(run("predict", model, "data", "--out", model / "new"), 2)
    assert contents(model) == before


def test_overlaps_on_an_object_store():
    fs = fsspec.filesystem("memory")
    fs.pipe("/safety/data/part-0.parquet", b"data")
    for data, out in [
        ("data", "data"), ("data", "data/new"), ("data/part-0.parquet", "data"),
        ("data/*.parquet", "data"), ("data/*", "data/new"), ("*/part-0.parquet", "data"),
    ]:  # fmt: skip
        with pytest.raises(InvalidParameterError, match="overlaps"):
            check_apart("--out", f"memory://safety/{out}/", f"memory://safety/{data}")
    check_apart("--out", "memory://safety/data2", "memory://safety/data")
    check_apart("--out", "/safety/data", "memory://safety/data")


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_leaves_the_earlier_output_whole(here, model, workers):
    assert run("predict", model, "data", "--out", "out").exit_code == 0
    damage(here / "elsewhere" / "part-1.parquet")
    before = contents(here)
    done = subprocess.run(
        [BIN / "squeak-dist", "predict", model, "elsewhere", "--out", "out", "--overwrite",
         "--workers", workers],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: OSError: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert contents(here) == before


def damage(path):
    """Write a parquet file whose pages are void; the footer is whole."""
    made(4000).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:4000] = bytes(3996)
    path.write_bytes(content)


def test_what_came_meanwhile_is_not_replaced(here, model, monkeypatch):
    def compute(*args, **kwargs):
        write(made(5), here / "out")

    monkeypatch.setattr(predicting, "compute_with_bar", compute)
    assert "--overwrite" in error(run("predict", model, "data", "--out", "out"), 2)
    assert len(pd.read_parquet(here / "out")) == 5
    assert not list(here.glob("out.*"))


@pytest.mark.parametrize("workers", ["0", "1"])
def test_ctrl_c_leaves_nothing_half(tmp_path, model, workers):
    write(made(1_000_000), tmp_path / "data", parts=40)
    write(made(5), tmp_path / "out", parts=1)
    before = contents(tmp_path)
    process = subprocess.Popen(
        [BIN / "squeak-dist", "predict", model, "data", "--out", "out", "--overwrite",
         "--workers", workers],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out.tmp-*/*")):
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr == "Interrupted\n"
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["data", "out"]


# --- 23: what cannot be saved is not fitted ---------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data", "overlaps"),
        ("data/model.zarr", "overlaps"),
        ("link/model.zip", "overlaps"),
        ("elsewhere", "choose another path"),
        ("elsewhere/part-0.parquet", "choose another path"),
        ("elsewhere/part-0.parquet/model.zarr", "cannot save to"),
        ("no-such-protocol://model", "no-such-protocol"),
    ],
)
def test_fit_learns_first_that_the_model_has_no_place(here, monkeypatch, path, expected):
    (here / "data" / "linked.parquet").unlink()
    before = contents(here)
    monkeypatch.setattr(squeak_dist.SqueakRegressor, "fit", lambda *a, **k: pytest.fail("fitted"))
    assert expected in error(run("fit", "data", "--target", "y", "--model", path), 2)
    assert contents(here) == before
