"""Longest paths, exact piecewise affine envelopes, and the LP that checks them; knows graphs, not collectives."""
