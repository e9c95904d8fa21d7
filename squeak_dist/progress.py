"""How far a fit is: one view per fit, in a terminal, in a notebook, or as lines of JSON."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, TextIO, TypeAlias, runtime_checkable

_SHOWN_EVERY = 0.1  # seconds
_BAR = 20
_NUMBERED = re.compile(r"^iteration \d+$")


@runtime_checkable
class TaskListener(Protocol):
    """A progress callable that also hears what finished tasks say of themselves."""

    def task_done(self, facts: Mapping[str, Any]) -> None:
        """Take what a task says: see :func:`squeak_dist.stages.task_facts`."""
        ...


Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Moment:
    """How far a fit is.

    Parameters
    ----------
    stage : str
        Its stage.
    done, total : int
        Tasks of the stage.
    seconds : float
        Since the stage began.
    rows : int
        Of the data, as far as they are known: all, once the profile is done.
    size : int or None
        Rows of the dictionary that was last heard of.
    """

    stage: str
    done: int
    total: int
    seconds: float
    rows: int = 0
    size: int | None = None

    @property
    def share(self) -> float:
        """Share of the tasks that are done, in [0, 1]."""
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def rows_per_second(self) -> float | None:
        """Rows per second, as if each task were the same share of the rows."""
        rows = self.rows * (1.0 if self.stage == "profile" else self.share)
        return rows / self.seconds if rows and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the stage ends, at the pace so far."""
        return self.seconds * (1 / self.share - 1) if self.done else None

    @property
    def over(self) -> bool:
        """Whether the stage is done."""
        return self.done >= self.total

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        rate, left = self.rows_per_second, self.seconds_left
        return {
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "seconds": round(self.seconds, 3),
            "rows_per_second": None if rate is None else round(rate),
            "dictionary_size": self.size,
            "seconds_left": None if left is None else round(left, 1),
        }

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.total}"]
        if (rate := self.rows_per_second) is not None:
            parts.append(f"{short(rate)} rows/s")
        if self.size is not None:
            parts.append(f"m {self.size:,}")
        if self.over:
            parts.append(f"{self.seconds:.1f} s")
        elif (left := self.seconds_left) is not None:
            parts.append(f"{left:.0f} s left")
        return "  ".join(parts)


def short(value: float) -> str:
    """Return a count with three digits: 1.23M."""
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"


class ProgressView:
    """A progress callable that follows a fit and shows it.

    Parameters
    ----------
    show : callable
        Takes a :class:`Moment`, at most ten times a second and at the ends of stages.
    close : callable, optional
        Takes nothing; called at the end of the fit.
    clock : callable, default time.perf_counter
        Returns seconds.

    Examples
    --------
    >>> from squeak_dist.progress import ProgressView
    >>> view = ProgressView(lambda moment: print(moment.stage, moment.done, moment.total))
    >>> view("profile", 0, 2)
    profile 0 2
    """

    def __init__(
        self,
        show: Callable[[Moment], None],
        close: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._show, self._close, self._clock = show, close, clock
        self._stage = ""
        self._began = self._shown = float("-inf")
        self._over = False
        self._rows = 0
        self._size: int | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that ``done`` of the ``total`` tasks of a stage are done."""
        now = self._clock()
        began = stage != self._stage or done == 0
        if self._over and not began:
            return  # the last task and the end of a stage both say that it is done
        self._over = done >= total
        if began:
            self._stage, self._began = stage, now
            self._rows *= stage != "profile"
        if began or done >= total or now - self._shown >= _SHOWN_EVERY:
            self._shown = now
            self._show(Moment(stage, done, total, now - self._began, self._rows, self._size))

    def task_done(self, facts: Mapping[str, Any]) -> None:
        """Take what a finished task says of itself."""
        self._rows += facts.get("profiled", 0)
        self._size = facts.get("size", self._size)

    def close(self) -> None:
        """End the view."""
        if self._close is not None:
            self._close()


class TerminalLine:
    """Shows moments on one line of a terminal; a stage that is done keeps its line.

    Parameters
    ----------
    file : file
        The terminal.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._width = 0

    def __call__(self, moment: Moment) -> None:
        """Show a moment."""
        filled = round(_BAR * moment.share)
        line = f"{moment.stage:>12} {'━' * filled}{'─' * (_BAR - filled)} {moment}"
        self._file.write(f"\r{line:<{self._width}}")
        # The iterations of a solver share a line.
        self._width = len(line)
        if moment.over and not _NUMBERED.match(moment.stage):
            self.close()
        self._file.flush()

    def close(self) -> None:
        """End the line."""
        if self._width:
            self._file.write("\n")
            self._file.flush()
        self._width = 0


class JsonLines:
    """Writes each moment as a line of JSON.

    Parameters
    ----------
    file : file
        Where to.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, moment: Moment) -> None:
        """Write a moment."""
        self._file.write(json.dumps({"event": "progress", **moment.to_dict()}) + "\n")
        self._file.flush()


class NotebookCell:
    """Shows moments in the output of a notebook's cell, a stage per line.

    Parameters
    ----------
    display : callable
        IPython's: takes an object and ``display_id``, and returns a handle with ``update``.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._stages: dict[str, Moment] = {}
        self._handle = display(self, display_id=True)

    def __call__(self, moment: Moment) -> None:
        """Show a moment."""
        name = "iterations" if _NUMBERED.match(moment.stage) else moment.stage
        self._stages[name] = moment
        self._handle.update(self)

    def _repr_html_(self) -> str:
        lines = (
            f"<tr><td>{escape(name)}</td><td><progress max='1' value='{moment.share:.3f}' "
            f"aria-label='{escape(name)}'></progress></td><td>{escape(str(moment))}</td></tr>"
            for name, moment in self._stages.items()
        )
        return f"<table>{''.join(lines)}</table>"

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {moment}" for name, moment in self._stages.items())


def automatic_view() -> ProgressView | None:
    """Return a view for where this process runs: a notebook, a terminal, or none elsewhere."""
    if "ipykernel" in sys.modules and (ipython := sys.modules.get("IPython")) is not None:
        shell = ipython.get_ipython()
        if shell is not None and hasattr(shell, "kernel"):
            return ProgressView(NotebookCell(ipython.display.display))
    return terminal_view()


def terminal_view() -> ProgressView | None:
    """Return a view on stderr, or None where that is no terminal."""
    if not sys.stderr.isatty():
        return None
    line = TerminalLine(sys.stderr)
    return ProgressView(line, line.close)
