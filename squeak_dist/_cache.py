"""Bytes that are kept on disk from one process to the next, where there is a place for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_DIGEST = 32  # bytes, in front of what is kept: a damaged file is made anew


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """Return what was made for a key before, by this or another process, else make it.

    Parameters
    ----------
    key : str
        All that the bytes depend on.
    make : callable
        Returns the bytes. They are written to a folder ``squeak_dist`` of the user's cache
        (``$XDG_CACHE_HOME``, or ``~/.cache``), which may be removed at any time; where it cannot
        be written to, they are made again in the next process.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "squeak_dist"
    except RuntimeError:  # nobody's home
        return make()
    path = folder / sha256(key.encode()).hexdigest()
    with suppress(OSError):
        content = path.read_bytes()
        if content[:_DIGEST] == sha256(content[_DIGEST:]).digest():
            return content[_DIGEST:]
    made = make()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put(path, sha256(made).digest() + made)
    return made


def _put(path: Path, content: bytes) -> None:
    """Write a file in one step: another process may do the same."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
