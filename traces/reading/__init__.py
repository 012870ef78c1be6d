"""Names on the command line to one :class:`~atlas_lp.traces.trace.Trace`: files are found, read once and joined."""
