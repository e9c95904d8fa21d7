"""The image, the projects, and the table of what each fault cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from containers import Project, build_image, missing

COSTS: dict[str, float] = {}  # fault → seconds of its fit; "none" is undisturbed


@pytest.fixture(scope="session")
def image() -> str:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    return build_image()


@pytest.fixture(scope="session")
def costs() -> dict[str, float]:
    """Seconds of a fit by what was done to it; printed at the end, never asserted."""
    return COSTS


@pytest.fixture(scope="session")
def cluster(image: str) -> Iterator[Project]:
    """Four workers of 768 MiB and a table in the shared volume."""
    with Project(image, 4, WORKER_MEMORY="768m", WORKER_TTL="30s") as project:
        code, last = project.job("write").end()
        assert code == 0, last
        yield project


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    undisturbed = COSTS.get("none")
    if undisturbed is None:
        return
    slow = COSTS.get("none, kernel 3 times as slow", undisturbed)
    terminalreporter.section("time lost per fault")
    terminalreporter.line("| fault during a fit on 4 workers | seconds | ratio to undisturbed |")
    terminalreporter.line("|---|---|---|")
    for fault, seconds in COSTS.items():
        ratio = seconds / (slow if "slow" in fault else undisturbed)
        terminalreporter.line(f"| {fault} | {seconds:.1f} | {ratio:.2f} |")
