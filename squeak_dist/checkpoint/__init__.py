"""Checkpoints: finished parts of a fit as values in a directory or object store.

``manifest.json`` says what the checkpoint belongs to; ``values/<name>.zarr.zip`` are the
values, each written atomically by the worker that made it and verified when read.
"""

from squeak_dist.checkpoint.codec import decode, described, differences, encode, fingerprint
from squeak_dist.checkpoint.manifest import (
    CHECKPOINT_FORMAT,
    Opened,
    mismatch,
    open_checkpoint,
    remove_checkpoint,
)
from squeak_dist.checkpoint.vault import UnusableValueError, Vault, vault_at

__all__ = [
    "CHECKPOINT_FORMAT",
    "Opened",
    "UnusableValueError",
    "Vault",
    "decode",
    "described",
    "differences",
    "encode",
    "fingerprint",
    "mismatch",
    "open_checkpoint",
    "remove_checkpoint",
    "vault_at",
]
