"""The commands. stdout holds data only; bars and messages go to stderr."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click
import pyarrow
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist._version import __version__
from squeak_dist.cli.outputs import check_output, replacing
from squeak_dist.cli.progress import StageBars, compute_with_bar
from squeak_dist.distributed import read_parquet
from squeak_dist.errors import (
    ClusterError,
    InvalidParameterError,
    NumericalError,
    SqueakError,
    SqueakWarning,
)
from squeak_dist.kernels import BUILTIN_KERNELS
from squeak_dist.model import FittedModel
from squeak_dist.store import check_writable

_FAILURES = (ClusterError, NumericalError)  # of the run, not of what the user gave


class _UserError(click.ClickException):
    exit_code = 2


def _plain_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn errors into one line and an exit code: 2 for bad input, 1 for a failure."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", SqueakWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except _FAILURES as error:
            raise click.ClickException(_one_line(error)) from error
        except SqueakError as error:
            raise _UserError(_one_line(error)) from error
        except (
            OSError,
            pyarrow.ArrowException,
        ) as error:  # of a file that breaks while it is read
            raise click.ClickException(f"{type(error).__name__}: {_one_line(error)}") from error

    return wrapped


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _show_warning(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    if issubclass(category, SqueakWarning):
        click.echo(f"Warning: {message}", err=True)


def _cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--quiet", is_flag=True, help="No progress bars."),
        click.option(
            "--workers",
            type=click.IntRange(min=0),
            help="Worker processes to start here; 0: threads of this process. "
            "[default: one per CPU]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Run on a Dask cluster: tcp://…, tls://…, ws://…; DASK_SCHEDULER_ADDRESS works "
            "too.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Client | None]:
    """Yield a client of the scheduler, or of worker processes started here, or None.

    Raises
    ------
    ClusterError
        If the scheduler does not answer.
    """
    address = scheduler or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        try:
            client = Client(address, timeout=30)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
        with client:
            yield client
        return
    if workers == 0:
        yield None
        return
    count = workers or os.cpu_count() or 1
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@click.group(
    name="squeak",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="squeak-dist")
def main() -> None:
    """Kernel ridge regression on tables too big for one machine.

    Exit codes: 0 done, 2 usage or bad input, 1 failure.
    """


def _number_or(*words: str) -> Callable[[Any, Any, str | None], Any]:
    """Return a click callback for a number or one of some words."""

    def convert(context: Any, parameter: Any, value: str | None) -> Any:
        if value is None or value in words:
            return value
        try:
            number = float(value)
        except ValueError as error:
            expected = " or ".join(["a number", *map(repr, words)])
            raise click.BadParameter(f"{value!r} is not {expected}") from error
        return int(number) if parameter.name == "qbar" and number.is_integer() else number

    return convert


@main.command()
@click.argument("data")
@click.option("--target", required=True, multiple=True, help="Column to predict; repeatable.")
@click.option("--model", "model_path", required=True, help="Where to save: directory, .zip, URL.")
@click.option("--features", help="Columns to learn from, comma separated. [default: all others]")
@click.option("--sample-weight", help="Column of sample weights.")
@click.option(
    "--kernel", type=click.Choice(list(BUILTIN_KERNELS)), default="rbf", show_default=True
)
@click.option(
    "--length-scale", default="auto", show_default=True, callback=_number_or("auto"),
    help="In the units of the columns.",
)  # fmt: skip
@click.option(
    "--mu", default="auto", show_default=True, callback=_number_or("auto"), help="Ridge penalty."
)
@click.option(
    "--gamma", default="auto", show_default=True, callback=_number_or("auto"),
    help="Leverage regularization.",
)  # fmt: skip
@click.option("--epsilon", type=float, default=0.3, show_default=True, help="Accuracy, in (0, 1).")
@click.option(
    "--qbar", default="16", show_default=True, callback=_number_or("theory"),
    help='Copies per row, or "theory".',
)  # fmt: skip
@click.option(
    "--max-dictionary", type=int, default=2000, show_default=True, help="Largest dictionary."
)
@click.option(
    "--approximation", type=click.Choice(["projected", "regularized"]), default="projected",
    show_default=True,
)  # fmt: skip
@click.option("--fan-in", type=int, default=2, show_default=True, help="Dictionaries per merge.")
@click.option(
    "--missing", type=click.Choice(["raise", "impute", "drop"]), default="raise",
    show_default=True, help="Missing values.",
)  # fmt: skip
@click.option("--seed", "random_state", type=int, default=0, show_default=True)
@_cluster_options
@_plain_errors
def fit(
    data: str,
    target: tuple[str, ...],
    model_path: str,
    features: str | None,
    sample_weight: str | None,
    scheduler: str | None,
    workers: int | None,
    quiet: bool,
    **parameters: Any,
) -> None:
    """Fit a model to DATA and save it.

    DATA is parquet: a file, a directory, a glob or a URL.
    """
    estimator = squeak_dist.SqueakRegressor(**parameters)
    estimator.check_parameters()
    check_writable(model_path)
    frame = read_parquet(data)
    bars = StageBars(quiet)
    with connected(scheduler, workers) as client:
        try:
            estimator.fit(
                frame,
                target=target[0] if len(target) == 1 else list(target),
                features=None if features is None else [f.strip() for f in features.split(",")],
                sample_weight=sample_weight,
                client=client,
                progress=None if quiet else bars,
            )
        finally:
            bars.close()
        estimator.save(model_path)
    click.echo(_summary(estimator.model_), err=True)
    click.echo(model_path)


@main.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("data")
@click.option("--out", required=True, help="Directory or URL of parquet to write.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@_cluster_options
@_plain_errors
def predict(
    model_path: str,
    data: str,
    out: str,
    overwrite: bool,
    scheduler: str | None,
    workers: int | None,
    quiet: bool,
) -> None:
    """Predict DATA with MODEL and write parquet.

    Every row is predicted, and keeps its index.
    """
    check_output(out, data, overwrite=overwrite)
    model = squeak_dist.load(model_path)
    predictions = model.predict(read_parquet(data))
    frame = predictions.to_frame() if predictions.ndim == 1 else predictions
    with connected(scheduler, workers) as client, replacing(out) as place:
        compute_with_bar(frame.to_parquet(place, compute=False), client, quiet=quiet)
    click.echo(out)


@main.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("data")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_cluster_options
@_plain_errors
def evaluate(
    model_path: str,
    data: str,
    as_json: bool,
    scheduler: str | None,
    workers: int | None,
    quiet: bool,
) -> None:
    """Score MODEL on DATA, beside the mean and linear ridge."""
    model = squeak_dist.load(model_path)
    frame = read_parquet(data)
    with connected(scheduler, workers) as client:
        scores = model.evaluate(frame, client=client)
    if as_json:
        click.echo(json.dumps(scores.to_dict(), allow_nan=False))
    else:
        click.echo(str(scores))


@main.command()
@click.argument("model_path", metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@_plain_errors
def inspect(model_path: str, as_json: bool) -> None:
    """Show what MODEL is and how it was fitted."""
    model = squeak_dist.load(model_path).model_
    if as_json:
        click.echo(json.dumps(_facts(model) | {"report": dict(model.report)}, allow_nan=False))
    else:
        click.echo(_summary(model))


@main.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True,
    help="Where the model and the maps go.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of split and fit.")
@_cluster_options
@_plain_errors
def demo(out: Path, seed: int, scheduler: str | None, workers: int | None, quiet: bool) -> None:
    """Fit sea-surface temperatures, beside other methods."""
    from squeak_dist.cli.demo import run_demo

    with connected(scheduler, workers) as client:
        if client is None:
            raise InvalidParameterError("the demo runs on worker processes: --workers 1 or more")
        run_demo(client, out, seed, quiet=quiet)


def _facts(model: FittedModel) -> dict[str, Any]:
    report = model.report
    return {
        "kernel": str(model.kernel),
        "target": list(model.target_names),
        "features": list(model.encoding.feature_names),
        "encoded_features": model.encoding.n_features,
        "rows_fitted": report["rows_fitted"],
        "dictionary_size": len(model.dictionary),
        "gamma": model.dictionary.gamma,
        "mu": model.mu,
        "effective_dimension": report["effective_dimension"],
        "epsilon": model.epsilon,
        "qbar": model.dictionary.qbar,
        "approximation": model.approximation,
        "seed": model.seed,
        "train_rmse": report["train_rmse"],
        "target_std": report["target_std"],
        "seconds": dict(report["seconds"]),
        "peak_worker_bytes": report["peak_worker_bytes"],
    }


def _summary(model: FittedModel) -> str:
    facts = _facts(model)
    shown = facts | {
        "target": ", ".join(facts["target"]),
        "features": _shortened(facts["features"]),
        "train_rmse": ", ".join(f"{v:.6g}" for v in facts["train_rmse"]),
        "target_std": ", ".join(f"{v:.6g}" for v in facts["target_std"]),
        "seconds": ", ".join(f"{k} {v:.1f}" for k, v in facts["seconds"].items()),
        "peak_worker_bytes": f"{facts['peak_worker_bytes'] / 2**20:,.0f} MiB",
    }
    return "\n".join(
        f"{name.replace('_', ' '):>20}  {f'{v:.6g}' if isinstance(v, float) else v}"
        for name, v in shown.items()
    )


def _shortened(names: list[str], limit: int = 8) -> str:
    rest = f", … ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


if __name__ == "__main__":
    main()
