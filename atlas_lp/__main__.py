"""``python -m atlas_lp`` is the ``atlas-lp`` command."""

from atlas_lp.cli import run

run()
