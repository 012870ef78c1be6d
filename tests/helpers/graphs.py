"""Small graphs and schedules, random ones too, and the columns of them that oracles judge by."""

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracles import paths
from oracles.loggp import Operations

from atlas_lp.fabrics.fabric import Fabric
from atlas_lp.goal import CALC, COMPONENTS, RECV, SEND, EventGraph, Schedule
from atlas_lp.solver.longest_path import PathVector

ZERO = (0,) * len(COMPONENTS)

Edge = tuple[int, int, tuple[int, ...]]
"""An edge as (source, target, cost vector)."""


def fabric(latency: object = 0, gap: object = 0, o: object = 0, g: object = 0, **fields: Any) -> Fabric:
    """A fabric from L, G, o and g; scale-up hops cost nothing unless *fields* says so."""
    values = {"up_latency_ns": 0, "up_gap_ns_per_byte": 0, **fields}
    up = {name: Fraction(values.pop(name)) for name in ("up_latency_ns", "up_gap_ns_per_byte")}
    return Fabric("test", Fraction(latency), Fraction(o), Fraction(g), Fraction(gap), **up, **values)  # type: ignore[arg-type]


def graph_of(vertices: int, edges: Sequence[Edge]) -> EventGraph:
    """The graph with these edges, one row of the cost table per edge."""
    sources, targets, rows = (np.array(column, dtype=np.int64) for column in zip(*edges, strict=True))
    return EventGraph.from_edges(vertices, sources, targets, np.arange(len(edges)), rows)


def graph_of_lines(lines: Sequence[tuple[int, int]]) -> EventGraph:
    """T(L) = max of ``constant + slope L``: one vertex per line beside the source."""
    return graph_of(len(lines) + 1, [(0, v, (c, s, 0, 0, 0, 0, 0)) for v, (c, s) in enumerate(lines, 1)])


def random_graph(
    seed: int, vertices: int, largest: tuple[int, ...] = (40, 3, 30, 2, 2, 2, 9), in_edges: int = 3
) -> EventGraph:
    """A connected DAG with up to *in_edges* in-edges a vertex; *largest* bounds the cost vectors."""
    rng = random.Random(seed)
    edges = [
        (u, v, tuple(rng.randint(0, top) for top in largest))
        for v in range(1, vertices)
        for u in rng.sample(range(v), min(v, rng.randint(1, in_edges)))
    ]
    return graph_of(vertices, edges)


@st.composite
def graphs(draw: st.DrawFn, vertices: int = 7, largest: int = 30) -> EventGraph:
    """Graphs of at most *vertices* vertices; costs up to *largest*, often 0 or equal so that paths tie."""
    cost = st.tuples(*[st.integers(0, 2) | st.integers(0, largest) for _ in COMPONENTS])
    count = draw(st.integers(2, vertices))
    edges = [
        (u, v, draw(cost))
        for v in range(1, count)
        for u in draw(st.lists(st.integers(0, v - 1), min_size=1, max_size=3))
    ]
    return graph_of(count, edges)


def in_edges(graph: EventGraph) -> list[list[tuple[int, tuple[int, ...]]]]:
    """(source, cost vector) of the edges into every vertex, as the oracles want them."""
    edges = [
        (int(source), tuple(graph.costs[row].tolist())) for source, row in zip(graph.source, graph.cost, strict=True)
    ]
    return [edges[start:stop] for start, stop in pairwise(graph.in_start.tolist())]


def all_paths(graph: EventGraph) -> Iterator[PathVector]:
    """Cost vectors of all paths from the source to any vertex, by brute force."""
    return paths.all_paths(in_edges(graph), len(COMPONENTS))


def path_time(vector: PathVector, theta: dict[str, Fraction]) -> Fraction:
    """Time of one path: its vector times theta."""
    return paths.path_time(vector, [theta[c] for c in COMPONENTS])


