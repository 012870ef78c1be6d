"""NCCL's codes for algorithms, protocols, reductions and datatypes (``nccl_common.h``, ``nccl.h``), as words.

Logs, profiler dumps and annotations use the codes or the upper-case names.
"""

from __future__ import annotations

from atlas_lp.texts import integer

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Avg")

DATATYPES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
DATATYPES |= {"float16": 2, "float32": 4, "float64": 8, "bfloat16": 2, "float8e4m3": 1, "float8e5m2": 1}
"""Bytes of an element by datatype, in the order of NCCL's codes."""

_NAMES = {"COLLNET_DIRECT": "collnet_direct", "COLLNETDIRECT": "collnet_direct", "COLLNET_CHAIN": "collnet_chain"}
_NAMES |= {"COLLNETCHAIN": "collnet_chain", "NVLS_TREE": "nvls_tree", "NVLSTREE": "nvls_tree"}

_ALIASES = {"char": "int8", "int": "int32", "half": "float16", "float": "float32", "double": "float64"}


def algorithm(text: str) -> str | None:
    """Algorithm of a code or a name, None for one that is not known."""
    code = integer(text)
    if code is not None:
        return ALGORITHMS[code] if 0 <= code < len(ALGORITHMS) else None
    word = _NAMES.get(text.upper(), text.lower())
    return word if word in ALGORITHMS else None


def protocol(text: str) -> str | None:
    """Protocol of a code or a name, None for one that is not known."""
    code = integer(text)
    if code is not None:
        return PROTOCOLS[code] if 0 <= code < len(PROTOCOLS) else None
    return text.lower() if text.lower() in PROTOCOLS else None


def datatype_bytes(text: str) -> int:
    """Bytes of an element of a datatype code or name (``7``, ``ncclFloat32``), 0 for one that is not known."""
    code = integer(text)
    if code is not None:
        return list(DATATYPES.values())[code] if 0 <= code < len(DATATYPES) else 0
    word = text.removeprefix("nccl").lower()
    return DATATYPES.get(_ALIASES.get(word, word), 0)
