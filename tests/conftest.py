"""Shared by all tests: one deterministic hypothesis profile, the folder of sample inputs, the traces of the demo."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "atlas",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("atlas")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real sample inputs, named by ATLAS_LP_DATA."""
    folder = os.environ.get("ATLAS_LP_DATA")
    if not folder:
        pytest.skip("set ATLAS_LP_DATA to the folder of sample inputs")
    return Path(folder)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the traces that `atlas-lp demo` writes: 16 GPUs on 4 nodes.  Read it, write elsewhere."""
    from atlas_lp.traces.synthetic.demo import write_demo

    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder)
    return folder
