"""Solved envelopes on disk, found by content: see :class:`Store`."""

from atlas_lp.cache.store import Entry, Miss, Store, default_folder

__all__ = ["Entry", "Miss", "Store", "default_folder"]
