"""Progress on stderr; nothing where stderr is no terminal, unless JSON is asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import click
import dask
from dask.diagnostics import ProgressBar
from distributed import Client, progress

from squeak_dist.progress import JsonLines, ProgressView, terminal_view


@contextlib.contextmanager
def fit_view(*, quiet: bool, as_json: bool = False) -> Iterator[ProgressView | None]:
    """Yield what shows a fit on stderr: nothing, lines of JSON, or a line per stage.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    as_json : bool
        Lines of JSON; otherwise a terminal is needed.
    """
    view = None
    if not quiet:
        view = ProgressView(JsonLines(sys.stderr)) if as_json else terminal_view()
    try:
        yield view
    finally:
        if view is not None:
            view.close()


def compute_with_bar(collection: Any, client: Client | None, *, quiet: bool) -> Any:
    """Compute one lazy value with a progress bar on stderr."""
    shown = not quiet and sys.stderr.isatty()
    if client is None:
        with ProgressBar(out=sys.stderr, minimum=1.0) if shown else contextlib.nullcontext():
            return dask.compute(collection)[0]
    future = client.compute(collection)
    if shown:
        # Distributed's text bar knows only stdout, which belongs to data.
        with contextlib.redirect_stdout(sys.stderr):
            progress(future, notebook=False)
            click.echo()
    return future.result()
