"""What was recorded: the :class:`~atlas_lp.traces.trace.Trace`, and the records that readers hand over.

One room per source (:mod:`nsight`, :mod:`kineto`, :mod:`companions`, :mod:`synthetic` to write some), :mod:`join` to
make one job of their files, :mod:`reading` as the front door, :mod:`signing` to find the signature of every collective.
"""
