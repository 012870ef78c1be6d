"""What readers hand over of one file, before ranks are matched: calls with their kernels, facts about communicators."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from atlas_lp.signatures.nccl.collectives import POINT_TO_POINT
from atlas_lp.traces.processes import GpuKey, ProcessKey
from atlas_lp.traces.work import WorkRows

Window = tuple[int, int]
"""From when to when, both included."""

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"

SYNTHETIC = "ATLAS_LP_SYNTHETIC"
"""Name of the metadata that marks a file that :mod:`~atlas_lp.traces.synthetic` wrote."""

STREAM_BITS = 32
"""A stream number: the id of the stream in its CUDA context, and above these bits the context's position on the GPU."""


@dataclass(frozen=True, order=True, slots=True)
class Kernel:
    """One NCCL kernel (or copy) on a GPU, times on the clock of its host; *stream* is unique per GPU."""

    start_ns: int
    end_ns: int
    device: int
    stream: int
    channels: int
    threads: int
    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL chose for a collective, where a source says so: empty or 0 where it does not."""

    source: str
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    element_bytes: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    """Elements, and those of the last chunk, of every channel part (bytes for AllGather and Broadcast)."""


@dataclass(slots=True, eq=False)
class Call:
    """One NCCL call on one GPU of one process, with the kernels that carried it out; two calls are never equal.

    *order* sorts the calls of a process as they were issued; *launch* is equal for calls that one kernel launch
    carried out together.  *communicator* is None where the payload has no id (NCCL < 2.25).
    """

    process: ProcessKey
    type: str
    order: tuple[int, int]
    communicator: int | None
    size_bytes: int
    root: int = -1
    peer: int = -1
    reduction: str = ""
    kernels: list[Kernel] = field(default_factory=list)
    launch: int = -1
    is_open: bool = False
    choice: Choice | None = None
    iteration: int = 0
    generation: int = 0

    @property
    def is_point_to_point(self) -> bool:
        """Whether this is a Send or Recv."""
        return self.type in POINT_TO_POINT

    @property
    def discarded(self) -> bool:
        """Whether NCCL drops the call: a collective of 0 bytes; empty sends and receives are kept."""
        return self.size_bytes == 0 and not self.is_point_to_point


INIT, INIT_ALL, DESTROY, SPLIT, SHRINK = "init", "init-all", "destroy", "split", "shrink"
"""What a call did to a communicator (``api`` of a :class:`Membership`)."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A range that says something about who is in a communicator.

    *communicator* is 0 where NCCL did not know the id yet (made inside a group).  *ranks* and *rank* are those of
    the new communicator for *api* ``init`` and ``destroy``, and those of the parent for ``split`` and ``shrink``.
    """

    api: str
    process: ProcessKey
    time_ns: int
    communicator: int
    ranks: int
    rank: int
    device: int
    parent: int = 0
    color: int = 0
    key: int = 0
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class Rings:
    """Rings of a communicator as some source gives them: per channel, the next rank of every rank it knows."""

    communicator: int
    next_rank: tuple[tuple[int, int, int], ...]
    """(channel, rank, next rank)."""
    trees: tuple[tuple[int, int, int, tuple[int, ...]], ...]
    """(channel, rank, parent or -1, children)."""
    source: str
    p2p_channels: tuple[int, int] = (0, 0)
    """Channels for point-to-point, in all and per peer; 0 where nothing says."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one *process* that should be in *table*: *count* of *of* are lost.

    *code* is one of :data:`~atlas_lp.traces.lost.KINDS`; *cut* more are missing near an end of the recording, where
    the capture may have cut them.
    """

    code: str
    process: int
    table: str
    of: int
    count: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class FileRecords:
    """What one file holds, before anything is selected of it."""

    path: Path
    host: str
    host_known: bool
    calls: list[Call]
    members: list[Membership]
    activity: dict[GpuKey, tuple[int, int]]
    processes: list[int]
    counts: dict[str, int] = field(default_factory=dict)
    """Named gaps of this file."""
    rings: list[Rings] = field(default_factory=list)
    reduction_schema: int | None = None
    recorded_version: str | None = None
    last_whole_graph_ns: int = -1
    """Start of the last CUDA graph that was traced as a whole, without its kernels; -1 where there is none."""
    synthetic: bool = False
    work: WorkRows | None = None
    windows: dict[int, list[Window]] = field(default_factory=dict)
    """Where the range or the marks of a selection lie, by process: sorted, on the clock of the file, which also gives
    the order of calls; empty where all of the file is wanted."""
    losses: tuple[Loss, ...] = ()
    """Records that are missing from the file, and of how many."""
    warnings: tuple[str, ...] = ()
    """What the tool that captured the file itself says is missing."""
    shift_ns: int = 0
    """What was added to times of that clock to put GPU activity on the clock of the host."""
