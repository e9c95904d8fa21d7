"""The commands. stdout holds data only; bars and messages go to stderr."""

from __future__ import annotations

import concurrent.futures
import json
import re
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
import pyarrow
from distributed import KilledWorker

import squeak_dist
from squeak_dist._version import __version__
from squeak_dist.cli.connecting import Place, cluster_options, connected
from squeak_dist.cli.outputs import check_apart, check_free, name_index, replacing
from squeak_dist.cli.progress import StageBars, compute_with_bar
from squeak_dist.distributed import read_parquet
from squeak_dist.errors import (
    ClusterError,
    InvalidParameterError,
    NumericalError,
    SqueakError,
    SqueakWarning,
    StorageError,
)
from squeak_dist.kernels import BUILTIN_KERNELS
from squeak_dist.model import FittedModel
from squeak_dist.samplers import SAMPLERS
from squeak_dist.store import check_writable

_FAILURES = (ClusterError, NumericalError, StorageError)  # of the run, not of what the user gave
_BREAKDOWNS = (  # of files, disks, networks and workers while a command runs
    OSError,
    MemoryError,
    pyarrow.ArrowException,
    KilledWorker,
    concurrent.futures.CancelledError,
)
_INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
_DASK_PREFIX = re.compile(r"An error occurred while calling .*? Original Message: ")


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
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            raise  # the reader of stdout has seen enough: click ends in silence
        except _FAILURES as error:
            raise click.ClickException(_one_line(error)) from error
        except SqueakError as error:
            raise _UserError(_one_line(error)) from error
        except _BREAKDOWNS as error:
            raise click.ClickException(f"{type(error).__name__}: {_one_line(error)}") from error

    return wrapped


def _one_line(message: object) -> str:
    return _DASK_PREFIX.sub("", " ".join(str(message).split()))


