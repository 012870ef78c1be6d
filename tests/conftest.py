"""Shared by all tests: one deterministic hypothesis profile and the folder of sample inputs."""

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
