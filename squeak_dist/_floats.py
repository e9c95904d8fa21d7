"""Arithmetic of tiny numbers."""

from __future__ import annotations

from squeak_dist._typing import FloatArray

# Adding and taking off this constant rounds a float32 to a multiple of 2⁻⁵³.
UNIT_FLUSH = 2.0**-30


def flush_tiny(values: FloatArray, flush: float) -> None:
    """Round values to multiples of flush · 2⁻²³ in place, so that the tiniest become zero.

    Features of far rows are as small as 1e-30, and products of such numbers are
    denormal, which the processor handles many times slower than zeros. Next to
    features of size 1 they mean nothing.
    """
    values += flush
    values -= flush
