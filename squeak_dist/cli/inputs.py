"""What the commands read."""

from __future__ import annotations

from typing import Any

from squeak_dist.distributed import read_parquet


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
    return read_parquet(data[0] if len(data) == 1 else list(data))
