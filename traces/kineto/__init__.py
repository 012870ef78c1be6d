"""Reads the traces of the PyTorch profiler (Kineto JSON)."""
