"""The tests themselves: oracles are independent of what they judge, and test modules of each other."""

import ast
from pathlib import Path

import pytest
from helpers import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every module that *path* imports anywhere, relative ones with their dots."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {module} | {f"{module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def names(path: Path) -> set[str]:
    """All names and attributes of a module: an import by hand would be among them."""
    tree = ast.parse(path.read_text("utf-8"))
    plain = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return plain | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


ORACLES = sorted((TESTS / "oracles").rglob("*.py"))


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.stem)
def test_oracles_import_nothing_of_what_they_judge(path):
    """Neither do they import helpers, which build what is judged."""
    ours = {"atlas_lp", "helpers", "conftest", ""}
    assert not {name for name in imported(path) if name.split(".")[0] in ours}
    assert not names(path) & {"__import__", "import_module", "exec", "eval"}


def test_there_are_oracles():
    assert {"execution", "loggp", "paths", "rings", "trees"} <= {path.stem for path in ORACLES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_module_imports_a_test_module(path):
    """What several tests share is a helper or an oracle."""
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] not in ("", "tests", "conftest"), name
        assert not any(part.startswith("test_") for part in parts), name


def test_every_test_module_has_tests():
    for path in TESTS.rglob("test_*.py"):
        body = ast.parse(path.read_text("utf-8")).body
        assert any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in body), path
