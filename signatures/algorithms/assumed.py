"""A signature from parameters: what is not recorded is what NCCL would build for nodes of alike GPUs."""

from __future__ import annotations

from atlas_lp.errors import InputError, UnsupportedError
from atlas_lp.signatures.algorithms.algorithm import Algorithm, Built, Parameters
from atlas_lp.signatures.algorithms.table import WITH_SCHEDULE, algorithm
from atlas_lp.signatures.nccl.collectives import COLLECTIVES
from atlas_lp.signatures.nccl.protocols import Protocol
from atlas_lp.signatures.signature import Signature


def assumed_signature(parameters: Parameters) -> tuple[Signature, list[str]]:
    """Return the signature of *parameters* and what it assumes, as sentences; raises what :func:`build` raises."""
    built = build(parameters)
    assumed = built.assumed, chosen_algorithm(parameters).approximation
    return built.signature, [sentence for sentence in assumed if sentence]


def build(parameters: Parameters) -> Built:
    """Build the signature of *parameters*, recorded topology included.

    Raises what the builder of the algorithm raises, :class:`~atlas_lp.errors.UnsupportedError` for a collective
    that the algorithm does not do, and :class:`~atlas_lp.errors.InputError` for a protocol that it does not run.
    """
    row = chosen_algorithm(parameters)
    if parameters.collective not in row.collectives:
        raise UnsupportedError(f"{row.name} does {' and '.join(row.collectives)}, not {parameters.collective}")
    if parameters.protocol not in row.protocols:
        words = " and ".join("Simple" if p is Protocol.SIMPLE else p.name for p in row.protocols)
        raise InputError(f"{row.name} runs the {words} protocol only (p2p takes LL by itself where NCCL does)")
    return row.build(parameters)


def chosen_algorithm(parameters: Parameters) -> Algorithm:
    """Return the algorithm of *parameters*; what NCCL carries out by messages has no ring."""
    collective = parameters.collective
    if collective not in WITH_SCHEDULE:
        raise UnsupportedError(f"{collective} has no schedule; there are schedules for {', '.join(WITH_SCHEDULE)}")
    by_messages = COLLECTIVES[collective].by_messages and parameters.algorithm == "ring"
    return algorithm("p2p" if by_messages else parameters.algorithm)
