"""The parameters of a network: the record, its file format, and the presets as data."""
