"""The command line: exit codes, streams, and what it must never overwrite."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import click
import dask
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster
from sklearn.metrics import r2_score

import squeak_dist
from squeak_dist.cli import main
from squeak_dist.cli.progress import fit_view

BIN = Path(sys.executable).parent
FIT = ["--target", "y", "--features", "a, b,c", "--max-dictionary", "120", "--mu", "0.01"]


def made(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    noise = 0.05 * rng.normal(size=n)
    return frame.assign(y=np.sin(2 * frame["a"]) + frame["b"] + noise, text="word")


def write_parts(frame, directory, parts=4):
    directory.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), parts)):
        frame.iloc[rows].to_parquet(directory / f"part-{i}.parquet")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with ``train``, ``test`` and ``model.zarr``, which no test changes."""
    place = tmp_path_factory.mktemp("cli")
    write_parts(made(400, 0), place / "train")
    write_parts(made(100, 1), place / "test", parts=2)
    result = run("fit", place / "train", *FIT, "--model", place / "model.zarr")
    assert result.exit_code == 0, result.stderr
    return place


def run(*args, workers=0):
    """Run a command in this process, on threads unless told otherwise."""
    options = [] if args[0] in ("inspect", "--help", "--version") else ["--workers", workers]
    return CliRunner().invoke(main, [str(a) for a in (*args, *options)])


