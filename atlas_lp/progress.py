"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is (0: not known)."""