def brute_force(graph: EventGraph, theta: dict[str, Fraction]) -> Fraction:
    """Longest path by trying every path."""
    return max(path_time(vector, theta) for vector in all_paths(graph))


WORDS = {CALC: "calc", SEND: "send", RECV: "recv"}


def operations_of(schedule: Schedule) -> Operations:
    """The columns of a schedule, as the oracles want them."""
    columns = (getattr(schedule, name).tolist() for name in ("rank", "size", "peer", "tag", "nic"))
    order = (column.tolist() for column in (schedule.before, schedule.after, schedule.on_start))
    return Operations([WORDS[kind] for kind in schedule.kind.tolist()], *columns, list(zip(*order, strict=True)))


def schedule_of(
    ranks: int,
    operations: Sequence[Sequence[int]],
    dependencies: Sequence[tuple[int, int, bool]] = (),
) -> Schedule:
    """The schedule of rows (rank, kind, size, peer, tag, cpu, nic) and of (before, after, on_start)."""
    rank, kind, *columns = np.array(operations, dtype=np.int64).reshape(-1, 7).T
    size, peer, tag, cpu, nic = columns
    before, after, on_start = np.array(dependencies, dtype=np.int64).reshape(-1, 3).T
    return Schedule(
        ranks, kind.astype(np.int8), rank, size, peer, tag, cpu, nic, before, after, on_start.astype(np.bool_)
    )


@st.composite
def schedules(draw: st.DrawFn, ranks: int = 3, events: int = 8, on_start: bool = True) -> Schedule:
    """Valid schedules: calcs and messages happen one after another, and require only what happened before.

    A message may go to its own rank; a calc may stand anywhere in its block.
    """
    count = draw(st.integers(1, ranks))
    blocks: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    wanted: list[tuple[int, int, int, bool]] = []  # rank, before, after (in the block), irequires

    def add(rank: int, kind: int, size: int, peer: int = -1, tag: int = 0) -> None:
        nic = draw(st.integers(0, 1)) if kind != CALC else 0
        here = len(blocks[rank])
        blocks[rank].append((rank, kind, size, peer, tag, draw(st.integers(0, 1)), nic))
        required = draw(st.sets(st.integers(0, here - 1), max_size=2)) if here else set()
        wanted.extend((rank, before, here, on_start and draw(st.booleans())) for before in required)

    for _ in range(draw(st.integers(1, events))):
        rank, peer = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        size = draw(st.integers(0, 3) | st.integers(0, 1000))
        if draw(st.booleans()):
            add(rank, CALC, size)
        else:
            tag = draw(st.integers(0, 1))
            add(rank, SEND, size, peer, tag)
            add(peer, RECV, size, rank, tag)
    rows: list[tuple[int, ...]] = []
    place: list[dict[int, int]] = []  # where every operation of a block ends up
    for block in blocks:
        # Messages keep their order, or others would match; calcs may stand anywhere.
        keys = [draw(st.integers(-1, len(block))) if row[1] == CALC else i for i, row in enumerate(block)]
        order = sorted(range(len(block)), key=keys.__getitem__)
        place.append({old: len(rows) + new for new, old in enumerate(order)})
        rows += [block[old] for old in order]
    dependencies = [(place[r][before], place[r][after], start) for r, before, after, start in wanted]
    return schedule_of(count, rows, dependencies)


def assert_same_schedule(one: Schedule, other: Schedule) -> None:
    """Equal operations in equal order, and the same set of dependencies."""
    assert one.ranks == other.ranks
    for name in ("kind", "rank", "size", "peer", "tag", "cpu", "nic"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert dependencies_of(one) == dependencies_of(other)


def dependencies_of(schedule: Schedule) -> set[tuple[int, int, bool]]:
    """Dependencies as (before, after, on_start)."""
    columns = schedule.before, schedule.after, schedule.on_start
    return set(zip(*(column.tolist() for column in columns), strict=True))
