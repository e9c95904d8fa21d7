"""What zarr, fsspec and the system raise, as the errors of a store."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from zarr.errors import ContainsArrayError

from squeak_dist.errors import SqueakError, StoreCorruptedError, StoreError

# What zarr, its codecs and zipfile raise on bytes that are not what they should be.
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
)


@contextmanager
def store_errors(action: str, path: object) -> Iterator[None]:
    """Turn what zarr, fsspec and the system raise into a StoreError."""
    try:
        yield
    except SqueakError:
        raise
    except Exception as error:
        raise StoreError(f"cannot {action} {path}: {type(error).__name__}: {error}") from error


@contextmanager
def damage(what: str, place: object) -> Iterator[None]:
    """Turn the errors of bytes that cannot be decoded into a StoreCorruptedError."""
    try:
        yield
    except (OSError, ContainsArrayError, SqueakError):
        raise  # the file system's, not the bytes'
    except _DAMAGE as error:
        raise StoreCorruptedError(
            f"{what} of {place} cannot be read, so it is damaged or missing: "
            f"{type(error).__name__}: {error}"
        ) from error
