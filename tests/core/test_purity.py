"""The core takes time and randomness as values: what it decides can be decided again."""

import ast
from pathlib import Path

import pytest

import flock.core

MODULES = sorted(Path(flock.core.__file__).parent.rglob("*.py"))
# What brings a clock, chance or the outside world.  `random.Random` is a type for what is passed in.
IMPURE = {"time", "secrets", "uuid", "socket", "subprocess", "asyncio", "threading"}
SOURCES = {"random.SystemRandom", "random.random", "random.choice", "random.randrange", "os.urandom", "datetime.now"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_core_reads_no_clock_and_makes_no_chance(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not imported & IMPURE
    assert not used & SOURCES
