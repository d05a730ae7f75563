"""A lab with agents for the tests that look at one."""

import os
from collections.abc import Iterator

import pytest

from flock.lab.fabric import Lab
from flock.lab.home import Home


@pytest.fixture(scope="session")
def seen_lab() -> Iterator[Lab]:
    """Two nodes and two routers, settled; a test leaves it as it found it."""
    name = f"view{os.getpid()}"
    try:
        lab = Lab.up(name=name, nodes=2)
        lab.wait()
        yield lab
    finally:
        Lab.down(name=name, home=Home.named(name))
