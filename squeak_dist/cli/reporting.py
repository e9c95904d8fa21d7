"""What ``squeak-dist report`` and ``watch`` do."""

from __future__ import annotations

import click

import squeak_dist
from squeak_dist.cli.connecting import connected, connected_to_scheduler
from squeak_dist.cli.inputs import read_data
from squeak_dist.cli.outputs import check_apart
from squeak_dist.cli.places import Place
from squeak_dist.errors import InvalidParameterError


def run_report(
    model_path: str,
    out: str | None,
    test: tuple[str, ...],
    columns: list[str] | None,
    cluster: Place,
    quiet: bool,
) -> None:
    """Write the report of a model; print where.

    Parameters
    ----------
    model_path : str
        Of the model.
    out : str or None
        HTML file; by default the name of the model with .html.
    test : tuple of str
        Files, directories, globs or URLs of parquet with held-out rows.
    columns : list of str or None
        Two columns for the picture of the dictionary.
    cluster : Place
        Where held-out rows are scored.
    quiet : bool
        Not used: there is no progress to show.
    """
    path = _page_path(model_path, out)
    check_apart("--out", path, model_path, *test)
    estimator = squeak_dist.load(model_path)
    if not test:
        click.echo(estimator.report(path, columns=columns))
        return
    if not hasattr(estimator, "predict"):
        raise InvalidParameterError(f"--test is for predictors; {model_path} has no predictions")
    frame = read_data(test)
    with connected(cluster) as client:
        click.echo(estimator.report(path, frame, columns=columns, client=client))


def _page_path(model_path: str, out: str | None) -> str:
    """Return where a page goes: an HTML file, which alone may be replaced."""
    if out is None:
        name = model_path.rstrip("/").rpartition("/")[2]
        return name.removesuffix(".zip").removesuffix(".zarr") + ".html"
    if not out.lower().endswith((".html", ".htm")):
        raise InvalidParameterError(f"--out {out} must be an HTML file: let it end with .html")
    return out


def run_watch(port: int, address: str, cluster: Place) -> None:
    """Serve the page that follows fits, until it is interrupted; print its URL.

    Parameters
    ----------
    port : int
        Where it listens; 0 for any free port.
    address : str
        On which interface.
    cluster : Place
        The scheduler.
    """
    from squeak_dist.report.watching import watch_server  # bokeh takes a second to import

    with connected_to_scheduler(cluster) as client:
        server = watch_server(client.get_events, port=port, address=address)
        host = "localhost" if address == "127.0.0.1" else address
        click.echo(f"http://{host}:{server.port}/")
        server.run_until_shutdown()
