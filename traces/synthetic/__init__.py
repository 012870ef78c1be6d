"""Writes traces that nobody measured, in the format of Nsight Systems exports: for the demo, examples and tests."""
