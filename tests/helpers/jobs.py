"""Tiny synthetic jobs whose times are known by construction."""

from pathlib import Path

from atlas_lp.solver.envelope import RankClasses
from atlas_lp.traces.synthetic.writer import ExportWriter, ProcessWriter

COMMUNICATOR = 0xC0FFEE_0000_0001
SIMPLE, LL = 544, 128


def alike(vector: tuple[int, ...]) -> RankClasses:
    """A collective that takes *vector* from its last arrival to the end of every rank."""
    return RankClasses.alike((vector,))


def processes(
    nodes: int, gpus_per_node: int, ranks: int | None = None
) -> tuple[list[ExportWriter], list[ProcessWriter]]:
    """One export per node and one process per GPU, all ranks of one communicator."""
    exports = [ExportWriter(hostname=f"node{n}") for n in range(nodes)]
    result = []
    for rank in range(nodes * gpus_per_node):
        process = exports[rank // gpus_per_node].process(100 + rank % gpus_per_node, device=rank % gpus_per_node)
        process.init_communicator(COMMUNICATOR, ranks=ranks or nodes * gpus_per_node, rank=rank, at_ns=1_000)
        result.append(process)
    return exports, result


def write(exports: list[ExportWriter], folder: Path) -> list[Path]:
    """Write the exports into *folder*, one file per host."""
    return [export.write(folder / f"{export.hostname}.sqlite") for export in exports]


def two_ranks(folder: Path, *, offset: int = 0, late: int = 0, nodes: int = 2) -> list[Path]:
    """Two AllReduces of 1 MiB on two ranks: 5 ms of compute before, 2 ms between, 3 ms after the second.

    The clock of the second host (or process) runs *offset* ns ahead; rank 1 arrives *late* ns later at the second.
    """
    exports, ranks = processes(nodes, 2 // nodes)
    base = 1_000_000_000
    for rank, process in enumerate(ranks):
        shift = base + (offset if rank else 0)
        process.kernel("compute", stream=7, start_ns=shift, end_ns=shift + 5_000_000)
        for start, end in ((5_000_000, 6_000_000), (8_000_000 + late * rank, 9_000_000 + late)):
            process.collective(
                "AllReduce",
                size_bytes=1 << 20,
                communicator=COMMUNICATOR,
                stream=17,
                start_ns=shift + start,
                end_ns=shift + end,
                channels=2,
                threads=SIMPLE,
                reduction="Sum",
            )
        process.kernel("optimizer", stream=7, start_ns=shift + 9_000_000 + late, end_ns=shift + 12_000_000 + late)
    return write(exports, folder)