def _show_warning(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    if issubclass(category, SqueakWarning):
        click.echo(f"Warning: {_one_line(message)}", err=True)


@click.group(
    name="squeak",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="squeak-dist")
def main() -> None:
    """Kernel ridge regression on tables too big for one machine.

    Exit codes: 0 done, 2 usage or bad input, 1 failure. Ctrl-C: 130.
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
@click.option(
    "--target",
    required=True,
    multiple=True,
    metavar="COLUMN",
    help="Column to predict; repeat it for several.",
)
@click.option(
    "--model",
    "model_path",
    required=True,
    metavar="PATH",
    help="Where to save: a directory, a .zip file or a URL.",
)
@click.option(
    "--features",
    metavar="COLUMNS",
    help="Columns to learn from, comma separated.  [default: all others]",
)
@click.option("--sample-weight", metavar="COLUMN", help="Column of sample weights.")
@click.option(
    "--task",
    type=click.Choice(["regression", "classification"]),
    default="regression",
    metavar="NAME",
    show_default=True,
    help="regression of numbers, or classification of labels.",
)
@click.option(
    "--balanced", is_flag=True, help="In classification: all classes of the same weight."
)
@click.option(
    "--kernel",
    type=click.Choice(list(BUILTIN_KERNELS)),
    default="rbf",
    metavar="NAME",
    show_default=True,
    help=f"{', '.join(BUILTIN_KERNELS)}.",
)
@click.option(
    "--length-scale",
    default="auto",
    metavar="NUMBER",
    show_default=True,
    callback=_number_or("auto"),
    help="Distance over which predictions vary, in the units of the columns.",
)
@click.option(
    "--mu",
    default="auto",
    metavar="NUMBER",
    show_default=True,
    callback=_number_or("auto"),
    help="Ridge penalty.",
)
@click.option(
    "--gamma",
    default="auto",
    metavar="NUMBER",
    show_default=True,
    callback=_number_or("auto"),
    help="Leverage regularization: the smaller, the larger the dictionary.",
)
@click.option(
    "--epsilon",
    type=float,
    default=0.3,
    metavar="NUMBER",
    show_default=True,
    help="Accuracy of the dictionary, between 0 and 1.",
)
@click.option(
    "--qbar",
    default="16",
    metavar="COUNT",
    show_default=True,
    callback=_number_or("theory"),
    help='Copies per row, or "theory".',
)
@click.option(
    "--max-dictionary",
    type=int,
    default=2000,
    metavar="ROWS",
    show_default=True,
    help="Largest dictionary.",
)
@click.option(
    "--sampler",
    type=click.Choice(list(SAMPLERS)),
    default="squeak",
    metavar="NAME",
    show_default=True,
    help=f"How the dictionary is chosen: {', '.join(SAMPLERS)}.",
)
@click.option(
    "--approximation",
    type=click.Choice(["projected", "regularized"]),
    default="projected",
    metavar="NAME",
    show_default=True,
    help="projected or regularized.",
)
@click.option(
    "--fan-in",
    type=int,
    default=2,
    metavar="COUNT",
    show_default=True,
    help="Dictionaries per merge.",
)
@click.option(
    "--missing",
    type=click.Choice(["raise", "impute", "drop"]),
    default="raise",
    metavar="NAME",
    show_default=True,
    help="With missing values: raise, impute or drop.",
)
@click.option(
    "--seed",
    "random_state",
    type=int,
    default=0,
    metavar="NUMBER",
    show_default=True,
    help="Of all that is random; the same seed, the same model.",
)
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="Directory or URL for finished parts: the same command goes on from there after a break.",
)
@click.option(
    "--remove-checkpoint", is_flag=True, help="Remove the checkpoint once the model is saved."
)
@cluster_options
@_plain_errors
def fit(
    data: str,
    target: tuple[str, ...],
    model_path: str,
    features: str | None,
    sample_weight: str | None,
    task: str,
    balanced: bool,
    checkpoint: str | None,
    remove_checkpoint: bool,
    cluster: Place,
    quiet: bool,
    **parameters: Any,
) -> None:
    """Fit a model to DATA and save it.

    DATA is parquet: a file, a directory, a glob or a URL.
    """
    estimator = _estimator(task, balanced, parameters)
    estimator.check_parameters()
    check_apart("--model", model_path, data)
    check_writable(model_path)
    if checkpoint is not None:
        check_apart("--checkpoint", checkpoint, data, model_path)
    read_parquet(data)  # an error before any worker starts
    bars = StageBars(quiet)
    with connected(cluster) as client:
        try:
            estimator.fit(
                data,
                target=target[0] if len(target) == 1 else list(target),
                features=None if features is None else [f.strip() for f in features.split(",")],
                sample_weight=sample_weight,
                client=client,
                progress=None if quiet else bars,
                checkpoint=checkpoint,
            )
        finally:
            bars.close()
        estimator.save(model_path)
    if checkpoint is not None and remove_checkpoint:
        squeak_dist.remove_checkpoint(checkpoint)
    click.echo(_summary(estimator.model_), err=True)
    click.echo(model_path)


def _estimator(
    task: str, balanced: bool, parameters: dict[str, Any]
) -> squeak_dist.SqueakRegressor | squeak_dist.SqueakClassifier:
    if task == "classification":
        weight = "balanced" if balanced else None
        return squeak_dist.SqueakClassifier(class_weight=weight, **parameters)
    if balanced:
        raise InvalidParameterError("--balanced is for classes: add --task classification")
    return squeak_dist.SqueakRegressor(**parameters)


@main.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("data")
@click.option("--out", required=True, metavar="PATH", help="Directory or URL to write to.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@click.option(
    "--probabilities", is_flag=True, help="Of a classifier: write these, one column per class."
)
@cluster_options
@_plain_errors
def predict(
    model_path: str,
    data: str,
    out: str,
    overwrite: bool,
    probabilities: bool,
    cluster: Place,
    quiet: bool,
) -> None:
    """Predict DATA with MODEL and write parquet.

    Every row is predicted, and keeps its index; one without a name is the column "index".
    """
    check_apart("--out", out, data, model_path)
    check_free(out, overwrite=overwrite)
    model = _load_predictor(model_path)
    frame = _predicted(model, read_parquet(data), probabilities)
    frame = frame.map_partitions(name_index, list(frame.columns), enforce_metadata=False)
    # The workers end first, so that none still writes to what is swapped or removed.
    with replacing(out, overwrite=overwrite) as place, connected(cluster) as client:
        compute_with_bar(frame.to_parquet(place, compute=False), client, quiet=quiet)
    click.echo(out)


def _predicted(model: Any, data: Any, probabilities: bool) -> Any:
    """Return predictions as a lazy frame whose columns have names of text."""
    if probabilities:
        if not isinstance(model, squeak_dist.SqueakClassifier):
            raise InvalidParameterError("--probabilities are of a classifier, but this is none")
        shares = model.predict_proba(data)
        return shares.rename(columns={label: str(label) for label in shares.columns})
    predictions = model.predict(data)
    return predictions.to_frame() if predictions.ndim == 1 else predictions


@main.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("data")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@cluster_options
@_plain_errors
def evaluate(
    model_path: str,
    data: str,
    as_json: bool,
    cluster: Place,
    quiet: bool,
) -> None:
    """Score MODEL on DATA, beside a constant and linear ridge."""
    model = _load_predictor(model_path)
    frame = read_parquet(data)
    with connected(cluster) as client:
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
    model = _load_predictor(model_path).model_
    if as_json:
        click.echo(json.dumps(_facts(model) | {"report": dict(model.report)}, allow_nan=False))
    else:
        click.echo(_summary(model))


@main.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True,
    metavar="PATH", help="Where the model and the maps go.",
)  # fmt: skip
@click.option(
    "--seed", type=int, default=0, metavar="NUMBER", show_default=True, help="Of split and fit."
)
@cluster_options
@_plain_errors
def demo(out: Path, seed: int, cluster: Place, quiet: bool) -> None:
    """Fit sea-surface temperatures, beside other methods."""
    from squeak_dist.cli.demo import run_demo

    with connected(cluster) as client:
        if client is None:
            raise InvalidParameterError("the demo runs on worker processes: --workers 1 or more")
        run_demo(client, out, seed, quiet=quiet)


def _load_predictor(path: str) -> Any:
    model = squeak_dist.load(path)
    if not hasattr(model, "predict"):
        raise InvalidParameterError(
            f"{path} holds a {type(model).__name__}, which has no predictions; in Python, "
            f"squeak_dist.load opens it"
        )
    return model


def _facts(model: FittedModel) -> dict[str, Any]:
    report = model.report
    classes = {} if model.classes is None else {"classes": list(model.classes.labels)}
    names = model.target_names if model.classes is None else (model.classes.target,)
    return {
        "task": report["task"],
        "kernel": str(model.kernel),
        "target": list(names),
        **classes,
        "features": list(model.encoding.feature_names),
        "encoded_features": model.encoding.n_features,
        "rows_fitted": report["rows_fitted"],
        "sampler": report.get("sampler", "squeak"),
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
    classes = {"classes": _shortened(list(map(str, facts.get("classes", []))))}
    shown = (
        facts
        | (classes if "classes" in facts else {})
        | {
            "target": ", ".join(facts["target"]),
            "features": _shortened(facts["features"]),
            "train_rmse": _shortened([f"{v:.6g}" for v in facts["train_rmse"]]),
            "target_std": _shortened([f"{v:.6g}" for v in facts["target_std"]]),
            "seconds": ", ".join(f"{k} {v:.1f}" for k, v in facts["seconds"].items()),
            "peak_worker_bytes": f"{facts['peak_worker_bytes'] / 2**20:,.0f} MiB",
        }
    )
    return "\n".join(
        f"{name.replace('_', ' '):>20}  {f'{v:.6g}' if isinstance(v, float) else v}"
        for name, v in shown.items()
    )


def _shortened(names: list[str], limit: int = 8) -> str:
    rest = f", … ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


if __name__ == "__main__":
    main()
