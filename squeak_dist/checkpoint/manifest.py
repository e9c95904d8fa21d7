"""What a checkpoint belongs to: parameters, data, package and environment.

``manifest.json`` is the first file of a checkpoint and the last that is removed.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from squeak_dist._version import __version__
from squeak_dist.checkpoint.codec import differences
from squeak_dist.checkpoint.vault import Vault, checkpoint_errors, is_temporary, is_value
from squeak_dist.errors import (
    CheckpointError,
    CheckpointMismatchError,
    CheckpointWarning,
    warn_user,
)
from squeak_dist.store.groups import FORMAT_VERSION
from squeak_dist.store.plain import attributes_checksum

CHECKPOINT_FORMAT = "squeak_dist-checkpoint"

_MANIFEST = "manifest.json"
_PROBE = "manifest.json.tmp-probe"
_SHOWN = 8  # differences in a message


@dataclass(frozen=True)
class Opened:
    """A checkpoint that belongs to this fit.

    Parameters
    ----------
    vault : Vault
        Its values.
    identity : str
        What its values depend on beside the calls themselves.
    same_data : bool
        Whether the data are known to be those of the checkpoint; otherwise they are to
        be compared by their profile.
    """

    vault: Vault
    identity: str
    same_data: bool


def open_checkpoint(
    vault: Vault, parameters: Mapping[str, Any], data: Mapping[str, Any], tokens: Any
) -> Opened:
    """Make a checkpoint, or open one of the same parameters and data.

    Parameters
    ----------
    vault : Vault
        Where it is, or will be.
    parameters : mapping of str to JSON
        Of the fit.
    data : mapping of str to JSON
        What tells these data from others, of which any difference is refused.
    tokens : JSON
        Names of the data, which may differ although the data do not.

    Raises
    ------
    CheckpointMismatchError
        If it belongs to other parameters, data, or another version of the package,
        naming all that differs.
    CheckpointError
        If there is something else at the place, or nothing can be written there.

    Warns
    -----
    CheckpointWarning
        If it was made in an environment that may give other bits.
    """
    contents = {
        "format": CHECKPOINT_FORMAT,
        "format_version": FORMAT_VERSION,
        "squeak_dist_version": __version__,
        "parameters": _plain(parameters),
        "data": _plain(data),
        "tokens": _plain(tokens),
        "environment": environment(),
    }
    stored = _read(vault)
    if stored is None:
        stored = _check_free(vault)
    if stored is None:
        checksum = attributes_checksum(contents)
        text = json.dumps({**contents, "checksum": checksum}, indent=1, allow_nan=False)
        vault.write_bytes(_MANIFEST, text.encode())
        stored = contents
    else:
        _check_same(vault, stored, contents)
        vault.write_bytes(_PROBE, b"")  # or nothing could be written later
        vault.remove_keys([_PROBE])
    identity = {name: stored[name] for name in ("parameters", "data", "tokens")}
    return Opened(vault, attributes_checksum(identity), stored["tokens"] == contents["tokens"])


def remove_checkpoint(vault: Vault) -> None:
    """Remove a checkpoint: all that a fit wrote to it, and nothing else.

    Raises
    ------
    CheckpointError
        If there is no checkpoint at the place, or it cannot be removed.
    """
    if _read(vault) is None:
        raise CheckpointError(f"there is no checkpoint at {vault.url}; check the path")
    with checkpoint_errors("remove the checkpoint", vault.url):
        keys = vault.files()
        vault.remove_keys([key for key in keys if is_value(key) or is_temporary(key)])
        vault.remove_keys([_MANIFEST])
        if vault.place.local:
            _remove_empty_folders(vault)


def _remove_empty_folders(vault: Vault) -> None:
    place = vault.place
    for folder in (f"{place.root}/values", place.root):
        if place.fs.isdir(folder) and not place.fs.ls(folder, detail=False):
            place.fs.rmdir(folder)


def environment() -> dict[str, Any]:
    """Return what decides the last bits beside data and parameters."""
    libraries = {
        f"{info['internal_api']} {info.get('version')} {info.get('architecture', '')}".strip()
        for info in threadpool_info()
        if info.get("user_api") == "blas"
    }
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": sorted(libraries),
        "machine": platform.machine(),
    }


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def _read(vault: Vault) -> dict[str, Any] | None:
    data = vault.read_bytes(_MANIFEST)
    if data is None:
        return None
    try:
        manifest = json.loads(data)
        found = manifest.get("format")
    except (ValueError, AttributeError):
        manifest, found = {}, None
    if found != CHECKPOINT_FORMAT:
        raise CheckpointError(
            f"{vault.url} has a {_MANIFEST} that is not of a squeak_dist checkpoint, so it is "
            f"left as it is; name another place"
        )
    version = manifest.get("format_version")
    if version != FORMAT_VERSION or manifest.get("squeak_dist_version") != __version__:
        raise CheckpointMismatchError(
            f"the checkpoint {vault.url} was written by squeak_dist "
            f"{manifest.get('squeak_dist_version')} (format {version}), this is {__version__} "
            f"(format {FORMAT_VERSION}); go on with that version, or name another place"
        )
    if manifest.pop("checksum", None) != attributes_checksum(manifest):
        raise CheckpointError(
            f"the {_MANIFEST} of the checkpoint {vault.url} is damaged (its checksum differs), so "
            f"nobody knows what it belongs to; name another place"
        )
    return dict(manifest)


def _check_free(vault: Vault) -> dict[str, Any] | None:
    """Check that nothing foreign is there; return a manifest that came in the meantime."""
    with checkpoint_errors("use the checkpoint", vault.url):
        place = vault.place
        if place.fs.isfile(place.root):
            raise CheckpointError(
                f"{vault.url} is a file, but a checkpoint is a directory; name another place"
            )
        foreign = [key for key in vault.files() if not is_temporary(key)]
    if _MANIFEST in foreign:  # of a fit that began at the same time
        return _read(vault)
    if foreign:
        raise CheckpointError(
            f"{vault.url} holds something that is not a squeak_dist checkpoint "
            f"({foreign[0]}{', …' if len(foreign) > 1 else ''}), so it is left as it is; name "
            f"another place, or remove it yourself"
        )
    return None


def _check_same(vault: Vault, stored: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    lines = [
        *differences(stored["parameters"], contents["parameters"]),
        *differences(stored["data"], contents["data"], "data"),
    ]
    if lines:
        raise CheckpointMismatchError(mismatch(vault.url, lines))
    changed = differences(stored["environment"], contents["environment"])
    if changed:
        warn_user(
            f"the checkpoint {vault.url} was begun in another environment ({'; '.join(changed)}): "
            f"the model may differ in its last bits from one fitted here without a break",
            CheckpointWarning,
        )


def mismatch(url: str, lines: list[str]) -> str:
    """Return the message for a checkpoint of another fit.

    Parameters
    ----------
    url : str
        The checkpoint.
    lines : list of str
        What differs, each "name: had → got".
    """
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return (
        f"the checkpoint {url} belongs to another fit (there → here): "
        f"{'; '.join(lines[:_SHOWN])}{more}. Fit with the same data and parameters to go on, name "
        f"another place, or remove it with squeak_dist.remove_checkpoint"
    )
