"""Job files, options from the table of parameters, messages, completion, exit codes, Ctrl-C."""

from __future__ import annotations

import errno
import functools
import http.server
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields

import click
import fsspec
import numpy as np
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner

import squeak_dist
from squeak_dist.cli import failures, main
from squeak_dist.cli.failures import in_option_words
from squeak_dist.cli.places import file_system_defaults, options_for
from squeak_dist.errors import CheckpointError, StoreError
from squeak_dist.parameter_table import PARAMETERS
from squeak_dist.stages import FitParameters

COMMAND = [sys.executable, "-m", "squeak_dist"]


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(y=frame["a"] + np.sin(frame["b"]))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with 80 rows in ``data`` as two files."""
    (tmp_path / "data").mkdir()
    for i in range(2):
        made(40, i).to_parquet(tmp_path / "data" / f"part-{i}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, workers=True):
    return CliRunner().invoke(main, [*arguments, *(["--workers", "0"] if workers else [])])


def error(result, code):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]


# --- one table --------------------------------------------------------------------------------


def test_the_table_is_that_of_the_parameters():
    own = {"classifies"}  # the classifier sets it
    names = [f.name for f in fields(FitParameters) if f.name not in own]
    assert [p.field for p in PARAMETERS.values()] == names
    defaults = FitParameters()
    options = {p.name: p for p in main.commands["fit"].params}
    for parameter in PARAMETERS.values():
        assert parameter.default == getattr(defaults, parameter.field)
        assert options[parameter.name].default == parameter.default


@pytest.mark.parametrize(
    "estimator",
    [squeak_dist.SqueakRegressor, squeak_dist.SqueakClassifier, squeak_dist.SqueakTransformer,
     squeak_dist.SqueakPCA],
)  # fmt: skip
def test_the_estimators_have_the_defaults_of_the_table(estimator):
    taken = inspect.signature(estimator).parameters
    # Without a target there is no error by which to choose a kernel.
    others = {"kernel": "rbf"} if "mu" not in taken else {}
    for name in taken.keys() & PARAMETERS.keys():
        assert taken[name].default == others.get(name, PARAMETERS[name].default)


def test_help_fits_80_columns_and_is_quick_to_import():
    for name, command in main.commands.items():
        with (
            click.Context(main) as parent,
            command.make_context(
                name, [], parent=parent, resilient_parsing=True, max_content_width=80
            ) as context,
        ):
            text = command.get_help(context)
        assert max(map(len, text.splitlines())) <= 80, name
    script = (
        "import sys; from squeak_dist.cli import main\n"
        "try: main(['fit', '--help'])\n"
        "finally: print(*{'scipy', 'pandas', 'dask', 'sklearn', 'bokeh'} & sys.modules.keys(),"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "--max-dictionary" in done.stdout
    assert done.stderr.strip() == ""


# --- job files --------------------------------------------------------------------------------

JOB = """
[fit]
data = "data"
target = "y"
model = "m.zarr"
features = ["a", "b"]
kernel = "matern"
length-scale = [1.5, 2]
mu = 0.5
gamma = 0.25
epsilon = 0.4
delta = 0.2
qbar = 8
max_dictionary = 50
sampler = "squeak"
on-overrun = "stop"
solver = "direct"
approximation = "regularized"
linear_part = false
fan-in = 3
missing = "impute"
standardize = true
dtype = "float64"
seed = 11
quiet = true
workers = 0

