"""Kernels compile where nothing can be kept: a read-only installation and a user without a home."""

import subprocess
import sys

from helpers import ROOT

NO_PLACE = """
import sys, warnings
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
from atlas_lp.compiled import NotKept
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from atlas_lp.api import collective, solve
    print(round(solve(collective("AllReduce", "64KiB", 4)).T()))
print([w.category is NotKept for w in told], len(told))
"""


def test_without_a_place_every_run_compiles_and_says_so_once():
    done = subprocess.run([sys.executable, "-c", NO_PLACE], capture_output=True, text=True, check=True, cwd=ROOT)
    time, told = done.stdout.splitlines()
    kept = "from atlas_lp.api import collective, solve; print(round(solve(collective('AllReduce', '64KiB', 4)).T()))"
    with_place = subprocess.run([sys.executable, "-c", kept], capture_output=True, text=True, check=True, cwd=ROOT)
    assert time == with_place.stdout.strip()
    assert told == "[True] 1"
