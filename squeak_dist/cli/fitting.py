"""What ``squeak-dist fit`` does."""

from __future__ import annotations

import json
from typing import Any

import click

import squeak_dist
from squeak_dist.cli.connecting import connected
from squeak_dist.cli.inputs import one_or_several, read_data
from squeak_dist.cli.inspecting import facts, summary
from squeak_dist.cli.outputs import check_apart
from squeak_dist.cli.places import Place, options_for
from squeak_dist.cli.planning import run_plan
from squeak_dist.cli.progress import fit_view
from squeak_dist.errors import InvalidParameterError
from squeak_dist.store import check_writable


def run_fit(
    data: tuple[str, ...],
    target: tuple[str, ...],
    model_path: str | None,
    overwrite: bool,
    features: list[str] | None,
    sample_weight: str | None,
    checkpoint: str | None,
    dry_run: bool,
    remove_checkpoint: bool,
    task: str,
    balanced: bool,
    as_json: bool,
    cluster: Place,
    quiet: bool,
    **parameters: Any,
) -> None:
    """Fit a model and save it; print its path.

    Parameters
    ----------
    data : tuple of str
        Files, directories, globs or URLs of parquet.
    target : tuple of str
        Columns to predict.
    model_path : str or None
        Where to save; a dry run needs no place.
    overwrite : bool
        Whether a model may be replaced.
    features : list of str or None
        Columns to learn from.
    sample_weight : str or None
        Column of weights.
    checkpoint : str or None
        Where finished parts are kept.
    dry_run : bool
        Whether to print what the fit would keep and cost, and stop.
    remove_checkpoint : bool
        Whether they go when the model is saved.
    task, balanced
        What is learned.
    as_json : bool
        Progress and summary as lines of JSON.
    cluster : Place
        Where it runs.
    quiet : bool
        No progress bars.
    **parameters
        Those of the estimator.
    """
    estimator = _estimator(task, balanced, parameters)
    estimator.check_parameters()
    if model_path is not None:
        check_apart("--model", model_path, *data)
        check_writable(model_path, overwrite=overwrite)
    if checkpoint is not None:
        check_apart("--checkpoint", checkpoint, *data, *([model_path] if model_path else []))
    if dry_run:
        if task == "classification":
            raise InvalidParameterError("--dry-run is for regression; fit a part of DATA instead")
        run_plan(data, target, features, sample_weight, as_json, cluster, quiet, **parameters)
        return
    if model_path is None:
        raise click.MissingParameter(
            ctx=click.get_current_context(), param_type="option", param_hint="'--model'"
        )
    table = read_data(data)  # an error before any worker starts
    with connected(cluster) as client:
        with fit_view(quiet=quiet, as_json=as_json) as view:
            estimator.fit(
                # By its name where it is one place: a checkpoint then looks at the files.
                data[0] if len(data) == 1 else table,
                target=one_or_several(target),
                features=features,
                sample_weight=sample_weight,
                client=client,
                progress=view,
                checkpoint=checkpoint,
                checkpoint_options=options_for(checkpoint),
            )
        estimator.save(model_path, overwrite=overwrite)
    if checkpoint is not None and remove_checkpoint:
        squeak_dist.remove_checkpoint(checkpoint)
    model = estimator.model_
    done = json.dumps({"event": "done", **facts(model)}, allow_nan=False) if as_json else ""
    click.echo(done or summary(model), err=True)
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
