"""The critical path as a graph that people can take away: a GraphML file, read by networkx, Gephi, yEd and others."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from atlas_lp.errors import InputError
from atlas_lp.texts import plain


def check_graph_name(file: Path) -> None:
    """Raise :class:`~atlas_lp.errors.InputError` when *file* does not end as a graph does."""
    if file.suffix != ".graphml":
        raise InputError(f"{file}: not the name of a graph; end it in .graphml")


def graphml(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The GraphML of steps as of :func:`~atlas_lp.analysis.as_json.steps_json`; equal steps, equal bytes.

    A node per step, numbered in order of time, with what it is, where, when and how long; an edge from each step to the
    next, with the messages and bytes of the step that it leads to.
    """
    import networkx as nx

    graph = nx.DiGraph()
    for number, row in enumerate(rows):
        where = {"gpu": row["gpu"]} if "gpu" in row else {"communicator": row["communicator"], "ranks": row["ranks"]}
        graph.add_node(
            number,
            what=plain(row.get("type", "GPU work and idle time")),
            begin_ns=float(row["begin_ns"]),
            duration_ns=float(row["duration_ns"]),
            **{name: row[name] for name in ("size_bytes", "key") if name in row},
            **where,
        )
    for before, after in pairwise(range(len(rows))):
        carried = {name: rows[after].get(name, 0) for name in ("messages", "bytes")}
        graph.add_edge(before, after, **carried)
    buffer = io.BytesIO()
    nx.write_graphml(graph, buffer, encoding="utf-8", prettyprint=True)
    return buffer.getvalue()
