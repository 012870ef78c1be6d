"""The house itself: imports run one way, the wheel holds everything, the links are links."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import networkx
import pytest
from helpers import ROOT

OWNERS_FOLDERS = ("goal", "signatures", "traces", "cache")
MOST_FILES = 11
"""Files in one room; a room that needs more is two."""


def reference():
    """The script that prints the table of rooms, which also answers questions about it."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = reference()
ROOMS = REFERENCE.rooms()


def files_of_the_house() -> list[Path]:
    """Every file of the package, below the links where the owner's folders are."""
    return sorted(p for place in ("atlas_lp", *OWNERS_FOLDERS) for p in (ROOT / place).rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str | None:
    """Room of a module, given as the parts of its path inside the package; None where the table has none."""
    folder, file = "/".join(parts[:-1]), parts[-1]
    named = [name for name, room in ROOMS.items() if room["folder"] == folder and file in room.get("files", [file])]
    return named[0] if len(named) == 1 else None


def parts_of(path: Path) -> tuple[str, ...]:
    """Path of a file inside the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1:] if parts[0] == "atlas_lp" else parts


MODULES = {parts_of(path) for path in files_of_the_house()}


def imports(path: Path) -> set[tuple[str, ...]]:
    """Modules of this project that *path* imports anywhere, for type checkers alone too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return {module_of(name.split(".")[1:]) for name in found if name.split(".")[0] == "atlas_lp"}


def module_of(names: list[str]) -> tuple[str, ...]:
    """The module that a dotted name lies in: itself, the one before it, or a package."""
    for end in (len(names), len(names) - 1):
        for parts in (tuple(names[:end]), (*names[:end], "__init__")):
            if parts in MODULES:
                return parts
    raise AssertionError(f"no module atlas_lp.{'.'.join(names)}")


def test_every_file_has_a_room_and_every_room_has_files():
    assert [parts for parts in MODULES if room_of(parts) is None] == []
    assert {room_of(parts) for parts in MODULES} == set(ROOMS)
    sizes = Counter(room_of(parts) for parts in MODULES if parts[-1] != "__init__")
    assert {name: count for name, count in sizes.items() if count > MOST_FILES} == {}


def test_rooms_stand_on_lower_floors_only():
    below: set[str] = set()
    for name, room in ROOMS.items():
        assert set(room["may_import"]) <= below, f"{name} may import what stands above it"
        below.add(name)


@pytest.mark.parametrize("path", files_of_the_house(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    allowed = REFERENCE.may_import(room_of(parts_of(path)))
    for parts in imports(path):
        assert parts == ("__init__",) or room_of(parts) in allowed, "/".join(parts)


def test_inside_a_room_no_circle_of_imports():
    graph = networkx.DiGraph((parts_of(path), parts) for path in files_of_the_house() for parts in imports(path))
    graph.remove_nodes_from([parts for parts in list(graph) if parts[-1] == "__init__"])
    assert list(networkx.simple_cycles(graph)) == []


def test_rooms_say_what_they_hold():
    for room in ROOMS.values():
        assert room["sentence"].endswith(".")
        if "files" not in room:
            own = ast.get_docstring(ast.parse((ROOT / "atlas_lp" / room["folder"] / "__init__.py").read_text("utf-8")))
            assert own, room["folder"]


def test_the_owners_folders_are_relative_links():
    for room in OWNERS_FOLDERS:
        assert os.readlink(ROOT / "atlas_lp" / room) == f"../{room}"


def test_library_neither_prints_nor_exits_nor_asserts_on_input():
    command_line = ROOT / "atlas_lp" / "cli"
    for path in (path for path in files_of_the_house() if not path.is_relative_to(command_line)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = getattr(getattr(node, "func", None), "id", None)
            assert called not in ("print", "exit", "quit"), f"{path}: {called}"
            assert not isinstance(node, ast.Assert), f"{path}:{node.lineno} asserts"


def test_texts_of_inputs_have_one_way_out_and_numbers_one_way_in():
    """What prints makes texts plain first; digits are those that atlas_lp/texts.py takes for some."""
    printers = {ROOT / "atlas_lp/cli/__init__.py", ROOT / "atlas_lp/cli/shared/output.py"}
    for path in files_of_the_house():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            assert called not in ("isdigit", "isdecimal", "isnumeric"), f"{path}:{node.lineno}: atlas_lp.texts.integer"
            assert called not in ("echo", "secho") or path in printers, f"{path}:{node.lineno}: output.say"
            assert called not in ("IntRange", "FloatRange"), f"{path}:{node.lineno}: options.Whole or Finite"
            of_ints = isinstance(node, ast.Call) and getattr(node.func, "id", None) == "int"
            assert not of_ints or len(node.args) == 1 or path.name == "texts.py", f"{path}:{node.lineno}: texts.integer"


WRITERS = {("files",), ("folders",)}
"""What makes, changes and removes files, for everything that is written."""
SWITCHES = {("peak_memory",)}
"""What writes to the system, and no file."""
CHANGES = {"write_text", "write_bytes", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "touch", "rename"}
MODES = re.compile("[rbt+]*[wax+][rbt+]*")


def test_everything_that_is_written_is_written_in_one_way():
    for path in (path for path in files_of_the_house() if parts_of(path) not in WRITERS | SWITCHES):
        for node in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            texts = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
            writes = name in CHANGES or (name == "open" and any(MODES.fullmatch(text) for text in texts))
            assert not writes, f"{path}:{node.lineno} writes by itself"


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
