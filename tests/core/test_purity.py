"""The core takes time, randomness and what files say as values: what it decides can be decided again."""

import ast
from pathlib import Path

import pytest

import flock.core

MODULES = sorted(Path(flock.core.__file__).parent.rglob("*.py"))
# What brings a clock, chance or the outside world.  `random.Random` is a type for what is passed in.
IMPURE = {
    "time",
    "secrets",
    "uuid",
    "socket",
    "subprocess",
    "asyncio",
    "threading",
    "fcntl",
    "select",
    "ctypes",
    "shutil",
}
ENDING = {"os", "signal"}  # what only the faults for tests need, to end the process
READS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "stat", "iterdir", "glob"}
SOURCES = {"random.SystemRandom", "random.random", "random.choice", "random.randrange", "os.urandom", "datetime.now"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_core_reads_no_clock_and_no_file_and_makes_no_chance(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert not imported & (IMPURE if path.stem == "faults" else IMPURE | ENDING)
    assert not used & SOURCES
    assert not called & READS
