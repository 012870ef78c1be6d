"""Random GOAL files, as text for the reader and as columns for a judge that never sees the text."""

from dataclasses import dataclass
from fractions import Fraction
from random import Random

from oracles.loggp import Network, Operations


@dataclass
class GoalFile:
    """A schedule twice, and the network to run it on; *rule* is port, destination or none."""

    text: str
    operations: Operations
    nodes: list[int]
    rule: str
    ingress: bool
    network: Network


@dataclass
class _Operation:
    words: str
    kind: str
    rank: int
    size: int
    peer: int = -1
    tag: int = 0
    nic: int = 0


def random_goal(draw: Random) -> GoalFile:
    """Up to 40 calcs and messages on up to 6 ranks; they happen one after another, so nothing waits in a circle."""
    ranks = draw.choice((1, 2, 2, 3, 3, 4, 6))
    blocks: list[list[_Operation]] = [[] for _ in range(ranks)]
    happened: list[list[_Operation]] = [[] for _ in range(ranks)]
    wanted: list[tuple[_Operation, _Operation, bool]] = []
    density, recent, on_start = draw.choice((0.0, 0.6, 0.9)), draw.choice((2, 5, 40)), draw.random() < 0.3
    for number in range(draw.randint(1, 40)):
        for operation in _happens(draw, ranks, number):
            block, known = blocks[operation.rank], happened[operation.rank][-recent:]
            if draw.random() < density:
                before = draw.sample(known, min(len(known), draw.choice((1, 1, 2))))
                wanted += [(b, operation, on_start and draw.random() < 0.5) for b in before]
            happened[operation.rank].append(operation)
            # Messages of tags 0 and 1 meet in the order of the text; all others may stand anywhere.
            loose = operation.kind == "calc" or operation.tag > 1
            block.insert(draw.randint(0, len(block)) if loose else len(block), operation)
    nodes = [draw.randrange(ranks) for _ in range(ranks)] if draw.random() < 0.5 else list(range(ranks))
    text, operations = _text(draw, blocks, wanted), _columns(blocks, wanted)
    rule = draw.choice(("port", "port", "destination", "none"))
    return GoalFile(text, operations, nodes, rule, draw.random() < 0.4, _network(draw))


def _happens(draw: Random, ranks: int, number: int) -> list[_Operation]:
    rank, peer = draw.randrange(ranks), draw.randrange(ranks)
    size = draw.choice((0, 1, 2, 100, draw.randrange(1000), draw.randrange(10**5)))
    cpu = draw.choice(("", " cpu 0", " cpu 3"))
    if draw.random() < 0.35:
        return [_Operation(f"calc {size}{cpu}", "calc", rank, size)]
    tag = draw.choice((0, 1, 2 + number))
    made = []
    for kind, word, own, other in (("send", "to", rank, peer), ("recv", "from", peer, rank)):
        nic = draw.choice((0, 0, 1))
        words = f"{kind} {size}b {word} {other}{f' tag {tag}' if tag else ''}{cpu}{f' nic {nic}' if nic else ''}"
        made.append(_Operation(words, kind, own, size, other, tag, nic))
    return made


def _network(draw: Random) -> Network:
    """Often everything takes equally long, or nothing, so that messages are ready together."""
    kind = draw.choice(("nothing", "ties", "spread", "spread"))
    if kind == "nothing":
        return Network(*[Fraction(0)] * 6)
    if kind == "ties":
        return Network(Fraction(10), Fraction(1, 10), Fraction(10), Fraction(0), Fraction(10), Fraction(0))
    limits = (10_000, 1, 500, 50, 2000, 1)
    return Network(*(Fraction(draw.randrange(1000 * limit), 997) / draw.choice((1, 10)) for limit in limits))


def _columns(blocks: list[list[_Operation]], wanted: list[tuple[_Operation, _Operation, bool]]) -> Operations:
    rows = [operation for block in blocks for operation in block]
    place = {id(operation): number for number, operation in enumerate(rows)}
    columns = ([getattr(row, name) for row in rows] for name in ("kind", "rank", "size", "peer", "tag", "nic"))
    order = sorted({(place[id(before)], place[id(after)], on_start) for before, after, on_start in wanted})
    return Operations(*columns, order)


def _text(draw: Random, blocks: list[list[_Operation]], wanted: list[tuple[_Operation, _Operation, bool]]) -> str:
    lines = [f"num_ranks {len(blocks)}"]
    for rank, block in enumerate(blocks):
        lines.append(f"rank {rank} {{")
        label = {id(operation): f"{draw.choice('alx')}{number}" for number, operation in enumerate(block)}
        needed = {id(operation) for before, after, _ in wanted for operation in (before, after)}
        for operation in block:
            named = id(operation) in needed or draw.random() < 0.5
            lines.append(f"{label[id(operation)]}: {operation.words}" if named else operation.words)
            lines += draw.choice(([], [], [], ["", "// a comment", "/* another", "one */"]))
        own = [needs for needs in wanted if needs[1].rank == rank]
        draw.shuffle(own)
        for before, after, on_start in own:
            lines.append(f"{label[id(after)]} {'i' if on_start else ''}requires {label[id(before)]}")
        lines.append("}")
    return "\n".join(lines) + "\n"
