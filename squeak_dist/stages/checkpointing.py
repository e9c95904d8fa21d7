"""An executor that keeps finished calls in a checkpoint, around any other executor.

A call is only written down until a stage ends. Then the calls that its value needs are
handed to the inner executor; a call whose value is in the checkpoint becomes one that
reads it, so nothing before it is needed. A call that is worth keeping
(:mod:`~squeak_dist.stages.keeping`) writes its value where it runs, before it returns.

The name of a value is a hash of the function and of all that went into its arguments, down
to the data: a value can never be taken for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squeak_dist.checkpoint import (
    Opened,
    UnusableValueError,
    Vault,
    differences,
    fingerprint,
    mismatch,
)
from squeak_dist.errors import CheckpointMismatchError, CheckpointWarning, warn_user
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.keeping import ALONE, KEPT

_ABSENT: Any = object()


@dataclass(eq=False)
class _Node:
    """A call that was asked for, or a value that was given.

    ``link`` counts calls of the same function along a chain, which is ``continued`` by a
    further one; ``taken`` says that any call takes the value; ``group`` numbers the
    values that :meth:`CheckpointExecutor.persist` was asked to hold together.
    """

    number: int
    digest: str
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    link: int = 1
    continued: bool = False
    taken: bool = False
    group: int | None = None
    persisted: bool = False
    retired: bool = False
    handle: Any = field(default=_ABSENT, repr=False)

    @property
    def before(self) -> Iterator[_Node]:
        """The calls and values that this call takes."""
        return _nodes(self.args)

    @property
    def name(self) -> str:
        """The name of its value in the checkpoint."""
        assert self.function is not None
        return f"{self.function.__name__.strip('_')}-{self.digest}"


class CheckpointExecutor:
    """Runs calls on another executor, keeping and finding values in a checkpoint.

    Parameters
    ----------
    inner : Executor
        Where the work runs.
    opened : Opened
        The checkpoint, which belongs to this fit.
    kept : mapping of function to int
        Which calls to keep: see :data:`~squeak_dist.stages.keeping.KEPT`.
    """

    def __init__(
        self,
        inner: Executor,
        opened: Opened,
        kept: Mapping[Callable[..., Any], int] = KEPT,
    ) -> None:
        self._inner = inner
        self._vault = opened.vault
        self._identity = opened.identity
        self._kept = kept
        self._stored = self._vault.names()
        self._trusted = opened.same_data or not self._stored
        self._visible = False
        self._nodes = 0
        self._groups: list[int] = []
        self._shared_vault: Any = _ABSENT

    def tables(self, tables: Iterable[Any]) -> list[Any]:
        """Return handles on partitions that are handles of the inner executor."""
        leaves = []
        for i, table in enumerate(tables):
            node = self._new(fingerprint(["table", self._identity, i]))
            node.handle = table
            leaves.append(node)
        return leaves

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a handle on function(*args), which runs when a stage that needs it ends."""
        name = f"{function.__module__}:{function.__qualname__}"
        node = self._new(fingerprint([name, *map(_identified, args)]))
        node.function, node.args = function, args
        for other in node.before:
            other.taken = True
            if other.function is function:
                other.continued = True
                node.link = max(node.link, other.link + 1)
        return node

    def share(self, value: Any) -> Any:
        """Return a handle on a value that many calls take."""
        node = self._new(fingerprint(["shared", value]))
        node.args = (value,)
        return node

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        """Mark values to be kept by the inner executor, once a stage needs them."""
        for node in handles:
            node.group = len(self._groups)
        self._groups.append(nbytes)
        return handles

    def keeps(self, nbytes: int) -> bool:
        """Return what the inner executor says."""
        return self._inner.keeps(nbytes)

    def gather(self, stage: str, handle: Any) -> Any:
        """Return the value of a handle; do only what the checkpoint has not.

        Raises
        ------
        CheckpointMismatchError
            If the data turn out not to be those of the checkpoint.
        CheckpointError
            If values cannot be written or read.

        Warns
        -----
        CheckpointWarning
            For a value that is damaged or gone, whose calls then run again, and for values
            that were written where this process does not see them.
        """
        if not self._trusted:
            return self._verified(stage, handle)
        forgotten: set[str] = set()
        while True:
            needed = self._needed(handle)
            try:
                value = self._inner.gather(stage, self._handed_over(handle, needed))
            except UnusableValueError as error:
                if error.name in forgotten:
                    raise
                forgotten.add(error.name)
                self._forget(error, needed)
                continue
            self._note_written(needed)
            self._retire(handle)
            return value

    def slots(self) -> int:
        """Ask the inner executor."""
        return self._inner.slots()

    def check_memory(self, needed: int, explanation: str) -> None:
        """Ask the inner executor."""
        self._inner.check_memory(needed, explanation)

    def _new(self, digest: str) -> _Node:
        self._nodes += 1
        return _Node(self._nodes, digest)

    def _is_kept(self, node: _Node) -> bool:
        every = self._kept.get(node.function) if node.function else None
        if every is None:
            return False
        if every == ALONE:
            return not node.taken
        return not node.continued or (every > 0 and node.link % every == 0)

    def _is_stored(self, node: _Node) -> bool:
        return self._is_kept(node) and node.name in self._stored

    def _needed(self, root: _Node) -> list[_Node]:
        """Return what has to be handed over for a value, in the order of the calls."""
        found, waiting = {root.number: root}, [root]
        while waiting:
            node = waiting.pop()
            if node.handle is _ABSENT and not self._is_stored(node):
                for other in node.before:
                    if other.number not in found:
                        found[other.number] = other
                        waiting.append(other)
        return [found[number] for number in sorted(found)]

    def _handed_over(self, root: _Node, needed: Sequence[_Node]) -> Any:
        open_groups: dict[int, list[_Node]] = {}
        for node in needed:
            if node.group is not None and not node.persisted:
                open_groups.setdefault(node.group, []).append(node)
        for node in needed:
            if node.handle is _ABSENT:
                node.handle = self._start(node)
            members = open_groups.get(-1 if node.group is None else node.group)
            if members and members[-1] is node:
                self._persist(members)
        return root.handle

    def _start(self, node: _Node) -> Any:
        if node.function is None:
            return self._inner.share(*node.args)
        if self._is_stored(node):
            return self._inner.call(_Load(node.name), self._vault_handle())
        args = [_handles(arg) for arg in node.args]
        if self._is_kept(node) and self._trusted:
            return self._inner.call(_Keep(node.function, node.name), self._vault_handle(), *args)
        return self._inner.call(node.function, *args)

    def _vault_handle(self) -> Any:
        if self._shared_vault is _ABSENT:
            self._shared_vault = self._inner.share(self._vault)
        return self._shared_vault

    def _persist(self, members: list[_Node]) -> None:
        assert members[0].group is not None
        nbytes = self._groups[members[0].group]
        handles = self._inner.persist([node.handle for node in members], nbytes)
        for node, handle in zip(members, handles, strict=True):
            node.handle, node.persisted = handle, True

    def _forget(self, error: UnusableValueError, needed: Sequence[_Node]) -> None:
        """Count a value as not there, and start anew what was handed over for this stage."""
        warn_user(
            f"a value of the checkpoint cannot be used and is computed again: {error}",
            CheckpointWarning,
        )
        self._vault.remove([error.name])
        self._stored.discard(error.name)
        for node in needed:
            if node.function is not None:
                node.handle, node.persisted = _ABSENT, False

    def _note_written(self, needed: Sequence[_Node]) -> None:
        written = {node.name for node in needed if self._is_kept(node)} - self._stored
        if written and not self._visible:
            self._visible = True
            # Another fit on the same checkpoint may have removed some, not all.
            if not written & self._vault.names():
                warn_user(
                    f"the values that tasks wrote to the checkpoint {self._vault.url} are not "
                    f"seen by this process, so they would be done again after a break; name a "
                    f"place that all workers and the client share",
                    CheckpointWarning,
                )
        self._stored |= written

    def _retire(self, root: _Node) -> None:
        """Remove what came before a value that is in the checkpoint and is never needed again.

        Values that later stages hold (see :meth:`persist`) stay.
        """
        garbage, seen, waiting = set(), set(), [(root, False)]
        while waiting:
            node, superseded = waiting.pop()
            if node.retired or (node.number, superseded) in seen:
                continue
            seen.add((node.number, superseded))
            stored = self._is_stored(node)
            if superseded:
                node.retired = True
                if stored and node.group is None:
                    garbage.add(node.name)
            waiting += [(other, superseded or stored) for other in node.before]
        if garbage:
            self._vault.remove(garbage)
            self._stored -= garbage

    def _verified(self, stage: str, handle: _Node) -> Any:
        """Do a stage again without the checkpoint, and compare its value with the stored one.

        The stored one is returned: on another kind of machine the last bits may differ.
        """
        stored, self._stored = self._stored, set()
        value = self._inner.gather(stage, self._handed_over(handle, self._needed(handle)))
        self._stored, self._trusted = stored, True
        expected = _ABSENT
        if self._is_stored(handle):
            try:
                expected = self._vault.read(handle.name)
            except UnusableValueError as error:
                self._forget(error, [])
        if expected is _ABSENT:
            self._vault.write(handle.name, value)
            self._stored.add(handle.name)
            expected = value
        elif lines := differences(expected, value, stage):
            raise CheckpointMismatchError(mismatch(self._vault.url, lines))
        self._retire(handle)
        return expected


@dataclass(frozen=True)
class _Keep:
    """A call that writes its value before it returns it."""

    function: Callable[..., Any]
    name: str

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, vault: Vault, *args: Any) -> Any:
        value = self.function(*args)
        vault.write(self.name, value)
        return value


@dataclass(frozen=True)
class _Load:
    """A call that reads its value."""

    name: str

    @property
    def __name__(self) -> str:
        return f"load_{self.name.rpartition('-')[0]}"

    def __call__(self, vault: Vault) -> Any:
        return vault.read(self.name)


def _nodes(args: Sequence[Any]) -> Iterator[_Node]:
    for arg in args:
        if isinstance(arg, _Node):
            yield arg
        elif isinstance(arg, list):
            yield from _nodes(arg)


def _identified(arg: Any) -> Any:
    if isinstance(arg, _Node):
        return {"of": arg.digest}
    return [_identified(a) for a in arg] if isinstance(arg, list) else arg


def _handles(arg: Any) -> Any:
    if isinstance(arg, _Node):
        return arg.handle
    return [_handles(a) for a in arg] if isinstance(arg, list) else arg
