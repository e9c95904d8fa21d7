"""What ``squeak-dist plan`` does, and ``fit --dry-run``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

import squeak_dist
from squeak_dist.cli.connecting import connected
from squeak_dist.cli.inputs import one_or_several, read_data
from squeak_dist.cli.places import Place
from squeak_dist.cli.progress import fit_view


def run_plan(
    data: tuple[str, ...],
    target: tuple[str, ...],
    features: list[str] | None,
    sample_weight: str | None,
    as_json: bool,
    cluster: Place,
    quiet: bool,
    **parameters: Any,
) -> None:
    """Print what a fit would keep and cost.

    Parameters
    ----------
    data, target, features, sample_weight
        As in :func:`~squeak_dist.cli.fitting.run_fit`.
    as_json : bool
        Print JSON.
    cluster, quiet, **parameters
        As in :func:`~squeak_dist.cli.fitting.run_fit`.
    """
    squeak_dist.SqueakRegressor(**parameters).check_parameters()
    table = read_data(data)  # an error before any worker starts
    with connected(cluster) as client, fit_view(quiet=quiet) as view:
        forecast = squeak_dist.plan(
            table,
            target=one_or_several(target),
            features=features,
            sample_weight=sample_weight,
            client=client,
            progress=view,
            **parameters,
        )
    click.echo(json.dumps(asdict(forecast), allow_nan=False) if as_json else str(forecast))
