"""The front door: names on the command line to one :class:`~atlas_lp.traces.trace.Trace`."""
