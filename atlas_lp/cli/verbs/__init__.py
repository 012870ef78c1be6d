"""One file per verb: its options, and one call for what it does."""
