"""What the commands read."""

from __future__ import annotations

from typing import Any

from squeak_dist.distributed import read_parquet


def one_or_several(names: tuple[str, ...]) -> str | list[str]:
    """Return a repeated option as ``fit`` takes columns: a name alone is one of them."""
    return names[0] if len(names) == 1 else list(names)


def read_data(data: tuple[str, ...]) -> Any:
    """Open the parquet of one place, or of several as one table, lazily.

    Parameters
    ----------
    data : tuple of str
        Files, directories, globs or URLs.

    Raises
    ------
    DataError
        If something is not there, or is not parquet.
    """
    return read_parquet(one_or_several(data))
