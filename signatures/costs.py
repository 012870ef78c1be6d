"""Time of the reduce and copy loops of one slice: the calc of a schedule.

Fits of NPKit measurements on GH200 (fp32 Ring AllReduce, one thread block, cold; medians of ten repeats,
``npkit_data_summary_{Simple,LL}.json`` of spcl/atlahs 8837294, set "clariden"):
``t(b) = max(t0, a + b / BW)`` ns for b data bytes.  Within 4 % of the medians from 64 KiB up (Simple); up to
23 % off at 8 KiB.  LL128 was not measured: it takes the bandwidth of Simple and the t0 of LL.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from atlas_lp.signatures.protocols import Protocol

Ints = NDArray[np.int64]

REDUCE_COPY_MODELS = {
    "gh200": "reduce/copy times are fits of NPKit measurements on GH200 (within 4 % from 64 KiB up)",
    "none": "reduce/copy loops cost nothing",
}
"""Names of the cost models and what each assumes."""


class Primitive(Enum):
    """Primitives of a ring, as the device code names them; (receives, sends)."""

    SEND = (False, True)
    RECV_REDUCE_SEND = (True, True)
    RECV_REDUCE_COPY_SEND = (True, True, "copy")
    RECV_COPY_SEND = (True, True, "no reduce")
    RECV_REDUCE_COPY = (True, False)
    RECV = (True, False, "no reduce")

    @property
    def receives(self) -> bool:
        """Whether it takes a slice from the ring."""
        return bool(self.value[0])

    @property
    def sends(self) -> bool:
        """Whether it passes a slice on."""
        return bool(self.value[1])


_P = Primitive

# (t0 ns, a ns, tenths of a byte per ns)
_SIMPLE = {
    _P.SEND: (1050, -90, 487),
    _P.RECV_REDUCE_SEND: (1770, 230, 369),
    _P.RECV_REDUCE_COPY: (1770, 230, 369),
    _P.RECV_REDUCE_COPY_SEND: (2270, 330, 230),
    _P.RECV_COPY_SEND: (1060, -50, 275),
    _P.RECV: (930, -90, 467),
}
_SIMPLE_BELOW_4_KIB = {
    _P.SEND: 1270,
    _P.RECV_REDUCE_SEND: 1650,
    _P.RECV_REDUCE_COPY: 1650,
    _P.RECV_REDUCE_COPY_SEND: 1650,
    _P.RECV_COPY_SEND: 1580,
    _P.RECV: 1430,
}
_LL = {
    _P.SEND: (585, 42, 103),
    _P.RECV_REDUCE_SEND: (131, 55, 525),
    _P.RECV_REDUCE_COPY: (131, 55, 525),
    _P.RECV_REDUCE_COPY_SEND: (155, 61, 450),
    _P.RECV_COPY_SEND: (107, 57, 840),
    _P.RECV: (92, 60, 1190),
}


def reduce_copy_ns(primitive: Primitive, protocol: Protocol, data_bytes: Ints, model: str = "gh200") -> Ints:
    """Time in whole ns (rounded half up) of *primitive* on slices of *data_bytes*.

    *model* is one of :data:`REDUCE_COPY_MODELS`.
    """
    if model == "none":
        return np.zeros_like(data_bytes)
    if protocol is Protocol.LL:
        least, offset, rate = _LL[primitive]
    elif protocol is Protocol.LL128:
        least, offset, rate = _LL[primitive][0], 0, _SIMPLE[primitive][2]
    else:
        least, offset, rate = _SIMPLE[primitive]
    time = np.maximum(least, offset + (20 * data_bytes + rate) // (2 * rate))
    if protocol is Protocol.SIMPLE:
        time = np.where(data_bytes < 4096, _SIMPLE_BELOW_4_KIB[primitive], time)
    return time.astype(np.int64)
