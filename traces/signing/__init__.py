"""Every collective of a trace with its signature, and when its operations ran."""
