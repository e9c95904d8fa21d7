"""The commands and their options. stdout holds data only; bars and messages go to stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from squeak_dist._version import __version__
from squeak_dist.cli.failures import plain_errors
from squeak_dist.cli.interrupts import importing
from squeak_dist.cli.job_file import take_job_file
from squeak_dist.cli.options import PATH, Columns, Command, fit_options, option
from squeak_dist.cli.places import Place, cluster_options, scheduler_options, storage_option

_SHELLS = ("bash", "zsh", "fish")


@click.group(
    name="squeak",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="squeak-dist")
def main() -> None:
    """Kernel ridge regression on tables too big for one machine.

    DATA is parquet: files, directories, globs or URLs. Messages and progress go
    to stderr, results to stdout.

    Exit codes: 0 done, 2 usage or bad input, 1 failure, 130 interrupted.
    """


def _data(context: click.Context, parameter: click.Parameter, given: Any) -> tuple[str, ...]:
    """Take DATA from the job file where the command line has none, which click does not do."""
    data = given or context.lookup_default(str(parameter.name))
    if not data and not context.resilient_parsing:
        raise click.MissingParameter(ctx=context, param=parameter)
    return tuple(data or ())


_data_argument = click.argument("data", nargs=-1, type=PATH, callback=_data, metavar="DATA...")
_model_argument = click.argument("model_path", type=PATH, metavar="MODEL")
_config_option = option(
    "--config",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    is_eager=True,
    expose_value=False,
    callback=take_job_file,
    help="TOML file with a table per command, [fit] say, whose keys are options and data; what "
    "the command line has wins.",
)
_json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")

_target_option = option(
    "--target",
    required=True,
    multiple=True,
    metavar="COLUMN",
    help="Column to predict; repeat it for several.",
)
_features_option = option(
    "--features",
    type=Columns(),
    metavar="COLUMNS",
    help="Columns to learn from, comma separated.  [default: all others]",
)
_weight_option = option("--sample-weight", metavar="COLUMN", help="Column of sample weights.")


def _overwrite_option(what: str) -> Callable[[Any], Any]:
    return option("--overwrite", is_flag=True, help=f"Replace {what}.")


@main.command(cls=Command)
@_data_argument
@_target_option
@option("--model", "model_path", type=PATH, metavar="PATH",
        help="Where to save: a directory, a .zip file or a URL.  [required, but for a dry run]"
        )  # fmt: skip
@_overwrite_option("a model that is there")
@_features_option
@_weight_option
@option("--checkpoint", type=PATH, metavar="PATH",
        help="Directory or URL for finished parts: the same command goes on from there after a "
        "break.")  # fmt: skip
@option("--dry-run", is_flag=True,
        help="Say what the fit would keep and cost, as `plan` does, and stop.")  # fmt: skip
@option("--remove-checkpoint", is_flag=True,
        help="Remove the checkpoint once the model is saved.")  # fmt: skip
@_config_option
@storage_option
@option("--task", group="Model", type=click.Choice(["regression", "classification"]),
        default="regression", metavar="NAME", show_default=True,
        help="regression of numbers, or classification of labels.")  # fmt: skip
@option("--balanced", group="Model", is_flag=True,
        help="In classification: all classes of the same weight.")  # fmt: skip
@option("--json", "as_json", is_flag=True,
        help="Progress and summary as lines of JSON, on stderr.")  # fmt: skip
@fit_options
@cluster_options
@plain_errors
def fit(**arguments: Any) -> None:
    """Fit a model to DATA and save it."""
    with importing():
        from squeak_dist.cli.fitting import run_fit
    run_fit(**arguments)


@main.command(cls=Command)
@_data_argument
@_target_option
@_features_option
@_weight_option
@_json_option
@_config_option
@storage_option
@fit_options
@cluster_options
@plain_errors
def plan(**arguments: Any) -> None:
    """Say what a fit to DATA would keep and cost.

    One pass over DATA; kernel and γ are chosen as in the fit, and what a row
    costs is measured where the fit would run.
    """
    with importing():
        from squeak_dist.cli.planning import run_plan
    run_plan(**arguments)


@main.command(cls=Command)
@_model_argument
@_data_argument
@option("--out", required=True, type=PATH, metavar="PATH", help="Directory or URL to write to.")
@_overwrite_option("predictions that are there")
@option("--probabilities", is_flag=True,
        help="Of a classifier: write these, one column per class.")  # fmt: skip
@_config_option
@storage_option
@cluster_options
@plain_errors
def predict(**arguments: Any) -> None:
    """Predict DATA with MODEL and write parquet.

    Every row is predicted, and keeps its index; one without a name is the
    column "index".
    """
    with importing():
        from squeak_dist.cli.predicting import run_predict
    run_predict(**arguments)


@main.command(cls=Command)
@_model_argument
@_data_argument
@_json_option
@_config_option
@storage_option
@cluster_options
@plain_errors
def evaluate(**arguments: Any) -> None:
    """Score MODEL on DATA, beside a constant and linear ridge."""
    with importing():
        from squeak_dist.cli.predicting import run_evaluate
    run_evaluate(**arguments)


@main.command(cls=Command)
@_model_argument
@_json_option
@storage_option
@plain_errors
def inspect(model_path: str, as_json: bool) -> None:
    """Show what MODEL is and how it was fitted."""
    with importing():
        from squeak_dist.cli.inspecting import run_inspect
    run_inspect(model_path, as_json=as_json)


@main.command(cls=Command)
@_model_argument
@option("--out", type=PATH, metavar="PATH",
        help="HTML file to write.  [default: MODEL's name with .html]")  # fmt: skip
@option("--test", type=PATH, multiple=True, metavar="DATA",
        help="Held-out rows to measure the quality on; repeat it for several.")  # fmt: skip
@option("--columns", type=Columns(), metavar="A,B",
        help="Columns for the picture of the dictionary.")  # fmt: skip
@storage_option
@cluster_options
@plain_errors
def report(**arguments: Any) -> None:
    """Write figures and tables on MODEL to one HTML page.

    The page opens without a network. Without --test the quality is that on rows
    of the fit, each predicted as if it had been left out.
    """
    with importing():
        from squeak_dist.cli.reporting import run_report
    run_report(**arguments)


@main.command(cls=Command)
@option("--port", type=click.IntRange(0, 65535), default=5010, metavar="PORT", show_default=True,
        help="Where the page is served; 0: any free port.")  # fmt: skip
@option("--address", default="127.0.0.1", metavar="HOST", show_default=True,
        help="Interface to serve on; by default this machine alone.")  # fmt: skip
@scheduler_options
@plain_errors
def watch(**arguments: Any) -> None:
    """Serve a page that follows the fits of a Dask scheduler.

    It shows the stage, its tasks and the merge tree as it fills. Ctrl-C ends it.
    """
    with importing():
        from squeak_dist.cli.reporting import run_watch
    run_watch(**arguments)


@main.command(cls=Command)
@option("--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True,
        metavar="PATH", help="Where the model and the maps go.")  # fmt: skip
@option("--seed", type=click.IntRange(min=0), default=0, metavar="NUMBER", show_default=True,
        help="Of split and fit.")  # fmt: skip
@cluster_options
@plain_errors
def demo(out: Path, seed: int, cluster: Place, quiet: bool) -> None:
    """Fit sea-surface temperatures, beside other methods."""
    with importing():
        from squeak_dist.cli.demo import start_demo
    start_demo(out, seed, cluster, quiet=quiet)


@main.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    \b
    bash:  eval "$(squeak-dist completion bash)"      in ~/.bashrc
    zsh:   eval "$(squeak-dist completion zsh)"       in ~/.zshrc
    fish:  squeak-dist completion fish | source       in config.fish
    """  # noqa: D301 (click's mark of lines to keep)
    script = get_completion_class(shell)
    assert script is not None  # of the shells that click knows
    click.echo(script(main, {}, "squeak-dist", "_SQUEAK_DIST_COMPLETE").source())
