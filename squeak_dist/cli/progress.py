"""Progress bars on stderr; nothing where stderr is no terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click
import dask
from dask.diagnostics import ProgressBar
from distributed import Client, progress


class StageBars:
    """One bar per stage of a fit; to be passed as ``progress``.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._stage = ""
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage to ``done`` of ``total`` tasks."""
        if self._quiet or not sys.stderr.isatty():
            return
        if stage != self._stage:
            self.close()
            self._stage = stage
            label = f"{stage:>10}"
            self._bar = click.progressbar(length=max(total, 1), label=label, file=sys.stderr)
            self._bar.render_progress()
        if self._bar is None:
            return
        self._bar.update(done - self._bar.pos)
        if done >= total:
            self.close()

    def close(self) -> None:
        """End the current bar."""
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None


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
