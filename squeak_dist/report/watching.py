"""A page that follows the fits of a Dask scheduler: stage, tasks, and the merge tree as it fills.

Dask has no documented way to add a tab to its own dashboard (dask/distributed issue 3503), so
this is a bokeh server of its own, which reads the events that fits log on the scheduler.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from bokeh.layouts import column
from bokeh.models import Div
from bokeh.server.server import Server

from squeak_dist.progress import Moment
from squeak_dist.report.fit_figures import tree_figure

Events = Mapping[str, Sequence[tuple[float, Any]]]

_EVERY = 1000  # milliseconds
_TOPIC = "squeak_dist-"


@dataclass(frozen=True)
class WatchedFit:
    """What the events of one fit say of it.

    Parameters
    ----------
    name : str
        Of the fit.
    moment : Moment or None
        How far it is.
    nodes : tuple of mapping
        Records of the nodes of the merge tree that are done.
    """

    name: str
    moment: Moment | None = None
    nodes: tuple[Mapping[str, Any], ...] = field(default=())


def watched_fit(events: Events) -> WatchedFit | None:
    """Return the fit of which the last event was heard, or None where there is none.

    Parameters
    ----------
    events : mapping of topic to sequence of (time, content)
        As ``distributed.Client.get_events()`` returns them.
    """
    fits = {topic: heard for topic, heard in events.items() if topic.startswith(_TOPIC) and heard}
    if not fits:
        return None
    topic = max(fits, key=lambda name: fits[name][-1][0])
    heard = fits[topic]
    nodes = {
        (facts["node"]["level"], facts["node"]["index"]): facts["node"]
        for _, facts in heard
        if "node" in facts  # of a node that ran twice the last
    }
    name = topic.removeprefix(_TOPIC)
    return WatchedFit(name, _moment(heard), tuple(nodes[key] for key in sorted(nodes)))


def _moment(heard: Sequence[tuple[float, Any]]) -> Moment | None:
    starts = [i for i, (_, facts) in enumerate(heard) if "stage" in facts]
    if not starts:
        return None
    (began, stage), since = heard[starts[-1]], heard[starts[-1] + 1 :]
    sizes = [facts["size"] for _, facts in heard if "size" in facts]
    done = min(sum("task" in facts for _, facts in since), stage["total"])
    return Moment(
        stage=stage["stage"],
        done=done,
        total=stage["total"],
        seconds=(since[-1][0] if since else began) - began,
        rows=sum(facts.get("profiled", 0) for _, facts in heard),
        size=sizes[-1] if sizes else None,
    )


def watch_server(read: Callable[[], Events], *, port: int, address: str = "127.0.0.1") -> Server:
    """Return a bokeh server whose page follows fits; ``server.run_until_shutdown()`` runs it.

    Parameters
    ----------
    read : callable
        Returns all events of the scheduler: ``client.get_events``.
    port : int
        Where it listens; 0 for any free port.
    address : str, default "127.0.0.1"
        On which interface: by default on this machine alone. The page is opened under that
        name, the name of the machine, or as localhost.

    Returns
    -------
    bokeh.server.server.Server
    """

    def page(document: Any) -> None:
        text = Div(text="", sizing_mode="stretch_width")
        root = column(text, sizing_mode="stretch_width")
        shown: list[int] = []

        def refresh() -> None:
            fit = watched_fit(read())
            text.text = watched_text(fit)
            nodes = 0 if fit is None else len(fit.nodes)
            if fit is not None and nodes and shown != [nodes]:
                root.children = [text, tree_figure(fit.nodes, fan_in_of(fit.nodes))]
                shown[:] = [nodes]

        document.title = "squeak_dist watch"
        document.add_root(root)
        refresh()
        document.add_periodic_callback(refresh, _EVERY)

    hosts = ("localhost", address, socket.gethostname())
    origins = [f"{host}:{port}" for host in hosts] if port else None
    return Server({"/": page}, port=port, address=address, allow_websocket_origin=origins)


def watched_text(fit: WatchedFit | None) -> str:
    """Return what is said above the tree, as HTML."""
    if fit is None or fit.moment is None:
        return "<p role='status'>No fit has begun yet.</p>"
    merges = sum(node["level"] > 0 for node in fit.nodes)
    return (
        f"<p role='status'>Fit {escape(fit.name)}, {escape(fit.moment.stage)}: "
        f"{escape(str(fit.moment))}. Chains done: {len(fit.nodes) - merges}, merges: {merges}.</p>"
    )


def fan_in_of(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return how many dictionaries the first merges took, from the rows of chains and merges.

    Parameters
    ----------
    nodes : sequence of mapping
        Records; 2 where there is no first merge of the first chains among them yet.
    """
    known = {(node["level"], node["index"]): node for node in nodes}
    merged = known.get((1, 0))
    total, index = 0, 0
    while merged is not None and (0, index) in known and total < merged["rows"]:
        total += known[0, index]["rows"]
        index += 1
    return max(index, 2)