[evaluate]
json = true
"""
IN_JOB = {
    "kernel": "matern", "length_scale": [1.5, 2], "mu": 0.5, "gamma": 0.25, "epsilon": 0.4,
    "delta": 0.2, "qbar": 8, "max_dictionary": 50, "sampler": "squeak", "on_overrun": "stop",
    "solver": "direct",
    "approximation": "regularized", "linear_part": False, "fan_in": 3, "missing": "impute",
    "standardize": True, "dtype": "float64", "random_state": 11,
}  # fmt: skip


def test_a_job_file_sets_every_parameter_and_the_model_tells_them(here):
    assert IN_JOB.keys() == PARAMETERS.keys()
    (here / "job.toml").write_text(JOB)
    result = run("fit", "--config", "job.toml", workers=False)
    assert (result.exit_code, result.stdout) == (0, "m.zarr\n"), result.output
    shown = json.loads(run("inspect", "m.zarr", "--json", workers=False).stdout)
    assert shown["parameters"] == IN_JOB
    assert shown["report"]["parameters"] == IN_JOB
    table = run("inspect", "m.zarr", workers=False).stdout
    assert "fitted with" in table
    assert "on overrun  stop" in table
    scores = json.loads(run("evaluate", "m.zarr", "data", "--config", "job.toml").stdout)
    assert scores["rows"] == 80


def test_the_command_line_wins_over_the_job_file(here):
    (here / "job.toml").write_text(JOB)
    result = run("fit", "data/part-0.parquet", "--config", "job.toml", "--model", "other.zarr",
                 "--seed", "3", "--linear-part", "true", "--max-dictionary", "none",
                 "--length-scale", "2", workers=False)  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = json.loads(run("inspect", "other.zarr", "--json", workers=False).stdout)
    given = {"random_state": 3, "linear_part": True, "max_dictionary": None, "length_scale": 2}
    assert shown["parameters"] == IN_JOB | given
    assert shown["rows_fitted"] == 40
    assert not (here / "m.zarr").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[fit]\nmax_dictionnary = 5", "no key 'max_dictionnary'; did you mean 'max_dictionary'?"),
        ("[fit]\nalpha = 5", "no key 'alpha'; did you mean 'mu'?"),
        ("[fit]\nzzz = 5", "no key 'zzz'; there are data, target, model"),
        ("[fitt]\nmu = 5", "no command 'fitt' to set options of; did you mean 'fit'?"),
        ("mu = 5", "write them under [fit]"),
        ("fit = 5", "fit must be a table, [fit]"),
        ('[fit]\nmu = "0.5"', "mu must be a number > 0, got '0.5', or \"auto\""),
        ("[fit]\nmu = true", "mu must be a number > 0, got True"),
        ("[fit]\nqbar = 8.5", "qbar must be an integer ≥ 1, got 8.5"),
        ('[fit]\nlinear_part = "yes"', "linear_part must be one of 'auto', True, False"),
        ("[fit]\nlength_scale = [1, -2]", "length_scale must be a number > 0, got -2"),
        ('[fit]\nkernel = "magic"', "kernel must be one of 'auto', 'rbf', "),
        ("[fit]\ntarget = 5", "target must be text, or a list of texts, got 5"),
        ("[fit]\nmodel = true", "model must be text, got True"),
        ('[fit]\nquiet = "yes"', "quiet must be true or false, got 'yes'"),
        ("[fit]\nworkers = true", "workers must be an integer, got True"),
        ('[fit]\nstorage_options = "a=b"', "storage_options must be a table"),
        ("[fit\nmu = 5", "cannot read job.toml as TOML"),
    ],
)
def test_what_is_wrong_in_a_job_file_is_named(here, text, expected):
    (here / "job.toml").write_text(text)
    result = run("fit", "data", "--target", "y", "--model", "m.zarr", "--config", "job.toml")
    assert expected in error(result, 2)
    assert not (here / "m.zarr").exists()


def test_a_job_file_without_data_is_not_enough(here):
    (here / "job.toml").write_text('[fit]\ntarget = "y"\nmodel = "m.zarr"')
    assert "DATA" in error(run("fit", "--config", "job.toml"), 2)


# --- what is read, and how --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (["data"], 80), (["data/part-*.parquet"], 80), (["data/part-1.parquet"], 40),
        (["data/part-0.parquet", "data/part-1.parquet"], 80), (["d*"], 120),
        (["data", "data2"], 120), (["file://{here}/data"], 80),
        (["simplecache::http://127.0.0.1:{port}/data/part-0.parquet"], 40),
    ],
)  # fmt: skip
def test_files_directories_globs_and_urls(here, data, rows):
    (here / "data2").mkdir()
    made(40, 2).to_parquet(here / "data2" / "part.parquet")
    files = functools.partial(Quiet, directory=here)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        places = [place.format(here=here, port=server.server_port) for place in data]
        result = run("fit", *places, "--target", "y", "--model", "m.zarr", "--mu", "0.1",
                     "--max-dictionary", "20")  # fmt: skip
        server.shutdown()
    assert result.exit_code == 0, result.output
    assert squeak_dist.load("m.zarr").report_["rows"] == rows


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, *args):
        pass


class Locked(fsspec.get_filesystem_class("memory")):
    """A file system that asks for a key."""

    protocol = "locked"
    cachable = False

    def __init__(self, *args, key=None, **kwargs):
        super().__init__(*args, **kwargs)
        if key != {"id": 7}:
            raise PermissionError("no key")

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("locked://", "memory://"))


@pytest.mark.parametrize(
    "given", [["--storage-options", 'key={"id": 7}'], ["--storage-options", '{"key": {"id": 7}}']]
)
def test_storage_options_reach_every_url_of_a_command(here, given, monkeypatch):
    fsspec.register_implementation("locked", Locked, clobber=True)
    fs = Locked(key={"id": 7})
    fs.put("data", "/jobs/data", recursive=True)
    base = ["fit", "locked://jobs/data", "--target", "y", "--mu", "0.1", "--max-dictionary", "20",
            "--model", "locked://jobs/m.zarr"]  # fmt: skip
    assert "no key" in error(run(*base), 2)
    result = run(*base, "--checkpoint", "locked://jobs/checkpoint", *given)
    assert result.exit_code == 0, result.output
    shown = run("inspect", "locked://jobs/m.zarr", *given, workers=False)
    assert "dictionary size" in shown.stdout, shown.output
    assert options_for("locked://jobs") == {}
    fs.rm("/jobs", recursive=True)


def test_storage_options_are_of_urls_alone():
    with file_system_defaults({"anon": True}, ["data", "s3://bucket", "simplecache::gs://x"]):
        assert options_for("s3://other") == {"anon": True}
        assert options_for("gs://other") == {"anon": True}
        assert options_for("data") == options_for("http://x") == options_for(None) == {}


@pytest.mark.parametrize("given", ["key", "=5", "{key}"])
def test_storage_options_that_are_none(here, given):
    assert "--storage-options" in error(
        run("inspect", "m.zarr", "--storage-options", given, workers=False), 2
    )


# --- inspect, of every kind of model ----------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "named"),
    [
        (squeak_dist.SqueakTransformer(max_dictionary=20), "outputs"),
        (squeak_dist.SqueakPCA(2, max_dictionary=20), "explained_variance_ratio"),
        (squeak_dist.SqueakClassifier(max_dictionary=20), "classes"),
        (squeak_dist.SqueakRegressor(max_dictionary=20), "mu"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_inspect_knows_every_model(tmp_path, estimator, named):
    frame = made(60)
    estimator.fit(frame[["a", "b"]], frame["y"] > 0).save(tmp_path / "m.zarr")
    table = run("inspect", str(tmp_path / "m.zarr"), workers=False)
    assert table.exit_code == 0, table.output
    assert named.replace("_", " ") in table.stdout
    shown = json.loads(run("inspect", str(tmp_path / "m.zarr"), "--json", workers=False).stdout)
    assert named in shown
    assert shown["features"] == ["a", "b"]
    assert shown["parameters"]["max_dictionary"] == 20


def test_inspect_knows_a_model_of_partial_fit(tmp_path):
    frame = made(60)
    model = squeak_dist.SqueakRegressor(max_dictionary=20).partial_fit(frame, target="y")
    model.save(tmp_path / "m.zarr")
    shown = run("inspect", str(tmp_path / "m.zarr"), workers=False)
    assert "rows fitted" in shown.stdout, shown.output


# --- messages, overwriting, exit codes --------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "shown"),
    [
        ('missing="impute" or missing="drop" to', "--missing impute or --missing drop to"),
        ("pass overwrite=True to replace it", "pass --overwrite to replace it"),
        ("hold max_dictionary=5. Raise it", "hold --max-dictionary 5. Raise it"),
        ("lower max_dictionary, cut", "lower --max-dictionary, cut"),
        ("mu must be a number > 0", "--mu must be a number > 0"),
        ("random_state must be an integer", "--seed must be an integer"),
        ("the column 'max_dictionary' is text", "the column 'max_dictionary' is text"),
        ("the kernel and the target", "the kernel and the target"),
        ("gamma was raised from 2 to 3", "gamma was raised from 2 to 3"),
    ],
)  # fmt: skip
def test_messages_speak_of_options(library, shown):
    assert in_option_words(library) == shown


def test_missing_values_name_the_option(here):
    made(40).assign(a=np.nan, c=1.0).to_parquet(here / "data" / "part-2.parquet")
    (here / "data" / "part-0.parquet").unlink()
    (here / "data" / "part-1.parquet").unlink()
    frame = made(40)
    frame.loc[3, "b"] = np.nan
    frame.to_parquet(here / "data" / "part-2.parquet")
    assert "--missing impute" in error(run("fit", "data", "--target", "y", "--model", "m.zarr"), 2)


def test_fit_overwrites_on_request_only(here):
    command = ["fit", "data", "--target", "y", "--mu", "0.1", "--model", "m.zarr"]
    assert run(*command).exit_code == 0
    before = squeak_dist.load("m.zarr").report_["seconds"]
    assert "pass --overwrite to replace it" in error(run(*command), 2)
    assert squeak_dist.load("m.zarr").report_["seconds"] == before
    assert run(*command, "--overwrite").exit_code == 0
    assert squeak_dist.load("m.zarr").report_["seconds"] != before


@pytest.mark.parametrize("kind", [StoreError, CheckpointError])
@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (ConnectionError("gone"), 1),
        (PermissionError("no"), 2),
        (FileNotFoundError("no"), 2),
        (ValueError("protocol not known"), 2),
        (None, 2),
    ],
)
def test_exit_codes_of_stores_and_checkpoints(kind, cause, code):
    @failures.plain_errors
    def command():
        raise kind("it failed") from cause

    with pytest.raises(click.ClickException) as caught:
        command()
    assert caught.value.exit_code == code


def test_a_full_disk_is_a_failure(here, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("squeak_dist.store.models.install", full)
    result = run("fit", "data", "--target", "y", "--mu", "0.1", "--model", "m.zarr")
    assert "No space left" in error(result, 1)


def test_a_checkpoint_of_other_parameters_is_bad_usage(here):
    command = ["fit", "data", "--target", "y", "--checkpoint", "c", "--mu"]
    assert run(*command, "0.1", "--model", "m.zarr").exit_code == 0
    assert "mu" in error(run(*command, "0.2", "--model", "n.zarr"), 2)


# --- completion -------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert f"_SQUEAK_DIST_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [("squeak-dist in", "inspect"), ("squeak-dist fit --max", "--max-dictionary"),
     ("squeak-dist fit --missing im", "impute")],
)  # fmt: skip
def test_completion_completes(words, expected):
    environment = os.environ | {
        "_SQUEAK_DIST_COMPLETE": "bash_complete", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [f"plain,{expected}"], done.stderr


# --- Ctrl-C -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.1, 0.3, 0.8])
def test_ctrl_c_while_it_starts_is_one_line(here, after):
    """At the start there are imports alone; python itself takes some of the first moment."""
    process = started("fit", "data", "--target", "y", "--model", "m.zarr", "--workers", "0")
    time.sleep(0.25 + after)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    if process.returncode == 0:  # a quick machine
        return
    # Killed by the signal, which is 130 to a shell, or 130: Python chooses at imports.
    assert process.returncode in (130, -signal.SIGINT), stderr
    assert stdout == ""
    assert stderr.startswith("Interrupted")
    assert stderr.count("\n") == 1, stderr


@pytest.mark.parametrize("checkpoint", [False, True])
def test_ctrl_c_in_a_fit_says_how_to_go_on(here, checkpoint):
    made(400_000).to_parquet(here / "data" / "part-0.parquet", row_group_size=20_000)
    options = ["--checkpoint", "c"] if checkpoint else []
    process = started("fit", "data", "--target", "y", "--model", "m.zarr", "--gamma", "0.001",
                      "--max-dictionary", "1500", "--solver", "cg", "--workers", "1",
                      *options)  # fmt: skip
    deadline = time.monotonic() + 60
    while not (list(here.glob("c/values/*")) if checkpoint else workers_of(process)):
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.0 if checkpoint else 2.0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.count("\n") == 1, stderr
    assert ("the same command goes on" if checkpoint else "--checkpoint PATH") in stderr
    assert sorted(os.listdir(here)) == (["c", "data"] if checkpoint else ["data"])


def started(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip


def workers_of(process):
    return psutil.Process(process.pid).children(recursive=True)
