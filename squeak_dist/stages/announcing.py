"""What a finished task says of itself, to those who follow a fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from squeak_dist.profile import Profile
from squeak_dist.stages.dictionaries import Branch


def task_facts(name: str, value: Any) -> dict[str, Any]:
    """Return plain values on the result of a task.

    Parameters
    ----------
    name : str
        Of its function.
    value : object
        Its result.

    Returns
    -------
    dict
        ``task``, the name; of the profile of partitions ``profiled``, their rows; of dictionaries
        ``size`` and ``rows``, those that they stand for; of a finished node of the merge tree
        ``node``, its record.
    """
    facts: dict[str, Any] = {"task": name}
    if isinstance(value, Profile):
        if "merge" not in name:
            facts["profiled"] = value.kept
    elif isinstance(value, Branch):
        facts |= {"rows": value.state.rows_seen, "size": len(value.dictionary)}
        if value.records:
            facts["node"] = {k: v for k, v in asdict(value.records[-1]).items() if k != "growth"}
    return facts
