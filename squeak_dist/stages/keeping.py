"""Which calls of a fit are worth keeping in a checkpoint: all of it is said here.

A value is kept where doing its call again would cost far more than writing it. Calls that
follow one another along a chain (each takes the value of the one before) need not all be
kept: every ``n``-th is, and the last one of the chain always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import squeak_dist.stages.dictionaries as dictionaries
import squeak_dist.stages.iterating as iterating
import squeak_dist.stages.planning as planning
import squeak_dist.stages.sampling as sampling
import squeak_dist.stages.solving as solving
import squeak_dist.stages.tuning as tuning

ALONE = -1  # keep a value where no other call takes it

# Function → every how many calls along a chain a value is kept; 0: at the end of it alone.
# A step is up to some 260,000 rows. A dictionary is small (m rows), a sum of the direct solve or
# of the first pass of conjugate gradients is m² numbers.
KEPT: Mapping[Callable[..., Any], int] = {
    planning._profile_task: ALONE,
    planning._profile_group: 1,
    planning._merge_profiles: 1,
    tuning._tune_task: 1,
    dictionaries._chain_step: 1,
    dictionaries._merge_task: 1,
    sampling._sample_task: 1,
    sampling._join_task: 1,
    solving._sums_task: 4,
    solving._add_sums: 1,
    solving._solve_task: 1,
    iterating._first_pass: 4,
    iterating._add_sums: 1,
    iterating._system: 1,
    iterating._step: 1,
    iterating._errors: 0,
    iterating._embed: 0,
    iterating._sketched_system: 1,
    iterating._restart: 1,
    iterating._solution: 1,
}
