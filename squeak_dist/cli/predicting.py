"""What ``squeak-dist predict`` and ``evaluate`` do."""

from __future__ import annotations

import json
from typing import Any

import click

import squeak_dist
from squeak_dist.cli.connecting import connected
from squeak_dist.cli.inputs import read_data
from squeak_dist.cli.outputs import check_apart, check_free, name_index, replacing
from squeak_dist.cli.places import Place
from squeak_dist.cli.progress import compute_with_bar
from squeak_dist.errors import InvalidParameterError


def run_predict(
    model_path: str,
    data: tuple[str, ...],
    out: str,
    overwrite: bool,
    probabilities: bool,
    cluster: Place,
    quiet: bool,
) -> None:
    """Write the predictions of a model as parquet; print where.

    Parameters
    ----------
    model_path : str
        Of the model.
    data : tuple of str
        Files, directories, globs or URLs of parquet.
    out : str
        Directory or URL to write to.
    overwrite : bool
        Whether earlier predictions may be replaced.
    probabilities : bool
        Of a classifier: these in place of labels.
    cluster : Place
        Where it runs.
    quiet : bool
        No progress bars.
    """
    check_apart("--out", out, *data, model_path)
    check_free(out, overwrite=overwrite)
    model = _load_predictor(model_path)
    frame = _predicted(model, read_data(data), probabilities)
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


def run_evaluate(
    model_path: str, data: tuple[str, ...], as_json: bool, cluster: Place, quiet: bool
) -> None:
    """Print the scores of a model.

    Parameters
    ----------
    model_path, data
        As in :func:`run_predict`.
    as_json : bool
        As one line of JSON.
    cluster, quiet
        As in :func:`run_predict`.
    """
    model = _load_predictor(model_path)
    frame = read_data(data)
    with connected(cluster) as client:
        scores = model.evaluate(frame, client=client)
    click.echo(json.dumps(scores.to_dict(), allow_nan=False) if as_json else str(scores))


def _load_predictor(path: str) -> Any:
    model = squeak_dist.load(path)
    if not hasattr(model, "predict"):
        raise InvalidParameterError(
            f"{path} holds a {type(model).__name__}, which has no predictions; in Python, "
            f"squeak_dist.load opens it"
        )
    return model
