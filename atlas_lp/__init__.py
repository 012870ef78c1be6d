"""atlas-lp: how long would a recorded NCCL schedule take on another network?  Exactly, as a function."""

__version__ = "0.1.0"
