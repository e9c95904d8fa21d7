"""Command line: ``squeak-dist``, and the same as ``dask squeak``."""

from squeak_dist.cli.commands import main

__all__ = ["main"]