def message(result, code):
    """The one line of an error, after its exit code and streams were checked."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert lines[-1] == errors[0], "an error is one line"
    assert "Traceback" not in result.stderr
    return errors[0]


def snapshot(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


# --- what works -------------------------------------------------------------------------------


def test_fit_prints_the_path_alone(place, tmp_path):
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m.zarr")
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'm.zarr'}\n"
    assert "dictionary size" in result.stderr
    model = squeak_dist.load(tmp_path / "m.zarr")
    assert model.model_.encoding.labels == ("a", "b", "c")
    assert model.mu_ == 0.01


def test_a_plan_before_the_fit(place, tmp_path):
    table = run("plan", place / "train", *FIT)
    assert table.exit_code == 0, table.stderr
    assert "rows kept" in table.stdout
    shown = json.loads(run("plan", place / "train", *FIT, "--json").stdout)
    model = squeak_dist.load(place / "model.zarr")
    assert shown["rows"] == 400
    assert shown["chosen"]["gamma"] == model.report_["gamma_requested"]
    dry = run("fit", place / "train", *FIT, "--model", tmp_path / "m.zarr", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stdout.splitlines()[:2] == table.stdout.splitlines()[:2]
    assert not (tmp_path / "m.zarr").exists()
    nowhere = run("fit", place / "train", *FIT, "--dry-run")
    assert nowhere.stdout.splitlines()[0] == table.stdout.splitlines()[0]
    assert "Missing option '--model'" in message(run("fit", place / "train", *FIT), 2)
    refused = run(
        "fit", place / "train", *FIT, "--model", tmp_path / "m.zarr", "--dry-run",
        "--task", "classification",
    )  # fmt: skip
    assert "--dry-run is for regression" in message(refused, 2)


def test_every_option_of_fit_arrives(place, tmp_path):
    result = run(
        "fit", place / "train", "--target", "y", "--target", "b", "--features", "a,c",
        "--sample-weight", "c", "--model", tmp_path / "m.zarr",
    )  # fmt: skip
    assert "both a feature and the target or weight" in message(result, 2)
    result = run(
        "fit", place / "train", "--target", "y", "--target", "b", "--features", "a,c",
        "--kernel", "matern", "--length-scale", "2.5", "--mu", "0.5", "--gamma", "0.25",
        "--epsilon", "0.4", "--qbar", "8", "--max-dictionary", "300", "--approximation",
        "regularized", "--fan-in", "3", "--missing", "impute", "--seed", "11",
        "--model", tmp_path / "m.zarr",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    model = squeak_dist.load(tmp_path / "m.zarr").model_
    assert str(model.kernel) == "Matern(length_scale=2.5, nu=1.5)"
    assert (model.mu, model.dictionary.gamma, model.epsilon) == (0.5, 0.25, 0.4)
    assert (model.dictionary.qbar, model.seed, model.approximation) == (8, 11, "regularized")
    assert model.target_names == ("y", "b")
    assert model.encoding.missing == "impute"


def test_a_fit_with_two_workers_has_the_same_bits(place, tmp_path):
    result = run("fit", place / "train", *FIT, "--model", tmp_path / "m.zarr", workers=2)
    assert result.exit_code == 0, result.stderr
    ours, theirs = (squeak_dist.load(p / "m.zarr" if p == tmp_path else p / "model.zarr")
                    for p in (tmp_path, place))  # fmt: skip
    assert ours.dual_coef_.tobytes() == theirs.dual_coef_.tobytes()


def test_on_a_running_scheduler(place, tmp_path, monkeypatch):
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=None,
    ) as cluster:
        address = cluster.scheduler_address
        options = ["--model", tmp_path / "m.zarr", "--scheduler", address]
        result = CliRunner().invoke(main, list(map(str, ["fit", place / "train", *FIT, *options])))
        assert result.exit_code == 0, result.stderr
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
        arguments = ["evaluate", tmp_path / "m.zarr", place / "test", "--json"]
        result = CliRunner().invoke(main, list(map(str, arguments)))
        assert result.exit_code == 0, result.stderr
        with Client(address) as client:  # the cluster outlives the commands
            assert client.submit(sum, [1, 2]).result() == 3
    reference = squeak_dist.load(place / "model.zarr")
    np.testing.assert_array_equal(
        squeak_dist.load(tmp_path / "m.zarr").dual_coef_, reference.dual_coef_
    )


def test_predict_writes_parquet_with_the_index(place, tmp_path):
    out = tmp_path / "out"
    result = run("predict", place / "model.zarr", place / "test", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}\n"
    assert result.stderr == ""
    predicted, test = pd.read_parquet(out), made(100, 1)
    assert list(predicted.columns) == ["y"]
    assert predicted.index.tolist() == test.index.tolist()
    model = squeak_dist.load(place / "model.zarr")
    np.testing.assert_allclose(predicted["y"], model.predict(test), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("named", "shown"), [(None, ["index"]), ("row", ["row"]), (["p", "q"], ["p", "q"])]
)
def test_an_index_without_a_name_gets_one(place, tmp_path, named, shown):
    """Not the one that Dask would make up: other readers than pandas see it as a column."""
    rows = made(20, 1)
    if isinstance(named, list):
        rows = rows.set_index([rows.index // 5, rows.index % 5])
    else:
        rows.index = pd.Index([*range(19), 99])  # Dask cannot read a range that has a name
    rows.rename_axis(named).to_parquet(tmp_path / "rows.parquet")
    result = run(
        "predict", place / "model.zarr", tmp_path / "rows.parquet", "--out", tmp_path / "out"
    )
    assert result.exit_code == 0, result.stderr
    columns = pyarrow.parquet.read_table(tmp_path / "out").column_names
    assert set(columns) == {"y", *shown}


def test_predict_overwrites_on_request_only(place, tmp_path):
    out = tmp_path / "out"
    command = ("predict", place / "model.zarr", place / "test", "--out", out)
    assert run(*command).exit_code == 0
    before = snapshot(out)
    assert "pass --overwrite" in message(run(*command), 2)
    assert snapshot(out) == before
    (out / "old.parquet").write_bytes(b"left over")
    assert run(*command, "--overwrite").exit_code == 0
    assert not (out / "old.parquet").exists()
    (tmp_path / "file").write_text("kept")
    command = ("predict", place / "model.zarr", place / "test", "--out", tmp_path / "file")
    assert "is a file" in message(run(*command, "--overwrite"), 2)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    ("data", "out"),
    [
        ("data", "data"),
        ("data", "./data/"),
        ("data/", "data"),
        ("data/*.parquet", "data"),
        ("data/part-*.parquet", "../{name}/data"),
        ("data", "link"),
        ("link", "data"),
        ("data", "file://{here}/data"),
        ("file://{here}/data", "data"),
        ("data/part-0.parquet", "data"),
        ("data", "."),
        ("data", "data/predictions"),
    ],
)
def test_predict_never_touches_its_input(place, tmp_path, monkeypatch, data, out, overwrite):
    write_parts(made(30, 2), tmp_path / "data", parts=2)
    (tmp_path / "link").symlink_to("data")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path / "data")
    places = {"here": tmp_path, "name": tmp_path.name}
    data, out = data.format(**places), out.format(**places)
    options = ["--overwrite"] if overwrite else []
    result = run("predict", place / "model.zarr", data, "--out", out, *options)
    assert snapshot(tmp_path / "data") == before
    message(result, 2)


def test_evaluate(place):
    result = run("evaluate", place / "model.zarr", place / "test")
    assert result.exit_code == 0
    assert result.stderr == ""
    for word in ("mean", "linear", "squeak", "RMSE", "R²", "on 100 rows"):
        assert word in result.stdout
    as_json = run("evaluate", place / "model.zarr", place / "test", "--json")
    scores = strict_json(as_json.stdout)
    test = made(100, 1)
    predicted = squeak_dist.load(place / "model.zarr").predict(test)
    assert scores["rows"] == 100
    assert scores["model"]["r2"][0] == pytest.approx(r2_score(test["y"], predicted), abs=1e-5)
    assert scores["linear"]["rmse"][0] < scores["mean"]["rmse"][0]


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def test_json_has_no_nan(place, tmp_path):
    made(20, 1).assign(y=1.0).to_parquet(tmp_path / "constant.parquet")
    result = run("evaluate", place / "model.zarr", tmp_path / "constant.parquet", "--json")
    assert result.exit_code == 0
    assert strict_json(result.stdout)["model"]["r2"] == [None]
    made(20, 1).assign(y=math.inf).to_parquet(tmp_path / "infinite.parquet")
    result = run("evaluate", place / "model.zarr", tmp_path / "infinite.parquet", "--json")
    assert "infinite" in message(result, 2)


def test_inspect(place):
    result = run("inspect", place / "model.zarr")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "dictionary size" in result.stdout
    facts = strict_json(run("inspect", place / "model.zarr", "--json").stdout)
    model = squeak_dist.load(place / "model.zarr")
    assert facts["features"] == ["a", "b", "c"]
    assert facts["target"] == ["y"]
    assert facts["dictionary_size"] == len(model.dictionary_)
    assert facts["rows_fitted"] == 400
    assert facts["gamma"] == model.gamma_
    assert facts["report"]["partition_rows"] == [100] * 4


def test_warnings_are_a_line_on_stderr(place, tmp_path):
    result = run("fit", place / "train", "--target", "y", "--model", tmp_path / "m.zarr")
    assert result.exit_code == 0
    assert "Warning: left out of the fit: 'text' (constant)" in result.stderr.splitlines()
    assert result.stdout == f"{tmp_path / 'm.zarr'}\n"


# --- what does not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fit", "nowhere", "--target", "y", "--model", "m"], "nothing found at 'nowhere'"),
        (["fit", "junk.parquet", "--target", "y", "--model", "m"], "cannot read 'junk.parquet'"),
        (["fit", "empty", "--target", "y", "--model", "m"], "'empty'"),
        (["fit", "train", "--target", "Y", "--model", "m"], "missing column 'Y' (did you mean"),
        (["fit", "train", "--target", "text", "--model", "m"], "is text"),
        (["fit", "train", "--target", "y", "--features", "a,q", "--model", "m"], "'q'"),
        (["fit", "train", "--target", "y", "--model", "m", "--epsilon", "2"], "epsilon"),
        (["fit", "train", "--target", "y", "--model", "m", "--gamma", "lots"], "got 'lots'"),
        (["fit", "train", "--target", "y", "--model", "m", "--gamma", "nan"], "gamma"),
        (["fit", "train", "--target", "y", "--model", "m", "--mu", "-1"], "a number > 0"),
        (["fit", "train", "--target", "y", "--model", "m", "--qbar", "1.5"], "qbar"),
        (["fit", "train", "--target", "y", "--model", "m", "--kernel", "magic"], "magic"),
        (["fit", "train", "--target", "y", "--model", "m", "--fan-in", "1"], "--fan-in"),
        (
            ["fit", "train", "--target", "y", "--model", "m", "--max-dictionary", "0"],
            "--max-dictionary",
        ),
        (["fit", "train", "--target", "y"], "--model"),
        (["fit", "train", "--model", "m"], "--target"),
        (["predict", "nowhere", "train", "--out", "o"], "nowhere"),
        (["predict", "train", "train", "--out", "o"], "train"),
        (["predict", "model.zarr", "nowhere", "--out", "o"], "nowhere"),
        (["predict", "model.zarr", "narrow.parquet", "--out", "o"], "missing column"),
        (["evaluate", "model.zarr", "narrow.parquet"], "missing column"),
        (["inspect", "junk.parquet"], "junk.parquet"),
        (["no-such-command"], "no-such-command"),
    ],
    ids=lambda value: "-".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(place, tmp_path, monkeypatch, arguments, expected):
    for name in ("train", "model.zarr"):
        (tmp_path / name).symlink_to(place / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.parquet").write_text("no parquet")
    pd.DataFrame({"a": [1.0], "y": [2.0]}).to_parquet(tmp_path / "narrow.parquet")
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert expected in message(result, 2)
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "o").exists()


def test_no_scheduler_answers(place, tmp_path):
    command = ["fit", place / "train", *FIT, "--model", tmp_path / "m", "--scheduler"]
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
        result = CliRunner().invoke(main, list(map(str, [*command, "tcp://127.0.0.1:9"])))
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in message(result, 1)


def test_damaged_data_are_a_failure_without_a_traceback(place, tmp_path):
    write_parts(made(4000, 0), tmp_path / "data", parts=1)
    file = tmp_path / "data" / "part-0.parquet"
    content = bytearray(file.read_bytes())
    content[4:4000] = bytes(3996)  # pages of data; the footer is whole
    file.write_bytes(content)
    result = run("fit", tmp_path / "data", "--target", "y", "--model", tmp_path / "m")
    message(result, 1)


@pytest.mark.parametrize("where", ["train", "train/part-0.parquet"])
def test_a_place_that_cannot_take_the_model_is_found_before_the_fit(
    place, tmp_path, monkeypatch, where
):
    write_parts(made(30, 0), tmp_path / "train", parts=1)
    before = snapshot(tmp_path / "train")
    monkeypatch.setattr(squeak_dist.SqueakRegressor, "fit", lambda *a, **k: pytest.fail("fitted"))
    result = run("fit", place / "train", *FIT, "--model", tmp_path / where)
    assert "choose another path" in message(result, 2)
    assert snapshot(tmp_path / "train") == before


# --- help, entry points, bars -----------------------------------------------------------------


def test_help_tells_of_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert "Exit codes: 0 done, 2 usage or bad input, 1 failure, 130 interrupted." in result.stdout
    for name, command in main.commands.items():
        assert f"  {name} " in result.stdout
        context = click.Context(command)
        assert command.get_help(context)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help
    assert "..." not in result.stdout.partition("Commands:")[2]


@pytest.mark.parametrize("command", [["squeak-dist"], ["dask", "squeak"]])
def test_the_entry_points(place, tmp_path, command):
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def call(*arguments):
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, env=environment,
            cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip

    shown = call("--help")
    assert shown.returncode == 0
    assert "evaluate" in shown.stdout
    done = call("evaluate", place / "model.zarr", place / "test", "--json", "--workers", 0)
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout)["rows"] == 100
    assert done.stderr == ""
    failed = call("inspect", "nowhere")
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("Error: ")
    assert "Traceback" not in failed.stderr


def test_worker_processes_of_the_real_command(place, tmp_path):
    done = subprocess.run(
        [BIN / "squeak-dist", "predict", place / "model.zarr", place / "test", "--out",
         tmp_path / "out", "--workers", "2"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'out'}\n"
    assert done.stderr == ""
    assert len(pd.read_parquet(tmp_path / "out")) == 100


class Terminal:
    """What the bars write to a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_progress_on_a_terminal_only(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with fit_view(quiet=False) as view:
        for done in range(5):
            view("profile", done, 4)
        view("solve", 1, 2)
    assert "profile" in terminal.text
    assert "4/4" in terminal.text
    assert "1/2" in terminal.text
    with fit_view(quiet=True) as view:
        assert view is None
    terminal.isatty = lambda: False
    with fit_view(quiet=False) as view:
        assert view is None


def test_progress_as_json_needs_no_terminal(monkeypatch):
    pipe = Terminal()
    pipe.isatty = lambda: False
    monkeypatch.setattr(sys, "stderr", pipe)
    with fit_view(quiet=False, as_json=True) as view:
        view("profile", 0, 2)
        view("profile", 2, 2)
    first, last = map(json.loads, pipe.text.splitlines())
    assert (first["event"], first["stage"], first["done"], first["total"]) == (
        "progress", "profile", 0, 2,
    )  # fmt: skip
    assert last["done"] == 2
    assert last["seconds_left"] == 0
