"""The systems of Table 1 of the paper, and baselines: rows and a kernel to a dictionary.

Each is a function ``sampler(X, kernel, parameters, rng, row_weights=None)`` as
:class:`Sampler` says, and a name for ``fit(..., sampler=name)``. So all share encoding,
Nyström map, solver and store. A function or object of your own is given in the same
place.

=======================  =====================================================================
name                     system
=======================  =====================================================================
``squeak``               SQUEAK; in ``fit`` chains over partitions, and a balanced tree
``squeak-by-row``        SQUEAK as it is printed, row by row
``disqueak``             one dictionary per partition, merged in a balanced tree
``disqueak-left-deep``   the same, merged one after the other
``disqueak-random``      the same, merged in a random tree
``exact``                every row
``uniform``              m rows with equal chances (Bach 2013)
``two-pass-rls``         RLS approximated on a first draw (Alaoui & Mahoney 2014)
``ink-estimate``         INK-Estimate (Calandriello et al. 2016)
``rls-sampling``         by exact RLS: the oracle
``recursive-rls``        Musco & Musco 2017
``bless``                Rudi et al. 2018
``greedy-cholesky``      the largest residual, m times
``random-cholesky``      residuals as probabilities, m times
``k-means``              the centres of m clusters
=======================  =====================================================================
"""

from squeak_dist.samplers.baselines import greedy_cholesky, k_means, random_cholesky
from squeak_dist.samplers.columns import two_pass_rls, uniform, uniform_positions, uniformly_kept
from squeak_dist.samplers.dense import exact, rls_sampling
from squeak_dist.samplers.incremental import (
    TREES,
    disqueak,
    ink_estimate,
    squeak_blocks,
    squeak_rows,
)
from squeak_dist.samplers.protocol import Sampler
from squeak_dist.samplers.refining import bless, recursive_rls
from squeak_dist.samplers.registry import (
    MERGING,
    SAMPLERS,
    SIZED,
    check_sampler,
    choose_rows,
    sampler_name,
    working_bytes,
)

__all__ = [
    "MERGING",
    "SAMPLERS",
    "SIZED",
    "TREES",
    "Sampler",
    "bless",
    "check_sampler",
    "choose_rows",
    "disqueak",
    "exact",
    "greedy_cholesky",
    "ink_estimate",
    "k_means",
    "random_cholesky",
    "recursive_rls",
    "rls_sampling",
    "sampler_name",
    "squeak_blocks",
    "squeak_rows",
    "two_pass_rls",
    "uniform",
    "uniform_positions",
    "uniformly_kept",
    "working_bytes",
]
