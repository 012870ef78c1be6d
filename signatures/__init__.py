"""Collective signatures and the NCCL schedules they decide.

A :class:`~atlas_lp.signatures.signature.Signature` is everything that fixes the graph of a collective, in canonical
labels; :func:`~atlas_lp.signatures.algorithms.expand.expand` turns it into a GOAL
:class:`~atlas_lp.goal.schedule.Schedule`.  The rules are those of NCCL 2.18 .. 2.30, each module naming the source file
and version of what it implements: :mod:`nccl` for how bytes are spread, :mod:`algorithms` with one module each,
:mod:`topology` for who neighbours whom, :mod:`slices` for what ranks do, :mod:`costs` for reduce and copy.
"""
