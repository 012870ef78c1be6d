"""The house itself: imports run one way, the wheel holds everything, the links are links."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

# What a room may import of the others; errors and units are the ground they all stand on.
GROUND = {"atlas_lp.errors", "atlas_lp.units"}
ROOMS = {
    "goal": {"atlas_lp.goal"},
    "signatures": {"atlas_lp.goal", "atlas_lp.signatures"},
    "traces": {"atlas_lp.signatures", "atlas_lp.traces"},
    "cache": {"atlas_lp.goal.event_graph", "atlas_lp.solver.envelope", "atlas_lp.solver.highs", "atlas_lp.cache"},
}


def imports(path: Path) -> set[str]:
    """Modules of this project that *path* imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return {name for name in found if name.split(".")[0] == "atlas_lp"}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    for path in (ROOT / room).rglob("*.py"):
        for name in imports(path) - GROUND:
            allowed = any(name == room_ or name.startswith(f"{room_}.") for room_ in ROOMS[room])
            assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_rooms_are_relative_links():
    for room in ROOMS:
        assert os.readlink(ROOT / "atlas_lp" / room) == f"../{room}"


def test_library_neither_prints_nor_exits_nor_asserts_on_input():
    for path in [*ROOT.glob("atlas_lp/*.py"), *(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = getattr(getattr(node, "func", None), "id", None)
            assert called not in ("print", "exit", "quit"), f"{path}: {called}"
            assert not isinstance(node, ast.Assert), f"{path}:{node.lineno} asserts"


def test_help_needs_no_heavy_library():
    code = (
        "import sys; from click.testing import CliRunner; from atlas_lp.cli import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([m for m in ('numpy', 'numba', 'pyarrow', 'highspy', 'matplotlib', 'networkx', 'rich') "
        "if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_wheel_installs_one_name_and_runs_the_demo_elsewhere(tmp_path):
    """Build the wheel from a copy of the checkout, unpack it into an empty folder, run the demo from another."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    build += ["--disable-pip-version-check", "-w", str(tmp_path / "dist"), str(copy_of_checkout(tmp_path))]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*install, "--target", str(site), str(wheel)], check=True, capture_output=True)
    names = {p.name for p in site.iterdir() if not p.name.endswith(".dist-info") and p.name != "bin"}
    assert names == {"atlas_lp"}
    environment = {**os.environ, "PYTHONPATH": str(site), "ATLAS_LP_CACHE": str(tmp_path / "cache")}
    where = "import atlas_lp, atlas_lp.goal, atlas_lp.traces; print(atlas_lp.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", where], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(site) in shown.stdout
    demo = [sys.executable, "-m", "atlas_lp", "demo", "-o", "out"]
    result = subprocess.run(demo, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "report: out/report.html"
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


def copy_of_checkout(folder: Path) -> Path:
    """Copy what git would hand out, so that building leaves nothing in the checkout."""
    target = folder / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        source, place = ROOT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            place.symlink_to(os.readlink(source))
        elif source.is_file():
            place.write_bytes(source.read_bytes())
    return target
